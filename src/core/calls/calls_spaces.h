/* calls_spaces: namespaces that are restored, or begin again. */
#ifndef KVPI_CALLS_SPACES_H
#define KVPI_CALLS_SPACES_H

#include "core/cache/state.h"

/* A namespace that is there and not open (0 openers), for what is restored into a cache in which
 * none was opened, nor restored with that name. Gives its root; NO_NODE: there is no place or node
 * for it. */
uint32_t kvpi_restore_space(kvp_cache *cache, const void *name, uint32_t name_bytes);

/* Give every namespace a new root (reset). */
void kvpi_reset_spaces(kvp_cache *cache);

#endif
