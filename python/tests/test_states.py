"""Recurrent state: the example of states.h, from Python."""

from __future__ import annotations

import pytest

import kvpager
from kvpager import Cache


def test_states_h() -> None:
    with Cache(n_blocks=32, block_tokens=4, state_slots=6) as cache:
        assert cache.config["state_slots"] == 6
        ns = cache.namespace()
        seq = ns.open(range(9))
        state = seq.state()
        assert (state.read_slot, state.write_slot, state.lost) == (0, 1, 0)
        assert (state.branch_end, state.prompt_end) == (0, 8)
        seq.commit(8)
        assert seq.checkpoint() == kvpager.CHECKPOINT_MADE
        assert seq.checkpoint() == kvpager.CHECKPOINT_THERE
        read, write = kvpager.states(cache, [seq])
        assert (read.tolist(), write.tolist()) == ([1], [2])
        assert ns.state_need(range(9)) == 1
        seq.commit(9)
        assert ns.state_need(range(9)) == 2

        other = ns.open(range(9))
        assert other.cached_tokens == 8
        assert kvpager.states(cache, [seq, other])[0].tolist() == [2, 1]
        stats = cache.state_stats()
        assert (stats.usable_slots, stats.made, stats.hits) == (5, 1, 1)
        with pytest.raises(kvpager.DroppedError):
            seq.truncate(4)
        cache.check()


def test_rings() -> None:
    with Cache(n_blocks=32, block_tokens=4, state_slots=7) as cache:
        seq = cache.namespace().open(range(8))
        seq.commit(8)
        assert cache.can_extend([seq], n_tokens=[7], rings=True).verdict == kvpager.ADMIT_LATER
        with pytest.raises(kvpager.NoBlocksError):
            cache.extend_many([seq], n_tokens=[7], rings=True)
        assert cache.can_extend([seq], n_tokens=[4], rings=True).verdict == kvpager.ADMIT_OK
        cache.extend_many([seq], n_tokens=[4], rings=True)
        assert seq.state().ring_slots == 3
        read, n, write = kvpager.state_rings(cache, [seq])
        assert (read.tolist(), n.tolist()) == ([1], [4])
        assert write.shape == (1, kvpager.STATE_RING_MAX)
        assert write[0].tolist() == [2, 3, 4, 1] + [-1] * 13
        seq.fill([8, 9])
        seq.commit(10)
        seq.truncate(10)
        assert seq.state().ring_slots == 0
        assert kvpager.states(cache, [seq])[0].tolist() == [3]
        with pytest.raises(kvpager.TooLongError):
            cache.extend_many([seq], n_tokens=[18], rings=True)
        cache.check()
    with Cache(n_blocks=32) as cache:
        seq = cache.namespace().open(range(16))
        with pytest.raises(kvpager.ArgError):
            cache.extend_many([seq], rings=True)
        with pytest.raises(kvpager.StateError):
            kvpager.state_rings(cache, [seq])
        with pytest.raises(kvpager.ArgError, match="state_rings"):
            kvpager.Scheduler(cache, draft_tokens=3, state_rings=1)


def test_rings_of_the_scheduler() -> None:
    cache = Cache(n_blocks=32, block_tokens=4, max_seqs=2, state_slots=7)
    scheduler = kvpager.Scheduler(cache, step_tokens=8, draft_tokens=3, state_rings=1)
    scheduler.submit(cache.namespace(), [1, 2, 3], max_new_tokens=9)
    scheduler.step()
    scheduler.finish([10])
    step = scheduler.step()
    read, n, write = kvpager.state_rings(cache, step.seqs["seq"])
    assert (n.tolist(), len(set(write[0, :4].tolist()))) == ([4], 4)
    scheduler.finish([20, 21], counts=[2])
    assert kvpager.states(cache, step.seqs["seq"])[0].tolist() == [write[0, 1]]
    assert cache.state_stats().held_slots == 1
    scheduler.check()


def test_what_is_refused() -> None:
    with pytest.raises(kvpager.ArgError, match="host_blocks"):
        Cache(n_blocks=32, state_slots=6, host_blocks=8)
    with Cache(n_blocks=32) as cache:
        seq = cache.namespace().open(range(16))
        for call in (seq.checkpoint, seq.state, lambda: kvpager.states(cache, [seq])):
            with pytest.raises(kvpager.StateError):
                call()
        with pytest.raises(kvpager.StateError):
            cache.namespace().state_need(range(16))
        assert cache.state_stats().usable_slots == 0


