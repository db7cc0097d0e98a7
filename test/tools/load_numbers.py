"""Replays tiny traces under load; every time and count was worked out by hand.

Times are in microseconds here. Plain rates, so that a step is a sum: 1,000 for the step, 10 for
each prompt token, 100 for each sequence that decodes, unless a case says otherwise.
"""

import json
import os

from lib_kvpager import check, check_equal, directory, finish, mooncake, replay_load, run
from lib_load import check_sums

RATES = ["--step-ns", 1000000, "--prompt-token-ns", 10000, "--decode-token-ns", 100000]
ONE_MS = ["--step-ns", 1000000, "--prompt-token-ns", 0]  # every step
TINY = ["--trace-block", 8, "--block-tokens", 4, "--watermark", 0]
DURATIONS = {"queue": "queue_ns", "ttft": "time_to_first_token_ns",
             "tpot": "time_per_output_token_ns", "gap": "between_tokens_ns",
             "e2e": "end_to_end_ns", "step": "step_ns"}

# Step 1, 0..2,000: the first's 100 tokens. The second comes at 1,000 and waits.
# Step 2, 2,000..3,600: the first decodes, the second's 50 tokens.
# Step 3, 3,600..4,800: both decode, and end. Then nothing until 20,000.
# Step 4, 20,000..21,100: the third's 10 tokens; one token of output, so it ends.
THREE = (mooncake(0, 100, 3, [*range(13)]) + mooncake(1, 50, 2, [*range(20, 27)])
         + mooncake(20, 10, 1, [30, 31]))

# Six blocks. Both need two for their prompts, three from their 9th token on, four from their 13th.
# Steps 1 to 5 give each 5 tokens. In step 6 the first takes its fourth block from the second, which
# has 12 tokens computed and all its 3 blocks full: the last of them is evicted. In steps 7 and 8
# two blocks are left, and the second needs four, two of them hits. Step 8 is the first's last.
# Step 9 admits the second again: 13 tokens, 8 of them cached; it ends with step 11.
SCARCE = mooncake(0, 8, 8, [1]) + mooncake(0, 8, 8, [2])

# The same with a host tier: in step 6 the second's three blocks go there, 12 tokens. Of the device's
# copies two are still there when it comes back in step 9: one block is copied, and one more is taken
# for its 13th token, that of the first's third block, which the host keeps unless told not to.
SWAP = [*TINY, *ONE_MS, "--copy-token-ns", 1000, "--blocks", 6, "--host-blocks", 10]

# The second evicts three of the first's four blocks; the third finds one block on the device and
# three on the host, and evicts three of the second's for them.
EVICTED = (mooncake(0, 16, 1, [1, 2]) + mooncake(10, 20, 1, [3, 4, 5])
           + mooncake(20, 16, 1, [1, 2]))

# Six blocks. The first takes four for its prompt, and one more later. The second needs four: it waits
# for the first's four steps. The third needs one.
OVERTAKEN = mooncake(0, 16, 4, [1, 2]) + mooncake(0, 16, 1, [3, 4]) + mooncake(0, 4, 1, [5])

