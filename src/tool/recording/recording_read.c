/* The reader: what a recording says, or where it is wrong. Every field is checked: of a frame whose
 * checksum is right, too, since any program can make one.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tool/recording/packed.h"
#include "tool/recording/recording.h"

struct kvpi_recording_reader {
    FILE *file;
    kvpi_frame_reader frames;
    kvpi_recording_about about;
    kvpi_recording_counts counts;
    const uint8_t *at, *end, *payload; /* of the frame; NULL: none */
    uint64_t frame_offset;
    uint64_t known; /* contents that have appeared */
    int64_t time_us;
    kvpi_recording_run *runs; /* [runs_capacity] */
    size_t runs_capacity;
    kvpi_recording_again *agains; /* [agains_capacity] */
    size_t agains_capacity;
    bool has_end;
};

static const struct {
    const char *name, *worth;
} sources[KVPI_RECORDING_SOURCES] = {
    [KVPI_RECORDING_ENGINE] = {"engine", "exact: the engine's own block hashes, hits and lengths"},
    [KVPI_RECORDING_PROXY] =
        {"proxy", "exact for prompts; a lower bound where a prompt contains an earlier answer"},
    [KVPI_RECORDING_LOOKUPS] = {"lookups",
                                "whole blocks only; a prompt that repeats the one before it counts "
                                "once"},
    [KVPI_RECORDING_EVENTS] =
        {"events", "bounds: what is hit as a whole sends no event, and is known as a sum only"},
};

const char *kvpi_recording_source_name(uint64_t source)
{
    return source < KVPI_RECORDING_SOURCES ? sources[source].name : NULL;
}

const char *kvpi_recording_worth(uint64_t source)
{
    return source < KVPI_RECORDING_SOURCES ? sources[source].worth : NULL;
}

/* "frame 3 at byte 1024, byte 17 of it unpacked: what". */
static int wrong(const kvpi_recording_reader *reader, kvpi_recording_error *error,
                 const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 3, 4)))
#endif
    ;

static int wrong(const kvpi_recording_reader *reader, kvpi_recording_error *error,
                 const char *format, ...)
{
    char what[240];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    return kvpi_recording_fail(
        error, "frame %" PRIu64 " at byte %" PRIu64 ", byte %zu of it unpacked: %s",
        reader->frames.n - 1, reader->frame_offset, (size_t)(reader->at - reader->payload), what);
}

/* ------------------------------------------------------------------------------------ fields */

static int get(kvpi_recording_reader *reader, const char *field, uint64_t most, uint64_t *out,
               kvpi_recording_error *error)
{
    uint64_t value = 0;
    const uint8_t *at = reader->at;
    for (unsigned shift = 0;; shift += 7, at++) {
        if (at == reader->end)
            return wrong(reader, error, "%s is cut off", field);
        const uint64_t bits = *at & 0x7f;
        if (shift > 63 || (shift == 63 && bits > 1) || (*at == 0 && shift > 0))
            return wrong(reader, error, "%s is no number in its shortest form", field);
        value |= bits << shift;
        if (*at < 0x80)
            break;
    }
    if (value > most)
        return wrong(reader, error, "%s is %" PRIu64 ", expected at most %" PRIu64, field, value,
                     most);
    reader->at = at + 1;
    *out = value;
    return 0;
}

/* From `base`: the sum is from 0 to most. */
static int get_signed(kvpi_recording_reader *reader, const char *field, uint64_t base,
                      uint64_t most, uint64_t *out, kvpi_recording_error *error)
{
    uint64_t value = 0;
    const uint8_t *before = reader->at;
    if (get(reader, field, UINT64_MAX, &value, error) != 0)
        return -1;
    const uint64_t size = (value >> 1) + (value & 1);
    const bool fits =
        value & 1 ? size <= base && base - size <= most : base <= most && size <= most - base;
    if (!fits) {
        reader->at = before;
        return wrong(reader, error,
                     "%s is %s%" PRIu64 " from %" PRIu64 ", expected 0 to %" PRIu64 " together",
                     field, value & 1 ? "-" : "", size, base, most);
    }
    *out = value & 1 ? base - size : base + size;
    return 0;
}

static int get_text(kvpi_recording_reader *reader, const char *field, char *out,
                    kvpi_recording_error *error)
{
    uint64_t n = 0;
    if (get(reader, field, KVPI_RECORDING_TEXT - 1, &n, error) != 0)
        return -1;
    if (n > (size_t)(reader->end - reader->at))
        return wrong(reader, error, "%s is cut off", field);
    if (memchr(reader->at, 0, (size_t)n) != NULL)
        return wrong(reader, error, "%s has a NUL", field);
    memcpy(out, reader->at, (size_t)n);
    out[n] = '\0';
    reader->at += n;
    return 0;
}

