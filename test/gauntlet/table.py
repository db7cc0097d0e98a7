#!/usr/bin/env python3
"""table.py PROGRAM README.md: the table there has a row for each scene, and no other."""

import re
import subprocess
import sys


def main():
    program, page = sys.argv[1:]
    listed = subprocess.run([program, "--list"], check=True, capture_output=True, text=True).stdout
    scenes = [tuple(line.split()[:2]) for line in listed.splitlines()]
    with open(page, encoding="utf-8") as file:
        rows = re.findall(r"^\| ([A-Z]\d+) \|.*\| `([a-z-]+)` \|", file.read(), re.MULTILINE)
    wrong = sorted(set(scenes) ^ set(rows))
    for number, name in wrong:
        print(f"{number} {name}: only in {'the program' if (number, name) in scenes else page}")
    if len(rows) != len(scenes) or len(set(number for number, _ in scenes)) != 62:
        print(f"{len(scenes)} scenes, {len(rows)} rows; 62 defects are known")
        return 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
