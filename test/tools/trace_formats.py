"""Every format of traces: the command's figures are those of an independent reader (lib_traces.py),
for files made by hand and, where they are there, for those of others."""

import json
import os

import lib_traces
from lib_kvpager import SOURCE, check, check_equal, directory, finish, replay, replay_load, run, traces

HERE = os.path.join(SOURCE, "test", "tools", "traces")

# file, format, sizes of blocks
FILES = [("bailian.jsonl", "bailian", (16, 32, 4, 64)),
         ("bailian_chats.jsonl", "bailian", (16, 48, 1)),
         ("mooncake_sessions.jsonl", "mooncake", (16, 512, 1024, 1)),
         ("tracelab.jsonl", "tracelab", (16, 10, 1)),
         ("weka", "weka", (16, 64, 128, 1)),
         ("agentic_mooncake.jsonl", "agentic_mooncake", (16, 512, 1024, 1)),
         ("dynamo.jsonl", "dynamo", (16, 64, 128, 1)),
         ("applied_compute.jsonl", "applied_compute", (16, 10, 1)),
         ("kvcache.jsonl", "kvcache", (16, 64, 1)),
         ("azure_2024.csv", "azure", (16,)),
         ("azure_images.csv", "azure", (16,)),
         ("burstgpt.csv", "burstgpt", (16,)),
         ("burstgpt_sessions.csv", "burstgpt", (16,))]
OTHERS = [("small/bailian.jsonl", "bailian", (16,)),
          ("small/session.jsonl", "mooncake", (16, 512)),
          ("small/tracelab_rounds.jsonl", "tracelab", (16, 64)),
          ("small/azure24.csv", "azure", (16,)),
          ("small/azure_mm.csv", "azure", (16,)),
          ("small/burst3.csv", "burstgpt", (16,))]


def mrc(path, size, *options):
    done = run("mrc", "--only-lru", "--json", "--block-tokens", size, *options, path)
    check_equal(done.returncode, 0, path, size, done.stderr)
    found = json.loads(done.stdout)
    return {**found, "hit_tokens": found["sizes"][-1]["hit_tokens"]}


def compare(path, kind, size, requests, *options):
    expected = lib_traces.figures(requests, size)
    enough = (expected["input_tokens"] + expected["output_tokens"]) // size + len(requests) + 1
    figures = [mrc(path, size, *options)]
    if size >= 16 and enough < 6000:
        figures.append(replay(path, "--block-tokens", size, "--blocks", enough, *options))
        found = replay_load(path, "--block-tokens", size, "--blocks", 2 * enough, "--max-running", 1,
                            *options)
        check_equal(found["hit_tokens"], lib_traces.figures(requests, size, True)["hit_tokens"],
                    path, kind, size, "under load")
    for found in figures:
        for name, value in expected.items():
            if name in found:
                check_equal(found[name], value, path, kind, size, name)


def check_all(folder, files):
    for name, kind, sizes in files:
        path = os.path.join(folder, name)
        for size in sizes:
            compare(path, kind, size, lib_traces.READERS[kind](path))
            compare(path, kind, size, lib_traces.READERS[kind](path), "--format", kind)


