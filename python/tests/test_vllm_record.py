"""kvpager.record, and KvpagerConnector with record_only: an engine that looks up, preempts, aborts and
ends requests, against what it did; read by the reader of test/tools, which has none of kvpager's code."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import pathlib
import random
import shutil
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import fake_vllm

record = pytest.importorskip("kvpager.record", exc_type=ImportError)
if shutil.which("zstd") is None:
    pytest.skip("there is no zstd", allow_module_level=True)

_TOOLS = pathlib.Path(__file__).resolve().parents[2] / "test" / "tools"
sys.path.append(str(_TOOLS))
lib_recording: Any = importlib.import_module("lib_recording")

HAS_VLLM = importlib.util.find_spec("vllm") is not None
S = 4


@pytest.fixture(scope="module")
def v() -> Iterator[Any]:
    with contextlib.nullcontext() if HAS_VLLM else fake_vllm.installed():
        from kvpager.vllm import connector, record_only, recording, versions

        yield SimpleNamespace(Connector=connector.KvpagerConnector, Role=versions.ConnectorRole,
                              RecordOnly=record_only.RecordOnly, module=recording,
                              Metadata=versions.ConnectorMetadata)


def config(extra: dict[str, Any], caching: bool = True) -> Any:
    return SimpleNamespace(
        kv_transfer_config=SimpleNamespace(kv_connector_extra_config=extra, is_kv_producer=True),
        model_config=SimpleNamespace(model="a/model"), parallel_config=SimpleNamespace(),
        cache_config=SimpleNamespace(block_size=S, hash_block_size=None, enable_prefix_caching=caching))


class Request(SimpleNamespace):
    """vLLM's Request, as far as the connector looks at it."""

    def __init__(self, name: str, tokens: list[int], salt: str | None = None, lora: Any = None) -> None:
        super().__init__(request_id=name, tokens=tokens, num_prompt_tokens=len(tokens), cache_salt=salt,
                         lora_request=lora, arrival_time=time.time(), block_hashes=[])
        self.update()

    def update(self) -> None:
        before = self.block_hashes[-1] if self.block_hashes else repr((self.cache_salt, bool(self.lora_request))).encode()
        while (len(self.block_hashes) + 1) * S <= len(self.tokens):
            n = len(self.block_hashes) * S
            before = hashlib.sha256(before + repr(self.tokens[n:n + S]).encode()).digest()
            self.block_hashes.append(before)

    @property
    def num_output_tokens(self) -> int:
        return len(self.tokens) - int(self.num_prompt_tokens)

    def sample(self, token: int) -> None:
        self.tokens.append(token)
        self.update()


def read(folder: pathlib.Path) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, int]]:
    files = list(folder.iterdir())
    assert len(files) == 1 and files[0].name.endswith(".kvprec"), files
    made: tuple[dict[str, Any], list[dict[str, Any]], dict[str, int]] = lib_recording.read(files[0].read_bytes())
    return made


def numbers(request: dict[str, Any]) -> list[int]:
    return [first + i for first, n in request["blocks"] for i in range(n)]


class Engine:
    """What vLLM's scheduler calls, in its order."""

    def __init__(self, v: Any, folder: pathlib.Path, **extra: Any) -> None:
        self.role = v.Role.SCHEDULER
        self.connector = v.Connector(config({"record_only": True, "record": str(folder), **extra}), self.role)
        assert isinstance(self.connector, v.RecordOnly)

    def look_up(self, request: Request, local: int) -> None:
        assert self.connector.get_num_new_matched_tokens(request, local) == (0, False)

    def admit(self, request: Request) -> None:
        self.connector.update_state_after_alloc(request, None, 0)

    def step(self) -> None:
        assert self.connector.build_connector_meta(None) is not None

    def finish(self, request: Request) -> None:
        assert self.connector.request_finished_all_groups(request, ([1],)) == (False, None)


