"""Other threads while a call runs, for real: what they may do, and that long calls let them."""

from __future__ import annotations

import os
import pathlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import kvpager
from kvpager import Cache

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
    """What a save asks for a block's KV may not use the cache: not in its own thread either."""
    cache, refused = Cache(n_blocks=16, block_tokens=4), list[str]()
    ns = cache.namespace()
    with ns.open(range(8)) as seq:
        seq.commit(8)

    def get(block: kvpager.SnapshotBlock, out: Any) -> None:
        for call in (cache.check, lambda: ns.open([1]), cache.close):
            with pytest.raises(kvpager.BusyError):
                call()
        refused.append("all")

    cache.save(tmp_path / "x", block_bytes=8, get=get)
    assert refused == ["all", "all"]
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


def long_calls() -> dict[str, Callable[[], Any]]:
    cache = Cache(n_blocks=1 << 14, block_tokens=16, max_seqs=256)
    ns, prompt = cache.namespace(), np.arange(8192, dtype=np.int32)
    with ns.open(prompt) as seq:
        seq.commit(8192)
    seqs = [ns.open(np.arange(i, i + 20, dtype=np.int32)) for i in range(128)]
    handles, counts = kvpager.handles_of(seqs), np.full(128, 20, np.uint32)
    cache.commit_many(handles, counts)
    tokens, buffers = np.zeros(128, np.int32), kvpager.CsrBuffers(128, 4096, 4096)
    one = ns.open(prompt)
    slots, values = np.empty(4096, np.int64), np.empty(4096, np.int32)
    layout = kvpager.Layout(type=kvpager.F32, n_blocks=64, block_tokens=16, n_layers=2, n_heads=4,
                            k_size=64, v_size=64).arrange(kvpager.ORDER_VLLM_NHD)
    memory = kvpager.Memory.create(layout)

    def extend() -> None:
        cache.extend_many(handles, tokens)
        for seq in seqs:
            seq.truncate(20)

    return {
        "open": lambda: ns.open(prompt).close(), "match": lambda: ns.match(prompt),
        "can_open": lambda: ns.can_open(prompt), "slots": lambda: one.slots(0, 4096, slots),
        "tokens": lambda: one.tokens(0, 4096, values), "extend_many": extend,
        "commit_many": lambda: cache.commit_many(handles, counts),
        "can_extend": lambda: cache.can_extend(handles),
        "CsrBuffers.fill": lambda: buffers.fill(cache, handles),
        "measure": lambda: kvpager.measure(cache, handles), "check": cache.check,
        "hash_units": lambda: kvpager.hash_units(prompt, 16, bytes(16)),
        "gather": lambda: memory.gather(np.arange(1, 64, dtype=np.int32), 0, 0, 1000),
    }


@pytest.mark.parametrize("name", sorted(long_calls()))
def test_long_calls_let_other_threads_run(no_switches: None, name: str) -> None:
    """Sooner or later the other thread comes in while the call runs; never, if the call kept the
    lock."""
    call, go, ran = long_calls()[name], threading.Event(), list[bool]()

    def other() -> None:
        go.wait()
        ran.append(True)

    thread = threading.Thread(target=other)
    thread.start()
    go.set()
    for _ in range(1_000_000):
        call()
        if ran:
            break
    assert ran, "the other thread never ran"
    thread.join()
