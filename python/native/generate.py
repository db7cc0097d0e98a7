"""Makes everything that follows from the public headers alone.

    generate.py --cc CC --include DIR --shim DIR --out DIR

writes to --out:

    native.c       the extension module kvpager._native, for cffi's API mode: every public function
                   and type, the guarded twins (see shim.h), and what shim.h declares
    _constants.py  every KVP_ constant, without the prefix
    _errors.py     an exception class for each status
    _records.py    a NamedTuple for each struct of plain numbers, its fields explained as there;
                   a TypedDict for each configuration

and store_native.c, _store_constants.py and _store_records.py: the same of libkvpager_store;
publish_native.c and so on of libkvpager_zmq; and record_native.c.

So a function, a field, a constant or a status that is new in a header is there after a build; what
is left to do by hand is a method with a Python name (docs/PYTHON.md, "A new function").
"""

import argparse
import pathlib
import re
import subprocess
import tempfile
import textwrap
from typing import Any

from cffi import FFI

# What a kvpy_object may hold: the parameters that become guarded.
OPAQUE = ["kvp_cache", "kvp_sched", "kvp_wire_sender", "kvp_wire_mirror", "kvp_copier", "kvp_oplog",
          "kvp_sender", "kvp_receiver", "kvp_store", "kvp_spill", "kvp_publisher"]
# What one may hold besides: calls take the pointer itself, and need no guard.
UNGUARDED = ["kvp_memory", "kvp_attention_team", "kvp_loopback", "kvp_shm", "kvp_tcp",
             "kvp_digester"]
HANDLES = ["kvp_seq", "kvp_ns", "kvp_request"]
HASHES = ["kvp_hash", "kvp_digest"]

# "Thread: any" in the headers: may run beside another call.
READERS = ["kvp_cache_stats_get", "kvp_events_read", "kvp_store_stats_get", "kvp_store_record_blocks",
           "kvp_store_group_blocks",
           "kvp_store_fd", "kvp_store_wait", "kvp_store_describe"]

# Headers of libkvpager_store, and what of it keeps the interpreter's lock.
STORE_HEADERS = ("identity.h", "store.h", "spill.h")
STORE_SHORT = ["kvpg_store_put", "kvpg_store_get", "kvpg_store_have", "kvpg_store_drop",
               "kvpg_store_evict", "kvpg_store_sync", "kvpg_store_poll", "kvpg_store_stats_get",
               "kvpg_store_record_blocks", "kvpg_store_group_blocks", "kvpg_store_fd", "kvpy_object_is_open", "kvp_bad_name",
               "kvp_found_name", "kvp_spill_outcome_name", "kvp_record_key", "kvp_namespace_number", "kvp_digest_root"]

# The same of libkvpager_zmq.
PUBLISH_HEADERS = ("publish.h",)
PUBLISH_SHORT = ["kvpy_object_is_open", "kvpg_publisher_stats_get", "kvpg_publisher_space"]

# Calls of a few nanoseconds keep the interpreter's lock: letting go of it costs more than they do.
SHORT = [
    "kvpg_cache_stats_get", "kvpg_cache_shortage_get", "kvpg_step_done",
    "kvpg_ns_close", "kvpg_sched_pause", "kvpg_sched_resume", "kvpg_request_info_get",
    "kvpg_sched_hold", "kvpg_sched_skip_load", "kvpg_sched_release", "kvpg_request_sample", "kvpy_object_is_open", "kvpg_cache_can_extend", "kvpg_wire_mirror_info_get",
    "kvpg_wire_mirror_seq",
    "kvpy_dl_new", "kvp_memory_tensor", "kvp_status_name", "kvp_status_text", "kvp_status_class",
    # Both ends of a loopback have one memory, and no lock of their own.
    "kvpy_link_post", "kvpy_link_take", "kvpg_sender_mark", "kvpg_sender_ready",
    "kvpg_sender_progress", "kvpg_sender_abort", "kvpg_sender_close", "kvpg_sender_detach",
    "kvpg_receiver_progress", "kvpg_receiver_abort", "kvpg_receiver_close",
    "kvpg_receiver_detach", "kvp_loopback_cut", "kvp_shm_connect", "kvp_tcp_connect",
    "kvp_tcp_flush",
]

# Python functions that C calls (kvpager/_snapshot.py, kvpager/_inspect.py).
CALLBACKS = """
extern "Python" int kvpy_snapshot_get(void *, const kvp_snapshot_block *, void *);
extern "Python" int kvpy_snapshot_put(void *, const kvp_snapshot_block *, const void *);
extern "Python" void kvpy_snapshot_tell(void *, const kvp_snapshot_item *);
extern "Python" void kvpy_arena_tell_seq(void *, const kvp_arena_seq *);
extern "Python" void kvpy_arena_tell_quota(void *, uint32_t, const kvp_ns_info *);
"""

