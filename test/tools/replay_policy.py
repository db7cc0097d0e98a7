"""`kvpager replay --policy learned`: the cache hits what the simulation of `kvpager mrc` hits.

Both run the requests one after the other. The simulation keeps its blocks by itself, and shares only
the policy with the cache. Its groups have other names, so two of them may be taken for one in the
one and not in the other: hits may differ by a thousandth.
"""

import json
import os
import sys
import tempfile

from lib_kvpager import SOURCE, check, check_equal, finish, replay, replay_load, run

MIXED = os.path.join(SOURCE, "data", "mixed-small.jsonl")
SIZES = [4946, 8192]


def simulated():
    done = run("mrc", "--json", "--policy", "lru,learned", "--sizes", ",".join(map(str, SIZES)), MIXED)
    check_equal(done.returncode, 0, done.stderr)
    return json.loads(done.stdout)["sizes"]


def check_classes(learned):
    for c in learned["classes"]:
        check(any(c["seen"]) and all(n >= m for n, m in zip(c["seen"], c["used"])), c)
        check_equal([len(c[key]) for key in ("seen", "used", "density")], [17] * 3)
        check(min(c["density"]) > 0, c)


def check_learned(found):
    """What it learned in 4,946 blocks: `learned` of the figures."""
    learned = found["learned"]
    check_equal(sum(learned[reason + "_references"] for reason in ("cold", "guard", "gate")),
                found["fallback_references"])
    check(learned["cold_references"] >= 2 * 4946, learned["cold_references"])
    check_equal(learned["fallback"], "none")
    check_equal(learned["entry_blocks"], 32)  # of 16 tokens
    check_equal(learned["credit_limit_blocks"], 4946 // 4 + 2**20 // 16)
    check_equal(learned["credit_floor_blocks"], -(4946 // 8 + 2**20 // 16))
    gained = found["learned_hits"] - found["lru_hits"]
    check_equal(learned["credit_blocks"], gained + found["lru_hits"] / 200)
    check_equal(learned["ages"][::4], [0, 0.1875, 0.75, 3, 12])
    seen = [sum(c["seen"][age] for c in learned["classes"]) for age in range(17)]
    used = sum(sum(c["used"]) for c in learned["classes"])
    check(0 < len(learned["classes"]) < 64, len(learned["classes"]))
    check(all(a >= b for a, b in zip(seen, seen[1:])), "content becomes more with age", seen)
    check_equal(used, learned["returned"])  # too few to be halved
    check(0 < learned["returned_late"] < learned["returned"], learned["returned_late"])
    check_classes(learned)


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
        if point["blocks"] == 4946:
            check_learned(found)


def check_load():
    """Under load, with preemptions and a host: the same figures are there."""
    found = replay_load(MIXED, "--blocks", 6000, "--policy", "learned", "--host-blocks", 3000)
    check_equal(found["policy"], "learned")
    check(found["references"] > 0, found)
    check_equal(sum(found["learned"][reason + "_references"] for reason in ("cold", "guard", "gate")),
                found["fallback_references"])


def several(*options):
    done = run("replay", "--json", "--policy", "learned,lru", *options, MIXED)
    check_equal(done.returncode, 0, done.stderr)
    return json.loads(done.stdout)["policies"]


def check_list():
    """Each policy of a list is replayed as if it were alone; LRU is what the others are beside."""
    learned, lru = several("--sequential", "--blocks", 4946)
    for row in (learned, lru):
        alone = replay(MIXED, "--blocks", 4946, "--policy", row["policy"])
        for key in ("hit_tokens", "evictions", "block_hits"):
            check_equal(row["report"][key], alone[key], row["policy"], key)
        check_equal(row["hit_tokens"], alone["hit_tokens"])
    check_equal([learned["policy"], lru["policy"]], ["learned", "lru"])
    check_equal(learned["gained_tokens"], learned["hit_tokens"] - lru["hit_tokens"])
    check(learned["gained_tokens"] > 0, learned["gained_tokens"])
    check_equal(lru["gained_tokens"], 0)
    learned, lru = several("--blocks", 6000, "--no-measure", "--limit", 300)
    check_equal(learned["report"]["policy"], "learned")
    check("policy" not in lru["report"], lru["report"])
    done = run("replay", "--sequential", "--policy", "lru,learned", "--blocks", 4946, MIXED)
    text = done.stdout.decode()
    rows = [line.split() for line in text.splitlines() if line.split()[:1] in (["lru"], ["learned"])]
    check_equal([row[0] for row in rows], ["lru", "learned"], text)
    check_equal(rows[1][4][0], "+", text)
    check(all(len(line) <= 80 for line in text.splitlines()[1:]), text)


def check_few():
    """What there is time for where the whole cache is audited after each call."""
    few = ["--blocks", 600, "--limit", 60]
    learned, lru = several("--sequential", *few)
    for row in (learned, lru):
        alone = replay(MIXED, *few, "--policy", row["policy"])
        check_equal(row["hit_tokens"], alone["hit_tokens"], row["policy"])
    check_equal(learned["report"]["policy"], "learned")
    check("policy" not in lru["report"], lru["report"])
    check_classes(learned["report"]["learned"])
    check(any(any(c["used"]) for c in learned["report"]["learned"]["classes"]), learned)


def check_same_victims():
    """Two replays make the same calls with the same results, and leave the same cache."""
    with tempfile.TemporaryDirectory() as work:
        files = []
        for name in ("a", "b"):
            log, snap = os.path.join(work, name + ".kvplog"), os.path.join(work, name + ".kvsnap")
            done = run("replay", "--sequential", "--policy", "learned", "--blocks", 4946, "--limit", 500,
                       "--record", log, "--snapshot-out", snap, MIXED)
            check_equal(done.returncode, 0, done.stderr)
            with open(log, "rb") as one, open(snap, "rb") as other:
                files.append((one.read(), other.read()))
        check(files[0] == files[1], [len(file) for pair in files for file in pair])
        check(len(files[0][0]) > 100_000, len(files[0][0]))


def check_snapshots():
    """Stopped after some requests and gone on with, it hits what it hits without a stop."""
    whole = replay(MIXED, "--blocks", 4946, "--policy", "learned")
    with tempfile.TemporaryDirectory() as work:
        half = os.path.join(work, "half.kvsnap")
        first = replay(MIXED, "--blocks", 4946, "--policy", "learned", "--limit", 600,
                       "--snapshot-out", half)
        rest = replay(MIXED, "--blocks", 4946, "--policy", "learned", "--skip", 600,
                      "--snapshot-in", half)
    for key in ("hit_tokens", "evictions", "references", "fallback_references"):
        check_equal(first[key] + rest[key], whole[key], key)


def check_refusals():
    for wrong in ("fifo", "", "lru,", "lru,lru", "learned,lru,learned", "LRU"):
        done = run("replay", "--policy", wrong, MIXED)
        check_equal(done.returncode, 2)
        check(f"--policy is '{wrong}', expected lru, learned, or both".encode() in done.stderr,
              done.stderr)
    done = run("replay", "--policy", "lru,learned", "--record", "x", MIXED)
    check_equal(done.returncode, 2)
    check(b"--record is for one --policy" in done.stderr, done.stderr)
    done = run("replay", "--policy", "learned", "--model", "gpt-oss-20b", MIXED)
    check(done.returncode != 0 and b"layers keep all tokens" in done.stderr, done.stderr)


def check_all():
    check_hits()
    check_load()
    check_list()
    check_same_victims()
    check_snapshots()
    check_refusals()


def main():
    check_few()
    if sys.argv[1:] != ["few"]:  # of a mutant
        check_all()
    finish()


main()
