"""Odd things in the place of every argument of every family of calls: an exception that names the
argument, or a result; never anything else, and nothing changed.

test_bad_input.py says what must be refused of each argument; here the same things go everywhere, and
what a call may do with them is said by the few that it takes.
"""

from __future__ import annotations

import copy
import mmap
import pathlib
import pickle
import socket
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kvpager as k

F32, I32, I64 = np.float32, np.int32, np.int64


def released(values: Any) -> memoryview:
    view = memoryview(values)
    view.release()
    return view


def closed_mapping() -> mmap.mmap:
    mapping = mmap.mmap(-1, 4096)
    mapping.close()
    return mapping


def unaligned(dtype: Any) -> Any:
    return np.zeros(17, np.uint8)[1:].view(dtype)


ODD: dict[str, Callable[[], Any]] = {
    "int16": lambda: np.zeros(2, np.int16), "uint64": lambda: np.zeros(2, np.uint64),
    "float16": lambda: np.zeros(2, np.float16), "float32": lambda: np.zeros(2, F32),
    "float64": lambda: np.zeros(2), "complex": lambda: np.zeros(2, complex),
    "bool": lambda: np.zeros(2, bool), "objects": lambda: np.array([1, None], object),
    "dates": lambda: np.zeros(2, "M8[s]"), "text": lambda: np.array(["a", "b"]),
    "structs": lambda: np.zeros(2, [("a", "i4")]), "big-endian i4": lambda: np.zeros(2, ">i4"),
    "big-endian u8": lambda: np.zeros(2, ">u8"), "big-endian f4": lambda: np.zeros(2, ">f4"),
    "negative stride": lambda: np.arange(4, dtype=I32)[::-1],
    "negative stride, u8": lambda: np.arange(4, dtype=np.uint64)[::-1],
    "0-d": lambda: np.array(3, I32), "0-d, f4": lambda: np.array(3, F32),
    "stride of 0": lambda: np.broadcast_to(np.array(3, I32), 4),
    "unaligned i4": lambda: unaligned(I32), "unaligned u4": lambda: unaligned(np.uint32),
    "unaligned u8": lambda: unaligned(np.uint64), "unaligned i8": lambda: unaligned(I64),
    "unaligned f4": lambda: unaligned(F32), "released i4": lambda: released(np.zeros(2, I32)),
    "released u8": lambda: released(np.zeros(2, np.uint64)), "closed mapping": closed_mapping,
    "a list in a list": lambda: [[1], [2]], "lists of two lengths": lambda: [[1], [2, 3]],
    "a list of floats": lambda: [1.0, 2.0], "a mixed list": lambda: [1, "a"],
    "a list of huge ones": lambda: [2 ** 64, 2 ** 70], "a list of None": lambda: [None, None],
    "a list of objects": lambda: [object()], "a set": lambda: {1, 2}, "a dict": lambda: {1: 2},
    "a generator": lambda: (i for i in range(2)), "bytes": lambda: b"abcd", "str": lambda: "ab",
    "null": lambda: "a\0b", "an object": object, "a class": lambda: int, "a float": lambda: 1.5,
    "nan": lambda: float("nan"), "None": lambda: None, "NotImplemented": lambda: NotImplemented,
}


