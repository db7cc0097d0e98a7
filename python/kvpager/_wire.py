"""Worker messages: what a scheduler process tells its workers in each step.

A Sender makes the bytes, a Mirror in another process takes them and has every row. What follows a
message is copied out while nobody else is inside, so arrays that are given back last.
"""

from __future__ import annotations

from operator import index
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from . import _constants as c
from ._cache import Cache, object_of
from ._core import (I32, NULL, U32, I32Array, Ints, Struct, U32Array, Uncopied, bad_number,
                    bytes_in, close, copied, fail, locked, owned, same_length, seqs_of, set_fields,
                    struct_dtype, u32, why)
from ._native import ffi, lib
from ._records import WireConfigFields, WireHead, WireMirrorState

if TYPE_CHECKING:
    from typing_extensions import Unpack

_COPY_DTYPE = struct_dtype("kvp_copy")
_HEAD, _STATE = Struct(WireHead), Struct(WireMirrorState)
_no_numbers = (TypeError, OverflowError)


class NewsItem(NamedTuple):
    """What a message said of one sequence: values [n] i32 from position `begin` on."""

    worker_id: int
    is_new: bool
    begin: int
    values: I32Array


class News(NamedTuple):
    """What a message said. items: the step's batch, worker_id ascending; closed [n] u32; copies [n]
    COPY_DTYPE, the plan: run it before the forward pass."""

    full: bool
    items: list[NewsItem]
    closed: U32Array
    copies: npt.NDArray[Any]


class WorkerSeq(NamedTuple):
    """A sequence as a worker knows it; row [n_blocks] i32 of group 0, rows: of each layer group.
    status 0: no sequence has this id. The slots are of recurrent state; both are 0 without.
    write_slots [n] i32, as state_rings gives them: those of a ring, then write_slot; empty if that
    is 0."""

    status: int
    n_tokens: int
    known_tokens: int
    computed_tokens: int
    cached_tokens: int
    step_tokens: int
    last_token: int
    row: I32Array
    read_slot: int = 0
    write_slot: int = 0
    write_slots: I32Array = np.zeros(0, I32)
    rows: tuple[I32Array, ...] = ()


def wire_config(cache: Cache | None = None, **fields: Unpack[WireConfigFields]) -> dict[str, Any]:
    """Sizes of a sender and its mirrors: such that every state of the cache fits, or, without one,
    the defaults; with the given fields in place of those."""
    made = _config(cache, fields)
    sizes = {name: getattr(made, name) for name, _ in ffi.typeof("kvp_wire_config").fields
             if name not in ("struct_size", "reserved")}
    return sizes | {"group_tokens": tuple(made.group_tokens)}


def _config(cache: Cache | None, fields: Any) -> Any:
    made = ffi.new("kvp_wire_config *")
    lib.kvp_wire_config_init(made)
    if cache is not None:
        status = lib.kvpg_wire_config_of(object_of(cache), made)
        if status:
            fail(status, "wire_config")
    set_fields(made, fields, "wire_config")
    return made


def wire_peek(message: bytes) -> WireHead:
    """The head of a message, of which more may be to come: n_bytes is the length of it all."""
    data, room = bytes_in("message", message), _HEAD.new()
    status = lib.kvp_wire_peek(data, len(data), room)
    if status:
        fail(status, "wire_peek", message=f"<{len(data)} bytes>")
    return _HEAD.read(room)


class _Closing(Uncopied):
    """Closes at the end of a with block."""

    _o: Any

    def __enter__(self) -> Any:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        close(self._o, type(self).__name__)

    def close(self) -> None:
        """Destroy it. Closing twice does nothing."""
        close(self._o, type(self).__name__)


