#!/usr/bin/env python3
"""Machine code of each part of libkvpager.so, and of libkvpager_store.so, against the table in
docs/BUILDING.md.

    text_size.py BUILD            fails if a part has grown by more than 5 %
    text_size.py BUILD --write    write the table
    text_size.py --self-test

BUILD is a release build (build/release). A function belongs to the room whose file defines it; code
of xxHash and of the compiler's library is "other". Another compiler makes code of other sizes: there
the comparison is skipped (status 77).
"""

import os
import re
import subprocess
import sys

MOST_PERCENT = 5
SLACK = 512  # bytes: so that small parts may move
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE = os.path.join(ROOT, "docs", "BUILDING.md")
BEGIN, END = "<!-- text_size: begin -->\n", "<!-- text_size: end -->\n"
# Beginning of a path below src: the part, and the switch that leaves it out. The longest fits.
CORE = ("core", "always there")
MEMORY = ("memory", "`KVP_MEMORY`")
SCHED = ("sched", "`KVP_SCHED`")
TRANSFER = ("transfer", "`KVP_TRANSFER`")
PARTS = {"core/": CORE, "base/": CORE,
         "base/team": ("threads", "with memory or attention"),
         "memory/": MEMORY, "base/pages": MEMORY, "attention/": ("attention", "`KVP_ATTENTION`"),
         "sched/": SCHED, "wire/": SCHED, "transfer/": TRANSFER, "base/checksum": TRANSFER,
         "oplog/": ("oplog", "`KVP_OPLOG`")}
OTHER = ("other", "xxHash, the compiler's library, padding")
STORE = ("store", "`KVP_STORE`; `libkvpager_store.so`, not in the whole")


def part_of(path):
    """The part of a function that is defined in this file."""
    match = re.search(r".*/src/([a-z_0-9/]+\.(?:[ch]|def))(?::|$)", path)
    if not match:
        return OTHER[0]
    begins = [begin for begin in PARTS if match.group(1).startswith(begin)]
    if not begins:
        sys.exit(f"text_size: src/{match.group(1)} is in no part; add it to PARTS")
    return PARTS[max(begins, key=len)][0]


def sizes(symbols, text_bytes):
    """Bytes of each part, from the lines of nm -S -l and the size of the whole section."""
    found = {}
    seen = set()  # two names of one function count once
    for line in symbols.split("\n"):
        fields, _, place = line.partition("\t")
        words = fields.split()
        if len(words) != 4 or words[2] not in "tT" or words[0] in seen:
            continue
        seen.add(words[0])
        part = part_of(place) if place else OTHER[0]
        found[part] = found.get(part, 0) + int(words[1], 16)
    found[OTHER[0]] = found.get(OTHER[0], 0) + text_bytes - sum(found.values())
    return found


def tool(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def text_bytes(library):
    return int(re.search(r"^\.text\s+(\d+)", tool("size", "-A", library), re.MULTILINE).group(1))


def measure(build):
    library = os.path.join(build, "libkvpager.so")
    store = os.path.join(build, "libkvpager_store.so")
    found = sizes(tool("nm", "-S", "-l", "--defined-only", library), text_bytes(library))
    if os.path.exists(store):
        found[STORE[0]] = text_bytes(store)
    return found


def whole(found):
    return sum(n for part, n in found.items() if part != STORE[0])


def compiler(build):
    with open(os.path.join(build, "CMakeCache.txt")) as file:
        cache = dict(re.findall(r"^([A-Z_]+):[A-Z]+=(.*)$", file.read(), re.MULTILINE))
    cc = cache["CMAKE_C_COMPILER"]
    return f"{tool(cc, '-dumpversion').strip()}, {tool(cc, '-dumpmachine').strip()}, " \
           f"`{cache['CMAKE_C_FLAGS_RELEASE']}`"


def table(found, made_by):
    lines = [f"Compiler: {made_by}.\n", "\n", "| part | `.text`, bytes | left out by |\n",
             "|---|--:|---|\n"]
    for part, switch in [*dict.fromkeys(PARTS.values()), OTHER]:
        lines.append(f"| {part} | {found.get(part, 0):,} | {switch} |\n")
    lines.append(f"| **whole** | {whole(found):,} | |\n")
    if STORE[0] in found:
        lines.append(f"| {STORE[0]} | {found[STORE[0]]:,} | {STORE[1]} |\n")
    return "".join(lines)


def split(page):
    before, begin, rest = page.partition(BEGIN)
    inside, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"text_size: {PAGE} has no '{BEGIN.strip()}' ... '{END.strip()}'")
    return before, inside, after


