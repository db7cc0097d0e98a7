#!/usr/bin/env python3
"""The command with a system that fails: every n-th request for memory, file, read and write.

usage: tool_faults.py FAULTY-COMMAND SNAPSHOT-WRITER [--most N]

Each command line runs once with nothing failing, which counts what it asks of the system, and then
once for every request, which is refused; with --most for so many of each kind, spread over all, and
for the first ones for memory, or all of them where a snapshot is saved.
Then it must

  - end with status 1 and say why; or, where it can do without, with status 0 and the same output,
  - not have been ended by a signal,
  - have written to standard output a beginning of what it writes when nothing fails.
"""
import os
import subprocess
import sys
import tempfile

KINDS = ("memory", "open", "read", "write")
FIRST = 16  # with these a file that is read begins


def commands(folder, plain, writer):
    """Command lines, in the order in which they make each other's files."""
    trace, log, snapshot = (os.path.join(folder, name) for name in
                            ("trace.jsonl", "run.kvplog", "snapshot"))
    out = os.path.join(folder, "out")
    yield ["gen", "--profile", "chat", "--requests", "12", "-o", trace]
    yield ["gen", "--profile", "agent", "--requests", "3"]
    yield ["replay", "--limit", "6", "--blocks", "9000", trace, "--report", out]
    yield ["replay", "--json", "--limit", "6", "--blocks", "9000", trace]
    replays = [os.path.join(folder, name) for name in ("a.json", "b.json")]
    for path, blocks in zip(replays, ("9000", "300")):
        with open(path, "wb") as file:
            subprocess.run([plain, "replay", "--json", "--limit", "6", "--blocks", blocks, trace],
                           check=True, stdout=file)
    yield ["replay", "--sequential", "--limit", "6", "--blocks", "400", "--record", log, trace]
    yield ["replay", "--sequential", "--limit", "6", "--blocks", "400", "--snapshot-out",
           os.path.join(folder, "saved"), trace]
    yield ["compare", "--json", *replays]
    yield ["mrc", "--limit", "6", trace]
    yield ["mrc", "--json", "--limit", "6", "--policy", "lru,fifo,optimum,learned", trace]
    yield ["mrc", "--limit", "6", "--host-sizes", "500", "--store-sizes", "2000", trace]
    yield ["size", "--model", "llama-3.1-8b", "--device", "h100"]
    yield ["trace", "show", "--count", "20", log]
    yield ["trace", "replay", "--check", "1", log]
    yield ["trace", "diff", log, log]
    subprocess.run([writer, "--write", snapshot, "3"], check=True)
    yield ["inspect", "--json", snapshot]


def run(faulty, arguments, folder, fault=""):
    counts = os.path.join(folder, "counts")
    if os.path.exists(counts):
        os.remove(counts)
    environment = dict(os.environ, KVP_FAULT=fault, KVP_FAULT_COUNTS=counts)
    done = subprocess.run([faulty] + arguments, capture_output=True, env=environment, timeout=120)
    asked = {}
    if os.path.exists(counts):
        with open(counts) as file:
            asked = {kind: int(n) for kind, n in (line.split() for line in file)}
    return done, asked


def wrong(clean, done):
    if done.returncode == 0:
        return None if done.stdout == clean.stdout else "ended well, with other output"
    if done.returncode != 1:
        return f"ended with status {done.returncode}"
    if not done.stderr.strip():
        return "failed without a word"
    if not clean.stdout.startswith(done.stdout):
        return "wrote something else"
    return None


def sweep(faulty, arguments, folder, most):
    clean, asked = run(faulty, arguments, folder)
    if clean.returncode != 0:
        sys.exit(f"{arguments}: status {clean.returncode}: {clean.stderr.decode()}")
    refused = {}
    for kind in KINDS:
        n = asked[kind]
        tries = min(n, most) if most else n
        places = {1 + i * n // tries for i in range(tries)}
        if kind == "memory": # a snapshot's are few and in the library, where each branch counts
            places.update(range(1, (n if "--snapshot-out" in arguments else min(n, FIRST)) + 1))
        for at in sorted(places):
            done, seen = run(faulty, arguments, folder, f"{kind}:{at}")
            what = wrong(clean, done)
            if what is None and (not seen or seen[kind] < at):
                what = "was not refused"
            if what is None and done.returncode == 0 and kind in ("open", "write"):
                what = "ended well, and had not written all"
            if what:
                sys.exit(f"kvpager {' '.join(arguments)}\nKVP_FAULT={kind}:{at} (of {n}): {what}\n"
                         f"{done.stderr.decode()}")
        refused[kind] = len(places)
    again, _ = run(faulty, arguments, folder)
    if again.returncode != 0 or again.stdout != clean.stdout:
        sys.exit(f"{arguments}: does not end as before when nothing fails any more")
    print(f"{arguments[0]:8} " + ", ".join(f"{kind} {refused[kind]} of {asked[kind]}"
                                           for kind in KINDS))
    return refused


def main():
    faulty = os.path.abspath(sys.argv[1])
    writer = os.path.abspath(sys.argv[2])
    most = int(sys.argv[4]) if sys.argv[3:4] == ["--most"] else 0
    total = dict.fromkeys(KINDS, 0)
    with tempfile.TemporaryDirectory() as folder:
        for arguments in commands(folder, faulty, writer):
            for kind, n in sweep(faulty, arguments, folder, most).items():
                total[kind] += n
    if 0 in total.values():
        sys.exit(f"a kind never failed: {total}")


if __name__ == "__main__":
    main()
