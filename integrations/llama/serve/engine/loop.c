/* loop: jobs in, a step, tokens out. */
#define _POSIX_C_SOURCE 200809L

#include "loop.h"
#include "answer.h"
#include "cache_disk.h"
#include "make.h"
#include "restart.h"
#include "state.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Steps that may fail one after the other, and how long the thread waits when nothing can be done
 * though there are jobs. */
enum { FAILURES_MOST = 8, PAUSE_MS = 10, STATE_MS = 500, WANTED_MS = 3000, MS = 1000000 };

/* ----------------------------------------------------------------------------------------- jobs */

/* The job is over for the engine. It has its place until `publish`. */
static void let_go(kvpi_loop *loop, kvpi_job *job)
{
    kvpi_recent *recent = &loop->recent[loop->n_recent++ % KVPI_RECENT_MOST];
    const int is_aborted = atomic_load(&job->is_cancelled);
    *recent = (kvpi_recent){.id = job->id,
                            .tenant = job->tenant,
                            .prompt_tokens = job->n_tokens,
                            .cached_tokens = job->cached_tokens,
                            .new_tokens = job->new_tokens,
                            .stop = job->stop,
                            .is_aborted = is_aborted != 0,
                            .seconds = (double)(kvpi_job_now_ns() - job->begin_ns) / 1e9};
    kvpi_reasons_leave(&loop->reasons, job);
    kvpi_record_job(&loop->recording, job);
    if (job->state == KVPI_JOB_RUNNING)
        kvpi_tenants_leave(&loop->tenants, job->tenant);
    job->state = KVPI_JOB_OVER;
    job->next = loop->over;
    loop->over = job;
}

static void fail(kvpi_loop *loop, kvpi_job *job, const char *error)
{
    loop->counts.failed++;
    kvpi_answer_fail(job, error);
    let_go(loop, job);
}

/* Of a job in the scheduler. */
static void remove_job(kvpi_loop *loop, uint32_t place)
{
    kvpi_job *job = loop->jobs[place];
    loop->jobs[place] = NULL;
    (void)kvp_sched_abort(loop->sched, job->request);
}

static void take_inbox(kvpi_loop *loop)
{
    (void)pthread_mutex_lock(&loop->mutex);
    if (loop->inbox != NULL) {
        if (loop->waiting_last != NULL)
            loop->waiting_last->next = loop->inbox;
        else
            loop->waiting = loop->inbox;
        loop->waiting_last = loop->inbox_last;
        loop->inbox = loop->inbox_last = NULL;
    }
    (void)pthread_mutex_unlock(&loop->mutex);
}

static kvpi_job *take_first(kvpi_loop *loop)
{
    kvpi_job *job = loop->waiting;
    loop->waiting = job->next;
    if (loop->waiting == NULL)
        loop->waiting_last = NULL;
    job->next = NULL;
    return job;
}

/* Clients that went away. */
static void drop_cancelled(kvpi_loop *loop)
{
    kvpi_job *last = NULL, **at = &loop->waiting;
    while (*at != NULL) {
        kvpi_job *job = *at;
        if (atomic_load(&job->is_cancelled)) {
            *at = job->next;
            loop->counts.aborted++;
            let_go(loop, job);
        } else {
            last = job;
            at = &job->next;
        }
    }
    loop->waiting_last = last;
    for (uint32_t i = 0; i < loop->options->max_queue; i++)
        if (loop->jobs[i] != NULL && atomic_load(&loop->jobs[i]->is_cancelled)) {
            kvpi_job *job = loop->jobs[i];
            remove_job(loop, i);
            loop->counts.aborted++;
            let_go(loop, job);
        }
}

static kvp_status submit(kvpi_loop *loop, kvpi_job *job, uint32_t place)
{
    const kvp_prompt prompt = {.struct_size = sizeof prompt,
                               .tokens = job->tokens,
                               .n_tokens = job->n_tokens,
                               .tag = place};
    const kvp_submission submission = {.struct_size = sizeof submission,
                                       .prompt = &prompt,
                                       .ns = loop->tenants.places[job->tenant].ns,
                                       .n_samples = job->n_samples,
                                       .max_new_tokens = job->max_new_tokens,
                                       .flags = KVP_SUBMIT_BORROW};
    return kvp_sched_submit(loop->sched, &submission, &job->request, NULL);
}

