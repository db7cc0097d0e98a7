"""Stores on a Redis server, by the library that the wheel has beside its extension module."""

from __future__ import annotations

import os
import pathlib
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import kvpager as k

store = pytest.importorskip("kvpager.store", exc_type=ImportError)

from test_store import done, kv, opened, records, room  # noqa: E402

LIBRARIES = list(pathlib.Path(k.__file__).parent.glob("libkvpager_redis.so.*"))


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as link:
            link.sendall(b"PING\r\n")
            return link.recv(16).startswith(b"+PONG")
    except OSError:
        return False


@pytest.fixture(scope="module")
def library() -> None:
    """Skips, saying why, where the wheel has none."""
    if not LIBRARIES:
        pytest.skip("the package was built without libkvpager_redis: libssl or libvalkey is missing")


@pytest.fixture(scope="module")
def server(library: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server of our own. Debian's redis-tools has the program under another name."""
    program = shutil.which("redis-server") or shutil.which("redis-check-rdb")
    if program is None:
        pytest.skip("redis-server is not installed")
    port, folder = free_port(), tmp_path_factory.mktemp("redis")
    process = subprocess.Popen(
        ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir",
         str(folder)], executable=program, stdout=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 20
        while not answers(port):
            assert process.poll() is None and time.monotonic() < until
            time.sleep(0.01)
        yield f"redis://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def test_the_wheel_has_the_library() -> None:
    """Where the library's own build had it, under the name that is loaded, and no other."""
    assert len(LIBRARIES) <= 1
    assert LIBRARIES or not os.environ.get("KVP_PYTHON_REDIS")


def test_what_was_put_comes_back_from_a_server(server: str) -> None:
    chain = records()
    with opened(server) as place:
        for i, identity in enumerate(chain):
            assert done(place, place.put(identity, kv(i))).ok
    with opened(server) as place:
        assert done(place, place.have(chain.keys())).found.tolist() == [True] * 3
        for i, identity in enumerate(chain):
            got = room()
            assert done(place, place.get(identity, got)).ok
            assert [block.tolist() for block in got] == [block.tolist() for block in kv(i)]
        assert done(place, place.get(records(1, first=999)[0], room())).result == store.STORE_ABSENT
        assert done(place, place.evict(space=None, written_before=None)).result == store.STORE_FAILED
        place.drop(chain.keys()[2:])
        place.finish(20)
        assert done(place, place.have(chain.keys())).found.tolist() == [True, True, False]


def test_operators_calls_on_a_server(server: str) -> None:
    chain = records(2, name="for operators")
    with opened(server) as place:
        for i, identity in enumerate(chain):
            assert done(place, place.put(identity, kv(i))).ok
    assert store.verify(server).ok
    space = store.namespace_number("for operators")
    assert store.clean(server, space=space, written_before=None).records == 2


def test_a_server_that_is_away(library: None) -> None:
    """A port where nobody listens: the store is open, and every operation ends."""
    chain = records(1)
    with opened(f"redis://127.0.0.1:{free_port()}") as place:
        for operation in (place.put(chain[0], kv(0)), place.get(chain[0], room())):
            assert done(place, operation).result in (store.STORE_AWAY, store.STORE_FAILED)
        assert "refused" in place.describe()


class Fake:
    """A server that gives one answer to everything, or takes it and says nothing."""

    def __init__(self, answer: bytes) -> None:
        self.answer, self.listener = answer, socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self.listener.getsockname()[1]}?timeout=1s&connections=1"
        self.links: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                link, _ = self.listener.accept()
            except OSError:
                return
            self.links.append(link)
            threading.Thread(target=self._talk, args=(link,), daemon=True).start()

    def _talk(self, link: socket.socket) -> None:
        try:
            while link.recv(65536):
                link.sendall(self.answer)
        except OSError:
            pass

    def close(self) -> None:
        for one in [self.listener, *self.links]:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            one.close()


@pytest.mark.parametrize("answer", [b"-ERR no\r\n", b"+OK\r\n", b"$3\r\nabc\r\n", b"\0\0garbage\r\n", b""])
def test_a_server_that_is_none(library: None, answer: bytes) -> None:
    """No answer of it is taken for KV."""
    fake, chain = Fake(answer), records(1)
    try:
        with opened(fake.url) as place:
            got: Any = done(place, place.get(chain[0], room()))
            assert not got.ok
    finally:
        fake.close()


def test_a_refused_password_says_so(library: None) -> None:
    fake = Fake(b"-WRONGPASS invalid username-password pair\r\n")
    try:
        with pytest.raises(k.IoError, match="WRONGPASS"):
            opened(fake.url.replace("redis://", "redis://somebody:wrong@"))
    finally:
        fake.close()


OPEN = """
import kvpager
from kvpager import store
try:
    store.Store.open("redis://127.0.0.1:1", fingerprint=bytes([1] * 32), block_bytes=[64])
except kvpager.Error as error:
    print(error)
"""


@pytest.mark.parametrize("broken", [False, True])
def test_a_sentence_says_what_is_missing(tmp_path: pathlib.Path, broken: bool) -> None:
    """Of a package without the library, and of one whose library cannot be loaded."""
    copy = tmp_path / "kvpager"
    shutil.copytree(pathlib.Path(k.__file__).parent, copy)
    for library in copy.glob("libkvpager_redis.so.*"):
        library.unlink()
        if broken:
            library.write_text("no library")
    said = subprocess.run([sys.executable, "-c", OPEN], cwd=tmp_path, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(tmp_path)}, check=True).stdout
    assert "needs libkvpager_redis.so" in said and "if libssl and libvalkey are found" in said
    if broken and LIBRARIES:
        assert str(copy / LIBRARIES[0].name) in said
