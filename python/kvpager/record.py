"""Recordings of running engines, as `kvpager replay`, `mrc` and `events` read them.

    from kvpager.record import Recorder

    with Recorder("engine.kvprec", block_tokens=16, engine="mine 1.0", model="llama-8b") as recorder:
        recorder.add(time_us, input_tokens, output_tokens, hashes, cached_tokens=32)

The file has numbers in the place of hashes, in order of first appearance: no hash leaves the process.
docs/FORMATS.md has its bytes. Needs libzstd; where the package was built without it, importing this
module is an ImportError.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final

try:
    from ._record_native import ffi, lib
except ImportError as _error:
    raise ImportError("kvpager.record: this kvpager was built without libzstd, or it cannot be loaded. "
                      "Install it (Debian: libzstd-dev) and build kvpager again",
                      name=_error.name) from None

ENGINE: Final = 1  # the source: block hashes and hits of the engine itself
UNKNOWN: Final = -1
MAX_CONTENTS: Final = 4 << 20


class Recorder:
    """A recording that is being written. Any thread may call; one call at a time.

    path          of a new file
    block_tokens  of the blocks whose hashes are given
    max_contents  so many different blocks are told apart, 96 bytes each; older ones count as new
    """

    def __init__(self, path: str | os.PathLike[str], block_tokens: int, engine: str = "", model: str = "",
                 max_contents: int = MAX_CONTENTS) -> None:
        self._path, self._lock = os.fspath(path), threading.Lock()
        self._error, self._at = ffi.new("char[]", lib.KVPY_RECORD_ERROR), None
        made = ffi.new("kvpi_recorder **")
        self._check(lib.kvpy_record_open(
            made, os.fsencode(self._path), ENGINE, block_tokens, time.time_ns() // 1000, max_contents,
            engine.encode(), model.encode(), os.urandom(16), self._error))
        self._at = made[0]

    def _check(self, result: int) -> None:
        if result != 0:
            raise OSError(f"{self._path}: {ffi.string(self._error).decode(errors='replace')}")

    def _open(self) -> Any:
        if self._at is None:
            raise ValueError(f"{self._path}: the recording has ended")
        return self._at

    def add(self, time_us: int, input_tokens: int, output_tokens: int, hashes: Sequence[bytes], *,
            cached_tokens: int = UNKNOWN, first_us: int = UNKNOWN, last_us: int = UNKNOWN,
            session: bytes = b"", scope: bytes = b"") -> None:
        """Add a request. hashes: of its full blocks, those of the output behind those of the prompt,
        each over all before it, all of one length. time_us: since 1970; first_us, last_us: from then to
        the first token and to the end. OSError: it is not recorded, and counted as lost."""
        joined, n_bytes = b"".join(hashes), len(hashes[0]) if hashes else 0
        if len(joined) != n_bytes * len(hashes):
            raise ValueError("hashes: of several lengths")
        with self._lock:
            self._check(lib.kvpy_record_add(
                self._open(), (time_us, input_tokens, output_tokens, cached_tokens, first_us, last_us),
                session, len(session), scope, len(scope), joined, len(hashes), n_bytes, self._error))

    def flush(self) -> None:
        """Write what was added, as far as the system."""
        with self._lock:
            self._check(lib.kvpy_record_flush(self._open(), self._error))

    def counts(self) -> dict[str, int]:
        with self._lock:
            out = ffi.new("uint64_t[]", lib.KVPY_RECORD_COUNTS)
            lib.kvpy_record_counts(self._open(), out)
            return dict(zip(("requests", "contents", "forgotten", "lost", "unnumbered"), out))

    def close(self) -> None:
        """Write the end. Closing twice is allowed."""
        with self._lock:
            at, self._at = self._at, None
            if at is not None:
                self._check(lib.kvpy_record_close(at, self._error))

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()
