"""`kvpager replay --store redis://...`: replays on caches of their own and one cluster share what they
computed. One of the three servers is killed while two run, and both finish with every byte checked.
"""

import json
import os
import re
import subprocess
import threading

from lib_kvpager import KVPAGER, SOURCE, check, check_equal, directory, finish, replay, run, skip
from lib_redis import Cluster, Server, program

TRACE = os.path.join(SOURCE, "data", "mixed-small.jsonl")
REQUESTS, HALF, FEW = 40, 20, 10
OPTIONS = ["--output-tokens", "off", "--blocks", 3000, "--host-blocks", 2000,
           "--kv-bytes-per-token", 64, "--record-blocks", 4, "--store-writes", "through"]


def healthy(found):
    store = found["store"]
    check_equal((store["wrong_blocks"], store["unfinished"], sum(store["bad"].values())), (0, 0, 0),
                store)
    check(store["checked_blocks"] * 16 >= store["hit_tokens"], "some KV was not looked at", store)


def stored(url, *options):
    """What a replay says of its store."""
    found = replay(TRACE, *OPTIONS, "--store", url, *options)
    healthy(found)
    return found["store"]


class Piped:
    """A replay whose operation log comes through a pipe: it stands still where the reader stops."""

    n = 0

    def __init__(self, folder, url, *options):
        Piped.n += 1
        path = os.path.join(folder, f"log-{Piped.n}")
        os.mkfifo(path)
        words = ["replay", "--json", "--sequential", *OPTIONS, "--store", url, "--record", path,
                 *options, TRACE]
        self.process = subprocess.Popen([KVPAGER, *map(str, words)], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE)
        self.log = open(path, "rb", buffering=0)
        self.rest = threading.Thread(target=self.drain)

    def read(self, n_bytes):
        while n_bytes > 0:
            n_bytes -= len(self.log.read(min(n_bytes, 4096)) or b"?" * n_bytes)

    def drain(self):
        while self.log.read(65536):
            pass
        self.log.close()

    def finish(self):
        self.rest.join()
        out, error = self.process.communicate()
        if not check_equal(self.process.returncode, 0, error):
            finish()
        found = json.loads(out)
        healthy(found)
        return found["store"]


def the_middle(folder):
    """The first HALF requests alone: bytes of the operation log, and tokens from the store, which are
    what device and host no longer have. Of FEW requests they have all."""
    path = os.path.join(folder, "half.kvplog")
    alone = stored("memory:?size=1GiB", "--limit", HALF, "--record", path)
    check_equal(stored("memory:?size=1GiB", "--limit", FEW)["hit_tokens"], 0, "device and host")
    return os.path.getsize(path), alone["hit_tokens"]


class Dying:
    """A replay whose only server is killed in the middle."""

    def __init__(self, folder, middle, *words):
        server = Server()
        log = os.path.join(folder, f"dying-{len(words)}")
        os.mkfifo(log)
        options = ["replay", "--sequential", *OPTIONS, "--limit", REQUESTS, "--record", log,
                   "--store", server.url + "?timeout=1s", *words, TRACE]
        process = subprocess.Popen([KVPAGER, *map(str, options)], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        with open(log, "rb", buffering=0) as file:
            while middle > 0:
                middle -= len(file.read(min(middle, 4096)) or b"?" * middle)
            server.kill()
            while file.read(65536):
                pass
        self.out, self.error = process.communicate()
        check_equal(process.returncode, 0, self.error)


def dies(folder, middle):
    """What it did not write, and why, is in the report, in both forms."""
    store = json.loads(Dying(folder, middle, "--json").out)["store"]
    # After 16 in a row the server is left alone for a second of the replay.
    check(store["put_failed"] >= 16 and store["failed"] > 0, store)
    check("away: Connection" in (store["stores"][0]["trouble"] or ""), store["stores"])
    text = Dying(folder, middle).out.decode()
    rows = {line[:16].strip(): line[16:].split() for line in text.splitlines() if line[:2] == "  "}
    for name in ("not written", "failed"):
        check(int(rows.get(name, ["0"])[0].replace(",", "")) > 0, name, text)
    check("away: Connection" in " ".join(rows.get("trouble", [])), text)
    check(re.search(r"\n  puts +[\d,]+  p50 [\d.]+ (us|ms|s), p90 ", text), text)


def main():
    if b"built without stores" in run("store").stderr:
        skip("no stores in this build")
    program()
    if b"needs libkvpager_redis" in run("store", "info", "redis://127.0.0.1:1").stderr:
        skip("no stores on Redis in this build")
    with directory() as folder:
        middle, alone = the_middle(folder)
        dies(folder, middle)
        cluster = Cluster(folder)
        try:
            url = cluster.url + "?timeout=1s"
            one = Piped(folder, url, "--limit", REQUESTS)
            one.read(middle)
            before = stored(url, "--limit", HALF)
            check(before["hit_tokens"] > 4 * alone, "what the other wrote is not hit", alone, before)
            sizes = [int(server.ask("DBSIZE")) for server in cluster.servers]
            check(min(sizes) > 20, "records are not spread:", sizes)
            two = Piped(folder, url, "--limit", REQUESTS)
            two.read(middle)
            check_equal((one.process.poll(), two.process.poll()), (None, None), "not in the middle")
            cluster.servers[2].kill()
            for each in one, two:
                each.rest.start()
            found = one.finish(), two.finish()
            for store in found:
                check(store["failed"] + store["away"] > 0, "the kill was not noticed", store)
            after = stored(url, "--limit", FEW)
            check(after["hit_tokens"] > 0, "nothing is hit any more", after)
            print("tokens from the store:", alone, before["hit_tokens"], after["hit_tokens"])
        finally:
            cluster.stop()
    finish()


if __name__ == "__main__":
    main()
