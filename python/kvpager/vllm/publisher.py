"""vLLM's KV events, sent by kvpager.publish in the place of vLLM's own publisher.

The same sockets, by the same KVEventsConfig, and the same wire. What differs is in publish.h: numbers
begin at the clock, so that routers notice a restart; who comes late gets the whole set; what is behind
a removed block is announced again with it; a heartbeat shows what was lost.
"""

from __future__ import annotations

import hashlib
import time
from typing import Any

import numpy as np

from .. import _constants as c
from .._errors import IoError, NoNamespacesError
from .._guard import Troubles
from .._tiers import EVENT_DTYPE
from . import versions as v

logger = v.logger(__name__)

_TIERS = {"GPU": c.DEVICE, "CPU": c.HOST}
_BIND_SECONDS = 5.0
_STORE = 2  # PUBLISH_STORE


def _name(number: int | bytes) -> bytes:
    """A block's hash as a publisher has it."""
    if isinstance(number, bytes):
        number = int.from_bytes(number[-8:], "big")
    return number.to_bytes(16, "big")


def _root(lora: str | None) -> np.ndarray[Any, Any]:
    """What stands for all blocks of an adapter. It is no block's name, whose first half is zero."""
    digest = hashlib.blake2b((lora or "").encode(), digest_size=16).digest()
    return np.frombuffer(digest, np.uint8)


class EventPublisher(v.kv_events.EventPublisher):
    """What vLLM's scheduler calls with each step's events.

    config      vLLM's
    rank        of data parallelism; added to ports, as vLLM does
    block_size  tokens of a block; other blocks are not told, and counted
    n_blocks    of the KV cache; four times as many units are remembered
    """

    def __init__(self, config: Any, rank: int, block_size: int, n_blocks: int) -> None:
        super().__init__(rank)
        from ..publish import Publisher
        shift = v.kv_events.ZmqEventPublisher.offset_endpoint_port
        endpoint, replay = shift(config.endpoint, rank), shift(config.replay_endpoint, rank)
        until = time.monotonic() + _BIND_SECONDS
        while True:
            try:
                self._wire = Publisher.open(
                    endpoint, replay_endpoint=replay, topic=config.topic, unit_tokens=block_size,
                    max_units=4 * n_blocks + 1024, rank=rank, foreign=True,
                    queue_batches=min(max(config.hwm, 1), 10 ** 6),
                    kept_batches=min(max(config.buffer_steps, 1), 10 ** 6))
                break
            except IoError:  # vLLM's own publisher lets go of the port a moment later
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)
        self._config, self._block_size, self._adapters = config, block_size, set[str | None]()
        self.troubles = Troubles(logger)
        self.other_sizes = 0
        self._knows(None)
        self._wire.serve()

    def _knows(self, lora: str | None) -> None:
        """Name the blocks of an adapter; of too many, the last ones are not told."""
        if lora not in self._adapters:
            self._adapters.add(lora)
            try:
                self._wire.space(_root(lora).tobytes(), lora)
            except NoNamespacesError as error:
                self.troubles.expected("adapters_not_told", error)

    def publish(self, events: Any) -> None:
        self.troubles.safely("publish", lambda: self._publish(events.events))

    def _publish(self, told: list[Any]) -> None:
        told = [event for event in told if getattr(event, "block_size", self._block_size)
                == self._block_size or self._skip(event)]
        n = sum(len(getattr(event, "block_hashes", (0,))) for event in told)
        events, at = np.zeros(n, EVENT_DTYPE), 0
        tokens = np.zeros((n, self._block_size), np.int32)
        for event in told:
            kind = type(event).__name__
            if kind == "AllBlocksCleared":
                events["kind"][at] = c.EVENT_CLEARED
                at += 1
                continue
            last = at + len(event.block_hashes)
            part = events[at:last]
            part["kind"] = c.EVENT_STORED if kind == "BlockStored" else c.EVENT_REMOVED
            part["tier"] = _TIERS.get(event.medium or "GPU", _STORE)
            part["hash"] = np.frombuffer(b"".join(map(_name, event.block_hashes)),
                                         np.uint8).reshape(-1, 16)
            if kind == "BlockStored":
                self._knows(event.lora_name)
                self._set_stored(part, event)
                tokens[at:last] = np.asarray(event.token_ids, np.int32).reshape(tokens[at:last].shape)
            at = last
        self._wire.put(events, tokens.reshape(-1))

    def _skip(self, event: Any) -> bool:
        self.other_sizes += len(event.block_hashes)
        return False

    def _set_stored(self, part: Any, event: Any) -> None:
        """The chain: each block behind the one before it, the first behind the event's parent."""
        part["root"], part["n_tokens"] = _root(event.lora_name), self._block_size
        part["position"] = self._block_size
        part["parent"][1:] = part["hash"][:-1]
        if event.parent_block_hash is None:
            part["parent"][0], part["position"][0] = part["root"][0], 0
        else:
            part["parent"][0] = np.frombuffer(_name(event.parent_block_hash), np.uint8)

    def shutdown(self) -> None:
        self._wire.close()

    def get_publisher_config(self) -> Any:
        return self._config


def _is_bound(endpoint: str) -> bool:
    """Whether vLLM binds it, to a port that is named: to others it connects."""
    named = "*" in endpoint or "::" in endpoint or endpoint.startswith("ipc://")
    return named and not endpoint.endswith(":0")


def replace(theirs: Any, config: Any, rank: int, block_size: int, n_blocks: int) -> Any:
    """A publisher in the place of vLLM's; vLLM's, and a line in the log, where that cannot be."""
    if type(theirs) is not v.kv_events.ZmqEventPublisher:
        return theirs
    try:
        from .. import publish as _publish  # noqa: F401
    except ImportError as error:
        logger.info("KV events are sent by vLLM's publisher: %s", error)
        return theirs
    if not _is_bound(config.endpoint):
        logger.info("KV events are sent by vLLM's publisher: %s is not bound by its port",
                    config.endpoint)
        return theirs
    theirs.shutdown()
    return EventPublisher(config, rank, block_size, n_blocks)
