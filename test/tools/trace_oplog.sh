#!/usr/bin/env bash
# kvpager trace: show, replay, diff and shrink of operation logs, and what bad ones get.
set -u

kvpager=${KVPAGER:?path of the command}
writer=${KVP_BUILD:?}/test/test_oplog_replay
if [ ! -x "$writer" ]; then
    echo "skipped: $writer, which writes logs, is not built"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0

fail() {
    echo "FAILED: $*"
    sed 's/^/    out: /' out
    sed 's/^/    err: /' err
    failures=$((failures + 1))
}

# expect STATUS ARGUMENT...: runs `kvpager trace ARGUMENT...` into ./out and ./err.
expect() {
    local wanted=$1 status
    shift
    what="kvpager trace $*"
    "$kvpager" trace "$@" >out 2>err
    status=$?
    [ "$status" = "$wanted" ] || fail "$what: status $status, wanted $wanted"
}

has() { grep -qF -e "$2" "$1" || fail "$what: no '$2' in $1"; }
lines() { [ "$(wc -l <"$1")" = "$2" ] || fail "$what: $(wc -l <"$1") lines in $1, wanted $2"; }

# poke FILE OFFSET BYTE: overwrites one byte (octal, three digits).
poke() { printf "\\$3" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none; }

"$writer" --write a.kvplog 1 300 || exit 1
"$writer" --write b.kvplog 2 300 || exit 1
size=$(wc -c <a.kvplog)

# ---- show
expect 0 show a.kvplog
lines out 301
lines err 0
has out "block_tokens=4 unit_tokens=2 n_blocks=24"
has out '#0  ns_open(name="'
has out "= KVP_OK seq=0x"
expect 0 show a.kvplog --from 10 --count 5
lines out 6
has out "#10  "
has out "#14  "
expect 0 show --results a.kvplog
has out "cached_tokens="
has out "digest="
has out "decisions="
expect 0 show a.kvplog --from 1000
lines out 1
# A host tier, overlapped steps, events.
"$writer" --write tiers.kvplog 24 800 || exit 1
expect 0 show --results tiers.kvplog
has out "host_blocks=14 keep_evicted=1 steps=overlapped max_steps_out=3 max_events=16"
has out "seq_swap_out(seqs=[0x"
has out "KVP_OK copied_blocks="
has out "step_begin(capacity="
has out "KVP_OK step=1 n="
has out "step_commit(step="
has out "step_done(step="
has out "KVP_OK effective="
has out "step_failed(step="
has out "token_digest="
has out "events_snapshot(capacity="
has out "KVP_E_TOO_SMALL number="
has out "block_info_get(host, block="
has out " tier=device"

# Groups, windows, trees.
"$writer" --write trees.kvplog 5 800 || exit 1
expect 0 show --results trees.kvplog
has out " max_tree_tokens=10 n_groups=3 window=full window=3+6 window=0+9"
has out "seq_window(seq=0x"
has out "seq_window_get(seq=0x"
has out " dropped_begin=1"
has out " parents=["
has out " leaves=["
has out "max_moves="
has out "seq_tree(seq=0x"
has out "capacity="
has out ", with_tokens, with_parents) = KVP_OK n="
has out "KVP_E_DROPPED"
has out " group="

# ---- replay
for level in 0 1 2 3; do
    expect 0 replay a.kvplog --check $level
    has out "300 calls, every result as recorded"
done
expect 0 replay tiers.kvplog --check 3
has out "800 calls, every result as recorded"
expect 0 replay trees.kvplog --check 3
has out "800 calls, every result as recorded"

# The last call's results: another byte there is another result.
head -c -1 a.kvplog >altered.kvplog
last=$(tail -c 1 a.kvplog | od -An -tu1 | tr -d ' ')
printf "\\$(printf %03o $((last ^ 1)))" >>altered.kvplog
expect 1 replay altered.kvplog
has err "altered.kvplog: call #299 gives another result"
has err "  expected: = KVP_"
has err "  got:      = KVP_"

# ---- diff
expect 0 diff a.kvplog a.kvplog
has out "no difference in 300 calls"
expect 1 diff a.kvplog altered.kvplog
has out "call #299 differs:"
has out "  a.kvplog: "
has out "  altered.kvplog: "
expect 1 diff a.kvplog b.kvplog
has out "differs:"
cp a.kvplog other.kvplog
poke other.kvplog 8 010
expect 1 diff a.kvplog other.kvplog
has out "the configurations differ:"
has out "other.kvplog: block_tokens=8"
"$writer" --write short.kvplog 1 200
expect 1 diff a.kvplog short.kvplog
has out "call #200 differs:"
has out "short.kvplog: (ends here)"

