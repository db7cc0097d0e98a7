/* pool: see pool.h for the states, the equations and the queues.
 *
 * A queue, with its sentinel s = n_blocks + class; victims leave at the head:
 *
 *        head                                         tail
 *   s -> free -> free -> cached (oldest) -> cached -> cached -> s
 *         ^                                              ^
 *         released without content (class 0)             released with content
 *
 * Refuses nothing: callers have counted before they take.
 */
#include "core/stages/pool.h"

#include <string.h>

enum { AT_ONCE = 128 }; /* blocks of a run whose lines stay near while leaves look at them, too */

void kvpi_pool_layout(struct kvpi_pool *pool, struct kvpi_layout *layout, size_t self)
{
    const uint64_t n =
        pool->n_blocks == 0 ? 0 : (uint64_t)pool->n_blocks + KVP_RETENTION_CLASSES + pool->n_lists;
    pool->blocks_at = kvpi_layout_take(layout, n, sizeof(struct kvpi_block)) - self;
    pool->wraps_at = kvpi_layout_take(layout, pool->n_blocks, sizeof(uint32_t)) - self;
    const size_t n_steps = pool->n_lists > 0 ? pool->n_blocks : 0;
    pool->touched_at = kvpi_layout_take(layout, n_steps, sizeof(uint64_t)) - self;
    pool->arriving_at = kvpi_layout_take(layout, n_steps, sizeof(uint64_t)) - self;
    kvpi_quotas_layout(&pool->quotas, layout, self + offsetof(struct kvpi_pool, quotas));
    kvpi_leaves_layout(&pool->leaves, layout, self + offsetof(struct kvpi_pool, leaves));
    pool->watched = pool->quotas.n_accounts != 0 || pool->leaves.on;
}

void kvpi_pool_reset(struct kvpi_pool *pool, int fresh)
{
    const uint32_t n = pool->n_blocks;
    struct kvpi_block *blocks = kvpi_blocks(pool);
    if (n == 0) {
        return;
    }
    if (fresh) {
        memset(kvpi_at(pool, pool->wraps_at), 0, n * sizeof(uint32_t));
    }
    for (uint32_t b = 0; b < n; b++) {
        const int used = !fresh && (kvpi_block_refs(&blocks[b]) | blocks[b].content) != 0;
        if (used) {
            kvpi_pool_raise(pool, b);
        }
        const uint32_t generation = fresh ? 0 : blocks[b].generation;
        blocks[b] = (struct kvpi_block){.prev = b - 1,
                                        .next = b + 1,
                                        .jump = kvpi_min_u32(b + KVPI_POOL_JUMP, n - 1),
                                        .generation = generation};
    }
    for (uint32_t s = n; s < n + KVP_RETENTION_CLASSES + pool->n_lists; s++) {
        blocks[s] = (struct kvpi_block){.prev = s, .next = s};
    }
    blocks[0].prev = blocks[0].next = blocks[0].jump = 0;
    blocks[1].prev = n; /* class 0's sentinel; block n - 1 has it as its next already */
    blocks[n].prev = n - 1;
    blocks[n].next = 1;
    pool->last_free = n - 1;
    memset(pool->tail_trail, 0, sizeof(pool->tail_trail));
    memset(&pool->head_trail, 0, sizeof(pool->head_trail));
    if (pool->n_lists > 0) {
        memset(kvpi_pool_touched(pool), 0, n * sizeof(uint64_t));
        memset(kvpi_pool_arriving(pool), 0, n * sizeof(uint64_t));
    }
    pool->classes = 1;
    pool->last_free = n - 1;
    pool->parking = 0;
    kvpi_set(&pool->n_free, n - 1);
    kvpi_set(&pool->n_cached, 0);
    kvpi_set(&pool->n_held, 0);
    kvpi_set(&pool->n_parked, 0);
    kvpi_quotas_reset(&pool->quotas, fresh);
    kvpi_leaves_reset(&pool->leaves);
}

