#!/bin/sh
# Sees to it that this machine has what the build needs.
#
#     scripts/setup.sh                    install what is missing (Debian, as root or with sudo)
#     scripts/setup.sh fuzz               the same, with what the fuzzers need besides
#     scripts/setup.sh browser            and a browser, in which the report's test looks at its pages;
#                                         without one that test is skipped
#     scripts/setup.sh coverage           and what counts covered lines and branches
#     scripts/setup.sh analyze            and the static analysers
#     scripts/setup.sh instructions       and what counts instructions
#     scripts/setup.sh ports              and other compilers, those of rust among them
#     scripts/setup.sh cross              and what builds and runs programs for aarch64
#     scripts/setup.sh rust               and what builds, checks and tests the Rust crates
#     scripts/setup.sh packages           and what makes Debian packages and inspects them
#     scripts/setup.sh wheels             and what runs the wheels for aarch64
#     scripts/setup.sh ccache             and what keeps compiled files for the next build
#     scripts/setup.sh serve              and what kvpager-serve needs; without it, its tests are left out
#     scripts/setup.sh [WORD...] --list-missing
#                                         only say what is missing; status 1 if anything
#
# When nothing is missing it takes a few milliseconds and says nothing, so every make target can
# begin with it. What counts is whether a tool or library can be used, not where it came from.
# Status: 0 all there; 1 something is missing and cannot be installed from here.
set -eu

want_fuzz=no
want_browser=no
want_coverage=no
want_analyze=no
want_instructions=no
want_ports=no
want_cross=no
want_rust=no
want_packages=no
want_wheels=no
want_serve=no
want_ccache=no
list_only=no
for argument in "$@"; do
    case $argument in
    fuzz) want_fuzz=yes ;;
    browser) want_browser=yes ;;
    coverage) want_coverage=yes ;;
    analyze) want_analyze=yes ;;
    instructions) want_instructions=yes ;;
    cross) want_cross=yes ;;
    ports) want_ports=yes want_cross=yes want_rust=yes ;;
    rust) want_rust=yes ;;
    packages) want_packages=yes ;;
    wheels) want_wheels=yes ;;
    serve) want_serve=yes ;;
    ccache) want_ccache=yes ;;
    --list-missing) list_only=yes ;;
    *)
        echo "usage: scripts/setup.sh [fuzz] [browser] [coverage] [analyze] [instructions]" \
            "[ports] [cross] [rust] [wheels] [packages] [ccache] [serve] [--list-missing]" >&2
        exit 2
        ;;
    esac
done

have() { command -v "$1" >/dev/null 2>&1; }
have_module() { have pkg-config && pkg-config --exists "$@" 2>/dev/null; }

is_debian() { have apt-get && have dpkg; }

# A gcc without the C library's headers is common on small images; Debian keeps them here.
have_compilers() {
    cc=${CC:-cc}
    cxx=${CXX:-c++}
    have "${cc%% *}" && have "${cxx%% *}" || return 1
    ! is_debian || [ -e /usr/include/stdio.h ]
}

# Every machine's own clang brings the runtime that -fsanitize=fuzzer needs in a package of the
# same version.
have_fuzzer_runtime() {
    directory=$(clang -print-runtime-dir 2>/dev/null) || return 1
    for file in "$directory"/libclang_rt.fuzzer*; do
        [ -e "$file" ] && return 0
    done
    return 1
}

# The names that test/tools/lib_browser.py knows.
have_browser() {
    have chromium || have chromium-browser || have google-chrome || have google-chrome-stable
}

# bindgen loads libclang when it reads a header.
have_libclang() { have bindgen && bindgen /dev/null -- -x c >/dev/null 2>&1; }

fuzzer_runtime_package() {
    version=$(apt-cache depends clang 2>/dev/null |
        sed -n 's/^ *Depends: clang-\([0-9][0-9]*\)$/\1/p' | head -n 1)
    echo "libclang-rt-${version:-14}-dev"
}

# Headers and venv of the interpreter: the Python package is built and tested with them.
missing_python_packages() {
    have python3 || { echo python3-venv python3-dev; return; }
    python3 -I -S -c '
import importlib.util, os, sysconfig
if importlib.util.find_spec("ensurepip") is None:
    print("python3-venv")
if not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
    print("python3-dev")'
}

