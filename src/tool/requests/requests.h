/* Request traces: what a serving system was asked, read from files and held in replay order.
 *
 * requests/formats.c has the table of formats, by which a file is recognised: JSON by the fields of
 * its first object, CSV by the columns of its header. Fields and columns that a format does not
 * name are passed over, so that newer editions of a data set still read; kvpi_requests_about has
 * their names.
 *
 * Content is named by ids, spelled out as tokens, or not known at all. In formats with sessions a
 * request may continue another: then that one's output, and the end of its prompt that no id names,
 * are what the later prompt has there.
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

/* In the order in which they are tried. */
typedef enum kvpi_requests_format {
    KVPI_REQUESTS_WEKA,
    KVPI_REQUESTS_TRACELAB,
    KVPI_REQUESTS_BAILIAN,
    KVPI_REQUESTS_TOKENS,
    KVPI_REQUESTS_DYNAMO,
    KVPI_REQUESTS_APPLIED,
    KVPI_REQUESTS_AGENTIC,
    KVPI_REQUESTS_KVCACHE,
    KVPI_REQUESTS_MOONCAKE,
    KVPI_REQUESTS_AZURE,
    KVPI_REQUESTS_BURSTGPT,
    KVPI_REQUESTS_RECORDING,
    KVPI_REQUESTS_FORMATS /* how many there are; as an option: recognise it */
} kvpi_requests_format;

/* In the order of kvpi_requests_units. */
typedef enum kvpi_requests_unit {
    KVPI_REQUESTS_SECONDS,
    KVPI_REQUESTS_MS,
    KVPI_REQUESTS_US,
    KVPI_REQUESTS_NS,
    KVPI_REQUESTS_DATES,
    KVPI_REQUESTS_UNITS /* as an option: the format's own */
} kvpi_requests_unit;

/* Names for --time-unit and --format, NULL after the last. */
extern const char *const kvpi_requests_units[];
extern const char *const kvpi_requests_names[];

/* Instead of the number of a request: none. */
#define KVPI_REQUESTS_NONE UINT32_MAX

/* Instead of the time that a request took: it is not recorded. */
#define KVPI_REQUESTS_NO_END (-1)

/* One request. The pointers live as long as the set that it came from. */
typedef struct kvpi_request {
    int64_t timestamp_us;  /* only differences mean something: each format has its own zero */
    const char *file;      /* of several; NULL: there is one */
    uint64_t line;         /* where it stands in the file, from 1 */
    uint32_t of_line;      /* of the requests of this line, from 1; 0: the format has one a line */
    uint32_t number;       /* how many requests stand before it in all files */
    int32_t input_length;  /* tokens, 0..KVPI_REQUESTS_MAX_TOKENS */
    int32_t output_length; /* tokens, 0..KVPI_REQUESTS_MAX_TOKENS */
    uint32_t n_ids; /* <= ceil(input_length / trace_block); of a recording, of the output, too */
    uint32_t n_input_ids;  /* <= input_length; tokens the trace spells out, 0 in other formats */
    uint32_t n_output_ids; /* <= output_length */
    uint32_t after;        /* number of the request before it in its session, or NONE */
    uint32_t joins; /* of kvpi_requests_join: what else it waits for; KVPI_REQUESTS_NONE: nothing */
    bool names_output; /* ids name full blocks of the output, too, and no other */
    bool is_delay;     /* its time counts from the end of `after`, which was taken for its start */
    int64_t lasts_us;  /* from its time to its end, as recorded; KVPI_REQUESTS_NO_END */
    int32_t shared;    /* tokens of `after`, output included, that it begins with; 0: not known */
    union {
        const uint64_t *ids; /* [n_ids] each names a block of the trace */
        size_t first_id;     /* while files are read */
    };
    const int32_t *input_ids;          /* [n_input_ids] */
    const int32_t *output_ids;         /* [n_output_ids] */
    const struct kvpi_request *before; /* `after`, or NULL */
    const struct kvpi_request *next; /* the request that continues it, with its `shared`; or NULL */
} kvpi_request;

typedef struct kvpi_requests_options {
    kvpi_requests_format format; /* KVPI_REQUESTS_FORMATS: recognise it */
    kvpi_requests_unit unit;     /* of times that are numbers; KVPI_REQUESTS_UNITS: the format's */
    int32_t trace_block;         /* tokens per id, 1..KVPI_REQUESTS_MAX_TRACE_BLOCK; 0: not said */
    bool merge_models;           /* of a conversation: an id means the same for all models */
    bool lenient;                /* missing ids become unshared content, extra ids are dropped */
    void (*on_progress)(void *context, uint64_t bytes_read); /* now and then; may be NULL */
    void *progress_context;
    uint64_t max_memory; /* bytes; 0: 64 MiB and 16 times what was read */
} kvpi_requests_options;

typedef struct kvpi_requests_error {
    char text[1200]; /* "FILE:LINE: what is wrong, what was expected"; one line, no newline */
} kvpi_requests_error;

typedef struct kvpi_requests kvpi_requests;

/* Set the defaults: everything as the files say, strict, no progress.
 *
 * Gives:   options  every field written
 * Thread:  pure         Blocks: never
 * Cost:    O(1), allocates nothing
 */
void kvpi_requests_options_init(kvpi_requests_options *options);

