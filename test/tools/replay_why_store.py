"""Why prompts were computed, with a host and a store: against the slow simulation of three tiers, and
what is known without one: sizes of caches that keep what was evicted, stores that fail."""

import json
import os

from lib_curve import Tier, Tiers, served, token_trace, tree_trace
from lib_kvpager import (check, check_equal, directory, finish, mooncake, replay, replay_load, run, skip)
from lib_simulation import read_jsonl
from lib_states import RATES, UNIT, draw, write_config

AUDITED = int(os.environ.get("KVP_CHECK", "0")) > 0
PARTS = ["hit", "resident", "evicted", "in_flight", "grid", "new", "last"]
TOKEN_BYTES = 64


def read_lines(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


class Leaving(Tier):
    """A tier that says what leaves it."""

    def __init__(self, blocks, left):
        super().__init__(blocks)
        self.left = left

    def take(self):
        evicted = super().take()
        if evicted is not None:
            self.left(evicted)
        return evicted


class Records(list):
    """The store: what leaves it is told, too."""

    def pop(self, at):
        self.left(self[at])
        return super().pop(at)


class Cut(Tiers):
    """The simulation of three tiers, with the cuts of each prompt before it is served."""

    def __init__(self, size, requests, *arguments):
        super().__init__(*arguments)
        self.size, self.requests, self.now, self.lines = size, requests, 0, []
        self.first, self.gone, self.record_gone, self.known = {}, {}, {}, set()
        self.parent = {}
        self.device = Leaving(self.device.blocks, lambda content: self.leave(content, "device"))
        self.host = Leaving(self.host.blocks, lambda content: self.leave(content, "host"))
        self.store = Records()
        self.store.left = lambda name: self.record_gone.update({name: self.now})

    def leave(self, content, tier):
        self.gone[content] = (self.now, tier)

    def serve(self, request):
        self.before = [set(self.device.queue), set(self.host.queue), set(self.store)]
        hit, given = self.hit, self.requests[self.now]
        super().serve(request)
        prompt = request.contents[:request.n_prompt]
        self.lines.append(self.cut(given, request, prompt,
                                   request.tokens.index(self.hit - hit) if prompt else 0))
        for content in prompt:
            self.first.setdefault(content, given.number + 1)
        for content in request.contents:
            self.first.setdefault(content, 0)
        self.now += 1

    def name_of(self, prompt, i):
        end = (i // self.record + 1) * self.record
        return prompt[end - 1] if end <= len(prompt) else None

    def where(self, prompt, i):
        """The tier that has it, "" if none has."""
        for tier, contents in zip(["device", "host"], self.before):
            if prompt[i] in contents:
                return tier
        return "store" if self.name_of(prompt, i) in self.before[2] else ""

    def left_last(self, prompt, i):
        """(how long ago, from where)."""
        gone, tier = self.gone_before.get(prompt[i], (-1, None))
        record = self.record_gone_before.get(self.name_of(prompt, i), -1)
        return (self.now - record, "store") if record >= gone and record >= 0 else (self.now - gone, tier)

    def cut(self, given, request, prompt, n_hits):
        line = {"line": given.number + 1, "input_tokens": given.input_length}
        line.update({f"{part}_tokens": 0 for part in PARTS})
        parts, tiers_hit, last = [], [], "hit"
        for i, content in enumerate(prompt):
            tier = self.where(prompt, i)
            here = ("hit" if i < n_hits else "resident" if tier else
                    "new" if content not in self.first else "evicted")
            last = max(here, last, key=PARTS.index)
            if last == "hit":
                tiers_hit.append(tier)
            if last == "resident" and "resident" not in parts:
                line["from_store"] = tier == "store"
            if last == "evicted" and "evicted" not in parts:
                line["evicted_ago_requests"], line["evicted_from"] = self.left_last(prompt, i)
            if last != "new" and self.first.get(content, 0) > 0:
                line["known_from_line"] = self.first[content]
            elif last != "new":
                line.pop("known_from_line", None)
            parts.append(last)
            line[f"{last}_tokens"] += self.size
        for tier in ("host", "store"):
            n = tiers_hit.count(tier) * self.size
            line[f"hit_{tier}_tokens"] = n - (n > 0 and tiers_hit[-1] == tier and last == "hit" and
                                              given.input_length % self.size == 0)
        if given.input_length > 0:
            rest = given.input_length % self.size
            part = last if rest == 0 else "new" if last == "new" else "grid"
            line[f"{part}_tokens"] += rest - 1
            line["last_tokens"] = 1
        return line

    def load(self, prompt):
        self.gone_before, self.record_gone_before = dict(self.gone), dict(self.record_gone)
        self.look(prompt)
        return super().load(prompt)

    def look(self, prompt):
        """The spill learns what the store has of the records that are not hit."""
        n_hits = 0
        while n_hits < len(prompt) and (prompt[n_hits] in self.device.queue or
                                        prompt[n_hits] in self.host.queue):
            n_hits += 1
        for _, name in self.records(prompt)[n_hits // self.record:]:
            (self.known.add if name in self.store else self.known.discard)(name)

    def use(self, names):
        """A store's order is exact to 1,024 uses, and here are fewer."""

    def make_room(self, parent):
        """The coldest record that no other needs goes; False: there is none."""
        for at, name in enumerate(self.store if len(self.store) == self.room else ()):
            if name != parent and name not in map(self.parent.get, self.store):
                self.store.pop(at)
                return True
        return len(self.store) < self.room

    def write(self, contents):
        """What is known to be stored is not written, though the store may have evicted it. A new
        record is next to the one before it, on the colder side."""
        parent = None
        for blocks, name in self.records(contents):
            if name not in self.known:
                if parent is not None and parent not in self.store:
                    self.known.discard(parent)
                    return
                if name not in self.store:
                    self.lend(blocks)
                    if not self.make_room(parent):
                        return
                    self.parent[name] = parent
                    at = len(self.store) if parent is None else self.store.index(parent)
                    self.store.insert(at, name)
                    self.written += self.record
                self.known.add(name)
            parent = name


def same_line(got, expected, *what):
    from_store = expected.pop("from_store", None)
    why = got.pop("resident_why", None)
    check_equal(why is None, from_store is None, got, expected, *what)
    if from_store is not None:
        check_equal(why.startswith("in the store"), from_store, got, *what)
    for key in ("hit_host_tokens", "hit_store_tokens"):
        got.setdefault(key, 0)
    got.pop("enough_blocks", None)
    check_equal(got, expected, *what)


def add_up(found, lines, *what):
    why = found["why"]
    for line in lines:
        check_equal(sum(line[f"{part}_tokens"] for part in PARTS), line["input_tokens"], *what)
    for part in PARTS:
        check_equal(why[part]["tokens"], sum(line[f"{part}_tokens"] for line in lines), *what, part)
    for part in ("hit", "evicted"):
        check_equal(sum(why[part][f"{tier}_tokens"] for tier in ("device", "host", "store", "unknown")),
                    why[part]["tokens"], *what, part)
    check_equal(sum(one["tokens"] for one in why["resident"]["by_why"]), why["resident"]["tokens"],
                *what)
    check_equal(why["hit"]["tokens"], found["hit_tokens"], *what)


def one_replay(path, size, given, requests, where, out):
    """Gives its figures, and whether the simulation hits and writes as much: a spill leaves out some
    records that it could write, where a store is small."""
    blocks, host, store, record, through = where
    model = Cut(size, given, *where)
    for request in requests:
        model.serve(request)
    found = replay(path, "--trace-block", 16, "--block-tokens", size, "--blocks", blocks,
                   "--host-blocks", host, "--disk", f"{store * size * TOKEN_BYTES}B",
                   "--record-blocks", record, "--store-writes", "through" if through else "second",
                   "--kv-bytes-per-token", TOKEN_BYTES, "--why", out)
    lines = read_lines(out)
    add_up(found, lines, path, where)
    is_same = (model.hit, model.written) == (found["hit_tokens"],
                                             record * found["store"]["stored"])
    if is_same:
        for got, expected in zip(lines, model.lines):
            same_line(got, expected, path, where)
    return found, is_same


def like_simulations(folder):
    n = dict.fromkeys(["host", "store", "left_host", "left_store", "kept_back"], 0)
    for seed in range(1, 3 if AUDITED else 9):
        path = token_trace(folder, seed) if seed % 2 else tree_trace(folder, seed, depth=9)
        size = 4 if seed % 2 else 8
        requests, given = served(path, size), read_jsonl(path, 16)
        most = max(request.n_blocks for request in requests)
        for host, store, record, through in [(most, 400, 1, True), (2 * most, 400, 2, False),
                                             (most, 40, 1, False), (2 * most, 40, 2, True),
                                             (most, 20, 1, False), (2 * most, 20, 2, False),
                                             (most // 2, 400, 1, True)]:
            found, is_same = one_replay(path, size, given, requests,
                                        (most, host, store, record, through),
                                        os.path.join(folder, "why.jsonl"))
            check(is_same or store < 400 or host < most, path, host, store, record, through)
            for tier in ("host", "store") if is_same else ():
                n[tier] += found["why"]["hit"][f"{tier}_tokens"]
            for tier in ("host", "store") if is_same else ():
                n[f"left_{tier}"] += found["why"]["evicted"][f"{tier}_tokens"]
            n["kept_back"] += found["why"]["resident"]["tokens"] if is_same else 0
    check(min(n["host"], n["store"]) > 50 and (AUDITED or min(n.values()) > 100), n)


def real_store(folder):
    """A directory that keeps everything is like a model."""
    path, out = tree_trace(folder, 3), os.path.join(folder, "why.jsonl")
    options = ["--trace-block", 16, "--block-tokens", 8, "--blocks", 20, "--host-blocks", 20,
               "--kv-bytes-per-token", TOKEN_BYTES, "--record-blocks", 1, "--store-writes",
               "through", "--why", out]
    found = []
    for store in (["--disk", "1MB"], ["--store", f"file:{folder}/store?size=64MiB"]):
        os.makedirs(os.path.join(folder, "store"), exist_ok=True)
        why = replay(path, *options, *store)["why"]
        found.append((read_lines(out), why))
    check_equal(found[0], found[1])
    check(found[0][1]["hit"]["store_tokens"] > 500, found[0][1]["hit"])
    # a second replay finds what the first one wrote: no request had it, and it is not new
    again = replay(path, *options, "--store", f"file:{folder}/store?size=64MiB")
    add_up(again, read_lines(out), "again")
    check(again["why"]["new"]["tokens"] < found[1][1]["new"]["tokens"], again["why"])
    check(again["why"]["hit"]["store_tokens"] > found[1][1]["hit"]["store_tokens"], again["why"])


def kept_back(folder):
    """Under load: what the store has, and why it is computed all the same."""
    path, out = os.path.join(folder, "back.jsonl"), os.path.join(folder, "why.jsonl")

    def write(*names):
        with open(path, "w", encoding="utf-8") as file:
            for i, name in enumerate(names):
                file.write(mooncake(100000 * i, 512 * 8, 1, [10 * name + k for k in range(8)]))

    write(1, 2, 3, 1, 2)
    options = [path, "--blocks", 512, "--watermark", 0, "--host-blocks", 600, "--keep-evicted", "off",
               "--step-ns", 1000000, "--prompt-token-ns", 100000, "--kv-bytes-per-token", TOKEN_BYTES,
               "--store-writes", "through", "--record-blocks", 4, "--why", out]
    for store, why in [(["--disk", "1GiB@1GB"], None),
                       (["--disk", "1GiB@10kB"], "in the store: computing is faster, or no host block"),
                       (["--remote", "1GiB@1GB,20s"], "in the store: deadline")]:
        found = replay_load(*options, *store)
        lines = read_lines(out)
        add_up(found, lines, store)
        check(why in {line.get("resident_why") for line in lines[3:]}, store, lines[3:])
        table = {one["why"]: one["tokens"] for one in found["why"]["resident"]["by_why"]}
        check_equal(table, {} if why is None else {why: sum(one["resident_tokens"] for one in lines)},
                    store)
        check((found["why"]["hit"]["store_tokens"] > 4000) == (why is None), found["why"]["hit"])
        check_equal(found["why"]["evicted"]["tokens"], 0, store)
    # one that is full: what it has evicted left it last, at a time that is known
    write(1, 2, 3, 4, 1)
    replay_load(*options, "--disk", f"{3 * 256 * 16 * TOKEN_BYTES}B@1GB")
    last = read_lines(out)[4]
    check_equal((last["evicted_from"], last["evicted_ago_ms"] // 10000), ("store", 9), last)


def with_states(folder):
    """A model with recurrent state, whose hits need one of the store's."""
    path, out = draw(folder, 2)[0], os.path.join(folder, "why.jsonl")
    options = ["--model-config", write_config(folder), "--trace-block", UNIT, "--blocks", 60,
               "--host-blocks", 100, "--state-slots", 6, "--disk", "1GiB", "--store-writes", "through",
               "--why", out]
    for how, rates in [(replay, []), (replay_load, RATES)]:
        found = how(path, *options, *rates)
        add_up(found, read_lines(out), "states")
        check({"no state", "the last block is computed again"} <=
              {one["why"] for one in found["why"]["resident"]["by_why"]}, found["why"]["resident"])


def loaded_early(folder):
    """What was loaded while another request ran was in the store, and not on the host."""
    path, out = os.path.join(folder, "early.jsonl"), os.path.join(folder, "why.jsonl")
    arrivals = [(0, 1, 1), (100000, 2, 1), (200000, 3, 1), (300000, 4, 400), (300100, 1, 1)]
    with open(path, "w", encoding="utf-8") as file:
        for ms, name, n_output in arrivals:
            file.write(mooncake(ms, 512 * 8, n_output, [10 * name + k for k in range(8)]))
    found = replay_load(path, "--max-running", 1, "--blocks", 600, "--watermark", 0, "--host-blocks", 600,
                        "--keep-evicted", "off", "--step-ns", 1000000, "--prompt-token-ns", 100000,
                        "--kv-bytes-per-token", TOKEN_BYTES, "--store-writes", "through", "--record-blocks",
                        4, "--disk", "1GiB@1GB", "--why", out)
    add_up(found, read_lines(out), "loaded early")
    check_equal(found["why"]["hit"]["store_tokens"], 512 * 8 - 1, found["why"]["hit"])


def enough(folder):
    """A cache of so many blocks has what was evicted, and one with a block less has not."""
    out, n = os.path.join(folder, "why.jsonl"), 0
    for seed in range(1, 3 if AUDITED else 5):
        path, size = (token_trace(folder, seed), 4) if seed % 2 else (tree_trace(folder, seed), 8)
        options = [path, "--trace-block", 16, "--block-tokens", size, "--why", out]
        most = max(request.n_blocks for request in served(path, size))
        found = replay(*options, "--blocks", most + 1)["why"]["evicted"]
        lines = [line for line in read_lines(out) if line["evicted_tokens"] > 0]
        check_equal(found["enough_blocks"], max(line["enough_blocks"] for line in lines))
        half = found["half_enough_blocks"]
        left = [replay(*options, "--blocks", blocks)["why"]["evicted"]["tokens"]
                for blocks in (found["enough_blocks"], half, half - 1)]
        check_equal(left[0], 0)
        check(2 * left[1] <= found["tokens"] and (half == most + 2 or 2 * left[2] > found["tokens"] - 2 * size),
              path, found, left)
        for line in lines[:: 8 if AUDITED else 1]:
            evicted = []
            for blocks in (line["enough_blocks"], line["enough_blocks"] - 1):
                replay(*options, "--blocks", blocks)
                evicted.append(read_lines(out)[line["line"] - 1]["evicted_tokens"])
            check(evicted[0] == 0 < evicted[1], path, line, evicted)
            n += 1
        # how large is not known of other queues
        for other in (["--policy", "learned"], ["--unit-tokens", 2], ["--skip", 3]):
            why = replay(*options, "--blocks", most + 1, *other)["why"]["evicted"]
            check_equal((why["enough_blocks"], why["half_enough_blocks"]), (None, None), other)
    check(n > (5 if AUDITED else 10), n)
    text = run("replay", "--sequential", *options, "--blocks", most + 1).stdout.decode()
    check("blocks would have kept it; " in text and "blocks of a cache that had kept it" in text, text)


with directory() as made:
    enough(made)
    if b"built without stores" in run("store").stderr:
        skip("no stores in this build")
    like_simulations(made)
    real_store(made)
    loaded_early(made)
    kept_back(made)
    with_states(made)
finish()
