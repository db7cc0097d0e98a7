/* events: what readers of a cache's events get. */
#ifndef KVPI_CACHE_EVENTS_H
#define KVPI_CACHE_EVENTS_H

#include "core/cache/state.h"

void kvpi_tell_stored(kvp_cache *cache, uint32_t where, uint32_t node);
void kvpi_tell_removed(kvp_cache *cache, uint32_t where, uint32_t node);

/* The namespace of this root is flushed; NO_NODE: everything is gone. */
void kvpi_tell_cleared(kvp_cache *cache, uint32_t root);

/* Does another public node with this hash, under a live root, have a block there? With
 * `flags`, one that has them. */
int kvpi_events_has_twin(const kvp_cache *cache, uint32_t where, uint32_t node, uint32_t flags);

/* Describe a unit that is stored. */
void kvpi_events_describe(const kvp_cache *cache, uint32_t node, kvp_event *event);

#endif
