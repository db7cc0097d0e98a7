#!/usr/bin/env bash
# What the documentation promises: the C in README.md is examples/quickstart.c, links lead somewhere,
# and the commands in the README's table run. programs.sh runs the C of docs/.
set -u
: "${KVPAGER:?the command}" "${KVP_SOURCE:?the source directory}" "${KVP_BUILD:?the build directory}"
failures=0
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# fenced LANGUAGE FILE: the insides of all blocks fenced as LANGUAGE.
fenced() {
    awk -v open="\`\`\`$1" '$0 == open { inside = 1; next }
                            /^```/     { inside = 0 }
                            inside     { print }' "$2"
}

# ---------------------------------------------------------------------------- the README's example
fenced c "$KVP_SOURCE/README.md" >"$work/quickstart.c"
diff -u "$KVP_SOURCE/examples/quickstart.c" "$work/quickstart.c" ||
    fail "README.md's example is not examples/quickstart.c"
sed -n 's/^    \([0-9]* of 100 prompt tokens are cached\)$/\1/p' "$KVP_SOURCE/README.md" >"$work/output"
diff -u "$KVP_SOURCE/examples/quickstart.expected" "$work/output" ||
    fail "README.md shows another output of it"

# ------------------------------------------------------------------------------------------- links
for page in "$KVP_SOURCE"/*.md "$KVP_SOURCE"/docs/*.md; do
    grep -o '](\([^)#:]*\))' "$page" | sed 's/^](//; s/)$//' | while read -r link; do
        [ -e "$(dirname "$page")/$link" ] || echo "$page: $link"
    done
done >"$work/dead"
[ ! -s "$work/dead" ] || fail "dead links:" "$(cat "$work/dead")"

# --------------------------------------------------------------------------------------- the table
# Rows in order, in a folder that looks like the repository after `make run`: later ones read what
# earlier ones wrote. Audited builds are too slow for them.
grep '^|' "$KVP_SOURCE/README.md" | grep -o '`build/release/[^`]*`' | tr -d '`' >"$work/commands"
n_commands=$(wc -l <"$work/commands")
[ "$n_commands" -ge 10 ] || fail "only $n_commands commands found in README.md's table"
if [ "${KVP_CHECK:-0}" = 0 ]; then
    mkdir -p "$work/root/build"
    ln -s "$KVP_BUILD" "$work/root/build/release"
    ln -s "$KVP_SOURCE/data" "$work/root/data"
    cd "$work/root" || exit 1
    while read -r command; do
        # shellcheck disable=SC2086 # a program and its arguments, no quotes in them
        $command </dev/null >"$work/out" 2>"$work/err" ||
            { fail "status $?: $command"; tail -n 5 "$work/err"; }
        [ -s "$work/out" ] || case $command in
        *" -o "*) ;;
        *) fail "prints nothing: $command" ;;
        esac
    done <"$work/commands"
fi

[ "$failures" = 0 ] || { echo "$failures failed"; exit 1; }
