"""`kvpager replay --store file:...`: a directory decides like a model with room for as many records.

The oracle is `--disk`, whose operations have all ended when a request comes. `kvpager mrc` gives the
same figures (replay_disk.py), and a slow simulation in Python those of `mrc` (mrc_tiers.py). Random
small traces, caches and stores; what may differ is listed in docs/COMMAND.md.
"""

import os
import random
import shutil

from lib_curve import token_trace, tree_trace
from lib_kvpager import check, check_equal, directory, finish, replay_as, run, skip

AUDITED = int(os.environ.get("KVP_CHECK", "0")) > 0
SEEDS = range(11 if AUDITED else 1, 21)
TOKEN_BYTES = 512
HEADER = 4096  # of a record in a directory, which has 256 bytes for the log of each, too
RATES = ["--watermark", 0, "--step-ns", 1000000, "--prompt-token-ns", 100000, "--speedup", 0.01]


class Scene:
    def __init__(self, folder, seed):
        draw = random.Random(seed)
        is_tokens = seed % 2 == 1
        self.trace = (token_trace if is_tokens else tree_trace)(folder, seed)
        self.place = os.path.join(folder, "kv")
        size, record = 4 if is_tokens else 8, draw.choice([1, 2, 4])
        records = draw.choice([1, 3, 7, 16, 40, 200])  # of more than 16, a directory has eight slabs
        payload = size * record * TOKEN_BYTES
        self.kv_bytes = records * payload
        self.disk_bytes = records * (-(-(HEADER + payload) // 4096) * 4096 + 256)
        self.options = [
            "--trace-block", 16, "--block-tokens", size, "--record-blocks", record,
            "--kv-bytes-per-token", TOKEN_BYTES, "--blocks", draw.choice([12, 14, 20, 40]),
            "--host-blocks", draw.choice([5, 8, 12, 20, 40]),
            "--store-writes", draw.choice(["through", "through", "second"]),
            "--keep-evicted", draw.choice(["on", "on", "off"]),
            "--output-tokens", draw.choice(["on", "off"])]

    def model(self, *options, rate=""):
        return replay_as(*options, *self.options, "--disk", f"{self.kv_bytes}B{rate}", self.trace)

    def real(self, engine, *options):
        shutil.rmtree(self.place, ignore_errors=True)
        url = f"file:{self.place}?size={self.disk_bytes}&engine={engine}"
        found = replay_as(*options, *self.options, "--store", url, self.trace)
        store = found["store"]
        check_equal((store["wrong_blocks"], store["failed"]), (0, 0), self.options)
        return found


def figures(found):
    store = found["store"]
    keys = ["stored", "known", "evicted", "records"]
    return {"hits": found["hit_tokens"], "host": found["host_hit_tokens"],
            "store": store["hit_tokens"], **{key: store[key] for key in keys}}


def one_after_the_other(folder):
    """Exactly, where all is stored. A refusal is answered before the records that are written, or
    between them: their blocks come back to the host in that order, which it evicts by."""
    hit = evicted = 0
    for seed in SEEDS:
        scene = Scene(folder, seed)
        model = scene.model("--sequential")
        right = figures(model)
        for engine in ["auto", "threads"]:
            what = (seed, engine, scene.options, scene.disk_bytes)
            got = figures(scene.real(engine, "--sequential"))
            if model["store"]["refused"] == 0:
                check_equal(got, right, *what)
            else:
                check(abs(got["hits"] - right["hits"]) <= 0.1 * right["hits"], *what, got, right)
        hit, evicted = hit + right["store"], evicted + right["evicted"]
    check(hit > 200 and evicted > 200, "the scenes show little:", hit, evicted)


def under_load(folder):
    """Puts end in the step that they begin in; a request that waits has this machine's time."""
    real = right = 0
    for seed in SEEDS:
        scene = Scene(folder, seed)
        right += scene.model(*RATES, rate="@1000GB")["store"]["stored"]
        real += scene.real("auto", *RATES)["store"]["stored"]
    check(right > 50 and real >= 0.93 * right, "records written:", real, "of", right)


def main():
    if b"built without stores" in run("store").stderr:
        skip("no stores in this build")
    with directory() as folder:
        one_after_the_other(folder)
        under_load(folder)
    finish()


if __name__ == "__main__":
    main()
