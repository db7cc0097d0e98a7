/* start: a cache that has run for long, for tests. A library without checks does not have it.
 *
 * What a counter does at 2^31, 2^32 or 2^63 cannot be waited for. A fresh cache is given the
 * numbers that it would have then; from there on it goes its own way.
 */
#include "core/cache/events.h"
#include "core/cache/state.h"
#include "core/calls/start.h"

#if KVP_CHECK >= 1

/* So far before the last generation no run of a test comes to it: places are not retired. */
#define LEFT (1u << 20)

/* The largest generation of a closed place that is at most `start`. */
static uint64_t generation_at(uint64_t start, uint32_t place_bits)
{
    const uint64_t most = kvpi_handle_last_generation(place_bits) - LEFT;
    return (start < most ? start : most) & ~(uint64_t)1;
}

static void start_spaces(kvp_cache *cache, uint64_t start)
{
    struct kvpi_space *spaces = kvpi_at(cache, cache->spaces_at);
    for (uint32_t place = 0; place < cache->config.max_namespaces; place++) {
        spaces[place].generation = generation_at(start, cache->space_bits);
    }
}

static void start_blocks(struct kvpi_pool *pool, uint64_t start)
{
    uint32_t *wraps = kvpi_at(pool, pool->wraps_at);
    for (uint32_t b = 1; b < pool->n_blocks; b++) {
        kvpi_block(pool, b)->generation = (uint32_t)start;
        wraps[b] = (uint32_t)(start >> 32);
    }
}

/* As after so many resets: what is remembered of them is there. */
static void start_events(kvp_cache *cache, uint64_t start)
{
    const uint64_t capacity = cache->events.capacity;
    cache->events.newest = start > capacity ? start - capacity : 0;
    while (capacity > 0 && cache->events.newest < start) {
        kvpi_tell_cleared(cache, KVPI_NO_NODE);
    }
}

void kvpi_start_at(kvp_cache *cache, uint64_t start)
{
    KVPI_ASSERT(!cache->used && cache->steps.begun == 0); /* nothing knows a number yet */
    cache->calls = start & ~(uint64_t)1;
    cache->batch = start;
    kvpi_set(&cache->steps.begun, start);
    kvpi_set(&cache->steps.effective, start);
    kvpi_set(&cache->lending.number, start);
    kvpi_set(&cache->lending.plans, start);
    kvpi_set(&cache->lending.plans_done, start);
    for (uint32_t place = 0; place < cache->table.max_seqs; place++) {
        kvpi_seq_at(&cache->table, place)->generation =
            generation_at(start, cache->table.place_bits);
    }
    start_blocks(&cache->pool, start);
    start_blocks(&cache->host, start);
    start_blocks(&cache->states.pool, start);
    start_blocks(&cache->states.host, start);
    start_spaces(cache, start);
    start_events(cache, start);
}

#endif
