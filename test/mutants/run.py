#!/usr/bin/env python3
"""Plants defects in the sources, one by one: the tests of `make test` must catch each.

    run.py [NAME...]    these mutants, or all
    run.py --list       names, and what each is
    run.py --texts      only that each mutant's text is found exactly once (ctest: mutants_list)

    --room ROOM         the mutants of ROOM.diff
    --quick             the first mutant of each room
    --parts N           one of N parts of the mutants: the next one with each commit
    --jobs N            (2) with many mutants, as many processes, each with a build of its own and a
                        part of the mutants: planting one uses one core. With few, of the compiler
    --build DIR         where to work (build/mutants)

The lists are the files *.diff here, one for each room; README.md has their form. Works on a copy of
the tracked files, in a build of the check preset. The tests that the mutants name must pass there
first. Then each mutant is applied, what its tests need is built, and the tests are run until one
fails, crashes, or computes ten times as long and more.

Exit status: 0 all caught; 1 one survived, or the list is wrong; 2 usage.
"""

import argparse
import contextlib
import glob
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

# What has to be built for a test.
TARGETS = [(r"unit_(.*)", r"test_\1"),
           (r"((?:store|redis|publish|ggml)_.*|spill.*)", r"test_\1"),
           (r"tools_store", "kvpager_tool test_store_operate"),
           (r"fuzz_corpus_(.*)", r"fuzz_\1"),
           (r"tools_(?:readers|inspect)", "kvpager_tool test_snapshot test_inspect"),
           (r"tools_.*", "kvpager_tool"),
           (r"transfer_over_[a-z]+_(.*)", r"test_\1"),
           (r"transfer_.*", "kvp_two_processes"),
           (r"(model|sched_model|shadow)_.*", r"kvp_\1"),
           (r"sim(_start_.*)?", "kvp_sim"),
           (r"faults_tool.*", "kvpager_faulty test_snapshot"),
           (r"gauntlet(_.*)?", "kvp_gauntlet"),
           (r"llama_random_.*", "kvp_llama_random"),
           (r"serve_.*", "kvp_serve_fake"),
           (r"cpp_owners", "kvp_cpp_owners"),
           (r"python", "kvpager_tool")]  # with libcrypto, kvpager_store_static too

MANY = 50  # mutants: another build pays

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))


class ListError(Exception):
    """A list of mutants is not as it should be."""


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


# --------------------------------------------------------------------------------------- the lists


class Mutant:
    """A block of a list: `== name`, the defect, the file, the tests, and the edit."""

    def __init__(self, room, block):
        lines = block.rstrip("\n").split("\n")
        if len(lines) < 5:
            raise ListError(f"{room}.diff: a mutant of {len(lines)} lines: {lines[0]}")
        self.room = room
        self.name = f"{room}/{lines[0].strip()}"
        self.defect, self.path = lines[1], lines[2]
        self.tests = lines[3].split()
        edit = lines[4:]
        if any(line[:1] not in (" ", "-", "+") for line in edit):
            raise ListError(f"{self.name}: a line of the edit begins with none of ' ', '-', '+'")
        self.before = "".join(f"{line[1:]}\n" for line in edit if line[0] != "+")
        self.after = "".join(f"{line[1:]}\n" for line in edit if line[0] != "-")

    def apply(self, text):
        """The file's text with the defect in it."""
        found = ("\n" + text).count("\n" + self.before)
        if found != 1 or self.before == self.after:
            raise ListError(f"{self.name}: its text is in {self.path} {found} times, not once, "
                            "or is not changed")
        return ("\n" + text).replace("\n" + self.before, "\n" + self.after)[1:]


def read_mutants():
    mutants = []
    for path in sorted(glob.glob(os.path.join(HERE, "*.diff"))):
        room = os.path.splitext(os.path.basename(path))[0]
        for block in re.split(r"^== ", read(path), flags=re.MULTILINE)[1:]:
            mutants.append(Mutant(room, block))
    names = [mutant.name for mutant in mutants]
    for name in set(names):
        if names.count(name) > 1:
            raise ListError(f"{name}: two mutants of this name")
    return mutants


def check_texts(mutants, root):
    for mutant in mutants:
        mutant.apply(read(os.path.join(root, mutant.path)))
        for test in mutant.tests:
            target_of(test)
    return f"{len(mutants)} mutants, each one's text is found once"


