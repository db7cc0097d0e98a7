"""Batch metadata: the rows of a batch as the arrays that attention kernels read.

Each format has a function that gives fresh arrays of exactly the right size, and, where a step is
made many times a second, buffers that are filled again and again. Shape letters: B sequences, T
tokens of the step, E blocks of all sequences up to their lengths, M blocks of the longest, F those
of windowed lists, V nodes of trees.

All take the same first arguments, which csr explains.
"""

from __future__ import annotations

from operator import index
from typing import Any, NamedTuple

import numpy as np

from . import _constants as c
from ._cache import Cache, object_of
from ._core import (I32, I64, NULL, U8, U32, U64, I32Array, I64Array, Ints, Struct, U8Array,
                    U32Array, U64Array, bad_number, calls, number, pointer, same_length, seqs_of,
                    u32)
from ._errors import TooSmallError
from ._native import ffi, lib
from ._records import MetaSizes
from ._sequence import fail

_SIZES = Struct(MetaSizes)
_fill_meta = calls.fill_meta
_CSR, _DENSE, _WINDOWED, _TREE = range(4)  # as fill_format has them


class Dense(NamedTuple):
    """Padded table: vLLM, FlashAttention, trtllm-gen.

    block_table   [B, M] i32, padding 0
    seq_lens      [B] i32, tokens of the step included
    query_start   [B + 1] i32
    slot_mapping  [T] i64; NO_SLOT: computed, do not write
    positions     [T] i32
    """

    block_table: I32Array
    seq_lens: I32Array
    query_start: I32Array
    slot_mapping: I64Array
    positions: I32Array


class Csr(NamedTuple):
    """One list: FlashInfer, TVM.

    qo_indptr       [B + 1] i32, prefix sums of the tokens of the step
    kv_indptr       [B + 1] i32, prefix sums of the blocks
    kv_indices      [E] i32, block ids
    last_block_len  [B] i32, 1..S; 0 for a sequence of length 0
    batch_indices   [T] i32; -1: do not write
    positions       [T] i32
    slot_mapping    [T] i64
    """

    qo_indptr: I32Array
    kv_indptr: I32Array
    kv_indices: I32Array
    last_block_len: I32Array
    batch_indices: I32Array
    positions: I32Array
    slot_mapping: I64Array


class Windowed(NamedTuple):
    """CSR without what a window leaves out: AttentionWindow and CsrLists, TVM.

    qo_indptr .. slot_mapping   as Csr; kv_indices [F], of which none is the null block
    relative        [T] i32, positions counted over kept keys (StreamingLLM)
    sink_len        [B] i32: keys of the list before the gap; these three 0 without a window
    window_offset   [B] i32: list slot of the first key after it
    key_offset      [B] i32: its position less its number
    sinks, recent   [B] u32: K and R; recent 0: no window
    """

    qo_indptr: I32Array
    kv_indptr: I32Array
    kv_indices: I32Array
    last_block_len: I32Array
    batch_indices: I32Array
    positions: I32Array
    slot_mapping: I64Array
    relative: I32Array
    sink_len: I32Array
    window_offset: I32Array
    key_offset: I32Array
    sinks: U32Array
    recent: U32Array


class Tree(NamedTuple):
    """The trees of a batch, and a mask for every sequence.

    indptr       [B + 1] i32, prefix sums of the nodes
    parent       [V] i32, index in the sequence's tree, or -1
    depth        [V] i32, 0 for a root
    intervals    [V, 2] i32, enter and exit
    mask_indptr  [B + 1] i32, bytes
    mask         [mask_indptr[B]] u8: bit q x keys + k, lowest bit first (FlashInfer)
    """

    indptr: I32Array
    parent: I32Array
    depth: I32Array
    intervals: I32Array
    mask_indptr: I32Array
    mask: U8Array


class Level(NamedTuple):
    """A level of a cascade, of G groups: CSR arrays as in Csr, [G + 1], [G + 1], [E], [G]."""

    qo_indptr: I32Array
    kv_indptr: I32Array
    kv_indices: I32Array
    last_block_len: I32Array


