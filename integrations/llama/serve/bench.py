#!/usr/bin/env python3
"""kvpager-serve beside llama-server of the same library: the same requests to both, one server at a
time, in alternating rounds.

    bench.py SERVER MODEL PEER_PYTHON [--scene NAME]... [--rounds N] [--threads N]
             [--slots N,...] [--serve-args 'OPTION...'] [--attention LIBRARY] [--scale X] [--json FILE]

PEER_PYTHON has xllamacpp. --slots are those of llama-server; '' measures kvpager-serve alone. --attention
measures kvpager-serve with libggml-kvpager.so, too. --scale makes prompts, answers and the cells longer or
shorter, so that a small machine ends. For each
scene and server: prompt tokens run through the model, divided by the least possible (each token of each
distinct prefix once); seconds for all requests, and to the first token; requests that failed. Medians
of the rounds.

Prompts are token ids drawn from a fixed seed. An answer in a conversation is replaced by one of the
same length from that seed, so that all servers get the same prompts.
"""

import argparse
import http.client
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
FIRST_ID, LAST_ID = 1000, 40000     # ordinary tokens of the model
DEADLINE = 1800                     # seconds for an answer


def tokens(draw, n):
    return [draw.randrange(FIRST_ID, LAST_ID) for _ in range(n)]


def scaled(lengths, scale):
    return [round(n * scale) for n in lengths]


def users(draw, scale, shared=1500, own=100, new=64):
    """32 users of one assistant, all at once."""
    shared, own, new = scaled((shared, own, new), scale)
    system = tokens(draw, shared)
    return [[(system + tokens(draw, own), new)] for _ in range(32)]


def conversations(draw, scale, n, turns=6):
    """n conversations that share nothing; a turn is asked when the one before is answered."""
    first, question, answer = scaled((300, 40, 48), scale)
    clients = []
    for _ in range(n):
        prompt, client = tokens(draw, first), []
        for _ in range(turns):
            prompt = prompt + tokens(draw, question)
            client.append((list(prompt), answer))
            prompt = prompt + tokens(draw, answer)
        clients.append(client)
    return clients


def in_turn(draw, scale, n=3, turns=6):
    """The same, by one client that goes from one conversation to the next with each turn."""
    clients = conversations(draw, scale, n, turns)
    return [[client[turn] for turn in range(turns) for client in clients]]


# name: requests, cells, slots of llama-server (0: its default), further options of kvpager-serve
SCENES = {
    "users": (users, 65536, (0, 1, 4, 8, 16, 32), ()),
    "conversations": (lambda draw, scale: conversations(draw, scale, 8), 16384, (0, 1, 8), ()),
    "in-turn": (in_turn, 16384, (0, 1), ()),
    "quarter": (lambda draw, scale: conversations(draw, scale, 16), 3328, (0, 1),
                ("--host-memory", "1G", "-fa", "on")),
    "tenth": (lambda draw, scale: users(draw, scale, 500, 300), 2816, (0, 1), ()),
    "alone": (lambda draw, scale: users(draw, scale, 0, 400, 48)[:8], 16384, (0, 8), ()),
}


def count_least(clients):
    """Tokens of all prompts that are in no earlier prompt at the same place behind the same prefix."""
    root, n = {}, 0
    for client in clients:
        for prompt, _ in client:
            at = root
            for token in prompt:
                n += token not in at
                at = at.setdefault(token, {})
    return n


