"""`kvpager replay` with several stores, nearest first: a disk before another one, and before a server.
What is lost on the nearer one comes from the farther one, and is near again afterwards.
"""

import os
import shutil

from lib_kvpager import SOURCE, check, check_equal, directory, finish, replay, run, skip
from lib_redis import Server, program

TRACE = os.path.join(SOURCE, "data", "mixed-small.jsonl")
OPTIONS = ["--output-tokens", "off", "--blocks", 3000, "--host-blocks", 2000, "--limit", 16,
           "--kv-bytes-per-token", 64, "--record-blocks", 4, "--store-writes", "through"]


def stored(*urls):
    """A replay, and what each of its stores did."""
    options = [word for url in urls for word in ("--store", url)]
    found = replay(TRACE, *OPTIONS, *options)
    store = found["store"]
    check_equal((store["wrong_blocks"], store["unfinished"], sum(store["bad"].values())), (0, 0, 0),
                store)
    check(store["checked_blocks"] * 16 >= store["hit_tokens"], "some KV was not looked at", store)
    check_equal([part["url"] for part in store["stores"]], list(urls))
    check_equal(store["url"], urls[0])
    return store, store["stores"]


def near_is_lost(path, near, far):
    first, parts = stored(near, far)
    check(first["stored"] > 20, "little was written:", first)
    check_equal([part["stored"] for part in parts], [first["stored"]] * 2, "each takes each record")

    shutil.rmtree(path)
    os.mkdir(path)
    second, parts = stored(near, far)
    check(second["hits"] > 20, "little came from the farther store:", second)
    check(parts[1]["hits"] > 20, "little came from the farther store:", parts)
    # Whatever came from the farther store was written to the nearer one, and nothing else.
    check_equal(parts[0]["stored"], parts[1]["hits"], parts)
    check_equal((parts[0]["refused"], second["stored"]), (0, 0), parts)
    check_equal(second["hits"], parts[0]["hits"] + parts[1]["hits"], parts)
    check_equal(second["records"], sum(part["records"] for part in parts))

    third, parts = stored(near, far)
    check_equal((third["hits"], parts[1]["hits"], parts[1]["gets"]), (second["hits"], 0, 0), parts)
    check_equal(third["hit_tokens"], second["hit_tokens"])
    alone, parts = stored(near)
    check_equal((alone["hits"], len(parts)), (second["hits"], 1), "the nearer one has all of it")
    return second


def far_is_away(near, server):
    """A server that is gone costs nothing that the disk has."""
    before, _ = stored(near)
    server.process.kill()
    server.process.wait()
    after, parts = stored(near, server.url + "?timeout=1s")
    check_equal(after["hits"], before["hits"], parts)
    check_equal(parts[1]["hits"], 0)


def messages(near):
    wrong = run("replay", "--sequential", *OPTIONS, "--store", near, "--store", "nowhere:", TRACE)
    check_equal(wrong.returncode, 1, wrong.stderr)
    check(b"--store nowhere:: " in wrong.stderr, "the message does not name it:", wrong.stderr)
    twice = run("replay", "--disk", "1GiB", "--disk", "2GiB", TRACE)
    check_equal(twice.returncode, 2, twice.stderr)
    check(b"--disk is given twice" in twice.stderr, twice.stderr)
    many = run("replay", *["--store", near] * 9, TRACE)
    check(b"--store is given more than 8 times" in many.stderr, many.stderr)
    text = run("replay", "--sequential", *OPTIONS, "--store", near, "--store", "memory:", TRACE).stdout
    check(b"2 stores, nearest first" in text and b"Store memory:: in memory" in text, text)


def main():
    if b"built without stores" in run("store").stderr:
        skip("no stores in this build")
    with directory() as folder:
        paths = [os.path.join(folder, name) for name in ("near", "far", "disk")]
        for path in paths:
            os.mkdir(path)
        near, far, disk = (f"file:{path}?size=1GiB" for path in paths)
        near_is_lost(paths[0], near, far)
        messages(near)
        if b"needs libkvpager_redis" not in run("store", "info", "redis://127.0.0.1:1").stderr:
            program()
            server = Server()
            try:
                near_is_lost(paths[2], disk, server.url)
                far_is_away(disk, server)
            finally:
                server.process.kill()
    finish()


if __name__ == "__main__":
    main()