class Cascade(NamedTuple):
    """Sequences that share leading blocks, computed together there.

    order   [B] i32: index in the batch of the k-th sequence
    levels  level 0 has what most share, the last one what each has alone
    """

    order: I32Array
    levels: list[Level]


class TrtLlm(NamedTuple):
    """block_offsets [B, 2, M] i32 (K row, V row; padding -1), seq_lens [B] i32."""

    block_offsets: I32Array
    seq_lens: I32Array


class Delta(NamedTuple):
    """What changed in rows that the caller has a copy of.

    version          [B] u64, blocks [B] u32: give them back as had_version, had_blocks next time
    indptr           [B + 1] i32 into entries
    start            [B] i32: row index of the first entry given
    entries          [indptr[B]] i32
    """

    version: U64Array
    blocks: U32Array
    indptr: I32Array
    start: I32Array
    entries: I32Array


class _Batch:
    """seqs [B] u64, begin [B] u32 or None, n_tokens [B] u32 or None, as C arrays."""

    __slots__ = ("seqs", "n", "begin", "n_tokens", "group", "given")

    def __init__(self, seqs: Any, begin: Ints | None, n_tokens: Ints | None, group: int) -> None:
        self.given = {"seqs": seqs, "begin": begin, "n_tokens": n_tokens, "group": group}
        self.seqs = seqs_of("seqs", seqs)
        self.n = len(self.seqs)
        self.group = number("group", group)
        self.begin = NULL if begin is None else u32("begin", begin)
        self.n_tokens = NULL if n_tokens is None else u32("n_tokens", n_tokens)
        if begin is not None or n_tokens is not None:
            same_length(seqs=self.seqs, begin=None if begin is None else self.begin,
                        n_tokens=None if n_tokens is None else self.n_tokens)

    def struct(self) -> Any:
        made = ffi.new("kvp_meta_batch *")
        made.struct_size, made.n_seqs = ffi.sizeof("kvp_meta_batch"), self.n
        made.seqs, made.group = self.seqs, self.group
        made.begin, made.n_tokens = self.begin, self.n_tokens
        return made


def measure(cache: Cache, seqs: Any, begin: Ints | None = None, n_tokens: Ints | None = None, *,
            group: int = 0) -> MetaSizes:
    """How large the arrays of a batch are."""
    object_of(cache)
    try:
        found = calls.measure(cache._h, seqs, begin, n_tokens, group)
    except (TypeError, OverflowError) as error:
        raise bad_number(error, group=group) from None
    if found is None:
        return _measure(cache, _Batch(seqs, begin, n_tokens, group))
    if type(found) is int:
        fail(cache._o, found, "measure", seqs=seqs, begin=begin, n_tokens=n_tokens, group=group)
    return found  # type: ignore[no-any-return]


def _measure(cache: Cache, batch: _Batch) -> MetaSizes:
    room = _SIZES.new()
    status = lib.kvpy_measure(object_of(cache), batch.seqs, batch.n, batch.group, batch.begin,
                              batch.n_tokens, room)
    if status:
        fail(cache._o, status, "measure", **batch.given)
    return _SIZES.read(room)


def states(cache: Cache, seqs: Any) -> tuple[I32Array, I32Array]:
    """The slots of recurrent state that the step of each sequence reads, and writes: [B] i32 each.
    Slot 0 is read where there is no state yet."""
    handles = seqs_of("seqs", seqs)
    arrays = np.empty(len(handles), I32), np.empty(len(handles), I32)
    status = lib.kvpg_meta_states(object_of(cache), handles, len(handles),
                                  *(pointer("out", array, I32) for array in arrays))
    if status:
        fail(cache._o, status, "states", seqs=seqs)
    return arrays


def state_rings(cache: Cache, seqs: Any) -> tuple[I32Array, U32Array, I32Array]:
    """The slots of recurrent state of a step that verifies drafts (Cache.extend_many with rings):
    read [B] i32; n [B] u32, how many are written; write [B, 17] i32, in the order of the tokens
    that are not computed, -1 behind the first n. The last of them is the slot of states()."""
    handles = seqs_of("seqs", seqs)
    read = np.empty(len(handles), I32)
    n = np.empty(len(handles), U32)
    write = np.empty((len(handles), c.STATE_RING_MAX), I32)
    status = lib.kvpg_meta_state_rings(object_of(cache), handles, len(handles), c.STATE_RING_MAX,
                                       pointer("out", read, I32), pointer("out", n, U32),
                                       pointer("out", write.reshape(-1), I32))
    if status:
        fail(cache._o, status, "state_rings", seqs=seqs)
    return read, n, write


