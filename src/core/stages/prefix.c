/* prefix: see prefix.h for what a node is and how it lies in memory.
 *
 * Flushing a namespace leaves equal hashes under different roots: a look-up goes on until the index
 * (prefix_tags.h) has no other candidate, and the parent decides.
 *
 * Refuses: a node when none is free; the caller then keeps the tokens out of the tree.
 * Invariants kept here: N1 (the caller looks before it adds), N2 (nothing writes into a node after
 * kvpi_prefix_add but links and counts), N4 (reap after whatever was the last).
 */
#include "core/stages/prefix.h"

#include <string.h>

/* Unit slots of both tiers. */
static size_t count_slots(const struct kvpi_prefix *prefix)
{
    return ((size_t)prefix->n_blocks + prefix->host_blocks) * prefix->block_slots;
}

void kvpi_prefix_layout(struct kvpi_prefix *prefix, struct kvpi_layout *layout, size_t self)
{
    const size_t tokens = (size_t)prefix->unit_tokens * sizeof(int32_t);
    const size_t align = tokens % KVPI_CACHE_LINE == 0 ? KVPI_CACHE_LINE : 8;
    const uint64_t n = (uint64_t)prefix->n_nodes + 1;
    const size_t more = (prefix->n_where - KVPI_TIERS) * sizeof(struct kvpi_place);
    prefix->more_at = sizeof(struct kvpi_node) + tokens;
    prefix->below_at = prefix->more_at + more;
    const size_t end = prefix->below_at + prefix->has_below * sizeof(uint32_t);
    prefix->node_bytes = (end + align - 1) / align * align;
    const size_t pair = 2 * KVPI_CACHE_LINE;
    if (prefix->node_bytes % pair == 0 && layout->bytes % pair == 0) {
        (void)kvpi_layout_take(layout, 1, KVPI_CACHE_LINE);
    }
    prefix->nodes_at = kvpi_layout_take(layout, n, prefix->node_bytes) - self;
    prefix->keys_at =
        kvpi_layout_take(layout, n * prefix->max_unit_keys, sizeof(struct kvpi_key)) - self;
    kvpi_tags_layout(&prefix->tags, layout, self + offsetof(struct kvpi_prefix, tags),
                     prefix->n_nodes);
    prefix->dups_at = kvpi_layout_take(layout, prefix->has_dups ? count_slots(prefix) : 0,
                                       sizeof(struct kvpi_dup)) -
                      self;
    prefix->kin_at =
        kvpi_layout_take(layout, prefix->has_kin ? n : 0, sizeof(struct kvpi_kin)) - self;
}

void kvpi_prefix_reset(struct kvpi_prefix *prefix)
{
    kvpi_tags_reset(&prefix->tags);
    if (prefix->has_dups) {
        memset(kvpi_prefix_dups(prefix), 0, count_slots(prefix) * sizeof(struct kvpi_dup));
    }
    prefix->first_free = KVPI_NO_NODE;
    memset(prefix->freed, 0, sizeof(prefix->freed));
    prefix->n_touched = 0;
    kvpi_set(&prefix->n_used, 0);
    kvpi_set(&prefix->n_lost, 0);
}

static uint32_t new_node(struct kvpi_prefix *prefix)
{
    uint32_t index = prefix->first_free;
    if (index != KVPI_NO_NODE) {
        const struct kvpi_node *node = kvpi_node(prefix, index);
        prefix->first_free = node->parent;
        prefix->freed_at--;
        kvpi_prefetch(kvpi_node(prefix, node->jump)); /* to be made in as many calls */
        kvpi_prefetch(kvpi_node(prefix, node->jump) + 1);
    } else if (prefix->n_touched < prefix->n_nodes) {
        index = ++prefix->n_touched;
    } else {
        return KVPI_NO_NODE;
    }
    kvpi_count(&prefix->n_used, 1);
    return index;
}

/* All but the tokens. */
static inline void clear_node(const struct kvpi_prefix *prefix, struct kvpi_node *node)
{
    memset(node, 0, sizeof(*node));
    if (prefix->n_where > KVPI_TIERS) {
        memset(kvpi_at(node, prefix->more_at), 0,
               (prefix->n_where - KVPI_TIERS) * sizeof(struct kvpi_place) +
                   prefix->has_below * sizeof(uint32_t));
    }
}

