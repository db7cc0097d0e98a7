/* Owns the requests of a trace and the walk through its files: lines, format, order.
 *
 * Refuses what it cannot read exactly; a trace is taken whole or not at all, because a figure over
 * half a trace looks like a figure over all of it.
 *
 * Memory: three arrays that grow, and nothing per request.
 *
 *   requests  [n]  ids, input_ids, output_ids point into the arrays below
 *   ids       [.]  the ids of all requests, in the order of the files; prompts that begin with
 *                  one another have a place in common
 *   tokens    [.]  the spelled-out tokens of all requests, input then output, in the same order
 *
 * While files are read the arrays move, so requests are stored without pointers: ids by the place
 * of the first, tokens by counts, which say where each request's part begins.
 */
#include "tool/requests/requests.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool/input/file_kind.h"
#include "tool/input/folder.h"
#include "tool/input/input.h"
#include "tool/input/lines.h"
#include "tool/requests/formats/formats.h"
#include "tool/requests/parse.h"

/* How often the progress hook is called: rare enough to cost nothing. */
#define PROGRESS_BYTES 65536u

/* Fewer requests than this may come as fast as they like. */
#define MIN_TO_JUDGE 1000u

/* No trace has as many input tokens a second: some thousand accelerators compute as many. */
#define MAX_TOKENS_PER_SECOND 1e7

#define MAX_SPAN_US (INT64_C(3) * 366 * 86400 * 1000000)

void kvpi_requests_options_init(kvpi_requests_options *options)
{
    *options =
        (kvpi_requests_options){.format = KVPI_REQUESTS_FORMATS, .unit = KVPI_REQUESTS_UNITS};
}

/* ---------------------------------------------------------------------------------- a line */

static int json_line(kvpi_requests_parser *parser, kvpi_lines *lines, const char *text,
                     size_t n_given)
{
    bool is_cut = false;
    const bool is_first = !parser->in_file;
    const bool is_last = lines->is_end && lines->begin == lines->n_bytes;
    const int result = kvpi_requests_json_line(parser, text, &is_cut);
    if (result == 0 || !is_cut || !is_first || lines->is_wide || is_last)
        return result;
    kvpi_lines_widen(lines, n_given); /* an object over several lines, as programs print them */
    parser->line--;
    return 0;
}

static int content(kvpi_requests_parser *parser, kvpi_lines *lines, char *text, size_t n_given)
{
    if (parser->in_file)
        return parser->kind->is_csv ? kvpi_requests_csv_line(parser, text)
                                    : json_line(parser, lines, text, n_given);
    if (*text == '[')
        return kvpi_requests_fail(parser, "a JSON array, expected one JSON object a line");
    return *text == '{' ? json_line(parser, lines, text, n_given)
                        : kvpi_requests_csv_header(parser, text);
}

/* One line as it stands in the file: leaves out the byte order mark, the line end and blanks
 * around, and passes over lines with nothing on them. */
static int any_line(kvpi_requests_parser *parser, kvpi_lines *lines, char *text, size_t n_bytes)
{
    const size_t n_given = n_bytes;
    const char *nul = memchr(text, '\0', n_bytes);
    const char *kind = parser->line == 1 ? kvpi_file_kind(lines->text, lines->n_bytes) : NULL;
    if (kind != NULL)
        return kvpi_requests_fail(parser, "the file is %s", kind);
    if (nul != NULL)
        return kvpi_requests_fail(parser, "a NUL byte in column %zu, expected text",
                                  (size_t)(nul - text) + 1);
    if (parser->line == 1 && n_bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        text += 3;
        n_bytes -= 3;
    }
    while (n_bytes > 0 && strchr(" \t\r\n", text[n_bytes - 1]) != NULL)
        n_bytes--;
    while (n_bytes > 0 && strchr(" \t", *text) != NULL) {
        text++;
        n_bytes--;
    }
    if (n_bytes == 0)
        return 0;
    const char behind = text[n_bytes];
    text[n_bytes] = '\0';
    const int result = content(parser, lines, text, n_given);
    text[n_bytes] = behind;
    return result;
}

/* ---------------------------------------------------------------------------------- a file */

