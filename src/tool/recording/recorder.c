/* The recorder: numbers blocks, writes requests into frames. A frame is written when it is full, or
 * when the caller says so: what a killed process had not written is lost, what it wrote is good.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tool/recording/recent.h"
#include "tool/recording/packed.h"
#include "tool/recording/recording.h"
#include "tool/recording/siphash.h"

#define FULL_FRAME     (UINT32_C(256) << 10)
#define MAX_INTEGER    10u /* bytes */
#define MOST_OF_RECORD (12u * MAX_INTEGER)

struct kvpi_recorder {
    FILE *file;
    uint8_t key[16];
    kvpi_recent contents, sessions, scopes;
    kvpi_recording_about about;
    kvpi_recording_counts counts;
    kvpi_frame_writer frames;
    uint8_t *payload; /* [capacity] */
    size_t n, capacity;
    int64_t time_us;
    kvpi_recording_run *runs; /* [runs_capacity] */
    size_t n_runs, runs_capacity;
    bool is_torn; /* a frame is not whole: what is written behind it is not read */
};

/* --------------------------------------------------------------------------------- a payload */

static bool make_room(kvpi_recorder *recorder, size_t n_bytes)
{
    size_t wanted = recorder->capacity == 0 ? 4096 : recorder->capacity;
    while (wanted < recorder->n + n_bytes)
        wanted *= 2;
    if (wanted == recorder->capacity)
        return true;
    uint8_t *grown = realloc(recorder->payload, wanted);
    if (grown == NULL)
        return false;
    recorder->payload = grown;
    recorder->capacity = wanted;
    return true;
}

static void put(kvpi_recorder *recorder, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        recorder->payload[recorder->n++] = (uint8_t)(value | 0x80);
    recorder->payload[recorder->n++] = (uint8_t)value;
}

static void put_signed(kvpi_recorder *recorder, int64_t value)
{
    put(recorder, (uint64_t)value << 1 ^ (value < 0 ? UINT64_MAX : 0));
}

static void put_text(kvpi_recorder *recorder, const char *text)
{
    const size_t n = strlen(text);
    put(recorder, n);
    memcpy(recorder->payload + recorder->n, text, n);
    recorder->n += n;
}

static bool begin_frame(kvpi_recorder *recorder, kvpi_frame_kind kind)
{
    recorder->n = 0;
    if (!make_room(recorder, 16 * MAX_INTEGER + sizeof recorder->about))
        return false;
    put(recorder, kind);
    put(recorder, recorder->frames.n);
    if (kind == KVPI_FRAME_HEADER)
        return true;
    put(recorder, recorder->counts.requests);
    put(recorder, recorder->contents.next);
    put(recorder, recorder->contents.forgotten);
    put(recorder, recorder->counts.lost);
    put(recorder, recorder->counts.unnumbered);
    return true;
}

static int write_frame(kvpi_recorder *recorder, kvpi_recording_error *error)
{
    const size_t n = recorder->n;
    recorder->n = 0;
    if (recorder->is_torn)
        return kvpi_recording_fail(error, "nothing is written behind a frame that could not be");
    const int result =
        kvpi_frame_write(&recorder->frames, recorder->file, recorder->payload, n, error);
    recorder->is_torn = result != 0;
    return result;
}

static int write_header(kvpi_recorder *recorder, kvpi_recording_error *error)
{
    if (!begin_frame(recorder, KVPI_FRAME_HEADER))
        return kvpi_recording_fail(error, "out of memory");
    put(recorder, recorder->about.source);
    put(recorder, (uint64_t)recorder->about.block_tokens);
    put_signed(recorder, recorder->about.began_us);
    put(recorder, recorder->about.max_contents);
    put_text(recorder, recorder->about.engine);
    put_text(recorder, recorder->about.model);
    if (recorder->about.source >= KVPI_RECORDING_LOOKUPS)
        put(recorder, recorder->about.engine_blocks);
    recorder->time_us = recorder->about.began_us;
    if (fwrite(KVPI_RECORDING_MAGIC, 1, KVPI_RECORDING_MAGIC_BYTES, recorder->file) !=
        KVPI_RECORDING_MAGIC_BYTES)
        return kvpi_recording_fail(error, "cannot write: %s", strerror(errno));
    return write_frame(recorder, error);
}

