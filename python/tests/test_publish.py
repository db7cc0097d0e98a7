"""kvpager.publish: what goes over the wire, read by pyzmq and msgpack, which share nothing with it."""

from __future__ import annotations

import gc
import importlib
import os
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kvpager
from kvpager import ArgError, BehindError, Cache, IoError

publish = pytest.importorskip("kvpager.publish", exc_type=ImportError)
zmq: Any = pytest.importorskip("zmq")
msgpack: Any = pytest.importorskip("msgpack")

SECOND, WAIT_MS = 10 ** 9, 20_000
ANY = "tcp://127.0.0.1:*"


class Reader:
    """A subscriber that has joined."""

    def __init__(self, publisher: Any) -> None:
        self.publisher, self.zmq = publisher, zmq.Context()
        self.sub, self.dealer = self.zmq.socket(zmq.SUB), self.zmq.socket(zmq.DEALER)
        self.sub.subscribe(b"")
        self.sub.connect(publisher.endpoint)
        if publisher.replay_endpoint:
            self.dealer.connect(publisher.replay_endpoint)
        self.now = SECOND
        while not self.sub.poll(10):
            self.now += 2 * SECOND
            publisher.work(self.now)
        self.number = 0
        self.batches()

    def batches(self) -> list[tuple[int, list[Any], int]]:
        """(number, events, rank) of all that was sent."""
        found = []
        while self.number < self.publisher.stats().newest:
            assert self.sub.poll(WAIT_MS)
            topic, number, payload = self.sub.recv_multipart()
            self.number = int.from_bytes(number, "big")
            _, events, rank = msgpack.unpackb(payload)
            found.append((self.number, events, rank))
        return found

    def events(self) -> list[Any]:
        return [event for _, events, _ in self.batches() for event in events]

    def ask(self, number: int) -> list[list[Any]]:
        """Events of each batch of the answer."""
        self.dealer.send_multipart([b"", number.to_bytes(8, "big")])
        found: list[list[Any]] = []
        while True:
            while not self.dealer.poll(1):
                self.publisher.work(self.now)
            *_, number_bytes, payload = self.dealer.recv_multipart()
            if int.from_bytes(number_bytes, "big", signed=True) == -1:
                return found
            found.append(msgpack.unpackb(payload)[1])


@pytest.fixture
def publisher() -> Iterator[Any]:
    with publish.Publisher.open(ANY, replay_endpoint=ANY, unit_tokens=4, max_units=100, rank=1,
                                first_number=1) as made:
        yield made


def fill(cache: Cache, tokens: Any) -> Any:
    seq = cache.namespace("m").open(np.asarray(tokens, np.int32))
    seq.commit(len(tokens))
    return seq


def test_a_cache_is_published(publisher: Any) -> None:
    cache, reader = Cache(n_blocks=20, block_tokens=4, max_events=64), Reader(publisher)
    seq = fill(cache, range(12))
    publisher.read(cache, reader.now)
    root = kvpager.hash_root(4, "m")
    hashes = [int.from_bytes(bytes(unit)[8:], "big")
              for unit in kvpager.hash_units(range(12), 4, root)]
    (number, events, rank), = reader.batches()
    assert (number, rank) == (publisher.stats().newest, 1)
    assert events == [{"type": "BlockStored", "block_hashes": hashes, "parent_block_hash": None,
                       "token_ids": list(range(12)), "block_size": 4, "lora_id": None,
                       "medium": "GPU", "lora_name": None}]
    assert reader.ask(0) == [[{"type": "AllBlocksCleared"}, *events]]
    seq.invalidate(4)
    publisher.read(cache, reader.now)
    removed = reader.events()
    assert removed == [{"type": "BlockRemoved", "block_hashes": [hashes[2], hashes[1]],
                        "medium": "GPU"}]
    seq.close()
    cache.reset()
    publisher.read(cache, reader.now)
    assert reader.events() == [{"type": "AllBlocksCleared"}]


def test_events_of_a_store(publisher: Any) -> None:
    reader = Reader(publisher)
    root = kvpager.hash_root(4, "m")
    units = kvpager.hash_units(range(8), 4, root)
    events = np.zeros(2, kvpager.EVENT_DTYPE)
    events["kind"], events["tier"] = kvpager.EVENT_STORED, publish.PUBLISH_STORE
    events["hash"], events["n_tokens"] = units, 4
    events["root"] = np.frombuffer(root, np.uint8)
    events["parent"] = [np.frombuffer(root, np.uint8), units[0]]
    events["position"] = [0, 4]
    publisher.put(events, np.arange(8, dtype=np.int32), reader.now)
    stored, = reader.events()
    assert stored["medium"] == "STORAGE" and stored["token_ids"] == list(range(8))
    events["kind"] = kvpager.EVENT_REMOVED
    publisher.put(events, now_ns=reader.now)
    assert reader.events()[0]["block_hashes"] == stored["block_hashes"]


