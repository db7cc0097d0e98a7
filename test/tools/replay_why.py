"""Why prompts were computed (replay --why): against a simulation in Python; that the parts of each
request, of the table and of what prefill takes add up; what is refused."""

import json
import os
import random

from lib_curve import token_trace, tree_trace
from lib_kvpager import check, check_equal, directory, finish, mooncake, replay, replay_load, run
from lib_load import check_sums
from lib_simulation import Simulation, read_jsonl
from lib_states import RATES, UNIT, draw, write_config

PARTS = ["hit", "resident", "evicted", "in_flight", "grid", "new", "last"]
AGAIN = ["resident", "evicted", "in_flight"]


class Cut(Simulation):
    """The simulation, with the cuts of each prompt before it is served."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.first, self.gone, self.lines = {}, {}, []

    def take(self):
        evicted = self.content_in.get(next(iter(self.queue)))
        if evicted is not None:
            self.gone[evicted] = self.counts["requests"]
        return super().take()

    def cut(self, request, contents):
        line = {"line": request.number + 1, "input_tokens": request.input_length}
        line.update({f"{part}_tokens": 0 for part in PARTS})
        parts = []
        for content in contents:
            here = ("new" if content not in self.first else
                    "resident" if content in self.where else "evicted")
            if here == "resident" and all(part == "hit" for part in parts):
                here = "hit"
            parts.append(max([here, *parts], key=PARTS.index))
            if parts[-1] == "evicted" and "evicted_from" not in line:
                line["evicted_from"] = "device"
                line["evicted_ago_requests"] = (self.counts["requests"] -
                                                self.gone[content])
            if parts[-1] != "new":
                line["known_from_line"] = self.first[content]
        last = parts[-1] if parts else "hit"
        for part in parts:
            line[f"{part}_tokens"] += self.size
        if request.input_length > 0:
            rest = request.input_length % self.size
            part = last if rest == 0 else "new" if last == "new" else "grid"
            line[f"{part}_tokens"] += rest - 1
            line["last_tokens"] = 1
        if line["resident_tokens"] > 0:
            line["resident_why"] = "not on the device"
        return {name: value for name, value in line.items()
                if name != "known_from_line" or value > 0}

    def serve(self, request, output):
        contents = self.contents(request, request.input_length + output)
        full = contents[:request.input_length // self.size]
        self.lines.append(self.cut(request, full))
        for content in full:
            self.first.setdefault(content, request.number + 1)
        super().serve(request, output)
        for content in contents:
            self.first.setdefault(content, 0)


def read_lines(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def add_up(lines, why, hit_tokens, *what):
    """The sums of the lines are the table, and its worst requests are the lines' worst."""
    for line in lines:
        check_equal(sum(line[f"{part}_tokens"] for part in PARTS), line["input_tokens"], *what)
    for part in PARTS:
        check_equal(why[part]["tokens"], sum(line[f"{part}_tokens"] for line in lines), *what, part)
    check_equal(why["hit"]["tokens"], hit_tokens, *what)
    check_equal(sum(why[part]["requests"] for part in PARTS),
                sum(line["input_tokens"] > 0 for line in lines), *what)
    again = [sum(line[f"{part}_tokens"] for part in AGAIN) for line in lines]
    check_equal([one["again_tokens"] for one in why["worst"]],
                sorted((n for n in again if n > 0), reverse=True)[:10], *what)


def one_by_one(folder):
    n = dict.fromkeys(PARTS, 0)
    out = os.path.join(folder, "why.jsonl")
    for seed in range(1, 7):
        for path, size, block in [(tree_trace(folder, seed, 150), 8, 16),
                                  (token_trace(folder, seed, 150), 4, 16)]:
            for blocks in [9, 16, 30, 1000]:
                model = Cut(size, blocks)
                model.replay(read_jsonl(path, block))
                found = replay(path, "--trace-block", block, "--block-tokens", size, "--blocks",
                               blocks, "--why", out)
                lines = read_lines(out)
                add_up(lines, found["why"], found["hit_tokens"], path, blocks)
                for got, expected in zip(lines, model.lines):
                    check_equal("enough_blocks" in got, got["evicted_tokens"] > 0, got)
                    got.pop("enough_blocks", None)  # replay_why_store.py
                    check_equal(got, expected, path, blocks)
                check_equal(len(lines), len(model.lines), path, blocks)
                for part in PARTS:
                    n[part] += found["why"][part]["tokens"]
    check(min(n[part] for part in ["hit", "evicted", "grid", "new", "last"]) > 1000, n)


