/* Metadata of layer groups and windows: the worked numbers of windows.h and meta.h, every format on
 * a group's own row, what is refused. Random ones are in test_meta_random.c. */
#include "world.h"

#include <kvpager/meta.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_B = 8, MAX_T = 64, MAX_E = 64, MAX_M = 16, UNTOUCHED = 0x5A5A5A5A };

/* Windowed lists, with room to spare, filled with what no call writes. */
struct lists {
    int32_t qo[MAX_B + 1], kv[MAX_B + 1], indices[MAX_E], last[MAX_B], batch[MAX_T];
    int32_t positions[MAX_T], relative[MAX_T], sink_len[MAX_B], offset[MAX_B], key[MAX_B];
    uint32_t sinks[MAX_B], recent[MAX_B];
    int64_t slots[MAX_T];
};

static kvp_meta_windowed lists_in(struct lists *l)
{
    memset(l, 0x5A, sizeof(*l));
    return (kvp_meta_windowed){sizeof(kvp_meta_windowed),
                               MAX_E,
                               MAX_T,
                               l->qo,
                               l->kv,
                               l->indices,
                               l->last,
                               l->batch,
                               l->positions,
                               l->slots,
                               l->relative,
                               l->sink_len,
                               l->offset,
                               l->key,
                               l->sinks,
                               l->recent};
}

static kvp_meta_batch batch_for(const kvp_seq *seqs, uint32_t n, uint32_t group)
{
    return (kvp_meta_batch){
        .struct_size = sizeof(kvp_meta_batch), .n_seqs = n, .group = group, .seqs = seqs};
}

/* S = U = 4; group 0 has full attention, group 1 the window of windows.h's example. */
static world example_world(void)
{
    kvp_config config = config_of(4, 4, 63);
    config.n_groups = 2;
    config.groups[1] = (kvp_group){3, 6, 0};
    return make_world(&config);
}

static int32_t entry(const world *w, kvp_seq seq, uint32_t group, uint32_t i)
{
    const int32_t *row;
    uint32_t n;
    assert_ok(kvp_seq_row(w->cache, seq, group, &row, &n));
    assert_in_range(i, 0, n - 1);
    return row[i];
}

/* 17 computed tokens and one more: the query of the example is at position 17. */
static kvp_seq example_seq(world *w)
{
    const kvp_seq seq = open_done(w, ints(0), 17);
    assert_ok(kvp_seq_extend(w->cache, seq, ints(500), 1, 0));
    return seq;
}

/* ------------------------------------------------------------------------------ worked examples */

TEST(test_the_header_s_example)
{
    scoped_world w = example_world();
    const kvp_seq seq = example_seq(&w);
    const kvp_meta_batch batch = batch_for(&seq, 1, 1);
    kvp_meta_sizes sizes;
    struct lists l;
    const kvp_meta_windowed windowed = lists_in(&l);
    assert_int_equal(entry(&w, seq, 1, 1), KVP_NULL_BLOCK);
    assert_int_equal(entry(&w, seq, 1, 2), KVP_NULL_BLOCK);
    assert_ok(kvp_meta_measure(w.cache, &batch, &sizes));
    assert_fields(sizes, n_entries, 5, n_kept, 3, n_nodes, 0);
    assert_ok(kvp_meta_fill_windowed(w.cache, &batch, &windowed));
    assert_fields(l, kv[1], 3, indices[0], entry(&w, seq, 1, 0), indices[1], entry(&w, seq, 1, 3),
                  indices[2], entry(&w, seq, 1, 4), indices[3], UNTOUCHED);
    assert_fields(l, last[0], 2, sink_len[0], 3, offset[0], 4, key[0], 9, sinks[0], 3);
    assert_fields(l, recent[0], 6, qo[1], 1, batch[0], 0, positions[0], 17);
    assert_int_equal(l.relative[0], 8); /* K + R - 1 */
    assert_int_equal(l.slots[0], entry(&w, seq, 1, 4) * 4 + 1);
}

/* Chunks of 6 tokens, the example of windows.h: the query at 17 sees 12 .. 17, one at 18 only
 * itself. What a step lists follows from its first query. */
