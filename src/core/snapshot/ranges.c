/* ranges: does everything point inside? For an arena whose bytes come from elsewhere.
 *
 * The audit follows what it finds: entries of rows, parents of nodes, links. That is right for a
 * cache of ours, whatever has gone wrong in it, and not for bytes of unknown origin.
 * Here each number that the audit uses as an index, or to end a loop by, is compared with the size
 * of its array first. The sizes and offsets themselves are right: the cache is planned
 * (kvpi_is_planned).
 *
 *   header      counts within capacities                      kvpi_counts_in_range
 *   blocks      group, content; rings of namespaces
 *   nodes       blocks, duplicates, keys; of those alive, a parent that is alive and one less deep,
 *               so that every walk up ends
 *   index       nodes; one slot at least is empty, so that every look-up ends
 *   duplicates  node, neighbours
 *   sequences   rows' lengths, root, tier; slots of state
 *   namespaces  root
 *   copies      tiers, groups, blocks
 *   loads       nodes, groups, blocks
 *   leaves      the policy's sizes and offsets
 */
#include "core/cache/state.h"
#include "core/cache/states.h"
#include "core/snapshot/ranges.h"

#include <string.h>

struct ranges {
    const kvp_cache *cache;
    const char *failed;
    uint64_t object;
};

static int out_of_range(struct ranges *r, uint64_t object, const char *text)
{
    r->failed = text;
    r->object = object;
    return 0;
}

static uint32_t blocks_of(const kvp_cache *cache, uint32_t tier)
{
    return tier == KVP_DEVICE ? cache->pool.n_blocks : cache->host.n_blocks;
}

int kvpi_counts_in_range(const kvp_cache *cache)
{
    const struct kvpi_plan *plan = &cache->plan;
    const struct kvpi_steps *steps = &cache->steps;
    return cache->prefix.n_touched <= cache->prefix.n_nodes && plan->n <= plan->capacity &&
           plan->n_out <= plan->capacity - plan->n && steps->effective <= steps->begun &&
           steps->begun - steps->effective <= steps->max && steps->begun < UINT64_MAX;
}

static int is_node(const kvp_cache *cache, uint32_t index)
{
    return index <= cache->prefix.n_touched;
}

static int check_blocks(struct ranges *r, const struct kvpi_pool *pool)
{
    for (uint32_t b = 0; b < pool->n_blocks; b++) {
        const struct kvpi_block *block = kvpi_block(pool, b);
        if (kvpi_block_group(block) >= r->cache->config.n_groups) {
            return out_of_range(r, b, "B1 a block is of no group");
        }
        if (!is_node(r->cache, block->content)) {
            return out_of_range(r, b, "N3 a block's content is no node");
        }
    }
    return 1;
}

static int rings_in_range(struct ranges *r, const struct kvpi_pool *pool)
{
    const struct kvpi_quotas *quotas = &pool->quotas;
    const uint64_t n = kvpi_quotas_n_owned(quotas);
    for (uint32_t i = 0; i < n; i++) {
        const struct kvpi_owned *owned = kvpi_owned(quotas, i);
        if (owned->prev >= n || owned->next >= n ||
            ((uint32_t)owned->owner & quotas->place_mask) >= quotas->n_accounts) {
            return out_of_range(r, i, "Q3 a namespace's ring leads out of the blocks");
        }
    }
    return 1;
}

static int lives(const struct kvpi_prefix *prefix, uint32_t index)
{
    const struct kvpi_node *node = kvpi_node(prefix, index);
    return (node->users | node->children) != 0 || kvpi_node_has_block(prefix, index);
}

static int keys_in_range(const struct kvpi_prefix *prefix, uint32_t index)
{
    const struct kvpi_key *keys = kvpi_node_keys(prefix, index);
    const uint32_t n = kvpi_node(prefix, index)->n_keys;
    for (uint32_t i = 0; n <= prefix->max_unit_keys && i < n; i++) {
        if (keys[i].n_bytes > KVP_KEY_MAX_BYTES) {
            return 0;
        }
    }
    return n <= prefix->max_unit_keys;
}

static int check_places(struct ranges *r, uint32_t index)
{
    const struct kvpi_prefix *prefix = &r->cache->prefix;
    for (uint32_t where = 0; where < prefix->n_where; where++) {
        const struct kvpi_place *at = kvpi_node_at(prefix, index, where);
        const uint32_t n_blocks = where < kvpi_block_wheres(r->cache)
                                      ? blocks_of(r->cache, KVPI_TIER_OF(where))
                                      : r->cache->states.pool.n_blocks;
        if (at->block != 0 && at->block >= n_blocks) {
            return out_of_range(r, index, "N3 a node's block is none");
        }
    }
    return 1;
}

