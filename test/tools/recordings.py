"""Recordings, made here byte by byte: `events` prints and checks them, `replay` and `mrc` read them
as they read a trace of the same requests."""

import json
import os
import random

from lib_kvpager import check, check_equal, directory, finish, mooncake, replay, run, skip
from lib_recording import FIELDS, recording, runs_of

BLOCK = 16


def workload(n, seed):
    """Conversations: prompts that begin with earlier ones and their answers."""
    draw, found, chats, number = random.Random(seed), [], [], 0
    for i in range(n):
        before, have, session = draw.choice(chats) if chats and draw.random() < 0.6 else ([], 0, i + 1)
        tokens = max(len(before) * BLOCK, have) + draw.randrange(1, 200)
        output = draw.randrange(1, 60)
        blocks = list(before)
        while len(blocks) < (tokens + output) // BLOCK:
            blocks.append(number)
            number += 1
        chats.append((blocks, tokens + output, session))
        request = {"time_us": 1_700_000_000_000_000 + i * 250_000, "input_tokens": tokens,
                   "output_tokens": output}
        if draw.random() < 0.5:
            request |= {"cached_tokens": 0, "first_us": 3, "last_us": draw.randrange(10**6),
                        "session": session, "scope": 1 + i % 2}
        found.append(request | {"blocks": runs_of(blocks)})
    return found


