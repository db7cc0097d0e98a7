"""What the adapters to engines' own KV storage share: kvpager.vllm and kvpager.sglang."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".npz")
_CHUNK = 1 << 20


def _sha256_of(path: str) -> bytes:
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while data := file.read(_CHUNK):
            digest.update(data)
    return digest.digest()


def weights_of(given: object, model: str) -> bytes:
    """The digest of a model's weights, 32 bytes: a name does not say what they are.

    given   64 hexadecimal digits, a directory or a file, or None: the directory `model`. Of a
            directory the weights' files and config.json count, with their names
    """
    if given is not None and not isinstance(given, str):
        raise ValueError(f"weights: needs a str, not {type(given).__name__}")
    if given is not None and re.fullmatch(r"[0-9a-fA-F]{64}", given):
        return bytes.fromhex(given)
    place = os.path.realpath(model if given is None else given)
    if os.path.isfile(place):
        return _sha256_of(place)
    names = sorted(name for name in os.listdir(place)
                   if name.endswith(_WEIGHTS) or name == "config.json"
                   ) if os.path.isdir(place) else []
    if not any(name.endswith(_WEIGHTS) for name in names):
        raise ValueError(
            f"weights: {model if given is None else given!r} is no directory with weights, and a "
            "name does not say which weights a model has. Set weights to the directory of the "
            "model's files, or to 64 hexadecimal digits: the SHA-256 of the weights")
    with ThreadPoolExecutor(min(8, len(names))) as pool:  # hashing runs without the GIL
        digests = pool.map(_sha256_of, (os.path.join(place, name) for name in names))
        return hashlib.sha256(b"".join(
            name.encode() + b"\0" + digest for name, digest in zip(names, digests))).digest()


def urls_of(given: object) -> list[str]:
    """The stores that a configuration names: a URL, or a list of them, nearest first."""
    urls = given if isinstance(given, (list, tuple)) else [given]
    for url in urls:
        if not isinstance(url, str):
            raise ValueError(f"store: needs a URL as file:/var/cache/kv?size=200GiB, or a list of "
                             f"them, not {type(url).__name__}")
    return list(urls)


def fingerprint_of(engine: str, facts: Mapping[str, Any]) -> bytes:
    """SHA-256 over everything that the bytes of KV depend on besides the engine's keys. One fact
    changed: another fingerprint."""
    text = json.dumps({**facts, "engine": engine, "byteorder": sys.byteorder}, sort_keys=True,
                      separators=(",", ":"))
    return hashlib.sha256(b"kvpagerE" + text.encode()).digest()


def secret_of(given: object) -> bytes:
    """The secret of keyed codes: file:PATH; None: none."""
    if given is None:
        return b""
    if not isinstance(given, str) or not given.startswith("file:"):
        raise ValueError("secret: needs file:PATH")
    with open(given[len("file:"):], "rb") as file:
        return file.read().strip()
