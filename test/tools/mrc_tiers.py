"""`kvpager mrc` with a host and a store: against replays where there is no store, against a slow
simulation where there is one, and what is known of it without any.
"""

import json
import os

from lib_curve import served, tiers, token_trace, tree_trace
from lib_kvpager import SOURCE, check, check_equal, directory, finish, mooncake, replay, run

# With the whole cache audited after each call, a replay takes a hundred times as long.
AUDITED = int(os.environ.get("KVP_CHECK", "0")) > 0


def mrc(path, *options):
    done = run("mrc", "--json", "--only-lru", *options, path)
    check_equal(done.returncode, 0, "mrc", options, done.stderr)
    return json.loads(done.stdout)


def numbers(values):
    return ",".join(map(str, values))


def like_replays(path, devices, hosts, *options):
    """Gives what the hosts hit."""
    found = mrc(path, "--sizes", numbers(devices), "--host-sizes", numbers(hosts), *options)
    check_equal(len(found["tiers"]), len(devices) * len(hosts), path)
    hit = 0
    for row in found["tiers"]:
        expected = replay(path, "--blocks", row["blocks"], "--host-blocks", row["host_blocks"],
                          *options)
        check_equal(expected["rejected"], 0, path, row)
        for key in ["hit_tokens", "host_hit_tokens"]:
            check_equal(row[key], expected[key], path, options, row, key)
        check_equal((row["store_blocks"], row["record_blocks"], row["store_hit_tokens"],
                     row["one_block_hit_tokens"]), (0, None, 0, row["hit_tokens"]), path)
        hit += row["host_hit_tokens"]
    return hit


def two_tiers(folder):
    hit = 0
    for seed in range(1, 3 if AUDITED else 7):
        path = (token_trace(folder, seed, letters=1 + seed % 2) if seed % 2
                else tree_trace(folder, seed))
        options = ["--trace-block", 16, "--block-tokens", 4]
        first = mrc(path, *options)["min_blocks"]
        hit += like_replays(path, [first, first + 1, first + 3], [1, 2, 5, 9, 30],
                            *options)
    check(hit > (2000 if AUDITED else 8000), "the hosts hit little:", hit)
    if not AUDITED:
        mixed = os.path.join(SOURCE, "data", "mixed-small.jsonl")
        hit = like_replays(mixed, [9000, 12000], [3000, 20000], "--limit", 200)
        # A request is a third of the device: many units have lost their blocks, and need nodes.
        hit += like_replays(mixed, [3000], [3000], "--limit", 200)
        check(hit > 0, "the hosts hit nothing")


def like_simulations(path, size, devices, hosts, stores, records, writes):
    """Gives how many tokens come from stores, and how many are lost to the grain."""
    found = mrc(path, "--trace-block", 16, "--block-tokens", size, "--sizes", numbers(devices),
                "--host-sizes", numbers(hosts), "--store-sizes", numbers(stores),
                "--record-blocks", numbers(records), "--store-writes", writes)
    check_equal(found["store_writes"], writes)
    requests = served(path, size)
    loaded = lost = 0
    for row in found["tiers"]:
        where = [row["blocks"], row["host_blocks"], row["store_blocks"]]
        right = tiers(requests, *where, row["record_blocks"] or 1, writes == "through")
        got = (row["hit_tokens"], row["host_hit_tokens"] // size, row["store_hit_tokens"] // size,
               row["store_written_blocks"])
        check_equal(got, right, path, writes, row)
        if row["store_blocks"] > 0:
            check_equal(row["one_block_hit_tokens"],
                        tiers(requests, *where, 1, writes == "through")[0], path, row)
        loaded += row["store_hit_tokens"]
        lost += row["one_block_hit_tokens"] - row["hit_tokens"]
    return loaded, lost


def three_tiers(folder):
    loaded = lost = 0
    for seed in range(1, 4 if AUDITED else 9):
        path = token_trace(folder, seed) if seed % 2 else tree_trace(folder, seed, depth=9)
        size = 4 if seed % 2 else 8
        first = mrc(path, "--trace-block", 16, "--block-tokens", size)["min_blocks"]
        for writes in ["through", "second"]:
            more = like_simulations(path, size, [first, first + 2], [1, 2, 5, 12],
                                    [1, 3, 8, 20, 400], [1, 2, 4], writes)
            loaded, lost = loaded + more[0], lost + more[1]
    check(loaded > 10000, "stores give little:", loaded)
    check(lost > 1000, "the grain costs little:", lost)


