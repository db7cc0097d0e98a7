/* kvpager events: what is in a recording, as JSON lines; of one that is still written, as it comes;
 * and whether it is right.
 */
#define _POSIX_C_SOURCE 200809L /* nanosleep */
#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include <time.h>

#include "tool/args.h"
#include "tool/input/escape.h"
#include "tool/input/input.h"
#include "tool/recording/recording.h"
#include "tool/text.h"
#include "tool/tool.h"

#define TAIL_NS 200000000L /* between two looks at the file */

typedef struct events {
    const char *command; /* "events cat" */
    const char *path;
    kvpi_input input;
    kvpi_recording_reader *reader;
} events;

static int open_events(events *of)
{
    kvpi_recording_error error;
    if (!kvpi_input_open(&of->input, of->path, true))
        return kvpi_tool_fail(of->command, "%s: %s", of->path, of->input.why);
    if (kvpi_recording_open(of->input.file, &of->reader, &error) == 0)
        return TOOL_OK;
    kvpi_input_close(&of->input);
    return kvpi_tool_fail(of->command, "%s: %s", of->path, error.text);
}

static void close_events(events *of)
{
    kvpi_recording_free(of->reader);
    kvpi_input_close(&of->input);
}

/* ------------------------------------------------------------------------------------ cat, tail */

static void print_text(const char *name, const char *text)
{
    json_t *value = json_string(text);
    char *shown = value == NULL ? NULL : json_dumps(value, JSON_ENCODE_ANY);
    printf(", \"%s\": %s", name, shown == NULL ? "null" : shown); /* no valid UTF-8 */
    free(shown);
    json_decref(value);
}

static void print_about(const kvpi_recording_about *about)
{
    printf("{\"source\": \"%s\"", kvpi_recording_source_name(about->source));
    print_text("worth", kvpi_recording_worth(about->source));
    print_text("engine", about->engine);
    print_text("model", about->model);
    if (about->engine_blocks > 0)
        printf(", \"engine_blocks\": %" PRIu64, about->engine_blocks);
    printf(", \"block_tokens\": %" PRId32 ", \"began_us\": %" PRId64 ", \"max_contents\": %" PRIu64
           "}\n",
           about->block_tokens, about->began_us, about->max_contents);
}

static void print_if(const char *name, int64_t value)
{
    if (value >= 0)
        printf(", \"%s\": %" PRId64, name, value);
}

static void print_agains(const kvpi_recorded *of)
{
    fputs(", \"again\": [", stdout);
    for (size_t i = 0; i < of->n_again; i++)
        printf("%s[%" PRIu64 ", %" PRIu32 ", %s]", i > 0 ? ", " : "", of->again[i].depth,
               of->again[i].n, of->again[i].is_sure ? "true" : "false");
    fputs("]", stdout);
}

static void print_request(const kvpi_recorded *of)
{
    printf("{\"time_us\": %" PRId64 ", \"input_tokens\": %" PRId64 ", \"output_tokens\": %" PRId64,
           of->time_us, of->input_tokens, of->output_tokens);
    print_if("cached_tokens", of->cached_tokens);
    print_if("first_us", of->first_us);
    print_if("last_us", of->last_us);
    print_if("session", of->session > 0 ? (int64_t)of->session : -1);
    print_if("scope", of->scope > 0 ? (int64_t)of->scope : -1);
    if (of->is_unseen)
        fputs(", \"unseen\": true", stdout);
    if (of->n_again > 0)
        print_agains(of);
    fputs(", \"blocks\": [", stdout);
    for (size_t i = 0; i < of->n_runs; i++)
        printf("%s[%" PRIu64 ", %" PRIu64 "]", i > 0 ? ", " : "", of->runs[i].first, of->runs[i].n);
    puts("]}");
}

