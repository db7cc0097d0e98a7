"""For an unpatched vLLM.

Scheduler   vLLM's own scheduler on kvpager's cache: `vllm serve --scheduler-cls
            kvpager.vllm.Scheduler`
"""

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "Scheduler":
        from .scheduler import Scheduler
        return Scheduler
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
