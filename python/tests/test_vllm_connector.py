"""kvpager.vllm.KvpagerConnector: random engines whose KV says which tokens it is of.

`make engines` runs a real vLLM over it."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import itertools
import os
import pathlib
import pickle
import random
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fake_vllm

store = pytest.importorskip("kvpager.store", exc_type=ImportError)

HAS_VLLM = importlib.util.find_spec("vllm") is not None
S, LAYERS, HEADS, SIZE = 4, 3, 2, 8
BLOCK_BYTES = LAYERS * HEADS * S * 2 * SIZE * 4
WEIGHTS = "cd" * 32
NULL_KV = 7.0  # what the null block has


@pytest.fixture(scope="module")
def v() -> Iterator[Any]:
    with contextlib.nullcontext() if HAS_VLLM else fake_vllm.installed():
        from kvpager.vllm import connector, messages, versions

        yield SimpleNamespace(messages=messages, Connector=connector.KvpagerConnector, Role=versions.ConnectorRole,
                              module=connector, real=HAS_VLLM)


# --------------------------------------------------------------------------------- configuration


class FullAttentionSpec(SimpleNamespace):
    pass


class SlidingWindowSpec(SimpleNamespace):
    pass


def spec(kind: Any = FullAttentionSpec, **changes: Any) -> Any:
    return kind(**{"block_size": S, "num_kv_heads": HEADS, "head_size": SIZE, "head_size_v": SIZE,
                   "dtype": "torch.float32", **changes})


def config(extra: dict[str, Any], *, tensor_parallel: int = 1, rank: int = 0,
           speculative: Any = None, events: bool = False, scheduler_cls: Any = None,
           **parallel: int) -> Any:
    return SimpleNamespace(
        kv_transfer_config=SimpleNamespace(
            kv_connector_extra_config={"weights": WEIGHTS, **extra}, is_kv_producer=True),
        model_config=SimpleNamespace(
            model="a/model", dtype="torch.float32", quantization=None, hf_overrides={},
            hf_text_config=SimpleNamespace(rope_parameters={"rope_theta": 1e4})),
        parallel_config=SimpleNamespace(tensor_parallel_size=tensor_parallel, rank=rank, **parallel),
        cache_config=SimpleNamespace(cache_dtype="auto", prefix_caching_hash_algo="sha256"),
        scheduler_config=SimpleNamespace(scheduler_cls=scheduler_cls),
        kv_events_config=SimpleNamespace(enable_kv_cache_events=events),
        speculative_config=speculative)


def groups(*specs: Any) -> Any:
    return SimpleNamespace(kv_cache_groups=[
        SimpleNamespace(kv_cache_spec=one, layer_names=[f"g{g}l{i}" for i in range(LAYERS)])
        for g, one in enumerate(specs or (spec(),))])


def windowed(windows: tuple[int, ...]) -> Any:
    """Layer groups with these windows; 0: full attention."""
    return groups(*(spec(SlidingWindowSpec, sliding_window=window) if window else spec()
                    for window in windows))


# ---------------------------------------------------------------------------------- the engine


class Tensor:
    """A layer's KV, as a tensor of torch looks from outside."""

    device = SimpleNamespace(type="cpu")

    def __init__(self, array: Any) -> None:
        self.array = array

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, i: int) -> Any:
        return SimpleNamespace(numel=lambda: self.array[i].size)

    def is_contiguous(self) -> bool:
        return True

    def view(self, size: int) -> Any:
        return self.array.reshape(size)


def content(tokens: Any, salt: str, group: int = 0) -> Any:
    """The KV of a block whose last token ends `tokens`: [LAYERS, HEADS * S * 2 * SIZE] f32."""
    seed = hashlib.sha256(repr((list(map(int, tokens)), salt, group)).encode()).digest()
    return np.random.default_rng(list(seed)).random(
        (LAYERS, HEADS * S * 2 * SIZE), np.float32)


@dataclass(eq=False)
class Request:
    """vLLM's Request, as far as the connector looks at it."""

    request_id: str
    prompt_token_ids: list[int]
    cache_salt: str | None
    n_out: int
    all_token_ids: list[int] = field(default_factory=list)
    num_computed_tokens: int = 0
    blocks: list[list[int]] = field(default_factory=list)  # of each layer group
    skip_reading_prefix_cache: bool = False
    prompt_embeds: Any = None
    lora_request: Any = None
    mm_features: Any = None
    adapter: str = ""  # what the KV depends on, too

    @property
    def num_tokens(self) -> int:
        return len(self.all_token_ids)