# name, trace, options, figures of the object, durations in microseconds
CASES = [
    ("three", THREE, TINY + RATES + ["--blocks", 100],
     {"requests": 3, "finished": 3, "unfinished": 0, "rejected": 0, "steps": 4,
      "input_tokens": 160, "output_tokens": 6, "hit_tokens": 0, "simulated_seconds": 0.0211,
      "busy_seconds": 0.0059, "evictions": 0, "admissions": 3, "preemptions_recompute": 0,
      "preemptions_swap": 0, "admitted_tokens": 160, "device_tokens": 0, "host_tokens": 0,
      "computed_tokens": 160, "computed_share": 1.0, "prompt_tokens_scheduled": 160,
      "peak_held_blocks": 39},
     {"ttft": {"p50": 2000, "p90": 2600, "p99": 2600, "max": 2600, "mean": 1900, "n": 3},
      "tpot": {"p50": 1200, "p90": 1400, "max": 1400, "mean": 1300, "n": 2},
      "gap": {"n": 3, "max": 1600, "mean": 1400 - 200 / 3},  # 1,600 1,200 1,200
      "e2e": {"p50": 3800, "max": 4800, "mean": 9700 / 3},
      "queue": {"p50": 0, "p90": 1000, "max": 1000, "mean": 1000 / 3},
      "step": {"n": 4, "max": 2000, "mean": 1475}}),
    # Twice as fast: the second comes at 500, the third at 10,000.
    ("speedup", THREE, TINY + RATES + ["--blocks", 100, "--speedup", 2],
     {"speedup": 2.0, "simulated_seconds": 0.0111},
     {"ttft": {"p50": 2000, "max": 3100}, "queue": {"max": 1500}}),
    ("slowed down", THREE, TINY + RATES + ["--blocks", 100, "--speedup", "0.001"],
     {"simulated_seconds": 20.0011},
     {"ttft": {"p50": 1500, "p90": 2000, "max": 2000}, "queue": {"max": 0}}),
    ("limit", THREE, TINY + RATES + ["--blocks", 100, "--limit", 1],
     {"requests": 1, "steps": 3, "simulated_seconds": 0.0042}, {"ttft": {"max": 2000}}),
    # 60 tokens a step: 60; 40 and 20 of the second; decode and 30 of the second; both decode.
    ("step tokens", THREE, TINY + RATES + ["--blocks", 100, "--limit", 2, "--step-tokens", 60,
                                           "--max-running", 10, "--chunk-tokens", 0],
     {"steps": 4, "simulated_seconds": 0.0058},
     {"ttft": {"p50": 3200, "max": 3600},  # the second at 1,600 + 1,600 + 1,400 = 4,600
      "queue": {"max": 600}, "tpot": {"p50": 1200, "max": 1300}}),
    # At most 30 of one prompt in a step by default: 30; 30 and 30; 30 and 20; 10 and a decode; both
    # decode; the first's third token.
    ("half a step", THREE, TINY + RATES + ["--blocks", 100, "--limit", 2, "--step-tokens", 60,
                                           "--max-running", 10],
     {"steps": 6, "simulated_seconds": 0.0078},
     {"ttft": {"p50": 3400, "max": 5600},  # 1,300 + 1,600 + 1,500 - 1,000; and 1,200 more
      "queue": {"max": 300}, "tpot": {"p50": 1100, "max": 1200}}),
    # 50 of each prompt in a step: 50; 50 and 50; both decode; the first's third token.
    ("chunk tokens", THREE, TINY + RATES + ["--blocks", 100, "--limit", 2, "--chunk-tokens", 50],
     {"steps": 4, "simulated_seconds": 0.0058},
     {"ttft": {"p50": 2500, "max": 3500}, "step": {"max": 2000}}),
    # Context: step 1 attends to 100 tokens, step 2 to 101 + 50, step 3 to 102 + 51. Half a nanosecond
    # each, and steps are rounded to whole ones.
    ("context", THREE, TINY + RATES + ["--blocks", 100, "--limit", 2, "--context-token-ns", "0.5"],
     {"simulated_seconds": 0.0048 + (50 + 76 + 77) * 1e-9}, {}),
    # One place: the second waits until the first has ended.
    ("one at a time", THREE, TINY + RATES + ["--blocks", 100, "--limit", 2, "--max-running", 1],
     {"steps": 5, "simulated_seconds": 0.0068,
      "waited": {"places": {"request_steps": 2, "seconds": 0.0022}}},
     {"queue": {"max": 3200}, "ttft": {"max": 4700}}),
    # A step ends when the next request arrives: it is in the next step already.
    ("arrival at the end of a step", mooncake(0, 8, 2, [1]) + mooncake(1, 8, 1, [2]),
     TINY + ONE_MS + ["--blocks", 10], {"steps": 2, "simulated_seconds": 0.002},
     {"queue": {"max": 0}}),
    # 24 tokens: the second finds all of the first's three ids but the last token's.
    ("hits", mooncake(0, 24, 1, [1, 2, 3]) + mooncake(10, 24, 1, [1, 2, 3])
     + mooncake(20, 20, 1, [1, 2, 9]), TINY + RATES + ["--blocks", 10],
     {"hit_tokens": 23 + 16, "hit_ratio": 39 / 68, "admitted_tokens": 68, "device_tokens": 39,
      "computed_tokens": 29, "device_share": 39 / 68, "host_share": 0.0},
     {"ttft": {"p50": 1040, "max": 1240}, "step": {"max": 1240}}),  # 24, 1 and 4 tokens
    # Two at once: the second finds nothing yet, for the first is still being computed.
    ("no hits in the same step", mooncake(0, 8, 1, [1]) + mooncake(0, 8, 1, [1]),
     TINY + RATES + ["--blocks", 10], {"hit_tokens": 0, "steps": 1}, {}),
    ("no prefix cache", mooncake(0, 24, 1, [1, 2, 3]) + mooncake(10, 24, 1, [1, 2, 3]),
     TINY + RATES + ["--blocks", 10, "--no-prefix-cache"],
     {"hit_tokens": 0, "prefix_cache": False}, {}),
    ("preemption", SCARCE, TINY + ONE_MS + ["--blocks", 6],
     {"finished": 2, "steps": 11, "simulated_seconds": 0.011, "preemptions_recompute": 1,
      "preemptions_swap": 0, "lost_tokens": 12, "admissions": 3, "admitted_tokens": 29,
      "device_tokens": 8, "computed_tokens": 21, "prompt_tokens_scheduled": 21, "hit_tokens": 0,
      "peak_held_blocks": 6, "output_tokens": 16,
      "waited": {"preemption": {"request_steps": 1, "seconds": 0.001},
                 "blocks": {"request_steps": 2, "seconds": 0.002}}},
     {"e2e": {"p50": 8000, "max": 11000}, "gap": {"n": 14, "max": 4000},
      "tpot": {"p50": 1000, "max": 10000 // 7 + 10000 % 7 / 7}, "queue": {"max": 0}}),
    ("swap", SCARCE, [*SWAP, "--preempt", "swap", "--keep-evicted", "off"],
     {"finished": 2, "steps": 11, "simulated_seconds": 0.011016, "copy_seconds": 0.000016,
      "preemptions_recompute": 0, "preemptions_swap": 1, "lost_tokens": 0, "admissions": 2,
      "admitted_tokens": 16, "computed_tokens": 16, "prompt_tokens_scheduled": 16,
      "swapped_out_blocks": 3, "swapped_in_blocks": 1, "blocks_to_host": 3, "blocks_from_host": 1,
      "waited": {"preemption": {"request_steps": 1, "seconds": 0.001012},
                 "blocks": {"request_steps": 2, "seconds": 0.002}}},
     {"e2e": {"p50": 8012, "max": 11016}, "gap": {"n": 14, "max": 4016}}),
    ("swap and keep", SCARCE, [*SWAP, "--preempt", "swap"],
     {"simulated_seconds": 0.01102, "preemptions_swap": 1, "blocks_to_host": 4,
      "blocks_from_host": 1}, {}),
    # Out and in, 2 x 3 blocks of 4 tokens, against 12 tokens to compute.
    ("swap is as cheap", SCARCE, [*SWAP, "--preempt", "cheaper", "--prompt-token-ns", 2000],
     {"finished": 2, "preemptions_swap": 1, "preemptions_recompute": 0}, {}),
    ("recompute is cheaper", SCARCE, [*SWAP, "--preempt", "cheaper", "--prompt-token-ns", 1999.999],
     {"finished": 2, "preemptions_swap": 0, "preemptions_recompute": 1}, {}),
    ("host", EVICTED, SWAP,
     {"simulated_seconds": 0.021024, "admitted_tokens": 52, "hit_tokens": 15, "device_tokens": 3,
      "host_tokens": 12, "computed_tokens": 37, "host_share": 12 / 52, "blocks_to_host": 6,
      "blocks_from_host": 3, "swapped_out_blocks": 0, "evictions": 6, "host_evictions": 0},
     {"ttft": {"p50": 1012, "max": 1024}}),
    ("host, nothing kept", EVICTED, [*SWAP, "--keep-evicted", "off"],
     {"simulated_seconds": 0.021, "hit_tokens": 4, "host_tokens": 0, "blocks_to_host": 0}, {}),
    # As step 3 begins, each has three blocks, and fewer than the watermark's two are left. The second
    # has 9 tokens computed. When it comes back, its two full blocks are still there: 1 token is copied.
    ("swap ahead", SCARCE, [*SWAP, "--watermark", "0.34", "--swap-ahead", "--keep-evicted", "off"],
     {"finished": 2, "preemptions_recompute": 0, "preemptions_swap": 1, "steps": 14,
      "simulated_seconds": 0.01401, "swapped_out_blocks": 3, "swapped_in_blocks": 1},
     {"e2e": {"p50": 8009}, "gap": {"max": 7010}}),
    ("overtaken", OVERTAKEN, TINY + ONE_MS + ["--blocks", 6], {"finished": 3},
     {"ttft": {"p50": 1000, "max": 5000}}),
    ("strict order", OVERTAKEN, TINY + ONE_MS + ["--blocks", 6, "--max-passed-over", 0], {},
     {"ttft": {"p50": 5000, "max": 5000}}),
    ("one try", OVERTAKEN, TINY + ONE_MS + ["--blocks", 6, "--max-tries", 1], {},
     {"ttft": {"p50": 5000, "max": 5000}}),
    # Output off: a request is its prompt. Nothing grows, so nothing is preempted.
    ("output off", SCARCE, TINY + ONE_MS + ["--blocks", 6, "--output-tokens", "off"],
     {"finished": 2, "steps": 1, "output_tokens": 0, "output_appended": False,
      "simulated_seconds": 0.001, "preemptions_recompute": 0},
     {"ttft": {"max": 1000, "n": 2}, "tpot": {"n": 0}, "e2e": {"max": 1000}}),
    ("no output in the trace", mooncake(0, 8, 0, [1]), TINY + ONE_MS + ["--blocks", 6],
     {"finished": 1, "output_tokens": 0}, {"ttft": {"n": 1}}),
    # 24 tokens in all, and a prompt needs room for one more.
    ("rejected", mooncake(0, 24, 1, [1, 2, 3]) + mooncake(0, 8, 17, [1]) + mooncake(0, 0, 5, [])
     + mooncake(0, 8, 16, [1]), TINY + ONE_MS + ["--blocks", 6],
     {"requests": 4, "finished": 1, "rejected": 3, "unfinished": 0, "input_tokens": 40,
      "output_tokens": 16,
      "rejected_by_reason": {"empty_prompt": 1, "prompt_too_long": 1, "output_too_long": 1},
      "rejections": [
          {"file": None, "line": 1, "request": None, "input_tokens": 24, "output_tokens": 1, "reason": "prompt_too_long",
           "max_prompt_tokens": 23, "max_tokens": 0},
          {"file": None, "line": 2, "request": None, "input_tokens": 8, "output_tokens": 17, "reason": "output_too_long",
           "max_prompt_tokens": 23, "max_tokens": 24},
          {"file": None, "line": 3, "request": None, "input_tokens": 0, "output_tokens": 5, "reason": "empty_prompt",
           "max_prompt_tokens": 0, "max_tokens": 0}]}, {}),
    # A watermark of 2 blocks leaves 4 for a prompt, 6 for what it grows to.
    ("rejected for the watermark", mooncake(0, 17, 1, [1, 2, 3]) + mooncake(0, 16, 1, [1, 2]),
     TINY + ONE_MS + ["--blocks", 6, "--watermark", "0.34"],
     {"finished": 1, "rejected": 1, "scheduler": {"watermark_blocks": 2},
      "rejections": [{"file": None, "line": 1, "request": None, "input_tokens": 17, "output_tokens": 1,
                      "reason": "prompt_too_long", "max_prompt_tokens": 16, "max_tokens": 24}]},
     {}),
    ("nothing could be served", mooncake(0, 0, 5, []), TINY + ONE_MS,
     {"finished": 0, "rejected": 1, "simulated_seconds": 0.0, "steps": 0, "occupancy": 0.0,
      "timeline": [], "input_tokens_per_second": 0.0}, {"ttft": {"n": 0, "p99": 0}}),
    ("no time at all", SCARCE, TINY + ["--prompt-token-ns", 0, "--blocks", 6],
     {"finished": 2, "simulated_seconds": 0.0, "steps": 11, "output_tokens_per_second": 0.0},
     {"e2e": {"max": 0}}),
    # Held for 11 ms: 4 blocks in step 1, 6 in 2 to 5, 4 in 6 to 8, 4 in 9 to 11.
    ("occupancy", SCARCE, TINY + ONE_MS + ["--blocks", 6],
     {"occupancy": (4 + 4 * 6 + 3 * 4 + 3 * 4) / 66}, {}),
]


def expect(found, expected, *what):
    """Looks at what is expected only; numbers that are no integers are compared roughly."""
    if isinstance(expected, dict):
        for key, value in expected.items():
            if check(isinstance(found, dict) and key in found, *what, key, "is missing"):
                expect(found[key], value, *what, key)
    elif isinstance(expected, float):
        check(abs(found - expected) < 1e-9 * max(1, abs(expected)), *what,
              f"got {found!r}, expected {expected!r}")
    else:
        check_equal(found, expected, *what)


def expect_durations(found, durations, *what):
    for name, figures in durations.items():
        for key, value in figures.items():
            ns = found[DURATIONS[name]][key]
            if key != "n":
                value *= 1000
            rough = key == "mean" or (name in ("gap", "step") and key != "max")
            check(abs(ns - value) <= (value / 128 if rough and key != "mean" else 1), *what, name,
                  key, f"got {ns!r}, expected {value!r}")


def check_case(path, name, trace, options, figures, durations):
    with open(path, "w", encoding="utf-8") as file:
        file.write(trace)
    found = replay_load(path, *options)
    expect(found, figures, name)
    expect_durations(found, durations, name)
    check_sums(found, name)
    check("measured" not in found, name, "--no-measure")


def check_measured(path):
    """The only figures that the machine has a part in stand apart."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(SCARCE)
    options = [*TINY, *ONE_MS, "--blocks", 6, path]
    done = run("replay", "--json", *options)
    found = json.loads(done.stdout)
    check(found["measured"]["scheduler_ns_per_step"] > 0, "measured")
    del found["measured"]
    again = [run("replay", "--json", "--no-measure", *options).stdout for _ in range(2)]
    check_equal(again[0], again[1], "the same bytes twice")
    check_equal(found, json.loads(again[0]), "the rest is the same")
    texts = [run("replay", "--no-measure", *options).stdout for _ in range(2)]
    check_equal(texts[0], texts[1], "the same text twice")
    check(b"scheduler" not in texts[0], "measured in the text")
    check(b"scheduler" in run("replay", *options).stdout, "not measured in the text")


def main():
    with directory() as folder:
        path = os.path.join(folder, "trace")
        for case in CASES:
            check_case(path, *case)
        check_measured(path)
    finish()


main()
