"""Nothing of the headers is forgotten: every public function is used by the package."""

from __future__ import annotations

import pathlib
import re

from kvpager._native import ffi
from kvpager._records import STRUCTS

PYTHON = pathlib.Path(__file__).resolve().parents[1]

# What stands in Python for a function that the package does not call.
INSTEAD = {
    "kvp_cache_config": "Cache.config, which copies it",
    "kvp_status_name": "Error.name", "kvp_status_text": "Error.text",
    "kvp_status_class": "base classes of exceptions",
    "kvp_snapshot_save": "kvp_snapshot_save_file",
    "kvp_sched_bytes": "no memory is given", "kvp_wire_sender_bytes": "no memory is given",
    "kvp_wire_mirror_bytes": "no memory is given",
    # One record at a time is for the tool that shrinks logs; OpLog.replay runs a whole one.
    "kvp_call_run": "OpLog.replay", "kvp_handle_flip": "OpLog.replay",
    "kvp_outcome_free": "OpLog.replay",
}


def public_headers() -> list[pathlib.Path]:
    """Of the library that the wheel contains: stores and kvpager/ucx/link.h are of other ones."""
    return [header for header in (PYTHON.parent / "include" / "kvpager").glob("*.h")
            if header.name not in ("store.h", "identity.h", "spill.h")]


def public_functions() -> set[str]:
    found = set()
    for header in public_headers():
        found |= set(re.findall(r"\bKVP_(?:API|SIZED)\b[^;()]*?\b(kvp_\w+)\(", header.read_text()))
    return found


def test_structs_that_grow_end_with_a_field() -> None:
    """What lies behind the last field of a program's struct may be anything, and must never become
    a field of a later version."""
    for header in public_headers():
        for name in re.findall(r"^typedef struct (kvp_\w+) \{\n    size_t struct_size;",
                               header.read_text(), re.MULTILINE):
            field, place = ffi.typeof(name).fields[-1]
            end = place.offset + ffi.sizeof(place.type)
            assert end == ffi.sizeof(name), f"{name}: {field} ends at {end}; name the rest reserved"


def test_every_function_is_used() -> None:
    functions = public_functions()
    assert len(functions) > 150
    sources = [*PYTHON.glob("kvpager/**/*.py"), *PYTHON.glob("native/*.c")]
    words = set(re.findall(r"\w+", " ".join(path.read_text() for path in sources)))
    # A guarded twin, see shim.h; the names of senders' and receivers' are put together.
    text = (PYTHON / "kvpager" / "_transfer.py").read_text()
    words |= {f"kvpg_{side}_{name}" for side in ("sender", "receiver")
              for name in re.findall(r'_call\("(\w+)"', text)}
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