/* -------------------------------------------------------- what no prompt can hit
 *
 *   root -- a -- b -- c -- d          a, b and d are on a tier, c is not: c and d are lost.
 *                                     d is on the host: it is counted
 *
 *   lost(node)    ==  it is no root, and its parent is lost or it is on no tier            (K1)
 *   counted(node) ==  it is lost, and has a host block;  n_lost == nodes that are counted  (K2)
 *
 * A node that gets its first block or loses its last one may change what is behind it. So nodes
 * know their children, in a list each, youngest first (K3). Memory: 12 bytes a node. Nothing is
 * kept without a host tier, or with layer groups or a window of the configuration: there a hit
 * needs other units. Not inline: calls that have no host tier would pay for registers.
 */

static struct kvpi_kin *kin_of(const struct kvpi_prefix *prefix, uint32_t node)
{
    return (struct kvpi_kin *)kvpi_at(prefix, prefix->kin_at) + node;
}

/* A node was made, after its parent; or a root. It has no block yet. */
__attribute__((noinline)) static void join_parent(struct kvpi_prefix *prefix, uint32_t node)
{
    struct kvpi_node *n = kvpi_node(prefix, node);
    struct kvpi_kin *kin = kin_of(prefix, node);
    *kin = (struct kvpi_kin){0, 0, 0};
    if (n->flags & KVPI_NODE_ROOT) {
        return;
    }
    struct kvpi_kin *above = kin_of(prefix, n->parent);
    kin->next = above->child;
    if (kin->next != KVPI_NO_NODE) {
        kin_of(prefix, kin->next)->before = node;
    }
    above->child = node;
    n->flags |= KVPI_NODE_LOST;
}

/* A node without block and children is freed. */
__attribute__((noinline)) static void leave_parent(struct kvpi_prefix *prefix, uint32_t node)
{
    const struct kvpi_node *n = kvpi_node(prefix, node);
    const struct kvpi_kin *kin = kin_of(prefix, node);
    KVPI_ASSERT(kin->child == KVPI_NO_NODE && !(n->flags & KVPI_NODE_COUNTED));
    if (n->flags & KVPI_NODE_ROOT) {
        return;
    }
    if (kin->next != KVPI_NO_NODE) {
        kin_of(prefix, kin->next)->before = kin->before;
    }
    if (kin->before != KVPI_NO_NODE) {
        kin_of(prefix, kin->before)->next = kin->next;
    } else {
        kin_of(prefix, n->parent)->child = kin->next;
    }
}

static int has_block(const struct kvpi_node *n)
{
    return (n->at[KVP_DEVICE].block | n->at[KVP_HOST].block) != 0;
}

/* What K1 and K2 say of a node that is no root. */
static uint32_t lost_marks(const struct kvpi_prefix *prefix, const struct kvpi_node *n)
{
    if (has_block(n) && !(kvpi_node(prefix, n->parent)->flags & KVPI_NODE_LOST)) {
        return 0;
    }
    return KVPI_NODE_LOST | (n->at[KVP_HOST].block != 0 ? KVPI_NODE_COUNTED : 0u);
}

/* Mark one node again. Is it lost, or found again, by that? */
static int mark(struct kvpi_prefix *prefix, struct kvpi_node *n)
{
    const uint32_t before = n->flags & (KVPI_NODE_LOST | KVPI_NODE_COUNTED);
    const uint32_t now = lost_marks(prefix, n);
    n->flags = (n->flags & ~(uint32_t)(KVPI_NODE_LOST | KVPI_NODE_COUNTED)) | now;
    kvpi_count(&prefix->n_lost, (now & KVPI_NODE_COUNTED) != 0);
    kvpi_uncount(&prefix->n_lost, (before & KVPI_NODE_COUNTED) != 0);
    return ((before ^ now) & KVPI_NODE_LOST) != 0;
}

/* The tree below is walked by its links: it may be deeper than a stack. */
__attribute__((noinline)) void kvpi_prefix_settle(struct kvpi_prefix *prefix, uint32_t node)
{
    const uint32_t top = node;
    const struct kvpi_node *n = kvpi_node(prefix, top);
    if (!(n->flags & KVPI_NODE_LOST) && has_block(n)) {
        return;
    }
    for (;;) {
        if (mark(prefix, kvpi_node(prefix, node)) && kin_of(prefix, node)->child != KVPI_NO_NODE) {
            node = kin_of(prefix, node)->child;
            continue;
        }
        while (node != top && kin_of(prefix, node)->next == KVPI_NO_NODE) {
            node = kvpi_node(prefix, node)->parent;
        }
        if (node == top) {
            return;
        }
        node = kin_of(prefix, node)->next;
    }
}

/* ---------------------------------------------------------------------------- nodes come and go */

