#!/usr/bin/env bash
# Builds libggml-kvpager.so for one release of llama.cpp and tests it there (make ggml).
#
#     ggml.sh BUILD [bench]    bench: measures, too; half an hour on a quiet machine.
#                              GGML_BENCH_PIECES: what of it (integrations/ggml/bench.sh)
#
# What it downloads: scripts/llama_files.sh. Ends with 77 where that cannot be had.
set -euo pipefail

source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$(mkdir -p "${1:?the build folder}" && cd "$1" && pwd)
llama=$("$source/scripts/llama_files.sh" "$build")

cmake -S "$source" -B "$build/ggml" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DKVP_BUILD_EXAMPLES=OFF -DKVP_BUILD_FUZZ=OFF -DKVP_BUILD_TOOL=OFF \
    -DKVP_GGML_SOURCE="$llama" -DKVP_GGML_LIBRARY="$llama/libllama.so;$llama/libpython_names.so" \
    -DKVP_GGML_MODEL="$llama/model.gguf" >"$build/configure.log" ||
    { cat "$build/configure.log"; exit 1; }
ninja -C "$build/ggml" ggml_programs >"$build/build.log" || { cat "$build/build.log"; exit 1; }
ctest --test-dir "$build/ggml" -L '^ggml$' --output-on-failure
[ "${2:-}" = bench ] || exit 0
# shellcheck disable=SC2086
"$source/integrations/ggml/bench.sh" "$build/ggml" "$llama/model.gguf" ${GGML_BENCH_PIECES:-}
