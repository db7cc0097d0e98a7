#!/usr/bin/env bash
# Tests libkvpager_llama with an unmodified llama.cpp and a real model (make llama).
#
#     llama.sh BUILD [test]     gets what is needed into BUILD, builds there, runs the tests
#     llama.sh BUILD serve ...  builds kvpager-serve and starts it with the model and these options
#     llama.sh BUILD demo ...   the same for 32 users, prints what the cache saved, and ends
#     llama.sh BUILD bench ...  compares it with llama-server of the same library (bench.py)
#     llama.sh BUILD calibrate  its hits beside those of `kvpager replay` (calibrate.py)
#
# The servers use kvpager's attention. GGML_BACKEND_PATH= (empty) is for ggml's.
#
# What it downloads: scripts/llama_files.sh. Ends with 77 where that cannot be had.
set -euo pipefail

source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$(mkdir -p "${1:?the build folder}" && cd "$1" && pwd)
shift
what=${1:-test}
[ $# -eq 0 ] || shift
unpacked=$("$source/scripts/llama_files.sh" "$build")

quietly=$source/scripts/quietly.sh
"$quietly" "configuring $build/tests" cmake -S "$source" -B "$build/tests" -G Ninja -DCMAKE_BUILD_TYPE=Release -DKVP_CHECK=1 \
    -DKVP_LTO=OFF -DKVP_BUILD_EXAMPLES=OFF -DKVP_BUILD_FUZZ=OFF \
    -DKVP_LLAMA_INCLUDE="$unpacked/include" \
    -DKVP_LLAMA_LIBRARY="$unpacked/libllama.so;$unpacked/libpython_names.so" \
    -DKVP_LLAMA_MODEL="$unpacked/model.gguf" \
    -DKVP_GGML=ON -DKVP_GGML_SOURCE="$unpacked"
targets="kvpager_serve kvpager_ggml"
[ "$what" != calibrate ] || targets="kvpager_serve kvpager_tool"
[ "$what" != test ] || targets="$targets kvp_llama_real kvp_llama_steps kvp_llama_allocated kvp_serve_fake"
# shellcheck disable=SC2086
"$quietly" "building $targets: a minute or two, the first time" ninja -C "$build/tests" $targets
serve="$build/tests/kvpager-serve"
attention="$build/tests/libggml-kvpager.so"

# OpenAI's Python client (1 MB, and what it needs: 8 MB).
test_openai() {
    [ -x "$build/openai/bin/python" ] || python3 -m venv "$build/openai"
    "$build/openai/bin/python" -m pip install -q openai==3.57.0 >"$build/openai.log" 2>&1 ||
        { echo "skipped: openai cannot be had"; return 0; }
    KVP_SERVE="$build/tests/test/kvp_serve_fake" \
        "$build/openai/bin/python" "$source/test/llama/serve/openai_client.py"
}

start() {
    GGML_BACKEND_PATH=${GGML_BACKEND_PATH-$attention}
    [ -n "$GGML_BACKEND_PATH" ] && export GGML_BACKEND_PATH || unset GGML_BACKEND_PATH
    exec "$@"
}

case $what in
test)
    [ -z "${LLAMA_NO_RUN:-}" ] || exit 0
    ctest --test-dir "$build/tests" -L llama_real --output-on-failure --verbose
    test_openai
    ;;
serve)
    echo "kvpager: loading SmolLM2-135M-Instruct; end it with Ctrl-C" >&2
    start "$serve" -m "$unpacked/model.gguf" -a SmolLM2-135M-Instruct "$@"
    ;;
demo)
    start python3 "$source/integrations/llama/serve/demo.py" "$serve" -m "$unpacked/model.gguf" "$@"
    ;;
bench)
    peer="$build/peer/bin/python"
    [ -x "$peer" ] || python3 -m venv "$build/peer"
    "$peer" -m pip install -q --no-index --no-deps "$build"/downloads/xllamacpp-*.whl
    exec python3 "$source/integrations/llama/serve/bench.py" "$serve" "$unpacked/model.gguf" "$peer" \
        --attention "$attention" "$@"
    ;;
calibrate)
    exec python3 "$source/integrations/llama/serve/calibrate.py" "$serve" "$unpacked/model.gguf" \
        --kvpager "$build/tests/kvpager" "$@"
    ;;
*)
    echo "usage: llama.sh BUILD [test|serve|demo|bench|calibrate] [OPTION...]" >&2
    exit 2
    ;;
esac
