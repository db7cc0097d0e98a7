"""Operation logs: written by record, read and run again."""

from __future__ import annotations

import os
import pathlib
import sys

import pytest

import kvpager
from kvpager import Cache, OpLog


def write(path: pathlib.Path) -> None:
    with Cache(n_blocks=16, block_tokens=4) as cache, cache.record(path):
        ns = cache.namespace("a")
        seq = ns.open(range(10), tag=5)
        seq.commit(10)
        cache.extend_many([seq], [1])
        with pytest.raises(kvpager.ArgError):
            seq.commit(99)
        seq.close()


def test_read_and_replay(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "run.kvplog"
    write(path)
    with OpLog(path) as log:
        assert (log.config["n_blocks"], log.config["block_tokens"]) == (16, 4)
        calls = [call for call in log if call.name != "config"]
        assert [call.name for call in calls] == [
            "ns_open", "seq_open", "seq_commit", "seq_extend_many", "seq_commit", "seq_close"]
        assert calls[1].tokens is not None and calls[1].tokens.tolist() == list(range(10))
        assert calls[1].arguments["tag"] == 5
        assert (calls[4].status, calls[4].arguments["position"]) == (-1, 99)
        assert len(calls[3].handles) == 1
        log.replay(check_level=3)
    with pytest.raises(kvpager.ClosedError):
        log.replay()
    assert kvpager.call_name(5) == "seq_open" and kvpager.call_name(999) == "?"


def test_a_log_of_a_cache_that_is_closed(tmp_path: pathlib.Path) -> None:
    """It is whole, and its file is closed, too. A second recording is refused, and takes nothing."""
    path, other = tmp_path / "run.kvplog", tmp_path / "other.kvplog"
    n_open = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    cache = Cache(n_blocks=16, block_tokens=4)
    with pytest.raises(kvpager.ClosedError), cache.record(path):
        cache.namespace("a").open(range(10))
        with pytest.raises(kvpager.StateError), cache.record(other):
            pass
        assert not other.exists()
        cache.close()
    other.write_text("another's", encoding="utf-8")
    with Cache(n_blocks=16, block_tokens=4) as late:
        late.namespace("a")
        with pytest.raises(kvpager.StateError), late.record(other):
            pass
    assert other.read_text(encoding="utf-8") == "another's"
    assert sys.platform != "linux" or len(os.listdir("/proc/self/fd")) == n_open
    with OpLog(path) as log:
        assert [call.name for call in log] == ["ns_open", "seq_open"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a system without a full disk")
def test_a_log_on_a_full_disk() -> None:
    with Cache(n_blocks=16, block_tokens=4) as cache:
        with pytest.raises(kvpager.IoError), cache.record("/dev/full"):
            cache.namespace("a").open(range(10)).close()
        cache.check()


def test_damaged_logs(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "run.kvplog"
    write(path)
    data = path.read_bytes()
    with pytest.raises(kvpager.DataError):
        OpLog(b"nonsense")
    cut = OpLog(data[:-3])
    with pytest.raises(kvpager.FormatError, match="byte="):
        list(cut)
    with pytest.raises(kvpager.FormatError) as caught:
        cut.replay()
    assert caught.value.index == 5
