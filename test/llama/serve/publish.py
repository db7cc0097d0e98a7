"""--publish: what is cached is told as it changes; a router that comes late gets all of it; prompts with
a cache_salt are nobody else's."""

import contextlib
import hashlib
import os
import socket
import sys
import tempfile
import time

from lib_server import BLOCK, Server, refused

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))
from lib_zmtp import Peer, unpack  # noqa: E402

PROMPT = "A prompt that routers hear about, since it is cached here and nowhere else. "
SECRET = "Another prompt, whose salt separates it from all others, so that nobody hears. "
LONG = "A prompt that needs all of the cells that there are, so that others have to go. " * 5


def free_ports(n):
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(socket.socket()) for _ in range(n)]
        for one in made:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in made]


def connect(port, kind):
    return Peer(socket.create_connection(("127.0.0.1", port), 20), kind)


FIELDS = ["block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium",
          "lora_name"]


def as_map(event):
    """Of an array that begins with the type."""
    names = {"BlockStored": FIELDS, "BlockRemoved": ["block_hashes", "medium"]}
    return dict(zip(["type", *names.get(event[0], [])], event))


def vllm_hash(text):
    """vLLM's sha256_cbor of a text's blocks: the last 8 bytes of the last digest."""
    digest = hashlib.sha256(b"\x6evllm-none-hash").digest()
    for at in range(0, len(text), BLOCK):
        tokens = b"".join(b"\x18" + bytes([ord(c)]) for c in text[at:at + BLOCK])
        digest = hashlib.sha256(b"\x83\x58\x20" + digest + b"\x84" + tokens + b"\xf6").digest()
    return int.from_bytes(digest[-8:], "big")


class Router:
    """Keeps the blocks that it hears of, by hash: their tokens."""

    replay_begin = 2  # frames before a replayed batch's number: none, and the topic
    media = {"GPU", "CPU"}

    def __init__(self, port, replay, topic=b""):
        self.blocks, self.topic, self.replay = {}, topic, replay
        self.sub, self.last = connect(port, b"SUB"), 0
        self.sub.send(b"\x01")

    def apply(self, events):
        for event in events:
            if event["type"] == "AllBlocksCleared":
                self.blocks.clear()
            elif event["type"] == "BlockRemoved":
                for block in event["block_hashes"]:
                    del self.blocks[block]
            else:
                assert event["block_size"] == BLOCK and event["medium"] in self.media, event
                for i, block in enumerate(event["block_hashes"]):
                    self.blocks[block] = event["token_ids"][i * BLOCK:(i + 1) * BLOCK]

    def hear(self):
        topic, number, payload = self.sub.message()
        assert topic == self.topic and int.from_bytes(number, "big") > self.last
        self.last = int.from_bytes(number, "big")
        self.apply(unpack(payload)[1])

    def ask(self, number):
        """The batches from this number on; when the last came: its number."""
        dealer, last = connect(self.replay, b"DEALER"), None
        dealer.send(b"", number.to_bytes(8, "big"))
        while True:
            *begin, number, payload = dealer.message()
            if number == b"\xff" * 8:
                dealer.socket.close()
                return last
            assert begin == [b"", self.topic][:self.replay_begin], begin
            last = int.from_bytes(number, "big")
            self.apply(unpack(payload)[1])

    def tokens(self):
        return sum(map(len, self.blocks.values()))

    def until(self, condition):
        end = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < end, self.blocks
            self.hear()


def complete(server, prompt, **more):
    return server.post("/v1/completions", prompt=prompt, max_tokens=4, temperature=0, **more)


def check_told(folder):
    port, replay = free_ports(2)
    options = ["-c", "512", "-np", "4", "--snapshot", os.path.join(folder, "kept"), "--publish",
               f"tcp://127.0.0.1:{port}", "--publish-replay", f"tcp://127.0.0.1:{replay}",
               "--publish-topic", "kv@here@fake"]
    n = len(PROMPT) // BLOCK * BLOCK
    with Server(*options) as server:
        first = Router(port, replay, b"kv@here@fake")
        first.hear()  # a heartbeat: it has joined
        complete(server, SECRET, cache_salt="s")
        complete(server, PROMPT)
        first.until(lambda: first.tokens() >= n)
        heard = {bytes(block) for block in first.blocks.values()}
        assert all(PROMPT[i:i + BLOCK].encode() in heard for i in range(0, n, BLOCK))
        assert SECRET[:BLOCK].encode() not in heard
        late = Router(port, replay, b"kv@here@fake")
        assert late.ask(0) >= first.last and late.blocks == first.blocks
        complete(server, LONG)  # what was cached is evicted
        first.until(lambda: first.tokens() >= len(LONG) // BLOCK * BLOCK)
        missed = first.last
        assert late.ask(missed) >= missed
    with Server(*options) as server:  # what a snapshot brought back is told; numbers rise
        again = Router(port, replay, b"kv@here@fake")
        assert again.ask(0) > missed and again.tokens() >= len(LONG) // BLOCK * BLOCK


class OtherRouter(Router):
    """Reads every form that --publish-as can give, and keeps the media that it heard of."""

    replay_begin = 1

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.media = {"GPU", "CPU_PINNED"}
        self.heard = set()

    def apply(self, events):
        events = [as_map(event) for event in events]
        self.heard |= {event["medium"] for event in events if "medium" in event}
        super().apply(events)


def check_forms():
    port, replay = free_ports(2)
    options = ["-c", "512", "-np", "4", "-fa", "on", "--host-memory", "1M", "--publish",
               f"tcp://127.0.0.1:{port}", "--publish-replay", f"tcp://127.0.0.1:{replay}",
               "--publish-as", "arrays,vllm-hashes,sglang-media,plain-replay"]
    with Server(*options) as server:
        router = OtherRouter(port, replay)
        router.hear()
        for prompt in (PROMPT, LONG[:300], LONG[1:301]):  # what is evicted goes to the host
            complete(server, prompt)
        router.until(lambda: "CPU_PINNED" in router.heard and
                     vllm_hash(LONG[1:297]) in router.blocks)
        late = OtherRouter(port, replay)
        assert late.ask(0) and vllm_hash(LONG[1:297]) in late.blocks


def check_refused(folder):
    model = os.path.join(folder, "model")
    with open(model, "w", encoding="utf-8") as file:
        file.write("fake-model")
    for options, sentence in [(["--publish", "nowhere"], "--publish: endpoint: cannot bind nowhere"),
                              (["--publish-replay", "tcp://127.0.0.1:1"], "--publish-replay needs --publish"),
                              (["--publish-topic", "x"], "--publish-topic needs --publish"),
                              (["--publish-as", "arrays"], "--publish-as needs --publish"),
                              (["--publish-as", "arrays,maps"], "is 'arrays,maps', expected arrays, "),
                              (["--publish-as", "array"], "is 'array', expected arrays, "),
                              (["--publish-as", "arrays,"], "is 'arrays,', expected arrays, ")]:
        status, said = refused("-m", model, *options)
        assert status != 0 and sentence in said, said


def main():
    with tempfile.TemporaryDirectory() as folder:
        check_told(folder)
        check_forms()
        check_refused(folder)


main()