_SIZE_OF = {"max_tokens": "n_tokens", "max_entries": "n_entries", "max_blocks": "max_blocks",
            "max_kept": "n_kept", "max_nodes": "n_nodes", "max_mask_bytes": "n_mask_bytes"}


class _Buffers:
    """One buffer, cut into the arrays of a format: `buffer` [bytes] u8, one copy uploads it."""

    buffer: U8Array
    _c: Any

    def _place(self, struct: str, place: Any, max_seqs: int, **sizes: int) -> None:
        """Takes memory for a format, whose sizes are fields of kvp_meta_sizes by the names that
        the caller gave them."""
        room, n_bytes = ffi.new("kvp_meta_sizes *"), ffi.new("size_t *")
        try:
            room.n_seqs = index(max_seqs)
            for name, size in sizes.items():
                setattr(room, _SIZE_OF[name], index(size))
        except (TypeError, OverflowError) as error:
            raise bad_number(error, max_seqs=max_seqs, **sizes) from None
        self._c = ffi.new(struct + " *")
        self._c.struct_size = ffi.sizeof(struct)
        status = place(self._c, room, NULL, 0, n_bytes)
        if status:
            raise TooSmallError(f"sizes of {struct}: max_seqs {max_seqs}, {sizes}")
        align = lib.KVP_META_ALIGN
        memory = np.empty(n_bytes[0] + align, np.uint8)
        skip = -memory.__array_interface__["data"][0] % align
        self.buffer = memory[skip:skip + n_bytes[0]]
        self._keep = ffi.from_buffer("uint8_t[]", self.buffer)
        status = place(self._c, room, self._keep, n_bytes[0], n_bytes)
        assert status == 0
        self.max_seqs = max_seqs
        self._at = int(ffi.cast("uintptr_t", self._c))
        self._base = int(ffi.cast("uintptr_t", self._keep))

    def _view(self, field: str, n: int, dtype: Any) -> Any:
        at = int(ffi.cast("uintptr_t", getattr(self._c, field))) - self._base
        return self.buffer[at:at + n * np.dtype(dtype).itemsize].view(dtype)

    def _fill(self, format: int, cache: Cache, seqs: Any, begin: Ints | None,
              n_tokens: Ints | None, group: int) -> int:
        """Fills in a batch; gives the status."""
        try:
            status: int | None = _fill_meta(cache._h, seqs, begin, n_tokens, group, format,
                                            self.max_seqs, self._at)
        except AttributeError:
            object_of(cache)
            raise
        except (TypeError, OverflowError) as error:
            raise bad_number(error, group=group) from None
        if status is not None:
            return status
        object_of(cache)
        batch = _Batch(seqs, begin, n_tokens, group)
        if batch.n > self.max_seqs:
            raise TooSmallError(f"seqs: {batch.n} of them, there is room for {self.max_seqs}")
        fill = getattr(lib, ("kvpg_meta_fill_csr", "kvpg_meta_fill_dense",
                             "kvpg_meta_fill_windowed", "kvpg_meta_fill_tree")[format])
        return int(fill(cache._o, batch.struct(), self._c))