STORE_CALLBACKS = """
extern "Python" void kvpy_scan_directory(void *, const kvp_store_directory *);
extern "Python" void kvpy_scan_record(void *, const kvp_store_record *);
"""

HEADER = '"""Made from the public headers by generate.py. Do not edit."""\n'


def preprocess(cc: str, include: pathlib.Path, header: pathlib.Path) -> str:
    """A header and those that it includes as one text for cffi: no directives, nothing of the C library's."""
    with tempfile.TemporaryDirectory() as empty:
        for name in ("stddef.h", "stdint.h"):
            (pathlib.Path(empty) / name).write_text("")
        command = [cc, "-E", "-P", "-x", "c", "-nostdinc", "-I", empty, "-I", str(include),
                   "-DKVPY_CDEF", "-U__GNUC__", str(header)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout


def headers(include: pathlib.Path) -> list[pathlib.Path]:
    """Those of libkvpager."""
    return [header for header in sorted((include / "kvpager").glob("*.h"))
            if header.name not in STORE_HEADERS + PUBLISH_HEADERS]


def macros(of: list[pathlib.Path]) -> tuple[list[str], dict[str, str]]:
    """Names of the macros that are numbers; those that are strings, with their text."""
    numbers, strings = [], {}
    for header in of:
        for name, value in re.findall(r"^#define (KVP_\w+)[ \t]+(\S[^\n]*)$", header.read_text(),
                                      re.MULTILINE):
            value = re.sub(r"/\*.*", "", value).strip()
            if re.fullmatch(r'"[^"\\]*"', value):
                strings[name] = value[1:-1]
            elif re.fullmatch(r"\(?-?\w+\)?", value) and name not in ("KVP_API", "KVP_EXTENSION"):
                numbers.append(name)
    return numbers, strings


# ---------------------------------------------------------------------------------- the twins


def parameters(text: str) -> list[tuple[str, str]]:
    """[(type, name)] of a prototype's parameters."""
    found = []
    for parameter in text.split(","):
        match = re.fullmatch(r"\s*(.*?)(\w+)\s*", parameter, re.DOTALL)
        assert match, parameter
        found.append((" ".join(match[1].split()), match[2]))
    return found


def twin(result: str, name: str, takes: list[tuple[str, str]]) -> tuple[str, str] | None:
    """The guarded form of one function: (prototype, definition); None when it needs none.

    A guarded object stands in for each pointer to an opaque type, the bits for a handle, two
    numbers for a range; an empty object for what is created. The result is a status; what is none
    goes out through out_value.
    """
    objects, declared, passed, made, own = [], [], [], "", ""
    for kind, parameter in takes:
        bare = kind.replace("const ", "").strip()
        if bare.endswith(" *") and bare[:-2] in OPAQUE:
            objects.append(parameter)
            declared.append(f"kvpy_object *{parameter}")
            passed.append(f"atomic_load_explicit(&{parameter}->pointer, memory_order_relaxed)")
        elif bare.endswith(" **") and bare[:-3] in OPAQUE + UNGUARDED:
            declared.append(f"kvpy_object *{parameter}")
            passed.append("&made")
            made = f"    {bare[:-3]} *made = NULL;\n"
            own = f"    if (status == KVP_OK)\n        kvpy_own({parameter}, made);\n"
        elif bare in HANDLES:
            declared.append(f"uint64_t {parameter}")
            passed.append(f"({bare}){{.bits = {parameter}}}")
        elif bare == "kvp_range":
            declared.append(f"uint32_t {parameter}_begin, uint32_t {parameter}_end")
            passed.append(f"(kvp_range){{{parameter}_begin, {parameter}_end}}")
        else:
            declared.append(f"{kind}{'' if kind.endswith('*') else ' '}{parameter}")
            passed.append(parameter)
    if not objects and not made or name.endswith(("_destroy", "_close")) and result == "void":
        return None
    call = f"{name}({', '.join(passed)})"
    if result == "kvp_status":
        body = f"    status = (int){call};\n"
    elif result == "void":
        body = f"    {call};\n"
    else:
        declared.append(f"{result}{'' if result.endswith('*') else ' '}*out_value")
        body = f"    *out_value = {call};\n"
    prototype = f"int kvpg_{name[4:]}({', '.join(declared)})"
    if not objects:
        return prototype + ";", (f"static {prototype}\n{{\n{made}    int status = (int){call};\n{own}"
                                 f"    return status;\n}}\n")
    enter, leave = "kvpy_enter", "kvpy_leave"
    if name in READERS:
        enter, leave = "kvpy_enter_reader", "kvpy_leave_reader"
    elif name.startswith("kvp_spill_"):  # two locks: of its cache and of its store
        enter, leave = "kvpy_enter_spill", "kvpy_leave_spill"
    # Two objects of one call share a lock (a scheduler and its cache), or one is only read.
    definition = (f"static {prototype}\n{{\n{made}    int status = {enter}({objects[0]});\n"
                  f"    if (status != KVP_OK)\n        return status;\n{body}{own}"
                  f"    {leave}({objects[0]});\n    return status;\n}}\n")
    return prototype + ";", definition


def twins(text: str) -> tuple[list[str], list[str]]:
    prototypes, definitions = [], []
    prototype = re.compile(r"^ *((?:const )?\w+ \*?)\s*(kvp_\w+)\(([^()]*)\);", re.MULTILINE)
    for match in prototype.finditer(text):
        made = twin(match[1].strip(), match[2], parameters(match[3]) if match[3] != "void" else [])
        if made:
            prototypes.append(made[0])
            definitions.append(made[1])
    return prototypes, definitions


def keep_lock(code: str, short: list[str]) -> str:
    """Takes the release of the interpreter's lock out of the wrappers of these functions."""
    for name in short:
        pattern = re.compile(
            r"  Py_BEGIN_ALLOW_THREADS\n  _cffi_restore_errno\(\);\n"
            r"(  \{[^\n]*\b" + name + r"\([^\n]*\n)"
            r"  _cffi_save_errno\(\);\n  Py_END_ALLOW_THREADS\n")
        code, count = pattern.subn(r"\1", code)
        assert count >= 1, f"no wrapper of {name}"
    return code


# ---------------------------------------------------------------------------------- Python files


def write_constants(out: pathlib.Path, text: str, numbers: list[str], strings: dict[str, str],
                    module: str) -> None:
    names = list(numbers)
    for body in re.findall(r"\benum\s*\w*\s*\{(.*?)\}", text, re.DOTALL):
        for entry in body.split(","):
            name = entry.split("=")[0].strip()
            if name.startswith("KVP_") and not name.startswith(("KVP_CALL_", "KVP_E_")):
                names.append(name)
    lines = [HEADER, "from typing import Final", "", f"from .{module} import lib", ""]
    for name in names:
        lines.append(f"{name[4:]}: Final[int] = lib.{name}")
    for name, value in strings.items():
        lines.append(f'{name[4:]}: Final = "{value}"')
    out.write_text("\n".join(lines) + "\n")


CLASSES = {"RETRY": "RetryError", "CALLER": "CallerError", "DATA": "DataError",
           "SYSTEM": "SystemFailure"}
# Also an exception that Python code already looks for.
ALSO = {"E_ARG": "ValueError", "E_NO_MEMORY": "MemoryError", "E_IO": "OSError",
        "E_TOO_LONG": "ValueError", "E_TOO_SMALL": "ValueError"}


def error_name(status: str) -> str:
    return "".join(part.capitalize() for part in status[2:].split("_")) + "Error"


def write_errors(out: pathlib.Path, include: pathlib.Path) -> None:
    table = (include / "kvpager" / "types.h").read_text()
    rows = re.findall(r'X\((E_\w+), (-?\d+), (\w+), "([^"]*)"\)', table)
    lines = [HEADER, "from ._base_errors import (CallerError, DataError, Error, RetryError,",
             "                           SystemFailure)", ""]
    for name, number, class_, text in rows:
        bases = CLASSES[class_] + (f", {ALSO[name]}" if name in ALSO else "")
        lines += ["", f"class {error_name(name)}({bases}):", f'    """KVP_{name}: {text}."""', "",
                  f"    status = {number}", f'    name = "KVP_{name}"', f'    text = "{text}"', ""]
    lines += ["", "BY_STATUS: dict[int, type[Error]] = {"]
    lines += [f"    {number}: {error_name(name)}," for name, number, _, _ in rows]
    lines += ["}", "", "__all__ = ["] + [f'    "{error_name(row[0])}",' for row in rows] + ["]"]
    (out / "_errors.py").write_text("\n".join(lines) + "\n")


def field_comments(of: list[pathlib.Path]) -> dict[tuple[str, str], str]:
    """What the headers say beside the fields: {(struct, field): text}."""
    found: dict[tuple[str, str], str] = {}
    for header in of:
        text = header.read_text()
        for body, name in re.findall(r"^typedef struct \w+ \{\n(.*?)^\} (\w+);", text,
                                     re.DOTALL | re.MULTILINE):
            for field, comment in re.findall(
                    r"\b(\w+)(?:\[\w+\])?;[ \t]*/\*(.*?)\*/", body, re.DOTALL):
                comment = " ".join(comment.split()).replace("\\", "\\\\")
                found[name, field] = comment
    return found


def plain_fields(ffi: FFI, name: str) -> list[tuple[str, str]] | None:
    """[(field, Python type)] of a struct that is made of numbers, hashes and such structs."""
    kind: Any = ffi.typeof(name)
    if kind.kind != "struct" or kind.fields is None:
        return None
    fields = []
    for field, description in kind.fields:
        of = description.type
        if of.kind in ("primitive", "enum"):
            fields.append((field, "float" if of.cname in ("double", "float") else "int"))
        elif of.cname in HANDLES:
            fields.append((field, "int"))
        elif of.cname in HASHES:
            fields.append((field, "bytes"))
        elif of.kind == "array" and of.item.kind == "primitive" and of.item.cname != "char":
            fields.append((field, "tuple[int, ...]"))
        elif of.kind == "struct" and plain_fields(ffi, of.cname) is not None:
            fields.append((field, record_name(of.cname)))
        else:
            return None
    if any(field == "struct_size" for field, _ in fields):
        return None
    return fields


def record_name(struct: str) -> str:
    return "".join(part.capitalize() for part in struct[4:].split("_"))


def explained(field: str, width: int, comment: str) -> list[str]:
    """One field's lines in a docstring."""
    indent = " " * (width + 6)
    first, *rest = textwrap.wrap(comment, 98, initial_indent=indent, subsequent_indent=indent) or [""]
    return [f"    {field:<{width}}  {first.strip()}".rstrip(), *rest]


def write_records(out: pathlib.Path, ffi: FFI, text: str, of: list[pathlib.Path],
                  configs: bool) -> None:
    comments = field_comments(of)
    structs = re.findall(r"^\} (kvp_\w+);", text, re.MULTILINE)
    records: dict[str, list[tuple[str, str]]] = {}
    for struct in structs:
        fields = plain_fields(ffi, struct) if struct not in ("kvp_status", "kvp_call_op") else None
        if fields and struct not in HANDLES + HASHES:
            records[struct] = fields
    lines = [HEADER, "from __future__ import annotations", "", "from collections.abc import Sequence",
             "from typing import NamedTuple, TypedDict", ""]
    made = {record_name(struct) for struct in records}
    kinds = {kind for fields in records.values() for _, kind in fields if kind.isidentifier()}
    others = sorted(kinds - made - {"int", "float", "bytes"})
    if others:
        lines += [f"from ._records import {', '.join(others)}", ""]
    for struct, fields in records.items():
        lines += ["", f"class {record_name(struct)}(NamedTuple):", f'    """{struct}.', ""]
        width = max((len(field) for field, _ in fields), default=0)
        for field, _ in fields:
            lines += explained(field, width, comments.get((struct, field), ""))
        lines += ['    """', ""]
        # A tuple has methods of these names already; nobody misses them here.
        default = " = 0" if struct == "kvp_group" else ""
        lines += [f"    {field}: {kind}{default}" + ("  # type: ignore[assignment]"
                                                     if field in ("index", "count") else "")
                  for field, kind in fields] + [""]
    inits = set() if not configs else set(re.findall(r"void kvp_(\w+)_init\(", text))
    for struct in sorted(f"kvp_{name}" for name in inits):
        fields = []
        for field, description in ffi.typeof(struct).fields:
            of = description.type
            if of.kind == "primitive" and field not in ("struct_size", "reserved"):
                fields.append((field, "float" if of.cname == "double" else "int"))
            elif of.kind == "array" and record_name(of.item.cname) in made:
                fields.append((field, f"Sequence[{record_name(of.item.cname)} | tuple[int, ...]]"))
            elif of.kind == "array" and of.item.kind == "primitive":
                fields.append((field, "Sequence[int]"))
        lines += ["", f"class {record_name(struct)}Fields(TypedDict, total=False):",
                  f'    """{struct}: what may be set.', ""]
        width = max((len(field) for field, _ in fields), default=0)
        for field, _ in fields:
            lines += explained(field, width, comments.get((struct, field), ""))
        lines += ['    """', ""] + [f"    {field}: {kind}" for field, kind in fields] + [""]
    lines += ["", "STRUCTS: dict[type, str] = {"]
    lines += [f'    {record_name(struct)}: "{struct}",' for struct in records]
    lines += ["}", "", "__all__ = ["] + [f'    "{record_name(s)}",' for s in records] + ["]"]
    out.write_text("\n".join(lines) + "\n")


def declared(of: list[pathlib.Path]) -> str:
    """What headers declare, as they are, without comments."""
    text = "".join(header.read_text() for header in of)
    return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)


