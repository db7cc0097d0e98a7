"""Real redis servers for tests: one, or a cluster, on free ports of the loopback interface."""

import os
import shutil
import signal
import socket
import subprocess
import time

from lib_kvpager import skip

PRIMARIES = 3
SLOTS = 16384


def program():
    """Debian's redis-tools has the server, too: one program that looks at its name."""
    found = shutil.which("redis-server") or shutil.which("redis-check-rdb")
    if not found:
        skip("there is no redis-server (Debian: redis-tools)")
    return found


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    def __init__(self, *options):
        self.port = free_port()
        self.process = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "",
             "--dir", "/tmp", *options], executable=program(), stdout=subprocess.DEVNULL)
        self.url = f"redis://127.0.0.1:{self.port}"
        self.until(lambda: self.ask("PING"))

    def ask(self, *words):
        """A reply without its first character; lists as their number, text whole."""
        with socket.create_connection(("127.0.0.1", self.port), 5) as s:
            file = s.makefile("rwb")
            file.write(b"*%d\r\n" % len(words))
            for word in words:
                word = word if isinstance(word, bytes) else str(word).encode()
                file.write(b"$%d\r\n%s\r\n" % (len(word), word))
            file.flush()
            line = file.readline().strip()
            return file.read(int(line[1:])) if line[:1] == b"$" and line != b"$-1" else line[1:]

    def until(self, what):
        for _ in range(2000):
            try:
                if what():
                    return
            except OSError:
                pass
            time.sleep(0.01)
        raise RuntimeError("a redis server does not do what it is to do")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Cluster:
    """Three primaries; keys of a dead one are missed, the rest is served."""

    def __init__(self, folder, *options):
        self.servers, ports = [], []
        for i in range(PRIMARIES):
            ports.append(free_port())
            self.servers.append(Server(
                "--cluster-enabled", "yes", "--cluster-config-file",
                os.path.join(folder, f"nodes-{i}.conf"), "--cluster-port", str(ports[i]),
                "--cluster-node-timeout", "1000", "--cluster-require-full-coverage", "no",
                *options))
        for i, server in enumerate(self.servers):
            server.ask("CLUSTER", "ADDSLOTSRANGE", i * SLOTS // PRIMARIES,
                       (i + 1) * SLOTS // PRIMARIES - 1)
            server.ask("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
        for i in range(1, PRIMARIES):
            self.servers[0].ask("CLUSTER", "MEET", "127.0.0.1", self.servers[i].port, ports[i])
        for server in self.servers:
            server.until(lambda s=server: b"cluster_slots_ok:16384" in s.ask("CLUSTER", "INFO")
                         and b"cluster_state:ok" in s.ask("CLUSTER", "INFO"))
        self.url = self.servers[0].url

    def stop(self):
        for server in self.servers:
            server.kill()
