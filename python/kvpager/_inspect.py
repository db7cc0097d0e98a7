"""A look into the arena of a cache that another process works on: inspect.h."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ._core import Struct, U64Array, bytes_in, fail, function, number, path_of
from ._native import ffi, lib
from ._records import ArenaSeq, NsInfo, Stats, Window
from ._snapshot import SnapshotItem, _Callbacks

_STATS, _SEQ, _NS_INFO = Struct(Stats), Struct(ArenaSeq), Struct(NsInfo)


class ArenaReport(NamedTuple):
    """What is in an arena.

    state         ARENA_WHOLE: of one moment, every invariant holds; ARENA_MOVING: calls were made
                  meanwhile, blocks and what was told may not add up; ARENA_DAMAGED
    violation     what is wrong with a damaged one; else ""
    config        the owner's configuration, as Cache.config
    groups        the window of each layer group
    stats         the owner's counters and gauges
    arena_bytes   that the configuration asks for
    calls         that the owner has made; calls_since: after stats were read
    inside        whether a call was inside whenever stats were read: nothing adds up
    blocks        [2, G, ARENA_STATES] u64, blocks that are not free, counted: by tier (DEVICE,
                  HOST), group and ARENA_HELD, ARENA_CACHED, ARENA_PARKED
    unreachable_blocks  with recurrent state: cached ones that no checkpoint makes reachable
    """

    state: int
    violation: str
    config: dict[str, int | float]
    groups: list[Window]
    stats: Stats
    arena_bytes: int
    calls: int
    calls_since: int
    inside: bool
    blocks: U64Array
    unreachable_blocks: int


@ffi.def_extern()  # type: ignore[untyped-decorator]
def kvpy_arena_tell_seq(context: Any, seq: Any) -> None:
    ffi.from_handle(context).run("tell_seq", _SEQ.read(seq))


@ffi.def_extern()  # type: ignore[untyped-decorator]
def kvpy_arena_tell_quota(context: Any, ns: int, info: Any) -> None:
    ffi.from_handle(context).run("tell_quota", ns, _NS_INFO.read(info))


def _report_of(made: Any) -> ArenaReport:
    n_groups = made.config.n_groups
    config = {name: getattr(made.config, name) for name, _ in ffi.typeof("kvp_config").fields
              if name not in ("struct_size", "reserved", "uncached_tokens", "groups")}
    windows = [Window(group.sink_tokens, group.recent_tokens)
               for group in made.config.groups[0:n_groups]]
    blocks = np.frombuffer(ffi.buffer(ffi.addressof(made, "blocks")), np.uint64)
    shape = (2, lib.KVP_GROUPS_MAX, lib.KVP_ARENA_STATES)
    violation = ""
    if made.state == lib.KVP_ARENA_DAMAGED:
        violation = (f"{ffi.string(made.violation.invariant).decode()}, object "
                     f"{made.violation.object}: {ffi.string(made.violation.detail).decode()}")
    return ArenaReport(made.state, violation, config, windows,
                       _STATS.read(ffi.addressof(made, "stats")), made.arena_bytes, made.calls,
                       made.calls_since, bool(made.inside),
                       blocks.reshape(shape)[:, :n_groups].copy(), made.unreachable_blocks)


def arena_inspect(arena: Any, *, figures_only: bool = False, max_memory: int = 0,
                  tell: Callable[[SnapshotItem], None] | None = None,
                  tell_seq: Callable[[ArenaSeq], None] | None = None,
                  tell_quota: Callable[[int, NsInfo], None] | None = None) -> ArenaReport:
    """Look into the arena of a cache once, from any process, while its owner works. Nothing is
    locked or written.

    arena         the file in shared memory that it is in, by its path; or a contiguous buffer of
                  all its bytes: an mmap, a memoryview, an array [n] u8. Of a file that may be cut
                  meanwhile give the path: reading a mapping of it would end the process
    figures_only  configuration and stats, nothing else: takes a few microseconds
    max_memory    bytes for the look; more is a TooSmallError. 0: of a file 64 MiB and 16 times what
                  it has, holes not counted; of a buffer no limit
    tell          is told every namespace, then every block in which something can be hit
    tell_seq      is told every open sequence
    tell_quota    is told the number of every namespace and what it has, if the owner has quotas

    FormatError: no arena, or a damaged one; VersionError: of another version. What a function
    raises is raised."""
    function("tell", tell)
    function("tell_seq", tell_seq)
    function("tell_quota", tell_quota)
    calls = _Callbacks(0, 0, 0, tell=tell, tell_seq=tell_seq, tell_quota=tell_quota)
    options, made = ffi.new("kvp_arena_options *"), ffi.new("kvp_arena_report *")
    lib.kvp_arena_options_init(options)
    keep = ffi.new_handle(calls)
    options.context = keep
    options.max_bytes = number("max_memory", max_memory)
    if tell is not None:
        options.tell = lib.kvpy_snapshot_tell
    if tell_seq is not None:
        options.tell_seq = lib.kvpy_arena_tell_seq
    if tell_quota is not None:
        options.tell_quota = lib.kvpy_arena_tell_quota
    given = ffi.NULL if figures_only else options
    if isinstance(arena, (str, os.PathLike)):
        status = lib.kvpy_arena_inspect_file(path_of("arena", arena), given, made)
    else:
        data = bytes_in("arena", arena)
        status = lib.kvpy_arena_inspect(data, len(data), given, made)
    del keep
    if calls.error is not None:
        raise calls.error
    if status:
        fail(status, "arena_inspect", arena=arena if isinstance(arena, (str, os.PathLike))
             else f"<{type(arena).__name__}>")
    return _report_of(made)
