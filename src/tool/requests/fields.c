/* fields: reads the fields of JSON formats where they stand. Each function records what is wrong by
 * the field's name, its value and what was expected.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tool/requests/parse.h"

/* 2^53 microseconds: they stay exact in a double too. */
#define MAX_TIME_US (INT64_C(1) << 53)

int kvpi_fields_find(kvpi_requests_parser *parser, const char *text, const char *const names[],
                     size_t n, kvpi_value values[])
{
    kvpi_scan scan = {.at = text, .arrays = &parser->arrays};
    (void)kvpi_scan_fields(&scan, names, n, values, kvpi_requests_note_unused, parser);
    parser->behind = scan.at;
    if (scan.wrong == NULL)
        return 0;
    return kvpi_requests_fail(parser,
                              "%snot valid JSON: %s in column %zu, expected each field once",
                              parser->where, scan.wrong, (size_t)(scan.at - text) + 1);
}

bool kvpi_field_is_there(kvpi_value value)
{
    return value != NULL && strncmp(value, "null", 4) != 0;
}

int kvpi_field_need(kvpi_requests_parser *parser, const char *name, kvpi_value value)
{
    return value != NULL ? 0
                         : kvpi_requests_fail(parser, "no \"%s%s\", expected in every request (%s)",
                                              parser->where, name, parser->kind->title);
}

int kvpi_field_tokens(kvpi_requests_parser *parser, const char *name, kvpi_value value,
                      int32_t *out)
{
    uint64_t whole = 0;
    if (kvpi_field_need(parser, name, value) != 0)
        return -1;
    if (!kvpi_value_whole(value, &whole) || whole > KVPI_REQUESTS_MAX_TOKENS)
        return kvpi_requests_wrong(parser, name, value, "a whole number from 0 to %" PRId32,
                                   KVPI_REQUESTS_MAX_TOKENS);
    *out = (int32_t)whole;
    return 0;
}

int kvpi_field_whole(kvpi_requests_parser *parser, const char *name, kvpi_value value,
                     uint64_t *out)
{
    if (kvpi_field_need(parser, name, value) != 0)
        return -1;
    return kvpi_value_whole(value, out)
               ? 0
               : kvpi_requests_wrong(parser, name, value, "a whole number from 0 to %" PRIu64,
                                     UINT64_MAX);
}

/* What is too large may be right in the next finer unit. */
static int refuse_time(kvpi_requests_parser *parser, const char *name, kvpi_value value)
{
    const kvpi_requests_unit unit = kvpi_requests_unit_of(parser);
    double number = 0;
    char finer[64] = "";
    if (kvpi_value_number(value, &number) && number > 0 && unit < KVPI_REQUESTS_NS)
        snprintf(finer, sizeof finer, ": are these %s (--time-unit %s)?",
                 kvpi_requests_unit_words(unit + 1), kvpi_requests_units[unit + 1]);
    return kvpi_requests_wrong(
        parser, name, value, "%s from 0 to %.0f%s", kvpi_requests_unit_words(unit),
        (double)MAX_TIME_US * 1000 / (double)kvpi_requests_unit_ns(unit), finer);
}

/* Whole numbers stay exact; a fraction is rounded to the nearest microsecond. */
int kvpi_field_time(kvpi_requests_parser *parser, const char *name, kvpi_value value,
                    int64_t *out_us)
{
    const uint64_t ns = kvpi_requests_unit_ns(kvpi_requests_unit_of(parser));
    double number = 0;
    uint64_t whole = 0;
    if (kvpi_field_need(parser, name, value) != 0)
        return -1;
    if (!kvpi_value_number(value, &number) || !(number >= 0) ||
        number * (double)ns > (double)MAX_TIME_US * 1000)
        return refuse_time(parser, name, value);
    if (kvpi_value_whole(value, &whole))
        *out_us = (int64_t)(ns >= 1000 ? whole * (ns / 1000) : whole / (1000 / ns));
    else
        *out_us = (int64_t)llround(number * ((double)ns / 1000));
    return 0;
}

/* ------------------------------------------------------------------------------------------ ids */

