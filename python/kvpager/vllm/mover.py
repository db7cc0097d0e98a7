"""The worker's side of KvpagerConnector: host memory, stores behind it, and copies.

Host memory is a kvpager cache with KV memory of its own: tokens decide a hit, the coldest blocks are
evicted, what a request waits for is held. Stores are read into its blocks and written from them. One
thread calls everything here, once a step; stores work in threads of their own.

A block of host memory holds S tokens in all layers, those with a sliding window too, so that each
prefix of what is there can be loaded. The engine has a block for each layer group, and null blocks for
tokens that a window has left behind: they are neither read nor written.

A request waits for a store as long as loading is expected to be sooner than computing (rates.py), and
not longer than computing takes.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any, cast

import numpy as np

from .. import _constants as c
from .. import store as s
from .._cache import COPY_DTYPE, Cache
from .._base_errors import Error
from .._errors import AgainError
from .._guard import Troubles, Unusable
from .._memory import Copier, Layout, Memory
from .._sequence import Key, Namespace, Prompt, Sequence
from . import versions as v
from .host_events import EVENTS, Teller
from .messages import Ask, Blocks, Found, Load, Prefix, Save, Step
from .metrics import STORES
from .rates import PATIENCE, Pace, Reads, how_many
from .stores import Stores

logger = v.logger(__name__)

_SPACE = 2  # the type of the key that tenants and adapters have
_SEQS = 1024
_AT_ONCE = 0.001  # seconds that a step waits for what is in memory anyway
_GAUGES = 1.0  # seconds between looks at what stores have
_LAST = 5.0  # seconds that the end of the process waits for writes


@dataclass(eq=False)
class _Fetch:
    """What is asked for: a sequence of host memory that holds its blocks.

    hit       tokens that host memory had
    good      tokens that are verified: host memory's, and the records behind them
    asking    stores that have not said what they have
    left      reads that have not ended
    where     the stores that have each record, nearest first
    results   of the records' reads, by number
    until     when the request stops waiting
    late      it has stopped: good is all that it gets. Reads that are out go on
    done      good is all that there is
    wanted    a request waits for it, or holds it
    more      a store has more of it, which is expected sooner from computing
    """

    request: str
    sequence: Sequence
    chain: s.Chain
    hit: int
    n_tokens: int
    good: int
    asking: set[int] = field(default_factory=set)
    left: int = 0
    where: list[list[int]] = field(default_factory=list)
    results: dict[int, bool] = field(default_factory=dict)
    until: float = inf
    late: bool = False
    done: bool = False
    wanted: bool = True
    more: bool = False


@dataclass(eq=False)
class _Keep:
    """A sequence that is held until stores have read its blocks."""

    sequence: Sequence
    left: int = 0


class Mover:
    """model, settings: see connector.py. Memory is made when the engine's tensors are known.

    troubles  what goes wrong; rank: which one this is
    tells   KV events: found has what came to host memory and left it
    always  load whatever stores have, up to the deadline, also if computing is expected sooner
    clock   seconds
    """

    def __init__(self, model: s.FingerprintInput, host_memory: int, urls: list[str],
                 record_blocks: int, secret: bytes, troubles: Troubles, rank: int, *,
                 groups: list[v.LayerGroup], always: bool = False, tells: bool = False,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self.model, self._host_bytes = model, host_memory
        self._troubles, self.counts, self._rank = troubles, troubles.counts, rank
        self._urls, self._record_blocks, self._secret = urls, record_blocks, secret
        self._groups, self._always, self._clock = groups, always, clock
        self._tells = tells
        self._teller: Teller | None = None
        self._computing, self._own = Pace(), 0.0
        self._bound: float | None = None
        self._epoch = 0
        self._fetches: dict[str, _Fetch | None] = {}  # None: nothing was found
        self._failed: set[int] = set()
        self._lost_all, self._n_device = False, 0
        self._begun: Step | None = None  # the step that the engine is in
        self.stores = Stores((), model, 0, record_blocks, secret, logger, clock)
        self._gauges, self._gauged = dict[str, Any](), -inf

    # ------------------------------------------------------------------------------- memory

    def register(self, tensors: dict[str, Any]) -> None:
        """The engine's KV: a tensor for each layer, blocks outermost."""
        parts = self._of_groups(tensors)
        given = [tensor for part in parts for tensor in part]
        n_blocks = {len(tensor) for tensor in given}
        per_block = {tensor[0].numel() for tensor in given}
        if len(n_blocks) != 1 or len(per_block) != 1:
            raise ValueError("KvpagerConnector: layers whose tensors differ in shape are not "
                             "supported")
        if any(tensor.device.type != "cpu" or not tensor.is_contiguous() for tensor in given):
            raise ValueError("KvpagerConnector: KV must lie in contiguous tensors of the CPU, blocks "
                             "outermost. On GPUs, use StoreTier")
        size, block = per_block.pop() // self.model.block_tokens, self.model.block_tokens

        def layout(blocks: int, n_layers: int, order: str, first: int = 0) -> Layout:
            return Layout(type=self.model.type, n_blocks=blocks, block_tokens=block, n_layers=n_layers,
                          first_layer=first, n_heads=1, k_size=size).arrange(order)

        block_bytes = layout(2, len(given), "NLSHD").block_bytes
        blocks = self._host_bytes // block_bytes
        if blocks < 2:
            raise ValueError(f"host_memory: {self._host_bytes} bytes are less than two blocks of "
                             f"{block_bytes} bytes")
        # Touched now: pages that the system has yet to give would cost each step more than its copies.
        self.host = Memory.create(layout(blocks, len(given), "NLSHD"), touch=True)
        whole = self.host.tensor(0).numpy()
        self.rows: Any = whole.view(np.uint8).reshape(blocks, -1)
        device, host, first, n_device = list[Memory](), list[Memory](), 0, n_blocks.pop()
        for part in parts:
            n_layers = len(part)
            device.append(Memory.wrap(layout(n_device, n_layers, "NSHD", first),
                                      [tensor.view(-1) for tensor in part]))
            host.append(Memory.wrap(self.host.layout.slice(
                first_layer=first, n_layers=n_layers, first_head=0, n_heads=1), [whole]))
            first += n_layers
        self._n_device = n_device
        self.copier = Copier(device, host)
        self.stores = Stores(self._urls, self.model, block_bytes, self._record_blocks,
                             self._secret, logger, self._clock)
        # Of a longer prompt, the first so many: whole records. One block is the null block.
        record = self.stores.record_blocks
        self.most_tokens = min(max((blocks - 1) // record * record, 1) * block, 2 ** 31 - block)
        self.books = Cache(n_blocks=blocks, block_tokens=block, max_seqs=_SEQS,
                           max_seq_tokens=self.most_tokens, max_unit_keys=64,
                           max_events=EVENTS if self._tells else 0)
        if self._tells and self._rank == 0:
            self._teller = Teller(self.books, Key(_SPACE, 0, 1, b""))
        self.space: Namespace = self.books.namespace()
        self.reads = [Reads() for _ in self.stores.all]
        self.block_bytes = block_bytes
        logger.info("kvpager: %d blocks of %d bytes in host memory; stores: %s", blocks, block_bytes,
                    ", ".join(f"{s.show_url(store.url)} ({store.describe()})"
                              for store in self.stores.all) or "none")

    def _of_groups(self, tensors: dict[str, Any]) -> list[list[Any]]:
        """The tensors of each layer group. Of one group, in the order in which they are given:
        records of earlier versions have it."""
        if len(self._groups) == 1:
            return [list(tensors.values())]
        names = [name for group in self._groups for name in group.layers]
        if missing := next((name for name in names if name not in tensors), None):
            raise ValueError(f"KvpagerConnector: layer {missing} has no KV of its own, which is not "
                             "supported in models with several layer groups")
        return [[tensors[name] for name in group.layers] for group in self._groups]

    def settle(self, seconds: float) -> None:
        """Wait for what stores were told to do, but not for ever."""
        until = time.monotonic() + seconds
        for store in self.stores.all:
            while store.n_out and (left := until - time.monotonic()) > 0:
                store.wait(left)
                self.poll()

    def close(self) -> None:
        """What is kept is written, if that does not take long."""
        self.settle(_LAST)
        for store in self.stores.all:
            store.close()

    def gauges(self) -> dict[str, Any]:
        """Of stores, for /metrics: once a second, if they have changed."""
        if self._clock() - self._gauged < _GAUGES:
            return {}
        now, self._gauged = {f"{self._rank} {url}": found
                             for url, found in self.stores.gauges().items()}, self._clock()
        if now == self._gauges:
            return {}
        self._gauges = now
        return {STORES: now}

    def _copies(self, host: Any, device: Blocks, to_host: bool) -> None:
        """Between blocks of host memory and the blocks of each group beside them."""
        plans = []
        for group, blocks in enumerate(device):
            given = np.array(blocks, np.int32)
            there = given != v.NULL_BLOCK
            made = np.zeros(int(there.sum()), COPY_DTYPE)
            made["group"], made["n_tokens"] = group, self.model.block_tokens
            made["src_tier"], made["dst_tier"] = ((c.DEVICE, c.HOST) if to_host
                                                  else (c.HOST, c.DEVICE))
            made["src_block"], made["dst_block"] = ((given[there], host[there]) if to_host
                                                    else (host[there], given[there]))
            plans.append(made)
        self.copier.wait(self.copier.run(np.concatenate(plans)))

    def _prompt(self, prefix: Prefix) -> Prompt:
        # The epoch is no part: a reset empties host memory.
        keys = sorted([Key(_SPACE, 0, 1, prefix.space), *prefix.keys], key=lambda key: key.begin)
        return Prompt(prefix.tokens, keys=keys)

    def _chain(self, prefix: Prefix) -> s.Chain:
        return s.Chain(self.model, prefix.tokens, record_blocks=self.stores.record_blocks,
                       name=prefix.space, epoch=self._epoch, keys=prefix.keys)

    def _safely(self, call: Callable[..., Any], *given: Any) -> bool:
        return self._troubles.safely(call.__name__, call, *given)

    def _what_fits(self, prefix: Prefix) -> Prefix:
        """The beginning that host memory can hold."""
        if len(prefix.tokens) <= self.most_tokens:
            return prefix
        return Prefix(prefix.tokens[:self.most_tokens], prefix.space,
                      tuple(key for key in prefix.keys if key.begin < self.most_tokens))

    # --------------------------------------------------------------------------------- steps

    def bound(self) -> None:
        """A step begins: the first call of it."""
        self._begun = None
        self._bound, self._own = self._clock(), 0.0

    def begin(self, step: Step) -> None:
        """Before the forward pass; where it needs no load, also after it."""
        self._begun, begun = step, self._clock()
        self._lost_all |= step.lost_all
        if step.epoch != self._epoch:
            self._forget_all(step.epoch)
        for request in step.forget:
            self._safely(self._drop, request)
        for load in step.loads:
            self._load(load)
        if step.asks:
            self.poll()  # what has ended while there was no step has blocks
        for ask in step.asks:
            if not self._safely(self._ask, ask):
                self._give_up(ask.request)
        if step.asks:
            for store in self.stores.all:
                store.wait(_AT_ONCE)
        self.poll()
        self._own = self._clock() - begun

    def fail_all(self) -> None:
        """`begin` failed, nobody knows where: nothing that it was to load counts as loaded."""
        if self._begun is None:
            self._lost_all = True
        else:
            for load in self._begun.loads:
                self._fail(load)

    def end(self, step: Step) -> None:
        """After the forward pass: its KV is there."""
        if step.epoch != self._epoch:
            return  # a reset failed, and is tried again with the next step
        if step.computes and self._bound is not None:
            self._computing.add(step.computes, self._clock() - self._bound - self._own)
        for save in step.saves:
            self._safely(self._save, save)
        self.poll()

    def found(self) -> Found | None:
        """What is verified of each prefix that is asked for."""
        if not self._fetches and not self._tells:
            return None
        told = self._teller.take() if self._teller is not None else []
        return Found({request: (fetch.good, fetch.done or fetch.late) if fetch else (0, True)
                      for request, fetch in self._fetches.items()}, told,
                     {request for request, fetch in self._fetches.items()
                      if fetch is None or fetch.more or fetch.late})

    def failed(self) -> set[int]:
        """The engine's blocks that were not loaded."""
        if self._lost_all:
            return self.every_block()
        made, self._failed = self._failed, set()
        return made

    def every_block(self) -> set[int]:
        """As if none had been loaded."""
        self._lost_all, self._failed = False, set()
        return set(range(v.NULL_BLOCK + 1, self._n_device))

    def _forget_all(self, epoch: int) -> None:
        self.space.flush()  # if this fails, it is all tried again
        self._epoch = epoch
        for request in list(self._fetches):
            self._give_up(request)

    def _give_up(self, request: str) -> None:
        """Nothing is found for it, whatever was."""
        self._safely(self._drop, request)
        self._fetches[request] = None

    # ------------------------------------------------------------------------------------ ask

    def _ask(self, ask: Ask) -> None:
        prefix = self._what_fits(ask.prefix)
        if prefix is not ask.prefix:
            self._troubles.caught("", Unusable(
                "too_long", "host_memory", f"a prompt of {len(ask.prefix.tokens)} tokens is longer "
                f"than host memory: only its first {self.most_tokens} are kept and loaded. Raise "
                f"host_memory: {self._host_bytes} bytes hold no more"))
        try:
            sequence = self.space.open(self._prompt(prefix))
        except Error as error:
            self._troubles.expected("no_room", error)
            self._fetches[ask.request] = None
            return
        hit = sequence.opened.hit_tokens
        fetch = _Fetch(ask.request, sequence, self._chain(prefix), hit, len(prefix.tokens), hit)
        self._fetches[ask.request] = fetch
        keys, now = fetch.chain.keys()[hit // self._record_tokens:], self._clock()
        fetch.where = [[] for _ in keys]
        compute = self._computing.of(fetch.n_tokens - hit)
        if compute is not None and not self._always:
            fetch.until = now + max(PATIENCE * compute, 2 * _AT_ONCE)
        for at, store in enumerate(self.stores.all if keys else ()):
            if not self._always and self.reads[at].away(now):
                self.counts["unasked"] += 1
            elif self._begin(store.have, keys[:s.STORE_KEYS_MAX], (fetch, at)):
                fetch.asking.add(at)
        if not fetch.asking:
            self._finish(fetch)

    @property
    def _record_tokens(self) -> int:
        return self.stores.record_blocks * self.model.block_tokens

    def _begin(self, call: Any, *arguments: Any) -> bool:
        try:
            call(*arguments)
        except AgainError:
            self.counts["busy"] += 1
            return False
        except Error as error:
            self._troubles.expected("refused", error)
            return False
        return True

    @property
    def _record_bytes(self) -> int:
        return self.stores.record_blocks * self.block_bytes

    def _choose(self, fetch: _Fetch) -> None:
        """Stores have answered: begin the reads that are sooner than computing, up to the first
        record that no store has."""
        have = next((i for i, places in enumerate(fetch.where) if not places), len(fetch.where))
        now, asked, loads = self._clock(), Counter[int](), [0.0]
        for at, *_ in fetch.where[:have]:  # stores work side by side
            asked[at] += self._record_bytes
            loads.append(max(loads[-1], self.reads[at].expected(asked[at], now)))
        compute = self._computing.of(self._record_tokens)
        n = have if self._always else how_many(loads[1:], compute)
        fetch.until = inf if compute is None or self._always else now + n * compute
        if n < have:
            fetch.more = True
            self.counts["slower_tokens"] += (have - n) * self._record_tokens
            if n == 0 and all(self.reads[at].stale(now) for at, *_ in fetch.where[:have]):
                n, fetch.late = have, True  # beside the computation: the rate is measured again
        first_record = fetch.hit // self._record_tokens
        for i in range(n):
            if not self._read(fetch, first_record + i, fetch.where[i][0]):
                break
        if fetch.left == 0:
            self._finish(fetch)

    def _read(self, fetch: _Fetch, i: int, at: int) -> bool:
        """Begin to read record i from store `at`. False: it is not read."""
        row, size, buffers = fetch.sequence.row(), self.stores.record_blocks, list[Any]()
        for block in range(i * size, (i + 1) * size):
            mine = block * self.model.block_tokens >= fetch.hit
            buffers.append(self.rows[row[block]] if mine  # others read what was hit
                           else np.empty(self.block_bytes, np.uint8))
        if not self._begin(self.stores.all[at].get, fetch.chain[i], buffers, (fetch, i, at)):
            return False
        self.reads[at].begin(self._record_bytes, self._clock(), fetch.late)
        fetch.left += 1
        return True

    def _advance(self, fetch: _Fetch) -> None:
        """Commit the records that are verified without a gap."""
        first = fetch.hit // self._record_tokens
        at = max(fetch.good // self._record_tokens, first)
        while fetch.results.get(at):
            at += 1
        good = min(at * self._record_tokens, fetch.n_tokens)
        if good > fetch.good:
            fetch.sequence.commit(good)
            fetch.good = good

    def _finish(self, fetch: _Fetch) -> None:
        """All reads have ended: give back the blocks that nothing came for."""
        fetch.done = True
        self.counts["asked_tokens"] += fetch.n_tokens
        self.counts["host_tokens"] += fetch.hit
        self.counts["store_tokens"] += fetch.good - fetch.hit
        if not fetch.wanted:
            fetch.sequence.close()
            return
        if fetch.good < fetch.n_tokens:
            fetch.sequence.truncate(fetch.good)
        try:  # its load closes the request's sequence; writes hold the blocks by another one
            self._write(fetch.sequence.fork(), fetch.chain, fetch.good)
        except Error as error:
            self._troubles.expected("not_kept", error)

    def _drop(self, request: str) -> None:
        """Nobody waits for it any more. Reads that are out keep their blocks until they end."""
        fetch = self._fetches.pop(request, None)
        if fetch is None:
            return
        fetch.wanted = False
        if fetch.done:
            fetch.sequence.close()

    # ----------------------------------------------------------------------------------- load

    def _load(self, load: Load) -> None:
        fetch, n_blocks = self._fetches.get(load.request), max(map(len, load.blocks), default=0)
        last = (load.begin + n_blocks) * self.model.block_tokens
        if fetch is None or last > fetch.good:
            self.counts["lost"] += 1  # a reset came in between
            self._fail(load)
            return
        try:
            row = fetch.sequence.row()
            self._copies(row[load.begin:load.begin + n_blocks], load.blocks, to_host=False)
            self.counts["loaded_tokens"] += n_blocks * self.model.block_tokens
        except Exception as error:
            self._troubles.expected("load_failed", error)
            self._fail(load)
        self._safely(self._drop, load.request)

    def _fail(self, load: Load) -> None:
        self._failed.update(block for blocks in load.blocks for block in blocks
                            if block != v.NULL_BLOCK)

    # ----------------------------------------------------------------------------------- save

    def _save(self, save: Save) -> None:
        prefix, block = self._what_fits(save.prefix), self.model.block_tokens
        n_tokens = len(prefix.tokens)
        device = tuple(blocks[:n_tokens // block] for blocks in save.blocks)
        try:
            if self._has_gap(prefix, device):
                self.counts["gaps"] += 1
                return
            sequence = self.space.open(self._prompt(prefix))
        except Error as error:
            self._troubles.expected("not_kept", error)
            return
        try:
            first = sequence.opened.hit_tokens // block
            if first * block < n_tokens:
                self._copies(sequence.row()[first:], tuple(blocks[first:] for blocks in device),
                             to_host=True)
                sequence.commit(n_tokens)
                self.counts["saved_tokens"] += n_tokens - first * block
            chain = self._chain(prefix)
        except Exception as error:
            sequence.close()
            self._troubles.expected("not_kept", error)
            return
        self._write(sequence, chain, n_tokens)

    def _has_gap(self, prefix: Prefix, device: Blocks) -> bool:
        """Whether host memory lacks blocks that a window has left behind: then nothing behind them
        can be kept."""
        null = np.flatnonzero((np.array(device) == v.NULL_BLOCK).any(axis=0))
        if not len(null):
            return False
        found = self.space.match(self._prompt(prefix)).hit_tokens
        return bool(found <= null[-1] * self.model.block_tokens)

    def _write(self, sequence: Sequence, chain: s.Chain, n_tokens: int) -> None:
        """Write the records of a sequence that stores are not believed to have. It is closed when
        they have read its blocks."""
        keep = _Keep(sequence)
        self._safely(self._begin_writes, keep, chain, n_tokens)
        if not keep.left:
            sequence.close()

    def _begin_writes(self, keep: _Keep, chain: s.Chain, n_tokens: int) -> None:
        row, size = keep.sequence.row(), self.stores.record_blocks
        keys = chain.keys()[:n_tokens // self._record_tokens]
        for at, store in enumerate(self.stores.all):
            missing = next((i for i, key in enumerate(keys)
                            if not self.stores.believed(at, key)), len(keys))
            for i in range(missing, len(keys)):
                buffers = [self.rows[block] for block in row[i * size:(i + 1) * size]]
                if not self._begin(store.put, chain[i], buffers, (keep, keys[i], at)):
                    break
                keep.left += 1

    # ----------------------------------------------------------------------------------- poll

    def poll(self) -> None:
        """Take what has ended, and stop waiting for what takes too long."""
        for store, watch in zip(self.stores.all, self.stores.watches, strict=True):
            for operation in store.poll():
                self._safely({s.STORE_PUT: self._put, s.STORE_HAVE: self._have}.get(
                    operation.op, self._get), operation)
                self._safely(watch.saw, operation)
        now = self._clock()
        for reads in self.reads:
            reads.polled(now)
        for fetch in list(self._fetches.values()):
            if fetch is not None and not fetch.done and not fetch.late and now > fetch.until:
                self._safely(self._stop_waiting, fetch, now)

    def _stop_waiting(self, fetch: _Fetch, now: float) -> None:
        if not fetch.asking:
            fetch.late = True
            self.counts["late"] += 1
            for reads in self.reads:
                reads.gave_up(now)
            return
        for at in fetch.asking:
            self.reads[at].unanswered(now)
        self.counts["unanswered"] += len(fetch.asking)
        fetch.asking.clear()
        self._choose(fetch)

    def _have(self, operation: s.Operation) -> None:
        fetch, at = cast(tuple[_Fetch, int], operation.tag)
        first, waits = fetch.hit // self._record_tokens, at in fetch.asking
        for i, there in enumerate(operation.found if operation.ok else ()):
            # A server that was started again has lost what was written to it.
            self.stores.believe(at, fetch.chain.keys()[first + i], bool(there))
            if there and waits:
                fetch.where[i] = sorted([*fetch.where[i], at])
        fetch.asking.discard(at)
        if waits and not fetch.asking:
            if fetch.wanted:
                self._choose(fetch)
            else:
                self._finish(fetch)

    def _get(self, operation: s.Operation) -> None:
        fetch, i, at = cast(tuple[_Fetch, int, int], operation.tag)
        fetch.left -= 1
        self.reads[at].end(self._record_bytes, fetch.wanted and not fetch.late)
        if not operation.ok:
            self.stores.believe(at, fetch.chain.keys()[i], there=False)
            self.counts["bad" if operation.result == s.STORE_BAD else "gone"] += 1
            places = fetch.where[i - fetch.hit // self._record_tokens]
            farther = next((place for place in places if place > at), None)
            if farther is not None and fetch.wanted and not fetch.late and \
                    self._read(fetch, i, farther):
                return
        fetch.results[i] = operation.ok
        if fetch.wanted:
            self._advance(fetch)
        if fetch.left == 0:
            self._finish(fetch)

    def _put(self, operation: s.Operation) -> None:
        keep, key, at = cast(tuple[_Keep, bytes, int], operation.tag)
        keep.left -= 1
        there = operation.result in (s.STORE_OK, s.STORE_KNOWN)
        self.stores.believe(at, key, there)
        self.counts["stored" if there else "not_stored"] += 1
        if keep.left == 0:
            keep.sequence.close()
