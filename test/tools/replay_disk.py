"""`kvpager replay --disk` and `--remote`: stores as models in simulated time."""

import json
import os

from lib_kvpager import (SOURCE, check, check_equal, directory, finish, mooncake, replay,
                         replay_load, run, skip)

TRACE = os.path.join(SOURCE, "data", "mixed-small.jsonl")
# With the whole cache audited after each call, a replay takes a hundred times as long.
AUDITED = int(os.environ.get("KVP_CHECK", "0")) > 0
REQUESTS = 124  # the 50th hits what was on the host only in part
TOKEN_BYTES = 64
RATES = ["--kv-bytes-per-token", TOKEN_BYTES, "--prompt-token-ns", 30000, "--step-ns", 5000000]


def like_mrc():
    """One request after the other, what `kvpager mrc` says without a cache."""
    blocks = 65536
    # 11,000 records of one block: the spill must know all of them, or it mirrors some in vain.
    for record_blocks, writes, limit in [(4, "through", REQUESTS), (4, "second", REQUESTS),
                                         (1, "second", 400)]:
        options = ["--limit", limit, "--output-tokens", "off", "--store-writes", writes,
                   "--record-blocks", record_blocks, "--kv-bytes-per-token", TOKEN_BYTES]
        done = run("mrc", "--json", "--only-lru", "--sizes", 6000, "--host-sizes", 4000,
                   "--store-sizes", blocks, *options, TRACE)
        row = [row for row in json.loads(done.stdout)["tiers"] if row["store_blocks"] > 0][0]
        found = replay(TRACE, "--blocks", 6000, "--host-blocks", 4000,
                       "--disk", f"{blocks * 16 * TOKEN_BYTES}B", *options)
        check_equal((found["hit_tokens"], record_blocks * found["store"]["stored"]),
                    (row["hit_tokens"], row["store_written_blocks"]), writes)
        check_equal((found["store"]["wrong_blocks"], found["store"]["answers"]["deadline"]), (0, 0))
        check(found["store"]["hit_tokens"] > 0, "nothing was loaded")


def same_bytes():
    """Equal input, equal output; the time is the model's."""
    words = ["--limit", 8 if AUDITED else 40, "--blocks", 3000, "--host-blocks", 2000, *RATES, "--store-writes",
             "through", "--remote", "1GiB@100MB,3ms"]
    first = replay_load(TRACE, *words)
    check_equal(replay_load(TRACE, *words), first)
    store = first["store"]
    check(store["is_model"] and "a model of another machine" in store["engine"], store)
    check_equal((store["wrong_blocks"], store["unfinished"]), (0, 0), store)
    check_equal(store["read_bytes"], store["hits"] * store["record_blocks"] * 16 * TOKEN_BYTES)
    least = 3000000 if AUDITED else 6000000  # the question, and the read
    check(first["load_wait_ns"]["max"] >= least, first["load_wait_ns"])


def others_go_on(folder):
    """The first prompt is stored and its blocks are taken by the second. Then it comes again, with
    one that is new: that one does not wait for the load of the other."""
    path = os.path.join(folder, "others.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        for at, name in [(0, 10), (10000, 20), (20000, 30), (30000, 10), (30000, 40)]:
            file.write(mooncake(at, 512 * 8, 1, [name + i for i in range(8)]))
    words = [path, "--blocks", 512, "--watermark", 0, "--host-blocks", 600, "--keep-evicted", "off",
             "--step-ns", 1000000, "--step-tokens", 512, "--prompt-token-ns", 1000000,
             "--kv-bytes-per-token", TOKEN_BYTES]
    without = replay_load(*words)
    found = replay_load(*words, "--store-writes", "through", "--record-blocks", 4, "--remote",
                        "1GiB@1GB,400ms")
    answers = found["store"]["answers"]
    check_equal((answers["waits"], answers["loaded"], answers["nothing"]), (5, 1, 4), answers)
    check(found["hit_tokens"] > without["hit_tokens"] + 3000, found["hit_tokens"])
    # 4.1 s to compute. Each question takes 0.4 s; the load is a second, in which the other runs.
    first, before = (figures["time_to_first_token_ns"] for figures in (found, without))
    check(first["mean"] < before["mean"], first, before)
    check(first["max"] <= before["max"] + 400000000, first, before)


def throttled():
    """A store at a quarter of the rate at which loading pays: it costs at most a twentieth."""
    words = ["--limit", 200, "--blocks", 6000, "--host-blocks", 4000, *RATES]
    break_even = TOKEN_BYTES * 10**9 // 30000
    without = replay_load(TRACE, *words)["time_to_first_token_ns"]
    found = replay_load(TRACE, *words, "--disk", f"1GiB@{break_even // 4}B")
    check(found["store"]["answers"]["compute"] > 0, found["store"]["answers"])
    for part in ["mean", "p90", "p95", "p99"]:
        check(found["time_to_first_token_ns"][part] <= 1.05 * without[part], part,
              found["time_to_first_token_ns"], without)


REFUSED = [
    (["--disk", "1GiB", "--remote", "1GiB"], "--disk and --remote exclude each other"),
    (["--disk", "1GiB", "--store", "memory:"], "--store and --disk exclude each other"),
    (["--disk", "x"], "--disk is 'x', expected a size"),
    (["--disk", "1GiB@x"], "--disk is 'x', expected a size"),
    (["--remote", "1GiB@1GB,3"], "--remote has a latency of '3', expected"),
    (["--remote", "1GiB@1GB,2000000s"], "--remote has a latency of '2000000s', expected"),
    (["--disk", "10"], "--disk is '10', which is bytes: 10GiB? (10B, if bytes are meant)"),
]


def refused():
    for options, message in REFUSED:
        done = run("replay", *options, TRACE)
        error = done.stderr.decode()
        check_equal((done.returncode, done.stdout), (2, b""), options, error)
        check(message in error, options, f"{message!r} is not in {error!r}")
    done = run("replay", "--host-blocks", 9, "--disk", "1000B", *RATES, TRACE)
    check_equal(done.returncode, 1)
    check(b"--disk: its size is 1000, expected" in done.stderr, done.stderr)


def main():
    if b"built without stores" in run("store").stderr:
        skip("no stores in this build")
    if not AUDITED:
        like_mrc()
        throttled()
    same_bytes()
    with directory() as folder:
        others_go_on(folder)
    refused()
    finish()


if __name__ == "__main__":
    main()
