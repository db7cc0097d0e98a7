"""Replays larger workloads under load: the bundled one, and the real traces where they are."""

import os

from lib_kvpager import (SOURCE, check, check_equal, directory, finish, replay_load, run,
                         traces)
from lib_load import check_sums

SCARCE = ["--blocks", 8200, "--watermark", 0]


def compare_kinds(path, *options):
    """With the same memory: recompute, swap, whichever is cheaper."""
    host = ["--host-memory", "64GiB", "--preempt"]
    for kind, more in [("preemptions_recompute", []), ("preemptions_swap", [*host, "swap"]),
                       ("preemptions_swap", [*host, "cheaper"])]:
        found = replay_load(path, *options, *more)
        check_sums(found, path, options, more)
        check(found[kind] > 0, path, options, more, "no preemption")


def check_door():
    """More requests at once than the scheduler takes: those that wait before its door do so in
    order, and count as waiting."""
    n = 140000
    with directory() as folder:
        path = os.path.join(folder, "many.csv")
        with open(path, "w", encoding="utf-8") as file:
            file.write("TIMESTAMP,ContextTokens,GeneratedTokens\n")
            for _ in range(n):
                file.write("2023-11-16 18:15:46.68,5,2\n")
        found = replay_load(path, "--step-ns", 1000000, "--prompt-token-ns", 0, "--max-running",
                            1000, "--block-tokens", 8, "--blocks", 5000)
    check_sums(found, "door")
    # Each step decodes for those that were admitted in the step before; all end with two steps.
    check_equal(found["steps"], 2 * n // 1000, "door")
    check_equal(found["end_to_end_ns"]["max"], 2 * n * 1000, "door")
    check_equal(found["timeline"][0]["arrived"], n, "door")


def main():
    check_door()
    bundled = os.path.join(SOURCE, "data", "mixed-small.jsonl")
    found = replay_load(bundled)
    check_sums(found, "bundled")
    check_equal(found["requests"], 1200, "bundled")
    check(found["hit_ratio"] > 0.8, "bundled", found["hit_ratio"])
    compare_kinds(bundled, "--blocks", 5200, "--watermark", 0)
    again = [run("replay", "--json", "--no-measure", bundled).stdout for _ in range(2)]
    check_equal(again[0] == again[1], True, "the same bytes twice")
    if traces():
        path = os.path.join(traces(), "mooncake_conversation.jsonl")
        found = replay_load(path)
        check_sums(found, "conversation")
        check_equal([found["finished"], found["rejected"]], [12031, 0], "conversation")
        compare_kinds(path, *SCARCE)
        found = replay_load(path, "--blocks", 2000)
        check_sums(found, "conversation, far too little memory")
        check(found["rejected_by_reason"]["prompt_too_long"] > 0, "rejected")
        path = os.path.join(traces(), "azure_2023_conv.csv")
        compare_kinds(path, "--speedup", 4, "--blocks", 1000, "--watermark", 0)
    else:
        print("the real traces are not there: replayed without them")
    finish()


main()
