/* Defects of TVM's paged KV cache, and of MLC's prefix cache. A window of W there, sinks included,
 * is R = W - K + 1 (windows.h), and one less in the scenes; to pop is to truncate; to commit a tree
 * is to accept a path. */
#include "scenes.h"

#include <string.h>

static const int32_t four_parents[] = {-1, 0, 0, 1};

static kvp_config window_config(uint32_t usable, uint32_t sinks, uint32_t recent)
{
    kvp_config config = rig_config(usable);
    config.groups[0] = (kvp_group){sinks, recent, 0};
    return config;
}

static kvp_config tree_config(uint32_t usable)
{
    kvp_config config = rig_config(usable);
    config.max_tree_tokens = 32;
    return config;
}

/* T1: window 40, half of it sinks; 60 and 100 tokens; forked at 18, and both go on. */
static void fork_inside_the_sinks_of_a_slid_sequence(rig *r)
{
    const uint32_t lengths[] = {60, 100};
    for (uint32_t k = 0; k < 2; k++) {
        const kvp_config config = window_config(63, 20, 20);
        rig_begin(r, &config);
        rig_seq *parent = rig_open_done(r, rig_tokens(0), lengths[k]);
        const int32_t sink = rig_row(r, parent, 0, 4);
        rig_seq *child = rig_fork(r, parent, 18);
        rig_audit(r);
        rig_decode(r, child, 1000, 40);
        rig_decode(r, parent, 2000, 40);
        EXPECT_EQ(r, rig_row(r, parent, 0, 4), sink);
        EXPECT(r, rig_row(r, child, 0, 4) != sink); /* it wrote there: a copy */
        EXPECT_EQ(r, rig_row(r, child, 0, 3), rig_row(r, parent, 0, 3));
        rig_end(r);
    }
}

/* T2 */
static void moves_are_of_every_sequence_of_the_batch(rig *r)
{
    const int32_t chain[] = {-1, 0, 1, 2};
    const int32_t leaves[] = {3, 3};
    for (uint32_t tree_at = 0; tree_at < 2; tree_at++) {
        const kvp_config config = tree_config(31);
        rig_begin(r, &config);
        rig_seq *seqs[] = {rig_open_done(r, rig_tokens(0), 5),
                           rig_open_done(r, rig_tokens(100), 6)};
        rig_grow(r, seqs[tree_at], rig_tokens(50), four_parents, 4);
        rig_grow(r, seqs[1 - tree_at], rig_tokens(60), chain, 4);
        EXPECT_EQ(r, rig_accept(r, seqs, leaves, 2), 1);
        rig_decode(r, seqs[0], 300, 6);
        rig_decode(r, seqs[1], 400, 6);
        rig_end(r);
    }
}

/* T3: rounds of 7 and 10 nodes behind 10 tokens. */
static void rounds_of_a_tree_are_one_tree(rig *r)
{
    const int32_t first[] = {-1, 0, 0, 1, 1, 2, 2};
    const int32_t second[] = {3, 3, 4, 4, 5, 5, 6, 6, 7, 8};
    for (int32_t leaf = -1; leaf < 17; leaf++) {
        const kvp_config config = tree_config(31);
        rig_begin(r, &config);
        rig_seq *s = rig_open_done(r, rig_tokens(0), 10);
        rig_grow(r, s, rig_tokens(50), first, 7);
        rig_grow(r, s, rig_tokens(57), second, 10);
        rig_accept(r, &s, &leaf, 1);
        EXPECT_EQ(r, rig_info(r, s).tree_tokens, 0);
        EXPECT_EQ(r, rig_info(r, s).n_blocks, (s->line.n + 3) / 4);
        rig_decode(r, s, 300, 8);
        rig_end(r);
    }
}

/* T4 */
static void accept_takes_any_order_and_any_subset(rig *r)
{
    const kvp_config config = tree_config(63);
    rig_seq *s[3];
    rig_begin(r, &config);
    for (int32_t i = 0; i < 3; i++) {
        s[i] = rig_open_done(r, rig_tokens(100 * i), 6 + (uint32_t)i);
        rig_grow(r, s[i], rig_tokens(1000 + 10 * i), four_parents, 4);
    }
    rig_accept(r, (rig_seq *[]){s[1]}, (int32_t[]){3}, 1);
    EXPECT_EQ(r, rig_info(r, s[0]).tree_tokens, 4);
    EXPECT_EQ(r, rig_info(r, s[1]).n_tokens, 10);
    EXPECT_EQ(r, rig_info(r, s[2]).tree_tokens, 4);
    rig_accept(r, (rig_seq *[]){s[2], s[0]}, (int32_t[]){-1, 2}, 2);
    EXPECT_EQ(r, rig_info(r, s[0]).n_tokens, 8);
    EXPECT_EQ(r, rig_info(r, s[0]).last_token, 1002);
    EXPECT_EQ(r, rig_info(r, s[2]).n_tokens, 8);
    for (int32_t i = 0; i < 3; i++)
        rig_decode(r, s[i], 300 + 20 * i, 6);
}

