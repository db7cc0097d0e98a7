#!/usr/bin/env python3
"""Runs the commands that the pages for users show, from a clean clone of HEAD.

    pages.py                run them (make pages); status 1 if one fails
    pages.py --only TEXT    only those that contain TEXT, in the clone that an earlier run made
    pages.py --list         only print what would run, and what is left out
    pages.py --self-test    show that what is read from a page is what it shows

The commands are taken from PAGES: indented lines, sh blocks, and `code` that begins with a program of
PROGRAMS. Each runs once, in the order of the pages, as printed, in build/pages/clone. /opt/kvpager is
a folder beside it, `kvpager` is the one that was built, and packages are installed in simulation. Lines of CMake become a project that is
built. scripts/pages.txt lists what runs in a shorter form, and what is left out, with reasons; a row
that fits nothing fails. What the commands print is compared where a page shows it.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "test", "tools"))
import lib_blocks  # noqa: E402

PAGES = ["README.md", "docs/BUILDING.md", "docs/TOUR.md", "CONTRIBUTING.md", "docs/EMBEDDING.md",
         "docs/PYTHON.md", "integrations/rust/README.md"]
RULES = os.path.join(ROOT, "scripts", "pages.txt")
FOLDER = os.path.join(ROOT, "build", "pages")
# One word is a name, unless it is `make` or a program's path.
PROGRAMS = re.compile(r"(\w+=\S+ )*((apt-get|cargo|cc|cmake|conan|ctest|kvpager|make|pip|python3?|vllm) \S|make$|"
                      r"venv/bin/|build/release/\w|scripts/\w+\.(sh|py)|\.ci/run|\./)")
CMAKE = re.compile(r"(find_package|add_subdirectory|target_link_libraries|include|FetchContent_\w+)\(")


class Failed(Exception):
    pass


# ---------------------------------------------------------------------------------- what pages show


def shown(page, text):
    """(place, command) of each command of a page; lines of CMake that follow each other are one."""
    found, is_open, last_line, was_code = [], False, 0, False
    for line, command, is_code in lib_blocks.commands_of(text):
        follows = line == last_line if is_code else line == last_line + 1
        if is_open:  # a quote that an earlier line opened
            found[-1][1] += "\n" + command
            is_open = found[-1][1].count("'") % 2 == 1
        elif CMAKE.match(command) and found and CMAKE.match(found[-1][1]) and follows and is_code == was_code:
            found[-1][1] += "\n" + command
        elif CMAKE.match(command) or (PROGRAMS.match(command) if is_code else command):
            found.append([f"{page}:{line}", command])
            is_open = not is_code and command.count("'") % 2 == 1
        last_line, was_code = line, is_code
    return found


def all_shown():
    """The same of all pages; what was shown before is left out."""
    seen = set()
    for page in PAGES:
        with open(os.path.join(ROOT, page), encoding="utf-8") as file:
            for place, command in shown(page, file.read()):
                if command not in seen:
                    seen.add(command)
                    yield place, command


class Rule:
    def __init__(self, pattern):
        self.pattern, self.how, self.is_used = pattern, {}, False

    def fits(self, command):
        if self.pattern.startswith("~"):
            return re.fullmatch(self.pattern[1:], command, re.DOTALL)
        return self.pattern == command


def read_rules(text):
    rules = []
    for line in text.split("\n"):
        if line.startswith("    ") and rules:
            key, _, value = line.strip().partition(": ")
            if key not in ("left out", "short", "because", "then", "in"):
                raise Failed(f"{RULES}: {line.strip()}")
            rules[-1].how[key] = value
        elif line.strip() and not line.startswith("#"):
            rules.append(Rule(line))
    return rules


def rule_of(rules, command):
    for rule in rules:
        if rule.fits(command):
            rule.is_used = True
            return rule.how
    return {}


# ----------------------------------------------------------------------------------- running them

PREFIX = os.path.join(FOLDER, "opt", "kvpager")
CLONE = os.path.join(FOLDER, "clone")


def shell(command, folder=CLONE):
    """Runs it; fails with the end of its output."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=folder, env=env, text=True,
                          errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise Failed(f"status {done.returncode}\n" + "\n".join(done.stdout.split("\n")[-30:]))


def as_here(command):
    """With the names of this run: the prefix, the command that was built, the sources."""
    command = re.sub(r"^kvpager ", "build/release/kvpager ", command)
    if command.startswith("apt-get install "):  # where apt knows what there is
        command = f"! apt-cache show cargo >/dev/null 2>&1 || {command} --simulate"
    command = command.replace("/path/to/kvpager", CLONE)
    return command.replace("/opt/kvpager", PREFIX)