class CsrBuffers(_Buffers):
    """Room for CSR metadata of up to max_seqs sequences, max_tokens tokens of the step and
    max_entries blocks. After fill, the arrays' beginnings are valid: kv_indices up to kv_indptr[B],
    batch_indices, positions and slot_mapping up to qo_indptr[B]."""

    def __init__(self, max_seqs: int, max_tokens: int, max_entries: int) -> None:
        self._place("kvp_meta_csr", lib.kvp_meta_place_csr, max_seqs, max_tokens=max_tokens,
                    max_entries=max_entries)
        self.qo_indptr: I32Array = self._view("qo_indptr", max_seqs + 1, I32)
        self.kv_indptr: I32Array = self._view("kv_indptr", max_seqs + 1, I32)
        self.kv_indices: I32Array = self._view("kv_indices", max_entries, I32)
        self.last_block_len: I32Array = self._view("last_block_len", max_seqs, I32)
        self.batch_indices: I32Array = self._view("batch_indices", max_tokens, I32)
        self.positions: I32Array = self._view("positions", max_tokens, I32)
        self.slot_mapping: I64Array = self._view("slot_mapping", max_tokens, I64)

    def fill(self, cache: Cache, seqs: Any, begin: Ints | None = None,
             n_tokens: Ints | None = None, *, group: int = 0) -> None:
        """Fill in a batch: arguments as for csr."""
        status = self._fill(_CSR, cache, seqs, begin, n_tokens, group)
        if status:
            fail(cache._o, status, "CsrBuffers.fill", seqs=seqs, begin=begin, n_tokens=n_tokens,
                 group=group)

    def view(self, n_seqs: int) -> Csr:
        """What was filled in for n_seqs sequences, cut to size; no copy."""
        t, e = int(self.qo_indptr[n_seqs]), int(self.kv_indptr[n_seqs])
        return Csr(self.qo_indptr[:n_seqs + 1], self.kv_indptr[:n_seqs + 1], self.kv_indices[:e],
                   self.last_block_len[:n_seqs], self.batch_indices[:t], self.positions[:t],
                   self.slot_mapping[:t])


class DenseBuffers(_Buffers):
    """Room for dense metadata of up to max_seqs sequences of max_blocks blocks, and max_tokens
    tokens of the step. block_table is [max_seqs, max_blocks]."""

    def __init__(self, max_seqs: int, max_tokens: int, max_blocks: int) -> None:
        self._place("kvp_meta_dense", lib.kvp_meta_place_dense, max_seqs, max_tokens=max_tokens,
                    max_blocks=max_blocks)
        stride = self._c.row_stride
        self.block_table: I32Array = self._view("block_table", max_seqs * stride, I32).reshape(
            max_seqs, stride)
        self.seq_lens: I32Array = self._view("seq_lens", max_seqs, I32)
        self.query_start: I32Array = self._view("query_start", max_seqs + 1, I32)
        self.slot_mapping: I64Array = self._view("slot_mapping", max_tokens, I64)
        self.positions: I32Array = self._view("positions", max_tokens, I32)

    def fill(self, cache: Cache, seqs: Any, begin: Ints | None = None,
             n_tokens: Ints | None = None, *, group: int = 0) -> None:
        """Fill in a batch: arguments as for csr."""
        status = self._fill(_DENSE, cache, seqs, begin, n_tokens, group)
        if status:
            fail(cache._o, status, "DenseBuffers.fill", seqs=seqs, begin=begin, n_tokens=n_tokens,
                 group=group)

    def view(self, n_seqs: int) -> Dense:
        """What was filled in for n_seqs sequences; block_table has all its columns."""
        t = int(self.query_start[n_seqs])
        return Dense(self.block_table[:n_seqs], self.seq_lens[:n_seqs],
                     self.query_start[:n_seqs + 1], self.slot_mapping[:t], self.positions[:t])


