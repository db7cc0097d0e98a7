#!/usr/bin/env python3
"""The aims of kvp_bench and the pages: what is missed is explained.

    aims.py              fails if a result of README.md has another aim than the program, or is not marked
                         as it is, or is missed and has no row in the table of missed aims; or if a row
                         with an aim has no result on any page of this folder
    aims.py --self-test
"""

import glob
import itertools
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
UNIT = re.compile("ns|x|B|[A-Za-z]+/s")
ROW = re.compile(rf'\{{"([a-z]\w+)",\s*"({UNIT.pattern})",\s*([^,]+),')
LATER = "Missed aims, and why"


def aims(sources):
    """{name: (unit, aim)} of the measurements with an aim; an aim that is no number is None."""
    found = {}
    for text in sources:
        for name, unit, aim in ROW.findall(text):
            number = re.fullmatch(r"-?[\d.]+(e\d+)?", aim)  # -a: at most a times the yardstick
            if aim != "0":
                found[name] = unit, abs(float(aim)) if number else None
    return found


def table_rows(text):
    """The cells of each row of each table."""
    for line in text.split("\n"):
        if line.startswith("| ") and not line.startswith("| name "):
            yield [cell.strip() for cell in line.strip("|\n ").split("|")]


def names_in(cell):
    """fork_{128,8192} names two rows."""
    for word in re.findall(r"[a-z]\w*(?:[{][^}]*[}]\w*)*", cell):
        parts = re.split(r"[{]([^}]*)[}]", word)
        yield from map("".join, itertools.product(*([part] if i % 2 == 0 else part.split(",")
                                                    for i, part in enumerate(parts))))


def value(cell):
    number = re.match(r"-?[\d,.]+", cell)
    return float(number.group().replace(",", "")) if number else None


def problems(known, page, others):
    """The page has results, and after them the table of missed aims; others may have results, too."""
    results, _, later = page.partition(f"## {LATER}")
    results = "\n".join([results, *others])
    explained = {name for cells in table_rows(later) for name in names_in(cells[0])}
    shown = {name for text in others for cells in table_rows(text) for name in names_in(cells[0])}
    for cells in table_rows(results):
        if len(cells) != 9 or not UNIT.fullmatch(cells[1]) or value(cells[2]) is None:
            continue
        name, unit, median, yardstick, ratio, aim = (cells[0], cells[1], value(cells[2]), value(cells[6]),
                                                     value(cells[7]), cells[8])
        shown.add(name)
        mark = aim.replace("*", "").rpartition(" ")[2]
        if name in known and known[name][1] is not None and value(aim) != known[name][1]:
            yield f"{name}: the program's aim is {known[name][1]:g}, the page's {aim}"
        if value(aim) is None:
            continue
        rate = "/s" in unit
        reached = median if "x" not in aim else ratio if rate else median / yardstick
        met = reached >= value(aim) if rate else reached <= value(aim)
        if mark != ("met" if met else "missed"):
            yield f"{name}: {reached:g} of {value(aim):g} is marked '{mark}'"
        if mark == "missed" and name not in explained:
            yield f"{name} is missed, and has no row under '{LATER}'"
    for name in sorted(set(known) - shown):
        yield f"{name} has an aim, and no page has a result"


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def self_test():
    known = aims(['{"fork_1", "ns", 120, 5, f,', '{"copy", "GB/s", 1.15, 5, f,', '{"plain", "ns", 0, 5, f,',
                  '{"host", "ns", -2.0, 5, f,'])
    assert known == {"fork_1": ("ns", 120.0), "copy": ("GB/s", 1.15), "host": ("ns", 2.0)}, known
    assert list(names_in("fork_{1,2}_x, copy")) == ["fork_1_x", "fork_2_x", "copy"]
    head = "| name | unit | median | min | max | spread | yardstick | ratio | aim |\n"
    good = (head + "| fork_1 | ns | 121 | 1 | 1 | 0 | - | - | 120 **missed** |\n"
            "| copy | GB/s | 3 | 1 | 1 | 0 | 2 | 1.5x | 1.15x met |\n"
            "| host | ns | 30 | 1 | 1 | 0 | 16 | 0.5x | 2.00x met |\n"
            f"## {LATER}\n| row | result | reason |\n| fork_{{1,2}} | 121 of 120 | lines |\n")
    assert not list(problems(known, good, [])), list(problems(known, good, []))
    for before, after in (("fork_{1,2}", "fork_3"), ("120 **missed**", "120 met"), ("1.15x met", "1.2x met"), ("| 16 |", "| 14 |"),
                          ("| copy", "| copied")):
        assert len(list(problems(known, good.replace(before, after), []))) == 1, (before, after)
    assert not list(problems(known, good.replace("| copy", "| copied"), ["| copy | 1 | 2 |\n"]))
    print("aims: self-test passed")


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    if arguments:
        sys.exit(__doc__)
    readme = os.path.join(HERE, "README.md")
    old = os.path.join(HERE, "TRIED.md")
    pages = [read(path) for path in sorted(glob.glob(os.path.join(HERE, "*.md"))) if path not in (readme, old)]
    known = aims(map(read, sorted(glob.glob(os.path.join(HERE, "*.c")))))
    found = list(problems(known, read(readme), pages))
    sys.exit("\n".join(f"aims.py: {line}" for line in found) or 0)


main(sys.argv[1:])