/* ------------------------------------------------------------------------ who has to know of it */

void kvpi_pool_tell_cached(struct kvpi_pool *pool, uint32_t block)
{
    if (pool->leaves.on) {
        kvpi_leaves_enter(pool, block);
    } else {
        kvpi_quotas_link(&pool->quotas, block, kvpi_block_class(kvpi_block(pool, block)), 0);
    }
}

void kvpi_pool_tell_uncached(struct kvpi_pool *pool, uint32_t block)
{
    if (pool->leaves.on) {
        kvpi_leaves_leave(pool, block);
    } else {
        kvpi_quotas_unlink(&pool->quotas, block, kvpi_block_class(kvpi_block(pool, block)));
    }
}

void kvpi_pool_tell_back(struct kvpi_pool *pool, uint32_t block)
{
    if (pool->leaves.on) {
        kvpi_leaves_enter(pool, block);
    } else {
        kvpi_quotas_relink(&pool->quotas, block, kvpi_block_class(kvpi_block(pool, block)));
    }
}

/* A block will have no content, and has no holder. */
static void tell_lost(struct kvpi_pool *pool, uint32_t block)
{
    if (pool->leaves.on) {
        kvpi_leaves_content(pool, block, 0);
        return;
    }
    if (!(kvpi_block(pool, block)->refs & KVPI_REFS_PARKED)) {
        kvpi_pool_tell_uncached(pool, block);
    }
    kvpi_quotas_disown(&pool->quotas, block);
}

/* ----------------------------------------------------------------------------------- the queues */

static void push_tail(struct kvpi_pool *pool, uint32_t block, uint32_t class_)
{
    struct kvpi_block *blocks = kvpi_blocks(pool);
    struct kvpi_trail *trail = &pool->tail_trail[class_];
    const uint32_t sentinel = pool->n_blocks + class_;
    const uint32_t last = blocks[sentinel].prev;
    uint32_t *earlier = &trail->recent[trail->at++ % KVPI_POOL_JUMP];
    blocks[block].prev = last;
    blocks[block].next = sentinel;
    blocks[last].next = block;
    blocks[sentinel].prev = block;
    pool->classes |= 1u << class_;
    blocks[*earlier].jump = block; /* *earlier is 0 at first: the null block's is never read */
    *earlier = block;
}

/* To the head of class 0. The generation was raised, or will be, by the caller that dropped the
 * content. */
static void push_free(struct kvpi_pool *pool, uint32_t block)
{
    struct kvpi_block *blocks = kvpi_blocks(pool);
    struct kvpi_trail *trail = &pool->head_trail;
    const uint32_t sentinel = pool->n_blocks;
    const uint32_t first = blocks[sentinel].next;
    uint32_t *earlier = &trail->recent[trail->at++ % KVPI_POOL_JUMP];
    blocks[block].prev = sentinel;
    blocks[block].next = first;
    blocks[block].jump = *earlier;
    blocks[first].prev = block;
    blocks[sentinel].next = block;
    pool->classes |= 1u;
    pool->last_free = pool->n_free == 0 ? block : pool->last_free;
    *earlier = block;
    kvpi_count(&pool->n_free, 1);
}

uint32_t kvpi_pool_victim(const struct kvpi_pool *pool)
{
    if (pool->classes == 0) {
        return 0;
    }
    const uint32_t class_ = (uint32_t)__builtin_ctz(pool->classes);
    return kvpi_block(pool, pool->n_blocks + class_)->next;
}

/* A block that quotas put before the one that the queues have first; 0: they do not. */
static uint32_t first_by_quota(const struct kvpi_pool *pool, uint32_t first, uint64_t owner,
                               uint32_t *out_turn)
{
    *out_turn = pool->quotas.turn;
    return kvpi_block(pool, first)->content == 0
               ? 0
               : kvpi_quotas_first(&pool->quotas, owner, out_turn);
}

