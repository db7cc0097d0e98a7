"""KV memory: in place for NumPy and torch, both ways; plans; attention against NumPy."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import kvpager
from kvpager._core import locked
from kvpager import Cache, Copier, CsrLists, DenseLists, Layout, Memory


def layout(**changes: int) -> Layout:
    fields: dict[str, Any] = {"type": kvpager.F32, "n_blocks": 9, "block_tokens": 4, "n_layers": 2,
                              "n_heads": 2, "k_size": 8, "v_size": 8, **changes}
    return Layout(**fields)


def test_arrange() -> None:
    made = Layout(type=kvpager.F32, n_blocks=9, block_tokens=4, n_layers=2, n_heads=1, k_size=2,
                  v_size=2).arrange(kvpager.ORDER_TENSORRT_LLM)
    k, v = made.part("k"), made.part("v")
    assert (made.n_tensors, k.tensor_bytes, k.block_stride, v.offset) == (1, 1152, 128, 32)
    assert made.block_bytes == 128
    made.check()
    made.set_part("k", k._replace(block_stride=4))
    with pytest.raises(kvpager.ArgError, match="Layout.check: ."):
        made.check()
    with pytest.raises(kvpager.ArgError, match="order='QQ'"):
        layout().arrange("QQ")
    with pytest.raises(TypeError, match="n_bloks"):
        Layout(n_bloks=1)  # type: ignore[call-arg]


def test_in_place_for_numpy() -> None:
    memory = Memory.create(layout().arrange(kvpager.ORDER_VLLM_NHD))
    layer = memory.layer(1)
    view = layer.tensor(kvpager.K).numpy()
    assert view.shape == (9, 4, 2, 8)
    view[3, 2, 1] = range(8)
    assert layer.read(kvpager.K, 3 * 4 + 2, 1).tolist() == list(range(8))
    layer.write(kvpager.V, 5, 0, np.full(8, 2.5, np.float32))
    assert layer.tensor(kvpager.V).numpy()[1, 1, 0].tolist() == [2.5] * 8
    assert memory.tensor(1).numpy().size == 2 * 9 * 4 * 2 * 8
    assert len(view.data) == 9


def test_memory_lives_as_long_as_what_is_made_of_it() -> None:
    memory = Memory.create(layout().arrange(kvpager.ORDER_CPU))
    view = memory.layer(0).tensor(kvpager.K).numpy()
    memory.close()
    with pytest.raises(kvpager.ClosedError):
        memory.layer(0)
    del memory
    gc.collect()
    view[:] = 7
    assert float(view.sum()) == 7 * view.size


def test_wrap_numpy() -> None:
    made = layout().arrange(kvpager.ORDER_APART_NHD)
    assert made.n_tensors == 4
    tensors = [np.zeros((9, 4, 2, 8), np.float32) for _ in range(4)]
    memory = Memory.wrap(made, tensors)
    memory.layer(1).write(kvpager.K, 9, 1, np.arange(8, dtype=np.float32))
    assert tensors[1][2, 1, 1].tolist() == list(range(8))
    keep = np.zeros((9, 4, 2, 8), np.float32)
    for wrong, kind, name in (
            (tensors[:3], ValueError, "tensors"),
            ([*tensors[:3], None], kvpager.ArgError, "tensors"),
            ([*tensors[:3], keep[:5]], ValueError, r"tensors\[3\]"),
            ([*tensors[:3], keep[:, ::2]], ValueError, r"tensors\[3\]"),
            ([*tensors[:3], b"x" * 3000], ValueError, r"tensors\[3\]"),
            ([*tensors[:3], np.full(600, None)], TypeError, r"tensors\[3\]"),
            ([*tensors[:3], 5], TypeError, r"tensors\[3\]"),
            ([*tensors[:3], tensors[0]], kvpager.ArgError, "tensors")):
        with pytest.raises(kind, match=name):
            Memory.wrap(made, wrong)
    frozen = keep.copy()
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match=r"tensors\[3\]"):
        Memory.wrap(made, [*tensors[:3], frozen])


def test_dlpack_to_numpy() -> None:
    memory = Memory.create(layout().arrange(kvpager.ORDER_VLLM_HND))
    tensor = memory.layer(0).tensor(kvpager.K)
    view = np.from_dlpack(tensor)
    assert view.shape == (9, 4, 2, 8)
    tensor.numpy()[1, 1, 1, 1] = 3
    assert view[1, 1, 1, 1] == 3
    del tensor, memory
    gc.collect()
    assert view[1, 1, 1, 1] == 3
    untaken = Memory.create(layout().arrange(kvpager.ORDER_CPU)).layer(0).tensor(0).__dlpack__()
    del untaken
    gc.collect()


class Tensor:
    """What has DLPack and nothing else."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32, np.int64])
