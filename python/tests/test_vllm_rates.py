"""Load or compute: the decision, what it is made of, and engines in simulated time that are never
slower with a store than without."""

from __future__ import annotations

import random
import statistics
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from test_vllm_connector import BLOCK_BYTES, Engine, S, store
from test_vllm_connector import v as v  # noqa: PLC0414

PREFILL = 1000.0  # tokens/s
TOKENS = 101  # of a prompt: 25 blocks are asked for
EQUAL = BLOCK_BYTES / S * PREFILL  # bytes/s of a store that is as fast as computing


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Operation(SimpleNamespace):
    @property
    def ok(self) -> bool:
        return bool(self.result == store.STORE_OK)


class SlowStore:
    """A store in simulated time: an answer takes `answer` seconds, records come one after the other
    with `rate` bytes/s. Writes cost nothing."""

    url = "slow:"

    def __init__(self, clock: Clock, rate: float, answer: float) -> None:
        self.clock, self.rate, self.answer = clock, rate, answer
        self.records: dict[bytes, list[Any]] = {}
        self.busy, self.n_gets, self.n_haves = 0.0, 0, 0
        self.out: list[tuple[float, Operation]] = []

    @property
    def n_out(self) -> int:
        return len(self.out)

    def _begin(self, at: float, op: int, tag: Any, **more: Any) -> None:
        self.out.append((at, Operation(op=op, tag=tag, result=store.STORE_OK, **more)))

    def have(self, keys: list[bytes], tag: Any) -> None:
        self.n_haves += 1
        self._begin(self.clock.now + self.answer, store.STORE_HAVE, tag,
                    found=[key in self.records for key in keys])

    def get(self, identity: Any, buffers: list[Any], tag: Any) -> None:
        self.n_gets += 1
        kept = self.records[store.record_key(identity.digest, identity.slice, identity.group)]
        for buffer, block in zip(buffers, kept):
            buffer[:] = block
        self.busy = max(self.busy, self.clock.now) + sum(map(len, kept)) / self.rate
        self._begin(self.busy, store.STORE_GET, tag)

    def put(self, identity: Any, buffers: list[Any], tag: Any) -> None:
        key = store.record_key(identity.digest, identity.slice, identity.group)
        self.records[key] = [np.array(buffer) for buffer in buffers]
        self._begin(self.clock.now, store.STORE_PUT, tag)

    def poll(self) -> list[Operation]:
        ended = [operation for at, operation in self.out if at <= self.clock.now]
        self.out = [(at, operation) for at, operation in self.out if at > self.clock.now]
        return ended

    def wait(self, timeout: float) -> None:
        if self.out:
            first = min(at for at, _ in self.out)
            self.clock.now = max(self.clock.now, min(first, self.clock.now + timeout))

    def describe(self) -> str:
        return "simulated"

    def close(self) -> None:
        pass


class Timed(Engine):
    """An engine whose steps take simulated time. Host memory is too small for two prompts."""

    def __init__(self, v: Any, rate: float = EQUAL, answer: float = 1e-4, **extra: Any) -> None:
        self.clock = Clock()
        super().__init__(v, {"host_memory": 30 * BLOCK_BYTES, "store": "memory:?size=1MiB",
                             "record_blocks": 1, **extra}, 1)
        self.budget = 64
        self.scheduler._plan._clock = self.workers[0]._move._clock = self.clock
        self.workers[0]._move.stores.all[0].close()
        self.slow = self.workers[0]._move.stores.all[0] = SlowStore(self.clock, rate, answer)

    def _forward(self, rank: int, scheduled: dict[str, int], before: dict[str, int]) -> None:
        """What the KV is, other tests look at."""
        self.clock.now += sum(scheduled.values()) / PREFILL if scheduled else 5e-4

    def first_token(self, prompt: list[int]) -> float:
        """Seconds, of a request that is alone."""
        begun = self.clock.now
        self.add(prompt)
        self.run()
        return self.clock.now - begun


def prompts(n: int, seed: int = 3) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(50) for _ in range(TOKENS)] for _ in range(n)]


def slowdowns(engine: Timed, rounds: int = 3, changes: dict[int, float] | None = None,
              pause: float = 0.0) -> list[float]:
    """Times to the first token, each in parts of computing's, of prompts that the store has.
    changes: {request: rate of the store from then on}; pause: seconds between requests"""
    asked, made = prompts(20), list[float]()
    for prompt in asked:
        engine.first_token(prompt)
    for i, prompt in enumerate(asked * rounds):
        engine.slow.rate = (changes or {}).get(i, engine.slow.rate)
        engine.clock.now += pause
        made.append(engine.first_token(prompt) / (TOKENS / PREFILL))
    engine.close()
    return made


def p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


@pytest.mark.parametrize("speed, pause", [
    (0.02, 11.0), (0.5, 0.0), (0.9, 0.0), (0.9, 11.0), (1.1, 0.0), (1.5, 0.0), (20.0, 0.0)])
def test_never_slower_than_computing(v: Any, speed: float, pause: float) -> None:
    """Of a store that is `speed` times as fast as computing."""
    engine = Timed(v, EQUAL * speed)
    made = slowdowns(engine, 2, pause=pause)
    assert p95(made) <= 1.05, made
    if speed >= 1.5:
        assert statistics.median(made) <= 1.1 / speed + 0.06
    if speed <= 0.5 and not pause:
        assert engine.slow.n_gets <= 25 * 2, "it was measured once, and once again beside computing"


