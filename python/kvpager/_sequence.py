"""Sequences and namespaces: what one request, and one tenant, calls."""

from __future__ import annotations

from collections.abc import Iterable
from operator import index
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar, cast

import numpy as np
import numpy.typing as npt

from . import _constants as c
from ._base_errors import Error
from ._core import (I32, I64, NULL, ClosedError, Handle, I32Array, I64Array, Ints, Struct, Uncopied, array_of,
                    bad_number, bytes_in, calls, error_of, i32, listed, number, out_array,
                    same_length, seqs_of, struct_dtype, u32, unusable, why)
from ._errors import ArgError, TooSmallError
from ._native import ffi, lib
from ._records import (Admission, MetaSizes, NsInfo, OpenInfo, Released, SeqInfo, Shortage,
                       StateInfo, Stats, Window, WindowInfo)

_ADMISSION, _SHORTAGE = Struct(Admission), Struct(Shortage)
_RELEASED_ROOM, _WINDOW_INFO, _NS_INFO = Struct(Released), Struct(WindowInfo), Struct(NsInfo)
_STATE_INFO = Struct(StateInfo)
_MOVE_DTYPE = struct_dtype("kvp_slot_move")
_END = c.END
_commit, _append, _extend = calls.commit, calls.append, calls.extend
_open, _match, _fork = calls.open, calls.match, calls.fork
_close, _truncate = calls.close, calls.truncate
_slots, _row, _tokens, _fill = calls.slots, calls.row, calls.tokens, calls.fill
_can_open = calls.can_open
_empty = np.empty
_Handle = TypeVar("_Handle", bound=Handle)
_no_numbers = (TypeError, OverflowError)


def fail(handle: Any, status: int, call: str, /, *, said: str = "", **arguments: Any) -> NoReturn:
    """Raises what a call on a cache returned, with what it missed."""
    shortage = None
    if status in (lib.KVP_E_NO_BLOCKS, lib.KVP_E_NEVER) or arguments.get("seqs") is not None:
        room = _SHORTAGE.new()
        if lib.kvpg_cache_shortage_get(handle, room) == 0:
            shortage = _SHORTAGE.read(room)
    of = arguments.get("seq", arguments.get("ns"))
    if status == lib.KVP_E_HANDLE and isinstance(of, (Sequence, Namespace)):
        raise ClosedError(f"{call}: the handle is closed, or of another cache: {of!r}")
    error = error_of(status, call, arguments, shortage, said)
    if status == lib.KVP_E_STATE and isinstance(of, Sequence):
        error.args = (f"{error}{_state_of(of)}",)
    raise error


def _state_of(seq: Sequence) -> str:
    """What a refused call may have stumbled over, in numbers."""
    try:
        info = seq.info()
    except Error:  # another thread is inside
        return ""
    where = "swapped out; " if info.tier == c.HOST else ""
    tree = f", a tree of {info.tree_tokens} nodes" if info.tree_tokens else ""
    return (f"; {where}it has {info.n_tokens} tokens, {info.known_tokens} with a value, "
            f"{info.computed_tokens} computed{tree}")


class Key(NamedTuple):
    """An extra key: what the KV of tokens [begin, end) depends on besides token ids.

    type   the caller's number; keys of two types never compare equal
    begin  position in the sequence, tokens
    end    > begin
    data   at most KEY_MAX_BYTES bytes; of longer ones, pass a digest
    """

    type: int
    begin: int
    end: int
    data: bytes


def hashes_in(hashes: Any) -> Any:
    """What hash_units gives, as a C array over it."""
    if not isinstance(hashes, np.ndarray):
        raise TypeError(f"hashes: needs an array, not {type(hashes).__name__}")
    if hashes.dtype != np.uint8 or hashes.ndim != 2 or hashes.shape[1:] != (16,):
        raise TypeError(f"hashes: needs an array [units, 16] of uint8, not "
                        f"{hashes.dtype}{list(hashes.shape)}")
    if not hashes.flags.c_contiguous:
        raise ValueError("hashes: the array is not contiguous")
    return ffi.from_buffer("kvp_hash[]", hashes)


