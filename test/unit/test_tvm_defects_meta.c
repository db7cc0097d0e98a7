/* Defects of a published paged KV cache (TVM's), as far as they show in what a kernel is given: the
 * blocks, slots, positions and masks of a batch. One test each, by its number in the list of them;
 * none of them may exist here. What is left out (10, 14) leaks, and shows in no array.
 *
 * That cache keeps W tokens with a window of W, K sinks among them, and a query sees them and
 * itself: K and R = W - K + 1 here. The scenes take one less, and so see W keys in all. */
#include "world.h"

#include <kvpager/meta.h>
#include <kvpager/trees.h>
#include <kvpager/windows.h>
#include <string.h>

enum { MAX_B = 8, MAX_T = 128, MAX_E = 128, MASK = 1024, SLOTS = 512 };

/* What one step is given, in windowed lists and masks. */
struct given {
    int32_t qo[MAX_B + 1], kv[MAX_B + 1], indices[MAX_E], last[MAX_B], batch[MAX_T];
    int32_t positions[MAX_T], relative[MAX_T], sink_len[MAX_B], offset[MAX_B], key[MAX_B];
    int64_t slots[MAX_T];
    int32_t mask_indptr[MAX_B + 1];
    uint8_t mask[MASK];
};

static kvp_meta_batch batch_for(const kvp_seq *seqs, uint32_t n)
{
    return (kvp_meta_batch){.struct_size = sizeof(kvp_meta_batch), .n_seqs = n, .seqs = seqs};
}

static kvp_status give(const world *w, const kvp_meta_batch *batch, struct given *g)
{
    const kvp_meta_windowed windowed = {.struct_size = sizeof windowed,
                                        .max_entries = MAX_E,
                                        .max_tokens = MAX_T,
                                        .qo_indptr = g->qo,
                                        .kv_indptr = g->kv,
                                        .kv_indices = g->indices,
                                        .last_block_len = g->last,
                                        .batch_indices = g->batch,
                                        .positions = g->positions,
                                        .slot_mapping = g->slots,
                                        .relative = g->relative,
                                        .sink_len = g->sink_len,
                                        .window_offset = g->offset,
                                        .key_offset = g->key};
    const kvp_meta_tree tree = {.struct_size = sizeof tree,
                                .max_mask_bytes = MASK,
                                .mask_indptr = g->mask_indptr,
                                .mask = g->mask};
    memset(g, 0x5A, sizeof(*g));
    const kvp_status status = kvp_meta_fill_windowed(w->cache, batch, &windowed);
    return status == KVP_OK ? kvp_meta_fill_tree(w->cache, batch, &tree) : status;
}

static world tvm_world(uint32_t K, uint32_t R, uint32_t usable)
{
    kvp_config config = config_of(4, 4, usable);
    config.groups[0] = (kvp_group){K, R, 0};
    config.max_tree_tokens = 32;
    return make_world(&config);
}

static void add_nodes(world *w, kvp_seq seq, const int32_t *parents, uint32_t n)
{
    const kvp_batch batch = {.struct_size = sizeof batch,
                             .n_seqs = 1,
                             .seqs = &seq,
                             .n_tokens = &n,
                             .tokens = ints(700)};
    assert_ok(kvp_seq_extend_tree(w->cache, &batch, parents));
}

static void decode(world *w, kvp_seq seq)
{
    assert_ok(kvp_seq_extend(w->cache, seq, ints(500), 1, 0));
    assert_ok(kvp_seq_commit(w->cache, seq, info_of(w, seq).n_tokens));
}

/* Slot of kept key i of the batch's sequence b. */
static int64_t key_slot(const struct given *g, uint32_t b, int32_t i)
{
    const int32_t at = i < g->sink_len[b] ? i : i - g->sink_len[b] + g->offset[b];
    return (int64_t)g->indices[g->kv[b] + at / 4] * 4 + at % 4;
}

/* The one step of a decoding sequence: keys are the sinks and the last R positions, in order, each
 * where `memory` has the sequence's tag for its position. */
