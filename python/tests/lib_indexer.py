"""Dynamo's own indexer, as its router runs it, for tests of what is published."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

MODEL, WAIT_SECONDS = "m", 60.0


def needs(*names: str) -> None:
    """Skips, saying why, where a package is missing."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


class Indexer:
    """Its HTTP interface."""

    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, path: str, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}",
                                         json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read() or b"null")

    def register(self, worker: int, size: int, endpoint: str, replay: str | None) -> None:
        body = {"instance_id": worker, "model_name": MODEL, "block_size": size,
                "endpoint": endpoint}
        self.ask("/register", body if replay is None else {**body, "replay_endpoint": replay})

    def unregister(self, worker: int) -> None:
        self.ask("/unregister", {"instance_id": worker, "model_name": MODEL})

    def finds(self, worker: int, tokens: list[int]) -> tuple[int, int, int]:
        """Tokens found on the device, with the host's behind them, and with the disk's behind
        those."""
        answer = self.ask("/query", {"token_ids": tokens, "model_name": MODEL})
        found = answer.get("instances", {}).get(str(worker), {})
        return found.get("gpu", 0), found.get("cpu", 0), found.get("disk", 0)


@contextlib.contextmanager
def running(size: int) -> Iterator[Indexer]:
    """An indexer that answers."""
    port = free_port()
    environment = {**os.environ, "DYN_LOG": os.environ.get("DYN_LOG", "off")}
    with subprocess.Popen([sys.executable, "-m", "dynamo.indexer", "--port", str(port),
                           "--block-size", str(size), "--threads", "1"], env=environment,
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
            yield Indexer(port)
        finally:
            process.terminate()
