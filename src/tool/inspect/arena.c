/* arena: what is in the arena of a cache that another process works on, in a file that both
 * have (/dev/shm/...). The file is read, not mapped: one that is cut meanwhile is an error then.
 *
 * Reading takes longer than most pauses of a busy owner. It is tried a few times; then what came
 * last is shown, and called moving.
 */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#include "tool/inspect/inspect.h"
#include "tool/tool.h"

#define COMMAND  "inspect"
#define TRIES    20
#define PAUSE_NS 2000000 /* between two */

typedef struct inspection {
    kvpi_budget budget;
    kvp_arena_report report;
    kvpi_contents contents;
    kvp_arena_seq *seqs;
    size_t n_seqs;
    size_t capacity;
} inspection;

static const char *const states[] = {"whole", "moving", "damaged"};

/* ------------------------------------------------------------------------------------ the file */

static int read_at(void *context, uint64_t offset, void *out, size_t n)
{
    return !kvpi_input_read_at(context, offset, out, n);
}

static void note(void *context, const kvp_snapshot_item *item)
{
    inspection *in = context;
    kvpi_contents_note(&in->contents, item);
}

static void note_quota(void *context, uint32_t ns, const kvp_ns_info *info)
{
    inspection *in = context;
    kvpi_contents_note_quota(&in->contents, ns, info);
}

static void note_seq(void *context, const kvp_arena_seq *seq)
{
    inspection *in = context;
    if (in->n_seqs == in->capacity) {
        const size_t capacity = in->capacity == 0 ? 256 : 2 * in->capacity;
        kvp_arena_seq *grown = realloc(in->seqs, capacity * sizeof *grown);
        in->contents.no_memory |= grown == NULL;
        if (grown == NULL)
            return;
        in->seqs = grown;
        in->capacity = capacity;
    }
    in->seqs[in->n_seqs++] = *seq;
}

static kvp_status look(inspection *in, const kvpi_input *input)
{
    kvp_arena_options options;
    const kvp_arena_source source = {(void *)(uintptr_t)input, input->n_bytes, read_at};
    kvp_arena_options_init(&options);
    options.context = in;
    options.tell = note;
    options.tell_quota = note_quota;
    options.tell_seq = note_seq;
    options.max_bytes = kvpi_budget_limit(&in->budget);
    kvpi_contents_drop(&in->contents);
    in->n_seqs = 0;
    const kvp_status status = kvp_arena_inspect(&source, NULL, &in->report); /* its configuration */
    if (status != KVP_OK)
        return status;
    in->contents.n_groups = in->report.config.n_groups;
    in->contents.has_states = in->report.config.state_slots > 0;
    return kvp_arena_inspect(&source, &options, &in->report);
}

static kvp_status look_until_it_rests(inspection *in, const kvpi_input *input)
{
    const struct timespec pause = {0, PAUSE_NS};
    kvp_status status = look(in, input);
    for (int i = 1; i < TRIES && status == KVP_OK && in->report.state == KVP_ARENA_MOVING; i++) {
        nanosleep(&pause, NULL);
        status = look(in, input);
    }
    return status;
}

static int refuse(const char *path, kvp_status status)
{
    if (status == KVP_E_VERSION)
        return kvpi_tool_fail(COMMAND, "%s: the arena of another version than %s", path,
                              kvp_version());
    if (status == KVP_E_FORMAT)
        return kvpi_tool_fail(
            COMMAND, "%s: its cache is gone, or it is damaged within its configuration", path);
    return kvpi_tool_fail(COMMAND, "%s: %s", path, kvp_status_text(status));
}

/* ----------------------------------------------------------------------------------- sequences */

static int by_tokens(const void *a, const void *b)
{
    const kvp_arena_seq *x = a, *y = b;
    return x->n_tokens != y->n_tokens ? (x->n_tokens < y->n_tokens) - (x->n_tokens > y->n_tokens)
                                      : (x->tag > y->tag) - (x->tag < y->tag);
}

static void keep_longest(inspection *in, uint64_t top)
{
    if (in->n_seqs > 0)
        qsort(in->seqs, in->n_seqs, sizeof *in->seqs, by_tokens);
    in->n_seqs = in->n_seqs < top ? in->n_seqs : (size_t)top;
}

/* -------------------------------------------------------------------------------------- output */

typedef struct tier {
    uint64_t held, cached, parked, free;
} tier;

static uint32_t n_tiers(const kvp_arena_report *r)
{
    return r->config.host_blocks > 0 ? 2 : 1;
}

