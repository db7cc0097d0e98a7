#!/usr/bin/env bash
# Tests libkvpager_llama with an unmodified llama.cpp and a real model (make llama).
#
#     llama.sh BUILD        gets what is needed into BUILD, builds there, runs the tests
#
# What it downloads: scripts/llama_files.sh. Ends with 77 where that cannot be had.
set -euo pipefail

source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$(mkdir -p "${1:?the build folder}" && cd "$1" && pwd)
unpacked=$("$source/scripts/llama_files.sh" "$build")

cmake -S "$source" -B "$build/tests" -G Ninja -DCMAKE_BUILD_TYPE=Release -DKVP_CHECK=1 \
    -DKVP_LTO=OFF -DKVP_BUILD_EXAMPLES=OFF -DKVP_BUILD_FUZZ=OFF \
    -DKVP_LLAMA_INCLUDE="$unpacked/include" \
    -DKVP_LLAMA_LIBRARY="$unpacked/libllama.so;$unpacked/libpython_names.so" \
    -DKVP_LLAMA_MODEL="$unpacked/model.gguf" >"$build/configure.log" ||
    { cat "$build/configure.log"; exit 1; }
ninja -C "$build/tests" kvp_llama_real >"$build/build.log" || { cat "$build/build.log"; exit 1; }
[ -n "${LLAMA_NO_RUN:-}" ] || ctest --test-dir "$build/tests" -L llama_real --output-on-failure --verbose
