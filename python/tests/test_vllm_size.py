"""What vLLM's own planning makes of a model's layers: the figures of lib_engines.py, with which
`kvpager size --engine vllm` is compared in the command's tests. `python test_vllm_size.py` prints
them.

The layers are vLLM's specs, made by hand as its models make them, and planned by
get_kv_cache_configs. With recurrent states its platform's code chooses the block size first.
"""

from __future__ import annotations

import contextlib
import importlib
import pathlib
import sys
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.append(str(pathlib.Path(__file__).parents[2] / "test" / "tools"))

import lib_engines as engines  # type: ignore[import-not-found]  # noqa: E402

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
utils: Any = pytest.importorskip("vllm.v1.core.kv_cache_utils", reason="vLLM is not installed")
specs: Any = pytest.importorskip("vllm.v1.kv_cache_interface", reason="vLLM is not installed")

pytestmark = pytest.mark.skipif(not importlib.import_module("vllm").__version__.startswith("0.32."),
                                reason="the figures are those of vLLM 0.32")
DTYPES = {"bf16": torch.bfloat16, "fp8": torch.float8_e4m3fn}


def config(options: dict[str, Any], kinds: set[str]) -> Any:
    """The parts of a VllmConfig that planning reads: prefix caching and asynchronous scheduling are
    on. Chunks turn the hybrid manager off, as VllmConfig does; DeepSeek V4's indexer wants its
    layers inside a block."""
    from vllm.v1.kv_cache_layout import KVCacheLayout

    space = SimpleNamespace
    return space(
        model_config=space(max_model_len=options["context"],
                           original_max_model_len=options["context"]),
        max_in_flight_tokens=2 * options["batch"], num_prefill_lookahead_tokens=0,
        parallel_config=space(decode_context_parallel_size=1, prefill_context_parallel_size=1,
                              tensor_parallel_size=1, pipeline_parallel_size=1),
        scheduler_config=space(disable_hybrid_kv_cache_manager="chunked" in kinds,
                               max_num_batched_tokens=options["batch"]),
        cache_config=space(num_gpu_blocks_override=None, prefix_cache_retention_interval=None,
                           mamba_cache_mode="align",
                           get_resolved_kv_cache_layout=lambda: (
                               KVCacheLayout.BLHNC if "entries" in kinds else KVCacheLayout.LBNHC)),
        attention_config=space(hisparse_config=None), speculative_config=None,
        kv_transfer_config=None)


def state_shapes(state: dict[str, Any]) -> tuple[Any, Any]:
    """Shapes and types of a state, as vLLM's layers compute them."""
    from vllm.model_executor.layers.mamba import mamba_utils

    kind, sizes = state["kind"], state["sizes"]
    shapes, dtypes = mamba_utils.MambaStateShapeCalculator, mamba_utils.MambaStateDtypeCalculator
    of_shape, of_dtype = getattr(shapes, kind + "_state_shape"), getattr(
        dtypes, kind + "_state_dtype")
    ssm = () if kind in ("short_conv", "linear_attention") else (state["ssm"],)
    where = (sizes[0], 1, *sizes[1:]) if kind == "linear_attention" else (1, *sizes)
    return of_shape(*where), of_dtype(torch.bfloat16, "auto", *ssm)


