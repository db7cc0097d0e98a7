#!/bin/sh
# Writes the source archive of a commit. The same commit gives the same bytes, whatever the clone, the
# user, the time and the settings of git.
#
#     scripts/dist.sh [FOLDER [COMMIT]]      FOLDER/kvpager-VERSION.tar.gz; build and HEAD if not given
set -eu
folder=${1:-build}
commit=${2:-HEAD}
version=$(git show "$commit:CMakeLists.txt" | sed -n 's/^project(kvpager VERSION \([0-9.]*\).*/\1/p')
[ -n "$version" ] || { echo "dist: no version in CMakeLists.txt of $commit" >&2; exit 1; }
mkdir -p "$folder"
# The archive is of source files; the notices tell what a build of them has compiled in.
"${CMAKE:-cmake}" -D "OUT=$(cd "$folder" && pwd)/THIRD-PARTY-NOTICES" -P "$(dirname "$0")/../cmake/notices.cmake"
archive=$folder/kvpager-$version.tar.gz
# Files have the commit's time and fixed modes and owners.
git -c tar.umask=0022 -c core.autocrlf=false -c core.eol=lf archive --format=tar \
    --prefix="kvpager-$version/" --add-file="$folder/THIRD-PARTY-NOTICES" -o "$archive.tar" "$commit"
gzip -9 -n <"$archive.tar" >"$archive.part"
mv "$archive.part" "$archive"
rm "$archive.tar" "$folder/THIRD-PARTY-NOTICES"
sha256sum "$archive"
