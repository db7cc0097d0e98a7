"""vLLM's own server with KvpagerConnector: restarted, and two at once. Part of `make engines`."""

from __future__ import annotations

import contextlib
import pathlib
import random
import re
import sys
from typing import Any

import pytest

from engine_life import skip_without_vllm

skip_without_vllm()

from engine_life import model_folder  # noqa: E402
from engine_server import Server, redis, redis_program, without_redis  # noqa: E402
from kvpager.vllm.metrics import COUNTED, GAUGES  # noqa: E402

BLOCKS, BLOCK = 3, 32  # of each prompt below; tokens of a block
SIZES = ("--block-size", str(BLOCK), "--max-model-len", "512", "--num-gpu-blocks-override", "20",
         "--max-num-seqs", "8")
PATIENT = {"host_memory": "512MiB", "load": "always", "deadline": 60}  # on any machine


def prompts(seed: int) -> list[list[int]]:
    """Four prompts of three full blocks and a part; with the answer they do not fill a fourth."""
    rng = random.Random(seed)
    return [[rng.randrange(100, 40000) for _ in range(BLOCKS * BLOCK + 8)] for _ in range(4)]


def answers(server: Server, seed: int) -> list[Any]:
    return [server.ask(one) for one in prompts(seed)]


def tokens(given: list[Any]) -> list[Any]:
    return [one["tokens"] for one in given]


def computed(given: list[Any]) -> None:
    assert [one["cached"] for one in given] == [0] * 4


def came_back(given: list[Any]) -> None:
    assert [one["cached"] for one in given] == [BLOCKS * BLOCK] * 4


def both_ways(one: Server, other: Server) -> None:
    """What one computed comes back in the other, and the other way round."""
    for seed, writer, reader in ((2, one, other), (3, other, one)):
        stored, found = (server.metrics()[name] for server, name in (
            (writer, "stored"), (reader, "store_tokens")))
        first = answers(writer, seed)
        computed(first)
        writer.wait_for("stored", stored + 4 * BLOCKS)
        again = answers(reader, seed)
        came_back(again)
        assert tokens(again) == tokens(first)
        told = reader.wait_for("store_tokens", found + 4 * BLOCKS * BLOCK)
        assert told["bad"] == 0


def test_a_directory(tmp_path: pathlib.Path) -> None:
    """A server is stopped, and the next one has its prefixes. Then two live on the directory."""
    settings = {**PATIENT, "store": f"file:{tmp_path / 'kv'}?size=2GiB"}
    with Server(model_folder(), tmp_path / "first.log", settings, *SIZES) as server:
        first = answers(server, 1)
        computed(first)
        assert all(len(one) == 16 for one in tokens(first))
        told = server.wait_for("stored", 4 * BLOCKS)
        assert told.keys() == COUNTED.keys() | GAUGES.keys()
        assert told["store_records"] > 0
        assert told["store_tokens"] == told["bad"] == 0 and told["saved_tokens"] == 4 * BLOCKS * BLOCK
    assert server.process.returncode == 0, server.tail()
    with contextlib.ExitStack() as both:
        one, other = (Server(model_folder(), tmp_path / f"{name}.log", settings, *SIZES)
                      for name in ("one", "other"))
        both.enter_context(one)
        again = answers(one, 1)
        came_back(again)
        assert tokens(again) == tokens(first)
        told = one.wait_for("loaded_tokens", 4 * BLOCKS * BLOCK)
        assert told["store_tokens"] == 4 * BLOCKS * BLOCK and told["bad"] == 0
        both.enter_context(other)
        both_ways(one, other)


def test_a_redis(tmp_path: pathlib.Path) -> None:
    if redis_program() is None:
        pytest.skip("there is no redis-server (Debian: redis-tools)")
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(redis(tmp_path))
        reason = without_redis(url)
        if reason is not None:
            pytest.skip(f"the Python package reaches no Redis: {reason}")
        settings = {**PATIENT, "store": url}
        one, other = (Server(model_folder(), tmp_path / f"{name}.log", settings, *SIZES)
                      for name in ("one", "other"))
        stack.enter_context(one)
        stack.enter_context(other)
        both_ways(one, other)


def printed(page: str, model: str, place: pathlib.Path) -> str:
    """The page's command for KvpagerConnector. Other than there: Python, model, directory, and less
    host memory."""
    text = (pathlib.Path(__file__).parents[2] / page).read_text()
    command: str
    command, = (block.replace("venv/bin/python", sys.executable) for block in re.findall(r"^(?:    .*\n)+", text, re.M)
                if '"KvpagerConnector"' in block and "--model" in block)
    for theirs, ours in ((model, str(model_folder())), ("/var/cache/kv", str(place)),
                         ('"8GiB"', '"512MiB"')):
        assert command.count(theirs) == 1
        command = command.replace(theirs, ours)
    return command.strip()


def test_the_commands_of_the_pages(tmp_path: pathlib.Path) -> None:
    """As printed: what README's computes, that of ENGINES finds. Lines of ours are in their logs."""
    first: list[Any] = []
    for page, model in (("README.md", "MODEL"), ("docs/ENGINES.md", "/models/llama-1b")):
        log = tmp_path / f"{pathlib.Path(page).stem}.log"
        with Server(model_folder(), log, printed(page, model, tmp_path / "kv"), *SIZES,
                    "--served-model-name", str(model_folder())) as server:
            answered = answers(server, 1)
            if not first:
                computed(answered)
                server.wait_for("stored", 1)
            else:
                assert tokens(answered) == tokens(first)
                assert sum(one["cached"] for one in answered) > 0
                assert server.wait_for("store_tokens", BLOCK)["bad"] == 0
        assert "in host memory; stores: file:" in log.read_text()
        first = first or answered
