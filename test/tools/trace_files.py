"""Traces as they lie about: packed, in folders, cut off, of another kind, with times in another
unit; each is read, or refused by a sentence that names the file, the line, the field and its value.
"""

import gzip
import io
import json
import os
import shutil
import subprocess
import tarfile

from lib_kvpager import SOURCE, check, check_equal, directory, finish, mooncake, replay, run

HERE = os.path.join(SOURCE, "test", "tools", "traces")
GOOD = mooncake(0, 600, 1, [1, 2]).encode()
MiB = 1 << 20


def write(folder, name, data):
    path = os.path.join(folder, name)
    with open(path, "wb") as file:
        file.write(data)
    return path


def refused(path, says, *options):
    done = run("mrc", "--only-lru", *options, path)
    check_equal(done.returncode, 1, path, done.stdout[:200], done.stderr)
    check(f"{os.path.basename(path)}{says}".encode() in done.stderr, path, says, done.stderr)
    check_equal(done.stderr.count(b"\n"), 1, done.stderr)


def zstd(data, *options):
    return subprocess.run(["zstd", "-q", "-c", *options], input=data, stdout=subprocess.PIPE,
                          check=True).stdout


def packers(folder):
    """Those that this build unpacks, and that are here."""
    found = {".gz": gzip.compress}
    if shutil.which("zstd"):
        found[".zst"] = zstd
    return {name: pack for name, pack in found.items()
            if b"was built without" not in run("mrc", write(folder, "probe", pack(GOOD))).stderr}


