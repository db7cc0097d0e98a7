"""vLLM's scheduler on kvpager's cache, whose KV events go out by kvpager.publish: Dynamo's own indexer
comes late, loses batches, and finds what the scheduler finds."""

from __future__ import annotations

import copy
import importlib
import random
import time
import types
from collections.abc import Iterator
from typing import Any

import pytest

from lib_indexer import WAIT_SECONDS, Indexer, free_port, needs, running
from test_vllm_scheduler import SIZE, Engine, config, vllm

pytest.importorskip("kvpager.publish", exc_type=ImportError)
__all__ = ["config", "vllm"]  # fixtures


@pytest.fixture(scope="module")
def indexer() -> Iterator[Indexer]:
    needs("dynamo", "zmq")
    with running(SIZE) as made:
        yield made


@pytest.fixture
def engine(vllm: Any, config: Any) -> Iterator[Any]:
    made = copy.copy(config)
    events = importlib.import_module("vllm.config.kv_events")
    made.kv_events_config = events.KVEventsConfig(
        enable_kv_cache_events=True, publisher="zmq", endpoint=f"tcp://*:{free_port()}",
        replay_endpoint=f"tcp://*:{free_port()}", topic="kv@here@m")
    made.scheduler_config.scheduler_cls = "kvpager.vllm.Scheduler"
    found = Engine(vllm, made, made.scheduler_config.get_scheduler_cls())
    yield found
    found.scheduler.kv_event_publisher.shutdown()


def reachable(endpoint: str) -> str:
    return endpoint.replace("*", "127.0.0.1")


def test_a_late_router_finds_what_the_scheduler_finds(engine: Any, indexer: Indexer) -> None:
    publisher = importlib.import_module("kvpager.vllm.publisher")
    made = engine.scheduler.kv_event_publisher
    assert type(made) is publisher.EventPublisher
    told = engine.scheduler.get_kv_event_publisher_config()
    draw, prompts = random.Random(3), list[list[int]]()
    for turn in range(120):
        if turn == 40:  # the router comes
            indexer.register(1, SIZE, reachable(told.endpoint), reachable(told.replay_endpoint))
        if draw.random() < 0.4:
            base = draw.randrange(4) * 1000
            tokens = [base + i for i in range(draw.randrange(8, 60))] + [draw.randrange(9)]
            engine.add(f"r{turn}", tokens, draw.randrange(1, 9))
            prompts.append(tokens)
        engine.step()
    until, n_found = time.monotonic() + WAIT_SECONDS, 0
    for tokens in prompts:
        probe = types.SimpleNamespace(request_id="probe", all_token_ids=[*tokens, 1],
                                      num_tokens=len(tokens) + 1, num_computed_tokens=0)
        want = engine.manager.get_computed_blocks(probe)[1]
        engine.manager.free(probe)
        while (found := indexer.finds(1, tokens)[0]) != want:
            assert time.monotonic() < until, f"{found} tokens, not {want}"
            time.sleep(0.02)
        n_found += want > 0
    indexer.unregister(1)
    assert n_found > 5 and made._wire.stats().snapshots >= 1
    assert made.troubles.counts == {} and made._wire.stats().dropped_units == 0


def test_events_of_other_media_and_adapters(engine: Any, indexer: Indexer) -> None:
    """A connector's events come in the same batches."""
    events = importlib.import_module("vllm.distributed.kv_events")
    made, told = engine.scheduler.kv_event_publisher, engine.scheduler.get_kv_event_publisher_config()
    tokens = list(range(5000, 5000 + 4 * SIZE))

    def stored(hashes: list[int], parent: int | None, medium: str, lora: str | None = None) -> Any:
        first = 0 if parent is None else SIZE * 2
        return events.BlockStored(hashes, parent, tokens[first:first + SIZE * len(hashes)], SIZE, None,
                                  medium, lora)
    made.publish(events.KVEventBatch(ts=0.0, events=[
        stored([1, 2], None, "GPU"), stored([3], 2, "CPU"), stored([1, 2, 3, 4], None, "STORAGE"),
        stored([11, 12], None, "GPU", "sql"), events.BlockRemoved([12], "GPU")]))
    indexer.register(2, SIZE, reachable(told.endpoint), reachable(told.replay_endpoint))
    until = time.monotonic() + WAIT_SECONDS
    while indexer.finds(2, tokens) != (2 * SIZE, 3 * SIZE, 4 * SIZE):
        assert time.monotonic() < until, indexer.finds(2, tokens)
        time.sleep(0.02)
    made.publish(events.KVEventBatch(ts=0.0, events=[
        events.BlockStored([9], None, [1] * 2 * SIZE, 2 * SIZE, None, "GPU", None),
        events.AllBlocksCleared(), stored([1], None, "GPU")]))
    while indexer.finds(2, tokens) != (SIZE, SIZE, SIZE):
        assert time.monotonic() < until, indexer.finds(2, tokens)
        time.sleep(0.02)
    indexer.unregister(2)
    assert made.other_sizes == 1 and made.troubles.counts == {}


def test_where_vllms_own_stays(engine: Any) -> None:
    """Sockets that are not bound, or without a port of their own; other publishers."""
    publisher = importlib.import_module("kvpager.vllm.publisher")
    events = importlib.import_module("vllm.distributed.kv_events")
    theirs = object.__new__(events.ZmqEventPublisher)
    for endpoint in ("tcp://host:5557", "tcp://*:0", "inproc://cache"):
        given = types.SimpleNamespace(endpoint=endpoint)
        assert publisher.replace(theirs, given, 0, SIZE, 10) is theirs
    null = events.NullEventPublisher()
    assert publisher.replace(null, None, 0, SIZE, 10) is null
