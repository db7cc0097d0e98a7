/* Reads Weka's conversations, as AgentX records them: an object each.
 *
 *   block_size, hash_id_scope ("local"), requests[] of
 *     a request    t (s), model, in, out, hash_ids: exactly floor(in / block_size); api_time (s)
 *     a subagent   type "subagent", t (s) of its END, duration_ms (null where the parent does not
 *                  wait for it), requests[] with t from its start
 *
 * An id means something within its conversation and model only: ids run on where a conversation
 * changes its model, whose KV is another.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tool/requests/formats/formats.h"

/* Agents that start agents. */
#define MAX_DEPTH 8u

enum { T, TYPE, MODEL, IN, OUT, IDS, REQUESTS, DURATION, TOOK, FIELDS };

static const char *const names[FIELDS] = {"t",        "type",     "model",       "in",      "out",
                                          "hash_ids", "requests", "duration_ms", "api_time"};

/* Whose requests they are. */
typedef struct agent {
    uint64_t conversation;
    int64_t start_us;
    unsigned depth;
    kvpi_turn before;
    uint32_t joins; /* inner agents for which its next request waits */
} agent;

static int add_request(kvpi_requests_parser *parser, kvpi_value values[], agent *of)
{
    const int32_t block = parser->set->about.trace_block;
    kvpi_request request = kvpi_requests_blank();
    kvpi_turn turn = {0};
    char why[80];
    size_t n = 0;
    const char *model = values[MODEL] == NULL ? NULL : kvpi_value_text(values[MODEL], &n);
    if (model != NULL && !parser->options->merge_models)
        turn.model = kvpi_requests_hash(model, n);
    if (kvpi_field_time(parser, "t", values[T], &request.timestamp_us) != 0 ||
        kvpi_field_tokens(parser, "in", values[IN], &request.input_length) != 0)
        return -1;
    if (kvpi_field_is_there(values[TOOK]) &&
        kvpi_field_time(parser, "api_time", values[TOOK], &request.lasts_us) != 0)
        return -1;
    request.timestamp_us += of->start_us;
    request.after = of->before.number;
    request.joins = of->joins;
    of->joins = KVPI_REQUESTS_NONE;
    if (!kvpi_field_is_there(values[OUT]))
        parser->set->about.without_output++;
    else if (kvpi_field_tokens(parser, "out", values[OUT], &request.output_length) != 0)
        return -1;
    snprintf(why, sizeof why, "in is %" PRId32 ", and a block has %" PRId32 " tokens",
             request.input_length, block);
    if (kvpi_field_ids(parser, values[IDS], kvpi_requests_mix(of->conversation, turn.model),
                       (size_t)(request.input_length / block), why, &request.n_ids) != 0)
        return -1;
    /* The first request of an inner agent comes after its parent's and continues nothing. */
    if (of->before.number != KVPI_REQUESTS_NONE && of->before.round == of->depth)
        kvpi_turns_follow(parser, &request, &of->before);
    turn.number = (uint32_t)parser->set->n;
    turn.round = of->depth;
    of->before = turn;
    return kvpi_requests_add(parser, &request);
}

static int read_requests(kvpi_requests_parser *parser, kvpi_value array, agent *of);

static int read_agent(kvpi_requests_parser *parser, kvpi_value values[], agent *parent)
{
    agent inner = *parent;
    int64_t end_us = 0;
    double duration_ms = 0;
    if (kvpi_field_time(parser, "t", values[T], &end_us) != 0)
        return -1;
    if (kvpi_field_is_there(values[DURATION]) &&
        (!kvpi_value_number(values[DURATION], &duration_ms) ||
         !(duration_ms >= 0 && duration_ms < 1e13)))
        return kvpi_requests_wrong(parser, "duration_ms", values[DURATION],
                                   "milliseconds from 0 to 1e13");
    inner.start_us += end_us - (int64_t)(duration_ms * 1000);
    inner.depth++;
    if (inner.depth > MAX_DEPTH)
        return kvpi_requests_fail(parser, "%srequests: agents stand more than %u deep",
                                  parser->where, MAX_DEPTH);
    inner.joins = KVPI_REQUESTS_NONE;
    const size_t n_before = parser->set->n;
    if (read_requests(parser, values[REQUESTS], &inner) != 0)
        return -1;
    if (!kvpi_field_is_there(values[DURATION]) || parser->set->n == n_before)
        return 0; /* no request waits */
    return kvpi_requests_add_join(parser, inner.before.number, &parent->joins);
}

/* Gives where the entry ends. */
static int read_entry(kvpi_requests_parser *parser, kvpi_value entry, agent *of,
                      const char **out_end)
{
    kvpi_value values[FIELDS];
    size_t n = 0;
    if (*entry != '{') {
        parser->where[strlen(parser->where) - 1] = '\0'; /* the dot before a field */
        return kvpi_requests_wrong(parser, "", entry, "an object");
    }
    if (kvpi_fields_find(parser, entry, names, FIELDS, values) != 0)
        return -1;
    *out_end = parser->behind;
    const char *type = values[TYPE] == NULL ? NULL : kvpi_value_text(values[TYPE], &n);
    if (type != NULL && n == 8 && memcmp(type, "subagent", n) == 0)
        return read_agent(parser, values, of);
    return add_request(parser, values, of);
}

static int read_requests(kvpi_requests_parser *parser, kvpi_value array, agent *of)
{
    const size_t used = strlen(parser->where), room = sizeof parser->where - used;
    size_t i = 0;
    if (kvpi_field_need(parser, "requests", array) != 0)
        return -1;
    if (*array != '[')
        return kvpi_requests_wrong(parser, "requests", array, "an array of requests");
    for (kvpi_value item = kvpi_array_first(array); item != NULL;) {
        const char *end = item;
        snprintf(parser->where + used, room, "requests[%zu].", i++);
        if (read_entry(parser, item, of, &end) != 0)
            return -1;
        item = kvpi_array_after(end);
    }
    parser->where[used] = '\0';
    return 0;
}

int kvpi_requests_weka(kvpi_requests_parser *parser, const char *text)
{
    static const char *const of_conversation[] = {"requests", "block_size", "hash_id_scope",
                                                  "models"};
    kvpi_value values[4];
    size_t n = 0;
    agent whole = {.conversation = ++parser->set->about.sessions,
                   .before = {.number = KVPI_REQUESTS_NONE},
                   .joins = KVPI_REQUESTS_NONE};
    if (kvpi_fields_find(parser, text, of_conversation, 4, values) != 0 ||
        kvpi_field_block(parser, "block_size", values[1]) != 0)
        return -1;
    const char *scope = values[2] == NULL ? NULL : kvpi_value_text(values[2], &n);
    if (values[2] != NULL && (scope == NULL || n != 5 || memcmp(scope, "local", n) != 0))
        return kvpi_requests_wrong(parser, "hash_id_scope", values[2], "\"local\"");
    const int result = read_requests(parser, values[0], &whole);
    parser->noted_unused = true;
    return result;
}
