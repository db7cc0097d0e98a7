"""What must never leave kvpager.vllm's classes, whatever a request has and whatever fails inside: an
exception, and KV that is not the request's."""

from __future__ import annotations

import logging
import pathlib
import random
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from engine_server import free_port, redis, redis_program, without_redis
from test_vllm_connector import BLOCK_BYTES, S, Engine, config, groups, lora, nothing_stays
from test_vllm_connector import prometheus, store
from test_vllm_connector import v as v  # noqa: PLC0414

PROMPT = [i % 50 for i in range(41)]

# What the connector leaves as vLLM has it, and that does nothing there. A method that vLLM adds is in
# no list: it is looked at, and then it is in one.
THEIRS = {
    "bind_gpu_block_pool", "bind_kv_cache_manager", "clear_connector_metadata", "finish_forward",
    "get_external_cache_hit_sources", "get_finished", "get_finished_count", "get_handshake_metadata",
    "get_kv_connector_kv_cache_events", "get_loaded_kv_cache_group_ids", "get_mem_pool_context",
    "get_required_kvcache_layout", "get_transfer_results", "handle_preemptions",
    "has_connector_metadata", "has_pending_block_frees", "has_pending_push_work", "on_new_request",
    "register_finished_partial_tail", "requires_piecewise_for_cudagraph", "reset_capture_state",
    "role", "set_host_xfer_buffer_ops", "set_xfer_handshake_metadata",
    "set_xfer_handshake_metadata_pp_aware", "supports_divergent_local_hybrid_hits"}
AT_START = {"register_kv_caches", "build_kv_connector_stats", "build_prom_metrics"}


@pytest.fixture
def said(v: Any) -> Iterator[list[str]]:
    """Lines of ours, as vLLM's log has them."""
    lines = list[str]()
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    theirs = logging.getLogger("vllm")
    level = theirs.level
    theirs.addHandler(handler)
    theirs.setLevel(logging.INFO)
    yield lines
    theirs.removeHandler(handler)
    theirs.setLevel(level)


def names_of(*classes: Any) -> set[str]:
    return {name for one in classes for kind in one.__mro__[:-1] for name in vars(kind)
            if not name.startswith("_") and kind.__name__ not in ("ABC", "Generic", "Protocol")}


def test_every_method_that_vllm_calls_has_an_answer(v: Any) -> None:
    from kvpager.vllm import versions

    theirs = names_of(versions.ConnectorBase, versions.SupportsHMA)
    answered = set(v.module._ANSWERS)
    ours = {name for name in vars(v.Connector) if not name.startswith("_")}
    assert theirs - THEIRS - AT_START - answered == {"requires_kv_delivery"}
    assert not THEIRS & ours, "what we have of our own, we answer for"
    assert ours == answered | AT_START | {"requires_kv_delivery"}
    assert all(hasattr(vars(v.Connector)[name], "__wrapped__") for name in answered)


def test_a_method_without_an_answer_is_refused() -> None:
    from kvpager._guard import never_raises

    with pytest.raises(TypeError, match="forgotten"):
        @never_raises({"known": lambda self: None})
        class _Some:
            def known(self) -> None: ...
            def forgotten(self) -> None: ...


# ----------------------------------------------------------------------------- faults inside


class Fault(RuntimeError):
    pass


PLACES = ["planner.answer", "planner.admitted", "planner.step", "planner.learn", "planner._save",
          "planner._prefix", "mover.bound", "mover.begin", "mover.end", "mover._load", "mover._ask",
          "mover._save", "mover.poll", "mover._copies", "mover.found", "mover._drop", "mover._write",
          "mover._begin_writes", "mover._put", "mover._get", "mover._have", "mover._choose",
          "mover._advance", "mover._finish", "mover._prompt", "mover._chain", "mover._read",
          "mover.gauges", "mover.failed", "mover.close", "planner.ended", "planner.reset"]


def failing(target: Any, name: str, dice: random.Random, often: float, after: bool) -> None:
    """Some calls of a method raise, before they do something or after it."""
    inner = getattr(target, name)

    def outer(*given: Any, **named: Any) -> Any:
        if dice.random() >= often:
            return inner(*given, **named)
        if after:
            inner(*given, **named)
        raise Fault(name)

    outer.__name__ = name
    setattr(target, name, outer)


