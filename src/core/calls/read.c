/* read: what can be asked without changing anything. Also the plan, which is taken. */
#include "core/cache/audit.h"
#include "core/cache/frame.h"
#include "core/cache/spaces.h"
#include "core/cache/state.h"
#include "core/cache/tokens.h"

#include <string.h>

/* A recording of reads changes nothing in the cache but where its sink stands. */
static struct kvpi_recorder *recorder_of(const kvp_cache *cache)
{
    return (struct kvpi_recorder *)(uintptr_t)&cache->recorder;
}

/* ------------------------------------------------------------------------------------ the cache */

kvp_status kvp_cache_config_peek(const kvp_cache *cache, kvp_config *out_config)
{
    if (cache == NULL || out_config == NULL) {
        return KVP_E_ARG;
    }
    *out_config = cache->config;
    out_config->uncached_tokens =
        cache->config.n_uncached_tokens == 0 ? NULL : kvpi_at(cache, cache->uncached_at);
    return KVP_OK;
}

kvp_status kvp_cache_config_get(const kvp_cache *cache, kvp_config *out_config)
{
    const kvp_status status = kvp_cache_config_peek(cache, out_config);
    if (status == KVP_OK && kvpi_recording(cache)) {
        kvpi_record_cache_config_get(recorder_of(cache), status, out_config);
    }
    return status;
}

uint64_t kvp_handle_flip(const kvp_cache *cache, uint64_t bits)
{
    return cache == NULL ? bits : kvpi_record_flip(&cache->recorder, bits);
}

/* Gauges, and counters of other rooms: the rest stands in cache->counters. */
static void fill_device_stats(const kvp_cache *cache, kvp_stats *out)
{
    out->usable_blocks = cache->config.n_blocks - 1;
    out->free_blocks = kvpi_read(&cache->pool.n_free);
    out->cached_blocks = kvpi_read(&cache->pool.n_cached);
    out->held_blocks = kvpi_read(&cache->pool.n_held);
    out->parked_blocks = kvpi_read(&cache->pool.n_parked);
    out->watermark_blocks = cache->watermark;
    out->open_seqs = kvpi_read(&cache->table.n_open);
    out->open_namespaces = kvpi_read(&cache->n_open_spaces);
    out->nodes_used = kvpi_read(&cache->prefix.n_used);
    out->nodes_total = cache->config.n_nodes;
    out->pending_copies = kvpi_read(&cache->plan.n);
    out->hash_collisions = kvpi_read(&cache->prefix.n_collisions);
    for (int i = KVPI_FALLBACK_COLD; i < KVPI_FALLBACKS; i++) {
        out->fallback_references += kvpi_read(&cache->fallback_by[i]);
    }
}

static void fill_host_stats(const kvp_cache *cache, kvp_stats *out)
{
    const struct kvpi_lending *lending = &cache->lending;
    out->host_usable_blocks = cache->config.host_blocks == 0 ? 0 : cache->config.host_blocks - 1;
    out->host_free_blocks = kvpi_read(&cache->host.n_free);
    out->host_cached_blocks = kvpi_read(&cache->host.n_cached);
    out->host_unreachable = kvpi_read(&cache->prefix.n_lost);
    out->host_loading_blocks = kvpi_read(&lending->n_loading);
    out->host_held_blocks = kvpi_read(&cache->host.n_held);
    out->host_held_blocks -= kvpi_min_u64(out->host_held_blocks, out->host_loading_blocks);
    out->host_lent_blocks = kvpi_read(&lending->n_reading) + out->host_loading_blocks;
    out->open_loads = kvpi_read(&lending->n_loads);
    out->loads = kvpi_read(&lending->number);
}

static void fill_step_stats(const kvp_cache *cache, kvp_stats *out)
{
    const int overlapped = cache->config.steps == KVP_STEPS_OVERLAPPED;
    const uint64_t effective = kvpi_read(&cache->steps.effective);
    out->steps = kvpi_read(&cache->steps.begun);
    out->steps_out = out->steps > effective ? out->steps - effective : 0;
    out->failed_steps = kvpi_read(&cache->steps.n_failed);
    out->plans_done = overlapped ? effective : kvpi_read(&cache->lending.plans_done);
    out->plans = overlapped ? out->steps : kvpi_read(&cache->lending.plans);
}

