#!/usr/bin/env bash
# What the documentation promises: the C in README.md is a part of examples/quickstart.c, links lead
# somewhere, find_package asks for this version, and the commands of docs/TOUR.md run and write under
# build/ only. programs.sh runs the programs of docs/.
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
part=$(fenced c "$KVP_SOURCE/README.md")
[ -n "$part" ] || fail "no C in README.md"
[[ $(sed 's/^    //' "$KVP_SOURCE/examples/quickstart.c") == *"$part"* ]] ||
    fail "README.md's C is no part of examples/quickstart.c"
sed -n 's/^    \([0-9]* of 100 prompt tokens are cached\)$/\1/p' "$KVP_SOURCE/README.md" >"$work/output"
diff -u "$KVP_SOURCE/examples/quickstart.expected" "$work/output" ||
    fail "README.md shows another output of it"

# ------------------------------------------------------------------------------------------- links
for page in "$KVP_SOURCE"/*.md "$KVP_SOURCE"/docs/*.md; do
    grep -o '](\([^)#:]*\))' "$page" | sed 's/^](//; s/)$//' | while read -r link; do
        [ -e "$(dirname "$page")/$link" ] || echo "$page: $link"
    done
    # Images of <picture>.
    grep -oE '(src|srcset)="[^":]*"' "$page" | sed 's/^[^"]*"//; s/"$//' | while read -r link; do
        [ -e "$(dirname "$page")/$link" ] || echo "$page: $link"
    done
done >"$work/dead"
[ ! -s "$work/dead" ] || fail "dead links:" "$(cat "$work/dead")"

# ---------------------------------------------------------------------------------------- versions
version=$(sed -n 's/^project(kvpager VERSION \([0-9]*\.[0-9]*\)\..*/\1/p' "$KVP_SOURCE/CMakeLists.txt")
[ -n "$version" ] || fail "no version in CMakeLists.txt"
grep -oE 'find_package\(kvpager [0-9.]+' "$KVP_SOURCE"/*.md "$KVP_SOURCE"/docs/*.md >"$work/wants"
[ -s "$work/wants" ] || fail "no page has find_package(kvpager VERSION"
! grep -v " $version\$" "$work/wants" || fail "these do not find version $version"

# ---------------------------------------------------------------------------------------- the tour
# Rows in order, in a folder that looks like the repository after `make`: later ones read what
# earlier ones wrote. Audited builds are too slow for them.
tour=$KVP_SOURCE/docs/TOUR.md
sed -n 's/^|.*| `\(build\/release\/[^`]*\)` |.*/\1/p' "$tour" >"$work/commands"
n_commands=$(wc -l <"$work/commands")
[ "$n_commands" -ge 40 ] || fail "only $n_commands commands found in docs/TOUR.md"
grep -E '^\|.*\| `(build/release/|ctest |make )' "$tour" >"$work/rows"
! grep -vE '\| (< 0\.1|[0-9]+\.[0-9]|[0-9]+) s \|$' "$work/rows" || fail "rows of docs/TOUR.md without a time"
if [ "${KVP_CHECK:-0}" = 0 ]; then
    mkdir -p "$work/root/build"
    ln -s "$KVP_BUILD" "$work/root/build/release"
    ln -s "$KVP_SOURCE/data" "$work/root/data"
    data=$(ls -l "$KVP_SOURCE/data")
    cd "$work/root" || exit 1
    TIMEFORMAT="%U %S"
    while read -r command; do
        case $command in
        */test_store_*) # Without libcrypto there are no stores.
            [ -x "${command%% *}" ] || { echo "skipped: $command"; continue; } ;;
        esac
        { time bash -c "$command" </dev/null >"$work/out" 2>"$work/err" ||
            { fail "status $?: $command"; tail -n 5 "$work/err"; }; } 2>"$work/time"
        awk -v what="$command" 'NF == 2 { printf "%6.1f s  %s\n", $1 + $2, what }' "$work/time"
        [ -s "$work/out" ] || case $command in
        *" -o "*) ;;
        *) fail "prints nothing: $command" ;;
        esac
        [[ $command != *" --json "* ]] || python3 -m json.tool "$work/out" >/dev/null ||
            fail "prints no JSON: $command"
    done <"$work/commands"
    [ "$(ls -A)" = $'build\ndata' ] || fail "docs/TOUR.md writes outside build/:" "$(ls -A)"
    [ "$(ls -l "$KVP_SOURCE/data")" = "$data" ] || fail "docs/TOUR.md writes into data/"
fi

[ "$failures" = 0 ] || { echo "$failures failed"; exit 1; }
