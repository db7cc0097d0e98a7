"""KV memory: layouts, tensors that NumPy and torch use in place, the copy engine.

Memory is freed with the last thing that refers to it: a Memory, a Layer, a Tensor, an array or a
torch tensor made of one. So none of them can be used after it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from operator import index as whole
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from . import _constants as c
from ._core import (F32, NULL, F32Array, Ints, Struct, Uncopied, bad_number, bare, bytes_in,
                    calls, close, contiguous, fail, i32, instance, listed, number, owned, pointer, real,
                    set_fields, struct_dtype, text_of)
from ._errors import ArgError
from ._native import ffi, lib
from ._records import (LayoutFields, MemoryInfo, MemoryOptionsFields, Part)

if TYPE_CHECKING:
    from typing_extensions import Unpack

_COPY_DTYPE = struct_dtype("kvp_copy")
SLOT_MOVE_DTYPE = struct_dtype("kvp_slot_move")
_PART, _INFO = Struct(Part), Struct(MemoryInfo)
_no_numbers = (TypeError, OverflowError)
# What NumPy has no type for is shown as the bits.
_NUMPY: dict[int, np.dtype[Any]] = {
    c.F32: np.dtype(np.float32), c.F16: np.dtype(np.float16), c.BF16: np.dtype(np.uint16),
    c.INT8: np.dtype(np.int8), c.E4M3: np.dtype(np.uint8), c.BYTES: np.dtype(np.uint8)}

_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype, _capsule_pointer.argtypes = ctypes.c_void_p, [
    ctypes.py_object, ctypes.c_char_p]


# ------------------------------------------------------------------------------------- types


def type_bytes(type: int) -> int:
    """Bytes of an element; 0 for a number that is no type."""
    return int(lib.kvp_type_bytes(number("type", type)))


def type_scale(type: int, max_abs: float) -> float:
    """The smallest scale with which values up to max_abs fit."""
    return float(lib.kvp_type_scale(number("type", type), real("max_abs", max_abs)))


def type_to_f32(type: int, elements: Any, scale: float = 1.0) -> F32Array:
    """Elements, an array of any shape of the type's bits, as f32 of the same shape."""
    array = contiguous("elements", elements)
    if number("type", type) not in _NUMPY or array.dtype.itemsize != type_bytes(type):
        raise TypeError(f"elements: {array.dtype} does not hold elements of type {type}")
    out = np.empty(array.shape, np.float32)
    status = lib.kvp_type_to_f32(type, real("scale", scale), ffi.from_buffer(array), array.size,
                                 ffi.from_buffer("float[]", out))
    if status:
        fail(status, "type_to_f32", type=type, scale=scale)
    return out


def type_from_f32(type: int, values: Any, scale: float = 1.0) -> npt.NDArray[Any]:
    """f32 values as elements, rounded to the nearest: uint16 for BF16, uint8 for E4M3."""
    array = contiguous("values", values)
    if array.dtype != np.float32:
        raise TypeError(f"values: needs an array of float32, not of {array.dtype}")
    if number("type", type) not in _NUMPY:
        raise ArgError(f"type: {type} is none")
    out: npt.NDArray[Any] = np.empty(array.shape, _NUMPY[type])
    status = lib.kvp_type_from_f32(type, real("scale", scale), ffi.from_buffer("float[]", array),
                                   array.size, ffi.from_buffer(out))
    if status:
        fail(status, "type_from_f32", type=type, scale=scale)
    return out


# ------------------------------------------------------------------------------------- layouts


