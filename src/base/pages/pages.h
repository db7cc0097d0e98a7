/* pages: memory from the system, with the pages and on the node that were asked for. */
#ifndef KVPI_PAGES_H
#define KVPI_PAGES_H

#include <kvpager/memory.h>

/* Map zeroed memory. Gives its address, aligned to 4 KiB, to 2 MiB for large ones; how many bytes
 * were mapped; which pages were granted. KVP_OK, or KVP_E_NO_MEMORY. */
kvp_status kvpi_pages_map(size_t bytes, const kvp_memory_options *options, void **out_mapping,
                          kvp_memory_info *out_info);

void kvpi_pages_unmap(void *mapping, size_t mapped_bytes);

#endif
