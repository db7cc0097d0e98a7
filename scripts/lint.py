#!/usr/bin/env python3
"""House rules that a compiler does not know.

    lint.py [ROOT]        check the tree at ROOT (default: the tree this script is in)
    lint.py --self-test   show that each rule fires on a planted violation

Prints `file:line: message` for each finding; exit status 1 if there is any.
"""

import collections
import fnmatch
import os
import re
import subprocess
import sys
import tempfile

import structure
import wings

# ------------------------------------------------------------------- the rules, to be read and edited

# Who may include whom. The first pattern that fits the including file decides. Names are paths in
# the repository; an #include <...> that is not ours (libc, xxhash) is looked at by NO_SYSTEM only.
# A file may always include its own header, and kvpager/ stands for include/kvpager/.
PUBLIC = "include/kvpager/*"
# Structs that differ between a program and the library, why one is refused, numbers as they are
# stored: every room's.
SIZED = ["src/base/sized.h", "src/base/why.h", "src/base/bytes.h"]
ALIGNED = "src/base/aligned.h"
# Sizes that people write: one reader for options, URLs of stores and the server.
AMOUNT = "src/base/amount.h"
MAY_INCLUDE = [
    # file                    what it may include
    (PUBLIC,                  [PUBLIC]),
    ("src/base/platform/*",   [PUBLIC, *SIZED, "src/base/platform/*"]),
    ("src/base/*",            [PUBLIC, "src/base/*"]),
    ("src/core/stages/hash*", [PUBLIC, "src/base/base.h", "src/core/stages/hash*"]),
    ("src/core/stages/prefix*",
                              [PUBLIC, "src/base/base.h", "src/core/stages/hash*",
                               "src/core/stages/prefix*"]),
    # What is evicted next is the pool's to decide: with the learned policy, among leaves.
    ("src/core/stages/pool*", [PUBLIC, "src/base/base.h", "src/core/stages/hash*",
                               "src/core/stages/pool*", "src/core/policy/*"]),
    ("src/core/stages/table*",
                              [PUBLIC, "src/base/base.h", "src/core/stages/hash*"]),
    ("src/core/stages/*",     [PUBLIC, "src/base/base.h"]),
    ("src/core/record/*",     [PUBLIC, "src/base/base.h", "src/base/bytes.h", "src/core/record/*"]),
    ("src/core/policy/*",     ["src/base/base.h", "src/core/policy/*"]),
    ("src/core/reasons/*",    [PUBLIC, "src/base/base.h"]),
    # Every call begins and ends there: which process is it?
    ("src/core/calls/life.c", [PUBLIC, *SIZED, "src/base/base.h", "src/base/platform/process.h",
                               "src/core/*"]),
    ("src/core/cache/frame.c", [PUBLIC, "src/base/platform/process.h", "src/core/*"]),
    ("src/core/*",            [PUBLIC, *SIZED, "src/base/base.h", "src/core/*"]),
    # The log is written from inside the core: calls.def is the core's list of what it reports.
    ("src/oplog/*",           [PUBLIC, *SIZED, "src/oplog/*", "src/core/record/record.h",
                               "src/core/record/calls.def"]),
    ("src/sched/*",           [PUBLIC, *SIZED, ALIGNED, "src/sched/*"]),
    ("src/wire/*",            [PUBLIC, *SIZED, ALIGNED, "src/wire/*"]),
    ("src/memory/*",          [PUBLIC, *SIZED, "src/memory/*", "src/base/pages/pages.h",
                               "src/base/team.h"]),
    ("src/attention/*",       [PUBLIC, *SIZED, "src/attention/*", "src/base/team.h"]),
    ("src/transfer/transfer_rows*",    [PUBLIC, "src/base/checksum.h", "src/transfer/*", "src/memory/copy/stream.h"]),
    ("src/transfer/share.*",  ["src/transfer/share.h", "src/base/platform/which.h"]),
    ("src/transfer/*",        [PUBLIC, *SIZED, "src/transfer/*", "src/base/checksum.h"]),
    ("src/store/url.c",       [PUBLIC, AMOUNT, "src/store/*"]),
    ("src/store/*",           [PUBLIC, "src/base/sized.h", "src/base/quiet.h", "src/base/direct.h",
                               "src/store/*"]),
    ("src/spill/*",           [PUBLIC, "src/base/sized.h", "src/spill/*"]),
    ("src/publish/*",         [PUBLIC, "src/base/sized.h", "src/publish/*"]),
    ("src/tool/input/*",      [PUBLIC, "src/tool/input/*"]),
    ("src/tool/recording/*",  [PUBLIC, "src/tool/recording/*"]),
    ("src/tool/requests/*",   [PUBLIC, "src/tool/input/*", "src/tool/recording/recording.h",
                               "src/tool/requests/*"]),
    ("src/tool/args.c",       [PUBLIC, AMOUNT, "src/tool/*"]),
    ("src/tool/log/*",        [PUBLIC, "src/tool/*", "src/oplog/*", "src/core/record/calls.def"]),
    # A store as a model is a back end like others.
    ("src/tool/store/modelled.c", [PUBLIC, "src/tool/*", "src/store/catalog.h"]),
    # It says what it measures: a disk or its cache.
    ("src/tool/store/bench.c", [PUBLIC, "src/tool/*", "src/base/direct.h"]),
    # The simulation is of the library's own policy.
    ("src/tool/mrc/policies/mrc_learned.c", [PUBLIC, "src/tool/*", "src/base/base.h", "src/core/policy/*"]),
    ("src/tool/*",            [PUBLIC, "src/tool/*"]),
    # An integration is a program's library: it sees what every program sees.
    ("integrations/llama/serve/options.c", [PUBLIC, AMOUNT, "integrations/llama/*"]),
    ("integrations/llama/serve/engine/record.c",
     [PUBLIC, "src/tool/recording/recording.h", "integrations/llama/*"]),
    ("integrations/llama/*",  [PUBLIC, "integrations/llama/*"]),
    # An example of several files includes its own; others are one file and the public headers.
    ("examples/tiny_llama/*", [PUBLIC, "examples/tiny_llama/*"]),
    ("examples/*",            [PUBLIC]),
    # A real model, as the tests of llama.cpp's other library have it.
    ("integrations/ggml/test/model.c", [PUBLIC, "test/llama/f32_model.h"]),
    ("integrations/ggml/*",   [PUBLIC, "integrations/ggml/*"]),
]

