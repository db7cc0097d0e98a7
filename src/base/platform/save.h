/* save: a snapshot in a file that is there whole or not at all. See save.c. */
#ifndef KVPI_SAVE_H
#define KVPI_SAVE_H

#include <kvpager/snapshot.h>

#include "base/platform/system.h"

/* kvp_snapshot_save_file on any system. */
kvp_status kvpi_save_snapshot(kvp_cache *cache, const kvp_snapshot_options *options,
                              const char *path, const struct kvpi_system *system, int *out_error);

#endif