class Server:
    """A server, its port and what it has counted."""

    def __init__(self, command, environment=None):
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)
        found = re.search(r"(\d+)/?$", self.process.stdout.readline().strip())
        if not found:
            raise SystemExit(f"bench: {' '.join(command)}: does not start")
        self.port = int(found.group(1))

    def read(self, name):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", "/metrics")
        found = re.search(rf"^{name} (.*)$", connection.getresponse().read().decode(), re.M)
        return float(found.group(1))

    def stop(self):
        self.process.stdin.close()
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def cells_of(options, scene):
    return str(round(SCENES[scene][1] * options.scale) // 256 * 256)


class Ours(Server):
    def __init__(self, options, scene, attention=None):
        environment = {name: value for name, value in os.environ.items() if name != "GGML_BACKEND_PATH"}
        if attention:
            environment["GGML_BACKEND_PATH"] = attention
        super().__init__([options.server, "-m", options.model, "--port", "0", "-c", cells_of(options, scene),
                          "-t", str(options.threads), *SCENES[scene][3], *options.serve_args], environment)

    def evaluated(self, n_requests):
        """The last prompt token of a request gives its first new token; the last new one is not run."""
        return (self.read("kvpager_decoded_tokens_total") - self.read("kvpager_generated_tokens_total")
                + n_requests)


class Peer(Server):
    def __init__(self, options, scene, slots):
        super().__init__([options.peer, os.path.join(HERE, "bench_peer.py"), options.model, str(slots),
                          cells_of(options, scene), str(options.threads)])

    def evaluated(self, _):
        return self.read("llamacpp:prompt_tokens_total")


def ask(port, prompt, n_new):
    """Seconds to the first token; None: it failed."""
    body = {"prompt": prompt, "max_tokens": n_new, "temperature": 0, "stream": True, "ignore_eos": True,
            "stream_options": {"include_usage": True}}
    begin, first, usage = time.monotonic(), None, None
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
        connection.request("POST", "/v1/completions", json.dumps(body),
                           {"Content-Type": "application/json"})
        answer = connection.getresponse()
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            first = first or time.monotonic() - begin
            usage = json.loads(line[6:]).get("usage") or usage
    except (OSError, http.client.HTTPException, ValueError):
        return None
    return first if usage and usage["completion_tokens"] == n_new else None


def serve(server, clients):
    """All clients at once. Seconds in all, seconds to each first token, requests that failed."""
    times = []

    def run(client):
        for prompt, n_new in client:
            times.append(ask(server.port, prompt, n_new))

    threads = [threading.Thread(target=run, args=(client,)) for client in clients]
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    good = [seconds for seconds in times if seconds is not None]
    return time.monotonic() - begin, good, len(times) - len(good)


def measure(make, clients, least):
    server = make()
    try:
        ask(server.port, [1], 1)            # buffers are there
        before = server.evaluated(1)
        seconds, first, failed = serve(server, clients)
        n_requests = sum(len(client) for client in clients)
        evaluated = server.evaluated(n_requests + 1) - before
    finally:
        server.stop()
    first.sort()
    return {"evaluated": round(evaluated / least, 3), "seconds": round(seconds, 2), "failed": failed,
            "first_p50": round(statistics.median(first), 2) if first else None,
            "first_p99": round(first[min(len(first) - 1, len(first) * 99 // 100)], 2) if first else None}


def middle(runs, figure):
    values = [run[figure] for run in runs if run[figure] is not None]
    return statistics.median(values) if values else None


def run_scene(options, scene):
    make_clients, _, slots, _ = SCENES[scene]
    clients = make_clients(random.Random(7), options.scale)
    least = count_least(clients)
    servers = {"kvpager-serve": lambda: Ours(options, scene)}
    if options.attention:
        servers["kvpager-serve, its attention"] = lambda: Ours(options, scene, options.attention)
    for n in slots if options.slots is None else options.slots:
        name = f"llama-server -np {n}" if n else "llama-server"
        servers[name] = lambda n=n: Peer(options, scene, n)
    runs = {name: [] for name in servers}
    for _ in range(options.rounds):
        for name, make in servers.items():
            runs[name].append(measure(make, clients, least))
            print(f"{scene}, {name}: {runs[name][-1]}", file=sys.stderr, flush=True)
    print(f"\n{scene}: {sum(len(c) for c in clients)} requests, {cells_of(options, scene)} cells; least possible: {least} "
          "prompt tokens")
    print(f"{'':28}{'evaluated':>10}{'seconds':>9}{'first p50':>11}{'p99':>8}{'failed':>8}")
    table = {}
    for name, of in runs.items():
        table[name] = {figure: middle(of, figure) for figure in of[0]}
        print(f"{name:28}{table[name]['evaluated']:10.2f}{table[name]['seconds']:9.1f}"
              f"{table[name]['first_p50'] or 0:11.1f}{table[name]['first_p99'] or 0:8.1f}"
              f"{table[name]['failed']:8.0f}", flush=True)
    return table


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server")
    parser.add_argument("model")
    parser.add_argument("peer")
    parser.add_argument("--scene", action="append", choices=sorted(SCENES))
    parser.add_argument("--slots", type=lambda text: [int(n) for n in text.split(",") if n])
    parser.add_argument("--serve-args", type=str.split, default=[], help="more options of kvpager-serve")
    parser.add_argument("--attention")
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the servers end, too
    tables = {scene: run_scene(options, scene) for scene in options.scene or SCENES}
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(tables, file, indent=1)


if __name__ == "__main__":
    sys.exit(main())
