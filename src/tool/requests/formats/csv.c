/* Reads the CSV formats: a header that names columns, then a request a line.
 *
 * Columns are found by name, so their order does not matter and further ones are allowed. Fields
 * are split at every comma, and may be in quotes: none of these data sets quotes a comma, which
 * would show up as a wrong number of fields.
 *
 *   Azure      TIMESTAMP 2023-11-16 18:15:46.6805900, ContextTokens, GeneratedTokens
 *              (later editions append an offset from UTC, as in +00:00, and count images)
 *   BurstGPT   Timestamp in seconds, Request tokens, Response tokens; the second edition has a
 *              Session ID
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tool/requests/formats/formats.h"

#define MAX_COLUMNS   KVPI_REQUESTS_MAX_COLUMNS
#define US_PER_SECOND INT64_C(1000000)

/* 2^53 microseconds in seconds. */
#define MAX_SECONDS INT64_C(9007199254)

enum { TIME, INPUT, OUTPUT, SESSION };

static const char *const azure[] = {"TIMESTAMP", "ContextTokens", "GeneratedTokens", NULL};
static const char *const burstgpt[] = {"Timestamp", "Request tokens", "Response tokens",
                                       "Session ID"};

static const char *const *names_of(const kvpi_requests_kind *kind)
{
    return kind == &kvpi_requests_kinds[KVPI_REQUESTS_AZURE] ? azure : burstgpt;
}

static char *trim(char *text)
{
    while (*text == ' ' || *text == '\t')
        text++;
    size_t n = strlen(text);
    while (n > 0 && (text[n - 1] == ' ' || text[n - 1] == '\t'))
        n--;
    if (n >= 2 && text[0] == '"' && text[n - 1] == '"') {
        text++;
        n -= 2;
    }
    text[n] = '\0';
    return text;
}

/* Cuts the line at its commas. Gives how many fields there are, which may be more than fit. */
static size_t split(char *text, char *fields[MAX_COLUMNS])
{
    size_t n = 0;
    while (text != NULL) {
        char *comma = strchr(text, ',');
        if (comma != NULL)
            *comma++ = '\0';
        if (n < MAX_COLUMNS)
            fields[n] = trim(text);
        n++;
        text = comma;
    }
    return n;
}

/* -------------------------------------------------------------------------------- the header */

typedef struct header {
    char *fields[MAX_COLUMNS];
    size_t n;
} header;

/* Gives n when no column has the name. */
static size_t find_column(const header *of, const char *name)
{
    size_t i = 0;
    while (i < of->n && strcmp(of->fields[i], name) != 0)
        i++;
    return i;
}

static bool has_column(void *context, const char *name, size_t n_bytes)
{
    const header *of = context;
    (void)n_bytes;
    return find_column(of, name) < of->n;
}

static void take_columns(kvpi_requests_parser *parser, const header *of)
{
    const char *const *names = names_of(parser->kind);
    for (size_t i = 0; i < 4; i++)
        parser->columns[i] = names[i] == NULL ? of->n : find_column(of, names[i]);
    parser->n_columns = of->n;
    for (size_t i = 0; i < of->n; i++)
        if (i != parser->columns[0] && i != parser->columns[1] && i != parser->columns[2] &&
            i != parser->columns[3])
            kvpi_requests_note_unused(parser, of->fields[i], strlen(of->fields[i]));
}

int kvpi_requests_csv_header(kvpi_requests_parser *parser, char *text)
{
    const kvpi_requests_kind *before = parser->kind;
    const kvpi_requests_format wanted = parser->options->format;
    header of;
    of.n = split(text, of.fields);
    for (size_t i = 0; of.n <= MAX_COLUMNS && i < KVPI_REQUESTS_FORMATS; i++) {
        const kvpi_requests_kind *kind = &kvpi_requests_kinds[i];
        if (!kind->is_csv || (wanted < KVPI_REQUESTS_FORMATS && wanted != i) ||
            !kvpi_requests_matches(kind, has_column, &of))
            continue;
        if (before != NULL && before != kind)
            return kvpi_requests_fail(parser,
                                      "a trace in the format %s, expected %s as in the "
                                      "files before",
                                      kind->name, before->name);
        parser->kind = kind;
        take_columns(parser, &of);
        return kvpi_requests_begin(parser);
    }
    return kvpi_requests_fail(parser,
                              "'%.40s' begins no known format, expected a JSON object or a header: "
                              "TIMESTAMP,ContextTokens,GeneratedTokens or Timestamp,Model,"
                              "Request tokens,Response tokens,Total tokens,Log Type",
                              of.fields[0]);
}

