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
#include "pool.h"

#include <string.h>

void kvpi_pool_layout(struct kvpi_pool *pool, struct kvpi_layout *layout, size_t self,
                      uint32_t n_blocks)
{
    pool->n_blocks = n_blocks;
    pool->refs_at = kvpi_layout_take(layout, n_blocks, sizeof(uint32_t)) - self;
    pool->links_at = kvpi_layout_take(layout, (size_t)n_blocks + KVP_RETENTION_CLASSES,
                                      sizeof(struct kvpi_link)) - self;
    pool->generations_at = kvpi_layout_take(layout, n_blocks, sizeof(uint32_t)) - self;
    pool->marks_at = kvpi_layout_take(layout, n_blocks, sizeof(uint8_t)) - self;
}

static void clear_queues(struct kvpi_pool *pool, struct kvpi_link *links)
{
    for (uint32_t c = 0; c < KVP_RETENTION_CLASSES; c++) {
        const uint32_t sentinel = pool->n_blocks + c;
        links[sentinel] = (struct kvpi_link){sentinel, sentinel, 0, 0};
    }
    pool->classes = 0;
    memset(pool->tail_trail, 0, sizeof(pool->tail_trail));
    memset(&pool->head_trail, 0, sizeof(pool->head_trail));
}

void kvpi_pool_reset(struct kvpi_pool *pool, int fresh)
{
    const uint32_t n = pool->n_blocks;
    struct kvpi_link *links = kvpi_pool_links(pool);
    uint32_t *refs = kvpi_pool_refs(pool);
    uint32_t *generations = kvpi_pool_generations(pool);
    for (uint32_t b = 0; b < n; b++) {
        const int was_free = fresh || (refs[b] == 0 && links[b].content == 0);
        generations[b] = fresh ? 0 : generations[b] + (was_free ? 0 : 1);
        refs[b] = 0;
        links[b] = (struct kvpi_link){b - 1, b + 1, kvpi_min_u32(b + KVPI_POOL_JUMP, n - 1), 0};
    }
    memset(kvpi_pool_marks(pool), 0, n);
    clear_queues(pool, links);
    links[0] = (struct kvpi_link){0, 0, 0, 0};
    links[1].prev = n; /* the sentinel of class 0 is n */
    links[n] = (struct kvpi_link){n - 1, 1, 0, 0};
    pool->classes = 1;
    pool->n_free = n - 1;
    pool->n_cached = 0;
    pool->n_held = 0;
    pool->n_parked = 0;
}

static void leave_trail(struct kvpi_trail *trail, struct kvpi_link *links, uint32_t block,
                        int at_tail)
{
    uint32_t *earlier = &trail->recent[trail->at++ % KVPI_POOL_JUMP];
    if (*earlier != 0) {
        if (at_tail) {
            links[*earlier].jump = block;
        } else {
            links[block].jump = *earlier;
        }
    }
    *earlier = block;
}

static void push_tail(struct kvpi_pool *pool, uint32_t block, uint32_t class_)
{
    struct kvpi_link *links = kvpi_pool_links(pool);
    const uint32_t sentinel = pool->n_blocks + class_;
    const uint32_t last = links[sentinel].prev;
    links[block].prev = last;
    links[block].next = sentinel;
    links[last].next = block;
    links[sentinel].prev = block;
    pool->classes |= 1u << class_;
    leave_trail(&pool->tail_trail[class_], links, block, 1);
}

static void push_free(struct kvpi_pool *pool, uint32_t block)
{
    struct kvpi_link *links = kvpi_pool_links(pool);
    const uint32_t sentinel = pool->n_blocks;
    const uint32_t first = links[sentinel].next;
    links[block].prev = sentinel;
    links[block].next = first;
    links[first].prev = block;
    links[sentinel].next = block;
    pool->classes |= 1u;
    leave_trail(&pool->head_trail, links, block, 0);
    kvpi_count(&pool->n_free, 1);
    kvpi_pool_generations(pool)[block]++;
}

uint32_t kvpi_pool_victim(const struct kvpi_pool *pool)
{
    if (pool->classes == 0) {
        return 0;
    }
    const uint32_t class_ = (uint32_t)__builtin_ctz(pool->classes);
    return kvpi_pool_links(pool)[pool->n_blocks + class_].next;
}

uint32_t kvpi_pool_take(struct kvpi_pool *pool, uint32_t retention)
{
    struct kvpi_link *links = kvpi_pool_links(pool);
    uint8_t *mark = kvpi_pool_marks(pool);
    const uint32_t block = kvpi_pool_victim(pool);
    KVPI_ASSERT(block != 0 && links[block].content == 0 && kvpi_pool_refs(pool)[block] == 0);
    kvpi_pool_unlink(pool, links, block);
    kvpi_pool_refs(pool)[block] = 1;
    mark[block] = (uint8_t)retention;
    kvpi_uncount(&pool->n_free, 1);
    kvpi_count(&pool->n_held, 1);
    return block;
}

