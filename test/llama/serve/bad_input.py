"""What clients get wrong: malformed HTTP and JSON. The server answers, and answers others after it."""

import errno
import json
import random
import socket

from lib_server import Server, greedy

GOOD = {"prompt": "hello", "max_tokens": 3, "temperature": 0, "stop": ["\u00e9"], "n": 2,
        "logit_bias": {"65": 1}, "logprobs": 2, "stream": False, "cache_salt": "x"}
ODD = [None, True, -1, 0, 1.5, 1e308, 2 ** 63, "", "\u0000", "\ud800", "a" * 70000, [], {}, [[]],
       {"a": {"b": []}}, [None], ["a", 5], {"65": None}, [2 ** 40], "\U0001f600"]


def send(server, data, shuts=True):
    """The first line of the answer to raw bytes; b"" if the connection was closed without one."""
    with socket.create_connection((server.host, server.port), timeout=30) as connection:
        try:
            connection.sendall(data)
            if shuts:
                connection.shutdown(socket.SHUT_WR)
            found = b""
            while True:
                piece = connection.recv(65536)
                found += piece
                if not piece or b"\r\n" in found:
                    return found.split(b"\r\n")[0]
        except OSError as error:  # it was closed, perhaps before the last bytes were sent
            if error.errno not in (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN):
                raise
            return b""


def post(body, *headers):
    lines = ["POST /v1/completions HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def check_alive(server):
    answer = server.post("/v1/completions", prompt="hello", max_tokens=3, temperature=0)
    assert answer["choices"][0]["text"] == greedy("hello", 3)[0]


def check_json(server):
    for body in [b"", b"{", b"[]", b"null", b'"a"', b"{} {}", b'{"prompt": "a", "prompt": "b"}',
                 b"[" * 60000, b'{"prompt": "\xff"}', b'{"prompt": "\\ud800"}', b"\0", b'{"a":1e999}',
                 b'{"prompt": "\\u0000"}']:
        status, _, answer = server.ask("POST", "/v1/completions", body)
        assert status == 400 and json.loads(answer)["error"]["message"], (body[:40], status, answer)
    check_alive(server)


def check_mutants(server):
    """Good requests with members replaced, and bytes of them changed: 200 or 400, never more."""
    source = random.Random(1)
    for _ in range(400):
        body = dict(GOOD)
        for name in source.sample(sorted(body), source.randint(1, 3)):
            body[name] = source.choice(ODD)
        data = json.dumps(body).encode()
        if source.random() < 0.5:
            data = bytearray(data)
            for _ in range(source.randint(1, 4)):
                data[source.randrange(len(data))] = source.randrange(256)
        status, _, answer = server.ask("POST", source.choice(["/v1/completions", "/tokenize",
                                                               "/v1/chat/completions"]), bytes(data))
        assert status in (200, 400), (status, data[:300], answer)
        if not (status == 200 and b"data: " in answer):
            json.loads(answer)
    check_alive(server)


def check_http(server):
    for data, wanted in [
            (b"GARBAGE\r\n\r\n", (b"400", b"")), (b"\r\n" * 10, (b"400", b"")),
            (b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n", (b"505", b"400", b"200", b"")),
            (b"GET / HTTP/1.1\r\nHost: localhost\r\nA: " + b"a" * 200000 + b"\r\n\r\n", (b"431", b"413", b"400", b"")),
            (b"GET /" + b"a" * 200000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", (b"414", b"431", b"400", b"")),
            (post(b"{}", "Transfer-Encoding: chunked"), (b"400", b"")),
            (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n", (b"400", b"413", b"")),
            (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n", (b"413",)),
            (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{", (b"",)),
            (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" +
             b"fff\r\n" + b" " * 4095 + b"\r\n" + b"zz\r\n", (b"400", b""))]:
        line = send(server, data, shuts=False if wanted == (b"413",) else True)
        code = line.split(b" ")[1] if line else b""
        assert code in wanted, (data[:80], line)
    source = random.Random(2)
    whole = post(json.dumps(GOOD).encode())
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(source.randint(1, 6)):
            data[source.randrange(len(data))] = source.randrange(256)
        send(server, bytes(data[:source.randint(1, len(data))]))
    check_alive(server)


def check_paths(server):
    for method, path, wanted in [("GET", "/nothing", 404), ("POST", "/", 405), ("GET", "/tokenize", 405),
                                 ("DELETE", "/v1/models", 405), ("GET", "/v1/completions", 405)]:
        status, _, body = server.ask(method, path, "{}" if method == "POST" else None)
        assert status == wanted and "error" in json.loads(body), (path, status)
    assert server.ask("HEAD", "/")[0] == 200
    too_long = b'{"prompt": "' + b"a" * 70000 + b'"}'
    assert server.ask("POST", "/v1/completions", too_long)[0] == 413
    chunks = (b" " * 4096 for _ in range(40))
    try:
        status = server.ask("POST", "/v1/completions", chunks)[0]
    except OSError:
        status = 413
    assert status in (413, 400), status
    check_alive(server)


def check_sites(server):
    """Other sites' pages in a browser of this machine."""
    here = f"{server.host}:{server.port}"
    for headers, wanted in [
            ({"Host": here, "Origin": "http://evil.example"}, 403), ({"Host": "evil.example"}, 403),
            ({"Host": here, "Origin": "null"}, 403), ({"Host": "127.0.0.1.evil.example"}, 403),
            ({"Host": here, "Origin": f"http://{here}"}, 200), ({"Host": "localhost:1"}, 200),
            ({"Host": "[::1]:80"}, 200), ({"Host": "127.0.0.2"}, 200)]:
        for path in ["/health", "/v1/models", "/"]:
            status = server.ask("GET", path, headers=headers)[0]
            assert status == wanted, (headers, path, status)


def check_key():
    with Server("--api-key", "sesame") as server:
        for value, wanted in [(None, 401), ("sesame", 401), ("Bearer ", 401), ("Bearer sesam", 401),
                              ("Bearer sesamee", 401), ("Bearer sesame", 200)]:
            headers = {"Authorization": value} if value is not None else {}
            for path in ["/v1/models", "/metrics", "/kvpager/state"]:
                assert server.ask("GET", path, headers=headers)[0] == wanted, (path, value)
            status = server.ask("POST", "/v1/completions", {"prompt": "a", "max_tokens": 1}, headers)[0]
            assert status == wanted
        assert server.ask("GET", "/health")[0] == 200 and server.ask("GET", "/")[0] == 200


def main():
    with Server("-c", "1024", "--max-body-kib", "64") as server:
        check_json(server)
        check_http(server)
        check_paths(server)
        check_sites(server)
    with Server("-c", "1024") as server:
        check_mutants(server)
    check_key()


if __name__ == "__main__":
    main()
