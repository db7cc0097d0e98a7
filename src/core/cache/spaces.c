/* spaces: the places of namespaces, and which root belongs to whom. */
#include "core/cache/spaces.h"

#include "core/cache/state.h"

struct kvpi_space *kvpi_find_space(const kvp_cache *cache, kvp_ns ns)
{
    uint64_t generation;
    uint32_t place;
    if (!kvpi_handle_split(ns.bits, cache->recorder.cache_bits, cache->space_bits, &generation,
                           &place) ||
        place >= cache->config.max_namespaces) {
        return NULL;
    }
    struct kvpi_space *space = kvpi_space_at(cache, place);
    return space->generation == generation ? space : NULL;
}

kvp_ns kvpi_space_handle(const kvp_cache *cache, uint32_t place)
{
    return (kvp_ns){kvpi_handle_make(cache->recorder.cache_bits,
                                     kvpi_space_at(cache, place)->generation, place,
                                     cache->space_bits)};
}

kvp_ns_info kvpi_space_info(const kvp_cache *cache, uint32_t place)
{
    const struct kvpi_account *here = kvpi_account(&cache->pool.quotas, place);
    kvp_ns_info info = {.openers = kvpi_space_at(cache, place)->openers,
                        .quota = here->quota,
                        .blocks = here->n_blocks,
                        .cached_blocks = here->n_cached,
                        .host_quota = KVP_NO_QUOTA,
                        .state_quota = KVP_NO_QUOTA};
    if (cache->host.quotas.n_accounts > 0) {
        const struct kvpi_account *host = kvpi_account(&cache->host.quotas, place);
        info.host_quota = host->quota;
        info.host_blocks = host->n_blocks;
        info.host_cached_blocks = host->n_cached;
    }
    if (cache->states.pool.quotas.n_accounts > 0) {
        const struct kvpi_account *slots = kvpi_account(&cache->states.pool.quotas, place);
        info.state_quota = slots->quota;
        info.state_slots = slots->n_blocks;
        info.cached_state_slots = slots->n_cached;
    }
    if (cache->states.host.quotas.n_accounts > 0) {
        info.host_state_slots = kvpi_account(&cache->states.host.quotas, place)->n_blocks;
    }
    return info;
}

uint64_t kvpi_space_with_root(const kvp_cache *cache, uint32_t root)
{
    for (uint32_t place = 0; place < cache->config.max_namespaces; place++) {
        if ((kvpi_space_at(cache, place)->generation & 1) &&
            kvpi_space_at(cache, place)->root == root) {
            return kvpi_space_handle(cache, place).bits;
        }
    }
    return 0;
}

int kvpi_space_has(const kvp_cache *cache, uint64_t owner, const struct kvpi_node *node)
{
    const struct kvpi_space *space = kvpi_find_space(cache, (kvp_ns){owner});
    return space != NULL && space->root == node->root;
}
