/* job: a client's request, between the thread that answers it and the engine's thread.
 *
 * The HTTP thread makes a job and hands it over (loop.h). From then on the fields up to `samples`
 * are read only, the engine's thread has `samples` and `engine`, and both meet in `shared`, under
 * its mutex: the engine's thread adds pieces of text, the HTTP thread takes them. It waits for them
 * on an eventfd, together with the client's socket, so that it notices when the client goes away.
 * Two references: who drops the last one frees the job. */
#ifndef KVPI_SERVE_JOB_H
#define KVPI_SERVE_JOB_H

#include "sampling.h"
#include "text.h"

#include <kvpager/llama.h>
#include <pthread.h>
#include <stdatomic.h>

enum { KVPI_SALT_BYTES_MOST = 200 };

/* Why a sample ended. */
typedef enum kvpi_finish {
    KVPI_FINISH_NONE = 0,
    KVPI_FINISH_STOP,
    KVPI_FINISH_LENGTH,
    KVPI_FINISH_FAILED /* the server ends, or the engine broke: job.error says why */
} kvpi_finish;

/* A token's text, as far as it may be seen, or the end of a sample, or both. */
typedef struct kvpi_piece {
    struct kvpi_piece *next;
    uint32_t sample;
    kvpi_finish finish;
    int32_t token;          /* -1: none */
    size_t n_bytes;         /* of text */
    kvpi_logprob *logprobs; /* [1 + n_logprobs]; NULL: none */
    char text[];
} kvpi_piece;

typedef struct kvpi_sample {
    kvpi_sampler sampler;
    kvpi_text text;
    uint32_t n_tokens; /* generated */
    uint32_t n_units;  /* that reasons.c has noted as computed, and the last one's hash */
    kvp_hash last_unit;
    kvpi_finish finish;
} kvpi_sample;

typedef enum kvpi_job_state { KVPI_JOB_QUEUED, KVPI_JOB_RUNNING, KVPI_JOB_OVER } kvpi_job_state;

typedef struct kvpi_job {
    /* made by the HTTP thread */
    uint64_t id;
    int32_t *tokens;
    uint32_t n_tokens;
    uint32_t n_samples;
    uint32_t max_new_tokens;
    kvpi_sampling sampling;
    kvpi_stops stops;
    char salt[KVPI_SALT_BYTES_MOST + 1];
    size_t salt_bytes;
    /* the engine's */
    kvpi_sample *samples; /* [n_samples] */
    uint32_t n_over;      /* of them */
    uint32_t last_over;
    struct kvpi_job *next;
    kvp_request request;
    kvpi_job_state state;
    uint32_t tenant;
    uint32_t was_admitted;
    uint64_t begin_ns;
    int32_t *told; /* record.h: [n_tokens + n_told] the prompt and its first sample; NULL: none */
    uint32_t n_told;
    uint64_t first_ns; /* when its first token came, if there is `told` */
    /* of both */
    atomic_int references;
    atomic_int is_cancelled;
    int event;             /* eventfd */
    pthread_mutex_t mutex; /* of what follows */
    kvpi_piece *first;
    kvpi_piece *last;
    uint32_t cached_tokens;
    uint32_t stop; /* KVP_STOP_...: why its hit ended */
    uint32_t new_tokens;
    int is_closed;     /* nothing follows */
    const char *error; /* static text */
} kvpi_job;

/* Makes an empty job for n_samples; NULL: no memory, or no eventfd. It has one reference. */
kvpi_job *kvpi_job_new(uint32_t n_samples);

kvpi_job *kvpi_job_hold(kvpi_job *job);
void kvpi_job_drop(kvpi_job *job);

/* Adds a piece and wakes who waits. text may be NULL when n_bytes is 0. -1: no memory. */
int kvpi_job_add(kvpi_job *job, const kvpi_piece *piece, const char *text);

/* No piece follows. Who waits for one is woken. */
void kvpi_job_close(kvpi_job *job);

/* Takes all pieces that there are, in order; waits for some. NULL: the client went away, or nothing
 * follows: cancel the job. Free them with kvpi_piece_free. */
kvpi_piece *kvpi_job_take(kvpi_job *job, int client);

void kvpi_piece_free(kvpi_piece *piece);

/* Of a clock that only rises. */
uint64_t kvpi_job_now_ns(void);

#endif
