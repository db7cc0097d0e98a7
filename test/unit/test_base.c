/* The arena's layout, its memory, the numbers of caches, and the small sums that all rooms use. */
#include <string.h>

#include "mocka.h"
#include "base/base.h"

TEST(test_arrays_follow_each_other_on_cache_lines)
{
    struct kvpi_layout layout = {0, 0};
    assert_int_equal(kvpi_layout_take(&layout, 3, 5), 0);
    assert_int_equal(kvpi_layout_take(&layout, 1, 65), 64);
    assert_int_equal(kvpi_layout_take(&layout, 2, 64), 192);
    assert_int_equal(kvpi_layout_take(&layout, 0, 8), 320); /* nothing takes nothing */
    assert_int_equal(kvpi_layout_take(&layout, 1, 1), 320);
    assert_int_equal(layout.bytes, 384);
    assert_false(layout.overflow);
}

TEST(test_a_layout_that_overflows_says_so_and_stays_where_it_was)
{
    const struct {
        size_t before, n, size;
    } cases[] = {
        {0, SIZE_MAX / 2 + 1, 2},     /* the product */
        {0, 1, SIZE_MAX},             /* rounding up to a line */
        {128, SIZE_MAX / 64 * 64, 1}, /* the sum */
        {SIZE_MAX / 64 * 64, 64, 1},  /* the sum, by one line */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct kvpi_layout layout = {cases[i].before, 0};
        (void)kvpi_layout_take(&layout, cases[i].n, cases[i].size);
        assert_true(layout.overflow);
        assert_int_equal(layout.bytes, cases[i].before);
        (void)kvpi_layout_take(&layout, 0, 1);
        assert_true(layout.overflow);
    }
    struct kvpi_layout largest = {0, 0};
    (void)kvpi_layout_take(&largest, SIZE_MAX / 64, 64);
    assert_false(largest.overflow);
}

TEST(test_mapped_memory_is_zero_and_can_be_written)
{
    const size_t n = 3u << 20;
    uint8_t *memory = kvpi_map(n);
    assert_non_null(memory);
    assert_int_equal((uintptr_t)memory % KVPI_CACHE_LINE, 0);
    for (size_t i = 0; i < n; i += 4096)
        assert_int_equal(memory[i], 0);
    memset(memory, 1, n);
    kvpi_unmap(memory, n);
}

TEST(test_a_size_that_nobody_has_maps_to_null)
{
    assert_null(kvpi_map(SIZE_MAX / 16 * 15));
}

TEST(test_65535_numbers_of_caches_differ_and_none_is_zero)
{
    static uint8_t seen[65536];
    for (int round = 0; round < 3; round++) {
        memset(seen, 0, sizeof(seen));
        for (int i = 0; i < 65535; i++) {
            const uint16_t number = kvpi_cache_number();
            assert_int_not_equal(number, 0);
            assert_false(seen[number]);
            seen[number] = 1;
        }
    }
}

TEST(test_ceil_div_rounds_up)
{
    assert_int_equal(kvpi_ceil_div(0, 16), 0);
    assert_int_equal(kvpi_ceil_div(1, 16), 1);
    assert_int_equal(kvpi_ceil_div(16, 16), 1);
    assert_int_equal(kvpi_ceil_div(17, 16), 2);
    assert_int_equal(kvpi_ceil_div(INT32_MAX, 1), INT32_MAX);
}

TEST(test_min_max_and_at)
{
    int32_t numbers[4] = {0, 0, 7, 0};
    assert_int_equal(kvpi_min_u32(3, UINT32_MAX), 3);
    assert_int_equal(kvpi_min_u32(UINT32_MAX, 3), 3);
    assert_int_equal(kvpi_max_u32(3, UINT32_MAX), UINT32_MAX);
    assert_int_equal(kvpi_max_u32(UINT32_MAX, 3), UINT32_MAX);
    assert_int_equal(*(int32_t *)kvpi_at(numbers, 8), 7);
}

TEST(test_counters_count)
{
    uint64_t counter = 5;
    kvpi_count(&counter, 3);
    kvpi_uncount(&counter, 1);
    assert_int_equal(kvpi_read(&counter), 7);
}

/* Words of 4 bytes, in pieces of 8 where they lie so; nothing behind them. */
TEST(test_words)
{
    enum { MOST = 64 };
    for (size_t at = 0; at <= 4; at += 4) {
        for (size_t n = 0; n <= MOST; n += 4) {
            _Alignas(8) uint8_t from[MOST + 8], to[MOST + 16];
            for (size_t i = 0; i < sizeof(from); i++)
                from[i] = (uint8_t)(i + 1);
            memset(to, 0xA5, sizeof(to));
            kvpi_store_words(to + at, from, n);
            assert_memory_equal(to + at, from, n);
            assert_int_equal(to[at + n], 0xA5);
            memset(to, 0xA5, sizeof(to));
            kvpi_load_words(to, from + at, n);
            assert_memory_equal(to, from + at, n);
            assert_int_equal(to[n], 0xA5);
        }
    }
}

TEST_MAIN(NULL, NULL)
