"""kvpager record --proxy before an engine of ours: answers pass byte by byte, what was asked is in
the recording, an engine that is away is said and waited for, and SIGINT ends the file."""

import http.client
import http.server
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import threading
import time

from lib_kvpager import KVPAGER, check, check_equal, directory, finish, run, skip
from lib_recording import read

BLOCK = 16
QUESTION = "/v1/chat/completions"
FLOOD = 256 << 20


class Engine(http.server.BaseHTTPRequestHandler):
    """Tokens are bytes. An answer is as many letters as max_tokens says."""
    protocol_version = "HTTP/1.1"
    seen, broken, blocked = [], [], threading.Event()

    def log_message(self, *_):
        pass

    def reply(self, code, kind, pieces, headers=()):
        self.send_response(code)
        self.send_header("Content-Type", kind)
        for name, value in headers:
            self.send_header(name, value)
        if len(pieces) == 1:
            self.send_header("Content-Length", str(len(pieces[0])))
        else:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in pieces:
            self.wfile.write(piece if len(pieces) == 1 else b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.flush()
        if len(pieces) > 1:
            self.wfile.write(b"0\r\n\r\n")

    def flood(self):
        """More than what lies between can hold; `blocked` says when nothing more is taken, or all was."""
        self.send_response(200)
        self.send_header("Content-Length", str(FLOOD))
        self.end_headers()
        piece, left = bytes(1 << 16), FLOOD
        while left > 0:
            if not select.select([], [self.connection], [], 1)[1]:
                self.blocked.set()
                select.select([], [self.connection], [])
            left -= self.connection.send(piece[:left], socket.MSG_DONTWAIT)
        self.blocked.set()

    def do_GET(self):
        if self.path == "/flood":
            return self.flood()
        return self.reply(200, "text/plain", [f"{self.path} {self.headers['X-Own']}".encode()],
                          [("X-Answer", "mine")])

    def do_HEAD(self):
        self.send_response(200)
        self.send_header("Content-Length", "77")
        self.end_headers()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.seen.append((self.path, body, dict(self.headers)))
        text = body.get("prompt") or "".join(map(str, (m["content"] for m in body.get("messages", []))))
        if isinstance(text, list):
            text = text[0] if isinstance(text[0], str) else bytes(text).decode()
        if self.path == "/tokenize":
            return self.reply(200, "application/json",
                              [json.dumps({"tokens": list(text.encode()), "count": 1}).encode()])
        if body.get("max_tokens") == -1:
            return self.reply(400, "application/json", [b'{"error": "no"}'])
        n = body["max_tokens"]
        usage = {"prompt_tokens": len(text), "completion_tokens": n,
                 "prompt_tokens_details": {"cached_tokens": len(text) // 2}}
        ids = bool(body.get("return_token_ids"))
        if ids:
            at = {"prompt_token_ids": list(text.encode()), "choices": [{"index": 0, "token_ids": [256] * n}]}
            if not body.get("stream"):
                return self.reply(200, "application/json", [json.dumps(at | {"usage": usage}).encode()])
            first = {"prompt_token_ids": at["prompt_token_ids"], "choices": [{"index": 0, "token_ids": None}]}
            return self.reply(200, "text/event-stream", [b"data: " + json.dumps(of).encode() + b"\n\n" for of in
                              [first] + [{"choices": [{"index": 0, "token_ids": [256]}]}] * n])
        if not body.get("stream"):
            return self.reply(200, "application/json",
                              [json.dumps({"choices": [{"text": "x" * n}], "usage": usage}).encode()])
        events = [{"choices": [{"delta": {"content": "\u00fc"}}], "usage": None} for _ in range(n)]
        if body.get("stream_options"):
            events.append({"choices": [], "usage": usage})
        pieces = [b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n" for event in events]
        pieces[0] = pieces[0] + pieces.pop(1)  # two events at once, and one in pieces
        pieces += [b"data: [DO", b"NE]\n\n"]
        if body.get("hang"):
            try:
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for _ in range(500):
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(pieces[0]), pieces[0]))
                    time.sleep(0.02)
            except OSError:
                self.broken.append(body)
            self.close_connection = True
            return None
        if body.get("break"):
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(pieces[0]), pieces[0]))
            self.close_connection = True
            return None
        return self.reply(200, "text/event-stream; charset=utf-8", pieces)


