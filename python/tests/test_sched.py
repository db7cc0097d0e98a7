"""The scheduler: a loop as an engine has it."""

from __future__ import annotations

import numpy as np
import pytest

import kvpager
from kvpager import Cache, Key, Prompt, Scheduler


def make(n_blocks: int = 9, **config: int) -> tuple[Cache, Scheduler]:
    cache = Cache(n_blocks=n_blocks, block_tokens=4, max_seqs=8, host_blocks=9, max_copies=32,
                  max_unit_keys=1)
    return cache, Scheduler(cache, step_tokens=16, preempt=kvpager.PREEMPT_SWAP)


def run(cache: Cache, scheduler: Scheduler) -> dict[int, list[int]]:
    """Runs all; gives {tag: new tokens by sample}."""
    done: dict[int, list[int]] = {}
    for _ in range(200):
        step = scheduler.step()
        if len(step.seqs) == 0:
            return done
        assert len(step.tokens) == int(step.seqs["n_tokens"].sum())
        cache.plan_take()
        kvpager.csr(cache, step.handles, step.seqs["begin"].copy(), step.seqs["n_tokens"].copy())
        sampled = np.arange(100, 100 + step.n_sampled, dtype=np.int32)
        for ended in scheduler.finish(sampled):
            done.setdefault(int(ended["tag"]), []).append(int(ended["new_tokens"]))
        scheduler.check()
        cache.check()
    raise AssertionError("does not end")


def test_more_requests_than_memory() -> None:
    cache, scheduler = make()
    ns = cache.namespace()
    prompts = [list(range(1, 11)), [1, 2, 3, 4, 11, 12], list(range(21, 29)), [1, 2, 3, 4, 5]]
    for tag, prompt in enumerate(prompts):
        scheduler.submit(ns, prompt, max_new_tokens=5, n_samples=2 if tag == 1 else 1, tag=tag)
    assert run(cache, scheduler) == {0: [5], 1: [5, 5], 2: [5], 3: [5]}
    stats = scheduler.stats()
    assert (stats.submitted, stats.ended) == (4, 4)
    assert cache.stats().open_seqs == 0


def test_life_of_a_request() -> None:
    cache, scheduler = make()
    ns = cache.namespace()
    request = scheduler.submit(ns, [1, 2, 3], max_new_tokens=4, priority=-2, tag=7)
    info = scheduler.request_info(request)
    assert (info.state, info.priority, info.tag) == (kvpager.REQUEST_WAITING, -2, 7)
    step = scheduler.step()
    assert step.admitted.tolist() == [request]
    assert step.tokens.tolist() == [1, 2, 3]
    with pytest.raises(kvpager.StateError):
        scheduler.step()
    scheduler.finish([42])
    assert scheduler.tokens(request).tolist() == [1, 2, 3, 42]
    assert scheduler.tokens(request, begin=2, end=4).tolist() == [3, 42]
    assert scheduler.sample_info(request).computed_tokens == 3
    scheduler.pause(request)
    assert len(scheduler.step().seqs) == 0
    scheduler.resume(request)
    assert len(scheduler.step().seqs) == 1
    scheduler.fail()
    scheduler.abort(request)
    with pytest.raises(kvpager.HandleError):
        scheduler.request_info(request)


