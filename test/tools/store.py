"""kvpager store: what it says of stores that are whole, damaged, in use, foreign, or none; what it
drops; and that a measurement leaves nothing behind."""

import errno
import json
import os
import re
import shutil
import struct
import subprocess

from lib_kvpager import KVPAGER, check, check_equal, directory, finish, run, skip

WRITER = os.path.join(os.environ.get("KVP_BUILD", "."), "test", "test_store_operate")
SECRET = b"0123456789abcdef"
HOME = "01080f161d242b32/w0"
SLOT = 8192
FIRST, SECOND = "0x00000000000001f4", "0x00000000000001f5"


class Engine:
    """A process that has written eight records: four of one namespace, four of another, a minute
    apart; and keeps the store open until it is closed."""

    def __init__(self, path, *more):
        self.process = subprocess.Popen([WRITER, "--write", path, *more], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)
        assert self.process.stdout.readline() == b"written\n"

    def close(self):
        self.process.stdin.close()
        assert self.process.wait() == 0


def write(path, *more):
    Engine(path, *more).close()


def store(command, path, *options, status=0):
    done = run("store", command, path, *options)
    check_equal(done.returncode, status, "status", command, options, done.stderr)
    return done


def as_json(command, path, *options, status=0):
    return json.loads(store(command, path, "--json", *options, status=status).stdout)


def flip(path, offset):
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 16]))


def check_info(path):
    engine = Engine(path)
    for in_use in (True, False):
        info = as_json("info", path)
        check_equal((info["records"], len(info["directories"])), (8, 1))
        got = info["directories"][0]
        check_equal(got["path"], os.path.join(path, HOME))
        check_equal((got["status"], got["in_use"]), ("in use" if in_use else "idle", in_use))
        check_equal((got["records"], got["slots"], got["slot_bytes"]), (8, 16, SLOT))
        check_equal((got["record_blocks"], got["block_tokens"]), (1, 4))
        check_equal(got["damaged_log_entries"], 0)
        check_equal(got["bytes"], 8 * (SLOT + 256))
        text = store("info", path).stdout.decode()
        check(("in use" if in_use else "idle") in text and "8 of at most 16" in text, text)
        check_equal(as_json("info", f"file:{path}?size=3GiB")["records"], 8)
        if in_use:
            engine.close()
    text = store("info", path, "--prometheus").stdout.decode()
    samples = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            check(re.fullmatch(r"kvp_store_\w+ \d+", line), line)
            samples[line.split()[0]] = int(line.split()[1])
    check_equal(samples["kvp_store_records"], 8)
    check_equal(samples["kvp_store_bytes"], 8 * SLOT)
    check_equal(samples["kvp_store_directories_in_use"], 0)
    check_equal(text.count("# TYPE"), len(samples))


def check_list(path):
    write(path)
    spaces = as_json("list", path)["namespaces"]
    check_equal([(s["namespace"], s["records"], s["bytes"]) for s in spaces],
                [(FIRST, 4, 4 * SLOT), (SECOND, 4, 4 * SLOT)])
    check_equal([(s["oldest"], s["newest"]) for s in spaces],
                [(60000000, 60000180), (60000240, 60000420)])
    check_equal(len(as_json("list", path, "--namespace", SECOND)["namespaces"]), 1)
    check_equal(as_json("list", path, "--namespace", "nobody")["namespaces"], [])
    records = as_json("list", path, "--records")["records"]
    check_equal([r["position"] for r in records], [0, 4, 8, 12] * 2)
    check_equal({r["found"] for r in records}, {"good"})
    check_equal([r["slot"] for r in records], list(range(8)))
    check(all(re.fullmatch("[0-9a-f]{64}", r["digest"]) for r in records), records)
    text = store("list", path).stdout.decode()
    check(FIRST in text and SECOND in text, text)
    check_equal(len(store("list", path, "--records").stdout.splitlines()), 9)


