"""Other threads while a call runs, for real: what they may do, and that long calls let them."""

from __future__ import annotations

import os
import pathlib
import resource
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import kvpager
from kvpager import Cache
from kvpager._core import calls

from test_bad_input import BESIDE, CALLS, PURE, World, good_arguments


def test_every_call_while_a_save_waits(tmp_path: pathlib.Path) -> None:
    """A save that waits for a block's KV is inside the cache, without the interpreter's lock."""
    world, path, go_on = World(), tmp_path / "snapshot", threading.Event()
    world.cache.plan_take()

    def get(block: kvpager.SnapshotBlock, out: Any) -> None:
        go_on.wait()

    saver = threading.Thread(target=world.cache.save, args=(path,),
                             kwargs={"block_bytes": 4, "get": get})
    saver.start()
    try:
        while saver.is_alive():  # until it is inside
            try:
                world.cache.shortage()
            except kvpager.BusyError:
                break
        for name in sorted(set(CALLS) - PURE - BESIDE):
            arguments = {"seqs": world.handles, "request": world.request,
                         **{n: v for n, v in good_arguments(name).items() if n != "request"}}
            with pytest.raises(kvpager.BusyError):
                CALLS[name][0](world, arguments)
        with pytest.raises(kvpager.BusyError):
            world.cache.close()
        assert world.cache.stats().open_seqs == 2
    finally:
        go_on.set()
        saver.join()
    assert kvpager.snapshot_peek(path)["block_tokens"] == 4
    world.state()


def test_a_call_out_of_a_call(tmp_path: pathlib.Path) -> None:
    """What a save asks for a block's KV may not use the cache: not in its own thread either. And nothing
    waits for the lock: what would be counted are naps of a millisecond."""
    cache, refused = Cache(n_blocks=16, block_tokens=4), list[str]()
    ns = cache.namespace()
    with ns.open(range(8)) as seq:
        seq.commit(8)

    def get(block: kvpager.SnapshotBlock, out: Any) -> None:
        for call in (cache.check, lambda: ns.open([1]), cache.close, lambda: kvpager.Scheduler(cache)):
            with pytest.raises(kvpager.BusyError):
                call()
        refused.append("all")

    before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    cache.save(tmp_path / "x", block_bytes=8, get=get)
    assert refused == ["all", "all"]
    assert resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before < 5000
    cache.check()


def test_a_child_does_not_have_its_parents_cache() -> None:
    cache = Cache(n_blocks=16, block_tokens=4)
    ns = cache.namespace()
    seq = ns.open(range(6))

    def child() -> None:
        for call in (cache.check, lambda: ns.open([1]), lambda: seq.commit(6), seq.close):
            with pytest.raises(kvpager.BusyError):
                call()
        assert cache.stats().open_seqs == 1
        cache.recover()
        seq.commit(6)
        seq.close()
        cache.check()
        os._exit(0)

    pid = os.fork()
    if pid == 0:
        try:
            child()
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    seq.commit(6)
    seq.close()
    cache.check()


