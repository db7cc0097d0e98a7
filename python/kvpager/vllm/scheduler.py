"""vLLM's own scheduler, whose KV-cache manager is kvpager's.

    vllm serve MODEL --scheduler-cls kvpager.vllm.Scheduler
    vllm serve MODEL --scheduler-cls kvpager.vllm.Scheduler --additional-config '{"kvpager_record": "DIR"}'

The second one also writes a recording of its requests into a file of its own in DIR (recording.py).
Nothing of vLLM is replaced: its scheduler makes its manager, and this one takes its place before a
request has come. What the manager does not support is refused here, when the engine starts, with a
ValueError that names it; a version of vLLM that is not known, with an ImportError.
"""

from __future__ import annotations

from typing import Any

from .._guard import Troubles
from ..adapters.vllm import for_scheduler
from . import versions as v

logger = v.logger(__name__)

# What a connector overrides that works on blocks of vLLM's own manager.
_BINDINGS = ("bind_kv_cache_manager", "bind_gpu_block_pool")


def _refuse_connector(connector: Any) -> None:
    """ValueError when it, or one that it is made of, works on vLLM's own blocks."""
    inner = getattr(connector, "_connectors", None)
    if inner is not None:
        for one in inner:
            _refuse_connector(one)
        return
    for name in _BINDINGS:
        if getattr(type(connector), name) is not getattr(v.ConnectorBase, name):
            raise ValueError(f"kv_connector: {type(connector).__name__} works on the blocks of "
                             f"vLLM's own manager ({name}), which kvpager replaces")


class _OnKvpager:
    """Beside a scheduler of vLLM's."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._take_over()

    def _take_over(self: Any) -> None:
        theirs, limits = self.kv_cache_manager, self.scheduler_config
        if self.connector is not None:
            _refuse_connector(self.connector)
        # Requests that wait for KV from elsewhere have blocks, too, and so have those that have
        # ended while a step may still write.
        self.kv_cache_manager = for_scheduler(
            kv_cache_config=self.kv_cache_config, max_model_len=self.max_model_len,
            enable_caching=theirs.enable_caching, use_eagle=theirs.use_eagle,
            log_stats=self.log_stats, enable_kv_cache_events=self.enable_kv_cache_events,
            dcp_world_size=self.dcp_world_size, hash_block_size=self.hash_block_size,
            metrics_collector=theirs.metrics_collector, watermark=limits.watermark,
            max_num_seqs=3 * limits.max_num_seqs + 256)
        if self.connector is not None:
            self.connector.bind_kv_cache_manager(self.kv_cache_manager)
        if self.enable_kv_cache_events:
            self._publish()
        more = getattr(self.vllm_config, "additional_config", None)
        self._requests: Any = None
        if isinstance(more, dict) and "kvpager_record" in more:
            self._record(more["kvpager_record"])

    def _record(self: Any, directory: object) -> None:
        from .recording import Requests, check_directory
        self._troubles = Troubles(logger)
        self._requests = Requests(
            self.vllm_config, check_directory("kvpager_record", directory), self._troubles)
        look_up = self.kv_cache_manager.get_computed_blocks

        def looked_up(request: Any, *given: Any, **named: Any) -> Any:
            found = look_up(request, *given, **named)
            self._troubles.safely("record", self._requests.looked_up, request, found[1])
            return found
        self.kv_cache_manager.get_computed_blocks = looked_up

    def schedule(self: Any, *given: Any, **named: Any) -> Any:
        output = super().schedule(*given, **named)  # type: ignore[misc]
        if self._requests is not None:
            for new in output.scheduled_new_reqs:
                self._troubles.safely("record", self._requests.admitted, self.requests[new.req_id])
            self._troubles.safely("record", self._requests.stepped)
        return output

    def _free_request(self: Any, request: Any, *given: Any, **named: Any) -> Any:
        if self._requests is not None:
            self._troubles.safely("record", self._requests.finished, request)
        return super()._free_request(request, *given, **named)  # type: ignore[misc]

    def shutdown(self: Any) -> None:
        if self._requests is not None:
            self._troubles.safely("record", self._requests.close)
        super().shutdown()  # type: ignore[misc]

    def _publish(self: Any) -> None:
        """Events go out by kvpager's publisher, in the place of vLLM's."""
        from .publisher import replace
        manager = self.kv_cache_manager
        self.kv_event_publisher = replace(
            self.kv_event_publisher, self.kv_events_config,
            self.parallel_config.data_parallel_index, manager.block_size,
            self.kv_cache_config.num_blocks)


class _Ordered(_OnKvpager, v.Scheduler):
    pass


class _Ahead(_OnKvpager, v.AsyncScheduler):
    pass


def Scheduler(vllm_config: Any, *args: Any, **more: Any) -> Any:
    """vLLM's Scheduler or AsyncScheduler, as it would choose itself, on kvpager's cache."""
    ahead = vllm_config.scheduler_config.async_scheduling
    return (_Ahead if ahead else _Ordered)(vllm_config, *args, **more)
