"""The report for people of a replay under load: the figures of --json, 80 columns, a model that is
called one."""

import os
import re
import sys

from lib_kvpager import check, check_equal, directory, finish, mooncake, replay_load, run


def report(path, *options, locale="C"):
    done = run("replay", "--no-measure", *options, path, env={"LC_ALL": locale, "LANG": locale})
    check_equal(done.returncode, 0, options, done.stderr)
    check_equal(done.stderr, b"", "stderr")
    return done.stdout.decode()


def row(text, label):
    found = re.search(rf"^ +{label} +([0-9,.]+)( %)?  (.*)$", text, re.MULTILINE)
    if not check(found, label, "is not in the report", text):
        return 0, ""
    return float(found[1].replace(",", "")), found[3]


def check_figures(text, found):
    labels = {"requests": found["requests"], "finished": found["finished"],
              "steps": found["steps"], "input tokens": found["input_tokens"],
              "output tokens": found["output_tokens"], "evictions": found["evictions"],
              "preemptions": found["preemptions_recompute"] + found["preemptions_swap"],
              "copied out": found["blocks_to_host"], "copied in": found["blocks_from_host"]}
    for label, expected in labels.items():
        check_equal(row(text, label)[0], expected, label)
    for label, key in [("device", "device_share"), ("host", "host_share"),
                       ("computed", "computed_share"), ("occupancy", "occupancy")]:
        check_equal(f"{row(text, label)[0]:.1f}", f"{100 * found[key]:.1f}", label)
    check(row(text, "requests")[1].startswith(f"{found['rejected']} could never"), "rejected")
    check_equal(row(text, "preemptions")[1], f"{found['preemptions_recompute']} by recompute, "
                                             f"{found['preemptions_swap']} by swap")


def seconds_of(word, unit):
    return float(word) * {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}[unit]


def check_latencies(text, found):
    labels = {"queue": "queue_ns", "time to first token": "time_to_first_token_ns",
              "time per output token": "time_per_output_token_ns",
              "between two tokens": "between_tokens_ns", "end to end": "end_to_end_ns",
              "step": "step_ns"}
    for label, key in labels.items():
        found_row = re.search(rf"^  {label}((?: +[0-9.]+ [nmu]?s){{5}})$", text, re.MULTILINE)
        if not check(found_row, label, "is not in the report", text):
            continue
        figures = re.findall(r"([0-9.]+) ([nmu]?s)", found_row[1])
        for figure, name in zip(figures, ["mean", "p50", "p90", "p99", "max"]):
            exact = found[key][name] / 1e9
            check(abs(seconds_of(*figure) - exact) <= 0.0051 * exact, label, name, figure, exact)


def check_layout(text):
    for line in text.splitlines()[1:]:  # the first line names the file
        check(len(line) <= 80, "wider than 80:", line)
        check(line == line.rstrip(), "blanks at the end:", repr(line))
    check("\033" not in text, "an escape sequence outside a terminal")


def write_trace(path):
    with open(path, "w", encoding="utf-8") as file:
        for i in range(60):
            ids = [i % 5, *range(100 * i, 100 * i + 2 + (16 * i + 1) // 512)]
            file.write(mooncake(i * 40, 1025 + 16 * i, 1 + 2 * i, ids))
        file.write(mooncake(2500, 5000, 1, [*range(1000, 1010)]))
        file.write(mooncake(2500, 0, 1, []))


def main():
    with directory() as folder:
        path = os.path.join(folder, "trace")
        write_trace(path)
        options = ["--block-tokens", 64, "--blocks", 64, "--watermark", 0, "--host-blocks", 70,
                   "--preempt", "cheaper"]
        found = replay_load(path, *options)
        check(found["preemptions_swap"] > 0 and found["host_tokens"] > 0, "nothing to see here")
        text = report(path, *options)
        check_figures(text, found)
        check_latencies(text, found)
        check_layout(text)
        check("Time is a model: llama-3.1-8b on NVIDIA H100" in text, "a model", text)
        check(text.isascii() and "##" in text, "the C locale gets ASCII bars")
        check("line 61: 5000 + 1 tokens: at most 4095 fit in a prompt" in text, "rejection", text)
        check("line 62: 0 + 1 tokens: the prompt is empty" in text, "empty", text)
        check("their blocks are not there" in text, "why they waited", text)
        text = report(path, "--prompt-token-ns", 20000, "--step-ns", 5000000, "--blocks", 100,
                      "--speedup", 2.5, "--no-prefix-cache", "--output-tokens", "off")
        check_layout(text)
        for part in ["Time is a model: 5.00 ms a step, 20.0 us a prompt token", "2.5 times as fast",
                     "Prefix cache off", "not generated: --output-tokens off",
                     "and 24 more that could never be served"]:
            check(part in text, part, "is not in", text)
        text = report(path, "--model", "mixtral-8x7b", "--tp", 2, "--speedup", "0.001",
                      "--block-tokens", 512, "--blocks", 9)
        check_layout(text)
        check("mixtral-8x7b on 2 x NVIDIA H100" in text, "two", text)
        check("0:30:00" in text, "the course in minutes", text)
    finish()


sys.stdout.reconfigure(encoding="utf-8", errors="replace")
main()
