/* cache_disk: --cache-disk, a directory below the host tier (kvpager/llama_disk.h). Without the
 * option, and in a build without libkvpager_store, nothing here does anything. */
#ifndef KVPI_SERVE_CACHE_DISK_H
#define KVPI_SERVE_CACHE_DISK_H

#include "../options.h"

#include <kvpager/llama_disk.h>

enum { KVPI_DISK_LOADS = 16 }; /* requests for which it is read at once */

/* Opens it for an engine that has run nothing. `identity`: which weights these are. -1: `out_why`
 * says why not. */
int kvpi_cache_disk_open(kvp_llama *engine, const kvpi_options *options, const char *identity,
                         kvp_why *out_why);

/* The namespace of a salt is open, or is closed next. */
void kvpi_cache_disk_enter(kvp_llama *engine, kvp_ns ns, const char *salt, size_t salt_bytes);
void kvpi_cache_disk_leave(kvp_llama *engine, kvp_ns ns);

/* Zero without one. */
void kvpi_cache_disk_figures(const kvp_llama *engine, kvp_llama_disk_stats *out_stats);

#endif
