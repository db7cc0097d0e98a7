"""Calls without cffi (native/calls*.c) whose end is not the usual one: refused, with an array that does
not fit, without memory. Each gives its buffers and memory back, and lets the next caller in."""

from __future__ import annotations

import gc
import tracemalloc
from array import array
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import kvpager
from kvpager._cache import COPY_DTYPE
from kvpager._core import calls
from kvpager._sequence import handle_of

S = 4
BAD = 1 << 40  # no sequence's handle
Call = Callable[[Any], tuple[Any, ...]]


def u64(*values: int) -> Any:
    return array("Q", values)


def u32(*values: int) -> Any:
    return array("I", values)


def i32(*values: int) -> Any:
    return array("i", values)


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
                              start=cache.events_snapshot()[0] - 3)
        cache.check()


# name: (arguments that are refused by C, arguments of which the last array does not fit or is of
# another type). What stands in the second half for None is given by kvpager itself, never by a user.
REFUSED: dict[str, Call] = {
    "extend": lambda on: (on.seq, i32(*range(200)), 0),
    "fill": lambda on: (on.seq, i32(1, 2)),
    "slots": lambda on: (on.seq, 9, 0, 1, array("q", [0])),
    "row": lambda on: (on.seq, 9, i32(*range(8))),
    "blocks": lambda on: (handle_of(kvpager.Sequence, on.seq._o, BAD), 0),
    "tokens": lambda on: (on.seq, 60, 8, i32(*range(8))),
    "can_open": lambda on: (on.ns, i32(-5)),
    "open": lambda on: (on.ns, i32(-5), 0, 0),
    "match": lambda on: (on.ns, i32(-5)),
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
    "short_hit": lambda on: (on.ns, SimpleNamespace(all_token_ids=(1, 2))),
    "blocks": lambda on: (on.long, 0),
    "measure": lambda on: (on.h, on.seqs, None, None, 0),
    "can_extend": lambda on: (on.h, on.seqs, u32(1, 1), 0),
    "can_swap_out": lambda on: (on.h, on.seqs),
    "events": lambda on: (on.h, on.start, 4, i32(*range(4 * S)), 4 * S),
    "delta": lambda on: (on.h, on.seqs, None, None, 0),
    "cascade": lambda on: (on.h, on.seqs, None, None, 2, 0),
    "plan_take": lambda on: (on.h, np.empty(2, COPY_DTYPE)),
    "stats": lambda on: (on.h,),
    "shortage": lambda on: (on.h,),
    "opened": lambda on: (on.seq,),
}
# Take what they need from Python's lists of free objects.
LITTLE = {"can_extend", "can_open", "can_swap_out", "match", "match_hit", "measure", "opened", "plan_take",
          "row", "short_hit", "shortage"}
# Take no array and make nothing but a record; or are called with an address, which `Prompt` has.
PLAIN = {"append", "close", "commit", "extend_unknown", "fork", "retain", "truncate", "uncache",
         "open_prompt", "match_prompt", "setup", "setup_steps", "handle", "dlpack", "fill_meta",
         "sched_step", "sched_finish"}


def test_no_call_is_forgotten() -> None:
    named = {name for name in dir(calls) if not name.startswith("_") and name != "Handle"}
    assert named == REFUSED.keys() | NOT_AS_WANTED.keys() | WORKS.keys() | PLAIN


def given_back(arguments: tuple[Any, ...]) -> None:
    """An array that somebody still looks at cannot grow."""
    for one in arguments:
        if isinstance(one, array):
            one.append(one[0])
            one.pop()


def keeps_nothing(name: str, arguments: tuple[Any, ...]) -> None:
    call = getattr(calls, name)
    for _ in range(3):
        call(*arguments)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(100):
            call(*arguments)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 2000
    finally:
        tracemalloc.stop()
    given_back(arguments)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_refused_call_keeps_nothing(on: Any, name: str) -> None:
    arguments = REFUSED[name](on)
    status = getattr(calls, name)(*arguments)
    assert isinstance(status, int) and status < 0
    keeps_nothing(name, arguments)


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
        refused += made is None or made is MemoryError or (isinstance(made, int) and made < 0)
        assert made is None or made is MemoryError or type(made) in (type(right), int)
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
