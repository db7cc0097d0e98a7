"""What every room stands on: arrays to pointers and back, structs to records, statuses to errors.

Checks that cost something run only when a call has failed: arrays and numbers go to C as they are
where their type already says that they fit, and the reason is worked out afterwards.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from functools import partial
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from operator import index, is_
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, cast

import numpy as np
import numpy.typing as npt

from ._base_errors import Error
from ._errors import BY_STATUS, ArgError, HandleError
from . import _native
from ._native import ffi, lib
from ._records import STRUCTS, Shortage

I32Array = npt.NDArray[np.int32]
I64Array = npt.NDArray[np.int64]
U32Array = npt.NDArray[np.uint32]
U64Array = npt.NDArray[np.uint64]
U8Array = npt.NDArray[np.uint8]
F32Array = npt.NDArray[np.float32]

# What stands for an array of numbers in calls: an array of exactly that type, which is used in
# place, or a list, tuple or range of ints, which is copied.
Ints = Any

NULL = ffi.NULL
_ndarray = np.ndarray
_from_buffer = ffi.from_buffer

I32, I64 = np.dtype(np.int32), np.dtype(np.int64)
U32, U64, U8 = np.dtype(np.uint32), np.dtype(np.uint64), np.dtype(np.uint8)
F32 = np.dtype(np.float32)
_I32_C, _I64_C = ffi.typeof("int32_t[]"), ffi.typeof("int64_t[]")
_U32_C, _U64_C = ffi.typeof("uint32_t[]"), ffi.typeof("uint64_t[]")
_SEQ_C = ffi.typeof("kvp_seq[]")
_C_OF = {I32: _I32_C, I64: _I64_C, U32: _U32_C, U64: _U64_C, U8: ffi.typeof("uint8_t[]"),
         F32: ffi.typeof("float[]")}


def _second_module() -> Any:
    """kvpager._calls, which is in the same file as kvpager._native (native/calls.c)."""
    loader = ExtensionFileLoader("kvpager._calls", str(_native.__file__))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


calls = _second_module()
if TYPE_CHECKING:
    class Handle:
        """What namespaces and sequences have in common."""

        __slots__ = ()
        _o: Any
        handle: int
        _hit_tokens: int  # of one that open made
else:
    Handle = calls.Handle


class Uncopied:
    """What stands for one object of the library: a copy would be closed beside the original."""

    __slots__ = ()

    def __repr__(self) -> str:
        try:
            state = " open" if lib.kvpy_object_is_open(getattr(self, "_o")) else " closed"
        except (AttributeError, TypeError):  # none is there, or one of the stores' library
            state = ""
        return f"<kvpager.{type(self).__name__}{state}>"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(f"{type(self).__name__}: cannot be copied or pickled, because it stands "
                        f"for one object of the library; pass the object itself")


# ------------------------------------------------------------------------------------- arrays

_OF_STEPS = ("begin", "n_tokens")  # fields of step.seqs that metadata is made of


def _from_numbers(name: str, value: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """A list, tuple or range of Python ints as an array of `dtype`."""
    if dtype is I32 and type(value) in (list, tuple):
        array = np.empty(len(value), I32)
        if calls.ints(value, array, 0, len(array)):
            return array
    try:
        array = np.asarray(value)
    except ValueError as error:  # lists of unequal length
        raise ArgError(f"{name}: {error}") from None
    if array.ndim != 1:
        raise ArgError(f"{name}: needs one dimension, has {array.ndim}")
    if array.size == 0:
        return np.empty(0, dtype)
    if dtype.kind == "f":
        if array.dtype.kind not in "iuf":
            raise TypeError(f"{name}: needs numbers, has {array.dtype}")
        return array.astype(dtype)
    if array.dtype.kind not in "iu" and not all(isinstance(item, int) for item in value):
        raise TypeError(f"{name}: needs ints, has {array.dtype}")
    limits = np.iinfo(dtype)
    low, high = min(value), max(value)
    if low < limits.min or high > limits.max:
        wrong = low if low < limits.min else high
        raise ArgError(f"{name}: {wrong} is not in {limits.min}..{limits.max}")
    return array.astype(dtype)


def array_of(name: str, value: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """`value` as a C-contiguous array of one dimension and this type; copies lists only."""
    if not isinstance(value, _ndarray):
        if isinstance(value, (list, tuple, range)):
            return _from_numbers(name, value, dtype)
        try:
            if hasattr(value, "__dlpack__"):
                value = np.from_dlpack(value)
            else:
                value = np.asarray(memoryview(value))
        except (TypeError, AttributeError):
            raise TypeError(f"{name}: needs an array of {dtype}, "
                            f"not {type(value).__name__}") from None
        except (ValueError, BufferError, RuntimeError) as error:  # released, closed, on a device
            raise ArgError(f"{name}: {error}") from None
    if value.dtype != dtype:
        raise TypeError(f"{name}: needs an array of {dtype}, not of {value.dtype}")
    if value.ndim != 1:
        raise ArgError(f"{name}: needs one dimension, has {value.ndim}")
    if not value.flags.c_contiguous:
        raise ArgError(f"{name}: the array is not contiguous; np.ascontiguousarray({name}) is"
                       + (f", and of a step, step.{name}" if name in _OF_STEPS else ""))
    if not value.flags.aligned:
        raise ArgError(f"{name}: the array is not aligned")
    if value.size >= 2 ** 32:
        raise ArgError(f"{name}: has {value.size} elements")
    return cast("npt.NDArray[Any]", value)


def pointer(name: str, value: Any, dtype: np.dtype[Any]) -> Any:
    """A C array over `value`, whose length is len() of it. The value stays alive with it."""
    return _from_buffer(_C_OF[dtype], array_of(name, value, dtype))


def i32(name: str, value: Any) -> Any:
    try:
        if value.dtype is I32 and value.ndim == 1 and value.flags.aligned:
            return _from_buffer(_I32_C, value)
    except (AttributeError, ValueError, BufferError, TypeError):
        pass
    return pointer(name, value, I32)


def u32(name: str, value: Any) -> Any:
    try:
        if value.dtype is U32 and value.ndim == 1 and value.flags.aligned:
            return _from_buffer(_U32_C, value)
    except (AttributeError, ValueError, BufferError, TypeError):
        pass
    return pointer(name, value, U32)


def _handle(item: Any) -> int:
    return index(getattr(item, "handle", item))


def seqs_of(name: str, value: Any) -> Any:
    """Handles: an array of u64, or sequences; as a C array of kvp_seq."""
    try:
        if value.dtype is U64 and value.ndim == 1 and value.flags.aligned:
            return _from_buffer(_SEQ_C, value)
    except (AttributeError, ValueError, BufferError, TypeError):
        pass
    if isinstance(value, (list, tuple)):
        try:
            value = np.array([_handle(item) for item in value], U64)
        except Exception:  # whatever the items' own conversion raises
            raise TypeError(f"{name}: needs sequences, or an array of their handles") from None
    return _from_buffer(_SEQ_C, array_of(name, value, U64))


def out_array(name: str, value: Any, dtype: np.dtype[Any], least: int) -> Any:
    """A C array over an array that is to be written, with room for `least` elements."""
    if not isinstance(value, _ndarray):
        raise TypeError(f"{name}: needs a NumPy array, not {type(value).__name__}")
    value = array_of(name, value, dtype)
    if not value.flags.writeable:
        raise ArgError(f"{name}: the array is read-only")
    if value.size < least:
        raise ArgError(f"{name}: has room for {value.size}, needs {least}")
    return _from_buffer(_C_OF[dtype], value)


def unusable(name: str, value: Any, dtype: np.dtype[Any], least: int) -> NoReturn:
    """Says why an array cannot be written, which a call of calls.c found."""
    out_array(name, value, dtype, least)
    raise ArgError(f"{name}: the array cannot be used as it lies")


def text_of(name: str, value: Any) -> bytes:
    """str as UTF-8, or bytes."""
    data = value.encode() if isinstance(value, str) else value
    if not isinstance(data, bytes):
        raise TypeError(f"{name}: needs str or bytes, not {type(value).__name__}")
    return data


def path_of(name: str, value: Any) -> bytes:
    """A path as the system wants it."""
    try:
        path = os.fsencode(value)
    except TypeError:
        raise TypeError(f"{name}: needs a path, not {type(value).__name__}") from None
    if b"\0" in path:
        raise ArgError(f"{name}: {value!r} has a null character")
    return path


def bytes_in(name: str, value: Any, writable: bool = False) -> Any:
    """A C array of bytes over anything with the buffer protocol, which stays alive with it."""
    if isinstance(value, _ndarray) and value.dtype.hasobject:
        raise TypeError(f"{name}: needs a buffer of bytes, not of Python objects")
    try:
        return _from_buffer("uint8_t[]", value, require_writable=writable)
    except TypeError:
        raise TypeError(f"{name}: needs a buffer of bytes, not {type(value).__name__}") from None
    except (ValueError, BufferError) as error:  # released, closed, not contiguous, read-only
        raise ArgError(f"{name}: {error}") from None


def instance(name: str, value: Any, *kinds: type) -> None:
    """TypeError unless `value` is one of these."""
    if not isinstance(value, kinds):
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{name}: needs a {wanted}, not {type(value).__name__}")


def function(name: str, value: Any) -> None:
    """TypeError unless `value` can be called, or is None."""
    if value is not None and not callable(value):
        raise TypeError(f"{name}: needs a function, not {type(value).__name__}")


def contiguous(name: str, value: Any) -> npt.NDArray[Any]:
    """`value` as a contiguous, aligned array of numbers; copied where it is not."""
    try:
        array = np.ascontiguousarray(value)
    except (TypeError, ValueError, BufferError, RuntimeError) as error:
        raise ArgError(f"{name}: {error}") from None
    if array.dtype.kind not in "iuf" or not array.dtype.isnative:
        raise TypeError(f"{name}: needs an array of numbers, not of {array.dtype}")
    return array if array.flags.aligned else array.copy()


def listed(name: str, value: Any) -> list[Any]:
    try:
        return list(value)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise TypeError(f"{name}: {error}") from None


def same_length(**lengths: Any) -> int:
    """The length that all of these have; None stands for none."""
    known = {name: len(value) for name, value in lengths.items() if value is not None}
    first = next(iter(known))
    for name, length in known.items():
        if length != known[first]:
            raise ArgError(f"{name}: has {length} elements, {first} has {known[first]}")
    return known[first]


def copied(address: Any, n: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """A fresh array with n elements from memory of the library's."""
    if n == 0:
        return np.empty(0, dtype)
    return np.frombuffer(ffi.buffer(address, n * dtype.itemsize), dtype).copy()


