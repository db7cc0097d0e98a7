/* Request traces: what a serving system was asked, read from a file and held in replay order.
 *
 * Four formats are recognised by their first line:
 *
 *   Mooncake JSONL   {"timestamp": ms, "input_length": n, "output_length": n, "hash_ids": [...]}
 *   token JSONL      {"input_toks": n, "output_toks": n, "arrival_time_ns": ns,
 *                     "input_tok_ids": [...], "output_tok_ids": [...]}
 *   Azure CSV        TIMESTAMP,ContextTokens,GeneratedTokens
 *   BurstGPT CSV     Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
 *
 * Only the last two carry no content: their requests share nothing. Further fields and columns are
 * ignored, so that newer editions of a data set still read.
 */
#ifndef KVPI_REQUESTS_H
#define KVPI_REQUESTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Longest input, and longest output, that a trace may name. Their sum fits an int32_t. */
#define KVPI_REQUESTS_MAX_TOKENS INT32_C(1073741823)

/* Largest block that an id of a trace may stand for. */
#define KVPI_REQUESTS_MAX_TRACE_BLOCK INT32_C(1048576)

typedef enum kvpi_requests_format {
    KVPI_REQUESTS_MOONCAKE,
    KVPI_REQUESTS_TOKENS,
    KVPI_REQUESTS_AZURE,
    KVPI_REQUESTS_BURSTGPT
} kvpi_requests_format;

/* One request. The pointers live as long as the set that it came from. */
typedef struct kvpi_request {
    int64_t timestamp_us;     /* only differences mean something: each format has its own zero */
    uint64_t line;            /* where it stands in the file, from 1 */
    uint32_t number;          /* how many requests stand before it in the file */
    int32_t input_length;     /* tokens, 0..KVPI_REQUESTS_MAX_TOKENS */
    int32_t output_length;    /* tokens, 0..KVPI_REQUESTS_MAX_TOKENS */
    size_t n_ids;             /* <= ceil(input_length / trace_block); fewer only when lenient */
    const int64_t *ids;       /* [n_ids] each names a trace block and everything before it */
    size_t n_input_ids;       /* <= input_length; tokens the trace spells out, 0 in other formats */
    const int32_t *input_ids; /* [n_input_ids] */
    size_t n_output_ids;      /* <= output_length */
    const int32_t *output_ids; /* [n_output_ids] */
} kvpi_request;

typedef struct kvpi_requests_options {
    int32_t trace_block; /* tokens per id, 1..KVPI_REQUESTS_MAX_TRACE_BLOCK */
    bool lenient;        /* missing ids become unshared content, extra ids are dropped */
    void (*on_progress)(void *context, uint64_t bytes_read); /* now and then; may be NULL */
    void *progress_context;
    uint64_t max_memory; /* bytes; 0: 64 MiB and 16 times what was read */
} kvpi_requests_options;

typedef struct kvpi_requests_error {
    char text[512]; /* "FILE:LINE: what is wrong, what was expected"; one line, no newline */
} kvpi_requests_error;

typedef struct kvpi_requests kvpi_requests;

/* Set the defaults: 512 tokens per id, strict, no progress.
 *
 * Gives:   options  every field written
 * Thread:  pure         Blocks: never
 * Cost:    O(1), allocates nothing
 */
void kvpi_requests_options_init(kvpi_requests_options *options);

/* Read a whole trace and put its requests in timestamp order, ties in file order.
 *
 * The whole file is checked before anything is returned: a trace is either right or refused with
 * the first line that is wrong.
 *
 * Takes:   path     file name, "-" is standard input; a pipe, too, if somebody writes to it
 *          options  as initialised
 * Gives:   error    written on failure only
 *          out      the set, on success only
 * Returns: 0; -1 when the file cannot be read, is not in a known format, has a line that is wrong,
 *          has no requests, or memory is short
 * After-failure: unchanged, nothing to free
 * Owns:    the caller frees the set with kvpi_requests_free
 * Thread:  one at a time  Blocks: io, on a pipe until it is closed
 * Cost:    O(file), O(n log n) when the file is not in order; allocates max_memory at most, and to
 *          sort 16 bytes for each request
 */
int kvpi_requests_read(const char *path, const kvpi_requests_options *options,
                       kvpi_requests_error *error, kvpi_requests **out);

/* Free a set and everything that its requests point to. NULL is allowed.
 *
 * Thread:  any          Blocks: never
 */
void kvpi_requests_free(kvpi_requests *set);

/* Say how many requests a set holds; at least 1.
 *
 * Thread:  read         Blocks: never
 */
size_t kvpi_requests_count(const kvpi_requests *set);

/* Get a request by its place in replay order.
 *
 * Takes:   place    0..count-1
 * Returns: the request, owned by the set
 * Thread:  read         Blocks: never
 * Cost:    O(1)
 */
const kvpi_request *kvpi_requests_get(const kvpi_requests *set, size_t place);

/* Say which format the file had.
 *
 * Thread:  read         Blocks: never
 */
kvpi_requests_format kvpi_requests_get_format(const kvpi_requests *set);

/* Name a format for people, as in "Mooncake JSONL".
 *
 * Thread:  pure         Blocks: never
 */
const char *kvpi_requests_format_name(kvpi_requests_format format);

/* Say how many requests had too few or too many ids and were mended; 0 unless lenient.
 *
 * Thread:  read         Blocks: never
 */
size_t kvpi_requests_mended(const kvpi_requests *set);

/* What turns ids into tokens. */
typedef struct kvpi_requests_key {
    int32_t trace_block; /* tokens per id */
    uint64_t seed;       /* another seed gives other tokens with the same sharing */
} kvpi_requests_key;

/* Write the input tokens of a request.
 *
 * Two requests get the same token at a position if the trace gives both the same id there, and
 * different ones if the ids differ (both below 2^30), at every offset: so the sharing in the trace
 * is the sharing at any block size that divides the trace's. Larger ids, hashes usually, are told
 * apart by 60 mixed bits. Content without an id is the request's own. Tokens that the trace spells
 * out are copied.
 *
 * Takes:   request, key
 * Gives:   tokens   [input_length] i32, 0 <= token < 2^30 for content with an id, 2^30 <= token for
 *                   content of the request's own
 * Thread:  pure         Blocks: never
 * Cost:    O(input_length), under a nanosecond a token; allocates nothing
 */
void kvpi_requests_input(const kvpi_request *request, const kvpi_requests_key *key,
                         int32_t *tokens);

/* Write the generated tokens of a request: the trace's where it spells them out, else its own.
 *
 * Gives:   tokens   [output_length] i32, not negative
 * Thread:  pure         Blocks: never
 * Cost:    O(output_length), allocates nothing
 */
void kvpi_requests_output(const kvpi_request *request, const kvpi_requests_key *key,
                          int32_t *tokens);

#endif
