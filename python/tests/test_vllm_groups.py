"""Layer groups beside vLLM's own manager: the same random prompts through both, in pools of equal
bytes, for the shapes of models whose layer groups differ.

Without eviction no hit of ours is shorter. With eviction the sum of tokens that need no computation
is at least vLLM's over the seeds. Both are so for each way to retain what windows have passed: all
of it, ends of prompts and places where they part, and multiples of 4 times the alignment. Every
sequence is held to what its groups keep, by the cache's own audit. JUDGE_PROMPTS and JUDGE_SEEDS
make it longer; `make soak` has 20,000 prompts a shape.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from typing import Any

import pytest

import kvpager
from lib_vllm import vllm_parts

PROMPTS, SEEDS = int(os.environ.get("JUDGE_PROMPTS", 500)), int(os.environ.get("JUDGE_SEEDS", 3))


@dataclass(frozen=True)
class Shape:
    """A model's layer groups in both: (window or 0, tokens a block); and bytes of a block. `scratch`
    is what ours keeps of a running sequence outside the pool (inputs of entries to come)."""

    name: str
    theirs: tuple[tuple[int, int], ...]
    ours: tuple[tuple[int, int], ...]
    their_bytes: int
    our_bytes: int
    scratch: int = 0
    unit: int = 16

    @property
    def alignment(self) -> int:
        """Where vLLM's hits end: at multiples of it."""
        return max(block for _, block in self.theirs)


def same(name: str, *groups: tuple[int, int]) -> Shape:
    return Shape(name, groups, groups, 1, 1)


# `kvpager size --model NAME --engine vllm` prints both plans. In DeepSeek V4 Pro vLLM keeps inputs of
# entries to come as windows of 128 and 8 tokens.
SHAPES = [
    same("gemma-4-31b", (0, 32), *[(1024, 16)] * 5),
    same("mimo-v2.5-pro", (0, 16), *[(128, 16)] * 6),
    same("gpt-oss-120b", (0, 16), (128, 16)),
    same("inkling", (0, 32), *[(512, 16)] * 5),
    Shape("deepseek-v4-pro", ((0, 256), (128, 64), (128, 64), (128, 8), (8, 4)),
          ((0, 128), *[(128, 128)] * 7), 1435968, 705536, 18219008, 128),
]
N_RUNNING = 4
# Times the alignment that windows retain places; None: all places, 0: prompts' own.
RETAINED = [None, 0, 4]


class Theirs:
    """vLLM's manager."""

    def __init__(self, parts: Any, shape: Shape, memory: int, longest: int,
                 retained: int | None) -> None:
        self.parts, self.unit = parts, min(block for _, block in shape.theirs)
        groups: list[Any] = []
        for window, block in shape.theirs:
            of = {"block_size": block, "num_kv_heads": 1, "head_size": 1,
                  "dtype": parts.torch.float32}
            spec = (parts.spec.SlidingWindowSpec(sliding_window=window, **of) if window
                    else parts.spec.FullAttentionSpec(**of))
            groups.append(parts.spec.KVCacheGroupSpec([f"layer{len(groups)}"], spec))
        config = parts.spec.KVCacheConfig(num_blocks=memory // shape.their_bytes,
                                          kv_cache_tensors=[], kv_cache_groups=groups,
                                          prefix_cache_retention_interval=retained)
        whole = shape.alignment
        self.manager = parts.manager.KVCacheManager(config, longest, whole, self.unit)
        self.running: list[Any] = []

    def start(self, name: str, tokens: list[int]) -> int | None:
        """Computes a prompt in one step. Gives the tokens that were hit; None: no room."""
        request = self.parts.request.Request(
            request_id=name, prompt_token_ids=list(tokens),
            sampling_params=self.parts.sampling.SamplingParams(max_tokens=64), pooling_params=None,
            block_hasher=self.parts.utils.get_request_block_hasher(
                self.unit, self.parts.hashing.sha256))
        found = self.manager.get_computed_blocks(request)
        blocks, hit = found[0], found[1]
        if self.manager.allocate_slots(request, len(tokens) - hit, hit, blocks) is None:
            return None
        request.num_computed_tokens = len(tokens)
        self.running.append(request)
        return int(hit)

    def decode(self, index: int, token: int) -> bool:
        request = self.running[index]
        request.append_output_token_ids(token)
        if self.manager.allocate_slots(request, 1) is None:
            return False
        request.num_computed_tokens += 1
        return True

    def finish(self, index: int) -> None:
        self.manager.free(self.running.pop(index))