static void report_progress(const kvpi_requests_options *options, uint64_t before, uint64_t now)
{
    if (options->on_progress != NULL && before / PROGRESS_BYTES != now / PROGRESS_BYTES)
        options->on_progress(options->progress_context, now);
}

static int all_lines(kvpi_requests_parser *parser, kvpi_lines *lines)
{
    char *text = NULL;
    size_t n_bytes = 0;
    uint64_t before = 0;
    int next, result = 0;
    while (result == 0 && (next = kvpi_lines_next(lines, &text, &n_bytes)) != KVPI_LINES_END) {
        parser->line++;
        report_progress(parser->options, before, parser->budget.read);
        before = parser->budget.read;
        if (next == KVPI_LINES_NO_MEMORY)
            result = kvpi_requests_no_memory(parser);
        else if (next == KVPI_LINES_TOO_LONG)
            result = kvpi_requests_fail(parser,
                                        "longer than %" PRIu64 " MiB, expected a request a line "
                                        "(--max-memory)",
                                        kvpi_lines_max(lines) >> 20);
        else if (next == KVPI_LINES_UNREADABLE)
            result = kvpi_requests_fail(parser, "cannot read: %s", strerror(errno));
        else if (next == KVPI_LINES_DAMAGED)
            result = kvpi_requests_fail(parser, "%s", lines->from.wrong);
        else
            result = any_line(parser, lines, text, n_bytes);
    }
    return result;
}

static int refuse_nothing(kvpi_requests_parser *parser, size_t n_before)
{
    if (parser->set->n > n_before)
        return 0;
    if (parser->line == 0) {
        parser->line = 1;
        return kvpi_requests_fail(parser, "the file is empty, expected a request a line");
    }
    return kvpi_requests_fail(parser, "the file has no requests, expected one a line");
}

static int keep_path(kvpi_requests_parser *parser)
{
    kvpi_requests *set = parser->set;
    const size_t n_bytes = strlen(parser->path) + 1;
    char **paths = kvpi_budget_grow(&parser->budget, set->paths, set->n_paths, &set->paths_capacity,
                                    sizeof *paths);
    if (paths == NULL)
        return kvpi_requests_no_memory(parser);
    set->paths = paths;
    paths[set->n_paths] = kvpi_budget_realloc(&parser->budget, NULL, 0, n_bytes);
    if (paths[set->n_paths] == NULL)
        return kvpi_requests_no_memory(parser);
    memcpy(paths[set->n_paths++], parser->path, n_bytes);
    return 0;
}

static int text_file(kvpi_requests_parser *parser, FILE *file)
{
    kvpi_lines lines = {.from = {.file = file, .budget = &parser->budget},
                        .budget = &parser->budget};
    parser->line = 0;
    parser->in_file = false;
    const int result = all_lines(parser, &lines);
    kvpi_lines_close(&lines);
    return result;
}

static int read_file(kvpi_requests_parser *parser)
{
    kvpi_input input;
    const size_t n_before = parser->set->n;
    if (!kvpi_input_open(&input, parser->path, true)) {
        snprintf(parser->error->text, sizeof parser->error->text, "%.300s: %s", parser->path,
                 input.why);
        return -1;
    }
    int result = keep_path(parser);
    if (result == 0)
        result = kvpi_requests_is_recording(&input) ? kvpi_requests_recording(parser, &input)
                                                    : text_file(parser, input.file);
    if (result == 0)
        result = refuse_nothing(parser, n_before);
    kvpi_input_close(&input);
    parser->set->about.files++;
    return result;
}

/* A file, or all of a folder. */
static int read_path(kvpi_requests_parser *parser, const char *path)
{
    kvpi_folder folder = {0};
    parser->path = path;
    int result = kvpi_folder_list(&folder, path);
    if (result == 0)
        return read_file(parser);
    if (result < 0)
        snprintf(parser->error->text, sizeof parser->error->text, "%.300s: out of memory", path);
    else if (folder.n == 0)
        snprintf(parser->error->text, sizeof parser->error->text,
                 "%.300s: no traces in this folder, expected files whose names end in .json, "
                 ".jsonl or .csv, perhaps with .gz or .zst, or in .kvprec",
                 path);
    result = result < 0 || folder.n == 0 ? -1 : 0;
    for (size_t i = 0; i < folder.n && result == 0; i++) {
        parser->path = folder.paths[i];
        result = read_file(parser);
    }
    kvpi_folder_free(&folder);
    return result;
}