/* ------------------------------------------------------------------------------------ frames */

/* Gives the kind. */
static int next_frame(kvpi_recording_reader *reader, uint64_t *kind, kvpi_recording_error *error)
{
    uint64_t number = 0;
    size_t n = 0;
    reader->frame_offset = reader->frames.offset;
    const int result = kvpi_frame_read(&reader->frames, reader->file, &reader->payload, &n, error);
    if (result == KVPI_FRAME_CUT)
        return KVPI_RECORDING_END;
    if (result == KVPI_FRAME_WRONG) {
        const kvpi_recording_error why = *error;
        snprintf(error->text, sizeof error->text, "frame %" PRIu64 " at byte %" PRIu64 ": %.300s",
                 reader->frames.n, reader->frame_offset, why.text);
        return KVPI_RECORDING_WRONG;
    }
    reader->at = reader->payload;
    reader->end = reader->payload + n;
    if (get(reader, "kind", UINT64_MAX, kind, error) != 0 ||
        get(reader, "number", UINT64_MAX, &number, error) != 0)
        return KVPI_RECORDING_WRONG;
    if (number != reader->frames.n - 1)
        return wrong(reader, error, "its number is %" PRIu64 ", expected %" PRIu64, number,
                     reader->frames.n - 1);
    return KVPI_RECORDING_REQUEST;
}

/* The counts that all frames but the header begin with. */
static int get_counts(kvpi_recording_reader *reader, kvpi_recording_error *error)
{
    kvpi_recording_counts counts = {0};
    if (get(reader, "requests", UINT64_MAX, &counts.requests, error) != 0 ||
        get(reader, "contents", KVPI_FRAME_MAX_CONTENTS, &counts.contents, error) != 0 ||
        get(reader, "forgotten", UINT64_MAX, &counts.forgotten, error) != 0 ||
        get(reader, "lost", UINT64_MAX, &counts.lost, error) != 0 ||
        get(reader, "unnumbered", UINT64_MAX, &counts.unnumbered, error) != 0)
        return -1;
    if (counts.requests != reader->counts.requests)
        return wrong(reader, error, "requests before it are %" PRIu64 ", expected %" PRIu64,
                     counts.requests, reader->counts.requests);
    if (counts.contents < reader->known)
        return wrong(reader, error, "contents before it are %" PRIu64 ", expected %" PRIu64,
                     counts.contents, reader->known);
    reader->known = counts.contents;
    reader->counts = counts;
    return 0;
}

static int read_header(kvpi_recording_reader *reader, kvpi_recording_error *error)
{
    kvpi_recording_about *about = &reader->about;
    uint64_t kind = 0, block = 0, began = 0;
    const int result = next_frame(reader, &kind, error);
    if (result == KVPI_RECORDING_END)
        return kvpi_recording_fail(error, "byte %u: the file ends, expected its header",
                                   KVPI_RECORDING_MAGIC_BYTES);
    if (result != KVPI_RECORDING_REQUEST)
        return -1;
    if (kind != KVPI_FRAME_HEADER)
        return wrong(reader, error, "its kind is %" PRIu64 ", expected %d, a header", kind,
                     KVPI_FRAME_HEADER);
    if (get(reader, "source", KVPI_RECORDING_SOURCES - 1, &about->source, error) != 0 ||
        get(reader, "block_tokens", KVPI_RECORDING_MAX_BLOCK_TOKENS, &block, error) != 0 ||
        get_signed(reader, "began_us", 0, KVPI_FRAME_MAX_TIME, &began, error) != 0 ||
        get(reader, "max_contents", UINT64_MAX, &about->max_contents, error) != 0 ||
        get_text(reader, "engine", about->engine, error) != 0 ||
        get_text(reader, "model", about->model, error) != 0)
        return -1;
    if (about->source >= KVPI_RECORDING_LOOKUPS &&
        get(reader, "engine_blocks", UINT64_MAX, &about->engine_blocks, error) != 0)
        return -1;
    if (about->source == 0 || block == 0 || about->max_contents == 0)
        return wrong(reader, error, "source, block_tokens or max_contents is 0");
    about->block_tokens = (int32_t)block;
    about->began_us = reader->time_us = (int64_t)began;
    return reader->at == reader->end ? 0 : wrong(reader, error, "more behind the header");
}

/* ----------------------------------------------------------------------------------- requests */

