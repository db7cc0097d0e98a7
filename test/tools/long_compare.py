"""Two replays side by side: what is shown, and that nothing else is accepted."""

import json
import os

from lib_kvpager import SOURCE, check, check_equal, directory, finish, run

MIXED = os.path.join(SOURCE, "data", "mixed-small.jsonl")
SHORT = ["--limit", 40, "--block-tokens", 256, "--json", MIXED]


def write(folder, name, *options):
    done = run("replay", *options)
    check_equal(done.returncode, 0, options, done.stderr)
    path = os.path.join(folder, name)
    with open(path, "wb") as file:
        file.write(done.stdout)
    return path


def compare(*arguments, stdin=None):
    done = run("compare", *arguments, stdin=stdin)
    check_equal(done.returncode, 0, arguments, done.stderr)
    return done.stdout.decode()


def row(text, label):
    """The words of the row that begins so."""
    found = [line for line in text.split("\n") if line.startswith("  " + label + "  ")]
    return found[0][2 + len(label):].split() if check(len(found) == 1, label, text) else []


def check_figures(text, a, b):
    """What the table says is what the files say."""
    with open(a, encoding="utf-8") as first, open(b, encoding="utf-8") as second:
        one, two = json.load(first), json.load(second)
    change = 100 * (two["hit_ratio"] - one["hit_ratio"])
    check(change < -1, "the replays hardly differ", change)
    check_equal(row(text, "hit ratio"), [f"{100 * one['hit_ratio']:.2f}", "%",
                f"{100 * two['hit_ratio']:.2f}", "%", f"{change:+.2f}", "pp", "worse"])
    check_equal(row(text, "evictions")[:2], [f"{one['evictions']:,}", f"{two['evictions']:,}"])
    check_equal(row(text, "requests"), ["40", "40", "same"])
    check_equal(row(text, "blocks")[-2:], [str(one["blocks"]), str(two["blocks"])], text)
    check(all(len(line) <= 80 for line in text.split("\n")[2:]), "too wide", text)
    check(all(line == line.rstrip() for line in text.split("\n")), "blanks at the end", text)


def refused(folder, *arguments, status=1, message):
    done = run("compare", *arguments)
    error = done.stderr.decode()
    check_equal(done.returncode, status, arguments, error)
    check(message in error, arguments, f"{message!r} is not in {error!r}")
    check_equal(done.stdout, b"", arguments, folder)


def refusals(folder, load, sequential):
    """Everything that is not a replay's output."""
    with open(load, encoding="utf-8") as file:
        good = json.load(file)
    texts = {"empty": ("", ":1: not valid JSON"), "text": ("hello\n", ":1: not valid JSON"),
             "cut": (json.dumps(good)[:-9], "not valid JSON"),
             "array": ("[1, 2]", "not an output of 'kvpager replay --json': no JSON object"),
             "other": ('{"a": 1}', 'not an output of \'kvpager replay --json\': no number "requests"'),
             "mode": (json.dumps({**good, "mode": "idle"}), 'an unknown "mode"'),
             "figure": (json.dumps({**good, "hit_ratio": "much"}), 'no number "hit_ratio"'),
             "inner": (json.dumps({**good, "queue_ns": 4}), 'no number "queue_ns.mean"'),
             "twice": ('{"mode": 1, "mode": 2}', "not valid JSON")}
    for name, (text, message) in texts.items():
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        refused(folder, path, load, message=path)
        refused(folder, load, path, message=message)
    curve = os.path.join(folder, "curve")
    with open(curve, "wb") as file:
        file.write(run("mrc", "--only-lru", *SHORT).stdout)
    refused(folder, curve, load, message="this is one of 'kvpager mrc'")
    refused(folder, load, sequential, message=f"{load} is a replay under load, {sequential} one with --sequential")
    refused(folder, load, folder, message="cannot open: Is a directory")
    refused(folder, load, folder + "/none", message="cannot open: No such file")
    refused(folder, load, status=2, message="two files are needed")
    refused(folder, status=2, message="two files are needed")
    refused(folder, load, load, load, status=2, message="is one file too many")
    refused(folder, "-", "-", status=2, message="only one of the files can be standard input")
    refused(folder, load, load, "--blocks", status=2, message="unknown option '--blocks'")


def main():
    with directory() as folder:
        a = write(folder, "a.json", "--no-measure", "--speedup", 20, *SHORT)
        b = write(folder, "b.json", "--no-measure", "--speedup", 20, "--blocks", 100,
                  "--preempt", "swap", "--host-blocks", 300, "--keep-evicted", "off", *SHORT)
        text = compare(a, b)
        check_figures(text, a, b)
        check_equal(row(text, "scheduler.preempt"), ["recompute", "swap"])
        check_equal(row(text, "keep_evicted")[-1:], ["false"])
        check("block_tokens" not in text, "a setting that is equal", text)
        check("preempted, recompute" not in text, "a figure that is 0 in both", text)
        with open(b, "rb") as file:
            check_equal(compare(a, "-", stdin=file.read()).split("\n", 2)[2],
                        text.split("\n", 2)[2], "standard input")
        check("no setting differs" in compare(a, a), "the same file")
        check("better" not in compare(a, a) and "worse" not in compare(a, a), "the same file")
        found = json.loads(compare("--json", a, b))
        names = {item["name"]: item for item in found["settings"]}
        check_equal(names["blocks"]["b"], 100, found)
        figures = {item["name"]: item for item in found["figures"]}
        check_equal(figures["hit_ratio"]["change"] < 0, True, figures["hit_ratio"])
        s = write(folder, "s.json", "--sequential", "--blocks", 4000, *SHORT)
        t = write(folder, "t.json", "--sequential", "--blocks", 100, *SHORT)
        check_figures(compare(s, t), s, t)
        other = write(folder, "o.json", "--sequential", "--limit", 20, "--json", MIXED)
        check("not the same requests" in compare(s, other), "other requests")
        refusals(folder, a, s)
    finish()


if __name__ == "__main__":
    main()
