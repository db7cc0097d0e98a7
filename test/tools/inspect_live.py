"""kvpager inspect: what it says of the memory of a cache that another process works on."""

import json
import os
import subprocess
import tempfile

from lib_kvpager import check, check_equal, finish, run, skip

OWNER = os.path.join(os.environ.get("KVP_BUILD", "."), "test", "test_inspect")
HOST, GROUPS, STATES = 3, 4, 9


class Owner:
    """A process with a cache in a file; it works when it is told to."""

    def __init__(self, path, kind):
        self.process = subprocess.Popen([OWNER, "--serve", path, str(kind)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)

    def say(self, word):
        self.process.stdin.write(word)
        self.process.stdin.flush()

    def work(self):
        self.say(b"w")
        check_equal(self.process.stdout.read(1), b"w")

    def leave(self):
        self.process.stdin.close()
        check_equal(self.process.wait(), 0)


def inspect(path, status=0):
    done = run("inspect", "--json", path)
    check_equal(done.returncode, status, "status", done.stderr)
    return json.loads(done.stdout)


def check_sums(got):
    """Tiers add up, and blocks that can be hit are some of those that are not free."""
    sizes = {"device": got["n_blocks"] - 1, "host": got["host_blocks"] - 1}
    used = {}
    for tier in got["tiers"]:
        check_equal(tier["held"] + tier["cached"] + tier["parked"] + tier["free"],
                    sizes[tier["tier"]])
        used[tier["tier"]] = tier["held"] + tier["cached"] + tier["parked"]
    for tier, n in used.items():
        listed = sum(c["blocks"] for c in got["cached"] if c["tier"] == tier)
        check(0 < listed <= n, got["cached"])
    check_equal(sum(c["blocks"] for c in got["cached"]),
                sum(s["blocks"] for s in got["namespaces"]))


def check_quotas(path, got, kind):
    """Quotas as the owner set them. No namespace is closed, so that every block counts for one."""
    if kind != HOST:
        check("quotas" not in got)
        return
    rows = {(q["namespace"], q["tier"]): q for q in got["quotas"]}
    check_equal({key: q["quota"] for key, q in rows.items()},
                {("", "device"): None, ("", "host"): None, ("a", "device"): 9, ("a", "host"): None,
                 ("ab", "device"): None, ("ab", "host"): 0})
    for tier in got["tiers"]:
        mine = [q for q in rows.values() if q["tier"] == tier["tier"]]
        check_equal(sum(q["blocks"] for q in mine), tier["held"] + tier["cached"] + tier["parked"])
        check_equal(sum(q["cached"] for q in mine), tier["cached"])
    check(all(rows[name, "device"]["blocks"] > 0 for name in ("", "a", "ab")), rows)
    lines = run("inspect", path).stdout.decode().split("\n")
    table = lines[lines.index("tier            quota       blocks       cached  "
                              "quotas of namespaces") + 1:][:6]
    for line, (name, tier) in zip(table, sorted(rows)):
        row = rows[name, tier]
        quota = "none" if row["quota"] is None else str(row["quota"])
        check_equal(line.split(), [tier, quota, str(row["blocks"]), str(row["cached"]),
                                   f"'{name}'"])


def check_at_rest(path, kind, groups):
    owner = Owner(path, kind)
    owner.work()
    got = inspect(path)
    check_equal((got["kind"], got["state"], got["inside"], got["calls_since"]),
                ("arena", "whole", False, 0))
    check_equal((got["n_blocks"], got["host_blocks"], len(got["groups"])), (61, 26, groups))
    check_equal([s["name"] for s in got["namespaces"]], ["", "a", "ab"])
    check_equal(len(got["sequences"]), got["open_seqs"])
    check(all(s["computed"] <= s["tokens"] and s["tier"] in ("device", "host")
              for s in got["sequences"]))
    check_sums(got)
    check_quotas(path, got, kind)
    tokens = [p["tokens"] for p in got["prefixes"]]
    check(len(tokens) >= 4 and tokens == sorted(tokens, reverse=True), tokens)
    check_equal(inspect(path), got)  # looking changes nothing
    owner.work()
    later = inspect(path)
    check(later["calls"] > got["calls"] and later["opens"] > got["opens"])
    check_sums(later)
    text = run("inspect", "--top", 1, path)
    check_equal(text.returncode, 0)
    check(b"\nwhole\n" in text.stdout and b"61 of 4 tokens" in text.stdout, text.stdout)
    check_equal(text.stdout.count(later["prefixes"][0]["hash"].encode()), 1)
    check_equal(text.stdout.count(later["prefixes"][1]["hash"].encode()), 0)
    return owner


def check_at_work(path, owner):
    """While it works: an answer each time, and nothing is called damaged."""
    owner.say(b"l")
    for _ in range(8):
        check(inspect(path)["state"] in ("whole", "moving"))
    owner.process.kill()
    owner.process.wait()
    last = inspect(path)
    check(last["state"] == "moving" if last["inside"] else last["state"] == "whole", last)


def check_damaged(path, owner):
    """The file's bytes are the owner's memory."""
    good = inspect(path)
    with open(path, "rb") as file:
        data = bytearray(file.read())
    for begin in range(8192, len(data), 4):  # behind the cache itself
        data[begin:begin + 4] = b"\xff\xff\xff\x7f"
    bad = path + ".bad"
    with open(bad, "wb") as file:
        file.write(data)
    got = inspect(bad, 1)
    check_equal(got["state"], "damaged")
    check(got["violation"][0].isupper() and got["calls"] == good["calls"], got)
    text = run("inspect", bad)
    check(b"\ndamaged: " in text.stdout and b"damaged" in text.stderr, text)
    for data_of, message in ((data[:5000], b"damaged within"), (data[:8], b"damaged within"),
                             (data[:8] + b"\1" + data[9:], b"another version")):
        with open(bad, "wb") as file:
            file.write(data_of)
        done = run("inspect", bad)
        check_equal(done.returncode, 1)
        check(message in done.stderr and not done.stdout, done)
    owner.leave()  # its cache is destroyed
    done = run("inspect", path)
    check_equal(done.returncode, 1)
    check(b"nor memory with a cache" in done.stderr and not done.stdout, done)


def check_slots(path):
    """Quotas of slots of recurrent state, beside those of blocks."""
    owner = Owner(path, STATES)
    owner.work()
    got = inspect(path)
    rows = {(q["namespace"], q["tier"]): q for q in got["quotas"]}
    check_equal({key: q["quota"] for key, q in rows.items()},
                {("", "device"): None, ("", "slots"): None, ("a", "device"): 9, ("a", "slots"): None,
                 ("ab", "device"): None, ("ab", "slots"): 0})
    check(all(q["cached"] <= q["blocks"] for q in rows.values()), rows)
    check(0 <= got["unreachable_blocks"] <= got["tiers"][0]["cached"], got)
    check(b"of the cached blocks, without a checkpoint" in run("inspect", path).stdout)
    check(sum(rows[name, "slots"]["cached"] for name in ("", "a", "ab")) > 0, rows)
    lines = run("inspect", path).stdout.decode().split("\n")
    slots = [line.split() for line in lines if line.startswith("slots ")]
    check_equal(slots, [["slots", "none" if name != "ab" else "0", str(rows[name, "slots"]["blocks"]),
                         str(rows[name, "slots"]["cached"]), f"'{name}'"]
                        for name in ("", "a", "ab")])
    owner.leave()


def main():
    if not os.access(OWNER, os.X_OK):
        skip(f"{OWNER}, which has a cache in a file, is not built")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "cache")
        check_at_work(path, check_at_rest(path, GROUPS, 2))
        check_damaged(path, check_at_rest(path, HOST, 1))
        check_slots(path)
    finish()


main()