uint32_t kvpi_pool_choose(struct kvpi_pool *pool, uint64_t owner)
{
    const uint32_t first = kvpi_pool_victim(pool);
    if (pool->leaves.on) {
        return kvpi_block(pool, first)->content == 0 ? first : kvpi_leaves_choose(pool, first);
    }
    const uint32_t other = first_by_quota(pool, first, owner, &pool->quotas.turn);
    return other != 0 ? other : first;
}

int kvpi_pool_spares(const struct kvpi_pool *pool, uint32_t block, struct kvpi_pool *host)
{
    if (host->n_free > 0 || host->n_cached == 0 ||
        kvpi_leaf(&host->leaves, kvpi_block(pool, block)->content)->continued > 0) {
        return 0;
    }
    return kvpi_leaves_is_worth_less(&pool->leaves, block, &host->leaves,
                                     kvpi_leaves_choose(host, kvpi_pool_victim(host)));
}

/* The first cached block of the queues. */
static uint32_t first_cached(const struct kvpi_pool *pool)
{
    const struct kvpi_block *blocks = kvpi_blocks(pool);
    if (pool->n_free == 0 || pool->n_cached == 0) {
        return pool->n_cached == 0 ? 0 : kvpi_pool_victim(pool);
    }
    const uint32_t next = blocks[pool->last_free].next;
    return next != pool->n_blocks
               ? next
               : blocks[pool->n_blocks + (uint32_t)__builtin_ctz(pool->classes & ~1u)].next;
}

uint32_t kvpi_pool_coldest(const struct kvpi_pool *pool, uint32_t *out_turn)
{
    const uint32_t first = first_cached(pool);
    *out_turn = pool->quotas.turn;
    if (first != 0 && pool->leaves.on) {
        return kvpi_leaves_choose(pool, first);
    }
    if (first == 0 || !kvpi_pool_counts(pool)) {
        return first;
    }
    const uint32_t other = kvpi_quotas_first(&pool->quotas, 0, out_turn);
    return other != 0 ? other : first;
}

void kvpi_pool_last(struct kvpi_pool *pool, uint32_t block, uint32_t turn)
{
    struct kvpi_block *blocks = kvpi_blocks(pool);
    const uint32_t last = pool->n_free > 1 ? pool->last_free : pool->n_blocks;
    KVPI_ASSERT(blocks[block].content == 0 && kvpi_block_refs(&blocks[block]) == 0);
    if (blocks[last].next != block) {
        kvpi_pool_unlink(pool, blocks, block);
        blocks[block].prev = last;
        blocks[block].next = blocks[last].next;
        blocks[blocks[last].next].prev = block;
        blocks[last].next = block;
        pool->classes |= 1u;
    }
    pool->last_free = block;
    pool->quotas.turn = turn;
}

int kvpi_pool_displaces(const struct kvpi_pool *pool, uint64_t owner)
{
    uint32_t turn;
    const uint32_t first = kvpi_pool_victim(pool);
    return kvpi_pool_counts(pool) && kvpi_block(pool, first)->content != 0 &&
           kvpi_quotas_is_full(&pool->quotas, owner) &&
           first_by_quota(pool, first, owner, &turn) == 0;
}

void kvpi_pool_take(struct kvpi_pool *pool, uint32_t block, uint32_t retention, uint32_t group)
{
    struct kvpi_block *blocks = kvpi_blocks(pool);
    KVPI_ASSERT(block != 0 && blocks[block].content == 0 && kvpi_block_refs(&blocks[block]) == 0);
    kvpi_pool_unlink(pool, blocks, block);
    blocks[block].refs = 1 | retention << KVPI_REFS_CLASS_SHIFT | group << KVPI_REFS_GROUP_SHIFT;
    kvpi_uncount(&pool->n_free, 1);
    kvpi_count(&pool->n_held, 1);
}

