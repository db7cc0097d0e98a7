"""KvpagerConnector: vLLM's KV in host memory and in stores, for vLLM's CPU backend.

The scheduler's side (planner) sends tokens; the worker's side (mover) finds what there is of them in
host memory and in stores, verifies it, and says how much. Nothing is promised before that: until then
vLLM is told to ask again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from .. import _constants as c
from .. import store as s
from .._engines import secret_of, urls_of, weights_of
from .._guard import Troubles, never_raises
from . import versions as v
from .host_events import Names, names_for
from .messages import Step
from .metrics import Prometheus, Stats
from .mover import Mover
from .planner import Planner
from .reasons import PromptReasons

logger = v.logger(__name__)

_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_TYPES = {"float32": c.F32, "float16": c.F16, "bfloat16": c.BF16}
_FIELDS = {"host_memory", "store", "record_blocks", "weights", "identity", "secret", "deadline",
           "least_tokens", "load"}


def size_of(name: str, value: object) -> int:
    """Bytes of "8GiB" or of a number."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    found = re.fullmatch(r"(\d+) ?([KMGT]iB|)", value) if isinstance(value, str) else None
    if found is None or int(found[1]) == 0:
        raise ValueError(f"{name}: {value!r} is no size; write bytes or 8GiB")
    return int(found[1]) * _UNITS[found[2]]


