/* rates: whether bringing KV back is faster than computing it, as measured in this process.
 *
 * A stretch costs a fixed time and a time for each token, so stretches are measured by their
 * length: one class for each power of two of blocks. A class that was not measured counts as fast.
 * One that is slow is refused, and measured again after some hundred refusals. */
#ifndef KVPI_LLAMA_RATES_H
#define KVPI_LLAMA_RATES_H

#include <stdint.h>

enum { KVPI_RATES_CLASSES = 16, KVPI_RATES_REFUSALS = 512 };

typedef struct kvpi_rate {
    double ns; /* of a token, smoothed; 0: not measured */
    uint32_t refusals;
} kvpi_rate;

typedef struct kvpi_rates {
    uint64_t (*now_ns)(void *context);
    void *context;
    kvpi_rate computing;
    kvpi_rate back[KVPI_RATES_CLASSES];
} kvpi_rates;

/* now_ns NULL: the monotonic clock of the system. */
void kvpi_rates_init(kvpi_rates *rates, uint64_t (*now_ns)(void *context), void *context);

uint64_t kvpi_rates_now(const kvpi_rates *rates);

/* It took from `begin` until now to compute n_tokens, or to bring back n_blocks of n_tokens. */
void kvpi_rates_computed(kvpi_rates *rates, uint64_t begin, uint32_t n_tokens);
void kvpi_rates_brought(kvpi_rates *rates, uint64_t begin, uint32_t n_blocks, uint32_t n_tokens);

/* Is a stretch of n_blocks known to be slower than computing? */
int kvpi_rates_is_slow(const kvpi_rates *rates, uint32_t n_blocks);

/* How long a token of such stretches takes to come back; 0: not measured. */
double kvpi_rates_back_ns(const kvpi_rates *rates, uint32_t n_blocks);

/* A stretch of n_blocks is wanted on the host. 0: refused, it would come back too slowly. */
int kvpi_rates_ask(kvpi_rates *rates, uint32_t n_blocks);

#endif