def as_tokens(request):
    """A trace of tokens with the same content: block k is 16 tokens of its own."""
    blocks = [first + i for first, n in request["blocks"] for i in range(n)]
    tokens = [block * BLOCK + i for block in blocks for i in range(BLOCK)]
    total = request["input_tokens"] + request["output_tokens"]
    own = 1 << 29
    tokens += [own + request["time_us"] // 250_000 * BLOCK % own + i for i in range(total - len(tokens))]
    n = request["input_tokens"]
    return json.dumps({"arrival_time_ns": (request["time_us"] - 1_700_000_000_000_000) * 1000,
                       "input_toks": n, "output_toks": total - n,
                       "input_tok_ids": tokens[:n], "output_tok_ids": tokens[n:]}) + "\n"


def write(folder, name, data):
    path = os.path.join(folder, name)
    with open(path, "wb") as file:
        file.write(data)
    return path


def events(*arguments):
    done = run("events", *arguments)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_cat(folder, requests):
    path = write(folder, "cat.kvprec", recording(requests, counts=(4, 5, 6)))
    for command in ("cat", "tail"):
        status, out, err = events(command, path)
        lines = [json.loads(line) for line in out.splitlines()]
        check_equal((status, err), (0, ""), command)
        check_equal(lines[0]["source"], "engine", command)
        check_equal(lines[0]["worth"].split(":")[0], "exact", command)
        check_equal(lines[1:-1], requests, command)
        check_equal(lines[-1], {"requests": len(requests), "contents":
                                max(first + n for r in requests for first, n in r["blocks"]),
                                "forgotten": 4, "lost": 5, "unnumbered": 6}, command)
    status, out, _ = events("check", path)
    check_equal(status, 0, "check")
    rows = dict(line.split(None, 1) for line in out.splitlines() if len(line.split(None, 1)) == 2)
    check_equal(rows["requests"], str(len(requests)), out)
    check_equal(rows["end"], "there", out)


def test_cut_and_damaged(folder, requests):
    data = recording(requests, a_frame=5)
    status, out, err = events("cat", write(folder, "cut.kvprec", data[:len(data) * 2 // 3]))
    lines = [json.loads(line) for line in out.splitlines()]
    check_equal(status, 0, "cut")
    check(len(requests) // 2 < len(lines) - 1 < len(requests), "cut", len(lines))
    check_equal(lines[1:], requests[:len(lines) - 1], "cut")
    check("no end behind byte" in err, "cut", err)
    damaged = bytearray(data)
    damaged[len(data) // 2] ^= 4
    for command in ("cat", "check"):
        status, out, err = events(command, write(folder, "damaged.kvprec", damaged))
        check_equal(status, 1, command)
        check("damaged.kvprec: frame " in err and " at byte " in err, command, err)
    for bad, words in ((b"kvprec2\n" + data[8:], "expected \"kvprec1\""), (b"", "magic is not there"),
                       (data[:30], "expected its header")):
        status, out, err = events("check", write(folder, "bad.kvprec", bad))
        check_equal(status, 1, words)
        check(words in err, words, err)
    done = run("replay", write(folder, "damaged.kvprec", damaged))
    check_equal(done.returncode, 1, "replay of a damaged one")
    check(b" at byte " in done.stderr, done.stderr)


def test_traces(folder, requests):
    """The same hits as the same tokens."""
    path = write(folder, "all.kvprec", recording(requests))
    same = write(folder, "same.jsonl", "".join(map(as_tokens, requests)).encode())
    for options in (["--blocks", "40"], ["--blocks", "200"], ["--blocks", "4000"],
                    ["--blocks", "90", "--output-tokens", "off"], ["--blocks", "60", "--block-tokens", "32"]):
        got, wanted = replay(path, *options), replay(same, *options)
        for name in ("requests", "input_tokens", "output_tokens", "hit_tokens", "evictions"):
            check_equal(got[name], wanted[name], options, name)
    check(got["hit_tokens"] > 0, "nothing hits")
    got, wanted = (json.loads(run("mrc", "--json", of).stdout) for of in (path, same))
    check_equal(got["curve"], wanted["curve"], "mrc")
    check_equal(got["reading"]["sessions"],
                len({r["session"] for r in requests if "session" in r}), "sessions")
    cut = write(folder, "cut.kvprec", recording(requests, end=False))
    check_equal(replay(cut, "--blocks", "200")["reading"]["cut_off"], 1, "cut off")
    lacks = write(folder, "lacks.kvprec", recording(requests, counts=(1, 2, 0)))
    reading = replay(lacks, "--blocks", "200")["reading"]
    check_equal((reading["forgotten_contents"], reading["lost_requests"]), (1, 2), reading)
    check(reading["bound"].startswith("an estimate: the recording lacks"), reading)
    forgot = write(folder, "forgot.kvprec", recording(requests, counts=(1, 0, 0)))
    check(replay(forgot, "--blocks", "200")["reading"]["bound"].startswith("a lower bound in caches"), "forgot")
    with open(path, "rb") as file:
        piped = replay("-", "--blocks", "200", stdin=file.read())
    check_equal(piped["hit_tokens"], replay(path, "--blocks", "200")["hit_tokens"], "piped")


def test_several(folder, requests):
    """What two recordings number is not the same content."""
    both = os.path.join(folder, "both")
    os.mkdir(both)
    write(both, "a.kvprec", recording(requests))
    one = replay(both, "--blocks", "4000")
    write(both, "b.kvprec", recording(requests))
    two = replay(both, "--blocks", "4000")
    check_equal(two["hit_tokens"], 2 * one["hit_tokens"], "two recordings")
    other = write(folder, "other.kvprec", recording(requests, block_tokens=8))
    done = run("replay", both, other)
    check(done.returncode == 1 and b"block_tokens is 8, expected 16" in done.stderr, done.stderr)
    text = write(folder, "text.jsonl", mooncake(0, 1, 1, [1]).encode())
    for first, second, words in ((both, text, b"mooncake, expected recording"),
                                 (text, both, b"recording, expected mooncake")):
        done = run("replay", first, second)
        check(done.returncode == 1 and words in done.stderr, words, done.stderr)
    done = run("replay", "--format", "mooncake", both)
    check(done.returncode == 1 and b"a recording, expected a Mooncake JSONL" in done.stderr, done.stderr)


with directory() as temporary:
    if "without libzstd" in events("check", write(temporary, "any.kvprec", recording([])))[2]:
        skip("this kvpager was built without libzstd")
    all_requests = workload(150, 1)
    assert all(name in {key for r in all_requests for key in r} for name in FIELDS)
    test_cat(temporary, all_requests)
    test_cut_and_damaged(temporary, all_requests)
    test_traces(temporary, all_requests)
    test_several(temporary, all_requests)
finish()
