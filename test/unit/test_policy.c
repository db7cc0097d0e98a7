/* The learned policy as a whole: classes, what goes, when LRU takes its place, its audit. What it
 * gains and loses is in test_policy_hits_of_traces.c. */
#include <string.h>

#include "core/policy/policy.h"
#include "world.h"

enum { SPACE = 1 << 17 };

struct made {
    struct kvpi_policy policy;
    _Alignas(64) unsigned char arrays[SPACE];
};

static struct made made;
static struct kvpi_policy *const policy = &made.policy;

/* Every class has its turn, and its index is made. */
static void learn_all(void)
{
    for (int turn = 0; turn < KVPI_HITS_TURNS; turn++)
        kvpi_hits_learn(&policy->hits);
    for (uint32_t c = 0; c < KVPI_CLASSES; c++)
        kvpi_hits_settle(&policy->hits, c);
}

static void make(uint32_t n_blocks, uint32_t block_tokens)
{
    struct kvpi_layout layout = {0, 0};
    memset(&made, 0xA5, sizeof made);
    memset(policy, 0, sizeof *policy);
    policy->n_blocks = n_blocks;
    policy->block_tokens = block_tokens;
    (void)kvpi_layout_take(&layout, 1, sizeof *policy);
    kvpi_policy_layout(policy, &layout, 0);
    assert_true(layout.bytes <= sizeof made);
    kvpi_policy_reset(policy);
    assert_null(kvpi_policy_check(policy));
}

/* One block, a group of its own, whose name is its number. */
static void use_one(uint32_t block, uint32_t name, int is_hit)
{
    struct kvpi_policy_group group = {.name = name};
    kvpi_policy_use(policy, &(struct kvpi_policy_request){.blocks = &block,
                                                          .groups = &group,
                                                          .n_blocks = 1,
                                                          .n_held = 1,
                                                          .n_prompt = 1,
                                                          .n_hits = is_hit != 0,
                                                          .prompt_tokens = policy->block_tokens});
}

static uint32_t class_of(uint32_t block)
{
    return kvpi_order_block(policy->order, block)->class_;
}

static uint32_t count_of(uint32_t block)
{
    return kvpi_order_block(policy->order, block)->count;
}

/* ---------------------------------------------------------------------------------- the classes */

static uint32_t class_after(uint64_t prompt_tokens, uint64_t output_tokens, uint32_t n_hits)
{
    const uint32_t blocks[4] = {0, 1, 2, 3};
    make(100, 512);
    struct kvpi_policy_group groups[4] = {{1, 0}, {2, 0}, {3, 0}, {4, 0}};
    kvpi_policy_use(policy, &(struct kvpi_policy_request){.blocks = blocks,
                                                          .groups = groups,
                                                          .n_blocks = 4,
                                                          .n_held = 4,
                                                          .n_prompt = 4,
                                                          .n_hits = n_hits,
                                                          .prompt_tokens = prompt_tokens,
                                                          .output_tokens = output_tokens});
    assert_null(kvpi_policy_check(policy));
    for (uint32_t b = 1; b < 4; b++)
        assert_int_equal(class_of(b), class_of(0));
    return class_of(0);
}

TEST(test_output_and_new_tokens)
{
    assert_int_equal(class_after(2048, 0, 4), 0);
    assert_int_equal(class_after(2048, 31, 4), 0);
    assert_int_equal(class_after(2048, 32, 4), 4);
    assert_int_equal(class_after(2048, 255, 4), 4);
    assert_int_equal(class_after(2048, 256, 4), 8);
    assert_int_equal(class_after(2048, 512, 4), 12);
    assert_int_equal(class_after(512, 0, 0), 0);
    assert_int_equal(class_after(513, 0, 0), 1);
    assert_int_equal(class_after(513, 0, 1), 0);
    assert_int_equal(class_after(4096, 0, 0), 1);
    assert_int_equal(class_after(4097, 0, 0), 2);
    assert_int_equal(class_after(4097 + 1536, 0, 3), 2);
    assert_int_equal(class_after(4096 + 1536, 0, 3), 1);
    assert_int_equal(class_after(32768, 1000, 0), 14);
    assert_int_equal(class_after(UINT64_MAX, UINT64_MAX, 0), 15);
    assert_int_equal(class_after(100, 0, 4), 0); /* more hits than tokens: none are new */
}

