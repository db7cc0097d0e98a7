/* The results of a replay under load: a list of figures, and tables for people.
 * docs/COMMAND.md defines every figure. */
#ifndef KVPI_LOAD_REPORT_H
#define KVPI_LOAD_REPORT_H

#include <jansson.h>
#include <kvpager/sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tool/models/devices.h"
#include "tool/replay/load_timeline.h"
#include "tool/models/models.h"
#include "tool/percentiles.h"
#include "tool/report/report_hits.h"
#include "tool/report/report_learned.h"
#include "tool/requests/requests.h"
#include "tool/size/size.h"
#include "tool/models/step_model.h"
#include "tool/watch/watch.h"
#include "tool/store/replay_report.h"

/* Why a request was not served. */
typedef enum kvpi_load_reason {
    KVPI_LOAD_EMPTY,  /* no token in the prompt */
    KVPI_LOAD_PROMPT, /* the prompt alone needs more blocks than admission ever gives */
    KVPI_LOAD_OUTPUT, /* prompt and output need more blocks than there are */
    KVPI_LOAD_REASONS
} kvpi_load_reason;

extern const char *const kvpi_load_reason_names[]; /* [KVPI_LOAD_REASONS], as in JSON */
extern const char *const kvpi_load_wait_names[];   /* [KVP_WAIT_REASONS] */

typedef struct kvpi_load_rejection {
    const char *file; /* of several files, as long as the trace is there; NULL: there is one */
    uint64_t line;    /* of the trace */
    uint32_t of_line; /* as kvpi_request has it */
    uint64_t input_tokens;
    uint64_t output_tokens;
    kvpi_load_reason reason;
    kvp_sched_limit limit; /* max_tokens is for this prompt; 0 when none is */
} kvpi_load_rejection;

#define KVPI_LOAD_MAX_REJECTIONS 16

/* Figures of requests, for the page: over time, and how they are spread. */
enum {
    KVPI_LOAD_QUEUE,
    KVPI_LOAD_FIRST_TOKEN,
    KVPI_LOAD_PER_TOKEN,
    KVPI_LOAD_END_TO_END,
    KVPI_LOAD_LATENCIES
};

typedef struct kvpi_load_latency {
    kvpi_bins spread;                         /* in tenths of a millisecond */
    uint64_t p50_ns[KVPI_LOAD_MAX_INTERVALS]; /* of those that arrived in the interval and */
    uint64_t p90_ns[KVPI_LOAD_MAX_INTERVALS]; /* finished; 0 when there are none */
} kvpi_load_latency;

/* How the sessions of a closed loop went; all 0 where requests came at their recorded times. */
typedef struct kvpi_load_sessions {
    bool closed;
    uint64_t sessions;
    uint64_t at_once;     /* 0: they start by rate, or as recorded */
    uint64_t rate_milli;  /* 0: not by rate */
    uint64_t think_milli; /* of gaps, in thousandths */
    uint64_t cap_milli;   /* their most, in thousandths of a second; 0: none */
    uint64_t over;        /* sessions that ended */
    uint64_t rejected;    /* of these, by the rejection of a request */
    uint64_t dropped;     /* requests that did not come for it */
    uint64_t estimated;   /* gaps after an end that is not recorded */
    uint64_t overlapping; /* requests that came before all that was awaited had ended */
    uint64_t window_ns;   /* from then on fewer than `at_once` ran; UINT64_MAX: it never was so */
    uint64_t window_requests; /* that arrived before; figures of time are theirs */
    uint64_t window_input_tokens;
    uint64_t window_hit_tokens;
    uint64_t window_output_tokens;
} kvpi_load_sessions;

/* What was modelled. */
typedef struct kvpi_load_setting {
    const kvpi_step_model *step_model;
    const kvpi_model *model; /* of a roofline; so are the next three */
    const kvpi_device *device;
    const kvpi_size_options *size_options;
    const kvpi_step_shares *shares;
    uint64_t speedup_milli;
    uint64_t block_tokens;
    uint64_t unit_tokens;
    uint64_t blocks;
    uint64_t host_blocks;
    const kvpi_size *size; /* of the model; NULL: there is none */
    uint64_t token_bytes;  /* of KV, in a block; 0: not known */
    uint64_t seed;
    uint32_t keep_evicted;  /* KVP_EVICTED_... */
    uint32_t retain_tokens; /* as in kvp_config */
    bool prefix_cache;
    bool output;
} kvpi_load_setting;

typedef struct kvpi_load_report {
    /* set by the caller */
    const char *path;
    const char *format;
    const kvpi_requests_about *about;
    uint64_t mended;
    kvpi_load_setting setting;
    kvpi_reasons *why; /* NULL: it was not asked */
    /* requests */
    uint64_t requests;
    uint64_t finished;
    uint64_t rejected[KVPI_LOAD_REASONS];
    kvpi_load_sessions sessions;
    uint64_t unfinished;                                      /* neither: an error */
    kvpi_load_rejection rejections[KVPI_LOAD_MAX_REJECTIONS]; /* the first ones */
    size_t n_rejections;
    /* tokens */
    uint64_t input_tokens;          /* of all requests */
    uint64_t finished_input_tokens; /* of those that finished */
    uint64_t output_tokens;         /* generated */
    uint64_t hit_tokens;            /* of the input, at each request's first admission */
    uint64_t prompt_tokens;         /* computed in prompts, also again after preemptions */
    kvpi_hits hits;                 /* at each request's first admission, but all states */
    /* times, in simulated nanoseconds from the first arrival */
    int64_t span_us;            /* of the trace */
    uint64_t end_ns;            /* the last token is there */
    uint64_t busy_ns;           /* sum of all steps */
    double bound_by_compute_ns; /* of this, steps that compute more than they wait for memory */
    double copy_ns;             /* copies of plans */
    double waited_ns[KVP_WAIT_REASONS]; /* sums over requests */
    kvpi_percentiles queue;             /* arrival to the first step that admits it */
    kvpi_percentiles first_token;
    kvpi_percentiles per_token; /* mean of a request, from its first token to its last */
    kvpi_percentiles gap;       /* between two tokens of a request */
    kvpi_percentiles end_to_end;
    kvpi_percentiles step;
    double held_block_ns; /* blocks held, times how long */
    uint64_t recompute_preemptions;
    uint64_t swap_preemptions;
    uint64_t blocks_to_host; /* copied, for whatever reason */
    uint64_t blocks_from_host;
    uint64_t states_to_host; /* recurrent states, by plans */
    uint64_t states_from_host;
    kvp_sched_config sched_config;
    kvp_stats cache; /* when all is done */
    kvpi_learned learned;
    kvp_sched_stats sched;
    kvpi_store_report store;
    kvpi_percentiles load_wait; /* of requests that were held until the store answered */
    kvpi_load_timeline timeline;
    kvpi_load_latency latencies[KVPI_LOAD_LATENCIES]; /* for the page */
    /* measured on this machine, when asked for */
    bool measured;
    uint64_t sched_ns; /* in the scheduler's calls for steps */
    uint64_t wall_ns;  /* of the replay */
} kvpi_load_report;

/* Give how many requests could never be served. */
uint64_t kvpi_load_report_rejected(const kvpi_load_report *report);

/* Make the list of the report's figures. Returns: NULL when memory is short. Owns: the caller drops
 * its reference */
json_t *kvpi_load_report_figures(const kvpi_load_report *report);

/* Print the report for people, at most 80 columns wide, except a long file name.
 *
 * Takes:   figures  of this report
 */
void kvpi_load_report_print(const kvpi_load_report *report, const json_t *figures, FILE *file);

#endif
