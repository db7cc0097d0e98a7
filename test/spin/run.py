#!/usr/bin/env python3
"""Checks the Promela models with spin, or shows that their mutants are caught.

    run.py models              every state of every model, in the sizes of RUNS
    run.py mutants [NAME]      each edit of the file `mutants` must make a check fail

Builds in a directory of its own. Exit status: 0 as it should be; 1 not; 2 usage; 77 no spin here.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
MEMORY_MIB = 1000
DEPTH = 3000000

# model, sizes (spin -D): small enough for a slow machine, all states are visited.
RUNS = {
    "nohost": ("tiers.pml", "-DN_BLOCKS=3 -DN_HOST=0 -DINVALIDATE=1"),
    "host": ("tiers.pml", "-DN_BLOCKS=2 -DN_TOKENS=1 -DINVALIDATE=1"),
    "writers": ("writers.pml", "-DN_BLOCKS=2"),
    "transfer": ("transfer.pml", "-DN_SEQS=2"),
    "sender": ("transfer.pml", "-DN_SENDER_SEQS=2 -DN_TRANSFERS=1"),
}


def read(name):
    with open(os.path.join(HERE, name), encoding="utf-8") as file:
        return file.read()


def check(text, sizes, directory, optimise):
    """Run one model to the end. Gives (failed check or None, states, seconds)."""
    with open(os.path.join(directory, "model.pml"), "w", encoding="utf-8") as file:
        file.write(text)
    compiler = os.environ.get("CC", "cc").split()
    flags = [optimise, "-w", "-DSAFETY", "-DCOLLAPSE", "-DNOREDUCE", f"-DMEMLIM={MEMORY_MIB}"]
    for command in (["spin"] + sizes.split() + ["-a", "model.pml"],
                    compiler + flags + ["-o", "pan", "pan.c"]):
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"run.py: {' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    done = subprocess.run(["./pan", f"-m{DEPTH}", "-n"], cwd=directory, capture_output=True,
                          text=True, check=False)
    out = done.stdout + done.stderr
    failed = re.search(r"pan:1: (.*?) \(at depth", out)
    if failed:
        return failed.group(1), 0, 0.0
    states = re.search(r"(\d+) states, stored", out)
    if not states or "errors: 0" not in out or "max search depth too small" in out \
            or "Search not completed" in out:
        sys.exit(f"run.py: not every state was visited:\n{out[-3000:]}")
    seconds = re.search(r"elapsed time ([\d.]+)", out)
    return None, int(states.group(1)), float(seconds.group(1)) if seconds else 0.0


def read_mutants():
    """Blocks of `== name: run`, the text to be replaced, `--`, and the text instead."""
    for block in re.split(r"^== ", read("mutants"), flags=re.MULTILINE)[1:]:
        head, body = block.split("\n", 1)
        name, run = head.split(": ")
        old, new = body.split("\n--\n", 1)
        yield name, run, old, new.rstrip("\n")


def run_models(directory):
    bad = 0
    for name, (model, sizes) in RUNS.items():
        failed, states, seconds = check(read(model), sizes, directory, "-O2")
        bad |= failed is not None
        print(f"{name}: {failed or f'{states} states, {seconds:.1f} s'}", flush=True)
    return bad


def run_mutants(directory, only):
    bad = 0
    for name, run, old, new in read_mutants():
        if only not in (None, name):
            continue
        model, sizes = RUNS[run]
        text = read(model)
        if text.count(old) != 1:
            print(f"{name}: its text is in {model} {text.count(old)} times, not once")
            bad = 1
            continue
        failed = check(text.replace(old, new), sizes, directory, "-O0")[0]
        bad |= failed is None
        print(f"{name}: {'caught: ' + failed if failed else 'NOT CAUGHT'}", flush=True)
    return bad


def main():
    if len(sys.argv) < 2 or sys.argv[1] not in ("models", "mutants"):
        print(__doc__, file=sys.stderr)
        return 2
    if shutil.which("spin") is None:
        print("skipped: spin is not installed (Debian: apt-get install spin)")
        return 77
    with tempfile.TemporaryDirectory(prefix="kvp_spin.") as directory:
        if sys.argv[1] == "models":
            return run_models(directory)
        return run_mutants(directory, sys.argv[2] if len(sys.argv) > 2 else None)


if __name__ == "__main__":
    sys.exit(main())