def test_requests_that_are_held_while_they_are_loaded() -> None:
    cache = Cache(n_blocks=16, block_tokens=4, max_seqs=8)
    scheduler = Scheduler(cache, step_tokens=16, max_loading=2)
    ns = cache.namespace()
    first, second, third = (scheduler.submit(ns, [10 * i, 1, 2], max_new_tokens=1, tag=i)
                            for i in range(3))
    never = scheduler.submit(ns, [7], max_new_tokens=1, tag=3, load=False, store=False)
    assert (scheduler.request_info(never).flags
            == kvpager.SUBMIT_NO_LOAD | kvpager.SUBMIT_NO_STORE)
    assert scheduler.loadable().tolist() == [first, second, third]
    assert scheduler.loadable(1).tolist() == [first]
    scheduler.hold(first, 2 ** 64 - 1)
    scheduler.hold(second, 10 ** 18)
    with pytest.raises(kvpager.AgainError):
        scheduler.hold(third, 5)
    scheduler.skip_load(third)
    assert scheduler.loadable().tolist() == []
    assert scheduler.request_info(second).state == kvpager.REQUEST_LOADING
    assert scheduler.request_info(second).load_deadline == 10 ** 18
    step = scheduler.step()
    assert (step.admitted.tolist(), step.n_loading) == ([third, never], 2)
    scheduler.finish([5, 6])
    none = scheduler.tick(10 ** 18 - 1)
    assert (none.requests.tolist(), none.n_loading, none.next_deadline) == ([], 2, 10 ** 18)
    expired = scheduler.tick(10 ** 18)
    assert (expired.requests.tolist(), expired.n_loading) == ([second], 1)
    scheduler.release(first)
    with pytest.raises(kvpager.StateError):
        scheduler.release(first)
    assert scheduler.tick(0).next_deadline is None
    assert run(cache, scheduler) == {0: [1], 1: [1]}
    stats = scheduler.stats()
    assert (stats.held, stats.released, stats.expired, stats.skipped) == (2, 1, 1, 1)


def test_requests_that_wait_for_a_prefix() -> None:
    cache = Cache(n_blocks=32, block_tokens=4, max_seqs=8)
    scheduler = Scheduler(cache, step_tokens=64, wait_for_prefix=True)
    ns = cache.namespace()
    prompt = list(range(20))
    for tag in range(3):
        scheduler.submit(ns, prompt + [100 + tag, 7], max_new_tokens=1, tag=tag)
    step = scheduler.step()
    assert (len(step.tokens), step.waited[kvpager.WAIT_PREFIX]) == (22, 2)
    scheduler.finish([5])
    assert len(scheduler.step().tokens) == 2 * 2
    scheduler.finish([5, 6])
    stats = scheduler.stats()
    assert (stats.followed, stats.waited[kvpager.WAIT_PREFIX]) == (2, 2)
    with pytest.raises(kvpager.ArgError):
        Scheduler(cache, wait_for_prefix=2)


def test_an_urgent_request_gets_a_place() -> None:
    cache = Cache(n_blocks=32, block_tokens=4, max_seqs=8)
    scheduler = Scheduler(cache, max_running=1, step_tokens=64, make_way=True)
    ns = cache.namespace()
    slow = scheduler.submit(ns, list(range(8)), max_new_tokens=20, priority=5)
    scheduler.step()
    scheduler.finish([9])
    urgent = scheduler.submit(ns, list(range(20, 28)), max_new_tokens=1)
    step = scheduler.step()
    assert (list(step.preempted), list(step.admitted)) == ([slow], [urgent])
    with pytest.raises(kvpager.ArgError, match="make_way"):
        Scheduler(cache, make_way=2)


def test_a_long_prompt_takes_half_of_a_step() -> None:
    cache = Cache(n_blocks=64, block_tokens=4, max_seqs=8)
    ns = cache.namespace()
    half = Scheduler(cache, step_tokens=64)
    half.submit(ns, list(range(100)), max_new_tokens=1)
    assert len(half.step().tokens) == 32
    half.close()
    whole = Scheduler(cache, step_tokens=64, chunk_tokens=0)
    whole.submit(ns, list(range(100)), max_new_tokens=1)
    assert len(whole.step().tokens) == 64


def test_evictions_ahead_of_need() -> None:
    cache = Cache(n_blocks=129, block_tokens=4, max_seqs=8)
    ns = cache.namespace()
    seq = ns.open(np.arange(1000, 1512, dtype=np.int32))
    seq.commit(512)
    seq.close()
    scheduler = Scheduler(cache, step_tokens=64, free_target=2)
    with pytest.raises(kvpager.StateError):
        scheduler.reclaim()
    scheduler.submit(ns, [1, 2, 3, 4], max_new_tokens=2)
    scheduler.step()
    assert scheduler.reclaim() == 1
    evicted = cache.stats().evicted_blocks
    scheduler.finish([5])
    scheduler.step()
    assert cache.stats().evicted_blocks == evicted
    with pytest.raises(kvpager.ArgError, match="free_target"):
        Scheduler(cache, free_target=3)


