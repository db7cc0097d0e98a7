/* life: configuration, creation, reset, destruction, recording.
 *
 * The cache lies at the start of its arena, and all arrays behind it:
 *
 *   | kvp_cache | pool: blocks | prefix: nodes, keys, index | table: places, rows | ... |
 *
 * The same function plans the arena for kvp_cache_bytes and for create, so they cannot differ.
 */
#include <kvpager/inspect.h>
#include <kvpager/oplog.h>
#include <kvpager/recover.h>

#include "base/platform/process.h"
#include "core/cache/audit.h"
#include "core/cache/events.h"
#include "core/cache/frame.h"
#include "core/cache/state.h"
#include "core/calls/life.h"
#include "core/lend/lend_load.h"
#include "core/seq/learned.h"
#include "core/calls/calls_spaces.h"
#include "core/calls/steps.h"
#include "core/snapshot/ranges.h"

#include <stdlib.h>
#include <string.h>

void kvp_config_init(kvp_config *config)
{
    if (config == NULL)
        return;
    memset(config, 0, sizeof(*config));
    config->struct_size = sizeof(*config);
    config->block_tokens = 16;
    config->n_blocks = 1024;
    config->max_seqs = 256;
    config->max_seq_tokens = 32768;
    config->max_namespaces = 16;
    config->prefix_cache = 1;
    config->keep_evicted = KVP_EVICTED_KEEP;
    config->max_steps_out = 4;
    config->n_groups = 1;
}

/* S of a group. */
static uint32_t tokens_of_group(const kvp_config *config, uint32_t group)
{
    const uint32_t S = config->groups[group].block_tokens;
    return S == 0 ? config->block_tokens : S;
}

/* Blocks of a group are whole units. */
static int size_wrong(const kvp_config *config, uint32_t group, kvp_why *why)
{
    char field[32] = "groups[0].block_tokens";
    const uint64_t S = config->groups[group].block_tokens;
    const uint64_t U = config->unit_tokens == 0 ? config->block_tokens : config->unit_tokens;
    field[sizeof("groups[") - 1] = (char)('0' + group);
    return kvpi_why_if(why, S != 0 && S < U, field, &S, "below unit_tokens") ||
           kvpi_why_if(why, S % U != 0, field, &S, "no multiple of unit_tokens");
}

static int groups_wrong(const kvp_config *config, kvp_why *why)
{
    if (kvpi_why_range(why, "n_groups", config->n_groups, 1, KVP_GROUPS_MAX)) {
        return 1;
    }
    for (uint32_t g = 0; g < KVP_GROUPS_MAX; g++) {
        const kvp_group *w = &config->groups[g];
        const uint64_t most = g < config->n_groups ? UINT32_MAX : 0;
        if (kvpi_why_element(why, "groups", g, ".recent_tokens", w->recent_tokens, 0, most) ||
            kvpi_why_element(why, "groups", g, ".sink_tokens", w->sink_tokens, 0,
                             w->recent_tokens > 0 ? most : 0) ||
            kvpi_why_element(why, "groups", g, ".block_tokens", w->block_tokens, 0,
                             g < config->n_groups ? KVP_BLOCK_TOKENS_MAX : 0) ||
            size_wrong(config, g, why)) {
            return 1;
        }
    }
    return 0;
}

static int sizes_wrong(const kvp_config *c, kvp_why *why)
{
    const uint64_t U = c->unit_tokens;
    return kvpi_why_range(why, "block_tokens", c->block_tokens, 1, KVP_BLOCK_TOKENS_MAX) ||
           kvpi_why_range(why, "unit_tokens", U, 0, c->block_tokens) ||
           kvpi_why_if(why, U != 0 && c->block_tokens % U != 0, "unit_tokens", &U,
                       "no divisor of block_tokens") ||
           kvpi_why_range(why, "n_blocks", c->n_blocks, 2, INT32_MAX) ||
           kvpi_why_range(why, "max_seqs", c->max_seqs, 1, 1u << 20) ||
           kvpi_why_range(why, "max_seq_tokens", c->max_seq_tokens, 1, INT32_MAX) ||
           kvpi_why_range(why, "max_namespaces", c->max_namespaces, 1, 65536) ||
           kvpi_why_range(why, "max_unit_keys", c->max_unit_keys, 0, KVPI_UNIT_KEYS_MAX) ||
           kvpi_why_range(why, "n_nodes", c->n_nodes, c->n_nodes == 0 ? 0 : c->max_namespaces + 1,
                          INT32_MAX - 1);
}