/* Submits waiting jobs in order, as long as there is room. */
static void submit_waiting(kvpi_loop *loop)
{
    uint32_t place = 0;
    while (loop->waiting != NULL) {
        kvpi_job *job = loop->waiting;
        const int32_t tenant = kvpi_tenants_enter(&loop->tenants, job->salt, job->salt_bytes);
        while (place < loop->options->max_queue && loop->jobs[place] != NULL)
            place++;
        if (tenant < 0 || place == loop->options->max_queue) {
            if (tenant >= 0)
                kvpi_tenants_leave(&loop->tenants, (uint32_t)tenant);
            break;
        }
        job->tenant = (uint32_t)tenant;
        const kvp_status status = submit(loop, job, place);
        if (status != KVP_OK)
            kvpi_tenants_leave(&loop->tenants, (uint32_t)tenant);
        if (kvp_status_class(status) == KVP_CLASS_RETRY)
            break; /* until something ends */
        (void)take_first(loop);
        if (status != KVP_OK) {
            fail(loop, job, kvp_status_text(status));
            continue;
        }
        job->state = KVPI_JOB_RUNNING;
        loop->jobs[place] = job;
    }
}

static void fail_all(kvpi_loop *loop, const char *error)
{
    take_inbox(loop);
    while (loop->waiting != NULL)
        fail(loop, take_first(loop), error);
    for (uint32_t i = 0; i < loop->options->max_queue; i++)
        if (loop->jobs[i] != NULL) {
            kvpi_job *job = loop->jobs[i];
            remove_job(loop, i);
            fail(loop, job, error);
        }
}

/* --------------------------------------------------------------------------------------- a step */

static kvpi_job *job_of(const kvpi_loop *loop, kvp_request request)
{
    kvp_request_info info;
    return kvp_request_info_get(loop->sched, request, &info) == KVP_OK ? loop->jobs[info.tag]
                                                                       : NULL;
}

/* What the cache had of a prompt, when it first came in. */
static void note_admitted(kvpi_loop *loop, const kvp_step *step)
{
    for (uint32_t i = 0; i < step->n_admitted; i++) {
        kvpi_job *job = job_of(loop, step->admitted[i]);
        kvp_sample_info sample;
        kvp_seq_info seq;
        if (job == NULL || job->was_admitted ||
            kvp_request_sample(loop->sched, job->request, 0, &sample) != KVP_OK ||
            kvp_seq_info_get(loop->cache, sample.seq, &seq) != KVP_OK)
            continue;
        (void)pthread_mutex_lock(&job->mutex);
        job->was_admitted = 1;
        job->cached_tokens = seq.cached_tokens;
        job->stop = seq.stop;
        (void)pthread_mutex_unlock(&job->mutex);
        kvpi_reasons_admit(&loop->reasons, job, &seq);
        loop->counts.prompt_tokens += job->n_tokens;
        loop->counts.cached_tokens += seq.cached_tokens;
        loop->counts.stops[seq.stop < KVPI_STOP_KINDS ? seq.stop : 0]++;
    }
}

/* Refused by the cache at admission: they are in no end of a step. */
static void note_refused(kvpi_loop *loop, const kvp_step *step)
{
    for (uint32_t i = 0; i < step->n_ended; i++) {
        kvpi_job *job = loop->jobs[step->ended[i].tag];
        loop->jobs[step->ended[i].tag] = NULL;
        if (job != NULL)
            fail(loop, job, kvp_status_text((kvp_status)step->ended[i].status));
    }
}

