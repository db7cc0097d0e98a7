"""Events on the wire that routers read: publish.h, which has the wire's rules.

    from kvpager.publish import Publisher

    with Publisher.open("tcp://127.0.0.1:5557", replay_endpoint="tcp://127.0.0.1:5558",
                        unit_tokens=cache.unit_tokens, max_units=2 * n_blocks) as publisher:
        ...
        publisher.read(cache)     # after each step: what changed goes out
        publisher.work()          # often: answers to routers, and heartbeats

or publisher.serve(cache) once: a thread does both. Needs libzmq and libcrypto; where the package was
built without them, importing this module is an ImportError.
"""

from __future__ import annotations

import os
import threading
import time
from operator import index
from typing import Any

import numpy as np
import numpy.typing as npt

try:
    from ._publish_native import ffi, lib
except ModuleNotFoundError as _error:
    raise ImportError("kvpager.publish: this kvpager was built without its publisher: libzmq, "
                      "msgpack or libcrypto 3.0 was missing, or KVP_ZMQ was OFF. Install them "
                      "(Debian: libzmq3-dev libmsgpack-dev libssl-dev) and build kvpager again",
                      name=_error.name) from None
except ImportError as _error:
    raise ImportError("kvpager.publish: a library that it needs cannot be loaded (Debian: libzmq5, "
                      f"libssl3): {_error}", name=_error.name, path=_error.path) from None

from . import _native
from . import _publish_constants as pc
from . import _publish_native
from ._cache import Cache
from ._core import (I32, Struct, array_of, bad_number, bytes_in, error_of, fail, instance,
                    owned, real, text_of)
from ._errors import ArgError, BehindError, BusyError
from ._process import Owned
from ._publish_constants import *  # noqa: F403
from ._publish_records import STRUCTS as _STRUCTS
from ._publish_records import PublisherStats as PublisherStats
from ._tiers import EVENT_DTYPE

if _native.lib.kvpy_object_bytes() != lib.kvpy_object_bytes():
    raise ImportError("kvpager.publish: kvpager._native and kvpager._publish_native are of two builds")

_STATS = Struct(PublisherStats, ffi, _STRUCTS)
_WHY_BYTES, _ENDPOINT_BYTES = 512, 1024


def _text(name: str, value: Any) -> Any:
    made = text_of(name, value)
    if b"\0" in made:
        raise ArgError(f"{name}: {value!r} has a null character")
    return ffi.new("char[]", made)


def _theirs(cache: Cache) -> Any:
    """The cache's object as this module's cffi knows it; while `cache` lives."""
    return ffi.cast("kvpy_object *", int(_native.ffi.cast("uintptr_t", cache._o)))


def _now(now_ns: int | None) -> int:
    try:
        return time.time_ns() if now_ns is None else index(now_ns)
    except TypeError as error:
        raise bad_number(error, now_ns=now_ns) from None


