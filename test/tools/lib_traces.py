"""Traces read a second time, slowly: every format from its description in docs/COMMAND.md, none of
the command's code. A request's content is told in pieces, (name, where in it, how many tokens), of
which equal ones are equal content.
"""

import csv
import datetime
import glob
import gzip
import json
import os
import re


class Request:
    def __init__(self, name, time, n_input, n_output, block=0, ids=()):
        self.name, self.time = name, time
        self.n_input, self.n_output = n_input, n_output
        self.block, self.ids = block, list(ids)
        self.continued_by = None  # (request, tokens)

    def follows(self, before):
        """Its prompt begins with that of `before` and its answer, or it continues nothing."""
        whole = before.n_input // max(1, before.block)
        if (self.ids and len(before.ids) >= whole and len(self.ids) >= whole
                and self.ids[:whole] == before.ids[:whole]
                and self.n_input - before.n_input >= before.n_output):
            before.is_continued_by(self, before.n_input + before.n_output)

    def is_continued_by(self, later, tokens):
        if self.continued_by is None and tokens > 0:
            self.continued_by = later, tokens

    def named_tokens(self):
        named = min(len(self.ids) * self.block, self.n_input)
        if self.continued_by and len(self.ids) * self.block > self.n_input:
            named = self.n_input // self.block * self.block
        return named

    def piece(self, at, end):
        """The piece that begins with token `at`."""
        request = self
        while True:
            if at < request.named_tokens():
                i = at // request.block
                stop = min(end, (i + 1) * request.block, request.named_tokens())
                return ("id", request.ids[i], at % request.block, stop - at)
            if not request.continued_by or at >= request.continued_by[1]:
                return ("own", request.name, at, end - at)
            end = min(end, request.continued_by[1])
            request = request.continued_by[0]

    def pieces(self, at, end):
        found = []
        while at < end:
            kind, name, where, n = self.piece(at, end)
            if found and found[-1][:2] == (kind, name) and sum(found[-1][2:]) == where:
                found[-1] = (kind, name, found[-1][2], found[-1][3] + n)
            else:
                found.append((kind, name, where, n))
            at += n
        return tuple(found)


def texts(path):
    """(name, text) of a file, or of all of a folder."""
    names = sorted(glob.glob(os.path.join(path, "*.json*"))) if os.path.isdir(path) else [path]
    for name in names:
        opened = gzip.open if name.endswith(".gz") else open
        with opened(name, "rt", encoding="utf-8-sig") as file:
            yield name, file.read()


def lines(path):
    for _, text in texts(path):
        for line in text.splitlines():
            if line.strip():
                yield json.loads(line)


def seconds(text):
    """A date, with or without a fraction of any length and an offset."""
    text = text.replace("Z", "+00:00").replace("T", " ")
    whole, fraction, zone = re.fullmatch(r"([^.+]*)(\.\d+)?([+-]\d\d:\d\d)?", text).groups()
    zone = zone or "+00:00"
    moment = datetime.datetime.fromisoformat(whole + zone)
    return moment.timestamp() + float(fraction or 0)


def mooncake(path, block=512):
    found, last = [], {}
    for line in lines(path):
        session = line.get("session_id")
        before = last.get(session) if session is not None else None
        time = line.get("timestamp", line.get("created_time"))
        if time is None:
            time = before.time * 1000 + line.get("delay", line.get("delay_ms"))
        request = Request(len(found), time / 1000,
                          line.get("input_length", line.get("input_tokens")),
                          line.get("output_length", line.get("output_tokens", 0)), block,
                          line.get("hash_ids", []))
        if before is not None:
            request.follows(before)
        if session is not None:
            last[session] = request
        found.append(request)
    return found


def bailian(path):
    found, chats = [], {}
    for line in lines(path):
        request = Request(len(found), line["timestamp"], line["input_length"],
                          line["output_length"], 16, line["hash_ids"])
        if line["parent_chat_id"] in chats:
            request.follows(chats[line["parent_chat_id"]])
        chats[line["chat_id"]] = request
        found.append(request)
    return found


def weka(path, merge_models=False):
    found = []

    def read(entries, start, file, block):
        before = None
        for entry in entries:
            if entry["type"] == "subagent":
                begin = start + entry["t"] - (entry["duration_ms"] or 0) / 1000
                read(entry["requests"], begin, file, block)
                continue
            model = None if merge_models else entry.get("model")
            request = Request(len(found), start + entry["t"], entry["in"], entry["out"], block,
                              [(file, model, number) for number in entry["hash_ids"]])
            if before is not None:
                request.follows(before)
            found.append(request)
            before = request

    for name, text in texts(path):
        whole = json.loads(text)
        read(whole["requests"], 0, name, whole["block_size"])
    return found


