"""kvpager.sglang.KvpagerStorage: on SGLang's own host pools and beside its own file backend where
SGLang is installed, else on stand-ins."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import logging
import pathlib
import random
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fake_sglang
import kvpager

store = pytest.importorskip("kvpager.store", exc_type=ImportError)

HAS_SGLANG = importlib.util.find_spec("sglang") is not None
real = pytest.mark.skipif(not HAS_SGLANG, reason="SGLang is not installed: make engines")

PAGE, LAYERS, N = 4, 2, 24  # tokens of a page, layers, pages of a host pool
WEIGHTS = "ab" * 32


def names_of_sglang() -> SimpleNamespace:
    """SGLang imports torchvision for images, of which there is none for a torch without CUDA."""
    import torch

    for name in ("nms", "qnms"):
        torch.library.define(f"torchvision::{name}",
                             "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    from sglang.srt.mem_cache import device_pool_info
    from sglang.srt.mem_cache.pool_host import mha

    def pool(layout: str = "page_first", dtype: str = "bfloat16", pages: int = N,
             layers: int = LAYERS, page: int = PAGE) -> Any:
        kind = getattr(torch, dtype)
        device = [tuple(torch.zeros((8, 2, 16), dtype=kind) for _ in range(layers))] * 2
        table = torch.zeros(layers, dtype=torch.int64)
        info = device_pool_info.MHABufferInfo(
            buffers=device_pool_info.KVBuffers(
                k=device[0], v=device[1], k_data_ptrs=table, v_data_ptrs=table,
                layout=device_pool_info.KVBufferLayout.NHD),
            page_size=page, head_num=2, head_dim=16, v_head_dim=16, dtype=kind,
            device=torch.device("cpu"))
        made = mha.MHATokenToKVPoolHost(
            info, 1.0, 0, page, layout, pin_memory=False, device_capacity_tokens=8, start_layer=0,
            end_layer=layers, host_token_capacity=pages * page)
        made.kv_buffer.zero_()
        return made

    def fill(pool: Any, index: int, data: Any) -> None:
        page = pool.get_dummy_flat_data_page()
        page.view(torch.uint8)[:] = torch.from_numpy(data)
        pool.set_from_flat_data_page(index, page)

    def look(pool: Any, index: int) -> Any:
        return pool.get_data_page(index, flat=True).view(torch.uint8).numpy()

    def same(a: Any, b: Any) -> bool:
        return bool(torch.equal(a.view(torch.uint8), b.view(torch.uint8)))

    return SimpleNamespace(pool=pool, fill=fill, look=look, same=same, indices=torch.tensor)


def names_of_fake() -> SimpleNamespace:
    def pool(layout: str = "page_first", dtype: str = "bfloat16", pages: int = N,
             layers: int = LAYERS, page: int = PAGE) -> Any:
        made = fake_sglang.HostPool(pages, page, layers, dtype)
        made.layout = layout
        return made

    return SimpleNamespace(
        pool=pool, fill=lambda pool, index, data: pool.set_from_flat_data_page(index, data),
        look=lambda pool, index: pool.get_data_page(index), same=np.array_equal, indices=np.array)


@pytest.fixture(scope="module")
def g() -> Iterator[Any]:
    """kvpager.sglang, SGLang's names, and host pools."""
    with contextlib.nullcontext() if HAS_SGLANG else fake_sglang.installed():
        made = names_of_sglang() if HAS_SGLANG else names_of_fake()
        from kvpager.sglang import KvpagerStorage, storage, versions

        made.Storage, made.module, made.versions = KvpagerStorage, storage, versions
        made.names = importlib.import_module("sglang.srt.mem_cache.hicache_storage")
        yield made


def config(g: Any, url: str, **changes: Any) -> Any:
    extra = {"backend_name": "kvpager", "module_path": "kvpager.sglang",
             "class_name": "KvpagerStorage", "store": url, "weights": WEIGHTS,
             **changes.pop("extra", {})}
    return g.names.HiCacheStorageConfig(**{
        "tp_rank": 0, "tp_size": 1, "pp_rank": 0, "pp_size": 1, "attn_cp_rank": 0,
        "attn_cp_size": 1, "is_mla_model": False, "enable_storage_metrics": True,
        "is_page_first_layout": True, "model_name": "a/model", "extra_config": extra, **changes})


