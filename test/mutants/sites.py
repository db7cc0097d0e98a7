"""Where a machine can plant a defect in C: the places that libclang finds in the functions of a file,
and the file's text with switches at chosen ones. See machine.py.

A place has a kind, the bytes that are replaced, and what stands there when its switch is on. Left out:
static initialisers, case labels, sizes of arrays, operands of sizeof, bodies and arguments of macros,
and values that the compiler must know.
"""

import dataclasses
import re

import clang.cindex as clang

Kind = clang.CursorKind

SWAPPED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "+": "-", "-": "+",
           "*": "+", "/": "*", "%": "/", "&&": "||", "||": "&&", "&": "|", "|": "&", "^": "&",
           "<<": ">>", ">>": "<<"}
ASSIGNED = {"+=": "-=", "-=": "+=", "*=": "+=", "/=": "*=", "|=": "&=", "&=": "|=", "^=": "|=",
            "<<=": ">>=", ">>=": "<<="}
STATEMENTS = {Kind.CALL_EXPR, Kind.BINARY_OPERATOR, Kind.COMPOUND_ASSIGNMENT_OPERATOR,
              Kind.UNARY_OPERATOR}


@dataclasses.dataclass(frozen=True)
class Place:
    path: str      # in the tree
    line: int
    begin: int     # bytes of the file
    end: int
    kind: str      # operator, constant, condition, statement, arguments, result
    after: str     # what stands there instead
    is_statement: bool
    function: str

    def switched(self, number, text):
        """What stands there in the built file, with `text` as it is now."""
        if self.is_statement:
            return f"if (KVPI_MUTANT({number})) {{ {self.after} }} else {text}"
        return f"(KVPI_MUTANT({number}) ? ({self.after}) : ({text}))"


