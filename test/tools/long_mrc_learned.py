"""The learned policy of `kvpager mrc` on traces of real shape: what docs/POLICY.md says that it gains,
and the limit of what it may lose. Figures are exact, and the same each time."""

import json
import os
import tempfile

from lib_kvpager import SOURCE, check, check_equal, finish, run, traces

PROFILES = ("chat", "agent", "rag", "users", "mixed")


def points(path, block_tokens, sizes, *options):
    done = run("mrc", "--json", "--policy", "lru,optimum,learned", "--block-tokens", block_tokens,
               "--sizes", ",".join(map(str, sizes)), *options, path)
    check_equal(done.returncode, 0, path, done.stderr)
    return json.loads(done.stdout)["sizes"]


def check_limit(path, block_tokens, point):
    """At most a hundredth of LRU's hits less, and C/8 blocks and 2^20 tokens."""
    allowed = point["blocks"] / 8 * block_tokens + 2**20
    check(point["learned_hit_tokens"] >= 0.99 * point["hit_tokens"] - allowed, path, point)
    check(point["learned_hit_tokens"] <= point["optimum_hit_tokens"], path, point)


def sizes_of(path, block_tokens, *options):
    """Twelve, from the smallest size to one that holds all."""
    done = run("mrc", "--json", "--only-lru", "--block-tokens", block_tokens, *options, path)
    found = json.loads(done.stdout)
    first, last = found["min_blocks"], found["enough_blocks"]
    return sorted({int(first * (last / first) ** (i / 11)) for i in range(12)})


def check_limits(path, block_tokens, *options):
    for point in points(path, block_tokens, sizes_of(path, block_tokens, *options), *options):
        check_limit(path, block_tokens, point)


def check_share(path, block_tokens, *options):
    """At least 99 hundredths of LRU's hits, at every size: no debt is allowed here."""
    for point in points(path, block_tokens, sizes_of(path, block_tokens, *options), *options):
        check(point["learned_hit_tokens"] >= 0.99 * point["hit_tokens"], path, point)


def check_profiles():
    """Traffic of every kind that `kvpager gen` makes, with and without output in the cache."""
    with tempfile.TemporaryDirectory() as work:
        for profile in PROFILES:
            for seed in (1, 2):
                path = os.path.join(work, f"{profile}-{seed}.jsonl")
                done = run("gen", "--profile", profile, "--requests", 3000, "--seed", seed, "-o", path)
                check_equal(done.returncode, 0, done.stderr)
                check_share(path, 16)
                check_share(path, 64, "--output-tokens", "off")


def check_recovery(path, block_tokens, expected):
    """expected: {blocks: the least share of (optimum - LRU) that is gained}."""
    for point in points(path, block_tokens, expected):
        check_limit(path, block_tokens, point)
        gained = point["learned_hit_tokens"] - point["hit_tokens"]
        most = point["optimum_hit_tokens"] - point["hit_tokens"]
        check(gained >= expected[point["blocks"]] * most, path, point, gained / most)


def main():
    mixed = os.path.join(SOURCE, "data", "mixed-small.jsonl")
    check_equal(points(mixed, 16, [5000, 9000]), points(mixed, 16, [5000, 9000]))
    check_recovery(mixed, 16, {4946: 0.24, 8192: 0.27, 16384: 0})
    check_share(mixed, 16)
    check_profiles()
    check_limits(mixed, 64, "--output-tokens", "off")
    if traces() is not None:
        conversations = os.path.join(traces(), "mooncake_conversation.jsonl")
        synthetic = os.path.join(traces(), "mooncake_synthetic.jsonl")
        check_recovery(conversations, 512, {1000: 0.23, 3000: 0.31, 10000: 0.13, 30000: 0.08})
        check_recovery(conversations, 16, {32000: 0.23, 96000: 0.31, 320000: 0.11})
        check_recovery(synthetic, 512, {1000: 0.06, 3000: 0.14, 10000: 0.26})
        check_recovery(synthetic, 16, {32000: 0.05, 96000: 0.13, 320000: 0.29})
        for path in (conversations, synthetic):
            check_limits(path, 512, "--output-tokens", "off")
    finish()


if __name__ == "__main__":
    main()
