/* The pool: states (B1), counts (B2), the order of the queues (B3), and that its check sees each
 * thing that can be wrong with them. */
#include <string.h>

#include "mocka.h"
#include "xorshift.h"
#include "core/stages/pool.h"

enum { N = 8, MANY = 48, CLASSES = KVP_RETENTION_CLASSES };

struct made {
    struct kvpi_pool pool;
    _Alignas(64) struct kvpi_block blocks[MANY + CLASSES];
    _Alignas(64) uint32_t wraps[MANY];
};

static void make_many(struct made *made, uint32_t n_blocks)
{
    struct kvpi_layout layout = {0, 0};
    memset(made, 0xA5, sizeof(*made));
    (void)kvpi_layout_take(&layout, 1, sizeof(struct kvpi_pool));
    memset(&made->pool, 0, sizeof(made->pool));
    made->pool.n_blocks = n_blocks;
    kvpi_pool_layout(&made->pool, &layout, 0);
    assert_true(layout.bytes <= sizeof(*made));
    kvpi_pool_reset(&made->pool, 1);
}

static void make(struct made *made)
{
    make_many(made, N);
}

/* ----------------------------------------------------------------------------- what a test says */

static const char *violation(const struct made *made)
{
    uint64_t block;
    const char *detail = NULL;
    return kvpi_pool_check(&made->pool, &block, &detail) ? NULL : detail;
}

static void expect_queue(const struct made *made, uint32_t class_, const uint32_t *order, size_t n)
{
    const uint32_t sentinel = made->pool.n_blocks + class_;
    uint32_t b = sentinel;
    for (size_t i = 0; i < n; i++) {
        b = kvpi_block(&made->pool, b)->next;
        assert_int_equal(b, order[i]);
    }
    assert_int_equal(kvpi_block(&made->pool, b)->next, sentinel);
    assert_null(violation(made));
}