class Tolerant(Engine):
    """As vLLM with kv_load_failure_policy=recompute: blocks that a load has not filled are computed."""

    def step(self) -> None:
        for worker in self.workers:
            inner = worker.get_block_ids_with_load_errors

            def errors(inner: Any = inner) -> set[int]:
                bad: set[int] = inner()
                self.invalid |= bad
                for one in self.running:
                    at = [i for blocks in one.blocks for i, block in enumerate(blocks)
                          if block in bad]
                    if at and min(at) * S < one.num_computed_tokens:
                        self.again.append((one, min(at) * S))
                return set()
            worker.get_block_ids_with_load_errors = errors
        self.invalid, self.again = set[int](), list[Any]()
        super().step()
        for worker in self.workers:
            del worker.get_block_ids_with_load_errors

    def _forward(self, rank: int, scheduled: dict[str, int], before: dict[str, int]) -> None:
        for one, at in self.again:  # what is not right is computed in this step
            if at < before.get(one.request_id, 0):
                scheduled = {**scheduled, one.request_id: scheduled[one.request_id]
                             + before[one.request_id] - at}
                before = {**before, one.request_id: at}
        super()._forward(rank, scheduled, before)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("place", PLACES)
def test_faults_inside_cost_a_computation(v: Any, place: str, after: bool, tmp_path: pathlib.Path) -> None:
    """No exception leaves the connector, no step sees foreign KV, every request ends."""
    dice, n_errors = random.Random(f"{place} {after}"), 0
    for life in range(2):
        engine = Tolerant(v, {"host_memory": 40 * BLOCK_BYTES, "record_blocks": 1, "deadline": 0.02,
                              "store": f"file:{tmp_path}?size=64MiB", "load": "always"}, 5 + life)
        room, name = place.split(".")
        target = (engine.scheduler._plan if room == "planner" else engine.workers[0]._move)
        failing(target, name, dice, 0.3, after)
        for turn in range(6):
            engine.add(PROMPT[:20 + turn] + [turn] * 9, n_out=5)
            for _ in range(3):
                engine.step()
            if turn == 4:
                engine.scheduler.reset_cache()
        engine.run()
        engine.close()
        n_errors += sum(one.troubles.counts[count] for one in (engine.scheduler, *engine.workers)
                        for count in ("errors", "load_failed", "not_kept"))
    assert n_errors > 0 or name in ("reset", "failed", "gauges", "_load", "close")


def test_a_fault_is_counted_and_told_once(v: Any, said: list[str]) -> None:
    engine = Engine(v, {"host_memory": 64 * BLOCK_BYTES}, 1)
    failing(engine.scheduler._plan, "answer", random.Random(1), 1.0, False)
    for _ in range(3):
        engine.add(PROMPT)
        engine.run()
    assert engine.loaded == 0 and engine.scheduler.get_kv_connector_stats().data["errors"] == 3
    assert len([line for line in said if "defect of kvpager" in line]) == 1
    engine.close()


def test_a_promise_that_breaks_is_a_failed_load(v: Any) -> None:
    """KV was promised, and what notes its blocks fails: none counts as loaded."""
    engine = Tolerant(v, {"host_memory": 64 * BLOCK_BYTES}, 1)
    engine.add(PROMPT)
    engine.run()
    failing(engine.scheduler._plan, "admitted", random.Random(1), 1.0, False)
    request = engine.add(PROMPT)
    while request in engine.waiting:
        engine.step()
    assert engine.loaded == 40 and len(engine.invalid) == 11
    engine.run()
    assert engine.counts().get("loaded_tokens", 0) == 0 and engine.counts()["lost"] == 1
    engine.close()


def test_a_reset_that_fails_ends_hits(v: Any) -> None:
    """Of other weights nothing is ever found."""
    engine = Engine(v, {"host_memory": 64 * BLOCK_BYTES}, 1)
    engine.add(PROMPT)
    engine.run()
    failing(engine.scheduler._plan, "reset", random.Random(1), 1.0, False)
    assert engine.scheduler.reset_cache() is False
    engine.add(PROMPT)
    engine.run()
    assert engine.loaded == 0
    engine.close()


# ------------------------------------------------------------------------- what a request holds


@pytest.mark.parametrize("path", ["an-owner/an-adapter", "~/no-such-adapter", "/no/such/adapter", "",
                                  None, 7, "a\0b"])
def test_an_adapter_that_is_not_here_is_computed(v: Any, path: Any, said: list[str]) -> None:
    """By a Hugging Face id, below `~`, removed."""
    engine = Engine(v, {"host_memory": 64 * BLOCK_BYTES}, 1)
    for _ in range(2):
        engine.add(PROMPT).lora_request = lora(path)
        engine.run()
    assert engine.loaded == 0 and engine.counts().get("saved_tokens", 0) == 0
    assert engine.scheduler.get_kv_connector_stats().data["adapters"] == 2
    assert len([line for line in said if "adapter" in line or "defect" in line]) == 1
    engine.add(PROMPT)
    engine.run()
    nothing_stays(engine)