/* A root has no parent; the parent of another is alive, and one less deep. */
static int check_parent(const struct kvpi_prefix *prefix, uint32_t index)
{
    const struct kvpi_node *node = kvpi_node(prefix, index);
    if (node->parent == KVPI_NO_NODE) {
        return (node->flags & KVPI_NODE_ROOT) != 0;
    }
    return lives(prefix, node->parent) &&
           (uint64_t)kvpi_node(prefix, node->parent)->depth + 1 == node->depth;
}

static int nodes_in_range(struct ranges *r)
{
    const struct kvpi_prefix *prefix = &r->cache->prefix;
    for (uint32_t i = 1; i <= prefix->n_touched; i++) {
        const struct kvpi_node *node = kvpi_node(prefix, i);
        if (!is_node(r->cache, node->parent) || !is_node(r->cache, node->root)) {
            return out_of_range(r, i, "N2 a node's parent or root is none");
        }
        if (lives(prefix, i) && !check_parent(prefix, i)) {
            return out_of_range(r, i, "N2 a node's parent is not one");
        }
        if (!keys_in_range(prefix, i)) {
            return out_of_range(r, i, "N2 a node's keys are none");
        }
        if (!check_places(r, i)) {
            return 0;
        }
    }
    return 1;
}

static int check_index(struct ranges *r)
{
    const struct kvpi_prefix *prefix = &r->cache->prefix;
    for (uint32_t i = 0; i < prefix->tags.n_lines; i++) {
        const struct kvpi_tags_line *line = kvpi_tags_line(&prefix->tags, i);
        for (uint32_t place = 0; place < KVPI_TAGS_PLACES; place++) {
            if (!is_node(r->cache, line->node[place])) {
                return out_of_range(r, i, "N1 the index has what is no node");
            }
        }
    }
    return 1;
}

static int dups_in_range(struct ranges *r)
{
    const struct kvpi_prefix *prefix = &r->cache->prefix;
    const struct kvpi_dup *dups = kvpi_prefix_dups(prefix);
    const uint32_t n_slots = (prefix->n_blocks + prefix->host_blocks) * prefix->block_slots;
    for (uint32_t slot = 0; slot < n_slots && prefix->has_dups; slot++) {
        const struct kvpi_dup *dup = &dups[slot];
        const int awaited = dup->next == KVPI_AWAITED;
        if (dup->node != KVPI_NO_NODE &&
            (!is_node(r->cache, dup->node) ||
             (!awaited && (dup->next >= n_slots || dup->prev >= n_slots)))) {
            return out_of_range(r, slot, "N3 a duplicate of nothing");
        }
    }
    return 1;
}

static int seqs_in_range(struct ranges *r)
{
    const struct kvpi_table *table = &r->cache->table;
    for (struct kvpi_seq *seq = NULL; (seq = kvpi_next_open(table, seq)) != NULL;) {
        const uint32_t place = kvpi_seq_place(table, seq);
        const uint32_t *nodes = kvpi_row_nodes(table, place);
        if (seq->room > table->max_tokens || seq->n_units > table->max_units) {
            return out_of_range(r, place, "M2 a row is longer than any");
        }
        if (!is_node(r->cache, seq->root) ||
            (seq->n_units > 0 && !is_node(r->cache, nodes[seq->n_units - 1]))) {
            return out_of_range(r, place, "N2 a sequence hangs from no node");
        }
        if (seq->tier != KVP_DEVICE && (seq->tier != KVP_HOST || seq->exclusive != 0)) {
            return out_of_range(r, place, "T3 a sequence on the host has slots to write");
        }
    }
    return 1;
}

/* Slots that steps which are out leave states in. */
static int ahead_in_range(struct ranges *r, uint32_t n)
{
    const kvp_cache *cache = r->cache;
    const uint32_t *ahead = kvpi_at(cache, cache->steps.ahead_at);
    for (uint64_t i = 0; i < (uint64_t)cache->steps.max * cache->table.max_seqs; i++) {
        if (ahead[i] >= n) {
            return out_of_range(r, i % cache->table.max_seqs, "S7 a slot of a step is none");
        }
    }
    return 1;
}

