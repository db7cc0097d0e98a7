#!/usr/bin/env python3
"""Vectors for kvpager's content hash, from a program that shares nothing with the library.

    make_hash_vectors.py OUT       write them to OUT, as C tables; status 1 if hash_vectors.json beside
                                 this file, which other programs read, has others
    make_hash_vectors.py --json    write hash_vectors.json

XXH3-128 is written out below from its specification in plain Python (inputs of 17 bytes and more:
no root or node is shorter), and the chain from include/kvpager/hash.h:

    root = XXH3-128( "kvpager1", u32 U, u64 seed, name )
    node = XXH3-128( parent[16], U x i32 token, u32 n_keys, n_keys x key )
    key  = u32 type, i32 offset, u32 n_bytes, bytes

all little-endian, a hash as its 16 canonical (big-endian) bytes. A router or a scheduler in Python
may take the functions `root` and `chain` as they are.
"""

import json
import os
import struct
import sys

# ----------------------------------------------------------------------------------------- XXH3-128

MASK = (1 << 64) - 1
P32_1, P32_2, P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
P64_1, P64_2, P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P64_4, P64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5

SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e")


def u64(data, at):
    return struct.unpack_from("<Q", data, at)[0]


def fold(a, b):
    product = a * b
    return (product & MASK) ^ (product >> 64)


def avalanche(h):
    h ^= h >> 37
    h = h * 0x165667919E3779F9 & MASK
    return h ^ h >> 32


def mix16(data, at, key):
    return fold(u64(data, at) ^ u64(SECRET, key), u64(data, at + 8) ^ u64(SECRET, key + 8))


def mix32(low, high, data, first, second, key):
    low = low + mix16(data, first, key) & MASK
    low ^= u64(data, second) + u64(data, second + 8) & MASK
    high = high + mix16(data, second, key + 16) & MASK
    high ^= u64(data, first) + u64(data, first + 8) & MASK
    return low, high


def finish(low, high, n):
    end = avalanche(low + high & MASK)
    return -avalanche(low * P64_1 + high * P64_4 + n * P64_2 & MASK) & MASK, end