/* T5: trees after one, two and three shared blocks: parents are read back as they were given, and
 * each path has its KV. (Masks: test/unit/test_tvm_defects_meta.c.) */
static void trees_at_different_depths_keep_their_shape(rig *r)
{
    const int32_t parents[3][4] = {{-1, 0, 0, 1}, {-1, -1, 0, 1}, {-1, 0, 1, 2}};
    const kvp_config config = tree_config(63);
    int32_t tokens[4], got[4];
    uint32_t n = 0;
    rig_seq *s[3];
    rig_begin(r, &config);
    s[0] = rig_open_done(r, rig_tokens(0), 12);
    s[1] = rig_fork(r, s[0], 8);
    rig_decode(r, s[1], 500, 4);
    s[2] = rig_fork(r, s[1], KVP_END);
    for (uint32_t i = 0; i < 3; i++)
        rig_grow(r, s[i], rig_tokens(1000 + 10 * (int32_t)i), parents[i], 4);
    for (uint32_t i = 0; i < 3; i++) {
        EXPECT_OK(r, kvp_seq_tree(r->cache, s[i]->handle, tokens, got, 4, &n));
        EXPECT_EQ(r, n, 4);
        EXPECT(r, memcmp(got, parents[i], sizeof(got)) == 0);
    }
    rig_accept(r, s, (int32_t[]){3, 3, 3}, 3);
    for (int32_t i = 0; i < 3; i++)
        rig_decode(r, s[i], 300 + 20 * i, 5);
}

/* T6: window 20, 6 of it sinks, slid by 0 to 19, one to three tokens popped; then somebody takes
 * every block that can be taken. */
static void pop_after_a_slide_frees_no_live_block(rig *r)
{
    for (uint32_t slid = 0; slid <= 19; slid++) {
        const kvp_config config = window_config(15, 6, 14);
        rig_begin(r, &config);
        rig_seq *s = rig_open_done(r, rig_tokens(0), 20);
        rig_decode(r, s, 20, slid);
        const uint32_t to = 20 + slid - (1 + slid % 3);
        const kvp_status status = kvp_seq_truncate(r->cache, s->handle, to, NULL);
        EXPECT(r, status == KVP_OK || status == KVP_E_DROPPED);
        if (status == KVP_OK)
            truth_line_cut(&r->truth, &s->line, to);
        rig_called(r);
        const kvp_stats stats = rig_stats(r);
        rig_seq *other = rig_open_done(r, rig_tokens(1000),
                                       4 * (uint32_t)(stats.free_blocks + stats.cached_blocks));
        rig_audit(r);
        rig_close(r, other);
        rig_decode(r, s, 500, 9);
        rig_end(r);
    }
}

/* T7 */
static void pop_into_a_shared_block_is_all_or_nothing(rig *r)
{
    for (uint32_t to = 0; to <= 20; to++) {
        const kvp_config config = window_config(31, 2, 10);
        rig_begin(r, &config);
        rig_seq *parent = rig_open_done(r, rig_tokens(0), 12);
        rig_seq *s = rig_fork(r, parent, 11);
        rig_decode(r, s, 500, 9);
        const kvp_seq_info before = rig_info(r, s);
        const kvp_status status = kvp_seq_truncate(r->cache, s->handle, to, NULL);
        if (status == KVP_OK) {
            truth_line_cut(&r->truth, &s->line, to);
        } else {
            EXPECT_STATUS(r, KVP_E_DROPPED, status);
            EXPECT_EQ(r, rig_info(r, s).n_tokens, 20);
            EXPECT_EQ(r, rig_info(r, s).row_version, before.row_version);
        }
        rig_called(r);
        rig_decode(r, s, 600, 10); /* either way it goes on */
        rig_decode(r, parent, 700, 3);
        rig_end(r);
    }
}

/* T8 */
static void windowed_fork_at_a_block_boundary_goes_on(rig *r)
{
    for (uint32_t n = 8; n <= 24; n += 2) {
        const kvp_config config = window_config(31, 6, 6);
        rig_begin(r, &config);
        rig_seq *parent = rig_open_done(r, rig_tokens(0), n);
        rig_seq *child = rig_fork(r, parent, KVP_END);
        rig_decode(r, parent, 500, 20);
        rig_decode(r, child, 600, 20);
        EXPECT_EQ(r, rig_row(r, child, 0, 0), rig_row(r, parent, 0, 0)); /* a sink, shared */
        EXPECT_EQ(r, rig_info(r, child).n_tokens, n + 20);
        rig_end(r);
    }
}

