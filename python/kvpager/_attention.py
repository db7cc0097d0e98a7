"""Attention over KV memory in blocks, on the CPU: append, attention, merge."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from . import _constants as c
from ._core import (F32, I32, I64, NULL, U8, U32, F32Array, Ints, Uncopied, bad_number, fail, i32,
                    instance, listed, locked, number, owned, pointer, same_length, set_fields, why)
from ._errors import ArgError
from ._memory import Layer
from ._native import ffi, lib
from ._records import RopeFields

if TYPE_CHECKING:
    from typing_extensions import Unpack

F64Array = npt.NDArray[np.float64]


class AttentionTeam(Uncopied):
    """Threads that attention is split over, the caller's among them: 1..ATTENTION_TEAM_MAX. One call at
    a time: BusyError. They end with the last reference to it."""

    def __init__(self, n_threads: int) -> None:
        self._o = owned(lib.KVPY_TEAM)
        status = lib.kvpg_attention_team_create(number("n_threads", n_threads), self._o)
        if status:
            fail(status, "AttentionTeam", n_threads=n_threads)


def attention_has(impl: int) -> bool:
    """Whether this processor has an implementation, ATTENTION_..."""
    return bool(lib.kvp_attention_has(number("impl", impl)))


class Rope:
    """Rotary embedding. Keywords are the fields of kvp_rope, see RopeFields: mode, theta, ...

    frequencies   [n / 2] f64 radians for each position, in place of theta and scaling
    """

    def __init__(self, frequencies: F64Array | None = None, **fields: Unpack[RopeFields]) -> None:
        self._c = ffi.new("kvp_rope *")
        lib.kvp_rope_init(self._c)
        set_fields(self._c, fields, "Rope")
        self._keep: Any = None
        if frequencies is not None and (getattr(frequencies, "dtype", None) != np.float64
                                        or frequencies.ndim != 1):
            raise TypeError("frequencies: needs an array of float64 of one dimension")
        self._n = None if frequencies is None else len(frequencies)
        if frequencies is not None:
            if not frequencies.flags.c_contiguous or not frequencies.flags.aligned:
                raise ArgError("frequencies: the array is not contiguous")
            self._keep = ffi.from_buffer("double[]", frequencies)
            self._c.frequencies = self._keep

    def _fits(self, dims: int) -> None:
        n_dims = self._c.n_dims or dims - self._c.first_dim
        if self._n is not None and 2 * self._n < n_dims:
            raise ArgError(f"frequencies: has {self._n}, {n_dims} dimensions need {n_dims // 2}")

    def frequencies(self, dims: int) -> tuple[F64Array, float]:
        """([n_pairs] f64 radians for each position, magnitude) for vectors of `dims` elements."""
        self._fits(number("dims", dims))
        n, magnitude = ffi.new("uint32_t *"), ffi.new("double *")
        out = np.empty(max(dims // 2, 1), np.float64)
        status = lib.kvp_rope_frequencies(self._c, dims, ffi.from_buffer("double[]", out),
                                          len(out), n, magnitude)
        if status:
            fail(status, "Rope.frequencies", dims=dims)
        return out[:n[0]], float(magnitude[0])


class DenseLists(NamedTuple):
    """Block lists as a table: blocks [B, M] i32, lengths [B] i32 keys, this step's included."""

    blocks: Any
    lengths: Any


class CsrLists(NamedTuple):
    """Block lists one after the other: row_start [B + 1], blocks [E], last_len [B], all i32. Of a
    cascade's level, query_start [B + 1] too."""

    row_start: Any
    blocks: Any
    last_len: Any
    query_start: Any = None


class AttentionTree(NamedTuple):
    """What queries may see of uncommitted tokens, the sequences' last keys.

    start       [B + 1] i32, first uncommitted token of each sequence
    intervals   [V, 2] i32, (enter, exit); or
    bits        [n] u8 packed rows, and bits_start [B + 1] i32
    """

    start: Any = None
    intervals: Any = None
    bits: Any = None
    bits_start: Any = None


