# Man pages and completions: every option that a command prints is in both, and what is typed is
# completed.
set -u
failures=0
: "${KVPAGER:?the command}" "${KVP_SOURCE:?the source directory}"
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
command -v cmake >/dev/null || { echo "skipped: no cmake"; exit 77; }
[ "$(basename "$KVPAGER")" = kvpager ] || { echo "skipped: run by an emulator"; exit 77; }

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

cmake -D "KVPAGER=$KVPAGER" -D "OUT=$dir" -P "$KVP_SOURCE/cmake/manual.cmake" || fail "manual.cmake"

# completes WORD... : what bash offers for the last word, in $offered
completes() {
    offered=$(bash -c '. "$0/bash/kvpager"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _kvpager
                       printf "%s\n" "${COMPREPLY[@]}"' "$dir" kvpager "$@")
}

for command in $("$KVPAGER" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
    page=$dir/man1/kvpager-$command.1
    [ -s "$page" ] || fail "no page of $command"
    completes "$command" --
    "$KVPAGER" help "$command" | grep -oE '^  (-[a-z], )?--[a-z-]+' | grep -oE -- '--[a-z-]+' >"$dir/options"
    while read -r option; do
        grep -qF -- "$(printf %s "$option" | sed 's/-/\\-/g')" "$page" || fail "$option is not in $page"
        printf '%s\n' "$offered" | grep -qx -- "$option" || fail "$command $option is not completed"
        grep -qF -- "'$option:" "$dir/zsh/_kvpager" || fail "$option is not completed in zsh"
    done <"$dir/options"
    completes "${command%?}"
    printf '%s\n' "$offered" | grep -qx "$command" || fail "$command is not completed: $offered"
done
completes replay --model qwen3-3
[ "$offered" = "qwen3-32b
qwen3-30b-a3b" ] || fail "models: $offered"
completes size --device h1
[ "$offered" = h100-80gb ] || fail "devices: $offered"
completes store ver
[ "$offered" = verify ] || fail "store: $offered"
completes replay trace
[ -z "$offered" ] || fail "a file: $offered"
bash -n "$dir/bash/kvpager" || fail "bash"
if command -v zsh >/dev/null; then zsh -n "$dir/zsh/_kvpager" || fail "zsh"; fi
if command -v groff >/dev/null; then
    for page in "$dir"/man1/*; do
        [ -z "$(groff -man -Tascii -ww "$page" 2>&1 >/dev/null)" ] || fail "groff complains of $page"
    done
fi
[ "$failures" -eq 0 ]
