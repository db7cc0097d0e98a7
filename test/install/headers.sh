#!/usr/bin/env bash
# Every public header compiles alone, as strict C99 and as C++17, and all of them in any order.
#
# Environment (from CTest): KVP_SOURCE, CC; CXX if it is not c++.
set -euo pipefail

include=$KVP_SOURCE/include
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cxx=${CXX:-c++}
status=0

# compile SOURCE-STEM: $work/SOURCE-STEM.c holds the text.
compile() {
    "$CC" -std=c99 -pedantic -Wall -Wextra -Wstrict-prototypes -Werror -fsyntax-only \
        -I"$include" "$work/$1.c" || { echo "FAILED as C99: $1" >&2; status=1; }
    "$cxx" -std=c++17 -pedantic -Wall -Wextra -Wold-style-cast -Werror -fsyntax-only \
        -I"$include" -x c++ "$work/$1.c" || { echo "FAILED as C++17: $1" >&2; status=1; }
}

# The C++ interface: alone, twice, after and before the headers of C, and without exceptions.
printf '#include <kvpager/kvpager.hpp>\n#include <kvpager/kvpager.hpp>\n#include <kvpager/sched.h>\n' \
    >"$work/cpp.cpp"
printf '#include <kvpager/sched.h>\n#include <kvpager/kvpager.hpp>\n' >"$work/cpp_last.cpp"
for stem in cpp cpp_last; do
    "$cxx" -std=c++17 -pedantic -Wall -Wextra -Wold-style-cast -Werror -fno-exceptions -fno-rtti \
        -fsyntax-only -I"$include" "$work/$stem.cpp" || { echo "FAILED: kvpager.hpp" >&2; status=1; }
done

mapfile -t headers < <(cd "$include" && ls kvpager/*.h)
[ ${#headers[@]} -gt 0 ] || { echo "no public headers" >&2; exit 1; }
for header in "${headers[@]}"; do
    stem=alone_$(basename "$header" .h)
    # Twice: the guard works.
    printf '#include <%s>\n#include <%s>\nextern int kvp_unused;\n' "$header" "$header" \
        >"$work/$stem.c"
    compile "$stem"
done

# Each header once before all the others, and the whole list backwards.
for header in "${headers[@]}"; do
    stem=first_$(basename "$header" .h)
    { echo "#include <$header>"; printf '#include <%s>\n' "${headers[@]}"; } >"$work/$stem.c"
    compile "$stem"
done
printf '#include <%s>\n' "${headers[@]}" | tac >"$work/backwards.c"
compile backwards

echo "${#headers[@]} headers"
exit $status