TEST(test_the_header_s_example_of_chunks)
{
    kvp_config config = config_of(4, 4, 63);
    config.groups[0] = (kvp_group){KVP_CHUNKED, 6, 0};
    scoped_world w = make_world(&config);
    const kvp_seq seq = example_seq(&w);
    const kvp_meta_batch batch = batch_for(&seq, 1, 0);
    struct lists l;
    kvp_meta_windowed windowed = lists_in(&l);
    assert_ok(kvp_seq_extend(w.cache, seq, ints(501), 1, 0));
    assert_ok(kvp_meta_fill_windowed(w.cache, &batch, &windowed)); /* 17 and 18 */
    assert_fields(l, kv[1], 2, indices[0], entry(&w, seq, 0, 3), indices[1], entry(&w, seq, 0, 4),
                  last[0], 3, sink_len[0], 0);
    assert_fields(l, offset[0], 0, key[0], 12, sinks[0], KVP_CHUNKED, recent[0], 6, relative[0], 5);
    assert_ok(kvp_seq_commit(w.cache, seq, 18));
    windowed = lists_in(&l);
    assert_ok(kvp_meta_fill_windowed(w.cache, &batch, &windowed)); /* 18 */
    assert_fields(l, kv[1], 1, indices[0], entry(&w, seq, 0, 4), offset[0], 2, key[0], 18,
                  relative[0], 0);
}

/* The same sequence in the group without a window: CSR, and zeros. */
TEST(test_without_a_window_it_is_csr)
{
    scoped_world w = example_world();
    const kvp_seq seq = example_seq(&w);
    const kvp_meta_batch batch = batch_for(&seq, 1, 0);
    struct lists l;
    const kvp_meta_windowed windowed = lists_in(&l);
    assert_ok(kvp_meta_fill_windowed(w.cache, &batch, &windowed));
    assert_int_equal(l.kv[1], 5);
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(l.indices[i], entry(&w, seq, 0, i));
        assert_true(l.indices[i] > 0);
    }
    assert_int_equal(l.last[0], 2);
    assert_int_equal(l.sink_len[0] | l.offset[0] | l.key[0], 0);
    assert_int_equal(l.sinks[0] | l.recent[0], 0);
    assert_fields(l, relative[0], 17, slots[0], entry(&w, seq, 0, 4) * 4 + 1);
}

/* Shorter than its sinks, and within K + R: nothing is left out, the map is the identity. */
TEST(test_a_window_that_hides_nothing)
{
    scoped_world w = example_world();
    const kvp_seq seqs[2] = {open_seq(&w, ints(0), 2, NULL), open_done(&w, ints(100), 8)};
    assert_ok(kvp_seq_extend(w.cache, seqs[1], ints(500), 1, 0)); /* 9 = K + R */
    const kvp_meta_batch batch = batch_for(seqs, 2, 1);
    struct lists l;
    const kvp_meta_windowed windowed = lists_in(&l);
    assert_ok(kvp_meta_fill_windowed(w.cache, &batch, &windowed));
    assert_int_equal(l.sink_len[0], 2); /* all there is */
    assert_fields(l, offset[0], 2, key[0], 0, sink_len[1], 3, offset[1], 3, key[1], 0);
    assert_fields(l, kv[1], 1, kv[2], 4, relative[0], 0, relative[2], 8);
}

/* A chunk of 6 from position 17 on: the list is what its first query sees, to the chunk's end. What
 * is not dropped yet, but behind the window already, is left out just the same. */
