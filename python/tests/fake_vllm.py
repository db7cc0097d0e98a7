"""What kvpager.vllm uses of vLLM 0.32, for tests where vLLM is not installed: names and shapes, and
nothing that decides. `make engines` runs the same tests on vLLM's own."""

from __future__ import annotations

import contextlib
import enum
import hashlib
import logging
from dataclasses import dataclass, field
from typing import Any

import fake_modules


class LookupResult(enum.Enum):
    MISS = enum.auto()
    HIT = enum.auto()
    HIT_PENDING = enum.auto()
    RETRY = enum.auto()


class Medium(enum.Enum):
    CPU = "CPU"
    STORAGE = "STORAGE"


class Locality(enum.Enum):
    LOCAL = "LOCAL"
    REMOTE = "REMOTE"


@dataclass
class ReqContext:
    req_id: str
    _state: dict[type, Any] = field(default_factory=dict)
    _offload_key_positions: dict[bytes, int] = field(default_factory=dict)

    def set_state(self, value: Any) -> None:
        self._state[type(value)] = value

    def get_state(self, kind: type) -> Any:
        return self._state.get(kind)

    def set_offload_key_position(self, key: bytes, end_token: int) -> None:
        self._offload_key_positions[key] = end_token


@dataclass
class RequestOffloadingContext:
    policy: str = "chunk_level"


@dataclass(frozen=True)
class Metadata:
    documentation: str
    labelnames: tuple[str, ...] = ()


@dataclass
class TransferJob:
    job_id: int
    keys: Any
    chunk_ids: Any
    is_promotion: bool
    req_context: ReqContext


@dataclass
class JobResult:
    job_id: int
    success: bool
    successful_keys: Any = None
    transfer_time: float | None = None
    transfer_bytes: int | None = None


class OffloadingConnectorStats:
    def __init__(self) -> None:
        self.data: dict[str, Any] = {"data": {}}

    def increase_counter(self, name: str, value: float = 1, labels: tuple[str, ...] = ()) -> None:
        values = self.data["data"].setdefault(name, {})
        values[labels] = values.get(labels, 0) + value

    def set_gauge(self, name: str, value: float, labels: tuple[str, ...] = ()) -> None:
        self.data["data"].setdefault(name, {})[labels] = value


class SecondaryTierManager:
    def __init__(self, offloading_spec: Any, primary_kv_view: memoryview, tier_type: str,
                 backpressure_detector: Any = None) -> None:
        assert primary_kv_view.strides is not None
        self._block_size_bytes = primary_kv_view.strides[0]
        self.tier_type, self._bp_detector = tier_type, backpressure_detector


class Connector:
    """KVConnectorBase_V1. Of what the connector must answer itself only names, below."""

    requires_kv_delivery = supports_divergent_local_hybrid_hits = True

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        self._metadata: Any = None

    def bind_connector_metadata(self, metadata: Any) -> None:
        self._metadata = metadata

    def clear_connector_metadata(self) -> None:
        self._metadata = None

    def _get_connector_metadata(self) -> Any:
        assert self._metadata is not None
        return self._metadata


def _unknown(self: Any, *given: Any, **named: Any) -> Any:
    raise NotImplementedError


for _name in """bind_gpu_block_pool bind_kv_cache_manager build_connector_meta
        build_connector_worker_meta build_kv_connector_stats build_prom_metrics finish_forward
        get_block_ids_with_load_errors get_external_cache_hit_sources get_finished get_finished_count
        get_handshake_metadata get_kv_connector_kv_cache_events get_kv_connector_stats
        get_loaded_kv_cache_group_ids get_mem_pool_context get_num_new_matched_tokens
        get_required_kvcache_layout get_transfer_results handle_preemptions has_connector_metadata
        has_pending_block_frees has_pending_push_work on_new_request register_finished_partial_tail
        register_kv_caches request_finished requires_piecewise_for_cudagraph reset_cache
        reset_capture_state role save_kv_layer set_host_xfer_buffer_ops set_xfer_handshake_metadata
        set_xfer_handshake_metadata_pp_aware shutdown start_load_kv take_events
        update_connector_output update_state_after_alloc wait_for_layer_load wait_for_save""".split():
    setattr(Connector, _name, _unknown)


