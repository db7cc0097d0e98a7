"""Python's own lists of numbers, which calls take without an array between (native/calls_requests.c):
they mean what arrays mean, and what is wrong with them is said in the same words."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import kvpager
from kvpager._core import I32, I32Array, array_of, calls
from kvpager.adapters.vllm import KVCacheManager

S = 4
ODD = [0, 1, 256, 257, 2**30 - 1, 2**30, 2**31 - 1, 7]


class Mine(int):
    """Whose value is int's, whatever it says."""

    def __index__(self) -> int:
        return 5


class List(list[Any]):
    """Goes the longer way."""


class Wrapped:
    """As vLLM's ConstantList."""

    def __init__(self, values: Any) -> None:
        self._x = values

    def __getitem__(self, at: Any) -> Any:
        return self._x[at]

    def __len__(self) -> int:
        return len(self._x)


@pytest.fixture
def cache() -> Iterator[kvpager.Cache]:
    with kvpager.Cache(n_blocks=128, block_tokens=S, max_seqs=8, max_seq_tokens=2048) as made:
        yield made


SAME: dict[str, Any] = {
    "list": ODD, "tuple": tuple(ODD), "array": array("i", ODD), "numpy": np.array(ODD, I32),
    "memoryview": memoryview(array("i", ODD)), "class of lists": List(ODD),
    "numpy's ints in a list": list(np.array(ODD, I32)), "int64 in a list": list(np.array(ODD)),
    "classes of int": [*ODD[:-1], Mine(7)], "a class of int in a tuple": (*ODD[:-1], Mine(7)),
    "a bool in a list": [ODD[0], True, *ODD[2:]],
}


@pytest.mark.parametrize("kind", SAME)
def test_the_same_tokens(cache: kvpager.Cache, kind: str) -> None:
    model = cache.namespace()
    tokens: Any = SAME[kind]
    with model.open(np.array(ODD, I32)) as first:
        first.commit(8)
    assert model.match(tokens).hit_tokens == model.match(np.array(ODD, I32)).hit_tokens > 0
    seq = model.open(tokens)
    seq.extend(tokens)
    assert seq.tokens().tolist() == ODD * 2
    assert array_of("tokens", tokens, I32).dtype == I32


def test_without_a_number(cache: kvpager.Cache) -> None:
    empty: tuple[Any, ...] = ([], (), range(0))
    for tokens in empty:
        made = array_of("tokens", tokens, I32)
        assert made.dtype == I32 and len(made) == 0


