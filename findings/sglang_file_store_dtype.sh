#!/usr/bin/env bash
# sglang 0.5.23: HiCache's file store gives the bytes of one KV type as KV of another.
#
# Expected: if an engine is started again with another --kv-cache-dtype over the same folder, pages written before
# are not found, or refused: their names or their files say of which type they are.
# Seen: a page's name has the hash of its tokens, the model's name and the ranks, and its file has bare bytes. Pages of
# bfloat16 are "found" and read as float16 (4 of 1,024 numbers are right), and their first half is read as float8. Only the
# other way, to a larger type, does a read fail, by OSError.
#
# kvpager's: the back end for SGLang puts type, layout, layers and page into the identity of what it stores; another
# finds nothing (python/tests/test_sglang_tier.py, test_one_fact_changed_finds_nothing).
#
# Downloads 450 MB. Status 0: it is so.
set -euo pipefail

room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
pip=("$room/venv/bin/pip" install --quiet)
"${pip[@]}" torch==2.13.0+cpu || "${pip[@]}" torch==2.13.0 # the first is smaller
"${pip[@]}" numpy orjson psutil pybase64 requests triton packaging pillow starlette msgspec pydantic pyzmq tqdm \
    ipython aiohttp
"${pip[@]}" --no-deps sglang==0.5.23
cat >"$room/run.py" <<'END'
import sys

import torch
from sglang.srt.mem_cache.hicache_storage import HiCacheFile, HiCacheStorageConfig
from sglang.srt.mem_cache.utils import get_hash_str

config = HiCacheStorageConfig(tp_rank=0, tp_size=1, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1,
                              is_mla_model=False, enable_storage_metrics=False, is_page_first_layout=True,
                              model_name="example/model")
page = get_hash_str(list(range(16)), None)
shape = (2, 4, 16, 8)  # K and V, layers, tokens, elements
kv = torch.linspace(-4, 4, 1024).to(torch.bfloat16).reshape(shape)
print("stored as bfloat16:", HiCacheFile(config, sys.argv[1]).set(page, kv))

for name in ("bfloat16", "float16", "float8_e4m3fn", "float32"):
    again = HiCacheFile(config, sys.argv[1])  # the engine's next start
    target = torch.zeros(shape, dtype=getattr(torch, name))
    found = again.exists(page)
    try:
        got = again.get(page, target)
    except OSError:
        print(f"as {name}: found {found}, OSError")
        continue
    same = int((got.float() == kv.float()).sum())
    print(f"as {name}: found {found}, {same} of {kv.numel()} numbers are right")
END
export SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR=''
if ! timeout 300 "$room/venv/bin/python" "$room/run.py" "$room/kv" 2>"$room/said" | tee "$room/printed"; then
    cat "$room/said" >&2
    exit 1
fi
diff - "$room/printed" <<'END'
stored as bfloat16: True
as bfloat16: found True, 1024 of 1024 numbers are right
as float16: found True, 4 of 1024 numbers are right
as float8_e4m3fn: found True, 1 of 1024 numbers are right
as float32: found True, OSError
END
