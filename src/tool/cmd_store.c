/* kvpager store: what is in a store, whether it is right, and what of it may go. Owns the options;
 * reports are in store/report.c, the measurement in store/bench.c. */
#define _POSIX_C_SOURCE 200809L
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tool/args.h"
#include "tool/store/command.h"
#include "tool/tool.h"
#include "tool/input/escape.h"

enum {
    OPT_NAMESPACE,
    OPT_OLDER_THAN,
    OPT_RECORDS,
    OPT_SECRET,
    OPT_DRY_RUN,
    OPT_PROMETHEUS,
    OPT_JSON,
    OPT_HELP,
    N_OPTIONS
};

#define HELP                                                                                       \
    {                                                                                              \
        "--help", NULL, "print this text", 'h'                                                     \
    }
#define JSON                                                                                       \
    {                                                                                              \
        "--json", NULL, "print one JSON object", 0                                                 \
    }
#define SPACE                                                                                      \
    {                                                                                              \
        "--namespace", "NAME",                                                                     \
            "of this namespace only: its name, or its number as\n"                                 \
            "list prints it, such as 0x1f00ab45c0de9d21",                                          \
            0                                                                                      \
    }
#define ABSENT                                                                                     \
    {                                                                                              \
        "", NULL, NULL, 0                                                                          \
    } /* not of this subcommand */

typedef struct subcommand {
    const char *name;
    const char *command;
    int (*run)(const kvpi_store_args *args);
    const char *what;
    kvpi_args_option options[N_OPTIONS];
} subcommand;

static const subcommand subcommands[] = {
    {"info",
     "store info",
     kvpi_store_info,
     "Say which directories a store has, who uses them, and what is in them.",
     {ABSENT,
      ABSENT,
      ABSENT,
      ABSENT,
      ABSENT,
      {"--prometheus", NULL, "print gauges as Prometheus text", 0},
      JSON,
      HELP}},
    {"verify",
     "store verify",
     kvpi_store_verify,
     "Read every record and check its header, its identity, its place and its KV.",
     {SPACE,
      ABSENT,
      ABSENT,
      {"--secret", "FILE", "the engines' secret: check the keyed codes, too", 0},
      ABSENT,
      ABSENT,
      JSON,
      HELP}},
    {"list",
     "store list",
     kvpi_store_list,
     "List the namespaces of a store, or its records.",
     {SPACE,
      ABSENT,
      {"--records", NULL, "list records, not namespaces", 0},
      ABSENT,
      ABSENT,
      ABSENT,
      JSON,
      HELP}},
    {"evict",
     "store evict",
     kvpi_store_evict,
     "Drop records by namespace and age, and those that need them. Directories whose\n"
     "engine runs are left alone: it drops records with kvp_store_evict.",
     {SPACE,
      {"--older-than", "TIME", "only records written so long ago: 90s, 15m, 12h, 7d", 0},
      ABSENT,
      ABSENT,
      {"--dry-run", NULL, "change nothing, say what would go", 0},
      ABSENT,
      JSON,
      HELP}},
};

#define N_SUBCOMMANDS (sizeof subcommands / sizeof *subcommands)

/* -------------------------------------------------------------------------------------- options */

static int set_space(const kvpi_args *args, const char *text, kvpi_store_args *out)
{
    out->one_space = true;
    if (text[0] == '0' && text[1] == 'x') {
        char *end;
        errno = 0;
        out->space = strtoull(text, &end, 16);
        if (*end != '\0' || end == text + 2 || errno != 0 || strlen(text) > 18)
            return kvpi_args_wrong(args,
                                   "--namespace is '%s', expected a name, or 0x and up to 16 "
                                   "hexadecimal digits",
                                   text);
        return 0;
    }
    kvp_digester *digester;
    kvp_status status = kvp_digester_create(&digester);
    if (status == KVP_OK) {
        status = kvp_namespace_number(digester, text, strlen(text), &out->space);
        kvp_digester_destroy(digester);
    }
    return status == KVP_OK ? 0 : kvpi_args_wrong(args, "--namespace: %s", kvp_status_text(status));
}

static int set_age(const kvpi_args *args, const char *text, kvpi_store_args *out)
{
    static const char units[] = "smhd";
    static const uint64_t seconds[] = {1, 60, 3600, 86400};
    char *end;
    errno = 0;
    const unsigned long long number = strtoull(text, &end, 10);
    const char *unit = *end != '\0' ? strchr(units, *end) : NULL;
    if (text[0] < '0' || text[0] > '9' || unit == NULL || end[1] != '\0' || errno != 0 ||
        number > UINT32_MAX)
        return kvpi_args_wrong(args,
                               "--older-than is '%s', expected a number with s, m, h or d, "
                               "such as 7d",
                               text);
    const uint64_t age = number * seconds[unit - units];
    out->written_before = age < out->now ? out->now - age : 0;
    return 0;
}

/* White space at both ends is no part of a secret, as engines read it. */
static void trim_secret(kvpi_store_args *out)
{
    size_t first = 0;
    while (out->secret_bytes > 0 && isspace(out->secret[out->secret_bytes - 1]))
        out->secret_bytes--;
    while (first < out->secret_bytes && isspace(out->secret[first]))
        first++;
    out->secret_bytes -= first;
    memmove(out->secret, out->secret + first, out->secret_bytes);
}

static int read_secret(const kvpi_args *args, const char *path, kvpi_store_args *out)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return kvpi_args_wrong(args, "--secret: %s: %s", path, strerror(errno));
    out->secret_bytes = fread(out->secret, 1, sizeof out->secret, file);
    const int too_long = getc(file) != EOF;
    fclose(file);
    trim_secret(out);
    if (out->secret_bytes < 16 || too_long)
        return kvpi_args_wrong(args, "--secret: %s: has %s bytes, expected 16 to 1024", path,
                               too_long ? "more than 1024" : "fewer than 16");
    return 0;
}