static void assert_sees_its_own(const world *w, kvp_seq seq, uint32_t K, uint32_t R,
                                const int64_t *memory, int64_t tag)
{
    struct given g;
    const kvp_meta_batch batch = batch_for(&seq, 1);
    assert_ok(give(w, &batch, &g));
    const int32_t p = g.positions[0], low = p + 1 - (int32_t)R;
    int32_t i = 0;
    for (int32_t key = 0; key < p; key++) {
        if (key < (int32_t)K || key >= low) {
            assert_int_equal(memory[key_slot(&g, 0, i)], tag + key);
            i++;
        }
    }
    assert_int_equal(key_slot(&g, 0, i), g.slots[0]); /* and itself, where it is to be written */
}

/* Run a step: tags to the slots that it is told to write. */
static void run(const world *w, kvp_seq seq, int64_t *memory, int64_t tag)
{
    struct given g;
    const kvp_meta_batch batch = batch_for(&seq, 1);
    assert_ok(give(w, &batch, &g));
    for (int32_t i = 0; i < g.qo[1]; i++)
        if (g.slots[i] >= 0)
            memory[g.slots[i]] = tag + g.positions[i];
}

static void run_plan(world *w, int64_t *memory)
{
    kvp_copy copies[16];
    const uint32_t n = take_plan(w, copies, 16);
    for (uint32_t i = 0; i < n; i++) {
        memmove(memory + copies[i].dst_block * 4, memory + copies[i].src_block * 4,
                copies[i].n_tokens * sizeof *memory);
    }
}

/* -------------------------------------------------------------------------------------- windows */

/* The rule of that cache, by itself: what is kept between steps is a list of positions, at most W
 * of them; the oldest behind the sinks goes first. A query sees the list and itself, and is turned
 * to the list's length. */
static void check_rule(uint32_t K, uint32_t W)
{
    scoped_world w = tvm_world(K, W - K + 1, 63);
    int64_t memory[SLOTS] = {0};
    int32_t kept[MAX_T];
    uint32_t n_kept = 0;
    const kvp_seq seq = open_seq(&w, ints(0), 1, NULL);
    for (int32_t p = 0; p < 60; p++) {
        struct given g;
        const kvp_meta_batch batch = batch_for(&seq, 1);
        assert_ok(give(&w, &batch, &g));
        assert_fields(g, positions[0], p, relative[0], n_kept);
        for (uint32_t i = 0; i < n_kept; i++)
            assert_int_equal(memory[key_slot(&g, 0, (int32_t)i)], 1000 + kept[i]);
        assert_int_equal(key_slot(&g, 0, (int32_t)n_kept), g.slots[0]);
        assert_sees_its_own(&w, seq, K, W - K + 1, memory, 1000);
        run(&w, seq, memory, 1000);
        kept[n_kept++] = p;
        if (n_kept > W) {
            memmove(kept + K, kept + K + 1, (n_kept - K - 1) * sizeof *kept);
            n_kept--;
        }
        assert_ok(kvp_seq_commit(w.cache, seq, (uint32_t)p + 1));
        assert_ok(kvp_seq_extend(w.cache, seq, ints(500), 1, 0));
        run_plan(&w, memory);
    }
}

TEST(test_a_window_by_the_rule_of_that_cache)
{
    for (uint32_t W = 1; W <= 20; W++)
        for (uint32_t K = 0; K < W && K <= 9; K++)
            check_rule(K, W);
}

/* 1: fork inside the sinks of a sequence that has slid; the parent read wrong slots after. */
TEST(test_1_fork_inside_the_sinks_leaves_the_parent_alone)
{
    scoped_world w = tvm_world(20, 20, 63);
    int64_t memory[SLOTS] = {0};
    struct given before, after;
    const kvp_seq parent = open_seq(&w, ints(0), 60, NULL);
    run(&w, parent, memory, 1000);
    assert_ok(kvp_seq_commit(w.cache, parent, 60));
    assert_ok(kvp_seq_extend(w.cache, parent, ints(500), 1, 0));
    const kvp_meta_batch batch = batch_for(&parent, 1);
    assert_ok(give(&w, &batch, &before));
    const kvp_seq child = fork_seq(&w, parent, 18);
    assert_ok(give(&w, &batch, &after));
    assert_memory_equal(&before, &after, sizeof before);
    assert_sees_its_own(&w, parent, 20, 20, memory, 1000);
    assert_ok(kvp_seq_extend(w.cache, child, ints(900), 1, 0));
    run_plan(&w, memory);
    assert_sees_its_own(&w, child, 20, 20, memory, 1000); /* what it shares is its own, too */
    run(&w, child, memory, 1000);
    assert_sees_its_own(&w, parent, 20, 20, memory, 1000);
}