def test_a_dlpack_tensor_has_the_bytes_that_it_has(dtype: Any) -> None:
    made = layout(n_layers=1).arrange(kvpager.ORDER_CPU)
    least, size = made.part("k").tensor_bytes, np.dtype(dtype).itemsize
    Memory.wrap(made, [Tensor(np.zeros(least // size, dtype))])
    with pytest.raises(kvpager.ArgError, match=rf"tensors\[0\]: has {least - size} bytes"):
        Memory.wrap(made, [Tensor(np.zeros(least // size - 1, dtype))])


def test_wrap_by_dlpack() -> None:
    """A tensor of another memory, by DLPack: in place when it is contiguous, refused when not."""
    made = layout(n_layers=1).arrange(kvpager.ORDER_APART_NHD)
    other = Memory.create(layout(n_layers=1).arrange(kvpager.ORDER_APART_NHD))
    tensors = [other.layer(0).tensor(which) for which in (kvpager.K, kvpager.V)]
    wrapped = Memory.wrap(made, tensors)
    del other
    gc.collect()
    wrapped.layer(0).write(kvpager.V, 7, 1, np.full(8, 3.0, np.float32))
    assert tensors[1].numpy()[1, 3, 1].tolist() == [3.0] * 8
    strided = Memory.create(layout(n_layers=1).arrange(kvpager.ORDER_VLLM_HND)).layer(0).tensor(0)
    with pytest.raises(ValueError, match=r"tensors\[1\]: the tensor is not contiguous"):
        Memory.wrap(made, [tensors[0], strided])


def test_torch_uses_it_in_place() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    for kind, name in ((kvpager.F32, torch.float32), (kvpager.BF16, torch.bfloat16),
                       (kvpager.F16, torch.float16), (kvpager.INT8, torch.int8)):
        memory = Memory.create(layout(type=kind).arrange(kvpager.ORDER_VLLM_NHD))
        tensor = torch.from_dlpack(memory.layer(1).tensor(kvpager.V))
        assert tensor.dtype == name and tuple(tensor.shape) == (9, 4, 2, 8)
        tensor[2, 3, 1] = torch.arange(8).to(name)
        assert memory.layer(1).read(kvpager.V, 11, 1).tolist() == list(range(8))
        del memory
        gc.collect()
        assert tensor[2, 3, 1].tolist() == list(range(8))
    made = layout(type=kvpager.BF16).arrange(kvpager.ORDER_VLLM_NHD)
    tensors = [torch.zeros(2, 9, 4, 2, 8, dtype=torch.bfloat16) for _ in range(2)]
    wrapped = Memory.wrap(made, tensors)
    wrapped.layer(0).write(kvpager.K, 4, 0, np.full(8, 1.5, np.float32))
    assert tensors[0][0, 1, 0, 0].tolist() == [1.5] * 8
    with pytest.raises(ValueError, match=r"tensors\[1\]: the tensor is not contiguous"):
        Memory.wrap(made, [tensors[0], tensors[1].transpose(0, 1)])
    cache = Cache(n_blocks=9)
    assert cache.namespace().open(torch.arange(5, dtype=torch.int32)).info().n_tokens == 5
    with pytest.raises(TypeError, match="tokens"):
        cache.namespace().open(torch.arange(5))


def test_types() -> None:
    values = np.array([[0.0, 1.5], [-2.0, 448.0]], np.float32)
    for kind in (kvpager.F32, kvpager.F16, kvpager.BF16, kvpager.E4M3):
        stored = kvpager.type_from_f32(kind, values)
        assert stored.dtype.itemsize == kvpager.type_bytes(kind)
        assert kvpager.type_to_f32(kind, stored).tolist() == values.tolist()
    scale = kvpager.type_scale(kvpager.INT8, 127.0)
    assert scale == 1.0
    with pytest.raises(TypeError, match="values"):
        kvpager.type_from_f32(kvpager.F16, values.astype(np.float64))
    with pytest.raises(TypeError, match="elements"):
        kvpager.type_to_f32(kvpager.F16, values)


def test_plans_run() -> None:
    """A fork's copy-on-write, and a swap to a host memory of another order and back."""
    cache = Cache(n_blocks=9, host_blocks=9, block_tokens=4)
    device = Memory.create(layout().arrange(kvpager.ORDER_VLLM_NHD))
    host = Memory.create(layout().arrange(kvpager.ORDER_TENSORRT_LLM))
    ns = cache.namespace()
    seq = ns.open(range(6))
    for layer in range(2):
        for position, slot in enumerate(seq.slots(0, 6)):
            for head in range(2):
                device.layer(layer).write(kvpager.K, int(slot), head,
                                          np.full(8, position, np.float32))
    seq.commit(6)
    with Copier(device, host, n_threads=2) as copier:
        child = seq.fork()
        child.append(9)
        plan = cache.plan_take()
        assert len(plan) == 1
        copier.wait(copier.run(plan))
        sums = [device.checksum(int(plan[0][name]), 2) for name in ("src_block", "dst_block")]
        assert sums[0] == sums[1] and len(sums[0]) == 16
        cache.swap_out([seq, child])
        copier.run(cache.plan_take())
        k, v = host.gather(child.row(), 1, 0, 6)
        assert k[:, 1, 0].tolist() == [0, 1, 2, 3, 4, 5] and v is not None
        cache.swap_in([seq, child])
        copier.run(cache.plan_take())
        k, _ = device.gather(seq.row(), 0, 2, 4)
        assert k[:, 0, 5].tolist() == [2, 3, 4, 5]
        slot = int(seq.row()[0]) * 4
        copier.move(np.array([[slot, slot + 1]]))
        assert device.layer(0).read(kvpager.K, slot + 1, 0).tolist() == [0.0] * 8
        for wrong, name in ((np.zeros(2), "moves"), (np.zeros((2, 3), np.int64), "moves")):
            with pytest.raises((TypeError, ValueError), match=name):
                copier.move(wrong)
        with pytest.raises(TypeError, match="copies"):
            copier.run(np.zeros(3))
        with pytest.raises(kvpager.ArgError):
            copier.wait(999)
    with pytest.raises(kvpager.ClosedError):
        copier.run(plan)
    with pytest.raises(TypeError, match="device"):
        Copier([5])  # type: ignore[list-item]


def test_bad_slots_and_layers() -> None:
    memory = Memory.create(layout().arrange(kvpager.ORDER_CPU))
    layer = memory.layer(0)
    good = np.zeros(8, np.float32)
    for call, name in (
            (lambda: memory.layer(2), "layer"), (lambda: memory.layer(-1), "layer"),
            (lambda: layer.read(7, 0, 0), "which"), (lambda: layer.read(0, 36, 0), "slot"),
            (lambda: layer.read(0, -1, 0), "slot"), (lambda: layer.read(0, 0, 2), "head"),
            (lambda: layer.write(0, 0, 0, good[:4]), "values"),
            (lambda: layer.write(0, 0, 0, good.astype(np.float64)), "values"),
            (lambda: layer.write(0, 99, 0, good), "slot"),
            (lambda: memory.checksum(9, 1), "block"), (lambda: memory.checksum(1, 5), "n_tokens"),
            (lambda: memory.gather([1], 0, 0, 5), "n_tokens"),
            (lambda: memory.gather([99], 0, 0, 4), "row"),
            (lambda: memory.gather(np.zeros(2), 0, 0, 4), "row"),
            (lambda: memory.tensor(9), "index")):
        with pytest.raises((TypeError, ValueError), match=name):
            call()


# ------------------------------------------------------------------------------------ attention


def paged() -> tuple[Memory, Cache, Any, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Two sequences of 7 and 5 tokens whose K and V are random."""
    rng = np.random.default_rng(11)
    cache = Cache(n_blocks=9, block_tokens=4)
    memory = Memory.create(layout().arrange(kvpager.ORDER_CPU))
    ns = cache.namespace()
    seqs = [ns.open(range(7)), ns.open(range(50, 55))]
    meta = kvpager.csr(cache, seqs)
    k, v = (rng.standard_normal((12, 2, 8)).astype(np.float32) for _ in range(2))
    kvpager.append(memory.layer(0), k, v, meta.slot_mapping)
    return memory, cache, seqs, k, v


def plain(q: Any, k: Any, v: Any) -> Any:
    """Causal attention of the last len(q) queries, 4 query heads on 2 KV heads."""
    out = np.zeros((len(q), 4, 8))
    for i in range(len(q)):
        seen = len(k) - len(q) + i + 1
        for head in range(4):
            scores = k[:seen, head // 2] @ q[i, head] / np.sqrt(8)
            weights = np.exp(scores - scores.max())
            out[i, head] = weights @ v[:seen, head // 2] / weights.sum()
    return out


def test_attention_against_numpy() -> None:
    memory, cache, seqs, k, v = paged()
    q = np.random.default_rng(3).standard_normal((12, 4, 8)).astype(np.float32)
    meta, table = kvpager.csr(cache, seqs), kvpager.dense(cache, seqs)
    want = np.concatenate([plain(q[:7], k[:7], v[:7]), plain(q[7:], k[7:], v[7:])])
    lists = CsrLists(meta.kv_indptr, meta.kv_indices, meta.last_block_len)
    layer = memory.layer(0)
    got = kvpager.attention(layer, q, meta.qo_indptr, lists)
    assert np.allclose(got, want, atol=1e-6)
    lse = np.zeros((12, 4), np.float32)
    wide = np.zeros((12, 8, 8), np.float32)
    same = kvpager.attention(layer, q, meta.qo_indptr,
                             DenseLists(table.block_table, table.seq_lens),
                             out=wide[:, ::2], lse=lse)
    assert np.array_equal(same, got) and np.array_equal(wide[:, ::2], got)
    assert not wide[:, 1::2].any()
    levels = kvpager.cascade(cache, seqs)
    cascade = kvpager.attention(layer, q, meta.qo_indptr, [
        CsrLists(level.kv_indptr, level.kv_indices, level.last_block_len, level.qo_indptr)
        for level in levels.levels], order=levels.order)
    assert np.array_equal(cascade, got)
    merged, total = kvpager.merge([(got, lse), (np.zeros_like(got), np.full_like(lse, -np.inf))])
    assert np.array_equal(merged, got) and np.allclose(total, lse)


def test_attention_with_a_team() -> None:
    memory, cache, seqs, k, v = paged()
    meta = kvpager.csr(cache, seqs)
    lists = CsrLists(meta.kv_indptr, meta.kv_indices, meta.last_block_len)
    q = np.random.default_rng(3).standard_normal((12, 4, 8)).astype(np.float32)
    alone = kvpager.attention(memory.layer(0), q, meta.qo_indptr, lists)
    team = kvpager.AttentionTeam(2)
    both = kvpager.attention(memory.layer(0), q, meta.qo_indptr, lists, team=team)
    assert np.array_equal(alone, both)
    with locked(team._o, "team"), pytest.raises(kvpager.BusyError, match="team"):
        kvpager.attention(memory.layer(0), q, meta.qo_indptr, lists, team=team)
    for wrong in (0, -1, 2 ** 70, 1.5):
        with pytest.raises((TypeError, kvpager.ArgError), match="n_threads"):
            kvpager.AttentionTeam(wrong)  # type: ignore[arg-type]
    assert kvpager.attention_has(kvpager.ATTENTION_PORTABLE) and not kvpager.attention_has(1000)


def test_attention_windows_and_rope() -> None:
    memory, cache, seqs, k, v = paged()
    meta = kvpager.csr(cache, seqs)
    lists = CsrLists(meta.kv_indptr, meta.kv_indices, meta.last_block_len)
    q = np.random.default_rng(3).standard_normal((12, 4, 8)).astype(np.float32)
    layer = memory.layer(0)
    alone = kvpager.attention(layer, q, meta.qo_indptr, lists,
                              window=kvpager.AttentionWindow(recent_tokens=1))
    assert np.allclose(alone[3], v[3].repeat(2, 0), atol=1e-6)
    rope = kvpager.Rope(mode=kvpager.ROPE_AT_READ, theta=10000.0)
    turned = kvpager.attention(layer, q, meta.qo_indptr, lists, rope=rope)
    assert np.allclose(turned[0], v[0].repeat(2, 0), atol=1e-6)
    frequencies, magnitude = rope.frequencies(8)
    assert np.allclose(frequencies, 10000.0 ** (-np.arange(4) / 4)) and magnitude == 1.0


def test_attention_of_parts() -> None:
    """A window over two parts of the keys: only the queries' positions say where it is."""
    memory, cache, seqs, k, v = paged()
    meta, layer = kvpager.csr(cache, seqs[:1]), memory.layer(0)
    ids, n, S = meta.kv_indices, 7, 4
    q = np.random.default_rng(3).standard_normal((2, 4, 8)).astype(np.float32)
    starts, positions = np.array([0, 2], np.int32), np.array([n - 2, n - 1], np.int32)
    zero = np.zeros(1, np.int32)

    def part(first: int, last: int, tokens: int, **more: Any) -> tuple[Any, Any]:
        lse = np.zeros((2, 4), np.float32)
        lists = CsrLists(np.array([0, last - first], np.int32), ids[first:last],
                         np.array([tokens - (last - first - 1) * S], np.int32))
        causal = more.pop("causal", True)
        window = kvpager.AttentionWindow(1, 3, **more)
        return kvpager.attention(layer, q, starts, lists, lse=lse, causal=causal,
                                 window=window), lse

    whole = part(0, 2, n)
    placed = {"sink_len": zero, "window_offset": zero}
    past = part(0, 1, S, causal=False, query_positions=positions)
    own = part(1, 2, n - S, key_offset=np.array([S], np.int32), **placed)
    merged = kvpager.merge([past, own])
    assert np.allclose(merged[0], whole[0], atol=1e-6)
    assert np.allclose(merged[1], whole[1], atol=1e-6)
    with pytest.raises(kvpager.ArgError):
        part(0, 1, S, causal=False)


def test_attention_bad_input() -> None:
    memory, cache, seqs, k, v = paged()
    meta = kvpager.csr(cache, seqs)
    lists = CsrLists(meta.kv_indptr, meta.kv_indices, meta.last_block_len)
    layer, q = memory.layer(0), np.zeros((12, 4, 8), np.float32)
    run = kvpager.attention
    wrong: list[tuple[Any, str]] = [
        (lambda: run(layer, q.astype(np.float64), meta.qo_indptr, lists), "q"),
        (lambda: run(layer, q[:, :, ::2], meta.qo_indptr, lists), "q"),
        (lambda: run(layer, q[0], meta.qo_indptr, lists), "q"),
        (lambda: run(layer, q, meta.qo_indptr[:1], lists), "query_start"),
        (lambda: run(layer, q, meta.qo_indptr[:2], lists), "lists"),
        (lambda: run(layer, q, meta.qo_indptr.astype(np.int64), lists), "query_start"),
        (lambda: run(layer, q, meta.qo_indptr, lists, out=q[:5]), "out"),
        (lambda: run(layer, q, meta.qo_indptr, lists, positions=[1]), "positions"),
        (lambda: run(layer, q, meta.qo_indptr, lists, sink_logits=np.zeros(3, np.float32)),
         "sink_logits"),
        (lambda: run(layer, q, meta.qo_indptr, lists,
                     window=kvpager.AttentionWindow(sinks=[1], recent=[1])), "sinks"),
        (lambda: run(layer, q, meta.qo_indptr, lists,
                     window=kvpager.AttentionWindow(0, 1, query_positions=[1])), "query_positions"),
        (lambda: run(layer, q, meta.qo_indptr, lists,
                     tree=kvpager.AttentionTree(start=[0, 0])), "start"),
        (lambda: run(layer, q, meta.qo_indptr, lists._replace(last_len=[1])), "row_start"),
        (lambda: run(layer, q, meta.qo_indptr, lists._replace(blocks=meta.kv_indices[:1])),
         "attention"),
        (lambda: run(layer, q, meta.qo_indptr, lists._replace(blocks=meta.kv_indices + 50)),
         "attention"),
        (lambda: kvpager.append(layer, k, None, meta.slot_mapping), "v"),
        (lambda: kvpager.append(layer, k[:3], v, meta.slot_mapping), "k"),
        (lambda: kvpager.append(layer, k, v, meta.slot_mapping.astype(np.int32)), "slots"),
        (lambda: kvpager.append(layer, k, v, meta.slot_mapping + 500), "append"),
        (lambda: kvpager.append(layer, k, v, meta.slot_mapping, positions=[0],
                                rope=kvpager.Rope(mode=kvpager.ROPE_AT_WRITE)), "positions"),
        (lambda: kvpager.append(layer, k, v, meta.slot_mapping,
                                rope=kvpager.Rope(mode=kvpager.ROPE_AT_WRITE)), "append"),
        (lambda: run(layer, q, meta.qo_indptr, lists, rope=kvpager.Rope(
            np.zeros(1), mode=kvpager.ROPE_AT_READ)), "frequencies"),
        (lambda: kvpager.merge([]), "partials"),
    ]
    for call, name in wrong:
        with pytest.raises((TypeError, ValueError), match=name):
            call()
