"""The blocks and the commands of a page."""

import re


class Block:
    """A fenced block, the comment before it, and where it begins."""

    def __init__(self, page, line, language, marker):
        self.page, self.line, self.language, self.marker = page, line, language, marker
        self.text = ""

    @property
    def place(self):
        return f"{self.page}:{self.line}"


def blocks_of(page, text):
    found, inside, marker = [], None, ""
    for i, line in enumerate(text.split("\n"), 1):
        fence = re.match(r"```(.*)$", line)
        if inside and fence:
            inside, marker = None, ""
        elif inside:
            inside.text += line + "\n"
        elif fence:
            inside = Block(page, i, fence[1].strip(), marker)
            found.append(inside)
        elif line.strip():
            comment = re.fullmatch(r"<!--\s*(.*?)\s*-->", line.strip())
            marker = comment[1] if comment else ""
    return found


def statement(line):
    """What is typed: two spaces, or a #, end it and begin what is said of it."""
    return re.split(r" #|(?<=\S) {2,}(?=[^-\s])", line.strip().removeprefix("$ "))[0].strip()


def unquoted(command):
    """The command without what quotes protect."""
    return re.sub(r"'[^']*'?|\"[^\"]*\"?", "", command)


def joined(match):
    """A line that others continue, as one, and as many lines as it was."""
    return re.sub(r"\s*\\\n\s*", " ", match[0]) + "\n" * match[0].count("\n")


def commands_of(text):
    """(line, command, is code in a sentence or a table): indented lines, lines of sh and console blocks,
    and `code`, whatever it is."""
    language = None
    text = re.sub(r"(?:[^\n]*\\\n)+[^\n]*", joined, text)
    for i, line in enumerate(text.split("\n"), 1):
        fence = re.match(r"```(.*)$", line)
        if fence:
            language = fence[1].strip() if language is None else None
        elif language in ("sh", "console"):
            if language == "sh" or line.startswith("$ "):
                yield i, statement(line), False
        elif language is None and line.startswith("    "):
            yield i, statement(line), False
        elif language is None:
            yield from ((i, code, True) for code in re.findall(r"`([^`]+)`", line))
