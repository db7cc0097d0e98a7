#!/usr/bin/env python3
"""Machine code of each part of libkvpager.so and libkvpager_data.so, and of libkvpager_store.so, against
the table in docs/BUILDING.md.

    text_size.py BUILD            fails if a part has grown by more than 5 %
    text_size.py BUILD --write    write the table
    text_size.py --self-test

BUILD is a release build (build/release). A function belongs to the room whose file defines it; code
of xxHash and of the compiler's library is "other", and so is what libkvpager_data has of base. Another compiler makes code of other sizes: there
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
OPLOG = ("oplog", "`KVP_OPLOG`")
TRANSFER = ("transfer", "`KVP_TRANSFER`")
OTHER = ("other", "xxHash, the compiler's library, padding")
DATA_OTHER = ("other of data", "the same, and `src/base`")
LIBRARIES = {
    "libkvpager": {"core/": CORE, "base/": CORE, "sched/": SCHED, "oplog/": OPLOG, "": OTHER},
    "libkvpager_data": {"memory/": MEMORY, "base/pages": MEMORY,
                        "attention/": ("attention", "`KVP_ATTENTION`"),
                        "transfer/": TRANSFER, "base/checksum": TRANSFER, "wire/": ("wire", "`KVP_WIRE`"),
                        "base/team": ("threads", "with memory or attention"), "base/": DATA_OTHER,
                        "": DATA_OTHER}}
STORE = ("store", "`KVP_STORE`: libkvpager_store")


def part_of(parts, path):
    """The part of a function that is defined in this file."""
    match = re.search(r".*/src/([a-z_0-9/]+\.(?:[ch]|def))(?::|$)", path)
    if not match:
        return parts[""][0]
    begins = [begin for begin in parts if begin and match.group(1).startswith(begin)]
    if not begins:
        sys.exit(f"text_size: src/{match.group(1)} is in no part; add it to LIBRARIES")
    return parts[max(begins, key=len)][0]


def sizes(parts, symbols, text_bytes):
    """Bytes of each part, from the lines of nm -S -l and the size of the whole section."""
    found, other = {}, parts[""][0]
    seen = set()  # two names of one function count once
    for line in symbols.split("\n"):
        fields, _, place = line.partition("\t")
        words = fields.split()
        if len(words) != 4 or words[2] not in "tT" or words[0] in seen:
            continue
        seen.add(words[0])
        part = part_of(parts, place) if place else other
        found[part] = found.get(part, 0) + int(words[1], 16)
    found[other] = found.get(other, 0) + text_bytes - sum(found.values())
    return found


def tool(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def text_bytes(library):
    return int(re.search(r"^\.text\s+(\d+)", tool("size", "-A", library), re.MULTILINE).group(1))


def measure(build):
    found = {}
    for name, parts in LIBRARIES.items():
        library = os.path.join(build, name + ".so")
        found.update(sizes(parts, tool("nm", "-S", "-l", "--defined-only", library), text_bytes(library)))
    store = os.path.join(build, "libkvpager_store.so")
    if os.path.exists(store):
        found[STORE[0]] = text_bytes(store)
    return found


def wholes(found):
    """Bytes of each library."""
    return {name: sum(found.get(part, 0) for part, _ in set(parts.values())) for name, parts in LIBRARIES.items()}


def compiler(build):
    with open(os.path.join(build, "CMakeCache.txt")) as file:
        cache = dict(re.findall(r"^([A-Z_]+):[A-Z]+=(.*)$", file.read(), re.MULTILINE))
    cc = cache["CMAKE_C_COMPILER"]
    return f"{tool(cc, '-dumpversion').strip()}, {tool(cc, '-dumpmachine').strip()}, " \
           f"`{cache['CMAKE_C_FLAGS_RELEASE']}`"


def table(found, made_by):
    lines = [f"Compiler: {made_by}.\n", "\n", "| part | `.text`, bytes | left out by |\n",
             "|---|--:|---|\n"]
    for name, parts in LIBRARIES.items():
        for part, switch in dict.fromkeys(parts.values()):
            lines.append(f"| {part} | {found.get(part, 0):,} | {switch} |\n")
        lines.append(f"| **{name}** | {wholes(found)[name]:,} | |\n")
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
    rows = re.findall(r"^\| \**([a-z_ ]+?)\** \| ([\d,]+) \|", inside, re.MULTILINE)
    return (made_by.group(1) if made_by else None,
            {part: int(number.replace(",", "")) for part, number in rows})


def verdicts(recorded, found):
    """(line, has it grown too much) for each part and each library."""
    for part, now in [*found.items(), *wholes(found).items()]:
        before = recorded.get(part, 0)
        too_much = 100 * (now - before) > MOST_PERCENT * before + 100 * SLACK
        yield f"{part:16}{now:>10,}  recorded {before:>10,}{' TOO MUCH' if too_much else ''}", too_much


def self_test():
    nm = ("0000000000001000 0000000000000100 t a\t/x/src/core/stages/pool.c:7\n"
          "0000000000001000 0000000000000100 T b\t/x/src/core/stages/pool.c:7\n"
          "0000000000002000 0000000000000010 t c\t/x/../src/base/checksum.c:1\n"
          "0000000000003000 0000000000000020 t d\n"
          "0000000000004000 0000000000000040 r e\t/x/src/core/stages/pool.c:9\n")
    found = sizes({**LIBRARIES["libkvpager"], "base/checksum": TRANSFER}, nm, 400)
    assert found == {"core": 256, "transfer": 16, "other": 128}, found
    data = sizes(LIBRARIES["libkvpager_data"], "1000 0000000000000010 t a\t/x/src/base/why.c:1\n"
                 "2000 0000000000000020 t b\t/x/src/wire/mirror.c:1\n", 64)
    assert data == {"wire": 32, DATA_OTHER[0]: 32}, data
    _, recorded = read_table(table({**found, **data}, "gcc 1"))
    assert recorded["libkvpager"] == 384 and recorded["libkvpager_data"] == 80, recorded
    assert recorded["other of data"] == 32, recorded
    made_by, recorded = read_table(table(found, "gcc 1"))
    assert made_by == "gcc 1" and recorded["core"] == 256, recorded
    _, recorded = read_table(table({"core": 256, "store": 100}, "gcc 1"))
    assert recorded["libkvpager"] == 256 and recorded["store"] == 100, recorded
    assert any(bad for _, bad in verdicts({"core": 256, "libkvpager": 256, "store": 10000},
                                          {"core": 256, "store": 20000}))
    big = {"core": 100000, "libkvpager": 100000}
    assert not any(bad for _, bad in verdicts(big, {"core": 105000}))
    assert any(bad for _, bad in verdicts(big, {"core": 105513}))
    assert any(bad for _, bad in verdicts({**big, "core": 200000}, {"core": 105513})), "the whole"
    assert any(bad for _, bad in verdicts({"libkvpager": 100000}, {"core": 1000})), "a part that is new"
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
