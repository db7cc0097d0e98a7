#!/usr/bin/env python3
"""What the tests ran of src: lines and branches of every file and room.

    coverage.py BUILD     BUILD is a build with KVP_COVERAGE, in which the tests have run

Fails if a line of the core is neither run nor listed in coverage.txt with a reason, if something
listed is run after all, or if the core has less than CORE_BRANCHES per cent of its branches. Prints
which branches of the core are not taken, but for those that are listed. Needs gcovr. A branch is one outcome of one condition, as gcc sees it without optimising.
"""

import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIST = os.path.join(ROOT, "scripts", "coverage.txt")
CORE = "src/core"
CORE_BRANCHES = 95.0

# The failing side of an assert is no branch of the program: nothing goes on after it.
ASSERTS = r".*KVPI_ASSERT\(.*"


def measured(build):
    """{path: [(number, text, was run, branches, branches run)]} of every file below src."""
    command = ["gcovr", "--root", ROOT, "--filter", "src/", "--json", "-", "-j", "2",
               "--exclude-branches-by-pattern", ASSERTS, build]
    report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    files = {}
    for file in report["files"]:
        with open(os.path.join(ROOT, file["file"]), encoding="utf-8") as source:
            texts = source.read().split("\n")
        files[file["file"]] = [
            (line["line_number"], texts[line["line_number"] - 1].strip(), line["count"] > 0,
             len(line["branches"]), sum(branch["count"] > 0 for branch in line["branches"]))
            for line in file["lines"] if not line["gcovr/noncode"]]
    return files


def listed():
    """The keys of coverage.txt, "path: text of the line"; each paragraph ends with its reason."""
    keys = set()
    with open(LIST, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.startswith("src/"):
                keys.add(line.rstrip("\n"))
            elif line.strip() and not line.startswith(("#", "    ")):
                sys.exit(f"{LIST}:{number}: neither a line of src, nor a reason, nor a comment")
    return keys


def sums(lines):
    return (len(lines), sum(line[2] for line in lines),
            sum(line[3] for line in lines), sum(line[4] for line in lines))


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


def findings(files, rooms):
    keys = listed()
    missed = set()
    for path, lines in files.items():
        for number, text, was_run, n_branches, n_taken in lines:
            if not path.startswith(CORE + "/") or (was_run and n_branches == n_taken):
                continue
            missed.add(f"{path}: {text}")
            if f"{path}: {text}" in keys:
                continue
            if was_run:
                print(f"{path}:{number}: {n_taken} of {n_branches} branches taken: {text}")
            else:
                yield f"{path}:{number}: not run: {text}"
    for key in sorted(keys - missed):
        yield f"scripts/coverage.txt: is run, or is not there: {key}"
    _, _, n_branches, n_taken = sums(rooms.get(CORE, []))
    if percent(n_taken, n_branches) < CORE_BRANCHES:
        yield f"{CORE}: {n_taken} of {n_branches} branches taken: less than {CORE_BRANCHES} %"


def main(arguments):
    if len(arguments) != 1 or not os.path.isdir(arguments[0]):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    files = measured(arguments[0])
    found = list(findings(files, report(files)))
    for finding in found:
        print(finding)
    if not found:
        print(f"\ncoverage: all of {CORE} is run but what scripts/coverage.txt lists")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