@contextlib.contextmanager
def opened(g: Any, path: pathlib.Path, size: str = "16MiB", pools: Any = None, pool: Any = None,
           **changes: Any) -> Iterator[Any]:
    """A backend with its host pools, as SGLang's controller makes it."""
    made = g.Storage(config(g, f"file:{path}?size={size}", **changes), {})
    made.register_mem_pool_host(g.pool() if pool is None else pool)
    for name, more in (pools or {}).items():
        made.register_mem_host_pool_v2(more, name)
    made.on_host_pools_registered()
    try:
        yield made
    finally:
        made.close()
        made.close()


def chain(name: str, n: int, before: str = "", shared: int = 0) -> list[str]:
    made, digest = list[str](), b""
    for i in range(n):
        digest = hashlib.sha256(digest + f"{before if i < shared else name} {i}".encode()).digest()
        made.append(digest.hex())
    return made


def kv(key: str, n: int, salt: int = 0) -> Any:
    return np.random.default_rng(int(key[:12], 16) + salt).integers(0, 256, n, np.uint8)


def slots(g: Any, n: int, page: int = PAGE, first: int = 0) -> Any:
    return g.indices(list(range(first * page, (first + n) * page)))


def fill(g: Any, pool: Any, keys: list[str], salt: int = 0) -> None:
    size = pool.get_dummy_flat_data_page().nbytes
    for i, key in enumerate(keys):
        g.fill(pool, i * pool.page_size, kv(key, size, salt))


def right(g: Any, pool: Any, keys: list[str], salt: int = 0) -> list[bool]:
    size = pool.get_dummy_flat_data_page().nbytes
    return [bool((g.look(pool, i * pool.page_size) == kv(key, size, salt)).all())
            for i, key in enumerate(keys)]


def clean(g: Any, pool: Any) -> None:
    size = pool.get_dummy_flat_data_page().nbytes
    for i in range(N):
        g.fill(pool, i * pool.page_size, np.zeros(size, np.uint8))


def save(g: Any, backend: Any, keys: list[str]) -> list[bool]:
    fill(g, backend.mem_pool_host, keys)
    done: list[bool] = backend.batch_set_v1(keys, slots(g, len(keys)))
    return done


# ---------------------------------------------------------------------------------------- pages


@pytest.mark.parametrize("layout", ["page_first", "layer_first", "page_first_direct"])
def test_pages_come_back_after_a_restart(g: Any, tmp_path: pathlib.Path, layout: str) -> None:
    keys, pool = chain("a", N), g.pool(layout)
    with opened(g, tmp_path, pool=pool) as backend:
        assert backend.batch_exists(keys) == 0 and not any(
            backend.batch_get_v1(keys, slots(g, N)))
        assert all(save(g, backend, keys)) and all(save(g, backend, keys))
        assert backend.stats().stored == N
    clean(g, pool)
    with opened(g, tmp_path, pool=pool) as backend:
        assert backend.batch_exists(keys) == N and backend.exists(keys[3])
        assert backend.batch_exists(chain("b", N, "a", 7)) == 7
        assert backend.batch_get_v1(keys, slots(g, N)) == [True] * N
        assert all(right(g, pool, keys))


def test_a_damaged_page_leaves_the_host_pool_alone(g: Any, tmp_path: pathlib.Path) -> None:
    keys, pool = chain("a", 12), g.pool()
    with opened(g, tmp_path, pool=pool) as backend:
        save(g, backend, keys)
    slab, = tmp_path.rglob("slab-*")
    data = bytearray(slab.read_bytes())
    at = data.find(kv(keys[5], pool.get_dummy_flat_data_page().nbytes).tobytes())
    assert at > 0
    data[at + 9] ^= 4
    slab.write_bytes(data)
    clean(g, pool)
    with opened(g, tmp_path, pool=pool) as backend:
        good = backend.batch_get_v1(keys, slots(g, 12))
        assert good == [i != 5 for i in range(12)] == right(g, pool, keys)
        assert not g.look(pool, 5 * PAGE).any(), "what is not verified never gets into the pool"
        assert backend.batch_exists(keys) == 5
        assert backend.stats().bad[store.BAD_PAYLOAD] == 1


