/* prefix: the tree of prefix nodes. What KV is of, and which blocks have it.
 *
 * A node is one unit's tokens and keys after a parent node; roots stand for namespaces. It lives
 * while it has a user (a sequence whose last kept unit it is, or a namespace), a child or a block
 * (N4). Public nodes are found through the index (prefix_tags.h), keyed by 32 bits of the hash. A
 * candidate is taken only if its parent IS the node before, and tokens and keys are equal.
 * By induction the whole prefix is then equal, whatever the hash. Private nodes only store tokens.
 *
 * In each tier, for each layer group, a node has at most one attached block. Other blocks with the
 * same valid content are its duplicates there, oldest first. When the block goes, the oldest
 * duplicate takes its place. The unit of depth d (1 for the first) lies in its block at place (d -
 * 1) % units_per_block. A unit is awaited in a block while the copy that brings it belongs to a
 * step that is out. It is neither attached nor a duplicate there, but a user of its node.
 *
 * In memory (U = 16: two adjacent cache lines, all that a hit touches of a node):
 *
 *   |hash 16|parent|users|children|depth|flags|n_keys|block, dups of 2 tiers|jump|root|tokens [U]|
 *
 * and behind the tokens, where there are several groups, block and dups of 2 tiers for each more;
 * with recurrent state also the slot of its checkpoint, and how many checkpoints are below.
 *
 * Nodes of whole pairs of cache lines begin at an odd line of the arena. On Zen 5 evictions are a
 * fifth slower where they begin at an even one (bench/STEADY.md).
 */
#ifndef KVPI_PREFIX_H
#define KVPI_PREFIX_H

#include <kvpager/types.h>

#include <string.h>

#include "base/base.h"
#include "core/stages/hash.h"
#include "core/stages/prefix_tags.h"

#define KVPI_NO_NODE   0u
#define KVPI_NODE_JUMP 16u

enum {
    KVPI_NODE_PUBLIC = 1u,     /* in the index */
    KVPI_NODE_ROOT = 2u,       /* of a namespace: no tokens, never in the index */
    KVPI_NODE_HASH_GIVEN = 4u, /* the hash came from outside: the check does not recompute it */
    KVPI_NODE_MARKED = 8u,     /* scratch of the check */
    KVPI_NODE_LIVE = 16u,      /* a root that a namespace has: not flushed */
    KVPI_NODE_LOST = 32u,      /* it, or a node before it, is on no tier */
    KVPI_NODE_COUNTED = 64u,   /* and it has a block on the host */
    KVPI_NODE_CUT = 128u,      /* a sequence may have kept the KV of its first tokens only */
    KVPI_NODE_CUTS = 256u,     /* so it is with a child, or was with one that is gone */
    KVPI_NODE_LOADING = 512u   /* shifted by a group: a load brings its block of it */
};

#define KVPI_TIERS 2u

/* Where KV may be: on a tier, for a layer group. Places of group 0 lie in the node's first line,
 * those of other groups behind its tokens. */
#define KVPI_WHERE(tier, group) ((tier) + KVPI_TIERS * (group))
#define KVPI_TIER_OF(where)     ((where) % KVPI_TIERS)
#define KVPI_GROUP_OF(where)    ((where) / KVPI_TIERS)

/* Where a node's KV is on one tier, for one group. */
struct kvpi_place {
    uint32_t block; /* attached, 0: none */
    uint32_t dups;  /* oldest duplicate, as a unit slot; 0: none */
};

struct kvpi_node {
    kvp_hash hash;
    uint32_t parent; /* next free node while the node is free */
    uint32_t users;  /* sequences that end here, openers of a root */
    uint32_t children;
    uint32_t depth; /* units from the root; 0: root */
    uint32_t flags;
    uint32_t n_keys;
    struct kvpi_place at[KVPI_TIERS]; /* of group 0; see kvpi_node_at */
    uint32_t jump; /* a hint: the node KVPI_NODE_JUMP units below, on the path opened last */
    uint32_t root; /* the root that it hangs from; a root: itself */
};

/* A unit slot that duplicates a node's content: doubly linked, circular, per node, tier and group.
 * Slots count units over the device's blocks, then over the host's. */
struct kvpi_dup {
    uint32_t next; /* KVPI_AWAITED: not in the list yet */
    uint32_t prev; /* awaited: the low half of the step's number. Near: it is one of those that are
                      out, or the next one (X3), of which there are fewer than 2^32 */
    uint32_t node; /* 0: not a duplicate */
};

