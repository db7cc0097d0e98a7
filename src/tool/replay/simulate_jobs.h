/* The requests of a simulation: when each arrives, its tokens while it is there, and when it was
 * admitted, got its tokens and ended. */
#ifndef KVPI_SIMULATE_JOBS_H
#define KVPI_SIMULATE_JOBS_H

#include <stddef.h>
#include <stdint.h>

#include "tool/report/load_report.h"
#include "tool/replay/simulate.h"
#include "tool/requests/requests.h"

typedef enum kvpi_job_stage {
    KVPI_JOB_COMING, /* not submitted yet */
    KVPI_JOB_THERE,
    KVPI_JOB_REJECTED,
    KVPI_JOB_DROPPED, /* its session had ended */
    KVPI_JOB_FAILED,  /* ended, but not as it should have */
    KVPI_JOB_FINISHED
} kvpi_job_stage;

#define KVPI_JOB_NEVER UINT64_MAX

typedef struct kvpi_job {
    uint64_t arrival_ns;
    uint64_t admitted_ns; /* the first time; KVPI_JOB_NEVER before */
    uint64_t first_ns;    /* its first token was there */
    uint64_t newest_ns;   /* its newest */
    uint64_t held_ns;     /* with a store: it was held for loading */
    uint32_t outcome;     /* KVP_SPILL_... of the store's answer; WAITS: none came; OUTCOMES: it
                             was not asked */
    kvp_request request;  /* then */
    int32_t *tokens;      /* [room] while it is there, input then output, or kept; else NULL */
    size_t room;
    uint32_t n_sampled;
    uint32_t hit_tokens;  /* when it was first admitted */
    uint32_t n_followers; /* requests that follow it and have not come */
    bool has_come;        /* it is none of those that follow another any more */
    kvpi_job_stage stage;
} kvpi_job;

typedef struct kvpi_jobs {
    const kvpi_requests *requests;
    const kvpi_simulate_options *options;
    kvpi_job *all;      /* [n] in replay order */
    uint32_t *order;    /* [n] by arrival; NULL: as they stand */
    uint64_t window_ns; /* figures of time are of those that arrived before */
    size_t n;
    size_t kept; /* tokens for which requests that left have room */
    kvpi_histogram *gaps;
} kvpi_jobs;

/* Lay out the requests of a replay.
 *
 * Returns: TOOL_OK; TOOL_FAILED, a message was printed, nothing to free
 */
int kvpi_jobs_create(const kvpi_requests *requests, const kvpi_simulate_options *options,
                     kvpi_jobs *out);
void kvpi_jobs_free(kvpi_jobs *jobs);

/* Tell the tokens of request i: of the prompt; that are generated, as reported; that are asked of
 * the scheduler, which always samples one. */
uint32_t kvpi_jobs_input(const kvpi_jobs *jobs, size_t i);
uint32_t kvpi_jobs_output(const kvpi_jobs *jobs, size_t i);
uint32_t kvpi_jobs_sampled(const kvpi_jobs *jobs, size_t i);

/* Make the tokens of request i, unless they are there, from those of the request that it follows.
 *
 * Returns: as kvpi_jobs_create
 */
int kvpi_jobs_make_tokens(kvpi_jobs *jobs, size_t i);

/* Request i left: its tokens are freed, or kept for those that follow it. */
void kvpi_jobs_leave(kvpi_jobs *jobs, size_t i, kvpi_job_stage stage);

/* The token that request i generates next. */
int32_t kvpi_jobs_next_token(const kvpi_jobs *jobs, size_t i);

/* Note that request i got a token. */
void kvpi_jobs_note_token(kvpi_jobs *jobs, size_t i, uint64_t now_ns);

/* All is over: say how the sessions went, and which requests did not come.
 *
 * Returns: as kvpi_jobs_create
 */
int kvpi_jobs_close(kvpi_jobs *jobs, const kvpi_closed *closed, kvpi_load_sessions *out);

/* Count what became of them, and how long it took.
 *
 * Returns: as kvpi_jobs_create
 */
int kvpi_jobs_report(const kvpi_jobs *jobs, kvpi_load_report *report);

#endif
