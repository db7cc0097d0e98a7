"""Time to the first token in a real vLLM: computed, and brought back by KvpagerConnector.

    make engines-bench                       or, in that environment:
    python python/bench/bench_engine.py [--rounds N] [--lengths 300,1200,4000] [--threads 1,2]

vLLM's CPU back end with SmolLM2-135M in f32. Every round asks for a new prompt of each length, once in
each way, so that all ways see the same machine:

alone   computed by vLLM without kvpager
kept    vLLM itself still has it: no other way can be sooner
miss    computed beside KvpagerConnector, which looks for it in vain and keeps it
host    vLLM has lost it, host memory has it
disk    the next process on the same directory, past the page cache
redis   another process, over one Redis on this machine

With one thread, the engine is bound to one core. Nothing is asserted about time; aims are printed, and
whether they are met. The figures are those of the engine within the process: no HTTP."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tests"))

BLOCK, POOL = 128, 44  # tokens of a block; blocks of vLLM's own pool
TOKEN_BYTES = 30 * 3 * (64 + 64) * 4  # layers, heads, K and V, f32
AIMS = {"host": 15, "disk": 10, "redis": 5}  # times sooner, at 1,200 tokens
SLOWER = 1.05  # of the 95th percentile, at most


# ---------------------------------------------------------------------------------- an engine


def child(reply: int, model: str, settings: dict[str, Any] | None) -> None:
    """A vLLM that answers lines of its standard input: ["first", seed, tokens], ["forget"], ["settle"]."""
    from vllm import LLM, SamplingParams

    more: dict[str, Any] = {} if settings is None else {"kv_transfer_config": {
        "kv_connector": "KvpagerConnector", "kv_connector_module_path": "kvpager.vllm",
        "kv_role": "kv_both", "kv_connector_extra_config": settings}}
    llm = LLM(model, skip_tokenizer_init=True, dtype="float32", max_model_len=POOL * BLOCK - 2 * BLOCK,
              num_gpu_blocks_override=POOL, max_num_seqs=1, disable_log_stats=True,
              enforce_eager=True, **more)
    wanted = SamplingParams(temperature=0, max_tokens=1, detokenize=False, ignore_eos=True)

    def ask(seed: int, n_tokens: int) -> list[float]:
        rng = random.Random(seed)
        prompt: Any = {"prompt_token_ids": [rng.randrange(100, 40000) for _ in range(n_tokens)]}
        began = time.monotonic()
        got = llm.generate([prompt], wanted, use_tqdm=False)[0]
        return [time.monotonic() - began, got.num_cached_tokens, got.outputs[0].token_ids[0]]

    def settle() -> bool:
        """Wait until what is kept is written."""
        from vllm.distributed.kv_transfer import get_kv_transfer_group

        get_kv_transfer_group()._mover.settle(120)
        return True

    with os.fdopen(reply, "w", encoding="utf-8") as out:
        print(json.dumps(ask(1, 300)), file=out, flush=True)  # everything is made by then
        for line in sys.stdin:
            call, *arguments = json.loads(line)
            if call == "first":
                told: Any = ask(*arguments)
            elif call == "settle":
                told = settle()
            else:
                told = llm.reset_prefix_cache()
            print(json.dumps(told), file=out, flush=True)


class Engine:
    """Such a process; ends with the block."""

    def __init__(self, model: pathlib.Path, threads: int, settings: dict[str, Any] | None) -> None:
        reading, writing = os.pipe()
        cores = sorted(os.sched_getaffinity(0))
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--child", str(writing), str(model), json.dumps(settings)],
            env={**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1",
                 "VLLM_LOGGING_LEVEL": "WARNING", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
                 "OMP_NUM_THREADS": str(threads)},
            stdin=subprocess.PIPE, stdout=self.log, stderr=subprocess.STDOUT, text=True,
            pass_fds=[writing],
            preexec_fn=lambda: os.sched_setaffinity(0, cores[:threads]))
        os.close(writing)
        self.replies = os.fdopen(reading, encoding="utf-8")

    def _reply(self) -> Any:
        line = self.replies.readline()
        if not line:
            self.log.seek(0)
            raise SystemExit(f"an engine ended:\n{self.log.read()[-6000:].decode(errors='replace')}")
        return json.loads(line)

    def call(self, *what: Any) -> Any:
        assert self.process.stdin is not None
        print(json.dumps(what), file=self.process.stdin, flush=True)
        return self._reply()

    def __enter__(self) -> Engine:
        self._reply()
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(300)
        self.replies.close()
        self.log.close()


# ---------------------------------------------------------------------------------- measuring


class Times:
    """{(way, tokens): [seconds]}. Answers must be those of vLLM alone, and as cached as they should."""

    def __init__(self) -> None:
        self.all: dict[tuple[str, int], list[float]] = {}
        self._first: dict[int, float] = {}

    def take(self, way: str, n_tokens: int, seed: int, told: list[float]) -> None:
        seconds, cached, token = told
        want = 0 if way in ("alone", "miss") else (n_tokens - 1) // BLOCK * BLOCK
        assert cached == want, f"{way}, {n_tokens} tokens: {cached} were cached, not {want}"
        assert self._first.setdefault(seed, token) == token, f"{way}, {n_tokens}: another token"
        self.all.setdefault((way, n_tokens), []).append(seconds)


def measure(model: pathlib.Path, threads: int, lengths: list[int], rounds: int,
            place: pathlib.Path, url: str | None) -> Times:
    times = Times()
    asked = [(length, 1000 * length + i) for i in range(rounds) for length in lengths]
    directory = f"file:{place}?size=16GiB"
    both = [directory] if url is None else [directory, url]
    with Engine(model, threads, None) as alone:
        with Engine(model, threads, {"host_memory": "1GiB", "store": both}) as writer:
            for length, seed in asked:
                times.take("alone", length, seed, alone.call("first", seed, length))
                times.take("kept", length, seed, alone.call("first", seed, length))
                times.take("miss", length, seed, writer.call("first", seed, length))
                writer.call("settle")
                writer.call("forget")
                times.take("host", length, seed, writer.call("first", seed, length))
                alone.call("forget")
        with contextlib.ExitStack() as readers:
            ways = {"disk": directory} if url is None else {"disk": directory, "redis": url}
            engines = {way: readers.enter_context(
                Engine(model, threads, {"host_memory": "1GiB", "store": store, "deadline": 30}))
                       for way, store in ways.items()}
            for length, seed in asked:
                times.take("alone", length, seed, alone.call("first", seed, length))
                alone.call("forget")
                for way, engine in engines.items():
                    times.take(way, length, seed, engine.call("first", seed, length))
    return times


def percentile(values: list[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def report(threads: int, lengths: list[int], times: Times) -> list[dict[str, Any]]:
    rows = []
    print(f"\n{threads} thread{'s' if threads > 1 else ''}; ms to the first token\n")
    print(f"{'tokens':>6}  {'way':<6}{'median':>9}{'least':>9}{'most':>9}{'p95':>9}"
          f"{'tokens/s':>10}{'sooner':>8}  rounds")
    for length in lengths:
        computed = statistics.median(times.all["alone", length])
        for way in ("alone", "kept", "miss", "host", "disk", "redis"):
            took = times.all.get((way, length))
            if took is None:
                continue
            row: dict[str, Any] = {"threads": threads, "tokens": length, "way": way, "rounds": len(took),
                                   "median_s": statistics.median(took), "least_s": min(took),
                                   "most_s": max(took), "p95_s": percentile(took, 0.95)}
            row["sooner"] = computed / row["median_s"]
            rows.append(row)
            print(f"{length:>6}  {way:<6}" + "".join(f"{1000 * row[name]:>9.1f}" for name in (
                "median_s", "least_s", "most_s", "p95_s")) +
                f"{length / row['median_s']:>10.0f}{row['sooner']:>8.1f}  {len(took)}")
    return rows


def aims(rows: list[dict[str, Any]]) -> None:
    print()
    for row in rows:
        least = AIMS.get(row["way"])
        if least is not None and row["tokens"] == 1200:
            print(f"aim: {row['way']} at 1,200 tokens, {row['threads']} threads: at least {least} "
                  f"times sooner; {row['sooner']:.1f}: {'met' if row['sooner'] >= least else 'not met'}")
    p95 = {(row["threads"], row["tokens"], row["way"]): row["p95_s"] for row in rows}
    worst = max((took / p95[threads, tokens, "alone"], way, tokens, threads)
                for (threads, tokens, way), took in p95.items() if way != "alone")
    print(f"aim: p95 never more than 5 % above computing; the worst is {worst[1]} at {worst[2]} tokens, "
          f"{worst[3]} threads: {100 * (worst[0] - 1):+.1f} %: "
          f"{'met' if worst[0] <= SLOWER else 'not met'}")


def processor() -> str:
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def numbers(text: str) -> list[int]:
    return [int(one) for one in text.split(",")]


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        child(int(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4]))
        return
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--lengths", type=numbers, default=[300, 1200, 4000])
    parser.add_argument("--threads", type=numbers, default=sorted({1, cores}))
    parser.add_argument("--place", help="a directory on the disk to measure; it must be empty")
    parser.add_argument("--json", help="a file for all figures")
    given = parser.parse_args()
    from engine_life import model_folder
    from engine_server import redis, redis_program, without_redis

    model, rows = model_folder(), []
    load = os.getloadavg()[0]
    print(f"{processor()}, {cores} cores; load {load:.1f} at the start"
          f"{', beside other work' if load > 0.5 else ''}; SmolLM2-135M in f32, "
          f"{TOKEN_BYTES} bytes of KV a token")
    for threads in given.threads:
        with contextlib.ExitStack() as stack:
            made = stack.enter_context(tempfile.TemporaryDirectory(
                dir=given.place or pathlib.Path(sys.prefix).parent, prefix="bench-engine-"))
            place, url = pathlib.Path(made), None
            if redis_program() is None:
                print("no figures for Redis: there is no redis-server (Debian: redis-tools)")
            else:
                url = stack.enter_context(redis(place, "8gb"))
                reason = without_redis(url)
                if reason is not None:
                    print(f"no figures for Redis: {reason}")
                    url = None
            times = measure(model, threads, given.lengths, given.rounds, place / "kv", url)
            rows += report(threads, given.lengths, times)
    aims(rows)
    if given.json:
        pathlib.Path(given.json).write_text(json.dumps(
            {"processor": processor(), "cores": cores, "load": load, "bytes_a_token": TOKEN_BYTES,
             "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
