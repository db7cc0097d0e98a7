"""KV moved between two caches: in one process, and with messages carried by hand."""

from __future__ import annotations

import socket
from typing import Any

import numpy as np
import pytest

import kvpager
from kvpager import (Cache, Incoming, Layout, Loopback, Memory, Outgoing, TransferReceiver,
                     TransferSender)

N = 20


class Side:
    """A cache and its memory: K and V of token t, when computed, are full of t."""

    def __init__(self, block_tokens: int, order: str) -> None:
        self.cache = Cache(n_blocks=16, block_tokens=block_tokens)
        self.memory = Memory.create(Layout(
            type=kvpager.F32, n_blocks=16, block_tokens=block_tokens, n_layers=2, n_heads=2,
            k_size=4, v_size=4).arrange(order))
        self.seq = self.cache.namespace("m").open(np.arange(1, N + 1, dtype=np.int32))

    def compute(self, layer: int, begin: int, end: int) -> None:
        for which in (kvpager.K, kvpager.V):
            kv = self.memory.layer(layer).tensor(which).numpy()
            for t, slot in zip(range(begin, end), self.seq.slots(begin, end - begin)):
                kv[divmod(int(slot), self.cache.block_tokens)] = t + 1

    def keys(self, layer: int) -> Any:
        return self.memory.gather(self.seq.row(), layer, 0, N)[0]


class Pair:
    def __init__(self, **more: Any) -> None:
        self.a, self.b = Side(4, kvpager.ORDER_VLLM_NHD), Side(8, kvpager.ORDER_TENSORRT_LLM)
        self.sender = TransferSender(self.a.cache, self.a.memory, model="llama", **more)
        self.receiver = TransferReceiver(self.b.cache, self.b.memory, model=b"llama", epoch=1)
        self.loop = Loopback()
        self.link = self.sender.attach(self.loop.ends[0])
        assert self.receiver.attach(self.loop.ends[1]) == 0

    def start(self) -> tuple[Incoming, Outgoing]:
        incoming = self.receiver.reserve(self.b.seq, space="m")
        return incoming, self.sender.mark(self.a.seq, incoming.ticket, self.link, space=b"m")

    def finish(self, outgoing: Outgoing) -> None:
        for layer in range(2):
            self.a.compute(layer, 0, N)
            outgoing.ready(N, layer)
        self.a.seq.commit(N)


def test_layer_groups() -> None:
    """Full attention beside 2 sinks and 9 recent tokens: tokens 4 .. 11 are not sent in group 1."""
    sides = []
    for receive in (False, True):
        cache = Cache(n_blocks=32, block_tokens=4, groups=[(0, 0), (2, 9)])
        memories = [Memory.create(Layout(type=kvpager.F32, n_blocks=32, block_tokens=4, n_layers=1,
                                         n_heads=1, k_size=2, v_size=2).arrange("NSHD"))
                    for _ in range(2)]
        prompt = kvpager.Prompt(np.arange(23, dtype=np.int32), receive=receive)
        sides.append((cache, memories, cache.namespace("m").open(prompt)))
    (here, sources, a), (there, targets, b) = sides
    assert b.row(group=1).tolist()[1:3] == [0, 0]
    with pytest.raises(kvpager.ArgError):
        TransferSender(here, sources[0])
    loop = Loopback()
    sender, receiver = TransferSender(here, sources), TransferReceiver(there, targets)
    link = sender.attach(loop.ends[0])
    receiver.attach(loop.ends[1])
    incoming = receiver.reserve(b, end=22)
    said = kvpager.ticket_read(incoming.ticket, group=1)
    assert (said.ticket.gap, said.ticket.window, said.ticket.n_groups) == ((4, 12), (2, 9), 2)
    assert said.runs["n_tokens"].sum() == 14
    with pytest.raises(kvpager.ArgError):
        kvpager.ticket_read(incoming.ticket, group=2)
    other = Cache(n_blocks=32, block_tokens=4, groups=[(0, 0), (2, 5)])
    with pytest.raises(kvpager.MismatchError, match=r"groups\[1\].recent_tokens is 9, expected 5"):
        narrow = TransferSender(other, sources)
        narrow.mark(other.namespace("m").open(range(23)), incoming.ticket,
                    narrow.attach(Loopback().ends[0]))
    outgoing = sender.mark(a, incoming.ticket, link)
    for memory, value in zip(sources, (7, 8)):
        memory.layer(0).tensor(kvpager.K).numpy()[:] = value
    outgoing.ready(22, layer=0)
    outgoing.ready(22, layer=1)
    a.commit(22)
    sender.progress()
    assert receiver.progress() == 1 and incoming.state == kvpager.TRANSFER_COMPLETE
    b.commit(22)
    keys = targets[1].gather(b.row(group=1), 0, 0, 22)[0].reshape(22, 2)
    assert (keys[:4] == 8).all() and np.isnan(keys[4:12]).all() and (keys[12:] == 8).all()
    assert (targets[0].gather(b.row(), 0, 0, 22)[0] == 7).all()