class SupportsHMA:
    """Connectors that know layer groups."""

    def request_finished_all_groups(self, request: Any, block_ids: Any) -> Any:
        raise NotImplementedError


class Role(enum.Enum):
    SCHEDULER = 0
    WORKER = 1


class Empty:
    """KVConnectorMetadata, KVConnectorWorkerMetadata."""


@dataclass
class ConnectorStats:
    data: dict[str, Any] = field(default_factory=dict)


class Counter:
    """prometheus_client's."""

    def __init__(self, name: str, documentation: str, labelnames: Any) -> None:
        self.value, self._names, self._made = 0, labelnames, dict[Any, Counter]()

    def labels(self, *values: object) -> Counter:
        assert len(values) == len(self._names)
        return self._made.setdefault(values, Counter("", "", ()))

    def inc(self, number: int) -> None:
        self.value += number


class Gauge:
    """prometheus_client's: the last value, by labels."""

    def __init__(self, name: str, documentation: str, labelnames: Any) -> None:
        self.values, self.labelled = dict[Any, float](), tuple[object, ...]()

    def labels(self, *values: object) -> Gauge:
        self.labelled = values
        return self

    def set(self, value: float) -> None:
        self.values[self.labelled] = value


class ConnectorPrometheus:
    """KVConnectorPromMetrics."""

    def __init__(self, config: Any, types: Any, labelnames: Any, values: Any) -> None:
        self._counter_cls, self._gauge_cls = types[Counter], types[Gauge]


@dataclass
class BlockStored:
    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None


@dataclass
class BlockRemoved:
    block_hashes: list[int]
    medium: str | None


def hash_block_tokens(function: Any, before: bytes | None, tokens: Any) -> bytes:
    return bytes(function(repr((before, tuple(tokens), None)).encode()))


class Platform:
    @staticmethod
    def get_device_name() -> str:
        return "cpu"


def installed() -> contextlib.AbstractContextManager[None]:
    """As if vLLM was there."""
    offload = "vllm.v1.kv_offload"
    metrics = "vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics"
    connector = "vllm.distributed.kv_transfer.kv_connector.v1.base"
    return fake_modules.installed({
        connector: {"KVConnectorBase_V1": Connector, "KVConnectorMetadata": Empty,
                    "KVConnectorRole": Role, "KVConnectorWorkerMetadata": Empty,
                    "SupportsHMA": SupportsHMA},
        connector.replace(".base", ".metrics"): {
            "KVConnectorStats": ConnectorStats, "KVConnectorPromMetrics": ConnectorPrometheus},
        "vllm.v1.attention.backends.cpu_attn": {"_get_attn_isa": lambda *given: "vec"},
        "vllm": {"__version__": "0.32.0"},
        "vllm.distributed.kv_events": {"BlockStored": BlockStored, "BlockRemoved": BlockRemoved},
        "vllm.utils.hashing": {
            "get_hash_fn_by_name": lambda name: lambda data: hashlib.sha256(data).digest()},
        "vllm.v1.core.kv_cache_utils": {
            "hash_block_tokens": hash_block_tokens,
            "maybe_convert_block_hash": lambda name: int.from_bytes(name[-8:], "big")},
        "vllm.logger": {"init_logger": logging.getLogger},
        "vllm.platforms": {"current_platform": Platform},
        metrics: {"OffloadingConnectorStats": OffloadingConnectorStats},
        f"{offload}.base": {
            "LookupResult": LookupResult, "Medium": Medium, "Locality": Locality,
            "ReqContext": ReqContext, "RequestOffloadingContext": RequestOffloadingContext,
            "OffloadingCounterMetadata": Metadata, "OffloadingGaugeMetadata": Metadata},
        f"{offload}.tiering.base": {
            "JobResult": JobResult, "TransferJob": TransferJob,
            "SecondaryTierManager": SecondaryTierManager},
    }, "kvpager.vllm")
