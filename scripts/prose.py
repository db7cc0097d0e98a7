#!/usr/bin/env python3
"""Rules for the prose of the pages: README.md, docs/*.md and the others that PAGES names; and for
some words in the comments of C files, those of SOURCES.

    prose.py [ROOT]        check the tree at ROOT (default: the tree this script is in)
    prose.py --self-test   show that each rule fires on a planted violation

Prints `file:line: message` for each finding; exit status 1 if there is any. Code blocks are not read,
and a piece of `code` counts as one word. Headings have no sentence length; each list item and each
cell of a table is text by itself.

scripts/prose.txt lists exceptions, one a line, each with its reason:

    docs/PAGE.md: *: reason              every finding of the page
    docs/PAGE.md: length: reason         the length of the page
    docs/PAGE.md: "some words": reason   findings in sentences that contain these words

An exception that matches no finding is a finding itself.
"""

import glob
import os
import re
import sys
import tempfile

# ------------------------------------------------------------------- the rules, to be read and edited

PAGES = ["*.md", "docs/*.md", "bench/*.md", "data/*.md", "examples/*.md", "findings/*.md", "fuzz/*.md", "python/*.md",
         "python/bench/*.md", "test/*/README.md", "integrations/*/*.md"]
SOURCES = ["include/**/*.h*", "src/**/*.[ch]", "integrations/**/*.[ch]*", "python/native/*.[ch]"]
EXCEPTIONS = "scripts/prose.txt"

MAX_SENTENCE_WORDS = 30
MAX_PAGE_WORDS = 4000
MAX_LINES = {"README.md": 150}

# Words that we do not use: a regular expression, and what to write instead.
WORDS = [
    (r"nobody|no one", 'name what does not: "no sequence", "untested on"'),
    (r"somebody|someone|everybody|everyone|anybody|anyone", 'name it: "another process", "all users"'),
    (r"whoever|whosoever|whomever", 'name it: "the sequence that", "a caller that"'),
    (r"(?:of|in) (?:one's|its|their|your|his|her|our) own(?! \w+ (?:of|in))",
     '"separate", "private", "custom", "another"'),
    (r"mend(?:s|ed|ing)?", '"fix", "repair"'),
    (r"hold(?:s|ing)? (?:itself|themselves|oneself) to", '"guarantees"'),
    (r"(?:is|are|was|were|be) had", 'an active verb: "reaches", "gets"'),
    (r"for true", '"trust", "rely on"'),
    (r"begin here", '"start here"'),
    (r"(?:is|are|be) told(?: of)?", '"is reported to", "receives"'),
    (r"(?:says?|tells?) (?:whether|how|where|which|who|what|why|when)",
     '"reports", "shows", "lists", "describes"'),
    (r"(?:says?|saying|said) so", 'what it prints: "prints the reason"'),
    (r"at (?:its|their|your) word", '"is trusted"'),
    (r"a look (?:at|into)", '"read", "inspect", "see"'),
    (r"that is all", "leave it out"),
    (r"as if nothing had happened", 'what continues: "with the same hits"'),
    (r"whence|thence|whereof|thereof|whereby|thereby|therein|wherein|hereby|hitherto|lest|albeit",
     "two sentences"),
    (r"by and by|so to speak|as it were|to speak of|be it", "leave it out"),
    (r"of course|obviously|needless to say|to be sure", "leave it out"),
    (r"takes? care that|sees? to it that", '"ensures"'),
    (r"a matter of taste|one's|oneself", "say which, and for what"),
]

# In comments of C files only these.
COMMENT_WORDS = [
    (r"nobody|somebody|someone|everybody|anybody", 'name it: "no request", "another process"'),
    (r"whoever|whosoever|whomever", 'name it: "the sequence that", "a caller that"'),
    (r"anew", '"again"'),
    (r"but for", '"except"'),
]

# A statement whose subject is "who" or "what": the noun is missing. Questions may begin so.
SUBJECTS = ("Who", "Whom", "Whose", "What", "Whatever")

ABBREVIATIONS = ("e.g.", "i.e.", "vs.", "cf.", "approx.", "etc.", "No.", "Fig.")

# -------------------------------------------------------------------------------- reading a page