def test_layer_by_layer() -> None:
    pair = Pair()
    incoming, outgoing = pair.start()
    assert (incoming.state, outgoing.state) == (kvpager.TRANSFER_WAITING,) * 2
    pair.a.compute(0, 0, N)
    outgoing.ready(N, layer=0)
    pair.receiver.progress()
    assert incoming.state == kvpager.TRANSFER_MOVING and incoming.error is None
    pair.finish(outgoing)
    pair.sender.progress()
    assert pair.receiver.progress() == 1 and incoming.state == kvpager.TRANSFER_COMPLETE
    assert pair.sender.progress() == 1 and outgoing.state == kvpager.TRANSFER_COMPLETE
    info = incoming.info()
    assert (info.begin, info.end, info.seq, info.bytes) == (0, N, pair.b.seq.handle,
                                                            2 * 2 * N * 2 * 4 * 4)
    pair.b.seq.commit(info.end)
    for layer in range(2):
        want = np.repeat(np.arange(1, N + 1, dtype=np.float32), 8).reshape(N, 2, 4)
        assert np.array_equal(pair.b.keys(layer).reshape(N, 2, 4), want)
    assert pair.receiver.stats().bytes == info.bytes
    incoming.close()
    outgoing.close()
    with pytest.raises(kvpager.HandleError):
        incoming.info()


def test_messages_carried_by_hand() -> None:
    """Each side with a loopback of its own: what a socket would carry."""
    pair = Pair()
    far = Loopback()
    pair.receiver.detach(0)
    number = pair.receiver.attach(far.ends[1])
    incoming, outgoing = pair.start()
    pair.finish(outgoing)
    pair.loop.cut()     # the old way does not matter any more
    own = Loopback()
    pair.sender.detach(pair.link)
    pair.link = pair.sender.attach(own.ends[0])
    assert isinstance(outgoing.error, kvpager.PeerError)
    outgoing.close()
    outgoing = pair.sender.mark(pair.a.seq, incoming.ticket, pair.link, space="m",
                                ready_tokens=kvpager.END)
    for _ in range(4):
        pair.sender.progress()
        for message in own.ends[1].messages():
            far.ends[0].post(message)
        pair.receiver.progress()
        for message in far.ends[0].messages():
            own.ends[1].post(message)
    assert (incoming.state, outgoing.state) == (kvpager.TRANSFER_COMPLETE,) * 2
    pair.receiver.check_link(number)
    with pytest.raises(kvpager.ArgError):
        pair.receiver.check_link(7)


def test_ticket() -> None:
    pair = Pair()
    incoming, _ = pair.start()
    ticket, runs = kvpager.ticket_read(incoming.ticket)
    assert (ticket.begin, ticket.end, ticket.block_tokens, ticket.type) == (0, N, 8, kvpager.F32)
    slots = [int(slot) + i for slot, n in runs for i in range(n)]
    assert slots == pair.b.seq.slots(0, N).tolist()
    with pytest.raises(kvpager.FormatError):
        kvpager.ticket_read(incoming.ticket[:-1])
    with pytest.raises(TypeError, match="ticket"):
        kvpager.ticket_read(5)  # type: ignore[arg-type]


def test_refused_and_given_up() -> None:
    pair = Pair(model_version=2)
    with pytest.raises(kvpager.MismatchError):
        pair.start()
    pair = Pair()
    incoming, outgoing = pair.start()
    with pytest.raises(kvpager.StateError):
        incoming.close()
    outgoing.ready(4)
    pair.receiver.progress()
    incoming.abort(kvpager.NoMemoryError)
    assert isinstance(incoming.error, kvpager.NoMemoryError)
    pair.receiver.progress()
    pair.sender.progress()
    assert isinstance(outgoing.error, kvpager.NoMemoryError) and outgoing.info().by_peer == 1
    for wrong in (kvpager.Error, ValueError, 5):
        with pytest.raises(TypeError, match="reason"):
            outgoing.abort(wrong)  # type: ignore[arg-type]


def test_links() -> None:
    loop = Loopback(max_message=kvpager.LINK_MESSAGE_MIN, n_messages=1)
    near, far = loop.ends
    assert far.take() is None
    near.post(b"abc")
    with pytest.raises(kvpager.AgainError):
        near.post(b"def")
    assert list(far.messages()) == [b"abc"]
    for wrong in (b"", bytes(loop.ends[0].max_message + 1)):
        with pytest.raises(kvpager.TooLongError):
            near.post(wrong)
    loop.cut()
    with pytest.raises(kvpager.PeerError):
        near.post(b"abc")
    with pytest.raises(kvpager.PeerError):
        far.take()
    for bad in (-1, 2 ** 70, 1.5):
        with pytest.raises((kvpager.ArgError, TypeError), match="max_message"):
            Loopback(max_message=bad)  # type: ignore[arg-type]