class Engine:
    """A scheduler with blocks of its own and no prefix cache, and ranks that compute. Each block's
    KV is checked before a step uses it.

    windows  of the layer groups, 0: full attention. Groups take blocks from one pool and lie in the
             same tensors. Blocks that a window has left behind are null, 0, and others get them
    drafts   up to so many tokens are guessed in each step that decodes; some are wrong
    """

    def __init__(self, v: Any, extra: dict[str, Any], seed: int, *, n_blocks: int = 40,
                 ranks: int = 1, windows: tuple[int, ...] = (0,), drafts: int = 0,
                 **told: Any) -> None:
        self.random, self.budget = random.Random(seed), 24
        self.windows, self.drafts = windows, drafts
        self.guessed: dict[str, list[int]] = {}
        speculative = SimpleNamespace(model="ngram") if drafts else None
        self.scheduler = v.Connector(
            config(extra, tensor_parallel=ranks, speculative=speculative, **told), v.Role.SCHEDULER,
            windowed(windows))
        self.workers, self.layers = [], []
        for rank in range(ranks):
            worker = v.Connector(config(extra, tensor_parallel=ranks, rank=rank,
                                        speculative=speculative, **told), v.Role.WORKER,
                                 windowed(windows))
            arrays = [np.zeros((n_blocks, HEADS, S, 2 * SIZE), np.float32) for _ in range(LAYERS)]
            for array in arrays:
                array[0] = NULL_KV
            worker.register_kv_caches({f"g{g}l{i}": Tensor(array) for g in range(len(windows))
                                       for i, array in enumerate(arrays)})
            self.workers.append(worker)
            self.layers.append(arrays)
        self.free = list(range(1, n_blocks))
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.loaded = self.asked_again = self.recomputed = 0
        self.admitted = dict[str, int]()  # tokens, when it was

    def close(self) -> None:
        for worker in self.workers:
            worker.shutdown()

    def counts(self) -> dict[str, int]:
        return dict(self.workers[0]._move.counts)

    # One step, as vLLM's scheduler and model runner do it.

    def step(self) -> None:
        scheduled, before = self._schedule()
        output = SimpleNamespace(
            num_scheduled_tokens=scheduled, kv_connector_block_state=SimpleNamespace(
                get_block_ids=lambda request: tuple(map(list, self._of(request).blocks))))
        message = pickle.dumps(self.scheduler.build_connector_meta(output))
        for request, n_tokens in scheduled.items():
            self._of(request).num_computed_tokens += n_tokens
        answers, invalid = [], set[int]()
        for rank, worker in enumerate(self.workers):
            worker.bind_connector_metadata(pickle.loads(message))
            worker.start_load_kv(None)
            bad = worker.get_block_ids_with_load_errors()
            invalid |= bad
            if not bad:
                self._forward(rank, scheduled, before)
            worker.wait_for_save()
            answers.append(worker.build_connector_worker_meta())
            worker.clear_connector_metadata()
        assert not invalid
        assert all((array[0] == NULL_KV).all() for arrays in self.layers for array in arrays)
        meta = answers[0]
        for other in answers[1:]:
            assert (meta is None) == (other is None)
            meta = meta.aggregate(other) if meta is not None else None
        self.scheduler.update_connector_output(SimpleNamespace(
            kv_connector_worker_meta=pickle.loads(pickle.dumps(meta))))
        for one in list(self.running):
            guessed = self.guessed.pop(one.request_id, [])
            if one.num_computed_tokens == one.num_tokens + len(guessed):
                right = self.random.randrange(len(guessed) + 1)
                one.num_computed_tokens -= len(guessed) - right
                one.all_token_ids += [*guessed[:right], self.random.randrange(50)]
                if one.num_tokens - len(one.prompt_token_ids) >= one.n_out:
                    self.finish(one)

    def _of(self, request_id: str) -> Request:
        return next(one for one in self.running if one.request_id == request_id)

    def _take(self, request: Request, computed: int, n_new: int) -> bool:
        """Blocks for tokens behind those that are computed, after windows gave back theirs."""
        request.blocks = request.blocks or [[] for _ in self.windows]
        for blocks, window in zip(request.blocks, self.windows):
            left = max(0, computed - window + 1) // S if window else 0
            self._release(blocks[:left])
            blocks[:left] = [0] * left
        lacks = [(computed + n_new + S - 1) // S - len(blocks) for blocks in request.blocks]
        if sum(lacks) > len(self.free):
            return False
        for blocks, n in zip(request.blocks, lacks):
            blocks += [self.free.pop(self.random.randrange(len(self.free))) for _ in range(n)]
        return True

    def _guess(self, request: Request) -> list[int]:
        if request.num_tokens - request.num_computed_tokens != 1:
            return []  # a prompt
        return [self.random.randrange(50) for _ in range(self.random.randrange(self.drafts + 1))]

    def _schedule(self) -> tuple[dict[str, int], dict[str, int]]:
        left, made, before = self.budget, dict[str, int](), dict[str, int]()
        for request in list(self.running):
            if request not in self.running:
                continue
            guessed = self._guess(request)
            n = min(left, request.num_tokens - request.num_computed_tokens + len(guessed))
            self.guessed[request.request_id] = guessed[:max(0, n - 1)]
            while n > 0 and not self._take(request, request.num_computed_tokens, n):
                victim = self.running[-1]
                self._preempt(victim)
                left += made.pop(victim.request_id, 0)
                if victim is request:
                    n = 0
            if n > 0:
                made[request.request_id] = n
                left -= n
        for request in list(self.waiting):
            if left == 0 or len(self.running) >= 6:
                break
            n = self.scheduler.get_num_new_matched_tokens(request, 0)[0]
            if n is None:
                self.asked_again += 1
                continue
            assert n % S == 0 and n < request.num_tokens
            new = min(left, request.num_tokens - n)
            if not self._take(request, n, new):
                self._give_back(request)
                break
            self.scheduler.update_state_after_alloc(request, SimpleNamespace(
                get_block_ids=lambda: tuple(map(list, request.blocks))), n)
            self.loaded += n
            self.admitted.setdefault(request.request_id, request.num_tokens)
            self.recomputed += request.num_tokens - n
            request.num_computed_tokens = n
            self.waiting.remove(request)
            self.running.append(request)
            made[request.request_id] = new
            left -= new
        for name in made:
            before[name] = self._of(name).num_computed_tokens
        return made, before

    def _forward(self, rank: int, scheduled: dict[str, int], before: dict[str, int]) -> None:
        """What is in front of the scheduled tokens must be right; they are computed."""
        for name, n_tokens in scheduled.items():
            request = self._of(name)
            tokens = request.all_token_ids + self.guessed.get(name, [])
            salt = f"{request.cache_salt}{request.adapter} {rank}"
            for group, at, block in ((group, at, block) for group, blocks in enumerate(request.blocks)
                                     for at, block in enumerate(blocks) if block):
                end = min((at + 1) * S, before[name] + n_tokens)
                if end != (at + 1) * S:
                    continue
                made = content(tokens[:end], salt, group)
                for layer, array in enumerate(self.layers[rank]):
                    if end <= before[name]:
                        assert np.array_equal(array[block].reshape(-1), made[layer]), \
                            f"{name}: block {at} of group {group} has foreign KV"
                    else:
                        array[block] = made[layer].reshape(array[block].shape)

    def _preempt(self, request: Request) -> None:
        self.running.remove(request)
        self.guessed.pop(request.request_id, None)
        self._give_back(request)
        request.num_computed_tokens = 0
        self.waiting.insert(0, request)

    def _give_back(self, request: Request) -> None:
        for blocks in request.blocks:
            self._release(blocks)
        request.blocks = []

    def _release(self, blocks: list[int]) -> None:
        for block in filter(None, blocks):  # whoever reads them by mistake gets nonsense
            for arrays in self.layers:
                for array in arrays:
                    array[block] = -1
            self.free.append(block)

    def finish(self, request: Request) -> None:
        assert self.scheduler.request_finished_all_groups(
            request, tuple(request.blocks)) == (False, None)
        if request in self.running:
            self.running.remove(request)
        else:
            self.waiting.remove(request)
        self._give_back(request)

    def add(self, prompt: list[int], n_out: int = 1, salt: str | None = None,
            name: Any = itertools.count()) -> Request:
        request = Request(f"r{next(name)}", prompt, salt, n_out, list(prompt))
        self.waiting.append(request)
        return request

    def run(self) -> None:
        """Until nothing is left to do; those that wait for a store leave it the processor."""
        end = time.monotonic() + 120
        while self.waiting or self.running:
            assert time.monotonic() < end, "requests hang"
            self.step()
            if not self.running:
                time.sleep(0.0005)


def prompts(seed: int, n: int) -> list[list[int]]:
    made, rng = list[list[int]](), random.Random(seed)
    heads = [[rng.randrange(50) for _ in range(rng.randrange(20, 60))] for _ in range(4)]
    for _ in range(n):
        head = rng.choice(heads)
        made.append(head[:rng.randrange(1, len(head) + 1)]
                    + [rng.randrange(50) for _ in range(rng.randrange(1, 20))])
    return made


# --------------------------------------------------------------------------------------- tests


def test_kv_comes_back_from_host_memory(v: Any) -> None:
    engine = Engine(v, {"host_memory": 64 * BLOCK_BYTES}, 1)
    prompt = [i % 50 for i in range(41)]
    for _ in range(2):
        engine.add(prompt)
        engine.run()
    assert engine.loaded == 40 and engine.counts()["host_tokens"] == 40
    engine.close()


def test_kv_comes_back_after_a_restart(v: Any, tmp_path: pathlib.Path) -> None:
    extra = {"host_memory": 64 * BLOCK_BYTES, "store": f"file:{tmp_path}?size=64MiB",
             "record_blocks": 1}
    prompt = [i % 50 for i in range(41)]
    for loaded in (0, 40):
        engine = Engine(v, extra, 1)
        engine.add(prompt)
        engine.run()
        assert engine.loaded == loaded
        engine.close()
    assert engine.counts()["store_tokens"] == 40


def test_two_tenants_share_nothing(v: Any) -> None:
    engine = Engine(v, {"host_memory": 64 * BLOCK_BYTES}, 1)
    prompt = [i % 50 for i in range(41)]
    for salt, loaded in ((None, 0), ("one", 0), ("two", 0), ("one", 40), (None, 80)):
        engine.add(prompt, salt=salt)
        engine.run()
        assert engine.loaded == loaded
    engine.close()


def lora(path: Any, number: Any = 1, **more: Any) -> Any:
    """vLLM's LoRARequest."""
    return SimpleNamespace(**{"lora_name": "same", "lora_int_id": number, "lora_path": path,
                              "load_inplace": False, **more})


def test_adapters_with_different_files_share_nothing(v: Any, tmp_path: pathlib.Path) -> None:
    """By what is in their files: neither name nor place says whose KV it is. Each load has a number,
    as vLLM's server gives it."""
    engine = Engine(v, {"host_memory": 64 * BLOCK_BYTES, "store": "memory:?size=4MiB",
                        "record_blocks": 1}, 1)
    prompt = [i % 50 for i in range(41)]
    for number, place, weights, loads in (
            (1, "a", "one", False), (2, "b", "two", False), (1, "a", "one", True),
            (3, "c", "one", True), (4, "a", "six", False), (5, "a", "six", True),
            (0, "", "", False), (2, "b", "two", True)):
        request = engine.add(prompt)
        if place:
            (tmp_path / place).mkdir(exist_ok=True)
            for name, text in (("adapter_config.json", "{}"), ("adapter.safetensors", weights)):
                if not (tmp_path / place / name).exists() or text != (tmp_path / place / name).read_text():
                    (tmp_path / place / name).write_text(text)
            request.adapter = weights
            request.lora_request = lora(str(tmp_path / place), number)
        before = engine.loaded
        engine.run()
        assert engine.loaded - before == (40 if loads else 0), (place, weights)
    engine.close()


def test_items_are_told_apart_by_content(v: Any) -> None:
    engine = Engine(v, {"host_memory": 64 * BLOCK_BYTES}, 1)
    prompt = [i % 50 for i in range(41)]
    for name, loaded in (("a", 0), ("b", 8), ("a", 48)):
        request = engine.add(prompt, salt=None)
        request.mm_features = [SimpleNamespace(
            identifier=name, mm_position=SimpleNamespace(offset=9, length=6))]
        engine.run()
        assert engine.loaded == loaded
    engine.close()


# ------------------------------------------------------------------------- while it is not known


def asking(v: Any, tmp_path: pathlib.Path, **engine_has: Any) -> tuple[Engine, Request]:
    """An engine that has nothing to do but wait for a prefix of 40 tokens that its store has: what
    the store says is held back until `answered`."""
    extra = {"host_memory": 256 * BLOCK_BYTES, "store": f"file:{tmp_path}?size=64MiB",
             "record_blocks": 1, "load": "always", "deadline": 1000}
    for turn in range(2):
        engine = Engine(v, extra, 1, **engine_has)
        for worker in engine.workers:
            if turn:
                worker._move.poll = lambda: None
        request = engine.add([i % 50 for i in range(41)])
        if not turn:
            engine.run()
            engine.close()
    for _ in range(5):
        engine.step()
    assert engine.waiting == [request] and not engine.running and engine.asked_again == 5
    return engine, request


def answered(engine: Engine) -> None:
    for worker in engine.workers:
        del worker._move.poll


def nothing_stays(engine: Engine) -> None:
    engine.step()  # with it goes what is to be forgotten
    assert not engine.scheduler._plan._plans
    for worker in engine.workers:
        worker._move.settle(30)
        assert not worker._move._fetches
        assert worker._move.books.stats().open_seqs == 0
        worker._move.books.check()
    engine.close()


@pytest.mark.parametrize("ranks", [1, 2])
def test_waiting_with_nothing_running(v: Any, tmp_path: pathlib.Path, ranks: int) -> None:
    """Steps that compute nothing carry the question and the answer."""
    engine, _ = asking(v, tmp_path, ranks=ranks)
    answered(engine)
    engine.run()
    assert engine.loaded == 40
    nothing_stays(engine)


def test_an_abort_while_it_is_not_known(v: Any, tmp_path: pathlib.Path) -> None:
    engine, request = asking(v, tmp_path)
    engine.finish(request)
    engine.step()
    answered(engine)
    engine.add([i % 50 for i in range(41)])
    engine.run()
    assert engine.loaded == 40
    nothing_stays(engine)


def test_an_abort_before_it_is_asked(v: Any) -> None:
    """The question has not left the scheduler yet."""
    engine = Engine(v, {"host_memory": 64 * BLOCK_BYTES}, 1)
    request = engine.add([i % 50 for i in range(41)])
    assert engine.scheduler.get_num_new_matched_tokens(request, 0)[0] is None
    engine.finish(request)
    nothing_stays(engine)
    assert engine.counts() == {}


def test_a_reset_while_it_is_not_known(v: Any, tmp_path: pathlib.Path) -> None:
    engine, _ = asking(v, tmp_path)
    engine.scheduler.reset_cache()
    engine.step()
    answered(engine)
    engine.run()
    assert engine.loaded == 0 and engine.recomputed == 41
    nothing_stays(engine)


@pytest.mark.parametrize("then", ["", "abort", "reset"])
def test_a_preempted_request_asks_again(v: Any, then: str) -> None:
    """What it had computed comes back, unless it goes away or all is forgotten before that is
    known."""
    engine = Engine(v, {"host_memory": 64 * BLOCK_BYTES}, 1)
    request = engine.add([i % 50 for i in range(41)], n_out=20)
    while request.num_tokens < 50:
        engine.step()
    engine._preempt(request)
    engine.step()
    assert engine.waiting == [request] and engine.loaded == 0
    if then == "abort":
        engine.finish(request)
    elif then == "reset":
        engine.scheduler.reset_cache()
    engine.run()
    assert engine.loaded == (0 if then else 48)
    nothing_stays(engine)


def test_chunks_of_a_prompt_are_kept_one_by_one(v: Any) -> None:
    """A prompt that is aborted in the middle has left what it had computed."""
    engine = Engine(v, {"host_memory": 64 * BLOCK_BYTES}, 1)
    prompt = [i % 50 for i in range(101)]
    request = engine.add(prompt)
    while request.num_computed_tokens < 2 * engine.budget:
        engine.step()
    assert engine.counts()["saved_tokens"] == 2 * engine.budget
    engine.finish(request)
    engine.add(prompt)
    engine.run()
    assert engine.loaded == 2 * engine.budget
    nothing_stays(engine)


@pytest.mark.parametrize("windows", [(0,), (0, 9, 14)], ids=["full", "windows"])
def test_drafts_are_never_kept(v: Any, windows: tuple[int, ...]) -> None:
    """Blocks that wrong guesses filled are not what the tokens behind them say."""
    engine = Engine(v, {"host_memory": 1024 * BLOCK_BYTES}, 3, n_blocks=200, windows=windows,
                    drafts=5)
    for turn in range(4):
        first = engine.add([turn] * 9, n_out=60)
        engine.run()
        before = engine.loaded
        engine.add(list(first.all_token_ids), n_out=1)
        engine.run()
        assert engine.loaded - before >= 56
    nothing_stays(engine)


# ------------------------------------------------------------------------------------- windows

WINDOWS = [(0, 9, 14), (6,), (0, 8), (0, 0)]


@pytest.mark.parametrize("windows", WINDOWS, ids=str)
def test_windows_come_back(v: Any, windows: tuple[int, ...], tmp_path: pathlib.Path) -> None:
    """From host memory, and after a restart from a store: each prefix, though a window's blocks of
    its beginning were given to others long ago."""
    extra = {"host_memory": 256 * BLOCK_BYTES, "store": f"file:{tmp_path}?size=64MiB",
             "record_blocks": 1, "load": "always", "deadline": 1000}
    prompt = [i % 50 for i in range(61)]
    for turn in range(2):
        engine = Engine(v, extra, 1, windows=windows, n_blocks=80)
        for at, n_tokens in enumerate((61, 61, 33, 21)):
            before = engine.loaded
            engine.add(prompt[:n_tokens], n_out=12)
            engine.run()
            assert engine.loaded - before == (n_tokens - 1 if turn or at else 0)
        nothing_stays(engine)
    assert engine.counts()["store_tokens"] == 60 and "gaps" not in engine.counts()


def test_nothing_is_kept_behind_a_gap_of_a_window(v: Any) -> None:
    """Host memory lost what vLLM's window has left behind: what follows would be found, and be
    wrong."""
    engine = Engine(v, {"host_memory": 256 * BLOCK_BYTES}, 1, windows=(0, 9), n_blocks=80)
    prompt = [i % 50 for i in range(61)]
    request, mover = engine.add(prompt, n_out=9), engine.workers[0]._move
    while request.num_computed_tokens < 2 * engine.budget:
        engine.step()
    mover.space.flush()
    mover.rows[:] = 1
    engine.run()
    assert engine.counts()["gaps"] > 0 and engine.counts()["saved_tokens"] == 2 * engine.budget
    for loaded in (0, 60):
        engine.add(prompt)
        engine.run()
        assert engine.loaded == loaded
    nothing_stays(engine)


def test_a_reset_forgets_all(v: Any, tmp_path: pathlib.Path) -> None:
    extra = {"host_memory": 64 * BLOCK_BYTES, "store": f"file:{tmp_path}?size=64MiB",
             "record_blocks": 1, "load": "always"}
    engine = Engine(v, extra, 1)
    prompt = [i % 50 for i in range(41)]
    for loaded in (0, 0, 40):
        engine.add(prompt)
        engine.run()
        assert engine.loaded == loaded
        for worker in engine.workers:
            worker._move.settle(30)  # the store has what was computed
        if loaded == 0 and engine.counts().get("asked_tokens", 0) == 40:
            assert engine.scheduler.reset_cache()
    engine.close()


def test_a_deadline_that_has_passed_costs_a_computation(v: Any, tmp_path: pathlib.Path) -> None:
    extra = {"host_memory": 64 * BLOCK_BYTES, "store": f"file:{tmp_path}?size=64MiB",
             "record_blocks": 1, "deadline": 0}
    prompt = [i % 50 for i in range(41)]
    for _ in range(2):
        engine = Engine(v, extra, 1)
        engine.add(prompt)
        engine.run()
        assert engine.asked_again <= 2
        engine.close()


def test_damaged_records_cost_a_computation(v: Any, tmp_path: pathlib.Path) -> None:
    extra = {"host_memory": 64 * BLOCK_BYTES, "store": f"file:{tmp_path}?size=64MiB",
             "record_blocks": 1}
    prompt = [i % 50 for i in range(41)]
    engine = Engine(v, extra, 1)
    engine.add(prompt)
    engine.run()
    engine.close()
    damage(tmp_path, content(prompt[:4 * S], "None 0")[0].tobytes()[:64])
    engine = Engine(v, extra, 1)
    engine.add(prompt)
    engine.run()
    assert engine.loaded == 3 * S and engine.counts()["bad"] == 1
    engine.close()


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 9, 0])
def test_an_engine_that_is_killed(v: Any, tmp_path: pathlib.Path, steps: int) -> None:
    """After so many steps, in which three prompts are computed and written; 0: when all of it is in
    the store. What is hit later is right, and in the latter case all of it."""
    extra = {"host_memory": 64 * BLOCK_BYTES, "store": f"file:{tmp_path}?size=64MiB",
             "record_blocks": 1, "load": "always"}
    three = [[(i * k) % 50 for i in range(41)] for k in (1, 3, 7)]
    child = os.fork()
    if child == 0:
        status = 1
        try:
            engine = Engine(v, extra, 1)
            for prompt in three:
                engine.add(prompt)
            for _ in range(steps):
                engine.step()
            if steps == 0:
                engine.run()
                engine.workers[0]._move.settle(30)
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    engine = Engine(v, extra, 1)
    for prompt in three:
        engine.add(prompt)
    engine.run()
    assert engine.loaded <= 120 and (steps > 0 or engine.loaded == 120)
    engine.close()


