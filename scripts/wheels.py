#!/usr/bin/env python3
"""Makes what a release of the Python package consists of, and tests it: build/wheels/*.whl, *.tar.gz.

    wheels.py [NAME...]     x86_64, aarch64, sdist: all, or some

The wheels are manylinux_2_28 wheels for the Python that runs this script. They are compiled by the
clang of zig, against the interface of glibc 2.28 and the headers of Debian's packages, which are
unpacked in the build folder. The kernels' own tests run on the very library that a wheel contains;
those of aarch64, and its wheel, run under qemu. Logs are build/wheels/NAME.log. What the machine or
the package index lacks is a reason to skip. Status 1 if one fails.
"""

import glob
import os
import re
import shutil
import subprocess
import sys
import sysconfig

from ports import ROOT, Failed, Skipped, Work, debian_packages, finish, need, print_row, run_one

OUT = os.path.join(ROOT, "build", "wheels")
NEEDS = os.path.join(ROOT, "scripts", "wheels.txt")
PACKAGE = os.path.join(ROOT, "python")
TESTS = os.path.join(PACKAGE, "tests")
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
TAG = "cp" + VERSION.replace(".", "")
GLIBC = 28  # of 2.28
DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
# What is compiled and linked with, and of the tests.
TO_BUILD = ["libssl-dev", "libssl3", "libxxhash-dev", "libcmocka-dev", "libcmocka0", "libjansson-dev",
            "libjansson4"]
# A Python for qemu, without libcrypto.
TO_RUN = ["libc6", f"libpython{VERSION}-minimal", f"libpython{VERSION}-stdlib", f"python{VERSION}-minimal",
          "libbz2-1.0", "libexpat1", "libffi8", "libgcc-s1", "liblzma5", "libstdc++6", "libuuid1", "zlib1g"]
# Not test_attn_large, which takes minutes under qemu.
KERNELS = ["attn_ahead", "attn_fast", "attention", "attention_exact", "checksum"]
# Of the store's library the system has to have this one: docs/PYTHON.md says why.
FROM_THE_SYSTEM = "libcrypto.so.3"
IMPORTS = "import kvpager; print(kvpager.Cache(n_blocks=16, block_tokens=4))"
NO_STORE = """
try:
    import kvpager.store
    raise SystemExit("kvpager.store was imported")
except ImportError as error:
    assert "libcrypto" in str(error), error
"""


def tools(work):
    """The folder of the programs that scripts/wheels.txt lists."""
    venv = os.path.join(OUT, "tools-" + VERSION)
    with open(NEEDS) as file:
        needs = sys.version + file.read()
    ready = os.path.join(venv, "needs")
    if not os.path.exists(ready) or open(ready).read() != needs:
        shutil.rmtree(venv, ignore_errors=True)
        work.run(sys.executable, "-m", "venv", venv)
        try:
            work.run(os.path.join(venv, "bin", "pip"), "install", "--quiet", "--require-hashes",
                     "--only-binary=:all:", "-r", NEEDS)
        except Failed:
            raise Skipped("the package index lacks a file that scripts/wheels.txt lists") from None
        with open(ready, "w") as file:
            file.write(needs)
    return os.path.join(venv, "bin")


def python_headers(work, machine):
    """Those of this Python: of the interpreter itself, or of Debian's package for that processor."""
    headers = sysconfig.get_path("include")
    if machine != "x86_64" or not os.path.exists(os.path.join(headers, "pyconfig.h")):
        root = debian_packages(work, DEBIAN[machine], [f"libpython{VERSION}-dev"], "python.package")
        headers = os.path.join(root, "usr/include", "python" + VERSION)
    copy, (include, name) = work.path("python"), os.path.split(headers)
    shutil.copytree(headers, copy)
    own = os.path.join(include, machine + "-linux-gnu", name, "pyconfig.h")
    if os.path.exists(own):  # Debian's pyconfig.h only includes the one of the processor
        shutil.copy(own, copy)
    return copy


def write_program(path, command):
    with open(path, "w") as file:
        file.write(f"#!/bin/sh\nexec {command}\n")
    os.chmod(path, 0o755)


def compiler(work, bin_folder, machine, root):
    """clang as one program, which knows the headers of that folder as its own."""
    path, include = work.path("cc"), f"{root}/usr/include"
    write_program(path, f'"{bin_folder}/python" -m ziglang cc -target {machine}-linux-gnu.2.{GLIBC} "$@" '
                  f'-isystem "{include}" -isystem "{include}/{machine}-linux-gnu"')
    return path


