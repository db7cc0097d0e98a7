#!/usr/bin/env bash
# The blocks of C of a page in docs/ up to the end of a main() are one program; the next block of C
# begins another one. Each is run, and its output is what the text blocks from its first block to the
# next program show. docs_blocks.py compiles the other blocks.
set -u
: "${KVP_SOURCE:?the source directory}" "${KVP_BUILD:?the build directory}"
failures=0
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# parts PAGE: writes its programs to NAME.1.c ... in $work, and the output that it shows to NAME.1.wanted ...
parts() {
    awk -v to="$work/$(basename "$1")" '
        /^```/ { inside = !inside; language = inside ? substr($0, 4) : ""
                 if (language == "c" && (n == 0 || ended)) { n++; main = ended = 0 }
                 next }
        n && language == "c" { print >(to "." n ".c"); main = main || /^int main\(/; ended = ended || main && /^}$/ }
        n && language == "text" { print >(to "." n ".wanted") }' "$1"
}

# Compiled as the library was: its compiler, and its sanitizers and counters if it has any.
compiler=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$KVP_BUILD/CMakeCache.txt")
instruments=$(sed -n -e 's/^KVP_SANITIZE:[A-Z]*=\(..*\)$/-fsanitize=\1/p' \
                     -e 's/^KVP_COVERAGE:[A-Z]*=ON$/--coverage/p' "$KVP_BUILD/CMakeCache.txt")
run_program() { # run_program NAME.N: the N-th program of docs/NAME
    # shellcheck disable=SC2086 # no word at all when there are none
    "${compiler:-cc}" -std=c11 -Wall -Wextra -Werror $instruments -I "$KVP_SOURCE/include" \
        -o "$work/program" "$work/$1.c" "$KVP_BUILD/libkvpager.a" -lm ||
        { fail "the program docs/$1 does not compile"; return; }
    (cd "$work" && ./program) >"$work/$1.got" || fail "the program docs/$1 ends with $?"
    [ -s "$work/$1.wanted" ] || { fail "no output of docs/$1"; return; }
    diff -u "$work/$1.wanted" "$work/$1.got" || fail "docs/$1 shows another output"
}

n_programs=0
for page in "$KVP_SOURCE"/docs/*.md; do
    parts "$page"
done
for program in "$work"/*.c; do
    grep -q '^int main(' "$program" || continue
    run_program "$(basename "$program" .c)"
    n_programs=$((n_programs + 1))
done
[ "$n_programs" -ge 4 ] || fail "only $n_programs programs found in docs/"

[ "$failures" = 0 ] || { echo "$failures failed"; exit 1; }
