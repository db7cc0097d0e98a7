/* pages_system: what the system has for memory of KV. NULL and -1: it has none, or not of that
 * kind. */
#ifndef KVPI_PAGES_SYSTEM_H
#define KVPI_PAGES_SYSTEM_H

#include <stddef.h>
#include <stdint.h>

/* Map zeroed memory: in small pages; in reserved huge ones; at a multiple of `alignment`. All of
 * them are given back by kvpi_pages_unmap, whole. */
void *kvpi_pages_map_small(size_t bytes);
void *kvpi_pages_map_reserved(size_t bytes);
void *kvpi_pages_map_aligned(size_t bytes, size_t alignment);

/* Of a mapping that has not been touched: let it have huge pages when it is; take pages of one node
 * only; have all pages now. 0 or -1. */
int kvpi_pages_ask_for_huge(void *mapping, size_t bytes);
int kvpi_pages_bind(void *mapping, size_t bytes, int32_t node);
int kvpi_pages_populate(void *mapping, size_t bytes);

#endif