class Publisher(Owned):
    """Publisher.open makes one. Calls from several threads wait for each other.

    unit_tokens      U
    endpoint         where it publishes, with the port that it got
    replay_endpoint  where it answers; None: nowhere
    """

    _lib = lib

    def __init__(self, made: Any, unit_tokens: int, has_replay: bool) -> None:
        if not isinstance(made, ffi.CData):
            raise TypeError("a Publisher is made by Publisher.open")
        super().__init__(made)
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._failed: BaseException | None = None
        self._behind = False
        self.unit_tokens = unit_tokens
        self.endpoint = self._endpoint(0)
        self.replay_endpoint = self._endpoint(1) if has_replay else None

    @classmethod
    def open(cls, endpoint: str, *, replay_endpoint: str | None = None, topic: str = "",
             store_medium: str | None = None, unit_tokens: int = 16, max_units: int = 65536,
             group: int = 0, rank: int = 0, form: int = pc.PUBLISH_MAPS,
             hashes: int = pc.PUBLISH_OWN, media: int = pc.PUBLISH_MEDIA_VLLM,
             replay_form: int = pc.PUBLISH_REPLAY_TOPIC, foreign: bool = False,
             queue_batches: int = 10000, kept_batches: int = 10000, kept_bytes: int = 8 << 20,
             heartbeat: float = 1.0, first_number: int | None = None) -> Publisher:
        """Bind a publisher's sockets: kvp_publisher_open, whose fields these are.

        heartbeat     seconds; 0: none
        first_number  of batches; None: microseconds since 1970, so that a restart is a gap

        ArgError: a field; IoError: an endpoint cannot be bound
        """
        config, why = ffi.new("kvp_publisher_config *"), ffi.new("char[]", _WHY_BYTES)
        lib.kvp_publisher_config_init(config)
        texts = {"endpoint": _text("endpoint", endpoint), "topic": _text("topic", topic)}
        for name, value in (("replay_endpoint", replay_endpoint), ("store_medium", store_medium)):
            if value is not None:
                texts[name] = _text(name, value)
        for name, text in texts.items():
            setattr(config, name, text)
        numbers = {"unit_tokens": unit_tokens, "max_units": max_units, "group": group, "rank": rank,
                   "form": form, "hashes": hashes, "media": media, "replay_form": replay_form,
                   "foreign": int(foreign), "queue_batches": queue_batches,
                   "kept_batches": kept_batches, "kept_bytes": kept_bytes,
                   "heartbeat_ns": int(real("heartbeat", heartbeat) * 1e9),
                   "first_number": time.time_ns() // 1000 if first_number is None else first_number}
        for name, number in numbers.items():
            try:
                setattr(config, name, index(number))
            except (TypeError, OverflowError) as error:
                raise bad_number(error, **{name: number}) from None
        made = owned(lib.KVPY_PUBLISHER, of=_publish_native, free="kvpy_publisher_free")
        status = lib.kvpg_publisher_open(config, made, why, _WHY_BYTES)
        if status:
            said = ffi.string(why).decode(errors="replace")
            raise error_of(status, "Publisher.open", {"endpoint": endpoint},
                           said=f"; {said}" if said else "")
        return cls(made, int(config.unit_tokens), replay_endpoint is not None)

    # ------------------------------------------------------------------------- open and closed

    def close(self) -> None:
        """End its thread and close it. Closing twice does nothing; nor does closing in a forked
        child."""
        if not self._is_ours():
            return
        self._end_thread()
        with self._lock:
            status = lib.kvpy_object_close(self._o)
        if status:
            fail(status, "Publisher.close")

    def _endpoint(self, is_replay: int) -> str:
        room = ffi.new("char[]", _ENDPOINT_BYTES)
        status = lib.kvpg_publisher_endpoint(self._object(), is_replay, room, _ENDPOINT_BYTES)
        if status:
            fail(status, "Publisher.open")
        return str(ffi.string(room).decode())

    # -------------------------------------------------------------------------------- the calls

    def space(self, root: bytes, lora_name: str | None = None) -> None:
        """Tell the namespace with this root hash (hash_root), and no others that are not named."""
        given = bytes_in("root", root)
        if len(given) != 16:
            raise ArgError(f"root: has {len(given)} bytes, a hash has 16")
        name = ffi.NULL if lora_name is None else _text("lora_name", lora_name)
        made = ffi.new("kvp_hash *")
        ffi.memmove(made, given, 16)
        with self._lock:
            status = lib.kvpg_publisher_space(self._object(), made, name)
        if status:
            fail(status, "Publisher.space", root=root, lora_name=lora_name)

    def read(self, cache: Cache, now_ns: int | None = None) -> None:
        """Send what the cache's events say since the last call, also beside calls of the cache.

        BehindError: events are gone: call resync in the cache's thread."""
        instance("cache", cache, Cache)
        with self._lock:
            status = lib.kvpy_publisher_read(self._object(), _theirs(cache), _now(now_ns))
        if status:
            fail(status, "Publisher.read", cache=cache)

    def resync(self, cache: Cache, now_ns: int | None = None) -> None:
        """Send how the cache's set differs from what was sent, and go on from there."""
        instance("cache", cache, Cache)
        with self._lock:
            status = lib.kvpy_publisher_resync(self._object(), _theirs(cache), _now(now_ns))
            self._behind = self._behind and status != 0
        if status:
            fail(status, "Publisher.resync", cache=cache)

    def put(self, events: npt.NDArray[Any], tokens: npt.NDArray[np.int32] | None = None,
            now_ns: int | None = None) -> None:
        """Send events of something else than a cache.

        events  [n] EVENT_DTYPE; tier is DEVICE, HOST or PUBLISH_STORE
        tokens  [n * unit_tokens] i32, those of event i at i * unit_tokens; None: nothing is stored
        """
        if not isinstance(events, np.ndarray) or events.dtype != EVENT_DTYPE or events.ndim != 1:
            raise TypeError("events: needs an array [n] of EVENT_DTYPE")
        values: Any = ffi.NULL
        if tokens is not None:
            array = array_of("tokens", tokens, I32)
            if len(array) != len(events) * self.unit_tokens:
                raise ArgError(f"tokens: has {len(array)}, expected {len(events)} x "
                               f"{self.unit_tokens}")
            values = ffi.from_buffer("int32_t[]", array)
        room = ffi.from_buffer("kvp_event[]", np.ascontiguousarray(events).view(np.uint8))
        with self._lock:
            status = lib.kvpg_publisher_put(self._object(), room, len(events), values,
                                            _now(now_ns))
        if status:
            fail(status, "Publisher.put", n_events=len(events))

    def work(self, now_ns: int | None = None) -> bool:
        """Answer routers that ask for batches, send a heartbeat if it is time. True: there is more
        to send now. Call it often; routers wait for the answer."""
        busy = ffi.new("int *")
        with self._lock:
            status = lib.kvpg_publisher_work(self._object(), _now(now_ns), busy)
        if status:
            fail(status, "Publisher.work")
        return bool(busy[0])

    def stats(self) -> PublisherStats:
        """kvp_publisher_stats."""
        room = _STATS.new()
        with self._lock:
            status = lib.kvpg_publisher_stats_get(self._object(), room)
        if status:
            fail(status, "Publisher.stats")
        return _STATS.read(room)

    # -------------------------------------------------------------------------------- the thread

    def serve(self, cache: Cache | None = None, every: float = 0.01) -> None:
        """Read the cache and work in a thread, each `every` seconds, until close. The engine does
        nothing then, except resync when `behind` is True."""
        if cache is not None:
            instance("cache", cache, Cache)
        if self._thread is not None:
            raise BusyError("Publisher.serve: it serves already")
        seconds = real("every", every)
        self._thread = threading.Thread(target=self._serve, args=(cache, seconds), daemon=True,
                                        name="kvpager-publisher")
        self._thread.start()

    @property
    def behind(self) -> bool:
        """Whether the thread of serve waits for a resync. Raises what ended the thread."""
        if self._failed is not None:
            raise self._failed
        return self._behind

    def _serve(self, cache: Cache | None, seconds: float) -> None:
        try:
            busy = False
            while not self._stop.wait(0 if busy else seconds):
                with self._lock:
                    if cache is not None and not self._behind:
                        self._read(cache)
                    busy = self.work()
        except BaseException as error:  # `behind` tells it
            self._failed = error

    def _read(self, cache: Cache) -> None:
        status = lib.kvpy_publisher_read(self._object(), _theirs(cache), _now(None))
        self._behind = status == BehindError.status
        if status and not self._behind and status != lib.KVP_E_AGAIN:
            fail(status, "Publisher.read", cache=cache)

    def _end_thread(self) -> None:
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._thread = None