def cmake_project(lines, how):
    """A project that has these lines; if they link something, it is built and run."""
    folder = os.path.join(FOLDER, "project")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(os.path.join(folder, "third_party"))
    os.symlink(CLONE, os.path.join(folder, "third_party", "kvpager"))
    links = "target_link_libraries" in lines
    text = "cmake_minimum_required(VERSION 3.22)\nproject(engine LANGUAGES C)\n"
    program = f'add_executable(engine "{CLONE}/examples/quickstart.c")\n'
    text += as_here(lines.replace("target_link", program + "target_link", 1)) + "\n"
    with open(os.path.join(folder, "CMakeLists.txt"), "w", encoding="utf-8") as file:
        file.write(text)
    shell(f"cmake -S . -B b {as_here('-DCMAKE_PREFIX_PATH=/opt/kvpager')} {how.get('short', '')}", folder)
    if links:
        shell(f"cmake --build b -j2\nb/engine | diff {CLONE}/examples/quickstart.expected -", folder)


def run(command, how):
    if CMAKE.match(command):
        cmake_project(command, how)
        return
    folder = os.path.join(CLONE, how.get("in", ""))
    shell(as_here(how.get("short", "{}").replace("{}", command)), folder)
    if "then" in how:
        shell(as_here(how["then"]), folder)


def one_line(command):
    return " ".join(command.split())


def run_all(rules, only_list, part=""):
    n_run = n_failed = 0
    left_out = []
    for place, command in all_shown():
        how = rule_of(rules, command)
        if part not in command:
            continue
        if "left out" in how:
            left_out.append((place, command, how["left out"]))
            continue
        n_run += 1
        began, worked, verdict = time.monotonic(), sum(os.times()[2:4]), ""
        if not only_list:
            try:
                run(command, how)
            except Failed as reason:
                n_failed, verdict = n_failed + 1, f"FAILED: {reason}"
        short = f"   as: {how['short']} ({how.get('because')})" if "short" in how else ""
        print(f"{time.monotonic() - began:5.1f} s, {sum(os.times()[2:4]) - worked:5.1f} s of processors  "
              f"{place}: {one_line(command)}{short}", flush=True)
        if verdict:
            print(verdict, flush=True)
    for reason in dict.fromkeys(reason for _, _, reason in left_out):
        print(f"left out: {reason}")
        for place, command, why in left_out:
            if why == reason:
                print(f"    {place}: {one_line(command)}")
    unused = [rule.pattern for rule in rules if not rule.is_used]
    for pattern in unused:
        print(f"scripts/pages.txt: no page shows this: {pattern}")
    print(f"pages: {n_run} commands {'to run' if only_list else 'ran'}, {len(left_out)} left out, "
          f"{n_failed} failed")
    return n_failed == 0 and not unused


def prepare():
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.makedirs(FOLDER)
    subprocess.run(["git", "clone", "--quiet", ROOT, CLONE], check=True)


# ------------------------------------------------------------------------------------ the self-test

PAGE = """
Run `make first`, or `FOO=1 make second`; `some code` is none, nor is `kvp_x`.

    make third    and its explanation, which isn't run
    serve --x '{"a":
        "b"}'
    find_package(kvpager 0.2 REQUIRED)
    target_link_libraries(engine PRIVATE kvpager::static)      # or another

| CMake | `find_package(a)`, `target_link_libraries(b)` and `-DX=Y` |
| CMake | `add_subdirectory(c)` |

```sh
cargo run \\
    --x
```
"""
FOUND = ["make first", "FOO=1 make second", "make third", "serve --x '{\"a\":\n\"b\"}'",
         "find_package(kvpager 0.2 REQUIRED)\ntarget_link_libraries(engine PRIVATE kvpager::static)",
         "find_package(a)\ntarget_link_libraries(b)", "add_subdirectory(c)", "cargo run --x"]


def self_test():
    found = [command for _, command in shown("page", PAGE)]
    places = [place for place, _ in shown("page", PAGE)]
    rules = read_rules("# x\nmake a\n    left out: it is b\n~make .*\n    short: true\n")
    hows = [rule_of(rules, "make a"), rule_of(rules, "make c"), rule_of(rules, "remake a")]
    good = found == FOUND and hows == [{"left out": "it is b"}, {"short": "true"}, {}]
    good = good and places[-1] == "page:14"
    print(f"self-test: {'ok' if good else f'found {found}, {hows}'}")
    return good


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    part = arguments[1] if len(arguments) == 2 and arguments[0] == "--only" else ""
    if arguments not in ([], ["--list"]) and not part:
        print(__doc__.strip(), file=sys.stderr)
        return False
    with open(RULES, encoding="utf-8") as file:
        rules = read_rules(file.read())
    if not arguments:
        prepare()
    return run_all(rules, arguments == ["--list"], part)


if __name__ == "__main__":
    sys.exit(0 if main(sys.argv[1:]) else 1)
