/* world: see world.h. */
#include "world.h"

#include "start.h"

#include <stdlib.h>
#include <string.h>

#include "core/cache/state.h"

enum { INTS = 4096, INTS_BLOCK = 64 };

kvp_config config_of(uint32_t S, uint32_t U, uint32_t usable)
{
    kvp_config config;
    kvp_config_init(&config);
    config.block_tokens = S;
    config.unit_tokens = U;
    config.n_blocks = usable + 1;
    config.max_seqs = 8;
    config.max_seq_tokens = 256;
    config.max_namespaces = 4;
    return config;
}

world make_world(const kvp_config *config)
{
    world w;
    assert_ok(kvp_cache_bytes(config, &w.arena_bytes));
    w.arena = aligned_alloc(64, w.arena_bytes);
    assert_non_null(w.arena);
    memset(w.arena, 0xA5, w.arena_bytes); /* its content does not matter */
    assert_ok(kvp_cache_create(config, w.arena, w.arena_bytes, &w.cache));
    start_cache(w.cache);
    assert_ok(kvp_ns_open(w.cache, NULL, 0, &w.ns));
    return w;
}

world small_world(uint32_t usable)
{
    const kvp_config config = config_of(4, 4, usable);
    return make_world(&config);
}

void end_world(world *w)
{
    kvp_violation violation;
    const kvp_status status = kvp_cache_check(w->cache, 3, &violation);
    if (status != KVP_OK)
        print_error("kvp_cache_check: %s\n", violation.detail);
    assert_ok(status);
    kvp_cache_destroy(w->cache);
    free(w->arena);
}

const int32_t *ints(int32_t first)
{
    static int32_t table[INTS + INTS];
    if (table[1] == 0)
        for (int32_t i = 0; i < INTS + INTS; i++)
            table[i] = i;
    assert_true(first >= 0 && first < INTS);
    return table + first;
}

int write_nothing(void *context, const void *bytes, size_t n_bytes)
{
    (void)context;
    (void)bytes;
    (void)n_bytes;
    return 0;
}

int fill_ints(void **state)
{
    (void)state;
    return ints(0) == NULL;
}

kvp_prompt prompt_of(const int32_t *tokens, uint32_t n_tokens)
{
    return (kvp_prompt){.struct_size = sizeof(kvp_prompt), .tokens = tokens, .n_tokens = n_tokens};
}

kvp_seq open_with(world *w, const kvp_prompt *prompt, kvp_open_info *out_info)
{
    kvp_seq seq;
    assert_ok(kvp_seq_open(w->cache, w->ns, prompt, &seq, out_info));
    return seq;
}

kvp_seq open_seq(world *w, const int32_t *tokens, uint32_t n_tokens, kvp_open_info *out_info)
{
    const kvp_prompt prompt = prompt_of(tokens, n_tokens);
    return open_with(w, &prompt, out_info);
}

kvp_seq open_done(world *w, const int32_t *tokens, uint32_t n_tokens)
{
    const kvp_seq seq = open_seq(w, tokens, n_tokens, NULL);
    assert_ok(kvp_seq_commit(w->cache, seq, n_tokens));
    return seq;
}

kvp_seq fork_seq(world *w, kvp_seq parent, uint32_t at)
{
    kvp_seq child;
    assert_ok(kvp_seq_fork(w->cache, parent, at, 0, &child));
    return child;
}

kvp_released close_seq(world *w, kvp_seq seq)
{
    kvp_released released;
    assert_ok(kvp_seq_close(w->cache, seq, &released));
    return released;
}

void leave_cached(world *w, const int32_t *tokens, uint32_t n_tokens)
{
    close_seq(w, open_done(w, tokens, n_tokens));
}

kvp_open_info match(world *w, const int32_t *tokens, uint32_t n_tokens)
{
    const kvp_prompt prompt = prompt_of(tokens, n_tokens);
    kvp_open_info info;
    assert_ok(kvp_cache_match(w->cache, w->ns, &prompt, &info));
    return info;
}

kvp_admission can_open(world *w, const kvp_prompt *prompt)
{
    kvp_admission admission;
    assert_ok(kvp_cache_can_open(w->cache, w->ns, prompt, &admission));
    return admission;
}