/* A node's children, and its neighbours among its parent's; 0: none. */
struct kvpi_kin {
    uint32_t child; /* the youngest */
    uint32_t next;
    uint32_t before;
};

#define KVPI_AWAITED UINT32_MAX

enum {
    KVPI_DUPS_NONE = 0,    /* adopt, unit = block, ordered steps */
    KVPI_DUPS_AWAITED = 1, /* the same, overlapped: units are awaited, none is ever a duplicate */
    KVPI_DUPS_ALL = 2
};

struct kvpi_prefix {
    uint32_t unit_tokens;
    uint32_t units_per_block[KVP_GROUPS_MAX]; /* of the group, S / U */
    uint32_t block_slots; /* unit slots of a block, of any group: the most units of one */
    uint32_t n_nodes;     /* node indices 1 .. n_nodes */
    uint32_t max_unit_keys;
    uint32_t tag_mask;  /* tests cut it to few bits */
    uint32_t has_dups;  /* KVPI_DUPS_... */
    uint32_t n_where;   /* tiers x groups */
    uint32_t has_below; /* 1: nodes count the checkpoints below them */
    uint32_t n_blocks;
    uint32_t host_blocks;
    uint32_t first_free; /* freed nodes, last freed first; a free node's jump, a hint, is the
                                one freed KVPI_NODE_JUMP before it */
    uint32_t freed[KVPI_NODE_JUMP];
    uint32_t freed_at;  /* near: only its place in `freed`, whose size divides 2^32, is used */
    uint32_t n_touched; /* nodes 1 .. n_touched have been used; the rest is untouched memory */
    uint64_t n_used;
    uint64_t n_collisions; /* never wraps */
    uint64_t n_lost;       /* units on the host that no prompt can hit */
    uint32_t has_kin;      /* 1: these are known */
    size_t node_bytes;     /* stride */
    size_t more_at;        /* places of groups from 1 on, in a node */
    size_t below_at;       /* u32 in a node, behind them, with has_below */
    size_t nodes_at;
    size_t keys_at; /* struct kvpi_key [n_nodes + 1][max_unit_keys] */
    size_t dups_at; /* struct kvpi_dup [(n_blocks + host_blocks) * block_slots], if any */
    size_t kin_at;  /* struct kvpi_kin [n_nodes + 1], with has_kin */
    struct kvpi_tags tags;
};

/* What a unit is made of. */
struct kvpi_unit {
    const int32_t *tokens; /* [U] */
    const struct kvpi_key *keys;
    uint32_t n_keys;
};

static inline struct kvpi_node *kvpi_node(const struct kvpi_prefix *prefix, uint32_t node)
{
    return kvpi_at(prefix, prefix->nodes_at + node * prefix->node_bytes);
}

static inline struct kvpi_place *kvpi_node_at(const struct kvpi_prefix *prefix, uint32_t node,
                                              uint32_t where)
{
    struct kvpi_node *n = kvpi_node(prefix, node);
    if (where < KVPI_TIERS) {
        return &n->at[where];
    }
    struct kvpi_place *more = kvpi_at(n, prefix->more_at);
    return &more[where - KVPI_TIERS];
}

/* Is a block attached to the node anywhere? */
static inline int kvpi_node_has_block(const struct kvpi_prefix *prefix, uint32_t node)
{
    const struct kvpi_node *n = kvpi_node(prefix, node);
    uint32_t any = n->at[KVP_DEVICE].block | n->at[KVP_HOST].block;
    for (uint32_t where = KVPI_TIERS; where < prefix->n_where; where++) {
        any |= kvpi_node_at(prefix, node, where)->block;
    }
    return any != 0;
}

/* Does anything keep the node? */
static inline int kvpi_prefix_is_alive(const struct kvpi_prefix *prefix, uint32_t node)
{
    const struct kvpi_node *n = kvpi_node(prefix, node);
    return (n->users | n->children) != 0 || kvpi_node_has_block(prefix, node);
}

/* Checkpoints of recurrent state at the node and in its subtree, with has_below. */
static inline uint32_t *kvpi_node_below(const struct kvpi_prefix *prefix, uint32_t node)
{
    return kvpi_at(kvpi_node(prefix, node), prefix->below_at);
}

static inline const int32_t *kvpi_node_tokens(const struct kvpi_node *node)
{
    return (const int32_t *)(const void *)(node + 1);
}

