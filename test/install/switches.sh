#!/usr/bin/env bash
# What the switches of the build refuse and what they do on a tree that is configured already; and
# that a cross build asks the machine it runs on for nothing. Only configures.
#
# Environment (from CTest): KVP_SOURCE, CC, CMAKE.
set -euo pipefail

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

trap 'echo "FAILED: line $LINENO: $BASH_COMMAND" >&2' ERR

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset PKG_CONFIG_LIBDIR PKG_CONFIG_SYSROOT_DIR

configure() { # folder, options
    local folder=$work/$1
    shift
    "$CMAKE" -S "$KVP_SOURCE" -B "$folder" -G Ninja -DCMAKE_C_COMPILER="$CC" \
        -DKVP_BUILD_TESTS=OFF -DKVP_BUILD_FUZZ=OFF -DKVP_BUILD_EXAMPLES=OFF "$@" >"$work/log" 2>&1
}
works() {
    configure "$@" || { cat "$work/log"; fail "refused: $*"; }
}
refused() { # what it must say, options
    local text=$1
    shift
    ! configure again "$@" || fail "not refused: $*"
    # CMake breaks lines of messages.
    tr -s ' \n' ' ' <"$work/log" | grep -q -- "$text" || { cat "$work/log"; fail "no '$text': $*"; }
    echo "ok: refused: $*"
}
has_target() { # folder, target
    "$CMAKE" --build "$work/$1" --target help | grep -q "^$2:"
}

refused 'KVP_ATTENTION needs KVP_MEMORY' -DKVP_MEMORY=OFF -DKVP_TRANSFER=OFF
refused 'KVP_TRANSFER needs KVP_MEMORY' -DKVP_MEMORY=OFF -DKVP_ATTENTION=OFF -DKVP_TRANSFER=ON
refused 'the kvpager command needs' -DKVP_MEMORY=ON -DKVP_SCHED=OFF -DKVP_BUILD_TOOL=ON
refused 'need the whole library' -DKVP_SCHED=ON -DKVP_TRANSFER=OFF -DKVP_BUILD_BENCH=ON
refused "KVP_PLATFORM is 'windows'; it must be posix" -DKVP_BUILD_BENCH=OFF -DKVP_PLATFORM=windows
refused 'KVP_BUILD_UNITS builds a part' -DKVP_PLATFORM= -DKVP_BUILD_UNITS=ON -DKVP_BUILD_TESTS=ON

refused 'KVP_STORE needs KVP_MEMORY' -DKVP_BUILD_UNITS=OFF -DKVP_MEMORY=OFF -DKVP_ATTENTION=OFF \
    -DKVP_TRANSFER=OFF -DKVP_STORE=ON

works tree
for target in kvpager_shared kvpager_data; do
    has_target tree $target || fail "no $target"
done
# A wing goes with the last of its rooms.
data_off=(-DKVP_ATTENTION=OFF -DKVP_MEMORY=OFF -DKVP_TRANSFER=OFF)
works wire "${data_off[@]}"
has_target wire kvpager_data || fail "no libkvpager_data, though it has worker messages"
works core "${data_off[@]}" -DKVP_WIRE=OFF
for target in kvpager_shared kvpager_tool; do
    has_target core $target || fail "without the data wing there is no $target"
done
for target in kvpager_data kvpager_store; do
    ! has_target core $target || fail "without the data wing there is $target"
done

# A cross build with a compiler that happens to be the machine's own.
works cross -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=riscv64
for target in kvpager_store kvpager_tool kvpager_trace; do
    ! has_target cross $target || fail "a cross build has $target"
done
if grep -E '^(KVP_(JANSSON|XXHASH)|pkgcfg_lib_).*=(/usr|.*-l)' "$work/cross/CMakeCache.txt"; then
    fail "a cross build found the machine's own libraries"
fi
if grep -q -- '-I */usr\|-isystem */usr' "$work/cross/build.ninja"; then
    fail "a cross build includes the machine's own headers"
fi
echo "ok: a cross build finds nothing of this machine"
