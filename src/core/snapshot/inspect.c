/* inspect: reading the arena of a cache that another process works on.
 *
 * What is needed of the arena is copied to where it lies in one of our own, found by sizes and
 * offsets that are checked first; from then on the copy is looked at. It is of one moment if the
 * owner's count of calls was even when the cache's own structure was read, and is the same after
 * the rest.
 *
 * When the audit is done, nodes of the copy hold what the walk over the blocks finds out:
 *
 *   users   1 + the number of the namespace that can reach the node; 0: none
 *   jump    the node below, on the way that is walked now
 *   MARKED  `users` is known
 */
#include <kvpager/inspect.h>

#include "core/cache/audit.h"
#include "core/cache/spaces.h"
#include "core/cache/state.h"
#include "core/cache/states.h"
#include "core/calls/life.h"
#include "core/snapshot/ranges.h"

#include <string.h>

/* Figures are read again so often until they are of one moment: a millisecond at most. */
#define TRIES 1000

/* Beside its own bytes an array's ends can touch two pages, and as many tables of pages. */
#define AROUND 16384u

struct inspection {
    const kvp_arena_source *source;
    const kvp_arena_options *options;
    kvp_arena_report report;
    kvp_cache *copy;
    uint64_t left; /* bytes that the copy may still take */
    int is_short;  /* nothing is left */
    int failed;    /* the source did, or is_short */
};

void kvp_arena_options_init(kvp_arena_options *options)
{
    if (options == NULL)
        return;
    memset(options, 0, sizeof(*options));
    options->struct_size = sizeof(*options);
}

/* ------------------------------------------------------------------------------------- reading */

static void fetch(struct inspection *in, uint64_t offset, void *out, size_t bytes)
{
    if (!in->failed && bytes > 0) {
        in->failed = in->source->read(in->source->context, offset, out, bytes) != 0;
    }
}

static uint64_t fetch_calls(struct inspection *in)
{
    uint64_t calls = 0;
    kvpi_fence(); /* pairs with those of enter and leave, whichever side of the data we are on */
    fetch(in, offsetof(kvp_cache, calls), &calls, sizeof(calls));
    kvpi_fence();
    return calls;
}

/* The cache's own structure, of one moment if the owner lets us. */
static void fetch_figures(struct inspection *in, kvp_cache *out)
{
    uint64_t before = 0;
    int moment = 0;
    for (uint32_t i = 0; i < TRIES && !moment && !in->failed; i++) {
        before = fetch_calls(in);
        fetch(in, 0, out, sizeof(*out));
        moment = before % 2 == 0 && fetch_calls(in) == before;
    }
    out->calls = before;
    in->report.inside = !moment;
}

/* An array of `n` of the copy's, at `array` in it. It takes its bytes and the pages around them, or
 * what it has to itself if that is less. */
static void fetch_part(struct inspection *in, void *array, uint64_t n, size_t size, uint64_t own)
{
    const uint64_t offset = (uint64_t)((char *)array - (char *)in->copy);
    const uint64_t bytes = n * size;
    const uint64_t taken = bytes == 0 ? 0 : bytes + AROUND < own ? bytes + AROUND : own;
    in->is_short |= !in->failed && taken > in->left;
    in->failed |= in->is_short;
    if (!in->failed) {
        in->left -= taken;
        fetch(in, offset, array, (size_t)bytes);
    }
}

static void fetch_array(struct inspection *in, void *array, uint64_t n, size_t size)
{
    fetch_part(in, array, n, size, UINT64_MAX);
}

static void fetch_pool(struct inspection *in, const struct kvpi_pool *pool)
{
    const struct kvpi_quotas *quotas = &pool->quotas;
    fetch_array(in, kvpi_owned(quotas, 0), kvpi_quotas_n_owned(quotas), sizeof(struct kvpi_owned));
    fetch_array(in, kvpi_account(quotas, 0), quotas->n_accounts, sizeof(struct kvpi_account));
    fetch_array(in, kvpi_at(quotas, quotas->over_at), kvpi_quotas_n_words(quotas),
                sizeof(uint64_t));
    if (pool->n_blocks > 0) {
        fetch_array(in, kvpi_blocks(pool),
                    (uint64_t)pool->n_blocks + KVP_RETENTION_CLASSES + pool->n_lists,
                    sizeof(struct kvpi_block));
    }
}

