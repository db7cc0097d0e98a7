"""Fingerprints, digests, keys and identities against SHA-256 of what docs/STORES.md says."""

from __future__ import annotations

import dataclasses
import hashlib
import pickle
import struct
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import kvpager as k

store = pytest.importorskip("kvpager.store", exc_type=ImportError)
Key, Slice, Window = k.Key, k.Slice, k.Window


def u32(*values: int) -> bytes:
    return b"".join(struct.pack("<I", value & 0xFFFFFFFF) for value in values)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def sha(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def model(**changes: Any) -> Any:
    fields: dict[str, Any] = {
        "weights": sha(b"weights"), "compute_type": "bf16", "type": k.BF16, "k_size": 8, "v_size": 8,
        "model_layers": 4, "model_heads": 2, "block_tokens": 4, "unit_tokens": 4, **changes}
    return store.FingerprintInput(**fields)


# ------------------------------------------------------------------------------ the page's words


def fingerprint(made: Any) -> bytes:
    fields = [made.weights, made.quantisation.encode(), made.compute_type.encode(), made.rope,
              u32(made.type), u32(made.scales), u32(made.k_size), u32(made.v_size),
              u32(made.model_layers), u32(made.model_heads), u32(*made.rank()),
              u32(made.block_tokens), u32(made.unit_tokens),
              b"".join(u32(*window) for window in made.groups), made.draft, made.order.encode()]
    if set(made.group_tokens) - {made.block_tokens}:
        fields.append(u32(*made.group_tokens))
    made_of = sha(b"kvpagerF", u32(1), *(u32(number, len(field)) + field
                                         for number, field in enumerate(fields, 1)))
    return sha(b"kvpagerT", made_of, u32(len(made.states)), made.states) if made.states else made_of


def root(print_of: bytes, name: bytes, epoch: int) -> bytes:
    return sha(b"kvpagerR", print_of, u64(epoch), u32(len(name)), name)


def chain(parent: bytes, tokens: list[int], size: int, first: int, keys: list[Any]) -> list[bytes]:
    digests = []
    for at in range(0, len(tokens) // size * size, size):
        begin = first + at
        touching = [key for key in keys if key.begin < begin + size and key.end > begin]
        parent = sha(parent, u32(*tokens[at:at + size]), u32(len(touching)),
                     *(u32(key.type, key.begin - begin, len(key.data)) + key.data
                       for key in touching))
        digests.append(parent)
    return digests


def key_of(digest: bytes, group: int, part: Any) -> bytes:
    return sha(b"kvpagerK", digest, u32(group), u32(*part))


# -------------------------------------------------------------------------------- fingerprints

OTHER: dict[str, Any] = {
    "weights": sha(b"others"), "compute_type": "f16", "type": k.F16, "k_size": 16, "v_size": 0,
    "model_layers": 5, "model_heads": 3, "block_tokens": 8, "unit_tokens": 2,
    "quantisation": "gptq-int4-g128", "rope": b'{"theta":1e6}', "draft": b"draft-1b", "scales": 1,
    "slice": Slice(1, 2, 0, 1), "groups": [Window(0, 0), (4, 1024)], "group_tokens": [8], "order": k.ORDER_VLLM_NHD,
    "states": b"gdn:2x4"}


def test_the_fingerprint_is_that_of_the_page() -> None:
    assert {field.name for field in dataclasses.fields(store.FingerprintInput)} == set(OTHER)
    assert model().fingerprint() == fingerprint(model())
    assert model(group_tokens=[4]).fingerprint() == model().fingerprint()
    everything = model(**{**OTHER, "group_tokens": [8, 2]})
    assert everything.fingerprint() == fingerprint(everything)


@pytest.mark.parametrize("name", sorted(OTHER))
def test_one_field_changed_is_another_fingerprint(name: str) -> None:
    other = model(**{name: OTHER[name]})
    assert other.fingerprint() == fingerprint(other) != model().fingerprint()


WRONG: dict[str, list[Any]] = {
    "weights": [b"short", bytes(32), "a" * 32, None, 5], "compute_type": ["", 5, "a\0b", None],
    "quantisation": [5, "a\0b"], "order": ["", 5, "a\0b"], "rope": ["text", 5, bytes(65537)],
    "draft": ["text", bytes(65537)], "type": [0, 99, -1, 2 ** 70, "f32", 1.5, None],
    "k_size": [0, -1, 1.5, 2 ** 32], "v_size": [-1, 2 ** 32, None], "scales": [-1, "a"],
    "model_layers": [0, 2 ** 32, None], "model_heads": [0, -3], "block_tokens": [0, "4"],
    "unit_tokens": [0, 3, 8], "slice": [5, (0, 1), Slice(3, 2, 0, 2), (0, 1, 0, -1)],
    "group_tokens": [5, [4, 4], ["a"], [-1], [2 ** 32]],
    "groups": [[], 5, [(0, 0)] * 9, [4], [(0, -1)], [(4, 0)]],
    "states": ["text", 5, bytes(65537)]}


@pytest.mark.parametrize("name", sorted(WRONG))
def test_a_wrong_field_is_named(name: str) -> None:
    for wrong in WRONG[name]:
        with pytest.raises((TypeError, ValueError)) as caught:
            model(**{name: wrong}).fingerprint()
        # A slice of all comes of the model's layers and heads.
        said = str(caught.value)
        assert name in said or name.startswith("model") and "slice" in said, (wrong, said)


# ------------------------------------------------------------------------------- digests, keys


@st.composite
def prompts(draw: Any) -> Any:
    tokens = draw(st.lists(st.integers(0, 2 ** 31 - 1), max_size=40))
    size = draw(st.sampled_from([1, 2, 4, 8]))
    begins = sorted(draw(st.lists(st.integers(0, 50), max_size=4)))
    keys = [Key(draw(st.integers(0, 9)), begin, begin + draw(st.integers(1, 20)),
                draw(st.binary(max_size=9))) for begin in begins]
    return tokens, size, draw(st.integers(0, 5)) * size, keys


@settings(derandomize=True, deadline=None)
@given(prompts(), st.binary(min_size=32, max_size=32), st.binary(max_size=20),
       st.integers(0, 2 ** 64 - 1), st.integers(0, 7))
def test_digests_and_keys(prompt: Any, seed: bytes, name: bytes, epoch: int, group: int) -> None:
    tokens, size, first, keys = prompt
    parent = store.digest_root(seed, name, epoch)
    assert parent == root(seed, name, epoch)
    made = store.digest_blocks(tokens, size, parent, first_position=first, keys=keys)
    assert made.shape == (len(tokens) // size, 32) and made.dtype == np.uint8
    assert [row.tobytes() for row in made] == chain(parent, tokens, size, first, keys)
    part = Slice(group, 2, 1, 3)
    assert store.record_key(seed, part, group) == key_of(seed, group, part)
    assert store.namespace_number(name) == struct.unpack("<Q", sha(b"kvpagerN", name)[:8])[0]


def test_wrong_arguments_of_digests() -> None:
    digest, part = sha(b"a"), Slice(0, 1, 0, 1)
    calls: list[tuple[Callable[[], Any], str]] = [
            (lambda: store.digest_root(b"short"), "fingerprint"),
            (lambda: store.digest_root(digest, 5), "name"),
            (lambda: store.digest_root(digest, b"", -1), "epoch"),
            (lambda: store.digest_root(digest, b"", 2 ** 64), "epoch"),
            (lambda: store.digest_blocks([1.5], 4, digest), "tokens"),
            (lambda: store.digest_blocks([1, 2], 0, digest), "block_tokens"),
            (lambda: store.digest_blocks([1, 2], "2", digest), "block_tokens"),
            (lambda: store.digest_blocks([1, 2], 2, b"short"), "parent"),
            (lambda: store.digest_blocks([1, 2], 2, digest, first_position=1), "first_position"),
            (lambda: store.digest_blocks([1, 2], 2, digest, first_position=-2), "first_position"),
            (lambda: store.digest_blocks([1, 2], 2, digest, keys=5), "keys"),
            (lambda: store.record_key(b"", part), "digest"),
            (lambda: store.record_key(digest, 5), "slice"),
            (lambda: store.record_key(digest, part, 8), "group"),
            (lambda: store.record_key(digest, part, -1), "group"),
            (lambda: store.namespace_number(None), "name"),
            (lambda: store.bad_name("a"), "reason"), (lambda: store.found_name(-1), "found")]
    for call, named in calls:
        with pytest.raises((TypeError, ValueError), match=named):
            call()


# ---------------------------------------------------------------------------- identities, chains


def test_a_chain_is_the_prompt_s_records() -> None:
    made, name, S, R = model(), "tenant", 4, 2
    tokens, keys = list(range(30)), [Key(1, 3, 9, b"image"), Key(2, 20, 24, b"adapter")]
    for group, windows in ((0, [Window(0, 0)]), (1, [Window(0, 0), Window(4, 64)])):
        made = model(groups=windows)
        records = store.Chain(made, tokens, record_blocks=R, name=name, epoch=3, keys=keys)
        assert len(records) == 3 and len(list(records)) == 3  # 30 tokens: 7 blocks: 3 records
        digests = chain(root(fingerprint(made), b"tenant", 3), tokens, S, 0, keys)
        expected = tuple(key_of(digests[R * i + R - 1], group, made.rank()) for i in range(3))
        assert records.keys(group) == expected
        for i in range(3):
            one = records.identity(i, group)
            assert one.key == expected[i] and one.digest == digests[R * i + 1]
            assert one.parent == (expected[i - 1] if i else bytes(32)) and one.group == group
            assert one.position == 8 * i and one.tokens.tolist() == tokens[8 * i:8 * i + 8]
            assert one.keys == ((keys[0],), (keys[0],), (keys[1],))[i]
            assert one.space == store.namespace_number(name)
            assert (one.n_blocks, one.block_tokens) == (R, S)
    assert records[0].key == records.keys()[0]
    for wrong in (3, -1):
        with pytest.raises(IndexError):
            records[wrong]


def test_chains_of_other_things_share_nothing() -> None:
    def keys(**changes: Any) -> set[bytes]:
        given = {"model": model(), "tokens": range(32), "name": "a", "epoch": 0, "keys": (),
                 **changes}
        return set(store.Chain(record_blocks=2, **given).keys())

    chains = [keys(), keys(name="b"), keys(epoch=1), keys(tokens=range(1, 33)),
              keys(keys=[Key(1, 0, 4, b"salt")]), keys(model=model(rope=b"x")),
              keys(model=model(slice=Slice(0, 2, 0, 2)))]
    assert all(len(one) == 4 for one in chains)
    assert len(set.union(*chains)) == 4 * len(chains)
    assert len(keys() & keys(tokens=[*range(16), *range(90, 106)])) == 2  # the same beginning


def test_an_identity_is_a_copy_and_can_be_pickled() -> None:
    tokens = np.arange(8, dtype=np.int32)
    data: Any = bytearray(b"image")
    one = store.Identity(fingerprint=sha(b"f"), digest=bytearray(sha(b"d")), slice=Slice(0, 1, 0, 1),
                         block_tokens=4, n_blocks=2, tokens=tokens, keys=[Key(1, 0, 2, data)])
    tokens[:] = 0
    data[:] = b"other"
    assert one.tokens.tolist() == list(range(8)) and one.keys[0].data == b"image"
    with pytest.raises(ValueError):
        one.tokens[0] = 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.group = 3
    again = pickle.loads(pickle.dumps(one))
    assert again.key == one.key and again.tokens.tolist() == one.tokens.tolist()
    for field in dataclasses.fields(one):
        if field.name != "tokens":
            assert getattr(again, field.name) == getattr(one, field.name)


def test_wrong_identities() -> None:
    good: dict[str, Any] = {"fingerprint": sha(b"f"), "digest": sha(b"d"), "n_blocks": 2,
                            "slice": Slice(0, 1, 0, 1), "block_tokens": 4, "tokens": range(8)}
    store.Identity(**good)
    for name, wrong in [("fingerprint", b"a"), ("digest", "text"), ("parent", b""), ("slice", None),
                        ("tokens", range(7)), ("tokens", [1.5] * 8), ("keys", 5), ("keys", [5]),
                        ("block_tokens", -1), ("n_blocks", 2 ** 70), ("kind", "tokens"),
                        ("group", -1), ("position", 1.5), ("space", 2 ** 64)]:
        with pytest.raises((TypeError, ValueError), match=name):
            store.Identity(**{**good, name: wrong})
    for wrong in (0, 65, -1, "2"):
        with pytest.raises((TypeError, ValueError), match="record_blocks"):
            store.Chain(model(), range(8), record_blocks=wrong)
    with pytest.raises(TypeError, match="model"):
        store.Chain(None, range(8), record_blocks=1)
