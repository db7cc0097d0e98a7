#!/usr/bin/env bash
# scripts/stages.sh: runs what a file lists, stops at a failure, fails over a budget, prints times.
set -u
stages=$KVP_SOURCE/scripts/stages.sh
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() {
    echo "stages: $1" >&2
    cat "$dir/out" >&2
    exit 1
}
run() {
    "$stages" "$@" >"$dir/out" 2>&1
    status=$?
}

printf '# comment\none 60 echo first\ntwo 60 echo second; test ! -t 0\n' >"$dir/good"
run "$dir/good"
[ $status -eq 0 ] || fail "two good stages gave $status"
grep -q '^first$' "$dir/out" && grep -q '^second$' "$dir/out" || fail "a stage did not run"
grep -Eq '^one +[0-9]+ s of +60 s  ok$' "$dir/out" || fail "no line of times"

run "$dir/good" two
[ $status -eq 0 ] && ! grep -q '^first$' "$dir/out" || fail "a stage ran that was not named"

printf 'one 60 true\ntwo 60 exit 7\nthree 60 touch %s/ran\n' "$dir" >"$dir/red"
run "$dir/red"
[ $status -eq 1 ] || fail "a red stage gave $status"
[ ! -e "$dir/ran" ] || fail "a stage ran after a red one"
grep -q 'two .*failed with status 7' "$dir/out" || fail "the red stage is not named"

printf 'slow 0 sleep 1.1\nnext 60 touch %s/ran\n' "$dir" >"$dir/slow"
run "$dir/slow"
[ $status -eq 1 ] || fail "a stage over its budget gave $status"
[ -e "$dir/ran" ] || fail "the stages after a slow one did not run"
grep -q 'slow .*over its budget' "$dir/out" || fail "the slow stage is not named"

printf 'one 60 sleep 1.1\nlate 1\ntwo 60 touch %s/ran\n' "$dir" >"$dir/late"
rm -f "$dir/ran"
run "$dir/late"
[ $status -eq 0 ] && [ ! -e "$dir/ran" ] || fail "a sample began late, or its absence gave $status"
grep -q '^two .*left out' "$dir/out" || fail "the sample that was left out is not named"
run "$dir/late" two
[ $status -eq 0 ] && [ -e "$dir/ran" ] || fail "a sample that was named did not run"
printf 'late soon\none 60 true\n' >"$dir/bad"
run "$dir/bad"
[ $status -eq 2 ] || fail "a bad limit gave $status"

printf 'one soon true\n' >"$dir/bad"
run "$dir/bad"
[ $status -eq 2 ] || fail "a bad budget gave $status"
run "$dir/absent"
[ $status -eq 2 ] || fail "a missing file gave $status"
run "$dir/good" nothing
[ $status -eq 2 ] || fail "an unknown stage gave $status"
