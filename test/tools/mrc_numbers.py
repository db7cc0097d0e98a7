"""The curve of `kvpager mrc` on traces small enough to be worked out by hand: LRU, FIFO and the
optimum, in blocks of two tokens. ARC and S3-FIFO against simulations of lib_curve.py. long_mrc.py
compares with replays and simulations."""

import json
import os
import random

from lib_curve import adaptive, served, token_trace, tree_trace
from lib_kvpager import check, check_equal, directory, finish, mooncake, run

BLOCKS = {letter: [10 * i, 10 * i + 1] for i, letter in enumerate("ABCD", 1)}


def write_trace(path, prompts):
    """A prompt is letters, a block each, and perhaps a token more: `AB+`."""
    with open(path, "w", encoding="utf-8") as file:
        for i, prompt in enumerate(prompts.split()):
            ids = [token for letter in prompt.strip("+") for token in BLOCKS[letter]]
            ids += [1] * prompt.count("+")
            print(json.dumps({"arrival_time_ns": i, "input_toks": len(ids), "output_toks": 1,
                              "input_tok_ids": ids}), file=file)


def expect(prompts, sizes):
    """sizes: {blocks: (hit tokens of LRU, FIFO, the optimum)}."""
    with directory() as folder:
        path = os.path.join(folder, "trace.jsonl")
        write_trace(path, prompts)
        done = run("mrc", "--json", "--block-tokens", 2, "--output-tokens", "off",
                   "--sizes", ",".join(map(str, sizes)), path)
        check_equal(done.returncode, 0, prompts, done.stderr)
    for point in json.loads(done.stdout)["sizes"]:
        found = tuple(point[key] for key in
                      ["hit_tokens", "fifo_hit_tokens", "optimum_hit_tokens"])
        check_equal(found, sizes[point["blocks"]], prompts, point["blocks"])


def sizes_of(*words):
    done = run("mrc", "--json", *words)
    check_equal(done.returncode, 0, words, done.stderr)
    return json.loads(done.stdout)["sizes"]


def check_policies():
    """Only those that are asked for are shown. The learned one is LRU until it has seen twice its
    size; then it keeps most of what comes in turn, of which LRU keeps nothing."""
    keys = {"fifo": "fifo_hit_tokens", "optimum": "optimum_hit_tokens",
            "arc": "arc_hit_tokens", "s3fifo": "s3fifo_hit_tokens", "learned": "learned_hit_tokens"}
    with directory() as folder:
        path = os.path.join(folder, "trace.jsonl")
        write_trace(path, "A+ B+ C+ A+ B+")
        words = ["--block-tokens", 2, "--output-tokens", "off", path]
        for shown in ("lru", "fifo", "optimum", "learned", "lru,optimum", "optimum,learned,fifo", "arc", "s3fifo",
                      "s3fifo,fifo,arc,optimum,learned"):
            for point in sizes_of("--policy", shown, "--sizes", "4", *words):
                for policy, key in keys.items():
                    check_equal(point[key] is not None, policy in shown.split(","), shown, key)
        check_equal(sizes_of("--only-lru", *words), sizes_of("--policy", "lru", *words))
        for point in sizes_of("--policy", "learned", "--sizes", "3,4,2147483646", *words):
            check_equal(point["learned_hit_tokens"], point["hit_tokens"])
            check_equal(point["learned_hit_ratio"], point["hit_ratio"])
        with open(path, "w", encoding="utf-8") as file:
            for i in range(1800):  # 45 blocks in turn, room for 29 beside a request's two
                file.write(mooncake(i, 600, 0, [i % 45, 100 + i % 45]))
        words[1] = 512
        point, = sizes_of("--policy", "learned", "--sizes", "31", *words)
        check_equal(point["hit_tokens"], 0)
        check(point["learned_hit_tokens"] > 1000 * 512, point)
        text = run("mrc", "--policy", "learned", "--sizes", "3", *words).stdout.decode()
        check("LRU  learned\n" in text, text)
        check("learned" not in run("mrc", "--sizes", "3", *words).stdout.decode())
        text = run("mrc", "--policy", "s3fifo,arc,fifo,optimum,learned", "--kv-bytes-per-token",
                   "131072", "--sizes", "31", *words).stdout.decode()
        check(" LRU    FIFO optimum     ARC S3-FIFO learned gained\n" in text, text)
        check(max(map(len, text.splitlines()[2:])) <= 80, text)


