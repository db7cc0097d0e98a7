/* audit: the audit. Every invariant of the design, by number, over the whole cache.
 *
 * Counts are audited without memory of their own: every reference that a table or a node holds is
 * taken off the count it belongs to, all counts must then be zero, and everything is put back.
 */
#include "core/cache/audit.h"
#include "core/cache/blocks.h"
#include "core/cache/inflight.h"
#include "core/cache/spaces.h"
#include "core/cache/state.h"
#include "core/cache/states.h"

#include <string.h>

struct audit {
    kvp_cache *cache;
    const char *failed; /* "T1 text": the invariant's number first */
    uint64_t object;
};

static int fail(struct audit *audit, uint64_t object, const char *text)
{
    if (audit->failed == NULL) {
        audit->failed = text;
        audit->object = object;
    }
    return 0;
}

/* ------------------------------------------------------------------------------------ level 1 */

static int check_sums(struct audit *audit)
{
    const kvp_cache *cache = audit->cache;
    for (uint32_t p = 0; p < KVPI_POOLS; p++) {
        const struct kvpi_pool *pool = kvpi_copy_pool(audit->cache, p);
        if (pool->n_blocks > 0 &&
            1 + pool->n_free + pool->n_cached + pool->n_held + pool->n_parked != pool->n_blocks) {
            return fail(audit, 0,
                        p < KVPI_TIERS ? "B2 the counts do not sum to the number of blocks"
                                       : "B2 the counts do not sum to the number of slots");
        }
    }
    if (cache->prefix.n_used > cache->prefix.n_nodes ||
        cache->plan.n + cache->plan.n_out > cache->plan.capacity ||
        kvpi_steps_out(cache) > cache->steps.max || cache->table.n_open > cache->table.max_seqs) {
        return fail(audit, 0, "B2 more in use than there is");
    }
    return 1;
}

/* -------------------------------------------------------------------------------- level 3: rows */

static int check_counts(struct audit *audit, const struct kvpi_seq *seq, uint64_t place)
{
    const kvp_cache *cache = audit->cache;
    const uint32_t U = cache->config.unit_tokens;
    const uint32_t slots = kvpi_rows_slots(cache, seq);
    if (seq->known > seq->tokens || seq->computed > seq->tokens || seq->prompt > seq->tokens ||
        seq->cached > seq->tokens || seq->writable > slots || seq->exclusive > slots ||
        (seq->tier == KVP_DEVICE ? seq->tokens + seq->n_tree : seq->computed) > slots ||
        (seq->tier == KVP_HOST && kvpi_rows_lose(cache, seq, seq->computed))) {
        return fail(audit, place, "M2 a sequence's counts exceed its row");
    }
    if (seq->n_public > seq->n_units || (uint64_t)seq->n_units * U > seq->known ||
        (!seq->unkept && seq->known / U != seq->n_units)) {
        return fail(audit, place, "M2 a sequence's units are not those of its tokens");
    }
    if (seq->n_tree > 0 &&
        (seq->n_tree > cache->table.max_tree || seq->writable < seq->tokens + seq->n_tree)) {
        return fail(audit, place, "M2 a tree has no slots");
    }
    return 1;
}

/* Slots from computed on that count as ours alone must be: one holder, no node over them. */
static int check_exclusive(struct audit *audit, const struct kvpi_seq *seq, uint32_t group)
{
    const kvp_cache *cache = audit->cache;
    const uint32_t S = kvpi_block_tokens(cache, group);
    const int32_t *row = kvpi_row(cache, seq, group);
    for (uint32_t i = seq->computed / S; (uint64_t)i * S < seq->exclusive; i++) {
        const uint32_t begin = kvpi_max_u32(seq->computed, i * S) - i * S;
        const uint32_t block = (uint32_t)row[i];
        const uint32_t content = kvpi_block(&cache->pool, block)->content;
        if (kvpi_pool_refs(&cache->pool, block) != 1) {
            return fail(audit, block, "T3 a writable slot is in a shared block");
        }
        if (content != KVPI_NO_NODE &&
            (kvpi_prefix_place(&cache->prefix, kvpi_node(&cache->prefix, content), group) + 1) *
                    cache->config.unit_tokens >
                begin) {
            return fail(audit, block, "T3 a writable slot is sealed");
        }
    }
    return 1;
}