class Prompt:
    """A prompt with everything that may go along with it.

    tokens     [n] i32, not negative
    reserve    slots wanted beyond the tokens
    tag        the caller's own number, 64 bits
    hashes     [n // U, 16] u8: kvpager.hash_units of the same tokens; or None
    keys       extra keys, ascending by begin
    uncached   [(begin, end)]: positions that must not be cached
    no_match   take no hit, compute everything
    device_only  take no hit that would have to be copied from the host
    receive    what is not hit comes from another process: no blocks for what windows drop
    retention  class, 0..7, of the blocks that the sequence takes
    """

    def __init__(self, tokens: Ints, *, reserve: int = 0, tag: int = 0, hashes: Any = None,
                 keys: Iterable[Key] = (), uncached: Iterable[tuple[int, int]] = (),
                 no_match: bool = False, device_only: bool = False, receive: bool = False,
                 retention: int = 0) -> None:
        values = i32("tokens", tokens)
        made = ffi.new("kvp_prompt *")
        made.struct_size = ffi.sizeof("kvp_prompt")
        made.tokens, made.n_tokens = values, len(values)
        try:
            made.reserve_tokens, made.tag = index(reserve), index(tag)
            made.retention = index(retention)
        except _no_numbers as error:
            raise bad_number(error, reserve=reserve, tag=tag, retention=retention) from None
        made.flags = ((c.OPEN_NO_MATCH if no_match else 0)
                      | (c.OPEN_DEVICE_ONLY if device_only else 0)
                      | (c.OPEN_RECEIVE if receive else 0))
        self._c, self._keep = made, [values]
        self._at = int(ffi.cast("uintptr_t", made))
        self.tokens = tokens
        self.n_hashes = 0
        self._set_keys(listed("keys", keys))
        self._set_uncached(listed("uncached", uncached))
        if hashes is not None:
            self._set_hashes(hashes, len(values))

    def _set_keys(self, keys: list[Key]) -> None:
        if not keys:
            return
        array = ffi.new("kvp_key[]", len(keys))
        for room, key in zip(array, keys):
            if not isinstance(key, Key):
                raise TypeError(f"keys: needs Keys, not {type(key).__name__}")
            data = bytes_in("keys: data", key.data)
            self._keep.append(data)
            try:
                room.type, room.begin, room.end = index(key.type), index(key.begin), index(key.end)
            except _no_numbers as error:
                raise bad_number(error, **{"keys: type": key.type, "keys: begin": key.begin,
                                           "keys: end": key.end}) from None
            room.n_bytes, room.bytes = len(data), data
        self._keep.append(array)
        self._c.keys, self._c.n_keys = array, len(keys)

    def _set_uncached(self, ranges: list[tuple[int, int]]) -> None:
        if not ranges:
            return
        try:
            array = ffi.new("kvp_range[]", [(begin, end) for begin, end in ranges])
        except (ValueError, *_no_numbers):
            raise TypeError("uncached: needs pairs (begin, end) of positions") from None
        self._keep.append(array)
        self._c.uncached, self._c.n_uncached = array, len(ranges)

    def _set_hashes(self, hashes: Any, n_tokens: int) -> None:
        data = hashes_in(hashes)
        self.n_hashes = len(data)
        self._keep.append(data)
        self._c.hashes = data

    @property
    def _borrows(self) -> bool:
        """Whether a scheduler would look at parts of it later."""
        return len(self._keep) > 1


def _shown(prompt: Prompt | Ints) -> dict[str, Any]:
    """A prompt as the arguments of an error message."""
    if not isinstance(prompt, Prompt):
        return {"tokens": prompt}
    return {"tokens": prompt.tokens, "retention": prompt._c.retention,
            "n_keys": prompt._c.n_keys, "hashes": prompt.n_hashes}


