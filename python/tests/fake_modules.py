"""Modules that are not installed, or others than those, for a while."""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def anew(users: str) -> Iterator[None]:
    """Modules whose names begin so are imported again inside; those from before are back afterwards."""
    before = {name: module for name, module in sys.modules.items() if name.startswith(users)}
    for name in before:
        del sys.modules[name]
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.startswith(users)]:
            del sys.modules[name]
        sys.modules.update(before)


@contextlib.contextmanager
def installed(contents: dict[str, dict[str, Any]], users: str) -> Iterator[None]:
    """As if these modules, with these names in them, were there. `users` is the package of ours that
    imports them: it is forgotten afterwards."""
    made: dict[str, types.ModuleType] = {}
    for name, names in contents.items():
        for end in range(1, name.count(".") + 2):
            path = ".".join(name.split(".")[:end])
            made.setdefault(path, types.ModuleType(path))
        made[name].__dict__.update(names)
    for path, module in made.items():
        before, _, last = path.rpartition(".")
        if before:
            setattr(made[before], last, module)
    sys.modules.update(made)
    try:
        yield
    finally:
        ours = [name for name in sys.modules if name.startswith(users)]
        for name in [*made, *ours]:
            del sys.modules[name]
