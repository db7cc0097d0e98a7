#!/usr/bin/env bash
# Builds an embedder's project with the sources in it: with Makefiles, without a build type, without
# pkg-config, with the cache and metadata only. Then looks at what was built, and how.
#
#     subproject.sh [GENERATOR [OPTION...]]     another generator; -D options for the whole library
#
# Environment (from CTest): KVP_SOURCE, KVP_VERSION, CC, CMAKE, NM.
set -euo pipefail

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

trap 'echo "FAILED: line $LINENO: $BASH_COMMAND" >&2' ERR

generator=${1:-Unix Makefiles}
shift || true
options=("$@")
whole=yes
if [ ${#options[@]} -eq 0 ]; then
    whole=no
    options=(-DKVP_ATTENTION=OFF -DKVP_MEMORY=OFF -DKVP_SCHED=OFF -DKVP_TRANSFER=OFF -DKVP_WIRE=OFF
        -DKVP_OPLOG=OFF)
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
build=$work/build

# A pkg-config that knows nothing: the libraries need none.
"$CMAKE" -S "$KVP_SOURCE/test/install/subproject" -B "$build" -G "$generator" \
    -DCMAKE_C_COMPILER="$CC" -DKVPAGER="$KVP_SOURCE" -DPKG_CONFIG_EXECUTABLE=/bin/false \
    -DKVP_INSTALL=ON "${options[@]}" >"$work/log" 2>&1 || { cat "$work/log"; fail "configure"; }
"$CMAKE" --build "$build" --parallel 2 >"$work/log" 2>&1 || { tail -50 "$work/log"; fail "build"; }
! grep -q 'warning:' "$work/log" || { grep 'warning:' "$work/log"; fail "warnings"; }
programs="use_shared use_static"
[ $whole = no ] || programs="$programs use_data"
for program in $programs; do
    output=$("$build/$program") || fail "$program ended with $?"
    [ "$output" = "kvpager $KVP_VERSION" ] || fail "$program printed '$output'"
done

# The libraries and nothing else, and the embedder's cache is as it was.
grep -q '^CMAKE_BUILD_TYPE:STRING=$' "$build/CMakeCache.txt" || fail "the build type was set"
ours=$build/kvpager
[ -d "$ours" ] || ours=$build/_deps/kvpager-build # FetchContent's place
made=$(find "$ours" -type f \( -name '*.so*' -o -name '*.a' -o -perm -u+x \) -printf '%f\n' |
    LC_ALL=C sort | tr '\n' ' ')
expected="libkvpager.a libkvpager.so.$KVP_VERSION "
[ $whole = no ] || expected="${expected}libkvpager_data.so.$KVP_VERSION "
[ "$made" = "$expected" ] || fail "built: $made"

# Optimised, quiet; the headers are a system's to the embedder. One line an entry: python reads them.
# shellcheck disable=SC2086
python3 - "$build/compile_commands.json" "$KVP_SOURCE" $programs <<'END' || fail "compile commands"
import json, shlex, sys
commands, source, *programs = sys.argv[1:]
n_ours = n_theirs = 0
for entry in json.load(open(commands)):
    words = shlex.split(entry["command"])
    if entry["file"].startswith(source + "/src/"):
        n_ours += 1
        assert "-O3" in words, words
        assert "-w" in words and "-Wconversion" not in words, words
    else:
        n_theirs += 1
        assert "-O3" not in words and "-w" not in words, words
        assert words[words.index("-isystem") + 1] == source + "/include", words
assert n_ours > 30 and n_theirs == len(programs), (n_ours, n_theirs)
END

# Without a room nothing of it is linked, none of its functions shown, none of its headers installed.
if [ $whole = no ]; then
    library=$ours/libkvpager.so
    "$NM" "$library" >"$work/symbols"
    grep -q ' kvp_seq_open$' "$work/symbols" || fail "no symbols to look at"
    rooms='attn|attend|rope|kernel|memory|layer|copier|stream|team|type|sched|wire|transfer'
    rooms="$rooms|checksum|link|oplog|shrink|call_run|layout_(init|check|arrange)"
    there=$(grep -E " kvpi?_($rooms)" "$work/symbols" || true)
    [ -z "$there" ] || fail "linked, though left out: $there"
    "$CMAKE" --install "$build" --prefix "$work/prefix" >"$work/log" 2>&1 || { cat "$work/log"; fail "install"; }
    for header in attention memory sched wire transfer oplog; do
        [ ! -e "$work/prefix/include/kvpager/$header.h" ] || fail "$header.h is installed"
    done
    (cd "$work/prefix/include" && printf '#include <%s>\n' kvpager/*.h) >"$work/all.c"
    "$CC" -std=c11 -E -P -I"$work/prefix/include" "$work/all.c" | tr '\n' ' ' |
        grep -o '__attribute__((visibility("default")))[^;{]*' |
        sed -n 's/^__attribute__((visibility("default")))//; s/ *(.*//; s/.*[ *]\(kvp_[a-z0-9_]*\)$/\1/p' |
        sort -u >"$work/declared"
    exported() { # names that a library exports
        "$NM" -D --defined-only "$1" | awk '{print $NF}' | sed 's/@.*//' | sort -u
    }
    # Not what the tools put into every library that calls the system, as this one, which has
    # nothing to export.
    cat >"$work/nothing.c" <<'END'
#include <errno.h>
#include <sys/stat.h>
static struct stat info;
__attribute__((visibility("hidden"), used)) int look(int file)
{
    return fstat(file, &info) == 0 ? 0 : errno;
}
END
    "$CC" -shared -fPIC -o "$work/nothing.so" "$work/nothing.c"
    exported "$library" >"$work/all"
    exported "$work/nothing.so" | comm -13 - "$work/all" >"$work/exported"
    diff "$work/declared" "$work/exported" || fail "declared and exported differ (< declared)"
    echo "ok: $(wc -l <"$work/declared") functions of the cache and its metadata, nothing else"
fi
echo "ok: $generator"