/* ---------------------------------------------------------------------------------- a request */

static bool number(kvpi_recorder *recorder, const uint8_t name[16])
{
    uint64_t content = 0;
    if (!kvpi_recent_number(&recorder->contents, name, &content))
        return false;
    kvpi_recording_run *last = recorder->n_runs > 0 ? &recorder->runs[recorder->n_runs - 1] : NULL;
    if (last != NULL && last->first + last->n == content) {
        last->n++;
        return true;
    }
    if (recorder->n_runs == recorder->runs_capacity) {
        const size_t wanted = recorder->runs_capacity == 0 ? 64 : recorder->runs_capacity * 2;
        kvpi_recording_run *grown = realloc(recorder->runs, wanted * sizeof *grown);
        if (grown == NULL)
            return false;
        recorder->runs = grown;
        recorder->runs_capacity = wanted;
    }
    recorder->runs[recorder->n_runs++] = (kvpi_recording_run){content, 1};
    return true;
}

static const char *wrong_field(const kvpi_recorded *request)
{
    if (request->input_tokens < 0 || request->input_tokens > KVPI_RECORDING_MAX_TOKENS)
        return "input_tokens";
    if (request->output_tokens < 0 || request->output_tokens > KVPI_RECORDING_MAX_TOKENS)
        return "output_tokens";
    if (request->cached_tokens < KVPI_RECORDED_UNKNOWN ||
        request->cached_tokens > request->input_tokens)
        return "cached_tokens";
    if (request->first_us < KVPI_RECORDED_UNKNOWN || request->first_us > KVPI_FRAME_MAX_TIME)
        return "first_us";
    if (request->last_us < KVPI_RECORDED_UNKNOWN || request->last_us > KVPI_FRAME_MAX_TIME)
        return "last_us";
    return request->time_us < 0 || request->time_us > KVPI_FRAME_MAX_TIME ? "time_us" : NULL;
}

static void put_request(kvpi_recorder *recorder, const kvpi_recorded *request)
{
    const unsigned flags = (request->cached_tokens >= 0 ? KVPI_FRAME_CACHED : 0u) |
                           (request->first_us >= 0 ? KVPI_FRAME_FIRST : 0u) |
                           (request->last_us >= 0 ? KVPI_FRAME_LAST : 0u) |
                           (request->session > 0 ? KVPI_FRAME_SESSION : 0u) |
                           (request->scope > 0 ? KVPI_FRAME_SCOPE : 0u) |
                           (request->is_unseen ? KVPI_FRAME_UNSEEN : 0u) |
                           (request->n_again > 0 ? KVPI_FRAME_AGAIN : 0u);
    put(recorder, flags);
    put_signed(recorder, request->time_us - recorder->time_us);
    put(recorder, (uint64_t)request->input_tokens);
    put(recorder, (uint64_t)request->output_tokens);
    if (request->cached_tokens >= 0)
        put(recorder, (uint64_t)request->cached_tokens);
    if (request->first_us >= 0)
        put(recorder, (uint64_t)request->first_us);
    if (request->last_us >= 0)
        put(recorder, (uint64_t)request->last_us);
    if (request->session > 0)
        put(recorder, request->session);
    if (request->scope > 0)
        put(recorder, request->scope);
    put(recorder, recorder->n_runs);
    uint64_t expected = 0;
    for (size_t i = 0; i < recorder->n_runs; i++) {
        put_signed(recorder, (int64_t)(recorder->runs[i].first - expected));
        put(recorder, recorder->runs[i].n);
        expected = recorder->runs[i].first + recorder->runs[i].n;
    }
    if (request->n_again > 0)
        put(recorder, request->n_again);
    for (size_t i = 0; i < request->n_again; i++) {
        put(recorder, request->again[i].depth);
        put(recorder, (uint64_t)request->again[i].n << 1 | request->again[i].is_sure);
    }
    recorder->time_us = request->time_us;
}

