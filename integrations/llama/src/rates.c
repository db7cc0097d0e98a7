/* rates: see rates.h. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */

#include "rates.h"

#include <string.h>
#include <time.h>

static uint64_t read_clock(void *context)
{
    struct timespec now;
    (void)context;
    if (clock_gettime(CLOCK_MONOTONIC, &now) != 0)
        return 0;
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void kvpi_rates_init(kvpi_rates *rates, uint64_t (*now_ns)(void *context), void *context)
{
    memset(rates, 0, sizeof *rates);
    rates->now_ns = now_ns != NULL ? now_ns : read_clock;
    rates->context = context;
}

uint64_t kvpi_rates_now(const kvpi_rates *rates)
{
    return rates->now_ns(rates->context);
}

static void add(const kvpi_rates *rates, kvpi_rate *rate, uint64_t begin, uint32_t n_tokens)
{
    const double ns = (double)(kvpi_rates_now(rates) - begin) / (double)n_tokens;
    rate->ns = rate->ns == 0 ? ns : rate->ns + (ns - rate->ns) / 8;
    rate->refusals = 0;
}

static uint32_t class_of(uint32_t n_blocks)
{
    uint32_t c = 0;
    while (n_blocks > 1 && c + 1 < KVPI_RATES_CLASSES) {
        n_blocks /= 2;
        c++;
    }
    return c;
}

void kvpi_rates_computed(kvpi_rates *rates, uint64_t begin, uint32_t n_tokens)
{
    add(rates, &rates->computing, begin, n_tokens);
}

void kvpi_rates_brought(kvpi_rates *rates, uint64_t begin, uint32_t n_blocks, uint32_t n_tokens)
{
    add(rates, &rates->back[class_of(n_blocks)], begin, n_tokens);
}

double kvpi_rates_back_ns(const kvpi_rates *rates, uint32_t n_blocks)
{
    return rates->back[class_of(n_blocks)].ns;
}

int kvpi_rates_is_slow(const kvpi_rates *rates, uint32_t n_blocks)
{
    const double back = kvpi_rates_back_ns(rates, n_blocks);
    return rates->computing.ns > 0 && back > rates->computing.ns;
}

int kvpi_rates_ask(kvpi_rates *rates, uint32_t n_blocks)
{
    kvpi_rate *back = &rates->back[class_of(n_blocks)];
    if (!kvpi_rates_is_slow(rates, n_blocks))
        return 1;
    if (++back->refusals < KVPI_RATES_REFUSALS)
        return 0;
    memset(back, 0, sizeof *back);
    return 1;
}