# The three stages do not know each other, and one file tells the story: whoever is not listed here
# may include at most one of them.
STAGES = ["src/core/stages/prefix.h", "src/core/stages/pool.h", "src/core/stages/table.h"]
MAY_INCLUDE_STAGES = ["src/core/cache/*", "src/core/seq/*", "src/core/calls/*", "src/core/lend/*",
                      "src/core/meta/*", "src/core/snapshot/*", "test/*", "bench/*", "fuzz/*"]

# The core decides and does nothing else: no input or output, no threads, no clock.
NO_SYSTEM = [
    ("src/core/*", ["stdio.h", "pthread.h", "threads.h", "time.h", "sys/time.h"]),
]

# What a person can survey.
MAX_FOLDER_FILES = 18

MAX_FILE_LINES = 800
MAX_FUNCTION_LINES = 100
MAX_WIDTH = 100

# What all stages of .ci/budget may take together.
MAX_STAGES_SECONDS = 8400

# The interface to C++ stays small enough to be read at once.
MAX_CPP_HEADER_LINES = 420

# Names that other files, or other people's programs, can see.
NAME_RULES_IN = ["src/*", "integrations/*/src/*"]
# Names of another project's interface, declared again.
FOREIGN_TYPES = ["test/llama/fake/llama.h"]
NAMES_OK = ["main", "cmd_compare", "cmd_events", "cmd_gen", "cmd_inspect", "cmd_mrc", "cmd_record", "cmd_replay", "cmd_size",
            "cmd_store", "cmd_trace"]
PUBLIC_PREFIX = "kvp_"
INTERNAL_PREFIX = "kvpi_"
MACRO_PREFIXES = ("KVP_", "KVPAGER_")

# Every name that the root may have, beside those that .gitignore ignores. What a run leaves behind
# belongs below build/.
ROOT_NAMES = {".ci", ".clang-format", ".clang-tidy", ".editorconfig", ".git", ".gitignore",
              "CHANGELOG.md", "CMakeLists.txt", "CMakePresets.json", "CONTRIBUTING.md", "LICENSE",
              "Makefile", "README.md", "SECURITY.md", "bench", "cmake", "data", "docs",
              "examples", "findings", "fuzz", "include", "integrations", "packaging", "python",
              "scripts", "src", "test"}

