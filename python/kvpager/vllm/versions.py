"""All of vLLM that kvpager.vllm uses, and all in which its versions differ."""

from __future__ import annotations

from typing import Any

try:
    import vllm
except ModuleNotFoundError as _error:
    raise ImportError("kvpager.vllm: vLLM is not installed", name=_error.name) from None

KNOWN = ((0, 31), (0, 32), (0, 33))


def minor_version(version: str) -> str:
    """ "0.32" of "0.32.1+cpu". ImportError: kvpager.vllm was not tested with it."""
    parts = version.split(".")
    if not any(parts[:2] == [str(number) for number in known] for known in KNOWN):
        raise ImportError(
            f"kvpager.vllm: vLLM {version} is not supported, only "
            f"{', '.join(f'{major}.{minor}' for major, minor in KNOWN)}: its interface for tiers "
            "is experimental and changes between versions")
    return ".".join(parts[:2])


VERSION = minor_version(vllm.__version__)

from vllm import logger as _logger  # noqa: E402
from vllm.distributed.kv_transfer.kv_connector.v1.offloading import metrics as _metrics  # noqa: E402
from vllm.platforms import current_platform  # noqa: E402
from vllm.v1.kv_offload import base as _base  # noqa: E402
from vllm.v1.kv_offload.tiering import base as _tiering  # noqa: E402

init_logger = _logger.init_logger
Stats = _metrics.OffloadingConnectorStats
CounterMetadata, GaugeMetadata = _base.OffloadingCounterMetadata, _base.OffloadingGaugeMetadata
Locality, LookupResult, Medium = _base.Locality, _base.LookupResult, _base.Medium
RequestContext = _base.RequestOffloadingContext
JobResult, SecondaryTier = _tiering.JobResult, _tiering.SecondaryTierManager


def device() -> str:
    """What KV is computed on."""
    try:
        return str(current_platform.get_device_name())
    except NotImplementedError:  # a vLLM for another platform
        return str(current_platform.device_type)


def positions(context: Any) -> dict[bytes, int]:
    """Where each key that a request uses ends, in tokens, first to last."""
    made: dict[bytes, int] = context._offload_key_positions
    return made


def facts(config: Any) -> dict[str, Any]:
    """Of an OffloadingConfig: everything that the bytes of a chunk depend on."""
    parallel = config.parallel
    return {
        "version": VERSION,
        "device": device(),
        "dtype": config.model.dtype,
        "layout": config.kv_cache_layout,
        "canonical": config.canonical_layout,
        "replicated": config.replicated_layout,
        "groups": [[group.group_id, group.tokens_per_block, list(group.layer_names),
                    getattr(group, "sliding_window_size_in_chunks", None)]  # since 0.33
                   for group in config.groups],
        "tokens_per_hash": config.cache.tokens_per_hash,
        "blocks_per_chunk": config.cache.blocks_per_chunk,
        "bytes_per_block": config.worker_kv_bytes_per_block,
        "ranks": [parallel.world_size, parallel.tp_size, parallel.pp_size, parallel.pcp_size,
                  parallel.dcp_size, parallel.rank],
    }