/* Entries are held blocks of the group, or null where the window has dropped them. */
static int check_row(struct audit *audit, const struct kvpi_seq *seq, uint32_t place,
                     uint32_t group)
{
    kvp_cache *cache = audit->cache;
    const struct kvpi_pool *pool = kvpi_tier_pool(cache, seq->tier);
    const struct kvpi_window *window = &kvpi_windows(&cache->table, place)[group];
    const uint32_t sinks = kvpi_row_length(cache, group, window->sink);
    const int32_t *row = kvpi_row(cache, seq, group);
    const uint32_t n = kvpi_row_entries(cache, seq, group);
    for (uint32_t i = 0; i < n; i++) {
        if ((seq->windowed & KVPI_WINDOWED) && i >= sinks && i < window->dropped) {
            if (row[i] != KVP_NULL_BLOCK) {
                return fail(audit, place, "T2 a dropped entry is not null");
            }
            continue;
        }
        if (row[i] <= 0 || (uint32_t)row[i] >= pool->n_blocks ||
            kvpi_pool_refs(pool, (uint32_t)row[i]) == 0) {
            return fail(audit, place, "M2 a row's entry is not a held block");
        }
        if (kvpi_block_group(kvpi_block(pool, (uint32_t)row[i])) != group) {
            return fail(audit, place, "M2 a row's block is of another group");
        }
    }
    if (window->chunked && (window->sink > 0 || window->recent == 0)) {
        return fail(audit, place, "T2 chunks of no tokens, or with sinks");
    }
    return seq->windowed & KVPI_WINDOWED
               ? window->dropped <= n || fail(audit, place, "T2 more is dropped than there is")
               : (window->recent | window->dropped | window->chunked) == 0 ||
                     fail(audit, place, "T2 a window that nobody knows of");
}

static int check_path(struct audit *audit, const struct kvpi_seq *seq, uint32_t place)
{
    const kvp_cache *cache = audit->cache;
    const uint32_t *nodes = kvpi_row_nodes(&cache->table, place);
    for (uint32_t u = 0; u < seq->n_units; u++) {
        const struct kvpi_node *node = kvpi_node(&cache->prefix, nodes[u]);
        if (nodes[u] == KVPI_NO_NODE || nodes[u] > cache->prefix.n_touched ||
            node->parent != (u == 0 ? seq->root : nodes[u - 1]) || node->depth != u + 1) {
            return fail(audit, place, "N2 a row's nodes are not a path");
        }
        if (u < seq->n_public && !(node->flags & KVPI_NODE_PUBLIC)) {
            return fail(audit, place, "N1 a public unit cannot be found");
        }
    }
    if (seq->last != kvpi_audit_token(cache, seq)) {
        return fail(audit, place, "M2 the last token is not the one that is noted");
    }
    return 1;
}

static int check_rows(struct audit *audit, const struct kvpi_seq *seq, uint32_t place)
{
    for (uint32_t g = 0; g < audit->cache->config.n_groups; g++) {
        if (!check_row(audit, seq, place, g) || !check_exclusive(audit, seq, g)) {
            return 0;
        }
    }
    return 1;
}

static int check_seqs(struct audit *audit)
{
    const struct kvpi_table *table = &audit->cache->table;
    uint64_t n_open = 0;
    for (struct kvpi_seq *seq = NULL; (seq = kvpi_next_open(table, seq)) != NULL;) {
        const uint32_t place = kvpi_seq_place(table, seq);
        n_open++;
        if (!check_counts(audit, seq, place) || !check_rows(audit, seq, place) ||
            !check_path(audit, seq, place)) {
            return 0;
        }
    }
    return n_open == table->n_open || fail(audit, n_open, "B2 the count of open sequences is off");
}

/* -------------------------------------------------------------------- level 3: reference counts */

/* Add `by` to what copies that keep evicted content hold, and to the users of awaited nodes. */
static void move_copies(kvp_cache *cache, uint32_t by)
{
    const struct kvpi_prefix *prefix = &cache->prefix;
    const struct kvpi_copy *copies = kvpi_plan_copies(&cache->plan);
    const size_t n_slots = ((size_t)prefix->n_blocks + prefix->host_blocks) * prefix->block_slots;
    for (uint64_t i = 0; i < cache->plan.n_out + cache->plan.n; i++) {
        if (copies[i].keeps) {
            kvpi_block(&cache->host, copies[i].dst)->refs += by;
        }
    }
    for (size_t slot = 0; slot < n_slots && prefix->has_dups; slot++) {
        const struct kvpi_dup *dup = &kvpi_prefix_dups(prefix)[slot];
        if (dup->node != KVPI_NO_NODE && dup->next == KVPI_AWAITED) {
            kvpi_node(prefix, dup->node)->users += by;
        }
    }
}

