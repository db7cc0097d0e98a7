/* Batch metadata: worked numbers of meta.h, one buffer, deltas, refusals. Windows, trees and random
 * batches have files of their own: test_meta_*.c. */
#include "world.h"

#include <kvpager/meta.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_B = 24, MAX_T = 512, MAX_E = 512, MAX_M = 32 };

static kvp_meta_batch batch_for(const kvp_seq *seqs, uint32_t n)
{
    return (kvp_meta_batch){.struct_size = sizeof(kvp_meta_batch), .n_seqs = n, .seqs = seqs};
}

/* Every array of every format, with room to spare, filled with what no call writes. */
struct arrays {
    int32_t table[MAX_B * MAX_M];
    int32_t lens[MAX_B], start[MAX_B + 1], positions[MAX_T], indptr[MAX_B + 1];
    int32_t indices[MAX_E], last[MAX_B], batch[MAX_T], offsets[MAX_B * 2 * MAX_M];
    int64_t slots[MAX_T];
};

static void clear(struct arrays *a)
{
    memset(a, 0x5A, sizeof(*a));
}

static kvp_meta_dense dense_in(struct arrays *a)
{
    return (kvp_meta_dense){
        sizeof(kvp_meta_dense), MAX_M, MAX_T, a->table, a->lens, a->start, a->slots, a->positions};
}

static kvp_meta_csr csr_in(struct arrays *a)
{
    return (kvp_meta_csr){sizeof(kvp_meta_csr), MAX_E,   MAX_T,    a->start,     a->indptr,
                          a->indices,           a->last, a->batch, a->positions, a->slots};
}

static kvp_meta_trtllm trtllm_in(struct arrays *a)
{
    return (kvp_meta_trtllm){sizeof(kvp_meta_trtllm), 3, MAX_M, a->offsets, a->lens};
}

/* ------------------------------------------------------------------------------- worked numbers */

/* The header's example, with another row: 9 computed tokens, one more. */
TEST(test_a_decoding_sequence_has_the_header_s_numbers)
{
    scoped_world w = small_world(15);
    int32_t token = 5;
    leave_cached(&w, ints(0), 8); /* so that the row does not begin with block 1 */
    const kvp_seq seq = open_done(&w, ints(1000), 9);
    assert_ok(kvp_seq_extend(w.cache, seq, &token, 1, 5)); /* reserve is not exported */
    struct arrays a;
    clear(&a);
    const kvp_meta_batch batch = batch_for(&seq, 1);
    kvp_meta_sizes sizes;
    assert_ok(kvp_meta_measure(w.cache, &batch, &sizes));
    assert_fields(sizes, n_seqs, 1, n_tokens, 1, n_entries, 3, max_blocks, 3);
    const kvp_meta_csr csr = csr_in(&a);
    assert_ok(kvp_meta_fill_csr(w.cache, &batch, &csr));
    assert_fields(a, start[0], 0, start[1], 1, indptr[1], 3, indices[0], row_entry(&w, seq, 0),
                  indices[2], row_entry(&w, seq, 2));
    assert_fields(a, indices[3], 0x5A5A5A5A, last[0], 2, positions[0], 9, batch[0], 0, slots[0],
                  row_entry(&w, seq, 2) * 4 + 1);
}

TEST(test_a_full_hit_writes_no_slot)
{
    scoped_world w = small_world(15);
    leave_cached(&w, ints(0), 8);
    const kvp_seq seq = open_seq(&w, ints(0), 8, NULL);
    struct arrays a;
    clear(&a);
    const kvp_meta_batch batch = batch_for(&seq, 1); /* all computed: the last token again */
    const kvp_meta_csr csr = csr_in(&a);
    assert_ok(kvp_meta_fill_csr(w.cache, &batch, &csr));
    assert_fields(a, start[1], 1, positions[0], 7, batch[0], -1, slots[0], KVP_NO_SLOT, last[0], 4);
}

TEST(test_an_empty_sequence_is_an_empty_row)
{
    scoped_world w = small_world(15);
    const kvp_seq seqs[2] = {open_seq(&w, NULL, 0, NULL), open_done(&w, ints(0), 3)};
    struct arrays a;
    clear(&a);
    const kvp_meta_batch batch = batch_for(seqs, 2);
    const kvp_meta_csr csr = csr_in(&a);
    assert_ok(kvp_meta_fill_csr(w.cache, &batch, &csr));
    assert_fields(a, start[1], 0, indptr[1], 0, last[0], 0, indptr[2], 1, last[1], 3);
}