/* "file:PATH" and "redis://HOST" as they are, a path with the scheme before it. What has "://" in
 * it is no path: the library says what is wrong, without its password. */
static int set_url(const kvpi_args *args, const char *text, kvpi_store_args *out)
{
    if (out->url != NULL)
        return kvpi_args_wrong(args, "one store only");
    const bool is_server = strncmp(text, "redis:", 6) == 0 || strncmp(text, "rediss:", 7) == 0 ||
                           strstr(text, "://") != NULL;
    const char *scheme = is_server || strncmp(text, "file:", 5) == 0 ? "" : "file:";
    const size_t n_bytes = strlen(scheme) + strlen(text) + 1;
    out->url = malloc(n_bytes);
    if (out->url == NULL)
        return kvpi_args_wrong(args, "out of memory");
    snprintf(out->url, n_bytes, "%s%s", scheme, text);
    out->path = text;
    if (is_server) {
        (void)kvp_store_url_show(text, out->shown, sizeof out->shown);
        out->path = out->shown;
    }
    return 0;
}

static int take(const kvpi_args *args, int option, const char *value, kvpi_store_args *out)
{
    switch (option) {
    case OPT_NAMESPACE: return set_space(args, value, out);
    case OPT_OLDER_THAN: return set_age(args, value, out);
    case OPT_RECORDS: out->records = true; return 0;
    case OPT_SECRET: return read_secret(args, value, out);
    case OPT_DRY_RUN: out->dry_run = true; return 0;
    case OPT_PROMETHEUS: out->prometheus = true; return 0;
    case OPT_JSON: out->json = true; return 0;
    case KVPI_ARGS_OPERAND: return set_url(args, value, out);
    default: return KVPI_ARGS_WRONG;
    }
}

static int parse(kvpi_args *args, kvpi_store_args *out, bool *help)
{
    const char *value;
    int option;
    while ((option = kvpi_args_next(args, &value)) != KVPI_ARGS_END) {
        *help = option == OPT_HELP;
        if (*help)
            return 0;
        if (take(args, option, value, out) != 0)
            return -1;
    }
    if (out->url == NULL)
        return kvpi_args_wrong(args, "which store? a PATH, or file:PATH");
    if (out->json && out->prometheus)
        return kvpi_args_wrong(args, "--json and --prometheus exclude each other");
    if (strcmp(args->command, "store evict") == 0 && !out->one_space &&
        out->written_before == UINT64_MAX)
        return kvpi_args_wrong(args, "what is to go? --namespace NAME, --older-than TIME, or both");
    return 0;
}

/* ------------------------------------------------------------------------------------- dispatch */

static void print_help(const subcommand *sub)
{
    printf("%s\n\nUsage: kvpager %s [OPTIONS] PATH\n\n"
           "PATH is the directory in an engine's file:PATH?size=...; such a URL will do,\n"
           "and so will that of a server, redis://HOST.\n\n"
           "Options:\n",
           sub->what, sub->command);
    kvpi_args_print(sub->options, N_OPTIONS);
    printf("\nExit status: 0 done, 1 failed%s, 2 wrong usage.\n",
           strcmp(sub->name, "verify") == 0  ? " or something is bad"
           : strcmp(sub->name, "evict") == 0 ? " or something was left alone"
                                             : "");
}

static int run(const subcommand *sub, int argc, char **argv)
{
    kvpi_args args = {.command = sub->command,
                      .argc = argc,
                      .argv = argv,
                      .options = sub->options,
                      .n_options = N_OPTIONS,
                      .next = 1};
    kvpi_store_args in = {
        .command = sub->command, .written_before = UINT64_MAX, .now = (uint64_t)time(NULL)};
    bool help = false;
    int status = TOOL_USAGE;
    if (parse(&args, &in, &help) == 0) {
        if (help)
            print_help(sub);
        status = help ? TOOL_OK : sub->run(&in);
    }
    free(in.url);
    return status;
}

static void print_usage(FILE *out)
{
    fputs("Usage: kvpager store info PATH\n"
          "       kvpager store verify PATH [--secret FILE]\n"
          "       kvpager store list PATH [--namespace NAME] [--records]\n"
          "       kvpager store evict PATH [--namespace NAME] [--older-than TIME]\n"
          "       kvpager store bench URL --model NAME\n"
          "\n"
          "File stores keep KV in a directory (docs/STORES.md).\n"
          "\n"
          "  info    say which directories there are, who uses them, what is in them\n"
          "  verify  read every record and say what is bad, and why\n"
          "  list    list namespaces or records\n"
          "  evict   drop records by namespace and age\n"
          "  bench   measure a store, and say from which prompt length loading pays\n"
          "\n"
          "'kvpager store info --help' and so on print the options.\n"
          "Exit status: 0 done, 1 failed or something is bad, 2 wrong usage.\n",
          out);
}

int cmd_store(int argc, char **argv)
{
    if (argc < 2) {
        print_usage(stderr);
        return TOOL_USAGE;
    }
    for (size_t i = 0; i < N_SUBCOMMANDS; i++)
        if (strcmp(argv[1], subcommands[i].name) == 0)
            return run(&subcommands[i], argc - 1, argv + 1);
    if (strcmp(argv[1], "bench") == 0)
        return kvpi_store_bench(argc - 1, argv + 1);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_usage(stdout);
        return TOOL_OK;
    }
    fprintf(stderr, "kvpager store: unknown %s '%s'\nTry 'kvpager store --help'.\n",
            argv[1][0] == '-' ? "option" : "subcommand", kvpi_escape(argv[1]).of);
    return TOOL_USAGE;
}