def align(layers: list[dict[str, Any]], options: dict[str, Any]) -> tuple[int, int | None]:
    """The block size, and the page of a state, that vLLM's platform chooses for a hybrid model."""
    import vllm.config.vllm as vllm_config
    import vllm.model_executor.models as models
    from vllm.platforms.interface import Platform
    from vllm.v1.attention.backend import MultipleOf

    state = next((layer for layer in layers if layer["spec"] == "state"), None)
    if state is None:
        return options["block"], None
    first = next(layer for layer in layers if layer["spec"] in ("full", "mla"))
    shapes, dtypes = state_shapes(state)
    model = SimpleNamespace(get_mamba_state_shape_from_config=lambda _: shapes,
                            get_mamba_state_dtype_from_config=lambda _: dtypes)

    class Backend:
        @staticmethod
        def get_supported_kernel_block_sizes(_: Any = None) -> list[Any]:
            return [MultipleOf(16)]

        @staticmethod
        def customize_spec(spec: Any) -> Any:
            return spec

    class Ours(Platform):  # type: ignore[misc]
        @classmethod
        def _find_non_ssm_backends(cls, _: Any) -> list[Any]:
            return [Backend]

    cache = SimpleNamespace(cache_dtype="auto", block_size=options["block"],
                            kv_cache_dtype_skip_layers=None, mamba_cache_mode="align",
                            mamba_block_size=None, mamba_page_size_padded=None)
    is_mla = first["spec"] == "mla"
    whole = SimpleNamespace(
        cache_config=cache, parallel_config=None, model_config=SimpleNamespace(
            dtype=DTYPES[options["dtype"]], use_mla=is_mla, architecture="", get_num_kv_heads=(
                lambda _: 1 if is_mla else first["heads"]),
            get_head_size=lambda: first["width"] if is_mla else first["k"]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "ModelRegistry",
                      SimpleNamespace(resolve_model_cls=lambda *_, **__: (model, "")))
        patch.setattr(vllm_config, "set_current_vllm_config",
                      lambda _: contextlib.nullcontext())
        Ours._align_hybrid_block_size(whole, Backend)
    return cache.block_size, cache.mamba_page_size_padded


def compressed(layer: dict[str, Any]) -> Any:
    """DeepSeek V4's layers on CUDA, as in models/deepseek_v4 and mla/sparse_swa.py."""
    is_packed = layer["content"] is not None
    more = {"num_kv_heads": 1, "head_size": layer["width"], "alignment": 576, "max_tp_shards": 1,
            "state_content_bytes": layer["content"]}
    if layer["spec"] == "entries":
        return specs.MLAAttentionSpec(
            block_size=256, dtype=torch.uint8, tokens_per_state=layer["ratio"],
            model_version="deepseek_v4" if is_packed else None, **more)
    return specs.SlidingWindowMLASpec(
        block_size=layer["block"], sliding_window=layer["window"],
        dtype=torch.uint8 if is_packed else torch.float32,
        model_version="deepseek_v4" if is_packed else None, **more)


def spec_of(layer: dict[str, Any], block: int, page: int | None, dtype: Any) -> Any:
    if layer["spec"] == "state":
        shapes, dtypes = state_shapes(layer)
        return specs.MambaSpec(block_size=block, shapes=shapes, dtypes=dtypes,
                               page_size_padded=page, mamba_cache_mode="align")
    if layer["spec"] in ("mla", "index"):
        is_index = layer["spec"] == "index"
        return specs.MLAAttentionSpec(
            block_size=block, num_kv_heads=1, head_size=layer["width"],
            dtype=torch.uint8 if is_index else dtype, max_tp_shards=1,
            cache_role=getattr(specs.SparseCacheRole, "INDEXER" if is_index else "SPARSE"))
    if layer["spec"] in ("entries", "recent"):
        return compressed(layer)
    heads = {"block_size": block, "num_kv_heads": layer["heads"], "head_size": layer["k"],
             "head_size_v": layer["v"], "dtype": dtype}
    if layer["spec"] == "window":
        return specs.SlidingWindowSpec(sliding_window=layer["window"], **heads)
    if layer["spec"] == "chunked":
        return specs.ChunkedLocalAttentionSpec(attention_chunk_size=layer["window"], **heads)
    return specs.FullAttentionSpec(**heads)


def plan(layers: list[dict[str, Any]], options: dict[str, Any]) -> dict[str, Any]:
    """Blocks, tokens and concurrency as vLLM logs them, or why it does not start."""
    block, page = align(layers, options)
    of_layers = {f"layer.{i}.{j}": spec_of(layer, block, page, DTYPES[options["dtype"]])
                 for i, layer in enumerate(layers) for j in range(layer["n"])}
    vllm_config = config(options, {layer["spec"] for layer in layers})
    try:
        planned = utils.get_kv_cache_configs(vllm_config, [of_layers], [options["memory"]])[0]
    except ValueError as error:
        return {"max_model_len": int(str(error).split("maximum model length is ")[1].split(".")[0])}
    tokens, concurrency = utils.get_kv_cache_capacity(vllm_config, planned)
    return {"blocks": planned.num_blocks, "tokens": tokens, "concurrency": round(concurrency, 6)}


@pytest.mark.parametrize("row", engines.VLLM, ids=lambda row: row[0])
def test_planned(row: Any) -> None:
    name, _, layers, options = row
    assert plan(layers, {**engines.DEFAULTS, **options}) == engines.VLLM_SAYS[name]


if __name__ == "__main__":
    print("VLLM_SAYS = {")
    for name, _, layers, options in engines.VLLM:
        print(f'    "{name}": {plan(layers, {**engines.DEFAULTS, **options})},'.replace("'", '"'))
    print("}")
