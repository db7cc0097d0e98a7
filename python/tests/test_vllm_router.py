"""The adapter's events on the wire: vLLM's own publisher sends them, and Dynamo's own indexer, as
its router runs it, must find what the cache finds."""

from __future__ import annotations

import importlib
import random
import time
from typing import Any

import pytest

from lib_indexer import WAIT_SECONDS, Indexer, free_port, needs, running

from kvpager.adapters.vllm import KVCacheManager

SIZE = 4


@pytest.fixture(scope="module")
def events() -> Any:
    """vLLM's events; skips, saying why, where they or Dynamo's indexer cannot be had."""
    needs("vllm", "dynamo")
    try:
        return importlib.import_module("vllm.distributed.kv_events")
    except ImportError as error:
        pytest.skip(f"vllm is installed, and its events cannot be imported: {error}")


class Engine:
    """A manager, whose events vLLM's publisher sends."""

    def __init__(self, events: Any, indexer: Indexer) -> None:
        port = free_port()
        self.events, self.indexer = events, indexer
        self.manager = KVCacheManager(40, SIZE, 256, enable_kv_cache_events=True)
        config = importlib.import_module("vllm.config.kv_events")
        self.publisher = events.EventPublisherFactory.create(config.KVEventsConfig(
            enable_kv_cache_events=True, publisher="zmq", endpoint=f"tcp://*:{port}"), 0)
        indexer.register(1, SIZE, f"tcp://127.0.0.1:{port}", None)

    def tell(self) -> int:
        told = self.manager.take_events()
        if told:
            self.publisher.publish(self.events.KVEventBatch(ts=time.time(), events=told))
        return len(told)

    def router_finds(self, tokens: list[int]) -> int:
        return self.indexer.finds(1, tokens)[0]

    def expect(self, tokens: list[int], n_tokens: int) -> None:
        """The router comes to find so many tokens."""
        until = time.monotonic() + WAIT_SECONDS
        while (found := self.router_finds(tokens)) != n_tokens:
            assert time.monotonic() < until, f"{found} tokens, not {n_tokens}"
            time.sleep(0.02)


class Request:
    def __init__(self, name: str, tokens: list[int], **more: Any) -> None:
        self.request_id, self.all_token_ids, self.num_computed_tokens = name, tokens, 0
        self.num_prompt_tokens = len(tokens)
        self.__dict__.update(more)

    @property
    def num_tokens(self) -> int:
        return len(self.all_token_ids)


def test_a_router_finds_what_the_cache_finds(events: Any) -> None:
    with running(SIZE) as indexer:
        engine = Engine(events, indexer)
        manager, draw = engine.manager, random.Random(7)
        first = Request("first", list(range(9)))
        manager.allocate_slots(first, 9)
        until = time.monotonic() + WAIT_SECONDS
        while engine.router_finds(first.all_token_ids) != 8:  # it is slow to subscribe
            assert time.monotonic() < until, "the router finds nothing"
            manager.free(first)
            assert manager.reset_prefix_cache()
            manager.allocate_slots(first, 9)
            engine.tell()
            time.sleep(0.1)
        manager.free(first)
        n_found = n_gone = 0
        prompts: list[list[int]] = []
        for turn in range(60):
            base = draw.randrange(4) * 1000
            tokens = [base + i for i in range(draw.randrange(5, 60))] + [draw.randrange(9)]
            more = {"cache_salt": "s"} if turn % 5 == 4 else {}
            request = Request(f"r{turn}", tokens, **more)
            hit = manager.get_computed_blocks(request)[1]
            assert manager.allocate_slots(request, request.num_tokens - hit, hit) is not None
            manager.free(request)
            if not more:
                prompts.append(tokens)
            engine.tell()
            asked = draw.choice(prompts) if prompts else tokens
            probe = manager.get_computed_blocks(Request(f"p{turn}", asked + [1]))[1]
            engine.expect(asked, probe)
            n_found += probe > 0
            n_gone += probe < len(asked) // SIZE * SIZE
        assert n_found > 20 and n_gone > 2
        assert manager.reset_prefix_cache()
        engine.tell()
        engine.expect(prompts[-1], 0)
        engine.publisher.shutdown()
