#!/usr/bin/env python3
"""Vectors for what docs/STORES.md describes, from a program that shares nothing with the library.

    make_store_vectors.py OUT       write them to OUT, as C tables; status 1 if store_vectors.json beside
                                 this file, which other programs read, has others
    make_store_vectors.py --json    write store_vectors.json

SHA-256 and HMAC are Python's own, XXH3 is written out in make_hash_vectors.py. The inputs are made
here and in test/store/test_store_vectors.c, from the same few formulas.
"""

import hashlib
import hmac
import json
import os
import struct
import sys

import make_hash_vectors as xxh


def u32(value):
    return struct.pack("<I", value & 0xFFFFFFFF)


def u64(value):
    return struct.pack("<Q", value)


def i32s(values):
    return b"".join(struct.pack("<i", value) for value in values)


def sha(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def pattern(n, start):
    """n bytes start, start + 7, start + 14, ..."""
    return bytes((start + 7 * i) & 0xFF for i in range(n))


# ------------------------------------------------------------------------------------ fingerprint

PLAIN = {
    1: pattern(32, 1), 2: b"", 3: b"bf16", 4: b"", 5: u32(3), 6: u32(0), 7: u32(128), 8: u32(128),
    9: u32(32), 10: u32(8), 11: u32(0) + u32(32) + u32(0) + u32(8), 12: u32(16), 13: u32(16),
    14: u32(0) + u32(0), 15: b"", 16: b"NLH2SD",
}

# Every field other than in PLAIN.
FULL = {
    1: pattern(32, 2), 2: b"gptq-int4-g128", 3: b"f16", 4: b'{"theta":1e6}', 5: u32(4), 6: u32(1),
    7: u32(64), 8: u32(0), 9: u32(48), 10: u32(16), 11: u32(24) + u32(24) + u32(8) + u32(4),
    12: u32(32), 13: u32(16), 14: u32(0) + u32(0) + u32(4) + u32(1024), 15: b"draft-1b",
    16: b"NSHD",
}

# Groups with blocks of several sizes: a field that others lack.
SIZES = dict(FULL)
SIZES[17] = u32(32) + u32(16)


def fingerprint(fields):
    text = b"kvpagerF" + u32(1)
    for number in sorted(fields):
        text += u32(number) + u32(len(fields[number])) + fields[number]
    return sha(text)


# ------------------------------------------------------------------------------------------ chains


def root(print_of, name, epoch):
    return sha(b"kvpagerR", print_of, u64(epoch), u32(len(name)), name)


def chain(parent, tokens, block_tokens, first_position=0, keys=()):
    digests = []
    for at in range(0, len(tokens) // block_tokens * block_tokens, block_tokens):
        begin = first_position + at
        touching = [key for key in keys if key[1] < begin + block_tokens and key[2] > begin]
        parts = [parent, i32s(tokens[at:at + block_tokens]), u32(len(touching))]
        for kind, key_begin, _, content in touching:
            parts += [u32(kind), u32(key_begin - begin), u32(len(content)), content]
        parent = sha(*parts)
        digests.append(parent)
    return digests


def record_key(digest, group, part):
    return sha(b"kvpagerK", digest, u32(group), *map(u32, part))


def namespace_number(name):
    return struct.unpack("<Q", sha(b"kvpagerN", name)[:8])[0]


# ------------------------------------------------------------------------------------------ records


def header(identity, place, payload, secret=None):
    body = i32s(identity["tokens"])
    for kind, begin, _, content in identity["keys"]:
        body += u32(kind) + u32(begin - identity["position"]) + u32(len(content)) + content
    size = -(-(256 + len(body)) // 4096) * 4096
    fixed = b"kvpagerS" + u32(1) + u32(identity["kind"]) + u32(size) + u32(1 if secret else 0)
    fixed += u64(len(payload)) + u32(identity["group"]) + b"".join(map(u32, identity["slice"]))
    fixed += u32(identity["block_tokens"]) + u32(identity["n_blocks"]) + u32(identity["position"])
    fixed += identity["fingerprint"] + identity["digest"] + identity["parent"]
    fixed += u64(identity["space"]) + u64(place["written"]) + u64(place["slot"])
    fixed += u64(place["generation"]) + u32(len(identity["keys"])) + u32(len(body))
    fixed += xxh.xxh3_128(payload)
    code = bytes(32)
    if secret:
        code = hmac.new(secret, fixed + body + payload, hashlib.sha256).digest()
    fixed += code
    return fixed + u64(xxh3_64(fixed + body)) + body, size


def xxh3_64(data):
    """XXH3-64 of more than 240 bytes: the low half of what make_hash_vectors.py merges."""
    assert len(data) > 240
    return struct.unpack(">Q", xxh.xxh3_128(data)[8:])[0]


# ------------------------------------------------------------------------------------- the vectors


def make():
    plain, full = fingerprint(PLAIN), fingerprint(FULL)
    start = root(plain, b"tenant", 7)
    tokens = [(i * 7919) % 50000 for i in range(32)]
    keys = [(1, 3, 20, b"image"), (2, 16, 17, b"")]
    bare = chain(start, tokens, 16)
    keyed = chain(start, tokens, 16, 0, keys)
    large = chain(start, [i - 3 for i in range(200)], 100, 200)
    part = (0, 32, 0, 8)
    identity = {"kind": 1, "tokens": tokens, "keys": keys, "position": 0, "group": 2, "slice": part,
                "block_tokens": 16, "n_blocks": 2, "fingerprint": plain, "digest": keyed[-1],
                "parent": bytes(32), "space": namespace_number(b"tenant")}
    engine = dict(identity, kind=2, tokens=[], keys=[], digest=pattern(32, 9),
                  parent=pattern(32, 11), position=64)
    with_states = sha(b"kvpagerT", plain, u32(10), b"gdn:48x128")
    behind = dict(identity, kind=3, group=3, fingerprint=with_states)
    place = {"slot": 5, "generation": 1 << 33, "written": 1700000000}
    payload = pattern(300, 4) + pattern(77, 5)
    with_tokens, size = header(identity, place, payload)
    with_code, _ = header(engine, place, payload, secret=pattern(32, 8))
    of_state, _ = header(behind, place, pattern(300, 4))
    return {
        "fingerprint_plain": plain.hex(), "fingerprint_full": full.hex(),
        "fingerprint_sizes": fingerprint(SIZES).hex(),
        "fingerprint_states": with_states.hex(), "header_state": of_state.hex(),
        "root": start.hex(), "root_nameless": root(full, b"", 0).hex(),
        "digests": b"".join(bare).hex(), "digests_keyed": b"".join(keyed).hex(),
        "digests_large": b"".join(large).hex(),
        "record_key": record_key(keyed[-1], 2, part).hex(),
        "namespace_number": u64(namespace_number(b"tenant")).hex(),
        "header_tokens": with_tokens.hex(), "header_code": with_code.hex(),
        "header_bytes_u32": u32(size).hex(),
    }


def header_text(vectors):
    lines = ["/* Made by make_store_vectors.py. */",
             "#ifndef KVP_TEST_STORE_VECTORS_H",
             "#define KVP_TEST_STORE_VECTORS_H", ""]
    for name, text in vectors.items():
        lines.append(f"static const unsigned char {name.upper()}[] = {{")
        pieces = [f"0x{text[i:i + 2]}" for i in range(0, len(text), 2)]
        lines += ["    " + ", ".join(pieces[i:i + 16]) + "," for i in range(0, len(pieces), 16)]
        lines.append("};")
    return "\n".join(lines + ["", "#endif", ""])


def main():
    """The JSON is what other programs read, and frozen: the header is of what is in it."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "store_vectors.json")
    vectors = make()
    if sys.argv[1:] == ["--json"]:
        with open(path, "w", encoding="utf-8") as file:
            file.write(json.dumps(vectors, indent=1) + "\n")
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
