"""kvpager.vllm.StoreTier: by itself, and below vLLM's own tiering manager where vLLM is installed."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import itertools
import logging
import pathlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import fake_vllm

store = pytest.importorskip("kvpager.store", exc_type=ImportError)

HAS_VLLM = importlib.util.find_spec("vllm") is not None
real = pytest.mark.skipif(not HAS_VLLM, reason="vLLM is not installed: make engines")

CHUNK, S, N = 16384, 16, 32  # bytes and tokens of a chunk, chunks in host memory
WEIGHTS = "ab" * 32


# What the tier leaves as vLLM has it.
THEIRS = {"serve_external_requests", "take_events", "touch"}


@pytest.fixture(scope="module")
def v() -> Iterator[Any]:
    """kvpager.vllm's modules, and vLLM's names that a scheduler uses."""
    with contextlib.nullcontext() if HAS_VLLM else fake_vllm.installed():
        from kvpager.vllm import store_tier, versions

        base = importlib.import_module("vllm.v1.kv_offload.base")
        tiering = importlib.import_module("vllm.v1.kv_offload.tiering.base")
        yield SimpleNamespace(StoreTier=store_tier.StoreTier, versions=versions,
                              module=store_tier, ReqContext=base.ReqContext,
                              LookupResult=base.LookupResult, TransferJob=tiering.TransferJob)


def config(**changes: Any) -> Any:
    """An OffloadingConfig."""
    parallel = {"rank": 0, "world_size": 1, "tp_size": 1, "pp_size": 1, "pcp_size": 1,
                "dcp_size": 1}
    made: dict[str, Any] = {
        "model": {"name": "a/model", "dtype": "bfloat16"}, "parallel": parallel,
        "cache": {"tokens_per_hash": S, "blocks_per_chunk": 1}, "worker_kv_bytes_per_block": CHUNK,
        "groups": [{"group_id": 0, "tokens_per_block": S, "layer_names": ("l0", "l1")}],
        "kv_cache_layout": "NHD", "canonical_layout": False, "replicated_layout": False}
    for path, value in changes.items():
        where: Any = made
        *first, last = path.split("__")
        for name in first:
            where = where[int(name) if name.isdigit() else name]
        where[last] = value

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return SimpleNamespace(**{name: plain(part) for name, part in value.items()})
        return [plain(part) for part in value] if isinstance(value, list) else value
    return plain(made)


def chain(name: str, n: int, before: str = "", shared: int = 0, group: int = 0) -> list[bytes]:
    """Keys of a prompt's chunks; the first `shared` are those of `before`."""
    made, digest = list[bytes](), b"seed"
    for i in range(n):
        text = f"{before if i < shared else name} {i}"
        digest = hashlib.sha256(digest + text.encode()).digest()
        made.append(digest + group.to_bytes(4, "big"))
    return made


def kv(key: bytes, n_bytes: int = CHUNK) -> Any:
    """The KV of a chunk."""
    return np.random.default_rng(int.from_bytes(key[:8], "big")).integers(
        0, 256, n_bytes, np.uint8)


