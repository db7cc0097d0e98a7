/* Between the reader's files only: the request being built and the parsers of the formats.
 *
 * While a file is read its arrays still grow, so ids are found by offset; requests.c turns the
 * offsets into pointers once, at the end.
 */
#ifndef KVPI_REQUESTS_PARSE_H
#define KVPI_REQUESTS_PARSE_H

#include "tool/input/budget.h"
#include "tool/requests/requests.h"

#if defined(__GNUC__)
#define KVPI_PRINTF(format_idx, first_idx) __attribute__((format(printf, format_idx, first_idx)))
#else
#define KVPI_PRINTF(format_idx, first_idx)
#endif

/* What a file was read into. */
struct kvpi_requests {
    kvpi_request *requests;
    size_t n, capacity;
    int64_t *ids;
    size_t n_ids, ids_capacity;
    int32_t *tokens;
    size_t n_tokens, tokens_capacity;
    size_t n_mended;
    kvpi_requests_format format;
};

/* Columns of a CSV trace that matter; the number is the column's place in the header, from 0. */
typedef struct kvpi_requests_columns {
    size_t timestamp;
    size_t input;
    size_t output;
    size_t n; /* columns in the header: every line must have as many */
} kvpi_requests_columns;

typedef struct kvpi_requests_parser {
    const char *path;
    uint64_t line;
    const kvpi_requests_options *options;
    kvpi_requests_error *error;
    kvpi_requests *set;
    kvpi_requests_format format;
    bool format_known;
    bool line_mended; /* the current line had too few or too many ids, and that is allowed */
    kvpi_requests_columns columns;
    kvpi_budget budget;
} kvpi_requests_parser;

/* Record "FILE:LINE: message" as the reason for giving up.
 *
 * Returns: -1, for the caller to return
 */
int kvpi_requests_fail(kvpi_requests_parser *parser, const char *format, ...) KVPI_PRINTF(2, 3);

/* Record that memory is short, or that the budget is spent.
 *
 * Returns: -1, for the caller to return
 */
int kvpi_requests_no_memory(kvpi_requests_parser *parser);

/* Append a block id to the set.
 *
 * Returns: 0; -1 out of memory, recorded
 */
int kvpi_requests_add_id(kvpi_requests_parser *parser, int64_t id);

/* Append a spelled-out token to the set.
 *
 * Returns: 0; -1 out of memory, recorded
 */
int kvpi_requests_add_token(kvpi_requests_parser *parser, int32_t token);

/* Append the request whose ids and tokens were just added, input tokens first.
 *
 * Returns: 0; -1 out of memory or too many requests, recorded
 */
int kvpi_requests_add(kvpi_requests_parser *parser, const kvpi_request *request);

/* Count a request whose ids did not fit its length. */
void kvpi_requests_note_mended(kvpi_requests_parser *parser);

/* Decide which JSONL format a first line has, and read it; read a later line.
 *
 * Takes:   text     [n_bytes] one line, without its newline, no NUL inside
 * Returns: 0; -1 recorded
 */
int kvpi_requests_jsonl_line(kvpi_requests_parser *parser, const char *text, size_t n_bytes);

/* Read the header of a CSV trace: decides the format and finds the columns.
 *
 * Takes:   text     NUL-terminated, without its newline; taken apart in place
 * Returns: 0; -1 recorded
 */
int kvpi_requests_csv_header(kvpi_requests_parser *parser, char *text);

/* Read a line of a CSV trace.
 *
 * Takes:   text     NUL-terminated, without its newline; taken apart in place
 * Returns: 0; -1 recorded
 */
int kvpi_requests_csv_line(kvpi_requests_parser *parser, char *text);

#endif