static int choices_wrong(const kvp_config *c, kvp_why *why)
{
    return kvpi_why_range(why, "commit_policy", c->commit_policy, 0, KVP_KEEP) ||
           kvpi_why_range(why, "full_hit", c->full_hit, 0, KVP_FULL_HIT_RECOMPUTE) ||
           kvpi_why_range(why, "prefix_cache", c->prefix_cache, 0, 1) ||
           kvpi_why_range(why, "test_hash_bits", c->test_hash_bits, 0, 32) ||
           kvpi_why_if(why, !(c->watermark >= 0.0 && c->watermark < 1.0), "watermark", NULL,
                       "expected at least 0 and below 1") ||
           kvpi_why_range(why, "host_blocks", c->host_blocks, c->host_blocks == 0 ? 0 : 2,
                          INT32_MAX) ||
           kvpi_why_range(why, "keep_evicted", c->keep_evicted, 0, KVP_EVICTED_KEEP_ONCE) ||
           kvpi_why_range(why, "steps", c->steps, 0, KVP_STEPS_OVERLAPPED) ||
           kvpi_why_range(why, "max_steps_out", c->max_steps_out, 1, KVPI_STEPS_OUT_MAX) ||
           kvpi_why_range(why, "max_tree_tokens", c->max_tree_tokens, 0, KVP_TREE_TOKENS_MAX) ||
           kvpi_why_range(why, "quotas", c->quotas, 0, 1) ||
           kvpi_why_range(why, "policy", c->policy, 0, KVP_POLICY_LEARNED) ||
           kvpi_why_range(why, "max_loads", c->max_loads, 0,
                          c->host_blocks == 0 ? 0 : KVPI_LOADS_MAX) ||
           kvpi_why_range(why, "lent_blocks", c->lent_blocks, 0,
                          c->max_loads == 0 ? 0 : c->host_blocks - 1);
}

static int has_window(const kvp_config *config)
{
    uint32_t n = 0;
    for (uint32_t g = 0; g < config->n_groups; g++) {
        n += config->groups[g].recent_tokens > 0;
    }
    return n > 0;
}

/* Hits end at multiples of U. */
static int retained_wrong(const kvp_config *config, kvp_why *why)
{
    const uint64_t N = config->retain_tokens;
    const uint64_t U = config->unit_tokens == 0 ? config->block_tokens : config->unit_tokens;
    return N != KVP_RETAIN_PROMPTS &&
           (kvpi_why_range(why, "retain_tokens", N, 0, INT32_MAX) ||
            kvpi_why_if(why, N % U != 0, "retain_tokens", &N, "no multiple of unit_tokens"));
}

/* Has a group blocks of another size than the cache's? */
static int sizes_differ(const kvp_config *config)
{
    for (uint32_t g = 0; g < config->n_groups; g++) {
        const uint32_t S = config->groups[g].block_tokens;
        if (S != 0 && S != config->block_tokens) {
            return 1;
        }
    }
    return 0;
}

