#!/usr/bin/env bash
# The source archive is the same, byte for byte, from two clones of different users with different
# settings; and it is whole: it configures.
#
# Environment (from CTest): KVP_SOURCE, KVP_VERSION, CC, CMAKE.
set -euo pipefail

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

trap 'echo "FAILED: line $LINENO: $BASH_COMMAND" >&2' ERR

if ! git -C "$KVP_SOURCE" rev-parse --verify --quiet HEAD >/dev/null 2>&1; then
    echo "skipped: not a git checkout"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# One of the two clones has other settings, times and folders.
git clone --quiet --no-hardlinks "$KVP_SOURCE" "$work/a"
git clone --quiet --no-hardlinks "$KVP_SOURCE" "$work/another place"
git -C "$work/another place" config tar.umask 0077
git -C "$work/another place" config core.autocrlf true
find "$work/another place" -name '*.c' -exec touch -d 2001-01-01 {} +
(cd "$work/a" && umask 022 && TZ=UTC "$KVP_SOURCE/scripts/dist.sh" "$work/1") >"$work/log"
(cd "$work/another place" && umask 077 && TZ=Asia/Tokyo GZIP=-1 "$KVP_SOURCE/scripts/dist.sh" "$work/2") \
    >>"$work/log" 2>&1 || { cat "$work/log"; fail "dist.sh"; }
version=$(sed -n 's/^project(kvpager VERSION \([0-9.]*\).*/\1/p' "$work/a/CMakeLists.txt")
archive=kvpager-$version.tar.gz
cmp "$work/1/$archive" "$work/2/$archive" || fail "the archives differ"

tar xzf "$work/1/$archive" -C "$work"
grep -q 'Yann Collet' "$work/kvpager-$version/THIRD-PARTY-NOTICES" || fail "there is no notice of xxHash"
diff -r --exclude .git --exclude THIRD-PARTY-NOTICES "$work/a" "$work/kvpager-$version" || fail "the archive lacks files"
"$CMAKE" -S "$work/kvpager-$version" -B "$work/build" -DCMAKE_C_COMPILER="$CC" \
    -DKVP_BUILD_TESTS=OFF >"$work/log" 2>&1 || { cat "$work/log"; fail "it does not configure"; }
echo "ok: $(sha256sum <"$work/1/$archive" | cut -c1-16) $archive"
