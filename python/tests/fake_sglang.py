"""What kvpager.sglang uses of SGLang 0.5.23, for tests where SGLang is not installed: names and
shapes, and nothing that decides. `make engines` runs the same tests on SGLang's own."""

from __future__ import annotations

import contextlib
import enum
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import fake_modules


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


def installed() -> contextlib.AbstractContextManager[None]:
    """As if SGLang was there."""
    return fake_modules.installed({
        "sglang.version": {"__version__": "0.5.23"},
        "sglang.srt.observability.metrics_collector": {"StorageMetrics": StorageMetrics},
        "sglang.srt.mem_cache.hicache_storage": {
            "HiCacheStorage": Storage, "PoolName": PoolName, "PoolHitPolicy": PoolHitPolicy,
            "PoolTransfer": PoolTransfer, "PoolTransferResult": PoolTransferResult,
            "HiCacheStorageConfig": HiCacheStorageConfig}}, "kvpager.sglang")
