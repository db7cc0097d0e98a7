/* Reads two recordings of agents.
 *
 *   Dynamo     a record a line, alone or in `event`: schema dynamo.request.trace.v1, event_type. Of
 *              request_end: agent_context (session_id, parent_session_id), request with
 *              request_received_ms, total_time_ms, output_tokens, model, and replay:
 *              trace_block_size, input_length, input_sequence_hashes, ceil(input_length /
 *              trace_block_size) of them. Payloads and tools are passed over
 *   Applied    a session a line: input_prompt_length, and of num_turns each
 *   Compute    assistant_response_length, tool_call_output_length, tool_call_latency (s);
 *              final_assistant_response_length. A turn's prompt is that before, its response and
 *              the output of the tool; nothing says when a session begins
 *
 * Records of Dynamo come in the order of their ends. A session's first request waits for the last
 * one of its parent that had ended; what a parent waits for its children is in its gaps.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tool/requests/formats/formats.h"

#define SCHEMA "dynamo.request.trace.v1"

static bool is_text(kvpi_value value, const char *text)
{
    size_t n = 0;
    const char *found = value == NULL ? NULL : kvpi_value_text(value, &n);
    return found != NULL && strlen(text) == n && memcmp(found, text, n) == 0;
}

/* The fields of an object that is part of the line. */
static int find_in(kvpi_requests_parser *parser, const char *where, kvpi_value object,
                   const char *const names[], size_t n, kvpi_value values[])
{
    for (size_t i = 0; i < n; i++)
        values[i] = NULL;
    if (kvpi_field_need(parser, where, object) != 0)
        return -1;
    if (*object != '{')
        return kvpi_requests_wrong(parser, where, object, "an object");
    return kvpi_fields_find(parser, object, names, n, values);
}

/* -------------------------------------------------------------------------------------- Dynamo */

enum { SCHEMA_NAME, EVENT_TYPE, EVENT_TIME, CONTEXT, REQUEST, EVENT, RECORD_FIELDS };
enum { RECEIVED, TOOK, OUTPUT, MODEL, REPLAY, REQUEST_FIELDS };
enum { BLOCK, INPUT, IDS, REPLAY_FIELDS };

static const char *const of_record[RECORD_FIELDS] = {
    "schema", "event_type", "event_time_unix_ms", "agent_context", "request", "event"};
static const char *const of_request[REQUEST_FIELDS] = {"request_received_ms", "total_time_ms",
                                                       "output_tokens", "model", "replay"};
static const char *const of_replay[REPLAY_FIELDS] = {"trace_block_size", "input_length",
                                                     "input_sequence_hashes"};

/* Gives false for records that are no requests. */
static int find_record(kvpi_requests_parser *parser, const char *text, kvpi_value values[],
                       bool *is_request)
{
    if (kvpi_fields_find(parser, text, of_record, RECORD_FIELDS, values) != 0)
        return -1;
    if (values[EVENT] != NULL &&
        find_in(parser, "event", values[EVENT], of_record, RECORD_FIELDS, values) != 0)
        return -1;
    *is_request = is_text(values[EVENT_TYPE], "request_end");
    if (kvpi_field_need(parser, "event_type", values[EVENT_TYPE]) != 0)
        return -1;
    if (!*is_request && !is_text(values[EVENT_TYPE], "request_payload") &&
        !is_text(values[EVENT_TYPE], "tool_start") && !is_text(values[EVENT_TYPE], "tool_end") &&
        !is_text(values[EVENT_TYPE], "tool_error"))
        return kvpi_requests_wrong(parser, "event_type", values[EVENT_TYPE],
                                   "request_end, request_payload or a tool's");
    if (!is_text(values[SCHEMA_NAME], SCHEMA))
        return kvpi_field_need(parser, "schema", values[SCHEMA_NAME]) != 0
                   ? -1
                   : kvpi_requests_wrong(parser, "schema", values[SCHEMA_NAME], "\"%s\"", SCHEMA);
    return 0;
}

static int read_times(kvpi_requests_parser *parser, kvpi_value received, kvpi_value took,
                      kvpi_value ended, kvpi_request *request)
{
    int64_t end_us = 0;
    if (kvpi_field_time(parser, "request_received_ms", received, &request->timestamp_us) != 0)
        return -1;
    if (kvpi_field_is_there(took))
        return kvpi_field_time(parser, "total_time_ms", took, &request->lasts_us);
    parser->where[0] = '\0';
    if (kvpi_field_time(parser, "event_time_unix_ms", ended, &end_us) != 0)
        return -1;
    if (end_us >= request->timestamp_us)
        request->lasts_us = end_us - request->timestamp_us;
    return 0;
}

