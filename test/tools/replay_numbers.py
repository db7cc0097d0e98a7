"""Replays tiny traces one request after the other; the figures were computed by hand."""

import os

from lib_kvpager import check, check_equal, directory, finish, mooncake, replay, run

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
BURSTGPT = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"

SHARING = (mooncake(0, 16, 0, [1, 2])
           + mooncake(1, 16, 0, [1, 2])       # a full hit: all but the last token
           + mooncake(2, 20, 0, [1, 2, 3]))   # four blocks hit, one new

# name, trace, options, figures
CASES = [
    ("sharing", SHARING, ["--trace-block", 8, "--block-tokens", 4, "--blocks", 8],
     {"requests": 3, "rejected": 0, "input_tokens": 52, "output_tokens": 0, "hit_tokens": 31,
      "blocks_looked_up": 13, "block_hits": 8, "evictions": 0, "peak_held_blocks": 5,
      "block_tokens": 4, "blocks": 8, "mended": 0}),
    ("block of one token", SHARING, ["--trace-block", 8, "--block-tokens", 1, "--blocks", 50],
     {"hit_tokens": 31, "blocks_looked_up": 52, "block_hits": 32, "peak_held_blocks": 20}),
    ("block as long as the trace's", SHARING,
     ["--trace-block", 8, "--block-tokens", 8, "--blocks", 50],
     {"hit_tokens": 31, "blocks_looked_up": 6, "block_hits": 4, "peak_held_blocks": 3}),
    ("another seed", SHARING,
     ["--trace-block", 8, "--block-tokens", 4, "--blocks", 8, "--seed", 2**63 - 1],
     {"hit_tokens": 31, "block_hits": 8, "seed": 2**63 - 1}),
    ("no prefix cache", SHARING,
     ["--trace-block", 8, "--block-tokens", 4, "--blocks", 8, "--no-prefix-cache"],
     {"hit_tokens": 0, "blocks_looked_up": 13, "block_hits": 0, "evictions": 0,
      "peak_held_blocks": 5, "hit_ratio": 0.0}),
    ("limit", SHARING, ["--trace-block", 8, "--block-tokens", 4, "--blocks", 8, "--limit", 2],
     {"requests": 2, "input_tokens": 32, "hit_tokens": 15, "blocks_looked_up": 8, "block_hits": 4}),
    ("limit beyond the end", SHARING,
     ["--trace-block", 8, "--block-tokens", 4, "--blocks", 8, "--limit", 20], {"requests": 3}),
    # 64 KiB / (1 KiB x 16 tokens) = 4 blocks
    ("memory", mooncake(0, 16, 0, [1]), ["--memory", "64KiB", "--kv-bytes-per-token", "1024"],
     {"blocks": 4, "block_tokens": 16, "memory_bytes": 65536}),
    ("memory that is no multiple", mooncake(0, 16, 0, [1]),
     ["--memory", "65kB", "--kv-bytes-per-token", "1K"], {"blocks": 3, "memory_bytes": 49152}),
    # The queue is 4 3 2 1 after the first request (block 4 still free); the second takes 4 and 3,
    # so the third finds 1 and 2, and takes 3 again, which has content by now.
    ("evictions", (mooncake(0, 12, 0, [1, 2, 3]) + mooncake(0, 8, 0, [4, 5])
                   + mooncake(0, 12, 0, [1, 2, 3])),
     ["--trace-block", 4, "--block-tokens", 4, "--blocks", 4],
     {"hit_tokens": 8, "blocks_looked_up": 8, "block_hits": 2, "evictions": 2,
      "peak_held_blocks": 3}),
    # The second needs four blocks; the third finds what the first left.
    ("rejected", mooncake(0, 8, 0, [1, 2]) + mooncake(0, 16, 0, [3, 4, 5, 6])
     + mooncake(0, 8, 0, [1, 2]),
     ["--trace-block", 4, "--block-tokens", 4, "--blocks", 3],
     {"requests": 3, "rejected": 1, "input_tokens": 32, "hit_tokens": 7, "blocks_looked_up": 8,
      "block_hits": 2, "evictions": 0, "peak_held_blocks": 2}),
    ("rejected for its output", mooncake(0, 8, 5, [1, 2]),
     ["--trace-block", 4, "--block-tokens", 4, "--blocks", 3],
     {"rejected": 1, "output_tokens": 0, "peak_held_blocks": 0}),
    ("not rejected without its output", mooncake(0, 8, 5, [1, 2]),
     ["--trace-block", 4, "--block-tokens", 4, "--blocks", 3, "--output-tokens", "off"],
     {"rejected": 0, "output_tokens": 0, "peak_held_blocks": 2}),
    ("just fits", mooncake(0, 8, 4, [1, 2]),
     ["--trace-block", 4, "--block-tokens", 4, "--blocks", 3],
     {"rejected": 0, "output_tokens": 4, "peak_held_blocks": 3}),
    # 6 + 3 tokens in 3 blocks. The second hits the first block, writes tokens 4..7 into the empty
    # one and evicts the mixed block for token 8.
    ("output", mooncake(0, 6, 3, [1]) + mooncake(0, 6, 3, [1]),
     ["--trace-block", 8, "--block-tokens", 4, "--blocks", 3],
     {"output_tokens": 6, "hit_tokens": 4, "blocks_looked_up": 2, "block_hits": 1, "evictions": 1,
      "peak_held_blocks": 3}),
    ("by time, not by line", mooncake(5, 8, 0, [1, 2]) + mooncake(0, 4, 0, [1]),
     ["--trace-block", 4, "--block-tokens", 4, "--blocks", 3, "--limit", 1], {"input_tokens": 4}),
    ("less than a block", mooncake(0, 3, 0, [1]) + mooncake(0, 3, 0, [1]),
     ["--trace-block", 4, "--block-tokens", 4, "--blocks", 3],
     {"hit_tokens": 0, "blocks_looked_up": 0, "block_hits": 0}),
    ("nothing at all", mooncake(0, 0, 0, []), [],
     {"requests": 1, "input_tokens": 0, "hit_tokens": 0, "hit_ratio": 0.0, "peak_held_blocks": 0}),
    ("output after no input", mooncake(0, 0, 17, []), [],
     {"output_tokens": 17, "peak_held_blocks": 2}),
    ("ids of 64 bits", mooncake(0, 8, 0, [2**62, 2**63 - 1]) + mooncake(0, 8, 0, [2**62, 2**61]),
     ["--trace-block", 4, "--block-tokens", 2], {"hit_tokens": 4, "block_hits": 2}),
    ("Azure", AZURE + "2023-11-16 18:15:46.68,32,2\n2023-11-16 18:15:47.68,32,2\n", [],
     {"requests": 2, "input_tokens": 64, "output_tokens": 4, "hit_tokens": 0,
      "blocks_looked_up": 4, "block_hits": 0, "peak_held_blocks": 3}),
    ("BurstGPT, any block size", BURSTGPT + "5,GPT-4,30,2,32,API log\n6,GPT-4,30,2,32,API log\n",
     ["--block-tokens", 7], {"hit_tokens": 0, "blocks_looked_up": 8, "peak_held_blocks": 5}),
    ("tokens", '{"arrival_time_ns": 1, "input_toks": 4, "output_toks": 2, "input_tok_ids":'
               ' [1, 2, 3, 4], "output_tok_ids": [5, 6]}\n'
               '{"arrival_time_ns": 2, "input_toks": 7, "output_toks": 1, "input_tok_ids":'
               ' [1, 2, 3, 4, 5, 6, 7], "output_tok_ids": [8]}\n', ["--block-tokens", 3],
     {"hit_tokens": 6, "blocks_looked_up": 3, "block_hits": 2}),
    ("too few ids", mooncake(0, 8, 0, [1]) + mooncake(0, 8, 0, [1]),
     ["--trace-block", 4, "--block-tokens", 4, "--lenient"],
     {"mended": 2, "hit_tokens": 4, "block_hits": 1}),
    ("too many ids", mooncake(0, 4, 0, [1, 2]) + mooncake(0, 8, 0, [1, 2]),
     ["--trace-block", 4, "--block-tokens", 4, "--lenient"],
     {"mended": 1, "hit_tokens": 4, "block_hits": 1}),
]

