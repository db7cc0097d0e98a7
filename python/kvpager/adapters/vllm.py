"""vLLM V1: a KV-cache manager with the interface that its scheduler calls, on kvpager.

    manager = KVCacheManager(num_blocks=8192, block_size=16, max_model_len=32768)
    blocks, num_computed, _ = manager.get_computed_blocks(request)
    new = manager.allocate_slots(request, num_new_tokens, num_computed, blocks)
    if new is None: ...                         # no room now: preempt somebody, or wait

One group of full attention. vLLM's rules, where kvpager's are others: blocks are committed when
they are scheduled; tables are append-only, duplicates are kept; a prompt that is cached whole
computes its last block again. Block ids mean the same (block 0 is the null block of both). Draft
tokens beyond request.num_tokens get slots and are never cached.

What separates requests: cache_salt, and the LoRA's name, place and number, as keys of the first
block. What follows a multimodal item is neither matched nor published, nor is anything with a LoRA that
is loaded in place: nobody can tell which weights it has.

vLLM's own scheduler runs on it, unpatched: `vllm serve --scheduler-cls kvpager.vllm.Scheduler`.

Events are vLLM's structures, so they need vLLM. A block's hash is 64 bits of kvpager's, and its
tokens are always told, with the LoRA of the requests that can hit it. Blocks that a cache_salt
separates are not told: routers look for tokens, and would take them for anybody's.

Not here, and refused when the manager is made: groups of other kinds (sliding windows, Mamba),
Eagle, context parallelism, hashes of less than a block.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from .. import _constants as c
from .._cache import Cache
from .._core import I32, I32Array, calls
from .._hashing import hash_root, hash_units
from .._errors import BehindError, NeverError, NoBlocksError, NoSeqsError
from .._sequence import Key, Prompt, Sequence

_SALT, _LORA = 1, 2
_empty, _NONE = np.empty, np.empty(0, I32)
_short_hit = calls.short_hit
MAX_EVENTS = 65536


class Block(NamedTuple):
    """What the scheduler reads of a block."""

    block_id: int


@dataclass(slots=True)
class KVCacheBlocks:
    """The scheduler's view of an allocation: blocks[group][i]; one group. The first n_hashed can be
    found by others."""

    ids: tuple[list[int], ...]
    n_hashed: int = 0

    @property
    def blocks(self) -> tuple[list[Block], ...]:
        return tuple([Block(block) for block in group] for group in self.ids)

    def __add__(self, other: KVCacheBlocks) -> KVCacheBlocks:
        return KVCacheBlocks(tuple(a + b for a, b in zip(self.ids, other.ids)))

    def get_block_ids(self, allow_none: bool = False, *,
                      group_ids: SequenceOf[int] | None = None) -> tuple[list[int], ...] | None:
        groups = self.ids if group_ids is None else tuple(self.ids[i] for i in group_ids)
        if allow_none and not any(groups):
            return None
        return groups

    def get_unhashed_block_ids(self) -> list[int]:
        return self.ids[0][self.n_hashed:]

    def get_unhashed_block_ids_all_groups(self) -> list[list[int]]:
        return [group[self.n_hashed:] for group in self.ids]

    def new_empty(self) -> KVCacheBlocks:
        return KVCacheBlocks(tuple([] for _ in self.ids))


def _loaded(lora: Any) -> str:
    """What an adapter that is loaded has of its own: the same name again may have other weights."""
    return repr([lora.lora_name, getattr(lora, "lora_path", ""), getattr(lora, "lora_int_id", 0)])


Event = Any  # BlockStored, BlockRemoved or AllBlocksCleared of vllm.distributed.kv_events


def _wire_hash(name: bytes) -> int:
    """A block's hash as routers take it: 64 bits."""
    return int.from_bytes(name[8:16], "big")