def check_room_for_all(*words):
    """Where all blocks fit, each policy hits whatever came before."""
    done = run("mrc", "--json", *words)
    n = json.loads(done.stdout)["distinct_blocks"]
    point, = sizes_of(*words, "--policy", "fifo,arc,s3fifo,optimum,learned", "--sizes", str(n))
    for policy in ("fifo", "arc", "s3fifo", "optimum", "learned"):
        check_equal(point[policy + "_hit_tokens"], point["hit_tokens"], policy, n)


def check_adaptive(folder):
    """As lib_curve.py simulates them; they differ from LRU, and from each other."""
    seen = {"arc": set(), "s3fifo": set()}
    for seed in range(1, 9):
        if seed % 2:
            path = token_trace(folder, seed, n_requests=150, letters=2 + seed % 3)
        else:
            path = tree_trace(folder, seed, n_requests=150, depth=5)
        options = ["--block-tokens", 4, "--trace-block", 16]
        requests = served(path, 4)
        first = max(request.n_blocks for request in requests)
        sizes = [first, first + 1, first + 3, first + 8, first + 20, first + 40]
        for point in sizes_of(*options, "--policy", "arc,s3fifo", "--sizes",
                              ",".join(map(str, sizes)), path):
            for policy, gains in seen.items():
                found = point[policy + "_hit_tokens"]
                check_equal(found, adaptive(policy, requests, point["blocks"]), policy, path, point)
                gains.add(found - point["hit_tokens"])
        check_room_for_all(*options, path)
    for policy, gains in seen.items():
        check(min(gains) < 0 < max(gains), policy, "is like LRU", sorted(gains))


def verdict_of(point, most):
    """By the definition in docs/COMMAND.md."""
    lru = point["hit_ratio"]
    learned = point["learned_hit_ratio"] or 0
    best = max(point[key + "_hit_ratio"] or 0 for key in ("fifo", "arc", "s3fifo"))
    best = best if best - learned > 0.02 else max(learned, best if learned == 0 else 0)
    if most < 0.02:
        return "sharing", most
    if most - lru < 0.02:
        return "enough", most - lru
    if best - lru >= 0.02:
        return "policy", best - lru
    return "capacity", most - lru


def check_verdicts(folder):
    """Each outcome, as it follows from the other figures."""
    path, seen, names = os.path.join(folder, "verdict.jsonl"), {}, {}
    for ids, policy in [(lambda i: [3 * i, 3 * i + 1], "lru"), (lambda i: [i % 45], "lru,optimum"),
                        (lambda i: [i % 45, 100 + i % 45], "lru,learned"),
                        (lambda i: [i % 45, 100 + i % 45], "arc,optimum,s3fifo"),
                        (lambda i: [i % 3 * i, 1000 + i % 3 * i], "fifo,arc,s3fifo")]:
        with open(path, "w", encoding="utf-8") as file:
            for i in range(1800):
                file.write(mooncake(i, 600 if len(ids(i)) == 2 else 512, 0, ids(i)))
        words = ["--block-tokens", 512, "--sizes", "31,44,91,200", "--policy", policy, path]
        done = json.loads(run("mrc", "--json", *words).stdout)
        text = run("mrc", *words).stdout.decode()
        for point in done["sizes"]:
            word, ratio = verdict_of(point, done["curve"][-1][1])
            check_equal(point["verdict"], word, policy, point)
            named = point["verdict_policy"]
            check_equal(named is not None, word == "policy", point)
            if named is not None:
                names[named] = names.get(named, 0) + 1
                check_equal(point[named + "_hit_ratio"] - point["hit_ratio"], ratio, point)
                check(("--policy learned\n" if named == "learned" else
                       ", which the cache does not have\n") in text, named, text)
            check(abs(point["verdict_ratio"] - ratio) < 1e-9, policy, point)
            check(f"{point['blocks']:,}  {word:8}  {100 * ratio:5.2f} %" in text, word, text)
            seen[word] = seen.get(word, 0) + 1
    check_equal(sorted(seen), ["capacity", "enough", "policy", "sharing"])
    check("learned" in names and len(names) > 1, names)


def kept(arrivals, prompts, seconds, size):
    """(tokens hit, mean blocks) of content that is kept so long since its last use, each block of a
    prompt followed on its own."""
    used, hit, taken, end = {}, 0, 0, arrivals[-1]
    for now, ids in zip(arrivals, prompts):
        for i in range(len(ids)):
            key = tuple(ids[:i + 1])
            if key in used:
                gap = now - used[key]
                hit += (size - (i + 1 == len(ids))) * (gap <= seconds)
                taken += min(gap, seconds)
            used[key] = now
    taken += sum(min(end - last, seconds) for last in used.values())
    return hit, taken / (end - arrivals[0])


