"""Random calls on a cache and on a small oracle of lists and dictionaries: what Python sees."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (Bundle, RuleBasedStateMachine, consumes, invariant, multiple,
                                 precondition, rule)

import kvpager
from kvpager import Cache, Sequence

S, N_BLOCKS, MAX_SEQS = 4, 24, 6


class Model:
    """One sequence as the oracle has it: tokens, how many are computed, and which slots hold the KV
    of which prefix is the memory's business."""

    def __init__(self, tokens: list[int], computed: int) -> None:
        self.tokens, self.computed = tokens, computed


class Machine(RuleBasedStateMachine):
    """memory: {slot: the prefix whose last token's KV is there}. An engine that writes what slots
    says and runs the plan must find, in every sequence, the KV of its own tokens."""

    seqs = Bundle("seqs")

    def __init__(self) -> None:
        super().__init__()
        self.cache = Cache(n_blocks=N_BLOCKS, block_tokens=S, max_seqs=MAX_SEQS)
        self.names = [self.cache.namespace("a"), self.cache.namespace("b")]
        self.memory: dict[int, tuple[int, ...]] = {}
        self.live: dict[Sequence, tuple[int, Model]] = {}

    def teardown(self) -> None:
        for seq in list(self.live):
            seq.close()
        self.cache.check()
        assert self.cache.stats().held_blocks == 0
        self.cache.close()

    # --------------------------------------------------------------------------- the engine

    def run_plan(self) -> None:
        for copy in self.cache.plan_take():
            for i in range(int(copy["n_tokens"])):
                source = int(copy["src_block"]) * S + i
                if source in self.memory:
                    self.memory[int(copy["dst_block"]) * S + i] = self.memory[source]

    def compute(self, seq: Sequence) -> None:
        """Runs the model on what is not computed, and commits it."""
        space, model = self.live[seq]
        self.run_plan()
        slots = seq.slots(0, len(model.tokens))
        for position, slot in enumerate(slots.tolist()):
            if slot == kvpager.NO_SLOT:
                assert position < model.computed
            else:
                assert position >= model.computed
                self.memory[slot] = (space, *model.tokens[:position + 1])
        seq.commit(len(model.tokens))
        model.computed = len(model.tokens)

    # --------------------------------------------------------------------------- rules

    @rule(target=seqs, space=st.integers(0, 1), base=st.integers(0, 2), n=st.integers(1, 14),
          tail=st.lists(st.integers(0, 3), max_size=3))
    def open(self, space: int, base: int, n: int, tail: list[int]) -> object:
        tokens = [base * 100 + i for i in range(n)] + tail
        answer = self.names[space].can_open(tokens)
        hits = self.names[space].match(tokens)
        try:
            seq = self.names[space].open(np.array(tokens, np.int32))
        except kvpager.NoSeqsError:
            assert len(self.live) == MAX_SEQS
            return multiple()
        except kvpager.NoBlocksError as error:
            assert answer.verdict == kvpager.ADMIT_LATER
            assert error.missing == answer.missing_blocks > 0
            return multiple()
        assert answer.verdict == kvpager.ADMIT_OK
        assert seq.opened.hit_tokens == hits.hit_tokens
        assert seq.opened.taken_blocks == hits.taken_blocks
        assert seq.cached_tokens == min(hits.hit_tokens, len(tokens) - 1)
        self.live[seq] = space, Model(tokens, hits.hit_tokens)
        self.compute(seq)
        return seq

    @rule(seq=seqs, token=st.integers(0, 3), compute=st.booleans())
    def append(self, seq: Sequence, token: int, compute: bool) -> None:
        before = self.cache.stats()
        try:
            seq.append(token)
        except kvpager.NoBlocksError as error:
            assert error.missing == 1
            assert before.free_blocks + before.cached_blocks == 0
            return
        self.live[seq][1].tokens.append(token)
        if compute:
            self.compute(seq)

    @precondition(lambda self: len(self.live) > 1)
    @rule(data=st.data())
    def extend_many(self, data: st.DataObject) -> None:
        some = list(self.live)
        counts = data.draw(st.lists(st.integers(0, 5), min_size=len(some), max_size=len(some)))
        answer = self.cache.can_extend(some, n_tokens=counts)
        values = np.arange(sum(counts), dtype=np.int32)
        try:
            self.cache.extend_many(some, values, n_tokens=counts)
        except kvpager.NoBlocksError as error:
            assert answer.verdict == kvpager.ADMIT_LATER and error.missing == answer.missing_blocks
            return
        assert answer.verdict == kvpager.ADMIT_OK
        at = 0
        for seq, n in zip(some, counts):
            self.live[seq][1].tokens.extend(values[at:at + n].tolist())
            at += n
            self.compute(seq)

    @rule(target=seqs, seq=seqs, data=st.data())
    def fork(self, seq: Sequence, data: st.DataObject) -> object:
        space, model = self.live[seq]
        at = data.draw(st.integers(0, model.computed))
        try:
            child = seq.fork(at)
        except kvpager.NoSeqsError:
            assert len(self.live) == MAX_SEQS
            return multiple()
        self.live[child] = space, Model(model.tokens[:at], at)
        return child

    @rule(seq=seqs, data=st.data())
    def truncate(self, seq: Sequence, data: st.DataObject) -> None:
        model = self.live[seq][1]
        n = data.draw(st.integers(0, len(model.tokens)))
        held = self.cache.stats().held_blocks
        released = seq.truncate(n)
        assert self.cache.stats().held_blocks == held - sum(released)
        del model.tokens[n:]
        model.computed = min(model.computed, n)

    @rule(seq=consumes(seqs))
    def close(self, seq: Sequence) -> None:
        held = self.cache.stats().held_blocks
        released = seq.close()
        assert self.cache.stats().held_blocks == held - sum(released)
        del self.live[seq]
        with pytest.raises(kvpager.HandleError):
            seq.info()

    @rule(space=st.integers(0, 1))
    def flush(self, space: int) -> None:
        self.names[space].flush()
        assert self.names[space].match(range(8)).hit_tokens == 0

    # --------------------------------------------------------------------------- invariants

    @invariant()
    def every_sequence_finds_its_own_kv(self) -> None:
        for seq, (space, model) in self.live.items():
            info = seq.info()
            assert (info.n_tokens, info.computed_tokens) == (len(model.tokens), model.computed)
            assert seq.tokens().tolist() == model.tokens
            row = seq.row().tolist()
            assert len(row) == -(-len(model.tokens) // S)
            self.run_plan()
            for position in range(model.computed):
                slot = row[position // S] * S + position % S
                assert self.memory[slot] == (space, *model.tokens[:position + 1])

    @invariant()
    def the_books_are_right(self) -> None:
        stats = self.cache.stats()
        assert stats.open_seqs == len(self.live)
        assert stats.free_blocks + stats.cached_blocks + stats.held_blocks == N_BLOCKS - 1
        rows = {int(block) for seq in self.live for block in seq.row()}
        assert len(rows) == stats.held_blocks and 0 not in rows
        self.cache.check()


class Kept:
    """One sequence with windows: the values of its tokens, how many are computed, and the positions
    that each group's window has let go, for good."""

    def __init__(self, tokens: list[int]) -> None:
        self.tokens, self.computed = tokens, len(tokens)
        self.windows = list(GROUPS)
        self.dropped: list[set[int]] = [set() for _ in GROUPS]


GROUPS = [(0, 0), (4, 8), (0, 6)]


class Windows(RuleBasedStateMachine):
    """Layer groups with windows, and trees of drafts. The oracle knows what a window keeps: sinks
    at the beginning and recent tokens at the end; of the rest only whole blocks go."""

    seqs = Bundle("seqs")

    def __init__(self) -> None:
        super().__init__()
        self.cache = Cache(n_blocks=4 * N_BLOCKS, block_tokens=S, max_seqs=MAX_SEQS, groups=GROUPS,
                           max_tree_tokens=8)
        self.ns = self.cache.namespace("a")
        self.live: dict[Sequence, Kept] = {}

    def teardown(self) -> None:
        for seq in list(self.live):
            seq.close()
        self.cache.check()
        assert self.cache.stats().held_blocks == 0
        self.cache.close()

    def drop(self, model: Kept, q: int) -> None:
        """What the windows let go: blocks of which the query at q, and those after it, see none."""
        for (sinks, recent), dropped in zip(model.windows, model.dropped):
            dropped |= {i for i in range(-(-len(model.tokens) // S))
                        if recent and sinks <= i * S and (i + 1) * S <= q + 1 - recent}

    @rule(target=seqs, base=st.integers(0, 2), n=st.integers(1, 40))
    def open(self, base: int, n: int) -> object:
        tokens = [base * 100 + i for i in range(n)]
        try:
            seq = self.ns.open(tokens)
        except kvpager.RetryError:
            return multiple()
        seq.commit(n)
        self.cache.plan_take()
        self.live[seq] = Kept(tokens)
        # Of a prompt that was hit whole the last token is run again.
        self.drop(self.live[seq], n if seq.opened.hit_tokens < n else n - 1)
        return seq

    @rule(seq=seqs, values=st.lists(st.integers(0, 9), min_size=1, max_size=9))
    def extend(self, seq: Sequence, values: list[int]) -> None:
        model = self.live[seq]
        try:
            seq.extend(values)
        except kvpager.RetryError:
            return
        model.tokens += values
        model.computed = len(model.tokens)
        seq.commit(model.computed)
        self.cache.plan_take()
        self.drop(model, model.computed)

    @rule(seq=seqs, group=st.integers(0, 2), sinks=st.integers(0, 6), recent=st.integers(1, 12))
    def window(self, seq: Sequence, group: int, sinks: int, recent: int) -> None:
        """A window of the sequence's own; it cannot have back what was dropped."""
        model = self.live[seq]
        needs = {i for i in range(-(-len(model.tokens) // S))
                 if i * S < sinks or (i + 1) * S > model.computed + 1 - recent}
        try:
            seq.window((sinks, recent), group)
        except kvpager.DroppedError:
            assert needs & model.dropped[group]
            return
        assert not needs & model.dropped[group]
        model.windows[group] = sinks, recent
        self.drop(model, min(model.computed, len(model.tokens) - 1))

    @rule(seq=seqs, parents=st.lists(st.integers(-1, 4), min_size=1, max_size=5), data=st.data())
    def speculate(self, seq: Sequence, parents: list[int], data: st.DataObject) -> None:
        """A tree of drafts, of which a path is accepted, or none."""
        model = self.live[seq]
        above = [min(parent, i - 1) for i, parent in enumerate(parents)]
        drafts = [1000 + i for i in range(len(above))]
        try:
            seq.extend_tree(drafts, above)
        except kvpager.RetryError:
            return
        tokens, found = seq.tree()
        assert tokens.tolist() == drafts and found.tolist() == above
        leaf = data.draw(st.integers(-1, len(above) - 1))
        path, node = list[int](), leaf
        while node >= 0:
            path.insert(0, drafts[node])
            node = above[node]
        self.cache.plan_take()
        seq.accept(leaf)
        model.tokens += path
        model.computed = len(model.tokens)
        seq.commit(model.computed)
        if path:
            self.drop(model, model.computed)

    @rule(seq=consumes(seqs))
    def close(self, seq: Sequence) -> None:
        seq.close()
        del self.live[seq]

    @invariant()
    def rows_have_what_windows_keep(self) -> None:
        for seq, model in self.live.items():
            assert seq.tokens().tolist() == model.tokens
            for group, window in enumerate(model.windows):
                row = seq.row(group=group).tolist()
                assert len(row) == -(-len(model.tokens) // S)
                gone = {i for i, block in enumerate(row) if block == 0}
                assert gone == model.dropped[group], (group, window)
        self.cache.check()


SETTINGS = settings(max_examples=60, stateful_step_count=40, derandomize=True, deadline=None,
                    database=None, suppress_health_check=list(HealthCheck))
TestMachine, TestWindows = Machine.TestCase, Windows.TestCase
TestMachine.settings = TestWindows.settings = SETTINGS