static inline const struct kvpi_key *kvpi_node_keys(const struct kvpi_prefix *prefix, uint32_t node)
{
    const struct kvpi_key *keys = kvpi_at(prefix, prefix->keys_at);
    return keys + (size_t)node * prefix->max_unit_keys;
}

static inline struct kvpi_dup *kvpi_prefix_dups(const struct kvpi_prefix *prefix)
{
    return kvpi_at(prefix, prefix->dups_at);
}

/* The tag that look-ups use. */
static inline uint32_t kvpi_prefix_tag(const struct kvpi_prefix *prefix, const kvp_hash *hash)
{
    return kvpi_hash_tag(hash) & prefix->tag_mask;
}

/* Ask for the line of the index where a look-up of this hash begins. A hint. */
static inline void kvpi_prefix_prefetch_line(const struct kvpi_prefix *prefix, const kvp_hash *hash)
{
    const uint32_t home = kvpi_tags_home(&prefix->tags, kvpi_prefix_tag(prefix, hash));
    kvpi_prefetch(kvpi_tags_line(&prefix->tags, home));
}

/* The place of a node's unit in a block of the group. */
static inline uint32_t kvpi_prefix_place(const struct kvpi_prefix *prefix,
                                         const struct kvpi_node *node, uint32_t group)
{
    return (node->depth - 1) % prefix->units_per_block[group];
}

/* The slot of a block's unit at `place`. */
static inline uint32_t kvpi_prefix_slot(const struct kvpi_prefix *prefix, uint32_t where,
                                        uint32_t block, uint32_t place)
{
    return (block + (KVPI_TIER_OF(where) == KVP_HOST ? prefix->n_blocks : 0)) *
               prefix->block_slots +
           place;
}

/* Does the root that the node hangs from belong to a namespace still? */
static inline int kvpi_prefix_is_live(const struct kvpi_prefix *prefix,
                                      const struct kvpi_node *node)
{
    return (kvpi_node(prefix, node->root)->flags & KVPI_NODE_LIVE) != 0;
}

void kvpi_prefix_layout(struct kvpi_prefix *prefix, struct kvpi_layout *layout, size_t self);

/* Forget every node. */
void kvpi_prefix_reset(struct kvpi_prefix *prefix);

/* Make a live root with one user; KVPI_NO_NODE when no node is free. */
uint32_t kvpi_prefix_add_root(struct kvpi_prefix *prefix, const kvp_hash *hash);

int kvpi_prefix_same_keys(const struct kvpi_prefix *prefix, uint32_t node,
                          const struct kvpi_unit *unit);

/* [n] tokens equal? A loop that compilers make vectors of; a call to memcmp costs more. */
static inline int kvpi_same_tokens(const int32_t *a, const int32_t *b, uint32_t n)
{
    int32_t differ = 0;
    for (uint32_t i = 0; i < n; i++) {
        differ |= a[i] ^ b[i];
    }
    return differ == 0;
}

/* The same for a unit of the usual size, in a third of the instructions. */
static inline int kvpi_same_16_tokens(const int32_t *a, const int32_t *b)
{
    typedef uint64_t vector __attribute__((vector_size(16)));
    vector x[4];
    vector y[4];
    memcpy(x, a, sizeof(x));
    memcpy(y, b, sizeof(y));
    const vector differ = (x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]) | (x[3] ^ y[3]);
    return (differ[0] | differ[1]) == 0;
}

/* Is the node the public one of `unit` after `parent`? This, and not how it was come by, decides a
 * hit: the node may be private, withdrawn, of another prefix, or free by now. */
static inline int kvpi_prefix_same(const struct kvpi_prefix *prefix, uint32_t index,
                                   uint32_t parent, const struct kvpi_unit *unit)
{
    const struct kvpi_node *node = kvpi_node(prefix, index);
    const uint32_t U = prefix->unit_tokens;
    return node->parent == parent && (node->flags & KVPI_NODE_PUBLIC) != 0 &&
           (U == 16 ? kvpi_same_16_tokens(kvpi_node_tokens(node), unit->tokens)
                    : kvpi_same_tokens(kvpi_node_tokens(node), unit->tokens, U)) &&
           ((node->n_keys | unit->n_keys) == 0 || kvpi_prefix_same_keys(prefix, index, unit));
}

/* kvpi_prefix_find that counts collisions to the caller: for the audit, which leaves no trace. */
uint32_t kvpi_prefix_look(const struct kvpi_prefix *prefix, uint32_t parent, const kvp_hash *hash,
                          const struct kvpi_unit *unit, uint64_t *n_collisions);

