"""Batch metadata against a slow construction from rows."""

from __future__ import annotations

import numpy as np
import pytest

import kvpager
from kvpager import Cache, Sequence


@pytest.fixture
def cache() -> Cache:
    return Cache(n_blocks=64, block_tokens=4, max_seqs=8)


def decoding(cache: Cache) -> list[Sequence]:
    """Three that decode, of 9, 5 and 8 computed tokens; the first two share a block."""
    ns = cache.namespace()
    seqs = []
    for prompt in ([1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 3, 4, 99], list(range(50, 58))):
        seq = ns.open(prompt)
        seq.commit(len(prompt))
        seq.append(7)
        seqs.append(seq)
    return seqs


def test_csr(cache: Cache) -> None:
    seqs = decoding(cache)
    got = kvpager.csr(cache, seqs)
    rows = [seq.row() for seq in seqs]
    lens = [10, 6, 9]
    blocks = [-(-n // 4) for n in lens]
    assert got.qo_indptr.tolist() == [0, 1, 2, 3]
    assert got.kv_indptr.tolist() == np.cumsum([0, *blocks]).tolist()
    assert got.kv_indices.tolist() == [b for row, n in zip(rows, blocks) for b in row[:n]]
    assert got.last_block_len.tolist() == [2, 2, 1]
    assert got.batch_indices.tolist() == [0, 1, 2]
    assert got.positions.tolist() == [9, 5, 8]
    assert got.slot_mapping.tolist() == [int(row[p // 4]) * 4 + p % 4
                                         for row, p in zip(rows, [9, 5, 8])]


def test_csr_buffers_again_and_again(cache: Cache) -> None:
    seqs = decoding(cache)
    handles = kvpager.handles_of(seqs)
    buffers = kvpager.CsrBuffers(max_seqs=8, max_tokens=8, max_entries=64)
    assert buffers.buffer.__array_interface__["data"][0] % kvpager.META_ALIGN == 0
    for _ in range(5):
        buffers.fill(cache, handles)
        pairs = zip(buffers.view(3), kvpager.csr(cache, handles))
        for got, want in ((np.asarray(a), np.asarray(b)) for a, b in pairs):
            assert got.tolist() == want.tolist()
            assert np.shares_memory(got, buffers.buffer)
        cache.commit_many(handles, np.array([s.info().n_tokens for s in seqs], np.uint32))
        cache.extend_many(handles, [1, 2, 3])
    with pytest.raises(kvpager.TooSmallError, match="seqs"):
        kvpager.CsrBuffers(2, 8, 64).fill(cache, handles)
    for small in (kvpager.CsrBuffers(3, 2, 64), kvpager.CsrBuffers(3, 3, 2)):
        with pytest.raises(kvpager.TooSmallError):
            small.fill(cache, handles)


def test_dense(cache: Cache) -> None:
    seqs = decoding(cache)
    got = kvpager.dense(cache, seqs)
    assert got.block_table.shape == (3, 3)
    for row, seq, n in zip(got.block_table, seqs, (3, 2, 3)):
        assert row.tolist() == seq.row()[:n].tolist() + [0] * (3 - n)
    assert got.seq_lens.tolist() == [10, 6, 9]
    assert got.query_start.tolist() == [0, 1, 2, 3]
    assert got.positions.tolist() == [9, 5, 8]
    assert got.slot_mapping.tolist() == kvpager.csr(cache, seqs).slot_mapping.tolist()
    with pytest.raises(kvpager.TooSmallError):
        kvpager.DenseBuffers(3, 3, 2).fill(cache, seqs)


def test_chunks(cache: Cache) -> None:
    """begin and n_tokens name a part of a prompt."""
    seq = cache.namespace().open(range(10))
    got = kvpager.csr(cache, [seq], begin=[0], n_tokens=[6])
    assert (got.qo_indptr.tolist(), got.last_block_len.tolist()) == ([0, 6], [2])
    assert got.positions.tolist() == list(range(6))
    sizes = kvpager.measure(cache, [seq])
    assert (sizes.n_seqs, sizes.n_tokens, sizes.n_entries, sizes.max_blocks) == (1, 10, 3, 3)
    with pytest.raises(kvpager.ArgError, match="n_tokens"):
        kvpager.csr(cache, [seq], begin=[0], n_tokens=[6, 7])


def test_cascade(cache: Cache) -> None:
    seqs = decoding(cache)
    got = kvpager.cascade(cache, seqs, max_levels=2)
    assert sorted(got.order.tolist()) == [0, 1, 2]
    assert len(got.levels) == 2
    # Level 0: the block that the first two share, once. Level 1: the rest.
    shared = int(seqs[0].row()[0])
    assert got.levels[0].kv_indices.tolist() == [shared]
    assert shared not in got.levels[1].kv_indices.tolist()
    assert len(kvpager.cascade(cache, seqs, max_levels=1).levels) == 1
    with pytest.raises(ValueError, match="max_levels"):
        kvpager.cascade(cache, seqs, max_levels=33)


def test_trtllm(cache: Cache) -> None:
    seqs = decoding(cache)
    got = kvpager.trtllm(cache, seqs, layers_per_block=3)
    assert got.block_offsets.shape == (3, 2, 3)
    assert got.seq_lens.tolist() == [10, 6, 9]
    assert got.block_offsets[0, 0].tolist() == [6 * int(b) for b in seqs[0].row()]
    assert got.block_offsets[0, 1].tolist() == [6 * int(b) + 1 for b in seqs[0].row()]
    assert got.block_offsets[1, 0, 2] == -1


def test_delta(cache: Cache) -> None:
    seqs = decoding(cache)
    first = kvpager.delta(cache, seqs)
    assert first.entries.tolist() == [b for seq in seqs for b in seq.row().tolist()]
    second = kvpager.delta(cache, seqs, first.version, first.blocks)
    assert second.entries.size == 0 and second.indptr.tolist() == [0, 0, 0, 0]
    for _ in range(4):
        seqs[1].append(1)
    third = kvpager.delta(cache, seqs, second.version, second.blocks)
    assert third.entries.tolist() == seqs[1].row()[2:].tolist()
    assert third.start.tolist()[1] == 2


def test_part_of_a_prompt_in_all_formats(cache: Cache) -> None:
    """begin and n_tokens reach every format: the length ends with the step's tokens."""
    seq = cache.namespace().open(range(14))
    row = seq.row().tolist()
    assert kvpager.dense(cache, [seq], [2], [4]).seq_lens.tolist() == [6]
    assert kvpager.dense(cache, [seq], [2], [4]).block_table.tolist() == [row[:2]]
    assert kvpager.trtllm(cache, [seq], [2], [4]).seq_lens.tolist() == [6]
    last = kvpager.cascade(cache, [seq], [2], [4]).levels[-1]
    assert (last.kv_indices.tolist(), last.last_block_len.tolist()) == (row[:2], [2])