/* Leaves are of one group that keeps all its blocks, and each unit is in one block. */
static int policy_wrong(const kvp_config *c, kvp_why *why)
{
    const uint64_t quotas = c->quotas, n_groups = c->n_groups, keep = c->commit_policy;
    return c->policy == KVP_POLICY_LEARNED &&
           (kvpi_why_if(why, c->quotas != 0, "quotas", &quotas,
                        "expected 0 with KVP_POLICY_LEARNED") ||
            kvpi_why_if(why, c->n_groups > 1, "n_groups", &n_groups,
                        "expected 1 with KVP_POLICY_LEARNED") ||
            kvpi_why_if(why, c->groups[0].recent_tokens > 0, "groups", NULL,
                        "expected no window with KVP_POLICY_LEARNED") ||
            kvpi_why_if(why, sizes_differ(c), "groups", NULL,
                        "expected blocks of block_tokens with KVP_POLICY_LEARNED") ||
            kvpi_why_if(why, c->commit_policy == KVP_KEEP, "commit_policy", &keep,
                        "expected KVP_ADOPT with KVP_POLICY_LEARNED"));
}

/* A host block that gives up its content has one unit, and nothing else refers to it. */
static int once_wrong(const kvp_config *c, kvp_why *why)
{
    const uint64_t U = c->unit_tokens, n_groups = c->n_groups, keep = c->commit_policy;
    return c->keep_evicted == KVP_EVICTED_KEEP_ONCE &&
           (kvpi_why_if(why, U != 0 && U != c->block_tokens, "unit_tokens", &U,
                        "expected block_tokens with KVP_EVICTED_KEEP_ONCE") ||
            kvpi_why_if(why, c->n_groups > 1, "n_groups", &n_groups,
                        "expected 1 with KVP_EVICTED_KEEP_ONCE") ||
            kvpi_why_if(why, c->groups[0].recent_tokens > 0, "groups", NULL,
                        "expected no window with KVP_EVICTED_KEEP_ONCE") ||
            kvpi_why_if(why, sizes_differ(c), "groups", NULL,
                        "expected blocks of block_tokens with KVP_EVICTED_KEEP_ONCE") ||
            kvpi_why_if(why, c->commit_policy == KVP_KEEP, "commit_policy", &keep,
                        "expected KVP_ADOPT with KVP_EVICTED_KEEP_ONCE") ||
            kvpi_why_range(why, "max_loads", c->max_loads, 0, 0) ||
            kvpi_why_range(why, "state_slots", c->state_slots, 0, 0));
}

/* With what does recurrent state not go together yet? */
static int states_wrong(const kvp_config *c, kvp_why *why)
{
    const uint64_t n_groups = c->n_groups;
    if (kvpi_why_range(why, "state_slots", c->state_slots, c->state_slots == 0 ? 0 : 2, 1u << 30)) {
        return 1;
    }
    const int has_host = c->state_slots > 0 && c->host_blocks > 0;
    if (kvpi_why_range(why, "host_state_slots", c->host_state_slots, has_host ? 2 : 0,
                       has_host ? 1u << 30 : 0)) {
        return 1;
    }
    return c->state_slots > 0 &&
           (kvpi_why_range(why, "max_tree_tokens", c->max_tree_tokens, 0, 0) ||
            kvpi_why_range(why, "policy", c->policy, KVP_POLICY_LRU, KVP_POLICY_LRU) ||
            kvpi_why_if(why, n_groups == KVP_GROUPS_MAX, "n_groups", &n_groups,
                        "with state_slots it is 7 at most"));
}

/* The most units that a block of any group has, of U tokens each. */
static uint32_t most_units(const kvp_config *config, uint32_t U)
{
    uint32_t most = 0;
    for (uint32_t g = 0; g < config->n_groups; g++) {
        most = kvpi_max_u32(most, tokens_of_group(config, g) / U);
    }
    return most;
}

