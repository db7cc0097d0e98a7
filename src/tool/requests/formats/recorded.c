/* Reads a recording (tool/recording): what an engine or a proxy wrote.
 *
 * A block is named by its number, of the prompt and of the output behind it; the last block that
 * they fill partly has no name. Numbers of two recordings are of two keys, and have nothing in
 * common. A recording that was cut off is read up to there; one that is damaged is refused.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tool/recording/recording.h"
#include "tool/requests/formats/formats.h"

/* What is known as a sum is in pieces of so many blocks, but no more pieces than this. */
#define UNSEEN_BLOCKS 64
#define UNSEEN_PIECES 4096
/* In a set of so many requests they are fewer, so that a small file takes no memory without end. */
#define MANY_REQUESTS (UINT32_C(1) << 20)
#define FEW_PIECES    16

/* Offset in the bytes that the progress hook counts, and the budget. */
static void count_bytes(kvpi_requests_parser *parser, const kvpi_recording_reader *reader,
                        uint64_t n_ids)
{
    /* An id was read as a part of a run; unpacked it is these bytes. */
    parser->budget.read += n_ids * sizeof(uint64_t) + sizeof(kvpi_recorded);
    if (parser->options->on_progress != NULL && parser->line % 4096 == 0)
        parser->options->on_progress(parser->options->progress_context,
                                     kvpi_recording_offset(reader));
}

static int add_blocks(kvpi_requests_parser *parser, const kvpi_recorded *of)
{
    for (size_t i = 0; i < of->n_runs; i++)
        for (uint64_t k = 0; k < of->runs[i].n; k++)
            if (kvpi_requests_add_id(parser, parser->contents + of->runs[i].first + k) != 0)
                return -1;
    return 0;
}

/* The request before it in its session. */
static int follow(kvpi_requests_parser *parser, const kvpi_recorded *of, kvpi_request *request)
{
    kvpi_turn *turn = NULL;
    if (of->session == 0)
        return 0;
    const uint64_t name = kvpi_requests_mix(parser->set->about.files, of->session);
    if (kvpi_turns_find(parser, name, true, &turn) != 0)
        return -1;
    parser->set->about.sessions += turn->number == KVPI_REQUESTS_NONE;
    request->after = turn->number;
    turn->number = (uint32_t)parser->set->n;
    return 0;
}

/* Tokens of requests that no event told of: content that nothing else has, in pieces that make no
 * cache too small. */
static int add_unseen(kvpi_requests_parser *parser, const kvpi_recorded *of)
{
    kvpi_requests_about *about = &parser->set->about;
    const int64_t least = UNSEEN_BLOCKS * (int64_t)about->trace_block;
    const int64_t n_pieces = parser->set->n < MANY_REQUESTS ? UNSEEN_PIECES : FEW_PIECES;
    const int64_t most = of->input_tokens / n_pieces + 1;
    const int64_t piece = least > most ? least : most;
    about->unseen_tokens += (uint64_t)of->input_tokens;
    for (int64_t n = of->input_tokens; n > 0; n -= piece) {
        kvpi_request request = kvpi_requests_blank();
        request.timestamp_us = of->time_us;
        request.input_length = (int32_t)(n < piece ? n : piece);
        parser->budget.read += sizeof request;
        if (kvpi_requests_add(parser, &request) != 0)
            return -1;
    }
    return 0;
}

static int add_agains(kvpi_requests_parser *parser, const kvpi_recorded *of)
{
    kvpi_requests *set = parser->set;
    for (size_t i = 0; i < of->n_again; i++) {
        parser->budget.read += sizeof *set->agains;
        kvpi_requests_again *agains = kvpi_budget_grow(&parser->budget, set->agains, set->n_agains,
                                                       &set->agains_capacity, sizeof *agains);
        if (agains == NULL)
            return kvpi_requests_fail(parser, "out of memory");
        set->agains = agains;
        agains[set->n_agains++] =
            (kvpi_requests_again){of->again[i].depth, of->again[i].n, of->again[i].is_sure};
    }
    return 0;
}

static int add(kvpi_requests_parser *parser, const kvpi_recorded *of)
{
    kvpi_request request = kvpi_requests_blank();
    request.timestamp_us = of->time_us;
    request.input_length = (int32_t)of->input_tokens;
    request.output_length = (int32_t)of->output_tokens;
    request.n_ids = (uint32_t)of->n_blocks;
    request.names_output = true;
    if (of->last_us != KVPI_RECORDED_UNKNOWN)
        request.lasts_us = of->last_us;
    if (of->cached_tokens > 0)
        parser->set->about.cached_tokens += (uint64_t)of->cached_tokens;
    if (of->is_unseen)
        return add_unseen(parser, of);
    if (add_agains(parser, of) != 0)
        return -1;
    parser->set->about.without_ids +=
        of->n_blocks == 0 && of->input_tokens >= parser->set->about.trace_block;
    if (add_blocks(parser, of) != 0 || follow(parser, of, &request) != 0)
        return -1;
    return kvpi_requests_add(parser, &request);
}

