"""KV of vLLM that outlives the process, for an unpatched vLLM.

StoreTier   a secondary tier for vLLM's own offloading, over a kvpager store:

    vllm serve MODEL --kv-transfer-config '{
        "kv_connector": "OffloadingConnector", "kv_role": "kv_both",
        "kv_connector_extra_config": {
            "spec_name": "TieringOffloadingSpec", "cpu_bytes_to_use": 8589934592,
            "secondary_tiers": [{"type": "StoreTier", "module_path": "kvpager.vllm",
                                 "store": "file:/var/cache/kv?size=200GiB"}]}}'

docs/ENGINES.md is the guide. Importing this module without vLLM, or with a version that it does not
know, is an ImportError.
"""

from .connector import KvpagerConnector as KvpagerConnector
from .store_tier import StoreTier as StoreTier
