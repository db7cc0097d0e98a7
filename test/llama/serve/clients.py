"""200 clients at once, of which a third go away, at any moment of their answers."""

import http.client
import json
import random
import sys
import threading
import time

from lib_server import Server, greedy

SHARED = [f"System prompt number {i}: answer shortly, and be kind to everybody. " * 3 for i in range(4)]


def client(server, number, failures, seed):
    source = random.Random(seed * 1000 + number)
    prompt = source.choice(SHARED) + f"client {number % 50}"
    body = {"prompt": prompt, "max_tokens": 24, "temperature": 0, "stream": number % 2 == 0}
    goes_away = number % 3 == 0
    try:
        connection = http.client.HTTPConnection(server.host, server.port, timeout=120)
        connection.request("POST", "/v1/completions", json.dumps(body))
        if goes_away and source.random() < 0.5:
            time.sleep(source.random() * 0.2)
            connection.close()
            return
        answer = connection.getresponse()
        if answer.status == 429:
            failures.append("429")
            return
        if goes_away:
            answer.read(source.randint(1, 300))
            answer.close()
            connection.close()
            return
        data = answer.read().decode()
        connection.close()
        if body["stream"]:
            events = [json.loads(line[6:]) for line in data.split("\n")
                      if line.startswith("data: {")]
            text = "".join(event["choices"][0]["text"] for event in events)
            assert data.endswith("data: [DONE]\n\n"), data[-100:]
        else:
            text = json.loads(data)["choices"][0]["text"]
        if text != greedy(prompt, 24)[0]:
            failures.append((prompt, text))
    except (OSError, AssertionError, http.client.HTTPException) as error:
        failures.append(repr(error))


def run(rounds):
    with Server("-c", "4096", "-np", "32", "--max-queue", "256",
                model="fake-model step_us=1000") as server:
        for seed in range(rounds):
            failures = []
            threads = [threading.Thread(target=client, args=(server, i, failures, seed))
                       for i in range(200)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert not failures, failures[:3]
        for _ in range(2000):
            metrics = server.metrics()
            if (metrics["requests_running"] + metrics["requests_waiting"] == 0
                    and metrics["http_connections"] <= 2): # those of this scrape
                break
            time.sleep(0.005)
        assert metrics["requests_ended_total"] >= 133 * rounds, metrics
        assert metrics["requests_failed_total"] == 0 and metrics["http_overloads_total"] == 0
        assert metrics['blocks{state="held"}'] == 0
        assert metrics["http_connections"] <= 2, metrics["http_connections"]


if __name__ == "__main__":
    run(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
