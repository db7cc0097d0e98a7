"""All of vLLM that kvpager.vllm and kvpager.adapters.vllm use, and all in which its versions differ."""

from __future__ import annotations

import importlib
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
            f"{', '.join(f'{major}.{minor}' for major, minor in KNOWN)}: what it uses of vLLM "
            "changes between versions")
    return ".".join(parts[:2])


VERSION = minor_version(vllm.__version__)

_V1 = "vllm.distributed.kv_transfer.kv_connector.v1"
_OFFLOAD = "vllm.v1.kv_offload"
# Our name: where vLLM has it. A module is imported when a name of it is used, so that each class here
# needs only what it uses itself.
_NAMES = {
    "AsyncScheduler": "vllm.v1.core.sched.async_scheduler.AsyncScheduler",
    "ConnectorBase": f"{_V1}.base.KVConnectorBase_V1",
    "ConnectorMetadata": f"{_V1}.base.KVConnectorMetadata",
    "ConnectorPrometheus": f"{_V1}.metrics.KVConnectorPromMetrics",
    "ConnectorRole": f"{_V1}.base.KVConnectorRole",
    "ConnectorStats": f"{_V1}.metrics.KVConnectorStats",
    "ConnectorWorkerMetadata": f"{_V1}.base.KVConnectorWorkerMetadata",
    "CounterMetadata": f"{_OFFLOAD}.base.OffloadingCounterMetadata",
    "GaugeMetadata": f"{_OFFLOAD}.base.OffloadingGaugeMetadata",
    "JobResult": f"{_OFFLOAD}.tiering.base.JobResult",
    "Locality": f"{_OFFLOAD}.base.Locality",
    "LookupResult": f"{_OFFLOAD}.base.LookupResult",
    "Medium": f"{_OFFLOAD}.base.Medium",
    "PrefixCacheStats": "vllm.v1.metrics.stats.PrefixCacheStats",
    "RequestContext": f"{_OFFLOAD}.base.RequestOffloadingContext",
    "Scheduler": "vllm.v1.core.sched.scheduler.Scheduler",
    "SecondaryTier": f"{_OFFLOAD}.tiering.base.SecondaryTierManager",
    "Stats": f"{_V1}.offloading.metrics.OffloadingConnectorStats",
    "current_platform": "vllm.platforms.current_platform",
    "init_logger": "vllm.logger.init_logger",
    "kv_events": "vllm.distributed.kv_events",
}


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "kv_events":
        return importlib.import_module(_NAMES[name])
    module, _, last = _NAMES[name].rpartition(".")
    return getattr(importlib.import_module(module), last)


def device() -> str:
    """What KV is computed on."""
    platform = __getattr__("current_platform")
    try:
        return str(platform.get_device_name())
    except NotImplementedError:  # a vLLM for another platform
        return str(platform.device_type)


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


def one_group(kv_cache: Any) -> tuple[Any, int]:
    """The spec of the only layer group, and its layers. ValueError: others are not supported."""
    groups = kv_cache.kv_cache_groups
    kinds = [type(group.kv_cache_spec).__name__ for group in groups]
    if len(groups) != 1 or kinds != ["FullAttentionSpec"]:
        raise ValueError("KvpagerConnector: only models with full attention in all layers are "
                         f"supported; this one has layer groups {', '.join(kinds) or 'of no kind'}")
    spec = groups[0].kv_cache_spec
    if getattr(spec, "sliding_window", None) or getattr(spec, "attention_chunk_size", None):
        raise ValueError("KvpagerConnector: layers with a sliding window or with attention in "
                         "chunks are not supported")
    return spec, len(groups[0].layer_names)


def ranks(parallel: Any) -> tuple[int, int]:
    """Ranks of tensor parallelism, and which one this is."""
    for name in ("pipeline_parallel_size", "decode_context_parallel_size",
                 "prefill_context_parallel_size"):
        if getattr(parallel, name, 1) != 1:
            raise ValueError(f"KvpagerConnector: {name} other than 1 is not supported")
    return parallel.tensor_parallel_size, parallel.rank % parallel.tensor_parallel_size


def engine_facts(config: Any, spec: Any) -> dict[str, Any]:
    """What the bytes of KV depend on besides the model's weights and shapes."""
    from vllm.v1.attention.backends import cpu_attn

    model, speculative = config.model_config, config.speculative_config
    kind = cpu_attn._get_attn_isa(spec.dtype, spec.block_size, spec.head_size,
                                  config.cache_config.cache_dtype)
    return {
        "version": VERSION,
        "layout": f"cpu {kind}",
        "draft": None if speculative is None else str(speculative.model),
        "rope": [getattr(model.hf_text_config, name, None)
                 for name in ("rope_parameters", "rope_scaling", "rope_theta")],
        "overrides": str(model.hf_overrides),
        "kv_type": str(config.cache_config.cache_dtype),
    }


def tokens_only(request: Any) -> bool:
    """Whether tokens, items and names say what a request's KV is: no embeddings in their place."""
    return request.prompt_embeds is None and request.prompt_token_ids is not None


def items(request: Any) -> list[tuple[int, int, bytes]]:
    """(begin, end, content) of each multimodal item."""
    made = []
    for feature in request.mm_features or ():
        begin = feature.mm_position.offset
        made.append((begin, begin + feature.mm_position.length, feature.identifier.encode()))
    return made


def blocks_of(scheduled: Any, request: str) -> list[int] | None:
    """The block ids of a request that is scheduled."""
    found = scheduled.kv_connector_block_state.get_block_ids(request)
    return None if found is None else list(found[0])
