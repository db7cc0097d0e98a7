"""The report for people of a sequential replay: the figures of --json, bars in the terminal's character set, 80 columns."""

import os
import re
import sys

from lib_kvpager import check, check_equal, directory, finish, mooncake, replay, run

BLOCKS = "▏▎▍▌▋▊▉█"


def report(path, *options, locale="C"):
    done = run("replay", "--sequential", *options, path, env={"LC_ALL": locale, "LANG": locale})
    check_equal(done.returncode, 0, options, done.stderr)
    check_equal(done.stderr, b"", "stderr")
    return done.stdout.decode()


def check_figures(text, found):
    labels = {"requests": "requests", "input tokens": "input_tokens",
              "output tokens": "output_tokens", "hit tokens": "hit_tokens",
              "looked up": "blocks_looked_up", "block hits": "block_hits",
              "evictions": "evictions", "peak held": "peak_held_blocks"}
    for label, key in labels.items():
        row = re.search(rf"^  {label} +([0-9,]+)  ", text, re.MULTILINE)
        if check(row, label, "is not in the report"):
            check_equal(int(row[1].replace(",", "")), found[key], label)
    check(f"{100 * found['hit_ratio']:.1f} % of the input" in text, "hit ratio")


def check_layout(text):
    for line in text.splitlines()[1:]:  # the first line names the file
        check(len(line) <= 80, "wider than 80:", line)
        check(line == line.rstrip(), "blanks at the end:", repr(line))
    check("\033" not in text, "an escape sequence outside a terminal")


def utf8_locale():
    for name in ["C.UTF-8", "C.utf8", "en_US.UTF-8"]:
        done = run("--version", env={"LC_ALL": name})
        listed = os.popen("locale -a 2>/dev/null").read().split()
        if done.returncode == 0 and (name in listed or name.replace("UTF-8", "utf8") in listed):
            return name
    return None


def main():
    with directory() as folder:
        path = os.path.join(folder, "trace")
        with open(path, "w", encoding="utf-8") as file:
            for i in range(40):
                file.write(mooncake(i * 90000, 1025 + i, 3, [i // 4 * 2, i // 4 * 2 + 1, 1000 + i]))
        options = ["--block-tokens", 256, "--blocks", 20]
        found = replay(path, *options)
        text = report(path, *options)
        check_figures(text, found)
        check_layout(text)
        check(text.isascii() and "##" in text, "the C locale gets ASCII bars")
        # A request every 90 seconds, cut every five minutes.
        check_equal([part["requests"] for part in found["timeline"]],
                    [4, 3, 3, 4, 3, 3, 4, 3, 3, 4, 3, 3], "timeline")
        check_equal(re.findall(r"^ +([0-9:]+) +([0-9]+) +[0-9.]+ %  #", text, re.MULTILINE)[2:4],
                    [("0:10:00", "3"), ("0:15:00", "4")], "rows")
        check("0:58:30 of traffic" in text, "the span of time", text)
        name = utf8_locale()
        if name is None:
            print("no UTF-8 locale here: block characters not tested")
        else:
            text = report(path, *options, locale=name)
            check(any(block in text for block in BLOCKS) and "##" not in text, "Unicode bars", text)
            check_layout(text)
        text = report(path, "--limit", 1, "--output-tokens", "off", *options)
        check("from request" in text, "a single moment is cut by requests", text)
        check("--output-tokens off" in text, "output off is said", text)
        check("prefix cache off" in report(path, "--no-prefix-cache", *options), "off is said")
        check(" GiB" in report(path, "--kv-bytes-per-token", "1M", *options), "memory is said")
    finish()


sys.stdout.reconfigure(encoding="utf-8", errors="replace")
main()