/* Is a field wrong? The first one that is goes to `why`. */
static int config_wrong(const kvp_config *config, kvp_why *why)
{
    if (sizes_wrong(config, why) || choices_wrong(config, why) || groups_wrong(config, why) ||
        policy_wrong(config, why) || once_wrong(config, why) || states_wrong(config, why) ||
        retained_wrong(config, why)) {
        return 1;
    }
    /* Unit slots of the pools are counted in 32 bits; UINT32_MAX is none. */
    const uint32_t U = config->unit_tokens == 0 ? config->block_tokens : config->unit_tokens;
    const uint64_t n_units =
        ((uint64_t)config->n_blocks + config->host_blocks) * most_units(config, U);
    const uint64_t n_blocks = config->n_blocks;
    return kvpi_why_if(why, n_units >= UINT32_MAX, "n_blocks", &n_blocks,
                       "with host_blocks it has 2^32-1 units or more") ||
           kvpi_why_if(why, config->n_uncached_tokens > 0 && config->uncached_tokens == NULL,
                       "uncached_tokens", NULL, "is NULL, and n_uncached_tokens is not 0");
}

kvp_status kvp_config_check(const kvp_config *config, kvp_why *out_why)
{
    const kvp_config *known = kvpi_sized(config, sizeof(*config));
    kvpi_why_clear(out_why);
    return kvpi_why_missing(out_why, config, known, "config") || config_wrong(known, out_why)
               ? KVP_E_ARG
               : KVP_OK;
}

/* Enough nodes for every unit of the pools, and some for units that lost their blocks while what
 * follows them has some: with a host tier these are many. A load makes its nodes before it evicts:
 * what it evicts has nodes, too. */
static uint32_t default_nodes(const kvp_config *config)
{
    const uint64_t n_loads = config->max_loads > 0 ? config->lent_blocks : 0;
    const uint64_t n_blocks = (uint64_t)config->n_blocks - 1 + config->host_blocks + n_loads;
    const uint64_t units = n_blocks * most_units(config, config->unit_tokens);
    /* Nodes whose block went before one behind them. With a host tier there are more, and with
     * states most. Without a free node, content is evicted for one (core/cache/blocks.c). */
    const uint64_t n_lost = units / (config->state_slots > 0   ? 1
                                     : config->host_blocks > 0 ? 4
                                                               : 64);
    const uint64_t n = units + n_lost + config->max_seqs + config->max_namespaces + 64;
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
    for (uint32_t g = 0; g < config->n_groups; g++) {
        config->groups[g].block_tokens = tokens_of_group(config, g);
    }
    if (config->max_loads > 0 && config->lent_blocks == 0) {
        config->lent_blocks = kvpi_max_u32((config->host_blocks - 1) / 2, 1);
    }
    config->n_nodes = config->n_nodes == 0 ? default_nodes(config) : config->n_nodes;
    config->max_copies = config->max_copies == 0 ? default_copies(config) : config->max_copies;
}

static void plan_steps_and_events(kvp_cache *cache, struct kvpi_layout *layout)
{
    const kvp_config *config = &cache->config;
    const uint64_t n = config->steps == KVP_STEPS_OVERLAPPED
                           ? (uint64_t)config->max_steps_out * config->max_seqs
                           : 0;
    cache->steps.places_at = kvpi_layout_take(layout, n, sizeof(uint32_t));
    cache->steps.until_at = kvpi_layout_take(layout, n, sizeof(uint32_t));
    cache->steps.ahead_at =
        kvpi_layout_take(layout, config->state_slots > 0 ? n : 0, sizeof(uint32_t));
    cache->events.events_at = kvpi_layout_take(layout, config->max_events, sizeof(kvp_event));
    cache->events.tokens_at = kvpi_layout_take(
        layout, (uint64_t)config->max_events * config->unit_tokens, sizeof(int32_t));
}

static void plan_lending(kvp_cache *cache, struct kvpi_layout *layout)
{
    struct kvpi_lending *lending = &cache->lending;
    const kvp_config *config = &cache->config;
    const size_t n =
        config->max_loads == 0 ? 0 : (size_t)config->host_blocks + config->host_state_slots;
    lending->max_loads = cache->config.max_loads;
    lending->limit = cache->config.lent_blocks;
    lending->slot_limit = config->host_state_slots / 2;
    lending->lent_at = kvpi_layout_take(layout, n, sizeof(struct kvpi_lent));
    lending->loads_at = kvpi_layout_take(layout, lending->max_loads, sizeof(struct kvpi_load));
}