static int read_replay(kvpi_requests_parser *parser, kvpi_value replay, uint64_t model,
                       kvpi_request *request)
{
    kvpi_value values[REPLAY_FIELDS];
    char why[80];
    if (find_in(parser, "replay", replay, of_replay, REPLAY_FIELDS, values) != 0)
        return -1;
    snprintf(parser->where, sizeof parser->where, "request.replay.");
    if (kvpi_field_block(parser, of_replay[BLOCK], values[BLOCK]) != 0 ||
        kvpi_field_tokens(parser, of_replay[INPUT], values[INPUT], &request->input_length) != 0 ||
        kvpi_field_need(parser, of_replay[IDS], values[IDS]) != 0)
        return -1;
    const size_t block = (size_t)parser->set->about.trace_block;
    snprintf(why, sizeof why, "input_length is %" PRId32 ", trace_block_size is %zu",
             request->input_length, block);
    return kvpi_field_ids(parser, values[IDS], model,
                          ((size_t)request->input_length + block - 1) / block, why,
                          &request->n_ids);
}

/* The last request of this one and those before it in its session that had ended. */
static uint32_t ended_before(const kvpi_requests_parser *parser, uint32_t number, int64_t us)
{
    const kvpi_request *all = parser->set->requests;
    while (number != KVPI_REQUESTS_NONE &&
           all[number].timestamp_us + (all[number].lasts_us > 0 ? all[number].lasts_us : 0) > us)
        number = all[number].after;
    return number;
}

static int follow(kvpi_requests_parser *parser, kvpi_value context, kvpi_request *request)
{
    static const char *const names[] = {"session_id", "parent_session_id"};
    kvpi_value values[2];
    kvpi_turn *turn = NULL;
    uint64_t session = 0, parent = 0;
    if (!kvpi_field_is_there(context))
        return 0;
    parser->where[0] = '\0';
    if (find_in(parser, "agent_context", context, names, 2, values) != 0)
        return -1;
    snprintf(parser->where, sizeof parser->where, "agent_context.");
    if (kvpi_field_name(parser, names[0], values[0], &session) != 0)
        return -1;
    if (kvpi_field_is_there(values[1])) {
        if (kvpi_field_name(parser, names[1], values[1], &parent) != 0 ||
            kvpi_turns_find(parser, parent, false, &turn) != 0)
            return -1;
        request->after = ended_before(parser, turn->number, request->timestamp_us);
    }
    if (kvpi_turns_find(parser, session, true, &turn) != 0)
        return -1;
    if (turn->number != KVPI_REQUESTS_NONE &&
        parser->set->requests[turn->number].timestamp_us <= request->timestamp_us)
        kvpi_turns_follow(parser, request, turn);
    else if (request->after == KVPI_REQUESTS_NONE)
        parser->set->about.sessions++;
    turn->number = (uint32_t)parser->set->n;
    return 0;
}

int kvpi_requests_dynamo(kvpi_requests_parser *parser, const char *text)
{
    kvpi_value record[RECORD_FIELDS], values[REQUEST_FIELDS];
    kvpi_request request = kvpi_requests_blank();
    bool is_request = false;
    size_t n = 0;
    parser->noted_unused = true;
    if (find_record(parser, text, record, &is_request) != 0)
        return -1;
    if (!is_request)
        return 0;
    if (find_in(parser, "request", record[REQUEST], of_request, REQUEST_FIELDS, values) != 0)
        return -1;
    snprintf(parser->where, sizeof parser->where, "request.");
    const char *model = values[MODEL] == NULL || parser->options->merge_models
                            ? NULL
                            : kvpi_value_text(values[MODEL], &n);
    if (kvpi_field_tokens(parser, of_request[OUTPUT], values[OUTPUT], &request.output_length) !=
            0 ||
        read_replay(parser, values[REPLAY], model == NULL ? 0 : kvpi_requests_hash(model, n),
                    &request) != 0)
        return -1;
    snprintf(parser->where, sizeof parser->where, "request.");
    if (read_times(parser, values[RECEIVED], values[TOOK], record[EVENT_TIME], &request) != 0 ||
        follow(parser, record[CONTEXT], &request) != 0)
        return -1;
    return kvpi_requests_add(parser, &request);
}

