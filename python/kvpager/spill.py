"""Spills: what is worth writing to a store, what is worth loading from it, and both. spill.h.

    from kvpager import spill, store

    spilled = spill.Spill(cache, disk, host=[host], policy=spill.SPILL_THROUGH)
    spilled.space(ns, "llama-8b")

    answer = spilled.ask(ns, prompt, tag=7)         before it is admitted
    ...                                             SPILL_WAITS: an answer comes by work
    seq = ns.open(prompt)
    spilled.hit(seq, seq.opened.hit_tokens)         what was hit, and what was computed, is written
    cache.commit(...)
    spilled.sealed(seq)
    for answer in spilled.work(): ...               in each step

The store belongs to the spill while that is open: its own operations raise BusyError. The cache needs
host_blocks and max_loads. docs/PYTHON.md, "Spills", is the guide.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any
from weakref import ref

import numpy as np
import numpy.typing as npt

from .store import Store, _block  # isort: skip (first: it says what is missing)
from . import _native, _store_native
from ._cache import COPY_DTYPE, Cache, object_of
from ._core import (Ints, Struct, bytes_in, error_of, fail, instance, listed, number, owned,
                    text_of)
from ._errors import AgainError, ArgError
from ._identity import set_digest, set_numbers, set_slice
from ._records import Slice as Slice
from ._process import Owned
from ._sched import _whole
from ._sequence import Namespace, Prompt, Sequence, prompt_of
from ._store_constants import SPILL_COMPUTE as SPILL_COMPUTE
from ._store_constants import SPILL_DEADLINE as SPILL_DEADLINE
from ._store_constants import SPILL_FAILED as SPILL_FAILED
from ._store_constants import SPILL_LOADED as SPILL_LOADED
from ._store_constants import SPILL_NOTHING as SPILL_NOTHING
from ._store_constants import SPILL_OUTCOMES as SPILL_OUTCOMES
from ._store_constants import SPILL_SECOND as SPILL_SECOND
from ._store_constants import SPILL_STOPPED as SPILL_STOPPED
from ._store_constants import SPILL_THROUGH as SPILL_THROUGH
from ._store_constants import SPILL_WAITS as SPILL_WAITS
from ._store_records import STRUCTS as _STRUCTS
from ._store_records import SpillAnswer as SpillAnswer
from ._store_records import SpillStats as SpillStats
from ._store_native import ffi, lib

# The spill's lock is the cache's, which the other module made: both must mean the same by an object.
if _native.lib.kvpy_object_bytes() != lib.kvpy_object_bytes():
    raise ImportError("kvpager.spill: kvpager._native and kvpager._store_native are of two builds")

_ANSWER = Struct(SpillAnswer, ffi, _STRUCTS)
_STATS = Struct(SpillStats, ffi, _STRUCTS)
_WHY_BYTES = 512
_STATES, _STATES_MAX = 4, 64  # kvp_spill_config.max_states: what 0 means, and the most


def outcome_name(outcome: int) -> str:
    """"waits", "loaded", "nothing", ...; "?" for a number that is none."""
    return str(ffi.string(lib.kvp_spill_outcome_name(number("outcome", outcome))).decode())


def decide(*, bytes: int, n_tokens: int, step_tokens: int, load_bytes_s: int,
           compute_tokens_s: int, left_ns: int = 2 ** 64 - 1, queued_bytes: int = 0,
           min_tokens: int = 0) -> int:
    """How many tokens to load, 0..n_tokens; the others are computed. spill.h has the rule."""
    question, out = ffi.new("kvp_spill_question *"), ffi.new("uint32_t *")
    question.struct_size = ffi.sizeof("kvp_spill_question")
    set_numbers(question, bytes=bytes, n_tokens=n_tokens, step_tokens=step_tokens,
                load_bytes_s=load_bytes_s, compute_tokens_s=compute_tokens_s, left_ns=left_ns,
                queued_bytes=queued_bytes, min_tokens=min_tokens)
    status = lib.kvp_spill_decide(question, out)
    if status:
        fail(status, "decide", step_tokens=step_tokens, load_bytes_s=load_bytes_s,
             compute_tokens_s=compute_tokens_s)
    return int(out[0])


def _time(now: int | None) -> int:
    return time.monotonic_ns() if now is None else _whole("now", now, 64)


class Spill(Owned):
    """A spill beside a cache and a store.

    host         [groups] where the host blocks of each layer group lie: buffers of host_blocks x
                 block_bytes, writable and contiguous, block after block. They are kept alive. With
                 recurrent state one more, of host_state_slots + max_states slots (at first 4)
    slice        layers and heads of the records; None: all of one layer and one head
    policy       SPILL_SECOND: what is hit is written; SPILL_THROUGH: what is sealed, too
    max_asks, max_keys, max_gets, max_puts, n_scratch, spare_blocks, min_tokens, put_bytes,
    put_bytes_s, put_bytes_day, get_bytes, load_bytes_s, compute_tokens_s, max_wait_ns, max_tokens,
    max_states   fields of kvp_spill_config

    `now`, nanoseconds, is time.monotonic_ns() where it is not given. Fingerprint and block_bytes are
    the store's. ArgError: what is wrong; StateError: the cache has no host tier or no loads.
    Cache.close and Store.close close the spill first.
    """

    _lib = lib

    def __init__(self, cache: Cache, disk: Store, *, host: Iterable[Any],
                 slice: Slice | None = None, policy: int = SPILL_SECOND, **config: int) -> None:
        theirs = object_of(cache)
        instance("disk", disk, Store)
        made, why = ffi.new("kvp_spill_config *"), ffi.new("char[]", _WHY_BYTES)
        lib.kvp_spill_config_init(made)
        unknown = set(config) - _NUMBERS
        if unknown:
            raise TypeError(f"Spill: {min(unknown)} is no field of kvp_spill_config")
        set_numbers(made, "", policy=policy, **config)
        set_slice("slice", Slice(0, 1, 0, 1) if slice is None else slice, made.slice)
        set_digest("fingerprint", disk.fingerprint, made.fingerprint)
        keep = self._set_groups(made, cache, disk, listed("host", host))
        owner = ffi.cast("kvpy_object *", int(_native.ffi.cast("uintptr_t", theirs)))
        # Held by the object, not by this one: the cycle collector frees in any order.
        super().__init__(owned(lib.KVPY_SPILL, owner, held=(theirs, disk._object(), keep),
                               of=_store_native, free="kvpy_spill_free"))
        self.cache, self.store = cache, disk
        disk._lend(self)
        status = lib.kvpy_spill_create(self._o, disk._o, made, why, _WHY_BYTES)
        if status:
            disk._lend(None)
            said = ffi.string(why).decode(errors="replace")
            raise error_of(status, "Spill", {}, said=f"; {said}" if said else "")
        cache._children.add(self)

    @staticmethod
    def _set_groups(made: Any, cache: Cache, disk: Store, host: list[Any]) -> list[Any]:
        rooms, keep = [int(cache.config["host_blocks"])] * len(cache.groups), list[Any]()
        if cache.config["state_slots"]:
            rooms.append(int(cache.config["host_state_slots"]) + (made.max_states or _STATES))
        if len(host) != len(disk.block_bytes) or len(host) != len(rooms):
            raise ArgError(f"host: has {len(host)}, the store has {len(disk.block_bytes)} groups, "
                           f"the cache {len(rooms)}")
        for group, (value, size) in enumerate(zip(host, disk.block_bytes)):
            address, kept = _block(f"host[{group}]", value, rooms[group] * size, writable=True)
            made.block_bytes[group] = made.host[group].stride = size
            made.host[group].base = address
            keep.append((address, kept))
        return keep

    # ------------------------------------------------------------------------- open and closed

    def close(self) -> None:
        """Stop, wait for what is on its way in the store, and destroy it. The store can be used again
        then. Nothing is written any more: `flush` before. Closing twice does nothing; nor does
        closing in a forked child."""
        if not self._is_ours():
            return
        status = lib.kvpy_spill_close(self._o)
        if status:
            fail(status, "Spill.close")
        self.cache._children.discard(self)
        if self.store._spill is not None and self.store._spill() is self:
            self.store._lend(None)

    # ------------------------------------------------------------------------------ namespaces

    def space(self, ns: Namespace, name: str | bytes, epoch: int = 0) -> None:
        """By which name and epoch a namespace is known in the store; or a higher epoch: what was
        stored under another one cannot be loaded any more."""
        instance("ns", ns, Namespace)
        data = bytes_in("name", name if isinstance(name, bytes) else text_of("name", name))
        status = lib.kvpg_spill_space(self._object(), ns.handle, data, len(data),
                                      _whole("epoch", epoch, 64))
        if status:
            fail(status, "Spill.space", name=name, epoch=epoch)

    def space_close(self, ns: Namespace) -> None:
        """Forget a namespace, before it is closed. What is stored stays there."""
        instance("ns", ns, Namespace)
        status = lib.kvpg_spill_space_close(self._object(), ns.handle)
        if status:
            fail(status, "Spill.space_close")

    # --------------------------------------------------------------------------------- reading

    def ask(self, ns: Namespace, prompt: Prompt | Ints, *, tag: int, deadline: int = 0,
            now: int | None = None) -> SpillAnswer:
        """Ask for what the store has of a prompt, before it is admitted. If the answer's outcome is
        SPILL_WAITS, one with the same tag comes by `work`; any other allows to open it at once.

        deadline   by the clock of `now`; 0: when computing would have ended

        AgainError: max_asks wait; go on without the store
        """
        instance("ns", ns, Namespace)
        given, asked, answer = prompt_of(prompt), ffi.new("kvp_spill_request *"), _ANSWER.new()
        asked.struct_size = ffi.sizeof("kvp_spill_request")
        set_numbers(asked, tag=tag, deadline_ns=deadline)
        status = lib.kvpg_spill_ask(self._object(), ns.handle, _prompt(given), asked, _time(now),
                                    answer)
        if status:
            fail(status, "Spill.ask", tokens=given.tokens, tag=tag)
        return _ANSWER.read(answer)

    def abort(self, tag: int) -> None:
        """Forget requests that wait: no answer comes. ArgError: none with this tag waits."""
        status = lib.kvpg_spill_abort(self._object(), _whole("tag", tag, 64))
        if status:
            fail(status, "Spill.abort", tag=tag)

    # --------------------------------------------------------------------------------- writing

    def hit(self, seq: Sequence, hit_tokens: int, *, now: int | None = None) -> None:
        """A sequence was opened with a hit of so many tokens: these are used again."""
        instance("seq", seq, Sequence)
        status = lib.kvpg_spill_hit(self._object(), seq.handle, number("hit_tokens", hit_tokens),
                                    _time(now))
        if status:
            fail(status, "Spill.hit", hit_tokens=hit_tokens)

    def sealed(self, seq: Sequence, *, now: int | None = None) -> None:
        """A sequence has new sealed blocks, or a checkpoint: after a commit, after
        Sequence.checkpoint, or before it is closed."""
        instance("seq", seq, Sequence)
        status = lib.kvpg_spill_sealed(self._object(), seq.handle, _time(now))
        if status:
            fail(status, "Spill.sealed")

    def copies(self) -> npt.NDArray[Any]:
        """Copies of slots of recurrent state, each once: to run behind those of the plan that was
        taken last. [n] COPY_DTYPE, from the device to slots behind host_state_slots of the host."""
        array, n = np.empty(_STATES_MAX, COPY_DTYPE), ffi.new("uint32_t *")
        room = ffi.from_buffer("kvp_copy[]", array, require_writable=True)
        status = lib.kvpg_spill_copies(self._object(), room, _STATES_MAX, n)
        if status:
            fail(status, "Spill.copies")
        return array[:n[0]]

    def drop(self, ns: Namespace, prompt: Prompt | Ints, begin: int, *,
             now: int | None = None) -> None:
        """Drop from the store the records of a prompt that have tokens from `begin` on, and all that
        were written behind them. AgainError: another drop is on its way; `work` first."""
        instance("ns", ns, Namespace)
        given = prompt_of(prompt)
        status = lib.kvpg_spill_drop(self._object(), ns.handle, _prompt(given),
                                     number("begin", begin), _time(now))
        if status:
            fail(status, "Spill.drop", tokens=given.tokens, begin=begin)

    # ------------------------------------------------------------------------------------ work

    def work(self, *, now: int | None = None, capacity: int = 64) -> list[SpillAnswer]:
        """Take what the store has ended, begin what the budgets allow, and answer: in each step. At
        most `capacity` answers; the others come with the next call."""
        room = ffi.new("kvp_spill_answer[]", max(number("capacity", capacity), 1))
        n = ffi.new("uint32_t *")
        status = lib.kvpg_spill_work(self._object(), _time(now), room, capacity, n)
        if status:
            fail(status, "Spill.work")
        return [_ANSWER.read(ffi.addressof(room, i)) for i in range(n[0])]

    def flush(self, *, deadline: int = 2 ** 64 - 1, now: int | None = None) -> bool:
        """Write what is worth most before the process ends, and sync. False: call again, and `work`,
        run the plan and report it in between. True: all that could be is written. StateError: the
        deadline was over before; what is written is synced. IoError: the sync failed."""
        status = lib.kvpg_spill_flush(self._object(), _time(now), _whole("deadline", deadline, 64))
        if status and status != AgainError.status:
            fail(status, "Spill.flush")
        return bool(status == 0)

    def stop(self, *, now: int | None = None) -> bool:
        """Answer all that wait with SPILL_STOPPED, and wait for what is on its way: before
        Cache.reset. False: call again, `work` and Store.wait in between; then True."""
        status = lib.kvpg_spill_stop(self._object(), _time(now))
        if status and status != AgainError.status:
            fail(status, "Spill.stop")
        return bool(status == 0)

    def computed(self, n_tokens: int, took_ns: int) -> None:
        """How long the engine computed tokens of prompts: so the rate of computing is measured."""
        status = lib.kvpg_spill_computed(self._object(), _whole("n_tokens", n_tokens, 64),
                                         _whole("took_ns", took_ns, 64))
        if status:
            fail(status, "Spill.computed")

    def stats(self) -> SpillStats:
        """Gauges and counters."""
        room = _STATS.new()
        status = lib.kvpg_spill_stats_get(self._object(), room)
        if status:
            fail(status, "Spill.stats")
        return _STATS.read(room)


def _prompt(prompt: Prompt) -> Any:
    """Of the other module, whose structs are the same."""
    return ffi.cast("kvp_prompt *", prompt._at)


_NUMBERS = {"max_asks", "max_keys", "max_gets", "max_puts", "n_scratch", "spare_blocks",
            "min_tokens", "put_bytes", "put_bytes_s", "put_bytes_day", "get_bytes", "load_bytes_s",
            "compute_tokens_s", "max_wait_ns", "max_tokens", "max_states"}