static void plan_quotas(const kvp_cache *cache, struct kvpi_pool *pool)
{
    pool->quotas.n_accounts =
        cache->config.quotas == 0 || pool->n_blocks == 0 ? 0 : cache->config.max_namespaces;
    pool->quotas.n_blocks = pool->n_blocks;
    pool->quotas.place_mask = (1u << cache->space_bits) - 1;
}

/* One policy for both tiers: it numbers the host's blocks behind the device's. */
static void plan_leaves(kvp_cache *cache)
{
    const kvp_config *config = &cache->config;
    const struct kvpi_leaves leaves = {.on = config->policy == KVP_POLICY_LEARNED,
                                       .n_blocks = config->n_blocks,
                                       .n_contents = config->n_nodes,
                                       .block_tokens = kvpi_block_tokens(cache, 0),
                                       .n_others = config->host_blocks};
    cache->pool.leaves = cache->host.leaves = leaves;
    cache->states.pool.leaves = cache->states.host.leaves = (struct kvpi_leaves){.on = 0};
    cache->host.leaves.on &= config->host_blocks > 0;
    cache->host.leaves.n_blocks = config->host_blocks;
    cache->host.leaves.first = config->n_blocks;
    cache->host.leaves.lane = KVPI_POLICY_OTHERS;
}

static void plan_learning(kvp_cache *cache, struct kvpi_layout *layout)
{
    const int learns = cache->pool.leaves.on != 0;
    cache->learning.hits_at =
        kvpi_layout_take(layout, learns ? cache->table.max_seqs : 0, sizeof(uint32_t));
    cache->learning.groups_at = kvpi_layout_take(layout, learns ? cache->table.max_blocks : 0,
                                                 sizeof(struct kvpi_policy_group));
}

static void plan_states(kvp_cache *cache, struct kvpi_layout *layout)
{
    const uint64_t n_seqs = cache->config.state_slots == 0 ? 0 : cache->config.max_seqs;
    kvpi_pool_layout(&cache->states.pool, layout,
                     offsetof(kvp_cache, states) + offsetof(struct kvpi_states, pool));
    kvpi_pool_layout(&cache->states.host, layout,
                     offsetof(kvp_cache, states) + offsetof(struct kvpi_states, host));
    cache->states.seqs_at = kvpi_layout_take(layout, n_seqs, sizeof(struct kvpi_state));
}

/* S of the groups; those that there are not have the cache's. */
static void plan_groups(kvp_cache *cache)
{
    for (uint32_t g = 0; g < KVP_GROUPS_MAX; g++) {
        cache->block_tokens[g] = tokens_of_group(&cache->config, g);
        cache->prefix.units_per_block[g] = cache->block_tokens[g] / cache->config.unit_tokens;
    }
    cache->prefix.block_slots = most_units(&cache->config, cache->config.unit_tokens);
}

/* Entries of the row of the group with the smallest blocks. */
static uint32_t longest_row(const kvp_cache *cache)
{
    uint32_t most = 0;
    for (uint32_t g = 0; g < cache->config.n_groups; g++) {
        most = kvpi_max_u32(most, kvpi_row_length(cache, g, cache->config.max_seq_tokens));
    }
    return most;
}

#define EVICTED_ROOM 4096u

/* How many evictions of a call are listed: what the longest sequence takes, and a block for each
 * sequence in each group, with what goes on the host for them; at least EVICTED_ROOM, and a 64th of
 * the pool (kvp_cache_reclaim). Never more than a call evicts: each content once, also what it
 * copies to the host, for which it evicts a block of the device. */
