/* See allocations.h.
 *
 * The calls are drawn as everywhere else, with an oracle beside the cache to drive the generator;
 * both allocate as they like. Only while a call is on the cache are the counters on: in that time
 * everything that allocates is the library, or kvp_oplog_call_run, whose storage is made
 * beforehand.
 */
#include "allocations.h"
#include "generate.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static bool counting;
static uint64_t n_allocations;

/* The linker's --wrap: a call of X comes to __wrap_X, and __real_X is the true one. */
void *__real_malloc(size_t n_bytes);
void *__real_calloc(size_t n, size_t n_bytes);
void *__real_realloc(void *at, size_t n_bytes);
void *__real_aligned_alloc(size_t alignment, size_t n_bytes);
void *__real_mmap(void *at, size_t n_bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_malloc(size_t n_bytes);
void *__wrap_calloc(size_t n, size_t n_bytes);
void *__wrap_realloc(void *at, size_t n_bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t n_bytes);
void *__wrap_mmap(void *at, size_t n_bytes, int protection, int flags, int fd, off_t offset);

void *__wrap_malloc(size_t n_bytes)
{
    n_allocations += counting;
    return __real_malloc(n_bytes);
}

void *__wrap_calloc(size_t n, size_t n_bytes)
{
    n_allocations += counting;
    return __real_calloc(n, n_bytes);
}

void *__wrap_realloc(void *at, size_t n_bytes)
{
    n_allocations += counting;
    return __real_realloc(at, n_bytes);
}

void *__wrap_aligned_alloc(size_t alignment, size_t n_bytes)
{
    n_allocations += counting;
    return __real_aligned_alloc(alignment, n_bytes);
}

void *__wrap_mmap(void *at, size_t n_bytes, int protection, int flags, int fd, off_t offset)
{
    n_allocations += counting;
    return __real_mmap(at, n_bytes, protection, flags, fd, offset);
}

/* More than any outcome of these configurations needs. */
#define STORAGE_BYTES (1u << 22)

static bool reserve_outcome(kvp_outcome *outcome)
{
    memset(outcome, 0, sizeof *outcome);
    outcome->storage = malloc(STORAGE_BYTES);
    outcome->storage_bytes = STORAGE_BYTES;
    return outcome->storage != NULL;
}

/* A call whose outcome has no storage yet must be seen to allocate: else nothing is counted. */
static bool counters_work(kvp_cache *cache)
{
    kvp_outcome outcome = {0};
    kvp_call call = {.op = KVP_CALL_PLAN_TAKE};

    n_allocations = 0;
    counting = true;
    (void)kvp_oplog_call_run(cache, &call, &outcome);
    counting = false;
    kvp_outcome_free(&outcome);
    return n_allocations > 0;
}

/* Run calls on a cache; gives the number of calls during which something was allocated. */
static uint64_t run_counted(kvp_cache *cache, oracle *o, generator *g, uint64_t ops)
{
    kvp_outcome seen, foretold;
    uint64_t guilty = 0;
    kvp_call call;

    if (!reserve_outcome(&seen))
        return 1;
    for (uint64_t i = 0; i < ops; i++) {
        generator_next(g, &call);
        n_allocations = 0;
        counting = true;
        (void)kvp_oplog_call_run(cache, &call, &seen);
        counting = false;
        if (n_allocations && guilty++ == 0)
            printf("%s allocated %" PRIu64 " times (call %" PRIu64 ")\n",
                   kvp_oplog_call_name(call.op), n_allocations, i);
        oracle_run(o, &call, &foretold);
        oracle_learn(o, &call, &seen, &foretold);
        generator_saw(g, &call, &seen);
    }
    kvp_outcome_free(&seen);
    return guilty;
}

static uint64_t run_config(uint64_t seed, uint64_t index, uint64_t ops, uint64_t *out_at_creation)
{
    kvp_config config, resolved;
    kvp_cache *cache = NULL;
    uint64_t guilty = 1;
    generator *g;
    oracle *o;

    generate_config(seed, index, &config);
    if (config.block_tokens > 64)
        return 0;
    n_allocations = 0;
    counting = true;
    (void)kvp_cache_create(&config, NULL, 0, &cache);
    counting = false;
    if (!cache)
        return 1;
    *out_at_creation += n_allocations;
    kvp_config_init(&resolved);
    if (counters_work(cache) && kvp_cache_config_get(cache, &resolved) == KVP_OK) {
        o = oracle_create(&resolved);
        g = generator_create(seed, index, o);
        guilty = run_counted(cache, o, g, ops);
        generator_destroy(g);
        oracle_destroy(o);
    }
    kvp_cache_destroy(cache);
    return guilty;
}

int allocations_run(uint64_t seed, uint64_t ops)
{
    uint64_t configs = 20, guilty = 0, at_creation = 0;

    for (uint64_t i = 0; i < configs; i++)
        guilty += run_config(seed, i, ops / configs, &at_creation);
    printf("%" PRIu64 " calls, %" PRIu64 " of them allocated; %" PRIu64
           " allocations at creation of %" PRIu64 " caches\n",
           ops, guilty, at_creation, configs);
    return guilty || at_creation < configs / 2 ? 1 : 0; /* fewer: mmap is not counted */
}
