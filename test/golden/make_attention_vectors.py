#!/usr/bin/env python3
"""Vectors for kvpager's attention and rotary embedding, from a program that shares nothing with the
library.

    make_attention_vectors.py OUT    write them to OUT, as C tables

Plain Python, double precision. Inputs are multiples of 1/64, so that they are exact in every
format. Attention is written as in the papers: softmax(scale q K^T + mask) V over one sequence at a
time, K and V in order, no blocks; what a query sees is a list of keys made from positions and
parents.
"""

import math
import sys

# ------------------------------------------------------------------------------- rotary embedding

ROPE = {"mode": 0, "pairing": 0, "scaling": 0, "first_dim": 0, "n_dims": 0, "original_tokens": 0,
        "theta": 10000.0, "factor": 1.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "beta_fast": 32.0, "beta_slow": 1.0, "yarn_exact": 0}
NONE, AT_WRITE, AT_READ = range(3)
SPLIT, INTERLEAVED = range(2)
PLAIN, LINEAR, LLAMA3, YARN = range(4)


def rope_with(**changes):
    return {**ROPE, **changes}


def frequencies(rope, dims):
    """Radians for each position of each pair, and the stretch of what is turned."""
    n = rope["n_dims"] or dims - rope["first_dim"]
    plain = [rope["theta"] ** (-2.0 * i / n) for i in range(n // 2)]
    factor, original = rope["factor"], rope["original_tokens"]
    if rope["scaling"] == LINEAR:
        return [f / factor for f in plain], 1.0
    if rope["scaling"] == LLAMA3:
        return [llama3(rope, f) for f in plain], 1.0
    if rope["scaling"] == YARN:
        def pair_with(rotations):
            wavelength = original / rotations
            return n * math.log(wavelength / (2 * math.pi)) / (2 * math.log(rope["theta"]))
        low, high = pair_with(rope["beta_fast"]), pair_with(rope["beta_slow"])
        if not rope["yarn_exact"]:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, n - 1)
        if low >= high:
            high = low + 0.001
        kept = [1 - min(max((i - low) / (high - low), 0), 1) for i in range(n // 2)]
        return ([f * k + f / factor * (1 - k) for f, k in zip(plain, kept)],
                0.1 * math.log(factor) + 1 if factor > 1 else 1.0)
    return plain, 1.0


def llama3(rope, f):
    wavelength = 2 * math.pi / f
    low = rope["original_tokens"] / rope["low_freq_factor"]
    high = rope["original_tokens"] / rope["high_freq_factor"]
    if wavelength < high:
        return f
    if wavelength > low:
        return f / rope["factor"]
    smooth = ((rope["original_tokens"] / wavelength - rope["low_freq_factor"]) /
              (rope["high_freq_factor"] - rope["low_freq_factor"]))
    return (1 - smooth) * f / rope["factor"] + smooth * f


def turn(rope, vector, position):
    turned = list(vector)
    fs, stretch = frequencies(rope, len(vector))
    for i, f in enumerate(fs):
        if rope["pairing"] == SPLIT:
            a, b = rope["first_dim"] + i, rope["first_dim"] + i + len(fs)
        else:
            a, b = rope["first_dim"] + 2 * i, rope["first_dim"] + 2 * i + 1
        c, s = math.cos(position * f) * stretch, math.sin(position * f) * stretch
        turned[a] = vector[a] * c - vector[b] * s
        turned[b] = vector[a] * s + vector[b] * c
    return turned


# -------------------------------------------------------------------------------------- attention

CASE = {"n_heads": 1, "group": 1, "k_size": 4, "v_size": 4, "latent": 0, "block_tokens": 4,
        "n_tokens": 6, "n_queries": 6, "causal": 1, "sinks": 0, "recent": 0, "parents": [],
        "scale": 0.0, "soft_cap": 0.0, "has_sink_logits": 0, "rope": ROPE}


class Draw:
    """Multiples of 1/64 in -2 .. 2."""

    def __init__(self, seed):
        self.state = seed

    def one(self):
        self.state = (self.state * 1103515245 + 12345) % 2 ** 31
        return (self.state // 65536 % 257 - 128) / 64.0

    def tensor(self, *shape):
        if not shape:
            return self.one()
        return [self.tensor(*shape[1:]) for _ in range(shape[0])]


def visible(case, depth_of, ancestors, query):
    """Keys that a query (a token's number) sees, in order."""
    n_committed = case["n_tokens"] - len(case["parents"])
    position = [i if i < n_committed else n_committed + depth_of[i - n_committed]
                for i in range(case["n_tokens"])]
    if not case["causal"]:
        keys = range(case["n_tokens"])
    elif query < n_committed:
        keys = range(query + 1)
    else:
        keys = list(range(n_committed)) + [n_committed + i for i in ancestors[query - n_committed]]
    if case["recent"]:
        keys = [k for k in keys if position[k] < case["sinks"] or
                position[k] > position[query] - case["recent"]]
    return list(keys), position


def compute(case):
    depth_of, ancestors = [], []
    for i, parent in enumerate(case["parents"]):
        depth_of.append(0 if parent < 0 else depth_of[parent] + 1)
        ancestors.append(([] if parent < 0 else ancestors[parent]) + [i])
    scale = case["scale"] or 1 / math.sqrt(case["k_size"])
    rope, outs, lses = case["rope"], [], []
    for i, q_heads in enumerate(case["q"]):
        query = case["n_tokens"] - case["n_queries"] + i
        keys, position = visible(case, depth_of, ancestors, query)
        outs.append([])
        lses.append([])
        for head, q in enumerate(q_heads):
            kv_head = head // case["group"]
            scores = []
            if rope["mode"] == AT_WRITE:
                q = turn(rope, q, position[query])
            elif rope["mode"] == AT_READ:
                q = turn(rope, q, len(keys) - 1)
            for rank, key in enumerate(keys):
                k = case["k"][key][kv_head]
                if rope["mode"] != NONE:
                    k = turn(rope, k, position[key] if rope["mode"] == AT_WRITE else rank)
                score = scale * sum(a * b for a, b in zip(q, k))
                if case["soft_cap"]:
                    score = case["soft_cap"] * math.tanh(score / case["soft_cap"])
                scores.append(score)
            total = sum(math.exp(s) for s in scores)
            if case["has_sink_logits"]:
                total += math.exp(case["sink_logits"][head])
            values = [case["k" if case["latent"] else "v"][key][kv_head] for key in keys]
            outs[-1].append([sum(math.exp(s) * v[e] for s, v in zip(scores, values)) / total
                             for e in range(case["v_size"])])
            lses[-1].append(math.log(total))
    return outs, lses


def make_case(seed, name, **changes):
    case = {"name": name, **CASE, **changes}
    draw = Draw(seed)
    n_q = case["n_heads"] * case["group"]
    case["k"] = draw.tensor(case["n_tokens"], case["n_heads"], case["k_size"])
    case["v"] = draw.tensor(case["n_tokens"], case["n_heads"], case["v_size"])
    case["q"] = draw.tensor(case["n_queries"], n_q, case["k_size"])
    case["sink_logits"] = draw.tensor(n_q)
    case["out"], case["lse"] = compute(case)
    return case


def make_vectors():
    ropes = [
        ("plain", 64, rope_with(mode=1)),
        ("Llama 2", 128, rope_with(mode=1)),
        ("partial", 64, rope_with(mode=1, first_dim=8, n_dims=24, pairing=INTERLEAVED)),
        ("linear 4", 64, rope_with(mode=1, scaling=LINEAR, factor=4.0)),
        ("Llama 3.1", 128, rope_with(mode=1, scaling=LLAMA3, theta=500000.0, factor=8.0,
                                     original_tokens=8192)),
        ("Llama 3.2", 64, rope_with(mode=1, scaling=LLAMA3, theta=500000.0, factor=32.0,
                                    original_tokens=8192)),
        ("YaRN", 128, rope_with(mode=1, scaling=YARN, theta=1000000.0, factor=4.0,
                                original_tokens=32768)),
        ("gpt-oss", 64, rope_with(mode=1, scaling=YARN, theta=150000.0, factor=32.0,
                                  original_tokens=4096, yarn_exact=1)),
        ("DeepSeek-V3", 576, rope_with(mode=1, scaling=YARN, factor=40.0, original_tokens=4096,
                                       first_dim=512, pairing=INTERLEAVED)),
        ("YaRN with a long ramp", 8, rope_with(mode=1, scaling=YARN, theta=10.0, factor=2.0,
                                               original_tokens=636)),
        ("YaRN that shrinks", 16, rope_with(mode=1, scaling=YARN, theta=100.0, factor=0.5,
                                            original_tokens=256)),
        ("YaRN without a ramp", 8, rope_with(mode=1, scaling=YARN, factor=2.0, original_tokens=1)),
    ]
    tree = [-1, 0, 0, 1, -1, 4, 2]
    cases = [
        make_case(1, "plain causal prefill"),
        make_case(2, "decode, grouped queries", n_heads=2, group=2, n_tokens=9, n_queries=1),
        make_case(3, "a chunk, odd sizes", n_heads=3, k_size=5, v_size=3, block_tokens=3,
                  n_tokens=10, n_queries=4, scale=0.75),
        make_case(4, "window with sinks", n_tokens=12, n_queries=12, sinks=2, recent=4,
                  block_tokens=2),
        make_case(5, "soft cap and sink logits", group=3, soft_cap=1.5, has_sink_logits=1),
        make_case(6, "not causal", causal=0, n_queries=2),
        make_case(7, "tree", n_tokens=12, n_queries=7, parents=tree, group=2),
        make_case(8, "tree in a window, turned at write", n_tokens=13, n_queries=7, parents=tree,
                  sinks=1, recent=4, rope=rope_with(mode=AT_WRITE)),
        make_case(9, "turned at write, llama3, interleaved", k_size=8, n_tokens=9, n_queries=9,
                  rope=rope_with(mode=AT_WRITE, scaling=LLAMA3, pairing=INTERLEAVED, theta=100.0,
                                 factor=4.0, original_tokens=64)),
        make_case(10, "turned at read in a window, YaRN, partial", k_size=10, n_tokens=14,
                  n_queries=5, sinks=3, recent=5, group=2, block_tokens=2,
                  rope=rope_with(mode=AT_READ, scaling=YARN, theta=50.0, factor=2.0, n_dims=6,
                                 first_dim=2, original_tokens=32)),
        make_case(11, "latent, rotary part behind", latent=1, group=4, k_size=10, v_size=6,
                  n_tokens=8, n_queries=2, scale=0.5,
                  rope=rope_with(mode=AT_WRITE, first_dim=6, pairing=INTERLEAVED)),
    ]
    return {"ropes": [{"name": name, "dims": dims, "rope": rope,
                       "frequencies": frequencies(rope, dims)[0],
                       "magnitude": frequencies(rope, dims)[1]} for name, dims, rope in ropes],
            "cases": cases}


# -------------------------------------------------------------------------------------- the tables


def flat(value):
    if not isinstance(value, list):
        return [value]
    return [number for part in value for number in flat(part)]


def c_array(kind, name, values):
    lines, line = [], "   "
    for value in values or [0]:
        word = f" {value!r},"
        if len(line) + len(word) > 100:
            lines.append(line)
            line = "   "
        line += word
    lines.append(line)
    return [f"static const {kind} {name}[] = {{", *lines, "};"]


def c_rope(rope):
    fields = [f".{key} = {value!r}" for key, value in rope.items()]
    return ["     {.struct_size = sizeof(kvp_rope), " + ", ".join(fields[:4]) + ",",
            "      " + ", ".join(fields[4:8]) + ",",
            "      " + ", ".join(fields[8:11]) + ",",
            "      " + ", ".join(fields[11:]) + "},"]


HEADER = """\
/* Made by make_attention_vectors.py. */
#ifndef KVP_TEST_ATTENTION_VECTORS_H
#define KVP_TEST_ATTENTION_VECTORS_H

#include <kvpager/attention.h>

typedef struct rope_vector {
    const char *name;
    uint32_t dims;
    kvp_rope rope;
    uint32_t n_pairs;
    const double *frequencies; /* [n_pairs] */
    double magnitude;
} rope_vector;

typedef struct attention_vector {
    const char *name;
    uint32_t n_heads, group, k_size, v_size, latent, block_tokens, n_tokens, n_queries, causal;
    uint32_t sinks, recent, n_tree;
    const int32_t *parents; /* [n_tree] */
    double scale, soft_cap;
    uint32_t has_sink_logits;
    kvp_rope rope;
    const float *k;           /* [n_tokens, H, D] */
    const float *v;           /* [n_tokens, H, Dv]; latent: not used */
    const float *q;           /* [n_queries, Q, D] */
    const float *sink_logits; /* [Q] */
    const double *out;        /* [n_queries, Q, Dv] */
    const double *lse;        /* [n_queries, Q] */
} attention_vector;
""".splitlines()

SIZES = ["n_heads", "group", "k_size", "v_size", "latent", "block_tokens", "n_tokens", "n_queries",
         "causal", "sinks", "recent"]


def as_header(vectors):
    lines = list(HEADER)
    for i, vector in enumerate(vectors["ropes"]):
        lines += [""] + c_array("double", f"rope_{i}_frequencies", vector["frequencies"])
    lines += ["", "static const rope_vector rope_vectors[] = {"]
    for i, vector in enumerate(vectors["ropes"]):
        lines += [f'    {{"{vector["name"]}", {vector["dims"]}u,', *c_rope(vector["rope"]),
                  f'     {len(vector["frequencies"])}u, rope_{i}_frequencies, '
                  f'{vector["magnitude"]!r}}},']
    lines += ["};"]
    for i, case in enumerate(vectors["cases"]):
        lines += [""] + c_array("int32_t", f"case_{i}_parents", case["parents"])
        for name in ["k", "v", "q", "sink_logits"]:
            lines += c_array("float", f"case_{i}_{name}", flat(case[name]))
        for name in ["out", "lse"]:
            lines += c_array("double", f"case_{i}_{name}", flat(case[name]))
    lines += ["", "static const attention_vector attention_vectors[] = {"]
    for i, case in enumerate(vectors["cases"]):
        sizes = ", ".join(f"{case[name]}u" for name in SIZES)
        lines += [f'    {{"{case["name"]}",', f'     {sizes}, {len(case["parents"])}u,',
                  f'     case_{i}_parents, {case["scale"]!r}, {case["soft_cap"]!r},'
                  f' {case["has_sink_logits"]}u,',
                  *c_rope(case["rope"]),
                  f'     case_{i}_k, case_{i}_v, case_{i}_q, case_{i}_sink_logits, case_{i}_out,'
                  f' case_{i}_lse}},']
    return "\n".join(lines + ["};", "", "#endif", ""])


if __name__ == "__main__":
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        out.write(as_header(make_vectors()))
