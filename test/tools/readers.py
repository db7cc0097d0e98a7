"""What a file may cost the command: at most 64 MiB and 16 times the bytes that were read, and no
waiting. Files that claim more, holes, FIFOs and devices are refused with a sentence; names are
printed without what a terminal would obey."""

import os
import subprocess
import sys

from lib_kvpager import KVPAGER, SOURCE, check, check_equal, directory, finish, mooncake, run

MiB = 1 << 20
BASE, TIMES = 64 * MiB, 16
LINE = b'{"timestamp":0,"input_length":10,"output_length":1,"hash_ids":['

# Runs the command, and says what its memory was at most.
METER = """import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], timeout=60)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(done.returncode)"""


def measured(*arguments):
    """(what was done, bytes of memory)"""
    done = subprocess.run([sys.executable, "-c", METER, KVPAGER, *arguments], capture_output=True,
                          stdin=subprocess.DEVNULL, check=False)
    *message, kilobytes = done.stderr.decode(errors="replace").rstrip("\n").rsplit("\n", 1)
    return done.returncode, "\n".join(message), int(kilobytes) * 1024


def check_refused(path, message, n_read, *arguments):
    status, said, memory = measured(*arguments, path)
    check_equal(status, 1, arguments, said)
    check(message in said, arguments, said)
    check("\n" not in said, said)
    most = ITSELF + BASE + TIMES * n_read
    check(SANITIZED or memory <= most, arguments, f"{memory} bytes of memory, expected {most} at most")


def write(folder, name, data, length=None):
    path = os.path.join(folder, name)
    with open(path, "wb") as file:
        file.write(data)
        if length is not None:
            file.truncate(length)
    return path


def check_traces(folder):
    long = write(folder, "long", LINE + b"1," * (30 * MiB) + b"1]}\n")
    check_refused(long, "long:1: longer than 32 MiB", 33 * MiB, "replay")
    check_refused(long, "long:1: longer than 32 MiB", 33 * MiB, "mrc")
    dense = LINE + b"1," * (5 * MiB) + b"1]}\n"
    check_refused(write(folder, "dense", dense), "dense:1: hash_ids has 5242881 ids", len(dense),
                  "replay")
    nested = LINE + b"1],\"x\":[" + b"{}," * 600000 + b"1]}\n"  # passed over, and not kept
    status, said, memory = measured("replay", "--sequential", write(folder, "nested", nested))
    check_equal(status, 0, said)
    check(SANITIZED or memory <= ITSELF + 8 * len(nested) + 16 * MiB, memory)
    deep = LINE + b"1],\"x\":" + b"[" * 600 + b"]" * 600 + b"}\n"
    check_refused(write(folder, "deep", deep), "deep:1: not valid JSON: arrays and objects stand "
                  "more than 512 deep", len(deep), "replay")
    hole = write(folder, "hole", mooncake(0, 10, 1, [1]).encode(), 1 << 36)
    check_refused(hole, "hole:2: a NUL byte in column 1", 2 * MiB, "replay")
    # A request costs less than sixteen of the shortest line's six bytes.
    lines = b"Timestamp,Request tokens,Response tokens\n" + b"1,1,1\n" * MiB
    status, said, memory = measured("mrc", "--limit", "1", write(folder, "short.csv", lines))
    check_equal(status, 0, said)
    check_equal(run("replay", "--limit", 1, "--max-memory", "1M",
                    os.path.join(folder, "short.csv")).returncode, 1)
    small = mooncake(0, 10, 1, [1]).encode() + LINE + b"1," * MiB + b"1]}\n"
    path = write(folder, "small", small)
    check_refused(path, "small:2: hash_ids has ", len(small), "replay")
    check_refused(path, "small:2: needs more memory than 8 MiB (--max-memory)", len(small),
                  "replay", "--max-memory", "8M")


def snapshot(folder, n_blocks):
    """196 bytes that claim so many blocks."""
    path = os.path.join(folder, "claims")
    writer = os.path.join(os.environ.get("KVP_BUILD", "."), "test", "test_snapshot")
    if not os.access(writer, os.X_OK):
        return None
    subprocess.run([writer, "--claim", path, str(n_blocks)], check=True)
    check_equal(os.path.getsize(path), 196)
    return path


def check_inspect(folder):
    path = snapshot(folder, 20000000)
    if path is not None:
        check_refused(path, "needs more than 64.0 MiB of memory", 196, "inspect")
        snapshot(folder, 4000000)
        check_refused(path, "needs more than 64.0 MiB of memory", 196, "inspect")
        status, said, _ = measured("inspect", "--max-memory", "8G", path)
        check_equal(status, 0, said)
    owner = os.path.join(os.environ.get("KVP_BUILD", "."), "test", "test_inspect")
    if os.access(owner, os.X_OK):
        path = os.path.join(folder, "arena")
        subprocess.run([owner, "--claim", path, "4000000"], check=True)
        check(os.path.getsize(path) > 1 << 29 and os.stat(path).st_blocks < 100, "no holes")
        check_refused(path, "needs more than 64", 65536, "inspect")