static void print_end(const kvpi_recording_counts *counts)
{
    printf("{\"requests\": %" PRIu64 ", \"contents\": %" PRIu64 ", \"forgotten\": %" PRIu64
           ", \"lost\": %" PRIu64 ", \"unnumbered\": %" PRIu64 "}\n",
           counts->requests, counts->contents, counts->forgotten, counts->lost, counts->unnumbered);
}

static void wait_for_more(void)
{
    const struct timespec time = {0, TAIL_NS};
    fflush(stdout);
    (void)nanosleep(&time, NULL);
}

static int print_all(events *of, bool waits)
{
    kvpi_recorded request;
    kvpi_recording_error error;
    int result;
    print_about(kvpi_recording_describe(of->reader));
    for (;;) {
        while ((result = kvpi_recording_next(of->reader, &request, &error)) ==
               KVPI_RECORDING_REQUEST)
            print_request(&request);
        if (result == KVPI_RECORDING_WRONG)
            return kvpi_tool_fail(of->command, "%s: %s", of->path, error.text);
        if (kvpi_recording_is_whole(of->reader) || !waits || ferror(stdout))
            break;
        wait_for_more();
    }
    const kvpi_recording_counts counts = kvpi_recording_counted(of->reader);
    if (kvpi_recording_is_whole(of->reader))
        print_end(&counts);
    else
        fprintf(stderr,
                "kvpager %s: %s: no end behind byte %" PRIu64 ": it was cut off, or is "
                "still written\n",
                of->command, kvpi_escape(of->path).of, kvpi_recording_offset(of->reader));
    return TOOL_OK;
}

/* ---------------------------------------------------------------------------------------- check */

typedef struct totals {
    uint64_t blocks, input, output, unseen;
    uint64_t with_cached, cached, cached_of; /* requests, their hits and their input */
} totals;

static void print_row(const char *name, const char *text)
{
    printf("%-16s%s\n", name, kvpi_escape(text).of);
}

static void print_count(const char *name, uint64_t n)
{
    printf("%-16s%s\n", name, kvpi_text_count(n).of);
}

static void print_totals(const events *of, const totals *sum)
{
    const kvpi_recording_about *about = kvpi_recording_describe(of->reader);
    const kvpi_recording_counts counts = kvpi_recording_counted(of->reader);
    const uint64_t bytes = kvpi_recording_offset(of->reader);
    print_row("source", kvpi_recording_source_name(about->source));
    print_row("worth", kvpi_recording_worth(about->source));
    print_row("engine", about->engine);
    print_row("model", about->model);
    print_count("tokens a block", (uint64_t)about->block_tokens);
    print_count("requests", counts.requests);
    print_count("input tokens", sum->input);
    print_count("output tokens", sum->output);
    if (about->source == KVPI_RECORDING_EVENTS)
        printf("%-16s%.2f %% of the input tokens\n", "coverage",
               sum->input == 0 ? 100.0
                               : 100.0 * (double)(sum->input - sum->unseen) / (double)sum->input);
    print_count("blocks", sum->blocks);
    print_count("contents", counts.contents);
    print_count("forgotten", counts.forgotten);
    print_count("lost requests", counts.lost);
    print_count("bytes", bytes);
    if (sum->blocks > 0)
        printf("%-16s%.3f\n", "bytes a block", (double)bytes / (double)sum->blocks);
    if (sum->with_cached > 0)
        printf("%-16s%s tokens, %.2f %% of the input of %s requests\n", "engine's hits",
               kvpi_text_count(sum->cached).of,
               sum->cached_of == 0 ? 0 : 100.0 * (double)sum->cached / (double)sum->cached_of,
               kvpi_text_count(sum->with_cached).of);
    print_row("end", kvpi_recording_is_whole(of->reader)
                         ? "there"
                         : "not there: cut off behind these bytes, or still written");
}

