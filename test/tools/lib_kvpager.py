"""What the tests of the command share: running it, and saying what is wrong.

Environment: KVPAGER the command, KVP_SOURCE the source directory.
"""

import json
import os
import subprocess
import sys
import tempfile

KVPAGER = os.environ.get("KVPAGER", "kvpager")
SOURCE = os.environ.get("KVP_SOURCE", os.path.join(os.path.dirname(__file__), "..", ".."))
SKIPPED = 77

failures = 0


def check(condition, *what):
    """Counts and prints a failure; the test goes on to show the others."""
    global failures
    if not condition:
        failures += 1
        print("FAILED:", *what)
    return condition


def check_equal(got, expected, *what):
    return check(got == expected, *what, f"got {got!r}, expected {expected!r}")


def finish():
    if failures:
        print(f"{failures} failed")
    sys.exit(1 if failures else 0)


def skip(why):
    print("skipped:", why)
    sys.exit(SKIPPED)


def run(*arguments, stdin=None, env=None):
    """Runs the command; stdin is bytes or None."""
    environment = dict(os.environ, **(env or {}))
    return subprocess.run([KVPAGER, *map(str, arguments)], input=stdin, capture_output=True,
                          env=environment, check=False)


def replay_as(*arguments, stdin=None):
    """Replays with --json; gives the object, or fails the whole test. One in which nothing could be
    served says so with its status, and is told all the same (replay_defaults.py)."""
    done = run("replay", "--json", *arguments, stdin=stdin)
    if done.returncode != 0 and b": no request could be served" not in done.stderr:
        print("FAILED: replay", arguments, "status", done.returncode, done.stderr.decode())
        sys.exit(1)
    return json.loads(done.stdout)


def replay(path, *options, stdin=None):
    """One request after the other."""
    return replay_as("--sequential", *options, path, stdin=stdin)


def replay_load(path, *options, stdin=None):
    """Under load, with what is simulated only."""
    return replay_as("--no-measure", *options, path, stdin=stdin)


def directory():
    return tempfile.TemporaryDirectory(prefix="kvpager-")


def mooncake(timestamp, input_length, output_length, ids):
    return json.dumps({"timestamp": timestamp, "input_length": input_length,
                       "output_length": output_length, "hash_ids": ids}) + "\n"


def traces():
    """The folder of real traces, or None."""
    path = os.environ.get("KVP_TRACES", os.path.join(SOURCE, "..", "shared", "traces"))
    return path if os.path.isdir(path) else None