class AttentionWindow(NamedTuple):
    """The first sink_tokens and the last recent_tokens keys are seen; recent_tokens 0: all.
    With CHUNKED for sink_tokens, those of the query's chunk of recent_tokens.

    sinks, recent   [B] u32, of each sequence, in place of the two numbers
    sink_len, window_offset, key_offset   [B] i32: lists without dropped blocks
    query_positions   [T] i32 of the queries: for parts, whose keys do not say where a query is
    """

    sink_tokens: int = 0
    recent_tokens: int = 0
    sinks: Any = None
    recent: Any = None
    sink_len: Any = None
    window_offset: Any = None
    key_offset: Any = None
    query_positions: Any = None


# ------------------------------------------------------------------------------------- arrays


def _array(name: str, value: Any) -> Any:
    """`value`, or the array over the same memory of what speaks DLPack."""
    if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack__"):
        return value
    try:
        return np.from_dlpack(value)
    except (TypeError, BufferError, RuntimeError) as error:
        raise ArgError(f"{name}: {error}") from None


def _columns(name: str, lse: Any) -> Any:
    """[T, Q] as [T, Q, 1]."""
    array = _array(name, lse)
    return array[:, :, None] if isinstance(array, np.ndarray) and array.ndim == 2 else array


def _rows(name: str, value: Any, shape: tuple[int, ...], writable: bool = False) -> tuple[
        Any, int, int]:
    """(pointer, token stride, head stride in elements) of f32 [T, heads, dims]."""
    array = _array(name, value)
    if not isinstance(array, np.ndarray) or array.dtype != F32:
        raise TypeError(f"{name}: needs an array of float32, not "
                        f"{getattr(array, 'dtype', type(array).__name__)}")
    if array.shape != shape:
        raise ArgError(f"{name}: needs the shape {list(shape)}, has {list(array.shape)}")
    if shape[2] > 1 and array.strides[2] != 4 or any(n % 4 or n < 0 for n in array.strides):
        raise ArgError(f"{name}: the elements of a vector must be contiguous")
    if not array.flags.aligned:
        raise ArgError(f"{name}: the array is not aligned")
    if writable and not array.flags.writeable:
        raise ArgError(f"{name}: the array is read-only")
    strides = array.strides
    # 0 and 0 would mean dense; the stride over a dimension of one element is never used.
    token = strides[0] // 4 if shape[0] > 1 else shape[1] * shape[2]
    head = strides[1] // 4 if shape[1] > 1 else shape[2]
    if shape[0] > 1 and strides[0] == 0 or shape[1] > 1 and strides[1] == 0:
        raise ArgError(f"{name}: the array repeats itself (a stride of 0)")
    return array.__array_interface__["data"][0], token, head


def _set_rows(rows: Any, name: str, value: Any, shape: tuple[int, ...],
              writable: bool = False) -> None:
    address, rows.token_stride, rows.head_stride = _rows(name, value, shape, writable)
    rows.data = ffi.cast("float *", address)


def _scratch(n_bytes: int) -> tuple[Any, Any]:
    """Aligned memory: (what keeps it, pointer)."""
    memory = np.empty(n_bytes + lib.KVP_SCRATCH_ALIGN, np.uint8)
    at = memory.__array_interface__["data"][0]
    return memory, ffi.cast("void *", at + -at % lib.KVP_SCRATCH_ALIGN)


def _run(what: str, bytes_of: Any, run: Any, made: Any, given: dict[str, Any]) -> None:
    n_bytes = ffi.new("size_t *")
    status = bytes_of(made, n_bytes)
    if status:
        check = lib.kvp_append_check if what == "append" else lib.kvp_attention_check
        fail(status, what, said=why(status, check, made), **given)
    keep, scratch = _scratch(n_bytes[0])
    status = run(made, scratch, n_bytes[0])
    del keep
    if status:
        fail(status, what, **given)


