"""Content hashes: pure, the same on every machine. For routers, and to hash prompts ahead."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ._core import NULL, Ints, U8Array, bad_number, bytes_in, fail, i32, text_of
from ._errors import ArgError
from ._native import ffi, lib
from ._sequence import Key, Prompt


def hash_root(unit_tokens: int, name: str | bytes = b"", seed: int = 0) -> bytes:
    """The root hash of a namespace, 16 bytes; seed as in Cache(hash_seed=...)."""
    data = text_of("name", name)
    out = ffi.new("kvp_hash *")
    try:
        status = lib.kvp_hash_root(unit_tokens, seed, data, len(data), out)
    except (TypeError, OverflowError) as error:
        raise bad_number(error, unit_tokens=unit_tokens, seed=seed) from None
    if status:
        fail(status, "hash_root", unit_tokens=unit_tokens, name=name, seed=seed)
    return bytes(out.bytes)


def random_seed() -> int:
    """A seed for Cache(hash_seed=...) that nobody can guess, from the system's random numbers."""
    out = ffi.new("uint64_t *")
    status = lib.kvp_random_seed(out)
    if status:
        fail(status, "random_seed")
    return int(out[0])


def hash_units(tokens: Ints, unit_tokens: int, parent: bytes, *, first_position: int = 0,
               keys: Iterable[Key] = ()) -> U8Array:
    """Hash every full unit of a run of tokens, chained from `parent`: [n // U, 16] u8.

    tokens           [n] i32; the tail that fills no unit is ignored
    parent           the root, or the hash of the unit before: 16 bytes
    first_position   of tokens[0] in its sequence; a multiple of unit_tokens
    """
    values = i32("tokens", tokens)
    before = bytes_in("parent", parent)
    if len(before) != 16:
        raise ArgError(f"parent: needs 16 bytes, has {len(before)}")
    given = ffi.new("kvp_hash_input *")
    prompt = Prompt(tokens, keys=keys)
    try:
        given.unit_tokens, given.first_position = unit_tokens, first_position
    except (TypeError, OverflowError) as error:
        raise bad_number(error, unit_tokens=unit_tokens, first_position=first_position) from None
    given.tokens, given.n_tokens = values, len(values)
    given.keys, given.n_keys = prompt._c.keys, prompt._c.n_keys
    root = ffi.new("kvp_hash *")
    ffi.memmove(root, before, 16)
    out = np.empty((len(values) // max(unit_tokens, 1), 16), np.uint8)
    room = ffi.from_buffer("kvp_hash[]", out) if out.size else ffi.new("kvp_hash[1]")
    status = lib.kvp_hash_units(given, root, room if out.size else NULL)
    if status:
        fail(status, "hash_units", tokens=tokens, unit_tokens=unit_tokens,
             first_position=first_position)
    return out
