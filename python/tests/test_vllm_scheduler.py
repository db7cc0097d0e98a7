"""vLLM's own scheduler on vLLM's manager, and as kvpager.vllm.Scheduler: the same schedule."""

from __future__ import annotations

import importlib
import importlib.util
import json
import pathlib
import random
import shutil
import sys
import types
from typing import Any

import pytest

import fake_modules
from kvpager.adapters import vllm as adapter

SIZE, NUM_BLOCKS, MAX_LEN = 4, 48, 128
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
         "intermediate_size": 64, "num_attention_heads": 2, "num_key_value_heads": 2,
         "num_hidden_layers": 1, "vocab_size": 100, "max_position_embeddings": 512}


@pytest.fixture(scope="module")
def vllm() -> Any:
    """vLLM's modules; skips, saying why, where they cannot be had."""
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vllm is not installed")
    names = {"config": "vllm.config", "scheduler": "vllm.v1.core.sched.scheduler",
             "interface": "vllm.v1.kv_cache_interface", "outputs": "vllm.v1.outputs",
             "structured": "vllm.v1.structured_output", "torch": "torch",
             "sampling": "vllm.sampling_params", "hashing": "vllm.utils.hashing",
             "utils": "vllm.v1.core.kv_cache_utils", "request": "vllm.v1.request"}
    try:
        return types.SimpleNamespace(
            **{name: importlib.import_module(module) for name, module in names.items()})
    except ImportError as error:
        pytest.skip(f"vllm is installed, and its scheduler cannot be imported: {error}")


@pytest.fixture(scope="module", params=["ordered", "ahead"])
def config(vllm: Any, tmp_path_factory: pytest.TempPathFactory,
           request: pytest.FixtureRequest) -> Any:
    folder = tmp_path_factory.mktemp("model")
    (folder / "config.json").write_text(json.dumps(LLAMA))
    made = vllm.config.VllmConfig(
        model_config=vllm.config.ModelConfig(model=str(folder), skip_tokenizer_init=True,
                                             dtype="float32", max_model_len=MAX_LEN),
        scheduler_config=vllm.config.SchedulerConfig(
            max_num_batched_tokens=48, max_num_seqs=8, max_model_len=MAX_LEN,
            enable_chunked_prefill=True, is_encoder_decoder=False,
            async_scheduling=request.param == "ahead"),
        cache_config=vllm.config.CacheConfig(block_size=SIZE, enable_prefix_caching=True),
        device_config=vllm.config.DeviceConfig("cpu"))
    made.cache_config.num_gpu_blocks = NUM_BLOCKS
    return made


class Engine:
    """A scheduler, and a model whose tokens follow from what it was given."""

    def __init__(self, vllm: Any, config: Any, scheduler: Any) -> None:
        self.vllm = vllm
        spec = vllm.interface.FullAttentionSpec(block_size=SIZE, num_kv_heads=1, head_size=1,
                                                dtype=vllm.torch.float32)
        self.scheduler = scheduler(
            vllm_config=config, block_size=SIZE, log_stats=True,
            kv_cache_config=vllm.interface.KVCacheConfig(
                num_blocks=NUM_BLOCKS, kv_cache_tensors=[],
                kv_cache_groups=[vllm.interface.KVCacheGroupSpec(["layer"], spec)]),
            structured_output_manager=vllm.structured.StructuredOutputManager(config))
        self.manager = self.scheduler.kv_cache_manager
        vllm.utils.init_none_hash(vllm.hashing.sha256)
        self.hasher = vllm.utils.get_request_block_hasher(SIZE, vllm.hashing.sha256)

    def add(self, name: str, tokens: list[int], max_tokens: int) -> None:
        self.scheduler.add_request(self.vllm.request.Request(
            request_id=name, prompt_token_ids=list(tokens), pooling_params=None,
            sampling_params=self.vllm.sampling.SamplingParams(max_tokens=max_tokens,
                                                              ignore_eos=True),
            block_hasher=self.hasher))

    def step(self) -> dict[str, Any]:
        """What one step schedules, and what comes of it."""
        output = self.scheduler.schedule()
        names = list(output.num_scheduled_tokens)
        sampled = []
        for name in names:
            request = self.scheduler.requests[name]
            done = request.num_computed_tokens >= request.num_tokens
            sampled.append([len(request.all_token_ids) % 5] if done else [])
        outputs = self.scheduler.update_from_output(output, self.vllm.outputs.ModelRunnerOutput(
            req_ids=names, req_id_to_index={name: i for i, name in enumerate(names)},
            sampled_token_ids=sampled, logprobs=None, prompt_logprobs_dict={}, pooler_output=[]))
        stats = [given.scheduler_stats.prefix_cache_stats for given in outputs.values()
                 if given.scheduler_stats is not None]
        return {"tokens": output.num_scheduled_tokens,
                "new": [(new.req_id, new.num_computed_tokens, len(new.block_ids[0]))
                        for new in output.scheduled_new_reqs],
                "preempted": output.preempted_req_ids, "finished": output.finished_req_ids,
                "running": [r.request_id for r in self.scheduler.running],
                "common": output.num_common_prefix_blocks,
                "hits": [(one.queries, one.hits, one.preempted_queries, one.preempted_hits)
                         for one in stats],
                "usage": pytest.approx(self.manager.usage)}