static int check_all(events *of, bool waits)
{
    kvpi_recorded request;
    kvpi_recording_error error;
    totals sum = {0};
    int result;
    (void)waits;
    while ((result = kvpi_recording_next(of->reader, &request, &error)) == KVPI_RECORDING_REQUEST) {
        sum.blocks += request.n_blocks;
        sum.output += (uint64_t)request.output_tokens;
        sum.input += (uint64_t)request.input_tokens;
        sum.unseen += request.is_unseen ? (uint64_t)request.input_tokens : 0;
        if (request.cached_tokens < 0)
            continue;
        sum.with_cached++;
        sum.cached += (uint64_t)request.cached_tokens;
        sum.cached_of += (uint64_t)request.input_tokens;
    }
    if (result == KVPI_RECORDING_WRONG)
        return kvpi_tool_fail(of->command, "%s: %s; before it are %s good requests", of->path,
                              error.text,
                              kvpi_text_count(kvpi_recording_counted(of->reader).requests).of);
    print_totals(of, &sum);
    return TOOL_OK;
}

/* ------------------------------------------------------------------------------------- commands */

#define AT(member) .at = offsetof(events, member)

static int check_options(const kvpi_args *args, void *options)
{
    const events *of = options;
    return of->path == NULL ? kvpi_args_wrong(args, "which file?") : 0;
}

static const kvpi_args_option options_table[] = {
    {"--help", .help = "print this text", .letter = 'h', .title = "Options"},
    {NULL, NULL, "file", kvpi_args_file, AT(path)},
};

typedef struct verb {
    const char *name, *command, *about;
    int (*act)(events *of, bool waits);
    bool waits;
} verb;

static const verb verbs[] = {
    {"cat", "events cat",
     "Print a recording as JSON lines: what it is, a line for each request, the end.\n"
     "\n"
     "Usage: kvpager events cat FILE\n"
     "\n"
     "\"blocks\" are runs [first, n] of numbers: equal numbers, equal content.\n",
     print_all, false},
    {"tail", "events tail",
     "Print a recording as events cat does, and what is still written to it, until it\n"
     "ends.\n"
     "\n"
     "Usage: kvpager events tail FILE\n",
     print_all, true},
    {"check", "events check",
     "Read all of a recording and say what it is, what it lacks, and whether it is\n"
     "damaged.\n"
     "\n"
     "Usage: kvpager events check FILE\n",
     check_all, false},
};

/* The one that argv[0] names. */
static int run(int argc, char **argv)
{
    const verb *is = verbs;
    while (strcmp(is->name, argv[0]) != 0)
        is++;
    const kvpi_args_command command = {.name = is->command,
                                       .about = is->about,
                                       .options = options_table,
                                       .n_options = sizeof options_table / sizeof *options_table,
                                       .check = check_options};
    events of = {.command = is->command};
    kvpi_args args;
    int status = kvpi_args_parse(&args, &command, argc, argv, &of);
    if (status != KVPI_ARGS_GO)
        return status;
    status = open_events(&of);
    if (status != TOOL_OK)
        return status;
    status = is->act(&of, is->waits);
    close_events(&of);
    return status;
}

static const kvpi_args_subcommand subcommands[] = {
    {"cat", run, "print all of it"},
    {"tail", run, "print all of it, and what is still written"},
    {"check", run, "say whether it is right, and what it has"},
};

static const kvpi_args_commands commands = {
    .name = "kvpager events",
    .kind = "subcommand",
    .about = "Usage: kvpager events SUBCOMMAND FILE\n"
             "\n"
             "Recordings of running engines.\n"
             "\n"
             "Subcommands:\n",
    .more = "\n'kvpager events SUBCOMMAND --help' explains one.\n"
            "Exit status: 0 done, 1 damaged or not to be read, 2 wrong usage.\n",
    .width = 7,
    .of = subcommands,
    .n = sizeof subcommands / sizeof *subcommands};

int cmd_events(int argc, char **argv)
{
    return kvpi_args_dispatch(&commands, argc, argv);
}
