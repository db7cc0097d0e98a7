#!/usr/bin/env python3
"""llama-server of the library that kvpager-serve is linked with, as PyPI's xllamacpp has it: starts it,
prints its port, and ends when its input does.

    bench_peer.py MODEL SLOTS CELLS THREADS

SLOTS 0: what llama-server does without -np: four slots that share their cells.
"""

import sys
import urllib.parse

import xllamacpp


def main(model, slots, cells, threads):
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.n_parallel = slots or 4
    params.kv_unified = slots == 0
    params.n_ctx = cells
    params.n_gpu_layers = 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.port = 0
    params.endpoint_metrics = True
    params.warmup = False
    params.verbosity = -1
    server = xllamacpp.Server(params)
    print(urllib.parse.urlparse(server.listening_address).port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(sys.argv[1], *map(int, sys.argv[2:]))
