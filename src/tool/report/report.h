/* The results of a replay: a list of figures, and a table for people. */
#ifndef KVPI_REPORT_H
#define KVPI_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tool/models/devices.h"
#include "tool/replay/load_timeline.h"
#include "tool/report/figures.h"
#include "tool/report/report_hits.h"
#include "tool/report/report_learned.h"
#include "tool/requests/requests.h"
#include "tool/size/size.h"
#include "tool/watch/reasons.h"
#include "tool/store/replay_report.h"

#define KVPI_REPORT_MAX_INTERVALS 20

/* A replay of one request after the other has no time; its course counts requests as if each took
 * one unit of the course's smallest width. */
#define KVPI_REPORT_REQUEST_NS UINT64_C(1000000)

typedef struct kvpi_report_interval {
    uint64_t requests; /* rejected ones included */
    uint64_t input_tokens;
    uint64_t hit_tokens;
} kvpi_report_interval;

/* The replay cut into at most 20 parts: by the trace's time in steps that people count in, or by
 * the number of requests when the trace has almost no time. */
typedef struct kvpi_report_timeline {
    int64_t first_us;
    uint64_t step; /* of an interval: microseconds, or requests */
    bool by_time;
    size_t n;
    kvpi_report_interval intervals[KVPI_REPORT_MAX_INTERVALS]; /* [n] */
} kvpi_report_timeline;

typedef struct kvpi_report {
    const char *path;
    const char *format;
    const kvpi_requests_about *about;
    uint64_t block_tokens;
    uint64_t unit_tokens;
    uint64_t blocks;       /* usable ones */
    uint64_t host_blocks;  /* 0: there is no host tier */
    uint64_t memory_bytes; /* of those blocks; 0 when the size of a token is not known */
    uint64_t host_memory_bytes;
    const kvpi_model *model; /* whose layer groups the cache has; NULL: one group, no window */
    const kvpi_device *device;
    const kvpi_size *size;
    uint64_t context_tokens; /* of the sequences that `size` counts */
    uint32_t keep_evicted;   /* KVP_EVICTED_... */
    uint32_t retain_tokens;  /* as in kvp_config */
    uint64_t seed;
    bool prefix_cache;
    bool output;           /* generated tokens were appended */
    uint64_t mended;       /* requests whose ids did not fit their length */
    uint64_t skipped;      /* requests before those */
    uint64_t saved_blocks; /* in the snapshot that the cache was restored from; 0: none, or empty */
    uint64_t restored_blocks;
    uint64_t requests; /* all of the replay, rejected ones included */
    uint64_t rejected;
    uint64_t input_tokens;  /* of all requests */
    uint64_t output_tokens; /* appended */
    uint64_t hit_tokens;
    uint64_t host_hit_tokens; /* of these, copied from the host */
    kvpi_hits hits;
    uint64_t blocks_looked_up;
    uint64_t block_hits;
    uint64_t evictions;
    uint64_t host_evictions;
    kvp_stats cache; /* when all is done */
    kvpi_learned learned;
    uint64_t peak_held_blocks;
    uint64_t open_ns;   /* sums over all calls */
    uint64_t commit_ns; /* of the prompt */
    uint64_t extend_ns; /* extend and commit, token by token */
    uint64_t close_ns;
    uint64_t wall_ns;
    kvpi_reasons *why; /* NULL: it was not asked */
    int64_t span_us;   /* from the first request to the last */
    kvpi_report_timeline timeline;
    kvpi_store_report store;
    kvpi_load_timeline course; /* for the page: a request takes KVPI_REPORT_REQUEST_NS */
} kvpi_report;

/* Lay out the intervals.
 *
 * Takes:   first_us, last_us  of the requests to come, first_us <= last_us
 *          n_requests         >= 1
 */
void kvpi_report_timeline_init(kvpi_report_timeline *timeline, int64_t first_us, int64_t last_us,
                               uint64_t n_requests);

/* Give the interval that a request belongs to.
 *
 * Takes:   place    in replay order, from 0
 */
kvpi_report_interval *kvpi_report_timeline_at(kvpi_report_timeline *timeline, uint64_t place,
                                              int64_t timestamp_us);

/* Divide, with 0 for nothing out of nothing. */
static inline double kvpi_report_ratio(uint64_t part, uint64_t whole)
{
    return whole == 0 ? 0.0 : (double)part / (double)whole;
}

/* Print a line of the pool: its blocks, the tokens in them, and their bytes if they are known; of a
 * model with windows two more lines, its layer groups and the tokens of whole sequences.
 *
 * Takes:   size     NULL: a block has all layers
 *          context_tokens   of those sequences; 0: of the host, which has no such lines
 */
typedef struct kvpi_report_pool {
    const char *name; /* "KV: " or "" */
    uint64_t blocks;
    uint64_t block_tokens;
    uint64_t bytes; /* 0: not known */
    uint64_t context_tokens;
    const kvpi_size *size;
    uint32_t retain_tokens; /* as in kvp_config */
} kvpi_report_pool;

void kvpi_report_print_pool(const kvpi_report_pool *pool, FILE *file);

/* With the learned policy, add what it did; else nothing. */
void kvpi_report_add_policy(kvpi_figures *to, const kvp_stats *cache);

/* Add the array of a model's layer groups; null without a model. */
void kvpi_report_add_groups(kvpi_figures *to, const kvpi_size *size);

/* Add what the host does with content that the device evicts: a KVP_EVICTED_... */
void kvpi_report_add_kept(kvpi_figures *to, uint32_t keep_evicted);

/* Add which window blocks stay longer: a number of tokens, "prompts", or null; as in kvp_config. */
void kvpi_report_add_retained(kvpi_figures *to, uint32_t retain_tokens);

/* Make the list of the report's figures. Returns: NULL when memory is short. Owns: the caller drops
 * its reference */
json_t *kvpi_report_figures(const kvpi_report *report);

/* Print the report for people, at most 80 columns wide; Unicode bars if the character set of the
 * locale is UTF-8, else ASCII.
 *
 * Takes:   figures  of this report
 */
void kvpi_report_print(const kvpi_report *report, const json_t *figures, FILE *file);

#endif
