"""A look into the arena of a cache at work: from the same process, from another one, and into what
is no arena."""

from __future__ import annotations

import mmap
import pathlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kvpager
from kvpager import ArenaSeq, Cache, SnapshotItem, arena_inspect

CONFIG: Any = {"n_blocks": 64, "block_tokens": 4, "host_blocks": 16, "max_seqs": 8,
               "groups": [(0, 0), (4, 8)]}


@pytest.fixture
def arena(tmp_path: pathlib.Path) -> Iterator[tuple[pathlib.Path, Any, Cache]]:
    """A file, a mapping of it, and a cache in it with an open sequence and a cached one."""
    path = tmp_path / "arena"
    path.write_bytes(bytes(Cache.bytes_for(**CONFIG)))
    with path.open("r+b") as file:
        memory = mmap.mmap(file.fileno(), 0)
    cache = Cache(**CONFIG, arena=memory)
    with cache.namespace("closed").open(range(100, 109)) as seq:
        seq.commit(9)
    held = cache.namespace("open").open(range(10), tag=77)
    held.commit(6)
    yield path, memory, cache
    cache.close()


def same(report: kvpager.ArenaReport, cache: Cache) -> None:
    assert (report.state, report.violation, report.inside) == (kvpager.ARENA_WHOLE, "", False)
    assert report.stats == cache.stats()
    assert report.config == cache.config and report.groups == [(0, 0), (4, 8)]
    assert report.arena_bytes == Cache.bytes_for(**CONFIG)
    held = report.blocks[kvpager.DEVICE, :, kvpager.ARENA_HELD]
    cached = report.blocks[kvpager.DEVICE, :, kvpager.ARENA_CACHED]
    assert report.blocks.shape == (2, 2, kvpager.ARENA_STATES)
    assert held.tolist() == [3, 3]
    assert int(cached.sum()) == cache.stats().cached_blocks > 0


def test_of_a_mapping_a_view_and_a_file(arena: Any) -> None:
    path, memory, cache = arena
    copy = np.frombuffer(memory, np.uint8).copy()
    for given in (memory, memoryview(memory), copy, bytes(memory), path, str(path)):
        names, blocks, seqs = list[bytes](), list[int](), list[ArenaSeq]()

        def tell(item: SnapshotItem) -> None:
            if item.name is not None:
                names.append(item.name)
            elif item.block is not None:
                blocks.append(item.block.block)

        same(arena_inspect(given, tell=tell, tell_seq=seqs.append), cache)
        assert sorted(names) == [b"closed", b"open"] and blocks
        assert [(s.tag, s.n_tokens, s.computed_tokens, s.n_blocks) for s in seqs] == [(77, 10, 6, 3)]


def test_quotas() -> None:
    """What each namespace has, by the number that tell gives it; nothing of a cache without them."""
    for quotas in (0, 1):
        config = {**CONFIG, "quotas": quotas}
        memory = mmap.mmap(-1, Cache.bytes_for(**config))
        cache = Cache(**config, arena=memory)
        spaces = {name: cache.namespace(name) for name in ("one", "two")}
        if quotas:
            spaces["two"].quota(5)
            spaces["two"].quota(0, kvpager.HOST)
        with spaces["two"].open(range(10)) as seq:
            seq.commit(10)
            names, told = dict[int, str](), dict[int, kvpager.NsInfo]()

            def tell(item: SnapshotItem) -> None:
                if item.name is not None:
                    names[item.ns] = item.name.decode()

            assert arena_inspect(memory, tell=tell, tell_quota=told.__setitem__).state == \
                kvpager.ARENA_WHOLE
            assert len(told) == 2 * quotas
            for number, info in told.items():
                assert info == spaces[names[number]].info()
        cache.close()


def test_memory(arena: Any) -> None:
    """What a look may cost: of a file by what it has, whatever its holes claim."""
    path, memory, _ = arena
    for given in (path, memory):
        with pytest.raises(kvpager.TooSmallError):
            arena_inspect(given, max_memory=1000)
        assert arena_inspect(given, max_memory=1 << 30).stats == arena_inspect(given).stats
    with pytest.raises(kvpager.ArgError, match="max_memory"):
        arena_inspect(path, max_memory=-1)


def test_figures_only(arena: Any) -> None:
    """No block is looked at: nothing is told, and nothing counted."""
    path, _, cache = arena
    told = list[Any]()
    report = arena_inspect(path, figures_only=True, tell=told.append, tell_seq=told.append)
    assert report.stats == cache.stats() and not told and not report.blocks.any()


