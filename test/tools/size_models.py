"""kvpager size by name: every model of the table that has a shape here, to the byte, at two lengths
and in several KV types. The calculator is a second one, written from the rules of the models alone:
a list of what layers keep, and no blocks, groups or checkpoints. Shapes are facts of published
config.json files, figures those of a public catalogue (BF16, one state of a recurrent layer).
"""

import json
import os

from lib_kvpager import check, check_equal, directory, finish, run

# layers, KV heads, width of K and V; a fifth number is V's own
GQA = {
    "llama-3.1-8b": (32, 8, 128), "llama-3.1-70b": (80, 8, 128), "llama-3.3-70b": (80, 8, 128),
    "qwen2.5-7b": (28, 4, 128), "qwen2.5-14b": (48, 8, 128), "qwen2.5-32b": (64, 8, 128),
    "qwen2.5-72b": (80, 8, 128), "qwen2.5-coder-32b": (64, 8, 128), "qwen3-0.6b": (28, 8, 128),
    "qwen3-1.7b": (28, 8, 128), "qwen3-4b": (36, 8, 128), "qwen3-8b": (36, 8, 128),
    "qwen3-14b": (40, 8, 128), "qwen3-32b": (64, 8, 128), "qwen3-30b-a3b": (48, 4, 128),
    "qwen3-235b-a22b": (94, 4, 128), "cohere-command-r-v01": (40, 64, 128),
    "cohere-command-r-plus": (64, 8, 128), "minimax-m2": (62, 8, 128), "minimax-m2.1": (62, 8, 128),
    "minimax-m2.5": (62, 8, 128), "minimax-m2.7": (62, 8, 128), "glm-4-9b": (40, 2, 128),
    "glm-4.6": (92, 8, 128), "step-3": (61, 1, 256), "apertus-8b": (32, 8, 128)}
# full layers and theirs, windowed layers and theirs, the window: KV heads, K, V
WINDOWS = {
    "gemma-4-e2b": ((3, 1, 512, 512), (12, 1, 256, 256), 512),
    "gemma-4-e4b": ((4, 2, 512, 512), (20, 2, 256, 256), 512),
    "gemma-4-26b-a4b": ((5, 2, 512, 512), (25, 8, 256, 256), 1024),
    "gemma-4-31b": ((10, 4, 512, 512), (50, 16, 256, 256), 1024),
    "gemma-3-27b": ((10, 16, 128, 128), (52, 16, 128, 128), 1024),
    "gpt-oss-120b": ((18, 8, 64, 64), (18, 8, 64, 64), 128),
    "cohere-command-r7b-12-2024": ((8, 8, 128, 128), (24, 8, 128, 128), 4096),
    "cohere-command-a-03-2025": ((16, 8, 128, 128), (48, 8, 128, 128), 4096),
    "cohere-command-a-plus-05-2026": ((8, 8, 128, 128), (24, 8, 128, 128), 4096),
    "mimo-v2.5": ((9, 4, 192, 128), (39, 8, 192, 128), 128),
    "mimo-v2.5-pro": ((10, 8, 192, 128), (60, 8, 192, 128), 128)}
# layers, of them with an indexer
LATENT = {"deepseek-v3": (61, 0), "deepseek-r1": (61, 0), "deepseek-v3.2": (61, 61),
          "glm-5": (78, 78), "glm-5.1": (78, 78), "glm-5.2": (78, 21), "glm-5.3": (78, 21),
          "kimi-k2.5": (61, 0), "kimi-k2.6": (61, 0), "kimi-k2.7-code": (61, 0),
          "longcat-flash": (56, 0)}