def only(text: str, names: set[str]) -> str:
    """Preprocessed text without the prototypes of functions that are none of these."""
    prototype = re.compile(r"^ *(?:const )?\w+ \*?\s*(kvp_\w+)\([^()]*\);\n", re.MULTILINE)
    return prototype.sub(lambda match: match[0] if match[1] in names else "", text)


def write_module(out: pathlib.Path, ffi: FFI, name: str, shim: str, text: str,
                 numbers: list[str], callbacks: str, short: list[str]) -> None:
    """The C source of an extension module, out/NAME.c."""
    prototypes, definitions = twins(text)
    ffi.cdef(text + "\n".join(prototypes) + "\n" + callbacks
             + "".join(f"#define {number} ...\n" for number in numbers))
    ffi.set_source(f"kvpager._{name}", f'#include "{shim}"\n\n' + "\n".join(definitions))
    source = out / f"{name}.c"
    ffi.emit_c_code(str(source))
    source.write_text(keep_lock(source.read_text(), short))


def make_library(cc: str, include: pathlib.Path, shim: pathlib.Path, out: pathlib.Path) -> None:
    text, of, ffi = preprocess(cc, include, shim / "shim.h"), headers(include), FFI()
    numbers, strings = macros(of)
    write_module(out, ffi, "native", "shim.h", text, numbers, CALLBACKS, SHORT)
    write_constants(out / "_constants.py", text, numbers, strings, "_native")
    write_errors(out, include)
    write_records(out / "_records.py", ffi, text, of, configs=True)


