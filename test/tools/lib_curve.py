"""What the tests of `kvpager mrc` share: traces that are hard for it, and slow simulations of the
other policies, written from the definitions in docs/MRC.md.
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
