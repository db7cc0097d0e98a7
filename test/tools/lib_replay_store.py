"""What the tests of replays with a store share. A replay that writes its operation log into a pipe
stands still where the reader of the pipe stops: that is how the tests stop it half-way without a
clock.
"""

import json
import os
import signal
import subprocess

from lib_kvpager import KVPAGER, SOURCE, check, check_equal, replay_as

TRACE = os.path.join(SOURCE, "data", "mixed-small.jsonl")
REQUESTS, HALF = 40, 20
OPTIONS = ["--output-tokens", "off", "--blocks", 3000, "--host-blocks", 2000,
           "--kv-bytes-per-token", 64, "--record-blocks", 4, "--store-writes", "through"]
SEQUENTIAL = ["--sequential"]


def url(place):
    return f"file:{place}?size=1GiB"


def healthy(found):
    store = found["store"]
    check_equal((store["wrong_blocks"], store["failed"], store["unfinished"]), (0, 0, 0), store)
    check(store["checked_blocks"] * 16 >= store["hit_tokens"], "some KV was not looked at", store)


def stored(place, *options, trace=TRACE, kind=None):
    found = replay_as(*(kind or SEQUENTIAL), *OPTIONS, "--store", url(place), *options, trace)
    healthy(found)
    return found


def place_in(folder, name):
    path = os.path.join(folder, name)
    os.mkdir(path)
    return path


class Piped:
    """A replay whose operation log comes through a pipe."""

    n = 0

    def __init__(self, folder, place, *options, kind=None, base=None, trace=TRACE):
        Piped.n += 1
        self.path = os.path.join(folder, f"log-{Piped.n}")
        os.mkfifo(self.path)
        words = ["replay", "--json", *(kind or SEQUENTIAL), *(base or OPTIONS), "--store", url(place),
                 "--record", self.path, *options, trace]
        self.process = subprocess.Popen([KVPAGER, *map(str, words)], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE)
        self.log = open(self.path, "rb", buffering=0)

    def read(self, n_bytes):
        while n_bytes > 0:
            n_bytes -= len(self.log.read(min(n_bytes, 4096)) or b"?" * n_bytes)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()
        check_equal(self.process.returncode, -signal.SIGKILL, "it had ended before")
        self.log.close()

    def finish(self):
        while self.log.read(65536):
            pass
        self.log.close()
        out, error = self.process.communicate()
        check_equal(self.process.returncode, 0, error)
        found = json.loads(out)
        healthy(found)
        return found
