/* Reads a line of the formats in which a line is a request with its lengths and ids.
 *
 *   Mooncake   timestamp (ms; created_time means the same), or delay (ms after the end of the turn
 *              before; delay_ms means the same), input_length (input_tokens), output_length
 *              (output_tokens), hash_ids: exactly ceil(input_length / trace_block); session_id
 *   Bailian    timestamp (s), input_length, output_length, hash_ids: ceil(input_length / 16),
 *              chat_id, parent_chat_id (-1: none)
 *   token      arrival_time_ns, input_toks, output_toks,
 *              input_tok_ids: exactly input_toks; output_tok_ids: exactly output_toks, optional
 *
 * An id of a Mooncake trace names a block and all before it, one of a Bailian trace a block alone.
 * That needs no distinction: a prefix is equal when all its ids are.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tool/requests/formats/formats.h"

enum { TIME, INPUT, OUTPUT, IDS, SESSION, DELAY, FIELDS, PARENT = DELAY };

/* A field that has two names is there once. */
static int choose(kvpi_requests_parser *parser, const char *const names[], kvpi_value values[],
                  size_t field, size_t alias)
{
    if (values[field] != NULL && values[alias] != NULL)
        return kvpi_requests_fail(parser, "%s and %s, expected one of them", names[field],
                                  names[alias]);
    if (values[field] == NULL)
        values[field] = values[alias];
    return 0;
}

/* Lengths and ids. */
static int read_content(kvpi_requests_parser *parser, kvpi_value values[], kvpi_request *request)
{
    const int32_t block = parser->set->about.trace_block;
    char why[80];
    if (kvpi_field_tokens(parser, "input_length", values[INPUT], &request->input_length) != 0)
        return -1;
    if (!kvpi_field_is_there(values[OUTPUT]))
        parser->set->about.without_output++;
    else if (kvpi_field_tokens(parser, "output_length", values[OUTPUT], &request->output_length) !=
             0)
        return -1;
    snprintf(why, sizeof why, "input_length is %" PRId32 ", a trace block has %" PRId32 " tokens",
             request->input_length, block);
    const size_t n = ((size_t)request->input_length + (size_t)block - 1) / (size_t)block;
    return kvpi_field_ids(parser, values[IDS], 0, n, why, &request->n_ids);
}

/* After a turn whose end is not known, a delay counts from where it began. */
static int read_delay(kvpi_requests_parser *parser, kvpi_value value, const kvpi_turn *before,
                      kvpi_request *request)
{
    int64_t us = 0;
    if (before == NULL || before->number == KVPI_REQUESTS_NONE)
        return kvpi_requests_fail(parser, "no \"timestamp\", expected in the first request of a "
                                          "session");
    if (kvpi_field_time(parser, "delay", value, &us) != 0)
        return -1;
    request->timestamp_us = parser->set->requests[before->number].timestamp_us + us;
    request->is_delay = true;
    parser->set->about.estimated++;
    return 0;
}

static int add_turn(kvpi_requests_parser *parser, kvpi_request *request, size_t first_id,
                    uint64_t name, const kvpi_turn *before)
{
    kvpi_turn *turn = NULL;
    request->after = KVPI_REQUESTS_NONE;
    if (before != NULL && before->number != KVPI_REQUESTS_NONE)
        kvpi_turns_follow(parser, request, first_id, before);
    else
        parser->set->about.sessions++;
    if (kvpi_turns_find(parser, name, true, &turn) != 0)
        return -1;
    turn->first_id = first_id;
    turn->number = (uint32_t)parser->set->n;
    return kvpi_requests_add(parser, request);
}

int kvpi_requests_mooncake(kvpi_requests_parser *parser, const char *text)
{
    static const char *const names[] = {
        "timestamp", "input_length", "output_length", "hash_ids",      "session_id",
        "delay",     "created_time", "input_tokens",  "output_tokens", "delay_ms"};
    kvpi_value values[sizeof names / sizeof *names];
    kvpi_request request = kvpi_requests_blank();
    kvpi_turn *before = NULL;
    uint64_t session = 0;
    const size_t first_id = parser->set->n_ids;
    if (kvpi_fields_find(parser, text, names, sizeof names / sizeof *names, values) != 0 ||
        choose(parser, names, values, TIME, 6) != 0 ||
        choose(parser, names, values, INPUT, 7) != 0 ||
        choose(parser, names, values, OUTPUT, 8) != 0 ||
        choose(parser, names, values, DELAY, 9) != 0)
        return -1;
    if (kvpi_field_is_there(values[SESSION]) &&
        (kvpi_field_name(parser, "session_id", values[SESSION], &session) != 0 ||
         kvpi_turns_find(parser, session, false, &before) != 0))
        return -1;
    const bool has_time = kvpi_field_is_there(values[TIME]) || !kvpi_field_is_there(values[DELAY]);
    if ((has_time ? kvpi_field_time(parser, "timestamp", values[TIME], &request.timestamp_us)
                  : read_delay(parser, values[DELAY], before, &request)) != 0 ||
        read_content(parser, values, &request) != 0)
        return -1;
    return before == NULL ? kvpi_requests_add(parser, &request)
                          : add_turn(parser, &request, first_id, session, before);
}

