/* The table: which place a sequence gets, and what its handle is worth. */
#include <string.h>

#include "mocka.h"
#include "core/stages/table.h"

enum { SEQS = 3, TOKENS = 8 };

static const uint64_t own_bits = (uint64_t)7 << KVPI_HANDLE_CACHE_SHIFT;

struct made {
    struct kvpi_table table;
    _Alignas(64) uint8_t arena[4096];
};

static void make(struct made *made)
{
    struct kvpi_layout layout = {0, 0};
    memset(made, 0xA5, sizeof(*made));
    made->table.max_seqs = SEQS;
    made->table.max_tokens = TOKENS;
    made->table.max_blocks = 2;
    made->table.max_units = 4;
    made->table.unit_tokens = 2;
    made->table.max_unit_keys = 1;
    made->table.n_groups = 1;
    made->table.max_tree = 0;
    (void)kvpi_layout_take(&layout, 1, offsetof(struct made, arena));
    kvpi_table_layout(&made->table, &layout, 0);
    assert_true(layout.bytes <= sizeof(*made));
    kvpi_table_reset(&made->table, 1);
}

static struct kvpi_seq *open_at(struct made *made, uint32_t place)
{
    assert_int_equal(kvpi_table_next(&made->table), place);
    struct kvpi_seq *seq = kvpi_table_open(&made->table);
    assert_non_null(seq);
    assert_int_equal(kvpi_seq_place(&made->table, seq), place);
    return seq;
}

static kvp_seq handle_of(const struct made *made, const struct kvpi_seq *seq)
{
    return kvpi_table_handle(&made->table, seq, own_bits);
}

static struct kvpi_seq *find(const struct made *made, uint64_t bits)
{
    return kvpi_table_find(&made->table, (kvp_seq){bits}, own_bits);
}

TEST(test_new_places_ascend_and_freed_ones_come_back_last_first)
{
    struct made made;
    make(&made);
    struct kvpi_seq *a = open_at(&made, 0);
    struct kvpi_seq *b = open_at(&made, 1);
    kvpi_table_close(&made.table, a);
    kvpi_table_close(&made.table, b);
    (void)open_at(&made, 1);
    (void)open_at(&made, 0);
    (void)open_at(&made, 2);
    assert_int_equal(made.table.n_open, 3);
    assert_int_equal(kvpi_table_next(&made.table), -1);
    assert_null(kvpi_table_open(&made.table));
    assert_int_equal(made.table.n_open, 3);
}

TEST(test_an_opened_place_is_empty)
{
    struct made made;
    make(&made);
    struct kvpi_seq *seq = open_at(&made, 0);
    const uint64_t generation = seq->generation;
    memset(seq, 0xFF, sizeof(*seq));
    seq->generation = generation;
    kvpi_table_close(&made.table, seq);
    seq = open_at(&made, 0);
    const struct kvpi_seq empty = {
        .generation = generation + 2, .uncached_from = UINT32_MAX, .last = KVPI_NO_TOKEN};
    assert_memory_equal(seq, &empty, sizeof(empty));
}

TEST(test_rows_of_places_do_not_overlap)
{
    struct made made;
    make(&made);
    for (uint32_t place = 0; place <= SEQS; place++) { /* the last is scratch */
        memset(kvpi_row_blocks(&made.table, place), (int)place + 1, 2 * sizeof(int32_t));
        memset(kvpi_row_nodes(&made.table, place), (int)place + 1, 4 * sizeof(uint32_t));
        memset(kvpi_row_partial(&made.table, place), (int)place + 1, 2 * sizeof(int32_t));
        memset(kvpi_row_keys(&made.table, place), (int)place + 1, sizeof(struct kvpi_key));
    }
    for (uint32_t place = 0; place <= SEQS; place++) {
        const uint32_t word = (place + 1) * 0x01010101u;
        assert_int_equal(kvpi_row_blocks(&made.table, place)[0], word);
        assert_int_equal(kvpi_row_blocks(&made.table, place)[1], word);
        assert_int_equal(kvpi_row_nodes(&made.table, place)[0], word);
        assert_int_equal(kvpi_row_nodes(&made.table, place)[3], word);
        assert_int_equal(kvpi_row_partial(&made.table, place)[1], word);
        assert_int_equal(kvpi_row_keys(&made.table, place)->type, word);
    }
    assert_int_equal(kvpi_table_scratch(&made.table), SEQS);
}

TEST(test_a_handle_finds_its_sequence_until_it_is_closed)
{
    struct made made;
    make(&made);
    struct kvpi_seq *a = open_at(&made, 0);
    struct kvpi_seq *b = open_at(&made, 1);
    const kvp_seq first = handle_of(&made, a);
    assert_ptr_equal(find(&made, first.bits), a);
    assert_ptr_equal(find(&made, handle_of(&made, b).bits), b);
    kvpi_table_close(&made.table, a);
    assert_null(find(&made, first.bits));
    a = open_at(&made, 0);
    assert_null(find(&made, first.bits)); /* the place lives, the handle is stale */
    assert_int_not_equal(handle_of(&made, a).bits, first.bits);
    assert_ptr_equal(find(&made, handle_of(&made, a).bits), a);
}

