"""A replay under load whose whole JSON is known: test/golden/load.jsonl gives load.json, byte for
byte but for line breaks: here a member of the report, or a row of a list, has one line. Run it with
--update when the report or the scheduler is meant to change, and read the difference.
"""

import difflib
import os
import re
import sys

from lib_kvpager import SOURCE, check, check_equal, finish, run

FOLDER = os.path.join(SOURCE, "test", "golden")
OPTIONS = ["--json", "--no-measure", "--model", "llama-3.1-8b", "--device", "h100",
           "--trace-block", 64, "--blocks", 25, "--watermark", 0, "--host-blocks", 40,
           "--preempt", "swap", "--step-tokens", 256, "--max-running", 8]


def rows(text):
    return re.sub(r"\n(?: {4,}(?!\{\n)|  (?=[]}]))", " ", text)


def main():
    golden = os.path.join(FOLDER, "load.json")
    with open(os.path.join(FOLDER, "load.jsonl"), "rb") as file:
        trace = file.read()
    done = run("replay", *OPTIONS, "-", stdin=trace)
    check_equal(done.returncode, 0, done.stderr)
    got = rows(done.stdout.decode())
    if sys.argv[1:] == ["--update"]:
        with open(golden, "w", encoding="utf-8") as file:
            file.write(got)
        return
    with open(golden, encoding="utf-8") as file:
        expected = file.read()
    if not check(got == expected, "load.json is not what comes out"):
        figures = [text.replace(", ", ",\n").splitlines(True) for text in (expected, got)]
        sys.stdout.writelines(difflib.unified_diff(*figures, "test/golden/load.json",
                                                   "kvpager replay"))
    finish()


main()
