/* A recording: what a running engine was asked, written while it runs. docs/FORMATS.md has its
 * bytes.
 *
 * Of content there are numbers only, in order of first appearance: neither tokens nor hashes leave
 * the engine. A number names a full block and all before it.
 */
#ifndef KVPI_RECORDING_H
#define KVPI_RECORDING_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define KVPI_RECORDING_MAGIC       "kvprec1\n"
#define KVPI_RECORDING_MAGIC_BYTES 8u
/* Bytes of a frame, unpacked and packed, at most. */
#define KVPI_RECORDING_MAX_PAYLOAD (UINT32_C(16) << 20)
#define KVPI_RECORDING_MAX_PACKED  (KVPI_RECORDING_MAX_PAYLOAD + (KVPI_RECORDING_MAX_PAYLOAD >> 7))
/* Full blocks of a request that are numbered; those behind them are counted. */
#define KVPI_RECORDING_MAX_BLOCKS (UINT32_C(1) << 20)
/* Tokens of a block, and of a prompt or an output. */
#define KVPI_RECORDING_MAX_BLOCK_TOKENS (INT32_C(1) << 20)
#define KVPI_RECORDING_MAX_TOKENS       INT32_C(1073741823)
#define KVPI_RECORDING_TEXT             256u

/* Where the requests come from. */
typedef enum kvpi_recording_source {
    KVPI_RECORDING_ENGINE = 1,  /* the engine's own block hashes and hits */
    KVPI_RECORDING_PROXY = 2,   /* token ids of prompts, through a proxy */
    KVPI_RECORDING_LOOKUPS = 3, /* its KV events, of look-ups too */
    KVPI_RECORDING_EVENTS = 4,  /* its KV events, and its counters */
    KVPI_RECORDING_SOURCES
} kvpi_recording_source;

/* Name a source, and say what it is worth: static text; NULL: there is no such source. */
const char *kvpi_recording_source_name(uint64_t source);
const char *kvpi_recording_worth(uint64_t source);

typedef struct kvpi_recording_about {
    uint64_t source;
    int32_t block_tokens;             /* 1..KVPI_RECORDING_MAX_BLOCK_TOKENS */
    int64_t began_us;                 /* since 1970 */
    uint64_t max_contents;            /* as many different blocks are told apart at least */
    uint64_t engine_blocks;           /* that it has, of the last two sources; 0: not known */
    char engine[KVPI_RECORDING_TEXT]; /* its name and version, or its address */
    char model[KVPI_RECORDING_TEXT];
} kvpi_recording_about;

typedef struct kvpi_recording_run {
    uint64_t first; /* contents first, first + 1 ... */
    uint64_t n;
} kvpi_recording_run;

#define KVPI_RECORDED_UNKNOWN (-1)

/* Blocks of a request that were computed though the engine had had them: for n blocks, so many had
 * been evicted after them: depth, depth + 1 ... A cache of more than so many blocks more, too, hits
 * them: surely; or perhaps, because they may be none of the prompt. What is sure is in the other
 * list, too. */
typedef struct kvpi_recording_again {
    uint64_t depth;
    uint32_t n;
    bool is_sure;
} kvpi_recording_again;

/* A request. */
typedef struct kvpi_recorded {
    int64_t time_us; /* of its arrival, since 1970 */
    int64_t input_tokens, output_tokens;
    int64_t cached_tokens; /* that the engine had by itself; KVPI_RECORDED_UNKNOWN: not said */
    int64_t first_us;      /* from its arrival to the first token, or KVPI_RECORDED_UNKNOWN */
    int64_t last_us;       /* and to its end */
    uint64_t session;      /* from 1, in order of appearance; 0: none */
    uint64_t scope;        /* salt and adapter, likewise */
    uint64_t n_blocks;     /* of the runs: full blocks of the prompt and the output behind it */
    const kvpi_recording_run *runs; /* [n_runs] */
    size_t n_runs;
    bool is_unseen; /* no request, but tokens of some that no event told of; it has no blocks */
    const kvpi_recording_again *again; /* [n_again] of KVPI_RECORDING_EVENTS only */
    size_t n_again;
} kvpi_recorded;

typedef struct kvpi_recording_counts {
    uint64_t requests;   /* in the file */
    uint64_t contents;   /* numbers given */
    uint64_t forgotten;  /* contents that count as new when they come again */
    uint64_t lost;       /* requests that were not recorded: no memory, no tokens, too late; or
                          * batches of KV events */
    uint64_t unnumbered; /* blocks beyond KVPI_RECORDING_MAX_BLOCKS */
} kvpi_recording_counts;