static void fetch_leaves(struct inspection *in, const struct kvpi_leaves *leaves)
{
    if (leaves->on && leaves->first == 0) {
        fetch_array(in, kvpi_leaves_policy(leaves), leaves->above_at - leaves->policy_at, 1);
    }
    if (leaves->on) {
        fetch_array(in, kvpi_leaves_above(leaves, 0), leaves->n_blocks, sizeof(uint32_t));
        fetch_array(in, kvpi_leaf(leaves, 0), (uint64_t)leaves->n_contents + 1,
                    sizeof(struct kvpi_leaf));
    }
}

static void fetch_learning(struct inspection *in)
{
    const uint32_t n = in->copy->pool.leaves.on ? in->copy->table.max_seqs : 0;
    fetch_array(in, kvpi_at(in->copy, in->copy->learning.hits_at), n, sizeof(uint32_t));
}

static void fetch_prefix(struct inspection *in)
{
    const struct kvpi_prefix *prefix = &in->copy->prefix;
    const uint64_t n_nodes = (uint64_t)prefix->n_touched + 1;
    fetch_array(in, kvpi_node(prefix, 0), n_nodes, prefix->node_bytes);
    fetch_array(in, kvpi_at(prefix, prefix->keys_at), n_nodes * prefix->max_unit_keys,
                sizeof(struct kvpi_key));
    fetch_array(in, kvpi_tags_line(&prefix->tags, 0), prefix->tags.n_lines,
                sizeof(struct kvpi_tags_line));
    if (prefix->has_kin) {
        fetch_array(in, kvpi_at(prefix, prefix->kin_at), n_nodes, sizeof(struct kvpi_kin));
    }
    if (prefix->has_dups) {
        fetch_array(in, kvpi_prefix_dups(prefix),
                    ((uint64_t)prefix->n_blocks + prefix->host_blocks) * prefix->block_slots,
                    sizeof(struct kvpi_dup));
    }
}

/* Rows are as long as the longest may get: only what open sequences use is read. */
static void fetch_table(struct inspection *in)
{
    const struct kvpi_table *table = &in->copy->table;
    fetch_array(in, kvpi_seq_at(table, 0), table->max_seqs, sizeof(struct kvpi_seq));
    fetch_array(in, kvpi_windows(table, 0), (uint64_t)table->max_seqs * table->n_groups,
                sizeof(struct kvpi_window));
    for (struct kvpi_seq *seq = NULL; (seq = kvpi_next_open(table, seq)) != NULL;) {
        const uint32_t place = kvpi_seq_place(table, seq);
        for (uint32_t g = 0; g < table->n_groups; g++) {
            fetch_part(in, kvpi_group_row(table, g, place),
                       kvpi_min_u32(kvpi_row_entries(in->copy, seq, g), table->max_blocks),
                       sizeof(int32_t), (uint64_t)table->max_blocks * sizeof(int32_t));
        }
        fetch_part(in, kvpi_row_nodes(table, place), kvpi_min_u32(seq->n_units, table->max_units),
                   sizeof(uint32_t), (uint64_t)table->max_units * sizeof(uint32_t));
        fetch_array(in, kvpi_row_partial(table, place), table->unit_tokens, sizeof(int32_t));
    }
}

static void fetch_lent(struct inspection *in)
{
    const uint32_t max_loads = in->copy->lending.max_loads;
    fetch_array(in, kvpi_lent(in->copy, 0), kvpi_n_lent(in->copy), sizeof(struct kvpi_lent));
    fetch_array(in, kvpi_load_at(in->copy, 0), max_loads, sizeof(struct kvpi_load));
}

