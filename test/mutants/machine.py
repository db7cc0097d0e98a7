#!/usr/bin/env python3
"""Plants defects that a machine draws, all in one build, and runs the tests against each.

    machine.py [--seed N] [--count ROOM=N]... [--build DIR] [--jobs N] [--again KEY]... [--asan]
    machine.py --places          how many places each room has, by kind

sites.py finds the places. `--count` says how many to draw of a room: store, spill, transfer, `rest`
(what else src has, but for the kernels of attention), or python (python/native, whose tests are the
files of python/tests). Each drawn defect is a switch in one build of the check preset, chosen by
KVPI_MUTANT. Each test is run once with none of them, which tells which places it reaches and how long
it takes. Then each defect is switched on for the tests that reach it, first those that are fast and
caught many, until one fails, crashes, or computes ten times as long, and passes without the defect. With
--asan those that survive meet the same tests once more under AddressSanitizer, which sees leaks.

Results are kept in DIR/results.jsonl by what was changed, a line each, so that a run that was stopped
goes on. --again tries one anew, or with `survivors` all that were not caught. Which tests reach what is
kept in DIR/map.json, for the same sources and defects. The score is caught / (all - equivalent), with
Wilson's lower bound of 95 %. equivalents.txt lists defects that change nothing which can be observed,
with the reason. It needs clang 14, its library for Python
(`pip install libclang==14.0.6`), and x86-64 or aarch64 Linux.

Exit status: 0 done; 1 it could not be; 2 usage.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import copy
import glob
import hashlib
import json
import math
import os
import random
import resource
import subprocess
import sys
import sysconfig
import time

import run as planted

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = planted.ROOT
ROOMS = {"store": ("src/store/",), "spill": ("src/spill/",), "transfer": ("src/transfer/",),
         "python": ("python/native/",)}
LEFT_OUT = ("src/attention/",)
PYTHON_NEEDS = ("kvpager_tool", "kvpager_store_static", "kvpager_redis", "kvpager_zmq_static")

SWITCHES = """#if !defined KVPI_MUTANTS_H && !defined KVPY_CDEF /* which cffi reads */
#define KVPI_MUTANTS_H
/* Made by test/mutants/machine.py. No header of the system is included: macros that a file defines
 * for them come later. */
extern char *getenv(const char *);
extern long syscall(long, ...);
extern int atoi(const char *);
static unsigned char kvpi_mutants_none[%(n)d];
static unsigned char *kvpi_mutants_seen = kvpi_mutants_none;
static int kvpi_mutant_on = -1;
#if defined(__x86_64__)
enum { KVPI_SYS_OPENAT = 257, KVPI_SYS_MMAP = 9 };
#else
enum { KVPI_SYS_OPENAT = 56, KVPI_SYS_MMAP = 222 };
#endif
__attribute__((constructor, unused)) static void kvpi_mutants_begin(void)
{
    const char *on = getenv("KVPI_MUTANT"), *seen = getenv("KVPI_MUTANTS_SEEN");
    kvpi_mutant_on = on ? atoi(on) : -1;
    if (seen) {
        const long fd = syscall(KVPI_SYS_OPENAT, -100L, seen, 2L, 0L);
        const long at = fd < 0 ? -1 : syscall(KVPI_SYS_MMAP, 0L, %(n)dL, 3L, 1L, fd, 0L);
        if (at != -1)
            kvpi_mutants_seen = (unsigned char *)at;
    }
}
#define KVPI_MUTANT(i) (kvpi_mutants_seen[i] = 1, kvpi_mutant_on == (i))
#endif
"""


def room_of(path):
    return next((room for room, prefixes in ROOMS.items() if path.startswith(prefixes)), "rest")


def sources(tree, build):
    """{path: (file to parse, arguments)} of files of src and python/native. A header is parsed with the
    first C file that includes it by itself."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        commands = json.load(file)
    native = ["-xc", "-std=c11", f"-I{tree}/include", f"-I{tree}/src",
              f"-I{sysconfig.get_path('include')}"]
    found = {path: (path, native) for path in glob.glob("python/native/*.[ch]", root_dir=tree)}
    for entry in commands:
        path = os.path.relpath(os.path.normpath(os.path.join(entry["directory"], entry["file"])), tree)
        if path.startswith("src/") and path.endswith(".c") and not path.startswith(LEFT_OUT):
            words = entry["command"].replace("-isystem ", "-isystem").split()
            found.setdefault(path, (path, [w.replace('\\"', '"') for w in words
                                           if w.startswith(("-D", "-I", "-isystem", "-std"))]))
    texts = {path: planted.read(os.path.join(tree, path)) for path in sorted(found)}
    for path in sorted(glob.glob("src/**/*.h", root_dir=tree, recursive=True)):
        users = [user for user, text in texts.items()
                 if user.startswith("src/") and f'#include "{path[4:]}"' in text]
        if users and not path.startswith(LEFT_OUT):
            found[path] = found[users[0]]
    return found


