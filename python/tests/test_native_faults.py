"""Calls without cffi (native/calls*.c) whose end is not the usual one: refused, with an array that does
not fit, without memory. Each gives its buffers and memory back, and lets the next caller in."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import tracemalloc
import weakref
from array import array
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import kvpager
from kvpager._cache import COPY_DTYPE
from kvpager._core import I32, U32, U64, Struct, calls
from kvpager._meta import Cascade, Delta, Level
from kvpager._native import ffi, lib
from kvpager._records import Swapped
from kvpager._sched import ENDED_DTYPE, STEP_SEQ_DTYPE, Step
from kvpager._sequence import _refuse, handle_of
from kvpager._tiers import EVENT_DTYPE

S = 4
BAD = 1 << 40  # no sequence's handle
Call = Callable[[Any], tuple[Any, ...]]


def u64(*values: int) -> Any:
    return array("Q", values)


def u32(*values: int) -> Any:
    return array("I", values)


def i32(*values: int) -> Any:
    return array("i", values)


@pytest.fixture(autouse=True, scope="module")
def what_is_there_already() -> Iterator[None]:
    """Is not looked at again by each collection of what is lost."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def on() -> Iterator[Any]:
    """A cache with a host tier and a few events, of which the first are gone; a scheduler's, too."""
    with kvpager.Cache(n_blocks=32, block_tokens=S, max_seqs=8, max_seq_tokens=64, max_events=8,
                       host_blocks=16) as cache:
        model = cache.namespace()
        for i in range(8):  # more events than are kept
            with model.open(np.full(9, i, np.int32)) as seq:
                seq.commit(9)
        seqs = [model.open(np.arange(9, dtype=np.int32) + i) for i in range(2)]
        for seq in seqs:
            seq.commit(9)
        yield SimpleNamespace(cache=cache, h=cache._h, ns=model, seq=seqs[0],
                              seqs=u64(*(seq.handle for seq in seqs)),
                              long=model.open(np.arange(90, 150, dtype=np.int32)),
                              start=cache.events_snapshot()[0] - 3, prompt=kvpager.Prompt(i32(1, 2)),
                              wrong=kvpager.Prompt(i32(1, -5)), gone=handle_of(kvpager.Sequence, seqs[0]._o, BAD))
        cache.check()


