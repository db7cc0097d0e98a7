/* pool_leaves: see pool_leaves.h for what a leaf is, and the invariants.
 *
 * 5 is continued by 7 and by 9:
 *
 *   5 -- 7      9 is held, and so is 5. 7 is cached: a leaf
 *     \- 9      9 and 5 are released: 9 is a leaf, 5 is not queued: two cached blocks continue it
 *               7 and 9 are evicted: 5 is a leaf, as old as it is
 */

#include "core/stages/pool_leaves.h"

#include <string.h>

_Static_assert((int)KVPI_POLICY_OTHERS == KVP_RETENTION_CLASSES &&
                   (int)KVPI_POLICY_LANES == 2 * KVP_RETENTION_CLASSES,
               "a lane for each class of each tier");

/* The policy as it lies in the arena: its sizes, and its arrays behind it. Gives the bytes of
 * all. */
static struct kvpi_layout plan_policy(const struct kvpi_leaves *leaves, struct kvpi_policy *policy)
{
    struct kvpi_layout layout = {0, 0};
    policy->n_blocks = leaves->n_blocks - 1;
    policy->n_others = leaves->n_others;
    policy->block_tokens = leaves->block_tokens;
    policy->ungated = 0;
    policy->group_blocks = kvpi_policy_group_blocks(policy->n_blocks, policy->block_tokens);
    (void)kvpi_layout_take(&layout, 1, sizeof(*policy));
    kvpi_policy_layout(policy, &layout, 0);
    return layout;
}

void kvpi_leaves_layout(struct kvpi_leaves *leaves, struct kvpi_layout *layout, size_t self)
{
    struct kvpi_policy policy;
    if (!leaves->on) {
        return;
    }
    if (leaves->first == 0) {
        const struct kvpi_layout own = plan_policy(leaves, &policy);
        layout->overflow |= own.overflow;
        leaves->policy_at = kvpi_layout_take(layout, own.bytes, 1) - self;
    }
    leaves->above_at = kvpi_layout_take(layout, leaves->n_blocks, sizeof(uint32_t)) - self;
    leaves->leaves_at =
        kvpi_layout_take(layout, (uint64_t)leaves->n_contents + 1, sizeof(struct kvpi_leaf)) - self;
}

void kvpi_leaves_reset(struct kvpi_leaves *leaves)
{
    if (!leaves->on) {
        return;
    }
    if (leaves->first == 0) {
        (void)plan_policy(leaves, kvpi_leaves_policy(leaves));
        kvpi_policy_reset(kvpi_leaves_policy(leaves));
    }
    memset(kvpi_leaves_above(leaves, 0), 0, leaves->n_blocks * sizeof(uint32_t));
    memset(kvpi_leaf(leaves, 0), 0, ((size_t)leaves->n_contents + 1) * sizeof(struct kvpi_leaf));
}

/* ------------------------------------------------------------------------------ leaves come, go */

/* Is the block cached, as far as is known here? */
static int is_cached(const struct kvpi_leaves *leaves, uint32_t block)
{
    return (kvpi_leaves_known(leaves, block)->mark & KVPI_LEAF_CACHED) != 0;
}

static void queue(const struct kvpi_pool *pool, uint32_t block)
{
    const struct kvpi_leaves *leaves = &pool->leaves;
    kvpi_policy_queue(kvpi_leaves_policy(leaves),
                      leaves->lane + kvpi_block_class(kvpi_block(pool, block)),
                      leaves->first + block);
}

static void unqueue(const struct kvpi_pool *pool, uint32_t block)
{
    const struct kvpi_leaves *leaves = &pool->leaves;
    struct kvpi_policy *policy = kvpi_leaves_policy(leaves);
    if (kvpi_policy_is_queued(policy, leaves->first + block)) {
        kvpi_policy_unqueue(policy, leaves->first + block);
    }
}

void kvpi_leaves_follow(struct kvpi_leaves *leaves, uint32_t follower,
                        const struct kvpi_leaves *others, uint32_t followed)
{
    kvpi_policy_follow(kvpi_leaves_policy(leaves), leaves->first + follower,
                       others->first + followed);
    kvpi_leaves_known(leaves, follower)->mark |= KVPI_LEAF_FOLLOWS;
}

void kvpi_leaves_forget(struct kvpi_leaves *leaves, uint32_t block)
{
    kvpi_policy_forget(kvpi_leaves_policy(leaves), leaves->first + block);
    kvpi_leaves_known(leaves, block)->mark = 0;
}

void kvpi_leaves_rest(struct kvpi_leaves *leaves, uint32_t block)
{
    if (kvpi_leaves_known(leaves, block)->mark & KVPI_LEAF_FOLLOWS) {
        kvpi_policy_arrive(kvpi_leaves_policy(leaves), leaves->first + block);
    } else {
        kvpi_policy_rest(kvpi_leaves_policy(leaves), leaves->first + block);
    }
}

