#!/usr/bin/env bash
# pyzmq 27.3.0 (libzmq 4.3.5): a reader with ZMQ_MAXMSGSIZE gets nothing more after one message over it.
#
# Expected: the reader of an engine's KV events limits the size of a message, as a careful reader does. The manual says that a peer
# which sends a larger one is disconnected; a connection that ends is made again after ZMQ_RECONNECT_IVL, as for
# every other end. So the reader loses messages, sees the gap in their numbers, and goes on.
# Seen: it is disconnected, and never connects again: no attempt is made and no call fails, so it looks like an
# engine that has nothing to say. Where the publisher cuts the connection itself, the reader is back at once.
#
# kvpager's: `kvpager record` watches its connection, and makes one anew that libzmq gave up
# (test/tools/record_events.py, test_broken_wire).
#
# Downloads 2 MB. Status 0: it is so.
set -euo pipefail

room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet pyzmq==27.3.0
cat >"$room/run.py" <<'END'
import time

import zmq
from zmq.utils.monitor import recv_monitor_message

context = zmq.Context()
SHOWN = (zmq.EVENT_CONNECTED, zmq.EVENT_DISCONNECTED, zmq.EVENT_CONNECT_RETRIED)


def publisher(port=None):
    pub = context.socket(zmq.PUB)
    pub.linger = 0
    if port is None:
        return pub, pub.bind_to_random_port("tcp://127.0.0.1")
    pub.bind(f"tcp://127.0.0.1:{port}")
    return pub, port


def read(sub):
    got = []
    while sub.poll(300):
        got.append(len(sub.recv()))
    return got


def run(words, limit, size, restarts=False):
    """What a reader gets of 10 bytes, `size` bytes, and, three seconds later, of 20."""
    pub, port = publisher()
    sub = context.socket(zmq.SUB)
    sub.maxmsgsize, sub.reconnect_ivl = limit, 10
    sub.subscribe(b"")
    monitor = sub.get_monitor_socket()
    sub.connect(f"tcp://127.0.0.1:{port}")
    time.sleep(0.5)
    pub.send(bytes(10))
    got = read(sub)
    pub.send(bytes(size))
    got += read(sub)
    if restarts:
        pub.close()
        time.sleep(0.5)
        pub, _ = publisher(port)
    for _ in range(10):  # each call lets libzmq go on with a new connection
        got += read(sub)
    pub.send(bytes(20))
    got += read(sub)
    events = []
    while monitor.poll(10):
        event = recv_monitor_message(monitor)["event"]
        if event in SHOWN and event not in events[-1:]:
            events.append(event)
    print(words, got, *(zmq.Event(event).name for event in events))
    sub.disable_monitor()
    sub.close()
    pub.close()


run("no limit:", -1, 2000)
run("a limit of 1000 bytes:", 1000, 2000)
run("the same, and a publisher that starts again:", 1000, 2000, restarts=True)
run("no limit, a publisher that starts again:", -1, 2000, restarts=True)
END
timeout 120 "$room/venv/bin/python" "$room/run.py" | tee "$room/printed"
diff - "$room/printed" <<'END'
no limit: [10, 2000, 20] CONNECTED
a limit of 1000 bytes: [10] CONNECTED DISCONNECTED
the same, and a publisher that starts again: [10] CONNECTED DISCONNECTED
no limit, a publisher that starts again: [10, 2000, 20] CONNECTED DISCONNECTED CONNECT_RETRIED CONNECTED
END
