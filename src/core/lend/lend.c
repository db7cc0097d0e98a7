/* lend: host blocks that stores read, and what brings hot blocks there (lend.h). Plans that are
 * over, mirror, lend, return.
 *
 * A lent block has a reference for each time it is lent, beside those of rows and copies; `holds`
 * counts them, so that the audit can tell whose they are. Its bytes stay: a host block is written
 * by copies only, which are put into the plan when it is taken, and `written` says which plan.
 */
#include "core/cache/blocks.h"
#include "core/cache/frame.h"
#include "core/cache/inflight.h"
#include "core/cache/state.h"

#include <string.h>

/* More references than rows can have leave room for as many holds. */
#define HOLDS_MAX (1u << 20)

static kvp_status plan_done(kvp_cache *cache, uint64_t n_plans)
{
    struct kvpi_lending *lending = &cache->lending;
    if (lending->max_loads == 0 || cache->config.steps == KVP_STEPS_OVERLAPPED) {
        return KVP_E_STATE;
    }
    if (n_plans > lending->plans) {
        return KVP_E_ARG;
    }
    kvpi_begin_change(cache);
    if (n_plans > lending->plans_done) {
        kvpi_set(&lending->plans_done, n_plans);
    }
    return KVP_OK;
}

kvp_status kvp_plan_done(kvp_cache *cache, uint64_t n_plans)
{
    kvp_status status = cache == NULL ? KVP_E_ARG : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    status = plan_done(cache, n_plans);
    if (status != KVP_OK) {
        (void)kvpi_fail(cache, status, 0, 0);
    }
    if (kvpi_recording(cache)) {
        kvpi_record_plan_done(&cache->recorder, n_plans, status);
    }
    return kvpi_leave(cache, status);
}

/* --------------------------------------------------------------------------------------- mirror */

/* Are these blocks of the tier? Gives the first that is not, or n. */
static uint32_t count_valid(const int32_t *blocks, uint32_t n, uint32_t n_blocks)
{
    uint32_t i = 0;
    while (i < n && blocks[i] > 0 && (uint32_t)blocks[i] < n_blocks) {
        i++;
    }
    return i;
}

/* Has the device block content that a match can find? What a copy still brings is awaited, not
 * attached, so all of it is there. */
static int is_mirrorable(const kvp_cache *cache, uint32_t block)
{
    const uint32_t content = kvpi_block(&cache->pool, block)->content;
    const struct kvpi_node *node = kvpi_node(&cache->prefix, content);
    KVPI_ASSERT(content == KVPI_NO_NODE || !kvpi_is_arriving(cache, block));
    return content != KVPI_NO_NODE && (node->flags & KVPI_NODE_PUBLIC) != 0 &&
           kvpi_prefix_is_live(&cache->prefix, node);
}

/* One block; 0: there is no room for it, nor for those behind it. */
static int mirror_block(kvp_cache *cache, uint32_t block, uint32_t spare, int32_t *out_host,
                        kvp_mirrored *out)
{
    const struct kvpi_block *b = kvpi_block(&cache->pool, block);
    const uint32_t group = kvpi_block_group(b);
    if (!is_mirrorable(cache, block)) {
        out->left_out++;
        return 1;
    }
    const uint32_t there =
        kvpi_node_at(&cache->prefix, b->content, KVPI_WHERE(KVP_HOST, group))->block;
    const uint32_t flags = kvpi_node(&cache->prefix, b->content)->flags;
    if (there != KVP_NULL_BLOCK || (flags & (uint32_t)KVPI_NODE_LOADING << group)) {
        *out_host = (int32_t)there;
        out->found++;
        return 1;
    }
    if (kvpi_pool_available(&cache->host) <= spare || !kvpi_may_copy_to_host(cache, block)) {
        return 0;
    }
    *out_host = (int32_t)kvpi_copy_to_host(cache, block);
    kvpi_count(&cache->counters.mirrored_blocks, 1);
    out->copied++;
    return 1;
}

static kvp_status mirror_blocks(kvp_cache *cache, const int32_t *blocks, uint32_t n_blocks,
                                uint32_t spare, int32_t *out_host, kvp_mirrored *out)
{
    const uint32_t n_valid = count_valid(blocks, n_blocks, cache->config.n_blocks);
    if (n_valid < n_blocks) {
        return kvpi_fail(cache, KVP_E_ARG, n_valid, 0);
    }
    if (cache->config.host_blocks == 0 || cache->keeps_once) {
        return kvpi_fail(cache, KVP_E_STATE, 0, 0);
    }
    kvpi_begin_change(cache);
    memset(out, 0, sizeof(*out));
    for (uint32_t i = 0; i < n_blocks; i++) {
        out_host[i] = KVP_NULL_BLOCK;
    }
    for (uint32_t i = 0; i < n_blocks; i++) {
        if (!mirror_block(cache, (uint32_t)blocks[i], spare, &out_host[i], out)) {
            break;
        }
    }
    return KVP_OK;
}

