/* Reads one line of the JSONL formats.
 *
 * Owns the rules of both: which fields must be there, of what type, in what range, and that the
 * ids cover the length. Fields that are not named here are passed over.
 *
 *   Mooncake   timestamp (ms, a fraction is allowed), input_length, output_length,
 *              hash_ids: exactly ceil(input_length / trace_block)
 *   token      arrival_time_ns, input_toks, output_toks,
 *              input_tok_ids: exactly input_toks; output_tok_ids: exactly output_toks, optional
 */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "tool/requests/json_kind.h"
#include "tool/requests/parse.h"

/* 2^53 / 1000 seconds: microseconds stay exact in a double too. */
#define MAX_TIME_MS 9007199254740.0

/* Gives NULL, recorded, when the field is not there. */
static const json_t *get_field(kvpi_requests_parser *parser, const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    if (value == NULL)
        kvpi_requests_fail(parser, "no \"%s\", expected in every line of a %s trace", name,
                           kvpi_requests_format_name(parser->format));
    return value;
}

static int check_whole(kvpi_requests_parser *parser, const json_t *value, const char *name,
                       int64_t max)
{
    if (!json_is_integer(value))
        return kvpi_requests_fail(parser, "%s is %s, expected a whole number from 0 to %" PRId64,
                                  name, kvpi_json_kind(value), max);
    if (json_integer_value(value) < 0 || json_integer_value(value) > max)
        return kvpi_requests_fail(
            parser, "%s is %" JSON_INTEGER_FORMAT ", expected a whole number from 0 to %" PRId64,
            name, json_integer_value(value), max);
    return 0;
}

static int read_length(kvpi_requests_parser *parser, const json_t *object, const char *name,
                       int32_t *out)
{
    const json_t *value = get_field(parser, object, name);
    if (value == NULL || check_whole(parser, value, name, KVPI_REQUESTS_MAX_TOKENS) != 0)
        return -1;
    *out = (int32_t)json_integer_value(value);
    return 0;
}

/* Whole milliseconds stay exact; a fraction is rounded to the nearest microsecond. */
static int read_timestamp_ms(kvpi_requests_parser *parser, const json_t *object, int64_t *out_us)
{
    const json_t *value = get_field(parser, object, "timestamp");
    if (value == NULL)
        return -1;
    if (!json_is_number(value))
        return kvpi_requests_fail(parser, "timestamp is %s, expected milliseconds as a number",
                                  kvpi_json_kind(value));
    double ms = json_number_value(value);
    if (!(ms >= 0 && ms <= MAX_TIME_MS))
        return kvpi_requests_fail(parser, "timestamp is %g, expected milliseconds from 0 to %.0f",
                                  ms, MAX_TIME_MS);
    *out_us = json_is_integer(value) ? (int64_t)json_integer_value(value) * 1000
                                     : (int64_t)llround(ms * 1000);
    return 0;
}

/* Gives how many of `n_given` items to take for a length that needs `n_needed`. */
static int choose_count(kvpi_requests_parser *parser, const char *name, size_t n_given,
                        size_t n_needed, const char *why, size_t *out)
{
    *out = n_given < n_needed ? n_given : n_needed;
    if (n_given == n_needed)
        return 0;
    if (!parser->options->lenient)
        return kvpi_requests_fail(parser,
                                  "%s has %zu ids, expected exactly %zu%s (--lenient goes on)",
                                  name, n_given, n_needed, why);
    parser->line_mended = true;
    return 0;
}

static const json_t *get_array(kvpi_requests_parser *parser, const json_t *object, const char *name)
{
    const json_t *array = get_field(parser, object, name);
    if (array != NULL && !json_is_array(array)) {
        kvpi_requests_fail(parser, "%s is %s, expected an array of whole numbers", name,
                           kvpi_json_kind(array));
        return NULL;
    }
    return array;
}

static int add_block_ids(kvpi_requests_parser *parser, const json_t *array, size_t n)
{
    for (size_t i = 0; i < json_array_size(array); i++) {
        char name[48];
        const json_t *value = json_array_get(array, i);
        snprintf(name, sizeof name, "hash_ids[%zu]", i);
        if (check_whole(parser, value, name, INT64_MAX) != 0)
            return -1;
        if (i < n && kvpi_requests_add_id(parser, (int64_t)json_integer_value(value)) != 0)
            return -1;
    }
    return 0;
}

static int read_mooncake(kvpi_requests_parser *parser, const json_t *object)
{
    kvpi_request request = {0};
    if (read_timestamp_ms(parser, object, &request.timestamp_us) != 0 ||
        read_length(parser, object, "input_length", &request.input_length) != 0 ||
        read_length(parser, object, "output_length", &request.output_length) != 0)
        return -1;
    const json_t *ids = get_array(parser, object, "hash_ids");
    if (ids == NULL)
        return -1;
    size_t block = (size_t)parser->options->trace_block;
    size_t n_needed = ((size_t)request.input_length + block - 1) / block;
    char why[80];
    snprintf(why, sizeof why, ": input_length is %" PRId32 ", a trace block has %zu tokens",
             request.input_length, block);
    if (choose_count(parser, "hash_ids", json_array_size(ids), n_needed, why, &request.n_ids) != 0)
        return -1;
    if (add_block_ids(parser, ids, request.n_ids) != 0)
        return -1;
    return kvpi_requests_add(parser, &request);
}

