/* Owns the table of formats, and which of them a file has.
 *
 * A format is recognised by the fields of its first object, or by the columns of its header; the
 * rows are tried in order, those that need most before those that need little. Forms of other tools
 * that look alike and are not read are refused by name.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tool/requests/formats/formats.h"

const kvpi_requests_kind kvpi_requests_kinds[KVPI_REQUESTS_FORMATS] = {
    [KVPI_REQUESTS_WEKA] = {.name = "weka",
                            .title = "Weka conversations",
                            .needs = "block_size requests",
                            .unit = KVPI_REQUESTS_SECONDS,
                            .says_block = true,
                            .sessions = true,
                            .several = true,
                            .bound = "a lower bound across conversations: ids say nothing of what "
                                     "they share, such as tools and system prompts",
                            .read = kvpi_requests_weka},
    [KVPI_REQUESTS_TRACELAB] = {.name = "tracelab",
                                .title = "TraceLab rounds",
                                .needs = "session_id round_index input_tokens_total",
                                .unit = KVPI_REQUESTS_DATES,
                                .sessions = true,
                                .bound = "an upper bound within sessions: a prompt is taken to "
                                         "begin with all of the round before; across sessions a "
                                         "lower bound: nothing is known to be shared",
                                .read = kvpi_requests_tracelab},
    [KVPI_REQUESTS_BAILIAN] = {.name = "bailian",
                               .title = "Bailian JSONL",
                               .needs = "chat_id parent_chat_id input_length",
                               .unit = KVPI_REQUESTS_SECONDS,
                               .block = 16,
                               .sessions = true,
                               .read = kvpi_requests_bailian},
    [KVPI_REQUESTS_TOKENS] = {.name = "tokens",
                              .title = "token JSONL",
                              .needs = "input_tok_ids|input_toks|arrival_time_ns",
                              .unit = KVPI_REQUESTS_NS,
                              .read = kvpi_requests_tokens},
    [KVPI_REQUESTS_DYNAMO] = {.name = "dynamo",
                              .title = "Dynamo request trace",
                              .needs = "schema event_type",
                              .unit = KVPI_REQUESTS_MS,
                              .says_block = true,
                              .ids = "input_sequence_hashes",
                              .sessions = true,
                              .read = kvpi_requests_dynamo},
    [KVPI_REQUESTS_APPLIED] = {.name = "applied_compute",
                               .title = "Applied Compute sessions",
                               .needs = "num_turns input_prompt_length assistant_response_length",
                               .unit = KVPI_REQUESTS_SECONDS,
                               .sessions = true,
                               .several = true,
                               .bound = "an upper bound within sessions: a prompt begins with all "
                                        "of the turn before; across sessions a lower bound: "
                                        "nothing is known to be shared. All sessions start at 0",
                               .read = kvpi_requests_applied},
    [KVPI_REQUESTS_AGENTIC] = {.name = "agentic_mooncake",
                               .title = "agentic Mooncake JSONL",
                               .needs = "request_id input_length|input_tokens "
                                        "wait_for|branches|tool_wait_ms|prefix_reset|"
                                        "request_kind|tool_events",
                               .unit = KVPI_REQUESTS_MS,
                               .block = 512,
                               .asks_block = true,
                               .sessions = true,
                               .read = kvpi_requests_agentic},
    [KVPI_REQUESTS_KVCACHE] = {.name = "kvcache",
                               .title = "KVCache.AI JSONL",
                               .needs = "block_size hash_ids input_length",
                               .unit = KVPI_REQUESTS_SECONDS,
                               .says_block = true,
                               .read = kvpi_requests_kvcache},
    [KVPI_REQUESTS_MOONCAKE] = {.name = "mooncake",
                                .title = "Mooncake JSONL",
                                .needs = "input_length|input_tokens "
                                         "timestamp|created_time|session_id|hash_ids|output_length",
                                .unit = KVPI_REQUESTS_MS,
                                .block = 512,
                                .asks_block = true,
                                .sessions = true,
                                .read = kvpi_requests_mooncake},
    [KVPI_REQUESTS_AZURE] = {.name = "azure",
                             .title = "Azure CSV",
                             .needs = "TIMESTAMP ContextTokens GeneratedTokens",
                             .unit = KVPI_REQUESTS_DATES,
                             .is_csv = true,
                             .bound = "not known: the format says nothing of content, so that "
                                      "requests share nothing"},
    [KVPI_REQUESTS_BURSTGPT] = {.name = "burstgpt",
                                .title = "BurstGPT CSV",
                                .needs = "Timestamp Request\ttokens Response\ttokens",
                                .unit = KVPI_REQUESTS_SECONDS,
                                .is_csv = true,
                                .sessions = true,
                                .bound = "not known: the format says nothing of content, so that "
                                         "requests share nothing"},
    [KVPI_REQUESTS_RECORDING] = {.name = "recording",
                                 .title = "recording",
                                 .unit = KVPI_REQUESTS_US,
                                 .sessions = true,
                                 .is_binary = true},
};

const char *const kvpi_requests_names[] = {
    "weka",     "tracelab",        "bailian",          "tokens",
    "dynamo",   "applied_compute", "agentic_mooncake", "kvcache",
    "mooncake", "azure",           "burstgpt",         "recording",
    NULL};

/* Forms that are not read, by what their first objects have. */
static const struct {
    const char *needs, *what;
} refused[] = {
    {"input pre_gap output_length", "of LMCache's agents, whose prompts are text"},
    {"text_input|messages|prompt|conversations|text", "text, which needs the model's tokenizer"},
};