TEST(test_a_chunk_is_listed_for_its_first_query)
{
    scoped_world w = example_world();
    const kvp_seq seq = open_done(&w, ints(0), 17);
    const uint32_t begin = 20;
    struct lists l;
    const kvp_meta_windowed windowed = lists_in(&l);
    assert_ok(kvp_seq_extend(w.cache, seq, ints(500), 6, 0));
    kvp_meta_batch batch = batch_for(&seq, 1, 1);
    assert_ok(kvp_meta_fill_windowed(w.cache, &batch, &windowed));
    assert_int_equal(l.kv[1], 4); /* entries 0, 3, 4, 5 */
    assert_fields(l, last[0], 3, key[0], 9, relative[5], 22 - 9);
    batch.begin = &begin; /* its second half: sees 15 on, still in entry 3 */
    assert_ok(kvp_meta_fill_windowed(w.cache, &batch, &windowed));
    assert_fields(l, kv[1], 4, offset[0], 15 - 8, key[0], 12);
    const uint32_t last = 21; /* sees 16 on: entry 3 has not been dropped, and is left out */
    batch.begin = &last;
    assert_true(entry(&w, seq, 1, 3) > 0);
    assert_ok(kvp_meta_fill_windowed(w.cache, &batch, &windowed));
    assert_fields(l, kv[1], 3, indices[1], entry(&w, seq, 1, 4), offset[0], 4, key[0], 13);
}

/* R = 1, no sinks, a length of whole blocks and no query: the next one will see itself alone. */
TEST(test_a_list_may_be_empty)
{
    kvp_config config = config_of(4, 4, 63);
    config.groups[0] = (kvp_group){0, 1, 0};
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_done(&w, ints(0), 8);
    const uint32_t begin = 8, none = 0;
    kvp_meta_batch batch = batch_for(&seq, 1, 0);
    batch.begin = &begin;
    batch.n_tokens = &none;
    struct lists l;
    const kvp_meta_windowed windowed = lists_in(&l);
    assert_ok(kvp_meta_fill_windowed(w.cache, &batch, &windowed));
    assert_fields(l, kv[1], 0, last[0], 0, offset[0], 0, key[0], 8);
}

/* ----------------------------------------------------------------------- nulls in other formats */

TEST(test_rows_keep_dropped_entries_in_place)
{
    scoped_world w = example_world();
    const kvp_seq seq = example_seq(&w);
    const kvp_meta_batch batch = batch_for(&seq, 1, 1);
    int32_t table[MAX_M], indices[MAX_E], kv[2], offsets[2 * MAX_M];
    const kvp_meta_dense dense = {
        .struct_size = sizeof dense, .row_stride = MAX_M, .block_table = table};
    const kvp_meta_csr csr = {
        .struct_size = sizeof csr, .max_entries = MAX_E, .kv_indptr = kv, .kv_indices = indices};
    const kvp_meta_trtllm trtllm = {.struct_size = sizeof trtllm,
                                    .layers_per_block = 2,
                                    .row_stride = MAX_M,
                                    .block_offsets = offsets};
    assert_ok(kvp_meta_fill_dense(w.cache, &batch, &dense));
    assert_ok(kvp_meta_fill_csr(w.cache, &batch, &csr));
    assert_ok(kvp_meta_fill_trtllm(w.cache, &batch, &trtllm));
    assert_int_equal(kv[1], 5);
    for (uint32_t i = 0; i < 5; i++) {
        const int32_t block = entry(&w, seq, 1, i);
        assert_int_equal(block == 0, i == 1 || i == 2);
        assert_int_equal(table[i], block);
        assert_int_equal(indices[i], block);
        assert_int_equal(offsets[i], block * 4); /* null: memory that may be read */
        assert_int_equal(offsets[MAX_M + i], block * 4 + 1);
    }
    assert_int_equal(table[5], 0);
    assert_int_equal(offsets[5], -1);
}

/* A delta is of rows, so it is given also where a step would be refused; a drop raises the row's
 * version, so the row comes whole. */
TEST(test_deltas_have_dropped_entries)
{
    scoped_world w = example_world();
    const kvp_seq seq = open_done(&w, ints(0), 13);
    kvp_meta_sizes sizes;
    uint64_t had_version = 0, version;
    uint32_t had = 0, blocks;
    int32_t indptr[2], start, entries[MAX_E];
    const kvp_meta_batch batch = batch_for(&seq, 1, 1);
    kvp_meta_delta delta = {sizeof delta, MAX_E,  &had_version, &had, &version, &blocks,
                            indptr,       &start, entries,      0,    0};
    assert_ok(kvp_meta_fill_delta(w.cache, &batch, &delta));
    assert_int_equal(delta.n_entries, 4);
    had_version = version;
    had = blocks;
    assert_ok(kvp_seq_extend(w.cache, seq, ints(500), 4, 0));
    assert_ok(kvp_seq_commit(w.cache, seq, 17)); /* the next query sees 12 on: entry 2 goes, too */
    assert_status(KVP_E_DROPPED, kvp_meta_measure(w.cache, &batch, &sizes)); /* 16 sees 11 */
    assert_ok(kvp_meta_fill_delta(w.cache, &batch, &delta));
    assert_int_equal(start, 0);
    assert_int_equal(delta.n_entries, 5);
    assert_int_equal(entries[1] | entries[2], 0);
    assert_int_equal(entries[3], entry(&w, seq, 1, 3));
}