static tier tier_of(const kvp_stats *s, uint32_t t)
{
    return t == KVP_DEVICE
               ? (tier){s->held_blocks, s->cached_blocks, s->parked_blocks, s->free_blocks}
               : (tier){s->host_held_blocks, s->host_cached_blocks, 0, s->host_free_blocks};
}

static void print_figures(const kvp_arena_report *r)
{
    const kvp_config *config = &r->config;
    const kvp_stats *s = &r->stats;
    printf("arena          %" PRIu64 " bytes, %" PRIu64 " calls so far\n", r->arena_bytes,
           r->calls);
    printf("blocks         %" PRIu32 " of %" PRIu32 " tokens, units of %" PRIu32 "\n",
           config->n_blocks, config->block_tokens, config->unit_tokens);
    printf("host blocks    %" PRIu32 "\n", config->host_blocks);
    printf("hash seed      %" PRIu64 "\n", config->hash_seed);
    kvpi_inspect_print_groups(config->groups, config->n_groups);
    printf("sequences      %" PRIu64 " open of %" PRIu32 ", %" PRIu64 " of them swapped out\n",
           s->open_seqs, config->max_seqs, s->swapped_seqs);
    printf("opened         %" PRIu64 " prompts, %" PRIu64 " of their %" PRIu64 " tokens cached\n",
           s->opens, s->cached_tokens, s->prompt_tokens);
    printf("evicted        %" PRIu64 " blocks, %" PRIu64 " of the host\n", s->evicted_blocks,
           s->host_evicted_blocks);
    printf("waiting        %" PRIu64 " copies, %" PRIu64 " steps out\n", s->pending_copies,
           s->steps_out);
    printf("\n%-8s %12s %12s %12s %12s\n", "tier", "held", "cached", "parked", "free");
    for (uint32_t t = 0; t < n_tiers(r); t++) {
        const tier n = tier_of(s, t);
        printf("%-8s %12" PRIu64 " %12" PRIu64 " %12" PRIu64 " %12" PRIu64 "\n",
               kvpi_inspect_tiers[t], n.held, n.cached, n.parked, n.free);
    }
    if (config->state_slots > 0)
        printf("unreachable    %" PRIu64 " of the cached blocks, without a checkpoint\n",
               r->unreachable_blocks);
}

static void print_state(const kvp_arena_report *r)
{
    printf("\n%s", states[r->state]);
    if (r->state == KVP_ARENA_DAMAGED)
        printf(": %s (%" PRIu64 ")", r->violation.detail, r->violation.object);
    else if (r->inside)
        printf(": a call is inside, or its owner died in one; numbers may not add up");
    else if (r->state == KVP_ARENA_MOVING)
        printf(": %" PRIu64 " calls were made meanwhile; sequences and blocks may not add up",
               r->calls_since);
    putchar('\n');
}

static void print_text(const inspection *in)
{
    print_figures(&in->report);
    printf("\n%12s %12s %12s %12s  %-6s  %18s  %s\n", "tokens", "computed", "cached", "blocks",
           "tier", "tag", "namespace of the longest sequences");
    for (size_t i = 0; i < in->n_seqs; i++) {
        const kvp_arena_seq *s = &in->seqs[i];
        printf("%12" PRIu32 " %12" PRIu32 " %12" PRIu32 " %12" PRIu32 "  %-6s  %#18" PRIx64
               "  '%s'\n",
               s->n_tokens, s->computed_tokens, s->cached_tokens, s->n_blocks,
               kvpi_inspect_tiers[s->tier], s->tag, kvpi_contents_name(&in->contents, s->ns));
    }
    kvpi_contents_print(&in->contents);
    if (in->report.config.quotas)
        kvpi_contents_print_quotas(&in->contents, n_tiers(&in->report));
    print_state(&in->report);
}

