"""A storage backend of SGLang's HiCache over a kvpager store.

SGLang's storage threads call it and wait. A page of a host pool is one record, known by SGLang's
SHA-256 chain key. A page is read beside the pool and copied into it only when it is verified.

SGLang does not tell which page comes before, so records stand alone, and the store evicts the one
that was used longest ago.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from typing import Any

from .. import _constants as c
from .. import store as s
from .._base_errors import Error
from .._engines import fingerprint_of, secret_of, urls_of, weights_of
from .._errors import AgainError
from .._guard import Troubles, never_raises
from . import versions as v

logger = logging.getLogger(__name__)

_WINDOW = 32  # pages of a call that are copied beside the pool at a time
_SLICE = 0.05  # seconds


class _Pool:
    """A host pool of SGLang, its pages' size, and pages beside it."""

    def __init__(self, pool: Any, group: int, rank: int) -> None:
        self.pool, self.group, self.slice = pool, group, s.Slice(0, 1, rank, 1)
        page = pool.get_dummy_flat_data_page()
        self.page_size = int(pool.page_size)
        self.bytes = int(page.nbytes)
        self._spare = [page]

    def borrow(self) -> Any:
        """list.pop is one step."""
        try:
            return self._spare.pop()
        except IndexError:
            return self.pool.get_dummy_flat_data_page()

    def give_back(self, page: Any) -> None:
        if len(self._spare) < _WINDOW:
            self._spare.append(page)


def _of_pools(self: Any, transfers: Any, extra_info: Any = None) -> dict[Any, list[bool]]:
    return {transfer.name: [False] * len(transfer.keys or []) for transfer in transfers}


# What SGLang's threads are told where a method would raise: nothing is there, nothing was stored.
_ANSWERS: dict[str, Callable[..., Any]] = {
    "batch_exists": lambda self, *given, **named: 0,
    "batch_get_v1": lambda self, keys, *given, **named: [False] * len(keys),
    "batch_set_v1": lambda self, keys, *given, **named: [False] * len(keys),
    "batch_exists_v2": lambda self, *given, **named: v.Result(0, {}, []),
    "batch_get_v2": _of_pools,
    "batch_set_v2": _of_pools,
    "exists": lambda self, *given, **named: False,
    "get": lambda self, *given, **named: None,
    "batch_get": lambda self, keys, *given, **named: [None] * len(keys),
    "set": lambda self, *given, **named: False,
    "batch_set": lambda self, *given, **named: False,
    "get_stats": lambda self: v.Metrics(),
    "close": lambda self: None,
}


@never_raises(_ANSWERS, refuses=("register_mem_pool_host", "register_mem_host_pool_v2",
                                 "on_host_pools_registered", "clear", "stats"))
