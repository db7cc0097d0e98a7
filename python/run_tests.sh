#!/usr/bin/env bash
# Installs the package into a virtual environment in the build folder and runs what checks it:
# mypy --strict and pytest.
#
#     run_tests.sh BUILD [pytest arguments]
#
# By itself, and under ctest in the release build, the wheel is built from the sources, as pip does
# for a user. With KVP_CHECK above 0 it is linked with the library that KVP_BUILD has already, whose
# self-checks are at that level, and mypy runs; so each is done once in `make test`.
# The environment is made once, and again when what it needs changes; the wheel, when something that
# it is made of is newer.
set -euo pipefail
shopt -s extglob

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$(mkdir -p "${1:?the build folder}" && cd "$1" && pwd)
shift
python=${PYTHON:-python3}
venv="$build/python-venv"
library=
[ "${KVP_CHECK:-0}" = 0 ] || library="${KVP_BUILD:?the build of the library}/libkvpager.a"
types=yes
[ -n "$library" ] || [ -z "${KVP_BUILD:-}" ] || types= # the check build has a look at them

# Without this, a run under ctest would build the wheel with the flags of whoever started it.
unset CFLAGS LDFLAGS
export PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1

packages="numpy cffi pytest hypothesis xxhash pyzmq msgpack"
[ -z "$types" ] || packages="$packages mypy typing_extensions"
[ -z "$library" ] || packages="$packages scikit-build-core>=0.10"

needs="$("$python" --version) $packages"
if [ ! -e "$venv/needs" ] || [ "$(cat "$venv/needs")" != "$needs" ]; then
    rm -rf "$venv"
    "$python" -m venv "$venv"
    # shellcheck disable=SC2086
    if ! "$venv/bin/pip" install --quiet $packages; then
        echo "skipped: $packages cannot be had from the package index"
        rm -rf "$venv"
        exit 77
    fi
    printf '%s' "$needs" >"$venv/needs"
fi

parts=("$here/CMakeLists.txt" "$here/pyproject.toml" "$here/backend" "$here/native")
if [ -n "$library" ]; then
    parts+=("$here/../include" "$library")
    how=(--no-build-isolation --config-settings "cmake.define.KVP_LIBRARY=$library")
    store="${library%/*}/libkvpager_store_static.a" # not there without libcrypto
    if [ -e "$store" ]; then
        parts+=("$store")
        how+=(--config-settings "cmake.define.KVP_STORE_LIBRARY=$store")
        export KVP_PYTHON_STORES=1 # a test sees to it that they are there
        for redis in "${library%/*}"/libkvpager_redis.so.+([0-9]).+([0-9]); do # not there without libvalkey
            [ -e "$redis" ] || continue
            parts+=("$redis")
            how+=(--config-settings "cmake.define.KVP_REDIS_LIBRARY=$redis")
            export KVP_PYTHON_REDIS=1
        done
    fi
    publisher="${library%/*}/libkvpager_zmq_static.a" # not there without libzmq
    if [ -e "$publisher" ]; then
        parts+=("$publisher")
        how+=(--config-settings "cmake.define.KVP_ZMQ_LIBRARY=$publisher")
        export KVP_PYTHON_PUBLISHER=1
    fi
else
    parts+=("$here/../include" "$here/../src" "$here/../cmake" "$here/../CMakeLists.txt")
    how=(--config-settings cmake.define.KVP_LTO=OFF) # takes longest of all, and the release build has it
fi
# newer(find's arguments...): is one of these newer than what is installed?
newer() {
    [ -n "$(find "$@" -newer "$venv/installed" -not -name __pycache__ -print -quit)" ]
}

if [ ! -e "$venv/installed" ] || newer "${parts[@]}" || newer "$here/kvpager" -type d; then
    rm -f "$venv/installed"
    touch "$venv/begun" # what changes while it is built is newer
    "$venv/bin/pip" install --quiet --force-reinstall --no-deps "${how[@]}" "$here"
    mv "$venv/begun" "$venv/installed"
elif newer "$here/kvpager" -type f; then # no file came or went: nothing is to be compiled
    touch "$venv/begun"
    find "$here/kvpager" -type f -not -path '*/__pycache__/*' -newer "$venv/installed" -printf '%P\n' |
        while IFS= read -r name; do
            cp "$here/kvpager/$name" "$venv"/lib/python*/site-packages/kvpager/"$name"
        done
    mv "$venv/begun" "$venv/installed"
fi

# Not from the source folder: what is imported must be what was installed.
cd "$build"
if [ -n "$types" ]; then
    mypy=("$venv/bin/mypy" --config-file "$here/pyproject.toml" --cache-dir "$build/mypy-cache")
    "${mypy[@]}" -p kvpager
    "${mypy[@]}" "$here/tests"
fi
exec "$venv/bin/python" -m pytest -c "$here/pyproject.toml" --rootdir "$here" \
    -o faulthandler_timeout=240 "$here/tests" "$@"