static void add_numbers(kvpi_figures *to, const kvp_arena_report *r)
{
    const kvp_config *config = &r->config;
    const kvp_stats *s = &r->stats;
    kvpi_figures_text(to, "kind", "arena");
    kvpi_figures_text(to, "state", states[r->state]);
    kvpi_figures_flag(to, "inside", r->inside);
    kvpi_figures_integer(to, "arena_bytes", r->arena_bytes);
    kvpi_figures_integer(to, "calls", r->calls);
    kvpi_figures_integer(to, "calls_since", r->calls_since);
    kvpi_figures_integer(to, "block_tokens", config->block_tokens);
    kvpi_figures_integer(to, "unit_tokens", config->unit_tokens);
    kvpi_figures_integer(to, "n_blocks", config->n_blocks);
    kvpi_figures_integer(to, "host_blocks", config->host_blocks);
    kvpi_figures_integer(to, "hash_seed", config->hash_seed);
    kvpi_figures_integer(to, "max_seqs", config->max_seqs);
    kvpi_figures_integer(to, "open_seqs", s->open_seqs);
    kvpi_figures_integer(to, "swapped_seqs", s->swapped_seqs);
    kvpi_figures_integer(to, "opens", s->opens);
    kvpi_figures_integer(to, "prompt_tokens", s->prompt_tokens);
    kvpi_figures_integer(to, "cached_tokens", s->cached_tokens);
    kvpi_figures_integer(to, "evicted_blocks", s->evicted_blocks);
    kvpi_figures_integer(to, "host_evicted_blocks", s->host_evicted_blocks);
    kvpi_figures_integer(to, "pending_copies", s->pending_copies);
    kvpi_figures_integer(to, "steps_out", s->steps_out);
    if (config->state_slots > 0)
        kvpi_figures_integer(to, "unreachable_blocks", r->unreachable_blocks);
    kvpi_inspect_add_groups(to, config->groups, config->n_groups);
    if (r->state == KVP_ARENA_DAMAGED)
        kvpi_figures_text(to, "violation", r->violation.detail);
}

static void add_tier(kvpi_figures *to, const char *name, tier n)
{
    kvpi_figures_open(to, NULL);
    kvpi_figures_text(to, "tier", name);
    kvpi_figures_integer(to, "held", n.held);
    kvpi_figures_integer(to, "cached", n.cached);
    kvpi_figures_integer(to, "parked", n.parked);
    kvpi_figures_integer(to, "free", n.free);
    kvpi_figures_close(to);
}

static void add_seq(kvpi_figures *to, const kvp_arena_seq *s, const char *ns)
{
    kvpi_figures_open(to, NULL);
    kvpi_figures_integer(to, "tokens", s->n_tokens);
    kvpi_figures_integer(to, "computed", s->computed_tokens);
    kvpi_figures_integer(to, "cached", s->cached_tokens);
    kvpi_figures_integer(to, "blocks", s->n_blocks);
    kvpi_figures_text(to, "tier", kvpi_inspect_tiers[s->tier]);
    kvpi_figures_integer(to, "tag", s->tag);
    kvpi_figures_text(to, "namespace", ns);
    kvpi_figures_close(to);
}

static void add_lists(kvpi_figures *to, const inspection *in)
{
    kvpi_figures_open_array(to, "tiers");
    for (uint32_t t = 0; t < n_tiers(&in->report); t++)
        add_tier(to, kvpi_inspect_tiers[t], tier_of(&in->report.stats, t));
    kvpi_figures_close(to);
    kvpi_figures_open_array(to, "sequences");
    for (size_t i = 0; i < in->n_seqs; i++)
        add_seq(to, &in->seqs[i], kvpi_contents_name(&in->contents, in->seqs[i].ns));
    kvpi_figures_close(to);
}

static int print_json(const inspection *in)
{
    kvpi_figures figures = kvpi_figures_begin();
    add_numbers(&figures, &in->report);
    add_lists(&figures, in);
    kvpi_contents_add(&figures, &in->contents);
    if (in->report.config.quotas)
        kvpi_contents_add_quotas(&figures, &in->contents, n_tiers(&in->report));
    return kvpi_figures_tell(COMMAND, kvpi_figures_end(&figures));
}

static int inspect(inspection *in, const kvpi_inspect_args *args, const kvpi_input *input)
{
    in->budget = kvpi_inspect_budget(args, input);
    kvp_status status = look_until_it_rests(in, input);
    if (status == KVP_E_TOO_SMALL)
        return kvpi_inspect_refuse_memory(args, &in->budget, input->data_bytes);
    if (status == KVP_OK)
        status = kvpi_contents_finish(&in->contents, args->top);
    if (status != KVP_OK)
        return refuse(args->path, status);
    keep_longest(in, args->top);
    int result = TOOL_OK;
    if (args->json)
        result = print_json(in);
    else
        print_text(in);
    return result == TOOL_OK && in->report.state == KVP_ARENA_DAMAGED
               ? kvpi_tool_fail(COMMAND, "%s: damaged", args->path)
               : result;
}

int kvpi_inspect_arena(const kvpi_inspect_args *args, const kvpi_input *input)
{
    inspection in = {0};
    const int result = inspect(&in, args, input);
    kvpi_contents_drop(&in.contents);
    free(in.seqs);
    return result;
}