TEST(test_counts)
{
    static const uint32_t kinds[] = {0, 1, 2, 2, 3, 3, 3};
    (void)state;
    make(64, 512);
    for (uint32_t i = 0; i < 300; i++) {
        use_one(7, 1, i > 0);
        assert_int_equal(count_of(7), i + 1 < 255 ? i + 1 : 255);
        assert_int_equal(class_of(7) / 16, kinds[i < 6 ? i : 6]);
        assert_null(kvpi_policy_check(policy));
    }
}

/* Content that lost its block is known by its group, for 16 C references; and is not new then. */
TEST(test_counts_outlive_blocks)
{
    for (uint32_t others = 1022; others <= 1023; others++) {
        make(64, 512);
        use_one(7, 1, 0);
        use_one(7, 1, 1);
        kvpi_policy_forget(policy, 7);
        assert_int_equal(count_of(7), 0);
        for (uint32_t i = 0; i < others; i++)
            use_one(9, 2, i > 0);
        kvpi_policy_use(
            policy, &(struct kvpi_policy_request){.blocks = (uint32_t[]){8},
                                                  .groups = &(struct kvpi_policy_group){.name = 1},
                                                  .n_blocks = 1,
                                                  .n_held = 1,
                                                  .n_prompt = 1,
                                                  .prompt_tokens = 513});
        assert_int_equal(count_of(8), others == 1022 ? 3 : 1);
        assert_int_equal(class_of(8), others == 1022 ? 32 : 1);
    }
}

/* A block that stayed in the cache that long begins anew, too. */
TEST(test_counts_end)
{
    for (uint32_t others = 1022; others <= 1023; others++) {
        make(64, 512);
        use_one(7, 1, 0);
        use_one(7, 1, 1);
        for (uint32_t i = 0; i < others; i++)
            use_one(9, 2, i > 0);
        use_one(7, 1, 1);
        assert_int_equal(count_of(7), others == 1022 ? 3 : 1);
    }
}

/* Blocks of 16 tokens: 32 are a group, and what is behind the last whole one is known while it has
 * its block only. */
TEST(test_groups)
{
    uint32_t blocks[80], others[80];
    struct kvpi_policy_group groups[2] = {{11, 0}, {22, 0}};
    struct kvpi_policy_request request = {.blocks = blocks,
                                          .groups = groups,
                                          .n_blocks = 80,
                                          .n_held = 81,
                                          .n_prompt = 80,
                                          .prompt_tokens = 1290};
    (void)state;
    make(256, 16);
    assert_int_equal(policy->group_blocks, 32);
    for (uint32_t i = 0; i < 80; i++) {
        blocks[i] = i;
        others[i] = 100 + i;
    }
    kvpi_policy_use(policy, &request);
    assert_int_equal(class_of(0), 1);
    request.blocks = others; /* all were evicted: the two groups are known */
    kvpi_policy_use(policy, &request);
    assert_int_equal(count_of(100), 2);
    assert_int_equal(count_of(163), 2);
    assert_int_equal(count_of(164), 1);
    assert_int_equal(class_of(163), 16); /* 1290 - 1024 tokens are new */
    assert_int_equal(class_of(164), 0);
    assert_int_equal(policy->lru_blocks, 64);
    request.n_hits = 70;
    kvpi_policy_use(policy, &request);
    assert_int_equal(count_of(164), 2);
    assert_int_equal(policy->hit_blocks, 64); /* in whole groups */
    assert_int_equal(policy->lru_blocks, 128);
    assert_int_equal(policy->ghost.lru_blocks, 80); /* with the 16 behind the groups */
    assert_null(kvpi_policy_check(policy));
}

