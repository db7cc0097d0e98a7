#!/usr/bin/env bash
# Runs machine.py with libclang, which a virtual environment in the build folder has.
#
#     machine.sh BUILD [arguments of machine.py]
#
# Prints why and ends with 77 where libclang cannot be had from the package index.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$(mkdir -p "${1:?the build folder}" && cd "$1" && pwd)
shift
venv="$build/venv"
libclang="libclang==14.0.6"

if [ "$(cat "$venv/needs" 2>/dev/null)" != "$libclang" ]; then
    rm -rf "$venv"
    "${PYTHON:-python3}" -m venv "$venv"
    if ! "$venv/bin/pip" install --quiet --disable-pip-version-check "$libclang"; then
        rm -rf "$venv"
        echo "skipped: $libclang cannot be had from the package index"
        exit 77
    fi
    echo "$libclang" >"$venv/needs"
fi
exec "$venv/bin/python" "$here/machine.py" --build "$build" "$@"
