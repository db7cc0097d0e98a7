#!/usr/bin/env python3
"""Runs the fuzz targets of a libFuzzer build.

    fuzz.py run BUILD SECONDS [NAME...]   every target, or those named, until each has used SECONDS
                                          of CPU time
    fuzz.py keep BUILD [NAME...]          of BUILD/corpus, copy what reaches more of the code into
                                          fuzz/corpus

New inputs are kept in BUILD/corpus/NAME, beside the checked-in ones, which are only read by `run`;
an input that fails is BUILD/NAME-crash-*. FUZZ_LOG=FILE in the environment: `run` appends a row for
each target to FILE. FUZZ_TIMEOUT=N (120): seconds that an input may take, by the clock on the wall;
raise it where other programs take the processor away. Status 1 if a target failed.
"""

import datetime
import os
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
KEEP_BYTES = 4096  # larger inputs stay where they are
OPTIONS = ["-timeout=" + os.environ.get("FUZZ_TIMEOUT", "120"), "-report_slow_units=60",
           "-rss_limit_mb=4096", "-print_final_stats=1"]


def targets(build, names):
    """Names and programs of the targets, sorted."""
    folder = os.path.join(build, "fuzz")
    found = {}
    for file in sorted(os.listdir(folder)):
        path = os.path.join(folder, file)
        if file.startswith("fuzz_") and os.path.isfile(path) and os.access(path, os.X_OK):
            found[file[len("fuzz_"):]] = path
    missing = [name for name in names if name not in found]
    if missing or not found:
        sys.exit(f"fuzz.py: not in {folder}: {' '.join(missing) or 'any fuzz target'}")
    return {name: path for name, path in found.items() if not names or name in names}


def inputs(build, name):
    """Where new inputs go, what there is to begin with, and words for them."""
    grown = os.path.join(build, "corpus", name)
    kept = os.path.join(SOURCE, "fuzz", "corpus", name)
    words = os.path.join(SOURCE, "fuzz", name + ".dict")
    os.makedirs(grown, exist_ok=True)
    return ([grown] + ([kept] if os.path.isdir(kept) else [])
            + (["-dict=" + words] if os.path.isfile(words) else []))


def run_once(command, output):
    """Exit status, CPU seconds."""
    process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    _, status, usage = os.wait4(process.pid, 0)
    return os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime


def numbers(text):
    """Executions, edges and features of a run's output."""
    executions = re.findall(r"stat::number_of_executed_units: *(\d+)", text)
    coverage = re.findall(r"cov: (\d+) ft: (\d+)", text)
    edges, features = coverage[-1] if coverage else (0, 0)
    return int(executions[-1]) if executions else 0, int(edges), int(features)


def run_target(build, name, program, seconds):
    """Runs until the seconds are used or an input fails. The row of the log, and if it failed."""
    used, executions, edges, features, status = 0.0, 0, 0, 0, 0
    while used < seconds and status == 0:
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            status, cpu = run_once(
                [program, f"-max_total_time={max(1, round(seconds - used))}",
                 f"-artifact_prefix={build}/{name}-"] + OPTIONS + inputs(build, name), output)
            output.seek(0)
            text = output.read()
        used += cpu
        n, edges, features = numbers(text)
        executions += n
    print(f"{name}: {used:.0f} s of CPU time, {executions} runs, {edges} edges, "
          f"{features} features, {'FAILED' if status else 'nothing found'}", flush=True)
    if status:
        print(text)
    found = re.findall(r"^SUMMARY: (.*)$", text, re.M) or [f"status {status}"]
    return [name, f"{used:.0f}", str(executions), str(edges), str(features),
            found[-1] if status else "nothing"]


def commit():
    described = subprocess.run(["git", "-C", SOURCE, "describe", "--always", "--dirty"],
                               capture_output=True, text=True, check=False)
    return described.stdout.strip() or "?"


def run(build, seconds, names):
    log = os.environ.get("FUZZ_LOG")
    failed = False
    for name, program in targets(build, names).items():
        row = run_target(build, name, program, seconds)
        failed |= row[-1] != "nothing"
        if log:
            with open(log, "a", encoding="utf-8") as file:
                file.write(f"| {datetime.date.today()} | {commit()} | {' | '.join(row)} |\n")
    return 1 if failed else 0


def keep(build, names):
    for name, program in targets(build, names).items():
        grown, kept = os.path.join(build, "corpus", name), os.path.join(SOURCE, "fuzz/corpus", name)
        os.makedirs(kept, exist_ok=True)
        before = len(os.listdir(kept))
        with tempfile.TemporaryDirectory() as small:
            for file in os.scandir(grown):
                if file.stat().st_size <= KEEP_BYTES:
                    shutil.copy(file.path, small)
            subprocess.run([program, "-set_cover_merge=1", "-use_counters=0", kept, small], check=True,
                           stderr=subprocess.DEVNULL)
        print(f"{name}: {before} inputs, now {len(os.listdir(kept))}")
    return 0


def main(arguments):
    if len(arguments) >= 3 and arguments[0] == "run" and arguments[2].isdigit():
        return run(arguments[1], int(arguments[2]), arguments[3:])
    if len(arguments) >= 2 and arguments[0] == "keep":
        return keep(arguments[1], arguments[2:])
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