def test_a_named_namespace() -> None:
    with publish.Publisher.open(ANY, unit_tokens=4, max_units=100, store_medium="EXTERNAL") as made:
        made.space(kvpager.hash_root(4, "m"), "sql")
        reader, cache = Reader(made), Cache(n_blocks=20, block_tokens=4, max_events=64)
        fill(cache, range(4))
        other = cache.namespace("other").open(range(8))
        other.commit(8)
        made.read(cache, reader.now)
        stored, = reader.events()
        assert stored["lora_name"] == "sql" and stored["token_ids"] == [0, 1, 2, 3]


def test_who_is_behind_resyncs(publisher: Any) -> None:
    cache, reader = Cache(n_blocks=20, block_tokens=4, max_events=2), Reader(publisher)
    fill(cache, range(16))
    with pytest.raises(BehindError):
        publisher.read(cache)
    publisher.resync(cache, reader.now)
    assert reader.events()[0]["token_ids"] == list(range(16))
    assert publisher.stats().units == 5


def test_a_thread_publishes() -> None:
    with publish.Publisher.open(ANY, replay_endpoint=ANY, unit_tokens=4, max_units=100,
                                heartbeat=0.02) as made:
        cache = Cache(n_blocks=20, block_tokens=4, max_events=4)
        made.serve(cache, every=0.002)
        with pytest.raises(kvpager.BusyError):
            made.serve(cache)
        fill(cache, range(8))
        until = time.monotonic() + 20
        while made.stats().stored < 2:
            assert time.monotonic() < until and not made.behind
        fill(cache, range(100, 140))
        while not made.behind:
            assert time.monotonic() < until
        made.resync(cache)
        while made.stats().heartbeats < 3:
            assert time.monotonic() < until
        assert not made.behind and made.stats().stored == 12
        cache.close()
        with pytest.raises(kvpager.ClosedError):
            while time.monotonic() < until:
                made.behind


def test_a_restart_is_a_gap() -> None:
    """Numbers begin at the clock."""
    before = time.time_ns() // 1000
    with publish.Publisher.open(ANY) as made:
        assert before <= made.stats().newest + 1 <= time.time_ns() // 1000


def test_refusals(publisher: Any) -> None:
    open_one = publish.Publisher.open
    with pytest.raises(ArgError, match="unit_tokens is 0, expected 1 to 65536"):
        open_one(ANY, unit_tokens=0)
    with pytest.raises(IoError, match="endpoint: cannot bind tcp://nowhere"):
        open_one("tcp://nowhere")
    for wrong in ({"topic": 3}, {"max_units": 1.5}, {"heartbeat": "x"}, {"first_number": "1"}):
        with pytest.raises(TypeError):
            open_one(ANY, **wrong)
    for wrong in ({"topic": "a\0b"}, {"max_units": -1}):
        with pytest.raises(ArgError):
            open_one(ANY, **wrong)
    with pytest.raises(TypeError, match="made by Publisher.open"):
        publish.Publisher(None, 4, False)
    with pytest.raises(ArgError, match="a hash has 16"):
        publisher.space(b"short")
    with pytest.raises(TypeError):
        publisher.put([1, 2])
    with pytest.raises(ArgError, match="tokens: has 3, expected 1 x 4"):
        publisher.put(np.zeros(1, kvpager.EVENT_DTYPE), np.zeros(3, np.int32))
    with pytest.raises(ArgError):
        publisher.put(np.zeros(1, kvpager.EVENT_DTYPE))
    with pytest.raises(TypeError):
        publisher.read("cache")
    other = Cache(n_blocks=20, block_tokens=8, max_events=8)
    with pytest.raises(ArgError):
        publisher.read(other)
    with pytest.raises(kvpager.StateError):
        publisher.read(Cache(n_blocks=20, block_tokens=4))


def test_closed_twice_and_in_a_child() -> None:
    made = publish.Publisher.open(ANY)
    child = os.fork()
    if child == 0:
        made.close()
        try:
            made.work()
        except kvpager.BusyError:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert not made.closed
    made.close()
    made.close()
    assert made.closed
    with pytest.raises(kvpager.ClosedError):
        made.work()


def test_the_last_reference_closes_it_but_not_in_a_child() -> None:
    lib: Any = importlib.import_module("kvpager._publish_native").lib
    made, destroyed = publish.Publisher.open(ANY), lib.kvpy_objects_destroyed()
    child = os.fork()
    if child == 0:
        del made
        gc.collect()
        os._exit(lib.kvpy_objects_destroyed() - destroyed)
    assert os.waitpid(child, 0)[1] == 0
    del made
    gc.collect()
    assert lib.kvpy_objects_destroyed() == destroyed + 1


def test_an_endpoint_is_free_again() -> None:
    for close in (True, False):
        made = publish.Publisher.open(ANY)
        endpoint = made.endpoint
        with pytest.raises(IoError, match="cannot bind"):
            publish.Publisher.open(endpoint)
        if close:
            made.close()
        del made
        gc.collect()
        publish.Publisher.open(endpoint).close()