/* The public node of `unit` after `parent`; KVPI_NO_NODE: there is none. Cost: O(1) expected. */
uint32_t kvpi_prefix_find(struct kvpi_prefix *prefix, uint32_t parent, const kvp_hash *hash,
                          const struct kvpi_unit *unit);

/* Make the node of `unit` after `parent`, without user; KVPI_NO_NODE when no node is free. flags:
 * KVPI_NODE_PUBLIC puts it into the index, under `hash`; private ones have no hash (NULL). */
uint32_t kvpi_prefix_add(struct kvpi_prefix *prefix, uint32_t parent, const kvp_hash *hash,
                         const struct kvpi_unit *unit, uint32_t flags);

/* One user more. */
void kvpi_prefix_use(struct kvpi_prefix *prefix, uint32_t node);

/* One user less; the node and its ancestors die if nothing keeps them. Cost: O(nodes that die). */
void kvpi_prefix_unuse(struct kvpi_prefix *prefix, uint32_t node);

/* Free the node, and then its ancestors, while they have no user, child or block. */
void kvpi_prefix_reap(struct kvpi_prefix *prefix, uint32_t node);

/* Make the node impossible to find; its subtree becomes unreachable with it. */
void kvpi_prefix_withdraw(struct kvpi_prefix *prefix, uint32_t node);

/* Add the block as the node's youngest duplicate. */
void kvpi_prefix_add_dup(struct kvpi_prefix *prefix, uint32_t node, uint32_t where, uint32_t block);

/* The node's unit is awaited in the block, until `step` takes effect. */
void kvpi_prefix_await(struct kvpi_prefix *prefix, uint32_t node, uint32_t where, uint32_t block,
                       uint64_t step);

/* Is the unit at `place` of the block a duplicate, or awaited? */
static inline int kvpi_prefix_is_dup(const struct kvpi_prefix *prefix, uint32_t where,
                                     uint32_t block, uint32_t place)
{
    return prefix->has_dups &&
           kvpi_prefix_dups(prefix)[kvpi_prefix_slot(prefix, where, block, place)].node != 0;
}

/* Is the unit in this slot awaited until `step` takes effect? */
static inline int kvpi_prefix_is_awaited(const struct kvpi_prefix *prefix, uint32_t slot,
                                         uint64_t step)
{
    const struct kvpi_dup *dup = &kvpi_prefix_dups(prefix)[slot];
    return dup->node != 0 && dup->next == KVPI_AWAITED && dup->prev == (uint32_t)step;
}

/* Strike one duplicate, or awaited unit, given as a unit slot. The latter may be the node's end. */
void kvpi_prefix_remove_dup(struct kvpi_prefix *prefix, uint32_t where, uint32_t slot);

/* Strike what the block duplicates, or awaits, from unit place `from` on. Cost: O(S / U). */
void kvpi_prefix_strike_dups(struct kvpi_prefix *prefix, uint32_t where, uint32_t block,
                             uint32_t from);

/* Take the block there away from the node, which has it attached; the oldest duplicate takes its
 * place. Gives that duplicate's block, or 0. The node is not reaped. */
uint32_t kvpi_prefix_detach(struct kvpi_prefix *prefix, uint32_t node, uint32_t where);

/* With has_kin: a node may have got its first block, or lost its last one. Cost: O(1), and O(nodes
 * that are lost by it, or are not any more, and their children). */
void kvpi_prefix_settle(struct kvpi_prefix *prefix, uint32_t node);

/* The node's block on a tier is another one. */
static inline void kvpi_prefix_moved(struct kvpi_prefix *prefix, uint32_t node)
{
    if (kvpi_unlikely(prefix->has_kin != 0)) {
        kvpi_prefix_settle(prefix, node);
    }
}

/* Audit K1 to K3 of nodes whose parents are right: NULL when they hold; else the node, and text
 * that begins with the invariant. */
const char *kvpi_prefix_check_lost(const struct kvpi_prefix *prefix, uint64_t *out_node);

/* Audit the index, whose nodes are in range: entries are public nodes, n_public in number, and I1.
 * NULL when it holds; else the line, and text that begins with the invariant. */
const char *kvpi_prefix_check_index(struct kvpi_prefix *prefix, uint64_t n_public,
                                    uint64_t *out_line);

#endif