/* The slots of sequences are looked at by the audit of their references. */
static int states_in_range(struct ranges *r)
{
    const kvp_cache *cache = r->cache;
    const uint32_t n = cache->states.pool.n_blocks;
    for (uint32_t place = 0; n > 0 && place < cache->table.max_seqs; place++) {
        const struct kvpi_seq *seq = kvpi_seq_at(&cache->table, place);
        const struct kvpi_state *state = kvpi_states_of(cache, seq);
        const uint32_t n_read = seq->tier == KVP_DEVICE ? n : cache->states.host.n_blocks;
        if ((state->read != 0 && state->read >= n_read) || state->write >= n) {
            return out_of_range(r, place, "S2 a sequence's slot is none");
        }
        for (uint32_t k = 0; k < state->n_ring; k++) {
            if (k + 1 >= KVP_STATE_RING_MAX || state->ring[k] >= n || seq->tier != KVP_DEVICE) {
                return out_of_range(r, place, "S9 a ring's slot is none");
            }
        }
    }
    return n == 0 || cache->config.steps == KVP_STEPS_ORDERED || ahead_in_range(r, n);
}

static int check_spaces(struct ranges *r)
{
    const struct kvpi_space *spaces = kvpi_at(r->cache, r->cache->spaces_at);
    for (uint32_t place = 0; place < r->cache->config.max_namespaces; place++) {
        if ((spaces[place].generation & 1) != 0 &&
            (!is_node(r->cache, spaces[place].root) ||
             spaces[place].name_bytes > KVP_NAME_MAX_BYTES)) {
            return out_of_range(r, place, "N2 a namespace has no root");
        }
    }
    return 1;
}

static uint64_t places_of(const struct kvpi_plan *plan, uint32_t tier)
{
    return plan->before[tier + 1] - plan->before[tier];
}

static int copies_in_range(struct ranges *r)
{
    const struct kvpi_plan *plan = &r->cache->plan;
    const struct kvpi_copy *copies = kvpi_plan_copies(plan);
    for (uint64_t i = 0; i < plan->n + plan->n_out; i++) {
        const struct kvpi_copy *copy = &copies[i];
        if (copy->src_tier > (KVPI_SLOTS | KVP_HOST) || copy->dst_tier > (KVPI_SLOTS | KVP_HOST) ||
            copy->src >= places_of(plan, copy->src_tier) ||
            copy->dst >= places_of(plan, copy->dst_tier) ||
            (copy->keeps != 0 && copy->dst_tier != KVP_HOST) ||
            copy->group >= r->cache->config.n_groups + (r->cache->config.state_slots > 0)) {
            return out_of_range(r, i, "X2 a copy of no blocks");
        }
    }
    return 1;
}

static int loads_in_range(struct ranges *r)
{
    const kvp_cache *cache = r->cache;
    const uint32_t n = kvpi_n_lent(cache);
    for (uint32_t b = 0; b < n; b++) {
        if (!is_node(cache, kvpi_lent(cache, b)->node) || kvpi_lent(cache, b)->next >= n) {
            return out_of_range(r, b, "L2 a lent block leads to nothing");
        }
    }
    for (uint32_t place = 0; place < cache->lending.max_loads; place++) {
        const struct kvpi_load *load = kvpi_load_at(cache, place);
        if (!is_node(cache, load->node) || load->first >= n || load->n_blocks >= n ||
            load->group >= cache->config.n_groups + (cache->config.state_slots > 0)) {
            return out_of_range(r, place, "L2 a load of nothing");
        }
    }
    return 1;
}

static int leaves_in_range(struct ranges *r)
{
    return kvpi_leaves_are_planned(&r->cache->pool.leaves) ||
           out_of_range(r, 0, "F4 the policy has other sizes than were planned");
}

int kvpi_in_range(const kvp_cache *cache, kvp_violation *out_violation)
{
    struct ranges r = {cache, NULL, 0};
    const int inside =
        kvpi_counts_in_range(cache)
            ? check_blocks(&r, &cache->pool) && check_blocks(&r, &cache->host) &&
                  check_blocks(&r, &cache->states.pool) && check_blocks(&r, &cache->states.host) &&
                  rings_in_range(&r, &cache->pool) && rings_in_range(&r, &cache->host) &&
                  rings_in_range(&r, &cache->states.pool) &&
                  rings_in_range(&r, &cache->states.host) && nodes_in_range(&r) &&
                  check_index(&r) && dups_in_range(&r) && seqs_in_range(&r) && check_spaces(&r) &&
                  copies_in_range(&r) && loads_in_range(&r) && states_in_range(&r) &&
                  leaves_in_range(&r)
            : out_of_range(&r, 0, "B2 a count exceeds what there is");
    if (!inside) {
        memset(out_violation, 0, sizeof(*out_violation));
        memcpy(out_violation->invariant, r.failed, 2); /* "N2" */
        out_violation->detail = r.failed;
        out_violation->object = r.object;
    }
    return inside;
}
