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

said=$("$quietly" what sh -c 'echo built; echo warned >&2' 2>&1) || fail "quietly: a status of its own"
[ -z "$said" ] || fail "quietly says: $said"
status=0
said=$("$quietly" what sh -c 'echo built; echo broken >&2; exit 7' 2>&1) || status=$?
[ $status -eq 7 ] || fail "quietly ends with $status, not 7"
[ "$said" = $'built\nbroken' ] || fail "a build that fails says: $said"
# What takes long says what it is, on stderr only; on a terminal also how far it is.
slowly='for i in 1 2; do echo "[$i/2]"; while [ ! -e "$0" ]; do sleep 0.1; done; done'
slow() { # PLACE COMMAND...: ends it when it has said what is awaited in PLACE
    local place=$1 tries=0
    shift
    "$@" &
    until grep -q "$awaited" "$place" 2>/dev/null || [ $((tries += 1)) -gt 300 ]; do sleep 0.1; done
    touch "$work/end"
    wait $! || fail "it ends with $?: $*"
    rm "$work/end"
    grep -q "$awaited" "$place" || fail "no '$awaited' in: $(cat "$place")"
}
awaited='^kvpager: making it \.\.\.$'
slow "$work/err" "$quietly" 'making it' sh -c "$slowly" "$work/end" >"$work/out" 2>"$work/err"
[ ! -s "$work/out" ] || fail "what it builds is on stdout: $(cat "$work/out")"
[ "$(wc -l <"$work/err")" = 1 ] || fail "more than one line: $(cat "$work/err")"
if command -v script >/dev/null; then
    awaited='\[1/2\]'
    slow "$work/tty" script -qfec "'$quietly' 'making it' sh -c '$slowly' '$work/end'" "$work/tty" >/dev/null
fi

# How much runs at once: never none, and not more than there are processors.
jobs=$("$KVP_SOURCE/scripts/jobs.sh")
[ "$jobs" -ge 1 ] && [ "$jobs" -le "$(nproc)" ] || fail "$jobs jobs on $(nproc) processors"

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
    make -s -C "$KVP_SOURCE" run RUN_ARGS="--no-measure $arguments" >"$work/run" 2>"$work/err" ||
        { cat "$work/run" "$work/err"; fail "make run"; }
    diff "$work/expected" "$work/run" || fail "make run prints more than the report"
    # On a machine with other work, looking whether there is something to build takes long, too.
    ! grep -v '^kvpager: .* \.\.\.$' "$work/err" || fail "make run says more than what it does"
    echo "ok: make run prints the report"
fi