def test_shared_memory() -> None:
    mine, theirs = socket.socketpair()
    with mine, theirs:
        near = kvpager.SharedMemory(mine, kvpager.LINK_MESSAGE_MIN, 2)
        assert near.connect() is None
        far = kvpager.SharedMemory(theirs.fileno())
    a, b = near.connect(), far.connect()
    assert a and b and a.max_message == 1024 and b.max_message == kvpager.SHM_MESSAGE
    with pytest.raises(kvpager.StateError):
        near.connect()
    a.post(b"abc")
    a.post(b"de")
    with pytest.raises(kvpager.AgainError):
        a.post(b"f")
    b.post(b"g")
    del near, a
    assert b.take() == b"abc" and b.take() == b"de"
    with pytest.raises(kvpager.PeerError):
        b.take()
    with socket.socket() as other, pytest.raises(kvpager.ArgError, match="another machine"):
        kvpager.SharedMemory(other)
    with pytest.raises(TypeError, match="sock"):
        kvpager.SharedMemory("name")


def test_tcp() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        mine = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    with mine, theirs:
        near = kvpager.Tcp(mine, kvpager.LINK_MESSAGE_MIN, 2)
        assert near.connect() is None
        with pytest.raises(kvpager.StateError):
            near.flush()
        far = kvpager.Tcp(theirs.fileno())
    while (a := near.connect()) is None:
        pass
    while (b := far.connect()) is None:
        pass
    assert a.max_message == b.max_message == 1024  # the smaller one
    a.post(b"abc")
    a.post(b"de")
    while not near.flush():
        pass
    del near, a
    assert b.take() == b"abc" and b.take() == b"de"
    with pytest.raises(kvpager.PeerError):
        while True:
            b.take()
    with socket.socket() as other, pytest.raises(kvpager.ArgError, match="no connected stream"):
        kvpager.Tcp(other)


@pytest.mark.parametrize("kind", [kvpager.SharedMemory, kvpager.Tcp])
def test_moved_between_processes(kind: Any) -> None:
    pair = Pair()
    pair.receiver.detach(0)
    pair.sender.detach(pair.link)
    sockets = socket.socketpair()
    ends = [kind(s, 1 << 16, 4) for s in sockets]
    links = [end.connect() for end in ends]
    assert links[0] and links[1]
    pair.link = pair.sender.attach(links[0])
    assert pair.receiver.attach(links[1]) == 0
    del ends, links, sockets  # sender and receiver keep what they use
    incoming, outgoing = pair.start()
    pair.finish(outgoing)
    for _ in range(3):
        pair.sender.progress()
        pair.receiver.progress()
    pair.sender.progress()
    assert incoming.info().state == outgoing.info().state == kvpager.TRANSFER_COMPLETE
    for layer in range(2):
        assert np.array_equal(pair.a.keys(layer), pair.b.keys(layer))


def test_bad_input() -> None:
    pair = Pair()
    calls: list[tuple[str, Any]] = [
        ("memory", lambda: TransferSender(pair.a.cache, None)),  # type: ignore[arg-type]
        ("max_lynx", lambda: TransferSender(
            pair.a.cache, pair.a.memory, max_lynx=1)),  # type: ignore[call-arg]
        ("model", lambda: TransferSender(
            pair.a.cache, pair.a.memory, model=5)),  # type: ignore[arg-type]
        ("link", lambda: pair.sender.attach(pair.loop)),  # type: ignore[arg-type]
        ("link", lambda: pair.sender.detach(-1)),
        ("link", lambda: pair.sender.check_link(2 ** 70)),
        ("end", lambda: pair.receiver.reserve(pair.b.seq, end=-1)),
        ("space", lambda: pair.receiver.reserve(pair.b.seq, space=5)),  # type: ignore[arg-type]
        ("max_messages", lambda: pair.receiver.progress(-1)),
        ("ticket", lambda: pair.sender.mark(pair.a.seq, None, 0)),  # type: ignore[arg-type]
        ("link", lambda: pair.sender.mark(pair.a.seq, b"", -1)),
        ("ready_tokens", lambda: pair.sender.mark(pair.a.seq, b"", 0, ready_tokens=2 ** 32)),
        ("n_tokens", lambda: pair.start()[1].ready(-1)),
    ]
    for name, call in calls:
        with pytest.raises((TypeError, kvpager.ArgError), match=name):
            call()


def test_close() -> None:
    pair = Pair()
    incoming, outgoing = pair.start()
    pair.receiver.close()
    pair.a.cache.close()        # closes the sender on it first
    for call in (incoming.info, outgoing.info, pair.receiver.progress, pair.sender.progress,
                 pair.receiver.stats, lambda: outgoing.ready(4)):
        with pytest.raises(kvpager.ClosedError):
            call()
    pair.sender.close()
