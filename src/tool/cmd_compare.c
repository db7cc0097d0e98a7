/* kvpager compare: two replays side by side.
 *
 * Owns which figures matter, in what order, and which way is better; and the refusal of files that
 * are not what `kvpager replay --json` prints. Settings are compared one by one, nested objects
 * too; those that are equal are not shown. The figures that are 0 in both are not shown either.
 */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tool/args.h"
#include "tool/text.h"
#include "tool/report/figures.h"
#include "tool/tool.h"
#include "tool/input/escape.h"
#include "tool/input/input.h"

typedef enum unit { COUNT, RATIO, NS, SECONDS, RATE } unit;

typedef struct figure {
    const char *name;  /* of the JSON object; "outer.inner" */
    const char *label; /* NULL: as the name */
    unit unit;
    int better; /* 1: more is, -1: less is, 0: neither */
} figure;

/* The names are those that the reports' JSON promises to keep. */
static const figure load_figures[] = {
    {"requests", NULL, COUNT, 0},
    {"finished", NULL, COUNT, 1},
    {"rejected", NULL, COUNT, -1},
    {"unfinished", NULL, COUNT, -1},
    {"input_tokens", "input tokens", COUNT, 0},
    {"output_tokens", "output tokens", COUNT, 0},
    {"hit_ratio", "hit ratio", RATIO, 1},
    {"device_share", "found on the device", RATIO, 1},
    {"host_share", "found on the host", RATIO, 0},
    {"computed_tokens", "computed tokens", COUNT, -1},
    {"simulated_seconds", "simulated time", SECONDS, -1},
    {"output_tokens_per_second", "output tokens / s", RATE, 1},
    {"queue_ns.mean", "queue, mean", NS, -1},
    {"queue_ns.p99", "queue, p99", NS, -1},
    {"time_to_first_token_ns.mean", "first token, mean", NS, -1},
    {"time_to_first_token_ns.p50", "first token, p50", NS, -1},
    {"time_to_first_token_ns.p99", "first token, p99", NS, -1},
    {"time_per_output_token_ns.mean", "per output token, mean", NS, -1},
    {"time_per_output_token_ns.p99", "per output token, p99", NS, -1},
    {"between_tokens_ns.p99", "between tokens, p99", NS, -1},
    {"between_tokens_ns.max", "between tokens, max", NS, -1},
    {"end_to_end_ns.mean", "end to end, mean", NS, -1},
    {"end_to_end_ns.p99", "end to end, p99", NS, -1},
    {"steps", NULL, COUNT, 0},
    {"occupancy", NULL, RATIO, 0},
    {"peak_held_blocks", "peak held blocks", COUNT, 0},
    {"evictions", NULL, COUNT, -1},
    {"preemptions_recompute", "preempted, recompute", COUNT, -1},
    {"preemptions_swap", "preempted, swap", COUNT, -1},
    {"lost_tokens", "lost tokens", COUNT, -1},
    {"blocks_to_host", "blocks to the host", COUNT, 0},
    {"blocks_from_host", "blocks from the host", COUNT, 0},
    {"copy_seconds", "time of copies", SECONDS, -1},
    {"waited.blocks.seconds", "waited for blocks", SECONDS, -1},
    {"waited.places.seconds", "waited for places", SECONDS, -1},
    {"waited.step_tokens.seconds", "waited for step tokens", SECONDS, -1},
    {"waited.order.seconds", "waited behind others", SECONDS, -1},
    {"waited.prefix.seconds", "waited for a prefix", SECONDS, 0},
};

static const figure sequential_figures[] = {
    {"requests", NULL, COUNT, 0},
    {"rejected", NULL, COUNT, -1},
    {"input_tokens", "input tokens", COUNT, 0},
    {"output_tokens", "output tokens", COUNT, 0},
    {"hit_tokens", "hit tokens", COUNT, 1},
    {"hit_ratio", "hit ratio", RATIO, 1},
    {"blocks_looked_up", "blocks looked up", COUNT, 0},
    {"block_hits", "block hits", COUNT, 0},
    {"evictions", NULL, COUNT, -1},
    {"peak_held_blocks", "peak held blocks", COUNT, 0},
};

