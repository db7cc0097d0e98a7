"""Load or compute: what has been measured, and what is expected to be sooner.

Times are those that a request sees: from the beginning of an operation to the step that takes its
result. Clocks are given, so that tests have their own.
"""

from __future__ import annotations

from collections.abc import Sequence

_KEPT = 0.8  # what a sample leaves of the samples before it
MARGIN = 0.8  # a load must be expected in this part of the time of computing
PATIENCE = 0.05  # part of the time of computing that a store's answer to "have" may take
STALE = 10.0  # seconds after which a rate is measured again


def how_many(loads: Sequence[float], compute: float | None) -> int:
    """How many of a prefix's next records to load; the others are computed.

    loads    [n] expected seconds until the first 1 .. n records are there
    compute  expected seconds of computing one; None: not known, and then all are loaded

    The number with the least time altogether.
    """
    if compute is None:
        return len(loads)
    saved = [0.0, *(n * MARGIN * compute - load for n, load in enumerate(loads, 1))]
    return max(range(len(saved)), key=lambda n: (saved[n], n))


class Pace:
    """Seconds for a unit (token, byte), a moving average of samples in proportion to their size."""

    def __init__(self) -> None:
        self._units = self._seconds = 0.0

    def add(self, units: float, seconds: float) -> None:
        self._units = self._units * _KEPT + units
        self._seconds = self._seconds * _KEPT + max(seconds, 0.0)

    def of(self, units: float) -> float | None:
        """Expected seconds; None: nothing was measured."""
        return units * self._seconds / self._units if self._units else None


class Reads:
    """One store's reads and its answers to "have". `now` is a clock's.

    A request that waits looks in each step, so the time at which a read is taken counts. A probe is
    read beside a computation, whose end may be the first look: for all of it the last time counts at
    which it was still out. So a store that may be fast enough is tried.
    """

    def __init__(self) -> None:
        self._pace = Pace()
        self._out = self._ended = 0  # bytes
        self._since = self._polled = 0.0
        self._last = -STALE
        self._waited = self._probes = False
        self._away_until = 0.0

    def begin(self, n_bytes: int, now: float, probe: bool = False) -> None:
        if not self._out:
            self._since, self._probes = now, probe
        self._out += n_bytes

    def end(self, n_bytes: int, waited: bool) -> None:
        """Taken in a poll, good or not; `polled` follows. waited: a request waits for it."""
        self._out -= n_bytes
        self._ended += n_bytes
        self._waited |= waited

    def polled(self, now: float) -> None:
        """All that has ended was taken."""
        before, self._polled = self._polled, now
        if not self._ended or (self._probes and self._out):
            return
        if self._probes:
            self._pace = Pace()
            self._pace.add(self._ended, before - self._since)
        elif self._waited:
            self._pace.add(self._ended, now - self._since)
        self._ended, self._waited, self._probes = 0, False, False
        self._since = self._last = now

    def gave_up(self, now: float) -> None:
        """A request waits no longer. If nothing has come for long, that is a sample, too."""
        if self._out and now - self._since > (self._pace.of(self._out) or 0.0):
            self._pace.add(self._out, now - self._since)
            self._since = self._last = now

    def expected(self, n_bytes: int, now: float) -> float:
        """Seconds until a read of n_bytes that begins now has ended; 0 if nothing was measured, so
        that it will be."""
        pace, out = self._pace.of(1) or 0.0, self._out + self._ended
        if out:  # what is out says something, too, if it takes longer than usual
            pace = max(pace, (now - self._since) / out)
        return (self._out + n_bytes) * pace

    def stale(self, now: float) -> bool:
        """Nothing is read and nothing was lately: the store may have become another one."""
        return not self._out and now - self._last > STALE

    def unanswered(self, now: float) -> None:
        """It took too long to say what it has: it is not asked for a while."""
        self._away_until = now + STALE

    def away(self, now: float) -> bool:
        return now < self._away_until