def damage(folder: pathlib.Path, wanted: bytes) -> None:
    """One bit of what begins with these bytes in a store's files."""
    for path in folder.rglob("*"):
        if path.is_file() and (at := (data := bytearray(path.read_bytes())).find(wanted)) >= 0:
            data[at] ^= 1
            path.write_bytes(data)
            return
    raise AssertionError("the KV is in no file")


def test_a_prefix_is_as_long_as_the_shortest_rank_has_it(v: Any, tmp_path: pathlib.Path) -> None:
    extra = {"host_memory": 128 * BLOCK_BYTES, "store": f"file:{tmp_path}?size=64MiB",
             "record_blocks": 1}
    prompt = [i % 50 for i in range(41)]
    for loaded in (0, 3 * S):
        engine = Engine(v, extra, 1, ranks=2)
        engine.add(prompt)
        engine.run()
        engine.close()
        assert engine.loaded == loaded
        if not loaded:
            damage(tmp_path, content(prompt[:4 * S], "None 1")[0].tobytes()[:64])


def test_a_bad_record_of_the_nearest_store_comes_from_the_farther(v: Any, tmp_path: pathlib.Path
                                                                  ) -> None:
    near, far = tmp_path / "near", tmp_path / "far"
    near.mkdir()
    far.mkdir()
    extra = {"host_memory": 64 * BLOCK_BYTES, "record_blocks": 1,
             "store": [f"file:{near}?size=64MiB", f"file:{far}?size=64MiB"]}
    prompt = [i % 50 for i in range(41)]
    for turn in range(3):  # the last one finds it in the nearest again
        engine = Engine(v, extra, 1)
        engine.add(prompt)
        engine.run()
        engine.close()
        assert engine.loaded == (40 if turn else 0)
        assert engine.counts().get("bad", 0) == (turn == 1)
        if turn == 0:
            damage(near, content(prompt[:4 * S], "None 0")[0].tobytes()[:64])