def test_the_interface_of_one_tensor(g: Any, tmp_path: pathlib.Path) -> None:
    """What SGLang calls where interface_v1 is not set."""
    keys, pool = chain("a", 4), g.pool()
    fill(g, pool, keys)
    with opened(g, tmp_path, pool=pool) as backend:
        pages = [pool.get_data_page(i * PAGE) for i in range(4)]
        assert backend.batch_set(keys[:3], pages) and backend.set(keys[3], pages[3])
        room = [pool.get_dummy_flat_data_page() for _ in range(5)]
        got = backend.batch_get([*keys, chain("b", 1)[0]], room)
        assert got[4] is None and all(g.same(a, b) for a, b in zip(got, pages))
        assert backend.get(keys[0], room[4]) is room[4] and backend.get(keys[0]) is None


def test_keys_that_identify_nothing_beyond_the_process(g: Any, tmp_path: pathlib.Path) -> None:
    said = list[str]()
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    g.module.logger.addHandler(handler)
    with opened(g, tmp_path) as backend:
        for key in ("ab" * 16, "-12345", "g" * 64, ""):
            assert save(g, backend, chain("a", 1)) == [True]
            assert backend.batch_set_v1([key], slots(g, 1)) == [False]
            assert backend.batch_exists([key]) == 0
            assert backend.batch_get_v1([key], slots(g, 1)) == [False]
        assert backend.stats().stored == 1
        assert backend.batch_set_v1(chain("a", 2), slots(g, 1)) == [False, False]
    g.module.logger.removeHandler(handler)
    assert len([line for line in said if "Only SHA-256 chain keys" in line]) == 4


@pytest.mark.parametrize("fact", [
    {"tp_size": 2}, {"tp_rank": 1, "tp_size": 2}, {"pp_size": 2}, {"pp_rank": 1, "pp_size": 2},
    {"attn_cp_size": 2}, {"attn_cp_rank": 1, "attn_cp_size": 2}, {"is_mla_model": True},
    {"should_split_heads": True}, {"extra": {"epoch": 1}}, {"extra": {"identity": "yarn"}},
    {"extra": {"weights": "cd" * 32}}, {"dtype": "float16"}, {"layout": "layer_first"},
    {"layers": 3}, {"page": 8}], ids=str)
def test_one_fact_changed_finds_nothing(g: Any, tmp_path: pathlib.Path, fact: Any) -> None:
    keys = chain("a", 3)
    with opened(g, tmp_path) as backend:
        save(g, backend, keys)
    if "tp_rank" in fact:  # its own first rank's, too
        with opened(g, tmp_path, tp_size=2) as backend:
            save(g, backend, keys)
    pool = {name: fact[name] for name in ("dtype", "layout", "layers", "page") if name in fact}
    rest = {name: value for name, value in fact.items() if name not in pool}
    with opened(g, tmp_path, pool=g.pool(**pool), **rest) as backend:
        assert backend.batch_exists(keys) == 0
        assert not any(backend.batch_get_v1(keys, slots(g, 3, fact.get("page", PAGE))))
    with opened(g, tmp_path) as backend:
        assert backend.batch_exists(keys) == 3


def test_ranks_that_hold_the_same_pages_share_them(g: Any, tmp_path: pathlib.Path) -> None:
    """Latent KV is the same on every rank; a state is not."""
    keys = chain("a", 3)
    mla: dict[str, Any] = {"is_mla_model": True, "tp_size": 2}
    for rank in (0, 1):
        pools = {"mamba": g.pool(layers=1)}
        with opened(g, tmp_path, pools=pools, tp_rank=rank, **mla) as backend:
            state = g.names.PoolTransfer(g.names.PoolName.MAMBA, host_indices=slots(g, 3),
                                         keys=keys)
            if rank == 0:
                save(g, backend, keys)
                fill(g, pools["mamba"], keys)
                assert backend.batch_set_v2([state]) == {"mamba": [True] * 3}
            assert backend.batch_exists(keys) == 3
            assert backend.batch_exists_v2(keys, [state]).kv_hit_pages == (3 if rank == 0 else 0)


def test_a_full_store(g: Any, tmp_path: pathlib.Path) -> None:
    with opened(g, tmp_path, size="512KiB") as backend:
        for i in range(8):
            keys = chain(f"{i}", N)
            save(g, backend, keys)
            assert backend.batch_exists(keys) > 0
            assert sum(file.stat().st_size for file in tmp_path.rglob("slab-*")) <= 512 << 10
        assert backend.stats().evicted > 0
        backend.clear()
        assert backend.batch_exists(keys) == 0 and backend.stats().records == 0