/* One more cached block continues a content: what it is in is no leaf. */
static inline void continue_content(const struct kvpi_pool *pool, uint32_t content)
{
    struct kvpi_leaf *leaf = kvpi_leaf(&pool->leaves, content);
    if (leaf->continued++ == 0 && leaf->block != 0) {
        unqueue(pool, leaf->block);
    }
}

void kvpi_leaves_enter(struct kvpi_pool *pool, uint32_t block)
{
    const struct kvpi_leaves *leaves = &pool->leaves;
    kvpi_leaves_known(leaves, block)->mark |= KVPI_LEAF_CACHED;
    if (kvpi_leaf(leaves, kvpi_block(pool, block)->content)->continued == 0) {
        queue(pool, block);
    }
    continue_content(pool, *kvpi_leaves_above(leaves, block));
}

/* n blocks are cached, the last first, and as if left now. */
static void rest_run(const struct kvpi_leaves *leaves, const int32_t *row, uint32_t n)
{
    struct kvpi_policy *policy = kvpi_leaves_policy(leaves);
    struct kvpi_order_block *known = kvpi_leaves_known(leaves, 0);
    const uint64_t now = policy->references;
    uint64_t number = kvpi_policy_rest_many(policy, n);
    for (uint32_t i = n; i > 0; i--) {
        struct kvpi_order_block *b = &known[row[i - 1]];
        if (!(b->mark & KVPI_LEAF_FOLLOWS)) {
            b->stamp = now;
        }
        b->number = ++number;
        b->mark |= KVPI_LEAF_CACHED;
    }
}

/* Mostly each continues the one before it in the row, which was held: that is no leaf. */
void kvpi_leaves_enter_run(struct kvpi_pool *pool, const int32_t *row, uint32_t end, uint32_t begin)
{
    const struct kvpi_leaves *leaves = &pool->leaves;
    const struct kvpi_block *blocks = kvpi_blocks(pool);
    const uint32_t *above = kvpi_leaves_above(leaves, 0);
    struct kvpi_leaf *contents = kvpi_leaf(leaves, 0);
    uint32_t block = (uint32_t)row[end - 1];
    rest_run(leaves, row + begin, end - begin);
    if (contents[blocks[block].content].continued == 0) {
        queue(pool, block);
    }
    for (const int32_t *entry = row + end - 1; entry > row + begin; entry--) {
        const uint32_t up = above[block];
        block = (uint32_t)entry[-1];
        const uint32_t content = blocks[block].content;
        if (content == up) {
            contents[up].continued++;
        } else {
            continue_content(pool, up);
            if (contents[content].continued == 0) {
                queue(pool, block);
            }
        }
    }
    continue_content(pool, above[block]);
}

void kvpi_leaves_leave(struct kvpi_pool *pool, uint32_t block)
{
    struct kvpi_leaves *leaves = &pool->leaves;
    struct kvpi_leaf *above = kvpi_leaf(leaves, *kvpi_leaves_above(leaves, block));
    kvpi_leaves_known(leaves, block)->mark &= (uint8_t)~KVPI_LEAF_CACHED;
    unqueue(pool, block);
    if (--above->continued == 0 && above->block != 0 && is_cached(leaves, above->block)) {
        queue(pool, above->block);
    }
}

/* The block loses its content. */
static void lose_content_of(struct kvpi_pool *pool, uint32_t block)
{
    struct kvpi_leaves *leaves = &pool->leaves;
    struct kvpi_leaf *leaf = kvpi_leaf(leaves, kvpi_block(pool, block)->content);
    if (is_cached(leaves, block)) {
        kvpi_leaves_leave(pool, block);
    }
    kvpi_leaves_forget(leaves, block);
    if (leaf->block == block) {
        leaf->block = 0;
    }
}

void kvpi_leaves_content(struct kvpi_pool *pool, uint32_t block, uint32_t content)
{
    struct kvpi_leaves *leaves = &pool->leaves;
    const uint32_t old = kvpi_block(pool, block)->content;
    if (content == 0) {
        lose_content_of(pool, block);
        return;
    }
    if (old != 0 && kvpi_leaf(leaves, old)->block == block) {
        kvpi_leaf(leaves, old)->block = 0;
    }
    kvpi_leaf(leaves, content)->block = block;
    if (kvpi_block_refs(kvpi_block(pool, block)) == 0 && is_cached(leaves, block)) {
        unqueue(pool, block);
        if (kvpi_leaf(leaves, content)->continued == 0) {
            queue(pool, block);
        }
    }
}

void kvpi_leaves_restored(struct kvpi_pool *pool, int known)
{
    const struct kvpi_block *blocks = kvpi_blocks(pool);
    for (uint32_t s = pool->n_blocks; s < pool->n_blocks + KVP_RETENTION_CLASSES; s++) {
        for (uint32_t b = blocks[s].next; b != s; b = blocks[b].next) {
            if (blocks[b].content != 0 && !is_cached(&pool->leaves, b)) {
                if (!known) {
                    kvpi_leaves_rest(&pool->leaves, b);
                }
                kvpi_leaves_enter(pool, b);
            }
        }
    }
}