def builtin_headers():
    """Where clang has stddef.h and its like: libclang's package has none."""
    for clang in ("clang", "clang-14"):
        with contextlib.suppress(FileNotFoundError):
            return ["-resource-dir", subprocess.run([clang, "-print-resource-dir"], text=True,
                                                    capture_output=True, check=True).stdout.strip()]
    raise planted.ListError("clang 14 is needed: scripts/setup.sh analyze")


def all_places(tree, build):
    import sites
    headers = builtin_headers()
    return [place for path, (file, arguments) in sorted(sources(tree, build).items())
            for place in sites.find_places(tree, path, file, arguments + headers)]


def name_all(places, tree):
    """{place: key}, which names a defect by what it changes, whatever else its file says."""
    keys, seen = {}, {}
    for place in places:
        with open(os.path.join(tree, place.path), "rb") as file:
            old = file.read()[place.begin:place.end]
        what = f"{place.path}:{place.function}:{place.kind}:{old.decode()}:{place.after}"
        seen[what] = nth = seen.get(what, 0) + 1
        what += f":{nth}" if nth > 1 else ""
        keys[place] = hashlib.sha256(what.encode()).hexdigest()[:16]
    return keys


def draw(places, counts, seed):
    """Places by room, none over another."""
    import sites
    chosen = []
    for room, count in sorted(counts.items()):
        of_room = [place for place in places if room_of(place.path) == room]
        random.Random(f"{seed} {room}").shuffle(of_room)
        taken = {}
        n = 0
        for place in of_room:
            if n == count:
                break
            before = taken.setdefault(place.path, [])
            if not any(sites.overlap(place, other) for other in before):
                before.append(place)
                chosen.append(place)
                n += 1
    return sorted(chosen, key=lambda place: (place.path, place.begin))


def write_tree(tree, chosen):
    import sites
    header = os.path.join(os.path.dirname(tree), "kvpi_mutants.h")
    with open(header, "w", encoding="utf-8") as file:
        file.write(SWITCHES % {"n": len(chosen) or 1})
    for path in sorted({place.path for place in chosen}):
        name = os.path.join(tree, path)
        with open(name, "rb") as file:
            data = file.read()
        mine = [(i, place) for i, place in enumerate(chosen) if place.path == path]
        with open(name, "wb") as file:
            file.write(f'#include "{header}"\n'.encode() + sites.switch_file(data, mine))