/* What leads a prompt counts: not what comes behind a group that is not known, or in the output. */
TEST(test_lead)
{
    const uint32_t blocks[3] = {0, 1, 2};
    struct kvpi_policy_group first[3] = {{1, 0}, {2, 0}, {3, 0}};
    struct kvpi_policy_group second[3] = {{9, 0}, {2, 0}, {3, 0}};
    struct kvpi_policy_request request = {.blocks = blocks,
                                          .groups = first,
                                          .n_blocks = 3,
                                          .n_held = 3,
                                          .n_prompt = 2,
                                          .prompt_tokens = 1024};
    (void)state;
    make(64, 512);
    kvpi_policy_use(policy, &request);
    kvpi_policy_use(policy, &request);
    assert_int_equal(policy->lru_blocks, 2);
    request.groups = second;
    kvpi_policy_use(policy, &request);
    assert_int_equal(policy->lru_blocks, 2);
    assert_int_equal(class_of(2) % 16, 1); /* all 1,024 tokens are new */
}

/* Two groups of one request that have one name are one. */
TEST(test_one_name)
{
    const uint32_t blocks[2] = {0, 1};
    struct kvpi_policy_group groups[2] = {{5, 0}, {5, 0}};
    (void)state;
    make(64, 512);
    for (int i = 0; i < 3; i++) {
        kvpi_policy_use(policy, &(struct kvpi_policy_request){.blocks = blocks,
                                                              .groups = groups,
                                                              .n_blocks = 2,
                                                              .n_held = 2,
                                                              .n_prompt = 2,
                                                              .prompt_tokens = 1024});
        assert_null(kvpi_policy_check(policy));
        assert_int_equal(policy->ghost.lru_blocks, 1);
    }
}

/* Requests without a whole group take room in LRU's cache, too. */
TEST(test_loose_blocks)
{
    uint32_t blocks[32];
    struct kvpi_policy_group groups[1] = {{5, 0}};
    (void)state;
    make(64, 16);
    for (uint32_t i = 0; i < 32; i++)
        blocks[i] = i;
    struct kvpi_policy_request request = {.blocks = blocks, .groups = groups, .n_held = 31};
    request.n_blocks = 31;
    kvpi_policy_use(policy, &request);
    assert_int_equal(policy->loose_blocks, 31);
    request.n_blocks = request.n_held = 32;
    kvpi_policy_use(policy, &request);
    assert_int_equal(policy->loose_blocks, 0);
    assert_int_equal(policy->ghost.lru_blocks, 63);
    request.n_blocks = 0;
    kvpi_policy_use(policy, &request); /* nothing: it is no use of anything */
    assert_int_equal(policy->references, 63);
    assert_null(kvpi_policy_check(policy));
}

/* ------------------------------------------------------------------------------- what goes next */

static double line(const uint32_t *index, uint64_t age)
{
    const uint32_t n = policy->n_blocks;
    for (uint32_t b = 0; b < KVPI_BINS; b++) {
        const double begin = (double)kvpi_bins_edge(n, b), end = (double)kvpi_bins_edge(n, b + 1);
        if ((double)age < end) {
            const double part = ((double)age - begin) / (end - begin);
            const double rise = (double)index[b + 1] - index[b];
            return index[b] + part * (rise > 0 ? rise : 0.75 * rise);
        }
    }
    return 0;
}

static double worth(uint32_t index[KVPI_CLASSES][KVPI_BINS + 1], uint32_t block)
{
    return line(index[class_of(block)],
                policy->references - kvpi_order_block(policy->order, block)->stamp);
}

static int goes_before(uint32_t a, uint32_t b)
{
    const double of_a = worth(policy->hits.best, a), of_b = worth(policy->hits.best, b);
    return of_a < of_b || (of_a == of_b && kvpi_order_block(policy->order, a)->stamp <
                                               kvpi_order_block(policy->order, b)->stamp);
}

