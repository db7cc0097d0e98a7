/* saved: a cache with what was saved of it before, and what is to be saved now. A snapshot of it
 * takes several writes. */
#ifndef TEST_SAVED_H
#define TEST_SAVED_H

#include "disk.h"
#include "snaps.h"

#define NAME "cache.kvsnap"
#define PART "cache.kvsnap.part-0"

typedef struct saved {
    world w;
    snap before, now;
    disk_bytes old, new;
} saved;

saved make_saved(void);
void end_saved(saved *s);
#define scoped_saved ENDED_BY(end_saved) saved

/* Options of these snapshots; where *fails is not 0, getting KV fails. May be NULL. */
kvp_snapshot_options saved_options(int *fails);

bool is_same(const disk_bytes *a, const disk_bytes *b);

/* Into a real file, and what must be in one. */
kvp_status save_to(const saved *s, const char *path, int *out_error);
void assert_file(const char *path, const disk_bytes *wanted);

#endif
