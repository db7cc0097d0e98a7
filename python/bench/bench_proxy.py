"""What `kvpager record` costs: bench_proxy.py KVPAGER [--requests N] [--chunks N] [--clients N]

An engine of ours streams answers of N chunks. Printed are times to the first chunk of one client, without
and with the proxy, and the processor time of the proxy for each streamed request under load: /tokenize,
1,000 tokens a prompt, and the file included."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time

EVENT = b'data: {"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":" token"}}]}\n\n'
TOKENS = json.dumps({"tokens": list(range(1000)), "count": 1000}).encode()
TICKS = os.sysconf("SC_CLK_TCK")


def piece(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class Engine(asyncio.Protocol):
    chunks = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.out, self.read = transport, b""

    def data_received(self, data: bytes) -> None:
        self.read += data
        while (end := self.read.find(b"\r\n\r\n")) >= 0:
            head = self.read[:end].lower()
            whole = end + 4 + int(head.split(b"content-length:")[1].split(b"\r\n")[0])
            if len(self.read) < whole:
                return
            self.read = self.read[whole:]
            if head.startswith(b"post /tokenize"):
                self.out.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                               % len(TOKENS) + TOKENS)
            else:
                self.answer = asyncio.get_running_loop().create_task(self.stream())

    async def stream(self) -> None:
        self.out.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(self.chunks):
            self.out.write(piece(EVENT))
            await asyncio.sleep(0)
        self.out.write(piece(b"data: [DONE]\n\n") + b"0\r\n\r\n")


def question(chunks: int) -> bytes:
    body = json.dumps({"model": "m", "stream": True, "max_tokens": chunks,
                       "messages": [{"role": "user", "content": "word " * 800}]}).encode()
    return (b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body) + body)


async def client(port: int, n: int, asked: bytes, first: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    for _ in range(n):
        began = time.perf_counter()
        writer.write(asked)
        await reader.readuntil(b"data: ")
        first.append(time.perf_counter() - began)
        await reader.readuntil(b"0\r\n\r\n")
    writer.close()


def processor_seconds(pid: int) -> float:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().split()
    return (int(fields[13]) + int(fields[14])) / TICKS


async def measure(options: argparse.Namespace, folder: str) -> None:
    Engine.chunks = options.chunks
    server = await asyncio.get_running_loop().create_server(Engine, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    process = subprocess.Popen([options.kvpager, "record", "--proxy", f"http://127.0.0.1:{port}", "--listen",
                                "127.0.0.1:0", "--out", f"{folder}/bench.kvprec"], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    through = int(process.stderr.readline().split("127.0.0.1:")[1].split(",")[0])
    for name, to, clients, n in (("without", port, 1, 500), ("with it", through, 1, 500),
                                 ("under load", through, options.clients, options.requests // options.clients)):
        first, before = list[float](), processor_seconds(process.pid)
        await asyncio.gather(*(client(to, n, question(options.chunks), first) for _ in range(clients)))
        used = processor_seconds(process.pid) - before
        first.sort()
        print(f"{name}: {len(first)} requests, first chunk after {first[len(first) // 2] * 1e3:.3f} ms (median)"
              + (f"; {len(first) / used:.0f} requests a second of one core" if name == "under load" else ""))
    await asyncio.sleep(2)
    process.send_signal(signal.SIGINT)
    print(process.stderr.read().strip())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kvpager")
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--chunks", type=int, default=32)
    parser.add_argument("--clients", type=int, default=16)
    with tempfile.TemporaryDirectory(prefix="kvpager-") as folder:
        asyncio.run(measure(parser.parse_args(), folder))


if __name__ == "__main__":
    main()
