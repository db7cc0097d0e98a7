"""kvpager size --gguf and --engine: figures of vLLM and llama.cpp (lib_engines.py), what the header
of a GGUF says and how a wrong one is refused, which options go together, and what people see."""

import json
import os
import struct

import lib_engines as engines
import lib_gguf as gguf
from lib_kvpager import check, check_equal, directory, finish, run


def size(*options, stdin=None):
    done = run("size", "--json", *options, stdin=stdin)
    if not check_equal(done.returncode, 0, *options, done.stderr.decode()):
        return {"engine": {}, "gguf": {}}
    return json.loads(done.stdout)


# -------------------------------------------------------------------------------------- the engines


def file_of(folder, model):
    """A config.json or a GGUF, and the option that names it."""
    if "general.architecture" in model:
        path = os.path.join(folder, "model.gguf")
        gguf.write(path, model, [])
        return "--gguf", path
    path = os.path.join(folder, "config.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(model, file)
    return "--model-config", path


def check_vllm(folder):
    for name, model, _, more in engines.VLLM:
        options = {**engines.DEFAULTS, **more}
        figures = size(*file_of(folder, model), "--engine", "vllm", "--utilization", "1",
                       "--weights", "1B", "--overhead", "0",
                       "--memory", f"{options['memory'] + 1}B", "--dtype", options["dtype"],
                       "--context", str(options["context"]), "--batch", str(options["batch"]),
                       "--tp", str(options["tp"]),
                       *([] if "compress_ratios" in model else
                         ["--block-tokens", str(options["block"])]))["engine"]
        for key, value in engines.VLLM_SAYS[name].items():
            found = figures.get(key)
            if key == "concurrency" and found is not None:
                found = round(found, 6)
            check_equal(found, value, name, key)
        check_equal(figures.get("starts"), "tokens" in engines.VLLM_SAYS[name], name)


def check_held():
    """Requests at once: vLLM 0.32's scheduler ran 21, 19 and 16
    (findings/vllm_windows_concurrency.sh). A window of 1,024 may be in one block more than there."""
    for batch, expected in (("2048", 20), ("8192", 18), ("16384", 16)):
        found = size("--model", "gemma-3-27b", "--engine", "vllm", "--memory", "68719476737B",
                     "--weights", "1B", "--overhead", "0", "--utilization", "1", "--context",
                     "32768", "--batch", batch)
        check_equal(found["engine"].get("held_tokens"), expected * 32768, batch)
    found = size("--model", "llama-3.1-8b", "--engine", "vllm", "--memory", "12GiB", "--weights",
                 "1GiB", "--overhead", "0", "--utilization", "1", "--context", "8192")["engine"]
    check_equal(found["held_tokens"], (found["blocks"] - 1) // 512 * 8192)


def check_llama(folder):
    for name, (keys, tensors) in gguf.MODELS.items():
        path = os.path.join(folder, name + ".gguf")
        gguf.write(path, keys, tensors)
        for options, expected in zip(engines.LLAMA_OPTIONS, engines.LLAMA_SAYS[name]):
            figures = size("--gguf", path, "--engine", "llama.cpp", *options.split())
            check_equal(figures["engine"].get("allocated_bytes"), expected, name, options)


def check_fits(folder):
    """131,072 B a token: the largest context that fits, in steps of the padding of each cache."""
    path = os.path.join(folder, "llama-3.1-8b.gguf")
    for options, memory, most in [
            ("", 131072 * 8192, 8192), ("", 131072 * 8192 - 1, 7936), ("", 131072 * 100, 0),
            ("--parallel 3", 131072 * 8192, 7680),
            ("--parallel 3 --kv-unified", 131072 * 8192, 8192)]:
        for context, fits in ((max(most, 1), most > 0), (most + 1, False)):
            found = size("--gguf", path, "--engine", "llama.cpp", "--weights", "1B", "--overhead",
                         "0", "--memory", f"{memory + 1}B", "--context", context,
                         *options.split())["engine"]
            check_equal(found.get("max_context_tokens"), most, options, memory)
            check_equal(found.get("fits"), fits, options, memory, context)


# ------------------------------------------------------------------------------------- the options

WRONG_OPTIONS = [
    ("--batch 9", "--batch needs --engine"),
    ("--parallel 3", "--parallel needs --engine llama.cpp"),
    ("--kv-unified", "--kv-unified needs --engine llama.cpp"),
    ("--engine vllm --parallel 2", "--parallel needs --engine llama.cpp"),
    ("--engine vllm --swa-full", "--swa-full needs --engine llama.cpp"),
    ("--engine vllm --block-tokens 24", "--block-tokens is 24, expected a multiple of 16"),
    ("--engine vllm --dtype int8", "--dtype is int8, expected one that vllm has"),
    ("--engine llama.cpp --dtype fp8", "--dtype is fp8, expected one that llama.cpp has"),
    ("--engine llama.cpp --tp 2", "--tp and --engine llama.cpp exclude each other"),
    ("--engine sglang", "--engine is 'sglang', expected one of: vllm, llama.cpp"),
    ("--gguf x", "--model and --gguf exclude each other"),
]


def check_options():
    for options, message in WRONG_OPTIONS:
        done = run("size", "--model", "llama-3.1-8b", *options.split())
        check_equal(done.returncode, 2, options)
        check(message in done.stderr.decode(), options, done.stderr.decode())


def check_defaults():
    """By device: vLLM's share of the memory, and tokens of a batch; llama.cpp takes all."""
    for options, key, value in [("--engine vllm", "utilization", 0.92),
                                ("--engine llama.cpp", "utilization", 1.0),
                                ("", "utilization", 0.9),
                                ("--engine vllm --utilization 0.5", "utilization", 0.5),
                                ("--engine llama.cpp", "kv_dtype", "f16"),
                                ("--engine llama.cpp --dtype q8_0", "kv_dtype", "q8_0")]:
        found = size("--model", "llama-3.1-8b", "--device", "h100", *options.split())
        check_equal(found[key], value, options, key)
    for device, batch in [("h100", 8192), ("a100-80gb", 2048), ("b200", 16384), ("l4", 2048)]:
        found = size("--model", "llama-3.1-8b", "--weights", "1GiB", "--device", device,
                     "--engine", "vllm")
        check_equal(found["engine"]["batch_tokens"], batch, device)


    # llama.cpp's converters drop a window that all layers have
    found = size("--model", "mistral-7b-v0.1", "--engine", "llama.cpp", "--context", "32768")
    check_equal(found["engine"]["allocated_bytes"], 131072 * 32768)
    done = run("size", "--model", "deepseek-v4-pro", "--engine", "vllm", "--dtype", "bf16")
    check_equal(done.returncode, 1)
    check("not in fp8 (--dtype fp8)" in done.stderr.decode(), done.stderr.decode())


def check_text(folder):
    """Which lines are whose."""
    done = run("size", "--model", "gemma-3-27b", "--device", "h100", "--engine", "vllm")
    text = done.stdout.decode()
    ours, theirs = text.index("By kvpager's rules"), text.index("By the rules of vLLM 0.32")
    check(ours < text.index("memory for KV") < theirs, text)
    check(theirs < text.index("in 6 groups of 10, 8 places unused"), text)
    check(text.index("GPU KV cache size") < text.rindex("By kvpager's rules"), text)
    check(text.rindex("By kvpager's rules") < text.index("held at once"), text)
    path = os.path.join(folder, "gemma-3-27b.gguf")
    done = run("size", "--gguf", path, "--engine", "llama.cpp", "--context", "20000",
               "--parallel", "3")
    text = done.stdout.decode()
    check("-c 20000 -np 3 -ub 512 -ctk f16 -ctv f16" in text, text)
    check("52 x 8,192 B x 1,536 cells x 3" in text, text)
    for line in text.splitlines():
        check(len(line) <= 80 or path in line, line)


# -------------------------------------------------------------------------------------- the headers

LLAMA = gguf.shape("llama", 2, 4, 2, 64)


def with_keys(**keys):
    """The keys of LLAMA with others: "attention_x" is llama.attention.x; None takes one away."""
    out = dict(LLAMA)
    for name, value in keys.items():
        name = "llama." + name.replace("attention_", "attention.").replace("ssm_", "ssm.")
        out[name] = value
        if value is None:
            del out[name]
    return gguf.header(out, [])[0]


def raw(*keys, tensors=b"", n_tensors=0, n_keys=None):
    return (b"GGUF" + struct.pack("<IQQ", 3, n_tensors, len(keys) if n_keys is None else n_keys)
            + b"".join(keys) + tensors)


NAME = gguf.key("general.architecture", "llama")
GOOD = gguf.header(LLAMA, [])[0]
MANY = struct.pack("<Q", 1 << 60)
# header, what the message must have
WRONG = [
    (b"", "ends at byte 0 in its beginning, expected 4 bytes more"),
    (b"GGML" + GOOD[4:], 'begins with "GGML", expected "GGUF"'),
    (b"GGUF" + struct.pack("<I", 1) + GOOD[8:], "is of version 1, expected 2 or 3"),
    (b"GGUF" + struct.pack(">I", 3) + GOOD[8:], "with its lowest byte first"),
    (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 1) + NAME,
     "the number of tensors is 1152921504606846976, and "),
    (raw(NAME, n_keys=1 << 60), "the number of keys is 1152921504606846976, and "),
    (raw(NAME, n_keys=2), "ends at byte"),
    (raw(MANY, n_keys=1) + b"x" * 30, "the name of key 0 has 1152921504606846976 bytes"),
    (raw(gguf.text(""), b"x" * 16, n_keys=1), "the name of key 0 is empty"),
    (raw(gguf.text("x") + struct.pack("<I", 8) + MANY, b"x" * 9, n_keys=1),
     "ends at byte"),
    (raw(gguf.text("x") + struct.pack("<II", 9, 4) + MANY, b"x" * 9, n_keys=1),
     "x is an array of 1152921504606846976 values, and 9 bytes follow"),
    (raw(gguf.text("x") + struct.pack("<II", 9, 9) + MANY, b"x" * 9, n_keys=1),
     "x is an array of type 9, expected numbers or texts"),
    (raw(gguf.text("x") + struct.pack("<I", 99), b"x" * 9, n_keys=1),
     "x is of type 99, expected 0 to 12"),
    (raw(gguf.key("llama.block_count", 2)), "has no general.architecture in its 1 keys"),
    (raw(NAME, NAME), "general.architecture is there twice"),
    (raw(gguf.key("general.architecture", 7)), "general.architecture is of type 4, expected"),
    (raw(gguf.key("general.architecture", "")), "general.architecture is empty"),
    (raw(gguf.key("general.architecture", "x" * 64)), "general.architecture has 64 bytes, expected "
     "at most 63"),
    (raw(NAME, gguf.key("llama.block_count", 2), gguf.key("llama.block_count", 2)),
     "llama.block_count is there twice"),
    (raw(NAME, gguf.text("llama.block_count") + struct.pack("<If", 6, 2.0)),
     "llama.block_count is a real number, expected a whole number"),
    (raw(NAME, gguf.key("llama.block_count", -1, gguf.I32)),
     "llama.block_count is negative, expected at least 0"),
    (raw(NAME, gguf.key("llama.block_count", 1 << 40, gguf.U64)),
     "llama.block_count is 1099511627776, expected below 2^32"),
    (with_keys(block_count=None), "has no llama.block_count, expected 1 to 1024"),
    (with_keys(block_count=5000), "llama.block_count is 5000, expected 1 to 1024"),
    (with_keys(block_count=[2, 2]), "llama.block_count has 2 values, expected 1 to 1"),
    (with_keys(attention_head_count=None), "has no llama.attention.head_count, expected 1 to 1024"),
    (with_keys(attention_head_count_kv=3), "llama.attention.head_count_kv is 3 in layer 0, "
     "expected a divisor of 4 heads"),
    (with_keys(attention_head_count_kv=[2, 2, 2]), "has 3 values, expected 2, one a layer"),
    (with_keys(attention_head_count_kv=[0, 0]), "leaves no layer with KV"),
    (with_keys(attention_key_length=5000), "attention.key_length is 5000, expected 1 to 4096"),
    (with_keys(embedding_length=None), "has no llama.embedding_length"),
    (with_keys(ssm_conv_kernel=4), "has llama.ssm.conv_kernel, expected none"),
    (with_keys(nextn_predict_layers=2), "llama.nextn_predict_layers is 2, expected 0 to 1"),
    (gguf.header({**LLAMA, "general.architecture": "bert"}, [])[0], "is bert, which is no decoder"),
    (gguf.header({"general.architecture": "new", **{
        key.replace("llama", "new"): value for key, value in LLAMA.items() if "llama" in key},
        "new.attention.sliding_window": 9}, [])[0],
     "has new.attention.sliding_window, expected none"),
    (raw(NAME, n_tensors=1, tensors=gguf.text("a") + struct.pack("<IQIQ", 5, 1, 0, 0) + b"x" * 9),
     "tensor a has 5 dimensions, expected at most 4"),
    (raw(NAME, n_tensors=1, tensors=gguf.text("a") + struct.pack("<I3QIQ", 3, 1 << 40, 1 << 40, 1,
                                                                 0, 0)),
     "tensor a has 1099511627776 x 1099511627776 values, expected at most 2^48"),
    (raw(NAME, n_tensors=1, tensors=gguf.text("a") + struct.pack("<IQIQ", 1, 33, 2, 0)),
     "tensor a has rows of 33 values, expected a multiple of 32"),
]


def check_wrong(folder):
    path = os.path.join(folder, "wrong.gguf")
    for data, message in WRONG:
        with open(path, "wb") as file:
            file.write(data)
        done = run("size", "--gguf", path)
        error = done.stderr.decode()
        check_equal(done.returncode, 1, message, error)
        check(path in error and message in error, message, error)
        check_equal(error.count("\n"), 1, error)


def check_cut(folder):
    """Wherever a file ends, it is refused in one line, or has all that is asked for."""
    keys, tensors = gguf.MODELS["lfm2-1.2b"]
    data = gguf.header(keys, tensors[:3])[0]
    path = os.path.join(folder, "cut.gguf")
    for n in range(0, len(data), 7):
        with open(path, "wb") as file:
            file.write(data[:n])
        done = run("size", "--gguf", path)
        check_equal(done.returncode, 1, n)
        check_equal(done.stderr.decode().count("\n"), 1, n)


def check_right(folder):
    path = os.path.join(folder, "right.gguf")
    tensors = [("a", (64, 3), "f32"), ("b", (256, 2), "q4_k"), ("c", (5,), "f16")]
    keys = {**LLAMA, "tokenizer.ggml.tokens": ["a", "", "ccc"], "x.scores": ([0.5, 1.0], gguf.F32)}
    data = gguf.header(keys, tensors)[0]
    with open(path, "wb") as file:
        file.write(data)
    found = size("--gguf", path)
    check_equal(found["gguf"], {"architecture": "llama", "version": 3, "tensors": 3,
                                "parameters": 192 + 512 + 5, "weights_bytes": 768 + 2 * 144 + 10,
                                "context_tokens": 131072})
    check_equal(found["bytes_per_token"], 2 * 2 * 2 * 64 * 2)
    check_equal(found["kv_dtype"], "f16")
    check_equal(size("--gguf", "-", stdin=data)["bytes_per_token"], 1024)
    found = size("--gguf", path, "--memory", "8GiB", "--utilization", "1")
    check_equal(found["weights_bytes"], 768 + 288 + 10)
    done = run("size", "--gguf", path, "--memory", "8GiB")
    check("the file's tensors" in done.stdout.decode(), done.stdout.decode())
    # the architecture may come last, but not through a pipe
    last = dict(sorted(keys.items(), key=lambda one: one[0] == "general.architecture"))
    data = gguf.header(last, [])[0]
    with open(path, "wb") as file:
        file.write(data)
    check_equal(size("--gguf", path)["bytes_per_token"], 1024)
    # a part of a model does not say how large its weights are
    data = gguf.header({**LLAMA, "split.count": (3, gguf.U16)}, tensors)[0]
    with open(path, "wb") as file:
        file.write(data)
    done = run("size", "--gguf", path, "--memory", "8GiB")
    check("this is a part of 3 of the model, needed to count the weights" in done.stderr.decode(),
          done.stderr.decode())
    check_equal(size("--gguf", path, "--memory", "8GiB", "--weights", "1GiB")["weights_bytes"],
                1 << 30)
    # of 62 layers the last two draft
    data = gguf.header({**gguf.shape("glm4moe", 62, 4, 2, 64), "glm4moe.nextn_predict_layers": 2},
                       [])[0]
    with open(path, "wb") as file:
        file.write(data)
    check_equal(size("--gguf", path)["bytes_per_token"], 60 * 512)
    # llama.cpp makes nothing of a window here
    data = gguf.header({**LLAMA, "llama.attention.sliding_window": 64}, [])[0]
    with open(path, "wb") as file:
        file.write(data)
    done = run("size", "--gguf", path, "--json")
    check_equal(json.loads(done.stdout)["windowed_layers"], 0)
    check("which llama.cpp does not use" in done.stderr.decode(), done.stderr.decode())


with directory() as folder:
    check_vllm(folder)
    check_llama(folder)
    check_fits(folder)
    check_options()
    check_defaults()
    check_held()
    check_text(folder)
    check_wrong(folder)
    check_cut(folder)
    check_right(folder)
finish()
