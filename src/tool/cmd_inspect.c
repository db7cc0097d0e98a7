/* kvpager inspect: what is in a snapshot. The file is restored into a cache of its own sizes, so
 * that what is called whole here is what a cache would take; nothing is written anywhere.
 */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <kvpager/snapshot.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "tool.h"

#define COMMAND     "inspect"
#define DEFAULT_TOP 10

typedef struct prefix {
    kvp_hash hash;
    kvp_hash before;
    uint32_t ns;
    uint32_t tokens;
} prefix;

typedef struct space {
    char *name; /* printable: other bytes as \xNN */
    uint64_t blocks;
    uint64_t units;
} space;

typedef struct inspection {
    const char *path;
    uint64_t top;
    bool json;
    bool help;
    bool no_memory;
    kvp_snapshot_info info;
    kvp_snapshot_report report;
    space *spaces; /* [info.n_namespaces] */
    uint64_t counts[2][KVP_GROUPS_MAX][KVP_RETENTION_CLASSES];
    prefix *prefixes;
    size_t n_prefixes;
    size_t capacity;
} inspection;

static const kvpi_args_option options[] = {
    {"--json", NULL, "print one JSON object", 0},
    {"--top", "N", "show the N largest prefixes (default 10)", 0},
    {"--help", NULL, "print this text", 'h'},
};

#define N_OPTIONS (sizeof options / sizeof *options)

static const char *const reasons[KVP_DROP_REASONS] = {"damaged", "cut", "no_room", "uncached",
                                                      "kv"};
static const char *const tiers[2] = {"device", "host"};

/* ------------------------------------------------------------------------------------ the file */

static int read_file(void *context, void *out, size_t capacity, size_t *out_n)
{
    *out_n = fread(out, 1, capacity, context);
    return ferror((FILE *)context) != 0;
}

static int pass_over(void *context, const kvp_snapshot_block *block, const void *bytes)
{
    (void)context;
    (void)block;
    (void)bytes;
    return 0;
}

static char *printable(const uint8_t *name, size_t n)
{
    char *text = malloc(4 * n + 1);
    size_t at = 0;
    for (size_t i = 0; text != NULL && i < n; i++) {
        if (name[i] >= 0x20 && name[i] < 0x7F && name[i] != '\\')
            text[at++] = (char)name[i];
        else
            at += (size_t)snprintf(text + at, 5, "\\x%02x", name[i]);
    }
    if (text != NULL)
        text[at] = '\0';
    return text;
}

static void note(void *context, const kvp_snapshot_item *item)
{
    inspection *in = context;
    space *s = &in->spaces[item->ns];
    if (item->kind == KVP_SNAPSHOT_NAMESPACE) {
        s->name = printable(item->name, item->name_bytes);
        in->no_memory |= s->name == NULL;
        return;
    }
    s->blocks++;
    s->units += item->n_units;
    in->counts[item->block.tier][item->block.group][item->retention]++;
    if (in->n_prefixes == in->capacity) {
        const size_t capacity = in->capacity == 0 ? 1024 : 2 * in->capacity;
        prefix *grown = realloc(in->prefixes, capacity * sizeof *grown);
        in->no_memory |= grown == NULL;
        if (grown == NULL)
            return;
        in->prefixes = grown;
        in->capacity = capacity;
    }
    in->prefixes[in->n_prefixes++] =
        (prefix){item->hash, item->before, item->ns, item->prefix_tokens};
}

/* A cache that takes all that the file says it has. */
static kvp_status create(const kvp_snapshot_info *info, kvp_cache **out)
{
    kvp_config config;
    kvp_config_init(&config);
    config.block_tokens = info->block_tokens;
    config.unit_tokens = info->unit_tokens;
    config.n_blocks = info->n_blocks;
    config.host_blocks = info->host_blocks;
    config.n_groups = info->n_groups;
    memcpy(config.groups, info->groups, sizeof config.groups);
    config.max_unit_keys = info->max_unit_keys;
    config.commit_policy = info->commit_policy;
    config.hash_seed = info->hash_seed;
    config.max_seqs = 1;
    config.max_seq_tokens = 1;
    config.max_copies = 1;
    config.max_namespaces = info->n_namespaces > 0 ? (uint32_t)info->n_namespaces : 1;
    const uint64_t n_nodes = info->n_nodes + config.max_namespaces + 1;
    config.n_nodes = n_nodes < INT32_MAX ? (uint32_t)n_nodes : INT32_MAX - 1;
    return kvp_cache_create(&config, NULL, 0, out);
}

