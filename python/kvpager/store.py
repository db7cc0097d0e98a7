"""Stores: KV that outlives the process, verified when it comes back. store.h and identity.h.

    from kvpager import store

    model = store.FingerprintInput(weights=sha256_of_the_weights, compute_type="bf16", ...)
    with store.Store.open("file:/var/cache/kv?size=200GiB", fingerprint=model.fingerprint(),
                          block_tokens=16, block_bytes=[block_bytes]) as disk:
        chain = store.Chain(model, prompt, record_blocks=disk.record_blocks, name="llama-8b")
        disk.put(chain[0], blocks)          # returns at once; blocks: buffers, one for each block
        ...
        for operation in disk.poll():       # what has ended; `for operation in disk` waits for all
            print(operation.op, operation.result)

Needs libcrypto; where the package was built without it, importing this module is an ImportError.
docs/PYTHON.md, "Stores", is the guide.
"""

from __future__ import annotations

import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from math import inf
from operator import index
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

try:
    from ._store_native import ffi, lib
except ModuleNotFoundError as _error:
    raise ImportError("kvpager.store: this kvpager was built without stores: libcrypto 3.0 was "
                      "missing, or KVP_STORE was OFF. Install it (Debian: libssl-dev) and build "
                      "kvpager again",
                      name=_error.name) from None
except ImportError as _error:
    raise ImportError("kvpager.store: a library that stores need cannot be loaded (libcrypto, and "
                      "liburing if kvpager was built with it; Debian: libssl3, liburing2): "
                      f"{_error}", name=_error.name, path=_error.path) from None

from . import _constants as c
from . import _store_native
from ._core import (NULL, Struct, U64Array, Uncopied, bad_number, bytes_in, error_of, fail,
                    function, instance, listed, number, owned, path_of, real)
from ._errors import ArgError, BusyError
from ._identity import NO_DIGEST as NO_DIGEST
from ._identity import Chain as Chain
from ._identity import FingerprintInput as FingerprintInput
from ._identity import Identity as Identity
from ._identity import digest_blocks as digest_blocks
from ._identity import digest_root as digest_root
from ._identity import namespace_number as namespace_number
from ._identity import record_key as record_key
from ._identity import set_digest, set_each, set_numbers
from ._memory import _dlpack_range
from ._process import Owned
from ._records import Slice as Slice
from ._records import Window as Window
from ._sequence import Key as Key
from ._store_constants import *  # noqa: F403
from ._store_constants import (FOUND_GOOD, FOUND_RACED, IDENTITY_STATE, SCAN_DIRECTORIES,
                               SCAN_PAYLOADS, STORE_CLOSED, STORE_DROP, STORE_EVICT, STORE_GET,
                               STORE_HAVE, STORE_OK, STORE_PUT, STORE_SYNC)
from ._store_records import STRUCTS as _STRUCTS
from ._store_records import StoreCleaned as StoreCleaned
from ._store_records import StoreRecord as StoreRecord
from ._store_records import StoreStats as StoreStats

_STATS = Struct(StoreStats, ffi, _STRUCTS)
_RECORD = Struct(StoreRecord, ffi, _STRUCTS)
_CLEANED = Struct(StoreCleaned, ffi, _STRUCTS)
_no_numbers = (TypeError, OverflowError)
_ANY_AGE = 2 ** 64 - 1
_WHY_BYTES = 512
_SLICE = 0.05  # seconds of a wait: so often signals and a close are looked at
_DIGEST_C = ffi.typeof("kvp_digest[]")

KeyList = Any  # [n, 32] u8, or an iterable of digests


def bad_name(reason: int) -> str:
    """The name of a BAD_ reason, as statistics show it; "?" for a number that is none."""
    return str(ffi.string(lib.kvp_bad_name(number("reason", reason))).decode())


def found_name(found: int) -> str:
    """bad_name, or "good", "unreadable", "raced", "unread"."""
    return str(ffi.string(lib.kvp_found_name(number("found", found))).decode())


