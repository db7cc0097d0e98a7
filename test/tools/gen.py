"""kvpager gen: the same bytes for the same seed, and the bundled workload is what its command
makes."""

import json
import os
import re
import shlex

from lib_kvpager import SOURCE, check, check_equal, directory, finish, run


def generate(*options):
    done = run("gen", *options)
    check_equal(done.returncode, 0, options, done.stderr)
    check_equal(done.stderr, b"", options, "stderr")
    return done.stdout


def check_reproducible(folder):
    for profile in ["chat", "agent", "rag", "users", "mixed"]:
        options = ["--profile", profile, "--requests", 200, "--seed", 9]
        text = generate(*options)
        path = os.path.join(folder, profile)
        check_equal(generate(*options, "-o", path), b"", profile, "stdout with -o")
        with open(path, "rb") as file:
            check(file.read() == text, profile, "-o writes other bytes")
        check(generate(*options[:-1], 10) != text, profile, "another seed gives the same")
        check(generate(*options[:3], 100, *options[4:]) == b"".join(text.splitlines(True)[:100]),
              profile, "fewer requests are not the beginning of more")
        for line in text.splitlines():
            fields = json.loads(line)
            check_equal(sorted(fields), ["hash_ids", "input_length", "output_length", "timestamp"])
            check_equal(len(fields["hash_ids"]), -(-fields["input_length"] // 512), profile)


def check_rate():
    """A higher rate: the same conversations arrive closer together."""
    def last(rate):
        return json.loads(generate("--profile", "rag", "--rate", rate, "-n", 2000).splitlines()[-1])
    slow, fast = last("0.5")["timestamp"], last("50")["timestamp"]
    check(slow > 10 * fast, "rate", slow, fast)


def check_bundled():
    """data/README.md names the command in a line of its own, indented."""
    with open(os.path.join(SOURCE, "data", "README.md"), encoding="utf-8") as file:
        command = re.search(r"^ +kvpager (gen .*) -o mixed-small.jsonl$", file.read(), re.MULTILINE)
    if not check(command, "data/README.md does not name the command"):
        return
    with open(os.path.join(SOURCE, "data", "mixed-small.jsonl"), "rb") as file:
        bundled = file.read()
    check(len(bundled) < 300000, "the bundled workload is large:", len(bundled))
    made = run(*shlex.split(command[1])).stdout
    check(made == bundled, "the bundled workload is not what its command makes")


def main():
    with directory() as folder:
        check_reproducible(folder)
    check_rate()
    check_bundled()
    finish()


main()
