/* cache_life: configuration, creation, reset, destruction; what every public call begins and ends
 * with.
 *
 * The cache lies at the start of its arena, and all arrays behind it:
 *
 *   | kvp_cache | pool: blocks | prefix: nodes, keys, index | table: places, rows | ... |
 *
 * The same function plans the arena for kvp_cache_bytes and for create, so they cannot differ.
 */
#include <kvpager/inspect.h>
#include <kvpager/oplog.h>

#include "cache_state.h"

#include <stdlib.h>
#include <string.h>

void kvp_config_init(kvp_config *config)
{
    if (config == NULL) {
        return;
    }
    memset(config, 0, sizeof(*config));
    config->struct_size = sizeof(*config);
    config->block_tokens = 16;
    config->n_blocks = 1024;
    config->max_seqs = 256;
    config->max_seq_tokens = 32768;
    config->max_namespaces = 16;
    config->prefix_cache = 1;
    config->keep_evicted = 1;
    config->max_steps_out = 4;
    config->n_groups = 1;
}

static int groups_valid(const kvp_config *config)
{
    if (config->n_groups == 0 || config->n_groups > KVP_GROUPS_MAX) {
        return 0;
    }
    for (uint32_t g = 0; g < KVP_GROUPS_MAX; g++) {
        const kvp_window *w = &config->groups[g];
        if ((w->recent_tokens == 0 || g >= config->n_groups) &&
            (w->sink_tokens | w->recent_tokens) != 0) {
            return 0;
        }
    }
    return 1;
}

static int config_valid(const kvp_config *config)
{
    const uint32_t S = config->block_tokens;
    const uint32_t U = config->unit_tokens == 0 ? S : config->unit_tokens;
    if (S == 0 || S > KVP_BLOCK_TOKENS_MAX || U > S || S % U != 0) {
        return 0;
    }
    if (config->n_blocks < 2 || config->n_blocks > INT32_MAX || config->max_seqs == 0 ||
        config->max_seqs > (1u << 20) || config->max_seq_tokens == 0 ||
        config->max_seq_tokens > INT32_MAX || config->max_namespaces == 0 ||
        config->max_namespaces > 65536 || config->max_unit_keys > KVPI_UNIT_KEYS_MAX) {
        return 0;
    }
    if (config->commit_policy > KVP_KEEP || config->full_hit > KVP_FULL_HIT_RECOMPUTE ||
        config->prefix_cache > 1 || config->test_hash_bits > 32 ||
        !(config->watermark >= 0.0 && config->watermark < 1.0)) {
        return 0;
    }
    if (config->host_blocks == 1 || config->host_blocks > INT32_MAX || config->keep_evicted > 1 ||
        config->steps > KVP_STEPS_OVERLAPPED || config->max_steps_out == 0 ||
        config->max_steps_out > KVPI_STEPS_OUT_MAX ||
        config->max_tree_tokens > KVP_TREE_TOKENS_MAX || config->quotas > 1 ||
        !groups_valid(config)) {
        return 0;
    }
    /* Unit slots of the pools are counted in 32 bits; UINT32_MAX is none. */
    if (((uint64_t)config->n_blocks + config->host_blocks) * (S / U) > UINT32_MAX - 1) {
        return 0;
    }
    return (config->n_uncached_tokens == 0 || config->uncached_tokens != NULL) &&
           (config->n_nodes == 0 ||
            (config->n_nodes > config->max_namespaces && config->n_nodes < INT32_MAX));
}

/* Enough nodes for every unit of the pools, and some for prefixes that lost their blocks. */
static uint32_t default_nodes(const kvp_config *config)
{
    const uint64_t n_blocks = (uint64_t)config->n_blocks - 1 + config->host_blocks;
    const uint64_t units = n_blocks * (config->block_tokens / config->unit_tokens);
    const uint64_t n = units + units / 64 + config->max_seqs + config->max_namespaces + 64;
    return n < INT32_MAX ? (uint32_t)n : INT32_MAX - 1;
}

/* A swap copies whole sequences. */
static uint32_t default_copies(const kvp_config *config)
{
    const uint64_t n =
        (uint64_t)config->max_seqs + 64 + (config->host_blocks > 0 ? config->n_blocks : 0);
    return n < INT32_MAX ? (uint32_t)n : INT32_MAX;
}

static void resolve(kvp_config *config)
{
    config->unit_tokens = config->unit_tokens == 0 ? config->block_tokens : config->unit_tokens;
    config->n_nodes = config->n_nodes == 0 ? default_nodes(config) : config->n_nodes;
    config->max_copies = config->max_copies == 0 ? default_copies(config) : config->max_copies;
}

