"""vLLM's KV-cache manager and kvpager's behind the same interface, in one run.

    python bench_vllm.py [--repeat N]

Needs vllm (any install whose vllm.v1.core.kv_cache_manager can be imported; no GPU). Both managers
get vLLM's own Request objects, whose block hashes are made before the clock starts; the first row
has what they cost, and what kvpager's own hashes cost. Medians of --repeat rounds, in turns, with quartiles.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests"))

import numpy as np  # noqa: E402
import test_vllm  # noqa: E402

import kvpager  # noqa: E402
from kvpager.adapters.vllm import KVCacheManager  # noqa: E402

BLOCK, N_BLOCKS, MODEL_LEN = 16, 65536, 131072
N_RUNNING, PROMPT, SHORT = 256, 16384, 32


def timed(run: Callable[[], int]) -> float:
    """us for each call."""
    start = time.perf_counter_ns()
    n = run()
    return (time.perf_counter_ns() - start) / n / 1000


def lookups(manager: Any, request: Any) -> float:
    def run() -> int:
        for _ in range(20):
            manager.get_computed_blocks(request)
        return 20
    return timed(run)


def first_lookups(manager: Any, requests: list[Any]) -> float:
    """Look up prompts that the manager sees for the first time."""
    def run() -> int:
        for request in requests:
            manager.get_computed_blocks(request)
        return len(requests)
    took = timed(run)
    for request in requests:
        manager.free(request)
    return took


def prompts(manager: Any, requests: list[Any]) -> float:
    """Look up, allocate and free a cached prompt."""
    def run() -> int:
        for request in requests:
            blocks, n = manager.get_computed_blocks(request)[:2]
            manager.allocate_slots(request, request.num_tokens - n, n, blocks)
            manager.free(request)
        return len(requests)
    return timed(run)


def decodes(manager: Any, running: list[Any]) -> float:
    """One decode step: a token for each running request."""
    def run() -> int:
        for request in running:
            manager.allocate_slots(request, 1)
        return len(running)
    return timed(run)


def hashings(parts: Any, request: Any) -> dict[str, float]:
    """us for each new block: vLLM's SHA-256, and the hash that kvpager makes of its tokens."""
    hasher = parts.utils.get_request_block_hasher(BLOCK, parts.hashing.sha256)
    tokens = np.array(request.all_token_ids, np.int32)
    root = kvpager.hash_root(BLOCK)

    def theirs() -> int:
        request.block_hashes.clear()
        made = hasher(request)
        request.block_hashes.extend(made)
        return len(made)

    return {"vLLM": timed(theirs),
            "kvpager": timed(lambda: len(kvpager.hash_units(tokens, BLOCK, root)))}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=31)
    options = parser.parse_args()
    try:
        parts = test_vllm.vllm_parts()
    except BaseException as error:  # pytest's Skipped
        print(f"skipped: {error}")
        return 0
    theirs = test_vllm.vllm_manager(parts, N_BLOCKS, BLOCK, MODEL_LEN)
    ours = KVCacheManager(N_BLOCKS, BLOCK, MODEL_LEN)
    managers = {"vLLM": theirs, "kvpager": ours}
    long = [test_vllm.vllm_request(parts, f"l{i}", range(PROMPT), BLOCK) for i in range(4)]
    running = [test_vllm.vllm_request(parts, f"r{i}", range(i * 100, i * 100 + 500 + i % 16), BLOCK)
               for i in range(N_RUNNING)]
    short = [test_vllm.vllm_request(parts, f"s{i}", range(SHORT), BLOCK) for i in range(64)]
    for manager in managers.values():
        for request in (long[0], short[0]):
            manager.allocate_slots(request, request.num_tokens)
            manager.free(request)
        for request in running:
            manager.allocate_slots(request, request.num_tokens)
    for request in running:
        request.num_computed_tokens = request.num_tokens
    times: dict[tuple[str, str], list[float]] = {}
    for turn in range(options.repeat):
        for name, us in hashings(parts, long[0]).items():
            times.setdefault(("hash a new block of 16 tokens", name), []).append(us)
        for request in running:
            request.append_output_token_ids(turn)
        for name, manager in managers.items():
            times.setdefault(("get_computed_blocks, 32 tokens, again", name), []).append(
                lookups(manager, short[0]))
            manager.free(short[0])
            times.setdefault(("get_computed_blocks, 32 tokens, a new request", name), []).append(
                first_lookups(manager, short))
            times.setdefault(("get_computed_blocks, 16,384 cached tokens", name), []).append(
                lookups(manager, long[0]))
            times.setdefault(("the same, allocate_slots and free", name), []).append(
                prompts(manager, long))
            times.setdefault(("allocate_slots, one token", name), []).append(
                decodes(manager, running))
        for request in running:
            request.num_computed_tokens += 1
    print(f"{'us a call, median (quartiles)':44}{'vLLM':>26}{'kvpager':>26}")
    for what in dict.fromkeys(what for what, _ in times):
        shown = []
        for name in managers:
            low, middle, high = statistics.quantiles(times[what, name], n=4)
            shown.append(f"{middle:10.2f} ({low:.2f}..{high:.2f})".rjust(26))
        print(f"{what:44}" + "".join(shown))
    return 0


if __name__ == "__main__":
    sys.exit(main())
