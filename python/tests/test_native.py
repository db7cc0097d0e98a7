"""What the functions of native/ that are called through cffi do where Python's side does not look: room
for copies, files that children must not have, locks, and what is freed."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import pathlib
import random
import threading
from typing import Any

import numpy as np
import pytest

import kvpager
from kvpager import Cache, Scheduler
from kvpager._core import calls, locked
from kvpager._native import ffi, lib

SMALL: Any = {"n_blocks": 16, "block_tokens": 4, "max_seqs": 4, "max_seq_tokens": 64}
LIBC = ctypes.CDLL(None)
LISTS = [("seqs", "n_seqs"), ("tokens", "n_tokens"), ("drafts", "n_decoding"), ("admitted", "n_admitted"),
         ("preempted", "n_preempted"), ("swapped_out", "n_swapped_out"), ("swapped_in", "n_swapped_in"),
         ("ended", "n_ended")]


def copied(step: Any, sizes: dict[str, int]) -> None:
    """Each list lies behind the one before, and the last ends where the memory does."""
    address = int(ffi.cast("uintptr_t", step))
    end = address + ffi.sizeof("kvpy_step")
    for name, number in LISTS:
        array, n = getattr(step.step, name), getattr(step.step, number)
        at = int(ffi.cast("uintptr_t", array))
        assert at % 8 == 0 and 0 <= at - end < 8, name
        end = at + n * ffi.sizeof(ffi.typeof(array).item)
        sizes[number] = max(sizes.get(number, 0), n)
    LIBC.malloc_usable_size.restype = ctypes.c_size_t
    assert 0 <= LIBC.malloc_usable_size(ctypes.c_void_p(address)) - (end - address) < 48


@pytest.mark.parametrize("preempt", [kvpager.PREEMPT_SWAP, kvpager.PREEMPT_RECOMPUTE])
def test_a_copied_step_has_as_much_room_as_it_needs(preempt: int) -> None:
    if not hasattr(LIBC, "malloc_usable_size"):
        pytest.skip("a C library that does not tell")
    draw, sizes = random.Random(7), dict[str, int]()
    cache = Cache(n_blocks=100, block_tokens=1, max_seqs=40, max_seq_tokens=60, host_blocks=100, max_copies=500)
    sched, ns = Scheduler(cache, step_tokens=300, preempt=preempt), cache.namespace()
    for turn in range(120):
        gone = cache.namespace("gone")
        for _ in range(turn % 5):
            sched.submit(gone, [1], max_new_tokens=1, priority=-1)
        gone.close()
        while sched.stats().submitted - sched.stats().ended < 40:
            sched.submit(ns, [draw.randrange(99) for _ in range(draw.choice((1, 2, 20)))],
                         max_new_tokens=draw.randrange(1, 30))
        place = ffi.gc(ffi.new("kvpy_step **"), lib.kvpy_step_free)
        assert lib.kvpy_sched_step(sched._o, place) == 0
        copied(place[0], sizes)
        n = place[0].step.n_sampled
        cache.plan_take()
        sched.finish(np.full(n, turn, np.int32), np.array([draw.random() < 0.1 for _ in range(n)]))
    swaps = ("n_swapped_out", "n_swapped_in") if preempt == kvpager.PREEMPT_SWAP else ("n_preempted",)
    assert all(sizes[name] > 1 for name in ("n_seqs", "n_tokens", "n_decoding", "n_admitted", "n_ended", *swaps)), sizes


def inherited(path: pathlib.Path) -> list[bool]:
    """Whether those of this process's files that are `path` are left open in a program that it runs."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}") == str(path):
                found.append(fcntl.fcntl(int(name), fcntl.F_GETFD) & fcntl.FD_CLOEXEC == 0)
        except OSError:  # what listed them
            pass
    return found


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="a system without /proc")
def test_no_program_inherits_a_file_that_is_read(tmp_path: pathlib.Path) -> None:
    memory, told = mmap.mmap(-1, Cache.bytes_for(**SMALL)), list[Any]()
    with Cache(**SMALL, arena=memory) as cache:
        seq = cache.namespace().open(range(8))
        seq.commit(8)
        cache.save(tmp_path / "snapshot", block_bytes=4, get=lambda block, out: None)
        (tmp_path / "arena").write_bytes(memory[:])
    kvpager.arena_inspect(tmp_path / "arena", tell_seq=lambda _: told.append(inherited(tmp_path / "arena")))
    with Cache(**SMALL) as cache:
        cache.load(tmp_path / "snapshot", block_bytes=4,
                   put=lambda block, data: told.append(inherited(tmp_path / "snapshot")))
    assert told == [[False]] * 3