# name: (arguments that are refused by C, arguments of which the last array does not fit or is of
# another type). What stands in the second half for None is given by kvpager itself, never by a user.
REFUSED: dict[str, Call] = {
    "extend": lambda on: (on.seq, i32(*range(200)), 0),
    "fill": lambda on: (on.seq, i32(1, 2)),
    "slots": lambda on: (on.seq, 9, 0, 1, array("q", [0])),
    "row": lambda on: (on.seq, 9, i32(*range(8))),
    "append": lambda on: (on.seq, 2**31),
    "blocks": lambda on: (on.gone, 0),
    "close": lambda on: (on.gone,),
    "commit": lambda on: (on.seq, 10),
    "extend_unknown": lambda on: (on.seq, 200, 0),
    "fork": lambda on: (on.seq, 10, 0),
    "retain": lambda on: (on.seq, 0, 4, 8),
    "truncate": lambda on: (on.seq, 10),
    "uncache": lambda on: (on.gone, 0, 4),
    "tokens": lambda on: (on.seq, 60, 8, i32(*range(8))),
    "can_open": lambda on: (on.ns, i32(-5)),
    "open": lambda on: (on.ns, i32(-5), 0, 0),
    "match": lambda on: (on.ns, i32(-5)),
    "open_prompt": lambda on: (on.ns, on.wrong._at),
    "match_prompt": lambda on: (on.ns, on.wrong._at),
    "match_hit": lambda on: (on.ns, i32(-5)),
    "short_hit": lambda on: (on.ns, SimpleNamespace(all_token_ids=[-5])),
    "extend_many": lambda on: (on.h, u64(BAD), i32(1), u32(1), 0, None),
    "fill_many": lambda on: (on.h, u64(BAD), i32(1), u32(1), 0, None),
    "commit_many": lambda on: (on.h, u64(BAD), u32(1)),
    "can_extend": lambda on: (on.h, u64(BAD), u32(1), 0),
    "measure": lambda on: (on.h, u64(BAD), None, None, 0),
    "swap_out": lambda on: (on.h, u64(BAD)),
    "swap_in": lambda on: (on.h, u64(BAD), 0),
    "can_swap_out": lambda on: (on.h, u64(BAD)),
    "can_swap_in": lambda on: (on.h, u64(BAD), 0),
    "events": lambda on: (on.h, 1, 4, i32(*range(4 * S)), 4 * S),
    "delta": lambda on: (on.h, u64(BAD), u64(0), u32(0), 0),
    "cascade": lambda on: (on.h, u64(BAD), None, None, 2, 0),
}
NOT_AS_WANTED: dict[str, Call] = {
    "extend": lambda on: (on.seq, array("q", [1]), 0),
    "fill": lambda on: (on.seq, array("f", [1])),
    "slots": lambda on: (on.seq, 0, 0, 4, array("q", [0])),
    "row": lambda on: (on.seq, 0, array("q", [0])),
    "tokens": lambda on: (on.seq, 0, 8, i32(0)),
    "can_open": lambda on: (on.ns, array("q", [1])),
    "open": lambda on: (on.ns, array("q", [1]), 0, 0),
    "match": lambda on: (on.ns, array("q", [1])),
    "match_hit": lambda on: (on.ns, array("q", [1])),
    "extend_many": lambda on: (on.h, on.seqs, i32(1, 2, 3), u32(1, 1), 0, i32(0, 0)),
    "fill_many": lambda on: (on.h, on.seqs, i32(1, 2), u32(1, 1), 0, i32(0)),
    "commit_many": lambda on: (on.h, on.seqs, u32(1)),
    "can_extend": lambda on: (on.h, on.seqs, u32(1), 0),
    "measure": lambda on: (on.h, on.seqs, u32(0, 0), u32(1), 0),
    "events": lambda on: (on.h, 1, 4, i32(0), 4 * S),
    "delta": lambda on: (on.h, on.seqs, u64(0, 0), u32(0), 0),
    "cascade": lambda on: (on.h, on.seqs, u32(0, 0), u32(1), 2, 0),
    "ints": lambda on: ([1, 2, "x"], i32(0, 0, 0, 0), 0, 3),
    "short_hit": lambda on: (on.ns, SimpleNamespace(all_token_ids=[1, "x"])),
    "plan_take": lambda on: (on.h, np.empty(2, np.int8)),
}
# What works, for the calls whose memory fails: a call that changes something may do it once only.
WORKS: dict[str, Call] = {
    "row": lambda on: (on.seq, 0, i32(*range(8))),
    "can_open": lambda on: (on.ns, i32(1, 2)),
    "match": lambda on: (on.ns, i32(1, 2)),
    "match_hit": lambda on: (on.ns, i32(1, 2)),
    "short_hit": lambda on: (on.ns, SimpleNamespace(all_token_ids=(1, 2), cache_salt=None, lora_request=None,
                                                    mm_features=(), skip_reading_prefix_cache=False)),
    "blocks": lambda on: (on.long, 0),
    "measure": lambda on: (on.h, on.seqs, None, None, 0),
    "can_extend": lambda on: (on.h, on.seqs, u32(1, 1), 0),
    "can_swap_out": lambda on: (on.h, on.seqs),
    "events": lambda on: (on.h, on.start, 4, i32(*range(4 * S)), 4 * S),
    "delta": lambda on: (on.h, on.seqs, None, None, 0),
    "cascade": lambda on: (on.h, on.seqs, None, None, 2, 0),
    "plan_take": lambda on: (on.h, np.empty(2, COPY_DTYPE)),
    "stats": lambda on: (on.h,),
    "match_prompt": lambda on: (on.ns, on.prompt._at),
    "shortage": lambda on: (on.h,),
    "opened": lambda on: (on.seq,),
}
# Take what they need from Python's lists of free objects.
LITTLE = {"can_extend", "can_open", "can_swap_out", "match", "match_prompt", "match_hit", "measure", "opened", "plan_take",
          "row", "short_hit", "shortage"}