def test_drafts() -> None:
    cache = Cache(n_blocks=32, block_tokens=4, max_seqs=8)
    scheduler = Scheduler(cache, max_running=2, step_tokens=8, draft_tokens=3)
    request = scheduler.submit(cache.namespace(), [1, 2, 3], max_new_tokens=9)
    assert scheduler.step().drafts.tolist() == []
    scheduler.finish([10])
    step = scheduler.step()
    assert step.drafts.dtype == np.uint32 and step.drafts.tolist() == [3]
    for tokens, counts in (([20, 21], [3]), ([20, 21], [1, 1]), ([20], [])):
        with pytest.raises(kvpager.ArgError, match="tokens"):
            scheduler.finish(tokens, counts=counts)
    with pytest.raises(kvpager.ArgError):
        scheduler.finish([20, 21, 22, 23, 24], counts=[5])
    with pytest.raises(kvpager.ArgError, match="tokens"):
        scheduler.finish([20, 21, 22], [False, True], counts=[3])
    with pytest.raises(TypeError, match="counts"):
        scheduler.finish([20, 21, 22], counts=["3"])
    assert len(scheduler.finish([20, 21, 22], [False], counts=[3])) == 0
    assert scheduler.tokens(request).tolist() == [1, 2, 3, 10, 20, 21, 22]
    assert scheduler.step().seqs["begin"].tolist() == [6]
    ended = scheduler.finish([30, 31], np.array([True]), counts=np.array([2], np.uint32))
    assert ended["new_tokens"].tolist() == [6]
    stats = scheduler.stats()
    assert (stats.draft_tokens, stats.accepted_tokens) == (6, 3)
    scheduler.check()
    with pytest.raises(kvpager.ArgError, match="draft_tokens"):
        Scheduler(cache, draft_tokens=17)


def test_end_of_sequence() -> None:
    cache, scheduler = make()
    scheduler.submit(cache.namespace(), [1, 2, 3], max_new_tokens=10, tag=5)
    assert scheduler.step().n_sampled == 1
    ended = scheduler.finish([9], ended=np.array([True]))
    assert ended[["tag", "reason", "new_tokens", "is_last"]].tolist() == [
        (5, kvpager.END_STOPPED, 1, 1)]


def test_beams() -> None:
    cache, scheduler = make(n_blocks=32)
    request = scheduler.submit(cache.namespace(), [1, 2, 3, 4, 5], max_new_tokens=8, n_samples=3)
    assert scheduler.step().n_sampled == 3
    scheduler.finish([10, 11, 12])
    scheduler.step()
    scheduler.finish([20, 21, 22])
    scheduler.reorder(request, [1, 1, 0], [30, 31, 32])
    assert [scheduler.tokens(request, i).tolist()[5:] for i in range(3)] == [
        [11, 30], [11, 31], [10, 32]]
    with pytest.raises(kvpager.ArgError, match="parents"):
        scheduler.reorder(request, [0, 1])
    scheduler.check()


def test_wrong_number_of_samples() -> None:
    cache, scheduler = make()
    scheduler.submit(cache.namespace(), [1, 2, 3], max_new_tokens=4)
    scheduler.step()
    for tokens in ([], [1, 2]):
        with pytest.raises(kvpager.ArgError, match="tokens"):
            scheduler.finish(tokens)
    with pytest.raises(kvpager.ArgError, match="ended"):
        scheduler.finish([1], ended=np.zeros(2, np.uint8))
    scheduler.finish([1])


