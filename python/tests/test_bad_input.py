"""Every argument of every call, wrong in every way: an exception names it, and nothing changed.

The table says what each argument is; what can be wrong with such a thing is said once.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import kvpager
from kvpager import (Cache, CsrBuffers, DenseBuffers, Namespace, Scheduler, Sequence, TreeBuffers,
                     WindowedBuffers)
from kvpager._core import locked
from kvpager._native import lib

I32, I64, U32, U64 = np.int32, np.int64, np.uint32, np.uint64


def twice(array: Any) -> Any:
    """The same values, not contiguous."""
    return np.repeat(array, 2)[::2]


WRONG: dict[str, dict[str, Any]] = {
    "tokens": {
        "floats": np.zeros(2), "int64": np.zeros(2, I64), "big-endian": np.zeros(2, ">i4"),
        "bool": np.zeros(2, bool), "2-D": np.zeros((1, 2), I32),
        "not contiguous": twice(np.zeros(2, I32)), "negative": np.array([1, -2], I32),
        "negative in a list": [1, -2], "above 2**31 - 1": [1, 2 ** 31], "huge": [1, 2 ** 70],
        "strings": ["a", "b"], "a float in a list": [1, 2.5], "nested": [[1, 2]], "a number": 5,
        "an object": object(),
    },
    "counts": {
        "int32": np.ones(2, I32), "floats": np.ones(2), "2-D": np.ones((1, 2), U32),
        "not contiguous": twice(np.ones(2, U32)), "negative": [1, -1], "too large": [1, 2 ** 32],
        "too few": [1], "too many": [1, 1, 1], "strings": ["a", "b"], "a number": 5,
    },
    "versions": {
        "uint32": np.ones(2, U32), "int64": np.ones(2, I64), "floats": np.ones(2),
        "2-D": np.ones((1, 2), U64), "not contiguous": twice(np.ones(2, U64)),
        "negative": [1, -1], "too large": [1, 2 ** 64], "too few": [1], "too many": [1, 1, 1],
        "strings": ["a", "b"], "a number": 5,
    },
    "seqs": {
        "int64": np.ones(2, I64), "floats": np.ones(2), "2-D": np.ones((1, 2), U64),
        "not contiguous": twice(np.ones(2, U64)), "strings": ["a", "b"], "nothing": [None, None],
        "a number": 5, "negative": [-1, -2],
    },
    "nodes": {
        "floats": np.zeros(2), "int64": np.zeros(2, I64), "2-D": np.zeros((1, 2), I32),
        "not contiguous": twice(np.zeros(2, I32)), "below -1": np.array([-1, -2], I32),
        "not there": [5, 5], "too few": [-1], "too many": [-1, -1, -1], "huge": [-1, 2 ** 70],
        "strings": ["a", "b"], "a number": 5, "an object": object(),
    },
    "window": {"a number": 5, "nothing": None, "three": (1, 2, 3), "negative": (-1, 4),
               "huge": (0, 2 ** 70), "floats": (0, 1.5), "strings": ("a", "b"),
               "sinks alone": (4, 0)},
    "windows": {"a number": 5, "nothing": None, "none": [], "too many": [(0, 4)] * 9,
                "negative": [(0, -1)], "huge": [(2 ** 70, 1)], "floats": [(0, 1.5)],
                "strings": ["ab"], "sinks alone": [(4, 0)], "numbers": [4]},
    "number": {"negative": -1, "huge": 2 ** 70, "float": 1.5, "string": "1", "nothing": None},
    "room for slots": {"int32": np.empty(8, I32), "2-D": np.empty((2, 8), I64), "a list": [0] * 8,
                       "too small": np.empty(1, I64), "not contiguous": twice(np.empty(8, I64)),
                       "read-only": np.frombuffer(bytes(64), I64)},
    "room for i32": {"int64": np.empty(8, I64), "2-D": np.empty((2, 8), I32), "a list": [0] * 8,
                     "not contiguous": twice(np.empty(8, I32)),
                     "read-only": np.frombuffer(bytes(32), I32)},
    "room for copies": {"int32": np.empty(8, I32), "a list": [],
                        "2-D": np.empty((2, 8), kvpager.COPY_DTYPE)},
}


class World:
    """Everything that the calls are made on."""

    def __init__(self) -> None:
        self.cache = Cache(n_blocks=64, block_tokens=4, max_seqs=16, host_blocks=16, max_events=16,
                           max_tree_tokens=16, groups=[(0, 0), (4, 64)], quotas=1,
                           max_loads=2)
        self.ns = self.cache.namespace("m")
        self.seqs = [self.ns.open(range(10)), self.ns.open(range(100, 107))]
        for seq, n in zip(self.seqs, (10, 7)):
            seq.commit(n)
            seq.extend_unknown(1)
        self.handles = kvpager.handles_of(self.seqs)
        self.scheduler = Scheduler(self.cache, step_tokens=64)
        self.request = self.scheduler.submit(self.ns, [1, 2, 3], max_new_tokens=4)
        self.csr, self.dense = CsrBuffers(4, 16, 64), DenseBuffers(4, 16, 16)
        self.windowed, self.tree = WindowedBuffers(4, 16, 64), TreeBuffers(4, 16, 1024)

    def state(self) -> Any:
        self.cache.check()
        self.scheduler.check()
        stats = self.cache.stats()._replace(refused=0, plans=0)
        return stats, self.scheduler.stats()._replace(refused=0), [s.info() for s in self.seqs]


PAIR, VALUES, ROOTS = np.ones(2, U32), np.ones(2, I32), np.full(2, -1, I32)


def seq0(world: World) -> Sequence:
    return world.seqs[0]


# name: (the call, with one argument replaced by `value`; {argument: what it is})
CALLS: dict[str, tuple[Callable[[World, dict[str, Any]], Any], dict[str, str]]] = {
    "Namespace.open": (lambda w, a: w.ns.open(a.get("tokens", [1]), reserve=a.get("reserve", 0),
                                              tag=a.get("tag", 0)),
                       {"tokens": "tokens", "reserve": "number", "tag": "number"}),
    "Namespace.quota": (lambda w, a: w.ns.quota(a.get("n_blocks", 9), a.get("tier", 0)),
                        {"n_blocks": "number", "tier": "number"}),
    "Namespace.match": (lambda w, a: w.ns.match(a["tokens"]), {"tokens": "tokens"}),
    "Namespace.can_open": (lambda w, a: w.ns.can_open(a["tokens"]), {"tokens": "tokens"}),
    "Prompt": (lambda w, a: w.ns.open(kvpager.Prompt(
        a.get("tokens", [1]), reserve=a.get("reserve", 0), tag=a.get("tag", 0),
        retention=a.get("retention", 0))),
               {"tokens": "tokens", "reserve": "number", "tag": "number", "retention": "number"}),
    "Sequence.append": (lambda w, a: seq0(w).append(a["token"]), {"token": "number"}),
    "Sequence.extend": (lambda w, a: seq0(w).extend(a.get("tokens"), a.get("reserve", 0)),
                        {"tokens": "tokens", "reserve": "number"}),
    "Sequence.extend_unknown": (
        lambda w, a: seq0(w).extend_unknown(a.get("n_tokens", 1), a.get("reserve", 0)),
        {"n_tokens": "number", "reserve": "number"}),
    "Sequence.fill": (lambda w, a: seq0(w).fill(a["tokens"]), {"tokens": "tokens"}),
    "Sequence.commit": (lambda w, a: seq0(w).commit(a["n_tokens"]), {"n_tokens": "number"}),
    "Sequence.truncate": (lambda w, a: seq0(w).truncate(a["n_tokens"]), {"n_tokens": "number"}),
    "Sequence.invalidate": (lambda w, a: seq0(w).invalidate(a["start"]), {"start": "number"}),
    "Sequence.fork": (lambda w, a: seq0(w).fork(a["at"]), {"at": "number"}),
    "Sequence.tokens": (lambda w, a: seq0(w).tokens(a.get("begin", 0), a.get("n_tokens", 2),
                                                    a.get("out")),
                        {"begin": "number", "out": "room for i32"}),
    "Sequence.block_tokens": (lambda w, a: seq0(w).block_tokens(a["block_idx"]),
                              {"block_idx": "number"}),
    "Sequence.row": (lambda w, a: seq0(w).row(a.get("out"), a.get("group", 0)),
                     {"out": "room for i32", "group": "number"}),
    "Sequence.slots": (lambda w, a: seq0(w).slots(a.get("begin", 0), a.get("n_tokens", 2),
                                                  a.get("out"), a.get("group", 0)),
                       {"begin": "number", "n_tokens": "number", "group": "number",
                        "out": "room for slots"}),
    "Sequence.retain": (lambda w, a: seq0(w).retain(a.get("begin", 0), a.get("end", 4),
                                                    a.get("retention", 0)),
                        {"begin": "number", "end": "number", "retention": "number"}),
    "Sequence.uncache": (lambda w, a: seq0(w).uncache(a.get("begin", 90), a.get("end", 91)),
                         {"begin": "number", "end": "number"}),
    "Cache.extend_many": (lambda w, a: w.cache.extend_many(
        a.get("seqs", w.handles), a.get("tokens"), n_tokens=a.get("n_tokens"),
        reserve=a.get("reserve", 0), statuses=a.get("statuses")),
        {"seqs": "seqs", "tokens": "tokens", "n_tokens": "counts", "reserve": "number",
         "statuses": "room for i32"}),
    "Cache.fill_many": (lambda w, a: w.cache.fill_many(
        a.get("seqs", w.handles), a.get("tokens", VALUES), n_tokens=a.get("n_tokens"),
        statuses=a.get("statuses")),
        {"seqs": "seqs", "tokens": "tokens", "n_tokens": "counts", "statuses": "room for i32"}),
    "Cache.commit_many": (lambda w, a: w.cache.commit_many(
        a.get("seqs", w.handles), a.get("n_tokens", PAIR)),
        {"seqs": "seqs", "n_tokens": "counts"}),
    "Cache.can_extend": (lambda w, a: w.cache.can_extend(
        a.get("seqs", w.handles), n_tokens=a.get("n_tokens"), reserve=a.get("reserve", 0)),
        {"seqs": "seqs", "n_tokens": "counts", "reserve": "number"}),
    "Sequence.window": (lambda w, a: seq0(w).window(a.get("window", (0, 64)), a.get("group", 0)),
                        {"window": "window", "group": "number"}),
    "Sequence.window_info": (lambda w, a: seq0(w).window_info(a["group"]), {"group": "number"}),
    "Sequence.extend_tree": (
        lambda w, a: seq0(w).extend_tree(a.get("tokens", VALUES), a.get("parents", ROOTS),
                                         a.get("reserve", 0)),
        {"tokens": "tokens", "parents": "nodes", "reserve": "number"}),
    "Sequence.accept": (lambda w, a: seq0(w).accept(a["leaf"]), {"leaf": "number"}),
    "Sequence.tree": (lambda w, a: seq0(w).tree(), {}),
    "Cache.extend_tree": (
        lambda w, a: w.cache.extend_tree(
            a.get("seqs", w.handles), a.get("tokens", VALUES), a.get("parents", ROOTS),
            n_tokens=a.get("n_tokens"), reserve=a.get("reserve", 0)),
        {"seqs": "seqs", "tokens": "tokens", "parents": "nodes", "n_tokens": "counts",
         "reserve": "number"}),
    "Namespace.state_need": (lambda w, a: w.ns.state_need(a["tokens"]), {"tokens": "tokens"}),
    "Sequence.prompt_end": (lambda w, a: seq0(w).prompt_end(a["n_tokens"]), {"n_tokens": "number"}),
    "Sequence.checkpoint": (lambda w, a: seq0(w).checkpoint(), {}),
    "Sequence.state": (lambda w, a: seq0(w).state(), {}),
    "Cache.state_stats": (lambda w, a: w.cache.state_stats(), {}),
    "Cache.policy_info": (lambda w, a: w.cache.policy_info(), {}),
    "Cache.policy_class": (lambda w, a: w.cache.policy_class(a["class_"]), {"class_": "number"}),
    "Cache.accept": (lambda w, a: w.cache.accept(a.get("seqs", w.handles), a.get("leaves", ROOTS)),
                     {"seqs": "seqs", "leaves": "nodes"}),
    "Cache": (lambda w, a: Cache(groups=a["groups"]), {"groups": "windows"}),
    "Cache.bytes_for": (lambda w, a: Cache.bytes_for(groups=a["groups"]), {"groups": "windows"}),
    "Cache.plan_take": (lambda w, a: w.cache.plan_take(a["out"]), {"out": "room for copies"}),
    "Cache.check": (lambda w, a: w.cache.check(a["level"]), {"level": "number"}),
    "Cache.block_info": (lambda w, a: w.cache.block_info(
        a.get("block", 1), a.get("tier", 0), a.get("group", 0)),
        {"block": "number", "tier": "number", "group": "number"}),
    "Cache.block_sealed_tokens": (lambda w, a: w.cache.block_sealed_tokens(
        a.get("block", 1), a.get("tier", 0)), {"block": "number", "tier": "number"}),
    "Cache.swap_out": (lambda w, a: w.cache.swap_out(a["seqs"]), {"seqs": "seqs"}),
    "Cache.swap_in": (lambda w, a: w.cache.swap_in(a.get("seqs", w.handles), a.get("reserve", 0)),
                      {"seqs": "seqs", "reserve": "number"}),
    "Cache.can_swap_out": (lambda w, a: w.cache.can_swap_out(a["seqs"]), {"seqs": "seqs"}),
    "Cache.can_swap_in": (lambda w, a: w.cache.can_swap_in(
        a.get("seqs", w.handles), a.get("reserve", 0)), {"seqs": "seqs", "reserve": "number"}),
    "Cache.state_swap_need": (lambda w, a: w.cache.state_swap_need(
        a.get("seqs", w.handles), a.get("reserve", 0)), {"seqs": "seqs", "reserve": "number"}),
    "Cache.step_commit": (lambda w, a: w.cache.step_commit(
        a.get("step", 1), a.get("seqs", w.handles), a.get("n_tokens", PAIR)),
        {"step": "number", "seqs": "seqs", "n_tokens": "counts"}),
    "Cache.step_done": (lambda w, a: w.cache.step_done(a["step"]), {"step": "number"}),
    "Cache.step_failed": (lambda w, a: w.cache.step_failed(a["step"]), {"step": "number"}),
    "Cache.events": (lambda w, a: w.cache.events(a.get("start", 1), a.get("capacity", 2),
                                                 a.get("tokens")),
                     {"start": "number", "capacity": "number", "tokens": "room for i32"}),
    "Cache.cold_end": (lambda w, a: w.cache.cold_end(a.get("tier", 1), a.get("capacity", 4)),
                       {"tier": "number", "capacity": "number"}),
    "Cache.block_origin": (lambda w, a: w.cache.block_origin(a.get("block", 1), a.get("tier", 0)),
                           {"block": "number", "tier": "number"}),
    "Cache.block_prefix": (lambda w, a: w.cache.block_prefix(a.get("block", 1), a.get("tier", 0)),
                           {"block": "number", "tier": "number"}),
    "Cache.block_keys": (lambda w, a: w.cache.block_keys(a.get("block", 1), a.get("tier", 0)),
                         {"block": "number", "tier": "number"}),
    "Cache.reclaim": (lambda w, a: w.cache.reclaim(a.get("n_blocks", 1)), {"n_blocks": "number"}),
    "Cache.drop": (lambda w, a: w.cache.drop(a.get("blocks", [1]), a.get("tier", 0)),
                   {"blocks": "tokens", "tier": "number"}),
    "Cache.plan_done": (lambda w, a: w.cache.plan_done(a["n_plans"]), {"n_plans": "number"}),
    "Cache.mirror": (lambda w, a: w.cache.mirror(a.get("blocks", [1]), a.get("spare", 99)),
                     {"blocks": "tokens", "spare": "number"}),
    "Cache.lend": (lambda w, a: w.cache.lend(a["blocks"]), {"blocks": "tokens"}),
    "Cache.give_back": (lambda w, a: w.cache.give_back(a["blocks"]), {"blocks": "tokens"}),
    "Cache.load_begin": (lambda w, a: w.cache.load_begin(
        w.ns, a.get("tokens", range(8)), a.get("begin", 0), a.get("end", 1),
        group=a.get("group", 0), spare=a.get("spare", 0)),
        {"tokens": "tokens", "begin": "number", "end": "number", "group": "number",
         "spare": "number"}),
    "Cache.load_done": (lambda w, a: w.cache.load_done(a["load"], [1]), {"load": "number"}),
    "Cache.load_cancel": (lambda w, a: w.cache.load_cancel(a["load"]), {"load": "number"}),
    "Cache.seq": (lambda w, a: w.cache.seq(a["handle"]).info(), {"handle": "number"}),
    "CsrBuffers": (lambda w, a: CsrBuffers(**{"max_seqs": 1, "max_tokens": 1, "max_entries": 1,
                                              **a}),
                   {"max_seqs": "number", "max_tokens": "number", "max_entries": "number"}),
    "WindowedBuffers": (lambda w, a: WindowedBuffers(**{"max_seqs": 1, "max_tokens": 1,
                                                        "max_kept": 1, **a}),
                        {"max_seqs": "number", "max_tokens": "number", "max_kept": "number"}),
    "TreeBuffers": (lambda w, a: TreeBuffers(**{"max_seqs": 1, "max_nodes": 1,
                                                "max_mask_bytes": 1, **a}),
                    {"max_seqs": "number", "max_nodes": "number"}),
    "cascade": (lambda w, a: kvpager.cascade(w.cache, a.get("seqs", w.handles),
                                             max_levels=a.get("max_levels", 2)),
                {"seqs": "seqs", "max_levels": "number"}),
    "trtllm": (lambda w, a: kvpager.trtllm(w.cache, a.get("seqs", w.handles),
                                           layers_per_block=a.get("layers_per_block", 1)),
               {"seqs": "seqs", "layers_per_block": "number"}),
    "delta": (lambda w, a: kvpager.delta(w.cache, a.get("seqs", w.handles), a.get("had_version"),
                                         a.get("had_blocks")),
              {"seqs": "seqs", "had_version": "versions", "had_blocks": "counts"}),
    "Scheduler.submit": (lambda w, a: w.scheduler.submit(
        w.ns, a.get("tokens", [1]), max_new_tokens=a.get("max_new_tokens", 1),
        n_samples=a.get("n_samples", 1), load_deadline=a.get("load_deadline", 0)),
        {"tokens": "tokens", "max_new_tokens": "number", "n_samples": "number",
         "load_deadline": "number"}),
    "Scheduler.abort": (lambda w, a: w.scheduler.abort(a["request"]), {"request": "number"}),
    "Scheduler.pause": (lambda w, a: w.scheduler.pause(a["request"]), {"request": "number"}),
    "Scheduler.resume": (lambda w, a: w.scheduler.resume(a["request"]), {"request": "number"}),
    "Scheduler.skip_load": (lambda w, a: w.scheduler.skip_load(a["request"]),
                            {"request": "number"}),
    "Scheduler.release": (lambda w, a: w.scheduler.release(a["request"]), {"request": "number"}),
    "Scheduler.hold": (lambda w, a: w.scheduler.hold(
        a.get("request", w.request), a.get("deadline", 5)),
        {"request": "number", "deadline": "number"}),
    "Scheduler.loadable": (lambda w, a: w.scheduler.loadable(a["n_first"]), {"n_first": "number"}),
    "Scheduler.tick": (lambda w, a: w.scheduler.tick(a["now"]), {"now": "number"}),
    "Scheduler.finish": (lambda w, a: w.scheduler.finish(a["tokens"]), {"tokens": "tokens"}),
    "Scheduler.reorder": (lambda w, a: w.scheduler.reorder(
        a.get("request", w.request), a.get("parents", [0]), a.get("tokens")),
        {"request": "number", "parents": "counts"}),
    "Scheduler.request_info": (lambda w, a: w.scheduler.request_info(a["request"]),
                               {"request": "number"}),
    "Scheduler.sample_info": (lambda w, a: w.scheduler.sample_info(
        a.get("request", w.request), a.get("sample", 0)),
        {"request": "number", "sample": "number"}),
    "Scheduler.tokens": (lambda w, a: w.scheduler.tokens(
        w.request, a.get("sample", 0), a.get("begin", 0), a.get("end", 1)),
        {"sample": "number", "begin": "number", "end": "number"}),
    "hash_units": (lambda w, a: kvpager.hash_units(
        a.get("tokens", [1]), a.get("unit_tokens", 4), bytes(16),
        first_position=a.get("first_position", 0)),
        {"tokens": "tokens", "unit_tokens": "number", "first_position": "number"}),
    "hash_root": (lambda w, a: kvpager.hash_root(a["unit_tokens"]), {"unit_tokens": "number"}),
    "Reasons": (lambda w, a: kvpager.Reasons(a["max_units"]), {"max_units": "number"}),
    "Reasons.admit": (lambda w, a: kvpager.Reasons(8).admit(
        np.zeros((1, 16), np.uint8), a.get("n_tokens", 4), a.get("unit_tokens", 4), a.get("cached_tokens", 0),
        a.get("stop", 1), a.get("stop_group", 0), a.get("full_groups", 1)),
        dict.fromkeys(("n_tokens", "unit_tokens", "cached_tokens", "stop", "stop_group", "full_groups"),
                      "number")),
    "Reasons.computed": (lambda w, a: kvpager.Reasons(8).computed(
        np.zeros((1, 16), np.uint8), a["n_computed"]),
                         {"n_computed": "number"}),
}


def metadata(name: str, function: Callable[..., Any], also: dict[str, str]) -> None:
    """Calls that take a batch: function(world, seqs, begin, n_tokens, ...)."""
    kinds = {"begin": "counts", "n_tokens": "counts", "group": "number", **also}

    def call(w: World, a: dict[str, Any]) -> Any:
        return function(w, a.get("seqs", w.handles), **{n: v for n, v in a.items() if n in kinds})

    CALLS[name] = (call, {"seqs": "seqs", **kinds})


for one in ("measure", "csr", "dense", "windowed", "tree", "trtllm"):
    metadata(one, lambda w, *a, one=one, **k: getattr(kvpager, one)(w.cache, *a, **k), {})
for one in ("csr", "dense", "windowed", "tree"):
    metadata(f"{one.capitalize()}Buffers.fill",
             lambda w, *a, one=one, **k: getattr(w, one).fill(w.cache, *a, **k),
             {"mask_keys": "number"} if one == "tree" else {})

# What is right there, though the table would have it wrong.
FINE = {
    # The hash takes any 32 bits for a token, and a negative one is a matter of open.
    ("hash_units", "tokens", "negative"), ("hash_units", "tokens", "negative in a list"),
    # None is a default.
    ("Reasons.computed", "n_computed", "nothing"),
    ("Scheduler.tokens", "end", "nothing"),
    # -1 stands for none.
    ("Sequence.accept", "leaf", "negative"),
    # One count each is what a batch of another length needs: compared with seqs only.
    ("Scheduler.reorder", "parents", "too few"),
}


def cases() -> Iterator[Any]:
    for name, (_, arguments) in CALLS.items():
        for argument, kind in arguments.items():
            for what in WRONG[kind]:
                if (name, argument, what) not in FINE:
                    yield pytest.param(name, argument, what, id=f"{name}-{argument}-{what}")


@pytest.fixture(scope="module")
def world() -> World:
    return World()


@pytest.mark.parametrize(("name", "argument", "what"), list(cases()))
def test_wrong_argument(world: World, name: str, argument: str, what: str) -> None:
    call, arguments = CALLS[name]
    before = world.state()
    with pytest.raises((TypeError, ValueError, kvpager.CallerError)) as caught:
        call(world, {argument: WRONG[arguments[argument]][what]})
    assert argument in str(caught.value), f"{caught.value!r} does not name {argument}"
    assert world.state() == before


def good_arguments(name: str) -> dict[str, Any]:
    good = {"tokens": [1, 2], "counts": [1, 1], "versions": [1, 1], "number": 1,
            "room for slots": np.empty(8, I64), "nodes": [-1, -1], "window": (0, 64), "windows": [(0, 0)],
            "room for i32": np.empty(8, I32), "room for copies": np.empty(8, kvpager.COPY_DTYPE)}
    return {argument: good[kind] for argument, kind in CALLS[name][1].items() if kind in good}


# Calls that touch no cache.
PURE = {"Cache", "Cache.bytes_for", "CsrBuffers", "WindowedBuffers", "TreeBuffers", "hash_units",
        "hash_root", "Reasons", "Reasons.admit", "Reasons.computed"}


# "Thread: any" in the headers; Cache.seq asks for the sequence's info.
BESIDE = {"Cache.events", "Cache.seq"}


def test_beside_another_thread() -> None:
    world = World()
    assert lib.kvpy_object_lock(world.cache._o) == 0
    try:
        CALLS["Cache.events"][0](world, good_arguments("Cache.events"))
        assert world.seqs[0].info().n_tokens > 0
    finally:
        lib.kvpy_object_unlock(world.cache._o)


@pytest.mark.parametrize("name", sorted(set(CALLS) - PURE - BESIDE))
def test_while_another_thread_is_inside(name: str) -> None:
    world = World()
    arguments = {"seqs": world.handles, "request": world.request,
                 **{n: v for n, v in good_arguments(name).items() if n != "request"}}
    assert lib.kvpy_object_lock(world.cache._o) == 0
    try:
        with pytest.raises(kvpager.BusyError):
            CALLS[name][0](world, arguments)
    finally:
        lib.kvpy_object_unlock(world.cache._o)
    world.state()


@pytest.mark.parametrize("rings", [False, True])
def test_as_many_values_as_the_counts_say(rings: bool) -> None:
    world = World()
    before = world.state()
    for tokens, counts in (([1], None), ([1, 2, 3], None), ([1], PAIR), ([1, 2, 3], PAIR)):
        for call in (partial(world.cache.extend_many, rings=rings), world.cache.fill_many):
            with pytest.raises(kvpager.ArgError):
                call(world.handles, tokens, n_tokens=counts)
    assert world.state() == before


def test_a_place_gives_back_its_own_lock_alone() -> None:
    world = World()
    held = locked(world.cache._o, "first")
    with held, pytest.raises(kvpager.BusyError), locked(world.cache._o, "second"):
        pass
    with held:
        with pytest.raises(kvpager.BusyError):
            locked(world.cache._o, "third").__enter__()
        gc.collect()
        with pytest.raises(kvpager.BusyError):
            world.cache.check()
    assert lib.kvpy_object_lock(world.cache._o) == 0  # another one's
    try:
        del held
        gc.collect()
        with pytest.raises(kvpager.BusyError):
            world.cache.check()
    finally:
        lib.kvpy_object_unlock(world.cache._o)


@pytest.mark.parametrize("name", sorted(set(CALLS) - PURE))
def test_after_close(name: str) -> None:
    world = World()
    world.cache.close()
    with pytest.raises(kvpager.ClosedError):
        CALLS[name][0](world, {"seqs": world.handles, "request": world.request,
                               **{n: v for n, v in good_arguments(name).items()
                                  if n != "request"}})


def test_every_public_method_is_in_the_table() -> None:
    """A method that is new has to be added here."""
    special = {"Cache": {"close", "closed", "reset", "stats", "shortage", "namespace",
                         "save", "load", "evicted", "record", "events_snapshot", "step_begin",
                         "recover", "sequences", "cold_cursor"},
               "Namespace": {"flush", "close", "handle", "info"},
               "Sequence": {"opened", "cached_tokens", "info", "close", "handle"},
               "Scheduler": {"close", "step", "reclaim", "fail", "stats", "check"}}
    for kind in (Cache, Namespace, Sequence, Scheduler):
        methods = {name for name in dir(kind) if not name.startswith("_")}
        tested = {name.split(".")[1] for name in CALLS if name.startswith(kind.__name__ + ".")}
        assert methods - special[kind.__name__] == tested, kind.__name__


@pytest.mark.parametrize("fields, said", [
    ({"n_blocks": 1}, "n_blocks is 1, expected 2 to 2^31-1"),
    ({"block_tokens": 0}, "block_tokens is 0, expected 1 to 65536"),
    ({"unit_tokens": 3}, "unit_tokens is 3: no divisor of block_tokens"),
    ({"watermark": 1.0}, "watermark: expected at least 0 and below 1"),
    ({"max_seqs": 2 ** 20 + 1}, "max_seqs is 1048577, expected 1 to 2^20"),
])
def test_a_refused_configuration_names_the_field(fields: dict[str, Any], said: str) -> None:
    for call in (kvpager.Cache, kvpager.Cache.bytes_for):
        with pytest.raises(kvpager.ArgError) as refused:
            call(**fields)
        assert str(refused.value).endswith("; " + said)


def test_a_refused_scheduler_and_prompt_name_the_field() -> None:
    cache = kvpager.Cache(n_blocks=8, max_seqs=4, max_seq_tokens=64)
    with pytest.raises(kvpager.ArgError, match="max_running is 5, expected 1 to 4$"):
        kvpager.Scheduler(cache, max_running=5)
    with pytest.raises(kvpager.ArgError, match="max_row_blocks is 0, expected 1 to 2.31-1$"):
        kvpager.Sender(cache, max_row_blocks=0)
    ns = cache.namespace("a")
    for call in (ns.open, ns.match):
        with pytest.raises(kvpager.ArgError, match=r"tokens\[2\] is -7, expected 0 to 2.31-1$"):
            call([1, 2, -7])
        with pytest.raises(kvpager.TooLongError, match="n_tokens is 65, expected 0 to 64$"):
            call(range(65))
    with pytest.raises(kvpager.TooLongError, match="reserve_tokens is 5, expected 0 to 4$"):
        ns.open(range(60), reserve=5)