def prompt_of(prompt: Prompt | Ints) -> Prompt:
    return prompt if isinstance(prompt, Prompt) else Prompt(prompt)


class Sequence(Handle, Uncopied):
    """One stream of tokens with its row of blocks. Made by Namespace.open, fork and Cache.seq.

    Its life: open -> (extend, commit)* -> close. `handle` is what arrays of sequences hold (u64).
    Closing is the caller's: a sequence that is only forgotten stays open. As a context manager it
    closes at the end.
    """

    __slots__ = ()

    def __enter__(self) -> Sequence:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        _close(self)  # one that was closed by hand, or with its cache, has nothing left to do

    def __repr__(self) -> str:
        return f"<kvpager.Sequence {self.handle:#x}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and other.handle == self.handle

    def __hash__(self) -> int:
        return hash(self.handle)

    @property
    def opened(self) -> OpenInfo:
        """What open found: cached_tokens, why the match stopped, blocks taken. Of one that was not
        opened here (a fork, Cache.seq): all zero."""
        return cast(OpenInfo, calls.opened(self))

    @property
    def cached_tokens(self) -> int:
        """Tokens of the prompt that need not be computed."""
        return self.opened.cached_tokens

    def append(self, token: int) -> None:
        """Make room for one more token: extend, without an array."""
        try:
            status = _append(self, token)
        except _no_numbers as error:
            raise bad_number(error, token=token) from None
        if status:
            fail(self._o, status, "Sequence.append", seq=self, token=token)

    def extend(self, tokens: Ints | None = None, reserve: int = 0,
               keys: Iterable[Key] = ()) -> None:
        """Make room for more tokens, and `reserve` slots beyond them.

        tokens   [n] i32, not negative; none: makes the slots of uncomputed tokens writable
        keys     extra keys inside the new tokens, ascending, positions in the sequence

        Raises NoBlocksError, NeverError (see .missing), TooLongError, StateError, PlanFullError.
        """
        if keys:
            self._with_keys(lib.kvpg_seq_extend_many, "extend", () if tokens is None else tokens,
                            reserve, keys)
            return
        try:
            if tokens is None:
                status = calls.extend_unknown(self, 0, reserve)
            else:
                status = _extend(self, tokens, reserve)
        except _no_numbers as error:
            raise bad_number(error, reserve=reserve) from None
        if status is None:
            status = _extend(self, array_of("tokens", tokens, I32), reserve)
        if status:
            fail(self._o, status, "Sequence.extend", seq=self, tokens=tokens, reserve=reserve)

    def extend_unknown(self, n_tokens: int, reserve: int = 0) -> None:
        """Make room for n_tokens tokens whose values come later, with fill."""
        try:
            status = calls.extend_unknown(self, n_tokens, reserve)
        except _no_numbers as error:
            raise bad_number(error, n_tokens=n_tokens, reserve=reserve) from None
        if status:
            fail(self._o, status, "Sequence.extend_unknown", seq=self, n_tokens=n_tokens,
                 reserve=reserve)

    def _with_keys(self, function: Any, name: str, tokens: Ints, reserve: int,
                   keys: Iterable[Key]) -> None:
        """extend or fill as a batch of one, which may have keys."""
        given = Prompt(tokens, reserve=reserve, keys=keys)
        batch, one = ffi.new("kvp_batch *"), ffi.new("kvp_seq *", {"bits": self.handle})
        count = ffi.new("uint32_t *", given._c.n_tokens)
        batch.struct_size, batch.n_seqs, batch.seqs = ffi.sizeof("kvp_batch"), 1, one
        batch.n_tokens, batch.tokens, batch.reserve_tokens = count, given._c.tokens, reserve
        batch.keys, batch.n_keys = given._c.keys, given._c.n_keys
        status = function(self._o, batch)
        if status:
            fail(self._o, status, f"Sequence.{name}", seq=self, tokens=tokens, reserve=reserve,
                 keys=list(keys))

    def fill(self, tokens: Ints, keys: Iterable[Key] = ()) -> None:
        """Give the values of tokens that were extended without, in order. tokens: [n] i32; keys as
        for extend, inside these."""
        if keys:
            self._with_keys(lib.kvpg_seq_fill_many, "fill", tokens, 0, keys)
            return
        status = _fill(self, tokens)
        if status is None:
            status = _fill(self, array_of("tokens", tokens, I32))
        if status:
            fail(self._o, status, "Sequence.fill", seq=self, tokens=tokens)

    def commit(self, n_tokens: int) -> None:
        """Declare the KV of the first n_tokens computed: full units become findable."""
        try:
            status = _commit(self, n_tokens)
        except _no_numbers as error:
            raise bad_number(error, n_tokens=n_tokens) from None
        if status:
            fail(self._o, status, "Sequence.commit", seq=self, n_tokens=n_tokens)

    def invalidate(self, start: int) -> list[Sequence]:
        """Take back the KV of tokens from `start` on; gives the sequences that share it."""
        try:
            room, n = ffi.new("kvp_seq[]", 64), ffi.new("uint32_t *")
            status = lib.kvpg_seq_invalidate(self._o, self.handle, start, room, len(room), n)
            if status == lib.KVP_E_TOO_SMALL:
                room = ffi.new("kvp_seq[]", n[0])
                status = lib.kvpg_seq_invalidate(self._o, self.handle, start, room, len(room), n)
        except _no_numbers as error:
            raise bad_number(error, start=start) from None
        if status:
            fail(self._o, status, "Sequence.invalidate", seq=self, start=start)
        return [handle_of(Sequence, self._o, room[i].bits) for i in range(n[0])]

    def fork(self, at: int = _END, tag: int = 0) -> Sequence:
        """A second sequence that shares everything before `at`; takes no block."""
        try:
            made = _fork(self, at, tag)
        except _no_numbers as error:
            raise bad_number(error, at=at, tag=tag) from None
        if type(made) is int:
            fail(self._o, made, "Sequence.fork", seq=self, at=at)
        return made  # type: ignore[no-any-return]

    def truncate(self, n_tokens: int) -> Released:
        """Roll back to n_tokens, at any place; gives how many blocks became free and cached."""
        try:
            released = _truncate(self, n_tokens)
        except _no_numbers as error:
            raise bad_number(error, n_tokens=n_tokens) from None
        if type(released) is int:
            fail(self._o, released, "Sequence.truncate", seq=self, n_tokens=n_tokens)
        return released  # type: ignore[no-any-return]

    def close(self) -> Released:
        """Release every block; sealed content stays cached."""
        released = _close(self)
        if type(released) is int:
            fail(self._o, released, "Sequence.close", seq=self)
        return released  # type: ignore[no-any-return]

    if TYPE_CHECKING:
        def info(self) -> SeqInfo:
            """All that is known of the sequence."""
    else:
        info = Handle._seq_info

    def tokens(self, begin: int = 0, n_tokens: int | None = None,
               out: I32Array | None = None) -> I32Array:
        """Token values read back: [n_tokens] i32 from position `begin`; all known ones by default.
        With `out`, it is filled and given back."""
        if n_tokens is None:
            n_tokens = (max(self.info().known_tokens - number("begin", begin), 0) if out is None
                        else len(out_array("out", out, I32, 0)))
        try:
            array = _empty(n_tokens, I32) if out is None else out
            status = _tokens(self, begin, n_tokens, array)
        except (ValueError, *_no_numbers) as error:
            raise bad_number(error, begin=begin, n_tokens=n_tokens) from None
        if status is None:
            unusable("out", array, I32, n_tokens)
        if status:
            fail(self._o, status, "Sequence.tokens", seq=self, begin=begin, n_tokens=n_tokens)
        return array

    def block_tokens(self, block_idx: int) -> I32Array:
        """The tokens in block `block_idx` of the row (a position, not an id): [0..S] i32."""
        room = np.empty(c.BLOCK_TOKENS_MAX, I32)
        n = ffi.new("uint32_t *")
        try:
            status = lib.kvpg_seq_block_tokens(self._o, self.handle, block_idx,
                                               out_array("out", room, I32, 0), n)
        except _no_numbers as error:
            raise bad_number(error, block_idx=block_idx) from None
        if status:
            fail(self._o, status, "Sequence.block_tokens", seq=self, block_idx=block_idx)
        return room[:n[0]].copy()

    def row(self, out: I32Array | None = None, group: int = 0) -> I32Array:
        """The block ids in order, reserved ones included: [blocks] i32, a fresh array, or the
        beginning of `out`."""
        array = _empty(64, I32) if out is None else out
        try:
            n = _row(self, group, array)
        except _no_numbers as error:
            raise bad_number(error, group=group) from None
        if n is None:
            unusable("out", array, I32, 0)
        if n < 0:
            fail(self._o, n, "Sequence.row", seq=self, group=group)
        if n > len(array):
            if out is not None:
                raise TooSmallError(f"out: has room for {len(array)} blocks, needs {n}")
            array = _empty(n, I32)
            _row(self, group, array)
        return array[:n]

    def slots(self, begin: int, n_tokens: int, out: I64Array | None = None,
              group: int = 0) -> I64Array:
        """The slots that the KV of tokens begin .. begin + n_tokens - 1 is to be written to:
        [n_tokens] i64, block * S + offset; NO_SLOT for a computed token."""
        try:
            array = _empty(n_tokens, I64) if out is None else out
            status = _slots(self, group, begin, n_tokens, array)
        except (ValueError, *_no_numbers) as error:
            raise bad_number(error, begin=begin, n_tokens=n_tokens, group=group) from None
        if status is None:
            unusable("out", array, I64, n_tokens)
        if status:
            fail(self._o, status, "Sequence.slots", seq=self, begin=begin, n_tokens=n_tokens)
        return array if out is None else array[:n_tokens]

    def window(self, window: Window | tuple[int, int], group: int = 0) -> Released:
        """Give the sequence a window of its own in one group: (sink_tokens, recent_tokens), (0, 0)
        for none. What it does not keep is dropped at once; gives what became free and cached.
        DroppedError: it would keep what was dropped."""
        try:
            sinks, recent = tuple(window) if isinstance(window, (tuple, list)) else ()
        except ValueError:
            raise ArgError("window: needs two numbers, sink_tokens and recent_tokens") from None
        room = _RELEASED_ROOM.new()
        status = lib.kvpy_window(self._o, self.handle, number("group", group),
                                 number("window: sink_tokens", sinks),
                                 number("window: recent_tokens", recent), room)
        if status:
            fail(self._o, status, "Sequence.window", seq=self, window=window, group=group)
        return _RELEASED_ROOM.read(room)

    def window_info(self, group: int = 0) -> WindowInfo:
        """The window in force in one group, and which row entries are dropped."""
        room = _WINDOW_INFO.new()
        try:
            status = lib.kvpg_seq_window_get(self._o, self.handle, group, room)
        except _no_numbers as error:
            raise bad_number(error, group=group) from None
        if status:
            fail(self._o, status, "Sequence.window_info", seq=self, group=group)
        return _WINDOW_INFO.read(room)

    def prompt_end(self, n_tokens: int) -> None:
        """Tell where the prompt ends, if output was opened behind it: for the learned policy."""
        try:
            status = lib.kvpg_seq_prompt_end(self._o, self.handle, n_tokens)
        except _no_numbers as error:
            raise bad_number(error, n_tokens=n_tokens) from None
        if status:
            fail(self._o, status, "Sequence.prompt_end", seq=self, n_tokens=n_tokens)

    def checkpoint(self) -> int:
        """Keep the recurrent state after the computed tokens, which end a unit, for prompts that
        begin alike: CHECKPOINT_MADE, _THERE or _SKIPPED. It never fails for lack of slots."""
        out = ffi.new("uint32_t *")
        status = lib.kvpg_seq_checkpoint(self._o, self.handle, out)
        if status:
            fail(self._o, status, "Sequence.checkpoint", seq=self)
        return int(out[0])

    def state(self) -> StateInfo:
        """The slots of recurrent state that the next step reads and writes, whether the state is
        lost, and where chunks of the prompt should end. Cache(state_slots=...)."""
        room = _STATE_INFO.new()
        status = lib.kvpg_seq_state_get(self._o, self.handle, room)
        if status:
            fail(self._o, status, "Sequence.state", seq=self)
        return _STATE_INFO.read(room)

    def extend_tree(self, tokens: Ints, parents: Ints, reserve: int = 0) -> None:
        """Add nodes to the sequence's tree: tokens [n] i32; parents [n] i32, the index of each one's
        parent in the whole tree, or -1. Many at once: Cache.extend_tree."""
        extend_tree(self._o, "Sequence.extend_tree", [self.handle], tokens, parents, None, reserve)

    def accept(self, leaf: int) -> npt.NDArray[Any]:
        """Accept the path from a root to a node of the tree, -1: none, and drop the rest of it.
        Gives the moves of slots as Cache.accept does: [n_groups, n] SLOT_MOVE_DTYPE."""
        return accept(self._o, "Sequence.accept", "leaf", [self.handle], [leaf])

    def tree(self) -> tuple[I32Array, I32Array]:
        """The nodes of the sequence's tree: tokens [n] i32, parents [n] i32."""
        n = ffi.new("uint32_t *")
        status = lib.kvpg_seq_tree(self._o, self.handle, NULL, NULL, 0, n)
        arrays = np.empty(n[0], I32), np.empty(n[0], I32)
        if not status and n[0]:
            rooms = [out_array("out", array, I32, 0) for array in arrays]
            status = lib.kvpg_seq_tree(self._o, self.handle, *rooms, n[0], n)
        if status:
            fail(self._o, status, "Sequence.tree", seq=self)
        return arrays

    def retain(self, begin: int, end: int, retention: int) -> None:
        """Give the blocks that hold positions [begin, end) a retention class, 0..7."""
        try:
            status = calls.retain(self, begin, end, retention)
        except _no_numbers as error:
            raise bad_number(error, begin=begin, end=end, retention=retention) from None
        if status:
            fail(self._o, status, "Sequence.retain", seq=self, begin=begin, end=end,
                 retention=retention)

    def uncache(self, begin: int, end: int) -> None:
        """Add positions [begin, end) that must not be cached; they may lie ahead."""
        try:
            status = calls.uncache(self, begin, end)
        except _no_numbers as error:
            raise bad_number(error, begin=begin, end=end) from None
        if status:
            fail(self._o, status, "Sequence.uncache", seq=self, begin=begin, end=end)