/* The same for what is lent, and for the nodes that loads use. */
static void move_lent(kvp_cache *cache, uint32_t by)
{
    const struct kvpi_lending *lending = &cache->lending;
    for (uint32_t b = 0; b < kvpi_n_lent(cache); b++) {
        const struct kvpi_lent *lent = kvpi_lent(cache, b);
        kvpi_lent_block(cache, b)->refs += by * (lent->holds + (lent->node != KVPI_NO_NODE));
    }
    for (uint32_t place = 0; place < lending->max_loads; place++) {
        const struct kvpi_load *load = kvpi_load_at(cache, place);
        kvpi_node(&cache->prefix, load->node)->users += load->number != 0 ? by : 0;
    }
}

/* Add `by` to the count of every block once for each row entry, and to users and children once for
 * each that there is. */
static void move_counts(kvp_cache *cache, uint32_t by)
{
    const struct kvpi_prefix *prefix = &cache->prefix;
    move_copies(cache, by);
    move_lent(cache, by);
    for (struct kvpi_seq *seq = NULL; (seq = kvpi_next_open(&cache->table, seq)) != NULL;) {
        struct kvpi_block *blocks = kvpi_blocks(kvpi_tier_pool(cache, seq->tier));
        for (uint32_t g = 0; g < cache->config.n_groups; g++) {
            const int32_t *row = kvpi_row(cache, seq, g);
            const uint32_t n = kvpi_row_entries(cache, seq, g);
            for (uint32_t i = 0; i < n; i++) {
                blocks[row[i]].refs += row[i] == KVP_NULL_BLOCK ? 0 : by;
            }
        }
        kvpi_node(prefix, kvpi_audit_node(cache, seq))->users += by;
        if (kvpi_has_states(cache)) {
            kvpi_states_refer(cache, seq, by);
        }
    }
    const struct kvpi_space *spaces = kvpi_at(cache, cache->spaces_at);
    for (uint32_t place = 0; place < cache->config.max_namespaces; place++) {
        if (spaces[place].generation & 1) {
            kvpi_node(prefix, spaces[place].root)->users += by;
        }
    }
}

static void move_children(kvp_cache *cache, uint32_t by)
{
    const struct kvpi_prefix *prefix = &cache->prefix;
    for (uint32_t i = 1; i <= prefix->n_touched; i++) {
        const struct kvpi_node *node = kvpi_node(prefix, i);
        if (node->flags & KVPI_NODE_MARKED && node->parent != KVPI_NO_NODE) {
            kvpi_node(prefix, node->parent)->children += by;
        }
    }
}

/* Mark the living nodes, so that the walk that takes their counts off knows them afterwards. */
static uint64_t mark_alive(kvp_cache *cache)
{
    uint64_t n = 0;
    for (uint32_t i = 1; i <= cache->prefix.n_touched; i++) {
        struct kvpi_node *node = kvpi_node(&cache->prefix, i);
        if (kvpi_prefix_is_alive(&cache->prefix, i)) {
            node->flags |= KVPI_NODE_MARKED;
            n++;
        }
    }
    return n;
}

static int check_references(struct audit *audit)
{
    kvp_cache *cache = audit->cache;
    const struct kvpi_prefix *prefix = &cache->prefix;
    const uint32_t minus_one = UINT32_MAX;
    const uint64_t n_alive = mark_alive(cache);
    move_counts(cache, minus_one);
    move_children(cache, minus_one);
    for (uint32_t p = 0; p < KVPI_POOLS; p++) {
        const struct kvpi_pool *pool = kvpi_copy_pool(cache, p);
        for (uint32_t b = 0; b < pool->n_blocks; b++) {
            if (kvpi_pool_refs(pool, b) != 0) {
                (void)fail(audit, b, "T1 a reference count is not the number of holders");
            }
        }
    }
    for (uint32_t i = 1; i <= prefix->n_touched; i++) {
        const struct kvpi_node *node = kvpi_node(prefix, i);
        if ((node->flags & KVPI_NODE_MARKED) && (node->users | node->children) != 0) {
            (void)fail(audit, i, "N4 a node's users or children are miscounted");
        }
    }
    move_counts(cache, 1);
    move_children(cache, 1);
    for (uint32_t i = 1; i <= prefix->n_touched; i++) {
        kvpi_node(prefix, i)->flags &= ~(uint32_t)KVPI_NODE_MARKED;
    }
    if (n_alive != prefix->n_used) {
        (void)fail(audit, n_alive, "N4 the nodes alive are not the nodes in use");
    }
    return audit->failed == NULL;
}

