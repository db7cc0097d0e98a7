/* Numbers by chance, the same in every run (xorshift64). */
#ifndef KVP_TEST_STORE_DRAW_H
#define KVP_TEST_STORE_DRAW_H

#include <stdint.h>

static uint64_t random_state = 1;

/* 0..n-1 */
static inline uint32_t draw(uint32_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 33) % n;
}

#endif