typedef struct kvpi_recording_error {
    char text[400]; /* one line without the file's name */
} kvpi_recording_error;

/* Say what is wrong. Returns: -1 */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static inline int
kvpi_recording_fail(kvpi_recording_error *error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    return -1;
}

/* ------------------------------------------------------------------------------------ writing */

typedef struct kvpi_recorder kvpi_recorder;

typedef struct kvpi_recorder_options {
    const char *path; /* of a new file */
    kvpi_recording_about about;
    uint8_t key[16]; /* of the run: random, and kept nowhere */
} kvpi_recorder_options;

/* Begin a recording: the file is there, with its header, when the call returns.
 *
 * Gives:   out      to be closed; on success only
 *          error    on failure
 * Returns: 0; -1: the file is there already or cannot be written, no memory, wrong options, or
 *          this was built without libzstd
 */
int kvpi_recorder_open(const kvpi_recorder_options *options, kvpi_recorder **out,
                       kvpi_recording_error *error);

/* Add a request whose blocks an engine has hashed, each over all before it, or one of tokens.
 *
 * Takes:   request  its runs and n_blocks are not looked at
 *          hashes   [n][n_bytes]
 *          scope    of [scope_bytes]: what content belongs to besides its tokens
 *          tokens   [n] the prompt's, or with the output's behind them
 * Returns: 0; -1: not written, error->text says why. What has no memory is counted as lost.
 */
int kvpi_recorder_add_hashes(kvpi_recorder *recorder, const kvpi_recorded *request,
                             const void *hashes, size_t n, size_t n_bytes,
                             kvpi_recording_error *error);
int kvpi_recorder_add_tokens(kvpi_recorder *recorder, const kvpi_recorded *request,
                             const void *scope, size_t scope_bytes, const int32_t *tokens, size_t n,
                             kvpi_recording_error *error);

/* Number the name of a session, or what content belongs to besides its tokens; 0: no memory. */
uint64_t kvpi_recorder_session(kvpi_recorder *recorder, const void *text, size_t n);
uint64_t kvpi_recorder_scope(kvpi_recorder *recorder, const void *text, size_t n);

void kvpi_recorder_lost(kvpi_recorder *recorder, uint64_t n);
kvpi_recording_counts kvpi_recorder_counts(const kvpi_recorder *recorder);

/* Write what was added, if anything was. Returns: as above */
int kvpi_recorder_flush(kvpi_recorder *recorder, kvpi_recording_error *error);

/* Write the end, close the file and free the recorder. Returns: as above, all the same freed */
int kvpi_recorder_close(kvpi_recorder *recorder, kvpi_recording_error *error);

/* ------------------------------------------------------------------------------------ reading */

typedef struct kvpi_recording_reader kvpi_recording_reader;

enum { KVPI_RECORDING_REQUEST = 1, KVPI_RECORDING_END = 0, KVPI_RECORDING_WRONG = -1 };

/* Begin to read a file.
 *
 * Gives:   out      to be freed; on success only
 *          error    says where in the file, which field, and what was expected
 * Returns: 0; -1
 */
int kvpi_recording_open(FILE *file, kvpi_recording_reader **out, kvpi_recording_error *error);
void kvpi_recording_free(kvpi_recording_reader *reader);

/* Get the next request; its runs are good until the next call.
 *
 * Returns: KVPI_RECORDING_REQUEST; KVPI_RECORDING_END, of the file: there may be more later, if it
 *          is not whole; KVPI_RECORDING_WRONG: damaged
 */
int kvpi_recording_next(kvpi_recording_reader *reader, kvpi_recorded *out,
                        kvpi_recording_error *error);

const kvpi_recording_about *kvpi_recording_describe(const kvpi_recording_reader *reader);
/* As of the last frame that was read. */
kvpi_recording_counts kvpi_recording_counted(const kvpi_recording_reader *reader);
/* Bytes of whole frames that were read; those that they unpack to. */
uint64_t kvpi_recording_offset(const kvpi_recording_reader *reader);
uint64_t kvpi_recording_unpacked(const kvpi_recording_reader *reader);
/* At the end: has the recorder written its end, or was it cut off? */
bool kvpi_recording_is_whole(const kvpi_recording_reader *reader);

#endif
