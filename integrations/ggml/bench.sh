#!/usr/bin/env bash
# Measures libggml-kvpager.so in llama.cpp: the operation alone, and a model, by turns.
#
#     bench.sh BUILD MODEL [CELLS...]     BUILD as scripts/ggml.sh makes it; cells: 256 2048 8000
#
# With one thread times are the processor's, else by the clock: nothing else may run then.
set -euo pipefail

build=$1 model=$2
shift 2
[ $# -gt 0 ] || set -- 256 2048 8000
bench="$build/integrations/ggml/ggml_bench" library="$build/libggml-kvpager.so"
all=$(nproc)
for threads in $(printf '%s\n' 1 $((all > 1 ? all / 2 : 1)) "$all" | sort -nu); do
    echo "$threads threads"
    "$bench" "$library" op "$threads"
    for cells in "$@"; do
        for round in 1 2 3; do
            "$bench" none "$model" "$cells" "$threads" 0
            "$bench" none "$model" "$cells" "$threads" 1
            "$bench" "$library" "$model" "$cells" "$threads" 1
        done
    done
done