/* Numbers that it took appear in no request: the next frame says from where new ones go on. */
static int lose(kvpi_recorder *recorder, kvpi_recording_error *error)
{
    (void)kvpi_recorder_flush(recorder, error);
    recorder->counts.lost++;
    return kvpi_recording_fail(error, "out of memory: the request is not recorded");
}

/* The blocks are numbered: into the frame, which is written when it is full. */
static int add(kvpi_recorder *recorder, const kvpi_recorded *request, kvpi_recording_error *error)
{
    if (recorder->n == 0 && !begin_frame(recorder, KVPI_FRAME_REQUESTS))
        return lose(recorder, error);
    if (!make_room(recorder,
                   MOST_OF_RECORD + (recorder->n_runs + request->n_again) * 2 * MAX_INTEGER))
        return lose(recorder, error);
    put_request(recorder, request);
    recorder->counts.requests++;
    return recorder->n < FULL_FRAME ? 0 : kvpi_recorder_flush(recorder, error);
}

static int begin_request(kvpi_recorder *recorder, const kvpi_recorded *request, size_t *n_blocks,
                         kvpi_recording_error *error)
{
    const char *field = wrong_field(request);
    if (field != NULL) {
        recorder->counts.lost++;
        return kvpi_recording_fail(error, "%s is out of its range: the request is not recorded",
                                   field);
    }
    const size_t most =
        (size_t)((request->input_tokens + request->output_tokens) / recorder->about.block_tokens);
    *n_blocks = *n_blocks < most ? *n_blocks : most;
    if (*n_blocks > KVPI_RECORDING_MAX_BLOCKS) {
        recorder->counts.unnumbered += *n_blocks - KVPI_RECORDING_MAX_BLOCKS;
        *n_blocks = KVPI_RECORDING_MAX_BLOCKS;
    }
    recorder->n_runs = 0;
    return 0;
}

int kvpi_recorder_add_hashes(kvpi_recorder *recorder, const kvpi_recorded *request,
                             const void *hashes, size_t n, size_t n_bytes,
                             kvpi_recording_error *error)
{
    const uint8_t *at = hashes;
    uint8_t name[16];
    if (begin_request(recorder, request, &n, error) != 0)
        return -1;
    for (size_t i = 0; i < n; i++, at += n_bytes) {
        kvpi_siphash(recorder->key, at, n_bytes, name);
        if (!number(recorder, name))
            return lose(recorder, error);
    }
    return add(recorder, request, error);
}

int kvpi_recorder_add_tokens(kvpi_recorder *recorder, const kvpi_recorded *request,
                             const void *scope, size_t scope_bytes, const int32_t *tokens, size_t n,
                             kvpi_recording_error *error)
{
    const size_t block = (size_t)recorder->about.block_tokens;
    size_t n_blocks = n / block;
    if (begin_request(recorder, request, &n_blocks, error) != 0)
        return -1;
    uint8_t *text = malloc(16 + block * 4); /* the hash before, and the block's tokens */
    if (text == NULL)
        return lose(recorder, error);
    kvpi_siphash(recorder->key, scope, scope_bytes, text);
    bool fine = true;
    for (size_t i = 0; i < n_blocks && fine; i++) {
        uint8_t name[16];
        for (size_t j = 0; j < block; j++)
            for (unsigned k = 0; k < 4; k++)
                text[16 + 4 * j + k] = (uint8_t)((uint32_t)tokens[i * block + j] >> (8 * k));
        kvpi_siphash(recorder->key, text, 16 + block * 4, name);
        fine = number(recorder, name);
        memcpy(text, name, sizeof name);
    }
    free(text);
    return fine ? add(recorder, request, error) : lose(recorder, error);
}

