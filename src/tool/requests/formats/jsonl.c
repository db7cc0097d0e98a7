/* Reads a line of the formats in which a line is a request with its lengths and ids.
 *
 *   Mooncake   timestamp (ms; created_time means the same), or delay (ms after the end of the turn
 *              before; delay_ms means the same), input_length (input_tokens), output_length
 *              (output_tokens), hash_ids: exactly ceil(input_length / trace_block); session_id
 *   Bailian    timestamp (s), input_length, output_length, hash_ids: ceil(input_length / 16),
 *              chat_id, parent_chat_id (-1: none)
 *   agentic    as Mooncake, with request_id; wait_for: those of rows before for whose ends it
 *   Mooncake   waits, and then for delay and tool_wait_ms; prefix_reset: its prompt continues none.
 *              branches are those that wait for it, who say so themselves
 *   KVCache.AI block_size, input_length, hash_ids: an id for each block, with or without one for a
 *              last one that is not full; timestamp (s), output_length, both optional
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

enum { TIME, INPUT, OUTPUT, IDS, SESSION, DELAY, FIELDS, PARENT = DELAY, WAIT_FOR = 10 };

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

static int choose_all(kvpi_requests_parser *parser, const char *const names[], kvpi_value values[])
{
    return choose(parser, names, values, TIME, 6) != 0 ||
                   choose(parser, names, values, INPUT, 7) != 0 ||
                   choose(parser, names, values, OUTPUT, 8) != 0 ||
                   choose(parser, names, values, DELAY, 9) != 0
               ? -1
               : 0;
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

static int add_turn(kvpi_requests_parser *parser, kvpi_request *request, uint64_t name,
                    const kvpi_turn *before)
{
    kvpi_turn *turn = NULL;
    request->after = KVPI_REQUESTS_NONE;
    if (before != NULL && before->number != KVPI_REQUESTS_NONE)
        kvpi_turns_follow(parser, request, before);
    else
        parser->set->about.sessions++;
    if (kvpi_turns_find(parser, name, true, &turn) != 0)
        return -1;
    turn->number = (uint32_t)parser->set->n;
    return kvpi_requests_add(parser, request);
}

int kvpi_requests_mooncake(kvpi_requests_parser *parser, const char *text)
{
    static const char *const names[] = {
        "timestamp",    "input_length", "output_length", "hash_ids", "session_id", "delay",
        "created_time", "input_tokens", "output_tokens", "delay_ms", "wait_for"};
    kvpi_value values[sizeof names / sizeof *names];
    kvpi_request request = kvpi_requests_blank();
    kvpi_turn *before = NULL;
    uint64_t session = 0;
    if (kvpi_fields_find(parser, text, names, sizeof names / sizeof *names, values) != 0 ||
        choose_all(parser, names, values) != 0)
        return -1;
    if (values[WAIT_FOR] != NULL)
        return kvpi_requests_wrong(parser, "wait_for", values[WAIT_FOR],
                                   "none: is it agentic Mooncake (--format agentic_mooncake)?");
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
                          : add_turn(parser, &request, session, before);
}

/* ------------------------------------------------------------------------- agentic Mooncake */

enum { REQUEST = WAIT_FOR + 1, TOOL_WAIT, RESET, BRANCHES };

/* Names of requests and of sessions are in one table. */
static uint64_t of_request(uint64_t name)
{
    return kvpi_requests_mix(name, 1);
}

/* One more request to wait for; the turn before it in its session is `after`. */
static int await(kvpi_requests_parser *parser, kvpi_request *request, uint32_t number,
                 uint32_t before)
{
    uint32_t join = number;
    if (request->after == KVPI_REQUESTS_NONE || number == before) {
        join = request->after;
        request->after = number;
    }
    return join == KVPI_REQUESTS_NONE ? 0 : kvpi_requests_add_join(parser, join, &request->joins);
}

