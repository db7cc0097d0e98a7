#!/usr/bin/env bash
# Installs the build into an empty prefix, moves the tree, and builds use.c against it as four
# embedders would: pkg-config and CMake, shared and static; and examples/transfer.c, which also needs
# libkvpager_data. Then looks at what the shared libraries show to the world, and need from it.
#
# Environment (from CTest): KVP_BUILD, KVP_SOURCE, KVP_VERSION, KVP_SOVERSION, KVP_LIBDIR, CC, CMAKE, NM.
set -euo pipefail

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

trap 'echo "FAILED: line $LINENO: $BASH_COMMAND" >&2' ERR

here=$KVP_SOURCE/test/install
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Staged below DESTDIR and then moved: neither pkg-config nor CMake may remember the prefix.
DESTDIR=$work/stage "$CMAKE" --install "$KVP_BUILD" --prefix /opt/kvp --strip >"$work/install.log" ||
    { cat "$work/install.log"; fail "cmake --install"; }
prefix=$work/moved
mv "$work/stage/opt/kvp" "$prefix"
libdir=$prefix/$KVP_LIBDIR

for file in include/kvpager/types.h include/kvpager/kvpager.hpp bin/kvpager "$KVP_LIBDIR/libkvpager.a" "$KVP_LIBDIR/libkvpager.so" \
    "$KVP_LIBDIR/libkvpager_data.so" "$KVP_LIBDIR/pkgconfig/kvpager.pc" "$KVP_LIBDIR/pkgconfig/kvpager-data.pc" \
    "$KVP_LIBDIR/cmake/kvpager/kvpagerConfig.cmake"; do
    [ -e "$prefix/$file" ] || fail "$file is not installed"
done
for file in man/man1/kvpager.1 man/man1/kvpager-replay.1 bash-completion/completions/kvpager \
    zsh/site-functions/_kvpager; do
    [ -s "$prefix/share/$file" ] || fail "share/$file is not installed"
done
# The licences of what is compiled in, each as its own file has it.
notices=$prefix/share/doc/kvpager/THIRD-PARTY-NOTICES
[ -e "$prefix/share/doc/kvpager/LICENSE" ] || fail "the licence is not installed"
for words in 'Yann Collet' 'BSD 2-Clause' 'Redistributions in binary form'; do
    grep -q "$words" "$notices" || fail "no '$words' in THIRD-PARTY-NOTICES"
done
if [ -e "$libdir/libkvpager_redis.so" ] && "$NM" "$libdir/libkvpager_redis.so" 2>/dev/null | grep -q ' t valkeyConnect'; then
    grep -q '^libvalkey' "$notices" || fail "libvalkey is compiled in, and has no notice"
fi
find "$prefix" -type f \( -name '*.so.*' -o -name '*.a' -o -perm -u+x \) -size +0 >"$work/binaries"
while read -r file; do
    ! readelf -SW "$file" | grep -q '\.debug_info' || fail "$file has debugging information"
done <"$work/binaries"
[ "$(wc -l <"$work/binaries")" -ge 3 ] || fail "only these are installed: $(cat "$work/binaries")"
[ -z "$(find "$work/stage" -type f)" ] || fail "files outside the prefix: $(find "$work/stage" -type f)"
"$prefix/bin/kvpager" --help >/dev/null || fail "the installed command does not run"

# check PROGRAM shared|data|static: it runs, and needs libkvpager.so, libkvpager_data.so, too, or none.
check() {
    local output needed expected
    output=$(LD_LIBRARY_PATH=$libdir "$1") || fail "$1 ended with $?: $output"
    expected="kvpager $KVP_VERSION"
    [[ $1 != *data* ]] || expected=$(cat "$KVP_SOURCE/examples/transfer.expected")
    [ "$output" = "$expected" ] || fail "$1 printed '$output'"
    needed=$(readelf -d "$1" | sed -n 's/.*NEEDED.*\[\(libkvpager.*\)\.so\..*/\1/p' | LC_ALL=C sort | tr '\n' ' ')
    case $2 in
    shared) expected="libkvpager " ;;
    data) expected="libkvpager libkvpager_data " ;;
    static) expected= ;;
    esac
    [ "$needed" = "$expected" ] || fail "$1 needs '$needed', expected '$expected'"
    echo "ok: $1"
}

