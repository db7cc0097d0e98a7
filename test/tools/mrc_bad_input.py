"""What wrong traces and wrong options of `kvpager mrc` get: message, status, nothing on stdout."""

import os

from lib_kvpager import check, check_equal, directory, finish, mooncake, run

GOOD = mooncake(0, 600, 1, [1, 2])
ROOFLINE = ["--model", "llama-3.1-8b"]

# options (FILE stands for a good trace), what the message must contain
WRONG = [
    ([], "no trace file is named"),
    (["FILE", "--blocks", "4"], "unknown option '--blocks'"),
    (["FILE", "--sequential"], "unknown option '--sequential'"),
    (["FILE", "--sizes"], "--sizes needs a value"),
    (["FILE", "--sizes", ""], "--sizes is '', expected a whole number from 1 to 2147483646"),
    (["FILE", "--sizes", "64,"], "--sizes is '', expected"),
    (["FILE", "--sizes", "64,x"], "--sizes is 'x', expected a size"),
    (["FILE", "--sizes", "-4"], "--sizes is '-4', expected a size"),
    (["FILE", "--sizes", "2147483646,4194304TiB", "--kv-bytes-per-token", "1"],
     "--sizes is '4194304TiB', expected a size"),
    (["FILE", "--sizes", "1GiB"], "--sizes in bytes need --kv-bytes-per-token or --model"),
    (["FILE", "--sizes", "16000TiB", "--kv-bytes-per-token", "1"], "--sizes has 1099511627776000 "),
    (["FILE", "--sizes", "64," * 64 + "64"], "--sizes has more than 64 sizes"),
    (["FILE", "--sizes", "9" * 40], "--sizes has '9999"),
    (["FILE", "--policy", "lru,belady"],
     "--policy has 'belady', expected lru, fifo, optimum, arc, s3fifo or learned"),
    (["FILE", "--policy", "learned,"], "--policy has '', expected lru, fifo"),
    (["FILE", "--policy", "learned", "--sample", "0.5"],
     "--policy learned and --sample exclude each other"),
    (["FILE", "--price", "2"], "--price needs --device"),
    (["FILE", "--price", "0", *ROOFLINE], "--price is '0', expected a number from 0.001 to 1000000"),
    (["FILE", "--price", "2", "--sample", "0.5", *ROOFLINE, "--device", "h100"],
     "--price and --sample exclude each other"),
    (["FILE", "--compute-share", "0.4", *ROOFLINE, "--device", "h100"],
     "--compute-share needs --price"),
    (["FILE", "--host-sizes", "1GiB"],
     "--host-sizes in bytes need --kv-bytes-per-token or --model"),
    (["FILE", "--host-sizes", "0"], "--host-sizes is '0', expected a whole number from 1 to"),
    (["FILE", "--host-sizes", "64", "--sample", "0.5"],
     "--host-sizes and --sample exclude each other"),
    (["FILE", "--host-sizes", "2147483646", "--kv-bytes-per-token", "1G"],
     "--host-sizes has 2147483646 blocks, expected 1 to 536870911"),
    (["FILE", "--store-sizes", "64"], "--store-sizes needs --host-sizes: loads come to the host"),
    (["FILE", "--record-blocks", "4"], "--record-blocks needs --store-sizes"),
    (["FILE", "--store-writes", "second"], "--store-writes needs --store-sizes"),
    (["FILE", "--host-sizes", "4", "--store-sizes", "4", "--record-blocks", "3"],
     "--record-blocks is '3', expected a power of two"),
    (["FILE", "--host-sizes", "4", "--store-sizes", "4", "--record-blocks", "128"],
     "--record-blocks is '128', expected a whole number from 1 to 64"),
    (["FILE", "--host-sizes", "4", "--store-sizes", "4", "--store-writes", "all"],
     "--store-writes is 'all', expected one of: through, second"),
    (["FILE", "--sizes", "38", "--host-sizes", ",".join(["4"] * 64), "--store-sizes",
      ",".join(["4"] * 16)], "these are 1088 combinations of sizes, expected at most 1024"),
    (["FILE", "--sample", "0"], "--sample is '0', expected a number from 0.000001 to 1"),
    (["FILE", "--sample", "1.000001"], "--sample is '1.000001', expected"),
    (["FILE", "--sample", "0.1234567"], "--sample is '0.1234567', expected"),
    (["FILE", "--sample", ".5"], "--sample is '.5', expected"),
    (["FILE", "--sample", "10"], "--sample is '10', expected"),
    (["FILE", "--sample", "half"], "--sample is 'half', expected"),
    (["FILE", "--block-tokens", "24"], "--block-tokens 24 neither divides the 512 tokens"),
    (["FILE", "--block-tokens", "0"], "--block-tokens is '0', expected"),
    (["FILE", "--limit", "0"], "--limit is '0', expected"),
    (["FILE", "--trace-block", "x"], "--trace-block is 'x', expected"),
    (["FILE", "--output-tokens", "some"], "--output-tokens is 'some', expected one of: on, off"),
    (["FILE", "--model", "gpt-17"], "--model is 'gpt-17', which is not in 'kvpager size --list'"),
    (["FILE", *ROOFLINE, "--model-config", "x"], "--model and --model-config exclude each other"),
    (["FILE", *ROOFLINE, "--kv-bytes-per-token", "1K"],
     "--kv-bytes-per-token and --model exclude each other"),
    (["FILE", *ROOFLINE, "--device", "abacus"], "--device is 'abacus', which is not in"),
    (["FILE", *ROOFLINE, "--tp", "3"], "--tp is 3, which does not divide"),
    (["FILE", *ROOFLINE, "--utilization", "0.5"], "--utilization needs --device"),
    (["FILE", "--device", "h100"], "--device needs --model or --model-config"),
    (["FILE", "--dtype", "fp8"], "--dtype needs --model or --model-config"),
    (["FILE", "--index-dtype", "fp8"], "--index-dtype needs --model or --model-config"),
    (["FILE", "--model", "qwen3-8b", "--index-dtype", "fp8"],
     "--index-dtype needs a model with an indexer, and 'qwen3-8b' has none"),
    (["FILE", "--kv-bytes-per-token", "16000T"], "--kv-bytes-per-token makes more than 2^63"),
]

