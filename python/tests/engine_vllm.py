"""One life of a real vLLM for test_engine_vllm.py: engine_vllm.py MODEL OUT [WANTED]

WANTED is JSON. engine: arguments of vLLM's LLM besides those below. connector: the
kv_connector_extra_config of KvpagerConnector; without it vLLM runs alone. ahead: asynchronous
scheduling. scenes: the names of functions below; each is called once, in this order. place: the
directory that a scene damages.

Writes to OUT, as JSON, what each scene returned, vLLM's counters, its layer groups and what was held at
the end (these only if VLLM_ENABLE_V1_MULTIPROCESSING is 0)."""

from __future__ import annotations

import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import time
from typing import Any

from vllm import LLM, SamplingParams

BLOCKS, BLOCK = 20, 32  # vLLM's pool, one of them its null block; tokens of a block


def asynchronous() -> None:
    """vLLM's CPU platform turns asynchronous scheduling off, as it is of no use there. Its runner can
    do it."""
    from vllm.platforms.cpu import CpuPlatform

    theirs = CpuPlatform.check_and_update_config

    def ours(cls: Any, config: Any) -> None:
        theirs(config)
        config.scheduler_config.async_scheduling = True

    CpuPlatform.check_and_update_config = classmethod(ours)


def engine(model: str, wanted: dict[str, Any]) -> LLM:
    more: dict[str, Any] = {}
    if wanted.get("connector") is not None:
        more["kv_transfer_config"] = {
            "kv_connector": "KvpagerConnector", "kv_connector_module_path": "kvpager.vllm",
            "kv_role": "kv_both", "kv_connector_extra_config": wanted["connector"]}
    return LLM(model, **{
        "skip_tokenizer_init": True, "dtype": "float32", "max_model_len": 512,
        "block_size": BLOCK, "num_gpu_blocks_override": BLOCKS, "enforce_eager": True,
        "max_num_seqs": 8, "max_num_batched_tokens": 256, "disable_log_stats": False, **more,
        **wanted.get("engine", {})})


def prompts(n: int = 64, seed: int = 7) -> list[list[int]]:
    """n over four prefixes of 70 tokens: two full blocks, and a part of the third."""
    rng = random.Random(seed)
    heads = [[rng.randrange(100, 40000) for _ in range(70)] for _ in range(4)]
    return [heads[i % 4] + [rng.randrange(100, 40000) for _ in range(rng.randrange(5, 40))]
            for i in range(n)]


def greedy(**more: Any) -> SamplingParams:
    return SamplingParams(**{"temperature": 0, "max_tokens": 8, "detokenize": False,
                             "ignore_eos": True, "logprobs": 2, **more})


def told(answer: Any) -> dict[str, Any]:
    """An answer's tokens, and of each place the two best log probabilities."""
    output = answer.outputs[0]
    return {"tokens": list(output.token_ids), "cached": answer.num_cached_tokens,
            "best": [sorted((value.logprob for value in best.values()), reverse=True)[:2]
                     for best in output.logprobs]}


def ask(llm: LLM, given: list[list[int]], **sampling: Any) -> list[Any]:
    got: list[Any] = llm.generate([{"prompt_token_ids": one} for one in given],
                                  greedy(**sampling), use_tqdm=False)
    return got