static int all(kvpi_requests_parser *parser, kvpi_recording_reader *reader)
{
    kvpi_recorded of;
    kvpi_recording_error error;
    int result;
    kvpi_requests_about *about = &parser->set->about;
    while ((result = kvpi_recording_next(reader, &of, &error)) == KVPI_RECORDING_REQUEST) {
        parser->line++;
        count_bytes(parser, reader, of.n_blocks);
        if (add(parser, &of) != 0)
            return -1;
    }
    if (result == KVPI_RECORDING_WRONG)
        return kvpi_requests_fail(parser, "%s", error.text);
    const kvpi_recording_counts counts = kvpi_recording_counted(reader);
    parser->contents += counts.contents;
    about->cut += !kvpi_recording_is_whole(reader);
    about->lost += counts.lost;
    about->forgotten += counts.forgotten;
    const bool lacks = counts.lost + counts.unnumbered > 0;
    about->is_estimate = about->is_estimate || lacks || counts.forgotten > 0 || about->cut > 0;
    if (about->is_bounded && about->is_estimate)
        about->bound = "estimates, not bounds: the recording lacks requests, batches, or blocks";
    if (about->is_bounded)
        return 0;
    if (lacks)
        about->bound = "an estimate: the recording lacks requests, or blocks of them";
    else if (counts.forgotten > 0)
        about->bound = "a lower bound in caches of more blocks than the recording tells apart";
    return 0;
}

static int begin(kvpi_requests_parser *parser, const kvpi_recording_about *of)
{
    const kvpi_requests_kind *kind = &kvpi_requests_kinds[KVPI_REQUESTS_RECORDING];
    const int32_t before = parser->set->about.trace_block;
    const kvpi_requests_format asked = parser->options->format;
    if (asked != KVPI_REQUESTS_FORMATS && asked != KVPI_REQUESTS_RECORDING)
        return kvpi_requests_fail(parser, "a recording, expected a %s trace (--format)",
                                  kvpi_requests_kinds[asked].title);
    if (parser->kind != NULL && parser->kind != kind)
        return kvpi_requests_fail(parser,
                                  "a trace in the format %s, expected %s as in the files before",
                                  kind->name, parser->kind->name);
    if (parser->kind != NULL && before != of->block_tokens)
        return kvpi_requests_fail(
            parser, "block_tokens is %" PRId32 ", expected %" PRId32 " as in the files before",
            of->block_tokens, before);
    parser->kind = kind;
    if (kvpi_requests_begin(parser) != 0)
        return -1;
    parser->set->about.trace_block = of->block_tokens;
    parser->set->about.engine_blocks = parser->set->about.files > 0 ? 0 : of->engine_blocks;
    if (parser->set->about.is_bounded) /* as one of the files before */
        return 0;
    if (of->source == KVPI_RECORDING_PROXY)
        parser->set->about.bound =
            "exact for what prompts share; a lower bound where a prompt contains an earlier "
            "answer, whose blocks the proxy does not see";
    if (of->source == KVPI_RECORDING_LOOKUPS)
        parser->set->about.bound =
            "lengths in whole blocks, so shares are some points high where prompts are short; a "
            "prompt that repeats the one before it counts once";
    if (of->source != KVPI_RECORDING_EVENTS)
        return 0;
    parser->set->about.is_bounded = true;
    parser->set->about.bound =
        "lower bounds: what the engine hit as a whole is known as a sum only, "
        "and counts as new; kvpager mrc shows upper bounds, too";
    return 0;
}

bool kvpi_requests_is_recording(const kvpi_input *input)
{
    char first[KVPI_RECORDING_MAGIC_BYTES];
    if (input->is_regular)
        return kvpi_input_read_at(input, 0, first, sizeof first) &&
               memcmp(first, KVPI_RECORDING_MAGIC, sizeof first - 2) == 0; /* of any version */
    const int byte = getc(input->file); /* no other format begins so */
    return byte != EOF && ungetc(byte, input->file) != EOF && byte == KVPI_RECORDING_MAGIC[0];
}

int kvpi_requests_recording(kvpi_requests_parser *parser, const kvpi_input *input)
{
    kvpi_recording_reader *reader = NULL;
    kvpi_recording_error error;
    parser->line = 0;
    if (kvpi_recording_open(input->file, &reader, &error) != 0)
        return kvpi_requests_fail(parser, "%s", error.text);
    int result = begin(parser, kvpi_recording_describe(reader));
    if (result == 0)
        result = all(parser, reader);
    kvpi_recording_free(reader);
    return result;
}