def check_retention(folder):
    """Against each block followed on its own; for good is an unlimited cache."""
    draw = random.Random(4)
    path = os.path.join(folder, "retention.jsonl")
    arrivals, prompts, now = [], [], 0
    for _ in range(400):
        now += draw.choice([0, 0.5, 3, 30, 200, 1000])
        head = draw.randrange(8)
        arrivals.append(now)
        prompts.append([1000 * head + i for i in range(draw.randrange(1, 5))])
    with open(path, "w", encoding="utf-8") as file:
        for now, ids in zip(arrivals, prompts):
            file.write(mooncake(int(now * 1000), 512 * len(ids), 0, ids))
    words = ["--block-tokens", 512, "--only-lru", "--kv-bytes-per-token", 10, path]
    found = json.loads(run("mrc", "--json", *words).stdout)
    rows = found["retention"]
    check_equal([row["seconds"] for row in rows],
                [1, 10, 60, 300, 900, 3600, 21600, None])
    for row in rows:
        hit, blocks = kept(arrivals, prompts, row["seconds"] or 1e9, 512)
        check_equal(row["hit_tokens"], hit, row)
        check(abs(row["mean_blocks"] - blocks) < 1e-6 * blocks + 1e-9, row, blocks)
        check(abs(row["share_of_blocks"] - row["mean_blocks"] / rows[-1]["mean_blocks"]) < 1e-9)
        check(abs(row["mean_bytes"] - blocks * 5120) <= 1, row, blocks)
    check_equal(rows[-1]["hit_tokens"], found["sizes"][-1]["hit_tokens"])
    text = run("mrc", *words).stdout.decode()
    check("     for good " in text and "      1:00:00 " in text, text)


