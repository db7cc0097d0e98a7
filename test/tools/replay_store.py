"""`kvpager replay --store`, one request after the other: what one replay wrote, another hits, after a
restart, after kill -9, and at the same time.
"""

import glob
import json
import os
import shutil

from lib_kvpager import (check, check_equal, directory, finish, mooncake, replay, replay_as, run,
                         skip)
from lib_replay_store import HALF, REQUESTS, TRACE, Piped, place_in, stored, url


def half_of_log(folder):
    """Bytes of the operation log that the first half of the requests makes, and its hits. The log has
    loads, and runs again without a store: what the store did is in it."""
    path = os.path.join(folder, "half.kvplog")
    place = place_in(folder, "half")
    found = stored(place, "--limit", HALF, "--record", path)
    again = os.path.join(folder, "again.kvplog")
    loaded = stored(place, "--limit", HALF, "--record", again)
    check(loaded["store"]["hit_tokens"] > 1000, "little was loaded:", loaded["store"])
    shutil.rmtree(place)
    for log in (path, again):
        done = run("trace", "replay", log)
        check_equal(done.returncode, 0, done.stdout, done.stderr)
    return os.path.getsize(path), found["hit_tokens"]


def restart(folder):
    """Everything that was written is hit."""
    place = place_in(folder, "restart")
    first = stored(place, "--limit", REQUESTS)
    second = stored(place, "--limit", REQUESTS)
    check(first["store"]["stored"] > 500, "little was written:", first["store"])
    check(first["store"]["hit_tokens"] > 0, "the first run hits nothing of its own")
    check(first["hit_tokens"] < 0.8 * first["input_tokens"], "the trace repeats too much")
    check(second["hit_tokens"] > 0.98 * second["input_tokens"], "hits:", second["hit_tokens"])
    check_equal(second["store"]["stored"], 0, "it was all there")
    return first


def killed(folder, whole, n_bytes, hits_of_half):
    """The second half, after the first was killed: 95 % of the hits of a run that was not."""
    place = place_in(folder, "killed")
    first = Piped(folder, place, "--limit", REQUESTS)
    first.read(n_bytes)
    first.kill()
    second = stored(place, "--skip", HALF, "--limit", REQUESTS - HALF)
    expected = whole["hit_tokens"] - hits_of_half
    check(expected > 10000, "the second half hits little:", expected)
    check(second["hit_tokens"] >= 0.95 * expected, "hits", second["hit_tokens"], "of", expected)
    alone = stored(place_in(folder, "alone"), "--skip", HALF, "--limit", REQUESTS - HALF)
    check(second["hit_tokens"] > alone["hit_tokens"] + 1000, "the store adds nothing:",
          second["hit_tokens"], alone["hit_tokens"])


def together(folder, whole, n_bytes):
    """Two replays of one trace, at the same time: each hits what only the other computed. A writer
    looks for new directories of others once in a second; so there are two before."""
    place = place_in(folder, "together")
    one = Piped(folder, place, "--limit", 1)
    one.read(1)
    stored(place, "--limit", 1)
    one.finish()
    one = Piped(folder, place, "--limit", REQUESTS)
    one.read(n_bytes)
    two = stored(place, "--limit", REQUESTS)
    one = one.finish()
    for found in (one, two):
        check(found["hit_tokens"] > whole["hit_tokens"] + 5000, "it got little of the other:",
              found["hit_tokens"], whole["hit_tokens"])


def damaged(folder):
    """A damaged record is a miss, counted by its reason."""
    place = place_in(folder, "damaged")
    stored(place, "--limit", HALF)
    whole = stored(place, "--limit", HALF)
    slabs = sorted(path for path in glob.glob(os.path.join(place, "*", "*", "*"))
                   if os.path.getsize(path) > 1 << 20)
    check(len(slabs) > 0, "there is no slab")
    for path in slabs:
        with open(path, "r+b") as file:
            for at in range(6000, os.path.getsize(path), 80 * 4096):
                file.seek(at)
                file.write(b"damaged!")
    found = stored(place, "--limit", HALF)
    check(sum(found["store"]["bad"].values()) > 0, found["store"])
    check(found["hit_tokens"] < whole["hit_tokens"], found["hit_tokens"], whole["hit_tokens"])