/* A row that was closed stands in its queue in one piece, the last entry first. So what leaves is a
 * run of neighbours, and the queue is joined behind it once. Of each block inside the run `next` is
 * set to where the run began, as if each had left by itself (kvpi_pool_unhold needs it). */
uint32_t kvpi_pool_hold_run(struct kvpi_pool *pool, const int32_t *row, uint32_t begin,
                            uint32_t end, uint32_t *n_cached, uint32_t *n_idle)
{
    struct kvpi_block *blocks = kvpi_blocks(pool);
    uint32_t prev = 0; /* the block before the run; 0: no run was begun */
    uint32_t next = 0; /* and the one behind it */
    uint32_t idle = 0;
    uint32_t parked = 0;
    uint32_t i = begin;
    for (; i < end && row[i] >= 0; i++) {
        struct kvpi_block *b = &blocks[row[i]];
        const uint32_t refs = b->refs++;
        if ((refs & KVPI_REFS_MASK) != 0) {
            continue;
        }
        KVPI_ASSERT(b->content != 0 &&
                    !kvpi_pool_is_watched(pool)); /* only cached blocks are hit */
        if ((uint32_t)row[i] == prev) {
            b->next = next;
        } else {
            if (prev != 0) {
                kvpi_pool_join(pool, blocks, prev, next);
            }
            next = b->next;
        }
        prev = b->prev;
        idle++;
        parked += (refs & KVPI_REFS_PARKED) != 0;
    }
    if (prev != 0) {
        kvpi_pool_join(pool, blocks, prev, next);
    }
    kvpi_uncount(&pool->n_parked, parked);
    kvpi_uncount(&pool->n_cached, idle - parked);
    kvpi_count(&pool->n_held, idle);
    *n_cached += idle - parked;
    *n_idle += idle;
    return i;
}

/* To the end of the parked list. */
static void park(struct kvpi_pool *pool, uint32_t block)
{
    struct kvpi_block *blocks = kvpi_blocks(pool);
    const uint32_t sentinel = pool->n_blocks + KVP_RETENTION_CLASSES + pool->parking - 1;
    const uint32_t last = blocks[sentinel].prev;
    blocks[block].refs |= KVPI_REFS_PARKED;
    blocks[block].prev = last;
    blocks[block].next = sentinel;
    blocks[last].next = block;
    blocks[sentinel].prev = block;
    kvpi_count(&pool->n_parked, 1);
}

/* Queue a block without a holder. */
static void enqueue(struct kvpi_pool *pool, uint32_t block)
{
    const struct kvpi_block *b = kvpi_block(pool, block);
    if (b->content != 0) {
        push_tail(pool, block, kvpi_block_class(b));
        kvpi_count(&pool->n_cached, 1);
        if (kvpi_pool_is_watched(pool)) {
            kvpi_pool_tell_cached(pool, block);
        }
    } else {
        push_free(pool, block);
    }
}

/* The last holder left a block that has no content. */
static void tell_freed(struct kvpi_pool *pool, uint32_t block)
{
    if (pool->leaves.on) {
        kvpi_leaves_forget(&pool->leaves, block);
    } else {
        kvpi_quotas_disown(&pool->quotas, block);
    }
}

uint32_t kvpi_pool_release(struct kvpi_pool *pool, uint32_t block)
{
    struct kvpi_block *b = kvpi_block(pool, block);
    KVPI_ASSERT(kvpi_block_refs(b) > 0);
    b->refs--;
    const uint32_t left = kvpi_block_refs(b);
    if (left > 0) {
        if (kvpi_unlikely(pool->parking != 0)) {
            kvpi_pool_touched(pool)[block] = pool->newest;
        }
        return left;
    }
    b->refs &= ~(KVPI_REFS_PARKED | KVPI_REFS_FIRST);
    if (b->content == 0) {
        kvpi_pool_raise(pool, block);
        if (kvpi_pool_is_watched(pool)) {
            tell_freed(pool, block);
        }
    } else if (kvpi_unlikely(pool->leaves.on != 0)) {
        kvpi_leaves_rest(&pool->leaves, block);
    }
    kvpi_uncount(&pool->n_held, 1);
    if (kvpi_unlikely(pool->parking != 0)) {
        park(pool, block);
    } else {
        enqueue(pool, block);
    }
    return 0;
}

