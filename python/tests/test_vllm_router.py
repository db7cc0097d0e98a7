"""The adapter's events on the wire: vLLM's own publisher sends them, and Dynamo's own indexer, as
its router runs it, must find what the cache finds."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import random
import socket
import subprocess
import sys
import time
import types
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from kvpager.adapters.vllm import KVCacheManager

SIZE, MODEL, WAIT_SECONDS = 4, "m", 60.0


@pytest.fixture(scope="module")
def events() -> Any:
    """vLLM's events; skips, saying why, where they or Dynamo's indexer cannot be had."""
    for name in ("vllm", "dynamo"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    try:
        return importlib.import_module("vllm.distributed.kv_events")
    except ImportError as error:
        pytest.skip(f"vllm is installed, and its events cannot be imported: {error}")


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def ask(port: int, path: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.loads(answer.read() or b"null")


@contextlib.contextmanager
def running(port: int) -> Iterator[None]:
    """Dynamo's indexer, answering."""
    environment = {**os.environ, "DYN_LOG": "error"}
    with subprocess.Popen([sys.executable, "-m", "dynamo.indexer", "--port", str(port),
                           "--block-size", str(SIZE), "--threads", "1"], env=environment,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            until = time.monotonic() + WAIT_SECONDS
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    assert process.poll() is None and time.monotonic() < until
                    time.sleep(0.05)
            yield
        finally:
            process.terminate()


class Engine:
    """A manager, whose events vLLM's publisher sends."""

    def __init__(self, events: Any, indexer: int) -> None:
        port = free_port()
        self.events, self.indexer = events, indexer
        self.manager = KVCacheManager(40, SIZE, 256, enable_kv_cache_events=True)
        config = importlib.import_module("vllm.config.kv_events")
        self.publisher = events.EventPublisherFactory.create(config.KVEventsConfig(
            enable_kv_cache_events=True, publisher="zmq", endpoint=f"tcp://*:{port}"), 0)
        ask(indexer, "/register", {"instance_id": 1, "model_name": MODEL, "block_size": SIZE,
                                   "endpoint": f"tcp://127.0.0.1:{port}"})

    def tell(self) -> int:
        told = self.manager.take_events()
        if told:
            self.publisher.publish(self.events.KVEventBatch(ts=time.time(), events=told))
        return len(told)

    def router_finds(self, tokens: list[int]) -> int:
        answer = ask(self.indexer, "/query", {"token_ids": tokens, "model_name": MODEL})
        return int(find_number(answer.get("scores", {})))

    def expect(self, tokens: list[int], n_tokens: int) -> None:
        """The router comes to find so many tokens."""
        until = time.monotonic() + WAIT_SECONDS
        while (found := self.router_finds(tokens)) != n_tokens:
            assert time.monotonic() < until, f"{found} tokens, not {n_tokens}"
            time.sleep(0.02)


def find_number(value: Any) -> int:
    """The one number in nested maps; 0: there is none."""
    while isinstance(value, dict):
        value = next(iter(value.values()), 0)
    return int(value)


class Request:
    def __init__(self, name: str, tokens: list[int], **more: Any) -> None:
        self.request_id, self.all_token_ids, self.num_computed_tokens = name, tokens, 0
        self.__dict__.update(more)

    @property
    def num_tokens(self) -> int:
        return len(self.all_token_ids)


def test_a_router_finds_what_the_cache_finds(events: Any) -> None:
    indexer = free_port()
    with running(indexer):
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