static void fetch_states(struct inspection *in)
{
    const struct kvpi_states *states = &in->copy->states;
    const uint32_t n_seqs = states->pool.n_blocks == 0 ? 0 : in->copy->table.max_seqs;
    fetch_pool(in, &states->pool);
    fetch_pool(in, &states->host);
    fetch_array(in, kvpi_at(in->copy, states->seqs_at), n_seqs, sizeof(struct kvpi_state));
    if (in->copy->config.steps == KVP_STEPS_OVERLAPPED) {
        const struct kvpi_steps *steps = &in->copy->steps;
        const uint64_t n = (uint64_t)steps->max * n_seqs;
        fetch_array(in, kvpi_at(in->copy, steps->ahead_at), n, sizeof(uint32_t));
        fetch_array(in, kvpi_at(in->copy, steps->until_at), n, sizeof(uint32_t));
        fetch_array(in, kvpi_pool_arriving(&states->pool), states->pool.n_blocks, sizeof(uint64_t));
    }
}

static void fetch_rest(struct inspection *in)
{
    kvp_cache *copy = in->copy;
    fetch_pool(in, &copy->pool);
    fetch_pool(in, &copy->host);
    fetch_leaves(in, &copy->pool.leaves);
    fetch_leaves(in, &copy->host.leaves);
    fetch_learning(in);
    fetch_states(in);
    fetch_prefix(in);
    fetch_table(in);
    fetch_lent(in);
    fetch_array(in, kvpi_plan_copies(&copy->plan), copy->plan.n + copy->plan.n_out,
                sizeof(struct kvpi_copy));
    fetch_array(in, kvpi_at(copy, copy->spaces_at), copy->config.max_namespaces,
                sizeof(struct kvpi_space));
    in->report.calls_since = (fetch_calls(in) - copy->calls + 1) / 2;
}

/* ------------------------------------------------------------------------------------- telling */

static void tell_space(struct inspection *in, uint32_t number, uint32_t place)
{
    const struct kvpi_space *space = kvpi_space_at(in->copy, place);
    if (in->options->tell != NULL) {
        const kvp_snapshot_item item = {.kind = KVP_SNAPSHOT_NAMESPACE,
                                        .ns = number,
                                        .name = space->name,
                                        .name_bytes = space->name_bytes};
        in->options->tell(in->options->context, &item);
    }
    if (in->options->tell_quota != NULL && in->copy->config.quotas) {
        const kvp_ns_info info = kvpi_space_info(in->copy, place);
        in->options->tell_quota(in->options->context, number, &info);
    }
}

/* Number the namespaces, and say in their roots which they are. */
static void tell_spaces(struct inspection *in)
{
    const struct kvpi_prefix *prefix = &in->copy->prefix;
    const struct kvpi_space *spaces = kvpi_at(in->copy, in->copy->spaces_at);
    uint32_t n = 0;
    for (uint32_t i = 0; i <= prefix->n_touched; i++) {
        kvpi_node(prefix, i)->users = 0;
        kvpi_node(prefix, i)->flags &= ~(uint32_t)KVPI_NODE_MARKED;
    }
    kvpi_node(prefix, KVPI_NO_NODE)->flags = KVPI_NODE_MARKED; /* every way up ends here */
    for (uint32_t place = 0; place < in->copy->config.max_namespaces; place++) {
        const struct kvpi_space *space = &spaces[place];
        if ((space->generation & 1) == 0 || space->root == KVPI_NO_NODE ||
            space->root > prefix->n_touched || space->name_bytes > KVP_NAME_MAX_BYTES) {
            continue;
        }
        tell_space(in, n, place);
        kvpi_node(prefix, space->root)->flags |= KVPI_NODE_MARKED;
        kvpi_node(prefix, space->root)->users = ++n;
    }
}

/* 1 + the number of the namespace from which the node can be found; 0: none. Each node is walked
 * over once, whatever its parents are. */