static kvp_batch batch_of(const kvp_seq *seqs, const uint32_t *n_tokens, uint32_t n_seqs,
                          const int32_t *tokens)
{
    return (kvp_batch){.struct_size = sizeof(kvp_batch),
                       .n_seqs = n_seqs,
                       .seqs = seqs,
                       .n_tokens = n_tokens,
                       .tokens = tokens};
}

/* T9 */
static void batch_that_is_refused_changes_nothing(rig *r)
{
    const kvp_config config = rig_config(13);
    kvp_seq handles[3];
    rig_seq *s[3];
    rig_begin(r, &config);
    for (int32_t i = 0; i < 3; i++) {
        s[i] = rig_open_done(r, rig_tokens(100 * i), 16);
        handles[i] = s[i]->handle;
    }
    const uint32_t wanted[] = {4, 0, 4};
    const kvp_batch batch = batch_of(handles, wanted, 3, rig_tokens(1000));
    const kvp_stats before = rig_stats(r);
    EXPECT_STATUS(r, KVP_E_NO_BLOCKS, kvp_seq_extend_many(r->cache, &batch));
    EXPECT_EQ(r, rig_shortage(r).missing_blocks, 1);
    for (uint32_t i = 0; i < 3; i++) {
        EXPECT_EQ(r, rig_info(r, s[i]).n_tokens, 16);
        EXPECT_EQ(r, rig_info(r, s[i]).n_blocks, 4);
    }
    EXPECT_EQ(r, rig_stats(r).free_blocks, before.free_blocks);
    rig_close(r, s[1]);
    handles[1] = handles[2];
    const uint32_t again[] = {4, 4};
    const kvp_batch retry = batch_of(handles, again, 2, rig_tokens(1000));
    EXPECT_OK(r, kvp_seq_extend_many(r->cache, &retry));
    for (uint32_t i = 0; i < 4; i++) {
        truth_line_add(&r->truth, &s[0]->line, 1000 + (int32_t)i);
        truth_line_add(&r->truth, &s[2]->line, 1004 + (int32_t)i);
    }
    rig_called(r);
    rig_compute(r, s[0]);
    rig_compute(r, s[2]);
}

/* T10 */
static void fork_needs_no_block_and_loses_none(rig *r)
{
    const kvp_config config = rig_config(3);
    rig_begin(r, &config);
    for (uint32_t turn = 0; turn < 20; turn++) {
        rig_seq *parent = rig_open_done(r, rig_tokens(0), 10);
        rig_seq *child = rig_fork(r, parent, 7);
        EXPECT_EQ(r, rig_stats(r).free_blocks + rig_stats(r).cached_blocks, 0);
        EXPECT_STATUS(r, KVP_E_NO_BLOCKS,
                      kvp_seq_extend(r->cache, child->handle, rig_tokens(500), 1, 0));
        rig_audit(r);
        rig_close(r, child);
        rig_close(r, parent);
        EXPECT_EQ(r, rig_stats(r).free_blocks + rig_stats(r).cached_blocks, 3);
    }
}

/* T11 */
static void sequence_twice_in_a_batch_is_refused(rig *r)
{
    const kvp_config config = tree_config(31);
    const int32_t parents[] = {-1, -1, -1};
    const int32_t leaves[] = {-1, -1, -1};
    const uint32_t ones[] = {1, 1, 1};
    rig_begin(r, &config);
    rig_seq *a = rig_open_done(r, rig_tokens(0), 6);
    rig_seq *b = rig_open_done(r, rig_tokens(100), 6);
    const kvp_seq twice[] = {a->handle, b->handle, a->handle};
    const kvp_batch batch = batch_of(twice, ones, 3, rig_tokens(500));
    kvp_accept accept = {sizeof(accept), 3, 0, twice, leaves, NULL, 0, 0};
    EXPECT_STATUS(r, KVP_E_ARG, kvp_seq_extend_many(r->cache, &batch));
    EXPECT_STATUS(r, KVP_E_ARG, kvp_seq_extend_tree(r->cache, &batch, parents));
    EXPECT_STATUS(r, KVP_E_ARG, kvp_seq_accept(r->cache, &accept));
    EXPECT_STATUS(r, KVP_E_ARG, kvp_seq_commit_many(r->cache, twice, ones, 3));
    EXPECT_EQ(r, rig_info(r, a).n_tokens, 6);
    EXPECT_EQ(r, rig_info(r, b).n_tokens, 6);
}

