"""The scheduler: requests, queues, continuous batching, preemption."""

from __future__ import annotations

from operator import index
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from ._cache import Cache, object_of
from ._core import (I32, NULL, U8, U32, U64, Handle, I32Array, Ints, Struct, U32Array, U64Array, Uncopied,
                    bad_number, calls, close, error_of, i32, out_array, owned, pointer, same_length,
                    set_fields, struct_dtype, u32, why)
from ._errors import ArgError, CorruptError
from ._meta import Cascade, Delta, Level
from ._native import ffi, lib
from ._records import (RequestInfo, SampleInfo, SchedConfigFields, SchedLimit, SchedStats,
                       Swapped)
from ._sequence import Namespace, Prompt, _check_hashes, handle_of, prompt_of
from ._tiers import EVENT_DTYPE

if TYPE_CHECKING:
    from typing_extensions import Unpack

STEP_SEQ_DTYPE = struct_dtype("kvp_step_seq")
ENDED_DTYPE = struct_dtype("kvp_ended")
_INFO, _SAMPLE, _STATS = Struct(RequestInfo), Struct(SampleInfo), Struct(SchedStats)
_LIMIT = Struct(SchedLimit)
_no_numbers = (TypeError, OverflowError)


class Step(NamedTuple):
    """What to compute now. Fresh arrays, good for ever.

    number       1, 2, ...
    n_sampled    tokens that finish must be given
    n_decoding   the first so many of seqs compute one token and sample one
    seqs         [B] STEP_SEQ_DTYPE (seq, request, sample, begin, n_tokens, n_sampled)
    tokens       [T] i32, their input tokens, concatenated
    admitted, preempted, swapped_out, swapped_in   [n] u64 requests, in order
    ended        [n] ENDED_DTYPE, refused at admission
    n_left_out   running requests that found no blocks in this step
    waited, waited_swapped   requests by reason, WAIT_BLOCKS ...
    n_loading    requests that are held, and in neither of the two
    drafts       [n_decoding] u32, slots for drafts behind each of the first of seqs
    """

    number: int
    n_sampled: int
    n_decoding: int
    seqs: npt.NDArray[Any]
    tokens: I32Array
    admitted: U64Array
    preempted: U64Array
    swapped_out: U64Array
    swapped_in: U64Array
    ended: npt.NDArray[Any]
    n_left_out: int
    waited: tuple[int, ...]
    waited_swapped: tuple[int, ...]
    n_loading: int
    drafts: npt.NDArray[Any]

    @property
    def handles(self) -> U64Array:
        """[B] u64: the sequences, for metadata."""
        return np.ascontiguousarray(self.seqs["seq"])

    @property
    def begin(self) -> U32Array:
        """[B] u32: position of the first token that each computes, for metadata."""
        return np.ascontiguousarray(self.seqs["begin"])

    @property
    def n_tokens(self) -> U32Array:
        """[B] u32: tokens that each computes, for metadata."""
        return np.ascontiguousarray(self.seqs["n_tokens"])


calls.setup_steps(np.empty, (I32, U32, U64, EVENT_DTYPE, STEP_SEQ_DTYPE, ENDED_DTYPE),
                  (Delta, Level, Cascade, Step, Swapped))  # as calls_steps.c has them


class Expired(NamedTuple):
    """What a tick released.

    requests        [n] u64, in rank: they wait for admission now
    n_loading       requests that are still held
    next_deadline   of those that are still held; None: none is
    """

    requests: U64Array
    n_loading: int
    next_deadline: int | None


def _whole(name: str, value: int, bits: int) -> int:
    """An int of so many bits. (ffi.new would take None.)"""
    try:
        number = index(value)
        if not 0 <= number < 2 ** bits:
            raise OverflowError
        return number
    except _no_numbers as error:
        raise bad_number(error, **{name: value}) from None


