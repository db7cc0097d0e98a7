"""What the public headers declare and what their comments say, for reference.py.

The comments have a form: a sentence, what a caller needs to know, then sections that begin with one of
SECTIONS. This is no C parser: it reads the style in which our headers are written.
"""

import os
import re

SECTIONS = ["Takes", "Gives", "Returns", "After-failure", "Owns", "Thread", "Blocks", "Cost",
            "Source"]
C_TYPES = {"void", "char", "int", "double", "float", "size_t", "unsigned char", "int32_t",
           "int64_t", "uint8_t", "uint16_t", "uint32_t", "uint64_t"}
HANDLES = {"kvp_seq", "kvp_ns", "kvp_request"}
# Words that look like ours and name no declaration: the form of a name, a library, a test's file.
NOT_NAMES = {"kvp_object_verb"}

# --------------------------------------------------------------------------- reading the headers


class Item:
    """One declaration: its source text, its comment, and the names that it declares."""

    def __init__(self, kind, name, text, comment, file, line):
        self.kind, self.name, self.text, self.comment = kind, name, text, comment
        self.file, self.line = file, line
        self.parameters = []  # of a call: (type without const, name, const, stars)
        self.result = ""
        self.names = [name]   # and the constants of an enum
        self.fields = {}      # of a struct: name -> type
        self.shared = False   # the comment is that of the call before


def bare_type(words):
    return re.sub(r"\b(const|struct|enum)\b", "", words).replace("*", "").strip()


def parse_parameter(text):
    text = " ".join(text.split())
    match = re.fullmatch(r"(.*?)(\w+)((?:\[\w*\])*)", text)
    if text == "void" or not match:
        return None
    return (bare_type(match[1]), match[2], "const" in match[1].split("*")[0], match[1].count("*"))


def without_comments(text):
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)


def parse_fields(body):
    """name -> type of the fields of a struct; those of an inner union count as the struct's."""
    body = re.sub(r"\b(KVP_EXTENSION|union|struct)\s*(?:\w+\s*)?\{|\}\s*\w*(?=\s*;)", ";", body)
    fields = {}
    for part in body.split(";"):
        part = " ".join(part.split())
        function = re.fullmatch(r"(.*?)\(\*(\w+)\)\s*\((.*)\)", part)
        if function:
            fields[function[2]] = bare_type(function[1])
        elif part:
            first, *more = part.split(",")
            parsed = parse_parameter(first)
            if parsed:
                fields[parsed[1]] = parsed[0]
                fields.update((re.sub(r"\W", "", other.split("[")[0]), parsed[0]) for other in more)
    return fields


def classify(text, comment, file, line):
    """The Item of one declaration, or None for what a reader need not see."""
    code = " ".join(without_comments(text).split())
    match = re.match(r"KVP_API (.*?)(\**)\b(kvp_\w+)\((.*)\)", code)
    if match:
        item = Item("call", match[3], text, comment, file, line)
        item.result = bare_type(match[1])
        item.parameters = [found for part in match[4].split(",") if (found := parse_parameter(part))]
        return item
    match = re.match(r"typedef struct (\w+)(?: \{(.*)\})? (\w+);", code)
    if match:
        item = Item("struct" if match[2] else "opaque", match[3], text, comment, file, line)
        item.fields = parse_fields(match[2] or "")
        return item
    match = re.match(r"typedef \w+ \(\*(kvp_\w+)\)\(", code)
    if match:
        return Item("opaque", match[1], text, comment, file, line)
    match = re.match(r"(?:typedef )?enum (\w+ )?\{(.*)\}", code)
    if match:
        constants = re.findall(r"\b(KVP_[A-Z0-9_]+)\b\s*(?==|,|$)", match[2])
        item = Item("enum", (match[1] or (constants or [""])[0]).strip(), text, comment, file, line)
        item.names += constants
        return item
    match = re.match(r"#\s*define\s+(KVP_\w+)(\(?)", code)
    if match and not re.search(r"_H$", match[1]):
        item = Item("define", match[1], text, comment, file, line)
        for name in re.findall(r"\bX\((\w+),", code):
            if "_STATUS_" in match[1]:
                item.names.append("KVP_" + name)
            elif "_CALL_" in match[1]:
                item.names.append("KVP_CALL_" + name)
        return item
    return None