class Layout:
    """Where K and V lie, without addresses. Keywords are the numbers of kvp_layout, see
    LayoutFields, and k_size, v_size (0: latent).

        layout = Layout(type=BF16, n_blocks=4096, block_tokens=16, n_layers=32, n_heads=8,
                        k_size=128, v_size=128).arrange(ORDER_VLLM_NHD)
    """

    def __init__(self, *, k_size: int = 0, v_size: int = 0, **fields: Unpack[LayoutFields]) -> None:
        self._c = ffi.new("kvp_layout *")
        lib.kvp_layout_init(self._c)
        set_fields(self._c, fields, "Layout")
        try:
            self._c.k.size, self._c.v.size = k_size, v_size
        except _no_numbers as error:
            raise bad_number(error, k_size=k_size, v_size=v_size) from None

    def __getattr__(self, name: str) -> int:
        if name.startswith("_") or name not in LayoutFields.__annotations__:
            raise AttributeError(name)
        return int(getattr(self._c, name))

    def __repr__(self) -> str:
        return (f"<kvpager.Layout type {self.type}, {self.n_blocks} blocks of {self.block_tokens} "
                f"tokens, {self.n_layers} layers, {self.n_heads} heads>")

    def arrange(self, order: str, v_order: str | None = None) -> Layout:
        """Fill in where K and V lie, in an order of dimensions, "2NSHD" or ORDER_...; gives self.
        """
        status = lib.kvp_layout_arrange(
            self._c, text_of("order", order),
            NULL if v_order is None else text_of("v_order", v_order))
        if status:
            fail(status, "Layout.arrange", order=order, v_order=v_order)
        return self

    def add_scales(self, order: str) -> Layout:
        """Add scales to INT8 or E4M3 elements, in tensors of their own; gives self."""
        status = lib.kvp_layout_add_scales(self._c, text_of("order", order))
        if status:
            fail(status, "Layout.add_scales", order=order)
        return self

    def check(self) -> None:
        """ArgError says what is wrong with the layout."""
        why = ffi.new("kvp_why *")
        status = lib.kvp_layout_check(self._c, why)
        if status:
            raise ArgError(f"Layout.check: {ffi.string(why.text).decode()}")

    def slice(self, *, first_layer: int, n_layers: int, first_head: int, n_heads: int) -> Layout:
        """A part of the layers and heads, in the model's numbers, in the same tensors."""
        part, made = ffi.new("kvp_slice *"), Layout()
        set_fields(part, {"first_layer": first_layer, "n_layers": n_layers,
                          "first_head": first_head, "n_heads": n_heads}, "Layout.slice")
        status = lib.kvp_layout_slice(self._c, part, made._c)
        if status:
            fail(status, "Layout.slice", first_layer=first_layer, n_layers=n_layers,
                 first_head=first_head, n_heads=n_heads)
        return made

    def part(self, name: str) -> Part:
        """Where "k", "v", "k_scales" or "v_scales" lies."""
        if not isinstance(name, str) or name not in ("k", "v", "k_scales", "v_scales"):
            raise ValueError(f"name: {name!r} is no part")
        return _PART.read(ffi.addressof(self._c, name))

    def set_part(self, name: str, part: Part) -> None:
        """Say where a part lies, for tensors that arrange does not know."""
        self.part(name)
        set_fields(ffi.addressof(self._c, name), part._asdict(), "Layout.set_part")

    @property
    def block_bytes(self) -> int:
        """Bytes of KV, scales included, that one block has in all layers."""
        return int(lib.kvp_layout_block_bytes(self._c))


# ------------------------------------------------------------------------------------- memory


class Tensor:
    """Memory of the library's as an array, by DLPack (torch.from_dlpack, in place) and by NumPy's
    array interface (np.asarray, in place; BF16 and E4M3 as the bits, uint16 and uint8).

    shape    of elements
    strides  in elements
    type     F32 ... E4M3, BYTES
    """

    def __init__(self, keep: Any, address: int, type: int, shape: tuple[int, ...],
                 strides: tuple[int, ...]) -> None:
        if not isinstance(keep, ffi.CData):
            raise TypeError("a Tensor is made by Layer.tensor and Memory.tensor")
        self._keep, self._address = keep, address
        self.type, self.shape, self.strides = type, shape, strides

    @property
    def __array_interface__(self) -> dict[str, Any]:
        dtype = _NUMPY[self.type]
        return {"version": 3, "shape": self.shape, "typestr": dtype.str,
                "data": (self._address, False),
                "strides": tuple(n * dtype.itemsize for n in self.strides)}

    def numpy(self) -> npt.NDArray[Any]:
        """The same memory as an array; it has the buffer protocol."""
        return np.asarray(self)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None,
                   copy: bool | None = None) -> Any:
        if stream is not None:
            raise BufferError("stream: memory of the CPU has none")
        if copy:
            raise BufferError("copy: only views are given out")
        return calls.dlpack(self, self._address, self.type, self.shape, self.strides)


def _dlpack_range(name: str, tensor: Any) -> tuple[int, int, Any]:
    """(address, bytes, what keeps it alive) of a tensor that speaks DLPack."""
    if tensor.__dlpack_device__()[0] != 1:
        raise ArgError(f"{name}: the tensor is not in the CPU's memory")
    capsule = tensor.__dlpack__()
    managed = ffi.cast("kvpy_dl_managed *", _capsule_pointer(capsule, b"dltensor"))
    dl, n_bytes, expected = managed.tensor, 1, 1
    for i in reversed(range(dl.ndim)):
        if dl.strides != NULL and dl.shape[i] != 1 and dl.strides[i] != expected:
            raise ArgError(f"{name}: the tensor is not contiguous")
        expected *= dl.shape[i]
    n_bytes = (expected * dl.bits * dl.lanes + 7) // 8
    return int(ffi.cast("uintptr_t", dl.data)) + dl.byte_offset, n_bytes, (capsule, tensor)


