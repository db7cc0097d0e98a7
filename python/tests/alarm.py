"""A timer whose handler raises, for tests of what a signal's exception leaves behind."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType


class Interrupted(Exception):
    """What the handler raises."""


class Alarm:
    """Raises Interrupted once after `arm`, and never after `disarm`.

    The system may give the signal to another thread of the process. Then Python learns of it late,
    when the timer has been set to 0 already, and such a signal raises nothing."""

    def __init__(self) -> None:
        self._armed = False

    def _ring(self, number: int, frame: FrameType | None) -> None:
        if self._armed:
            self._armed = False
            raise Interrupted

    def arm(self, seconds: float) -> None:
        self._armed = True
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def disarm(self) -> None:
        self._armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)

    def __enter__(self) -> Alarm:
        self._before = signal.signal(signal.SIGALRM, self._ring)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.disarm()
        signal.signal(signal.SIGALRM, self._before)
