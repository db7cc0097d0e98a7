#!/bin/sh
# Runs a command; its output is shown only if it fails. If it takes more than two seconds, says on
# stderr what happens, and on a terminal shows the newest line of its output (ninja's is a count).
#
#     scripts/quietly.sh WHAT COMMAND [ARGUMENT...]
#
# Status: the command's.
set -u
what=$1
shift
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# The command stays in front: it gets Ctrl-C. `sleep` outlives this script by a moment, so it must not
# hold what a caller reads to its end.
watch() {
    sleep 2 >/dev/null 2>&1
    echo "kvpager: $what ..." >&2
    [ -t 2 ] || return 0
    while :; do
        columns=$(stty size <&2 2>/dev/null | cut -d' ' -f2)
        [ "${columns:-0}" -gt 1 ] || columns=80
        printf '\r%s\033[K' "$(tail -n 1 "$log" | cut -c "1-$((columns - 1))")" >&2
        sleep 1 >/dev/null 2>&1
    done
}

watch &
"$@" >"$log" 2>&1
status=$?
kill $! 2>/dev/null
wait $! 2>/dev/null
[ ! -t 2 ] || printf '\r\033[K' >&2
[ $status -eq 0 ] || cat "$log" >&2
exit $status