/* ------------------------------------------------------------------------- what is there */

typedef bool has_name(void *context, const char *name, size_t n_bytes);

/* A blank in a name is written as a tab. */
static bool has_one(const char *word, size_t n_bytes, has_name *has, void *context)
{
    char name[40];
    snprintf(name, sizeof name, "%.*s", (int)n_bytes, word);
    for (char *at = name; *at != '\0'; at++)
        *at = *at == '\t' ? ' ' : *at;
    return has(context, name, n_bytes);
}

static bool matches(const char *needs, has_name *has, void *context)
{
    bool found = false;
    for (;;) {
        const size_t n = strcspn(needs, "| ");
        found = has_one(needs, n, has, context) || found;
        needs += n;
        if (*needs != '|' && !found)
            return false;
        if (*needs == '\0')
            return true;
        found = *needs == '|' && found;
        needs++;
    }
}

bool kvpi_requests_matches(const kvpi_requests_kind *kind, has_name *has, void *context)
{
    return matches(kind->needs, has, context);
}

/* ------------------------------------------------------------------------------------- JSON */

/* The names of an object, as they stand in its text, whose arrays were read before. */
typedef struct names {
    const char *text;
    kvpi_number_arrays *arrays;
} names;

static void compare_name(void *context, const char *name, size_t n_bytes)
{
    const char **wanted = context;
    if (*wanted != NULL && strlen(*wanted) == n_bytes && memcmp(*wanted, name, n_bytes) == 0)
        *wanted = NULL;
}

static bool object_has(void *context, const char *name, size_t n_bytes)
{
    const names *of = context;
    const char *wanted = name;
    kvpi_scan scan = {.at = of->text, .arrays = of->arrays};
    (void)n_bytes;
    return kvpi_scan_fields(&scan, NULL, 0, NULL, compare_name, &wanted) && wanted == NULL;
}

static int refuse_object(kvpi_requests_parser *parser, names *of)
{
    char all[800] = "";
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (matches(refused[i].needs, object_has, of))
            return kvpi_requests_fail(parser,
                                      "this is a trace %s: not read; expected numbers of "
                                      "tokens and ids (kvpager replay --help)",
                                      refused[i].what);
    for (size_t i = 0; i < KVPI_REQUESTS_FORMATS; i++) {
        const size_t used = strlen(all);
        if (!kvpi_requests_kinds[i].is_csv && !kvpi_requests_kinds[i].is_binary)
            snprintf(all + used, sizeof all - used, "%s%s (%s)", used == 0 ? "" : ", ",
                     kvpi_requests_kinds[i].name, kvpi_requests_kinds[i].needs);
    }
    return kvpi_requests_fail(parser, "no request in this object, expected the fields of %s", all);
}

