"""Why tokens of prompts were computed: KvpagerConnector's figures by reason (reasons.h).

The scheduler's side counts, as it alone knows what vLLM's own prefix cache had. A hit is what that had,
and what came from host memory or a store.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _constants as c
from .._hashing import hash_root, hash_units
from .._reasons import NAMES, Reasons
from .._sequence import Key
from . import versions as v

UNITS = 1 << 20  # blocks that are remembered: 16 MiB
PREFIX = "prompt_tokens:"  # of the counters' names in Stats; a reason follows
_ITEM = 1  # the type of a multimodal item's key


@dataclass(eq=False)
class _Open:
    """A request that was asked about or admitted.

    hits     tokens that vLLM itself had at the last question
    hashes   of its prompt's blocks; None: not admitted yet, or never cached
    """

    hits: int = 0
    admitted: bool = False
    hashes: Any = None


class PromptReasons:
    """counts: what is counted goes there."""

    def __init__(self, block_tokens: int, counts: Counter[str]) -> None:
        self._block, self._counts, self._record = block_tokens, counts, Reasons(UNITS)
        self._open = dict[str, _Open]()
        self._kept_back = set[str]()

    def asked(self, request: Any, hits: int) -> None:
        """vLLM has KV of the first `hits` tokens."""
        self._open.setdefault(request.request_id, _Open()).hits = hits

    def learn(self, kept_back: set[str]) -> None:
        """Of these requests there is more in a store, or no room for it in host memory."""
        self._kept_back |= kept_back & self._open.keys()

    def admitted(self, request: Any, loaded: int, expired: bool) -> None:
        """The request has its blocks, and the KV of `loaded` tokens behind vLLM's own comes. expired:
        it did not wait for more."""
        one = self._open.setdefault(request.request_id, _Open())
        if one.admitted:
            return  # again, after a preemption
        one.admitted, n_tokens = True, request.num_tokens
        cached, whole = one.hits + loaded, (n_tokens - 1) // self._block * self._block
        hashes, stop = np.zeros((n_tokens // self._block, 16), np.uint8), c.STOP_OFF
        if v.tokens_only(request) and not request.skip_reading_prefix_cache:
            hashes = one.hashes = self._hash(request, 0, n_tokens, self._root(request))
            stop = (c.STOP_FULL_HIT if cached >= whole  # vLLM computes the last block again
                    else c.STOP_NO_ROOM if expired or request.request_id in self._kept_back
                    else c.STOP_MISS)
        parts = self._record.admit(hashes, n_tokens, self._block, min(cached, n_tokens - 1), stop,
                                   full_groups=1)  # one prefix for all layers
        for name, n in zip(NAMES, parts):
            if n > 0:
                self._counts[PREFIX + name] += n

    def ended(self, request: Any) -> None:
        """What it has computed can be hit until it is evicted, its answer too."""
        one = self._open.pop(request.request_id, None)
        self._kept_back.discard(request.request_id)
        if one is None or one.hashes is None:
            return
        n_prompt, n = len(one.hashes), min(request.num_computed_tokens,
                                           request.num_tokens) // self._block
        self._record.computed(one.hashes, min(n, n_prompt))
        if n > n_prompt:
            before = bytes(one.hashes[-1]) if n_prompt else self._root(request)
            self._record.computed(self._hash(request, n_prompt, n * self._block, before))

    def _root(self, request: Any) -> bytes:
        """Of all that its KV depends on besides tokens and items."""
        lora = request.lora_request
        name = repr((request.cache_salt, None if lora is None else (lora.lora_name, lora.lora_path)))
        return hash_root(self._block, hashlib.sha256(name.encode()).digest())

    def _hash(self, request: Any, first_block: int, end: int, before: bytes) -> Any:
        """Of the blocks from `first_block` on."""
        first = first_block * self._block
        keys = [Key(_ITEM, begin, last, content) for begin, last, content in v.items(request)
                if begin < end and last > first]
        return hash_units(np.array(request.all_token_ids[first:end], np.int32), self._block, before,
                          first_position=first, keys=keys)