FENCE = re.compile(r"^\s*(```+|~~~+)")
LIST_ITEM = re.compile(r"^(\s*)([-*+]|\d+[.)])(\s+)")
TABLE_RULE = re.compile(r"^[\s|:-]+$")


def lines_of(text):
    """So many line breaks: what a removed piece leaves behind."""
    return "\n" * text.count("\n")


def plain(text):
    """Text without markup; code is one word, a link is its text. Line breaks stay."""
    text = re.sub(r"(`+)(.+?)\1", lambda m: "CODE" + lines_of(m.group()), text, flags=re.DOTALL)
    text = re.sub(r"</?[a-zA-Z][^>]*>", lambda m: lines_of(m.group()), text)
    text = re.sub(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])",
                  lambda m: m.group(1) + lines_of(m.group()[len(m.group(1)):]), text)
    text = re.sub(r"<?\bhttps?://\S+", "LINK", text)
    return re.sub(r"\*\*|__|(?<!\w)[*_]|[*_](?!\w)", "", text)


def cells(line):
    """The cells of a table's row; | inside code does not separate."""
    masked = re.sub(r"(`+)(.+?)\1", lambda m: m.group().replace("|", "\0"), line.replace("\\|", "\0"))
    return [cell.replace("\0", "|") for cell in masked.strip().strip("|").split("|")]


def blocks(text):
    """(first line, text, is a heading) of each paragraph, list item, table cell and heading."""
    text = re.sub(r"<!--.*?-->", lambda m: lines_of(m.group()), text, flags=re.DOTALL)
    found, open_at, open_lines = [], 0, []
    fence, after_blank, list_indent = None, True, None

    def close():
        if open_lines:
            found.append((open_at, "\n".join(open_lines), False))
            open_lines.clear()

    for number, line in enumerate(text.split("\n"), 1):
        mark = FENCE.match(line)
        if fence:
            if mark and mark.group(1).startswith(fence):
                fence, after_blank = None, True
            continue
        if mark:
            close()
            fence = mark.group(1)
            continue
        line = re.sub(r"^\s*>\s?", "", line)
        if not line.strip():
            close()
            after_blank = True
            continue
        indent = len(line) - len(line.lstrip())
        if after_blank and indent >= 4 + (list_indent or 0):
            continue  # indented code; after_blank stays, so do the lines that follow
        item = LIST_ITEM.match(line)
        if after_blank and not item and (list_indent is None or indent < list_indent):
            list_indent = None
        after_blank = False
        if re.match(r"#+\s", line):
            close()
            found.append((number, line.lstrip("# "), True))
        elif line.lstrip().startswith("|"):
            close()
            if not TABLE_RULE.match(line):
                found.extend((number, cell, False) for cell in cells(line) if cell.strip())
        else:
            if item:
                close()
                list_indent = item.end()
                line = line[item.end():]
            if not open_lines:
                open_at = number
            open_lines.append(line)
    close()
    return found


def sentences(first, text):
    """(line, sentence) of each sentence of a block of plain text."""
    start = 0
    for end in re.finditer(r"[.!?][)\]\"'”’]*(?=\s|$)|$", text):
        piece = text[start:end.end()]
        if end.group() and piece.endswith(ABBREVIATIONS):
            continue
        if piece.strip():
            at = start + len(piece) - len(piece.lstrip())
            yield first + text.count("\n", 0, at), " ".join(piece.split())
        start = end.end()


def n_words(text):
    return sum(1 for word in text.split() if re.search(r"\w", word))


# ------------------------------------------------------------------------------------- the checks
# A finding is (line, message, sentence); a finding about the whole page has no sentence.


def check_sentence(line, sentence, is_heading):
    count = n_words(sentence)
    if count > MAX_SENTENCE_WORDS and not is_heading:
        yield line, (f"a sentence of {count} words, at most {MAX_SENTENCE_WORDS}: "
                     f"{' '.join(sentence.split()[:6])} ..."), sentence
    for pattern, instead in WORDS:
        match = re.search(rf"(?<![\w-])(?:{pattern})(?![\w-])", sentence, re.IGNORECASE)
        if match:
            yield line, f'we do not write "{match.group()}"; instead: {instead}', sentence
    if sentence.split()[0] in SUBJECTS and count > 4 and sentence.endswith("."):
        yield line, f'"{sentence.split()[0]}" as a subject: a noun is clearer', sentence


