"""What the two sides of KvpagerConnector tell each other: once a step, scheduler to worker and back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from .._sequence import Key
from . import versions as v
from .host_events import Told

Blocks = tuple[list[int], ...]  # the engine's, of each layer group, all equally long


@dataclass(frozen=True)
class Prefix:
    """The beginning of a request: all that its KV depends on besides the model.

    tokens   [n] i32, whole blocks
    space    of the tenant and the adapter: what differs in it shares nothing
    keys     of multimodal items, by content
    """

    tokens: npt.NDArray[np.int32]
    space: bytes
    keys: tuple[Key, ...]


@dataclass(frozen=True)
class Ask:
    """Bring what there is of a prefix into host memory, verify it, and hold it."""

    request: str
    prefix: Prefix


@dataclass(frozen=True)
class Load:
    """Copy blocks begin, begin + 1 ... of what was asked for to the engine's blocks, of which each
    layer group has a list. Null blocks get nothing."""

    request: str
    begin: int
    blocks: Blocks


@dataclass(frozen=True)
class Save:
    """Keep a prefix whose KV lies in the engine's blocks after this step, but for null blocks."""

    prefix: Prefix
    blocks: Blocks


@dataclass
class Step(v.ConnectorMetadata):
    """What a step has for the worker, in this order.

    epoch   another one than before: forget everything first
    computes  tokens that the step computes, if a request computes a block or more; else 0
    lost_all  a promise cannot be kept, and nobody knows of which blocks: none has what it should
    forget  requests whose answers are not wanted any more
    """

    epoch: int
    forget: list[str] = field(default_factory=list)
    asks: list[Ask] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)
    saves: list[Save] = field(default_factory=list)
    computes: int = 0
    lost_all: bool = False


@dataclass
class Found(v.ConnectorWorkerMetadata):
    """What is verified of each prefix that is asked for: (tokens, whether that is all). told: what came
    to host memory and left it, of the first rank. kept_back: requests of which more is somewhere."""

    tokens: dict[str, tuple[int, bool]]
    told: list[Told] = field(default_factory=list)
    kept_back: set[str] = field(default_factory=set)

    def aggregate(self, other: Any) -> Found:
        """What all ranks have: a prefix is as long as the shortest, and done when all are."""
        both = self.tokens.keys() & other.tokens.keys()
        return Found({request: (min(self.tokens[request][0], other.tokens[request][0]),
                                self.tokens[request][1] and other.tokens[request][1])
                      for request in both}, [*self.told, *other.told],
                     self.kept_back | other.kept_back)
