/* drop: cached content that the caller wants dropped, or the coldest ahead of need (drop.h). A
 * take's eviction without the take. */
#include <kvpager/drop.h>

#include "core/cache/blocks.h"
#include "core/cache/frame.h"
#include "core/cache/state.h"

static kvp_status drop_blocks(kvp_cache *cache, uint32_t tier, const int32_t *blocks,
                              uint32_t n_blocks, uint32_t *n_dropped)
{
    const uint32_t limit = tier == KVP_DEVICE ? cache->config.n_blocks
                           : tier == KVP_HOST ? cache->config.host_blocks
                                              : 0;
    for (uint32_t i = 0; i < n_blocks; i++) {
        if (blocks[i] <= 0 || (uint32_t)blocks[i] >= limit) {
            return kvpi_fail(cache, KVP_E_ARG, i, 0);
        }
    }
    if (tier > KVP_HOST) {
        return kvpi_fail(cache, KVP_E_ARG, 0, 0);
    }
    kvpi_begin_change(cache);
    for (uint32_t i = 0; i < n_blocks; i++) {
        *n_dropped += (uint32_t)kvpi_drop_content(cache, tier, (uint32_t)blocks[i]);
    }
    return KVP_OK;
}

kvp_status kvp_cache_drop(kvp_cache *cache, uint32_t tier, const int32_t *blocks, uint32_t n_blocks,
                          uint32_t *out_n_dropped)
{
    uint32_t n_dropped = 0;
    if (cache == NULL || (blocks == NULL && n_blocks > 0)) {
        return KVP_E_ARG;
    }
    kvp_status status = kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    status = drop_blocks(cache, tier, blocks, n_blocks, &n_dropped);
    if (status == KVP_OK && out_n_dropped != NULL) {
        *out_n_dropped = n_dropped;
    }
    if (kvpi_recording(cache)) {
        kvpi_record_cache_drop(&cache->recorder, tier, blocks, n_blocks, status, n_dropped);
    }
    return kvpi_leave(cache, status);
}

static uint32_t reclaim(kvp_cache *cache, uint32_t n_blocks)
{
    uint32_t n = 0;
    kvpi_begin_change(cache);
    while (cache->pool.n_free < n_blocks && kvpi_reclaim_block(cache)) {
        n++;
    }
    return n;
}

kvp_status kvp_cache_reclaim(kvp_cache *cache, uint32_t n_blocks, uint32_t *out_n_reclaimed)
{
    if (cache == NULL) {
        return KVP_E_ARG;
    }
    const kvp_status status = kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    const uint32_t n_reclaimed = reclaim(cache, n_blocks);
    if (out_n_reclaimed != NULL) {
        *out_n_reclaimed = n_reclaimed;
    }
    if (kvpi_recording(cache)) {
        kvpi_record_cache_reclaim(&cache->recorder, n_blocks, KVP_OK, n_reclaimed);
    }
    return kvpi_leave(cache, KVP_OK);
}
