"""Methods that an engine calls and that never raise: what kvpager.vllm and kvpager.sglang share.

An exception that leaves such a method ends the engine, or a thread of it that nobody starts again. So
it is caught, counted, logged once, and the engine gets an answer that makes it compute.
"""

from __future__ import annotations

import functools
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

ERRORS = "errors"  # the counter of what should not happen

Class = TypeVar("Class", bound=type)
Answer = Callable[..., Any]  # with the method's arguments


class Unusable(Exception):
    """What a request has and kvpager cannot use. counted: the counter; about: what is said once."""

    def __init__(self, counted: str, about: object, text: str) -> None:
        super().__init__(text)
        self.counted, self.about = counted, about


class Troubles:
    """What went wrong: counted, and logged once for each kind: a full disk must not fill the log."""

    def __init__(self, logger: logging.Logger) -> None:
        self.logger, self.counts = logger, Counter[str]()
        self._told = set[object]()

    def take(self) -> dict[str, Any]:
        """What was counted since the last time."""
        made = dict(self.counts)
        self.counts.clear()
        return made

    def expected(self, what: str, error: BaseException) -> None:
        """An operation that may fail."""
        self.counts[what] += 1
        self._once((what, type(error)), "kvpager: %s: %s", what, error)

    def caught(self, where: str, error: Exception) -> None:
        """What would have reached the engine."""
        if isinstance(error, Unusable):
            self.counts[error.counted] += 1
            self._once(error.about, "kvpager: %s", error)
            return
        self.counts[ERRORS] += 1
        self._once((where, type(error)), "kvpager: %s failed, and the engine computes instead; this "
                   "is a defect of kvpager", where, exc_info=error)

    def safely(self, where: str, call: Callable[..., Any], *given: Any) -> bool:
        """One of several things to do: what it raises keeps no other from being done."""
        try:
            call(*given)
        except Exception as error:
            self.caught(where, error)
            return False
        return True

    def _once(self, about: object, text: str, *values: object, exc_info: Any = None) -> None:
        if about not in self._told:
            self._told.add(about)
            self.logger.warning(text, *values, exc_info=exc_info)


def _safe(inner: Callable[..., Any], name: str, answer: Answer) -> Callable[..., Any]:
    @functools.wraps(inner)
    def outer(self: Any, *given: Any, **named: Any) -> Any:
        try:
            return inner(self, *given, **named)
        except Exception as error:
            self.troubles.caught(name, error)
        try:
            return answer(self, *given, **named)
        except Exception as error:
            self.troubles.caught(f"the answer in place of {name}", error)
        return None
    return outer


def never_raises(answers: Mapping[str, Answer], refuses: Iterable[str] = ()
                 ) -> Callable[[Class], Class]:
    """A class whose methods `answers` give these answers where they would raise. Those of `refuses`
    raise where an engine expects it: most are called when it starts. The class must have `troubles`
    before any is called. TypeError: a public method is in neither."""
    def wrap(cls: Class) -> Class:
        methods = {name for name, value in vars(cls).items()
                   if not name.startswith("_") and isinstance(
                       value, (classmethod, staticmethod)) | callable(value)}
        if methods != answers.keys() | set(refuses):
            raise TypeError(f"{cls.__name__}: what these answer in place of an exception is not "
                            f"said: {sorted(methods ^ (answers.keys() | set(refuses)))}")
        for name, answer in answers.items():
            setattr(cls, name, _safe(vars(cls)[name], name, answer))
        return cls
    return wrap
