/* Worlds whose events are read, in units of 4 tokens. */
#ifndef TEST_EVENTS_WORLD_H
#define TEST_EVENTS_WORLD_H

#include <string.h>

#include "tiers.h"

static const kvp_hash no_hash;

static inline kvp_config events_config(uint32_t usable, uint32_t host)
{
    kvp_config config = tiers_config(4, 4, usable, host);
    config.max_events = 64;
    return config;
}

static inline world events_world(uint32_t usable, uint32_t host)
{
    const kvp_config config = events_config(usable, host);
    return make_world(&config);
}

/* The hashes of `n_units` units of 4 tokens from first, first + 1, ...; hashes[0] is the root's. */
static inline void chain_of(const char *name, int32_t first, uint32_t n_units, kvp_hash *hashes)
{
    const kvp_hash_input input = {.unit_tokens = 4, .n_tokens = 4 * n_units, .tokens = ints(first)};
    assert_ok(kvp_hash_root(4, 0, name, strlen(name), &hashes[0]));
    assert_ok(kvp_hash_units(&input, &hashes[0], hashes + 1));
}

#endif
