"""Operation logs: read and run what Cache.record wrote."""

from __future__ import annotations

import errno
import os
import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ._core import I32, NULL, U32, U64, I32Array, U32Array, U64Array, close, copied, error_of
from ._core import fail, locked, number, owned, path_of
from ._native import ffi, lib
from ._wire import _Closing

_SCALARS = ("handle", "position", "count", "group", "tier", "block", "reserve_tokens", "flags",
            "retention", "tag", "number", "n_tokens", "n_seqs")


class Call(NamedTuple):
    """One record: a call with its arguments and its status.

    index      of the record, from 0
    name       "seq_open"
    status     what it returned
    arguments  the numbers of kvp_call that are not zero
    tokens     [n] i32, or None: the call had none
    handles    [B] u64 portable handles, of calls for many
    counts     [B] u32, or None
    data       the record's bytes
    """

    index: int  # type: ignore[assignment]
    name: str
    status: int
    arguments: dict[str, int]
    tokens: I32Array | None
    handles: U64Array
    counts: U32Array | None
    data: bytes


class OpLog(_Closing):
    """A log, from a file or from bytes. Iterating gives every Call, from the first one on."""

    def __init__(self, source: str | os.PathLike[str] | bytes) -> None:
        data = source
        if not isinstance(data, bytes):
            path = pathlib.Path(os.fsdecode(path_of("source", source)))
            if path.exists() and not path.is_file():  # a FIFO would be waited for
                raise OSError(errno.EINVAL, "not a regular file", str(path))
            data = path.read_bytes()
        room = ffi.from_buffer(data)
        self._o = owned(lib.KVPY_OPLOG, held=room)
        status = lib.kvpg_oplog_open(room, len(data), self._o)
        if status:
            fail(status, "OpLog", source=f"<{len(data)} bytes>")

    @property
    def config(self) -> dict[str, int | float]:
        """The configuration of the recorded cache."""
        room = ffi.new("kvp_config *")
        status = lib.kvpg_oplog_config(self._o, room)
        if status:
            fail(status, "OpLog.config")
        return {name: getattr(room, name) for name, _ in ffi.typeof("kvp_config").fields
                if name not in ("struct_size", "reserved", "uncached_tokens")}

    def __iter__(self) -> Iterator[Call]:
        status = lib.kvpg_oplog_rewind(self._o)
        if status:
            fail(status, "OpLog")
        while True:
            call = self._next()
            if call is None:
                return
            yield call

    def _next(self) -> Call | None:
        room, end = ffi.new("kvp_record *"), ffi.new("int *")
        with locked(self._o, "OpLog") as log:
            status = lib.kvp_oplog_next(log, room, end)
            if status:
                fail(status, "OpLog", byte=int(lib.kvp_oplog_offset(log)))
            if end[0]:
                return None
            call = room.call
            tokens = None if call.tokens == NULL else copied(call.tokens, call.n_tokens, I32)
            counts = None if call.counts == NULL else copied(call.counts, call.n_seqs, U32)
            handles = (np.empty(0, U64) if call.handles == NULL
                       else copied(call.handles, call.n_seqs, U64))
            numbers = {name: int(getattr(call, name)) for name in _SCALARS
                       if getattr(call, name)}
            name = ffi.string(lib.kvp_oplog_call_name(call.op)).decode()
            return Call(room.index, name, int(room.status), numbers, tokens, handles, counts,
                        bytes(ffi.buffer(room.bytes, room.n_bytes)))

    def replay(self, check_level: int = 0) -> None:
        """Run the whole log on a new cache and compare every record, bit for bit. MismatchError,
        CorruptError and FormatError say at which record, in .index."""
        out = ffi.new("uint64_t *")
        status = lib.kvpg_oplog_replay(self._o, number("check_level", check_level), out)
        if status:
            error = error_of(status, "OpLog.replay",
                             {"check_level": check_level, "record": int(out[0])})
            error.index = int(out[0])
            raise error

    def close(self) -> None:
        """Close the log."""
        close(self._o, "OpLog")


def call_name(op: int) -> str:
    """Name of a call by its number; "?" when there is none."""
    text: Any = ffi.string(lib.kvp_oplog_call_name(number("op", op)))
    return str(text.decode())
