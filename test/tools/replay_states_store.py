"""Stores of replays with recurrent state: what a restart hits, compared with a simulation of the rules
of states.h; which states are written; stores as models: bytes, time and room."""

import os

from lib_kvpager import (check, check_equal, directory, finish, mooncake, replay, replay_load, run,
                         skip)
from lib_load import check_sums
from lib_replay_store import Piped, place_in, url
from lib_states import BLOCK_BYTES, STATE_BYTES, UNIT, draw, simulate, write_config

# With the whole cache audited after each call, a replay takes a hundred times as long.
AUDITED = int(os.environ.get("KVP_CHECK", "0")) > 0
LARGE = ["--blocks", 4000, "--host-blocks", 4000, "--state-slots", 1000, "--host-state-slots", 8]
SMALL = ["--blocks", 60, "--host-blocks", 100, "--state-slots", 12, "--host-state-slots", 2]


def words(path, config, *options):
    return [path, "--model-config", config, "--trace-block", UNIT, *options]


def stored(found, *what):
    store = found["store"]
    check_equal((store["wrong_blocks"], store["wrong_states"], store["failed"], store["refused"],
                 store["unfinished"], store["left_out"], store["states_left_out"]), (0,) * 7, *what)
    return store


def restarts(folder, config):
    """Memory without limit, and a directory: another process hits all that one has kept."""
    for seed in range(1, 2 if AUDITED else 3):
        path, requests = draw(folder, seed)
        for record_blocks in (1, 2):
            place = f"file:{folder}/kv-{seed}-{record_blocks}?size=128MiB"
            os.mkdir(f"{folder}/kv-{seed}-{record_blocks}")
            options = words(path, config, *LARGE, "--store", place, "--store-writes", "through",
                            "--record-blocks", record_blocks, "--limit", 60)
            kept, n_hits = set(), []
            for again in range(2):
                expected = simulate(requests[:60], True, kept)
                kept = {prefix for prefix in kept if is_stored(prefix, record_blocks)}
                found = replay(*options)
                store = stored(found, seed, again)
                for name, value in expected.items():
                    got = found["ended"][name] if name in found["ended"] else found[name]
                    check_equal(got, value, seed, record_blocks, again, name)
                check_equal(store["states_written"], 0 if again else len(kept), seed)
                n_hits.append(found["hit_tokens"])
            check_equal(store["checked_states"], store["states_loaded"], seed)
            check(store["states_loaded"] > 10, "few states came back", store)
            check(n_hits[1] > 1.1 * n_hits[0], "the store adds little", n_hits)


def is_stored(prefix, record_blocks):
    """A state that ends a record: an output's prefix ends in its units, a prompt's has one for each."""
    n = prefix[-1] if "output" in prefix else len(prefix)
    return n % record_blocks == 0


def small_memories(folder, config):
    """What device and host have dropped comes back, and after a restart even more."""
    n_without = n_second = n_through = n_again = 0
    for seed in range(1, 2 if AUDITED else 3):
        path, requests = draw(folder, seed)
        limit = simulate(requests, True)["hit_tokens"]
        n_without += replay(*words(path, config, *SMALL))["hit_tokens"]
        for writes in ("second", "through"):
            place = f"{folder}/small-{seed}-{writes}"
            os.mkdir(place)
            options = words(path, config, *SMALL, "--store", f"file:{place}?size=128MiB",
                            "--store-writes", writes)
            first, again = replay(*options), replay(*options)
            for found in (first, again):
                stored(found, seed, writes)
            check(first["hit_tokens"] <= limit, seed, writes, first["hit_tokens"], limit)
            if writes == "second":
                n_second += first["hit_tokens"]
            else:
                n_through += first["hit_tokens"]
                n_again += again["hit_tokens"]
    check(n_without < n_second < n_through < n_again, "hits", n_without, n_second, n_through, n_again)


