"""The figures in README.md are those of the pages that own them."""

import os
import re

from lib_kvpager import SOURCE, check, check_equal, finish

# Page, the beginning of a row there, its columns with theirs and ours, and what turns them into
# README.md's unit.
FIGURES = [
    ("python/bench/README.md", "get_computed_blocks of 16,384 cached tokens", 1, 2, 1, "us"),
    ("python/bench/README.md", "allocate_slots for one token, 256 running", 1, 2, 1, "us"),
    ("docs/ENGINES.md", "1,200 | 2 |", 2, 6, 1, "ms"),
    ("bench/README.md", "open_hit_cold_131072 |", 6, 2, 1000, "us"),
    ("bench/README.md", "open_evict_commit_131072 |", 6, 2, 1000, "us"),
    ("bench/README.md", "copy_64k |", 6, 2, 1, "GB/s"),
]


def read(path):
    with open(os.path.join(SOURCE, path), encoding="utf-8") as file:
        return file.read()


def figure(cell, divisor, unit):
    """A cell's first number as README.md writes it: 35,805,462 ns is 35,805 us."""
    number = re.match(r"[\d,.]+", cell).group().replace(",", "")
    if divisor > 1:
        number = str(round(float(number) / divisor))
    whole, point, rest = number.partition(".")
    return f"{int(whole):,}{point}{rest} {unit}"


front = read("README.md")
for page, row, theirs, ours, divisor, unit in FIGURES:
    rows = [[cell.strip() for cell in row.split("|")]
            for row in re.findall(rf"^\| ({re.escape(row)}.*)\|$", read(page), re.MULTILINE)]
    rows = [cells for cells in rows if len(cells) > theirs and re.match(r"\d", cells[ours])]
    if check(rows, f"{page} has no figures of '{row}'"):
        # The first: later tables are of other runs.
        wanted = " | ".join(figure(rows[0][i], divisor, unit) for i in (theirs, ours))
        check(f"| {wanted} |" in front, f"README.md does not have '{wanted}' of {page}: {row}")
n_figures = len(re.findall(r"^\|.*\([abc]\) \|", front, re.MULTILINE))
check_equal(n_figures, len(FIGURES), "rows of figures in README.md:")
finish()
