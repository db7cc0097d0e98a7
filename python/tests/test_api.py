"""Nothing of the headers is forgotten: every public function is used by the package."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import re
from typing import Any

import pytest

from kvpager._native import ffi
from kvpager._records import STRUCTS

PYTHON = pathlib.Path(__file__).resolve().parents[1]

# What stands in Python for a function that the package does not call.
INSTEAD = {
    "kvp_cache_config_get": "Cache.config, which copies it",
    "kvp_status_name": "Error.name", "kvp_status_text": "Error.text",
    "kvp_status_class": "base classes of exceptions",
    "kvp_snapshot_save": "kvp_snapshot_save_file", "kvp_ticket_read": "kvp_ticket_group",
    "kvp_sched_bytes": "no memory is given", "kvp_wire_sender_bytes": "no memory is given",
    "kvp_wire_mirror_bytes": "no memory is given",
    "kvp_attention_team_wrap": "Team: an engine's own threads are not Python's",
    # One record at a time is for the tool that shrinks logs; OpLog.replay runs a whole one.
    "kvp_oplog_call_run": "OpLog.replay", "kvp_handle_flip": "OpLog.replay",
    "kvp_outcome_free": "OpLog.replay",
}

# The headers of libkvpager_store, which kvpager.store has.
STORE_HEADERS = ("identity.h", "store.h", "spill.h")
# The header of libkvpager_zmq, which kvpager.publish has.
PUBLISH_HEADERS = ("publish.h",)
# Fields of its configurations that no call sets; those that are set by a name put together.
NOT_SET = {"struct_size", "reserved", "now", "now_context", "note", "note_context", "rope_bytes",
           "draft_bytes"}


def public_headers() -> list[pathlib.Path]:
    return list((PYTHON.parent / "include" / "kvpager").glob("*.h"))


def functions_of(headers: list[pathlib.Path]) -> set[str]:
    found = set()
    for header in headers:
        found |= set(re.findall(r"\bKVP_API\b[^;()]*?\b(kvp_\w+)\(", header.read_text()))
    return found


def structs_that_grow(headers: list[pathlib.Path]) -> list[str]:
    return [name for header in headers
            for name in re.findall(r"^typedef struct (kvp_\w+) \{\n    size_t struct_size;",
                                   header.read_text(), re.MULTILINE)]


def ends_with_a_field(name: str, of: Any) -> bool:
    """What lies behind the last field of a program's struct may be anything, and must never become
    a field of a later version: the rest must be named reserved."""
    _, place = of.typeof(name).fields[-1]
    return bool(place.offset + of.sizeof(place.type) == of.sizeof(name))


def test_structs_that_grow_end_with_a_field() -> None:
    names = structs_that_grow([header for header in public_headers()
                               if header.name not in STORE_HEADERS + PUBLISH_HEADERS])
    assert len(names) > 15 and [name for name in names if not ends_with_a_field(name, ffi)] == []


def test_stores_are_there_where_they_were_built() -> None:
    """Tests of stores are skipped where these are missing; not where they cannot be loaded."""
    there = importlib.util.find_spec("kvpager._store_native") is not None
    assert there or not os.environ.get("KVP_PYTHON_STORES")
    if there:
        importlib.import_module("kvpager.store")


def test_structs_of_stores() -> None:
    """The same; and each field of a configuration is set."""
    store = pytest.importorskip("kvpager.store", exc_type=ImportError)
    names = structs_that_grow([header for header in public_headers()
                               if header.name in STORE_HEADERS])
    assert len(names) >= 3
    text = " ".join((PYTHON / "kvpager" / name).read_text()
                    for name in ("store.py", "spill.py", "_identity.py"))
    words = set(re.findall(r"\w+", text))
    for name in names:
        assert ends_with_a_field(name, store.ffi), name
        assert {field for field, _ in store.ffi.typeof(name).fields} - words <= NOT_SET, name


def test_the_publisher_is_there_where_it_was_built() -> None:
    """And each field of its configuration is set."""
    there = importlib.util.find_spec("kvpager._publish_native") is not None
    assert there or not os.environ.get("KVP_PYTHON_PUBLISHER")
    publish = pytest.importorskip("kvpager.publish", exc_type=ImportError)
    words = set(re.findall(r"\w+", (PYTHON / "kvpager" / "publish.py").read_text()))
    name = "kvp_publisher_config"
    assert ends_with_a_field(name, publish.ffi)
    assert {field for field, _ in publish.ffi.typeof(name).fields} - words <= NOT_SET


def test_every_function_is_used() -> None:
    functions = functions_of(public_headers())
    assert len(functions) > 180
    assert len(functions_of([header for header in public_headers()
                             if header.name in STORE_HEADERS])) >= 30
    sources = [*PYTHON.glob("kvpager/**/*.py"), *PYTHON.glob("native/*.c")]
    words = set(re.findall(r"\w+", " ".join(path.read_text() for path in sources)))
    # A guarded twin, see shim.h; the names of senders' and receivers' are put together.
    text = (PYTHON / "kvpager" / "_transfer.py").read_text()
    words |= {f"kvpg_{side}_{name}" for side in ("sender", "receiver")
              for name in re.findall(r'_call\("(\w+)"', text)}
    text = (PYTHON / "kvpager" / "store.py").read_text()
    words |= {f"kvpg_store_{name}" for name in re.findall(r'_(?:begin|record)\("(\w+)"', text)}
    used = {name for name in functions if name in words or f"kvpg_{name[4:]}" in words}
    assert functions - used == set(INSTEAD)


def test_explanations_say_a_line_once() -> None:
    """A field's comment of several lines is wrapped in its record's docstring, not repeated."""
    seen = 0
    for record in STRUCTS:
        lines = (record.__doc__ or "").split("\n")
        seen += len(lines)
        assert not [line for i, line in enumerate(lines[1:]) if line.strip() and line == lines[i]]
    assert seen > 300


def test_notices_of_what_is_compiled_in() -> None:
    spec = importlib.util.find_spec("kvpager._native")
    assert spec is not None and spec.origin is not None
    package = pathlib.Path(spec.origin).parent
    notices = (package / "THIRD-PARTY-NOTICES").read_text(encoding="utf-8")
    for words in ["Yann Collet", "BSD 2-Clause", "Redistributions in binary form", "\ncffi, in"]:
        assert words in notices
    assert "Apache License" in (package / "LICENSE").read_text(encoding="utf-8")