def test_what_an_engine_did_is_in_the_file(v: Any, tmp_path: pathlib.Path) -> None:
    engine, draw, wanted = Engine(v, tmp_path), random.Random(3), []
    heads = [[draw.randrange(1000) for _ in range(10)] for _ in range(3)]
    for i in range(60):
        lora = SimpleNamespace(lora_name="a", lora_path="/a") if i % 7 == 0 else None
        request = Request(f"r{i}", draw.choice(heads) + [draw.randrange(1000) for _ in range(draw.randrange(9))],
                          draw.choice([None, "tenant"]), lora)
        local = len(request.tokens) // S // 2 * S
        for _ in range(draw.randrange(3)):  # there was no room yet
            engine.look_up(request, draw.randrange(5))
        engine.look_up(request, local)
        engine.admit(request)
        engine.step()
        for j in range(draw.randrange(6)):
            request.sample(draw.randrange(1000))
            engine.step()
            if j == 2:  # preempted, and looked up again
                engine.look_up(request, len(request.tokens) // S * S)
                engine.admit(request)
        engine.finish(request)
        wanted.append((request, local))
    gone = Request("gone", [1] * 9)  # aborted before it was admitted: nothing was computed
    engine.look_up(gone, 0)
    engine.finish(gone)
    engine.finish(Request("unseen", [1] * 9))
    engine.connector.shutdown()
    header, requests, counts = read(tmp_path)
    assert (header["source"], header["block_tokens"], header["model"]) == (1, S, "a/model")
    assert header["engine"].startswith("vllm 0.")
    assert (len(requests), counts["lost"], counts["requests"]) == (60, 0, 60)
    names: dict[bytes, int] = {}
    scopes: dict[Any, Any] = {}
    n_cut = 0
    for got, (request, local) in zip(requests, wanted):
        assert got["input_tokens"] == request.num_prompt_tokens
        assert got["output_tokens"] == request.num_output_tokens
        assert got["cached_tokens"] == local
        assert abs(got["time_us"] - request.arrival_time * 1e6) < 2
        assert ("first_us" in got) == (request.num_output_tokens > 0)
        assert 0 <= got.get("first_us", 0) <= got["last_us"] < 60e6
        # The KV of the last token is never computed.
        n_full = (request.num_prompt_tokens + max(request.num_output_tokens - 1, 0)) // S
        n_cut += n_full < len(request.block_hashes)
        assert len(numbers(got)) == n_full
        for number, name in zip(numbers(got), request.block_hashes):
            assert names.setdefault(name, number) == number
        scope = request.cache_salt, bool(request.lora_request)
        assert scopes.setdefault(scope, got.get("scope")) == got.get("scope")
    assert len(set(names.values())) == len(names) == counts["contents"]
    assert len(set(scopes.values())) == len(scopes) == 4
    assert scopes[None, False] is None and n_cut > 0


def test_what_is_written_of_a_killed_engine(v: Any, tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(v.module, "_IDLE_SECONDS", 0.01)
    engine = Engine(v, tmp_path)
    request = Request("a", [1] * 9)
    engine.look_up(request, 0)
    engine.admit(request)
    engine.finish(request)
    end = time.time() + 20
    size = 0
    while size < 200 and time.time() < end:  # its header, then the request
        size = next(tmp_path.iterdir()).stat().st_size
        time.sleep(0.01)
    data = next(tmp_path.iterdir()).read_bytes()
    engine.connector.shutdown()
    whole = next(tmp_path.iterdir()).read_bytes()
    assert whole.startswith(data) and len(whole) > len(data)


def test_worker_does_nothing(v: Any, tmp_path: pathlib.Path) -> None:
    worker = v.Connector(config({"record_only": True, "record": str(tmp_path)}), v.Role.WORKER)
    worker.register_kv_caches({"a": None})
    worker.bind_connector_metadata(v.Metadata())
    worker.start_load_kv(None)
    worker.wait_for_layer_load("a")
    worker.save_kv_layer("a", None, None)
    worker.wait_for_save()
    worker.clear_connector_metadata()
    worker.shutdown()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_costs_requests_only(v: Any, tmp_path: pathlib.Path, caplog: Any) -> None:
    engine = Engine(v, tmp_path)

    def full(*given: Any, **named: Any) -> None:
        raise OSError("no space")

    engine.connector._requests._writer._recorder.add = full
    for i in range(3):
        request = Request(f"r{i}", [i] * 9)
        engine.look_up(request, 0)
        engine.admit(request)
        engine.finish(request)
    engine.connector.shutdown()
    assert engine.connector.troubles.counts["not_recorded"] == 3
    assert len(read(tmp_path)[1]) == 0


def test_more_than_is_written_in_time(v: Any, tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(v.module, "_MAX_WAITING", 2)
    monkeypatch.setattr(v.module, "_IDLE_SECONDS", 3600.0)
    engine = Engine(v, tmp_path)
    for i in range(3):
        request = Request(f"r{i}", [i] * 9)
        engine.look_up(request, 0)
        engine.admit(request)
        engine.finish(request)
    engine.connector.shutdown()
    assert engine.connector.troubles.counts["record_late"] == 1
    assert len(read(tmp_path)[1]) == 2


@pytest.mark.parametrize("changes, words", [
    ({"record": None}, "record: is None, expected a directory"),
    ({"record": "/no/such"}, "record: is '/no/such'"),
    ({"record_only": 1}, "record_only: is 1, expected true"),
    ({"max_contents": 0}, "max_contents: is 0"),
    ({"host_memory": "1GiB"}, "host_memory is unknown with record_only"),
])
def test_refused(v: Any, tmp_path: pathlib.Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Engine(v, tmp_path, **changes) if "record_only" not in changes else v.Connector(
            config({"record": str(tmp_path), **changes}), v.Role.SCHEDULER)
    with pytest.raises(ValueError, match="prefix caching"):
        v.Connector(config({"record_only": True, "record": str(tmp_path)}, caching=False), v.Role.SCHEDULER)
    assert list(tmp_path.iterdir()) == []


# -------------------------------------------------------------------------------- kvpager.record


def test_recorder(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "one.kvprec"
    with record.Recorder(path, 16, "me", "a model") as recorder:
        recorder.add(5, 40, 0, [b"a" * 8, b"b" * 8], session=b"s", scope=b"t")
        with pytest.raises(OSError, match="cached_tokens"):
            recorder.add(5, 40, 0, [], cached_tokens=41)
        with pytest.raises(ValueError, match="several lengths"):
            recorder.add(5, 40, 0, [b"a", b"bc"])
        recorder.flush()
        assert recorder.counts() == {"requests": 1, "contents": 2, "forgotten": 0, "lost": 1, "unnumbered": 0}
    recorder.close()
    with pytest.raises(ValueError, match="has ended"):
        recorder.flush()
    _, requests, counts = lib_recording.read(path.read_bytes())
    assert requests == [{"time_us": 5, "input_tokens": 40, "output_tokens": 0, "session": 1, "scope": 1,
                         "blocks": [[0, 2]]}]
    assert counts["lost"] == 1
    with pytest.raises(OSError, match="is there already"):
        record.Recorder(path, 16)
    with pytest.raises(OSError, match="blocks of 0 tokens"):
        record.Recorder(tmp_path / "two.kvprec", 0)
    with pytest.raises(OSError, match="cannot write"):
        record.Recorder(tmp_path / "no" / "such", 1)


def test_a_recording_has_what_its_caller_said(tmp_path: pathlib.Path) -> None:
    """Names that are too long are cut; what was counted is what the file says."""
    path, names = tmp_path / "one.kvprec", ("engine " + "e" * 300, "model " + "m" * 300)
    with record.Recorder(path, 16, *names, max_contents=2) as recorder:
        for i in range(6):
            recorder.add(50 + i, 40, 3, [bytes([2 * i]) * 8, bytes([2 * i + 1]) * 8], cached_tokens=16, first_us=60 + i,
                         last_us=70 + i)
        for _ in range(2):
            with pytest.raises(OSError, match="cached_tokens"):
                recorder.add(5, 40, 0, [], cached_tokens=41)
        recorder.add(90, 17 << 20, 0, [b"x"] * ((1 << 20) + 3))
        told = recorder.counts()
    header, requests, counts = lib_recording.read(path.read_bytes())
    assert (header["engine"], header["model"]) == tuple(name[:255] for name in names)
    assert (header["source"], header["block_tokens"], header["max_contents"]) == (record.ENGINE, 16, 2)
    assert told == counts and (told["requests"], told["lost"], told["unnumbered"]) == (7, 2, 3) and told["forgotten"] > 0
    for i, request in enumerate(requests[:6]):
        assert [request[name] for name in ("time_us", "input_tokens", "output_tokens", "cached_tokens", "first_us",
                                           "last_us")] == [50 + i, 40, 3, 16, 60 + i, 70 + i]
    with record.Recorder(tmp_path / "two.kvprec", 16, "e" * 255, "m" * 254):
        pass
    header, _, _ = lib_recording.read((tmp_path / "two.kvprec").read_bytes())
    assert (header["engine"], header["model"]) == ("e" * 255, "m" * 254)
