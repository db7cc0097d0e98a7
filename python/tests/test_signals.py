"""Exceptions of signals' handlers inside constructors and calls: they may come between any two
steps of Python, and nothing that the library created may stay behind, nor any lock."""

from __future__ import annotations

import gc
import importlib.util
import mmap
import os
import pathlib
import sys
import tempfile
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest

import kvpager as k
from alarm import Alarm, Interrupted
from kvpager._native import lib

store: Any = None
MODULES = [lib]
if importlib.util.find_spec("kvpager._store_native") is not None:  # built with libcrypto
    store = importlib.import_module("kvpager.store")
    MODULES.append(store.lib)

PACKAGE = os.path.dirname(str(k.__file__))


def interrupted(at: int, call: Callable[[], Any]) -> bool:
    """Raises before step `at` of the package's Python in a call; False: it has fewer steps."""
    seen = 0

    def step(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal seen
        # Python 3.12 also tells steps of the handling of an exception, which have no line. No
        # signal is taken there.
        if event == "opcode" and frame.f_lineno is not None:
            seen += 1
            if seen == at:
                raise Interrupted
        return step

    def enter(frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        frame.f_trace = step  # Python 3.13 wants it first
        frame.f_trace_opcodes = True
        return step

    sys._getframe().f_trace_opcodes = True  # Python 3.12 looks at it when a trace is set
    sys.settrace(enter)
    try:
        call()
    except Interrupted:
        return True
    finally:
        sys.settrace(None)
    return False


def counts() -> tuple[int, int]:
    """What the library created, and what of it was destroyed."""
    return (sum(module.kvpy_objects_created() for module in MODULES),
            sum(module.kvpy_objects_destroyed() for module in MODULES))


def kept() -> int:
    made, gone = counts()
    return made - gone


class World:
    """What the constructors take."""

    def __init__(self) -> None:
        self.cache = k.Cache(n_blocks=64, block_tokens=4, max_seqs=16)
        self.layout = k.Layout(type=k.F32, n_blocks=64, block_tokens=4, n_layers=1, n_heads=1,
                               k_size=8, v_size=8).arrange(k.ORDER_CPU)
        self.memory = k.Memory.create(self.layout)
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder, "log")
            other = k.Cache(n_blocks=64)
            with other.record(log):
                other.namespace("a").open([1, 2]).close()
            self.log = log.read_bytes()

    def tensor(self) -> Any:
        return np.zeros(64 * 4 * 8 * 2, np.float32)


CONSTRUCTORS: dict[str, Callable[[World], Any]] = {
    "Cache": lambda w: k.Cache(n_blocks=64, max_seqs=16, arena=mmap.mmap(-1, 1 << 20)),
    "Scheduler": lambda w: k.Scheduler(w.cache, step_tokens=16),
    "Sender": lambda w: k.Sender(w.cache),
    "Mirror": lambda w: k.Mirror(),
    "OpLog": lambda w: k.OpLog(w.log),
    "Memory.create": lambda w: k.Memory.create(w.layout),
    "Memory.wrap": lambda w: k.Memory.wrap(w.layout, [w.tensor()]),
    "Copier": lambda w: k.Copier(w.memory, n_threads=2),
    "AttentionTeam": lambda w: k.AttentionTeam(2),
    "Loopback": lambda w: k.Loopback(1 << 16, 2),
    "TransferSender": lambda w: k.TransferSender(w.cache, w.memory, model="m"),
    "TransferReceiver": lambda w: k.TransferReceiver(w.cache, w.memory, model="m"),
    "Store.open": lambda w: store.Store.open("memory:?size=16MiB", fingerprint=bytes(range(32)),
                                             block_bytes=[4096]),
    "digest_root": lambda w: store.digest_root(bytes(range(32)), "a"),
}


def made_by(name: str) -> Callable[[], Any]:
    world = World()
    if store is None and name in ("Store.open", "digest_root"):
        pytest.skip("built without stores")
    CONSTRUCTORS[name](world)  # what is made once stays
    gc.collect()
    return lambda: CONSTRUCTORS[name](world)


def right(name: str, before: int) -> bool:
    """An interrupted call may have had the digester that was kept for the next."""
    return kept() == before or name == "digest_root" and kept() in (before - 1, before)


@pytest.mark.parametrize("name", sorted(CONSTRUCTORS))
def test_a_constructor_interrupted_at_every_step(name: str) -> None:
    call = made_by(name)
    before, at = kept(), 1
    created, threads = counts()[0], len(os.listdir("/proc/self/task"))
    while interrupted(at, call):
        assert right(name, before), f"step {at} of {name}: something stays behind"
        at += 1
    gc.collect()
    assert at > 20 and right(name, before)
    assert counts()[0] - created > 3  # interrupted after the library had created it, too
    assert len(os.listdir("/proc/self/task")) == threads


# In a weak reference's callback, Python reports an exception and goes on.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", sorted(CONSTRUCTORS))
def test_a_constructor_under_a_timer(name: str) -> None:
    """As the step by step one, but by signals, which also come where no step of Python begins."""
    call, before, n_interrupted = made_by(name), kept(), 0
    with Alarm() as alarm:
        for i in range(400):
            try:
                alarm.arm((i % 80 + 1) * 2e-6)
                call()
                alarm.disarm()
            except Interrupted:
                n_interrupted += 1
    gc.collect()
    assert right(name, before)
    print(name, n_interrupted, "of 400 interrupted")


def test_a_child_interrupted_closes_before_its_cache() -> None:
    """The traceback may keep a scheduler alive for longer than its cache is open."""
    for make in (k.Scheduler, k.Sender):
        at = 1
        while True:
            cache = k.Cache(n_blocks=16, block_tokens=4)
            lost: list[Any] = []

            def call() -> None:
                child = make.__new__(make)
                lost.append(child)  # as a traceback would
                child.__init__(cache)  # type: ignore[misc]

            more = interrupted(at, call)
            cache.close()
            assert not lost or not hasattr(lost[0], "_o") or not lib.kvpy_object_is_open(lost[0]._o)
            if not more:
                break
            at += 1
        assert at > 20


def test_a_lock_is_given_back_at_every_step() -> None:
    world = World()
    log, team, mirror = k.OpLog(world.log), k.AttentionTeam(2), k.Mirror(**k.wire_config(world.cache))
    message = k.Sender(world.cache).encode([], [], statuses=[], full=True)
    q, one = np.zeros((1, 1, 8), np.float32), np.array([1], np.int32)
    lists = k.CsrLists(np.array([0, 1], np.int32), one, one)

    def attention() -> None:
        k.attention(layer=world.memory.layer(0), q=q, query_start=np.array([0, 1], np.int32),
                    lists=lists, team=team)

    calls: dict[Any, Callable[[], Any]] = {
        log._o: lambda: list(log), mirror._o: lambda: mirror.apply(message), team._o: attention}
    for made, call in calls.items():
        at = 1
        while True:
            try:
                more = interrupted(at, call)
            except k.StateError:  # a message comes once
                more = True
            assert lib.kvpy_object_lock(made) == 0, f"step {at} keeps the lock"
            lib.kvpy_object_unlock(made)
            if not more or at > 2000:
                break
            at += 1
        assert at > 20


def test_a_dlpack_capsule_holds_its_tensor_once() -> None:
    tensor, at = World().memory.layer(0).tensor(k.K), 1
    held = sys.getrefcount(tensor)
    while interrupted(at, tensor.__dlpack__):
        assert sys.getrefcount(tensor) == held, f"step {at} keeps the tensor"
        at += 1
    assert at > 5 and sys.getrefcount(tensor) == held
    capsule = tensor.__dlpack__()
    assert sys.getrefcount(tensor) == held + 1
    del capsule
    assert sys.getrefcount(tensor) == held


def test_no_operation_is_lost_at_any_step_of_a_poll() -> None:
    if store is None:
        pytest.skip("built without stores")
    at, more = 1, True
    with store.Store.open("memory:?size=16MiB", fingerprint=bytes(range(32)), block_bytes=[4096],
                          threads=0) as place:
        while more:
            begun = [place.sync() for _ in range(3)]
            place.work()
            more = interrupted(at, place.poll)
            place.poll()
            assert [one.ok for one in begun] == [True] * 3, f"step {at}"
            assert place.n_out == 0 and not place._keep
            at += 1
            more = more or at < 40
        for at in range(1, 40):  # and what was not begun is not waited for
            interrupted(at, place.sync)
            list(place)
            assert place.n_out == 0 and not place._keep, f"step {at}"
