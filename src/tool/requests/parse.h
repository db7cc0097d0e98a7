/* Between the reader's files only: the request being built, the table of formats and their readers.
 *
 * While files are read the arrays still grow, so ids are found by their place; request_read.c makes
 * pointers of the places once, at the end.
 */
#ifndef KVPI_REQUESTS_PARSE_H
#define KVPI_REQUESTS_PARSE_H

#include "tool/input/budget.h"
#include "tool/requests/json_scan.h"
#include "tool/requests/requests.h"

#if defined(__GNUC__)
#define KVPI_PRINTF(format_idx, first_idx) __attribute__((format(printf, format_idx, first_idx)))
#else
#define KVPI_PRINTF(format_idx, first_idx)
#endif

#define KVPI_REQUESTS_MAX_COLUMNS 32

/* What files were read into. */
struct kvpi_requests {
    kvpi_request *requests;
    size_t n, capacity;
    uint64_t *ids;
    size_t n_ids, ids_capacity;
    size_t newest_ids; /* where those of the request that was added last begin */
    int32_t *tokens;
    size_t n_tokens, tokens_capacity;
    kvpi_requests_join *joins;
    size_t n_joins, joins_capacity;
    kvpi_requests_again *agains;
    size_t n_agains, agains_capacity;
    char **paths; /* [n_paths] of the files */
    size_t n_paths, paths_capacity;
    size_t n_mended;
    kvpi_requests_format format;
    kvpi_requests_about about;
};

/* A turn that others may follow: in a table of sessions, or of chats, by a hash of its name. Two
 * names of 2^20 have the same hash with a probability of 2^-25. */
typedef struct kvpi_turn {
    uint64_t name;
    uint32_t number; /* of the request; KVPI_REQUESTS_NONE: there is none */
    uint32_t round;  /* as the trace counts them */
    uint64_t model;  /* a hash of its name */
    int64_t spare;   /* tokens of its output that no later prompt has */
} kvpi_turn;

typedef struct kvpi_requests_parser kvpi_requests_parser;

/* A row of the table of formats. */
typedef struct kvpi_requests_kind {
    const char *name;  /* of --format */
    const char *title; /* for people */
    const char *needs; /* fields or columns by which it is recognised: "a|b c": a or b, and c */
    kvpi_requests_unit unit;
    int32_t block;   /* tokens that an id stands for; 0: there are none, or the files say */
    bool asks_block; /* --trace-block says */
    bool says_block; /* the files do, and --trace-block is checked */
    const char *ids; /* the field of ids; NULL: "hash_ids" */
    bool sessions;
    bool several; /* requests a line */
    bool is_csv;
    bool is_binary;                                        /* no text: needs nothing */
    const char *bound;                                     /* kvpi_requests_about */
    int (*read)(kvpi_requests_parser *, const char *text); /* JSON: one line, checked before */
} kvpi_requests_kind;

extern const kvpi_requests_kind kvpi_requests_kinds[KVPI_REQUESTS_FORMATS];

struct kvpi_requests_parser {
    const char *path;
    uint64_t line;
    char where[64]; /* of the line: "requests[3]." */
    const kvpi_requests_options *options;
    kvpi_requests_error *error;
    kvpi_requests *set;
    const kvpi_requests_kind *kind; /* NULL: not known yet */
    const char *behind;             /* the object that was read last */
    bool in_file;                   /* the format's first line of this file was read */
    bool noted_unused;
    bool line_mended; /* the current line had too few or too many ids, and that is allowed */
    size_t columns[4];
    size_t n_columns; /* in the header: every line must have as many */
    kvpi_turn *turns; /* [n_slots] open, linear, at most half full; number NONE: free */
    size_t n_turns, n_slots;
    uint64_t followed;   /* turns that follow another of at least a block, */
    uint64_t contents;   /* of the recordings before: what one numbers is its own */
    uint64_t continuing; /* and of these, those that begin with its first id */
    kvpi_budget budget;
    kvpi_number_arrays arrays; /* of the line */
};

/* Record "FILE:LINE: message" as the reason for giving up.
 *
 * Returns: -1, for the caller to return
 */
int kvpi_requests_fail(kvpi_requests_parser *parser, const char *format, ...) KVPI_PRINTF(2, 3);

/* The same of a field: "WHERE.NAME is VALUE, expected ...". */
int kvpi_requests_wrong(kvpi_requests_parser *parser, const char *name, kvpi_value value,
                        const char *format, ...) KVPI_PRINTF(4, 5);

/* Record that memory is short, or that the budget is spent.
 *
 * Returns: -1, for the caller to return
 */
int kvpi_requests_no_memory(kvpi_requests_parser *parser);

