#!/usr/bin/env python3
"""Hits of `kvpager replay` beside those of kvpager-serve with a real model: PASS or FAIL.

    calibrate.py SERVER MODEL [--kvpager COMMAND] [--blocks 20,40,80] [--requests 160] [--runs 5] [--seed 1]

One request at a time, at each size of the pool: the workload and the rules are those of
python/kvpager/calibrate.py, for a server of its own. Request by request the server hits what the rules
say, and so does `kvpager replay --sequential`. One rule differs: the server computes the last block of a
prompt again that is cached to its end, where the replay computes one token.

Then four clients at once, in the largest pool, several runs: what they hit of all input, beside a replay
under load that gets the same requests at the same times, with rates fitted to the requests that came one
at a time. The means may differ by 0.5 points, or by as much as the server's own runs do.

Answers are known beforehand: `logit_bias` makes the server say one token again and again.
"""

import argparse
import http.client
import importlib.util
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

SOURCE = pathlib.Path(__file__).resolve().parents[3]
CLIENTS, POINTS = 4, 0.5
FASTER = 100  # all times are divided by it for the replay, whose rates end at 1 ms a token


def load_rules():
    path = SOURCE / "python" / "kvpager" / "calibrate.py"
    spec = importlib.util.spec_from_file_location("calibrate", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


rules = load_rules()


class Server:
    """kvpager-serve with so many blocks of rules.BLOCK cells."""

    def __init__(self, program, model, blocks, parallel):
        self.process = subprocess.Popen(
            [program, "-m", model, "--port", "0", "-np", str(parallel), "-c", str(blocks * rules.BLOCK),
             "--block-tokens", str(rules.BLOCK)], stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if "http://" not in line:
            raise SystemExit(f"{program} does not start: {line}")
        self.port = int(line.rsplit(":", 1)[1].split("/")[0])

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)

    def usable(self):
        """Blocks, by their states."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        connection.close()
        return sum(int(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("kvpager_blocks{"))

    def ask(self, prompt, n, said):
        """(tokens cached, seconds to the first token, to the last)"""
        body = {"prompt": prompt, "max_tokens": n, "temperature": 0, "ignore_eos": True, "stream": True,
                "stream_options": {"include_usage": True}, "logit_bias": {str(said): 100}}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        begin = time.monotonic()
        first = usage = None
        connection.request("POST", "/v1/completions", json.dumps(body))
        for line in connection.getresponse():
            if line.startswith(b"data: {"):
                first = first or time.monotonic()
                usage = json.loads(line[6:]).get("usage") or usage
        connection.close()
        if usage is None or usage["completion_tokens"] != n:
            raise SystemExit(f"the server answered with {usage}, expected {n} tokens")
        return (usage["prompt_tokens_details"]["cached_tokens"], first - begin, time.monotonic() - begin)


def one_at_a_time(server, requests, seed, times):
    """What rules.workload serves; times: (tokens computed, to the first token, tokens of the answer, in
    all) of each request."""
    draw = random.Random(seed + 1000)

    def ask(prompt, n):
        said = draw.randrange(100, 40000)
        cached, first, whole = server.ask(prompt, n, said)
        times.append((len(prompt) - cached, first, n, whole))
        return [said] * n, cached
    return list(rules.workload(requests, seed, ask))


def fit(times):
    """Rates of a step for the replay: the fixed part, a prompt token, a sequence that decodes."""
    n, x, y = len(times), sum(t[0] for t in times), sum(t[1] for t in times)
    xx, xy = sum(t[0] * t[0] for t in times), sum(t[0] * t[1] for t in times)
    slope = max((n * xy - x * y) / (n * xx - x * x), 0)
    step = max((y - slope * x) / n, 0)
    longer = [(whole - first) / (tokens - 1) for _, first, tokens, whole in times if tokens > 1]
    decode = max(sum(longer) / len(longer) - step, 0)
    return [f"--{name}={int(seconds * 1e9 / FASTER)}" for name, seconds in
            [("step-ns", step), ("prompt-token-ns", slope), ("decode-token-ns", decode)]]


def several_at_once(server, requests, seed):
    """Requests of CLIENTS clients, in the order in which they came: (seconds, prompt, answer, cached)."""
    found, begin = [], time.monotonic()

    def client(i):
        draw = random.Random(seed * 100 + i)

        def ask(prompt, n):
            said, came = draw.randrange(100, 40000), time.monotonic() - begin
            cached = server.ask(prompt, n, said)[0]
            found.append((came, prompt, [said] * n, cached))
            return [said] * n, cached
        for _ in rules.workload(requests // CLIENTS, seed * 100 + i, ask):
            pass

    threads = [threading.Thread(target=client, args=(i,)) for i in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(found) != requests // CLIENTS * CLIENTS:
        raise SystemExit("a client failed")
    return sorted(found)


def replay_load(command, usable, found, rates):
    """Tokens hit."""
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "trace.jsonl")
        with open(trace, "w", encoding="utf-8") as file:
            for came, prompt, answer, _ in found:
                print(json.dumps({"arrival_time_ns": int(came * 1e9 / FASTER), "input_toks": len(prompt),
                                  "output_toks": len(answer), "input_tok_ids": prompt,
                                  "output_tok_ids": answer}), file=file)
        done = subprocess.run(
            [command, "replay", "--json", "--block-tokens", str(rules.BLOCK), "--blocks", str(usable),
             "--max-running", str(CLIENTS), "--step-tokens", "2048", *rates, trace],
            text=True, capture_output=True)
        if done.returncode != 0:
            raise SystemExit(f"{command} replay ended with {done.returncode}:\n{done.stderr}")
        return json.loads(done.stdout)["hit_tokens"]


def compare_load(command, usable, runs, rates):
    theirs, ours = [], []
    for found in runs:
        n_input = sum(len(prompt) for _, prompt, _, _ in found)
        theirs.append(100 * sum(cached for *_, cached in found) / n_input)
        ours.append(100 * replay_load(command, usable, found, rates) / n_input)
    spread = max(theirs) - min(theirs)
    apart = abs(sum(theirs) - sum(ours)) / len(runs)
    print(f"{CLIENTS} at once, {usable} blocks, {len(runs)} runs of {len(runs[0])} requests: the server hits "
          f"{sum(theirs) / len(runs):.2f} % of the input ({min(theirs):.2f} to {max(theirs):.2f}), the replay "
          f"{sum(ours) / len(runs):.2f} %: {apart:.2f} points apart, {max(POINTS, spread):.2f} allowed")
    return apart <= max(POINTS, spread)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server")
    parser.add_argument("model")
    parser.add_argument("--kvpager", default="kvpager")
    parser.add_argument("--blocks", default="20,40,80")
    parser.add_argument("--requests", type=int, default=160)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if given.requests < 2 * CLIENTS or given.runs < 1:
        parser.error(f"--requests is {given.requests}, --runs {given.runs}: expected {2 * CLIENTS} or more, and 1")
    sizes, times, passed = [int(size) for size in given.blocks.split(",")], [], []
    for size in sizes:
        with Server(given.server, given.model, size, 1) as server:
            usable = server.usable()
            served = one_at_a_time(server, given.requests, given.seed, times)
        passed.append(rules.compare(given.kvpager, usable, served, "kvpager-serve", False))
    runs = []
    for run in range(given.runs):
        with Server(given.server, given.model, max(sizes), CLIENTS) as server:
            runs.append(several_at_once(server, given.requests, given.seed + run))
            usable = server.usable()
    passed.append(compare_load(given.kvpager, usable, runs, fit(times)))
    print("PASS" if all(passed) else "FAIL")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
