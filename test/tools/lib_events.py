"""A publisher of KV events as engines have it: PUB waits for a subscriber, ROUTER repeats what was sent. And a
recording of it."""

import signal
import socket
import struct
import subprocess
import threading

from lib_kvpager import KVPAGER
from lib_recording import read
from lib_zmtp import Peer, pack

NONE = b"\xff" * 8


def stored(hashes, parent=None, block_size=16, **more):
    return {"type": "BlockStored", "block_hashes": hashes, "parent_block_hash": parent,
            "token_ids": [1] * 3, "block_size": block_size, "lora_id": None, "medium": "GPU", **more}


def removed(hashes):
    return {"type": "BlockRemoved", "block_hashes": hashes, "medium": "GPU"}


CLEARED = {"type": "AllBlocksCleared"}


class Publisher:
    """batches: what was sent, by number. with_topic: of a replay, as vLLM has it from 0.26 on. is_away: it
    has its port, and nobody is there until it listens."""

    def __init__(self, with_topic=True, is_away=False):
        self.batches, self.with_topic, self.asked = {}, with_topic, []
        self.is_endless, self.is_asked = False, threading.Event()  # of a replay
        self.listening, self.routing = socket.socket(), socket.create_server(("127.0.0.1", 0))
        self.listening.bind(("127.0.0.1", 0))
        if not is_away:
            self.listening.listen()
        self.url, self.replay = (f"tcp://127.0.0.1:{of.getsockname()[1]}"
                                 for of in (self.listening, self.routing))
        self.subscriber = None
        threading.Thread(target=self._answer, daemon=True).start()

    def accept(self):
        """Wait for the subscriber: when it returns, what is published reaches it."""
        self.listening.settimeout(30)
        self.subscriber = Peer(self.listening.accept()[0], b"PUB")
        assert self.subscriber.message()[0][:1] == b"\x01"
        threading.Thread(target=self.subscriber.answer_pings, daemon=True).start()

    def hang_up(self):
        self.subscriber.socket.shutdown(socket.SHUT_RDWR)
        self.subscriber.socket.close()

    def _answer(self):
        while True:
            try:
                peer = Peer(self.routing.accept()[0], b"ROUTER")
                while True:
                    empty, number = peer.message()
                    assert empty == b""
                    first = struct.unpack(">Q", number)[0]
                    self.asked.append(first)
                    self.is_asked.set()
                    while self.is_endless:
                        peer.send(b"", *([b"kv"] if self.with_topic else []), struct.pack(">Q", 1 << 40), b"")
                    topic = [b"kv"] if self.with_topic else []
                    for number, data in sorted(self.batches.copy().items()):
                        if number >= first:
                            peer.send(b"", *topic, struct.pack(">Q", number), data)
                    peer.send(b"", *(topic and [b""]), NONE, b"")
            except OSError:
                return
            except EOFError:
                continue

    def publish(self, number, events, time=None, lose=False):
        """lose: the subscriber does not get it."""
        data = events if isinstance(events, bytes) else pack([time or float(number), events, 0])
        self.batches[number] = data
        if not lose:
            self.subscriber.send(b"kv", struct.pack(">Q", number), data)

    def close(self):
        if self.subscriber is not None:
            self.subscriber.socket.close()
        self.listening.close()
        self.routing.close()


class Recording:
    def __init__(self, path, *options, env=None):
        self.path = path
        self.process = subprocess.Popen([KVPAGER, "record", "--out", path, *options],
                                        stderr=subprocess.PIPE, text=True, env=env)
        self.said = ""
        watch = threading.Timer(60, self.process.kill)  # what does not come fails, and does not hang
        watch.daemon = True
        watch.start()

    def wait_for(self, words):
        while words not in self.said:
            line = self.process.stderr.readline()
            assert line, (words, self.said)
            self.said += line

    def end(self):
        self.process.send_signal(signal.SIGINT)
        self.said += self.process.stderr.read()
        status = self.process.wait(30)
        with open(self.path, "rb") as file:
            header, requests, counts = read(file.read())
        for request in requests:
            del request["time_us"]
            request.pop("last_us", None)
        return status, header, requests, counts