def test_from_another_process(arena: Any) -> None:
    path, _, cache = arena
    program = ("import kvpager, sys\n"
               "report = kvpager.arena_inspect(sys.argv[1])\n"
               "print(report.state, report.calls, report.stats.cached_blocks)")
    words = subprocess.run([sys.executable, "-c", program, str(path)], check=True,
                           capture_output=True, text=True).stdout.split()
    mine = arena_inspect(path)
    assert words == [str(kvpager.ARENA_WHOLE), str(mine.calls), str(cache.stats().cached_blocks)]


def test_while_the_owner_works(arena: Any) -> None:
    """Whatever the moment: an answer, and what is called whole adds up."""
    path, memory, cache = arena
    stop, done = threading.Event(), list[int]()

    def work() -> None:
        ns = cache.namespace("busy")
        while not stop.is_set():
            with ns.open(np.arange(len(done) % 7, 20, dtype=np.int32)) as seq:
                seq.commit(10)
            done.append(1)

    owner = threading.Thread(target=work)
    owner.start()
    try:
        for turn in range(50):
            report = arena_inspect(path if turn % 2 else memory)
            assert report.state in (kvpager.ARENA_WHOLE, kvpager.ARENA_MOVING)
            if report.state == kvpager.ARENA_WHOLE:
                counted = int(report.blocks[kvpager.DEVICE, :, kvpager.ARENA_CACHED].sum())
                assert counted == report.stats.cached_blocks
    finally:
        stop.set()
        owner.join()


def test_a_cache_that_was_closed(arena: Any) -> None:
    path, memory, cache = arena
    cache.close()
    for given in (path, memory):
        with pytest.raises(kvpager.FormatError, match="arena"):
            arena_inspect(given)


def test_damaged(arena: Any) -> None:
    """Every 499th byte turned over, one at a time: refused, called damaged, or a number that may be
    so. Never anything else."""
    _, memory, _ = arena
    whole, seen = np.frombuffer(memory, np.uint8).copy(), set[Any]()
    for at in range(0, len(whole), 499):
        bad = whole.copy()
        bad[at] ^= 0xFF
        try:
            seen.add(arena_inspect(bad, tell=lambda item: None, tell_seq=lambda seq: None).state)
        except (kvpager.FormatError, kvpager.VersionError) as error:
            seen.add(type(error))
    assert {kvpager.ARENA_WHOLE, kvpager.ARENA_DAMAGED, kvpager.FormatError} <= seen


def test_cut(arena: Any) -> None:
    path, memory, _ = arena
    for n in (0, 1, 100, 4096, len(memory) - 1):
        with pytest.raises(kvpager.FormatError, match="arena"):
            arena_inspect(bytes(memory)[:n])
        path.with_name("cut").write_bytes(bytes(memory)[:n])
        with pytest.raises(kvpager.FormatError, match="arena"):
            arena_inspect(path.with_name("cut"))


def test_what_is_no_arena(arena: Any, tmp_path: pathlib.Path) -> None:
    _, memory, _ = arena
    released = memoryview(memory)
    released.release()
    closed = mmap.mmap(-1, 4096)
    closed.close()
    for wrong in (5, None, [1, 2], object(), 1.5):
        with pytest.raises(TypeError, match="arena"):
            arena_inspect(wrong)
    for wrong in (released, closed, np.zeros((4, 4), np.uint8)[:, ::2],
                  np.zeros(8, np.uint8)[::2]):
        with pytest.raises(ValueError, match="arena"):
            arena_inspect(wrong)
    for wrong in (bytes(100000), np.zeros(10000), b""):
        with pytest.raises(kvpager.FormatError, match="arena"):
            arena_inspect(wrong)
    for missing in (tmp_path / "missing", tmp_path):
        with pytest.raises(OSError, match="arena"):
            arena_inspect(missing)


def test_what_a_function_raises_comes_out(arena: Any) -> None:
    path, _, cache = arena

    def refuse(item: Any) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        arena_inspect(path, tell=refuse)
    with pytest.raises(KeyError, match="mine"):
        arena_inspect(path, tell_seq=refuse)
    with pytest.raises(TypeError, match="tell_seq: needs a function"):
        arena_inspect(path, tell_seq=5)  # type: ignore[arg-type]
    same(arena_inspect(path), cache)
