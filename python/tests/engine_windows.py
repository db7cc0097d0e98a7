"""Small models of random weights whose layers have sliding windows: engine_windows.py KIND OUT

KIND is both (Gemma 3: each third layer sees all tokens) or all (Mistral: no layer does)."""

from __future__ import annotations

import pathlib
import sys
from typing import Any

import torch
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, MistralConfig, MistralForCausalLM

WINDOW = 40  # tokens; no multiple of a block
_SIZES: dict[str, Any] = {
    "vocab_size": 40960, "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 64, "max_position_embeddings": 2048, "bos_token_id": 1,
    "eos_token_id": 2, "pad_token_id": 0, "sliding_window": WINDOW, "initializer_range": 0.3}
_TYPES = ["sliding_attention", "sliding_attention", "full_attention"] * 2


def write(kind: str, out: pathlib.Path) -> None:
    """Write OUT/config.json and OUT/model.safetensors in f32."""
    torch.manual_seed(7)
    made: Any
    if kind == "both":
        made = Gemma3ForCausalLM(Gemma3TextConfig(
            **_SIZES, num_hidden_layers=len(_TYPES), layer_types=_TYPES, query_pre_attn_scalar=64))
    else:
        made = MistralForCausalLM(MistralConfig(**_SIZES, num_hidden_layers=3))
    made.float().save_pretrained(out)


if __name__ == "__main__":
    write(sys.argv[1], pathlib.Path(sys.argv[2]))