def test_an_adapter_below_the_home_directory(v: Any, tmp_path: pathlib.Path,
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "adapter.safetensors").write_text("weights")
    engine = Engine(v, {"host_memory": 64 * BLOCK_BYTES}, 1)
    for path, loaded in (("~/mine", 0), (str(tmp_path / "mine"), 40)):
        engine.add(PROMPT).lora_request = lora(path)
        engine.run()
        assert engine.loaded == loaded
    engine.close()


def test_an_adapter_whose_files_change_is_computed(v: Any, tmp_path: pathlib.Path) -> None:
    """The engine goes on with what it has loaded, and nobody can tell what that is."""
    file = tmp_path / "adapter.safetensors"
    engine = Engine(v, {"host_memory": 64 * BLOCK_BYTES}, 1)
    for number, text, in_place, loaded in ((1, "one", False, 0), (1, "one", False, 40),
                                           (1, "other", False, 40), (2, "other", False, 40),
                                           (2, "other", False, 80), (3, "other", True, 80)):
        if not file.exists() or file.read_text() != text:
            file.write_text(text)
        request = engine.add(PROMPT)
        request.adapter = text if number != 1 else "one"
        request.lora_request = lora(str(tmp_path), number, load_inplace=in_place)
        engine.run()
        assert engine.loaded == loaded, (number, text)
    assert engine.scheduler.troubles.counts["adapters"] == 2
    engine.close()


class Odd:
    """Nothing of it is as it should be."""

    def __getattr__(self, name: str) -> Any:
        raise ValueError(f"{name}: cannot be told")


def odd_values(dice: random.Random) -> dict[str, list[Any]]:
    position = SimpleNamespace(offset=dice.randrange(60), length=dice.randrange(-2, 70))
    return {
        "cache_salt": ["s", "s" * 5000, "\udcff", 7, b"x", ["s"]],
        "lora_request": [lora("/no/such"), lora("a/b"), lora(None), lora("~x", -1), Odd(), 5, "name"],
        "mm_features": [[], [None], [Odd()], 7,
                        [SimpleNamespace(identifier=dice.choice(["a", None, "", "\udcff", 5]),
                                         mm_position=dice.choice([position, None, Odd()]))] * 3],
        "prompt_embeds": [object(), [1.5], 0],
        "prompt_token_ids": [None, [], [5]],
        "skip_reading_prefix_cache": [True, None, 1],
        "priority": [None, -5, 1 << 70],
        "sampling_params": [None, Odd()],
        "all_token_ids": [[1 << 40] * 41, [-1] * 41, ["a"] * 41, [None] * 41, [2.5] * 41],
    }


@pytest.mark.parametrize("seed", range(40))
def test_whatever_a_request_holds(v: Any, seed: int, tmp_path: pathlib.Path) -> None:
    """Odd requests among others: each ends, none of theirs sees foreign KV."""
    dice = random.Random(seed)
    engine = Engine(v, {"host_memory": dice.choice([7, 64]) * BLOCK_BYTES, "record_blocks": 1,
                        "deadline": dice.choice([0, 0.01]), "store": f"file:{tmp_path}?size=64MiB"},
                    seed, drafts=dice.choice([0, 3]), windows=dice.choice([(0,), (0, 9)]))
    for _ in range(25):
        request = engine.add(PROMPT[:dice.choice([1, 3, 4, 5, 41])], n_out=dice.randrange(1, 9))
        values = odd_values(dice)
        odd = dice.sample(sorted(values), dice.choice([0, 1, 1, 2]))
        for name in odd:
            setattr(request, name, dice.choice(values[name]))
        if {"all_token_ids", "prompt_token_ids"} & set(odd):  # the engine of the test computes them; the connector is only asked
            assert len(engine.scheduler.get_num_new_matched_tokens(request, 0)) == 2
            blocks = dice.choice([Odd(), SimpleNamespace(get_block_ids=lambda: ([1],)), None])
            engine.scheduler.update_state_after_alloc(request, blocks, 0)
            engine.finish(request)
            continue
        if request.prompt_embeds is not None or request.lora_request:
            request.adapter = f"only {request.request_id}"
        for _ in range(dice.randrange(3)):
            engine.step()
    engine.run()
    engine.close()


