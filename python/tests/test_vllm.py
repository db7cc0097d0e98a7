"""vLLM's interface on kvpager: by itself, and beside vLLM's own manager where that is installed."""

from __future__ import annotations

import random
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest

import fake_modules
import kvpager
from kvpager.adapters.vllm import KVCacheManager
from lib_vllm import vllm_parts


class Request:
    """What the adapter uses of vLLM's Request."""

    def __init__(self, request_id: str, tokens: list[int], **more: Any) -> None:
        self.request_id, self.all_token_ids, self.num_computed_tokens = request_id, tokens, 0
        self.cache_salt: str | None = None
        self.num_prompt_tokens = len(tokens)
        self.__dict__.update(more)

    @property
    def num_tokens(self) -> int:
        return len(self.all_token_ids)


def make(num_blocks: int = 11, **more: Any) -> KVCacheManager:
    return KVCacheManager(num_blocks, 4, 64, **more)


def start(manager: KVCacheManager, request: Request) -> Any:
    """Looks up and allocates the whole request."""
    blocks, hit, _ = manager.get_computed_blocks(request)
    return hit, manager.allocate_slots(request, request.num_tokens - hit, hit, blocks)


def test_prefill_and_hits() -> None:
    manager = make()
    a = Request("a", list(range(10)))
    hit, new = start(manager, a)
    assert (hit, new.get_block_ids()) == (0, ([1, 2, 3],))
    b = Request("b", list(range(8)))
    hit, new = start(manager, b)
    assert (hit, new.get_block_ids()) == (4, ([4],)), "the last block is computed again"
    assert manager.get_block_ids("b") == ([1, 4],)
    assert manager.get_num_common_prefix_blocks("a") == [1]
    assert manager.usage == pytest.approx(0.4)
    assert not manager.reset_prefix_cache()
    manager.free(a)
    manager.free(b)
    manager.free(b)
    assert manager.usage == 0.0
    assert manager.get_computed_blocks(Request("c", list(range(10))))[1] == 8
    assert manager.reset_prefix_cache()
    assert manager.get_computed_blocks(Request("c", list(range(10))))[1] == 0


def test_decode_chunks_drafts_and_no_room() -> None:
    manager = make()
    a = Request("a", list(range(30)))
    new = manager.allocate_slots(a, 8)
    assert new is not None and new.get_block_ids() == ([1, 2],)
    a.num_computed_tokens = 8
    new = manager.allocate_slots(a, 22, num_lookahead_tokens=3)
    assert new is not None and new.get_block_ids() == ([3, 4, 5, 6, 7, 8, 9],)
    a.num_computed_tokens = 30
    a.all_token_ids.append(77)
    new = manager.allocate_slots(a, 3)
    assert new is not None and new.get_block_ids() == ([],) and new.get_block_ids(True) is None
    a.num_computed_tokens = 31
    assert manager.allocate_slots(a, 12) is None
    assert manager.get_block_ids("a")[0] == list(range(1, 10))
    b = Request("b", [5] * 9)
    assert start(manager, b)[1] is None
    assert manager.get_block_ids("b") == ([],)
    with pytest.raises(ValueError, match="num_new_tokens"):
        manager.allocate_slots(a, 0)


def test_the_cache_learns_where_prompts_end() -> None:
    """In chunks, with an answer behind it, and after fewer hits than there are."""
    manager = make(24)
    a = Request("a", list(range(30)))
    found = list[int]()

    def prompt(name: str) -> int:
        return int(manager._held[name].seq.info().prompt_tokens)

    for n in 8, 12, 10:
        assert manager.allocate_slots(a, n) is not None
        a.num_computed_tokens += n
        found.append(prompt("a"))
    assert found == [8, 8, 30]
    again = Request("again", [7] * 20, num_prompt_tokens=9)
    fewer = Request("fewer", list(range(30)))
    assert start(manager, again)[1] is not None
    assert manager.allocate_slots(fewer, 22, 8, manager.empty_kv_cache_blocks) is not None
    assert (prompt("again"), prompt("fewer")) == (9, 30)
    again.all_token_ids.append(7)
    again.num_computed_tokens = 20
    assert manager.allocate_slots(again, 1) is not None and prompt("again") == 9