static void plan_steps_and_events(kvp_cache *cache, struct kvpi_layout *layout)
{
    const kvp_config *config = &cache->config;
    const size_t n = config->steps == KVP_STEPS_OVERLAPPED
                         ? (size_t)config->max_steps_out * config->max_seqs
                         : 0;
    cache->steps.places_at = kvpi_layout_take(layout, n, sizeof(uint32_t));
    cache->steps.until_at = kvpi_layout_take(layout, n, sizeof(uint32_t));
    cache->events.events_at = kvpi_layout_take(layout, config->max_events, sizeof(kvp_event));
    cache->events.tokens_at =
        kvpi_layout_take(layout, (size_t)config->max_events * config->unit_tokens, sizeof(int32_t));
}

static void plan_quotas(const kvp_cache *cache, struct kvpi_pool *pool)
{
    pool->quotas.n_accounts =
        cache->config.quotas == 0 || pool->n_blocks == 0 ? 0 : cache->config.max_namespaces;
    pool->quotas.n_blocks = pool->n_blocks;
    pool->quotas.place_mask = (1u << cache->space_bits) - 1;
}

/* Set the sizes of the parts, and place everything in the arena. */
static void plan_arena(kvp_cache *cache, struct kvpi_layout *layout)
{
    const kvp_config *config = &cache->config;
    const uint32_t S = config->block_tokens;
    const uint32_t U = config->unit_tokens;
    const uint32_t bits = config->test_hash_bits;
    (void)kvpi_layout_take(layout, 1, sizeof(*cache));
    cache->prefix.unit_tokens = U;
    cache->prefix.units_per_block = S / U;
    cache->prefix.n_where = KVPI_TIERS * config->n_groups;
    cache->prefix.n_nodes = config->n_nodes;
    cache->prefix.max_unit_keys = config->max_unit_keys;
    cache->prefix.tag_mask = bits == 0 || bits == 32 ? UINT32_MAX : ((1u << bits) - 1);
    cache->prefix.has_dups = S != U || config->commit_policy == KVP_KEEP ? KVPI_DUPS_ALL
                             : config->steps == KVP_STEPS_OVERLAPPED     ? KVPI_DUPS_AWAITED
                                                                         : KVPI_DUPS_NONE;
    cache->prefix.n_blocks = cache->plan.n_blocks = cache->pool.n_blocks = config->n_blocks;
    cache->prefix.host_blocks = cache->plan.host_blocks = cache->host.n_blocks =
        config->host_blocks;
    cache->pool.n_lists = config->steps == KVP_STEPS_OVERLAPPED ? config->max_steps_out : 0;
    cache->steps.max = config->max_steps_out;
    cache->events.capacity = config->max_events;
    cache->table.max_seqs = config->max_seqs;
    cache->table.max_tokens = config->max_seq_tokens;
    cache->table.max_blocks = kvpi_ceil_div(config->max_seq_tokens, S);
    cache->table.max_units = config->max_seq_tokens / U;
    cache->table.unit_tokens = U;
    cache->table.max_unit_keys = config->max_unit_keys;
    cache->table.n_groups = config->n_groups;
    cache->table.max_tree = config->max_tree_tokens;
    cache->plan.capacity = config->max_copies;
    cache->space_bits = kvpi_handle_place_bits(config->max_namespaces);
    plan_quotas(cache, &cache->pool);
    plan_quotas(cache, &cache->host);
    kvpi_pool_layout(&cache->pool, layout, offsetof(kvp_cache, pool));
    kvpi_pool_layout(&cache->host, layout, offsetof(kvp_cache, host));
    kvpi_prefix_layout(&cache->prefix, layout, offsetof(kvp_cache, prefix));
    kvpi_table_layout(&cache->table, layout, offsetof(kvp_cache, table));
    kvpi_plan_layout(&cache->plan, layout, offsetof(kvp_cache, plan));
    plan_steps_and_events(cache, layout);
    cache->spaces_at = kvpi_layout_take(layout, config->max_namespaces, sizeof(struct kvpi_space));
    cache->uncached_at = kvpi_layout_take(layout, config->n_uncached_tokens, sizeof(int32_t));
    const size_t n_evicted =
        (size_t)(config->n_blocks - 1) * (config->host_blocks > 0 ? 2 : 1) + config->host_blocks;
    cache->evicted_at = kvpi_layout_take(layout, n_evicted, sizeof(kvp_evicted));
    cache->hashes_at = kvpi_layout_take(layout, cache->table.max_units, sizeof(kvp_hash));
}

