/* snapshot_learned: see learned.h. A record begins with its part:
 *
 *   part 0   time, gate and guard, the ghost's cursors         once, the first of them
 *   part 1   a class: hits, at risk, index at each bin         64
 *   part 2   entries of the ghost, the oldest first            at most 256 in a record
 *   part 3   blocks with content: stamp, number, class, uses   at most 128 in a record
 *
 * What was hit, and what LRU would have hit, is not among it: those are counters of a process.
 *
 * All of it is kept or nothing, because a part of it makes no policy that was ever learned. The
 * audit of the policy decides (policy.h), after numbers were bounded for which it would overflow.
 */
#include "core/snapshot/snapshot_learned.h"

enum {
    PART_POLICY = 0,
    PART_CLASS = 1,
    PART_ENTRIES = 2,
    PART_BLOCKS = 3,
    ENTRIES_A_RECORD = 256,
    BLOCKS_A_RECORD = 128
};

#define MOST_TIME  ((uint64_t)1 << 62) /* references and rests: they go on from here */
#define MOST_COUNT ((uint64_t)1 << 32) /* of groups that came back */
#define MOST_VALUE ((uint32_t)2 << KVPI_VALUE_BITS)

/* ----------------------------------------------------------------------------------------- save */

static uint32_t behind_tail(const struct kvpi_ghost *ghost, uint32_t place)
{
    const uint32_t tail = ghost->cursors[KVPI_BINS - 1];
    return place >= tail ? place - tail : place + ghost->n_places - tail;
}

static void save_policy(const struct kvpi_policy *policy, struct kvpi_snap_writer *writer)
{
    const struct kvpi_ghost *ghost = &policy->ghost;
    struct kvpi_snap_bytes b = kvpi_snap_begin(writer);
    kvpi_snap_put_u32(&b, PART_POLICY);
    kvpi_snap_put_u64(&b, policy->references);
    kvpi_snap_put_u64(&b, policy->rests);
    kvpi_snap_put_u64(&b, (uint64_t)policy->credit);
    kvpi_snap_put_u32(&b, policy->distrusted);
    kvpi_snap_put_u32(&b, policy->gated);
    kvpi_snap_put_u32(&b, policy->n_uses);
    kvpi_snap_put_u32(&b, policy->n_sampled);
    kvpi_snap_put_u32(&b, policy->loose_blocks);
    kvpi_snap_put_u64(&b, policy->returned);
    kvpi_snap_put_u64(&b, policy->returned_late);
    kvpi_snap_put_u32(&b, policy->hits.turn);
    kvpi_snap_put_u32(&b, behind_tail(ghost, ghost->head));
    kvpi_snap_put_u32(&b, behind_tail(ghost, ghost->lru));
    for (uint32_t bin = 0; bin < KVPI_BINS; bin++) {
        kvpi_snap_put_u32(&b, behind_tail(ghost, ghost->cursors[bin]));
    }
    kvpi_snap_end(writer, KVPI_SNAP_LEARNED, &b);
}

static void save_class(const struct kvpi_hits *hits, uint32_t c, struct kvpi_snap_writer *writer)
{
    struct kvpi_snap_bytes b = kvpi_snap_begin(writer);
    uint32_t now[KVPI_BINS], best[KVPI_BINS];
    kvpi_hits_index(hits, c, now, best);
    kvpi_snap_put_u32(&b, PART_CLASS);
    kvpi_snap_put_u32(&b, c);
    for (uint32_t bin = 0; bin < KVPI_BINS; bin++) {
        kvpi_snap_put_u32(&b, hits->hits[c][bin]);
        kvpi_snap_put_u32(&b, hits->at_risk[c][bin]);
        kvpi_snap_put_u32(&b, now[bin]);
    }
    kvpi_snap_end(writer, KVPI_SNAP_LEARNED, &b);
}

static void save_entries(const struct kvpi_ghost *ghost, struct kvpi_snap_writer *writer)
{
    uint32_t at = ghost->cursors[KVPI_BINS - 1];
    while (at != ghost->head) {
        struct kvpi_snap_bytes b = kvpi_snap_begin(writer);
        kvpi_snap_put_u32(&b, PART_ENTRIES);
        for (uint32_t n = 0; n < ENTRIES_A_RECORD && at != ghost->head; n++) {
            const struct kvpi_ghost_entry *entry = kvpi_ghost_entry(ghost, at);
            kvpi_snap_put_u32(&b, entry->name);
            kvpi_snap_put_u32(&b, entry->stamp);
            kvpi_snap_put_u32(&b, entry->blocks | (uint32_t)entry->count << 16 |
                                      (uint32_t)entry->class_ << 24);
            at = at + 1 == ghost->n_places ? 0 : at + 1;
        }
        kvpi_snap_end(writer, KVPI_SNAP_LEARNED, &b);
    }
}