def check_page(path, text):
    total = 0
    for first, block, is_heading in blocks(text):
        for line, sentence in sentences(first, plain(block)):
            total += n_words(sentence)
            yield from check_sentence(line, sentence, is_heading)
    if total > MAX_PAGE_WORDS:
        yield 1, f"the page has {total} words, at most {MAX_PAGE_WORDS}", None
    n_lines = text.count("\n")
    if n_lines > MAX_LINES.get(path, n_lines):
        yield n_lines, f"the page has {n_lines} lines, at most {MAX_LINES[path]}", None


COMMENT = re.compile(r"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|(/\*.*?\*/|//[^\n]*)""", re.DOTALL)


def check_source(text):
    """Findings in the comments of a C file, as (line, message)."""
    found = []
    for comment in COMMENT.finditer(text):
        prose = re.sub(r"\n\s*\*", "\n ", comment.group(2) or "")
        for word, instead in COMMENT_WORDS:
            for match in re.finditer(rf"\b(?:{word.replace(' ', chr(92) + 's+')})\b", prose, re.IGNORECASE):
                if match.group().isupper():  # a constant's name
                    continue
                line = text.count("\n", 0, comment.start()) + prose.count("\n", 0, match.start()) + 1
                found.append((line, f'"{match.group()}": rather {instead}'))
    return found


def read_exceptions(text):
    """(line, page, what) of each exception, or (line, None, message)."""
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = re.match(r'([^\s:]+): (\*|length|"[^"]+"): (\S.*)$', line)
        if match:
            yield number, match.group(1), match.group(2)
        else:
            yield number, None, 'an exception is `page: * or length or "words": reason`'


def covers(what, sentence):
    """Whether an exception covers a finding in this sentence, or about the page if it is None."""
    if what == "*":
        return True
    if what == "length":
        return sentence is None
    return sentence is not None and what.strip('"') in sentence


# -------------------------------------------------------------------------------------- the whole


def sources(root):
    for pattern in SOURCES:
        for path in sorted(glob.glob(pattern, root_dir=root, recursive=True)):
            if "/target/" not in path and not path.startswith("integrations/rust"):
                yield path


def pages(root):
    for pattern in PAGES:
        found = glob.glob(os.path.join(root, pattern))
        yield from sorted(os.path.relpath(path, root) for path in found)


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def prose(root):
    """Every finding that no exception covers, as (path, line, message)."""
    findings, exceptions = [], []
    if os.path.exists(os.path.join(root, EXCEPTIONS)):
        for line, page, what in read_exceptions(read(root, EXCEPTIONS)):
            if page is None:
                findings.append((EXCEPTIONS, line, what))
            else:
                exceptions.append((line, page, what))
    used = set()
    for path in pages(root):
        for line, message, sentence in check_page(path, read(root, path)):
            excused = [exception for exception in exceptions
                       if exception[1] == path and covers(exception[2], sentence)]
            used.update(excused)
            if not excused:
                findings.append((path, line, message))
    for path in sources(root):
        findings += [(path, line, message) for line, message in check_source(read(root, path))]
    findings += [(EXCEPTIONS, line, f"{page}: {what} matches no finding: remove it")
                 for line, page, what in exceptions if (line, page, what) not in used]
    return findings


# ---------------------------------------------------------------------------------- the self-test

THIRTY = "word " * 29 + "word"

# Pages that break no rule, with what is easily mistaken for a violation.
CLEAN = {
    "README.md": "# Nothing " + "long " * 40 + "here\n\n"
                 f"{THIRTY}. {THIRTY}.\nIt runs at 1.5 GB/s, e.g. here.\n\n"
                 "```text\nnobody " + "code " * 40 + "\n```\n\n"
                 "    nobody " + "code " * 40 + "\n\n    more " + "code " * 40 + "\n\n"
                 "`nobody is` a word, [a link](https://nobody.example/a b).\n\n"
                 f"- {THIRTY}\n- {THIRTY}\n\n"
                 f"| {THIRTY} | `a|b` {THIRTY[5:]} |\n|---|---|\n| {THIRTY} | b |\n\n"
                 f"<!-- nobody -->\n![{THIRTY}](a.svg)\n\n"
                 "What is it? It amends a recommendation. What it costs.\n",
    "docs/A.md": "word. " * 4000 + "\n",
    "docs/B.md": "Nobody reads this. " + "word. " * 4100 + "\n",
    "docs/C.md": "A list:\n\n1. one\n\n   two " + "word. " * 3 + "\n\n       nobody\n",
    "src/a/c.c": 'const char *a = "nobody /* somebody */"; /* \\" */ int anew; char b = \'"\';\n',
    "scripts/prose.txt": '# why\n\ndocs/B.md: "reads this": a test\ndocs/B.md: length: a test\n',
}