/* A chunk of a prompt and a decode, one of them with computed tokens again. */
TEST(test_dense_rows_are_padded)
{
    scoped_world w = small_world(15);
    const kvp_seq seqs[2] = {open_done(&w, ints(0), 6), open_seq(&w, ints(50), 3, NULL)};
    const uint32_t begin[2] = {4, 0}, n[2] = {2, 2};
    struct arrays a;
    clear(&a);
    assert_ok(kvp_seq_commit(w.cache, seqs[1], 1));
    kvp_meta_batch batch = batch_for(seqs, 2);
    batch.begin = begin;
    batch.n_tokens = n;
    const kvp_meta_dense dense = dense_in(&a);
    assert_ok(kvp_meta_fill_dense(w.cache, &batch, &dense));
    assert_fields(a, table[0], row_entry(&w, seqs[0], 0), table[1], row_entry(&w, seqs[0], 1));
    assert_int_equal(a.table[2] | a.table[MAX_M - 1], 0);
    assert_int_equal(a.table[MAX_M], row_entry(&w, seqs[1], 0));
    assert_int_equal(a.table[MAX_M + 1], 0);
    assert_fields(a, lens[0], 6, lens[1], 2, start[2], 4);
    const int32_t positions[4] = {4, 5, 0, 1};
    const int64_t slots[4] = {-1, -1, -1, row_entry(&w, seqs[1], 0) * 4 + 1};
    assert_memory_equal(a.positions, positions, sizeof positions);
    assert_memory_equal(a.slots, slots, sizeof slots);
    assert_int_equal(a.positions[4], 0x5A5A5A5A);
}

TEST(test_trtllm_offsets_count_layers_of_k_and_v)
{
    scoped_world w = small_world(15);
    const kvp_seq seq = open_done(&w, ints(0), 8);
    struct arrays a;
    clear(&a);
    const kvp_meta_batch batch = batch_for(&seq, 1);
    kvp_meta_trtllm trtllm = trtllm_in(&a); /* 3 layers: 6 pieces a block */
    assert_ok(kvp_meta_fill_trtllm(w.cache, &batch, &trtllm));
    assert_fields(a, offsets[0], 6 * row_entry(&w, seq, 0), offsets[1], 6 * row_entry(&w, seq, 1),
                  offsets[2], -1, offsets[MAX_M], 6 * row_entry(&w, seq, 0) + 1, lens[0], 8);
    trtllm.layers_per_block = INT32_MAX / 2;
    assert_status(KVP_E_TOO_LONG, kvp_meta_fill_trtllm(w.cache, &batch, &trtllm));
}

/* ----------------------------------------------------------------------------------- one buffer */

TEST(test_one_buffer_is_cut_into_aligned_arrays)
{
    const kvp_meta_sizes sizes = {3, 5, 7, 4, 7, 0, 0};
    kvp_meta_csr csr = {.struct_size = sizeof csr};
    kvp_meta_dense dense = {.struct_size = sizeof dense};
    size_t n_bytes = 0;
    assert_ok(kvp_meta_place_csr(&csr, &sizes, NULL, 0, &n_bytes));
    assert_null(csr.kv_indices);
    assert_int_equal(n_bytes, 7 * 64);
    char *buffer = aligned_alloc(64, n_bytes);
    assert_non_null(buffer);
    assert_status(KVP_E_TOO_SMALL, kvp_meta_place_csr(&csr, &sizes, buffer, n_bytes - 1, &n_bytes));
    assert_null(csr.kv_indices);
    assert_status(KVP_E_ARG, kvp_meta_place_csr(&csr, &sizes, buffer + 4, n_bytes, &n_bytes));
    assert_ok(kvp_meta_place_csr(&csr, &sizes, buffer, n_bytes, &n_bytes));
    assert_ptr_equal(csr.qo_indptr, buffer);
    assert_ptr_equal(csr.slot_mapping, buffer + 6 * 64);
    assert_fields(csr, max_entries, 7, max_tokens, 5);
    assert_ok(kvp_meta_place_dense(&dense, &sizes, buffer, n_bytes, &n_bytes));
    assert_int_equal(n_bytes, 5 * 64);
    assert_int_equal(dense.row_stride, 4);
    const kvp_meta_sizes huge = {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, 0, 0, 0};
    assert_status(KVP_E_TOO_LONG, kvp_meta_place_dense(&dense, &huge, NULL, 0, &n_bytes));
    free(buffer);
}