def test_a_disk_that_fails(g: Any, tmp_path: pathlib.Path) -> None:
    keys = chain("a", 12)
    with opened(g, tmp_path) as backend:
        save(g, backend, keys)
        for slab in tmp_path.rglob("slab-*"):
            with open(slab, "r+b") as file:
                file.truncate(0)
        assert not any(backend.batch_get_v1(keys, slots(g, 12)))
        save(g, backend, chain("b", 12))


def test_pools_besides_kv(g: Any, tmp_path: pathlib.Path) -> None:
    """The v2 forms: a pool of which every page counts, and one of which the last ones do."""
    t, keys = g.names, chain("a", 12)
    pools = {"indexer": g.pool(layers=1), "mamba": g.pool(layers=3)}
    with opened(g, tmp_path, pools=pools) as backend:
        pools["kv"] = backend.mem_pool_host
        for salt, (name, pool) in enumerate(pools.items()):
            fill(g, pool, keys, salt)
        all_of = [t.PoolTransfer(t.PoolName(name), host_indices=slots(g, 12), keys=keys)
                  for name in pools]
        assert backend.batch_set_v2(all_of) == {name: [True] * 12 for name in pools}
        for pool in pools.values():
            clean(g, pool)
        assert backend.batch_get_v2(all_of) == {name: [True] * 12 for name in pools}
        for salt, (name, pool) in enumerate(pools.items()):
            assert all(right(g, pool, keys, salt))
        short = t.PoolTransfer(t.PoolName.INDEXER, host_indices=slots(g, 11), keys=keys)
        assert backend.batch_get_v2([short]) == {"indexer": [False] * 12}
        other = chain("b", 6)
        save(g, backend, other)
        assert backend.batch_exists_v2(other, []).kv_hit_pages == 6
        gap = chain("c", 5)
        save(g, backend, gap[:2])
        save(g, backend, gap[3:])
        assert backend.batch_exists_v2(gap, []).restorable_prefix_pages == [1, 2]
        part = t.PoolTransfer(t.PoolName.INDEXER, host_indices=slots(g, 4), keys=other[:4])
        tail = t.PoolTransfer(t.PoolName.MAMBA, host_indices=slots(g, 2), keys=other[1:3],
                              hit_policy=t.PoolHitPolicy.TRAILING_PAGES)
        backend.batch_set_v2([part, tail])
        found = backend.batch_exists_v2(other, [part, tail])
        assert (found.kv_hit_pages, found.restorable_prefix_pages) == (3, [3])
        assert found.extra_pool_hit_pages == {"kv": 6, "indexer": 4, "mamba": 3}
        part.hit_policy = t.PoolHitPolicy.BLOCK_GROUPS
        assert backend.batch_exists_v2(other, [part]).kv_hit_pages == 0
        assert backend.troubles.counts["errors"] == 1


def test_no_exception_reaches_sglang(g: Any, tmp_path: pathlib.Path) -> None:
    """Its storage threads would end with it. What has begun has ended when a call returns."""
    keys, odd = chain("a", 3), [None, 5, "x", [None], [5] * 3, SimpleNamespace(name="kv", keys=None)]
    calls = {"batch_exists": 1, "batch_get_v1": 2, "batch_set_v1": 2, "batch_exists_v2": 2,
             "batch_get_v2": 1, "batch_set_v2": 1, "exists": 1, "get": 2, "batch_get": 2, "set": 2,
             "batch_set": 2, "get_stats": 0, "close": 0}
    assert calls.keys() == g.module._ANSWERS.keys()
    dice = random.Random(4)
    with opened(g, tmp_path) as backend:
        assert all(save(g, backend, keys))
        for _ in range(80):
            name = dice.choice(sorted(calls.keys() - {"close"}))
            getattr(backend, name)(*(dice.choice([*odd, keys]) for _ in range(calls[name])))
            assert backend._store.n_out == 0
        assert backend.troubles.counts["errors"] > 10
        pool = backend.mem_pool_host
        data, pool.get_data_page = pool.get_data_page, lambda place, flat=True: (
            data(place, flat) if place == 0 else 1 / 0)
        assert backend.batch_set_v1(chain("b", 3), slots(g, 3)) == [False] * 3
        assert backend._store.n_out == 0
        pool.get_data_page = data
        assert backend.batch_exists(keys) == 3