# rule, file, its whole text, line of the finding, part of the message
VIOLATIONS = [
    ("a long sentence", "README.md", f"One.\nTwo. {THIRTY} word.\n", 2, "31 words"),
    ("a long sentence over lines", "docs/A.md", f"\nOne\ntwo. {THIRTY}\n`a b` it.\n", 3, "32 words"),
    ("a long sentence with an abbreviation", "docs/A.md", f"{THIRTY}, e.g. word.\n", 1, "32 words"),
    ("a long list item", "docs/A.md", f"- {THIRTY}\n  word\n", 1, "31 words"),
    ("a long paragraph of a list item", "docs/A.md", f"- one\n\n    {THIRTY} word\n", 3, "31 words"),
    ("a long cell", "docs/A.md", f"| a | {THIRTY} word |\n", 1, "31 words"),
    ("a long quotation", "docs/A.md", f"> {THIRTY}\n> word\n", 1, "31 words"),
    ("text after code", "docs/A.md", "```c\nint a;\n```\nNobody.\n", 4, '"Nobody"'),
    ("a word", "SECURITY.md", "\nAs somebody said, it\nworks.\n", 2, '"somebody"'),
    ("a word of a heading", "bench/README.md", "## Rooms of their own\n", 1, '"of their own"'),
    ("a word over a line's end", "docs/A.md", "It says\nso.\n", 1, '"says so"'),
    ("a word of a link", "test/model/README.md", "[for nobody](a.md)\n", 1, '"nobody"'),
    ("a word of a comment", "src/a/b.c", "int a; /* one\n * of\n * somebody */\n", 3, '"somebody"'),
    ("words of a comment", "include/kvpager/a.h", "// all but\n/* all but\n * for one */\n", 2, '"but'),
    ("a subject", "docs/A.md", "Who writes into a block gets a copy.\n", 1, '"Who"'),
    ("a long page", "docs/A.md", "word. " * 4001 + "\n", 1, "4001 words"),
    ("a long README", "README.md", "word\n" * 10 + "\n" * 141, 151, "151 lines"),
    ("an exception without a reason", "scripts/prose.txt",
     CLEAN["scripts/prose.txt"] + "docs/A.md: *:\n", 5, "an exception is"),
    ("an exception for a clean page", "scripts/prose.txt",
     CLEAN["scripts/prose.txt"] + "docs/A.md: *: a test\n", 5, "matches no finding"),
    ("an exception for no page", "scripts/prose.txt",
     CLEAN["scripts/prose.txt"] + "docs/Z.md: *: a test\n", 5, "matches no finding"),
    ("an exception for other words", "docs/B.md",
     "Nobody has read this. Nobody reads this. " + "word. " * 4100, 1, '"Nobody"'),
]


def prose_files(files):
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            full = os.path.join(root, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="utf-8") as file:
                file.write(text)
        return prose(root)


def self_test():
    failed = 0
    for path, line, message in prose_files(CLEAN):
        print(f"self-test: the clean tree: {path}:{line}: {message}")
        failed += 1
    for rule, path, text, line, part in VIOLATIONS:
        found = prose_files({**CLEAN, path: text})
        if len(found) != 1 or found[0][:2] != (path, line) or part not in found[0][2]:
            print(f"self-test: {rule}: wanted {path}:{line}: ...{part}..., found {found}")
            failed += 1
    print(f"self-test: {len(VIOLATIONS)} rules, {failed} failures")
    return 1 if failed else 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    if len(arguments) > 1 or any(argument.startswith("-") for argument in arguments):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    root = arguments[0] if arguments else os.path.join(os.path.dirname(__file__), "..")
    findings = prose(root)
    for path, line, message in findings:
        print(f"{path}:{line}: {message}")
    if not findings:
        print(f"prose: {sum(1 for _ in pages(root))} pages, nothing found")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
