/* Watches the content of a cache while a trace is replayed: which blocks are stored, hit, evicted,
 * and what prompts share. For the report; nothing here takes part in a decision. */
#ifndef KVPI_WATCH_H
#define KVPI_WATCH_H

#include <kvpager/cache.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tool/watch/reasons.h"

/* Counts by size, the classes of which begin at 0, 1, 2, 5, 10, 20, 50, 100 ... */
#define KVPI_BINS 40
typedef struct kvpi_bins {
    uint64_t counts[KVPI_BINS];
    uint64_t n;
} kvpi_bins;

void kvpi_bins_add(kvpi_bins *bins, uint64_t value);

/* The smallest value of class i. */
uint64_t kvpi_bins_first(size_t i);

/* A run of blocks that the same requests shared. */
typedef struct kvpi_watch_prefix {
    uint64_t end_tokens;    /* of the prompt, up to the end of the run */
    uint64_t run_tokens;    /* in the run */
    uint64_t hits;          /* requests that found it */
    const char *first_file; /* of the first request that had it; NULL: there is one file */
    uint64_t first_line;    /* likewise */
    uint32_t first_of_line; /* as kvpi_request has it */
    uint64_t saved_tokens;  /* hits x run_tokens */
} kvpi_watch_prefix;

#define KVPI_WATCH_PREFIXES 12

/* Times are the caller's: of the simulation in milliseconds, or places of requests. */
typedef struct kvpi_watch {
    kvpi_reasons why;   /* begun by the caller, who ends it */
    kvpi_bins idle;     /* of evicted blocks: since they were last used */
    kvpi_bins lifetime; /* of evicted blocks: since they were stored */
    kvpi_bins gap_hit;  /* of looked up blocks that were hit: since they were used before */
    kvpi_bins gap_lost; /* that were evicted in between */
    uint64_t evicted;
    uint64_t evicted_unused;                         /* that were not hit since they were stored */
    uint64_t missed_events;                          /* too many at once to be remembered */
    kvpi_watch_prefix prefixes[KVPI_WATCH_PREFIXES]; /* [n_prefixes] most saved tokens first */
    size_t n_prefixes;
    struct kvpi_watch_state *state;
} kvpi_watch;

/* The cache that is watched. What is called a block here is a unit: where the cache's unit is
 * smaller than its block, units are counted. */
typedef struct kvpi_watch_cache {
    const char *name; /* of its one namespace; its seed is 0 */
    uint32_t unit_tokens;
    uint32_t n_groups; /* of blocks; a hit that ends for lack of group n_groups lacks a state */
    uint32_t n_full;   /* of them, those that keep all tokens: the first ones */
} kvpi_watch_cache;

/* Begin to watch; `why` stays as it is.
 *
 * Returns: TOOL_OK; TOOL_FAILED, a message was printed
 */
int kvpi_watch_begin(kvpi_watch *watch, const kvpi_watch_cache *cache);

/* Set what the configuration of the cache needs to be watched. */
void kvpi_watch_configure(kvp_config *config);

/* What is known of a record of a prompt in a store. */
typedef struct kvpi_watch_record {
    bool is_there;
    bool was_there;
    bool is_dated;    /* gone_at is known */
    uint64_t gone_at; /* in the caller's unit of time */
} kvpi_watch_record;

/* What a store has of a prompt when it is admitted. */
typedef struct kvpi_watch_store {
    const kvpi_watch_record *records; /* [n_records] from the prompt's start */
    uint32_t n_records;
    uint32_t record_tokens; /* 0: there is no store */
    const char *kept_back;  /* why what it has was not brought back */
} kvpi_watch_store;

typedef struct kvpi_watch_prompt {
    const int32_t *tokens; /* [n_tokens] */
    uint32_t n_tokens;
    uint32_t cached_tokens;    /* as kvp_open_info has it */
    uint32_t host_tokens;      /* of these, copied from the host: the last full units */
    uint32_t stop, stop_group; /* as kvp_open_info has them, too */
    const char *file;          /* of several files; NULL: there is one */
    uint64_t line;             /* of the trace */
    uint32_t of_line;          /* as kvpi_request has it */
    kvpi_watch_store store;
    const uint32_t *enough; /* [full blocks] how large a cache has what is up to there; NULL: it is
                               not known */
} kvpi_watch_prompt;

/* A request was admitted for the first time.
 *
 * Returns: TOOL_OK; TOOL_FAILED, a message was printed
 */
int kvpi_watch_admit(kvpi_watch *watch, const kvpi_watch_prompt *prompt, uint64_t now);

/* Take notice of what was stored and evicted since the last call.
 *
 * Returns: as kvpi_watch_admit
 */
int kvpi_watch_look(kvpi_watch *watch, kvp_cache *cache, uint64_t now);

/* Sum up: find the prefixes that saved most. */
void kvpi_watch_end(kvpi_watch *watch);

void kvpi_watch_free(kvpi_watch *watch);

#endif