void kvpi_pool_unpark(struct kvpi_pool *pool, uint32_t list)
{
    struct kvpi_block *blocks = kvpi_blocks(pool);
    const uint32_t sentinel = pool->n_blocks + KVP_RETENTION_CLASSES + list;
    for (uint32_t block = blocks[sentinel].next; block != sentinel;) {
        const uint32_t next = blocks[block].next;
        blocks[block].refs &= ~KVPI_REFS_PARKED;
        kvpi_uncount(&pool->n_parked, 1);
        enqueue(pool, block);
        if (kvpi_unlikely(blocks[block].refs & KVPI_REFS_FIRST) && blocks[block].content != 0) {
            kvpi_pool_expose(pool, block, 0);
        }
        block = next;
    }
    blocks[sentinel].prev = blocks[sentinel].next = sentinel;
}

/* Lower the last four counts of a shared run. Counts of a fork are mostly equal: if they have a bit
 * in common besides the lowest, each is above 1. 0: that is not known, and nothing is done. */
static inline int lower_four(struct kvpi_block *blocks, const int32_t *end)
{
    uint32_t *a = &blocks[end[-1]].refs, *b = &blocks[end[-2]].refs;
    uint32_t *c = &blocks[end[-3]].refs, *d = &blocks[end[-4]].refs;
    if ((*a & *b & *c & *d & (KVPI_REFS_MASK - 1)) == 0) {
        return 0;
    }
    --*a;
    --*b;
    --*c;
    --*d;
    return 1;
}

/* Release the last of a shared run: only counts go down. */
static inline uint32_t release_shared(struct kvpi_block *blocks, const int32_t *row, uint32_t end,
                                      uint32_t begin)
{
    const int32_t *entry = row + end;
    if (end == begin || kvpi_block_refs(&blocks[entry[-1]]) <= 1) {
        return end; /* most rows share none: the counts of four are not waited for */
    }
    while (entry > row + begin) {
        if (entry >= row + begin + 4 && lower_four(blocks, entry)) {
            entry -= 4;
            continue;
        }
        struct kvpi_block *b = &blocks[entry[-1]];
        if (kvpi_block_refs(b) <= 1) {
            break;
        }
        b->refs--;
        entry--;
    }
    return (uint32_t)(entry - row);
}

/* n blocks went to the tail in a run, down to `row`: the jumps of those that were the last before
 * them, and those that are. Within the run they are set already. */
static inline void follow_trail(const struct kvpi_pool *pool, struct kvpi_trail *trail,
                                const int32_t *row, uint32_t n)
{
    struct kvpi_block *blocks = kvpi_blocks(pool);
    const uint32_t n_ends = kvpi_min_u32(n, KVPI_POOL_JUMP);
    for (uint32_t i = 0; i < n_ends; i++) { /* as in push_tail */
        blocks[trail->recent[(trail->at + i) % KVPI_POOL_JUMP]].jump = (uint32_t)row[n - 1 - i];
    }
    trail->at += n;
    for (uint32_t i = 0; i < n_ends; i++) {
        trail->recent[(trail->at - 1 - i) % KVPI_POOL_JUMP] = (uint32_t)row[i];
    }
}