def build_library(work, machine, cc, runner, env):
    """libkvpager.a and libkvpager_store_static.a, with the kernels' own tests."""
    targets = ["kvpager_static", "kvpager_store_static", *[f"test_{name}" for name in KERNELS]]
    work.build("-DCMAKE_SYSTEM_NAME=Linux", f"-DCMAKE_SYSTEM_PROCESSOR={machine}", f"-DCMAKE_C_COMPILER={cc}",
               "-DCMAKE_C_COMPILER_LAUNCHER=", f"-DCMAKE_CROSSCOMPILING_EMULATOR={';'.join(runner)}",
               "-DKVP_BUILD_TESTS=ON", "-DKVP_STORE=ON", "-DKVP_STORE_URING=OFF", "-DKVP_REDIS=OFF", targets=targets, folder="library", **env)
    work.tests("--tests-regex", f"^unit_({'|'.join(KERNELS)})$", folder="library")


def build_wheel(work, machine, bin_folder, cc, env):
    """The wheel, with the library that was tested; auditwheel sees that it is what its tag says."""
    tag = f"manylinux_2_{GLIBC}_{machine}"
    define = {"CMAKE_SYSTEM_NAME": "Linux", "CMAKE_SYSTEM_PROCESSOR": machine,
              "Python_INCLUDE_DIR": python_headers(work, machine),
              "KVP_LIBRARY": work.path("library", "libkvpager.a"),
              "KVP_STORE_LIBRARY": work.path("library", "libkvpager_store_static.a")}
    settings = [f"cmake.define.{name}={value}" for name, value in define.items()]
    settings += [f"wheel.tags={TAG}-{TAG}-{tag}", "install.strip=false"]  # the linker strips
    work.run(os.path.join(bin_folder, "pip"), "wheel", "--no-build-isolation", "--no-deps", "--no-index",
             "--wheel-dir", work.path("wheel"), *[f"--config-settings={each}" for each in settings], PACKAGE,
             CC=cc, CFLAGS="", LDFLAGS="-s", **env)
    wheel, = glob.glob(work.path("wheel", "*.whl"))
    audit(work, wheel, bin_folder)
    contents = work.run(sys.executable, "-m", "zipfile", "-l", wheel)
    for name in ["_native", "_store_native", "THIRD-PARTY-NOTICES", "LICENSE"]:
        if not re.search(rf"^kvpager/{name}\b", contents, re.MULTILINE):
            raise Failed(f"{os.path.basename(wheel)} is without {name}")
    return wheel


def audit(work, wheel, bin_folder):
    """Raises Failed unless the wheel needs nothing newer than its tag allows, and no other library."""
    audited = work.path("audited")
    path = bin_folder + os.pathsep + os.environ["PATH"]
    work.run(os.path.join(bin_folder, "auditwheel"), "repair", "--exclude", FROM_THE_SYSTEM, "--wheel-dir",
             audited, wheel, PATH=path)
    repaired, = glob.glob(os.path.join(audited, "*.whl"))
    found = [int(minor) for minor in re.findall(r"manylinux_2_(\d+)_", repaired)]
    if max(found) > GLIBC or ".libs/" in work.run(sys.executable, "-m", "zipfile", "-l", repaired):
        raise Failed(f"auditwheel made {os.path.basename(repaired)} of it")


def fresh_venv(work, *arguments, **env):
    """A new virtual environment, in which pip installs this; its interpreter."""
    venv = work.path("venv")
    work.run(sys.executable, "-m", "venv", venv)
    env.setdefault("PATH", os.path.join(venv, "bin"))
    try:
        work.run(os.path.join(venv, "bin", "pip"), "install", "--quiet", *arguments, **env)
    except Failed:
        raise Failed(f"{' '.join(arguments)} cannot be installed") from None
    return os.path.join(venv, "bin", "python")


def run_tests(work, command, names, **env):
    """Of python/tests, with the package that is installed."""
    paths = [os.path.join(TESTS, name) for name in names]
    out = work.run(*command, "-m", "pytest", "-c", os.path.join(PACKAGE, "pyproject.toml"), "--rootdir", PACKAGE,
                   *paths, cwd=work.folder, PYTHONDONTWRITEBYTECODE="1", **env)
    work.note += ", " + re.search(r"\d+ passed", out).group(0) + " with the wheel"