static kvp_status load(inspection *in, FILE *file)
{
    const kvp_source source = {file, read_file};
    kvp_snapshot_options how;
    kvp_cache *cache;
    kvp_status status = kvp_snapshot_peek(&source, &in->info);
    if (status != KVP_OK)
        return status;
    rewind(file);
    in->spaces = calloc(in->info.n_namespaces + 1, sizeof *in->spaces);
    status = in->spaces == NULL ? KVP_E_NO_MEMORY : create(&in->info, &cache);
    if (status != KVP_OK)
        return status == KVP_E_ARG ? KVP_E_FORMAT : status;
    kvp_snapshot_options_init(&how);
    how.model = in->info.model;
    how.model_bytes = in->info.model_bytes;
    how.block_bytes = in->info.block_bytes;
    how.context = in;
    how.put = pass_over;
    how.tell = note;
    status = kvp_snapshot_load(cache, &how, &source, &in->report);
    kvp_cache_destroy(cache);
    return status == KVP_OK && in->no_memory ? KVP_E_NO_MEMORY : status;
}

static int refuse(const char *path, kvp_status status)
{
    if (status == KVP_E_VERSION)
        return kvpi_tool_fail(COMMAND, "%s: a snapshot of another version", path);
    if (status == KVP_E_FORMAT)
        return kvpi_tool_fail(COMMAND, "%s: not a snapshot, or damaged within its configuration",
                              path);
    return kvpi_tool_fail(COMMAND, "%s: %s", path, kvp_status_text(status));
}

/* ------------------------------------------------------------------------------------ prefixes */

static int by_hash(const void *a, const void *b)
{
    return memcmp(((const prefix *)a)->hash.bytes, ((const prefix *)b)->hash.bytes, 16);
}

static int by_bytes(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(kvp_hash));
}

static int by_tokens(const void *a, const void *b)
{
    const prefix *x = a, *y = b;
    return x->tokens != y->tokens ? (x->tokens < y->tokens) - (x->tokens > y->tokens)
                                  : by_hash(a, b);
}

/* Leave those that no other block goes on from, each once, the largest first. */
static int keep_largest(inspection *in)
{
    const size_t n = in->n_prefixes;
    kvp_hash *before = malloc((n + 1) * sizeof *before);
    size_t kept = 0;
    if (before == NULL)
        return TOOL_FAILED;
    for (size_t i = 0; i < n; i++)
        before[i] = in->prefixes[i].before;
    qsort(before, n, sizeof *before, by_bytes);
    if (n > 0)
        qsort(in->prefixes, n, sizeof *in->prefixes, by_hash);
    for (size_t i = 0; i < n; i++) {
        const prefix *p = &in->prefixes[i];
        const bool again = kept > 0 && by_hash(&in->prefixes[kept - 1], p) == 0;
        if (!again && bsearch(&p->hash, before, n, sizeof *before, by_bytes) == NULL)
            in->prefixes[kept++] = *p;
    }
    if (kept > 0)
        qsort(in->prefixes, kept, sizeof *in->prefixes, by_tokens);
    in->n_prefixes = kept < in->top ? kept : (size_t)in->top;
    free(before);
    return TOOL_OK;
}

static void hex(const kvp_hash *hash, char out[33])
{
    for (int i = 0; i < 16; i++)
        snprintf(out + (size_t)2 * (size_t)i, 3, "%02x", hash->bytes[i]);
}

/* -------------------------------------------------------------------------------------- output */

static const char *name_of(const inspection *in, uint64_t ns)
{
    return in->spaces[ns].name != NULL ? in->spaces[ns].name : "?";
}

static bool is_whole(const kvp_snapshot_report *report)
{
    return report->complete && report->damaged_records == 0 &&
           report->blocks == report->saved_blocks && report->namespaces == report->saved_namespaces;
}

static void print_blocks(const inspection *in)
{
    printf("\n%-8s %6s %6s %12s\n", "tier", "group", "class", "blocks");
    for (uint32_t t = 0; t < 2; t++)
        for (uint32_t g = 0; g < in->info.n_groups; g++)
            for (uint32_t c = 0; c < KVP_RETENTION_CLASSES; c++)
                if (in->counts[t][g][c] > 0)
                    printf("%-8s %6" PRIu32 " %6" PRIu32 " %12" PRIu64 "\n", tiers[t], g, c,
                           in->counts[t][g][c]);
}