static void sample(kvpi_loop *loop, const kvp_step *step)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < step->n_seqs; i++) {
        const kvp_step_seq *seq = &step->seqs[i];
        kvpi_job *job = job_of(loop, seq->request);
        if (job != NULL && seq->n_sampled == 0) /* a chunk of its prompt */
            kvpi_reasons_computed(&loop->reasons, loop->cache, loop->sched, job, seq->sample,
                                  seq->begin + seq->n_tokens);
        for (uint32_t k = 0; k < seq->n_sampled; k++, n++) {
            const float *logits = kvp_llama_logits(loop->engine, n);
            loop->sampled[n] = 0;
            loop->ended[n] = 1;
            if (job != NULL)
                kvpi_reasons_computed(&loop->reasons, loop->cache, loop->sched, job,
                                      seq->sample + k, seq->begin + seq->n_tokens);
            if (job != NULL && logits != NULL)
                loop->ended[n] = (uint8_t)kvpi_answer_sample(
                    job, seq->sample + k, logits, loop->vocab, loop->room, &loop->sampled[n]);
            if (job != NULL && logits != NULL && seq->sample + k == 0)
                kvpi_record_token(&loop->recording, job, loop->sampled[n]);
            loop->counts.new_tokens++;
        }
    }
}

static void note_ended(kvpi_loop *loop, const kvp_step_end *end)
{
    for (uint32_t i = 0; i < end->n_ended; i++) {
        const kvp_ended *ended = &end->ended[i];
        kvpi_job *job = loop->jobs[ended->tag];
        if (job == NULL)
            continue;
        if (ended->reason == KVP_END_REFUSED)
            kvpi_answer_fail(job, kvp_status_text((kvp_status)ended->status));
        else
            kvpi_answer_end(job, ended->sample, KVPI_FINISH_LENGTH);
        if (!ended->is_last)
            continue;
        loop->jobs[ended->tag] = NULL;
        loop->counts.over++;
        let_go(loop, job);
    }
}

/* What a step left: nothing was to be done, it failed, or tokens are sampled. 0: the thread may go
 * on at once. */
static int finish_step(kvpi_loop *loop, kvp_status status, const kvp_step *step)
{
    kvp_step_end end;
    if (status == KVP_E_CORRUPT) {
        atomic_store(&loop->is_broken, 1);
        return 0;
    }
    note_refused(loop, step);
    if (status != KVP_OK) { /* aborted (the server ends), or failed: its requests wait again */
        if (++loop->failures >= FAILURES_MOST)
            fail_all(loop, "llama_decode failed");
        return 0;
    }
    loop->failures = 0;
    note_admitted(loop, step);
    if (step->n_seqs == 0) /* with requests that wait for the disk, the engine has waited, too */
        return step->n_loading == 0;
    sample(loop, step);
    if (kvp_llama_finish(loop->engine, loop->sampled, loop->ended, &end) != KVP_OK)
        atomic_store(&loop->is_broken, 1);
    else
        note_ended(loop, &end);
    return 0;
}

/* ----------------------------------------------------------------------------------- publishing */

/* Figures, and the ends of answers. A client that has the end of its answer can send the next
 * request at once: the place in the queue is free, and the figures count the request that ended. */
static void publish(kvpi_loop *loop)
{
    kvpi_figures *figures = &loop->counts;
    uint32_t n_over = 0;
    (void)kvp_sched_stats_get(loop->sched, &figures->sched);
    (void)kvp_cache_stats_get(loop->cache, &figures->cache);
    kvp_llama_stats_get(loop->engine, &figures->llama);
    kvpi_cache_disk_figures(loop->engine, &figures->disk);
    (void)kvp_reasons_stats_get(loop->reasons.record, &figures->reasons);
    figures->queued = 0;
    for (const kvpi_job *job = loop->waiting; job != NULL; job = job->next)
        figures->queued++;
    for (const kvpi_job *job = loop->over; job != NULL; job = job->next)
        n_over++;
    (void)pthread_mutex_lock(&loop->mutex);
    figures->jobs = loop->figures.jobs;
    figures->refused = loop->figures.refused;
    loop->figures = *figures;
    loop->n_jobs -= n_over;
    (void)pthread_mutex_unlock(&loop->mutex);
    while (loop->over != NULL) {
        kvpi_job *job = loop->over;
        loop->over = job->next;
        kvpi_answer_close(job);
        kvpi_job_drop(job);
    }
}