def test_what_separates_requests() -> None:
    manager = make(num_blocks=64)
    lora = types.SimpleNamespace(lora_name="x")
    image = types.SimpleNamespace(mm_position=types.SimpleNamespace(offset=5))
    kinds: list[dict[str, Any]] = [{}, {"cache_salt": "s"}, {"lora_request": lora}]
    for i, more in enumerate(kinds):
        hit, _ = start(manager, Request(str(i), list(range(13)), **more))
        assert hit == 0
        assert manager.get_computed_blocks(Request("n", list(range(13)), **more))[1] == 12
    hit, _ = start(manager, Request("image", list(range(13)), mm_features=[image]))
    assert hit == 4, "nothing is shared from the item's block on"
    skips = Request("skips", list(range(13)), skip_reading_prefix_cache=True)
    assert start(manager, skips)[0] == 0


def test_a_lora_that_is_loaded_again() -> None:
    """The same name from other files, from the same place with another number, or in place."""
    manager = make(num_blocks=64)
    tokens = list(range(13))

    def hit(path: str, number: int, **more: Any) -> Any:
        lora = types.SimpleNamespace(lora_name="x", lora_path=path, lora_int_id=number, **more)
        request = Request(f"{path} {number}", tokens, lora_request=lora)
        found, _ = start(manager, request)
        manager.free(request)
        return found

    assert [hit("/one", 1), hit("/other", 1), hit("/one", 2)] == [0, 0, 0]
    assert [hit("/one", 1), hit("/other", 1), hit("/one", 2)] == [12, 12, 12]
    assert [hit("/one", 3, load_inplace=True), hit("/one", 3, load_inplace=True)] == [0, 0]
    manager.cache.check()


def test_delayed_caching() -> None:
    manager = make()
    a = Request("a", list(range(9)))
    manager.allocate_slots(a, 9, delay_cache_blocks=True)
    assert manager.get_computed_blocks(Request("b", list(range(9))))[1] == 0
    manager.cache_blocks(a, 8)
    assert manager.get_computed_blocks(Request("b", list(range(9))))[1] == 8


def test_less_than_there_is() -> None:
    """A scheduler that takes fewer cached tokens than were found."""
    manager = make()
    a = Request("a", list(range(13)))
    start(manager, a)
    b = Request("b", list(range(13)))
    new = manager.allocate_slots(b, 9, 4, manager.empty_kv_cache_blocks)
    assert new is not None and len(new.ids[0]) == 3
    assert manager.get_block_ids("b")[0][0] == manager.get_block_ids("a")[0][0]


def test_watermark_and_whole_sequence() -> None:
    status = types.SimpleNamespace(name="WAITING")
    manager = make(watermark=0.3)
    a = Request("a", list(range(30)), status=status)
    assert manager.allocate_slots(a, 30) is None
    assert manager.allocate_slots(a, 30, has_scheduled_reqs=False) is not None
    b = Request("b", [9] * 20)
    assert manager.allocate_slots(b, 4, full_sequence_must_fit=True) is None
    assert manager.allocate_slots(b, 4) is not None


def test_a_decode_step_returns_at_once() -> None:
    """Nothing is asked of the cache while a step fills no block and needs none."""
    manager = make(num_blocks=20)
    a = Request("a", list(range(6)))
    start(manager, a)
    a.num_computed_tokens = 6
    calls = []
    with_calls = manager._grow
    manager._grow = lambda *given: calls.append(given) or with_calls(*given)  # type: ignore
    for token in range(6, 30):
        a.all_token_ids.append(token)
        n_before = len(calls)
        new = manager.allocate_slots(a, 1)
        assert new is not None and len(new.ids[0]) == (token % 4 == 0)
        # A block is full with its last token, and the next token needs one.
        assert len(calls) - n_before == ((token + 1) % 4 == 0 or token % 4 == 0)
        a.num_computed_tokens += 1
        b = Request(f"b{token}", a.all_token_ids + [99])
        assert manager.get_computed_blocks(b)[1] == (token + 1) // 4 * 4
        manager.cache.check()
    assert manager.get_blocks("a").get_unhashed_block_ids() == [8]


