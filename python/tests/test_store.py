"""Stores: what comes back after a restart, what must not, buffers, threads, and operators' calls."""

from __future__ import annotations

import dataclasses
import errno
import gc
import os
import pathlib
import pickle
import select
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import kvpager as k
from alarm import Alarm, Interrupted

store = pytest.importorskip("kvpager.store", exc_type=ImportError)

S, R, BLOCK = 4, 2, 96  # tokens of a block, blocks of a record, bytes of a block
MODEL = store.FingerprintInput(weights=bytes(range(32)), compute_type="bf16", type=k.BF16, k_size=8,
                               v_size=8, model_layers=1, model_heads=1, block_tokens=S,
                               unit_tokens=S)


def opened(url: Any = "memory:?size=1MiB", **changes: Any) -> Any:
    given: dict[str, Any] = {"fingerprint": MODEL.fingerprint(), "block_bytes": [BLOCK],
                             "block_tokens": S, "record_blocks": R, **changes}
    return store.Store.open(url, **given)


def records(n: int = 3, name: str = "a", first: int = 0) -> Any:
    return store.Chain(MODEL, range(first, first + n * S * R), record_blocks=R, name=name)


def kv(number: int) -> list[Any]:
    """The KV of a record."""
    return [np.full(BLOCK, number * R + i, np.uint8) for i in range(R)]


def room() -> list[Any]:
    return [np.zeros(BLOCK, np.uint8) for _ in range(R)]


def done(where: Any, operation: Any) -> Any:
    where.finish(20)
    assert operation.result is not None
    return operation


def filled(where: Any, chain: Any) -> None:
    for i, identity in enumerate(chain):
        assert done(where, where.put(identity, kv(i))).ok


def url_of(path: pathlib.Path, more: str = "") -> str:
    return f"file:{path}?size=4MiB{more}"


# --------------------------------------------------------------------------------- to and from


@pytest.mark.parametrize("more", ["", "&engine=threads"])
def test_what_was_put_comes_back_after_a_restart(tmp_path: pathlib.Path, more: str) -> None:
    chain = records()
    with opened(url_of(tmp_path, more)) as disk:
        filled(disk, chain)
        assert done(disk, disk.sync()).ok and not disk.closed
    assert disk.closed
    with opened(url_of(tmp_path, more)) as disk:
        assert done(disk, disk.have(chain.keys())).found.tolist() == [True] * 3
        for i, identity in enumerate(chain):
            got = room()
            assert done(disk, disk.get(identity, got)).ok
            np.testing.assert_array_equal(got, kv(i))
        stats = disk.stats()
        assert (stats.records, stats.hits, stats.puts, stats.read_bytes) == (3, 3, 0, 3 * R * BLOCK)