# Have tests of their own.
ALONE = {"setup", "setup_steps", "handle", "dlpack", "fill_meta", "sched_step", "sched_finish"}


def test_no_call_is_forgotten() -> None:
    named = {name for name in dir(calls) if not name.startswith("_") and name != "Handle"}
    assert named == REFUSED.keys() | NOT_AS_WANTED.keys() | WORKS.keys() | ALONE


def given_back(arguments: tuple[Any, ...]) -> None:
    """An array that somebody still looks at cannot grow."""
    for one in arguments:
        if isinstance(one, array):
            one.append(one[0])
            one.pop()


def references(objects: list[Any]) -> list[int]:
    return [sys.getrefcount(one) for one in objects]


def keeps_nothing(name: str, arguments: tuple[Any, ...], raises: type[Exception] | None = None) -> None:
    """40 calls take no memory, and no reference to what they are given, use or give."""
    call, made = getattr(calls, name), None
    if raises is None:
        made = call(*arguments)
    else:
        with pytest.raises(raises, match="^kvpager._calls: " if raises is SystemError else None):
            call(*arguments)
    parts = made if isinstance(made, tuple) else (made,)
    used = [None, True, False, *arguments, *(getattr(one, "_o", 0) for one in arguments), type(made),
            *(type(one) for one in parts), *(one.dtype for one in parts if isinstance(one, np.ndarray))]

    def turn() -> None:
        try:
            call(*arguments)
        except Exception as error:
            assert type(error) is raises

    del made, parts
    keep_nothing(used, turn)
    given_back(arguments)


class Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")]


INFO: Any = getattr(ctypes.CDLL(None), "mallinfo2", None)
if INFO:
    INFO.restype = Mallinfo


def given_out() -> int:
    """Bytes that malloc has given out; 0: the C library does not tell."""
    return int(INFO().uordblks) if INFO else 0


def keep_nothing(used: list[Any], turn: Callable[[], None]) -> None:
    """Forty turns of what leaves things as they were, twice: C's memory, and Python's."""
    grown = []
    for _ in range(3):  # what Python keeps for later it keeps once
        gc.collect()
        before = given_out()
        for _ in range(40):
            turn()
        grown.append(given_out() - before)
    assert min(grown) < 600
    gc.collect()
    counts = references(used)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(40):
            turn()
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 600
        for one, then, now in zip(used, counts, references(used)):
            assert abs(now - then) < 20, f"{one!r}: {then} references, now {now}"
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_refused_call_keeps_nothing(on: Any, name: str) -> None:
    arguments = REFUSED[name](on)
    status = getattr(calls, name)(*arguments)
    assert isinstance(status, int) and status < 0
    keeps_nothing(name, arguments)


@pytest.mark.parametrize("name", sorted((REFUSED.keys() | WORKS.keys()) - {"opened"}))
def test_a_call_beside_another_thread_or_after_the_end(on: Any, name: str) -> None:
    """Readers are let in; the others leave the lock to whom it belongs."""
    with kvpager.Scheduler(on.cache) as sched:
        sched.submit(on.ns, i32(1), max_new_tokens=8)
        sched.step()
        call, arguments, o = getattr(calls, name), (WORKS.get(name) or REFUSED[name])(on), on.cache._o
        assert lib.kvpy_object_lock(o) == 0
        try:
            for _ in range(2):
                made = call(*arguments)
                is_busy = isinstance(made, int) and made == kvpager.BusyError.status
                assert is_busy != (name in ("events", "stats"))
                assert calls.sched_finish(sched._h, i32(1), None) == kvpager.BusyError.status
                assert calls.sched_step(sched._h) == kvpager.BusyError.status
            assert lib.kvpy_object_lock(o) != 0
        finally:
            lib.kvpy_object_unlock(o)
        sched.fail()
        sched.close()
        assert calls.sched_finish(sched._h, i32(1), None) == calls.sched_step(sched._h) == lib.KVPY_E_CLOSED
    on.cache.check()
    with kvpager.Cache(n_blocks=8, block_tokens=S, max_seqs=2, max_seq_tokens=16, max_events=8) as cache:
        model = cache.namespace()
        seq = model.open([1])
        changed = {"cache": cache, "h": cache._h, "ns": model, "seq": seq, "long": seq, "gone": seq}
        arguments = (WORKS.get(name) or REFUSED[name])(SimpleNamespace(**{**vars(on), **changed}))
    assert call(*arguments) == lib.KVPY_E_CLOSED


