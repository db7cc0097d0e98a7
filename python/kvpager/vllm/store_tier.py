"""A secondary tier of vLLM's TieringOffloadingSpec over a kvpager store.

vLLM moves chunks of KV between the GPU and host memory (its primary tier) and gives each to its
secondary tiers. A chunk is one record here, known by vLLM's SHA-256 chain key. All calls come from
the scheduler: they begin operations of the store and take what has ended, and never wait for a disk.

A record names the chunk before it, so that the store evicts a prefix from its end. If that chunk is
not in the store (another engine wrote it, or a window left it out), the record is written alone, in
the store's second group. A look-up asks for both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import numpy as np

from .. import store as s
from .._engines import fingerprint_of, secret_of, urls_of, weights_of
from .._base_errors import Error
from .._errors import AgainError
from .._guard import ERRORS, Troubles, never_raises
from . import versions as v
from .stores import Watch

logger = v.logger(__name__)

_DIGEST, _GROUP = 32, 4  # of a key: SHA-256, then the index of the layer group
_CHAINED, _ALONE = 0, 1  # groups of the store
_ROUND = s.STORE_KEYS_MAX // 2
_FLUSH = 30.0  # seconds

# name, what it counts, field of StoreStats
_COUNTERS = (
    ("stored", "Chunks written.", "stored"),
    ("hits", "Chunks read and verified.", "hits"),
    ("refused", "Chunks without room.", "refused"),
    ("evicted", "Chunks dropped to make room.", "evicted"),
    ("failed", "Operations that failed for the disk's sake.", "failed"),
)
_GAUGES = (("records", "Chunks in the store.", "records"), ("bytes", "Bytes they take.", "bytes"))
_PREFIX = "vllm:kvpager_store_"
_BAD, _DROPPED, _ERRORS = f"{_PREFIX}bad", f"{_PREFIX}dropped", f"{_PREFIX}errors"


@dataclass(eq=False)
class _Job:
    """A transfer that vLLM waits for."""

    id: int
    is_load: bool
    left: int
    begun: float = field(default_factory=monotonic)
    good: list[bytes] = field(default_factory=list)
    failed: list[bytes] = field(default_factory=list)


@dataclass(eq=False)
class _Chunk:
    """A chunk of a job. `group`: which of its two records is meant."""

    job: _Job
    key: bytes
    place: int
    parent: bytes | None
    group: int


@dataclass(eq=False)
class _Question:
    """Whether the store has a chunk. group: of its record; None: it has none."""

    chained: bytes  # key of its chained record
    parent: bytes | None
    askers: set[str] = field(default_factory=set)
    state: str = "new"  # "asked", "known"
    group: int | None = None


class _Names:
    """Identities and keys of records."""

    def __init__(self, fingerprint: bytes, tokens: int, groups: Iterable[int]) -> None:
        self.fingerprint, self.tokens = fingerprint, tokens
        self._slices = {group: s.Slice(group, 1, 0, 1) for group in groups}

    def record_key(self, key: bytes, group: int) -> bytes:
        index = int.from_bytes(key[_DIGEST:], "big")
        return s.record_key(key[:_DIGEST], self._slices[index], group)

    def identity(self, key: bytes, group: int, parent: bytes | None) -> s.Identity:
        """parent: the key of the chained record before; NO_DIGEST at the root."""
        before = s.NO_DIGEST if group == _ALONE or parent is None else parent
        index = int.from_bytes(key[_DIGEST:], "big")
        return s.Identity(
            fingerprint=self.fingerprint, digest=key[:_DIGEST], slice=self._slices[index],
            block_tokens=self.tokens, n_blocks=1, kind=s.IDENTITY_KEY, group=group, parent=before)

    def why_not(self, key: bytes) -> str:
        """What is wrong with a key; "": nothing."""
        if len(key) != _DIGEST + _GROUP:
            return (f"vLLM's block hashes have {len(key) - _GROUP} bytes. Only SHA-256 chain keys, "
                    f"{_DIGEST} bytes, identify KV beyond the process: start vLLM with "
                    "--prefix-caching-hash-algo sha256 or sha256_cbor")
        if int.from_bytes(key[_DIGEST:], "big") not in self._slices:
            return f"layer group {int.from_bytes(key[_DIGEST:], 'big')} is unknown"
        return ""


class _Chain:
    """Which chunk comes before which, in one request."""

    def __init__(self, chunk_tokens: dict[int, int]) -> None:
        self._tokens, self._n = chunk_tokens, 0
        self._at: dict[tuple[int, int], bytes] = {}

    def before(self, key: bytes, context: Any) -> bytes | None:
        """The key of the chunk before; b"": this is the first; None: unknown."""
        ends = v.positions(context)
        end = ends.get(key)
        if end is None:
            return None
        group = int.from_bytes(key[_DIGEST:], "big")
        size = self._tokens[group]
        begin = (end - 1) // size * size
        if begin == 0:
            return b""
        if self._n != len(ends):
            self._n = len(ends)
            self._at = {(int.from_bytes(k[_DIGEST:], "big"), at): k for k, at in ends.items()}
        return self._at.get((group, begin))


def _sizes(config: Any) -> dict[int, int]:
    """Tokens of a chunk of each layer group, by the index that its keys have."""
    return {group.group_id: group.tokens_per_block * config.cache.blocks_per_chunk
            for group in config.groups}


def _nothing(self: Any, *given: Any, **named: Any) -> None:
    pass


# What vLLM is told where a method would raise: it computes.
_ANSWERS: dict[str, Callable[..., Any]] = {
    "on_new_request": lambda self, *given: v.RequestContext(),
    "lookup": lambda self, *given: v.LookupResult.MISS,
    "on_request_finished": _nothing,
    "on_schedule_end": _nothing,
    "submit_store": lambda self, job: self._fail(job),
    "submit_load": lambda self, job: self._fail(job),
    "get_finished_jobs": lambda self: self._finished(),
    "has_pending_work": lambda self: bool(self._jobs),
    "drain_jobs": _nothing,
    "shutdown": _nothing,
    "get_stats": lambda self: v.Stats(),
    "stats": _nothing,
}


@never_raises(_ANSWERS, refuses=("build_metric_definitions",))
class StoreTier(v.SecondaryTier):
    """What secondary_tiers of vLLM's configuration names {"type": "StoreTier", ...}, with

    store        file:PATH?size=BYTES, as kvpager.store.Store.open; also max_age=TIME
    weights      identifies the weights: 64 hexadecimal digits, a directory or a file. Default: the
                 directory that vLLM loads the model from
    identity     whatever else KV depends on and vLLM does not tell a tier: --dtype, --quantization,
                 --hf-overrides, the attention backend. Another text: other records
    epoch        raise it where an adapter's weights change and its name does not
    secret       file:PATH, what is in it makes keyed codes
    max_ops      operations of the store that may be out
    max_waiting  chunks in host memory that may wait to be written; over it, the end of a prompt is
                 left out. Default: a quarter of host memory's
    locality     "LOCAL" or "REMOTE", for vLLM's filters
    """

    medium = v.Medium.STORAGE

    def __init__(self, offloading_spec: Any, primary_kv_view: memoryview, tier_type: str,
                 store: str, weights: str | None = None, identity: str = "", epoch: int = 0,
                 secret: str | None = None, max_ops: int = 256, max_waiting: int | None = None,
                 locality: str | None = None, backpressure_detector: Any = None) -> None:
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        self.troubles = Troubles(logger)
        self.locality = None if locality is None else v.Locality(locality)
        config = offloading_spec.config
        self._rows: Any = np.asarray(primary_kv_view)
        self._rows = self._rows.view(np.uint8)
        self._tokens = _sizes(config)
        known = weights_of(weights, config.model.name)
        self.fingerprint = fingerprint_of("vllm", {
            **v.facts(config), "weights": known.hex(), "identity": identity, "epoch": epoch,
            "chunk_bytes": self._block_size_bytes})
        self._names = _Names(self.fingerprint, max(self._tokens.values()), self._tokens)
        self._store = s.Store.open(
            urls_of(store), fingerprint=self.fingerprint, block_tokens=self._names.tokens,
            block_bytes=[self._block_size_bytes] * 2, record_blocks=1, key_bytes=0,
            max_ops=max_ops, secret=secret_of(secret))
        self._watch = Watch(self._store, logger, monotonic)
        self._max_ops = max_ops
        self._max_waiting = len(self._rows) // 4 if max_waiting is None else max_waiting
        self._jobs: set[_Job] = set()
        self._done: list[Any] = []
        self._loads: deque[_Chunk] = deque()
        self._puts: deque[_Chunk] = deque()
        self._asked: dict[bytes, _Question] = {}
        self._by_request: dict[str, set[bytes]] = {}
        self._new: list[bytes] = []
        self._dropped, self._told = 0, dict[str, float]()
        self._refused = ""
        logger.info("kvpager: %s (%s); weights %s", ", ".join(map(s.show_url, self._store.urls)),
                    self._store.describe(), known.hex())

    # ------------------------------------------------------------------------------- look-ups

    def on_new_request(self, req_context: Any) -> Any:
        return v.RequestContext()

    def lookup(self, key: bytes, req_context: Any) -> Any:
        """Asked for at the end of the step, answered in a later one."""
        question = self._asked.get(key)
        if question is None:
            question = self._ask(key, req_context)
            if question is None:
                return v.LookupResult.MISS
        question.askers.add(req_context.req_id)
        self._by_request.setdefault(req_context.req_id, set()).add(key)
        if question.state != "known":
            return v.LookupResult.RETRY
        return v.LookupResult.MISS if question.group is None else v.LookupResult.HIT

    def _ask(self, key: bytes, context: Any) -> _Question | None:
        if not self._fits(key):
            return None
        question = self._asked[key] = _Question(self._names.record_key(key, _CHAINED),
                                                self._parent(key, context))
        self._new.append(key)
        return question

    def _fits(self, key: bytes) -> bool:
        why = self._names.why_not(key)
        if why and not self._refused:
            self._refused = why
            logger.error("kvpager: nothing is stored or loaded, because %s", why)
        return not why

    def _parent(self, key: bytes, context: Any) -> bytes | None:
        """The key of the record before, NO_DIGEST at the root; None: unknown."""
        chain = context.get_state(_Chain)
        if chain is None:
            chain = _Chain(self._tokens)
            context.set_state(chain)
        before = chain.before(key, context)
        if not before:
            return None if before is None else s.NO_DIGEST
        asked = self._asked.get(before)
        return asked.chained if asked else self._names.record_key(before, _CHAINED)

    def on_request_finished(self, req_context: Any) -> None:
        for key in self._by_request.pop(req_context.req_id, ()):
            question = self._asked[key]
            question.askers.discard(req_context.req_id)
            if not question.askers and question.state == "known":
                del self._asked[key]

    def on_schedule_end(self, context: Any) -> None:
        while self._new:
            asked = self._new[:_ROUND]
            pairs = [pair for key in asked for pair in
                     (self._asked[key].chained, self._names.record_key(key, _ALONE))]
            try:
                self._store.have(pairs, tag=asked)
            except AgainError:
                break
            except Error as error:
                self._answer(asked, [False] * len(pairs))
                logger.warning("kvpager: %s", error)
            else:
                for key in asked:
                    self._asked[key].state = "asked"
            del self._new[:_ROUND]
        self._begin()

    def _answer(self, keys: list[bytes], found: Any) -> None:
        for i, key in enumerate(keys):
            question = self._asked.get(key)
            if question is None:
                continue
            question.state = "known"
            chained = found[2 * i] and question.parent is not None
            question.group = _CHAINED if chained else _ALONE if found[2 * i + 1] else None
            if not question.askers:
                del self._asked[key]

    # ------------------------------------------------------------------------------ transfers

    def submit_store(self, job_metadata: Any) -> None:
        self._each(job_metadata, self._to_store, is_load=False)

    def _to_store(self, job: _Job, key: bytes, place: int, context: Any) -> None:
        full = len(self._puts) >= self._max_waiting
        if full or not self._fits(key):
            self._dropped += full
            self._end(job, key, good=False)
        else:
            parent = self._parent(key, context)
            self._puts.append(_Chunk(job, key, place, parent,
                                     _ALONE if parent is None else _CHAINED))

    def submit_load(self, job_metadata: Any) -> None:
        self._each(job_metadata, self._to_load, is_load=True)

    def _to_load(self, job: _Job, key: bytes, place: int, context: Any) -> None:
        question = self._asked.get(key)
        if question is None or question.group is None:
            self._end(job, key, good=False)
        else:
            self._loads.append(_Chunk(job, key, place, question.parent, question.group))

    def _each(self, given: Any, call: Callable[[_Job, bytes, int, Any], None], is_load: bool) -> None:
        """A job's chunks, each by itself: one that cannot be begun has failed."""
        pairs = [(key, int(place)) for key, place in zip(given.keys, given.chunk_ids, strict=True)]
        job = self._job(given, [key for key, _ in pairs], is_load)
        for key, place in pairs:
            if not self.troubles.safely(call.__name__, call, job, key, place, given.req_context):
                self._end(job, key, good=False)
        self._begin()

    def _fail(self, given: Any) -> None:
        """A job could not be begun; what has begun of it ends by itself."""
        if all(job.id != given.job_id for job in self._jobs):
            self._done.append(v.JobResult(job_id=given.job_id, success=False))

    def _job(self, given: Any, keys: list[bytes], is_load: bool) -> _Job:
        job = _Job(given.job_id, is_load, len(keys))
        self._jobs.add(job)
        if not keys:
            self._finish(job)
        return job

    def _begin(self) -> None:
        """Loads first: requests wait for them."""
        for waiting, call in ((self._loads, self._store.get), (self._puts, self._store.put)):
            while waiting and self._store.n_out < self._max_ops:
                chunk = waiting[0]
                try:
                    identity = self._names.identity(chunk.key, chunk.group, chunk.parent)
                    call(identity, [self._rows[chunk.place]], chunk)
                except AgainError:
                    return
                except Exception as error:
                    self.troubles.caught(call.__name__, error)
                    self._end(chunk.job, chunk.key, good=False)
                waiting.popleft()

    def _take(self) -> None:
        for operation in self._store.poll():
            self.troubles.safely("poll", self._ended, operation)
            self.troubles.safely("watch", self._watch.saw, operation)

    def _ended(self, operation: s.Operation) -> None:
        tag: Any = operation.tag
        if not isinstance(tag, _Chunk):
            self._answer(tag, operation.found)
        elif operation.op == s.STORE_PUT and operation.result == s.STORE_NO_PARENT \
                and tag.group == _CHAINED:
            tag.group = _ALONE
            self._puts.appendleft(tag)
        else:
            self._end(tag.job, tag.key, operation.result in (s.STORE_OK, s.STORE_KNOWN))

    def _end(self, job: _Job, key: bytes, good: bool) -> None:
        (job.good if good else job.failed).append(key)
        job.left -= 1
        if job.left == 0:
            self._finish(job)

    def _finish(self, job: _Job) -> None:
        self._jobs.discard(job)
        if job.is_load:
            for key in job.failed:  # not asked for again by the requests that know of it
                if key in self._asked:
                    self._asked[key].group = None
        self._done.append(v.JobResult(
            job_id=job.id, success=not job.failed, transfer_time=monotonic() - job.begun,
            successful_keys=tuple(job.good) if job.failed and job.good and job.is_load else None,
            transfer_bytes=len(job.good) * self._block_size_bytes))

    def get_finished_jobs(self) -> Iterable[Any]:
        self._take()
        self._begin()
        return self._finished()

    def _finished(self) -> list[Any]:
        done, self._done = self._done, []
        return done

    def has_pending_work(self) -> bool:
        return bool(self._jobs)

    def drain_jobs(self) -> None:
        for _ in self._busy():
            self._store.wait(1.0)

    def _busy(self) -> Iterator[None]:
        """As long as jobs are out."""
        while True:
            self._take()
            self._begin()
            if not self._jobs:
                return
            yield

    def shutdown(self) -> None:
        """Writes what waits, for at most half a minute, and makes it durable."""
        if self._store.closed:
            return
        end = monotonic() + _FLUSH
        for _ in self._busy():
            if monotonic() > end:
                break
            self._store.wait(0.1)
        if not self._jobs:
            self._store.sync()
            self._store.finish(max(0.0, end - monotonic()))
        self._store.close()
        self._loads.clear()
        self._puts.clear()
        self._rows = None  # vLLM releases the memory after this

    # ----------------------------------------------------------------------------- statistics

    @classmethod
    def build_metric_definitions(cls, extra_config: dict[str, Any]) -> dict[str, Any]:
        made: dict[str, Any] = {_PREFIX + name: v.CounterMetadata(documentation=text)
                                for name, text, _ in _COUNTERS}
        made |= {_PREFIX + name: v.GaugeMetadata(documentation=text) for name, text, _ in _GAUGES}
        made[_BAD] = v.CounterMetadata(documentation="Chunks that were not served, by reason.",
                                       labelnames=("reason",))
        made[_DROPPED] = v.CounterMetadata(
            documentation="Chunks that were not written, because too many waited.")
        made[_ERRORS] = v.CounterMetadata(documentation="Calls that a defect of kvpager ended.")
        return made

    def get_stats(self) -> Any:
        made, stats = v.Stats(), self._store.stats()
        for name, _, of in _GAUGES:
            self._gauge(made, _PREFIX + name, getattr(stats, of))
        for name, _, of in _COUNTERS:
            self._count(made, _PREFIX + name, getattr(stats, of))
        for reason, n in enumerate(stats.bad):
            self._count(made, _BAD, n, s.bad_name(reason))
        self._count(made, _DROPPED, self._dropped)
        self._count(made, _ERRORS, self.troubles.counts[ERRORS])
        return made

    def _gauge(self, made: Any, name: str, now: int) -> None:
        if self._told.get(name) != now:
            made.set_gauge(name, now)
            self._told[name] = now

    def _count(self, made: Any, name: str, now: int, *labels: str) -> None:
        at = name + "".join(labels)
        if now > self._told.get(at, 0):
            made.increase_counter(name, now - self._told.get(at, 0), labels)
            self._told[at] = now

    def stats(self) -> s.StoreStats:
        """Of the store."""
        return self._store.stats()
