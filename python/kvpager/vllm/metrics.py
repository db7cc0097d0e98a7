"""KvpagerConnector's figures in vLLM's own log and /metrics."""

from __future__ import annotations

from typing import Any

from . import versions as v

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
}


class Stats(v.ConnectorStats):
    """What was counted since the last step. data: {name: number}."""

    data: dict[str, Any]

    def reset(self) -> None:
        self.data = {}

    def aggregate(self, other: Any) -> Stats:
        for name, number in other.data.items():
            self.data[name] = self.data.get(name, 0) + number
        return self

    def reduce(self) -> dict[str, int | float]:
        return dict(self.data)

    def is_empty(self) -> bool:
        return not self.data


class Prometheus(v.ConnectorPrometheus):
    """vllm:kvpager_..._total, with vLLM's labels."""

    def __init__(self, config: Any, types: Any, labelnames: list[str], values: Any) -> None:
        super().__init__(config, types, labelnames, values)
        self._counters: dict[str, dict[int, Any]] = {}
        for name, text in COUNTED.items():
            made = self._counter_cls(name=_PREFIX + name, documentation=text, labelnames=labelnames)
            self._counters[name] = {engine: made.labels(*labels)
                                    for engine, labels in values.items()}

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        for name, number in transfer_stats_data.items():
            if name in self._counters:
                self._counters[name][engine_idx].inc(number)
