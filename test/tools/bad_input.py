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
    ("text_length", GOOD.replace("600", '"600"').encode(), ":1: input_length is a string"),
    ("missing", GOOD.replace("hash_ids", "ids").encode(), ':1: no "hash_ids"'),
    ("range", GOOD.replace("600", "1e9").encode(), ":1: input_length is a number with a fraction"),
    ("csv_fields", b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.68,1\r\n",
     ":2: 2 fields, expected 3"),
]

# options (FILE stands for a good trace), what the message must contain
OPTIONS = [
    ([], "no trace file is named"),
    (["FILE", "FILE"], "is one file too many"),
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
    (["FILE", "--block-tokens", "24"], "--block-tokens 24 does not divide the 512 tokens"),
    (["FILE", "--block-tokens", "1024"], "--block-tokens 1024 does not divide the 512 tokens"),
    (["FILE", "--limit", "0"], "--limit is '0', expected"),
    (["FILE", "--seed", "-1"], "--seed is '-1', expected"),
    (["FILE", "--trace-block", "x"], "--trace-block is 'x', expected"),
    (["FILE", "--output-tokens", "maybe"], "--output-tokens is 'maybe', expected one of: on, off"),
    (["FILE", "--memory", "40GiB"], "--memory needs --kv-bytes-per-token"),
    (["FILE", "--memory", "40QiB"], "--memory is '40QiB', expected a size"),
    (["FILE", "--memory", "1.5"], "--memory is '1.5', expected a size"),
    (["FILE", "--memory", "0"], "--memory is '0', expected a size"),
    (["FILE", "--memory", "99999999999T"], "--memory is '99999999999T', expected a size"),
    (["FILE", "--memory", "1K", "--kv-bytes-per-token", "1K"], "--memory makes 0 blocks"),
    (["FILE", "--memory", "16000T", "--kv-bytes-per-token", "1"], "--memory makes"),
    (["FILE", "--memory", "1G", "--kv-bytes-per-token", "1", "--blocks", "4"], "exclude"),
    (["FILE", "--kv-bytes-per-token", "16000T"], "more than 2^63 bytes"),
]


def check_refused(done, status, message, *what):
    error = done.stderr.decode(errors="replace")
    check_equal(done.returncode, status, *what, error)
    check(message in error, *what, f"{message!r} is not in {error!r}")
    check_equal(done.stdout, b"", *what, "stdout")
    if status == 2:
        check(error.endswith("--help'.\n"), *what, "no way to the help in", repr(error))


def check_unreadable(folder):
    for path, message in [(folder, "Is a directory"), (folder + "/none", "No such file")]:
        check_refused(run("replay", path), 1, f"{path}: cannot open: {message}", path)
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
        for options, message in OPTIONS:
            words = [good if word == "FILE" else word for word in options]
            check_refused(run("replay", *words), 2, message, *options)
        check_unreadable(folder)
        check_refused(run("replay", good, "--blocks", 2147483646, "--block-tokens", 512), 1,
                      "MiB of bookkeeping, more than the machine has", "huge")
        check_equal(run("replay", good).returncode, 0, "the good trace")
        check_equal(run("replay", "--", good).returncode, 0, "the good trace after --")
    finish()


main()