def show_url(url: str | os.PathLike[str]) -> str:
    """A store's URL for messages and logs, with *** in place of a password: kvp_store_url_show."""
    place = _place(url)
    shown = ffi.new("char[]", len(place) + 64)
    lib.kvp_store_url_show(place, shown, len(shown))
    return os.fsdecode(ffi.string(shown))


def _place(url: str | os.PathLike[str]) -> bytes:
    """path_of, without the URL in what it says."""
    try:
        return path_of("url", url)
    except ArgError:
        raise ArgError("url: has a null character") from None


class Operation(Uncopied):
    """What put, get, have, drop, evict or sync began.

    op      STORE_PUT, STORE_GET, ...
    tag     as given
    result  None until it was polled; then STORE_OK, STORE_ABSENT, ...
    """

    __slots__ = ("op", "tag", "result", "_bits", "_n_keys", "__weakref__")

    def __init__(self, op: int, tag: object = None, bits: U64Array | None = None,
                 n_keys: int = 0) -> None:
        self.op, self.tag = op, tag
        self.result: int | None = None
        self._bits, self._n_keys = bits, n_keys

    @property
    def ok(self) -> bool:
        """Whether it has ended with STORE_OK."""
        return self.result == STORE_OK

    @property
    def found(self) -> npt.NDArray[np.bool_]:
        """STORE_HAVE, when it has ended: [n_keys] bool, which keys have a record. All False where
        the result is not STORE_OK."""
        if self._bits is None or self.result is None:
            raise ValueError("found: of a `have` that has ended")
        if not self.ok:
            return np.zeros(self._n_keys, np.bool_)
        bits = np.unpackbits(self._bits.astype("<u8").view(np.uint8), bitorder="little")
        return bits[:self._n_keys].astype(np.bool_)

    def __repr__(self) -> str:
        state = "out" if self.result is None else f"result={self.result}"
        return f"<Operation op={self.op} {state} tag={self.tag!r}>"


def _keys_of(keys: KeyList) -> tuple[Any, int]:
    """Digests as a C array, in place where they lie in an array already."""
    if isinstance(keys, np.ndarray):
        if keys.dtype != np.uint8 or keys.ndim != 2 or keys.shape[1] != 32:
            raise TypeError(f"keys: needs an array [n, 32] of uint8, not "
                            f"{keys.dtype}{list(keys.shape)}")
        if not keys.flags.c_contiguous:
            raise ArgError("keys: the array is not contiguous")
        n = len(keys)
        made = ffi.from_buffer(_DIGEST_C, keys) if n else NULL
    else:
        given = listed("keys", keys)
        n = len(given)
        made = ffi.new(_DIGEST_C, max(n, 1))
        for i, key in enumerate(given):
            set_digest(f"keys[{i}]", key, made[i])
    if not 1 <= n <= lib.KVP_STORE_KEYS_MAX:
        raise ArgError(f"keys: has {n}, expected 1 to {lib.KVP_STORE_KEYS_MAX}")
    return made, n


def _block(name: str, value: Any, n_bytes: int, writable: bool) -> tuple[Any, Any]:
    """The address of one block's KV, and what keeps it alive."""
    if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray):
        address, has, keep = _dlpack_range(name, value)
        data = ffi.cast("void *", address)
    else:
        data = keep = bytes_in(name, value, writable=writable)
        has = len(data)
    if has != n_bytes:
        raise ArgError(f"{name}: has {has} bytes, a block of this group has {n_bytes}")
    return data, keep


def _until(timeout: float | None) -> float:
    """When a wait ends, on the clock of time.monotonic."""
    seconds = inf if timeout is None else real("timeout", timeout)
    if not seconds >= 0:
        raise ArgError(f"timeout: {timeout} is no time to wait, seconds")
    return time.monotonic() + seconds