uint32_t kvpi_leaves_choose(const struct kvpi_pool *pool, uint32_t first)
{
    const struct kvpi_leaves *leaves = &pool->leaves;
    const uint32_t lane = leaves->lane + kvpi_block_class(kvpi_block(pool, first));
    const uint32_t block = kvpi_policy_choose(kvpi_leaves_policy(leaves), lane);
    return block == KVPI_POLICY_NONE ? first : block - leaves->first;
}

/* ------------------------------------------------------------------------------------ the audit */

int kvpi_leaves_are_planned(const struct kvpi_leaves *leaves)
{
    struct kvpi_policy planned;
    if (!leaves->on) {
        return 1;
    }
    const struct kvpi_policy *policy = kvpi_leaves_policy(leaves);
    (void)plan_policy(leaves, &planned);
    for (uint32_t lane = 0; lane < KVPI_POLICY_LANES; lane++) {
        const struct kvpi_order *a = &planned.order[lane], *b = &policy->order[lane];
        if (a->n_blocks != b->n_blocks || a->lane != b->lane || a->blocks_at != b->blocks_at) {
            return 0;
        }
    }
    return planned.n_blocks == policy->n_blocks && planned.n_others == policy->n_others &&
           planned.block_tokens == policy->block_tokens && planned.ungated == policy->ungated &&
           planned.group_blocks == policy->group_blocks &&
           planned.ghost.n_blocks == policy->ghost.n_blocks &&
           planned.ghost.n_places == policy->ghost.n_places &&
           planned.ghost.n_lists == policy->ghost.n_lists &&
           memcmp(planned.ghost.edges, policy->ghost.edges, sizeof(planned.ghost.edges)) == 0 &&
           planned.ghost.entries_at == policy->ghost.entries_at &&
           planned.ghost.lists_at == policy->ghost.lists_at;
}

/* F1, F4. Each block's content knows it; and no other content a block. */
static const char *check_contents(const struct kvpi_pool *pool, uint64_t *out_object)
{
    const struct kvpi_leaves *leaves = &pool->leaves;
    uint64_t n_known = 0;
    for (uint32_t b = 0; b < pool->n_blocks; b++) {
        const struct kvpi_block *block = kvpi_block(pool, b);
        *out_object = b;
        if (block->content != 0 && kvpi_leaf(leaves, block->content)->block != b) {
            return "F1 a block's content is not known to be in it";
        }
        if (*kvpi_leaves_above(leaves, b) > leaves->n_contents) {
            return "F2 a block continues what is no content";
        }
        if (is_cached(leaves, b) != kvpi_block_is_cached(block)) {
            return "F4 a block is cached and not known to be, or the reverse";
        }
        n_known += block->content != 0;
    }
    for (uint32_t c = 0; c <= leaves->n_contents; c++) {
        n_known -= kvpi_leaf(leaves, c)->block != 0;
    }
    return n_known == 0 ? NULL : "F1 a content has a block that has another";
}

/* Take every cached block off what it continues, or put it back. */
static void move_continued(const struct kvpi_pool *pool, uint32_t by)
{
    for (uint32_t b = 1; b < pool->n_blocks; b++) {
        if (kvpi_block_is_cached(kvpi_block(pool, b))) {
            kvpi_leaf(&pool->leaves, *kvpi_leaves_above(&pool->leaves, b))->continued += by;
        }
    }
}

static const char *check_continued(const struct kvpi_pool *pool, uint64_t *out_object)
{
    const char *failed = NULL;
    move_continued(pool, UINT32_MAX);
    for (uint32_t c = 0; c <= pool->leaves.n_contents; c++) {
        if (kvpi_leaf(&pool->leaves, c)->continued != 0) {
            *out_object = c;
            failed = "F2 the cached blocks that continue a content are miscounted";
        }
    }
    move_continued(pool, 1);
    return failed;
}

static const char *check_queued(const struct kvpi_pool *pool, uint64_t *out_object)
{
    const struct kvpi_leaves *leaves = &pool->leaves;
    for (uint32_t b = 0; b < pool->n_blocks; b++) {
        const struct kvpi_block *block = kvpi_block(pool, b);
        const int leaf =
            kvpi_block_is_cached(block) && kvpi_leaf(leaves, block->content)->continued == 0;
        if (kvpi_leaves_known(leaves, b)->queued !=
            (leaf ? leaves->lane + kvpi_block_class(block) + 1 : 0)) {
            *out_object = b;
            return "F3 a leaf is not queued, or what is none is";
        }
    }
    return NULL;
}

const char *kvpi_leaves_check(const struct kvpi_pool *pool, uint64_t *out_object)
{
    if (!pool->leaves.on) {
        return NULL;
    }
    const char *failed = check_contents(pool, out_object);
    failed = failed != NULL ? failed : check_continued(pool, out_object);
    failed = failed != NULL ? failed : check_queued(pool, out_object);
    *out_object = failed != NULL ? *out_object : 0;
    if (failed != NULL || pool->leaves.first != 0) {
        return failed;
    }
    return kvpi_policy_check(kvpi_leaves_policy(&pool->leaves));
}