/* Settings stand in the object beside the figures. */
static const char *const settings[] = {
    "trace",
    "format",
    "speedup",
    "block_tokens",
    "unit_tokens",
    "model",
    "device",
    "blocks",
    "host_blocks",
    "keep_evicted",
    "keep_evicted_once",
    "policy",
    "retain_tokens",
    "state_slots",
    "host_state_slots",
    "block_bytes",
    "memory_bytes",
    "prefix_cache",
    "output_appended",
    "seed",
    "step_model",
    "scheduler",
};

typedef struct side {
    const char *path;
    json_t *object;
    bool load;
} side;

typedef struct compare_command {
    side sides[2];
    size_t n_paths;
    bool json;
} compare_command;

#define N_OF(array) (sizeof(array) / sizeof *(array))

/* ------------------------------------------------------------------------------------ reading */

static const json_t *find(const json_t *object, const char *name)
{
    char part[48];
    for (;;) {
        size_t n = strcspn(name, ".");
        snprintf(part, sizeof part, "%.*s", (int)n, name);
        object = json_object_get(object, part);
        if (object == NULL || name[n] == '\0')
            return object;
        name += n + 1;
    }
}

static const figure *figures_of(const side *at, size_t *n)
{
    *n = at->load ? N_OF(load_figures) : N_OF(sequential_figures);
    return at->load ? load_figures : sequential_figures;
}

static int refuse(const side *at, const char *why)
{
    return kvpi_tool_fail("compare", "%s: not an output of 'kvpager replay --json': %s", at->path,
                          why);
}

static int check_figures(const side *at)
{
    size_t n;
    char why[96];
    const figure *figures = figures_of(at, &n);
    for (size_t i = 0; i < n; i++)
        if (!json_is_number(find(at->object, figures[i].name))) {
            snprintf(why, sizeof why, "no number \"%s\"", figures[i].name);
            return refuse(at, why);
        }
    return TOOL_OK;
}

static int check_kind(side *at)
{
    const char *mode = json_string_value(json_object_get(at->object, "mode"));
    if (!json_is_object(at->object))
        return refuse(at, "no JSON object");
    if (json_object_get(at->object, "curve_of") != NULL)
        return refuse(at, "this is one of 'kvpager mrc'");
    if (mode != NULL && strcmp(mode, "load") != 0)
        return refuse(at, "an unknown \"mode\"");
    at->load = mode != NULL;
    return check_figures(at);
}

static int read_side(side *at)
{
    json_error_t wrong;
    kvpi_input input;
    if (!kvpi_input_open(&input, at->path, true))
        return kvpi_tool_fail("compare", "%s: %s", at->path, input.why);
    at->object = json_loadf(input.file, JSON_REJECT_DUPLICATES, &wrong);
    bool failed = ferror(input.file) != 0;
    int error = errno;
    kvpi_input_close(&input);
    if (failed)
        return kvpi_tool_fail("compare", "%s: cannot read: %s", at->path, strerror(error));
    if (at->object == NULL)
        return kvpi_tool_fail("compare",
                              "%s:%d: not valid JSON: %s, expected an output of "
                              "'kvpager replay --json'",
                              at->path, wrong.line > 0 ? wrong.line : 1, wrong.text);
    return check_kind(at);
}

static int check_both(const compare_command *command)
{
    const side *a = &command->sides[0], *b = &command->sides[1];
    if (a->load == b->load)
        return TOOL_OK;
    return kvpi_tool_fail("compare", "%s is a replay %s, %s one %s", a->path,
                          a->load ? "under load" : "with --sequential", b->path,
                          b->load ? "under load" : "with --sequential");
}

/* ----------------------------------------------------------------------------------- settings */

static bool is_absent(const json_t *value)
{
    return value == NULL || json_is_null(value);
}

/* Call for each setting that differs; `a` or `b` is NULL when it is on one side only. */
typedef void (*differs)(void *context, const char *name, const json_t *a, const json_t *b);