uint32_t kvpi_prefix_add_root(struct kvpi_prefix *prefix, const kvp_hash *hash)
{
    const uint32_t index = new_node(prefix);
    if (index != KVPI_NO_NODE) {
        struct kvpi_node *node = kvpi_node(prefix, index);
        clear_node(prefix, node);
        node->hash = *hash;
        node->users = 1;
        node->flags = KVPI_NODE_ROOT | KVPI_NODE_LIVE;
        node->root = index;
        if (prefix->has_kin) {
            join_parent(prefix, index);
        }
    }
    return index;
}

int kvpi_prefix_same_keys(const struct kvpi_prefix *prefix, uint32_t node,
                          const struct kvpi_unit *unit)
{
    const uint32_t n_keys = kvpi_node(prefix, node)->n_keys;
    if (n_keys != unit->n_keys) {
        return 0;
    }
    const struct kvpi_key *keys = kvpi_node_keys(prefix, node);
    for (uint32_t i = 0; i < n_keys; i++) {
        if (memcmp(&keys[i], &unit->keys[i], sizeof(keys[i])) != 0) { /* unused bytes are zero */
            return 0;
        }
    }
    return 1;
}

uint32_t kvpi_prefix_look(const struct kvpi_prefix *prefix, uint32_t parent, const kvp_hash *hash,
                          const struct kvpi_unit *unit, uint64_t *n_collisions)
{
    const uint32_t tag = kvpi_prefix_tag(prefix, hash);
    struct kvpi_tags_search search = kvpi_tags_search(&prefix->tags, tag);
    for (;;) {
        const uint32_t node = kvpi_tags_next(&prefix->tags, &search);
        if (node == KVPI_NO_NODE || kvpi_prefix_same(prefix, node, parent, unit)) {
            return node;
        }
        *n_collisions += kvpi_prefix_tag(prefix, &kvpi_node(prefix, node)->hash) == tag;
    }
}

uint32_t kvpi_prefix_find(struct kvpi_prefix *prefix, uint32_t parent, const kvp_hash *hash,
                          const struct kvpi_unit *unit)
{
    uint64_t n_collisions = 0;
    const uint32_t node = kvpi_prefix_look(prefix, parent, hash, unit, &n_collisions);
    if (kvpi_unlikely(n_collisions > 0)) {
        kvpi_count(&prefix->n_collisions, n_collisions);
    }
    return node;
}

uint32_t kvpi_prefix_add(struct kvpi_prefix *prefix, uint32_t parent, const kvp_hash *hash,
                         const struct kvpi_unit *unit, uint32_t flags)
{
    const uint32_t index = new_node(prefix);
    if (index == KVPI_NO_NODE) {
        return KVPI_NO_NODE;
    }
    struct kvpi_node *node = kvpi_node(prefix, index);
    struct kvpi_node *above = kvpi_node(prefix, parent);
    clear_node(prefix, node);
    node->parent = parent;
    node->root = above->root;
    node->depth = above->depth + 1;
    node->flags = flags;
    node->n_keys = unit->n_keys;
    above->children++;
    memcpy(node + 1, unit->tokens, (size_t)prefix->unit_tokens * 4);
    if (unit->n_keys > 0) {
        struct kvpi_key *keys = kvpi_at(prefix, prefix->keys_at);
        memcpy(keys + (size_t)index * prefix->max_unit_keys, unit->keys,
               unit->n_keys * sizeof(*keys));
    }
    if (flags & KVPI_NODE_PUBLIC) {
        node->hash = *hash;
        kvpi_tags_add(&prefix->tags, kvpi_prefix_tag(prefix, hash), index);
    }
    if (kvpi_unlikely(prefix->has_kin != 0)) {
        join_parent(prefix, index);
    }
    return index;
}

void kvpi_prefix_use(struct kvpi_prefix *prefix, uint32_t node)
{
    kvpi_node(prefix, node)->users++;
}

void kvpi_prefix_unuse(struct kvpi_prefix *prefix, uint32_t node)
{
    struct kvpi_node *n = kvpi_node(prefix, node);
    KVPI_ASSERT(n->users > 0);
    n->users--;
    kvpi_prefix_reap(prefix, node);
}

