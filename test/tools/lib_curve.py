"""What the tests of `kvpager mrc` share: traces that are hard for it, and slow simulations of the
other policies, written from the definitions in docs/COMMAND.md.
"""

import itertools
import json
import os
import random

from lib_kvpager import mooncake
from lib_simulation import read_jsonl


def tree_trace(folder, seed, n_requests=80, depth=7, block=16):
    """Requests along the branches of a small tree of ids, whole blocks and parts of them."""
    draw = random.Random(seed)
    path = os.path.join(folder, f"tree-{seed}-{n_requests}.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        for i in range(n_requests):
            node, ids = 1, []
            for _ in range(draw.randint(1, depth)):
                node = node * 2 + draw.randint(0, 1)
                ids.append(node)
            length = len(ids) * block - draw.choice([0, 0, 0, 1, 7, 15])
            file.write(mooncake(i // 3, length, draw.choice([0, 0, 1, 4, 16, 20]), ids))
    return path


def token_trace(folder, seed, n_requests=80, letters=2, size=4):
    """Requests whose outputs are spelled out: what one generated, another has in its prompt or
    generates again, in blocks of `size` tokens, often ending where a block does."""
    draw = random.Random(seed)
    path = os.path.join(folder, f"tokens-{seed}-{n_requests}.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        for i in range(n_requests):
            n = draw.choice([size * draw.randint(0, 5), draw.randint(0, size * 5)])
            tokens = []
            while len(tokens) < n:
                tokens += [draw.randint(1, letters)] * size
            n_input = draw.choice([n, draw.randint(0, n), draw.randint(0, n) // size * size])
            file.write(json.dumps({"input_toks": n_input, "output_toks": n - n_input,
                                   "arrival_time_ns": i * 1000000,
                                   "input_tok_ids": tokens[:n_input],
                                   "output_tok_ids": tokens[n_input:n]}) + "\n")
    return path


class Served:
    """A request as blocks: contents of its full ones, how many of them are looked up, how many
    blocks it has when it ends."""

    def __init__(self, contents, n_prompt, n_opened, n_blocks, tokens):
        self.contents = contents
        self.n_prompt = n_prompt
        self.n_opened = n_opened
        self.n_blocks = n_blocks
        self.tokens = tokens  # [n_prompt + 1] that are hit with so many blocks


def served(path, size, output=True, trace_block=16):
    numbers, found = {}, []
    for request in read_jsonl(path, trace_block):
        end = request.input_length + (request.output_length if output else 0)
        content, contents = 0, []
        for i in range(end // size):
            key = (content, request.unit(i, size))
            content = numbers.setdefault(key, len(numbers) + 1)
            contents.append(content)
        n_prompt = request.input_length // size
        tokens = [min(k * size, max(0, request.input_length - 1)) for k in range(n_prompt + 1)]
        found.append(Served(contents, n_prompt, -(-request.input_length // size), -(-end // size),
                            tokens))
    return found


def fifo(requests, blocks):
    """Tokens hit when what became cached first is evicted first."""
    queue, free, hit = [], blocks, 0
    for request in requests:
        n_hits = 0
        while n_hits < request.n_prompt and request.contents[n_hits] in queue:
            n_hits += 1
        hit += request.tokens[n_hits]
        held = set(request.contents[:n_hits])

        def take():
            nonlocal free
            if free > 0:
                free -= 1
            else:
                queue.remove(next(content for content in queue if content not in held))

        for _ in range(n_hits, request.n_opened):
            take()
        for i in range(n_hits, request.n_blocks):
            if i >= request.n_opened:
                take()
            if i < len(request.contents):
                free += request.contents[i] in queue
                held.add(request.contents[i])
        free += request.n_blocks - len(request.contents)
        queue += [content for content in reversed(request.contents) if content not in queue]
    return hit


class Adaptive:
    """ARC or S3-FIFO of contents that continue each other, as docs/COMMAND.md has them: lists, the
    oldest first, and a victim is the oldest that nobody uses and of which no child is cached."""

    def __init__(self, policy, requests, blocks):
        self.policy, self.blocks, self.small = policy, blocks, max(1, blocks // 10)
        self.first, self.second, self.ghosts = [], [], ([], [])
        self.uses, self.target, self.full = {}, 0, False
        self.children = {}
        for request in requests:
            for parent, child in zip(request.contents, request.contents[1:]):
                self.children.setdefault(parent, set()).add(child)

    def cached(self, content):
        return content in self.first or content in self.second

    def leaf(self, queue, held):
        for content in queue:
            if content not in held and not any(map(self.cached, self.children.get(content, ()))):
                return content
        return None

    def miss(self, content):
        """Gives whether it was evicted from the second queue; keeps what is known to return."""
        for of_second in (False, True):
            own, other = self.ghosts[of_second], self.ghosts[not of_second]
            if content in own:
                step = max(1, len(other) / len(own))
                self.target += -step if of_second else step
                self.target = min(max(self.target, 0), self.blocks)
                own.remove(content)
                self.returning.add(content)
                return of_second
        return False

    def evict(self, held, was_second):
        self.full = True
        if self.policy == "arc":
            size = len(self.first)
            take_second = not (size > self.target or
                               size == self.target and size > 0 and was_second)
        else:
            take_second = len(self.second) > self.blocks - self.small
        while True:
            first, second = self.leaf(self.first, held), self.leaf(self.second, held)
            if first is None or second is None:
                take_second = first is None
            victim = second if take_second else first
            (self.second if take_second else self.first).remove(victim)
            if self.policy == "s3fifo" and self.uses[victim] >= (1 if take_second else 2):
                self.uses[victim] = self.uses[victim] - 1 if take_second else 0
                self.second.append(victim)
                continue
            if self.policy == "arc" or not take_second:
                self.ghosts[take_second].append(victim)
            if self.policy == "s3fifo":
                del self.ghosts[0][:max(0, len(self.ghosts[0]) - self.blocks * 9 // 10)]
            return

    def use(self, content):
        if self.policy == "s3fifo":
            self.uses[content] = min(3, self.uses[content] + 1)
            return
        (self.first if content in self.first else self.second).remove(content)
        self.second.append(content)

    def store(self, content):
        again = content in self.returning
        for ghosts in self.ghosts:
            if content in ghosts:
                ghosts.remove(content)
                again = True
        if self.policy == "s3fifo" and not self.full and len(self.first) >= self.small:
            again = True
        (self.second if again else self.first).append(content)
        self.uses[content] = 0
        if self.policy == "arc":
            first, second = self.ghosts
            while first and len(self.first) + len(first) > self.blocks:
                first.pop(0)
            while second and (len(self.first) + len(self.second) + len(first) + len(second) >
                              2 * self.blocks):
                second.pop(0)

    def serve(self, requests):
        free, hit = self.blocks, 0
        for request in requests:
            self.returning = set()
            n_hits = 0
            while n_hits < request.n_prompt and self.cached(request.contents[n_hits]):
                n_hits += 1
            hit += request.tokens[n_hits]
            held, was_second = set(request.contents[:n_hits]), False
            for i in range(n_hits, request.n_blocks):
                if i < request.n_prompt:
                    was_second = self.miss(request.contents[i])
                if i < request.n_opened:
                    if free:
                        free -= 1
                    else:
                        self.evict(held, was_second)
            for i in range(n_hits, request.n_blocks):
                if i >= request.n_opened:
                    if free:
                        free -= 1
                    else:
                        self.evict(held, was_second)
                if i < len(request.contents):
                    free += self.cached(request.contents[i])
                    held.add(request.contents[i])
            free += request.n_blocks - len(request.contents)
            for content in reversed(request.contents):
                if self.cached(content):
                    self.use(content)
                else:
                    self.store(content)
        return hit


def adaptive(policy, requests, blocks):
    """Tokens hit."""
    return Adaptive(policy, requests, blocks).serve(requests)


def best(requests, blocks):
    """Most blocks that any choice of victims hits: every choice is tried. For requests whose
    outputs nobody else has."""
    states = {frozenset(): 0}
    for request in requests:
        after = {}
        own = frozenset(request.contents)
        for state, hits in states.items():
            n_hits = 0
            while n_hits < request.n_prompt and request.contents[n_hits] in state:
                n_hits += 1
            others = sorted(state - own)
            kept = min(len(others), blocks - request.n_blocks)
            for choice in itertools.combinations(others, kept):
                key = own | frozenset(choice)
                after[key] = max(after.get(key, 0), hits + n_hits)
        states = after
    return max(states.values())


class Tier:
    """Contents in the order in which they go, the next one first."""

    def __init__(self, blocks):
        self.blocks = blocks
        self.queue = []
        self.held = 0  # blocks that are neither free nor in the queue

    def take(self):
        """Gives what is evicted, or None."""
        evicted = None
        if len(self.queue) + self.held == self.blocks:
            evicted = self.queue.pop(0)
        self.held += 1
        return evicted

    def put(self, contents):
        for content in contents:
            self.queue = [other for other in self.queue if other != content] + [content]


class Tiers:
    """Device, host and store as docs/COMMAND.md and swap.h describe them."""

    def __init__(self, device, host, store, record, through):
        self.device, self.host = Tier(device), Tier(host)
        self.store, self.room = [], store // record
        self.record, self.through = record, through
        self.hit = self.host_hit = self.store_hit = self.written = 0

    def take(self):
        evicted = self.device.take()
        if evicted is None or evicted in self.sources:
            return
        if evicted in self.host.queue:
            self.host.put([evicted])
        elif self.host.held < self.host.blocks:
            self.host.take()
            self.host.held -= 1
            self.host.put([evicted])

    def records(self, contents):
        """(blocks of a record, its name) of all whole records in a row."""
        size = self.record
        return [(contents[i:i + size], contents[i + size - 1])
                for i in range(0, len(contents) - size + 1, size)]

    def load(self, prompt):
        loads, end, loaded = [], 0, 0
        for number, (blocks, name) in enumerate(self.records(prompt)):
            missing = [content for content in blocks
                       if content not in self.device.queue and content not in self.host.queue]
            before = prompt[:(number + 1) * self.record]
            on_host = sum(content in self.host.queue for content in before)
            if missing and name not in self.store:
                break
            if len(loads) + len(missing) > max(self.host.blocks // 2, 1):
                break
            if on_host + len(loads) + len(missing) > self.host.blocks:
                break
            end = (number + 1) * self.record
            if missing:
                loads, loaded = loads + missing, end
        if not loads:
            return 0
        self.host.put([content for content in reversed(prompt[:end])
                       if content in self.host.queue])
        self.use([name for _, name in self.records(prompt[:loaded])])
        for _ in loads:
            self.host.take()
        self.host.held -= len(loads)
        self.host.put(reversed(loads))
        return len(loads)

    def use(self, names):
        for name in reversed(names):
            self.store.remove(name)
            self.store.append(name)

    def write(self, contents):
        used = []
        for blocks, name in self.records(contents):
            if name not in self.store:
                if len(self.store) == self.room:
                    if self.store[0] in used:
                        return
                    self.store.pop(0)
                self.lend(blocks)
                self.store.append(name)
                self.written += self.record
                self.use(used)
            used.append(name)

    def lend(self, blocks):
        for content in blocks:
            if content in self.host.queue:
                self.host.queue.remove(content)
                self.host.held += 1
        while self.host.held < len(blocks):
            self.host.take()
        self.host.held = 0
        self.host.put(reversed(blocks))

    def serve(self, request):
        lent = min(self.host.blocks, max(self.host.blocks // 2, 1))
        has_store = self.room > 0 and self.record <= lent
        self.sources = []
        prompt = request.contents[:request.n_prompt]
        loaded = self.load(prompt) if has_store else 0
        n_hits = 0
        while n_hits < len(prompt) and (prompt[n_hits] in self.device.queue or
                                        prompt[n_hits] in self.host.queue):
            n_hits += 1
        for content in prompt[:n_hits]:
            if content in self.device.queue:
                self.device.queue.remove(content)
                self.device.held += 1
            else:
                self.host.queue.remove(content)
                self.host.held += 1
                self.sources.append(content)
        for i in range(request.n_opened):
            if i >= n_hits or prompt[i] in self.sources:
                self.take()
        self.host.held -= len(self.sources)
        self.host.put(reversed(self.sources))
        self.hit += request.tokens[n_hits]
        self.host_hit += len(self.sources) - loaded
        self.store_hit += loaded
        self.sources = []
        for i in range(n_hits, request.n_blocks):
            if i >= request.n_opened:
                self.take()
            if i < len(request.contents) and request.contents[i] in self.device.queue:
                self.device.queue.remove(request.contents[i])
        self.device.held = 0
        self.device.put(reversed(request.contents))
        if has_store:
            self.write(request.contents if self.through else prompt[:n_hits])


def tiers(requests, device, host, store, record, through):
    """(tokens hit, blocks hit on the host, blocks from the store, blocks written to it)."""
    all_tiers = Tiers(device, host, store, record, through)
    for request in requests:
        all_tiers.serve(request)
    return all_tiers.hit, all_tiers.host_hit, all_tiers.store_hit, all_tiers.written