/* T13: a full group and a sliding one; a forked prefix of 16, a suffix of 9, R = 8. The sliding
 * group's row is its window's and no more, and both rows are read as far as each query sees. */
static void window_is_of_the_sequence_not_of_its_blocks(rig *r)
{
    kvp_config config = rig_config(31);
    config.n_groups = 2;
    config.groups[1] = (kvp_group){0, 8, 0};
    rig_begin(r, &config);
    rig_seq *parent = rig_open_done(r, rig_tokens(0), 16);
    rig_seq *child = rig_fork(r, parent, KVP_END);
    rig_decode(r, child, 500, 9);
    for (uint32_t i = 0; i < 7; i++) {
        EXPECT(r, rig_row(r, child, 0, i) > 0);
        EXPECT_EQ(r, rig_row(r, child, 1, i) != 0, (i + 1) * 4 > 25 + 1 - 8);
    }
    rig_close(r, parent);
    EXPECT_EQ(r, rig_stats(r).held_blocks, 7 + 3); /* the sliding group holds three */
}

/* T14 */
static void oldest_is_evicted_and_reset_loses_nothing(rig *r)
{
    const kvp_config config = rig_config(4);
    rig_begin(r, &config);
    for (int32_t i = 0; i < 4; i++)
        rig_leave_cached(r, rig_tokens(100 * i), 4);
    rig_leave_cached(r, rig_tokens(0), 4); /* used again: the oldest is 100 now */
    rig_leave_cached(r, rig_tokens(1000), 4);
    EXPECT_EQ(r, rig_match(r, rig_tokens(100), 4).hit_tokens, 0);
    EXPECT_EQ(r, rig_match(r, rig_tokens(0), 4).hit_tokens, 4);
    EXPECT_EQ(r, rig_match(r, rig_tokens(200), 4).hit_tokens, 4);
    rig_seq *open = rig_open_done(r, rig_tokens(2000), 12);
    const uint64_t total = rig_stats(r).nodes_total;
    EXPECT_OK(r, kvp_cache_reset(r->cache));
    EXPECT_STATUS(r, KVP_E_HANDLE, kvp_seq_close(r->cache, open->handle, NULL));
    truth_line_end(&open->line);
    open->is_open = false;
    rig_called(r);
    EXPECT_EQ(r, rig_stats(r).free_blocks, 4);
    EXPECT_EQ(r, rig_stats(r).nodes_total, total);
    EXPECT_EQ(r, rig_stats(r).nodes_used, 1); /* the namespace's root */
    rig_leave_cached(r, rig_tokens(3000), 16);
}

static const scene scenes[] = {
    {"T1", "fork-inside-the-sinks-of-a-slid-sequence", "TVM",
     fork_inside_the_sinks_of_a_slid_sequence},
    {"T2", "moves-are-of-every-sequence-of-the-batch", "TVM",
     moves_are_of_every_sequence_of_the_batch},
    {"T3", "rounds-of-a-tree-are-one-tree", "TVM", rounds_of_a_tree_are_one_tree},
    {"T4", "accept-takes-any-order-and-any-subset", "TVM", accept_takes_any_order_and_any_subset},
    {"T5", "trees-at-different-depths-keep-their-shape", "TVM",
     trees_at_different_depths_keep_their_shape},
    {"T6", "pop-after-a-slide-frees-no-live-block", "TVM", pop_after_a_slide_frees_no_live_block},
    {"T7", "pop-into-a-shared-block-is-all-or-nothing", "TVM",
     pop_into_a_shared_block_is_all_or_nothing},
    {"T8", "windowed-fork-at-a-block-boundary-goes-on", "TVM",
     windowed_fork_at_a_block_boundary_goes_on},
    {"T9", "batch-that-is-refused-changes-nothing", "TVM", batch_that_is_refused_changes_nothing},
    {"T10", "fork-needs-no-block-and-loses-none", "TVM", fork_needs_no_block_and_loses_none},
    {"T11", "sequence-twice-in-a-batch-is-refused", "TVM", sequence_twice_in_a_batch_is_refused},
    {"T13", "window-is-of-the-sequence-not-of-its-blocks", "apache/tvm#20104",
     window_is_of_the_sequence_not_of_its_blocks},
    {"T14", "oldest-is-evicted-and-reset-loses-nothing", "MLC-LLM",
     oldest_is_evicted_and_reset_loses_nothing},
};

const scene_list tvm_scenes = SCENES(scenes);