class Machine:
    """The build with switches, and the tests that reach each."""

    def __init__(self, directory, jobs, preset="check"):
        self.directory, self.jobs, self.preset = directory, jobs, preset
        self.tree = os.path.join(directory, "tree")
        self.build = os.path.join(directory, preset)
        self.tests, self.seconds, self.reached = {}, {}, {}
        self.files = {}    # of tests that are a file of Python's: where
        self.caught = collections.Counter() # how many each test has caught

    def must(self, *command):
        done = subprocess.run(command, cwd=self.tree, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise planted.ListError(f"{' '.join(command)} failed:\n{done.stdout[-4000:]}"
                                    f"{done.stderr[-2000:]}")
        return done.stdout

    def configure(self):
        os.environ.setdefault("KVP_VALKEY_FOLDER", os.path.join(ROOT, "build", "libvalkey"))
        self.must("cmake", "--preset", self.preset, "-S", self.tree, "-B", self.build,
                  "-DCMAKE_C_FLAGS=-w")

    def compile(self, rooms):
        """What the tests of these rooms need."""
        targets = PYTHON_NEEDS if rooms == {"python"} else ("-k", "0")
        self.must("ninja", "-C", self.build, "-j", str(self.jobs), *targets)
        shown = json.loads(self.must("ctest", "--test-dir", self.build, "--show-only=json-v1"))
        if "python" in rooms:
            self.find_python_tests(next(e for e in shown["tests"] if e["name"] == "python"))
        if rooms != {"python"}:
            self.find_tests(shown["tests"])

    def find_python_tests(self, entry):
        """Installs the package, and has each file of tests as a test."""
        install = planted.Test("python:--collect-only", {"python": entry})
        failed = install.run()
        if failed:
            raise planted.ListError(f"the Python package cannot be built: {failed}")
        folder = os.path.join(self.build, "python")
        config = os.path.join(self.tree, "python")
        for path in sorted(glob.glob(os.path.join(config, "tests", "test_*.py"))):
            test = copy.copy(install)
            test.name = "python_" + os.path.basename(path)[5:-3]
            test.command = [os.path.join(folder, "python-venv", "bin", "python"), "-m", "pytest", "-x",
                            "-c", os.path.join(config, "pyproject.toml"), "--rootdir", config, path]
            test.directory = folder
            test.environment = {**test.environment, "KVP_SEEDS": "2", "PYTHONDONTWRITEBYTECODE": "1"}
            self.tests[test.name], self.files[test.name] = test, path

    def find_tests(self, entries):
        for entry in entries:
            labels = next((p["value"] for p in entry["properties"] if p["name"] == "LABELS"), [])
            if not {"long", "python", "spin", "soak"} & set(labels) and "command" in entry and \
                    any(word.startswith(self.build) or word.endswith(".py")
                        for word in entry["command"]):
                self.tests[entry["name"]] = planted.Test(entry["name"], {entry["name"]: entry})
        for name in ("lint", "prose", "house", "mutants_list", "reference", "combinations",
                     "exports", "text_size"):
            for test in [t for t in self.tests if t == name or t.startswith(name + "_")]:
                del self.tests[test]

    def map_one(self, name, count):
        """Which switches a test reaches, the seconds that it takes, and whether it fails."""
        path = os.path.join(self.directory, f"seen-{name}")
        with open(path, "wb") as file:
            file.write(bytes(count))
        test = self.tests[name]
        test.environment = {**test.environment, "KVPI_MUTANTS_SEEN": path}
        begin = time.monotonic()
        failed = test.run()
        seconds = time.monotonic() - begin
        del test.environment["KVPI_MUTANTS_SEEN"]
        with open(path, "rb") as file:
            seen = [i for i, byte in enumerate(file.read()) if byte]
        os.remove(path)
        return {"seconds": seconds, "reached": seen,
                "failed": failed or ("skipped" if test.is_skipped else None)}

    def hash_tree(self):
        """Of what is built: sources, tests, and the switches in them; not the files that are tests."""
        digest = hashlib.sha256()
        for folder, folders, files in os.walk(self.tree):
            folders.sort()
            for name in sorted(files):
                path = os.path.join(folder, name)
                if path not in self.files.values() and "/test/mutants/" not in path:
                    digest.update(os.path.relpath(path, self.tree).encode() + b"\0" + hash_file(path))
        return digest.hexdigest()

    def find_map(self, count):
        """What each test reaches: as it was found in the same tree, or anew."""
        path, tree = os.path.join(self.directory, "map.json"), self.hash_tree()
        kept = json.loads(planted.read(path)) if os.path.exists(path) else {}

        def one(name):
            of = tree + (hash_file(self.files[name]).hex() if name in self.files else "")
            old = kept.get(name, {})
            return old if old.get("of") == of else {"of": of, **self.map_one(name, count)}
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            found = dict(zip(self.tests, pool.map(one, self.tests)))
        with open(path, "w", encoding="utf-8") as file:
            json.dump(found, file)
        for name, what in found.items():
            if what["failed"]:
                print(f"left out: {name}: {what['failed']}", flush=True)
                continue
            self.seconds[name], self.reached[name] = what["seconds"], set(what["reached"])
            self.tests[name].limit = int(10 + 10 * self.seconds[name])
            self.tests[name].wait_limit = 30 + 20 * self.seconds[name]

    def try_one(self, number):
        """What caught it; None: nothing did."""
        names = sorted((n for n in self.reached if number in self.reached[n]),
                       key=lambda n: self.seconds[n] / (1 + self.caught[n]))
        for name in names:
            test = copy.copy(self.tests[name])
            test.environment = {**test.environment, "KVPI_MUTANT": str(number)}
            failed = test.run()
            if failed and self.passes(name):
                self.caught[name] += 1
                return f"{name}: {failed}"
        return None if names else "-"

    def passes(self, name):
        """Whether a test passes with no defect. One that does not is left out from here on."""
        failed = copy.copy(self.tests[name]).run()
        if failed:
            print(f"left out: {name}: {failed}", flush=True)
            self.reached[name] = set()
        return not failed

    def with_asan(self):
        """The same defects and tests under AddressSanitizer, without those that Python runs."""
        other = Machine(self.directory, self.jobs, "asan")
        other.configure()
        other.compile({"rest"})
        for name in other.tests.keys() & self.reached.keys():
            other.reached[name], other.seconds[name] = self.reached[name], 3 * self.seconds[name]
            other.tests[name].limit = int(20 + 30 * self.seconds[name])
            other.tests[name].wait_limit = 60 + 60 * self.seconds[name]
        return other


def hash_file(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).digest()


def wilson(caught, n, z=1.96):
    """The lower bound of a share."""
    if n == 0:
        return 0.0
    share = caught / n
    middle = share + z * z / (2 * n)
    return (middle - z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))) / (1 + z * z / n)


