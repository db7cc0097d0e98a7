#!/bin/sh
# The static analysers (make analyze), one after the other:
#
#     scripts/analyze.sh BUILD [JOBS [PARTS]]   BUILD has a compile_commands.json that was made for gcc
#
# PARTS: one of so many parts of the files, the next one with each commit; cppcheck reads all.
# clang-tidy's checks are in .clang-tidy; what gcc and cppcheck are wrong about is in gcc_analyzer.txt
# and cppcheck.txt. Any finding is a failure.
set -eu

build=$1
jobs=${2:-2}
parts=${3:-1}
part=$([ "$parts" = 1 ] && echo 0 || echo $(($(git rev-list --count HEAD) % parts)))
status=0

echo 'gcc -fanalyzer: src, examples'
scripts/gcc_analyzer.py "$build" "$jobs" "$part" "$parts" || status=1

echo 'cppcheck: src, examples, bench'
mkdir -p "$build/cppcheck"
cppcheck --enable=warning,performance,portability --std=c11 --language=c -j "$jobs" \
    --file-filter='*.c' \
    --quiet --cppcheck-build-dir="$build/cppcheck" --suppressions-list=scripts/cppcheck.txt \
    --error-exitcode=1 -I include -I src src examples bench || status=1

# Findings go to stdout; stderr counts what was found in the system's headers. One file at a time, and
# each as it is compiled first: the va_list of one is uninitialised to clang-tidy when it has read
# another one before. Only files that are built: clang-tidy would guess how others are compiled.
echo 'clang-tidy: src, examples'
mkdir -p "$build/clang-tidy"
python3 - "$build" <<'PYTHON' || status=1
import json, sys
with open(sys.argv[1] + "/compile_commands.json", encoding="utf-8") as file:
    entries = {entry["file"]: entry for entry in reversed(json.load(file))}
with open(sys.argv[1] + "/clang-tidy/compile_commands.json", "w", encoding="utf-8") as file:
    json.dump(list(entries.values()), file, indent=1)
PYTHON
sed -n -E 's#^ *"file": "(.*/(src|examples)/.*\.c)",?$#\1#p' "$build/clang-tidy/compile_commands.json" |
    sort -u | awk -v n="$parts" -v part="$part" 'NR % n == part' | tr '\n' '\0' |
    xargs -0 -P "$jobs" -n 1 clang-tidy -p "$build/clang-tidy" --quiet 2>"$build/clang-tidy.log" ||
    status=1
exit $status