kvp_status kvp_cache_stats_get(const kvp_cache *cache, kvp_stats *out_stats)
{
    if (cache == NULL || out_stats == NULL) {
        return KVP_E_ARG;
    }
    enum { N_NUMBERS = sizeof(kvp_stats) / sizeof(uint64_t) }; /* the struct has nothing else */
    for (size_t i = 0; i < N_NUMBERS; i++) {
        ((uint64_t *)out_stats)[i] = kvpi_read((const uint64_t *)&cache->counters + i);
    }
    fill_device_stats(cache, out_stats);
    fill_host_stats(cache, out_stats);
    fill_step_stats(cache, out_stats);
    if (kvpi_recording(cache)) {
        kvpi_record_cache_stats_get(recorder_of(cache), KVP_OK, out_stats);
    }
    return KVP_OK;
}

kvp_status kvp_cache_shortage_get(const kvp_cache *cache, kvp_shortage *out_shortage)
{
    if (cache == NULL || out_shortage == NULL) {
        return KVP_E_ARG;
    }
    *out_shortage = cache->shortage;
    if (kvpi_recording(cache)) {
        kvpi_record_cache_shortage_get(recorder_of(cache), KVP_OK, out_shortage);
    }
    return KVP_OK;
}

kvp_status kvp_cache_evicted(const kvp_cache *cache, const kvp_evicted **out_evicted,
                             uint32_t *out_n)
{
    if (cache == NULL || out_evicted == NULL || out_n == NULL) {
        return KVP_E_ARG;
    }
    const kvp_status status = cache->n_evicted > cache->evicted_room ? KVP_E_BEHIND : KVP_OK;
    *out_evicted = kvpi_at(cache, cache->evicted_at);
    *out_n = (uint32_t)kvpi_min_u64(cache->n_evicted, cache->evicted_room);
    if (kvpi_recording(cache)) {
        kvpi_record_cache_evicted(recorder_of(cache), status, out_evicted, out_n);
    }
    return status;
}

kvp_status kvp_plan_take(kvp_cache *cache, kvp_copy *out_copies, uint32_t capacity,
                         uint32_t *out_n_copies)
{
    kvp_status status =
        cache == NULL || out_n_copies == NULL || (out_copies == NULL && capacity > 0)
            ? KVP_E_ARG
            : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    if (cache->config.steps == KVP_STEPS_OVERLAPPED) {
        status = kvpi_fail(cache, KVP_E_STATE, 0, 0);
    } else {
        *out_n_copies = (uint32_t)cache->plan.n;
        if (capacity > 0 && *out_n_copies > capacity) {
            status = kvpi_fail(cache, KVP_E_TOO_SMALL, 0, 0);
        } else if (capacity > 0) {
            kvpi_begin_change(cache);
            kvpi_plan_take(&cache->plan, out_copies, 0);
            kvpi_count(&cache->lending.plans, 1);
        }
    }
    if (kvpi_recording(cache)) {
        kvpi_record_plan_take(&cache->recorder, capacity, status, out_copies, out_n_copies);
    }
    return kvpi_leave(cache, status);
}

/* ----------------------------------------------------------------------------------- namespaces */

static kvp_status space_info(const kvp_cache *cache, kvp_ns ns, kvp_ns_info *out_info)
{
    const struct kvpi_space *space = kvpi_find_space(cache, ns);
    kvp_status status = cache->config.quotas ? KVP_OK : KVP_E_STATE;
    if (space == NULL) {
        status = KVP_E_HANDLE;
    }
    if (status == KVP_OK) {
        *out_info = kvpi_space_info(cache, (uint32_t)(space - kvpi_space_at(cache, 0)));
    }
    if (kvpi_recording(cache)) {
        kvpi_record_ns_info_get(recorder_of(cache), ns, status, out_info);
    }
    return status;
}

kvp_status kvp_ns_info_get(const kvp_cache *cache, kvp_ns ns, kvp_ns_info *out_info)
{
    return cache == NULL || out_info == NULL ? KVP_E_ARG : space_info(cache, ns, out_info);
}

/* -------------------------------------------------------------------------------- the sequences */