def check_sample(folder):
    """Of a sample with hardly a hit, an unlimited cache hits what is kept for good."""
    path = os.path.join(folder, "sample.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        for i in range(60):
            file.write(mooncake(i, 2048, 1, [4 * (i if i % 6 else 0) + k for k in range(4)]))
    for rate in ("0.5", "0.2", "0.1"):
        found = json.loads(run("mrc", "--json", "--block-tokens", 512, "--sample", rate, path).stdout)
        last = found["sizes"][-1]
        check_equal(last["hit_tokens"], found["retention"][-1]["hit_tokens"], rate)
        check(last["hit_tokens"] <= last["optimum_hit_tokens"], rate, last)


def check_price(folder):
    """What unlimited memory saves is what a replay with room, one after the other, says of hits."""
    path = os.path.join(folder, "price.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        for i in range(40):
            ids = [i % 3 + 10 * k for k in range(1 + i % 5)]
            file.write(mooncake(i * 60000, 512 * len(ids), 4, ids))
    words = ["--json", "--model", "llama-3.1-8b", "--device", "h100", path]
    why = os.path.join(folder, "why.jsonl")
    replay = json.loads(run("replay", "--no-measure", "--why", why, *words).stdout)["why"]["hit"]
    found = json.loads(run("mrc", "--only-lru", "--price", "2.5", *words).stdout)
    last = found["sizes"][-1]
    check_equal(last["hit_tokens"], replay["tokens"])
    check(abs(last["saved_gpu_seconds"] / replay["prefill_seconds"] - 1) < 1e-9, last, replay)
    check(abs(last["saved_money"] - 2.5 * last["saved_gpu_seconds"] / 3600) < 1e-12, last)
    check_equal(found["price_per_gpu_hour"], 2.5)
    half = json.loads(run("mrc", "--only-lru", "--price", "1", "--compute-share", "0.25", "--tp", 2,
                          *words).stdout)["sizes"][-1]
    check(abs(half["saved_gpu_seconds"] / last["saved_gpu_seconds"] - 2) < 1e-9, half, last)
    text = run("mrc", "--only-lru", "--price", "2.5", *words[1:]).stdout.decode()
    check("prefill, at 2.5 an hour of an accelerator\n" in text, text)
    check_equal(json.loads(run("mrc", *words).stdout)["sizes"][-1]["saved_money"], None)


def check_device():
    """The accelerator's size is shown, whatever others are; or the report says why not."""
    l4 = ["--model", "llama-3.1-8b", "--device", "l4"]
    blocks = json.loads(run("size", "--json", *l4).stdout)["blocks"]
    many = ",".join(str(n) for n in range(100, 164))
    with directory() as folder:
        path = os.path.join(folder, "short.jsonl")
        with open(path, "w", encoding="utf-8") as file:
            file.write(mooncake(0, 600, 1, [1, 2]))
        for sizes in ([], ["--sizes", "64"], ["--sizes", many], ["--sizes", str(blocks)]):
            found = json.loads(run("mrc", "--json", *l4, *sizes, path).stdout)
            check_equal((found["device_blocks"], found["device_is_shown"]), (blocks, True), sizes)
            check_equal([point["blocks"] for point in found["sizes"]].count(blocks), 1, sizes)
            check(" *\n" in run("mrc", *l4, *sizes, path).stdout.decode(), sizes)
        check_equal(json.loads(run("mrc", "--json", path).stdout)["device_is_shown"], None)
        long = os.path.join(folder, "long.jsonl")
        with open(long, "w", encoding="utf-8") as file:
            file.write(mooncake(0, 60000, 1, list(range(118))))
        done = run("mrc", "--json", *l4, long)
        found = json.loads(done.stdout)
        check_equal((found["device_blocks"], found["device_is_shown"]), (blocks, False))
        check(blocks < found["min_blocks"], blocks, found["min_blocks"])
        text = run("mrc", *l4, long).stdout.decode()
        check(f"--device has {blocks:,} blocks, too few for the largest request: not shown" in text,
              text)


def check_small_sizes(folder):
    """A size that is too small is said, and the others are shown; none: what is shown by default."""
    path = os.path.join(folder, "small")
    with open(path, "w", encoding="utf-8") as file:
        file.write(mooncake(0, 600, 1, [1, 2]))
    for sizes, small, shown in [("37,64", [37], [64]), ("64", [], [64]), ("9,37", [9, 37], [38])]:
        found = json.loads(run("mrc", "--json", "--sizes", sizes, path).stdout)
        check_equal((found["sizes_too_small"], [size["blocks"] for size in found["sizes"]]),
                    (small, shown), sizes)
        text = run("mrc", "--sizes", sizes, path).stdout.decode()
        for blocks in small:
            check(f"--sizes has {blocks} blocks, too few for the largest request: not shown" in text,
                  text)


def check_accelerators(folder):
    """How many they are is kept, and --weights replaces what is counted."""
    path = os.path.join(folder, "long")
    with open(path, "w", encoding="utf-8") as file:
        file.write(mooncake(0, 600, 64, [1, 2]))
    model = ["--model", "llama-3.1-8b", "--device", "h100"]
    found = json.loads(run("mrc", "--json", *model, "--tp", 2, path).stdout)
    check_equal((found["tensor_parallel"], found["token_bytes"]), (2, 65536))
    check_equal(json.loads(run("mrc", "--json", path).stdout)["tensor_parallel"], None)
    text = run("mrc", *model, "--tp", 2, path).stdout.decode()
    check("llama-3.1-8b; of one of 2 accelerators" in text, text)
    page = os.path.join(folder, "page.html")
    check_equal(run("mrc", *model, "--tp", 2, "--report", page, path).returncode, 0)
    with open(page, encoding="utf-8") as file:
        check('"tensor_parallel"' in file.read(), "the page")
    for command in (["mrc"], ["replay", "--sequential"], ["replay", "--no-measure"]):
        found = [json.loads(run(*command, "--json", *model, *weights, path).stdout)
                 for weights in ([], ["--weights", "16060522496B"], ["--weights", "40GiB"])]
        blocks = [figures["device_blocks" if command == ["mrc"] else "blocks"]
                  for figures in found]
        check_equal(blocks[1], blocks[0], command)
        check_equal((blocks[0] - blocks[2]) // 1024, ((40 << 30) - 16060522496) // (2 << 30))
    # reading more weights takes longer
    check(found[2]["simulated_seconds"] > 1.5 * found[0]["simulated_seconds"],
          found[2]["simulated_seconds"], found[0]["simulated_seconds"])
    check_equal(found[1]["simulated_seconds"], found[0]["simulated_seconds"])


def main():
    check_device()
    check_policies()
    with directory() as folder:
        check_small_sizes(folder)
        check_accelerators(folder)
        check_verdicts(folder)
        check_adaptive(folder)
        check_retention(folder)
        check_sample(folder)
        check_price(folder)
    # Of a prompt that is hit as a whole the last token is computed: one of its two is a hit.
    expect("A B C A B", {1: (0, 0, 0), 2: (0, 0, 1), 3: (2, 2, 2)})
    # C takes the block of B, which was used longest ago, or, first in, first out, that of A.
    expect("A B A C A", {1: (0, 0, 0), 2: (2, 1, 2), 3: (2, 2, 2)})
    # What stands behind others is given up before them.
    expect("AB C AB", {2: (2, 2, 2), 3: (3, 3, 3)})
    expect("AB AC AB", {2: (4, 4, 4), 3: (5, 5, 5)})
    # A block that is partly filled is free when its request has left.
    expect("A+ B+ A+", {2: (0, 0, 0), 3: (2, 2, 2)})
    finish()


if __name__ == "__main__":
    main()