def read_table(inside):
    made_by = re.search(r"^Compiler: (.*)\.$", inside, re.MULTILINE)
    rows = re.findall(r"^\| \**([a-z]+)\** \| ([\d,]+) \|", inside, re.MULTILINE)
    return (made_by.group(1) if made_by else None,
            {part: int(number.replace(",", "")) for part, number in rows})


def verdicts(recorded, found):
    """(line, has it grown too much) for each part and the whole."""
    for part, now in [*found.items(), ("whole", whole(found))]:
        before = recorded.get(part, 0)
        too_much = 100 * (now - before) > MOST_PERCENT * before + 100 * SLACK
        yield f"{part:12}{now:>10,}  recorded {before:>10,}{' TOO MUCH' if too_much else ''}", too_much


def self_test():
    nm = ("0000000000001000 0000000000000100 t a\t/x/src/core/stages/pool.c:7\n"
          "0000000000001000 0000000000000100 T b\t/x/src/core/stages/pool.c:7\n"
          "0000000000002000 0000000000000010 t c\t/x/../src/base/checksum.c:1\n"
          "0000000000003000 0000000000000020 t d\n"
          "0000000000004000 0000000000000040 r e\t/x/src/core/stages/pool.c:9\n")
    found = sizes(nm, 400)
    assert found == {"core": 256, "transfer": 16, "other": 128}, found
    made_by, recorded = read_table(table(found, "gcc 1"))
    assert made_by == "gcc 1" and recorded["core"] == 256 and recorded["whole"] == 400
    _, recorded = read_table(table({"core": 256, "store": 100}, "gcc 1"))
    assert recorded["whole"] == 256 and recorded["store"] == 100, recorded
    assert any(bad for _, bad in verdicts({"core": 256, "whole": 256, "store": 10000},
                                          {"core": 256, "store": 20000}))
    big = {"core": 100000}
    assert not any(bad for _, bad in verdicts({**big, "whole": 100000}, {"core": 105000}))
    assert any(bad for _, bad in verdicts({**big, "whole": 100000}, {"core": 105513}))
    assert any(bad for _, bad in verdicts({"whole": 100000}, {"core": 1000}))
    print("text_size: self-test passed")


def main():
    arguments = sys.argv[1:]
    if arguments == ["--self-test"]:
        return self_test()
    write = "--write" in arguments
    folders = [argument for argument in arguments if argument != "--write"]
    if len(folders) != 1 or folders[0].startswith("-"):
        sys.exit(__doc__)
    with open(PAGE) as file:
        before, inside, after = split(file.read())
    made_by = compiler(folders[0])
    recorded_by, recorded = read_table(inside)
    if not write and made_by != recorded_by:
        print(f"skipped: the table is of {recorded_by}, this is {made_by}")
        return sys.exit(77)
    found = measure(folders[0])
    if write:
        with open(PAGE, "w") as file:
            file.write(before + BEGIN + table(found, made_by) + END + after)
        return print(f"text_size: written to {PAGE}")
    bad = False
    for line, too_much in verdicts(recorded, found):
        print(line)
        bad = bad or too_much
    if bad:
        sys.exit(f"text_size: more than {MOST_PERCENT} % over docs/BUILDING.md; if that is meant, "
                 "write the table anew with --write")


main()
