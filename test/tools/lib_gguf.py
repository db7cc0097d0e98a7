"""GGUF files for tests: a writer of the format, and models of many architectures with the tensors
that llama.cpp asks for, so that it opens them. Of the data nothing is written: a file is sparse
behind its header.
"""

import struct

U8, I8, U16, I16, U32, I32, F32, BOOL, TEXT, ARRAY, U64, I64, F64 = range(13)
FORMATS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?",
           U64: "Q", I64: "q", F64: "d"}
# type: its number, values in a group, bytes of a group
TYPES = {"f32": (0, 1, 4), "f16": (1, 1, 2), "q4_0": (2, 32, 18), "q8_0": (8, 32, 34),
         "q4_k": (12, 256, 144), "q6_k": (14, 256, 210), "bf16": (30, 1, 2), "mxfp4": (39, 32, 17)}


def text(value):
    data = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(data)) + data


def value_of(value, kind):
    return text(value) if kind == TEXT else struct.pack("<" + FORMATS[kind], value)


def kind_of(value):
    if isinstance(value, bool):
        return BOOL
    return {int: U32, float: F32}.get(type(value), TEXT)


def key(name, value, kind=None):
    """A key with its value: a number, a text, or a list of one of them."""
    if isinstance(value, list):
        kind = kind_of(value[0]) if kind is None else kind
        return (text(name) + struct.pack("<IIQ", ARRAY, kind, len(value))
                + b"".join(value_of(one, kind) for one in value))
    kind = kind_of(value) if kind is None else kind
    return text(name) + struct.pack("<I", kind) + value_of(value, kind)


def tensor_bytes(shape, kind):
    _, group, size = TYPES[kind]
    n = 1
    for one in shape:
        n *= one
    return n // group * size


def header(keys, tensors, version=3):
    """keys: name to value, or to (value, type). tensors: name, shape, type."""
    out = [b"GGUF", struct.pack("<IQQ", version, len(tensors), len(keys))]
    for name, value in keys.items():
        out.append(key(name, *value) if isinstance(value, tuple) else key(name, value))
    at = 0
    for name, shape, kind in tensors:
        out.append(text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape,
                                            TYPES[kind][0], at))
        at += (tensor_bytes(shape, kind) + 31) // 32 * 32
    return b"".join(out), at


