"""kvpager record --events beside an engine of ours: requests are recorded as far as events tell of
them, the rest is counted; what is lost is asked for; a publisher that restarts, repeats, skips, or
sends what is not understood is named and not believed; an engine that is away is waited for."""

import contextlib
import http.server
import json
import os
import struct
import threading

from lib_events import CLEARED, Publisher, Recording, removed, stored
from lib_kvpager import check, check_equal, directory, finish, run, skip
from lib_zmtp import pack


class Metrics(http.server.BaseHTTPRequestHandler):
    counts, blocks, asked = (0, 0), 100, None

    def text(self):
        queries, hits = self.counts
        return (f"# HELP vllm:prefix_cache_queries_total x\n"
                f'vllm:prefix_cache_queries_total{{engine="0",model_name="a }} b"}} {float(queries)}\n'
                f'vllm:prefix_cache_hits_total{{engine="0",model_name="m"}} {float(hits)}\n'
                f'vllm:cache_config_info{{block_size="16",num_gpu_blocks="{self.blocks}",x="y"}} 1.0\n')

    def log_message(self, *_):
        pass

    def do_GET(self):
        text = self.text().encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
        self.asked.release()


class Sglang(Metrics):
    """Sources: hits by where they were."""
    sources, tokens = {"host": 7}, 1600

    def text(self):
        return (f'sglang:prompt_tokens_total{{model_name="m"}} {self.counts[0]}\n' +
                "".join(f'sglang:cached_tokens_total{{cache_source="{name}",model_name="m"}} {n}\n'
                        for name, n in self.sources.items()) +
                f'sglang:max_total_num_tokens{{model_name="m"}} {self.tokens}\n')


def serve_metrics(queries=0, hits=0, base=Metrics, is_away=False):
    """is_away: it has its port, and nobody is there until begin()."""
    kind = type("Own", (base,), {"counts": (queries, hits), "asked": threading.Semaphore(0)})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind, bind_and_activate=False)
    server.daemon_threads = True
    server.server_bind()
    if not is_away:
        begin(server)
    return server, kind


def begin(server):
    server.server_activate()
    threading.Thread(target=server.serve_forever, daemon=True).start()


def request(n_input, n_output, cached, *blocks):
    return {"input_tokens": n_input, "output_tokens": n_output, "cached_tokens": cached,
            "blocks": [list(run) for run in blocks]}


def test_reports(folder, with_topic):
    """Source 3, with everything that a wire can do to it."""
    publisher = Publisher(with_topic)
    publisher.batches[3] = pack([1.0, [stored([10, 11])], 0])  # before the recording
    recording = Recording(os.path.join(folder, f"reports{with_topic}.kvprec"), "--lookups", "--events",
                          publisher.url, "--replay", publisher.replay)
    publisher.accept()
    recording.wait_for("receives events")
    publisher.publish(4, [stored([10, 11], None)])         # a report: hits what was there before
    publisher.publish(5, [stored([12, 13], 11)])           # and what it computed
    publisher.publish(6, [stored([20, 21, 22], None)], lose=True)
    publisher.publish(7, [stored([23], 22)], lose=True)
    publisher.publish(8, [["BlockStored", [24, 25], 21, [1], 16, None, "GPU"]])  # as before vLLM 0.24
    publisher.publish(5, [stored([99], None)], time=5.0)   # again, and it is not what it was
    publisher.publish(9, b"\xc1 what is this")
    publisher.publish(10, [stored([30, 31], None), {"type": "New", "x": [{}]}])
    publisher.subscriber.send(b"kv", b"short")
    del publisher.batches[9]
    publisher.publish(15, [stored([40, 41], 31)])          # 11 to 14 are nowhere
    recording.wait_for("batches 11 to 14 were not heard")
    publisher.batches.clear()
    publisher.publish(0, [stored([10, 11], None)], time=99.0, lose=True)  # a new start: 10 is not in its cache
    publisher.publish(2, [stored([12, 13], None)], time=100.0)
    recording.wait_for("batches 0 to 1 were not heard")
    status, header, requests, counts = recording.end()
    check_equal((status, header["source"], header["block_tokens"]), (0, 3, 16), recording.said)
    check_equal(requests, [request(64, 0, 32, (0, 4)), request(48, 16, 0, (4, 4)),
                           request(64, 0, 32, (4, 2), (8, 2)), request(32, 32, 0, (10, 4)),
                           request(32, 0, 0, (14, 2)), request(32, 0, 0, (16, 2))], recording.said)
    check_equal(counts["lost"], 6, counts)
    check_equal(publisher.asked, [0, 6, 11, 0], "asked for")
    for words in ("batches 11 to 14 were not heard; 0 of them came by replay",
                  "batches 0 to 1 were not heard; 1 of them came by replay",
                  "repeats number 5 after 8", "batch 9 is not understood, and left out: the batch is cut off",
                  "a type that is not known", "a message of 2 frames is not understood",
                  "restarted: its numbers go back from 15 to 2"):
        check(words in recording.said, words, recording.said)
    check("10 batches, 5 missing, 1 repeated or late, 2 not understood, 1 restarts" in recording.said,
          recording.said)
    publisher.close()