static void compare_setting(const char *name, const json_t *a, const json_t *b, differs tell,
                            void *context)
{
    const json_t *both[2] = {a, b};
    if (json_equal(a, b) || (is_absent(a) && is_absent(b)))
        return;
    if (!json_is_object(a) && !json_is_object(b)) {
        tell(context, name, a, b);
        return;
    }
    for (int s = 0; s < 2; s++) {
        const char *key;
        json_t *value;
        json_object_foreach((json_t *)(uintptr_t)both[s], key, value)
        {
            char inner[128];
            if (s == 1 && json_object_get(a, key) != NULL)
                continue; /* told from the other side */
            snprintf(inner, sizeof inner, "%s.%s", name, key);
            compare_setting(inner, json_object_get(a, key), json_object_get(b, key), tell, context);
        }
    }
}

static void compare_settings(const compare_command *command, differs tell, void *context)
{
    for (size_t i = 0; i < N_OF(settings); i++)
        compare_setting(settings[i], json_object_get(command->sides[0].object, settings[i]),
                        json_object_get(command->sides[1].object, settings[i]), tell, context);
}

/* ------------------------------------------------------------------------------------ the table */

static kvpi_text text_of(unit in, double value)
{
    kvpi_text out;
    switch (in) {
    case COUNT: return kvpi_text_count(value < 0 ? 0 : (uint64_t)value);
    case RATIO: snprintf(out.of, sizeof out.of, "%.2f %%", 100 * value); return out;
    case NS: return kvpi_text_span(value);
    case SECONDS: return kvpi_text_span(value * 1e9);
    case RATE: snprintf(out.of, sizeof out.of, "%.1f", value); return out;
    }
    return kvpi_text_count(0);
}

static kvpi_text change_of(unit in, double a, double b)
{
    kvpi_text out = {"same"};
    if (a == b)
        return out;
    if (in == RATIO)
        snprintf(out.of, sizeof out.of, "%+.2f pp", 100 * (b - a));
    else if (a == 0)
        snprintf(out.of, sizeof out.of, "new");
    else
        snprintf(out.of, sizeof out.of, "%+.1f %%", 100 * (b - a) / fabs(a));
    return out;
}

static const char *judgement(const figure *at, double a, double b)
{
    if (a == b || at->better == 0)
        return "";
    return (b > a) == (at->better > 0) ? "  better" : "  worse";
}