class Driver:
    """Drives a tier as vLLM's tiering manager does, with host memory of its own."""

    def __init__(self, v: Any, url: str, n: int = N, chunk: int = CHUNK, facts: Any = None,
                 **more: Any) -> None:
        self.v, self.chunk, self.ids = v, chunk, itertools.count(1)
        self.rows: Any = np.zeros((n, chunk), np.int8)
        self.jobs: dict[int, Any] = {}
        self.tier = v.StoreTier(SimpleNamespace(config=config() if facts is None else facts),
                                memoryview(cast(Any, self.rows)), "StoreTier", store=url,
                                **{"weights": WEIGHTS, "max_waiting": n, **more})

    def context(self, keys: list[bytes]) -> Any:
        made = self.v.ReqContext(f"r{next(self.ids)}")
        for i, key in enumerate(keys):
            made.set_offload_key_position(key, (i + 1) * S)
        self.tier.on_new_request(made)
        return made

    def job(self, context: Any, keys: list[bytes], places: Any, load: bool) -> Any:
        job = self.v.TransferJob(next(self.ids), keys, np.array(places, np.int32), load, context)
        (self.tier.submit_load if load else self.tier.submit_store)(job)
        while job.job_id not in self.jobs:
            self.step()
        return self.jobs[job.job_id]

    def step(self) -> None:
        for done in self.tier.get_finished_jobs():
            assert self.jobs.setdefault(done.job_id, done) is done, "a job ends once"
        self.tier.on_schedule_end(None)

    def save(self, keys: list[bytes], context: Any = None) -> Any:
        """Stores the chunks of a request, in jobs of up to N."""
        context = self.context(keys) if context is None else context
        result = None
        for at in range(0, len(keys), len(self.rows)):
            part = keys[at:at + len(self.rows)]
            for place, key in enumerate(part):
                self.rows.view(np.uint8)[place] = kv(key, self.chunk)
            result = self.job(context, part, range(len(part)), load=False)
        self.tier.on_request_finished(context)
        return result

    def found(self, keys: list[bytes], context: Any) -> list[bool]:
        retry, hit = self.v.LookupResult.RETRY, self.v.LookupResult.HIT
        while True:
            answers = [self.tier.lookup(key, context) for key in keys]
            if retry not in answers:
                return [answer is hit for answer in answers]
            self.step()

    def hits(self, keys: list[bytes]) -> int:
        """The length of the prefix that is found, loaded and right."""
        context, n, good = self.context(keys), 0, True
        found = self.found(keys, context)
        while n < len(keys) and found[n] and good:
            self.rows[:] = 0
            result = self.job(context, keys[n:n + 1], [0], load=True)
            good = result.success
            if good:
                np.testing.assert_array_equal(self.rows.view(np.uint8)[0],
                                              kv(keys[n], self.chunk))
            n += good
        self.tier.on_request_finished(context)
        assert not self.tier._asked and not self.tier._by_request
        return n

    def close(self) -> None:
        self.tier.shutdown()
        self.tier.shutdown()


@contextlib.contextmanager
def driver(v: Any, path: pathlib.Path, size: str = "64MiB", **more: Any) -> Iterator[Driver]:
    made = Driver(v, f"file:{path}?size={size}", **more)
    try:
        yield made
    finally:
        made.close()


def slabs(path: pathlib.Path) -> list[pathlib.Path]:
    return sorted(path.rglob("slab-*"))


# ------------------------------------------------------------------------------------- the tier


def test_chunks_come_back_after_a_restart(v: Any, tmp_path: pathlib.Path) -> None:
    keys = chain("a", 20)
    with driver(v, tmp_path) as tier:
        assert tier.hits(keys) == 0
        result = tier.save(keys)
        assert result.success and result.transfer_bytes == 20 * CHUNK
        assert tier.save(keys).success, "what is known already counts as stored"
        assert tier.hits(keys) == 20 and tier.tier.stats().stored == 20
    with driver(v, tmp_path) as tier:
        assert tier.hits(chain("b", 24, "a", 10)) == 10
        assert tier.hits(keys) == 20 and not tier.tier.has_pending_work()


def test_one_job_of_many_chunks(v: Any, tmp_path: pathlib.Path) -> None:
    """More chunks than operations may be out; the answer names those that are right."""
    keys = chain("a", N)
    with driver(v, tmp_path, max_ops=4) as tier:
        tier.save(keys)
        context = tier.context(keys)
        assert all(tier.found(keys, context))
        assert tier.job(context, keys, range(N), load=True).success
        for place, key in enumerate(keys):
            np.testing.assert_array_equal(tier.rows.view(np.uint8)[place], kv(key))


