#!/bin/sh
# scripts/fuzz.sh BUILD SECONDS: runs every fuzz target of a libFuzzer build for SECONDS each.
#
# New inputs are kept in BUILD/corpus/<name>/, beside the checked-in ones, which are only read; an
# input that fails is BUILD/<name>-crash-*. Status 1 if any target failed.
set -eu

build=$1
seconds=$2
source=$(cd "$(dirname "$0")/.." && pwd)
status=0
found=no
for program in "$build"/fuzz/fuzz_*; do
    [ -f "$program" ] && [ -x "$program" ] || continue
    found=yes
    name=${program##*/fuzz_}
    mkdir -p "$build/corpus/$name"
    set -- "$build/corpus/$name"
    [ ! -d "$source/fuzz/corpus/$name" ] || set -- "$@" "$source/fuzz/corpus/$name"
    echo "== $name: $seconds s"
    "$program" -max_total_time="$seconds" -timeout=25 -rss_limit_mb=4096 -print_final_stats=1 \
        -artifact_prefix="$build/$name-" "$@" || status=1
done
if [ $found = no ]; then
    echo "no fuzz targets in $build/fuzz" >&2
    exit 1
fi
exit $status
