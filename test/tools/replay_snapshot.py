"""After a restart the hit ratio goes on as if nothing had happened: the first half of a trace replayed
and saved, the second half replayed by another process that restores it, is the whole trace replayed."""

import os
import subprocess
import tempfile

from lib_kvpager import KVPAGER, SOURCE, check, check_equal, finish, replay_as, run

TRACE = os.path.join(SOURCE, "data", "mixed-small.jsonl")
HALF, ALL = 60, 120
COUNTS = ("requests", "rejected", "input_tokens", "output_tokens", "hit_tokens", "blocks_looked_up",
          "block_hits", "evictions")


def options(blocks, *more):
    return ("--sequential", "--block-tokens", 256, "--blocks", blocks, "--output-tokens", "off",
            *more, TRACE)


def check_goes_on(path, blocks, *more):
    """Gives the second half, restored and not."""
    whole = replay_as("--limit", ALL, *options(blocks, *more))
    first = replay_as("--limit", HALF, "--snapshot-out", path, *options(blocks, *more))
    second = replay_as("--skip", HALF, "--limit", ALL - HALF, "--snapshot-in", path,
                       *options(blocks, *more))
    cold = replay_as("--skip", HALF, "--limit", ALL - HALF, *options(blocks, *more))
    for name in COUNTS:
        check_equal(first[name] + second[name], whole[name], name)
    check_equal((second["skipped"], first["skipped"]), (HALF, 0))
    check(0 < second["restored_blocks"] == second["saved_blocks"] <= blocks, second)
    check_equal((cold["saved_blocks"], cold["restored_blocks"]), (0, 0))
    check(second["hit_ratio"] > cold["hit_ratio"], "what the restart costs without",
          second["hit_ratio"], cold["hit_ratio"])
    return second, cold


def check_chain(path):
    """A restart after every 30 requests."""
    whole = replay_as("--limit", ALL, *options(600))
    hits = evictions = 0
    for begin in range(0, ALL, 30):
        restore = ("--snapshot-in", path) if begin > 0 else ()
        part = replay_as("--skip", begin, "--limit", 30, *restore, "--snapshot-out", path,
                         *options(600))
        hits += part["hit_tokens"]
        evictions += part["evictions"]
    check_equal((hits, evictions), (whole["hit_tokens"], whole["evictions"]))


def check_damage(path, second, cold):
    """A cut file restores what is whole of it."""
    with open(path, "rb") as file:
        data = file.read()
    with open(path, "wb") as file:
        file.write(data[:len(data) // 2])
    cut = replay_as("--skip", HALF, "--limit", ALL - HALF, "--snapshot-in", path, *options(600))
    check(0 < cut["restored_blocks"] < cut["saved_blocks"], cut)
    check(cold["hit_tokens"] < cut["hit_tokens"] <= second["hit_tokens"], cut["hit_tokens"])
    text = run("replay", "--skip", HALF, "--snapshot-in", path, *options(600)).stdout
    check(b"restored" in text and b"skipped" in text, text)


def check_refused(path):
    for more, message in ((("--seed", 1), b"saved with --seed 0, and this replay has 1"),
                          (("--trace-block", 256, "--lenient"), b"--trace-block 512, and this replay has 256"),
                          (("--host-blocks", 9), b"--host-blocks 0, and this replay has 9"),
                          (("--unit-tokens", 128), b"--unit-tokens 256, and this replay has 128")):
        done = run("replay", "--snapshot-in", path, *options(600, *more))
        check_equal(done.returncode, 1)
        check(message in done.stderr and not done.stdout, done)
    done = run("replay", "--snapshot-in", path, *options(601))
    check_equal(done.returncode, 1)
    check(b"saved with --blocks 600, and this replay has 601" in done.stderr, done)
    check_equal(run("replay", "--snapshot-in", TRACE, *options(600)).returncode, 1)
    check_equal(run("replay", "--snapshot-in", path + ".none", *options(600)).returncode, 1)
    for no_file in ("/dev/full", os.path.dirname(path), path + ".none/x"):
        done = run("replay", "--limit", 1, "--snapshot-out", no_file, *options(600))
        check_equal(done.returncode, 1)
        check(b"cannot write " + no_file.encode() in done.stderr, done)
    check_equal(os.listdir(os.path.dirname(path)), [os.path.basename(path)])
    check_equal(run("replay", "--skip", 1200, *options(600)).returncode, 1)
    for wrong in (("--snapshot-in", path), ("--snapshot-out", path), ("--skip", 1)):
        done = run("replay", *wrong, TRACE)
        check_equal(done.returncode, 2)
        check(b"is for --sequential" in done.stderr, done)
    for wrong in (("--record", path + ".log"), ("--report", path + ".html")):
        done = run("replay", "--snapshot-in", path, *wrong, *options(600))
        check_equal(done.returncode, 2)
        check(b"exclude each other" in done.stderr, done)


def check_full_disk(path):
    """A limit of the file's size stands for the full disk: the old file is whole."""
    with open(path, "rb") as file:
        data = file.read()
    command = [KVPAGER, "replay", "--limit", str(HALF), "--snapshot-out", path,
               *map(str, options(600))]
    done = subprocess.run(["bash", "-c", 'ulimit -f 4; trap "" XFSZ; exec "$0" "$@"', *command],
                          capture_output=True, check=False)
    check_equal(done.returncode, 1)
    check(b"File too large" in done.stderr, done)
    with open(path, "rb") as file:
        check(file.read() == data, "the old snapshot is gone")
    check_equal(os.listdir(os.path.dirname(path)), [os.path.basename(path)])


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "half.kvsnap")
        second, _ = check_goes_on(path, 2500)
        check_equal(second["evictions"], 0)
        check_goes_on(path, 600, "--unit-tokens", 64)
        second, cold = check_goes_on(path, 600)
        check(second["evictions"] > 0)
        check_refused(path)
        check_full_disk(path)
        check_damage(path, second, cold)
        check_chain(path)
    finish()


main()
