"""--snapshot: what is cached is there after a restart, and only where it is right."""

import os
import signal
import stat
import tempfile

from lib_server import Server, greedy, refused, whole

TEXT = "A system prompt that many requests share, and that is worth keeping. "
OTHER = "Something else that is long enough for several blocks of cells. "
KEPT = whole(TEXT)


def cached(server, prompt, **more):
    """Of the prompt's tokens, when the answer is right."""
    found = server.post("/v1/completions", prompt=prompt, max_tokens=2, temperature=0, **more)
    assert found["choices"][0]["text"] == greedy(prompt, 2)[0], (prompt, found)
    return found["usage"]["prompt_tokens_details"]["cached_tokens"]


def read(path):
    with open(path, "rb") as file:
        return file.read()


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)


def check_kept(path):
    options = ["-c", "1024", "--snapshot", path]
    with Server(*options) as server:
        assert [cached(server, TEXT), cached(server, TEXT, cache_salt="a")] == [0, 0]
        # SIGTERM finds a request that runs.
        events = server.stream("/v1/completions", prompt=OTHER, max_tokens=600, temperature=0,
                               ignore_eos=True)
        next(events)
        server.process.send_signal(signal.SIGTERM)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    for _ in range(2):  # what was restored and not asked for is saved again
        with Server(*options):
            pass
    with Server(*options) as server:
        assert [cached(server, TEXT), cached(server, TEXT, cache_salt="a"),
                cached(server, OTHER), cached(server, TEXT, cache_salt="b")] == [KEPT, KEPT, whole(OTHER), 0]
        line = server.process.stdout.readline()
        assert f"blocks of {path} are cached, 0 were left out" in line, line
    assert os.listdir(os.path.dirname(path)) == [os.path.basename(path)]


def check_killed(path):
    """The file stays as it was."""
    before = read(path)
    with Server("-c", "1024", "--snapshot", path, status=-signal.SIGKILL) as server:
        assert cached(server, TEXT) == KEPT and cached(server, "killed " + TEXT) == 0
        server.process.kill()
    assert read(path) == before


def check_tenants(path):
    """Restored salts are tenants like others: new ones take their places."""
    options = ["-c", "1024", "--snapshot", path, "--max-tenants", "3"]
    os.remove(path)
    with Server(*options) as server:
        assert [cached(server, TEXT, cache_salt=salt) for salt in ["a", "b"]] == [0, 0]
    with Server(*options) as server:
        assert cached(server, TEXT, cache_salt="a") == KEPT
        assert [cached(server, TEXT, cache_salt=salt) for salt in ["c", "d", "e"]] == [0, 0, 0]
        assert cached(server, TEXT, cache_salt="e") == KEPT
    for n, want in [("2", 0), ("1", KEPT)]:  # fewer places than names
        with Server(*options[:-1], n) as server:
            assert cached(server, TEXT) == want and server.metrics()["tenants"] == int(n)


def check_others(path):
    """Weights with the same metadata, other cells, other bytes: a sentence, and nothing is cached."""
    os.remove(path)
    options = ["-c", "1024", "--snapshot", path]
    with Server(*options) as server:
        assert cached(server, TEXT) == 0
    good = read(path)
    other = {"model": "fake-model fine-tuned"}
    with Server(*options, errors="it is of another model", **other) as server:
        assert cached(server, TEXT) == 0
    with Server(*options, **other) as server:  # it was replaced
        assert cached(server, TEXT) == KEPT
    for more, errors in [(["-c", "2048"], "another number of cells"),
                         (["--block-tokens", "8"], "of other block_tokens")]:
        write(path, good)
        with Server(*options, *more, errors=errors) as server:
            assert cached(server, TEXT) == 0
    write(path, b"no snapshot" * 100)
    with Server(*options, errors="it is no snapshot"):
        pass
    write(path, b"")
    with Server(*options, errors="it is no snapshot"):
        pass


def check_damaged(path):
    """Cut, or with a wrong byte: at most less is cached, and answers are right."""
    options = ["-c", "1024", "--snapshot", path]
    os.remove(path)
    with Server(*options) as server:
        for salt in ["", "a"]:
            assert cached(server, TEXT, cache_salt=salt) == 0
    good = read(path)
    counts = set()
    for at in range(100, len(good), len(good) // 8):
        for data in [good[:at], good[:at] + bytes([good[at] ^ 1]) + good[at + 1:]]:
            write(path, data)
            with Server(*options, errors=None) as server:
                counts.add(cached(server, TEXT))
                counts.add(cached(server, TEXT, cache_salt="a"))
    assert {0, KEPT} <= counts, counts


def check_refused(folder):
    for path, sentence in [(folder, "it is no file"),
                           (os.path.join(folder, "no", "x"), "No such file or directory")]:
        status, said = refused("-m", "none", "--snapshot", path)
        assert status == 1 and sentence in said and path in said, said
    inner = os.path.join(folder, "inner")
    os.mkdir(inner)
    with Server("--snapshot", os.path.join(inner, "x"), errors="No such file", status=1):
        os.rmdir(inner)


def main():
    with tempfile.TemporaryDirectory(prefix="kvpager-restart-") as folder:
        path = os.path.join(folder, "kept")
        check_kept(path)
        check_killed(path)
        check_tenants(path)
        check_others(path)
        check_damaged(path)
        check_refused(folder)


if __name__ == "__main__":
    main()