def seconds_of(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e9:
        raise ValueError(f"{name}: {value!r} is no time, seconds")
    return float(value)


class Settings:
    """kv_connector_extra_config.

    host_memory   of all ranks, "8GiB"; what is evicted from vLLM's KV cache is found there
    store         file:PATH?size=BYTES, as kvpager.store.Store.open, or a list, nearest first: what
                  is written there outlives the process. Default: none
    record_blocks  blocks of a record: 1, 2, 4 ...; default: the least with 512 KiB
    weights       identifies the weights: 64 hexadecimal digits, a directory or a file. Default: the
                  directory that vLLM loads the model from
    identity      whatever else KV depends on. Another text: other records
    secret        file:PATH, what is in it makes keyed codes
    deadline      seconds that a request waits for its prefix at most; default 2
    least_tokens  shorter prefixes are computed; default: a block
    load          "sooner": from a store only what is expected sooner than computing it, the default;
                  "always": whatever stores have, up to the deadline
    """

    def __init__(self, given: dict[str, Any]) -> None:
        unknown = sorted(given.keys() - _FIELDS)
        if unknown:
            raise ValueError(f"kv_connector_extra_config: {unknown[0]} is unknown; known are "
                             f"{', '.join(sorted(_FIELDS))}")
        if "host_memory" not in given:
            raise ValueError("kv_connector_extra_config: host_memory is missing")
        self.host_memory = size_of("host_memory", given["host_memory"])
        self.urls = urls_of(given.get("store", []))
        self.weights, self.identity = given.get("weights"), given.get("identity", "")
        if not isinstance(self.identity, str):
            raise ValueError("identity: needs a text")
        self.record_blocks = given.get("record_blocks", 0)
        if type(self.record_blocks) is not int or self.record_blocks < 0:
            raise ValueError("record_blocks: needs a number")
        self.secret = secret_of(given.get("secret"))
        self.deadline = seconds_of("deadline", given.get("deadline", 2))
        self.least_tokens = int(seconds_of("least_tokens", given.get("least_tokens", 0)))
        if given.get("load", "sooner") not in ("sooner", "always"):
            raise ValueError(f"load: is {given['load']!r}, expected sooner or always")
        self.always = given.get("load") == "always"


def model_of(config: Any, kv_cache: Any, settings: Settings) -> s.FingerprintInput:
    """What KV depends on. ValueError: what is not supported, and why."""
    spec, groups = v.layer_groups(kv_cache)
    layers = sum(len(group.layers) for group in groups)
    dtype = str(spec.dtype).removeprefix("torch.")
    if dtype not in _TYPES:
        raise ValueError(f"KvpagerConnector: KV of type {dtype} is not supported, only "
                         f"{', '.join(_TYPES)}")
    model, parallel = config.model_config, config.parallel_config
    ranks, rank = v.ranks(parallel)
    facts = {**v.engine_facts(config, spec, groups), "identity": settings.identity}
    return s.FingerprintInput(
        weights=weights_of(settings.weights, model.model),
        compute_type=str(model.dtype).removeprefix("torch."), type=_TYPES[dtype],
        quantisation=model.quantization or "", k_size=spec.head_size, v_size=spec.head_size_v,
        model_layers=layers, model_heads=spec.num_kv_heads * ranks, block_tokens=spec.block_size,
        unit_tokens=spec.block_size,
        slice=s.Slice(0, layers, rank * spec.num_kv_heads, spec.num_kv_heads),
        rope=json.dumps(facts, sort_keys=True, default=str).encode(),
        order=f"vllm {facts['layout']}")


def _broken_promise(self: Any, request: Any, blocks: Any, num_external_tokens: int) -> None:
    self._plan.break_promise(request, blocks, num_external_tokens)


def _nothing(self: Any, *given: Any, **named: Any) -> None:
    pass


def _alone(self: Any, request: Any, *given: Any) -> tuple[int, bool]:
    self.troubles.safely("compute", lambda: self._plan.compute(request.request_id))
    return 0, False


def _finished(self: Any, request: Any, *given: Any) -> tuple[bool, None]:
    self.troubles.safely("ended", lambda: self._plan.ended(request.request_id))
    return False, None


# What the engine is told where a method would raise: it computes.
_ANSWERS: dict[str, Callable[..., Any]] = {
    "get_num_new_matched_tokens": _alone,
    "update_state_after_alloc": _broken_promise,
    "build_connector_meta": lambda self, *given: self._plan.take(),
    "update_connector_output": _nothing,  # requests that wait have a deadline
    "request_finished": _finished,
    "request_finished_all_groups": _finished,
    "reset_cache": lambda self: self._plan.stop(),
    "bind_connector_metadata": _nothing,
    "start_load_kv": lambda self, *given, **named: self._move.fail_all(),
    "wait_for_layer_load": _nothing,
    "save_kv_layer": _nothing,
    "wait_for_save": _nothing,
    "get_block_ids_with_load_errors": lambda self: self._move.every_block(),
    "build_connector_worker_meta": _nothing,
    "get_kv_connector_stats": _nothing,
    "take_events": lambda self: [],
    "shutdown": _nothing,
}


@never_raises(_ANSWERS, refuses=("register_kv_caches", "build_kv_connector_stats",
                                 "build_prom_metrics"))
class KvpagerConnector(v.ConnectorBase, v.SupportsHMA):
    """What --kv-transfer-config names: Settings."""

    def __new__(cls, vllm_config: Any, role: Any, kv_cache_config: Any = None) -> Any:
        """Another class where nothing is loaded or kept: its __init__ is called by itself."""
        if "record_only" in vllm_config.kv_transfer_config.kv_connector_extra_config:
            from .record_only import RecordOnly
            return RecordOnly(vllm_config, role, kv_cache_config)
        return super().__new__(cls)

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any = None) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self.troubles = Troubles(logger)
        settings = Settings(vllm_config.kv_transfer_config.kv_connector_extra_config)
        model = model_of(vllm_config, kv_cache_config, settings)
        self._planner: Planner | None = None
        self._reasons: PromptReasons | None = None
        self._mover: Mover | None = None
        self._names: Names | None = None
        self._told: list[Any] = []
        if role == v.ConnectorRole.SCHEDULER:
            self._planner = Planner(model.block_tokens, max(settings.least_tokens, model.block_tokens),
                                    settings.deadline, vllm_config.speculative_config is not None,
                                    self.troubles)
            self._reasons = PromptReasons(model.block_tokens, self.troubles.counts)
            if self._tells(vllm_config, kv_cache_config):
                self._names = names_for(vllm_config, model.block_tokens)
        else:
            ranks, rank = v.ranks(vllm_config.parallel_config)
            self._mover = Mover(model, settings.host_memory // ranks, settings.urls,
                                settings.record_blocks, settings.secret, self.troubles, rank,
                                groups=v.layer_groups(kv_cache_config)[1], always=settings.always,
                                tells=self._tells(vllm_config, kv_cache_config))

    @staticmethod
    def _tells(vllm_config: Any, kv_cache_config: Any) -> bool:
        """Routers ask how long a prefix is: with windows there are several answers."""
        return v.tells_events(vllm_config) and \
            v.groups_are_full(v.layer_groups(kv_cache_config)[1])

    @property
    def _plan(self) -> Planner:
        assert self._planner is not None
        return self._planner

    @property
    def _why(self) -> PromptReasons:
        assert self._reasons is not None
        return self._reasons

    @property
    def _move(self) -> Mover:
        assert self._mover is not None
        return self._mover

    @property
    def requires_kv_delivery(self) -> bool:
        return False

    # ------------------------------------------------------------------- the scheduler's side

    def get_num_new_matched_tokens(self, request: Any,
                                   num_computed_tokens: int) -> tuple[int | None, bool]:
        self.troubles.safely("asked", self._why.asked, request, num_computed_tokens)
        return self._plan.answer(request, num_computed_tokens), False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        self.troubles.safely("admitted", self._why.admitted, request, num_external_tokens,
                             self._plan.expired(request.request_id))
        self._plan.admitted(request, blocks.get_block_ids(), num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        self._plan.next_step()
        return self._plan.step(scheduler_output)

    def update_connector_output(self, connector_output: Any) -> None:
        if connector_output.kv_connector_worker_meta is not None:
            self._plan.learn(connector_output.kv_connector_worker_meta)
            self._why.learn(connector_output.kv_connector_worker_meta.kept_back)
            if self._names is not None:
                self._told += self._names.events(connector_output.kv_connector_worker_meta.told)

    def take_events(self) -> list[Any]:
        """What came to host memory and left it, as vLLM's events."""
        told, self._told = self._told, []
        return told

    def request_finished(self, request: Any,
                         block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        return self.request_finished_all_groups(request, (block_ids,))

    def request_finished_all_groups(self, request: Any, block_ids: tuple[list[int], ...]
                                    ) -> tuple[bool, dict[str, Any] | None]:
        self.troubles.safely("ended", self._why.ended, request)
        return _finished(self, request)

    def reset_cache(self) -> bool | None:
        self._plan.reset()
        return True

    # ---------------------------------------------------------------------- the worker's side

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        self._move.register(kv_caches)

    def bind_connector_metadata(self, connector_metadata: Any) -> None:
        super().bind_connector_metadata(connector_metadata)
        if self._mover is not None:
            self._mover.bound()

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        step: Step = self._get_connector_metadata()
        self._move.begin(step)

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Loads have ended when start_load_kv returns."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any,
                      **kwargs: Any) -> None:
        """Blocks are copied whole, after the last layer."""

    def wait_for_save(self) -> None:
        self._move.end(self._get_connector_metadata())

    def get_block_ids_with_load_errors(self) -> set[int]:
        return self._move.failed()

    def build_connector_worker_meta(self) -> Any:
        return self._move.found()

    def get_kv_connector_stats(self) -> Any:
        """vLLM asks both sides."""
        data = self.troubles.take()
        if self._mover is not None:
            data |= self._mover.gauges()
        return Stats(data=data) if data else None

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> Any:
        return Stats(data=data or {})

    @classmethod
    def build_prom_metrics(cls, vllm_config: Any, metric_types: Any, labelnames: list[str],
                           per_engine_labelvalues: Any) -> Any:
        return Prometheus(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    def shutdown(self) -> None:
        if self._mover is not None:
            self._mover.close()
