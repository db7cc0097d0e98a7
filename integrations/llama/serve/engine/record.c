/* record: see record.h. */
#define _POSIX_C_SOURCE 200809L

#include "record.h"

#include "../../src/models.h"

#include <kvpager/seed.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef KVP_SERVE_RECORD

#include "tool/recording/recording.h"

#define MAX_CONTENTS (UINT64_C(4) << 20)
#define FLUSH_NS     UINT64_C(2000000000)

static int refuse(kvp_why *why, const char *text)
{
    (void)kvpi_models_say(why, "--record", text);
    return -1;
}

static int64_t now_us(void)
{
    struct timespec time;
    (void)clock_gettime(CLOCK_REALTIME, &time);
    return (int64_t)time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

int kvpi_record_start(kvpi_record *record, const kvpi_options *options, uint32_t block_tokens,
                      kvp_why *out_why)
{
    uint64_t random[2];
    kvpi_recording_error error;
    kvpi_recorder_options to = {.path = options->record,
                                .about = {.source = KVPI_RECORDING_ENGINE,
                                          .block_tokens = (int32_t)block_tokens,
                                          .began_us = now_us(),
                                          .max_contents = MAX_CONTENTS,
                                          .engine = "kvpager-serve"}};
    if (options->record == NULL)
        return 0;
    if (kvp_random_seed(&random[0]) != KVP_OK || kvp_random_seed(&random[1]) != KVP_OK)
        return refuse(out_why, "the system gives no random numbers");
    memcpy(to.key, random, sizeof to.key);
    snprintf(to.about.model, sizeof to.about.model, "%.80s", options->model);
    return kvpi_recorder_open(&to, &record->recorder, &error) == 0 ? 0
                                                                   : refuse(out_why, error.text);
}

/* The prompt, and room for what follows it. */
static int has_room(kvpi_job *job)
{
    if (job->told != NULL)
        return 1;
    job->told = malloc(((size_t)job->n_tokens + job->max_new_tokens) * sizeof *job->told + 1);
    if (job->told == NULL)
        return 0;
    memcpy(job->told, job->tokens, job->n_tokens * sizeof *job->told);
    job->first_ns = kvpi_job_now_ns();
    return 1;
}

void kvpi_record_token(const kvpi_record *record, kvpi_job *job, int32_t token)
{
    if (record->recorder != NULL && job->n_told < job->max_new_tokens && has_room(job))
        job->told[job->n_tokens + job->n_told++] = token;
}

static int64_t since(const kvpi_job *job, uint64_t ns)
{
    return (int64_t)((ns - job->begin_ns) / 1000);
}

/* The KV of the last token is never computed. */
void kvpi_record_job(kvpi_record *record, kvpi_job *job)
{
    kvpi_recording_error error;
    if (record->recorder == NULL || !job->was_admitted)
        return;
    const uint64_t now = kvpi_job_now_ns();
    const uint32_t n_behind = job->n_told > 0 ? job->n_told - 1 : 0;
    kvpi_recorded request = {.time_us = now_us() - since(job, now),
                             .input_tokens = job->n_tokens,
                             .output_tokens = job->n_told,
                             .cached_tokens = job->cached_tokens,
                             .first_us = job->told != NULL ? since(job, job->first_ns)
                                                           : KVPI_RECORDED_UNKNOWN,
                             .last_us = since(job, now)};
    if (job->salt_bytes > 0)
        request.scope = kvpi_recorder_scope(record->recorder, job->salt, job->salt_bytes);
    if (kvpi_recorder_add_tokens(record->recorder, &request, job->salt, job->salt_bytes,
                                 job->told != NULL ? job->told : job->tokens,
                                 (size_t)job->n_tokens + n_behind, &error) == 0 ||
        record->is_failed)
        return;
    record->is_failed = 1;
    fprintf(stderr, "kvpager-serve: --record: %s\n", error.text);
}

void kvpi_record_step(kvpi_record *record, int is_idle)
{
    kvpi_recording_error error;
    const uint64_t now = kvpi_job_now_ns();
    if (record->recorder == NULL || (!is_idle && now - record->flushed_ns < FLUSH_NS))
        return;
    record->flushed_ns = now;
    if (kvpi_recorder_flush(record->recorder, &error) == 0 || record->is_failed)
        return;
    record->is_failed = 1;
    fprintf(stderr, "kvpager-serve: --record: %s\n", error.text);
}

void kvpi_record_stop(kvpi_record *record)
{
    kvpi_recording_error error;
    if (record->recorder != NULL && kvpi_recorder_close(record->recorder, &error) != 0)
        fprintf(stderr, "kvpager-serve: --record: %s\n", error.text);
    record->recorder = NULL;
}

#else

int kvpi_record_start(kvpi_record *record, const kvpi_options *options, uint32_t block_tokens,
                      kvp_why *out_why)
{
    (void)record, (void)block_tokens;
    if (options->record == NULL)
        return 0;
    (void)kvpi_models_say(out_why, "--record", "this build has no libzstd");
    return -1;
}

void kvpi_record_token(const kvpi_record *record, kvpi_job *job, int32_t token)
{
    (void)record, (void)job, (void)token;
}

void kvpi_record_job(kvpi_record *record, kvpi_job *job)
{
    (void)record, (void)job;
}

void kvpi_record_step(kvpi_record *record, int is_idle)
{
    (void)record, (void)is_idle;
}

void kvpi_record_stop(kvpi_record *record)
{
    (void)record;
}

#endif
