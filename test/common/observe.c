/* observe: all state of a cache as bytes, see world.h. Read through the public calls where there is
 * one; the order of the queues, the plan, and which places are free next show only in what later
 * calls do, and are read from inside. */
#include "world.h"

#include <stdlib.h>
#include <string.h>

#include <kvpager/states.h>
#include <kvpager/trees.h>
#include <kvpager/windows.h>

#include "core/cache/state.h"

static void put(observed *o, const void *bytes, size_t n)
{
    if (n == 0)
        return;
    if (o->room - o->n < n) {
        o->room = (o->n + n) * 2;
        o->bytes = realloc(o->bytes, o->room);
        assert_non_null(o->bytes);
    }
    memcpy(o->bytes + o->n, bytes, n);
    o->n += n;
}

static void put_u32(observed *o, uint32_t value)
{
    put(o, &value, sizeof(value));
}

static void put_block(observed *o, const world *w, uint32_t tier, int32_t block, int32_t *tokens)
{
    const kvp_block_info info = block_in(w, tier, block);
    uint32_t n;
    assert_ok(kvp_block_tokens(w->cache, 0, tier, block, tokens, &n));
    put(o, &info, sizeof(info));
    put(o, tokens, n * sizeof(*tokens));
}

static void put_queues(observed *o, const struct kvpi_pool *pool)
{
    for (uint32_t c = 0; c < KVP_RETENTION_CLASSES + pool->n_lists; c++) { /* and parked lists */
        const uint32_t sentinel = pool->n_blocks + c;
        uint32_t b = sentinel;
        do {
            put_u32(o, b);
            b = kvpi_block(pool, b)->next;
        } while (b != sentinel);
    }
}

/* Whom blocks count for; quotas, and whose turn it is. (Rings are queues of one namespace.) */
static void put_quotas(observed *o, const struct kvpi_quotas *quotas)
{
    if (quotas->n_accounts == 0)
        return;
    for (uint32_t b = 0; b < quotas->n_blocks; b++)
        put(o, &kvpi_owned(quotas, b)->owner, sizeof(kvpi_owned(quotas, b)->owner));
    for (uint32_t place = 0; place < quotas->n_accounts; place++) {
        const struct kvpi_account *account = kvpi_account(quotas, place);
        put(o, account, sizeof(*account));
    }
    put_u32(o, quotas->turn);
    put_u32(o, quotas->n_over);
}

/* A sequence's rows, its windows, and where it may write. */
static void put_rows(observed *o, const world *w, kvp_seq seq, const kvp_seq_info *info)
{
    int64_t *slots = calloc(info->writable_tokens + 1, sizeof(*slots));
    assert_non_null(slots);
    for (uint32_t g = 0; g < w->cache->config.n_groups; g++) {
        kvp_window_info window;
        const int32_t *row;
        uint32_t n_blocks;
        assert_ok(kvp_seq_row(w->cache, seq, g, &row, &n_blocks));
        assert_ok(kvp_seq_window_get(w->cache, seq, g, &window));
        if (info->tier == KVP_DEVICE)
            assert_ok(kvp_seq_slots(w->cache, seq, g, 0, info->writable_tokens, slots));
        put(o, row, n_blocks * sizeof(*row));
        put(o, &window, sizeof(window));
        put(o, slots, info->writable_tokens * sizeof(*slots));
    }
    free(slots);
}

static void put_state(observed *o, const world *w, kvp_seq seq)
{
    kvp_state_info info;
    if (kvp_seq_state_get(w->cache, seq, &info) == KVP_OK)
        put(o, &info, sizeof(info));
}

static void put_slots(observed *o, const world *w)
{
    const uint32_t group = w->cache->config.n_groups;
    for (uint32_t s = 0; s < w->cache->config.state_slots; s++) {
        kvp_block_info info;
        assert_ok(kvp_block_info_get(w->cache, group, KVP_DEVICE, (int32_t)s, &info));
        put(o, &info, sizeof(info));
    }
    if (w->cache->config.state_slots > 0)
        put_queues(o, &w->cache->states.pool);
}

static void put_tree(observed *o, const world *w, kvp_seq seq, uint32_t n_tree)
{
    int32_t *nodes = calloc(2 * (size_t)n_tree + 1, sizeof(*nodes));
    uint32_t n;
    assert_non_null(nodes);
    assert_ok(kvp_seq_tree(w->cache, seq, nodes, nodes + n_tree, n_tree, &n));
    put(o, nodes, 2 * (size_t)n * sizeof(*nodes));
    free(nodes);
}

