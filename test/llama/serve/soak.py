"""Clients for as long as is wanted, on a server whose memory must stay as it is.

    soak.py [SECONDS]     default 20

Rounds of 40 clients: streams and plain answers, two samples, shared and new prompts, tenants, longer
prompts than there are cells for all, refused requests; a third go away. Each answer is checked. After
the first tenth of the time, the server may take no more than a twentieth of its memory, and 2 MiB."""

import http.client
import json
import random
import sys
import threading
import time

from lib_server import Server, greedy

CLIENTS, MARGIN_KIB = 40, 2048
SHARED = [f"System prompt number {i}: answer shortly, and be kind to everybody. " * 3 for i in range(4)]


def resident_kib(process):
    with open(f"/proc/{process.pid}/status", encoding="utf-8") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))


def body_of(source):
    prompt = source.choice(SHARED) + "".join(chr(source.randint(97, 122)) for _ in range(
        source.choice((5, 40, 300))))
    body = {"prompt": prompt, "max_tokens": source.randint(1, 40), "temperature": 0,
            "stream": source.random() < 0.5, "n": source.choice((1, 1, 1, 2))}
    if source.random() < 0.3:
        body["cache_salt"] = f"tenant {source.randint(0, 5)}"
    return body


def texts_of(body, data):
    if not body["stream"]:
        return [choice["text"] for choice in json.loads(data)["choices"]]
    assert data.endswith("data: [DONE]\n\n"), data[-100:]
    texts = [""] * body["n"]
    for line in data.split("\n"):
        if line.startswith("data: {"):
            for choice in json.loads(line[6:])["choices"]:
                texts[choice["index"]] += choice["text"]
    return texts


def client(server, seed, failures):
    source = random.Random(seed)
    body, leaves = body_of(source), source.random() < 1 / 3
    if source.random() < 0.05:
        body["tools"] = [{}]  # is refused
    try:
        connection = http.client.HTTPConnection(server.host, server.port, timeout=300)
        connection.request("POST", "/v1/completions", json.dumps(body))
        if leaves and source.random() < 0.5:
            time.sleep(source.random() * 0.05)
            connection.close()
            return
        answer = connection.getresponse()
        if leaves:
            answer.read(source.randint(1, 300))
            answer.close()
            connection.close()
            return
        data = answer.read().decode()
        connection.close()
        if "tools" in body:
            assert answer.status == 400, (answer.status, data)
            return
        assert answer.status == 200, (answer.status, data)
        want = greedy(body["prompt"], body["max_tokens"])[0]
        for text in texts_of(body, data):
            assert text == want, (body, text, want)
    except (OSError, AssertionError, http.client.HTTPException) as error:
        failures.append(repr(error))


def run(seconds):
    began, settled, rounds = time.monotonic(), None, 0
    with Server("-c", "2048", "-np", "16", "--max-queue", "256", "--host-memory", "256K", "-fa", "on",
                model="fake-model step_us=200") as server:
        while time.monotonic() - began < seconds or rounds < 4:
            failures = []
            threads = [threading.Thread(target=client, args=(server, CLIENTS * rounds + i, failures))
                       for i in range(CLIENTS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert not failures, failures[:3]
            rounds += 1
            if settled is None and rounds >= 3 and time.monotonic() - began >= seconds / 10:
                settled = resident_kib(server.process)
            if rounds % 200 == 0:
                print(f"{time.monotonic() - began:.0f} s: {rounds} rounds, "
                      f"{resident_kib(server.process)} KiB", flush=True)
        last, metrics = resident_kib(server.process), server.metrics()
    print(f"{rounds * CLIENTS} requests, {metrics['preemptions_total']:.0f} preemptions; resident memory "
          f"{settled} KiB after a tenth, {last} KiB in the end")
    assert last <= settled * 1.05 + MARGIN_KIB, (settled, last)


if __name__ == "__main__":
    run(float(sys.argv[1]) if len(sys.argv) > 1 else 20)
