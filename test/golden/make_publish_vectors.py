#!/usr/bin/env python3
"""Batches of events as kvpager/publish.h sends them, from a program that shares nothing with it.

    make_publish_vectors.py OUT    write them to OUT, as C tables

msgpack and CBOR are written out here, SHA-256 is Python's own, XXH3 is in make_hash_vectors.py. The
scene is that of test/publish/test_publish_golden.c: units of 4 tokens in namespace "m",

    1  A, 6 units, and B, 20 units behind no other, come to the device; A's first two to the host and
       to a store
    2  A's last unit leaves the device, its second and first leave the host
    3  everything is cleared

with rank 3 at 1700000000.5 s. Token i of A is (i * 7919) % 50000, the last one 2^31 - 1; of B i.
"""

import hashlib
import struct
import sys

import make_hash_vectors as xxh

# ---------------------------------------------------------------------------------------- msgpack


def head(n, small, short, middle, long):
    """What a text or an array of n begins with: (most in one byte, its bits), and the longer forms."""
    if n < small[0]:
        return bytes([small[1] | n])
    if short is not None and n < 1 << 8:
        return bytes([short, n])
    if n < 1 << 16:
        return bytes([middle]) + struct.pack(">H", n)
    return bytes([long]) + struct.pack(">I", n)


def pack(value):
    if value is None:
        return b"\xc0"
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, str):
        text = value.encode()
        return head(len(text), (32, 0xA0), 0xD9, 0xDA, 0xDB) + text
    if isinstance(value, list):
        return head(len(value), (16, 0x90), None, 0xDC, 0xDD) + b"".join(map(pack, value))
    if isinstance(value, dict):
        parts = b"".join(pack(key) + pack(item) for key, item in value.items())
        return head(len(value), (16, 0x80), None, 0xDE, 0xDF) + parts
    for limit, form, code in ((1 << 7, "B", b""), (1 << 8, "B", b"\xcc"), (1 << 16, ">H", b"\xcd"),
                              (1 << 32, ">I", b"\xce"), (1 << 64, ">Q", b"\xcf")):
        if value < limit:
            return code + struct.pack(form, value)
    raise ValueError(value)


# ---------------------------------------------------------------------------------------- hashes


def cbor(value):
    """Canonical CBOR of what vLLM's hash is made of."""
    def number(major, n):
        for limit, form, code in ((24, "", 0), (1 << 8, "B", 24), (1 << 16, ">H", 25), (1 << 32, ">I", 26)):
            if n < limit:
                return bytes([major << 5 | (code or n)]) + (struct.pack(form, n) if form else b"")
        raise ValueError(n)
    if value is None:
        return b"\xf6"
    if isinstance(value, bytes):
        return number(2, len(value)) + value
    if isinstance(value, str):
        return number(3, len(value.encode())) + value.encode()
    if isinstance(value, (list, tuple)):
        return number(4, len(value)) + b"".join(map(cbor, value))
    return number(0, value)


def vllm_numbers(tokens):
    """vLLM's sha256_cbor with its default seed: the last 8 bytes of each digest."""
    digest, numbers = hashlib.sha256(cbor("vllm-none-hash")).digest(), []
    for at in range(0, len(tokens), 4):
        digest = hashlib.sha256(cbor((digest, tuple(tokens[at:at + 4]), None))).digest()
        numbers.append(int.from_bytes(digest[-8:], "big"))
    return numbers


def own_numbers(tokens):
    return [int.from_bytes(unit[8:], "big") for unit in xxh.chain(4, xxh.root(4, 0, b"m"), tokens)]


# ------------------------------------------------------------------------------------- the scene

NAMES = {"BlockStored": ["block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id",
                         "medium", "lora_name"],
         "BlockRemoved": ["block_hashes", "medium"], "AllBlocksCleared": []}


def event(maps, kind, *values):
    if maps:
        return {"type": kind, **dict(zip(NAMES[kind], values))}
    return [kind, *values]


def batches(maps, vllm_hashes, media):
    a = [(i * 7919) % 50000 for i in range(24)]
    a[23] = (1 << 31) - 1
    b = list(range(80))
    names = vllm_numbers if vllm_hashes else own_numbers
    a_names, b_names = names(a), names(b)

    def stored(tokens, numbers, medium):
        return event(maps, "BlockStored", numbers, None, tokens, 4, None, medium, None)
    scene = [
        [stored(a, a_names, media[0]), stored(b, b_names, media[0]), stored(a[:8], a_names[:2], media[1]),
         stored(a[:8], a_names[:2], media[2])],
        [event(maps, "BlockRemoved", [a_names[5]], media[0]),
         event(maps, "BlockRemoved", [a_names[1], a_names[0]], media[1])],
        [event(maps, "AllBlocksCleared")],
    ]
    return [pack([1700000000.5, events, 3]) for events in scene]


def main():
    lines = ["/* Made by make_publish_vectors.py. */", "#ifndef KVP_TEST_PUBLISH_VECTORS_H",
             "#define KVP_TEST_PUBLISH_VECTORS_H", ""]
    vllm, sglang = ("GPU", "CPU", "STORAGE"), ("GPU", "CPU_PINNED", "DISK")
    for name, kind in (("MAPS", (True, False, vllm)), ("ARRAYS", (False, False, vllm)),
                       ("FORMULA", (True, True, vllm)), ("SGLANG", (True, False, sglang))):
        for i, data in enumerate(batches(*kind)):
            lines.append(f"static const unsigned char {name}_{i}[] = {{")
            lines += ["    " + ", ".join(f"0x{byte:02x}" for byte in data[at:at + 16]) + ","
                      for at in range(0, len(data), 16)]
            lines.append("};")
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write("\n".join(lines + ["", "#endif", ""]))


if __name__ == "__main__":
    main()