/* The rule, over all blocks. */
static uint32_t slow_choice(const uint8_t *queued)
{
    uint32_t oldest = UINT32_MAX, old = UINT32_MAX, young = UINT32_MAX;
    for (uint32_t b = 0; b < policy->n_blocks; b++) {
        const struct kvpi_order_block *block = kvpi_order_block(policy->order, b);
        int first = queued[b], last = queued[b];
        for (uint32_t o = 0; o < policy->n_blocks; o++) { /* at an end of its class? */
            const struct kvpi_order_block *other = kvpi_order_block(policy->order, o);
            if (queued[o] && other->class_ == block->class_) {
                first = first && other->stamp >= block->stamp;
                last = last && other->stamp <= block->stamp;
            }
        }
        if (first &&
            (oldest == UINT32_MAX || block->stamp < kvpi_order_block(policy->order, oldest)->stamp))
            oldest = b;
        if (first && (old == UINT32_MAX || goes_before(b, old)))
            old = b;
        if (last &&
            (young == UINT32_MAX || worth(policy->hits.now, b) < worth(policy->hits.now, young)))
            young = b;
    }
    if (1.20 * worth(policy->hits.best, old) > worth(policy->hits.best, oldest))
        old = oldest;
    return 1.30 * worth(policy->hits.now, young) < worth(policy->hits.now, old) ? young : old;
}

static int is_youngest(const uint8_t *queued, uint32_t block)
{
    for (uint32_t b = 0; b < policy->n_blocks; b++)
        if (queued[b] && kvpi_order_block(policy->order, b)->stamp >
                             kvpi_order_block(policy->order, block)->stamp)
            return 0;
    return 1;
}

/* Blocks of some classes and every age, each with a stamp of its own; indexes of random counts, of
 * late uses for even seeds. Gives how often the youngest block of all went. */
static uint32_t choose_at_random(uint64_t seed)
{
    const uint32_t n_classes = 1u << seed % 5, first_bin = seed % 2 == 0 ? 9 : 0;
    uint32_t n_young = 0;
    uint8_t queued[64] = {0};
    make(64, 512);
    for (uint32_t i = 0; i < 4000; i++) {
        kvpi_hits_outlived(&policy->hits, draw(&seed, KVPI_CLASSES), draw(&seed, KVPI_BINS));
        if (draw(&seed, 4) == 0) {
            kvpi_hits_used(&policy->hits, draw(&seed, 16),
                           first_bin + draw(&seed, KVPI_BINS - first_bin));
        }
    }
    learn_all();
    policy->references = 2000;
    policy->changes = 1;
    for (uint32_t b = 0; b < 64; b++) {
        struct kvpi_order_block *block = kvpi_order_block(policy->order, b);
        block->class_ = (uint8_t)draw(&seed, n_classes);
        block->stamp = 2000 - b - 64 * draw(&seed, 20);
        block->count = 1;
        queued[b] = 1;
        kvpi_policy_queue(policy, 0, b);
    }
    assert_false(kvpi_policy_is_lru(policy));
    for (uint32_t left = 64; left > 0; left--) {
        const uint32_t chosen = kvpi_policy_choose(policy, 0);
        assert_int_equal(chosen, slow_choice(queued));
        assert_null(kvpi_policy_check(policy));
        n_young += left > 1 && is_youngest(queued, chosen);
        queued[chosen] = 0;
        kvpi_policy_unqueue(policy, chosen);
        kvpi_policy_forget(policy, chosen);
    }
    assert_int_equal(kvpi_policy_choose(policy, 0), KVPI_POLICY_NONE);
    return n_young;
}

TEST(test_choose)
{
    uint32_t n_young = 0;
    for (uint64_t seed = 1; seed <= 20; seed++)
        n_young += choose_at_random(seed);
    assert_in_range(n_young, 20, 1000); /* of 1260 */
}

