"""Replays random traces under load, with every means of preemption and little memory: all requests
finish, and the figures agree with each other."""

import os
import random

from lib_kvpager import check, directory, finish, mooncake, replay_load
from lib_load import check_sums

# blocks of 8 tokens, options; the longest request needs 21 of them
OPTIONS = [
    (22, []),
    (24, ["--watermark", 0, "--chunk-tokens", 20]),
    (30, ["--watermark", 0, "--host-blocks", 12, "--preempt", "swap"]),
    (30, ["--watermark", 0, "--host-blocks", 60, "--preempt", "cheaper", "--copy-token-ns", 900]),
    (30, ["--host-blocks", 60, "--swap-ahead", "--watermark", "0.1"]),
    (30, ["--host-blocks", 60, "--keep-evicted", "off", "--preempt", "swap", "--watermark", 0]),
    (26, ["--max-running", 3, "--step-tokens", 40, "--max-passed-over", 0]),
    (40, ["--no-prefix-cache", "--speedup", 5, "--max-tries", 1]),
    (2000, []),
    (2000, ["--wait-for-prefix"]),
    (200, ["--reclaim", 4]),
    (30, ["--reclaim", 1, "--host-blocks", 60, "--preempt", "swap"]),
    (30, ["--wait-for-prefix", "--chunk-tokens", 9, "--host-blocks", 60, "--preempt", "swap"]),
]


def random_tree(path, seed):
    """Requests along the branches of a small tree of ids, several at a time."""
    draw = random.Random(seed)
    with open(path, "w", encoding="utf-8") as file:
        for i in range(70):
            node, ids = 1, []
            for _ in range(draw.randint(1, 7)):
                node = node * 2 + draw.randint(0, 1)
                ids.append(node)
            length = len(ids) * 16 - draw.choice([0, 0, 1, 7, 15])
            file.write(mooncake(i // 3 * 8, length, draw.choice([0, 1, 2, 13, 30, 55]), ids))


def main():
    kinds = {"preemptions_recompute": 0, "preemptions_swap": 0, "host_tokens": 0, "evictions": 0,
             "lost_tokens": 0, "left_out": 0}
    with directory() as folder:
        path = os.path.join(folder, "tree")
        for seed in range(1, 4):
            random_tree(path, seed)
            for blocks, options in OPTIONS:
                found = replay_load(path, "--trace-block", 16, "--block-tokens", 8, "--blocks",
                                    blocks, "--step-ns", 500000, "--prompt-token-ns", 4000,
                                    "--context-token-ns", 100, *options)
                check_sums(found, seed, blocks, options)
                check(found["peak_held_blocks"] <= blocks, seed, blocks, options, "peak")
                check(found["time_to_first_token_ns"]["p50"] >= found["queue_ns"]["p50"], seed)
                for kind in kinds:
                    kinds[kind] += found[kind]
    print(kinds)
    for kind, n in kinds.items():
        check(n > 0, "the traces show no", kind)
    finish()


main()