/* Two prompts with 16 tokens in common, K = 9, S = 4: two blocks lie wholly in the sinks. */
TEST(test_a_cascade_shares_sinks_only)
{
    kvp_config config = config_of(4, 4, 63);
    config.n_groups = 2;
    config.groups[1] = (kvp_group){9, 30, 0};
    scoped_world w = make_world(&config);
    int32_t tokens[20];
    kvp_seq seqs[2];
    for (int32_t s = 0; s < 2; s++) {
        memcpy(tokens, ints(0), sizeof tokens);
        tokens[18] = 100 + s;
        seqs[s] = open_done(&w, tokens, 20);
        assert_ok(kvp_seq_extend(w.cache, seqs[s], ints(500 + s), 1, 0));
    }
    int32_t store[2][4][MAX_E], order[2];
    for (uint32_t group = 0; group < 2; group++) {
        kvp_meta_level levels[2];
        for (int l = 0; l < 2; l++)
            levels[l] = (kvp_meta_level){store[l][0], store[l][1], store[l][2], store[l][3], 0, 0};
        kvp_meta_cascade cascade = {sizeof cascade, 2, MAX_E, order, levels, 0, 0};
        const kvp_meta_batch batch = batch_for(seqs, 2, group);
        assert_ok(kvp_meta_fill_cascade(w.cache, &batch, &cascade));
        assert_int_equal(cascade.n_levels, 2);
        assert_fields(levels[0], n_groups, 1, n_entries, group == 0 ? 4 : 2, last_block_len[0], 4);
        assert_int_equal(levels[1].n_entries, group == 0 ? 4 : 8);
        assert_int_equal(levels[0].kv_indices[1], entry(&w, seqs[1], group, 1));
    }
}

/* -------------------------------------------------------------------------------------- refused */

TEST(test_a_step_that_needs_what_was_dropped_is_refused)
{
    scoped_world w = example_world();
    const kvp_seq seqs[2] = {open_seq(&w, ints(100), 3, NULL), example_seq(&w)};
    kvp_meta_sizes sizes;
    struct lists l, before;
    const kvp_meta_windowed windowed = lists_in(&before);
    (void)windowed;
    const kvp_meta_windowed out = lists_in(&l);
    uint32_t begin[2] = {0, 16}, n[2] = {3, 1};
    kvp_meta_batch batch = batch_for(seqs, 2, 1);
    batch.begin = begin;
    batch.n_tokens = n;
    begin[1] = 17; /* sees 12 on, which is there */
    assert_ok(kvp_meta_measure(w.cache, &batch, &sizes));
    begin[1] = 16; /* sees 11, which is not */
    assert_status(KVP_E_DROPPED, kvp_meta_measure(w.cache, &batch, &sizes));
    assert_status(KVP_E_DROPPED, kvp_meta_fill_windowed(w.cache, &batch, &out));
    assert_memory_equal(&l, &before, sizeof l);
    batch.group = 0; /* the other group has everything */
    assert_ok(kvp_meta_measure(w.cache, &batch, &sizes));
    batch.group = 1;
    begin[1] = 2; /* sinks only: nothing within this length was dropped */
    n[1] = 2;
    assert_ok(kvp_meta_measure(w.cache, &batch, &sizes));
    begin[1] = 3;
    n[1] = 2; /* entry 1 */
    assert_status(KVP_E_DROPPED, kvp_meta_measure(w.cache, &batch, &sizes));
    n[0] = 4; /* an earlier sequence's fault goes first */
    assert_status(KVP_E_ARG, kvp_meta_measure(w.cache, &batch, &sizes));
    n[0] = 3;
    assert_ok(kvp_seq_invalidate(w.cache, seqs[1], 13, NULL, 0, NULL));
    begin[1] = 13; /* both: its slots are not writable, and entry 2 is gone */
    assert_status(KVP_E_STATE, kvp_meta_measure(w.cache, &batch, &sizes));
}