/* ------------------------------------------------------------------------------- level 3: nodes */

static int check_hash(const struct kvpi_prefix *prefix, uint32_t index)
{
    const struct kvpi_node *node = kvpi_node(prefix, index);
    kvp_hash hash;
    kvpi_hash_unit(&kvpi_node(prefix, node->parent)->hash, kvpi_node_tokens(node),
                   prefix->unit_tokens, kvpi_node_keys(prefix, index), node->n_keys, &hash);
    return memcmp(&hash, &node->hash, sizeof(hash)) == 0;
}

/* A public node is what the index gives for its own content: there is no second one. */
static int check_public(struct audit *audit, uint32_t index)
{
    struct kvpi_prefix *prefix = &audit->cache->prefix;
    const struct kvpi_node *node = kvpi_node(prefix, index);
    const struct kvpi_unit unit = {kvpi_node_tokens(node), kvpi_node_keys(prefix, index),
                                   node->n_keys};
    uint64_t n_collisions = 0;
    const uint32_t found =
        kvpi_prefix_look(prefix, node->parent, &node->hash, &unit, &n_collisions);
    if (found != index) {
        return fail(audit, index, "N1 a public node is not found, or is there twice");
    }
    /* Hashes that came from outside were verified at their ends only, and so are their children. */
    if (!(node->flags & KVPI_NODE_HASH_GIVEN) && !check_hash(prefix, index)) {
        return fail(audit, index, "N2 a node's hash is not that of its content");
    }
    return 1;
}

/* Where the node is on one tier, for one group. */
static int check_place(struct audit *audit, uint32_t index, uint32_t where)
{
    const struct kvpi_prefix *prefix = &audit->cache->prefix;
    const struct kvpi_node *node = kvpi_node(prefix, index);
    const struct kvpi_place *at = kvpi_node_at(prefix, index, where);
    if (at->block == 0) {
        return at->dups == 0 || fail(audit, index, "N3 a node has duplicates and no block");
    }
    const struct kvpi_pool *pool = kvpi_tier_pool(audit->cache, KVPI_TIER_OF(where));
    const uint32_t content = kvpi_block(pool, at->block)->content;
    if (kvpi_where(audit->cache, KVPI_TIER_OF(where), at->block) != where) {
        return fail(audit, index, "N3 a node's block is of another group");
    }
    if (content == KVPI_NO_NODE || kvpi_node(prefix, content)->depth < node->depth) {
        return fail(audit, index, "N3 a node's block does not know of it");
    }
    return 1;
}

static int check_node(struct audit *audit, uint32_t index)
{
    const struct kvpi_prefix *prefix = &audit->cache->prefix;
    const struct kvpi_node *node = kvpi_node(prefix, index);
    if (node->flags & KVPI_NODE_ROOT) {
        return ((node->parent | node->depth) == 0 && !kvpi_node_has_block(prefix, index) &&
                node->root == index) ||
               fail(audit, index, "N2 a root has a parent or a block");
    }
    if (node->depth != kvpi_node(prefix, node->parent)->depth + 1 ||
        node->root != kvpi_node(prefix, node->parent)->root) {
        return fail(audit, index, "N2 a node's depth or root is not its parent's");
    }
    for (uint32_t where = 0; where < kvpi_block_wheres(audit->cache); where++) {
        if (!check_place(audit, index, where)) {
            return 0;
        }
    }
    return 1;
}

static int check_nodes(struct audit *audit)
{
    struct kvpi_prefix *prefix = &audit->cache->prefix;
    uint64_t n_public = 0;
    uint64_t line;
    for (uint32_t i = 1; i <= prefix->n_touched; i++) {
        const struct kvpi_node *node = kvpi_node(prefix, i);
        if (!kvpi_prefix_is_alive(prefix, i)) {
            continue;
        }
        n_public += (node->flags & KVPI_NODE_PUBLIC) != 0;
        if (!check_node(audit, i) ||
            ((node->flags & KVPI_NODE_PUBLIC) && !check_public(audit, i))) {
            return 0;
        }
    }
    const char *failed = kvpi_prefix_check_index(prefix, n_public, &line);
    failed = failed != NULL ? failed : kvpi_prefix_check_lost(prefix, &line);
    return failed == NULL || fail(audit, line, failed);
}

