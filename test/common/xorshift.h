/* Numbers by chance, the same in every run: xorshift64 (Marsaglia 2003). */
#ifndef TEST_XORSHIFT_H
#define TEST_XORSHIFT_H

#include <stdint.h>

static inline uint64_t draw(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

#endif
