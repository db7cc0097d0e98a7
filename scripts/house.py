#!/usr/bin/env python3
"""The size of the house: figures of this tree, each with its limit and its aim.

    house.py [ROOT]        print them (default: the tree this script is in)
    house.py --self-test   show that each figure counts what is planted, and that a limit holds

A limit is what the tree may have today: status 1 if a figure is over it. Lower a limit when a figure
falls; it never rises without a reason in the commit. An aim is what the figure shall become.
"""

import collections
import os
import re
import sys
import tempfile

import structure

# name of the figure: (limit, aim)
LIMITS = {
    "lines in src": (113453, 82000),
    "lines in libkvpager": (33449, 30500),
    "lines in test": (173765, 115000),
    "lines in test, python/tests and fuzz": (197052, 132000),
    "lines of the command's expected output": (7187, 7200),
    "exported functions": (314, 250),
    "pages in docs": (16, 16),
    "words in docs": (45000, 45000),
    "circles of files": (0, 0),
    "file names in src used more than once": (0, 0),
}

EXPECTED_OUTPUT = "test/golden/command"
# What an engine embeds; the rest of src is other libraries and the command.
CORE_ROOMS = ["src/base", "src/core", "src/oplog", "src/sched"]
EXPORTED = re.compile(r"^KVP_API[^;(]*?\b(kvp_\w+)\(", re.MULTILINE)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include [<"]([^>"]+)[>"]', re.MULTILINE)


def files(root, top, endings=None):
    """Paths below root/top, relative to root, in order. Inputs of fuzzers are data, not lines, and
    what the command shall print has a figure of its own."""
    found = []
    for folder, names, entries in os.walk(os.path.join(root, top)):
        names[:] = [name for name in names if name not in ("__pycache__", "corpus") and
                    os.path.relpath(os.path.join(folder, name), root) != EXPECTED_OUTPUT]
        found += [os.path.relpath(os.path.join(folder, entry), root) for entry in entries
                  if endings is None or entry.endswith(endings)]
    return sorted(found)


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
        return file.read()


def lines(root, tops):
    return sum(read(root, path).count("\n") for top in tops for path in files(root, top))


def include_circles(root):
    """Circles of files that include each other, in src and include: a .c and its .h are one file."""
    paths = files(root, "src", (".c", ".h", ".def")) + files(root, "include", (".h",))
    known = set(paths)
    graph = collections.defaultdict(dict)
    for path in paths:
        for name in INCLUDE.findall(read(root, path)):
            for target in ("src/" + name, "include/" + name,
                           os.path.join(os.path.dirname(path), name)):
                if target in known and structure.unit(target) != structure.unit(path):
                    graph[structure.unit(path)][structure.unit(target)] = name
    return structure.circles(graph)


def shared_names(root):
    count = collections.Counter(os.path.basename(path) for path in files(root, "src", (".c",)))
    return [name for name, times in count.items() if times > 1]


def measure(root):
    docs = files(root, "docs", (".md",))
    return {
        "lines in src": lines(root, ["src"]),
        "lines in libkvpager": lines(root, CORE_ROOMS),
        "lines in test": lines(root, ["test"]),
        "lines in test, python/tests and fuzz": lines(root, ["test", "python/tests", "fuzz"]),
        "lines of the command's expected output": lines(root, [EXPECTED_OUTPUT]),
        "exported functions": len({name for path in files(root, "include", (".h",))
                                   for name in EXPORTED.findall(read(root, path))}),
        "pages in docs": len(docs),
        "words in docs": sum(len(read(root, path).split()) for path in docs),
        "circles of files": len(include_circles(root)),
        "file names in src used more than once": len(shared_names(root)),
    }


def report(figures, limits):
    """Prints the table; the names of the figures that are over their limit."""
    width = max(map(len, figures))
    print(f"{'':{width}} {'today':>9} {'limit':>9} {'aim':>9}")
    over = [name for name, value in figures.items() if value > limits[name][0]]
    for name, value in figures.items():
        note = "  over its limit" if name in over else ""
        print(f"{name:{width}} {value:>9,} {limits[name][0]:>9,} {limits[name][1]:>9,}{note}")
    return over


def self_test():
    planted = {
        "src/core/a.h": '#include "core/b.h"\n', "src/core/b.h": '#include "a.h"\n',
        "src/tool/a.c": "int a;\nint b;\n", "src/core/a.c": "int a;\n",
        "include/kvpager/x.h": "KVP_API int kvp_x(int a);\nKVP_API int *kvp_y(\n    int b);\n",
        "test/t.c": "one\ntwo\n", "python/tests/t.py": "one\n", "fuzz/f.c": "one\n",
        "fuzz/corpus/seed": "\n\n\n", "test/golden/command/a.txt": "$ a\n",
        "docs/PAGE.md": "four words stand here\n",
    }
    right = dict(zip(LIMITS, (5, 3, 2, 4, 1, 2, 1, 4, 1, 1)))
    with tempfile.TemporaryDirectory() as root:
        for path, text in planted.items():
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        figures = measure(root)
    wrong = {name: value for name, value in figures.items() if value != right[name]}
    limits = {name: (value - (name == "pages in docs"), 0) for name, value in right.items()}
    if wrong or report(figures, limits) != ["pages in docs"]:
        print(f"house.py --self-test: wrong: {wrong}", file=sys.stderr)
        return 1
    return 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    root = arguments[0] if arguments else os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    over = report(measure(root), LIMITS)
    for name in over:
        print(f"house.py: {name}: over the limit; make it smaller, or say in the commit why not",
              file=sys.stderr)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