WRONG: dict[str, list[Any]] = {
    "negative": [3, -1], "too large": [3, 2**31], "huge": [3, 2**70], "far below": [3, -2**31 - 1],
    "a float": [3, 1.5], "text": [3, "a"], "None": [3, None], "a list": [3, [1]], "nested": [[3], [1]],
    "a negative class of int": [3, Mine(-1)], "a large class of int": [3, Mine(2**31)],
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_said_in_the_same_words(cache: kvpager.Cache, what: str) -> None:
    model = cache.namespace()
    said = []
    for kind in list, tuple, List:
        with pytest.raises((TypeError, ValueError)) as caught:
            model.open(kind(WRONG[what]))
        said.append((caught.type, re.sub(r"[(].*[)]", "", str(caught.value))))
    assert said[0] == said[1] == said[2]
    assert cache.stats().open_seqs == 0


def ints(values: Any, begin: int, end: int, room: int = 4) -> Any:
    """What came, or None; other places keep their -9."""
    out = np.full(room, -9, I32)
    copied = calls.ints(values, out, begin, end)
    return out.tolist() if copied else copied


@pytest.mark.parametrize("kind", [list, tuple, lambda values: Wrapped(list(values))])
def test_a_part_of_a_list(kind: Any) -> None:
    values = kind([1, -2, 2**31 - 1, -2**31])
    assert ints(values, 0, 4) == [1, -2, 2**31 - 1, -2**31]
    assert ints(values, 1, 3) == [-9, -2, 2**31 - 1, -9]
    assert ints(values, 4, 4) == ints(values, 0, 0) == [-9] * 4
    for begin, end, room in (0, 5, 8), (0, 4, 3), (3, 2, 4), (5, 5, 4), (0, 2**40, 4), (2**40, 2**40, 4):
        assert ints(values, begin, end, room) is None
    for wrong in 2**31, -2**31 - 1, True, Mine(3), 1.0, None:
        assert ints(kind([1, wrong]), 0, 2) is None
        assert ints(kind([wrong, 1]), 1, 2) == [-9, 1, -9, -9]


def test_other_things_are_no_lists() -> None:
    for values in (List([1]), range(3), np.array([1]), "12", 3, None, Wrapped((1, 2)), Wrapped(List([1])),
                   Wrapped(None), array("i", [1])):
        assert ints(values, 0, 1) is None
    for out in np.empty(2, np.int64), [0, 0], memoryview(bytes(8)).cast("i"):
        assert calls.ints([1, 2], out, 0, 2) is None
    with pytest.raises(SystemError):
        calls.ints([1], np.empty(1, I32), 0)
    with pytest.raises(OverflowError):
        calls.ints([1], np.empty(1, I32), -1, 1)


def test_a_list_that_changes() -> None:
    """By what a call asks for before it reads the numbers."""
    values = list(range(1000, 2000))

    class Clears:
        def __index__(self) -> int:
            values.clear()
            return 1000

    assert calls.ints(values, np.empty(1000, I32), 0, Clears()) is None

    class Fails:
        @property
        def _x(self) -> list[int]:
            raise InterruptedError("as it is")

    with pytest.raises(InterruptedError, match="as it is"):
        calls.ints(Fails(), np.empty(1, I32), 0, 1)

    class Other(Wrapped):
        @property
        def all_token_ids(self) -> list[int]:
            return [1, 2, 3]

        @property
        def cache_salt(self) -> None:
            self._x.clear()

    with kvpager.Cache(n_blocks=8, block_tokens=S, max_seqs=2, max_seq_tokens=8) as cache:
        assert calls.short_hit(cache.namespace(), Other([1] * 50)) == 0


def test_what_is_looked_up_as_it_is(cache: kvpager.Cache) -> None:
    model, tokens = cache.namespace(), list(range(300, 600))
    with model.open(tokens) as seq:
        seq.commit(300)

    def hit(values: Any, **more: Any) -> Any:
        return calls.short_hit(model, SimpleNamespace(all_token_ids=values, **more))

    plain: dict[str, Any] = {"cache_salt": None, "lora_request": None, "mm_features": [],
                             "skip_reading_prefix_cache": False}
    for kind in list, tuple, lambda values: Wrapped(list(values)):
        assert hit(kind(tokens[:41])) == hit(kind(tokens[:41]), **plain) == 40
        assert hit(kind(tokens[:255])) == 252 and hit(kind(tokens[:256])) is None
        assert hit(kind([1, Mine(2)])) is None and hit(kind([1, -2])) < 0
    assert hit(np.array(tokens[:41], I32)) is None and hit(List(tokens[:41])) is None
    for name in plain:
        assert hit(tokens[:41], **{**plain, name: "x"}) is None

    class Fails(SimpleNamespace):
        def __bool__(self) -> bool:
            raise KeyError("which")

        @property
        def lora_request(self) -> Any:
            raise KeyError("which")

    with pytest.raises(KeyError):
        hit(tokens, cache_salt=Fails())
    with pytest.raises(KeyError):
        calls.short_hit(model, Fails(all_token_ids=tokens))

    class Unknown:
        @property
        def _x(self) -> list[int]:
            raise KeyError("which")

    with pytest.raises(KeyError):
        hit(Unknown())
    with pytest.raises(AttributeError):
        calls.short_hit(model, SimpleNamespace())


def test_the_blocks_of_a_row(cache: kvpager.Cache) -> None:
    model = cache.namespace()
    for n in 3, 64 * S, 64 * S + 1, 70 * S:
        seq = model.open(np.arange(n, dtype=np.int32) + 1000 * n)
        row = seq.row().tolist()
        assert calls.blocks(seq, 0) == row
        for begin in 1, 2, len(row) - 1, len(row), len(row) + 1, 2**32 - 1:
            assert calls.blocks(seq, begin) == row[begin:]
        seq.close()
        assert calls.blocks(seq, 0) < 0


class Request(SimpleNamespace):
    @property
    def num_tokens(self) -> int:
        return len(self.all_token_ids)


def turn(manager: KVCacheManager, make: Any) -> list[Any]:
    """What a manager says of requests with prompts of many lengths and a growing answer."""
    said: list[Any] = []
    for n in 1, 4, 5, 30, 255, 256, 257, 1023, 1500, 30:
        tokens: I32Array = np.arange(n, dtype=I32) * 3 + n % 7
        values = make(tokens.tolist())
        request = Request(request_id="r", all_token_ids=values, num_computed_tokens=0,
                          num_prompt_tokens=n)
        for _ in range(3):
            said.append(hit := manager.get_computed_blocks(request)[1])
        new = manager.allocate_slots(request, n - hit, hit)
        assert new is not None
        request.num_computed_tokens = n
        said.append(new.ids)
        for i in range(10):
            getattr(values, "_x", values).append(70000 + i)
            new = manager.allocate_slots(request, 1)
            assert new is not None
            said.append((new.ids, manager.get_block_ids("r")))
            request.num_computed_tokens += 1
        known = manager._held["r"].seq.tokens().tolist()
        assert len(known) >= n and known == list(values)[:len(known)]
        manager.free(request)
        manager.cache.check()
    return said


def test_a_manager_with_lists_of_every_kind() -> None:
    first = turn(KVCacheManager(600, S, 2048), list)
    assert any(isinstance(one, int) and one > 0 for one in first)
    for make in Wrapped, List, lambda values: Wrapped(List(values)), \
            lambda values: [Mine(value) for value in values]:
        assert turn(KVCacheManager(600, S, 2048), make) == first
