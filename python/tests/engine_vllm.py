"""One life of a real vLLM for test_engine_vllm.py: engine_vllm.py MODEL OUT [SETTINGS]

SETTINGS is the connector's kv_connector_extra_config as JSON; without it vLLM runs alone. Writes to
OUT, as JSON: tokens and the two best log probabilities of every answer, tokens that were cached,
seconds to the first token of a prompt of 1,200 tokens that was computed, and of one that came back."""

from __future__ import annotations

import json
import random
import sys
import time
from typing import Any

from vllm import LLM, SamplingParams

BLOCKS = 20  # of 128 tokens: two of the prompts below fill the pool


def engine(model: str, settings: dict[str, Any] | None) -> LLM:
    more: dict[str, Any] = {}
    if settings is not None:
        more["kv_transfer_config"] = {
            "kv_connector": "KvpagerConnector", "kv_connector_module_path": "kvpager.vllm",
            "kv_role": "kv_both", "kv_connector_extra_config": settings}
    return LLM(model, skip_tokenizer_init=True, dtype="float32", max_model_len=2048,
               num_gpu_blocks_override=BLOCKS, enforce_eager=True, max_num_seqs=8,
               max_num_batched_tokens=512, disable_log_stats=False, **more)


def prompts() -> list[list[int]]:
    """32 over four prefixes of 400 tokens."""
    rng = random.Random(7)
    heads = [[rng.randrange(100, 40000) for _ in range(400)] for _ in range(4)]
    return [heads[i % 4] + [rng.randrange(100, 40000) for _ in range(rng.randrange(5, 150))]
            for i in range(32)]


def answers(llm: LLM, given: list[list[int]], **sampling: Any) -> list[Any]:
    wanted = SamplingParams(**{"temperature": 0, "max_tokens": 24, "detokenize": False,
                               "ignore_eos": True, "logprobs": 2, **sampling})
    got: list[Any] = llm.generate([{"prompt_token_ids": one} for one in given], wanted,
                                  use_tqdm=False)
    return got


def first_token(llm: LLM, prompt: list[int]) -> float:
    began = time.monotonic()
    answers(llm, [prompt], max_tokens=1)
    return time.monotonic() - began


def main() -> None:
    model, out = sys.argv[1:3]
    llm = engine(model, json.loads(sys.argv[3]) if len(sys.argv) > 3 else None)
    told: dict[str, Any] = {"tokens": [], "logprobs": [], "cached": []}
    for _ in range(2):
        got = answers(llm, prompts())
        told["cached"].append(sum(one.num_cached_tokens for one in got))
        for one in got:
            told["tokens"].append(list(one.outputs[0].token_ids))
            told["logprobs"].append([sorted(value.logprob for value in best.values())[-2:]
                                     for best in one.outputs[0].logprobs])
    several = answers(llm, prompts()[:2], n=3, temperature=1, seed=5)
    told["several"] = [[list(each.token_ids) for each in one.outputs] for one in several]
    rng = random.Random(8)
    long = [[rng.randrange(100, 40000) for _ in range(1201)] for _ in range(4)]
    told["computed"] = [first_token(llm, one) for one in long]
    told["came_back"] = [first_token(llm, one) for one in long]
    told["figures"] = {metric.name: metric.value for metric in llm.get_metrics()
                       if metric.name.startswith("vllm:kvpager")}
    with open(out, "w", encoding="utf-8") as file:
        json.dump(told, file)


if __name__ == "__main__":
    main()
