"""`kvpager store` on real servers: one, and a cluster. What replays have written is listed, verified
and evicted; damage, foreign names and a missing right are said."""

import json
import os

from lib_kvpager import SOURCE, check, check_equal, directory, finish, replay, run, skip
from lib_redis import Cluster, Server, program

TRACE = os.path.join(SOURCE, "data", "mixed-small.jsonl")
OPTIONS = ["--output-tokens", "off", "--blocks", 3000, "--host-blocks", 2000, "--limit", 10,
           "--kv-bytes-per-token", 64, "--record-blocks", 4, "--store-writes", "through"]
HEADER = 4096


def fill(url):
    return replay(TRACE, *OPTIONS, "--store", url)["store"]["stored"]


def store(*words, status=0):
    done = run("store", *words)
    check_equal(done.returncode, status, words, done.stdout, done.stderr)
    return done


def ask(*words, status=0):
    out = store(*words, "--json", status=status).stdout
    return json.loads(out) if out else None


def keys_of(server):
    """All names, by a script that gives them as one text."""
    text = server.ask("EVAL", "return table.concat(redis.call('keys', 'kvp1:*'), ' ')", 0)
    return text.decode().split()


def one_server(server):
    stored = fill(server.url)
    check(stored > 100, "few records:", stored)
    server.ask("SET", "other", "not ours")
    info = ask("info", server.url)
    check_equal((info["records"], len(info["directories"])), (stored, 1))
    check_equal(info["directories"][0]["path"], server.url)
    check(b"answers" in store("info", server.url).stdout, "no state")
    gauges = store("info", server.url, "--prometheus").stdout
    check(b"\nkvp_store_records %d\n" % stored in gauges, gauges)
    spaces = ask("list", server.url)["namespaces"]
    check_equal([(s["records"], s["bytes"]) for s in spaces], [(stored, stored * 4 * 16 * 64)])
    records = ask("list", server.url, "--records")["records"]
    check_equal({r["found"] for r in records}, {"good"})
    check_equal(len({r["digest"] for r in records}), stored, "digests")
    check_equal(ask("verify", server.url)["good"], stored)
    return stored, spaces[0]["namespace"]


def damaged(server, stored):
    a, b, c, d, e, f = sorted(keys_of(server))[:6]
    server.ask("SETRANGE", a, HEADER + 7, "damage")
    server.ask("SETRANGE", b, 100, "damage")
    server.ask("APPEND", c, "more")
    server.ask("SET", d, "short")
    server.ask("RENAME", e, f)
    found = ask("verify", server.url, status=1)
    counts = {k: v for k, v in found.items() if k != "bad" and v}
    check_equal(counts, {"good": stored - 6, "payload": 1, "damaged": 2, "length": 1, "identity": 1})
    check_equal(len(found["bad"]), 5)


def evicted(server, space):
    before = len(keys_of(server))
    check_equal(ask("evict", server.url, "--older-than", "7d")["records"], 0)
    check_equal(ask("evict", server.url, "--namespace", "other")["records"], 0)
    would = ask("evict", server.url, "--namespace", space, "--dry-run")["records"]
    check_equal(len(keys_of(server)), before, "a dry run")
    check_equal(ask("evict", server.url, "--namespace", space)["records"], would)
    check_equal(len(keys_of(server)), before - would)
    check(would >= before - 1, would, before)  # not the one that is too short
    check_equal(server.ask("GET", "other"), b"not ours")


def measured(server):
    before = sorted(keys_of(server))
    for url in (server.url, server.url + "?connections=2"):
        figures = ask("bench", "--model", "llama-3.2-1b", "--bytes", "2MiB", "--rounds", 2, url)
        check(figures["read_bytes_per_second"]["median"] > 0, figures)
        check(figures["record_memory_bytes"] is None, "it may be another's record")
        check_equal(sorted(keys_of(server)), before, "what it wrote is gone, and nothing else")


def large(server):
    """Records that are hashes: the same, and what each takes of the server's memory."""
    server.ask("FLUSHALL")
    options = [2048 if word == 64 else word for word in OPTIONS]
    stored = replay(TRACE, *options, "--limit", 3, "--store", server.url)["store"]["stored"]
    names = sorted(keys_of(server))
    check_equal(len(names), stored)
    check(all(name.startswith("kvp1:h:{") for name in names), names[0])
    takes = ask("info", server.url)["directories"][0]["slot_bytes"]
    check(128 * 1024 < takes < 1.06 * 128 * 1024, takes)
    check(b" of memory each" in store("info", server.url).stdout, "no memory of a record")
    for name in names[:2]:
        server.ask("HDEL", name, "2" if name == names[0] else "0")
    found = ask("verify", server.url, status=1)
    check_equal((found["good"], found["length"]), (stored - 2, 1), found)
    spaces = ask("list", server.url)["namespaces"]
    records = ask("list", server.url, "--records")["records"]
    check_equal(sum(r["found"] == "good" for r in records), stored - 2)
    space = next(s["namespace"] for s in spaces if s["records"] > 1)
    check_equal(ask("evict", server.url, "--namespace", space)["records"], stored - 1)
    check_equal(len(keys_of(server)), 1)  # the one without a header
    server.ask("FLUSHALL")
    figures = ask("bench", "--model", "llama-3.1-8b", "--bytes", "2MiB", "--rounds", 2, server.url)
    check(2**21 < figures["record_memory_bytes"] < 1.01 * 2**21, figures)