def write(path, keys, tensors):
    """A whole file, as far as its length goes."""
    head, data = header(keys, tensors)
    with open(path, "wb") as file:
        file.write(head)
        file.truncate((len(head) + 31) // 32 * 32 + data)


# ---------------------------------------------------------------------------------------- models

HIDDEN, FF, VOCAB = 512, 256, 64


def shape(architecture, layers, heads, kv_heads, head_dim, **more):
    """Keys of a model. Those in `more` follow its name; attention_x is for attention.x."""
    keys = {"general.architecture": architecture, "tokenizer.ggml.model": "no_vocab"}
    known = {"block_count": layers, "context_length": 131072, "embedding_length": HIDDEN,
             "feed_forward_length": FF, "vocab_size": VOCAB, "attention_head_count": heads,
             "attention_head_count_kv": kv_heads, "attention_key_length": head_dim,
             "attention_value_length": head_dim, "attention_layer_norm_rms_epsilon": 1e-5,
             **more}
    for name, value in known.items():
        for part in ("attention", "attention.indexer", "ssm", "shortconv", "rope", "kda"):
            if name.startswith(part + "_"):
                name = part + "." + name[len(part) + 1:]
        if value is not None:
            keys[architecture + "." + name] = value
    return keys


def of(value, layer):
    return value[layer] if isinstance(value, list) else value


class Tensors:
    """What llama.cpp asks for; kinds of layers are put together below."""

    def __init__(self, keys):
        self.keys, self.of_model = keys, []
        self.name = keys["general.architecture"]
        self.add("token_embd.weight", HIDDEN, VOCAB)

    def get(self, name, layer=0, default=0):
        return of(self.keys.get(f"{self.name}.{name}", default), layer)

    def add(self, name, *shape):
        self.of_model.append((name, shape, "f32" if len(shape) == 1 or "conv1d" in name
                              or "ssm_a" in name or "ssm_d" in name else "f16"))

    def many(self, layer, **shapes):
        for name, shape in shapes.items():
            self.add(f"blk.{layer}.{name}.weight", *(shape if isinstance(shape, tuple) else
                                                     (shape,)))

    def attention(self, i, windowed=False, norms=False, gate=1):
        tail = "_swa" if windowed and f"{self.name}.attention.key_length_swa" in self.keys else ""
        k, v = self.get("attention.key_length" + tail), self.get("attention.value_length" + tail)
        heads = self.get("attention.head_count", i)
        kv_heads = self.get("attention.head_count_kv", i)
        self.many(i, attn_norm=HIDDEN, attn_q=(HIDDEN, heads * k * gate),
                  attn_k=(HIDDEN, kv_heads * k), attn_v=(HIDDEN, kv_heads * v),
                  attn_output=(heads * v, HIDDEN))
        if norms:
            self.many(i, attn_q_norm=k, attn_k_norm=k)

    def latent(self, i, q_rank=0):
        k, v = self.get("attention.key_length_mla"), self.get("attention.value_length_mla")
        rank, rope = self.get("attention.kv_lora_rank"), self.get("rope.dimension_count")
        heads = self.get("attention.head_count")
        if q_rank:
            self.many(i, attn_q_a_norm=q_rank, attn_q_a=(HIDDEN, q_rank),
                      attn_q_b=(q_rank, heads * k))
        else:
            self.many(i, attn_q=(HIDDEN, heads * k))
        self.many(i, attn_norm=HIDDEN, attn_kv_a_norm=rank, attn_kv_a_mqa=(HIDDEN, rank + rope),
                  attn_k_b=(k - rope, rank, heads),
                  attn_v_b=(rank, v, heads), attn_output=(heads * v, HIDDEN))

    def mlp(self, i, post=()):
        self.many(i, ffn_norm=HIDDEN, ffn_gate=(HIDDEN, FF), ffn_up=(HIDDEN, FF),
                  ffn_down=(FF, HIDDEN), **{name: HIDDEN for name in post})

    def experts(self, i, n=4):
        self.many(i, ffn_gate_inp=(HIDDEN, n), ffn_gate_exps=(HIDDEN, FF, n),
                  ffn_down_exps=(FF, HIDDEN, n), ffn_up_exps=(HIDDEN, FF, n))

    def end(self, output="output_norm"):
        self.add(output + ".weight", HIDDEN)
        return self.of_model


def plain(keys, norms=False, post=()):
    tensors = Tensors(keys)
    pattern = tensors.keys.get(f"{tensors.name}.attention.sliding_window_pattern", 0)
    for i in range(tensors.get("block_count") - tensors.get("nextn_predict_layers")):
        tensors.attention(i, bool(of(pattern, i)) if isinstance(pattern, list) else False, norms)
        tensors.mlp(i, post)
    return keys, tensors.end()


GEMMA_POST = ("post_attention_norm", "post_ffw_norm")


def gemma4(keys):
    keys, tensors = plain(keys, norms=True, post=GEMMA_POST)
    name = keys["general.architecture"]
    return keys, tensors + [("rope_freqs.weight", (keys[name + ".attention.key_length"] // 2,),
                             "f32")]


def mimo(keys):
    keys, tensors = plain(keys)
    return keys, tensors + [("output.weight", (HIDDEN, VOCAB), "f16")]


def gpt_oss(keys, n=4):
    tensors = Tensors(keys)
    for i in range(tensors.get("block_count")):
        heads, kv_heads, dim = (tensors.get("attention.head_count"),
                                tensors.get("attention.head_count_kv"), 64)
        tensors.attention(i)
        tensors.experts(i, n)
        tensors.many(i, post_attention_norm=HIDDEN)
        for part, size in (("attn_q", heads * dim), ("attn_k", kv_heads * dim),
                           ("attn_v", kv_heads * dim), ("attn_output", HIDDEN),
                           ("ffn_gate_inp", n)):
            tensors.add(f"blk.{i}.{part}.bias", size)
        for part, size in (("ffn_gate_exps", FF), ("ffn_down_exps", HIDDEN), ("ffn_up_exps", FF)):
            tensors.of_model.append((f"blk.{i}.{part}.bias", (size, n), "f32"))
        tensors.of_model.append((f"blk.{i}.attn_sinks.weight", (heads,), "f32"))
    tensors.add("output.weight", HIDDEN, VOCAB)
    return keys, tensors.end()


def mla(keys):
    tensors = Tensors(keys)
    for i in range(tensors.get("block_count")):
        tensors.latent(i)
        tensors.mlp(i)
    return keys, tensors.end()


def with_indexer(keys):
    """Its last layer drafts, and has no tensors here."""
    tensors = Tensors(keys)
    size, rank = tensors.get("attention.indexer.key_length"), tensors.get("attention.q_lora_rank")
    n = tensors.get("attention.indexer.head_count")
    for i in range(tensors.get("block_count") - 1):
        tensors.latent(i, rank)
        tensors.mlp(i)
        tensors.add(f"blk.{i}.indexer.k_norm.bias", size)
        tensors.many(i, **{"indexer.k_norm": size, "indexer.proj": (HIDDEN, n),
                           "indexer.attn_k": (HIDDEN, size), "indexer.attn_q_b": (rank, n * size)})
    return keys, tensors.end()


def openelm(keys):
    tensors = Tensors(keys)
    for i in range(tensors.get("block_count")):
        dim, heads = tensors.get("attention.key_length"), tensors.get("attention.head_count", i)
        kv_heads = tensors.get("attention.head_count_kv", i)
        tensors.many(i, attn_norm=HIDDEN, attn_qkv=(HIDDEN, (heads + 2 * kv_heads) * dim),
                     attn_q_norm=dim, attn_k_norm=dim, attn_output=(heads * dim, HIDDEN))
        tensors.mlp(i)
    return keys, tensors.end()


def lfm2(keys):
    tensors = Tensors(keys)
    steps = tensors.get("shortconv.l_cache")
    for i in range(tensors.get("block_count")):
        tensors.mlp(i)
        if tensors.get("attention.head_count_kv", i):
            tensors.attention(i, norms=True)
        else:
            tensors.many(i, attn_norm=HIDDEN)
            tensors.of_model.append((f"blk.{i}.shortconv.conv.weight", (steps, HIDDEN), "f32"))
            tensors.add(f"blk.{i}.shortconv.in_proj.weight", HIDDEN, 3 * HIDDEN)
            tensors.add(f"blk.{i}.shortconv.out_proj.weight", HIDDEN, HIDDEN)
    return keys, tensors.end("token_embd_norm")


def qwen3next(keys):
    tensors = Tensors(keys)
    steps, inner, state, heads, groups = (
        tensors.get("ssm." + name) for name in
        ("conv_kernel", "inner_size", "state_size", "time_step_rank", "group_count"))
    for i in range(tensors.get("block_count")):
        tensors.many(i, post_attention_norm=HIDDEN, ffn_gate_inp_shexp=HIDDEN,
                     ffn_gate_shexp=(HIDDEN, FF), ffn_up_shexp=(HIDDEN, FF),
                     ffn_down_shexp=(FF, HIDDEN))
        tensors.experts(i)
        if (i + 1) % 4 == 0:
            tensors.attention(i, norms=True, gate=2)
            continue
        key_dim = state * groups
        tensors.many(i, attn_norm=HIDDEN, ssm_in=(HIDDEN, 2 * key_dim + 2 * inner),
                     ssm_conv1d=(steps, 2 * key_dim + inner), ssm_ba=(HIDDEN, 2 * heads),
                     ssm_norm=state, ssm_out=(inner, HIDDEN))
        tensors.add(f"blk.{i}.ssm_dt.bias", heads)
        tensors.add(f"blk.{i}.ssm_a", heads)
    return keys, tensors.end()


def every(n, layers, last=True):
    """A window in all but every n-th layer: the last of each n."""
    return [(i + 1) % n != 0 if last else i % n != 0 for i in range(layers)]


EXPERTS = {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": FF}
MLA = {"attention_kv_lora_rank": 512, "attention_key_length_mla": 192,
       "attention_value_length_mla": 128, "rope_dimension_count": 64,
       "leading_dense_block_count": 99, "expert_shared_count": 1}

# Shapes of published models; hidden sizes and vocabularies are small.
MODELS = {
    "llama-3.1-8b": plain(shape("llama", 32, 32, 8, 128, rope_dimension_count=128)),
    "qwen3-32b": plain(shape("qwen3", 64, 64, 8, 128), norms=True),
    "gemma-2-9b": plain(shape("gemma2", 42, 16, 8, 256, attention_sliding_window=4096),
                        post=GEMMA_POST),
    "gemma-3-27b": plain(shape("gemma3", 62, 32, 16, 128, attention_sliding_window=1024),
                         norms=True, post=GEMMA_POST),
    "gemma-4-31b": gemma4(shape(
        "gemma4", 60, 32, [16 if one else 4 for one in every(6, 60)], 512,
        attention_key_length_swa=256, attention_value_length_swa=256,
        attention_sliding_window=1024, attention_sliding_window_pattern=every(6, 60),
        embedding_length_per_layer_input=0)),
    "gemma-4-e2b": gemma4(shape(
        "gemma4", 35, 8, 1, 512, attention_key_length_swa=256, attention_value_length_swa=256,
        attention_sliding_window=512, attention_sliding_window_pattern=every(5, 35),
        attention_shared_kv_layers=20,
        embedding_length_per_layer_input=0)),
    "mimo-v2": mimo(shape(
        "mimo2", 25, 64, [4 if i % 6 == 0 else 8 for i in range(25)], 192,
        nextn_predict_layers=1,        attention_value_length=128, attention_sliding_window=128,
        attention_sliding_window_pattern=every(6, 25, last=False), **EXPERTS)),
    "gpt-oss-20b": gpt_oss(shape("gpt-oss", 24, 64, 8, 64, attention_sliding_window=128,
                                 rope_dimension_count=64, **EXPERTS)),
    "deepseek-v2-lite": mla(shape("deepseek2", 27, 16, 1, 576, attention_value_length=512,
                                  **MLA, **EXPERTS)),
    "deepseek-v3.2": with_indexer(shape(
        "deepseek32", 62, 16, 1, 576, attention_value_length=512, attention_q_lora_rank=128,
        attention_indexer_head_count=4, attention_indexer_key_length=128,
        attention_indexer_top_k=2048, nextn_predict_layers=1, expert_gating_func=2, **MLA,
        **EXPERTS)),
    "openelm-270m": openelm(shape("openelm", 16, [12] * 3 + [16] * 7 + [20] * 6,
                                  [3] * 3 + [4] * 7 + [5] * 6, 64)),
    "lfm2-1.2b": lfm2(shape("lfm2", 16, 8, [8 if i in (2, 5, 8, 10, 12, 14) else 0
                                            for i in range(16)], 64, shortconv_l_cache=3)),
    "qwen3-next-80b": qwen3next(shape(
        "qwen3next", 48, 16, 2, 256, ssm_conv_kernel=4, ssm_inner_size=4096, ssm_state_size=128,
        ssm_time_step_rank=32, ssm_group_count=16, **EXPERTS)),
}
