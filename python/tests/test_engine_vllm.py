"""A real vLLM with KvpagerConnector: the same answers, and KV that comes back. Part of `make engines`.

Everything is compared with vLLM alone, in f32: the same tokens."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
from typing import Any

import pytest

from engine_life import cached, life, of, same, skip_without_vllm, windows_folder

skip_without_vllm()

ALL = ("first", "again", "samples", "crowd", "aborts")
SHORT = ("some", "crowd", "some_again", "aborts")
ONE_PROCESS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}  # so that a scene can look into the connector


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """vLLM without kvpager. In one process, all requests of a scene are there when it begins, so
    preemptions can be counted."""
    told = life(tmp_path_factory.mktemp("alone") / "told.json", *ALL, environment=ONE_PROCESS)
    assert of(told, "vllm:num_preemptions") > 0
    return told


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A directory that tests fill, find full, and damage, in the order of this file."""
    return tmp_path_factory.mktemp("store")


def settings(place: pathlib.Path, host_memory: str = "1GiB") -> dict[str, Any]:
    return {"host_memory": host_memory, "store": f"file:{place}?size=4GiB"}


def as_alone(alone: dict[str, Any], told: dict[str, Any]) -> None:
    """The same answers to all questions that both were asked, and nothing that stays."""
    asked = 0
    for scene in ("first", "again", "crowd", "long", "long_again"):
        if scene in told:
            same(alone[scene], told[scene])
            asked += 1
    for scene in ("some", "some_again"):
        if scene in told:
            same(alone["first"][:12], told[scene])
            asked += 1
    if "samples" in told:
        assert told["samples"] == alone["samples"]
    if "aborts" in told:
        left = sorted(alone["aborts"], key=int)
        assert len(left) == 8 and sorted(told["aborts"], key=int) == left
        same([alone["aborts"][i] for i in left], [told["aborts"][i] for i in left])
    assert asked > 0
    if told["held"] is not None:
        assert told["held"] == {"plans": 0, "fetches": 0, "sequences": 0}


def sure(told: dict[str, Any], *scenes: str) -> None:
    """The premise of comparing tokens: in no place are the two best tokens a rounding apart."""
    assert min(best[0] - best[1] for scene in scenes for one in told[scene]
               for best in one["best"]) > 1e-4


def test_alone_is_sure(alone: dict[str, Any]) -> None:
    sure(alone, "first", "again", "crowd")


