#!/usr/bin/env python3
"""How cost grows: the figures, tables and plot of GROWTH.md.

    growth.py FILE...    take the rows of these files (kvp_bench --growth --json FILE) into
                         growth.json, and make the tables of GROWTH.md and growth.svg anew
    growth.py --check    fails if those are not made of growth.json, or if a curve grows by more
                         than its factor
    growth.py --self-test

A median is divided by the one of its yardstick, the same calls at one size, whose samples alternate
with its own; then it is given in ns by the median of all yardsticks of the curve. So the speed of
the processor, which changes from minute to minute where others use it, falls out.
"""

import json
import math
import os
import re
import statistics
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
DATA, PAGE, PLOT = (os.path.join(HERE, name) for name in ("growth.json", "GROWTH.md", "growth.svg"))
BEGIN, END = "<!-- growth.py: begin {} -->\n", "<!-- growth.py: end -->\n"
# Kinds of sizes, in the order of the page: what a size is, and curves with their colours.
PANELS = {
    "pool": ("blocks in the pool", {
        "open_evict_commit": "#d1495b", "open_hit": "#2e7fb8", "extend_commit": "#3a9d5d",
        "close": "#b07d2b", "fork": "#8a63b0", "line_alone": "#888888", "line": "#888888"}),
    "batch": ("sequences in a batch", {"extend_commit": "#3a9d5d", "step": "#c06a1e"}),
}
FROM = {"batch": 16, "sched": 16}  # below: what a call costs however little it does is seen
PARTS = {"batch": ("batch", "sched")}
LABELS = {"open_evict_commit": "open and commit, evicting", "open_hit": "open, cached", "close": "close",
          "fork": "fork", "extend_commit": "extend and commit", "line_alone": "a line, alone",
          "line": "a line, of many", "step": "scheduler's step"}


def points(rows, kind, curve):
    """[(size, ns)], ascending."""
    found = []
    for row in rows:
        match = re.fullmatch(rf"{kind}_(\d+)_{curve}", row["name"])
        if match:
            found.append((int(match.group(1)), row["median"], row["baseline_median"]))
    if not found:
        return []
    by = statistics.median(yardstick for _, _, yardstick in found)
    return [(size, median / yardstick * by) for size, median, yardstick in sorted(found)]


def curves(rows):
    """{kind: [curve]} of what was measured, in order."""
    found = {}
    for row in rows:
        match = re.fullmatch(r"([a-z]+)_\d+_([a-z_]+)", row["name"])
        if match and match.group(2) not in found.setdefault(match.group(1), []):
            found[match.group(1)].append(match.group(2))
    return found


def factors(rows):
    """{(kind, curve): at most this ratio}."""
    return {tuple(row["name"].split("_", 1)): row["aim"] for row in rows if row["unit"] == "x"}


def ratio(rows, kind, curve):
    """The largest cost by the smallest."""
    values = [ns for size, ns in points(rows, kind, curve) if size >= FROM.get(kind, 0)]
    return max(values) / min(values)


def too_much(rows):
    """A line for each curve that grows by more than its factor, or has none."""
    bounds = factors(rows)
    for kind, names in curves(rows).items():
        for name in names:
            if (kind, name) not in bounds:
                yield f"{kind}_{name} has no factor"
                continue
            most = bounds[kind, name]
            grown = ratio(rows, kind, name)
            if most and grown > most:
                yield f"{kind}_{name} grows {grown:.2f} times, over {most}"


# ---------------------------------------------------------------------------------------- tables

def number(ns):
    return f"{ns:,.0f}" if ns >= 100 else f"{ns:.1f}"


