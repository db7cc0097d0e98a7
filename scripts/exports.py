#!/usr/bin/env python3
"""Each shared library exports the functions of its own public headers, and no other names.

    exports.py BUILD        the libraries of this build folder; NM: nm
    exports.py --self-test

cmake/rooms.cmake says which header is of which library. A room that the build leaves out has no functions.
"""

import os
import re
import subprocess
import sys

import wings

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DECLARED = re.compile(r"^KVP_API[^;(]*?\b(kvp_\w+)\(", re.MULTILINE)
# libkvpager_redis has no header: libkvpager_store looks this up when it loads it.
MORE = {"libkvpager_redis": {"kvpi_redis_backend"}}
# What the linker puts into a library of some processors.
LINKER = re.compile(r"^(_|__bss_start|_edata|_end|__odr_asan.*|__start_.*|__stop_.*)")


def left_out(build):
    """The switches that are off in this build."""
    with open(os.path.join(build, "CMakeCache.txt"), encoding="utf-8") as file:
        return set(re.findall(r"^KVP_([A-Z]+):BOOL=(?:OFF|0|FALSE)$", file.read(), re.MULTILINE))


def declared(root, off):
    """{library: the functions of its headers}."""
    layout = wings.Wings(root)
    absent = {header for switch in off for header in layout.switches.get(switch, [])}
    found = {library: set() for library in wings.LIBRARIES.values()}
    for header, wing in layout.headers.items():
        if header not in absent:
            with open(os.path.join(root, "include", "kvpager", header), encoding="utf-8") as file:
                found[wings.LIBRARIES[wing]].update(DECLARED.findall(file.read()))
    return found


def exported(library):
    lines = subprocess.run([os.environ.get("NM", "nm"), "-D", "--defined-only", library], capture_output=True,
                           text=True, check=True).stdout.splitlines()
    names = {line.split()[-1].split("@")[0] for line in lines}
    return {name for name in names if not LINKER.match(name)}


def differences(promised, shown):
    """What is wrong: (library, name, message), with both as {library: names}."""
    home = {name: library for library, names in promised.items() for name in names}
    for library, names in shown.items():
        for name in sorted(names - promised.get(library, set())):
            place = f"it is a function of {home[name]}" if name in home else "no public header declares it"
            yield library, name, f"exported, and {place}"
        for name in sorted(promised.get(library, set()) - names):
            yield library, name, "declared, and not exported"


def self_test():
    promised = {"libkvpager": {"kvp_a", "kvp_b"}, "libkvpager_data": {"kvp_c"}}
    assert not list(differences(promised, promised))
    assert not list(differences(promised, {"libkvpager": {"kvp_a", "kvp_b"}})), "a library that is not built"
    twice = {"libkvpager": {"kvp_a", "kvp_c"}, "libkvpager_data": {"kvp_c", "kvpi_d"}}
    assert list(differences(promised, twice)) == [
        ("libkvpager", "kvp_c", "exported, and it is a function of libkvpager_data"),
        ("libkvpager", "kvp_b", "declared, and not exported"),
        ("libkvpager_data", "kvpi_d", "exported, and no public header declares it")]
    every, less = declared(ROOT, set()), declared(ROOT, {"WIRE", "SCHED"})
    assert "kvp_cache_create" in less["libkvpager"] and "kvp_sched_create" not in less["libkvpager"]
    assert "kvp_sched_create" in every["libkvpager"] and less["libkvpager_data"] < every["libkvpager_data"]
    print("exports: self-test passed")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    promised = {**declared(ROOT, left_out(sys.argv[1])), **MORE}
    paths = {library: os.path.join(sys.argv[1], library + ".so") for library in promised}
    shown = {library: exported(path) for library, path in paths.items() if os.path.exists(path)}
    needed = [library for library, names in promised.items()
              if names and library not in shown and library in ("libkvpager", "libkvpager_data")]
    found = [*differences(promised, shown), *((library, "", "not built") for library in needed)]
    for library, name, message in found:
        print(f"{library}: {name}: {message}")
    if found:
        sys.exit(1)
    print(", ".join(f"{library}: {len(names)}" for library, names in shown.items()))
    return None


main()