/* ---------------------------------------------------------------------------------- the lines */

static int read_length(kvpi_requests_parser *parser, const char *name, const char *text,
                       int32_t *out)
{
    int64_t value = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9' && value <= KVPI_REQUESTS_MAX_TOKENS; at++)
        value = value * 10 + (*at - '0');
    if (at == text || *at != '\0' || value > KVPI_REQUESTS_MAX_TOKENS)
        return kvpi_requests_fail(parser,
                                  "%s is '%.40s', expected a whole number from 0 to %" PRId32, name,
                                  text, KVPI_REQUESTS_MAX_TOKENS);
    *out = (int32_t)value;
    return 0;
}

/* "12.68059" of a unit -> microseconds; what is less than one is cut off. */
static bool parse_number(const char *text, uint64_t unit_ns, int64_t *out_us)
{
    uint64_t whole = 0, fraction = 0, weight = UINT64_C(1000000000);
    const uint64_t most = (uint64_t)MAX_SECONDS * UINT64_C(1000000000) / unit_ns;
    const char *at = text;
    for (; *at >= '0' && *at <= '9' && whole <= most; at++)
        whole = whole * 10 + (uint64_t)(*at - '0');
    if (at == text || whole > most)
        return false;
    if (*at == '.') {
        const char *first = ++at;
        for (; *at >= '0' && *at <= '9'; at++)
            if ((weight /= 10) > 0)
                fraction += (uint64_t)(*at - '0') * weight;
        if (at == first)
            return false;
    }
    *out_us = (int64_t)((whole * unit_ns + fraction * unit_ns / UINT64_C(1000000000)) / 1000);
    return *at == '\0';
}

static int read_timestamp(kvpi_requests_parser *parser, const char *name, const char *text,
                          int64_t *out_us)
{
    const kvpi_requests_unit unit = kvpi_requests_unit_of(parser);
    if (unit == KVPI_REQUESTS_DATES)
        return kvpi_date_time(text, out_us)
                   ? 0
                   : kvpi_requests_fail(parser,
                                        "%s is '%.40s', expected a time such as 2023-11-16 "
                                        "18:15:46.6805900",
                                        name, text);
    if (parse_number(text, kvpi_requests_unit_ns(unit), out_us))
        return 0;
    return kvpi_requests_fail(parser, "%s is '%.40s', expected %s (--time-unit) from 0 to %" PRIu64,
                              name, text, kvpi_requests_unit_words(unit),
                              (uint64_t)MAX_SECONDS * UINT64_C(1000000000) /
                                  kvpi_requests_unit_ns(unit));
}

/* Requests of a session wait for each other; what they share is not known. */
static int follow_session(kvpi_requests_parser *parser, const char *name, kvpi_request *request)
{
    kvpi_turn *turn = NULL;
    if (kvpi_turns_find(parser, kvpi_requests_hash(name, strlen(name)), true, &turn) != 0)
        return -1;
    parser->set->about.sessions += turn->number == KVPI_REQUESTS_NONE;
    request->after = turn->number;
    turn->number = (uint32_t)parser->set->n;
    return 0;
}

int kvpi_requests_csv_line(kvpi_requests_parser *parser, char *text)
{
    const char *const *names = names_of(parser->kind);
    const size_t *columns = parser->columns;
    kvpi_request request = kvpi_requests_blank();
    char *fields[MAX_COLUMNS];
    const size_t n = split(text, fields);
    if (n != parser->n_columns)
        return kvpi_requests_fail(parser, "%zu field%s, expected %zu as in the header", n,
                                  n == 1 ? "" : "s", parser->n_columns);
    if (read_timestamp(parser, names[TIME], fields[columns[TIME]], &request.timestamp_us) != 0 ||
        read_length(parser, names[INPUT], fields[columns[INPUT]], &request.input_length) != 0 ||
        read_length(parser, names[OUTPUT], fields[columns[OUTPUT]], &request.output_length) != 0)
        return -1;
    if (columns[SESSION] < n && *fields[columns[SESSION]] != '\0' &&
        follow_session(parser, fields[columns[SESSION]], &request) != 0)
        return -1;
    return kvpi_requests_add(parser, &request);
}