TREES = ["include", "src", "test", "bench", "fuzz", "examples", "integrations"]

# Endings of files that may name a page of docs/, and those that name pages as examples.
PAGE_ENDINGS = (".md", ".c", ".h", ".def", ".hpp", ".cpp", ".py", ".sh", ".js", ".rs", ".txt", ".toml",
                ".cmake", ".docs")
PAGE_EXAMPLES = ("scripts/lint.py", "scripts/prose.py", "scripts/house.py")

# ------------------------------------------------------------------------------- reading a C file


def fits(path, patterns):
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


TOKEN = re.compile(r'//(?:\\\n|[^\n])*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'',
                   re.DOTALL)
DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.MULTILINE)


def blank(text):
    """The same text with everything but its line breaks turned into spaces."""
    return re.sub(r"[^\n]", " ", text)


def strip_comments(text, strings_too):
    """Blanks comments, and the insides of strings; line numbers and columns stay."""
    def replace(match):
        token = match.group()
        if token[0] == "/":
            return blank(token)
        return token[0] + blank(token[1:-1]) + token[-1] if strings_too else token
    return TOKEN.sub(replace, text)


class Source:
    """One file: its lines, and its code without comments, strings and directives."""

    def __init__(self, root, path):
        self.path = path
        with open(os.path.join(root, path), "rb") as file:
            raw = file.read()
        self.encoding_ok = True
        try:
            self.text = raw.decode("utf-8")
        except UnicodeDecodeError:
            self.encoding_ok = False
            self.text = raw.decode("latin-1")
        self.lines = self.text.split("\n")
        if self.lines[-1] == "":
            self.lines.pop()
        self.no_comments = strip_comments(self.text, strings_too=False)
        self.no_strings = strip_comments(self.text, strings_too=True)
        self.code = DIRECTIVE.sub(lambda match: blank(match.group()), self.no_strings)

    def line_of(self, offset):
        return self.text.count("\n", 0, offset) + 1

    def includes(self):
        """(line, name, quoted) of each #include."""
        pattern = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.MULTILINE)
        for match in pattern.finditer(self.no_comments):
            yield self.line_of(match.start()), match.group(2), match.group(1) == '"'

    def functions(self):
        """(name, is_static, first line, last line) of each function definition.

        Walks the braces at file level; a brace in column 0 is taken at its word, so that code with
        unbalanced braces under #if cannot swallow the rest of the file.
        """
        depth, start, opened = 0, 0, None
        code = self.code
        for match in re.finditer(r"[{};]", code):
            at, mark = match.start(), match.group()
            in_column_0 = at == 0 or code[at - 1] == "\n"
            if mark == "{":
                if in_column_0:
                    depth = 0
                if depth == 0:
                    head = code[start:at]
                    if re.search(r'\bextern\s*" *"\s*$', head):
                        start = at + 1
                        continue
                    opened = self.function_head(head, start)
                depth += 1
            elif mark == "}":
                depth = 0 if in_column_0 else max(0, depth - 1)
                if depth == 0:
                    if opened:
                        yield opened + (self.line_of(at),)
                    opened, start = None, at + 1
            elif depth == 0:
                start = at + 1

    def function_head(self, head, offset):
        if not head.rstrip().endswith(")") or "=" in head or "typedef" in head.split():
            return None
        without_attributes = re.sub(r"__attribute__\s*\(\(.*?\)\)", blank_match, head, flags=re.S)
        name = re.search(r"\b([A-Za-z_]\w*)\s*\(", without_attributes)
        if not name:
            return None
        indent = len(head) - len(head.lstrip())
        is_static = "static" in head[:name.start()].split()
        return name.group(1), is_static, self.line_of(offset + indent)


def blank_match(match):
    return blank(match.group())


# ------------------------------------------------------------------------------------- the checks
# Each yields (line, message).


def check_title(source):
    """A file of the library or the command that begins with its name has the right one."""
    title = re.match(r"/\* ([a-z0-9_]+): ", source.lines[0]) if source.lines else None
    stem = os.path.splitext(os.path.basename(source.path))[0]
    if source.path.startswith("src/") and title and not stem.startswith(title.group(1)):
        yield 1, f"the comment is of {title.group(1)}, the file is {stem}"


