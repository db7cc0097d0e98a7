"""Bytes and speed of recordings: bench_recording.py KVPAGER MOONCAKE_TRACE

Each id of the trace is 32 blocks of 16 tokens. Processor time of `kvpager events check` is that of reading."""

from __future__ import annotations

import hashlib
import json
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

from kvpager.record import Recorder


def main() -> None:
    kvpager, trace = sys.argv[1:]
    n = 0
    with tempfile.TemporaryDirectory(prefix="kvpager-") as folder:
        path, names, spent = pathlib.Path(folder) / "bench.kvprec", dict[int, list[bytes]](), 0.0
        with Recorder(path, block_tokens=16) as recorder, open(trace, encoding="utf-8") as lines:
            for line in lines:
                request = json.loads(line)
                hashes = list[bytes]()
                for one in request["hash_ids"]:
                    hashes += names.setdefault(one, [hashlib.sha256(b"%d %d" % (one, i)).digest() for i in range(32)])
                hashes = hashes[:request["input_length"] // 16]
                n += len(hashes)
                began = time.process_time()
                recorder.add(request["timestamp"] * 1000, request["input_length"], request["output_length"], hashes,
                             cached_tokens=request["input_length"] // 3, first_us=200_000 + n % 99_991,
                             last_us=3_000_000 + n % 999_983)
                spent += time.process_time() - began
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        subprocess.run([kvpager, "events", "check", path], check=True, stdout=subprocess.DEVNULL)
        read = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
        print(f"{n} block hashes: {path.stat().st_size / n:.3f} bytes each; written {n / spent / 1e6:.1f} million a "
              f"second, read {n / max(read, 1e-3) / 1e6:.0f} million a second")


if __name__ == "__main__":
    main()