/* The finalizer of splitmix64. */
uint64_t kvpi_requests_mix(uint64_t a, uint64_t b)
{
    uint64_t x = a + (b + 1) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Eight bytes at a time, the last ones with their number. */
uint64_t kvpi_requests_hash(const char *text, size_t n_bytes)
{
    uint64_t hash = n_bytes;
    for (size_t i = 0; i < n_bytes; i += 8) {
        uint64_t piece = 0;
        for (size_t k = i; k < i + 8 && k < n_bytes; k++)
            piece = piece << 8 | (unsigned char)text[k];
        hash = kvpi_requests_mix(hash, piece);
    }
    return hash;
}

static const char *ids_name(const kvpi_requests_parser *parser)
{
    return parser->kind->ids != NULL ? parser->kind->ids : "hash_ids";
}

static uint64_t id_within(uint64_t scope, uint64_t id)
{
    return scope == 0 ? id : kvpi_requests_mix(scope, id);
}

/* Ids that were read when the line was checked, as nearly all are. */
static int add_known(kvpi_requests_parser *parser, const kvpi_number_array *array, uint64_t scope)
{
    kvpi_requests *set = parser->set;
    const uint64_t *numbers = parser->arrays.numbers + array->first;
    if (kvpi_requests_reserve_ids(parser, array->n) != 0)
        return -1;
    uint64_t *ids = set->ids + set->n_ids;
    for (size_t i = 0; i < array->n; i++)
        ids[i] = id_within(scope, numbers[i]);
    set->n_ids += array->n;
    return 0;
}

static int add_ids(kvpi_requests_parser *parser, kvpi_value array, uint64_t scope, size_t *out_n)
{
    const kvpi_number_array *known = kvpi_number_arrays_find(&parser->arrays, array);
    size_t n = 0;
    if (known != NULL) {
        *out_n = known->n;
        return add_known(parser, known, scope);
    }
    for (kvpi_value item = kvpi_array_first(array); item != NULL; item = kvpi_array_next(item)) {
        uint64_t id = 0;
        if (!kvpi_value_whole(item, &id)) {
            char name[40];
            snprintf(name, sizeof name, "%s[%zu]", ids_name(parser), n);
            return kvpi_requests_wrong(parser, name, item, "a whole number from 0 to %" PRIu64,
                                       UINT64_MAX);
        }
        if (kvpi_requests_add_id(parser, id_within(scope, id)) != 0)
            return -1;
        n++;
    }
    *out_n = n;
    return 0;
}

int kvpi_field_ids(kvpi_requests_parser *parser, kvpi_value value, uint64_t scope, size_t n_needed,
                   const char *why, uint32_t *out_n)
{
    size_t n = 0;
    *out_n = 0;
    if (!kvpi_field_is_there(value)) {
        parser->set->about.without_ids += n_needed > 0;
        return 0;
    }
    if (*value != '[')
        return kvpi_requests_wrong(parser, ids_name(parser), value, "an array of whole numbers");
    if (add_ids(parser, value, scope, &n) != 0)
        return -1;
    if (n != n_needed && !parser->options->lenient)
        return kvpi_requests_fail(parser,
                                  "%s%s has %zu ids, expected exactly %zu: %s "
                                  "(--lenient goes on)",
                                  parser->where, ids_name(parser), n, n_needed, why);
    parser->line_mended = parser->line_mended || n != n_needed;
    if (n > n_needed)
        parser->set->n_ids -= n - n_needed;
    *out_n = (uint32_t)(n < n_needed ? n : n_needed);
    return 0;
}

int kvpi_field_block(kvpi_requests_parser *parser, const char *name, kvpi_value value)
{
    kvpi_requests_about *about = &parser->set->about;
    uint64_t block = 0;
    if (kvpi_field_need(parser, name, value) != 0)
        return -1;
    if (!kvpi_value_whole(value, &block) || block == 0 || block > KVPI_REQUESTS_MAX_TRACE_BLOCK)
        return kvpi_requests_wrong(parser, name, value, "a whole number from 1 to %" PRId32,
                                   KVPI_REQUESTS_MAX_TRACE_BLOCK);
    if (about->trace_block != 0 && (uint64_t)about->trace_block != block)
        return kvpi_requests_wrong(parser, name, value, "%" PRId32 " as before (--trace-block)",
                                   about->trace_block);
    about->trace_block = (int32_t)block;
    return 0;
}

int kvpi_field_name(kvpi_requests_parser *parser, const char *name, kvpi_value value, uint64_t *out)
{
    size_t n = 0;
    if (kvpi_field_need(parser, name, value) != 0)
        return -1;
    const char *text = kvpi_value_text(value, &n);
    if (text == NULL && strchr("-0123456789", *value) == NULL)
        return kvpi_requests_wrong(parser, name, value, "a name or a number");
    if (text == NULL) {
        text = value;
        n = (size_t)(kvpi_value_end(value) - value);
    }
    *out = kvpi_requests_hash(text, n);
    return 0;
}