def append(layer: Layer, k: F32Array, v: F32Array | None, slots: Any, *,
           positions: Ints | None = None, rope: Rope | None = None,
           impl: int = c.ATTENTION_AUTO) -> None:
    """Write new K and V to their slots.

    k, v       [T, H, D], [T, H, Dv] f32; v None for a latent layer
    slots      [T] i64; NO_SLOT: not written
    positions  [T] i32, with ROPE_AT_WRITE
    """
    instance("layer", layer, Layer)
    if rope is not None:
        instance("rope", rope, Rope)
    made = ffi.new("kvp_append *")
    lib.kvp_append_init(made)
    where = pointer("slots", slots, I64)
    t, shape = len(where), layer._c
    made.layer, made.n_tokens, made.slots = shape, t, where
    set_fields(made, {"impl": impl}, "append")
    _set_rows(made.k, "k", k, (t, shape.n_heads, shape.k.size))
    if v is not None:
        _set_rows(made.v, "v", v, (t, shape.n_heads, shape.v.size))
    elif shape.v.size:
        raise TypeError("v: the layer has V; needs an array of float32")
    given = None if positions is None else i32("positions", positions)
    if given is not None:
        same_length(slots=where, positions=given)
        made.positions = given
    if rope is not None:
        rope._fits(shape.k.size)
        made.rope = rope._c[0]
    if t:
        _run("append", lib.kvp_append_bytes, lib.kvp_append_run, made,
             {"slots": slots, "positions": positions})


def _set_level(level: Any, lists: DenseLists | CsrLists, keep: list[Any]) -> int:
    """Fills in one level of block lists; gives how many rows it has."""
    instance("lists", lists, DenseLists, CsrLists)
    if isinstance(lists, DenseLists):
        lengths = i32("lengths", lists.lengths)
        table = _array("blocks", lists.blocks)
        if not isinstance(table, np.ndarray) or table.dtype != I32:
            raise TypeError(f"blocks: needs an array of int32, not "
                            f"{getattr(table, 'dtype', type(table).__name__)}")
        if table.ndim != 2 or table.shape[0] != len(lengths) or table.strides[1] != 4 or \
                table.strides[0] < 4 * table.shape[1] or table.strides[0] % 4:
            raise ArgError(f"blocks: needs rows of contiguous ids, [{len(lengths)}, M]; has "
                           f"{list(table.shape)}")
        stride = table.strides[0] // 4
        address = table.__array_interface__["data"][0]
        level.row_stride, level.lengths = max(stride, 1), lengths
        level.blocks = ffi.cast("int32_t *", address)
        level.n_blocks = (table.shape[0] - 1) * stride + table.shape[1] if table.size else 0
        level.n_rows = len(lengths)
        keep += [lengths, table]
        return len(lengths)
    start, ids, last = (i32("row_start", lists.row_start), i32("blocks", lists.blocks),
                        i32("last_len", lists.last_len))
    if len(start) != len(last) + 1:
        raise ArgError(f"row_start: has {len(start)} elements, last_len has {len(last)}")
    level.row_start, level.blocks, level.last_len = start, ids, last
    level.n_blocks, level.n_rows = len(ids), len(last)
    keep += [start, ids, last]
    if lists.query_start is not None:
        queries = i32("query_start", lists.query_start)
        same_length(row_start=start, query_start=queries)
        level.query_start = queries
        keep.append(queries)
    return len(last)


def _set_window(made: Any, window: AttentionWindow, n_seqs: int, keep: list[Any]) -> None:
    room = made.window
    try:
        room.sink_tokens, room.recent_tokens = window.sink_tokens, window.recent_tokens
    except (TypeError, OverflowError) as error:
        raise bad_number(error, sink_tokens=window.sink_tokens,
                         recent_tokens=window.recent_tokens) from None
    for name, dtype in (("sinks", U32), ("recent", U32), ("sink_len", I32),
                        ("window_offset", I32), ("key_offset", I32), ("query_positions", I32)):
        value = getattr(window, name)
        if value is not None:
            data = pointer(name, value, dtype)
            needs = made.n_tokens if name == "query_positions" else n_seqs
            if len(data) != needs:
                of_what = "tokens" if name == "query_positions" else "sequences"
                raise ArgError(f"{name}: has {len(data)} elements, there are {needs} {of_what}")
            setattr(room, name, data)
            keep.append(data)