NAMES = """requests rejected input_tokens output_tokens hit_tokens hit_ratio block_tokens blocks
blocks_looked_up block_hits evictions peak_held_blocks wall_seconds tokens_per_second ns_per_open
ns_per_extend ns_per_close""".split()


def check_case(path, name, trace, options, figures):
    with open(path, "w", encoding="utf-8") as file:
        file.write(trace)
    found = replay(path, *options)
    for key in NAMES:
        check(isinstance(found.get(key), (int, float)), name, key, "is missing")
    for key, expected in figures.items():
        check_equal(found.get(key), expected, name, key)
    if found["input_tokens"]:
        ratio = found["hit_tokens"] / found["input_tokens"]
        check(abs(found["hit_ratio"] - ratio) < 1e-9, name, "hit_ratio", found["hit_ratio"])
    parts = found["timeline"]
    for key in ["requests", "input_tokens", "hit_tokens"]:
        check_equal(sum(part[key] for part in parts), found[key], name, "timeline", key)
    check(found["wall_seconds"] > 0 and found["ns_per_open"] >= 0, name, "times")


def check_record(path, folder, *mode):
    """The log is the same, bit for bit, each time."""
    logs = []
    for name in ["a.log", "b.log"]:
        log = os.path.join(folder, name)
        done = run("replay", *mode, "--trace-block", 8, "--block-tokens", 4, "--record", log, path)
        check_equal(done.returncode, 0, "record", done.stderr)
        with open(log, "rb") as file:
            logs.append(file.read())
    check(len(logs[0]) > 16 and logs[0] == logs[1], "record: the logs differ")
    done = run("replay", *mode, "--record", os.path.join(folder, "no", "such"), path)
    check_equal(done.returncode, 1, "record in no directory")


def main():
    with directory() as folder:
        path = os.path.join(folder, "trace")
        for case in CASES:
            check_case(path, *case)
        with open(path, "w", encoding="utf-8") as file:
            file.write(SHARING)
        options = ["--trace-block", 8, "--block-tokens", 4]
        from_file = replay(path, *options)
        from_pipe = replay("-", *options, stdin=SHARING.encode())
        check_equal(from_pipe["hit_tokens"], from_file["hit_tokens"], "standard input")
        check_record(path, folder, "--sequential")
        check_record(path, folder)
    finish()


main()