static int get_run(kvpi_recording_reader *reader, size_t i, uint64_t most, kvpi_recorded *out,
                   kvpi_recording_error *error)
{
    const uint64_t expected = i == 0 ? 0 : reader->runs[i - 1].first + reader->runs[i - 1].n;
    kvpi_recording_run run = {0, 0};
    if (get_signed(reader, "first", expected, reader->known, &run.first, error) != 0 ||
        get(reader, "n", most - out->n_blocks, &run.n, error) != 0)
        return -1;
    if (run.n == 0)
        return wrong(reader, error, "a run of no blocks");
    if (run.first + run.n > reader->known)
        reader->known = run.first + run.n;
    reader->runs[i] = run;
    out->n_blocks += run.n;
    return 0;
}

static int get_runs(kvpi_recording_reader *reader, kvpi_recorded *out, kvpi_recording_error *error)
{
    uint64_t n = 0;
    uint64_t most =
        (uint64_t)((out->input_tokens + out->output_tokens) / reader->about.block_tokens);
    most = out->is_unseen ? 0 : most < KVPI_RECORDING_MAX_BLOCKS ? most : KVPI_RECORDING_MAX_BLOCKS;
    const uint64_t room = (uint64_t)(reader->end - reader->at) / 2;
    if (get(reader, "runs", most < room ? most : room, &n, error) != 0)
        return -1;
    if (n > reader->runs_capacity) {
        kvpi_recording_run *grown = realloc(reader->runs, (size_t)n * sizeof *grown);
        if (grown == NULL)
            return wrong(reader, error, "out of memory for its runs");
        reader->runs = grown;
        reader->runs_capacity = (size_t)n;
    }
    for (size_t i = 0; i < n; i++)
        if (get_run(reader, i, most, out, error) != 0)
            return -1;
    out->runs = reader->runs;
    out->n_runs = (size_t)n;
    return 0;
}

static int get_agains(kvpi_recording_reader *reader, kvpi_recorded *out,
                      kvpi_recording_error *error)
{
    uint64_t n = 0, word = 0;
    const uint64_t room = (uint64_t)(reader->end - reader->at) / 2, most = 2 * out->n_blocks;
    if (get(reader, "again", most < room ? most : room, &n, error) != 0)
        return -1;
    if (n > reader->agains_capacity) {
        kvpi_recording_again *grown = realloc(reader->agains, (size_t)n * sizeof *grown);
        if (grown == NULL)
            return wrong(reader, error, "out of memory for what it computed again");
        reader->agains = grown;
        reader->agains_capacity = (size_t)n;
    }
    for (size_t i = 0; i < n; i++) {
        kvpi_recording_again *to = &reader->agains[i];
        if (get(reader, "depth", KVPI_FRAME_MAX_CONTENTS, &to->depth, error) != 0 ||
            get(reader, "n", 2 * KVPI_RECORDING_MAX_BLOCKS + 1, &word, error) != 0)
            return -1;
        to->n = (uint32_t)(word >> 1);
        to->is_sure = word & 1;
    }
    out->again = reader->agains;
    out->n_again = (size_t)n;
    return 0;
}

/* A field that its flag tells of; else `out` stays. */
static int get_if(kvpi_recording_reader *reader, bool is_there, const char *field, uint64_t most,
                  int64_t *out, kvpi_recording_error *error)
{
    uint64_t value = 0;
    if (!is_there)
        return 0;
    if (get(reader, field, most, &value, error) != 0)
        return -1;
    *out = (int64_t)value;
    return 0;
}

static int get_request(kvpi_recording_reader *reader, kvpi_recorded *out,
                       kvpi_recording_error *error)
{
    uint64_t flags = 0, time = 0;
    int64_t session = 0, scope = 0;
    *out = (kvpi_recorded){.cached_tokens = KVPI_RECORDED_UNKNOWN,
                           .first_us = KVPI_RECORDED_UNKNOWN,
                           .last_us = KVPI_RECORDED_UNKNOWN};
    if (get(reader, "flags", KVPI_FRAME_FLAGS, &flags, error) != 0 ||
        get_signed(reader, "time", (uint64_t)reader->time_us, KVPI_FRAME_MAX_TIME, &time, error) !=
            0 ||
        get_if(reader, true, "input_tokens", KVPI_RECORDING_MAX_TOKENS, &out->input_tokens,
               error) != 0 ||
        get_if(reader, true, "output_tokens", KVPI_RECORDING_MAX_TOKENS, &out->output_tokens,
               error) != 0 ||
        get_if(reader, flags & KVPI_FRAME_CACHED, "cached_tokens", (uint64_t)out->input_tokens,
               &out->cached_tokens, error) != 0 ||
        get_if(reader, flags & KVPI_FRAME_FIRST, "first_us", KVPI_FRAME_MAX_TIME, &out->first_us,
               error) != 0 ||
        get_if(reader, flags & KVPI_FRAME_LAST, "last_us", KVPI_FRAME_MAX_TIME, &out->last_us,
               error) != 0 ||
        get_if(reader, flags & KVPI_FRAME_SESSION, "session", INT64_MAX, &session, error) != 0 ||
        get_if(reader, flags & KVPI_FRAME_SCOPE, "scope", INT64_MAX, &scope, error) != 0)
        return -1;
    out->is_unseen = flags & KVPI_FRAME_UNSEEN;
    out->time_us = reader->time_us = (int64_t)time;
    out->session = (uint64_t)session;
    out->scope = (uint64_t)scope;
    if (get_runs(reader, out, error) != 0)
        return -1;
    return flags & KVPI_FRAME_AGAIN ? get_agains(reader, out, error) : 0;
}

