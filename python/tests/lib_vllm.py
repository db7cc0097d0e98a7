"""vLLM's own manager, for tests that run beside it."""

from __future__ import annotations

import importlib
import importlib.util
import types
from typing import Any

import pytest


def vllm_parts() -> Any:
    """vLLM's manager and request classes; skips, saying why, where they cannot be had."""
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vllm is not installed")
    names = {"torch": "torch", "sampling": "vllm.sampling_params", "hashing": "vllm.utils.hashing",
             "manager": "vllm.v1.core.kv_cache_manager", "utils": "vllm.v1.core.kv_cache_utils",
             "spec": "vllm.v1.kv_cache_interface", "request": "vllm.v1.request"}
    try:
        parts = {name: importlib.import_module(module) for name, module in names.items()}
    except ImportError as error:
        pytest.skip(f"vllm is installed, and cannot be imported: {error}")
    return types.SimpleNamespace(**parts)