def _set_tree(made: Any, tree: AttentionTree, n_seqs: int, keep: list[Any]) -> None:
    room = made.tree
    for name in ("start", "bits_start"):
        value = getattr(tree, name)
        if value is not None:
            data = i32(name, value)
            if len(data) != n_seqs + 1:
                raise ArgError(f"{name}: has {len(data)} elements, needs {n_seqs + 1}")
            setattr(room, name, data)
            keep.append(data)
    if tree.intervals is not None:
        pairs = _array("intervals", tree.intervals)
        if not isinstance(pairs, np.ndarray) or pairs.dtype != I32:
            raise TypeError(f"intervals: needs an array of int32, not "
                            f"{getattr(pairs, 'dtype', type(pairs).__name__)}")
        if pairs.ndim != 2 or pairs.shape[1:] != (2,) or not pairs.flags.c_contiguous:
            raise ArgError("intervals: needs a contiguous array [V, 2]")
        data = ffi.from_buffer("int32_t[]", pairs)
        room.intervals, room.n_tokens = data, len(pairs)
        keep.append(data)
    if tree.bits is not None:
        data = pointer("bits", tree.bits, U8)
        room.bits, room.n_bytes = data, len(data)
        keep.append(data)


def attention(layer: Layer, q: F32Array, query_start: Ints,
              lists: DenseLists | CsrLists | SequenceOf[DenseLists | CsrLists], *,
              out: F32Array | None = None, lse: F32Array | None = None, v_size: int = 0,
              causal: bool = True, scale: float = 0.0, soft_cap: float = 0.0,
              sink_logits: F32Array | None = None, order: Ints | None = None,
              window: AttentionWindow | None = None, tree: AttentionTree | None = None,
              rope: Rope | None = None, positions: Ints | None = None,
              team: AttentionTeam | None = None, impl: int = c.ATTENTION_AUTO) -> F32Array:
    """Attention: prefill, chunks of it, decode, trees, in one batch. attention.h has the terms.

    q            [T, Q, D] f32
    query_start  [B + 1] i32, first query of each sequence
    lists        DenseLists, CsrLists, or several of them: the levels of a cascade, with `order`
    out          [T, Q, Dv] f32, written; None: a fresh one. It is given back
    lse          [T, Q] or [T, Q, 1] f32, written; None: not wanted
    v_size       Dv of a latent layer
    scale        0: 1 / sqrt(D)
    sink_logits  [Q] f32
    positions    [T] i32 of the queries, with ROPE_AT_WRITE
    team         threads that share the work; None: this one only
    """
    instance("layer", layer, Layer)
    for name, given, kind in (("window", window, AttentionWindow), ("tree", tree, AttentionTree),
                              ("rope", rope, Rope), ("team", team, AttentionTeam)):
        if given is not None:
            instance(name, given, kind)
    q = _array("q", q)
    made, keep = ffi.new("kvp_attention *"), list[Any]()
    lib.kvp_attention_init(made)
    starts = i32("query_start", query_start)
    if len(starts) < 2:
        raise ArgError(f"query_start: needs at least 2 elements, has {len(starts)}")
    n_seqs = len(starts) - 1
    if not isinstance(q, np.ndarray) or q.ndim != 3:
        raise ArgError("q: needs an array [T, Q, D] of float32")
    t, n_heads, _ = q.shape
    made.layer, made.n_seqs, made.n_tokens, made.n_heads = layer._c, n_seqs, t, n_heads
    made.query_start, made.causal = starts, int(causal)
    set_fields(made, {"v_size": v_size, "scale": scale, "soft_cap": soft_cap, "impl": impl},
               "attention")
    dims = made.v_size or layer._c.v.size or layer._c.k.size
    _set_rows(made.q, "q", q, (t, n_heads, layer._c.k.size))
    result = np.zeros((t, n_heads, dims), F32) if out is None else out
    _set_rows(made.out, "out", result, (t, n_heads, dims), writable=True)
    if lse is not None:
        _set_rows(made.lse, "lse", _columns("lse", lse), (t, n_heads, 1), writable=True)
    levels = [lists] if isinstance(lists, (DenseLists, CsrLists)) else listed("lists", lists)
    rooms = ffi.new("kvp_attention_level[]", len(levels))
    for room, level in zip(rooms, levels):
        rows = _set_level(room, level, keep)
        if room.query_start == NULL and rows != n_seqs:
            raise ArgError(f"lists: {rows} rows, there are {n_seqs} sequences")
    made.levels, made.n_levels = rooms, len(levels)
    for name, value in (("order", order), ("positions", positions)):
        if value is not None:
            data = i32(name, value)
            least = n_seqs if name == "order" else t
            if len(data) != least:
                raise ArgError(f"{name}: has {len(data)} elements, needs {least}")
            setattr(made, name, data)
            keep.append(data)
    if sink_logits is not None:
        data = pointer("sink_logits", sink_logits, F32)
        if len(data) != n_heads:
            raise ArgError(f"sink_logits: has {len(data)} elements, there are {n_heads} heads")
        made.sink_logits = data
        keep.append(data)
    if window is not None:
        _set_window(made, window, n_seqs, keep)
    if tree is not None:
        _set_tree(made, tree, n_seqs, keep)
    if rope is not None:
        rope._fits(layer._c.k.size)
        made.rope = rope._c[0]
    with nullcontext(NULL) if team is None else locked(team._o, "team") as threads:
        made.team = threads
        if t:
            _run("attention", lib.kvp_attention_bytes, lib.kvp_attention_run, made,
                 {"query_start": query_start, "lists": lists, "order": order,
                  "positions": positions, "window": window, "tree": tree})
    return result