/* ----------------------------------------------------------------------------- Applied Compute */

enum { TURNS, PROMPT, RESPONSES, TOOLS, WAITS, FINAL, SESSION_FIELDS };

static const char *const of_session[SESSION_FIELDS] = {"num_turns",
                                                       "input_prompt_length",
                                                       "assistant_response_length",
                                                       "tool_call_output_length",
                                                       "tool_call_latency",
                                                       "final_assistant_response_length"};

/* Where each list is. */
typedef struct lists {
    kvpi_value at[WAITS + 1];
} lists;

static int begin_lists(kvpi_requests_parser *parser, kvpi_value values[], uint64_t n_turns,
                       lists *of)
{
    for (size_t i = RESPONSES; i <= WAITS; i++) {
        uint64_t n = 0;
        if (kvpi_field_need(parser, of_session[i], values[i]) != 0)
            return -1;
        if (*values[i] != '[')
            return kvpi_requests_wrong(parser, of_session[i], values[i], "an array");
        of->at[i] = kvpi_array_first(values[i]);
        for (kvpi_value item = of->at[i]; item != NULL; item = kvpi_array_next(item))
            n++;
        if (n != n_turns)
            return kvpi_requests_fail(
                parser, "%s has %" PRIu64 " items, expected %" PRIu64 ", that of num_turns",
                of_session[i], n, n_turns);
    }
    return 0;
}

/* One request, which continues the one before. */
static int add_turn(kvpi_requests_parser *parser, kvpi_request *request, uint64_t turn)
{
    if (turn > 0) {
        const kvpi_request *before = &parser->set->requests[parser->set->n - 1];
        request->after = (uint32_t)parser->set->n - 1;
        request->shared = before->input_length + before->output_length;
        request->is_delay = true;
        parser->set->about.estimated++;
        parser->set->about.joined++;
    }
    return kvpi_requests_add(parser, request);
}

/* The items of a turn, and on to those of the next one. */
static int read_turn(kvpi_requests_parser *parser, lists *of, uint64_t turn, int32_t *out_response,
                     int32_t *out_tool, int64_t *out_us)
{
    char name[48];
    int result = 0;
    for (size_t i = RESPONSES; i <= WAITS && result == 0; i++) {
        snprintf(name, sizeof name, "%s[%" PRIu64 "]", of_session[i], turn);
        result = i == WAITS ? kvpi_field_time(parser, name, of->at[i], out_us)
                            : kvpi_field_tokens(parser, name, of->at[i],
                                                i == TOOLS ? out_tool : out_response);
        of->at[i] = kvpi_array_next(of->at[i]);
    }
    return result;
}

int kvpi_requests_applied(kvpi_requests_parser *parser, const char *text)
{
    kvpi_value values[SESSION_FIELDS];
    kvpi_request request = kvpi_requests_blank();
    uint64_t n_turns = 0;
    lists of = {{NULL}};
    if (kvpi_fields_find(parser, text, of_session, SESSION_FIELDS, values) != 0 ||
        kvpi_field_whole(parser, of_session[TURNS], values[TURNS], &n_turns) != 0 ||
        kvpi_field_tokens(parser, of_session[PROMPT], values[PROMPT], &request.input_length) != 0 ||
        begin_lists(parser, values, n_turns, &of) != 0)
        return -1;
    parser->set->about.sessions++;
    for (uint64_t turn = 0; turn < n_turns; turn++) {
        int32_t response = 0, tool = 0;
        int64_t wait_us = 0;
        if (read_turn(parser, &of, turn, &response, &tool, &wait_us) != 0)
            return -1;
        request.output_length = response;
        if (add_turn(parser, &request, turn) != 0)
            return -1;
        const int64_t longer = (int64_t)request.input_length + response + tool;
        if (longer > KVPI_REQUESTS_MAX_TOKENS)
            return kvpi_requests_fail(parser,
                                      "turn %" PRIu64 " has a prompt of %" PRId64
                                      " tokens, expected at most %" PRId32,
                                      turn + 1, longer, KVPI_REQUESTS_MAX_TOKENS);
        request.input_length = (int32_t)longer;
        request.timestamp_us += wait_us;
    }
    if (kvpi_field_tokens(parser, of_session[FINAL], values[FINAL], &request.output_length) != 0)
        return -1;
    return add_turn(parser, &request, n_turns);
}
