/* What may go, in order: random blocks come and leave, and a slow search says what the ends are. */
#include <string.h>

#include "core/policy/order.h"
#include "world.h"

enum { N = 300 };

struct made {
    struct kvpi_order order;
    _Alignas(64) struct kvpi_order_block blocks[N];
};

static void make(struct made *made)
{
    struct kvpi_layout layout = {0, 0};
    memset(made, 0xA5, sizeof *made);
    made->order.n_blocks = N;
    made->order.lane = 0;
    (void)kvpi_layout_take(&layout, 1, sizeof made->order);
    kvpi_order_layout(&made->order, &layout, 0);
    assert_true(layout.bytes <= sizeof *made);
    kvpi_order_reset(&made->order);
    assert_null(kvpi_order_check(&made->order));
}

static struct kvpi_order_block *known(struct made *made, uint32_t block)
{
    return kvpi_order_block(&made->order, block);
}

static void insert(struct made *made, uint32_t block, uint32_t class_, uint64_t stamp)
{
    known(made, block)->class_ = (uint8_t)class_;
    known(made, block)->stamp = stamp;
    kvpi_order_insert(&made->order, block);
}

/* Of blocks with one stamp the one that was queued first is the older: when[block]. */
static int is_before(struct made *made, const uint32_t *when, uint32_t a, uint32_t b)
{
    const uint64_t of_a = known(made, a)->stamp, of_b = known(made, b)->stamp;
    return of_a < of_b || (of_a == of_b && when[a] < when[b]);
}

static void expect_ends(struct made *made, const uint32_t *when)
{
    for (uint32_t c = 0; c < KVPI_CLASSES; c++) {
        uint32_t oldest = KVPI_ORDER_NONE, youngest = KVPI_ORDER_NONE;
        for (uint32_t b = 0; b < N; b++) {
            if (when[b] == 0 || known(made, b)->class_ != c)
                continue;
            oldest = oldest == KVPI_ORDER_NONE || is_before(made, when, b, oldest) ? b : oldest;
            youngest =
                youngest == KVPI_ORDER_NONE || is_before(made, when, youngest, b) ? b : youngest;
        }
        assert_fields(made->order, oldest[c], oldest, youngest[c], youngest);
        assert_int_equal(made->order.filled >> c & 1, oldest != KVPI_ORDER_NONE);
    }
    assert_null(kvpi_order_check(&made->order));
}

/* Few classes and few stamps, so that there are many of each; and all 64. */
static void run(uint64_t seed, uint32_t n_classes, uint32_t n_stamps)
{
    static struct made made;
    uint32_t when[N] = {0}, now = 0, n_queued = 0;
    make(&made);
    for (int i = 0; i < 3000; i++) {
        const uint32_t b = draw(&seed, N);
        if (when[b] == 0) {
            insert(&made, b, draw(&seed, n_classes), draw(&seed, n_stamps));
            when[b] = ++now;
            n_queued++;
        } else {
            kvpi_order_remove(&made.order, b);
            when[b] = 0;
            n_queued--;
        }
        assert_int_equal(made.order.n_queued, n_queued);
        if (i % 7 == 0)
            expect_ends(&made, when);
    }
}

TEST(test_random)
{
    run(1, 2, 1000000);
    run(2, 1, 3);
    run(3, 64, 50);
}

/* From the old end to the young one: each block in turn. */
TEST(test_in_order)
{
    static struct made made;
    (void)state;
    make(&made);
    for (uint32_t b = 0; b < N; b++)
        insert(&made, b, 63, b * UINT64_C(7) % N); /* 7 does not divide 300: all differ */
    for (uint64_t stamp = 0; stamp < N; stamp++) {
        const uint32_t oldest = made.order.oldest[63];
        assert_int_equal(known(&made, oldest)->stamp, stamp);
        kvpi_order_remove(&made.order, oldest);
    }
    assert_int_equal(made.order.filled, 0);
}

/* Ascending stamps, which a tree without priorities makes a list of: 3 log2 of 300 is 25. */
TEST(test_depth)
{
    static struct made made;
    (void)state;
    make(&made);
    for (uint32_t b = 0; b < N; b++)
        insert(&made, b, 0, b);
    for (uint32_t b = 0; b < N; b++) {
        int depth = 0;
        for (uint32_t at = b; at != KVPI_ORDER_NONE; at = known(&made, at)->up)
            depth++;
        assert_true(depth <= 25);
    }
}

static void expect_wrong(struct made *made, void *field, const void *value, size_t size,
                         const char *rule)
{
    unsigned char before[8];
    memcpy(before, field, size);
    memcpy(field, value, size);
    const char *detail = kvpi_order_check(&made->order);
    assert_non_null(detail);
    assert_memory_equal(detail, rule, 2);
    memcpy(field, before, size);
    assert_null(kvpi_order_check(&made->order));
}

#define EXPECT_WRONG(made, field, wrong, rule)                                                     \
    expect_wrong(made, &(field), &(__typeof__(field)){wrong}, sizeof(field), rule)