def test_every_method_that_sglang_calls_has_an_answer(g: Any) -> None:
    theirs = {name for name, value in vars(g.versions.Storage).items()
              if not name.startswith("_") and callable(value)}
    refuses = {"register_mem_pool_host", "register_mem_host_pool_v2", "on_host_pools_registered",
               "clear", "stats"}
    assert theirs - refuses - g.module._ANSWERS.keys() == set()


def test_threads_of_sglang(g: Any, tmp_path: pathlib.Path) -> None:
    """Its storage threads read and write at once."""
    errors = list[str]()
    with opened(g, tmp_path, extra={"max_ops": 4}) as backend:
        pool = backend.mem_pool_host
        data = {key: kv(key, pool.get_dummy_flat_data_page().nbytes) for key in chain("a", 64)}
        pages = {}
        for key, page in data.items():
            g.fill(pool, 0, page)
            pages[key] = pool.get_data_page(0)

        def work(seed: int) -> None:
            dice = random.Random(seed)
            for _ in range(40):
                keys = dice.sample(list(data), 5)
                if dice.random() < 0.5:
                    backend.batch_set(keys, [pages[key] for key in keys])
                else:
                    room = [pool.get_dummy_flat_data_page() for _ in keys]
                    for key, got in zip(keys, backend.batch_get(keys, room)):
                        if got is not None and not g.same(got, pages[key]):
                            errors.append(key)
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert not errors and not any(thread.is_alive() for thread in threads)
        assert backend.stats().hits > 0


def test_what_is_refused(g: Any, tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="extra_config needs store"):
        g.Storage(g.names.HiCacheStorageConfig(0, 1, 0, 1, 0, 1, False, False, True, "m"), {})
    with pytest.raises(ValueError, match="a name does not say which weights"):
        g.Storage(config(g, f"file:{tmp_path}?size=1MiB", extra={"weights": None}), {})
    with pytest.raises(ImportError, match="SGLang 0.5.22 is not supported, only 0.5.23"):
        g.versions.known_version("0.5.22")
    assert g.versions.known_version("0.5.23+cpu") == "0.5.23"
    many = {f"p{i}": g.pool() for i in range(8)}
    with pytest.raises(ValueError, match="has 9 host pools, 1 to 8 are supported"):
        with opened(g, tmp_path, pools=many):
            pass


def test_metrics(g: Any, tmp_path: pathlib.Path) -> None:
    with opened(g, tmp_path) as backend:
        save(g, backend, chain("a", 5))
        backend.batch_get_v1(chain("a", 5), slots(g, 5))
        metrics = backend.get_stats()
        assert (metrics.backup_pgs, metrics.prefetch_pgs) == ([5], [5])
        assert metrics.prefetch_bandwidth[0] > 0 and backend.get_stats().backup_pgs == []


# ------------------------------------------------------------------------- beside SGLang's own


@real
def test_sglang_makes_it(g: Any, tmp_path: pathlib.Path) -> None:
    factory = importlib.import_module("sglang.srt.mem_cache.storage.backend_factory")
    pool = g.pool()
    backend = factory.StorageBackendFactory.create_backend(
        "dynamic", config(g, f"file:{tmp_path}?size=1MiB"), pool)
    assert isinstance(backend, g.Storage)
    backend.register_mem_pool_host(pool)
    backend.on_host_pools_registered()
    assert all(save(g, backend, chain("a", 5)))
    backend.close()


@real
def test_the_same_answers_as_sglang_s_file_backend(g: Any, tmp_path: pathlib.Path) -> None:
    """Random pages of three pools in both: v2's answers are equal."""
    t, dice = g.names, random.Random(5)
    pools = {"indexer": g.pool(layers=1), "mamba": g.pool(layers=3)}
    with opened(g, tmp_path / "ours", pools=pools) as ours:
        theirs = t.HiCacheFile(config(g, "", extra={"file_storage_path": str(tmp_path / "file")}))
        theirs.register_mem_pool_host(ours.mem_pool_host)
        for name, pool in {**pools, "kv": ours.mem_pool_host}.items():
            theirs.register_mem_host_pool_v2(pool, t.PoolName(name))
        keys, seen = chain("a", 6), set[Any]()
        for _ in range(60):
            for name in ("kv", "indexer", "mamba"):
                chosen = dice.sample(keys, 1)
                part = t.PoolTransfer(t.PoolName(name), host_indices=slots(g, 1), keys=chosen)
                for backend in (ours, theirs):
                    assert backend.batch_set_v2([part])[part.name] == [True]
            asked = [t.PoolTransfer(t.PoolName.INDEXER, keys=keys),
                     t.PoolTransfer(t.PoolName.MAMBA, keys=keys[:dice.randrange(1, 4)],
                                    hit_policy=t.PoolHitPolicy.TRAILING_PAGES)]
            asked = dice.sample(asked, dice.randrange(3))
            answers = [backend.batch_exists_v2(keys, asked) for backend in (ours, theirs)]
            assert answers[0] == answers[1]
            seen.add(answers[0].kv_hit_pages)
        assert len(seen) > 3


