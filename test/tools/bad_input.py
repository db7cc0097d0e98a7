"""What wrong traces and wrong options get: the message, the status, and nothing on stdout."""

import os

from lib_kvpager import check, check_equal, directory, finish, mooncake, run

GOOD = mooncake(0, 600, 1, [1, 2])

# name, bytes of the file, what the message must contain after the file's name
FILES = [
    ("empty", b"", ":1: the file is empty"),
    ("no_format", b"what is this\n", ":1: 'what is this' begins no known format"),
    ("binary", bytes(range(256)), ":1: a NUL byte in column 1"),
    ("malformed", GOOD.encode() + b'{"timestamp": 1, "input_le\n', ":2: not valid JSON"),
    ("negative", GOOD.encode() + mooncake(1, -5, 1, []).encode(), ":2: input_length is -5"),
    ("too_few", mooncake(0, 600, 1, [1]).encode(), ":1: hash_ids has 1 ids, expected exactly 2"),
    ("too_many", mooncake(0, 600, 1, [1, 2, 3]).encode(), ":1: hash_ids has 3 ids"),
    ("text_length", GOOD.replace("600", '"600"').encode(), ':1: input_length is "600", expected'),
    ("missing", GOOD.replace("input_length", "length").encode(), ":1: no request in this object"),
    ("range", GOOD.replace("600", "1e9").encode(), ":1: input_length is 1e9, expected a whole number"),
    ("csv_fields", b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.68,1\r\n",
     ":2: 2 fields, expected 3"),
]

# options (FILE stands for a good trace), what the message must contain; under load and without
BOTH = [
    ([], "no trace file is named"),
    (["FILE", "--bloks", "4"], "unknown option '--bloks'"),
    (["FILE", "-x"], "unknown option '-x'"),
    (["FILE", "--blocks"], "--blocks needs a value"),
    (["FILE", "--json=yes"], "--json takes no value"),
    (["FILE", "--blocks", "0"], "--blocks is '0', expected a whole number from 1 to 2147483646"),
    (["FILE", "--blocks", "-4"], "--blocks is '-4', expected"),
    (["FILE", "--blocks", "12x"], "--blocks is '12x', expected"),
    (["FILE", "--blocks", ""], "--blocks is '', expected"),
    (["FILE", "--blocks", "2147483647"], "--blocks is '2147483647', expected"),
    (["FILE", "--blocks", "99999999999999999999999"], "--blocks is '9999"),
    (["FILE", "--block-tokens", "65537"], "--block-tokens is '65537', expected"),
    (["FILE", "--block-tokens=0"], "--block-tokens is '0', expected"),
    (["FILE", "--block-tokens", "24"], "--block-tokens 24 neither divides the 512 tokens"),
    (["FILE", "--block-tokens", "768"], "--block-tokens 768 neither divides the 512 tokens"),
    (["FILE", "--unit-tokens", "0"], "--unit-tokens is '0', expected a whole number from 1 to 65536"),
    (["FILE", "--unit-tokens", "3"], "--unit-tokens 3 does not divide the block of 16 tokens"),
    (["FILE", "--limit", "0"], "--limit is '0', expected"),
    (["FILE", "--seed", "-1"], "--seed is '-1', expected"),
    (["FILE", "--trace-block", "x"], "--trace-block is 'x', expected"),
    (["FILE", "--output-tokens", "maybe"], "--output-tokens is 'maybe', expected one of: on, off"),
    (["FILE", "--memory", "40QiB"], "--memory is '40QiB', expected a size"),
    (["FILE", "--memory", "1.5"], "--memory is '1.5', expected a size"),
    (["FILE", "--memory", "0"], "--memory is '0', expected a size"),
    (["FILE", "--memory", "99999999999T"], "--memory is '99999999999T', expected a size"),
    (["FILE", "--memory", "1G", "--kv-bytes-per-token", "1", "--blocks", "4"],
     "--blocks and --memory exclude each other"),
]