/* 6: taking one token back from a sequence that has slid freed a block that the window still held;
 * the next sequence wrote over it. */
TEST(test_6_truncate_of_a_slid_sequence_frees_nothing_that_is_seen)
{
    for (uint32_t n = 34; n < 40; n++) {
        scoped_world w = tvm_world(6, 14, 22); /* few: what was dropped is taken again */
        int64_t memory[SLOTS] = {0};
        const kvp_seq seq = open_seq(&w, ints(0), n, NULL);
        run(&w, seq, memory, 1000);
        assert_ok(kvp_seq_commit(w.cache, seq, n));
        const int lacks = (n + 1 - 14) / 4 > (n - 14) / 4; /* position n - 14 has been dropped */
        assert_status(lacks ? KVP_E_DROPPED : KVP_OK, kvp_seq_truncate(w.cache, seq, n - 1, NULL));
        const kvp_seq other = open_seq(&w, ints(2000), 60, NULL);
        run(&w, other, memory, 5000);
        assert_true(stats_of(&w).evicted_blocks > 0);
        assert_ok(kvp_seq_extend(w.cache, seq, ints(900), 1, 0));
        run_plan(&w, memory);
        assert_sees_its_own(&w, seq, 6, 14, memory, 1000);
    }
}

/* 7: taking tokens back into shared blocks of a sequence with a window failed half-way; it could
 * never grow again. */
TEST(test_7_truncate_into_shared_blocks_works_or_changes_nothing)
{
    scoped_world w = tvm_world(6, 14, 63);
    int64_t memory[SLOTS] = {0};
    const kvp_seq parent = open_seq(&w, ints(0), 14, NULL);
    run(&w, parent, memory, 1000);
    assert_ok(kvp_seq_commit(w.cache, parent, 14));
    const kvp_seq child = fork_seq(&w, parent, 14);
    for (int i = 0; i < 5; i++) {
        assert_ok(kvp_seq_extend(w.cache, child, ints(500), 1, 0));
        run_plan(&w, memory);
        run(&w, child, memory, 1000);
        assert_ok(kvp_seq_commit(w.cache, child, info_of(&w, child).n_tokens));
    }
    assert_ok(kvp_seq_truncate(w.cache, child, 10, NULL)); /* into the shared third block */
    assert_ok(kvp_seq_extend(w.cache, child, ints(900), 1, 0));
    run_plan(&w, memory);
    assert_sees_its_own(&w, child, 6, 14, memory, 1000);
    for (int i = 0; i < 40; i++) { /* until it has slid past all that was shared */
        run(&w, child, memory, 1000);
        assert_ok(kvp_seq_commit(w.cache, child, info_of(&w, child).n_tokens));
        assert_ok(kvp_seq_extend(w.cache, child, ints(500), 1, 0));
        run_plan(&w, memory);
        assert_sees_its_own(&w, child, 6, 14, memory, 1000);
    }
    assert_unchanged(&w, assert_status(KVP_E_DROPPED, kvp_seq_truncate(w.cache, child, 20, NULL)));
    assert_sees_its_own(&w, child, 6, 14, memory, 1000);
}

/* 8: a sequence with a window, forked at its end on a block boundary, could never grow again. */
TEST(test_8_fork_at_the_end_on_a_block_boundary)
{
    scoped_world w = tvm_world(6, 14, 63);
    int64_t memory[SLOTS] = {0};
    kvp_seq seqs[2] = {open_seq(&w, ints(0), 24, NULL)};
    run(&w, seqs[0], memory, 1000);
    assert_ok(kvp_seq_commit(w.cache, seqs[0], 24));
    seqs[1] = fork_seq(&w, seqs[0], KVP_END);
    for (int32_t i = 0; i < 40; i++) {
        for (int32_t s = 0; s < 2; s++) {
            assert_ok(kvp_seq_extend(w.cache, seqs[s], ints(500 + 50 * s + i), 1, 0));
            run_plan(&w, memory);
            assert_sees_its_own(&w, seqs[s], 6, 14, memory, 1000);
            run(&w, seqs[s], memory, 1000);
            assert_ok(kvp_seq_commit(w.cache, seqs[s], info_of(&w, seqs[s]).n_tokens));
        }
    }
}