static void print_text(const inspection *in)
{
    const kvp_snapshot_info *info = &in->info;
    const kvp_snapshot_report *report = &in->report;
    char *model = printable(info->model, info->model_bytes);
    char hash[33];
    printf("model          %s\n", model != NULL ? model : "?");
    printf("blocks         %" PRIu32 " of %" PRIu32 " tokens, units of %" PRIu32 "\n",
           info->n_blocks, info->block_tokens, info->unit_tokens);
    printf("host blocks    %" PRIu32 "\n", info->host_blocks);
    printf("hash seed      %" PRIu64 "\n", info->hash_seed);
    for (uint32_t g = 0; g < info->n_groups; g++)
        printf("group %" PRIu32 "        sinks %" PRIu32 ", window %" PRIu32 "\n", g,
               info->groups[g].sink_tokens, info->groups[g].recent_tokens);
    printf("KV             %" PRIu64 " bytes for each block\n", info->block_bytes);
    printf("cached         %" PRIu64 " of %" PRIu64 " blocks, %" PRIu64 " of %" PRIu64 " units\n",
           report->blocks, report->saved_blocks, report->units, report->saved_units);
    print_blocks(in);
    printf("\n%12s %12s  %s\n", "blocks", "units", "namespace");
    for (uint64_t i = 0; i < info->n_namespaces; i++)
        printf("%12" PRIu64 " %12" PRIu64 "  '%s'\n", in->spaces[i].blocks, in->spaces[i].units,
               name_of(in, i));
    printf("\n%12s  %-32s  %s\n", "tokens", "largest prefixes", "namespace");
    for (size_t i = 0; i < in->n_prefixes; i++) {
        hex(&in->prefixes[i].hash, hash);
        printf("%12" PRIu32 "  %s  '%s'\n", in->prefixes[i].tokens, hash,
               name_of(in, in->prefixes[i].ns));
    }
    printf("\n%s\n", is_whole(report) ? "whole" : "damaged");
    for (uint32_t i = 0; i < KVP_DROP_REASONS; i++)
        if (report->dropped_blocks[i] + report->dropped_namespaces[i] > 0)
            printf("%-14s %" PRIu64 " blocks, %" PRIu64 " namespaces\n", reasons[i],
                   report->dropped_blocks[i], report->dropped_namespaces[i]);
    free(model);
}

static json_t *integer(uint64_t value)
{
    return json_integer((json_int_t)value);
}

/* json_object_set_new and its like take over the value, and refuse NULL: any failure shows. */
static int add_config(json_t *object, const kvp_snapshot_info *info)
{
    char *model = printable(info->model, info->model_bytes);
    json_t *groups = json_array();
    int wrong = 0;
    for (uint32_t g = 0; g < info->n_groups; g++)
        wrong += json_array_append_new(
            groups, json_pack("{s:I, s:I}", "sink_tokens", (json_int_t)info->groups[g].sink_tokens,
                              "recent_tokens", (json_int_t)info->groups[g].recent_tokens));
    wrong += json_object_set_new(object, "model", json_string(model != NULL ? model : "?"));
    wrong += json_object_set_new(object, "block_tokens", integer(info->block_tokens));
    wrong += json_object_set_new(object, "unit_tokens", integer(info->unit_tokens));
    wrong += json_object_set_new(object, "n_blocks", integer(info->n_blocks));
    wrong += json_object_set_new(object, "host_blocks", integer(info->host_blocks));
    wrong += json_object_set_new(object, "hash_seed", integer(info->hash_seed));
    wrong += json_object_set_new(object, "block_bytes", integer(info->block_bytes));
    wrong += json_object_set_new(object, "groups", groups);
    free(model);
    return wrong;
}

static int add_blocks(json_t *object, const inspection *in)
{
    json_t *blocks = json_array();
    int wrong = 0;
    for (uint32_t t = 0; t < 2; t++)
        for (uint32_t g = 0; g < in->info.n_groups; g++)
            for (uint32_t c = 0; c < KVP_RETENTION_CLASSES; c++)
                if (in->counts[t][g][c] > 0)
                    wrong += json_array_append_new(
                        blocks, json_pack("{s:s, s:I, s:I, s:I}", "tier", tiers[t], "group",
                                          (json_int_t)g, "class", (json_int_t)c, "blocks",
                                          (json_int_t)in->counts[t][g][c]));
    return wrong + json_object_set_new(object, "cached", blocks);
}

static int add_names(json_t *object, const inspection *in)
{
    json_t *spaces = json_array();
    json_t *prefixes = json_array();
    char hash[33];
    int wrong = 0;
    for (uint64_t i = 0; i < in->info.n_namespaces; i++)
        wrong +=
            json_array_append_new(spaces, json_pack("{s:s?, s:I, s:I}", "name", in->spaces[i].name,
                                                    "blocks", (json_int_t)in->spaces[i].blocks,
                                                    "units", (json_int_t)in->spaces[i].units));
    for (size_t i = 0; i < in->n_prefixes; i++) {
        hex(&in->prefixes[i].hash, hash);
        wrong += json_array_append_new(
            prefixes, json_pack("{s:I, s:s, s:s?}", "tokens", (json_int_t)in->prefixes[i].tokens,
                                "hash", hash, "namespace", in->spaces[in->prefixes[i].ns].name));
    }
    wrong += json_object_set_new(object, "namespaces", spaces);
    return wrong + json_object_set_new(object, "prefixes", prefixes);
}