def under_load(folder):
    """Equal prompts at once: one computes, the others find it in flight. Prefill adds up to the
    same whatever is hit."""
    path, out = os.path.join(folder, "burst.jsonl"), os.path.join(folder, "why.jsonl")
    numbers, seconds = random.Random(3), []
    with open(path, "w", encoding="utf-8") as file:
        for i in range(120):
            ids = [numbers.randint(1, 3) * 100 + k for k in range(numbers.randint(1, 6))]
            file.write(mooncake(i // 6 * 400, len(ids) * 512 - numbers.randint(0, 40), 20, ids))
    for options in [["--blocks", 4000], ["--blocks", 500], ["--blocks", 500, "--no-prefix-cache"],
                    ["--blocks", 500, "--host-blocks", 2000, "--preempt", "swap"]]:
        found = replay_load(path, "--why", out, *options)
        lines = read_lines(out)
        check_sums(found, options)
        add_up(lines, found["why"], found["hit_tokens"], options)
        check_equal(found["why"]["hit"]["host_tokens"], found["host_tokens"], options)
        parts = [found["why"][part]["prefill_seconds"] for part in PARTS]
        again = sum(found["why"][part]["prefill_seconds"] for part in AGAIN)
        check(abs(sum(line["again_seconds"] for line in lines) - again) < 1e-4, options, "again")
        seconds.append(sum(parts))
        if options == ["--blocks", 4000]:
            check(found["why"]["in_flight"]["tokens"] > 3000, found["why"])
            check_equal(found["why"]["evicted"]["tokens"], 0)
        if options == ["--blocks", 500]:
            check(found["why"]["evicted"]["tokens"] > 1000, found["why"])
    check(max(seconds) - min(seconds) < 1e-9 * max(seconds), "prefill differs", seconds)


def without_states(folder):
    """KV is there, and the state that a hit needs is gone."""
    config, out = write_config(folder), os.path.join(folder, "why.jsonl")
    path, _ = draw(folder, 2)
    options = ["--model-config", config, "--trace-block", UNIT, "--blocks", 400, "--why", out]
    for how, rates in [(replay, []), (replay_load, RATES)]:
        found, lines = how(path, *options, "--state-slots", 2, *rates), read_lines(out)
        add_up(lines, found["why"], found["hit_tokens"], "states")
        kept = {line["resident_why"] for line in lines if line["resident_tokens"] > 0}
        check("no state" in kept, kept)


def on_the_host(folder):
    """What left the device is on the host, which loses nothing; hits end for lack of a state."""
    config, out = write_config(folder), os.path.join(folder, "why.jsonl")
    path, _ = draw(folder, 2)
    found = replay(path, "--model-config", config, "--trace-block", UNIT, "--blocks", 30,
                   "--host-blocks", 4000, "--state-slots", 20, "--why", out)
    add_up(read_lines(out), found["why"], found["hit_tokens"], "host")
    check_equal(found["why"]["hit"]["host_tokens"], found["host_hit_tokens"])
    check(found["evictions"] > 100 and found["host_evictions"] == 0, found["evictions"])
    check(found["why"]["resident"]["tokens"] > 1000, found["why"])
    check_equal(found["why"]["evicted"]["tokens"], 0)


def several_files(folder):
    """Lines are of the file that is named, where there are several."""
    paths = [os.path.join(folder, name) for name in ("first \"one\".jsonl", "second.jsonl")]
    for at, path in enumerate(paths):
        with open(path, "w", encoding="utf-8") as file:
            for i in range(6):
                file.write(mooncake(100 * i + at, 600, 2, [i, 50 + i]))
            if at:
                file.write(mooncake(1000, 60000, 1, [1000 * at + k for k in range(118)]))
    out = os.path.join(folder, "why.jsonl")
    options = ["--blocks", 90, "--why", out, "--no-measure", "--prompt-token-ns", 1]
    done = run("replay", "--json", *options, *paths)
    found, lines = json.loads(done.stdout), read_lines(out)
    check_equal([one["file"] for one in lines], paths * 6)
    check_equal([one["line"] for one in lines], [1 + i // 2 for i in range(12)])
    check_equal({one.get("known_from_file") for one in lines[1::2]}, {paths[0]})
    check_equal([(one["file"], one["line"]) for one in found["rejections"]], [(paths[1], 7)])
    for one in found["why"]["worst"]:
        check(one["file"] in paths and one["known_from_file"] in paths, one)
    text = run("replay", *options, *paths).stdout.decode()
    check(f"\n  {paths[1]}, line 7: 60000 + 1 tokens: " in text, text)
    alone = json.loads(run("replay", "--json", *options, paths[1]).stdout)
    check_equal([one["file"] for one in alone["rejections"]], [None])
    check_equal([one for one in read_lines(out) if "file" in one or "known_from_file" in one], [])
    # one after the other, with room for one prompt: what the first file had is computed again
    options = ["--sequential", "--blocks", 40, "--block-tokens", 16, "--why", out]
    with open(paths[1], "w", encoding="utf-8") as file:
        file.write("".join(mooncake(1000 + i, 600, 2, [i, 50 + i]) for i in range(6)))
    worst = json.loads(run("replay", "--json", *options, *paths).stdout)["why"]["worst"]
    check_equal(sorted((one["file"], one["known_from_file"]) for one in worst),
                [(paths[1], paths[0])] * 6)
    text = run("replay", *options, *paths).stdout.decode()
    check(f"  {paths[1]}, since {paths[0]}\n" in text, text)


def several_in_a_line(folder):
    """A request of a conversation is named by its place, inner agents' among them."""
    path, out = os.path.join(folder, "agents.json"), os.path.join(folder, "why.jsonl")

    def request(t, *ids):
        return {"t": t, "type": "n", "model": "m", "in": 64 * len(ids), "out": 1, "hash_ids": ids}

    turns = [request(0, 1, 2), {"t": 4, "type": "subagent", "duration_ms": 2000, "status": "completed",
                                "requests": [request(0, 7), request(1, 8)]},
             request(5, 1, 2, 3), request(6, 9, 10)]
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"id": "a", "models": ["m"], "block_size": 64, "hash_id_scope": "local",
                   "requests": turns}, file)
    replay(path, "--blocks", 40, "--why", out)
    lines = read_lines(out)
    check_equal([(one["line"], one["request"], one["input_tokens"]) for one in lines],
                [(1, 1, 128), (1, 2, 64), (1, 3, 64), (1, 4, 192), (1, 5, 128)])
    check_equal((lines[3]["known_from_line"], lines[3]["known_from_request"]), (1, 1))
    found = replay_load(path, "--blocks", 9, "--no-prefix-cache")
    check_equal([(one["line"], one["request"]) for one in found["rejections"]], [(1, 4)])
    text = run("replay", "--blocks", 9, "--prompt-token-ns", 1, path).stdout.decode()
    check("line 1, request 4: 192 + 1 tokens: " in text, text)
    text = run("replay", "--sequential", "--blocks", 13, "--why", out, path).stdout.decode()
    check("        1:4         192" in text and "line 1:1" in text, text)


def refused(folder):
    path = tree_trace(folder, 1, 20)
    options = ["replay", "--sequential", "--trace-block", 16, "--blocks", 20, path, "--why"]
    for more, said in [([os.path.join(folder, "no", "why")], b"No such file or directory"),
                       (["w", "--policy", "lru,learned"], b"--why is for one --policy"),
                       (["w", "--snapshot-in", "s"], b"--why and --snapshot-in exclude"),
                       (["/dev/full"], b"cannot write /dev/full: No space left on device")]:
        done = run(*options, *more)
        check(done.returncode != 0 and said in done.stderr, more, done.stderr)
    table = run(*options, os.path.join(folder, "w")).stdout.decode()
    for text in ["Why prompts were computed", "Most tokens computed again", "known since"]:
        check(text in table, text, table)


with directory() as made:
    one_by_one(made)
    under_load(made)
    without_states(made)
    on_the_host(made)
    several_files(made)
    several_in_a_line(made)
    refused(made)
finish()