class WindowedBuffers(_Buffers):
    """Room for windowed metadata of up to max_seqs sequences, max_tokens tokens of the step and
    max_kept blocks. After fill, the arrays' beginnings are valid, as those of CsrBuffers."""

    def __init__(self, max_seqs: int, max_tokens: int, max_kept: int) -> None:
        self._place("kvp_meta_windowed", lib.kvp_meta_place_windowed, max_seqs,
                    max_tokens=max_tokens, max_kept=max_kept)
        sizes = {"qo_indptr": max_seqs + 1, "kv_indptr": max_seqs + 1, "kv_indices": max_kept,
                 "batch_indices": max_tokens, "positions": max_tokens, "slot_mapping": max_tokens,
                 "relative": max_tokens}
        types = {"slot_mapping": I64, "sinks": U32, "recent": U32}
        self._all = Windowed(*(self._view(name, sizes.get(name, max_seqs), types.get(name, I32))
                               for name in Windowed._fields))

    def fill(self, cache: Cache, seqs: Any, begin: Ints | None = None,
             n_tokens: Ints | None = None, *, group: int = 0) -> None:
        """Fill in a batch: arguments as for csr."""
        status = self._fill(_WINDOWED, cache, seqs, begin, n_tokens, group)
        if status:
            fail(cache._o, status, "WindowedBuffers.fill", seqs=seqs, begin=begin,
                 n_tokens=n_tokens, group=group)

    def view(self, n_seqs: int) -> Windowed:
        """What was filled in for n_seqs sequences, cut to size; no copy."""
        a, n = self._all, n_seqs
        t, f = int(a.qo_indptr[n]), int(a.kv_indptr[n])
        return Windowed(a.qo_indptr[:n + 1], a.kv_indptr[:n + 1], a.kv_indices[:f],
                        a.last_block_len[:n], a.batch_indices[:t], a.positions[:t],
                        a.slot_mapping[:t], a.relative[:t], a.sink_len[:n], a.window_offset[:n],
                        a.key_offset[:n], a.sinks[:n], a.recent[:n])


class TreeBuffers(_Buffers):
    """Room for the trees of up to max_seqs sequences, max_nodes nodes, and masks of max_mask_bytes
    bytes; 0: no mask is wanted. After fill, the arrays' beginnings are valid."""

    def __init__(self, max_seqs: int, max_nodes: int, max_mask_bytes: int) -> None:
        self._place("kvp_meta_tree", lib.kvp_meta_place_tree, max_seqs, max_nodes=max_nodes,
                    max_mask_bytes=max_mask_bytes)
        masks = (self._view("mask_indptr", max_seqs + 1, I32),
                 self._view("mask", max_mask_bytes, U8)) if max_mask_bytes else (
                     np.zeros(max_seqs + 1, I32), np.empty(0, U8))
        self._all = Tree(self._view("indptr", max_seqs + 1, I32),
                         self._view("parent", max_nodes, I32), self._view("depth", max_nodes, I32),
                         self._view("intervals", 2 * max_nodes, I32).reshape(max_nodes, 2), *masks)

    def fill(self, cache: Cache, seqs: Any, begin: Ints | None = None,
             n_tokens: Ints | None = None, *, group: int = 0, mask_keys: int = c.MASK_ROWS) -> None:
        """Fill in a batch: arguments as for tree."""
        self._c.mask_keys = number("mask_keys", mask_keys)
        status = self._fill(_TREE, cache, seqs, begin, n_tokens, group)
        if status:
            fail(cache._o, status, "TreeBuffers.fill", seqs=seqs, begin=begin, n_tokens=n_tokens,
                 group=group, mask_keys=mask_keys)

    def view(self, n_seqs: int) -> Tree:
        """What was filled in for n_seqs sequences, cut to size; no copy."""
        a, n = self._all, n_seqs
        v, m = int(a.indptr[n]), int(a.mask_indptr[n])
        return Tree(a.indptr[:n + 1], a.parent[:v], a.depth[:v], a.intervals[:v],
                    a.mask_indptr[:n + 1], a.mask[:m])


def csr(cache: Cache, seqs: Any, begin: Ints | None = None, n_tokens: Ints | None = None, *,
        group: int = 0) -> Csr:
    """CSR metadata in fresh arrays.

    seqs      [B] u64, or sequences
    begin     [B] u32, position of the first token that the step computes; None: the first that is
              not computed, or the tree's first node, or the last token if all are
    n_tokens  [B] u32, tokens and nodes that it computes; None: all from begin on
    group     layer group
    """
    sizes = measure(cache, seqs, begin, n_tokens, group=group)
    buffers = CsrBuffers(sizes.n_seqs, sizes.n_tokens, sizes.n_entries)
    buffers.fill(cache, seqs, begin, n_tokens, group=group)
    return buffers.view(sizes.n_seqs)


