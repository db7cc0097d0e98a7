/* inspect_snapshot: what is in a snapshot. The file is restored into a cache of its own sizes, so
 * that what is called whole here is what a cache would take; nothing is written anywhere.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tool/inspect/inspect.h"
#include "tool/report/report_learned.h"
#include "tool/tool.h"

#define COMMAND "inspect"

typedef struct inspection {
    kvpi_budget budget;
    kvp_snapshot_info info;
    kvp_snapshot_report report;
    char *model; /* printable */
    kvpi_contents contents;
    kvpi_learned learned; /* entry_blocks 0: nothing was restored of it */
} inspection;

static const char *const reasons[KVP_DROP_REASONS] = {"damaged", "cut", "no_room", "uncached",
                                                      "kv"};

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

/* A cache that takes all that the file says it has. A node's record has 72 bytes and its tokens: of
 * nodes no more are believed than have room in the file. */
static kvp_config config_of(const kvp_snapshot_info *info, uint64_t file_bytes)
{
    kvp_config config;
    const uint64_t room = file_bytes / (72 + (uint64_t)info->unit_tokens * 4);
    kvp_config_init(&config);
    config.block_tokens = info->block_tokens;
    config.unit_tokens = info->unit_tokens;
    config.n_blocks = info->n_blocks;
    config.host_blocks = info->host_blocks;
    config.state_slots = info->state_slots;
    config.host_state_slots = info->state_slots > 0 && info->host_blocks > 0 ? 2 : 0;
    config.n_groups = info->n_groups;
    memcpy(config.groups, info->groups, sizeof config.groups);
    config.max_unit_keys = info->max_unit_keys;
    config.commit_policy = info->commit_policy;
    config.hash_seed = info->hash_seed;
    config.max_seqs = 1;
    config.max_seq_tokens = 1;
    config.max_copies = 1;
    config.max_namespaces = info->n_namespaces > 0 ? (uint32_t)info->n_namespaces : 1;
    const uint64_t n_nodes =
        (info->n_nodes < room ? info->n_nodes : room) + config.max_namespaces + 1;
    config.n_nodes = n_nodes < INT32_MAX ? (uint32_t)n_nodes : INT32_MAX - 1;
    return config;
}

/* A cache with the learned policy takes what the file has of it. Without, it takes the rest. */
static kvp_status choose_policy(const inspection *in, kvp_config *config, size_t *out_bytes)
{
    config->policy = KVP_POLICY_LEARNED;
    if (kvp_cache_bytes(config, out_bytes) == KVP_OK &&
        in->budget.used + *out_bytes <= kvpi_budget_limit(&in->budget))
        return KVP_OK;
    config->policy = KVP_POLICY_LRU;
    return kvp_cache_bytes(config, out_bytes);
}

/* KVP_E_NO_MEMORY with budget.is_over: it would cost more than it may. */
static kvp_status create(inspection *in, uint64_t file_bytes, kvp_cache **out)
{
    kvp_config config = config_of(&in->info, file_bytes);
    size_t bytes;
    kvp_status status = choose_policy(in, &config, &bytes);
    if (status == KVP_OK && !kvpi_budget_take(&in->budget, bytes))
        return KVP_E_NO_MEMORY;
    if (status == KVP_OK)
        status = kvp_cache_create(&config, NULL, 0, out);
    return status == KVP_E_ARG ? KVP_E_FORMAT : status;
}

static kvp_status load(inspection *in, const kvpi_input *input)
{
    const kvp_source source = {input->file, read_file};
    kvp_snapshot_options how;
    kvp_cache *cache;
    kvp_status status = kvp_snapshot_peek(&source, &in->info);
    if (status != KVP_OK)
        return status;
    rewind(input->file);
    status = create(in, input->n_bytes, &cache);
    if (status != KVP_OK)
        return status;
    kvpi_contents_reserve(&in->contents, in->info.n_namespaces);
    in->contents.n_groups = in->info.n_groups;
    in->contents.has_states = in->info.state_slots > 0;
    kvp_snapshot_options_init(&how);
    how.model = in->info.model;
    how.model_bytes = in->info.model_bytes;
    how.block_bytes = in->info.block_bytes;
    how.state_bytes = in->info.state_bytes;
    how.context = &in->contents;
    how.put = pass_over;
    how.tell = kvpi_contents_note;
    status = kvp_snapshot_load(cache, &how, &source, &in->report);
    if (status == KVP_OK && in->report.learned)
        status = kvpi_learned_read(cache, &in->learned);
    kvp_cache_destroy(cache);
    return status;
}

static int refuse(const char *path, kvp_status status)
{
    if (status == KVP_E_VERSION)
        return kvpi_tool_fail(COMMAND,
                              "%s: a snapshot of another version; this program reads version %d: "
                              "begin without it, and save anew",
                              path, KVP_SNAPSHOT_VERSION);
    if (status == KVP_E_FORMAT)
        return kvpi_tool_fail(COMMAND,
                              "%s: not a snapshot, nor memory with a cache in it; or damaged "
                              "within its configuration",
                              path);
    return kvpi_tool_fail(COMMAND, "%s: %s", path, kvp_status_text(status));
}

/* -------------------------------------------------------------------------------------- output */

static bool is_whole(const kvp_snapshot_report *report)
{
    return report->complete && report->damaged_records == 0 &&
           report->blocks == report->saved_blocks && report->namespaces == report->saved_namespaces;
}