# ---- damage
head -c $((size - 1)) a.kvplog >cut.kvplog
expect 1 show cut.kvplog
lines out 300
has err "kvpager trace show: cut.kvplog: offset $((size - 1)): the log ends, in call #299"
expect 1 replay cut.kvplog
has err "cut.kvplog: offset $((size - 1)): the log ends, in call #299"
expect 1 diff a.kvplog cut.kvplog
has err "cut.kvplog: offset"
expect 1 shrink cut.kvplog -o small.kvplog
has err "cut.kvplog: offset $((size - 1)): the log ends, in call #299"
cp a.kvplog wrong.kvplog
printf '\377\377' >>wrong.kvplog
expect 1 replay wrong.kvplog
has err "wrong.kvplog: offset $size: cut or damaged, in call #300"

: >empty
echo '{"timestamp": 0}' >not_a_log
cp a.kvplog older.kvplog
poke older.kvplog 6 063
head -c 20 a.kvplog >stump
for subcommand in show replay; do
    expect 1 $subcommand empty
    has err "empty: is empty"
    expect 1 $subcommand not_a_log
    has err "not_a_log: not an operation log"
    expect 1 $subcommand older.kvplog
    has err "older.kvplog: an operation log of another version"
    has err "this program reads version 1: record it anew"
    expect 1 $subcommand stump
    has err "stump: not an operation log, or cut"
    expect 1 $subcommand missing
    has err "missing: cannot open: No such file"
    expect 1 $subcommand .
    has err ".: "
done

# A log whose cache cannot exist: unit_tokens does not divide block_tokens.
poke other.kvplog 9 003
expect 1 replay other.kvplog
has err "cannot create a cache of the log's configuration"

# ---- shrink
expect 1 shrink a.kvplog -o small.kvplog
has err "nothing to shrink: no check finds a violation"
[ ! -e small.kvplog ] || fail "$what: wrote small.kvplog"
export KVPAGER
# "Fails" when a close succeeds: that takes a namespace, a sequence, and the close.
fails='! "$KVPAGER" trace show {} | grep -q "seq_close.*= KVP_OK"'
expect 0 shrink a.kvplog -o "it's small.kvplog" --command "$fails"
has out "300 calls -> 3 after"
expect 0 show "it's small.kvplog"
lines out 4
has out "seq_close("
expect 0 replay "it's small.kvplog" --check 3
# A step is followed to its report, whatever its number becomes.
fails='! "$KVPAGER" trace show {} | grep -q "step_done(step=.*= KVP_OK"'
expect 0 shrink tiers.kvplog -o small.kvplog --command "$fails"
has out "800 calls -> 2 after"
expect 0 show small.kvplog
has out "step_begin("
has out "step_done(step=1) = KVP_OK effective=1"
# A path that moves needs a tree, its tokens computed, and what made them.
fails='! "$KVPAGER" trace show --results {} | grep -q "seq_accept(.*= KVP_OK n=[1-9]"'
expect 0 shrink trees.kvplog -o small.kvplog --command "$fails"
expect 0 show small.kvplog
has out "seq_extend_tree("
has out "seq_accept("
expect 0 replay small.kvplog --check 3
rm small.kvplog
expect 1 shrink a.kvplog -o small.kvplog --command 'true {}'
has err "nothing to shrink: the command succeeds"
expect 1 shrink a.kvplog -o small.kvplog --command './no_such_program {}'
has err "cannot run './no_such_program {}'"
expect 1 shrink a.kvplog -o no/such/place --command 'false {}'
has err "no/such/place.candidate: "
ls ./*.candidate >/dev/null 2>&1 && fail "a candidate file was left behind"

# ---- usage
for help in "--help" "show --help" "replay --help" "diff --help" "shrink --help"; do
    # shellcheck disable=SC2086
    expect 0 $help
    has out "Usage: kvpager trace"
done
expect 2
expect 2 frobnicate
has err "unknown subcommand 'frobnicate'"
expect 2 show
has err "which log?"
expect 2 show a.kvplog b.kvplog
expect 2 show a.kvplog --count many
has err "--count is 'many'"
expect 2 show a.kvplog --nothing
expect 2 replay a.kvplog --check 4
has err "--check is '4'"
expect 2 replay
expect 2 diff a.kvplog
has err "which two logs?"
expect 2 diff a.kvplog a.kvplog a.kvplog
expect 2 shrink a.kvplog
has err "-o OUT"
expect 2 shrink a.kvplog -o a.kvplog
expect 2 shrink a.kvplog -o b --command 'no place'
has err "expected {}"

[ $failures = 0 ] && echo "all as expected"
exit $((failures > 0))
