/* snaps: snapshots in memory, and a workload that can be stopped, saved and gone on with. */
#ifndef TEST_SNAPS_H
#define TEST_SNAPS_H

#include <kvpager/snapshot.h>

#include "groups.h"

typedef struct snap {
    uint8_t *bytes;
    size_t n;
    size_t room;
    size_t at;      /* read so far */
    size_t piece;   /* bytes a read gives at most; 0: all */
    size_t fail_at; /* bytes that a write may reach, or a read; 0: all */
} snap;

kvp_sink snap_sink(snap *s);
kvp_source snap_source(snap *s);               /* from the start */
kvp_cache *cache_of(const kvp_config *config); /* to be destroyed */
snap snap_of(kvp_cache *cache, const kvp_snapshot_options *options);
void snap_drop(snap *s);

/* A record of a file. */
typedef struct snap_record {
    uint32_t number; /* from 0 */
    uint32_t kind;
    uint8_t *payload;
    uint32_t n;
} snap_record;

/* The file with its records as `edit` leaves them (they may be of another kind, and shorter), or
 * without those for which it gives 0, and everything around them right. */
snap snap_edit(const snap *s, int (*edit)(void *context, snap_record *record), void *context);

/* One byte of a record changed. Gives the record's kind, or 0: it has no such byte. */
snap snap_forge(const snap *s, uint32_t number, size_t byte, uint32_t *out_kind);

kvp_snapshot_options snap_options(void); /* with a model */
kvp_status snap_load(snap *s, kvp_cache *cache, kvp_snapshot_report *report);

/* The report adds up, and the cache is sound. */
void assert_report(const kvp_snapshot_report *report);
void assert_sound(kvp_cache *cache);

/* Ways to be a cache: the workload runs on each. */
enum {
    SNAP_PLAIN,
    SNAP_UNITS,
    SNAP_KEEP,
    SNAP_HOST,
    SNAP_GROUPS,
    SNAP_WINDOWED,
    SNAP_OVERLAPPED,
    SNAP_BITS,
    SNAP_LEARNED,
    SNAP_STATES,
    SNAP_STATES_STEPS,
    SNAP_N_KINDS,
    SNAP_CHUNKED = SNAP_N_KINDS /* hits only: to an inspector it is SNAP_WINDOWED */
};

kvp_config snap_config(int which);

enum { SNAP_SPACES = 3, SNAP_OPEN = 6 };

/* Random requests over a few shared prefixes. `digest` is of all hits, rows, victims and plans. */
typedef struct load_run {
    kvp_cache *cache;
    kvp_ns ns[SNAP_SPACES];
    kvp_seq open[SNAP_OPEN];
    uint32_t n_open;
    uint32_t n_prefixes; /* prompts are drawn from as many families */
    uint64_t random;
    uint64_t digest;
    uint64_t cached_tokens;
    uint64_t n_evicted;
} load_run;

load_run run_begin(kvp_cache *cache, uint64_t seed); /* opens the namespaces */
void run_on(load_run *run, uint32_t n);
load_run run_again(kvp_cache *cache, const load_run *half); /* from where `half` is, 300 more */
void run_close(load_run *run); /* all that are open, in the order of places */

#endif