@pytest.mark.parametrize("seed", range(10))
def test_whatever_vllm_hands_over(v: Any, seed: int) -> None:
    """Arguments of every method that are not what they should be."""
    dice = random.Random(seed)
    engine = Engine(v, {"host_memory": 64 * BLOCK_BYTES}, 1)
    engine.add(PROMPT)
    engine.run()
    odd: list[Any] = [None, Odd(), 5, "x", [], {}, SimpleNamespace(request_id=None),
           SimpleNamespace(kv_connector_worker_meta=Odd()), ([None],)]
    arguments = {"get_num_new_matched_tokens": 2, "update_state_after_alloc": 3,
                 "build_connector_meta": 1, "update_connector_output": 1, "request_finished": 2,
                 "request_finished_all_groups": 2, "start_load_kv": 1, "wait_for_save": 0,
                 "get_block_ids_with_load_errors": 0, "build_connector_worker_meta": 0,
                 "bind_connector_metadata": 1, "get_kv_connector_stats": 0, "shutdown": 0,
                 "wait_for_layer_load": 1, "save_kv_layer": 3, "reset_cache": 0, "take_events": 0}
    assert arguments.keys() == v.module._ANSWERS.keys()
    for _ in range(60):
        name = dice.choice(sorted(arguments))
        for one in (engine.scheduler, engine.workers[0]):
            getattr(one, name)(*(dice.choice(odd) for _ in range(arguments[name])))
    engine.close()


# --------------------------------------------------------------------------------------- stores


def test_a_prompt_that_is_longer_than_host_memory(v: Any, tmp_path: pathlib.Path,
                                                  said: list[str]) -> None:
    """Its beginning is kept, loaded, and after a restart read from the store."""
    extra = {"host_memory": 10 * BLOCK_BYTES, "record_blocks": 2, "load": "always", "deadline": 1000,
             "store": f"file:{tmp_path}?size=64MiB"}
    for turn in range(2):
        engine = Engine(v, extra, 1)
        for again in range(2):
            engine.add(PROMPT)
            engine.run()
            assert engine.loaded == 8 * S * (again + turn)
        assert engine.workers[0].troubles.counts["too_long"] == 2
        engine.close()
    told, = {line for line in said if "longer than host memory" in line}
    assert "only its first 32 " in told and "Raise host_memory" in told


def test_lines_of_a_store_are_in_vllm_s_log(v: Any, tmp_path: pathlib.Path, said: list[str]) -> None:
    """A line when it ceases to work, with the reason, and one when it works again."""
    engine = Engine(v, {"host_memory": 64 * BLOCK_BYTES, "record_blocks": 1,
                        "store": f"file:{tmp_path}?size=64MiB"}, 1)
    watch, = engine.workers[0]._move.stores.watches

    def saw(op: int, *results: int) -> list[str]:
        before = len(said)
        for result in results:
            watch.saw(SimpleNamespace(op=op, result=result))
        if watch.telling is not None:
            watch.telling.join()
        return said[before:]

    assert any(str(tmp_path) in line and "blocks of" in line for line in said), said
    line, = saw(store.STORE_PUT, store.STORE_NO_ROOM, store.STORE_NO_ROOM, store.STORE_FAILED)
    assert str(tmp_path) in line and "has no room" in line and "MiB of its disk are free" in line
    assert saw(store.STORE_PUT, store.STORE_KNOWN) == []
    line, = saw(store.STORE_PUT, store.STORE_OK, store.STORE_OK)
    assert line.endswith("writes again")
    assert saw(store.STORE_PUT, store.STORE_NO_ROOM) == [], "not more often than once a minute"
    tmp_path.rename(tmp_path.with_name("gone"))
    line, = saw(store.STORE_GET, store.STORE_FAILED, store.STORE_AWAY)
    assert "fails" in line and line.endswith("No such file or directory")
    tmp_path.with_name("gone").rename(tmp_path)
    engine.close()


