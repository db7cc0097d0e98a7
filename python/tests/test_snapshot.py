"""Snapshots: saved by one cache, restored by another, with and without KV."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import numpy as np
import pytest

import kvpager
from kvpager import Cache, SnapshotBlock, SnapshotItem


def filled() -> Cache:
    """Ten tokens cached in two namespaces."""
    cache = Cache(n_blocks=32, block_tokens=4)
    for name in ("x", "y"):
        with cache.namespace(name).open(range(10)) as seq:
            seq.commit(10)
    return cache


def test_books_alone(tmp_path: pathlib.Path) -> None:
    path, told = tmp_path / "books", list[SnapshotItem]()
    filled().save(path, model="llama")
    other = Cache(n_blocks=32, block_tokens=4)
    report = other.load(path, model=b"llama", tell=told.append)
    assert (report.complete, report.namespaces, report.blocks, report.units) == (1, 2, 4, 4)
    assert report.dropped_blocks == (0,) * kvpager.DROP_REASONS
    assert other.namespace("y").match(range(10)).hit_tokens == 8
    assert [item.name for item in told if item.block is None] == [b"x", b"y"]
    deepest = max((item for item in told if item.block is not None and item.ns == 1),
                  key=lambda item: item.prefix_tokens)
    assert (deepest.prefix_tokens, deepest.n_units) == (8, 1)
    assert deepest.hash == kvpager.hash_units(
        range(8), 4, kvpager.hash_root(4, "y"))[1].tobytes()
    info = kvpager.snapshot_peek(path)
    assert (info["model"], info["saved_blocks"], info["block_tokens"]) == (b"llama", 4, 4)
    assert info["groups"] == [(0, 0)]
    assert list(tmp_path.iterdir()) == [path]


def test_with_kv(tmp_path: pathlib.Path) -> None:
    """Each block's bytes are its number; one that put refuses is dropped with what hangs on it."""
    path, had = tmp_path / "kv", dict[int, int]()

    def get(block: SnapshotBlock, out: Any) -> None:
        out[:] = block.block

    def put(block: SnapshotBlock, given: Any) -> bool:
        had[block.block] = int(given[0])
        return len(had) < 4

    filled().save(path, block_bytes=16, get=get)
    other = Cache(n_blocks=64, block_tokens=4)
    report = other.load(path, block_bytes=16, put=put)
    assert sorted(had.values()) == [1, 2, 3, 4]
    assert (report.blocks, report.dropped_blocks[kvpager.DROP_KV]) == (3, 1)
    other.check()


def test_what_is_refused(tmp_path: pathlib.Path) -> None:
    def fail(block: SnapshotBlock, out: Any) -> None:
        raise ZeroDivisionError

    path, n_open = tmp_path / "books", len(os.listdir("/dev/fd"))
    cache = filled()
    cache.save(path, model="llama")
    with pytest.raises(kvpager.StateError):
        cache.load(path, model="llama")
    with pytest.raises(kvpager.MismatchError):
        Cache(n_blocks=32, block_tokens=4).load(path, model="qwen")
    with pytest.raises(kvpager.IoError):
        Cache().load(tmp_path / "nothing")
    with pytest.raises(kvpager.IoError):
        kvpager.snapshot_peek(tmp_path / "nothing")
    with pytest.raises(kvpager.ArgError):
        cache.save(path, block_bytes=16)
    with pytest.raises(kvpager.ArgError, match="block_bytes"):
        cache.save(path, block_bytes=-1)
    os.mkfifo(tmp_path / "fifo")  # which nobody writes: nothing waits for it
    for call in (Cache().load, kvpager.snapshot_peek, kvpager.arena_inspect):
        with pytest.raises(kvpager.IoError):
            call(tmp_path / "fifo")
    assert len(os.listdir("/dev/fd")) == n_open
    with pytest.raises(OSError, match="not a regular file"):
        kvpager.OpLog(tmp_path / "fifo")
    with pytest.raises(kvpager.IoError, match="not supported"):
        cache.save(tmp_path / "fifo")
    os.unlink(tmp_path / "fifo")
    before = path.read_bytes()
    with pytest.raises(ZeroDivisionError):
        cache.save(path, block_bytes=16, get=fail)
    with pytest.raises(kvpager.IoError, match="No such file"):
        cache.save(tmp_path / "none" / "books")
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(kvpager.IoError, match="symbolic link"):
        cache.save(tmp_path / "link")
    with pytest.raises(kvpager.IoError, match="directory"):
        cache.save(tmp_path)
    assert path.read_bytes() == before
    assert sorted(tmp_path.iterdir()) == [path, tmp_path / "link"]
    with pytest.raises(TypeError, match="model"):
        cache.save(path, model=5)  # type: ignore[arg-type]
    (tmp_path / "text").write_bytes(b"no snapshot")
    with pytest.raises(kvpager.FormatError):
        kvpager.snapshot_peek(tmp_path / "text")
    assert kvpager.snapshot_peek(path)["model"] == b"llama", "what was there is whole"


def test_what_functions_raise(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "kv"

    def fails(*_: Any) -> None:
        raise RuntimeError("no disk")

    cache = filled()
    with pytest.raises(RuntimeError, match="no disk"):
        cache.save(path, block_bytes=16, get=fails)
    assert not list(tmp_path.iterdir())
    cache.save(path, block_bytes=16, get=lambda block, out: None)
    for functions in ({"put": fails}, {"put": lambda *_: True, "tell": fails}):
        other: Any = Cache(n_blocks=32, block_tokens=4)
        with pytest.raises(RuntimeError, match="no disk"):
            other.load(path, block_bytes=16, **functions)
        assert other.stats().cached_blocks == 0
        assert np.all(other.namespace("x").match(range(10)).hit_tokens == 0)


def test_closed(tmp_path: pathlib.Path) -> None:
    cache = filled()
    cache.close()
    with pytest.raises(kvpager.ClosedError):
        cache.save(tmp_path / "x")
    with pytest.raises(kvpager.ClosedError):
        cache.load(tmp_path / "x")
