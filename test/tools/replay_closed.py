"""Closed loops: `kvpager replay --arrivals closed` against arrival times worked out here, by the
rules of docs/COMMAND.md, for a server that takes no time; and by hand for one that does."""

import json
import os

from lib_kvpager import SOURCE, check, check_equal, directory, finish, replay_load, run

HERE = os.path.join(SOURCE, "test", "tools", "traces")
INSTANT = ["--arrivals", "closed", "--decode-token-ns", 0]


class Turn:
    def __init__(self, time, lasts, awaits):
        self.time, self.lasts, self.awaits = time, lasts, awaits  # the first of them: its predecessor


def conversation(name):
    """The turns of one of Weka's, each with those that it waits for."""
    turns = []
    with open(os.path.join(HERE, "weka", name), encoding="utf-8") as file:
        whole = json.load(file)

    def read(entries, start, before):
        joins = []
        for entry in entries:
            if entry["type"] == "subagent":
                begin = start + entry["t"] - (entry["duration_ms"] or 0) / 1000
                last = read(entry["requests"], begin, before)
                joins += [last] if entry["duration_ms"] is not None else []
                continue
            before = Turn(start + entry["t"], entry.get("api_time"),
                          [before, *joins] if before else [])
            turns.append(before)
            joins = []
        return before

    read(whole["requests"], 0, None)
    return turns


def instant(turns, start, gap):
    """When each comes, when everything ends at once; gap() is of think-scale and think-cap."""
    came = {}
    for turn in turns:  # in the order of the file: those awaited stand before
        if not turn.awaits:
            came[turn] = start
            continue
        ends = [before.time + before.lasts for before in turn.awaits if before.lasts is not None]
        latest = max(ends, default=None)
        if latest is not None and turn.time < latest:
            came[turn] = came[turn.awaits[0]] + max(0, turn.time - turn.awaits[0].time)
            continue
        came[turn] = max(came[before] + gap(turn.time - latest if before.lasts is not None
                                            else max(0, turn.time - before.time))
                         for before in turn.awaits)
    return max(came.values())


def check_weka():
    path = os.path.join(HERE, "weka")
    for options, gap in [((), lambda gap: gap),
                         (("--think-scale", "0.5"), lambda gap: gap / 2),
                         (("--think-cap", "2"), lambda gap: min(gap, 2)),
                         (("--think-scale", "3", "--think-cap", "7.5"),
                          lambda gap: min(gap * 3, 7.5)),
                         (("--think-scale", "0"), lambda gap: 0)]:
        first = instant(conversation("a.json"), 0, gap)
        both = instant(conversation("b.json"), first, gap)
        beside = max(first, instant(conversation("b.json"), 0, gap))
        for sessions, last in ((1, both), (2, beside), (9, beside)):
            found = replay_load(path, *INSTANT, "--sessions", sessions, *options)
            check(abs(found["simulated_seconds"] - last) < 1e-5, options, sessions,
                  found["simulated_seconds"], last)
            loop = found["closed_loop"]
            check_equal((loop["sessions"], loop["ended"], loop["at_once"]), (2, 2, sessions))
            check_equal((loop["estimated_gaps"], loop["dropped_requests"]), (3, 0))
            end = both if sessions == 1 else min(first, instant(conversation("b.json"), 0, gap))
            check(abs(loop["window"]["seconds"] - end) < 1e-5, options, sessions, loop["window"])
            check_equal(found["finished"], 17)


def write(folder, rows):
    path = os.path.join(folder, "trace.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return path


def turns(session, times, outputs):
    """Turns of a session: the first at a time, the others after delays, in milliseconds."""
    return [{"session_id": session, ("delay" if i else "timestamp"): time, "input_length": 40,
             "output_length": output, "hash_ids": [session]}
            for i, (time, output) in enumerate(zip(times, outputs))]


def check_steps(folder):
    """A step of a millisecond for each token: a delay counts from the simulated end."""
    steps = ["--arrivals", "closed", "--step-ns", 1000000, "--decode-token-ns", 0]
    path = write(folder, turns(1, [0, 100, 50.5], [10, 20, 30]))
    found = replay_load(path, *steps)
    check(abs(found["simulated_seconds"] - (0.060 + 0.1505)) < 1e-9, found["simulated_seconds"])
    check_equal(found["closed_loop"]["window"]["seconds"], None)
    # Recorded starts, no ends: from start to start, less what the turn took here.
    rows = [{"chat_id": i, "parent_chat_id": i - 1, "timestamp": i * 0.015, "input_length": 16,
             "output_length": output, "hash_ids": [7]} for i, output in enumerate([10, 20, 30])]
    found = replay_load(write(folder, rows), *steps)
    check(abs(found["simulated_seconds"] - (0.010 + 0.005 + 0.020 + 0.030)) < 1e-9,
          found["simulated_seconds"])
    check_equal(found["closed_loop"]["estimated_gaps"], 2)
    # Open, they come at their times.
    found = replay_load(write(folder, rows), *steps[2:])
    check(abs(found["simulated_seconds"] - 0.060) < 1e-9, found["simulated_seconds"])
    check_equal(found["closed_loop"], None)


def check_rate(folder):
    """A Poisson process, the same for the same seed."""
    rows = [row for i in range(400) for row in turns(i, [0, 5], [1, 1])]
    path = write(folder, rows)
    ends = [replay_load(path, *INSTANT, "--session-rate", 20, "--seed", seed)["simulated_seconds"]
            for seed in (0, 0, 1)]
    check_equal(ends[0], ends[1])
    check(ends[0] != ends[2], ends)
    check(all(16 < end < 25 for end in ends), ends)


def check_rejected(folder):
    """A request that never fits ends its session, or not."""
    rows = [*turns(1, [0, 5, 5], [1, 4000, 1]), *turns(2, [0], [1])]
    path = write(folder, rows)
    for how, finished, dropped in (("end", 2, 1), ("go-on", 3, 0)):
        found = replay_load(path, *INSTANT, "--sessions", 1, "--blocks", 50, "--on-reject", how)
        loop = found["closed_loop"]
        check_equal((found["finished"], found["rejected"], found["unfinished"]), (finished, 1, 0))
        check_equal((loop["dropped_requests"], loop["ended"]), (dropped, 2), how)
        check_equal(loop["ended_by_rejection"], dropped, how)


def check_refused(folder):
    weka = os.path.join(HERE, "weka")
    plain = write(folder, [{"timestamp": 0, "input_length": 1, "output_length": 1}])
    for options, path, status, says in [
            ([], weka, 1, "all 2 sessions of the trace start at the same time: say --sessions N"),
            (["--sessions", 1], plain, 1, "needs a trace with sessions; this one, Mooncake JSONL,"),
            (["--sessions", 1, "--session-rate", 1], weka, 2, "exclude each other"),
            (["--speedup", 2, "--sessions", 1], weka, 2, "exclude each other"),
            (["--sequential"], weka, 2, "--arrivals and --sequential exclude each other")]:
        done = run("replay", "--arrivals", "closed", *options, path)
        check_equal(done.returncode, status, options, done.stderr)
        check(says.encode() in done.stderr, options, done.stderr)
    done = run("replay", "--think-cap", 1, weka)
    check(b"--think-cap needs --arrivals closed" in done.stderr, done.stderr)


check_weka()
with directory() as work:
    check_steps(work)
    check_rate(work)
    check_rejected(work)
    check_refused(work)
finish()