def test_counters(folder):
    """Source 4: between bounds, which mrc prints."""
    publisher, (server, metrics) = Publisher(), serve_metrics(1000, 400)
    path = os.path.join(folder, "events.kvprec")
    recording = Recording(path, "--events", publisher.url, "--metrics",
                          f"http://127.0.0.1:{server.server_port}", "--period", "0.01")
    publisher.accept()
    recording.wait_for("receives events")
    publisher.publish(1, [stored([10, 11, 12, 13])])
    publisher.publish(2, [removed([13]), removed([12])])
    publisher.publish(3, [stored([20], 11), stored([14], 13), stored([50], medium="CPU")])
    publisher.publish(4, [stored([12, 13], 11)])
    metrics.counts = (1000 + 64 + 33 + 64 + 100, 400 + 32 + 32 + 96)
    while metrics.asked.acquire(blocking=False):
        pass
    for _ in range(3):  # what is asked for now began behind the counters' change
        assert metrics.asked.acquire(timeout=30)
    status, header, requests, _ = recording.end()
    check_equal((status, header["source"]), (0, 4), recording.said)
    unseen = [of for of in requests if not of["blocks"]]
    check_equal((sum(of["input_tokens"] for of in unseen), sum(of["cached_tokens"] for of in unseen)),
                (100, 96), requests)
    check_equal([of for of in requests if of["blocks"]],
                [request(33, 15, 32, (0, 3)), request(64, 16, 0, (0, 2), (3, 3)),
                 request(64, 0, 32, (0, 2), (3, 2)) | {"again": [[0, 1, True], [0, 2, False]]}], requests)
    lines = [json.loads(line) for line in run("events", "cat", path).stdout.splitlines()]
    check_equal(lines[0]["engine_blocks"], 100, lines)
    check(any(of.get("unseen") for of in lines[1:-1]), lines)
    check("coverage        61.69 %" in run("events", "check", path).stdout.decode(),
          run("events", "check", path).stdout)
    done = json.loads(run("mrc", "--json", "--sizes", "50,100,101,103,200", path).stdout)
    check_equal(done["reading"]["engine_blocks"], 100, done["reading"])
    check(done["reading"]["bound"].startswith("lower bounds"), done["reading"])
    rows = {of["blocks"]: (of["hit_tokens_at_least"], of["hit_tokens_at_most"]) for of in done["sizes"]}
    check_equal(rows[100], (160, 160), rows)
    check(rows[50][1] == 160, rows)
    check_equal(rows[200], (176, 192), rows)
    text = run("mrc", "--sizes", "100,200", path).stdout.decode()
    check("the engine hit 61.30 % in 100 such blocks" in text and "width" in text, text)
    text = run("mrc", "--block-tokens", "32", "--sizes", "50", path).stdout.decode()
    check("the engine hit 61.30 % in 50 such blocks" in text, text)
    for more in (["--limit", "3"], [path]):  # not all of what an engine was asked, or of several
        done = json.loads(run("mrc", "--json", "--sizes", "100,200", *more, path).stdout)
        check(all("hit_tokens_at_least" not in of for of in done["sizes"]), more, done["sizes"])
        check("Bounds" not in run("mrc", *more, path).stdout.decode(), more)
    check("lower bounds" in run("replay", "--sequential", "--blocks", "200", path).stdout.decode(), "replay")
    publisher.close()
    server.shutdown()