static void print_text(const inspection *in)
{
    const kvp_snapshot_info *info = &in->info;
    const kvp_snapshot_report *report = &in->report;
    printf("model          %s\n", in->model);
    printf("blocks         %" PRIu32 " of %" PRIu32 " tokens, units of %" PRIu32 "\n",
           info->n_blocks, info->block_tokens, info->unit_tokens);
    printf("host blocks    %" PRIu32 "\n", info->host_blocks);
    printf("hash seed      %" PRIu64 "\n", info->hash_seed);
    kvpi_inspect_print_groups(info->groups, info->n_groups);
    printf("KV             %" PRIu64 " bytes for each block\n", info->block_bytes);
    if (info->state_slots > 0)
        printf("states         %" PRIu32 " slots, group %" PRIu32 ", %" PRIu64 " bytes each\n",
               info->state_slots, info->n_groups, info->state_bytes);
    printf("cached         %" PRIu64 " of %" PRIu64 " blocks, %" PRIu64 " of %" PRIu64 " units\n",
           report->blocks, report->saved_blocks, report->units, report->saved_units);
    if (report->learned)
        printf("learned        in %" PRIu64 " references, fallback %s\n",
               in->learned.info.references, kvpi_learned_fallback(&in->learned.info));
    kvpi_contents_print(&in->contents);
    printf("\n%s\n", is_whole(report) ? "whole" : "damaged");
    for (uint32_t i = 0; i < KVP_DROP_REASONS; i++)
        if (report->dropped_blocks[i] + report->dropped_namespaces[i] > 0)
            printf("%-14s %" PRIu64 " blocks, %" PRIu64 " namespaces\n", reasons[i],
                   report->dropped_blocks[i], report->dropped_namespaces[i]);
}

static void add_config(kvpi_figures *to, const inspection *in)
{
    const kvp_snapshot_info *info = &in->info;
    kvpi_figures_text(to, "kind", "snapshot");
    kvpi_figures_text(to, "model", in->model);
    kvpi_figures_integer(to, "block_tokens", info->block_tokens);
    kvpi_figures_integer(to, "unit_tokens", info->unit_tokens);
    kvpi_figures_integer(to, "n_blocks", info->n_blocks);
    kvpi_figures_integer(to, "host_blocks", info->host_blocks);
    kvpi_figures_integer(to, "hash_seed", info->hash_seed);
    kvpi_figures_integer(to, "block_bytes", info->block_bytes);
    if (info->state_slots > 0) {
        kvpi_figures_integer(to, "state_slots", info->state_slots);
        kvpi_figures_integer(to, "state_bytes", info->state_bytes);
    }
    kvpi_inspect_add_groups(to, info->groups, info->n_groups);
}

static void add_report(kvpi_figures *to, const kvp_snapshot_report *report)
{
    kvpi_figures_flag(to, "whole", is_whole(report));
    kvpi_figures_integer(to, "saved_blocks", report->saved_blocks);
    kvpi_figures_integer(to, "blocks", report->blocks);
    kvpi_figures_integer(to, "saved_units", report->saved_units);
    kvpi_figures_integer(to, "units", report->units);
    kvpi_figures_integer(to, "damaged_records", report->damaged_records);
    kvpi_figures_open(to, "dropped");
    for (uint32_t i = 0; i < KVP_DROP_REASONS; i++) {
        kvpi_figures_open(to, reasons[i]);
        kvpi_figures_integer(to, "blocks", report->dropped_blocks[i]);
        kvpi_figures_integer(to, "namespaces", report->dropped_namespaces[i]);
        kvpi_figures_close(to);
    }
    kvpi_figures_close(to);
}

static int print_json(const inspection *in)
{
    kvpi_figures figures = kvpi_figures_begin();
    add_config(&figures, in);
    kvpi_contents_add(&figures, &in->contents);
    kvpi_learned_add(&figures, &in->learned);
    add_report(&figures, &in->report);
    return kvpi_figures_tell(COMMAND, kvpi_figures_end(&figures));
}

static int inspect(inspection *in, const kvpi_inspect_args *args, const kvpi_input *input)
{
    in->budget = kvpi_inspect_budget(args, input);
    kvp_status status = load(in, input);
    if (ferror(input->file))
        return kvpi_tool_fail(COMMAND, "%s: cannot be read", args->path);
    if (in->budget.is_over)
        return kvpi_inspect_refuse_memory(args, &in->budget, input->data_bytes);
    if (status == KVP_OK)
        status = kvpi_contents_finish(&in->contents, args->top);
    if (status != KVP_OK)
        return refuse(args->path, status);
    in->model = kvpi_inspect_printable(in->info.model, in->info.model_bytes);
    if (in->model == NULL)
        return refuse(args->path, KVP_E_NO_MEMORY);
    int result = TOOL_OK;
    if (args->json)
        result = print_json(in);
    else
        print_text(in);
    return result == TOOL_OK && !is_whole(&in->report)
               ? kvpi_tool_fail(COMMAND, "%s: not everything in it can be restored", args->path)
               : result;
}

int kvpi_inspect_snapshot(const kvpi_inspect_args *args, const kvpi_input *input)
{
    inspection in = {0};
    const int result = inspect(&in, args, input);
    free(in.model);
    kvpi_contents_drop(&in.contents);
    return result;
}