def check_logs(folder):
    log = os.path.join(folder, "log")
    trace = write(folder, "trace", mooncake(0, 600, 1, [1, 2]).encode())
    done = run("replay", "--sequential", "--blocks", 2000000, "--record", log, trace)
    check_equal(done.returncode, 0, done.stderr)
    for command in (("trace", "replay"), ("trace", "shrink", "-o", log + ".out")):
        check_refused(log, "a cache of its configuration needs more than 64.", 65536, *command)
    check_equal(run("trace", "replay", "--max-memory", "16G", log).returncode, 0)
    with open(log, "rb") as file:
        data = file.read()
    hole = write(folder, "log.hole", data, 1 << 29)
    check_refused(hole, "most of which are holes", 65536, "trace", "show")


def check_models(folder):
    config = b'{"x": [' + b"{}," * 600000 + b"1]}"
    check_refused(write(folder, "config", config), "needs more memory than ", len(config), "size",
                  "--model-config")
    check_refused(write(folder, "config.hole", b"{", 1 << 36), "larger than 16 MiB", 16 * MiB,
                  "size", "--model-config")


def check_no_files(folder):
    fifo = os.path.join(folder, "fifo")
    os.mkfifo(fifo)
    commands = [("inspect",), ("replay",), ("mrc",), ("size", "--model-config"),
                ("trace", "show"), ("trace", "replay"), ("compare", fifo, "--"),
                ("replay", "--sequential", os.path.join(SOURCE, "data", "mixed-small.jsonl"),
                 "--limit", "1", "--snapshot-in")]
    for command in commands:
        check_refused(fifo, f"{fifo}: is a FIFO", 0, *command)
        command = [word.replace(fifo, "/dev/zero") for word in command]
        check_refused("/dev/zero", "/dev/zero: is a device, expected a regular file", 0, *command)
    # A pipe that somebody writes to is a trace as good as any.
    good = write(folder, "good", mooncake(0, 600, 1, [1, 2]).encode() * 3)
    done = subprocess.run(["bash", "-c", f'"{KVPAGER}" replay --sequential <(cat "{good}")'],
                          capture_output=True, check=False)
    check_equal(done.returncode, 0, done.stderr)
    with open(good, "rb") as file:
        check_equal(run("replay", "--sequential", "-", stdin=file.read()).returncode, 0)


def check_names(folder):
    evil = os.path.join(folder, "a\x1b]0;x\x07\nb\u202e\u009bc\udcff")
    shown = "a\\x1b]0;x\\x07\\x0ab\\xe2\\x80\\xae\\xc2\\x9bc\\xff"
    write(folder, evil, b"what is this\n")
    for command in (("inspect",), ("replay",), ("trace", "show"), ("size", "--model-config"),
                    ("compare", evil)):
        done = run(*command, evil)
        check_equal(done.returncode, 1, done)
        check(shown.encode() in done.stderr, command, done.stderr)
        check_equal(done.stderr.count(b"\n"), 1, command, done.stderr)
        check(done.stderr.rstrip(b"\n").isascii() and done.stderr[:-1].decode().isprintable(),
              done.stderr)
    write(folder, evil, mooncake(0, 600, 1, [1, 2]).encode())
    for command in (("replay",), ("replay", "--sequential"), ("mrc",)):
        done = run(*command, evil)
        check_equal(done.returncode, 0, done.stderr)
        check(shown.encode() in done.stdout, command, done.stdout[:200])
        check(b"\x1b" not in done.stdout, command)
    plain = os.path.join(folder, "gr\u00f6\u00dfe \u65e5\u672c")
    write(folder, plain, b"what is this\n")
    check("gr\u00f6\u00dfe \u65e5\u672c".encode() in run("replay", plain).stderr)
    check(b"unknown command 'x\\x1by'" in run("x\x1by").stderr)
    check(b"'--x\\x1by'" in run("replay", "--x\x1by").stderr)


with open(KVPAGER, "rb") as program:  # a sanitizer's memory has shadows
    code = program.read()
SANITIZED = b"__asan_init" in code or b"__tsan_init" in code
ITSELF = measured("--version")[2] + 8 * MiB

with directory() as work:
    check_names(work)
    check_no_files(work)
    check_traces(work)
    check_inspect(work)
    check_logs(work)
    check_models(work)
finish()