def test_what_connectors_call() -> None:
    manager = make(num_blocks=20)
    a, b = Request("a", list(range(10))), Request("b", list(range(10)))
    start(manager, a)
    assert manager.get_computed_blocks_for_connector(b)[1:] == (8, 0, False)
    assert manager.get_block_ids_for_computed_tokens("a", 5) == ([1, 2],)
    assert manager.get_block_ids_for_computed_tokens("a", 10) == ([1, 2, 3],)
    assert manager.get_block_ids_for_computed_tokens("nobody", 10) == ([],)
    assert manager.finalize_partial_tail_offloads(a) == []
    manager.remove_skipped_blocks(request_id="a", processed_computed_tokens=10,
                                  num_prompt_tokens=10)
    assert manager.get_block_ids("a") == ([1, 2, 3],)
    blocks = manager.get_blocks("a")
    assert manager.truncate_computed_blocks(blocks, 4) is blocks
    # KV from elsewhere: blocks that nobody finds before the load is done.
    c = Request("c", [70 + i for i in range(9)])
    new = manager.allocate_slots(c, 0, num_external_computed_tokens=8, delay_cache_blocks=True)
    assert new is not None and len(new.ids[0]) == 2
    assert manager.get_blocks("c").get_unhashed_block_ids_all_groups() == [new.ids[0]]
    assert manager.get_computed_blocks(Request("d", c.all_token_ids))[1] == 0
    manager.cache_blocks(c, 8)
    assert manager.get_blocks("c").get_unhashed_block_ids() == []
    assert manager.get_computed_blocks(Request("d", c.all_token_ids))[1] == 8


def test_evicted_blocks_are_not_found() -> None:
    manager = make(num_blocks=20)
    a, b = Request("a", list(range(17))), Request("b", [50 + i for i in range(9)])
    start(manager, a)
    start(manager, b)
    manager.free(b)
    ids = manager.get_block_ids("a")[0]

    def hits() -> list[int]:
        return [manager.get_computed_blocks(Request(name, list(one.all_token_ids)))[1]
                for name, one in (("c", a), ("d", b))]

    assert hits() == [16, 8]
    manager.evict_blocks({ids[1], 6, 0})  # one that a request has; the first of b's; null
    assert hits() == [4, 0]
    assert manager.get_block_ids("a") == (ids,)
    manager.cache.check()
    manager.free(a)
    assert manager.usage == 0.0
    with pytest.raises(kvpager.ArgError):
        manager.evict_blocks({20})


class Stored:
    """In the place of vLLM's structures, where it is not installed."""

    def __init__(self, block_hashes: list[int], parent_block_hash: int | None,
                 token_ids: list[int], block_size: int, lora_id: int | None, medium: str | None,
                 lora_name: str | None, extra_keys: Any = None) -> None:
        self.__dict__.update(locals())


class Removed:
    def __init__(self, block_hashes: list[int], medium: str | None) -> None:
        self.__dict__.update(locals())


class Cleared:
    pass