def select(mutants, options):
    known = {mutant.name for mutant in mutants}
    for name in options.names:
        if name not in known:
            raise ListError(f"{name}: no such mutant (--list)")
    chosen = [mutant for mutant in mutants
              if (not options.names or mutant.name in options.names)
              and options.room in (None, mutant.room)]
    if options.parts > 1:
        n_commits = int(subprocess.run(["git", "rev-list", "--count", "HEAD"], cwd=ROOT, text=True,
                                       capture_output=True, check=True).stdout)
        chosen = chosen[n_commits % options.parts::options.parts]
    if options.quick:
        chosen = list({mutant.room: mutant for mutant in reversed(chosen)}.values())[::-1]
    if not chosen:
        raise ListError("no mutants chosen")
    return chosen


# ---------------------------------------------------------------------------- the tree, and a build


def copy_tree(target):
    """The tracked files; what did not change keeps its time, so that it is not built again."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True,
                            check=True).stdout.split("\0")
    tracked = {path for path in listed if path and os.path.isfile(os.path.join(ROOT, path))}
    for directory, folders, names in os.walk(target):
        if directory == target and "build" in folders:
            folders.remove("build")
        for name in names:
            path = os.path.relpath(os.path.join(directory, name), target)
            if path not in tracked and "__pycache__" not in path:
                os.remove(os.path.join(target, path))
    for path in tracked:
        source, copy = os.path.join(ROOT, path), os.path.join(target, path)
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        with open(source, "rb") as file:
            data = file.read()
        if os.path.isfile(copy):
            with open(copy, "rb") as file:
                if file.read() == data:
                    continue
        shutil.copy(source, copy)


def target_of(test):
    for pattern, target in TARGETS:
        match = re.fullmatch(pattern, test.partition(":")[0])
        if match:
            return match.expand(target)
    raise ListError(f"{test}: it is not known what has to be built for it")


class Test:
    """A test as ctest knows it, or part of one: `name:arguments`, which its command gets besides."""

    def __init__(self, name, entries):
        name, _, arguments = name.partition(":")
        if "command" not in entries.get(name, {}):
            raise ListError(f"{name}: no such test")
        properties = {item["name"]: item["value"] for item in entries[name]["properties"]}
        self.name = name
        self.command = entries[name]["command"] + [a for a in arguments.split(",") if a]
        self.directory = properties["WORKING_DIRECTORY"]
        self.environment = dict(pair.split("=", 1) for pair in properties.get("ENVIRONMENT", []))
        self.skip_status = properties.get("SKIP_RETURN_CODE")
        self.is_skipped = False
        self.limit = int(properties["TIMEOUT"])
        self.wait_limit = None

    def run(self):
        """None if it passes, else how it fails, in a few words."""
        def limit_time():
            # Of the processor, not of the clock: the machine may have other things to do.
            resource.setrlimit(resource.RLIMIT_CPU, (self.limit, self.limit + 5))

        # Servers that a test leaves behind when it dies go with its group, and hold no pipe open.
        with tempfile.TemporaryFile() as output:
            done = subprocess.Popen(self.command, cwd=self.directory, stdout=output,
                                    stderr=subprocess.STDOUT, preexec_fn=limit_time,
                                    env={**os.environ, **self.environment}, start_new_session=True)
            with contextlib.suppress(subprocess.TimeoutExpired):
                done.wait(self.wait_limit)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(done.pid, signal.SIGKILL)
            done.wait()
            output.seek(0)
            out = output.read().decode(errors="replace")
        self.is_skipped = done.returncode == self.skip_status
        if done.returncode == 0 or self.is_skipped:
            return None
        failed = re.search(r"^(?:\[  FAILED  \] (?!\d)|FAILED [^:\n]+::)(\w+)", out, re.MULTILINE)
        if failed:
            return failed.group(1)
        lines = [line.strip() for line in out.split("\n") if line.strip()]
        how = signal.Signals(-done.returncode).name if done.returncode < 0 \
            else f"status {done.returncode}"
        return ": ".join([how, *lines[-1:]])[:120]

    def must_pass(self):
        """Run on the unchanged tree; the time it takes sets the limits for later. A defect may wait
        for ever and compute nothing."""
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime, time.monotonic()
        failed = self.run()
        if failed:
            raise ListError(f"{self.name} fails on the unchanged tree: {failed}")
        after = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        self.limit = int(10 + 10 * (after - before))
        self.wait_limit = 60 + 20 * (time.monotonic() - began)


class Build:
    """A build of the copy, where the preset has it: a compiler's cache knows most of its files."""

    def __init__(self, directory, jobs):
        self.tree = os.path.join(directory, "tree")
        self.directory = os.path.join(self.tree, "build", "check")
        self.jobs = jobs
        self.tests = {}
        copy_tree(self.tree)
        os.environ.setdefault("KVP_VALKEY_FOLDER", os.path.join(ROOT, "build", "libvalkey"))
        self.must("cmake", "--preset", "check")

    def must(self, *command):
        done = subprocess.run(command, cwd=self.tree, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ListError(f"{' '.join(command)} failed:\n{done.stdout[-3000:]}{done.stderr}")
        return done.stdout

    def make(self, names):
        targets = sorted({target for name in names for target in target_of(name).split()})
        self.must("ninja", "-C", self.directory, "-j", str(self.jobs), *targets)

    def must_be_green(self, mutants):
        """Run the mutants' tests on the unchanged tree."""
        names = sorted({name for mutant in mutants for name in mutant.tests})
        self.make(names)
        shown = json.loads(self.must("ctest", "--test-dir", self.directory, "--show-only=json-v1"))
        entries = {entry["name"]: entry for entry in shown["tests"]}
        for name in names:
            self.tests[name] = Test(name, entries)
            self.tests[name].must_pass()

    def plant(self, mutant):
        """Build with the defect and run its tests: what caught it, or None."""
        path = os.path.join(self.tree, mutant.path)
        text = read(path)
        try:
            with open(path, "w", encoding="utf-8") as file:
                file.write(mutant.apply(text))
            for name in mutant.tests:
                self.make([name])
                failed = self.tests[name].run()
                if failed:
                    return f"{name}: {failed}"
            return None
        finally:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)

    def skips(self, mutant):
        """Are its tests skipped on this machine?"""
        return all(self.tests[name].is_skipped for name in mutant.tests)