class World:
    """What the calls are made on."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.path = str(folder / "file")
        self.cache = k.Cache(n_blocks=64, block_tokens=4, max_seqs=16, host_blocks=16,
                             max_events=16, max_tree_tokens=16)
        self.ns = self.cache.namespace("m")
        self.seq, other = self.ns.open(range(10)), self.ns.open(range(50, 57))
        self.seq.commit(10)
        other.extend_unknown(2)
        self.handles = k.handles_of([self.seq, other])
        self.layout = k.Layout(type=k.F32, n_blocks=64, block_tokens=4, n_layers=1, n_heads=1,
                               k_size=2, v_size=2).arrange(k.ORDER_VLLM_NHD)
        self.memory = k.Memory.create(self.layout)
        self.layer, self.copier = self.memory.layer(0), k.Copier(self.memory)
        self.scheduler = k.Scheduler(self.cache, step_tokens=16)
        self.sender, self.mirror = k.Sender(self.cache), k.Mirror()
        self.receiver = k.TransferReceiver(self.cache, self.memory, model="m")
        self.kv_sender = k.TransferSender(self.cache, self.memory, model="m")
        self.csr, self.loop = k.CsrBuffers(4, 64, 64), k.Loopback()
        self.q = np.zeros((1, 1, 2), F32)
        self.one = np.array([1], I32)
        self.lists = k.CsrLists(np.array([0, 1], I32), self.one, self.one)
        fresh = k.Cache()
        with fresh.record(self.path + ".log"):
            fresh.namespace("a").open([1, 2]).close()
        fresh.save(self.path)
        self.log = k.OpLog(self.path + ".log")

    def state(self) -> Any:
        self.cache.check()
        self.scheduler.check()
        return (self.cache.stats()._replace(refused=0, plans=0), self.seq.info(),
                self.scheduler.stats()._replace(refused=0))

    def attention(self, **changed: Any) -> Any:
        given = {"layer": self.layer, "q": self.q, "query_start": np.array([0, 1], I32),
                 "lists": self.lists, **changed}
        return k.attention(**given)

    def append(self, **changed: Any) -> None:
        given = {"layer": self.layer, "k": self.q, "v": self.q, "slots": np.array([4], I64)}
        k.append(**{**given, **changed})


def extend(world: World, tokens: Any) -> None:
    world.seq.extend(tokens)
    world.seq.truncate(10)


# (argument, call): the call with a value in the place of that argument.
CALLS: dict[str, tuple[str, Callable[[World, Any], Any]]] = {
    "match": ("tokens", lambda w, x: w.ns.match(x)),
    "can_open": ("tokens", lambda w, x: w.ns.can_open(x)),
    "Prompt": ("tokens", lambda w, x: k.Prompt(x)),
    "Prompt hashes": ("hashes", lambda w, x: k.Prompt([1, 2, 3, 4], hashes=x)),
    "Prompt keys": ("keys", lambda w, x: k.Prompt([1, 2], keys=x)),
    "Prompt key": ("keys", lambda w, x: k.Prompt([1, 2], keys=[k.Key(1, 0, 1, x)])),
    "Prompt key type": ("keys", lambda w, x: k.Prompt([1, 2], keys=[k.Key(x, 0, 1, b"")])),
    "Prompt uncached": ("uncached", lambda w, x: k.Prompt([1, 2], uncached=x)),
    "namespace": ("name", lambda w, x: w.cache.namespace(x).close()),
    "extend": ("tokens", extend),
    "fill": ("tokens", lambda w, x: w.seq.fill(x)),
    "slots": ("out", lambda w, x: w.seq.slots(0, 2, x)),
    "row": ("out", lambda w, x: w.seq.row(x)),
    "tokens": ("out", lambda w, x: w.seq.tokens(0, 2, x)),
    "tokens, no length": ("out", lambda w, x: w.seq.tokens(0, out=x)),
    "tokens begin": ("begin", lambda w, x: w.seq.tokens(x)),
    "window": ("window", lambda w, x: w.seq.window(x)),
    "extend_many seqs": ("seqs", lambda w, x: w.cache.extend_many(x, [1, 2])),
    "extend_many tokens": ("tokens", lambda w, x: w.cache.extend_many(
        w.handles, x, n_tokens=[0, 0])),
    "extend_many n_tokens": ("n_tokens", lambda w, x: w.cache.extend_many(
        w.handles, np.zeros(0, I32), n_tokens=x)),
    "fill_many": ("tokens", lambda w, x: w.cache.fill_many(w.handles[:1], x)),
    "commit_many seqs": ("seqs", lambda w, x: w.cache.commit_many(x, [1, 1])),
    "commit_many": ("n_tokens", lambda w, x: w.cache.commit_many(w.handles[:1], x)),
    "can_extend": ("seqs", lambda w, x: w.cache.can_extend(x)),
    "can_extend n_tokens": ("n_tokens", lambda w, x: w.cache.can_extend(w.handles, n_tokens=x)),
    "plan_take": ("out", lambda w, x: w.cache.plan_take(x)),
    "events": ("tokens", lambda w, x: w.cache.events(1, 2, x)),
    "events_snapshot": ("tokens", lambda w, x: w.cache.events_snapshot(x)),
    "handles_of": ("seqs", lambda w, x: k.handles_of(x)),
    "Cache.seq": ("handle", lambda w, x: w.cache.seq(x)),
    "Cache arena": ("arena", lambda w, x: k.Cache(arena=x)),
    "Cache uncached_tokens": ("uncached_tokens", lambda w, x: k.Cache(uncached_tokens=x)),
    "Cache n_blocks": ("n_blocks", lambda w, x: k.Cache(n_blocks=x)),
    "record": ("path", lambda w, x: w.cache.record(x).__enter__()),
    "save": ("path", lambda w, x: w.cache.save(x)),
    "save model": ("model", lambda w, x: k.Cache().save(w.path + ".x", model=x)),
    "save get": ("get", lambda w, x: k.Cache().save(w.path + ".x", block_bytes=8, get=x)),
    "save block_bytes": ("block_bytes", lambda w, x: k.Cache().save(
        w.path + ".x", block_bytes=x, get=lambda block, out: None)),
    "load": ("path", lambda w, x: k.Cache().load(x)),
    "load put": ("put", lambda w, x: k.Cache().load(w.path, put=x)),
    "load tell": ("tell", lambda w, x: k.Cache().load(w.path, tell=x)),
    "snapshot_peek": ("path", lambda w, x: k.snapshot_peek(x)),
    "arena_inspect": ("arena", lambda w, x: k.arena_inspect(x)),
    "arena_inspect tell": ("tell", lambda w, x: k.arena_inspect(b"", tell=x)),
    "OpLog": ("source", lambda w, x: k.OpLog(x)),
    "OpLog.replay": ("check_level", lambda w, x: w.log.replay(x)),
    "call_name": ("op", lambda w, x: k.call_name(x)),
    "hash_root": ("name", lambda w, x: k.hash_root(4, x)),
    "hash_units": ("tokens", lambda w, x: k.hash_units(x, 4, bytes(16))),
    "Reasons": ("hashes", lambda w, x: k.Reasons(8).computed(x)),
    "hash_units parent": ("parent", lambda w, x: k.hash_units([1], 4, x)),
    "blocks_for_tokens": ("block_tokens", lambda w, x: k.blocks_for_tokens(x, 1)),
    "blocks_for_append": ("n_new", lambda w, x: k.blocks_for_append(4, 1, x)),
    "csr": ("seqs", lambda w, x: k.csr(w.cache, x)),
    "csr cache": ("cache", lambda w, x: k.csr(x, w.handles)),
    "csr begin": ("begin", lambda w, x: k.csr(w.cache, w.handles, x)),
    "csr n_tokens": ("n_tokens", lambda w, x: k.csr(w.cache, w.handles, None, x)),
    "CsrBuffers": ("max_seqs", lambda w, x: k.CsrBuffers(x, 1, 1)),
    "CsrBuffers.fill": ("cache", lambda w, x: w.csr.fill(x, w.handles)),
    "delta": ("had_version", lambda w, x: k.delta(w.cache, w.handles, x, [0, 0])),
    "swap_out": ("seqs", lambda w, x: w.cache.swap_out(x)),
    "Scheduler": ("cache", lambda w, x: k.Scheduler(x)),
    "Scheduler field": ("step_tokens", lambda w, x: k.Scheduler(w.cache, step_tokens=x)),
    "submit": ("ns", lambda w, x: w.scheduler.submit(x, [1], max_new_tokens=1)),
    "submit prompt": ("tokens", lambda w, x: w.scheduler.abort(
        w.scheduler.submit(w.ns, x, max_new_tokens=1))),
    "hold": ("deadline", lambda w, x: w.scheduler.hold(0, x)),
    "loadable": ("n_first", lambda w, x: w.scheduler.loadable(x)),
    "tick": ("now", lambda w, x: w.scheduler.tick(x)),
    "Sender": ("cache", lambda w, x: k.Sender(x)),
    "wire_config": ("cache", lambda w, x: k.wire_config(x)),
    "encode": ("seqs", lambda w, x: w.sender.encode(x, [0], statuses=[1])),
    "encode ids": ("worker_ids", lambda w, x: w.sender.encode([w.seq], x, statuses=[1])),
    "encode statuses": ("statuses", lambda w, x: w.sender.encode([w.seq], [0], statuses=x)),
    "encode copies": ("copies", lambda w, x: w.sender.encode([], [], statuses=[], copies=x)),
    "encode closed": ("closed", lambda w, x: w.sender.encode([], [], statuses=[], closed=x)),
    "Mirror.seq": ("worker_id", lambda w, x: w.mirror.seq(x)),
    "Mirror.apply": ("message", lambda w, x: w.mirror.apply(x)),
    "wire_peek": ("message", lambda w, x: k.wire_peek(x)),
    "Loopback": ("max_message", lambda w, x: k.Loopback(x)),
    "Tcp": ("max_message", lambda w, x: k.Tcp(socket.socketpair()[0], x)),
    "SharedMemory": ("max_message", lambda w, x: k.SharedMemory(socket.socketpair()[0], x)),
    "Link.post": ("message", lambda w, x: w.loop.ends[0].post(x)),
    "attach": ("link", lambda w, x: w.receiver.attach(x)),
    "reserve": ("seq", lambda w, x: w.receiver.reserve(x)),
    "reserve end": ("end", lambda w, x: w.receiver.reserve(w.seq, x)),
    "mark": ("seq", lambda w, x: w.kv_sender.mark(x, b"", 0)),
    "mark ticket": ("ticket", lambda w, x: w.kv_sender.mark(w.seq, x, 0)),
    "mark link": ("link", lambda w, x: w.kv_sender.mark(w.seq, b"", x)),
    "progress": ("max_messages", lambda w, x: w.receiver.progress(x)),
    "TransferReceiver": ("cache", lambda w, x: k.TransferReceiver(x, w.memory)),
    "TransferReceiver memory": ("memory", lambda w, x: k.TransferReceiver(w.cache, x)),
    "ticket_read": ("ticket", lambda w, x: k.ticket_read(x)),
    "Layout.arrange": ("order", lambda w, x: w.layout.slice(
        first_layer=0, n_layers=1, first_head=0, n_heads=1).arrange(x)),
    "Layout field": ("n_blocks", lambda w, x: k.Layout(n_blocks=x)),
    "Layout.part": ("name", lambda w, x: w.layout.part(x)),
    "Memory.create": ("layout", lambda w, x: k.Memory.create(x)),
    "Memory.wrap": ("layout", lambda w, x: k.Memory.wrap(x, [])),
    "Memory.wrap tensors": ("tensors", lambda w, x: k.Memory.wrap(w.layout, x)),
    "Memory.wrap tensor": ("tensors", lambda w, x: k.Memory.wrap(w.layout, [x])),
    "Memory.tensor": ("index", lambda w, x: w.memory.tensor(x)),
    "Memory.layer": ("layer", lambda w, x: w.memory.layer(x)),
    "Memory.checksum": ("block", lambda w, x: w.memory.checksum(x, 1)),
    "gather": ("row", lambda w, x: w.memory.gather(x, 0, 0, 0)),
    "gather layer": ("layer", lambda w, x: w.memory.gather([1], x, 0, 1)),
    "gather begin": ("begin", lambda w, x: w.memory.gather([1], 0, x, 1)),
    "Layer.read": ("slot", lambda w, x: w.layer.read(k.K, x, 0)),
    "Layer.read which": ("which", lambda w, x: w.layer.read(x, 0, 0)),
    "Layer.write": ("values", lambda w, x: w.layer.write(k.K, 4, 0, x)),
    "Tensor": ("Tensor", lambda w, x: k.Tensor(x, 64, k.F32, (4,), (1,))),
    "Copier": ("device", lambda w, x: k.Copier(x)),
    "Copier.run": ("copies", lambda w, x: w.copier.run(x)),
    "Copier.move": ("moves", lambda w, x: w.copier.move(x)),
    "Copier.wait": ("fence", lambda w, x: w.copier.wait(x)),
    "type_bytes": ("type", lambda w, x: k.type_bytes(x)),
    "type_scale": ("max_abs", lambda w, x: k.type_scale(k.INT8, x)),
    "type_to_f32": ("elements", lambda w, x: k.type_to_f32(k.F32, x)),
    "type_from_f32": ("values", lambda w, x: k.type_from_f32(k.F16, x)),
    "append layer": ("layer", lambda w, x: w.append(layer=x)),
    "append k": ("k", lambda w, x: w.append(k=x)), "append v": ("v", lambda w, x: w.append(v=x)),
    "append slots": ("slots", lambda w, x: k.append(w.layer, np.zeros((0, 1, 2), F32),
                                                    np.zeros((0, 1, 2), F32), x)),
    "append rope": ("rope", lambda w, x: w.append(rope=x)),
    "attention layer": ("layer", lambda w, x: w.attention(layer=x)),
    "attention lists": ("lists", lambda w, x: w.attention(lists=x)),
    "attention rows": ("row_start", lambda w, x: w.attention(lists=k.CsrLists(x, w.one, w.one))),
    "attention table": ("blocks", lambda w, x: w.attention(lists=k.DenseLists(x, w.one))),
    "AttentionTeam": ("n_threads", lambda w, x: k.AttentionTeam(x)),
    "attention_has": ("impl", lambda w, x: k.attention_has(x)),
    "merge": ("partials", lambda w, x: k.merge(x)),
    "merge pair": ("partials", lambda w, x: k.merge([(x, x)])),
    "Rope": ("frequencies", lambda w, x: k.Rope(x)),
    "Rope.frequencies": ("dims", lambda w, x: k.Rope(mode=1).frequencies(x)),
}


def attention(name: str) -> Callable[[World, Any], Any]:
    return lambda w, x: w.attention(**{name: x})


for one in ("q", "query_start", "out", "lse", "sink_logits", "window", "tree", "rope", "team",
            "order", "positions", "scale", "v_size"):
    CALLS[f"attention {one}"] = (one, attention(one))

# Odd, and right there.
NUMBER = {"0-d"}
TEXT = {"bytes", "str", "null"}
BYTES = {name for name in ODD if name.split()[0] not in (
    "objects", "released", "closed", "negative", "a", "an", "stride", "nan", "None",
    "NotImplemented")}
TAKES: dict[str, set[str]] = {
    **{name: {"None"} for name in (
        "Prompt hashes", "extend", "slots", "row", "tokens", "tokens, no length",
        "extend_many tokens", "extend_many n_tokens", "can_extend n_tokens", "plan_take", "events",
        "events_snapshot", "Cache arena", "Cache uncached_tokens", "csr begin", "csr n_tokens",
        "delta", "wire_config", "encode copies", "load put", "load tell", "append rope", "Rope",
        "attention out", "attention lse", "attention sink_logits", "attention window",
        "attention tree", "attention rope", "attention team", "attention order",
        "attention positions")},
    **{name: TEXT for name in ("namespace", "hash_root", "save model")},
    **{name: NUMBER for name in (
        "Cache.seq", "save block_bytes", "OpLog.replay", "call_name", "blocks_for_tokens",
        "blocks_for_append", "Mirror.seq", "reserve end", "mark link", "progress", "Memory.tensor",
        "gather begin", "Layer.read", "type_bytes", "attention_has", "AttentionTeam", "CsrBuffers",
        "Scheduler field", "loadable", "tick", "tokens begin", "Prompt key type", "Layout field", "Cache n_blocks",
        "Memory.checksum", "Memory.layer", "gather layer", "Loopback", "SharedMemory", "Tcp", "Copier.wait",
        "Rope.frequencies", "attention v_size", "Layer.read which")},
    "Prompt key": BYTES, "Link.post": BYTES, "hash_units parent": BYTES,
    "save": {"bytes", "str"}, "OpLog": {"str"}, "arena_inspect tell": {"None", "a class"}, "save get": {"a class"},
    "Prompt uncached": {"a generator"},
    "attention scale": {"0-d", "0-d, f4", "a float", "nan"},
    "type_scale": {"0-d", "0-d, f4", "a float", "nan"},
    "type_to_f32": {"float32", "0-d", "0-d, f4", "negative stride", "stride of 0",
                    "unaligned i4", "unaligned u4", "unaligned f4"},
    "type_from_f32": {"float32", "0-d, f4", "unaligned f4"},
    "Layer.write": {"float32", "a list of floats"},
    "handles_of": {"uint64", "int16", "bytes", "a set", "a dict", "negative stride",
                   "negative stride, u8", "big-endian i4", "big-endian u8", "stride of 0",
                   "unaligned i4", "unaligned u4", "unaligned u8", "unaligned i8"},
}
TAKES["delta"] |= {"uint64"}
TAKES["load put"] |= {"a class"}
TAKES["load tell"] |= {"a class"}
TAKES["Rope"] |= {"float64"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("odd"))


@pytest.mark.parametrize("name", sorted(CALLS))
def test_odd(world: World, name: str, monkeypatch: pytest.MonkeyPatch,
             tmp_path: pathlib.Path) -> None:
    monkeypatch.chdir(tmp_path)  # some odd things are fine names of files
    argument, call = CALLS[name]
    before, accepted = world.state(), set[str]()
    for what, make in ODD.items():
        try:
            call(world, make())
        except (TypeError, ValueError, OSError, k.Error) as error:
            assert argument in str(error) or what in TAKES.get(name, ()), \
                f"{what}: {error!r} does not name {argument}"
        else:
            accepted.add(what)
        assert world.state() == before, what
    assert accepted <= TAKES.get(name, set())


@pytest.mark.parametrize("kind", [k.Sequence, k.Namespace])
def test_nobody_makes_a_handle(kind: Any) -> None:
    for arguments in ((), (None, 64, 64), (1, 2, 3)):
        with pytest.raises(TypeError, match="cannot create"):
            kind(*arguments)


def test_handles_are_not_copied(world: World) -> None:
    """They would have no address."""
    for one in (world.seq, world.ns):
        for function in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError):
                function(one)


def test_an_array_is_held_while_it_is_used() -> None:
    """What a Prompt was made of may be forgotten."""
    cache = k.Cache(n_blocks=64, block_tokens=4, max_unit_keys=1)
    prompt = k.Prompt(np.arange(64, dtype=I32), keys=[k.Key(1, 0, 4, bytes(range(16)))])
    for _ in range(100):
        np.full(64, 7, I32)
    ns = cache.namespace()
    with ns.open(prompt) as seq:
        assert seq.tokens().tolist() == list(range(64))
    held = bytearray(np.arange(8, dtype=I32).tobytes())
    made = k.Prompt(memoryview(held).cast("i"))
    with pytest.raises(BufferError):
        held.extend(b"more")
    with ns.open(made) as seq:
        assert seq.tokens().tolist() == list(range(8))