def test_waits(folder):
    """An engine that is away, twice; a file that cannot be gone on with."""
    publisher, (server, _) = Publisher(is_away=True), serve_metrics(is_away=True)
    recording = Recording(os.path.join(folder, "waits.kvprec"), "--events", publisher.url, "--metrics",
                          f"http://127.0.0.1:{server.server_port}", "--period", "0.01")
    recording.wait_for("waiting for the counters of the engine")
    begin(server)
    recording.wait_for("waiting for events")
    publisher.listening.listen()
    publisher.accept()
    publisher.publish(1, [stored([1, 2])])
    recording.wait_for("receives events")
    publisher.hang_up()
    recording.wait_for("is away; waiting")
    publisher.accept()
    publisher.publish(2, [CLEARED, stored([1, 2])], time=9.0)
    publisher.publish(3, [stored([5, 6], block_size=32)], time=10.0)
    recording.wait_for("blocks have 32 tokens, expected 16 (--block-tokens)")
    status, _, requests, _ = recording.end()
    check_equal(status, 1, recording.said)
    check_equal([of["blocks"] for of in requests], [[[0, 2]], [[2, 2]]], requests)
    publisher.close()
    server.shutdown()


def test_clock_back(folder):
    """An engine that has restarted with a clock that was set back: its counters tell."""
    publisher, (server, metrics) = Publisher(), serve_metrics(1000, 400)
    recording = Recording(os.path.join(folder, "clock.kvprec"), "--events", publisher.url, "--metrics",
                          f"http://127.0.0.1:{server.server_port}", "--period", "0.01")
    publisher.accept()
    publisher.publish(7, [stored([10, 11])], time=99.0)
    publisher.publish(7, [stored([20, 21])], time=98.0)
    recording.wait_for("repeats number 7 after 7")
    metrics.counts = (0, 0)
    while metrics.asked.acquire(blocking=False):
        pass
    for _ in range(3):
        assert metrics.asked.acquire(timeout=30)
    publisher.publish(1, [stored([30, 31])], time=5.0)
    recording.wait_for("restarted: its numbers go back from 7 to 1")
    publisher.publish(1, [stored([40, 41])], time=5.0)
    recording.wait_for("repeats number 1 after 1")
    status, _, requests, counts = recording.end()
    check_equal((status, counts["lost"]), (0, 1), recording.said)
    check_equal([of["blocks"] for of in requests if of["blocks"]], [[[0, 2]], [[2, 2]]], requests)
    publisher.close()
    server.shutdown()


def test_broken_wire(folder):
    """A handshake of another kind, or a message beyond all size: libzmq gives such a connection up; it is made again."""
    publisher = Publisher()
    recording = Recording(os.path.join(folder, "broken.kvprec"), "--lookups", "--events", publisher.url, "--replay",
                          publisher.replay)
    publisher.listening.settimeout(30)
    stranger = publisher.listening.accept()[0]
    stranger.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"PLAIN".ljust(20, b"\0") + bytes(32))
    publisher.accept()
    publisher.publish(1, [stored([1, 2])])
    recording.wait_for("receives events")
    publisher.subscriber.socket.sendall(struct.pack(">BQ", 2, 1 << 40))
    recording.wait_for("is away; waiting")
    publisher.accept()
    publisher.publish(4, [stored([3, 4])])
    recording.wait_for("batches 2 to 3 were not heard")
    publisher.publish(2 ** 64 - 1, [stored([5, 6])])
    publisher.publish(5, [stored([7, 8])])
    recording.wait_for("expected topic, number, batch")
    status, _, requests, counts = recording.end()
    check_equal((status, counts["lost"], len(requests)), (0, 2, 3), recording.said)
    stranger.close()
    publisher.close()