class Life:
    def __init__(self, llm: LLM, place: str) -> None:
        self.llm, self.place = llm, pathlib.Path(place)

    # ------------------------------------------------------------------------------ questions

    def first(self) -> list[Any]:
        """64 prompts over four prefixes."""
        return [told(one) for one in ask(self.llm, prompts())]

    again = first  # the same, once more

    def some(self) -> list[Any]:
        """The first twelve of them, where that is enough."""
        return [told(one) for one in ask(self.llm, prompts()[:12])]

    some_again = some

    def long(self) -> list[Any]:
        """24 prompts over six prefixes of 200 tokens."""
        rng = random.Random(11)
        heads = [[rng.randrange(100, 40000) for _ in range(200)] for _ in range(6)]
        return [told(one) for one in ask(self.llm, [
            heads[i % 6] + [rng.randrange(100, 40000) for _ in range(rng.randrange(5, 40))]
            for i in range(24)], max_tokens=40)]

    long_again = long

    def samples(self) -> list[Any]:
        """Three samples of a prompt. All fit into a step: vLLM's CPU runner cannot compute a prompt
        with a seed in chunks."""
        return [[list(each.token_ids) for each in
                 ask(self.llm, [one[:80]], n=3, temperature=1, seed=5)[0].outputs]
                for one in prompts()[:2]]

    def crowd(self) -> list[Any]:
        """Six prompts of a token less than three blocks: 18 of the 19 blocks. Each needs a fourth
        one at once, so somebody must give way."""
        rng = random.Random(9)
        given = [[rng.randrange(100, 40000) for _ in range(3 * BLOCK - 1)] for _ in range(6)]
        return [told(one) for one in ask(self.llm, given, max_tokens=12)]

    def aborts(self) -> dict[str, Any]:
        """16 requests, of which half go away: before a step, while a prefix is looked for, in the
        middle of their answers."""
        engine, done = self.llm.llm_engine, dict[str, Any]()
        for i, one in enumerate(prompts(16)):
            engine.add_request(f"abort-{i}", {"prompt_token_ids": one},
                               greedy(max_tokens=12))
        steps = 0
        gone = {0: [0, 9], 1: [1, 10], 4: [2, 11], 9: [3, 12]}
        while engine.has_unfinished_requests():
            if steps in gone:
                engine.abort_request([f"abort-{i}" for i in gone[steps]])
            for one in engine.step():
                if one.finished:
                    done[one.request_id] = told(one)
            steps += 1
        left = sorted(set(range(16)) - {i for some in gone.values() for i in some})
        return {str(i): done.get(f"abort-{i}") for i in left}

    # --------------------------------------------------------------------- what befalls a store

    def _slabs(self) -> list[pathlib.Path]:
        found = [path for path in self.place.rglob("slab-*") if path.is_file()]
        assert found, f"there are no slabs in {self.place}"
        return found

    def truncate(self) -> int:
        """Nothing but the beginning of the first record is left."""
        for path in self._slabs():
            os.truncate(path, 4097)
        return len(self._slabs())

    def remove(self) -> int:
        n_slabs = len(self._slabs())
        for path in list(self.place.iterdir()):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        return n_slabs

    def fix(self) -> int:
        """No directory below can be changed; the files can."""
        folders = [self.place, *(path for path in self.place.rglob("*") if path.is_dir())]
        subprocess.run(["chattr", "+i", *folders], check=True)
        return len(folders)

    # ------------------------------------------------------------------------------ at the end

    def counters(self) -> dict[str, float]:
        made: dict[str, float] = {}
        for metric in self.llm.get_metrics():
            if hasattr(metric, "value"):
                made[metric.name] = made.get(metric.name, 0) + metric.value
        return made

    def kinds(self) -> list[str] | None:
        """Of vLLM's layer groups."""
        core = getattr(self.llm.llm_engine.engine_core, "engine_core", None)
        return None if core is None else [
            type(group.kv_cache_spec).__name__
            for group in core.scheduler.kv_cache_config.kv_cache_groups]

    def held(self) -> dict[str, int] | None:
        """What the connector holds for requests when there are none."""
        core = getattr(self.llm.llm_engine.engine_core, "engine_core", None)
        if core is None or core.scheduler.connector is None:
            return None
        from vllm.distributed.kv_transfer import get_kv_transfer_group

        ask(self.llm, prompts()[:1], max_tokens=3)  # what is to be forgotten goes with a step
        mover = get_kv_transfer_group()._mover
        mover.settle(30)
        mover.poll()
        return {"plans": len(core.scheduler.connector._planner._plans),
                "fetches": len(mover._fetches), "sequences": mover.books.stats().open_seqs}


def main() -> None:
    model, out = sys.argv[1:3]
    wanted = json.loads(sys.argv[3]) if len(sys.argv) > 3 else {}
    if wanted.get("ahead"):
        asynchronous()
    life = Life(engine(model, wanted), wanted.get("place", ""))
    made: dict[str, Any] = {}
    for scene in wanted.get("scenes", ["first", "again"]):
        began = time.monotonic()
        made[scene] = getattr(life, scene)()
        print(f"{scene}: {time.monotonic() - began:.1f} s", flush=True)
    made["counters"] = life.counters()
    made["held"], made["kinds"] = life.held(), life.kinds()
    made["ahead"] = bool(life.llm.llm_engine.vllm_config.scheduler_config.async_scheduling)
    with open(out, "w", encoding="utf-8") as file:
        json.dump(made, file)


if __name__ == "__main__":
    main()
