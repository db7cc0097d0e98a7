"""What a call from Python costs over the same call from C, in one run.

    python bench_overhead.py [--library libkvpager.so] [--repeat N] [--json FILE] [--check]

C's side is timed by a small program that this script compiles against the same headers and links
with the library (--build, default ../../build/release), so both sides run the same code on the same
machine in turns: a batch of C, a batch of Python, and again. Printed are medians over the batches,
with the quartiles as the spread. --check: exit status 1 when a budget is exceeded.

Budgets: 150 ns for a call with scalars, 700 ns with arrays, 60 us for a decode step of 1,024
sequences in three calls (extend, metadata, commit).
"""

from __future__ import annotations

import argparse
import json
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import kvpager

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCALARS_NS, ARRAYS_NS, STEP_US = 150.0, 700.0, 60.0
BATCH, STEPS = 2000, 9
FIRST = "after other work"


class Row:
    """One call: the batches' times from C and from Python, ns for each call."""

    def __init__(self, name: str, kind: str) -> None:
        self.name, self.kind = name, kind
        self.c: list[float] = []
        self.python: list[float] = []


def quartiles(values: list[float]) -> tuple[float, float, float]:
    low, middle, high = statistics.quantiles(values, n=4)
    return low, middle, high


def timed(run: Callable[[], int]) -> float:
    """ns for each call of what `run` does; it gives how many calls it made."""
    start = time.perf_counter_ns()
    n = run()
    return (time.perf_counter_ns() - start) / n


# ------------------------------------------------------------------------------- Python's side


def make() -> tuple[kvpager.Cache, kvpager.Namespace]:
    cache = kvpager.Cache(n_blocks=262144, block_tokens=16, max_seqs=2048, max_seq_tokens=65536)
    return cache, cache.namespace("bench")