# ------------------------------------------------------------------------------------ structs

_CODES = {(1, False): "B", (1, True): "b", (2, False): "H", (2, True): "h", (4, False): "I",
          (4, True): "i", (8, False): "Q", (8, True): "q"}
_HANDLES = ("kvp_seq", "kvp_ns", "kvp_request")
_HASHES = ("kvp_hash", "kvp_digest")
Record = TypeVar("Record")


def _scalar_code(kind: Any) -> str:
    if kind.cname in ("double", "float"):
        return "d" if kind.cname == "double" else "f"
    signed = kind.kind == "enum" or int(ffi.cast(kind, -1)) < 0
    return _CODES[ffi.sizeof(kind), signed]


def _name(kind: Any) -> str:
    return str(kind.cname).removeprefix("struct ")


def _leaves(kind: Any) -> list[tuple[str, str, int]]:
    """[(field, struct code, offset)] of a struct, nested ones flattened."""
    leaves = []
    for field, description in kind.fields:
        of, offset = description.type, description.offset
        if of.kind == "struct" and _name(of) in _HANDLES:
            leaves.append((field, "Q", offset))
        elif of.kind == "struct" and _name(of) in _HASHES:
            leaves.append((field, f"{ffi.sizeof(of)}s", offset))
        elif of.kind == "struct":
            leaves += [(field, code, offset + inner) for _, code, inner in _leaves(of)]
        elif of.kind == "array":
            code = _scalar_code(of.item)
            leaves += [(field, code, offset + i * ffi.sizeof(of.item)) for i in range(of.length)]
        elif of.kind == "pointer":
            leaves.append((field, "Q", offset))
        else:
            leaves.append((field, _scalar_code(of), offset))
    return leaves


