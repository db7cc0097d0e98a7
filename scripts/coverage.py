#!/usr/bin/env python3
"""What the tests ran of src: lines and branches of every file and room.

    coverage.py BUILD          BUILD is a build with KVP_COVERAGE, in which the tests have run
    coverage.py --list BUILD   what is not run or taken of the core, as coverage.txt has it

Of the core, each line that is not run and each branch that is not taken stands in coverage.txt with
a reason. One that does not is an error; so is one that stands there and is run or taken after all,
and less than CORE_BRANCHES per cent of the branches. Needs gcovr. A branch is one outcome of one
condition, as gcc sees it without optimising; those of a line are counted from 1, in gcc's order (an
`if` has the condition true first; of `a || b`, false first for `a`).
"""

import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIST = os.path.join(ROOT, "scripts", "coverage.txt")
CORE = "src/core"
# What of the base is held to the same.
IN_CORE = (CORE + "/", "src/base/base.", "src/base/types.")
CORE_BRANCHES = 95.0

# The failing side of an assert is no branch of the program: nothing goes on after it.
ASSERTS = r".*KVPI_ASSERT\(.*"


def measured(build):
    """{path: [(number, text, was run, [was taken, for each branch])]} of every file below src."""
    command = ["gcovr", "--root", ROOT, "--filter", "src/", "--json", "-", "-j", "2",
               "--exclude-branches-by-pattern", ASSERTS, build]
    report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    files = {}
    for file in report["files"]:
        with open(os.path.join(ROOT, file["file"]), encoding="utf-8") as source:
            texts = source.read().split("\n")
        files[file["file"]] = [
            (line["line_number"], texts[line["line_number"] - 1].strip(), line["count"] > 0,
             [branch["count"] > 0 for branch in line["branches"]])
            for line in file["lines"] if not line["gcovr/noncode"]]
    return files


def key_of(path, text, was_run, taken):
    """A line as coverage.txt has it; None when there is nothing to say of it."""
    if not was_run:
        return f"{path}: {text}"
    missed = [str(n) for n, was_taken in enumerate(taken, 1) if not was_taken]
    return f"{path} [{' '.join(missed)} of {len(taken)}]: {text}" if missed else None


def listed():
    """The lines of coverage.txt that name something; each paragraph of them ends with its reason."""
    keys, without = set(), None
    with open(LIST, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.startswith("src/"):
                key = line.rstrip("\n")
                if key in keys:
                    sys.exit(f"{LIST}:{number}: stands there twice")
                keys.add(key)
                without = number
            elif line.startswith("    "):
                without = None
            elif line.strip() and not line.startswith("#"):
                sys.exit(f"{LIST}:{number}: neither a line of src, nor a reason, nor a comment")
            elif without:
                break
    if without:
        sys.exit(f"{LIST}:{without}: no reason follows")
    return keys


def sums(lines):
    return (len(lines), sum(line[2] for line in lines),
            sum(len(line[3]) for line in lines), sum(sum(line[3]) for line in lines))


def percent(part, whole):
    return 100.0 * part / whole if whole else 100.0


def show(name, lines):
    n_lines, n_run, n_branches, n_taken = sums(lines)
    print(f"{name:<42}{n_run:7,} of {n_lines:6,} {percent(n_run, n_lines):6.1f} %"
          f"{n_taken:8,} of {n_branches:6,} {percent(n_taken, n_branches):6.1f} %")


def report(files):
    rooms = {}
    print(f"{'':<42}{'lines run':>25}{'branches taken':>26}")
    for path in sorted(files):
        show(path, files[path])
        rooms.setdefault(os.path.dirname(path), []).extend(files[path])
    print()
    for room in sorted(rooms):
        show(room, rooms[room])
    return rooms


def missed_in_core(files):
    """[(path, number, key)] of each line of the core that is not run, or has a branch not taken."""
    return [(path, number, key) for path, lines in files.items() if path.startswith(IN_CORE)
            for number, text, was_run, taken in lines
            if (key := key_of(path, text, was_run, taken)) is not None]


def findings(files, rooms):
    keys = listed()
    missed = missed_in_core(files)
    for path, number, key in missed:
        if key not in keys:
            yield f"{path}:{number}: not run or taken, and not listed: {key}"
    for key in sorted(keys - {key for _, _, key in missed}):
        yield f"scripts/coverage.txt: is run or taken, or is not there: {key}"
    _, _, n_branches, n_taken = sums(rooms.get(CORE, []))
    if percent(n_taken, n_branches) < CORE_BRANCHES:
        yield f"{CORE}: {n_taken} of {n_branches} branches taken: less than {CORE_BRANCHES} %"


def main(arguments):
    only_list = arguments[:1] == ["--list"]
    builds = arguments[only_list:]
    if len(builds) != 1 or not os.path.isdir(builds[0]):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    files = measured(builds[0])
    if only_list:
        print("\n".join(key for _, _, key in missed_in_core(files)))
        return 0
    found = list(findings(files, report(files)))
    for finding in found:
        print(finding)
    if not found:
        print(f"\ncoverage: all of {CORE} is run and taken but what scripts/coverage.txt lists")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