def _memory_range(name: str, tensor: Any) -> tuple[int, int, Any]:
    if hasattr(tensor, "__dlpack__") and not isinstance(tensor, np.ndarray):
        return _dlpack_range(name, tensor)
    data = bytes_in(name, tensor, writable=True)
    return int(ffi.cast("uintptr_t", data)), len(data), data


class Layer:
    """One layer of a memory: plain pointers and strides, and single tokens as f32."""

    def __init__(self, memory: Any, layer: int) -> None:
        self._c = ffi.new("kvp_layer *")
        self._keep = memory
        try:
            status = lib.kvp_memory_layer(memory, whole(layer), self._c)
        except _no_numbers as error:
            raise bad_number(error, layer=layer) from None
        if status:
            fail(status, "Memory.layer", layer=layer)

    def _size(self, which: int) -> int:
        if number("which", which) not in (c.K, c.V):
            raise ArgError(f"which: {which!r} is neither K nor V")
        return int((self._c.k if which == c.K else self._c.v).size)

    def read(self, which: int, slot: int, head: int) -> F32Array:
        """K or V of one token and head: [D] f32."""
        out = np.empty(self._size(which), F32)
        try:
            status = lib.kvp_layer_read(self._c, which, whole(slot), whole(head),
                                        ffi.from_buffer("float[]", out))
        except _no_numbers as error:
            raise bad_number(error, slot=slot, head=head) from None
        if status:
            fail(status, "Layer.read", which=which, slot=slot, head=head)
        return out

    def write(self, which: int, slot: int, head: int, values: Any) -> None:
        """Write K or V of one token and head, rounded: [D] f32."""
        data = pointer("values", values, F32)
        if len(data) != self._size(which):
            raise ArgError(f"values: has {len(data)} elements, the layer has {self._size(which)}")
        try:
            status = lib.kvp_layer_write(self._c, which, whole(slot), whole(head), data)
        except _no_numbers as error:
            raise bad_number(error, slot=slot, head=head) from None
        if status:
            fail(status, "Layer.write", which=which, slot=slot, head=head)

    def tensor(self, which: int) -> Tensor:
        """K or V of the layer in place: [N, S, H, D]; where elements are split into runs (an order
        with an x): [N, S, H, D / run, run]."""
        size = self._size(which)
        part = self._c.k if which == c.K else self._c.v
        if part.base == NULL:
            raise ArgError("which: the layer has no V")
        item = type_bytes(self._c.type)
        shape: tuple[int, ...] = (self._c.n_blocks, self._c.block_tokens, self._c.n_heads)
        strides = tuple(n // item for n in (part.block_stride, part.token_stride,
                                            part.head_stride))
        if part.run == size:
            shape, strides = (*shape, size), (*strides, 1)
        else:
            shape = (*shape, size // part.run, part.run)
            strides = (*strides, part.run_stride // item, 1)
        return Tensor(self._keep, int(ffi.cast("uintptr_t", part.base)), self._c.type, shape,
                      strides)


class Memory(Uncopied):
    """KV memory: a layout with addresses.

    Memory.create(layout, ...)   of the library's own, zeroed
    Memory.wrap(layout, tensors) an engine's own, as they are
    """

    def __init__(self, made: Any, layout: Layout) -> None:
        self._m: Any = made
        self.layout = layout

    @classmethod
    def create(cls, layout: Layout, **options: Unpack[MemoryOptionsFields]) -> Memory:
        """Memory of the library's own. Keywords: pages, numa_node, touch."""
        instance("layout", layout, Layout)
        made, given = owned(lib.KVPY_MEMORY), ffi.new("kvp_memory_options *")
        lib.kvp_memory_options_init(given)
        set_fields(given, options, "Memory.create")
        status = lib.kvpg_memory_create(layout._c, given, made)
        if status:
            fail(status, "Memory.create", layout=layout, **options)
        return cls._of(made)

    @classmethod
    def wrap(cls, layout: Layout, tensors: Iterable[Any]) -> Memory:
        """Use memory that is there.

        tensors   [n_tensors] contiguous, writable: NumPy arrays, buffers, torch tensors (any object
                  with DLPack) on the CPU; None for those that no part lies in. They are kept alive,
                  and no byte of them is read or written here.
        """
        instance("layout", layout, Layout)
        given = listed("tensors", tensors)
        if len(given) != layout.n_tensors:
            raise ArgError(f"tensors: has {len(given)}, the layout has {layout.n_tensors}")
        addresses, keep = ffi.new("void *[]", max(len(given), 1)), []
        for i, tensor in enumerate(given):
            if tensor is None:
                continue
            address, n_bytes, owner = _memory_range(f"tensors[{i}]", tensor)
            least = max((part.tensor_bytes for part in cls._parts(layout, i)), default=0)
            if n_bytes < least:
                raise ArgError(f"tensors[{i}]: has {n_bytes} bytes, the layout needs {least}")
            addresses[i] = ffi.cast("void *", address)
            keep.append(owner)
        made = owned(lib.KVPY_MEMORY, held=keep)
        status = lib.kvpg_memory_wrap(layout._c, addresses, made)
        if status:
            fail(status, "Memory.wrap", layout=layout, tensors=given)
        return cls._of(made)

    @staticmethod
    def _parts(layout: Layout, tensor: int) -> list[Part]:
        """The parts that lie in a tensor."""
        found = []
        for name in ("k", "v", "k_scales", "v_scales"):
            part = layout.part(name)
            layers = range(layout.n_layers if part.size else 0)
            if any(part.tensor + layer * part.tensor_step == tensor for layer in layers):
                found.append(part)
        return found

    @classmethod
    def _of(cls, owner: Any) -> Memory:
        layout, made = Layout(), bare(owner, "kvp_memory *")
        lib.kvp_memory_describe(made, layout._c, NULL)
        return cls(made, layout)

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give up this reference; the memory is freed when nothing else is made of it."""
        self._m = None

    def _open(self) -> Any:
        if self._m is None:
            fail(lib.KVPY_E_CLOSED, "Memory")
        return self._m

    def info(self) -> MemoryInfo:
        """mapped_bytes, pages, numa_node."""
        room = _INFO.new()
        status = lib.kvp_memory_describe(self._open(), NULL, room)
        if status:
            fail(status, "Memory.info")
        return _INFO.read(room)

    def tensor(self, index: int) -> Tensor:
        """A whole tensor as it lies: [elements], of the layout's type."""
        memory = self._open()
        try:
            address = lib.kvp_memory_tensor(memory, whole(index))
        except _no_numbers as error:
            raise bad_number(error, index=index) from None
        if address == NULL:
            raise ArgError(f"index: {index} is no tensor of this layout")
        n_bytes = self._parts(self.layout, index)[0].tensor_bytes
        is_scales = not any(part in (self.layout.part("k"), self.layout.part("v"))
                            for part in self._parts(self.layout, index))
        kind = c.F32 if is_scales else self.layout.type
        return Tensor(memory, int(ffi.cast("uintptr_t", address)), kind,
                      (n_bytes // type_bytes(kind),), (1,))

    def layer(self, index: int) -> Layer:
        """One layer's pointers and strides, for append, attention and single tokens."""
        return Layer(self._open(), index)

    def gather(self, row: Ints, layer: int, begin: int, n_tokens: int) -> tuple[
            F32Array, F32Array | None]:
        """K and V of tokens [begin, begin + n_tokens) of a sequence: [n_tokens, H, D] f32 each; V
        is None where there is none. row: [n] i32, Sequence.row."""
        memory, blocks, given = self._open(), i32("row", row), ffi.new("kvp_gather *")
        given.row, given.n_row = blocks, len(blocks)
        try:
            given.layer, given.begin = whole(layer), whole(begin)
            given.n_tokens = whole(n_tokens)
        except _no_numbers as error:
            raise bad_number(error, layer=layer, begin=begin, n_tokens=n_tokens) from None
        if begin + n_tokens > len(blocks) * self.layout.block_tokens:
            raise ArgError(f"n_tokens: {begin} + {n_tokens} tokens exceed the row's {len(blocks)} "
                           "blocks")
        heads = (n_tokens, self.layout.n_heads)
        k = np.empty((*heads, self.layout.part("k").size), F32)
        v_size = self.layout.part("v").size
        v = np.empty((*heads, v_size), F32) if v_size else None
        status = lib.kvp_memory_gather(memory, given, ffi.from_buffer("float[]", k),
                                       NULL if v is None else ffi.from_buffer("float[]", v))
        if status:
            fail(status, "Memory.gather", row=row, layer=layer, begin=begin, n_tokens=n_tokens)
        return k, v

    def checksum(self, block: int, n_tokens: int) -> bytes:
        """Hash of the KV of a block's first n_tokens tokens, in all layers: 16 bytes."""
        memory, out = self._open(), ffi.new("kvp_hash *")
        try:
            status = lib.kvp_memory_checksum(memory, whole(block), whole(n_tokens), out)
        except _no_numbers as error:
            raise bad_number(error, block=block, n_tokens=n_tokens) from None
        if status:
            fail(status, "Memory.checksum", block=block, n_tokens=n_tokens)
        return bytes(out.bytes)


# ------------------------------------------------------------------------------------- copies


class Copier(Uncopied):
    """Runs plans.

    device     the device tier's memories, one for each layer group; or one memory
    host       the host tier's; None: none
    n_threads  that copy, the caller's included
    max_moves  slot moves of one call
    """

    def __init__(self, device: Memory | Iterable[Memory], host: Memory | Iterable[Memory] | None
                 = None, *, n_threads: int = 1, max_moves: int = 1024) -> None:
        devices, hosts = memories_of("device", device), memories_of("host", host or [])
        if not devices:
            raise ArgError("device: needs a memory")
        if hosts and len(hosts) != len(devices):
            raise ArgError(f"host: has {len(hosts)} memories, device has {len(devices)}")
        made = ffi.new("kvp_copier_config *")
        lib.kvp_copier_config_init(made)
        set_fields(made, {"n_groups": len(devices), "n_threads": n_threads,
                          "max_moves": max_moves}, "Copier")
        arrays = ffi.new("kvp_memory *[]", devices), ffi.new("kvp_memory *[]", hosts)
        made.device = arrays[0]
        if hosts:
            made.host = arrays[1]
        self._o = owned(lib.KVPY_COPIER, held=(devices, hosts))
        status = lib.kvpg_copier_create(made, self._o)
        if status:
            fail(status, "Copier", n_threads=n_threads, max_moves=max_moves)

    def __enter__(self) -> Copier:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the threads. Closing twice does nothing."""
        close(self._o, "Copier")

    def run(self, copies: npt.NDArray[Any]) -> int:
        """Run a plan, phase after phase: [n] COPY_DTYPE, as Cache.plan_take gives it. Gives a fence
        for wait."""
        data, n = _structs("copies", copies, _COPY_DTYPE)
        out = ffi.new("uint64_t *")
        status = lib.kvpg_copier_run(self._o, ffi.cast("kvp_copy *", data), n, out)
        if status:
            fail(status, "Copier.run", copies=copies)
        return int(out[0])

    def move(self, moves: Any, group: int = 0) -> int:
        """Move the KV of single tokens: [n, 2] i64 slots (src, dst), or [n] SLOT_MOVE_DTYPE. Gives
        a fence for wait."""
        array = moves
        if isinstance(moves, np.ndarray) and moves.dtype == np.int64 and moves.ndim == 2:
            if moves.shape[1] != 2 or not moves.flags.c_contiguous:
                raise ArgError("moves: needs a contiguous array [n, 2]")
            array = moves.reshape(-1).view(SLOT_MOVE_DTYPE)
        data, n = _structs("moves", array, SLOT_MOVE_DTYPE)
        out = ffi.new("uint64_t *")
        try:
            status = lib.kvpg_copier_move(self._o, group, ffi.cast("kvp_slot_move *", data), n, out)
        except _no_numbers as error:
            raise bad_number(error, group=group) from None
        if status:
            fail(status, "Copier.move", moves=moves, group=group)
        return int(out[0])

    def wait(self, fence: int) -> None:
        """Wait until the work up to a fence is done."""
        try:
            status = lib.kvpg_copier_wait(self._o, fence)
        except _no_numbers as error:
            raise bad_number(error, fence=fence) from None
        if status:
            fail(status, "Copier.wait", fence=fence)


def memories_of(name: str, value: Any) -> list[Any]:
    """A memory, or one for each layer group, as pointers that keep them."""
    given = [value] if isinstance(value, Memory) else listed(name, value)
    for memory in given:
        if not isinstance(memory, Memory):
            raise TypeError(f"{name}: needs memories, not {type(memory).__name__}")
    return [memory._open() for memory in given]


def _structs(name: str, array: Any, dtype: np.dtype[Any]) -> tuple[Any, int]:
    """The bytes of an array of structs, and how many they are."""
    if not isinstance(array, np.ndarray) or array.dtype != dtype:
        raise TypeError(f"{name}: needs a NumPy array of the struct's dtype")
    if array.ndim != 1 or not array.flags.c_contiguous:
        raise ArgError(f"{name}: needs a contiguous array of one dimension")
    if array.size == 0:
        return NULL, 0
    return ffi.from_buffer(array.view(np.uint8)), array.size