def extend_tree(handle: Any, call: str, seqs: Any, tokens: Ints, parents: Ints,
                n_tokens: Ints | None, reserve: int) -> None:
    """Adds nodes to the trees of sequences, for Sequence and Cache."""
    handles, values, above = seqs_of("seqs", seqs), i32("tokens", tokens), i32("parents", parents)
    counts = NULL if n_tokens is None else u32("n_tokens", n_tokens)
    same_length(seqs=handles, n_tokens=None if n_tokens is None else counts)
    n_nodes = sum(counts) if n_tokens is not None else len(handles)
    if call == "Sequence.extend_tree":
        n_nodes = len(values)
        counts = ffi.new("uint32_t[]", [n_nodes])
    if len(values) != n_nodes:
        raise ArgError(f"tokens: has {len(values)} elements, n_tokens adds up to {n_nodes}")
    same_length(tokens=values, parents=above)
    batch = ffi.new("kvp_batch *")
    batch.struct_size, batch.n_seqs, batch.seqs = ffi.sizeof("kvp_batch"), len(handles), handles
    batch.tokens, batch.n_tokens = values, counts
    batch.reserve_tokens = number("reserve", reserve)
    status = lib.kvpg_seq_extend_tree(handle, batch, above)
    if status:
        fail(handle, status, call, seqs=seqs, tokens=tokens, parents=parents, reserve=reserve)


