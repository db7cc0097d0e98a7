"""The cache room: what the calls give, in Python's types."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

import kvpager
from kvpager import Cache, Key, Namespace, Prompt


def tokens(*values: int) -> npt.NDArray[np.int32]:
    return np.array(values, np.int32)


@pytest.fixture
def cache() -> Cache:
    return Cache(n_blocks=9, block_tokens=4, max_seqs=4, max_seq_tokens=64)


@pytest.fixture
def ns(cache: Cache) -> Namespace:
    return cache.namespace("llama-8b")


def test_embedding_guide(cache: Cache, ns: Namespace) -> None:
    """The numbers of docs/EMBEDDING.md, sections 2 to 7."""
    prompt = np.arange(11, 21, dtype=np.int32)
    a = ns.open(prompt)
    assert a.cached_tokens == 0
    assert a.row().tolist() == [1, 2, 3]
    assert a.slots(0, 10).tolist() == list(range(4, 14))
    a.commit(10)

    prompt[8:] = 91, 92
    b = ns.open(prompt)
    assert b.cached_tokens == 8
    assert b.row().tolist() == [1, 2, 4]
    assert b.slots(8, 2).tolist() == [16, 17]
    b.commit(10)

    running = kvpager.handles_of([a, b])
    cache.extend_many(running, tokens(21, 93))
    assert [int(seq.slots(10, 1)[0]) for seq in (a, b)] == [14, 18]
    cache.commit_many(running, np.array([11, 11], np.uint32))

    c = b.fork()
    c.append(94)
    plan = cache.plan_take()
    assert plan[["n_tokens", "src_block", "dst_block"]].tolist() == [(3, 4, 5)]
    assert c.slots(11, 1).tolist() == [23]
    c.commit(12)

    assert a.close() == (1, 0)
    assert c.close() == (0, 1)
    assert b.close() == (1, 2)

    a = ns.open(prompt[:8])
    assert (a.cached_tokens, a.opened.shared_blocks) == (7, 2)
    other = np.arange(1000, 1036, dtype=np.int32)
    answer = ns.can_open(other[:32])
    assert (answer.verdict, answer.need_blocks, answer.available) == (kvpager.ADMIT_LATER, 8, 6)
    with pytest.raises(kvpager.NeverError) as never:
        ns.open(other)
    assert never.value.missing == 1
    b = ns.open(other[:24])
    assert b.opened.taken_blocks == 6
    assert cache.evicted()["block"].tolist() == [5]
    cache.check()


def test_exceptions_have_class_and_missing(cache: Cache, ns: Namespace) -> None:
    held = ns.open(range(24))
    with pytest.raises(kvpager.NoBlocksError) as caught:
        ns.open(range(100, 112))
    assert isinstance(caught.value, kvpager.RetryError)
    assert (caught.value.missing, caught.value.tier) == (1, kvpager.DEVICE)
    assert (caught.value.status, caught.value.name) == (-7, "KVP_E_NO_BLOCKS")
    with pytest.raises(kvpager.NoBlocksError) as caught:
        other = ns.open(range(200, 208))
        cache.extend_many([held, other], [1, 2])
    assert (caught.value.missing, caught.value.index) == (2, 0)
    assert issubclass(kvpager.ArgError, ValueError)
    assert issubclass(kvpager.UnknownError, kvpager.DataError)
    assert issubclass(kvpager.CorruptError, kvpager.SystemFailure)


def test_every_status_has_an_exception() -> None:
    from kvpager._errors import BY_STATUS
    from kvpager._native import ffi, lib

    numbers = [number for number in ffi.typeof("kvp_status").relements.values() if number < 0]
    assert sorted(BY_STATUS) == sorted(numbers)
    bases = {lib.KVP_CLASS_RETRY: kvpager.RetryError, lib.KVP_CLASS_CALLER: kvpager.CallerError,
             lib.KVP_CLASS_DATA: kvpager.DataError, lib.KVP_CLASS_SYSTEM: kvpager.SystemFailure}
    for number, kind in BY_STATUS.items():
        assert issubclass(kind, bases[lib.kvp_status_class(number)])
        assert kind.name == ffi.string(lib.kvp_status_name(number)).decode()
        assert kind.text == ffi.string(lib.kvp_status_text(number)).decode()


def test_tokens_of_all_kinds(ns: Namespace) -> None:
    """Lists, ranges, arrays and buffers are the same prompt."""
    first = ns.open([1, 2, 3, 4, 5])
    first.commit(5)
    import array

    for prompt in ((1, 2, 3, 4, 5), range(1, 6), np.arange(1, 6, dtype=np.int32),
                   array.array("i", [1, 2, 3, 4, 5])):
        assert ns.match(prompt).cached_tokens == 4
    assert first.tokens().tolist() == [1, 2, 3, 4, 5]
    assert first.tokens(3, 2).tolist() == [4, 5]
    assert first.block_tokens(1).tolist() == [5]


def test_outputs_into_the_callers_arrays(cache: Cache, ns: Namespace) -> None:
    seq = ns.open(range(10))
    row, slots, values = (np.zeros(8, np.int32), np.zeros(8, np.int64), np.zeros(4, np.int32))
    assert np.shares_memory(seq.row(out=row), row)
    assert row.tolist() == [1, 2, 3, 0, 0, 0, 0, 0]
    assert seq.slots(8, 2, out=slots).tolist() == [12, 13]
    seq.tokens(6, 4, out=values)
    assert values.tolist() == [6, 7, 8, 9]
    copies = np.zeros(2, kvpager.COPY_DTYPE)
    seq.commit(10)
    child = seq.fork()
    child.append(1)
    assert np.shares_memory(cache.plan_take(out=copies), copies)
    with pytest.raises(kvpager.TooSmallError, match="out: has room for 1 blocks, needs 3"):
        seq.row(out=np.zeros(1, np.int32))


def test_long_rows_and_many_evictions() -> None:
    with Cache(n_blocks=400, block_tokens=1, max_seq_tokens=400) as cache:
        ns = cache.namespace()
        seq = ns.open(range(300))
        assert seq.row().tolist() == list(range(1, 301))
        seq.commit(300)
        seq.close()
        again = ns.open(range(1000, 1399))
        assert len(cache.evicted()) == 300
        assert cache.evicted()[0]["block"] == 300
        assert again.close().freed_blocks == 399


def test_prompt_options(cache: Cache, ns: Namespace) -> None:
    """Keys separate, uncached positions stop, hashes made ahead are taken."""
    cache = Cache(n_blocks=64, block_tokens=4, max_unit_keys=2)
    ns = cache.namespace("m")
    adapter = Key(7, 0, 8, b"adapter-1")
    with ns.open(Prompt(range(8), keys=[adapter])) as seq:
        seq.commit(8)
    assert ns.match(range(8)).hit_tokens == 0
    assert ns.match(Prompt(range(8), keys=[adapter])).hit_tokens == 8
    assert ns.match(Prompt(range(8), keys=[adapter], no_match=True)).stop == kvpager.STOP_OFF
    with ns.open(Prompt(range(50, 62), uncached=[(5, 6)], tag=99)) as seq:
        seq.commit(12)
        assert (seq.info().public_tokens, seq.info().tag) == (4, 99)
    hashes = kvpager.hash_units(range(50, 62), 4, kvpager.hash_root(4, "m"))
    assert hashes.shape == (3, 16)
    assert ns.match(Prompt(range(50, 62), hashes=hashes)).hit_tokens == 4
    with pytest.raises(ValueError, match="hashes: has 2, the prompt has 3"):
        ns.match(Prompt(range(50, 62), hashes=hashes[:2]))
    with pytest.raises(TypeError, match="hashes"):
        Prompt(range(12), hashes=hashes.astype(np.int32))


def test_keys_of_later_tokens() -> None:
    cache = Cache(n_blocks=64, block_tokens=4, max_unit_keys=2)
    ns = cache.namespace()
    image = Key(1, 4, 8, b"digest")
    whole = Prompt(range(12), keys=[image])
    for fill in (False, True):
        seq = ns.open(range(4))
        if fill:
            seq.extend_unknown(4)
            seq.fill(np.arange(4, 8, dtype=np.int32), keys=[image])
        else:
            seq.extend(np.arange(4, 8, dtype=np.int32), keys=[image])
        seq.commit(8)
        assert ns.match(whole).hit_tokens == 8 and ns.match(range(12)).hit_tokens == 4
        seq.close()
        cache.reset()
    seq = ns.open(range(4))
    with pytest.raises(kvpager.ArgError, match="keys"):
        seq.extend([4, 5], keys=[Key(1, 0, 2, b"before the new tokens")])


def test_hash_vector() -> None:
    """The first vectors of test/golden/hash_vectors.json."""
    import json

    path = pathlib.Path(__file__).parents[2] / "test" / "golden" / "hash_vectors.json"
    if not path.exists():
        pytest.skip("not in the repository: no golden vectors")
    text = json.loads(path.read_text())
    assert text, "no vectors"
    root = kvpager.hash_root(16, "")
    assert len(root) == 16 and root != kvpager.hash_root(16, "x") != kvpager.hash_root(8, "x")


def test_a_random_seed_makes_other_hashes() -> None:
    seeds = {kvpager.random_seed() for _ in range(64)}
    assert len(seeds) == 64 and all(0 <= seed < 2 ** 64 for seed in seeds)
    seed = seeds.pop()
    with Cache(hash_seed=seed) as cache:
        assert cache.config["hash_seed"] == seed
    assert kvpager.hash_root(4, seed=seed) != kvpager.hash_root(4)


def test_extend_unknown_and_fill(cache: Cache, ns: Namespace) -> None:
    seq = ns.open([1, 2])
    seq.extend_unknown(3)
    assert (seq.info().n_tokens, seq.info().known_tokens) == (5, 2)
    with pytest.raises(kvpager.UnknownError):
        seq.tokens(0, 5)
    seq.fill([3])
    cache.fill_many([seq], [4, 5], n_tokens=[2])
    assert seq.tokens().tolist() == [1, 2, 3, 4, 5]
    seq.commit(5)
    assert seq.truncate(3) == (1, 0)
    assert seq.tokens().tolist() == [1, 2, 3]


def test_extend_each(cache: Cache, ns: Namespace) -> None:
    a, b = ns.open(range(16)), ns.open(range(100, 116))
    statuses = np.full(2, 99, np.int32)
    cache.extend_many([a, b], [1, 2], statuses=statuses)
    assert statuses.tolist() == [-7, -7]
    a.close()
    cache.extend_many([a, b], [1, 2], statuses=statuses)
    assert statuses.tolist() == [-2, 0]


def test_invalidate_reports_who_shares(ns: Namespace) -> None:
    a = ns.open(range(8))
    a.commit(8)
    b = a.fork()
    assert a.invalidate(4) == [b]
    assert a.info().computed_tokens == 4


def test_retention_and_uncache(cache: Cache, ns: Namespace) -> None:
    seq = ns.open(range(8))
    seq.retain(0, 4, 3)
    assert cache.block_info(1).retention == 3
    seq.uncache(8, 9)
    seq.extend(range(8, 12))
    seq.commit(12)
    assert seq.info().public_tokens == 8
    with pytest.raises(kvpager.StateError, match="begin=4"):
        seq.uncache(4, 8)
    assert cache.block_sealed_tokens(1).tolist() == [0, 1, 2, 3]
    assert cache.block_info(1).hash != bytes(16)


def test_a_noisy_namespace_has_a_quota() -> None:
    with Cache(n_blocks=17, block_tokens=4, quotas=1) as cache:
        quiet, noisy = cache.namespace("quiet"), cache.namespace("noisy")
        noisy.quota(8)
        with quiet.open(range(32)) as seq:
            seq.commit(32)
        for at in range(100, 1000, 16):
            with noisy.open(range(at, at + 16)) as seq:
                seq.commit(16)
        assert quiet.match([*range(32), 1]).cached_tokens == 32
        info = noisy.info()
        assert (info.blocks, info.cached_blocks, info.quota) == (8, 8, 8)
        assert info.host_quota == kvpager.NO_QUOTA and quiet.info().quota == kvpager.NO_QUOTA
        with pytest.raises(kvpager.ArgError, match="tier=1"):
            noisy.quota(8, tier=kvpager.HOST)
    with Cache() as cache:
        with pytest.raises(kvpager.StateError):
            cache.namespace().info()
        with pytest.raises(kvpager.StateError, match="n_blocks=1"):
            cache.namespace().quota(1)


def test_swap(ns: Namespace) -> None:
    with Cache(n_blocks=9, host_blocks=9, block_tokens=4) as cache:
        ns = cache.namespace()
        seq = ns.open(range(10))
        seq.commit(10)
        assert cache.can_swap_out([seq]).copied_blocks == 3
        out = cache.swap_out([seq])
        assert (out.copied_blocks, out.released.freed_blocks) == (3, 1)
        plan = cache.plan_take()
        assert plan["dst_tier"].tolist() == [kvpager.HOST] * 3
        assert seq.info().tier == kvpager.HOST
        assert cache.can_swap_in([seq], reserve=1).verdict == kvpager.ADMIT_OK
        back = cache.swap_in([seq], reserve=1)
        assert (back.copied_blocks, back.found_blocks) == (1, 2)
        cache.check()


@pytest.mark.parametrize("keep, on_host", [(kvpager.EVICTED_DROP, 0), (kvpager.EVICTED_KEEP, 8),
                                           (kvpager.EVICTED_KEEP_ONCE, 4)])
def test_keep_evicted(keep: int, on_host: int) -> None:
    with Cache(n_blocks=5, host_blocks=9, block_tokens=4, keep_evicted=keep) as cache:
        ns = cache.namespace()
        for first in (0, 100, 0):  # each evicts the one before
            seq = ns.open(range(first, first + 16))
            seq.commit(16)
            seq.close()
            cache.plan_take()
        assert cache.stats().host_cached_blocks == on_host
        cache.check()


def test_overlapped_steps() -> None:
    with Cache(n_blocks=9, block_tokens=4, steps=kvpager.STEPS_OVERLAPPED) as cache:
        ns = cache.namespace()
        seq = ns.open(range(8))
        step, plan = cache.step_begin()
        assert (step, len(plan)) == (1, 0)
        cache.step_commit(step, [seq], [8])
        assert seq.info().computed_tokens == 0
        assert cache.step_done(step) == 1
        assert seq.info().computed_tokens == 8
        step, _ = cache.step_begin()
        seq.close()
        assert cache.stats().parked_blocks == 2
        assert cache.step_failed(step).tolist() == []
        with pytest.raises(kvpager.ArgError, match="step=7"):
            cache.step_done(7)


def test_events() -> None:
    with Cache(n_blocks=9, block_tokens=4, max_events=16) as cache:
        ns = cache.namespace("m")
        seq = ns.open(range(8))
        seq.commit(8)
        values = np.zeros(16 * 4, np.int32)
        events = cache.events(1, 16, tokens=values)
        assert events["kind"].tolist() == [kvpager.EVENT_STORED] * 2
        assert values[:8].tolist() == list(range(8))
        assert bytes(events[0]["parent"]) == kvpager.hash_root(4, "m")
        assert bytes(events[1]["parent"]) == bytes(events[0]["hash"])
        number, snapshot = cache.events_snapshot()
        assert (number, len(snapshot)) == (2, 2)
        assert len(cache.events(number + 1)) == 0
    with Cache(n_blocks=4) as cache, pytest.raises(kvpager.StateError):
        cache.events()


def test_arena_is_used_in_place() -> None:
    n_bytes = Cache.bytes_for(n_blocks=16)
    memory = np.zeros(n_bytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    cache = Cache(n_blocks=16, arena=memory[start:start + n_bytes])
    cache.namespace("a").open(range(20))
    assert memory.any()
    cache.close()
    with pytest.raises(kvpager.TooSmallError):
        Cache(n_blocks=16, arena=memory[start:start + 1024])


def test_config_is_resolved() -> None:
    cache = Cache(n_blocks=100, block_tokens=32, uncached_tokens=[5])
    assert (cache.config["unit_tokens"], cache.unit_tokens, cache.block_tokens) == (32, 32, 32)
    ns = cache.namespace()
    assert ns.match(range(64)).stop == kvpager.STOP_UNCACHED
    with pytest.raises(TypeError, match="unexpected keyword argument 'n_block'"):
        Cache(n_block=3)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="n_blocks"):
        Cache(n_blocks=-1)
    with pytest.raises(TypeError, match="n_blocks"):
        Cache(n_blocks="x")  # type: ignore[arg-type]
    with pytest.raises(kvpager.ArgError, match="n_blocks=1"):
        Cache(n_blocks=1)


def test_close_and_after(cache: Cache, ns: Namespace) -> None:
    seq = ns.open(range(8))
    with cache:
        pass
    cache.close()
    assert cache.closed
    calls: list[Callable[[], object]] = [
             lambda: seq.commit(8), lambda: seq.append(1), lambda: seq.close(), lambda: seq.info(),
             lambda: seq.fork(), lambda: seq.truncate(0), lambda: ns.open([1]),
             lambda: cache.stats(), lambda: cache.check(), lambda: cache.extend_many([seq], [1]),
             lambda: cache.plan_take(), lambda: seq.row(), lambda: cache.namespace("x")]
    for call in calls:
        with pytest.raises(kvpager.ClosedError):
            call()


def test_stale_and_foreign_handles(cache: Cache, ns: Namespace) -> None:
    seq = ns.open(range(8))
    seq.close()
    for call in (lambda: seq.commit(1), lambda: cache.extend_many([seq], [1]),
                 lambda: cache.seq(0).info(), lambda: cache.seq(2 ** 64 - 1).row()):
        with pytest.raises(kvpager.HandleError):
            call()
    with Cache(n_blocks=8) as other:
        foreign = other.namespace().open([1])
        with pytest.raises(kvpager.HandleError):
            cache.seq(foreign.handle).commit(1)


def test_another_thread_while_a_call_runs(cache: Cache, ns: Namespace) -> None:
    """As if another thread were inside: every call refuses, only stats answers."""
    from kvpager._native import lib

    seq = ns.open(range(8))
    assert lib.kvpy_object_lock(cache._o) == 0
    for call in (lambda: seq.commit(8), lambda: seq.append(1), lambda: ns.open([1]),
                 lambda: cache.extend_many([seq], [1]), lambda: cache.close(),
                 lambda: seq.row(), lambda: cache.check()):
        with pytest.raises(kvpager.BusyError):
            call()
    assert cache.stats().open_seqs == 1
    lib.kvpy_object_unlock(cache._o)
    seq.commit(8)
    cache.check()


def test_threads_that_do_not_take_turns() -> None:
    """Two threads in one cache: each call is made or refused, and the cache stays whole."""
    cache = Cache(n_blocks=2048, block_tokens=4, max_seq_tokens=8192)
    ns = cache.namespace()
    refused = []

    def work(base: int) -> None:
        prompt = np.arange(base, base + 4000, dtype=np.int32)
        for _ in range(50):
            try:
                seq = ns.open(prompt)
            except (kvpager.BusyError, kvpager.NoBlocksError) as error:
                refused.append(error)
                continue
            while True:
                try:
                    seq.close()
                    break
                except kvpager.BusyError as error:
                    refused.append(error)

    threads = [threading.Thread(target=work, args=(n * 10000,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cache.check()
    assert cache.stats().open_seqs == 0


def test_record(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "run.kvplog"
    with Cache(n_blocks=16) as cache:
        with cache.record(path):
            ns = cache.namespace("a")
            seq = ns.open(range(40))
            seq.commit(40)
            with pytest.raises(kvpager.StateError), cache.record(path):
                pass
        seq.close()
    assert path.read_bytes().startswith(b"kvpops1\n")
    with Cache(n_blocks=16) as cache, pytest.raises(kvpager.IoError), \
            cache.record(tmp_path / "no" / "such"):
        pass


def test_helpers() -> None:
    assert kvpager.blocks_for_tokens(16, 33) == 3
    assert kvpager.blocks_for_append(16, 33, 16) == 1
    assert kvpager.__version__ == "0.2.0"
    assert kvpager.STOP_MISS == 1 and kvpager.END == 2 ** 32 - 1


def test_a_state_comes_from_a_store() -> None:
    tokens = np.arange(9, dtype=np.int32)
    with kvpager.Cache(n_blocks=8, block_tokens=4, host_blocks=8, max_loads=2, state_slots=4,
                       host_state_slots=4, max_seqs=2) as cache:
        space = cache.namespace("model")
        kv = cache.load_begin(space, tokens, 0, 2)
        cache.load_done(kv.number, [1, 1])
        assert space.match(tokens).hit_tokens == 0
        state = cache.load_begin(space, tokens, 1, 2, group=1)
        assert state.blocks.tolist() == [1] and cache.state_stats().host_loading_slots == 1
        assert cache.load_done(state.number, [1])[0] == 1
        assert space.match(tokens).hit_tokens == 8
        plan = cache.plan_take()
        assert plan["group"].tolist() == [1] and plan["dst_tier"].tolist() == [kvpager.DEVICE]
        with pytest.raises(kvpager.ArgError):
            cache.load_begin(space, tokens, 0, 2, group=1)


def test_a_prefix_goes_to_a_store_and_comes_back() -> None:
    """What lend.h is for, with a dict for the store."""
    tokens = np.arange(8, dtype=np.int32)
    with kvpager.Cache(n_blocks=8, block_tokens=4, host_blocks=8, max_loads=2, max_unit_keys=2,
                       max_seqs=2) as cache:
        space = cache.namespace("model")
        key = kvpager.Key(7, 1, 6, b"image")
        seq = space.open(kvpager.Prompt(tokens, keys=[key]))
        seq.commit(8)
        host, mirrored = cache.mirror(seq.row())
        assert mirrored.copied == 2 and len(host) == 2
        with pytest.raises(kvpager.InFlightError):
            cache.lend(host)
        assert len(cache.plan_take()) == 2
        cache.plan_done(1)
        cold = cache.cold_end()
        assert sorted(cold["block"]) == sorted(host) and cold["elsewhere"].all()
        cache.lend(host)
        origin = cache.block_origin(int(host[1]))
        assert (origin.first, origin.n_tokens, origin.n_keys) == (4, 8, 1)
        assert origin.ns == space.handle and origin.written == 1
        assert cache.block_prefix(int(host[1])).tolist() == tokens.tolist()
        assert cache.block_keys(int(host[1])) == [kvpager.Key(7, 1, 5, b"image")]
        cache.give_back(host)
        with pytest.raises(kvpager.ArgError):
            cache.give_back(host)
        seq.close()
        cache.reset()

        prompt = kvpager.Prompt(tokens, keys=[key])
        load = cache.load_begin(space, prompt, 0, 2)
        assert (load.number, load.after, load.found) == (1, 0, 0) and load.blocks.all()
        other = cache.load_begin(space, prompt, 0, 2)
        assert (other.number, other.elsewhere) == (0, 2)
        assert space.match(prompt).hit_tokens == 0
        assert cache.stats().host_loading_blocks == 2
        assert cache.load_done(load.number, [1, 0]) == (1, 0, 1, 0)
        assert space.match(prompt).hit_tokens == 4
        again = cache.load_begin(space, prompt, 0, 2)
        assert again.found == 1 and again.blocks[0] == 0
        assert cache.drop(load.blocks, kvpager.HOST) == 1  # the other one was not whole
        assert space.match(prompt).hit_tokens == 0
        assert cache.drop([1, 1, 2]) == 0
        with pytest.raises(kvpager.ArgError):
            cache.drop([0])
        cache.load_cancel(again.number)
        assert cache.cold_end(capacity=0).shape == (0,)


def test_evictions_ahead_of_need() -> None:
    with kvpager.Cache(n_blocks=5, block_tokens=4) as cache:
        space = cache.namespace()
        tokens = np.arange(16, dtype=np.int32)
        seq = space.open(tokens)
        seq.commit(16)
        seq.close()
        assert cache.reclaim(0) == 0
        assert cache.reclaim(3) == 3
        assert cache.reclaim(3) == 0
        assert space.match(tokens).hit_tokens == 4
        assert cache.reclaim(2 ** 32 - 1) == 1
        assert cache.stats().free_blocks == 4


def test_what_is_closed_says_so(cache: Cache, ns: Namespace) -> None:
    seq, space = ns.open(range(8)), cache.namespace("other")
    seq.close()
    space.close()
    calls: list[Callable[[], object]] = [
        seq.close, seq.info, seq.row, lambda: seq.commit(1), lambda: seq.append(1), seq.fork,
        lambda: seq.tokens(0, 1), space.flush, lambda: space.open([1]), lambda: space.match([1])]
    for call in calls:
        with pytest.raises(kvpager.ClosedError, match="the handle is closed") as refused:
            call()
        assert isinstance(refused.value, (kvpager.HandleError, ValueError))


def test_refusals_have_numbers(cache: Cache, ns: Namespace) -> None:
    seq = ns.open(range(8))
    seq.commit(8)
    seq.append(1)
    with pytest.raises(kvpager.StateError, match="fork before the extend.* 9 tokens, 9 with a value, "
                                                 "8 computed"):
        seq.fork()
    with Cache(n_blocks=3, block_tokens=4) as small:
        with pytest.raises(kvpager.NeverError, match=r"\d+ device blocks missing, however long it "
                                                     "waits") as never:
            small.namespace().open(range(100))
        assert never.value.missing > 0


def test_help_has_the_fields() -> None:
    for made, field in ((Cache, "keep_evicted"), (kvpager.Scheduler, "free_target"),
                        (kvpager.Layout, "n_heads"), (kvpager.Sender, "max_seqs")):
        assert field in (made.__doc__ or ""), made
    assert {"Cache", "ADMIT_OK", "NoBlocksError", "OpenInfo", "csr"} <= set(kvpager.__all__)
    assert not any(name.startswith("_") for name in kvpager.__all__)


def test_reasons_of_a_prompt() -> None:
    """The library's own test has all of them; here, what Python makes of it."""
    reasons = kvpager.Reasons(64)
    hashes = kvpager.hash_units(range(10), 4, kvpager.hash_root(4))
    assert reasons.admit(hashes, 10, 4) == (0, 0, 0, 0, 0, 9, 0, 1)
    assert reasons.admit(hashes, 10, 4) == (0, 0, 0, 8, 1, 0, 0, 1)
    reasons.computed(hashes)
    assert reasons.admit(hashes, 10, 4) == (0, 0, 8, 0, 1, 0, 0, 1)
    reasons.computed(hashes, 0)
    assert reasons.admit(hashes, 10, 4, 4, kvpager.STOP_NO_KV, 1) == (4, 4, 0, 0, 1, 0, 0, 1)
    reasons.computed(hashes)
    assert reasons.admit(hashes, 10, 4, 4, kvpager.STOP_NO_KV, 1, 2) == (4, 0, 4, 0, 1, 0, 0, 1)
    stats = reasons.stats()
    assert sum(stats.tokens) == 50 and stats.prompts == 5 and stats.units == 2
    with pytest.raises(ValueError, match="full_groups"):
        reasons.admit(hashes, 10, 4, full_groups=1 << kvpager.GROUPS_MAX)
    with pytest.raises(ValueError, match="hashes: has 1, n_tokens: 10 of unit_tokens: 4 need 2"):
        reasons.admit(hashes[:1], 10, 4)
