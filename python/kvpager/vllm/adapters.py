"""Which weights a LoRA adapter has, by what is in its files: neither name, number nor place says it."""

from __future__ import annotations

import hashlib
import os
from typing import Any

from .._guard import Unusable

COUNTED = "adapters"


class Adapters:
    """vLLM loads an adapter once for each number. So what its files had when the number was first
    seen is what the engine computes with, whatever they have later."""

    def __init__(self) -> None:
        # by number, name and path: what the files looked like, and their digest
        self._seen: dict[tuple[Any, ...], tuple[Any, bytes]] = {}

    def digest(self, adapter: Any) -> bytes:
        """Of a LoRARequest. Unusable: nobody can tell."""
        name, path = adapter.lora_name, adapter.lora_path
        about = (adapter.lora_int_id, name, path)
        if adapter.load_inplace:
            raise Unusable(COUNTED, about, f"adapter {name!r}: requests with it are computed, as it is "
                           "loaded in place (load_inplace): nobody can tell which weights it has")
        try:
            if not path:
                raise FileNotFoundError("it has no path")
            place = os.path.realpath(os.path.expanduser(path))
            names = sorted(os.listdir(place))
            stats = [os.stat(os.path.join(place, file)) for file in names]
            now = [(file, stat.st_size, stat.st_mtime_ns, stat.st_ino)
                   for file, stat in zip(names, stats)]
            if about not in self._seen:
                self._seen[about] = now, _digest_of(place, names)
        except (OSError, TypeError, ValueError) as error:
            raise Unusable(COUNTED, about, f"adapter {name!r}: requests with it are computed, as its "
                           f"files are not in a directory here that can be read: {error}") from error
        if now != self._seen[about][0]:
            raise Unusable(COUNTED, (about, "changed"), f"adapter {name!r}: requests with it are "
                           f"computed, as the files in {place} have changed since it was loaded. "
                           "Load it again")
        return self._seen[about][1]


def _digest_of(place: str, names: list[str]) -> bytes:
    digest = hashlib.sha256()
    for name in names:
        if os.path.isfile(os.path.join(place, name)):
            with open(os.path.join(place, name), "rb") as file:
                digest.update(name.encode() + hashlib.sha256(file.read()).digest())
    return digest.digest()
