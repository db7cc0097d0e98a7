"""A replay under load whose whole JSON is known: test/golden/load.jsonl gives load.json, byte for
byte. Run it with --update when the report or the scheduler is meant to change, and read the
difference.
"""

import difflib
import os
import sys

from lib_kvpager import SOURCE, check, check_equal, finish, run

FOLDER = os.path.join(SOURCE, "test", "golden")
OPTIONS = ["--json", "--no-measure", "--model", "llama-3.1-8b", "--device", "h100",
           "--trace-block", 64, "--blocks", 25, "--watermark", 0, "--host-blocks", 40,
           "--preempt", "swap", "--step-tokens", 256, "--max-running", 8]


def main():
    golden = os.path.join(FOLDER, "load.json")
    with open(os.path.join(FOLDER, "load.jsonl"), "rb") as file:
        trace = file.read()
    done = run("replay", *OPTIONS, "-", stdin=trace)
    check_equal(done.returncode, 0, done.stderr)
    if sys.argv[1:] == ["--update"]:
        with open(golden, "wb") as file:
            file.write(done.stdout)
        return
    with open(golden, encoding="utf-8") as file:
        expected = file.read()
    got = done.stdout.decode()
    if not check(got == expected, "load.json is not what comes out"):
        sys.stdout.writelines(difflib.unified_diff(expected.splitlines(True), got.splitlines(True),
                                                   "test/golden/load.json", "kvpager replay"))
    finish()


main()