/* ------------------------------------------------------------------------------------ all */

static void set_pointers(kvpi_requests *set)
{
    const int32_t *tokens = set->tokens;
    for (size_t i = 0; i < set->n; i++) {
        kvpi_request *request = &set->requests[i];
        request->ids = set->ids == NULL ? NULL : set->ids + request->first_id;
        request->input_ids = tokens;
        request->output_ids = tokens == NULL ? NULL : tokens + request->n_input_ids;
        tokens = tokens == NULL ? NULL : request->output_ids + request->n_output_ids;
        request->file = set->n_paths > 1 ? request->file : NULL;
    }
}

/* The number breaks ties, so that the order is total and qsort's instability cannot show. */
static int compare_requests(const void *left, const void *right)
{
    const kvpi_request *a = left, *b = right;
    if (a->timestamp_us != b->timestamp_us)
        return a->timestamp_us < b->timestamp_us ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
}

static void sort_requests(kvpi_requests *set)
{
    for (size_t i = 1; i < set->n; i++) {
        if (set->requests[i - 1].timestamp_us <= set->requests[i].timestamp_us)
            continue;
        qsort(set->requests, set->n, sizeof *set->requests, compare_requests);
        return;
    }
}

/* Who follows whom, by pointers; and who continues whom, of several the first in the files. */
static int link_turns(kvpi_requests_parser *parser)
{
    kvpi_requests *set = parser->set;
    uint32_t *places = kvpi_budget_realloc(&parser->budget, NULL, 0, set->n * sizeof *places);
    if (places == NULL)
        return kvpi_requests_no_memory(parser);
    for (size_t i = 0; i < set->n; i++)
        places[set->requests[i].number] = (uint32_t)i;
    for (size_t number = 0; number < set->n; number++) {
        kvpi_request *request = &set->requests[places[number]];
        if (request->after == KVPI_REQUESTS_NONE)
            continue;
        kvpi_request *before = &set->requests[places[request->after]];
        request->before = before;
        if (request->shared > 0 && before->next == NULL)
            before->next = request;
    }
    free(places);
    kvpi_budget_give(&parser->budget, set->n * sizeof *places);
    return 0;
}

static int refuse(kvpi_requests_parser *parser, const char *format, ...) KVPI_PRINTF(2, 3);

/* Of the whole trace, not of a line. */
static int refuse(kvpi_requests_parser *parser, const char *format, ...)
{
    va_list arguments;
    const size_t room = sizeof parser->error->text;
    const int n = snprintf(parser->error->text, room, "%.120s: ", parser->path);
    va_start(arguments, format);
    vsnprintf(parser->error->text + n, room - (size_t)n, format, arguments);
    va_end(arguments);
    return -1;
}

/* Times of another unit than was taken show by a day's traffic within a second, or a second's
 * within years. */
static int judge_times(kvpi_requests_parser *parser)
{
    const kvpi_requests *set = parser->set;
    const kvpi_requests_unit unit = kvpi_requests_unit_of(parser);
    const int64_t span_us = set->requests[set->n - 1].timestamp_us - set->requests[0].timestamp_us;
    const double seconds = (double)span_us / 1e6;
    double tokens = 0;
    if (unit == KVPI_REQUESTS_DATES || parser->options->unit != KVPI_REQUESTS_UNITS)
        return 0;
    for (size_t i = 0; i < set->n; i++)
        tokens += set->requests[i].input_length;
    if (unit < KVPI_REQUESTS_NS && span_us > MAX_SPAN_US)
        return refuse(parser,
                      "the times are %.3g years of traffic, read as %s, which cannot be "
                      "right: are these %s? (--time-unit %s; --time-unit %s, if they are right)",
                      seconds / (365.25 * 86400), kvpi_requests_unit_words(unit),
                      kvpi_requests_unit_words(unit + 1), kvpi_requests_units[unit + 1],
                      kvpi_requests_units[unit]);
    if (unit > KVPI_REQUESTS_SECONDS && set->n >= MIN_TO_JUDGE && span_us > 0 &&
        tokens > MAX_TOKENS_PER_SECOND * seconds)
        return refuse(parser,
                      "%zu requests of %.3g tokens come within %.3g s, read as %s, which "
                      "cannot be right: are these %s? (--time-unit %s; --time-unit %s, if they are "
                      "right)",
                      set->n, tokens, seconds, kvpi_requests_unit_words(unit),
                      kvpi_requests_unit_words(unit - 1), kvpi_requests_units[unit - 1],
                      kvpi_requests_units[unit]);
    return 0;
}

