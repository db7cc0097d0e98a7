"""Hits of `kvpager replay` beside those of a real vLLM, request by request: PASS or FAIL.

    python -m kvpager.calibrate --model FOLDER [--kvpager COMMAND] [--blocks 20,40,80] [--requests 160]

It is a module of the package because the engine is: it runs where that vLLM is installed. For each
size of vLLM's pool a process of vLLM serves a seeded workload, one request at a time: conversations
that continue with vLLM's own answers, share heads, are asked again, and do not fit the pool together.
What vLLM reports as cached is compared with `kvpager replay --sequential --why` of the same tokens.

Three rules of vLLM differ, and only they may:

1. A block is hit from its allocation on, before it is computed. One request at a time never shows it.
2. What is computed again while it is cached, a prompt's last block above all, is kept twice.
3. One block of the pool is never used: N blocks of vLLM are N - 1.

`Pool` below is these rules in a few lines. PASS: for every request vLLM hits what `Pool` hits with rule
2, and the replay what `Pool` hits without it. The last sampled token has no KV, so the trace ends
before it. Not compared: time, several requests at once, preemption, more than one group of layers.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

BLOCK = 32  # tokens: the least that vLLM's attention on CPUs takes
MOST_TOKENS = 512  # of a prompt: half of the smallest pool and more
Served = tuple[list[int], list[int], int]  # prompt, answer, tokens that were cached
Ask = Callable[[list[int], int], tuple[list[int], int]]  # prompt, tokens to answer: answer, cached

# ------------------------------------------------------------------------------------- the workload


def workload(n: int, seed: int, ask: Ask) -> Iterator[Served]:
    """Eight conversations in turn. Each begins with one of three heads; some prompts end where a block
    does, and some are asked twice."""
    draw = random.Random(seed)

    def tokens(count: int) -> list[int]:
        return [draw.randrange(100, 40000) for _ in range(count)]

    heads = [tokens(count) for count in (64, 100, 150)]
    talks: list[list[int]] = [[] for _ in range(8)]
    again: list[int] | None = None
    for _ in range(n):
        if again is not None and draw.random() < 0.2:
            prompt, again = again, None
        else:
            talk = draw.choice(talks)
            prompt = (talk or draw.choice(heads)) + tokens(draw.randrange(5, 60))
            if draw.random() < 0.4:
                prompt += tokens(-len(prompt) % BLOCK)
            again = prompt
        answer, cached = ask(prompt, draw.choice([1, 2, 9, 17, 24]))
        yield prompt, answer, cached
        if again is not None:
            talk[:] = prompt + answer if len(prompt) + len(answer) < MOST_TOKENS - 80 else []


# ----------------------------------------------------------------------------------------- the rules


class Pool:
    """Blocks in the order in which they are taken, and what each holds: a prefix of tokens, or nothing.

    again: a prompt that is cached to its end computes its last block; else it computes a token, for which
    it needs a block for a moment. twice: what is computed while it is cached is kept a second time."""

    def __init__(self, blocks: int, again: bool, twice: bool) -> None:
        self.again, self.twice = again, twice
        self.free = list(range(blocks))
        self.holds: dict[int, bytes] = {}
        self.found: dict[bytes, dict[int, None]] = {}

    def take(self) -> int:
        block = self.free.pop(0)
        key = self.holds.pop(block, None)
        if key is not None:
            del self.found[key][block]
            if not self.found[key]:
                del self.found[key]
        return block

    def serve(self, prompt: list[int], answer: list[int]) -> int:
        """Tokens of the prompt that are hit. The answer is those tokens that have KV."""
        whole = prompt + answer
        keys = [repr(whole[:end]).encode() for end in range(BLOCK, len(whole) + 1, BLOCK)]
        n_hits = 0
        while n_hits < len(prompt) // BLOCK and keys[n_hits] in self.found:
            n_hits += 1
        to_the_end = n_hits > 0 and n_hits * BLOCK == len(prompt)
        if to_the_end and self.again:
            n_hits -= 1
        row = [next(iter(self.found[key])) for key in keys[:n_hits]]
        self.free = [block for block in self.free if block not in row]
        if to_the_end and not self.again:
            self.free.insert(0, self.take())
        for end in range(n_hits * BLOCK, len(whole), BLOCK):
            row.append(self.take())
            self.fill(row, end // BLOCK, keys)
        empty = [block for block in reversed(row) if block not in self.holds]
        self.free = empty + self.free + [block for block in reversed(row) if block in self.holds]
        return n_hits * BLOCK - (1 if to_the_end and not self.again else 0)

    def fill(self, row: list[int], i: int, keys: list[bytes]) -> None:
        """Block i of the row is computed, if it will be full."""
        if i >= len(keys):
            return
        if keys[i] in self.found and not self.twice:
            self.free.insert(0, row[i])
            row[i] = next(iter(self.found[keys[i]]))
            self.free = [block for block in self.free if block != row[i]]
            return
        self.holds[row[i]] = keys[i]
        self.found.setdefault(keys[i], {})[row[i]] = None


# ---------------------------------------------------------------------------------------- the two runs


def engine(model: str, blocks: int, requests: int, seed: int) -> None:
    """A process of vLLM: a JSON line a request."""
    from vllm import LLM, SamplingParams

    llm = LLM(model, skip_tokenizer_init=True, dtype="float32", max_model_len=MOST_TOKENS + 64,
              block_size=BLOCK, num_gpu_blocks_override=blocks, max_num_seqs=1, enforce_eager=True,
              enable_prefix_caching=True)

    def ask(prompt: list[int], n: int) -> tuple[list[int], int]:
        given: Any = {"prompt_token_ids": prompt}
        wanted = SamplingParams(temperature=0, max_tokens=n, detokenize=False, ignore_eos=True)
        got = llm.generate([given], wanted, use_tqdm=False)[0]
        return list(got.outputs[0].token_ids), int(got.num_cached_tokens or 0)

    for served in workload(requests, seed, ask):
        print("served", json.dumps(served), flush=True)


def run_engine(model: str, blocks: int, requests: int, seed: int) -> list[Served]:
    command = [sys.executable, "-m", "kvpager.calibrate", "--engine", "--model", model,
               "--blocks", str(blocks), "--requests", str(requests), "--seed", str(seed)]
    environment = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "WARNING",
                   "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    done = subprocess.run(command, env={**environment, **os.environ}, text=True, capture_output=True)
    if done.returncode != 0:
        raise SystemExit(f"vLLM ended with {done.returncode}:\n{done.stderr[-4000:]}")
    lines = [line[7:] for line in done.stdout.splitlines() if line.startswith("served ")]
    return [(prompt, answer, cached) for prompt, answer, cached in map(json.loads, lines)]


def run_replay(command: str, blocks: int, served: list[Served]) -> list[int]:
    """Tokens hit, by request."""
    with tempfile.TemporaryDirectory() as folder:
        trace, why = pathlib.Path(folder, "trace.jsonl"), pathlib.Path(folder, "why.jsonl")
        with trace.open("w", encoding="utf-8") as file:
            for i, (prompt, answer, _) in enumerate(served):
                print(json.dumps({"arrival_time_ns": i * 10**9, "input_toks": len(prompt),
                                  "output_toks": len(answer) - 1, "input_tok_ids": prompt,
                                  "output_tok_ids": answer[:-1]}), file=file)
        done = subprocess.run([command, "replay", "--sequential", "--block-tokens", str(BLOCK),
                               "--blocks", str(blocks), "--why", str(why), str(trace)],
                              text=True, capture_output=True)
        if done.returncode != 0:
            raise SystemExit(f"{command} replay ended with {done.returncode}:\n{done.stderr}")
        with why.open(encoding="utf-8") as file:
            return [int(json.loads(line)["hit_tokens"]) for line in file]


# --------------------------------------------------------------------------------------- the comparison


def differences(name: str, found: list[int], expected: list[int]) -> list[str]:
    if len(found) != len(expected):
        return [f"{name} served {len(found)} requests, expected {len(expected)}"]
    return [f"request {i}: {name} hits {mine} tokens, expected {right}"
            for i, (mine, right) in enumerate(zip(found, expected)) if mine != right]


def compare(command: str, usable: int, served: list[Served], engine: str = "vLLM",
            twice: bool = True) -> bool:
    """One size of an engine's pool, of `usable` blocks: prints a line, and what differs."""
    theirs = [cached for _, _, cached in served]
    ours = run_replay(command, usable, served)
    rules = {engine: Pool(usable, True, twice), "the replay": Pool(usable, False, False)}
    expected = {name: [pool.serve(prompt, answer[:-1]) for prompt, answer, _ in served]
                for name, pool in rules.items()}
    wrong = [line for name, found in [(engine, theirs), ("the replay", ours)]
             for line in differences(name, found, expected[name])]
    n_input = sum(len(prompt) for prompt, _, _ in served)
    equal = sum(mine // BLOCK == their // BLOCK for mine, their in zip(ours, theirs))
    print(f"{usable} blocks: {len(served)} requests, {n_input} input tokens; hits: {engine} {sum(theirs)}, "
          f"replay {sum(ours)}; {equal} requests hit the same blocks, "
          f"{len(served) - equal} differ by rule 2; {len(wrong)} unexplained")
    for line in wrong[:10]:
        print(f"  {line}")
    if all(pool.holds and len(pool.found) < usable // 2 for pool in rules.values()):
        print("  the pool was never full: nothing was evicted")
        return False
    return not wrong


def main(arguments: list[str] | None = None, run: Callable[..., list[Served]] = run_engine) -> int:
    parser = argparse.ArgumentParser(prog="python -m kvpager.calibrate", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a model that vLLM loads")
    parser.add_argument("--kvpager", default="kvpager", help="the command (default: kvpager)")
    parser.add_argument("--blocks", default="20,40,80",
                        help="sizes of vLLM's pool, blocks of 32 tokens (default: 20,40,80)")
    parser.add_argument("--requests", type=int, default=160)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    sizes = [int(size) for size in given.blocks.split(",")]
    least = (MOST_TOKENS + 64) // BLOCK + 2
    if min(sizes) < least:
        parser.error(f"--blocks has {min(sizes)}, expected at least {least}")
    if given.engine:
        engine(given.model, sizes[0], given.requests, given.seed)
        return 0
    passed = [compare(given.kvpager, size - 1, run(given.model, size, given.requests, given.seed))
              for size in sizes]
    print("PASS" if all(passed) else "FAIL")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