def read_results(path):
    """{key: what caught it, or ""}: the last line of each. One that was cut is none."""
    results = {}
    for line in planted.read(path).split("\n") if os.path.exists(path) else []:
        with contextlib.suppress(ValueError):
            key, caught = json.loads(line)
            results[key] = caught
    return results


def read_equivalents():
    """{key: reason}: a line each, `KEY reason`."""
    path = os.path.join(HERE, "equivalents.txt")
    if not os.path.exists(path):
        return {}
    lines = planted.read(path).split("\n")
    return dict(line.split(" ", 1) for line in lines if line and not line.startswith("#"))


def report(chosen, keys, results, equivalents):
    rooms = {}
    for place, key in zip(chosen, keys):
        if key not in results:
            continue
        counts = rooms.setdefault(room_of(place.path), [0, 0, 0])
        counts[0] += 1
        counts[1] += bool(results[key])
        counts[2] += not results[key] and key in equivalents
    print(f"{'room':10} {'tried':>6} {'caught':>7} {'equivalent':>11} {'raw':>7} {'score':>7} "
          f"{'bound':>7}")
    total = [sum(counts[i] for counts in rooms.values()) for i in range(3)]
    for room, (n, caught, same) in [*sorted(rooms.items()), ("all", total)]:
        left = n - same
        print(f"{room:10} {n:6} {caught:7} {same:11} {100 * caught / max(n, 1):6.1f}% "
              f"{100 * caught / max(left, 1):6.1f}% {100 * wilson(caught, left):6.1f}%")