uint32_t kvpi_pool_release(struct kvpi_pool *pool, uint32_t block)
{
    uint32_t *refs = kvpi_pool_refs(pool);
    KVPI_ASSERT(refs[block] > 0);
    const uint32_t left = --refs[block];
    if (left > 0) {
        return left;
    }
    kvpi_uncount(&pool->n_held, 1);
    if (kvpi_pool_links(pool)[block].content != 0) {
        push_tail(pool, block, kvpi_pool_marks(pool)[block] & KVPI_POOL_CLASS_MASK);
        kvpi_count(&pool->n_cached, 1);
    } else {
        push_free(pool, block);
    }
    return 0;
}

void kvpi_pool_set_content(struct kvpi_pool *pool, uint32_t block, uint32_t content)
{
    struct kvpi_link *links = kvpi_pool_links(pool);
    if (kvpi_pool_refs(pool)[block] == 0 && links[block].content != 0 && content == 0) {
        KVPI_ASSERT(block == kvpi_pool_victim(pool)); /* stays at the head, now free */
        kvpi_uncount(&pool->n_cached, 1);
        kvpi_count(&pool->n_free, 1);
        kvpi_pool_generations(pool)[block]++;
    }
    links[block].content = content;
}

void kvpi_pool_uncache(struct kvpi_pool *pool, uint32_t block)
{
    struct kvpi_link *links = kvpi_pool_links(pool);
    KVPI_ASSERT(kvpi_pool_refs(pool)[block] == 0 && links[block].content != 0);
    kvpi_pool_unlink(pool, links, block);
    links[block].content = 0;
    kvpi_uncount(&pool->n_cached, 1);
    push_free(pool, block);
}

void kvpi_pool_retain(struct kvpi_pool *pool, uint32_t block, uint32_t retention)
{
    uint8_t *mark = &kvpi_pool_marks(pool)[block];
    KVPI_ASSERT(kvpi_pool_refs(pool)[block] > 0); /* a row refers to it */
    *mark = (uint8_t)((*mark & ~KVPI_POOL_CLASS_MASK) | retention);
}

/* Walk one queue: links consistent, free blocks first and only in class 0. */
static const char *check_queue(const struct kvpi_pool *pool, uint32_t class_, uint64_t counts[2],
                               uint64_t *out_block)
{
    const struct kvpi_link *links = kvpi_pool_links(pool);
    const uint32_t sentinel = pool->n_blocks + class_;
    int cached_seen = 0;
    uint32_t before = sentinel;
    for (uint32_t b = links[sentinel].next; b != sentinel; b = links[b].next) {
        *out_block = b;
        if (b == 0 || b >= pool->n_blocks || links[b].prev != before) {
            return "B3 a queue's links do not match";
        }
        if (kvpi_pool_refs(pool)[b] != 0) {
            return "B1 a held block is in a queue";
        }
        const int cached = links[b].content != 0;
        if (!cached && (class_ != 0 || cached_seen)) {
            return "B3 a free block stands behind a cached one";
        }
        if (cached && (kvpi_pool_marks(pool)[b] & KVPI_POOL_CLASS_MASK) != class_) {
            return "B3 a cached block is in another class's queue";
        }
        cached_seen |= cached;
        if (++counts[cached] > pool->n_blocks) {
            return "B1 a queue has a cycle";
        }
        before = b;
    }
    if (((pool->classes >> class_) & 1u) != (links[sentinel].next != sentinel)) {
        return "B3 the mask of non-empty classes is wrong";
    }
    return NULL;
}

int kvpi_pool_check(const struct kvpi_pool *pool, uint64_t *out_block, const char **out_detail)
{
    const uint32_t *refs = kvpi_pool_refs(pool);
    uint64_t counts[2] = {0, 0};
    uint64_t n_held = 0;
    for (uint32_t c = 0; c < KVP_RETENTION_CLASSES; c++) {
        *out_detail = check_queue(pool, c, counts, out_block);
        if (*out_detail != NULL) {
            return 0;
        }
    }
    for (uint32_t b = 0; b < pool->n_blocks; b++) {
        n_held += refs[b] > 0;
        if (kvpi_pool_marks(pool)[b] & KVPI_POOL_MARKED) {
            *out_block = b;
            *out_detail = "B1 a mark of an earlier call was left";
            return 0;
        }
    }
    *out_block = 0;
    if (refs[0] != 0) {
        *out_detail = "B1 the null block is held";
        return 0;
    }
    if (counts[0] != pool->n_free || counts[1] != pool->n_cached || n_held != pool->n_held) {
        *out_detail = "B2 the counts are not those of the queues";
        return 0;
    }
    return 1;
}