def python_cases() -> dict[str, tuple[str, Callable[[], float]]]:
    """{name: (kind, time one batch)}; names as in bench_overhead.c."""
    cache, ns = make()
    tokens = np.arange(64, dtype=np.int32)
    few = np.arange(4, dtype=np.int32)
    base = ns.open(tokens)
    base.commit(64)
    rounds = range(BATCH)

    def commit() -> float:
        seq = ns.open(np.arange(1000, 1000 + BATCH, dtype=np.int32))
        call = seq.commit

        def run() -> int:
            for i in rounds:
                call(i)
            return BATCH
        took = timed(run)
        seq.close()
        return took

    def append() -> float:
        seq = base.fork()
        call = seq.append

        def run() -> int:
            for i in rounds:
                call(i)
            return BATCH
        took = timed(run)
        seq.close()
        return took

    def truncate() -> float:
        seq = base.fork()
        call = seq.truncate

        def run() -> int:
            for _ in rounds:
                call(64)
            return BATCH
        took = timed(run)
        seq.close()
        return took

    def fork_close() -> float:
        call = base.fork

        def run() -> int:
            for _ in range(BATCH // 2):
                call().close()
            return BATCH
        return timed(run)

    def extend() -> float:
        seq = base.fork()
        call = seq.extend

        def run() -> int:
            for _ in rounds:
                call(few)
            return BATCH
        took = timed(run)
        seq.close()
        return took

    def open_close() -> float:
        """An open with its close: a call with an array, and one without."""
        call = ns.open

        def run() -> int:
            for _ in range(BATCH // 2):
                call(tokens).close()
            return BATCH // 2
        return timed(run)

    def slots() -> float:
        call, out = base.slots, np.empty(4, np.int64)

        def run() -> int:
            for _ in rounds:
                call(0, 4, out)
            return BATCH
        return timed(run)

    def info() -> float:
        call = base.info

        def run() -> int:
            for _ in rounds:
                call()
            return BATCH
        return timed(run)

    def retain() -> float:
        call = base.retain

        def run() -> int:
            for _ in rounds:
                call(0, 64, 0)
            return BATCH
        return timed(run)

    def row() -> float:
        call, out = base.row, np.empty(16, np.int32)

        def run() -> int:
            for _ in rounds:
                call(out)
            return BATCH
        return timed(run)

    def fresh_row() -> float:
        call = base.row

        def run() -> int:
            for _ in rounds:
                call()
            return BATCH
        return timed(run)

    def can_open() -> float:
        call = ns.can_open

        def run() -> int:
            for _ in rounds:
                call(tokens)
            return BATCH
        return timed(run)

    def plan() -> float:
        call, out = cache.plan_take, np.empty(16, kvpager.COPY_DTYPE)

        def run() -> int:
            for _ in rounds:
                call(out)
            return BATCH
        return timed(run)

    def match() -> float:
        call = ns.match

        def run() -> int:
            for _ in rounds:
                call(tokens)
            return BATCH
        return timed(run)

    pair = [ns.open(tokens), ns.open(tokens)]
    handles, counts = kvpager.handles_of(pair), np.array([64, 64], np.uint32)
    values = np.array([1, 2], np.int32)

    def commit_many() -> float:
        call = cache.commit_many

        def run() -> int:
            for _ in rounds:
                call(handles, counts)
            return BATCH
        return timed(run)

    def extend_many() -> float:
        call = cache.extend_many

        def run() -> int:
            for _ in rounds:
                call(handles, values)
            return BATCH
        took = timed(run)
        for seq in pair:
            seq.truncate(64)
        return took

    buffers = kvpager.CsrBuffers(8, 64, 1024)

    def csr() -> float:
        call = buffers.fill

        def run() -> int:
            for _ in rounds:
                call(cache, handles)
            return BATCH
        return timed(run)

    table = kvpager.DenseBuffers(8, 64, 128)

    def dense() -> float:
        call = table.fill

        def run() -> int:
            for _ in rounds:
                call(cache, handles)
            return BATCH
        return timed(run)

    return {"commit": ("scalars", commit), "append": ("scalars", append),
            "truncate": ("scalars", truncate), "fork, close": ("scalars", fork_close),
            "retain": ("scalars", retain), "info": ("scalars", info),
            "extend by 4": ("arrays", extend), "slots of 4": ("arrays", slots),
            "row": ("arrays", row), "row, fresh": ("arrays", fresh_row),
            "match of 64": ("arrays", match), "can_open of 64": ("arrays", can_open),
            "open of 64, close": ("arrays", open_close), "plan_take": ("arrays", plan),
            "commit_many of 2": ("arrays", commit_many),
            "extend_many of 2": ("arrays", extend_many), "csr of 2": ("arrays", csr),
            "dense of 2": ("arrays", dense)}


def other_cases() -> dict[str, Callable[[], object]]:
    """Calls that make arrays, which C has no like of: {name: one call}."""
    cache = kvpager.Cache(n_blocks=4096, block_tokens=16, max_seqs=64, host_blocks=4096,
                          max_events=1024)
    ns = cache.namespace("bench")
    seqs = [ns.open(np.arange(i, i + 64, dtype=np.int32)) for i in (0, 1000)]
    for seq in seqs:
        seq.commit(64)
    handles = kvpager.handles_of(seqs)
    had = kvpager.delta(cache, handles)
    idle = kvpager.Scheduler(kvpager.Cache(n_blocks=64, block_tokens=16))
    pool = kvpager.Cache(n_blocks=65536, block_tokens=16, max_seqs=16, max_seq_tokens=100000)
    busy, space = kvpager.Scheduler(pool, arena_tokens=2 ** 20), pool.namespace("bench")
    for i in range(8):
        busy.submit(space, np.arange(i, i + 64, dtype=np.int32), max_new_tokens=99000)
    sampled = np.ones(8, np.int32)

    def there_and_back() -> None:
        cache.swap_out(handles)
        cache.plan_take()
        cache.swap_in(handles)
        cache.plan_take()

    def decode() -> None:
        busy.finish(sampled[:busy.step().n_sampled])

    return {"events, 8 of them": lambda: cache.events(1, 8),
            "delta of 2": lambda: kvpager.delta(cache, handles, had.version, had.blocks),
            "cascade of 2": lambda: kvpager.cascade(cache, handles),
            "can_swap_out of 2": lambda: cache.can_swap_out(handles),
            "swap_out and swap_in of 2, both plans": there_and_back,
            "Scheduler.step, nothing to do": idle.step,
            "Scheduler.step and finish, 8 decode": decode}


def timed_others(repeat: int) -> dict[str, list[float]]:
    """us for each call, batch by batch."""
    times: dict[str, list[float]] = {}
    cases = other_cases()
    for _ in range(repeat):
        for name, call in cases.items():
            def run(call: Callable[[], object] = call) -> int:
                for _ in range(BATCH // 10):
                    call()
                return BATCH // 10
            times.setdefault(name, []).append(timed(run) / 1000)
    return times


class DecodeSteps:
    """n decoding sequences, of which each step is timed: extend, metadata, commit."""

    def __init__(self, n: int) -> None:
        self.cache, ns = make()
        seqs = []
        for i in range(n):
            seq = ns.open(np.arange(i * 100, i * 100 + 64 + i % 16, dtype=np.int32) % 2 ** 30)
            seq.commit(64 + i % 16)
            seqs.append(seq)
        self.handles = kvpager.handles_of(seqs)
        self.lengths = np.array([64 + i % 16 for i in range(n)], np.uint32)
        self.tokens = np.arange(n, dtype=np.int32)
        self.buffers = kvpager.CsrBuffers(n, n, n * 64)

    def run(self, steps: int) -> list[float]:
        """us for each."""
        cache, handles, tokens, lengths = self.cache, self.handles, self.tokens, self.lengths
        times = []
        for _ in range(steps):
            lengths += 1
            start = time.perf_counter_ns()
            cache.extend_many(handles, tokens)
            self.buffers.fill(cache, handles)
            cache.commit_many(handles, lengths)
            times.append((time.perf_counter_ns() - start) / 1000)
        return times


# ------------------------------------------------------------------------------- C's side


class CSide:
    """The compiled program: a line with a name in, a line with ns for each call out."""

    def __init__(self, library: pathlib.Path, folder: str) -> None:
        program = pathlib.Path(folder) / "bench_overhead"
        source = pathlib.Path(__file__).with_name("bench_overhead.c")
        subprocess.run(["cc", "-O2", "-std=c11", "-D_POSIX_C_SOURCE=200809L",
                        f"-I{ROOT / 'include'}", str(source), str(library), "-lm", "-o",
                        str(program)], check=True)
        self.process = subprocess.Popen([str(program), str(BATCH)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def ask(self, name: str) -> list[float]:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(name + "\n")
        self.process.stdin.flush()
        return [float(word) for word in self.process.stdout.readline().split()]

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def show(rows: list[Row], steps: dict[str, list[float]]) -> list[str]:
    """Prints the tables; gives what exceeds its budget."""
    over = []
    budgets = {"scalars": SCALARS_NS, "arrays": ARRAYS_NS}
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, "
          f"NumPy {np.__version__}, kvpager {kvpager.__version__}")
    print(f"\n{'ns a call':20} {'C':>8} {'Python':>8} {'over C':>8} {'quartiles':>17} "
          f"{'budget':>7}")
    for row in rows:
        # fork and close are two calls of one object each: their sum has two budgets.
        calls = 2 if row.name == "open of 64, close" else 1
        extra = [p - c for p, c in zip(row.python, row.c)]
        low, middle, high = quartiles(extra)
        budget = budgets[row.kind] + (SCALARS_NS if calls == 2 else 0)
        print(f"{row.name:20} {statistics.median(row.c):8.1f} "
              f"{statistics.median(row.python):8.1f} {middle:8.1f} {low:8.1f}{high:9.1f} "
              f"{budget:7.0f}{'' if middle <= budget else '  over'}")
        if middle > budget:
            over.append(row.name)
    print(f"\n{'us a decode step, 1,024 sequences':40} {'median':>8} {'quartiles':>17}")
    for name, times in steps.items():
        low, middle, high = quartiles(times)
        print(f"{name:40} {middle:8.1f} {low:8.1f}{high:9.1f}")
        if name == "Python, one after the other" and middle > STEP_US:
            over.append(name)
    return over


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", type=pathlib.Path,
                        default=ROOT / "build" / "release" / "libkvpager.a")
    parser.add_argument("--repeat", type=int, default=31)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    cases = python_cases()
    rows = [Row(name, kind) for name, (kind, _) in cases.items()]
    # In turns, too. Of the steps of a turn the first finds the processor's caches full of what the
    # other calls left there.
    steps: dict[str, list[float]] = {f"{side}, {when}": [] for when in ("one after the other", FIRST)
                                     for side in ("C", "Python")}
    decode = DecodeSteps(1024)
    with tempfile.TemporaryDirectory() as folder:
        c_side = CSide(options.library, folder)
        for _ in range(options.repeat):
            for row in rows:
                row.c += c_side.ask(row.name)
                row.python.append(cases[row.name][1]())
            for side, (first, *rest) in (("C", c_side.ask("decode step")),
                                         ("Python", decode.run(STEPS))):
                steps[f"{side}, {FIRST}"].append(first)
                steps[f"{side}, one after the other"] += rest
        c_side.close()
    over = show(rows, steps)
    others = timed_others(options.repeat)
    print(f"\n{'us a call that makes arrays':40} {'median':>8} {'quartiles':>17}")
    for name, times in others.items():
        low, middle, high = quartiles(times)
        print(f"{name:40} {middle:8.2f} {low:8.2f}{high:9.2f}")
    if options.json:
        report: dict[str, Any] = {row.name: {"c": row.c, "python": row.python} for row in rows}
        options.json.write_text(json.dumps({**report, **steps, **others}))
    for name in over:
        print(f"over its budget: {name}", file=sys.stderr)
    return 1 if over and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
