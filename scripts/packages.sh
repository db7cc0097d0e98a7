#!/usr/bin/env bash
# Makes packages of the source archive of HEAD, and tests them. docs/BUILDING.md.
#
#     scripts/packages.sh [debian] [conan]     both if none is named
#
# debian  the source package and its binary packages, from packaging/debian, in build/packages/debian;
#         lintian finds no error and no warning, and the package's own tests pass on what it contains
# conan   packaging/conan without a remote, static and shared; its test_package is a program that runs
#
# Builds reach no network, where unshare can take it away. What cannot be made here is skipped, with
# the reason. Status: 0 made or skipped; 1 something failed.
set -euo pipefail

CONAN=2.34.0
CONAN_SHA256=4e268bb9ad38614141c7274a769c7226122e3660e4d5eb545a0c7f7170b53272

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
place=$root/build/packages
jobs=${JOBS:-2}

fail() {
    echo "packages: $*" >&2
    exit 1
}

# run LOG COMMAND...: where the network is not; its output is kept in LOG, and shown if it fails.
run() {
    local log=$1 offline=()
    shift
    for words in "unshare --net" "unshare --map-current-user --net"; do
        if $words true 2>/dev/null; then
            read -ra offline <<<"$words"
            break
        fi
    done
    "${offline[@]}" "$@" >"$log" 2>&1 || { tail -n 60 "$log" >&2; fail "$* failed: $log"; }
}

# unpack FOLDER: makes FOLDER anew, with the archive and its sources.
unpack() {
    rm -rf "$1"
    (cd "$root" && scripts/dist.sh "$1") >/dev/null
    archive=$(echo "$1"/kvpager-*.tar.gz)
    tar xzf "$archive" -C "$1"
    source=${archive%.tar.gz}
    version=${source##*/kvpager-}
}

# What the binary packages contain, and the tests that autopkgtest would run where they are installed.
test_debian() { # folder of the packages
    local libdir tree=$1/tree
    for package in "$1"/*.deb; do
        [[ $package == *-dbgsym_* ]] || dpkg-deb -x "$package" "$tree"
    done
    libdir=$tree/usr/lib/$(dpkg-architecture -q DEB_HOST_MULTIARCH)
    for name in command embed; do
        (cd "$source" && PATH=$tree/usr/bin:$PATH LD_LIBRARY_PATH=$libdir \
            PKG_CONFIG_LIBDIR=$libdir/pkgconfig CMAKE_PREFIX_PATH=$tree/usr run "$1/$name.log" "debian/tests/$name")
    done
}

make_debian() {
    for program in dpkg-buildpackage dh lintian; do
        command -v $program >/dev/null || { echo "debian: skipped: there is no $program"; return 0; }
    done
    local folder=$place/debian began=$SECONDS unchecked=()
    unpack "$folder"
    cp -R "$source/packaging/debian" "$source/debian"
    mv "$archive" "$folder/kvpager_$version.orig.tar.gz"
    [[ $(cd "$source" && dpkg-parsechangelog -S Version) == "$version"-* ]] ||
        fail "packaging/debian/changelog is not for version $version"
    # scripts/setup.sh asks whether a tool is there, dpkg for its package.
    (cd "$source" && dpkg-checkbuilddeps) || unchecked=(-d)
    # A function that the lists lack, or that is gone, fails the build.
    (cd "$source" && DPKG_GENSYMBOLS_CHECK_LEVEL=4 \
        run "$folder/build.log" dpkg-buildpackage -us -uc -j"$jobs" "${unchecked[@]}")
    run "$folder/lintian.log" lintian --allow-root --profile debian --fail-on error,warning --info \
        "$folder"/*.changes
    test_debian "$folder"
    echo "debian: $(cd "$folder" && echo *.deb) ($((SECONDS - began)) s)"
}

# The version of Conan above, in a virtual environment; 1 where it cannot be installed.
install_conan() {
    local venv=$place/venv wheel=conan-$CONAN-py3-none-any.whl
    [ ! -x "$venv/bin/conan-$CONAN" ] || return 0
    rm -rf "$venv"
    python3 -m venv "$venv" &&
        "$venv/bin/python" "$root/scripts/pypi.py" conan "$wheel" $CONAN_SHA256 "$place/downloads" &&
        "$venv/bin/pip" install --quiet "$place/downloads/$wheel" &&
        ln -s conan "$venv/bin/conan-$CONAN"
}

make_conan() {
    mkdir -p "$place"
    install_conan || { echo "conan: skipped: Conan $CONAN cannot be installed"; return 0; }
    local folder=$place/conan conan=$place/venv/bin/conan began=$SECONDS
    unpack "$folder"
    export CONAN_HOME=$folder/home
    run "$folder/profile.log" "$conan" profile detect
    for shared in False True; do
        run "$folder/shared-$shared.log" "$conan" create "$source/packaging/conan" --no-remote \
            -o "kvpager/*:shared=$shared" -c "tools.build:jobs=$jobs"
    done
    echo "conan: kvpager/$version, static and shared ($((SECONDS - began)) s)"
}

[ $# -gt 0 ] || set -- debian conan
for what in "$@"; do
    case $what in
    debian | conan) "make_$what" ;;
    *) fail "'$what' is neither debian nor conan" ;;
    esac
done