/* Beside a change: each field by itself. */
static void fill_seq_info(const kvp_cache *cache, const struct kvpi_seq *seq, kvp_seq_info *info)
{
    const uint32_t U = cache->config.unit_tokens;
    const uint32_t known = kvpi_read32(&seq->known);
    memset(info, 0, sizeof(*info));
    info->ns.bits = kvpi_read(&seq->ns.bits);
    info->tag = kvpi_read(&seq->tag);
    info->n_tokens = kvpi_read32(&seq->tokens);
    info->known_tokens = known;
    info->prompt_tokens = kvpi_read32(&seq->prompt);
    info->cached_tokens = kvpi_read32(&seq->cached);
    info->computed_tokens = kvpi_read32(&seq->computed);
    info->writable_tokens = kvpi_max_u32(kvpi_read32(&seq->writable), info->computed_tokens);
    info->public_tokens = kvpi_read32(&seq->n_public) * U;
    info->kept_tokens = kvpi_read16(&seq->unkept) ? kvpi_read32(&seq->n_units) * U : known;
    info->n_blocks = kvpi_row_length(cache, 0, kvpi_read32(&seq->room));
    info->stop = kvpi_read16(&seq->stop);
    info->last_token = (int32_t)kvpi_read32(&seq->last);
    info->retention = kvpi_read16(&seq->retention);
    info->row_version = kvpi_read(&seq->row_version);
    info->tier = kvpi_read16(&seq->tier);
    info->tree_tokens = kvpi_read32(&seq->n_tree);
    info->stop_group = kvpi_read16(&seq->stop_group);
}

/* *info is also written when this fails. */
static kvp_status seq_info(const kvp_cache *cache, kvp_seq seq, kvp_seq_info *info)
{
    for (uint32_t i = 0; i < KVPI_READ_TRIES; i++) {
        const uint64_t calls = kvpi_read_begin(cache);
        if ((calls & 1) != 0) {
            continue;
        }
        const struct kvpi_seq *s = kvpi_find_seq(cache, seq);
        if (s != NULL) {
            fill_seq_info(cache, s, info);
        }
        if (kvpi_read_end(cache) != calls) {
            continue;
        }
        return s == NULL ? KVP_E_HANDLE : KVP_OK;
    }
    return KVP_E_AGAIN;
}

kvp_status kvp_seq_info_get(const kvp_cache *cache, kvp_seq seq, kvp_seq_info *out_info)
{
    return cache == NULL || out_info == NULL ? KVP_E_ARG : seq_info(cache, seq, out_info);
}

static kvp_status read_tokens(const kvp_cache *cache, kvp_seq handle, uint32_t from, uint32_t n,
                              int32_t *out)
{
    const struct kvpi_seq *seq = kvpi_find_seq(cache, handle);
    if (seq == NULL) {
        return KVP_E_HANDLE;
    }
    if (from > seq->tokens || n > seq->tokens - from) {
        return KVP_E_ARG;
    }
    return kvpi_read_tokens(cache, seq, from, n, out) ? KVP_OK : KVP_E_UNKNOWN;
}

kvp_status kvp_seq_tokens(const kvp_cache *cache, kvp_seq seq, uint32_t from, uint32_t n_tokens,
                          int32_t *out_tokens)
{
    if (cache == NULL || (out_tokens == NULL && n_tokens > 0)) {
        return KVP_E_ARG;
    }
    const kvp_status status = read_tokens(cache, seq, from, n_tokens, out_tokens);
    if (kvpi_recording(cache)) {
        kvpi_record_seq_tokens(recorder_of(cache), seq, from, n_tokens, status, out_tokens);
    }
    return status;
}

static kvp_status read_block_tokens(const kvp_cache *cache, kvp_seq handle, uint32_t block_idx,
                                    int32_t *out_tokens, uint32_t *out_n)
{
    const uint32_t S = kvpi_block_tokens(cache, 0);
    const struct kvpi_seq *seq = kvpi_find_seq(cache, handle);
    if (seq == NULL) {
        return KVP_E_HANDLE;
    }
    if (block_idx >= kvpi_row_entries(cache, seq, 0)) {
        return KVP_E_ARG;
    }
    const uint32_t begin = block_idx * S;
    const uint32_t n = begin >= seq->tokens ? 0 : kvpi_min_u32(S, seq->tokens - begin);
    if (!kvpi_read_tokens(cache, seq, begin, n, out_tokens)) {
        return KVP_E_UNKNOWN;
    }
    *out_n = n;
    return KVP_OK;
}

kvp_status kvp_seq_block_tokens(const kvp_cache *cache, kvp_seq seq, uint32_t block_idx,
                                int32_t *out_tokens, uint32_t *out_n_tokens)
{
    if (cache == NULL || out_tokens == NULL || out_n_tokens == NULL) {
        return KVP_E_ARG;
    }
    const kvp_status status = read_block_tokens(cache, seq, block_idx, out_tokens, out_n_tokens);
    if (kvpi_recording(cache)) {
        kvpi_record_seq_block_tokens(recorder_of(cache), seq, block_idx, status, out_tokens,
                                     out_n_tokens);
    }
    return status;
}

