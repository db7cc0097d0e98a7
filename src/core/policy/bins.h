/* bins: ages of content, as the learned policy counts them.
 *
 * Time is the number of block references so far; it stands still without requests. An age is a
 * difference of two times. C is the number of blocks of the tier. Ages up to 16 C fall into
 * KVPI_BINS bins, whose edges are
 *
 *   0   C/16 x { 1  1.5  2  3  4  6  8 ... 128  192  256 }
 *
 * so a bin is at most as long as what is before it, at any size of the cache. Older content is
 * worth nothing.
 *
 * Where time has to be short, it is kept in units of 2^shift references, at most C/4096: 16 C are
 * less than 2^17 of them.
 */
#ifndef KVPI_POLICY_BINS_H
#define KVPI_POLICY_BINS_H

#include "base/base.h"

enum { KVPI_BINS = 17, KVPI_SPAN = 16 };

/* The lower edge of a bin, in 32nds of C: 0 2 3 4 6 8 12 ... 384 512. Bin KVPI_BINS is beyond. */
static inline uint32_t kvpi_bins_32nds(uint32_t bin)
{
    if (bin == 0) {
        return 0;
    }
    return (bin % 2 == 1 ? 2u : 3u) << (bin - 1) / 2;
}

/* The same in references. */
static inline uint64_t kvpi_bins_edge(uint32_t n_blocks, uint32_t bin)
{
    return ((uint64_t)n_blocks * kvpi_bins_32nds(bin) + 31) / 32;
}

/* The last bin whose lower edge is at most the age: none that a small cache leaves empty. */
static inline uint32_t kvpi_bins_of(uint32_t n_blocks, uint64_t age)
{
    const uint64_t scaled = age * 32 / n_blocks;
    if (scaled >= 32 * KVPI_SPAN) {
        return KVPI_BINS;
    }
    if (scaled < 2) {
        return 0;
    }
    const uint32_t log = 63u - (uint32_t)__builtin_clzll(scaled);
    return 2 * log - 1 + (uint32_t)(scaled >> (log - 1) & 1);
}

static inline uint32_t kvpi_bins_shift(uint32_t n_blocks)
{
    return n_blocks < 4096 ? 0 : 31u - (uint32_t)__builtin_clz(n_blocks / 4096);
}

#endif
