"""Replays generated workloads and compares every count with the simulation's."""

import os
import random

from lib_curve import token_trace
from lib_kvpager import check_equal, directory, finish, mooncake, replay, run
from lib_simulation import Simulation, read_jsonl


def compare(path, block_tokens, blocks, output=True, trace_block=512, prefix_cache=True, limit=None):
    options = ["--block-tokens", block_tokens, "--blocks", blocks, "--trace-block", trace_block,
               "--output-tokens", "on" if output else "off"]
    options += [] if prefix_cache else ["--no-prefix-cache"]
    options += ["--limit", limit] if limit else []
    found = replay(path, *options)
    expected = Simulation(block_tokens, blocks, prefix_cache).replay(
        read_jsonl(path, trace_block)[:limit], output)
    for key, value in expected.items():
        check_equal(found[key], value, os.path.basename(path), options, key)
    return expected


def generate(folder, profile, n_requests, seed):
    path = os.path.join(folder, f"{profile}-{seed}.jsonl")
    done = run("gen", "--profile", profile, "--requests", n_requests, "--seed", seed, "-o", path)
    check_equal(done.returncode, 0, "gen", profile, done.stderr)
    return path


def random_tree(folder, seed):
    """Requests along the branches of a small tree of ids: many hits, many evictions, prefixes
    whose middle is evicted while their end is still cached, equal times."""
    draw = random.Random(seed)
    path = os.path.join(folder, f"tree-{seed}.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        for i in range(80):
            node, ids = 1, []
            for _ in range(draw.randint(1, 7)):
                node = node * 2 + draw.randint(0, 1)
                ids.append(node)
            length = len(ids) * 16 - draw.choice([0, 0, 1, 7, 15])
            file.write(mooncake(i // 3, length, draw.randint(0, 20), ids))
    return path


def units(folder):
    """Where nothing is evicted, units smaller than the block hit what blocks of that size would."""
    gained = 0
    for seed in range(1, 4):
        path = token_trace(folder, seed)
        for block_tokens, unit_tokens in [(16, 4), (16, 1), (8, 2), (6, 3)]:
            found = replay(path, "--blocks", 9999, "--block-tokens", block_tokens, "--unit-tokens",
                           unit_tokens)
            expected = replay(path, "--blocks", 9999, "--block-tokens", unit_tokens)
            check_equal(found["unit_tokens"], unit_tokens, path)
            check_equal(found["hit_tokens"], expected["hit_tokens"], path, block_tokens, unit_tokens)
            whole = replay(path, "--blocks", 9999, "--block-tokens", block_tokens)
            gained += found["hit_tokens"] - whole["hit_tokens"]
    check_equal(gained > 500, True, "units gain nothing", gained)


def main():
    with directory() as folder:
        units(folder)
        evictions = 0
        for seed in range(1, 5):
            path = random_tree(folder, seed)
            for block_tokens, blocks in [(16, 12), (16, 9), (8, 17), (4, 40), (1, 150), (2, 57)]:
                counts = compare(path, block_tokens, blocks, trace_block=16, output=seed % 2 == 0)
                evictions += counts["evictions"]
            compare(path, 8, 30, trace_block=16, prefix_cache=False)
            compare(path, 16, 5, trace_block=16)
        check_equal(evictions > 1000, True, "the traces evict too little to show anything", evictions)
        for profile in ["chat", "agent", "rag", "mixed"]:
            path = generate(folder, profile, 25, 11)
            compare(path, 128, 150, output=False)
            compare(path, 64, 300, limit=6)
    finish()


main()