class Ours:
    """kvpager."""

    def __init__(self, shape: Shape, memory: int, longest: int, retained: int | None) -> None:
        blocks = (memory - N_RUNNING * shape.scratch) // shape.our_bytes
        self.cache = kvpager.Cache(
            n_blocks=blocks, block_tokens=shape.unit, max_seqs=N_RUNNING + 1,
            max_seq_tokens=longest,
            retain_tokens={None: 0, 0: kvpager.RETAIN_PROMPTS}.get(retained, retained or 0),
            groups=[kvpager.Group(0, window, block) for window, block in shape.ours])
        self.namespace = self.cache.namespace()
        self.running: list[Any] = []

    def start(self, name: str, tokens: list[int]) -> int | None:
        try:
            seq = self.namespace.open(tokens)
        except kvpager.NoBlocksError:
            return None
        hit = int(seq.cached_tokens)
        self.cache.plan_take()
        seq.commit(len(tokens))
        self.running.append((seq, len(tokens)))
        return hit

    def decode(self, index: int, token: int) -> bool:
        seq, n = self.running[index]
        try:
            seq.extend([token])
        except kvpager.NoBlocksError:
            return False
        seq.commit(n + 1)
        self.running[index] = (seq, n + 1)
        return True

    def finish(self, index: int) -> None:
        self.running.pop(index)[0].close()


def prompts(draw: random.Random, n: int, longest: int) -> Any:
    """Prompts that share prefixes: continued, parted inside, repeated, new."""
    known: list[list[int]] = []
    for _ in range(n):
        base = draw.choice(known) if known and draw.random() < 0.8 else []
        kept = base[:draw.choice([len(base), draw.randrange(len(base) + 1)])]
        more = draw.choice([0, 1, draw.randrange(40), draw.randrange(400), draw.randrange(1500)])
        tokens = (kept + [draw.randrange(1 << 16) for _ in range(more)])[:longest] or [1]
        known.append(tokens)
        if len(known) > 40:
            known.pop(draw.randrange(len(known)))
        yield tokens


def run(shape: Shape, parts: Any, memory: int, seed: int, times: int | None) -> tuple[int, ...]:
    """Hits of ours, of vLLM, tokens of all prompts, and prompts at which ours was shorter."""
    longest, n = 6000, PROMPTS
    retained = None if times is None else times * shape.alignment
    theirs = Theirs(parts, shape, memory, longest + 64, retained)
    ours = Ours(shape, memory, longest + 64, retained)
    draw = random.Random(seed)
    hits = [0, 0, 0, 0]
    for turn, tokens in enumerate(prompts(draw, n, longest)):
        while len(theirs.running) >= N_RUNNING:
            index = draw.randrange(N_RUNNING)
            theirs.finish(index)
            ours.finish(index)
        found, mine = theirs.start(f"r{turn}", tokens), ours.start(f"r{turn}", tokens)
        for manager, other, hit, than in ((theirs, ours, found, mine), (ours, theirs, mine, found)):
            if hit is not None and than is None:
                manager.finish(-1)
        hits[2] += len(tokens)
        hits[0] += mine or 0
        hits[1] += found or 0
        hits[3] += (mine or 0) < (found or 0)
        for index in range(len(ours.running)):
            token = draw.randrange(5)
            if not (theirs.decode(index, token) and ours.decode(index, token)):
                break
        ours.cache.check()
    return tuple(hits)


@pytest.mark.parametrize("times", RETAINED)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: str(shape.name))
def test_no_hit_is_shorter_in_a_pool_that_is_large_enough(shape: Shape, times: int | None) -> None:
    parts = vllm_parts()
    parts.utils.init_none_hash(parts.hashing.sha256)
    memory = 40 * PROMPTS * max(shape.their_bytes * len(shape.theirs), shape.scratch)
    for seed in range(1, SEEDS // 3 + 1):
        ours, theirs, tokens, shorter = run(shape, parts, memory, seed, times)
        print(f"{shape.name}, {times}: {ours / tokens:.4f} of the input, vLLM {theirs / tokens:.4f}")
        assert theirs > 0.2 * tokens and shorter == 0


@pytest.mark.parametrize("times", RETAINED)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: str(shape.name))
def test_with_eviction_no_less_is_hit(shape: Shape, times: int | None) -> None:
    parts = vllm_parts()
    parts.utils.init_none_hash(parts.hashing.sha256)
    memory = shape.their_bytes * 2400 if shape.scratch == 0 else shape.their_bytes * 220
    sums = [0, 0, 0]
    for seed in range(SEEDS):
        for i, value in enumerate(run(shape, parts, memory, seed, times)[:3]):
            sums[i] += value
    print(f"{shape.name}, {times}: {sums[0] / sums[2]:.4f} of the input, vLLM {sums[1] / sums[2]:.4f}")
    assert sums[0] >= sums[1] > 0.01 * sums[2]