/* Gives the latest start of those that are awaited, as long as no end is known. */
static int read_awaited(kvpi_requests_parser *parser, kvpi_value array, uint32_t before,
                        kvpi_request *request)
{
    size_t i = 0;
    if (*array != '[')
        return kvpi_requests_wrong(parser, "wait_for", array, "an array with request_ids");
    for (kvpi_value item = kvpi_array_first(array); item != NULL; item = kvpi_array_next(item)) {
        kvpi_turn *turn = NULL;
        uint64_t name = 0;
        char field[40];
        snprintf(field, sizeof field, "wait_for[%zu]", i++);
        if (kvpi_field_name(parser, field, item, &name) != 0 ||
            kvpi_turns_find(parser, of_request(name), false, &turn) != 0)
            return -1;
        if (turn->number == KVPI_REQUESTS_NONE)
            return kvpi_requests_wrong(parser, field, item, "the request_id of a row before");
        const int64_t start_us = parser->set->requests[turn->number].timestamp_us;
        request->timestamp_us = start_us > request->timestamp_us ? start_us : request->timestamp_us;
        if (await(parser, request, turn->number, before) != 0)
            return -1;
    }
    return 0;
}

static int add_waits(kvpi_requests_parser *parser, kvpi_value values[], kvpi_request *request)
{
    static const char *const names[] = {"delay", "tool_wait_ms"};
    const kvpi_value of[] = {values[DELAY], values[TOOL_WAIT]};
    for (size_t i = 0; i < 2; i++) {
        int64_t us = 0;
        if (kvpi_field_is_there(of[i]) && kvpi_field_time(parser, names[i], of[i], &us) != 0)
            return -1;
        request->timestamp_us += us;
    }
    request->is_delay = true;
    parser->set->about.estimated++;
    return 0;
}

/* When it begins. */
static int read_start(kvpi_requests_parser *parser, kvpi_value values[], uint32_t before,
                      kvpi_request *request)
{
    if (kvpi_field_is_there(values[WAIT_FOR]) &&
        read_awaited(parser, values[WAIT_FOR], before, request) != 0)
        return -1;
    if (request->after != KVPI_REQUESTS_NONE)
        return add_waits(parser, values, request);
    parser->set->about.sessions++;
    return kvpi_field_time(parser, "timestamp", values[TIME], &request->timestamp_us);
}

/* Others may wait for it, and continue it. */
static int keep_names(kvpi_requests_parser *parser, kvpi_value id, uint64_t name,
                      const uint64_t *session)
{
    kvpi_turn *turn = NULL;
    if (kvpi_turns_find(parser, of_request(name), true, &turn) != 0)
        return -1;
    if (turn->number != KVPI_REQUESTS_NONE)
        return kvpi_requests_wrong(parser, "request_id", id, "another one than in a row before");
    turn->number = (uint32_t)parser->set->n;
    if (session == NULL)
        return 0;
    if (kvpi_turns_find(parser, *session, true, &turn) != 0)
        return -1;
    turn->number = (uint32_t)parser->set->n;
    return 0;
}

int kvpi_requests_agentic(kvpi_requests_parser *parser, const char *text)
{
    static const char *const names[] = {
        "timestamp", "input_length", "output_length", "hash_ids",      "session_id",
        "delay",     "created_time", "input_tokens",  "output_tokens", "delay_ms",
        "wait_for",  "request_id",   "tool_wait_ms",  "prefix_reset",  "branches"};
    kvpi_value values[sizeof names / sizeof *names];
    kvpi_request request = kvpi_requests_blank();
    kvpi_turn before = {.number = KVPI_REQUESTS_NONE}, *last = NULL;
    uint64_t session = 0, name = 0;
    if (kvpi_fields_find(parser, text, names, sizeof names / sizeof *names, values) != 0 ||
        choose_all(parser, names, values) != 0 ||
        kvpi_field_name(parser, "request_id", values[REQUEST], &name) != 0)
        return -1;
    const bool has_session = kvpi_field_is_there(values[SESSION]);
    const bool is_reset = values[RESET] != NULL && strncmp(values[RESET], "true", 4) == 0;
    if (has_session && (kvpi_field_name(parser, "session_id", values[SESSION], &session) != 0 ||
                        kvpi_turns_find(parser, session, false, &last) != 0))
        return -1;
    if (last != NULL && !is_reset)
        before = *last;
    if (read_start(parser, values, before.number, &request) != 0 ||
        read_content(parser, values, &request) != 0)
        return -1;
    if (request.after != KVPI_REQUESTS_NONE && request.after == before.number)
        kvpi_turns_follow(parser, &request, &before);
    if (keep_names(parser, values[REQUEST], name, has_session ? &session : NULL) != 0)
        return -1;
    return kvpi_requests_add(parser, &request);
}