static uint32_t space_of_root(const struct kvpi_prefix *prefix, uint32_t index)
{
    uint32_t below = KVPI_NO_NODE;
    uint32_t at = index;
    while (!(kvpi_node(prefix, at)->flags & KVPI_NODE_MARKED)) {
        struct kvpi_node *node = kvpi_node(prefix, at);
        node->flags |= KVPI_NODE_MARKED;
        node->jump = below;
        below = at;
        at = node->parent <= prefix->n_touched ? node->parent : KVPI_NO_NODE;
    }
    while (below != KVPI_NO_NODE) {
        struct kvpi_node *node = kvpi_node(prefix, below);
        node->users = node->flags & KVPI_NODE_PUBLIC ? kvpi_node(prefix, at)->users : 0;
        at = below;
        below = node->jump;
    }
    return kvpi_node(prefix, index)->users;
}

static void tell_seqs(struct inspection *in)
{
    const struct kvpi_table *table = &in->copy->table;
    const struct kvpi_prefix *prefix = &in->copy->prefix;
    for (struct kvpi_seq *seq = NULL; (seq = kvpi_next_open(table, seq)) != NULL;) {
        const uint32_t root = seq->root <= prefix->n_touched ? seq->root : KVPI_NO_NODE;
        const kvp_arena_seq told = {.tag = seq->tag,
                                    .ns = space_of_root(prefix, root) - 1,
                                    .tier = seq->tier == KVP_DEVICE ? KVP_DEVICE : KVP_HOST,
                                    .n_tokens = seq->tokens,
                                    .prompt_tokens = seq->prompt,
                                    .cached_tokens = seq->cached,
                                    .computed_tokens = seq->computed,
                                    .tree_tokens = seq->n_tree,
                                    .n_blocks = kvpi_row_entries(in->copy, seq, 0)};
        in->options->tell_seq(in->options->context, &told);
    }
}

/* The deepest unit in the block that can be found. */
static uint32_t deepest_of(const struct kvpi_prefix *prefix, const struct kvpi_block *b,
                           uint32_t where, uint32_t block)
{
    uint32_t node = b->content;
    const uint32_t group = KVPI_GROUP_OF(where);
    for (uint32_t i = 0; i < prefix->units_per_block[group] && node != KVPI_NO_NODE; i++) {
        if (node > prefix->n_touched) {
            return KVPI_NO_NODE;
        }
        if (kvpi_node_at(prefix, node, where)->block == block && space_of_root(prefix, node) != 0) {
            return node;
        }
        const struct kvpi_node *n = kvpi_node(prefix, node);
        node = kvpi_prefix_place(prefix, n, group) == 0 ? KVPI_NO_NODE : n->parent;
    }
    return KVPI_NO_NODE;
}

static void tell_seen_block(struct inspection *in, uint32_t tier, uint32_t block, uint32_t deepest)
{
    const struct kvpi_prefix *prefix = &in->copy->prefix;
    const struct kvpi_block *b = kvpi_block(kvpi_tier_pool(in->copy, tier), block);
    const struct kvpi_node *node = kvpi_node(prefix, deepest);
    const uint32_t where = KVPI_WHERE(tier, kvpi_block_group(b));
    const uint32_t n_places = kvpi_prefix_place(prefix, node, kvpi_block_group(b)) + 1;
    kvp_snapshot_item item = {
        .kind = KVP_SNAPSHOT_BLOCK,
        .ns = node->users - 1,
        .block = {tier, kvpi_block_group(b), (int32_t)block, n_places * prefix->unit_tokens},
        .retention = kvpi_block_class(b),
        .prefix_tokens = node->depth * prefix->unit_tokens,
        .hash = node->hash};
    uint32_t above = deepest;
    for (uint32_t i = 0; i < n_places && above <= prefix->n_touched; i++) {
        item.n_units += kvpi_node_at(prefix, above, where)->block == block;
        above = kvpi_node(prefix, above)->parent;
    }
    if (above <= prefix->n_touched) {
        item.before = kvpi_node(prefix, above)->hash;
    }
    in->options->tell(in->options->context, &item);
}