kvp_status kvp_seq_row(const kvp_cache *cache, kvp_seq seq, uint32_t group, const int32_t **out_row,
                       uint32_t *out_n_blocks)
{
    if (cache == NULL || out_row == NULL || out_n_blocks == NULL) {
        return KVP_E_ARG;
    }
    const struct kvpi_seq *s = kvpi_find_seq(cache, seq);
    const kvp_status status = s == NULL                         ? KVP_E_HANDLE
                              : group >= cache->config.n_groups ? KVP_E_ARG
                                                                : KVP_OK;
    if (status == KVP_OK) {
        *out_row = kvpi_row(cache, s, group);
        *out_n_blocks = kvpi_row_entries(cache, s, group);
    }
    if (kvpi_recording(cache)) {
        kvpi_record_seq_row(recorder_of(cache), seq, group, status, out_row, out_n_blocks);
    }
    return status;
}

static kvp_status read_slots(const kvp_cache *cache, const struct kvpi_seq *seq, uint32_t group,
                             uint32_t from, uint32_t n, int64_t *out)
{
    const uint32_t S = kvpi_block_tokens(cache, group);
    const int32_t *row = kvpi_row(cache, seq, group);
    const uint64_t end = (uint64_t)from + n;
    if (end > (uint64_t)kvpi_row_entries(cache, seq, group) * S) {
        return KVP_E_ARG;
    }
    if (seq->tier != KVP_DEVICE || (n > 0 && end > kvpi_max_u32(seq->writable, seq->computed))) {
        return KVP_E_STATE;
    }
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t position = from + i;
        out[i] = position < seq->computed
                     ? KVP_NO_SLOT
                     : (int64_t)row[position / S] * S + (int64_t)(position % S);
    }
    return KVP_OK;
}

kvp_status kvp_seq_slots(const kvp_cache *cache, kvp_seq seq, uint32_t group, uint32_t from,
                         uint32_t n_tokens, int64_t *out_slots)
{
    if (cache == NULL || (out_slots == NULL && n_tokens > 0)) {
        return KVP_E_ARG;
    }
    const struct kvpi_seq *s = kvpi_find_seq(cache, seq);
    kvp_status status = s == NULL                         ? KVP_E_HANDLE
                        : group >= cache->config.n_groups ? KVP_E_ARG
                                                          : KVP_OK;
    if (status == KVP_OK) {
        status = read_slots(cache, s, group, from, n_tokens, out_slots);
    }
    if (kvpi_recording(cache)) {
        kvpi_record_seq_slots(recorder_of(cache), seq, group, from, n_tokens, status, out_slots);
    }
    return status;
}

static kvp_status retain(kvp_cache *cache, kvp_seq handle, kvp_range range, uint32_t retention)
{
    const struct kvpi_seq *seq = kvpi_find_seq(cache, handle);
    if (seq == NULL) {
        return KVP_E_HANDLE;
    }
    if (range.begin >= range.end || range.end > kvpi_rows_slots(cache, seq) ||
        retention >= KVP_RETENTION_CLASSES) {
        return KVP_E_ARG;
    }
    if (seq->tier != KVP_DEVICE) {
        return KVP_E_STATE;
    }
    for (uint32_t g = 0; g < cache->config.n_groups; g++) {
        const int32_t *row = kvpi_row(cache, seq, g);
        const uint32_t S = kvpi_block_tokens(cache, g);
        for (uint32_t i = range.begin / S; i <= (range.end - 1) / S; i++) {
            if (row[i] != KVP_NULL_BLOCK) {
                kvpi_pool_retain(&cache->pool, (uint32_t)row[i], retention);
            }
        }
    }
    return KVP_OK;
}

kvp_status kvp_seq_retain(kvp_cache *cache, kvp_seq seq, kvp_range range, uint32_t retention)
{
    kvp_status status = cache == NULL ? KVP_E_ARG : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    status = retain(cache, seq, range, retention);
    if (status == KVP_OK) {
        kvpi_begin_change(cache);
    } else {
        (void)kvpi_fail(cache, status, 0, 0);
    }
    if (kvpi_recording(cache)) {
        kvpi_record_seq_retain(&cache->recorder, seq, range, retention, status);
    }
    return kvpi_leave(cache, status);
}

static kvp_status uncache(kvp_cache *cache, kvp_seq handle, kvp_range range)
{
    struct kvpi_seq *seq = kvpi_find_seq(cache, handle);
    if (seq == NULL) {
        return KVP_E_HANDLE;
    }
    if (range.begin >= range.end) {
        return KVP_E_ARG;
    }
    if (range.begin < seq->n_public * cache->config.unit_tokens || seq->tier != KVP_DEVICE) {
        return KVP_E_STATE;
    }
    seq->uncached_from = kvpi_min_u32(seq->uncached_from, range.begin);
    return KVP_OK;
}

kvp_status kvp_seq_uncache(kvp_cache *cache, kvp_seq seq, kvp_range range)
{
    kvp_status status = cache == NULL ? KVP_E_ARG : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    status = uncache(cache, seq, range);
    if (status == KVP_OK) {
        kvpi_begin_change(cache);
    } else {
        (void)kvpi_fail(cache, status, 0, 0);
    }
    if (kvpi_recording(cache)) {
        kvpi_record_seq_uncache(&cache->recorder, seq, range, status);
    }
    return kvpi_leave(cache, status);
}

/* ----------------------------------------------------------------------------------- the blocks */

/* Does the tier have a block of this id? */
static int is_block(const kvp_cache *cache, uint32_t group, uint32_t tier, int32_t block)
{
    const uint32_t n = tier == KVP_DEVICE ? cache->config.n_blocks : cache->config.host_blocks;
    return group < cache->config.n_groups && tier < KVPI_TIERS && block >= 0 && (uint32_t)block < n;
}

static const struct kvpi_block *read_block(const kvp_cache *cache, uint32_t tier, int32_t block)
{
    return kvpi_block(tier == KVP_DEVICE ? &cache->pool : &cache->host, (uint32_t)block);
}

static void fill_block_info(const kvp_cache *cache, uint32_t tier, int32_t block,
                            kvp_block_info *info)
{
    const struct kvpi_prefix *prefix = &cache->prefix;
    const struct kvpi_pool *pool = tier == KVP_DEVICE ? &cache->pool : &cache->host;
    const struct kvpi_block *b = read_block(cache, tier, block);
    const uint32_t where = KVPI_WHERE(tier, kvpi_block_group(b));
    memset(info, 0, sizeof(*info));
    info->ref_count = kvpi_block_refs(b);
    info->generation = kvpi_pool_generation(pool, (uint32_t)block);
    info->retention = kvpi_block_class(b);
    info->group = kvpi_block_group(b);
    info->state = block == KVP_NULL_BLOCK      ? KVP_BLOCK_NULL
                  : info->ref_count > 0        ? KVP_BLOCK_HELD
                  : b->refs & KVPI_REFS_PARKED ? KVP_BLOCK_PARKED
                  : b->content != KVPI_NO_NODE ? KVP_BLOCK_CACHED
                                               : KVP_BLOCK_FREE;
    if (b->content != KVPI_NO_NODE) {
        const struct kvpi_node *deepest = kvpi_node(prefix, b->content);
        info->hash = deepest->hash;
        info->sealed_tokens =
            (kvpi_prefix_place(prefix, deepest, info->group) + 1) * prefix->unit_tokens;
    }
    for (uint32_t node = b->content; node != KVPI_NO_NODE;) {
        const struct kvpi_node *n = kvpi_node(prefix, node);
        info->sealed_units += kvpi_node_at(prefix, node, where)->block == (uint32_t)block;
        node = kvpi_prefix_place(prefix, n, info->group) == 0 ? KVPI_NO_NODE : n->parent;
    }
}

/* A slot of recurrent state, of the group behind those of blocks. */
static int is_slot(const kvp_cache *cache, uint32_t group, uint32_t tier, int32_t slot)
{
    const uint32_t n =
        tier == KVP_DEVICE ? cache->config.state_slots : cache->config.host_state_slots;
    return group == cache->config.n_groups && tier <= KVP_HOST && slot >= 0 && (uint32_t)slot < n;
}