class KvpagerStorage(v.Storage):
    """What --hicache-storage-backend-extra-config names, with

    store     file:PATH?size=BYTES, as kvpager.store.Store.open; also max_age=TIME
    weights   identifies the weights: 64 hexadecimal digits, a directory or a file. Default: the
              directory of --model-path
    identity  whatever else KV depends on and SGLang does not tell a backend: --dtype,
              --quantization, overrides of the model's configuration, the attention backend
    epoch     raise it where an adapter's weights change and its name does not
    secret    file:PATH, what is in it makes keyed codes
    max_ops   operations of the store that may be out
    """

    def __init__(self, storage_config: Any, kwargs: Any = None) -> None:
        given = storage_config.extra_config or {}
        if "store" not in given:
            raise ValueError("kvpager: extra_config needs store, as file:/var/cache/kv?size=200GiB")
        self.troubles = Troubles(logger)
        self._urls, self._config = urls_of(given["store"]), storage_config
        self._shown = ", ".join(map(s.show_url, self._urls))
        self._facts = {
            **v.facts(storage_config), "identity": given.get("identity", ""),
            "epoch": given.get("epoch", 0),
            "weights": weights_of(given.get("weights"), storage_config.model_name or "").hex()}
        self._secret, self._max_ops = secret_of(given.get("secret")), given.get("max_ops", 64)
        self._given: dict[str, Any] = {}
        self._pools: dict[str, _Pool] = {}
        self._store: s.Store | None = None
        self._lock, self._said = threading.RLock(), set[str]()
        self._metrics = v.Metrics()

    # ---------------------------------------------------------------------------------- pools

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        self.mem_pool_host = mem_pool_host
        self._register(v.KV, mem_pool_host)

    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: Any) -> None:
        self._register(str(host_pool_name), host_pool)

    def _register(self, name: str, pool: Any) -> None:
        if self._store is not None and name not in self._pools:
            self._say(f"pool {name} came after the others: its pages are not stored")
        self._given[name] = pool

    def on_host_pools_registered(self) -> None:
        """Opens the store: the pools' sizes are known."""
        self._opened()

    def _opened(self) -> s.Store:
        with self._lock:
            if self._store is None:
                self._open()
            assert self._store is not None
            return self._store

    def _open(self) -> None:
        names = sorted(self._given, key=lambda name: (name != v.KV, name))
        if not 1 <= len(names) <= c.GROUPS_MAX:
            raise ValueError(f"kvpager: SGLang has {len(names)} host pools, "
                             f"1 to {c.GROUPS_MAX} are supported: {', '.join(names)}")
        config = self._config
        for group, name in enumerate(names):
            shared = config.is_mla_model and name != v.MAMBA  # each rank has the same pages
            self._pools[name] = _Pool(self._given[name], group, 0 if shared else config.tp_rank)
        self.fingerprint = fingerprint_of("sglang", {**self._facts, "pools": [
            [name, pool.bytes, *v.pool_facts(pool.pool)] for name, pool in self._pools.items()]})
        self._tokens = max(1, next(iter(self._pools.values())).page_size)
        self._store = s.Store.open(
            self._urls, fingerprint=self.fingerprint, block_tokens=self._tokens,
            block_bytes=[pool.bytes for pool in self._pools.values()], record_blocks=1,
            key_bytes=0, max_ops=self._max_ops, secret=self._secret)
        logger.info("kvpager: %s (%s); weights %s", self._shown, self._store.describe(),
                    self._facts["weights"])

    # ------------------------------------------------------------------------------ operations

    def _say(self, why: str) -> None:
        if why not in self._said:
            self._said.add(why)
            logger.error("kvpager: %s", why)

    def _digest(self, key: str) -> bytes | None:
        if re.fullmatch("[0-9a-f]{64}", key):
            return bytes.fromhex(key)
        self._say(f"nothing is stored or loaded under keys like {key[:80]!r}. Only SHA-256 chain "
                  "keys, 64 hexadecimal digits, identify KV beyond the process")
        return None

    def _identity(self, pool: _Pool, digest: bytes) -> s.Identity:
        return s.Identity(fingerprint=self.fingerprint, digest=digest, slice=pool.slice, n_blocks=1,
                          block_tokens=self._tokens, kind=s.IDENTITY_KEY, group=pool.group)

    def _begin(self, call: Callable[[], s.Operation]) -> s.Operation | None:
        """None: the store refuses."""
        while True:
            try:
                with self._lock:
                    return call()
            except AgainError:
                self._wait()
            except Error as error:
                self._say(str(error))
                return None

    def _wait(self) -> None:
        store = self._opened()
        store.wait(_SLICE)
        with self._lock:
            store.poll()

    def _end(self, operations: Iterable[s.Operation | None]) -> list[bool]:
        """Waits. Whether each is as the caller wants it."""
        ended = []
        for operation in operations:
            while operation is not None and operation.result is None:
                self._wait()
            ended.append(operation is not None
                         and operation.result in (s.STORE_OK, s.STORE_KNOWN))
        return ended

    def _found(self, name: str, keys: Sequence[str]) -> list[bool]:
        """Which pages are there."""
        store, pool, found = self._opened(), self._pools.get(name), [False] * len(keys)
        digests = [(i, digest) for i, key in enumerate(keys) if (digest := self._digest(key))]
        for at in range(0, len(digests) if pool is not None else 0, s.STORE_KEYS_MAX):
            assert pool is not None
            part = digests[at:at + s.STORE_KEYS_MAX]
            asked = [s.record_key(digest, pool.slice, pool.group) for _, digest in part]
            operation = self._begin(lambda: store.have(asked))
            self._end([operation])
            if operation is not None:
                for (i, _), there in zip(part, operation.found.tolist()):
                    found[i] = there
        return found

    def _load(self, pool: _Pool, keys: Sequence[str], targets: Sequence[Any]) -> list[bool]:
        """Pages into tensors that nobody else looks at."""
        store, begun = self._opened(), list[s.Operation | None]()
        try:
            for key, target in zip(keys, targets):
                digest = self._digest(key)
                begun.append(None if digest is None or target is None else self._begin(
                    lambda: store.get(self._identity(pool, digest), [target])))
        finally:  # whatever happens: nobody reads or fills pages behind SGLang's back
            ended = self._end(begun)
        return ended

    def _save(self, pool: _Pool, keys: Sequence[str], pages: Iterable[Any]) -> list[bool]:
        store, begun = self._opened(), list[s.Operation | None]()
        try:
            for key, page in zip(keys, pages):
                digest = self._digest(key)
                begun.append(None if digest is None else self._begin(
                    lambda: store.put(self._identity(pool, digest), [page])))
        finally:  # as above: SGLang gives the page to others when this returns
            ended = self._end(begun)
        return ended

    def _get_pages(self, name: str, keys: Sequence[str], places: Sequence[int]) -> list[bool]:
        """Into the host pool. A page that is not right stays as it was."""
        pool, done, begun = self._pools[name], list[bool](), perf_counter()
        for at in range(0, len(keys), _WINDOW):
            part = keys[at:at + _WINDOW]
            pages = [pool.borrow() for _ in part]
            for page, place, good in zip(pages, places[at:], self._load(pool, part, pages)):
                if good:
                    pool.pool.set_from_flat_data_page(place, page)
                pool.give_back(page)
                done.append(good)
        self._measure("prefetch", pool, done, begun)
        return done

    def _set_pages(self, name: str, keys: Sequence[str], places: Sequence[int]) -> list[bool]:
        pool, done, begun = self._pools[name], list[bool](), perf_counter()
        for at in range(0, len(keys), _WINDOW):
            done += self._save(pool, keys[at:at + _WINDOW],
                               (pool.pool.get_data_page(place, flat=True)
                                for place in places[at:at + _WINDOW]))
        self._measure("backup", pool, done, begun)
        return done

    def _measure(self, what: str, pool: _Pool, done: list[bool], begun: float) -> None:
        """Pages and GB/s, for SGLang's metrics."""
        with self._lock:
            if self._config.enable_storage_metrics and any(done):
                rate = sum(done) * pool.bytes / 1e9 / max(perf_counter() - begun, 1e-9)
                getattr(self._metrics, f"{what}_pgs").append(sum(done))
                getattr(self._metrics, f"{what}_bandwidth").append(rate)

    def _places(self, name: str, keys: Sequence[str], host_indices: Any) -> list[int] | None:
        """The first slot of each page; None: they do not fit the keys."""
        self._opened()
        pool = self._pools.get(name)
        if pool is None or host_indices is None or \
                len(host_indices) != len(keys) * pool.page_size:
            self._say(f"pool {name}: unknown, or its indices do not fit the keys")
            return None
        return [int(index) for index in host_indices[::pool.page_size].tolist()]

    # ------------------------------------------------------------------------ SGLang's interface

    def batch_exists(self, keys: list[str], extra_info: Any = None) -> int:
        """The length of the prefix that is there."""
        found = self._found(v.KV, keys)
        return found.index(False) if False in found else len(found)

    def batch_get_v1(self, keys: list[str], host_indices: Any, extra_info: Any = None
                     ) -> list[bool]:
        places = self._places(v.KV, keys, host_indices)
        return [False] * len(keys) if places is None else self._get_pages(v.KV, keys, places)

    def batch_set_v1(self, keys: list[str], host_indices: Any, extra_info: Any = None
                     ) -> list[bool]:
        places = self._places(v.KV, keys, host_indices)
        return [False] * len(keys) if places is None else self._set_pages(v.KV, keys, places)

    def batch_exists_v2(self, keys: list[str], pool_transfers: Any = None, extra_info: Any = None
                        ) -> Any:
        """The lengths of prefix for which every pool has what it needs."""
        n = self.batch_exists(keys)
        hits, lengths = {v.KV: n} if n else {}, list(range(1, n + 1))
        for transfer in pool_transfers or ():
            if not lengths:
                break
            name, found = str(transfer.name), self._found(str(transfer.name), keys[:n])
            if transfer.hit_policy == v.ALL_PAGES:
                good = set(range(1, (found.index(False) if False in found else n) + 1))
            elif transfer.hit_policy == v.TRAILING:
                last = max(1, len(transfer.keys or ()))
                good = {end for end in range(1, n + 1) if all(found[max(0, end - last):end])}
            else:
                raise ValueError(f"kvpager: hit policy {transfer.hit_policy} is not supported")
            if good:
                hits[name] = max(good)
            lengths = [length for length in lengths if length in good]
        return v.Result(lengths[-1] if lengths else 0, hits, lengths)

    def _each_pool(self, transfers: Any, call: Callable[[str, Any, Any], list[bool]]
                   ) -> dict[Any, list[bool]]:
        made: dict[Any, list[bool]] = {}
        for transfer in transfers:
            keys = transfer.keys or []
            places = self._places(str(transfer.name), keys, transfer.host_indices)
            made[transfer.name] = ([False] * len(keys) if places is None
                                   else call(str(transfer.name), keys, places))
        return made

    def batch_get_v2(self, transfers: Any, extra_info: Any = None) -> dict[Any, list[bool]]:
        return self._each_pool(transfers, self._get_pages)

    def batch_set_v2(self, transfers: Any, extra_info: Any = None) -> dict[Any, list[bool]]:
        return self._each_pool(transfers, self._set_pages)

    def exists(self, key: str) -> bool:
        return self._found(v.KV, [key])[0]

    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> Any:
        return self.batch_get([key], [target_location])[0]

    def batch_get(self, keys: list[str], target_locations: Any = None, target_sizes: Any = None
                  ) -> list[Any]:
        self._opened()
        targets = list(target_locations or [None] * len(keys))
        good = self._load(self._pools[v.KV], keys, targets)
        return [target if right else None for target, right in zip(targets, good)]

    def set(self, key: str, value: Any = None, target_location: Any = None,
            target_sizes: Any = None) -> bool:
        return self.batch_set([key], [value])

    def batch_set(self, keys: list[str], values: Any = None, target_locations: Any = None,
                  target_sizes: Any = None) -> bool:
        self._opened()
        return all(self._save(self._pools[v.KV], keys, values))

    def clear(self) -> None:
        """Drops all records of this store. RuntimeError, which SGLang logs: it cannot, or not all."""
        store = self._opened()
        operation = self._begin(lambda: store.evict(space=None, written_before=None))
        if not all(self._end([operation])):
            raise RuntimeError(
                f"kvpager: {self._shown} was not cleared. A store on Redis cannot be while it is open: "
                "use `kvpager store evict`, or raise epoch" if "redis" in self._shown
                else f"kvpager: {self._shown} was not cleared, its records may still be found")

    def get_stats(self) -> Any:
        """What SGLang's metrics show: pages and bandwidth since the last time. stats() has more."""
        with self._lock:
            made, self._metrics = self._metrics, v.Metrics()
        return made

    def stats(self) -> s.StoreStats:
        """Of the store."""
        return self._opened().stats()

    def close(self) -> None:
        """Makes what was written durable."""
        with self._lock:
            if self._store is None or self._store.closed:
                return
        store = self._store
        self._end([self._begin(store.sync)])
        store.close()