TOKEN = re.compile(r"(?P<comment>/\*.*?\*/)|(?P<directive>^#(?:[^\n\\]|\\\n|\\.)*(?:\n[ \t]+/\*.*?\*/)?)"
                   r"|(?P<skip>extern \"C\" \{|^\}$)|(?P<code>[^\s#/}][^;{]*(?:\{(?:[^{}]|\{[^{}]*\})*\}"
                   r"[^;{]*)?;(?:[ \t]+/\*.*?\*/)?)", re.DOTALL | re.MULTILINE)


def parse_header(path, file):
    """(the comment at the top, [Item]) of one header."""
    with open(path, encoding="utf-8") as stream:
        text = stream.read()
    head, items, comment, end = "", [], "", 0
    for match in TOKEN.finditer(text):
        gap = text[end:match.start()]
        end = match.end()
        if match.lastgroup == "comment":
            if not head:
                head = match[0]
            comment = match[0] if not re.match(r"/\* -{20}", match[0]) else ""
            continue
        if match.lastgroup == "skip" or gap.count("\n") > 1:
            comment = ""
        item = None if match.lastgroup == "skip" else classify(
            match[0], comment if comment != head else "", file, text.count("\n", 0, match.start()) + 1)
        if item:
            previous = items[-1] if items else None
            if not comment and gap == "\n" and previous and item.kind == previous.kind == "call":
                item.comment, item.shared = previous.comment, True
            items.append(item)
        comment = ""
    return head, items


def public_headers(include):
    for folder, _, names in os.walk(include):
        for name in names:
            path = os.path.relpath(os.path.join(folder, name), include)
            if name.endswith(".h") and path != "all.h":
                yield path


def text_of(comment):
    """The lines of a comment without its frame."""
    lines = re.sub(r"\s*\*/\s*$", "", comment).split("\n")
    lines = [re.sub(r"^(/\*| \*) ?", "", line) for line in lines]
    return "\n".join(line.rstrip() for line in lines).strip("\n")


SECTION = re.compile(r"(?:^|(?<=[.;?)] )|(?<=\s\s))(" + "|".join(SECTIONS) + r"):(?= |\n|$)",
                     re.MULTILINE)


def split_form(text):
    """(what stands before the form, {section: text}); a text keeps the columns of its lines."""
    parts = SECTION.split(text)
    sections = {}
    for name, body in zip(parts[1::2], parts[2::2]):
        column = " " * (len(name) + 1)  # where the label stood
        sections[name] = column + body.rstrip()
    return parts[0].strip("\n"), sections


class Reference:
    """All headers, and who is related to whom."""

    def __init__(self, include):
        self.heads, self.items = {}, []
        for file in sorted(public_headers(include)):
            self.heads[file], items = parse_header(os.path.join(include, file), file)
            self.items += items
        self.calls = {item.name: item for item in self.items if item.kind == "call"}
        self.types = {item.name: item for item in self.items if item.kind in ("struct", "opaque")}
        for item in self.items:  # a type that is declared first and defined below
            if item.kind == "struct":
                self.types[item.name] = item
        self.enums = {item.name for item in self.items if item.kind == "enum"}
        self.home = {name: item for item in reversed(self.items) for name in item.names}
        self.statuses = next((item.names[1:] for item in self.items
                              if item.name == "KVP_STATUS_TABLE"), [])

    def returned(self, name, seen=()):
        """The statuses that a call's Returns paragraph names, or that of a call that it refers to."""
        item = self.calls[name]
        text = split_form(text_of(item.comment))[1].get("Returns", "")
        found = set(re.findall(r"\bKVP_(?:OK|E_[A-Z_]+)\b", text))
        for other in re.findall(r"(?:^|; )(?:as|as for|what) (kvp_\w+)", " ".join(text.split())):
            if other in self.calls and other not in seen:
                found |= self.returned(other, (*seen, name))
        return found - set(re.findall(r"\bnever (KVP_E_[A-Z_]+)", text))

    def takes_handle(self, item):
        return any(kind in HANDLES or HANDLES & set(self.types[kind].fields.values())
                   for kind, parameter, _, _ in item.parameters
                   if kind in self.types and not parameter.startswith("out_"))

    def by_rule(self, status):
        """The calls that can return a status because of a rule that holds for many."""
        for name, item in self.calls.items():
            thread = split_form(text_of(item.comment))[1].get("Thread", "").strip()
            if item.result != "kvp_status" or status == "KVP_OK":
                continue
            if (status == "KVP_E_ARG" or status == "KVP_E_HANDLE" and self.takes_handle(item)
                    or status == "KVP_E_BUSY" and thread.startswith("cache")
                    and item.parameters[0][0] == "kvp_cache"):
                yield name


