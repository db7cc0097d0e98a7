"""`kvpager replay --store` under load: requests wait for their loads while others run, and every byte
that comes back is checked; also after kill -9.
"""

import itertools
import os

from lib_kvpager import check, check_equal, directory, finish, run, skip
from lib_replay_store import HALF, REQUESTS, TRACE, Piped, place_in, stored

# A prompt token takes long enough that loading is worth it.
RATES = ["--prompt-token-ns", 30000, "--step-ns", 5000000]


def loaded(place, *options, trace=TRACE):
    return stored(place, *options, trace=trace, kind=RATES)


def cut(folder, name, begin, end):
    """A trace of some of the requests."""
    path = os.path.join(folder, name)
    with open(TRACE, encoding="utf-8") as file, open(path, "w", encoding="utf-8") as to:
        to.writelines(itertools.islice(file, begin, end))
    return path


def restart(folder):
    """Everything that was written is hit, and the first token comes sooner."""
    place = place_in(folder, "restart")
    first = loaded(place, "--limit", REQUESTS)
    second = loaded(place, "--limit", REQUESTS)
    check(first["store"]["stored"] > 500, "little was written:", first["store"])
    check(first["store"]["hit_tokens"] > 0, "the first run hits nothing of its own")
    check(first["hit_tokens"] < 0.8 * first["input_tokens"], "the trace repeats too much")
    check(second["hit_tokens"] > 0.98 * second["input_tokens"], "hits:", second["hit_tokens"])
    check_equal(second["store"]["stored"], 0, "it was all there")
    mean = [found["time_to_first_token_ns"]["mean"] for found in (first, second)]
    check(mean[1] < 0.5 * mean[0], "time to first token:", mean)
    answers = second["store"]["answers"]
    check(answers["loaded"] > 10, answers)
    check_equal(second["load_wait_ns"]["n"], answers["waits"], "each that was held was released")
    check_equal(sum(answers.values()) - answers["waits"], second["store"]["asked"], answers)
    return first


def killed(folder, whole):
    """The second half, after the first was killed: 95 % of the hits of a run that was not."""
    log = os.path.join(folder, "half.kvplog")
    half = loaded(place_in(folder, "half"), "--record", log, trace=cut(folder, "a.jsonl", 0, HALF))
    place = place_in(folder, "killed")
    first = Piped(folder, place, "--limit", REQUESTS, kind=RATES)
    first.read(os.path.getsize(log))
    first.kill()
    rest = cut(folder, "b.jsonl", HALF, REQUESTS)
    second = loaded(place, trace=rest)
    expected = whole["hit_tokens"] - half["hit_tokens"]
    check(expected > 10000, "the second half hits little:", expected)
    check(second["hit_tokens"] >= 0.95 * expected, "hits", second["hit_tokens"], "of", expected)
    alone = loaded(place_in(folder, "alone"), trace=rest)
    check(second["hit_tokens"] > alone["hit_tokens"] + 1000, "the store adds nothing:",
          second["hit_tokens"], alone["hit_tokens"])


def not_worth_it(folder):
    """Where computing is free, nothing is loaded."""
    place = place_in(folder, "free")
    loaded(place, "--limit", HALF)
    found = stored(place, "--limit", HALF, kind=["--prompt-token-ns", 0, "--step-ns", 1000])
    check(found["store"]["answers"]["compute"] > 5, found["store"])
    check_equal((found["store"]["gets"], found["store"]["answers"]["loaded"]), (0, 0))


def shown(folder):
    place = place_in(folder, "shown")
    report = os.path.join(folder, "page.html")
    done = run("replay", *RATES, "--limit", 4, "--host-blocks", 900, "--kv-bytes-per-token", 64,
               "--store", f"file:{place}?size=1GiB", "--report", report, TRACE)
    text = done.stdout.decode()
    check_equal(done.returncode, 0, done.stderr)
    check("  wait for the store " in text and "\nStore file:" in text, text)
    with open(report, encoding="utf-8") as file:
        check('"most_queued":' in file.read(), "the page does not have the store")


def main():
    if b"built without stores" in run("store").stderr:
        skip("no stores in this build")
    with directory() as folder:
        killed(folder, restart(folder))
        not_worth_it(folder)
        shown(folder)
    finish()


if __name__ == "__main__":
    main()
