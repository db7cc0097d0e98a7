"""What kvpager.sglang uses of SGLang 0.5.23, for tests where SGLang is not installed: names and
shapes, and nothing that decides. `make engines` runs the same tests on SGLang's own."""

from __future__ import annotations

import contextlib
import enum
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np


class PoolName(str, enum.Enum):
    KV = "kv"
    MAMBA = "mamba"
    INDEXER = "indexer"

    def __str__(self) -> str:
        return self.value


class PoolHitPolicy(str, enum.Enum):
    ALL_PAGES = "all_pages"
    TRAILING_PAGES = "trailing_pages"
    BLOCK_GROUPS = "block_groups"


@dataclass
class PoolTransfer:
    name: PoolName
    host_indices: Any = None
    keys: Any = None
    hit_policy: PoolHitPolicy = PoolHitPolicy.ALL_PAGES


@dataclass
class PoolTransferResult:
    kv_hit_pages: int
    extra_pool_hit_pages: dict[str, int]
    restorable_prefix_pages: Any = None


@dataclass
class HiCacheStorageConfig:
    tp_rank: int
    tp_size: int
    pp_rank: int
    pp_size: int
    attn_cp_rank: int
    attn_cp_size: int
    is_mla_model: bool
    enable_storage_metrics: bool
    is_page_first_layout: bool
    model_name: str | None
    tp_lcm_size: int | None = None
    should_split_heads: bool = False
    extra_config: dict[str, Any] | None = None
    dcp_size: int = 1
    dcp_rank: int = 0
    logical_page_size: int | None = None


@dataclass
class StorageMetrics:
    prefetch_pgs: list[int] = field(default_factory=list)
    backup_pgs: list[int] = field(default_factory=list)
    prefetch_bandwidth: list[float] = field(default_factory=list)
    backup_bandwidth: list[float] = field(default_factory=list)


class Storage:
    """HiCacheStorage."""


class HostPool:
    """A host pool whose pages lie one after the other."""

    def __init__(self, pages: int, page_size: int, layers: int, dtype: str) -> None:
        self.page_size, self.layout, self.dtype, self.layer_num = page_size, "flat", dtype, layers
        self.kv_buffer = np.zeros((pages, layers * page_size * 64), np.uint8)

    def get_dummy_flat_data_page(self) -> Any:
        return np.zeros_like(self.kv_buffer[0])

    def get_data_page(self, index: int, flat: bool = True) -> Any:
        return self.kv_buffer[index // self.page_size].copy()

    def set_from_flat_data_page(self, index: int, data_page: Any) -> None:
        self.kv_buffer[index // self.page_size] = data_page


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """As if SGLang was there."""
    contents: dict[str, dict[str, Any]] = {
        "sglang.version": {"__version__": "0.5.23"},
        "sglang.srt.observability.metrics_collector": {"StorageMetrics": StorageMetrics},
        "sglang.srt.mem_cache.hicache_storage": {
            "HiCacheStorage": Storage, "PoolName": PoolName, "PoolHitPolicy": PoolHitPolicy,
            "PoolTransfer": PoolTransfer, "PoolTransferResult": PoolTransferResult,
            "HiCacheStorageConfig": HiCacheStorageConfig}}
    made: dict[str, types.ModuleType] = {}
    for name, names in contents.items():
        for end in range(1, name.count(".") + 2):
            path = ".".join(name.split(".")[:end])
            made.setdefault(path, types.ModuleType(path))
        made[name].__dict__.update(names)
    for path, module in made.items():
        before, _, last = path.rpartition(".")
        if before:
            setattr(made[before], last, module)
    sys.modules.update(made)
    try:
        yield
    finally:
        ours = [name for name in sys.modules if name.startswith("kvpager.sglang")]
        for name in [*made, *ours]:
            del sys.modules[name]
