/* Reads TraceLab's rounds: a call of a model in a session of an agent, an object each.
 *
 *   session_id, round_index (ascends in a session), model, input_tokens_total, prefix_tokens (what
 *   the provider read from its cache), output_tokens, reasoning_output_tokens (null: 0),
 *   timing_events[] of event_type and timestamp
 *
 * There are no ids. A prompt is taken to begin with all of the round before, but what the model
 * thought; where it is shorter, history was compacted, and it begins with what the provider had. A
 * round starts when its last tool result, or the user's message, was there.
 */
#include <inttypes.h>
#include <string.h>

#include "tool/requests/formats/formats.h"

enum { SESSION, ROUND, MODEL, IN, CACHED, OUT, THOUGHT, EVENTS, FIELDS };

static const char *const names[FIELDS] = {"session_id",
                                          "round_index",
                                          "model",
                                          "input_tokens_total",
                                          "prefix_tokens",
                                          "output_tokens",
                                          "reasoning_output_tokens",
                                          "timing_events"};

static bool is_text(kvpi_value value, const char *text)
{
    size_t n = 0;
    const char *found = value == NULL ? NULL : kvpi_value_text(value, &n);
    return found != NULL && n == strlen(text) && memcmp(found, text, n) == 0;
}

static int read_event(kvpi_requests_parser *parser, kvpi_value event, bool *is_input,
                      int64_t *out_us)
{
    static const char *const of_event[] = {"event_type", "timestamp"};
    kvpi_value values[2];
    kvpi_scan scan = {.at = event};
    if (!kvpi_scan_fields(&scan, of_event, 2, values, NULL, NULL))
        return kvpi_requests_wrong(parser, "timing_events", event, "objects with each field once");
    if (kvpi_field_need(parser, "timing_events[].timestamp", values[1]) != 0)
        return -1;
    if (*values[1] != '"' || !kvpi_date_time(values[1] + 1, out_us))
        return kvpi_requests_wrong(parser, "timing_events[].timestamp", values[1],
                                   "a time such as \"2026-06-01T05:40:20.151Z\"");
    *is_input = is_text(values[0], "user_message") || is_text(values[0], "tool_result");
    return 0;
}

/* It starts with the latest input before what the model did first, or without one with that; it
 * lasts to what the model did last. */
static int read_times(kvpi_requests_parser *parser, kvpi_value events, kvpi_request *request)
{
    bool is_first = true, has_acted = false;
    int64_t end_us = 0;
    if (kvpi_field_need(parser, names[EVENTS], events) != 0)
        return -1;
    if (*events != '[' || kvpi_array_first(events) == NULL)
        return kvpi_requests_wrong(parser, names[EVENTS], events, "an array with events");
    for (kvpi_value item = kvpi_array_first(events); item != NULL; item = kvpi_array_next(item)) {
        bool is_input = false;
        int64_t us = 0;
        if (read_event(parser, item, &is_input, &us) != 0)
            return -1;
        if (is_first || (is_input && !has_acted && us > request->timestamp_us))
            request->timestamp_us = us;
        if (!is_input && (!has_acted || us > end_us))
            end_us = us;
        has_acted = has_acted || !is_input;
        is_first = false;
    }
    if (has_acted && end_us >= request->timestamp_us)
        request->lasts_us = end_us - request->timestamp_us;
    return 0;
}

/* How much of the round before the prompt begins with. */
static int32_t shared_with(const kvpi_requests_parser *parser, const kvpi_request *request,
                           const kvpi_turn *before, int32_t cached)
{
    const kvpi_request *earlier = &parser->set->requests[before->number];
    int64_t all = (int64_t)earlier->input_length + earlier->output_length;
    int64_t shared = request->input_length < earlier->input_length ? cached : all - before->spare;
    shared = shared < all ? shared : all;
    return (int32_t)(shared < request->input_length ? shared : request->input_length);
}

static int follow(kvpi_requests_parser *parser, kvpi_value values[], kvpi_request *request,
                  const kvpi_turn *turn, int32_t cached)
{
    uint64_t session = 0;
    kvpi_turn *before = NULL;
    if (kvpi_field_name(parser, names[SESSION], values[SESSION], &session) != 0 ||
        kvpi_turns_find(parser, session, true, &before) != 0)
        return -1;
    request->after = before->number;
    if (before->number == KVPI_REQUESTS_NONE) {
        parser->set->about.sessions++;
    } else {
        if (turn->round <= before->round)
            return kvpi_requests_wrong(parser, names[ROUND], values[ROUND],
                                       "more than %" PRIu32 ", that of the round before",
                                       before->round);
        if (turn->model == before->model)
            request->shared = shared_with(parser, request, before, cached);
        parser->set->about.joined +=
            request->input_length >= parser->set->requests[before->number].input_length;
    }
    *before = *turn;
    before->name = session;
    before->number = (uint32_t)parser->set->n;
    return 0;
}

int kvpi_requests_tracelab(kvpi_requests_parser *parser, const char *text)
{
    kvpi_value values[FIELDS];
    kvpi_request request = kvpi_requests_blank();
    kvpi_turn turn = {.number = KVPI_REQUESTS_NONE};
    int32_t cached = 0, thought = 0;
    uint64_t round = 0;
    size_t n = 0;
    if (kvpi_fields_find(parser, text, names, FIELDS, values) != 0)
        return -1;
    parser->noted_unused = true;
    if (kvpi_field_whole(parser, names[ROUND], values[ROUND], &round) != 0 ||
        kvpi_field_tokens(parser, names[IN], values[IN], &request.input_length) != 0 ||
        kvpi_field_tokens(parser, names[OUT], values[OUT], &request.output_length) != 0 ||
        kvpi_field_tokens(parser, names[CACHED], values[CACHED], &cached) != 0 ||
        (kvpi_field_is_there(values[THOUGHT]) &&
         kvpi_field_tokens(parser, names[THOUGHT], values[THOUGHT], &thought) != 0) ||
        read_times(parser, values[EVENTS], &request) != 0)
        return -1;
    if (round >= UINT32_MAX)
        return kvpi_requests_wrong(parser, names[ROUND], values[ROUND], "less than 2^32");
    if (thought > request.output_length)
        return kvpi_requests_wrong(parser, names[THOUGHT], values[THOUGHT],
                                   "at most %" PRId32 ", that of output_tokens",
                                   request.output_length);
    const char *model = values[MODEL] == NULL ? NULL : kvpi_value_text(values[MODEL], &n);
    turn.model = model == NULL || parser->options->merge_models ? 0 : kvpi_requests_hash(model, n);
    turn.round = (uint32_t)round;
    turn.spare = thought;
    parser->set->about.cached_tokens += (uint64_t)cached;
    if (follow(parser, values, &request, &turn, cached) != 0)
        return -1;
    return kvpi_requests_add(parser, &request);
}