static uint64_t evicted_room(const kvp_cache *cache)
{
    const kvp_config *config = &cache->config;
    const uint64_t tiers = config->host_blocks > 0 ? 2 : 1;
    const uint64_t all =
        (uint64_t)(config->n_blocks - 1) * tiers + config->host_blocks + config->state_slots;
    const uint64_t usual =
        ((uint64_t)longest_row(cache) + config->max_seqs) * config->n_groups * tiers +
        config->state_slots;
    const uint64_t least = kvpi_max_u32(EVICTED_ROOM, config->n_blocks / 64);
    return kvpi_min_u64(all, usual > least ? usual : least);
}

/* Set the sizes of the parts, and place everything in the arena. */
static void plan_arena(kvp_cache *cache, struct kvpi_layout *layout)
{
    const kvp_config *config = &cache->config;
    const uint32_t U = config->unit_tokens;
    const uint32_t bits = config->test_hash_bits;
    (void)kvpi_layout_take(layout, 1, sizeof(*cache));
    cache->prefix.unit_tokens = U;
    plan_groups(cache);
    cache->states.pool.n_blocks = config->state_slots;
    cache->states.host.n_blocks = config->host_state_slots;
    cache->prefix.has_below = config->state_slots > 0;
    cache->prefix.has_kin =
        config->host_blocks > 0 && config->n_groups == 1 && config->groups[0].recent_tokens == 0;
    cache->prefix.n_where = KVPI_TIERS * (config->n_groups + (config->state_slots > 0));
    cache->prefix.n_nodes = config->n_nodes;
    cache->prefix.max_unit_keys = config->max_unit_keys;
    cache->prefix.tag_mask = bits == 0 || bits == 32 ? UINT32_MAX : ((1u << bits) - 1);
    cache->prefix.has_dups = cache->prefix.block_slots != 1 || config->commit_policy == KVP_KEEP
                                 ? KVPI_DUPS_ALL
                             : config->steps == KVP_STEPS_OVERLAPPED ? KVPI_DUPS_AWAITED
                                                                     : KVPI_DUPS_NONE;
    cache->prefix.n_blocks = cache->pool.n_blocks = config->n_blocks;
    cache->prefix.host_blocks = cache->host.n_blocks = config->host_blocks;
    for (uint32_t tier = 0; tier < KVPI_POOLS; tier++) {
        cache->plan.before[tier + 1] =
            cache->plan.before[tier] + kvpi_copy_pool(cache, tier)->n_blocks;
    }
    cache->pool.n_lists = config->steps == KVP_STEPS_OVERLAPPED ? config->max_steps_out : 0;
    cache->states.pool.n_lists = cache->pool.n_lists;
    cache->steps.max = config->max_steps_out;
    cache->events.capacity = config->max_events;
    cache->keeps_once = config->host_blocks > 0 && config->keep_evicted == KVP_EVICTED_KEEP_ONCE;
    cache->tells_attached = config->max_events > 0 || cache->keeps_once;
    cache->table.max_seqs = config->max_seqs;
    cache->table.max_tokens = config->max_seq_tokens;
    cache->table.max_blocks = longest_row(cache);
    cache->table.max_units = config->max_seq_tokens / U;
    cache->table.unit_tokens = U;
    cache->table.max_unit_keys = config->max_unit_keys;
    cache->table.n_groups = config->n_groups;
    cache->table.max_tree = config->max_tree_tokens;
    cache->table.retains = config->retain_tokens != 0 && has_window(config);
    cache->plan.capacity = config->max_copies;
    cache->space_bits = kvpi_handle_place_bits(config->max_namespaces);
    plan_quotas(cache, &cache->pool);
    plan_quotas(cache, &cache->host);
    plan_quotas(cache, &cache->states.pool);
    plan_quotas(cache, &cache->states.host);
    plan_leaves(cache);
    kvpi_pool_layout(&cache->pool, layout, offsetof(kvp_cache, pool));
    cache->host.leaves.policy_at =
        cache->pool.leaves.policy_at - (offsetof(kvp_cache, host) - offsetof(kvp_cache, pool));
    kvpi_pool_layout(&cache->host, layout, offsetof(kvp_cache, host));
    kvpi_prefix_layout(&cache->prefix, layout, offsetof(kvp_cache, prefix));
    kvpi_table_layout(&cache->table, layout, offsetof(kvp_cache, table));
    kvpi_plan_layout(&cache->plan, layout, offsetof(kvp_cache, plan));
    plan_steps_and_events(cache, layout);
    plan_lending(cache, layout);
    plan_learning(cache, layout);
    plan_states(cache, layout);
    cache->spaces_at = kvpi_layout_take(layout, config->max_namespaces, sizeof(struct kvpi_space));
    cache->uncached_at = kvpi_layout_take(layout, config->n_uncached_tokens, sizeof(int32_t));
    cache->evicted_room = evicted_room(cache);
    cache->evicted_at = kvpi_layout_take(layout, cache->evicted_room + 1, sizeof(kvp_evicted));
    cache->hashes_at = kvpi_layout_take(layout, cache->table.max_units, sizeof(kvp_hash));
}

/* Check the configuration and plan the arena into `cache`, which is not in it yet. */
static kvp_status prepare(const kvp_config *config, kvp_cache *cache, size_t *out_bytes)
{
    struct kvpi_layout layout = {0, 0};
    if (config == NULL || config_wrong(config, NULL)) {
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
    static const uint64_t parts[] = {KVP_VERSION_MAJOR,           KVP_VERSION_MINOR,
                                     KVP_VERSION_PATCH,           sizeof(kvp_cache),
                                     sizeof(struct kvpi_block),   sizeof(struct kvpi_node),
                                     sizeof(struct kvpi_key),     sizeof(struct kvpi_tags_line),
                                     sizeof(struct kvpi_dup),     sizeof(struct kvpi_seq),
                                     sizeof(struct kvpi_window),  sizeof(struct kvpi_copy),
                                     sizeof(struct kvpi_space),   sizeof(struct kvpi_owned),
                                     sizeof(struct kvpi_account), sizeof(struct kvpi_lent),
                                     sizeof(struct kvpi_load),    sizeof(struct kvpi_policy),
                                     sizeof(struct kvpi_leaf),    sizeof(struct kvpi_state)};
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
    if (cache->config.struct_size != sizeof(kvp_config) || config_wrong(&cache->config, NULL)) {
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
    config = kvpi_sized(config, sizeof(*config));
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
    kvpi_pool_reset(&cache->states.pool, fresh);
    kvpi_pool_reset(&cache->states.host, fresh);
    if (cache->config.state_slots > 0) {
        memset(kvpi_at(cache, cache->states.seqs_at), 0,
               cache->config.max_seqs * sizeof(struct kvpi_state));
    }
    kvpi_prefix_reset(&cache->prefix);
    kvpi_table_reset(&cache->table, fresh);
    kvpi_plan_reset(&cache->plan);
    kvpi_steps_reset(cache);
    kvpi_loads_reset(cache);
    kvpi_learned_reset(cache);
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
    config = kvpi_sized(config, sizeof(*config));
    const kvp_status status = prepare(config, &planned, &bytes);
    if (status != KVP_OK) {
        return status;
    }
    if (arena != NULL && arena_bytes < bytes) {
        return KVP_E_TOO_SMALL;
    }
    if (!kvpi_process_watch()) {
        return KVP_E_NO_MEMORY;
    }
    kvp_cache *cache = arena != NULL ? arena : kvpi_map(bytes);
    if (cache == NULL) {
        return KVP_E_NO_MEMORY;
    }
    *cache = planned; /* no mark: no reader sees a cache here yet */
    cache->layout = kvpi_arena_layout();
    cache->arena_bytes = bytes;
    cache->mapped = arena == NULL;
    cache->self = (uintptr_t)cache;
    cache->process = kvpi_process_number;
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
    if (kvpi_is_ours(cache)) {
        kvpi_set(&cache->mark, 0); /* the parent's, in memory that both have, goes on */
    }
    if (cache->mapped && !kvpi_is_copy(cache)) {
        kvpi_unmap(cache, (size_t)cache->arena_bytes);
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

kvp_status kvp_cache_record_start(kvp_cache *cache, const kvp_sink *sink)
{
    kvp_config config;
    if (cache == NULL || sink == NULL || sink->write == NULL) {
        return KVP_E_ARG;
    }
    if (!kvpi_is_ours(cache)) {
        return KVP_E_BUSY;
    }
    if (cache->used || kvpi_is_copy(cache)) {
        return KVP_E_STATE;
    }
    kvp_status status = kvp_cache_config_peek(cache, &config);
    if (status == KVP_OK) {
        status = kvpi_record_begin(&cache->recorder, sink, &config);
    }
    return status;
}

kvp_status kvp_cache_record_stop(kvp_cache *cache)
{
    if (cache == NULL) {
        return KVP_E_ARG;
    }
    if (!kvpi_is_ours(cache)) {
        return KVP_E_BUSY;
    }
    /* A recording does not go along with a copy of the arena. */
    return kvpi_is_copy(cache) ? KVP_E_STATE : kvpi_record_end(&cache->recorder);
}

/* Could its bytes be those of a cache of this version? Nothing in them is believed. */
static kvp_status check_bytes(const kvp_cache *cache)
{
    if (cache->mark != kvpi_arena_mark()) {
        return KVP_E_FORMAT;
    }
    if (cache->layout != kvpi_arena_layout()) {
        return KVP_E_VERSION;
    }
    return kvpi_is_planned(cache) ? KVP_OK : KVP_E_FORMAT;
}

kvp_status kvp_cache_recover(kvp_cache *cache, kvp_violation *out_violation)
{
    kvp_violation found;
    if (cache == NULL) {
        return KVP_E_ARG;
    }
    const kvp_status status = check_bytes(cache);
    if (status != KVP_OK) {
        return status;
    }
    const int put = kvpi_mark_exact(&cache->calls); /* no call comes in during the audit */
    if (!kvpi_in_range(cache, &found) || !kvpi_audit(cache, 3, &found)) {
        if (out_violation != NULL) {
            *out_violation = found;
        }
        if (put) {
            __atomic_store_n(&cache->calls, cache->calls - 1, __ATOMIC_RELEASE);
        }
        return KVP_E_CORRUPT;
    }
    if (!kvpi_recording_here(cache)) { /* another process's sink */
        cache->recorder.failed = 0;
    } else if (cache->recorder.on) { /* the call that did not end is not in the log */
        cache->recorder.failed = 1;
    }
    cache->recorder.on = 0;
    cache->recorder.decisions = 0;
    cache->process = kvpi_process_number;
    __atomic_store_n(&cache->calls, cache->calls + 1, __ATOMIC_RELEASE);
    return KVP_OK;
}

kvp_status kvp_cache_seqs(const kvp_cache *cache, kvp_seq *out_seqs, uint32_t capacity,
                          uint32_t *out_n_seqs)
{
    uint32_t n = 0;
    if (cache == NULL || out_n_seqs == NULL || (out_seqs == NULL && capacity > 0)) {
        return KVP_E_ARG;
    }
    const struct kvpi_table *table = &cache->table;
    *out_n_seqs = (uint32_t)table->n_open;
    if (capacity < table->n_open) {
        return capacity == 0 ? KVP_OK : KVP_E_TOO_SMALL;
    }
    for (struct kvpi_seq *seq = NULL; (seq = kvpi_next_open(table, seq)) != NULL;) {
        out_seqs[n++] = kvpi_table_handle(table, seq, cache->recorder.cache_bits);
    }
    return KVP_OK;
}
