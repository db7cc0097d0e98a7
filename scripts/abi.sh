#!/usr/bin/env bash
# The binary interface of the shared library, against the one that this minor version promised.
#
#     scripts/abi.sh check LIBRARY     fails when a program built against an earlier 0.MINOR.x would
#                                      not run with LIBRARY; says what changed
#     scripts/abi.sh write LIBRARY     makes LIBRARY's interface the one that is promised: for a new
#                                      minor version, or after what may be added was added
#     scripts/abi.sh self-test         shows that `check` finds planted changes
#
# Needs abidw and abidiff (Debian: abigail-tools) and a library with debugging information.
# The baseline is abi/libkvpager.abi: types and exported functions, no paths, so that it is the same
# wherever it is made. abi/allowed.ini says what may change.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
baseline=$here/abi/libkvpager.abi

describe() { # library, folder of its headers, output
    abidw --headers-dir "$2" --drop-private-types --exported-interfaces-only --no-show-locs \
        --no-comp-dir-path --no-corpus-path --no-elf-needed --no-parameter-names \
        --no-write-default-sizes --type-id-style hash --out-file "$3" "$1"
    # Where the sources lay, and which compiler wrote the debugging information, are no interface.
    sed -i -E "s%path='[^']*/src/%path='src/%; s/language='[^']*'/language='LANG_C11'/" "$3"
}

compare() { # baseline, library, folder of its headers
    local described
    described=$(mktemp)
    describe "$2" "$3" "$described"
    if ! python3 "$here/scripts/abi_members.py" "$1" "$described" ||
        ! abidiff --suppressions "$here/abi/allowed.ini" --no-show-locs --no-added-syms "$1" \
            "$described"; then
        rm -f "$described"
        return 1
    fi
    rm -f "$described"
}

self_test() {
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    make_library() { # name, members of the struct, more
        mkdir -p "$work/$1"
        printf 'typedef struct kvp_thing { unsigned long struct_size; %s } kvp_thing;\n%s\n' \
            "$2" "int kvp_thing_check(const kvp_thing *thing);" >"$work/$1/thing.h"
        printf '#include "thing.h"\n%s\n' "$3" >"$work/$1/thing.c"
        "${CC:-cc}" -g -shared -fPIC -Wl,-soname,libthing.so.0.2 -o "$work/$1/lib.so" "$work/$1/thing.c"
    }
    body='int kvp_thing_check(const kvp_thing *thing) { return thing->n; }'
    make_library old "int n; int reserved;" "$body int kvp_other(void) { return 1; }"
    make_library same "int n; int reserved;" "$body int kvp_other(void) { return 2; }"
    make_library longer "int n; int reserved; long more;" "$body int kvp_other(void) { return 1; }"
    make_library more "int n; int reserved;" \
        "$body int kvp_other(void) { return 1; } int kvp_new(void) { return 1; }"
    make_library moved "long first; int n; int reserved;" "$body int kvp_other(void) { return 1; }"
    make_library wider "long n; int reserved;" "$body int kvp_other(void) { return 1; }"
    make_library signed "unsigned n; int reserved;" "$body int kvp_other(void) { return 1; }"
    make_library removed "int n; int reserved;" "$body"
    make_library taken "int n; int reserved;" "$body int kvp_other(int x) { return x; }"
    describe "$work/old/lib.so" "$work/old" "$work/old.abi"
    for name in same longer more; do
        compare "$work/old.abi" "$work/$name/lib.so" "$work/$name" >"$work/log" ||
            { cat "$work/log"; echo "abi: '$name' is refused, and is compatible" >&2; exit 1; }
    done
    for name in moved wider signed removed taken; do
        ! compare "$work/old.abi" "$work/$name/lib.so" "$work/$name" >"$work/log" ||
            { echo "abi: '$name' is not noticed" >&2; exit 1; }
    done
    echo "abi: planted changes are found"
}

for tool in abidw abidiff; do
    command -v $tool >/dev/null || { echo "skipped: no $tool (Debian: abigail-tools)"; exit 77; }
done
case ${1:-} in
self-test) self_test ;;
write) describe "${2:?the library}" "$here/include" "$baseline" ;;
check)
    if ! compare "$baseline" "${2:?the library}" "$here/include"; then
        echo "abi: programs built against an earlier release of this minor version would break:" \
            "docs/ABI.md" >&2
        exit 1
    fi
    echo "abi: compatible with $(sed -n "s/.*soname='\([^']*\)'.*/\1/p" "$baseline" | head -n 1)"
    ;;
*) sed -n 's/^#     //p' "$0" >&2; exit 2 ;;
esac
