/* loop: the engine's thread. It alone calls the engine, its cache and its scheduler. Others hand it
 * jobs, set job.is_cancelled, and read what it publishes between two steps: figures after each, the
 * state as JSON while it is asked for, twice a second at most. */
#ifndef KVPI_SERVE_LOOP_H
#define KVPI_SERVE_LOOP_H

#include "job.h"
#include "limits.h"
#include "publish.h"
#include "reasons.h"
#include "record.h"
#include "tenants.h"

#include "../options.h"

#include <kvpager/llama_disk.h>

enum { KVPI_RECENT_MOST = 16, KVPI_STOP_KINDS = 7, KVPI_IDENTITY_BYTES = 80 };

/* A request that has ended. */
typedef struct kvpi_recent {
    uint64_t id;
    uint32_t tenant;
    uint32_t prompt_tokens;
    uint32_t cached_tokens;
    uint32_t new_tokens;
    uint32_t stop;
    uint32_t is_aborted;
    double seconds;
} kvpi_recent;

typedef struct kvpi_figures {
    kvp_sched_stats sched;
    kvp_stats cache;
    kvp_llama_stats llama;
    kvp_llama_disk_stats disk;
    uint64_t jobs;                   /* handed over */
    uint64_t refused;                /* for want of places in the queue */
    uint64_t aborted;                /* clients that went away */
    uint64_t failed;                 /* by the engine */
    uint64_t over;                   /* that ended as they should */
    uint64_t new_tokens;             /* of all samples */
    uint64_t prompt_tokens;          /* of requests that were admitted */
    uint64_t cached_tokens;          /* of them, not computed */
    uint64_t stops[KVPI_STOP_KINDS]; /* admitted requests by why their hit ended */
    kvp_reasons_stats reasons;       /* tokens of admitted prompts by why they were computed */
    uint64_t step_ns;                /* in steps, sampling included */
    uint64_t decode_ns;              /* in kvp_llama_run */
    uint32_t queued;                 /* gauge: not in the scheduler yet */
} kvpi_figures;

typedef struct kvpi_loop {
    const kvpi_options *options;
    const struct llama_model *model;
    const struct llama_vocab *vocab;
    int32_t n_vocab;
    struct llama_adapter_lora *adapter; /* NULL: none */
    kvp_llama *engine;
    kvp_cache *cache;
    kvp_sched *sched;
    kvpi_limits limits;
    kvpi_tenants tenants;
    kvpi_publish publisher;
    kvpi_reasons reasons;
    kvpi_record recording;
    char identity[KVPI_IDENTITY_BYTES]; /* what KV depends on: restart.h */
    kvp_llama_restored restored;
    kvp_why not_restored; /* why no snapshot was: a sentence, or "" */
    kvpi_job **jobs;      /* [max_queue] in the scheduler, by tag */
    kvpi_job *waiting;    /* taken from the inbox and not submitted yet, in order */
    kvpi_job *waiting_last;
    kvpi_job *over;         /* that have a place in the queue until `publish` */
    llama_token_data *room; /* [n_vocab] */
    int32_t *sampled;       /* [parallel * 2] */
    uint8_t *ended;
    uint32_t failures; /* steps that failed, one after the other */
    kvpi_recent recent[KVPI_RECENT_MOST];
    uint32_t n_recent;
    kvpi_figures counts; /* the thread's own; published as `figures` */
    pthread_t thread;
    atomic_int is_stopped;
    atomic_int is_broken;
    pthread_mutex_t mutex; /* of what follows */
    pthread_cond_t cond;
    kvpi_job *inbox, *inbox_last;
    uint32_t n_jobs; /* that have a place in the queue */
    kvpi_figures figures;
    char *state; /* JSON; NULL: none yet */
    uint64_t state_ns;
    uint64_t wanted_ns; /* when the state was last asked for */
} kvpi_loop;

/* Makes the engine and starts the thread. -1: `out_why` says why. */
int kvpi_loop_start(kvpi_loop *loop, const kvpi_options *options, struct llama_model *model,
                    kvp_why *out_why);

/* Ends every job, within a step, and the thread. Figures and state can still be read. */
void kvpi_loop_stop(kvpi_loop *loop);

/* After kvpi_loop_stop, when no other thread uses it any more. */
void kvpi_loop_free(kvpi_loop *loop);

/* Hands a job over. 0; else so many seconds are a good time to wait before the next try. */
uint32_t kvpi_loop_submit(kvpi_loop *loop, kvpi_job *job);

void kvpi_loop_figures(kvpi_loop *loop, kvpi_figures *out_figures);

/* Gives a copy of the newest state, or NULL; the caller frees it. */
char *kvpi_loop_state(kvpi_loop *loop);

#endif
