#!/usr/bin/env python3
"""gcc's static analyser over src and examples (make analyze).

    gcc_analyzer.py BUILD [JOBS [PART PARTS]]   BUILD has a compile_commands.json made for gcc

PART: of each PARTS files, in order, that one (from 0). What is listed may then be in another part.
Compiles each file once more as BUILD does, with -fanalyzer, and keeps nothing of it. Fails at any
finding that gcc_analyzer.txt does not list with a reason, and at what is listed and not found. That
a file is not analysed to the end is a finding, too.
"""

import concurrent.futures
import json
import os
import shlex
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIST = os.path.join(ROOT, "scripts", "gcc_analyzer.txt")
TREES = ("src/", "examples/")

# Every version finds something else. With another one, what the list has too much is no failure.
LIST_IS_OF = "12"

# gcc gives a file up when the paths through it are more than this many times its basic blocks. At
# 5, its own choice, it did so in 99 files of 177, functions unseen. Files that it gives up all the
# same are done with its own choice, as the rest of the time would be lost: those listed as
# "too-complex:FILE", or "few-paths:FILE" if gcc does not say so then.
MORE_PATHS = ["--param", "analyzer-bb-explosion-factor=50"]

FLAGS = ["-fanalyzer", "-Wanalyzer-too-complex", "-Wno-error", "-fdiagnostics-format=json"]


def commands(build):
    """{path of a file, from ROOT: (directory, arguments that compile it)}"""
    found, given_up = {}, set(listed())
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        for entry in json.load(file):
            path = os.path.relpath(os.path.join(entry["directory"], entry["file"]), ROOT)
            if path.startswith(TREES) and path.endswith(".c") and path not in found:
                arguments = shlex.split(entry["command"])
                arguments[arguments.index("-o") + 1] = os.devnull
                arguments[arguments.index("-c")] = "-S"
                few = {f"too-complex:{path}", f"few-paths:{path}"} & given_up
                paths = [] if few else MORE_PATHS
                found[path] = (entry["directory"], arguments + FLAGS + paths)
    return found


def findings(path, warnings):
    """[(key, what to print)] of one file's diagnostics."""
    found = []
    for warning in warnings:
        check = warning.get("option", "-Wnone").removeprefix("-W").removeprefix("analyzer-")
        places = [place["caret"] for place in warning["locations"]]
        where, line = (places[0]["file"], places[0]["line"]) if places else (path, 0)
        if check == "too-complex":
            if "bailed out" not in warning["message"]:
                continue  # one of several paths to a place: they are bounded everywhere
            found.append((f"too-complex:{path}", f"{path}: not analysed to the end"))
            continue
        where = os.path.relpath(os.path.join(ROOT, where), ROOT)
        steps = warning.get("path", [])
        key = ":".join([check, where, steps[-1]["function"] if steps else ""]).rstrip(":")
        told = [f"{where}:{line}: {warning['message']}  [{key}]"]
        for step in steps:
            if not step["description"].startswith("...to here"):
                at = f"{step['location']['line']:5}" if "location" in step else "     "
                told.append(f"    {at}  {step.get('function', '')}: {step['description']}")
        found.append((key, "\n".join(told)))
    return found


def analyse(path, directory, arguments):
    done = subprocess.run(arguments, cwd=directory, stderr=subprocess.PIPE, text=True, check=False)
    try:
        warnings = [warning for line in done.stderr.splitlines() for warning in json.loads(line)]
    except ValueError:
        warnings = None
    if done.returncode != 0 or warnings is None:
        return [("failed", f"{path}: {shlex.join(arguments)}\n{done.stderr}")]
    return findings(path, [w for w in warnings if w["kind"] != "note"])


def listed():
    """The keys of gcc_analyzer.txt; each paragraph begins with its reason."""
    keys, reason = [], False
    with open(LIST, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.startswith("#"):
                reason = True
            elif not line.strip():
                reason = False
            elif not reason:
                sys.exit(f"{LIST}:{number}: no reason")
            else:
                keys.append(line.strip())
    return keys


def main():
    build, jobs, part, parts = sys.argv[1], *map(int, sys.argv[2:] + ["2", "0", "1"][len(sys.argv) - 2:])
    todo = commands(build)
    todo = {path: todo[path] for path in sorted(todo)[part::parts]}
    if not todo:
        sys.exit(f"{build}: nothing to compile")
    compiler = next(iter(todo.values()))[1][0]
    version = subprocess.run([compiler, "-dumpversion"], check=True, stdout=subprocess.PIPE,
                             text=True).stdout.strip().split(".")[0]
    keys = [key for key in listed() if not key.startswith("few-paths:")]
    seen, n_bad = set(), 0
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        jobs_of = [pool.submit(analyse, path, *todo[path]) for path in sorted(todo)]
        for job in jobs_of:
            for key, told in dict(job.result()).items():
                if key in keys:
                    seen.add(key)
                elif key not in seen or key == "failed":  # headers are seen by many
                    print(told, flush=True)
                    seen.add(key)
                    n_bad += 1
    for key in sorted(set(keys) - seen) if parts == 1 else []:
        print(f"{key}: listed in {os.path.relpath(LIST, ROOT)}, and not found")
        n_bad += version == LIST_IS_OF
    print(f"{len(todo)} files, {n_bad} findings, {len(seen & set(keys))} listed with a reason "
          f"(gcc {version})")
    return 1 if n_bad else 0


if __name__ == "__main__":
    sys.exit(main())