kvp_status kvp_cache_mirror(kvp_cache *cache, const int32_t *blocks, uint32_t n_blocks,
                            uint32_t spare, int32_t *out_host, kvp_mirrored *out_mirrored)
{
    kvp_mirrored mirrored;
    kvp_status status = cache == NULL || ((blocks == NULL || out_host == NULL) && n_blocks > 0)
                            ? KVP_E_ARG
                            : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    status = mirror_blocks(cache, blocks, n_blocks, spare, out_host, &mirrored);
    if (status == KVP_OK && out_mirrored != NULL) {
        *out_mirrored = mirrored;
    }
    if (kvpi_recording(cache)) {
        kvpi_record_cache_mirror(&cache->recorder, blocks, n_blocks, spare, status, out_host,
                                 &mirrored);
    }
    return kvpi_leave(cache, status);
}

/* ----------------------------------------------------------------------------- lend, and return */

/* May this block be lent, and with those that are lent already? */
static kvp_status check_lend(const kvp_cache *cache, uint32_t block)
{
    const struct kvpi_lending *lending = &cache->lending;
    const struct kvpi_lent *lent = kvpi_lent(cache, block);
    if (kvpi_block(&cache->host, block)->content == KVPI_NO_NODE) {
        return KVP_E_STATE;
    }
    if (lent->written > kvpi_plans_over(cache)) {
        return KVP_E_IN_FLIGHT;
    }
    return lent->holds == HOLDS_MAX ||
                   (lent->holds == 0 && lending->n_loading + lending->n_reading == lending->limit)
               ? KVP_E_AGAIN
               : KVP_OK;
}

static void hold_lent(kvp_cache *cache, uint32_t block)
{
    struct kvpi_lent *lent = kvpi_lent(cache, block);
    kvpi_pool_hold(&cache->host, block);
    kvpi_count(&cache->lending.n_reading, lent->holds == 0);
    lent->holds++;
}

/* One hold less; the reference is the caller's. */
static void drop_hold(kvp_cache *cache, uint32_t block)
{
    struct kvpi_lent *lent = kvpi_lent(cache, block);
    lent->holds--;
    kvpi_uncount(&cache->lending.n_reading, lent->holds == 0);
}

static kvp_status lend_blocks(kvp_cache *cache, const int32_t *blocks, uint32_t n_blocks)
{
    kvp_status status = cache->lending.max_loads == 0 ? KVP_E_STATE : KVP_OK;
    uint32_t i = count_valid(blocks, n_blocks, cache->config.host_blocks);
    if (i < n_blocks) {
        return kvpi_fail(cache, KVP_E_ARG, i, 0);
    }
    for (i = 0; i < n_blocks && status == KVP_OK; i++) {
        status = check_lend(cache, (uint32_t)blocks[i]);
        if (status == KVP_OK) {
            hold_lent(cache, (uint32_t)blocks[i]);
        }
    }
    if (status == KVP_OK) {
        kvpi_begin_change(cache);
        return status;
    }
    const uint32_t fault = i - (i > 0);
    for (i = fault; i > 0; i--) {
        drop_hold(cache, (uint32_t)blocks[i - 1]);
        kvpi_pool_unhold(&cache->host, (uint32_t)blocks[i - 1]);
    }
    return kvpi_fail(cache, status, fault, 0);
}

kvp_status kvp_cache_lend(kvp_cache *cache, const int32_t *blocks, uint32_t n_blocks)
{
    kvp_status status =
        cache == NULL || (blocks == NULL && n_blocks > 0) ? KVP_E_ARG : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    status = lend_blocks(cache, blocks, n_blocks);
    if (kvpi_recording(cache)) {
        kvpi_record_cache_lend(&cache->recorder, blocks, n_blocks, status);
    }
    return kvpi_leave(cache, status);
}

static kvp_status return_blocks(kvp_cache *cache, const int32_t *blocks, uint32_t n_blocks)
{
    const uint32_t n_valid = count_valid(blocks, n_blocks, cache->config.host_blocks);
    uint32_t n = 0;
    if (cache->lending.max_loads == 0) { /* nothing is lent */
        return kvpi_fail(cache, n_valid == n_blocks ? KVP_E_STATE : KVP_E_ARG, 0, 0);
    }
    while (n < n_valid && kvpi_lent(cache, (uint32_t)blocks[n])->holds > 0) {
        drop_hold(cache, (uint32_t)blocks[n++]);
    }
    if (n < n_blocks) {
        for (uint32_t i = 0; i < n; i++) {
            struct kvpi_lent *lent = kvpi_lent(cache, (uint32_t)blocks[i]);
            kvpi_count(&cache->lending.n_reading, lent->holds == 0);
            lent->holds++;
        }
        return kvpi_fail(cache, KVP_E_ARG, n, 0);
    }
    kvpi_begin_change(cache);
    for (uint32_t i = 0; i < n_blocks; i++) {
        kvpi_release_block(cache, KVP_HOST, (uint32_t)blocks[i], NULL);
    }
    return KVP_OK;
}

kvp_status kvp_cache_give_back(kvp_cache *cache, const int32_t *blocks, uint32_t n_blocks)
{
    kvp_status status =
        cache == NULL || (blocks == NULL && n_blocks > 0) ? KVP_E_ARG : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    status = return_blocks(cache, blocks, n_blocks);
    if (kvpi_recording(cache)) {
        kvpi_record_cache_give_back(&cache->recorder, blocks, n_blocks, status);
    }
    return kvpi_leave(cache, status);
}
