"""What the learned policy has learned, from Python."""

from __future__ import annotations

import pytest

import kvpager
from kvpager import Cache


def test_policy_h() -> None:
    with Cache(n_blocks=9, block_tokens=4, policy=1) as cache:
        ns = cache.namespace()
        assert cache.policy_info().fallback == kvpager.FALLBACK_COLD
        for _ in range(3):
            seq = ns.open(range(16))
            seq.commit(16)
            seq.close()
        info = cache.policy_info()
        assert (info.references, info.cold_references, info.entry_blocks) == (12, 12, 1)
        assert (info.returned, info.returned_late, info.fallback) == (8, 0, kvpager.FALLBACK_COLD)
        assert info.credit == 8 and info.credit_floor < 0 < info.credit_limit
        once = cache.policy_class(0)
        assert (once.least_uses, once.least_output, once.least_new) == (1, 0, 0)
        assert len(once.ages) == kvpager.POLICY_AGES and once.ages[:3] == (0, 2, 3)
        # Used again after 4 references, which are half of the cache.
        assert once.used[7] == once.seen[7] == 4 * kvpager.POLICY_ENTRY
        assert sum(once.used) == once.used[7] and once.seen[8] == 0
        assert max(once.best_density) == once.best_density[0] >= max(once.density) > 0
        assert cache.policy_class(16).used[7] == 4 * kvpager.POLICY_ENTRY
        with pytest.raises(kvpager.ArgError):
            cache.policy_class(kvpager.POLICY_CLASSES)


def test_prompt_end() -> None:
    with Cache(n_blocks=9, block_tokens=4, policy=1) as cache:
        seq = cache.namespace().open(range(16))
        assert seq.info().prompt_tokens == 16
        seq.prompt_end(8)
        assert seq.info().prompt_tokens == 8
        with pytest.raises(kvpager.ArgError):
            seq.prompt_end(17)


def test_lru_has_learned_nothing() -> None:
    with Cache(n_blocks=9, block_tokens=4) as cache:
        with pytest.raises(kvpager.StateError):
            cache.policy_info()
        with pytest.raises(kvpager.StateError):
            cache.policy_class(0)
