"""What the tests of replays of models with recurrent state share: a model, traces, and a simulation of
the rules of states.h in a memory without limit."""

import json
import os
import random

from lib_kvpager import mooncake

UNIT = 16
RATES = ["--step-ns", 1000000, "--prompt-token-ns", 10000, "--decode-token-ns", 100000]
CONFIG = {"model_type": "qwen3_next", "full_attention_interval": 4, "head_dim": 64,
          "hidden_size": 256, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 32,
          "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_value_head_dim": 32,
          "num_attention_heads": 4, "num_hidden_layers": 8, "num_key_value_heads": 2,
          "torch_dtype": "bfloat16"}
BLOCK_BYTES = UNIT * 2 * 2 * 2 * 64 * 2
STATE_BYTES = 6 * (4 * 32 * 32 * 4 + 3 * (2 * 2 + 4) * 32 * 2)


def draw(folder, seed, apart_ms=1, unit=UNIT):
    """Requests along the branches of a small tree of ids; some end inside a unit."""
    random.seed(seed)
    requests = []
    for i in range(120):
        node, ids = 1, []
        for _ in range(random.randint(1, 12)):
            node = node * 2 + (random.random() < 0.3)
            ids.append(node)
        length = len(ids) * unit - random.choice([0, 0, 1, 7, 15])
        requests.append((length, random.randint(1, 40), ids))
    path = os.path.join(folder, f"tree-{seed}-{apart_ms}-{unit}.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        for i, (length, output, ids) in enumerate(requests):
            file.write(mooncake(i * apart_ms, length, output, ids))
    return path, requests


def simulate(requests, keeps_ends, kept=None, unit=UNIT):
    """A prefix is the tuple of its ids; that of an output ends in the request's number.
    `keeps_ends`: of the last full unit of an output the state is kept, too. `kept`: prefixes of which
    a store has the state, and the KV; those that are kept are added."""
    known, kept = set(), set() if kept is None else kept
    totals = {"hit_tokens": 0, "state_hits": 0, "state_missed_tokens": 0, "checkpoints_made": 0,
              "states": 0, "end": 0, "miss": 0}
    for number, (length, output, ids) in enumerate(requests):
        full, last = length // unit, (length - 1) // unit
        path = [tuple(ids[:n]) for n in range(full + 1)]
        hit = max([n for n in range(1, last + 1) if path[n] in kept], default=0)
        there = max([n for n in range(1, full + 1) if path[n] in known], default=0)
        ends = {last} if last > hit else set()
        if hit < there < last:
            ends.add(there)
        kept.update(path[n] for n in ends)
        known.update(path[1:])
        n_made = len(ends)
        units = (length + output) // unit
        if keeps_ends and units * unit > length:  # the last full unit ends in the output
            kept.add((*path[full], "output", number, units))
            n_made += 1
        totals["hit_tokens"] += hit * unit
        totals["state_hits"] += hit > 0
        totals["checkpoints_made"] += n_made
        matched = min(there, last)
        totals["state_missed_tokens"] += max(matched - hit, 0) * unit
        totals["states"] += matched > hit
        totals["end"] += matched <= hit and hit == last
        totals["miss"] += matched <= hit and hit < last
    return totals


def write_config(folder):
    path = os.path.join(folder, "config.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(CONFIG, file)
    return path