static int add_report(json_t *object, const kvp_snapshot_report *report)
{
    json_t *dropped = json_object();
    int wrong = 0;
    for (uint32_t i = 0; i < KVP_DROP_REASONS; i++)
        wrong += json_object_set_new(dropped, reasons[i],
                                     json_pack("{s:I, s:I}", "blocks",
                                               (json_int_t)report->dropped_blocks[i], "namespaces",
                                               (json_int_t)report->dropped_namespaces[i]));
    wrong += json_object_set_new(object, "whole", json_boolean(is_whole(report)));
    wrong += json_object_set_new(object, "saved_blocks", integer(report->saved_blocks));
    wrong += json_object_set_new(object, "blocks", integer(report->blocks));
    wrong += json_object_set_new(object, "saved_units", integer(report->saved_units));
    wrong += json_object_set_new(object, "units", integer(report->units));
    wrong += json_object_set_new(object, "damaged_records", integer(report->damaged_records));
    return wrong + json_object_set_new(object, "dropped", dropped);
}

static int print_json(const inspection *in)
{
    json_t *object = json_object();
    const int wrong = add_config(object, &in->info) + add_blocks(object, in) +
                      add_names(object, in) + add_report(object, &in->report);
    const int done = wrong == 0 && json_dumpf(object, stdout, JSON_INDENT(2)) == 0;
    json_decref(object);
    putchar('\n');
    return done ? TOOL_OK : kvpi_tool_fail(COMMAND, "cannot make the JSON");
}

/* ------------------------------------------------------------------------------------- command */

static int parse(int argc, char **argv, inspection *in)
{
    static const uint64_t any[2] = {0, UINT32_MAX};
    kvpi_args args = {.command = COMMAND,
                      .argc = argc,
                      .argv = argv,
                      .next = 1,
                      .options = options,
                      .n_options = N_OPTIONS};
    const char *value;
    int option, wrong = 0;
    while (wrong == 0 && (option = kvpi_args_next(&args, &value)) != KVPI_ARGS_END) {
        switch (option) {
        case 0: in->json = true; break;
        case 1: wrong = kvpi_args_number(&args, option, value, any, &in->top); break;
        case 2: in->help = true; return 0;
        case KVPI_ARGS_OPERAND:
            wrong = in->path != NULL ? kvpi_args_wrong(&args, "one file only") : 0;
            in->path = value;
            break;
        default: wrong = KVPI_ARGS_WRONG;
        }
    }
    return wrong == 0 && in->path == NULL ? kvpi_args_wrong(&args, "which file?") : wrong;
}

static int inspect(inspection *in)
{
    errno = 0;
    FILE *file = fopen(in->path, "rb");
    if (file == NULL)
        return kvpi_tool_fail(COMMAND, "%s: %s", in->path, strerror(errno));
    const kvp_status status = load(in, file);
    const bool unread = ferror(file) != 0;
    fclose(file);
    if (unread)
        return kvpi_tool_fail(COMMAND, "%s: cannot be read", in->path);
    if (status != KVP_OK)
        return refuse(in->path, status);
    if (keep_largest(in) != TOOL_OK)
        return refuse(in->path, KVP_E_NO_MEMORY);
    int result = TOOL_OK;
    if (in->json)
        result = print_json(in);
    else
        print_text(in);
    return result == TOOL_OK && !is_whole(&in->report)
               ? kvpi_tool_fail(COMMAND, "%s: not everything in it can be restored", in->path)
               : result;
}

int cmd_inspect(int argc, char **argv)
{
    inspection in = {.top = DEFAULT_TOP};
    if (parse(argc, argv, &in) != 0)
        return TOOL_USAGE;
    if (in.help) {
        printf("Say what is in a snapshot of a cache, and whether it is whole.\n"
               "\n"
               "Usage: kvpager inspect [OPTIONS] FILE\n"
               "\n"
               "Options:\n");
        kvpi_args_print(options, N_OPTIONS);
        printf("\nExit status: 0 all of it can be restored, 1 not, 2 wrong usage.\n");
        return TOOL_OK;
    }
    const int result = inspect(&in);
    for (uint64_t i = 0; in.spaces != NULL && i < in.info.n_namespaces; i++)
        free(in.spaces[i].name);
    free(in.spaces);
    free(in.prefixes);
    return result;
}