int kvpi_requests_bailian(kvpi_requests_parser *parser, const char *text)
{
    static const char *const names[FIELDS] = {"timestamp", "input_length", "output_length",
                                              "hash_ids",  "chat_id",      "parent_chat_id"};
    kvpi_value values[FIELDS];
    kvpi_request request = kvpi_requests_blank();
    kvpi_turn *before = NULL;
    uint64_t chat = 0, parent = 0;
    const size_t first_id = parser->set->n_ids;
    if (kvpi_fields_find(parser, text, names, FIELDS, values) != 0 ||
        kvpi_field_time(parser, "timestamp", values[TIME], &request.timestamp_us) != 0 ||
        kvpi_field_name(parser, "chat_id", values[SESSION], &chat) != 0 ||
        kvpi_field_name(parser, "parent_chat_id", values[PARENT], &parent) != 0 ||
        read_content(parser, values, &request) != 0)
        return -1;
    if (strncmp(values[PARENT], "-1", 2) != 0 &&
        kvpi_turns_find(parser, parent, false, &before) != 0)
        return -1;
    return add_turn(parser, &request, first_id, chat, before);
}

/* Adds the tokens of one array, of which `length` are expected. */
static int add_tokens(kvpi_requests_parser *parser, kvpi_value array, const char *name,
                      int32_t length, uint32_t *out_n)
{
    size_t n = 0;
    if (*array != '[')
        return kvpi_requests_wrong(parser, name, array, "an array of whole numbers");
    for (kvpi_value item = kvpi_array_first(array); item != NULL; item = kvpi_array_next(item)) {
        uint64_t token = 0;
        char which[48];
        snprintf(which, sizeof which, "%s[%zu]", name, n++);
        if (!kvpi_value_whole(item, &token) || token > INT32_MAX)
            return kvpi_requests_wrong(parser, which, item, "a whole number from 0 to %" PRId32,
                                       INT32_MAX);
        if (kvpi_requests_add_token(parser, (int32_t)token) != 0)
            return -1;
    }
    if (n != (size_t)length && !parser->options->lenient)
        return kvpi_requests_fail(
            parser, "%s has %zu ids, expected exactly %" PRId32 " (--lenient goes on)", name, n,
            length);
    parser->line_mended = parser->line_mended || n != (size_t)length;
    if (n > (size_t)length)
        parser->set->n_tokens -= n - (size_t)length;
    *out_n = (uint32_t)(n < (size_t)length ? n : (size_t)length);
    return 0;
}

int kvpi_requests_tokens(kvpi_requests_parser *parser, const char *text)
{
    static const char *const names[] = {"arrival_time_ns", "input_toks", "output_toks",
                                        "input_tok_ids", "output_tok_ids"};
    kvpi_value values[5];
    kvpi_request request = kvpi_requests_blank();
    if (kvpi_fields_find(parser, text, names, 5, values) != 0 ||
        kvpi_field_time(parser, names[TIME], values[TIME], &request.timestamp_us) != 0 ||
        kvpi_field_tokens(parser, names[INPUT], values[INPUT], &request.input_length) != 0 ||
        kvpi_field_tokens(parser, names[OUTPUT], values[OUTPUT], &request.output_length) != 0 ||
        kvpi_field_need(parser, names[3], values[3]) != 0 ||
        add_tokens(parser, values[3], names[3], request.input_length, &request.n_input_ids) != 0)
        return -1;
    if (values[4] != NULL &&
        add_tokens(parser, values[4], names[4], request.output_length, &request.n_output_ids) != 0)
        return -1;
    return kvpi_requests_add(parser, &request);
}
