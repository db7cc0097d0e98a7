#!/usr/bin/env bash
# Makes everything that a release publishes, from a clean clone of a commit, with checksums.
#
#     scripts/release.sh [FOLDER [COMMIT]]     build/publish and HEAD if not given
#
# FOLDER gets the source archive, the one-file build, python/ with the source distribution and the
# wheels, debian/ with the packages and their source, and SHA256SUMS. Where FOLDER has a SHA256SUMS
# already, the new files must be those: the same commit gives the same bytes on the same tools. What
# the machine cannot make is missing, and named: such a folder is a draft. Status: 0 made;
# 1 something failed or differs.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
mkdir -p "${1:-$root/build/publish}"
folder=$(cd "${1:-$root/build/publish}" && pwd)
commit=$(git -C "$root" rev-parse --verify "${2:-HEAD}^{commit}")
clone=$root/build/publish.clone

fail() {
    echo "release: $*" >&2
    exit 1
}

rm -rf "$clone"
git clone --quiet "$root" "$clone"
git -C "$clone" -c advice.detachedHead=false checkout --quiet "$commit"
cd "$clone"
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

version=$(sed -n 's/^project(kvpager VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
grep -q "^## $version (20" CHANGELOG.md || echo "release: a draft: CHANGELOG.md has no date for $version"
git diff --quiet "v$version" "$commit" 2>/dev/null || echo "release: a draft: the commit is not tag v$version"

new=$clone/build/publish
mkdir -p "$new"
scripts/dist.sh build >/dev/null
mv build/kvpager-"$version".tar.gz "$new"
scripts/amalgamation.py build/kvpager-amalgamation-"$version" >/dev/null
tar --sort=name --owner=0 --group=0 --numeric-owner --mode=u+rw,go=u-w --mtime="@$SOURCE_DATE_EPOCH" \
    -C build -c kvpager-amalgamation-"$version" | gzip -9 -n >"$new/kvpager-amalgamation-$version.tar.gz"
make --no-print-directory wheels
mkdir -p "$new/python" "$new/debian" # the source distribution has the source archive's name
cp build/wheels/*.whl build/wheels/*.tar.gz "$new/python" 2>/dev/null || echo "release: a draft: there are no wheels"
make --no-print-directory packages PACKAGES=debian
cp build/packages/debian/*.{deb,dsc,debian.tar.*,orig.tar.*} "$new/debian" 2>/dev/null || echo "release: a draft: there are no packages"

(cd "$new" && find . -type f -printf '%P\0' | LC_ALL=C sort -z | xargs -0 sha256sum --) >build/SHA256SUMS
if [ -e "$folder/SHA256SUMS" ]; then
    diff "$folder/SHA256SUMS" build/SHA256SUMS || fail "$folder has other bytes than this commit gives"
fi
cp -r "$new"/. build/SHA256SUMS "$folder"
cat "$folder/SHA256SUMS"