/* ------------------------------------------------------------------------------------- reader */

static int refuse_magic(const char *first, size_t n, kvpi_recording_error *error)
{
    char shown[64] = "";
    for (size_t i = 0; i < n; i++)
        snprintf(shown + strlen(shown), sizeof shown - strlen(shown), "%s%02x", i > 0 ? " " : "",
                 (unsigned char)first[i]);
    return kvpi_recording_fail(
        error, "byte 0: magic is %s, expected \"kvprec1\" and a newline, a recording%s",
        n == 0 ? "not there" : shown,
        n > 6 && memcmp(first, KVPI_RECORDING_MAGIC, 6) == 0 ? " of this version" : "");
}

int kvpi_recording_open(FILE *file, kvpi_recording_reader **out, kvpi_recording_error *error)
{
    char first[KVPI_RECORDING_MAGIC_BYTES];
    const size_t n = fread(first, 1, sizeof first, file);
    if (n != sizeof first || memcmp(first, KVPI_RECORDING_MAGIC, sizeof first) != 0)
        return refuse_magic(first, n, error);
    kvpi_recording_reader *reader = calloc(1, sizeof *reader);
    if (reader == NULL)
        return kvpi_recording_fail(error, "out of memory");
    reader->file = file;
    reader->frames.offset = KVPI_RECORDING_MAGIC_BYTES;
    if (read_header(reader, error) != 0) {
        kvpi_recording_free(reader);
        return -1;
    }
    *out = reader;
    return 0;
}

void kvpi_recording_free(kvpi_recording_reader *reader)
{
    if (reader == NULL)
        return;
    kvpi_frame_reader_free(&reader->frames);
    free(reader->runs);
    free(reader->agains);
    free(reader);
}

/* Gives KVPI_RECORDING_REQUEST when there is a frame with a request. */
static int find_request(kvpi_recording_reader *reader, kvpi_recording_error *error)
{
    while (reader->at == reader->end) {
        uint64_t kind = 0;
        if (reader->has_end)
            return fgetc(reader->file) == EOF ? KVPI_RECORDING_END
                                              : wrong(reader, error, "more bytes behind the end");
        const int result = next_frame(reader, &kind, error);
        if (result != KVPI_RECORDING_REQUEST)
            return result;
        if (kind != KVPI_FRAME_REQUESTS && kind != KVPI_FRAME_END)
            return wrong(reader, error,
                         "its kind is %" PRIu64 ", expected %d, requests, or %d, "
                         "the end",
                         kind, KVPI_FRAME_REQUESTS, KVPI_FRAME_END);
        if (get_counts(reader, error) != 0)
            return KVPI_RECORDING_WRONG;
        reader->has_end = kind == KVPI_FRAME_END;
        if (reader->has_end && reader->at != reader->end)
            return wrong(reader, error, "more behind the end");
    }
    return KVPI_RECORDING_REQUEST;
}

int kvpi_recording_next(kvpi_recording_reader *reader, kvpi_recorded *out,
                        kvpi_recording_error *error)
{
    const int result = find_request(reader, error);
    if (result != KVPI_RECORDING_REQUEST)
        return result;
    if (get_request(reader, out, error) != 0)
        return KVPI_RECORDING_WRONG;
    reader->counts.requests++;
    return KVPI_RECORDING_REQUEST;
}

const kvpi_recording_about *kvpi_recording_describe(const kvpi_recording_reader *reader)
{
    return &reader->about;
}

kvpi_recording_counts kvpi_recording_counted(const kvpi_recording_reader *reader)
{
    kvpi_recording_counts counts = reader->counts;
    counts.contents = reader->known;
    return counts;
}

uint64_t kvpi_recording_offset(const kvpi_recording_reader *reader)
{
    return reader->frames.offset;
}

uint64_t kvpi_recording_unpacked(const kvpi_recording_reader *reader)
{
    return reader->frames.unpacked;
}

bool kvpi_recording_is_whole(const kvpi_recording_reader *reader)
{
    return reader->has_end;
}