def write_letters(path, prompts):
    with open(path, "w", encoding="utf-8") as file:
        for i, prompt in enumerate(prompts.split()):
            ids = [ord(letter) for letter in prompt for _ in range(2)]
            print(json.dumps({"arrival_time_ns": i, "input_toks": len(ids), "output_toks": 1,
                              "input_tok_ids": ids}), file=file)


def by_hand(folder):
    """Blocks of two tokens, a letter each; a device and a host of four blocks."""
    path = os.path.join(folder, "hand.jsonl")

    def expect(prompts, records, expected, *options):
        write_letters(path, prompts)
        found = mrc(path, "--block-tokens", 2, "--output-tokens", "off", "--sizes", 4,
                    "--host-sizes", 4, "--store-sizes", 64, "--record-blocks", records, *options)
        row = found["tiers"][-1]
        got = [row[key] for key in ["hit_tokens", "host_hit_tokens", "store_hit_tokens",
                                    "store_written_blocks", "one_block_hit_tokens"]]
        check_equal(got, expected, prompts, records, options)

    through = ["--store-writes", "through"]
    # PQRS puts ABCD out of the host. Half of the host is lent: two blocks come from the store.
    expect("ABCD WXYZ PQRS ABCD", 2, [4, 0, 4, 12, 4], *through)
    # A record of four is more than half of the host.
    expect("ABCD WXYZ PQRS ABCD", 4, [0, 0, 0, 0, 4], *through)
    # The last block of ABCE is nobody else's, and the record that has C needs it.
    expect("ABCE WXYZ PQRS ABCF", 2, [4, 0, 4, 14, 4], *through)
    # What is hit is written: AB, of which one token less is a hit. Then AB comes from the store.
    expect("ABCD AB WXYZ PQRS AB", 2, [6, 0, 4, 2, 6])
    # Nothing is hit but what the store would have to bring.
    expect("ABCD WXYZ PQRS ABCD", 2, [0, 0, 0, 0, 0])


def known_ends(folder):
    """A store that keeps everything, with records of a block and a host that takes any prompt, hits
    what an unlimited cache hits."""
    for seed in range(1, 4):
        path = tree_trace(folder, seed)
        every = replay(path, "--blocks", 5000, "--trace-block", 16)
        found = mrc(path, "--trace-block", 16, "--host-sizes", "60", "--store-sizes", "5000",
                    "--record-blocks", "1", "--store-writes", "through")
        for row in found["tiers"]:
            if row["store_blocks"] > 0:
                check_equal(row["hit_tokens"], every["hit_tokens"], path, row)


def shown(folder):
    path = os.path.join(folder, "shown.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        file.write(mooncake(0, 600, 1, [1, 2]) + mooncake(1, 600, 1, [1, 2]))
    check_equal(mrc(path)["tiers"], [])
    text = run("mrc", "--only-lru", "--model", "llama-3.1-8b", "--sizes", 64, "--host-sizes", "1GiB",
               "--store-sizes", "4GiB", path).stdout.decode()
    check(" 128.0 MiB   1.00 GiB " in text, text)
    check("  4.00 GiB  1  " in text, "2 MiB a block: one block a record", text)
    check(max(map(len, text.splitlines()[1:])) <= 80, text)
    found = mrc(path, "--kv-bytes-per-token", 1024, "--sizes", 64, "--host-sizes", "1GiB",
                "--store-sizes", "4GiB")
    check_equal([row["record_blocks"] for row in found["tiers"]], [None, 32], found)
    check_equal(found["tiers"][1]["store_bytes"], 4 << 30, found)


def main():
    with directory() as folder:
        by_hand(folder)
        two_tiers(folder)
        three_tiers(folder)
        known_ends(folder)
        shown(folder)
    finish()


if __name__ == "__main__":
    main()
