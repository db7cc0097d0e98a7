"""nano-vllm: its BlockManager, on kvpager.

    import nanovllm.engine.scheduler as scheduler
    from kvpager.adapters.nano_vllm import BlockManager

    scheduler.BlockManager = BlockManager        # before LLM(...) is made

nano-vllm's scheduler runs on it unchanged, in both of its versions: the one whose allocate takes a
number of cached blocks and that calls hash_blocks after a step, and the earlier one, whose allocate
seals at once. What is different underneath: a hit is decided by comparing the whole prefix; a block
is shared only once its KV is computed, with the earlier version too; taking a cached block back is
O(1).

Block ids are nano-vllm's, 0 .. num_blocks - 1: kvpager's less one, because its block 0 is never
handed out. So a KV cache of num_blocks blocks is enough.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np

from .. import _constants as c
from .._cache import Cache
from .._core import I32Array
from .._errors import NoSeqsError
from .._sequence import Sequence


class EngineSequence(Protocol):
    """What is used of nano-vllm's Sequence."""

    seq_id: int
    token_ids: list[int]
    num_cached_tokens: int
    block_table: list[int]

    def __len__(self) -> int: ...


class Admitted(int):
    """What can_allocate gives: cached blocks, or -1. True when the sequence fits, also with none
    cached: the earlier scheduler asks only that."""

    def __bool__(self) -> bool:
        return self >= 0


class _Held:
    """A sequence that has blocks: ours, how many tokens it has room for, and whether the engine
    tells with hash_blocks what is computed."""

    __slots__ = ("seq", "n_tokens", "tells")

    def __init__(self, seq: Sequence, n_tokens: int, tells: bool) -> None:
        self.seq, self.n_tokens, self.tells = seq, n_tokens, tells


class BlockManager:
    """nano-vllm's interface: can_allocate, allocate, deallocate, can_append, may_append,
    hash_blocks, compute_hash.

    num_blocks            blocks of the KV cache
    block_size            tokens of a block
    non_cache_token_ids   ids that must not be shared: from the block with one on, nothing is
    max_seqs              sequences that have blocks at once; more have to wait
    """

    def __init__(self, num_blocks: int, block_size: int,
                 non_cache_token_ids: Iterable[int] = (), max_seqs: int = 1024) -> None:
        uncached = sorted(non_cache_token_ids)
        self.block_size = block_size
        self.cache = Cache(n_blocks=num_blocks + 1, block_tokens=block_size,
                           max_seqs=min(max_seqs, num_blocks),
                           max_seq_tokens=min(num_blocks * block_size, 2 ** 31 - 1),
                           commit_policy=c.KEEP, full_hit=c.FULL_HIT_RECOMPUTE,
                           uncached_tokens=uncached if uncached else None)
        self._ns = self.cache.namespace()
        self._held: dict[int, _Held] = {}
        # The prompt that was asked for last: the scheduler asks before it allocates.
        self._asked: tuple[int, I32Array] | None = None

    @classmethod
    def compute_hash(cls, token_ids: list[int], prefix: int = -1) -> int:
        """nano-vllm's own content hash (needs the package xxhash, as nano-vllm does). Nothing here
        uses it: kvpager's hash is wider, and proves nothing either."""
        import xxhash

        hashed = xxhash.xxh64()
        if prefix != -1:
            hashed.update(prefix.to_bytes(8, "little"))
        hashed.update(np.array(token_ids).tobytes())
        return int(hashed.intdigest())

    @property
    def num_free_blocks(self) -> int:
        """Blocks that nobody holds, cached ones included."""
        stats = self.cache.stats()
        return stats.free_blocks + stats.cached_blocks

    def _tokens(self, seq: EngineSequence) -> I32Array:
        if self._asked and self._asked[0] == seq.seq_id and len(self._asked[1]) == len(seq):
            return self._asked[1]
        tokens = np.array(seq.token_ids, np.int32)
        self._asked = seq.seq_id, tokens
        return tokens

    def can_allocate(self, seq: EngineSequence) -> Admitted:
        """Cached blocks at the sequence's beginning, the last block never counted; -1 when there is
        not room for the rest."""
        tokens = self._tokens(seq)
        if self._ns.can_open(tokens).verdict != c.ADMIT_OK or \
                len(self._held) >= self.cache.config["max_seqs"]:
            return Admitted(-1)
        return Admitted(self._ns.match(tokens).hit_tokens // self.block_size)

    def allocate(self, seq: EngineSequence, num_cached_blocks: int | None = None) -> None:
        """Give the sequence its blocks, in block_table; num_cached_tokens are cached."""
        assert not seq.block_table, "the sequence has blocks already"
        try:
            ours = self._ns.open(self._tokens(seq))
        except NoSeqsError as error:
            raise RuntimeError("can_allocate was not asked") from error
        self._asked = None
        self._held[seq.seq_id] = _Held(ours, len(seq), num_cached_blocks is not None)
        seq.num_cached_tokens = ours.opened.hit_tokens
        seq.block_table.extend((ours.row() - 1).tolist())

    def deallocate(self, seq: EngineSequence) -> None:
        """Take the blocks back, the last one first; full computed ones stay cached."""
        held = self._held.pop(seq.seq_id)
        if not held.tells:
            # Its newest token has been sampled, not computed; all before it have.
            held.seq.commit(min(len(seq) - 1, held.n_tokens))
        held.seq.close()
        seq.num_cached_tokens = 0
        seq.block_table.clear()

    def can_append(self, seq: EngineSequence) -> bool:
        """Whether there is room for the newest token."""
        if len(seq) % self.block_size != 1:
            return True
        held = self._held[seq.seq_id]
        missing = np.array([len(seq) - held.n_tokens], np.uint32)
        answer = self.cache.can_extend([held.seq], n_tokens=missing)
        return answer.verdict == c.ADMIT_OK

    def may_append(self, seq: EngineSequence) -> None:
        """Make room for the newest token: a block, when it begins one."""
        held = self._held[seq.seq_id]
        n_tokens = len(seq)
        if not held.tells:
            held.seq.commit(min(n_tokens - 1, held.n_tokens))
        missing = n_tokens - held.n_tokens
        if missing == 1:
            held.seq.append(seq.token_ids[-1])
        elif missing > 1:
            held.seq.extend(np.array(seq.token_ids[-missing:], np.int32))
        held.n_tokens = n_tokens
        if missing > 0 and (n_tokens - 1) // self.block_size >= len(seq.block_table):
            known = len(seq.block_table)
            seq.block_table.extend((held.seq.row()[known:] - 1).tolist())

    def hash_blocks(self, seq: Any) -> None:
        """After a step: what it computed of the sequence, num_scheduled_tokens from
        num_cached_tokens on, can be shared from now on, block by full block."""
        held = self._held[seq.seq_id]
        held.tells = True
        held.seq.commit(seq.num_cached_tokens + seq.num_scheduled_tokens)