class Struct(Generic[Record]):
    """One C struct: room for it, and its content as a record. `of`: the module that declares it."""

    def __init__(self, record: type[Record], of: Any = ffi,
                 structs: dict[type, str] = STRUCTS) -> None:
        self.record = record
        self._pool: list[Any] = []
        self.cname = structs[record]
        self.kind = of.typeof(self.cname)
        self.pointer = of.typeof(self.cname + " *")
        leaves, text, at = _leaves(self.kind), "=", 0
        self.codes = "".join(code for _, code, _ in leaves)  # calls.c makes some by these
        for _, code, offset in leaves:
            text += f"{offset - at}x{code}" if offset > at else code
            at = offset + struct.calcsize("=" + code)
        size = ffi.sizeof(self.kind)
        self._unpack = struct.Struct(text + (f"{size - at}x" if size > at else "")).unpack
        self._nested = self._nesting()
        # What record._make does, without its checks.
        self._make: Callable[[Any], Record] = partial(tuple.__new__, record)  # type: ignore
        self.read = self._read_nested if self._nested else self._plain_reader()

    def _nesting(self) -> list[tuple[int, Any]]:
        """[(leaves, record type or tuple or None)] for each field; empty when all are plain."""
        groups: list[tuple[int, Any]] = []
        for _, description in self.kind.fields:
            of = description.type
            if of.kind == "array":
                groups.append((of.length, tuple))
            elif of.kind == "struct" and _name(of) not in (*_HANDLES, *_HASHES):
                inner = next(r for r, cname in STRUCTS.items() if cname == _name(of))
                groups.append((len(_leaves(of)), getattr(inner, "_make")))
            else:
                groups.append((1, None))
        return groups if any(make is not None for _, make in groups) else []

    def new(self) -> Any:
        return ffi.new(self.pointer)

    def take(self) -> Any:
        """Room that was used before: (cdata, its bytes). list.pop is one step, so no two threads
        get the same; what a failed call does not give back is forgotten."""
        try:
            return self._pool.pop()
        except IndexError:
            room = ffi.new(self.pointer)
            return room, ffi.buffer(room)

    def give(self, pair: Any) -> Record:
        """Gives room back, and its content as a record; of plain fields only."""
        made = self._make(self._unpack(pair[1]))
        self._pool.append(pair)
        return made

    def _plain_reader(self) -> Callable[[Any], Record]:
        unpack, make, buffer = self._unpack, self._make, ffi.buffer

        def read(cdata: Any) -> Record:
            return make(unpack(buffer(cdata)))

        return read

    def _read_nested(self, cdata: Any) -> Record:
        values = self._unpack(ffi.buffer(cdata))
        fields, at = [], 0
        for n, make in self._nested:
            fields.append(values[at] if make is None else make(values[at:at + n]))
            at += n
        return self._make(fields)

    def dtype(self) -> np.dtype[Any]:
        """The NumPy type of an array of these."""
        return struct_dtype(self.cname)