def accept(handle: Any, call: str, name: str, seqs: Any, leaves: Ints) -> npt.NDArray[Any]:
    """Accepts paths of trees, for Sequence and Cache; `name` is what they call the leaves."""
    handles, deepest = seqs_of("seqs", seqs), i32(name, leaves)
    same_length(**{"seqs": handles, name: deepest})
    config = ffi.new("kvp_config *")
    status = lib.kvpg_cache_config_peek(handle, config)
    if status:
        fail(handle, status, call)
    made = ffi.new("kvp_accept *")
    made.struct_size, made.n_seqs = ffi.sizeof("kvp_accept"), len(handles)
    made.seqs, made.leaves, capacity = handles, deepest, 64
    while True:
        moves = np.empty((config.n_groups, capacity), _MOVE_DTYPE)
        room = ffi.from_buffer("uint8_t[]", moves.view(np.uint8))
        made.moves, made.max_moves = ffi.cast("kvp_slot_move *", room), capacity
        status = lib.kvpg_seq_accept(handle, made)
        if status != lib.KVP_E_TOO_SMALL:
            break
        capacity = made.n_moves
    if status:
        fail(handle, status, call, seqs=seqs, **{name: leaves})
    return np.ascontiguousarray(moves[:, :made.n_moves])


class Namespace(Handle, Uncopied):
    """What separates tenants, adapters and model versions; nothing is shared across two.

    Made by Cache.namespace. As a context manager it closes at the end."""

    __slots__ = ()

    def __enter__(self) -> Namespace:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        lib.kvpg_ns_close(self._o, self.handle)

    def __repr__(self) -> str:
        return f"<kvpager.Namespace {self.handle:#x}>"

    def open(self, prompt: Prompt | Ints, reserve: int = 0, tag: int = 0) -> Sequence:
        """Open a sequence: match the longest cached prefix, hold it, take blocks for the rest.

        prompt   [n] i32 tokens; or a Prompt, which may have keys, hashes and more (and its own
                 reserve and tag)

        Raises NoBlocksError, NeverError (see .missing), NoSeqsError, TooLongError, PlanFullError.
        """
        try:
            if type(prompt) is Prompt:
                _check_hashes(self._o, prompt)
                made = calls.open_prompt(self, prompt._at)
            else:
                made = _open(self, prompt, reserve, tag)
                if made is None:
                    made = _open(self, array_of("tokens", prompt, I32), reserve, tag)
        except _no_numbers as error:
            if "tokens" in str(error):
                raise
            raise bad_number(error, reserve=reserve, tag=tag) from None
        if type(made) is int:
            fail(self._o, made, "Namespace.open", ns=self, said=self._why(made, prompt, reserve),
                 **_shown(prompt), reserve=reserve)
        return made  # type: ignore[no-any-return]

    def _why(self, status: int, prompt: Prompt | Ints, reserve: int = 0) -> str:
        """What is wrong with a prompt that a call refused."""
        made = prompt_of(prompt)
        if made is not prompt:
            made._c.reserve_tokens = reserve
        return why(status, lib.kvpg_prompt_check, self._o, self.handle, made._c)

    def match(self, prompt: Prompt | Ints) -> OpenInfo:
        """How much of a prompt is cached; nothing is held or changed."""
        if type(prompt) is Prompt:
            _check_hashes(self._o, prompt)
            found = calls.match_prompt(self, prompt._at)
        else:
            found = _match(self, prompt)
            if found is None:
                found = _match(self, array_of("tokens", prompt, I32))
        if type(found) is int:
            fail(self._o, found, "Namespace.match", ns=self, said=self._why(found, prompt),
                 **_shown(prompt))
        return found  # type: ignore[no-any-return]

    def can_open(self, prompt: Prompt | Ints) -> Admission:
        """Whether open would find its blocks now: verdict ADMIT_OK, ADMIT_LATER, ADMIT_NEVER."""
        if type(prompt) is Prompt:
            _check_hashes(self._o, prompt)
            room = _ADMISSION.new()
            found = lib.kvpg_cache_can_open(self._o, self.handle, prompt._c, room)
            if found == 0:
                found = _ADMISSION.read(room)
        else:
            found = _can_open(self, prompt)
            if found is None:
                found = _can_open(self, array_of("tokens", prompt, I32))
        if type(found) is int:
            fail(self._o, found, "Namespace.can_open", ns=self, **_shown(prompt))
        return found  # type: ignore[no-any-return]

    def state_need(self, prompt: Prompt | Ints) -> int:
        """How many slots of recurrent state leave the queue if the prompt is opened now: 0, 1, or 2
        if its hit ends at a checkpoint that no sequence holds. Cache(state_slots=...)."""
        out = ffi.new("uint32_t *")
        status = lib.kvpg_state_need(self._o, self.handle, prompt_of(prompt)._c, out)
        if status:
            fail(self._o, status, "Namespace.state_need", ns=self, **_shown(prompt))
        return int(out[0])

    def flush(self) -> None:
        """Forget everything cached in the namespace, at once."""
        status = lib.kvpg_ns_flush(self._o, self.handle)
        if status:
            fail(self._o, status, "Namespace.flush", ns=self)

    def quota(self, n_blocks: int = c.NO_QUOTA, tier: int = c.DEVICE) -> None:
        """Set how many blocks of a tier it may have before its own go first; NO_QUOTA: any number.

        With tier STATE_SLOTS: slots of recurrent state. The cache must have been made with quotas=1."""
        try:
            status = lib.kvpg_ns_quota(self._o, self.handle, tier, n_blocks)
        except _no_numbers as error:
            raise bad_number(error, n_blocks=n_blocks, tier=tier) from None
        if status:
            fail(self._o, status, "Namespace.quota", ns=self, n_blocks=n_blocks, tier=tier)

    def info(self) -> NsInfo:
        """How many blocks and slots of state count for it, on both tiers, and its quotas."""
        room = _NS_INFO.new()
        status = lib.kvpg_ns_info_get(self._o, self.handle, room)
        if status:
            fail(self._o, status, "Namespace.info", ns=self)
        return _NS_INFO.read(room)

    def close(self) -> None:
        """One opener less; the last one flushes it."""
        status = lib.kvpg_ns_close(self._o, self.handle)
        if status:
            fail(self._o, status, "Namespace.close", ns=self)


def handle_of(kind: type[_Handle], cache_handle: Any, bits: int) -> _Handle:
    """A sequence or namespace of a cache."""
    made: _Handle = calls.handle(kind, cache_handle, int(ffi.cast("uintptr_t", cache_handle)), bits)
    return made


def _refuse(seq: Sequence, status: int) -> NoReturn:
    fail(seq._o, status, "Sequence.info", seq=seq)


calls.setup(Sequence, _refuse, tuple((made, Struct(made).codes) for made in (
    OpenInfo, Released, Admission, SeqInfo, Stats, Shortage, MetaSizes)))  # as kvpy_record has them


def _check_hashes(cache_handle: Any, prompt: Prompt) -> None:
    """There must be one hash for each full unit: how long a unit is, only the cache knows."""
    if prompt._c.hashes == NULL:
        return
    config = ffi.new("kvp_config *")
    status = lib.kvpg_cache_config_peek(cache_handle, config)
    if status:
        fail(cache_handle, status, "config")
    units = prompt._c.n_tokens // config.unit_tokens
    if prompt.n_hashes < units:
        raise ValueError(f"hashes: has {prompt.n_hashes}, the prompt has {units} full units")
