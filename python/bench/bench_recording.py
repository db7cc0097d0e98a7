"""Bytes and speed of recordings: bench_recording.py KVPAGER [MOONCAKE_TRACE] [--day BLOCKS]

Each id of the trace is 32 blocks of 16 tokens. --day: so many block hashes of one engine's day, made up: 2,000
conversations at a time of 1 to 30 turns, each with 10 to 40 new blocks; the file is written every 2 s of that day, as a
recorder does. Processor time of `kvpager events check` is that of reading."""

from __future__ import annotations

import argparse
import hashlib
import json
import pathlib
import random
import resource
import subprocess
import tempfile
import time
from collections.abc import Iterator

from kvpager.record import Recorder

Asked = tuple[int, int, int, list[bytes]]  # us since 1970, input, output, block hashes


def of_trace(trace: str) -> Iterator[Asked]:
    names = dict[int, list[bytes]]()
    with open(trace, encoding="utf-8") as lines:
        for line in lines:
            request = json.loads(line)
            hashes = list[bytes]()
            for one in request["hash_ids"]:
                hashes += names.setdefault(one, [hashlib.sha256(b"%d %d" % (one, i)).digest() for i in range(32)])
            yield (request["timestamp"] * 1000, request["input_length"], request["output_length"],
                   hashes[:request["input_length"] // 16])


def of_day(n_blocks: int) -> Iterator[Asked]:
    draw, talks, n = random.Random(1), [list[bytes]() for _ in range(2000)], 0
    while n < n_blocks:
        at = draw.randrange(len(talks))
        if draw.randrange(30) == 0:
            talks[at] = []
        fresh = draw.randrange(10, 41)
        data = draw.randbytes(16 * fresh)
        talks[at] = talks[at][:900] + [data[i:i + 16] for i in range(0, len(data), 16)]
        n += len(talks[at])
        yield int(86400e6 * n / n_blocks), 16 * len(talks[at]) - 100, 100, talks[at]


def measure(kvpager: str, path: pathlib.Path, requests: Iterator[Asked], flush_us: int) -> None:
    n, n_requests, spent, flushed = 0, 0, 0.0, 0
    with Recorder(path, block_tokens=16) as recorder:
        for at_us, n_input, n_output, hashes in requests:
            n, n_requests = n + len(hashes), n_requests + 1
            began = time.process_time()
            recorder.add(at_us, n_input, n_output, hashes, cached_tokens=n_input // 3, first_us=200_000 + n % 99_991,
                         last_us=3_000_000 + n % 999_983)
            if flush_us and at_us - flushed >= flush_us:
                recorder.flush()
                flushed = at_us
            spent += time.process_time() - began
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run([kvpager, "events", "check", path], check=True)
    read = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    size, memory = path.stat().st_size, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{n} block hashes in {n_requests} requests: {size} bytes, {size / n:.3f} each; written "
          f"{n / spent / 1e6:.1f} million a second, read {n / max(read, 1e-3) / 1e6:.0f} million a second; "
          f"{memory} MiB with this program's own")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kvpager")
    parser.add_argument("trace", nargs="?")
    parser.add_argument("--day", type=int, metavar="BLOCKS")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kvpager-") as folder:
        if options.trace:
            measure(options.kvpager, pathlib.Path(folder) / "trace.kvprec", of_trace(options.trace), 0)
        if options.day:
            measure(options.kvpager, pathlib.Path(folder) / "day.kvprec", of_day(options.day), 2_000_000)


if __name__ == "__main__":
    main()