/* 13: windows of single layers were counted in each block of a chain: with a forked prefix, its
 * last W tokens were seen as well; and nothing was ever given back. */
TEST(test_13_a_layer_s_window_counts_over_the_whole_sequence)
{
    kvp_config config = config_of(4, 4, 63);
    config.n_groups = 2;
    config.groups[1] = (kvp_group){0, 8, 0};
    scoped_world w = make_world(&config);
    const kvp_seq parent = open_done(&w, ints(0), 16), child = fork_seq(&w, parent, 16);
    assert_ok(kvp_seq_extend(w.cache, child, ints(500), 8, 0));
    assert_ok(kvp_seq_commit(w.cache, child, 24));
    assert_ok(kvp_seq_extend(w.cache, child, ints(600), 1, 0)); /* position 24 sees 17 .. 24 */
    struct given g;
    kvp_meta_batch batch = batch_for(&child, 1);
    batch.group = 1;
    assert_ok(give(&w, &batch, &g));
    for (uint32_t key = 0; key < 25; key++)
        assert_int_equal(g.mask[key / 8] >> key % 8 & 1, key >= 17);
    const int32_t *row;
    uint32_t n;
    assert_ok(kvp_seq_row(w.cache, child, 1, &row, &n));
    assert_int_equal(g.kv[1], 3);
    for (uint32_t i = 0; i < 7; i++)
        assert_int_equal(row[i] > 0, i >= 4); /* the other four are not held by it any more */
    assert_memory_equal(g.indices, row + 4, 3 * sizeof *row);
}

/* ---------------------------------------------------------------------------------------- trees */

/* Two trees and a chain; memory gets a tag for each node: 100 x sequence + node. */
static void run_trees(const world *w, const kvp_seq *seqs, uint32_t n, int64_t *memory)
{
    struct given g;
    const kvp_meta_batch batch = batch_for(seqs, n);
    assert_ok(give(w, &batch, &g));
    for (uint32_t b = 0; b < n; b++)
        for (int32_t i = g.qo[b]; i < g.qo[b + 1]; i++)
            memory[g.slots[i]] = 100 * ((int64_t)b + 1) + i - g.qo[b];
}

static void accept(world *w, const kvp_seq *seqs, const int32_t *leaves, uint32_t n,
                   int64_t *memory)
{
    kvp_slot_move moves[16];
    kvp_accept call = {.struct_size = sizeof call,
                       .n_seqs = n,
                       .max_moves = 16,
                       .seqs = seqs,
                       .leaves = leaves,
                       .moves = moves};
    assert_ok(kvp_seq_accept(w->cache, &call));
    for (uint32_t i = 0; i < call.n_moves; i++)
        memory[moves[i].dst] = memory[moves[i].src];
}

/* Token `position` of the sequence lies where its row says. */
static int64_t tag_at(const world *w, kvp_seq seq, const int64_t *memory, uint32_t position)
{
    return memory[row_entry(w, seq, position / 4) * 4 + (int32_t)(position % 4)];
}

static const int32_t forked[] = {-1, 0, 0, 2}; /* 0 -> 1, 0 -> 2 -> 3 */
static const int32_t chain[] = {-1, 0, 1, 2};

/* 2: whether KV must move was decided by the last sequence of the batch: a tree before a chain was
 * not moved. */
TEST(test_2_a_tree_before_a_chain_is_moved)
{
    scoped_world w = tvm_world(0, 0, 63);
    int64_t memory[SLOTS] = {0};
    const kvp_seq seqs[2] = {open_done(&w, ints(0), 9), open_done(&w, ints(100), 6)};
    add_nodes(&w, seqs[0], forked, 4);
    add_nodes(&w, seqs[1], chain, 4);
    run_trees(&w, seqs, 2, memory);
    accept(&w, seqs, (const int32_t[]){3, 3}, 2, memory);
    assert_int_equal(tag_at(&w, seqs[0], memory, 9), 100);
    assert_int_equal(tag_at(&w, seqs[0], memory, 10), 102);
    assert_int_equal(tag_at(&w, seqs[0], memory, 11), 103);
    assert_int_equal(tag_at(&w, seqs[1], memory, 9), 203);
}