def serve(port=0):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Engine)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def ask(port, body, path=QUESTION, method="POST", headers=(), sock=False):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(method, path, None if body is None else json.dumps(body), dict(headers))
    if sock:
        return connection
    answer = connection.getresponse()
    data = answer.read()
    return answer.status, data, dict(answer.getheaders())


class Proxy:
    def __init__(self, engine_port, path, *options):
        self.process = subprocess.Popen([KVPAGER, "record", "--proxy", f"http://127.0.0.1:{engine_port}",
                                         "--listen", "127.0.0.1:0", "--out", path, *options],
                                        stderr=subprocess.PIPE, text=True)
        line = self.process.stderr.readline()
        assert "listening on http://127.0.0.1:" in line, line
        self.port = int(line.split("127.0.0.1:")[1].split(",")[0])

    def end(self):
        self.process.send_signal(signal.SIGINT)
        said = self.process.stderr.read()
        return self.process.wait(20), said


def chat(text, n=5, **more):
    return {"model": "m", "messages": [{"role": "user", "content": text}], "max_tokens": n, **more}


def numbered(prompts):
    """Runs of each (scope, text), as a recorder numbers them."""
    numbers, found = {}, []
    for scope, text in prompts:
        runs = []
        for end in range(BLOCK, len(text) + 1, BLOCK):
            number = numbers.setdefault((scope, text[:end]), len(numbers))
            if runs and sum(runs[-1]) == number:
                runs[-1][1] += 1
            else:
                runs.append([number, 1])
        found.append(runs)
    return found