/* Each array alone, by its place in the struct, and all but it: filled as with all of them. */
#define EACH_ARRAY(type, first, n, make, capacity, fill)                                           \
    for (size_t i_ = 0; i_ < 2 * (n); i_++) {                                                      \
        struct arrays some;                                                                        \
        clear(&some);                                                                              \
        type given = make(&some);                                                                  \
        char *pointers = (char *)&given + offsetof(type, first);                                   \
        for (size_t k = 0; k < (n); k++)                                                           \
            if ((k == i_ % (n)) == (i_ >= (n)))                                                    \
                memset(pointers + k * sizeof(void *), 0, sizeof(void *));                          \
        capacity;                                                                                  \
        assert_ok(fill(w.cache, &batch, &given));                                                  \
        assert_part_of(&some, &all);                                                               \
    }

/* Every byte is as in `all`, or was not written; some were. */
static void assert_part_of(const struct arrays *some, const struct arrays *all)
{
    const uint8_t *a = (const uint8_t *)some, *b = (const uint8_t *)all;
    size_t n = 0;
    for (size_t i = 0; i < sizeof(*some); i++) {
        assert_true(a[i] == b[i] || a[i] == 0x5A);
        n += a[i] != 0x5A;
    }
    assert_true(n > 0);
}

TEST(test_arrays_that_are_not_given_are_not_filled)
{
    scoped_world w = small_world(15);
    const kvp_seq seqs[2] = {open_done(&w, ints(0), 6), open_done(&w, ints(50), 9)};
    const kvp_meta_batch batch = batch_for(seqs, 2);
    struct arrays all;
    clear(&all);
    const kvp_meta_dense dense = dense_in(&all);
    assert_ok(kvp_meta_fill_dense(w.cache, &batch, &dense));
    EACH_ARRAY(kvp_meta_dense, block_table, 5, dense_in,
               given.row_stride = given.block_table == NULL ? 0 : MAX_M, kvp_meta_fill_dense);
    clear(&all);
    const kvp_meta_csr csr = csr_in(&all);
    assert_ok(kvp_meta_fill_csr(w.cache, &batch, &csr));
    EACH_ARRAY(kvp_meta_csr, qo_indptr, 7, csr_in,
               given.max_entries = given.kv_indices == NULL ? 0 : MAX_E, kvp_meta_fill_csr);
    clear(&all);
    const kvp_meta_trtllm trtllm = trtllm_in(&all);
    assert_ok(kvp_meta_fill_trtllm(w.cache, &batch, &trtllm));
    EACH_ARRAY(kvp_meta_trtllm, block_offsets, 2, trtllm_in,
               given.row_stride = given.block_offsets == NULL ? 0 : MAX_M, kvp_meta_fill_trtllm);
}

/* ------------------------------------------------------------------------------------- refusals */

TEST(test_a_batch_is_all_or_nothing)
{
    kvp_config config = config_of(4, 4, 15);
    config.host_blocks = 8;
    scoped_world w = make_world(&config);
    const kvp_seq a = open_done(&w, ints(0), 6);
    const kvp_seq b = open_done(&w, ints(50), 6);
    const kvp_seq closed = open_done(&w, ints(90), 2);
    close_seq(&w, closed);
    struct arrays out, before;
    clear(&out);
    clear(&before);
    const kvp_meta_csr csr = csr_in(&out);
    const kvp_seq twice[2] = {a, a};
    const kvp_seq stale[3] = {a, a, closed};
    const kvp_seq both[2] = {a, b};
    const uint32_t begin[2] = {0, 7};
    const uint32_t many[2] = {1, 2};
    kvp_meta_batch batch = batch_for(twice, 2);
    assert_status(KVP_E_ARG, kvp_meta_fill_csr(w.cache, &batch, &csr));
    batch = batch_for(stale, 3); /* the handle goes first */
    assert_status(KVP_E_HANDLE, kvp_meta_fill_csr(w.cache, &batch, &csr));
    batch = batch_for(both, 0);
    assert_status(KVP_E_ARG, kvp_meta_fill_csr(w.cache, &batch, &csr));
    batch = batch_for(both, 2);
    batch.group = 1;
    assert_status(KVP_E_ARG, kvp_meta_fill_csr(w.cache, &batch, &csr));
    batch = batch_for(both, 2);
    batch.begin = begin; /* b has 6 tokens */
    assert_status(KVP_E_ARG, kvp_meta_fill_csr(w.cache, &batch, &csr));
    batch.begin = NULL;
    batch.n_tokens = many; /* from the last one on there is but one */
    assert_status(KVP_E_ARG, kvp_meta_fill_csr(w.cache, &batch, &csr));
    assert_ok(kvp_seq_invalidate(w.cache, b, 5, NULL, 0, NULL));
    batch.n_tokens = NULL; /* token 5 has no slot: extend first */
    assert_status(KVP_E_STATE, kvp_meta_fill_csr(w.cache, &batch, &csr));
    assert_ok(kvp_seq_extend(w.cache, b, NULL, 0, 0));
    kvp_meta_csr small = csr;
    small.max_entries = 3;
    assert_status(KVP_E_TOO_SMALL, kvp_meta_fill_csr(w.cache, &batch, &small));
    small = csr;
    small.max_tokens = 1;
    assert_status(KVP_E_TOO_SMALL, kvp_meta_fill_csr(w.cache, &batch, &small));
    small = csr;
    small.struct_size--;
    assert_status(KVP_E_ARG, kvp_meta_fill_csr(w.cache, &batch, &small));
    assert_status(KVP_E_ARG, kvp_meta_fill_csr(NULL, &batch, &csr));
    assert_status(KVP_E_ARG, kvp_meta_fill_csr(w.cache, NULL, &csr));
    assert_status(KVP_E_ARG, kvp_meta_fill_csr(w.cache, &batch, NULL));
    assert_ok(kvp_seq_swap_out(w.cache, &a, 1, NULL));
    assert_status(KVP_E_STATE, kvp_meta_fill_csr(w.cache, &batch, &csr));
    assert_memory_equal(&out, &before, sizeof(out));
}