WRONG = {TypeError: ("x", None, 1.5), OverflowError: (-1, 2**70)}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_call_with_wrong_arguments_keeps_nothing(on: Any, name: str) -> None:
    """As many as there are, a handle, and numbers of 32 or 64 bits."""
    right = REFUSED[name](on)
    for wrong in (right[:-1], (*right, 0), (None, *right[1:]), (on.cache, *right[1:]), ()):
        keeps_nothing(name, wrong, SystemError)
    for i, argument in enumerate(right):
        if isinstance(argument, int):
            for kind, values in WRONG.items():
                for value in values:
                    keeps_nothing(name, (*right[:i], value, *right[i + 1:]), kind)


@pytest.mark.parametrize("name", sorted(NOT_AS_WANTED))
def test_an_array_that_does_not_fit_keeps_nothing(on: Any, name: str) -> None:
    arguments = NOT_AS_WANTED[name](on)
    assert getattr(calls, name)(*arguments) is None
    keeps_nothing(name, arguments)


@pytest.mark.parametrize("name", sorted(WORKS))
def test_a_call_without_memory_keeps_nothing(on: Any, name: str) -> None:
    """The n-th piece of memory that it takes is refused: MemoryError, KVP_E_NO_MEMORY, or None for the
    longer way; and then it works."""
    faults = pytest.importorskip("_testcapi")
    call, arguments = getattr(calls, name), WORKS[name](on)
    right, refused = call(*arguments), 0
    assert right is not None and not (isinstance(right, int) and right < 0), right
    for n in range(60):
        made: Any = None
        faults.set_nomemory(n, n + 1)
        try:
            made = call(*arguments)
        except MemoryError:
            made = MemoryError
        finally:
            faults.remove_mem_hooks()
        given_back(arguments)
        is_refused = made is None or made is MemoryError or (type(made) is int and made == kvpager.NoMemoryError.status)
        refused += is_refused
        assert is_refused or type(made) is type(right)
        assert type(call(*arguments)) is type(right), "the next caller is let in"
    assert refused > 0 or name in LITTLE
    keeps_nothing(name, arguments)


def test_a_sequence_without_memory_is_closed(on: Any) -> None:
    """What opens or forks it, and has no object for it, leaves nothing open."""
    faults, n_open = pytest.importorskip("_testcapi"), on.cache.stats().open_seqs
    tokens, refused, kept = i32(*range(9)), 0, list[Any]()
    for call, given in ((calls.open, (on.ns, tokens, 0, 0)), (calls.fork, (on.seq, 9, 0))):
        for n in range(12):
            made = None
            faults.set_nomemory(n, n + 1)
            try:
                made = call(*given)
            except MemoryError:
                refused += 1
            finally:
                faults.remove_mem_hooks()
            kept += [made] if made is not None else []
            assert on.cache.stats().open_seqs == n_open + len(kept)
            for seq in kept:
                seq.close()
            kept.clear()
    assert refused >= 2
    given_back((tokens,))


def test_a_scheduler_s_calls_keep_nothing() -> None:
    """A finish of the wrong length, and steps without memory: their requests wait again."""
    faults, refused = pytest.importorskip("_testcapi"), 0
    with kvpager.Cache(n_blocks=32, block_tokens=S, max_seqs=8, max_seq_tokens=64) as cache, \
            kvpager.Scheduler(cache) as sched:
        sched.submit(cache.namespace(), np.arange(9, dtype=np.int32), max_new_tokens=8)
        for n in range(40):
            faults.set_nomemory(n, n + 1)
            try:
                step: Any = calls.sched_step(sched._h)
            except MemoryError:
                step = None
            finally:
                faults.remove_mem_hooks()
            if step is None:
                refused += 1
            else:
                assert isinstance(step, tuple), step
                sched.fail()
        assert refused > 3
        assert len(sched.step().seqs) == 1
        tokens = i32(*range(5))
        assert calls.sched_finish(sched._h, tokens, None) < 0
        given_back((tokens,))
        keeps_nothing("sched_finish", (sched._h, tokens, None))
        tokens = i32(1)
        assert calls.sched_finish(sched._h, tokens, array("q", [0])) is None
        given_back((tokens,))
        cache.check()