/* The content of a block: attached here, and all attached nodes on its way up. */
static int check_content(struct audit *audit, uint32_t tier)
{
    const struct kvpi_prefix *prefix = &audit->cache->prefix;
    const struct kvpi_pool *pool = kvpi_tier_pool(audit->cache, tier);
    uint64_t n_attached = 0;
    uint64_t n_blocks_of_nodes = 0;
    for (uint32_t b = 0; b < pool->n_blocks; b++) {
        const uint32_t content = kvpi_block(pool, b)->content;
        const uint32_t where = kvpi_where(audit->cache, tier, b);
        if (content != KVPI_NO_NODE && kvpi_node_at(prefix, content, where)->block != b) {
            return fail(audit, b, "N3 a block's content is not attached to it");
        }
        for (uint32_t node = content; node != KVPI_NO_NODE;) {
            const struct kvpi_node *n = kvpi_node(prefix, node);
            n_attached += kvpi_node_at(prefix, node, where)->block == b;
            node =
                kvpi_prefix_place(prefix, n, KVPI_GROUP_OF(where)) == 0 ? KVPI_NO_NODE : n->parent;
        }
    }
    for (uint32_t i = 1; i <= prefix->n_touched; i++) {
        for (uint32_t where = tier; where < kvpi_block_wheres(audit->cache); where += KVPI_TIERS) {
            n_blocks_of_nodes += kvpi_prefix_is_alive(prefix, i) &&
                                 kvpi_node_at(prefix, i, where)->block != KVP_NULL_BLOCK;
        }
    }
    return n_attached == n_blocks_of_nodes ||
           fail(audit, n_attached, "N3 an attached node is not on its block's path");
}

/* A unit is awaited until one of the steps that are out, or the next one, takes effect. */
static int check_awaited(struct audit *audit, uint32_t slot)
{
    const kvp_cache *cache = audit->cache;
    const uint32_t oldest = (uint32_t)(cache->steps.effective + 1);
    if (cache->config.steps != KVP_STEPS_OVERLAPPED) {
        return fail(audit, slot, "X1 a unit is awaited, and steps are ordered");
    }
    return kvpi_prefix_dups(&cache->prefix)[slot].prev - oldest <= kvpi_steps_out(cache) ||
           fail(audit, slot, "X3 a unit is awaited, and its step is not out");
}

/* A unit slot that duplicates a node's content, or awaits it. */
static int check_dup(struct audit *audit, uint32_t slot)
{
    const struct kvpi_prefix *prefix = &audit->cache->prefix;
    const struct kvpi_dup *dups = kvpi_prefix_dups(prefix);
    const uint32_t tier = slot / prefix->block_slots < prefix->n_blocks ? KVP_DEVICE : KVP_HOST;
    const uint32_t block = slot / prefix->block_slots - (tier == KVP_HOST ? prefix->n_blocks : 0);
    const struct kvpi_node *node = kvpi_node(prefix, dups[slot].node);
    const struct kvpi_block *b = kvpi_block(kvpi_tier_pool(audit->cache, tier), block);
    if (kvpi_prefix_place(prefix, node, kvpi_block_group(b)) != slot % prefix->block_slots) {
        return fail(audit, slot, "N3 a duplicate is at another place of its block");
    }
    if (kvpi_block_refs(b) == 0 && b->content == KVPI_NO_NODE) {
        return fail(audit, slot, "N3 a free block is a duplicate");
    }
    if (dups[slot].next == KVPI_AWAITED) {
        return check_awaited(audit, slot);
    }
    const struct kvpi_place *at =
        kvpi_node_at(prefix, dups[slot].node, kvpi_where(audit->cache, tier, block));
    return (at->block != 0 && at->block != block && at->dups != 0 &&
            dups[dups[slot].next].prev == slot && dups[dups[slot].prev].next == slot) ||
           fail(audit, slot, "N3 a list of duplicates is broken");
}

static int check_dups(struct audit *audit)
{
    const struct kvpi_prefix *prefix = &audit->cache->prefix;
    const uint32_t n_slots = (prefix->n_blocks + prefix->host_blocks) * prefix->block_slots;
    for (uint32_t slot = 0; slot < n_slots && prefix->has_dups; slot++) {
        if (kvpi_prefix_dups(prefix)[slot].node != KVPI_NO_NODE && !check_dup(audit, slot)) {
            return 0;
        }
    }
    return 1;
}