/* A value for people; long ones lose their beginning. */
static void print_value(FILE *file, const json_t *value, bool pad)
{
    char *text = is_absent(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    const char *shown = json_is_string(value) ? json_string_value(value) : text;
    shown = shown != NULL ? shown : "-";
    const size_t n = strlen(shown), room = 23;
    char cut[64];
    if (n > room) {
        snprintf(cut, sizeof cut, "...%s", shown + n - (room - 3));
        shown = cut;
    }
    for (const char *at = shown; *at != '\0'; at++) /* a path may hold anything */
        fputc((unsigned char)*at < 0x20 || *at == 0x7f ? '?' : *at, file);
    for (size_t i = strlen(shown); pad && i < room; i++)
        fputc(' ', file);
    free(text);
}

static void print_setting(void *context, const char *name, const json_t *a, const json_t *b)
{
    bool *any = context;
    if (!*any)
        printf("  %-28s  %-23s  %s\n", "setting", "A", "B");
    *any = true;
    printf("  %-28s  ", name);
    print_value(stdout, a, true);
    fputs("  ", stdout);
    print_value(stdout, b, false);
    fputc('\n', stdout);
}

static void print_figures(const compare_command *command)
{
    size_t n;
    const figure *figures = figures_of(&command->sides[0], &n);
    printf("\n  %-22s %15s %15s %12s\n", "figure", "A", "B", "change");
    for (size_t i = 0; i < n; i++) {
        const figure *at = &figures[i];
        double a = json_number_value(find(command->sides[0].object, at->name));
        double b = json_number_value(find(command->sides[1].object, at->name));
        if (a == 0 && b == 0)
            continue;
        printf("  %-22s %15s %15s %12s%s\n", at->label != NULL ? at->label : at->name,
               text_of(at->unit, a).of, text_of(at->unit, b).of, change_of(at->unit, a, b).of,
               judgement(at, a, b));
    }
}

static void print_table(const compare_command *command)
{
    bool any = false;
    printf("A: %s\nB: %s\n%s\n\n", kvpi_escape(command->sides[0].path).of,
           kvpi_escape(command->sides[1].path).of,
           command->sides[0].load ? "replays under load"
                                  : "replays of one request after the other");
    compare_settings(command, print_setting, &any);
    if (!any)
        puts("  no setting differs");
    print_figures(command);
    if (!json_equal(json_object_get(command->sides[0].object, "input_tokens"),
                    json_object_get(command->sides[1].object, "input_tokens")))
        puts("\n  not the same requests: the input tokens differ");
}

/* --------------------------------------------------------------------------------------- JSON */

/* Open a row with what both sides have of something; the caller closes it. */
static void open_row(kvpi_figures *to, const char *name, const json_t *a, const json_t *b)
{
    kvpi_figures_open(to, NULL);
    kvpi_figures_text(to, "name", name);
    kvpi_figures_json(to, "a", a != NULL ? json_deep_copy(a) : json_null());
    kvpi_figures_json(to, "b", b != NULL ? json_deep_copy(b) : json_null());
}

static void add_setting(void *context, const char *name, const json_t *a, const json_t *b)
{
    open_row(context, name, a, b);
    kvpi_figures_close(context);
}

static void add_figures(kvpi_figures *to, const compare_command *command)
{
    size_t n;
    const figure *figures = figures_of(&command->sides[0], &n);
    for (size_t i = 0; i < n; i++) {
        const json_t *a = find(command->sides[0].object, figures[i].name);
        const json_t *b = find(command->sides[1].object, figures[i].name);
        open_row(to, figures[i].name, a, b);
        kvpi_figures_real(to, "change", json_number_value(b) - json_number_value(a));
        kvpi_figures_close(to);
    }
}

static int print_json(const compare_command *command)
{
    kvpi_figures made = kvpi_figures_begin();
    kvpi_figures_text(&made, "mode", command->sides[0].load ? "load" : "sequential");
    kvpi_figures_open_array(&made, "settings");
    compare_settings(command, add_setting, &made);
    kvpi_figures_close(&made);
    kvpi_figures_open_array(&made, "figures");
    add_figures(&made, command);
    kvpi_figures_close(&made);
    return kvpi_figures_tell("compare", kvpi_figures_end(&made));
}

/* ------------------------------------------------------------------------------- the command */

static int take_operand(const kvpi_args *args, const kvpi_args_option *option, const char *text,
                        void *at)
{
    compare_command *command = at;
    (void)option;
    if (command->n_paths == 2)
        return kvpi_args_wrong(args, "'%s' is one file too many", text);
    command->sides[command->n_paths++].path = text;
    return 0;
}

static int check_paths(const kvpi_args *args, void *options)
{
    const compare_command *command = options;
    if (command->n_paths < 2)
        return kvpi_args_wrong(args, "two files are needed: A.json B.json");
    if (strcmp(command->sides[0].path, "-") == 0 && strcmp(command->sides[1].path, "-") == 0)
        return kvpi_args_wrong(args, "only one of the files can be standard input");
    return 0;
}

static const kvpi_args_option options_table[] = {
    {"--json", NULL, "print one JSON object instead of the table", kvpi_args_yes,
     .at = offsetof(compare_command, json), .title = "Options"},
    KVPI_ARGS_HELP,
    {.read = take_operand},
};

static const kvpi_args_command compare_options = {
    .name = "compare",
    .about = "Usage: kvpager compare [OPTIONS] A.json B.json\n"
             "\n"
             "Show what differs between two replays: the settings, and the figures that\n"
             "matter, with the change from A to B, in percent, or in percentage points (pp)\n"
             "for shares.\n"
             "Both files are outputs of 'kvpager replay --json', both under load or both\n"
             "--sequential; one of them may be '-', standard input.\n",
    .options = options_table,
    .n_options = N_OF(options_table),
    .check = check_paths};

int cmd_compare(int argc, char **argv)
{
    kvpi_args args;
    compare_command command = {.json = false};
    int status = kvpi_args_parse(&args, &compare_options, argc, argv, &command);
    if (status != KVPI_ARGS_GO)
        return status;
    status = read_side(&command.sides[0]);
    if (status == TOOL_OK)
        status = read_side(&command.sides[1]);
    if (status == TOOL_OK)
        status = check_both(&command);
    if (status == TOOL_OK && command.json)
        status = print_json(&command);
    else if (status == TOOL_OK)
        print_table(&command);
    json_decref(command.sides[0].object);
    json_decref(command.sides[1].object);
    return status;
}
