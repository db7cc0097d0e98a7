#!/usr/bin/env bash
# transformers 5.24.0: the configuration of a Gemma 4 GGUF file has other layers than the file.
#
# Expected: AutoConfig.from_pretrained(..., gguf_file=...), which knows gemma4, gives what config.json of the same
# model gives: the file says which layers have a window (attention.sliding_window_pattern, one value a layer) and
# how many read the KV of others (attention.shared_kv_layers).
# Seen, of the shape of Gemma 4 E2B, layers that keep KV, those of all tokens, and bytes of 8,192 tokens:
#
#     config.json    15 layers, all tokens in 4, 9, 14                      56,623,104
#     GGUF           35 layers, all tokens in 5, 11, 17, 23, 29, 34        115,867,648
#
# Both keys are left out. The class's defaults take their place: every sixth layer and the last keep all
# tokens, and none shares. A warning is of the last layer alone. (transformers#46467, open, is of KV heads.)
#
# kvpager's: `kvpager size --gguf FILE` reads both keys. test/tools/size_engines.py compares this shape with what
# llama.cpp allocates.
#
# Downloads 0.3 GB; TORCH_INDEX names an index that has torch 2.13.0+cpu, if pip's has not. Status 0:
# it is so.
set -euo pipefail

room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
pip=("$room/venv/bin/pip" install --quiet --disable-pip-version-check)
"${pip[@]}" ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} torch==2.13.0+cpu
"${pip[@]}" transformers==5.24.0 gguf==0.19.0
cat >"$room/show.py" <<'END'
import json
import pathlib
import sys

import gguf
import numpy as np
from transformers import AutoConfig, DynamicCache

LAYERS, TOKENS, WINDOW = 35, 8192, 512
room = pathlib.Path(sys.argv[1])
windowed = [(i + 1) % 5 != 0 for i in range(LAYERS)]

w = gguf.GGUFWriter(room / "model.gguf", "gemma4")
w.add_name("model")
w.add_block_count(LAYERS)
w.add_context_length(131072)
w.add_embedding_length(1536)
w.add_feed_forward_length(6144)
w.add_head_count(8)
w.add_head_count_kv(1)
w.add_key_length(512)
w.add_value_length(512)
w.add_key_length_swa(256)
w.add_value_length_swa(256)
w.add_sliding_window(WINDOW)
w.add_sliding_window_pattern(windowed)
w.add_shared_kv_layers(20)
w.add_layer_norm_rms_eps(1e-6)
w.add_tokenizer_model("llama")
w.add_token_list([f"<0x{i:02X}>" for i in range(64)])
w.add_tensor("token_embd.weight", np.zeros((64, 8), np.float16))
w.write_header_to_file()
w.write_kv_data_to_file()
w.write_tensors_to_file()
w.close()
(room / "config.json").write_text(json.dumps({
    "model_type": "gemma4_text", "num_hidden_layers": LAYERS, "hidden_size": 1536, "intermediate_size": 6144,
    "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256, "global_head_dim": 512,
    "sliding_window": WINDOW, "num_kv_shared_layers": 20, "vocab_size": 64,
    "layer_types": ["sliding_attention" if one else "full_attention" for one in windowed]}))


def show(name, config):
    """Layers of the cache that transformers makes; K and V in 2 bytes."""
    kept = {i: layer.is_sliding for i, layer in enumerate(DynamicCache(config=config).layers)
            if hasattr(layer, "is_sliding")}  # others keep no KV
    whole = [i for i, is_sliding in kept.items() if not is_sliding]
    size = 2 * 2 * (len(whole) * 512 * TOKENS + (len(kept) - len(whole)) * 256 * WINDOW)
    print(f"{name}: {len(kept)} layers, all tokens in {','.join(map(str, whole))}; {size} bytes")


show("config.json", AutoConfig.from_pretrained(room))
show("GGUF", AutoConfig.from_pretrained(room, gguf_file="model.gguf"))
END
HF_HUB_OFFLINE=1 "$room/venv/bin/python" "$room/show.py" "$room" | tee "$room/printed"
diff - "$room/printed" <<'END'
config.json: 15 layers, all tokens in 4,9,14; 56623104 bytes
GGUF: 35 layers, all tokens in 5,11,17,23,29,34; 115867648 bytes
END
