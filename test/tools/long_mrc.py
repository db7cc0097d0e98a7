"""The curve of `kvpager mrc` against replays: equal at every size. FIFO against a simulation, the
optimum against all choices there are. Sampling against the exact curve."""

import csv
import json
import os

from lib_curve import adaptive, best, fifo, served, token_trace, tree_trace
from lib_kvpager import (SOURCE, check, check_equal, directory, finish, replay, run, traces)

# With the whole cache audited after each call, a replay takes a hundred times as long.
AUDITED = int(os.environ.get("KVP_CHECK", "0")) > 0


def mrc(path, *options):
    done = run("mrc", "--json", *options, path)
    check_equal(done.returncode, 0, "mrc", options, done.stderr)
    return json.loads(done.stdout)


def read_curve(path):
    with open(path, encoding="utf-8") as file:
        rows = [(int(row["blocks"]), int(row["hit_tokens"])) for row in csv.DictReader(file)]
    check(rows == sorted(set(rows)), path, "is not ascending")
    return rows


def value_at(rows, blocks):
    return [hit for size, hit in rows if size <= blocks][-1]


def same_as_replays(path, options, sizes=None):
    """Compares at the sizes that are given, or at all from the smallest to beyond the largest."""
    with directory() as folder:
        csv_path = os.path.join(folder, "curve.csv")
        found = mrc(path, "--only-lru", "--curve", csv_path, *options)
        rows = read_curve(csv_path)
    first, last = found["min_blocks"], found["enough_blocks"]
    check_equal(rows[0][0], first, path, options, "smallest size")
    check(rows[-1][0] <= last, path, options, "changes after", last)
    rejected = replay(path, "--blocks", first - 1, *options)["rejected"] if first > 1 else 1
    check(rejected > 0, path, options, "smaller than", first, "rejects nothing")
    for blocks in sizes or range(first, last + 3):
        expected = replay(path, "--blocks", blocks, *options)
        if expected["rejected"] > 0:
            continue
        check_equal(value_at(rows, blocks), expected["hit_tokens"], path, options, blocks)
        for key in ["requests", "input_tokens", "output_tokens", "blocks_looked_up"]:
            check_equal(found[key], expected[key], path, options, key)
    return last - first


def shown_sizes_agree(path, *options):
    """The figures of the sizes that are shown, block hits too."""
    found = mrc(path, *options)
    for point in found["sizes"]:
        expected = replay(path, "--blocks", point["blocks"], *options)
        check_equal(expected["rejected"], 0, path, point)
        check_equal(point["hit_tokens"], expected["hit_tokens"], path, point)
        check_equal(point["block_hits"], expected["block_hits"], path, point)
        check_equal(point["hit_ratio_error"], 0, path, point)
        check(point["fifo_hit_tokens"] <= point["optimum_hit_tokens"], path, point)
        check(point["hit_tokens"] <= point["optimum_hit_tokens"], path, point)
    return found


def synthetic(folder):
    spans = 0
    for seed in range(1, 2 if AUDITED else 4):
        path = tree_trace(folder, seed)
        for block_tokens in [16, 8, 4]:
            spans += same_as_replays(path, ["--trace-block", 16, "--block-tokens", block_tokens])
        same_as_replays(path, ["--trace-block", 16, "--output-tokens", "off", "--limit", 40])
    for seed in range(1, 3 if AUDITED else 7):
        path = token_trace(folder, seed, letters=1 + seed % 2, n_requests=120)
        for block_tokens in [4, 3] if AUDITED else [4, 2, 3, 1]:
            spans += same_as_replays(path, ["--block-tokens", block_tokens])
    check(spans > (100 if AUDITED else 500), "the curves are short:", spans)


