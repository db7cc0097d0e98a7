/* record: --record, what the server is asked (docs/COMMAND.md, recordings): lengths, times, hits,
 * and numbers in the place of content. By the engine's thread alone. Without the option, nothing
 * here does anything; a build without libzstd refuses it.
 */
#ifndef KVPI_SERVE_RECORD_H
#define KVPI_SERVE_RECORD_H

#include "job.h"

#include "../options.h"

#include <kvpager/all.h>

struct kvpi_recorder;

typedef struct kvpi_record {
    struct kvpi_recorder *recorder; /* NULL: none */
    uint64_t flushed_ns;
    int is_failed;
} kvpi_record;

/* Makes the file. -1: `out_why` says why. */
int kvpi_record_start(kvpi_record *record, const kvpi_options *options, uint32_t block_tokens,
                      kvp_why *out_why);

/* A token of the job's first sample. */
void kvpi_record_token(const kvpi_record *record, kvpi_job *job, int32_t token);

/* An admitted job is over. What cannot be written is counted, and said once. */
void kvpi_record_job(kvpi_record *record, kvpi_job *job);

/* Writes what was added: with `is_idle` at once, else every few seconds. */
void kvpi_record_step(kvpi_record *record, int is_idle);
void kvpi_record_stop(kvpi_record *record);

#endif