def second(folder):
    """What nobody hits is not written."""
    path = os.path.join(folder, "second.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        for i in range(4):
            file.write(mooncake(i, 512, 1, [7 if i == 3 else i + 7]))
    options = ["--store-writes", "second"]
    found = stored(place_in(folder, "second"), *options, trace=path)
    check_equal(found["store"]["stored"], 8, "512 tokens in records of 64", found["store"])
    found = stored(place_in(folder, "second-3"), *options, "--limit", 3, trace=path)
    check_equal(found["store"]["stored"], 0, found["store"])


def windows(folder):
    """Windows beside full layers, in blocks of 16 and 32 tokens, with records shorter than the window
    and longer: after a restart all is hit, but for what fills no record."""
    path = os.path.join(folder, "windows.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"model_type": "llama", "hidden_size": 64, "intermediate_size": 64,
                   "num_attention_heads": 1, "num_hidden_layers": 3, "vocab_size": 64,
                   "sliding_window": 100, "head_dim": 64, "global_head_dim": 32, "layer_types":
                   ["full_attention", "sliding_attention", "sliding_attention"]}, file)
    options = ["--sequential", "--output-tokens", "off", "--blocks", 3000, "--host-blocks", 2000,
               "--store-writes", "through", "--limit", REQUESTS, "--model-config", path]
    for blocks, hits in ((4, 0.98), (16, 0.95)):
        more = [*options, "--record-blocks", blocks]
        place = place_in(folder, f"windows-{blocks}")
        first, second = (replay_as(*more, "--store", url(place), TRACE) for _ in range(2))
        disk = replay_as(*more, "--disk", "1GiB", TRACE)
        for found in (first, second, disk):
            store = found["store"]
            check_equal((store["wrong_blocks"], store["failed"], store["refused"]), (0, 0, 0), store)
        check(first["store"]["stored"] > 300, "little was written:", first["store"])
        check(second["hit_tokens"] > hits * second["input_tokens"], "hits:", second["hit_tokens"],
              "of", second["input_tokens"], blocks)
        check(second["store"]["checked_blocks"] > 3000, second["store"])
        check_equal(disk["hit_tokens"], first["hit_tokens"], blocks)
    with open(path, encoding="utf-8") as file:
        other = dict(json.load(file), sliding_window=104)  # as many blocks
    with open(path, "w", encoding="utf-8") as file:
        json.dump(other, file)
    found = replay_as(*more, "--store", url(place), "--limit", 1, TRACE)
    check_equal(found["hit_tokens"], 0, "KV of another model")


def shown():
    check_equal(replay(TRACE, "--limit", 2)["store"], None)


REFUSED = [
    (["--sequential", "--store", "memory:"], 2, "--store needs --kv-bytes-per-token or --model"),
    (["--store", "memory:?size=80"], 1, 'size is "80", which is bytes: 80GiB?'),
    (["--sequential", "--store", "memory:", "--host-blocks", 9], 2,
     "--store needs --kv-bytes-per-token or --model"),
    (["--sequential", "--store-writes", "through"], 2, "--store-writes needs --store, --disk"),
    (["--sequential", "--record-blocks", "4"], 2, "--record-blocks needs --store, --disk"),
    (["--sequential", "--record-blocks", "5"], 2, "--record-blocks is '5', expected a power"),
    (["--sequential", "--store", "memory:", "--no-prefix-cache"], 2, "exclude each other"),
    (["--sequential", "--store", "memory:", "--unit-tokens", "4"], 2, "exclude each other"),
    (["--sequential", "--store", "memory:", "--snapshot-in", "x"], 2, "exclude each other"),
    (["--sequential", "--store", "memory:", "--host-blocks", 9, "--keep-evicted", "once"], 2,
     "--keep-evicted once and --store exclude each other"),
    (["--sequential", "--store", "tape:x", "--host-blocks", 9, "--kv-bytes-per-token", 64], 1,
     "--store: "),
    (["--store", "memory:?size=9MiB", "--host-blocks", 9, "--model", "gemma-3-27b", "--blocks", 99],
     1, "a store is for models whose layers keep all tokens; with --sequential"),
    (["--sequential", "--store", "memory:?size=9MiB", "--host-blocks", 9, "--model", "inkling",
      "--blocks", 99], 1, "also for others without recurrent state"),
    (["--sequential", "--store", "memory:?size=9MiB", "--host-blocks", 9, "--model", "gemma-3-27b",
      "--blocks", 99, "--why", "x"], 2, "--why and a store for a model with windows exclude"),
    (["--sequential", "--store", "memory:?size=9MiB", "--host-blocks", 9, "--model", "gemma-3-27b",
      "--blocks", 99, "--report", "x"], 2, "--report and a store for a model with windows exclude"),
    (["--sequential", "--store", "memory:?size=9MiB", "--host-blocks", 9, "--kv-bytes-per-token",
      "1GiB"], 2, "a block has more than 2^31 bytes of KV"),
]


def refused():
    for options, status, message in REFUSED:
        done = run("replay", *options, TRACE)
        error = done.stderr.decode()
        check_equal((done.returncode, done.stdout), (status, b""), options, error)
        check(message in error, options, f"{message!r} is not in {error!r}")


def main():
    if b"built without stores" in run("store").stderr:
        skip("no stores in this build")
    with directory() as folder:
        n_bytes, hits_of_half = half_of_log(folder)
        whole = restart(folder)
        killed(folder, whole, n_bytes, hits_of_half)
        together(folder, whole, n_bytes)
        damaged(folder)
        second(folder)
        windows(folder)
    shown()
    refused()
    finish()


if __name__ == "__main__":
    main()