# shellcheck disable=SC2046
pkg_config_program() { # name, source, options of pkg-config with the package, options of the compiler
    local flags
    flags=$(PKG_CONFIG_PATH=$libdir/pkgconfig pkg-config --cflags --libs $3) || fail "pkg-config $3"
    # shellcheck disable=SC2086
    "$CC" -std=c11 -Wall -Wextra -Werror $4 -o "$work/$1" "$2" $flags
}
pkg_config_program pkg_shared "$here/use.c" kvpager ""
check "$work/pkg_shared" shared
pkg_config_program pkg_static "$here/use.c" "--static kvpager" -static
check "$work/pkg_static" static
pkg_config_program pkg_data "$KVP_SOURCE/examples/transfer.c" kvpager-data ""
check "$work/pkg_data" data
pkg_config_program pkg_static_data "$KVP_SOURCE/examples/transfer.c" "--static kvpager" -static
check "$work/pkg_static_data" static
[ "$(PKG_CONFIG_PATH=$libdir/pkgconfig pkg-config --modversion kvpager)" = "$KVP_VERSION" ] ||
    fail "kvpager.pc gives another version"

cmake_programs() { # folder, options
    "$CMAKE" -S "$here" -B "$work/$1" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$CC" \
        -DWANTED="$KVP_VERSION" "${@:2}" >"$work/cmake.log" 2>&1
}
for generator in 'Unix Makefiles' Ninja; do
    cmake_programs "$generator" -G "$generator" || { cat "$work/cmake.log"; fail "find_package"; }
    "$CMAKE" --build "$work/$generator" >"$work/cmake.log" 2>&1 || { cat "$work/cmake.log"; fail "build"; }
    check "$work/$generator/use_shared" shared
    check "$work/$generator/use_static" static
    check "$work/$generator/use_data" data
done
cmake_programs rooms -DROOMS="core;sched;data;wire" || { cat "$work/cmake.log"; fail "components that are there"; }
! cmake_programs rooms -DROOMS="core;cuda" || fail "a component that is not there was found"

# The shared libraries: their names, their symbols, their needs. `exports` compares what each exports with
# its headers.
exported=
for name in libkvpager libkvpager_data libkvpager_store libkvpager_zmq; do
    library=$libdir/$name.so
    [ -e "$library" ] || [[ $name != libkvpager_store && $name != libkvpager_zmq ]] || continue
    soname=$(readelf -d "$library" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
    [ "$soname" = "$name.so.$KVP_SOVERSION" ] || fail "SONAME of $name is '$soname'"
    [ -e "$libdir/$soname" ] || fail "$soname is not installed"
    symbols=$("$NM" -D --defined-only "$library" | awk '{print $NF}' | sed 's/@.*//')
    foreign=$(echo "$symbols" | grep -v '^kvp_' || true)
    [ -z "$foreign" ] || fail "exported by $name, but not kvp_*: $foreign"
    exported=$(printf '%s\n%s' "$exported" "$symbols")
done
exported=$(echo "$exported" | sed '/^$/d')
echo "$exported" | grep -qx kvp_version || fail "kvp_version is not exported"
twice=$(echo "$exported" | sort | uniq -d)
[ -z "$twice" ] || fail "exported by two libraries: $twice"
needs() { # library, what it may need beside libc and libm
    local other
    other=$(readelf -d "$libdir/$1.so" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | grep -v "^lib[cm]\.so$2" || true)
    [ -z "$other" ] || fail "$1 needs more than it should: $other"
}
needs libkvpager ""
needs libkvpager_data "\\|^libkvpager\.so"

# What a header promises is there: every function that a public header declares is exported.
(cd "$prefix/include" && printf '#include <%s>\n' kvpager/*.h) >"$work/all.c"
"$CC" -std=c11 -E -P -I"$prefix/include" "$work/all.c" | tr '\n' ' ' |
    grep -o '__attribute__((visibility("default")))[^;{]*' |
    sed -n 's/^__attribute__((visibility("default")))//; s/ *(.*//; s/.*[ *]\(kvp_[a-z0-9_]*\)$/\1/p' |
    sort -u >"$work/declared"
[ -s "$work/declared" ] || fail "no KVP_API function found in the headers"
missing=$(comm -23 "$work/declared" <(echo "$exported" | sort -u))
[ -z "$missing" ] || fail "declared, but not exported: $missing"
undeclared=$(comm -13 "$work/declared" <(echo "$exported" | sort -u))
[ -z "$undeclared" ] || fail "exported, but in no header: $undeclared"
echo "ok: $(wc -l <"$work/declared") functions declared and exported"

"$KVP_SOURCE/scripts/debian_symbols.sh" check "$libdir" || fail "Debian's packages list other functions"

# An ordinary archive: no link-time-optimisation bytecode that only our compiler could read.
if readelf -SW "$libdir/libkvpager.a" | grep -q 'gnu\.lto'; then
    fail "libkvpager.a holds compiler bytecode"
fi