/* Adds the tokens of one array, of which `length` are needed. */
static int add_tokens(kvpi_requests_parser *parser, const json_t *array, const char *name,
                      int32_t length, size_t *out_n)
{
    if (choose_count(parser, name, json_array_size(array), (size_t)length, "", out_n) != 0)
        return -1;
    for (size_t i = 0; i < *out_n; i++) {
        char item[48];
        const json_t *value = json_array_get(array, i);
        snprintf(item, sizeof item, "%s[%zu]", name, i);
        if (check_whole(parser, value, item, INT32_MAX) != 0 ||
            kvpi_requests_add_token(parser, (int32_t)json_integer_value(value)) != 0)
            return -1;
    }
    return 0;
}

static int read_token_ids(kvpi_requests_parser *parser, const json_t *object, kvpi_request *request)
{
    const json_t *ids = get_array(parser, object, "input_tok_ids");
    if (ids == NULL ||
        add_tokens(parser, ids, "input_tok_ids", request->input_length, &request->n_input_ids) != 0)
        return -1;
    if (json_object_get(object, "output_tok_ids") == NULL)
        return 0;
    ids = get_array(parser, object, "output_tok_ids");
    return ids == NULL ? -1
                       : add_tokens(parser, ids, "output_tok_ids", request->output_length,
                                    &request->n_output_ids);
}

static int read_tokens(kvpi_requests_parser *parser, const json_t *object)
{
    kvpi_request request = {0};
    const json_t *time = get_field(parser, object, "arrival_time_ns");
    if (time == NULL || check_whole(parser, time, "arrival_time_ns", INT64_MAX) != 0)
        return -1;
    request.timestamp_us = (int64_t)(json_integer_value(time) / 1000);
    if (read_length(parser, object, "input_toks", &request.input_length) != 0 ||
        read_length(parser, object, "output_toks", &request.output_length) != 0 ||
        read_token_ids(parser, object, &request) != 0)
        return -1;
    return kvpi_requests_add(parser, &request);
}

static int decide_format(kvpi_requests_parser *parser, const json_t *object)
{
    static const char *const mooncake[] = {"hash_ids", "timestamp", "input_length"};
    static const char *const tokens[] = {"input_tok_ids", "input_toks", "arrival_time_ns"};
    for (size_t i = 0; i < sizeof mooncake / sizeof *mooncake; i++) {
        bool is_mooncake = json_object_get(object, mooncake[i]) != NULL;
        if (!is_mooncake && json_object_get(object, tokens[i]) == NULL)
            continue;
        parser->format = is_mooncake ? KVPI_REQUESTS_MOONCAKE : KVPI_REQUESTS_TOKENS;
        parser->format_known = true;
        return 0;
    }
    return kvpi_requests_fail(parser,
                              "no request in this object, expected \"timestamp\", "
                              "\"input_length\", \"output_length\", \"hash_ids\" (Mooncake) "
                              "or \"input_toks\", \"input_tok_ids\" and so on (token JSONL)");
}

static int read_object(kvpi_requests_parser *parser, const json_t *object)
{
    if (!json_is_object(object))
        return kvpi_requests_fail(parser, "the line is %s, expected a JSON object",
                                  kvpi_json_kind(object));
    if (!parser->format_known && decide_format(parser, object) != 0)
        return -1;
    parser->line_mended = false;
    int result = parser->format == KVPI_REQUESTS_MOONCAKE ? read_mooncake(parser, object)
                                                          : read_tokens(parser, object);
    if (result == 0 && parser->line_mended)
        kvpi_requests_note_mended(parser);
    return result;
}

static int read_line(kvpi_requests_parser *parser, const char *text, size_t n_bytes)
{
    json_error_t wrong;
    json_t *object = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &wrong);
    if (object == NULL && (parser->budget.is_over || wrong.text[0] == '\0'))
        return kvpi_requests_no_memory(parser);
    if (object == NULL)
        return kvpi_requests_fail(parser,
                                  "not valid JSON: %.200s (column %d), expected one object a line",
                                  wrong.text, wrong.column);
    int result = read_object(parser, object);
    json_decref(object);
    return result;
}

int kvpi_requests_jsonl_line(kvpi_requests_parser *parser, const char *text, size_t n_bytes)
{
    kvpi_budget_json(&parser->budget);
    const int result = read_line(parser, text, n_bytes);
    kvpi_budget_json_end();
    return result;
}
