"""Recordings as docs/FORMATS.md describes them, written and read without any code of kvpager."""

import struct
import subprocess

MAGIC = b"kvprec1\n"
MASK = (1 << 64) - 1
P1, P2, P3, P4, P5 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9,
                      0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
FIELDS = ["cached_tokens", "first_us", "last_us", "session", "scope"]  # flags 1, 2, 4, 8, 16


def rotate(x, by):
    return (x << by | x >> (64 - by)) & MASK


def xxh64(data):
    """XXH64 with seed 0, which zstd's checksum is a half of."""
    def one(acc, lane):
        return rotate((acc + lane * P2) & MASK, 31) * P1 & MASK

    at, n = 0, len(data)
    if n >= 32:
        v = [(P1 + P2) & MASK, P2, 0, -P1 & MASK]
        while at + 32 <= n:
            v = [one(acc, lane) for acc, lane in zip(v, struct.unpack_from("<4Q", data, at))]
            at += 32
        h = (rotate(v[0], 1) + rotate(v[1], 7) + rotate(v[2], 12) + rotate(v[3], 18)) & MASK
        for acc in v:
            h = ((h ^ one(0, acc)) * P1 + P4) & MASK
    else:
        h = P5
    h = (h + n) & MASK
    while at + 8 <= n:
        h = (rotate(h ^ one(0, struct.unpack_from("<Q", data, at)[0]), 27) * P1 + P4) & MASK
        at += 8
    if at + 4 <= n:
        h = (rotate(h ^ struct.unpack_from("<I", data, at)[0] * P1 & MASK, 23) * P2 + P3) & MASK
        at += 4
    for byte in data[at:]:
        h = rotate(h ^ byte * P5 & MASK, 11) * P1 & MASK
    for shift, prime in ((33, P2), (29, P3)):
        h = (h ^ h >> shift) * prime & MASK
    return h ^ h >> 32


def v(value):
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def z(value):
    return v(value << 1 if value >= 0 else (-value << 1) - 1)


def frame(payload):
    """Not compressed: in blocks of the kind that is as it stands."""
    pieces = [payload[at:at + 100000] for at in range(0, len(payload), 100000)] or [b""]
    blocks = b"".join(((i + 1 == len(pieces)) | len(piece) << 3).to_bytes(3, "little") + piece
                      for i, piece in enumerate(pieces))
    packed = (b"\x28\xb5\x2f\xfd\xa4" + struct.pack("<I", len(payload)) + blocks
              + struct.pack("<I", xxh64(payload) & 0xFFFFFFFF))
    return struct.pack("<I", len(packed)) + packed


def text(value):
    return v(len(value.encode())) + value.encode()


def runs_of(blocks):
    runs = []
    for block in blocks:
        if runs and runs[-1][0] + runs[-1][1] == block:
            runs[-1][1] += 1
        else:
            runs.append([block, 1])
    return runs


def request_bytes(request, before_us):
    present = [name for name in FIELDS if request.get(name) is not None]
    flags = sum(1 << FIELDS.index(name) for name in present)
    flags |= 32 * ("unseen" in request) | 64 * ("again" in request)
    out = v(flags) + z(request["time_us"] - before_us)
    out += v(request["input_tokens"]) + v(request["output_tokens"])
    out += b"".join(v(request[name]) for name in present) + v(len(request["blocks"]))
    expected = 0
    for first, n in request["blocks"]:
        out += z(first - expected) + v(n)
        expected = first + n
    if "again" in request:
        out += v(len(request["again"]))
        out += b"".join(v(depth) + v(n << 1 | is_last) for depth, n, is_last in request["again"])
    return out


def recording(requests, block_tokens=16, a_frame=7, source=1, counts=(0, 0, 0), end=True,
              began_us=1_700_000_000_000_000, engine_blocks=None):
    """The bytes of a file. Requests are as `kvpager events cat` prints them."""
    out = MAGIC + frame(v(1) + v(0) + v(source) + v(block_tokens) + z(began_us) + v(1 << 20)
                        + text("test") + text("model")
                        + (b"" if engine_blocks is None else v(engine_blocks)))
    known, number, before = 0, 1, began_us

    def head(kind, n):
        return v(kind) + v(number) + v(n) + v(known) + b"".join(v(count) for count in counts)

    for at in range(0, len(requests), a_frame):
        payload = head(2, at)
        for request in requests[at:at + a_frame]:
            payload += request_bytes(request, before)
            before = request["time_us"]
            known = max([known] + [first + n for first, n in request["blocks"]])
        out += frame(payload)
        number += 1
    return out + (frame(head(3, len(requests))) if end else b"")


class Bytes:
    def __init__(self, data):
        self.data, self.at = data, 0

    def v(self):
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def z(self):
        value = self.v()
        return value >> 1 if value % 2 == 0 else -(value >> 1) - 1

    def text(self):
        n = self.v()
        self.at += n
        return self.data[self.at - n:self.at].decode()


def unpack(packed):
    return subprocess.run(["zstd", "-dcq"], input=packed, stdout=subprocess.PIPE, check=True).stdout


def read(data):
    """The header, the requests and the last frame's counts of a whole file."""
    assert data[:8] == MAGIC, data[:8]
    at, frames = 8, []
    while at < len(data):
        n = struct.unpack_from("<I", data, at)[0]
        frames.append(Bytes(unpack(data[at + 4:at + 4 + n])))
        at += 4 + n
    about = frames[0]
    assert (about.v(), about.v()) == (1, 0)
    header = {"source": about.v(), "block_tokens": about.v(), "began_us": about.z(),
              "max_contents": about.v(), "engine": about.text(), "model": about.text()}
    if header["source"] >= 3:
        header["engine_blocks"] = about.v()
    requests, time = [], header["began_us"]
    counts = {}
    for number, of in enumerate(frames[1:], 1):
        kind = of.v()
        assert of.v() == number
        counts = {name: of.v() for name in ("requests", "contents", "forgotten", "lost", "unnumbered")}
        assert counts["requests"] == len(requests)
        assert kind == (3 if number == len(frames) - 1 else 2)
        while of.at < len(of.data):
            flags = of.v()
            time += of.z()
            request = {"time_us": time, "input_tokens": of.v(), "output_tokens": of.v()}
            request |= {name: of.v() for i, name in enumerate(FIELDS) if flags >> i & 1}
            runs, expected = [], 0
            for _ in range(of.v()):
                first = expected + of.z()
                n = of.v()
                runs.append([first, n])
                expected = first + n
            if flags & 32:
                request["unseen"] = True
            if flags & 64:
                depths = [(of.v(), of.v()) for _ in range(of.v())]
                request["again"] = [[depth, n >> 1, bool(n & 1)] for depth, n in depths]
            requests.append(request | {"blocks": runs})
    return header, requests, counts