def table(rows, kind):
    names = curves(rows)[kind]
    bounds = factors(rows)
    sizes = sorted({size for name in names for size, _ in points(rows, kind, name)})
    cells = {name: dict(points(rows, kind, name)) for name in names}
    lines = [f"| {'blocks' if kind == 'pool' else 'sequences'} | " + " | ".join(names) + " |\n",
             "|--:|" + "--:|" * len(names) + "\n"]
    for size in sizes:
        values = [number(cells[name][size]) if size in cells[name] else "-" for name in names]
        lines.append(f"| {size:,} | " + " | ".join(values) + " |\n")
    grown, most = [], []
    for name in names:
        grown.append(f"{ratio(rows, kind, name):.1f}")
        most.append(f"{bounds[kind, name]:g}" if bounds[kind, name] else "-")
    lines.append("| largest by smallest | " + " | ".join(grown) + " |\n")
    lines.append("| at most | " + " | ".join(most) + " |\n")
    return "".join(lines)


def fill(page, rows):
    for kind in curves(rows):
        begin = BEGIN.format(kind)
        before, found, rest = page.partition(begin)
        _, end, after = rest.partition(END)
        if not found or not end:
            sys.exit(f"growth.py: GROWTH.md has no '{begin.strip()}' ... '{END.strip()}'")
        page = before + begin + table(rows, kind) + end + after
    return page


# ------------------------------------------------------------------------------------------ plot

WIDTH, HEIGHT, LEFT, TOP, INNER_W, INNER_H = 860, 360, 58, 30, 250, 270
STYLE = """text { font: 11px sans-serif; fill: #24292f; }
.axis { stroke: #24292f; fill: none; } .grid { stroke: #24292f; stroke-opacity: 0.12; }
.curve { fill: none; stroke-width: 2; } .bound { stroke-dasharray: 4 3; }
@media (prefers-color-scheme: dark) { text { fill: #d0d7de; } .axis { stroke: #d0d7de; }
.grid { stroke: #d0d7de; stroke-opacity: 0.18; } }"""


def power(exponent):
    return ("1" if exponent == 0 else "10") + (f'<tspan dy="-4" font-size="8">{exponent}</tspan>' if exponent > 1
                                               else "")


