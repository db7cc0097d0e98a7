"""Dynamo's own indexer follows a cache that is published over a wire that loses, doubles, delays and
reorders batches, through restarts of the engine and of the router: what it finds for a prompt is
what the cache has, but between a loss and the next batch."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kvpager
from lib_indexer import WAIT_SECONDS, Indexer, free_port, needs, running

publish = pytest.importorskip("kvpager.publish", exc_type=ImportError)

SIZE, RUNS, STEPS = 4, int(os.environ.get("KVP_ROUTER_RUNS", "100")), 40
SECOND = 10 ** 9
FORMS = [(publish.PUBLISH_MAPS, publish.PUBLISH_REPLAY_TOPIC),
         (publish.PUBLISH_ARRAYS, publish.PUBLISH_REPLAY_PLAIN)]


@pytest.fixture(scope="module")
def indexer() -> Iterator[Indexer]:
    needs("dynamo", "zmq")
    with running(SIZE) as made:
        yield made


class Wire:
    """What lies between a publisher and the router: all that they send passes through the test's
    hands. A request for batches outlives a restart of the engine: the router would wait forever for
    the answer to one that fell into it."""

    def __init__(self, publisher: Any) -> None:
        import zmq
        self.zmq = zmq.Context()
        self.sub, self.out = self.zmq.socket(zmq.SUB), self.zmq.socket(zmq.XPUB)
        self.out.setsockopt(zmq.XPUB_VERBOSE, 1)
        port = self.out.bind_to_random_port("tcp://127.0.0.1")
        self.endpoint = f"tcp://127.0.0.1:{port}"
        self.asked = self.zmq.socket(zmq.ROUTER)
        self.replay_endpoint = f"tcp://127.0.0.1:{self.asked.bind_to_random_port('tcp://127.0.0.1')}"
        self.asks: Any = None
        self.router, self.request = b"", list[bytes]()
        self.sub.subscribe(b"")
        self.held: list[list[bytes]] = []
        self.seen = 0
        self.connect(publisher)

    def connect(self, publisher: Any) -> None:
        """Until its batches come through."""
        self.ask_anew(publisher)
        if self.request:
            self.asks.send_multipart(self.request)
        self.sub.connect(publisher.endpoint)
        until = time.monotonic() + WAIT_SECONDS
        while not self.sub.poll(10):
            assert time.monotonic() < until, "no batch comes"
            publisher.work(publisher.now.tick(2 * SECOND))
        self.take(publisher)

    def ask_anew(self, publisher: Any) -> None:
        """Requests go a new way: the publisher's answers to earlier ones do not come."""
        import zmq
        if self.asks is not None:
            self.asks.close(linger=0)
        self.asks = self.zmq.socket(zmq.DEALER)
        self.asks.connect(publisher.replay_endpoint)

    def pass_requests(self) -> None:
        """And answers."""
        while self.asked.poll(0):
            self.router, *self.request = self.asked.recv_multipart()
            self.asks.send_multipart(self.request)
        while self.asks.poll(0):
            answer = self.asks.recv_multipart()
            self.asked.send_multipart([self.router, *answer])
            if answer[-1] == b"":
                self.request = []

    def joined(self) -> None:
        """Until the router has subscribed."""
        while True:
            assert self.out.poll(int(WAIT_SECONDS * 1000)), "the router does not subscribe"
            if self.out.recv() == b"\x01":
                return

    def take(self, publisher: Any) -> list[list[bytes]]:
        """All that was sent until now."""
        taken = []
        while self.seen < publisher.stats().newest:
            assert self.sub.poll(int(WAIT_SECONDS * 1000)), "a batch is missing"
            frames = self.sub.recv_multipart()
            self.seen = int.from_bytes(frames[1], "big")
            taken.append(frames)
        return taken

    def close(self) -> None:
        self.zmq.destroy(linger=0)


class Now:
    """The publisher's clock."""

    def __init__(self) -> None:
        self.ns = 10 ** 18

    def tick(self, ns: int) -> int:
        self.ns += ns
        return self.ns