/* Of two that are worth the same the older goes, in whatever class it is. */
TEST(test_choose_older)
{
    for (uint32_t older = 1; older <= 2; older++) {
        make(64, 512);
        policy->hits.waiting = 0;
        policy->references = 200;
        policy->changes = 1;
        for (uint32_t b = 0; b < 3; b++) {
            struct kvpi_order_block *block = kvpi_order_block(policy->order, b);
            for (uint32_t bin = 0; bin < KVPI_BINS; bin++)
                policy->hits.now[b][bin] = policy->hits.best[b][bin] = b == 0 ? 1000 : 10;
            block->class_ = (uint8_t)b;
            block->stamp = b == 0 ? 10 : b == older ? 40 : 50;
            block->count = 1;
            kvpi_policy_queue(policy, 0, b);
        }
        assert_int_equal(kvpi_policy_choose(policy, 0), older);
    }
}

/* The youngest goes because the oldest is worth much more. When the oldest is hit, it is beside one
 * that is worth as little: what was chosen is chosen anew. */
TEST(test_choose_when_another_leaves)
{
    static const uint32_t now[3] = {1000, 110, 100}, best[3] = {1000, 1100, 2000};
    (void)state;
    make(64, 512);
    policy->hits.waiting = 0;
    policy->references = 200;
    policy->changes = 1;
    for (uint32_t b = 0; b < 3; b++) {
        struct kvpi_order_block *block = kvpi_order_block(policy->order, b);
        for (uint32_t bin = 0; bin < KVPI_BINS; bin++) {
            policy->hits.now[b][bin] = now[b];
            policy->hits.best[b][bin] = best[b];
        }
        block->class_ = (uint8_t)b;
        block->stamp = 10 + 20 * b;
        block->count = 1;
        kvpi_policy_queue(policy, 0, b);
    }
    assert_int_equal(kvpi_policy_choose(policy, 0), 2);
    kvpi_policy_unqueue(policy, 0);
    assert_int_equal(kvpi_policy_choose(policy, 0), 1);
}

/* A value is not used longer than it holds: time passes, the index changes. */
TEST(test_choose_again)
{
    make(16, 512);
    policy->references = 100;
    policy->changes = 1;
    kvpi_order_block(policy->order, 1)->stamp = 90;
    kvpi_order_block(policy->order, 2)->stamp = 100;
    for (uint32_t b = 1; b <= 2; b++) {
        kvpi_order_block(policy->order, b)->class_ = (uint8_t)(b - 1);
        kvpi_order_block(policy->order, b)->count = 1;
        kvpi_policy_queue(policy, 0, b);
    }
    assert_int_equal(kvpi_policy_choose(policy, 0), 1);
    for (uint32_t i = 0; i < 2000; i++) { /* class 0 comes back at once, class 1 does not */
        kvpi_hits_used(&policy->hits, 0, 3 + i % 8);
        for (uint32_t b = 0; b < KVPI_BINS; b++)
            kvpi_hits_outlived(&policy->hits, 1, b);
    }
    learn_all();
    assert_int_equal(kvpi_policy_choose(policy, 0), 1);
    policy->changes++;
    assert_int_equal(kvpi_policy_choose(policy, 0), 2);
}

/* Index of random counts. */
static void learn_at_random(uint64_t *seed)
{
    for (uint32_t i = 0; i < 4000; i++) {
        kvpi_hits_outlived(&policy->hits, draw(seed, KVPI_CLASSES), draw(seed, KVPI_BINS));
        if (draw(seed, 4) == 0)
            kvpi_hits_used(&policy->hits, draw(seed, 16), draw(seed, KVPI_BINS));
    }
    learn_all();
}

/* A free block gets what is known of one that left: of its class and stamp, with the next number,
 * or nearly so. */
static void queue_near(uint64_t *seed, uint32_t gone, const struct kvpi_order_block *left)
{
    uint32_t block = gone;
    while (kvpi_policy_is_queued(policy, block) || block == gone)
        block = draw(seed, 64);
    struct kvpi_order_block *b = kvpi_order_block(policy->order, block);
    const uint32_t near = draw(seed, 12);
    b->class_ = (uint8_t)(near == 0 ? draw(seed, 16) : left->class_);
    b->stamp = near == 1 ? draw(seed, 2000) : left->stamp;
    b->number = near == 2 ? left->number + 2 + draw(seed, 3000) : left->number + 1;
    b->count = 1;
    kvpi_policy_queue(policy, near == 3, block);
}

