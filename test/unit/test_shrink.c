/* Delta debugging on lists whose needed items are known. */
#include <stdlib.h>

#include "mocka.h"
#include "oplog/shrink.h"

struct needs {
    const uint32_t *needed;
    size_t n_needed;
    uint32_t tries;
    uint32_t give_up_at;
};

/* Fails when all needed items are there. */
static int has_all(void *context, const uint32_t *items, size_t n_items, size_t *n_enough)
{
    struct needs *needs = context;
    size_t found = 0, last = 0;
    if (++needs->tries == needs->give_up_at)
        return -1;
    for (size_t i = 0; i < n_items; i++) {
        assert_true(i == 0 || items[i - 1] < items[i]);
        if (found < needs->n_needed && items[i] == needs->needed[found]) {
            found++;
            last = i + 1;
        }
    }
    if (found < needs->n_needed)
        return 0;
    *n_enough = last;
    return 1;
}

static void shrink_to(const uint32_t *needed, size_t n_needed, size_t n, uint32_t most_tries)
{
    uint32_t *items = malloc((n + 1) * sizeof *items);
    for (uint32_t i = 0; i < n; i++)
        items[i] = i;
    struct needs needs = {needed, n_needed, 0, 0};
    size_t n_items = n;
    assert_int_equal(kvpi_shrink(items, &n_items, has_all, &needs), KVP_OK);
    assert_int_equal(n_items, n_needed);
    if (n_needed > 0)
        assert_memory_equal(items, needed, n_needed * sizeof *items);
    assert_in_range(needs.tries, 0, most_tries);
    free(items);
}

TEST(test_shrink_finds_what_is_needed)
{
    static const uint32_t some[] = {0, 17, 18, 500, 999};
    shrink_to(some, 5, 1000, 200);
    shrink_to(some, 1, 1, 10);
    shrink_to(some, 0, 100, 20);
    shrink_to(some + 4, 1, 1000, 50);
    shrink_to(some, 0, 0, 0);
    uint32_t all[64];
    for (uint32_t i = 0; i < 64; i++)
        all[i] = i;
    shrink_to(all, 64, 64, 200);
}

/* 0 is needed, and 2 as long as 1 is there: it can go only after a round that could not take it. */
static int needs_2_with_1(void *context, const uint32_t *items, size_t n_items, size_t *n_enough)
{
    int has[3] = {0};
    (void)context;
    (void)n_enough;
    for (size_t i = 0; i < n_items; i++)
        has[items[i]] = 1;
    return has[0] && (has[2] || !has[1]);
}

TEST(test_shrink_tries_again_what_it_could_not_take)
{
    uint32_t items[] = {0, 1, 2};
    size_t n_items = 3;
    assert_int_equal(kvpi_shrink(items, &n_items, needs_2_with_1, NULL), KVP_OK);
    assert_int_equal(n_items, 1);
    assert_int_equal(items[0], 0);
}

TEST(test_shrink_can_be_given_up)
{
    static const uint32_t needed[] = {3, 70};
    uint32_t items[100];
    size_t n_items = 100;
    struct needs needs = {needed, 2, 0, 6};
    for (uint32_t i = 0; i < 100; i++)
        items[i] = i;
    assert_int_equal(kvpi_shrink(items, &n_items, has_all, &needs), KVP_E_STATE);
    assert_true(n_items < 100);
    size_t ignored = n_items;
    assert_int_equal(has_all(&needs, items, n_items, &ignored), 1); /* what is left fails */
}

TEST_MAIN(NULL, NULL)