static void put_known(const struct kvpi_order_block *known, uint32_t block,
                      struct kvpi_snap_bytes *b)
{
    kvpi_snap_put_u32(b, block);
    kvpi_snap_put_u64(b, known->stamp);
    kvpi_snap_put_u64(b, known->number);
    kvpi_snap_put_u32(b, known->class_ | (uint32_t)known->count << 8 |
                             (uint32_t)((known->mark & KVPI_LEAF_FOLLOWS) != 0) << 16);
}

static void save_known(const struct kvpi_pool *pool, struct kvpi_snap_writer *writer)
{
    const struct kvpi_leaves *leaves = &pool->leaves;
    for (uint32_t block = 1; leaves->on && block < pool->n_blocks;) {
        struct kvpi_snap_bytes b = kvpi_snap_begin(writer);
        uint32_t n = 0;
        kvpi_snap_put_u32(&b, PART_BLOCKS);
        for (; block < pool->n_blocks && n < BLOCKS_A_RECORD; block++) {
            if (kvpi_block(pool, block)->content != KVPI_NO_NODE) {
                put_known(kvpi_leaves_known(leaves, block), leaves->first + block, &b);
                n++;
            }
        }
        if (n > 0) {
            kvpi_snap_end(writer, KVPI_SNAP_LEARNED, &b);
        }
    }
}

void kvpi_snap_save_learned(const kvp_cache *cache, struct kvpi_snap_writer *writer)
{
    if (!cache->pool.leaves.on) {
        return;
    }
    const struct kvpi_policy *policy = kvpi_leaves_policy(&cache->pool.leaves);
    save_policy(policy, writer);
    for (uint32_t c = 0; c < KVPI_CLASSES; c++) {
        save_class(&policy->hits, c, writer);
    }
    save_entries(&policy->ghost, writer);
    save_known(&cache->pool, writer);
    save_known(&cache->host, writer);
}

/* ----------------------------------------------------------------------------------------- load */

/* Bounded where the policy counts on, or multiplies. */
static int account_is_bounded(const struct kvpi_policy *policy)
{
    return policy->references <= MOST_TIME && policy->rests <= MOST_TIME &&
           policy->credit >= -(int64_t)MOST_TIME && policy->distrusted <= 1 && policy->gated <= 1 &&
           policy->n_sampled <= INT32_MAX && policy->n_uses <= INT32_MAX &&
           policy->loose_blocks <= UINT16_MAX && policy->returned <= MOST_COUNT;
}

static int load_policy(struct kvpi_policy *policy, struct kvpi_snap_learned *learned,
                       struct kvpi_snap_bytes *b)
{
    policy->references = kvpi_snap_get_u64(b);
    policy->rests = kvpi_snap_get_u64(b);
    policy->credit = (int64_t)kvpi_snap_get_u64(b);
    policy->distrusted = kvpi_snap_get_u32(b);
    policy->gated = kvpi_snap_get_u32(b);
    policy->n_uses = kvpi_snap_get_u32(b);
    policy->n_sampled = kvpi_snap_get_u32(b);
    policy->loose_blocks = kvpi_snap_get_u32(b);
    policy->returned = kvpi_snap_get_u64(b);
    policy->returned_late = kvpi_snap_get_u64(b);
    policy->hits.turn = kvpi_snap_get_u32(b);
    learned->n_entries = kvpi_snap_get_u32(b);
    learned->lru = kvpi_snap_get_u32(b);
    for (uint32_t bin = 0; bin < KVPI_BINS; bin++) {
        learned->cursors[bin] = kvpi_snap_get_u32(b);
    }
    const int first = !learned->begun;
    learned->begun = 1;
    return first && account_is_bounded(policy) && learned->n_entries < policy->ghost.n_places;
}

static int load_class(struct kvpi_hits *hits, struct kvpi_snap_learned *learned,
                      struct kvpi_snap_bytes *b)
{
    const uint32_t c = kvpi_snap_get_u32(b);
    if (c >= KVPI_CLASSES || (learned->classes >> c & 1) != 0) {
        return 0;
    }
    learned->classes |= (uint64_t)1 << c;
    int bounded = 1;
    for (uint32_t bin = 0; bin < KVPI_BINS; bin++) {
        hits->hits[c][bin] = kvpi_snap_get_u32(b);
        hits->at_risk[c][bin] = kvpi_snap_get_u32(b);
        hits->now[c][bin] = kvpi_snap_get_u32(b);
        bounded &= hits->at_risk[c][bin] <= KVPI_HITS_MOST + KVPI_HITS_ONE &&
                   hits->now[c][bin] <= MOST_VALUE;
    }
    return bounded;
}

