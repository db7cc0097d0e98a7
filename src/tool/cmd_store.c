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

/* -------------------------------------------------------------------------------------- options */

static int set_space(const kvpi_args *args, const kvpi_args_option *option, const char *text,
                     void *at)
{
    kvpi_store_args *out = at;
    (void)option;
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

static int set_age(const kvpi_args *args, const kvpi_args_option *option, const char *text,
                   void *at)
{
    kvpi_store_args *out = at;
    (void)option;
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

static int read_secret(const kvpi_args *args, const kvpi_args_option *option, const char *path,
                       void *at)
{
    kvpi_store_args *out = at;
    (void)option;
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
static int set_url(const kvpi_args *args, const kvpi_args_option *option, const char *text,
                   void *at)
{
    kvpi_store_args *out = at;
    (void)option;
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

static int check_options(const kvpi_args *args, void *options)
{
    const kvpi_store_args *out = options;
    if (out->url == NULL)
        return kvpi_args_wrong(args, "which store? a PATH, or file:PATH");
    if (out->json && out->prometheus)
        return kvpi_args_exclude(args, "--json", "--prometheus");
    if (strcmp(args->command, "store evict") == 0 && !out->one_space &&
        out->written_before == UINT64_MAX)
        return kvpi_args_wrong(args, "what is to go? --namespace NAME, --older-than TIME, or both");
    return 0;
}

#define AT(member) .at = offsetof(kvpi_store_args, member)
#define SPACE                                                                                      \
    {                                                                                              \
        "--namespace", "NAME",                                                                     \
            "of this namespace only: its name, or its number as\n"                                 \
            "list prints it, such as 0x1f00ab45c0de9d21",                                          \
            set_space, .title = "Options"                                                          \
    }
#define LAST                                                                                       \
    {"--json", NULL, "print one JSON object", kvpi_args_yes, AT(json)}, KVPI_ARGS_HELP,            \
    {                                                                                              \
        .read = set_url                                                                            \
    }

static const kvpi_args_option info_options[] = {
    {"--prometheus", NULL, "print gauges as Prometheus text", kvpi_args_yes, AT(prometheus),
     .title = "Options"},
    LAST,
};
static const kvpi_args_option verify_options[] = {
    SPACE,
    {"--secret", "FILE", "the engines' secret: check the keyed codes, too", .read = read_secret},
    LAST,
};
static const kvpi_args_option list_options[] = {
    SPACE,
    {"--records", NULL, "list records, not namespaces", kvpi_args_yes, AT(records)},
    LAST,
};
static const kvpi_args_option evict_options[] = {
    SPACE,
    {"--older-than", "TIME", "only records written so long ago: 90s, 15m, 12h, 7d",
     .read = set_age},
    {"--dry-run", NULL, "change nothing, say what would go", kvpi_args_yes, AT(dry_run)},
    LAST,
};

#define COMMAND(name_, what, options_, failed)                                                     \
    {                                                                                              \
        .name = "store " name_,                                                                    \
        .about =                                                                                   \
            what "\n\nUsage: kvpager store " name_ " [OPTIONS] PATH\n\n"                           \
                 "PATH is the directory in an engine's file:PATH?size=...; such a URL will do,\n"  \
                 "and so will that of a server, redis://HOST.\n",                                  \
        .options = (options_), .n_options = sizeof(options_) / sizeof *(options_),                 \
        .more = "\nExit status: 0 done, 1 failed" failed ", 2 wrong usage.\n",                     \
        .check = check_options                                                                     \
    }

static const kvpi_args_command command_table[] = {
    COMMAND("info", "Say which directories a store has, who uses them, and what is in them.",
            info_options, ""),
    COMMAND("verify", "Read every record and check its header, its identity, its place and its KV.",
            verify_options, " or something is bad"),
    COMMAND("list", "List the namespaces of a store, or its records.", list_options, ""),
    COMMAND("evict",
            "Drop records by namespace and age, and those that need them. Directories whose\n"
            "engine runs are left alone: it drops records with kvp_store_evict.",
            evict_options, " or something was left alone"),
};

/* ------------------------------------------------------------------------------------- dispatch */

static int run(size_t which, int (*report)(const kvpi_store_args *args), int argc, char **argv)
{
    const kvpi_args_command *command = &command_table[which];
    kvpi_args args;
    kvpi_store_args in = {
        .command = command->name, .written_before = UINT64_MAX, .now = (uint64_t)time(NULL)};
    int status = kvpi_args_parse(&args, command, argc, argv, &in);
    if (status == KVPI_ARGS_GO)
        status = report(&in);
    free(in.url);
    return status;
}

static int run_info(int argc, char **argv)
{
    return run(0, kvpi_store_info, argc, argv);
}

static int run_verify(int argc, char **argv)
{
    return run(1, kvpi_store_verify, argc, argv);
}

static int run_list(int argc, char **argv)
{
    return run(2, kvpi_store_list, argc, argv);
}

static int run_evict(int argc, char **argv)
{
    return run(3, kvpi_store_evict, argc, argv);
}

static const kvpi_args_subcommand subcommands[] = {
    {"info", run_info, "say which directories there are, who uses them, what is in them"},
    {"verify", run_verify, "read every record and say what is bad, and why"},
    {"list", run_list, "list namespaces or records"},
    {"evict", run_evict, "drop records by namespace and age"},
    {"bench", kvpi_store_bench, "measure a store, and say from which prompt length loading pays"},
};

static const kvpi_args_commands commands = {
    .name = "kvpager store",
    .kind = "subcommand",
    .about = "Usage: kvpager store info PATH\n"
             "       kvpager store verify PATH [--secret FILE]\n"
             "       kvpager store list PATH [--namespace NAME] [--records]\n"
             "       kvpager store evict PATH [--namespace NAME] [--older-than TIME]\n"
             "       kvpager store bench URL --model NAME\n"
             "\n"
             "File stores keep KV in a directory (docs/STORES.md).\n"
             "\n",
    .more = "\n"
            "'kvpager store info --help' and so on print the options.\n"
            "Exit status: 0 done, 1 failed or something is bad, 2 wrong usage.\n",
    .width = 7,
    .of = subcommands,
    .n = sizeof subcommands / sizeof *subcommands};

int cmd_store(int argc, char **argv)
{
    return kvpi_args_dispatch(&commands, argc, argv);
}
