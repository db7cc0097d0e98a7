#!/usr/bin/env bash
# The blocks of C of a page in docs/ up to the end of its main() are one program. It is run, and its
# output is what the page's text blocks show. docs_blocks.py compiles the other blocks.
set -u
: "${KVP_SOURCE:?the source directory}" "${KVP_BUILD:?the build directory}"
failures=0
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# fenced LANGUAGE FILE: the insides of all blocks fenced as LANGUAGE, up to the end of a main().
fenced() {
    awk -v open="\`\`\`$1" '$0 == open         { inside = 1; next }
                            /^```/             { inside = 0 }
                            inside             { print }
                            inside && /main\(/ { main = 1 }
                            inside && main && /^}$/ { exit }' "$2"
}

# Compiled as the library was: its compiler, and its sanitizers and counters if it has any.
compiler=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$KVP_BUILD/CMakeCache.txt")
instruments=$(sed -n -e 's/^KVP_SANITIZE:[A-Z]*=\(..*\)$/-fsanitize=\1/p' \
                     -e 's/^KVP_COVERAGE:[A-Z]*=ON$/--coverage/p' "$KVP_BUILD/CMakeCache.txt")
run_program() { # run_program NAME
    fenced text "$KVP_SOURCE/docs/$1" >"$work/$1.wanted"
    # shellcheck disable=SC2086 # no word at all when there are none
    "${compiler:-cc}" -std=c11 -Wall -Wextra -Werror $instruments -I "$KVP_SOURCE/include" \
        -o "$work/program" "$work/$1.c" "$KVP_BUILD/libkvpager.a" -lm ||
        { fail "the program in docs/$1 does not compile"; return; }
    (cd "$work" && ./program) >"$work/$1.got" || fail "the program in docs/$1 ends with $?"
    [ -s "$work/$1.wanted" ] || fail "no output in docs/$1"
    diff -u "$work/$1.wanted" "$work/$1.got" || fail "docs/$1 shows another output"
}

n_programs=0
for page in "$KVP_SOURCE"/docs/*.md; do
    name=$(basename "$page")
    grep -q '^```c$' "$page" || continue
    fenced c "$page" | awk '{ print } /^int main\(/ { main = 1 } main && /^}/ { exit }' >"$work/$name.c"
    grep -q '^int main(' "$work/$name.c" || continue
    run_program "$name"
    n_programs=$((n_programs + 1))
done
[ "$n_programs" -ge 5 ] || fail "only $n_programs programs found in docs/"

[ "$failures" = 0 ] || { echo "$failures failed"; exit 1; }