def test_what_a_scheduler_makes_is_gone_with_its_owner() -> None:
    with kvpager.Cache(n_blocks=32, block_tokens=S, max_seqs=8, max_seq_tokens=64) as cache, \
            kvpager.Scheduler(cache) as sched:
        ns, tokens, flags = cache.namespace(), i32(1), array("B", [1])

        def turn() -> None:
            sched.submit(ns, tokens, max_new_tokens=8)
            step = calls.sched_step(sched._h)
            assert calls.sched_finish(sched._h, tokens, flags if step.number % 2 else None).size == step.number % 2
            place = ffi.gc(ffi.new("kvpy_step **"), lib.kvpy_step_free)
            if sched.stats().submitted > sched.stats().ended:
                assert lib.kvpy_sched_step(sched._o, place) == 0
                sched.finish(tokens, flags)

        keep_nothing([type(sched.step()), ENDED_DTYPE, STEP_SEQ_DTYPE, sched._o], turn)
        given_back((tokens, flags))


def test_a_finish_without_memory() -> None:
    """The step is done, whether its caller learns what ended or not."""
    faults, refused = pytest.importorskip("_testcapi"), 0
    with kvpager.Cache(n_blocks=32, block_tokens=S, max_seqs=8, max_seq_tokens=64) as cache, \
            kvpager.Scheduler(cache) as sched:
        ns, tokens, flags = cache.namespace(), i32(1), array("B", [1])
        for n in range(10):
            sched.submit(ns, tokens, max_new_tokens=8)
            sched.step()
            made: Any = None
            faults.set_nomemory(n, n + 1)
            try:
                made = calls.sched_finish(sched._h, tokens, flags)
            except MemoryError:
                pass
            finally:
                faults.remove_mem_hooks()
            assert made is None or isinstance(made, np.ndarray) or made == kvpager.NoMemoryError.status
            refused += not isinstance(made, np.ndarray)
            assert sched.stats().ended == n + 1
        assert refused > 2
        given_back((tokens, flags))
        cache.check()


def test_what_changes_something_keeps_nothing(on: Any) -> None:
    """Turns that leave the cache as it was: what each made is gone."""
    tokens, few, used = i32(*range(9)), i32(5, 6), [on.ns._o, kvpager.Sequence, kvpager.Released, kvpager.OpenInfo]

    def turn() -> None:
        made = [calls.open(on.ns, tokens, 0, 0), calls.open_prompt(on.ns, on.prompt._at)]
        made.append(calls.fork(made[0], 8, 7))
        one = kvpager.handles_of(made[:1])
        assert calls.opened(made[0]).hit_tokens == 8 and made[0]._seq_info().n_tokens == 9
        assert calls.extend(made[0], few, 0) == calls.append(made[0], 7) == calls.commit(made[0], 12) == 0
        assert calls.extend_unknown(made[0], 2, 0) == calls.fill(made[0], few) == 0
        assert calls.retain(made[0], 0, 4, 1) == calls.uncache(made[0], 12, 14) == 0
        assert calls.extend_many(on.h, one, few, u32(2), 0, None) == calls.commit_many(on.h, one, u32(4)) == 0
        assert sum(calls.swap_out(on.h, one)[:2]) > 0 and sum(calls.swap_in(on.h, one, 0)[:2]) > 0
        assert sum(calls.truncate(made[0], 4)) > 0
        for seq in made:
            assert isinstance(calls.close(seq), kvpager.Released)
        on.cache.plan_take()

    keep_nothing(used, turn)
    given_back((tokens, few))