@pytest.mark.parametrize("seed", range(int(os.environ.get("KVP_SEEDS", "10"))))
def test_random_engines(v: Any, seed: int, tmp_path: pathlib.Path) -> None:
    """Small pools with preemption, chunks, drafts, aborts, resets, restarts, ranks, windows; host
    memory and disks that are too small. No step ever sees foreign KV, and every request ends."""
    rng = random.Random(seed)
    windows, drafts = [(0,), *WINDOWS][seed % 5], seed // 2 % 2 * 3
    for life in range(3):
        extra: dict[str, Any] = {
            "host_memory": (rng.choice([6, 30, 200]) * BLOCK_BYTES * len(windows)
                            * (ranks := 1 + seed % 2)),
            "deadline": rng.choice([0, 0.01, 5]), "load": rng.choice(["sooner", "always"])}
        if seed % 3:
            extra["store"] = f"file:{tmp_path}?size={rng.choice(['1MiB', '64MiB'])}"
            extra["record_blocks"] = 1 + seed % 2
        engine = Engine(v, extra, seed * 3 + life, n_blocks=rng.choice([34, 80]) * len(windows),
                        ranks=ranks, windows=windows, drafts=drafts)
        for prompt in prompts(seed, 25):
            engine.add(prompt, n_out=rng.randrange(1, 30), salt=rng.choice([None, None, "t"]))
            for _ in range(rng.randrange(4)):
                engine.step()
            if rng.random() < 0.1 and (left := engine.running + engine.waiting):
                engine.finish(rng.choice(left))
            if rng.random() < 0.03:
                engine.scheduler.reset_cache()
        engine.run()
        for worker in engine.workers:
            worker._move.settle(30)
            assert not worker._move._fetches
            assert worker._move.books.stats().open_seqs == 0
        assert sum(reasons(engine).values()) == sum(engine.admitted.values())
        why = engine.scheduler._why
        assert not why._open and not why._kept_back
        engine.close()


