# The command as a whole: help, version, unknown words, and output that cannot be written.
set -u
failures=0
: "${KVPAGER:?the command}"
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

# expect STATUS NAME COMMAND...: runs, keeps $dir/out and $dir/err
expect() {
    local want=$1 name=$2 got=0
    shift 2
    "$@" >"$dir/out" 2>"$dir/err" || got=$?
    if [ "$got" -ne "$want" ]; then
        echo "FAILED: $name: status $got, expected $want"; cat "$dir/err"
        failures=$((failures + 1))
    fi
}

# has FILE TEXT
has() {
    if ! grep -qF -- "$2" "$dir/$1"; then
        echo "FAILED: '$2' is not in:"; cat "$dir/$1"
        failures=$((failures + 1))
    fi
}

# empty FILE
empty() {
    if [ -s "$dir/$1" ]; then
        echo "FAILED: $1 is not empty:"; cat "$dir/$1"
        failures=$((failures + 1))
    fi
}

for words in "--help" "help" "-h" "replay --help" "mrc --help" "compare --help" "gen --help" "size --help" "replay -h" "gen --seed 3 --help"; do
    # shellcheck disable=SC2086 # several words
    expect 0 "$words" "$KVPAGER" $words
    has out "Usage: kvpager"
    empty err
    if [ "$(awk 'length > 80' "$dir/out" | wc -l)" -ne 0 ]; then
        echo "FAILED: '$words' is wider than 80 columns"; failures=$((failures + 1))
    fi
done
expect 0 help "$KVPAGER" --help
for word in replay mrc compare size gen store trace --version; do has out "$word"; done
expect 0 "replay --help" "$KVPAGER" replay --help
for option in --block-tokens --unit-tokens --report --blocks --memory --kv-bytes-per-token --no-prefix-cache --speedup --model \
              --model-config --device --tp --host-blocks --host-memory --preempt --watermark --step-tokens \
              --chunk-tokens --max-running --step-ns --prompt-token-ns --no-measure \
              --output-tokens --sequential --limit --trace-block --lenient --seed --record --json; do
    has out "$option"
done
expect 0 version "$KVPAGER" --version
grep -Eqx 'kvpager [0-9]+\.[0-9]+\.[0-9]+' "$dir/out" || {
    echo "FAILED: --version prints: $(cat "$dir/out")"; failures=$((failures + 1)); }

expect 2 "no command" "$KVPAGER";             has err "Usage: kvpager"; empty out
expect 2 "unknown command" "$KVPAGER" reply;  has err "unknown command 'reply'"; has err "--help"
expect 2 "unknown option" "$KVPAGER" --bogus; has err "unknown option '--bogus'"; empty out

expect 2 "gen operand" "$KVPAGER" gen x;                  has err "'x' is not expected"
expect 2 "gen profile" "$KVPAGER" gen --profile chess;    has err "expected one of: chat, agent"
expect 2 "gen rate" "$KVPAGER" gen --rate 0;              has err "--rate is '0', expected"
expect 2 "gen rate" "$KVPAGER" gen --rate 1.2345;         has err "--rate is '1.2345', expected"
expect 2 "gen requests" "$KVPAGER" gen --requests 1e3;    has err "--requests is '1e3', expected"
expect 1 "gen into nowhere" "$KVPAGER" gen -o "$dir/a/b"; has err "cannot write $dir/a/b"
expect 1 "gen into a directory" "$KVPAGER" gen -o "$dir"; has err "cannot write $dir"

"$KVPAGER" gen --profile chat --requests 3 -o "$dir/trace" || failures=$((failures + 1))
if [ -w /dev/full ]; then
    expect 1 "gen, disk full" "$KVPAGER" gen -o /dev/full;  has err "No space left"
    [ -e /dev/full ] || { echo "FAILED: /dev/full was removed"; failures=$((failures + 1)); }
    for words in "--help" "--version" "gen --requests 3" "replay --blocks 99 $dir/trace" \
                 "replay --blocks 99 --json $dir/trace" "replay --help"; do
        got=0
        # shellcheck disable=SC2086 # several words
        "$KVPAGER" $words >/dev/full 2>"$dir/err" || got=$?
        [ "$got" -eq 1 ] || {
            echo "FAILED: '$words' into a full disk: status $got"; failures=$((failures + 1)); }
        has err "No space left"
    done
fi
# A reader that goes away ends the command as SIGPIPE would, without a word.
for words in "gen --requests 100000" "size --list" "--help"; do
    # shellcheck disable=SC2086 # several words
    { sleep 0.2; "$KVPAGER" $words 2>"$dir/err"; echo $? >"$dir/out"; } | true
    has out 141
    empty err
done

# What was meant
expect 2 "near command" "$KVPAGER" repaly;              has err "'repaly': did you mean 'replay'?"
expect 2 "far command" "$KVPAGER" frobnicate;           has err "unknown command 'frobnicate'"
grep -q "did you mean" "$dir/err" && { echo "FAILED: nothing is near frobnicate"; failures=$((failures + 1)); }
expect 2 "near option" "$KVPAGER" --verison;            has err "did you mean '--version'?"
expect 2 "near option" "$KVPAGER" replay x --host-mem 1; has err "'--host-mem': did you mean '--host-memory'?"
expect 2 "near choice" "$KVPAGER" gen --profile chta;   has err "did you mean 'chat'?"
expect 2 "near model" "$KVPAGER" size --model lama-3.1-8b; has err "did you mean 'llama-3.1-8b'?"
expect 2 "near device" "$KVPAGER" size --model qwen3-8b --device h10; has err "did you mean 'h100-80gb'?"
for words in "size --model meta-llama/Llama-3.1-8B-Instruct" "size --model Qwen/Qwen3-32B-FP8" \
             "size --model google/gemma-3-27b" "size --model RedHatAI/Llama-3.1-8B-Instruct-FP8-dynamic"; do
    # shellcheck disable=SC2086 # several words
    expect 0 "$words" "$KVPAGER" $words
done
expect 2 "another size" "$KVPAGER" size --model meta-llama/Llama-3.1-9B; has err "did you mean 'llama-3.1-8b'?"

# Sizes
expect 2 "no unit" "$KVPAGER" size --model qwen3-8b --memory 80
has err "--memory is '80', which is bytes: 80GiB? (80B, if bytes are meant)"
expect 2 "no unit" "$KVPAGER" size --model qwen3-8b --memory 40000; has err "40000MiB?"
expect 0 "bytes" "$KVPAGER" size --model qwen3-8b --memory 85899345920

# help COMMAND is COMMAND --help
for command in replay mrc compare size gen inspect store trace; do
    "$KVPAGER" "$command" --help >"$dir/wanted"
    expect 0 "help $command" "$KVPAGER" help "$command"
    cmp "$dir/out" "$dir/wanted" || { echo "FAILED: help $command"; failures=$((failures + 1)); }
done
expect 2 "help of nothing" "$KVPAGER" help replya; has err "did you mean 'replay'?"

# No name of a status in what a user reads: of the sources of messages, those that print one.
if grep -rnE '"[^",]*KVP_E_|kvp_status_name' "${KVP_SOURCE:?}"/src/tool --include=*.c | grep -v "tool/log/print.c"; then
    echo "FAILED: the names of statuses are for operation logs"; failures=$((failures + 1))
fi

[ "$failures" -eq 0 ]