def check_weka(folder):
    """Models share nothing, unless asked; files are packed, and there are many."""
    path = os.path.join(HERE, "weka")
    compare(path, "weka", 64, lib_traces.weka(path, merge_models=True), "--merge-models")
    apart = lib_traces.figures(lib_traces.weka(path), 64)["hit_tokens"]
    merged = lib_traces.figures(lib_traces.weka(path, merge_models=True), 64)["hit_tokens"]
    check(merged > apart, merged, apart)
    if folder is not None and os.path.isdir(os.path.join(folder, "weka")):
        path = os.path.join(folder, "weka")
        names = [os.path.join(path, name) for name in sorted(os.listdir(path))][:9]
        requests = [request for name in names for request in lib_traces.weka(name)]
        for number, request in enumerate(requests):
            request.name = number
        done = run("mrc", "--only-lru", "--json", "--block-tokens", 512, *names)
        check_equal(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        expected = lib_traces.figures(requests, 512)
        check_equal(found["distinct_blocks"], expected["distinct_blocks"], "weka")
        check_equal(found["sizes"][-1]["hit_tokens"], expected["hit_tokens"], "weka")


def check_quotes():
    """Other tools quote the fields of what they write."""
    with directory() as folder:
        for name in ("azure_images.csv", "burstgpt_sessions.csv"):
            with open(os.path.join(HERE, name), encoding="utf-8") as file:
                rows = [line.rstrip("\n").split(",") for line in file]
            path = os.path.join(folder, name)
            with open(path, "w", encoding="utf-8") as file:
                file.writelines(",".join(f'"{field}"' for field in row) + "\n" for row in rows)
            plain, quoted = (replay_load(one) for one in (os.path.join(HERE, name), path))
            check_equal({**quoted, "trace": plain["trace"]}, plain, name)


def check_times():
    """Bailian's are seconds: with the default model the last of three requests, at 120.5 s, ends
    0.66 s later, and none waits. Those of a subagent count back from its end."""
    found = replay_load(os.path.join(HERE, "bailian.jsonl"))
    check(abs(found["simulated_seconds"] - 121.16) < 0.01, found["simulated_seconds"])
    check_equal(found["queue_ns"]["max"], 0)
    slow = replay_load(os.path.join(HERE, "bailian.jsonl"), "--time-unit", "ms")
    check(slow["simulated_seconds"] < 12, slow["simulated_seconds"])
    rates = ["--decode-token-ns", "1", "--output-tokens", "off"]
    for name, last in [("bailian.jsonl", 120.5), ("mooncake_sessions.jsonl", 4.001),
                       ("weka", 46), ("burstgpt_sessions.csv", 144), ("burstgpt.csv", 40),
                       ("azure_2024.csv", 2 * 86400 + 9.99007), ("tracelab.jsonl", 12.849),
                       ("agentic_mooncake.jsonl", 7.26), ("dynamo.jsonl", 3.5),
                       ("applied_compute.jsonl", 1.75), ("kvcache.jsonl", 4)]:
        found = replay_load(os.path.join(HERE, name), *rates)
        check(abs(found["simulated_seconds"] - last) < 1e-5, name, found["simulated_seconds"])
    # in a closed loop, where no request takes time, the gaps alone count
    for name, last, figures in [
            ("agentic_mooncake.jsonl", 7.26, {"sessions": 2, "estimated_gaps": 0}),
            ("dynamo.jsonl", 2.4, {"sessions": 2, "estimated_gaps": 0}),
            ("applied_compute.jsonl", 1.75, {"sessions": 2, "estimated_gaps": 0})]:
        found = replay_load(os.path.join(HERE, name), *rates, "--arrivals", "closed", "--sessions",
                            "9")
        check(abs(found["simulated_seconds"] - last) < 1e-5, name, found["simulated_seconds"])
        for key, value in figures.items():
            check_equal(found["closed_loop"][key], value, name, key)


def check_reading():
    """What a report says of its trace: the unit of times, what was not used, what hits are."""
    for name, says in [
            ("weka", {"files": 2, "time_unit": "seconds", "trace_block": 64, "sessions": 2,
                      "answers_joined": 5, "bound": "a lower bound across conversations"}),
            ("bailian_chats.jsonl", {"sessions": 3, "answers_joined": 3, "unused": "type, turn",
                                     "answers_not_joined": 1, "trace_block": 16, "bound": None}),
            ("mooncake_sessions.jsonl", {"sessions": 3, "answers_joined": 1, "without_output": 1,
                                         "without_ids": 1, "estimated_times": 2}),
            ("tracelab.jsonl", {"sessions": 2, "provider_cached_tokens": 3752, "time_unit": "dates",
                                "bound": "an upper bound within sessions"}),
            ("agentic_mooncake.jsonl", {"sessions": 2, "estimated_times": 5, "trace_block": 512,
                                        "answers_joined": 2, "time_unit": "milliseconds"}),
            ("dynamo.jsonl", {"sessions": 2, "trace_block": 64, "answers_joined": 2,
                              "answers_not_joined": 1}),
            ("applied_compute.jsonl", {"sessions": 2, "answers_joined": 2, "time_unit": "seconds",
                                       "unused": "task", "bound": "an upper bound within"}),
            ("kvcache.jsonl", {"sessions": 0, "without_output": 2, "trace_block": 64}),
            ("azure_images.csv", {"unused": "NumImages", "trace_block": None,
                                  "bound": "not known"}),
            ("burstgpt_sessions.csv", {"sessions": 2, "time_unit": "seconds"})]:
        path = os.path.join(HERE, name)
        for found in (mrc(path, 16), replay(path, "--blocks", 900), replay_load(path)):
            for key, value in says.items():
                got = found["reading"][key]
                if key == "bound" and value is not None:
                    check(got.startswith(value), name, got)
                else:
                    check_equal(got, value, name, key)
        done = run("mrc", "--only-lru", path)
        check(f"times in {says.get('time_unit', '')}".encode() in done.stdout, name, done.stdout)
        check(max(map(len, done.stdout.splitlines()[1:])) <= 80, name)


def check_several(folder):
    """Files beside each other are one trace, in the order of their times."""
    whole = os.path.join(HERE, "mooncake_sessions.jsonl")
    with open(whole, encoding="utf-8") as file:
        rows = file.readlines()
    parts = [os.path.join(folder, name) for name in ("1.jsonl", "2.jsonl")]
    for path, of in zip(parts, (rows[:3], rows[3:])):
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(of)
    expected = mrc(whole, 16)
    for arguments in (parts, [folder]):
        done = run("mrc", "--only-lru", "--json", *arguments)
        check_equal(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        for name in ("requests", "distinct_blocks", "sizes"):
            check_equal(found[name], expected[name], arguments, name)


with directory() as work:
    check_all(HERE, FILES)
    others = traces()
    if others is not None and os.path.isdir(os.path.join(others, "small")):
        check_all(others, OTHERS)
    check_weka(others)
    check_quotes()
    check_times()
    check_reading()
    check_several(work)
finish()