def test_the_same_answers(alone: dict[str, Any], place: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A small pool, with preemptions; samples; aborts. What vLLM lost comes back."""
    told = life(tmp_path / "told.json", *ALL, connector=settings(place))
    as_alone(alone, told)
    assert of(told, "vllm:num_preemptions") > 0
    assert cached(told["again"]) > cached(alone["again"])
    assert of(told, "loaded_tokens") > 0 and of(told, "saved_tokens") > 0 and of(told, "stored") > 0
    assert of(told, "bad") == 0 and of(told, "load_failed") == 0


def test_after_a_restart(alone: dict[str, Any], place: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Little host memory, so that the disk is read over and over."""
    told = life(tmp_path / "told.json", "first", "samples", "crowd", "again",
                connector=settings(place, "24MiB"))
    as_alone(alone, told)
    assert of(told, "store_tokens") > 0 and of(told, "bad") == 0
    assert cached(told["first"]) > cached(alone["first"])


@pytest.mark.parametrize("ahead", [False, True], ids=["in order", "ahead"])
def test_nothing_stays(alone: dict[str, Any], tmp_path: pathlib.Path, ahead: bool) -> None:
    """Without and with asynchronous scheduling, all in one process: after preemptions and aborts
    the connector holds nothing."""
    told = life(tmp_path / "told.json", *SHORT, connector={"host_memory": "64MiB"}, ahead=ahead,
                environment=ONE_PROCESS)
    as_alone(alone, told)
    assert told["held"] is not None and told["ahead"] == ahead
    assert of(told, "vllm:num_preemptions") > 0 and of(told, "loaded_tokens") > 0


def test_speculation(alone: dict[str, Any], tmp_path: pathlib.Path) -> None:
    """Drafts from the prompt's own n-grams; those that are refused are never kept."""
    told = life(tmp_path / "told.json", *SHORT, connector={"host_memory": "1GiB"},
                environment=ONE_PROCESS, engine={"speculative_config": {
                    "method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3,
                    "prompt_lookup_min": 1}})
    as_alone(alone, told)
    drafted = of(told, "vllm:spec_decode_num_draft_tokens")
    assert drafted > of(told, "vllm:spec_decode_num_accepted_tokens") > 0
    assert of(told, "loaded_tokens") > 0


# ------------------------------------------------------------------------------ sliding windows

FULL, SLIDING = "FullAttentionSpec", "SlidingWindowSpec"


@pytest.mark.parametrize("kind, hybrid, kinds", [
    ("both", True, [FULL, SLIDING, SLIDING]), ("both", False, [FULL]), ("all", True, [SLIDING])],
    ids=["hybrid", "without the hybrid manager", "windows only"])
def test_windows(tmp_path: pathlib.Path, kind: str, hybrid: bool, kinds: list[str]) -> None:
    """Prefixes of five windows, lost and found again, in host memory and after a restart on disk."""
    given: dict[str, Any] = {
        "model": windows_folder(kind), "environment": ONE_PROCESS,
        "engine": {"num_gpu_blocks_override": 48 if kind == "both" else 14,
                   "disable_hybrid_kv_cache_manager": not hybrid}}
    connector = {**settings(tmp_path / "store"), "record_blocks": 2}  # prompts have six blocks
    alone = life(tmp_path / "alone.json", "long", "long_again", **given)
    sure(alone, "long", "long_again")
    told = life(tmp_path / "told.json", "long", "long_again", connector=connector, **given)
    as_alone(alone, told)
    assert sorted(alone["kinds"]) == sorted(told["kinds"]) == kinds
    assert of(told, "loaded_tokens") > 0 and of(told, "gaps") == of(told, "load_failed") == 0
    assert cached(told["long_again"]) > cached(alone["long_again"])
    told = life(tmp_path / "told.json", "long", connector=connector, **given)
    as_alone(alone, told)
    assert of(told, "store_tokens") > 0 and cached(told["long"]) > cached(alone["long"])


# ------------------------------------------------------------------------------ stores that fail


def in_namespace(*commands: str) -> list[str]:
    """A command before a life: mounts that only it sees. Skips where that is not allowed."""
    if shutil.which("unshare") is None or subprocess.run(
            ["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"], check=False,
            capture_output=True).returncode != 0:
        pytest.skip("a mount namespace cannot be made here")
    return ["unshare", "-rm", "sh", "-c", " && ".join([*commands, 'exec "$@"']), "sh"]


def test_a_full_disk(alone: dict[str, Any], tmp_path: pathlib.Path) -> None:
    """The store may have 4 GiB, and its file system has 12 MiB."""
    place = tmp_path / "full"
    place.mkdir()
    told = life(tmp_path / "told.json", *SHORT,
                before=in_namespace(f"mount -t tmpfs -o size=12m none '{place}'"),
                connector=settings(place, "24MiB"))
    as_alone(alone, told)
    assert of(told, "not_stored") > 0


def test_a_directory_that_cannot_be_written(place: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """It is refused when the engine starts, with its name."""
    with pytest.raises(AssertionError, match=f"KVP_E_IO.*{place}"):
        life(tmp_path / "told.json", "some",
             before=in_namespace(f"mount --bind '{place}' '{place}'",
                                 f"mount -o remount,bind,ro '{place}'"),
             connector=settings(place), environment=ONE_PROCESS)


def test_a_directory_that_becomes_read_only(alone: dict[str, Any], tmp_path: pathlib.Path) -> None:
    """Beside a living engine: no file can be made any more, and none is removed."""
    place = tmp_path / "fixed"
    place.mkdir()
    if subprocess.run(["chattr", "+i", place], check=False, capture_output=True).returncode != 0:
        pytest.skip("chattr +i is not allowed here")
    subprocess.run(["chattr", "-i", place], check=True)
    try:
        told = life(tmp_path / "told.json", "some", "fix", "crowd", "some_again", place=str(place),
                    connector=settings(place, "24MiB"))
    finally:
        subprocess.run(["chattr", "-R", "-i", place], check=True)
    as_alone(alone, told)
    assert told["fix"] > 0


@pytest.mark.parametrize("blow", ["truncate", "remove"])
def test_a_store_that_breaks_beside_a_living_engine(alone: dict[str, Any], tmp_path: pathlib.Path,
                                                    blow: str) -> None:
    place = tmp_path / "broken"
    told = life(tmp_path / "told.json", "some", "crowd", blow, "some_again", place=str(place),
                connector=settings(place, "24MiB"))
    as_alone(alone, told)
    assert told[blow] > 0
    if blow == "truncate":
        assert of(told, "bad") + of(told, "gone") > 0


def test_a_damaged_store(alone: dict[str, Any], place: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Some bytes of every megabyte are others."""
    slabs = [path for path in place.rglob("slab-*") if path.stat().st_size > 1 << 20]
    assert slabs
    for path in slabs:
        with open(path, "r+b") as file:
            for at in range(500_000, path.stat().st_size, 1_000_000):
                file.seek(at)
                file.write(b"kvpager")
    told = life(tmp_path / "told.json", "some", "samples", connector=settings(place))
    as_alone(alone, told)
    assert of(told, "bad") > 0


# ------------------------------------------------------------------------ kvpager's own scheduler


@pytest.mark.parametrize("ahead", [False, True], ids=["in order", "ahead"])
def test_the_scheduler_on_kvpager(alone: dict[str, Any], tmp_path: pathlib.Path, ahead: bool) -> None:
    """--scheduler-cls kvpager.vllm.Scheduler, with a model; ahead also with KvpagerConnector."""
    told = life(tmp_path / "told.json", *(SHORT if ahead else ALL), ahead=ahead,
                connector={"host_memory": "64MiB"} if ahead else None,
                environment=ONE_PROCESS, engine={"scheduler_cls": "kvpager.vllm.Scheduler"})
    as_alone(alone, told)
    assert of(told, "vllm:num_preemptions") > 0
    if ahead:
        assert of(told, "loaded_tokens") > 0
    else:
        assert of(told, "vllm:num_preemptions") == of(alone, "vllm:num_preemptions")
        for scene in ("first", "again", "crowd"):
            assert [one["cached"] for one in told[scene]] == [one["cached"] for one in alone[scene]]