@pytest.fixture
def no_switches() -> Iterator[None]:
    """The interpreter takes its lock from nobody: another thread runs only when it is let go."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000.0)
    yield
    sys.setswitchinterval(interval)


def calls_of(n_tokens: int, n_seqs: int) -> dict[str, Callable[[], Any]]:
    """With as many tokens, or as many sequences. What would change something is refused."""
    cache = Cache(n_blocks=1 << 12, block_tokens=16, max_seqs=128, host_blocks=64, max_events=8)
    ns, tokens = cache.namespace(), np.arange(n_tokens, dtype=np.int32)
    prompt = kvpager.Prompt(tokens)
    seqs = [ns.open(np.arange(i, i + 20, dtype=np.int32)) for i in range(n_seqs)]
    handles, few = kvpager.handles_of(seqs), np.array([1], np.uint64)
    wrong, counts = np.ones(n_seqs, np.uint64), np.ones(n_seqs, np.uint32)
    zeros, one = np.zeros(n_seqs, np.int32), ns.open(tokens)
    slots, values, many = np.empty(n_tokens, np.int64), np.empty(n_tokens, np.int32), np.array([n_tokens], np.uint32)
    buffers, h = kvpager.CsrBuffers(128, 4096, 4096), cache._h
    return {
        "open": lambda: calls.open(ns, tokens, 0, 0).close(), "match": lambda: calls.match(ns, tokens),
        "open_prompt": lambda: calls.open_prompt(ns, prompt._at).close(),
        "match_prompt": lambda: calls.match_prompt(ns, prompt._at),
        "match_hit": lambda: calls.match_hit(ns, tokens), "can_open": lambda: calls.can_open(ns, tokens),
        "extend": lambda: calls.extend(ns, tokens, 0), "fill": lambda: calls.fill(one, tokens),
        "slots": lambda: calls.slots(one, 0, 0, n_tokens, slots),
        "tokens": lambda: calls.tokens(one, 0, n_tokens, values),
        "extend_many": lambda: calls.extend_many(h, wrong, zeros, counts, 0, None),
        "extend_many of one": lambda: calls.extend_many(h, few, tokens, many, 0, None),
        "fill_many": lambda: calls.fill_many(h, wrong, zeros, counts, 0, None),
        "fill_many of one": lambda: calls.fill_many(h, few, tokens, many, 0, None),
        "commit_many": lambda: calls.commit_many(h, wrong, counts),
        "can_extend": lambda: calls.can_extend(h, handles, counts, 0),
        "fill_meta": lambda: buffers.fill(cache, handles),
        "measure": lambda: calls.measure(h, handles, None, None, 0),
        "swap_out": lambda: calls.swap_out(h, wrong), "swap_in": lambda: calls.swap_in(h, wrong, 0),
        "can_swap_out": lambda: calls.can_swap_out(h, handles),
        "can_swap_in": lambda: calls.can_swap_in(h, wrong, 0),
        "delta": lambda: calls.delta(h, handles, None, None, 0),
        "cascade": lambda: calls.cascade(h, handles, None, None, 2, 0),
    }


def long_calls() -> dict[str, Callable[[], Any]]:
    cache, prompt = Cache(n_blocks=1 << 14, block_tokens=16), np.arange(8192, dtype=np.int32)
    layout = kvpager.Layout(type=kvpager.F32, n_blocks=64, block_tokens=16, n_layers=2, n_heads=4,
                            k_size=64, v_size=64).arrange(kvpager.ORDER_VLLM_NHD)
    memory = kvpager.Memory.create(layout)
    return {
        **calls_of(1024, 32), "check": cache.check,
        "hash_units": lambda: kvpager.hash_units(prompt, 16, bytes(16)),
        "gather": lambda: memory.gather(np.arange(1, 64, dtype=np.int32), 0, 0, 1000),
    }


def another(ran: list[bool]) -> threading.Thread:
    """Runs as soon as the interpreter's lock is let go."""
    go = threading.Event()

    def other() -> None:
        go.wait()
        ran.append(True)

    thread = threading.Thread(target=other)
    thread.start()
    go.set()
    return thread


@pytest.mark.parametrize("name", sorted(long_calls()))
def test_long_calls_let_other_threads_run(no_switches: None, name: str) -> None:
    """Sooner or later the other thread comes in while the call runs; never, if the call kept the
    lock."""
    call, ran = long_calls()[name], list[bool]()
    thread = another(ran)
    for _ in range(5_000_000):
        call()
        if ran:
            break
    assert ran, "the other thread never ran"
    thread.join()


@pytest.mark.parametrize("name", sorted(calls_of(1, 1)))
def test_short_calls_keep_the_lock(no_switches: None, name: str) -> None:
    """Letting go of it costs more than they do."""
    call, ran = calls_of(1023, 31)[name], list[bool]()
    thread = another(ran)
    for _ in range(30_000):
        call()
    assert not ran
    thread.join()