def hash_17_to_128(data):
    n = len(data)
    low, high = n * P64_1 & MASK, 0
    for i in range((n - 1) // 32, -1, -1):
        low, high = mix32(low, high, data, 16 * i, n - 16 * (i + 1), 32 * i)
    return finish(low, high, n)


def hash_129_to_240(data):
    n = len(data)
    low, high = n * P64_1 & MASK, 0
    for i in range(4):
        low, high = mix32(low, high, data, 32 * i, 32 * i + 16, 32 * i)
    low, high = avalanche(low), avalanche(high)
    for i in range(4, n // 32):
        low, high = mix32(low, high, data, 32 * i, 32 * i + 16, 3 + 32 * (i - 4))
    low, high = mix32(low, high, data, n - 16, n - 32, 136 - 17 - 16)
    return finish(low, high, n)


def accumulate(lanes, data, at, key):
    for i in range(8):
        value = u64(data, at + 8 * i)
        keyed = value ^ u64(SECRET, key + 8 * i)
        lanes[i ^ 1] = lanes[i ^ 1] + value & MASK
        lanes[i] = lanes[i] + (keyed & 0xFFFFFFFF) * (keyed >> 32) & MASK


def merge(lanes, key, start):
    total = start + sum(fold(lanes[2 * i] ^ u64(SECRET, key + 16 * i),
                             lanes[2 * i + 1] ^ u64(SECRET, key + 16 * i + 8)) for i in range(4))
    return avalanche(total & MASK)


def hash_long(data):
    n = len(data)
    lanes = [P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1]
    n_stripes = (n - 1) // 64
    for stripe in range(n_stripes):
        accumulate(lanes, data, 64 * stripe, 8 * (stripe % 16))
        if stripe % 16 == 15:
            for i in range(8):
                lane = lanes[i] ^ lanes[i] >> 47 ^ u64(SECRET, 128 + 8 * i)
                lanes[i] = lane * P32_1 & MASK
    accumulate(lanes, data, n - 64, 192 - 64 - 7)
    return (merge(lanes, 192 - 64 - 11, ~(n * P64_2) & MASK), merge(lanes, 11, n * P64_1 & MASK))


def xxh3_128(data):
    """The 16 canonical bytes."""
    assert len(data) > 16
    how = hash_17_to_128 if len(data) <= 128 else hash_129_to_240 if len(data) <= 240 else hash_long
    return struct.pack(">QQ", *how(data))


# ---------------------------------------------------------------------------------------- the chain


def root(unit_tokens, seed, name):
    return xxh3_128(b"kvpager1" + struct.pack("<IQ", unit_tokens, seed) + name)


def chain(unit_tokens, parent, tokens, first_position=0, keys=()):
    """Hashes of all full units; keys are (type, begin, end, bytes) ascending by begin."""
    hashes = []
    for at in range(0, len(tokens) - unit_tokens + 1, unit_tokens):
        begin = first_position + at
        touching = [key for key in keys if key[1] < begin + unit_tokens and key[2] > begin]
        node = parent + struct.pack(f"<{unit_tokens}i", *tokens[at:at + unit_tokens])
        node += struct.pack("<I", len(touching))
        for kind, key_begin, _, content in touching:
            node += struct.pack("<IiI", kind, key_begin - begin, len(content)) + content
        parent = xxh3_128(node)
        hashes.append(parent)
    return hashes


# ------------------------------------------------------------------------------------- the vectors


def draw(n, seed, limit=1 << 31):
    """n token ids below `limit`: the usual 32-bit congruential generator, upper bits."""
    tokens, state = [], seed
    for _ in range(n):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        tokens.append((state >> 1) % limit)
    return tokens


def make_roots():
    binary = bytes(range(256))
    return [
        (16, 0, b""),
        (16, 0, b"llama-8b"),
        (16, 0, b"llama-8b\0"),
        (1, 0, b""),
        (4, 0, b"a"),
        (64, 1, b"tenant/7"),
        (256, MASK, b"secret seed"),
        (65536, 0x0123456789ABCDEF, "größer".encode()),
        (16, 1 << 63, b"\0"),
        (16, 0, b"\0\0"),
        (16, 5, binary[128:]),
        (16, 5, binary[:108]),
        (16, 5, binary[:109]),
        (16, 5, binary[:220]),
        (16, 5, binary[:221]),
        (16, 5, binary[:255]),
    ]


IMAGE = bytes(range(0xE0, 0x100))  # a 32-byte digest

# unit_tokens, first_position, tokens, keys
CHAINS = [
    (1, 0, [0, 1, 2, 2147483647], []),
    (1, 3, [7, 7], [(9, 3, 4, b"only the first")]),
    (3, 0, draw(10, 3, 1000), []),
    (4, 0, [1, 2, 3, 4, 5, 6, 7, 8], []),
    (4, 0, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], []),
    (4, 0, [0, 2, 3, 4, 5, 6, 7, 8, 9, 10], []),
    (4, 8, [9, 10, 11, 12], []),
    (4, 0, draw(16, 4, 128256), [(1, 0, 16, b"adapter-3")]),
    (4, 4, draw(12, 5, 128256), [(1, 0, 9, b"began earlier"), (2, 6, 7, b"")]),
    (16, 0, draw(64, 16, 128256), []),
    (16, 0, draw(16, 17), []),
    (16, 0, [0] * 33, []),
    (16, 0, draw(64, 18, 128256), [(7, 5, 40, IMAGE)]),
    (16, 0, draw(64, 18, 128256), [(8, 5, 40, IMAGE)]),
    (16, 32, draw(48, 19, 128256),
     [(1, 16, 80, b"lora"), (7, 33, 47, IMAGE), (7, 33, 48, IMAGE), (7, 47, 49, bytes(52))]),
    (31, 0, draw(62, 31, 50257), []),
    (32, 0, draw(64, 32, 50257), [(3, 1, 2, b"x"), (3, 31, 33, b"yz")]),
    (64, 0, draw(192, 64, 50257), []),
    (64, 128, draw(64, 65, 50257), [(4, 127, 129, IMAGE[:16])]),
    (256, 0, draw(512, 256, 128256), []),
    (256, 256, draw(256, 257), [(2147483648, 0, 512, b"\xff" * 52), (4294967295, 300, 301, b"k")]),
]


def make():
    roots = [{"unit_tokens": u, "seed": f"0x{seed:016x}", "name": name.hex(),
              "hash": root(u, seed, name).hex()} for u, seed, name in make_roots()]
    chains = []
    for i, (u, first, tokens, keys) in enumerate(CHAINS):
        parent = root(u, i, b"parent")
        chains.append({
            "unit_tokens": u,
            "parent": parent.hex(),
            "first_position": first,
            "tokens": tokens,
            "keys": [{"type": t, "begin": b, "end": e, "bytes": c.hex()} for t, b, e, c in keys],
            "hashes": [h.hex() for h in chain(u, parent, tokens, first, keys)],
        })
    return {"format": "kvpager1", "roots": roots, "chains": chains}


# --------------------------------------------------------------------------------------- the files


def json_text(vectors):
    """One line per vector: small differences stay small."""
    text = '{\n"format": ' + json.dumps(vectors["format"])
    for part in "roots", "chains":
        text += f',\n"{part}": [\n' + ",\n".join(json.dumps(v) for v in vectors[part]) + "\n]"
    return text + "\n}\n"


def c_bytes(hex_text):
    return '"' + "".join(f"\\x{hex_text[i:i + 2]}" for i in range(0, len(hex_text), 2)) + '"'


def c_byte_lines(hex_text, indent):
    pieces = [hex_text[i:i + 40] for i in range(0, len(hex_text), 40)] or [""]
    return ("\n" + indent).join(c_bytes(piece) for piece in pieces)


def c_array(type_, name, values, per_line):
    lines = [f"static const {type_} {name}[] = {{"]
    for i in range(0, len(values), per_line):
        lines.append("    " + ", ".join(str(v) for v in values[i:i + per_line]) + ",")
    return lines + ["};"]


def header_text(vectors):
    lines = [
        "/* Made by make_hash_vectors.py. */",
        "#ifndef KVP_TEST_HASH_VECTORS_H",
        "#define KVP_TEST_HASH_VECTORS_H",
        "",
        "#include <kvpager/hash.h>",
        "",
        "typedef struct root_vector {",
        "    uint32_t unit_tokens;",
        "    uint64_t seed;",
        "    uint32_t name_bytes;",
        "    const char *name; /* [name_bytes] */",
        "    const char *hash; /* [16] */",
        "} root_vector;",
        "",
        "typedef struct chain_vector {",
        "    uint32_t unit_tokens;",
        "    uint32_t first_position;",
        "    const char *parent; /* [16] */",
        "    uint32_t n_tokens;",
        "    const int32_t *tokens; /* [n_tokens] */",
        "    uint32_t n_keys;",
        "    const kvp_key *keys; /* [n_keys] */",
        "    const char *hashes;  /* [n_tokens / unit_tokens, 16] */",
        "} chain_vector;",
        "",
        "static const root_vector root_vectors[] = {",
    ]
    for v in vectors["roots"]:
        lines.append(f'    {{{v["unit_tokens"]}u, UINT64_C({v["seed"]}), {len(v["name"]) // 2}u,')
        lines.append(f'     {c_byte_lines(v["name"], "     ")},')
        lines.append(f'     {c_bytes(v["hash"])}}},')
    lines.append("};")
    for i, v in enumerate(vectors["chains"]):
        lines.append("")
        lines += c_array("int32_t", f"tokens_{i}", v["tokens"], 8)
        if v["keys"]:
            lines.append(f"static const kvp_key keys_{i}[] = {{")
            for key in v["keys"]:
                n = len(key["bytes"]) // 2
                lines.append(f'    {{{key["type"]}u, {key["begin"]}u, {key["end"]}u, {n}u,')
                lines.append(f'     {c_byte_lines(key["bytes"], "     ")}}},')
            lines.append("};")
        joined = "".join(v["hashes"])
        lines.append(f"static const char hashes_{i}[] =")
        lines += [f"    {c_bytes(joined[at:at + 32])}" for at in range(0, len(joined), 32)]
        lines[-1] += ";"
    lines += ["", "static const chain_vector chain_vectors[] = {"]
    for i, v in enumerate(vectors["chains"]):
        keys = f'{len(v["keys"])}u, ' + (f"keys_{i}" if v["keys"] else "NULL")
        lines.append(f'    {{{v["unit_tokens"]}u, {v["first_position"]}u,')
        lines.append(f'     {c_bytes(v["parent"])},')
        lines.append(f'     {len(v["tokens"])}u, tokens_{i}, {keys}, hashes_{i}}},')
    return "\n".join(lines + ["};", "", "#endif", ""])


def main():
    """The JSON is what other programs read, and frozen: the header is of what is in it."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hash_vectors.json")
    vectors = make()
    if sys.argv[1:] == ["--json"]:
        with open(path, "w", encoding="utf-8") as file:
            file.write(json_text(vectors))
        return 0
    with open(path, encoding="utf-8") as file:
        if json.load(file) != vectors:
            print(f"{path}: differs from what this program makes", file=sys.stderr)
            return 1
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write(header_text(vectors))
    return 0


if __name__ == "__main__":
    sys.exit(main())
