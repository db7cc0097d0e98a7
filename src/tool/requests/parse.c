/* parse: what parsers add to a set, and how they give up. */
#include "tool/requests/parse.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Numbers of requests are the seeds of unshared tokens, which have 30 bits (tokens.c). */
#define MAX_REQUESTS (UINT32_C(1) << 30)

static void replace_control_bytes(char *text)
{
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = '?';
}

int kvpi_requests_fail(kvpi_requests_parser *parser, const char *format, ...)
{
    char message[1000];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    replace_control_bytes(message);
    /* The message is what matters: a path that is too long loses its end, not the message. */
    size_t room = sizeof parser->error->text - strlen(message) - 32;
    snprintf(parser->error->text, sizeof parser->error->text, "%.*s:%llu: %s", (int)room,
             strcmp(parser->path, "-") == 0 ? "standard input" : parser->path,
             (unsigned long long)parser->line, message);
    return -1;
}

int kvpi_requests_wrong(kvpi_requests_parser *parser, const char *name, kvpi_value value,
                        const char *format, ...)
{
    char expected[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(expected, sizeof expected, format, arguments);
    va_end(arguments);
    return kvpi_requests_fail(parser, "%s%s is %s, expected %s", parser->where, name,
                              kvpi_value_say(value).of, expected);
}

int kvpi_requests_no_memory(kvpi_requests_parser *parser)
{
    const kvpi_budget *budget = &parser->budget;
    if (!budget->is_over)
        return kvpi_requests_fail(parser, "out of memory");
    const uint64_t kib = kvpi_budget_limit(budget) >> 10;
    return kvpi_requests_fail(
        parser, "needs more memory than %" PRIu64 " %s%s (--max-memory)",
        kib < 1024 ? kib : kib >> 10, kib < 1024 ? "KiB" : "MiB",
        budget->max == 0 ? ", which is 64 MiB and 16 times what was read so far" : "");
}

int kvpi_requests_reserve_ids(kvpi_requests_parser *parser, size_t n)
{
    kvpi_requests *set = parser->set;
    while (set->ids_capacity - set->n_ids < n) {
        uint64_t *ids = kvpi_budget_grow(&parser->budget, set->ids, set->ids_capacity,
                                         &set->ids_capacity, sizeof *ids);
        if (ids == NULL)
            return kvpi_requests_no_memory(parser);
        set->ids = ids;
    }
    return 0;
}

int kvpi_requests_add_id(kvpi_requests_parser *parser, uint64_t id)
{
    kvpi_requests *set = parser->set;
    if (kvpi_requests_reserve_ids(parser, 1) != 0)
        return -1;
    set->ids[set->n_ids++] = id;
    return 0;
}

int kvpi_requests_add_token(kvpi_requests_parser *parser, int32_t token)
{
    kvpi_requests *set = parser->set;
    int32_t *tokens = kvpi_budget_grow(&parser->budget, set->tokens, set->n_tokens,
                                       &set->tokens_capacity, sizeof *tokens);
    if (tokens == NULL)
        return kvpi_requests_no_memory(parser);
    set->tokens = tokens;
    tokens[set->n_tokens++] = token;
    return 0;
}

int kvpi_requests_add_join(kvpi_requests_parser *parser, uint32_t number, uint32_t *list)
{
    kvpi_requests *set = parser->set;
    kvpi_requests_join *joins = kvpi_budget_grow(&parser->budget, set->joins, set->n_joins,
                                                 &set->joins_capacity, sizeof *joins);
    if (joins == NULL)
        return kvpi_requests_no_memory(parser);
    set->joins = joins;
    joins[set->n_joins] = (kvpi_requests_join){number, *list};
    *list = (uint32_t)set->n_joins++;
    return 0;
}

/* The place of the request that is added among those of its line. */
static uint32_t place_of(const kvpi_requests_parser *parser)
{
    const kvpi_requests *set = parser->set;
    const kvpi_request *before = set->n > 0 ? &set->requests[set->n - 1] : NULL;
    if (parser->kind == NULL || !parser->kind->several)
        return 0;
    return before != NULL && before->line == parser->line &&
                   before->file == set->paths[set->n_paths - 1]
               ? before->of_line + 1
               : 1;
}

/* The ids that were added last are the request's. Where they begin with all of those before them,
 * or are a part of these, as prompts of a conversation are, both lie in one place. */
static size_t place_ids(kvpi_requests *set, size_t n)
{
    const size_t first = set->n_ids - n, before = first - set->newest_ids;
    const size_t both = n < before ? n : before;
    uint64_t *ids = set->ids;
    if (both == 0 || memcmp(ids + set->newest_ids, ids + first, both * sizeof *ids) != 0)
        return set->newest_ids = first;
    memmove(ids + first, ids + first + both, (n - both) * sizeof *ids);
    set->n_ids -= both;
    return set->newest_ids;
}

int kvpi_requests_add(kvpi_requests_parser *parser, const kvpi_request *request)
{
    kvpi_requests *set = parser->set;
    if (set->n == MAX_REQUESTS)
        return kvpi_requests_fail(parser, "more than %lu requests", (unsigned long)MAX_REQUESTS);
    kvpi_request *requests =
        kvpi_budget_grow(&parser->budget, set->requests, set->n, &set->capacity, sizeof *requests);
    if (requests == NULL)
        return kvpi_requests_no_memory(parser);
    set->requests = requests;
    requests[set->n] = *request;
    requests[set->n].first_id = place_ids(set, request->n_ids);
    requests[set->n].number = (uint32_t)set->n;
    requests[set->n].line = parser->line;
    requests[set->n].of_line = place_of(parser);
    requests[set->n].file = set->paths[set->n_paths - 1];
    set->n++;
    return 0;
}

/* Does the list, with ", " between names, have it? */
static bool is_listed(const char *list, const char *name, size_t n_bytes)
{
    while (*list != '\0') {
        const size_t n = strcspn(list, ",");
        if (n == n_bytes && memcmp(list, name, n) == 0)
            return true;
        list += n;
        list += strspn(list, ", ");
    }
    return false;
}

void kvpi_requests_note_unused(void *context, const char *name, size_t n_bytes)
{
    kvpi_requests_parser *parser = context;
    char *unused = parser->set->about.unused;
    const size_t used = strlen(unused), room = sizeof parser->set->about.unused - used;
    if (parser->noted_unused || is_listed(unused, name, n_bytes))
        return;
    parser->noted_unused = n_bytes + sizeof ",  ..." > room;
    snprintf(unused + used, room, "%s%.*s", used == 0 ? "" : ", ",
             parser->noted_unused ? 3 : (int)n_bytes, parser->noted_unused ? "..." : name);
    replace_control_bytes(unused);
}

/* ------------------------------------------------------------------------------------- units */

const char *const kvpi_requests_units[] = {"s", "ms", "us", "ns", NULL};

uint64_t kvpi_requests_unit_ns(kvpi_requests_unit unit)
{
    static const uint64_t ns[] = {1000000000, 1000000, 1000, 1};
    return unit < KVPI_REQUESTS_DATES ? ns[unit] : 0;
}

const char *kvpi_requests_unit_words(kvpi_requests_unit unit)
{
    static const char *const words[] = {"seconds", "milliseconds", "microseconds", "nanoseconds",
                                        "dates"};
    return words[unit];
}

kvpi_requests_unit kvpi_requests_unit_of(const kvpi_requests_parser *parser)
{
    return parser->options->unit < KVPI_REQUESTS_DATES ? parser->options->unit : parser->kind->unit;
}

const char *kvpi_requests_format_name(kvpi_requests_format format)
{
    return format < KVPI_REQUESTS_FORMATS ? kvpi_requests_kinds[format].title : "unknown";
}