/* With recurrent state: is there a checkpoint at a unit that the block has, or after one? */
static int leads_to_state(const struct kvpi_prefix *prefix, const struct kvpi_block *b,
                          uint32_t where, uint32_t block)
{
    uint32_t node = b->content;
    const uint32_t group = KVPI_GROUP_OF(where);
    for (uint32_t i = 0; i < prefix->units_per_block[group] && node != KVPI_NO_NODE; i++) {
        if (node > prefix->n_touched) {
            return 1; /* who knows */
        }
        if (kvpi_node_at(prefix, node, where)->block == block && *kvpi_node_below(prefix, node)) {
            return 1;
        }
        const struct kvpi_node *n = kvpi_node(prefix, node);
        node = kvpi_prefix_place(prefix, n, group) == 0 ? KVPI_NO_NODE : n->parent;
    }
    return 0;
}

static void tell_blocks(struct inspection *in, uint32_t tier)
{
    const struct kvpi_prefix *prefix = &in->copy->prefix;
    const struct kvpi_pool *pool = kvpi_tier_pool(in->copy, tier);
    for (uint32_t block = 1; block < pool->n_blocks; block++) {
        const struct kvpi_block *b = kvpi_block(pool, block);
        const uint32_t group = kvpi_block_group(b);
        const int held = kvpi_block_refs(b) > 0;
        const int parked = (b->refs & KVPI_REFS_PARKED) != 0;
        if (group >= in->copy->config.n_groups || (!held && !parked && b->content == 0)) {
            continue;
        }
        in->report.blocks[tier][group][held     ? KVP_ARENA_HELD
                                       : parked ? KVP_ARENA_PARKED
                                                : KVP_ARENA_CACHED]++;
        if (kvpi_has_states(in->copy) && tier == KVP_DEVICE && !held && !parked) {
            in->report.unreachable_blocks +=
                (uint64_t)!leads_to_state(prefix, b, KVPI_WHERE(tier, group), block);
        }
        const uint32_t deepest = deepest_of(prefix, b, KVPI_WHERE(tier, group), block);
        if (deepest != KVPI_NO_NODE && in->options->tell != NULL) {
            tell_seen_block(in, tier, block, deepest);
        }
    }
}

/* A checkpoint whose node can be found: what a snapshot would hold of it. */
static void tell_checkpoint(struct inspection *in, uint32_t slot, uint32_t index)
{
    const struct kvpi_prefix *prefix = &in->copy->prefix;
    const struct kvpi_node *node = kvpi_node(prefix, index);
    kvp_snapshot_item item = {.kind = KVP_SNAPSHOT_BLOCK,
                              .ns = node->users - 1,
                              .block = {KVP_DEVICE, in->copy->config.n_groups, (int32_t)slot, 1},
                              .retention =
                                  kvpi_block_class(kvpi_block(&in->copy->states.pool, slot)),
                              .n_units = 1,
                              .prefix_tokens = node->depth * prefix->unit_tokens,
                              .hash = node->hash};
    if (node->parent <= prefix->n_touched) {
        item.before = kvpi_node(prefix, node->parent)->hash;
    }
    in->options->tell(in->options->context, &item);
}

static void tell_slots(struct inspection *in)
{
    const struct kvpi_prefix *prefix = &in->copy->prefix;
    const struct kvpi_pool *pool = &in->copy->states.pool;
    for (uint32_t slot = 1; slot < pool->n_blocks; slot++) {
        const struct kvpi_block *b = kvpi_block(pool, slot);
        const uint32_t node = b->content;
        const int parked = (b->refs & KVPI_REFS_PARKED) != 0;
        if (kvpi_block_refs(b) == 0 && node == KVPI_NO_NODE && !parked) {
            continue;
        }
        in->report
            .blocks[KVP_DEVICE][in->copy->config.n_groups][kvpi_block_refs(b) > 0 ? KVP_ARENA_HELD
                                                           : parked               ? KVP_ARENA_PARKED
                                                                    : KVP_ARENA_CACHED]++;
        if (node != KVPI_NO_NODE && node <= prefix->n_touched && in->options->tell != NULL &&
            kvpi_checkpoint_of(in->copy, node) == slot && space_of_root(prefix, node) != 0 &&
            kvpi_states_has_kv(in->copy, node) && !kvpi_states_arrives(in->copy, slot)) {
            tell_checkpoint(in, slot, node);
        }
    }
}

