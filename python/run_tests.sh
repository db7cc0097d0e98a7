#!/usr/bin/env bash
# Installs the package into a virtual environment in the build folder, as a user would with pip, and
# runs what checks it: mypy --strict and pytest.
#
#     run_tests.sh BUILD [pytest arguments]
#
# KVP_CHECK (0..3) is the level of self-checks that the library in the wheel is built with.
# The environment is made once, and again when what it needs changes.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$(mkdir -p "${1:?the build folder}" && cd "$1" && pwd)
shift
python=${PYTHON:-python3}
venv="$build/python-venv"

# Without this, a run under ctest would build the wheel with the flags of whoever started it.
unset CFLAGS LDFLAGS

packages="numpy cffi pytest hypothesis mypy typing_extensions xxhash"

needs="$("$python" --version) $packages"
if [ ! -e "$venv/needs" ] || [ "$(cat "$venv/needs")" != "$needs" ]; then
    rm -rf "$venv"
    "$python" -m venv "$venv"
    # shellcheck disable=SC2086
    "$venv/bin/pip" install --quiet --disable-pip-version-check $packages
    printf '%s' "$needs" >"$venv/needs"
fi
"$venv/bin/pip" install --quiet --disable-pip-version-check --force-reinstall --no-deps \
    --config-settings "cmake.define.KVP_CHECK=${KVP_CHECK:-0}" "$here"

# Not from the source folder: what is imported must be what was installed.
cd "$build"
"$venv/bin/mypy" --config-file "$here/pyproject.toml" --cache-dir "$build/mypy-cache" \
    -p kvpager
"$venv/bin/mypy" --config-file "$here/pyproject.toml" --cache-dir "$build/mypy-cache" \
    "$here/tests"
exec "$venv/bin/python" -m pytest -c "$here/pyproject.toml" --rootdir "$here" \
    -o faulthandler_timeout=240 "$here/tests" "$@"