def make_store(cc: str, include: pathlib.Path, shim: pathlib.Path, out: pathlib.Path) -> None:
    of, ffi = [include / "kvpager" / name for name in STORE_HEADERS], FFI()
    own = declared(of)
    text = only(preprocess(cc, include, shim / "store_shim.h"),
                set(re.findall(r"\b(kvp_\w+)\(", own)))
    numbers, strings = macros(of)
    write_module(out, ffi, "store_native", "store_shim.h", text, numbers, STORE_CALLBACKS,
                 STORE_SHORT)
    write_constants(out / "_store_constants.py", own, numbers, strings, "_store_native")
    # Configurations of stores have pointers in them; kvpager.store spells their fields out.
    write_records(out / "_store_records.py", ffi, own, of, configs=False)


def make_publish(cc: str, include: pathlib.Path, shim: pathlib.Path, out: pathlib.Path) -> None:
    of, ffi = [include / "kvpager" / name for name in PUBLISH_HEADERS], FFI()
    own = declared(of)
    text = only(preprocess(cc, include, shim / "publish_shim.h"),
                set(re.findall(r"\b(kvp_\w+)\(", own)))
    numbers, strings = macros(of)
    write_module(out, ffi, "publish_native", "publish_shim.h", text, numbers, "", PUBLISH_SHORT)
    write_constants(out / "_publish_constants.py", own, numbers, strings, "_publish_native")
    write_records(out / "_publish_records.py", ffi, own, of, configs=False)


def make_record(shim: pathlib.Path, out: pathlib.Path) -> None:
    """The C source of kvpager._record_native: what record_shim.h declares."""
    ffi = FFI()
    text = re.sub(r"^(#|_Static_assert).*$", "", declared([shim / "record_shim.h"]), flags=re.MULTILINE)
    ffi.cdef("typedef struct kvpi_recorder kvpi_recorder;\n" + text)
    ffi.set_source("kvpager._record_native", '#include "record_shim.h"\n')
    ffi.emit_c_code(str(out / "record_native.c"))


def main() -> None:
    parser = argparse.ArgumentParser()
    for option in ("--cc", "--include", "--shim", "--out"):
        parser.add_argument(option, required=True)
    options = parser.parse_args()
    include, shim, out = (pathlib.Path(path) for path in
                          (options.include, options.shim, options.out))
    out.mkdir(parents=True, exist_ok=True)
    make_library(options.cc, include, shim, out)
    make_store(options.cc, include, shim, out)
    make_publish(options.cc, include, shim, out)
    make_record(shim, out)


if __name__ == "__main__":
    main()
