#!/usr/bin/env python3
"""Instructions of twelve operations, counted by callgrind, against bench/instructions.txt.

    instructions.py BUILD            fails if an operation takes over 3 % more than is recorded
    instructions.py BUILD --write    record what it takes now
    instructions.py --self-test

It also fails if calls take over 1 % more in a pool of 100,000 blocks than in one of 10,000.

BUILD is a release build with the benchmark (build/release). One sample of `kvp_bench --count` is
counted, with what a sample prepares and undoes. Counted are instructions of the library's own code:
those of libc and of the benchmark depend on the machine or say nothing. None of the twelve chooses code
by the processor, so Intel and AMD give the same numbers; another compiler gives others, and there
the comparison is skipped (status 77).
"""

import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile

NAMES = ["open_hit_2048", "open_evict_commit_131072_warm", "extend_commit_1024_free",
         "extend_commit_single", "fork_128", "close_128_learned", "swap_128", "sched_step_1024_free",
         "sched_step_1024_groups", "wire_encode_1024", "meta_csr_64", "attn_decode_f32_1t"]
MOST_PERCENT = 3
# The same calls in pools of other sizes: the public headers say that the size does not count.
SIZES = (10000, 100000)
GROWING = [("open_hit", "close", "fork"), ("open_evict_commit", "extend_commit")]
MOST_GROWTH_PERCENT = 1
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RECORD = os.path.join(ROOT, "bench", "instructions.txt")
# Files whose code runs only on processors that have certain instructions.
OF_ONE_PROCESSOR = re.compile(r"/src/.*_(avx|avx2|avx512|amx)[^/]*$|/(stream|checksum)_x86\.c$|/amx_")
HEAD = """\
# Instructions of one sample of each operation: `make instructions` compares, and
# `scripts/instructions.py build/release --write` writes this file.
"""


def count(text, wanted):
    """Sums the self cost of callgrind's output over objects and files that `wanted` accepts."""
    names = {}
    total, obj, file, skip = 0, "", "", False

    def full(value):
        match = re.match(r"\((\d+)\)(?: (.*))?$", value)
        if not match:
            return value
        if match.group(2) is not None:
            names[kind, match.group(1)] = match.group(2)
        return names[kind, match.group(1)]

    for line in text.split("\n"):
        key, equals, value = line.partition("=")
        if equals and key in ("ob", "cob", "fl", "fi", "fe", "cfi", "cfl", "fn", "cfn"):
            kind = {"o": "ob", "f": "fl"}[key.lstrip("c")[0]] if key.lstrip("c") != "fn" else "fn"
            name = full(value)
            if key == "ob":
                obj = name
            elif key in ("fl", "fi", "fe"):
                file = name
        elif equals and key == "calls":
            skip = True  # the next line is the cost of the callee
        elif re.match(r"[+\-*\d]", line):
            if not skip and wanted(obj, file):
                total += int(line.split()[1])
            skip = False
    return total


def measure(build, name, *options):
    program = os.path.join(build, "bench", "kvp_bench")
    with tempfile.TemporaryDirectory() as work:
        out = os.path.join(work, "out")
        command = ["valgrind", "--tool=callgrind", "--instr-atstart=no",
                   f"--callgrind-out-file={out}", program, "--count", *options, "--only", name]
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode != 0:
            sys.exit(f"instructions: {name}: status {run.returncode}\n{run.stdout}{run.stderr}")
        with open(out) as file:
            text = file.read()
    chosen = count(text, lambda obj, file: OF_ONE_PROCESSOR.search(file))
    if chosen:
        sys.exit(f"instructions: {name} runs {chosen} instructions that the processor decides about")
    return count(text, is_ours)


def measure_growth(build, pool):
    """[(calls, instructions at the first of SIZES, at the second one)]"""
    jobs = [(calls, [pool.submit(measure, build, ",".join(f"pool_{size}_{call}" for call in calls), "--growth")
                     for size in SIZES]) for calls in GROWING]
    return [(calls, *(job.result() for job in of_sizes)) for calls, of_sizes in jobs]


def growth_verdicts(counted):
    """(line, is it too much) for calls whose instructions must not depend on the pool."""
    for calls, small, large in counted:
        too_much = 100 * (large - small) > MOST_GROWTH_PERCENT * small
        yield (f"{', '.join(calls):32}{small:>14,}  in a larger pool {large:>12,}"
               f"{' TOO MUCH' if too_much else ''}"), too_much


