#!/usr/bin/env bash
# Runs the stages that a file lists, and holds each to its time.
#
#     scripts/stages.sh FILE [STAGE...]     all stages of FILE, or those named
#
# A line of FILE is a name, a budget in whole seconds and a command; `#` begins a comment. The run
# stops at the first stage whose command fails. A stage over its budget fails the run, too, but only
# at the end, so that one run shows the time of every stage. Behind a line `late SECONDS` are samples
# of what takes longer than a run: when all stages are run, none of them begins after so many seconds.
# Status: 0 all green and in time; 1 a stage failed or was too slow; 2 FILE cannot be used.
set -u

usage() {
    echo "stages: $1" >&2
    exit 2
}

[ $# -ge 1 ] || usage "needs a file of stages"
file=$1
shift
[ -r "$file" ] || usage "cannot read $file"

names=()
budgets=()
commands=()
limits=()
limit=
while read -r name budget command; do
    case $name in '' | '#'*) continue ;; esac
    if [ "$name" = late ]; then
        [[ $budget =~ ^[0-9]+$ && -z $command ]] || usage "$file: 'late' needs seconds, and nothing else"
        limit=$budget
        continue
    fi
    [[ $budget =~ ^[0-9]+$ && -n $command ]] ||
        usage "$file: '$name' needs a budget in seconds and a command"
    if [ $# -eq 0 ] || [[ " $* " == *" $name "* ]]; then
        names+=("$name")
        budgets+=("$budget")
        commands+=("$command")
        limits+=("$([ $# -gt 0 ] || echo "$limit")")
    fi
done <"$file"
[ ${#names[@]} -gt 0 ] || usage "$file: no stage to run"

failed=no
table=
for at in "${!names[@]}"; do
    if [ -n "${limits[at]}" ] && [ $SECONDS -ge "${limits[at]}" ]; then
        table+=$(printf '%-14s left out: %d s are over' "${names[at]}" $SECONDS)$'\n'
        continue
    fi
    echo "== ${names[at]}: ${commands[at]}"
    began=$SECONDS
    bash -c "${commands[at]}" </dev/null
    status=$?
    took=$((SECONDS - began))
    verdict=ok
    if [ $status -ne 0 ]; then
        verdict="failed with status $status"
    elif [ $took -gt "${budgets[at]}" ]; then
        verdict="over its budget"
    fi
    table+=$(printf '%-14s %5d s of %5d s  %s' "${names[at]}" $took "${budgets[at]}" "$verdict")$'\n'
    [ "$verdict" = ok ] || failed=yes
    [ $status -eq 0 ] || break
done
printf '\n%s' "$table"
[ $failed = no ]