class Sender(_Closing):
    """Makes the messages of one cache. Keywords replace what wire_config(cache) gives."""

    def __init__(self, cache: Cache, **fields: Unpack[WireConfigFields]) -> None:
        # None, with which wire_config gives defaults, is no cache here.
        self._o = owned(lib.KVPY_SENDER, object_of(cache))
        made, self.cache = _config(cache, fields), cache
        cache._children.add(self)
        status = lib.kvpg_wire_sender_create(made, cache._o, NULL, 0, self._o)
        if status:
            fail(status, "Sender", said=why(status, lib.kvp_wire_config_check, made), **fields)

    def encode(self, seqs: Any, worker_ids: Ints, *, statuses: Ints, step_tokens: Ints | None
               = None, first_tokens: Ints | None = None, closed: Ints = (),
               copies: npt.NDArray[Any] | None = None, full: bool = False) -> bytes:
        """Make the message of a step. Values are asked from the cache.

        seqs          [n] u64, or sequences
        worker_ids    [n] u32, ascending, 0..max_seqs-1
        statuses      [n] u32, the caller's own, 1..255
        step_tokens   [n] u32; None: 0
        first_tokens  [n] u32, where values begin when the sequence is new to the worker; None: all
        closed        [m] u32, ascending: worker ids that end here
        copies        [k] COPY_DTYPE, as Cache.plan_take gave them
        """
        handles, ids, states = (seqs_of("seqs", seqs), u32("worker_ids", worker_ids),
                                u32("statuses", statuses))
        n = same_length(seqs=handles, worker_ids=ids, statuses=states)
        zeros = np.zeros(n, U32)
        counts = u32("step_tokens", zeros if step_tokens is None else step_tokens)
        firsts = u32("first_tokens", zeros if first_tokens is None else first_tokens)
        same_length(seqs=handles, step_tokens=counts, first_tokens=firsts)
        items, ends, made = (ffi.new("kvp_wire_item[]", max(n, 1)), u32("closed", closed),
                             ffi.new("kvp_wire_step *"))
        for i in range(n):
            item = items[i]
            item.seq, item.worker_id, item.status = handles[i], ids[i], states[i]
            item.step_tokens, item.first_token = counts[i], firsts[i]
        made.struct_size, made.flags = ffi.sizeof("kvp_wire_step"), c.WIRE_FULL if full else 0
        made.n_items, made.items, made.closed, made.n_closed = n, items, ends, len(ends)
        if copies is not None:
            if not isinstance(copies, np.ndarray) or copies.dtype != _COPY_DTYPE:
                raise TypeError("copies: needs an array of COPY_DTYPE")
            plan = np.ascontiguousarray(copies).reshape(-1)
            keep = ffi.from_buffer(plan.view(np.uint8)) if plan.size else NULL
            made.copies, made.n_copies = ffi.cast("kvp_copy *", keep), len(plan)
        out, n_bytes = ffi.new("uint8_t[]", 4096), ffi.new("size_t *")
        status = lib.kvpg_wire_sender_encode(self._o, made, out, len(out), n_bytes)
        if status == lib.KVP_E_TOO_SMALL and n_bytes[0] > len(out):
            out = ffi.new("uint8_t[]", n_bytes[0])
            status = lib.kvpg_wire_sender_encode(self._o, made, out, len(out), n_bytes)
        if status:
            fail(status, "Sender.encode", worker_ids=worker_ids, statuses=statuses, closed=closed)
        return bytes(ffi.buffer(out, n_bytes[0]))

    def digest(self) -> int:
        """Of what the workers have after the last message: equal to Mirror.digest there."""
        out = ffi.new("uint64_t *")
        status = lib.kvpg_wire_sender_digest(self._o, out)
        if status:
            fail(status, "Sender.digest")
        return int(out[0])


class Mirror(_Closing):
    """A worker's copy of every row, made from messages. Keywords are the fields of
    kvp_wire_config, the sender's; wire_config(cache) in the sender's process gives them."""

    def __init__(self, **fields: Unpack[WireConfigFields]) -> None:
        made, self._o = _config(None, fields), owned(lib.KVPY_MIRROR)
        self._distance = made.max_row_blocks
        self._block_tokens = [made.group_tokens[group] or made.block_tokens
                              for group in range(min(made.n_groups, c.GROUPS_MAX))]
        status = lib.kvpg_wire_mirror_create(made, NULL, 0, self._o)
        if status:
            fail(status, "Mirror", said=why(status, lib.kvp_wire_config_check, made), **fields)

    def apply(self, message: bytes) -> News:
        """Take a message: wholly, or not at all. FormatError: damaged; StateError: out of order, or
        a full one is needed (see info and wire_peek)."""
        data, room = bytes_in("message", message), ffi.new("kvp_wire_news *")
        with locked(self._o, "Mirror.apply") as mirror:
            status = lib.kvp_wire_mirror_apply(mirror, data, len(data), room)
            if status:
                fail(status, "Mirror.apply", message=f"<{len(data)} bytes>")
            items = [NewsItem(item.worker_id, bool(item.is_new), getattr(item, "from"),
                              copied(item.values, item.n_values, I32))
                     for item in room.items[0:room.n_items]]
            return News(bool(room.full), items, copied(room.closed, room.n_closed, U32),
                        copied(room.copies, room.n_copies, _COPY_DTYPE))

    def seq(self, worker_id: int) -> WorkerSeq:
        """One sequence, with its rows."""
        room = ffi.new("kvp_wire_seq *")
        with locked(self._o, "Mirror.seq") as mirror:
            try:
                status = lib.kvp_wire_mirror_seq(mirror, index(worker_id), room)
            except _no_numbers as error:
                raise bad_number(error, worker_id=worker_id) from None
            if status:
                fail(status, "Mirror.seq", worker_id=worker_id)
            rows = tuple(copied(room.row + group * self._distance,
                                lib.kvp_blocks_for_tokens(S, room.row_tokens), I32)
                         for group, S in enumerate(self._block_tokens))
            return WorkerSeq(room.status, room.n_tokens, room.known_tokens, room.computed_tokens,
                             room.cached_tokens, room.step_tokens, room.last_token,
                             rows[0], room.read_slot, room.write_slot,
                             copied(room.write_slots, room.n_write_slots, I32), rows)

    def info(self) -> WireMirrorState:
        """Where the mirror stands: epoch (0: waits for a full message), number, n_seqs."""
        room = _STATE.new()
        status = lib.kvpg_wire_mirror_info_get(self._o, room)
        if status:
            fail(status, "Mirror.info")
        return _STATE.read(room)

    def digest(self) -> int:
        out = ffi.new("uint64_t *")
        status = lib.kvpg_wire_mirror_digest(self._o, out)
        if status:
            fail(status, "Mirror.digest")
        return int(out[0])


