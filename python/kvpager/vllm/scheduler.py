"""vLLM's own scheduler, whose KV-cache manager is kvpager's.

    vllm serve MODEL --scheduler-cls kvpager.vllm.Scheduler

Nothing of vLLM is replaced: its scheduler makes its manager, and this one takes its place before a
request has come. What the manager does not support is refused here, when the engine starts, with a
ValueError that names it; a version of vLLM that is not known, with an ImportError.
"""

from __future__ import annotations

from typing import Any

from ..adapters.vllm import for_scheduler
from . import versions as v

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


class _Ordered(_OnKvpager, v.Scheduler):
    pass


class _Ahead(_OnKvpager, v.AsyncScheduler):
    pass


def Scheduler(vllm_config: Any, *args: Any, **more: Any) -> Any:
    """vLLM's Scheduler or AsyncScheduler, as it would choose itself, on kvpager's cache."""
    ahead = vllm_config.scheduler_config.async_scheduling
    return (_Ahead if ahead else _Ordered)(vllm_config, *args, **more)
