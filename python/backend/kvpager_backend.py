"""Builds the package: scikit-build-core, and the C sources, which lie one level up.

A wheel is built from the repository as it is. An sdist has to stand alone, so the parts of the
repository that the library is made of are copied to c/ while it is made, and the xxhash.h of this
machine with them; whoever builds from the sdist finds them there (CMakeLists.txt).
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

from scikit_build_core import build as _build
from scikit_build_core.build import (build_editable, build_wheel, get_requires_for_build_editable,
                                     get_requires_for_build_sdist, get_requires_for_build_wheel,
                                     prepare_metadata_for_build_editable,
                                     prepare_metadata_for_build_wheel)

__all__ = [
    "build_editable", "build_sdist", "build_wheel", "get_requires_for_build_editable",
    "get_requires_for_build_sdist", "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable", "prepare_metadata_for_build_wheel",
]

HERE = pathlib.Path(__file__).resolve().parent.parent
REPOSITORY = HERE.parent
PARTS = ["CMakeLists.txt", "LICENSE", "cmake", "include", "scripts/libvalkey.sh", "src"]


def _xxhash() -> str:
    """The path of the xxhash.h that the compiler knows."""
    done = subprocess.run([os.environ.get("CC", "cc"), "-M", "-x", "c", "-"], text=True,
                          input="#include <xxhash.h>", stdout=subprocess.PIPE)
    found = re.search(r"\S+/xxhash\.h", done.stdout)
    if not found:
        raise FileNotFoundError("an sdist has a copy of xxhash.h, and there is none (Debian: libxxhash-dev)")
    return found[0]


@contextlib.contextmanager
def _sources() -> Iterator[None]:
    copy = HERE / "c"
    if copy.exists() or not (REPOSITORY / "include" / "kvpager").is_dir():
        yield  # an sdist, unpacked
        return
    xxhash = _xxhash()
    copy.mkdir()
    try:
        shutil.copy2(xxhash, copy)
        for part in PARTS:
            source = REPOSITORY / part
            if source.is_dir():
                shutil.copytree(source, copy / part)
            else:
                (copy / part).parent.mkdir(exist_ok=True)
                shutil.copy2(source, copy / part)
        yield
    finally:
        shutil.rmtree(copy)


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    with _sources():
        return _build.build_sdist(sdist_directory, config_settings)
