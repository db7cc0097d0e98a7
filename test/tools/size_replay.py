"""kvpager size and kvpager replay give one answer: for every model of the table the same blocks, of
the same bytes and layers, and sequences that need as many of them as size says. The rule is worked
out here a second time, from docs/COMMAND.md. And a cache with the layer groups of a model hits what
its windows leave.
"""

import functools
import itertools
import json
import os

from lib_kvpager import check, check_equal, directory, finish, mooncake, replay, replay_load, run

GROUPS_MAX = 8


def ceil_div(a, b):
    return -(-a // b)


def held(window, block, context):
    """Blocks that a layer group holds at most while a sequence grows to the context token by token."""
    all_blocks = ceil_div(context, block)
    return all_blocks if window is None else min(all_blocks, ceil_div(window - 1, block) + 1)


def cost(groups, block_layers, context=8192):
    """What decides between ways to cut layers, the best first: bytes of a sequence, largest block,
    layer groups. groups: (layers, window, layer groups, tokens a block); block_layers: layers times
    tokens that a block of the pool has room for."""
    blocks = sum(n * held(window, tokens, context) for _, window, n, tokens in groups)
    return blocks * block_layers, max(group[3] for group in groups), sum(g[2] for g in groups)


def all_ways(kinds, block):
    """Every way to cut layers of equal bytes into at most 8 layer groups of a pool."""
    choices = [[(layers, window, n, block * k) for n in range(1, min(layers, GROUPS_MAX) + 1)
                for k in (1, 2, 4, 8, 16) if block * k <= 65536] for layers, window in kinds]
    for groups in itertools.product(*choices):
        if sum(group[2] for group in groups) <= GROUPS_MAX:
            yield groups


def room(groups):
    return max(ceil_div(layers, n) * tokens for layers, _, n, tokens in groups)


@functools.cache
def best_cost(kinds, block):
    return min(cost(groups, room(groups)) for groups in all_ways(kinds, block))


def check_cut(size, kinds, block, *what):
    """Layers are cut in one of the best ways. Gives it."""
    found = [(group["layers"], group["window_tokens"], group["layer_groups"], group["block_tokens"])
             for group in size["groups"]]
    check_equal([group[:2] for group in found], kinds, *what)
    best = best_cost(tuple(kinds), block)
    check_equal(cost(found, room(found)), best, *what, found)
    return found


def check_settings(found, size, *what):
    """The settings of a replay against the figures of size."""
    check_equal(found["blocks"], size["blocks"], *what, "blocks")
    check_equal(found["tokens"], size["tokens"], *what, "tokens")
    check_equal([(group["layers"], group["window_tokens"], group["groups"], group["block_tokens"])
                 for group in found["layer_groups"]],
                [(group["layers"], group["window_tokens"], group["layer_groups"],
                  group["block_tokens"]) for group in size["groups"]], *what)


def compare(path, row, block, options):
    """One model on one accelerator, by size and by both kinds of replay."""
    options = ["--block-tokens", block, *options]
    done = run("size", "--json", "--model", row["model"], *options)
    if done.returncode != 0:
        failed = run("replay", "--model", row["model"], *options, path)
        check_equal(failed.returncode, done.returncode, row["model"], options)
        check_equal(failed.stderr.replace(b"kvpager replay", b"kvpager size"), done.stderr)
        return 0
    size = json.loads(done.stdout)
    what = (row["model"], options)
    windowed = row["windowed_layers"]
    kinds = [(layers, window) for layers, window in [(row["layers"] - windowed, None),
                                                     (windowed, row["window_tokens"])] if layers]
    groups = check_cut(size, kinds, block, *what)
    block_bytes = room(groups) * size["bytes_per_token"] // row["layers"]
    check_equal(size["bytes_per_block"], block_bytes, *what)
    check_equal(size["blocks"], size["kv_memory_bytes"] // block_bytes, *what)
    check_equal(size["blocks_per_sequence"],
                sum(n * held(window, tokens, 8192) for _, window, n, tokens in groups), *what)
    check_equal(size["padding_per_sequence"], size["blocks_per_sequence"] * block_bytes
                - size["bytes_per_sequence"], *what)
    check_equal(size["sequences"], size["blocks"] // size["blocks_per_sequence"], *what)
    load = replay_load(path, "--model", row["model"], *options)
    check_settings(load, size, *what, "under load")
    check_equal(load["block_bytes"], block_bytes, *what)
    check_equal(load["finished"], 1, *what)
    one = replay(path, "--model", row["model"], *options)
    check_settings(one, size, *what, "one after the other")
    check_equal(one["memory_bytes"], size["blocks"] * block_bytes, *what)
    return 1


def is_plain(row):
    """Layers that differ in nothing but a window."""
    kinds = {(kind["keeps"], kind["bytes_per_entry"]) for kind in row["kinds"]}
    return len(kinds) == 1 and row["state_layers"] == 0 and not row["chunked"]


# for each kind: layers, layer groups, tokens a block. By hand: a layer of Gemma 4 31B without a
# window has half the bytes of one with; an entry of DeepSeek V4 has up to 128 tokens.
MIXED = {"deepseek-v3.2": [(61, 1, 16)], "glm-5.3": [(78, 1, 16)], "minimax-m3": [(60, 1, 16)],
         "gemma-4-e2b": [(3, 1, 16), (12, 2, 16)], "gemma-4-31b": [(10, 1, 32), (50, 5, 16)],
         "mimo-v2.5": [(9, 1, 32), (39, 5, 16)], "deepseek-v4-flash": [(41, 1, 256), (43, 4, 128)],
         "dots3-note-prev": [(13, 1, 64), (33, 1, 16)], "longcat-flash": [(56, 1, 16)]}


def check_mixed(folder):
    """Layers that differ in what they keep: a replay has the groups and bytes of size."""
    path = os.path.join(folder, "one.jsonl")
    for model, groups in MIXED.items():
        size = json.loads(run("size", "--json", "--model", model, "--context", 100).stdout)
        found = replay(path, "--model", model, "--blocks", 4 * size["blocks_per_sequence"])
        check_equal([(group["layers"], group["groups"], group["block_tokens"])
                     for group in found["layer_groups"]], groups, model)
        check_equal([(group["layers"], group["layer_groups"], group["block_tokens"])
                     for group in size["groups"]], groups, model)
        done = run("replay", "--model", model, "--device", "b300", "--blocks", 99, path)
        known = len(size["kinds"]) == len(groups) and size["parameters_from_shape"] is not None
        check_equal(done.returncode, 0 if known else 1, model, done.stderr)
        for layers, n, tokens in groups if known and len(groups) > 1 else []:
            said = f"\n  {n} group{'s' * (n > 1)} of {ceil_div(layers, n)} layers, {tokens} tokens a block: "
            check(said.encode() in done.stdout, model, said, done.stdout)
        check(all(group["layer_groups"] * size["bytes_per_block"] >= group["bytes_per_block"]
                  for group in size["groups"]), model)
    for option, *command in (["--block-tokens", "size"], ["--block-tokens", "replay"],
                             ["--unit-tokens", "replay", "--block-tokens", 384]):
        files = [path, "--sequential", "--blocks", 99] if command[0] == "replay" else []
        done = run(*command, *files, "--model", "deepseek-v4-pro", option, 192)
        check_equal(done.returncode, 2, command, done.stderr)
        check(f"{option} is 192, and deepseek-v4-pro keeps an entry for 128 tokens: expected a "
              "multiple of 128\n".encode() in done.stderr, command, done.stderr)


def check_table(folder):
    path = os.path.join(folder, "one.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        file.write(mooncake(0, 40, 3, [1]))
    models = [row for row in json.loads(run("size", "--list", "--json").stdout)["models"]
              if is_plain(row) and row["parameters_are_estimated"] is False]
    shapes = {(row["layers"], row["windowed_layers"], row["kv_heads"]): row for row in models}
    check(len(shapes) >= 20, len(shapes))
    for row in shapes.values():
        n = sum(compare(path, row, block, ["--device", device, "--tp", tp])
                for device, tp, block in [("h100", 1, 128), ("l4", 2, 32), ("h200", 16, 512)]
                if row["query_heads"] % tp == 0)
        check(n >= 1, row["model"], "fits nowhere")
    # the options that change either
    row = next(row for row in models if row["model"] == "gemma-3-27b")
    for options in (["--dtype", "fp8"], ["--weights-dtype", "int8", "--overhead", "20GiB"],
                    ["--utilization", "0.8"]):
        check_equal(compare(path, row, 16, ["--device", "h100", *options]), 1, options)


# layers without a window, with one: layer groups
SPLITS = [((12, 12), 2), ((10, 52), 7), ((36, 12), 4), ((0, 32), 1), ((32, 0), 1), ((1, 1), 2),
          ((1, 7), 8), ((5, 29), None), ((7, 50), None), ((1, 31), None), ((1, 8), None),
          ((13, 1), None), ((6, 10), None), ((1000, 24), None)]


def config(folder, n_full, n_windowed, window):
    path = os.path.join(folder, f"{n_full}-{n_windowed}.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"model_type": "llama", "hidden_size": 64, "intermediate_size": 64,
                   "num_attention_heads": 1, "num_hidden_layers": n_full + n_windowed,
                   "vocab_size": 64, "sliding_window": window, "layer_types":
                   ["full_attention"] * n_full + ["sliding_attention"] * n_windowed}, file)
    return path


def chunked(folder, n_full, n_chunked, chunk):
    path = os.path.join(folder, f"{n_full}-{n_chunked}-chunks-{chunk}.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"model_type": "llama", "hidden_size": 64, "intermediate_size": 64,
                   "num_attention_heads": 1, "num_hidden_layers": n_full + n_chunked,
                   "vocab_size": 64, "attention_chunk_size": chunk, "layer_types":
                   ["full_attention"] * n_full + ["chunked_attention"] * n_chunked}, file)
    return path


def check_splits(folder):
    """How layers are cut into groups, by hand and by trying all ways."""
    for (full, windowed), n_groups in SPLITS:
        found = json.loads(run("size", "--json", "--model-config",
                               config(folder, full, windowed, 64)).stdout)
        kinds = [(n, window) for n, window in [(full, None), (windowed, 64)] if n]
        check_cut(found, kinds, 16, full, windowed)
        if n_groups is not None:
            check_equal(found["layer_groups"], n_groups, full, windowed)


def check_need(folder):
    """A sequence that is decoded to the context needs the blocks that size says, and no block
    less."""
    path = os.path.join(folder, "long.jsonl")
    for model, context in [("gemma-3-27b", 1500), ("gpt-oss-20b", 300), ("phi-3-mini-4k", 2100),
                           ("llama-3.2-1b", 200), ("gemma-2-9b", 33)]:
        size = json.loads(run("size", "--json", "--model", model, "--context", context).stdout)
        blocks = size["blocks_per_sequence"]
        with open(path, "w", encoding="utf-8") as file:
            file.write(mooncake(0, 1, context - 1, [1]))
        found = replay(path, "--model", model, "--blocks", blocks)
        check_equal((found["rejected"], found["output_tokens"]), (0, context - 1), model)
        check_equal(found["peak_held_blocks"], blocks, model)
        if blocks > 1:
            found = replay(path, "--model", model, "--blocks", blocks - 1)
            check_equal((found["rejected"], found["output_tokens"]), (1, 0), model)


def check_chunks(folder):
    """In chunks of R tokens a sequence is counted with the blocks of a whole chunk. Those of 24
    begin at a block, or in its middle."""
    path = os.path.join(folder, "chunks.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        file.write(mooncake(0, 1, 199, [1]))
    for chunk, block, blocks in [(64, 16, 13 + 4), (24, 16, 13 + 2), (20, 16, 13 + 2),
                                 (33, 16, 13 + 3), (7, 8, 25 + 2), (512, 16, 13 + 13),
                                 (16, 1, 200 + 16)]:
        options = ["--model-config", chunked(folder, 1, 1, chunk), "--block-tokens", block]
        size = json.loads(run("size", "--json", "--context", 200, *options).stdout)
        check_equal(size["blocks_per_sequence"], blocks, chunk, block)
        found = replay(path, *options, "--blocks", blocks)
        check_equal((found["rejected"], found["output_tokens"]), (0, 199), chunk, block)
        # each group's most, which they do not hold at the same time
        peak = max(ceil_div(n, block) + ceil_div(n, block) - (n - 1) // chunk * chunk // block
                   for n in range(1, 201))
        check_equal(found["peak_held_blocks"], peak, chunk, block)
        check_equal([group["chunked"] for group in found["layer_groups"]], [False, True], chunk)
        found = replay(path, *options, "--blocks", blocks - 1)
        check_equal((found["rejected"], found["output_tokens"]), (1, 0), chunk, block)


def check_pieces(folder):
    """A long prompt is computed in pieces of 8,192 tokens: 1 + 1 groups, a window of 64. The
    second piece sees 8,255 tokens at most: 517 blocks, begun anywhere."""
    path, model = os.path.join(folder, "prompt.jsonl"), config(folder, 3, 3, 64)
    with open(path, "w", encoding="utf-8") as file:
        file.write(mooncake(0, 20000, 1, list(range(40))))
    need = 1251 + 517
    found = replay(path, "--model-config", model, "--blocks", need)
    check_equal(found["rejected"], 0)
    check(found["peak_held_blocks"] <= need, found["peak_held_blocks"])
    check(found["peak_held_blocks"] >= 1024 + 512, found["peak_held_blocks"])
    check_equal(replay(path, "--model-config", model, "--blocks", need - 1)["rejected"], 1)


def check_strange(folder):
    """A key that may change the KV, and is not known, is named by each command that reads the file."""
    trace, model = os.path.join(folder, "one.jsonl"), config(folder, 2, 0, None)
    with open(trace, "w", encoding="utf-8") as file:
        file.write(mooncake(0, 100, 1, [1]))
    with open(model, encoding="utf-8") as file:
        known = json.load(file)
    with open(model, "w", encoding="utf-8") as file:
        json.dump({**known, "made_up_cache_ratio": 4}, file)
    for command in (["size"], ["replay", "--trace-block", "512", trace], ["mrc", "--trace-block", "512", trace]):
        done = run(*command, "--model-config", model)
        check_equal(done.returncode, 0, command, done.stderr)
        check(b'has "made_up_cache_ratio", which this command does not know' in done.stderr, command, done.stderr)


def check_hits(folder):
    """Requests of 64 tokens in blocks of 4, one full group and one with a window of 8."""
    path, model = os.path.join(folder, "hits.jsonl"), config(folder, 1, 1, 8)
    options = ["--trace-block", 4, "--block-tokens", 4, "--output-tokens", "off",
               "--model-config", model]
    base = list(range(16))

    def hits(blocks, *requests, retain="off"):
        with open(path, "w", encoding="utf-8") as file:
            for ids in requests:
                file.write(mooncake(0, 4 * len(ids), 0, ids))
        found = replay(path, *options, "--blocks", blocks, "--retain-tokens", retain)
        check_equal(found["retain_tokens"], None if retain == "off" else retain)
        return found["hit_tokens"]

    # everything is cached: the second hits all, of which the last token is run again
    check_equal(hits(99, base, base, retain="prompts"), 63)
    check_equal(hits(99, base, base), 63)
    check_equal(hits(99, base, base[:9] + [50, 51]), 36)
    # The first request's 32 blocks fill the cache. Its commit drops entries 13, 12 .. 0 of the
    # window, in this order, so the ten blocks of the second one evict 13 .. 4. Entries 14 and 15
    # are all that the whole prompt needs.
    other = [70, 71, 72, 73, 74]
    check_equal(hits(32, base, other, base), 63)
    # 14 entries need the window's 12 and 13, which are gone; the longest prefix that has its last
    # two entries is 0 .. 3. Without a window all 14 are hit.
    check_equal(hits(32, base, other, base[:14] + [90]), 16)
    # With places at multiples of 56 tokens, which are 14 entries, it is hit.
    check_equal(hits(32, base, other, base[:14] + [90], retain=56), 56)
    with_all = ["--trace-block", 4, "--block-tokens", 4, "--output-tokens", "off", "--blocks", 21]
    check_equal(replay(path, *with_all)["hit_tokens"], 56)


def check_load(folder):
    """Under load, with too little memory: everybody finishes, swapped or computed again, and a cache
    whose blocks all are back passes its audit (else the status is 1)."""
    path = os.path.join(folder, "chat.jsonl")
    done = run("gen", "--profile", "chat", "--requests", 24, "--seed", 5, "-o", path)
    check_equal(done.returncode, 0, done.stderr)
    hits = {}
    for retain in ("off", 256, "prompts"):
        preempted = hits[retain] = 0
        for shape in ((1, 1, 40), (1, 3, 200), (0, 2, 100)):
            model = ["--model-config", config(folder, *shape), "--block-tokens", 64, "--watermark", 0,
                     "--retain-tokens", retain, "--speedup", 1000, "--step-tokens", 2048]
            for options in ([], ["--host-blocks", 900, "--preempt", "swap"],
                            ["--host-blocks", 50, "--preempt", "cheaper"]):
                found = replay_load(path, *model, "--blocks", 100 * sum(shape[:2]), *options)
                check_equal(found["finished"] + found["rejected"], found["requests"], retain, shape, options)
                check(found["finished"] >= 12, retain, shape, options, found["finished"])
                preempted += found["preemptions_recompute"] + found["preemptions_swap"]
                hits[retain] += found["hit_tokens"]
        check(preempted >= 5, retain, "preempted", preempted)
    check(hits[256] > hits["off"], "places that are retained are of no use", hits)


def main():
    with directory() as folder:
        check_table(folder)
        check_mixed(folder)
        check_splits(folder)
        check_need(folder)
        check_chunks(folder)
        check_pieces(folder)
        check_strange(folder)
        check_hits(folder)
        check_load(folder)
    finish()


main()
