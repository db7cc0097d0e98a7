#!/usr/bin/env bash
# Runs the adapters' tests on the engines' own code: torch for the CPU, transformers, vLLM, a fork
# of nano-vllm (which itself is in no package index) and Dynamo's indexer, in a virtual environment
# in the build folder. A checkout of nano-vllm is used where KVP_NANO_VLLM names one.
#
#     run_adapters.sh BUILD [pytest arguments]
#
# Says why and ends with 77 where the packages cannot be had, or the disk is too small for them. The
# environment is made once, and again when what it needs changes. Where the package index has only
# the torch for CUDA, TORCH_INDEX names one that has the one for the CPU.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$(mkdir -p "${1:?the build folder}" && cd "$1" && pwd)
shift
python=${PYTHON:-python3}
venv="$build/adapters-venv"
need_kib=$((6 << 20))

torch="torch==2.13.0+cpu"
engines="vllm==0.33.0 nano-vllm-fork==20260210 ai-dynamo-runtime==1.6.1"
packages="numpy cffi pytest hypothesis msgpack transformers==5.16.1"
# What vLLM's scheduler imports of all that vLLM wants: no CUDA, no server.
packages="$packages psutil pyzmq urllib3 msgspec cbor2 aiohttp requests openai-harmony openai"
packages="$packages pillow pybase64 cachetools cloudpickle uvloop py-cpuinfo xgrammar fastapi"
packages="$packages llguidance einops prometheus-client partial-json-parser xxhash"

unset CFLAGS LDFLAGS
export PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1 HF_HUB_OFFLINE=1

skip() {
    echo "skipped: $1"
    exit 77
}

install() {
    timeout "${ADAPTERS_SECONDS:-900}" "$venv/bin/pip" install --quiet --no-compile "$@"
}

needs="$("$python" --version) $torch $engines $packages"
if [ ! -e "$venv/needs" ] || [ "$(cat "$venv/needs")" != "$needs" ]; then
    rm -rf "$venv"
    free_kib=$(df --output=avail -k "$build" | tail -n 1)
    [ "$free_kib" -ge "$need_kib" ] ||
        skip "the engines need $((need_kib >> 20)) GiB of disk, $((free_kib >> 20)) are free"
    "$python" -m venv "$venv"
    # shellcheck disable=SC2086
    if ! install ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} "$torch" ||
        ! install $packages "$torch" || ! install --no-deps $engines; then
        rm -rf "$venv"
        skip "torch, transformers, $engines cannot be had from the package index"
    fi
    printf '%s' "$needs" >"$venv/needs"
fi

install --force-reinstall --no-deps -C cmake.define.KVP_LTO=OFF "$here"
cd "$build" # what is imported must be what was installed
exec "$venv/bin/python" -m pytest -c "$here/pyproject.toml" --rootdir "$here" -rs \
    "$here"/tests/test_{nano_vllm,vllm,vllm_groups,vllm_scheduler,vllm_router,vllm_publisher,publish,publish_router,transformers,memory}.py "$@"