def check_text(source):
    if not source.encoding_ok:
        yield 1, "is not UTF-8"
    for number, line in enumerate(source.lines, 1):
        if "\t" in line:
            yield number, "tab"
        if len(line) > MAX_WIDTH:
            yield number, f"line is {len(line)} wide, at most {MAX_WIDTH}"
        word = re.search(r"\b(TODO|FIXME)\b", line)
        if word:
            yield number, f"{word.group()}: an issue is the place for it"
    if len(source.lines) > MAX_FILE_LINES:
        yield len(source.lines), f"file has {len(source.lines)} lines, at most {MAX_FILE_LINES}"


def check_functions(source):
    for name, _, first, last in source.functions():
        n_lines = last - first + 1
        if n_lines > MAX_FUNCTION_LINES:
            yield first, f"{name} has {n_lines} lines, at most {MAX_FUNCTION_LINES}"


def typedef_names(code):
    """(offset, name) of each typedef."""
    for match in re.finditer(r"\btypedef\b", code):
        depth, at = 0, match.end()
        while at < len(code) and (depth or code[at] != ";"):
            depth += {"{": 1, "}": -1}.get(code[at], 0)
            at += 1
        declaration = code[match.end():at]
        function = re.search(r"\(\s*\*\s*(\w+)\s*\)\s*\(", declaration)
        plain = re.search(r"(\w+)\s*(\[[^\]]*\]\s*)*$", declaration)
        if function:
            yield match.start(), function.group(1)
        elif plain:
            yield match.start(), plain.group(1)


def check_types(source):
    if fits(source.path, FOREIGN_TYPES):
        return
    for offset, name in typedef_names(source.code):
        if name.endswith("_t"):
            yield source.line_of(offset), f"typedef {name}: the ending _t is the system's"
    for match in re.finditer(r"\b(?:struct|union|enum)\s+(\w+_t)\b", source.code):
        yield source.line_of(match.start()), f"{match.group(1)}: the ending _t is the system's"


