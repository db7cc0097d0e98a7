"""Worker messages: a mirror has every row after each step."""

from __future__ import annotations

import numpy as np
import pytest

import kvpager
from kvpager import Cache, Mirror, Sender


def test_mirror_follows() -> None:
    cache = Cache(n_blocks=64, block_tokens=4, max_seqs=8, max_seq_tokens=64)
    ns, sender = cache.namespace(), Sender(cache)
    mirror = Mirror(**kvpager.wire_config(cache))
    a, b = ns.open(range(10)), ns.open(range(100, 105))
    first = sender.encode([a, b], [0, 3], statuses=[1, 2], step_tokens=[10, 5])
    head = kvpager.wire_peek(first)
    assert (head.number, head.full, head.n_bytes) == (1, 1, len(first))
    news = mirror.apply(first)
    assert news.full and [item.worker_id for item in news.items] == [0, 3]
    assert news.items[1].values.tolist() == list(range(100, 105))
    for step in range(12):
        cache.commit_many([a, b], [a.info().n_tokens, b.info().n_tokens])
        cache.extend_many([a, b], [step, step + 50])
        news = mirror.apply(sender.encode([a, b], [0, 3], statuses=[1, 1], step_tokens=[1, 1],
                                          copies=cache.plan_take()))
        assert [item.values.tolist() for item in news.items] == [[step], [step + 50]]
        for seq, worker_id in ((a, 0), (b, 3)):
            known = mirror.seq(worker_id)
            assert known.row.tolist() == seq.row().tolist()
            assert (known.n_tokens, known.last_token) == (seq.info().n_tokens, seq.info().last_token)
        assert mirror.digest() == sender.digest()
    a.close()
    news = mirror.apply(sender.encode([b], [3], statuses=[1], closed=[0]))
    assert news.closed.tolist() == [0] and mirror.seq(0).status == 0
    assert mirror.info().n_seqs == 1


def test_slots_of_recurrent_state() -> None:
    cache = Cache(n_blocks=64, block_tokens=4, max_seqs=8, max_seq_tokens=64, state_slots=8)
    sender, sizes = Sender(cache), kvpager.wire_config(cache)
    assert sizes["state_slots"] == 8 and sizes["host_state_slots"] == 0
    mirror, seq = Mirror(**sizes), cache.namespace().open(range(8))
    mirror.apply(sender.encode([seq], [2], statuses=[1], step_tokens=[8]))
    assert (mirror.seq(2).read_slot, mirror.seq(2).write_slot) == (0, 1)
    seq.commit(8)
    seq.checkpoint()
    seq.extend([9])
    mirror.apply(sender.encode([seq], [2], statuses=[1], step_tokens=[1]))
    assert (mirror.seq(2).read_slot, mirror.seq(2).write_slot) == (1, 2)
    assert mirror.seq(2).write_slots.tolist() == [2] and not len(mirror.seq(1).write_slots)
    seq.commit(9)
    cache.extend_many([seq], [1, 2, 3], n_tokens=[3], rings=True)
    mirror.apply(sender.encode([seq], [2], statuses=[1], step_tokens=[3]))
    _, n, write = kvpager.state_rings(cache, [seq])
    assert n.tolist() == [3] and mirror.seq(2).write_slots.tolist() == write[0, :3].tolist()
    with pytest.raises(kvpager.ArgError):
        Sender(cache, state_slots=7)
    with pytest.raises(kvpager.ArgError, match="state_slots"):
        Mirror(state_slots=1 << 31)


def test_block_sizes() -> None:
    cache = Cache(n_blocks=64, block_tokens=4, unit_tokens=2, max_seqs=8, max_seq_tokens=64,
                  groups=[(0, 0), (0, 0, 6)])
    sender, sizes = Sender(cache), kvpager.wire_config(cache)
    assert sizes["group_tokens"][:3] == (0, 6, 0)
    mirror, seq = Mirror(**sizes), cache.namespace().open(range(13))
    mirror.apply(sender.encode([seq], [2], statuses=[1]))
    known = mirror.seq(2)
    assert [len(row) for row in known.rows] == [4, 3]
    assert known.row.tolist() == known.rows[0].tolist() == seq.row().tolist()
    assert known.rows[1].tolist() == seq.row(group=1).tolist()
    assert [len(row) for row in mirror.seq(1).rows] == [0, 0]
    other = Mirror(**{**sizes, "group_tokens": [0, 8]})
    with pytest.raises(kvpager.MismatchError):
        other.apply(sender.encode([seq], [2], statuses=[1], full=True))
    with pytest.raises(kvpager.ArgError):
        Sender(cache, group_tokens=[0, 8])
    for wrong in ([1] * 9, [0.5], ["6"], 4):
        with pytest.raises((kvpager.ArgError, TypeError)):
            Mirror(**{**sizes, "group_tokens": wrong})


def test_large_messages_and_bad_bytes() -> None:
    cache = Cache(n_blocks=4096, block_tokens=16, max_seqs=2, max_seq_tokens=20000)
    sender, ns = Sender(cache), cache.namespace()
    seq = ns.open(np.random.default_rng(7).integers(0, 2 ** 31, 15000).astype(np.int32))
    message = sender.encode([seq], [1], statuses=[1])
    assert len(message) > 4096
    mirror = Mirror(**kvpager.wire_config(cache))
    damaged = message[:-1] + bytes([message[-1] ^ 1])
    for wrong in (damaged, message[:100], b""):
        with pytest.raises((kvpager.FormatError, kvpager.ArgError)):
            mirror.apply(wrong)
    assert mirror.apply(message).items[0].values.tolist() == seq.tokens().tolist()
    with pytest.raises(kvpager.StateError):
        mirror.apply(message)
    for arguments in ({"worker_ids": [2]}, {"worker_ids": [1, 1]}, {"statuses": [0]},
                      {"closed": [1, 1]}):
        given = {"worker_ids": [1], "statuses": [1], **arguments}
        with pytest.raises(kvpager.ArgError):
            sender.encode([seq], **given)  # type: ignore[arg-type]
    cache.close()
    with pytest.raises(kvpager.ClosedError):
        sender.encode([seq], [1], statuses=[1])
    mirror.close()
    with pytest.raises(kvpager.ClosedError):
        mirror.seq(0)
