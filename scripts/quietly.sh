#!/bin/sh
# Runs a command; its output is shown only if it fails.
#
#     scripts/quietly.sh COMMAND [ARGUMENT...]
#
# Status: the command's.
set -u
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$@" >"$log" 2>&1
status=$?
[ $status -eq 0 ] || cat "$log" >&2
exit $status
