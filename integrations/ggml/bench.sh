#!/usr/bin/env bash
# Measures libggml-kvpager.so in llama.cpp: the operation alone, and a model, by turns.
#
#     bench.sh BUILD MODEL [PIECE...]     BUILD as scripts/ggml.sh makes it. A piece takes at most
#                                         minutes; nothing else may run then:
#         op:THREADS              the operation
#         token:CELLS:THREADS     tokens one by one
#         q8_0:CELLS:THREADS      the same with a cache of q8_0
#         prompt:CELLS:THREADS    a prompt
#         idle:CELLS:THREADS      tokens beside cells of others, who do nothing
#
# Without pieces all of them, at all cores and at half of them.
set -euo pipefail

build=$1 model=$2
shift 2
bench="$build/integrations/ggml/ggml_bench" library="$build/libggml-kvpager.so"

default_pieces() {
    local threads all
    all=$(nproc)
    for threads in $(printf '%s\n' $((all > 1 ? all / 2 : 1)) "$all" | sort -nu); do
        echo "op:$threads"
        printf "%s:$threads\n" token:{256,2048,8192} q8_0:{2048,8192} prompt:{256,2048,8192} \
            idle:{8192,32768,65536}
    done
}

# Rounds by turns: ggml without and with flash attention, kvpager.
measure() {
    local kind=$1 cells=$2 threads=$3 rounds=$4 round
    for round in $(seq "$rounds"); do
        [ "$kind" = q8_0 ] || "$bench" none "$model" "$kind" "$cells" "$threads" 0
        for back_end in none "$library"; do
            if [ "$kind" = q8_0 ]; then
                "$bench" "$back_end" "$model" token "$cells" "$threads" 8
            else
                "$bench" "$back_end" "$model" "$kind" "$cells" "$threads" 1
            fi
        done
    done
}

# shellcheck disable=SC2046
[ $# -gt 0 ] || set -- $(default_pieces)
for piece in "$@"; do
    IFS=: read -r kind cells threads <<<"$piece"
    case $kind in
    op) "$bench" "$library" op "$cells" ;;
    prompt) measure "$kind" "$cells" "$threads" $((cells > 4096 ? 1 : 3)) ;;
    *) measure "$kind" "$cells" "$threads" 3 ;;
    esac
done
