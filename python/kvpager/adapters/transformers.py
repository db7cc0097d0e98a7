"""Hugging Face transformers: a Cache for generate(), on the CPU, in paged memory that is shared.

    pool = Pool(model.config, n_blocks=4096, dtype=model.dtype)
    for prompt in prompts:                          # [1, n] ids each, or [B, n]
        with pool.cache(prompt) as past:            # what was computed before is hit
            out = model.generate(prompt, past_key_values=past, max_new_tokens=64)
            past.keep(out)                          # greedy or sampled: cache the answer, too

A Pool has the KV memory and the bookkeeping, and outlives the calls. What a call hits is the past
length that generate() finds, so the model runs on the rest only. Layers with a sliding window are a
group of their own, whose rows drop what is left behind; all groups take their blocks from one pool.

K and V are written to their slots in place, through torch tensors on the pool's memory. What
reads them wants them in one piece, so each layer's are gathered for it, as its own cache's are
concatenated.

Beams, and several returned sequences, are rows that begin alike, opened when the first forward pass
shows how many there are; reorder_cache forks and closes them. What beams generate is not cached, as
nobody tells the cache which tokens they are. A batch has one past
length: that of the row with the shortest hit. Rows may be padded at the left (give attention_mask);
padding is a key of their content, so a prompt is hit at the same padding only.

Not here: attention in chunks, encoder-decoders, linear attention, torch.compile, other devices.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

import numpy as np
import torch
import transformers.cache_utils as hf

from .. import _constants as c
from .._cache import Cache
from .._core import I64Array
from .._memory import Copier, Layout, Memory
from .._sequence import Key, Prompt, Sequence

_TYPES = {torch.float32: c.F32, torch.float16: c.F16, torch.bfloat16: c.BF16}
_PADDING = 1  # the type of the key


class Pool:
    """KV memory of one model, and what is in it.

    config          the model's: layers, heads, sizes, windows
    n_blocks        of block_tokens tokens in one group of layers; block 0 is never handed out
    dtype           the model's: float32, float16, bfloat16
    max_seqs        rows of all batches that are open at once; with beams, up to twice as many
    books           the kvpager.Cache: stats, check, ...
    """

    def __init__(self, config: Any, *, n_blocks: int, dtype: Any = torch.float32,
                 block_tokens: int = 16, max_seqs: int = 256, max_seq_tokens: int = 32768) -> None:
        config = config.get_text_config(decoder=True)
        if dtype not in _TYPES:
            raise TypeError(f"dtype: needs float32, float16 or bfloat16, not {dtype}")
        kinds, sizes = hf.get_layer_types_and_kwargs(config)
        unknown = set(kinds) - {"full_attention", "sliding_attention"}
        if unknown:
            raise ValueError(f"config: layers of kind {', '.join(sorted(unknown))} are not known")
        self.windows = [sizes["sliding_window"] if kind == "sliding_attention" else 0
                        for kind in kinds]
        groups = sorted(set(self.windows))
        self.books = Cache(n_blocks=n_blocks, block_tokens=block_tokens, max_seqs=max_seqs,
                           max_seq_tokens=max_seq_tokens, max_unit_keys=1,
                           groups=[(0, window) for window in groups])
        self.namespace = self.books.namespace()
        # The n-th layer of every group lies in the n-th layer of one memory: a block belongs to one
        # group at a time.
        self.group_of = [groups.index(window) for window in self.windows]
        self.place_of = [self.group_of[:i].count(group) for i, group in enumerate(self.group_of)]
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        layout = Layout(type=_TYPES[dtype], n_blocks=n_blocks, block_tokens=block_tokens,
                        n_layers=max(self.place_of) + 1, n_heads=heads, k_size=size, v_size=size)
        self.memory = Memory.create(layout.arrange("L2NSHD"))
        self.copier = Copier([self.memory] * len(groups))
        # [slots, H, D] of each place, in the pool's memory.
        self.keys, self.values = ([
            torch.from_dlpack(self.memory.layer(place).tensor(which)).view(-1, heads, size)
            for place in range(layout.n_layers)] for which in (c.K, c.V))

    def cache(self, input_ids: Any, attention_mask: Any = None) -> PagedCache:
        """A Cache for one call of generate() with this prompt, [B, n] ids. Raises NoBlocksError and
        its like when there is no room; then nothing is held."""
        ids = np.ascontiguousarray(torch.as_tensor(input_ids).cpu().numpy().astype(np.int32))
        if ids.ndim != 2 or ids.shape[1] == 0:
            raise ValueError("input_ids: needs [B, n] ids")
        padding = [0] * len(ids)
        if attention_mask is not None:
            mask = torch.as_tensor(attention_mask).cpu().numpy() != 0
            if (mask.shape != ids.shape or not mask[:, -1].all()
                    or (mask[:, :-1] > mask[:, 1:]).any()):
                raise ValueError("attention_mask: needs [B, n], padded at the left only")
            padding = (~mask).sum(axis=1).tolist()
        return PagedCache(self, ids, padding)

    def close(self) -> None:
        """Give everything back; caches of the pool can no longer be used."""
        self.copier.close()
        self.books.close()
        self.memory.close()


class PagedLayer(hf.CacheLayerMixin):
    """One layer of a PagedCache, as transformers looks at it."""

    def __init__(self, cache: PagedCache, index: int) -> None:
        super().__init__()
        self.cache, self.index, self.window = cache, index, cache.pool.windows[index]
        self.is_sliding, self.is_initialized = self.window > 0, True

    def lazy_initialization(self, key_states: Any, value_states: Any) -> None:
        """There is nothing to make."""

    def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> Any:
        return self.cache.write_and_read(self.index, key_states, value_states)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        begin = self.first_read()
        return self.cache.length - begin + query_length, begin

    def first_read(self) -> int:
        """Position of the first key that the next query sees."""
        return max(self.cache.length - self.window + 1, 0) if self.window else 0

    def get_seq_length(self) -> int:
        return self.cache.length

    def get_max_length(self) -> int:
        return self.window or -1


class PagedCache(hf.Cache):
    """The past of one batch, made by Pool.cache. As a context manager it closes at the end.

    length         tokens that every row has computed, the past length
    cached_tokens  what the prompt hit: the past length at the beginning
    """

    def __init__(self, pool: Pool, ids: Any, padding: list[int]) -> None:
        self.pool = pool
        self.prompts = [Prompt(row, keys=[Key(_PADDING, 0, n, b"")] if n else [])
                        for row, n in zip(ids, padding)]
        self.rows: list[Sequence] = []
        self._open(1)
        # A row with a longer hit than the shortest computes some tokens again: they are not
        # written, and only what comes after them is looked at.
        self.length = self.cached_tokens = min(row.cached_tokens for row in self.rows)
        self.reordered = False
        self._reads: list[Any] = []
        self._writes: list[Any] = []
        super().__init__(layers=[PagedLayer(self, i) for i in range(len(pool.windows))])

    def __enter__(self) -> PagedCache:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def _open(self, repeats: int) -> None:
        """Opens each prompt `repeats` times, in place of the rows that are open."""
        rows: list[Sequence] = []
        try:
            for prompt in self.prompts:
                rows += [self.pool.namespace.open(prompt) for _ in range(repeats)]
        except BaseException:
            for row in rows:
                row.close()
            raise
        self.close()
        self.rows = rows
        self.computed = [row.info().computed_tokens for row in rows]

    def close(self) -> None:
        """Let go of the rows. What was computed of known tokens stays cached."""
        while self.rows:
            self.rows.pop().close()

    def keep(self, output_ids: Any) -> None:
        """Say what was generated, [B, n] as generate() gives it, so that it is cached, too. Not
        with beams: what they give is not what the rows have."""
        ids = torch.as_tensor(output_ids).cpu().numpy().astype(np.int32)
        if self.reordered or len(ids) != len(self.rows):
            raise ValueError(f"output_ids: has {len(ids)} rows, the cache {len(self.rows)}; and "
                             "beams cannot be kept")
        for row, tokens in zip(self.rows, ids):
            info = row.info()
            if len(tokens) < info.n_tokens or (tokens[:info.known_tokens] != row.tokens()).any():
                raise ValueError("output_ids: they do not begin with the prompt")
            row.fill(np.ascontiguousarray(tokens[info.known_tokens:info.n_tokens]))

    # ---------------------------------------------------------------------------- a forward pass

    def _begin(self, n_rows: int, n_queries: int) -> None:
        """Makes room for a forward pass, and looks up the slots of all layer groups."""
        if n_rows != len(self.rows):
            # Beams: rows that begin alike, before anything is computed. (Forks would have to share
            # what is computed already.)
            if self.length > self.cached_tokens or n_rows % len(self.prompts) != 0:
                raise ValueError(f"the batch has {n_rows} rows, the cache {len(self.rows)}")
            self._open(n_rows // len(self.prompts))
        end, pool = self.length + n_queries, self.pool
        missing = max(end - self.rows[0].info().n_tokens, 0)
        pool.books.extend_many(self.rows, n_tokens=[missing] * n_rows)
        plan = pool.books.plan_take()
        if len(plan):
            pool.copier.wait(pool.copier.run(plan))
        self._reads, self._writes = [], []
        for group in range(len(pool.books.groups)):
            layer = self.layers[pool.group_of.index(group)]
            positions = np.arange(layer.first_read(), end)
            slots = [self._slots(row.row(group=group), positions) for row in self.rows]
            self._reads.append(torch.from_numpy(np.concatenate(slots)))
            self._writes.append(torch.from_numpy(np.concatenate(
                [row.slots(self.length, n_queries, group=group) for row in self.rows])))

    def _slots(self, row: Any, positions: Any) -> I64Array:
        size = self.pool.books.block_tokens
        return np.asarray(row[positions // size].astype(np.int64) * size + positions % size)

    def write_and_read(self, index: int, keys: Any, values: Any) -> tuple[Any, Any]:
        """Writes K and V of the pass's tokens, [B, H, n, D], and gives those of all that the layer
        sees."""
        if not self.rows:
            raise ValueError("the cache is closed")
        n_rows, n_heads, n_queries, size = keys.shape
        if index == 0:
            self._begin(n_rows, n_queries)
        pool, found = self.pool, []
        group, place = pool.group_of[index], pool.place_of[index]
        reads, writes = self._reads[group], self._writes[group]
        for memory, new in ((pool.keys[place], keys), (pool.values[place], values)):
            flat = new.transpose(1, 2).reshape(-1, n_heads, size)
            wanted = writes != c.NO_SLOT
            memory.index_copy_(0, writes[wanted], flat[wanted])
            read = memory.index_select(0, reads).view(n_rows, -1, n_heads, size)
            found.append(read.transpose(1, 2).contiguous())
        if index == len(self.layers) - 1:
            self._commit(self.length + n_queries)
        return found[0], found[1]

    def _commit(self, n_tokens: int) -> None:
        self.length = n_tokens
        self.computed = [max(n, n_tokens) for n in self.computed]
        self.pool.books.commit_many(self.rows, self.computed)

    # ---------------------------------------------------------------------------------- rows

    def _choose(self, order: list[int]) -> None:
        """Makes row order[i] row i: one that is chosen again is forked, one that is not, closed."""
        chosen: list[Sequence] = []
        for row in self.rows:
            self._give_values(row)
        try:
            for i, old in enumerate(order):
                again = old in order[:i]
                chosen.append(self.rows[old].fork() if again else self.rows[old])
        except BaseException:
            for row in chosen:
                if row not in self.rows:
                    row.close()
            raise
        for old, row in enumerate(self.rows):
            if old not in order:
                row.close()
        self.computed = [self.computed[old] for old in order]
        self.rows, self.reordered = chosen, True

    def _give_values(self, row: Sequence) -> None:
        """Forks share tokens that have values. Those of beams are not told to a cache: any will do,
        where nobody else can hit them."""
        info = row.info()
        if not self.reordered:
            row.uncache(info.known_tokens, c.END)
        if info.known_tokens < info.n_tokens:
            row.fill(np.zeros(info.n_tokens - info.known_tokens, np.int32))

    def reorder_cache(self, beam_idx: Any) -> None:
        self._choose(beam_idx.tolist())

    def batch_repeat_interleave(self, repeats: int) -> None:
        self._choose([i for i in range(len(self.rows)) for _ in range(repeats)])

    def batch_select_indices(self, indices: Any) -> None:
        self._choose(torch.arange(len(self.rows))[indices].tolist())

    def crop(self, tokens_to_remove: int) -> None:
        """Take tokens back, given as a number below 0; DroppedError where a window has left behind
        what would be needed."""
        if tokens_to_remove > 0:
            raise ValueError("tokens_to_remove: needs a number that is not above 0")
        for row in self.rows:
            row.truncate(self.length + tokens_to_remove)
        self.length += tokens_to_remove
        self.computed = [min(n, self.length) for n in self.computed]

    def reset(self) -> None:
        """The rows are let go; a new prompt needs a new cache."""
        self.close()