def test_damaged_chunks_are_misses(v: Any, tmp_path: pathlib.Path) -> None:
    keys = chain("a", 12)
    with driver(v, tmp_path) as tier:
        tier.save(keys)
    slab, = slabs(tmp_path)
    data = bytearray(slab.read_bytes())
    at = data.find(kv(keys[5]).tobytes())
    assert at > 0
    data[at + 1000] ^= 1
    slab.write_bytes(data)
    with driver(v, tmp_path) as tier:
        context = tier.context(keys)
        assert all(tier.found(keys, context)), "nobody has read it yet"
        result = tier.job(context, keys, range(12), load=True)
        assert not result.success and keys[5] not in result.successful_keys
        assert set(keys[:5]) <= set(result.successful_keys)
        for place, key in enumerate(keys):
            if key in result.successful_keys:
                np.testing.assert_array_equal(tier.rows.view(np.uint8)[place], kv(key))
        found = tier.found(keys, context)
        assert not found[5], "a failed load is not promised to the same request again"
        tier.tier.on_request_finished(context)
        assert tier.hits(keys) == 5 and tier.tier.stats().bad[store.BAD_PAYLOAD] == 1
        tier.save(keys)
        assert tier.hits(keys) == 12


def test_a_full_store_keeps_prefixes(v: Any, tmp_path: pathlib.Path) -> None:
    """What is evicted is the end of a chain, so that what is left can be used."""
    with driver(v, tmp_path, size="1MiB") as tier:
        first = chain("a", 30)
        tier.save(first)
        for i in range(4):
            tier.save(chain(f"b{i}", 15))
            stats = tier.tier.stats()
            assert stats.bytes <= stats.size <= 1 << 20
            assert sum(file.stat().st_size for file in slabs(tmp_path)) <= 1 << 20
            for keys in (first, *(chain(f"b{n}", 15) for n in range(i + 1))):
                context = tier.context(keys)
                found = tier.found(keys, context)
                tier.tier.on_request_finished(context)
                assert found == sorted(found, reverse=True), "no holes"
        assert tier.tier.stats().evicted > 0 and tier.hits(chain("b3", 15)) == 15


def test_a_disk_that_fails(v: Any, tmp_path: pathlib.Path) -> None:
    keys = chain("a", 12)
    with driver(v, tmp_path) as tier:
        tier.save(keys)
        for slab in slabs(tmp_path):
            with open(slab, "r+b") as file:
                file.truncate(0)
        context = tier.context(keys)
        tier.found(keys, context)
        result = tier.job(context, keys, range(12), load=True)
        assert not result.success and not result.successful_keys
        assert not any(tier.found(keys, context))
        tier.tier.on_request_finished(context)
        more = chain("b", 12)
        tier.save(more)
        assert tier.hits(more) in range(13)


def test_two_engines_on_one_directory(v: Any, tmp_path: pathlib.Path) -> None:
    """Each reads the other's chunks, and can go on behind them."""
    keys = chain("a", 24)
    with driver(v, tmp_path) as one, driver(v, tmp_path) as two:
        one.save(keys[:12])
        deadline = time.monotonic() + 20
        while two.hits(keys[:12]) < 12:
            assert time.monotonic() < deadline
        context = two.context(keys)
        two.save(keys[12:], context)
        assert two.tier.stats().stored == 12, "written, though what is before is the other's"
        assert two.hits(keys) == 24
        deadline = time.monotonic() + 20
        while one.hits(keys) < 24:
            assert time.monotonic() < deadline
    with driver(v, tmp_path) as tier:
        assert tier.hits(keys) == 24


