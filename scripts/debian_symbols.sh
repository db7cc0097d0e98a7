#!/usr/bin/env bash
# The lists of exported functions that Debian's packages have: packaging/debian/*.symbols.
#
#     scripts/debian_symbols.sh check FOLDER    fails where the libraries in FOLDER export other functions
#     scripts/debian_symbols.sh write FOLDER    adds what is new, as of this version; drops what is gone
#
# A line is a function and the version that it came with. Needs nm (NM).
set -euo pipefail

usage() {
    echo "usage: scripts/debian_symbols.sh check|write FOLDER" >&2
    exit 2
}
[ $# -eq 2 ] || usage
what=$1
[ "$what" = check ] || [ "$what" = write ] || usage
folder=$2
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
version=$(sed -n 's/^project(kvpager VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")
soversion=${version%.*}

# list LIBRARY FILE: what FILE should be; known functions keep their versions.
list() {
    echo "$1.so.$soversion $(basename "$2" .symbols) #MINVER#"
    echo "* Build-Depends-Package: libkvpager-dev"
    "${NM:-nm}" -D --defined-only "$folder/$1.so" | awk -v version="$version" '
        side == "file" { if (/^ /) known[$1] = $2; next }
        { name = $NF "@Base"; print " " name " " (name in known ? known[name] : version) }' \
        side=file "$2" side=library - | LC_ALL=C sort
}

[ -e "$folder/libkvpager.so" ] || { echo "debian_symbols: no libkvpager.so in $folder" >&2; exit 1; }
different=no
for library in libkvpager libkvpager_data libkvpager_store libkvpager_zmq; do
    file=$root/packaging/debian/${library//_/-}$soversion.symbols
    [ -e "$folder/$library.so" ] || { echo "$library is not built: not compared"; continue; }
    if [ "$what" = write ]; then
        [ -e "$file" ] || : >"$file"
        text=$(list "$library" "$file")
        echo "$text" >"$file"
    else
        diff "$file" <(list "$library" "$file") >&2 || different=yes
    fi
done
if [ $different = yes ]; then
    echo "other functions than the library's: scripts/debian_symbols.sh write $folder" >&2
    exit 1
fi