/* Read a whole trace and put its requests in timestamp order, ties in the order of the files.
 *
 * Everything is checked before anything is returned: a trace is either right or refused with the
 * first line that is wrong. Files that are compressed by gzip or zstd are read as what they hold.
 *
 * Takes:   paths    [n_paths] files and folders; "-" is standard input; a pipe, too, if a process
 *                   writes to it. Of a folder all files whose names end as those of traces do, in
 *                   the order of their names. All in one format
 *          options  as initialised
 * Gives:   error    written on failure only
 *          out      the set, on success only
 * Returns: 0; -1 when a file cannot be read, is not in a known format, has a line that is wrong,
 *          there are no requests, times cannot be right, or memory is short
 * After-failure: unchanged, nothing to free
 * Owns:    the caller frees the set with kvpi_requests_free
 * Thread:  one at a time  Blocks: io, on a pipe until it is closed
 * Cost:    O(bytes), O(n log n) when times are not in order; allocates max_memory at most, and to
 *          sort 16 bytes for each request
 */
int kvpi_requests_read_all(char *const paths[], size_t n_paths,
                           const kvpi_requests_options *options, kvpi_requests_error *error,
                           kvpi_requests **out);

/* The same of one file. */
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

/* One more request that another one waits for: an inner agent's last. */
typedef struct kvpi_requests_join {
    uint32_t number; /* of the request */
    uint32_t next;   /* place of the next one; KVPI_REQUESTS_NONE: that was the last */
} kvpi_requests_join;

/* Get all of them; those of a request are a list that begins at its `joins`.
 *
 * Thread:  read         Blocks: never
 */
const kvpi_requests_join *kvpi_requests_joins(const kvpi_requests *set);

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

/* What is to be known about a trace before its figures are believed. */
typedef struct kvpi_requests_about {
    const char *unit;    /* of its times, in words */
    const char *bound;   /* what its hits are a bound of, and why; NULL: they are exact */
    char unused[160];    /* fields or columns that were passed over; "": none */
    int32_t trace_block; /* tokens that an id stands for; 0: there are no ids */
    uint32_t files;
    uint32_t sessions;       /* 0: the format has none */
    uint64_t joined;         /* answers that are in the next prompt of their session */
    uint64_t not_joined;     /* and those that are not: it is too short, or begins otherwise */
    uint64_t without_output; /* requests whose output length is not there: they have none */
    uint64_t without_ids;    /* requests that could have ids, and have none */
    uint64_t cached_tokens;  /* that a provider says it read from its cache; 0: nothing is said */
    uint64_t cut;            /* recordings that have no end, of which what is whole was read */
    uint64_t lost;           /* requests that recordings lack */
    uint64_t forgotten;      /* contents of recordings that count as new when they come again */
    bool is_estimate;        /* recordings lack, or forgot, some of what was asked */
    bool is_bounded;         /* hits are lower bounds; what follows says more of them */
    uint64_t unseen_tokens;  /* of requests that are known as a sum only; 0: of other formats */
    uint64_t engine_blocks;  /* that the engine had; 0: not known, or several */
    uint64_t estimated; /* requests whose time is a guess: a delay after a turn without an end */
} kvpi_requests_about;

/* Blocks of a bounded trace that its engine computed again: n of them, before whose return `depth`
 * others had been evicted after them, and one more for each next one. */
typedef struct kvpi_requests_again {
    uint64_t depth;
    uint32_t n;
    bool is_sure; /* else: may be */
} kvpi_requests_again;

/* Get all of them. Gives: n   how many
 *
 * Thread:  read         Blocks: never
 */
const kvpi_requests_again *kvpi_requests_agains(const kvpi_requests *set, size_t *n);

/* Say what was read.
 *
 * Thread:  read         Blocks: never
 */
const kvpi_requests_about *kvpi_requests_describe(const kvpi_requests *set);

/* What turns ids into tokens. */
typedef struct kvpi_requests_key {
    int32_t trace_block; /* tokens per id, as kvpi_requests_describe says; 0 without ids */
    uint64_t seed;       /* another seed gives other tokens with the same sharing */
} kvpi_requests_key;

/* Write the input tokens of a request.
 *
 * Two requests get the same token at a position if the trace gives both the same id there, and
 * different ones if the ids differ (both below 2^30), at every offset: so the sharing in the trace
 * is the sharing at any block size that divides the trace's, or is a multiple of it. Larger ids,
 * hashes usually, are told apart by 60 mixed bits. Content without an id is that of the request
 * that continues this one, as far as it does, else the request's own. Tokens that the trace spells
 * out are copied.
 *
 * Takes:   request, key
 *          from     the first that is written, 0..input_length
 * Gives:   tokens   [input_length] i32, 0 <= token < 2^30 for content with an id, 2^30 <= token for
 *                   content of the request's own
 * Thread:  pure         Blocks: never
 * Cost:    O(input_length - from + requests that continue it), under a nanosecond a token;
 *          allocates nothing
 */
void kvpi_requests_input(const kvpi_request *request, const kvpi_requests_key *key, uint32_t from,
                         int32_t *tokens);

/* Say with how many tokens an input begins that are at the same places of the request before it,
 * its output behind its input: as many as ids and turns tell, without making tokens.
 *
 * Returns: 0..input_length, and no more than the request before has; 0: there is none
 * Thread:  pure         Blocks: never
 * Cost:    O(ids), allocates nothing
 */
uint32_t kvpi_requests_common(const kvpi_request *request, const kvpi_requests_key *key);

/* Write the generated tokens of a request: the trace's where it spells them out; those of the
 * request that continues it; else its own.
 *
 * Gives:   tokens   [output_length] i32, not negative
 * Thread:  pure         Blocks: never
 * Cost:    O(output_length), allocates nothing
 */
void kvpi_requests_output(const kvpi_request *request, const kvpi_requests_key *key,
                          int32_t *tokens);

#endif