/* Append a block id, or a spelled-out token, to the set.
 *
 * Returns: 0; -1 out of memory, recorded
 */
int kvpi_requests_add_id(kvpi_requests_parser *parser, uint64_t id);

/* Make room for n more ids. Returns: as kvpi_requests_add_id */
int kvpi_requests_reserve_ids(kvpi_requests_parser *parser, size_t n);

int kvpi_requests_add_token(kvpi_requests_parser *parser, int32_t token);

/* Append what is to be waited for to a list of joins, whose first place changes.
 *
 * Returns: 0; -1 out of memory, recorded
 */
int kvpi_requests_add_join(kvpi_requests_parser *parser, uint32_t number, uint32_t *list);

/* A request of which nothing is known yet. */
static inline kvpi_request kvpi_requests_blank(void)
{
    return (kvpi_request){
        .after = KVPI_REQUESTS_NONE, .joins = KVPI_REQUESTS_NONE, .lasts_us = KVPI_REQUESTS_NO_END};
}

/* Append the request whose ids and tokens were just added, input tokens first.
 *
 * Returns: 0; -1 out of memory or too many requests, recorded
 */
int kvpi_requests_add(kvpi_requests_parser *parser, const kvpi_request *request);

/* Note fields that are passed over: the first time only. */
void kvpi_requests_note_unused(void *parser, const char *name, size_t n_bytes);

/* ------------------------------------------------------------------------ fields of JSON */

/* Refuse a field that is not there. Returns: 0; -1 recorded */
int kvpi_field_need(kvpi_requests_parser *parser, const char *name, kvpi_value value);

/* Read a number of tokens; a time, in microseconds; a whole number. */
int kvpi_field_tokens(kvpi_requests_parser *parser, const char *name, kvpi_value value,
                      int32_t *out);
int kvpi_field_time(kvpi_requests_parser *parser, const char *name, kvpi_value value,
                    int64_t *out_us);
int kvpi_field_whole(kvpi_requests_parser *parser, const char *name, kvpi_value value,
                     uint64_t *out);

/* Read the tokens that an id stands for, which all of a trace have. Returns: 0; -1 recorded */
int kvpi_field_block(kvpi_requests_parser *parser, const char *name, kvpi_value value);

/* Read an array of ids, each mixed with `scope` unless it is 0, of which n_needed are expected.
 *
 * Takes:   why      what says how many
 * Gives:   out_n    how many were added
 */
int kvpi_field_ids(kvpi_requests_parser *parser, kvpi_value value, uint64_t scope, size_t n_needed,
                   const char *why, uint32_t *out_n);

/* Read a session's name: a string or a number. */
int kvpi_field_name(kvpi_requests_parser *parser, const char *name, kvpi_value value,
                    uint64_t *out);

/* A hash of bytes, and of two numbers. */
uint64_t kvpi_requests_hash(const char *text, size_t n_bytes);
uint64_t kvpi_requests_mix(uint64_t a, uint64_t b);

/* ------------------------------------------------------------------------------ sessions */

/* Find fields of an object that was checked before; those that are not named are noted as unused.
 *
 * Gives:   parser   `behind`: where the object ends
 * Returns: 0; -1 one is there twice, recorded
 */
int kvpi_fields_find(kvpi_requests_parser *parser, const char *text, const char *const names[],
                     size_t n, kvpi_value values[]);

/* Is it there, and not null? */
bool kvpi_field_is_there(kvpi_value value);

/* Find a name in the table of turns, or make a place for it, whose number is NONE.
 *
 * Gives:   out      good until the next call
 * Returns: 0; -1 out of memory, recorded
 */
int kvpi_turns_find(kvpi_requests_parser *parser, uint64_t name, bool make, kvpi_turn **out);

/* The request that is being built follows `before`: is that one's answer in its prompt?
 *
 * Takes:   request  whose ids were the last to be added
 */
void kvpi_turns_follow(kvpi_requests_parser *parser, kvpi_request *request,
                       const kvpi_turn *before);

/* Read a date and time, such as 2023-11-16 18:15:46.6805900, with T or a blank, with or without a
 * fraction and an offset from UTC: microseconds since 1970. Text ends with a NUL or a quote. */
bool kvpi_date_time(const char *text, int64_t *out_us);

/* Nanoseconds of a unit, and its name in words. */
uint64_t kvpi_requests_unit_ns(kvpi_requests_unit unit);
const char *kvpi_requests_unit_words(kvpi_requests_unit unit);

/* The unit of the file's times. */
kvpi_requests_unit kvpi_requests_unit_of(const kvpi_requests_parser *parser);

#endif
