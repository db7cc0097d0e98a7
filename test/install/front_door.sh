#!/usr/bin/env bash
# What `make run` and `make lib` build, and what `make run` says.
#
# Environment (from CTest): KVP_SOURCE, KVP_BUILD.
set -euo pipefail

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

trap 'echo "FAILED: line $LINENO: $BASH_COMMAND" >&2' ERR

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset MAKEFLAGS MAKELEVEL MFLAGS
quietly=$KVP_SOURCE/scripts/quietly.sh

said=$("$quietly" sh -c 'echo built; echo warned >&2' 2>&1) || fail "quietly: a status of its own"
[ -z "$said" ] || fail "quietly says: $said"
status=0
said=$("$quietly" sh -c 'echo built; echo broken >&2; exit 7' 2>&1) || status=$?
[ $status -eq 7 ] || fail "quietly ends with $status, not 7"
[ "$said" = $'built\nbroken' ] || fail "a build that fails says: $said"

# needs TARGET: the sources of what a target is made of.
needs() {
    ninja -C "$KVP_BUILD" -t inputs "$1" 2>/dev/null | grep '\.c$'
}
if [ -e "$KVP_BUILD/build.ninja" ] && needs kvpager_tool >"$work/tool"; then
    grep -q '/src/tool/main\.c$' "$work/tool" || fail "the command is not made of src/tool"
    ! grep -E '/(test|bench|fuzz|examples)/' "$work/tool" || fail "make run builds more than the command"
    needs lib >"$work/lib"
    grep -q '/src/core/' "$work/lib" || fail "make lib builds no library"
    ! grep -E '/(test|bench|fuzz|examples|src/tool)/' "$work/lib" ||
        fail "make lib builds more than the libraries"
    echo "ok: $(wc -l <"$work/tool") files for make run, $(wc -l <"$work/lib") for make lib"
fi

# With everything built, the report is all that make run prints.
if [ "$KVP_BUILD" = "$KVP_SOURCE/build/release" ]; then
    arguments="--limit 20 data/mixed-small.jsonl"
    # shellcheck disable=SC2086
    (cd "$KVP_SOURCE" && "$KVP_BUILD/kvpager" replay --no-measure $arguments) >"$work/expected"
    make -s -C "$KVP_SOURCE" run RUN_ARGS="--no-measure $arguments" >"$work/run" 2>&1 ||
        { cat "$work/run"; fail "make run"; }
    diff "$work/expected" "$work/run" || fail "make run prints more than the report"
    echo "ok: make run prints the report"
fi