def test_keys_that_identify_nothing_beyond_the_process(
        v: Any, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    """xxhash, 128 bits; and groups that the configuration does not have."""
    said = list[str]()
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    v.module.logger.addHandler(handler)
    short = [key[:16] + key[32:] for key in chain("a", 4)]
    with driver(v, tmp_path) as tier:
        assert not tier.save(short).success and tier.hits(short) == 0
        assert not tier.save(chain("a", 4, group=7)).success
        assert tier.tier.stats().puts == 0
        assert tier.save(chain("a", 4)).success
    v.module.logger.removeHandler(handler)
    text, = [line for line in said if "nothing is stored" in line]
    assert "--prefix-caching-hash-algo sha256" in text and "16 bytes" in text


@pytest.mark.parametrize("fact", [
    {"facts": config(model__dtype="float8_e4m3fn")}, {"facts": config(kv_cache_layout="HND")},
    {"facts": config(parallel__tp_size=2)}, {"facts": config(parallel__pp_size=2)},
    {"facts": config(parallel__rank=1)}, {"facts": config(parallel__world_size=2)},
    {"facts": config(cache__tokens_per_hash=8)}, {"facts": config(worker_kv_bytes_per_block=1)},
    {"facts": config(groups__0__layer_names=("l0",))}, {"facts": config(canonical_layout=True)},
    {"facts": config(groups__0__tokens_per_block=32)}, {"facts": config(replicated_layout=True)},
    {"facts": config(cache__blocks_per_chunk=2)}, {"facts": config(parallel__dcp_size=2)},
    {"facts": config(parallel__pcp_size=2)}, {"weights": "cd" * 32}, {"epoch": 1},
    {"identity": "rope x 4"}], ids=str)
def test_one_fact_changed_finds_nothing(v: Any, tmp_path: pathlib.Path, fact: Any) -> None:
    keys = chain("a", 3)
    with driver(v, tmp_path) as tier:
        tier.save(keys)
        assert tier.hits(keys) == 3
    with driver(v, tmp_path, **fact) as tier:
        assert tier.hits(keys) == 0
    with driver(v, tmp_path) as tier:
        assert tier.hits(keys) == 3


def test_another_version_finds_nothing(v: Any, tmp_path: pathlib.Path,
                                       monkeypatch: pytest.MonkeyPatch) -> None:
    with driver(v, tmp_path) as tier:
        tier.save(chain("a", 3))
    for name, value in (("VERSION", "9.9"), ("device", lambda: "another")):
        with monkeypatch.context() as patched:
            patched.setattr(v.versions, name, value)
            with driver(v, tmp_path) as tier:
                assert tier.hits(chain("a", 3)) == 0


def test_weights_are_known_by_their_bytes(v: Any, tmp_path: pathlib.Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for refused in (None, str(model), "a/model", "ab"):
        with pytest.raises(ValueError, match="a name does not say which weights"):
            Driver(v, f"file:{tmp_path}/kv?size=1MiB", weights=refused)
    prints = set()
    for name, data in (("model.safetensors", b"1"), ("model.safetensors", b"2"),
                       ("config.json", b"{}"), ("more.safetensors", b"2"), ("README", b"")):
        (model / name).write_bytes(data)
        with driver(v, tmp_path / "kv", weights=str(model)) as tier:
            prints.add(tier.tier.fingerprint)
    assert len(prints) == 4, "README does not count"
    with driver(v, tmp_path / "kv", weights=None, facts=config(model__name=str(model))) as tier:
        assert tier.tier.fingerprint in prints


def test_a_backlog_is_bounded(v: Any, tmp_path: pathlib.Path) -> None:
    """Host memory is not held for ever by chunks that wait for a slow disk."""
    keys = chain("a", N)
    with driver(v, tmp_path, max_ops=1, max_waiting=8) as tier:
        result = tier.save(keys)
        assert not result.success and tier.tier.stats().puts == 8
        assert tier.tier.get_stats().data["data"]["vllm:kvpager_store_dropped"] == {(): N - 8}
        assert tier.hits(keys) == 8 and tier.save(keys[:8]).success


def test_draining_ends_every_job(v: Any, tmp_path: pathlib.Path) -> None:
    keys = chain("a", 16)
    with driver(v, tmp_path, max_ops=2) as tier:
        context = tier.context(keys)
        for place, key in enumerate(keys):
            tier.rows.view(np.uint8)[place] = kv(key)
        tier.tier.submit_store(v.TransferJob(1, keys, np.arange(16), False, context))
        tier.tier.submit_store(v.TransferJob(2, [], np.arange(0), False, context))
        assert tier.tier.has_pending_work()
        tier.tier.drain_jobs()
        assert not tier.tier.has_pending_work()
        assert {done.job_id for done in tier.tier.get_finished_jobs()} == {1, 2}
        tier.tier.on_request_finished(context)
        assert tier.hits(keys) == 16


def test_a_shutdown_writes_what_waits_and_lets_go(v: Any, tmp_path: pathlib.Path) -> None:
    keys = chain("a", 16)
    tier = Driver(v, f"file:{tmp_path}?size=64MiB", max_ops=2)
    context = tier.context(keys)
    for place, key in enumerate(keys):
        tier.rows.view(np.uint8)[place] = kv(key)
    tier.tier.submit_store(v.TransferJob(1, keys, np.arange(16), False, context))
    tier.close()
    assert tier.tier._rows is None
    with driver(v, tmp_path) as again:
        assert again.hits(keys) == 16


def test_a_request_without_positions(v: Any, tmp_path: pathlib.Path) -> None:
    """Of a peer's request vLLM does not tell where its chunks lie: what was written so is found so,
    and a chunk with a place in a chain is not taken for bad."""
    keys, peer = chain("a", 6), v.ReqContext("peer")
    with driver(v, tmp_path) as tier:
        tier.save(keys)
        assert not any(tier.found(keys, peer))
        tier.tier.on_request_finished(peer)
        assert tier.hits(keys) == 6 and sum(tier.tier.stats().bad) == 0
        alone = chain("b", 6)
        tier.save(alone, v.ReqContext("other"))
        assert tier.hits(alone) == 6


def test_statistics(v: Any, tmp_path: pathlib.Path) -> None:
    keys = chain("a", 5)
    with driver(v, tmp_path) as tier:
        defined = tier.tier.build_metric_definitions({})
        tier.save(keys)
        first = tier.tier.get_stats().data["data"]
        assert first["vllm:kvpager_store_stored"] == {(): 5}
        assert first["vllm:kvpager_store_records"] == {(): 5}
        tier.hits(keys)
        second = tier.tier.get_stats().data["data"]
        assert second == {"vllm:kvpager_store_hits": {(): 5}}, "what was told is not told again"
        assert set(first) | set(second) <= set(defined)


def test_versions(v: Any) -> None:
    assert v.versions.minor_version("0.32.4+cpu") == "0.32"
    for unknown in ("0.30.2", "0.34.0", "1.32.0", "dev"):
        with pytest.raises(ImportError, match=f"vLLM {unknown} is not supported, only 0.31, "):
            v.versions.minor_version(unknown)


def test_random_requests(v: Any, tmp_path: pathlib.Path) -> None:
    """Chains that branch, a small store, restarts, two engines: what is loaded is right (`hits`
    looks at it), and of what one engine may find nothing is found that was never stored."""
    dice, stored = random.Random(7), set[bytes]()
    for _ in range(3):
        with driver(v, tmp_path, size="2MiB") as one, driver(v, tmp_path, size="2MiB") as two:
            for _ in range(40):
                tier = dice.choice([one, two])
                keys = chain(f"{dice.randrange(6)}", dice.randrange(1, 24), "root",
                             dice.randrange(8))
                n = tier.hits(keys)
                assert set(keys[:n]) <= stored
                if dice.random() < 0.7:
                    context = tier.context(keys)
                    if keys[n:]:
                        tier.save(keys[n:], context)
                        stored.update(keys)


def test_no_exception_reaches_vllm(v: Any, tmp_path: pathlib.Path) -> None:
    """Whatever is asked: jobs end, and a chunk that cannot be begun has failed."""
    from kvpager.vllm import store_tier, versions

    theirs = {name for kind in versions.SecondaryTier.__mro__[:-1] for name, value in
              vars(kind).items() if not name.startswith("_") and callable(value)}
    assert theirs - store_tier._ANSWERS.keys() <= THEIRS
    keys, odd, dice = chain("a", 3), [None, 5, "x", [None], b"", SimpleNamespace(req_id=1)], random.Random(2)
    calls = {"on_new_request": 1, "lookup": 2, "on_request_finished": 1, "on_schedule_end": 1,
             "submit_store": 1, "submit_load": 1, "get_finished_jobs": 0, "has_pending_work": 0,
             "get_stats": 0, "stats": 0}
    assert calls.keys() == store_tier._ANSWERS.keys() - {"drain_jobs", "shutdown"}
    with driver(v, tmp_path) as tier:
        for _ in range(60):
            name = dice.choice(sorted(calls))
            getattr(tier.tier, name)(*(dice.choice(odd) for _ in range(calls[name])))
        context, ended = tier.context(keys), list[Any]()
        for load in (False, True):
            for places in ([0, "x", 2], [0], [None] * 3):
                job = v.TransferJob(next(tier.ids), keys, places, load, context)
                (tier.tier.submit_load if load else tier.tier.submit_store)(job)
                while tier.tier.has_pending_work():
                    ended += tier.tier.get_finished_jobs()
                ended += tier.tier.get_finished_jobs()
                assert [one.success for one in ended if one.job_id == job.job_id] == [False]
        assert tier.tier.troubles.counts["errors"] > 10
        tier.save(keys)
        assert tier.hits(keys) == 3


# -------------------------------------------------------------------- below vLLM's own manager


def spec_of(tier: dict[str, Any], n: int = N, chunk: int = CHUNK, name: str = "e") -> Any:
    """vLLM's TieringOffloadingSpec with host memory for n chunks."""
    c = importlib.import_module("vllm.v1.kv_offload.config")
    spec = importlib.import_module("vllm.v1.kv_offload.tiering.spec")
    return spec.TieringOffloadingSpec(c.OffloadingConfig(
        groups=(c.OffloadingGroupConfig(S, ("l0",), 0),), worker_kv_bytes_per_block=chunk,
        enable_kv_cache_events=False, engine_id=f"kvpager-test-{name}-{time.monotonic_ns()}",
        extra_config={"cpu_bytes_to_use": n * chunk, "secondary_tiers": [tier]},
        model=c.OffloadingModelConfig("m", "bfloat16"), cache=c.OffloadingCacheConfig(S, 1),
        parallel=c.OffloadingParallelConfig(0, 1, 1, 1, 1, 1, 0, 1, None, True),
        kv_cache_layout="NHD"))


def ours(path: pathlib.Path, size: str = "256MiB", **more: Any) -> dict[str, Any]:
    return {"type": "StoreTier", "module_path": "kvpager.vllm", "weights": WEIGHTS,
            "store": f"file:{path}?size={size}", "max_waiting": 1024, **more}


class Engine:
    """What vLLM's OffloadingConnectorScheduler calls, in its order; the copies of its worker are
    made here, because its own need a GPU."""

    def __init__(self, tier: dict[str, Any], n: int = N, chunk: int = CHUNK) -> None:
        self.base = importlib.import_module("vllm.v1.kv_offload.base")
        self.chunk, self.ids = chunk, itertools.count(1)
        self.spec = spec_of(tier, n, chunk)
        self.manager = self.spec.get_manager()
        self.rows = np.asarray(self.manager.primary_tier.get_kv_memoryview()).view(np.uint8)

    def request(self, keys: list[bytes]) -> Any:
        made = self.base.ReqContext(f"r{next(self.ids)}")
        for i, key in enumerate(keys):
            made.set_offload_key_position(key, (i + 1) * S)
        self.manager.on_new_request(made)
        return made

    def step(self) -> None:
        self.manager.on_schedule_end(self.base.ScheduleEndContext((), ()))

    def load(self, keys: list[bytes], context: Any) -> int:
        """Asks until vLLM says how long the prefix is, and reads it as the GPU would."""
        wait = (self.base.LookupResult.RETRY, self.base.LookupResult.HIT_PENDING)
        while True:
            answers, n = list[Any](), 0
            for key in keys:
                answers.append(self.manager.lookup(key, context))
                if answers[-1] is self.base.LookupResult.MISS:
                    break
            self.step()
            if not any(answer in wait for answer in answers):
                break
        n = sum(answer is self.base.LookupResult.HIT for answer in answers)
        if n:
            spec = self.manager.prepare_load(keys[:n], context)
            for key, place in zip(keys, spec.chunk_ids):
                np.testing.assert_array_equal(self.rows[place], kv(key, self.chunk))
            self.manager.complete_load(keys[:n], context)
        return n

    def save(self, keys: list[bytes], context: Any) -> bool:
        prepared = self.manager.prepare_store(keys, context)
        if prepared is None:
            return False
        for key, place in zip(prepared.keys_to_store, prepared.store_spec.chunk_ids):
            self.rows[place] = kv(key, self.chunk)
        if prepared.keys_to_store:
            self.manager.complete_store(prepared.keys_to_store, context)
        return True

    def serve(self, keys: list[bytes]) -> int:
        """A request: what comes back, then the rest is computed and stored."""
        context = self.request(keys)
        n = self.load(keys, context)
        if keys[n:]:
            self.save(keys[n:], context)
        self.step()
        self.manager.on_request_finished(context)
        return n

    def settle(self) -> None:
        while self.manager.has_pending_work():
            self.step()

    def close(self) -> None:
        self.settle()
        del self.rows
        self.manager.shutdown()  # fails where somebody still holds its memory


@real
def test_vllm_serves_what_an_earlier_process_stored(tmp_path: pathlib.Path) -> None:
    keys = chain("a", 24)
    engine = Engine(ours(tmp_path))
    assert engine.serve(keys) == 0 and engine.serve(keys) == 24
    engine.settle()
    assert engine.manager.get_stats().data["data"]["vllm:kvpager_store_stored"] == {(): 24}
    engine.close()
    engine = Engine(ours(tmp_path))
    assert engine.serve(chain("b", 24, "a", 9)) == 9
    engine.settle()  # chunks that are being written have no room for others: 39 of 32
    assert engine.serve(keys) == 24
    engine.settle()
    engine.manager.reset_cache()
    engine.manager.on_reset_flushed() if hasattr(engine.manager, "on_reset_flushed") else None
    assert engine.serve(keys) == 24, "vLLM's reset leaves stores alone"
    engine.close()


@real
def test_vllm_computes_what_is_damaged(tmp_path: pathlib.Path) -> None:
    keys = chain("a", 16)
    engine = Engine(ours(tmp_path))
    engine.serve(keys)
    engine.close()
    slab, = slabs(tmp_path)
    data = bytearray(slab.read_bytes())
    data[data.find(kv(keys[7]).tobytes()) + 5] ^= 0x80
    slab.write_bytes(data)
    engine = Engine(ours(tmp_path))
    assert engine.serve(keys) == 7, "and the rest is computed and stored"
    engine.settle()
    engine.close()
    for n in (8, 16):  # vLLM stores again what is not in its host memory: the chunks behind are
        engine = Engine(ours(tmp_path))
        assert engine.serve(keys) == n
        engine.close()


@real
def test_vllm_s_own_tier_serves_what_is_damaged(tmp_path: pathlib.Path) -> None:
    """Why there is this one."""
    keys, tier = chain("a", 4), {"type": "fs", "root_dir": str(tmp_path)}
    engine = Engine(tier)
    engine.serve(keys)
    engine.close()
    for file in tmp_path.rglob("*.bin"):
        data = bytearray(file.read_bytes())
        data[5] ^= 0x80
        file.write_bytes(data)
    engine = Engine(tier)
    with pytest.raises(AssertionError, match="Arrays are not equal"):
        engine.serve(keys)


@real
def test_vllm_killed(tmp_path: pathlib.Path) -> None:
    """What was written is found by the next process, without a shutdown."""
    program = ("import os, sys, pathlib, test_vllm_tier as t; "
               "engine = t.Engine(t.ours(pathlib.Path(sys.argv[1]))); "
               "engine.serve(t.chain('a', 20)); engine.settle(); os.kill(os.getpid(), 9)")
    here = pathlib.Path(__file__).parent
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], cwd=here, timeout=300)
    assert done.returncode == -signal.SIGKILL
    for left in pathlib.Path("/dev/shm").glob("vllm_offload_kvpager-test-*"):
        left.unlink()
    engine = Engine(ours(tmp_path))
    assert engine.serve(chain("a", 20)) == 20
    engine.close()


