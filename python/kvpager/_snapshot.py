"""Snapshots: what is cached, saved in a file and restored by another process. snapshot.h."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from . import _constants as c
from ._core import Struct, U8Array, error_of, fail, function, number, path_of, text_of
from ._native import ffi, lib
from ._records import SnapshotBlock, SnapshotReport, Window

_REPORT, _BLOCK = Struct(SnapshotReport), Struct(SnapshotBlock)

Get = Callable[[SnapshotBlock, U8Array], None]
Put = Callable[[SnapshotBlock, U8Array], "bool | None"]


class SnapshotItem(NamedTuple):
    """Something that was restored: a namespace (block None) or a block (name None).

    ns       number of the namespace in the file
    hash     of the deepest unit in the block; before: of the unit before the block
    """

    ns: int
    name: bytes | None
    block: SnapshotBlock | None
    retention: int
    n_units: int
    prefix_tokens: int
    hash: bytes
    before: bytes


class _Callbacks:
    """What the functions of one call are given, and what they raised."""

    def __init__(self, block_bytes: int, state_bytes: int, group: int, **functions: Any) -> None:
        self.block_bytes, self.state_bytes, self.functions = block_bytes, state_bytes, functions
        self.state_group = group
        self.error: BaseException | None = None

    def room(self, block: Any, address: Any) -> npt.NDArray[np.uint8]:
        n_bytes = self.state_bytes if block.group == self.state_group else self.block_bytes
        return np.frombuffer(ffi.buffer(address, n_bytes), np.uint8)

    def run(self, name: str, *arguments: Any) -> Any:
        """What the function gives; False when it raised, now or before."""
        if self.error is not None:
            return False
        try:
            return self.functions[name](*arguments)
        except BaseException as error:
            self.error = error
            return False


@ffi.def_extern()  # type: ignore[untyped-decorator]
def kvpy_snapshot_get(context: Any, block: Any, out: Any) -> int:
    calls = ffi.from_handle(context)
    return int(calls.run("get", _BLOCK.read(block), calls.room(block, out)) is False)


@ffi.def_extern()  # type: ignore[untyped-decorator]
def kvpy_snapshot_put(context: Any, block: Any, given: Any) -> int:
    calls = ffi.from_handle(context)
    room = calls.room(block, ffi.cast("void *", given))
    return int(calls.run("put", _BLOCK.read(block), room) is False)


@ffi.def_extern()  # type: ignore[untyped-decorator]
def kvpy_snapshot_tell(context: Any, item: Any) -> None:
    is_block = item.kind == c.SNAPSHOT_BLOCK
    ffi.from_handle(context).run("tell", SnapshotItem(
        item.ns, None if is_block else bytes(ffi.buffer(item.name, item.name_bytes)),
        _BLOCK.read(ffi.addressof(item, "block")) if is_block else None, item.retention,
        item.n_units, item.prefix_tokens, bytes(ffi.buffer(ffi.addressof(item, "hash"))),
        bytes(ffi.buffer(ffi.addressof(item, "before")))))


def _options(model: str | bytes, calls: _Callbacks) -> tuple[Any, Any]:
    """A kvp_snapshot_options, and what must live as long."""
    made = ffi.new("kvp_snapshot_options *")
    lib.kvp_snapshot_options_init(made)
    data = text_of("model", model)
    keep = ffi.from_buffer(data), ffi.new_handle(calls)
    made.model, made.model_bytes = keep[0], len(data)
    made.block_bytes, made.context = number("block_bytes", calls.block_bytes), keep[1]
    made.state_bytes = number("state_bytes", calls.state_bytes)
    for name in ("get", "put", "tell"):
        if calls.functions.get(name) is not None:
            setattr(made, name, getattr(lib, f"kvpy_snapshot_{name}"))
    return made, keep


class Snapshots:
    """The part of the cache that snapshot.h describes."""

    _o: Any
    groups: list[Window]

    def save(self, path: str | os.PathLike[str], *, model: str | bytes = b"", block_bytes: int = 0,
             get: Get | None = None, state_bytes: int = 0) -> None:
        """Save what is cached; a file that is there already is replaced as a whole, or stays.

        model        what the KV is of: model, revision, type; compared when it is restored
        block_bytes  KV bytes of a block; 0: the KV is not saved
        get          get(block, out) writes a block's KV into out, [block_bytes] u8
        state_bytes  bytes of a slot of recurrent state, where block.group is the number of groups

        StateError: copies wait in the plan, or a step is out. IoError: the file cannot be written,
        or its name is that of something else; the message says why. What get raises ends the save."""
        function("get", get)
        calls = _Callbacks(block_bytes, state_bytes, len(self.groups), get=get)
        options, keep = _options(model, calls)
        error = ffi.new("int *")
        status = lib.kvpy_snapshot_save(self._o, options, path_of("path", path), error)
        del keep
        if calls.error is not None:
            raise calls.error
        if status:
            wrong = error_of(status, "Cache.save",
                             {"path": path, "block_bytes": block_bytes, "get": get,
                              "state_bytes": state_bytes})
            raise type(wrong)(f"{wrong}: {os.strerror(error[0])}") if error[0] else wrong

    def load(self, path: str | os.PathLike[str], *, model: str | bytes = b"", block_bytes: int = 0,
             put: Put | None = None, tell: Callable[[SnapshotItem], None] | None = None,
             state_bytes: int = 0) -> SnapshotReport:
        """Restore what was saved, into a cache in which nothing was opened yet.

        put    put(block, bytes) takes a block's KV, [block_bytes] u8, good during the call; False:
               the block is dropped
        tell   is told everything that was restored

        Gives what was saved, restored and dropped. MismatchError: another configuration, model,
        block_bytes or state_bytes. What put or tell raises is raised, and the cache is empty."""
        function("put", put)
        function("tell", tell)
        calls, room = _Callbacks(block_bytes, state_bytes, len(self.groups), put=put,
                                 tell=tell), _REPORT.new()
        options, keep = _options(model, calls)
        status = lib.kvpy_snapshot_load(self._o, options, path_of("path", path), room)
        del keep
        if calls.error is not None:
            lib.kvpg_cache_reset(self._o)
            raise calls.error
        if status:
            fail(status, "Cache.load", path=os.fspath(path), block_bytes=block_bytes, put=put,
                 state_bytes=state_bytes)
        return _REPORT.read(room)


def snapshot_peek(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a snapshot says of itself: block_tokens, groups, model, saved_blocks, ..."""
    room = ffi.new("kvp_snapshot_info *")
    status = lib.kvpy_snapshot_peek(path_of("path", path), room)
    if status:
        fail(status, "snapshot_peek", path=os.fspath(path))
    info = {name: getattr(room, name) for name, _ in ffi.typeof("kvp_snapshot_info").fields}
    info["groups"] = [Window(group.sink_tokens, group.recent_tokens)
                      for group in room.groups[0:room.n_groups]]
    info["model"] = bytes(ffi.buffer(room.model))[:info.pop("model_bytes")]
    return info
