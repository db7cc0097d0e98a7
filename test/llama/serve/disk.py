"""--cache-disk: what was computed comes back after a restart, also after SIGKILL, and only where it is
right. A disk that fails costs a computation."""

import os
import signal
import stat
import tempfile
import time

from lib_server import Server, greedy, refused, whole

RECORD = 256  # tokens
TEXT = "A system prompt that many requests share, and that is worth keeping on a disk. " * 10
OTHER = "Something else that is long enough for some records of cells, and is asked for. " * 9
KEPT = len(TEXT) // RECORD * RECORD


def options(folder, *more):
    return ["-c", "2048", "-np", "4", "-fa", "on", "--host-memory", "1M", "--cache-disk", folder, *more]


def cached(server, prompt, **more):
    """Of the prompt's tokens, when the answer is right."""
    found = server.post("/v1/completions", prompt=prompt, max_tokens=4, temperature=0, **more)
    assert found["choices"][0]["text"] == greedy(prompt, 4)[0], (prompt, found)
    return found["usage"]["prompt_tokens_details"]["cached_tokens"]


def count(server, outcome):
    return server.metrics()[f'disk_requests_total{{outcome="{outcome}"}}']


def wait_for(server, name, n):
    for _ in range(600):
        if server.metrics()[name] >= n:
            return
        time.sleep(0.05)
    raise AssertionError(f"{name} does not reach {n}")


def slabs(folder):
    found = [os.path.join(path, name) for path, _, names in os.walk(folder)
             for name in names if name.startswith("slab")]
    assert found
    return found


def check_kept(folder):
    with Server(*options(folder)) as server:
        assert [cached(server, TEXT), cached(server, TEXT, cache_salt="a")] == [0, 0]
        assert cached(server, TEXT) == whole(TEXT)
    assert stat.S_IMODE(os.stat(slabs(folder)[0]).st_mode) == 0o600
    # The fake model computes faster than a disk reads, but the first reading is always tried.
    for salt, kept in [("", KEPT), ("a", KEPT), ("b", 0)]:
        with Server(*options(folder)) as server:
            assert cached(server, TEXT, cache_salt=salt) == kept
            assert count(server, "loaded" if kept else "nothing") == 1
            metrics = server.metrics()
            assert metrics["disk_loaded_tokens_total"] == kept
            assert (metrics["disk_load_seconds_total"] > 0) == (kept > 0)
            assert (metrics["disk_read_bytes_total"] > 0) == (kept > 0) and metrics["disk_requests"] == 0


def check_killed(folder):
    with Server(*options(folder), status=-signal.SIGKILL) as server:
        before = server.metrics()["disk_records"]
        text = "killed " + TEXT
        assert cached(server, text) == 0
        wait_for(server, "disk_records", before + len(text) // RECORD)
        server.process.kill()
    with Server(*options(folder)) as server:
        assert cached(server, text) == len(text) // RECORD * RECORD


def check_others(folder):
    """Other weights, cells or types of KV."""
    for more, model in [([], "fake-model fine-tuned"), (["-ctk", "q8_0"], "fake-model")]:
        with Server(*options(folder, *more), model=model) as server:
            assert cached(server, TEXT) == 0 and count(server, "nothing") == 1
    with Server(*options(folder)) as server:
        assert cached(server, TEXT) == KEPT


def check_with_snapshot(folder):
    """What the snapshot has is not asked for."""
    path = os.path.join(folder, "kept")
    more = ["--snapshot", path]
    disk = os.path.join(folder, "disk")
    os.mkdir(disk)
    with Server(*options(disk, *more)) as server:
        assert cached(server, TEXT) == 0
    with Server(*options(disk, *more)) as server:
        assert cached(server, TEXT) == whole(TEXT) and count(server, "loaded") == 0
    os.remove(path)
    with Server(*options(disk, *more)) as server:
        assert cached(server, TEXT) == KEPT


def check_damaged(folder):
    for path in slabs(folder):
        with open(path, "r+b") as file:
            for at in range(100, os.path.getsize(path), 1000):
                file.seek(at)
                file.write(b"damaged")
    with Server(*options(folder)) as server:
        assert cached(server, TEXT) == 0 and count(server, "failed") == 1
        assert server.metrics()["disk_bad_records_total"] > 0
    for path in slabs(folder):
        os.truncate(path, 10)
    with Server(*options(folder)) as server:
        assert [cached(server, TEXT), cached(server, OTHER), cached(server, TEXT)] == [0, 0, whole(TEXT)]


def check_small(folder):
    """The directory never takes more than it may, and requests are answered."""
    size = 64 * 1024
    with Server(*options(folder, "--cache-disk-size", f"{size}B")) as server:
        for i in range(20):
            cached(server, f"{i} {TEXT}")
        metrics = server.metrics()
        assert 0 < metrics["disk_bytes"] <= size and metrics["disk_records"] > 0, metrics
    n = sum(os.path.getsize(os.path.join(path, name)) for path, _, names in os.walk(folder) for name in names)
    assert n <= size, n


def check_refused(folder):
    model = os.path.join(folder, "model")
    with open(model, "w", encoding="utf-8") as file:
        file.write("fake-model")
    for more, status, sentence in [
            (options(folder)[:6], 2, None), (["--cache-disk", folder], 2, "needs --host-memory"),
            (options(model), 1, "--cache-disk: "), (options(folder + "?x"), 1, "has a '?'"),
            (options(folder, "--cache-disk-size", "1K"), 1, "--cache-disk: "),
            (options(folder, "--cache-disk-size", "0"), 2, "expected bytes"),
            (options("x" * 5000), 1, "too long")]:
        if sentence is not None:
            found, said = refused("-m", model, *more)
            assert found == status and sentence in said, said
    # Two servers: a directory has one writer for each model and process; both are served.
    with Server(*options(folder)) as first, Server(*options(folder)) as second:
        assert [cached(first, TEXT), cached(second, OTHER)] == [0, 0]


def main():
    with tempfile.TemporaryDirectory(prefix="kvpager-disk-") as folder:
        for check in check_kept, check_killed, check_others, check_damaged:
            check(os.path.join(folder, "kept"))
        for check in check_with_snapshot, check_small, check_refused:
            inner = os.path.join(folder, check.__name__)
            os.mkdir(inner)
            check(inner)


if __name__ == "__main__":
    main()