def test_overlapped_steps_build_on_each_other() -> None:
    with Cache(n_blocks=32, block_tokens=4, state_slots=6, steps=kvpager.STEPS_OVERLAPPED) as cache:
        seq = cache.namespace().open(range(9))
        for end, slots in ((4, (0, 1)), (8, (1, 2))):
            assert tuple(a.tolist() for a in kvpager.states(cache, [seq])) == ([slots[0]], [slots[1]])
            step, _ = cache.step_begin()
            cache.step_commit(step, [seq], [end])
            with pytest.raises(kvpager.StateError):
                kvpager.states(cache, [seq])
            seq.extend([])
        cache.step_failed(2)
        assert seq.state().read_slot == 1
        assert cache.state_stats().parked_slots == 1
        cache.step_done(1)
        assert (seq.info().computed_tokens, cache.state_stats().parked_slots) == (4, 0)
        cache.check()


def test_a_state_is_lost_if_the_step_of_its_copy_fails() -> None:
    with Cache(n_blocks=32, block_tokens=4, state_slots=6, host_blocks=8, host_state_slots=4,
               steps=kvpager.STEPS_OVERLAPPED) as cache:
        seq = cache.namespace().open(range(8))
        seq.commit(8)
        cache.swap_out([seq])
        step, _ = cache.step_begin()
        cache.step_done(step)
        cache.swap_in([seq], reserve=1)
        step, copies = cache.step_begin()
        assert [int(c["group"]) for c in copies].count(1) == 1
        assert cache.step_failed(step).tolist() == [seq.handle]
        assert seq.state().lost == 1
        cache.check()


def test_the_scheduler_keeps_states() -> None:
    with Cache(n_blocks=32, block_tokens=4, state_slots=6) as cache:
        with kvpager.Scheduler(cache, max_running=4) as sched:
            ns = cache.namespace()
            sched.submit(ns, range(9), max_new_tokens=1)
            assert sched.step().seqs["n_tokens"].tolist() == [8]
            sched.finish([])
            step = sched.step()
            assert step.seqs["n_tokens"].tolist() == [1]
            read, write = kvpager.states(cache, step.seqs["seq"])
            assert (read.tolist(), write.tolist()) == ([1], [2])
            sched.finish([5])
            stats = sched.stats()
            assert (stats.checkpoints, stats.skipped_checkpoints, stats.promised_slots) == (1, 0, 0)
        with kvpager.Scheduler(cache, preempt=kvpager.PREEMPT_SWAP) as sched:
            assert sched.stats().swapped_out == 0


def test_the_way_back_needs_slots() -> None:
    with Cache(n_blocks=32, block_tokens=4, state_slots=4, host_blocks=9,
               host_state_slots=3) as cache:
        seq = cache.namespace().open(range(8))
        seq.commit(8)
        cache.swap_out([seq])
        assert cache.state_swap_need([seq]) == 1
        assert cache.state_swap_need([seq], reserve=1) == 1
    with Cache(n_blocks=32, block_tokens=4) as cache:
        seq = cache.namespace().open(range(8))
        with pytest.raises(kvpager.StateError):
            cache.state_swap_need([seq])


def test_a_shortage_of_slots_says_so() -> None:
    with Cache(n_blocks=32, block_tokens=4, state_slots=2) as cache:
        ns = cache.namespace()
        ns.open([1])
        with pytest.raises(kvpager.NoBlocksError) as error:
            ns.open([2])
        assert error.value.tier == kvpager.STATE_SLOTS
        assert "1 slots of state missing" in str(error.value)


def test_quotas_of_slots() -> None:
    with Cache(n_blocks=32, block_tokens=4, state_slots=6, quotas=1) as cache:
        ns = cache.namespace("a")
        ns.quota(2, tier=kvpager.STATE_SLOTS)
        seq = ns.open(range(9))
        seq.commit(8)
        assert seq.checkpoint() == kvpager.CHECKPOINT_MADE
        seq.close()
        info = ns.info()
        assert (info.state_quota, info.state_slots, info.cached_state_slots) == (2, 1, 1)
        assert (info.quota, info.host_state_slots) == (kvpager.NO_QUOTA, 0)