class Scheduler(Uncopied):
    """A scheduler over a cache. Keywords are the fields of kvp_sched_config, see
    SchedConfigFields: max_requests, step_tokens, max_running, preempt, ...

        step = scheduler.step()
        copies = cache.plan_take()           run them first
        ...                                  run step.tokens, sample step.n_sampled tokens
        for ended in scheduler.finish(sampled): ...

    It lives on its cache, closes with it, and shares its rule: one thread at a time.
    """

    def __init__(self, cache: Cache, **config: Unpack[SchedConfigFields]) -> None:
        made = ffi.new("kvp_sched_config *")
        lib.kvp_sched_config_init(made)
        set_fields(made, config, "Scheduler")
        self._o, self.cache = owned(lib.KVPY_SCHED, object_of(cache)), cache
        self._h = handle_of(Handle, self._o, 0)  # what calls take that do without cffi
        # What a request borrows until it has ended: hashes, keys, ranges.
        self._borrowed: dict[int, Prompt] = {}
        cache._children.add(self)
        status = lib.kvpg_sched_create(made, cache._o, NULL, 0, self._o)
        if status:
            said = why(status, lib.kvpg_sched_config_check, made, cache._o)
            raise error_of(status, "Scheduler", dict(config), said=said)
        self._max_requests, self._max_loading = made.max_requests, made.max_loading
        samples = made.max_samples or made.max_requests
        self._ended = np.empty(samples + made.max_requests, ENDED_DTYPE)

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, at most {self._max_requests} requests>"

    def __enter__(self) -> Scheduler:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Abort every request and destroy the scheduler. Closing twice does nothing."""
        close(self._o, "Scheduler")
        self._borrowed.clear()
        self.cache._children.discard(self)

    def _fail(self, status: int, call: str, **arguments: Any) -> NoReturn:
        if status == lib.KVPY_E_LENGTH:
            name = next(iter(arguments))
            raise ArgError(f"{call}: {name} has {len(arguments[name])} elements, not as many as "
                           "the step samples, or the request has samples")
        raise error_of(status, call, arguments)

    def submit(self, ns: Namespace, prompt: Prompt | Ints, *, max_new_tokens: int,
               n_samples: int = 1, priority: int = 0, tag: int | None = None, load: bool = True,
               store: bool = True, load_deadline: int = 0) -> int:
        """Submit a request: it waits from now on. Gives its handle.

        prompt          [n] i32, at least one token, copied; or a Prompt
        max_new_tokens  a sample ends when it has generated so many
        n_samples       sequences that continue the prompt, which is computed once
        priority        smaller goes first
        load            it may be held while its prefix is loaded (see hold)
        store           for the caller's stores: kept in request_info.flags, SUBMIT_NO_STORE
        load_deadline   it is never held longer than until this time; 0: no limit of its own

        Raises TooLongError, NeverError (never could be served; .limit says the longest that can),
        NoSeqsError, NoBlocksError (later).
        """
        given = prompt_of(prompt)
        if not isinstance(ns, Namespace):
            raise TypeError(f"ns: needs a Namespace, not {type(ns).__name__}")
        _check_hashes(self.cache._o, given)
        made, out, limit = ffi.new("kvp_submission *"), ffi.new("kvp_request *"), _LIMIT.new()
        made.struct_size, made.prompt = ffi.sizeof("kvp_submission"), given._c
        made.ns.bits = ns.handle
        made.flags = (0 if load else lib.KVP_SUBMIT_NO_LOAD) | (
            0 if store else lib.KVP_SUBMIT_NO_STORE)
        made.load_deadline = _whole("load_deadline", load_deadline, 64)
        try:
            made.max_new_tokens, made.n_samples, made.priority = (max_new_tokens, n_samples,
                                                                  priority)
            if tag is not None:
                given._c.tag = tag
        except _no_numbers as error:
            raise bad_number(error, max_new_tokens=max_new_tokens, n_samples=n_samples,
                             tag=tag or 0, priority=priority) from None
        status = lib.kvpg_sched_submit(self._o, made, out, limit)
        if status:
            failed = error_of(status, "Scheduler.submit",
                              {"tokens": given.tokens, "max_new_tokens": max_new_tokens,
                               "n_samples": n_samples})
            most = _LIMIT.read(limit)
            failed.limit = most  # type: ignore[attr-defined]
            if status in (lib.KVP_E_NEVER, lib.KVP_E_TOO_LONG):
                both = f", {most.max_tokens} with new ones" if most.max_tokens else ""
                failed.args = (f"{failed}; at most {most.max_prompt_tokens} tokens of a prompt{both} "
                               "can be served: refuse it, or make the cache larger",)
            raise failed
        if given._borrows:
            self._borrowed[out.bits] = given
        return int(out.bits)

    def _request(self, function: Any, call: str, request: int) -> None:
        try:
            status = function(self._o, request)
        except _no_numbers as error:
            raise bad_number(error, request=request) from None
        if status:
            self._fail(status, call, request=request)

    def abort(self, request: int) -> None:
        """End a request now."""
        self._request(lib.kvpg_sched_abort, "Scheduler.abort", request)
        self._borrowed.pop(request, None)

    def pause(self, request: int) -> None:
        """Keep a request from being scheduled; it keeps its blocks until somebody needs them."""
        self._request(lib.kvpg_sched_pause, "Scheduler.pause", request)

    def resume(self, request: int) -> None:
        """Let a paused request go on."""
        self._request(lib.kvpg_sched_resume, "Scheduler.resume", request)

    def loadable(self, n_first: int = 64) -> U64Array:
        """Requests that may be held, in the order of admission: a fresh [n] u64.

        n_first   look at so many waiting requests, from the first in rank on
        """
        n, first = ffi.new("uint32_t *"), _whole("n_first", n_first, 32)
        room = np.empty(min(first, self._max_requests), U64)
        out = ffi.cast("kvp_request *", out_array("out", room, U64, 0))
        status = lib.kvpg_sched_loadable(self._o, first, out, n)
        if status:
            self._fail(status, "Scheduler.loadable", n_first=n_first)
        return room[:n[0]]

    def hold(self, request: int, deadline: int) -> None:
        """Hold a waiting request while its prefix is loaded; others go on. It waits until release,
        or until tick finds its deadline over. Raises StateError if it does not wait or was decided
        on before, AgainError if max_loading requests are held."""
        until = _whole("deadline", deadline, 64)
        try:
            status = lib.kvpg_sched_hold(self._o, request, until)
        except _no_numbers as error:
            raise bad_number(error, request=request) from None
        if status:
            self._fail(status, "Scheduler.hold", request=request, deadline=deadline)

    def skip_load(self, request: int) -> None:
        """Decide that a waiting request is not held: loadable does not list it again."""
        self._request(lib.kvpg_sched_skip_load, "Scheduler.skip_load", request)

    def release(self, request: int) -> None:
        """End the hold of a request: it waits for admission at its old place."""
        self._request(lib.kvpg_sched_release, "Scheduler.release", request)

    def tick(self, now: int) -> Expired:
        """Release every held request whose deadline is over: deadline <= now."""
        requests = np.empty(self._max_loading, U64)
        out = ffi.new("kvp_sched_expired *")
        status = lib.kvpy_sched_tick(self._o, _whole("now", now, 64),
                                     out_array("requests", requests, U64, 0), out)
        if status:
            self._fail(status, "Scheduler.tick", now=now)
        return Expired(requests[:out.n_requests], out.n_loading,
                       out.next_deadline if out.n_loading else None)

    def step(self) -> Step:
        """Make the next step: choose, extend, preempt, swap in, admit."""
        step = calls.sched_step(self._h)
        if type(step) is int:
            self._fail(step, "Scheduler.step")
        self._forget(step.ended)
        return step  # type: ignore[no-any-return]

    def reclaim(self) -> int:
        """Evict ahead of need: blocks for the next step, at most free_target of them, while this
        one runs. Gives how many lost their content. Raises StateError when no step is out."""
        n_reclaimed = ffi.new("uint32_t *")
        status = lib.kvpg_sched_reclaim(self._o, n_reclaimed)
        if status:
            self._fail(status, "Scheduler.reclaim")
        return int(n_reclaimed[0])

    def finish(self, tokens: Ints, ended: Any = None,
               counts: Ints | None = None) -> npt.NDArray[Any]:
        """Report a step done: its KV is written, these tokens were sampled.

        tokens   [step.n_sampled] i32, not negative
        ended    [step.n_sampled] u8 or bool: the sample ends with this token; None: none
        counts   [step.n_decoding] u32: with drafts, how many tokens each of the first of seqs
                 has in `tokens`: drafts that were accepted, and one; None: one each

        Gives what ended: [n] ENDED_DTYPE (request, tag, sample, reason, status, new_tokens,
        is_last)."""
        found = calls.sched_finish(self._h, tokens, ended) if counts is None else None
        if found is None:
            found = self._finish(tokens, ended, counts)
        if type(found) is int:
            self._fail(found, "Scheduler.finish", tokens=tokens)
        self._forget(found)
        return found  # type: ignore[no-any-return]

    def _finish(self, tokens: Ints, ended: Any, counts: Ints | None) -> Any:
        """What lists become arrays for, and what is wrong is found out: a status, or what ended."""
        values = i32("tokens", tokens)
        flags = NULL
        if ended is not None:
            array = np.asarray(ended)
            array = array.view(np.uint8) if array.dtype == np.bool_ else array
            flags = pointer("ended", array if array.size else np.empty(0, U8), U8)
            if counts is None:
                same_length(tokens=values, ended=flags)
        n = ffi.new("uint32_t *")
        room = ffi.cast("kvp_ended *", ffi.from_buffer("uint8_t[]", self._ended.view(np.uint8)))
        if counts is None:
            status = lib.kvpy_sched_finish(self._o, values, flags, len(values), room,
                                           len(self._ended), n)
        else:
            of_each = u32("counts", counts)
            results = ffi.new("kvpy_results *", (
                values, of_each, flags, len(values), len(of_each),
                0 if flags is NULL else len(flags)))
            status = lib.kvpy_sched_finish_drafts(self._o, results, room, len(self._ended), n)
        return status or self._ended[:n[0]].copy()

    def _forget(self, ended: npt.NDArray[Any]) -> None:
        if self._borrowed and len(ended):
            for request in ended["request"][ended["is_last"] != 0].tolist():
                self._borrowed.pop(request, None)

    def fail(self) -> None:
        """Report that a step failed: its requests are preempted by recompute."""
        status = lib.kvpg_sched_fail(self._o)
        if status:
            self._fail(status, "Scheduler.fail")

    def reorder(self, request: int, parents: Ints, tokens: Ints | None = None) -> None:
        """Reorder a group (beam search): sample i becomes what parents[i] was before its newest
        token, and tokens[i] is its newest. parents [n_samples] u32, tokens [n_samples] i32."""
        rows = u32("parents", parents)
        values = NULL if tokens is None else i32("tokens", tokens)
        if tokens is not None:
            same_length(parents=rows, tokens=values)
        try:
            status = lib.kvpy_sched_reorder(self._o, request, rows, values, len(rows))
        except _no_numbers as error:
            raise bad_number(error, request=request) from None
        if status:
            self._fail(status, "Scheduler.reorder", parents=parents, request=request,
                       tokens=tokens)

    def request_info(self, request: int) -> RequestInfo:
        room = _INFO.new()
        try:
            status = lib.kvpg_request_info_get(self._o, request, room)
        except _no_numbers as error:
            raise bad_number(error, request=request) from None
        if status:
            self._fail(status, "Scheduler.request_info", request=request)
        return _INFO.read(room)

    def sample_info(self, request: int, sample: int = 0) -> SampleInfo:
        room = _SAMPLE.new()
        try:
            status = lib.kvpg_request_sample(self._o, request, sample, room)
        except _no_numbers as error:
            raise bad_number(error, request=request, sample=sample) from None
        if status:
            self._fail(status, "Scheduler.sample_info", request=request, sample=sample)
        return _SAMPLE.read(room)

    def tokens(self, request: int, sample: int = 0, begin: int = 0,
               end: int | None = None) -> I32Array:
        """Tokens of a sample, prompt and generated: positions [begin, end), a fresh [n] i32."""
        if end is None:
            end = self.sample_info(request, sample).n_tokens
        try:
            room = np.empty(max(end - begin, 0), I32)
            status = lib.kvpg_request_tokens(self._o, request, sample, begin, end,
                                             out_array("out", room, I32, 0))
        except (ValueError, *_no_numbers) as error:
            raise bad_number(error, request=request, sample=sample, begin=begin, end=end) from None
        if status:
            self._fail(status, "Scheduler.tokens", request=request, sample=sample, begin=begin,
                       end=end)
        return room

    def stats(self) -> SchedStats:
        """Gauges and counters."""
        room = _STATS.new()
        status = lib.kvpg_sched_stats_get(self._o, room)
        if status:
            self._fail(status, "Scheduler.stats")
        return _STATS.read(room)

    def check(self) -> None:
        """Audit the scheduler; CorruptError names the invariant that does not hold."""
        room = ffi.new("kvp_violation *")
        status = lib.kvpg_sched_check(self._o, room)
        if status == lib.KVP_E_CORRUPT:
            raise CorruptError(f"{ffi.string(room.invariant).decode()}, object {room.object}: "
                               f"{ffi.string(room.detail).decode()}")
        if status:
            self._fail(status, "Scheduler.check")