def test_what_a_tensor_s_type_is_for_others() -> None:
    """DLPack's codes and bits; of a type that is none, none."""
    shape = ffi.new("int64_t[]", [2, 3, 4, 5, 6, 7, 8, 9])
    for type_, code, bits in ((kvpager.F32, 2, 32), (kvpager.F16, 2, 16), (kvpager.BF16, 4, 16),
                              (kvpager.INT8, 0, 8), (kvpager.E4M3, 10, 8), (kvpager.BYTES, 1, 8), (6, 0, 0),
                              (99, 0, 0)):
        for n in range(9):
            made = lib.kvpy_dl_new(0, ffi.cast("void *", 4096), type_, n, shape, shape + 0)
            of = made.tensor
            assert (of.code, of.bits, of.lanes, of.device_type, of.device_id, of.byte_offset) == (code, bits, 1, 1, 0, 0)
            assert of.ndim == n and int(ffi.cast("uintptr_t", of.data)) == 4096 and made.manager == ffi.NULL
            assert [of.shape[i] for i in range(n)] == [of.strides[i] for i in range(n)] == list(range(2, n + 2))
            made.deleter(made)
    for n in -1, 9:
        assert lib.kvpy_dl_new(0, ffi.NULL, 0, n, shape, shape) == ffi.NULL


def test_what_is_freed_while_a_thread_is_inside_waits_for_it() -> None:
    cache, before = Cache(**SMALL), lib.kvpy_objects_destroyed()
    raw, last = ffi.cast("kvpy_object *", cache._o), [cache]
    del cache
    assert lib.kvpy_object_lock(raw) == 0
    thread = threading.Thread(target=last.clear)
    thread.start()
    thread.join(0.2)  # it sees the lock by then; a machine that is too slow proves nothing
    assert lib.kvpy_objects_destroyed() == before
    lib.kvpy_object_unlock(raw)
    thread.join()
    assert lib.kvpy_objects_destroyed() == before + 1


def test_a_place_is_empty_when_there_is_nothing_in_it() -> None:
    with Cache(**SMALL) as cache:
        made = cache._o
        with locked(made, "first"):
            place = ffi.new("kvpy_object **")
            assert lib.kvpy_place_lock(made, place) == kvpager.BusyError.status and place[0] == ffi.NULL
            lib.kvpy_place_unlock(place)
            assert lib.kvpy_object_lock(made) != 0
        assert lib.kvpy_place_lock(made, place) == 0 and place[0] == made
        lib.kvpy_place_unlock(place)
        assert place[0] == ffi.NULL


def test_a_file_may_have_any_number(tmp_path: pathlib.Path) -> None:
    """Also the first one, where a daemon has closed its standard input; and it is closed again."""
    memory = mmap.mmap(-1, Cache.bytes_for(**SMALL))
    with Cache(**SMALL, arena=memory) as cache:
        cache.save(tmp_path / "snapshot")
        (tmp_path / "arena").write_bytes(memory[:])
    saved = os.dup(0)
    try:
        os.close(0)
        assert kvpager.arena_inspect(tmp_path / "arena").state == kvpager.ARENA_WHOLE
        assert kvpager.snapshot_peek(tmp_path / "snapshot")["block_tokens"] == 4
        with pytest.raises(OSError):
            os.fstat(0)
    finally:
        os.dup2(saved, 0)
        os.close(saved)


def test_what_was_evicted_is_as_long_as_it_is() -> None:
    dtype = kvpager.EVICTED_DTYPE
    with Cache(n_blocks=9, block_tokens=4, max_seqs=4, max_seq_tokens=64) as cache:
        ns = cache.namespace()
        for i in range(2):
            with ns.open(np.full(32, i, np.int32)) as seq:
                seq.commit(32)
        seq = ns.open(np.full(24, 9, np.int32))
        whole = cache.evicted()
        assert len(whole) == len(set(whole["block"].tolist())) == 6 and seq.row().tolist() == whole["block"].tolist()
        for capacity in range(9):
            room = np.full(9 * dtype.itemsize, 0xA5, np.uint8)
            n = ffi.new("uint32_t *")
            status = lib.kvpy_evicted(cache._o, ffi.cast("kvp_evicted *", ffi.from_buffer(room)), capacity, n)
            assert n[0] == len(whole) and status == (0 if capacity >= n[0] else kvpager.TooSmallError.status)
            copied = min(capacity, n[0]) * dtype.itemsize
            assert np.array_equal(room[:copied], whole.view(np.uint8)[:copied]) and (room[copied:] == 0xA5).all()


