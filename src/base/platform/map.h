/* map: zeroed memory from the system, in whole pages. */
#ifndef KVPI_MAP_H
#define KVPI_MAP_H

#include <stddef.h>

/* Map memory, in huge pages when the system grants them; NULL when it gives none. */
void *kvpi_map(size_t bytes);

/* The same in small pages: only what is written takes memory. For what has large gaps. */
void *kvpi_map_thin(size_t bytes);
void kvpi_unmap(void *memory, size_t bytes);

#endif
