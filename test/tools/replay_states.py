"""Replays with a model with recurrent state: hits, checkpoints and why hits ended, compared with a
simulation of the rules of states.h in a memory without limit; small memories; what is refused. One
after the other, and under load."""

import json
import os
import random

from lib_kvpager import (check, check_equal, directory, finish, mooncake, replay, replay_load,
                         run)
from lib_load import check_sums

UNIT = 16
RATES = ["--step-ns", 1000000, "--prompt-token-ns", 10000, "--decode-token-ns", 100000]
CONFIG = {"model_type": "qwen3_next", "full_attention_interval": 4, "head_dim": 64,
          "hidden_size": 256, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 32,
          "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_value_head_dim": 32,
          "num_attention_heads": 4, "num_hidden_layers": 8, "num_key_value_heads": 2,
          "torch_dtype": "bfloat16"}
BLOCK_BYTES = UNIT * 2 * 2 * 2 * 64 * 2
STATE_BYTES = 6 * (4 * 32 * 32 * 4 + 3 * (2 * 2 + 4) * 32 * 2)


def draw(folder, seed, apart_ms=1):
    """Requests along the branches of a small tree of ids; some end inside a unit."""
    random.seed(seed)
    requests = []
    for i in range(120):
        node, ids = 1, []
        for _ in range(random.randint(1, 12)):
            node = node * 2 + (random.random() < 0.3)
            ids.append(node)
        length = len(ids) * UNIT - random.choice([0, 0, 1, 7, 15])
        requests.append((length, random.randint(1, 40), ids))
    path = os.path.join(folder, f"tree-{seed}.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        for i, (length, output, ids) in enumerate(requests):
            file.write(mooncake(i * apart_ms, length, output, ids))
    return path, requests


def simulate(requests, keeps_ends):
    """A prefix is the tuple of its ids; that of an output ends in the request's number.
    `keeps_ends`: of the last full unit of an output the state is kept, too."""
    known, kept = set(), set()
    totals = {"hit_tokens": 0, "state_hits": 0, "state_missed_tokens": 0, "checkpoints_made": 0,
              "states": 0, "end": 0, "miss": 0}
    for number, (length, output, ids) in enumerate(requests):
        full, last = length // UNIT, (length - 1) // UNIT
        path = [tuple(ids[:n]) for n in range(full + 1)]
        hit = max([n for n in range(1, last + 1) if path[n] in kept], default=0)
        there = max([n for n in range(1, full + 1) if path[n] in known], default=0)
        ends = {last} if last > hit else set()
        if hit < there < last:
            ends.add(there)
        kept.update(path[n] for n in ends)
        known.update(path[1:])
        n_made = len(ends)
        units = (length + output) // UNIT
        if keeps_ends and units * UNIT > length:  # the last full unit ends in the output
            kept.add((*path[full], "output", number, units))
            n_made += 1
        totals["hit_tokens"] += hit * UNIT
        totals["state_hits"] += hit > 0
        totals["checkpoints_made"] += n_made
        matched = min(there, last)
        totals["state_missed_tokens"] += (matched - hit) * UNIT
        totals["states"] += matched > hit
        totals["end"] += matched <= hit and hit == last
        totals["miss"] += matched <= hit and hit < last
    return totals


def check_replays(folder, config):
    n_evicted = n_missed = 0
    for seed in range(1, 6):
        path, requests = draw(folder, seed)
        options = ["--model-config", config, "--trace-block", UNIT]
        found = replay(path, *options, "--blocks", 20000, "--state-slots", 5000)
        for name, value in simulate(requests, True).items():
            got = found["ended"][name] if name in found["ended"] else found[name]
            check_equal(got, value, seed, name)
        n_missed += found["state_missed_tokens"]
        check_equal((found["ended"]["no_kv"], found["no_kv_in_group"]), (0, [0]), seed)
        check_equal((found["checkpoints_skipped"], found["checkpoints_evicted"]), (0, 0), seed)
        check_equal(sum(found["ended"].values()), len(requests), seed)
        check_equal(found["state_memory_bytes"], 5000 * STATE_BYTES, seed)
        for slots, blocks in [(2, 400), (12, 400), (60, 30)]:
            small = replay(path, *options, "--blocks", blocks, "--state-slots", slots)
            check_equal(small["state_slots"], slots, seed)
            check(small["hit_tokens"] <= found["hit_tokens"], seed, slots, blocks)
            n_evicted += small["checkpoints_evicted"]
    check(n_evicted > 500 and n_missed > 500, "nothing evicted, nothing missed", n_evicted, n_missed)


def check_apart(folder, config):
    """Under load, with requests so far apart that each ends before the next one comes."""
    for seed in range(1, 4):
        path, requests = draw(folder, seed, 1000)
        found = replay_load(path, "--model-config", config, "--trace-block", UNIT, "--blocks",
                            20000, "--state-slots", 5000, *RATES)
        check_sums(found, seed)
        for name, value in simulate(requests, False).items():
            got = found["ended"][name] if name in found["ended"] else found[name]
            check_equal(got, value, "apart", seed, name)
        check_equal((found["ended"]["no_kv"], found["no_kv_in_group"]), (0, [0]), seed)
        check_equal(sum(found["ended"].values()), len(requests), seed)
        check_equal(found["state_memory_bytes"], 5000 * STATE_BYTES, seed)
        check_equal(found["step_model"]["kind"], "rates", seed)
        check_equal(found["layer_groups"][0]["layers"], 2, seed)


def check_load(folder, config):
    """Many at a time, in small memories: all finish, and a hit is never longer than without load."""
    totals = dict.fromkeys(["preemptions_recompute", "checkpoints_evicted", "checkpoints_skipped",
                            "state_missed_tokens", "state_hits"], 0)
    n_unready = 0
    for seed in range(1, 3):
        path, requests = draw(folder, seed)
        for slots, blocks, options in [(1, 40, []), (2, 60, []), (9, 40, ["--max-running", 8]),
                                       (40, 24, ["--chunk-tokens", 24, "--watermark", 0]),
                                       (5000, 20000, [])]:
            found = replay_load(path, "--model-config", config, "--trace-block", UNIT, "--blocks",
                                blocks, "--state-slots", slots, *RATES, *options)
            check_sums(found, seed, slots, blocks)
            check_equal(found["state_slots"], slots, seed)
            check_equal(sum(found["ended"].values()), len(requests), seed, slots)
            check_equal(sum(found["no_kv_in_group"]), found["ended"]["no_kv"], seed, slots)
            n_unready += found["ended"]["no_kv"]
            for name in totals:
                totals[name] += found[name]
    for name, n in totals.items():
        check(n > 0, "the traces show no", name)
    check(n_unready > 0, "nothing was waited for that another request computes")


def check_memory(folder, config):
    """The memory is shared as `kvpager size` shares it; slots follow given blocks."""
    path, _ = draw(folder, 9)
    sequence = 512 * BLOCK_BYTES + 3 * STATE_BYTES
    for memory in (sequence * 3 + 100, sequence * 7 - 1, 2 << 20):
        found = replay(path, "--model-config", config, "--trace-block", UNIT, "--memory", memory)
        slots = 3 * max(1, memory // sequence)
        check_equal(found["state_slots"], slots, memory)
        check_equal(found["blocks"], (memory - slots * STATE_BYTES) // BLOCK_BYTES, memory)
    found = replay(path, "--model-config", config, "--trace-block", UNIT, "--blocks", 513)
    check_equal(found["state_slots"], 6, "two sequences, one of them in part")
    loaded = replay_load(path, "--model-config", config, "--trace-block", UNIT, "--memory",
                         sequence * 3 + 100, *RATES)
    check_equal((loaded["state_slots"], loaded["blocks"]),
                (9, (sequence * 3 + 100 - 9 * STATE_BYTES) // BLOCK_BYTES), "under load")
    for options in (["--sequential"], ["--no-measure", *RATES]):
        text = run("replay", path, *options, "--model-config", config, "--trace-block", UNIT,
                   "--blocks", 400).stdout.decode()
        check("  state hits " in text and "known tokens computed again" in text, text)
        check(all(len(line) <= 80 for line in text.splitlines()[1:]), text)


def check_refused(folder, config):
    path, _ = draw(folder, 9)
    model = ["--model-config", config, "--trace-block", UNIT, "--blocks", 400]
    for options, message in [
            (model, "has recurrent state, which the roofline does not know: give rates, such as"),
            ([*model, *RATES, "--host-blocks", 10, "--preempt", "swap"],
             "a host tier is for models without recurrent state"),
            ([*model, *RATES, "--compute-share", 1],
             "--compute-share and --prompt-token-ns exclude each other"),
            ([*model, *RATES, "--device", "a100"], "--device and --blocks exclude each other"),
            ([*model, *RATES, "--kv-bytes-per-token", 8], "--kv-bytes-per-token is for"),
            ([*model[:4], *RATES], "needed to count the weights"),
            (["--sequential", *model, "--snapshot-out", os.path.join(folder, "s")],
             "snapshots are for models without recurrent state"),
            (["--sequential", *model, "--host-blocks", 10],
             "a host tier is for models without recurrent state"),
            (["--sequential", *model, "--policy", "learned"],
             "--policy learned is for models whose layers keep all tokens"),
            (["--sequential", *model[:4], "--memory", STATE_BYTES * 2],
             "--memory has no room for the states of a sequence and blocks besides"),
            (["--sequential", "--blocks", 10, "--state-slots", 10],
             "--state-slots needs a model with recurrent state"),
            (["--sequential", *model, "--state-slots", 0], "--state-slots is '0', expected"),
            (["--sequential", "--model", "llama-3.1-8b", "--blocks", 10, "--state-dtype", "f32"],
             "--state-dtype needs a model with recurrent state")]:
        done = run("replay", path, *options)
        check(done.returncode != 0 and message in done.stderr.decode(), options, done.stderr)
    done = run("mrc", path, "--model-config", config, "--trace-block", UNIT)
    check(done.returncode == 1 and "6 layers with recurrent state" in done.stderr.decode(),
          done.stderr)


def main():
    with directory() as folder:
        config = os.path.join(folder, "config.json")
        with open(config, "w", encoding="utf-8") as file:
            json.dump(CONFIG, file)
        check_replays(folder, config)
        check_apart(folder, config)
        check_load(folder, config)
        check_memory(folder, config)
        check_refused(folder, config)
    finish()


main()
