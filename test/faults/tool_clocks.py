#!/usr/bin/env python3
"""kvpager record beside clocks that are not the test's own (tool_system.c): the one on the wall goes
back an hour from look to look, and of the other a second passes, or a microsecond."""

import http.server
import json
import os
import re
import sys
import threading
import urllib.request

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools"))
from lib_events import Publisher, Recording, stored  # noqa: E402
from lib_kvpager import check_equal, directory, finish  # noqa: E402


def test_back(folder):
    """A request of two events, between which the wall's clock went back."""
    publisher = Publisher()
    recording = Recording(os.path.join(folder, "back.kvprec"), "--lookups", "--events", publisher.url)
    publisher.accept()
    recording.wait_for("receives events")
    publisher.publish(1, [stored([1, 2])])
    publisher.publish(2, [stored([3, 4], 2)])
    status, _, requests, counts = recording.end()
    check_equal((status, [of["blocks"] for of in requests], counts["lost"]), (0, [[[0, 4]]], 0), recording.said)
    publisher.close()


class Engine(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"choices": [{"text": "x"}], "usage": {"prompt_tokens": 32, "completion_tokens": 1}}')


def test_back_behind_a_proxy(folder):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Engine) as engine:
        threading.Thread(target=engine.serve_forever, daemon=True).start()
        recording = Recording(os.path.join(folder, "proxy.kvprec"), "--proxy",
                              f"http://127.0.0.1:{engine.server_port}", "--listen", "127.0.0.1:0")
        recording.wait_for("listening on")
        url = re.search(r"http://[\d.:]+", recording.said)[0] + "/v1/completions"
        body = json.dumps({"prompt": list(range(32)), "max_tokens": 1}).encode()
        with urllib.request.urlopen(urllib.request.Request(url, body), timeout=30) as answer:
            answer.read()
        status, _, requests, counts = recording.end()
        engine.shutdown()
    check_equal((status, [of["blocks"] for of in requests], counts["lost"]), (0, [[[0, 2]]], 0), recording.said)


def test_endless(folder):
    """A replay that never ends is given up when its time is over; what comes then is taken."""
    publisher = Publisher()
    publisher.is_endless = True
    recording = Recording(os.path.join(folder, "endless.kvprec"), "--lookups", "--events", publisher.url,
                          "--replay", publisher.replay, env=dict(os.environ, KVP_TICK_US="1000000"))
    publisher.accept()
    publisher.publish(7, [stored([1, 2])])
    publisher.publish(8, b"\xc1 what is this")
    recording.wait_for("batch 8 is not understood")
    status, _, requests, _ = recording.end()
    check_equal((status, [of["blocks"] for of in requests]), (0, [[[0, 2]]]), recording.said)
    publisher.close()


with directory() as temporary:
    test_back(temporary)
    test_back_behind_a_proxy(temporary)
    test_endless(temporary)
finish()