TEST(test_foreign_and_made_up_handles_find_nothing)
{
    struct made made;
    make(&made);
    struct kvpi_seq *a = open_at(&made, 0);
    const uint64_t bits = handle_of(&made, a).bits;
    assert_null(find(&made, 0));
    assert_null(find(&made, UINT64_MAX));
    assert_null(find(&made, own_bits)); /* generation 0, place 0 */
    for (uint64_t other = 0; other < 65536; other++) {
        const uint64_t foreign =
            (bits & ~(UINT64_MAX << KVPI_HANDLE_CACHE_SHIFT)) | other << KVPI_HANDLE_CACHE_SHIFT;
        assert_ptr_equal(find(&made, foreign), other == 7 ? a : NULL);
    }
    for (uint32_t bit = 0; bit < 64; bit++)
        assert_null(find(&made, bits ^ (uint64_t)1 << bit));
}

TEST(test_closed_places_and_the_scratch_place_have_no_handle)
{
    struct made made;
    make(&made);
    struct kvpi_seq *a = open_at(&made, 0);
    kvpi_table_close(&made.table, a);
    assert_int_equal(a->generation, 2);
    assert_null(find(&made, kvpi_handle_make(own_bits, 2, 0, made.table.place_bits)));
    assert_null(find(&made, kvpi_handle_make(own_bits, 3, 0, made.table.place_bits)));
    struct kvpi_seq *scratch = kvpi_seq_at(&made.table, SEQS);
    scratch->generation = 1; /* 3 places take 2 bits: place 3 can be named */
    assert_null(find(&made, handle_of(&made, scratch).bits));
}

TEST(test_a_place_is_retired_at_its_last_generation)
{
    struct made made;
    make(&made);
    const uint64_t last = kvpi_handle_last_generation(made.table.place_bits);
    kvpi_seq_at(&made.table, 0)->generation = last - 2;
    struct kvpi_seq *seq = open_at(&made, 0);
    const kvp_seq handle = handle_of(&made, seq);
    assert_ptr_equal(find(&made, handle.bits), seq);
    assert_int_equal(handle.bits >> KVPI_HANDLE_CACHE_SHIFT, 7);
    kvpi_table_close(&made.table, seq);
    assert_int_equal(seq->generation, last);
    assert_null(find(&made, handle.bits));
    assert_int_equal(made.table.n_open, 0);
    (void)open_at(&made, 1);
    (void)open_at(&made, 2);
    assert_int_equal(kvpi_table_next(&made.table), -1);
    kvpi_table_reset(&made.table, 0);
    (void)open_at(&made, 1); /* a reset does not bring it back */
}

TEST(test_a_reset_makes_handles_stale_and_a_fresh_one_begins_anew)
{
    struct made made;
    make(&made);
    const kvp_seq handle = handle_of(&made, open_at(&made, 0));
    struct kvpi_seq *closed = open_at(&made, 1);
    kvpi_table_close(&made.table, closed);
    kvpi_table_reset(&made.table, 0);
    assert_int_equal(made.table.n_open, 0);
    assert_null(find(&made, handle.bits));
    assert_int_equal(kvpi_seq_at(&made.table, 0)->generation, 2);
    assert_int_equal(kvpi_seq_at(&made.table, 1)->generation, 2);
    assert_int_equal(open_at(&made, 0)->generation, 3);
    kvpi_table_reset(&made.table, 1);
    assert_int_equal(open_at(&made, 0)->generation, 1);
}

static int place_behind(const struct made *made, const struct kvpi_seq *seq)
{
    const struct kvpi_seq *next = kvpi_next_open(&made->table, seq);
    return next == NULL ? -1 : (int)kvpi_seq_place(&made->table, next);
}

/* Not the scratch place, whatever is there. */
TEST(test_open_sequences_are_found_in_order_up_to_the_last_place)
{
    struct made made;
    make(&made);
    kvpi_seq_at(&made.table, kvpi_table_scratch(&made.table))->generation = 1;
    assert_int_equal(place_behind(&made, NULL), -1);
    struct kvpi_seq *first = open_at(&made, 0);
    struct kvpi_seq *second = open_at(&made, 1);
    struct kvpi_seq *last = open_at(&made, SEQS - 1);
    assert_int_equal(place_behind(&made, NULL), 0);
    assert_int_equal(place_behind(&made, first), 1);
    assert_int_equal(place_behind(&made, second), SEQS - 1);
    assert_int_equal(place_behind(&made, last), -1);
    kvpi_table_close(&made.table, second);
    assert_int_equal(place_behind(&made, first), SEQS - 1);
    assert_int_equal(place_behind(&made, second), SEQS - 1); /* closed meanwhile */
    kvpi_table_close(&made.table, first);
    assert_int_equal(place_behind(&made, NULL), SEQS - 1);
}

TEST(test_bits_of_a_handle_hold_every_place_and_generation)
{
    const struct {
        uint32_t n, bits;
    } cases[] = {{1, 1}, {2, 1}, {3, 2}, {4, 2}, {5, 3}, {65536, 16}, {1u << 20, 20}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const uint32_t bits = kvpi_handle_place_bits(cases[i].n);
        const uint64_t last = kvpi_handle_last_generation(bits);
        uint64_t generation;
        uint32_t place;
        assert_int_equal(bits, cases[i].bits);
        assert_int_equal(last % 2, 0); /* closed */
        const uint64_t handle = kvpi_handle_make(own_bits, last - 1, cases[i].n - 1, bits);
        assert_true(kvpi_handle_split(handle, own_bits, bits, &generation, &place));
        assert_int_equal(generation, last - 1);
        assert_int_equal(place, cases[i].n - 1);
        assert_false(kvpi_handle_split(kvpi_handle_make(own_bits, last, 0, bits), own_bits, bits,
                                       &generation, &place));
    }
}

TEST_MAIN(NULL, NULL)
