"""What `kvpager replay` does where nothing is said: a host tier below a store, and the status of a
replay in which nothing could be served."""

import os

from lib_kvpager import check, check_equal, directory, finish, mooncake, replay, run

RATES = ["--prompt-token-ns", "1000", "--decode-token-ns", "1000", "--no-measure"]


def write(folder, name, *requests):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(mooncake(*request) for request in requests)
    return path


def host_of_a_store(folder):
    """4 GiB, at most as many blocks as the device has; the same as if that were asked for."""
    path = write(folder, "two", *[(i, 1024, 1, [i % 2, 9]) for i in range(6)])
    store = ["--store", f"file:{os.path.join(folder, 'kv')}?size=64MiB"]
    if b"built without stores" not in run("store").stderr:
        done = run("replay", *store, "--blocks", 999, "--limit", 2, path)
        check_equal(done.returncode, 0, "README's command", done.stderr)
    for token_bytes, blocks, host in [(64, 100, 100), (1 << 20, 5000, 256), (100 << 20, 500, 2)]:
        options = ["--kv-bytes-per-token", token_bytes, "--blocks", blocks, "--disk", "1TB"]
        found = replay(path, *options)
        check_equal(found["host_blocks"], host, options)
        asked = replay(path, *options, "--host-blocks", host)
        for name in ("host_blocks", "hit_tokens", "host_hit_tokens", "store"):
            check_equal(found[name], asked[name], options, name)


def nothing_is_served(folder):
    path = write(folder, "large", (0, 1024, 1, [1, 2]), (1, 2048, 1, [1, 2, 3, 4]))
    for options in [["--sequential"], [], ["--sequential", "--policy", "lru,learned"],
                    ["--policy", "lru,learned"], ["--sequential", "--json"]]:
        rates = [] if "--sequential" in options else RATES
        done = run("replay", *options, *rates, "--blocks", 9, path)
        check_equal(done.returncode, 1, options, done.stderr)
        check(b"kvpager replay: no request could be served" in done.stderr, options, done.stderr)
        done = run("replay", *options, *rates, "--blocks", 100, path)
        check_equal((done.returncode, done.stderr), (0, b""), options, "one of two")


def main():
    with directory() as folder:
        host_of_a_store(folder)
        nothing_is_served(folder)
    finish()


main()
