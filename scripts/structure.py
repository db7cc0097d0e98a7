"""Who calls whom, for lint.py: which file declares a function, and that no files form a circle.

A file is its .c and its .h together: pool.c and pool.h are src/core/stages/pool.
"""

import os
import re

INTERNAL = re.compile(r"(?<!struct )(?<!enum )(?<!union )\b(kvpi?_\w+)\b")
DECLARED = re.compile(r"^[a-zA-Z_][\w \t*]*?\b(kvpi_\w+)\s*\([^;{}]*\)[^;{}()]*(?:\([^;{}]*\)[^;{}]*)?;",
                      re.MULTILINE)

# Folders in which every function is declared in its own file's header. Elsewhere a header of its
# folder, or of one that it serves, will do: files that share one structure share its header.
OWN_HEADER = ["src/core/stages/", "src/core/cache/", "src/core/seq/", "src/core/calls/",
              "src/core/meta/", "src/core/snapshot/", "src/base/platform/", "src/memory/"]
# One header, several implementations of what it declares, or several files of one thing.
SHARED_HEADERS = ["src/attention/fast/kernels.h", "src/attention/kernels/cpu.h",
                  "src/memory/copy/copier.h", "src/memory/copy/copy_cpu.h", "src/memory/copy/stream.h",
                  "src/tool/inspect/inspect.h", "src/tool/log/trace.h"]

STATIC = re.compile(r"static (?:inline )?(?:const )?(?:struct |enum |union )?\w+[\s*]+(?:const )?(\w+)"
                    r"\s*[(\[=;]")
TAG = re.compile(r"(?:typedef )?(?:struct|enum|union) (\w+) \{")
# The command, and libraries that stand alone; and what is compiled for one processor only.
NOT_IN_ONE_FILE = ("integrations/", "src/tool/", "src/store/", "src/spill/", "src/attention/kernels/")
# What scripts/amalgamation.py puts into one file: there the structs of all files are seen, too.
AMALGAMATED = ("src/base/", "src/core/", "src/oplog/", "src/sched/")
VARIANTS = ["src/base/checksum_avx2.c", "src/base/checksum_avx512.c"]


def unit(path):
    return os.path.splitext(path)[0]


def definitions(sources):
    """{function: path} of what other files can call."""
    found = {}
    for source in sources:
        for name, is_static, _, _ in source.functions():
            if not is_static and source.path.endswith(".c"):
                found.setdefault(name, source.path)
    return found


def declarations(sources):
    """[(header, line, function)] of internal functions."""
    return [(source.path, source.line_of(match.start(1)), match.group(1))
            for source in sources if source.path.endswith(".h")
            for match in DECLARED.finditer(source.code)]


def check_declared(sources):
    """(path, line, message) of each function that is declared in another file's header."""
    defined = definitions(sources)
    for header, line, name in declarations(sources):
        path = defined.get(name)
        if path is None or unit(path) == unit(header) or header in SHARED_HEADERS:
            continue
        strict = any(path.startswith(folder) for folder in OWN_HEADER)
        if strict or os.path.dirname(path) != os.path.dirname(header):
            yield header, line, f"{name} is defined in {path}: its header is the place for it"


def call_graph(sources):
    """{unit: {unit: function}}: whose functions it calls, a function each as an example."""
    defined = definitions(sources)
    declared = {}
    for header, _, name in declarations(sources):
        declared.setdefault(header, set()).add(name)
    graph = {}
    for source in sources:
        edges = graph.setdefault(unit(source.path), {})
        for name in sorted(set(INTERNAL.findall(source.code)) - declared.get(source.path, set())):
            target = unit(defined[name]) if name in defined else None
            if target is not None and target != unit(source.path):
                edges.setdefault(target, name)
    return graph


def circles(graph):
    """Sets of units of which each reaches each other one, as sorted lists (Tarjan)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            circle = stack[stack.index(node):]
            del stack[stack.index(node):]
            if len(circle) > 1:
                found.append(sorted(circle))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return sorted(found)


def check_circles(sources):
    """(path, line, message) of each circle of files, by what they call."""
    graph = call_graph(sources)
    for circle in circles(graph):
        steps = [f"{os.path.basename(a)} calls {name} of {os.path.basename(b)}"
                 for a in circle for b, name in sorted(graph[a].items()) if b in circle]
        yield circle[-1] + ".c", 1, f"{len(circle)} files call each other: {'; '.join(steps)}"


def check_headers(sources):
    """(path, line, message) of each circle of headers."""
    headers = {source.path: source for source in sources if source.path.endswith(".h")}
    graph = {path: {"src/" + name: name for _, name, _ in source.includes()
                    if "src/" + name in headers} for path, source in headers.items()}
    for circle in circles(graph):
        yield circle[-1], 1, f"{len(circle)} headers include each other: {', '.join(circle)}"


def file_scope_names(source):
    """(line, name) of each static function or object that only this file sees, and each struct."""
    depth = 0
    for number, line in enumerate(source.code.split("\n"), 1):
        if depth == 0:
            match = TAG.match(line)
            if match is None:
                match = STATIC.match(line)
                if match and match.group(1).startswith("kvp"):
                    match = None
            if match:
                yield number, match.group(1)
        depth += line.count("{") - line.count("}")


def check_shared_names(sources):
    """(path, line, message) of each file-scope name that another file of the library has, too: one
    file made of all of them would not compile."""
    seen = {}
    for source in sources:
        if not source.path.startswith(NOT_IN_ONE_FILE) and source.path not in VARIANTS:
            for number, name in file_scope_names(source):
                if name.startswith("kvp") and not source.path.startswith(AMALGAMATED):
                    continue
                other = seen.setdefault(name, source.path)
                if other != source.path:
                    yield source.path, number, f"{name} is a name of {other}, too"


def check(sources):
    internal = [source for source in sources
                if source.path.startswith(("src/", "integrations/"))]
    yield from check_declared(internal)
    yield from check_circles(internal)
    yield from check_headers(internal)
    yield from check_shared_names(internal)
