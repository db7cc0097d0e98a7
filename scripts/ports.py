#!/usr/bin/env python3
"""Builds that `make test` does not have: other compilers, generators, tools and targets.

    ports.py [NAME...]     run all, or some
    ports.py --write ...   and record their rows in docs/TESTING.md
    ports.py --list        names and what they do

Each works in build/ports/NAME, from nothing, and leaves its output in build/ports/NAME.log. Where
the machine lacks what a build is about it is skipped, with the reason. Status 1 if one fails.
"""

import datetime
import glob
import os
import platform
import re
import shutil
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE = os.path.join(ROOT, "docs", "TESTING.md")
BEGIN, END = "<!-- ports: begin -->\n", "<!-- ports: end -->\n"
ROOMS = ["ATTENTION", "MEMORY", "SCHED", "TRANSFER", "WIRE", "OPLOG"]
PLAIN = ["-DKVP_BUILD_TESTS=OFF", "-DKVP_BUILD_FUZZ=OFF"]
TRIAL_SECONDS = 300  # what a newcomer is given for each way to have the library
RUN_SECONDS = 60     # and for make run
# Those that need nothing but what scripts/amalgamation.py puts into one file.
ONE_FILE_EXAMPLES = ["quickstart", "decode_loop", "fork_cow", "scheduler", "swap", "tenants", "token_tree",
                     "window"]
PORTS = {}
os.environ.setdefault("CTEST_PARALLEL_LEVEL", "2")


class Failed(Exception):
    pass


class Skipped(Exception):
    pass


def port(name, what):
    def add(function):
        PORTS[name] = (what, function)
        return function
    return add