class _Tokens:
    """A request's tokens as an array that grows: each value is taken from its list once."""

    __slots__ = ("values", "n")

    def __init__(self) -> None:
        self.values, self.n = _NONE, 0

    def upto(self, request: Any, n_tokens: int) -> I32Array:
        if n_tokens > self.n:
            n = int(request.num_tokens)
            if n > len(self.values):
                grown = _empty(max(n, 2 * len(self.values)), I32)
                if self.n:
                    grown[:self.n] = self.values[:self.n]
                self.values = grown
            ids = request.all_token_ids
            if not calls.ints(ids, self.values, self.n, n):
                self.values[self.n:n] = ids[self.n:n]
            self.n = n
        return self.values if n_tokens == len(self.values) else self.values[:n_tokens]


class _Held:
    """A running request: its sequence, tokens with values, slots of the row. Nothing has to be done
    for it while it has fewer than `next_full` tokens and needs no more slots. The cache is yet to be
    told that its prompt ends after `prompt_end` tokens; 0: it knows."""

    __slots__ = ("seq", "n_tokens", "n_blocks", "n_slots", "next_full", "prompt_end")

    def __init__(self, seq: Sequence, n_tokens: int, n_blocks: int, n_slots: int,
                 prompt_end: int) -> None:
        self.seq, self.n_tokens, self.n_blocks = seq, n_tokens, n_blocks
        self.n_slots, self.next_full, self.prompt_end = n_slots, 0, prompt_end

    def tell_prompt(self) -> None:
        """All of the prompt may be there: it was opened in part, or with its answer behind it."""
        if self.prompt_end <= self.n_tokens:
            self.seq.prompt_end(self.prompt_end)
            self.prompt_end = 0


@dataclass(frozen=True)
class _Popped:
    """The blocks of a request that gave them up while a step may still write them."""

    seq: Sequence


class _BlockPool:
    """What the scheduler does with blocks that pop_blocks_for_free gave."""

    def free_blocks(self, blocks: Iterable[_Popped]) -> None:
        for popped in blocks:
            popped.seq.close()


def _blocks(seq: Sequence, begin: int = 0) -> list[int]:
    """The blocks of the row from `begin` on."""
    ids: list[int] = calls.blocks(seq, begin)
    return ids if type(ids) is list else seq.row()[begin:].tolist()  # which says why not


def _versions() -> Any:
    """What is known of vLLM. ImportError: it is not there, or of an unknown version."""
    return importlib.import_module("kvpager.vllm.versions")


def _event_kinds() -> Any:
    """vLLM's structures of events."""
    try:
        return _versions().kv_events
    except ImportError as error:
        raise ValueError("enable_kv_cache_events: events are vLLM's, which cannot be "
                         f"imported: {error}") from error


def for_scheduler(*, kv_cache_config: Any, max_model_len: int, enable_caching: bool = True,
                  enable_kv_cache_events: bool = False, log_stats: bool = False,
                  watermark: float = 0.0, hash_block_size: int | None = None,
                  max_num_seqs: int = 1024, **other: Any) -> KVCacheManager:
    """A manager from what vLLM's Scheduler gives to its own. ValueError: something that is not here
    is asked for."""
    groups = kv_cache_config.kv_cache_groups
    size = groups[0].kv_cache_spec.block_size if groups else 0
    if len(groups) != 1 or type(groups[0].kv_cache_spec).__name__ != "FullAttentionSpec":
        raise ValueError("kv_cache_config: needs one group of full attention")
    if hash_block_size not in (None, size):
        raise ValueError(f"hash_block_size: is {hash_block_size}, blocks have {size} tokens")
    for name, plain in (("use_eagle", False), ("dcp_world_size", 1), ("pcp_world_size", 1),
                        ("metrics_collector", None)):
        if other.get(name, plain) != plain:
            raise ValueError(f"{name}: {other[name]} is not here")
    manager = KVCacheManager(kv_cache_config.num_blocks, size, max_model_len,
                             enable_caching=enable_caching, watermark=watermark,
                             max_num_seqs=max_num_seqs,
                             enable_kv_cache_events=enable_kv_cache_events)
    manager._serve(groups[0].kv_cache_spec, log_stats)
    return manager