def check_verify(path):
    write(path, "secret")
    got = as_json("verify", path)
    check_equal((got["good"], got["bad"]), (8, []))
    secret = path + ".secret"
    for text, good, code in ((SECRET, 8, 0), (b"fedcba9876543210", 0, 8)):
        with open(secret, "wb") as file:
            file.write(text)
        got = as_json("verify", path, "--secret", secret, status=0 if good else 1)
        check_equal((got["good"], got["code"]), (good, code))
    slab = os.path.join(path, HOME, "slab-00000{}")
    flip(slab.format(0), 4096 + 77)     # KV of slot 0
    flip(slab.format(0), SLOT + 260)    # the header of slot 1
    flip(slab.format(1), 8)             # the version of slot 2
    with open(slab.format(1), "r+b") as file:  # slot 3 is a copy of slot 2 as it was
        file.seek(SLOT)
        file.write(b"\0" * 4096)
    os.truncate(slab.format(3), SLOT)
    got = as_json("verify", path, status=1)
    check_equal({b["slot"]: b["why"] for b in got["bad"]},
                {0: "payload", 1: "damaged", 2: "version", 3: "damaged", 7: "unreadable"})
    check_equal(got["good"], 3)  # slot 6 stands before the cut
    done = store("verify", path, status=1)
    check(b"slot 0, generation 1: payload" in done.stdout, done.stdout)
    check(b"5 records" in done.stderr, done.stderr)
    check_equal(as_json("verify", path, "--namespace", SECOND, status=1)["good"], 3)
    log = os.path.join(path, HOME, "log")
    with open(log, "r+b") as file:
        file.seek(8)
        file.write(struct.pack("<I", 2))
    done = store("verify", path, status=1)
    check(b"of another version" in done.stdout, done.stdout)
    flip(log, 0)
    check(b"damaged log" in store("info", path).stdout)
    os.remove(log)
    os.symlink("log", log)  # links are not followed
    reason = os.strerror(errno.ELOOP)
    text = store("info", path).stdout.decode()
    check(f"not readable: {reason}" in text, text)
    (got,) = as_json("info", path)["directories"]
    check_equal((got["status"], got["why"]), ("not readable", reason))
    for dry_run in ((), ("--dry-run",)):
        left = store("evict", path, "--older-than", "1d", *dry_run, status=1).stderr.decode()
        check(f'1 of another version or damaged: left alone; the first is "{got["path"]}": {reason}\n'
              in left, left)
    check(f"not readable: {reason}" in store("verify", path, status=1).stdout.decode())
    check(f"not readable: {reason}" in store("list", path).stderr.decode())


def check_evict(path):
    engine = Engine(path)
    done = store("evict", path, "--older-than", "1d", status=1)
    check(b"1 are in use" in done.stderr, done.stderr)
    check_equal(as_json("info", path)["records"], 8)
    engine.close()
    got = as_json("evict", path, "--namespace", FIRST, "--dry-run")
    check_equal((got["records"], got["bytes"], got["dry_run"]), (4, 4 * SLOT, True))
    check_equal(as_json("info", path)["records"], 8)
    check_equal(as_json("evict", path, "--older-than", "99999d")["records"], 0)
    got = as_json("evict", path, "--namespace", FIRST, "--older-than", "2h")
    check_equal((got["records"], got["bytes"], got["in_use"]), (4, 4 * SLOT, 0))
    check_equal([s["namespace"] for s in as_json("list", path)["namespaces"]], [SECOND])
    check_equal(as_json("verify", path)["good"], 4)
    check_equal(store("evict", path, "--older-than", "1d").stdout, b"dropped 4 records, 32.0 KiB\n")
    check_equal(as_json("info", path)["records"], 0)


