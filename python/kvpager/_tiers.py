"""Swap, overlapped steps and events: three small headers, as parts of the cache."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ._core import (I32, NULL, I32Array, Ints, Struct, U64Array, _from_buffer, bad_number, calls,
                    out_array, same_length, seqs_of, struct_dtype, u32)
from ._errors import TooSmallError
from ._native import ffi, lib
from ._records import Admission, Swapped
from ._sequence import fail

EVENT_DTYPE = struct_dtype("kvp_event")
_COPY_DTYPE = struct_dtype("kvp_copy")
_SWAPPED, _ADMISSION = Struct(Swapped), Struct(Admission)
_no_numbers = (TypeError, OverflowError)


class Tiers:
    """The part of the cache that swap.h, steps.h and events.h describe."""

    _o: Any
    _h: Any
    unit_tokens: int

    # ------------------------------------------------------------------------------ the host

    def _of_seqs(self, call: Any, record: Any, seqs: Any, *more: int) -> Any:
        """What _calls does not take: the record that a call on sequences fills, or a status."""
        handles, room = seqs_of("seqs", seqs), record.new()
        status = call(self._o, handles, len(handles), *more, room)
        return status if status else record.read(room)

    def swap_out(self, seqs: Any) -> Swapped:
        """Move sequences to the host, all or nothing; the plan copies their KV. seqs: [B] u64."""
        found = calls.swap_out(self._h, seqs)
        if found is None:
            found = self._of_seqs(lib.kvpg_seq_swap_out, _SWAPPED, seqs)
        if type(found) is int:
            fail(self._o, found, "Cache.swap_out", seqs=seqs)
        return found  # type: ignore[no-any-return]

    def swap_in(self, seqs: Any, reserve: int = 0) -> Swapped:
        """Move sequences back, with room for `reserve` more tokens of each, all or nothing."""
        try:
            found = calls.swap_in(self._h, seqs, reserve)
        except _no_numbers as error:
            raise bad_number(error, reserve=reserve) from None
        if found is None:
            found = self._of_seqs(lib.kvpg_seq_swap_in, _SWAPPED, seqs, reserve)
        if type(found) is int:
            fail(self._o, found, "Cache.swap_in", seqs=seqs, reserve=reserve)
        return found  # type: ignore[no-any-return]

    def can_swap_out(self, seqs: Any) -> Admission:
        """Whether swap_out would find its blocks now, on the host."""
        found = calls.can_swap_out(self._h, seqs)
        if found is None:
            found = self._of_seqs(lib.kvpg_cache_can_swap_out, _ADMISSION, seqs)
        if type(found) is int:
            fail(self._o, found, "Cache.can_swap_out", seqs=seqs)
        return found  # type: ignore[no-any-return]

    def can_swap_in(self, seqs: Any, reserve: int = 0) -> Admission:
        """Whether swap_in would find its blocks now, on the device."""
        try:
            found = calls.can_swap_in(self._h, seqs, reserve)
        except _no_numbers as error:
            raise bad_number(error, reserve=reserve) from None
        if found is None:
            found = self._of_seqs(lib.kvpg_cache_can_swap_in, _ADMISSION, seqs, reserve)
        if type(found) is int:
            fail(self._o, found, "Cache.can_swap_in", seqs=seqs, reserve=reserve)
        return found  # type: ignore[no-any-return]

    def state_swap_need(self, seqs: Any, reserve: int = 0) -> int:
        """How many slots of recurrent state leave the queue if these sequences are swapped in now.
        Cache(state_slots=...)."""
        handles, out = seqs_of("seqs", seqs), ffi.new("uint32_t *")
        try:
            status = lib.kvpg_state_swap_need(self._o, handles, len(handles), reserve, out)
        except _no_numbers as error:
            raise bad_number(error, reserve=reserve) from None
        if status:
            fail(self._o, status, "Cache.state_swap_need", seqs=seqs, reserve=reserve)
        return int(out[0])

    # ------------------------------------------------------------------------------ steps

    def step_begin(self) -> tuple[int, npt.NDArray[Any]]:
        """Begin a step: gives its number and its plan, [n] COPY_DTYPE. For steps=STEPS_OVERLAPPED.
        """
        n, step = ffi.new("uint32_t *"), ffi.new("uint64_t *")
        capacity = 16
        while True:
            array = np.empty(capacity, _COPY_DTYPE)
            room = ffi.cast("kvp_copy *", _from_buffer("uint8_t[]", array.view(np.uint8)))
            status = lib.kvpg_step_begin(self._o, room, capacity, n, step)
            if status != lib.KVP_E_TOO_SMALL:
                break
            capacity = n[0]
        if status:
            fail(self._o, status, "Cache.step_begin")
        return int(step[0]), array[:n[0]]

    def step_commit(self, step: int, seqs: Any, n_tokens: Ints) -> None:
        """Declare: when `step` takes effect, the first n_tokens[i] of seqs[i] are computed."""
        handles, counts = seqs_of("seqs", seqs), u32("n_tokens", n_tokens)
        same_length(seqs=handles, n_tokens=counts)
        try:
            status = lib.kvpg_step_commit(self._o, step, handles, counts, len(handles))
        except _no_numbers as error:
            raise bad_number(error, step=step) from None
        if status:
            fail(self._o, status, "Cache.step_commit", step=step, seqs=seqs, n_tokens=n_tokens)

    def step_done(self, step: int) -> int:
        """Report a step done; gives the newest step that has taken effect."""
        out = ffi.new("uint64_t *")
        try:
            status = lib.kvpg_step_done(self._o, step, out)
        except _no_numbers as error:
            raise bad_number(error, step=step) from None
        if status:
            fail(self._o, status, "Cache.step_done", step=step)
        return int(out[0])

    def step_failed(self, step: int) -> U64Array:
        """Report that a step failed; gives the sequences that lost tokens or a state: [n] u64.
        """
        n, room = ffi.new("uint32_t *"), np.empty(64, np.uint64)
        try:
            status = lib.kvpg_step_failed(self._o, step, seqs_of("out", room),
                                          len(room), n)
            if status == lib.KVP_E_TOO_SMALL:
                room = np.empty(n[0], np.uint64)
                status = lib.kvpg_step_failed(self._o, step, seqs_of("out", room),
                                              len(room), n)
        except _no_numbers as error:
            raise bad_number(error, step=step) from None
        if status:
            fail(self._o, status, "Cache.step_failed", step=step)
        return room[:n[0]]

    # ------------------------------------------------------------------------------ events

    def events(self, start: int = 1, capacity: int = 256,
               tokens: I32Array | None = None) -> npt.NDArray[Any]:
        """Events from number `start` on, at most `capacity`: [n] EVENT_DTYPE (number, kind, tier,
        hash, parent, root, position, n_tokens).

        tokens   [capacity * U] i32, written: those of event i begin at i * U

        BehindError: event `start` is not remembered any more; take a snapshot."""
        try:
            found = calls.events(self._h, start, capacity, tokens, capacity * self.unit_tokens)
        except _no_numbers as error:
            raise bad_number(error, start=start, capacity=capacity) from None
        if found is None:
            return self._events(start, capacity, tokens)
        if type(found) is int:
            fail(self._o, found, "Cache.events", start=start, capacity=capacity)
        return found  # type: ignore[no-any-return]

    def _events(self, start: int, capacity: int, tokens: I32Array | None) -> npt.NDArray[Any]:
        """Events, for more of them than C reads at once; says what is wrong with `tokens`."""
        n = ffi.new("uint32_t *")
        try:
            array = np.empty(capacity, EVENT_DTYPE)
            values = NULL if tokens is None else out_array("tokens", tokens, I32,
                                                           capacity * self.unit_tokens)
            room = ffi.cast("kvp_event *", _from_buffer("uint8_t[]", array.view(np.uint8)))
            status = lib.kvpg_events_read(self._o, start, room, capacity, values, n)
        except (ValueError, *_no_numbers) as error:
            if type(capacity) is int and 0 <= capacity < 2 ** 31 and type(start) is int and \
                    0 <= start < 2 ** 64:
                raise
            raise bad_number(error, start=start, capacity=capacity) from None
        if status:
            fail(self._o, status, "Cache.events", start=start, capacity=capacity)
        return array[:n[0]]

    def events_snapshot(self, tokens: I32Array | None = None) -> tuple[int, npt.NDArray[Any]]:
        """The whole set as STORED events, and the number of the newest event: go on from the one
        after it. tokens as for events, with room for all."""
        n, number = ffi.new("uint32_t *"), ffi.new("uint64_t *")
        status = lib.kvpg_events_snapshot(self._o, NULL, 0, NULL, n, number)
        array = np.empty(0, EVENT_DTYPE)
        if not status and n[0]:
            array = np.empty(n[0], EVENT_DTYPE)
            values = NULL
            if tokens is not None:
                values = out_array("tokens", tokens, I32, 0)
                if len(values) < n[0] * self.unit_tokens:
                    raise TooSmallError(f"tokens: has room for {len(values)}, needs "
                                        f"{n[0] * self.unit_tokens}")
            room = ffi.cast("kvp_event *", _from_buffer("uint8_t[]", array.view(np.uint8)))
            status = lib.kvpg_events_snapshot(self._o, room, len(array), values, n, number)
        if status:
            fail(self._o, status, "Cache.events_snapshot")
        return int(number[0]), array
