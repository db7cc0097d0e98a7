"""All of SGLang that kvpager.sglang uses, and all in which its versions differ."""

from __future__ import annotations

from typing import Any

try:
    import sglang.version as _version
except ModuleNotFoundError as _error:
    raise ImportError("kvpager.sglang: SGLang is not installed", name=_error.name) from None

KNOWN = ("0.5.23",)


def known_version(version: str) -> str:
    """The version. ImportError: kvpager.sglang was not tested with it."""
    if version.split("+")[0] not in KNOWN:
        raise ImportError(
            f"kvpager.sglang: SGLang {version} is not supported, only {', '.join(KNOWN)}: its "
            "interface for storage changes between versions")
    return version.split("+")[0]


VERSION = known_version(_version.__version__)

from sglang.srt.mem_cache import hicache_storage as _storage  # noqa: E402
from sglang.srt.observability import metrics_collector as _metrics  # noqa: E402

Metrics = _metrics.StorageMetrics
Storage = _storage.HiCacheStorage
Result = _storage.PoolTransferResult
KV, MAMBA = str(_storage.PoolName.KV.value), str(_storage.PoolName.MAMBA.value)
ALL_PAGES, TRAILING = _storage.PoolHitPolicy.ALL_PAGES, _storage.PoolHitPolicy.TRAILING_PAGES


def facts(config: Any) -> dict[str, Any]:
    """Of a HiCacheStorageConfig: what pages depend on. The rank inside tensor parallelism is part
    of each record's identity instead: ranks that hold the same pages share them."""
    return {
        "version": VERSION, "mla": config.is_mla_model, "tp_size": config.tp_size,
        "pp": [config.pp_rank, config.pp_size], "cp": [config.attn_cp_rank, config.attn_cp_size],
        "dcp": [config.dcp_rank, config.dcp_size], "page": config.logical_page_size,
        "heads": [config.tp_lcm_size, config.should_split_heads]}


def pool_facts(pool: Any) -> list[Any]:
    """Of a host pool: what the bytes of its pages depend on."""
    names = ("dtype", "layout", "page_size", "start_layer", "end_layer", "layer_num", "head_num",
             "head_dim", "v_head_dim", "kv_lora_rank", "qk_rope_head_dim", "storage_format_tag")
    return [type(pool).__name__, *(str(getattr(pool, name, None)) for name in names)]