class KVCacheManager:
    """vLLM's interface: get_computed_blocks, allocate_slots, free, cache_blocks, get_blocks,
    get_block_ids, reset_prefix_cache, get_num_common_prefix_blocks, take_events, usage.

    num_blocks       of the KV cache, the null block included
    block_size       tokens of a block
    max_num_seqs     requests that have blocks at once
    watermark        part of num_blocks that is kept free when a waiting request is admitted beside
                     scheduled ones
    """

    def __init__(self, num_blocks: int, block_size: int, max_model_len: int, *,
                 enable_caching: bool = True, max_num_seqs: int = 1024,
                 enable_kv_cache_events: bool = False, watermark: float = 0.0) -> None:
        # A look-ahead may reach past the last token.
        room = self._never_full = max_model_len + 4 * block_size
        self.cache = Cache(n_blocks=num_blocks, block_tokens=block_size,
                           max_seqs=max_num_seqs, max_seq_tokens=room,
                           prefix_cache=int(enable_caching), commit_policy=c.KEEP,
                           full_hit=c.FULL_HIT_RECOMPUTE, max_unit_keys=2,
                           max_events=MAX_EVENTS if enable_kv_cache_events else 0)
        self.block_size, self.max_model_len = block_size, max_model_len
        self.enable_caching = enable_caching
        self.enable_kv_cache_events = enable_kv_cache_events
        self.num_kv_cache_groups = 1
        self.watermark_blocks = int(watermark * num_blocks)
        self.empty_kv_cache_blocks = KVCacheBlocks(([],))
        self._ns = self.cache.namespace()
        self._held: dict[str, _Held] = {}
        self._tokens: dict[str, _Tokens] = {}
        self._next_event = 1
        self._told: list[Event] = []
        # By the hash of a block that keys separate from others: LoRA and salt.
        self._separated: dict[bytes, tuple[str | None, str | None]] = {}
        self._kinds: Any = _event_kinds() if enable_kv_cache_events else None
        self._usable = num_blocks - 1
        self._new_stats: Any = None

    def _serve(self, spec: Any, log_stats: bool) -> None:
        """Sets what vLLM's Scheduler reads beyond the interface."""
        single = SimpleNamespace(block_size=self.block_size, kv_cache_spec=spec)
        self.block_pool, self.log_stats, self.mamba_shared_prefix_checkpoint = \
            _BlockPool(), log_stats, False
        self.coordinator = SimpleNamespace(
            single_type_managers=(single,), enable_partial_hash_hits=False,
            get_num_blocks_to_allocate=self._blocks_to_allocate)
        if log_stats:
            self._new_stats = _versions().PrefixCacheStats
            self._stats = self._new_stats()

    def _blocks_to_allocate(self, request_id: str, num_tokens: int, **_: Any) -> int:
        held = self._held.get(request_id)
        return max(-(-num_tokens // self.block_size) - (held.n_blocks if held else 0), 0)

    # ----------------------------------------------------------------------- what a request is

    def _tokens_of(self, request: Any, n_tokens: int) -> I32Array:
        tokens = self._tokens.get(request.request_id)
        if tokens is None:
            tokens = self._tokens[request.request_id] = _Tokens()
        return tokens.upto(request, n_tokens)

    def _note_separated(self, request: Any, tokens: I32Array, keys: list[Key]) -> None:
        """Events do not tell keys: the first block that they separate is known by its hash."""
        if self._kinds is None or len(tokens) < self.block_size:
            return
        self._collect()  # what was removed before is not what comes now
        first = hash_units(tokens[:self.block_size], self.block_size,
                           hash_root(self.block_size), keys=keys)
        lora = getattr(request, "lora_request", None)
        self._separated[bytes(first[0])] = (lora.lora_name if lora else None,
                                            getattr(request, "cache_salt", None))

    @staticmethod
    def _is_plain(request: Any) -> bool:
        """Nothing separates the request from others."""
        return not (getattr(request, "cache_salt", None) or getattr(request, "lora_request", None)
                    or getattr(request, "mm_features", None))

    def _match(self, request: Any, n_tokens: int) -> int:
        prompt = self._prompt(request, n_tokens)
        hit = None if type(prompt) is Prompt else calls.match_hit(self._ns, prompt)
        if hit is None or hit < 0:  # with keys; or refused, which match says
            hit = self._ns.match(prompt).hit_tokens
        return hit

    def _prompt(self, request: Any, n_tokens: int, reserve: int = 0,
                match: bool = True) -> Prompt | I32Array:
        """The first n_tokens tokens; with what separates the request from others, if anything."""
        tokens = self._tokens_of(request, n_tokens)
        if self._is_plain(request) and match and not reserve:
            return tokens
        salt = getattr(request, "cache_salt", None)
        lora = getattr(request, "lora_request", None)
        items = getattr(request, "mm_features", None)
        keys = []
        for kind, text in ((_SALT, salt), (_LORA, lora and _loaded(lora))):
            if text:
                digest = hashlib.blake2b(str(text).encode(), digest_size=32).digest()
                keys.append(Key(kind, 0, min(self.block_size, n_tokens), digest))
        if keys:
            self._note_separated(request, tokens, keys)
        uncached = [(0, 1)] if getattr(lora, "load_inplace", False) else []
        if items and not uncached:
            first = min(int(item.mm_position.offset) for item in items)
            uncached.append((first, first + 1))
        return Prompt(tokens, reserve=reserve, keys=keys, uncached=uncached, no_match=not match)

    # ----------------------------------------------------------------------- the interface

    @property
    def usage(self) -> float:
        """Part of the blocks that requests hold."""
        return 1.0 - self._free_blocks() / self._usable

    def _free_blocks(self) -> int:
        stats = self.cache.stats()
        return stats.free_blocks + stats.cached_blocks

    def get_computed_blocks(self, request: Any, max_cache_hit_length: int | None = None) -> tuple[
            KVCacheBlocks, int, int]:
        """(cached blocks, their tokens, 0): whole blocks, at most num_tokens - 1 tokens. Nothing is
        held: allocate_slots does, which finds them again."""
        hit = _short_hit(self._ns, request) if self.enable_caching else None
        if hit is None or hit < 0:
            if not self.prefix_cache_lookup_enabled(request):
                return self.empty_kv_cache_blocks, 0, 0
            hit = self._match(request, request.num_tokens)
        if max_cache_hit_length is not None:
            hit = min(hit, max_cache_hit_length // self.block_size * self.block_size)
        # Ids are not told before the blocks are held; the scheduler hands these back as they are.
        return self.empty_kv_cache_blocks, hit, 0

    def allocate_slots(self, request: Any, num_new_tokens: int, num_new_computed_tokens: int = 0,
                       new_computed_blocks: KVCacheBlocks | None = None,
                       num_lookahead_tokens: int = 0, num_external_computed_tokens: int = 0,
                       delay_cache_blocks: bool = False, num_encoder_tokens: int = 0,
                       full_sequence_must_fit: bool = False, reserved_blocks: int = 0,
                       has_scheduled_reqs: bool = True, **_: Any) -> KVCacheBlocks | None:
        """Blocks for the request's next tokens: those that are new, cached ones not among them;
        None when there is no room, and then nothing has changed."""
        local = request.num_computed_tokens + num_new_computed_tokens
        held = self._held.get(request.request_id)
        if held is not None and num_new_tokens > 0:
            # The limits of the model's length and of the tokens that are there only make it fewer.
            most = local + num_new_tokens + num_external_computed_tokens + num_lookahead_tokens
            if most < held.next_full and most <= held.n_slots:
                return self.empty_kv_cache_blocks
        elif num_new_tokens == 0 and num_external_computed_tokens == 0 and \
                num_new_computed_tokens == 0:
            raise ValueError("num_new_tokens must be greater than 0")
        total = min(local + num_external_computed_tokens, self.max_model_len)
        known = min(total + num_new_tokens, request.num_tokens)
        slots = max(min(total + num_new_tokens + num_lookahead_tokens, self.max_model_len), known)
        if held is not None and known < held.next_full and slots <= held.n_slots:
            return self.empty_kv_cache_blocks
        if held is None:
            spare = reserved_blocks
            if self.watermark_blocks:
                spare += self._watermark(request, has_scheduled_reqs)
            if full_sequence_must_fit and not self._fits(request, num_new_computed_tokens, spare):
                return None
            held = self._open(request, known, slots, num_new_computed_tokens, spare)
            if held is None:
                return None
            before = num_new_computed_tokens // self.block_size
        else:
            before = held.n_blocks
            if not self._grow(request, held, known, slots, reserved_blocks):
                return None
        if held.prompt_end:
            held.tell_prompt()
        if not self.enable_caching:
            held.next_full = self._never_full
        elif not delay_cache_blocks:
            held.seq.commit(known)
            held.next_full = (known // self.block_size + 1) * self.block_size
        if held.n_blocks <= before:
            return self.empty_kv_cache_blocks
        return KVCacheBlocks((_blocks(held.seq, before),))

    def _watermark(self, request: Any, has_scheduled_reqs: bool) -> int:
        status = getattr(getattr(request, "status", None), "name", "")
        waits = status in ("WAITING", "PREEMPTED")
        return self.watermark_blocks if has_scheduled_reqs and waits else 0

    def _fits(self, request: Any, num_computed: int, spare: int) -> bool:
        """Whether the whole request would find its blocks, and leave `spare`."""
        n_tokens = min(request.num_tokens, self.max_model_len)
        answer = self._ns.can_open(self._prompt(request, n_tokens, match=num_computed > 0))
        return answer.need_blocks + spare <= answer.available

    def _open(self, request: Any, known: int, slots: int, num_computed: int,
              spare: int) -> _Held | None:
        reserve = slots - known
        prompt, opened = self._prompt(request, known, reserve, match=num_computed > 0), known
        if spare:
            answer = self._ns.can_open(prompt)
            if answer.need_blocks + spare > answer.available:
                return None
        try:
            seq = self._ns.open(prompt)
            if num_computed and seq._hit_tokens > num_computed:
                # The scheduler takes less than there is: begin again with just that.
                seq.close()
                opened = num_computed + 1
                seq = self._ns.open(self._prompt(request, opened))
                try:
                    seq.extend(self._tokens_of(request, known)[opened:], reserve)
                except (NoBlocksError, NeverError):
                    seq.close()
                    raise
        except (NoBlocksError, NeverError, NoSeqsError):
            return None
        n_blocks = -(-slots // self.block_size)
        end = int(request.num_prompt_tokens)
        held = _Held(seq, known, n_blocks, n_blocks * self.block_size, end if end != opened else 0)
        self._held[request.request_id] = held
        return held

    def _grow(self, request: Any, held: _Held, known: int, slots: int, spare: int) -> bool:
        missing = known - held.n_tokens
        n_blocks = -(-slots // self.block_size)
        if missing <= 0 and n_blocks <= held.n_blocks:
            return True
        if spare and n_blocks - held.n_blocks + spare > self._free_blocks():
            return False
        reserve = max(slots - max(known, held.n_tokens), 0)
        try:
            if missing == 1 and reserve == 0:
                held.seq.append(request.all_token_ids[known - 1])
            elif missing > 0:
                held.seq.extend(self._tokens_of(request, known)[held.n_tokens:], reserve)
            else:
                held.seq.extend_unknown(0, reserve)
        except (NoBlocksError, NeverError):
            return False
        held.n_tokens = max(known, held.n_tokens)
        held.n_blocks = max(n_blocks, held.n_blocks)
        held.n_slots = held.n_blocks * self.block_size
        return True

    def cache_blocks(self, request: Any, num_computed_tokens: int) -> None:
        """Let full blocks of the first num_computed_tokens tokens be found (what delay_cache_blocks
        put off)."""
        held = self._held.get(request.request_id)
        if held is not None and self.enable_caching:
            held.seq.commit(min(num_computed_tokens, held.n_tokens))

    def free(self, request: Any) -> None:
        """Give the request's blocks back, the last one first. One without blocks is fine."""
        self._tokens.pop(request.request_id, None)
        held = self._held.pop(request.request_id, None)
        if held is not None:
            held.seq.close()

    def get_blocks(self, request_id: str) -> KVCacheBlocks:
        held = self._held.get(request_id)
        if held is None:
            return self.empty_kv_cache_blocks
        n_hashed = held.seq.info().computed_tokens // self.block_size if self.enable_caching else 0
        return KVCacheBlocks((_blocks(held.seq),), n_hashed)

    def get_block_ids(self, request_id: str) -> tuple[list[int], ...]:
        return self.get_blocks(request_id).ids

    def reset_prefix_cache(self) -> bool:
        """Forget everything; False, and nothing happens, while a request has blocks."""
        stats = self.cache.stats()
        if stats.free_blocks + stats.cached_blocks < self._usable:
            return False
        self.cache.reset()
        if self._new_stats is not None:
            self._stats.reset = True
        return True

    def get_num_common_prefix_blocks(self, running_request_id: str) -> list[int]:
        """Leading blocks of this request that every request with blocks has."""
        n = 0
        for block in _blocks(self._held[running_request_id].seq):
            if self.cache.block_info(block).ref_count != len(self._held):
                break
            n += 1
        return [n]

    def create_kv_cache_blocks(self, blocks: tuple[list[int], ...]) -> KVCacheBlocks:
        return KVCacheBlocks(blocks) if any(blocks) else self.empty_kv_cache_blocks

    def new_step_starts(self) -> None:
        """A step begins: nothing to do for full attention."""

    # ------------------------------------------------ what else vLLM's Scheduler calls in a step

    def pop_blocks_for_free(self, request: Any) -> list[_Popped]:
        """The request is gone, its blocks are not free before block_pool.free_blocks of this."""
        self._tokens.pop(request.request_id, None)
        held = self._held.pop(request.request_id, None)
        return [] if held is None else [_Popped(held.seq)]

    def prefix_cache_lookup_enabled(self, request: Any) -> bool:
        return self.enable_caching and not getattr(request, "skip_reading_prefix_cache", False)

    def record_prefix_cache_stats(self, request: Any, num_hits: int) -> None:
        if self._new_stats is not None and self.prefix_cache_lookup_enabled(request):
            self._stats.record(num_tokens=request.num_tokens, num_hits=num_hits,
                               preempted=request.num_preemptions > 0)

    def make_prefix_cache_stats(self) -> Any:
        """vLLM's counters since the last call."""
        if self._new_stats is None:
            return None
        taken, self._stats = self._stats, self._new_stats()
        return taken

    # ------------------------------------------------ what vLLM's Scheduler calls for KV connectors

    def get_computed_blocks_for_connector(self, request: Any) -> tuple[
            KVCacheBlocks, int, int, bool]:
        """As get_computed_blocks; one group's hits do not diverge."""
        blocks, hit, boundary = self.get_computed_blocks(request)
        return blocks, hit, boundary, False

    def truncate_computed_blocks(self, blocks: KVCacheBlocks,
                                 num_computed_tokens: int) -> KVCacheBlocks:
        """Ids are told when blocks are held, so there is nothing to cut."""
        return blocks

    def get_block_ids_for_computed_tokens(self, request_id: str,
                                          num_computed_tokens: int) -> tuple[list[int], ...]:
        """The blocks of the request's first tokens."""
        held = self._held.get(request_id)
        if held is None:
            return ([],)
        return (_blocks(held.seq)[:-(-num_computed_tokens // self.block_size)],)

    def remove_skipped_blocks(self, request_id: str, processed_computed_tokens: int,
                              num_prompt_tokens: int | None = None) -> None:
        """Blocks that no later token attends to: none with full attention."""

    def finalize_partial_tail_offloads(self, request: Any) -> list[tuple[int, int, int]]:
        """States of Mamba layers: none."""
        return []

    def record_blocks_for_zeroing(self, request_id: str, start_token: int) -> None:
        """Blocks to be zeroed: none for attention."""

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        """Blocks that a load has failed to fill: nobody finds them any more. Requests that have
        them keep them, until the scheduler, which calls this when such requests fail, ends
        them."""
        wrong = {int(block) for block in block_ids} - {0}
        for held in self._held.values():
            first = next((i for i, block in enumerate(_blocks(held.seq)) if block in wrong),
                         None)
            if first is not None:
                held.seq.invalidate(min(first * self.block_size, held.n_tokens))
        self.cache.drop(sorted(wrong))

    def estimate_cached_tokens(self, request: Any) -> int:
        """Tokens of the request in full blocks that were committed."""
        held = self._held.get(request.request_id)
        if held is None or not self.enable_caching:
            return 0
        return held.seq.info().computed_tokens // self.block_size * self.block_size

    def take_new_block_ids(self) -> list[int]:
        """Blocks to be zeroed: none for attention."""
        return []

    def take_kv_cache_block_copies(self) -> tuple[list[Any], list[Any]]:
        """Copies: none, full blocks only are shared."""
        return [], []

    def take_boundary_state_offloads(self) -> dict[str, list[Any]]:
        """States of Mamba layers: none."""
        return {}

    # ----------------------------------------------------------------------- events

    def take_events(self) -> list[Event]:
        """What has changed since the last call. Who was too far behind gets AllBlocksCleared and
        then everything."""
        self._collect()
        told, self._told = self._told, []
        return told

    def _collect(self) -> None:
        if self._kinds is None:
            return
        values = np.empty(256 * self.block_size, np.int32)
        while True:
            try:
                events = self.cache.events(self._next_event, 256, values)
            except BehindError:
                number, events = self.cache.events_snapshot()
                every = np.empty(len(events) * self.block_size, np.int32)
                number, events = self.cache.events_snapshot(every)
                self._told = [self._kinds.AllBlocksCleared()]
                self._next_event = number + 1
                self._tell(self._told, events, every)
                continue
            if len(events) == 0:
                return
            self._next_event += len(events)
            self._tell(self._told, events, values)

    def _tell(self, taken: list[Event], events: Any, values: I32Array) -> None:
        for i, event in enumerate(events):
            name = bytes(event["hash"])
            if event["kind"] == c.EVENT_STORED:
                tokens = values[i * self.block_size:(i + 1) * self.block_size].tolist()
                self._tell_stored(taken, name, bytes(event["parent"]), int(event["position"]),
                                  tokens)
            elif event["kind"] == c.EVENT_REMOVED:
                _, salt = self._separated.pop(name, (None, None))
                if not salt:
                    taken.append(self._kinds.BlockRemoved([_wire_hash(name)], "GPU"))
            else:
                self._separated.clear()
                taken.append(self._kinds.AllBlocksCleared())

    def _tell_stored(self, taken: list[Event], name: bytes, parent: bytes, position: int,
                     tokens: list[int]) -> None:
        """One more block; with the last event, when it goes on from there."""
        before = None if position == 0 else _wire_hash(parent)
        lora, salt = self._separated.get(name if position == 0 else parent, (None, None))
        if lora or salt:
            self._separated[name] = lora, salt
        if salt:
            return
        last = taken[-1] if taken else None
        if before is not None and isinstance(last, self._kinds.BlockStored) and \
                last.block_hashes[-1] == before:
            last.block_hashes.append(_wire_hash(name))
            last.token_ids.extend(tokens)
            if last.extra_keys is not None:
                last.extra_keys.append((lora,))
            return
        taken.append(self._kinds.BlockStored(
            [_wire_hash(name)], before, tokens, self.block_size, None, "GPU", lora,
            [(lora,)] if lora else None))