class Engine:
    """A cache under random use, published."""

    def __init__(self, draw: random.Random, worker: int, indexer: Indexer) -> None:
        self.draw, self.worker, self.indexer, self.now = draw, worker, indexer, Now()
        self.counts: Counter[str] = Counter()
        self.ports = free_port(), free_port()
        self.host = draw.choice((0, 24))
        self.invalidates = draw.random() < 0.3
        self.form, self.replay = draw.choice(FORMS)
        self.media = draw.choice((publish.PUBLISH_MEDIA_VLLM, publish.PUBLISH_MEDIA_SGLANG))
        self.hashes = draw.choice((publish.PUBLISH_OWN, publish.PUBLISH_VLLM))
        self.start()
        self.wire = Wire(self.publisher)
        self.is_known = False
        for _ in range(draw.randrange(8)):  # the router comes late
            self.step()
        self.wire.take(self.publisher)
        self.join()

    def start(self) -> None:
        self.cache = kvpager.Cache(n_blocks=40, block_tokens=SIZE, host_blocks=self.host,
                                   max_events=4096, max_unit_keys=1)
        self.open_space()
        self.publisher = publish.Publisher.open(
            f"tcp://127.0.0.1:{self.ports[0]}", topic="kv@here@m",
            replay_endpoint=f"tcp://127.0.0.1:{self.ports[1]}", unit_tokens=SIZE, max_units=200,
            form=self.form, replay_form=self.replay, media=self.media, hashes=self.hashes,
            kept_batches=5, first_number=self.now.ns // 1000)
        self.publisher.now = self.now

    def open_space(self) -> None:
        self.space = self.cache.namespace("m")
        self.seqs: list[Any] = []

    def join(self) -> None:
        """The router knows the engine from now on, and gets its first batch."""
        self.indexer.register(self.worker, SIZE, self.wire.endpoint, self.wire.replay_endpoint)
        self.wire.joined()
        self.is_known = True
        self.beat()

    def prompt(self) -> list[int]:
        base = 1000 * self.draw.randrange(4) + 100_000 * self.worker
        return [base + i for i in range(self.draw.randrange(4, 60))] + [self.draw.randrange(9)]

    # ------------------------------------------------------------------------------- the engine

    def step(self) -> None:
        """Some calls of an engine's step; then the events go out."""
        for _ in range(self.draw.randrange(1, 4)):
            self.call()
        self.publisher.read(self.cache, self.now.tick(SECOND // 100))

    def call(self) -> None:
        what = self.draw.random()
        if what < 0.6:
            self.open()
        elif what < 0.85 and self.seqs:
            self.seqs.pop(self.draw.randrange(len(self.seqs))).close()
        elif what < 0.9 and self.seqs and self.invalidates:
            seq = self.draw.choice(self.seqs)
            seq.invalidate(self.draw.randrange(seq.info().n_tokens))
        elif what < 0.92:
            self.space.flush()
        elif what < 0.93:
            while self.seqs:
                self.seqs.pop().close()
            self.cache.reset()
            self.open_space()
        elif what < 0.96:
            blocks = self.draw.sample(range(1, 40), 3)
            self.cache.drop(blocks)

    def open(self) -> None:
        tokens = self.prompt()
        keys = [kvpager.Key(1, 0, 1, b"salt")] if self.draw.random() < 0.1 else []
        try:
            seq = self.space.open(kvpager.Prompt(tokens, keys=keys))
        except kvpager.RetryError:
            return
        if self.host:
            self.cache.plan_take()
        seq.commit(len(tokens))
        self.seqs.append(seq)

    # --------------------------------------------------------------------------------- the wire

    def beat(self) -> None:
        """A batch that nothing happens to, and what the router has then."""
        self.publisher.work(self.now.tick(2 * SECOND))
        for frames in self.wire.take(self.publisher):
            self.wire.out.send_multipart(frames)
        self.expect()

    def go_on(self) -> None:
        """What was sent since, with what happens to it; the router is asked if the newest came."""
        fresh = False
        for frames in self.wire.take(self.publisher):
            fate = self.draw.choice(("right", "right", "right", "lost", "doubled", "late"))
            self.counts[fate] += 1
            fresh = fate in ("right", "doubled")
            if fresh:
                self.wire.out.send_multipart(frames)
            if fate == "doubled":
                self.wire.out.send_multipart(frames)
            if fate == "late":
                self.wire.held.append(frames)
        if self.wire.held and self.draw.random() < 0.4:
            self.draw.shuffle(self.wire.held)  # those that are late, in any order
            while self.wire.held:
                number = self.wire.held[-1][1]
                fresh = fresh or int.from_bytes(number, "big") == self.wire.seen
                self.wire.out.send_multipart(self.wire.held.pop())
        if fresh:
            self.expect()

    def restart(self) -> None:
        """The engine begins anew, and its last batches are lost. The router is not told."""
        self.beat()
        self.step()
        self.wire.take(self.publisher)
        while self.seqs:
            self.seqs.pop().close()
        self.publisher.close()
        self.cache.close()
        self.now.tick(5 * SECOND)
        self.wire.held.clear()
        self.start()
        self.wire.connect(self.publisher)
        self.beat()
        self.counts["restarted"] += 1

    def leave_and_join(self) -> None:
        """The router begins anew."""
        self.indexer.unregister(self.worker)
        self.wire.pass_requests()
        self.wire.request = []
        self.wire.ask_anew(self.publisher)
        while self.wire.out.poll(0):
            self.wire.out.recv()
        self.join()
        self.counts["joined"] += 1

    # -------------------------------------------------------------------------------- the judge

    def has(self) -> list[set[bytes]]:
        """The cache's set, for each tier."""
        sets: list[set[bytes]] = [set(), set()]
        for event in self.cache.events_snapshot()[1]:
            sets[int(event["tier"])].add(bytes(event["hash"]))
        return sets

    def truth(self, tokens: list[int], sets: list[set[bytes]]) -> tuple[int, int]:
        """Tokens on the device, and with the host's behind them."""
        root = kvpager.hash_root(SIZE, "m")
        units = kvpager.hash_units(np.array(tokens, np.int32), SIZE, root)
        names = [bytes(unit) for unit in units]
        device = next((i for i, name in enumerate(names) if name not in sets[0]), len(names))
        host = next((i for i, name in enumerate(names) if i >= device and name not in sets[1]),
                    len(names))
        return device * SIZE, host * SIZE

    def expect(self) -> None:
        """The router finds what the cache has."""
        sets = self.has()
        prompts = [self.prompt() for _ in range(4)]
        want = [self.truth(prompt, sets) for prompt in prompts]
        until, found = time.monotonic() + WAIT_SECONDS, list[tuple[int, int]]()
        while found != want:
            assert time.monotonic() < until, f"worker {self.worker}: {found}, not {want}"
            self.wire.pass_requests()
            self.publisher.work(self.now.ns)
            self.wire.pass_requests()
            found = [self.indexer.finds(self.worker, prompt)[:2] for prompt in prompts]
        for prompt, (device, host) in zip(prompts, want):
            # One token more, so that the last unit counts as a hit. A unit on the device behind one
            # that is on the host alone is a hit, too; the router does not look for it.
            hit = self.space.match([*prompt, 9]).hit_tokens // SIZE * SIZE
            # And after an invalidation its set has units that no hit reaches (events.h).
            assert self.invalidates or hit >= host, (hit, device, host)
            assert hit <= host or self.host, (hit, device, host)
            self.counts["equal" if hit == host else "beyond" if hit > host else "unreached"] += 1
        self.counts["asked"] += 1
        self.counts["found"] += sum(1 for device, _ in want if device)

    def close(self) -> None:
        self.indexer.unregister(self.worker)
        self.wire.close()
        self.publisher.close()
        self.cache.close()


def run(indexer: Indexer, seed: int) -> Counter[str]:
    draw = random.Random(seed)
    engine = Engine(draw, seed + 1, indexer)
    try:
        for _ in range(STEPS):
            engine.step()
            engine.go_on()
            happens = draw.random()
            if happens < 0.02:
                engine.restart()
            elif happens < 0.04:
                engine.leave_and_join()
        engine.beat()
        stats = engine.publisher.stats()
        assert stats.dropped_units == 0 and stats.failed_sends == 0
        engine.counts["snapshots"] += stats.snapshots
        engine.counts["replays"] += stats.replays
        return engine.counts
    finally:
        engine.close()


def test_a_router_follows(indexer: Indexer) -> None:
    counts: Counter[str] = Counter()
    for seed in range(RUNS):
        counts += run(indexer, seed)
    print(dict(counts))
    assert counts["found"] > RUNS and counts["snapshots"] >= RUNS and counts["replays"] > RUNS / 2
    if RUNS >= 20:
        assert counts["restarted"] > 2 and counts["joined"] > 2