def _match(space: int | None, written_before: float | None) -> Any:
    made = ffi.new("kvp_store_match *")
    if space is not None:
        set_numbers(made, space=space)
        made.one_space = 1
    made.written_before = _ANY_AGE
    if written_before is not None:
        seconds = real("written_before", written_before)
        if not 0 <= seconds < _ANY_AGE:
            raise ArgError(f"written_before: {written_before} is no time, seconds since 1970")
        made.written_before = int(seconds)
    return made


def _label(name: object, value: object) -> str:
    if not isinstance(name, str) or not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", name):
        raise ArgError(f"labels: {name!r} is no name of a label")
    if not isinstance(value, str):
        raise TypeError(f"labels: {name} needs a str, not {type(value).__name__}")
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    if "\0" in escaped:
        raise ArgError(f"labels: {name} has a null character")
    return f'{name}="{escaped}"'


class Store(Owned):
    """A store: Store.open.

    url            as given, with its password; of several, the nearest. show_url is for logs
    urls           of all, nearest first
    fingerprint    of every record
    block_tokens   S
    block_bytes    KV of one block of each layer group
    record_blocks  blocks of a record, as given or chosen
    group_blocks   of each group, the blocks that a record has
    """

    _lib = lib

    def __init__(self, made: Any, keep: dict[int, Any], config: Any,
                 urls: tuple[str, ...]) -> None:
        if not isinstance(made, ffi.CData):
            raise TypeError("a Store is made by Store.open")
        super().__init__(made)
        self._keep = keep  # what the operations that are out point to
        self._numbers = count(1)
        self._out: dict[int, Operation] = {}
        self._unsure = False  # whether all that is in _out was begun
        self._spill: weakref.ref[Any] | None = None  # who has it (kvpager.spill)
        # What poll is busy with, so that an exception in between loses nothing.
        self._polling, self._ended = threading.RLock(), list[Operation]()
        self._room, self._n = ffi.new("kvp_store_done[]", config.max_ops), ffi.new("uint32_t *")
        self._threads = int(config.threads)
        self.url, self.urls = urls[0], urls
        self.fingerprint = bytes(config.fingerprint.bytes)
        self.block_tokens = int(config.block_tokens)
        self.block_bytes = tuple(config.block_bytes[0:config.n_groups])
        blocks = ffi.new("uint32_t *")
        lib.kvpg_store_record_blocks(self._o, blocks)
        self.record_blocks = int(blocks[0])
        self.group_blocks = tuple(map(self._group_blocks, range(config.n_groups)))

    @classmethod
    def open(cls, url: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], *,
             fingerprint: bytes, block_bytes: Iterable[int], block_tokens: int = 16,
             group_tokens: Iterable[int] = (), group_blocks: Iterable[int] = (),
             record_blocks: int = 0, key_bytes: int = 1024, max_ops: int = 64, threads: int = 1,
             secret: bytes = b"", nearer_bytes_s: int = 0, nearer_bytes_day: int = 0) -> Store:
        """Open a store: kvp_store_open. Or several as one: kvp_store_stack_open.

        url            file:PATH?size=BYTES, memory:?size=BYTES or redis://HOST (docs/STORES.md); also
                       max_age=TIME, quota=BYTES, secret=file:PATH; or a list of them, nearest first
        fingerprint    FingerprintInput.fingerprint
        block_bytes    KV of one block of each layer group
        block_tokens   S
        group_tokens   S of each group; (): all have block_tokens
        group_blocks   of each group, the most blocks of a record: its last ones; 0, or (): all
        record_blocks  blocks of a record: 1, 2, 4 ... RECORD_BLOCKS_MAX; 0: the least with 512 KiB
                       of KV in group 0
        key_bytes      room for the extra keys of a record: 12 + len(data) for each
        max_ops        operations that may be out, 1..STORE_QUEUE_MAX
        threads        1: a thread of the store does the work; 0: `work` does
        secret         for the keyed code, 16..1024 bytes; b"": none
        nearer_bytes_s, nearer_bytes_day
                       of several: most KV a second and a day that gets write to nearer stores; 0: no
                       limit

        ArgError: a field or the url; IoError: the place cannot be used
        """
        config, why = ffi.new("kvp_store_config *"), ffi.new("char[]", _WHY_BYTES)
        stack = ffi.new("kvp_store_stack_config *")
        lib.kvp_store_config_init(config)
        lib.kvp_store_stack_config_init(stack)
        given = [url] if isinstance(url, (str, os.PathLike)) else listed("url", url)
        if not 1 <= len(given) <= lib.KVP_STORE_STACK_MAX:
            raise ArgError(f"url: has {len(given)}, expected 1 to {lib.KVP_STORE_STACK_MAX}")
        paths = [_place(one) for one in given]
        texts = [ffi.new("char[]", path) for path in paths]
        places, sizes = ffi.new("char *[]", texts), listed("block_bytes", block_bytes)
        set_digest("fingerprint", fingerprint, config.fingerprint)
        if not 1 <= len(sizes) <= c.GROUPS_MAX:
            raise ArgError(f"block_bytes: has {len(sizes)}, expected 1 to {c.GROUPS_MAX}")
        for group, size in enumerate(sizes):
            try:
                config.block_bytes[group] = index(size)
            except _no_numbers as error:
                raise bad_number(error, block_bytes=size) from None
        set_each("group_tokens", group_tokens, config.group_tokens.__setitem__, len(sizes))
        set_each("group_blocks", group_blocks, config.group_blocks.__setitem__, len(sizes))
        code = bytes_in("secret", secret)
        config.n_groups = len(sizes)
        config.secret = code if len(code) else ffi.NULL
        config.secret_bytes = len(code)
        set_numbers(config, block_tokens=block_tokens, record_blocks=record_blocks,
                    key_bytes=key_bytes, max_ops=max_ops, threads=threads)
        set_numbers(stack, n_stores=len(places), nearer_bytes_s=nearer_bytes_s,
                    nearer_bytes_day=nearer_bytes_day)
        # The store holds what is in `keep`, not the Store: the cycle collector frees in any order.
        keep: dict[int, Any] = {}
        made = owned(lib.KVPY_STORE, held=keep, of=_store_native, free="kvpy_store_free")
        status = lib.kvpy_store_open(config, stack, places, made, why, _WHY_BYTES)
        if status:
            _refused(status, "Store.open", why, url=show_url(os.fsdecode(ffi.string(config.url))))
        return cls(made, keep, config, tuple(os.fsdecode(path) for path in paths))

    # ------------------------------------------------------------------------- open and closed

    def close(self) -> None:
        """Close it, its spill first, and wait for what has begun. What was not polled has the result STORE_CLOSED,
        done or not. Closing twice does nothing; nor does closing in a forked child."""
        if not self._is_ours():
            return
        spill = None if self._spill is None else self._spill()
        if spill is not None:
            spill.close()
        status = lib.kvpy_object_close(self._o)
        if status:
            fail(status, "Store.close")
        while self._out:
            self._out.popitem()[1].result = STORE_CLOSED
        self._keep.clear()

    def _is_lent(self) -> bool:
        return self._spill is not None and self._spill() is not None

    def _lend(self, spill: Any) -> None:
        """To a spill, which then begins and polls the operations; None: it is given back."""
        if spill is not None and (self._is_lent() or self._out):
            raise BusyError("Store: has a spill, or operations that are out")
        self._spill = None if spill is None else weakref.ref(spill)

    # ------------------------------------------------------------------------------ operations

    def _begin(self, name: str, operation: Operation, keep: Any, *arguments: Any,
               **shown: Any) -> Operation:
        """One call of the library; what it points to is kept until it has ended."""
        if self._is_lent():
            raise BusyError(f"Store.{name}: a spill has the store")
        object, at = self._object(), next(self._numbers)
        try:
            self._keep[at], self._out[at] = keep, operation
            status = getattr(lib, f"kvpg_store_{name}")(object, *arguments, at)
        except BaseException:  # a signal's exception, before the call or after it
            self._unsure = True
            raise
        if status:
            del self._out[at], self._keep[at]
            fail(status, f"Store.{name}", **shown)
        return operation

    def _group_blocks(self, group: int) -> int:
        blocks = ffi.new("uint32_t *")
        lib.kvpg_store_group_blocks(self._o, group, blocks)
        return int(blocks[0])

    def _record(self, name: str, op: int, identity: Identity, blocks: Iterable[Any],
                tag: object) -> Operation:
        instance("identity", identity, Identity)
        given, made = listed("blocks", blocks), identity._c  # type: ignore[attr-defined]
        if identity.group >= len(self.block_bytes):
            raise ArgError(f"identity: group is {identity.group}, the store has "
                           f"{len(self.block_bytes)}")
        for field in ("fingerprint", "block_tokens"):
            if getattr(identity, field) != getattr(self, field):
                raise ArgError(f"identity: {field} is not the store's")
        n = 1 if identity.kind == IDENTITY_STATE else self.group_blocks[identity.group]
        if identity.n_blocks != self.record_blocks or len(given) != n:
            raise ArgError(f"blocks: has {len(given)}, identity {identity.n_blocks}, a record of "
                           f"this store {n} and {self.record_blocks}")
        size, writable = self.block_bytes[identity.group], op == STORE_GET
        pairs = [_block(f"blocks[{i}]", block, size, writable) for i, block in enumerate(given)]
        addresses = ffi.new("void *[]", [address for address, _ in pairs])
        return self._begin(name, Operation(op, tag), (identity, addresses, pairs), made, addresses,
                           identity=identity)

    def put(self, identity: Identity, blocks: Iterable[Any], tag: object = None) -> Operation:
        """Write a record: begins and returns.

        identity  of this store's fingerprint, block_tokens and record_blocks
        blocks    [group_blocks] buffers of block_bytes[identity.group] bytes, of a state [1],
                  contiguous: arrays, bytes, memoryviews, tensors of the CPU (DLPack). They are used in place and kept
                  alive until the operation has ended; do not write to them before
        tag       comes back as Operation.tag

        Results: STORE_OK, _KNOWN, _NO_PARENT, _NO_ROOM, _FAILED, _AWAY. AgainError: max_ops are out;
        TooLongError: the extra keys exceed key_bytes
        """
        return self._record("put", STORE_PUT, identity, blocks, tag)

    def get(self, identity: Identity, blocks: Iterable[Any], tag: object = None) -> Operation:
        """Read a record into `blocks`, which must be writable; else as put. What they hold is the
        record's KV if the result is STORE_OK, and undefined otherwise.

        Results: STORE_OK, _ABSENT, _RACED, _BAD, _FAILED, _AWAY.
        """
        return self._record("get", STORE_GET, identity, blocks, tag)

    def have(self, keys: KeyList, tag: object = None) -> Operation:
        """Ask which keys have a record: Operation.found, when it has ended. A get decides.

        keys   [n, 32] u8, used in place; or digests. 1..STORE_KEYS_MAX of them
        """
        data, n = _keys_of(keys)
        bits = np.zeros((n + 63) // 64, np.uint64)
        room = ffi.from_buffer("uint64_t[]", bits)
        return self._begin("have", Operation(STORE_HAVE, tag, bits, n), (data, room), data, n, room)

    def drop(self, keys: KeyList, tag: object = None) -> Operation:
        """Drop records, and those that need them. Keys without a record are ignored."""
        data, n = _keys_of(keys)
        return self._begin("drop", Operation(STORE_DROP, tag), data, data, n)

    def evict(self, *, space: int | None, written_before: float | None,
              tag: object = None) -> Operation:
        """Drop the records of a namespace, those of a certain age, or both; and those that need
        them.

        space           namespace_number; None: of all namespaces
        written_before  seconds since 1970, to the minute; None: of any age
        """
        match = _match(space, written_before)
        return self._begin("evict", Operation(STORE_EVICT, tag), match, match)

    def sync(self, tag: object = None) -> Operation:
        """Make what has ended durable: once this has ended with STORE_OK, it survives a loss of
        power."""
        return self._begin("sync", Operation(STORE_SYNC, tag), None)

    def poll(self) -> list[Operation]:
        """What has ended since the last time, in any order."""
        with self._polling:
            self._take()
            ended, self._ended = self._ended, []
        return ended

    def _take(self) -> None:
        """Completions into _ended. Each step may be the last before a signal's exception: the next
        call goes on there."""
        if self._is_lent():
            raise BusyError("Store.poll: a spill has the store")
        room, n, full = self._room, self._n, True
        while full:
            if n[0] == 0:
                status = lib.kvpg_store_poll(self._object(), room, len(room), n)
                if status:
                    fail(status, "Store.poll")
                full = n[0] == len(room)
            while n[0]:
                done = room[n[0] - 1]
                operation = self._out.get(done.tag)
                if operation is not None:
                    operation.result = int(done.result)
                    if not self._ended or self._ended[-1] is not operation:
                        self._ended.append(operation)
                self._out.pop(done.tag, None)
                self._keep.pop(done.tag, None)
                n[0] -= 1

    def __iter__(self) -> Iterator[Operation]:
        """Operations as they end, until none is out; where threads is 0, work."""
        while True:
            ended = self.poll()
            yield from ended
            if not ended and not self._proceed(inf):
                return

    @property
    def n_out(self) -> int:
        """Operations that were begun and not polled yet."""
        return len(self._out)

    def fileno(self) -> int:
        """A file descriptor that is readable while something has ended that was not polled: for
        select, and loop.add_reader of asyncio. Do not read from it; it goes with the close."""
        out = ffi.new("int *")
        status = lib.kvpg_store_fd(self._object(), out)
        if status:
            fail(status, "Store.fileno")
        if out[0] < 0:
            raise OSError("Store.fileno: this system has none")
        return int(out[0])

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until something has ended that was not polled: True; or timeout seconds have passed:
        False. May be called beside other calls."""
        until = _until(timeout)
        while True:
            left = max(0.0, min(_SLICE, until - time.monotonic()))
            status = lib.kvpg_store_wait(self._object(), int(left * 1e9))
            if status == 0:
                return True
            if status != lib.KVP_E_AGAIN:
                fail(status, "Store.wait")
            if time.monotonic() >= until:
                return False

    def _proceed(self, until: float) -> bool:
        """Waits for a completion, or works for one. False: nothing is out."""
        if not self._out:
            return False
        if self._threads == 0:
            idle = self.work()
        else:
            idle = not self.wait(max(0.0, min(until - time.monotonic(), 0.1 if self._unsure else inf)))
        if self._unsure and idle and not self.stats().queued and not self.wait(0):
            self._unsure = False  # what seems to be out was never begun
            self._out.clear()
            self._keep.clear()
        return True

    def work(self) -> bool:
        """The store's work, where threads is 0: begin what was accepted and end what is done. True:
        nothing is left to do. One thread at a time; others may call put, get and poll meanwhile.
        StateError: the store has a thread."""
        idle = ffi.new("int *")
        status = lib.kvpy_store_work(self._object(), idle)
        if status:
            fail(status, "Store.work")
        return bool(idle[0])

    def finish(self, timeout: float | None = None) -> list[Operation]:
        """Poll until everything that is out has ended, or timeout seconds have passed; where threads
        is 0, work. Gives what has ended."""
        until, ended = _until(timeout), list[Operation]()
        while True:
            ended += self.poll()
            if time.monotonic() >= until or not self._proceed(until):
                return ended

    # ------------------------------------------------------------------------------ statistics

    def describe(self) -> str:
        """How the store does its work here and what it has to go without, for people and logs:
        "io_uring; past the page cache". May be called beside other calls."""
        room = ffi.new("char[]", _WHY_BYTES * len(self.urls))
        status = lib.kvpg_store_describe(self._object(), room, len(room))
        if status:
            fail(status, "Store.describe")
        return str(ffi.string(room).decode(errors="replace"))

    def _stats(self, part: int | None) -> Any:
        room = _STATS.new()
        if part is None or len(self.urls) == 1 and part == 0:
            status = lib.kvpg_store_stats_get(self._object(), room)
        else:
            status = lib.kvpy_store_part_stats(self._object(), number("part", part), room)
        if status:
            fail(status, "Store.stats", part=part)
        return room

    def stats(self, part: int | None = None) -> StoreStats:
        """Gauges and counters. May be called beside other calls.

        part   of several stores, the number of one in `urls`; None: of all together
        """
        return _STATS.read(self._stats(part))

    def stats_text(self, labels: Mapping[str, str] | None = None, part: int | None = None) -> str:
        """Statistics as Prometheus text (exposition format 0.0.4), with these labels on each sample;
        `part` as for stats. May be called beside other calls."""
        try:
            pairs = [] if labels is None else list(labels.items())
        except AttributeError:
            raise TypeError(f"labels: needs a mapping, not {type(labels).__name__}") from None
        text = ",".join(_label(*pair) for pair in pairs).encode()
        stats, n, capacity = self._stats(part), ffi.new("size_t *"), 32768
        while True:
            room = ffi.new("char[]", capacity)
            status = lib.kvp_store_stats_text(stats, text, room, capacity, n)
            if status != lib.KVP_E_TOO_SMALL:
                break
            capacity = n[0] + 1
        if status:
            fail(status, "Store.stats_text", labels=labels)
        return str(ffi.string(room).decode())


def _refused(status: int, call: str, why: Any, **shown: Any) -> NoReturn:
    said = ffi.string(why).decode(errors="replace")
    raise error_of(status, call, shown, said=f"; {said}" if said else "")


# ------------------------------------------------------------------------------- for operators


class StoreDirectory(NamedTuple):
    """kvp_store_directory: one writer's directory.

    path
    fingerprint      its first 8 bytes
    why              IoError.status: the reason; else ""
    status           0; VersionError.status: of another version; FormatError.status: the log's header
                     is damaged; IoError.status: it cannot be read. Then what follows, opened_ns and
                     bytes excepted, is zero
    in_use           1: its writer lives
    opened_ns        when it was opened last, since 1970; 0: unknown
    bytes            of its files, as `size` counts them
    slot_bytes       of a record's place; header_bytes: of these, for the header
    record_blocks    of each record; block_tokens: of each block
    n_slots          at most
    records          that the log knows and that can be reached
    log_entries      of the log; damaged_entries: left out of it
    """

    path: str
    fingerprint: bytes
    why: str
    status: int
    in_use: int
    opened_ns: int
    bytes: int
    slot_bytes: int
    header_bytes: int
    record_blocks: int
    block_tokens: int
    n_slots: int
    records: int
    log_entries: int
    damaged_entries: int


class _Told:
    """The functions of one scan, and what they raised."""

    def __init__(self, directory: Callable[[StoreDirectory], object] | None,
                 record: Callable[[StoreRecord], object] | None) -> None:
        self.directory, self.record = directory, record
        self.error: BaseException | None = None

    def run(self, tell: Callable[[Any], object] | None, made: Callable[[], Any]) -> None:
        try:
            if self.error is None and tell is not None:
                tell(made())
        except BaseException as error:
            self.error = error


def _directory_of(found: Any) -> StoreDirectory:
    numbers = [int(getattr(found, name)) for name in StoreDirectory._fields[3:]]
    return StoreDirectory(os.fsdecode(ffi.string(found.path)), bytes(found.fingerprint),
                          ffi.string(found.why).decode(errors="replace"), *numbers)


@ffi.def_extern()  # type: ignore[untyped-decorator]
def kvpy_scan_directory(context: Any, found: Any) -> None:
    told = ffi.from_handle(context)
    told.run(told.directory, lambda: _directory_of(found))


@ffi.def_extern()  # type: ignore[untyped-decorator]
def kvpy_scan_record(context: Any, found: Any) -> None:
    told = ffi.from_handle(context)
    told.run(told.record, lambda: _RECORD.read(found))


def scan(url: str | os.PathLike[str], *, depth: int = SCAN_DIRECTORIES, space: int | None = None,
         secret: bytes = b"", directory: Callable[[StoreDirectory], object] | None = None,
         record: Callable[[StoreRecord], object] | None = None) -> None:
    """Look at all directories of a file store, also while engines use them. Nothing is written.

    url        file:PATH; the options of Store.open are allowed, and ignored
    depth      SCAN_DIRECTORIES: records are counted; SCAN_RECORDS: and told; SCAN_HEADERS: and their
               headers checked; SCAN_PAYLOADS: and the KV
    space      records of this namespace only; None: of all
    secret     as for Store.open
    directory  is told each directory
    record     is told each record, after its directory

    IoError: PATH cannot be read. What a function raises is raised.
    """
    function("directory", directory)
    function("record", record)
    options, told = ffi.new("kvp_store_scan_options *"), _Told(directory, record)
    lib.kvp_store_scan_options_init(options)
    set_numbers(options, depth=depth)
    if space is not None:
        set_numbers(options, space=space)
        options.one_space = 1
    code, keep = bytes_in("secret", secret), ffi.new_handle(told)
    options.secret = code if len(code) else ffi.NULL
    options.secret_bytes, options.context = len(code), keep
    options.directory, options.record = lib.kvpy_scan_directory, lib.kvpy_scan_record
    why = ffi.new("char[]", _WHY_BYTES)
    status = lib.kvp_store_scan(_place(url), options, why, _WHY_BYTES)
    if told.error is not None:
        raise told.error
    if status:
        _refused(status, "scan", why, url=show_url(url))


class Verified(NamedTuple):
    """What verify found.

    directories  all of them
    good         records that are whole
    raced        records that their writer replaced meanwhile
    bad          (path of the directory, record) of those that cannot be used; why:
                 found_name(record.found)
    """

    directories: list[StoreDirectory]
    good: int
    raced: int
    bad: list[tuple[str, StoreRecord]]

    @property
    def ok(self) -> bool:
        """Whether everything can be used."""
        return not self.bad and not any(one.status for one in self.directories)


def verify(url: str | os.PathLike[str], *, space: int | None = None,
           secret: bytes = b"") -> Verified:
    """Read and check every record of a file store, also while engines use it: scan with
    SCAN_PAYLOADS. Nothing is written."""
    directories, found = list[StoreDirectory](), list[tuple[str, StoreRecord]]()
    n = {FOUND_GOOD: 0, FOUND_RACED: 0}

    def record(one: StoreRecord) -> None:
        if one.found in n:
            n[one.found] += 1
        else:
            found.append((directories[-1].path, one))

    scan(url, depth=SCAN_PAYLOADS, space=space, secret=secret, directory=directories.append,
         record=record)
    return Verified(directories, n[FOUND_GOOD], n[FOUND_RACED], found)


def clean(url: str | os.PathLike[str], *, space: int | None,
          written_before: float | None) -> StoreCleaned:
    """Drop records of a file store that no writer has open; arguments as for Store.evict."""
    match, out, why = _match(space, written_before), _CLEANED.new(), ffi.new("char[]", _WHY_BYTES)
    status = lib.kvp_store_clean(_place(url), match, out, why, _WHY_BYTES)
    if status:
        _refused(status, "clean", why, url=show_url(url))
    return _CLEANED.read(out)
