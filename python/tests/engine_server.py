"""vLLM's own server as a process, and a Redis beside it, for test_engine_server.py and bench_engine.py."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

_START = 600.0  # seconds, beside other work
_STOP = 120.0


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Server:
    """`python -m vllm.entrypoints.openai.api_server` with KvpagerConnector; ends with the block.

    settings: kv_connector_extra_config, or a shell's command that begins the server; what it prints
    goes to `log`."""

    def __init__(self, model: pathlib.Path, log: pathlib.Path, settings: dict[str, Any] | str,
                 *more: str) -> None:
        self.port, self.log, self.model = free_port(), log, str(model)
        if isinstance(settings, str):
            command = ["bash", "-c", f'exec {settings} "$@"', "as-printed"]
        else:
            command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model",
                       self.model, "--kv-transfer-config", json.dumps({
                           "kv_connector": "KvpagerConnector", "kv_role": "kv_both",
                           "kv_connector_module_path": "kvpager.vllm",
                           "kv_connector_extra_config": settings})]
        path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
        with open(log, "ab") as out:
            self.process = subprocess.Popen(
                [*command, "--host", "127.0.0.1", "--port", str(self.port), "--dtype", "float32",
                 "--enforce-eager", "--enable-prompt-tokens-details", *more],
                env={**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "PATH": path},
                stdin=subprocess.DEVNULL,
                stdout=out, stderr=subprocess.STDOUT, start_new_session=True)

    def _call(self, path: str, body: Any = None, seconds: float = 300) -> bytes:
        asked = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            None if body is None else json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=seconds) as answer:
            return bytes(answer.read())

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-8000:]

    def __enter__(self) -> Server:
        until = time.monotonic() + _START
        while time.monotonic() < until and self.process.poll() is None:
            try:
                self._call("/health", seconds=5)
                return self
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
        self.stop(signal.SIGKILL)
        raise AssertionError(f"the server did not start:\n{self.tail()}")

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self, number: int = signal.SIGINT) -> None:
        """As an operator would; what is left of it after a while is killed."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            self.process.wait(_STOP)
        except subprocess.TimeoutExpired:
            pass
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def ask(self, prompt: list[int], max_tokens: int = 16) -> dict[str, Any]:
        """tokens of the greedy answer, and how many of the prompt were cached."""
        got = json.loads(self._call("/v1/completions", {
            "model": self.model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0,
            "ignore_eos": True, "return_token_ids": True}))
        details = got["usage"].get("prompt_tokens_details") or {}
        return {"tokens": got["choices"][0]["token_ids"], "cached": details.get("cached_tokens") or 0}

    def metrics(self) -> dict[str, float]:
        """Everything of ours in /metrics: {asked_tokens: ...}."""
        made: dict[str, float] = {}
        for name, value in re.findall(r"^vllm:kvpager_(\w+?)(?:_total)?\{[^}]*\} (\S+)$",
                                      self._call("/metrics").decode(), re.M):
            if not name.endswith("_created"):
                made[name] = made.get(name, 0) + float(value)
        return made

    def wait_for(self, name: str, least: float, seconds: float = 60) -> dict[str, float]:
        """The counters, when `name` has reached `least`. They are told with steps, so it asks
        something short meanwhile."""
        until = time.monotonic() + seconds
        while (now := self.metrics()).get(name, 0) < least and time.monotonic() < until:
            self.ask([5, 6, 7], max_tokens=2)
            time.sleep(0.1)
        assert now.get(name, 0) >= least, f"{name} is {now.get(name)}, not {least}: {now}"
        return now


def redis_program() -> str | None:
    """A Redis server; Debian's redis-tools has it by another name."""
    return shutil.which("redis-server") or shutil.which("redis-check-rdb")


@contextlib.contextmanager
def redis(place: pathlib.Path, memory: str = "1gb", port: int = 0, keeps: str = "no") -> Iterator[str]:
    """The URL of a Redis that is killed with the block. keeps="yes": its records are below `place`, and
    the next one there has them."""
    program = redis_program()
    assert program is not None
    port = port or free_port()
    with open(place / "redis.log", "ab") as log:
        process = subprocess.Popen(
            ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "",
             "--appendonly", keeps, "--appendfsync", "always", "--dir", str(place), "--maxmemory", memory,
             "--maxmemory-policy", "volatile-ttl"], executable=program, stdin=subprocess.DEVNULL,
            stdout=log, stderr=subprocess.STDOUT)
    try:
        until = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < until, "Redis did not start"
                time.sleep(0.05)
        yield f"redis://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(30)


def without_redis(url: str) -> str | None:
    """Why kvpager cannot reach a Redis from Python, or None."""
    from kvpager import _constants as c
    from kvpager import store as s

    model = s.FingerprintInput(weights=bytes(range(32)), compute_type="float32", type=c.F32, k_size=4, v_size=4,
                               model_layers=1, model_heads=1, block_tokens=16, unit_tokens=16,
                               slice=s.Slice(0, 1, 0, 1))
    try:
        s.Store.open(url, fingerprint=model.fingerprint(), block_tokens=16, block_bytes=[4096],
                     record_blocks=1).close()
    except Exception as error:  # noqa: BLE001: whatever it is, it is the reason
        return str(error)
    return None
