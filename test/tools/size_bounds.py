"""kvpager size: config.json and GGUF files, each right but for one number. At its bounds it is
taken, one below or above it is refused, and the message names the number and its bounds."""

import json
import os
import struct

import lib_configs as configs
import lib_gguf as gguf
from lib_kvpager import check, check_equal, directory, finish, run

HEADS, DIM, LATENT, HIDDEN, WIDTH, EXPERTS = 1024, 4096, 1 << 16, 1 << 17, 1 << 20, 4096
LAYERS, WINDOW, KERNEL = 1024, 1 << 27, 64

# ---------------------------------------------------------------------------------- config.json

PLAIN = configs.of("llama", 1, 4, 1, 64, 128)
MANY_HEADS = configs.of("llama", 1, HEADS, 1, 64, 128)
EXPERT = configs.of("qwen3_moe", 2, 4, 1, 64, 128, **{**configs.MOE, "num_experts": EXPERTS})
MLA = configs.of("deepseek_v3", 4, 4, None, None, 128, **configs.MLA)
DELTA = configs.of("qwen3_next", 4, 4, 1, 64, 128, **configs.DELTA)
WINDOWED = configs.of("mistral", 1, 4, 1, 64, 128, sliding_window=64)

CONFIGS = [
    (PLAIN, "num_hidden_layers", 1, LAYERS),
    (PLAIN, "num_attention_heads", 1, HEADS),
    (MANY_HEADS, "num_key_value_heads", 1, HEADS),
    (PLAIN, "head_dim", 1, DIM),
    (PLAIN, "hidden_size", 1, HIDDEN),
    (PLAIN, "intermediate_size", 1, WIDTH),
    (PLAIN, "vocab_size", 1, 1 << 26),
    (EXPERT, "num_experts_per_tok", 1, EXPERTS),
    (EXPERT, "moe_intermediate_size", 1, WIDTH),
    (MLA, "kv_lora_rank", 1, LATENT),
    (MLA, "q_lora_rank", 1, LATENT),
    (MLA, "qk_rope_head_dim", 0, DIM),
    (MLA, "qk_nope_head_dim", 1, DIM),
    (MLA, "v_head_dim", 1, DIM),
    (MLA, "n_shared_experts", 0, 16),
    (DELTA, "linear_conv_kernel_dim", 1, KERNEL),
    (DELTA, "linear_key_head_dim", 1, DIM),
    (DELTA, "linear_value_head_dim", 1, DIM),
    (WINDOWED, "sliding_window", 1, WINDOW),
]


def refused(key, value, *options):
    """Whether it is; the message must be of this number."""
    done = run("size", *options)
    error = done.stderr.decode()
    if done.returncode != 0:
        check_equal(done.returncode, 1, key, value, error)
        check(f"{key} is {value}, expected" in error, key, value, error)
    return done.returncode != 0, error


def check_configs(folder):
    path = os.path.join(folder, "config.json")
    for config, key, least, most in CONFIGS:
        for value in (least - 1, least, most, most + 1):
            with open(path, "w", encoding="utf-8") as file:
                json.dump({**config, key: value}, file)
            is_refused, error = refused(  # with a memory, weights are counted, too
                key, value, "--model-config", path, "--memory", "15000TiB")
            check_equal(is_refused, not least <= value <= most, key, value, error)
            check(not is_refused or f"{least} to {most}" in error, key, value, error)


# ----------------------------------------------------------------------------------------- GGUF

LLAMA = gguf.shape("llama", 1, 4, 1, 64)
NUMBERS = [
    (LLAMA, "block_count", 1, LAYERS),
    (LLAMA, "embedding_length", 1, HIDDEN),
    (LLAMA, "attention.key_length", 1, DIM),
    (LLAMA, "attention.value_length", 1, DIM),
    (gguf.MODELS["gemma-3-27b"][0], "attention.sliding_window", 0, WINDOW),
    (gguf.MODELS["lfm2-1.2b"][0], "shortconv.l_cache", 1, KERNEL),
]


def check_numbers(folder):
    path = os.path.join(folder, "model.gguf")
    for keys, name, least, most in NUMBERS:
        key = f"{keys['general.architecture']}.{name}"
        for value in (least - 1, least, most, most + 1):
            if value < 0:
                continue
            with open(path, "wb") as file:
                file.write(gguf.header({**keys, key: value}, [])[0])
            is_refused, error = refused(key, value, "--gguf", path)
            check_equal(is_refused, not least <= value <= most, key, value, error)
            check(not is_refused or f"{least} to {most}" in error, key, value, error)


def raw(key=gguf.key("x", 7), tensors=b"", version=3):
    """A file whose last key is this one. How much context it was trained for is not said."""
    keys = gguf.shape("llama", 1, 4, 1, 64, context_length=None)
    return (b"GGUF" + struct.pack("<IQQ", version, len(tensors) > 0, len(keys) + 1)
            + b"".join(gguf.key(name, value) for name, value in keys.items()) + key + tensors)


def tensor(*sizes):
    return (gguf.text("a") + struct.pack("<I", len(sizes))
            + b"".join(struct.pack("<Q", n) for n in sizes) + struct.pack("<IQ", 0, 0))


def array(n, n_bytes):
    return gguf.text("x") + struct.pack("<IIQ", gguf.ARRAY, gguf.U8, n) + b"x" * n_bytes


# A header at its bound, the same with one more, what is said of it
SIZES = [
    (raw(version=3), raw(version=4), "is of version 4, expected 2 or 3"),
    (raw(version=2), raw(version=1), "is of version 1, expected 2 or 3"),
    (raw(gguf.key("x" * 65535, 7)), raw(gguf.key("x" * 65536, 7)), "expected at most 65535"),
    (raw(array(9, 9)), raw(array(10, 9)), "an array of 10 values, and 9 bytes follow"),
    (raw(tensors=tensor(32, 1, 1, 1)), raw(tensors=tensor(32, 1, 1, 1, 1)),
     "5 dimensions, expected at most 4"),
    (raw(tensors=tensor(1 << 48)), raw(tensors=tensor((1 << 48) + 1)), "expected at most 2^48"),
    (raw(gguf.key("llama.context_length", (1 << 32) - 1, gguf.U64)),
     raw(gguf.key("llama.context_length", 1 << 32, gguf.U64)), "4294967296, expected below 2^32"),
]


def check_sizes(folder):
    path = os.path.join(folder, "sizes.gguf")
    for good, wrong, message in SIZES:
        for data in (good, wrong):
            with open(path, "wb") as file:
                file.write(data)
            done = run("size", "--gguf", path)
            error = done.stderr.decode()
            check_equal(done.returncode, int(data is wrong), message, error)
            check(data is good or message in error, message, error)


with directory() as where:
    check_configs(where)
    check_numbers(where)
    check_sizes(where)
finish()
