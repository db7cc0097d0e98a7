"""`kvpager replay --policy learned`: the cache hits what the simulation of `kvpager mrc` hits.

Both run the requests one after the other. The simulation keeps its blocks by itself, and shares only
the policy with the cache. Its groups have other names, so two of them may be taken for one in the
one and not in the other: hits may differ by a thousandth.
"""

import json
import os

from lib_kvpager import SOURCE, check, check_equal, finish, replay, replay_load, run

MIXED = os.path.join(SOURCE, "data", "mixed-small.jsonl")
SIZES = [4946, 8192]


def simulated():
    done = run("mrc", "--json", "--policy", "lru,learned", "--sizes", ",".join(map(str, SIZES)), MIXED)
    check_equal(done.returncode, 0, done.stderr)
    return json.loads(done.stdout)["sizes"]


def check_hits():
    for point in simulated():
        found = replay(MIXED, "--blocks", point["blocks"], "--policy", "learned")
        lru = replay(MIXED, "--blocks", point["blocks"], "--policy", "lru")
        check_equal(lru["hit_tokens"], point["hit_tokens"], "LRU", point)
        check("policy" not in lru, lru)
        check(abs(found["hit_tokens"] - point["learned_hit_tokens"]) * 1000
              <= point["learned_hit_tokens"], found["hit_tokens"], point)
        check(found["hit_tokens"] > lru["hit_tokens"], found, lru)
        check_equal(found["policy"], "learned")
        check(0 < found["fallback_references"] < found["references"], found)
        # The policy's own account of LRU is of whole groups, and near to what LRU hits.
        check(abs(found["lru_hits"] * 16 - lru["hit_tokens"]) < 0.06 * lru["hit_tokens"],
              found["lru_hits"] * 16, lru["hit_tokens"])


def check_load():
    """Under load, with preemptions and a host: the same figures are there."""
    found = replay_load(MIXED, "--blocks", 6000, "--policy", "learned", "--host-blocks", 3000)
    check_equal(found["policy"], "learned")
    check(found["references"] > 0, found)


def check_refusals():
    done = run("replay", "--policy", "fifo", MIXED)
    check_equal(done.returncode, 2)
    check(b"--policy is 'fifo', expected one of: lru, learned" in done.stderr, done.stderr)
    done = run("replay", "--policy", "learned", "--model", "gpt-oss-20b", MIXED)
    check(done.returncode != 0 and b"layers keep all tokens" in done.stderr, done.stderr)


def main():
    check_hits()
    check_load()
    check_refusals()
    finish()


main()