def dense(cache: Cache, seqs: Any, begin: Ints | None = None, n_tokens: Ints | None = None, *,
          group: int = 0) -> Dense:
    """Dense metadata in fresh arrays."""
    sizes = measure(cache, seqs, begin, n_tokens, group=group)
    buffers = DenseBuffers(sizes.n_seqs, sizes.n_tokens, sizes.max_blocks)
    buffers.fill(cache, seqs, begin, n_tokens, group=group)
    filled = buffers.view(sizes.n_seqs)
    return filled._replace(block_table=filled.block_table[:, :sizes.max_blocks])


def windowed(cache: Cache, seqs: Any, begin: Ints | None = None, n_tokens: Ints | None = None, *,
             group: int = 0) -> Windowed:
    """Windowed metadata in fresh arrays: to be made before the step's commit, which drops blocks.
    """
    sizes = measure(cache, seqs, begin, n_tokens, group=group)
    buffers = WindowedBuffers(sizes.n_seqs, sizes.n_tokens, sizes.n_kept)
    buffers.fill(cache, seqs, begin, n_tokens, group=group)
    return buffers.view(sizes.n_seqs)


def tree(cache: Cache, seqs: Any, begin: Ints | None = None, n_tokens: Ints | None = None, *,
         group: int = 0, mask_keys: int = c.MASK_ROWS) -> Tree:
    """The trees of a batch and its masks in fresh arrays.

    mask_keys  MASK_ROWS: columns are the keys of dense and CSR lists; MASK_WINDOWED: of windowed
               ones
    """
    sizes = measure(cache, seqs, begin, n_tokens, group=group)
    buffers = TreeBuffers(sizes.n_seqs, sizes.n_nodes, sizes.n_mask_bytes)
    buffers.fill(cache, seqs, begin, n_tokens, group=group, mask_keys=mask_keys)
    return buffers.view(sizes.n_seqs)


def cascade(cache: Cache, seqs: Any, begin: Ints | None = None, n_tokens: Ints | None = None, *,
            max_levels: int = 8, group: int = 0) -> Cascade:
    """A cascade in fresh arrays, of at most max_levels levels, 1..META_LEVELS_MAX."""
    object_of(cache)
    found = None
    if type(max_levels) is int and max_levels > 0:
        try:
            found = calls.cascade(cache._h, seqs, begin, n_tokens, min(max_levels, 255), group)
        except (TypeError, OverflowError) as error:
            raise bad_number(error, group=group) from None
    if found is None:
        return _cascade(cache, seqs, begin, n_tokens, max_levels, group)
    if type(found) is int:
        fail(cache._o, found, "cascade", seqs=seqs, begin=begin, n_tokens=n_tokens, group=group)
    return found  # type: ignore[no-any-return]


def _cascade(cache: Cache, seqs: Any, begin: Ints | None, n_tokens: Ints | None, max_levels: int,
             group: int) -> Cascade:
    """What lists become arrays for, and what is wrong is found out."""
    batch = _Batch(seqs, begin, n_tokens, group)
    sizes = _measure(cache, batch)
    if not isinstance(max_levels, int):
        raise TypeError(f"max_levels: needs an int, not {type(max_levels).__name__}")
    if not 1 <= max_levels <= lib.KVP_META_LEVELS_MAX:
        raise ValueError(f"max_levels: {max_levels} is not in 1..{lib.KVP_META_LEVELS_MAX}")
    n, order = batch.n, np.empty(batch.n, I32)
    shapes = (n + 1, n + 1, max(sizes.n_entries, 1), n)
    arrays = [[np.empty(size, I32) for size in shapes] for _ in range(max_levels)]
    room = ffi.new("kvp_meta_level[]", max_levels)
    keep = [[ffi.from_buffer("int32_t[]", array) for array in level] for level in arrays]
    for level, (qo, kv, indices, last) in zip(room, keep):
        level.qo_indptr, level.kv_indptr = qo, kv
        level.kv_indices, level.last_block_len = indices, last
    made = ffi.new("kvp_meta_cascade *")
    made.struct_size = ffi.sizeof("kvp_meta_cascade")
    made.max_levels, made.max_entries = max_levels, shapes[2]
    order_room = ffi.from_buffer("int32_t[]", order)
    made.order, made.levels = order_room, room
    status = lib.kvpg_meta_fill_cascade(cache._o, batch.struct(), made)
    if status:
        fail(cache._o, status, "cascade", seqs=seqs, begin=begin, n_tokens=n_tokens, group=group)
    levels = []
    for level, (qo, kv, indices, last) in zip(room[0:made.n_levels], arrays):
        g = level.n_groups
        levels.append(Level(qo[:g + 1], kv[:g + 1], indices[:level.n_entries], last[:g]))
    return Cascade(order, levels)


