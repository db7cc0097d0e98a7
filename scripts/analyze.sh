#!/bin/sh
# The static analysers beside gcc's own (`make analyze` compiles with that first):
#
#     scripts/analyze.sh BUILD [JOBS]     BUILD has a compile_commands.json
#
# clang-tidy's checks are in .clang-tidy; what cppcheck is wrong about is in scripts/cppcheck.txt.
# Any finding is a failure.
set -eu

build=$1
jobs=${2:-2}

echo 'cppcheck: src, examples, bench'
mkdir -p "$build/cppcheck"
cppcheck --enable=warning,performance,portability --std=c11 --language=c -j "$jobs" --quiet \
    --cppcheck-build-dir="$build/cppcheck" --suppressions-list=scripts/cppcheck.txt \
    --error-exitcode=1 -I include -I src src examples bench

# Findings go to stdout; stderr counts what was found in the system's headers.
echo 'clang-tidy: src, examples'
find src examples -name '*.c' -print0 |
    xargs -0 -P "$jobs" -n 8 clang-tidy -p "$build" --quiet 2>"$build/clang-tidy.log"
