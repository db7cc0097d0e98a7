"""Layer groups, sliding windows and token trees: the examples of the headers, from Python."""

from __future__ import annotations

import numpy as np
import pytest

import kvpager
from kvpager import Cache


def test_windows_h() -> None:
    """K = 3, R = 6, S = 4, q = 17: entries 1 and 2 are dropped, in the group with the window."""
    with Cache(n_blocks=64, block_tokens=4, groups=[(0, 0), kvpager.Window(3, 6)]) as cache:
        assert cache.groups == [(0, 0), (3, 6)] and cache.config["n_groups"] == 2
        seq = cache.namespace().open(range(18))
        before = seq.row(group=1).tolist()
        seq.commit(17)
        assert seq.row(group=1).tolist() == [before[0], 0, 0, *before[3:]]
        assert (seq.row() != 0).all()
        info = seq.window_info(group=1)
        assert (info.window, info.dropped_begin, info.dropped_end) == ((3, 6), 1, 3)
        assert seq.window_info().window == kvpager.Window(0, 0)

        got = kvpager.windowed(cache, [seq], group=1)
        assert got.kv_indices.tolist() == [before[0], *before[3:]]
        assert (got.sink_len.tolist(), got.window_offset.tolist()) == ([3], [4])
        assert (got.key_offset.tolist(), got.relative.tolist()) == ([9], [8])
        assert (got.sinks.tolist(), got.recent.tolist()) == ([3], [6])
        assert (got.positions.tolist(), got.last_block_len.tolist()) == ([17], [2])
        plain = kvpager.windowed(cache, [seq])
        assert plain.kv_indices.tolist() == seq.row().tolist()
        assert plain.recent.tolist() == [0]
        cache.check()


def test_chunks() -> None:
    """Chunks of 6 tokens, S = 4, q = 17: the query sees 12 and after."""
    with Cache(n_blocks=64, block_tokens=4, groups=[(0, 0), (kvpager.CHUNKED, 6)]) as cache:
        seq = cache.namespace().open(range(18))
        before = seq.row(group=1).tolist()
        seq.commit(17)
        assert seq.row(group=1).tolist() == [0, 0, 0, *before[3:]]
        assert seq.window_info(group=1).window == (kvpager.CHUNKED, 6)
        got = kvpager.windowed(cache, [seq], group=1)
        assert got.key_offset.tolist() == [12]
        assert (got.sinks.tolist(), got.recent.tolist()) == ([kvpager.CHUNKED], [6])
        with pytest.raises(kvpager.ArgError):
            seq.window((kvpager.CHUNKED, 0))


def test_a_sequence_s_own_window() -> None:
    with Cache(n_blocks=64, block_tokens=4) as cache:
        seq = cache.namespace().open(range(18))
        seq.commit(17)
        assert seq.window((0, 6)) == (0, 3)  # of five blocks, three full ones stay cached
        assert seq.row().tolist()[:3] == [0, 0, 0]
        with pytest.raises(kvpager.DroppedError):
            seq.window((0, 0))
        with pytest.raises(kvpager.DroppedError):
            seq.fork(2)
        assert cache.stats().dropped_blocks == 3


def test_a_prefix_is_hit_where_every_group_has_what_it_keeps() -> None:
    with Cache(n_blocks=64, block_tokens=4, groups=[(0, 0), (0, 4)]) as cache:
        ns = cache.namespace()
        with ns.open(range(16)) as seq:
            seq.commit(16)
        with ns.open(range(17)) as again:
            assert again.cached_tokens == 16
            assert again.row(group=1).tolist()[:3] == [0, 0, 0]
            assert (again.row()[:4] != 0).all()


def test_windowed_buffers() -> None:
    with Cache(n_blocks=64, block_tokens=4, groups=[(1, 5)]) as cache:
        seqs = [cache.namespace().open(range(i, i + 15 + i)) for i in range(3)]
        buffers = kvpager.WindowedBuffers(max_seqs=4, max_tokens=64, max_kept=64)
        buffers.fill(cache, seqs)
        pairs = zip(buffers.view(3), kvpager.windowed(cache, seqs))
        for got, want in ((np.asarray(a), np.asarray(b)) for a, b in pairs):
            assert got.tolist() == want.tolist() and np.shares_memory(got, buffers.buffer)
        with pytest.raises(kvpager.TooSmallError):
            kvpager.WindowedBuffers(3, 4, 4).fill(cache, seqs)


