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
    char message[400];
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

int kvpi_requests_no_memory(kvpi_requests_parser *parser)
{
    const kvpi_budget *budget = &parser->budget;
    if (!budget->is_over)
        return kvpi_requests_fail(parser, "out of memory");
    return kvpi_requests_fail(
        parser, "needs more memory than %" PRIu64 " MiB%s (--max-memory)",
        kvpi_budget_limit(budget) >> 20,
        budget->max == 0 ? ", which is 64 MiB and 16 times what was read so far" : "");
}

int kvpi_requests_add_id(kvpi_requests_parser *parser, int64_t id)
{
    kvpi_requests *set = parser->set;
    int64_t *ids =
        kvpi_budget_grow(&parser->budget, set->ids, set->n_ids, &set->ids_capacity, sizeof *ids);
    if (ids == NULL)
        return kvpi_requests_no_memory(parser);
    set->ids = ids;
    ids[set->n_ids++] = id;
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
    requests[set->n].number = (uint32_t)set->n;
    requests[set->n].line = parser->line;
    set->n++;
    return 0;
}

void kvpi_requests_note_mended(kvpi_requests_parser *parser)
{
    parser->set->n_mended++;
}

const char *kvpi_requests_format_name(kvpi_requests_format format)
{
    switch (format) {
    case KVPI_REQUESTS_MOONCAKE: return "Mooncake JSONL";
    case KVPI_REQUESTS_TOKENS: return "token JSONL";
    case KVPI_REQUESTS_AZURE: return "Azure CSV";
    case KVPI_REQUESTS_BURSTGPT: return "BurstGPT CSV";
    }
    return "unknown";
}
