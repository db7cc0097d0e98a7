/* Requests served one after the other by a cache with recurrent state. */
#ifndef SERVED_H
#define SERVED_H

#include "traffic.h"

#define UNIT 16u

typedef struct served_options {
    uint32_t blocks; /* usable ones */
    uint32_t slots;
    int ends; /* 1: the state after the last full unit of the answer is kept, too */
} served_options;

typedef struct served {
    uint64_t made, skipped, evicted; /* checkpoints */
} served;

/* Serve all requests. Gives: reused [n_requests] tokens of each prompt that were hit */
served serve_all(const traffic *of, const served_options *options, uint32_t *reused);

#endif
