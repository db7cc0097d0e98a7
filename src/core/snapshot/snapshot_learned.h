/* snapshot_learned: what the learned policy knows, as records of a snapshot (core/policy). */
#ifndef KVPI_SNAPSHOT_LEARNED_H
#define KVPI_SNAPSHOT_LEARNED_H

#include "core/cache/state.h"
#include "core/snapshot/frames.h"

/* What was read so far. Zeroed at first. */
struct kvpi_snap_learned {
    uint32_t begun; /* part 0 was read */
    uint32_t bad;   /* something does not fit: nothing is kept */
    uint32_t n_entries;
    uint32_t entries; /* of these, read */
    uint32_t lru;     /* cursors, as distances from the oldest entry */
    uint32_t cursors[KVPI_BINS];
    uint64_t classes; /* bit c: class c was read */
};

/* Write what the policy of a cache knows, if it has one. */
void kvpi_snap_save_learned(const kvp_cache *cache, struct kvpi_snap_writer *writer);

/* Read a record's payload into the policy of a cache that has one, and of whose blocks those of the
 * snapshot have their content already. */
void kvpi_snap_load_learned(kvp_cache *cache, struct kvpi_snap_learned *learned,
                            struct kvpi_snap_bytes *b);

/* All records were read. Gives 1 if all of it was there and fits together; else the policy knows
 * nothing. */
int kvpi_snap_end_learned(kvp_cache *cache, const struct kvpi_snap_learned *learned);

#endif
