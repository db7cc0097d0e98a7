"""All of vLLM that kvpager.vllm and kvpager.adapters.vllm use, and all in which its versions differ."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from .. import _constants as c

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


WHOLE_VERSION: str = vllm.__version__
VERSION = minor_version(WHOLE_VERSION)

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
    "SupportsHMA": f"{_V1}.base.SupportsHMA",
    "current_platform": "vllm.platforms.current_platform",
    "get_hash_fn_by_name": "vllm.utils.hashing.get_hash_fn_by_name",
    "hash_block_tokens": "vllm.v1.core.kv_cache_utils.hash_block_tokens",
    "init_logger": "vllm.logger.init_logger",
    "kv_events": "vllm.distributed.kv_events",
    "maybe_convert_block_hash": "vllm.v1.core.kv_cache_utils.maybe_convert_block_hash",
}


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "kv_events":
        return importlib.import_module(_NAMES[name])
    module, _, last = _NAMES[name].rpartition(".")
    return getattr(importlib.import_module(module), last)


def logger(name: str) -> Any:
    """A child of the logger that vLLM configures: no line of others appears in its log."""
    return __getattr__("init_logger")(f"vllm.{name}")


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


NULL_BLOCK = 0  # stands for a block of tokens that a window has left behind
_KINDS = ("FullAttentionSpec", "SlidingWindowSpec")
_SHAPE = ("block_size", "num_kv_heads", "head_size", "head_size_v", "dtype")


@dataclass(frozen=True)
class LayerGroup:
    """Layers whose blocks vLLM allocates together.

    layers  by name
    window  tokens that they see and keep; 0: they keep all
    sees    (window, chunk) of layers that keep all and see less: vLLM without its hybrid manager
    """

    layers: tuple[str, ...]
    window: int
    sees: tuple[int, int]


def layer_groups(kv_cache: Any) -> tuple[Any, list[LayerGroup]]:
    """What the layer groups have in common, and the groups. ValueError: they are not supported."""
    specs = [group.kv_cache_spec for group in kv_cache.kv_cache_groups]
    kinds = [type(spec).__name__ for spec in specs]
    if not kinds or any(kind not in _KINDS for kind in kinds):
        raise ValueError("KvpagerConnector: only layers with full attention and with sliding windows "
                         f"are supported; this model has layer groups {', '.join(kinds) or 'of no kind'}")
    if len(kinds) > c.GROUPS_MAX:
        raise ValueError(f"KvpagerConnector: {len(kinds)} layer groups are not supported, at most "
                         f"{c.GROUPS_MAX}")
    for name in _SHAPE:
        values = [str(getattr(spec, name)) for spec in specs]
        if len(set(values)) != 1:
            raise ValueError(f"KvpagerConnector: layer groups that differ in {name} are not "
                             f"supported; this model has {', '.join(values)}")
    made = []
    for group, spec, kind in zip(kv_cache.kv_cache_groups, specs, kinds):
        window = getattr(spec, "sliding_window", None) or 0
        chunk = getattr(spec, "attention_chunk_size", None) or 0
        slides = kind == "SlidingWindowSpec"
        made.append(LayerGroup(tuple(group.layer_names), window if slides else 0,
                               (0, 0) if slides else (window, chunk)))
    return specs[0], made


def groups_are_full(groups: list[LayerGroup]) -> bool:
    """Whether there is one group, whose layers see all tokens."""
    return len(groups) == 1 and groups[0].window == 0 and groups[0].sees == (0, 0)


def ranks(parallel: Any) -> tuple[int, int]:
    """Ranks of tensor parallelism, and which one this is."""
    for name in ("pipeline_parallel_size", "decode_context_parallel_size",
                 "prefill_context_parallel_size"):
        if getattr(parallel, name, 1) != 1:
            raise ValueError(f"KvpagerConnector: {name} other than 1 is not supported")
    return parallel.tensor_parallel_size, parallel.rank % parallel.tensor_parallel_size


def engine_facts(config: Any, spec: Any, groups: list[LayerGroup]) -> dict[str, Any]:
    """What the bytes of KV depend on besides the model's weights and shapes. Layers that see less
    than all come in where there are some: without them, records are those of earlier versions."""
    from vllm.v1.attention.backends import cpu_attn

    model, speculative = config.model_config, config.speculative_config
    kind = cpu_attn._get_attn_isa(spec.dtype, spec.block_size, spec.head_size,
                                  config.cache_config.cache_dtype)
    windows = {} if groups_are_full(groups) else {
        "groups": [[group.window, group.sees, group.layers] for group in groups],
        "layer_types": getattr(model.hf_text_config, "layer_types", None)}
    return {
        **windows,
        "version": VERSION,
        "layout": f"cpu {kind}",
        "draft": None if speculative is None else str(speculative.model),
        "rope": [getattr(model.hf_text_config, name, None)
                 for name in ("rope_parameters", "rope_scaling", "rope_theta")],
        "overrides": str(model.hf_overrides),
        "kv_type": str(config.cache_config.cache_dtype),
    }


def tells_events(config: Any) -> bool:
    """Whether KV events are asked for."""
    events = getattr(config, "kv_events_config", None)
    return bool(events is not None and events.enable_kv_cache_events)


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


def blocks_of(scheduled: Any, request: str) -> tuple[list[int], ...] | None:
    """The block ids of a request that is scheduled, of each layer group."""
    made: tuple[list[int], ...] | None = scheduled.kv_connector_block_state.get_block_ids(request)
    return made