@pytest.mark.parametrize("keeps", ["yes", "no"])
def test_a_redis_that_is_killed_and_comes_back(v: Any, tmp_path: pathlib.Path, said: list[str],
                                               keeps: str) -> None:
    """A line for each turn. Requests are computed meanwhile, and afterwards records come back: the old
    ones, or, of a server that lost them, those that are written again."""
    if redis_program() is None:
        pytest.skip("there is no redis-server (Debian: redis-tools)")
    port = free_port()
    extra = {"host_memory": 11 * BLOCK_BYTES, "record_blocks": 1, "load": "always", "deadline": 60,
             "store": f"redis://127.0.0.1:{port}"}

    def ask(first: int = 0) -> int:
        """Tokens that came from the store; host memory has room for one prompt."""
        before = engine.counts().get("store_tokens", 0)
        engine.add([first, *PROMPT[1:]])
        engine.run()
        engine.workers[0]._move.settle(60)
        return engine.counts().get("store_tokens", 0) - before

    def away() -> float:
        return float(engine.workers[0]._move.stores.all[0].stats().away_ns)

    with redis(tmp_path, port=port, keeps=keeps) as url:
        if (reason := without_redis(url)) is not None:
            pytest.skip(f"the Python package reaches no Redis: {reason}")
        engine = Engine(v, extra, 1)
        assert [ask(), ask(1), ask()] == [0, 0, 40] and away() == 0
        del said[:]
    assert [ask(2), ask(3)] == [0, 0] and away() > 0
    watch, = engine.workers[0]._move.stores.watches
    watch.telling.join()
    line, = said
    assert "so requests are computed, and nothing is written to it: " in line and "refused" in line
    del said[:]
    with redis(tmp_path, port=port, keeps=keeps):
        until, came = time.monotonic() + 60, 0
        while not came and time.monotonic() < until:
            time.sleep(0.05)
            came = ask() + 0 * ask(1)
        assert came == 40 and away() == 0
        assert len(said) == 1 and said[0].endswith(" works again"), said
        assert engine.counts().get("errors", 0) == engine.counts().get("bad", 0) == 0
        engine.close()


def test_gauges_of_stores(v: Any, tmp_path: pathlib.Path) -> None:
    engine = Engine(v, {"host_memory": 64 * BLOCK_BYTES, "record_blocks": 1,
                        "store": f"file:{tmp_path}?size=64MiB"}, 1)
    mover = engine.workers[0]._move
    engine.add(PROMPT)
    engine.run()
    mover.settle(30)
    now = [1000.0]
    mover._clock = lambda: now[0]
    stats = engine.workers[0].get_kv_connector_stats()
    url = f"file:{tmp_path}?size=64MiB"
    assert stats.data["stores"][f"0 {url}"]["store_records"] == 10
    assert "stores" not in stats.reduce() and not stats.is_empty()
    now[0] += 0.5
    assert engine.workers[0].get_kv_connector_stats() is None
    now[0] += 1
    assert engine.workers[0].get_kv_connector_stats() is None, "nothing has changed"
    other = type(stats)(data={"stores": {f"1 {url}": {"store_records": 3}}, "saved_tokens": 1})
    both = stats.aggregate(other)
    assert len(both.data["stores"]) == 2 and both.data["saved_tokens"] == 41
    if not v.real:
        told = prometheus(v)
        told.observe({**both.data, "stores": {**both.data["stores"]}})
        values = told._gauges["store_records"].values
        assert values == {("0", "0", url): 10, ("0", "1", url): 3}
        told.observe({"stores": 5})
        assert told.troubles.counts["errors"] == 1
    engine.close()


@pytest.mark.parametrize("url, text", [
    ("file:/dev/null/kv?size=64MiB", "cannot be made: Not a directory"),
    ("file:/no/such/place?size=64MiB", "cannot be made: No such file"),
    (f"file:/tmp/{'x' * 300}?size=64MiB", "cannot be made: File name too long")])
def test_a_store_that_cannot_be_opened_is_refused_once(v: Any, url: str, text: str) -> None:
    """With its reason; and the end of the worker adds nothing to it."""
    from test_vllm_connector import LAYERS, HEADS, SIZE, Tensor
    import numpy as np

    worker = v.Connector(config({"host_memory": 64 * BLOCK_BYTES, "store": url}), v.Role.WORKER,
                         groups())
    with pytest.raises(Exception, match=text):
        worker.register_kv_caches({f"g0l{i}": Tensor(np.zeros((9, HEADS, S, 2 * SIZE), np.float32))
                                   for i in range(LAYERS)})
    worker.shutdown()
    assert worker.troubles.counts == {}


@pytest.mark.parametrize("given", [5, None, [5], {"url": "x"}, b"file:x"])
def test_a_store_that_is_no_url(v: Any, given: Any) -> None:
    with pytest.raises(ValueError, match="store: needs a URL as file:.*not "):
        v.module.Settings({"host_memory": 1, "store": given})


def test_nothing_is_left_running() -> None:
    assert not [one for one in threading.enumerate() if one.name.startswith("_tell")]