def _field_format(of: Any) -> Any:
    if of.kind == "struct" and _name(of) in _HANDLES:
        return U64
    if of.kind == "struct" and _name(of) == "kvp_hash":
        return (np.uint8, (16,))
    if of.kind == "array":
        return (_field_format(of.item), (of.length,))
    if of.kind == "struct":
        return struct_dtype(_name(of))
    if of.kind == "pointer":
        return U64
    return np.dtype("=" + {"B": "u1", "b": "i1", "H": "u2", "h": "i2", "I": "u4", "i": "i4",
                           "Q": "u8", "q": "i8", "d": "f8", "f": "f4"}[_scalar_code(of)])


def struct_dtype(cname: str) -> np.dtype[Any]:
    kind = ffi.typeof(cname)
    return np.dtype({"names": [field for field, _ in kind.fields],
                     "formats": [_field_format(d.type) for _, d in kind.fields],
                     "offsets": [d.offset for _, d in kind.fields],
                     "itemsize": ffi.sizeof(kind)})


def fields_explained(made: type, fields: type) -> None:
    """Adds the fields that may be keywords to a class's docstring."""
    described = (fields.__doc__ or "").partition("\n\n")[2].rstrip()
    made.__doc__ = f"{(made.__doc__ or '').rstrip()}\n\n    Keywords:\n\n{described}\n"


def set_fields(cdata: Any, fields: Any, what: str) -> None:
    """Sets fields of a struct from keyword arguments."""
    known = dict(ffi.typeof(cdata).item.fields)
    for name, value in fields.items():
        if name not in known or name in ("struct_size", "reserved"):
            raise TypeError(f"{what}() got an unexpected keyword argument '{name}'")
        try:
            # What can be made an int, but is none, C would take.
            is_int = known[name].type.kind == "primitive" and known[name].type.cname != "double"
            setattr(cdata, name, index(value) if is_int else value)
        except OverflowError:
            raise ArgError(f"{name}: {value} is out of range") from None
        except (TypeError, IndexError) as error:
            if known[name].type.kind == "array":
                raise ArgError(f"{name}: needs at most {known[name].type.length} tuples of numbers "
                               f"({error})") from None
            raise TypeError(f"{name}: needs a number, not {type(value).__name__}") from None