/* Release the last of a run that becomes cached in one class; the queue's end is in registers. */
static inline uint32_t release_cached(struct kvpi_pool *pool, const int32_t *row, uint32_t end,
                                      uint32_t begin)
{
    struct kvpi_block *blocks = kvpi_blocks(pool);
    const struct kvpi_block *first = &blocks[row[end - 1]];
    const uint32_t class_ = kvpi_block_class(first);
    const uint32_t held_once = 1 | (first->refs & (KVPI_REFS_CLASS_MASK | KVPI_REFS_GROUP_MASK));
    const uint32_t sentinel = pool->n_blocks + class_;
    struct kvpi_block *tail = &blocks[blocks[sentinel].prev];
    uint32_t last = blocks[sentinel].prev;
    const int32_t *entry = row + end;
    for (; entry > row + begin; entry--) {
        const uint32_t block = (uint32_t)entry[-1];
        struct kvpi_block *b = &blocks[block];
        if (b->refs != held_once || b->content == 0) {
            break;
        }
        if (entry > row + begin + KVPI_POOL_JUMP) { /* one line: a hint for two takes longer */
            const uint32_t ahead = (uint32_t)entry[-1 - (int)KVPI_POOL_JUMP];
            kvpi_prefetch(&blocks[ahead]);
            b->jump = ahead;
        }
        b->refs = held_once - 1;
        b->prev = last;
        tail->next = block;
        tail = b;
        last = block;
    }
    tail->next = sentinel;
    blocks[sentinel].prev = last;
    follow_trail(pool, &pool->tail_trail[class_], entry, (uint32_t)(row + end - entry));
    pool->classes |= 1u << class_;
    return (uint32_t)(entry - row);
}

uint32_t kvpi_pool_release_run(struct kvpi_pool *pool, const int32_t *row, uint32_t end,
                               uint32_t begin, uint32_t *n_cached)
{
    uint32_t queued = 0;
    for (; pool->parking == 0 && !kvpi_pool_counts(pool);) {
        end = release_shared(kvpi_blocks(pool), row, end, begin);
        if (end == begin || kvpi_block(pool, (uint32_t)row[end - 1])->content == 0) {
            break;
        }
        const int watched = kvpi_unlikely(pool->leaves.on != 0);
        const uint32_t stop = release_cached(
            pool, row, end, watched && end - begin > AT_ONCE ? end - AT_ONCE : begin);
        if (stop == end) {
            break; /* it was parked when it was hit */
        }
        if (watched) {
            kvpi_leaves_enter_run(pool, row, end, stop);
        }
        queued += end - stop;
        end = stop;
    }
    kvpi_uncount(&pool->n_held, queued);
    kvpi_count(&pool->n_cached, queued);
    *n_cached += queued;
    return end;
}

void kvpi_pool_set_content(struct kvpi_pool *pool, uint32_t block, uint32_t content)
{
    struct kvpi_block *b = kvpi_block(pool, block);
    if (content == 0 && b->content != 0 && kvpi_block_refs(b) == 0) {
        const int queued = (b->refs & KVPI_REFS_PARKED) == 0; /* stays where it is */
        if (kvpi_pool_is_watched(pool)) {
            tell_lost(pool, block);
        }
        kvpi_uncount(&pool->n_cached, (uint64_t)queued);
        kvpi_count(&pool->n_free, (uint64_t)queued);
        kvpi_pool_raise(pool, block);
    } else if (kvpi_unlikely(pool->leaves.on != 0)) {
        kvpi_leaves_content(pool, block, content);
    }
    b->content = content;
}

void kvpi_pool_uncache(struct kvpi_pool *pool, uint32_t block)
{
    struct kvpi_block *blocks = kvpi_blocks(pool);
    KVPI_ASSERT(kvpi_block_refs(&blocks[block]) == 0 && blocks[block].content != 0);
    if (kvpi_pool_is_watched(pool)) {
        tell_lost(pool, block);
    }
    blocks[block].content = 0;
    kvpi_pool_raise(pool, block);
    if (!(blocks[block].refs & KVPI_REFS_PARKED)) {
        kvpi_pool_unlink(pool, blocks, block);
        kvpi_uncount(&pool->n_cached, 1);
        push_free(pool, block);
    }
}