@real
def test_two_processes_of_vllm_on_one_directory(tmp_path: pathlib.Path) -> None:
    program = ("import sys, pathlib, test_vllm_tier as t; "
               "engine = t.Engine(t.ours(pathlib.Path(sys.argv[1]))); "
               "n = [engine.serve(t.chain(name, 24, 'a', 12)) for name in sys.argv[2:]]; "
               "engine.close(); print(*n)")
    engine = Engine(ours(tmp_path))
    engine.serve(chain("a", 12))
    engine.settle()
    here = str(pathlib.Path(__file__).parent)
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path), "b", "b", "c"], check=True,
                          capture_output=True, text=True, cwd=here, timeout=300)
    assert done.stdout.split()[-3:] == ["12", "24", "12"], "the first's chunks, then its own"
    assert engine.serve(chain("b", 24, "a", 12)) == 24
    engine.close()


@real
def test_the_same_hits_as_vllm_s_own_tier(tmp_path: pathlib.Path) -> None:
    """The same requests, restarts included: with room for all, both tiers bring the same back."""
    tiers = [ours(tmp_path / "ours"), {"type": "fs", "root_dir": str(tmp_path / "theirs")}]
    dice = random.Random(3)
    for _ in range(3):
        engines = [Engine(tier, n=24) for tier in tiers]
        for _ in range(30):
            keys = chain(f"{dice.randrange(5)}", dice.randrange(1, 16), "root", dice.randrange(6))
            hits = []
            for engine in engines:
                hits.append(engine.serve(keys))
                engine.settle()
            assert hits[0] == hits[1]
        for engine in engines:
            engine.close()