def tracelab(path):
    found, sessions = [], {}
    for line in lines(path):
        events = line["timing_events"]
        inputs = []
        for event in events:
            if event["event_type"] not in ("user_message", "tool_result"):
                break
            inputs.append(seconds(event["timestamp"]))
        request = Request(len(found), max(inputs or [seconds(events[0]["timestamp"])]),
                          line["input_tokens_total"], line["output_tokens"])
        before, thought = sessions.get(line["session_id"], (None, 0))
        if before is not None:
            both = before.n_input + before.n_output
            shared = both - thought
            if request.n_input < before.n_input:
                shared = min(line["prefix_tokens"], both)
            before.is_continued_by(request, min(shared, request.n_input))
        sessions[line["session_id"]] = request, line["reasoning_output_tokens"] or 0
        found.append(request)
    return found


def agentic(path, block=512):
    """Agentic Mooncake: a row without a known end of what it waits for begins so long after its
    latest start. It continues the row before in its session if it waits for it."""
    found, named, last = [], {}, {}
    for line in lines(path):
        waits = [named[name] for name in line.get("wait_for", [])]
        time = line.get("timestamp", 0) / 1000
        if waits:
            time = max(request.time for request in waits)
            time += (line.get("delay", line.get("delay_ms", 0)) + line.get("tool_wait_ms", 0)) / 1000
        request = Request(len(found), time, line.get("input_length", line.get("input_tokens")),
                          line.get("output_length", line.get("output_tokens")), block,
                          line["hash_ids"])
        before = last.get(line.get("session_id"))
        if before in waits and not line.get("prefix_reset"):
            request.follows(before)
        if "session_id" in line:
            last[line["session_id"]] = request
        named[line["request_id"]] = request
        found.append(request)
    return found


def dynamo(path):
    found, last = [], {}
    for line in lines(path):
        event = line.get("event", line)
        if event["event_type"] != "request_end":
            continue
        of, replay = event["request"], event["request"]["replay"]
        request = Request(len(found), of["request_received_ms"] / 1000, replay["input_length"],
                          of["output_tokens"], replay["trace_block_size"],
                          [(of["model"], number) for number in replay["input_sequence_hashes"]])
        session = event["agent_context"]["session_id"]
        if session in last:
            request.follows(last[session])
        last[session] = request
        found.append(request)
    return found


def applied(path):
    found = []
    for line in lines(path):
        length, time, before = line["input_prompt_length"], 0, None
        outputs = line["assistant_response_length"] + [line["final_assistant_response_length"]]
        tools = line["tool_call_output_length"] + [0]
        for output, tool, wait in zip(outputs, tools, line["tool_call_latency"] + [0]):
            request = Request(len(found), time, length, output)
            if before is not None:
                before.is_continued_by(request, before.n_input + before.n_output)
            found.append(request)
            length, time, before = length + output + tool, time + wait, request
    return found


def kvcache(path):
    return [Request(number, line.get("timestamp", 0), line["input_length"],
                    line.get("output_length", 0), line["block_size"], line["hash_ids"])
            for number, line in enumerate(lines(path))]


def table(path, time, n_input, n_output):
    found = []
    for _, text in texts(path):
        for row in csv.DictReader(text.splitlines()):
            when = row[time]
            found.append(Request(len(found), float(when) if ":" not in when else seconds(when),
                                 int(row[n_input]), int(row[n_output])))
    return found


def azure(path):
    return table(path, "TIMESTAMP", "ContextTokens", "GeneratedTokens")


def burstgpt(path):
    return table(path, "Timestamp", "Request tokens", "Response tokens")


READERS = {"mooncake": mooncake, "bailian": bailian, "weka": weka, "tracelab": tracelab,
           "agentic_mooncake": agentic, "dynamo": dynamo, "applied_compute": applied,
           "kvcache": kvcache, "azure": azure, "burstgpt": burstgpt}


def figures(requests, size, under_load=False):
    """What a cache that never forgets hits, in blocks of `size` tokens. Under load the token that a
    request generates last is not computed."""
    known, used, hit = {}, set(), 0
    for request in sorted(requests, key=lambda request: round(request.time * 1e6)):
        content, n_hits, is_hit = 0, 0, True
        contents = []
        for i in range((request.n_input + request.n_output) // size):
            key = content, request.pieces(i * size, (i + 1) * size)
            content = known.setdefault(key, len(known) + 1)
            is_hit = is_hit and content in used and i < request.n_input // size
            n_hits += is_hit
            contents.append(content)
        n_computed = request.n_input + (max(request.n_output, 1) - 1 if under_load
                                        else request.n_output)
        used.update(contents[:n_computed // size])
        hit += min(n_hits * size, max(0, request.n_input - 1))
    return {"requests": len(requests), "input_tokens": sum(r.n_input for r in requests),
            "output_tokens": sum(r.n_output for r in requests), "distinct_blocks": len(known),
            "hit_tokens": hit}