def test_groups_with_blocks_of_several_sizes() -> None:
    """The second group has blocks of half the tokens, and records of its last three."""
    with opened(block_bytes=[BLOCK, 48], group_tokens=[S, S // 2], group_blocks=[0, 3]) as disk:
        assert disk.group_blocks == (R, 3)
        identity = dataclasses.replace(records(1)[0], group=1)
        wanted = [np.full(48, i + 1, np.uint8) for i in range(3)]
        with pytest.raises(k.ArgError, match="a record of this store 3"):
            disk.put(identity, wanted + wanted)
        assert done(disk, disk.put(identity, wanted)).ok
        got = [np.zeros(48, np.uint8) for _ in range(3)]
        assert done(disk, disk.get(identity, got)).ok
        np.testing.assert_array_equal(got, wanted)
    with pytest.raises(k.ArgError, match="group_tokens: has 1"):
        opened(block_bytes=[BLOCK, 48], group_tokens=[S])


def test_results_that_are_not_ok() -> None:
    chain, other = records(), records(name="b")
    with opened() as place:
        assert done(place, place.put(chain[1], kv(1))).result == store.STORE_NO_PARENT
        filled(place, chain)
        assert done(place, place.put(chain[0], kv(9))).result == store.STORE_KNOWN
        assert done(place, place.get(other[0], room())).result == store.STORE_ABSENT
        found = done(place, place.have([*other.keys(), chain.keys()[2]]))
        assert found.found.tolist() == [False, False, False, True] and found.found.dtype == bool
        assert done(place, place.drop(chain.keys()[1:2])).ok  # and what needs it
        assert done(place, place.have(chain.keys())).found.tolist() == [True, False, False]
        assert place.stats().dropped == 2


def test_another_s_record_with_the_same_key_is_a_miss() -> None:
    """A collision of keys, as it were: the same digest for other tokens."""
    chain = records(1)
    with opened() as place:
        filled(place, chain)
        forged = store.Identity(fingerprint=chain.fingerprint, digest=chain[0].digest,
                                slice=chain[0].slice, block_tokens=S, n_blocks=R,
                                tokens=range(50, 50 + S * R))
        assert forged.key == chain[0].key
        assert done(place, place.get(forged, room())).result == store.STORE_BAD
        assert place.stats().bad[store.BAD_IDENTITY] == 1


def test_an_engine_s_own_key() -> None:
    key = store.Identity(kind=store.IDENTITY_KEY, fingerprint=MODEL.fingerprint(), digest=b"k" * 32,
                         slice=MODEL.rank(), block_tokens=S, n_blocks=R)
    with opened() as place:
        assert done(place, place.put(key, kv(4))).ok
        got = room()
        assert done(place, place.get(key, got)).ok and got[0][0] == 8


def test_groups_have_records_of_their_own() -> None:
    model = store.FingerprintInput(weights=bytes(range(32)), compute_type="bf16", type=k.BF16,
                                   k_size=8, v_size=8, model_layers=2, model_heads=1, block_tokens=S,
                                   unit_tokens=S, groups=[(0, 0), (0, 64)])
    chain = store.Chain(model, range(8), record_blocks=R)
    with opened(fingerprint=chain.fingerprint, block_bytes=[BLOCK, 32]) as place:
        assert place.block_bytes == (BLOCK, 32)
        assert done(place, place.put(chain.identity(0, 1), [b"x" * 32, b"y" * 32])).ok
        found = done(place, place.have([chain.keys(0)[0], chain.keys(1)[0]])).found
        assert found.tolist() == [False, True]
        with pytest.raises(ValueError, match="blocks.*has 96 bytes, a block of this group has 32"):
            place.put(chain.identity(0, 1), kv(0))


def test_states_have_records_beside_the_kv() -> None:
    given: dict[str, Any] = {"weights": bytes(range(32)), "compute_type": "bf16", "type": k.BF16,
                             "k_size": 8, "v_size": 8, "model_layers": 2, "model_heads": 1,
                             "block_tokens": S, "unit_tokens": S}
    model = store.FingerprintInput(**given, states=b"gdn:2x4")
    assert model.fingerprint() != store.FingerprintInput(**given).fingerprint()
    with pytest.raises(ValueError, match="states: has 65537 bytes"):
        store.FingerprintInput(**given, states=bytes(65537)).fingerprint()
    chain = store.Chain(model, range(2 * S * R), record_blocks=R)
    state = chain.state(1)
    assert (state.kind, state.group, state.parent) == (store.IDENTITY_STATE, 1, store.NO_DIGEST)
    assert state.digest == chain[1].digest and state.key == chain.keys(1)[1] != chain.keys(0)[1]
    assert chain.state(1, group=2).group == 2
    with opened(fingerprint=chain.fingerprint, block_bytes=[BLOCK, 40]) as place:
        assert done(place, place.put(state, [b"s" * 40])).ok
        got = [np.zeros(40, np.uint8)]
        assert done(place, place.get(state, got)).ok and bytes(got[0]) == b"s" * 40
        assert done(place, place.get(chain.state(0), got)).result == store.STORE_ABSENT
        with pytest.raises(ValueError, match="blocks: has 2"):
            place.put(state, [b"s" * 40] * 2)


def test_a_secret_is_asked_for(tmp_path: pathlib.Path) -> None:
    chain = records(1)
    with opened(url_of(tmp_path), secret=b"0123456789abcdef") as disk:
        filled(disk, chain)
    with opened(url_of(tmp_path), secret=b"0123456789abcdeF") as disk:
        assert done(disk, disk.get(chain[0], room())).result == store.STORE_BAD
        assert disk.stats().bad[store.BAD_CODE] == 1


# -------------------------------------------------------------------------------------- buffers


def test_kinds_of_buffers() -> None:
    chain = records(1)
    whole = np.arange(R * BLOCK, dtype=np.uint8).reshape(R, BLOCK)
    giving: list[list[Any]] = [
        [one.tobytes() for one in whole], [bytearray(one.tobytes()) for one in whole],
        [memoryview(one.tobytes()) for one in whole], list(whole),
        [one.view(np.float32).reshape(2, -1) for one in whole], [Tensor(one) for one in whole]]
    for blocks in giving:
        with opened() as place:
            assert done(place, place.put(chain[0], blocks)).ok
            taking: list[list[Any]] = [
                [bytearray(BLOCK) for _ in range(R)], room(), [Tensor(one) for one in room()],
                list(np.zeros((R, 12), np.int64))]
            for got in taking:
                assert done(place, place.get(chain[0], got)).ok
                for i, one in enumerate(got):
                    array = one.array if isinstance(one, Tensor) else np.asarray(one)
                    assert array.tobytes() == whole[i].tobytes()


class Tensor:
    """What has DLPack and nothing else."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)


def test_buffers_that_are_refused() -> None:
    chain = records(1)
    with opened() as place:
        wrong: list[tuple[Any, str]] = [
            (5, "blocks"), ([], "blocks: has 0"), (kv(0)[:1], "blocks: has 1"),
            ([*kv(0), *kv(0)], "blocks: has 4"), ([kv(0)[0], None], r"blocks\[1\]"),
            ([kv(0)[0], "text"], r"blocks\[1\]"), ([kv(0)[0], bytearray(5)], r"blocks\[1\]: has 5"),
            ([np.zeros(2 * BLOCK, np.uint8)[::2], kv(0)[1]], r"blocks\[0\]"),
            ([np.zeros(BLOCK, object), kv(0)[1]], r"blocks\[0\]")]
        read_only = np.frombuffer(bytes(BLOCK), np.uint8)
        for call, more in [(place.put, []), (place.get, [
                ([bytes(BLOCK)] * R, r"blocks\[0\]"), ([kv(0)[0], read_only], r"blocks\[1\]")])]:
            for blocks, named in [*wrong, *more]:
                with pytest.raises((TypeError, ValueError), match=named):
                    call(chain[0], blocks)
        assert place.n_out == 0 and place.stats().queued == 0


def test_buffers_live_until_their_operation_has_ended() -> None:
    """Nothing else refers to blocks, identity and keys."""
    with opened(threads=0) as place:
        def begin() -> list[Any]:
            chain, blocks, keys = records(1), kv(3), np.zeros((1, 32), np.uint8)
            identity = chain[0]
            place.put(identity, blocks)
            place.have(keys)
            return [weakref.ref(one) for one in (*blocks, identity, keys)]

        seen = begin()
        gc.collect()
        assert all(ref() is not None for ref in seen) and place.n_out == 2
        place.work()
        gc.collect()
        assert all(ref() is not None for ref in seen)  # it has ended and was not polled
        assert len(place.poll()) == 2
        gc.collect()
        assert [ref() for ref in seen] == [None] * len(seen)
        got = room()
        assert done(place, place.get(records(1)[0], got)).ok and got[0][0] == 6


def test_a_store_that_is_lost_ends_before_its_buffers_go(tmp_path: pathlib.Path) -> None:
    for _ in range(20):
        place = opened(url_of(tmp_path))
        blocks = kv(1)
        seen = [weakref.ref(one) for one in blocks]
        for i in range(8):
            place.put(records(1, name=str(i))[0], blocks)
        place.cycle = place
        del place, blocks
        gc.collect()
        assert [ref() for ref in seen] == [None] * R


# ----------------------------------------------------------------------------------- operations


def test_operations_end_once_and_say_how() -> None:
    chain = records()
    with opened(threads=0, max_ops=4) as place:
        out = [place.put(identity, kv(i), tag=("put", i)) for i, identity in enumerate(chain)]
        assert [one.result for one in out] == [None] * 3 and not out[0].ok and "out" in repr(out[0])
        place.sync(tag="sync")
        with pytest.raises(k.AgainError):
            place.sync()
        assert place.n_out == 4 and place.poll() == []
        while not place.work():
            pass
        ended = place.poll()
        assert sorted(str(one.tag) for one in ended) == ["('put', 0)", "('put', 1)", "('put', 2)",
                                                         "sync"]
        assert set(out) < set(ended) and all(one.ok for one in ended)
        assert place.poll() == [] and place.n_out == 0
        with pytest.raises(ValueError):
            out[0].found
        for make in (pickle.dumps, __import__("copy").copy):
            with pytest.raises(TypeError):
                make(out[0])
            with pytest.raises(TypeError):
                make(place)


@pytest.mark.parametrize("threads", [0, 1])
def test_iterating_gives_what_ends_until_nothing_is_out(threads: int) -> None:
    chain = records(12)
    with opened(threads=threads, max_ops=16) as place:
        begun = [place.put(identity, kv(i % 9), tag=i) for i, identity in enumerate(chain)]
        assert sorted(one.tag for one in place) == list(range(12))
        assert all(one.ok for one in begun) and list(place) == []
        for one in place:
            raise AssertionError(one)


def test_a_close_ends_what_was_not_polled() -> None:
    place = opened(threads=0)
    begun = place.put(records(1)[0], kv(0))
    asked = place.have(records(1).keys())
    place.close()
    place.close()
    assert begun.result == asked.result == store.STORE_CLOSED
    assert asked.found.tolist() == [False] and place.n_out == 0 and place.closed
    for call in (place.poll, place.stats, place.sync, place.work, place.fileno, place.describe,
                 place.stats_text, lambda: place.wait(0), lambda: list(place), place.finish,
                 lambda: place.put(records(1)[0], kv(0)), lambda: place.drop([bytes(32)]),
                 lambda: place.evict(space=None, written_before=None)):
        with pytest.raises(k.ClosedError):
            call()


def test_a_descriptor_says_that_something_has_ended() -> None:
    with opened() as place:
        assert select.select([place], [], [], 0)[0] == []
        place.sync()
        assert select.select([place], [], [], 20)[0] == [place]
        assert len(place.poll()) == 1
        assert select.select([place], [], [], 0)[0] == []


def test_waits() -> None:
    with opened() as place:
        begun = time.monotonic()
        assert not place.wait(0.06) and 0.05 < time.monotonic() - begun < 10
        assert not place.wait(0) and place.finish(0) == []
        place.sync()
        assert place.wait() and place.wait(0) and len(place.poll()) == 1
        for wrong in (-1, float("nan"), "soon"):
            for call in (place.wait, place.finish):
                with pytest.raises((TypeError, ValueError), match="timeout"):
                    call(wrong)
        with pytest.raises(k.StateError):
            place.work()  # it has a thread


def test_eviction_by_namespace_and_age() -> None:
    a, b = records(2), records(3, name="b")
    with opened() as place:
        filled(place, a)
        filled(place, b)
        assert done(place, place.evict(space=None, written_before=0)).ok
        assert place.stats().records == 5
        assert done(place, place.evict(space=a.space, written_before=None)).ok
        assert done(place, place.have(a.keys() + b.keys())).found.tolist() == [False] * 2 + [True] * 3
        assert done(place, place.evict(space=None, written_before=time.time() + 120)).ok
        assert place.stats().records == 0
        for wrong in ({"space": -1}, {"space": 2 ** 64}, {"space": "a"}, {"written_before": -1},
                      {"written_before": float("nan")}, {"written_before": "now"}):
            with pytest.raises((TypeError, ValueError), match=next(iter(wrong))):
                place.evict(**{"space": None, "written_before": None, **wrong})


def test_wrong_keys() -> None:
    wrong = [5, [], ["text"], [b"short"], np.zeros((2, 32)), np.zeros((2, 31), np.uint8),
             np.zeros((4, 32), np.uint8)[::2], np.zeros((8193, 32), np.uint8), None]
    with opened() as place:
        for keys in wrong:
            for call in (place.have, place.drop):
                with pytest.raises((TypeError, ValueError), match="keys"):
                    call(keys)
        many = np.zeros((8192, 32), np.uint8)
        assert not done(place, place.have(many)).found.any()


@pytest.mark.parametrize("changes, said", [
    ({"url": "nosuch:x"}, "nosuch|scheme|url"),
    ({"url": "memory:?size=1"}, "size"), ({"url": "file:?size=1MiB"}, "file|path"),
    ({"url": "memory:?size=1MiB&colour=red"}, "colour"), ({"url": 5}, "url"),
    ({"url": "memory:\0"}, "null"), ({"fingerprint": bytes(32)}, "fingerprint"),
    ({"fingerprint": b"a"}, "fingerprint"), ({"block_bytes": []}, "block_bytes"),
    ({"block_bytes": [0]}, "block_bytes"), ({"block_bytes": [-1]}, "block_bytes"),
    ({"block_bytes": 5}, "block_bytes"), ({"block_bytes": ["a"]}, "block_bytes"),
    ({"block_bytes": [1] * 9}, "block_bytes"), ({"block_tokens": 0}, "block_tokens"),
    ({"block_tokens": 1.5}, "block_tokens"), ({"record_blocks": 3}, "record_blocks"),
    ({"record_blocks": 2 ** 32}, "record_blocks"), ({"key_bytes": 2 ** 21}, "key_bytes"),
    ({"max_ops": 0}, "max_ops"), ({"max_ops": 5000}, "max_ops"), ({"threads": 2}, "threads"),
    ({"secret": b"short"}, "secret"), ({"secret": "a" * 16}, "secret"),
    ({"secret": bytes(1025)}, "secret")])
def test_a_refused_store_says_why(changes: dict[str, Any], said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        opened(**changes)


def test_several_stores_are_one(tmp_path: pathlib.Path) -> None:
    urls: list[Any] = [url_of(tmp_path / "near"), pathlib.PurePath(url_of(tmp_path / "far"))]
    chain = records()
    with opened(os.fspath(urls[1])) as far:
        filled(far, chain)
    with opened(urls) as both:
        assert (both.url, both.urls) == (urls[0], tuple(map(str, urls)))
        assert done(both, both.have(chain.keys())).found.all()
        for i, identity in enumerate(chain):
            blocks = room()
            assert done(both, both.get(identity, blocks)).ok
            assert all((block == i * R + k).all() for k, block in enumerate(blocks))
        near, far, all_ = both.stats(0), both.stats(part=1), both.stats()
        assert (near.hits, near.stored, far.hits, all_.hits, all_.records) == (0, 3, 3, 3, 6)
        assert 'kvp_store_stored_total{store="near"} 3\n' in both.stats_text({"store": "near"}, 0)
        assert both.describe().startswith("nearest: ") and "; then: " in both.describe()
        with pytest.raises(k.ArgError, match="part"):
            both.stats(2)
    with opened(urls[0]) as near:
        assert done(near, near.have(chain.keys())).found.all()
        assert near.stats(0).records == near.stats().records == 3
        assert "nearest" not in near.describe(), "one alone is none of several"


def test_nearer_stores_have_a_budget(tmp_path: pathlib.Path) -> None:
    urls, chain = [url_of(tmp_path / "near"), url_of(tmp_path / "far")], records()
    with opened(urls[1]) as far:
        filled(far, chain)
    with opened(urls, nearer_bytes_day=R * BLOCK) as both:  # one record
        for identity in chain:
            assert done(both, both.get(identity, room())).ok
        assert (both.stats(0).stored, both.stats(1).hits) == (1, 3)
    for wrong in ({"nearer_bytes_s": -1}, {"nearer_bytes_day": 1 << 64}):
        with pytest.raises(k.ArgError, match="nearer_bytes"):
            opened(urls, **wrong)


def test_a_refused_store_of_several_is_named(tmp_path: pathlib.Path) -> None:
    n_open = len(os.listdir("/dev/fd"))
    with pytest.raises(k.ArgError, match="nosuch:x"):
        opened([url_of(tmp_path), "nosuch:x"])
    assert len(os.listdir("/dev/fd")) == n_open  # the directory is closed
    for n in (0, 9):
        with pytest.raises(k.ArgError, match="url: has"):
            opened(["memory:?size=1MiB"] * n)


def test_a_place_that_cannot_be_used_says_why(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(k.IoError) as caught:
        opened(url_of(file))
    assert isinstance(caught.value, OSError) and str(file) in str(caught.value)
    with pytest.raises(TypeError, match="Store.open"):
        store.Store(None, {}, None, "")


@pytest.mark.parametrize("url", [
    "redis:kv:hush@host", "redi://kv:hush@host", "redis://kv:hush/@host", "redis://hush@host",
    "kv:hush@host", "memory:?secret=hush", "redis://kv:hush@host\0", "redis://kv:hush@h?tags=0"])
def test_what_is_raised_has_no_password(url: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: opened(url), lambda: store.scan(url), lambda: store.verify(url),
        lambda: store.clean(url, space=None, written_before=None)]
    for call in calls:
        with pytest.raises((ValueError, OSError)) as caught:
            call()
        assert "hush" not in str(caught.value)


def test_urls_are_shown_without_passwords() -> None:
    assert store.show_url("rediss://kv:a%20b@host:1?tags=3") == "rediss://kv:***@host:1?tags=3"
    assert store.show_url("file:/a@b?size=1GiB") == "file:/a@b?size=1GiB"
    assert store.show_url("memory:?secret=hush&size=1MiB") == "memory:?secret=***&size=1MiB"
    with pytest.raises(TypeError, match="url"):
        store.show_url(5)


def test_a_secret_in_a_file(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "secret"
    file.write_text("sixteen bytes, or more\n")
    file.chmod(0o644)
    with pytest.raises(k.ArgError, match="chmod 600"):
        opened(f"memory:?size=1MiB&secret=file:{file}")
    file.chmod(0o600)
    opened(f"memory:?size=1MiB&secret=file:{file}").close()


def test_records_that_do_not_fit_the_store() -> None:
    chain = records(1)
    with opened(key_bytes=64) as place:
        long = store.Chain(MODEL, range(8), record_blocks=R,
                           keys=[k.Key(1, i, i + 1, bytes(20)) for i in range(8)])
        with pytest.raises(k.TooLongError):
            place.put(long[0], kv(0))
        for wrong, said in [(None, "identity"), (chain, "identity"),
                            (records(1, first=4).identity(0), None),
                            (store.Chain(MODEL, range(16), record_blocks=4)[0], "blocks")]:
            if said is not None:
                with pytest.raises((TypeError, ValueError), match=said):
                    place.put(wrong, kv(0))
        other = store.Chain(store.FingerprintInput(
            weights=b"w" * 32, compute_type="bf16", type=k.BF16, k_size=8, v_size=8, model_layers=1,
            model_heads=1, block_tokens=S, unit_tokens=S), range(8), record_blocks=R)
        with pytest.raises(ValueError, match="fingerprint is not the store's"):
            place.get(other[0], room())
        with pytest.raises(ValueError, match="group is 1"):
            place.put(chain.identity(0, 1), kv(0))


# ---------------------------------------------------------------------------------- statistics


def test_statistics() -> None:
    with opened() as place:
        assert isinstance(place.stats(), store.StoreStats)
        filled(place, records(2))
        done(place, place.get(records(1)[0], room()))
        stats = place.stats()
        assert (stats.records, stats.puts, stats.stored, stats.gets, stats.hits) == (2, 2, 2, 1, 1)
        assert sum(stats.put_ns) == 2 and sum(stats.get_ns) == 1 and len(stats.bad) == 7
        text = place.stats_text({"model": 'a"b\\c\nd', "store": "é"})
        assert 'kvp_store_records{model="a\\"b\\\\c\\nd",store="é"} 2\n' in text
        assert place.stats_text().count("kvp_store_records 2\n") == 1
        assert len(place.stats_text({"x": "y" * 5000})) > 100000  # more room than the first guess
        for wrong in (5, {"a b": "c"}, {"": "c"}, {"a": 5}, {5: "c"}, {"a": "b\0"}):
            with pytest.raises((TypeError, ValueError), match="labels"):
                place.stats_text(wrong)
        assert store.bad_name(store.BAD_PAYLOAD) == store.found_name(store.BAD_PAYLOAD) == "payload"
        assert store.found_name(store.FOUND_GOOD) == "good" and store.bad_name(99) == "?"


def test_describe(tmp_path: pathlib.Path) -> None:
    with opened(url_of(tmp_path, "&engine=threads")) as disk:
        assert "4 threads" in disk.describe()
    with opened() as place:
        assert place.describe()


# ---------------------------------------------------------------------------------- operators


def damage(path: pathlib.Path, at: int) -> None:
    (slab,) = path.glob("*/w0/slab-*")
    with open(slab, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def test_operators_see_what_is_there(tmp_path: pathlib.Path) -> None:
    a, b = records(3), records(2, name="b")
    with opened(url_of(tmp_path)) as disk:
        filled(disk, a)
        filled(disk, b)
        told: list[Any] = []
        store.scan(url_of(tmp_path), directory=told.append)
        (one,) = told
        assert (one.status, one.why, one.in_use, one.records, one.record_blocks) == (0, "", 1, 5, R)
        assert one.fingerprint == MODEL.fingerprint()[:8] and one.path.startswith(str(tmp_path))
        assert one.block_tokens == S and abs(one.opened_ns / 1e9 - time.time()) < 100
        result = store.clean(f"file:{tmp_path}", space=None, written_before=None)
        assert (result.in_use, result.records) == (1, 0)
    found: list[Any] = []
    store.scan(f"file:{tmp_path}", depth=store.SCAN_HEADERS, space=a.space, record=found.append)
    assert len(found) == 3 and {one.digest for one in found} == {
        one.digest for one in a} and all(one.has_header and one.space == a.space for one in found)
    assert {one.slice for one in found} == {MODEL.rank()}
    assert store.verify(f"file:{tmp_path}").ok
    damage(tmp_path, 4096 + 10)  # the KV of the first record
    verified = store.verify(f"file:{tmp_path}")
    assert not verified.ok and (verified.good, verified.raced) == (4, 0)
    ((path, bad),) = verified.bad
    assert store.found_name(bad.found) == "payload" and path == verified.directories[0].path
    assert store.verify(f"file:{tmp_path}", space=b.space).ok
    cleaned = store.clean(f"file:{tmp_path}", space=b.space, written_before=None)
    assert isinstance(cleaned, store.StoreCleaned) and cleaned.records == 2
    assert store.clean(f"file:{tmp_path}", space=None, written_before=0).records == 0
    with opened(url_of(tmp_path)) as disk:
        assert done(disk, disk.have(a.keys() + b.keys())).found.tolist() == [True] * 3 + [False] * 2
        assert done(disk, disk.get(a[0], room())).result == store.STORE_BAD
    (log,) = tmp_path.glob("*/w0/log")
    log.unlink()
    log.symlink_to("log")  # links are not followed
    (one,) = store.verify(url_of(tmp_path)).directories
    assert (one.status, one.why) == (k.IoError.status, os.strerror(errno.ELOOP))


def test_what_a_scan_s_function_raises_is_raised(tmp_path: pathlib.Path) -> None:
    with opened(url_of(tmp_path)) as disk:
        filled(disk, records(3))
    for error in (ValueError, KeyboardInterrupt):
        told = list[Any]()

        def tell(record: Any) -> None:
            told.append(record)
            raise error("stop")

        with pytest.raises(error, match="stop"):
            store.scan(f"file:{tmp_path}", depth=store.SCAN_RECORDS, record=tell)
        assert len(told) == 1


def test_wrong_arguments_of_operators(tmp_path: pathlib.Path) -> None:
    url = f"file:{tmp_path}"
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: store.scan(5), "url"), (lambda: store.scan("nosuch:x"), "nosuch|scheme|file"),
        (lambda: store.scan(url, depth=9), "depth"), (lambda: store.scan(url, depth="a"), "depth"),
        (lambda: store.scan(url, space=-1), "space"),
        (lambda: store.scan(url, record=5), "record"),
        (lambda: store.scan(url, directory=5), "directory"),
        (lambda: store.scan(url, secret="a"), "secret"), (lambda: store.verify(None), "url"),
        (lambda: store.clean(url, space="a", written_before=None), "space"),
        (lambda: store.clean(url, space=None, written_before=-1), "written_before"),
        (lambda: store.clean("memory:x", space=None, written_before=None), "memory|file")]
    for call, named in calls:
        with pytest.raises((TypeError, ValueError), match=named):
            call()
    with pytest.raises(k.IoError, match="nowhere"):
        store.scan(f"file:{tmp_path}/nowhere")


# ------------------------------------------------------------------------- threads, forks, signals


def test_others_wait_while_one_works() -> None:
    with opened(threads=0) as place:
        begun, stop, ended = threading.Barrier(2), threading.Event(), list[Any]()

        def work() -> None:
            begun.wait()
            while not stop.is_set():
                place.work()

        worker = threading.Thread(target=work)
        worker.start()
        begun.wait()
        chain = records(40)
        for i, identity in enumerate(chain):
            place.put(identity, kv(i % 9))
            if i % 8 == 7:
                while place.n_out:
                    place.wait(0.01)
                    ended += place.poll()
                    assert place.stats().puts <= 40
        stop.set()
        worker.join()
        assert len(ended) == 40 and all(one.ok for one in ended)


def test_a_wait_ends_with_the_store() -> None:
    place, seen = opened(), list[Any]()

    def wait() -> None:
        try:
            place.wait()
        except k.ClosedError as error:
            seen.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    place.close()
    waiter.join(20)
    assert not waiter.is_alive() and len(seen) == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_has_no_store(tmp_path: pathlib.Path) -> None:
    chain = records(1)
    with opened(url_of(tmp_path)) as disk:
        filled(disk, chain)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                with pytest.raises(k.BusyError, match="forked child"):
                    disk.poll()
                disk.close()
                del disk
                gc.collect()
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        got = room()
        assert done(disk, disk.get(chain[0], got)).ok and got[1][0] == 1


def test_a_timer_loses_no_operation() -> None:
    """Whatever is interrupted, each operation has its result in the end, and no buffer stays."""
    chain = records(60)
    with Alarm() as alarm, opened(max_ops=64) as place:
        begun = [place.put(identity, kv(i % 9)) for i, identity in enumerate(chain)]
        until, n = time.monotonic() + 20, 0
        while place.n_out and time.monotonic() < until:
            n += 1
            try:
                alarm.arm((n % 50 + 1) * 2e-6)
                place.poll()
                alarm.disarm()
            except Interrupted:
                pass
        assert all(one.ok for one in begun) and not place._keep


def test_ctrl_c_ends_a_wait() -> None:
    with Alarm() as alarm, opened() as place:
        with pytest.raises(Interrupted):
            alarm.arm(0.05)
            place.wait()


# ------------------------------------------------------------------------------ without libcrypto


@pytest.mark.parametrize("error, said", [
    ("ModuleNotFoundError('gone', name=name)", "built without stores.*libssl-dev"),
    ("ImportError('libcrypto.so.3: cannot open shared object file')",
     "cannot be loaded.*libssl3.*libcrypto.so.3: cannot open")])
def test_without_libcrypto_the_rest_works(error: str, said: str) -> None:
    program = f"""
        import re, sys

        class Finder:
            def find_spec(self, name, path=None, target=None):
                if name == "kvpager._store_native":
                    raise {error}

        sys.meta_path.insert(0, Finder())
        import kvpager
        kvpager.Cache(n_blocks=16).close()
        try:
            import kvpager.store
        except ImportError as error:
            assert type(error) is ImportError and re.search({said!r}, str(error)), error
        else:
            sys.exit("it was imported")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr
