"""kvpager inspect: what it says of snapshots that are whole, cut, damaged, foreign, or none."""

import json
import os
import struct
import subprocess
import tempfile

from lib_kvpager import check, check_equal, finish, replay, run, skip

WRITER = os.path.join(os.environ.get("KVP_BUILD", "."), "test", "test_snapshot")
HOST, GROUPS, WINDOWED = 3, 4, 5


def write(path, kind):
    subprocess.run([WRITER, "--write", path, str(kind)], check=True)
    with open(path, "rb") as file:
        return file.read()


def records(data):
    """(kind, begin, payload, end) of each record."""
    at = 8
    while at < len(data):
        kind, size = struct.unpack_from("<II", data, at)
        yield kind, at, data[at + 32:at + 32 + size], at + 32 + size + 8
        at += 32 + size + 8


def inspect(path, data, status=0):
    with open(path, "wb") as file:
        file.write(data)
    done = run("inspect", "--json", path)
    check_equal(done.returncode, status, "status", done.stderr)
    return json.loads(done.stdout) if done.stdout else None


def count(data):
    """What the file holds, by this program's own reading."""
    blocks, names, deepest, per_space = {}, [], {}, {}
    depth, space = {0: 0}, {}
    for kind, _, payload, _ in records(data):
        if kind == 2:
            names.append(payload[8:].decode())
        elif kind == 3:
            number, space_number, above = struct.unpack_from("<III", payload)
            space[number] = space_number
            depth[number] = depth[above] + 1
        elif kind == 4:
            _, tier, group, class_, node = struct.unpack_from("<IBBHI", payload)
            key = (("device", "host")[tier], group, class_)
            blocks[key] = blocks.get(key, 0) + 1
            deepest[node] = depth[node]
            per_space[space[node]] = per_space.get(space[node], 0) + 1
    return blocks, [(n, per_space.get(i, 0)) for i, n in enumerate(names)], max(deepest.values())


def check_whole(path, kind, groups):
    data = write(path, kind)
    got = inspect(path, data)
    blocks, names, deepest = count(data)
    check_equal({(c["tier"], c["group"], c["class"]): c["blocks"] for c in got["cached"]}, blocks)
    check_equal([(s["name"], s["blocks"]) for s in got["namespaces"]], names)
    check_equal(got["prefixes"][0]["tokens"], deepest * got["unit_tokens"])
    check(got["whole"] is True and got["model"] == "toy" and got["n_blocks"] == 61)
    check_equal(got["blocks"], got["saved_blocks"])
    check_equal(len(got["groups"]), groups)
    tokens = [p["tokens"] for p in got["prefixes"]]
    check_equal(tokens, sorted(tokens, reverse=True))
    check(4 <= len(tokens) <= 10, tokens)
    check_equal(len({p["hash"] for p in got["prefixes"]}), len(tokens))
    text = run("inspect", "--top", 3, path)
    check_equal(text.returncode, 0)
    check(b"\nwhole\n" in text.stdout and b"61 of 4 tokens" in text.stdout, text.stdout)
    check_equal(text.stdout.count(got["prefixes"][2]["hash"].encode()), 1)
    check_equal(text.stdout.count(got["prefixes"][3]["hash"].encode()), 0)
    return data


def check_damage(path, data):
    blocks = [(begin, end) for kind, begin, _, end in records(data) if kind == 4]
    flipped = bytearray(data)
    flipped[blocks[0][0] + 33] ^= 4
    got = inspect(path, bytes(flipped), 1)
    check_equal(got["dropped"]["damaged"]["blocks"], 1)
    check_equal(got["damaged_records"], 1)
    check_equal(got["blocks"], got["saved_blocks"] - 1)
    got = inspect(path, data[:blocks[4][1]], 1)
    check_equal(got["blocks"], 5)
    check_equal(got["dropped"]["cut"]["blocks"], len(blocks) - 5)
    check(got["whole"] is False)
    text = run("inspect", path)
    check(b"\ndamaged\n" in text.stdout and b"can be restored" in text.stderr, text)


def check_refused(path, data):
    for bad, message in ((b"", b"not a snapshot"), (b"kvpops1\n" + data[8:], b"not a snapshot"),
                         (b"kvpshot2" + data[8:], b"of another version; this program reads version 1: begin "
                          b"without it, and save anew"),
                         (data[:60], b"not a snapshot")):
        with open(path, "wb") as file:
            file.write(bad)
        done = run("inspect", path)
        check_equal(done.returncode, 1)
        check(message in done.stderr and not done.stdout, done)
    for arguments, message in (((), b"which file"), ((path, path), b"one file"),
                               (("--top", "x", path), b"--top"), (("--tip",), b"--tip")):
        done = run("inspect", *arguments)
        check_equal(done.returncode, 2, arguments)
        check(message in done.stderr, done)
    check_equal(run("inspect", path + ".none").returncode, 1)
    check_equal(run("inspect", os.path.dirname(path)).returncode, 1)
    check(b"Usage" in run("inspect", "--help").stdout)


def check_windows(path):
    """A window, and chunks, which are not called sinks."""
    def look(*how):
        subprocess.run([WRITER, how[0], path, *how[1:]], check=True)
        text = run("inspect", path).stdout.decode()
        with open(path, "rb") as file:
            return inspect(path, file.read())["groups"], text
    groups, text = look("--write", str(WINDOWED))
    check_equal(groups, [{"sink_tokens": 0, "recent_tokens": 16, "chunk_tokens": None}])
    check("group 0        sinks 0, window 16\n" in text, text)
    groups, text = look("--chunks")
    check_equal(groups, [{"sink_tokens": None, "recent_tokens": None, "chunk_tokens": 16}])
    check("group 0        chunks of 16\n" in text and "4294967295" not in text, text)


def check_learned(path):
    """What the learned policy knew when the snapshot was made, but for counters of that cache."""
    trace = path + ".jsonl"
    run("gen", "--profile", "chat", "--requests", 60, "-o", trace)
    for policy in ("learned", "lru"):
        told = replay(trace, "--policy", policy, "--block-tokens", 64, "--blocks", 200,
                      "--host-blocks", 100, "--snapshot-out", path).get("learned")
        with open(path, "rb") as file:
            got = inspect(path, file.read())
        text = run("inspect", path).stdout
        check_equal(b"\nlearned  " in text, policy == "learned", text)
        check_equal("learned" in got, policy == "learned")
        for name in told or {}:
            if not name.endswith("_references"):
                check_equal(got["learned"][name], told[name], name)
        check(told is None or len(told["classes"]) > 3 and told["returned"] > 0, told)


def main():
    if not os.access(WRITER, os.X_OK):
        skip(f"{WRITER}, which writes snapshots, is not built")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "a.kvsnap")
        check_whole(path, GROUPS, 2)
        data = check_whole(path, HOST, 1)
        check_windows(path)
        check_learned(path)
        check_damage(path, data)
        check_refused(path, data)
    finish()


main()
