"""For an unpatched vLLM. docs/ENGINES.md is the guide.

KvpagerConnector   KV in host memory and in stores, for vLLM's CPU back end:

    python -m vllm.entrypoints.openai.api_server --model MODEL --kv-transfer-config '{
        "kv_connector": "KvpagerConnector", "kv_connector_module_path": "kvpager.vllm",
        "kv_role": "kv_both", "kv_connector_extra_config": {
            "host_memory": "8GiB", "store": "file:/var/cache/kv?size=200GiB"}}'

StoreTier          a secondary tier for vLLM's own offloading, over a kvpager store:

    vllm serve MODEL --kv-transfer-config '{
        "kv_connector": "OffloadingConnector", "kv_role": "kv_both",
        "kv_connector_extra_config": {
            "spec_name": "TieringOffloadingSpec", "cpu_bytes_to_use": 8589934592,
            "secondary_tiers": [{"type": "StoreTier", "module_path": "kvpager.vllm",
                                 "store": "file:/var/cache/kv?size=200GiB"}]}}'

Scheduler          vLLM's own scheduler on kvpager's cache:

    vllm serve MODEL --scheduler-cls kvpager.vllm.Scheduler

Each is imported when it is asked for. Without vLLM, or with a version that it does not know, that is
an ImportError.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .connector import KvpagerConnector as KvpagerConnector
    from .scheduler import Scheduler as Scheduler
    from .store_tier import StoreTier as StoreTier


def __getattr__(name: str) -> Any:
    if name == "KvpagerConnector":
        from .connector import KvpagerConnector
        return KvpagerConnector
    if name == "StoreTier":
        from .store_tier import StoreTier
        return StoreTier
    if name == "Scheduler":
        from .scheduler import Scheduler
        return Scheduler
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