def trtllm(cache: Cache, seqs: Any, begin: Ints | None = None, n_tokens: Ints | None = None, *,
           layers_per_block: int = 1, group: int = 0) -> TrtLlm:
    """TensorRT-LLM's block offsets for one pool, in fresh arrays."""
    batch = _Batch(seqs, begin, n_tokens, group)
    sizes = _measure(cache, batch)
    stride = max(sizes.max_blocks, 1)
    offsets, lens = np.empty((batch.n, 2, stride), I32), np.empty(batch.n, I32)
    made = ffi.new("kvp_meta_trtllm *")
    made.struct_size, made.row_stride = ffi.sizeof("kvp_meta_trtllm"), stride
    try:
        made.layers_per_block = layers_per_block
    except (TypeError, OverflowError) as error:
        raise bad_number(error, layers_per_block=layers_per_block) from None
    keep = ffi.from_buffer("int32_t[]", offsets), ffi.from_buffer("int32_t[]", lens)
    made.block_offsets, made.seq_lens = keep
    status = lib.kvpg_meta_fill_trtllm(cache._o, batch.struct(), made)
    if status:
        fail(cache._o, status, "trtllm", seqs=seqs, layers_per_block=layers_per_block,
             group=group)
    return TrtLlm(offsets[:, :, :sizes.max_blocks], lens)


def delta(cache: Cache, seqs: Any, had_version: Ints | None = None,
          had_blocks: Ints | None = None, *, group: int = 0) -> Delta:
    """What changed in rows since the delta before: had_version [B] u64, had_blocks [B] u32 as that
    one gave them; None: everything is new."""
    object_of(cache)
    try:
        found = calls.delta(cache._h, seqs, had_version, had_blocks, group)
    except (TypeError, OverflowError) as error:
        raise bad_number(error, group=group) from None
    if found is None:
        return _delta(cache, seqs, had_version, had_blocks, group)
    if type(found) is int:
        fail(cache._o, found, "delta", seqs=seqs)
    return found  # type: ignore[no-any-return]


def _delta(cache: Cache, seqs: Any, had_version: Ints | None, had_blocks: Ints | None,
           group: int) -> Delta:
    """What lists become arrays for, and what is wrong is found out."""
    batch = _Batch(seqs, None, None, group)
    n = batch.n
    version = np.zeros(n, U64) if had_version is None else had_version
    blocks = np.zeros(n, U32) if had_blocks is None else had_blocks
    had = pointer("had_version", version, U64), u32("had_blocks", blocks)
    same_length(seqs=batch.seqs, had_version=had[0], had_blocks=had[1])
    now = np.empty(n, U64), np.empty(n, U32)
    indptr, start = np.empty(n + 1, I32), np.empty(n, I32)
    made = ffi.new("kvp_meta_delta *")
    made.struct_size = ffi.sizeof("kvp_meta_delta")
    made.had_version, made.had_blocks = had
    keep = [ffi.from_buffer("uint64_t[]", now[0]), ffi.from_buffer("uint32_t[]", now[1])]
    keep += [ffi.from_buffer("int32_t[]", array) for array in (indptr, start)]
    made.version, made.blocks, made.indptr, made.start = keep
    capacity = n + 64
    while True:
        entries = np.empty(capacity, I32)
        room = ffi.from_buffer("int32_t[]", entries)
        made.entries, made.max_entries = room, capacity
        status = lib.kvpg_meta_fill_delta(cache._o, batch.struct(), made)
        if status != lib.KVP_E_TOO_SMALL:
            break
        capacity = made.n_entries
    if status:
        fail(cache._o, status, "delta", seqs=seqs)
    return Delta(now[0], now[1], indptr, start, entries[:indptr[n]])