static int load_entries(struct kvpi_ghost *ghost, struct kvpi_snap_learned *learned,
                        struct kvpi_snap_bytes *b)
{
    while (!b->bad && b->at < b->end) {
        struct kvpi_ghost_entry entry = {.name = kvpi_snap_get_u32(b),
                                         .stamp = kvpi_snap_get_u32(b)};
        const uint32_t packed = kvpi_snap_get_u32(b);
        entry.blocks = (uint16_t)packed;
        entry.count = (uint8_t)(packed >> 16);
        entry.class_ = (uint8_t)(packed >> 24);
        if (learned->entries == learned->n_entries) {
            return 0;
        }
        kvpi_ghost_restore(ghost, &entry);
        learned->entries++;
    }
    return 1;
}

/* The pool that has a block by the policy's number; NULL: none has. */
static const struct kvpi_pool *pool_of_number(const kvp_cache *cache, uint32_t number)
{
    const struct kvpi_pool *pool = number < cache->pool.n_blocks ? &cache->pool : &cache->host;
    const uint32_t block = number - pool->leaves.first;
    return pool->leaves.on && block != 0 && block < pool->n_blocks ? pool : NULL;
}

static int load_known(const kvp_cache *cache, struct kvpi_snap_bytes *b)
{
    while (!b->bad && b->at < b->end) {
        const uint32_t number = kvpi_snap_get_u32(b);
        const struct kvpi_pool *pool = pool_of_number(cache, number);
        const uint64_t stamp = kvpi_snap_get_u64(b), rest = kvpi_snap_get_u64(b);
        const uint32_t packed = kvpi_snap_get_u32(b);
        if (pool == NULL || packed >= 1u << 17) {
            return 0;
        }
        const uint32_t block = number - pool->leaves.first;
        if (kvpi_block(pool, block)->content != KVPI_NO_NODE) { /* else it was dropped */
            struct kvpi_order_block *known = kvpi_leaves_known(&pool->leaves, block);
            known->stamp = stamp;
            known->number = rest;
            known->class_ = (uint8_t)packed;
            known->count = (uint8_t)(packed >> 8);
            known->mark = packed >> 16 != 0 ? KVPI_LEAF_FOLLOWS : 0;
        }
    }
    return 1;
}

void kvpi_snap_load_learned(kvp_cache *cache, struct kvpi_snap_learned *learned,
                            struct kvpi_snap_bytes *b)
{
    struct kvpi_policy *policy = kvpi_leaves_policy(&cache->pool.leaves);
    const uint32_t part = kvpi_snap_get_u32(b);
    int fits = learned->begun || part == PART_POLICY;
    if (learned->bad) {
        return;
    }
    switch (part) {
    case PART_POLICY: fits = load_policy(policy, learned, b); break;
    case PART_CLASS: fits = fits && load_class(&policy->hits, learned, b); break;
    case PART_ENTRIES: fits = fits && load_entries(&policy->ghost, learned, b); break;
    case PART_BLOCKS: fits = fits && load_known(cache, b); break;
    default: fits = 0;
    }
    learned->bad = !fits || !kvpi_snap_whole(b);
}

/* Every block with content has its part: a rest at least, which is what made it cached. */
static int all_are_known(const struct kvpi_pool *pool)
{
    for (uint32_t block = 1; pool->leaves.on && block < pool->n_blocks; block++) {
        if (kvpi_block(pool, block)->content != KVPI_NO_NODE &&
            kvpi_leaves_known(&pool->leaves, block)->number == 0) {
            return 0;
        }
    }
    return 1;
}

static int set_cursors(struct kvpi_ghost *ghost, const struct kvpi_snap_learned *learned)
{
    int fit = learned->lru <= learned->n_entries;
    ghost->lru = learned->lru;
    for (uint32_t bin = 0; bin < KVPI_BINS; bin++) {
        fit &= learned->cursors[bin] <= learned->n_entries;
        ghost->cursors[bin] = learned->cursors[bin];
    }
    return fit && learned->cursors[KVPI_BINS - 1] == 0;
}

int kvpi_snap_end_learned(kvp_cache *cache, const struct kvpi_snap_learned *learned)
{
    struct kvpi_policy *policy = kvpi_leaves_policy(&cache->pool.leaves);
    if (learned->begun && !learned->bad && learned->classes == UINT64_MAX &&
        learned->entries == learned->n_entries && set_cursors(&policy->ghost, learned) &&
        all_are_known(&cache->pool) && all_are_known(&cache->host)) {
        kvpi_policy_restored(policy);
        if (kvpi_policy_check(policy) == NULL) {
            return 1;
        }
    }
    kvpi_policy_reset(policy);
    return 0;
}
