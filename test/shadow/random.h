/* A fixed stream of numbers, and the verdict of a run. */
#ifndef KVP_TEST_SHADOW_RANDOM_H
#define KVP_TEST_SHADOW_RANDOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* splitmix64 */
static inline uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* 0..n-1; 0 when n is 0. */
static inline uint32_t random_below(uint64_t *state, uint64_t n)
{
    return n == 0 ? 0 : (uint32_t)(random_next(state) % n);
}

static inline bool random_percent(uint64_t *state, uint32_t percent)
{
    return random_below(state, 100) < percent;
}

/* What a run came to: the first thing that went wrong stays. */
typedef struct verdict {
    bool is_bad;
    char why[768];
} verdict;

#if defined(__GNUC__)
#define VERDICT_FORMAT __attribute__((format(printf, 2, 3)))
#else
#define VERDICT_FORMAT
#endif

void verdict_bad(verdict *v, const char *format, ...) VERDICT_FORMAT;

/* Memory that a test cannot do without: zeroed, or the program ends. */
void *random_allocate(size_t n, size_t size);
void *random_grow(void *old, size_t n, size_t size);

#endif