FAILED = [
    (["FILE", "--model", "llama-3.1-70b", "--device", "h100"], "llama-3.1-70b: no room for KV"),
    (["FILE", "--model-config", "/no/such/file"], "/no/such/file: "),
    (["FILE", "--model", "gemma-3-27b"],
     "--model is 'gemma-3-27b', which has 52 layers with a window of 1024 tokens"),
    (["FILE", "--model", "gpt-oss-20b", "--device", "h100", "--sizes", "64"],
     "--model is 'gpt-oss-20b', which has 12 layers with a window of 128 tokens"),
    (["FILE", "--model", "phi-3-mini-4k", "--sizes", "1GiB"], "--model is 'phi-3-mini-4k', which"),
    (["FILE", "--model", "inkling"],
     "'inkling', which has 55 layers with a window of 512 tokens and 66 layers with recurrent "
     "state: the curve is of caches that keep all tokens of a layer. For one size: kvpager replay "
     "--sequential --memory SIZE --model inkling"),
    (["FILE", "--model", "kimi-k3"], "'kimi-k3', which has 69 layers with recurrent state: the"),
    (["FILE", "--model", "llama-4-scout"], "which has 36 layers with chunks of 8192 tokens: the"),
    (["FILE", "--curve", "/no/such/folder/x"], "cannot write /no/such/folder/x: No such file"),
    (["FILE", "--report", "/no/such/folder/x"], "cannot write /no/such/folder/x: No such file"),
    (["/no/such/file"], "/no/such/file: cannot open: No such file"),
]


def refused(words, status, message):
    done = run("mrc", *words)
    error = done.stderr.decode(errors="replace")
    check_equal(done.returncode, status, words, error)
    check(message in error, words, f"{message!r} is not in {error!r}")
    check_equal(done.stdout, b"", words, "stdout")
    if status == 2:
        check(error.endswith("--help'.\n"), words, "no way to the help in", repr(error))


def main():
    with directory() as folder:
        good, bad = os.path.join(folder, "good"), os.path.join(folder, "bad")
        with open(good, "w", encoding="utf-8") as file:
            file.write(GOOD)
        with open(bad, "w", encoding="utf-8") as file:
            file.write(GOOD + mooncake(1, 600, 1, [1]))
        for options, message in WRONG:
            refused([good if word == "FILE" else word for word in options], 2, message)
        for options, message in FAILED:
            refused([good if word == "FILE" else word for word in options], 1, message)
        refused([bad], 1, f"{bad}:2: hash_ids has 1 ids, expected exactly 2")
        check_equal(run("mrc", "--lenient", bad).returncode, 0, "--lenient")
        check_equal(run("mrc", "-", stdin=GOOD.encode()).returncode, 0, "standard input")
        if os.path.exists("/dev/full"):
            for option in ["--curve", "--report"]:
                refused([good, option, "/dev/full"], 1, "cannot write /dev/full: No space left")
        empty = mooncake(0, 0, 0, []).encode()
        for policies in ("lru,fifo,optimum", "learned"):
            done = run("mrc", "--policy", policies, "-", stdin=empty)
            check_equal(done.returncode, 0, "a request without tokens", policies, done.stderr)
    finish()


if __name__ == "__main__":
    main()