# Names the missing things, by their Debian packages.
missing_packages() {
    have_compilers || echo build-essential
    have cmake || echo cmake
    have ninja || echo ninja-build
    have pkg-config || echo pkg-config
    have python3 || echo python3
    missing_python_packages
    have spin || echo spin
    # A server for the tests of redis: stores, which start it by this name; redis-tools has the program,
    # and no service that would be started. Elsewhere the tests are skipped without it.
    ! is_debian || have redis-server || have redis-check-rdb || echo redis-tools
    have openssl || echo openssl
    ! is_debian || have abidiff || echo abigail-tools
    # One call for all when they are there: the usual case is the fast one.
    if ! have_module libxxhash cmocka jansson zlib libzstd libevent 'libcrypto >= 3.0' 'liburing >= 2.2'; then
        have_module libxxhash || echo libxxhash-dev
        have_module cmocka || echo libcmocka-dev
        have_module jansson || echo libjansson-dev
        have_module zlib || echo zlib1g-dev
        have_module libzstd || echo libzstd-dev
        have_module libevent || echo libevent-dev
        have_module 'libcrypto >= 3.0' || echo libssl-dev
        have_module 'liburing >= 2.2' || echo liburing-dev
    fi
    have_module 'libzmq >= 4.3' || echo libzmq3-dev
    have_module msgpack || have_module msgpack-c || echo libmsgpack-dev
    if [ $want_fuzz = yes ]; then
        have clang || echo clang
        have clang && have_fuzzer_runtime || fuzzer_runtime_package
    fi
    if [ $want_browser = yes ]; then
        have_browser || echo chromium
    fi
    if [ $want_coverage = yes ]; then
        have gcovr || echo gcovr
    fi
    if [ $want_analyze = yes ]; then
        have clang-tidy || echo clang-tidy
        have cppcheck || echo cppcheck
    fi
    if [ $want_instructions = yes ]; then
        have valgrind && [ -e /usr/include/valgrind/callgrind.h ] || echo valgrind
    fi
    if [ $want_serve = yes ]; then
        have_module 'libmicrohttpd >= 0.9.72' || echo libmicrohttpd-dev
    fi
    if [ $want_ccache = yes ]; then
        have ccache || echo ccache
    fi
    if [ $want_rust = yes ]; then
        have rustc || echo rustc
        have cargo || echo cargo
        have rustfmt || echo rustfmt
        have bindgen || echo bindgen
        have_libclang || echo libclang1
    fi
    if [ $want_cross = yes ]; then
        ! is_debian || have aarch64-linux-gnu-gcc || echo gcc-aarch64-linux-gnu libc6-dev-arm64-cross
        ! is_debian || have qemu-aarch64 || echo qemu-user
    fi
    # Elsewhere scripts/packages.sh skips these packages.
    if [ $want_packages = yes ] && is_debian; then
        have dpkg-buildpackage || echo dpkg-dev
        have dh || echo debhelper
        have lintian || echo lintian
    fi
    if [ $want_wheels = yes ]; then
        ! is_debian || have qemu-aarch64 || echo qemu-user
    fi
    if [ $want_ports = yes ]; then
        have clang || echo clang
        # Debian's oldest; elsewhere scripts/ports.py skips what is not there.
        ! is_debian || have gcc-11 || echo gcc-11
        ! is_debian || have i686-linux-gnu-gcc || echo gcc-i686-linux-gnu libc6-dev-i386-cross
        ! is_debian || have s390x-linux-gnu-gcc || echo gcc-s390x-linux-gnu libc6-dev-s390x-cross
        ! is_debian || have musl-gcc || echo musl-tools
        ! is_debian || have x86_64-w64-mingw32-gcc || echo gcc-mingw-w64-x86-64
        ! is_debian || have wine || echo wine64 wine
    fi
}

# Without pkg-config nothing is known of the libraries, so all are named; installing what is
# there already does no harm.
missing=$(missing_packages | tr '\n' ' ')
missing=${missing% }
[ -n "$missing" ] || exit 0

if [ $list_only = yes ]; then
    echo "$missing" | tr ' ' '\n'
    exit 1
fi

if ! is_debian; then
    {
        echo "kvpager: missing here: $missing"
        echo "(these are the names of Debian packages; please install what your system calls them)"
    } >&2
    exit 1
fi

as_root=
if [ "$(id -u)" != 0 ]; then
    if have sudo && sudo -n true 2>/dev/null; then
        as_root="sudo -n"
    else
        {
            echo "kvpager: missing Debian packages, which only root can install. Please run"
            echo
            echo "    sudo apt-get update && sudo apt-get install -y --no-install-recommends $missing"
            echo
            echo "and then the same command again."
        } >&2
        exit 1
    fi
fi

echo "kvpager: installing $missing" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt_get() {
    # shellcheck disable=SC2086
    if ! $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y "$@" >"$log" 2>&1; then
        cat "$log" >&2
        echo "kvpager: 'apt-get $*' failed" >&2
        exit 1
    fi
}
apt_get update
if [ $want_fuzz = yes ]; then
    # The lists are fresh only now: on a bare machine the runtime's version was a guess before.
    missing=$(missing_packages | tr '\n' ' ')
fi
# shellcheck disable=SC2086
apt_get install --no-install-recommends $missing

still_missing=$(missing_packages | tr '\n' ' ')
if [ -n "$still_missing" ]; then
    echo "kvpager: installed, but still not usable: $still_missing" >&2
    exit 1
fi