void kvpi_pool_retain(struct kvpi_pool *pool, uint32_t block, uint32_t retention)
{
    struct kvpi_block *b = kvpi_block(pool, block);
    KVPI_ASSERT(kvpi_block_refs(b) > 0); /* a row refers to it */
    b->refs = (b->refs & ~KVPI_REFS_CLASS_MASK) | retention << KVPI_REFS_CLASS_SHIFT;
}

/* A free block leaves its queue from any place. (Takes leave at the head: the last free one is
 * theirs only when no other is left.) */
static void leave_free(struct kvpi_pool *pool, uint32_t block)
{
    struct kvpi_block *blocks = kvpi_blocks(pool);
    pool->last_free = pool->last_free == block ? blocks[block].prev : pool->last_free;
    kvpi_pool_unlink(pool, blocks, block);
}

void kvpi_pool_restore(struct kvpi_pool *pool, uint32_t block, uint32_t before, uint32_t class_,
                       uint32_t group)
{
    struct kvpi_block *blocks = kvpi_blocks(pool);
    const uint32_t next = before == 0 ? pool->n_blocks + class_ : before;
    KVPI_ASSERT(blocks[block].content == 0 && kvpi_block_refs(&blocks[block]) == 0);
    leave_free(pool, block);
    const uint32_t prev = blocks[next].prev;
    blocks[block].refs = class_ << KVPI_REFS_CLASS_SHIFT | group << KVPI_REFS_GROUP_SHIFT;
    blocks[block].prev = prev;
    blocks[block].next = next;
    blocks[prev].next = block;
    blocks[next].prev = block;
    pool->classes |= 1u << class_;
    kvpi_uncount(&pool->n_free, 1);
    kvpi_count(&pool->n_cached, 1);
}

void kvpi_pool_expose(struct kvpi_pool *pool, uint32_t block, uint32_t after)
{
    struct kvpi_block *blocks = kvpi_blocks(pool);
    const uint32_t class_ = kvpi_block_class(&blocks[block]);
    KVPI_ASSERT(kvpi_block_is_cached(&blocks[block]) && block != after);
    kvpi_pool_unlink(pool, blocks, block);
    const uint32_t prev = after != 0                        ? after
                          : class_ == 0 && pool->n_free > 0 ? pool->last_free
                                                            : pool->n_blocks + class_;
    const uint32_t next = blocks[prev].next;
    blocks[block].prev = prev;
    blocks[block].next = next;
    blocks[prev].next = block;
    blocks[next].prev = block;
    pool->classes |= 1u << class_;
    if (kvpi_pool_counts(pool)) {
        kvpi_quotas_expose(&pool->quotas, block, class_, after);
    }
}

void kvpi_pool_put_first(struct kvpi_pool *pool, uint32_t block)
{
    struct kvpi_block *b = kvpi_block(pool, block);
    if (kvpi_block_refs(b) > 0 || b->content == 0) {
        return;
    }
    b->refs |= KVPI_REFS_FIRST;
    if (!(b->refs & KVPI_REFS_PARKED)) {
        kvpi_pool_expose(pool, block, 0);
    }
}

void kvpi_pool_restore_owner(struct kvpi_pool *pool, uint32_t block, uint64_t owner)
{
    if (kvpi_pool_counts(pool)) {
        kvpi_quotas_own(&pool->quotas, block, owner);
        kvpi_quotas_link(&pool->quotas, block, kvpi_block_class(kvpi_block(pool, block)), 1);
    }
}

void kvpi_pool_first(struct kvpi_pool *pool, uint32_t block)
{
    KVPI_ASSERT(kvpi_block(pool, block)->content == 0 && kvpi_pool_refs(pool, block) == 0);
    leave_free(pool, block);
    kvpi_uncount(&pool->n_free, 1);
    push_free(pool, block);
}

