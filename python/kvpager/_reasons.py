"""Why tokens of prompts were computed: reasons.h."""

from __future__ import annotations

from typing import Any

from . import _constants as c
from ._core import Struct, bad_number, fail
from ._errors import ArgError
from ._native import ffi, lib
from ._records import ReasonsStats
from ._sequence import hashes_in

_STATS = Struct(ReasonsStats)
NAMES: tuple[str, ...] = tuple(ffi.string(lib.kvp_reason_name(i)).decode() for i in range(c.REASONS))


class Reasons:
    """A record of units that prompts had, max_units of them. NAMES are the reasons, in order.

    One call at a time, from any thread."""

    def __init__(self, max_units: int) -> None:
        try:
            n_bytes = lib.kvp_reasons_bytes(max_units)
        except (TypeError, OverflowError) as error:
            raise bad_number(error, max_units=max_units) from None
        self._memory = ffi.new("uint64_t[]", max(n_bytes // 8, 1))
        self._c = ffi.cast("kvp_reasons *", self._memory)
        status = lib.kvp_reasons_init(self._c, max_units)
        if status:
            fail(status, "Reasons", max_units=max_units)

    def admit(self, hashes: Any, n_tokens: int, unit_tokens: int, cached_tokens: int = 0,
              stop: int = c.STOP_MISS, stop_group: int = 0,
              full_groups: int = 1) -> tuple[int, ...]:
        """Cut a prompt that is admitted: tokens by reason, which add up to n_tokens.

        hashes   [n_tokens // unit_tokens, 16] u8: hash_units of its tokens
        cached_tokens, stop, stop_group  as OpenInfo has them
        full_groups  bit g: layer group g keeps all tokens
        """
        array = hashes_in(hashes)
        prompt, parts = ffi.new("kvp_reasons_prompt *"), ffi.new("uint32_t[]", c.REASONS)
        numbers = {"unit_tokens": unit_tokens, "n_tokens": n_tokens, "cached_tokens": cached_tokens,
                   "stop": stop, "stop_group": stop_group, "full_groups": full_groups}
        try:
            for name, number in numbers.items():
                setattr(prompt, name, number)
        except (TypeError, OverflowError) as error:
            raise bad_number(error, **numbers) from None
        if len(array) != n_tokens // max(unit_tokens, 1):
            raise ArgError(f"hashes: has {len(array)}, n_tokens: {n_tokens} of unit_tokens: "
                           f"{unit_tokens} need {n_tokens // max(unit_tokens, 1)}")
        prompt.hashes = array
        status = lib.kvp_reasons_admit(self._c, prompt, parts)
        if status:
            fail(status, "Reasons.admit", unit_tokens=unit_tokens, n_tokens=n_tokens,
                 cached_tokens=cached_tokens, stop=stop, stop_group=stop_group,
                 full_groups=full_groups)
        return tuple(parts)

    def computed(self, hashes: Any, n_computed: int | None = None) -> None:
        """The KV of the first n_computed units is there (None: of all); the others are not in flight
        any more."""
        array = hashes_in(hashes)
        try:
            status = lib.kvp_reasons_computed(self._c, array, len(array),
                                              len(array) if n_computed is None else n_computed)
        except (TypeError, OverflowError) as error:
            raise bad_number(error, n_computed=n_computed) from None
        if status:
            fail(status, "Reasons.computed", n_computed=n_computed)

    def stats(self) -> ReasonsStats:
        room = _STATS.new()
        status = lib.kvp_reasons_stats_get(self._c, room)
        if status:
            fail(status, "Reasons.stats")
        return _STATS.read(room)