static int decide(kvpi_requests_parser *parser, const char *text)
{
    names of = {text, &parser->arrays};
    if (parser->options->format < KVPI_REQUESTS_FORMATS) {
        parser->kind = &kvpi_requests_kinds[parser->options->format];
        return parser->kind->is_csv || parser->kind->is_binary
                   ? kvpi_requests_fail(parser, "a JSON object, expected the header of a %s trace",
                                        parser->kind->title)
                   : 0;
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (matches(refused[i].needs, object_has, &of))
            return refuse_object(parser, &of);
    for (size_t i = 0; i < KVPI_REQUESTS_FORMATS; i++) {
        const kvpi_requests_kind *kind = &kvpi_requests_kinds[i];
        if (kind->is_csv || kind->is_binary || !kvpi_requests_matches(kind, object_has, &of))
            continue;
        parser->kind = kind;
        return 0;
    }
    return refuse_object(parser, &of);
}

/* What the format and the options say of the block that an id stands for. */
int kvpi_requests_begin(kvpi_requests_parser *parser)
{
    const kvpi_requests_kind *kind = parser->kind;
    const int32_t asked = parser->options->trace_block;
    kvpi_requests_about *about = &parser->set->about;
    parser->in_file = true;
    if (about->unit != NULL)
        return 0;
    about->unit = kvpi_requests_unit_words(kvpi_requests_unit_of(parser));
    if (parser->options->unit < KVPI_REQUESTS_DATES &&
        (kind->unit == KVPI_REQUESTS_DATES || kind->is_binary))
        return kvpi_requests_fail(parser, "times are %s (%s): leave out --time-unit",
                                  kvpi_requests_unit_words(kind->unit), kind->title);
    about->bound = kind->bound;
    about->trace_block = kind->block;
    if (asked != 0 && (kind->asks_block || kind->says_block))
        about->trace_block = asked;
    if (kind->block == 0 || asked == 0 || about->trace_block == asked)
        return 0;
    return kvpi_requests_fail(parser,
                              "an id of a %s trace stands for %" PRId32 " tokens, and "
                              "--trace-block is %" PRId32,
                              kind->title, kind->block, asked);
}

/* In a text of several lines. */
static size_t count_lines(const char *text, const char *end, const char **begin)
{
    size_t n = 0;
    *begin = text;
    for (; text < end; text++)
        if (*text == '\n') {
            *begin = text + 1;
            n++;
        }
    return n;
}

static int refuse_text(kvpi_requests_parser *parser, const char *text, const kvpi_scan *scan)
{
    const char *begin = text;
    parser->line += count_lines(text, scan->at, &begin);
    return kvpi_requests_fail(parser,
                              "not valid JSON: %s in column %zu, expected one object a line",
                              scan->wrong, (size_t)(scan->at - begin) + 1);
}

int kvpi_requests_json_line(kvpi_requests_parser *parser, const char *text, bool *is_cut)
{
    kvpi_scan scan = {.at = text, .arrays = &parser->arrays, .is_first = true};
    kvpi_number_arrays_clear(&parser->arrays);
    *is_cut = false;
    if (*text != '{')
        return kvpi_requests_fail(parser, "the line is %s, expected a JSON object",
                                  *text == '[' ? "an array" : "no object");
    bool whole = kvpi_scan_skip(&scan);
    *is_cut = kvpi_scan_is_cut(&scan);
    if (whole) {
        kvpi_scan_blanks(&scan);
        whole = *scan.at == '\0';
        scan.wrong = "more behind the object";
    }
    if (!whole)
        return refuse_text(parser, text, &scan);
    if (!parser->in_file) {
        const kvpi_requests_kind *before = parser->kind;
        parser->kind = NULL;
        if (decide(parser, text) != 0)
            return -1;
        if (before != NULL && before != parser->kind)
            return kvpi_requests_fail(parser,
                                      "a trace in the format %s, expected %s as in the "
                                      "files before",
                                      parser->kind->name, before->name);
        if (kvpi_requests_begin(parser) != 0)
            return -1;
    }
    parser->line_mended = false;
    parser->where[0] = '\0';
    if (parser->kind->read(parser, text) != 0)
        return -1;
    parser->set->n_mended += parser->line_mended;
    return 0;
}