def test_what_ended_is_as_long_as_its_room() -> None:
    size = ffi.sizeof("kvp_ended")
    for with_counts in (False, True):
        for capacity in range(5):
            with Cache(**SMALL) as cache, Scheduler(cache) as sched:
                for tag in range(3):
                    sched.submit(cache.namespace(), [1], max_new_tokens=1, tag=tag + 1)
                sched.step()
                room, n = ffi.new("uint8_t[]", b"\xa5" * (5 * size)), ffi.new("uint32_t *")
                tokens, ended = ffi.new("int32_t[]", [4, 5, 6, 7]), ffi.cast("kvp_ended *", room)
                for wrong in (2, 4):
                    assert lib.kvpy_sched_finish(sched._o, tokens, ffi.NULL, wrong, ended, capacity, n) == \
                        lib.KVPY_E_LENGTH
                if with_counts:
                    results = ffi.new("kvpy_results *", {"tokens": tokens, "n_tokens": 3})
                    assert lib.kvpy_sched_finish_drafts(sched._o, results, ended, capacity, n) == 0
                else:
                    assert lib.kvpy_sched_finish(sched._o, tokens, ffi.NULL, 3, ended, capacity, n) == 0
                assert n[0] == min(capacity, 3) and [ended[i].tag for i in range(n[0])] == [1, 2, 3][:n[0]]
                assert bytes(room)[n[0] * size:5 * size] == b"\xa5" * ((5 - n[0]) * size)


def test_a_message_fits_its_link_and_its_room() -> None:
    loop = kvpager.Loopback(max_message=4096)
    (one, other), n = loop.ends, ffi.new("size_t *")
    with pytest.raises(kvpager.TooLongError):
        one.post(b"")
    with pytest.raises(kvpager.TooLongError):
        one.post(bytes(4097))
    for size in (1, 4096):
        one.post(b"x" * size)
        room = ffi.new("uint8_t[]", b"\xa5" * 4097)
        assert lib.kvpy_link_take(other._c, room, size - 1, n) == kvpager.TooLongError.status and n[0] == size
        assert bytes(room)[:4097] == b"\xa5" * 4097
        assert lib.kvpy_link_take(other._c, room, size, n) == 0 and n[0] == size
        assert bytes(room)[:4097] == b"x" * size + b"\xa5" * (4097 - size)
        assert other.take() is None
    loop.cut()
    with pytest.raises(kvpager.PeerError):
        one.post(b"x")
    with pytest.raises(kvpager.PeerError):
        other.take()


def kv_memory() -> kvpager.Memory:
    return kvpager.Memory.create(kvpager.Layout(
        type=kvpager.F32, n_blocks=16, block_tokens=4, n_layers=1, n_heads=1, k_size=64, v_size=64,
    ).arrange(kvpager.ORDER_CPU))


MADE_ON_A_CACHE: dict[str, Any] = {
    "Scheduler": Scheduler, "Sender": kvpager.Sender,
    "TransferSender": lambda cache: kvpager.TransferSender(cache, kv_memory()),
    "TransferReceiver": lambda cache: kvpager.TransferReceiver(cache, kv_memory())}


@pytest.mark.parametrize("name", MADE_ON_A_CACHE)
def test_nothing_is_made_on_a_cache_that_cannot_be_used(name: str) -> None:
    cache = Cache(**SMALL)
    made = MADE_ON_A_CACHE[name](cache)
    cache.check()
    del made
    cache.close()
    with pytest.raises(kvpager.ClosedError):
        MADE_ON_A_CACHE[name](cache)


def test_arrays_of_more_elements_than_32_bits_count(tmp_path: pathlib.Path) -> None:
    with (tmp_path / "holes").open("wb") as file:
        file.truncate(4 << 32)
    tokens = np.memmap(tmp_path / "holes", np.int32, "r")
    with Cache(**SMALL) as cache:
        assert calls.match(cache.namespace(), tokens) is None


def test_what_a_look_into_a_file_may_cost(tmp_path: pathlib.Path) -> None:
    """By what the file has, holes left out, unless the caller says how much."""
    path, report = tmp_path / "file", ffi.new("kvp_arena_report *")
    for filled, size in ((0, 0), (1, 1), (4096, 4096), (100_000, 100_000), (4096, 10 << 20)):
        path.write_bytes(bytes(filled))
        os.truncate(path, size)
        found = os.stat(path)
        for asked in (0, 1, 12345):
            options = ffi.new("kvp_arena_options *", {"struct_size": ffi.sizeof("kvp_arena_options"), "max_bytes": asked})
            assert lib.kvpy_arena_inspect_file(os.fsencode(path), options, report) != 0
            assert options.max_bytes == (asked or (64 << 20) + 16 * min(found.st_blocks * 512, size))