#define EXPECT_QUEUE(made, class_, ...)                                                            \
    expect_queue(made, class_, (const uint32_t[]){__VA_ARGS__},                                    \
                 sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

static void expect_counts(const struct made *made, uint64_t n_free, uint64_t n_cached,
                          uint64_t n_held)
{
    assert_fields(made->pool, n_free, n_free, n_cached, n_cached, n_held, n_held);
    assert_int_equal(kvpi_pool_available(&made->pool), n_free + n_cached);
    assert_null(violation(made));
}

static uint32_t take(struct made *made, uint32_t retention)
{
    const uint32_t victim = kvpi_pool_victim(&made->pool);
    kvpi_pool_set_content(&made->pool, victim, 0);
    kvpi_pool_take(&made->pool, victim, retention, 0);
    assert_int_equal(kvpi_pool_refs(&made->pool, victim), 1);
    return victim;
}

/* Take a block and leave it cached, in the class. */
static uint32_t leave_cached(struct made *made, uint32_t class_)
{
    const uint32_t block = take(made, class_);
    kvpi_pool_set_content(&made->pool, block, 100 + block);
    assert_int_equal(kvpi_pool_release(&made->pool, block), 0);
    return block;
}

static void take_all(struct made *made)
{
    while (kvpi_pool_victim(&made->pool) != 0)
        (void)take(made, 0);
}

static uint64_t generation(const struct made *made, uint32_t block)
{
    return kvpi_pool_generation(&made->pool, block);
}

/* --------------------------------------------------------------------------------------- orders */

TEST(test_a_new_pool_is_free_in_ascending_order)
{
    struct made made;
    make(&made);
    EXPECT_QUEUE(&made, 0, 1, 2, 3, 4, 5, 6, 7);
    for (uint32_t c = 1; c < CLASSES; c++)
        expect_queue(&made, c, NULL, 0);
    expect_counts(&made, 7, 0, 0);
    for (uint32_t b = 1; b < N; b++) {
        assert_int_equal(take(&made, 0), b);
        expect_counts(&made, 7 - b, 0, b);
    }
    assert_int_equal(kvpi_pool_victim(&made.pool), 0);
}

TEST(test_the_smallest_pool_has_one_block)
{
    struct made made;
    make_many(&made, 2);
    EXPECT_QUEUE(&made, 0, 1);
    assert_int_equal(take(&made, 0), 1);
    expect_queue(&made, 0, NULL, 0);
    assert_int_equal(kvpi_pool_release(&made.pool, 1), 0);
    EXPECT_QUEUE(&made, 0, 1);
}

TEST(test_free_goes_to_the_head_and_cached_to_the_tail)
{
    struct made made;
    make(&made);
    for (uint32_t b = 1; b <= 4; b++)
        assert_int_equal(take(&made, 0), b);
    kvpi_pool_set_content(&made.pool, 2, 20);
    kvpi_pool_set_content(&made.pool, 3, 30);
    (void)kvpi_pool_release(&made.pool, 3);
    EXPECT_QUEUE(&made, 0, 5, 6, 7, 3);
    (void)kvpi_pool_release(&made.pool, 1);
    EXPECT_QUEUE(&made, 0, 1, 5, 6, 7, 3);
    (void)kvpi_pool_release(&made.pool, 2);
    EXPECT_QUEUE(&made, 0, 1, 5, 6, 7, 3, 2);
    (void)kvpi_pool_release(&made.pool, 4);
    EXPECT_QUEUE(&made, 0, 4, 1, 5, 6, 7, 3, 2);
    expect_counts(&made, 5, 2, 0);
}

TEST(test_the_lowest_class_is_taken_first_and_free_before_cached)
{
    struct made made;
    const uint32_t classes[] = {7, 0, 3, 3, 1, 0, 7};
    const uint32_t order[] = {2, 6, 5, 3, 4, 1, 7};
    make(&made);
    for (uint32_t i = 0; i < 7; i++) {
        assert_int_equal(take(&made, classes[i]), i + 1);
        kvpi_pool_set_content(&made.pool, i + 1, 100 + i);
    }
    for (uint32_t b = 1; b <= 7; b++)
        (void)kvpi_pool_release(&made.pool, b);
    expect_counts(&made, 0, 7, 0);
    EXPECT_QUEUE(&made, 3, 3, 4);
    for (size_t i = 0; i < 7; i++)
        assert_int_equal(take(&made, 0), order[i]);
    (void)kvpi_pool_release(&made.pool,
                            7); /* without content: class 0, whatever it was taken for */
    kvpi_pool_set_content(&made.pool, 1, 9);
    (void)kvpi_pool_release(&made.pool, 1);
    EXPECT_QUEUE(&made, 0, 7, 1);
}

TEST(test_hits_leave_the_queue_from_anywhere)
{
    struct made made;
    make(&made);
    take_all(&made);
    for (uint32_t b = 1; b < N; b++) {
        kvpi_pool_set_content(&made.pool, b, b);
        (void)kvpi_pool_release(&made.pool, b);
    }
    kvpi_pool_hold(&made.pool, 4); /* the middle */
    EXPECT_QUEUE(&made, 0, 1, 2, 3, 5, 6, 7);
    kvpi_pool_hold(&made.pool, 1); /* the head */
    EXPECT_QUEUE(&made, 0, 2, 3, 5, 6, 7);
    kvpi_pool_hold(&made.pool, 7); /* the tail */
    EXPECT_QUEUE(&made, 0, 2, 3, 5, 6);
    kvpi_pool_hold(&made.pool, 4); /* held already: a second reference */
    expect_counts(&made, 0, 4, 3);
    assert_int_equal(kvpi_pool_release(&made.pool, 4), 1);
    expect_counts(&made, 0, 4, 3);
    assert_int_equal(kvpi_pool_release(&made.pool, 4), 0);
    EXPECT_QUEUE(&made, 0, 2, 3, 5, 6, 4);
}

/* A row by chance, some blocks of it held: in the order of their release or against it, in
 * pieces, and of several classes. */
static uint32_t make_cached_row(struct made *made, uint64_t *random, int32_t *row)
{
    uint32_t n = 0;
    make_many(made, MANY);
    for (uint32_t b = 1; b < MANY; b++) {
        (void)take(made, draw(random) % 8 == 0 ? 3 : 0);
        kvpi_pool_set_content(&made->pool, b, b);
    }
    for (uint32_t b = MANY - 1; b >= 1; b--)
        (void)kvpi_pool_release(&made->pool, b); /* as a close does: the last one first */
    for (uint32_t b = 1; b < MANY; b++) {
        if (draw(random) % 8 == 0)
            kvpi_pool_hold(&made->pool, b);
        row[n++] = (int32_t)b;
    }
    for (uint32_t swaps = (uint32_t)(draw(random) % 8); swaps > 0; swaps--) {
        const size_t i = draw(random) % n;
        const size_t j = draw(random) % n;
        const int32_t at_i = row[i];
        row[i] = row[j];
        row[j] = at_i;
    }
    return n;
}

TEST(test_a_run_is_held_as_each_of_its_blocks)
{
    uint64_t random = 7;
    for (int round = 0; round < 400; round++) {
        struct made one, run;
        int32_t row[MANY];
        uint32_t n_cached = 0, n_idle = 0;
        const uint32_t n = make_cached_row(&one, &random, row);
        const uint32_t begin = (uint32_t)(draw(&random) % n);
        const uint32_t end = begin + (uint32_t)(draw(&random) % (n - begin + 1));
        memcpy(&run, &one, sizeof(run));
        for (uint32_t i = begin; i < end; i++)
            kvpi_pool_hold(&one.pool, (uint32_t)row[i]);
        const uint64_t n_before = run.pool.n_cached;
        assert_int_equal(kvpi_pool_hold_run(&run.pool, row, begin, end, &n_cached, &n_idle), end);
        assert_memory_equal(&run, &one, sizeof(run));
        assert_int_equal(n_cached, n_before - one.pool.n_cached);
        assert_int_equal(n_idle, n_cached);
        assert_null(violation(&run));
        for (uint32_t i = end; i > begin; i--)
            kvpi_pool_unhold(&run.pool, (uint32_t)row[i - 1]);
        assert_int_equal(run.pool.n_cached, n_before);
        assert_null(violation(&run));
    }
}

TEST(test_a_run_ends_at_what_is_on_the_other_tier)
{
    struct made made;
    make(&made);
    take_all(&made);
    for (uint32_t b = 1; b < N; b++) {
        kvpi_pool_set_content(&made.pool, b, b);
        (void)kvpi_pool_release(&made.pool, b);
    }
    const int32_t row[] = {3, 2, -1, 4};
    uint32_t n_cached = 5, n_idle = 0;
    assert_int_equal(kvpi_pool_hold_run(&made.pool, row, 0, 4, &n_cached, &n_idle), 2);
    assert_int_equal(n_cached, 7);
    assert_int_equal(n_idle, 2);
    EXPECT_QUEUE(&made, 0, 1, 4, 5, 6, 7);
    expect_counts(&made, 0, 5, 2);
}

TEST(test_the_last_block_of_a_class_empties_it)
{
    struct made made;
    make_many(&made, 3);
    (void)leave_cached(&made, 5);
    (void)take(&made, 0);
    assert_int_equal(made.pool.classes, 1u << 5);
    kvpi_pool_hold(&made.pool, 1);
    assert_int_equal(made.pool.classes, 0);
    assert_int_equal(kvpi_pool_victim(&made.pool), 0);
    expect_counts(&made, 0, 0, 2);
}

TEST(test_retain_decides_where_a_held_block_will_wait)
{
    struct made made;
    make(&made);
    take_all(&made);
    kvpi_pool_set_content(&made.pool, 3, 3);
    kvpi_pool_retain(&made.pool, 3, 6);
    kvpi_pool_retain(&made.pool, 3, 2);
    assert_int_equal(kvpi_pool_refs(&made.pool, 3), 1);
    assert_int_equal(kvpi_block_class(kvpi_block(&made.pool, 3)), 2);
    (void)kvpi_pool_release(&made.pool, 3);
    EXPECT_QUEUE(&made, 2, 3);
}

TEST(test_a_cached_block_that_loses_its_content_goes_to_the_head)
{
    struct made made;
    make(&made);
    const uint32_t block = leave_cached(&made, 4);
    expect_counts(&made, 6, 1, 0);
    kvpi_pool_uncache(&made.pool, block);
    EXPECT_QUEUE(&made, 0, 1, 2, 3, 4, 5, 6, 7);
    expect_counts(&made, 7, 0, 0);
}

/* ---------------------------------------------------------------------------------- generations */

TEST(test_the_generation_rises_when_content_is_lost_and_only_then)
{
    struct made made;
    make(&made);
    const uint32_t block = take(&made, 0);
    assert_int_equal(generation(&made, block), 0);
    (void)kvpi_pool_release(&made.pool, block); /* without content */
    assert_int_equal(generation(&made, block), 1);
    assert_int_equal(leave_cached(&made, 0), block); /* cached: content is kept */
    assert_int_equal(generation(&made, block), 1);
    kvpi_pool_hold(&made.pool, block);
    (void)kvpi_pool_release(&made.pool, block);
    assert_int_equal(generation(&made, block), 1);
    kvpi_pool_uncache(&made.pool, block);
    assert_int_equal(generation(&made, block), 2);
    take_all(&made);
    kvpi_pool_set_content(&made.pool, block, 9);
    (void)kvpi_pool_release(&made.pool, block);
    assert_int_equal(generation(&made, block), 2);
    kvpi_pool_set_content(&made.pool, block, 0); /* the victim is evicted */
    assert_int_equal(generation(&made, block), 3);
    assert_int_equal(kvpi_pool_victim(&made.pool), block);
    kvpi_pool_take(&made.pool, block, 0, 0);
    assert_int_equal(generation(&made, block), 3);
}

/* It lies in two halves. */
TEST(test_the_generation_has_64_bits)
{
    struct made made;
    make(&made);
    const uint32_t block = take(&made, 0);
    for (uint64_t high = 0; high < 3; high++) {
        kvpi_block(&made.pool, block)->generation = UINT32_MAX;
        assert_int_equal(generation(&made, block), high << 32 | UINT32_MAX);
        kvpi_pool_raise(&made.pool, block);
        assert_int_equal(generation(&made, block), (high + 1) << 32);
        assert_int_equal(generation(&made, block - 1), 0);
        assert_int_equal(generation(&made, block + 1), 0);
    }
    kvpi_block(&made.pool, block)->generation = UINT32_MAX;
    kvpi_pool_reset(&made.pool, 0); /* it was held */
    assert_int_equal(generation(&made, block), (uint64_t)4 << 32);
    kvpi_pool_reset(&made.pool, 1);
    assert_int_equal(generation(&made, block), 0);
}

TEST(test_content_of_a_held_block_may_come_and_go)
{
    struct made made;
    make(&made);
    const uint32_t block = take(&made, 0);
    kvpi_pool_set_content(&made.pool, block, 1);
    kvpi_pool_set_content(&made.pool, block, 2);
    kvpi_pool_set_content(&made.pool, block, 0);
    assert_int_equal(generation(&made, block), 0);
    expect_counts(&made, 6, 0, 1);
}

TEST(test_reset_frees_everything_in_ascending_order)
{
    struct made made;
    make(&made);
    (void)leave_cached(&made, 3); /* 1: had content */
    (void)take(&made, 5);         /* 2: has a holder */
    kvpi_pool_reset(&made.pool, 0);
    EXPECT_QUEUE(&made, 0, 1, 2, 3, 4, 5, 6, 7);
    expect_counts(&made, 7, 0, 0);
    for (uint32_t b = 1; b < N; b++) {
        assert_int_equal(generation(&made, b), b <= 2);
        assert_int_equal(kvpi_block(&made.pool, b)->refs, 0);
    }
}

/* ----------------------------------------------------------------------------------------- runs */

TEST(test_a_run_of_releases_stops_at_what_becomes_free)
{
    struct made made;
    const int32_t row[] = {1, 2, 3, 4, 5};
    uint32_t n_cached = 10;
    make(&made);
    take_all(&made);
    kvpi_pool_set_content(&made.pool, 1, 10);
    kvpi_pool_set_content(&made.pool, 5, 50);
    kvpi_pool_set_content(&made.pool, 4, 40);
    kvpi_pool_hold(&made.pool, 4); /* shared: stays held */
    assert_int_equal(kvpi_pool_release_run(&made.pool, row, 5, 0, &n_cached), 3);
    assert_int_equal(n_cached, 11);
    EXPECT_QUEUE(&made, 0, 5);
    assert_int_equal(kvpi_pool_refs(&made.pool, 4), 1);
    assert_int_equal(kvpi_pool_refs(&made.pool, 3), 1); /* the caller's */
    assert_int_equal(kvpi_pool_release_run(&made.pool, row, 1, 0, &n_cached), 0);
    assert_int_equal(n_cached, 12);
    EXPECT_QUEUE(&made, 0, 5, 1);
    assert_int_equal(kvpi_pool_release_run(&made.pool, row, 3, 3, &n_cached), 3);
    expect_counts(&made, 0, 2, 5);
}

TEST(test_a_long_run_goes_last_to_first)
{
    struct made made;
    int32_t row[MANY - 1];
    uint32_t n_cached = 0;
    make_many(&made, MANY);
    take_all(&made);
    for (uint32_t b = 1; b < MANY; b++) {
        kvpi_pool_set_content(&made.pool, b, b);
        row[b - 1] = (int32_t)b;
    }
    assert_int_equal(kvpi_pool_release_run(&made.pool, row, MANY - 1, 0, &n_cached), 0);
    assert_int_equal(n_cached, MANY - 1);
    for (uint32_t b = MANY - 1; b >= 1; b--)
        assert_int_equal(take(&made, 0), b);
}

/* Runs whose blocks have one holder, or several: any four, with any counts, in a class. */
TEST(test_shared_blocks_of_a_run_stay_held)
{
    for (uint32_t counts = 0; counts < 1024; counts++) {
        struct made made;
        int32_t row[5];
        uint32_t n_cached = 0, n_alone = 0;
        make(&made);
        take_all(&made);
        for (uint32_t i = 0; i < 5; i++) {
            const uint32_t block = i + 1, more = counts >> 2 * i & 3;
            row[i] = (int32_t)block;
            kvpi_pool_set_content(&made.pool, block, block);
            kvpi_pool_retain(&made.pool, block, 3);
            for (uint32_t n = 0; n < more; n++)
                kvpi_pool_hold(&made.pool, block);
            n_alone += more == 0;
        }
        assert_int_equal(kvpi_pool_release_run(&made.pool, row, 5, 0, &n_cached), 0);
        assert_int_equal(n_cached, n_alone);
        for (uint32_t i = 0; i < 5; i++) {
            assert_int_equal(kvpi_pool_refs(&made.pool, i + 1), counts >> 2 * i & 3);
            assert_int_equal(kvpi_block_class(kvpi_block(&made.pool, i + 1)), 3);
        }
        expect_counts(&made, 0, n_alone, 7 - n_alone);
    }
}

/* ------------------------------------------------------------------------------------ the model */

/* Every queue as an array, head first. */
struct model {
    uint32_t queue[CLASSES][MANY];
    size_t n[CLASSES];
    uint32_t refs[MANY];
    uint32_t content[MANY];
    uint32_t class_[MANY];
    uint32_t generation[MANY];
};

static void model_insert(struct model *m, uint32_t c, size_t at, uint32_t block)
{
    memmove(&m->queue[c][at + 1], &m->queue[c][at], (m->n[c] - at) * sizeof(block));
    m->queue[c][at] = block;
    m->n[c]++;
}

static uint32_t model_where(const struct model *m, uint32_t block)
{
    return m->content[block] != 0 ? m->class_[block] : 0;
}

static void model_remove(struct model *m, uint32_t c, uint32_t block)
{
    size_t at = 0;
    while (m->queue[c][at] != block)
        at++;
    m->n[c]--;
    memmove(&m->queue[c][at], &m->queue[c][at + 1], (m->n[c] - at) * sizeof(block));
}

static void model_free(struct model *m, uint32_t block)
{
    m->content[block] = 0;
    m->generation[block]++;
    model_insert(m, 0, 0, block);
}

static uint32_t model_take(struct model *m, uint32_t retention)
{
    uint32_t c = 0;
    while (c < CLASSES && m->n[c] == 0)
        c++;
    if (c == CLASSES)
        return 0;
    const uint32_t block = m->queue[c][0];
    model_remove(m, c, block);
    m->generation[block] += m->content[block] != 0;
    m->content[block] = 0;
    m->refs[block] = 1;
    m->class_[block] = retention;
    return block;
}

static void model_release(struct model *m, uint32_t block)
{
    if (--m->refs[block] == 0) {
        if (m->content[block] != 0) {
            const uint32_t c = m->class_[block];
            model_insert(m, c, m->n[c], block);
        } else {
            model_free(m, block);
        }
    }
}

static void compare(const struct made *made, const struct model *m)
{
    uint64_t counts[3] = {0, 0, 0};
    for (uint32_t c = 0; c < CLASSES; c++)
        expect_queue(made, c, m->queue[c], m->n[c]);
    for (uint32_t b = 1; b < MANY; b++) {
        counts[m->refs[b] > 0 ? 2 : m->content[b] != 0]++;
        assert_int_equal(kvpi_pool_refs(&made->pool, b), m->refs[b]);
        assert_int_equal(generation(made, b), m->generation[b]);
    }
    expect_counts(made, counts[0], counts[1], counts[2]);
}

static void step(struct made *made, struct model *m, uint32_t what, uint32_t block, uint32_t c)
{
    struct kvpi_pool *pool = &made->pool;
    if (what == 0) {
        if (kvpi_pool_victim(pool) == 0) {
            assert_int_equal(model_take(m, c), 0);
        } else {
            const uint32_t taken = take(made, c);
            assert_int_equal(model_take(m, c), taken);
        }
    } else if (m->refs[block] == 0 && m->content[block] == 0) {
        return; /* free: only a take may touch it */
    } else if (what == 1) {
        if (m->refs[block]++ == 0)
            model_remove(m, model_where(m, block), block);
        kvpi_pool_hold(pool, block);
    } else if (m->refs[block] == 0) {
        model_remove(m, model_where(m, block), block);
        model_free(m, block);
        kvpi_pool_uncache(pool, block);
    } else if (what == 2) {
        model_release(m, block);
        assert_int_equal(kvpi_pool_release(pool, block), m->refs[block]);
    } else if (what == 3) {
        m->content[block] = m->content[block] == 0 ? block : 0;
        kvpi_pool_set_content(pool, block, m->content[block]);
    } else {
        m->class_[block] = c;
        kvpi_pool_retain(pool, block, c);
    }
}

TEST(test_random_steps_equal_the_model)
{
    static struct made made;
    static struct model model;
    uint64_t random = 1;
    make_many(&made, MANY);
    for (uint32_t b = 1; b < MANY; b++)
        model_insert(&model, 0, b - 1, b);
    for (int turn = 0; turn < 20000; turn++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        const uint32_t what = (uint32_t)(random >> 60) % 5;
        step(&made, &model, what, 1 + (uint32_t)(random >> 40) % (MANY - 1),
             (uint32_t)(random >> 34) % CLASSES);
        compare(&made, &model);
    }
}

/* ------------------------------------------------------------------------------- planted faults */

/* Blocks 1 to 4 cached (4 in class 2), 5 held, 6 and 7 free. */
static void make_mixed(struct made *made)
{
    make(made);
    take_all(made);
    for (uint32_t b = 1; b <= 4; b++) {
        kvpi_pool_set_content(&made->pool, b, b);
        kvpi_pool_retain(&made->pool, b, b == 4 ? 2 : 0);
        (void)kvpi_pool_release(&made->pool, b);
    }
    (void)kvpi_pool_release(&made->pool, 7);
    (void)kvpi_pool_release(&made->pool, 6);
    EXPECT_QUEUE(made, 0, 6, 7, 1, 2, 3);
    EXPECT_QUEUE(made, 2, 4);
}

#define BREAKS(what, ...)                                                                          \
    static void break_##what(struct made *made)                                                    \
    {                                                                                              \
        __VA_ARGS__;                                                                               \
    }                                                                                              \
    struct made

BREAKS(link_back, kvpi_block(&made->pool, 2)->prev = 7);
BREAKS(link_forward, kvpi_block(&made->pool, 1)->next = 3);
BREAKS(cycle, kvpi_block(&made->pool, 3)->next = 1);
BREAKS(null_in_queue, kvpi_block(&made->pool, 1)->next = 0);
BREAKS(link_outside, kvpi_block(&made->pool, 1)->next = N + 3); /* another class's sentinel */
BREAKS(held_in_queue, kvpi_block(&made->pool, 2)->refs++);
BREAKS(free_behind_cached, kvpi_block(&made->pool, 2)->content = 0);
BREAKS(free_in_another_class, kvpi_block(&made->pool, 4)->content = 0);
BREAKS(class, kvpi_block(&made->pool, 2)->refs |= 1u << KVPI_REFS_CLASS_SHIFT);
BREAKS(mask_set, made->pool.classes |= 1u << 6);
BREAKS(mask_clear, made->pool.classes &= ~(1u << 2));
BREAKS(mark, kvpi_block(&made->pool, 5)->refs |= KVPI_REFS_MARKED);
BREAKS(null_held, kvpi_block(&made->pool, 0)->refs = 1);
BREAKS(free_count, made->pool.n_free++);
BREAKS(cached_count, made->pool.n_cached--);
BREAKS(held_count, made->pool.n_held++);
BREAKS(lost_block, kvpi_pool_unlink(&made->pool, kvpi_blocks(&made->pool), 1));

TEST(test_the_check_sees_every_planted_fault)
{
    const struct {
        void (*plant)(struct made *made);
        const char *invariant;
    } faults[] = {
        {break_link_back, "B3"},    {break_link_forward, "B3"},
        {break_cycle, "B3"},        {break_null_in_queue, "B3"},
        {break_link_outside, "B3"}, {break_held_in_queue, "B1"},
        {break_class, "B3"},        {break_free_behind_cached, "B3"},
        {break_mask_set, "B3"},     {break_free_in_another_class, "B3"},
        {break_mask_clear, "B3"},   {break_mark, "B1"},
        {break_null_held, "B1"},    {break_free_count, "B2"},
        {break_cached_count, "B2"}, {break_held_count, "B2"},
        {break_lost_block, "B2"},
    };
    for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++) {
        struct made made;
        make_mixed(&made);
        faults[i].plant(&made);
        const char *detail = violation(&made);
        assert_non_null(detail);
        assert_memory_equal(detail, faults[i].invariant, 2);
    }
}

TEST_MAIN(NULL, NULL)