/* What goes is what goes if all are valued again; mostly it is known before. Numbers are far
 * apart at first, so that blocks follow. */
static void follow_at_random(uint64_t seed, uint32_t *n_known)
{
    make(64, 512);
    learn_at_random(&seed);
    policy->references = 2000;
    policy->rests = UINT64_C(1) << 40;
    for (uint32_t b = 0; b < 40; b++) {
        const struct kvpi_order_block first = {.class_ = (uint8_t)draw(&seed, 16),
                                               .stamp = draw(&seed, 20) * 100,
                                               .number = (uint64_t)(b + 1) << 16};
        queue_near(&seed, 64, &first);
    }
    for (uint32_t i = 0; i < 400; i++) {
        *n_known += policy->choice.state == KVPI_CHOICE_MADE;
        const uint32_t chosen = kvpi_policy_choose(policy, 0);
        policy->changes++;
        assert_int_equal(kvpi_policy_choose(policy, 0), chosen);
        assert_null(kvpi_policy_check(policy));
        if (chosen == KVPI_POLICY_NONE)
            return;
        const uint32_t other = draw(&seed, 6) == 0 ? draw(&seed, 64) : chosen;
        const uint32_t gone = kvpi_policy_is_queued(policy, other) ? other : chosen;
        const struct kvpi_order_block left = *kvpi_order_block(policy->order, gone);
        kvpi_policy_unqueue(policy, gone);
        if (draw(&seed, 30) != 0) /* a block may follow in the place of another, too */
            queue_near(&seed, gone, &left);
    }
}

TEST(test_follow)
{
    uint32_t n_known = 0;
    for (uint64_t seed = 1; seed <= 40; seed++)
        follow_at_random(seed, &n_known);
    assert_in_range(n_known, 2000, 14000); /* of 16,000 at most */
}

/* The block that rested last does not follow the one that went if another of its class and time
 * rested between: that one is older. So it is with a fork that is closed late. */
TEST(test_follow_another_between)
{
    make(64, 512);
    policy->references = 10;
    policy->rests = 3;
    for (uint32_t b = 1; b <= 3; b++) {
        *kvpi_order_block(policy->order, b) =
            (struct kvpi_order_block){.stamp = 10, .number = b, .count = 1};
    }
    kvpi_policy_queue(policy, 0, 1);
    kvpi_policy_queue(policy, 0, 2);
    assert_int_equal(kvpi_policy_choose(policy, 0), 1);
    kvpi_policy_unqueue(policy, 1);
    kvpi_policy_queue(policy, 0, 3);
    assert_int_equal(kvpi_policy_choose(policy, 0), 2);
}

/* As long as it has seen less than twice its size, the oldest goes. */
TEST(test_cold)
{
    make(10, 512);
    for (uint32_t i = 0; i < 19; i++) {
        const uint32_t block = i < 10 ? i : kvpi_policy_choose(policy, 0);
        assert_int_equal(block, i % 10);
        if (i >= 10) {
            kvpi_policy_unqueue(policy, block);
            kvpi_policy_forget(policy, block);
        }
        assert_true(kvpi_policy_is_lru(policy));
        use_one(block, i, 0);
        kvpi_policy_queue(policy, 0, block);
        assert_null(kvpi_policy_check(policy));
    }
    kvpi_policy_unqueue(policy, 3);
    use_one(3, 99, 0);
    assert_false(kvpi_policy_is_lru(policy));
}

/* A block that something else than a use has released keeps its class, and is the youngest. */
TEST(test_touch)
{
    make(8, 512);
    for (uint32_t b = 0; b < 3; b++)
        use_one(b, b, 0);
    kvpi_policy_rest(policy, 0);
    for (uint32_t b = 0; b < 3; b++)
        kvpi_policy_queue(policy, 0, b);
    assert_int_equal(kvpi_policy_choose(policy, 0), 1);
    assert_int_equal(count_of(0), 1);
    assert_int_equal(policy->references, 3);
    assert_null(kvpi_policy_check(policy));
}