kvp_admission can_extend(world *w, const kvp_seq *seqs, const uint32_t *n_tokens, uint32_t n_seqs)
{
    const kvp_batch batch = batch_of(seqs, n_tokens, n_seqs);
    kvp_admission admission;
    assert_ok(kvp_cache_can_extend(w->cache, &batch, &admission));
    return admission;
}

kvp_batch batch_of(const kvp_seq *seqs, const uint32_t *n_tokens, uint32_t n_seqs)
{
    return (kvp_batch){
        .struct_size = sizeof(kvp_batch), .n_seqs = n_seqs, .seqs = seqs, .n_tokens = n_tokens};
}

kvp_stats stats_of(const world *w)
{
    kvp_stats stats;
    assert_ok(kvp_cache_stats_get(w->cache, &stats));
    return stats;
}

kvp_seq_info info_of(const world *w, kvp_seq seq)
{
    kvp_seq_info info;
    assert_ok(kvp_seq_info_get(w->cache, seq, &info));
    return info;
}

kvp_block_info block_in(const world *w, uint32_t tier, int32_t block)
{
    kvp_block_info info;
    assert_ok(kvp_block_info_get(w->cache, 0, tier, block, &info));
    return info;
}

kvp_block_info block_of(const world *w, int32_t block)
{
    return block_in(w, KVP_DEVICE, block);
}

kvp_shortage shortage_of(const world *w)
{
    kvp_shortage shortage;
    assert_ok(kvp_cache_shortage_get(w->cache, &shortage));
    return shortage;
}

int32_t row_entry(const world *w, kvp_seq seq, uint32_t idx)
{
    const int32_t *row;
    uint32_t n;
    assert_ok(kvp_seq_row(w->cache, seq, 0, &row, &n));
    assert_true(idx < n);
    return row[idx];
}

uint32_t evicted_of(const world *w, const kvp_evicted **out_evicted)
{
    uint32_t n;
    assert_ok(kvp_cache_evicted(w->cache, out_evicted, &n));
    return n;
}

uint32_t take_plan(world *w, kvp_copy *out_copies, uint32_t capacity)
{
    uint32_t n;
    assert_ok(kvp_plan_take(w->cache, out_copies, capacity, &n));
    return n;
}

static void print_ints(const char *name, const int32_t *values, size_t n)
{
    print_error("%s [", name);
    for (size_t i = 0; i < n; i++)
        print_error(i == 0 ? "%d" : " %d", (int)values[i]);
    print_error("]\n");
}

void assert_ints_are(const int32_t *got, size_t n_got, const int32_t *expected, size_t n,
                     const char *file, int line)
{
    if (n_got != n || (n > 0 && memcmp(got, expected, n * sizeof(*got)) != 0)) {
        print_ints("got     ", got, n_got);
        print_ints("expected", expected, n);
        _fail(file, line);
    }
}

void assert_row_is(const world *w, kvp_seq seq, const int32_t *expected, size_t n, const char *file,
                   int line)
{
    const int32_t *row;
    uint32_t n_row;
    assert_ok(kvp_seq_row(w->cache, seq, 0, &row, &n_row));
    assert_ints_are(row, n_row, expected, n, file, line);
}

static void assert_pool_queue(const struct kvpi_pool *pool, uint32_t class_,
                              const int32_t *expected, size_t n, const char *file, int line)
{
    const uint32_t sentinel = pool->n_blocks + class_;
    int32_t queue[INTS_BLOCK];
    size_t n_queue = 0;
    for (uint32_t b = kvpi_block(pool, sentinel)->next; b != sentinel && n_queue < INTS_BLOCK;
         b = kvpi_block(pool, b)->next)
        queue[n_queue++] = (int32_t)b;
    assert_ints_are(queue, n_queue, expected, n, file, line);
}

void assert_queue_is(const world *w, uint32_t class_, const int32_t *expected, size_t n,
                     const char *file, int line)
{
    assert_pool_queue(&w->cache->pool, class_, expected, n, file, line);
}

void assert_host_queue_is(const world *w, uint32_t class_, const int32_t *expected, size_t n,
                          const char *file, int line)
{
    assert_pool_queue(&w->cache->host, class_, expected, n, file, line);
}

uint32_t draw(uint64_t *state, uint32_t below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(((*state >> 32) * below) >> 32);
}