def check_macros(source):
    if not fits(source.path, [PUBLIC]):
        return
    for match in re.finditer(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", source.no_comments, re.MULTILINE):
        if not match.group(1).startswith(MACRO_PREFIXES):
            yield (source.line_of(match.start()),
                   f"public macro {match.group(1)}: must begin with {MACRO_PREFIXES[0]}")


def check_names(source, public_names):
    if not fits(source.path, NAME_RULES_IN):
        return
    in_header = source.path.endswith(".h")
    for name, is_static, first, _ in source.functions():
        if (is_static and not in_header) or name in NAMES_OK:
            continue
        if name.startswith(INTERNAL_PREFIX):
            continue
        if not name.startswith(PUBLIC_PREFIX):
            yield first, (f"{name} is seen by other files: must begin with {INTERNAL_PREFIX}, "
                          f"be {PUBLIC_PREFIX} if exported, or be static")
        elif name not in public_names:
            yield first, f"{name} is in no public header: must begin with {INTERNAL_PREFIX}"


def check_public_names(source):
    if not fits(source.path, [PUBLIC]):
        return
    for match in re.finditer(rf"\b{INTERNAL_PREFIX}\w+", source.code):
        yield source.line_of(match.start()), f"{match.group()} is internal, this header is public"


def resolve(root, source, name, quoted):
    """The repository path of an included file, or None if it is not ours."""
    places = [os.path.dirname(source.path)] if quoted else []
    for place in places + ["src", "include", "test/common", "integrations/llama/src",
                           "integrations/llama/include", "test/llama"]:
        path = os.path.normpath(os.path.join(place, name))
        if os.path.isfile(os.path.join(root, path)):
            return path
    return None


def check_includes(root, source, layout):
    allowed = next((may for files, may in MAY_INCLUDE if fits(source.path, [files])), None)
    stem = os.path.splitext(source.path)[0]
    stages = set()
    for number, name, quoted in source.includes():
        path = resolve(root, source, name, quoted)
        if path is None:
            for files, forbidden in NO_SYSTEM:
                if fits(source.path, [files]) and name in forbidden:
                    yield number, f"must not include <{name}>: this room does no I/O and no threads"
            if quoted:
                yield number, f'"{name}" is no file of this tree'
            continue
        problem = layout.problem(source.path, path)
        if problem is not None:
            yield number, problem
        elif allowed is not None and path != stem + ".h" and not fits(path, allowed):
            yield number, f"must not include {path}"
        if path in STAGES:
            stages.add(path)
            if len(stages) == 2 and not fits(source.path, MAY_INCLUDE_STAGES):
                yield number, "includes " + " and ".join(sorted(stages)) + ": only the cache may"


def check_budget(root):
    """The stages of .ci/budget: (line, message). An exported tree may come without them."""
    path = os.path.join(root, ".ci", "budget")
    if not os.path.exists(path):
        return
    total = 0
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip() or line.startswith("#"):
                continue
            fields = line.split(None, 2)
            if len(fields) == 2 and fields[0] == "late" and fields[1].isdigit():
                continue
            if len(fields) < 3 or not fields[1].isdigit():
                yield number, "a stage is a name, a budget in seconds and a command"
                continue
            total += int(fields[1])
            if total > MAX_STAGES_SECONDS:
                yield number, f"the budgets add up to {total} s here, at most {MAX_STAGES_SECONDS} s"
                return


# -------------------------------------------------------------------------------------- the whole


def c_files(root, endings=(".c", ".h")):
    for tree in TREES:
        for directory, subdirectories, names in os.walk(os.path.join(root, tree)):
            subdirectories.sort()
            for name in sorted(names):
                if name.endswith(endings):
                    yield os.path.relpath(os.path.join(directory, name), root)


def check_cpp(root):
    """C++: what can be said of its text, and the length of its headers."""
    for path in c_files(root, (".cpp", ".hpp")):
        source = Source(root, path)
        for finding in check_text(source):
            yield (path, *finding)
        if path.endswith(".hpp") and len(source.lines) > MAX_CPP_HEADER_LINES:
            yield path, len(source.lines), (f"header has {len(source.lines)} lines, at most "
                                            f"{MAX_CPP_HEADER_LINES}")


def check_folders(paths):
    """Folders of src with more C files than a person surveys: (folder, 1, message)."""
    counts = collections.Counter(os.path.dirname(path) for path in paths)
    for folder, count in sorted(counts.items()):
        if folder.startswith("src/") and count > MAX_FOLDER_FILES:
            yield folder, 1, f"{count} C files, at most {MAX_FOLDER_FILES}"


def text_files(root):
    """Paths of the texts that may name a page of docs/."""
    for directory, subdirectories, names in os.walk(root):
        subdirectories[:] = sorted(name for name in subdirectories
                                   if name not in ("build", "corpus", "shared") and not name.startswith("."))
        for name in sorted(names):
            if name.endswith(PAGE_ENDINGS) or "." not in name:
                yield os.path.relpath(os.path.join(directory, name), root)


def anchors_of(text):
    """Where a link into this page may lead, as GitHub names headings."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "", head).lower()).replace(" ", "-") for head in heads}


def check_pages(root):
    """Pages that files name, and links of pages, that lead nowhere: (path, line, message)."""
    texts = {}
    for path in text_files(root):
        with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
            texts[path] = file.read()
    for path, text in texts.items():
        for match in re.finditer(r"\bdocs/\w+\.md\b", "" if path in PAGE_EXAMPLES else text):
            if match[0] not in texts:
                yield path, text.count("\n", 0, match.start()) + 1, f"there is no page {match[0]}"
        for match in re.finditer(r"\]\(([^)#:\s]*)(?:#([^)\s]*))?\)", text if path.endswith(".md") else ""):
            target = os.path.normpath(os.path.join(os.path.dirname(path), match[1])) if match[1] else path
            line = text.count("\n", 0, match.start()) + 1
            if not os.path.exists(os.path.join(root, target)):
                if not re.match(r"docs/\w+\.md$", match[1]):  # found above
                    yield path, line, f"a link to {match[1]}, which is not there"
            elif match[2] and target in texts and match[2] not in anchors_of(texts[target]):
                yield path, line, f"{target} has no heading #{match[2]}"


def root_names(root):
    """What the root has: in a checkout what git tracks, because a user's own files are no litter."""
    if os.path.exists(os.path.join(root, ".git")):
        done = subprocess.run(["git", "-C", root, "ls-files"], capture_output=True, text=True,
                              check=False)
        if done.returncode == 0:
            return sorted({path.split("/")[0] for path in done.stdout.split("\n") if path})
    return sorted(os.listdir(root))


def check_root(root):
    """Names in the root that do not belong there: (name, 1, message)."""
    ignored = set()
    if os.path.isfile(os.path.join(root, ".gitignore")):
        with open(os.path.join(root, ".gitignore"), encoding="utf-8") as file:
            ignored = {line.strip().strip("/") for line in file}
    for name in root_names(root):
        if name not in ROOT_NAMES and not fits(name, ignored):
            yield name, 1, "the root has no place for it (ROOT_NAMES)"


def lint(root):
    """Every finding, as (path, line, message)."""
    sources = [Source(root, path) for path in c_files(root)]
    public_names = set()
    for source in sources:
        if fits(source.path, [PUBLIC, "integrations/*/include/kvpager/*"]):
            public_names.update(re.findall(rf"\b({PUBLIC_PREFIX}\w+)\s*\(", source.code))
    findings = [(".ci/budget", *finding) for finding in check_budget(root)]
    findings += check_root(root)
    findings += check_pages(root)
    findings += check_folders(source.path for source in sources)
    findings += structure.check(sources)
    layout = wings.Wings(root)
    findings += layout.check([source.path for source in sources])
    findings += check_cpp(root)
    for source in sources:
        for check in (check_title, check_text, check_functions, check_types, check_macros, check_public_names):
            findings += [(source.path, *finding) for finding in check(source)]
        findings += [(source.path, *finding) for finding in check_names(source, public_names)]
        findings += [(source.path, *finding) for finding in check_includes(root, source, layout)]
    return findings


# ---------------------------------------------------------------------------------- the self-test

# A tree that breaks no rule, with what is easily mistaken for a violation.
CLEAN = {
    ".gitignore": "/build/\n*.pyc\n",
    "docs/A.md": "# A\n\n## The B (c) `d`\n\n```\n# no heading\n```\n\n[b](#the-b-c-d), [a](../README.md#x-1), [c](.)\n",
    "README.md": "# X 1\n\n[a](docs/A.md#a), [it](https://a.example/b#c)\n",
    "build/kvp_model-1-2.kvplog": "",
    "a.pyc": "",
    "cmake/rooms.cmake": "# the wings\nset(folders_core core sched) # and base\nset(folders_data memory)\n"
                         "set(headers_core types.h\n                 pool.h)\nset(wing_MEMORY data)\n"
                         "set(headers_MEMORY memory.h)\n",
    "include/kvpager/memory.h": '#include "types.h"\n',
    "src/memory/copy.h": "#include <kvpager/memory.h>\n#include <kvpager/types.h>\n"
                         '#include "base/team.h"\n',
    "src/base/team.h": "#include <kvpager/types.h>\n",
    ".ci/budget": "# name seconds command\ntest 3000 make test\nlate 900\nlint 480 make lint\n",
    "include/kvpager/types.h": '#define KVP_API\n#ifdef __cplusplus\nextern "C" {\n#endif\n'
                               "typedef unsigned kvp_size; /* not a size_t */\n"
                               "KVP_API const char *kvp_version(void);\n"
                               "KVP_API kvp_size kvp_do(kvp_size size_t_like);\n"
                               "#ifdef __cplusplus\n}\n#endif\n",
    "src/base/base.h": "#include <stddef.h>\nstruct range {\n    size_t n;\n};\n"
                       "static inline int kvpi_base_one(void)\n{\n    return 1;\n}\n",
    "src/core/stages/pool.h": '#include "base/base.h"\nint kvpi_pool_take(int n);\n'
                              "struct kvpi_pool {\n    int n;\n};\n",
    "src/core/stages/prefix.h": '#include "../../base/base.h"\n',

    "src/core/stages/table.h": "#include <kvpager/types.h>\n",
    "src/core/stages/pool.c": '#include "pool.h"\n\nstatic int min(int a, int b)\n{\n'
                       "    return a < b ? a : b;\n}\n\n"
                       'int kvpi_pool_take(int n)\n{\n    const char *s = "} \\" { TODAY";\n'
                       "    return min(n, s[0] == '{');\n}\n"
                       "static const int table[] = {1, 2};\n",
    "src/core/calls/seqs.c": '#include "core/stages/pool.h"\n#include "core/stages/prefix.h"\n#include "core/stages/table.h"\n'
                        "\n__attribute__((noinline)) const char *kvp_version(void)\n{\n"
                        '    return "0" + kvpi_pool_take(0);\n}\n',
    "src/tool/input/reader.h": "int kvpi_reader_open(void);\n",
    "src/tool/args.h": '#include "tool/text.h"\n',
    "src/tool/text.h": "\n",
    "src/tool/main.c": '#include "tool/input/reader.h"\n#include <stdio.h>\n\nint main(void)\n{\n'
                       "    return 0;\n}\n",
    "test/unit/test_pool.c": '#include "core/stages/pool.h"\n#include "core/stages/prefix.h"\n',
}

# rule, file, its whole text, line of the finding, part of the message
VIOLATIONS = [
    ("core room order", "src/base/base.h", '#include "core/stages/pool.h"\n', 1, "must not include"),
    ("stage to stage", "src/core/stages/pool.c", '\n#include "core/stages/table.h"\n', 2, "must not include"),
    ("two stages outside cache", "src/core/other.c",
     '#include "core/stages/pool.h"\n#include "core/stages/table.h"\n', 2, "only the cache may"),
    ("core to another room", "src/core/calls/seqs.c", '#include "tool/input/reader.h"\n', 1,
     "must not include src/tool/input/reader.h"),
    ("trace to core", "src/tool/input/reader.c", '#include "../../core/stages/pool.h"\n', 1,
     "must not include src/core/stages/pool.h"),
    ("tool to core", "src/tool/main.c", '#  include "core/stages/pool.h"\n', 1, "must not include"),
    ("sched to core", "src/sched/sched.c", "#include <core/stages/pool.h>\n", 1, "must not include"),
    ("wing to wing", "src/sched/sched.c", '\n#include "memory/copy.h"\n', 2,
     "libkvpager and libkvpager_data know each other by public headers"),
    ("wing back to wing", "src/memory/copy.c", '#include "core/stages/pool.h"\n', 1,
     "libkvpager_data and libkvpager know each other by public headers"),
    ("a wing's later header", "src/sched/sched.c", "#include <kvpager/memory.h>\n", 1,
     "libkvpager needs no libkvpager_data"),
    ("a public header's later header", "include/kvpager/pool.h", '#include "memory.h"\n', 1,
     "libkvpager needs no libkvpager_data"),
    ("a header of no wing", "include/kvpager/other.h", "\n", 1, "is of no wing"),
    ("public to internal", "include/kvpager/pool.h", '#include "core/stages/pool.h"\n', 1,
     "must not include"),
    ("example to internal", "examples/a.c", '#include "../src/core/stages/pool.h"\n', 1,
     "must not include"),
    ("I/O in the core", "src/core/calls/seqs.c", "#include <stdio.h>\n", 1, "no I/O"),
    ("unknown include", "src/core/calls/seqs.c", '#include "poool.h"\n', 1, "no file of this tree"),
    ("title", "src/core/stages/pool.c", "/* old_pool: blocks */\n", 1, "the file is pool"),
    ("file length", "src/core/stages/pool.c", "\n" * 801, 801, "file has 801 lines"),
    ("function length", "src/core/stages/pool.c",
     "/* { */\nstatic int f(int a)\n{\n" + "    a++;\n" * 98 + "}\n", 2, "f has 101 lines"),
    ("width", "src/core/stages/pool.c", "/* " + "é" * 95 + " */\n", 1, "line is 101 wide"),
    ("tab", "test/unit/test_a.c", "int\ta;\n", 1, "tab"),
    ("encoding", "src/core/stages/pool.c", b"/* \xff */\n", 1, "UTF-8"),
    ("TODO", "fuzz/fuzz_a.c", "/* ok\n * TODO: later */\n", 2, "TODO"),
    ("FIXME", "bench/a.c", "// FIXME\n", 1, "FIXME"),
    ("C++", "examples/a.cpp", "int a; // TODO\n", 1, "TODO"),
    ("a long header of C++", "include/kvpager/kvpager.hpp", "\n" * 421, 421, "header has 421 lines"),
    ("typedef _t", "src/core/stages/pool.h", "\ntypedef struct node {\n    int a;\n} node_t;\n", 2,
     "typedef node_t"),
    ("typedef function _t", "src/core/stages/pool.h", "typedef int (*done_t)(int a);\n", 1, "typedef done_t"),
    ("struct _t", "src/core/stages/pool.h", "struct node_t {\n    int a;\n};\n", 1, "node_t"),
    ("global name", "src/core/stages/pool.c", "int pool_take(int n)\n{\n    return n;\n}\n", 1,
     "pool_take is seen by other files"),
    ("inline name in a header", "src/core/stages/pool.h",
     "static inline int one(void)\n{\n    return 1;\n}\n", 1, "one is seen by other files"),
    ("undeclared public name", "src/core/stages/pool.c",
     "\nint kvp_pool_take(int n)\n{\n    return n;\n}\n", 2, "in no public header"),
    ("internal name in public", "include/kvpager/pool.h", "int kvpi_pool_take(int n);\n", 1,
     "is internal"),
    ("budgets", ".ci/budget", f"test 3000 make test\nlint {MAX_STAGES_SECONDS - 2999} make lint\n", 2,
     f"{MAX_STAGES_SECONDS + 1} s"),
    ("a stage without a command", ".ci/budget", "# stages\ntest 60\n", 2, "a stage is"),
    ("a foreign header", "src/core/stages/table.h", "\n\nint kvpi_pool_take(int n);\n", 3,
     "its header is the place"),
    ("a circle", "src/core/stages/pool.c",
     '#include "pool.h"\n\nint kvpi_pool_take(int n)\n{\n    return kvp_version()[n];\n}\n', 1,
     "2 files call each other: seqs calls"),
    ("a circle of headers", "src/tool/text.h", '#include "tool/args.h"\n', 1,
     "2 headers include each other"),
    ("a shared name", "src/core/stages/table.c",
     '#include "core/stages/table.h"\n\nstatic int min(int a)\n{\n    return a;\n}\n', 3,
     "min is a name of src/core/stages/pool.c"),
    ("a shared struct", "src/core/stages/table.h", "\nstruct kvpi_pool {\n    int a;\n};\n", 2,
     "kvpi_pool is a name of src/core/stages/pool.h"),
    ("a file of a test in the root", "kvp_model-12-6.kvplog", b"\xff", 1, "no place"),
    ("a page that is gone", "src/core/stages/pool.c", "\n/* pool: docs/A.md and docs/B.md */\n", 2, "no page docs/B.md"),
    ("a dead link", "docs/A.md", "# A\n\n[b](B.md)\n", 3, "link to B.md"),
    ("a dead anchor", "README.md", "# X 1\n[a](docs/A.md#no-heading)\n", 2, "no heading #no-heading"),
    ("public macro", "include/kvpager/pool.h", "#define MAX_BLOCKS 3\n", 1, "public macro MAX_BLOCKS"),
]


def lint_files(files):
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            full = os.path.join(root, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "wb") as file:
                file.write(text if isinstance(text, bytes) else text.encode("utf-8"))
        return lint(root)


def self_test():
    failed = 0
    for path, line, message in lint_files(CLEAN):
        print(f"self-test: the clean tree: {path}:{line}: {message}")
        failed += 1
    for rule, path, text, line, part in VIOLATIONS:
        found = [finding for finding in lint_files({**CLEAN, path: text}) if finding[0] == path]
        if len(found) != 1 or found[0][1] != line or part not in found[0][2]:
            print(f"self-test: {rule}: wanted {path}:{line}: ...{part}..., found {found}")
            failed += 1
    found = lint_files({**CLEAN, "src/wire/wire.h": "\n"})
    if len(found) != 1 or found[0][0] != "src/wire" or "is of no wing" not in found[0][2]:
        print(f"self-test: a folder of no wing: {found}")
        failed += 1
    full = {f"src/core/stages/s{n}.h": "" for n in range(MAX_FOLDER_FILES - 3)}
    found = [finding for finding in lint_files({**CLEAN, **full}) if finding[0] == "src/core/stages"]
    if len(found) != 1:
        print(f"self-test: a full folder: {found}")
        failed += 1
    print(f"self-test: {len(VIOLATIONS) + 2} rules, {failed} failures")
    return 1 if failed else 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    if len(arguments) > 1 or any(argument.startswith("-") for argument in arguments):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    root = arguments[0] if arguments else os.path.join(os.path.dirname(__file__), "..")
    findings = lint(root)
    for path, line, message in findings:
        print(f"{path}:{line}: {message}")
    if not findings:
        print(f"lint: {sum(1 for _ in c_files(root))} files, nothing found")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
