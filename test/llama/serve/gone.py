"""Clients that go away, a full queue, and the end of the server: each within a step."""

import json
import signal
import socket
import threading
import time

from lib_server import Server, greedy

LONG = {"max_tokens": 3000, "ignore_eos": True, "temperature": 0}
# Eight requests grow into each other's cells after 512 steps: ten seconds, in which a slow machine
# has to look once.
SLOW = "fake-model step_us=20000"


def wait_for(server, **wanted):
    """Until metrics have these values; gives the last ones."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        found = server.metrics()
        if all(found[name] == value for name, value in wanted.items()):
            return found
        time.sleep(0.005)
    raise AssertionError((wanted, found))


def open_request(server, **body):
    data = json.dumps(body).encode()
    connection = socket.create_connection((server.host, server.port), timeout=60)
    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                       + str(len(data)).encode() + b"\r\n\r\n" + data)
    return connection


def check_gone(server):
    """Streams, plain answers, and a request that still waits for a place."""
    clients = [open_request(server, prompt=f"client {i}", stream=i % 2 == 0, **LONG) for i in range(9)]
    before = wait_for(server, requests_running=8, requests_waiting=1)
    for i in range(0, 8, 2):
        assert b"200 OK" in clients[i].recv(65536)
    steps = server.metrics()["steps_total"]
    for client in clients:
        client.close()
    after = wait_for(server, requests_running=0, requests_waiting=0)
    assert after["requests_aborted_total"] - before["requests_aborted_total"] == 9, after
    assert after["steps_total"] - steps < 100, (steps, after["steps_total"])
    assert after['blocks{state="held"}'] == 0
    # What they had is still cached, and right.
    found = server.post("/v1/completions", prompt="client 0", max_tokens=6, temperature=0)
    assert found["choices"][0]["text"] == greedy("client 0", 6)[0]
    assert server.metrics()["requests_ended_total"] == 1


def check_full(server):
    clients = [open_request(server, prompt=f"queue {i}", **LONG) for i in range(10)]
    wait_for(server, requests_running=8, requests_waiting=2)
    status, headers, body = server.ask("POST", "/v1/completions", {"prompt": "a"})
    assert status == 429 and 1 <= int(headers["Retry-After"]) <= 60, (status, headers)
    assert json.loads(body)["error"]["type"] == "rate_limit_error"
    for client in clients:
        client.close()
    wait_for(server, requests_running=0, requests_waiting=0)
    found = server.post("/v1/completions", prompt="a", max_tokens=2, temperature=0)
    assert found["choices"][0]["text"] == greedy("a", 2)[0]
    assert server.metrics()["http_overloads_total"] == 1


def check_end():
    """A step of the model takes 20 seconds: SIGTERM does not wait for it."""
    with Server("-c", "4096", model="fake-model step_us=20000000") as server:
        answers = []
        thread = threading.Thread(target=lambda: answers.append(
            server.ask("POST", "/v1/completions", {"prompt": "hello"})))
        thread.start()
        stream = open_request(server, prompt="hello", stream=True)
        wait_for(server, requests_total=2)
        begin = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(timeout=15) == 0
        assert time.monotonic() - begin < 5, "it ended too late"
        thread.join()
        assert answers[0][0] == 503 and b"the server ends" in answers[0][2], answers
        found = b""
        while piece := stream.recv(65536):
            found += piece
        assert b'"message":"the server ends"' in found, found
        stream.close()


def main():
    with Server("-c", "4096", "-np", "8", "--max-queue", "10", model=SLOW) as server:
        check_gone(server)
        check_full(server)
    check_end()


if __name__ == "__main__":
    main()