/* ---------------------------------------------------------------------------------- KVCache.AI */

static size_t count_items(kvpi_requests_parser *parser, kvpi_value array)
{
    const kvpi_number_array *known = kvpi_number_arrays_find(&parser->arrays, array);
    size_t n = known != NULL ? known->n : 0;
    if (known == NULL && *array == '[')
        for (kvpi_value item = kvpi_array_first(array); item != NULL; item = kvpi_array_next(item))
            n++;
    return n;
}

int kvpi_requests_kvcache(kvpi_requests_parser *parser, const char *text)
{
    static const char *const names[] = {"timestamp", "input_length", "output_length",
                                        "hash_ids",  "block_size",   "block_tokens"};
    enum { BLOCK = 4, BLOCK_TOKENS = 5, N_FIELDS = 6 };
    kvpi_value values[N_FIELDS];
    kvpi_request request = kvpi_requests_blank();
    char why[80];
    if (kvpi_fields_find(parser, text, names, N_FIELDS, values) != 0 ||
        kvpi_field_block(parser, "block_size", values[BLOCK]) != 0 ||
        kvpi_field_tokens(parser, "input_length", values[INPUT], &request.input_length) != 0 ||
        kvpi_field_need(parser, "hash_ids", values[IDS]) != 0)
        return -1;
    if (kvpi_field_is_there(values[BLOCK_TOKENS]))
        return kvpi_requests_wrong(parser, "block_tokens", values[BLOCK_TOKENS],
                                   "none: blocks of block_size tokens each");
    if (kvpi_field_is_there(values[TIME]) &&
        kvpi_field_time(parser, "timestamp", values[TIME], &request.timestamp_us) != 0)
        return -1;
    if (!kvpi_field_is_there(values[OUTPUT]))
        parser->set->about.without_output++;
    else if (kvpi_field_tokens(parser, "output_length", values[OUTPUT], &request.output_length) !=
             0)
        return -1;
    const size_t block = (size_t)parser->set->about.trace_block;
    const size_t n_whole = (size_t)request.input_length / block;
    const bool has_rest = (size_t)request.input_length % block != 0;
    const bool has_last = has_rest && count_items(parser, values[IDS]) > n_whole;
    snprintf(why, sizeof why, "input_length is %" PRId32 ", block_size is %zu",
             request.input_length, block);
    if (kvpi_field_ids(parser, values[IDS], 0, n_whole + has_last, why, &request.n_ids) != 0)
        return -1;
    return kvpi_requests_add(parser, &request);
}

/* ------------------------------------------------------------------------- Bailian, token ids */

int kvpi_requests_bailian(kvpi_requests_parser *parser, const char *text)
{
    static const char *const names[FIELDS] = {"timestamp", "input_length", "output_length",
                                              "hash_ids",  "chat_id",      "parent_chat_id"};
    kvpi_value values[FIELDS];
    kvpi_request request = kvpi_requests_blank();
    kvpi_turn *before = NULL;
    uint64_t chat = 0, parent = 0;
    if (kvpi_fields_find(parser, text, names, FIELDS, values) != 0 ||
        kvpi_field_time(parser, "timestamp", values[TIME], &request.timestamp_us) != 0 ||
        kvpi_field_name(parser, "chat_id", values[SESSION], &chat) != 0 ||
        kvpi_field_name(parser, "parent_chat_id", values[PARENT], &parent) != 0 ||
        read_content(parser, values, &request) != 0)
        return -1;
    if (strncmp(values[PARENT], "-1", 2) != 0 &&
        kvpi_turns_find(parser, parent, false, &before) != 0)
        return -1;
    return add_turn(parser, &request, chat, before);
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