static int finish(kvpi_requests_parser *parser)
{
    kvpi_requests *set = parser->set;
    assert(parser->kind != NULL); /* a file was read */
    set->format = (kvpi_requests_format)(parser->kind - kvpi_requests_kinds);
    if (!parser->kind->sessions)
        set->about.sessions = 0;
    if (set->format == KVPI_REQUESTS_MOONCAKE && parser->followed >= 2 && parser->continuing == 0 &&
        !parser->options->lenient)
        return refuse(parser,
                      "in no session a turn begins with the ids of the turn before: this "
                      "is Dynamo's delta form (mooncake-delta), in which turns have only what is "
                      "new; expected whole prompts (--lenient takes them as they are)");
    set_pointers(set);
    sort_requests(set);
    if (judge_times(parser) != 0)
        return -1;
    return parser->kind->sessions ? link_turns(parser) : 0;
}

int kvpi_requests_read_all(char *const paths[], size_t n_paths,
                           const kvpi_requests_options *options, kvpi_requests_error *error,
                           kvpi_requests **out)
{
    kvpi_requests_parser parser = {.path = paths[0], .options = options, .error = error};
    int result = 0;
    parser.budget.max = options->max_memory;
    parser.arrays.budget = &parser.budget;
    parser.set = calloc(1, sizeof *parser.set);
    if (parser.set == NULL)
        return kvpi_requests_no_memory(&parser);
    for (size_t i = 0; i < n_paths && result == 0; i++)
        result = read_path(&parser, paths[i]);
    parser.path = paths[0];
    if (result == 0)
        result = finish(&parser);
    free(parser.turns);
    kvpi_number_arrays_free(&parser.arrays);
    if (result != 0) {
        kvpi_requests_free(parser.set);
        return -1;
    }
    *out = parser.set;
    return 0;
}

int kvpi_requests_read(const char *path, const kvpi_requests_options *options,
                       kvpi_requests_error *error, kvpi_requests **out)
{
    char copy[4096];
    char *const paths[] = {copy};
    if (strlen(path) >= sizeof copy) {
        snprintf(error->text, sizeof error->text, "%.100s...: a name of %zu bytes", path,
                 strlen(path));
        return -1;
    }
    snprintf(copy, sizeof copy, "%s", path);
    return kvpi_requests_read_all(paths, 1, options, error, out);
}

void kvpi_requests_free(kvpi_requests *set)
{
    if (set == NULL)
        return;
    free(set->requests);
    free(set->ids);
    free(set->tokens);
    free(set->joins);
    free(set->agains);
    for (size_t i = 0; i < set->n_paths; i++)
        free(set->paths[i]);
    free(set->paths);
    free(set);
}

size_t kvpi_requests_count(const kvpi_requests *set)
{
    return set->n;
}

const kvpi_request *kvpi_requests_get(const kvpi_requests *set, size_t place)
{
    return &set->requests[place];
}

kvpi_requests_format kvpi_requests_get_format(const kvpi_requests *set)
{
    return set->format;
}

size_t kvpi_requests_mended(const kvpi_requests *set)
{
    return set->n_mended;
}

const kvpi_requests_about *kvpi_requests_describe(const kvpi_requests *set)
{
    return &set->about;
}

const kvpi_requests_again *kvpi_requests_agains(const kvpi_requests *set, size_t *n)
{
    *n = set->n_agains;
    return set->agains;
}

const kvpi_requests_join *kvpi_requests_joins(const kvpi_requests *set)
{
    return set->joins;
}