/* Check the configuration and plan the arena into `cache`, which is not in it yet. */
static kvp_status prepare(const kvp_config *config, kvp_cache *cache, size_t *out_bytes)
{
    struct kvpi_layout layout = {0, 0};
    if (config == NULL || config->struct_size != sizeof(*config) || !config_valid(config)) {
        return KVP_E_ARG;
    }
    memset(cache, 0, sizeof(*cache));
    cache->config = *config;
    resolve(&cache->config);
    plan_arena(cache, &layout);
    *out_bytes = layout.bytes;
    return layout.overflow ? KVP_E_TOO_LONG : KVP_OK;
}

uint64_t kvpi_arena_layout(void)
{
    static const uint64_t parts[] = {KVP_VERSION_MAJOR,          KVP_VERSION_MINOR,
                                     KVP_VERSION_PATCH,          sizeof(kvp_cache),
                                     sizeof(struct kvpi_block),  sizeof(struct kvpi_node),
                                     sizeof(struct kvpi_key),    sizeof(struct kvpi_index_slot),
                                     sizeof(struct kvpi_dup),    sizeof(struct kvpi_seq),
                                     sizeof(struct kvpi_window), sizeof(struct kvpi_copy),
                                     sizeof(struct kvpi_space),  sizeof(struct kvpi_owned),
                                     sizeof(struct kvpi_account)};
    uint64_t mixed = 0;
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
        mixed = (mixed + parts[i]) * 0x9E3779B97F4A7C15u;
    }
    return mixed;
}

uint64_t kvpi_arena_mark(void)
{
    uint64_t mark;
    memcpy(&mark, KVP_ARENA_MARK, sizeof(mark));
    return mark;
}

int kvpi_is_planned(const kvp_cache *cache)
{
    struct kvpi_layout layout = {0, 0};
    kvp_cache planned;
    memcpy(&planned, cache, sizeof(planned));
    if (cache->config.struct_size != sizeof(kvp_config) || !config_valid(&cache->config)) {
        return 0;
    }
    resolve(&planned.config);
    plan_arena(&planned, &layout);
    /* Numbers were set in a byte copy: what lies between the fields is still that of the cache.
     * NOLINTNEXTLINE(bugprone-suspicious-memory-comparison,cert-exp42-c,cert-flp37-c) */
    const int is_same = memcmp(&planned, cache, sizeof(planned)) == 0;
    return !layout.overflow && layout.bytes == cache->arena_bytes && is_same;
}

kvp_status kvp_cache_bytes(const kvp_config *config, size_t *out_bytes)
{
    kvp_cache cache;
    size_t bytes;
    if (out_bytes == NULL) {
        return KVP_E_ARG;
    }
    const kvp_status status = prepare(config, &cache, &bytes);
    if (status == KVP_OK) {
        *out_bytes = bytes;
    }
    return status;
}

