"""Reads the real traces, and replays a part of each."""

import os

from lib_kvpager import check, check_equal, finish, replay, skip, traces

# file, format, requests, input tokens of the whole file
FILES = [("mooncake_conversation.jsonl", "Mooncake JSONL", 12031, 144793823),
         ("azure_2023_conv.csv", "Azure CSV", 19366, 22361870),
         ("sharegpt_llama31_300.jsonl", "token JSONL", 300, 257239)]


def main():
    folder = traces()
    if folder is None:
        skip("the folder of real traces is not there")
    for name, kind, n_requests, input_tokens in FILES:
        path = os.path.join(folder, name)
        # One block of 65,536 tokens: nearly everything is rejected, or fits one block.
        options = [] if kind == "Mooncake JSONL" else ["--block-tokens", 65536]
        found = replay(path, "--blocks", 1, "--output-tokens", "off", *options)
        check_equal(found["format"], kind, name)
        check_equal(found["requests"], n_requests, name)
        check_equal(found["input_tokens"], input_tokens, name)
        found = replay(path, "--blocks", 500, "--block-tokens", 64, "--limit", 40,
                       "--output-tokens", "off")
        check_equal(found["requests"], 40, name)
        check(found["blocks_looked_up"] > 0, name)
    finish()


main()
