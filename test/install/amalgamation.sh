#!/usr/bin/env bash
# The core as one file: made twice with the same bytes, compiled in a folder where nothing else is and
# xxHash is not to be found, without warnings, with and without self-checks; a program of C and one of
# C++ that use it print what they print with the library.
#
# Environment (from CTest): KVP_SOURCE, CC, CMAKE, NM.
set -euo pipefail

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

trap 'echo "FAILED: line $LINENO: $BASH_COMMAND" >&2' ERR

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cxx=${CXX:-c++}
generate() { python3 "$KVP_SOURCE/scripts/amalgamation.py" "$1" >"$work/log" 2>&1 || { cat "$work/log"; fail "amalgamation.py"; }; }

generate "$work/kvpager"
(cd / && TZ=Asia/Tokyo LC_ALL=C PYTHONHASHSEED=7 generate "$work/again")
diff -r "$work/kvpager" "$work/again" || fail "the same sources gave other bytes"
[ "$(ls "$work/kvpager" | tr '\n' ' ')" = "LICENSE THIRD-PARTY-NOTICES kvpager.c kvpager.h kvpager.hpp " ] ||
    fail "the folder has $(ls "$work/kvpager")"

# xxhash.h is in it unchanged, with its licence, and no other place says where it was found.
installed=$(echo '#include <xxhash.h>' | "$CC" -M -x c - | tr ' ' '\n' | grep '/xxhash\.h$')
sed -n '/^\/\* ---- begin: xxhash\.h/,/^\/\* ---- end: xxhash\.h/p' "$work/kvpager/kvpager.c" |
    sed '1d;$d' | cmp - "$installed" || fail "xxhash.h was changed"
grep -q 'BSD 2-Clause' "$work/kvpager/kvpager.c" || fail "the licence of xxHash is missing"
grep -q 'Yann Collet' "$work/kvpager/THIRD-PARTY-NOTICES" || fail "there is no notice of xxHash"
! grep -nE '^[ \t]*#[ \t]*include[ \t]*[<"](xxhash|kvpager/|core/|base/|sched/|oplog/)' \
    "$work/kvpager/kvpager.c" "$work/kvpager/kvpager.h" || fail "it includes files that are not there"

# An include of xxhash.h, from wherever, would end this.
mkdir "$work/forbidden"
echo '#error xxHash is on the include path' >"$work/forbidden/xxhash.h"
cp "$KVP_SOURCE/examples/quickstart.c" "$KVP_SOURCE/examples/quickstart_cpp.cpp" "$work"
try() { # name, options
    (cd "$work/kvpager" && "$CC" -std=c11 -Wall -Wextra -Werror -I"$work/forbidden" "${@:2}" -c kvpager.c -o "$work/$1.o") ||
        fail "it does not compile with ${*:2}"
    "$CC" -std=c11 -I"$work" "$work/quickstart.c" "$work/$1.o" -lpthread -o "$work/$1" ||
        fail "quickstart.c cannot be linked with it"
    "$work/$1" >"$work/$1.out" || fail "$1 ended with $?"
    cmp "$work/$1.out" "$KVP_SOURCE/examples/quickstart.expected" || fail "$1 prints something else"
}
try plain -O2
try checked -O0 -fPIC -DKVP_CHECK=3
"$cxx" -std=c++17 -I"$work" "$work/quickstart_cpp.cpp" "$work/checked.o" -lpthread -o "$work/cpp" ||
    fail "quickstart_cpp.cpp cannot be linked with it"
"$work/cpp" | cmp - "$KVP_SOURCE/examples/quickstart_cpp.expected" || fail "it prints something else in C++"

# In a shared library it shows the public functions only.
"$CC" -shared "$work/checked.o" -lpthread -o "$work/kvp.so" ||
    fail "it makes no shared library"
foreign=$("$NM" -D --defined-only "$work/kvp.so" | awk '{print $NF}' | grep -v '^kvp_' || true)
[ -z "$foreign" ] || fail "exported, but not kvp_*: $foreign"
echo "ok: $(wc -l <"$work/kvpager/kvpager.c") lines, $(sha256sum <"$work/kvpager/kvpager.c" | cut -c1-16)"
