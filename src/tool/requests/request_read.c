/* Owns the requests of a trace and the walk through its file: lines, format, order.
 *
 * Refuses what it cannot read exactly; a trace is taken whole or not at all, because a figure over
 * half a trace looks like a figure over all of it.
 *
 * Memory: three arrays that grow, and nothing per request.
 *
 *   requests  [n]  ids, input_ids, output_ids point into the arrays below
 *   ids       [.]  the ids of all requests, in file order
 *   tokens    [.]  the spelled-out tokens of all requests, input then output, in file order
 *
 * While the file is read the arrays move, so requests are stored without pointers, only counts;
 * since everything is appended in file order, the counts say where each request's part begins.
 */
#include "tool/requests/requests.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool/input/input.h"
#include "tool/input/lines.h"
#include "tool/requests/parse.h"

/* How often the progress hook is called: rare enough to cost nothing. */
#define PROGRESS_BYTES 65536u

void kvpi_requests_options_init(kvpi_requests_options *options)
{
    *options = (kvpi_requests_options){.trace_block = 512};
}

static int first_line(kvpi_requests_parser *parser, char *text, size_t n_bytes)
{
    if (*text == '{')
        return kvpi_requests_jsonl_line(parser, text, n_bytes);
    if (*text == '[')
        return kvpi_requests_fail(parser, "a JSON array, expected one JSON object a line");
    return kvpi_requests_csv_header(parser, text);
}

static int data_line(kvpi_requests_parser *parser, char *text, size_t n_bytes)
{
    if (parser->format == KVPI_REQUESTS_MOONCAKE || parser->format == KVPI_REQUESTS_TOKENS)
        return kvpi_requests_jsonl_line(parser, text, n_bytes);
    return kvpi_requests_csv_line(parser, text);
}

/* One line as it stands in the file: drops the byte order mark, the line end and blanks around, and
 * passes over lines with nothing on them. */
static int any_line(kvpi_requests_parser *parser, char *text, size_t n_bytes)
{
    const char *nul = memchr(text, '\0', n_bytes);
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
    text[n_bytes] = '\0';
    if (n_bytes == 0)
        return 0;
    return parser->format_known ? data_line(parser, text, n_bytes)
                                : first_line(parser, text, n_bytes);
}

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
        else
            result = any_line(parser, text, n_bytes);
    }
    return result;
}

static int refuse_nothing(kvpi_requests_parser *parser)
{
    if (parser->set->n > 0)
        return 0;
    if (parser->line == 0) {
        parser->line = 1;
        return kvpi_requests_fail(parser, "the file is empty, expected a request a line");
    }
    return kvpi_requests_fail(parser, "the file has no requests, expected one a line");
}

static void set_pointers(kvpi_requests *set)
{
    const int64_t *ids = set->ids;
    const int32_t *tokens = set->tokens;
    for (size_t i = 0; i < set->n; i++) {
        kvpi_request *request = &set->requests[i];
        request->ids = ids;
        request->input_ids = tokens;
        request->output_ids = tokens == NULL ? NULL : tokens + request->n_input_ids;
        ids = ids == NULL ? NULL : ids + request->n_ids;
        tokens = tokens == NULL ? NULL : request->output_ids + request->n_output_ids;
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

static int read_file(kvpi_requests_parser *parser)
{
    kvpi_input input;
    if (!kvpi_input_open(&input, parser->path, true)) {
        snprintf(parser->error->text, sizeof parser->error->text, "%.300s: %s", parser->path,
                 input.why);
        return -1;
    }
    kvpi_lines lines = {.file = input.file, .budget = &parser->budget};
    int result = all_lines(parser, &lines);
    if (result == 0)
        result = refuse_nothing(parser);
    kvpi_lines_close(&lines);
    kvpi_input_close(&input);
    return result;
}

int kvpi_requests_read(const char *path, const kvpi_requests_options *options,
                       kvpi_requests_error *error, kvpi_requests **out)
{
    kvpi_requests_parser parser = {.path = path, .options = options, .error = error};
    parser.budget.max = options->max_memory;
    parser.set = calloc(1, sizeof *parser.set);
    if (parser.set == NULL)
        return kvpi_requests_no_memory(&parser);
    if (read_file(&parser) != 0) {
        kvpi_requests_free(parser.set);
        return -1;
    }
    parser.set->format = parser.format;
    set_pointers(parser.set);
    sort_requests(parser.set);
    *out = parser.set;
    return 0;
}

void kvpi_requests_free(kvpi_requests *set)
{
    if (set == NULL)
        return;
    free(set->requests);
    free(set->ids);
    free(set->tokens);
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