class Finder:
    """Walks one file, as it stands when `parsed` is compiled: itself, or a file that includes it."""

    def __init__(self, root, path, data, parsed, arguments):
        self.path, self.data = path, data
        self.unit = clang.Index.create().parse(
            f"{root}/{parsed}", args=arguments,
            options=clang.TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD)
        self.errors = [d.spelling for d in self.unit.diagnostics if d.severity >= 3]
        self.macros = [(c.extent.start.offset, c.extent.end.offset)
                       for c in self.unit.cursor.get_children()
                       if c.kind == Kind.MACRO_INSTANTIATION and self.is_here(c)]
        self.places, self.function = [], ""

    def is_here(self, cursor):
        file = cursor.location.file
        return file is not None and file.name.endswith("/" + self.path)

    def text(self, begin, end):
        return self.data[begin:end].decode()

    def span(self, cursor):
        """Where a cursor begins and ends. Where it ends with a macro, libclang says its beginning."""
        begin, end = cursor.extent.start.offset, cursor.extent.end.offset
        return begin, max([end] + [b for a, b in self.macros if a <= end < b and begin <= a])

    def is_plain(self, begin, end):
        """Not inside what a macro was given or is."""
        return begin < end and not any(a <= begin and end <= b for a, b in self.macros)

    def add(self, cursor, kind, after, is_statement=False, end=None):
        begin, stop = self.span(cursor)
        stop = end or stop
        if self.is_plain(begin, stop):
            self.places.append(Place(self.path, cursor.extent.start.line, begin, stop, kind, after,
                                     is_statement, self.function))

    def operator(self, left, right):
        """The text between two operands: where it is, and the operator."""
        begin, end = self.span(left)[1], self.span(right)[0]
        between = re.sub(r"/\*.*?\*/", lambda m: " " * len(m.group()), self.text(begin, end),
                         flags=re.DOTALL) if begin < end else ""
        found = re.fullmatch(r"\s*(\S+)\s*", between)
        return (begin + found.start(1), found.group(1)) if found else (0, "")

    def replaced(self, cursor, at, old, new):
        a, b = self.span(cursor)
        return self.text(a, at) + new + self.text(at + len(old), b)

    def binary(self, cursor, table):
        parts = list(cursor.get_children())
        if len(parts) != 2:
            return
        at, old = self.operator(*parts)
        pointers = any(part.type.get_canonical().kind == clang.TypeKind.POINTER for part in parts)
        new = table.get(old)
        if new and not (pointers and old not in ("<", "<=", ">", ">=", "==", "!=")):
            self.add(cursor, "operator", self.replaced(cursor, at, old, new))

    def constant(self, cursor):
        text = self.text(*self.span(cursor))
        if re.fullmatch(r"[0-9]+[uUlL]*", text):
            digits = re.match(r"[0-9]+", text).group()
            self.add(cursor, "constant", str(int(digits) + 1) + text[len(digits):])

    def call(self, cursor):
        arguments = list(cursor.get_arguments())
        if re.search(r"(^|_)(min|max)(_|$)", cursor.spelling):
            return # of no order
        begin, end = self.span(cursor)
        for first, second in zip(arguments, arguments[1:]):
            (a, b), (c, d) = self.span(first), self.span(second)
            one, two = self.text(a, b), self.text(c, d)
            same = first.type.get_canonical().spelling == second.type.get_canonical().spelling
            if same and one and two and one != two and self.is_plain(a, d):
                self.add(cursor, "arguments", self.text(begin, a) + two + self.text(b, c) + one
                         + self.text(d, end))
                return

    def condition(self, cursor):
        parts = list(cursor.get_children())
        if not parts or parts[0].kind == Kind.DECL_STMT:
            return
        self.add(parts[0], "condition", "!(" + self.text(*self.span(parts[0])) + ")")
        if len(parts) == 2 and parts[1].kind == Kind.RETURN_STMT:
            end = self.data.find(b";", self.span(parts[1])[1]) + 1
            if end > 0:
                self.add(cursor, "result", ";", True, end)
        elif len(parts) == 2 and [part.kind for part in parts[1].get_children()] == [Kind.RETURN_STMT]:
            self.add(cursor, "result", ";", True)

    def statement(self, cursor):
        if cursor.kind not in STATEMENTS:
            return
        stop = self.span(cursor)[1]
        end = self.data.find(b";", stop) + 1
        if end == 0 or self.text(stop, end).strip() != ";":
            return
        if cursor.kind == Kind.BINARY_OPERATOR:
            parts = list(cursor.get_children())
            if len(parts) != 2 or self.operator(*parts)[1] != "=":
                return
        self.add(cursor, "statement", ";", True, end)

    def visit(self, cursor):
        kind, parts = cursor.kind, list(cursor.get_children())
        if kind == Kind.COMPOUND_STMT:
            for part in parts:
                self.statement(part)
        elif kind in (Kind.IF_STMT, Kind.WHILE_STMT):
            self.condition(cursor)
            for part in parts[1:]:
                self.statement(part)
        elif kind == Kind.FOR_STMT and parts:
            self.statement(parts[-1])
        elif kind == Kind.BINARY_OPERATOR:
            self.binary(cursor, SWAPPED)
        elif kind == Kind.COMPOUND_ASSIGNMENT_OPERATOR:
            self.binary(cursor, ASSIGNED)
        elif kind == Kind.INTEGER_LITERAL:
            self.constant(cursor)
        elif kind == Kind.CALL_EXPR:
            self.call(cursor)
        for part in self.inside(cursor, parts):
            self.visit(part)

    @staticmethod
    def inside(cursor, parts):
        """What of a cursor may have places in it."""
        if cursor.kind == Kind.CASE_STMT:
            return parts[1:]
        if cursor.kind == Kind.CXX_UNARY_EXPR: # sizeof
            return []
        if cursor.kind == Kind.VAR_DECL:
            if cursor.storage_class == clang.StorageClass.STATIC:
                return []
            if cursor.type.get_canonical().kind == clang.TypeKind.CONSTANTARRAY:
                return [part for part in parts if part.kind == Kind.INIT_LIST_EXPR]
        if cursor.kind in (Kind.ENUM_DECL, Kind.STRUCT_DECL, Kind.UNION_DECL, Kind.STATIC_ASSERT):
            return []
        return parts

    def find(self):
        for cursor in self.unit.cursor.get_children():
            if cursor.kind == Kind.FUNCTION_DECL and cursor.is_definition() and self.is_here(cursor):
                self.function = cursor.spelling
                for part in cursor.get_children():
                    if part.kind == Kind.COMPOUND_STMT:
                        self.visit(part)
        return self.places


def find_places(root, path, parsed, arguments):
    with open(f"{root}/{path}", "rb") as file:
        finder = Finder(root, path, file.read(), parsed, arguments)
    if finder.errors:
        raise ValueError(f"{path}: {finder.errors[0]}")
    return finder.find()


def overlap(a, b):
    return a.path == b.path and a.begin < b.end and b.begin < a.end


def switch_file(data, places):
    """The file's bytes with a switch at each place. places: (number, place), none over another."""
    for number, place in sorted(places, key=lambda item: -item[1].begin):
        old = data[place.begin:place.end].decode()
        data = data[:place.begin] + place.switched(number, old).encode() + data[place.end:]
    return data