@real
@pytest.mark.parametrize("chunk", [512 << 10, 2 << 20])
def test_throughput_beside_vllm_s_own_tier(tmp_path: pathlib.Path, chunk: int,
                                           capsys: pytest.CaptureFixture[str]) -> None:
    """Printed, not judged: the disk is shared."""
    n, rounds = (128 << 20) // chunk, 5
    keys = chain("a", n)
    rates: dict[tuple[str, str], list[float]] = {}
    for turn in range(rounds):
        for name, tier in (("StoreTier", ours(tmp_path / f"ours{turn}", "512MiB")),
                           ("fs", {"type": "fs", "root_dir": str(tmp_path / f"theirs{turn}")})):
            for what in ("store", "load"):
                engine = Engine(tier, n, chunk)
                context, retry = engine.request(keys), engine.base.LookupResult.RETRY
                if what == "store":
                    engine.rows[:] = kv(keys[0], chunk)
                    prepared = engine.manager.prepare_store(keys, context)
                    begun = time.perf_counter()
                    engine.manager.complete_store(prepared.keys_to_store, context)
                else:
                    begun = time.perf_counter()
                    while retry in [engine.manager.lookup(key, context) for key in keys]:
                        engine.step()
                        time.sleep(0.001)
                engine.step()
                while engine.manager.has_pending_work():
                    engine.step()
                    time.sleep(0.001)  # what the engine's step is
                rates.setdefault((name, what), []).append(
                    n * chunk / (time.perf_counter() - begun) / 1e9)
                hit = engine.base.LookupResult.HIT
                assert all(engine.manager.lookup(key, context) is hit for key in keys)
                assert (engine.rows == kv(keys[0], chunk)).all()
                engine.close()
    with capsys.disabled():
        for (name, what), values in rates.items():
            print(f"\n{name:9s} {what:5s} {chunk >> 10:5d} KiB chunks: "
                  f"{np.median(values):.2f} GB/s ({min(values):.2f} to {max(values):.2f})", end="")
    assert all(value > 0 for values in rates.values() for value in values)