void kvpi_prefix_reap(struct kvpi_prefix *prefix, uint32_t node)
{
    while (node != KVPI_NO_NODE) {
        struct kvpi_node *n = kvpi_node(prefix, node);
        if ((n->users | n->children) != 0 || kvpi_node_has_block(prefix, node)) {
            return;
        }
        KVPI_ASSERT((n->at[KVP_DEVICE].dups | n->at[KVP_HOST].dups) == 0);
        const uint32_t parent = n->parent; /* 0 for a root */
        if (n->flags & KVPI_NODE_PUBLIC) {
            kvpi_tags_remove(&prefix->tags, kvpi_prefix_tag(prefix, &n->hash), node);
        }
        if (kvpi_unlikely(prefix->has_kin != 0)) {
            leave_parent(prefix, node);
        }
        n->parent = prefix->first_free;
        n->flags = 0;
        n->jump = prefix->freed[prefix->freed_at % KVPI_NODE_JUMP];
        prefix->freed[prefix->freed_at++ % KVPI_NODE_JUMP] = node;
        prefix->first_free = node;
        kvpi_uncount(&prefix->n_used, 1);
        if (parent != KVPI_NO_NODE) {
            kvpi_node(prefix, parent)->children--;
        }
        node = parent;
    }
}

void kvpi_prefix_withdraw(struct kvpi_prefix *prefix, uint32_t node)
{
    struct kvpi_node *n = kvpi_node(prefix, node);
    kvpi_tags_remove(&prefix->tags, kvpi_prefix_tag(prefix, &n->hash), node);
    n->flags &= ~(uint32_t)KVPI_NODE_PUBLIC;
}

void kvpi_prefix_await(struct kvpi_prefix *prefix, uint32_t node, uint32_t where, uint32_t block,
                       uint64_t step)
{
    const uint32_t place = kvpi_prefix_place(prefix, kvpi_node(prefix, node), KVPI_GROUP_OF(where));
    struct kvpi_dup *dup = &kvpi_prefix_dups(prefix)[kvpi_prefix_slot(prefix, where, block, place)];
    KVPI_ASSERT(prefix->has_dups && dup->node == 0);
    *dup = (struct kvpi_dup){KVPI_AWAITED, (uint32_t)step, node};
    kvpi_prefix_use(prefix, node);
}

void kvpi_prefix_add_dup(struct kvpi_prefix *prefix, uint32_t node, uint32_t where, uint32_t block)
{
    struct kvpi_dup *dups = kvpi_prefix_dups(prefix);
    struct kvpi_place *at = kvpi_node_at(prefix, node, where);
    const uint32_t place = kvpi_prefix_place(prefix, kvpi_node(prefix, node), KVPI_GROUP_OF(where));
    const uint32_t slot = kvpi_prefix_slot(prefix, where, block, place);
    KVPI_ASSERT(prefix->has_dups == KVPI_DUPS_ALL && dups[slot].node == 0 && at->block != block);
    dups[slot].node = node;
    if (at->dups == 0) {
        dups[slot].next = slot;
        dups[slot].prev = slot;
        at->dups = slot;
        return;
    }
    const uint32_t oldest = at->dups;
    const uint32_t youngest = dups[oldest].prev;
    dups[slot].next = oldest;
    dups[slot].prev = youngest;
    dups[youngest].next = slot;
    dups[oldest].prev = slot;
}

void kvpi_prefix_remove_dup(struct kvpi_prefix *prefix, uint32_t where, uint32_t slot)
{
    struct kvpi_dup *dups = kvpi_prefix_dups(prefix);
    const uint32_t node = dups[slot].node;
    struct kvpi_place *at = kvpi_node_at(prefix, node, where);
    if (dups[slot].next == KVPI_AWAITED) {
        dups[slot] = (struct kvpi_dup){0, 0, 0};
        kvpi_prefix_unuse(prefix, node);
        return;
    }
    if (dups[slot].next == slot) {
        at->dups = 0;
    } else {
        dups[dups[slot].prev].next = dups[slot].next;
        dups[dups[slot].next].prev = dups[slot].prev;
        if (at->dups == slot) {
            at->dups = dups[slot].next;
        }
    }
    dups[slot] = (struct kvpi_dup){0, 0, 0};
}

void kvpi_prefix_strike_dups(struct kvpi_prefix *prefix, uint32_t where, uint32_t block,
                             uint32_t from)
{
    if (!prefix->has_dups) {
        return;
    }
    const uint32_t first = kvpi_prefix_slot(prefix, where, block, 0);
    for (uint32_t place = from; place < prefix->units_per_block[KVPI_GROUP_OF(where)]; place++) {
        if (kvpi_prefix_dups(prefix)[first + place].node != 0) {
            kvpi_prefix_remove_dup(prefix, where, first + place);
        }
    }
}