def make_wheel(work, machine, runner, test):
    bin_folder = tools(work)
    root = debian_packages(work, DEBIAN[machine], TO_BUILD)
    env = {"PKG_CONFIG_SYSROOT_DIR": root,
           "PKG_CONFIG_LIBDIR": f"{root}/usr/lib/{machine}-linux-gnu/pkgconfig",
           "ZIG_GLOBAL_CACHE_DIR": os.path.join(OUT, "zig-cache"),
           "ZIG_LOCAL_CACHE_DIR": os.path.join(OUT, "zig-cache")}
    cc = compiler(work, bin_folder, machine, root)
    build_library(work, machine, cc, runner, env)
    wheel = build_wheel(work, machine, bin_folder, cc, env)
    test(work, wheel)
    shutil.copy(wheel, OUT)


def x86_64(work):
    """Installed where PATH has no compiler, and tested by all tests of the package."""
    def test(work, wheel):
        python = fresh_venv(work, "--only-binary=:all:", wheel)
        path = os.path.dirname(python)
        work.run(python, "-c", IMPORTS, cwd=work.folder, PATH=path)
        work.run(os.path.join(path, "pip"), "install", "--quiet", "pytest", "hypothesis", "xxhash")
        run_tests(work, [python], [""], KVP_PYTHON_STORES="1", KVP_SEEDS="1")
    make_wheel(work, "x86_64", [], test)


def aarch64(work):
    """Installed by pip for that platform, and run by Debian's Python for arm64 under qemu."""
    qemu, root = need("qemu-aarch64"), debian_packages(work, "arm64", TO_RUN, "system")

    def test(work, wheel):
        site, platforms = work.path("site"), ["manylinux_2_28", "manylinux_2_17", "manylinux2014"]
        work.run(os.path.join(tools(work), "pip"), "install", "--quiet", "--only-binary=:all:", "--target", site,
                 "--python-version", VERSION, *[f"--platform={each}_aarch64" for each in platforms],
                 wheel, "pytest", "hypothesis", "xxhash")
        program = os.path.join(root, "usr/bin/python" + VERSION)
        env = {"PYTHONHOME": os.path.join(root, "usr"), "PYTHONPATH": site}
        command = [qemu, "-L", root]
        for name, value in env.items():
            command += ["-E", f"{name}={value}"]
        work.run(*command, program, "-c", IMPORTS + NO_STORE)
        libraries = work.path("root", "usr/lib/aarch64-linux-gnu")
        run_tests(work, [*command, "-E", f"LD_LIBRARY_PATH={libraries}", program],
                  ["test_cache.py", "test_memory.py", "test_docs.py::test_the_example_of_stores_runs"])
    make_wheel(work, "aarch64", [qemu, "-L", root], test)


def sdist(work):
    """Built where PATH has a C compiler and nothing else, and where that has no xxhash.h."""
    bin_folder = tools(work)
    made = work.path("sdist")
    work.run(os.path.join(bin_folder, "python"), "-c", "import sys; sys.path.insert(0, 'backend'); "
             "import kvpager_backend; kvpager_backend.build_sdist(sys.argv[1])", made, cwd=PACKAGE)
    archive, = glob.glob(os.path.join(made, "*.tar.gz"))
    programs, no_xxhash = work.path("programs"), work.path("include")
    os.makedirs(programs)
    os.makedirs(no_xxhash)
    for name in ["as", "ld", "ar", "ranlib", "strip", "sh"]:
        os.symlink(shutil.which(need(name)), os.path.join(programs, name))
    with open(os.path.join(no_xxhash, "xxhash.h"), "w") as file:
        file.write("#error not of the sdist\n")
    write_program(os.path.join(programs, "cc"), f'"{shutil.which(need("cc"))}" "$@" -isystem "{no_xxhash}"')
    python = fresh_venv(work, archive, PATH=programs, CC="cc", CMAKE_C_COMPILER_LAUNCHER="")
    work.run(python, "-c", IMPORTS, cwd=work.folder)
    shutil.copy(archive, OUT)


MAKES = {function.__name__: function for function in [x86_64, aarch64, sdist]}


def main():
    names = sys.argv[1:] or list(MAKES)
    for name in names:
        if name not in MAKES:
            sys.exit(f"wheels: there is no {name}; there are {', '.join(MAKES)}")
    rows = []
    for name in names:
        rows.append((name, *run_one(Work(name, "wheels"), MAKES[name])))
        print_row(*rows[-1])
    for path in sorted(glob.glob(os.path.join(OUT, "*.whl")) + glob.glob(os.path.join(OUT, "*.tar.gz"))):
        subprocess.run(["sha256sum", path], check=True)
    finish(rows)


main()