def test_forwards_and_records(folder, engine):
    path = os.path.join(folder, "proxy.kvprec")
    proxy = Proxy(engine.server_port, path)
    long = "a system prompt that is longer than a block. "
    calls = [("m\0", chat(long + "one"), "s1"), ("m\0", chat(long + "two", stream=True), "s2"),
             ("m\0", chat(long + "one", stream=True, stream_options={"include_usage": True}), "s1"),
             ("m\0x", chat(long + "one", cache_salt="x"), None)]
    for _, body, session in calls:
        headers = {"X-Session-Id": session} if session else {}
        through = ask(proxy.port, body, headers=headers)
        check_equal(through[:2], ask(engine.server_port, body)[:2], body)
    text = {"model": "m", "prompt": long, "max_tokens": 3}
    ids = {"model": "n", "prompt": list(b"token ids of one block and more"), "max_tokens": 4}
    for body in (text, dict(text, prompt=[long]), ids):
        ask(proxy.port, body, path="/v1/completions")
    for name in ("GET", "HEAD"):
        through, direct = (ask(port, None, "/any?x=1", name, {"X-Own": "kept"})
                           for port in (proxy.port, engine.server_port))
        check_equal(through[:2], direct[:2], name)
        check_equal(through[2].get("X-Answer"), direct[2].get("X-Answer"), name)
    seen = len(Engine.seen)
    large = ask(proxy.port, {"max_tokens": 1, "prompt": "y" * 300_000}, "/any", headers={"Expect": "100-continue"})
    check_equal(large[0], 200, "a large body")
    check_equal(len(Engine.seen[seen][1]["prompt"]), 300_000, "a large body")
    check("Expect" not in Engine.seen[seen][2], "the proxy's own")
    bad = ask(proxy.port, chat("x" * 40, -1))
    check_equal(bad[:2], (400, b'{"error": "no"}'), "an error of the engine")
    image = chat("")
    image["messages"][0]["content"] = [{"type": "image_url", "image_url": {"url": "x"}}]
    Engine.seen.clear()
    ask(proxy.port, image)
    status, said = proxy.end()
    check_equal(status, 0, said)
    check("messages of more than text" in said and "7 requests recorded, 1 not" in said, said)
    with open(path, "rb") as file:
        header, requests, counts = read(file.read())
    check_equal((header["source"], header["block_tokens"]), (2, BLOCK), "header")
    check_equal((len(requests), counts["lost"]), (7, 1), "requests")
    requests.sort(key=lambda request: request["time_us"])
    prompts = [(scope, body["messages"][0]["content"]) for scope, body, _ in calls]
    prompts += [("m\0", long)] * 2 + [("n\0", "token ids of one block and more")]
    contents = [[first + i for first, n in r["blocks"] for i in range(n)] for r in requests]
    wanted = [[first + i for first, n in runs for i in range(n)] for runs in numbered(prompts)]
    same = {}
    for got, want in zip(contents, wanted):
        check_equal(len(got), len(want), "blocks")
        for a, b in zip(got, want):
            check_equal(same.setdefault(b, a), a, "one number for one content")
    check_equal(len(set(same.values())), len(same), "other numbers for other contents")
    check_equal([r["input_tokens"] for r in requests], [len(text) for _, text in prompts], "input")
    check_equal([r["output_tokens"] for r in requests], [5, 5, 5, 5, 3, 3, 4], "output")
    check_equal([r.get("cached_tokens") for r in requests],
                [len(text) // 2 if i != 1 else None for i, (_, text) in enumerate(prompts)],
                "the engine's hits")
    check_equal([r.get("session") for r in requests], [1, 2, 1] + [None] * 4, "sessions")
    check_equal(len({r["scope"] for r in requests}), 3, "scopes")
    now = time.time() * 1e6
    check(all(now - 60e6 < r["time_us"] < now and 0 <= r["first_us"] <= r["last_us"] < 30e6
              for r in requests), "times", requests)
    check_equal(run("events", "check", path).returncode, 0, "check")
    done = json.loads(run("replay", "--sequential", "--json", "--blocks", "100", path).stdout)
    check(done["reading"]["bound"].startswith("an estimate: the recording lacks requests"), done["reading"])
    check_equal(done["reading"]["provider_cached_tokens"],
                sum(r.get("cached_tokens", 0) for r in requests), "the engine's hits")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def test_engine_away(folder):
    path, port = os.path.join(folder, "away.kvprec"), free_port()
    proxy = Proxy(port, path)
    for _ in range(2):
        status, body, headers = ask(proxy.port, chat("hello"))
        error = json.loads(body)["error"]
        check_equal((status, headers.get("Retry-After"), error["code"]), (503, "1", 503), body)
        check(f"http://127.0.0.1:{port}: the engine is away" in error["message"], error)
    engine = serve(port)
    check_equal(ask(proxy.port, chat("it is back, and a block of it"))[0], 200, "back")
    status, said = proxy.end()
    engine.shutdown()
    engine.server_close()
    check_equal(status, 0, said)
    check_equal((said.count("is away"), said.count("is back")), (1, 1), said)
    with open(path, "rb") as file:
        check_equal([r["input_tokens"] for r in read(file.read())[1]], [29], "recorded")
    done = json.loads(run("replay", "--sequential", "--json", "--blocks", "100", path).stdout)
    check(done["reading"]["bound"].startswith("exact for what prompts share; a lower bound where"), done["reading"])


def test_broken(folder, engine):
    """A client that goes ends the engine's work; an engine that breaks off is seen by the client."""
    path = os.path.join(folder, "broken.kvprec")
    proxy = Proxy(engine.server_port, path)
    Engine.broken.clear()
    connection = ask(proxy.port, chat("a client that goes away", 6, stream=True, hang=True), sock=True)
    check(b"data" in connection.getresponse().read(30), "a stream")
    connection.close()
    connection.sock = None
    end = time.time() + 10
    while not Engine.broken and time.time() < end:
        time.sleep(0.02)
    check_equal(len(Engine.broken), 1, "the engine sees that the client has gone")
    try:
        ask(proxy.port, chat("an engine that breaks off", 6, stream=True, **{"break": True}))
        check(False, "a cut answer looks whole")
    except http.client.IncompleteRead:
        pass
    hang = ask(proxy.port, chat("still there at the end", 6, stream=True, hang=True), sock=True)
    check(b"data" in hang.getresponse().read(30), "a stream")
    proxy.process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    check(proxy.process.poll() is None, "a running answer ends first")
    status, said = proxy.end()
    check_equal(status, 0, said)
    with open(path, "rb") as file:
        _, requests, counts = read(file.read())
    check_equal((len(requests), counts["lost"]), (2, 1), said)
    hang.close()


def test_slow_client(folder, engine):
    """A client that takes nothing: the engine is not read from, and the proxy's memory stays small."""
    proxy = Proxy(engine.server_port, os.path.join(folder, "slow.kvprec"))
    connection = ask(proxy.port, None, "/flood", "GET", sock=True)
    check(Engine.blocked.wait(60), "the engine goes on")
    with open(f"/proc/{proxy.process.pid}/status", encoding="ascii") as file:
        kib = next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
    check(kib < 128 << 10, "memory", kib)
    check_equal(len(connection.getresponse().read()), FLOOD, "all comes in the end")
    connection.close()
    check_equal(proxy.end()[0], 0, "end")


def test_refused(folder):
    path = os.path.join(folder, "refused.kvprec")
    fine = ["--proxy", "http://127.0.0.1:1", "--listen", "127.0.0.1:0", "--out", path]
    for options, words in ((fine[2:], "--proxy or --events: which engine?"), (fine[:4], "--out: which file?"),
                           (["--proxy", "https://x:1"] + fine[2:], "--proxy is 'https://x:1', expected http://"),
                           (["--proxy", "http://x:1/v1"] + fine[2:], "--proxy is 'http://x:1/v1'"),
                           (fine + ["--listen", "8001"], "--listen is '8001', expected HOST:PORT"),
                           (fine + ["--listen", "a:65536"], "--listen is 'a:65536'"),
                           (fine + ["--session-header", "X Id"], "--session-header is 'X Id', expected the name"),
                           (fine + ["--session-header", ""], "--session-header is ''"),
                           (fine + ["x"], "'x' is no option"), (fine + ["--block-tokens", "0"], "--block-tokens")):
        done = run("record", *options)
        check_equal(done.returncode, 2, options)
        check(words in done.stderr.decode(), words, done.stderr)
    check(not os.path.exists(path), "a file was made")
    with open(path, "w", encoding="ascii") as file:
        file.write("mine")
    done = run("record", *fine)
    check(done.returncode == 1 and b"is there already" in done.stderr, done.stderr)
    with open(path, encoding="ascii") as file:
        check_equal(file.read(), "mine", "kept")
    done = run("record", *fine[:2], "--listen", "192.0.2.1:1", "--out", path + "2")
    check(done.returncode == 1 and b"cannot listen on 192.0.2.1:1" in done.stderr, done.stderr)


if b"record" not in run("help").stdout.split():
    skip("this kvpager was built without libevent")
if shutil.which("zstd") is None:
    skip("there is no zstd")
def test_token_ids(folder, engine):
    """A client that asks for token ids: those of the answer are recorded, and nothing is tokenized."""
    path = os.path.join(folder, "ids.kvprec")
    proxy = Proxy(engine.server_port, path)
    Engine.seen.clear()
    text = "a prompt of more than one block, whose answer has ids"
    for stream in (False, True):
        body = chat(text, 43, stream=stream, return_token_ids=True)
        check_equal(ask(proxy.port, body)[:2], ask(engine.server_port, body)[:2], body)
    status, said = proxy.end()
    check(all(called != "/tokenize" for called, _, _ in Engine.seen), Engine.seen)
    with open(path, "rb") as file:
        _, requests, counts = read(file.read())
    check_equal((status, counts["lost"], len(requests)), (0, 0, 2), said)
    for request in requests:
        check_equal((request["input_tokens"], request["output_tokens"]), (len(text), 43), request)
        check_equal((len(text) + 43) % BLOCK, 0, "the last token, which has no KV, fills a block")
        check_equal(request["blocks"], [[0, (len(text) + 42) // BLOCK]], request)


with directory() as temporary:
    test_refused(temporary)
    one = serve()
    test_forwards_and_records(temporary, one)
    test_token_ids(temporary, one)
    test_engine_away(temporary)
    test_broken(temporary, one)
    test_slow_client(temporary, one)
finish()