# -------------------------------------------------------------------------------------- the checks


def arguments_of(text, start):
    """The text between the bracket at `start` and its partner, or None."""
    depth = 0
    for i in range(start, len(text)):
        depth += (text[i] == "(") - (text[i] == ")")
        if depth == 0:
            return text[start + 1:i]
    return None


def check_names(reference, text):
    """What is wrong with the names in a comment: (offset, message)."""
    known = set(reference.home) | NOT_NAMES
    for match in re.finditer(r"\b(kvp_[a-z0-9_]+|KVP_[A-Z0-9_]+)(\.\w+)?(\()?", text):
        name, field, bracket = match.groups()
        kind = "status" if re.match(r"KVP_E_", name) else "name"
        if name.endswith("_") or re.match(r"\s*, _[A-Z]|\.\.\.", text[match.end(1):]):
            if not any(other.startswith(name) for other in known):
                yield match.start(), f"nothing begins with {name}"
        elif name not in known:
            yield match.start(), f"there is no {kind} {name}"
        elif field and name in reference.types and field != ".h" \
                and field[1:] not in reference.types[name].fields:
            yield match.start(), f"{name} has no field {field[1:]}"
        elif bracket and name in reference.calls:
            given = arguments_of(text, match.end() - 1)
            if given and ".." not in given and re.search(r"[,&]", given):
                n = len(re.sub(r"\([^()]*\)|\{[^{}]*\}", "", given).split(","))
                if n != len(reference.calls[name].parameters):
                    yield match.start(), (f"{name} takes {len(reference.calls[name].parameters)} "
                                          f"arguments, not {n}")


def check(reference):
    """[file:line: message], in order."""
    found = []

    def report(file, line, message):
        found.append((f"include/kvpager/{file}", line, message))

    for file, head in reference.heads.items():
        for offset, message in check_names(reference, head):
            report(file, 1 + head.count("\n", 0, offset), message)
    for item in reference.items:
        if not item.shared:
            first = item.line - item.comment.count("\n") - 1
            for offset, message in check_names(reference, item.comment):
                report(item.file, first + item.comment.count("\n", 0, offset), message)
        if item.kind == "struct":
            inside = "\n".join(re.findall(r"/\*.*?\*/", item.text, re.DOTALL))
            for _, message in check_names(reference, inside):
                report(item.file, item.line, f"{item.name}: {message}")
        kinds = [kind for kind, *_ in item.parameters] + list(item.fields.values())
        if item.kind == "call":
            kinds.append(item.result)
            if not item.comment:
                report(item.file, item.line, f"{item.name} has no comment")
            elif item.result == "kvp_status" \
                    and "Returns" not in split_form(text_of(item.comment))[1]:
                report(item.file, item.line, f"the comment of {item.name} has no Returns paragraph")
        for kind in kinds:
            if kind not in C_TYPES | reference.enums and kind not in reference.types:
                report(item.file, item.line, f"{item.name}: there is no type {kind}")
    return [f"{file}:{line}: {message}" for file, line, message in sorted(set(found))]