/* A block counts for the namespaces of its holder and of its content. */
static int check_owner(struct audit *audit, const struct kvpi_pool *pool, uint32_t block)
{
    const struct kvpi_prefix *prefix = &audit->cache->prefix;
    const struct kvpi_node *node = kvpi_node(prefix, kvpi_block(pool, block)->content);
    return node == kvpi_node(prefix, KVPI_NO_NODE) || !kvpi_prefix_is_live(prefix, node) ||
           kvpi_space_has(audit->cache, kvpi_owned(&pool->quotas, block)->owner, node) ||
           fail(audit, block, "Q1 a block counts for another namespace than its content's");
}

static int check_slot_owner(struct audit *audit, const struct kvpi_seq *seq, uint32_t slot)
{
    const struct kvpi_pool *pool = kvpi_states_pool(audit->cache, seq->tier);
    if (slot != 0 && kvpi_owned(&pool->quotas, slot)->owner != seq->ns.bits) {
        return fail(audit, slot, "Q1 a slot counts for another namespace than its holder's");
    }
    return 1;
}

static int check_holders(struct audit *audit, const struct kvpi_seq *seq)
{
    const kvp_cache *cache = audit->cache;
    const struct kvpi_state *state = kvpi_states_of(cache, seq);
    if (kvpi_has_states(cache) && (!check_slot_owner(audit, seq, state->read) ||
                                   !check_slot_owner(audit, seq, state->write))) {
        return 0;
    }
    for (uint32_t i = 0; kvpi_has_states(cache) && i < state->n_ring; i++) {
        if (!check_slot_owner(audit, seq, state->ring[i])) {
            return 0;
        }
    }
    for (uint32_t g = 0; g < cache->config.n_groups; g++) {
        const int32_t *row = kvpi_row(cache, seq, g);
        const uint32_t n = kvpi_row_entries(cache, seq, g);
        for (uint32_t i = 0; i < n; i++) {
            if (row[i] != KVP_NULL_BLOCK &&
                kvpi_owner_of(cache, seq->tier, (uint32_t)row[i]) != seq->ns.bits) {
                return fail(audit, (uint64_t)row[i],
                            "Q1 a block counts for another namespace than its holder's");
            }
        }
    }
    return 1;
}

static int check_owners(struct audit *audit)
{
    const kvp_cache *cache = audit->cache;
    if (!cache->config.quotas) {
        return 1;
    }
    for (uint32_t p = 0; p < KVPI_POOLS; p++) {
        const struct kvpi_pool *pool = kvpi_copy_pool(audit->cache, p);
        for (uint32_t b = 0; b < pool->n_blocks; b++) {
            if (!check_owner(audit, pool, b)) {
                return 0;
            }
        }
    }
    for (struct kvpi_seq *seq = NULL; (seq = kvpi_next_open(&cache->table, seq)) != NULL;) {
        if (!check_holders(audit, seq)) {
            return 0;
        }
    }
    return 1;
}

static int check_plan(struct audit *audit)
{
    const kvp_cache *cache = audit->cache;
    const struct kvpi_copy *copies = kvpi_plan_copies(&cache->plan);
    uint64_t n_out = 0;
    for (uint64_t i = 0; i < cache->plan.n_out + cache->plan.n; i++) {
        const uint32_t n_src = kvpi_copy_pool(audit->cache, copies[i].src_tier)->n_blocks;
        const uint32_t n_dst = kvpi_copy_pool(audit->cache, copies[i].dst_tier)->n_blocks;
        if (copies[i].src == 0 || copies[i].src >= n_src || copies[i].dst == 0 ||
            copies[i].dst >= n_dst || copies[i].n_tokens == 0 ||
            (copies[i].src == copies[i].dst && copies[i].src_tier == copies[i].dst_tier) ||
            copies[i].n_tokens > kvpi_block_tokens(cache, copies[i].group)) {
            return fail(audit, i, "X2 a copy in the plan is not one");
        }
    }
    for (uint64_t s = cache->steps.effective + 1; s <= cache->steps.begun; s++) {
        n_out += cache->steps.n_copies[s % cache->steps.max];
    }
    return n_out == cache->plan.n_out ||
           fail(audit, n_out, "X2 the steps that are out have other copies than the plan");
}