def check_refusals(path):
    os.mkdir(path)
    done = store("info", path)
    check(b"there is no store" in done.stdout, done.stdout)
    check_equal(as_json("info", path)["directories"], [])
    for words, status, part in (
            (("info", path + "/none"), 1, "No such file"),
            (("info", path + "/none", "--json"), 1, "No such file"),
            (("verify", path + "/none"), 1, "No such file"),
            (("verify", path + "/none", "--json"), 1, "No such file"),
            (("evict", path + "/none", "--older-than", "1d"), 1, "No such file"),
            (("verify", path), 1, "there is no store in"),
            (("verify", path, "--json"), 1, "there is no store in"),
            (("list", path), 1, "there is no store in"),
            (("list", path, "--records"), 1, "there is no store in"),
            (("evict", path, "--older-than", "1d"), 1, "there is no store in"),
            (("evict", path, "--older-than", "1d", "--dry-run"), 1, "there is no store in"),
            (("list", "file:"), 1, "file:PATH"),
            (("info",), 2, "which store"),
            (("info", path, path), 2, "one store only"),
            (("info", path, "--older-than", "1d"), 2, "unknown option"),
            (("info", path, "--json", "--prometheus"), 2, "exclude"),
            (("evict", path), 2, "what is to go"),
            (("evict", path, "--older-than", "1"), 2, "such as 7d"),
            (("evict", path, "--older-than", "-1d"), 2, "such as 7d"),
            (("evict", path, "--namespace", "0xyz"), 2, "hexadecimal"),
            (("verify", path, "--secret", path + "/no"), 2, "No such file"),
            (("verify", path, "--secret", "/dev/null"), 2, "fewer than 16"),
            (("bench", path), 2, "--model"),
            (("bench", "--model", "llama-3.1-8b"), 2, "which store"),
            (("bench", path, "--model", "nobody"), 2, "nobody"),
            (("bench", path + "/none", "--model", "llama-3.1-8b"), 1, "No such file"),
            (("bench", path, "--model", "llama-3.1-8b", "--rounds", "1"), 2, "--rounds"),
            (("loot",), 2, "unknown subcommand 'loot'"), ((), 2, "Usage")):
        done = run("store", *words)
        check_equal(done.returncode, status, words, done.stderr)
        check(part in done.stderr.decode(), words, done.stderr)
        check_equal(done.stdout, b"", words)
    for words in ((), ("info",), ("verify",), ("list",), ("evict",), ("bench",)):
        done = run("store", *words, "--help")
        check_equal((done.returncode, done.stderr), (0, b""), words)
        check(b"Usage: kvpager store" in done.stdout, words)
        check(max(map(len, done.stdout.decode().splitlines())) <= 80, words, done.stdout)


def check_odd_name(path):
    """A path that is not UTF-8 is null in JSON, which has no form for it; the rest is there."""
    odd = os.fsencode(path) + b"-caf\xe9"
    write(path)
    os.rename(path, odd)
    for command, name in (("info", "directories"), ("list", "records")):
        done = subprocess.run([KVPAGER, "store", command, "--json",
                               *(("--records",) if name == "records" else ()), odd],
                              capture_output=True, check=False)
        check_equal((done.returncode, done.stderr), (0, b""), command)
        rows = json.loads(done.stdout)[name] if done.returncode == 0 else []
        check_equal({row["path"] for row in rows}, {None}, command)
    check_equal(len(rows), 8)
    os.rename(odd, path)


def check_bench(path):
    write(path)
    before = sorted(os.walk(path))
    options = ("--model", "llama-3.1-8b", "--bytes", "8MiB", "--rounds", "2")
    got = as_json("bench", path, *options, "--compute-rate", "1000000000")
    check_equal(got["pays_from_tokens"], None, "nothing is loaded so fast")
    check_equal((got["block_bytes"], got["block_tokens"]), (2 << 20, 16))
    check_equal((got["record_blocks"], got["records_per_round"]), (1, 16))
    for name in ("write_bytes_per_second", "read_bytes_per_second", "get_ns"):
        check(0 < got[name]["min"] <= got[name]["median"] <= got[name]["max"], name, got[name])
    check_equal([n["bytes"] for n in got["lengths"]], [n["tokens"] * 131072 for n in got["lengths"]])
    got = as_json("bench", "file:" + path, *options, "--compute-rate", "1")
    check_equal(got["pays_from_tokens"], 16, "everything is loaded faster")
    check_equal(sorted(os.walk(path)), before, "the measurement left something")
    check_equal(as_json("verify", path)["good"], 8)
    done = store("bench", "memory:", *options)
    check(b"in memory" in done.stdout and b"pays" in done.stdout, done.stdout)
    # The model of the accelerator: what is computed takes longer than linear.
    got = as_json("bench", "memory:", *options)
    by_length = {n["tokens"]: n["compute_ns"] for n in got["lengths"]}
    check(by_length[131072] > 4.5 * by_length[32768], by_length)


def main():
    if not os.path.exists(WRITER):
        done = run("store", "info", ".")
        check_equal(done.returncode, 1)
        check(b"built without stores" in done.stderr, done.stderr)
        if b"built without stores" not in done.stderr:
            skip("the test's writer is not built")
        finish()
    with directory() as path:
        for number, part in enumerate((check_info, check_list, check_verify, check_evict,
                                       check_refusals, check_odd_name, check_bench)):
            part(os.path.join(path, str(number)))
            shutil.rmtree(os.path.join(path, str(number)))
    finish()


if __name__ == "__main__":
    main()
