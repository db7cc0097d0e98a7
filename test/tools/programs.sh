#!/usr/bin/env bash
# Every block of C in docs/ compiles. The blocks of a page that has a main() are one program, which is
# run; its output is what the page's text blocks show. Other blocks are statements of a caller that has
# `cache`, `ns` and `seq`.
set -u
: "${KVP_SOURCE:?the source directory}" "${KVP_BUILD:?the build directory}"
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

# Compiled as the library was: its compiler, and its sanitizers if it has any.
compiler=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$KVP_BUILD/CMakeCache.txt")
sanitize=$(sed -n 's/^KVP_SANITIZE:[A-Z]*=\(..*\)$/-fsanitize=\1/p' "$KVP_BUILD/CMakeCache.txt")
compile() { # compile FILE ARGUMENTS...
    # shellcheck disable=SC2086 # no word at all when there are no sanitizers
    "${compiler:-cc}" -std=c11 -Wall -Wextra -Werror $sanitize -I "$KVP_SOURCE/include" "$@"
}

run_program() { # run_program NAME
    fenced text "$KVP_SOURCE/docs/$1" >"$work/$1.wanted"
    compile -o "$work/program" "$work/$1.c" "$KVP_BUILD/libkvpager.a" -lm ||
        { fail "the program in docs/$1 does not compile"; return; }
    (cd "$work" && ./program) >"$work/$1.got" || fail "the program in docs/$1 ends with $?"
    [ -s "$work/$1.wanted" ] || fail "no output in docs/$1"
    diff -u "$work/$1.wanted" "$work/$1.got" || fail "docs/$1 shows another output"
}

# One function for each block: its statements, with what a caller has.
compile_blocks() { # compile_blocks NAME
    awk '/^```/     { if (inside) print "}"; inside = 0 }
         inside     { print }
         $0 == "```c" { inside = 1; n++
                        print "void block" n "(kvp_cache *cache, kvp_ns ns, kvp_seq seq);"
                        print "void block" n "(kvp_cache *cache, kvp_ns ns, kvp_seq seq) {"
                        print "(void)cache, (void)ns, (void)seq;" }' "$KVP_SOURCE/docs/$1" >"$work/blocks"
    { printf '#include <kvpager/%s.h>\n' kvpager oplog snapshot inspect; cat "$work/blocks"; } \
        >"$work/$1.c"
    compile -c -o "$work/blocks.o" "$work/$1.c" || fail "the blocks of docs/$1 do not compile"
}

n_programs=0
for page in "$KVP_SOURCE"/docs/*.md; do
    name=$(basename "$page")
    grep -q '^```c$' "$page" || continue
    fenced c "$page" >"$work/$name.c"
    if grep -q '^int main(' "$work/$name.c"; then
        run_program "$name"
        n_programs=$((n_programs + 1))
    else
        compile_blocks "$name"
    fi
done
[ "$n_programs" -ge 5 ] || fail "only $n_programs programs found in docs/"

[ "$failures" = 0 ] || { echo "$failures failed"; exit 1; }