def test_a_handle_tells_who_looks_at_it_that_it_is_gone(on: Any) -> None:
    told = list[Any]()
    seq: Any = on.ns.open([1])
    looks = weakref.ref(seq, told.append)
    seen: Any = looks()
    assert seen is seq
    seq.close()
    del seq, seen
    gc.collect()
    assert looks() is None and told == [looks]


def as_they_should_be() -> None:
    """Calls whose memory is as large as what they are given, or find."""
    cache = kvpager.Cache(n_blocks=1024, block_tokens=S, max_seqs=128, max_seq_tokens=1024, max_events=4096)
    ns, h, prompt = cache.namespace(), cache._h, np.arange(8, dtype=np.int32)
    with ns.open(prompt) as seq:
        seq.commit(8)
    for n in 1, 2, 31, 64, 100:
        seqs = [ns.open(np.append(prompt, np.arange(i % 7, dtype=np.int32))) for i in range(n)]
        handles, rows = kvpager.handles_of(seqs), [calls.blocks(seq, 0) for seq in seqs]
        full = calls.delta(h, handles, None, None, 0)
        assert full.entries.tolist() == [block for row in rows for block in row]
        assert full.indptr.tolist() == [0, *np.cumsum([len(row) for row in rows])] and not full.start.any()
        later = calls.delta(h, handles, full.version, full.blocks, 0)
        assert later.version.tolist() == full.version.tolist() and not len(later.entries)
        assert later.blocks.tolist() == full.blocks.tolist() == [len(row) for row in rows]
        for levels in 1, 2, 5, kvpager.META_LEVELS_MAX:
            made = calls.cascade(h, handles, None, None, levels, 0)
            assert sorted(made.order.tolist()) == list(range(n)) and 1 <= len(made.levels) <= levels
            for level in made.levels:
                assert level.qo_indptr[-1] == sum(max(i % 7, 1) for i in range(n))
                assert len(level.kv_indices) == level.kv_indptr[-1]
                assert len(level.kv_indptr) == len(level.qo_indptr) == len(level.last_block_len) + 1
        for seq in seqs:
            seq.close()
    long = ns.open(np.arange(1000, dtype=np.int32))
    assert [len(calls.blocks(long, at)) for at in (0, 100, 185, 186, 187, 250)] == [250, 150, 65, 64, 63, 0]
    long.commit(1000)
    for capacity in 1, 2, 250, 4096:
        found = calls.events(h, 1, capacity, np.empty(S * capacity, np.int32), S * capacity)
        assert len(found) == min(capacity, 250) and isinstance(found, np.ndarray)
    assert calls.events(h, 1, 4097, None, 0) is None and calls.events(h, 1, 4096, i32(1), 2) is None
    sched = kvpager.Scheduler(cache)
    for n in 1, 3, 60:
        for i in range(n):
            sched.submit(ns, [1], max_new_tokens=1, tag=i)
        step = calls.sched_step(sched._h)
        assert len(step.seqs) == len(step.tokens) == len(step.admitted) == n
        ended = calls.sched_finish(sched._h, np.zeros(n, np.int32), None)
        assert ended["tag"].tolist() == list(range(n))


def test_no_call_writes_where_it_may_not() -> None:
    """Python's own guards around each piece of memory."""
    as_they_should_be()
    subprocess.run([sys.executable, "-c", "import test_native_faults as it; it.as_they_should_be()"], check=True,
                   cwd=os.path.dirname(__file__), env={**os.environ, "PYTHONMALLOC": "debug"})


def test_metadata_that_does_not_fit_keeps_nothing(on: Any) -> None:
    buffers = kvpager.CsrBuffers(2, 64, 64)
    for status, seqs, counts, room in ((0, on.seqs, u32(1, 1), 2), (None, on.seqs, u32(1), 2),
                                       (None, on.seqs, u32(1, 1), 1), (None, array("q", [1]), None, 2)):
        arguments = on.h, seqs, None, counts, 0, 0, room, buffers._at
        assert calls.fill_meta(*arguments) == status
        keeps_nothing("fill_meta", arguments)
    assert calls.fill_meta(on.h, u64(BAD), None, None, 0, 0, 2, buffers._at) < 0