def spread(places, least):
    """The places, moved apart so that no two are nearer than that; in the order given."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    moved = [places[i] for i in order]
    for _ in range(100):
        for i in range(1, len(moved)):
            lack = least - (moved[i] - moved[i - 1])
            if lack > 0:
                moved[i - 1] -= lack / 2
                moved[i] += lack / 2
    return [y for _, y in sorted(zip(order, moved))]


def panel(rows, kind, left, y_range):
    what, colours = PANELS[kind]
    found = {}
    for part in PARTS.get(kind, (kind,)):
        for name in curves(rows).get(part, []):
            if name in colours:
                found[name] = points(rows, part, name)
    sizes = [size for list_ in found.values() for size, _ in list_]
    x_from, x_to = math.floor(math.log10(min(sizes))), math.ceil(math.log10(max(sizes)))

    def x(size):
        return left + (math.log10(size) - x_from) / (x_to - x_from) * INNER_W

    def y(ns):
        return TOP + INNER_H - (math.log10(ns) - y_range[0]) / (y_range[1] - y_range[0]) * INNER_H

    bottom, right = TOP + INNER_H, left + INNER_W
    out = [f'<path class="axis" d="M{left} {TOP}V{bottom}H{right}"/>']
    for exponent in range(x_from, x_to + 1):
        at = x(10 ** exponent)
        out.append(f'<path class="grid" d="M{at:.1f} {TOP}V{bottom}"/>'
                   f'<text x="{at:.1f}" y="{bottom + 16}" text-anchor="middle">{power(exponent)}</text>')
    for exponent in range(y_range[0], y_range[1] + 1):
        at = y(10 ** exponent)
        out.append(f'<path class="grid" d="M{left} {at:.1f}H{right}"/>'
                   f'<text x="{left - 6}" y="{at + 4:.1f}" text-anchor="end">{power(exponent)}</text>')
    out.append(f'<text x="{left + INNER_W / 2}" y="{bottom + 38}" text-anchor="middle">{what}</text>')
    ends = spread([y(list_[-1][1]) for list_ in found.values()], 13)
    for (name, list_), end in zip(found.items(), ends):
        line = " ".join(f"{x(size):.1f},{y(ns):.1f}" for size, ns in list_)
        bound = " bound" if name.startswith("line") else ""
        out.append(f'<polyline class="curve{bound}" stroke="{colours[name]}" points="{line}"/>'
                   f'<text x="{x(list_[-1][0]) + 6:.1f}" y="{end + 4:.1f}">'
                   f'<tspan fill="{colours[name]}">&#9632;</tspan> {LABELS[name]}</text>')
    return out


def plot(rows):
    values = [ns for kind, (_, colours) in PANELS.items() for part in PARTS.get(kind, (kind,))
              for name in curves(rows).get(part, []) if name in colours for _, ns in points(rows, part, name)]
    y_range = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}">',
           f"<style>{STYLE}</style>",
           f'<text x="14" y="{TOP + INNER_H / 2}" text-anchor="middle" '
           f'transform="rotate(-90 14 {TOP + INNER_H / 2})">ns for each block, or sequence</text>']
    for i, kind in enumerate(PANELS):
        out += panel(rows, kind, LEFT + i * (WIDTH // 2), y_range)
    return "\n".join([*out, "</svg>"]) + "\n"


# ------------------------------------------------------------------------------------------ main

def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def take(paths):
    """The rows of all files; of one name, the last."""
    rows = {}
    for path in paths:
        rows.update({row["name"]: row for row in load(path)})
    measured = [row for row in rows.values() if row["unit"] != "x"]
    bounds = [row for row in rows.values() if row["unit"] == "x"]
    for row in bounds:  # of all files together
        grown = ratio(measured, *row["name"].split("_", 1))
        row.update(dict.fromkeys(("median", "min", "max"), round(grown, 2)))
    return measured + bounds


def self_test():
    def row(name, median, yardstick=10.0):
        return {"name": name, "unit": "ns", "median": median, "baseline_median": yardstick}

    def bound(name, most):
        return {"name": name, "unit": "x", "median": 1.0, "baseline_median": None, "aim": most}

    rows = [row("pool_10_open_hit", 10), row("pool_100_open_hit", 40, 20.0), row("batch_1_extend_commit", 90),
            row("batch_64_extend_commit", 10), bound("pool_open_hit", 2), bound("batch_extend_commit", 1.5)]
    assert points(rows, "pool", "open_hit") == [(10, 15.0), (100, 30.0)], points(rows, "pool", "open_hit")
    assert not list(too_much(rows))
    assert list(too_much([*rows, row("pool_1000_open_hit", 21)])), "more than its factor"
    assert list(too_much([*rows, row("batch_128_extend_commit", 16)])), "more than its factor"
    assert list(too_much([*rows, row("pool_10_close", 1)])), "no factor"
    assert table(rows, "pool").splitlines()[-2:] == ["| largest by smallest | 2.0 |", "| at most | 2 |"]
    moved = spread([10, 11, 50], 13)
    assert moved[1] - moved[0] > 12.9 and moved[2] == 50, moved
    assert "open, cached" in plot(rows)
    print("growth: self-test passed")


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    if arguments == ["--check"]:
        rows = load(DATA)
        wrong = list(too_much(rows))
        wrong += [f"{os.path.basename(path)} is not made of growth.json: bench/growth.py bench/growth.json"
                  for path, text in ((PAGE, fill(read(PAGE), rows)), (PLOT, plot(rows))) if read(path) != text]
        return sys.exit("\n".join(f"growth.py: {line}" for line in wrong) or 0)
    if not arguments or arguments[0].startswith("-"):
        sys.exit(__doc__)
    rows = take(arguments)
    write(DATA, "[\n" + ",\n".join("  " + json.dumps(row) for row in rows) + "\n]\n")
    write(PAGE, fill(read(PAGE), rows))
    write(PLOT, plot(rows))
    for line in too_much(rows):
        print(f"growth.py: {line}")


main(sys.argv[1:])