def test_sglang(folder):
    """Hits by their source; reasons to wait, each once; a cache that changes its size."""
    publisher, (server, metrics) = Publisher(), serve_metrics(1000, 0, Sglang)
    metrics.tokens = 0
    path = os.path.join(folder, "sglang.kvprec")
    recording = Recording(path, "--events", publisher.url, "--metrics",
                          f"http://127.0.0.1:{server.server_port}", "--period", "0.01")
    recording.wait_for("and no sglang:max_total_num_tokens")
    metrics.sources, metrics.tokens = {"host": 7, "storage": 9}, 1600
    recording.wait_for("it counts hits several times, none of them of cache_source device or total")
    metrics.sources = {"host": 7, "total": 115, "device": 100}
    publisher.accept()
    recording.wait_for("receives events")
    publisher.publish(0, [stored([10, 11, 12, 13])])
    metrics.counts, metrics.sources = (1564, 0), {"host": 9, "device": 260}
    metrics.tokens = 3200
    recording.wait_for("the engine has 200 blocks, not 100 as before")
    status, _, requests, counts = recording.end()
    unseen = [of for of in requests if not of["blocks"]]
    check_equal((status, counts["lost"]), (0, 1), recording.said)
    check_equal((sum(of["input_tokens"] for of in unseen), sum(of["cached_tokens"] for of in unseen)),
                (500, 160), requests)
    check("it counts hits several times" in recording.said and
          recording.said.count("waiting for the counters") == 2, recording.said)
    done = json.loads(run("mrc", "--json", path).stdout)
    check(done["reading"]["bound"].startswith("estimates, not bounds"), done["reading"])
    check("Estimates of the hits; the engine hit" in run("mrc", path).stdout.decode(), "mrc")
    publisher.close()
    server.shutdown()


def test_busy(folder):
    """An engine that does not stop, when SIGINT ends its recording."""
    publisher, ended = Publisher(), threading.Event()
    recording = Recording(os.path.join(folder, "busy.kvprec"), "--lookups", "--events", publisher.url)
    publisher.accept()
    recording.wait_for("receives events")

    def send():
        number = 0
        with contextlib.suppress(OSError):  # it has ended
            while not ended.wait(0.01):
                number += 1
                publisher.publish(number, [stored([number])])

    sender = threading.Thread(target=send)
    sender.start()
    try:
        status, _, requests, counts = recording.end()
    finally:
        ended.set()
        sender.join()
    check_equal((status, counts["lost"]), (0, 0), recording.said)
    check(len(requests) > 0, recording.said)
    publisher.close()


def test_endless(folder):
    """A replay that never ends, when SIGINT ends its recording."""
    publisher = Publisher()
    publisher.is_endless = True
    recording = Recording(os.path.join(folder, "endless.kvprec"), "--lookups", "--events", publisher.url,
                          "--replay", publisher.replay)
    publisher.accept()
    publisher.publish(7, [stored([1, 2])])
    check(publisher.is_asked.wait(30), "it asks for what was there")
    status, _, requests, _ = recording.end()
    check_equal((status, [of["blocks"] for of in requests]), (0, [[[0, 2]]]), recording.said)
    publisher.close()


def test_refused(folder):
    path = os.path.join(folder, "refused.kvprec")
    done = run("record", "--out", path, "--events", "tcp://127.0.0.1:1", "--lookups", "--replay", "tcp://a")
    check(done.returncode == 1 and b"--replay: cannot connect: Invalid argument" in done.stderr, done.stderr)
    check(not os.path.exists(path), "a file was made")
    out = ["--out", "x.kvprec"]
    for options, words in (
            ([*out, "--events", "tcp://a:1"], "--events needs --metrics URL"),
            ([*out, "--events", "http://a:1", "--lookups"], "--events is 'http://a:1', expected tcp://HOST:PORT"),
            ([*out, "--events", "tcp://a:1", "--lookups", "--replay", "a"], "--replay is 'a', expected"),
            ([*out, "--events", "tcp://a:1", "--metrics", "x"], "--metrics is 'x', expected http://HOST:PORT"),
            ([*out, "--events", "tcp://a:1", "--proxy", "http://b"], "--events and --proxy"),
            ([*out, "--events", "tcp://a:1", "--lookups", "--metrics", "http://a"], "--lookups and --metrics"),
            ([*out, "--proxy", "http://b", "--lookups"], "--lookups"), (out, "--proxy or --events: which engine?")):
        done = run("record", *options)
        check_equal(done.returncode, 2, options)
        check(words in done.stderr.decode(), words, done.stderr.decode())


if b"without libzmq" in run("record", "--out", "x", "--events", "tcp://a:1", "--lookups", "--replay", "a").stderr:
    skip("this kvpager was built without libzmq")
if b"--events" not in run("record", "--help").stdout:
    skip("this kvpager was built without libevent or libzstd")
with directory() as temporary:
    test_reports(temporary, True)
    test_reports(temporary, False)
    test_counters(temporary)
    test_sglang(temporary)
    test_clock_back(temporary)
    test_broken_wire(temporary)
    test_busy(temporary)
    test_endless(temporary)
    test_waits(temporary)
    test_refused(temporary)
finish()