TEST(test_groups_that_are_not_there)
{
    scoped_world w = example_world();
    const kvp_seq seq = example_seq(&w);
    struct lists l;
    kvp_meta_windowed windowed = lists_in(&l);
    kvp_meta_batch batch = batch_for(&seq, 1, 2);
    assert_status(KVP_E_ARG, kvp_meta_fill_windowed(w.cache, &batch, &windowed));
    batch.group = 1;
    assert_status(KVP_E_ARG, kvp_meta_fill_windowed(w.cache, &batch, NULL));
    assert_status(KVP_E_ARG, kvp_meta_fill_windowed(w.cache, NULL, &windowed));
    assert_status(KVP_E_ARG, kvp_meta_fill_windowed(NULL, &batch, &windowed));
    windowed.max_entries = 2;
    assert_status(KVP_E_TOO_SMALL, kvp_meta_fill_windowed(w.cache, &batch, &windowed));
    windowed.max_entries = 3;
    windowed.max_tokens = 0;
    assert_status(KVP_E_TOO_SMALL, kvp_meta_fill_windowed(w.cache, &batch, &windowed));
    windowed.positions = windowed.batch_indices = windowed.relative = NULL;
    windowed.slot_mapping = NULL;
    assert_ok(kvp_meta_fill_windowed(w.cache, &batch, &windowed)); /* no array of T is wanted */
    assert_int_equal(l.positions[0], UNTOUCHED);
    for (int i = 0; i < 4; i++) { /* or one of them */
        windowed.batch_indices = i == 0 ? l.batch : NULL;
        windowed.positions = i == 1 ? l.positions : NULL;
        windowed.slot_mapping = i == 2 ? l.slots : NULL;
        windowed.relative = i == 3 ? l.relative : NULL;
        windowed.max_tokens = 0;
        assert_status(KVP_E_TOO_SMALL, kvp_meta_fill_windowed(w.cache, &batch, &windowed));
        windowed.max_tokens = MAX_T;
        assert_ok(kvp_meta_fill_windowed(w.cache, &batch, &windowed));
        assert_int_equal(l.relative[0] == UNTOUCHED, i != 3);
    }
    windowed.struct_size++;
    assert_status(KVP_E_ARG, kvp_meta_fill_windowed(w.cache, &batch, &windowed));
}

TEST(test_a_buffer_for_windowed_lists)
{
    const kvp_meta_sizes sizes = {3, 5, 40, 20, 7, 0, 0};
    kvp_meta_windowed windowed = {.struct_size = sizeof windowed};
    size_t n_bytes = 0;
    assert_ok(kvp_meta_place_windowed(&windowed, &sizes, NULL, 0, &n_bytes));
    assert_int_equal(n_bytes, 13 * 64);
    assert_null(windowed.kv_indices);
    char *buffer = aligned_alloc(64, n_bytes);
    assert_non_null(buffer);
    assert_status(KVP_E_TOO_SMALL,
                  kvp_meta_place_windowed(&windowed, &sizes, buffer, n_bytes - 1, &n_bytes));
    assert_status(KVP_E_ARG,
                  kvp_meta_place_windowed(&windowed, &sizes, buffer + 1, n_bytes, &n_bytes));
    assert_status(KVP_E_ARG, kvp_meta_place_windowed(&windowed, NULL, buffer, n_bytes, &n_bytes));
    assert_ok(kvp_meta_place_windowed(&windowed, &sizes, buffer, n_bytes, &n_bytes));
    assert_ptr_equal(windowed.qo_indptr, buffer);
    assert_ptr_equal(windowed.recent, buffer + 12 * 64);
    assert_int_equal(windowed.max_entries, 7); /* kept ones, not all */
    assert_int_equal(windowed.max_tokens, 5);
    free(buffer);
}

TEST_MAIN(NULL, NULL)
