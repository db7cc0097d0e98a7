#!/usr/bin/env bash
# Builds kvpager-serve over a llama.cpp of ours as a shared library, installs it and moves the tree.
# The installed server must run, also where the build is gone.
#
# Environment (from CTest): KVP_SOURCE, KVP_LIBDIR, CC, CMAKE. Status 77: libmicrohttpd or jansson is
# missing.
set -euo pipefail

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

trap 'echo "FAILED: line $LINENO: $BASH_COMMAND" >&2' ERR

missing=$("$KVP_SOURCE/scripts/setup.sh" serve --list-missing) || true
case $missing in *libmicrohttpd* | *libjansson*) echo "skipped: missing are $missing"; exit 77 ;; esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fake=$KVP_SOURCE/test/llama/fake
llama=$work/llama
mkdir "$llama"
"$CC" -std=gnu11 -O1 -fPIC -shared -I"$fake" -o "$llama/libllama.so" -Wl,-soname,libllama.so "$fake"/*.c -lm

"$CMAKE" -S "$KVP_SOURCE" -B "$work/build" -G Ninja -DCMAKE_C_COMPILER="$CC" -DKVP_LTO=OFF \
    -DKVP_BUILD_TESTS=OFF -DKVP_BUILD_FUZZ=OFF -DKVP_BUILD_EXAMPLES=OFF -DKVP_BUILD_TOOL=OFF \
    -DKVP_STORE=OFF -DKVP_ATTENTION=OFF -DKVP_TRANSFER=OFF -DKVP_OPLOG=OFF \
    -DKVP_LLAMA_INCLUDE="$fake" -DKVP_LLAMA_LIBRARY="$llama/libllama.so" >"$work/log" 2>&1 ||
    { cat "$work/log"; fail "configure"; }
"$CMAKE" --build "$work/build" --parallel 2 >"$work/log" 2>&1 || { tail -50 "$work/log"; fail "build"; }
DESTDIR=$work/stage "$CMAKE" --install "$work/build" --prefix /opt/kvp >"$work/log" 2>&1 ||
    { cat "$work/log"; fail "cmake --install"; }
rm -rf "$work/build"
prefix=$work/moved
mv "$work/stage/opt/kvp" "$prefix"

server=$prefix/bin/kvpager-serve
[ -x "$server" ] || fail "kvpager-serve is not installed"
export LD_LIBRARY_PATH=$prefix/$KVP_LIBDIR:$llama
"$server" --help >"$work/help" || fail "the installed server does not run"
grep -q -- '--port' "$work/help" || { cat "$work/help"; fail "--help has no --port"; }
! readelf -d "$server" | grep -E 'R(UN)?PATH' || fail "the installed server remembers a folder"
echo "ok: kvpager-serve is installed and runs"
