#!/usr/bin/env python3
"""The whole LRU curve of `kvpager mrc` beside libCacheSim's loop in C for one size, and for 13.

    python3 -m venv venv && venv/bin/pip install libcachesim==0.3.5
    venv/bin/python bench/curves.py build/release/kvpager mooncake_conversation.jsonl

kvpager reads the JSON and makes blocks of 16 tokens of it; libCacheSim reads the same blocks from a
binary trace that was made before. Prints medians of five of the processor time, in seconds, and
hits at each size. The two differ by a few hundredths of a point: libCacheSim takes each block as a
request of its own, kvpager a prompt as a whole. bench/TRACES.md has figures.
"""

import json
import os
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
import time

import libcachesim

BLOCK, RUNS = 16, 5
SIZES = [1000 << i for i in range(3, 16)]
RECORD = struct.Struct("<IQIq")  # oracleGeneral: time, id, size, next use


def write_binary(trace, to, trace_block=512):
    """Full blocks of the prompts, in order. Gives how many."""
    n, per_id = 0, trace_block // BLOCK
    with open(trace, encoding="utf-8") as lines, open(to, "wb") as out:
        for line in lines:
            request = json.loads(line)
            n_blocks = request["input_length"] // BLOCK
            ids = request["hash_ids"]
            out.write(b"".join(RECORD.pack(0, ids[i // per_id] * per_id + i % per_id + 1, 1, -1)
                               for i in range(n_blocks)))
            n += n_blocks
    return n


def used_by_children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def ours(command, trace):
    """Seconds, and hit ratios by size."""
    before = used_by_children()
    done = subprocess.run([command, "mrc", "--only-lru", "--json", "--block-tokens", str(BLOCK),
                           "--output-tokens", "off", "--sizes", ",".join(map(str, SIZES)), trace],
                          check=True, capture_output=True)
    seconds = used_by_children() - before
    points = json.loads(done.stdout)
    return seconds, {point["blocks"]: point["block_hits"] / points["blocks_looked_up"]
                     for point in points["sizes"]}


def theirs(binary, size):
    """The same of one size."""
    reader = libcachesim.TraceReader(binary, libcachesim.TraceType.ORACLE_GENERAL_TRACE)
    cache = libcachesim.LRU(cache_size=size)
    before = time.process_time()
    misses, _ = cache.process_trace(reader)
    return time.process_time() - before, 1 - misses


def main():
    command, trace = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as folder:
        binary = os.path.join(folder, "blocks.oracleGeneral.bin")
        n = write_binary(trace, binary)
        curve, all_sizes, by_size = [], [], {size: [] for size in SIZES}
        for _ in range(RUNS):  # in turn, as the machine may be busier now than then
            seconds, hits = ours(command, trace)
            curve.append(seconds)
            runs = {size: theirs(binary, size) for size in SIZES}
            all_sizes.append(sum(seconds for seconds, _ in runs.values()))
            for size, (seconds, _) in runs.items():
                by_size[size].append(seconds)
    print(f"{n:,} blocks looked up; medians of {RUNS}, seconds of the processor")
    print(f"kvpager mrc, all sizes   {statistics.median(curve):7.2f}")
    print(f"libCacheSim, 13 sizes    {statistics.median(all_sizes):7.2f}")
    print(f"{'blocks':>12} {'libCacheSim':>12} {'its hits':>9} {'kvpager':>9}")
    for size in SIZES:
        print(f"{size:12,} {statistics.median(by_size[size]):12.2f} {runs[size][1]:9.2%}"
              f" {hits.get(size, 0):9.2%}")


if __name__ == "__main__":
    main()
