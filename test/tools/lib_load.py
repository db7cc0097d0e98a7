"""What is true of every replay under load."""

from lib_kvpager import check, check_equal


def present_seconds(found):
    """Requests that were there, times how long, from the intervals' means."""
    parts, end = found["timeline"], found["simulated_seconds"]
    starts = [part["start_seconds"] for part in parts] + [end]
    return sum((part["running"] + part["waiting"] + part["swapped"])
               * (min(starts[i + 1], end) - starts[i]) for i, part in enumerate(parts))


def check_sums(found, *what):
    """Everybody finished, the intervals add up, and Little's law holds: requests that are there
    times how long is the sum of the times from arrival to end."""
    parts = found["timeline"]
    served = found["requests"] - found["rejected"]
    check_equal(found["unfinished"], 0, *what, "unfinished")
    check_equal(found["finished"], served, *what, "finished")
    for key, whole in [("steps", "steps"), ("output_tokens", "output_tokens"),
                       ("hit_tokens", "hit_tokens"), ("finished", "finished"),
                       ("prompt_tokens", "prompt_tokens_scheduled")]:
        check_equal(sum(part[key] for part in parts), found[whole], *what, "timeline", key)
    check_equal(sum(part["arrived"] for part in parts), served, *what, "timeline", "arrived")
    check_equal(sum(part["preemptions"] for part in parts),
                found["preemptions_recompute"] + found["preemptions_swap"], *what, "preemptions")
    check_equal(found["admitted_tokens"],
                found["device_tokens"] + found["host_tokens"] + found["computed_tokens"], *what)
    check_equal(found["end_to_end_ns"]["n"], served, *what, "n")
    present = present_seconds(found)
    times = found["end_to_end_ns"]["mean"] * served / 1e9
    check(abs(present - times) <= 1e-6 * max(1, times), *what, "Little's law", present, times)
