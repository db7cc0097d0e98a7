"""The stores behind host memory, nearest first, and which records each is believed to have."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from .. import store as s

_BELIEFS = 1 << 20


class Stores:
    """all: opened; record_blocks: of each record, in all of them."""

    def __init__(self, urls: Iterable[str], model: s.FingerprintInput, block_bytes: int,
                 record_blocks: int, secret: bytes) -> None:
        self.all = [s.Store.open(url, fingerprint=model.fingerprint(),
                                 block_tokens=model.block_tokens, block_bytes=[block_bytes],
                                 record_blocks=record_blocks, max_ops=s.STORE_QUEUE_MAX,
                                 secret=secret) for url in urls]
        self.record_blocks = self.all[0].record_blocks if self.all else 1
        self._known: list[OrderedDict[bytes, None]] = [OrderedDict() for _ in self.all]

    def believe(self, at: int, key: bytes, there: bool = True) -> None:
        """Store `at` said that it has a record, or that it has not. Nothing but a read decides."""
        known = self._known[at]
        known.pop(key, None)
        if there:
            known[key] = None
            if len(known) > _BELIEFS:
                known.popitem(last=False)

    def believed(self, at: int, key: bytes) -> bool:
        """Whether the record need not be written."""
        return key in self._known[at]