# full layers, KV heads; delta nets: layers, key heads, value heads, bytes of a matrix's values
DELTA = {"qwen3.8-2.4t-a95b": (23, 4, 69, 16, 128, 2), "qwen3.8-27b": (16, 4, 48, 16, 48, 2),
         "qwen3.6-27b": (16, 4, 48, 16, 48, 4), "qwen3.6-35b-a3b": (10, 2, 30, 16, 32, 4),
         "qwen3.5-397b-a17b": (15, 2, 45, 16, 64, 4), "qwen3.5-122b-a10b": (12, 2, 36, 16, 64, 4),
         "qwen3.5-35b-a3b": (10, 2, 30, 16, 32, 4), "qwen3.5-27b": (16, 4, 48, 16, 48, 4),
         "qwen3.5-9b": (8, 4, 24, 16, 32, 4), "qwen3.5-4b": (8, 4, 24, 16, 32, 4),
         "qwen3.5-2b": (6, 2, 18, 16, 16, 4), "qwen3.5-0.8b": (6, 2, 18, 16, 16, 4)}
# tokens of an entry in each layer
RATIOS = {"deepseek-v4-pro": [128] * 31 + [4] * 30, "deepseek-v4-flash": [0, 0] + [4] * 21 + [128] * 20}

# bytes of `n` values of a head, K or V; of a latent vector and of an index key where that differs
SCALES = {"nvfp4": (16, 9), "mxfp4": (32, 17), "q8_0": (32, 34), "q4_0": (32, 18)}
PLAIN = {"bf16": 2, "f32": 4, "int8": 1, "fp8": 1}


