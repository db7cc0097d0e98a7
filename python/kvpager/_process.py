"""What stands for an object of a library beside the core's, and belongs to the process that made it."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any, ClassVar, TypeVar

from ._core import Uncopied
from ._errors import BusyError

Kind = TypeVar("Kind", bound="Owned")


class Owned(Uncopied):
    """Closed at the end of a block, or by `close`. _lib: of the module that has it."""

    _lib: ClassVar[Any]

    def __init__(self, made: Any) -> None:
        self._o, self._pid = made, os.getpid()

    def __enter__(self: Kind) -> Kind:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return not self._lib.kvpy_object_is_open(self._o)

    def close(self) -> None:
        raise NotImplementedError

    def _is_ours(self) -> bool:
        return self._pid == os.getpid()

    def _object(self) -> Any:
        if not self._is_ours():
            raise BusyError(f"{type(self).__name__}: another process has it; a forked child must open its "
                            f"own")
        return self._o