def check_packed(folder):
    """The same figures, of one piece or several, by name or from a pipe; ends and damage show."""
    with open(os.path.join(HERE, "mooncake_sessions.jsonl"), "rb") as file:
        plain = file.read()
    rows = plain.splitlines(True)
    expected = replay(os.path.join(HERE, "mooncake_sessions.jsonl"), "--blocks", 900)
    for name, pack in packers(folder).items():
        path = write(folder, "trace.jsonl" + name, pack(plain))
        several = write(folder, "several" + name, b"".join(map(pack, rows)))
        for found in (replay(path, "--blocks", 900), replay(several, "--blocks", 900),
                      replay("-", "--blocks", 900, stdin=pack(plain))):
            for figure in ("format", "requests", "hit_tokens", "evictions"):
                check_equal(found[figure], expected[figure], name, figure)
        kind = "gzip" if name == ".gz" else "zstd"
        many = pack(b"".join(mooncake(i, 600, 1, [i, i + 7 * i]).encode() for i in range(30000)))
        for end in (len(many) // 2, len(many) - 3, 20):
            refused(write(folder, "cut" + name, many[:end]), f":{1 if end == 20 else ''}")
            done = run("mrc", os.path.join(folder, "cut" + name))
            check(f"its {kind} data have no end: the file was cut off".encode() in done.stderr,
                  end, done.stderr)
        bad = bytearray(many)
        bad[len(bad) // 2] ^= 0x5a
        done = run("mrc", write(folder, "bad" + name, bytes(bad)))
        check_equal(done.returncode, 1)
        refused(write(folder, "behind" + name, pack(plain) + b"what is this"),
                f":1: its {kind} data are damaged")
        refused(write(folder, "nothing" + name, pack(b"")), ":1: the file is empty")
        # What comes out of it is bounded as if it stood there.
        bomb = pack(GOOD + b"{" + b" " * (40 * MiB))
        refused(write(folder, "bomb" + name, bomb), ":2: longer than 32 MiB")
        dense = pack(GOOD[:-3] + b",1" * MiB + b"]}\n")
        refused(write(folder, "dense" + name, dense), ":1: needs more memory than 8 MiB",
                "--max-memory", "8M")


def check_kinds(folder):
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        entry = tarfile.TarInfo("trace.jsonl")
        entry.size = len(GOOD)
        archive.addfile(entry, io.BytesIO(GOOD))
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 5\n"
    for name, data, says in [
            ("lfs.jsonl", pointer, "a Git LFS pointer, which stands for the file: 'git lfs pull'"),
            ("a.zip", b"PK\x03\x04" + bytes(40), "a ZIP archive"),
            ("a.xz", b"\xfd7zXZ\x00" + bytes(40), "packed by xz"),
            ("a.bz2", b"BZh91AY", "packed by bzip2"),
            ("a.tar", tar.getvalue(), "a tar archive"),
            ("a.tar.gz", gzip.compress(tar.getvalue()), "a tar archive"),
            ("a.parquet", b"PAR1\x15\x04", "Parquet"),
            ("a.html", b"<!DOCTYPE html>\n<html>", "an HTML page"),
            ("a.png", b"\x89PNG\r\n", "a PNG picture"),
            ("utf16", "\ufeff{}".encode("utf-16-le"), "text in UTF-16"),
            ("program", b"\x7fELF\x02", "a program")]:
        refused(write(folder, name, data), f":1: the file is {says}")
    refused(write(folder, "empty.jsonl", b""), ":1: the file is empty")
    refused(write(folder, "list.json", b"[" + GOOD), ":1: a JSON array, expected one JSON object")
    refused(write(folder, "open.json", b'{\n "block_size": 64,\n "requests": [\n'),
            ":3: not valid JSON: the value ends here in column 15")
    for row, says in [({"session_id": "a", "input": [], "pre_gap": 0, "output_length": 1}, "LMCache"),
                      ({"text_input": "hello", "output_length": 1}, "text, which needs"),
                      ({"messages": []}, "text, which needs the model's tokenizer")]:
        refused(write(folder, "other.jsonl", json.dumps(row).encode()),
                f":1: this is a trace {'of ' if 'LM' in says else ''}{says}")
    refused(write(folder, "mixed", GOOD), ":1: no \"chat_id\", expected", "--format", "bailian")
    refused(write(folder, "mixed", GOOD), ":1: a JSON object, expected the header of a BurstGPT CSV "
            "trace", "--format", "burstgpt")
    done = run("mrc", write(folder, "one.jsonl", GOOD), os.path.join(HERE, "burstgpt.csv"))
    check(b"burstgpt.csv:1: a trace in the format burstgpt, expected mooncake as in the files "
          b"before" in done.stderr, done.stderr)


def row(name, number, **changes):
    """A file of the folder, of whose row `number` fields are changed; None: left out."""
    with open(os.path.join(HERE, name), encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    rows[number - 1] = {key: value for key, value in {**rows[number - 1], **changes}.items()
                        if value is not None}
    return "".join(json.dumps(one) + "\n" for one in rows).encode()


def conversation(**changes):
    with open(os.path.join(HERE, "weka", "b.json"), encoding="utf-8") as file:
        whole = json.load(file)
    whole["requests"][1] = {**whole["requests"][1], **changes.pop("second", {})}
    return json.dumps({**whole, **changes}).encode()


def check_rows(folder):
    for data, says in [
            (row("bailian.jsonl", 2, input_length=-3), ":2: input_length is -3, expected a whole "),
            (row("bailian.jsonl", 2, timestamp="x"), ':2: timestamp is "x", expected seconds'),
            (row("bailian.jsonl", 3, hash_ids=[1]), ":3: hash_ids has 1 ids, expected exactly 34: "
             "input_length is 530, a trace block has 16 tokens"),
            (row("bailian.jsonl", 3, hash_ids=[1, 2.5]), ":3: hash_ids[1] is 2.5, expected a whole"),
            (row("bailian.jsonl", 3, hash_ids=[2 ** 64]),
             ":3: hash_ids[0] is 18446744073709551616, expected a whole number from 0 to"),
            (row("bailian.jsonl", 2, chat_id=[]), ":2: chat_id is an array, expected a name"),
            (row("bailian.jsonl", 1, timestamp=1.7e12), ":1: timestamp is 1700000000000.0, expected "
             "seconds from 0 to 9007199255: are these milliseconds (--time-unit ms)?"),
            (row("mooncake_sessions.jsonl", 3, delay=None), ':3: no "timestamp", expected'),
            (row("mooncake_sessions.jsonl", 1, timestamp=None, delay=3),
             ':1: no "timestamp", expected in the first request of a session'),
            (row("mooncake_sessions.jsonl", 3, delay_ms=3), ":3: delay and delay_ms, expected one"),
            (row("tracelab.jsonl", 3, round_index=0),
             ":3: round_index is 0, expected more than 0, that of the round before"),
            (row("tracelab.jsonl", 3, reasoning_output_tokens=65),
             ":3: reasoning_output_tokens is 65, expected at most 64"),
            (row("tracelab.jsonl", 3, timing_events=[]), ":3: timing_events is an array, expected"),
            (row("tracelab.jsonl", 2, timing_events=[{"event_type": "text", "timestamp": 4}]),
             ":2: timing_events[].timestamp is 4, expected a time such as"),
            (row("mooncake_sessions.jsonl", 2, wait_for=["a"]), ":2: wait_for is an array, expected "
             "none: is it agentic Mooncake (--format agentic_mooncake)?"),
            (row("agentic_mooncake.jsonl", 2, request_id=None), ':2: no "request_id", expected in '),
            (row("agentic_mooncake.jsonl", 2, request_id="a1"), ':2: request_id is "a1", expected '
             "another one than in a row before"),
            (row("agentic_mooncake.jsonl", 5, wait_for=["a1", "x"]), ':5: wait_for[1] is "x", '
             "expected the request_id of a row before"),
            (row("agentic_mooncake.jsonl", 5, wait_for="a1"), ':5: wait_for is "a1", expected an '),
            (row("agentic_mooncake.jsonl", 2, tool_wait_ms=-1), ":2: tool_wait_ms is -1, expected "
             "milliseconds"),
            (row("agentic_mooncake.jsonl", 1, timestamp=None), ':1: no "timestamp", expected in '),
            (row("dynamo.jsonl", 2, schema="v0"), ':2: schema is "v0", expected "dynamo.request.'),
            (row("dynamo.jsonl", 2, event_type="x"), ':2: event_type is "x", expected request_end,'),
            (row("dynamo.jsonl", 2, request=None), ':2: no "request", expected in every request'),
            (row("dynamo.jsonl", 2, request={"output_tokens": 1, "replay": {}}),
             ':2: no "request.replay.trace_block_size", expected in'),
            (row("dynamo.jsonl", 2, request={"output_tokens": 1, "replay": {
                "trace_block_size": 64, "input_length": 65, "input_sequence_hashes": [1]}}),
             ":2: request.replay.input_sequence_hashes has 1 ids, expected exactly 2: input_length "
             "is 65, trace_block_size is 64"),
            (row("dynamo.jsonl", 2, request={"output_tokens": 1, "replay": {
                "trace_block_size": 64, "input_length": 64, "input_sequence_hashes": [1]}}),
             ':2: no "request.request_received_ms", expected in'),
            (row("dynamo.jsonl", 4, agent_context=7), ":4: agent_context is 7, expected an object"),
            (row("applied_compute.jsonl", 1, tool_call_latency=[1.5]),
             ":1: tool_call_latency has 1 items, expected 2, that of num_turns"),
            (row("applied_compute.jsonl", 1, tool_call_latency=[1.5, -1]),
             ":1: tool_call_latency[1] is -1, expected seconds"),
            (row("applied_compute.jsonl", 1, assistant_response_length=[50, 1073741823]),
             ":1: turn 2 has a prompt of 1073742303 tokens, expected at most 1073741823"),
            (row("applied_compute.jsonl", 2, assistant_response_length=5),
             ":2: assistant_response_length is 5, expected an array"),
            (row("kvcache.jsonl", 2, block_size=32), ":2: block_size is 32, expected 64 as before"),
            (row("kvcache.jsonl", 2, hash_ids=[1]), ":2: hash_ids has 1 ids, expected exactly 2: "
             "input_length is 150, block_size is 64"),
            (row("kvcache.jsonl", 2, hash_ids=[1, 2, 3, 4]), ":2: hash_ids has 4 ids, expected "),
            (row("kvcache.jsonl", 2, block_tokens=[64, 64, 22]), ":2: block_tokens is an array, "
             "expected none"),
            (conversation(block_size=0), ":1: block_size is 0, expected a whole number from 1"),
            (conversation(hash_id_scope="x"), ':1: hash_id_scope is "x", expected "local"'),
            (conversation(requests=5), ":1: requests is 5, expected an array of requests"),
            (conversation(second={"in": -1}), ":1: requests[1].in is -1, expected a whole number"),
            (conversation(second={"in": 640 + 64}),
             ":1: requests[1].hash_ids has 10 ids, expected exactly 11: in is 704"),
            (conversation(second={"type": "subagent", "requests": [{"t": 0, "in": "x"}]}),
             ':1: requests[1].requests[0].in is "x", expected'),
            (conversation(second={"type": "subagent", "requests": [], "duration_ms": -1}),
             ":1: requests[1].duration_ms is -1, expected milliseconds")]:
        refused(write(folder, "row.jsonl", data), says)
    path = os.path.join(HERE, "bailian.jsonl")
    done = run("mrc", "--trace-block", 32, path)
    check(b"bailian.jsonl:1: an id of a Bailian JSONL trace stands for 16 tokens, and --trace-block "
          b"is 32" in done.stderr, done.stderr)
    check_equal(run("mrc", "--trace-block", 16, path).returncode, 0)
    done = run("mrc", "--trace-block", 32, os.path.join(HERE, "weka"))
    check(b"block_size is 64, expected 32 as before (--trace-block)" in done.stderr, done)


def check_numbers(folder):
    """Ids as they may be written, in arrays short and long; those that are no numbers are named."""
    def text(ids):
        return ('{"timestamp": 0, "input_length": 2560, "output_length": 0, "hash_ids": %s}\n' % ids
                ).encode()

    ids = [0, 7, 10**18 - 1, 10**19 - 1, 2**64 - 1]
    plain = text(json.dumps(ids, separators=(",", ":")))
    for other in ("[ 0 ,7,\t%d , %d,%d ]", "[0, 7, %d, %d, %d]", "[0,7,%d,%d,%d]"):
        path = write(folder, "ids.jsonl", plain + text(other % tuple(ids[2:])))
        found = replay(path, "--blocks", 900)
        check_equal(found["hit_tokens"], 2559, other)
    half = text("[0,7,%d,%d,3]" % tuple(ids[2:4]))
    check_equal(replay(write(folder, "ids.jsonl", plain + half), "--blocks", 900)["hit_tokens"], 2048)
    for wrong, says in [("[0,7,1,01,2]", ":2: not valid JSON: a number that begins with 0 in column "),
                        ("[0,7,1,2,]", ":2: not valid JSON: expected a value in column "),
                        ("[0,7,1,2,3", ":2: not valid JSON: expected ',' or ']' in column "),
                        ("[0,7,1,2,3.5]", ":2: hash_ids[4] is 3.5, expected a whole number from 0"),
                        ("[0,7,1,2,-3]", ":2: hash_ids[4] is -3, expected a whole number from 0"),
                        ("[0,7,[1,2,3,4,5],2,3]", ":2: hash_ids[2] is an array, expected a whole"),
                        ("[0,7,1,2,18446744073709551616]",
                         ":2: hash_ids[4] is 18446744073709551616, expected a whole number from 0"),
                        ("[0,7,1,2]", ":2: hash_ids has 4 ids, expected exactly 5")]:
        refused(write(folder, "ids.jsonl", plain + text(wrong)), says)


def check_delta(folder):
    """Turns that have only what is new."""
    rows = [{"session_id": i % 2, "timestamp": i, "input_length": 600, "output_length": 1,
             "hash_ids": [2 * i, 2 * i + 1]} for i in range(6)]
    data = "".join(json.dumps(one) + "\n" for one in rows).encode()
    refused(write(folder, "delta.jsonl", data), ": in no session a turn begins with the ids of the "
            "turn before: this is Dynamo's delta form")
    check_equal(run("mrc", "--lenient", os.path.join(folder, "delta.jsonl")).returncode, 0)


def check_units(folder):
    """A day's traffic within a second, a second's within years: the other unit is named."""
    fast = b"".join(mooncake(i / 1000, 60000, 1, list(range(118))).encode() for i in range(1000))
    path = write(folder, "fast.jsonl", fast)
    refused(path, ": 1000 requests of 6e+07 tokens come within 0.000999 s, read as milliseconds, "
            "which cannot be right: are these seconds? (--time-unit s; --time-unit ms, if they are")
    for unit in ("ms", "s"):
        check_equal(run("mrc", "--only-lru", "--time-unit", unit, path).returncode, 0, unit)
    slow = row("bailian.jsonl", 3, timestamp=120.5e6)
    refused(write(folder, "slow.jsonl", slow), ": the times are 3.82 years of traffic, read as "
            "seconds, which cannot be right: are these milliseconds? (--time-unit ms")


with directory() as work:
    check_packed(work)
    check_kinds(work)
    check_rows(work)
    check_numbers(work)
    check_delta(work)
    check_units(work)
finish()
