"""Replays with a model with recurrent state: hits, checkpoints and why hits ended, compared with a
simulation of the rules of states.h in a memory without limit; small memories, a host tier, snapshots;
what is refused. One after the other, and under load."""

import os

from lib_kvpager import check, check_equal, directory, finish, replay, replay_load, run
from lib_load import check_sums
from lib_states import BLOCK_BYTES, RATES, STATE_BYTES, UNIT, draw, simulate, write_config

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


def check_host(folder, config):
    """Slots suffice, and evicted KV is on the host: then a small device hits like a large one. With
    few slots, KV is known whose state is gone."""
    n_host = n_lost = 0
    for seed in range(1, 4):
        path, requests = draw(folder, seed)
        options = ["--model-config", config, "--trace-block", UNIT, "--blocks", 30]
        for host, slots in ((4000, 5000), (60, 5000), (4000, 20)):
            found = replay(path, *options, "--state-slots", slots, "--host-blocks", host)
            check_equal((found["host_blocks"], found["host_state_slots"]),
                        (host, max(1, -(-host // 512))), seed)
            check_equal(found["host_state_memory_bytes"], found["host_state_slots"] * STATE_BYTES)
            check_equal(sum(found["ended"].values()), len(requests), seed)
            n_host += found["host_hit_tokens"]
            for name, value in simulate(requests, True).items() if (host, slots) == (4000, 5000) else ():
                got = found["ended"][name] if name in found["ended"] else found[name]
                check_equal(got, value, "host", seed, name)
        without = replay(path, *options, "--state-slots", 20)
        n_lost += found["state_missed_tokens"] - without["state_missed_tokens"]
        off = replay(path, *options, "--state-slots", 20, "--host-blocks", 60, "--keep-evicted",
                     "off", "--host-state-slots", 7)
        check_equal(off["host_state_slots"], 7)
        for name in ("hit_tokens", "state_missed_tokens", "checkpoints_made", "ended"):
            check_equal(off[name], without[name], seed, name, "a host that keeps nothing")
    check(n_host > 5000 and n_lost > 500, "the host was of no use", n_host, n_lost)


def check_swaps(folder, config):
    """Under load, sequences take their states to the host and back, and copies take time."""
    n_cheaper = n_dearer = 0
    for seed in range(1, 3):
        path, requests = draw(folder, seed)
        model = ["--model-config", config, "--trace-block", UNIT, "--copy-token-ns", 100, *RATES]
        for slots, blocks, host, options in [
                (40, 24, 60, ["--watermark", 0]), (9, 40, 60, ["--max-running", 8]),
                (40, 24, 2000, ["--keep-evicted", "off", "--watermark", 0, "--host-state-slots", 2])]:
            words = [path, *model, "--blocks", blocks, "--state-slots", slots, "--host-blocks", host,
                     *options]
            found = replay_load(*words, "--preempt", "swap")
            check_sums(found, seed, slots, blocks)
            check_equal(sum(found["ended"].values()), len(requests), seed, slots)
            check(0 < found["states_from_host"] <= found["states_to_host"]
                  == found["preemptions_swap"], found["states_to_host"])
            # The copies of blocks take what their tokens take, a state as many as it has bytes of.
            tokens = round(found["copy_seconds"] * 1e9 / 100)
            states = found["states_to_host"] + found["states_from_host"]
            n_blocks = found["blocks_to_host"] + found["blocks_from_host"]
            of_blocks = tokens - states * STATE_BYTES * UNIT // BLOCK_BYTES
            check((n_blocks - states) * UNIT <= of_blocks <= n_blocks * UNIT, of_blocks, n_blocks)
            cheaper = replay_load(*words, "--preempt", "cheaper", "--copy-token-ns", 1)
            dear = replay_load(*words, "--preempt", "cheaper", "--copy-token-ns", 10000)
            check_equal(dear["preemptions_swap"], 0, "a swap costs more than computing")
            n_cheaper += cheaper["preemptions_swap"]
            # Blocks alone cost 0.6 of what computing them does. A state costs 63 tokens besides.
            found = replay_load(*words, "--preempt", "cheaper", "--copy-token-ns", 3000)
            n_dearer += found["preemptions_swap"]
    check(2 * n_dearer < n_cheaper, "a state costs nothing", n_dearer, n_cheaper)
    check(n_cheaper > 10, "nothing was swapped because it is cheaper", n_cheaper)
    apart, requests = draw(folder, 1, 1000)
    found = replay_load(apart, *model, "--blocks", 60, "--state-slots", 5000, "--host-blocks", 4000)
    for name, value in simulate(requests, False).items():
        got = found["ended"][name] if name in found["ended"] else found[name]
        check_equal(got, value, "apart, with a host", name)
    check_equal((found["states_to_host"], found["states_from_host"]), (0, 0), "none is swapped")
    check(found["blocks_from_host"] > 10, "the host was of no use", found["blocks_from_host"])


def check_snapshots(folder, config):
    """After a restart the replay goes on as if nothing had happened."""
    saved = os.path.join(folder, "saved")
    n_hits = 0
    for seed, options in [(1, ["--blocks", 2000, "--state-slots", 500]),
                          (2, ["--blocks", 60, "--state-slots", 20]),
                          (3, ["--blocks", 60, "--state-slots", 20, "--host-blocks", 100]),
                          (4, ["--blocks", 60, "--state-slots", 20, "--unit-tokens", 4])]:
        path, _ = draw(folder, seed)
        words = [path, "--model-config", config, "--trace-block", UNIT, *options]
        whole = replay(*words)
        first = replay(*words, "--limit", 60, "--snapshot-out", saved)
        second = replay(*words, "--skip", 60, "--snapshot-in", saved)
        for name in ("hit_tokens", "state_hits", "state_missed_tokens", "checkpoints_made",
                     "evictions"):
            check_equal(first[name] + second[name], whole[name], "restored", seed, name)
        check_equal(second["restored_blocks"], second["saved_blocks"], seed)
        n_hits += second["hit_tokens"] - replay(*words, "--skip", 60)["hit_tokens"]
    check(n_hits > 1000, "a snapshot was of no use", n_hits)
    done = run("replay", "--sequential", *words, "--state-slots", 21, "--snapshot-in", saved)
    check(done.returncode == 1 and b"saved with --state-slots 20, and this replay has 21" in done.stderr,
          done.stderr)


def check_memory(folder, config):
    """The memory is shared as `kvpager size` shares it; slots follow given blocks."""
    path, _ = draw(folder, 9)
    sequence = 512 * BLOCK_BYTES + 3 * STATE_BYTES
    for memory in (sequence * 3 + 100, sequence * 7 - 1, 2 << 20):
        found = replay(path, "--model-config", config, "--trace-block", UNIT, "--memory", f"{memory}B")
        slots = 3 * max(1, memory // sequence)
        check_equal(found["state_slots"], slots, memory)
        check_equal(found["blocks"], (memory - slots * STATE_BYTES) // BLOCK_BYTES, memory)
    found = replay(path, "--model-config", config, "--trace-block", UNIT, "--blocks", 513)
    check_equal(found["state_slots"], 6, "two sequences, one of them in part")
    loaded = replay_load(path, "--model-config", config, "--trace-block", UNIT, "--memory",
                         f"{sequence * 3 + 100}B", *RATES)
    check_equal((loaded["state_slots"], loaded["blocks"]),
                (9, (sequence * 3 + 100 - 9 * STATE_BYTES) // BLOCK_BYTES), "under load")
    state = 512 * BLOCK_BYTES + STATE_BYTES  # on the host a sequence keeps no checkpoints
    for memory in (state * 3 + 100, state * 7 - 1, 1 << 20):
        for how, rates in ((replay, []), (replay_load, RATES)):
            found = how(path, "--model-config", config, "--trace-block", UNIT, "--blocks", 40,
                        "--host-memory", f"{memory}B", *rates)
            slots = max(1, memory // state)
            check_equal((found["host_state_slots"], found["host_blocks"]),
                        (slots, (memory - slots * STATE_BYTES) // BLOCK_BYTES), memory)
    found = replay(path, "--model-config", config, "--trace-block", UNIT, "--blocks", 40,
                   "--host-memory", "1MiB", "--host-state-slots", 3)
    check_equal(found["host_blocks"], ((1 << 20) - 3 * STATE_BYTES) // BLOCK_BYTES)
    for options in (["--sequential"], ["--no-measure", *RATES]):
        text = run("replay", path, *options, "--model-config", config, "--trace-block", UNIT,
                   "--blocks", 400).stdout.decode()
        check("  state hits " in text and "known tokens computed again" in text, text)
        check(all(len(line) <= 80 for line in text.splitlines()[1:]), text)
    text = run("replay", path, "--no-measure", *RATES, "--model-config", config, "--trace-block", UNIT,
               "--blocks", 40, "--host-blocks", 40).stdout.decode()
    check("  states out " in text and "to 1 host slots" in text, text)
    check(all(len(line) <= 80 for line in text.splitlines()[1:]), text)


def check_refused(folder, config):
    path, _ = draw(folder, 9)
    model = ["--model-config", config, "--trace-block", UNIT, "--blocks", 400]
    for options, message in [
            (model, "has recurrent state, which the roofline does not know: give rates, such as"),
            ([*model, *RATES, "--host-blocks", 10, "--keep-evicted", "once"],
             "--keep-evicted once is for models without recurrent state"),
            ([*model, *RATES, "--host-state-slots", 10],
             "--host-state-slots needs --host-blocks or --host-memory"),
            ([*model, *RATES, "--host-memory", f"{STATE_BYTES}B"],
             "--host-memory has no room for a state and blocks besides"),
            (["--sequential", "--blocks", 10, "--host-blocks", 10, "--host-state-slots", 10],
             "--host-state-slots needs a model with recurrent state"),
            ([*model, *RATES, "--compute-share", 1],
             "--compute-share and --prompt-token-ns exclude each other"),
            ([*model, *RATES, "--device", "a100"], "--device and --blocks exclude each other"),
            ([*model, *RATES, "--kv-bytes-per-token", 8], "--kv-bytes-per-token is for"),
            ([*model[:4], *RATES], "needed to count the weights"),
            (["--sequential", *model, "--policy", "learned"],
             "--policy learned is for models whose layers keep all tokens"),
            (["--sequential", *model[:4], "--memory", f"{STATE_BYTES * 2}B"],
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
        config = write_config(folder)
        check_replays(folder, config)
        check_apart(folder, config)
        check_load(folder, config)
        check_host(folder, config)
        check_swaps(folder, config)
        check_snapshots(folder, config)
        check_memory(folder, config)
        check_refused(folder, config)
    finish()


main()