@pytest.mark.parametrize("budget", [64, 128])  # a prompt in two steps, or in one
def test_a_store_that_gets_slow_and_fast_again(v: Any, budget: int) -> None:
    engine = Timed(v, EQUAL * 20)
    engine.budget = budget
    made = slowdowns(engine, 5, {30: EQUAL * 0.05, 60: EQUAL * 20}, pause=1.0)
    assert p95(made) <= 1.05 and max(made) < 2.1
    assert max(made[:30]) < 0.15
    assert max(made[-20:]) < 0.15, "a read beside the computation measured it again"


@pytest.mark.parametrize("answer", [0.001, 0.02, 0.5])
@pytest.mark.parametrize("known", [True, False])
def test_a_store_that_is_slow_to_answer(v: Any, answer: float, known: bool) -> None:
    """Also where it has nothing."""
    engine = Timed(v, EQUAL * 20, answer)
    made = slowdowns(engine) if known else [
        engine.first_token(prompt) / (TOKENS / PREFILL) for prompt in prompts(60)]
    assert p95(made) <= 1.05, made
    if answer > 0.01:
        assert engine.slow.n_haves <= 3 and engine.counts()["unasked"] > 40


def test_always_is_obeyed(v: Any) -> None:
    """And says that the tests above could fail."""
    made = slowdowns(Timed(v, EQUAL * 0.5, load="always"), 1)
    assert statistics.median(made) > 1.9


def test_the_deadline_is_kept(v: Any) -> None:
    """Whatever is not there by then is computed."""
    made = slowdowns(Timed(v, EQUAL * 0.1, load="always", deadline=0.05), 1, pause=9.0)
    assert 1.4 < statistics.median(made) < 1.55 and max(made) < 1.6


def test_a_part_comes_from_the_nearer_store(v: Any) -> None:
    """The records that a fast store has, and not those behind them, which a slow one has."""
    engine = Timed(v, EQUAL * 20)
    mover, near = engine.workers[0]._move, engine.slow
    far = SlowStore(engine.clock, EQUAL * 0.1, 1e-4)
    mover.stores.all.append(far)
    mover.stores.watches.append(mover.stores.watches[0])
    mover.reads.append(type(mover.reads[0])())
    mover.stores._known.append(type(mover.stores._known[0])())
    first, *others = asked = prompts(20)
    for prompt in asked:
        engine.first_token(prompt)
    keep = set(list(near.records)[:10])  # of the first prompt
    engine.first_token(others[0])  # the nearer store's rate is known
    engine.first_token(others[1])
    mover.reads[1].begin(1 << 20, engine.clock.now - 1 - (1 << 20) / far.rate)
    mover.reads[1].end(1 << 20, True)
    mover.reads[1].polled(engine.clock.now)
    near.records = {key: value for key, value in near.records.items() if key in keep}
    before = engine.loaded
    assert engine.first_token(first) < 0.75 * TOKENS / PREFILL
    assert engine.loaded - before == 40 and far.n_gets == 0
    engine.close()


# ------------------------------------------------------------------------------- pure functions


def test_how_many_is_the_least_time(v: Any) -> None:
    from kvpager.vllm.rates import MARGIN, how_many

    draw = random.Random(5)
    for _ in range(2000):
        loads = sorted(draw.choice([0.0, draw.random()]) for _ in range(draw.randrange(8)))
        compute = draw.random() / 4
        times = [(loads[n - 1] if n else 0.0) + (len(loads) - n) * MARGIN * compute
                 for n in range(len(loads) + 1)]
        assert times[how_many(loads, compute)] == pytest.approx(min(times))
        assert how_many(loads, None) == len(loads)
    assert how_many([0.0, 0.0], 1.0) == 2 and how_many([1.0, 2.0], 1.0) == 0


def test_reads_are_measured_together(v: Any) -> None:
    from kvpager.vllm.rates import STALE, Reads

    reads = Reads()
    assert reads.expected(100, 0.0) == 0.0 and not reads.away(0.0)
    for _ in range(4):
        reads.begin(100, 10.0)
    assert reads.expected(100, 12.0) == pytest.approx(500 * 2 / 400), "nothing has come for 2 s"
    reads.polled(13.0)
    for _ in range(4):
        reads.end(100, True)
    reads.polled(14.0)
    assert reads.expected(100, 14.0) == pytest.approx(1.0), "four at once took 4 s"
    assert not reads.stale(14.0 + STALE) and reads.stale(14.1 + STALE)
    reads.begin(100, 30.0)
    assert reads.expected(100, 30.0) == pytest.approx(2.0), "it waits for the one that is out"
    assert not reads.stale(99.0)
    reads.polled(31.0)
    reads.end(100, False)  # nobody waits any more
    reads.polled(40.0)
    assert reads.expected(100, 40.0) == pytest.approx(1.0), "nobody looked when it came"
    reads.unanswered(30.0)
    assert reads.away(30.0) and not reads.away(30.0 + STALE)


def test_a_probe_counts_what_it_took_at_least(v: Any) -> None:
    from kvpager.vllm.rates import Reads

    reads = Reads()
    reads.begin(100, 1.0)
    reads.end(100, True)
    reads.polled(9.0)
    for _ in range(2):
        reads.begin(100, 50.0, probe=True)
    for now in (52.0, 53.0):
        reads.polled(now)
    reads.end(100, False)
    reads.polled(54.0)
    reads.polled(55.0)
    reads.end(100, False)
    reads.polled(90.0)
    assert reads.expected(100, 90.0) == pytest.approx(2.5), "two at once in 5 s; the past is forgotten"