def other_policies(folder):
    for seed in range(1, 7):
        path = token_trace(folder, seed, letters=1 + seed % 2) if seed % 2 else tree_trace(folder, seed)
        options = ["--block-tokens", 4, "--trace-block", 16]
        requests = served(path, 4)
        first = max(request.n_blocks for request in requests)
        sizes = [first, first + 1, first + 2, first + 5, first + 11]
        found = mrc(path, *options, "--policy", "fifo,arc,s3fifo", "--sizes",
                    ",".join(map(str, sizes)))
        for point in found["sizes"]:
            check_equal(point["fifo_hit_tokens"], fifo(requests, point["blocks"]), path, point)
            for policy in ("arc", "s3fifo"):
                check_equal(point[policy + "_hit_tokens"],
                            adaptive(policy, requests, point["blocks"]), path, point)
    gained = 0
    for seed in range(20, 36):
        gained += optimum(tree_trace(folder, seed, n_requests=9, depth=4), 16, "off")
        gained += optimum(token_trace(folder, seed, n_requests=14, letters=2), 4, "on")
    check(gained > 200, "the optimum is hardly better than LRU:", gained)


def optimum(path, size, output):
    """Compares with the best of all choices; gives what it gains over LRU."""
    requests = served(path, size, output=output == "on")
    first = max(request.n_blocks for request in requests)
    whole = sum(request.tokens[-1] % size == size - 1 for request in requests)
    gained = 0
    for blocks in range(first, first + 4):
        found = mrc(path, "--trace-block", 16, "--block-tokens", size, "--output-tokens", output,
                    "--sizes", blocks)
        point = found["sizes"][0]
        # In tokens, a prompt that is hit as a whole counts one less.
        tokens = best(requests, blocks) * size
        check(tokens - whole <= point["optimum_hit_tokens"] <= tokens, path, blocks, tokens, point)
        gained += point["optimum_hit_tokens"] - point["hit_tokens"]
    return gained


def sampled(path, *options):
    """LRU within three and a half standard errors; the others within three percent, where a sampled
    cache still has a few hundred blocks."""
    sizes = [point["blocks"] for point in mrc(path, "--only-lru", *options)["sizes"]]
    shown = ["--sizes", ",".join(map(str, sizes))]
    exact = mrc(path, *shown, *options)
    for rate in [0.2, 0.1, 0.02]:
        found = mrc(path, "--sample", rate, *shown, *options)
        check_equal(found["sample_rate"], rate, path)
        check(found["distinct_blocks"] < exact["distinct_blocks"] * rate * 1.2, path, rate)
        for point, right in zip(found["sizes"], exact["sizes"]):
            off, error = abs(point["hit_ratio"] - right["hit_ratio"]), point["hit_ratio_error"]
            check(off <= 3.5 * error, path, rate, point["blocks"], "off by", off, "error", error)
            check(error < 0.05, path, rate, point["blocks"], "error", error)
            for key in ["fifo_hit_ratio", "optimum_hit_ratio"]:
                off = abs(point[key] - right[key])
                check(off < 0.03 or point["blocks"] * rate < 500, path, rate, key, point["blocks"],
                      off)


def real(folder):
    for name, sizes, options in [
            ("sharegpt_llama31_300.jsonl", [700, 1024, 1999, 4096, 8191], []),
            ("azure_2023_conv.csv", [1000, 5000], ["--limit", 300]),
            ("mooncake_conversation.jsonl", [8000, 16384, 30001], ["--limit", 400])]:
        path = os.path.join(folder, name)
        same_as_replays(path, options, sizes)
        same_as_replays(path, [*options, "--block-tokens", 64], [size // 4 for size in sizes])


def main():
    mixed = os.path.join(SOURCE, "data", "mixed-small.jsonl")
    with directory() as folder:
        synthetic(folder)
        other_policies(folder)
    sampled(mixed)
    if not AUDITED:
        shown_sizes_agree(mixed, "--block-tokens", 128)
        same_as_replays(mixed, ["--block-tokens", 512], [170, 180, 256, 300, 512, 1000, 4000])
        shown_sizes_agree(mixed)
        shown_sizes_agree(mixed, "--output-tokens", "off")
        same_as_replays(mixed, [], [4946, 5000, 7777, 9999, 20011, 50000, 104444, 104445])
        if traces() is not None:
            real(traces())
    finish()


if __name__ == "__main__":
    main()
