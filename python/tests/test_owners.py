"""What nobody owns, or two would: sequences lost to a signal's exception, and copies."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

import kvpager
from alarm import Alarm, Interrupted
from kvpager import Cache


def open_calls(cache: Cache) -> dict[str, Callable[[], Any]]:
    ns = cache.namespace()
    parent = ns.open(range(4), tag=7)
    parent.commit(4)
    return {"open": lambda: ns.open(range(4), tag=7), "fork": lambda: parent.fork(tag=7)}


@pytest.mark.parametrize("which", ["open", "fork"])
def test_a_sequence_lost_at_the_return(which: str) -> None:
    """The exception comes when the call is done and its result not yet the caller's."""
    cache = Cache(n_blocks=64, block_tokens=4)
    call = open_calls(cache)[which]
    known = cache.sequences()

    def at_return(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "return" and frame.f_code.co_name == which:
            sys.settrace(None)
            raise Interrupted
        return at_return

    sys.settrace(at_return)
    try:
        with pytest.raises(Interrupted):
            call()
    finally:
        sys.settrace(None)
    lost = cache.sequences(but=known)
    assert [seq.info().tag for seq in lost] == [7]
    assert cache.stats().open_seqs == len(known) + 1
    lost[0].close()
    assert cache.sequences(but=[seq.handle for seq in known]) == []
    cache.check()


def interrupted_opens(ns: kvpager.Namespace, n: int, alarm: Alarm) -> set[int]:
    """Opens n times, each with a timer that raises soon; the handles that the caller got."""
    kept = set[int]()
    for i in range(n):
        try:
            alarm.arm((i % 40 + 1) * 5e-7)
            kept.add(ns.open([1, 2, 3]).handle)
            alarm.disarm()
        except Interrupted:
            pass
    return kept


def test_a_timer_that_interrupts() -> None:
    """Whatever is lost is listed, and nothing else."""
    cache = Cache(n_blocks=256, block_tokens=4, max_seqs=128)
    ns, n_lost = cache.namespace(), 0
    with Alarm() as alarm:
        for _ in range(50):
            kept = interrupted_opens(ns, 120, alarm)
            lost = cache.sequences(but=kept)
            n_lost += len(lost)
            assert len(lost) + len(kept) == cache.stats().open_seqs
            for seq in lost:
                seq.close()
            assert {seq.handle for seq in cache.sequences()} == kept
            for seq in cache.sequences():
                seq.close()
    print(n_lost, "of 6,000 were lost")
    assert cache.stats().open_seqs == 0
    cache.check()


def test_sequences_wants_sequences() -> None:
    cache = Cache(n_blocks=16, block_tokens=4)
    for wrong in (7, [None], ["a"]):
        with pytest.raises(TypeError):
            cache.sequences(but=wrong)


def owners() -> list[Any]:
    cache = Cache(n_blocks=16, block_tokens=4)
    ns = cache.namespace()
    layout = kvpager.Layout(type=kvpager.F32, n_blocks=4, block_tokens=4, n_layers=1, n_heads=1,
                            k_size=8, v_size=8)
    memory = kvpager.Memory.create(layout.arrange(kvpager.ORDER_CPU))
    return [cache, ns, ns.open([1, 2]), kvpager.Scheduler(cache), kvpager.Sender(cache),
            memory, kvpager.Copier(memory), kvpager.AttentionTeam(1), kvpager.Loopback()]


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy, pickle.dumps])
def test_an_owner_cannot_be_copied(make: Callable[[Any], Any]) -> None:
    for owner in owners():
        name = type(owner).__name__
        with pytest.raises(TypeError, match=f"^{name}: cannot be copied or pickled"):
            make(owner)
    cache = owners()[0]
    with pytest.raises(TypeError):
        copy.copy(cache)
    assert not cache.closed
    cache.namespace()