/* ------------------------------------------------------------------------------------- the call */

/* What only the owner's process can use is taken out. Handles stay those of the cache: blocks have
 * them as owners. */
static void disown(kvp_cache *copy)
{
    const uint64_t cache_bits = copy->recorder.cache_bits;
    copy->calls &= ~(uint64_t)1;
    copy->self = 0;
    copy->mapped = 0;
    memset(&copy->recorder, 0, sizeof(copy->recorder));
    copy->recorder.cache_bits = cache_bits;
}

static void inspect_copy(struct inspection *in)
{
    kvp_arena_report *report = &in->report;
    const int moving = report->inside || report->calls_since > 0;
    disown(in->copy);
    if (moving) {
        report->state = KVP_ARENA_MOVING;
    } else if (!kvpi_in_range(in->copy, &report->violation) ||
               !kvpi_audit(in->copy, 3, &report->violation)) {
        report->state = KVP_ARENA_DAMAGED;
    }
    tell_spaces(in);
    if (in->options->tell_seq != NULL) {
        tell_seqs(in);
    }
    tell_blocks(in, KVP_DEVICE);
    tell_blocks(in, KVP_HOST);
    tell_slots(in);
}

/* Configuration and figures. */
static kvp_status read_figures(struct inspection *in, kvp_cache *out)
{
    if (in->source->n_bytes < sizeof(*out)) {
        return KVP_E_FORMAT;
    }
    fetch_figures(in, out);
    if (in->failed) {
        return KVP_E_IO;
    }
    if (out->mark != kvpi_arena_mark()) {
        return KVP_E_FORMAT;
    }
    if (out->layout != kvpi_arena_layout()) {
        return KVP_E_VERSION;
    }
    if (!kvpi_is_planned(out) || out->arena_bytes > in->source->n_bytes) {
        return KVP_E_FORMAT;
    }
    kvp_cache disowned = *out;
    disown(&disowned);
    in->report.config = out->config;
    in->report.config.uncached_tokens = NULL;
    in->report.arena_bytes = out->arena_bytes;
    in->report.calls = (out->calls + 1) / 2;
    in->report.state = in->report.inside ? KVP_ARENA_MOVING : KVP_ARENA_WHOLE;
    return kvp_cache_stats_get(&disowned, &in->report.stats);
}

static kvp_status read_arena(struct inspection *in)
{
    kvp_cache figures;
    kvp_status status = read_figures(in, &figures);
    if (status != KVP_OK || in->options == NULL) {
        return status;
    }
    if (!kvpi_counts_in_range(&figures)) {
        (void)kvpi_in_range(&figures, &in->report.violation);
        in->report.state = in->report.inside ? KVP_ARENA_MOVING : KVP_ARENA_DAMAGED;
        return KVP_OK;
    }
    const size_t bytes = (size_t)figures.arena_bytes;
    in->copy = kvpi_map_thin(bytes);
    if (in->copy == NULL) {
        return KVP_E_NO_MEMORY;
    }
    *in->copy = figures;
    fetch_rest(in);
    if (!in->failed) {
        inspect_copy(in);
    }
    kvpi_unmap(in->copy, bytes);
    return in->is_short ? KVP_E_TOO_SMALL : in->failed ? KVP_E_IO : KVP_OK;
}

kvp_status kvp_arena_inspect(const kvp_arena_source *source, const kvp_arena_options *options,
                             kvp_arena_report *out_report)
{
    const kvp_arena_options *known = kvpi_sized(options, sizeof(*options));
    if (source == NULL || source->read == NULL || out_report == NULL ||
        (options != NULL && known == NULL)) {
        return KVP_E_ARG;
    }
    struct inspection in = {.source = source, .options = known, .left = UINT64_MAX};
    if (known != NULL && known->max_bytes != 0) {
        in.left = known->max_bytes;
    }
    const kvp_status status = read_arena(&in);
    if (status == KVP_OK) {
        *out_report = in.report;
    }
    return status;
}
