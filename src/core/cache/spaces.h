/* spaces: the places of namespaces, and which root belongs to whom. */
#ifndef KVPI_CACHE_SPACES_H
#define KVPI_CACHE_SPACES_H

#include <kvpager/quotas.h>

#include "core/cache/state.h"

static inline struct kvpi_space *kvpi_space_at(const kvp_cache *cache, uint32_t place)
{
    struct kvpi_space *spaces = kvpi_at(cache, cache->spaces_at);
    return spaces + place;
}

/* The open namespace of a handle; NULL: there is none. */
struct kvpi_space *kvpi_find_space(const kvp_cache *cache, kvp_ns ns);

/* The handle of the namespace at a place. */
kvp_ns kvpi_space_handle(const kvp_cache *cache, uint32_t place);

/* What the open namespace at a place has; with config.quotas. */
kvp_ns_info kvpi_space_info(const kvp_cache *cache, uint32_t place);

/* The handle of the open namespace that has this root; 0: there is none.
 * Cost: O(max_namespaces). */
uint64_t kvpi_space_with_root(const kvp_cache *cache, uint32_t root);

/* Does this handle's namespace have the root that the node hangs from? */
int kvpi_space_has(const kvp_cache *cache, uint64_t owner, const struct kvpi_node *node);

#endif