def of(n, dtype, is_value=False):
    if dtype == "k8v4":
        return n // 2 + 4 if is_value else n
    if dtype in PLAIN:
        return n * PLAIN[dtype]
    values, size = SCALES[dtype]
    return -(-n // values) * size


def key(n, dtype):
    """An index key beside a latent vector."""
    if dtype == "fp8":
        return n + 4
    return of(n, "mxfp4" if dtype == "nvfp4" else dtype)


def heads(layer, tokens, dtype):
    n, kv, k, v = layer
    return n * kv * (of(k, dtype) + of(v, dtype, True)) * tokens


def latent(dtype, rank=512, rope=64, scales=0):
    return rank + scales + 2 * rope if dtype == "fp8" and scales else of(rank + rope, dtype)


def expected(model, n, dtype):
    """Bytes of n tokens; None: the type is not of this model's layers."""
    if model in GQA:
        layers, kv, dim = GQA[model]
        return heads((layers, kv, dim, dim), n, dtype)
    if model in WINDOWS:
        full, windowed, window = WINDOWS[model]
        return heads(full, n, dtype) + heads(windowed, min(n, window), dtype)
    if model in DELTA:
        full, kv, linear, keys, values, size = DELTA[model]
        state = 3 * (2 * keys * 128 + values * 128) * 2 + values * 128 * 128 * size
        return heads((full, kv, 256, 256), n, dtype) + linear * state
    if dtype == "k8v4" and model not in ("minimax-m3", "inkling", "inkling-small"):
        return None
    if model in LATENT:
        layers, indexers = LATENT[model]
        return n * (layers * latent(dtype, scales=16 if indexers else 0) + indexers * key(128, dtype))
    if model in RATIOS:
        entry = latent(dtype, 448, 64, 8)
        return sum(min(n, 128) * entry + (n // r * entry if r else 0)
                   + (n // 4 * key(128, dtype) if r == 4 else 0) for r in RATIOS[model])
    return {
        "kimi-k3": lambda: n * 24 * latent(dtype)
        + 69 * (3 * 3 * 96 * 128 * 2 + 96 * 128 * 128 * 4),
        # all indexers' keys keep 16 bits
        "minimax-m3": lambda: heads((60, 4, 128, 128), n, dtype) + n * 57 * of(128, "bf16"),
        "glm-5.3-flash": lambda: 11 * (n * latent(dtype, 512, 0, 16) + n // 4 * key(128, dtype))
        + 34 * (3 * 3 * 64 * 128 * 2 + 64 * 128 * 128 * 4),
        # KV of four layers, index keys of eight; the others read theirs
        "deepseek-v4.1-flash": lambda: (3 * (n // 2) + n) * latent(dtype, 512, 0, 16)
        + (3 * (n // 2) + 5 * n) * key(128, dtype),
        "dots3-note-prev": lambda: n * 13 * (latent(dtype, scales=16) + key(128, dtype))
        + min(n, 512) * 33 * latent(dtype, 1024, 64, 32),
        "inkling": lambda: heads((11, 8, 128, 128), n, dtype)
        + heads((55, 16, 128, 128), min(n, 512), dtype)
        + 3 * 2 * (11 * (2 * 8 * 128 + 2 * 6144) + 55 * (2 * 16 * 128 + 2 * 6144)),
        "inkling-small": lambda: heads((7, 8, 128, 128), n, dtype)
        + heads((35, 8, 128, 128), min(n, 512), dtype) + 3 * 2 * 42 * (2 * 8 * 128 + 2 * 4096),
    }[model]()


# the catalogue's own figures, of 8,192 and 131,072 tokens in bf16
PUBLISHED = {
    "deepseek-v4-pro": (88670208, 1298792448), "deepseek-v3.2": (703594496, 11257511936),
    "deepseek-v3": (575668224, 9210691584), "glm-5": (899678208, 14394851328),
    "glm-5.3": (780140544, 12482248704), "kimi-k3": (675864576, 4073250816),
    "qwen3.8-2.4t-a95b": (1069637632, 12645916672), "qwen3.6-27b": (690814976, 8743878656),
    "qwen3.5-397b-a17b": (443719680, 4218593280), "qwen3.5-2b": (120201216, 1630150656),
    "qwen3-235b-a22b": (1577058304, 25232932864), "gemma-4-e2b": (56623104, 811597824),
    "gemma-4-26b-a4b": (377487360, 2894069760), "gemma-4-31b": (1509949440, 11576279040),
    "cohere-command-r-v01": (10737418240, 171798691840),
    "cohere-command-a-plus-05-2026": (671088640, 4697620480),
    "mimo-v2.5-pro": (458752000, 6750208000), "minimax-m2": (2080374784, 33285996544)}

# ids of repositories, how the weights are stored
IDS = [("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b", "bf16"),
       ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16", "llama-3.1-8b", "int4"),
       ("deepseek-ai/DeepSeek-V3-0324", "deepseek-v3", "fp8"),
       ("nvidia/DeepSeek-R1-0528-NVFP4", "deepseek-r1", "nvfp4"),
       ("deepseek-ai/DeepSeek-V3.2-Exp", "deepseek-v3.2", "fp8"),
       ("deepseek-ai/DeepSeek-V4-Pro-0813", "deepseek-v4-pro", "mxfp4"),
       ("deepseek-ai/DeepSeek-V4.1-Flash", "deepseek-v4.1-flash", "mxfp4"),
       ("CohereLabs/command-a-plus-05-2026-w4a4", "cohere-command-a-plus-05-2026", "nvfp4"),
       ("CohereLabs/command-a-plus-05-2026-bf16", "cohere-command-a-plus-05-2026", "bf16"),
       ("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", "qwen3-235b-a22b", "fp8"),
       ("Qwen/Qwen3.5-397B-A17B-FP8", "qwen3.5-397b-a17b", "fp8"),
       ("zai-org/GLM-5-FP8", "glm-5", "fp8"), ("moonshotai/Kimi-K3", "kimi-k3", "mxfp4"),
       ("google/gemma-4-31B-it", "gemma-4-31b", "bf16"),
       ("MiniMaxAI/MiniMax-M3", "minimax-m3", "bf16"), ("gemma-4-31b-it", "gemma-4-31b", "bf16"),
       ("thinkingmachines/Inkling", "inkling", "bf16")]


def size(model, *options):
    done = run("size", "--json", "--model", model, *options)
    check_equal(done.returncode, 0, model, options, done.stderr)
    return json.loads(done.stdout or "{}")


def check_small_blocks(model, want, given):
    """Blocks of a token and no checkpoint are the context itself. A layer group with larger ones
    has less than two blocks more: its last one, and the one that its window begins in."""
    block = max(kind["tokens_per_entry"] for kind in size(model)["kinds"])
    found = size(model, "--context", 999, *given, "--block-tokens", block)
    states = found["bytes_per_state"] * (found["states_per_sequence"] - 1)
    most = sum(2 * group["bytes_per_block"] for group in found["groups"]
               if group["block_tokens"] > 1)
    held = found["bytes_per_sequence"] - (states if found["bytes_per_state"] else 0)
    check(want <= held <= want + most, model, given, want, held, most)


def check_bytes(model):
    for n, dtypes in [(8192, (None, "bf16", "fp8", "int8", "nvfp4", "q4_0", "k8v4")),
                      (131072, ("bf16", "mxfp4")), (999, ("bf16", "q8_0"))]:
        for dtype in dtypes:
            given = ["--dtype", dtype] if dtype else []
            if dtype == "k8v4" and expected(model, n, dtype) is None:
                done = run("size", "--model", model, *given)
                check_equal(done.returncode, 2, model, dtype)
                check(b"k8v4 is of keys and values" in done.stderr, model, done.stderr)
                continue
            found = size(model, "--context", n, *given)
            want = expected(model, n, found["kv_dtype"])
            check_equal(found["bytes_of_context"], want, model, n, dtype)
            if n == 999:
                check_small_blocks(model, want, given)
    for n, want in zip((8192, 131072), PUBLISHED.get(model, ())):
        check_equal(size(model, "--context", n, "--dtype", "bf16")["bytes_of_context"], want, model)


def check_figures():
    """What the rules say in single numbers."""
    found = size("deepseek-v3.2", "--dtype", "fp8")
    check_equal([kind["bytes_per_entry"] for kind in found["kinds"]], [656, 132])
    check_equal(found["bytes_per_token"], 61 * (656 + 132))
    found = size("deepseek-v4-pro", "--dtype", "fp8")
    check_equal({kind["bytes_per_entry"] for kind in found["kinds"] if kind["keeps"] == "latent"},
                {584})
    # inputs of entries to come: f32, 8 tokens of 2,048 values and 128 of 1,024
    check_equal(found["bytes_while_running"], 4 * (30 * 8 * 2048 + 31 * 128 * 1024))
    found = size("deepseek-v4.1-flash")
    check_equal((found["kv_dtype"], found["windowed_layers"]), ("nvfp4", 0))
    check_equal([kind["bytes_per_entry"] for kind in found["kinds"] if not kind["recomputed"]
                 and kind["keeps"] in ("latent", "index")], [288, 288, 68, 68])
    check_equal(size("minimax-m3")["bytes_per_token"], 137472)
    # 552 and 218 billion parameters are announced; V4.1's tables of n-grams are not in them
    found = size("deepseek-v4.1-flash", "--memory", "400GiB", "--utilization", "1")
    check_equal((found["parameters"], found["ngram_memory_layers"]), (552 * 10**9, 2))
    check_equal(round(found["parameters_from_shape"] / 1e9), 552)
    check_equal(round(found["active_parameters"] / 1e9), 16)
    experts = 40 * 384 * 3 * 5120 * 2304
    check_equal(found["weights_bytes"], experts // 32 * 17 + (552 * 10**9 - experts) * 2)
    text = run("size", "--model", "deepseek-v4.1-flash").stdout.decode()
    check("  n-gram memory                  2  layers have tables, not in the weights\n"
          in text, text)
    found = size("cohere-command-a-plus-05-2026", "--memory", "500GiB")
    check_equal((found["parameters"], found["weights_bytes"], found["ngram_memory_layers"]),
                (218 * 10**9, 2 * 218 * 10**9, 0))
    found = size("gemma-4-31b")
    check_equal((found["groups"][0]["bytes_per_token"], found["bytes_per_sequence"]),
                (81920, 1523056640))
    # an engine's log: 975,424 tokens of V3.2 in 43.67 GiB
    check_equal(round(975424 * 61 * (656 + 132) / (1 << 30), 2), 43.67)


# options, bytes of a key and of a token in all layers, types of KV and of keys
INDEX = [
    ("deepseek-v3.2", [], 256, 61 * (1152 + 256), "bf16", "bf16"),
    ("deepseek-v3.2", ["--index-dtype", "fp8"], 132, 61 * (1152 + 132), "bf16", "fp8"),
    ("deepseek-v3.2", ["--dtype", "fp8"], 132, 61 * (656 + 132), "fp8", "fp8"),
    ("deepseek-v3.2", ["--dtype", "fp8", "--index-dtype", "mxfp4"], 68, 61 * (656 + 68), "fp8",
     "mxfp4"),
    ("deepseek-v3.2", ["--dtype", "nvfp4"], 68, 61 * (576 // 16 * 9 + 68), "nvfp4", "mxfp4"),
    ("glm-5.3", ["--dtype", "fp8", "--index-dtype", "bf16"], 256, 78 * 656 + 21 * 256, "fp8",
     "bf16"),
    ("minimax-m3", ["--dtype", "fp8"], 256, 60 * 1024 + 57 * 256, "fp8", "bf16"),
    ("minimax-m3", ["--dtype", "fp8", "--index-dtype", "fp8"], 132, 60 * 1024 + 57 * 132, "fp8",
     "fp8")]


def check_index():
    """Keys of an indexer have a type of their own."""
    for model, options, key_bytes, token_bytes, kv, index_dtype in INDEX:
        found = size(model, *options)
        check_equal([kind["bytes_per_entry"] for kind in found["kinds"] if kind["keeps"] == "index"],
                    [key_bytes], model, options)
        check_equal((found["bytes_per_token"], found["kv_dtype"], found["index_dtype"]),
                    (token_bytes, kv, index_dtype), model, options)
    check_equal(size("llama-3.1-8b")["index_dtype"], None)
    text = run("size", "--model", "deepseek-v3.2", "--dtype", "fp8", "--index-dtype",
               "mxfp4").stdout.decode()
    for line in ["  indexers                      61  keep a key for each token, in mxfp4\n",
                 "  index key                  4,148  61 layers x 68 B with scales\n",
                 "  token, all                44,164  together\n"]:
        check(line in text, repr(line), "is not in", text)
    text = run("size", "--model", "deepseek-v4-flash").stdout.decode()
    for line in ["  entry                     21,504  21 layers x 512 values x 2 B, of 4 tokens\n",
                 "  token, all                50,912  entries by their share; inside the windows\n"]:
        check(line in text, repr(line), "is not in", text)
    with directory() as folder:
        check_index_elsewhere(os.path.join(folder, "trace.jsonl"))


def check_index_elsewhere(trace):
    with open(trace, "w", encoding="utf-8") as file:
        for i in range(2):
            file.write(json.dumps({"timestamp": i, "input_length": 1024, "output_length": 1,
                                   "hash_ids": [1, 2]}) + "\n")
    words = ["--model", "deepseek-v3.2", "--dtype", "fp8", "--index-dtype", "mxfp4", "--json"]
    found = json.loads(run("mrc", *words, "--only-lru", trace).stdout)
    check_equal(found["token_bytes"], 44164)
    found = json.loads(run("replay", *words, "--blocks", "9999", "--prompt-token-ns", "1",
                           trace).stdout)
    check_equal(found["block_bytes"], 16 * 44164)


def main():
    table = json.loads(run("size", "--list", "--json").stdout)["models"]
    names = {row["model"] for row in table}
    check(len(names) >= 90 and len(names) == len(table), len(names))
    known = [*GQA, *WINDOWS, *LATENT, *DELTA, *RATIOS, "kimi-k3", "minimax-m3", "glm-5.3-flash",
             "deepseek-v4.1-flash", "dots3-note-prev", "inkling", "inkling-small"]
    for model in known:
        check(model in names, model, "is not in the table")
        check_bytes(model)
    for name, model, weights in IDS:
        found = size(name)
        check_equal((found["model"], found["weights_dtype"]),
                    (model, None if found["parameters"] is None else weights), name)
    check_figures()
    check_index()
    finish()


main()
