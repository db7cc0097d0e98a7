"""The comparison with the simulation on larger workloads, on the bundled one, and on the real
traces where they are."""

import os

from lib_kvpager import SOURCE, check_equal, directory, finish, replay, run, traces
from lib_simulation import Simulation, read_azure, read_jsonl


def compare(path, requests, block_tokens, blocks, output):
    found = replay(path, "--block-tokens", block_tokens, "--blocks", blocks, "--output-tokens",
                   "on" if output else "off", "--limit", len(requests))
    expected = Simulation(block_tokens, blocks).replay(requests, output)
    for key, value in expected.items():
        check_equal(found[key], value, os.path.basename(path), block_tokens, blocks, output, key)
    print(os.path.basename(path), block_tokens, blocks, "on" if output else "off", expected)


def compare_real(folder):
    path = os.path.join(folder, "mooncake_conversation.jsonl")
    requests = read_jsonl(path)
    compare(path, requests, 512, 1000, False)
    compare(path, requests, 256, 20000, False)
    compare(path, requests[:1500], 16, 20000, True)
    compare(path, requests[:1000], 64, 1500, True)
    path = os.path.join(folder, "sharegpt_llama31_300.jsonl")
    compare(path, read_jsonl(path), 16, 3000, True)
    compare(path, read_jsonl(path), 3, 100000, True)
    path = os.path.join(folder, "azure_2023_conv.csv")
    compare(path, read_azure(path)[:3000], 16, 600, True)


def main():
    path = os.path.join(SOURCE, "data", "mixed-small.jsonl")
    requests = read_jsonl(path)
    for block_tokens, blocks, output in [(16, 32768, False), (16, 4096, True), (32, 9000, True),
                                         (512, 300, True)]:
        compare(path, requests, block_tokens, blocks, output)
    with directory() as folder:
        path = os.path.join(folder, "generated.jsonl")
        for profile, seed in [("chat", 5), ("agent", 6), ("rag", 2**63 - 1)]:
            run("gen", "--profile", profile, "--requests", 400, "--seed", seed, "-o", path)
            compare(path, read_jsonl(path), 64, 2500, True)
    if traces():
        compare_real(traces())
    else:
        print("the real traces are not there: compared without them")
    finish()


main()