def passwords(server, url):
    """No output has one: replay shows the URL, and so does what is wrong with one."""
    for kind in ["--json"], []:
        done = run("replay", *kind, "--sequential", *OPTIONS, "--store", url, TRACE)
        check_equal(done.returncode, 0, done.stderr)
        shown = f"redis://op:***@127.0.0.1:{server.port}".encode()
        check(shown in done.stdout and b"se%3Acret" not in done.stdout, done.stdout)
    for wrong in url.replace("//", ""), url.replace("redis://", "redi://"), url + "?tags", \
            url + "?secret=se%3Acret":
        for words in ("replay", "--sequential", *OPTIONS, "--store", wrong, TRACE), \
                ("store", "bench", "--model", "llama-3.2-1b", wrong), ("store", "info", wrong):
            done = run(*words)
            check(b"se%3Acret" not in done.stdout + done.stderr, words, done.stderr)
    done = run("store", "list", url.replace("redis", "rediss"))
    check(b"se%3Acret" not in done.stdout + done.stderr, done.stderr)


def secrets(server, folder):
    """secret=file:PATH, of a replay, a measurement and a look."""
    server.ask("FLUSHALL")
    path = os.path.join(folder, "secret")
    with open(path, "w", encoding="utf-8") as file:
        file.write("sixteen bytes, or more\n")
    url = f"{server.url}?secret=file:{path}"
    done = run("replay", "--sequential", *OPTIONS, "--store", url, TRACE)
    check(done.returncode == 1 and b"chmod 600" in done.stderr, done.returncode, done.stderr)
    os.chmod(path, 0o600)
    stored = fill(url)
    check_equal(ask("verify", url)["good"], stored)
    check_equal(ask("verify", server.url, "--secret", path)["good"], stored)
    figures = ask("bench", "--model", "llama-3.2-1b", "--bytes", "2MiB", "--rounds", 2, url)
    check(figures["read_bytes_per_second"]["median"] > 0, figures)
    with open(path, "w", encoding="utf-8") as file:
        file.write("another secret: wrong\n")
    check_equal(ask("verify", url, status=1)["code"], stored)


def operators():
    """Theirs are the rights that docs/STORES.md names, and no more."""
    server = Server("--user", "op", "on", ">pw", "~kvp1:*", "+scan", "+get", "+getrange")
    url = f"redis://op:pw@127.0.0.1:{server.port}"
    try:
        stored = fill(server.url)
        check_equal(ask("info", url)["records"], stored)
        check_equal(ask("verify", url)["good"], stored)
        space = ask("list", url)["namespaces"][0]["namespace"]
        wrong = store("evict", url, "--namespace", space, status=1).stderr
        check(b"NOPERM" in wrong and b"unlink" in wrong, wrong)
        check_equal(len(keys_of(server)), stored)
        server.ask("ACL", "SETUSER", "op", "+unlink")
        check_equal(ask("evict", url, "--namespace", space)["records"], stored)
        server.ask("ACL", "SETUSER", "op", "-scan")
        wrong = store("info", url, status=1).stderr
        check(b"NOPERM" in wrong and b"scan" in wrong, wrong)
    finally:
        server.kill()


def rights():
    server = Server("--user", "default", "off", "--user", "op", "on", ">se:cret", "~kvp1:*", "+info",
                    "+scan", "+get", "+getrange", "+set", "+pexpire", "+exists", "+unlink")
    url = f"redis://op:se%3Acret@127.0.0.1:{server.port}"
    try:
        stored = fill(url)
        passwords(server, url)
        check_equal(ask("verify", url)["good"], stored)
        wrong = store("info", f"redis://op:wrong@127.0.0.1:{server.port}", status=1).stderr
        check(b"WRONGPASS" in wrong and b"op:wrong" not in wrong, wrong)
    finally:
        server.kill()
    operators()
    server = Server("--user", "default", "on", "nopass", "~*", "+@all", "-getrange")
    try:
        fill(server.url)
        wrong = store("list", server.url, status=1).stderr
        check(b"NOPERM" in wrong and b"getrange" in wrong, wrong)
        check(ask("info", server.url)["records"] > 0, "info needs no getrange")
    finally:
        server.kill()


def cluster(folder):
    servers = Cluster(folder)
    try:
        stored = fill(servers.url)
        info = ask("info", servers.url)
        check_equal((info["records"], len(info["directories"])), (stored, 3))
        check_equal(ask("verify", servers.url)["good"], stored)
        servers.servers[2].kill()
        gone = store("info", servers.url, status=1)
        check(f":{servers.servers[2].port}".encode() in gone.stderr, gone.stderr)
    finally:
        servers.stop()


def main():
    if b"built without stores" in run("store").stderr:
        skip("no stores in this build")
    program()
    away = run("store", "info", "redis://127.0.0.1:1")
    if b"needs libkvpager_redis" in away.stderr:
        skip("no stores on Redis in this build")
    check_equal(away.returncode, 1)
    check(b"127.0.0.1:1: Connection refused" in away.stderr, away.stderr)
    server = Server()
    try:
        stored, space = one_server(server)
        damaged(server, stored)
        measured(server)
        evicted(server, space)
        with directory() as folder:
            secrets(server, folder)
        large(server)
    finally:
        server.kill()
    rights()
    with directory() as folder:
        cluster(folder)
    finish()


if __name__ == "__main__":
    main()