def test_trees_h() -> None:
    """Nodes 0 -> 1 -> 3 and 0 -> 2 behind 9 tokens; the path to 3 is accepted: node 3 moves."""
    with Cache(n_blocks=64, block_tokens=4, max_tree_tokens=8) as cache:
        seq = cache.namespace().open(range(9))
        seq.commit(9)
        seq.extend_tree([7, 8, 9, 5], [-1, 0, 0, 1])
        tokens, parents = seq.tree()
        assert (tokens.tolist(), parents.tolist()) == ([7, 8, 9, 5], [-1, 0, 0, 1])
        got = kvpager.tree(cache, [seq])
        assert (got.indptr.tolist(), got.parent.tolist()) == ([0, 4], [-1, 0, 0, 1])
        assert got.depth.tolist() == [0, 1, 1, 2]
        assert got.intervals.tolist() == [[0, 4], [1, 3], [3, 4], [2, 3]]
        mask = np.unpackbits(got.mask, bitorder="little")[:4 * 13].reshape(4, 13)
        assert mask[:, :9].all()
        assert mask[:, 9:].tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]]
        assert kvpager.dense(cache, [seq]).positions.tolist() == [9, 10, 10, 11]
        slots = seq.slots(9, 4)
        moves = seq.accept(3)
        assert moves.shape == (1, 1)
        assert moves[0].tolist() == [(slots[3], slots[2])]
        assert seq.tokens().tolist() == [*range(9), 7, 8, 5]
        assert seq.info().computed_tokens == 12 and seq.tree()[0].size == 0


def test_trees_of_many() -> None:
    """More moves than the first guess has room for, in two groups, in several rounds."""
    groups = [(0, 0), (0, 64)]
    with Cache(n_blocks=512, block_tokens=4, max_tree_tokens=256, groups=groups) as cache:
        ns = cache.namespace()
        seqs = [ns.open([i, 1, 2]) for i in range(3)]
        cache.commit_many(seqs, [3, 3, 3])
        cache.extend_tree(seqs, [4, 5, 6], [-1, -1, -1])  # a root each, which is not taken
        chain = [-1, *range(1, 100)]
        cache.extend_tree(seqs[:2], [9] * 100 + [8] * 2, chain + [0, 1], n_tokens=[100, 2])
        moves = cache.accept(seqs, [100, 2, -1])
        assert moves.shape == (2, 100) and moves.dtype == kvpager.SLOT_MOVE_DTYPE
        assert [seq.info().n_tokens for seq in seqs] == [103, 6, 3]
        buffers = kvpager.TreeBuffers(max_seqs=3, max_nodes=8, max_mask_bytes=0)
        cache.extend_tree(seqs, [4, 5, 6], [-1, -1, -1])
        buffers.fill(cache, seqs)
        assert buffers.view(3).indptr.tolist() == [0, 1, 2, 3]
        assert buffers.view(3).mask.size == 0
        with pytest.raises(kvpager.ArgError, match="tokens"):
            cache.extend_tree(seqs, [1, 2], [-1, -1])
        with pytest.raises(kvpager.ArgError, match="parents"):
            seqs[0].extend_tree([1, 2], [-1])
        cache.check()


def test_statuses_of_later_headers() -> None:
    assert issubclass(kvpager.DroppedError, kvpager.DataError)
    assert issubclass(kvpager.AgainError, kvpager.RetryError)
    assert issubclass(kvpager.PeerError, kvpager.SystemFailure)


def test_blocks_of_several_sizes() -> None:
    """A group with half the bytes a token has twice the tokens a block."""
    with Cache(n_blocks=64, block_tokens=4,
               groups=[(0, 0), kvpager.Group(0, 6, 8), kvpager.Group(block_tokens=12)]) as cache:
        assert cache.groups == [(0, 0), (0, 6), (0, 0)] and cache.group_tokens == [4, 8, 12]
        seq = cache.namespace().open(range(18))
        assert [len(seq.row(group=g)) for g in range(3)] == [5, 3, 2]
        cache.check()
    with pytest.raises(kvpager.ArgError, match=r"groups\[1\].block_tokens is 6: no multiple"):
        Cache(block_tokens=4, groups=[(0, 0), kvpager.Group(block_tokens=6)])