@pytest.fixture
def structures(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    made = types.ModuleType("vllm.distributed.kv_events")
    made.__dict__.update(BlockStored=Stored, BlockRemoved=Removed, AllBlocksCleared=Cleared)
    monkeypatch.setitem(sys.modules, "vllm.distributed.kv_events", made)
    for name in ("vllm", "vllm.distributed"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setattr(sys.modules["vllm"], "__version__", "0.33.0", raising=False)
    with fake_modules.anew("kvpager.vllm"):
        yield


def test_events(structures: None) -> None:
    manager = make(num_blocks=4, enable_kv_cache_events=True)
    a = Request("a", list(range(9)))
    start(manager, a)
    stored, = manager.take_events()
    assert (len(stored.block_hashes), stored.parent_block_hash) == (2, None)
    assert all(0 <= name < 2**64 for name in stored.block_hashes)
    assert stored.token_ids == list(range(8))
    assert (stored.block_size, stored.medium, stored.lora_name) == (4, "GPU", None)
    assert stored.extra_keys is None
    manager.free(a)
    start(manager, Request("b", [50] * 9))
    events = manager.take_events()
    assert [type(event) for event in events] == [Removed, Removed, Stored]
    assert sorted(events[0].block_hashes + events[1].block_hashes) == sorted(stored.block_hashes)
    assert manager.take_events() == []
    manager.free(Request("b", []))
    assert manager.reset_prefix_cache()
    assert [type(event) for event in manager.take_events()] == [Cleared]


def test_events_of_separated_requests(structures: None) -> None:
    """Whose LoRA it is, in each block, as vLLM tells it; those with a salt are not told."""
    manager = make(num_blocks=14, enable_kv_cache_events=True)
    lora: dict[str, Any] = {"lora_request": types.SimpleNamespace(lora_name="x")}
    salt: dict[str, Any] = {"cache_salt": "s"}
    kinds: list[tuple[dict[str, Any], str | None]] = [
        ({}, None), (salt, ""), (lora, "x"), (lora | salt, "")]
    for i, (more, name) in enumerate(kinds):
        request = Request(str(i), list(range(9)), **more)
        start(manager, request)
        request.num_computed_tokens = 9
        told = manager.take_events()
        request.all_token_ids.extend([1, 2, 3])
        manager.allocate_slots(request, 3)
        told += manager.take_events()
        assert [(type(one), one.lora_name, one.extra_keys) for one in told] == (
            [] if name == "" else [
                (Stored, name, [("x",)] * 2 if name else None),
                (Stored, name, [("x",)] if name else None)])
        manager.free(request)
    assert len(manager._separated) == 9
    start(manager, Request("all", [70 + i for i in range(52)]))
    assert [type(event) for event in manager.take_events()].count(Removed) == 6
    assert not manager._separated


def test_events_need_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm.distributed.kv_events", None)
    made = types.ModuleType("vllm")
    made.__version__ = "0.33.0"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", made)
    with fake_modules.anew("kvpager.vllm"), \
            pytest.raises(ValueError, match="enable_kv_cache_events"):
        make(enable_kv_cache_events=True)


# --------------------------------------------------------------------------- vLLM's own manager


def vllm_manager(parts: Any, num_blocks: int, size: int, max_model_len: int) -> Any:
    spec = parts.spec.FullAttentionSpec(block_size=size, num_kv_heads=1, head_size=1,
                                        dtype=parts.torch.float32)
    config = parts.spec.KVCacheConfig(num_blocks=num_blocks, kv_cache_tensors=[], kv_cache_groups=[
        parts.spec.KVCacheGroupSpec(["layer"], spec)])
    return parts.manager.KVCacheManager(config, max_model_len, size, size)


def vllm_request(parts: Any, name: str, tokens: list[int], size: int) -> Any:
    parts.utils.init_none_hash(parts.hashing.sha256)
    return parts.request.Request(
        request_id=name, prompt_token_ids=list(tokens),
        sampling_params=parts.sampling.SamplingParams(max_tokens=64), pooling_params=None,
        block_hasher=parts.utils.get_request_block_hasher(size, parts.hashing.sha256))


def test_beside_vllms_own_manager() -> None:
    """The same requests on both: the same hits, the same refusals, the same usage."""
    parts = vllm_parts()
    size, num_blocks = 4, 40
    theirs = vllm_manager(parts, num_blocks, size, 256)
    ours = KVCacheManager(num_blocks, size, 256)
    running: list[Any] = []
    waiting: list[Any] = []
    draw, hits, refusals = random.Random(3), 0, 0
    for turn in range(2000):
        if len(waiting) < 2 and draw.random() < 0.3:
            base = draw.randrange(3) * 1000
            tokens = [base + i for i in range(draw.randrange(1, 40))] + [draw.randrange(5)]
            waiting.append(vllm_request(parts, f"r{turn}", tokens, size))
        if waiting and draw.random() < 0.5:
            request = waiting[0]
            found = theirs.get_computed_blocks(request)
            mine = ours.get_computed_blocks(request)
            assert mine[1] == found[1]
            n = min(request.num_tokens - found[1], draw.randrange(4, 30))
            given = theirs.allocate_slots(request, n, found[1], found[0])
            new = ours.allocate_slots(request, n, mine[1], mine[0])
            assert (given is None) == (new is None)
            if given is None:
                refusals += 1
            else:
                hits += found[1]
                request.num_computed_tokens = found[1] + n
                running.append(waiting.pop(0))
        for request in list(running):
            n = min(request.num_tokens - request.num_computed_tokens, 8)
            if n == 0:
                request.append_output_token_ids(draw.randrange(5))
                n = 1
            given, new = theirs.allocate_slots(request, n), ours.allocate_slots(request, n)
            assert (given is None) == (new is None)
            if given is None or request.num_tokens > 60:
                refusals += given is None
                for manager in (theirs, ours):
                    manager.free(request)
                running.remove(request)
                if given is None:
                    request.num_computed_tokens = 0
                    waiting.insert(0, request)
                continue
            assert new is not None
            assert len(new.ids[0]) == len(given.get_block_ids()[0])
            request.num_computed_tokens += n
            assert len(ours.get_block_ids(request.request_id)[0]) == len(
                theirs.get_block_ids(request.request_id)[0])
        assert ours.usage == pytest.approx(theirs.usage)
        ours.cache.check()
    assert hits > 1000 and refusals > 20
    for request in running:
        theirs.free(request)
        ours.free(request)
    assert theirs.reset_prefix_cache() and ours.reset_prefix_cache()
