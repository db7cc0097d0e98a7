"""KV events of KvpagerConnector's host memory, medium CPU, for vLLM's publisher.

The worker's side has the cache, the scheduler's side the names that vLLM's own events give blocks:
routers look for a prefix on the device first and go on on the host, by the names. Only what nothing
separates from others is told: no cache_salt, adapter or multimodal item.

What stores have is not told: they evict without saying what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _constants as c
from .._cache import Cache
from .._errors import BehindError
from .._hashing import hash_root, hash_units
from .._sequence import Key
from . import versions as v

EVENTS = 65536  # that the cache remembers: far more than a step makes
_AT_ONCE = 256


@dataclass(frozen=True)
class Told:
    """A block that came to host memory, or left it: tokens is None. before: the block before it, b"" for
    none."""

    name: bytes
    before: bytes = b""
    tokens: tuple[int, ...] | None = None


class Teller:
    """The worker's side. plain: the key of every prompt that nothing separates."""

    def __init__(self, books: Cache, plain: Key) -> None:
        self._books, self._plain, self._next = books, plain, 1
        self._size, self._root = books.unit_tokens, hash_root(books.unit_tokens)
        self._known: dict[bytes, None] = {}  # what was told, in this order

    def take(self) -> list[Told]:
        """What has changed since the last call, blocks behind those before them."""
        told, values = list[Told](), np.empty(_AT_ONCE * self._size, np.int32)
        while True:
            try:
                events = self._books.events(self._next, _AT_ONCE, values)
            except BehindError:
                told += self._gone()
                number, events = self._books.events_snapshot()
                values = np.empty(len(events) * self._size, np.int32)
                number, events = self._books.events_snapshot(values)
                self._next = number + 1
                told += self._of(events, values)
                return told
            self._next += len(events)
            told += self._of(events, values)
            if len(events) < _AT_ONCE:
                return told

    def _gone(self) -> Iterator[Told]:
        while self._known:
            yield Told(self._known.popitem()[0])

    def _of(self, events: Any, values: Any) -> Iterator[Told]:
        for i, event in enumerate(events):
            name = bytes(event["hash"])
            if event["kind"] == c.EVENT_CLEARED:
                yield from self._gone()
            elif event["kind"] == c.EVENT_REMOVED:
                if name in self._known:
                    del self._known[name]
                    yield Told(name)
            else:
                tokens = values[i * self._size:(i + 1) * self._size]
                before = bytes(event["parent"]) if event["position"] else b""
                if self._is_plain(name, before, tokens):
                    self._known[name] = None
                    yield Told(name, before, tuple(tokens.tolist()))

    def _is_plain(self, name: bytes, before: bytes, tokens: Any) -> bool:
        """Whether the hash is that of the tokens alone, behind a block of which that is true."""
        if before and before not in self._known:
            return False
        keys = () if before else (self._plain,)
        return bytes(hash_units(tokens, self._size, before or self._root, keys=keys)[0]) == name


class Names:
    """The scheduler's side: what vLLM's events are made of. name_of gives a block's name from that of
    the block before it, None for none, and its tokens."""

    def __init__(self, block_tokens: int, name_of: Callable[[Any, tuple[int, ...]], Any],
                 shown: Callable[[Any], Any]) -> None:
        self._size, self._name_of, self._shown = block_tokens, name_of, shown
        self._names: dict[bytes, Any] = {}

    def events(self, told: list[Told]) -> list[Any]:
        kinds, made = v.kv_events, list[Any]()
        for one in told:
            if one.tokens is None:
                if one.name in self._names:
                    made.append(kinds.BlockRemoved([self._shown(self._names.pop(one.name))], "CPU"))
                continue
            before = self._names.get(one.before)
            if one.before and before is None:
                continue  # told before this side listened
            name = self._names[one.name] = self._name_of(before, one.tokens)
            made.append(kinds.BlockStored(
                [self._shown(name)], None if before is None else self._shown(before),
                list(one.tokens), self._size, None, "CPU", None))
        return made


def names_for(config: Any, block_tokens: int) -> Names:
    """By vLLM's own hash; kvpager.vllm.Scheduler names blocks by kvpager's."""
    if "kvpager" in str(getattr(config.scheduler_config, "scheduler_cls", None)):
        root = hash_root(block_tokens)

        def own(before: bytes | None, tokens: tuple[int, ...]) -> bytes:
            return bytes(hash_units(tokens, block_tokens, before or root)[0])
        return Names(block_tokens, own, lambda name: int.from_bytes(name[8:], "big"))
    function = v.get_hash_fn_by_name(config.cache_config.prefix_caching_hash_algo)
    return Names(block_tokens, lambda before, tokens: v.hash_block_tokens(function, before, tokens),
                 v.maybe_convert_block_hash)