def engines(vllm: Any, config: Any) -> tuple[Engine, Engine]:
    """With the class that vLLM takes by itself, and with what --scheduler-cls names."""
    config.scheduler_config.scheduler_cls = None
    theirs = Engine(vllm, config, config.scheduler_config.get_scheduler_cls())
    config.scheduler_config.scheduler_cls = "kvpager.vllm.Scheduler"
    ours = Engine(vllm, config, config.scheduler_config.get_scheduler_cls())
    assert isinstance(ours.manager, adapter.KVCacheManager)
    assert isinstance(ours.scheduler, type(theirs.scheduler))
    return theirs, ours


@pytest.mark.parametrize("seed", range(4))
def test_the_same_schedule(vllm: Any, config: Any, seed: int) -> None:
    """Random requests that share prefixes, in too little memory, with resets between."""
    both = engines(vllm, config)
    draw, n_preempted, n_hits, n_resets = random.Random(seed), 0, 0, 0
    for turn in range(400):
        if draw.random() < 0.25 and len(both[0].scheduler.requests) < 16:
            base = draw.randrange(4) * 1000
            tokens = [base + i for i in range(draw.randrange(1, 70))] + [draw.randrange(9)]
            n_new = draw.randrange(1, 40)
            for engine in both:
                engine.add(f"r{turn}", tokens, n_new)
        theirs, ours = (engine.step() for engine in both)
        assert theirs == ours, f"turn {turn}"
        n_preempted += len(theirs["preempted"] or ())
        n_hits += sum(hits for _, hits, _, _ in theirs["hits"])
        if draw.random() < 0.02:
            running = draw.random() < 0.5
            done = [engine.scheduler.reset_prefix_cache(reset_running_requests=running)
                    for engine in both]
            assert done[0] == done[1]
            n_resets += done[0]
        if draw.random() < 0.03 and both[0].scheduler.requests:
            name = draw.choice(sorted(both[0].scheduler.requests))
            for engine in both:
                engine.scheduler.finish_requests(name,
                                                 vllm.request.RequestStatus.FINISHED_ABORTED)
        both[1].manager.cache.check()
    assert n_preempted > 10 and n_hits > 500 and n_resets >= 1


def test_blocks_given_back_later(vllm: Any, config: Any) -> None:
    """What a scheduler does that runs ahead of its workers: it keeps the blocks of a request that
    is gone until the step that may write them is over."""
    for engine in engines(vllm, config):
        engine.add("a", list(range(20)), 30)
        engine.step()
        manager, request = engine.manager, engine.scheduler.requests["a"]
        usage = manager.usage
        blocks = manager.pop_blocks_for_free(request)
        assert manager.usage == usage and not manager.reset_prefix_cache()
        manager.block_pool.free_blocks(reversed(blocks))
        assert manager.usage == 0.0 and manager.pop_blocks_for_free(request) == []


def test_what_is_refused() -> None:
    """Configurations that are not here say so."""
    def config(*kinds: str) -> Any:
        spec = {kind: type(kind, (), {"block_size": 4})() for kind in kinds}
        return types.SimpleNamespace(num_blocks=9, kv_cache_groups=[
            types.SimpleNamespace(kv_cache_spec=spec[kind]) for kind in kinds])

    full = config("FullAttentionSpec")
    wrong: list[tuple[str, Any, dict[str, Any]]] = [
        ("kv_cache_config", config("SlidingWindowSpec"), {}),
        ("kv_cache_config", config("FullAttentionSpec", "MambaSpec"), {}),
        ("hash_block_size", full, {"hash_block_size": 2}), ("use_eagle", full, {"use_eagle": True}),
        ("dcp_world_size", full, {"dcp_world_size": 2}),
        ("metrics_collector", full, {"metrics_collector": object()})]
    for name, given, more in wrong:
        with pytest.raises(ValueError, match=name):
            adapter.for_scheduler(kv_cache_config=given, max_model_len=64, **more)
    manager = adapter.for_scheduler(kv_cache_config=full, max_model_len=64, hash_block_size=4)
    assert manager.make_prefix_cache_stats() is None