/* What the page shows, while one is open. */
static void publish_state(kvpi_loop *loop, uint64_t now)
{
    (void)pthread_mutex_lock(&loop->mutex);
    const int is_wanted = loop->wanted_ns != 0 && now - loop->wanted_ns < (uint64_t)WANTED_MS * MS;
    const int is_due = now - loop->state_ns >= (uint64_t)STATE_MS * MS || loop->state == NULL;
    (void)pthread_mutex_unlock(&loop->mutex);
    if (!is_wanted || !is_due)
        return;
    char *state = kvpi_state_json(loop);
    (void)pthread_mutex_lock(&loop->mutex);
    char *old = loop->state;
    loop->state = state;
    loop->state_ns = now;
    (void)pthread_mutex_unlock(&loop->mutex);
    free(old);
}

static void wait_for_jobs(kvpi_loop *loop)
{
    struct timespec until;
    (void)pthread_mutex_lock(&loop->mutex);
    const uint64_t now = kvpi_job_now_ns();
    const int is_wanted = loop->wanted_ns != 0 && now - loop->wanted_ns < (uint64_t)WANTED_MS * MS;
    const int is_busy = loop->n_jobs > 0 || loop->counts.disk.writing > 0;
    const uint64_t ns = now + (uint64_t)(is_busy ? PAUSE_MS : STATE_MS) * MS;
    until = (struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    if (loop->inbox == NULL && !atomic_load(&loop->is_stopped) &&
        !kvpi_publish_waits(&loop->publisher)) {
        if (is_busy || is_wanted)
            (void)pthread_cond_timedwait(&loop->cond, &loop->mutex, &until);
        else
            (void)pthread_cond_wait(&loop->cond, &loop->mutex);
    }
    (void)pthread_mutex_unlock(&loop->mutex);
}

static void *run(void *argument)
{
    kvpi_loop *loop = argument;
    while (!atomic_load(&loop->is_stopped) && !atomic_load(&loop->is_broken)) {
        kvp_step step;
        take_inbox(loop);
        drop_cancelled(loop);
        submit_waiting(loop);
        if (loop->over != NULL) /* the step may take long */
            publish(loop);
        const uint64_t begin = kvpi_job_now_ns();
        memset(&step, 0, sizeof step);
        const kvp_status status = kvp_llama_run(loop->engine, &step);
        const uint64_t middle = kvpi_job_now_ns();
        const int is_idle = finish_step(loop, status, &step);
        const uint64_t now = kvpi_job_now_ns();
        if (!is_idle) {
            loop->counts.decode_ns += middle - begin;
            loop->counts.step_ns += now - begin;
        }
        publish(loop);
        kvpi_publish_step(&loop->publisher);
        kvpi_record_step(&loop->recording, is_idle);
        publish_state(loop, now);
        if (is_idle)
            wait_for_jobs(loop);
    }
    fail_all(loop, atomic_load(&loop->is_broken) ? "the engine is broken" : "the server ends");
    publish(loop);
    publish_state(loop, kvpi_job_now_ns());
    return NULL;
}

/* -------------------------------------------------------------------------------- other threads */

uint32_t kvpi_loop_submit(kvpi_loop *loop, kvpi_job *job)
{
    uint32_t wait = 0;
    (void)pthread_mutex_lock(&loop->mutex);
    if (atomic_load(&loop->is_stopped) || atomic_load(&loop->is_broken)) {
        wait = 60;
    } else if (loop->n_jobs >= loop->options->max_queue) {
        /* So long has a request taken until now, from a queue as long as this one. */
        const kvpi_figures *figures = &loop->figures;
        const uint64_t over = figures->over + figures->aborted + 1;
        const uint64_t seconds = figures->step_ns / over * loop->n_jobs / 1000000000u / 4;
        wait = seconds < 1 ? 1 : seconds > 60 ? 60 : (uint32_t)seconds;
        loop->figures.refused++;
    } else {
        loop->n_jobs++;
        job->id = ++loop->figures.jobs;
        job->begin_ns = kvpi_job_now_ns();
        (void)kvpi_job_hold(job);
        if (loop->inbox_last != NULL)
            loop->inbox_last->next = job;
        else
            loop->inbox = job;
        loop->inbox_last = job;
        (void)pthread_cond_signal(&loop->cond);
    }
    (void)pthread_mutex_unlock(&loop->mutex);
    return wait;
}

void kvpi_loop_figures(kvpi_loop *loop, kvpi_figures *out_figures)
{
    (void)pthread_mutex_lock(&loop->mutex);
    *out_figures = loop->figures;
    (void)pthread_mutex_unlock(&loop->mutex);
}

char *kvpi_loop_state(kvpi_loop *loop)
{
    (void)pthread_mutex_lock(&loop->mutex);
    loop->wanted_ns = kvpi_job_now_ns();
    char *copy = loop->state != NULL ? strdup(loop->state) : NULL;
    (void)pthread_cond_signal(&loop->cond);
    (void)pthread_mutex_unlock(&loop->mutex);
    return copy;
}

static bool wants_abort(void *argument)
{
    kvpi_loop *loop = argument;
    return atomic_load(&loop->is_stopped) != 0;
}

/* ------------------------------------------------------------------------------------- creation */

static void free_parts(kvpi_loop *loop)
{
    kvpi_publish_stop(&loop->publisher);
    kvpi_record_stop(&loop->recording);
    kvpi_tenants_end(&loop->tenants);
    kvpi_reasons_free(&loop->reasons);
    kvp_llama_destroy(loop->engine);
    if (loop->adapter != NULL)
        llama_adapter_lora_free(loop->adapter);
    free(loop->jobs);
    free(loop->room);
    free(loop->sampled);
    free(loop->ended);
    free(loop->state);
}

static int start_thread(kvpi_loop *loop, kvp_why *out_why)
{
    loop->tenants.engine = loop->engine;
    kvpi_restart_load(loop);
    if (kvpi_tenants_open(&loop->tenants) != 0)
        return -1;
    loop->publisher.wakes_mutex = &loop->mutex;
    loop->publisher.wakes = &loop->cond;
    if (kvpi_publish_start(&loop->publisher, loop->cache, loop->options, out_why) != 0 ||
        kvpi_record_start(&loop->recording, loop->options, loop->limits.block_tokens, out_why) != 0)
        return -1;
    return pthread_create(&loop->thread, NULL, run, loop);
}

int kvpi_loop_start(kvpi_loop *loop, const kvpi_options *options, struct llama_model *model,
                    kvp_why *out_why)
{
    pthread_condattr_t attributes;
    memset(loop, 0, sizeof *loop);
    loop->options = options;
    loop->model = model;
    loop->vocab = llama_model_get_vocab(model);
    loop->n_vocab = llama_vocab_n_tokens(loop->vocab);
    if (kvpi_make_engine(loop, model, out_why) != 0) {
        free_parts(loop);
        return -1;
    }
    llama_set_abort_callback(kvp_llama_context(loop->engine), wants_abort, loop);
    const size_t n_sampled = (size_t)options->batch_size + options->parallel;
    loop->jobs = calloc(options->max_queue, sizeof *loop->jobs);
    loop->room = calloc((size_t)loop->n_vocab, sizeof *loop->room);
    loop->sampled = calloc(n_sampled, sizeof *loop->sampled);
    loop->ended = calloc(n_sampled, sizeof *loop->ended);
    (void)pthread_mutex_init(&loop->mutex, NULL);
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&loop->cond, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    if (loop->jobs == NULL || loop->room == NULL || loop->sampled == NULL || loop->ended == NULL ||
        kvpi_tenants_init(&loop->tenants, loop->cache, options->max_tenants) != 0 ||
        kvpi_reasons_make(&loop->reasons, loop->cache) != 0 || start_thread(loop, out_why) != 0) {
        free_parts(loop);
        return -1;
    }
    return 0;
}

void kvpi_loop_stop(kvpi_loop *loop)
{
    (void)pthread_mutex_lock(&loop->mutex);
    atomic_store(&loop->is_stopped, 1);
    (void)pthread_cond_signal(&loop->cond);
    (void)pthread_mutex_unlock(&loop->mutex);
    (void)pthread_join(loop->thread, NULL);
}

void kvpi_loop_free(kvpi_loop *loop)
{
    free_parts(loop);
    (void)pthread_mutex_destroy(&loop->mutex);
    (void)pthread_cond_destroy(&loop->cond);
}