TEST(test_audit)
{
    static struct made made;
    (void)state;
    make(&made);
    for (uint32_t b = 0; b < 50; b++)
        insert(&made, b, 1, 100 + b);
    const uint32_t root = made.order.roots[1];
    struct kvpi_order_block *top = known(&made, root);
    const uint32_t older = top->older, oldest = made.order.oldest[1];
    struct kvpi_order_block *below = known(&made, older), *last = known(&made, oldest);
    assert_true(older != oldest && last->younger == KVPI_ORDER_NONE);
    EXPECT_WRONG(&made, below->stamp, 1000, "O2");
    EXPECT_WRONG(&made, below->class_, 2, "O1");
    EXPECT_WRONG(&made, below->class_, KVPI_CLASSES, "O1");
    EXPECT_WRONG(&made, below->queued, 0, "O1");
    EXPECT_WRONG(&made, below->up, KVPI_ORDER_NONE, "O1");
    EXPECT_WRONG(&made, below->up, oldest, "O1");
    EXPECT_WRONG(&made, top->older, oldest, "O1");
    EXPECT_WRONG(&made, top->up, oldest, "O1"); /* a circle, as is: */
    EXPECT_WRONG(&made, last->younger, root, "O1");
    EXPECT_WRONG(&made, last->younger, N, "O1");
    EXPECT_WRONG(&made, last->younger, 200, "O1"); /* it may not go */
    EXPECT_WRONG(&made, known(&made, 200)->queued, 1, "O1");
    EXPECT_WRONG(&made, made.order.roots[1], older, "O1");
    EXPECT_WRONG(&made, made.order.roots[2], N, "O1");
    EXPECT_WRONG(&made, made.order.roots[2], root, "O1");
    EXPECT_WRONG(&made, made.order.oldest[1], root, "O3");
    EXPECT_WRONG(&made, made.order.youngest[1], root, "O3");
    EXPECT_WRONG(&made, made.order.youngest[2], root, "O3");
    EXPECT_WRONG(&made, made.order.filled, 0, "O4");
    EXPECT_WRONG(&made, made.order.filled, 6, "O4");
    EXPECT_WRONG(&made, made.order.n_queued, 49, "O2");
}

static void put_apart(struct made *made, uint32_t block, uint32_t class_, uint64_t stamp)
{
    known(made, block)->class_ = (uint8_t)class_;
    known(made, block)->stamp = stamp;
    kvpi_order_put_apart(&made->order, block);
    assert_null(kvpi_order_check(&made->order));
}

/* What is apart is queued, and has no place before it is settled, or another one is apart. */
TEST(test_apart)
{
    static struct made made;
    (void)state;
    make(&made);
    insert(&made, 1, 5, 20);
    put_apart(&made, 2, 5, 10);
    assert_fields(made.order, n_queued, 2, oldest[5], 1);
    kvpi_order_remove(&made.order, 2); /* it leaves as it came */
    assert_int_equal(made.order.n_queued, 1);
    put_apart(&made, 3, 6, 10);
    put_apart(&made, 4, 5, 30);
    assert_int_equal(made.order.oldest[6], 3);
    kvpi_order_remove(&made.order, 1); /* another one leaves meanwhile */
    assert_int_equal(made.order.filled >> 5 & 1, 0);
    kvpi_order_settle(&made.order);
    kvpi_order_settle(&made.order);
    assert_fields(made.order, oldest[5], 4, n_queued, 2);
    assert_null(kvpi_order_check(&made.order));
    put_apart(&made, 7, 5, 40);
    EXPECT_WRONG(&made, made.order.apart, 200, "O5");
    EXPECT_WRONG(&made, made.order.apart, N, "O5");
    EXPECT_WRONG(&made, made.order.apart, KVPI_ORDER_NONE, "O1");
    EXPECT_WRONG(&made, made.order.apart, 4, "O1");
}

/* Two blocks alone: the one of higher priority is above, or the tree is wrong. */
TEST(test_audit_of_two)
{
    static struct made made;
    (void)state;
    make(&made);
    insert(&made, 0, 1, 10);
    EXPECT_WRONG(&made, known(&made, 0)->class_, KVPI_CLASSES, "O1");
    insert(&made, 1, 1, 20);
    const uint32_t root = made.order.roots[1], other = 1 - root;
    *known(&made, root) = (struct kvpi_order_block){.stamp = 10,
                                                    .up = other,
                                                    .older = KVPI_ORDER_NONE,
                                                    .younger = KVPI_ORDER_NONE,
                                                    .class_ = 1,
                                                    .queued = 1};
    *known(&made, other) = (struct kvpi_order_block){.stamp = 20,
                                                     .up = KVPI_ORDER_NONE,
                                                     .older = root,
                                                     .younger = KVPI_ORDER_NONE,
                                                     .class_ = 1,
                                                     .queued = 1};
    made.order.roots[1] = other;
    assert_memory_equal(kvpi_order_check(&made.order), "O1", 2);
}

TEST_MAIN(NULL, NULL)