def is_ours(obj, file):
    return obj.endswith("/kvp_bench") and "/bench/" not in file


def compiler(build):
    """What decides about the numbers: version, target and flags."""
    with open(os.path.join(build, "CMakeCache.txt")) as file:
        cache = dict(re.findall(r"^([A-Z_]+):[A-Z]+=(.*)$", file.read(), re.MULTILINE))
    said = [subprocess.run([cache["CMAKE_C_COMPILER"], option], capture_output=True, text=True).stdout
            for option in ("-dumpversion", "-dumpmachine")]
    return " ".join(" ".join(said).split() + cache["CMAKE_C_FLAGS_RELEASE"].split())


def read_record():
    with open(RECORD) as file:
        lines = [line.rstrip("\n") for line in file if not line.startswith("#")]
    made_by = lines[0].partition(": ")[2]
    return made_by, {name: int(n) for name, n in (line.split() for line in lines[1:])}


def verdicts(recorded, counted):
    """(line, is it too much) for each operation."""
    for name in NAMES:
        before, now = recorded.get(name), counted[name]
        if before is None:
            yield f"{name:32}{now:>14,}  not recorded", True
            continue
        change = 100 * (now - before)
        too_much = change > MOST_PERCENT * before
        word = " TOO MUCH" if too_much else ""
        if change < -MOST_PERCENT * before:
            word = " less: --write records it"
        yield f"{name:32}{now:>14,} {change / before:+7.2f} %{word}", too_much


def self_test():
    text = ("events: Ir\nob=(1) /b/kvp_bench\nfl=(1) /s/src/core/calls/seqs.c\nfn=(1) kvp_seq_open\n"
            "16 400\n+2 30\ncob=(2) /lib/libc.so.6\ncfi=(2) ./string/memcpy.c\ncfn=(2) memcpy\n"
            "calls=3 50\n+1 9000\nfi=(3) /s/bench/world.c\n* 7\nfe=(1)\n-3 2\n\n"
            "ob=(2)\nfl=(2)\nfn=(2)\n50 9000\n")
    assert count(text, is_ours) == 432
    assert OF_ONE_PROCESSOR.search("/x/src/attention/kernels/x86/kernels_avx512_bf16.c")
    assert not OF_ONE_PROCESSOR.search("/x/src/attention/kernels/portable.c")
    same = {name: 1000 for name in NAMES}
    assert not any(bad for _, bad in verdicts(same, same))
    assert any(bad for _, bad in verdicts(same, {**same, NAMES[3]: 1031}))
    assert not any(bad for _, bad in verdicts(same, {**same, NAMES[3]: 1030}))
    assert any(bad for _, bad in verdicts({}, same))
    assert [bad for _, bad in growth_verdicts([(("a",), 1000, 1010), (("b", "c"), 1000, 1011)])] == [False, True]
    print("instructions: self-test passed")


def main():
    arguments = sys.argv[1:]
    if arguments == ["--self-test"]:
        return self_test()
    write = "--write" in arguments
    folders = [argument for argument in arguments if argument != "--write"]
    if len(folders) != 1 or folders[0].startswith("-"):
        sys.exit(__doc__)
    build = os.path.abspath(folders[0])
    made_by = compiler(build)
    if not write:
        recorded_by, recorded = read_record()
        if made_by != recorded_by:
            print(f"skipped: recorded with {recorded_by}, this is {made_by}")
            return sys.exit(77)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        counted = dict(zip(NAMES, pool.map(lambda name: measure(build, name), NAMES)))
        grown = measure_growth(build, pool)
    if write:
        with open(RECORD, "w") as file:
            file.write(HEAD + f"compiler: {made_by}\n")
            file.writelines(f"{name:32}{counted[name]:>12}\n" for name in NAMES)
        return print(f"instructions: {len(NAMES)} operations written to {RECORD}")
    bad = False
    for line, too_much in [*verdicts(recorded, counted), *growth_verdicts(grown)]:
        print(line)
        bad = bad or too_much
    if bad:
        sys.exit(f"instructions: more than {MOST_PERCENT} % over bench/instructions.txt; if that "
                 "is meant, write it anew with --write. Or calls cost more in a larger pool")


main()
