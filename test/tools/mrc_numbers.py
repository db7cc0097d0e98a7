"""The curve of `kvpager mrc` on traces small enough to be worked out by hand: LRU, FIFO and the
optimum, in blocks of two tokens. long_mrc.py compares with replays and simulations."""

import json
import os

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
            "learned": "learned_hit_tokens"}
    with directory() as folder:
        path = os.path.join(folder, "trace.jsonl")
        write_trace(path, "A+ B+ C+ A+ B+")
        words = ["--block-tokens", 2, "--output-tokens", "off", path]
        for shown in ("lru", "fifo", "optimum", "learned", "lru,optimum", "optimum,learned,fifo"):
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


def verdict_of(point, most):
    """By the definition in docs/COMMAND.md."""
    lru, learned = point["hit_ratio"], point["learned_hit_ratio"] or 0
    if most < 0.02:
        return "sharing", most
    if most - lru < 0.02:
        return "enough", most - lru
    if learned - lru >= 0.02:
        return "policy", learned - lru
    return "capacity", most - lru


def check_verdicts(folder):
    """Each outcome, as it follows from the other figures."""
    path, seen = os.path.join(folder, "verdict.jsonl"), {}
    for ids, policy in [(lambda i: [3 * i, 3 * i + 1], "lru"), (lambda i: [i % 45], "lru,optimum"),
                        (lambda i: [i % 45, 100 + i % 45], "lru,learned")]:
        with open(path, "w", encoding="utf-8") as file:
            for i in range(1800):
                file.write(mooncake(i, 600 if len(ids(i)) == 2 else 512, 0, ids(i)))
        words = ["--block-tokens", 512, "--sizes", "31,44,91,200", "--policy", policy, path]
        done = json.loads(run("mrc", "--json", *words).stdout)
        text = run("mrc", *words).stdout.decode()
        for point in done["sizes"]:
            word, ratio = verdict_of(point, done["curve"][-1][1])
            check_equal(point["verdict"], word, policy, point)
            check(abs(point["verdict_ratio"] - ratio) < 1e-9, policy, point)
            check(f"{point['blocks']:,}  {word:8}  {100 * ratio:5.2f} %" in text, word, text)
            seen[word] = seen.get(word, 0) + 1
    check_equal(sorted(seen), ["capacity", "enough", "policy", "sharing"])


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