def test_never_tells_the_limit() -> None:
    cache, scheduler = make()
    with pytest.raises(kvpager.NeverError) as never:
        scheduler.submit(cache.namespace(), range(40), max_new_tokens=1)
    assert never.value.limit.max_prompt_tokens == 31  # type: ignore[attr-defined]


def test_borrowed_parts_live_until_the_end() -> None:
    cache, scheduler = make()
    ns = cache.namespace()
    hashes = kvpager.hash_units(range(8), 4, kvpager.hash_root(4))
    prompt = Prompt(range(8), keys=[Key(1, 0, 4, b"x")], uncached=[(6, 7)])
    scheduler.submit(ns, prompt, max_new_tokens=2)
    scheduler.submit(ns, Prompt(range(8), hashes=hashes), max_new_tokens=2)
    del prompt, hashes
    assert len(scheduler._borrowed) == 2
    run(cache, scheduler)
    assert len(scheduler._borrowed) == 0


def test_closes_with_its_cache() -> None:
    cache, scheduler = make()
    request = scheduler.submit(cache.namespace(), [1], max_new_tokens=1)
    cache.close()
    for call in (scheduler.step, scheduler.stats, lambda: scheduler.abort(request)):
        with pytest.raises(kvpager.ClosedError):
            call()


def test_shares_the_lock_of_its_cache() -> None:
    from kvpager._native import lib

    cache, scheduler = make()
    assert lib.kvpy_object_lock(cache._o) == 0
    with pytest.raises(kvpager.BusyError):
        scheduler.step()
    lib.kvpy_object_unlock(cache._o)
    assert len(scheduler.step().seqs) == 0


def test_collected_in_a_cycle() -> None:
    """The collector frees a cycle in any order; a scheduler goes before its cache all the same."""
    import gc

    for _ in range(20):
        cache, scheduler = make()
        scheduler.submit(cache.namespace(), [1, 2, 3], max_new_tokens=2)
        scheduler.step()
        cycle: list[object] = [cache, scheduler]
        cycle.append(cycle)
        cache.cycle = cycle  # type: ignore[attr-defined]
        del cache, scheduler, cycle
        gc.collect()


def test_a_step_is_metadata_as_it_is() -> None:
    cache, scheduler = make()
    model = cache.namespace()
    scheduler.submit(model, [1, 2, 3, 4, 5], max_new_tokens=1)
    scheduler.submit(model, [7, 8], max_new_tokens=1)
    step = scheduler.step()
    cache.plan_take()
    meta = kvpager.csr(cache, step.handles, step.begin, step.n_tokens)
    assert meta.positions.tolist() == [0, 1, 2, 3, 4, 0, 1]
    assert step.begin.tolist() == step.seqs["begin"].tolist() and step.begin.flags.c_contiguous
    assert step.n_tokens.tolist() == step.seqs["n_tokens"].tolist() == [5, 2]
    with pytest.raises(kvpager.ArgError, match=r"begin: .*not contiguous.* step\.begin"):
        kvpager.csr(cache, step.handles, step.seqs["begin"], step.n_tokens)


def test_refusals_say_what_to_do() -> None:
    cache, scheduler = make()
    model = cache.namespace()
    with pytest.raises(kvpager.StateError, match="no step is out: call step first"):
        scheduler.finish([])
    with pytest.raises(kvpager.NeverError, match=r"at most 31 tokens of a prompt can be served"):
        scheduler.submit(model, range(33), max_new_tokens=3)
    with pytest.raises(kvpager.NeverError, match=r"at most 31 tokens of a prompt, 32 with new ones"):
        scheduler.submit(model, range(30), max_new_tokens=3)
    scheduler.submit(model, [1, 2, 3], max_new_tokens=1)
    scheduler.step()
    with pytest.raises(kvpager.StateError, match="a step is out: end it with finish or fail"):
        scheduler.step()
    assert repr(scheduler) == f"<kvpager.Scheduler open, at most {scheduler._max_requests} requests>"
    cache.close()
    assert repr(scheduler).startswith("<kvpager.Scheduler closed")
