#!/usr/bin/env python3
"""ARC and S3-FIFO of `kvpager mrc` beside libCacheSim's, which know plain blocks only.

    python3 -m venv venv && venv/bin/pip install libcachesim==0.3.5
    venv/bin/python bench/policies.py build/release/kvpager [SEED...]

In these traces each request is one block, so no block continues another and the two must agree.
Prints hits of both for each trace and size; status 1 if they differ. bench/TRACES.md has figures.
"""

import json
import os
import random
import subprocess
import sys
import tempfile

import libcachesim

POLICIES = {"lru": libcachesim.LRU, "arc": libcachesim.ARC, "s3fifo": libcachesim.S3FIFO}
SIZES = [10, 20, 50, 100, 300, 1000, 3000]


def blocks(kind, seed, n=60000):
    """Ids in the order of their use."""
    draw = random.Random(seed)
    weights = [1 / (rank + 1) ** 0.9 for rank in range(5000)]
    zipf = draw.choices(range(5000), weights, k=n)
    if kind == "zipf":
        return zipf
    if kind == "scans":  # and now and then blocks that come once
        return [n + i if i // 500 % 4 == 0 else block for i, block in enumerate(zipf)]
    return [block + i // 10000 * 3000 for i, block in enumerate(zipf)]  # "drift"


def ours(command, ids):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", delete=False) as file:
        for i, block in enumerate(ids):
            print(json.dumps({"timestamp": i, "input_length": 512, "output_length": 0,
                              "hash_ids": [block]}), file=file)
    done = subprocess.run([command, "mrc", "--json", "--block-tokens", "512", "--policy",
                           "lru,arc,s3fifo", "--sizes", ",".join(map(str, SIZES)), "--time-unit",
                           "ms", file.name], check=True, capture_output=True)
    os.unlink(file.name)
    # Of a prompt that is hit as a whole the last token is computed.
    return {point["blocks"]: {"lru": point["hit_tokens"] // 511,
                              "arc": point["arc_hit_tokens"] // 511,
                              "s3fifo": point["s3fifo_hit_tokens"] // 511}
            for point in json.loads(done.stdout)["sizes"]}


def theirs(make, ids, size):
    cache, request, hits = make(cache_size=size), libcachesim.Request(), 0
    request.obj_size = 1
    for block in ids:
        request.obj_id = block + 1
        hits += cache.get(request)
    return hits


def main():
    command, seeds = sys.argv[1], [int(word) for word in sys.argv[2:]] or [1, 2]
    differ = 0
    for seed in seeds:
        for kind in ("zipf", "scans", "drift"):
            ids = blocks(kind, seed)
            found = ours(command, ids)
            for size in SIZES:
                row = []
                for policy, make in POLICIES.items():
                    other = theirs(make, ids, size)
                    differ += found[size][policy] != other
                    row.append(f"{policy} {found[size][policy]} {other}")
                print(f"seed {seed} {kind:6} {size:6} blocks: kvpager, libCacheSim:", ", ".join(row))
    print(f"{differ} of {len(seeds) * 3 * len(SIZES) * len(POLICIES)} differ")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