def plant_all(mutants, build):
    """Plant each; a line for each. Gives how many were caught, and how many were not."""
    n_caught, n_bad = 0, 0
    for mutant in mutants:
        started = time.monotonic()
        try:
            caught = build.plant(mutant)
            verdict = f"caught by {caught}" if caught else f"SURVIVED: {mutant.defect}"
        except ListError as error:
            caught, verdict = None, f"WRONG: {error}"
        if build.skips(mutant):
            verdict = "not tried: its tests are skipped on this machine"
        else:
            n_caught += caught is not None
            n_bad += caught is None
        print(f"{mutant.name}: {verdict} ({time.monotonic() - started:.1f} s)", flush=True)
    return n_caught, n_bad


def run(mutants, build):
    begin = time.monotonic()
    build.must_be_green(mutants)
    print(f"{len(build.tests)} tests are green on the unchanged tree, "
          f"{time.monotonic() - begin:.0f} s", flush=True)
    n_caught, n_bad = plant_all(mutants, build)
    print(f"{n_caught} of {n_caught + n_bad} mutants caught, "
          f"{time.monotonic() - begin:.0f} s in all")
    return 1 if n_bad else 0


def run_parts(mutants, directory, n_parts):
    """A room stays together: its tests are built in one build. The largest rooms are dealt first."""
    rooms = {}
    for mutant in mutants:
        rooms.setdefault(mutant.room, []).append(mutant)
    parts = [[] for _ in range(min(n_parts, len(rooms)))]
    for room in sorted(rooms.values(), key=len, reverse=True):
        min(parts, key=len).extend(room)
    processes = [subprocess.Popen([sys.executable, os.path.abspath(__file__), "--jobs", "1",
                                   "--build", f"{directory}-{i + 1}",
                                   *(mutant.name for mutant in part)])
                 for i, part in enumerate(parts)]
    statuses = [process.wait() for process in processes]
    return 1 if any(statuses) else 0


def main():
    parser = argparse.ArgumentParser(usage=__doc__, add_help=False)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--texts", action="store_true")
    parser.add_argument("--room")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "mutants"))
    options = parser.parse_args()
    try:
        mutants = read_mutants()
        if options.texts:
            print(check_texts(mutants, ROOT))
            return 0
        chosen = select(mutants, options)
        if options.list:
            for mutant in chosen:
                print(f"{mutant.name}: {mutant.defect}")
            return 0
        check_texts(chosen, ROOT)
        directory = os.path.abspath(options.build)
        if options.jobs > 1 and len(chosen) >= MANY:
            return run_parts(chosen, directory, options.jobs)
        return run(chosen, Build(directory, options.jobs))
    except ListError as error:
        print(f"run.py: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
