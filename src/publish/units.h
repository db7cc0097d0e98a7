/* units: the set as readers of the wire have it, and as the cache has it. A tree in fixed memory:
 *
 *   slot 0         above all
 *     roots        one for each namespace with units
 *       units      by position; each the child of the unit before it
 *
 *   units [n]      hash, number on the wire, links, tiers
 *   tokens [n][U]
 *   digests [n]    where hashes are vLLM's
 *   buckets        slots by hash, chained
 *
 * A unit whose unit before it was never stored hangs below its root, through a place that only has
 * a hash: it is not known until it is stored itself.
 *
 * Invariants:
 *   1. told is part of tiers; both are 0 in a place that is not known, and in a root.
 *   2. What is told in any tier is rooted: all before it is known, and none has extra keys.
 *   3. What is told on the device has its unit before it told on the device, or is the first.
 *   4. A slot without tiers and children is free, roots too.
 */
#ifndef KVPI_PUBLISH_UNITS_H
#define KVPI_PUBLISH_UNITS_H

#include <kvpager/publish.h>

#define KVPI_NO_UNIT       0u /* slot 0, which is no unit */
#define KVPI_PUBLISH_TIERS 3u

enum {
    KVPI_UNIT_KNOWN = 1,    /* it was stored: its tokens and its place are true */
    KVPI_UNIT_ROOTED = 2,   /* invariant 2 */
    KVPI_UNIT_SEPARATE = 4, /* it has extra keys, or tokens that the wire cannot carry */
    KVPI_UNIT_ROOT = 8,
    KVPI_UNIT_SEEN = 16 /* scratch of kvp_publisher_resync, with a bit for each tier from here on */
};

struct kvpi_unit {
    kvp_hash hash;
    uint64_t wire;  /* what readers call it; of known units */
    uint64_t stamp; /* when the slot was taken: rises */
    uint32_t chain; /* next in its bucket, or of the free list */
    uint32_t before;
    uint32_t first_child;
    uint32_t next; /* siblings */
    uint32_t prev;
    uint32_t space; /* index of its namespace in config.spaces; 0 without */
    uint8_t tiers;  /* bits: in the cache's set */
    uint8_t told;   /* bits: in the set of readers */
    uint8_t flags;
    uint8_t reserved;
};

struct kvpi_units {
    uint32_t capacity; /* slots, slot 0 included */
    uint32_t unit_tokens;
    uint32_t n; /* in use, slot 0 not counted */
    uint32_t free;
    uint32_t mask; /* buckets, less one */
    uint64_t stamp;
    uint32_t *buckets;
    struct kvpi_unit *units;
    int32_t *tokens;
    uint8_t *digests; /* [capacity][32], or NULL */
    size_t bytes;
};

kvp_status kvpi_units_open(struct kvpi_units *set, uint32_t max_units, uint32_t unit_tokens,
                           int has_digests);
void kvpi_units_close(struct kvpi_units *set);

/* KVPI_NO_UNIT: there is none. */
uint32_t kvpi_units_find(const struct kvpi_units *set, const kvp_hash *hash);

/* A new slot of this hash, the last child of `before`; KVPI_NO_UNIT: there is no room. */
uint32_t kvpi_units_add(struct kvpi_units *set, const kvp_hash *hash, uint32_t before);

/* Hang a slot below another one. */
void kvpi_units_move(struct kvpi_units *set, uint32_t slot, uint32_t before);

/* Free a slot and those above it that have neither tiers nor children any more. Gives the first one
 * that stays; KVPI_NO_UNIT: none. */
uint32_t kvpi_units_prune(struct kvpi_units *set, uint32_t slot);

/* Empty the set. */
void kvpi_units_reset(struct kvpi_units *set);

/* The slot after `slot` in preorder below `top`, without what is below `slot` if `skip`;
 * KVPI_NO_UNIT: no more. */
uint32_t kvpi_units_next(const struct kvpi_units *set, uint32_t top, uint32_t slot, int skip);

static inline struct kvpi_unit *kvpi_unit_at(const struct kvpi_units *set, uint32_t slot)
{
    return &set->units[slot];
}

static inline int32_t *kvpi_unit_tokens(const struct kvpi_units *set, uint32_t slot)
{
    return set->tokens + (size_t)slot * set->unit_tokens;
}

#endif
