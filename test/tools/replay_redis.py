"""`kvpager replay --store redis://...`: two replays on two caches and one cluster share what they
computed; one of the three servers is killed in the middle, and both finish with every byte checked.
"""

import json
import os
import subprocess

from lib_kvpager import KVPAGER, SOURCE, check, check_equal, directory, finish, replay, run, skip
from lib_redis import Cluster, program

TRACE = os.path.join(SOURCE, "data", "mixed-small.jsonl")
REQUESTS, HALF = 40, 20
OPTIONS = ["--output-tokens", "off", "--blocks", 3000, "--host-blocks", 2000,
           "--kv-bytes-per-token", 64, "--record-blocks", 4, "--store-writes", "through"]


def healthy(found):
    store = found["store"]
    check_equal((store["wrong_blocks"], store["unfinished"], sum(store["bad"].values())), (0, 0, 0),
                store)
    check(store["checked_blocks"] * 16 >= store["hit_tokens"], "some KV was not looked at", store)


def stored(url, *options):
    found = replay(TRACE, *OPTIONS, "--store", url, *options)
    healthy(found)
    return found


class Piped:
    """A replay whose operation log comes through a pipe: it stands still where the reader stops."""

    def __init__(self, folder, url, *options):
        path = os.path.join(folder, "log")
        os.mkfifo(path)
        words = ["replay", "--json", "--sequential", *OPTIONS, "--store", url, "--record", path,
                 *options, TRACE]
        self.process = subprocess.Popen([KVPAGER, *map(str, words)], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE)
        self.log = open(path, "rb", buffering=0)

    def read(self, n_bytes):
        while n_bytes > 0:
            n_bytes -= len(self.log.read(min(n_bytes, 4096)) or b"?" * n_bytes)

    def finish(self):
        while self.log.read(65536):
            pass
        self.log.close()
        out, error = self.process.communicate()
        if check_equal(self.process.returncode, 0, error):
            healthy(json.loads(out))
            return json.loads(out)
        return {"hit_tokens": 0, "store": {}}


def main():
    if b"built without stores" in run("store").stderr:
        skip("no stores in this build")
    program()
    if b"needs libkvpager_redis" in run("store", "info", "redis://127.0.0.1:1").stderr:
        skip("no stores on Redis in this build")
    with directory() as folder:
        path = os.path.join(folder, "half.kvplog")
        memory = "memory:?size=1GiB"
        alone = stored(memory, "--limit", REQUESTS)
        stored(memory, "--limit", HALF, "--record", path)
        cluster = Cluster(folder)
        try:
            url = cluster.url + "?timeout=1s"
            one = Piped(folder, url, "--limit", REQUESTS)
            one.read(os.path.getsize(path))
            two = stored(url, "--limit", HALF)
            check(two["hit_tokens"] > alone["hit_tokens"] // 2, "it got little of the other:",
                  two["hit_tokens"], alone["hit_tokens"])
            sizes = [int(server.ask("DBSIZE")) for server in cluster.servers]
            check(min(sizes) > 20, "records are not spread:", sizes)
            cluster.servers[1].kill()
            two = stored(url, "--limit", REQUESTS)
            check(two["hit_tokens"] > 0, "nothing is hit any more")
            one = one.finish()
            check(one["hit_tokens"] > 0, "nothing is hit any more")
        finally:
            cluster.stop()
    finish()


if __name__ == "__main__":
    main()