def test_a_handle_is_one_of_a_handle_s_class(on: Any) -> None:
    where = int(ffi.cast("uintptr_t", on.seq._o))
    keeps_nothing("handle", (kvpager.Sequence, on.seq._o, where, on.seq.handle))
    keeps_nothing("handle", (int, on.seq._o, where, on.seq.handle), SystemError)
    keeps_nothing("handle", (kvpager.Sequence, on.seq._o, where), TypeError)
    keeps_nothing("handle", (3, on.seq._o, where, on.seq.handle), TypeError)


def test_a_capsule_keeps_its_tensor_alone() -> None:
    layout = kvpager.Layout(type=kvpager.F32, n_blocks=4, block_tokens=16, n_layers=1, n_heads=2, k_size=64, v_size=64)
    tensor = kvpager.Memory.create(layout.arrange(kvpager.ORDER_CPU)).layer(0).tensor(0)
    where, type_ = tensor._address, tensor.type
    keeps_nothing("dlpack", (tensor, where, type_, tensor.shape, tensor.strides))
    keeps_nothing("dlpack", (tensor, where, type_, (1,) * 8, (1,) * 8))
    for shape, strides, error in (((1,) * 9, (1,) * 9, MemoryError), ((1, 2), (1,), SystemError),
                                  ((1, "x"), (1, 1), TypeError), ((1, 1), (1, 2**70), OverflowError),
                                  ([1], (1,), TypeError)):
        keeps_nothing("dlpack", (tensor, where, type_, shape, strides), error)


def test_what_sets_the_calls_up_is_checked(on: Any) -> None:
    """Structs that are another size than here, and fewer of them."""
    pairs = tuple((made, Struct(made).codes) for made in (
        kvpager.OpenInfo, kvpager.Released, kvpager.Admission, kvpager.SeqInfo, kvpager.Stats,
        kvpager.Shortage, kvpager.MetaSizes))
    stats, (first, codes), wrong = on.cache.stats(), pairs[0], cast(Any, None)
    try:
        for wrong in ((first, codes[1:]), (first, codes + "i"), (first, "f" + codes[1:]),
                      (first, codes[:-1] + "\ud800"), (first, b""), (first,), 3):
            with pytest.raises((SystemError, TypeError, UnicodeEncodeError)):
                calls.setup(kvpager.Sequence, _refuse, (wrong, *pairs[1:]))
        for few in (pairs[:-1], ()):
            with pytest.raises(IndexError):
                calls.setup(kvpager.Sequence, _refuse, few)
        for given in ((3, _refuse, pairs), (kvpager.Sequence, _refuse, list(pairs)), (kvpager.Sequence, _refuse)):
            with pytest.raises(TypeError):
                calls.setup(*given)
    finally:
        held = [kvpager.Sequence, _refuse, *(made for made, _ in pairs)]
        before = references(held)
        calls.setup(kvpager.Sequence, _refuse, pairs)
        assert [now - then for then, now in zip(before, references(held))] == [1] * len(held)
    assert on.cache.stats() == stats and on.seq.info().n_tokens == 9
    dtypes, types = (I32, U32, U64, EVENT_DTYPE, STEP_SEQ_DTYPE, ENDED_DTYPE), (Delta, Level, Cascade, Step, Swapped)
    try:
        for i in range(len(dtypes)):
            with pytest.raises(SystemError):
                calls.setup_steps(np.empty, (*dtypes[:i], np.dtype(np.int8), *dtypes[i + 1:]), types)
        for wrong in ((np.empty, dtypes[:-1], types), (np.empty, dtypes, types[:-1]), (np.empty, (), types)):
            with pytest.raises(IndexError):
                calls.setup_steps(*wrong)
        for wrong in ((np.empty, (3, *dtypes[1:]), types), (np.empty, list(dtypes), types), (np.empty, dtypes, []),
                      (lambda n, of: of, ("i4", *dtypes[1:]), types)):
            with pytest.raises((TypeError, AttributeError)):
                calls.setup_steps(*wrong)
    finally:
        calls.setup_steps(np.empty, dtypes, types)
    assert isinstance(kvpager.delta(on.cache, on.seqs), Delta)
