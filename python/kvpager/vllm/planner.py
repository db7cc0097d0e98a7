"""The scheduler's side of KvpagerConnector: what to ask for, what to promise, what to keep."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._guard import Troubles
from .._sequence import Key
from . import versions as v
from .adapters import Adapters
from .messages import Ask, Blocks, Found, Load, Prefix, Save, Step

_ITEM = 1  # the type of a multimodal item's key


@dataclass(eq=False)
class _Plan:
    """One request. state: "new", "asked", "known" (answered, not loaded yet), "open" (admitted).

    asked     tokens that were asked for
    found     of these, verified on all ranks so far; done: and that is all
    begin     tokens that vLLM itself had at the last answer
    saved     tokens that the workers were told to keep
    """

    request: Any
    space: bytes
    keys: tuple[Key, ...]
    state: str = "new"
    asked: int = 0
    found: int = 0
    done: bool = False
    until: float = 0.0
    begin: int = 0
    saved: int = 0


class Planner:
    """block_tokens  S; least_tokens: shorter prefixes are not asked for; deadline: seconds that a
    request waits for its prefix at most; speculative: drafts are scheduled.

    A request that cannot be read is computed: nothing is looked for, and nothing of it is kept."""

    def __init__(self, block_tokens: int, least_tokens: int, deadline: float, speculative: bool,
                 troubles: Troubles, clock: Callable[[], float] = time.monotonic) -> None:
        self._block, self._least, self._deadline = block_tokens, least_tokens, deadline
        self._unsure, self._clock, self._troubles = 1 if speculative else 0, clock, troubles
        self._plans: dict[str, _Plan] = {}
        self._alone, self._off = set[str](), False  # requests that are computed; all are
        self._adapters = Adapters()
        self._epoch = 0
        self._step = Step(self._epoch)
        self._made: Step | None = None  # the last that was taken

    # ------------------------------------------------------------------------------ admission

    def answer(self, request: Any, computed: int) -> int | None:
        """How many tokens behind the first `computed` can be promised; None: not known yet."""
        if self._off or request.request_id in self._alone or request.skip_reading_prefix_cache or \
                not v.tokens_only(request):
            return 0
        plan = self._plan(request)
        want = int(request.num_tokens - 1) // self._block * self._block
        if plan.state in ("new", "open"):
            if want - computed < self._least:
                return 0
            self._ask(plan, want)
            return None
        if plan.state == "asked":
            if not plan.done and self._clock() < plan.until:
                return None
            plan.state = "known"
        plan.begin = computed
        return max(0, min(plan.found, want) - computed)

    def _plan(self, request: Any) -> _Plan:
        plan = self._plans.get(request.request_id)
        if plan is None:
            plan = self._plans[request.request_id] = _Plan(
                request, self._space(request), tuple(
                    Key(_ITEM, begin, end, content) for begin, end, content in v.items(request)))
        return plan

    def _space(self, request: Any) -> bytes:
        """Tenant and adapter, the adapter by what is in its files."""
        salt, adapter = (request.cache_salt or "").encode(), request.lora_request
        if adapter is None:
            return salt
        return hashlib.sha256(salt + b"\0" + self._adapters.digest(adapter)).digest()

    def _prefix(self, plan: _Plan, n_tokens: int) -> Prefix:
        tokens = np.array(plan.request.all_token_ids[:n_tokens], np.int32)
        keys = tuple(key for key in plan.keys if key.begin < n_tokens)
        return Prefix(tokens, plan.space, keys)

    def _ask(self, plan: _Plan, want: int) -> None:
        plan.state, plan.asked, plan.found, plan.done = "asked", want, 0, False
        plan.until = self._clock() + self._deadline
        self._step.asks.append(Ask(plan.request.request_id, self._prefix(plan, want)))

    def admitted(self, request: Any, blocks: Blocks, n_tokens: int) -> None:
        """The request has its blocks, all of them; n_tokens of KV are to be loaded."""
        if request.request_id in self._alone and n_tokens == 0:
            return
        plan = self._plan(request)
        if n_tokens > 0 and plan.state not in ("asked", "known"):
            raise RuntimeError(f"{n_tokens} tokens were never promised")
        if plan.state in ("asked", "known"):
            if n_tokens > 0:
                first = plan.begin // self._block
                last = (plan.begin + n_tokens) // self._block
                self._step.loads.append(Load(request.request_id, first,
                                             tuple(group[first:last] for group in blocks)))
                plan.saved = plan.begin + n_tokens
            else:
                self._step.forget.append(request.request_id)
                plan.saved = 0
        plan.state = "open"

    def compute(self, request_id: str) -> None:
        """Something about the request went wrong: it is the engine's alone from now on."""
        self._forget(request_id)
        self._alone.add(request_id)

    def break_promise(self, request: Any, blocks: Any, n_tokens: int) -> None:
        """`admitted` failed, maybe after KV was promised: then all blocks that the request has are
        reported as not loaded, or, if they cannot be read, all blocks of the engine."""
        self.compute(request.request_id)
        try:
            if n_tokens > 0:
                self._step.loads.append(Load(request.request_id, 0, tuple(blocks.get_block_ids())))
        except Exception:
            self._step.lost_all = True
            raise

    def learn(self, found: Found) -> None:
        """What the workers have verified."""
        for request, (n_tokens, done) in found.tokens.items():
            plan = self._plans.get(request)
            if plan is not None and plan.state == "asked":
                plan.found, plan.done = max(plan.found, n_tokens), done

    def expired(self, request_id: str) -> bool:
        """Was it asked for, and not answered in time?"""
        plan = self._plans.get(request_id)
        return plan is not None and plan.asked > 0 and not plan.done

    # ------------------------------------------------------------------------------- each step

    def next_step(self) -> None:
        """What was taken was for the step before."""
        self._made = None

    def step(self, scheduled: Any) -> Step:
        """The message of a step that is being scheduled."""
        for request, n_tokens in scheduled.num_scheduled_tokens.items():
            plan = self._plans.get(request)
            try:
                if plan is not None and not self._off and v.tokens_only(plan.request):
                    self._save(plan, n_tokens, scheduled)
            except Exception as error:
                self._troubles.caught("build_connector_meta", error)
                self.compute(request)
        counts = scheduled.num_scheduled_tokens.values()
        if max(counts, default=0) >= self._block:
            self._step.computes = sum(counts)
        return self.take()

    def take(self) -> Step:
        """What there is for the workers, also if `step` failed: a load that was promised is in it."""
        if self._made is None:
            self._made, self._step = self._step, Step(self._epoch)
        return self._made

    def _save(self, plan: _Plan, n_tokens: int, scheduled: Any) -> None:
        """Keep the full blocks that have their KV after this step. Drafts are not known tokens."""
        request = plan.request
        known = len(request.all_token_ids) - self._unsure
        full = min(request.num_computed_tokens + n_tokens, known) // self._block
        if full * self._block > plan.saved:
            blocks = v.blocks_of(scheduled, request.request_id)
            if blocks is not None and all(len(group) >= full for group in blocks):
                plan.saved = full * self._block
                self._step.saves.append(Save(self._prefix(plan, plan.saved),
                                             tuple(group[:full] for group in blocks)))

    def ended(self, request_id: str) -> None:
        """The request ended or was aborted."""
        self._alone.discard(request_id)
        self._forget(request_id)

    def _forget(self, request_id: str) -> None:
        plan = self._plans.pop(request_id, None)
        if plan is not None and plan.state in ("asked", "known"):
            self._step.asks = [ask for ask in self._step.asks if ask.request != request_id]
            self._step.forget.append(request_id)

    def reset(self) -> None:
        """Forget everything that is kept, in stores too: nobody can tell whether the weights are
        still the same. What is kept from now on ends with this process."""
        self._epoch = int.from_bytes(os.urandom(7), "big") + 1
        self._step.epoch = self._epoch
        self._step.saves.clear()
        for plan in self._plans.values():
            plan.found, plan.done, plan.saved = 0, plan.state == "asked", 0

    def stop(self) -> bool:
        """A reset failed: what is kept may be of other weights. All requests are computed."""
        self._off = True
        return False
