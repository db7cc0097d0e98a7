"""Random operations on a store and on a dictionary: what Python sees, also after restarts."""

from __future__ import annotations

import shutil
import tempfile
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import kvpager as k

store = pytest.importorskip("kvpager.store", exc_type=ImportError)

S, R, BLOCK, DEPTH = 4, 2, 48, 4
MODEL = store.FingerprintInput(weights=bytes(range(32)), compute_type="bf16", type=k.BF16, k_size=8,
                               v_size=8, model_layers=1, model_heads=1, block_tokens=S,
                               unit_tokens=S)
# Two namespaces; in each, two prompts with the same first record.
CHAINS = [store.Chain(MODEL, [*range(S * R), *range(first, first + (DEPTH - 1) * S * R)],
                      record_blocks=R, name=name) for name in "ab" for first in (100, 200)]
KEYS = {key: (chain, i) for chain in CHAINS for i, key in enumerate(chain.keys())}

chains, places = st.sampled_from(CHAINS), st.integers(0, DEPTH - 1)


class Machine(RuleBasedStateMachine):
    """kv: {key: the KV of the record}, what the store must have. Each step's operations are out
    together; none of them depends on the order in which they end."""

    url = "memory:?size=1MiB"

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.kv: dict[bytes, bytes] = {}
        self.place: Any = None
        self.serial = 0

    @initialize(threads=st.sampled_from([0, 1]))
    def open(self, threads: int) -> None:
        self.place = store.Store.open(
            self.url.format(self.folder), fingerprint=MODEL.fingerprint(), block_bytes=[BLOCK],
            block_tokens=S, record_blocks=R, max_ops=32, threads=threads)

    def teardown(self) -> None:
        if self.place is not None:
            self.place.close()
        shutil.rmtree(self.folder)

    def ended(self, *operations: Any) -> list[int]:
        assert {id(one) for one in self.place} == {id(one) for one in operations}
        assert self.place.n_out == 0
        return [one.result for one in operations]

    def below(self, key: bytes) -> set[bytes]:
        """The records that cannot be without this one, and itself."""
        found = {key}
        for chain in CHAINS:
            keys = chain.keys()
            if key in keys:
                found |= set(keys[keys.index(key):])
        return found

    # -------------------------------------------------------------------------------- the rules

    @rule(chain=chains, i=places)
    def put(self, chain: Any, i: int) -> None:
        self.serial += 1
        blocks = [np.frombuffer(np.random.default_rng([self.serial, j]).bytes(BLOCK), np.uint8)
                  for j in range(R)]
        (result,) = self.ended(self.place.put(chain[i], blocks))
        key = chain.keys()[i]
        if key in self.kv:
            assert result == store.STORE_KNOWN
        elif i and chain.keys()[i - 1] not in self.kv:
            assert result == store.STORE_NO_PARENT
        else:
            assert result == store.STORE_OK
            self.kv[key] = b"".join(block.tobytes() for block in blocks)

    @rule(chain=chains)
    def put_all(self, chain: Any) -> None:
        """From the first record on, all at once: each sees that the one before is being written."""
        blocks = [[bytes([self.serial % 256, i, j]) * (BLOCK // 3) for j in range(R)]
                  for i in range(DEPTH)]
        self.serial += 1
        results = self.ended(*[self.place.put(one, blocks[i]) for i, one in enumerate(chain)])
        for key, result, given in zip(chain.keys(), results, blocks):
            assert result == (store.STORE_KNOWN if key in self.kv else store.STORE_OK)
            self.kv.setdefault(key, b"".join(given))

    @rule(chain=chains)
    def get_all(self, chain: Any) -> None:
        rooms = [[bytearray(BLOCK) for _ in range(R)] for _ in range(DEPTH)]
        results = self.ended(*[self.place.get(one, rooms[i]) for i, one in enumerate(chain)])
        for key, result, room in zip(chain.keys(), results, rooms):
            assert result == (store.STORE_OK if key in self.kv else store.STORE_ABSENT)
            if key in self.kv:
                assert b"".join(room) == self.kv[key]

    @rule(keys=st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=9, unique=True))
    def have(self, keys: list[bytes]) -> None:
        array = np.frombuffer(b"".join(keys), np.uint8).reshape(-1, 32)
        asked = self.place.have(keys), self.place.have(array)
        assert self.ended(*asked) == [store.STORE_OK] * 2
        for one in asked:
            assert one.found.tolist() == [key in self.kv for key in keys]

    @rule(keys=st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=3, unique=True))
    def drop(self, keys: list[bytes]) -> None:
        assert self.ended(self.place.drop(keys)) == [store.STORE_OK]
        for key in keys:
            if key in self.kv:
                for lost in self.below(key):
                    self.kv.pop(lost, None)

    @rule(chain=chains, old=st.booleans())
    def evict(self, chain: Any, old: bool) -> None:
        """Records of a namespace; of those that are older than the tests, there are none."""
        assert self.ended(self.place.evict(space=chain.space, written_before=10 ** 9 if old else None)
                          ) == [store.STORE_OK]
        if not old:
            self.kv = {key: kv for key, kv in self.kv.items() if KEYS[key][0].space != chain.space}

    @rule()
    def sync(self) -> None:
        assert self.ended(self.place.sync()) == [store.STORE_OK]

    @invariant()
    def counted(self) -> None:
        if self.place is not None:
            stats = self.place.stats()
            assert (stats.records, stats.queued) == (len(self.kv), 0)
            assert sum(stats.bad) == stats.failed == stats.evicted == 0


class FileMachine(Machine):
    """The same in a directory, which outlives the store."""

    url = "file:{}?size=4MiB&engine=threads"

    @rule(threads=st.sampled_from([0, 1]))
    def restart(self, threads: int) -> None:
        self.place.close()
        verified = store.verify(f"file:{self.folder}")
        assert verified.ok and verified.good == len(self.kv)
        self.open(threads)


_settings = settings(max_examples=50, stateful_step_count=30, deadline=None, derandomize=True,
                     suppress_health_check=list(HealthCheck))
TestMemory, TestFile = Machine.TestCase, FileMachine.TestCase
TestMemory.settings = TestFile.settings = _settings
