/* pool: the blocks of one tier. Who holds how many references, what is free, what goes next.
 *
 * A block is in exactly one state (B1), told from its reference count, its content and its place:
 *
 *   state    refs   content   in a queue
 *   null       0       0          no        block 0 only
 *   free       0       0          yes       class 0, before every cached block of it
 *   cached     0      node        yes       its retention class
 *   held     >= 1    any          no
 *   parked     0      any         no        (overlapped steps; none yet)
 *
 *   n_blocks == 1 + n_free + n_cached + n_held + n_parked                                     (B2)
 *
 * `content` is a number that the pool does not interpret: 0 for none, else the deepest prefix node
 * attached to the block.
 *
 * Queues (B3): per retention class a circular list through `links`, headed by the sentinel
 * n_blocks + class. Victims leave at the head. `jump` is a hint and never decides: it names a block
 * that was some KVPI_POOL_JUMP places behind when the two were queued, so that a run of takes can
 * prefetch what it needs before it gets there; walking `next` would wait for memory at each step.
 */
#ifndef KVPI_POOL_H
#define KVPI_POOL_H

#include <kvpager/types.h>

#include "base.h"

#define KVPI_POOL_JUMP 16u
#define KVPI_POOL_CLASS_MASK 7u /* retention class in a block's mark byte */
#define KVPI_POOL_MARKED 8u     /* scratch bit of one call; clear between calls */

struct kvpi_link {
    uint32_t prev;
    uint32_t next;
    uint32_t jump;
    uint32_t content;
};

/* The last KVPI_POOL_JUMP blocks queued at one end, to set `jump`. */
struct kvpi_trail {
    uint32_t recent[KVPI_POOL_JUMP];
    uint32_t at;
};

struct kvpi_pool {
    uint32_t n_blocks;
    uint32_t classes; /* bit c: queue of class c is not empty */
    uint64_t n_free;
    uint64_t n_cached;
    uint64_t n_held;
    uint64_t n_parked;
    struct kvpi_trail tail_trail[KVP_RETENTION_CLASSES];
    struct kvpi_trail head_trail;
    size_t refs_at;        /* u32 [n_blocks]: an array of its own, small enough for the caches */
    size_t links_at;       /* struct kvpi_link [n_blocks + classes] */
    size_t generations_at; /* u32 [n_blocks] */
    size_t marks_at;       /* u8 [n_blocks] */
};

static inline uint32_t *kvpi_pool_refs(const struct kvpi_pool *pool)
{
    return kvpi_at(pool, pool->refs_at);
}

static inline struct kvpi_link *kvpi_pool_links(const struct kvpi_pool *pool)
{
    return kvpi_at(pool, pool->links_at);
}

static inline uint32_t *kvpi_pool_generations(const struct kvpi_pool *pool)
{
    return kvpi_at(pool, pool->generations_at);
}

static inline uint8_t *kvpi_pool_marks(const struct kvpi_pool *pool)
{
    return kvpi_at(pool, pool->marks_at);
}

static inline uint64_t kvpi_pool_available(const struct kvpi_pool *pool)
{
    return pool->n_free + pool->n_cached;
}

/* Plan the pool's arrays; `self` is the pool's own offset in the arena. */
void kvpi_pool_layout(struct kvpi_pool *pool, struct kvpi_layout *layout, size_t self,
                      uint32_t n_blocks);

/* Make every block free, 1 .. N-1 in order. `fresh`: the arrays' content does not matter. */
void kvpi_pool_reset(struct kvpi_pool *pool, int fresh);

/* One more reference; a waiting block leaves its queue. Cost: O(1). */
static inline void kvpi_pool_hold(struct kvpi_pool *pool, uint32_t block);

/* The block that a take would take, 0 when none is available. Its content must be dropped before
 * kvpi_pool_take (kvpi_pool_set_content 0). */
uint32_t kvpi_pool_victim(const struct kvpi_pool *pool);

/* Take the victim, which must have no content: reference count 1, class `retention`. */
uint32_t kvpi_pool_take(struct kvpi_pool *pool, uint32_t retention);

/* One reference less. At 0 the block is queued: with content at the tail of its class; without,
 * at the head of class 0, its generation raised. Gives the number left. */
uint32_t kvpi_pool_release(struct kvpi_pool *pool, uint32_t block);

/* Say what is in a held block, or take the content of the victim (counted as free from then on). */
void kvpi_pool_set_content(struct kvpi_pool *pool, uint32_t block, uint32_t content);

/* A cached block lost its content: to the head of class 0. */
void kvpi_pool_uncache(struct kvpi_pool *pool, uint32_t block);

/* Change the class of a held block: where it is queued when it is released with content. */
void kvpi_pool_retain(struct kvpi_pool *pool, uint32_t block, uint32_t retention);

/* Audit B1 to B3: 1 when they hold; else 0, the block, and text that begins with the invariant. */
int kvpi_pool_check(const struct kvpi_pool *pool, uint64_t *out_block, const char **out_detail);

static inline void kvpi_pool_unlink(struct kvpi_pool *pool, struct kvpi_link *links, uint32_t block)
{
    const uint32_t prev = links[block].prev;
    const uint32_t next = links[block].next;
    links[prev].next = next;
    links[next].prev = prev;
    if (kvpi_unlikely(prev == next)) { /* both are the sentinel: the queue is empty now */
        pool->classes &= ~(1u << (prev - pool->n_blocks));
    }
}

static inline void kvpi_pool_hold(struct kvpi_pool *pool, uint32_t block)
{
    uint32_t *refs = kvpi_pool_refs(pool);
    if (refs[block]++ == 0) {
        struct kvpi_link *links = kvpi_pool_links(pool);
        KVPI_ASSERT(links[block].content != 0); /* only cached blocks are hit */
        kvpi_pool_unlink(pool, links, block);
        kvpi_uncount(&pool->n_cached, 1);
        kvpi_count(&pool->n_held, 1);
    }
}

#endif