/* ------------------------------------------------------------------------------- gate and guard */

/* Of a hundred groups that come back LRU had lost `late`. */
TEST(test_gate)
{
    for (uint32_t late = 5; late <= 6; late++) {
        make(8, 512);
        policy->returned = 100;
        policy->returned_late = late;
        for (uint32_t i = 0; i < 64; i++) {
            assert_int_equal(policy->gated, 0);
            use_one(i % 8, i, 0);
        }
        assert_int_equal(policy->gated, late == 5);
        assert_int_equal(kvpi_policy_is_lru(policy), late == 5);
        policy->returned_late = 6; /* and opens again */
        for (uint32_t i = 0; i < 64; i++)
            use_one(i % 8, 100 + i, 0);
        assert_int_equal(policy->gated, 0);
    }
    make(8, 512);
    policy->returned = 100;
    policy->ungated = 1;
    for (uint32_t i = 0; i < 64; i++)
        use_one(i % 8, i, 0);
    assert_int_equal(policy->gated, 0);
}

/* Late is what LRU has lost, at any age. */
TEST(test_late)
{
    make(8, 512);
    for (uint32_t i = 0; i < 9; i++)
        use_one(i % 8, i, 0);
    use_one(0, 1, 0); /* the oldest that LRU has */
    assert_fields(*policy, returned, 1, returned_late, 0);
    use_one(1, 0, 0);
    assert_fields(*policy, returned, 2, returned_late, 1, lru_blocks, 1);
}

static int64_t in_blocks(int64_t credit)
{
    return credit / KVPI_POLICY_CREDIT_ONE;
}

/* LRU hits and this does not: until 8/8 + 2048 blocks are lost. Then LRU, until they are paid back
 * at a half percent of its hits. */
TEST(test_guard)
{
    make(8, 512);
    policy->ungated = 1;
    use_one(0, 1, 0);
    uint32_t n = 0;
    for (; !policy->distrusted; n++) {
        assert_in_range(n, 0, 3000);
        use_one(0, 1, 0);
        assert_null(kvpi_policy_check(policy));
    }
    assert_int_equal(n, 2060); /* 2049 / (1 - 1/200), and one more */
    assert_int_equal(in_blocks(policy->credit), -2049);
    assert_true(kvpi_policy_is_lru(policy));
    assert_null(kvpi_policy_check(policy));
    for (n = 0; policy->distrusted; n++) {
        assert_true(n < 200 * 2051);
        use_one(0, 1, 1);
    }
    assert_true(n >= 200 * 2049);
    assert_null(kvpi_policy_check(policy));
    assert_false(kvpi_policy_is_lru(policy));
}

/* What is gained can be lost again, up to 8/4 + 2048 blocks. */
TEST(test_credit)
{
    make(8, 512);
    for (uint32_t i = 0; i < 3000; i++) {
        use_one(0, i, 1); /* hits that LRU does not have */
        assert_null(kvpi_policy_check(policy));
        assert_int_equal(in_blocks(policy->credit), i < 2050 ? i + 1 : 2050);
    }
    assert_fields(*policy, hit_blocks, 3000, lru_blocks, 0);
}

/* After 2^25 tokens what was learned before weighs half. */
TEST(test_halved)
{
    make(8, 65536); /* 512 blocks of them */
    for (uint32_t i = 0; i < 511; i++)
        use_one(0, 1, i > 0);
    assert_int_equal(policy->returned, 510);
    assert_int_equal(policy->hits.hits[KVPI_CLASSES][1], 0);
    const uint32_t used = policy->hits.hits[KVPI_CLASSES][2];
    assert_int_equal(used + policy->hits.hits[KVPI_CLASSES][0] + policy->hits.hits[KVPI_CLASSES][3],
                     510 * KVPI_HITS_ONE);
    use_one(0, 1, 1);
    assert_fields(*policy, returned, 255, n_sampled, 0);
}