class Router:
    """Keeps what it hears, by name."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.blocks = engine, dict[int, tuple[int | None, list[int]]]()
        self.n_removed = 0

    def hear(self) -> None:
        for event in self.engine.scheduler.take_events():
            assert event.medium == "CPU"
            if type(event).__name__ == "BlockRemoved":
                self.n_removed += 1
                del self.blocks[event.block_hashes[0]]
            else:
                assert event.block_size == S and event.block_hashes[0] not in self.blocks
                self.blocks[event.block_hashes[0]] = event.parent_block_hash, event.token_ids

    def finds(self, tokens: list[int]) -> int:
        """Tokens of the longest prefix."""
        n, before = 0, None
        while (found := next((name for name, block in self.blocks.items()
                              if block == (before, tokens[n:n + S])), None)) is not None:
            n, before = n + S, found
        return n


@pytest.mark.parametrize("scheduler_cls", [None, "kvpager.vllm.Scheduler"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_routers_hear_of_host_memory(v: Any, ranks: int, scheduler_cls: str | None) -> None:
    if v.real:
        from vllm.utils.hashing import sha256
        from vllm.v1.core.kv_cache_utils import init_none_hash
        init_none_hash(sha256)
    engine = Engine(v, {"host_memory": ranks * 30 * BLOCK_BYTES}, 3, ranks=ranks, events=True,
                    scheduler_cls=scheduler_cls)
    router, asked, n_found = Router(engine), list[list[int]](), 0
    for turn, prompt in enumerate(prompts(5, 40)):
        engine.add(prompt, n_out=3, salt="s" if turn % 7 == 6 else None)
        asked += [prompt] if turn % 7 != 6 else []
        engine.run()
        engine.step()
        router.hear()
        move = engine.workers[0]._move
        for one in asked[-8:]:
            prefix = v.messages.Prefix(np.array([*one, 1], np.int32), b"", ())
            kept = move.space.match(move._prompt(prefix)).hit_tokens // S * S
            assert router.finds(one) == kept, (turn, one)
            n_found += kept > 0
    assert n_found > 40 and router.n_removed > 10
    assert engine.scheduler.reset_cache()
    engine.add([1] * 9)
    engine.run()
    engine.step()
    router.hear()
    assert router.finds(asked[-1]) == 0 and router.finds([1] * 9) == 8
    assert engine.counts().get("errors", 0) == 0
    engine.close()


def test_events_that_nobody_asked_for(v: Any) -> None:
    engine = Engine(v, {"host_memory": 30 * BLOCK_BYTES}, 3)
    engine.add(prompts(5, 1)[0])
    engine.run()
    assert list(engine.scheduler.take_events()) == []
    assert engine.workers[0]._move.books.config["max_events"] == 0
    engine.close()
    windows = Engine(v, {"host_memory": 60 * BLOCK_BYTES}, 3, windows=(0, 8), events=True)
    windows.add(prompts(5, 1)[0])
    windows.run()
    assert list(windows.scheduler.take_events()) == []
    windows.close()


def test_more_events_than_are_remembered(v: Any) -> None:
    """What came meanwhile is told all the same, and what went."""
    engine = Engine(v, {"host_memory": 30 * BLOCK_BYTES}, 3, events=True)
    router, move = Router(engine), engine.workers[0]._move
    module = importlib.import_module("kvpager.vllm.host_events")
    engine.add([3] * 9)
    engine.run()
    engine.step()
    router.hear()
    assert router.finds([3] * 9) == 8

    def behind(*given: Any) -> Any:
        module.Cache.events, real = real_events, module.Cache.events
        assert real is behind
        raise module.BehindError("gone")
    real_events = module.Cache.events
    engine.add([4] * 9)
    module.Cache.events = behind
    try:
        engine.step()
    finally:
        module.Cache.events = real_events
    engine.run()
    engine.step()
    router.hear()
    assert router.finds([3] * 9) == 8 and router.finds([4] * 9) == 8
    assert engine.counts().get("errors", 0) == 0 and move._teller is not None
    engine.close()


def test_figures_go_to_vllm(v: Any) -> None:
    engine = Engine(v, {"host_memory": 64 * BLOCK_BYTES}, 1)
    engine.add([i % 50 for i in range(41)])
    engine.run()
    worker = engine.workers[0]
    stats = worker.get_kv_connector_stats()
    assert stats.data["asked_tokens"] == stats.data["saved_tokens"] == 40 and not stats.is_empty()
    assert worker.get_kv_connector_stats() is None
    both = v.Connector.build_kv_connector_stats(dict(stats.data)).aggregate(stats)
    assert both.reduce()["asked_tokens"] == 80
    if not HAS_VLLM:
        told = prometheus(v)
        told.observe({**stats.data, "unheard_of": 1})
        assert told._counters["asked_tokens"][0].value == 40
        assert worker._move.counts.keys() <= told._counters.keys()
    engine.close()


def reasons(engine: Engine) -> dict[str, int]:
    """What was counted since the last time."""
    stats = engine.scheduler.get_kv_connector_stats()
    data = {} if stats is None else stats.data
    assert "errors" not in data
    return {name.removeprefix("prompt_tokens:"): n for name, n in data.items()}


def ask(engine: Engine, prompt: list[int], **more: Any) -> dict[str, int]:
    engine.add(prompt, **more)
    engine.run()
    return reasons(engine)


def test_reasons_of_prompts(v: Any, tmp_path: pathlib.Path) -> None:
    engine = Engine(v, {"host_memory": 16 * BLOCK_BYTES}, 1)
    first, second = [1] * 41, [2] * 49
    assert ask(engine, first) == {"new": 40, "last": 1}
    assert ask(engine, first) == {"hit": 40, "last": 1}
    assert ask(engine, first[:40]) == {"hit": 36, "resident": 3, "last": 1}  # the last block again
    assert ask(engine, [*first[:39], 9, 9]) == {"hit": 36, "new": 4, "last": 1}
    assert ask(engine, first[:39]) == {"hit": 36, "grid": 2, "last": 1}
    assert ask(engine, second) == {"new": 48, "last": 1}
    found = ask(engine, first)
    assert found.keys() == {"hit", "evicted", "last"} and sum(found.values()) == 41
    assert ask(engine, first, salt="another") == {"new": 40, "last": 1}
    request = engine.add(second)
    request.skip_reading_prefix_cache = True
    engine.run()
    assert reasons(engine) == {"uncached": 48, "last": 1}
    if not HAS_VLLM:
        told = prometheus(v)
        told.observe({"prompt_tokens:evicted": 7, "prompt_tokens:hit": 1})
        told.observe({"prompt_tokens:evicted": 2})
        assert told._counters["prompt_tokens:evicted"][0].value == 9
        assert {f"prompt_tokens:{name}" for name in found} <= told._counters.keys()
    engine.close()


def test_reasons_behind_an_answer_and_of_two_at_once(v: Any) -> None:
    engine = Engine(v, {"host_memory": 16 * BLOCK_BYTES}, 1)
    request = engine.add([1] * 22, n_out=8)
    engine.run()
    reasons(engine)
    told, known = request.all_token_ids, (len(request.all_token_ids) - 1) // S * S
    ask(engine, [2] * 59)  # all of it goes
    found = ask(engine, [*told, 5, 5, 5, 5])
    assert found["evicted"] + found.get("hit", 0) == known and found["new"] == len(told) + 3 - known
    engine.add([3] * 21)
    engine.add([3] * 21)
    engine.step()
    engine.step()
    engine.run()
    assert reasons(engine) == {"new": 20, "in_flight": 20, "last": 2}
    engine.close()


def test_reasons_while_a_store_is_slow(v: Any, tmp_path: pathlib.Path) -> None:
    extra = {"host_memory": 16 * BLOCK_BYTES, "record_blocks": 1, "deadline": 0, "least_tokens": 4,
             "store": f"file:{tmp_path}/s?size=1MiB"}
    engine = Engine(v, extra, 1)
    assert ask(engine, [1] * 41) == {"new": 40, "last": 1}
    ask(engine, [2] * 59)
    found = ask(engine, [1] * 41)
    assert found.get("resident", 0) + found.get("hit", 0) == 40 and found["last"] == 1
    engine.close()


def prometheus(v: Any) -> Any:
    """vLLM's metrics with stand-ins of prometheus_client's."""
    kinds = {kind: kind for kind in (fake_vllm.Counter, fake_vllm.Gauge)}
    return v.Connector.build_prom_metrics(None, kinds, ["engine"], {0: ["0"]})


@pytest.mark.parametrize("extra, text", [
    ({}, "host_memory is missing"),
    ({"host_memory": "8 gigs"}, "host_memory"),
    ({"host_memory": "8GiB", "sture": "file:/x"}, "sture is unknown"),
    ({"host_memory": "8GiB", "deadline": -1}, "deadline"),
    ({"host_memory": "8GiB", "weights": "no/such/place"}, "weights"),
    ({"host_memory": "8GiB", "store": [1]}, "store"),
    ({"host_memory": "8GiB", "load": "never"}, "load: is 'never', expected sooner or always"),
])
def test_settings_are_refused_by_name(v: Any, extra: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        v.Connector(config(extra), v.Role.SCHEDULER, groups())


class MambaSpec(SimpleNamespace):
    pass


def test_models_are_refused_by_name(v: Any) -> None:
    extra = {"host_memory": "1MiB"}
    for wrong, text in ((groups(spec(), spec(MambaSpec)), "FullAttentionSpec, MambaSpec"),
                        (SimpleNamespace(kv_cache_groups=[]), "of no kind"),
                        (groups(spec(), spec(SlidingWindowSpec, block_size=8)),
                         "differ in block_size.* 4, 8"),
                        (groups(*[spec()] * 9), "9 layer groups"),
                        (groups(spec(dtype="torch.uint8")), "uint8")):
        with pytest.raises(ValueError, match=text):
            v.Connector(config(extra), v.Role.SCHEDULER, wrong)
    with pytest.raises(ValueError, match="pipeline_parallel_size"):
        v.Connector(config(extra, pipeline_parallel_size=2), v.Role.WORKER, groups())
    worker = v.Connector(config(extra), v.Role.WORKER, windowed((0, 9)))
    with pytest.raises(ValueError, match="layer g1l0 has no KV of its own"):
        worker.register_kv_caches({f"g0l{i}": Tensor(np.zeros((9, HEADS, S, 2 * SIZE), np.float32))
                                   for i in range(LAYERS)})


def test_a_window_is_part_of_what_a_record_is_of(v: Any) -> None:
    """Also that of layers whose blocks vLLM keeps for all tokens, without its hybrid manager."""
    settings = v.module.Settings({"host_memory": "1MiB", "weights": WEIGHTS})
    made = [v.module.model_of(config({}), kv_cache, settings).fingerprint() for kv_cache in (
        groups(), groups(spec(sliding_window=9)), groups(spec(sliding_window=10)),
        groups(spec(attention_chunk_size=9)), windowed((9,)), windowed((0, 9)), windowed((0, 10)),
        windowed((9, 0)), windowed((0, 0)))]
    assert len(set(made)) == len(made)
    plain = v.module.v.layer_groups(groups())[1]
    assert sorted(v.module.v.engine_facts(config({}), spec(), plain)) == [
        "draft", "kv_type", "layout", "overrides", "rope", "version"]  # as earlier versions have them