@real
def test_sglang_s_file_backend_serves_what_is_damaged(g: Any, tmp_path: pathlib.Path) -> None:
    """Why there is this one; and it shares pages between types."""
    keys, pool = chain("a", 1), g.pool()
    fill(g, pool, keys)
    theirs = g.names.HiCacheFile(config(g, "", extra={"file_storage_path": str(tmp_path)}))
    theirs.batch_set(keys, [pool.get_data_page(0)])
    file, = tmp_path.glob("*.bin")
    data = bytearray(file.read_bytes())
    data[9] ^= 4
    file.write_bytes(data)
    got = theirs.get(keys[0], pool.get_dummy_flat_data_page())
    assert got is not None and not g.same(got, pool.get_data_page(0))
    half = g.pool(dtype="float16").get_dummy_flat_data_page()
    assert theirs.get(keys[0], half) is half, "bfloat16 read as float16"


@real
@pytest.mark.parametrize("tokens", [16, 64])
def test_throughput_beside_sglang_s_file_backend(g: Any, tmp_path: pathlib.Path, tokens: int,
                                                 capsys: pytest.CaptureFixture[str]) -> None:
    """Pages of 32 KiB a token, printed, not judged. SGLang's own backend reads from the page cache,
    this one from the disk."""
    n, rates = (64 << 20) // (tokens << 15), dict[tuple[str, str], list[float]]()
    keys, pool = chain("a", n), g.pool(pages=n, layers=256, page=tokens)
    where = slots(g, n, tokens)
    pool.kv_buffer.random_(0, 9)
    for turn in range(5):
        file = g.names.HiCacheFile(
            config(g, "", extra={"file_storage_path": str(tmp_path / f"file{turn}")}))
        file.register_mem_host_pool_v2(pool, g.names.PoolName.KV)
        with opened(g, tmp_path / f"ours{turn}", "256MiB", pool=pool) as ours:
            for name, backend in (("KvpagerStorage", ours), ("file", file)):
                for what in ("set", "get"):
                    part = g.names.PoolTransfer(g.names.PoolName.KV, host_indices=where, keys=keys)
                    begun = time.perf_counter()
                    done = getattr(backend, f"batch_{what}_v2")([part])
                    seconds = time.perf_counter() - begun
                    assert all(done[part.name])
                    rates.setdefault((name, what), []).append(pool.kv_buffer.nbytes / seconds / 1e9)
    with capsys.disabled():
        for (name, what), values in rates.items():
            print(f"\n{name:14s} {what} {tokens << 5:5d} KiB pages: {np.median(values):.2f} GB/s "
                  f"({min(values):.2f} to {max(values):.2f})", end="")


def test_a_store_that_cannot_be_cleared_says_so(g: Any, tmp_path: pathlib.Path,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    """SGLang logs the exception, and tells whoever asked for it that nothing was cleared."""
    with opened(g, tmp_path) as backend:
        save(g, backend, chain("a", 3))
        with monkeypatch.context() as patched:
            patched.setattr(backend, "_begin", lambda call: None)
            with pytest.raises(RuntimeError, match=r"file:.* was not cleared, its records may still"):
                backend.clear()
        assert backend.batch_exists(chain("a", 3)) == 3
        backend.clear()
        assert backend.batch_exists(chain("a", 3)) == 0


def test_a_redis_server_is_not_cleared(g: Any) -> None:
    """Nobody listens there, and one that does says the same."""
    backend = g.Storage(config(g, "redis://127.0.0.1:1"), {})
    backend.register_mem_pool_host(g.pool())
    try:
        backend.on_host_pools_registered()
    except kvpager.Error as error:
        pytest.skip(str(error))
    with pytest.raises(RuntimeError, match="redis://127.0.0.1:1 was not cleared.*store evict"):
        backend.clear()
    backend.close()