def killed(folder, config):
    """A replay is killed half-way. What it had written is loaded by the next one, and is right."""
    path, _ = draw(folder, 1)
    log = os.path.join(folder, "whole.kvplog")
    model = ["--model-config", config, "--trace-block", UNIT, *LARGE, "--store-writes", "through"]
    whole = replay(path, *model, "--store", url(place_in(folder, "whole")), "--record", log)
    kept = set()
    simulate(draw(folder, 1)[1], True, kept)
    place = place_in(folder, "killed")
    first = Piped(folder, place, base=model, trace=path)
    first.read(os.path.getsize(log) // 2)
    first.kill()
    found = replay(path, *model, "--store", url(place))
    store = stored(found, "after a kill")
    check(10 < store["states_written"] < len(kept) - 10, "it was not half-way", store["states_written"])
    check(whole["hit_tokens"] < found["hit_tokens"], whole["hit_tokens"], found["hit_tokens"])
    check(store["states_loaded"] > 10, store)


def other_states(folder, config):
    """States of another size are others, and so is the KV before them. Blocks are larger than both, so
    records have the same room."""
    path, _ = draw(folder, 1, unit=128)
    place = f"{folder}/others"
    os.mkdir(place)
    options = [path, "--model-config", config, "--trace-block", 128, "--block-tokens", 128, *LARGE,
               "--store", f"file:{place}?size=128MiB", "--store-writes", "through", "--limit", 20]
    check(128 // UNIT * BLOCK_BYTES > STATE_BYTES, "a state is larger than a block")
    check(replay(*options)["store"]["stored"] > 20, "nothing was written")
    check_equal(replay(*options, "--state-dtype", "bf16")["store"]["hits"], 0)
    check_equal(replay(*options)["store"]["stored"], 0, "what was written is there")


def under_load(folder, config):
    """The states that the scheduler keeps are written, and loaded by another process."""
    path, requests = draw(folder, 1, 1000, 4 * UNIT)
    os.mkdir(f"{folder}/load")
    options = [path, "--model-config", config, "--trace-block", 4 * UNIT, "--block-tokens", 4 * UNIT,
               "--step-ns", 1000000, "--prompt-token-ns", 1000000, *LARGE, "--store",
               f"file:{folder}/load?size=128MiB", "--store-writes", "through"]
    kept = set()
    expected = simulate(requests, False, kept, 4 * UNIT)
    first, again = replay_load(*options), replay_load(*options)
    check_equal(first["hit_tokens"], expected["hit_tokens"])
    check_equal(stored(first)["states_written"], len(kept))
    check_equal(stored(again)["states_written"], 0)
    check(again["store"]["states_loaded"] > 10, again["store"])
    check_equal(again["store"]["checked_states"], again["store"]["states_loaded"])
    check(again["hit_tokens"] > first["hit_tokens"] + 5000, again["hit_tokens"], first["hit_tokens"])


def contended(folder, config):
    """Few slots of both tiers, many requests at once: all finish, and equal input gives equal output."""
    n_loaded = n_swapped = 0
    for slots, options in [(1, []), (2, ["--preempt", "swap"]), (9, ["--preempt", "swap"])]:
        path, requests = draw(folder, 2, 20, 4 * UNIT)
        options = [path, "--model-config", config, "--trace-block", 4 * UNIT, "--block-tokens",
                   4 * UNIT, "--step-ns", 1000000, "--prompt-token-ns", 100000, "--decode-token-ns",
                   100000, "--copy-token-ns", 100, "--blocks", 30, "--watermark", 0, "--state-slots",
                   slots, "--host-blocks", 100, "--host-state-slots", 2, "--store-writes", "through",
                   "--remote", "1GiB@10GB,1ms", *options]
        found = replay_load(*options)
        check_sums(found, slots)
        check_equal(found["finished"], len(requests), slots)
        store = found["store"]
        check_equal((store["wrong_blocks"], store["wrong_states"]), (0, 0), store)
        check_equal(replay_load(*options), found, "the same again")
        of_states = store["states_loaded"], store["states_written"]
        for bytes_moved, n, n_states in [(store["read_bytes"], store["hits"], of_states[0]),
                                         (store["written_bytes"], store["stored"], of_states[1])]:
            check_equal(bytes_moved, (n - n_states) * 4 * BLOCK_BYTES + n_states * STATE_BYTES, slots)
        check_equal(store["bytes"], store["records"] * max(4 * BLOCK_BYTES, STATE_BYTES), slots)
        n_loaded += of_states[0]
        n_swapped += found["states_to_host"]
        check(found["states_from_host"] <= found["states_to_host"] + of_states[0], slots)
    check(n_loaded > 5 and n_swapped > 5, "states do not move", n_loaded, n_swapped)


def time_of_states(folder, config):
    """A prompt is stored, and another one takes its blocks and slots. When it comes again, the host has
    the KV and the store the state: loading that takes its time, and so do copies."""
    path = os.path.join(folder, "again.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        for at, name in [(0, 10), (20000, 20), (40000, 10)]:
            file.write(mooncake(at, 64 * 8 + 1, 1, [name + i for i in range(9)]))
    options = [path, "--model-config", config, "--trace-block", 64, "--block-tokens", 64, "--blocks",
               10, "--watermark", 0, "--host-blocks", 24, "--state-slots", 2, "--keep-evicted", "off",
               "--step-ns", 1000, "--prompt-token-ns", 1000000, "--copy-token-ns", 100,
               "--store-writes", "through", "--remote", "1GiB@10MB,3ms"]
    found = replay_load(*options)
    store = found["store"]
    check_equal((store["states_written"], store["states_loaded"], store["hits"]), (2, 1, 1), store)
    check_equal((found["hit_tokens"], found["blocks_to_host"]), (64 * 8, 16))
    check(found["blocks_from_host"] > 0, "the device still has all of it")
    # The question, the state at 100 ns a byte, and the answer.
    check_equal(found["load_wait_ns"]["max"], 3000000 + STATE_BYTES * 100 + 3000000)
    # Two states to the host, and one back.
    tokens = (16 + found["blocks_from_host"]) * 64 + 3 * STATE_BYTES * UNIT // BLOCK_BYTES
    check_equal(round(found["copy_seconds"] * 1e9), tokens * 100)


def one_slot_for_several(folder, config):
    """Prompts that come at once have their states loaded to few slots, and evict each other's before the
    plan is taken. Those are not copied."""
    path = os.path.join(folder, "several.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        for at, name in [(0, 10), (10000, 20), (20000, 30), (30000, 40), (50000, 10), (50000, 20),
                         (50000, 30), (50000, 40)]:
            file.write(mooncake(at, 64 * 8 + 1, 1, [name + i for i in range(9)]))
    found = replay_load(path, "--model-config", config, "--trace-block", 64, "--block-tokens", 64,
                        "--blocks", 40, "--watermark", 0, "--host-blocks", 100, "--state-slots", 2,
                        "--host-state-slots", 20, "--step-ns", 1000, "--prompt-token-ns", 1000000,
                        "--store-writes", "through", "--disk", "1GiB@100GB")
    store = found["store"]
    check_equal((store["wrong_blocks"], store["wrong_states"]), (0, 0), store)
    check(found["states_from_host"] < store["states_loaded"], "none was evicted early", store)
    check_equal(found["finished"], 8)


def refused(folder, config):
    path, _ = draw(folder, 9)
    for options, message in [
            (["--sequential", "--disk", f"{STATE_BYTES - 1}B"], f"records of {STATE_BYTES} bytes"),
            (["--sequential", "--disk", "1GiB", "--unit-tokens", 4], "exclude each other"),
            (["--disk", "1GiB"], "has recurrent state, which the roofline does not know")]:
        done = run("replay", *words(path, config, *LARGE, *options))
        check(done.returncode != 0 and message in done.stderr.decode(), options, done.stderr)
    text = run("replay", "--sequential", *words(path, config, *SMALL, "--disk", "1GiB",
                                                "--store-writes", "through")).stdout.decode()
    check("  states loaded" in text and "  states written" in text, text)
    check(all(len(line) <= 80 for line in text.splitlines()[1:]), text)


def main():
    if b"built without stores" in run("store").stderr:
        skip("no stores in this build")
    with directory() as folder:
        config = write_config(folder)
        restarts(folder, config)
        small_memories(folder, config)
        killed(folder, config)
        other_states(folder, config)
        under_load(folder, config)
        contended(folder, config)
        time_of_states(folder, config)
        one_slot_for_several(folder, config)
        refused(folder, config)
    finish()


if __name__ == "__main__":
    main()