/* The blocks of a load: linked, held by it alone, without content, their nodes marked. */
static int check_load(struct audit *audit, const struct kvpi_load *load)
{
    kvp_cache *cache = audit->cache;
    const uint32_t flag = (uint32_t)KVPI_NODE_LOADING << load->group;
    uint32_t b = load->first;
    for (uint32_t i = 0; i < load->n_blocks; i++, b = kvpi_lent(cache, b)->next) {
        const uint32_t node = kvpi_lent(cache, b)->node;
        const struct kvpi_block *block = kvpi_lent_block(cache, b);
        const int is_slot = b >= cache->config.host_blocks;
        if (b == KVP_NULL_BLOCK || node == KVPI_NO_NODE || kvpi_lent(cache, b)->holds != 0 ||
            kvpi_block_refs(block) != 1 || block->content != KVPI_NO_NODE ||
            (is_slot ? cache->config.n_groups : kvpi_block_group(block)) != load->group) {
            return fail(audit, b, "L2 a block of a load is not its alone");
        }
        if (!kvpi_prefix_is_alive(&cache->prefix, node) ||
            !(kvpi_node(&cache->prefix, node)->flags & flag) ||
            kvpi_prefix_place(&cache->prefix, kvpi_node(&cache->prefix, node), load->group) + 1 !=
                kvpi_units_per_block(cache, load->group)) {
            return fail(audit, node, "L2 a node of a load is not marked");
        }
    }
    return b == KVP_NULL_BLOCK || fail(audit, b, "L2 a load has more blocks than it counts");
}

/* Marks of nodes, as many as blocks are loaded. */
static uint64_t count_loading(const struct kvpi_prefix *prefix)
{
    uint64_t n = 0;
    for (uint32_t i = 1; i <= prefix->n_touched; i++) {
        n += kvpi_prefix_is_alive(prefix, i)
                 ? (uint64_t)__builtin_popcount(kvpi_node(prefix, i)->flags / KVPI_NODE_LOADING)
                 : 0;
    }
    return n;
}

static int check_lent(struct audit *audit)
{
    const kvp_cache *cache = audit->cache;
    const struct kvpi_lending *lending = &cache->lending;
    uint64_t n_loads = 0;
    uint64_t n_loading = 0;
    uint64_t n_slots = 0;
    uint64_t n_reading = 0;
    for (uint32_t place = 0; place < lending->max_loads; place++) {
        const struct kvpi_load *load = kvpi_load_at(cache, place);
        if (load->number == 0) {
            continue;
        }
        n_loads++;
        n_loading += load->n_blocks;
        n_slots += load->group == cache->config.n_groups;
        if (!check_load(audit, load)) {
            return 0;
        }
    }
    for (uint32_t b = 0; b < kvpi_n_lent(cache); b++) {
        n_reading += kvpi_lent(cache, b)->holds > 0;
        n_loading -= kvpi_lent(cache, b)->node != KVPI_NO_NODE;
    }
    if (n_loads != lending->n_loads || n_loading != 0 || n_reading != lending->n_reading ||
        n_slots != lending->n_slots ||
        count_loading(&cache->prefix) != lending->n_loading + n_slots) {
        return fail(audit, n_loads, "L1 what is lent is miscounted");
    }
    return (n_reading + lending->n_loading <= lending->limit && n_slots <= lending->slot_limit) ||
           fail(audit, n_reading, "L3 more is lent than may be");
}

/* --------------------------------------------------------------------- level 3: recurrent state */

/* S1 to S3, of a sequence. */
static int check_state(struct audit *audit, const struct kvpi_seq *seq, uint32_t place)
{
    const kvp_cache *cache = audit->cache;
    const struct kvpi_pool *pool = kvpi_states_pool(audit->cache, seq->tier);
    const struct kvpi_state *state = kvpi_states_of(cache, seq);
    if ((state->read != 0 && state->read >= pool->n_blocks) ||
        (state->write != 0 && state->write >= pool->n_blocks)) {
        return fail(audit, place, "S2 a sequence's slot is none");
    }
    if (seq->tier == KVP_HOST &&
        (state->write != 0 ||
         (state->read != 0 && kvpi_block(pool, state->read)->content != KVPI_NO_NODE))) {
        return fail(audit, place, "S6 a sequence on the host writes a slot, or reads a checkpoint");
    }
    const struct kvpi_block *write = state->write == 0 ? NULL : kvpi_block(pool, state->write);
    if (write != NULL && (kvpi_block_refs(write) != 1 || write->content != KVPI_NO_NODE)) {
        return fail(audit, place, "S1 a slot that is written is shared, or a checkpoint");
    }
    if ((state->read != 0) != (seq->computed > 0 && !state->lost)) {
        return fail(audit, place, "S2 a sequence reads a slot without need, or lacks it");
    }
    if (state->write != 0 ? state->lost
                          : seq->exclusive != 0 || (cache->config.steps == KVP_STEPS_ORDERED &&
                                                    seq->writable > seq->computed)) {
        return fail(audit, place, "S3 slots are writable, and there is no slot of state to write");
    }
    if (!kvpi_states_ring_valid(cache, seq)) {
        return fail(audit, place, "S9 a ring has a slot that is none, or has too many");
    }
    return kvpi_states_ahead_valid(cache, seq) ||
           fail(audit, place, "S7 a slot of a step that is out is none, or is of no use");
}