static int ascending(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a;
    const int32_t y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static void reset_parts(kvp_cache *cache, int fresh)
{
    kvpi_pool_reset(&cache->pool, fresh);
    kvpi_pool_reset(&cache->host, fresh);
    kvpi_prefix_reset(&cache->prefix);
    kvpi_table_reset(&cache->table, fresh);
    kvpi_plan_reset(&cache->plan);
    kvpi_steps_reset(cache);
    kvpi_set(&cache->counters.swapped_seqs, 0);
    cache->n_evicted = 0;
}

kvp_status kvp_cache_create(const kvp_config *config, void *arena, size_t arena_bytes,
                            kvp_cache **out_cache)
{
    kvp_cache planned;
    size_t bytes;
    if (out_cache == NULL || (uintptr_t)arena % KVPI_CACHE_LINE != 0) {
        return KVP_E_ARG;
    }
    const kvp_status status = prepare(config, &planned, &bytes);
    if (status != KVP_OK) {
        return status;
    }
    if (arena != NULL && arena_bytes < bytes) {
        return KVP_E_TOO_SMALL;
    }
    kvp_cache *cache = arena != NULL ? arena : kvpi_map(bytes);
    if (cache == NULL) {
        return KVP_E_NO_MEMORY;
    }
    *cache = planned; /* no mark: nobody sees a cache here yet */
    cache->layout = kvpi_arena_layout();
    cache->arena_bytes = bytes;
    cache->mapped = arena == NULL;
    cache->self = (uintptr_t)cache;
    cache->watermark = (uint32_t)(config->watermark * (double)(config->n_blocks - 1));
    cache->recorder.cache_bits = (uint64_t)kvpi_cache_number() << KVPI_HANDLE_CACHE_SHIFT;
    cache->recorder.unit_tokens = cache->config.unit_tokens;
    cache->grouped = config->n_groups > 1 || config->groups[0].recent_tokens > 0;
    memset(kvpi_at(cache, cache->spaces_at), 0, config->max_namespaces * sizeof(struct kvpi_space));
    if (config->n_uncached_tokens > 0) {
        int32_t *set = kvpi_at(cache, cache->uncached_at);
        memcpy(set, config->uncached_tokens, config->n_uncached_tokens * sizeof(*set));
        qsort(set, config->n_uncached_tokens, sizeof(*set), ascending);
    }
    reset_parts(cache, 1);
    __atomic_store_n(&cache->mark, kvpi_arena_mark(), __ATOMIC_RELEASE);
    *out_cache = cache;
    return KVP_OK;
}

void kvp_cache_destroy(kvp_cache *cache)
{
    if (cache == NULL) {
        return;
    }
    if (kvpi_recording(cache)) {
        (void)kvpi_record_end(&cache->recorder);
    }
    kvpi_set(&cache->mark, 0);
    if (cache->mapped && cache->self == (uintptr_t)cache) {
        kvpi_unmap(cache, cache->arena_bytes);
    }
}

kvp_status kvp_cache_reset(kvp_cache *cache)
{
    if (cache == NULL) {
        return KVP_E_ARG;
    }
    const kvp_status status = kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    reset_parts(cache, 0);
    kvpi_reset_spaces(cache);
    if (cache->events.capacity > 0) {
        kvpi_tell_cleared(cache, KVPI_NO_NODE);
    }
    kvpi_begin_change(cache);
    if (kvpi_recording(cache)) {
        kvpi_record_cache_reset(&cache->recorder, status);
    }
    return kvpi_leave(cache, status);
}

kvp_status kvp_record_start(kvp_cache *cache, const kvp_sink *sink)
{
    kvp_config config;
    if (cache == NULL || sink == NULL || sink->write == NULL) {
        return KVP_E_ARG;
    }
    if (cache->used || cache->self != (uintptr_t)cache) {
        return KVP_E_STATE;
    }
    kvp_status status = kvp_config_peek(cache, &config);
    if (status == KVP_OK) {
        status = kvpi_record_begin(&cache->recorder, sink, &config);
    }
    return status;
}

kvp_status kvp_record_stop(kvp_cache *cache)
{
    if (cache == NULL) {
        return KVP_E_ARG;
    }
    /* A recording does not go along with a copy of the arena. */
    return cache->self != (uintptr_t)cache ? KVP_E_STATE : kvpi_record_end(&cache->recorder);
}

/* ---------------------------------------------------------------------------- every call's ends */

kvp_status kvpi_enter(const kvp_cache *cache)
{
    uint64_t *calls = (uint64_t *)(uintptr_t)&cache->calls;
#if KVP_CHECK >= 1
    /* Acquire pairs with the release in kvpi_leave: calls in turn from several threads are fine. */
    if ((__atomic_fetch_or(calls, 1u, __ATOMIC_ACQUIRE) & 1u) != 0) {
        return KVP_E_BUSY;
    }
#else
    kvpi_set(calls, *calls | 1u);
#endif
    kvpi_fence(); /* who reads along sees the mark before what the call changes */
    return KVP_OK;
}

kvp_status kvpi_leave(const kvp_cache *cache, kvp_status status)
{
    kvp_cache *self = (kvp_cache *)(uintptr_t)cache; /* gauges are not part of what reads promise */
    if (self->pool.n_held > self->counters.peak_held_blocks) {
        kvpi_count(&self->counters.peak_held_blocks,
                   self->pool.n_held - self->counters.peak_held_blocks);
    }
    self->recorder.decisions = 0;
    if (status == KVP_E_NO_BLOCKS || status == KVP_E_NEVER) {
        kvpi_count(&self->counters.refused, 1);
    }
#if KVP_CHECK >= 2
    kvp_violation violation; /* for whoever looks at the core file */
    KVPI_ASSERT(kvpi_audit(self, KVP_CHECK, &violation));
#endif
    __atomic_store_n(&self->calls, self->calls + 1, __ATOMIC_RELEASE);
    return status;
}

kvp_status kvpi_fail(kvp_cache *cache, kvp_status status, uint32_t index, uint64_t missing)
{
    cache->shortage.status = status;
    cache->shortage.index = index;
    cache->shortage.missing_blocks = missing;
    cache->shortage.tier = KVP_DEVICE;
    return status;
}

kvp_status kvpi_faults_fail(kvp_cache *cache, const struct kvpi_faults *faults)
{
    const struct kvpi_fault *fault = faults->handle.status != KVP_OK  ? &faults->handle
                                     : faults->twice.status != KVP_OK ? &faults->twice
                                                                      : &faults->other;
    return kvpi_fail(cache, fault->status, fault->index, 0);
}

void kvpi_begin_change(kvp_cache *cache)
{
    cache->plan.promised = 0;
    cache->n_evicted = 0;
}
