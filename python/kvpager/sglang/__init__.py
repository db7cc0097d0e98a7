"""KV of SGLang that outlives the process, for an unpatched SGLang.

KvpagerStorage   the third tier of SGLang's HiCache, over a kvpager store:

    python -m sglang.launch_server --model-path MODEL --enable-hierarchical-cache \\
        --hicache-storage-backend dynamic --hicache-storage-backend-extra-config '{
            "backend_name": "kvpager", "module_path": "kvpager.sglang",
            "class_name": "KvpagerStorage", "interface_v1": 1,
            "store": "file:/var/cache/kv?size=200GiB"}'

docs/ENGINES.md is the guide. Importing this module without SGLang, or with a version that it does
not know, is an ImportError.
"""

from .storage import KvpagerStorage as KvpagerStorage
