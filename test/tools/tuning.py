"""The figures of docs/TUNING.md: every row of its tables is replayed, and must say the same.

A table is announced by a comment, <!-- replay TRACE OPTIONS -->. A trace gen:PROFILE:N:RATE is
written by `kvpager gen`. The first column of a row has its
own options, in backquotes; the heads of the others say which figures they are. A trace long:T:N
has one prompt of T tokens, and N of 1,000 behind it, two a second.
"""

import json
import os
import re
import shlex
import sys

from lib_kvpager import (SOURCE, check, check_equal, directory, finish, replay_as, run, skip,
                         traces)

PAGE = os.path.join(SOURCE, "docs", "TUNING.md")


def seconds(name, part):
    return lambda found: f"{found[name][part] / 1e9:.2f} s"


# What each head means.
COLUMNS = {
    "computed": lambda found: f"{found['prompt_tokens_scheduled']:,} tokens",
    "hit ratio": lambda found: f"{100 * found['hit_ratio']:.1f} %",
    "hits": lambda found: f"{100 * found['hit_ratio']:.2f} %",
    "evictions": lambda found: f"{found['evictions']:,}",
    "peak held": lambda found: f"{found['peak_held_blocks'] * found['block_tokens']:,} tokens",
    "first token": seconds("time_to_first_token_ns", "mean"),
    "median": seconds("time_to_first_token_ns", "p50"),
    "p99": seconds("time_to_first_token_ns", "p99"),
    "per output token": lambda found: f"{found['time_per_output_token_ns']['mean'] / 1e6:.1f} ms",
    "longest pause": seconds("between_tokens_ns", "max"),
    "tokens a second": lambda found: f"{found['output_tokens_per_second']:.0f}",
    "preempted": lambda found: f"{found['preemptions_recompute'] + found['preemptions_swap']:,}",
    "given up": lambda found: f"{found['lost_tokens']:,} tokens",
    "from the host": lambda found: f"{100 * found['host_share']:.1f} %",
    "copying": lambda found: f"{found['copy_seconds']:.1f} s",
}


def write_long(path, n_tokens, n_short):
    n = -(-n_tokens // 512)
    lines = [(0, n_tokens, 10, range(n))] + [(100 + 500 * i, 1000, 20, (n + 2 * i, n + 2 * i + 1))
                                             for i in range(n_short)]
    with open(path, "w", encoding="utf-8") as file:
        for time, n_input, n_output, ids in lines:
            file.write(json.dumps({"timestamp": time, "input_length": n_input,
                                   "output_length": n_output, "hash_ids": list(ids)}) + "\n")
    return path


def find_trace(name, folder):
    if name.startswith("gen:"):
        _, profile, n, rate = name.split(":")
        path = os.path.join(folder, name.replace(":", "-"))
        run("gen", "--profile", profile, "-n", n, "--rate", rate, "-o", path)
        return path
    if name.startswith("long:"):
        return write_long(os.path.join(folder, "long.jsonl"), *map(int, name.split(":")[1:]))
    path = os.path.join(SOURCE, name)
    if os.path.exists(path):
        return path
    path = os.path.join(traces() or "", os.path.basename(name))
    return path if os.path.exists(path) else None


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def tables():
    """(trace, options, lines of the table) for each."""
    with open(PAGE, encoding="utf-8") as file:
        text = file.read()
    for match in re.finditer(r"<!-- replay (.*?) -->\n((?:\|.*\n)+)", text):
        trace, *options = shlex.split(match.group(1))
        yield trace, options, match.group(2).splitlines()


def row_of(heads, line, trace, options):
    own = re.findall(r"`([^`]*)`", cells(line)[0])
    words = [word for part in own for word in shlex.split(part)]
    if "--sequential" not in options:
        options = ["--no-measure", *options]
    found = replay_as(*options, *words, trace)
    return [cells(line)[0]] + [COLUMNS[head](found) for head in heads[1:]]


def main():
    n_rows, update = 0, "--update" in sys.argv
    if int(os.environ.get("KVP_CHECK", "0")) > 0:
        skip("the replays of docs/TUNING.md take too long with audits")
    with directory() as folder:
        for name, options, lines in tables():
            heads, trace = cells(lines[0]), find_trace(name, folder)
            if trace is None:
                print("left out:", name, "is not there")
                continue
            for line in lines[2:]:
                expected = row_of(heads, line, trace, options)
                n_rows += 1
                if update:
                    replace(line, "| " + " | ".join(expected) + " |")
                else:
                    check_equal(cells(line), expected, name, options)
    check(n_rows > 20, "only", n_rows, "rows in", PAGE)
    finish()


def replace(line, with_line):
    with open(PAGE, encoding="utf-8") as file:
        text = file.read()
    with open(PAGE, "w", encoding="utf-8") as file:
        file.write(text.replace(line + "\n", with_line + "\n", 1))


if __name__ == "__main__":
    main()