TEST(test_asking_is_not_failing)
{
    scoped_world w = small_world(15);
    const kvp_seq a = open_done(&w, ints(0), 6);
    const kvp_seq twice[2] = {a, a};
    const kvp_meta_batch batch = batch_for(twice, 2);
    kvp_meta_sizes sizes;
    assert_unchanged(&w, assert_status(KVP_E_ARG, kvp_meta_measure(w.cache, &batch, &sizes)));
    assert_shortage(&w, KVP_OK, 0, 0);
}

/* ---------------------------------------------------------------------------------------- delta */

/* Apply a delta to a copy of a row. */
static void apply(int32_t *row, uint32_t *n, const kvp_meta_delta *delta, uint32_t b)
{
    const int32_t count = delta->indptr[b + 1] - delta->indptr[b];
    memcpy(row + delta->start[b], delta->entries + delta->indptr[b], (size_t)count * sizeof(*row));
    *n = delta->blocks[b];
}

TEST(test_deltas_keep_a_copy_of_rows_up_to_date)
{
    scoped_world w = small_world(31);
    kvp_seq seqs[2] = {open_done(&w, ints(0), 5), open_done(&w, ints(50), 9)};
    int32_t copy[2][MAX_M];
    uint64_t version[2] = {0, 0}, had[2];
    uint32_t n[2] = {0, 0}, blocks[2];
    int32_t indptr[3], start[2], entries[MAX_M];
    for (int turn = 0; turn < 6; turn++) {
        memcpy(had, version, sizeof had);
        kvp_meta_delta delta = {sizeof delta, MAX_M, had,     n, version, blocks,
                                indptr,       start, entries, 0, 0};
        const kvp_meta_batch batch = batch_for(seqs, 2);
        assert_ok(kvp_meta_fill_delta(w.cache, &batch, &delta));
        assert_int_equal(delta.n_entries, indptr[2]);
        for (uint32_t b = 0; b < 2; b++) {
            apply(copy[b], &n[b], &delta, b);
            const int32_t *row;
            uint32_t n_blocks;
            assert_ok(kvp_seq_row(w.cache, seqs[b], 0, &row, &n_blocks));
            assert_int_equal(n[b], n_blocks);
            assert_memory_equal(copy[b], row, n_blocks * sizeof(*row));
        }
        if (turn == 1)
            assert_int_equal(delta.n_entries, 0); /* nothing had changed */
        if (turn == 2) {
            assert_int_equal(delta.n_entries, 1); /* a block more */
            assert_int_equal(start[0], 2);
        }
        if (turn >= 1)
            assert_ok(kvp_seq_extend(w.cache, seqs[0], ints(200), 4, 0));
        if (turn == 3) {
            assert_ok(kvp_seq_truncate(w.cache, seqs[1], 2, NULL)); /* entries went */
            assert_ok(kvp_seq_extend(w.cache, seqs[1], ints(300), 7, 0));
        }
        delta.had_version = (const uint64_t[]){9, (uint64_t)1 << 32 | version[1]};
        delta.max_entries = 1;
        assert_status(KVP_E_TOO_SMALL, kvp_meta_fill_delta(w.cache, &batch, &delta));
        const uint32_t needed = delta.n_entries;
        assert_true(needed > 1);
        delta.max_entries = delta.n_entries = 0;
        delta.entries = NULL;
        assert_ok(kvp_meta_fill_delta(w.cache, &batch, &delta)); /* asks */
        assert_int_equal(delta.n_entries, needed);
    }
}

TEST_MAIN(NULL, NULL)
