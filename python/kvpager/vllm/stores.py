"""The stores behind host memory, nearest first, and which records each is believed to have."""

from __future__ import annotations

import logging
import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable

from .. import store as s

_BELIEFS = 1 << 20
_SECONDS = 60.0  # between a line that tells of trouble and the next
_PROBE = bytes(1 << 16)


def why(store: s.Store) -> str:
    """Why a store fails, as far as that can be seen. May wait for its disk."""
    place = os.fsdecode(store.url)
    if not place.startswith("file:"):
        return store.describe()
    place = place[len("file:"):].partition("?")[0]
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(_PROBE)
        about = os.statvfs(place)
    except OSError as error:
        return error.strerror or str(error)
    return f"{about.f_bavail * about.f_frsize >> 20} MiB of its disk are free"


class Watch:
    """Tells when a store begins and ceases to fail: a line each, with the reason.

    Of a directory reads and writes may fail by themselves; a server that does not answer does neither.
    fails, told: what fails now, and when that was told last. A thread of its own looks for the reason,
    as a disk that fails may also be slow."""

    def __init__(self, store: s.Store, logger: logging.Logger, clock: Callable[[], float]) -> None:
        self._store, self._logger, self._clock = store, logger, clock
        self._is_server = not os.fsdecode(store.url).startswith("file:")
        self._fails = set[str]()
        self._told = dict[str, float]()
        self.telling: threading.Thread | None = None

    def saw(self, operation: s.Operation) -> None:
        """It has ended."""
        kind = "writes" if operation.op == s.STORE_PUT else "reads"
        if operation.result in (s.STORE_FAILED, s.STORE_AWAY, s.STORE_NO_ROOM):
            kind = "works" if self._is_server and operation.result != s.STORE_NO_ROOM else kind
            if kind not in self._fails and self._clock() - self._told.get(kind, -_SECONDS) >= _SECONDS:
                self._fails.add(kind)
                self._told[kind] = self._clock()
                does = {s.STORE_FAILED: "fails", s.STORE_AWAY: "is away"}.get(
                    operation.result, "has no room for records")
                self.telling = threading.Thread(target=self._tell, args=(kind, does), daemon=True)
                self.telling.start()
        elif operation.result == s.STORE_OK:
            for ended in self._fails & {kind, "works"}:
                self._fails.discard(ended)
                self._logger.info("kvpager: %s %s again", s.show_url(self._store.url), ended)

    def _tell(self, kind: str, does: str) -> None:
        what = {"reads": "requests are computed", "writes": "nothing is written to it"}.get(
            kind, "requests are computed, and nothing is written to it")
        try:
            reason = why(self._store)
        except Exception as error:  # it was closed meanwhile
            reason = str(error)
        self._logger.warning("kvpager: %s %s, so %s: %s", s.show_url(self._store.url), does, what,
                             reason)


class Stores:
    """all: opened; record_blocks: of each record, in all of them."""

    def __init__(self, urls: Iterable[str], model: s.FingerprintInput, block_bytes: int,
                 record_blocks: int, secret: bytes, logger: logging.Logger,
                 clock: Callable[[], float]) -> None:
        self.all = [s.Store.open(url, fingerprint=model.fingerprint(),
                                 block_tokens=model.block_tokens, block_bytes=[block_bytes],
                                 record_blocks=record_blocks, max_ops=s.STORE_QUEUE_MAX,
                                 secret=secret) for url in urls]
        self.watches = [Watch(store, logger, clock) for store in self.all]
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

    def gauges(self) -> dict[str, dict[str, float]]:
        """Of each store, by its URL without a password."""
        made = {}
        for store in self.all:
            stats = store.stats()
            made[s.show_url(store.url)] = {
                "store_records": stats.records, "store_bytes": stats.bytes,
                "store_size_bytes": stats.size, "store_queued": stats.queued,
                "store_away_seconds": stats.away_ns / 1e9}
        return made
