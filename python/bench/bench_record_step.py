"""What recording inside the connector costs vLLM's scheduler: bench_record_step.py [--rounds N] [--running N]

vLLM's scheduler without a model: alone, with a connector that does nothing, and with KvpagerConnector's "record_only".
Requests of 512 tokens and 64 of output, so many at a time, half of them with a prompt that came before. Printed are
medians of rounds that alternate: us of a step (schedule and update_from_output), of the recorder's calls in it, and
of its thread, which holds up the scheduler for a part of that. Run it with the interpreter of `make engines`."""

from __future__ import annotations

import argparse
import json
import pathlib
import random
import statistics
import sys
import tempfile
import time
from typing import Any

import torch
from vllm import config as c
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "tests"))
from test_vllm_scheduler import LLAMA  # noqa: E402

BLOCK, BLOCKS, PROMPT, OUTPUT, STEPS = 16, 20000, 512, 64, 200
CALLS = ("get_num_new_matched_tokens", "update_state_after_alloc", "build_connector_meta",
         "request_finished", "request_finished_all_groups")


def silence(connector: Any) -> None:
    answers = {"get_num_new_matched_tokens": (0, False), "build_connector_meta": KVConnectorMetadata(),
               "request_finished": (False, None), "request_finished_all_groups": (False, None)}
    for name in CALLS:
        setattr(connector, name, lambda *given, answer=answers.get(name), **named: answer)


class Clock:
    """What calls of an object take, seconds."""

    def __init__(self, of: Any, names: tuple[str, ...], now: Any) -> None:
        self.spent, self._now = 0.0, now
        for name in names:
            setattr(of, name, self._timed(getattr(of, name)))

    def _timed(self, call: Any) -> Any:
        def timed(*given: Any, **named: Any) -> Any:
            began = self._now()
            try:
                return call(*given, **named)
            finally:
                self.spent += self._now() - began
        return timed


def scheduler(folder: pathlib.Path, running: int, records: bool) -> Any:
    (folder / "config.json").write_text(json.dumps(LLAMA | {"max_position_embeddings": 1024}))
    more: dict[str, Any] = {"kv_transfer_config": c.KVTransferConfig(
        kv_connector="KvpagerConnector", kv_role="kv_both", kv_connector_module_path="kvpager.vllm",
        kv_connector_extra_config={"record_only": True, "record": str(folder)})} if records else {}
    whole = c.VllmConfig(
        model_config=c.ModelConfig(model=str(folder), skip_tokenizer_init=True, dtype="float32", max_model_len=1024),
        scheduler_config=c.SchedulerConfig(max_num_batched_tokens=8192, max_num_seqs=running, max_model_len=1024,
                                           enable_chunked_prefill=True, is_encoder_decoder=False),
        cache_config=c.CacheConfig(block_size=BLOCK, enable_prefix_caching=True),
        device_config=c.DeviceConfig("cpu"), **more)
    whole.cache_config.num_gpu_blocks = BLOCKS
    spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32)
    return Scheduler(vllm_config=whole, block_size=BLOCK, log_stats=True,
                     kv_cache_config=KVCacheConfig(num_blocks=BLOCKS, kv_cache_tensors=[],
                                                   kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]),
                     structured_output_manager=StructuredOutputManager(whole))


class Load:
    """A scheduler that always has so many requests."""

    def __init__(self, made: Any, running: int) -> None:
        self.scheduler, self.running, self.n = made, running, 0
        self.draw, self.prompts = random.Random(1), list[list[int]]()
        self.hasher = get_request_block_hasher(BLOCK, sha256)

    def fill(self) -> None:
        while len(self.scheduler.requests) < self.running:
            fresh = self.draw.random() < 0.5 or not self.prompts
            prompt = [self.draw.randrange(100) for _ in range(PROMPT)] if fresh else self.draw.choice(self.prompts)
            self.prompts = [*self.prompts[-20:], prompt]
            self.n += 1
            self.scheduler.add_request(Request(
                request_id=f"r{self.n}", prompt_token_ids=list(prompt), pooling_params=None,
                sampling_params=SamplingParams(max_tokens=self.draw.randrange(1, 2 * OUTPUT), ignore_eos=True),
                block_hasher=self.hasher))

    def step(self) -> float:
        self.fill()
        began = time.perf_counter()
        output = self.scheduler.schedule()
        names = list(output.num_scheduled_tokens)
        spent = time.perf_counter() - began
        requests = [self.scheduler.requests[name] for name in names]
        sampled = [[7] if one.num_computed_tokens >= one.num_tokens else [] for one in requests]
        given = ModelRunnerOutput(req_ids=names, req_id_to_index={name: i for i, name in enumerate(names)},
                                  sampled_token_ids=sampled, logprobs=None, prompt_logprobs_dict={}, pooler_output=[])
        began = time.perf_counter()
        self.scheduler.update_from_output(output, given)
        return spent + time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--running", type=int, default=64)
    options = parser.parse_args()
    init_none_hash(sha256)
    loads = list[Load]()
    with tempfile.TemporaryDirectory(prefix="kvpager-") as temporary:
        for name in ("alone", "silent", "recording"):
            folder = pathlib.Path(temporary, name)
            folder.mkdir()
            loads.append(Load(scheduler(folder, options.running, name != "alone"), options.running))
        silence(loads[1].scheduler.connector)
        recorder = loads[2].scheduler.connector
        calls = Clock(recorder, CALLS, time.perf_counter)
        writer = Clock(recorder._requests._writer, ("_add",), time.thread_time)
        rows = list[tuple[float, ...]]()
        for _ in range(options.rounds):
            times = [sum(load.step() for _ in range(STEPS)) / STEPS * 1e6 for load in loads]
            rows.append((*times, calls.spent / STEPS * 1e6, writer.spent / STEPS * 1e6))
            calls.spent = writer.spent = 0.0
        alone, silent, recorded, of_calls, of_thread = (statistics.median(column) for column in zip(*rows[1:]))
        print(f"{options.running} running: a step takes {alone:.0f} us, with a connector that does nothing {silent:.0f}, "
              f"with the recorder {recorded:.0f}; its calls {of_calls:.2f} us ({100 * of_calls / alone:.2f} %), its "
              f"thread {of_thread:.2f} us; {loads[2].n / options.rounds / STEPS:.2f} requests a step")
        for load in loads[1:]:
            load.scheduler.connector.shutdown()


if __name__ == "__main__":
    main()