/* ------------------------------------------------------------------------------------ the whole */

static uint64_t go_on(struct kvpi_policy *p, uint64_t seed)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < 500; i++) {
        const uint32_t block = kvpi_policy_choose(p, 0);
        struct kvpi_policy_group group = {.name = draw(&seed, 300)};
        sum = sum * 31 + block;
        kvpi_policy_unqueue(p, block);
        kvpi_policy_forget(p, block);
        kvpi_policy_use(p, &(struct kvpi_policy_request){.blocks = &block,
                                                         .groups = &group,
                                                         .n_blocks = 1,
                                                         .n_held = 1,
                                                         .n_prompt = 1,
                                                         .prompt_tokens = draw(&seed, 40000),
                                                         .output_tokens = draw(&seed, 600)});
        kvpi_policy_queue(p, 0, block);
    }
    assert_null(kvpi_policy_check(p));
    return sum;
}

/* The same calls give the same blocks; of a byte copy, elsewhere, too. */
TEST(test_copy)
{
    static struct made copy;
    uint64_t sums[2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        make(64, 512);
        policy->ungated = 1;
        for (uint32_t b = 0; b < 64; b++)
            kvpi_policy_queue(policy, 0, b);
        sums[i] = go_on(policy, 5);
    }
    assert_true(sums[0] == sums[1]);
    memcpy(&copy, &made, sizeof made);
    sums[0] = go_on(policy, 6);
    memset(&made, 0xA5, sizeof made);
    assert_true(go_on(&copy.policy, 6) == sums[0]);
}

static void expect_wrong(void *field, const void *value, size_t size, const char *rule)
{
    unsigned char before[8];
    memcpy(before, field, size);
    memcpy(field, value, size);
    const char *detail = kvpi_policy_check(policy);
    assert_non_null(detail);
    assert_memory_equal(detail, rule, 1);
    memcpy(field, before, size);
    assert_null(kvpi_policy_check(policy));
}

#define EXPECT_WRONG(field, wrong, rule)                                                           \
    expect_wrong(&(field), &(__typeof__(field)){wrong}, sizeof(field), rule)

TEST(test_audit)
{
    make(64, 512);
    for (uint32_t b = 0; b < 32; b++)
        kvpi_policy_queue(policy, 0, b);
    go_on(policy, 3);
    EXPECT_WRONG(kvpi_order_block(policy->order, 40)->class_, KVPI_CLASSES, "V1");
    EXPECT_WRONG(kvpi_order_block(policy->order, 40)->class_, 16, "V1");
    EXPECT_WRONG(kvpi_order_block(policy->order, 40)->stamp, policy->references + 1, "V1");
    EXPECT_WRONG(policy->credit, INT64_MAX, "V2");
    EXPECT_WRONG(policy->credit, INT64_MIN, "V2");
    EXPECT_WRONG(policy->returned_late, policy->returned + 1, "V2");
    assert_int_not_equal(kvpi_policy_choose(policy, 0), KVPI_POLICY_NONE);
    EXPECT_WRONG(policy->choice.state, 3, "V4");
    EXPECT_WRONG(policy->choice.lane, KVPI_POLICY_LANES, "V4");
    EXPECT_WRONG(policy->choice.lane, 1, "V4");
    EXPECT_WRONG(policy->choice.class_, KVPI_CLASSES, "V4");
    EXPECT_WRONG(policy->choice.block, 65, "V4");
    EXPECT_WRONG(policy->choice.block, 40, "V4");
    EXPECT_WRONG(policy->choice.stamp, policy->choice.stamp + 1, "V4");
    EXPECT_WRONG(policy->choice.number, policy->choice.number + 1, "V4");
    EXPECT_WRONG(policy->hits.turn, KVPI_CLASSES, "P");
    EXPECT_WRONG(policy->ghost.lru_blocks, UINT64_MAX, "G");
    EXPECT_WRONG(policy->order[0].filled, 0, "O");
}

TEST_MAIN(NULL, NULL)