static void put_seq(observed *o, const world *w, const struct kvpi_seq *s)
{
    const kvp_seq seq = kvpi_table_handle(&w->cache->table, s, w->cache->recorder.cache_bits);
    const kvp_seq_info info = info_of(w, seq);
    int32_t *tokens = calloc(info.kept_tokens + 1, sizeof(*tokens));
    assert_non_null(tokens);
    assert_ok(kvp_seq_tokens(w->cache, seq, 0, info.kept_tokens, tokens));
    put(o, &seq, sizeof(seq));
    put(o, &info, sizeof(info));
    put(o, tokens, info.kept_tokens * sizeof(*tokens));
    put_rows(o, w, seq, &info);
    put_tree(o, w, seq, info.tree_tokens);
    put_state(o, w, seq);
    put_u32(o, s->uncached_from);
    put_u32(o, s->n_partial_keys);
    put(o, &s->tree_step, info.tree_tokens > 0 ? sizeof(s->tree_step) : 0);
    free(tokens);
}

static void put_spaces(observed *o, const kvp_cache *cache)
{
    const struct kvpi_space *spaces = kvpi_at(cache, cache->spaces_at);
    for (uint32_t i = 0; i < cache->config.max_namespaces; i++) {
        put(o, &spaces[i].generation, sizeof(spaces[i].generation));
        if (spaces[i].generation & 1) {
            put_u32(o, spaces[i].root);
            put(o, &spaces[i].openers, sizeof(spaces[i].openers));
            put(o, spaces[i].name, spaces[i].name_bytes);
        }
    }
}

static void put_steps(observed *o, const kvp_cache *cache)
{
    const struct kvpi_steps *steps = &cache->steps;
    const uint32_t *places = kvpi_at(cache, steps->places_at);
    const uint32_t *until = kvpi_at(cache, steps->until_at);
    const uint32_t room = cache->config.max_seqs;
    put(o, &steps->begun, sizeof(steps->begun));
    put(o, &steps->effective, sizeof(steps->effective));
    for (uint64_t step = steps->effective + 1; step <= steps->begun; step++) {
        const size_t at = (size_t)(step % steps->max);
        put_u32(o, steps->state[at]);
        put_u32(o, steps->n_copies[at]);
        put(o, places + at * room, steps->n_commits[at] * sizeof(*places));
        put(o, until + at * room, room * sizeof(*until));
    }
}

static void put_events(observed *o, const kvp_cache *cache)
{
    const struct kvpi_events *events = &cache->events;
    put(o, &events->newest, sizeof(events->newest));
    for (uint64_t i = 0; i < events->newest && i < events->capacity; i++) {
        const uint64_t at = (events->newest - 1 - i) % events->capacity;
        const kvp_event *event = (const kvp_event *)kvpi_at(cache, events->events_at) + at;
        put(o, event, sizeof(*event));
    }
}

observed observe(const world *w)
{
    observed o = {NULL, 0, 0};
    const kvp_cache *cache = w->cache;
    const kvp_evicted *evicted;
    const uint32_t n_evicted = evicted_of(w, &evicted);
    kvp_stats stats = stats_of(w);
    int32_t *tokens = calloc(cache->config.block_tokens, sizeof(*tokens));
    assert_non_null(tokens);
    stats.refused = 0;
    put(&o, &stats, sizeof(stats));
    for (uint32_t b = 0; b < cache->config.n_blocks; b++)
        put_block(&o, w, KVP_DEVICE, (int32_t)b, tokens);
    for (uint32_t b = 0; b < cache->config.host_blocks; b++)
        put_block(&o, w, KVP_HOST, (int32_t)b, tokens);
    free(tokens);
    put_slots(&o, w);
    put_queues(&o, &cache->pool);
    put_quotas(&o, &cache->pool.quotas);
    if (cache->config.host_blocks > 0) {
        put_queues(&o, &cache->host);
        put_quotas(&o, &cache->host.quotas);
    }
    for (uint32_t place = 0; place < cache->config.max_seqs; place++) {
        const struct kvpi_seq *seq = kvpi_seq_at(&cache->table, place);
        if (seq->generation & 1)
            put_seq(&o, w, seq);
    }
    put(&o, kvpi_at(&cache->table, cache->table.free_at), cache->table.n_free * sizeof(uint32_t));
    put_spaces(&o, cache);
    put(&o, kvpi_at(&cache->plan, cache->plan.copies_at), (size_t)cache->plan.n * sizeof(kvp_copy));
    put_steps(&o, cache);
    put_events(&o, cache);
    for (uint32_t i = 0; i < n_evicted; i++) {
        put(&o, &evicted[i].hash, sizeof(evicted[i].hash));
        put(&o, &evicted[i].block, sizeof(evicted[i].block));
        put(&o, &evicted[i].tier, sizeof(evicted[i].tier));
        put(&o, &evicted[i].kept, sizeof(evicted[i].kept));
        put(&o, &evicted[i].group, sizeof(evicted[i].group));
    }
    return o;
}

void drop_observed(observed *o)
{
    free(o->bytes);
    o->bytes = NULL;
}

int same_observed(const observed *a, const observed *b)
{
    return a->n == b->n && memcmp(a->bytes, b->bytes, a->n) == 0;
}

void assert_observed(const world *w, observed *before, const char *file, int line)
{
    observed now = observe(w);
    const int same = same_observed(before, &now);
    drop_observed(before);
    drop_observed(&now);
    if (!same) {
        print_error("the call changed something\n");
        _fail(file, line);
    }
}