@pytest.mark.parametrize("name", ["Scheduler", "KvpagerConnector", "StoreTier"])
def test_an_unknown_version_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """When vLLM asks for the class, and when the manager asks for vLLM's events."""
    made = types.ModuleType("vllm")
    made.__version__ = "0.99.1+cpu"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", made)
    with fake_modules.anew("kvpager.vllm"):
        package = importlib.import_module("kvpager.vllm")
        with pytest.raises(ImportError, match=r"vLLM 0\.99\.1\+cpu is not supported, only 0\.31, "):
            getattr(package, name)
        with pytest.raises(ValueError, match=r"enable_kv_cache_events.*0\.99\.1\+cpu is not supp"):
            adapter.KVCacheManager(NUM_BLOCKS, SIZE, MAX_LEN, enable_kv_cache_events=True)


def test_connectors_that_are_refused(vllm: Any) -> None:
    """Such as work on the blocks of vLLM's own manager, also inside of another one."""
    scheduler = importlib.import_module("kvpager.vllm.scheduler")
    base = scheduler.v.ConnectorBase

    class Plain(base):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            pass

    class OnBlocks(Plain):
        def bind_gpu_block_pool(self, gpu_block_pool: Any) -> None:
            pass

    class OnManager(Plain):
        def bind_kv_cache_manager(self, kv_cache_manager: Any) -> None:
            pass

    class Several(OnManager):
        def __init__(self, *connectors: Any) -> None:
            self._connectors = list(connectors)

    for made in (Plain, OnBlocks, OnManager, Several):
        made.__abstractmethods__ = frozenset()
    scheduler._refuse_connector(Plain())
    scheduler._refuse_connector(Several(Plain(), Plain()))
    for wrong in (OnBlocks(), OnManager(), Several(Plain(), OnBlocks())):
        with pytest.raises(ValueError, match="kv_connector: On(Blocks|Manager) works on"):
            scheduler._refuse_connector(wrong)


def test_recording(vllm: Any, config: Any, tmp_path: pathlib.Path) -> None:
    """Its requests and vLLM's own hits are in the file; what is recorded changes no schedule."""
    pytest.importorskip("kvpager.record", exc_type=ImportError)
    if shutil.which("zstd") is None:
        pytest.skip("there is no zstd")
    tools = pathlib.Path(__file__).resolve().parents[2] / "test" / "tools"
    sys.path.append(str(tools))
    lib_recording: Any = importlib.import_module("lib_recording")
    _, plain = engines(vllm, config)
    config.additional_config = {"kvpager_record": str(tmp_path)}
    try:
        ours = Engine(vllm, config, config.scheduler_config.get_scheduler_cls())
        config.additional_config = {"kvpager_record": "/no/such"}
        with pytest.raises(ValueError, match="kvpager_record: is '/no/such', expected a directory"):
            Engine(vllm, config, config.scheduler_config.get_scheduler_cls())
    finally:
        config.additional_config = {}
    draw, added, hits = random.Random(5), dict[str, int](), 0
    for turn in range(150):
        if draw.random() < 0.3 and len(plain.scheduler.requests) < 8:
            base = draw.randrange(3) * 1000
            tokens = [base + i for i in range(draw.randrange(1, 60))]
            added[f"r{turn}"] = len(tokens)
            for engine in (plain, ours):
                engine.add(f"r{turn}", tokens, 1 + turn % 20)
        done = [engine.step() for engine in (plain, ours)]
        assert done[0] == done[1], f"turn {turn}"
        hits += sum(one[1] for one in done[1]["hits"])
    while ours.scheduler.requests:
        hits += sum(one[1] for one in ours.step()["hits"])
    ours.scheduler.shutdown()
    file, = tmp_path.iterdir()
    header, requests, counts = lib_recording.read(file.read_bytes())
    assert (header["source"], header["block_tokens"], counts["lost"]) == (1, SIZE, 0)
    assert sorted(of["input_tokens"] for of in requests) == sorted(added.values())
    assert hits == sum(of["cached_tokens"] for of in requests) > 0
    # The last token was only sampled: it has no KV.
    assert all(sum(n for _, n in of["blocks"]) == (of["input_tokens"] + of["output_tokens"] - 1) // SIZE
               for of in requests)
    assert all(0 <= of["first_us"] <= of["last_us"] for of in requests)