SEQUENTIAL = [
    (["--memory", "40GiB"], "--memory needs --kv-bytes-per-token"),
    (["--memory", "1K", "--kv-bytes-per-token", "1K"],
     "--memory makes 0 blocks of 16 tokens with 1024 bytes each, expected 1 to 2147483646"),
    (["--memory", "16000T", "--kv-bytes-per-token", "1"], "--memory makes"),
    (["--kv-bytes-per-token", "16000T"], "--kv-bytes-per-token makes more than 2^63 bytes"),
    *[([*option.split()], f"{option.split()[0]} and --sequential exclude each other")
      for option in ["--speedup 2", "--max-running 4", "--step-tokens 512", "--chunk-tokens 16", "--watermark 0",
                     "--preempt recompute", "--swap-ahead", "--max-passed-over 1", "--max-tries 1",
                     "--wait-for-prefix",
                     "--compute-share 1", "--bandwidth-share 1", "--host-bandwidth 1G",
                     "--step-ns 1", "--prompt-token-ns 1", "--decode-token-ns 1",
                     "--context-token-ns 1", "--copy-token-ns 1", "--no-measure"]],
    *[([*option.split()], f"{option.split()[0]} needs --model or --model-config")
      for option in ["--device a100", "--tp 2", "--dtype fp8", "--index-dtype fp8",
                     "--weights-dtype fp8", "--utilization 0.5", "--overhead 0"]],
    *[(["--model", "qwen3-8b", *option.split(), "--blocks", "9"],
       f"{option.split()[0]} and --blocks exclude each other")
      for option in ["--device a100", "--weights-dtype fp8", "--utilization 0.5", "--overhead 0"]],
    (["--model", "qwen3-8b", "--device", "a100", "--memory", "1G"],
     "--device and --memory exclude each other"),
    (["--model", "qwen3-8b", "--model-config", "x"],
     "--model and --model-config exclude each other"),
    (["--model", "qwen3-8b", "--kv-bytes-per-token", "1K"], "--kv-bytes-per-token is for"),
    (["--model", "gpt-17"], "--model is 'gpt-17', which is not in 'kvpager size --list'"),
    (["--host-blocks", "5", "--host-memory", "1G"], "--host-blocks and --host-memory exclude"),
    (["--host-memory", "1G"], "--host-memory needs --kv-bytes-per-token"),
    (["--keep-evicted", "off"], "--keep-evicted needs --host-blocks or --host-memory"),
]

RATES = ["--prompt-token-ns", "1"]
LOAD = [
    (["--speedup", "0"], "--speedup is '0', expected a number from 0.001 to 1000000 with at most"),
    (["--speedup", "1.2345"], "--speedup is '1.2345', expected"),
    (["--speedup", "1000001"], "--speedup is '1000001', expected"),
    (["--speedup", "fast"], "--speedup is 'fast', expected"),
    (["--host-blocks", "0"], "--host-blocks is '0', expected a whole number from 1 to 2147483646"),
    (["--host-memory", "much"], "--host-memory is 'much', expected a size"),
    (["--host-memory", "1M"], "--host-memory makes 0 blocks of 16 tokens with 131072 bytes each"),
    (["--host-blocks", "5", "--host-memory", "1G"],
     "--host-blocks and --host-memory exclude each other"),
    ([*RATES, "--host-memory", "1G"], "--host-memory needs --kv-bytes-per-token"),
    ([*RATES, "--memory", "1G"], "--memory needs --kv-bytes-per-token"),
    ([*RATES, "--kv-bytes-per-token", "16000T"], "--kv-bytes-per-token makes more than 2^63"),
    (["--host-blocks", "2147483646", "--block-tokens", "65536"],
     "--blocks and --host-blocks make more than 2^63 bytes"),
    (["--keep-evicted", "perhaps"], "--keep-evicted is 'perhaps', expected one of: off, on, once"),
    (["--keep-evicted", "off"], "--keep-evicted needs --host-blocks or --host-memory"),
    (["--max-running", "0"], "--max-running is '0', expected a whole number from 1 to 65536"),
    (["--max-running", "65537"], "--max-running is '65537', expected"),
    (["--step-tokens", "0"], "--step-tokens is '0', expected a whole number from 1 to 16777216"),
    (["--step-tokens", "255"], "--step-tokens 255 is less than --max-running 256"),
    (["--max-running", "8193"], "--step-tokens 8192 is less than --max-running 8193"),
    (["--chunk-tokens", "16777217"], "--chunk-tokens is '16777217', expected a whole number from 0"),
    (["--watermark", "0.901"], "--watermark is '0.901', expected a number from 0.000 to 0.900"),
    (["--watermark", "1%"], "--watermark is '1%', expected"),
    (["--preempt", "never"], "--preempt is 'never', expected one of: recompute, swap, cheaper"),
    (["--preempt", "swap"], "--preempt swap or cheaper needs --host-blocks or --host-memory"),
    (["--preempt", "cheaper"], "--preempt swap or cheaper needs --host-blocks or --host-memory"),
    (["--swap-ahead"], "--swap-ahead needs --host-blocks or --host-memory"),
    (["--max-passed-over", "-1"], "--max-passed-over is '-1', expected a whole number from 0"),
    (["--max-tries", "0"], "--max-tries is '0', expected a whole number from 1 to 65536"),
    (["--model", "gpt-17"], "--model is 'gpt-17', which is not in 'kvpager size --list'"),
    (["--model", "qwen3-8b", "--model-config", "x"],
     "--model and --model-config exclude each other"),
    (["--device", "abacus"], "--device is 'abacus', which is not in 'kvpager size --list'"),
    (["--tp", "0"], "--tp is '0', expected"),
    (["--tp", "3"], "--tp is 3, which does not divide 32 query heads with 8 KV heads"),
    (["--dtype", "int4"], "--dtype is 'int4', expected one of: bf16, f16, f32, fp8, int8"),
    (["--weights-dtype", "q4"], "--weights-dtype is 'q4', expected one of"),
    (["--utilization", "1.1"], "--utilization is '1.1', expected"),
    (["--overhead", "-1"], "--overhead is '-1', expected a size"),
    (["--compute-share", "0"], "--compute-share is '0', expected a number from 0.001 to 1 with"),
    (["--compute-share", "1.001"], "--compute-share is '1.001', expected"),
    (["--bandwidth-share", "0"], "--bandwidth-share is '0', expected"),
    (["--host-bandwidth", "0"], "--host-bandwidth is '0', expected a size"),
    (["--step-ns", "1.5"], "--step-ns is '1.5', expected a whole number from 0 to 1000000000000"),
    (["--kv-bytes-per-token", "1K"], "--kv-bytes-per-token is for --sequential and plain rates"),
    *[([f"--{rate}-token-ns", "1000001"], f"--{rate}-token-ns is '1000001', expected a number from")
      for rate in ["prompt", "decode", "context", "copy"]],
    *[([*option.split(), *RATES], f"{option.split()[0]} and --prompt-token-ns exclude each other")
      for option in ["--device a100", "--tp 2",
                     "--dtype fp8", "--weights-dtype fp8", "--utilization 0.5", "--overhead 0",
                     "--compute-share 1", "--bandwidth-share 1", "--host-bandwidth 1G",
                     "--compute-share 1 --model qwen3-8b"]],
    ([*RATES, "--model", "qwen3-8b", "--blocks", "9", "--device", "a100"],
     "--device and --blocks exclude each other"),
]

