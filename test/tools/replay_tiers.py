"""A host tier never costs hits when requests come one after the other: over generated and bundled
traces, models with windows too, for sizes of both tiers. And the two ends are known: a host that
keeps nothing changes nothing, one that keeps everything hits what an unlimited cache hits.
"""

import itertools
import json
import os
import random

from lib_kvpager import SOURCE, check, check_equal, directory, finish, mooncake, replay, replay_load, run, traces

COUNTS = ["requests", "rejected", "hit_tokens", "block_hits", "evictions", "peak_held_blocks"]


def generate(folder, profile, n_requests, seed):
    path = os.path.join(folder, f"{profile}-{seed}.jsonl")
    done = run("gen", "--profile", profile, "--requests", n_requests, "--seed", seed, "-o", path)
    check_equal(done.returncode, 0, "gen", profile, done.stderr)
    return path


def tree(folder, seed, n_requests):
    """Requests along the branches of a small tree, of up to 12 blocks of 16 tokens."""
    draw = random.Random(seed)
    path = os.path.join(folder, f"tree-{seed}.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        for i in range(n_requests):
            node, ids = draw.randint(1, 3), []
            for _ in range(draw.randint(1, 12)):
                node = node * 3 + draw.choice([0, 0, 1, 2])
                ids.append(node)
            file.write(mooncake(i, len(ids) * 16 - draw.choice([0, 0, 5, 15]), draw.randint(0, 12),
                                ids))
    return path


def compare(path, device, hosts, *options):
    """Gives how many hits the largest host adds."""
    one = replay(path, "--blocks", device, *options)
    check_equal((one["host_blocks"], one["host_hit_tokens"], one["host_evictions"]), (0, 0, 0))
    off = replay(path, "--blocks", device, "--host-blocks", 50, "--keep-evicted", "off", *options)
    for name in COUNTS:
        check_equal(off[name], one[name], path, device, options, "--keep-evicted off", name)
    two = one
    for host in hosts:
        two = replay(path, "--blocks", device, "--host-blocks", host, *options)
        what = (os.path.basename(path), device, host, *options)
        check(two["hit_tokens"] >= one["hit_tokens"], *what, "fewer hits with a host:",
              two["hit_tokens"], one["hit_tokens"])
        check(two["hit_tokens"] - two["host_hit_tokens"] <= two["hit_tokens"], *what)
        check_equal((two["requests"], two["rejected"]), (one["requests"], one["rejected"]), *what)
        check(two["host_hit_tokens"] > 0 or two["hit_tokens"] == one["hit_tokens"], *what)
    return two["hit_tokens"] - one["hit_tokens"]


def unlimited(path, device, enough, *options):
    """Everything that is evicted is kept in `enough` blocks."""
    two = replay(path, "--blocks", device, "--host-blocks", enough, *options)
    every = replay(path, "--blocks", enough, *options)
    check_equal((two["host_evictions"], every["evictions"]), (0, 0), path)
    if two["rejected"] == every["rejected"]:
        check_equal(two["hit_tokens"], every["hit_tokens"], path, device, *options,
                    "an unlimited host")
    return two["hit_tokens"]


def config(folder, n_full, n_windowed, window):
    path = os.path.join(folder, f"{n_full}-{n_windowed}-{window}.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"model_type": "llama", "hidden_size": 64, "intermediate_size": 64,
                   "num_attention_heads": 1, "num_hidden_layers": n_full + n_windowed,
                   "vocab_size": 64, "sliding_window": window, "layer_types":
                   ["full_attention"] * n_full + ["sliding_attention"] * n_windowed}, file)
    return path


def check_trees(folder):
    gained = 0
    for seed, units in itertools.product(range(1, 3), ([], ["--unit-tokens", 4])):
        path = tree(folder, seed, 80)
        options = ["--trace-block", 16, *units]
        for device in (15, 25, 60):
            gained += compare(path, device, [1, 7, 100], *options)
        unlimited(path, 20, 1000, *options)
    check(gained > 500, "the host was of no use", gained)


def check_choices(folder):
    """What the host does with evicted content is told, in both kinds of replay."""
    path = tree(folder, 9, 5)
    for choice, kept in (("off", (False, False)), ("on", (True, False)), ("once", (True, True))):
        for how in (replay, replay_load):
            told = how(path, "--trace-block", 16, "--blocks", 30, "--host-blocks", 30,
                       "--keep-evicted", choice)
            check_equal((told["keep_evicted"], told["keep_evicted_once"]), kept, choice, how)


def check_windows(folder):
    gained = 0
    for seed, (full, windowed, window) in itertools.product(
            (4, 5), ((1, 1, 20), (1, 3, 50), (0, 2, 33))):
        path = tree(folder, seed, 60)
        options = ["--trace-block", 16, "--model-config", config(folder, full, windowed, window), "--retain-tokens", "off"]
        for device in (60, 110):
            gained += compare(path, device, [5, 40, 200], *options)
        unlimited(path, 70, 2500, *options)
    check(gained > 500, "the host was of no use", gained)


def check_workloads(folder):
    for profile, seed in (("chat", 1), ("agent", 2), ("rag", 3)):
        path = generate(folder, profile, 24, seed)
        options = ["--block-tokens", 64, "--output-tokens", "off"]
        compare(path, 700, [500], *options)
        unlimited(path, 700, 6000, *options)


def check_traces():
    """The bundled trace and, where they are, real ones; few requests, for the checks of a debug
    build audit the cache after each call."""
    folder, options = traces(), ["--block-tokens", 512, "--output-tokens", "off", "--limit", 60]
    paths = [os.path.join(SOURCE, "data", "mixed-small.jsonl")]
    if folder is not None:
        paths += [os.path.join(folder, name) for name in
                  ("mooncake_conversation.jsonl", "mooncake_synthetic.jsonl")]
    for path in filter(os.path.exists, paths):
        for device in (300, 600):
            compare(path, device, [200], *options)
        unlimited(path, 300, 6000, *options)


def main():
    with directory() as folder:
        check_trees(folder)
        check_choices(folder)
        check_windows(folder)
        check_workloads(folder)
        check_traces()
    finish()


main()
