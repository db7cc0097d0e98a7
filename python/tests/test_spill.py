"""Spills: KV that comes back after an eviction and after a restart, byte for byte; who owns what."""

from __future__ import annotations

import dataclasses
import gc
import os
import pathlib
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import kvpager as k
from kvpager import Cache, Sequence

store = pytest.importorskip("kvpager.store", exc_type=ImportError)
spill = pytest.importorskip("kvpager.spill", exc_type=ImportError)

S, SLOT = 4, 8  # tokens of a block, bytes of a token's KV
BLOCK, RECORD = S * SLOT, 2
MODEL = store.FingerprintInput(weights=bytes(range(32)), compute_type="bf16", type=k.BF16, k_size=2,
                               v_size=2, model_layers=1, model_heads=1, block_tokens=S,
                               unit_tokens=S)


class Engine:
    """A cache with its KV: each slot has 8 bytes that follow from all tokens up to it."""

    def __init__(self, url: str, n_blocks: int = 17, host_blocks: int = 33, **config: Any) -> None:
        self.cache = Cache(n_blocks=n_blocks, block_tokens=S, host_blocks=host_blocks, max_seqs=8,
                           max_loads=4, keep_evicted=True)
        self.kv = {k.DEVICE: np.zeros((n_blocks, BLOCK), np.uint8),
                   k.HOST: np.zeros((host_blocks, BLOCK), np.uint8)}
        self.disk = store.Store.open(url, fingerprint=MODEL.fingerprint(), block_bytes=[BLOCK],
                                     block_tokens=S, record_blocks=RECORD)
        given = {"policy": spill.SPILL_THROUGH, "min_tokens": 1, "compute_tokens_s": 1, **config}
        self.spill = spill.Spill(self.cache, self.disk, host=[self.kv[k.HOST]], **given)
        self.ns = self.cache.namespace("a")
        self.spill.space(self.ns, "model")
        self.plans = 0

    def run_plan(self) -> None:
        for copy in self.cache.plan_take():
            n = int(copy["n_tokens"]) * SLOT
            self.kv[int(copy["dst_tier"])][copy["dst_block"], :n] = (
                self.kv[int(copy["src_tier"])][copy["src_block"], :n])
        self.cache.plan_done(self.cache.stats().plans)

    def slots(self, seq: Sequence, begin: int, end: int) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        row = seq.row()
        for at in range(begin, end):
            block = self.kv[k.DEVICE][row[at // S]]
            yield at, block[at % S * SLOT:(at % S + 1) * SLOT]

    def compute(self, tokens: list[int], hit: int = 0) -> None:
        """Opens a prompt, finds `hit` tokens with the right KV, computes the rest, and closes."""
        seq = self.ns.open(tokens)
        assert seq.opened.hit_tokens == hit
        self.run_plan()
        for at, slot in self.slots(seq, 0, hit):
            assert slot.tobytes() == right(tokens, at), at
        for at, slot in self.slots(seq, hit, len(tokens)):
            slot[:] = np.frombuffer(right(tokens, at), np.uint8)
        seq.commit(len(tokens))
        self.spill.hit(seq, hit)
        self.spill.sealed(seq)
        seq.close()
        self.settle()

    def settle(self) -> list[Any]:
        answers = []
        for _ in range(400):
            answers += self.spill.work()
            self.run_plan()
            stats = self.spill.stats()
            if stats.puts + stats.gets + stats.waiting == 0:
                return answers
            self.disk.wait(0.05)
        raise AssertionError("the store does not end")

    def ask(self, tokens: list[int]) -> Any:
        answer = self.spill.ask(self.ns, tokens, tag=7)
        return self.settle()[-1] if answer.outcome == spill.SPILL_WAITS else answer

    def close(self) -> None:
        self.cache.close()
        self.disk.close()


def right(tokens: list[int], at: int) -> bytes:
    return hash(tuple(tokens[:at + 1])).to_bytes(8, "little", signed=True)


def url_of(path: pathlib.Path) -> str:
    return f"file:{path}/kv?size=4MiB"


FIRST = list(range(32))


def evict_all(engine: Engine) -> None:
    """Other content takes every block of both tiers."""
    for i in range(8):
        engine.compute(list(range(1000 * (i + 1), 1000 * (i + 1) + 32)))
    assert engine.ns.match(FIRST).hit_tokens == 0


def test_comes_back_after_an_eviction(tmp_path: pathlib.Path) -> None:
    engine = Engine(url_of(tmp_path))
    engine.compute(FIRST)
    evict_all(engine)
    answer = engine.ask([*FIRST, 99])
    assert (answer.outcome, answer.hit_tokens, answer.more_tokens) == (spill.SPILL_LOADED, 32, 32)
    assert spill.outcome_name(answer.outcome) == "loaded"
    engine.compute([*FIRST, 99], hit=32)
    stats = engine.spill.stats()
    assert stats.written >= 8 and stats.loaded == 4 and stats.store_tokens == 32
    assert stats.outcomes[spill.SPILL_LOADED] == 1
    engine.cache.check()
    engine.close()


def test_comes_back_after_a_restart(tmp_path: pathlib.Path) -> None:
    engine = Engine(url_of(tmp_path))
    engine.compute(FIRST)
    for _ in range(200):
        if engine.spill.flush():
            break
        engine.spill.work()
        engine.run_plan()
        engine.disk.wait(0.05)
    else:
        raise AssertionError("flush does not end")
    engine.close()
    engine = Engine(url_of(tmp_path))
    assert engine.ns.match(FIRST).hit_tokens == 0
    assert engine.ask([*FIRST, 5]).more_tokens == 32
    engine.compute([*FIRST, 5], hit=32)
    engine.spill.space(engine.ns, "model", epoch=1)  # other weights
    engine.close()
    engine = Engine(url_of(tmp_path))
    engine.spill.space(engine.ns, "model", epoch=1)
    assert engine.ask([*FIRST, 5]).outcome == spill.SPILL_NOTHING
    engine.close()


def test_what_is_dropped_does_not_come_back(tmp_path: pathlib.Path) -> None:
    engine = Engine(url_of(tmp_path))
    engine.compute(FIRST)
    engine.spill.drop(engine.ns, FIRST, 16)
    engine.settle()
    evict_all(engine)
    assert engine.ask([*FIRST, 5]).hit_tokens == 16
    engine.spill.space_close(engine.ns)
    with pytest.raises(k.StateError):
        engine.spill.ask(engine.ns, FIRST, tag=1)
    engine.close()


def test_second_use_is_what_is_written() -> None:
    engine = Engine("memory:?size=1MiB", policy=spill.SPILL_SECOND)
    engine.compute(FIRST)
    assert engine.spill.stats().written == 0
    engine.compute([*FIRST, 5], hit=32)
    assert engine.spill.stats().written == 4
    engine.close()


def test_waiting_requests() -> None:
    engine = Engine("memory:?size=1MiB")
    engine.compute(FIRST)
    evict_all(engine)
    assert engine.spill.ask(engine.ns, [*FIRST, 1], tag=1).outcome == spill.SPILL_WAITS
    assert engine.spill.ask(engine.ns, [*FIRST, 2], tag=2).outcome == spill.SPILL_WAITS
    engine.spill.abort(1)
    with pytest.raises(k.ArgError):
        engine.spill.abort(1)
    while not engine.spill.stop():
        engine.disk.wait(0.05)
        answers = engine.spill.work()
        assert [(one.tag, one.outcome) for one in answers] in ([], [(2, spill.SPILL_STOPPED)])
    assert engine.spill.ask(engine.ns, [*FIRST, 3], tag=3).outcome == spill.SPILL_WAITS
    engine.close()  # with a request that waits


def test_decide() -> None:
    given = {"bytes": 4096 * 131072, "n_tokens": 4096, "step_tokens": 16, "compute_tokens_s": 10 ** 4}
    assert spill.decide(load_bytes_s=10 ** 9, **given) == 0
    assert spill.decide(load_bytes_s=2 * 10 ** 9, **given) == 4096
    assert spill.decide(load_bytes_s=2 * 10 ** 9, left_ns=10 ** 8, **given) == 1520
    assert spill.decide(load_bytes_s=2 * 10 ** 9, left_ns=10 ** 8, min_tokens=1521, **given) == 0
    with pytest.raises(k.ArgError):
        spill.decide(load_bytes_s=0, **given)


def test_bad_arguments() -> None:
    engine = Engine("memory:?size=1MiB")
    spare = Cache(n_blocks=9, block_tokens=S)
    host = engine.kv[k.HOST]
    other = store.Store.open("memory:?size=1MiB", fingerprint=MODEL.fingerprint(),
                             block_bytes=[BLOCK], block_tokens=S, record_blocks=RECORD)
    with pytest.raises(k.StateError):
        spill.Spill(spare, other, host=[np.zeros(0, np.uint8)])
    with pytest.raises(k.ArgError, match="host"):
        spill.Spill(engine.cache, other, host=[])
    with pytest.raises(k.ArgError, match="bytes"):
        spill.Spill(engine.cache, other, host=[host[1:]])
    with pytest.raises(TypeError, match="no field"):
        spill.Spill(engine.cache, other, host=[host], max_ask=3)
    with pytest.raises(k.ArgError, match="max_asks"):
        spill.Spill(engine.cache, other, host=[host], max_asks=0)
    with pytest.raises(TypeError):
        spill.Spill(None, other, host=[host])
    with pytest.raises(TypeError):
        spill.Spill(engine.cache, None, host=[host])
    with pytest.raises(k.BusyError):
        spill.Spill(engine.cache, engine.disk, host=[host])
    assert store.lib.kvpy_object_lock(other._o) == 0
    with pytest.raises(k.BusyError):
        spill.Spill(engine.cache, other, host=[host])
    store.lib.kvpy_object_unlock(other._o)
    with pytest.raises(TypeError):
        engine.spill.ask(engine.cache, FIRST, tag=1)
    with pytest.raises(TypeError):
        engine.spill.hit(7, 1)
    engine.spill.computed(1000, 10 ** 9)
    assert engine.spill.stats().compute_tokens_s > 0
    spill.Spill(engine.cache, other, host=[host]).close()  # the refused ones left nothing
    other.close()
    engine.close()


# ------------------------------------------------------------------------------- who owns what


def test_the_store_is_the_spills() -> None:
    engine = Engine("memory:?size=1MiB")
    for call in (engine.disk.poll, engine.disk.sync, lambda: engine.disk.drop([bytes(32)])):
        with pytest.raises(k.BusyError, match="spill"):
            call()
    assert engine.disk.stats().records == 0
    engine.spill.close()
    engine.spill.close()
    assert engine.spill.closed and engine.disk.sync() is not None
    engine.disk.finish()
    with pytest.raises(k.ClosedError):
        engine.spill.work()
    engine.close()


@pytest.mark.parametrize("first", ["cache", "disk", "spill"])
def test_each_may_be_closed_first(first: str) -> None:
    engine = Engine("memory:?size=1MiB")
    seq = engine.ns.open(FIRST)
    engine.spill.hit(seq, 0)
    seq.commit(32)
    engine.spill.sealed(seq)
    engine.spill.work()  # with work that is on its way
    getattr(engine, first).close()
    with pytest.raises(k.ClosedError):
        engine.spill.stats()
    engine.close()


def test_neither_is_freed_while_the_spill_lives() -> None:
    engine = Engine("memory:?size=1MiB")
    engine.compute(FIRST)
    kept, host = engine.spill, weakref.ref(engine.kv[k.HOST])
    del engine
    gc.collect()
    assert host() is not None
    assert kept.stats().written == 4 and kept.work() == []
    seen = weakref.ref(kept)
    del kept
    gc.collect()
    assert seen() is None and host() is None


def alive() -> tuple[int, int]:
    """Objects of the two modules."""
    ours, native = store.lib, k._native.lib
    return (native.kvpy_objects_created() - native.kvpy_objects_destroyed(),
            ours.kvpy_objects_created() - ours.kvpy_objects_destroyed())


def test_the_object_itself_keeps_them() -> None:
    """Not only what refers to them in Python."""
    gc.collect()
    before = alive()
    engine = Engine("memory:?size=1MiB")
    kept = engine.spill._o
    del engine
    gc.collect()
    assert alive() == (before[0] + 1, before[1] + 2)
    del kept
    gc.collect()
    assert alive() == before


def test_in_a_cycle() -> None:
    """The collector frees cache, store and spill in any order, with writes on their way."""
    gc.collect()
    before = alive()
    for _ in range(10):
        engine = Engine("memory:?size=1MiB")
        seq = engine.ns.open(FIRST)
        seq.commit(32)
        engine.spill.sealed(seq)
        engine.spill.work()
        engine.me = engine  # type: ignore[attr-defined]
        del engine, seq
        gc.collect()
    assert alive() == before


def test_one_thread_at_a_time() -> None:
    """A call of another thread, on the cache or on the spill, is refused and not mixed in."""
    engine = Engine("memory:?size=1MiB")
    native = k._native.lib
    assert native.kvpy_object_lock(engine.cache._o) == 0
    with pytest.raises(k.BusyError):
        engine.spill.work()
    native.kvpy_object_unlock(engine.cache._o)
    assert store.lib.kvpy_object_lock(engine.disk._o) == 0
    with pytest.raises(k.BusyError):
        engine.spill.work()
    with pytest.raises(k.BusyError):
        engine.spill.close()
    store.lib.kvpy_object_unlock(engine.disk._o)
    assert native.kvpy_object_lock(engine.cache._o) == 0  # given back
    native.kvpy_object_unlock(engine.cache._o)
    errors: list[BaseException] = []

    def use() -> None:
        for i in range(300):
            try:
                engine.spill.work()
                engine.cache.stats()
                engine.ns.match([i, i + 1])
            except k.BusyError:
                pass
            except BaseException as error:
                errors.append(error)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    engine.cache.check()
    engine.close()


def test_a_forked_child_must_not_use_it() -> None:
    engine = Engine("memory:?size=1MiB")
    child = os.fork()
    if child == 0:
        try:
            engine.spill.work()
        except k.BusyError:
            engine.spill.close()  # nothing
            os._exit(3)
        os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    engine.compute(FIRST)
    engine.close()


def test_the_last_reference_closes_them_but_not_in_a_child() -> None:
    gc.collect()
    engine, before = Engine("memory:?size=1MiB"), alive()
    child = os.fork()
    if child == 0:
        del engine
        gc.collect()
        os._exit(alive()[1] != before[1])
    assert os.waitpid(child, 0)[1] == 0
    del engine
    gc.collect()
    assert alive()[1] == before[1] - 2


SLOTS, HOST_SLOTS, PLACES, STATE = 12, 4, 4, 24
WITH_STATES = dataclasses.replace(MODEL, states=b"24 bytes")


class Hybrid:
    """The same with recurrent state, which is kept after each `every` tokens of a prompt."""

    def __init__(self, url: str) -> None:
        self.cache = Cache(n_blocks=33, block_tokens=S, host_blocks=33, max_seqs=8, max_loads=4,
                           state_slots=SLOTS, host_state_slots=HOST_SLOTS)
        self.kv = {k.DEVICE: np.zeros((33, BLOCK), np.uint8),
                   k.HOST: np.zeros((33, BLOCK), np.uint8)}
        self.states = {k.DEVICE: np.zeros((SLOTS, STATE), np.uint8),
                       k.HOST: np.zeros((HOST_SLOTS + PLACES, STATE), np.uint8)}
        self.disk = store.Store.open(url, fingerprint=WITH_STATES.fingerprint(),
                                     block_bytes=[BLOCK, STATE], block_tokens=S,
                                     record_blocks=RECORD)
        self.spill = spill.Spill(self.cache, self.disk, policy=spill.SPILL_THROUGH, min_tokens=1,
                                 host=[self.kv[k.HOST], self.states[k.HOST]], max_states=PLACES,
                                 compute_tokens_s=1)
        self.ns = self.cache.namespace("a")
        self.spill.space(self.ns, "model")

    def run_plan(self) -> None:
        for copy in [*self.cache.plan_take(), *self.spill.copies()]:
            of = self.states if copy["group"] == 1 else self.kv
            of[int(copy["dst_tier"])][copy["dst_block"]] = (
                of[int(copy["src_tier"])][copy["src_block"]])
        self.cache.plan_done(self.cache.stats().plans)

    def compute(self, tokens: list[int], every: int) -> int:
        seq = self.ns.open(tokens)
        begin = seq.opened.hit_tokens
        self.run_plan()
        self.spill.hit(seq, begin)
        while begin < len(tokens):
            if begin > 0:
                state = self.states[k.DEVICE][seq.state().read_slot]
                assert state.tobytes()[:8] == right(tokens, begin - 1)
            end = min(begin // every * every + every, len(tokens))
            self.states[k.DEVICE][seq.state().write_slot, :8] = np.frombuffer(
                right(tokens, end - 1), np.uint8)
            seq.commit(end)
            if end < len(tokens):
                seq.checkpoint()
            self.spill.sealed(seq)
            self.run_plan()
            begin = end
        hit = seq.opened.hit_tokens
        seq.close()
        self.settle()
        return hit

    def settle(self) -> list[Any]:
        answers = []
        for _ in range(400):
            answers += self.spill.work()
            self.run_plan()
            stats = self.spill.stats()
            if stats.puts + stats.gets + stats.waiting == 0:
                return answers
            self.disk.wait(0.05)
        raise AssertionError("the store does not end")


def test_a_state_comes_back_after_a_restart(tmp_path: pathlib.Path) -> None:
    tokens = list(range(40))
    for ask in (False, True):
        engine = Hybrid(url_of(tmp_path))
        if ask:
            assert engine.spill.ask(engine.ns, tokens, tag=1).outcome == spill.SPILL_WAITS
            answer = engine.settle()[-1]
            assert (answer.outcome, answer.hit_tokens) == (spill.SPILL_LOADED, 32)
        assert engine.compute(tokens, every=16) == (32 if ask else 0)
        stats = engine.spill.stats()
        assert (stats.states_written, stats.states_loaded) == ((0, 1) if ask else (2, 0))
        engine.cache.close()
        engine.disk.close()


def test_host_of_states() -> None:
    engine = Hybrid("memory:?size=1MiB")
    engine.spill.close()
    for host, words in [([engine.kv[k.HOST]], "host: has 1, the store has 2 groups, the cache 2"),
                        ([engine.kv[k.HOST], engine.states[k.HOST][:-1]], r"host\[1\]")]:
        with pytest.raises(k.ArgError, match=words):
            spill.Spill(engine.cache, engine.disk, host=host, max_states=PLACES)
