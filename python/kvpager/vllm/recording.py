"""What an engine of vLLM is asked, in a recording: KvpagerConnector with "record_only", and
kvpager.vllm.Scheduler.

The scheduler's side sees each request's block hashes, what vLLM had of it, and its end. It hands that to
a thread, which numbers and writes.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from .._guard import Troubles
from ..record import MAX_CONTENTS, UNKNOWN, Recorder
from . import versions as v

logger = v.logger(__name__)

_FLUSH_SECONDS = 2.0  # at most; when nothing comes, sooner: vLLM kills its engine without a grace period
_IDLE_SECONDS = 0.1
_MAX_WAITING = 10_000  # requests that the thread has not written yet


def check_directory(name: str, directory: object) -> str:
    if not isinstance(directory, str) or not os.path.isdir(directory):
        raise ValueError(f"{name}: is {directory!r}, expected a directory that is there")
    return directory


@dataclass(eq=False)
class _Seen:
    """A request, from its first look-up on. cached: what vLLM had when it was admitted."""

    request: Any
    cached: int
    admitted: bool = False
    first: float = 0.0  # when its first token was seen; 0: not yet


def _scope(request: Any) -> bytes:
    """What its content belongs to, besides tokens."""
    adapter = request.lora_request
    parts = [request.cache_salt or ""]
    if adapter is not None:
        parts += [adapter.lora_name, str(getattr(adapter, "lora_path", ""))]
    return "\0".join(parts).encode() if any(parts) else b""


class Writer:
    """Writes what it is given, in a thread. What it cannot take is counted and left out.

    The thread wakes a few times a second, not with each request: each time it holds the scheduler up."""

    def __init__(self, recorder: Recorder, troubles: Troubles) -> None:
        self._recorder, self._troubles = recorder, troubles
        self._given, self._some, self._ends = deque[tuple[Any, ...]](), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="kvpager-record", daemon=True)
        self._thread.start()

    def give(self, *given: Any) -> None:
        if len(self._given) >= _MAX_WAITING:
            self._troubles.expected("record_late", BufferError(f"{_MAX_WAITING} requests wait to be written"))
            return
        self._given.append(given)
        if not self._some.is_set():
            self._some.set()

    def _run(self) -> None:
        flushed, is_dirty = time.monotonic(), False
        while not self._ends.is_set():
            if not is_dirty:
                self._some.wait()
            self._ends.wait(_IDLE_SECONDS)
            is_idle = not self._write()
            is_dirty = is_dirty or not is_idle
            if is_dirty and (is_idle or time.monotonic() - flushed >= _FLUSH_SECONDS):
                flushed, is_dirty = time.monotonic(), False
                self._troubles.safely("flush", self._recorder.flush)
        self._write()

    def _write(self) -> bool:
        """All that was given. False: there is none."""
        self._some.clear()
        n = len(self._given)
        for _ in range(n):
            try:
                self._add(*self._given.popleft())
            except Exception as error:
                self._troubles.expected("not_recorded", error)
        return n > 0

    def _add(self, arrival: float, n_prompt: int, n_output: int, hashes: Any, n_full: int, cached: int,
             first: float, end: float, scope: bytes) -> None:
        def since(at: float) -> int:
            return max(0, int((at - arrival) * 1e6)) if at else UNKNOWN

        self._recorder.add(int(arrival * 1e6), n_prompt, n_output, hashes[:n_full], cached_tokens=cached,
                           first_us=since(first), last_us=since(end), scope=scope)

    def close(self) -> None:
        self._ends.set()
        self._some.set()
        self._thread.join()
        self._recorder.close()


class Requests:
    """The requests of one scheduler, from their first look-up to their end, into a file of its own in a
    directory."""

    def __init__(self, vllm_config: Any, directory: str, troubles: Troubles,
                 max_contents: int = MAX_CONTENTS) -> None:
        self._seen: dict[str, _Seen] = {}
        self._silent: dict[str, _Seen] = {}  # of these, admitted without a token yet
        cache = vllm_config.cache_config
        if not cache.enable_prefix_caching:
            raise ValueError("a recording needs vLLM's prefix caching: without it there are no block hashes")
        name = time.strftime("vllm-%Y%m%dT%H%M%SZ", time.gmtime()) + f"-{os.getpid()}"
        path = os.path.join(directory, name + ".kvprec")
        self._block = getattr(cache, "hash_block_size", None) or cache.block_size
        self._writer: Writer | None = Writer(Recorder(
            path, self._block, f"vllm {v.WHOLE_VERSION}"[:255],
            str(vllm_config.model_config.model)[:80], max_contents), troubles)
        logger.info("kvpager: recording to %s", path)

    def looked_up(self, request: Any, n_cached: int) -> None:
        """vLLM had so many tokens. A look-up is repeated until there is room; later ones are after a
        preemption."""
        seen = self._seen.setdefault(request.request_id, _Seen(request, 0))
        if not seen.admitted:
            seen.cached = n_cached

    def admitted(self, request: Any) -> None:
        seen = self._seen.get(request.request_id)
        if seen is not None and not seen.admitted:
            seen.admitted = True
            self._silent[request.request_id] = seen

    def stepped(self) -> None:
        if self._silent:
            spoken = [name for name, seen in self._silent.items() if seen.request.num_output_tokens > 0]
            for name in spoken:
                self._silent.pop(name).first = time.time()

    def finished(self, request: Any) -> None:
        seen, now = self._seen.pop(request.request_id, None), time.time()
        self._silent.pop(request.request_id, None)
        if seen is not None and seen.admitted and self._writer is not None:
            n_prompt, n_output = request.num_prompt_tokens, request.num_output_tokens
            first = seen.first or (now if n_output > 0 else 0.0)
            n_full = (n_prompt + max(n_output - 1, 0)) // self._block  # the last token's KV is never computed
            self._writer.give(request.arrival_time, n_prompt, n_output, request.block_hashes, n_full, seen.cached,
                              first, now, _scope(request))

    def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
