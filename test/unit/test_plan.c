/* The plan of copies: phases (X2), which copies a freed block takes out of it, and taking it. The
 * model is the sentence in cache.h, done with loops over a plain array. */
#include <string.h>

#include "mocka.h"
#include "core/stages/plan.h"

enum { BLOCKS = 12, CAPACITY = 24 };

struct pair {
    uint32_t src;
    uint32_t dst;
};

struct made {
    struct kvpi_plan plan;
    _Alignas(64) uint8_t arena[2048];
};

static void make(struct made *made)
{
    struct kvpi_layout layout = {0, 0};
    memset(made, 0xA5, sizeof(*made));
    made->plan.capacity = CAPACITY;
    (void)kvpi_layout_take(&layout, 1, offsetof(struct made, arena));
    memset(&made->plan, 0, sizeof(made->plan));
    made->plan.capacity = CAPACITY;
    for (uint32_t tier = 1; tier <= 4; tier++)
        made->plan.before[tier] = BLOCKS;
    kvpi_plan_layout(&made->plan, &layout, 0);
    assert_true(layout.bytes <= sizeof(*made));
    kvpi_plan_reset(&made->plan);
}

static void add(struct made *made, uint32_t src, uint32_t dst, uint32_t n_tokens)
{
    kvpi_plan_add(&made->plan, &(struct kvpi_copy){.src = src, .dst = dst, .n_tokens = n_tokens});
}

static void add_all(struct made *made, const struct pair *pairs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        add(made, pairs[i].src, pairs[i].dst, 1 + (uint32_t)i);
}

static void expect_phases(const struct pair *pairs, size_t n, const uint32_t *phases)
{
    struct made made;
    kvp_copy copies[CAPACITY];
    make(&made);
    for (int turn = 0; turn < 2; turn++) { /* the second plan counts from 0 again */
        add_all(&made, pairs, n);
        kvpi_plan_take(&made.plan, copies, 0);
        assert_int_equal(made.plan.n, 0);
        for (size_t i = 0; i < n; i++) {
            assert_fields(copies[i], src_block, pairs[i].src, dst_block, pairs[i].dst, n_tokens,
                          1 + i, phase, phases[i]);
            assert_int_equal(copies[i].group | copies[i].src_tier | copies[i].dst_tier, 0);
        }
    }
}

#define EXPECT_PHASES(pairs, ...)                                                                  \
    expect_phases(pairs, sizeof(pairs) / sizeof(*(pairs)), (const uint32_t[]){__VA_ARGS__})

TEST(test_independent_copies_are_one_phase)
{
    const struct pair pairs[] = {{1, 2}, {3, 4}, {1, 5}};
    EXPECT_PHASES(pairs, 0, 0, 0);
}

TEST(test_a_copy_from_what_a_phase_writes_begins_the_next)
{
    const struct pair pairs[] = {{1, 2}, {2, 3}, {3, 4}};
    EXPECT_PHASES(pairs, 0, 1, 2);
}

TEST(test_a_copy_into_what_a_phase_reads_begins_the_next)
{
    const struct pair pairs[] = {{1, 2}, {3, 1}};
    EXPECT_PHASES(pairs, 0, 1);
}

TEST(test_a_second_copy_into_a_block_begins_the_next_phase)
{
    const struct pair pairs[] = {{1, 2}, {3, 2}};
    EXPECT_PHASES(pairs, 0, 1);
}

TEST(test_a_phase_begins_only_where_it_must)
{
    /* 1 and 2 were read and written in phase 0: phase 1 is free to write 1, not to read 3. */
    const struct pair pairs[] = {{1, 2}, {2, 3}, {4, 5}, {6, 1}, {3, 7}};
    EXPECT_PHASES(pairs, 0, 1, 1, 1, 2);
}

static void expect_left(struct made *made, const struct pair *pairs, size_t n)
{
    kvp_copy copies[CAPACITY];
    assert_int_equal(made->plan.n, n);
    kvpi_plan_take(&made->plan, copies, 0);
    for (size_t i = 0; i < n; i++)
        assert_fields(copies[i], src_block, pairs[i].src, dst_block, pairs[i].dst);
}

TEST(test_a_freed_destination_takes_its_copy_out)
{
    const struct pair pairs[] = {{1, 2}, {3, 4}, {5, 6}};
    const struct pair left[] = {{1, 2}, {5, 6}};
    struct made made;
    make(&made);
    add_all(&made, pairs, 3);
    kvpi_plan_drop(&made.plan, KVP_DEVICE, 4);
    kvpi_plan_drop(&made.plan, KVP_DEVICE, 4);
    kvpi_plan_drop(&made.plan, KVP_DEVICE, 1); /* a source is no destination */
    kvpi_plan_drop(&made.plan, KVP_DEVICE, 9);
    expect_left(&made, left, 2);
}

