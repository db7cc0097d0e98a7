"""KvpagerConnector's figures in vLLM's own log and /metrics."""

from __future__ import annotations

from typing import Any

from .._guard import ERRORS, Troubles, never_raises
from .._reasons import NAMES
from . import versions as v
from .adapters import COUNTED as ADAPTERS
from .reasons import PREFIX

logger = v.logger(__name__)
_PREFIX = "vllm:kvpager_"

# name in Mover.counts: what it counts
COUNTED = {
    "asked_tokens": "Tokens of prefixes that were asked for.",
    "host_tokens": "Of these, tokens that were in host memory.",
    "store_tokens": "Of these, tokens that came from a store, verified.",
    "loaded_tokens": "Tokens whose KV was copied to the engine's blocks.",
    "saved_tokens": "Tokens whose KV was copied to host memory.",
    "slower_tokens": "Tokens that a store had, and that were expected sooner from computing.",
    "late": "Prefixes that a store had not brought in the time that computing takes.",
    "unanswered": "Questions that a store did not answer in time.",
    "unasked": "Prefixes that a store was not asked for, as it was slow to answer.",
    "stored": "Records that a store has written, or had already.",
    "not_stored": "Records that a store did not write.",
    "bad": "Records that a store refused to return: damaged, or of something else.",
    "gone": "Records that were gone when they were read.",
    "busy": "Operations that a store had no room for.",
    "refused": "Operations that a store refused.",
    "no_room": "Prefixes that were not looked for, as host memory was held by others.",
    "not_kept": "Prefixes that were not kept, as host memory was held by others.",
    "gaps": "Prefixes that were not kept, as blocks that a window had left behind were lost.",
    "load_failed": "Copies to the engine's blocks that failed.",
    "lost": "Promises that a reset broke.",
    "too_long": "Prompts of which only the beginning fits into host_memory.",
    ADAPTERS: "Times that a request was computed, as nobody can tell which weights its adapter has.",
    ERRORS: "Calls that a defect of kvpager ended. The engine computed instead.",
}

# Of each store, of the rank that has it open.
GAUGES = {
    "store_records": "Records there now.",
    "store_bytes": "Bytes they take.",
    "store_size_bytes": "Limit of bytes; 0: none that is known.",
    "store_queued": "Operations that have begun and not ended.",
    "store_away_seconds": "For how long the store is left alone from now on; 0: it is used.",
}
STORES = "stores"
BY_REASON = "prompt_tokens_by_reason"


class Stats(v.ConnectorStats):
    """What was counted since the last step. data: {name: number}; and, of stores as they are now,
    {STORES: {"rank URL": {name: number}}}."""

    data: dict[str, Any]

    def reset(self) -> None:
        self.data = {}

    def aggregate(self, other: Any) -> Stats:
        for name, number in other.data.items():
            if name == STORES:
                self.data[STORES] = {**self.data.get(STORES, {}), **number}
            else:
                self.data[name] = self.data.get(name, 0) + number
        return self

    def reduce(self) -> dict[str, int | float]:
        return {name: number for name, number in self.data.items() if name != STORES}

    def is_empty(self) -> bool:
        return not self.reduce()


@never_raises({"observe": lambda self, *given, **named: None})
class Prometheus(v.ConnectorPrometheus):
    """vllm:kvpager_..._total, with vLLM's labels, and gauges of stores with theirs."""

    def __init__(self, config: Any, types: Any, labelnames: list[str], values: Any) -> None:
        super().__init__(config, types, labelnames, values)
        self.troubles = Troubles(logger)
        self._values: dict[int, list[Any]] = values
        self._counters: dict[str, dict[int, Any]] = {}
        for name, text in COUNTED.items():
            made = self._counter_cls(name=_PREFIX + name, documentation=text, labelnames=labelnames)
            self._counters[name] = {engine: made.labels(*labels)
                                    for engine, labels in values.items()}
        by_reason = self._counter_cls(
            name=_PREFIX + BY_REASON, labelnames=[*labelnames, "reason"],
            documentation="Tokens of admitted prompts by why they were computed, in order; hit: they "
                          "were not.")
        for name in NAMES:
            self._counters[PREFIX + name] = {engine: by_reason.labels(*labels, name)
                                             for engine, labels in values.items()}
        self._gauges = {name: self._gauge_cls(name=_PREFIX + name, documentation=text,
                                              labelnames=[*labelnames, "rank", "store"])
                        for name, text in GAUGES.items()}

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        for name, number in transfer_stats_data.items():
            if name in self._counters:
                self._counters[name][engine_idx].inc(number)
        for place, gauges in transfer_stats_data.get(STORES, {}).items():
            rank, _, url = place.partition(" ")
            for name, number in gauges.items():
                if name in self._gauges:
                    self._gauges[name].labels(*self._values[engine_idx], rank, url).set(number)
