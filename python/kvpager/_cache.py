"""The cache: what concerns many sequences, or none."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from operator import index
from types import TracebackType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from . import _constants as c
from ._core import (I32, NULL, U8, Handle, I32Array, Ints, Struct, U64Array, Uncopied, _from_buffer,
                    bad_number, bytes_in, calls, close, i32, listed, out_array, owned, path_of,
                    same_length, seqs_of, set_fields, struct_dtype, text_of, u32, why)
from ._core import fail as plain_fail
from ._errors import ArgError, CorruptError, HandleError, TooSmallError
from ._lend import Lending
from ._native import ffi, lib
from ._records import (Admission, BlockInfo, ConfigFields, PolicyClass, PolicyInfo, Shortage,
                       StateStats, Stats, Window)
from ._sequence import Namespace, Sequence, accept, extend_tree, fail, handle_of
from ._snapshot import Snapshots
from ._tiers import Tiers

if TYPE_CHECKING:
    from typing_extensions import Unpack

COPY_DTYPE = struct_dtype("kvp_copy")
EVICTED_DTYPE = struct_dtype("kvp_evicted")
_ADMISSION, _BLOCK_INFO, _STATE_STATS = Struct(Admission), Struct(BlockInfo), Struct(StateStats)
_POLICY_INFO, _POLICY_CLASS = Struct(PolicyInfo), Struct(PolicyClass)
_plan_take, _empty = calls.plan_take, np.empty
_extend_many, _fill_many, _commit_many = calls.extend_many, calls.fill_many, calls.commit_many
_no_numbers = (TypeError, OverflowError)


class Cache(Tiers, Lending, Snapshots, Uncopied):
    """One cache: the bookkeeping of a pool of KV blocks. It holds no KV memory.

    Keywords are the fields of kvp_config, see ConfigFields: n_blocks, block_tokens, unit_tokens,
    max_seqs, max_seq_tokens, host_blocks, steps, ...

    groups            the window of each layer group, (sink_tokens, recent_tokens); (0, 0): full
                      attention; (CHUNKED, n): chunks of n tokens; or a Group, which also has the
                      block_tokens of the group. n_groups is their number
    uncached_tokens   [n] i32 token ids that must never be matched or published
    arena             memory for the bookkeeping, a writable buffer that begins at a multiple of 64
                      bytes; by default the library maps it

    A cache may be used from any thread, by one at a time: a call beside another one raises
    BusyError; stats, events and Sequence.info may be asked at any time. It closes at the end of a
    with block.
    """

    def __init__(self, *, uncached_tokens: Ints | None = None, arena: Any = None,
                 **config: Unpack[ConfigFields]) -> None:
        made = _config_of(config, "Cache")
        if uncached_tokens is not None:
            values = i32("uncached_tokens", uncached_tokens)
            made.uncached_tokens, made.n_uncached_tokens = values, len(values)
        memory, n_bytes = NULL, 0
        if arena is not None:
            memory = bytes_in("arena", arena, writable=True)
            n_bytes = len(memory)
        self._o = owned(lib.KVPY_CACHE, held=memory if n_bytes else None)
        status = lib.kvpg_cache_create(made, memory, n_bytes, self._o)
        if status:
            what = {} if arena is None else {"arena": f"<{n_bytes} bytes>"}
            plain_fail(status, "Cache", said=why(status, lib.kvp_config_check, made), **config,
                       **what)
        self._h = handle_of(Handle, self._o, 0)  # what calls take that do without cffi
        self._children: WeakSet[Any] = WeakSet()
        self.config: dict[str, int | float] = self._read_config()
        self.block_tokens = int(self.config["block_tokens"])
        self.unit_tokens = int(self.config["unit_tokens"])

    def _read_config(self) -> dict[str, int | float]:
        room = ffi.new("kvp_config *")
        status = lib.kvpg_cache_config_peek(self._o, room)
        if status:
            plain_fail(status, "Cache.config")
        self.groups = [Window(group.sink_tokens, group.recent_tokens)
                       for group in room.groups[0:room.n_groups]]
        self.group_tokens = [group.block_tokens for group in room.groups[0:room.n_groups]]
        return {name: getattr(room, name) for name, _ in ffi.typeof("kvp_config").fields
                if name not in ("struct_size", "reserved", "uncached_tokens", "groups")}

    @staticmethod
    def bytes_for(**config: Unpack[ConfigFields]) -> int:
        """How many bytes of bookkeeping a configuration needs: the arena's size."""
        made, out = _config_of(config, "Cache.bytes_for"), ffi.new("size_t *")
        status = lib.kvp_cache_bytes(made, out)
        if status:
            plain_fail(status, "Cache.bytes_for", said=why(status, lib.kvp_config_check, made),
                       **config)
        return int(out[0])

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "open" if lib.kvpy_object_is_open(self._o) else "closed"
        return (f"<kvpager.Cache {state}, {self.config['n_blocks']} blocks of "
                f"{self.block_tokens} tokens>")

    @property
    def closed(self) -> bool:
        return not lib.kvpy_object_is_open(self._o)

    def close(self) -> None:
        """Destroy the cache, schedulers and senders on it first. Sequences and namespaces of it
        raise ClosedError from now on; closing twice does nothing."""
        for child in list(self._children):
            child.close()
        self._children.clear()
        close(self._o, "Cache")

    def drop(self, blocks: Ints, tier: int = c.DEVICE) -> int:
        """Drop the content of cached blocks; gives of how many. Held ones keep theirs."""
        given, n_dropped = i32("blocks", blocks), ffi.new("uint32_t *")
        try:
            status = lib.kvpg_cache_drop(self._o, tier, given, len(given), n_dropped)
        except _no_numbers as error:
            raise bad_number(error, tier=tier) from None
        if status:
            fail(self._o, status, "Cache.drop", blocks=blocks, tier=tier)
        return int(n_dropped[0])

    def reclaim(self, n_blocks: int) -> int:
        """Evict the coldest cached blocks now, until n_blocks are free; gives how many. For the
        blocks that the next step takes, while a pass runs."""
        n_reclaimed = ffi.new("uint32_t *")
        try:
            status = lib.kvpg_cache_reclaim(self._o, n_blocks, n_reclaimed)
        except _no_numbers as error:
            raise bad_number(error, n_blocks=n_blocks) from None
        if status:
            fail(self._o, status, "Cache.reclaim", n_blocks=n_blocks)
        return int(n_reclaimed[0])

    def reset(self) -> None:
        """Close every sequence, drop all content, empty the plan."""
        status = lib.kvpg_cache_reset(self._o)
        if status:
            fail(self._o, status, "Cache.reset")

    def check(self, level: int = 3) -> None:
        """Audit the cache; CorruptError names the invariant that does not hold."""
        room = ffi.new("kvp_violation *")
        try:
            status = lib.kvpg_cache_check(self._o, level, room)
        except _no_numbers as error:
            raise bad_number(error, level=level) from None
        if status == lib.KVP_E_CORRUPT:
            raise _corrupt(room)
        if status:
            fail(self._o, status, "Cache.check", level=level)

    def recover(self) -> None:
        """In a forked child: make the parent's cache this process's, if nobody else works on it any
        more and every invariant holds; else CorruptError. Without that, calls in a child raise
        BusyError."""
        room = ffi.new("kvp_violation *")
        status = lib.kvpg_cache_recover(self._o, room)
        if status == lib.KVP_E_CORRUPT:
            raise _corrupt(room)
        if status:
            plain_fail(status, "Cache.recover")

    def stats(self) -> Stats:
        """Counters since creation, and gauges. Any thread, also beside a call."""
        found = calls.stats(self._h)
        if type(found) is int:
            fail(self._o, found, "Cache.stats")
        return found  # type: ignore[no-any-return]

    def state_stats(self) -> StateStats:
        """Slots of recurrent state and checkpoints; all 0 without Cache(state_slots=...)."""
        room = _STATE_STATS.new()
        status = lib.kvpg_cache_state_stats_get(self._o, room)
        if status:
            fail(self._o, status, "Cache.state_stats")
        return _STATE_STATS.read(room)

    def policy_info(self) -> PolicyInfo:
        """Why and for how long the policy was LRU; the cache must have been made with policy=1."""
        room = _POLICY_INFO.new()
        status = lib.kvpg_policy_info_get(self._o, room)
        if status:
            fail(self._o, status, "Cache.policy_info")
        return _POLICY_INFO.read(room)

    def policy_class(self, class_: int) -> PolicyClass:
        """What the policy learned of one of POLICY_CLASSES classes, by age."""
        room = _POLICY_CLASS.new()
        try:
            status = lib.kvpg_policy_class_get(self._o, class_, room)
        except _no_numbers as error:
            raise bad_number(error, class_=class_) from None
        if status:
            fail(self._o, status, "Cache.policy_class", class_=class_)
        return _POLICY_CLASS.read(room)

    def shortage(self) -> Shortage:
        """Why the most recent failing call failed."""
        found = calls.shortage(self._h)
        if type(found) is int:
            fail(self._o, found, "Cache.shortage")
        return found  # type: ignore[no-any-return]

    # ------------------------------------------------------------------ namespaces, sequences

    def namespace(self, name: str | bytes = b"") -> Namespace:
        """Open a namespace by name, at most NAME_MAX_BYTES bytes; str as UTF-8."""
        data = text_of("name", name)
        out = ffi.new("kvp_ns *")
        status = lib.kvpg_ns_open(self._o, data, len(data), out)
        if status:
            fail(self._o, status, "Cache.namespace", name=name)
        return handle_of(Namespace, self._o, out.bits)

    def seq(self, handle: int) -> Sequence:
        """The sequence of a handle, as arrays have it."""
        try:
            return handle_of(Sequence, self._o, index(handle) % 2 ** 64)
        except TypeError:
            raise TypeError(f"handle: needs an int, not {type(handle).__name__}") from None

    def sequences(self, but: Any = ()) -> list[Sequence]:
        """The sequences that are open, but for those of `but` (sequences, or handles).

        For those that nobody has: an exception that a signal's handler raises may come between the
        opening of a sequence and the place where it is kept. `for seq in cache.sequences(but=mine):
        seq.close()` closes these."""
        known = {index(getattr(seq, "handle", seq)) for seq in listed("but", but)}
        n = ffi.new("uint32_t *")
        room = ffi.new("kvp_seq[]", int(self.config["max_seqs"]))
        status = lib.kvpg_cache_seqs(self._o, room, len(room), n)
        if status:
            fail(self._o, status, "Cache.sequences")
        return [self.seq(one.bits) for one in room[0:n[0]] if one.bits not in known]

    def extend_many(self, seqs: Any, tokens: Ints | None = None, *, n_tokens: Ints | None = None,
                    reserve: int = 0, statuses: I32Array | None = None,
                    rings: bool = False) -> None:
        """Make room for more tokens of many sequences: all get it, or none.

        seqs      [B] u64 handles, or sequences; each once
        tokens    [sum of n_tokens] i32, one sequence's after the other's; None: values not known
        n_tokens  [B] u32 new tokens of each; None: one each
        statuses  [B] i32, written: each sequence for itself; those that fail (status below 0) are
                  left unchanged. None: all or nothing
        rings     True: each token that is not computed gets a slot of recurrent state (state_rings)
        """
        try:
            status = (None if rings else
                      _extend_many(self._h, seqs, tokens, n_tokens, reserve, statuses))
        except _no_numbers as error:
            raise bad_number(error, reserve=reserve) from None
        if status is None:
            given = _batch_of(seqs, tokens, n_tokens, statuses)
            status = lib.kvpy_extend_many(self._o, *given[:5], reserve, given[5], bool(rings))
        if status:
            fail(self._o, status, "Cache.extend_many", seqs=seqs, tokens=tokens,
                 n_tokens=n_tokens, reserve=reserve)

    def fill_many(self, seqs: Any, tokens: Ints, *, n_tokens: Ints | None = None,
                  statuses: I32Array | None = None) -> None:
        """Give the values of tokens that were extended without; arrays as for extend_many."""
        status = _fill_many(self._h, seqs, i32("tokens", tokens) if tokens is None else tokens,
                            n_tokens, 0, statuses)
        if status is None:
            status = lib.kvpy_fill_many(self._o, *_batch_of(seqs, tokens, n_tokens, statuses))
        if status:
            fail(self._o, status, "Cache.fill_many", seqs=seqs, tokens=tokens, n_tokens=n_tokens)

    def commit_many(self, seqs: Any, n_tokens: Ints) -> None:
        """Declare the first n_tokens[i] of seqs[i] computed; seqs [B] u64, n_tokens [B] u32."""
        status = _commit_many(self._h, seqs, n_tokens)
        if status is None:
            handles, counts = seqs_of("seqs", seqs), u32("n_tokens", n_tokens)
            same_length(seqs=handles, n_tokens=counts)
            status = lib.kvpg_seq_commit_many(self._o, handles, counts, len(handles))
        if status:
            fail(self._o, status, "Cache.commit_many", seqs=seqs, n_tokens=n_tokens)

    def can_extend(self, seqs: Any, *, n_tokens: Ints | None = None,
                   reserve: int = 0, rings: bool = False) -> Admission:
        """Whether extend_many (all or nothing) would find its blocks, and slots, now."""
        try:
            found = None if rings else calls.can_extend(self._h, seqs, n_tokens, reserve)
        except _no_numbers as error:
            raise bad_number(error, reserve=reserve) from None
        if found is None:
            handles, n, _, _, counts, _ = _batch_of(seqs, None, n_tokens, None)
            room = _ADMISSION.new()
            found = lib.kvpy_can_extend(self._o, handles, n, counts, reserve, bool(rings), room)
            if found == 0:
                return _ADMISSION.read(room)
        if type(found) is int:
            fail(self._o, found, "Cache.can_extend", seqs=seqs, n_tokens=n_tokens,
                 reserve=reserve)
        return found  # type: ignore[no-any-return]

    # ---------------------------------------------------------------------------------- trees

    def extend_tree(self, seqs: Any, tokens: Ints, parents: Ints, *, n_tokens: Ints | None = None,
                    reserve: int = 0) -> None:
        """Add nodes to the trees of sequences: all of them, or none.

        seqs      [B] u64 handles, or sequences
        tokens    [sum of n_tokens] i32, one sequence's after the other's
        parents   [sum of n_tokens] i32, the index of each node's parent in its sequence's whole
                  tree; -1: the sequence's last token
        n_tokens  [B] u32 new nodes of each; None: one each
        """
        extend_tree(self._o, "Cache.extend_tree", seqs, tokens, parents, n_tokens, reserve)

    def accept(self, seqs: Any, leaves: Ints) -> npt.NDArray[Any]:
        """Accept of each tree the path from a root to a leaf, and drop the rest.

        leaves   [B] i32, the deepest node accepted; -1: none

        Gives [n_groups, n] SLOT_MOVE_DTYPE, for Copier.move of each group, before the next plan."""
        return accept(self._o, "Cache.accept", "leaves", seqs, leaves)

    # --------------------------------------------------------------- what calls did; blocks

    def plan_take(self, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        """Take the plan: the copies that must run, in order, before any forward pass.

        Gives [n] COPY_DTYPE (phase, group, src_tier, dst_tier, src_block, dst_block, n_tokens): a
        fresh array, or the beginning of `out`."""
        array = _empty(16, COPY_DTYPE) if out is None else out
        if out is not None and getattr(out, "dtype", None) != COPY_DTYPE:
            raise TypeError("out: needs a NumPy array of COPY_DTYPE")
        n = _plan_take(self._h, array)
        if n is None:
            _struct_out("out", array, COPY_DTYPE)
            raise ArgError("out: the array cannot be used as it lies")
        if n > len(array):
            if out is not None:
                raise TooSmallError(f"out: has room for {len(array)} copies, needs {n}")
            array = _empty(n, COPY_DTYPE)
            n = _plan_take(self._h, array)
        if n < 0:
            fail(self._o, n, "Cache.plan_take")
        return array[:n]

    def evicted(self) -> npt.NDArray[Any]:
        """What the most recent call that changed the cache evicted: [n] EVICTED_DTYPE (hash,
        block, tier, kept). BehindError: it evicted more than the list has room for."""
        n = ffi.new("uint32_t *")
        capacity = 64
        while True:
            array = np.empty(capacity, EVICTED_DTYPE)
            room = ffi.cast("kvp_evicted *", _struct_out("out", array, EVICTED_DTYPE))
            status = lib.kvpy_evicted(self._o, room, capacity, n)
            if status != lib.KVP_E_TOO_SMALL:
                break
            capacity = n[0]
        if status:
            fail(self._o, status, "Cache.evicted")
        return array[:n[0]]

    def block_info(self, block: int, tier: int = c.DEVICE, group: int = 0) -> BlockInfo:
        """What is known of a block, 0..N-1 of its tier."""
        room = _BLOCK_INFO.new()
        try:
            status = lib.kvpg_block_info_get(self._o, group, tier, block, room)
        except _no_numbers as error:
            raise bad_number(error, block=block, tier=tier, group=group) from None
        if status:
            fail(self._o, status, "Cache.block_info", block=block, tier=tier, group=group)
        return _BLOCK_INFO.read(room)

    def block_sealed_tokens(self, block: int, tier: int = c.DEVICE, group: int = 0) -> I32Array:
        """The tokens of a block's sealed content, from its start: [0..S] i32."""
        room, n = np.empty(self.block_tokens, I32), ffi.new("uint32_t *")
        try:
            status = lib.kvpg_block_tokens(self._o, group, tier, block,
                                           out_array("out", room, I32, 0), n)
        except _no_numbers as error:
            raise bad_number(error, block=block, tier=tier, group=group) from None
        if status:
            fail(self._o, status, "Cache.block_sealed_tokens", block=block, tier=tier,
                 group=group)
        return room[:n[0]]

    # ------------------------------------------------------------------------------ recording

    @contextmanager
    def record(self, path: str | os.PathLike[str]) -> Iterator[None]:
        """Record every call in a file, as long as the block runs: an operation log (OpLog)."""
        status = lib.kvpy_record_start(self._o, path_of("path", path))
        if status:
            fail(self._o, status, "Cache.record", path=os.fspath(path))
        try:
            yield
        finally:
            status = lib.kvpy_record_stop(self._o)
        if status:
            fail(self._o, status, "Cache.record", path=os.fspath(path))


def object_of(cache: Any) -> Any:
    """What the library's calls on a cache take."""
    if not isinstance(cache, Cache):
        raise TypeError(f"cache: needs a Cache, not {type(cache).__name__}")
    return cache._o


def _corrupt(violation: Any) -> CorruptError:
    """A kvp_violation as an exception."""
    return CorruptError(f"{ffi.string(violation.invariant).decode()}, object {violation.object}: "
                        f"{ffi.string(violation.detail).decode()}")


def _config_of(fields: Any, what: str) -> Any:
    """A kvp_config from keywords."""
    made = ffi.new("kvp_config *")
    lib.kvp_config_init(made)
    if "groups" in fields:
        try:
            made.n_groups = len(fields["groups"])
        except TypeError:
            raise TypeError("groups: needs a list of windows") from None
    set_fields(made, fields, what)
    return made


def _batch_of(seqs: Any, tokens: Ints | None, n_tokens: Ints | None,
              statuses: I32Array | None) -> tuple[Any, int, Any, int, Any, Any]:
    """Handles, how many, tokens, how many, counts and room for statuses as C arrays; or what is
    wrong with one of them."""
    handles = seqs_of("seqs", seqs)
    counts = NULL if n_tokens is None else u32("n_tokens", n_tokens)
    same_length(seqs=handles, n_tokens=None if n_tokens is None else counts)
    values = NULL if tokens is None else i32("tokens", tokens)
    room = NULL if statuses is None else out_array("statuses", statuses, I32, len(handles))
    return handles, len(handles), values, 0 if tokens is None else len(values), counts, room


def _struct_out(name: str, array: Any, dtype: np.dtype[Any]) -> Any:
    """The bytes of an array of structs that is to be written."""
    if not isinstance(array, np.ndarray) or array.dtype != dtype:
        raise TypeError(f"{name}: needs a NumPy array of the struct's dtype")
    if array.ndim != 1 or not array.flags.c_contiguous or not array.flags.writeable:
        raise ValueError(f"{name}: needs a contiguous, writable array of one dimension")
    return _from_buffer("uint8_t[]", array.view(np.uint8) if array.size else np.empty(0, U8))


def handles_of(seqs: Any) -> U64Array:
    """An array of handles, to be used again and again: [B] u64."""
    handles = np.frombuffer(ffi.buffer(seqs_of("seqs", listed("seqs", seqs))), np.uint64).copy()
    if (handles == 0).any():
        raise HandleError("seqs: zero is no sequence")
    return handles