static void fill_slot_info(const kvp_cache *cache, uint32_t tier, int32_t slot,
                           kvp_block_info *info)
{
    const struct kvpi_pool *pool = tier == KVP_DEVICE ? &cache->states.pool : &cache->states.host;
    const struct kvpi_block *s = kvpi_block(pool, (uint32_t)slot);
    memset(info, 0, sizeof(*info));
    info->ref_count = kvpi_block_refs(s);
    info->generation = kvpi_pool_generation(pool, (uint32_t)slot);
    info->retention = kvpi_block_class(s);
    info->group = cache->config.n_groups;
    info->state = slot == 0                    ? KVP_BLOCK_NULL
                  : info->ref_count > 0        ? KVP_BLOCK_HELD
                  : s->refs & KVPI_REFS_PARKED ? KVP_BLOCK_PARKED
                  : s->content != KVPI_NO_NODE ? KVP_BLOCK_CACHED
                                               : KVP_BLOCK_FREE;
    if (s->content != KVPI_NO_NODE) {
        info->hash = kvpi_node(&cache->prefix, s->content)->hash;
        info->sealed_units = 1;
    }
}

kvp_status kvp_block_info_get(const kvp_cache *cache, uint32_t group, uint32_t tier, int32_t block,
                              kvp_block_info *out_info)
{
    if (cache == NULL || out_info == NULL) {
        return KVP_E_ARG;
    }
    const int of_state = is_slot(cache, group, tier, block);
    const kvp_status status = of_state || is_block(cache, group, tier, block) ? KVP_OK : KVP_E_ARG;
    if (status == KVP_OK) {
        of_state ? fill_slot_info(cache, tier, block, out_info)
                 : fill_block_info(cache, tier, block, out_info);
    }
    if (kvpi_recording(cache)) {
        kvpi_record_block_info_get(recorder_of(cache), group, tier, block, status, out_info);
    }
    return status;
}

static uint32_t copy_block_tokens(const kvp_cache *cache, const struct kvpi_block *block,
                                  int32_t *out)
{
    const struct kvpi_prefix *prefix = &cache->prefix;
    const uint32_t U = prefix->unit_tokens;
    uint32_t n_tokens = 0;
    for (uint32_t node = block->content; node != KVPI_NO_NODE;) {
        const struct kvpi_node *n = kvpi_node(prefix, node);
        const uint32_t place = kvpi_prefix_place(prefix, n, kvpi_block_group(block));
        memcpy(out + (size_t)place * U, kvpi_node_tokens(n), (size_t)U * sizeof(int32_t));
        n_tokens = kvpi_max_u32(n_tokens, (place + 1) * U);
        node = place == 0 ? KVPI_NO_NODE : n->parent;
    }
    return n_tokens;
}

kvp_status kvp_block_tokens(const kvp_cache *cache, uint32_t group, uint32_t tier, int32_t block,
                            int32_t *out_tokens, uint32_t *out_n_tokens)
{
    if (cache == NULL || out_tokens == NULL || out_n_tokens == NULL) {
        return KVP_E_ARG;
    }
    const kvp_status status = is_block(cache, group, tier, block) ? KVP_OK : KVP_E_ARG;
    if (status == KVP_OK) {
        *out_n_tokens = copy_block_tokens(cache, read_block(cache, tier, block), out_tokens);
    }
    if (kvpi_recording(cache)) {
        kvpi_record_block_tokens(recorder_of(cache), group, tier, block, status, out_tokens,
                                 out_n_tokens);
    }
    return status;
}

/* ---------------------------------------------------------------------------------- pure counts */

uint64_t kvp_blocks_for_tokens(uint32_t block_tokens, uint64_t n_tokens)
{
    return block_tokens == 0 ? 0 : n_tokens / block_tokens + (n_tokens % block_tokens != 0);
}

uint64_t kvp_blocks_for_append(uint32_t block_tokens, uint64_t n_tokens, uint64_t n_new,
                               uint64_t reserve)
{
    return kvp_blocks_for_tokens(block_tokens, n_tokens + n_new + reserve) -
           kvp_blocks_for_tokens(block_tokens, n_tokens);
}

kvp_status kvp_cache_check(kvp_cache *cache, int level, kvp_violation *out_violation)
{
    kvp_violation violation;
    kvp_status status = cache == NULL ? KVP_E_ARG : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    memset(&violation, 0, sizeof(violation));
    if (level < 1 || level > 3) {
        status = KVP_E_ARG;
    } else {
        status = kvpi_audit(cache, level, &violation) ? KVP_OK : KVP_E_CORRUPT;
        if (out_violation != NULL) {
            *out_violation = violation;
        }
    }
    if (kvpi_recording(cache)) {
        kvpi_record_cache_check(&cache->recorder, level, status, &violation);
    }
    return kvpi_leave(cache, status);
}
