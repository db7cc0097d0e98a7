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
    for profile in ["chat", "agent", "rag", "users", "agents", "mixed"]:
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
            time = "delay" if "delay" in fields else "timestamp"
            session = ["session_id"] if profile == "agents" else []
            check_equal(sorted(fields), sorted(["hash_ids", "input_length", "output_length", time,
                                                *session]), profile)
            check_equal(len(fields["hash_ids"]), -(-fields["input_length"] // 512), profile)


def check_rate():
    """A higher rate: the same conversations arrive closer together."""
    def last(rate):
        return json.loads(generate("--profile", "rag", "--rate", rate, "-n", 2000).splitlines()[-1])
    slow, fast = last("0.5")["timestamp"], last("50")["timestamp"]
    check(slow > 10 * fast, "rate", slow, fast)


def check_agents(folder):
    """Sessions as those that were recorded: medians and tails within a fifth of the tables in
    requests/workload.c, and a closed loop runs them."""
    path = os.path.join(folder, "agents.jsonl")
    generate("--profile", "agents", "-n", 20000, "-o", path)
    with open(path, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    delays = sorted(row["delay"] for row in rows if "delay" in row)
    outputs = sorted(row["output_length"] for row in rows)
    for values, median, tail in ((delays, 7350, 80200), (outputs, 213, 771)):
        check(abs(values[len(values) // 2] / median - 1) < 0.2, values[len(values) // 2])
        check(abs(values[len(values) * 9 // 10] / tail - 1) < 0.2, values[len(values) * 9 // 10])
    last = {}
    for row in rows:
        before = last.get(row["session_id"])
        check_equal("delay" in row, before is not None)
        if before is not None:
            whole = before["input_length"] // 512
            check(row["hash_ids"][:whole] == before["hash_ids"][:whole], row["session_id"])
        last[row["session_id"]] = row
    done = run("replay", "--json", "--limit", 300, "--arrivals", "closed", "--sessions", 4,
               "--think-cap", 5, "--block-tokens", 512, "--blocks", 2000, "--decode-token-ns", 1,
               "--output-tokens", "off", path)
    check_equal(done.returncode, 0, done.stderr)
    found = json.loads(done.stdout)
    check_equal(found["finished"], 300)
    check(found["hit_ratio"] > 0.8, found["hit_ratio"])
    check_equal(found["closed_loop"]["estimated_gaps"], 0)
    answers = found["reading"]["answers_joined"], found["reading"]["answers_not_joined"]
    check(0.9 < answers[0] / sum(answers) < 0.99, answers)


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
        check_agents(folder)
    check_rate()
    check_bundled()
    finish()


main()
