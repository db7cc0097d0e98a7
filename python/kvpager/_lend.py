"""What a store outside the cache needs (lend.h), as a part of the cache."""

from __future__ import annotations

from operator import index
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from . import _constants as c
from ._core import (I32, NULL, U8, I32Array, Ints, Struct, _from_buffer, array_of, bad_number, i32,
                    instance, out_array, struct_dtype)
from ._native import ffi, lib
from ._records import BlockOrigin, Loaded, Mirrored
from ._sequence import Key, Namespace, Prompt, fail, prompt_of

COLD_DTYPE = struct_dtype("kvp_cold")
_ORIGIN, _LOADED, _MIRRORED = Struct(BlockOrigin), Struct(Loaded), Struct(Mirrored)
_no_numbers = (TypeError, OverflowError)


class Load(NamedTuple):
    """A load that was begun; number 0: there was nothing to load.

    number       of the load
    after        the plan that must be over before a store may write
    blocks       [n] i32 the host block of each entry; 0: none
    found        entries that are there, on either tier
    elsewhere    entries that other loads bring
    """

    number: int
    after: int
    blocks: I32Array
    found: int
    elsewhere: int


class Lending:
    """The part of the cache that lend.h describes."""

    _o: Any

    def cold_end(self, tier: int = c.HOST, capacity: int = 256,
                 cursor: Any = None) -> npt.NDArray[Any]:
        """Cached blocks in the order in which they are evicted: [n] COLD_DTYPE.

        cursor   of cold_cursor(): goes on where the last call with it ended; None: at the cold end
        """
        at = cursor if cursor is not None else self.cold_cursor()
        n = ffi.new("uint32_t *")
        try:
            array = np.empty(capacity, COLD_DTYPE)
            room = ffi.cast("kvp_cold *", _from_buffer("uint8_t[]", array.view(np.uint8)))
            status = lib.kvpg_cache_cold_end(self._o, tier, at, room, capacity, n)
        except (ValueError, *_no_numbers) as error:
            raise bad_number(error, tier=tier, capacity=capacity) from None
        if status:
            fail(self._o, status, "Cache.cold_end", tier=tier)
        return array[:n[0] if capacity else 0]

    @staticmethod
    def cold_cursor() -> Any:
        """A cursor that stands at the cold end."""
        return ffi.new("kvp_cold_cursor *")

    def block_origin(self, block: int, tier: int = c.HOST) -> BlockOrigin:
        """What the content of a block is of."""
        room = _ORIGIN.new()
        try:
            status = lib.kvpg_block_origin_get(self._o, tier, block, room)
        except _no_numbers as error:
            raise bad_number(error, block=block, tier=tier) from None
        if status:
            fail(self._o, status, "Cache.block_origin", block=block, tier=tier)
        return _ORIGIN.read(room)

    def block_prefix(self, block: int, tier: int = c.HOST) -> I32Array:
        """The tokens of the prefix that ends with a block's deepest sealed unit: [n] i32."""
        n = ffi.new("uint32_t *")
        try:
            status = lib.kvpg_block_prefix(self._o, tier, block, NULL, 0, n)
            tokens = np.empty(n[0], I32)
            if not status and n[0]:
                status = lib.kvpg_block_prefix(self._o, tier, block,
                                               out_array("out", tokens, I32, 0), len(tokens), n)
        except _no_numbers as error:
            raise bad_number(error, block=block, tier=tier) from None
        if status:
            fail(self._o, status, "Cache.block_prefix", block=block, tier=tier)
        return tokens

    def block_keys(self, block: int, tier: int = c.HOST) -> list[Key]:
        """The extra keys of that prefix."""
        n = ffi.new("uint32_t *")
        try:
            status = lib.kvpg_block_keys(self._o, tier, block, NULL, 0, n)
            keys = ffi.new("kvp_key[]", max(1, n[0]))
            if not status and n[0]:
                status = lib.kvpg_block_keys(self._o, tier, block, keys, n[0], n)
        except _no_numbers as error:
            raise bad_number(error, block=block, tier=tier) from None
        if status:
            fail(self._o, status, "Cache.block_keys", block=block, tier=tier)
        return [Key(key.type, key.begin, key.end, bytes(ffi.buffer(key.bytes, key.n_bytes)))
                for key in keys[0:n[0]]]

    def plan_done(self, n_plans: int) -> None:
        """Report that the copies of the first n_plans plans have run. For ordered steps."""
        try:
            status = lib.kvpg_plan_done(self._o, n_plans)
        except _no_numbers as error:
            raise bad_number(error, n_plans=n_plans) from None
        if status:
            fail(self._o, status, "Cache.plan_done", n_plans=n_plans)

    def mirror(self, blocks: Ints, spare: int = 0) -> tuple[I32Array, Mirrored]:
        """Copy sealed device blocks to the host by the plan, and keep both: the host blocks, 0
        where there is none, and what was done."""
        given, room = i32("blocks", blocks), _MIRRORED.new()
        host = np.zeros(len(given), I32)
        try:
            status = lib.kvpg_cache_mirror(self._o, given, len(given), spare,
                                     out_array("out", host, I32, 0), room)
        except _no_numbers as error:
            raise bad_number(error, spare=spare) from None
        if status:
            fail(self._o, status, "Cache.mirror", blocks=blocks, spare=spare)
        return host, _MIRRORED.read(room)

    def lend(self, blocks: Ints) -> None:
        """Hold host blocks while a store reads them, all or nothing."""
        given = i32("blocks", blocks)
        status = lib.kvpg_cache_lend(self._o, given, len(given))
        if status:
            fail(self._o, status, "Cache.lend", blocks=blocks)

    def give_back(self, blocks: Ints) -> None:
        """Give lent blocks back, all or nothing."""
        given = i32("blocks", blocks)
        status = lib.kvpg_cache_give_back(self._o, given, len(given))
        if status:
            fail(self._o, status, "Cache.give_back", blocks=blocks)

    def load_begin(self, space: Namespace, prompt: Prompt | Ints, begin: int, end: int, *,
                   group: int = 0, spare: int = 0) -> Load:
        """Begin a load: host blocks for row entries [begin, end) of a prompt in a namespace. With
        recurrent state, group n_groups is that of states: one entry, and a host slot."""
        given = prompt_of(prompt)
        instance("space", space, Namespace)
        made = ffi.new("kvp_load *")
        made.struct_size = ffi.sizeof("kvp_load")
        try:
            made.entries.begin, made.entries.end = index(begin), index(end)
            made.group, made.spare_blocks = index(group), index(spare)
            room = min(max(0, end - begin), len(given._keep[0]))
        except _no_numbers as error:
            raise bad_number(error, begin=begin, end=end, group=group, spare=spare) from None
        blocks = np.zeros(room + 1, I32)
        made.blocks = _from_buffer("int32_t[]", blocks)
        status = lib.kvpg_load_begin(self._o, space.handle, given._c, made)
        if status:
            fail(self._o, status, "Cache.load_begin", tokens=given.tokens, begin=begin, end=end,
                 group=group, spare=spare)
        return Load(made.number, made.after, blocks[:end - begin], made.n_found,
                    made.n_elsewhere)

    def load_done(self, load: int, whole: Any) -> Loaded:
        """End a load. whole: [n] for each block of it, whether it has all of the right bytes."""
        given, room = array_of("whole", np.asarray(whole, U8), U8), _LOADED.new()
        data = given if len(given) else np.zeros(1, U8)
        try:
            status = lib.kvpg_load_done(self._o, load, _from_buffer("uint8_t[]", data),
                                        len(given), room)
        except _no_numbers as error:
            raise bad_number(error, load=load) from None
        if status:
            fail(self._o, status, "Cache.load_done", load=load, whole=whole)
        return _LOADED.read(room)

    def load_cancel(self, load: int) -> None:
        """End a load of which nothing is whole."""
        try:
            status = lib.kvpg_load_cancel(self._o, load)
        except _no_numbers as error:
            raise bad_number(error, load=load) from None
        if status:
            fail(self._o, status, "Cache.load_cancel", load=load)