# ------------------------------------------------------------------------------------- errors


def bad_number(error: Exception, **arguments: Any) -> Exception:
    """The exception for a number that cffi refused: names the argument."""
    for name, value in arguments.items():
        try:
            index(value)
        except TypeError:
            return TypeError(f"{name}: needs an int, not {type(value).__name__}")
    for name, value in arguments.items():
        if index(value) < 0:
            return ArgError(f"{name}: {value} is negative")
        if index(value) >= 2 ** 32:
            return ArgError(f"{name}: {value} is too large")
    shown = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    return ArgError(f"{shown}: {error}")


def number(name: str, value: Any) -> int:
    """`value` as a number of 32 bits, not negative; or an exception that names it."""
    try:
        whole = index(value)
    except TypeError as error:
        raise bad_number(error, **{name: value}) from None
    if not 0 <= whole < 2 ** 32:
        raise bad_number(OverflowError(), **{name: value})
    return whole


def real(name: str, value: Any) -> float:
    """`value` as a float; or an exception that names it."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"{name}: needs a number, not {type(value).__name__}") from None


def _shown(value: Any) -> str:
    if isinstance(value, _ndarray):
        return f"<{value.dtype}[{', '.join(str(n) for n in value.shape)}]>"
    if isinstance(value, (list, tuple)) and len(value) > 8:
        return f"<{len(value)} items>"
    return repr(value)


def _blame(arguments: dict[str, Any]) -> str:
    """What is visibly wrong with an argument, when the library says that one is."""
    for name, value in arguments.items():
        if name == "tokens" and value is not None and len(value):
            array = np.asarray(value)
            if array.min() < 0:
                at = int(np.argmax(array < 0))
                return f"; {name}[{at}] is {int(array[at])}: negative"
        if name == "seqs" and value is not None:
            handles = [int(getattr(item, "handle", item)) for item in value]
            if len(set(handles)) < len(handles):
                return f"; {name} names a sequence twice"
    return ""


class ClosedError(HandleError, ValueError):
    """The object was closed."""


# What to do about a StateError, where the header's condition is one thing.
_STEP_IS_OUT = "a step is out: end it with finish or fail first"
_NO_STEP = "no step is out: call step first"
_HOST = "the cache was made with host_blocks=0: there is no host tier"
_STATES = "the cache was made without state_slots"
_IN_STATE = {
    "Scheduler.step": _STEP_IS_OUT, "Scheduler.reorder": _STEP_IS_OUT + ", and let its samples run up "
                                                        "to their newest token",
    "Scheduler.finish": _NO_STEP, "Scheduler.fail": _NO_STEP, "Scheduler.reclaim": _NO_STEP,
    "Scheduler.hold": "it does not wait, or was decided on before: ask loadable",
    "Scheduler.skip_load": "it does not wait, or was decided on before: ask loadable",
    "Scheduler.release": "it is not held: it was released, by release, tick or a pause",
    "Sequence.commit": "only tokens that have slots can be computed: extend first",
    "Cache.commit_many": "only tokens that have slots can be computed: extend first",
    "Sequence.fork": "tokens before `at` have no KV yet: fork before the extend, after the commit, "
                     "or at computed_tokens",
    "Sequence.fill": "fewer tokens are without a value",
    "Sequence.slots": "slots that are not computed are there after an extend",
    "Sequence.extend": "fill tokens that have no value, or swap it in, first",
    "Sequence.append": "fill tokens that have no value, or swap it in, first",
    "Cache.step_begin": "steps are ordered: make the cache with steps=STEPS_OVERLAPPED",
    "Cache.record": "a recording begins before the first namespace, and one at a time",
    "Cache.events": "the cache was made with max_events=0",
    "Cache.policy_info": "the cache was made without policy=POLICY_LEARNED",
    "Cache.policy_class": "the cache was made without policy=POLICY_LEARNED",
    "Namespace.quota": "the cache was made with quotas=0",
    "Namespace.info": "the cache was made with quotas=0",
    "Namespace.state_need": _STATES, "Sequence.state": _STATES, "states": _STATES,
    "Cache.state_stats": _STATES, "Cache.mirror": _HOST,
    "Cache.swap_out": "one is swapped out already", "Cache.swap_in": "one is not swapped out",
}


def why(status: int, check: Any, *given: Any) -> str:
    """What a check of the library says is wrong: "; n_blocks is 1, expected 2 to 2^31-1"."""
    if status not in (lib.KVP_E_ARG, lib.KVP_E_TOO_LONG, lib.KVP_E_MISMATCH):
        return ""
    room = ffi.new("kvp_why *")
    check(*given, room)
    text = ffi.string(room.text).decode()
    return f"; {text}" if text else ""


def error_of(status: int, call: str, arguments: dict[str, Any],
             shortage: Shortage | None = None, said: str = "") -> Error:
    if status == lib.KVPY_E_CLOSED:
        return ClosedError(f"{call}: it is closed")
    shown = ", ".join(f"{name}={_shown(value)}" for name, value in arguments.items())
    if status == lib.KVPY_E_LENGTH:
        return ArgError(f"{call}({shown}): tokens has not as many elements as n_tokens adds up to")
    kind = BY_STATUS.get(status, Error)
    message = f"{call}({shown}): {kind.name}: {kind.text}"
    message += said
    if status == lib.KVP_E_STATE and not said and call in _IN_STATE:
        message += f"; {_IN_STATE[call]}"
    if kind is ArgError and not said:
        message += _blame(arguments)
    if shortage is None or shortage.status != status:
        return kind(message)
    if shortage.missing_blocks:
        what = {lib.KVP_HOST: "host blocks", lib.KVP_STATE_SLOTS: "slots of state"}
        message += (f"; {shortage.missing_blocks} {what.get(shortage.tier, 'device blocks')}"
                    " missing")
        if status == lib.KVP_E_NEVER:
            message += ", however long it waits: refuse it, or make the cache larger"
    return kind(message, int(shortage.missing_blocks), shortage.index, shortage.tier)


def fail(status: int, call: str, /, *, said: str = "", **arguments: Any) -> NoReturn:
    raise error_of(status, call, arguments, said=said)


def owned(kind: int, owner: Any = None, held: Any = None, of: Any = _native,
          free: str = "kvpy_object_free") -> Any:
    """An empty kvpy_object: the twin of a create function fills it, and what it has then is destroyed
    with the last reference to it. It has its destructor before there is anything to destroy: an
    exception that a signal's handler raises may come between any two steps of Python.

    owner   the object whose lock counts: a cache's, for what lives on it
    held    what must outlive it besides: memory that it uses
    of      the module whose library creates it; free: its destructor there
    """
    keep = owner if held is None else held
    empty = of.ffi.gc(of.ffi.new("kvpy_object *"), getattr(of.lib, free))
    of.lib.kvpy_object_init(empty, kind, NULL if owner is None else owner,
                            0 if keep is None else id(keep))
    return empty


def bare(made: Any, kind: str, of: Any = _native) -> Any:
    """What an object has, as a pointer that keeps the object alive: of what needs no guard."""
    pointer = of.ffi.cast(kind, of.lib.kvpy_object_pointer(made))
    # The destructor does nothing but refer to the object; none of it is Python, where a signal's
    # exception could come.
    return of.ffi.gc(pointer, partial(is_, made))


def close(handle: Any, what: str) -> None:
    status = lib.kvpy_object_close(handle)
    if status:
        fail(status, f"{what}.close")


class locked:
    """The library's pointer, and nobody else inside. (Not a generator: an exception that comes while
    contextlib ends one is in a cycle with the frame that has the lock.)"""

    __slots__ = ("_made", "_place", "_what")

    def __init__(self, made: Any, what: str) -> None:
        self._made, self._what = made, what
        self._place = ffi.gc(ffi.new("kvpy_object **"), lib.kvpy_place_unlock)

    def __enter__(self) -> Any:
        status = lib.kvpy_place_lock(self._made, self._place)
        if status:
            fail(status, self._what)
        return lib.kvpy_object_pointer(self._made)

    def __exit__(self, *exception: object) -> None:
        lib.kvpy_place_unlock(self._place)
