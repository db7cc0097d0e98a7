#!/usr/bin/env bash
# The binary interface of the libraries beside the one that is kept in packaging/abi.
#
#     scripts/abi.sh BUILD           what a program that was built against that one would miss
#     scripts/abi.sh write BUILD     keep the interfaces of BUILD
#
# BUILD was made by gcc with -g, on x86-64. New functions are no finding. After a release, `write` is
# for a new minor version only. Status: 0 as it was; 1 something changed; 77 nothing could be
# compared: no abidiff (Debian: abigail-tools), another processor, no shared library.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
baseline=$root/packaging/abi
writing=no
if [ "${1:-}" = write ]; then
    writing=yes
    shift
fi
[ $# -eq 1 ] && [ -d "$1" ] || { echo "usage: scripts/abi.sh [write] BUILD" >&2; exit 1; }
build=$1

leave_out() {
    echo "abi: left out: $1"
    exit 77
}
command -v abidiff >/dev/null && command -v abidw >/dev/null || leave_out "no abidiff (abigail-tools)"
[ "$(uname -m)" = x86_64 ] || leave_out "the interfaces kept are those of x86-64"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
changed=no
compared=no
for name in kvpager kvpager_data kvpager_store kvpager_redis kvpager_zmq; do
    library=$(find "$build" -maxdepth 3 -name "lib$name.so" -not -path '*/python-venv/*' -print -quit)
    if [ -z "$library" ]; then
        echo "abi: $name is not built"
        continue
    fi
    abidw --no-corpus-path --no-comp-dir-path --no-show-locs --headers-dir "$root/include" \
        --drop-private-types --out-file "$work/$name.xml" "$library"
    if [ $writing = yes ]; then
        mkdir -p "$baseline"
        xz -9e -c "$work/$name.xml" >"$baseline/$name.xml.xz"
        continue
    fi
    [ -e "$baseline/$name.xml.xz" ] || { echo "abi: $name is new"; continue; }
    compared=yes
    xz -dc "$baseline/$name.xml.xz" >"$work/before.xml"
    if ! abidiff --no-added-syms "$work/before.xml" "$work/$name.xml" >"$work/report"; then
        echo "abi: $name is not what packaging/abi has:"
        cat "$work/report"
        changed=yes
    fi
done
[ $compared$writing != nono ] || leave_out "no library that packaging/abi has"
[ $changed = no ]
