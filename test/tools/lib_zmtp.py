"""As much of ZeroMQ's wire (ZMTP 3.0, no security) and of msgpack as tests of KV events need: no package has
to be installed."""

import socket
import struct
import threading


def pack(value):
    """msgpack."""
    if value is None:
        return b"\xc0"
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, int):
        return struct.pack(">BQ", 0xCF, value) if value >= 0 else struct.pack(">Bq", 0xD3, value)
    if isinstance(value, str):
        return struct.pack(">BB", 0xD9, len(value)) + value.encode()
    if isinstance(value, bytes):
        return struct.pack(">BB", 0xC4, len(value)) + value
    if isinstance(value, list):
        return struct.pack(">BI", 0xDD, len(value)) + b"".join(map(pack, value))
    return struct.pack(">BI", 0xDF, len(value)) + b"".join(pack(key) + pack(of) for key, of in value.items())


class Peer:
    """One connection, after its handshake."""

    def __init__(self, connection, kind):
        self.socket, self.sending = connection, threading.Lock()
        connection.settimeout(30)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32))
        self.take(64)
        ready = b"\x05READY\x0bSocket-Type" + struct.pack(">I", len(kind)) + kind
        connection.sendall(bytes([4, len(ready)]) + ready)
        self.frame()  # the other side's

    def take(self, n):
        data = b""
        while len(data) < n:
            more = self.socket.recv(n - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def frame(self):
        flags, = self.take(1)
        return flags, self.take(struct.unpack(">Q", self.take(8))[0] if flags & 2 else self.take(1)[0])

    def message(self):
        """The frames of the next one that is no command; of a heartbeat, the answer is sent."""
        frames = []
        while True:
            flags, data = self.frame()
            if flags & 4:
                if data[:5] == b"\x04PING":
                    with self.sending:
                        self.socket.sendall(bytes([4, 5 + len(data) - 7]) + b"\x04PONG" + data[7:])
                continue
            frames.append(data)
            if not flags & 1:
                return frames

    def send(self, *frames):
        last = len(frames) - 1
        with self.sending:
            self.socket.sendall(b"".join(
                struct.pack(">BQ", 2 | (i < last), len(data)) + data for i, data in enumerate(frames)))

    def answer_pings(self):
        try:
            while True:
                self.message()
        except (OSError, EOFError):
            pass


def unpack(data):
    """One value of msgpack, of the kinds that batches have."""
    return _value(data, 0)[0]


def _value(data, at):
    code = data[at]
    at += 1
    if code < 0x80 or code == 0xC0:
        return (None if code == 0xC0 else code), at
    for low, high, make in ((0x80, 0x90, _map), (0x90, 0xA0, _array), (0xA0, 0xC0, _text)):
        if low <= code < high:
            return make(data, at, code - low)
    form = {0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD9: ">B", 0xDC: ">H", 0xDD: ">I"}[code]
    number, = struct.unpack_from(form, data, at)
    at += struct.calcsize(form)
    if code in (0xDC, 0xDD):
        return _array(data, at, number)
    return _text(data, at, number) if code == 0xD9 else (number, at)


def _array(data, at, n):
    items = []
    for _ in range(n):
        item, at = _value(data, at)
        items.append(item)
    return items, at


def _map(data, at, n):
    items, at = _array(data, at, 2 * n)
    return dict(zip(items[::2], items[1::2])), at


def _text(data, at, n):
    return data[at:at + n].decode(), at + n
