"""What stored KV is, so that it is never taken for something else: identity.h. Part of kvpager.store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cached_property
from operator import index
from typing import Any

import numpy as np

from . import _constants as c
from . import _store_constants as sc
from ._core import (I32Array, Ints, U8Array, bad_number, bare, bytes_in, fail, i32, instance,
                    listed, number, owned, text_of)
from ._errors import ArgError
from ._records import Slice, Window
from ._sequence import Key, Prompt
from . import _store_native
from ._store_native import ffi, lib

NO_DIGEST = bytes(32)
_DIGEST_BYTES = 32
_no_numbers = (TypeError, OverflowError)
_digesters: list[Any] = []


@contextmanager
def _digester() -> Iterator[Any]:
    """One that nobody else uses meanwhile; list.pop is one step."""
    try:
        made = _digesters.pop()
    except IndexError:
        owner = owned(lib.KVPY_DIGESTER, of=_store_native)
        status = lib.kvpg_digester_create(owner)
        if status:
            fail(status, "kvpager.store")
        made = bare(owner, "kvp_digester *", _store_native)
    yield made
    _digesters.append(made)


def set_digest(name: str, value: Any, room: Any) -> None:
    """32 bytes into a kvp_digest."""
    data = bytes_in(name, value)
    if len(data) != _DIGEST_BYTES:
        raise ArgError(f"{name}: needs {_DIGEST_BYTES} bytes, has {len(data)}")
    ffi.memmove(ffi.addressof(room, "bytes"), data, _DIGEST_BYTES)


def _digest(name: str, value: Any) -> Any:
    room = ffi.new("kvp_digest *")
    set_digest(name, value, room[0])
    return room


def set_numbers(room: Any, prefix: str = "", **values: Any) -> None:
    """Numbers into fields of a struct; an exception names the one that does not fit."""
    for name, value in values.items():
        try:
            setattr(room, name, index(value))
        except _no_numbers as error:
            raise bad_number(error, **{prefix + name: value}) from None


def set_slice(name: str, value: Any, room: Any) -> None:
    if not isinstance(value, (tuple, list)) or len(value) != len(Slice._fields):
        raise TypeError(f"{name}: needs a Slice, not {type(value).__name__}")
    set_numbers(room, f"{name}: ", **dict(zip(Slice._fields, value)))


def _set_groups(groups: Any, made: Any) -> None:
    given = listed("groups", groups)
    if not 1 <= len(given) <= c.GROUPS_MAX:
        raise ArgError(f"groups: has {len(given)}, expected 1 to {c.GROUPS_MAX}")
    for room, window in zip(made.groups, given):
        if not isinstance(window, (tuple, list)) or len(window) != 2:
            raise TypeError("groups: needs windows, pairs (sink_tokens, recent_tokens)")
        set_numbers(room, "groups: ", sink_tokens=window[0], recent_tokens=window[1])
    made.n_groups = len(given)


def set_each(name: str, values: Any, room: Any, n: int) -> None:
    """A number for each layer group into an array; none: they stay."""
    given = listed(name, values)
    if given and len(given) != n:
        raise ArgError(f"{name}: has {len(given)}, expected one for each of {n} groups")
    for group, value in enumerate(given):
        try:
            room(group, index(value))
        except _no_numbers as error:
            raise bad_number(error, **{name: value}) from None


def _c_text(name: str, value: Any) -> Any:
    """A string that ends with a zero byte."""
    data = text_of(name, value)
    if b"\0" in data:
        raise ArgError(f"{name}: {value!r} has a null character")
    return ffi.new("char[]", data)


@dataclass(frozen=True, kw_only=True)
class FingerprintInput:
    """kvp_fingerprint_input: what KV depends on besides its tokens, its extra keys and its
    namespace. `fingerprint()` is its digest; one field changed is another fingerprint.

    weights       SHA-256 of the model's weights, 32 bytes, adapters excluded: a model's name does
                  not say what its weights are
    compute_type  that K and V are computed in, "bf16"
    type          of K and V in memory: kvpager.F32 ... E4M3
    k_size        elements of a token and head; v_size: 0 for latent KV
    model_layers  of the whole model; model_heads: its KV heads
    block_tokens  S; unit_tokens: U, divides S
    quantisation  of the weights, "gptq-int4-g128"; "": none
    rope          rotary embedding with every override, in one fixed form; b"": none
    draft         the draft model whose KV lies in the same blocks; b"": none
    scales        0: none; 1: one for each block and head; others: the engine's own kinds
    slice         what this rank has of the layers and heads; None: all
    groups        the window of each layer group
    group_tokens  S of each group; (): all have block_tokens
    order         of a block's bytes in a record: kvpager.ORDER_CPU ...
    states        what else the bytes of a slot of recurrent state depend on, in one fixed form; b"":
                  the model has none
    """

    weights: bytes
    compute_type: str
    type: int
    k_size: int
    v_size: int
    model_layers: int
    model_heads: int
    block_tokens: int
    unit_tokens: int
    quantisation: str = ""
    rope: bytes = b""
    draft: bytes = b""
    scales: int = 0
    slice: Slice | None = None
    groups: Sequence[Window | tuple[int, int]] = (Window(0, 0),)
    group_tokens: Sequence[int] = ()
    order: str = c.ORDER_CPU
    states: bytes = b""

    def rank(self) -> Slice:
        """The slice; all of the model where it is None."""
        if self.slice is not None:
            return self.slice
        return Slice(0, self.model_layers, 0, self.model_heads)

    def fingerprint(self) -> bytes:
        """SHA-256 of all fields, 32 bytes: Store.open and identities take it."""
        made, keep = ffi.new("kvp_fingerprint_input *"), []
        lib.kvp_fingerprint_input_init(made)
        set_digest("weights", self.weights, made.weights)
        for name in ("quantisation", "compute_type", "order"):
            keep.append(_c_text(name, getattr(self, name)))
            setattr(made, name, keep[-1])
        for name in ("rope", "draft"):
            data = bytes_in(name, getattr(self, name))
            if len(data) > lib.KVP_FINGERPRINT_BYTES_MAX:
                raise ArgError(f"{name}: has {len(data)} bytes, at most "
                               f"{lib.KVP_FINGERPRINT_BYTES_MAX} are allowed")
            keep.append(data)
            setattr(made, name, data if len(data) else ffi.NULL)
            setattr(made, name + "_bytes", len(data))
        set_numbers(made, **{name: getattr(self, name) for name in (
            "type", "scales", "k_size", "v_size", "model_layers", "model_heads", "block_tokens",
            "unit_tokens")})
        set_slice("slice", self.rank(), made.slice)
        _set_groups(self.groups, made)
        set_each("group_tokens", self.group_tokens,
                 lambda group, value: setattr(made.groups[group], "block_tokens", value),
                 made.n_groups)
        out, why = ffi.new("kvp_digest *"), ffi.new("char **")
        with _digester() as digester:
            status = lib.kvp_fingerprint_make(digester, made, out, why)
        if status:
            said = ffi.string(why[0]).decode() if why[0] != ffi.NULL else ""
            fail(status, "FingerprintInput.fingerprint", said=f"; {said}" if said else "")
        return self._with_states(out)

    def _with_states(self, made: Any) -> bytes:
        states = bytes_in("states", self.states)
        if not len(states):
            return bytes(made.bytes)
        if len(states) > lib.KVP_FINGERPRINT_BYTES_MAX:
            raise ArgError(f"states: has {len(states)} bytes, at most "
                           f"{lib.KVP_FINGERPRINT_BYTES_MAX} are allowed")
        with _digester() as digester:
            status = lib.kvp_fingerprint_states(digester, made, states, len(states), made)
        if status:
            fail(status, "FingerprintInput.fingerprint", said="")
        return bytes(made.bytes)


def digest_root(fingerprint: bytes, name: str | bytes = b"", epoch: int = 0) -> bytes:
    """The root digest of a namespace, parent of a prompt's first block: 32 bytes.

    epoch   a flush, a reset or new weights raise it: what was written under another one cannot be
            reached any more
    """
    data, print_of, out = text_of("name", name), _digest("fingerprint", fingerprint), ffi.new(
        "kvp_digest *")
    with _digester() as digester:
        try:
            status = lib.kvp_digest_root(digester, print_of, data, len(data), epoch, out)
        except _no_numbers as error:
            raise bad_number(error, epoch=epoch) from None
    if status:
        fail(status, "digest_root", name=name, epoch=epoch)
    return bytes(out.bytes)


def digest_blocks(tokens: Ints, block_tokens: int, parent: bytes, *, first_position: int = 0,
                  keys: Iterable[Key] = ()) -> U8Array:
    """The digest of every full block of a run of tokens, chained from `parent`: [n // S, 32] u8.

    tokens           [n] i32; the tail that fills no block is ignored
    parent           the root, or the digest of the block before tokens[0]: 32 bytes
    first_position   of tokens[0] in its sequence; a multiple of block_tokens
    """
    values, before = i32("tokens", tokens), _digest("parent", parent)
    given, prompt = ffi.new("kvp_hash_input *"), Prompt(tokens, keys=keys)
    set_numbers(given, first_position=first_position)
    try:
        given.unit_tokens = index(block_tokens)
    except _no_numbers as error:
        raise bad_number(error, block_tokens=block_tokens) from None
    given.tokens, given.n_tokens = values, len(values)
    given.keys, given.n_keys = ffi.cast("kvp_key *", prompt._c.keys), prompt._c.n_keys
    out = np.empty((len(values) // max(given.unit_tokens, 1), _DIGEST_BYTES), np.uint8)
    room = ffi.from_buffer("kvp_digest[]", out) if out.size else ffi.new("kvp_digest[1]")
    with _digester() as digester:
        status = lib.kvp_digest_blocks(digester, given, before, room)
    if status:
        fail(status, "digest_blocks", tokens=tokens, block_tokens=block_tokens,
             first_position=first_position, keys=keys)
    return out


def record_key(digest: bytes, slice: Slice, group: int = 0) -> bytes:
    """The key under which a record is stored: 32 bytes.

    digest   of the record's last block
    slice    layers and heads of the record
    """
    last, part, out = _digest("digest", digest), ffi.new("kvp_slice *"), ffi.new("kvp_digest *")
    set_slice("slice", slice, part)
    with _digester() as digester:
        try:
            status = lib.kvp_record_key(digester, last, group, part, out)
        except _no_numbers as error:
            raise bad_number(error, group=group) from None
    if status:
        fail(status, "record_key", slice=slice, group=group)
    return bytes(out.bytes)


def namespace_number(name: str | bytes) -> int:
    """The number of a namespace: what operators list and evict by."""
    data, out = text_of("name", name), ffi.new("uint64_t *")
    with _digester() as digester:
        status = lib.kvp_namespace_number(digester, data, len(data), out)
    if status:
        fail(status, "namespace_number", name=name)
    return int(out[0])


def _kept(tokens: Ints) -> I32Array:
    """Tokens that nobody can change: a copy, or an array that is one already."""
    data = i32("tokens", tokens)
    if isinstance(tokens, np.ndarray) and not tokens.flags.writeable:
        of = tokens if tokens.base is None else tokens.base
        if isinstance(of, np.ndarray) and of.base is None and not of.flags.writeable:
            return tokens
    made: I32Array = np.frombuffer(bytearray(ffi.buffer(data)), np.int32)
    made.flags.writeable = False
    return made


def _again(values: dict[str, Any]) -> Identity:
    return Identity(**values)


@dataclass(frozen=True, eq=False, kw_only=True)
class Identity:
    """kvp_identity: what a record is known by. Chain makes those of a prompt.

    fingerprint   FingerprintInput.fingerprint
    digest        of the last block; IDENTITY_KEY: the engine's SHA-256 chain key of it
    slice         layers and heads of this rank
    block_tokens  S
    n_blocks      1..RECORD_BLOCKS_MAX, full
    tokens        [n_blocks * S] i32, copied; IDENTITY_KEY: None
    kind          IDENTITY_TOKENS; IDENTITY_KEY for engines that give no tokens; IDENTITY_STATE for
                  the state after the tokens
    group         layer group; of a state, the number of groups of KV
    parent        key of the record before; NO_DIGEST: this is the first of its prompt
    space         namespace_number
    position      of the first token in its sequence; a multiple of S
    keys          extra keys that touch the record, ascending by begin
    """

    fingerprint: bytes
    digest: bytes
    slice: Slice
    block_tokens: int
    n_blocks: int
    tokens: Ints | None = None
    kind: int = sc.IDENTITY_TOKENS
    group: int = 0
    parent: bytes = NO_DIGEST
    space: int = 0
    position: int = 0
    keys: tuple[Key, ...] = ()

    def __post_init__(self) -> None:
        made, keep = ffi.new("kvp_identity *"), []
        set_slice("slice", self.slice, made.slice)
        for name in ("fingerprint", "digest", "parent"):
            set_digest(name, getattr(self, name), getattr(made, name))
            object.__setattr__(self, name, bytes(getattr(made, name).bytes))
        set_numbers(made, **{name: getattr(self, name) for name in (
            "kind", "group", "space", "position", "block_tokens", "n_blocks")})
        if self.tokens is not None:
            tokens = _kept(self.tokens)
            if len(tokens) != made.n_blocks * made.block_tokens:
                raise ArgError(f"tokens: has {len(tokens)}, {made.n_blocks} blocks have "
                               f"{made.n_blocks * made.block_tokens}")
            object.__setattr__(self, "tokens", tokens)
            keep.append(i32("tokens", tokens))
            made.tokens = keep[-1]
        keys = listed("keys", self.keys)
        if keys:
            Prompt((), keys=keys)  # says what is wrong with them
            keys = [key._replace(data=bytes(key.data)) for key in keys]
            prompt = Prompt((), keys=keys)
            made.keys, made.n_keys = ffi.cast("kvp_key *", prompt._c.keys), prompt._c.n_keys
            keep.append(prompt)
        object.__setattr__(self, "keys", tuple(keys))
        object.__setattr__(self, "_c", made)
        object.__setattr__(self, "_keep", keep)

    def __reduce__(self) -> tuple[Callable[[dict[str, Any]], Identity], tuple[dict[str, Any]]]:
        return _again, ({field.name: getattr(self, field.name) for field in fields(self)},)

    @cached_property
    def key(self) -> bytes:
        """The key of the record, 32 bytes: what `have` and `drop` take."""
        return record_key(self.digest, self.slice, self.group)


class Chain:
    """The records of a prompt: its full records' identities and keys, each under the one before.

    model          what its KV is computed with
    tokens         [n] i32, copied; the tail that fills no record belongs to none
    record_blocks  blocks of a record: Store.record_blocks
    name           of the namespace, and its epoch: see digest_root
    keys           extra keys of the prompt, ascending by begin

    chain[i] is the identity of record i of layer group 0, len(chain) their number.
    """

    def __init__(self, model: FingerprintInput, tokens: Ints, *, record_blocks: int,
                 name: str | bytes = b"", epoch: int = 0, keys: Iterable[Key] = ()) -> None:
        instance("model", model, FingerprintInput)
        self.model, self.tokens = model, _kept(tokens)
        self.record_blocks = number("record_blocks", record_blocks)
        if not 1 <= self.record_blocks <= lib.KVP_RECORD_BLOCKS_MAX:
            raise ArgError(f"record_blocks: {record_blocks} is not in "
                           f"1..{lib.KVP_RECORD_BLOCKS_MAX}")
        self.fingerprint, self.space = model.fingerprint(), namespace_number(name)
        self.extra = tuple(listed("keys", keys))
        self.digests = digest_blocks(self.tokens, model.block_tokens,
                                     digest_root(self.fingerprint, name, epoch), keys=self.extra)
        self.digests.flags.writeable = False
        self._keys: dict[int, tuple[bytes, ...]] = {}

    def __len__(self) -> int:
        return len(self.digests) // self.record_blocks

    def __getitem__(self, i: int) -> Identity:
        return self.identity(i)

    def __iter__(self) -> Iterator[Identity]:
        return (self.identity(i) for i in range(len(self)))

    def keys(self, group: int = 0) -> tuple[bytes, ...]:
        """The keys of the records of a layer group, for `have` and `drop`."""
        made = self._keys.get(group)
        if made is None:
            last = self.digests[self.record_blocks - 1::self.record_blocks]
            rank = self.model.rank()
            made = tuple(record_key(digest.tobytes(), rank, group) for digest in last)
            self._keys[group] = made
        return made

    def identity(self, i: int, group: int = 0) -> Identity:
        """What record i of a layer group is known by."""
        at = index(i)
        if not 0 <= at < len(self):
            raise IndexError(f"record {i}: the chain has {len(self)}")
        size = self.record_blocks * self.model.block_tokens
        begin, end, keys = at * size, (at + 1) * size, self.keys(group)
        return Identity(
            fingerprint=self.fingerprint, slice=self.model.rank(), group=group, space=self.space,
            digest=self.digests[(at + 1) * self.record_blocks - 1].tobytes(),
            parent=keys[at - 1] if at else NO_DIGEST, position=begin,
            block_tokens=self.model.block_tokens, n_blocks=self.record_blocks,
            tokens=self.tokens[begin:end],
            keys=tuple(key for key in self.extra if key.begin < end and key.end > begin))

    def state(self, i: int, group: int | None = None) -> Identity:
        """What the state after record i is known by. It goes by itself, with no record before it.

        group   the state group; None: the one behind the model's layer groups
        """
        return replace(self.identity(i, len(self.model.groups) if group is None else group),
                       kind=sc.IDENTITY_STATE, parent=NO_DIGEST)