/* 3: of a tree added in rounds only the last round was dropped: 27 tokens instead of 12. */
TEST(test_3_rounds_are_accepted_and_dropped_together)
{
    scoped_world w = tvm_world(0, 0, 63);
    int64_t memory[SLOTS] = {0};
    const kvp_seq seq = open_done(&w, ints(0), 10);
    add_nodes(&w, seq, (const int32_t[]){-1, -1, -1, 0, 0, 1, 1}, 7);
    add_nodes(&w, seq, (const int32_t[]){3, 3, 4, 4, 5, 5, 6, 6}, 8);
    struct given g;
    kvp_meta_batch batch = batch_for(&seq, 1);
    const uint32_t second = 10 + 7;
    batch.begin = &second;
    assert_ok(give(&w, &batch, &g));
    assert_int_equal(g.qo[1], 8);
    for (int32_t i = 0; i < 8; i++)
        assert_int_equal(g.positions[i], 12); /* all at depth 2, though added last */
    run_trees(&w, &seq, 1, memory);
    accept(&w, &seq, (const int32_t[]){5}, 1, memory); /* 1 -> 5: two tokens */
    assert_int_equal(info_of(&w, seq).n_tokens, 12);
    assert_int_equal(tag_at(&w, seq, memory, 10), 101);
    assert_int_equal(tag_at(&w, seq, memory, 11), 105);
    decode(&w, seq);
    batch.begin = NULL;
    assert_ok(give(&w, &batch, &g));
    assert_fields(g, positions[0], 12, kv[1], 4, last[0], 1);
}

/* 4: accepting in another order than the batch's, or for some only, changed the wrong sequences. */
TEST(test_4_accept_of_some_in_another_order)
{
    scoped_world w = tvm_world(0, 0, 63);
    int64_t memory[SLOTS] = {0};
    const kvp_seq seqs[3] = {open_done(&w, ints(0), 9), open_done(&w, ints(100), 6),
                             open_done(&w, ints(200), 7)};
    for (uint32_t s = 0; s < 3; s++)
        add_nodes(&w, seqs[s], forked, 4);
    run_trees(&w, seqs, 3, memory);
    struct given before, after;
    const kvp_meta_batch middle = batch_for(&seqs[1], 1);
    assert_ok(give(&w, &middle, &before));
    accept(&w, (const kvp_seq[]){seqs[2], seqs[0]}, (const int32_t[]){3, 1}, 2, memory);
    assert_ok(give(&w, &middle, &after)); /* still has its whole tree */
    assert_memory_equal(&before, &after, sizeof before);
    assert_int_equal(info_of(&w, seqs[0]).n_tokens, 11);
    assert_int_equal(info_of(&w, seqs[2]).n_tokens, 10);
    assert_int_equal(tag_at(&w, seqs[0], memory, 10), 101);
    assert_int_equal(tag_at(&w, seqs[2], memory, 8), 302);
    assert_int_equal(tag_at(&w, seqs[2], memory, 9), 303);
}

/* 5: trees of sequences with and without a shared prefix in one batch: siblings saw each other. */
TEST(test_5_trees_behind_shared_and_private_prefixes)
{
    scoped_world w = tvm_world(0, 0, 63);
    kvp_seq seqs[3] = {open_done(&w, ints(0), 8), {0}, open_done(&w, ints(100), 2)};
    seqs[1] = fork_seq(&w, seqs[0], 8);
    const kvp_seq deeper = fork_seq(&w, seqs[1], 8);
    for (int i = 0; i < 3; i++) {
        decode(&w, seqs[1]);
        decode(&w, deeper);
    }
    add_nodes(&w, seqs[1], forked, 4);
    add_nodes(&w, seqs[2], forked, 4);
    const uint32_t tokens[3] = {8, 11, 2};
    for (uint32_t turn = 0; turn < 3; turn++) {
        const kvp_seq order[3] = {seqs[turn], seqs[(turn + 1) % 3], seqs[(turn + 2) % 3]};
        struct given g;
        const kvp_meta_batch batch = batch_for(order, 3);
        assert_ok(give(&w, &batch, &g));
        for (uint32_t b = 0; b < 3; b++) {
            const uint32_t s = (b + turn) % 3, n_keys = tokens[s] + (s == 0 ? 0 : 4);
            const uint8_t *mask = g.mask + g.mask_indptr[b];
            static const char *const sees[4] = {"1000", "1100", "1010", "1011"};
            for (uint32_t bit = 0; bit < (s == 0 ? 1 : 4) * n_keys; bit++) {
                const uint32_t query = bit / n_keys, key = bit % n_keys;
                const int seen = key < tokens[s] || sees[query][key - tokens[s]] == '1';
                assert_int_equal(mask[bit / 8] >> bit % 8 & 1, seen);
            }
        }
    }
}