uint32_t kvpi_prefix_detach(struct kvpi_prefix *prefix, uint32_t node, uint32_t where)
{
    struct kvpi_place *at = kvpi_node_at(prefix, node, where);
    KVPI_ASSERT(at->block != 0);
    at->block = 0;
    if (at->dups != 0) {
        const uint32_t slot = at->dups;
        kvpi_prefix_remove_dup(prefix, where, slot);
        at->block =
            slot / prefix->block_slots - (KVPI_TIER_OF(where) == KVP_HOST ? prefix->n_blocks : 0);
    }
    kvpi_prefix_moved(prefix, node);
    return at->block;
}

/* Take every entry off the lines that passed it over, or put it back. */
static void pass_entries(struct kvpi_prefix *prefix, uint32_t by)
{
    for (uint32_t i = 0; i < prefix->tags.n_lines; i++) {
        const struct kvpi_tags_line *line = kvpi_tags_line(&prefix->tags, i);
        for (uint32_t place = 0; place < KVPI_TAGS_PLACES; place++) {
            if (line->node[place] != KVPI_NO_NODE) {
                const kvp_hash *hash = &kvpi_node(prefix, line->node[place])->hash;
                kvpi_tags_pass(&prefix->tags, kvpi_prefix_tag(prefix, hash), i, by);
            }
        }
    }
}

/* I1: without its entries no line counts any. */
static const char *check_beyond(struct kvpi_prefix *prefix, uint64_t *out_line)
{
    const char *failed = NULL;
    pass_entries(prefix, UINT32_MAX);
    for (uint32_t i = 0; i < prefix->tags.n_lines; i++) {
        if (kvpi_tags_line(&prefix->tags, i)->n_beyond != 0) {
            *out_line = i;
            failed = "I1 a line of the index miscounts what it passed over";
        }
    }
    pass_entries(prefix, 1);
    return failed;
}

const char *kvpi_prefix_check_index(struct kvpi_prefix *prefix, uint64_t n_public,
                                    uint64_t *out_line)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < prefix->tags.n_lines; i++) {
        const struct kvpi_tags_line *line = kvpi_tags_line(&prefix->tags, i);
        for (uint32_t place = 0; place < KVPI_TAGS_PLACES; place++) {
            n += line->node[place] != KVPI_NO_NODE;
            if ((line->node[place] == KVPI_NO_NODE) != (line->mark[place] == 0)) {
                *out_line = i;
                return "N1 the index has an entry without a mark, or the reverse";
            }
        }
    }
    if (n != n_public) {
        *out_line = n;
        return "N1 the index has other entries than the public nodes";
    }
    return check_beyond(prefix, out_line);
}

/* K3, one node's links: what is beside it knows it, and has its parent. */
static int is_linked(const struct kvpi_prefix *prefix, uint32_t node)
{
    const struct kvpi_kin *kin = kin_of(prefix, node);
    const uint32_t parent = kvpi_node(prefix, node)->parent;
    if (kin->next > prefix->n_touched || kin->before > prefix->n_touched) {
        return 0;
    }
    const int first = kin->before == KVPI_NO_NODE;
    const uint32_t knows =
        first ? kin_of(prefix, parent)->child : kin_of(prefix, kin->before)->next;
    return knows == node && (first || kvpi_node(prefix, kin->before)->parent == parent) &&
           (kin->next == KVPI_NO_NODE || kin_of(prefix, kin->next)->before == node);
}

const char *kvpi_prefix_check_lost(const struct kvpi_prefix *prefix, uint64_t *out_node)
{
    uint64_t n_lost = 0;
    if (!prefix->has_kin) {
        return NULL;
    }
    for (uint32_t i = 1; i <= prefix->n_touched; i++) {
        const struct kvpi_node *n = kvpi_node(prefix, i);
        const uint32_t marks = n->flags & (KVPI_NODE_LOST | KVPI_NODE_COUNTED);
        *out_node = i;
        if ((n->users | n->children) == 0 && !kvpi_node_has_block(prefix, i)) {
            continue;
        }
        if ((n->flags & KVPI_NODE_ROOT) == 0 && !is_linked(prefix, i)) {
            return "K3 a node is not among its parent's children";
        }
        if (marks != (n->flags & KVPI_NODE_ROOT ? 0 : lost_marks(prefix, n))) {
            return "K1 a unit is lost, and not marked so, or the reverse";
        }
        n_lost += (marks & KVPI_NODE_COUNTED) != 0;
    }
    *out_node = 0;
    return n_lost == prefix->n_lost ? NULL : "K2 lost units on the host are miscounted";
}