/* Walk one queue: links consistent, free blocks first and only in class 0. */
static const char *check_queue(const struct kvpi_pool *pool, uint32_t class_, uint64_t counts[2],
                               uint64_t *out_block)
{
    const struct kvpi_block *blocks = kvpi_blocks(pool);
    const uint32_t sentinel = pool->n_blocks + class_;
    int cached_seen = 0;
    uint32_t before = sentinel;
    for (uint32_t b = blocks[sentinel].next; b != sentinel; b = blocks[b].next) {
        *out_block = b;
        if (b == 0 || b >= pool->n_blocks || blocks[b].prev != before) {
            return "B3 a queue's links do not match";
        }
        if ((blocks[b].refs & (KVPI_REFS_MASK | KVPI_REFS_PARKED)) != 0) {
            return "B1 a held or parked block is in a queue";
        }
        const int cached = blocks[b].content != 0;
        if (!cached && (class_ != 0 || cached_seen)) {
            return "B3 a free block stands behind a cached one";
        }
        if (cached && kvpi_block_class(&blocks[b]) != class_) {
            return "B3 a cached block is in another class's queue";
        }
        if (!cached && counts[0] + 1 == pool->n_free && pool->last_free != b) {
            return "B3 the last free block is another one";
        }
        cached_seen |= cached;
        counts[cached]++;
        before = b; /* links that agree both ways do not lead round before the sentinel */
    }
    if (((pool->classes >> class_) & 1u) != (blocks[sentinel].next != sentinel)) {
        return "B3 the mask of non-empty classes is wrong";
    }
    return NULL;
}

/* Walk the parked lists. */
static const char *check_parked(const struct kvpi_pool *pool, uint64_t *out_n, uint64_t *out_block)
{
    const struct kvpi_block *blocks = kvpi_blocks(pool);
    const uint32_t first = pool->n_blocks + KVP_RETENTION_CLASSES;
    for (uint32_t sentinel = first; sentinel < first + pool->n_lists; sentinel++) {
        uint32_t before = sentinel;
        for (uint32_t b = blocks[sentinel].next; b != sentinel; b = blocks[b].next) {
            *out_block = b;
            if (b == 0 || b >= pool->n_blocks || blocks[b].prev != before) {
                return "X1 a parked list's links do not match";
            }
            if ((blocks[b].refs & (KVPI_REFS_MASK | KVPI_REFS_PARKED)) != KVPI_REFS_PARKED) {
                return "X1 a block in a parked list is not parked";
            }
            ++*out_n;
            before = b;
        }
    }
    return NULL;
}

int kvpi_pool_check(const struct kvpi_pool *pool, uint64_t *out_block, const char **out_detail)
{
    const struct kvpi_block *blocks = kvpi_blocks(pool);
    uint64_t counts[2] = {0, 0};
    uint64_t n_parked = 0;
    uint64_t n_held = 0;
    *out_detail = check_parked(pool, &n_parked, out_block);
    if (*out_detail != NULL) {
        return 0;
    }
    for (uint32_t c = 0; c < KVP_RETENTION_CLASSES; c++) {
        *out_detail = check_queue(pool, c, counts, out_block);
        if (*out_detail != NULL) {
            return 0;
        }
    }
    for (uint32_t b = 0; b < pool->n_blocks; b++) {
        n_held += kvpi_block_refs(&blocks[b]) > 0;
        if (blocks[b].refs & KVPI_REFS_MARKED) {
            *out_block = b;
            *out_detail = "B1 a mark of an earlier call was left";
            return 0;
        }
    }
    *out_block = 0;
    if (blocks[0].refs != 0) {
        *out_detail = "B1 the null block is held";
        return 0;
    }
    if (counts[0] != pool->n_free || counts[1] != pool->n_cached || n_held != pool->n_held ||
        n_parked != pool->n_parked) {
        *out_detail = "B2 the counts are not those of the queues";
        return 0;
    }
    *out_detail = kvpi_quotas_check(pool, out_block);
    *out_detail = *out_detail != NULL ? *out_detail : kvpi_leaves_check(pool, out_block);
    return *out_detail == NULL;
}
