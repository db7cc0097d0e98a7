"""kvpager size: figures worked out by hand, the built-in tables against themselves, config.json
files in the styles that are published, and what wrong files and wrong options get.
"""

import json
import os

from lib_kvpager import check, check_equal, directory, finish, run

GIB = 1 << 30


def size(*options, stdin=None):
    done = run("size", "--json", *options, stdin=stdin)
    if not check_equal(done.returncode, 0, *options, done.stderr.decode()):
        return {}
    check_equal(done.stderr, b"", *options)
    return json.loads(done.stdout)


# ------------------------------------------------------------------------------------- by hand

# options, name of the figure, its value
FIGURES = [
    # 2 x layers x KV heads x head size x bytes
    ("--model llama-3.1-8b", "bytes_per_token", 2 * 32 * 8 * 128 * 2),
    ("--model llama-3.1-8b", "bytes_per_token", 131072),
    ("--model llama-3.1-8b", "bytes_per_block", 2097152),
    ("--model llama-3.1-8b --block-tokens 64", "bytes_per_block", 8388608),
    ("--model llama-3.1-8b --dtype fp8", "bytes_per_token", 65536),
    ("--model llama-3.1-8b --dtype int8", "bytes_per_token", 65536),
    ("--model llama-3.1-8b --dtype f32", "bytes_per_token", 262144),
    ("--model llama-3.1-8b --dtype f16", "bytes_per_token", 131072),
    ("--model llama-3.1-8b --context 1", "bytes_per_sequence", 2097152),
    ("--model llama-3.1-8b --context 17", "bytes_per_sequence", 2 * 2097152),
    ("--model llama-3.1-70b", "bytes_per_token", 327680),
    ("--model meta-llama/Llama-3.1-70B", "bytes_per_token", 327680),
    # eight KV heads on 4, 8 and 16 accelerators: 2 heads, 1, and still 1
    ("--model llama-3.1-70b --tp 4", "bytes_per_token", 81920),
    ("--model llama-3.1-70b --tp 8", "bytes_per_token", 40960),
    ("--model llama-3.1-70b --tp 16", "bytes_per_token", 40960),
    ("--model qwen2.5-7b", "bytes_per_token", 57344),
    ("--model phi-3-mini-4k", "bytes_per_token", 393216),
    # (512 + 64) x 61 x 2, on every accelerator
    ("--model deepseek-v3", "bytes_per_token", 70272),
    ("--model deepseek-v3 --tp 8", "bytes_per_token", 70272),
    ("--model deepseek-v2-lite --dtype fp8", "bytes_per_token", 576 * 27),
    # a window of 4,096 touches at most 4,096 / 16 + 1 blocks of 16; sinks 0 to 15 are one more
    ("--model mistral-7b-v0.1 --context 100000", "bytes_per_sequence", 257 * 2097152),
    ("--model mistral-7b-v0.1 --context 100000 --sinks 4", "bytes_per_sequence", 258 * 2097152),
    ("--model mistral-7b-v0.1 --context 4096", "bytes_per_sequence", 256 * 2097152),
    ("--model mistral-7b-v0.1 --context 100000 --block-tokens 1", "bytes_per_sequence",
     4096 * 131072),
    ("--model mistral-7b-v0.3 --context 100000", "bytes_per_sequence", 6250 * 2097152),
    # twelve layers keep all, twelve the last 128: 512 + 9 blocks of 2 x 12 x 8 x 64 x 2 x 16 bytes
    ("--model gpt-oss-20b", "bytes_per_sequence", (512 + 9) * 393216),
    ("--model gemma-2-9b", "bytes_per_sequence", (512 + 257) * 2752512),
    ("--model gemma-3-27b", "bytes_per_sequence", 512 * 10 * 131072 + 65 * 52 * 131072),
    # a cache's blocks are equal: 10 layers each, one group of them full, six windowed
    ("--model gemma-3-27b", "layers_per_group", 10),
    ("--model gemma-3-27b", "layer_groups", 7),
    ("--model gemma-3-27b", "padding_per_sequence", 8 * 65 * 131072),
    ("--model gemma-3-27b", "bytes_per_block", 10 * 131072),
    ("--model gemma-3-27b", "blocks_per_sequence", 512 + 6 * 65),
    ("--model gemma-2-9b", "layers_per_group", 21),
    ("--model gemma-2-9b", "bytes_per_block", 2752512),
    ("--model gpt-oss-120b", "layer_groups", 2),
    ("--model mistral-7b-v0.1", "layer_groups", 1),
    ("--model llama-3.1-8b", "layers_per_group", 32),
    # 18 GiB less a byte are 14,745 such blocks: 16 sequences of 902, and 313 are 44 in each group
    ("--model gemma-3-27b --memory 20GiB --utilization 1 --weights 2GiB --overhead 1B", "blocks",
     14745),
    ("--model gemma-3-27b --memory 20GiB --utilization 1 --weights 2GiB --overhead 1B", "sequences",
     16),
    ("--model gemma-3-27b --memory 20GiB --utilization 1 --weights 2GiB --overhead 1B", "tokens",
     16 * (16 * 512 + 313 // 7)),
    # 16-bit weights are two bytes a parameter; on two accelerators half of that
    ("--model llama-3.1-8b --memory 80GiB", "weights_bytes", 16060522496),
    ("--model llama-3.1-8b --memory 80GiB --tp 2", "weights_bytes", 8030261248),
    ("--model llama-3.1-8b --memory 80GiB --weights-dtype f32", "weights_bytes", 32121044992),
    # 8 bits for the layers' matrices, 16 for two embeddings of 128,256 x 4,096 and the norms
    ("--model llama-3.1-8b --memory 80GiB --weights-dtype fp8", "weights_bytes",
     6979321856 + 2 * (8030261248 - 6979321856)),
    # 4 bits and a 16-bit scale for 128 of them
    ("--model llama-3.1-8b --memory 80GiB --weights-dtype int4", "weights_bytes",
     6979321856 * 33 // 64 + 2 * (8030261248 - 6979321856)),
    # 24 layers x 32 experts x 3 x 2,880 x 2,880 at 4 bits and an 8-bit scale for 32 of them
    ("--model gpt-oss-20b --memory 80GiB", "weights_bytes",
     19110297600 * 34 // 64 + 2 * (20914757184 - 19110297600)),
    ("--model mixtral-8x7b", "active_parameters", 46702792704 - 32 * 6 * 3 * 4096 * 14336
     - 32000 * 4096 - 65 * 4096),
    ("--model llama-3.1-8b --device H100", "memory_bytes", 81559 << 20),
    ("--model llama-3.1-8b --device a100-40gb", "memory_bytes", 40 * GIB),
    ("--model llama-3.1-8b --device a100", "device", "a100-80gb"),
    # 80 x 0.9 - 16 - 2 = 54 GiB
    ("--model llama-3.1-8b --memory 80GiB --weights 16GiB", "kv_memory_bytes", 54 * GIB),
    ("--model llama-3.1-8b --memory 80GiB --weights 16GiB", "blocks", 27648),
    ("--model llama-3.1-8b --memory 80GiB --weights 16GiB", "tokens", 442368),
    ("--model llama-3.1-8b --memory 80GiB --weights 16GiB", "sequences", 54),
    ("--model llama-3.1-8b --memory 80GiB --weights 16GiB --utilization 0.5 --overhead 0",
     "kv_memory_bytes", 24 * GIB),
    # a fraction of a byte is not used: 81,921 x 0.9 = 73,728.9, and a block has 65,536
    ("--model llama-3.1-8b --memory 81921B --weights 1B --overhead 0 --dtype int8 --block-tokens 1",
     "usable_bytes", 73728),
]


def check_figures():
    for options, name, value in FIGURES:
        check_equal(size(*options.split()).get(name), value, options, name)


def check_sharing():
    """Two kinds of layers: 9 GiB are 24,576 blocks of 384 KiB. 47 sequences of 512 + 9 blocks take
    24,487 of them; of the 48th 9 fit in both, and 71 more in the layers that keep everything."""
    found = size(*"--model gpt-oss-20b --memory 10GiB --utilization 1 --weights 1GiB "
                  "--overhead 0".split())
    groups = found["groups"]
    check_equal([group["layers"] for group in groups], [12, 12])
    check_equal([group["window_tokens"] for group in groups], [None, 128])
    check_equal([group["bytes_per_token"] for group in groups], [24576, 24576])
    check_equal([group["blocks_per_sequence"] for group in groups], [512, 9])
    check_equal(groups[0]["blocks"], 47 * 512 + 9 + 71, "full")
    check_equal(groups[1]["blocks"], 47 * 9 + 9, "windowed")
    check_equal(groups[0]["blocks"] + groups[1]["blocks"], 24576, "all of the memory")
    check_equal((found["blocks"], found["bytes_per_block"]), (24576, 393216), "the pool")
    check_equal((found["sequences"], found["tokens"]), (47, 16 * (47 * 512 + 80)))
    groups = size(*"--model gpt-oss-20b --memory 10GiB --utilization 1 --weights 1GiB "
                   "--overhead 9662889984".split())["groups"]
    check_equal([group["blocks"] for group in groups], [1, 1], "one block of each")
    groups = size(*"--model gpt-oss-20b --memory 10GiB --utilization 1 --weights 1GiB "
                   "--overhead 9654239232".split())["groups"]
    check_equal([group["blocks"] for group in groups], [15, 9], "12 of each: 9, 9 and 6 more")
    # longer than the memory: the window is full, the rest is the longest sequence that fits
    groups = size(*"--model gpt-oss-20b --memory 10GiB --utilization 1 --weights 1GiB --overhead 0 "
                   "--context 1000000".split())["groups"]
    check_equal([group["blocks"] for group in groups], [24567, 9])


# ---------------------------------------------------------------------------------- the tables


def check_tables():
    """Shapes and published numbers of parameters are typed in separately: each checks the other."""
    done = run("size", "--list", "--json")
    tables = json.loads(done.stdout)
    check(len(tables["models"]) >= 90 and len(tables["devices"]) >= 20, "short tables")
    text = run("size", "--list").stdout.decode()
    for row in tables["models"]:
        published = row["parameters_are_estimated"] is False
        if published:
            # a 0.4 billion vision tower is in the published number only
            slack = {"gemma-3-27b": 0.02, "gemma-3-12b": 0.04, "gemma-3-4b": 0.1}
            ratio = row["parameters_from_shape"] / row["parameters"]
            check(1 - slack.get(row["model"], 0.001) < ratio <= 1, row["model"],
                  "shape and parameters disagree", ratio)
        check(f"  {row['model']} " in text, row["model"], "is not in --list")
        check_equal(size("--model", row["model"].upper())["source"], row["source"])
        weights = [] if row["parameters"] else ["--weights", "1GiB"]
        for tp in (1, 8):
            done = run("size", "--model", row["model"], "--memory", "9000GiB", "--tp", tp, *weights)
            heads = [kind["kv_heads"] or tp for kind in row["kinds"]]
            if row["query_heads"] % tp == 0 and not any(n % tp and tp % n for n in heads):
                check_equal(done.returncode, 0, row["model"], tp, done.stderr)
            for line in done.stdout.decode().splitlines():
                check(len(line) <= 80, "wider than 80 columns:", line)
    for row in tables["devices"]:
        check(f"  {row['device']} " in text, row["device"], "is not in --list")
        found = size("--model", "llama-3.2-1b", "--device", row["device"])
        check_equal(found["memory_bytes"], row["memory_bytes"], row["device"])
        check(1e11 < row["bytes_per_second"] < 1e13 < row["bf16_flops"] < 1e16, row)
        check(row["bf16_flops"] <= (row["fp8_flops"] or 1e16) <= (row["fp4_flops"] or 1e17), row)
    for name, device in [("RTX PRO 6000", "rtxpro6000-96gb"), ("B300", "b300-288gb"),
                         ("tpu v7x", "tpu-v7x-192gb"), ("gaudi3", "gaudi3-128gb")]:
        check_equal(size("--model", "llama-3.2-1b", "--device", name)["device"], device)
    check(all(len(line) <= 80 for line in text.splitlines()), "--list is wider than 80 columns")
    check("  name " in text and "B / token" in text, "--list has no names of columns")


def check_weights():
    """What the weights are computed from."""
    for model, dtype, what in (("gpt-oss-20b", "mxfp4", "experts as mxfp4, the rest as bf16"),
                               ("gpt-oss-20b", "fp8", "layers as fp8, embeddings as bf16"),
                               ("llama-3.1-8b", "mxfp4", "layers as mxfp4, embeddings as bf16"),
                               ("llama-3.1-8b", "bf16", "parameters as bf16")):
        text = run("size", "--model", model, "--weights-dtype", dtype, "--device", "h100").stdout.decode()
        check(f" {what}\n" in text, model, dtype, text)


def check_text():
    text = run("size", *"--model llama-3.1-8b --memory 80GiB --weights 16GiB".split())
    text = text.stdout.decode()
    for line in ["  token                    131,072  2 x 32 layers x 8 heads x 128 x 2 B\n",
                 "  sequence           1,073,741,824  8,192 tokens: 512 blocks\n",
                 "  KV                     54.00 GiB  usable - weights - overhead\n",
                 "  blocks                    27,648  KV / block; the null block on top\n",
                 "  sequences                     54  blocks / 512 of a sequence of 8,192 tokens\n"]:
        check(line in text, repr(line), "is not in", text)
    text = run("size", "--model", "llama-3.1-8b").stdout.decode()
    check("What fits" not in text and "--device NAME" in text, text)


# ------------------------------------------------------------------------------- config.json

LLAMA = {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
         "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
         "tie_word_embeddings": False, "torch_dtype": "bfloat16", "vocab_size": 128256}
MISTRAL = {**LLAMA, "model_type": "mistral", "vocab_size": 32000, "sliding_window": 4096}
QWEN2 = {"model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944,
         "max_window_layers": 28, "num_attention_heads": 28, "num_hidden_layers": 28,
         "num_key_value_heads": 4, "sliding_window": 131072, "use_sliding_window": False,
         "tie_word_embeddings": False, "torch_dtype": "bfloat16", "vocab_size": 152064}
GEMMA2 = {"model_type": "gemma2", "head_dim": 256, "hidden_size": 3584, "intermediate_size": 14336,
          "num_attention_heads": 16, "num_hidden_layers": 42, "num_key_value_heads": 8,
          "sliding_window": 4096, "dtype": "bfloat16", "vocab_size": 256000}
GEMMA3 = {"model_type": "gemma3", "torch_dtype": "bfloat16", "vision_config": {"hidden_size": 1152},
          "text_config": {"head_dim": 128, "hidden_size": 5376, "intermediate_size": 21504,
                          "model_type": "gemma3_text", "num_attention_heads": 32,
                          "num_hidden_layers": 62, "num_key_value_heads": 16,
                          "sliding_window": 1024}}
GPT_OSS = {"model_type": "gpt_oss", "head_dim": 64, "hidden_size": 2880, "intermediate_size": 2880,
           "layer_types": ["sliding_attention", "full_attention"] * 12, "num_attention_heads": 64,
           "num_experts_per_tok": 4, "num_hidden_layers": 24, "num_key_value_heads": 8,
           "num_local_experts": 32, "sliding_window": 128, "tie_word_embeddings": False,
           "quantization_config": {"quant_method": "mxfp4"}, "vocab_size": 201088}
DEEPSEEK = {"model_type": "deepseek_v3", "first_k_dense_replace": 3, "hidden_size": 7168,
            "intermediate_size": 18432, "kv_lora_rank": 512, "moe_intermediate_size": 2048,
            "moe_layer_freq": 1, "n_routed_experts": 256, "n_shared_experts": 1,
            "num_attention_heads": 128, "num_experts_per_tok": 8, "num_hidden_layers": 61,
            "num_key_value_heads": 128, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64, "v_head_dim": 128, "tie_word_embeddings": False,
            "torch_dtype": "bfloat16", "vocab_size": 129280,
            "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
LITE = {**DEEPSEEK, "model_type": "deepseek_v2", "first_k_dense_replace": 1, "hidden_size": 2048,
        "intermediate_size": 10944, "moe_intermediate_size": 1408, "n_routed_experts": 64,
        "n_shared_experts": 2, "num_attention_heads": 16, "num_experts_per_tok": 6,
        "num_hidden_layers": 27, "num_key_value_heads": 16, "q_lora_rank": None,
        "quantization_config": None, "vocab_size": 102400}
MIXTRAL = {**LLAMA, "model_type": "mixtral", "vocab_size": 32000, "num_local_experts": 8,
           "num_experts_per_tok": 2, "sliding_window": None}
QWEN3_MOE = {"model_type": "qwen3_moe", "decoder_sparse_step": 1, "head_dim": 128,
             "hidden_size": 2048, "intermediate_size": 6144, "mlp_only_layers": [],
             "moe_intermediate_size": 768, "num_attention_heads": 32, "num_experts": 128,
             "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4,
             "sliding_window": None, "tie_word_embeddings": False, "vocab_size": 151936}
MINIMAX = {"model_type": "minimax_m1", "attn_type_list": ([0] * 7 + [1]) * 10, "head_dim": 128,
           "hidden_size": 6144, "intermediate_size": 9216, "num_attention_heads": 64,
           "num_experts_per_tok": 2, "num_hidden_layers": 80, "num_key_value_heads": 8,
           "num_local_experts": 32, "sliding_window": None, "vocab_size": 200064}
LLAMA4_TEXT = {"model_type": "llama4_text", "attention_chunk_size": 8192, "head_dim": 128,
               "hidden_size": 5120, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
               "interleave_moe_layer_step": 1, "num_attention_heads": 40,
               "num_experts_per_tok": 1, "num_hidden_layers": 48, "num_key_value_heads": 8,
               "num_local_experts": 16, "torch_dtype": "bfloat16", "vocab_size": 202048}
LLAMA4 = {"model_type": "llama4", "text_config": LLAMA4_TEXT}
KIMI_LINEAR = {"model_type": "kimi_linear", "first_k_dense_replace": 1, "head_dim": 72,
               "hidden_size": 2304, "intermediate_size": 9216, "kv_lora_rank": 512,
               "linear_attn_config": {"full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
                                      "head_dim": 128, "num_heads": 32},
               "moe_intermediate_size": 1024, "num_attention_heads": 32, "num_experts": 256,
               "num_experts_per_token": 8, "num_hidden_layers": 27, "num_key_value_heads": 32,
               "q_lora_rank": None, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
               "v_head_dim": 128, "vocab_size": 163840}
LARGEST = {"num_hidden_layers": 1024, "num_attention_heads": 1024, "num_key_value_heads": 1024,
           "head_dim": 4096, "hidden_size": 131072, "intermediate_size": 1048576,
           "num_experts": 4096, "num_experts_per_tok": 4096, "vocab_size": 1 << 26,
           "n_shared_experts": 16, "torch_dtype": "float32"}
PHI3 = {"model_type": "phi3", "hidden_size": 3072, "intermediate_size": 8192,
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
        "sliding_window": 2047, "tie_word_embeddings": False, "vocab_size": 32064}


# Models with recurrent state, in the styles that are published; beside each what is known of it.
QWEN3_NEXT = {"model_type": "qwen3_next", "decoder_sparse_step": 1, "full_attention_interval": 4,
              "head_dim": 256, "hidden_size": 2048, "intermediate_size": 5632,
              "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
              "linear_num_value_heads": 32, "linear_value_head_dim": 128, "mlp_only_layers": [],
              "moe_intermediate_size": 512, "num_attention_heads": 16, "num_experts": 512,
              "num_experts_per_tok": 10, "num_hidden_layers": 48, "num_key_value_heads": 2,
              "shared_expert_intermediate_size": 512, "torch_dtype": "bfloat16",
              "vocab_size": 151936}
QWEN35 = {"model_type": "qwen3_5",
          "text_config": {"model_type": "qwen3_5_text", "attn_output_gate": True,
                          "dtype": "bfloat16", "full_attention_interval": 4, "head_dim": 256,
                          "hidden_size": 5120, "intermediate_size": 17408,
                          "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 16,
                          "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
                          "linear_num_key_heads": 16, "linear_num_value_heads": 48,
                          "linear_value_head_dim": 128, "mamba_ssm_dtype": "float32",
                          "num_attention_heads": 24, "num_hidden_layers": 64,
                          "num_key_value_heads": 4, "vocab_size": 248320}}
NEMOTRON = {"model_type": "nemotron_h", "conv_kernel": 4, "head_dim": 128, "hidden_size": 2688,
            "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
            "mamba_head_dim": 64, "mamba_hidden_act": "silu", "mamba_num_heads": 64,
            "mamba_ssm_cache_dtype": "float32", "moe_intermediate_size": 1856, "n_groups": 8,
            "n_routed_experts": 128, "num_attention_heads": 32, "num_experts_per_tok": 6,
            "num_hidden_layers": 52, "num_key_value_heads": 2, "sliding_window": None,
            "ssm_state_size": 128, "torch_dtype": "bfloat16", "use_mamba_kernels": True,
            "vocab_size": 131072}
GRANITE4 = {"model_type": "granitemoehybrid", "hidden_size": 4096, "intermediate_size": 768,
            "layer_types": (["mamba"] * 9 + ["attention"]) * 4, "mamba_conv_bias": True,
            "mamba_d_conv": 4, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_expand": 2,
            "mamba_n_groups": 1, "mamba_n_heads": 128, "num_attention_heads": 32,
            "num_hidden_layers": 40, "num_key_value_heads": 8, "torch_dtype": "bfloat16",
            "vocab_size": 100352}
JAMBA = {"model_type": "jamba", "attn_layer_offset": 4, "attn_layer_period": 8,
         "expert_layer_offset": 1, "expert_layer_period": 2, "hidden_size": 4096,
         "intermediate_size": 14336, "mamba_conv_bias": True, "mamba_d_conv": 4,
         "mamba_d_state": 16, "mamba_dt_rank": 256, "mamba_expand": 2, "mamba_proj_bias": False,
         "num_attention_heads": 32, "num_experts": 16, "num_experts_per_tok": 2,
         "num_hidden_layers": 32, "num_key_value_heads": 8, "sliding_window": None,
         "torch_dtype": "bfloat16", "use_mamba_kernels": True, "vocab_size": 65536}
LFM2 = {"model_type": "lfm2", "conv_L_cache": 3, "full_attn_idxs": [2, 5, 8, 10, 12, 14],
        "hidden_size": 2048, "num_attention_heads": 32, "num_hidden_layers": 16,
        "num_key_value_heads": 8, "torch_dtype": "bfloat16", "vocab_size": 65536}
KIMI = {**KIMI_LINEAR, "linear_attn_config": {**KIMI_LINEAR["linear_attn_config"],
                                              "short_conv_kernel_size": 4}}
HYBRIDS = [QWEN3_NEXT, QWEN35, NEMOTRON, GRANITE4, JAMBA, LFM2, KIMI, MINIMAX]


def without(config, *keys):
    return {key: value for key, value in config.items() if key not in keys}


# a file, the row of the table that it must equal
SAME = [
    (LLAMA, "llama-3.1-8b"),
    ({**LLAMA, "head_dim": 128, "dtype": "bfloat16", "sliding_window": None}, "llama-3.1-8b"),
    (MISTRAL, "mistral-7b-v0.1"),
    (without(MISTRAL, "sliding_window", "num_key_value_heads"), "mistral-7b-v0.1"),
    ({**MISTRAL, "sliding_window": None, "vocab_size": 32768}, "mistral-7b-v0.3"),
    (MIXTRAL, "mixtral-8x7b"),
    (QWEN2, "qwen2.5-7b"),
    (without(QWEN2, "use_sliding_window"), "qwen2.5-7b"),
    ({**QWEN2, "layer_types": ["full_attention"] * 28}, "qwen2.5-7b"),
    (QWEN3_MOE, "qwen3-30b-a3b"),
    (GEMMA2, "gemma-2-9b"),
    (without(GEMMA2, "head_dim", "sliding_window"), "gemma-2-9b"),
    ({**GEMMA2, "layer_types": ["sliding_attention", "full_attention"] * 21}, "gemma-2-9b"),
    (GEMMA3, "gemma-3-27b"),
    ({"llm_config": GEMMA3["text_config"]}, "gemma-3-27b"),
    ({**GEMMA3["text_config"], "sliding_window_pattern": 6, "dtype": "torch.bfloat16"},
     "gemma-3-27b"),
    (GPT_OSS, "gpt-oss-20b"),
    (without(GPT_OSS, "layer_types"), "gpt-oss-20b"),
    (DEEPSEEK, "deepseek-v3"),
    (LITE, "deepseek-v2-lite"),
    (PHI3, "phi-3-mini-4k"),
]
COMPARED = ["layers", "windowed_layers", "window_tokens", "query_heads", "kv_heads", "head_dim",
            "latent_values", "parameters_from_shape", "active_parameters", "bytes_per_token",
            "bytes_per_sequence", "kv_dtype", "weights_dtype"]

# a file, name of the figure, its value
READ = [
    ({**LLAMA, "torch_dtype": "float16"}, "kv_dtype", "f16"),
    ({**LLAMA, "torch_dtype": "float32"}, "bytes_per_token", 262144),
    (without(LLAMA, "num_key_value_heads"), "bytes_per_token", 2 * 32 * 32 * 128 * 2),
    (without(LLAMA, "vocab_size"), "bytes_per_token", 131072),
    (without(LLAMA, "vocab_size"), "parameters", None),
    ({**without(LLAMA, "hidden_size"), "head_dim": 64}, "bytes_per_token", 65536),
    (LLAMA, "parameters_are_estimated", True),
    ({**QWEN2, "use_sliding_window": True, "max_window_layers": 20}, "windowed_layers", 8),
    ({**QWEN2, "use_sliding_window": True, "max_window_layers": 99}, "windowed_layers", 0),
    ({**LLAMA, "model_type": "cohere2", "sliding_window": 4096}, "windowed_layers", 24),
    ({**LLAMA, "sliding_window": 512, "sliding_window_pattern": 3}, "windowed_layers", 22),
    ({**LLAMA, "layer_types": ["chunked_attention"] * 24 + ["full_attention"] * 8,
      "attention_chunk_size": 8192}, "window_tokens", 8192),
    # all layers of attn_type_list are full, as in MiniMax-M2
    ({**MINIMAX, "attn_type_list": [1] * 80}, "bytes_per_token", 2 * 80 * 8 * 128 * 2),
    ({**MINIMAX, "attn_type_list": [1] * 80}, "windowed_layers", 0),
    # three of four layers have rotary positions and attend in chunks of 512 blocks
    (LLAMA4, "windowed_layers", 36),
    (LLAMA4, "window_tokens", 8192),
    (LLAMA4, "chunked", True),
    (LLAMA, "chunked", False),
    (LLAMA4, "bytes_per_sequence", 48 * 512 * 65536),
    ({"text_config": without(LLAMA4_TEXT, "attention_chunk_size")}, "windowed_layers", 36),
    ({"text_config": {**LLAMA4_TEXT, "attention_chunk_size": None}}, "windowed_layers", 0),
    ({"text_config": {**LLAMA4_TEXT, "no_rope_layers": []}}, "windowed_layers", 36),
    ({"text_config": {**LLAMA4_TEXT, "no_rope_layers": [1, 1, 0] * 16}}, "windowed_layers", 32),
    ({"text_config": {**LLAMA4_TEXT, "no_rope_layer_interval": 6}}, "windowed_layers", 40),
    ({"text_config": {**LLAMA4_TEXT, "layer_types": ["full_attention"] * 48}},
     "windowed_layers", 0),
    # rotary positions in some layers say nothing of what these attend to
    ({**LLAMA, "no_rope_layers": [1, 1, 1, 0] * 8, "no_rope_layer_interval": 4},
     "windowed_layers", 0),
    ({**LLAMA, "model_type": "cohere2", "sliding_window": 4096, "layer_switch": 2},
     "windowed_layers", 16),
    # what is switched off says nothing
    ({**LLAMA, "use_cla": False, "cla_share_factor": 2}, "windowed_layers", 0),
    ({**LLAMA, "num_kv_shared_layers": 0, "window_size": 0, "attn_layers": [],
      "attention_window": -1, "hybrid_mode": "", "mamba_config": {}, "linear_attn_config": None},
     "windowed_layers", 0),
    ({**LLAMA, "context_window": 8192, "attn_implementation": "sdpa", "rope_local_base_freq": 1e4,
      "attention_bias": True, "chunk_size_feed_forward": 1}, "windowed_layers", 0),
    ({**LLAMA, "layer_types": ["full_attention"] * 32, "swa_rope_theta": 10000.0},
     "windowed_layers", 0),
    ({**LLAMA, "model_type": "falcon", "multi_query": True, "num_key_value_heads": None},
     "kv_heads", 1),
    ({**LLAMA, "model_type": "falcon", "new_decoder_architecture": True, "multi_query": True,
      "num_kv_heads": 8, "num_key_value_heads": None}, "kv_heads", 8),
    ({**LLAMA, "tie_word_embeddings": True}, "parameters_from_shape",
     8029995008 - 128256 * 4096),
    ({**LLAMA, "model_type": "starcoder2"}, "parameters_from_shape",
     8029995008 - 32 * 4096 * 14336),
    ({**LLAMA, "quantization_config": {"quant_method": "awq", "bits": 4}}, "weights_dtype", "int4"),
    ({**LLAMA, "quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True}},
     "weights_dtype", "int8"),
    ({**LLAMA, "quantization_config": {"quant_method": "new"}}, "weights_dtype", None),
    (LARGEST, "bytes_per_sequence", 8192 * 2 * 1024 * 1024 * 4096 * 4),
    (LARGEST, "parameters", 2 * 131072 * (1 << 26)
     + 1024 * (4 * 131072 * 1024 * 4096 + 131072 * 4096
               + (4096 + 16) * 3 * 131072 * 1048576)),
    ({**QWEN3_MOE, "decoder_sparse_step": 2}, "active_parameters",
     3041656832 + 24 * (3 * 2048 * (6144 - 8 * 768) - 2048 * 128)),
    ({**QWEN3_MOE, "shared_expert_intermediate_size": 1000}, "active_parameters",
     3041656832 + 48 * 3 * 2048 * 1000),
]


# options, a file, the figures by hand
STATES = [
    # 12 layers of attention; 36 with 32 heads of 128 x 128 and 3 inputs of 2 x 16 + 32 heads of 128
    ("", QWEN3_NEXT, {"layers": 48, "state_layers": 36, "state_kind": "gated delta net",
                      "state_dtype": "f32", "bytes_per_token": 2 * 12 * 2 * 256 * 2,
                      "bytes_per_state": 36 * (32 * 128 * 128 * 4 + 3 * 64 * 128 * 2),
                      "states_per_sequence": 3,
                      "bytes_per_sequence": 512 * 393216 + 3 * 77266944}),
    ("--state-dtype bf16 --checkpoints 0", QWEN3_NEXT,
     {"bytes_per_state": 36 * (32 * 128 * 128 * 2 + 3 * 64 * 128 * 2), "states_per_sequence": 1,
      "bytes_per_sequence": 512 * 393216 + 36 * (32 * 128 * 128 * 2 + 3 * 64 * 128 * 2)}),
    # two accelerators: 16 heads and 8 + 8 key heads; 32 of them: one head each, and a key head each
    ("--tp 2", QWEN3_NEXT,
     {"bytes_per_state": 36 * (16 * 128 * 128 * 4 + 3 * 32 * 128 * 2),
      "bytes_per_token": 2 * 12 * 256 * 2}),
    ("", {**QWEN3_NEXT, "layer_types": ["full_attention"] * 24 + ["linear_attention"] * 24},
     {"state_layers": 24, "bytes_per_token": 2 * 24 * 2 * 256 * 2}),
    ("", {**QWEN3_NEXT, "layer_types": ["full_attention"] * 48},
     {"state_layers": 0, "state_kind": None, "bytes_per_state": 0, "states_per_sequence": 0}),
    ("", QWEN35, {"layers": 64, "state_layers": 48,
                  "bytes_per_state": 48 * (48 * 128 * 128 * 4 + 3 * (2 * 16 + 48) * 128 * 2),
                  "bytes_per_token": 2 * 16 * 4 * 256 * 2}),
    ("", {"text_config": {**QWEN35["text_config"], "mamba_ssm_dtype": "bfloat16"}},
     {"state_dtype": "bf16"}),
    # 6 layers of attention; 23 with 64 heads of 64 x 128 and 3 inputs of 64 x 64 + 2 x 8 x 128
    ("", NEMOTRON, {"layers": 52, "state_layers": 23, "state_kind": "Mamba-2",
                    "bytes_per_token": 2 * 6 * 2 * 128 * 2,
                    "bytes_per_state": 23 * (64 * 64 * 128 * 4 + 3 * (64 * 64 + 2048) * 2)}),
    ("", {**without(NEMOTRON, "hybrid_override_pattern"),
          "layers_block_type": [{"M": "mamba", "E": "moe", "*": "attention"}[letter] for letter in
                                NEMOTRON["hybrid_override_pattern"]],
          "mtp_layers_block_type": ["attention", "moe"]},
     {"state_layers": 23, "bytes_per_token": 2 * 6 * 2 * 128 * 2}),
    ("", {**without(NEMOTRON, "head_dim"), "attention_head_dim": 64},
     {"bytes_per_token": 2 * 6 * 2 * 64 * 2}),
    ("", GRANITE4, {"state_layers": 36, "bytes_per_token": 2 * 4 * 8 * 128 * 2,
                    "bytes_per_state": 36 * (128 * 64 * 128 * 4 + 3 * (8192 + 256) * 2)}),
    ("", {**GRANITE4, "mamba_d_head": "auto"},
     {"bytes_per_state": 36 * (128 * 64 * 128 * 4 + 3 * (8192 + 256) * 2)}),
    # a group of Mamba-2 is on every accelerator when there are fewer groups
    ("--tp 4", GRANITE4, {"bytes_per_state": 36 * (32 * 64 * 128 * 4 + 3 * (2048 + 256) * 2)}),
    # layers 4, 12, 20 and 28; 28 with 8,192 channels of 16, and 3 inputs of them
    ("", JAMBA, {"layers": 32, "state_layers": 28, "state_kind": "Mamba",
                 "bytes_per_token": 2 * 4 * 8 * 128 * 2,
                 "bytes_per_state": 28 * (8192 * 16 * 4 + 3 * 8192 * 2)}),
    ("", LFM2, {"state_layers": 10, "state_kind": "short convolution",
                "bytes_per_token": 2 * 6 * 8 * 64 * 2, "bytes_per_state": 10 * 2 * 2048 * 2}),
    ("", {**without(LFM2, "full_attn_idxs"), "layer_types": ["conv"] * 10 + ["full_attention"] * 6},
     {"state_layers": 10, "bytes_per_state": 81920}),
    # latent attention in 7 layers; 20 with 32 heads of 128 x 128 and 3 inputs of query, key, value
    ("", KIMI, {"layers": 27, "state_layers": 20, "state_kind": "Kimi delta attention",
                "latent_values": 576, "bytes_per_token": 7 * 576 * 2,
                "bytes_per_state": 20 * (32 * 128 * 128 * 4 + 3 * 3 * 4096 * 2)}),
    ("", MINIMAX, {"layers": 80, "state_layers": 70, "state_kind": "lightning attention",
                   "bytes_per_token": 2 * 10 * 8 * 128 * 2,
                   "bytes_per_state": 70 * 64 * 128 * 128 * 4}),
]


def check_states(path):
    for options, config, expected in STATES:
        write(path, json.dumps(config))
        found = size("--model-config", path, *options.split())
        for name, value in expected.items():
            check_equal(found.get(name), value, options, name, config)
    # 72 GiB: 178 sequences of 512 blocks and 3 slots leave a part of one, whose blocks fit
    write(path, json.dumps(QWEN3_NEXT))
    found = size("--model-config", path, *"--memory 72GiB --utilization 1 --weights 1B --overhead 0"
                 .split())
    room = 72 * GIB - 1
    sequences = room // (512 * 393216 + 3 * 77266944)
    check_equal(found["state_slots"], 3 * sequences)
    check_equal(found["blocks"], (room - 3 * sequences * 77266944) // 393216)
    check_equal(found["sequences"], sequences)
    # eight groups at most, one of them the states: 7 of blocks are 12 layers each
    for config in HYBRIDS:
        write(path, json.dumps(config))
        done = run("size", "--model-config", path, "--memory", "200GiB", "--weights", "9GiB")
        check_equal(done.returncode, 0, config, done.stderr)
        check("  state slots " in done.stdout.decode(), done.stdout.decode())
        for line in done.stdout.decode().splitlines()[1:]:
            check(len(line) <= 80, "wider than 80 columns:", line)


def check_configs(path):
    for config, name in SAME:
        write(path, json.dumps(config))
        found, row = size("--model-config", path), size("--model", name)
        for key in COMPARED:
            check_equal(found.get(key), row[key], name, key, config)
        check_equal(found.get("source"), None, name)
    for config, name, value in READ:
        write(path, json.dumps(config))
        check_equal(size("--model-config", path).get(name), value, name, config)
    write(path, json.dumps(LARGEST))  # no product of the largest values overflows
    found = size("--model-config", path, "--context", 1 << 27, "--block-tokens", 65536)
    check_equal(found.get("bytes_per_sequence"), 1 << 62)
    found = size("--model-config", "-", stdin=json.dumps(LLAMA).encode())
    check_equal((found.get("model"), found.get("bytes_per_token")), ("standard input", 131072))


# --------------------------------------------------------------------------------- bad input

# a file, what the message must contain after the file's name
BAD_FILES = [
    ("", "the file is empty"),
    ("{\n\"hidden_size\": 4096,\n", "not valid JSON in line 3"),
    ("[1, 2]", "is an array, expected an object"),
    ('{"num_hidden_layers": 1, "num_hidden_layers": 2}', "not valid JSON in line 1: duplicate"),
    (b'{"model_type": "\xff"}', "not valid JSON in line 1"),
    ("[" * 5000, "not valid JSON in line 1"),
    (" " * ((16 << 20) + 1), "larger than 16 MiB"),
    ({}, 'no "num_hidden_layers"'),
    (without(LLAMA, "num_attention_heads"), 'no "num_attention_heads"'),
    ({"text_config": without(LLAMA, "num_attention_heads")},
     'no "text_config.num_attention_heads"'),
    (without(LLAMA, "hidden_size"), 'no "head_dim" and no "hidden_size"'),
    ({**LLAMA, "num_hidden_layers": 0}, "num_hidden_layers is 0, expected a whole number from 1"),
    ({**LLAMA, "num_hidden_layers": 100000}, "num_hidden_layers is 100000, expected"),
    ({**LLAMA, "num_hidden_layers": "32"}, "num_hidden_layers is a string, expected"),
    ({**LLAMA, "num_attention_heads": 0}, "num_attention_heads is 0, expected"),
    ({**LLAMA, "num_attention_heads": -32}, "num_attention_heads is -32, expected"),
    ({**LLAMA, "num_key_value_heads": -8}, "num_key_value_heads is -8, expected"),
    ({**LLAMA, "num_key_value_heads": 8.5}, "num_key_value_heads is a number with a fraction"),
    ({**LLAMA, "num_key_value_heads": [8] * 32}, "num_key_value_heads is an array"),
    ({**LLAMA, "num_key_value_heads": 7},
     "num_attention_heads 32 is not divisible by num_key_value_heads 7"),
    ({**LLAMA, "num_key_value_heads": 64}, 
     "num_attention_heads 32 is not divisible by num_key_value_heads 64"),
    ({**LLAMA, "hidden_size": 4097}, "hidden_size 4097 is not divisible by num_attention_heads 32"),
    ({**LLAMA, "hidden_size": 0}, "hidden_size is 0, expected"),
    ({**LLAMA, "head_dim": 5000}, "head_dim is 5000, expected a whole number from 1 to 4096"),
    ({**LLAMA, "num_attention_heads": 1, "num_key_value_heads": 1, "hidden_size": 8192},
     "a head has 8192 values, more than 4096"),
    ({**LLAMA, "torch_dtype": "float8"}, 'torch_dtype is "float8", expected bfloat16'),
    ({**LLAMA, "torch_dtype": 16}, "torch_dtype is a whole number, expected a string"),
    ({**LLAMA, "torch_dtype": "x\ny"}, 'torch_dtype is "x?y"'),
    ({**MISTRAL, "sliding_window": 0}, "sliding_window is 0, expected"),
    ({**MISTRAL, "sliding_window": -1}, "sliding_window is -1, expected"),
    ({**GEMMA2, "layer_types": ["full_attention"] * 41},
     "layer_types has 41 entries, num_hidden_layers is 42"),
    ({**GEMMA2, "layer_types": ["linear_attention"] * 42}, 'layer_types[0] is "linear_attention"'),
    ({**GEMMA2, "layer_types": [1] * 42}, "layer_types[0] is not a string"),
    ({**GEMMA2, "layer_types": 42}, "layer_types is a whole number, expected an array"),
    ({**LLAMA, "layer_types": ["sliding_attention"] * 32}, 'no "sliding_window"'),
    ({**LLAMA, "sliding_window": 9, "sliding_window_pattern": 0}, "sliding_window_pattern is 0"),
    ({**LLAMA, "sliding_window": 9, "sliding_window_pattern": "LG"},
     "sliding_window_pattern is a string"),
    (without(DEEPSEEK, "qk_rope_head_dim"), 'no "qk_rope_head_dim"'),
    ({**DEEPSEEK, "kv_lora_rank": 0}, "kv_lora_rank is 0, expected"),
    ({**LLAMA, "attn_layer_period": 8}, 'has "attn_layer_period": some layers are state-space'),
    ({**LLAMA, "is_encoder_decoder": True}, "is_encoder_decoder is true"),
    ({**MINIMAX, "attn_type_list": [0] * 80}, "attn_type_list has no layer with attention"),
    ({**MINIMAX, "attn_type_list": [0, 1]}, "attn_type_list tells of 2 layers, num_hidden_layers"),
    ({**MINIMAX, "attn_type_list": [0, 2] * 40}, "attn_type_list[1] is not 0 or 1"),
    (without(QWEN3_NEXT, "linear_key_head_dim"), 'no "linear_key_head_dim"'),
    ({**QWEN3_NEXT, "linear_num_value_heads": 5000}, "linear_num_value_heads is 5000, expected"),
    ({**QWEN3_NEXT, "layer_types": [1] * 48}, "layer_types[0] is not a string"),
    ({**QWEN3_NEXT, "layer_types": "all"}, "layer_types is a string, expected an array"),
    ({**QWEN3_NEXT, "full_attention_interval": 49},
     "full_attention_interval has no layer with attention"),
    ({**QWEN3_NEXT, "sliding_window": 4096}, 'has "sliding_window" beside layers with recurrent'),
    ({**QWEN3_NEXT, "mamba_ssm_dtype": "float8"}, 'mamba_ssm_dtype is "float8", expected float32'),
    ({**QWEN3_NEXT, "mamba_layers": [1]}, 'has "mamba_layers", which this command does not know'),
    ({**NEMOTRON, "hybrid_override_pattern": "MX"}, "hybrid_override_pattern has 'X', expected M,"),
    ({**NEMOTRON, "hybrid_override_pattern": "M*"}, "hybrid_override_pattern tells of 2 layers"),
    ({**NEMOTRON, "hybrid_override_pattern": 7},
     "hybrid_override_pattern is a whole number, expected a string"),
    (without(NEMOTRON, "ssm_state_size"), 'no "ssm_state_size"'),
    ({**GRANITE4, "mamba_d_ssm": 4096}, 'has "mamba_d_ssm": some layers are state-space layers'),
    ({**GRANITE4, "mamba_d_head": "auto", "hidden_size": 32, "head_dim": 64},
     'no "mamba_d_head", and 0 values for a head'),
    (without(GRANITE4, "layer_types"), 'has "mamba_d_state": some layers are state-space layers'),
    ({**JAMBA, "attn_layer_offset": 8}, "attn_layer_offset is 8, expected a whole number from 0"),
    ({**without(JAMBA, "hidden_size"), "head_dim": 128}, 'no "hidden_size"'),
    ({**LFM2, "full_attn_idxs": 6}, "full_attn_idxs is no array of at most 16 layers"),
    ({**LFM2, "full_attn_idxs": None}, "has layers with recurrent state, and nothing says"),
    ({**KIMI, "linear_attn_config": [1]}, "linear_attn_config is an array, expected an object"),
    ({"text_config": {**KIMI, "linear_attn_config": {"num_heads": 32, "head_dim": 128,
                                                     "short_conv_kernel_size": 4}}},
     "text_config.linear_attn_config.full_attn_layers is no array of at most 27 layers"),
    ({**MINIMAX, "attn_type_list": 80}, "attn_type_list is a whole number, expected an array"),
    ({**MINIMAX, "attn_type_list": [1, 2] * 40}, "attn_type_list[1] is not 0 or 1"),
    ({**MINIMAX, "attn_type_list": [1, "1"] * 40}, "attn_type_list[1] is not 0 or 1"),
    (KIMI_LINEAR, 'no "linear_attn_config.short_conv_kernel_size"'),
    ({**LLAMA, "attention_chunk_size": 8192}, 'has "attention_chunk_size", and nothing says which layers it is'),
    ({**LLAMA4_TEXT, "attention_chunk_size": 0}, "attention_chunk_size is 0, expected"),
    ({**LLAMA, "layer_types": ["chunked_attention", "sliding_attention"] * 16},
     "layer_types has sliding_attention and chunked_attention"),
    ({**LLAMA4_TEXT, "no_rope_layers": [1] * 47}, "no_rope_layers has 47 entries"),
    ({**LLAMA4_TEXT, "no_rope_layers": [2] * 48}, "no_rope_layers[0] is not 0 or 1"),
    ({**LLAMA4_TEXT, "no_rope_layer_interval": 0}, "no_rope_layer_interval is 0, expected"),
    ({**LLAMA, "full_attention_interval": 4}, 'has "full_attention_interval": some layers are'),
    ({**LLAMA, "hybrid_override_pattern": "M-M*"}, 'has "hybrid_override_pattern": some layers'),
    ({**LLAMA, "layers_block_type": ["mamba", "hybrid"]}, "layers_block_type has 2 entries"),
    ({**LLAMA, "layers_block_type": ["mamba"] * 32}, 'layers_block_type[0] is "mamba", and no key'),
    ({**LLAMA, "layer_types": ["holographic"] * 32}, 'layer_types[0] is "holographic", a kind of'),
    ({**LLAMA, "attn_layer_indices": [9, 18]}, 'has "attn_layer_indices"'),
    ({**LLAMA, "full_attn_idxs": [2, 5]}, 'has "full_attn_idxs": some layers are convolutions'),
    ({**LLAMA, "block_types": ["recurrent", "attention"]}, 'has "block_types": some layers are'),
    ({**LLAMA, "use_cla": True}, 'has "use_cla": layers share one KV'),
    ({**LLAMA, "num_key_value_heads_per_layer": [8, 4]}, "num_key_value_heads_per_layer has not"),
    ({**LLAMA, "layer_types": ["conv"] * 32}, 'layer_types[0] is "conv"'),
    # not known, but the name says enough
    ({**LLAMA, "global_attn_every_n_layers": 3},
     'no "sliding_window", which says how many tokens a layer with a window keeps'),
    ({**LLAMA, "sliding_window_layers": [1, 3]}, 'has "sliding_window_layers", which this'),
    ({**LLAMA, "attention_window_size": 2048}, 'has "attention_window_size", which this'),
    ({**LLAMA, "new_mamba_layers": [0]}, 'has "new_mamba_layers", which this'),
    ({**LLAMA, "attention_types": [["global", "local"]]}, 'has "attention_types", which this'),
    ({**LLAMA, "use_recurrent_layers": True}, 'has "use_recurrent_layers", which this'),
    ({**LLAMA, "swa_ratio": 0.5}, 'has "swa_ratio", which this'),
    ({**LLAMA, "hybrid_mode": "x"}, 'has "hybrid_mode", which this'),
]

# a file that is enough for KV but not for what --memory asks
BAD_WITH_MEMORY = [
    (without(LLAMA, "vocab_size"), 'no "vocab_size", needed to count the weights'),
    (without(LLAMA, "intermediate_size"), 'no "intermediate_size", needed'),
    (without(DEEPSEEK, "v_head_dim"), 'no "v_head_dim", needed'),
    ({**LLAMA, "vocab_size": 10 ** 12}, "vocab_size is 1000000000000, expected"),
    ({**LLAMA, "tie_word_embeddings": 1}, "tie_word_embeddings is a whole number, expected true"),
    ({**LLAMA, "num_new_experts": 64}, '"num_new_experts" is not understood'),
    (without(MIXTRAL, "num_experts_per_tok"), 'no "num_experts_per_tok"'),
    ({**MIXTRAL, "num_experts_per_tok": 9}, "num_experts_per_tok is 9, there are 8 experts"),
    ({**DEEPSEEK, "first_k_dense_replace": 62}, "first_k_dense_replace is 62, expected"),
    ({**LLAMA, "quantization_config": {"quant_method": "new"}},
     "give --weights-dtype or --weights"),
]

# options, status, what the message must contain
OPTIONS = [
    ("", 2, "no model is named"),
    ("--model gpt-17", 2, "--model is 'gpt-17', which is not in --list"),
    ("--model llama-3.1-8b --model-config x", 2, "--model and --model-config exclude each other"),
    ("--model llama-3.1-8b x.json", 2, "'x.json' is not expected"),
    ("--model llama-3.1-8b --device", 2, "--device needs a value"),
    ("--model llama-3.1-8b --device h1", 2, "--device is 'h1', which is not in --list"),
    ("--model llama-3.1-8b --device=", 2, "--device is '', which is not in --list"),
    ("--model llama-3.1-8b --device h100 --memory 80G", 2, "--device and --memory exclude"),
    ("--model llama-3.1-8b --memory 80Q", 2, "--memory is '80Q', expected a size"),
    ("--model llama-3.1-8b --memory 0", 2, "--memory is '0', expected a size"),
    ("--model llama-3.1-8b --tp 0", 2, "--tp is '0', expected"),
    ("--model llama-3.1-8b --tp 3", 2, "--tp is 3, which does not divide 32 query heads with 8"),
    ("--model llama-3.1-8b --tp 64", 2, "--tp is 64, which does not divide"),
    ("--model llama-3.2-3b --tp 12", 2, "--tp is 12, which does not divide 24 query heads with 8"),
    ("--model llama-3.1-8b --dtype int4", 2, "--dtype is 'int4', expected one of: bf16, f16"),
    ("--model llama-3.1-8b --weights-dtype q4", 2, "--weights-dtype is 'q4', expected one of"),
    ("--model llama-3.1-8b --weights 0", 2, "--weights is '0', expected a size"),
    ("--model llama-3.1-8b --overhead -1", 2, "--overhead is '-1', expected a size"),
    ("--model llama-3.1-8b --utilization 1.1", 2, "--utilization is '1.1', expected"),
    ("--model llama-3.1-8b --utilization 0", 2, "--utilization is '0', expected"),
    ("--model llama-3.1-8b --block-tokens 0", 2, "--block-tokens is '0', expected"),
    ("--model llama-3.1-8b --block-tokens 65537", 2, "--block-tokens is '65537', expected"),
    ("--model llama-3.1-8b --context 0", 2, "--context is '0', expected"),
    ("--model llama-3.1-8b --context 134217729", 2, "--context is '134217729', expected"),
    ("--model llama-3.1-8b --sinks 4", 2, "--sinks needs a model with sliding-window layers"),
    ("--model llama-3.1-8b --checkpoints 3", 2, "--checkpoints needs a model with recurrent state"),
    ("--model llama-3.1-8b --checkpoints 1025", 2, "--checkpoints is '1025', expected"),
    ("--model llama-3.1-8b --state-dtype f32", 2, "--state-dtype needs a model with recurrent"),
    ("--model llama-3.1-8b --state-dtype fp8", 2, "--state-dtype is 'fp8', expected one of: f32"),
    ("--model llama-3.1-8b --index-dtype fp8", 2,
     "--index-dtype needs a model with an indexer, and 'llama-3.1-8b' has none"),
    ("--model deepseek-v3.2 --index-dtype q8_0", 2,
     "--index-dtype is 'q8_0', expected one of: bf16, fp8, mxfp4"),
    ("--model deepseek-v3.2 --index-dtype fp8 --engine vllm", 2,
     "--index-dtype and --engine exclude each other"),
    ("--model llama-3.1-8b --json=1", 2, "--json takes no value"),
    ("--model llama-3.1-8b --frobnicate", 2, "unknown option '--frobnicate'"),
    ("--model llama-3.1-70b --device h100", 1, "no room for KV: of 71.68 GiB usable, weights take "
     "131.42 GiB and overhead 2.00 GiB; --tp 2 would fit"),
    ("--model llama-3.2-1b --memory 1GiB", 1, "no room for KV"),
    ("--model llama-3.1-8b --memory 3GiB --utilization 1 --weights 1GiB --overhead 2047MiB", 1,
     "no room for KV"),  # one MiB is half a block
    # nine GiB less this are one byte less than a block of each kind
    ("--model gpt-oss-20b --memory 10GiB --utilization 1 --weights 1GiB --overhead 9662889985", 1,
     "no room for KV"),
]


def write(path, content):
    with open(path, "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())


def check_refused(done, status, message, *what):
    error = done.stderr.decode(errors="replace")
    check_equal(done.returncode, status, *what, error)
    check(message in error and error.startswith("kvpager size: "), *what,
          f"{message!r} is not in {error!r}")
    check_equal(done.stdout, b"", *what, "stdout")
    if status == 2:
        check(error.endswith("--help'.\n"), *what, "no way to the help in", repr(error))


def check_bad_input(folder, path):
    for content, message in BAD_FILES:
        write(path, json.dumps(content) if isinstance(content, dict) else content)
        for options in ([], ["--json", "--memory", "900GiB"]):
            check_refused(run("size", "--model-config", path, *options), 1, f"{path}: {message}",
                          str(content)[:300])
    for content, message in BAD_WITH_MEMORY:
        write(path, json.dumps(content))
        check_equal(run("size", "--model-config", path).returncode, 0, content)
        done = run("size", "--model-config", path, "--memory", "2000GiB")
        check_refused(done, 1, path + ": ", content)
        check_refused(done, 1, message, content)
        found = size("--model-config", path, "--memory", "2000GiB", "--weights", "1GiB")
        check_equal(found.get("weights_bytes"), GIB, content)
    found = size("--model-config", path, "--memory", "80GiB", "--weights-dtype", "bf16")
    check_equal(found.get("weights_bytes"), 2 * 8029995008, "an unknown method, but named here")
    for words, status, message in OPTIONS:
        check_refused(run("size", *words.split()), status, message, words)
    missing = os.path.join(folder, "none")
    for name, message in [(folder, "cannot open: Is a directory"),
                          (missing, "cannot open: No such file")]:
        check_refused(run("size", "--model-config", name), 1, f"{name}: {message}")
    done = run("size", "--model-config", "-", stdin=b"{")
    check_refused(done, 1, "standard input: not valid JSON")


def main():
    check_figures()
    check_sharing()
    check_tables()
    check_text()
    check_weights()
    with directory() as folder:
        path = os.path.join(folder, "config.json")
        check_configs(path)
        check_states(path)
        check_bad_input(folder, path)
    finish()


main()