TEST(test_a_copy_that_a_later_one_reads_stays)
{
    const struct pair chain[] = {{1, 2}, {2, 3}};
    struct made made;
    make(&made);
    add_all(&made, chain, 2);
    kvpi_plan_drop(&made.plan, KVP_DEVICE, 2);
    assert_int_equal(made.plan.n, 2);
    kvpi_plan_drop(&made.plan, KVP_DEVICE, 3); /* the reader goes first */
    assert_int_equal(made.plan.n, 1);
    kvpi_plan_drop(&made.plan, KVP_DEVICE, 2);
    assert_int_equal(made.plan.n, 0);
}

TEST(test_of_two_copies_into_a_block_only_the_unread_one_goes)
{
    const struct pair pairs[] = {{1, 2}, {2, 3}, {4, 2}};
    const struct pair left[] = {{1, 2}, {2, 3}};
    struct made made;
    make(&made);
    add_all(&made, pairs, 3);
    kvpi_plan_drop(&made.plan, KVP_DEVICE, 2);
    expect_left(&made, left, 2);
}

TEST(test_two_unread_copies_into_a_block_both_go)
{
    const struct pair pairs[] = {{1, 2}, {3, 4}, {5, 2}};
    const struct pair left[] = {{3, 4}};
    struct made made;
    make(&made);
    add_all(&made, pairs, 3);
    kvpi_plan_drop(&made.plan, KVP_DEVICE, 2);
    expect_left(&made, left, 1);
}

TEST(test_a_plan_that_was_taken_is_forgotten)
{
    const struct pair pairs[] = {{1, 2}};
    const struct pair second[] = {{5, 6}};
    kvp_copy copies[CAPACITY];
    struct made made;
    make(&made);
    add_all(&made, pairs, 1);
    kvpi_plan_take(&made.plan, copies, 0);
    add_all(&made, second, 1);
    kvpi_plan_drop(&made.plan, KVP_DEVICE, 2);
    expect_left(&made, second, 1);
}

/* ------------------------------------------------------------------------------------ the model */

struct model {
    struct pair pairs[CAPACITY];
    size_t n;
};

static void model_drop(struct model *model, uint32_t block)
{
    struct model left = {.n = 0};
    for (size_t i = 0; i < model->n; i++) {
        int read_later = 0;
        for (size_t k = i + 1; k < model->n; k++)
            read_later |= model->pairs[k].src == block;
        if (model->pairs[i].dst != block || read_later)
            left.pairs[left.n++] = model->pairs[i];
    }
    *model = left;
}

/* The first phase that a copy may be in, given those before it: not before theirs, and not with one
 * that it must not meet. */
static void model_phases(const struct model *model, uint32_t *phases)
{
    for (size_t i = 0; i < model->n; i++) {
        const struct pair *p = &model->pairs[i];
        phases[i] = i == 0 ? 0 : phases[i - 1];
        for (size_t k = 0; k < i; k++) {
            const struct pair *q = &model->pairs[k];
            const int meet = p->src == q->dst || p->dst == q->src || p->dst == q->dst;
            phases[i] += phases[k] == phases[i] && meet;
        }
    }
}

static void compare_and_take(struct made *made, struct model *model)
{
    uint32_t phases[CAPACITY];
    kvp_copy copies[CAPACITY];
    assert_int_equal(made->plan.n, model->n);
    model_phases(model, phases);
    kvpi_plan_take(&made->plan, copies, 0);
    for (size_t i = 0; i < model->n; i++) {
        assert_fields(copies[i], src_block, model->pairs[i].src, dst_block, model->pairs[i].dst,
                      phase, phases[i]);
    }
    model->n = 0;
}

TEST(test_random_plans_equal_the_model)
{
    struct made made;
    struct model model = {.n = 0};
    uint32_t random = 1;
    make(&made);
    for (int turn = 0; turn < 20000; turn++) {
        random = random * 1664525u + 1013904223u;
        const uint32_t src = 1 + (random >> 8) % (BLOCKS - 1);
        const uint32_t dst = 1 + (random >> 16) % (BLOCKS - 1);
        const uint32_t what = (random >> 27) % 32;
        if (what == 0) {
            compare_and_take(&made, &model);
        } else if (what < 12) {
            kvpi_plan_drop(&made.plan, KVP_DEVICE, dst);
            model_drop(&model, dst);
        } else if (src != dst && model.n < CAPACITY) {
            add(&made, src, dst, 1);
            model.pairs[model.n++] = (struct pair){src, dst};
        }
        assert_int_equal(made.plan.n, model.n);
    }
    compare_and_take(&made, &model);
}

TEST_MAIN(NULL, NULL)
