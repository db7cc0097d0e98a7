"""The data of the report pages: against the figures of --json, and, for what only the page has,
against a simulation in Python."""

import collections
import os

from lib_curve import tree_trace
from lib_kvpager import (SOURCE, check, check_equal, directory, finish, replay, replay_load, run,
                         traces)
from lib_page import make_page
from lib_simulation import Simulation, read_jsonl

# With the whole cache audited after each call, a replay takes a hundred times as long.
AUDITED = int(os.environ.get("KVP_CHECK", "0")) > 0
MIXED = os.path.join(SOURCE, "data", "mixed-small.jsonl")


class Watched(Simulation):
    """The simulation, with a diary: of each content, when it was stored and used."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.stored, self.used, self.now = {}, {}, 0
        self.idle, self.lifetime = collections.Counter(), collections.Counter()
        self.gap_hit, self.gap_lost = collections.Counter(), collections.Counter()
        self.hits = collections.Counter()

    def take(self):
        first = next(iter(self.queue))
        if first in self.content_in:
            content = self.content_in[first]
            self.idle[self.now - self.used[content]] += 1
            self.lifetime[self.now - self.stored[content]] += 1
        return super().take()

    def serve(self, request, output):
        contents = self.contents(request, request.input_length + output)
        before, full = self.counts["block_hits"], request.input_length // self.size
        known = [content in self.used for content in contents[:full]]
        used = dict(self.used)
        # The page sees a request's uses before what was evicted for it.
        for content in contents[:full]:
            self.used[content] = self.now
        there = set(self.where)
        super().serve(request, output)
        hits = self.counts["block_hits"] - before
        for i, content in enumerate(contents[:full]):
            if i < hits:
                self.gap_hit[self.now - used[content]] += 1
                self.hits[content] += 1
            elif known[i]:
                self.gap_lost[self.now - used[content]] += 1
        for content in contents:
            if content not in there:
                self.stored[content] = self.used[content] = self.now
        self.now += 1


def in_bins(counter, edges):
    found = [0] * len(edges)
    for value, n in counter.items():
        found[max(i for i, edge in enumerate(edges) if edge <= value)] += n
    return found


def against_simulation(folder):
    page = os.path.join(folder, "page.html")
    for seed, blocks in [(1, 12), (2, 20), (3, 40), (4, 1000)]:
        path = tree_trace(folder, seed, n_requests=150)
        data = make_page(page, "replay", "--sequential", "--trace-block", 16, "--block-tokens", 8,
                         "--blocks", blocks + 6, path)
        model = Watched(8, blocks + 6)
        model.replay(read_jsonl(path, 16))
        watch = data["watch"]
        for name in ["idle", "lifetime", "gap_hit", "gap_lost"]:
            check_equal(watch[name], in_bins(getattr(model, name), data["bins"]), path, name)
        check_equal(watch["evicted"], model.counts["evictions"], path)
        saved = sum(prefix["saved_tokens"] for prefix in watch["prefixes"])
        check(saved <= 8 * model.counts["block_hits"], path, "saved too much")
        deepest = max(watch["prefixes"], key=lambda prefix: prefix["hits"])
        check_equal(deepest["hits"], max(model.hits.values()), path, "most shared")
        check(blocks == 1000 or watch["evicted"] > 50, path, "evicts too little")


def agrees(data, result, *what):
    """What the page says twice is the same."""
    watch, course = data["watch"], data["course"]
    why = data["result"].pop("why")
    parts = [part for part in why.values() if isinstance(part, dict)]
    check_equal({**data["result"], "measured": 0}, {**result, "measured": 0}, *what)
    check_equal(why["hit"]["tokens"], result["hit_tokens"], *what)
    check_equal(sum(part["tokens"] for part in parts), result["input_tokens"], *what)
    check_equal(sum(part["requests"] for part in parts), result["requests"], *what)
    check_equal(watch["evicted"], result["evictions"], *what)
    check_equal(sum(watch["idle"]), watch["evicted"], *what)
    check_equal(sum(watch["lifetime"]), watch["evicted"], *what)
    check_equal(watch["missed_events"], 0, *what)
    check_equal(sum(course["hit_tokens"]), result["hit_tokens"], *what)
    check_equal(sum(course["evictions"]), result["evictions"], *what)
    for held, cached in zip(course["held"], course["cached"]):
        check(held + cached <= result["blocks"] * 1.000001, *what, "more than there are")


def load_pages(folder):
    page = os.path.join(folder, "page.html")
    tight = ["--limit", 40, "--block-tokens", 128, "--speedup", 50]
    for options in [["--speedup", 3, "--blocks", 9000],
                    ["--speedup", 0.3, "--limit", 300, "--blocks", 6000],
                    ["--speedup", 3, "--blocks", 7000, "--host-blocks", 9000, "--preempt", "swap"],
                    ["--limit", 60, "--no-prefix-cache"],
                    ["--limit", 60, "--block-tokens", 64, "--chunk-tokens", 512],
                    [*tight, "--blocks", 650],
                    [*tight, "--blocks", 640, "--host-blocks", 700, "--preempt", "swap"]]:
        if AUDITED and options[:4] != tight[:4]:
            continue
        data = make_page(page, "replay", "--no-measure", *options, MIXED)
        result = replay_load(MIXED, *options)
        agrees(data, result, options)
        course = data["course"]
        full = next((i for i, n in enumerate(course["evictions"]) if n > 0), course["n"]) + 1
        for held, cached in list(zip(course["held"], course["cached"]))[full:]:
            check(held + cached > 0.9 * result["blocks"], options, "blocks are free", held, cached)
        check_equal(sum(course["preemptions"]),
                    result["preemptions_recompute"] + result["preemptions_swap"], options)
        check_equal(sum(course["finished"]), result["finished"], options)
        for name, key in [("queue", "queue_ns"), ("first_token", "time_to_first_token_ns"),
                          ("per_token", "time_per_output_token_ns"),
                          ("end_to_end", "end_to_end_ns")]:
            check_equal(sum(data["spread"][name]), result[key]["n"], options, name)
            check(max(course[name + "_p90"]) <= result[key]["max"], options, name)


POLICY = ["references", "learned_hits", "lru_hits"]
REASONS = ["cold_references", "guard_references", "gate_references"]


def learned_pages(folder):
    """The course of the learned policy adds up to its counters; with LRU there is none."""
    page = os.path.join(folder, "page.html")
    tight = ["--limit", 60, "--block-tokens", 128, "--blocks", 640] if AUDITED else ["--blocks", 4946]
    data = make_page(page, "replay", "--sequential", "--policy", "learned", *tight, MIXED)
    course, result = data["course"], data["result"]
    check_equal(result["policy"], "learned")
    for name in POLICY:
        check_equal(sum(course[name]), result[name], name)
    for name in REASONS:
        check_equal(sum(course[name]), result["learned"][name], name)
    check(0 < result["fallback_references"], result)
    data = make_page(page, "replay", "--no-measure", "--policy", "learned", *tight, MIXED)
    for name in POLICY:  # the last step's are not in it
        found, all_of_it = sum(data["course"][name]), data["result"][name]
        check(0.9 * all_of_it <= found <= all_of_it, name, found, all_of_it)
    check_equal(sum(data["course"]["cold_references"]),
                data["result"]["learned"]["cold_references"], "not warm")
    data = make_page(page, "replay", "--sequential", *tight, MIXED)
    check("policy" not in data["result"], data["result"])
    check("learned" not in data["result"], data["result"])
    for name in POLICY + REASONS:
        check_equal(sum(data["course"][name]), 0, name)


def others(folder):
    page = os.path.join(folder, "page.html")
    options = ["--limit", 40, "--block-tokens", 128, "--blocks", 640] if AUDITED \
        else ["--blocks", 6000]
    data = make_page(page, "replay", "--sequential", *options, MIXED)
    result = replay(MIXED, *options)
    measured = ["wall_seconds", "tokens_per_second", "ns_per_open", "ns_per_commit",
                "ns_per_extend", "ns_per_close"]
    for name in measured:
        result[name] = data["result"][name]
    agrees(data, result, "sequential")
    course = make_page(page, "replay", "--sequential", *options, "--host-blocks", 700, MIXED)["course"]
    check(max(course["host_cached"]) > 600, "nothing is on the host", max(course["host_cached"]))
    data = make_page(page, "mrc", "--model", "llama-3.1-8b", "--device", "h100", MIXED)
    check_equal(data["kind"], "mrc")
    check(len(data["result"]["curve"]) > 300, "a short curve")
    # Rejected requests, tokens without time, nothing shared, one request.
    azure = b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6,900,20\n"
    for options in [["--sequential"], ["--sequential", "--blocks", 4], [], ["--blocks", 4]]:
        done = run("replay", "--report", page, *options, "-", stdin=azure)
        served = "--blocks" not in options  # four blocks are too few
        check_equal(done.returncode, 0 if served else 1, options, done.stderr)
    if traces() is not None and not AUDITED:
        path = os.path.join(traces(), "sharegpt_llama31_300.jsonl")
        data = make_page(page, "replay", "--no-measure", "--blocks", 2000, path)
        agrees(data, replay_load(path, "--blocks", 2000), path)


def policies(folder):
    """Several policies have one page, with the report of each."""
    page = os.path.join(folder, "page.html")
    for options in [["--sequential"], ["--no-measure"]]:
        options = [*options, "--limit", 40, "--block-tokens", 128, "--blocks", 640, "--policy", "learned,lru"]
        data = make_page(page, "replay", *options, MIXED)
        check_equal((data["kind"], data["title"]), ("policies", "mixed-small.jsonl"))
        for one in data["result"]["policies"]:
            check_equal(one["report"]["hit_tokens"], one["hit_tokens"], options)
        check_equal([one["policy"] for one in data["result"]["policies"]], ["learned", "lru"])


def refusals(folder):
    for target, message in [("/no/such/folder/x", "No such file"), (folder, "Is a directory")]:
        for options in [["--sequential"], []]:
            done = run("replay", "--limit", 5, "--report", target, *options, MIXED)
            check_equal(done.returncode, 1, target, options)
            check(f"cannot write {target}: {message}" in done.stderr.decode(), done.stderr)
            check_equal(done.stdout, b"", target, options)
    if os.path.exists("/dev/full"):
        done = run("replay", "--limit", 5, "--report", "/dev/full", MIXED)
        check_equal(done.returncode, 1, "/dev/full")
        check("cannot write /dev/full: No space left" in done.stderr.decode(), done.stderr)


def main():
    with directory() as folder:
        against_simulation(folder)
        load_pages(folder)
        learned_pages(folder)
        others(folder)
        policies(folder)
        refusals(folder)
    finish()


if __name__ == "__main__":
    main()