/* -------------------------------------------------------------------------------------- batches */

/* 9: a step that did not fit had already lengthened every sequence of the batch. */
TEST(test_9_what_does_not_fit_changes_nothing)
{
    scoped_world w = tvm_world(0, 0, 15);
    const kvp_seq seqs[3] = {open_done(&w, ints(0), 16), open_done(&w, ints(100), 16),
                             open_done(&w, ints(200), 16)};
    const uint32_t n_tokens[3] = {4, 4, 20};
    const kvp_batch extend = {.struct_size = sizeof extend,
                              .n_seqs = 3,
                              .seqs = seqs,
                              .n_tokens = n_tokens,
                              .tokens = ints(900)};
    struct given before, after;
    const kvp_meta_batch batch = batch_for(seqs, 3);
    assert_ok(give(&w, &batch, &before));
    assert_unchanged(&w, assert_status(KVP_E_NO_BLOCKS, kvp_seq_extend_many(w.cache, &extend)));
    assert_ok(give(&w, &batch, &after));
    assert_memory_equal(&before, &after, sizeof before);
    const uint32_t begin[3] = {0, 0, 17}; /* the last one has no such token */
    kvp_meta_batch wrong = batch;
    wrong.begin = begin;
    struct given untouched;
    memset(&untouched, 0x5A, sizeof untouched);
    assert_unchanged(&w, assert_status(KVP_E_ARG, give(&w, &wrong, &after)));
    assert_memory_equal(&after, &untouched, sizeof after);
    assert_ok(give(&w, &batch, &after));
    assert_memory_equal(&before, &after, sizeof before);
}

/* 11: a sequence named twice in a batch was taken, and written over itself. */
TEST(test_11_a_sequence_named_twice_is_refused)
{
    scoped_world w = tvm_world(6, 14, 63);
    const kvp_seq a = open_done(&w, ints(0), 9), b = open_done(&w, ints(100), 5);
    const kvp_seq twice[3] = {a, b, a};
    struct given g, untouched;
    memset(&untouched, 0x5A, sizeof untouched);
    const kvp_meta_batch batch = batch_for(twice, 3);
    assert_status(KVP_E_ARG, give(&w, &batch, &g));
    assert_memory_equal(&g, &untouched, sizeof g);
}

/* 12: closing or cutting a sequence between a step's begin and its attention, beginning twice, an
 * empty batch: all of it was taken. Here metadata is what there is when it is asked for. */
TEST(test_12_metadata_is_of_the_moment)
{
    scoped_world w = tvm_world(0, 0, 63);
    kvp_seq seqs[2] = {open_done(&w, ints(0), 9), open_done(&w, ints(100), 5)};
    add_nodes(&w, seqs[0], forked, 4);
    struct given first, second;
    kvp_meta_batch batch = batch_for(seqs, 2);
    assert_ok(give(&w, &batch, &first));
    assert_ok(give(&w, &batch, &second)); /* asking twice appends nothing */
    assert_memory_equal(&first, &second, sizeof first);
    assert_ok(kvp_seq_truncate(w.cache, seqs[0], 7, NULL)); /* the tree goes with it */
    assert_ok(give(&w, &batch, &second));
    assert_fields(second, qo[1], 1, positions[0], 6, slots[0], KVP_NO_SLOT);
    close_seq(&w, seqs[1]);
    assert_status(KVP_E_HANDLE, give(&w, &batch, &second));
    batch.n_seqs = 0;
    assert_status(KVP_E_ARG, give(&w, &batch, &second));
}

TEST_MAIN(NULL, NULL)