def show(place, tree):
    with open(os.path.join(tree, place.path), "rb") as file:
        old = file.read()[place.begin:place.end].decode()
    one = " ".join(old.split())
    new = " ".join(place.after.split())
    return f"{place.path}:{place.line} {place.function} {place.kind}: {one[:100]}  ->  {new[:100]}"


def try_all(machine, chosen, keys, results, path):
    equivalents = read_equivalents()

    def one(number):
        return number, machine.try_one(number)
    todo = [i for i, key in enumerate(keys) if key not in results]
    if machine.preset == "asan":
        reached = set().union(*machine.reached.values())
        todo = [i for i, key in enumerate(keys) if results.get(key) == "" and i in reached
                and key not in equivalents]
    with concurrent.futures.ThreadPoolExecutor(machine.jobs) as pool:
        for done in concurrent.futures.as_completed([pool.submit(one, i) for i in todo]):
            number, caught = done.result()
            results[keys[number]] = "" if caught in (None, "-") else caught
            if caught in (None, "-"):
                what = "equivalent" if keys[number] in equivalents else \
                    "SURVIVED" if caught is None else "NOT REACHED"
                print(f"{what} {keys[number]} {show(chosen[number], ROOT)}", flush=True)
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps([keys[number], results[keys[number]]]) + "\n")
    report(chosen, keys, results, equivalents)


def count_places(places):
    table = {}
    for place in places:
        of_room = table.setdefault(room_of(place.path), {})
        of_room[place.kind] = of_room.get(place.kind, 0) + 1
    for room, kinds in sorted(table.items()):
        print(f"{room:10} {sum(kinds.values()):6}  " + ", ".join(
            f"{kind} {n}" for kind, n in sorted(kinds.items())))


def read_counts(words):
    counts = {}
    for word in words or ["store=25", "spill=25", "transfer=25", "rest=25"]:
        room, _, number = word.partition("=")
        if room not in (*ROOMS, "rest") or not number.isdigit():
            raise planted.ListError(f"--count {word}: expected one of {', '.join(ROOMS)}, rest, '=' "
                                    "and a number")
        counts[room] = int(number)
    return counts


def work(options):
    machine = Machine(os.path.abspath(options.build), options.jobs)
    planted.copy_tree(machine.tree)
    machine.configure()
    places = all_places(machine.tree, machine.build)
    if options.places:
        count_places(places)
        return 0
    chosen = draw(places, read_counts(options.count), options.seed)
    named = name_all(places, machine.tree)
    keys = [named[place] for place in chosen]
    write_tree(machine.tree, chosen)
    begin = time.monotonic()
    machine.compile({room_of(place.path) for place in chosen})
    print(f"{len(places)} places, {len(chosen)} drawn with seed {options.seed}; built in "
          f"{time.monotonic() - begin:.0f} s", flush=True)
    machine.find_map(len(chosen))
    print(f"{len(machine.reached)} tests reach {len(set().union(*machine.reached.values()))} of "
          f"them, {time.monotonic() - begin:.0f} s", flush=True)
    path = os.path.join(machine.directory, "results.jsonl")
    results = read_results(path)
    machine.caught.update(caught.partition(":")[0] for caught in results.values())
    for key in options.again or []:
        for one in [k for k, caught in results.items() if not caught] if key == "survivors" else [key]:
            results.pop(one, None)
    try_all(machine, chosen, keys, results, path)
    if options.asan:
        try_all(machine.with_asan(), chosen, keys, results, path)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{time.monotonic() - begin:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of processors")
    return 0


def main():
    parser = argparse.ArgumentParser(usage=__doc__, add_help=False)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", action="append")
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "machine"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--again", action="append")
    parser.add_argument("--asan", action="store_true")
    parser.add_argument("--places", action="store_true")
    options = parser.parse_args()
    try:
        return work(options)
    except planted.ListError as error:
        print(f"machine.py: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