/* S4, from both sides, and S10. */
static int check_checkpoints(struct audit *audit)
{
    const kvp_cache *cache = audit->cache;
    uint64_t n_content = 0;
    for (uint32_t s = 1; s < cache->config.state_slots; s++) {
        const uint32_t node = kvpi_block(&cache->states.pool, s)->content;
        n_content += node != KVPI_NO_NODE;
        if (node != KVPI_NO_NODE && kvpi_checkpoint_of(cache, node) != s) {
            return fail(audit, s, "S4 a slot's node has another checkpoint");
        }
        if (!kvpi_states_arrival_valid(cache, s)) {
            return fail(audit, s, "X3 a state is awaited that no copy brings, or that is hit");
        }
    }
    for (uint32_t i = 1; i <= cache->prefix.n_touched; i++) {
        const struct kvpi_place *at = kvpi_node_at(&cache->prefix, i, kvpi_states_where(cache));
        if (kvpi_prefix_is_alive(&cache->prefix, i) && (at->block | at->dups) != 0) {
            n_content--;
            if (at->dups != 0) {
                return fail(audit, i, "S4 a checkpoint has duplicates");
            }
        }
    }
    return n_content == 0 || fail(audit, n_content, "S4 a node's checkpoint is no slot's content");
}

static int check_below(struct audit *audit)
{
    uint64_t node = 0;
    return kvpi_states_below_valid(audit->cache, &node) ||
           fail(audit, node, "S5 the checkpoints below a node are miscounted");
}

static int check_states(struct audit *audit)
{
    const struct kvpi_table *table = &audit->cache->table;
    if (!kvpi_has_states(audit->cache)) {
        return 1;
    }
    for (struct kvpi_seq *seq = NULL; (seq = kvpi_next_open(table, seq)) != NULL;) {
        if (!check_state(audit, seq, kvpi_seq_place(table, seq))) {
            return 0;
        }
    }
    return check_checkpoints(audit) && check_below(audit);
}

/* ------------------------------------------------------------------------------------ the audit */

static int check_learning(struct audit *audit)
{
    const kvp_cache *cache = audit->cache;
    const uint32_t *hits = kvpi_at(cache, cache->learning.hits_at);
    uint64_t sum = 0;
    for (uint32_t place = 0; cache->pool.leaves.on && place < cache->table.max_seqs; place++) {
        sum += hits[place] == KVPI_NO_REQUEST ? 0 : hits[place];
    }
    return sum == cache->learning.hits || fail(audit, 0, "V3 the hits of open requests are wrong");
}

static int check_twice(struct audit *audit)
{
    const uint32_t twice = kvpi_find_twice(audit->cache);
    return twice == 0 || fail(audit, twice, "B4 the host keeps what the device has");
}

static int audit_pool(struct audit *audit)
{
    for (uint32_t p = 0; p < KVPI_POOLS; p++) {
        const struct kvpi_pool *pool = kvpi_copy_pool(audit->cache, p);
        uint64_t block = 0;
        const char *detail = NULL;
        if (pool->n_blocks > 0 && !kvpi_pool_check(pool, &block, &detail)) {
            return fail(audit, block, detail);
        }
    }
    return 1;
}

int kvpi_audit(kvp_cache *cache, int level, kvp_violation *out_violation)
{
    struct audit audit = {cache, NULL, 0};
    int sound = check_sums(&audit);
    if (sound && level >= 2) {
        sound = audit_pool(&audit);
    }
    if (sound && level >= 3) {
        sound = check_seqs(&audit) && check_references(&audit) && check_nodes(&audit) &&
                check_content(&audit, KVP_DEVICE) && check_content(&audit, KVP_HOST) &&
                check_dups(&audit) && check_owners(&audit) && check_plan(&audit) &&
                check_lent(&audit) && check_states(&audit) && check_learning(&audit) &&
                check_twice(&audit);
    }
    if (out_violation != NULL) {
        memset(out_violation, 0, sizeof(*out_violation));
        out_violation->detail = sound ? "" : audit.failed;
        out_violation->object = audit.object;
        memcpy(out_violation->invariant, sound ? "\0" : audit.failed, 2); /* "T1" */
    }
    return sound;
}