def merge(partials: SequenceOf[tuple[F32Array, F32Array]], *, impl: int = c.ATTENTION_AUTO) -> tuple[
        F32Array, F32Array]:
    """Merge partial results of disjoint sets of keys: [(out [T, Q, Dv], lse [T, Q])] f32, at most
    MERGE_MAX; gives (out, lse)."""
    pairs = [pair for pair in listed("partials", partials)]
    if not pairs or not all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in pairs):
        raise ArgError("partials: needs pairs (out [T, Q, Dv], lse [T, Q])")
    first = _array("partials[0] out", pairs[0][0])
    if not isinstance(first, np.ndarray) or first.ndim != 3:
        raise ArgError("partials: needs pairs (out [T, Q, Dv], lse [T, Q])")
    t, n_heads, dims = first.shape
    made, rooms = ffi.new("kvp_merge *"), ffi.new("kvp_partial[]", len(pairs))
    lib.kvp_merge_init(made)
    for i, (room, (out, lse)) in enumerate(zip(rooms, pairs)):
        _set_rows(room.out, f"partials[{i}] out", out, (t, n_heads, dims))
        name = f"partials[{i}] lse"
        _set_rows(room.lse, name, _columns(name, lse), (t, n_heads, 1))
    made.n_partials, made.partials = len(pairs), rooms
    set_fields(made, {"impl": impl, "n_tokens": t, "n_heads": n_heads, "size": dims}, "merge")
    merged, total = np.zeros((t, n_heads, dims), F32), np.zeros((t, n_heads), F32)
    _set_rows(made.out, "out", merged, (t, n_heads, dims), writable=True)
    _set_rows(made.lse, "lse", total[:, :, None], (t, n_heads, 1), writable=True)
    status = lib.kvp_merge_run(made)
    if status:
        fail(status, "merge", partials=partials)
    return merged, total