class Work:
    """A folder of its own and a log of what ran there."""

    def __init__(self, name, family="ports"):
        base = os.path.join(ROOT, "build", family)
        self.folder = os.path.join(base, name)
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder)
        self.log = os.path.join(base, name + ".log")
        open(self.log, "w").close()
        self.note = ""

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def run(self, *command, cwd=ROOT, **env):
        """Runs it, fails if it fails, and returns what it printed."""
        with open(self.log, "a") as log:
            log.write("$ " + " ".join(command) + "\n")
            done = subprocess.run(command, cwd=cwd, env={**os.environ, **env}, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            log.write(done.stdout)
        if done.returncode != 0:
            raise Failed(f"{' '.join(command)}: status {done.returncode}")
        return done.stdout

    def build(self, *options, generator="Ninja", targets=(), folder="build", **env):
        self.run("cmake", "-S", ROOT, "-B", self.path(folder), "-G", generator, *options, **env)
        words = ["--target", *targets] if targets else []
        self.run("cmake", "--build", self.path(folder), "--parallel", "2", *words, **env)

    def tests(self, *options, folder="build", **env):
        out = self.run("ctest", "--test-dir", self.path(folder), "--parallel", "2",
                       "--output-on-failure", "--no-tests=error", *options, **env)
        match = re.search(r"tests passed.* out of (\d+)", out)
        self.note = f"{match.group(1)} tests" if match else ""

    def build_tests(self, names, folder="build", **env):
        """The programs of the unit tests whose names match."""
        listed = self.run("ctest", "--test-dir", self.path(folder), "-N", "-R", f"^({names})$")
        programs = [f"test_{name.removeprefix('unit_')}" for name in re.findall(r"#\d+: (\w+)", listed)]
        self.run("cmake", "--build", self.path(folder), "--parallel", "2", "--target", *programs, **env)

    def subproject(self, *arguments, cc="cc", cmake="cmake", **env):
        with open(os.path.join(ROOT, "CMakeLists.txt")) as file:
            version = re.search(r"project\(kvpager VERSION ([\d.]+)", file.read()).group(1)
        self.run("bash", os.path.join(ROOT, "test", "install", "subproject.sh"), *arguments,
                 KVP_SOURCE=ROOT, KVP_VERSION=version, CC=cc, CMAKE=cmake, NM="nm", **env)

    def pip(self, *packages):
        """A virtual environment with these packages; the folder of its programs."""
        venv = self.path("venv")
        self.run(sys.executable, "-m", "venv", venv)
        try:
            self.run(os.path.join(venv, "bin", "pip"), "install", "--quiet", *packages)
        except Failed:
            raise Skipped(f"{' '.join(packages)} cannot be had from the package index") from None
        return os.path.join(venv, "bin")


def need(program):
    if not shutil.which(program):
        raise Skipped(f"there is no {program}")
    return program


# ------------------------------------------------------------------------------------ generators


@port("makefiles", "Unix Makefiles: everything but the tests; and as a subproject")
def makefiles(work):
    work.build("-DKVP_BUILD_TESTS=OFF", generator="Unix Makefiles")
    work.subproject("Unix Makefiles")


@port("fetch-content", "the whole library by FetchContent, Ninja")
def fetch_content(work):
    work.subproject("Ninja", "-DFETCH=ON")


@port("cmake-3.22", "the oldest CMake: subproject, Makefiles and Ninja")
def old_cmake(work):
    programs = work.pip("cmake==3.22.*")
    cmake = os.path.join(programs, "cmake")
    work.note = work.run(cmake, "--version").split("\n", 1)[0]
    work.subproject(cmake=cmake)
    work.subproject("Ninja", *[f"-DKVP_{room}=OFF" for room in ROOMS if room != "SCHED"], cmake=cmake)
    work.run(cmake, "--preset", "release", "-B", work.path("preset"))


# ------------------------------------------------------------------------------------- compilers

# Of stores those that do not wait for the disk. store_system forbids system calls that qemu makes.
UNIT_TESTS = "unit_.*|store_(identity|index|record|front|random|stack|trust|url)|spill(_digests|_drops|_random)?"


@port("clang", "the release preset with clang, and its tests")
def clang(work):
    need("clang")
    work.build("--preset", "clang", "-B", work.path("build"))
    work.tests("--label-regex", "^release$", "--label-exclude", "^python$")
    work.note = f"{clang_version('clang')}; {work.note}"


@port("clang-units", "clang, checks at level 3: unit tests, stores")
def clang_units(work):
    need("clang")
    work.build("-DCMAKE_C_COMPILER=clang", "-DKVP_CHECK=3", "-DCMAKE_BUILD_TYPE=Debug",
               "-DCMAKE_C_FLAGS_DEBUG=-O1", "-DKVP_BUILD_FUZZ=OFF", "-DKVP_BUILD_EXAMPLES=OFF", targets=["lib"])
    work.build_tests(UNIT_TESTS)
    work.tests("--tests-regex", f"^({UNIT_TESTS})$")
    work.note = f"{clang_version('clang')}; {work.note}"


def clang_version(program):
    out = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    return re.search(r"clang version ([\d.]+)", out).group(0)


@port("gcc-11", "gcc 11: libraries, command, examples and their tests")
def gcc_11(work):
    need("gcc-11")
    work.build("-DCMAKE_C_COMPILER=gcc-11", "-DKVP_BUILD_FUZZ=OFF",
               targets=["lib", "kvpager_tool", *examples()])
    work.tests("--label-regex", "^examples$")


def examples(without=""):
    names = [os.path.basename(name)[:-len(".expected")]
             for name in glob.glob(os.path.join(ROOT, "examples", "*.expected"))]
    return ["example_" + name for name in sorted(names) if name != without]


@port("no-lto", "cc, each file by itself: libraries, command, examples, the model")
def no_lto(work):
    work.build("-DKVP_LTO=OFF", "-DKVP_BUILD_FUZZ=OFF",
               targets=["lib", "kvpager_tool", "kvp_model", *examples()])
    work.tests("--tests-regex", "^(example_.*|model_allocations)$")


# -------------------------------------------------------------------------------------- switches


@port("core-only", "no attention, memory, sched, transfer, wire, oplog: every test that is left")
def core_only(work):
    work.build(*[f"-DKVP_{room}=OFF" for room in ROOMS], "-DKVP_BUILD_TOOL=OFF",
               "-DKVP_BUILD_FUZZ=OFF", "-DKVP_CHECK=3", "-DCMAKE_BUILD_TYPE=Debug",
               "-DCMAKE_C_FLAGS_DEBUG=-O1")
    work.tests("--label-exclude", "^spin$")


@port("wings", "libkvpager alone, and with libkvpager_data without stores: libraries, two unit tests and an example of each")
def wings(work):
    alone = {"core": (["ATTENTION", "MEMORY", "TRANSFER", "WIRE"], "unit_pool|unit_sched", "scheduler"),
             "data": (["STORE"], "unit_memory|unit_wire", "transfer")}
    for wing, (off, tests, example) in alone.items():
        work.build(*[f"-DKVP_{name}=OFF" for name in off], "-DKVP_BUILD_FUZZ=OFF", "-DCMAKE_BUILD_TYPE=Debug",
                   "-DCMAKE_C_FLAGS_DEBUG=-O1", folder=wing, targets=["lib", f"example_{example}"])
        work.build_tests(tests, folder=wing)
        work.tests("--tests-regex", f"^(exports|example_{example}|{tests})$", folder=wing)


@port("switches", "each switch off by itself: everything is built, unit tests and examples run")
def switches(work):
    together = {"MEMORY": ["ATTENTION", "TRANSFER"]}
    for room in [*ROOMS, "STORE", "STORE_URING"]:
        off = [room, *together.get(room, [])]
        tool = ["-DKVP_BUILD_TOOL=OFF"] if room in ("SCHED", "OPLOG") else []
        work.build(*[f"-DKVP_{name}=OFF" for name in off], *tool, "-DKVP_BUILD_FUZZ=OFF",
                   "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_FLAGS_DEBUG=-O1", folder=room)
        work.tests("--label-regex", "^(unit|examples)$", folder=room)


# --------------------------------------------------------------------------------------- targets

# clang with the headers and stubs of many C libraries, as a package of the index.
ZIG = "ziglang==0.11.*"


def zig_compiler(work, target):
    """A compiler for this target, as one program."""
    python = os.path.join(work.pip(ZIG), "python")
    cc = work.path("zig-cc")
    with open(cc, "w") as file:
        file.write(f'#!/bin/sh\nexec "{python}" -m ziglang cc -target {target} "$@"\n')
    os.chmod(cc, 0o755)
    return cc


def xxhash_alone(work):
    """The option for a folder that has xxhash.h, and no other header of this machine."""
    headers = work.path("headers")
    os.makedirs(headers, exist_ok=True)
    include = subprocess.run(["pkg-config", "--variable=includedir", "libxxhash"],
                             capture_output=True, text=True).stdout.strip()
    shutil.copy(os.path.join(include, "xxhash.h"), headers)
    return f"-DKVP_XXHASH_INCLUDE_DIR={headers}"


def unit_tests(work, cc, *options, without="^$", without_label="^threads$", **env):
    """The library with checks at level 1, and its unit tests; those of threads are for faster machines."""
    work.build(f"-DCMAKE_C_COMPILER={need(cc)}", "-DKVP_BUILD_TESTS=OFF", "-DKVP_BUILD_UNITS=ON",
               "-DKVP_CHECK=1", "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_FLAGS_DEBUG=-O1",
               "-DKVP_INSTALL=OFF", "-DKVP_ATTENTION=OFF", "-DKVP_STORE=OFF",
               *[f"-DKVP_BUILD_{what}=OFF" for what in ["TOOL", "EXAMPLES", "FUZZ"]],
               xxhash_alone(work), *options, **env)
    work.tests("--label-exclude", without_label, "--exclude-regex", without, **env)


def cross(processor, system="Linux", emulator=""):
    """The options for another processor; its programs are static, so that none of its files is needed."""
    return [f"-DCMAKE_SYSTEM_NAME={system}", f"-DCMAKE_SYSTEM_PROCESSOR={processor}",
            "-DCMAKE_EXE_LINKER_FLAGS=-static", f"-DCMAKE_CROSSCOMPILING_EMULATOR={emulator}"]


@port("i686", "32-bit x86: unit tests but attention's")
def i686(work):
    emulator = "" if platform.machine() == "x86_64" else need("qemu-i386")
    unit_tests(work, "i686-linux-gnu-gcc", *cross("i686", emulator=emulator))


@port("s390x-qemu", "s390x (big-endian), qemu: unit tests")
def s390x_qemu(work):
    # qemu does not tell which pages are there, and has no limit of memory. The others take minutes.
    without = ["memory", "cache_faults", "memory_random", "inspect_damage", "sched_overload", "sched_preempt",
               "sched_random", "policy_plain", "wire_groups"]
    unit_tests(work, "s390x-linux-gnu-gcc", *cross("s390x", emulator=need("qemu-s390x")),
               "-DKVP_TRANSFER=OFF", without=f"^unit_({'|'.join(without)})$")


@port("musl", "musl: unit tests")
def musl(work):
    unit_tests(work, "musl-gcc")


@port("posix", "KVP_PLATFORM=posix: unit tests")
def posix(work):
    # Tests of huge pages, and of getrandom.
    unit_tests(work, "cc", "-DKVP_PLATFORM=posix", without="^unit_(memory|seed)$")


@port("glibc-2.17", "linked against glibc 2.17 (clang of zig), core only, and run")
def old_glibc(work):
    work.subproject(cc=zig_compiler(work, "x86_64-linux-gnu.2.17"), CMAKE_C_COMPILER_LAUNCHER="")


def for_aarch64(work, cc):
    """Options of a cross build."""
    return ["-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64", f"-DCMAKE_C_COMPILER={cc}",
            xxhash_alone(work)]


@port("aarch64", "cross-compiled for aarch64 Linux (clang of zig), the whole library; not run")
def aarch64(work):
    cc = zig_compiler(work, "aarch64-linux-gnu.2.28")  # memfd_create: 2.27
    work.build(*for_aarch64(work, cc), "-DCMAKE_C_COMPILER_LAUNCHER=")
    if "AArch64" not in work.run("readelf", "-h", work.path("build", "libkvpager.so")):
        raise Failed("the library is not for aarch64")


def one_file(work, other, compiler, runner, examples=ONE_FILE_EXAMPLES, libraries=(), **env):
    """The same calls give the same log on both machines, and each replays the other's."""
    work.run(sys.executable, os.path.join(ROOT, "scripts", "amalgamation.py"), work.folder)
    logs, machines = {}, {"Linux": ("cc", [], []), other: (compiler, runner, libraries)}
    for name, (cc, runner, libraries) in machines.items():
        work.run(cc, "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-DKVP_CHECK=1", "-c",
                 work.path("kvpager.c"), "-o", work.path(name + ".o"))

        def program(source, name=name, cc=cc, runner=runner, libraries=libraries):
            out = work.path(f"{os.path.basename(source)}-{name}")
            work.run(cc, "-std=c11", "-O1", "-static", "-I", os.path.join(ROOT, "include"),
                     os.path.join(ROOT, source), work.path(name + ".o"), "-lpthread", *libraries, "-o", out)
            return [*runner, out]

        oplog = program("test/cross/oplog.c")
        machines[name] = oplog
        logs[name] = work.path(name + ".kvplog")
        work.run(*oplog, "record", logs[name], **env)
        if name == other:
            for example in examples:
                with open(os.path.join(ROOT, "examples", example + ".expected")) as expected:
                    if work.run(*program(f"examples/{example}.c"), **env) != expected.read():
                        raise Failed(f"{example} prints something else")
    work.run("cmp", *logs.values())
    work.run(*machines[other], "replay", logs["Linux"], **env)
    work.run(*machines["Linux"], "replay", logs[other], **env)
    work.note = f"{len(examples)} examples, a log of {os.path.getsize(logs['Linux'])} bytes"


def aarch64_programs():
    """The compiler, and what runs what it makes."""
    return need("aarch64-linux-gnu-gcc"), [need("qemu-aarch64")]


@port("aarch64-qemu", "the one-file build on aarch64 under qemu, checks at level 1: examples, operation logs")
def aarch64_qemu(work):
    one_file(work, "aarch64", *aarch64_programs())


@port("s390x-logs", "the same on s390x")
def s390x_logs(work):
    one_file(work, "s390x", need("s390x-linux-gnu-gcc"), [need("qemu-s390x")])


@port("macos", "the whole library and one file for macOS (clang of zig); not run")
def macos(work):
    cc = zig_compiler(work, "aarch64-macos")
    work.build("-DCMAKE_SYSTEM_NAME=Darwin", "-DCMAKE_SYSTEM_PROCESSOR=arm64", f"-DCMAKE_C_COMPILER={cc}",
               "-DCMAKE_C_COMPILER_LAUNCHER=", "-DCMAKE_OSX_SYSROOT=", "-DCMAKE_BUILD_TYPE=Debug",
               "-DCMAKE_C_FLAGS_DEBUG=-O1", "-DKVP_BUILD_TESTS=OFF", "-DKVP_INSTALL=OFF", xxhash_alone(work),
               targets=["kvpager_static", "kvpager_shared", "kvpager_data"])
    sources = os.path.join(ROOT, "scripts", "amalgamation.py")
    work.run(sys.executable, sources, work.folder)
    work.run(cc, "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-I", os.path.join(ROOT, "include"),
             work.path("kvpager.c"), os.path.join(ROOT, "examples", "quickstart.c"), "-o", work.path("quickstart"))
    with open(work.path("quickstart"), "rb") as program:
        if program.read(8) != bytes.fromhex("cffaedfe0c000001"):
            raise Failed("the program is not for macOS on arm64")


# apt for another processor, in a folder: the system's packages and lists stay as they are.
APT_CONFIG = """#clear APT::Architectures;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
APT::Architecture "{1}";
APT::Architectures {{ "{1}"; }};
APT::Sandbox::User "root";
Dir::State "{0}/state";
Dir::State::status "{0}/state/status";
Dir::Cache "{0}/cache";
"""
SOURCES_CONFIG = 'Dir::Etc::sourcelist "{0}";\nDir::Etc::sourceparts "-";\n'


def apt(work, name, architecture, more=""):
    """apt-get with a folder of its own, which knows what there is; the words of the command."""
    for program in ["apt-get", "dpkg-deb"]:
        need(program)
    folder = work.path(name)
    config = os.path.join(folder, "apt.conf")
    if not os.path.exists(config):
        for each in ["state/lists/partial", "cache/archives/partial"]:
            os.makedirs(os.path.join(folder, each))
        open(os.path.join(folder, "state", "status"), "w").close()
        with open(config, "w") as file:
            file.write(APT_CONFIG.format(folder, architecture) + more)
        work.run("apt-get", "-c", config, "update")
    return ["apt-get", "-c", config]


def debian_packages(work, architecture, packages, name="root"):
    """The folder that they are unpacked in."""
    downloads, root = work.path(name + ".downloads"), work.path(name)
    os.makedirs(downloads)
    try:
        work.run(*apt(work, "apt", architecture), "download", *packages, cwd=downloads)
    except Failed:
        raise Skipped(f"Debian's packages for {architecture} cannot be had") from None
    for package in glob.glob(os.path.join(downloads, "*.deb")):
        work.run("dpkg-deb", "--extract", package, root)
    return root


def debian_source(work, name):
    """The folder with the source of Debian's package, as its authors released it."""
    downloads, sources = work.path(name + ".source"), work.path("sources.list")
    os.makedirs(downloads)
    with open(sources, "w") as file:
        codename = platform.freedesktop_os_release().get("VERSION_CODENAME", "stable")
        file.write(f"deb-src http://deb.debian.org/debian {codename} main\n")
    try:
        work.run(*apt(work, "apt.sources", "amd64", SOURCES_CONFIG.format(sources)), "source", "--download-only",
                 name, cwd=downloads)
    except Failed:
        raise Skipped(f"Debian's source of {name} cannot be had") from None
    archive, = glob.glob(os.path.join(downloads, "*.orig.tar.*"))
    work.run("tar", "xf", archive, "--strip-components=1", "-C", downloads)
    return downloads


MINGW = "x86_64-w64-mingw32-gcc"


def wine_environment(work):
    """Programs run by wine see only this folder's settings, and say no more than they would on Windows."""
    need("wine")
    os.makedirs(work.path("wine"))
    return {"WINEPREFIX": work.path("wine"), "WINEDEBUG": "-all", "DISPLAY": "", "WINEDLLOVERRIDES": "mscoree,mshtml="}


def start_wine(env):
    """What stays behind the first program would keep its output open: nobody may read that to its end."""
    for command in [["wineserver", "--persistent=600"], ["wine", "wineboot", "--init"]]:
        subprocess.run(command, env={**os.environ, **env}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                       check=True)


def end_wine(env):
    subprocess.run(["wineserver", "--kill"], env={**os.environ, **env}, check=False)


def jansson_for(work, cc, system, *options):
    """jansson for another system, from Debian's source: the folder where pkg-config finds it."""
    source = debian_source(work, "jansson")
    work.run("cmake", "-S", source, "-B", work.path("jansson.build"), "-G", "Ninja", f"-DCMAKE_SYSTEM_NAME={system}",
             f"-DCMAKE_C_COMPILER={cc}", "-DCMAKE_BUILD_TYPE=Release", "-DJANSSON_BUILD_DOCS=OFF",
             "-DJANSSON_EXAMPLES=OFF", "-DJANSSON_WITHOUT_TESTS=ON", "-DCMAKE_POLICY_VERSION_MINIMUM=3.5", "-DCMAKE_INSTALL_LIBDIR=lib",
             f"-DCMAKE_INSTALL_PREFIX={work.path('jansson.root')}", *options)
    work.run("cmake", "--build", work.path("jansson.build"), "--target", "install")
    return work.path("jansson.root", "lib", "pkgconfig")


# OUT is a file that the command writes; a name in {} is what an earlier one wrote, on Linux.
TRACE = "data/mixed-small.jsonl"
COMMANDS = {
    "gen": ["gen", "--profile", "mixed", "--requests", "300", "-o", "OUT"],
    "log": ["replay", "--no-measure", "--json", "--record", "OUT", TRACE],
    "page": ["replay", "--no-measure", "--report", "OUT", TRACE],
    "snapshot": ["replay", "--sequential", "--snapshot-out", "OUT", TRACE],
    "restored": ["replay", "--sequential", "--json", "--snapshot-in", "{snapshot}", TRACE],
    "inspect": ["inspect", "--json", "{snapshot}"],
    "logged": ["trace", "replay", "--check", "1", "{log}"],
    "shown": ["trace", "show", "--results", "--count", "1000", "{log}"],
    "curve": ["mrc", "--json", TRACE],
    "sizes": ["size", "--list"],
}


# Lines of times that were measured.
MEASURED = re.compile(r'^ +(replay|open|extend|close) +[\d.]+ [mun]?s .*\n|^ +"(wall_seconds|\w+_per_second|ns_per_\w+)".*\n',
                      re.MULTILINE)


def compare_commands(work, linux, other, **env):
    """Each command prints the same, and writes the same bytes, with the programs of both machines."""
    folders = [work.path("by.linux"), work.path("by.other")]
    for folder in folders:
        os.makedirs(folder)
    for name, words in COMMANDS.items():
        printed, written = [], []
        for folder, program in zip(folders, [linux, other]):
            out = os.path.join(folder, name)
            given = [out if word == "OUT" else re.sub("{(.*)}", rf"{folders[0]}/\1", word) for word in words]
            printed.append(MEASURED.sub("", work.run(*program, *given, **env).replace(folder, "")))
            written.append(open(out, "rb").read() if "OUT" in words else b"")
        if printed[0] != printed[1] or written[0] != written[1]:
            raise Failed(f"kvpager {' '.join(words)}: differs from what it is on Linux")


def build_command(work, folder, *options, **env):
    work.build("-DKVP_BUILD_TOOL=ON", "-DKVP_STORE=OFF", "-DKVP_INSTALL=OFF", *PLAIN,
               "-DKVP_BUILD_EXAMPLES=OFF", *options, targets=["kvpager_tool", "kvpager_shared", "kvpager_data"], folder=folder, **env)


@port("windows", "Windows (MinGW-w64), wine: unit tests, the command; operation logs")
def windows(work):
    wine, cc = need("wine"), need(MINGW)
    env = wine_environment(work)
    for_windows = {**env, "PKG_CONFIG_LIBDIR": jansson_for(work, cc, "Windows")}
    options = cross("x86_64", "Windows", wine)
    try:
        start_wine(env)
        unit_tests(work, cc, *options, "-DKVP_ATTENTION=ON", without_label="^$", **for_windows)
        notes = work.note
        build_command(work, "linux")
        build_command(work, "command", f"-DCMAKE_C_COMPILER={cc}", *options, xxhash_alone(work), **for_windows)
        compare_commands(work, [work.path("linux", "kvpager")], [wine, work.path("command", "kvpager.exe")],
                         LC_ALL="C", **env)  # no UTF-8, as wine's console
        work.note = f"{notes}, {len(COMMANDS)} commands"
    finally:
        end_wine(env)


@port("windows-logs", "the one-file build for Windows, wine: as s390x-logs")
def windows_logs(work):
    wine, cc = need("wine"), need(MINGW)
    env = wine_environment(work)
    try:
        start_wine(env)
        one_file(work, "Windows", cc, [wine], libraries=["-lbcrypt"], **env)
    finally:
        end_wine(env)


# What the tests need of Debian's packages.
ARM64_PACKAGES = ["libcmocka-dev", "libcmocka0", "libjansson-dev", "libjansson4", "libssl-dev", "libssl3"]


@port("aarch64-tests", "the libraries on aarch64 under qemu, checks at level 1: unit tests, stores, examples, random models")
def aarch64_tests(work):
    compiler, (qemu,) = aarch64_programs()
    root, programs = debian_packages(work, "arm64", ARM64_PACKAGES), examples(without="quickstart_cpp")
    env = {"PKG_CONFIG_SYSROOT_DIR": root,
           "PKG_CONFIG_LIBDIR": os.path.join(root, "usr/lib/aarch64-linux-gnu/pkgconfig")}
    work.build(*for_aarch64(work, compiler), "-DKVP_BUILD_TESTS=ON", "-DKVP_BUILD_EXAMPLES=ON", "-DKVP_CHECK=1",
               f"-DCMAKE_CROSSCOMPILING_EMULATOR={qemu};-L;/usr/aarch64-linux-gnu",
               "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_FLAGS_DEBUG=-O1",
               f"-DCMAKE_C_FLAGS=-isystem {root}/usr/include/aarch64-linux-gnu",
               targets=["kvp_model", "kvp_sched_model", "kvp_shadow", *programs], **env)
    work.build_tests(UNIT_TESTS, **env)
    # Attention on the processor that has all extensions; all tests on one that has none.
    work.tests("--tests-regex", "^unit_att", QEMU_CPU="max")
    work.tests("--tests-regex", f"^({UNIT_TESTS}|model_random_1|sched_model_random_1|shadow_sched_1|{'|'.join(programs)})$",
               QEMU_CPU="cortex-a53")


MODEL_CALLS = 60000


@port("aarch64-units", "aarch64, qemu, checks at level 1: unit tests but attention's, a short run of the model")
def aarch64_units(work):
    compiler, runner = aarch64_programs()
    # Descriptors of a message that is too long for its reader stay open under qemu.
    unit_tests(work, compiler, *cross("aarch64", emulator=";".join(runner)), without="^unit_transfer_shm")
    allocating = ["malloc", "calloc", "realloc", "aligned_alloc", "mmap"]
    work.run(compiler, "-std=c11", "-O1", "-static", "-DKVP_CHECK=1",
             *[f"-I{os.path.join(ROOT, folder)}" for folder in ["include", "src", "test/common"]],
             f"-I{work.path('headers')}", f"-I{work.path('build', 'test')}",
             *sorted(glob.glob(os.path.join(ROOT, "test", "model", "*.c"))),
             *[f"-Wl,--wrap={function}" for function in allocating],
             work.path("build", "test", "libkvp_test_common.a"), work.path("build", "libkvpager.a"),
             "-lpthread", "-lm", "-o", work.path("model"))
    work.run(*runner, work.path("model"), "--seed", "1", "--ops", str(MODEL_CALLS))
    work.note += f", {MODEL_CALLS} calls of the model"


@port("rust", "the Rust crates: bindings, tests with sanitizers, packages and a program that has them")
def rust(work):
    for program in ["cargo", "rustc", "rustfmt", "bindgen"]:
        need(program)
    out = work.run("bash", os.path.join(ROOT, "scripts", "rust.sh"), work.folder)
    n_tests = sum(int(n) for n in re.findall(r"^test result: ok\. (\d+) passed", out, re.MULTILINE))
    work.note = f"{re.search(r'rustc [0-9.]+', out).group(0)}; {n_tests} tests"


# ---------------------------------------------------------------------------------------- Python


def interpreter(version):
    """A Python of this version: on PATH, or one of pyenv's."""
    for program in [shutil.which("python" + version),
                    *glob.glob(os.path.expanduser(f"~/.pyenv/versions/{version}.*/bin/python3"))]:
        if program and subprocess.run([program, "-c", "import ensurepip"],
                                      capture_output=True).returncode == 0:
            return program
    raise Skipped(f"there is no Python {version}")


def add_python(version):
    @port(f"python-{version}", f"the package and its tests with Python {version}")
    def python(work):
        program = interpreter(version)
        out = work.run("bash", os.path.join(ROOT, "python", "run_tests.sh"), work.folder,
                       PYTHON=program, KVP_BUILD="", KVP_CHECK="0")
        match = re.search(r"(\d+) passed", out)
        work.note = match.group(0) if match else ""


for each in ["3.10", "3.11", "3.12", "3.13"]:
    add_python(each)


# ----------------------------------------------------------------------------------- newcomers


def unpack(work):
    """The source archive, in a folder where nothing else is."""
    out = work.run(os.path.join(ROOT, "scripts", "dist.sh"), work.folder)
    archive = re.search(r"(\S+\.tar\.gz)$", out.strip()).group(1)
    work.run("tar", "xzf", archive, "-C", work.folder)
    return archive[:-len(".tar.gz")]


def timed(work, what, *commands, cwd, most=TRIAL_SECONDS):
    """Seconds; on a machine that is busy with other work, as it would take if it were not."""
    def processor_seconds():
        return sum(os.times()[2:4]) / os.cpu_count()
    begin, begin_processor = time.monotonic(), processor_seconds()
    for command in commands:
        work.run("bash", "-euc", command, cwd=cwd, CMAKE_C_COMPILER_LAUNCHER="")
    seconds = time.monotonic() - begin
    if os.getloadavg()[0] > 2 * os.cpu_count():
        seconds = processor_seconds() - begin_processor
    if seconds > most:
        raise Failed(f"{what} took {seconds:.0f} s, more than {most}")
    work.note += f"{', ' if work.note else ''}{what} {seconds:.0f} s"


@port("newcomer", "from the source archive: make run, install, pkg-config, CMake, subproject, pip")
def newcomer(work):
    source = unpack(work)
    use = f"{source}/test/install/use.c"
    prefix = work.path("prefix")
    new = work.path("new")
    for folder in ["pc", "found/src", "sub/src"]:
        os.makedirs(os.path.join(new, folder))
    for folder, line in [("found", "find_package(kvpager REQUIRED)"),
                         ("sub", f'add_subdirectory("{source}" kvpager EXCLUDE_FROM_ALL)')]:
        with open(os.path.join(new, folder, "CMakeLists.txt"), "w") as file:
            file.write(f"cmake_minimum_required(VERSION 3.22)\nproject(engine LANGUAGES C)\n{line}\n"
                       f'add_executable(engine "{use}")\n'
                       "target_link_libraries(engine PRIVATE kvpager::static)\n")
    timed(work, "make run", "make run > report.txt; head -1 report.txt | grep -q mixed-small",
          cwd=source, most=RUN_SECONDS)
    timed(work, "make install", f"make install PREFIX={prefix}", cwd=source)
    timed(work, "pkg-config", f"export PKG_CONFIG_PATH={prefix}/lib/pkgconfig\n"
          f"cc {use} $(pkg-config --cflags --libs kvpager) -Wl,-rpath,{prefix}/lib -o engine\n./engine",
          cwd=os.path.join(new, "pc"))
    for generator, short in [("Ninja", "Ninja"), ("Unix Makefiles", "Makefiles")]:
        for folder, what in [("found", "installed"), ("sub", "subproject")]:
            timed(work, f"{short} {what}",
                  f'cmake -S . -B "{short}" -G "{generator}" -DCMAKE_PREFIX_PATH={prefix}',
                  f'cmake --build "{short}" -j2', f'"{short}/engine"', cwd=os.path.join(new, folder))
    timed(work, "pip", "python3 -m venv venv", f"venv/bin/pip install --quiet {source}/python",
          "venv/bin/python -c 'import kvpager; print(kvpager.Cache(n_blocks=16, block_tokens=4))'",
          cwd=new)


# ------------------------------------------------------------------------------------------ main


def run_one(work, function):
    """(verdict, seconds, note)"""
    begin = time.monotonic()
    try:
        function(work)
        verdict, note = "ok", work.note
        shutil.rmtree(work.folder)
    except Skipped as reason:
        verdict, note = "skipped", str(reason)
    except Failed as reason:
        verdict, note = "FAILED", str(reason)
        with open(work.log) as log:
            print("".join(log.readlines()[-30:]))
    return verdict, time.monotonic() - begin, note


def machine():
    """The figures of a run are of this machine."""
    release = platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    gcc = subprocess.run(["cc", "-dumpfullversion"], capture_output=True, text=True).stdout.strip()
    return f"{release}, {platform.machine()}, {os.cpu_count()} cores, cc {gcc}"


def write(rows):
    """Puts these rows into the page; of builds that were not run it keeps what an earlier run said."""
    with open(PAGE) as file:
        page = file.read()
    before, begin, rest = page.partition(BEGIN)
    inside, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"ports: {PAGE} has no '{BEGIN.strip()}' ... '{END.strip()}'")
    lines = {line.split(" | ")[0][2:]: line for line in inside.split("\n") if line.startswith("| ")}
    for name, verdict, seconds, note in rows:
        lines[name] = f"| {name} | {PORTS[name][0]} | {verdict} | {seconds:.0f} | " \
                      f"{datetime.date.today()} | {note} |"
    text = f"On {machine()}:\n\n| build | what | result | seconds | run on | |\n" \
           "|---|---|---|--:|---|---|\n"
    text += "".join(lines[name] + "\n" for name in PORTS if name in lines)
    with open(PAGE, "w") as file:
        file.write(before + BEGIN + text + END + after)


def print_row(name, verdict, seconds, note):
    print(f"{verdict:8}{seconds:6.0f} s  {name}{': ' + note if note else ''}", flush=True)


def finish(rows):
    n_failed = sum(row[1] == "FAILED" for row in rows)
    n_skipped = sum(row[1] == "skipped" for row in rows)
    print(f"{len(rows) - n_failed - n_skipped} passed, {n_failed} failed, {n_skipped} skipped")
    sys.exit(1 if n_failed else 0)


def main():
    arguments = sys.argv[1:]
    if arguments == ["--list"]:
        for name, (what, _) in PORTS.items():
            print(f"{name:14} {what}")
        return
    names = [argument for argument in arguments if argument != "--write"] or list(PORTS)
    for name in names:
        if name not in PORTS:
            sys.exit(f"ports: there is no {name}; --list has the names")
    rows = []
    for name in names:
        rows.append((name, *run_one(Work(name), PORTS[name][1])))
        if "--write" in arguments:
            write(rows)
        print_row(*rows[-1])
    finish(rows)


if __name__ == "__main__":
    main()
