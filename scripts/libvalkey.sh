#!/bin/sh
# Sees to it that there is libvalkey, the client of Redis and Valkey, for libkvpager_redis.
#
#     scripts/libvalkey.sh [FOLDER]   build it in FOLDER (build/libvalkey), unless the system has it
#
# Where pkg-config knows libvalkey, that one is used. Else the C sources come from PyPI's source
# package of the same name, which is pinned by its checksum. Needs python3 (PYTHON) and a C compiler.
# When nothing is missing it takes a few milliseconds and says nothing.
# Status: always 0: without libvalkey there is no libkvpager_redis, and CMake says so.
set -eu

VERSION=4.2.1
SHA256=7f0ffb6dfa9c01cde7f398d8bab93d2566597cbad17f4068d019bb5cf335bd47
# Connections and replies: clusters and TLS are libkvpager_redis's own.
SOURCES="adlist alloc async conn dict dns net read sds sockcompat timer valkey vkutil"

root=$(cd "$(dirname "$0")/.." && pwd)
place=${1:-$root/build/libvalkey}
[ ! -e "$place/ready-$VERSION-1" ] || exit 0
! pkg-config --exists 'libvalkey >= 0.5' 2>/dev/null || exit 0

# Of a build of a Python package that this is part of: pip would take its backend for libvalkey's.
unset PYTHONPATH _PYPROJECT_HOOKS_BUILD_BACKEND _PYPROJECT_HOOKS_BACKEND_PATH \
    PEP517_BUILD_BACKEND PEP517_BACKEND_PATH

log=$(mktemp)
work="$place.new"
give_up() {
    echo "kvpager: no libvalkey, so no libkvpager_redis: $1" >&2
    tail -n 3 "$log" >&2
    rm -rf "$work" "$log"
    exit 0
}

rm -rf "$work"
mkdir -p "$work/objects" "$work/include"
echo "libvalkey==$VERSION --hash=sha256:$SHA256" >"$work/needs"
"${PYTHON:-python3}" -m venv "$work/venv" >"$log" 2>&1 || give_up "python3 makes no virtual environment"
"$work/venv/bin/pip" download --quiet --no-deps --no-binary :all: --require-hashes \
    -r "$work/needs" -d "$work" >"$log" 2>&1 || give_up "its sources cannot be downloaded"
tar -xzf "$work/libvalkey-$VERSION.tar.gz" -C "$work" >"$log" 2>&1 || give_up "a bad archive"
sources="$work/libvalkey-$VERSION/vendor/libvalkey"
for name in $SOURCES; do
    # shellcheck disable=SC2086
    ${CC:-cc} -std=c99 -O2 -g -fPIC -fvisibility=hidden -w -I "$sources/include" \
        -I "$sources/include/valkey" -I "$sources/src" -c "$sources/src/$name.c" \
        -o "$work/objects/$name.o" >"$log" 2>&1 || give_up "$name.c cannot be compiled"
done
${AR:-ar} rcs "$work/libvalkey.a" "$work"/objects/*.o >"$log" 2>&1 || give_up "ar failed"
cp -R "$sources/include/valkey" "$work/include/valkey"
cp "$sources/COPYING" "$work/COPYING"
rm -rf "$work/venv" "$work/objects" "$work/libvalkey-$VERSION" "$place" "$log"
touch "$work/ready-$VERSION-1"
mv "$work" "$place"