/* -------------------------------------------------------------------------------- the recorder */

static uint64_t number_text(const kvpi_recorder *recorder, kvpi_recent *among, const void *text,
                            size_t n)
{
    uint8_t name[16];
    uint64_t found = 0;
    kvpi_siphash(recorder->key, text, n, name);
    return kvpi_recent_number(among, name, &found) ? found + 1 : 0;
}

uint64_t kvpi_recorder_session(kvpi_recorder *recorder, const void *text, size_t n)
{
    return number_text(recorder, &recorder->sessions, text, n);
}

uint64_t kvpi_recorder_scope(kvpi_recorder *recorder, const void *text, size_t n)
{
    return number_text(recorder, &recorder->scopes, text, n);
}

void kvpi_recorder_lost(kvpi_recorder *recorder, uint64_t n)
{
    recorder->counts.lost += n;
}

kvpi_recording_counts kvpi_recorder_counts(const kvpi_recorder *recorder)
{
    kvpi_recording_counts counts = recorder->counts;
    counts.contents = recorder->contents.next;
    counts.forgotten = recorder->contents.forgotten;
    return counts;
}

int kvpi_recorder_flush(kvpi_recorder *recorder, kvpi_recording_error *error)
{
    return recorder->n == 0 ? 0 : write_frame(recorder, error);
}

static void free_recorder(kvpi_recorder *recorder)
{
    kvpi_frame_writer_free(&recorder->frames);
    kvpi_recent_free(&recorder->contents);
    kvpi_recent_free(&recorder->sessions);
    kvpi_recent_free(&recorder->scopes);
    free(recorder->payload);
    free(recorder->runs);
    free(recorder);
}

int kvpi_recorder_open(const kvpi_recorder_options *options, kvpi_recorder **out,
                       kvpi_recording_error *error)
{
    const kvpi_recording_about *about = &options->about;
    if (kvpi_recording_source_name(about->source) == NULL || about->block_tokens < 1 ||
        about->block_tokens > KVPI_RECORDING_MAX_BLOCK_TOKENS || about->max_contents < 1 ||
        about->began_us < 0 || about->began_us > KVPI_FRAME_MAX_TIME)
        return kvpi_recording_fail(
            error,
            "a recording of source %llu with blocks of %d tokens and %llu contents, "
            "expected a known source and positive numbers",
            (unsigned long long)about->source, (int)about->block_tokens,
            (unsigned long long)about->max_contents);
    kvpi_recorder *recorder = calloc(1, sizeof *recorder);
    if (recorder == NULL)
        return kvpi_recording_fail(error, "out of memory");
    recorder->about = *about;
    recorder->contents = recorder->sessions = recorder->scopes =
        (kvpi_recent){.max = about->max_contents, .is_wide = true};
    memcpy(recorder->key, options->key, sizeof recorder->key);
    recorder->file = fopen(options->path, "wbx");
    if (recorder->file == NULL) {
        if (errno == EEXIST)
            kvpi_recording_fail(error, "is there already, expected a new file");
        else
            kvpi_recording_fail(error, "cannot write: %s", strerror(errno));
        free_recorder(recorder);
        return -1;
    }
    if (write_header(recorder, error) != 0) {
        fclose(recorder->file);
        remove(options->path);
        free_recorder(recorder);
        return -1;
    }
    *out = recorder;
    return 0;
}

int kvpi_recorder_close(kvpi_recorder *recorder, kvpi_recording_error *error)
{
    int result = kvpi_recorder_flush(recorder, error);
    if (result == 0 && !begin_frame(recorder, KVPI_FRAME_END))
        result = kvpi_recording_fail(error, "out of memory");
    if (result == 0)
        result = write_frame(recorder, error);
    if (fclose(recorder->file) != 0 && result == 0)
        result = kvpi_recording_fail(error, "cannot write: %s", strerror(errno));
    free_recorder(recorder);
    return result;
}