# options, what the message must contain: right by themselves, but not with what they name
FAILED = [
    (["--model", "llama-3.1-70b"], "llama-3.1-70b: no room for KV: of 71.68 GiB usable, weights "
                                   "take 131.42 GiB and overhead 2.00 GiB; --tp 2 would fit"),
    (["--model-config", "/no/such/file"], "/no/such/file: "),
    (["--blocks", "2147483646", "--block-tokens", "512"],
     "MiB of bookkeeping, more than the machine has"),
]


def check_refused(done, status, message, *what):
    error = done.stderr.decode(errors="replace")
    check_equal(done.returncode, status, *what, error)
    check(message in error, *what, f"{message!r} is not in {error!r}")
    check_equal(done.stdout, b"", *what, "stdout")
    if status == 2:
        check(error.endswith("--help'.\n"), *what, "no way to the help in", repr(error))


def check_unreadable(folder):
    for path, message in [(folder, "no traces in this folder"),
                          (folder + "/none", "cannot open: No such file")]:
        check_refused(run("replay", path), 1, f"{path}: {message}", path)
    path = os.path.join(folder, "locked")
    with open(path, "w", encoding="utf-8") as file:
        file.write(GOOD)
    os.chmod(path, 0)
    if not os.access(path, os.R_OK):
        check_refused(run("replay", path), 1, "Permission denied", "locked")
    check_refused(run("replay", "-", stdin=b"x"), 1, "standard input:1: 'x'", "standard input")


def main():
    with directory() as folder:
        for name, content, message in FILES:
            path = os.path.join(folder, name)
            with open(path, "wb") as file:
                file.write(content)
            check_refused(run("replay", path), 1, path + message, name)
            check_refused(run("replay", "--json", path), 1, path + message, name, "--json")
        good = os.path.join(folder, "good")
        with open(good, "w", encoding="utf-8") as file:
            file.write(GOOD)
        for options, message in BOTH:
            words = [good if word == "FILE" else word for word in options]
            check_refused(run("replay", *words), 2, message, *options)
            check_refused(run("replay", "--sequential", *words), 2, message, *options)
        for options, message in SEQUENTIAL:
            check_refused(run("replay", "--sequential", good, *options), 2, message, *options)
        for options, message in LOAD:
            check_refused(run("replay", good, *options), 2, message, *options)
        for options, message in FAILED:
            check_refused(run("replay", good, *options), 1, message, *options)
        check_unreadable(folder)
        check_refused(run("replay", good, "--sequential", "--blocks", 2147483646,
                          "--block-tokens", 512), 1,
                      "MiB of bookkeeping, more than the machine has", "huge")
        check_equal(run("replay", good).returncode, 0, "the good trace")
        check_equal(run("replay", "--", good).returncode, 0, "the good trace after --")
    finish()


main()
