/* Nodes that all are in use: what is evicted for one (cache.h). */
#include "groups.h"
#include "slots.h"
#include "tiers.h"

#include <string.h>

/* One namespace, and nodes for so many units. */
static kvp_config units_config(kvp_config config, uint32_t n_units)
{
    config.max_namespaces = 1;
    config.n_nodes = n_units + 1;
    return config;
}

static world units_world(uint32_t usable, uint32_t n_units)
{
    const kvp_config config = units_config(config_of(4, 4, usable), n_units);
    return make_world(&config);
}

static uint64_t unkept(const world *w)
{
    return stats_of(w).unkept_units;
}

TEST(test_cached_blocks_go_for_the_nodes_of_new_units)
{
    scoped_world w = units_world(9, 4);
    leave_cached(&w, ints(0), 16);
    kvp_open_info info;
    const kvp_seq seq = open_seq(&w, ints(100), 9, &info);
    const kvp_evicted *evicted;
    assert_int_equal(info.evicted_blocks, 2);
    assert_int_equal(evicted_of(&w, &evicted), 2);
    assert_int_equal(evicted[0].block, 4);
    assert_int_equal(evicted[1].block, 3);
    assert_int_equal(evicted[0].tier, KVP_DEVICE);
    assert_row(&w, seq, 5, 6, 7);
    assert_queue(&w, 0, 8, 9, 4, 3, 2, 1); /* 8 and 9 were free before */
    assert_int_equal(block_of(&w, 3).state, KVP_BLOCK_FREE);
    assert_int_equal(info_of(&w, seq).kept_tokens, 9);
    assert_int_equal(match(&w, ints(0), 16).hit_tokens, 8);
    assert_int_equal(unkept(&w), 0);
}

TEST(test_units_that_fill_later_get_nodes_as_well)
{
    scoped_world w = units_world(15, 6);
    leave_cached(&w, ints(0), 16);
    const kvp_seq a = open_done(&w, ints(100), 7);
    const kvp_seq b = open_done(&w, ints(200), 4);
    const kvp_seq seqs[] = {a, b};
    const uint32_t n[] = {1, 4};
    const kvp_evicted *evicted;
    kvp_batch batch = batch_of(seqs, n, 2);
    batch.tokens = ints(107);
    assert_ok(kvp_seq_extend_many(w.cache, &batch));
    assert_int_equal(evicted_of(&w, &evicted), 2);
    assert_int_equal(evicted[1].block, 3);
    assert_ok(kvp_seq_extend(w.cache, a, NULL, 4, 0));
    assert_int_equal(evicted_of(&w, &evicted), 0);
    assert_ok(kvp_seq_fill(w.cache, a, ints(108), 4));
    assert_int_equal(evicted_of(&w, &evicted), 1);
    assert_int_equal(match(&w, ints(0), 16).hit_tokens, 4);
    assert_int_equal(info_of(&w, a).kept_tokens, 12);
}

TEST(test_private_units_get_nodes_as_well)
{
    scoped_world w = units_world(9, 2);
    leave_cached(&w, ints(0), 8);
    kvp_prompt prompt = prompt_of(ints(100), 8);
    prompt.n_uncached = 1;
    prompt.uncached = &(kvp_range){0, 1};
    const kvp_seq seq = open_with(&w, &prompt, NULL);
    assert_fields(info_of(&w, seq), kept_tokens, 8, public_tokens, 0);
    assert_int_equal(stats_of(&w).evicted_blocks, 2);
}

TEST(test_what_is_held_stays_and_its_nodes_with_it)
{
    scoped_world w = units_world(9, 3);
    const kvp_seq held = open_done(&w, ints(0), 8);
    leave_cached(&w, ints(50), 4);
    const kvp_seq seq = open_done(&w, ints(100), 8);
    assert_int_equal(info_of(&w, seq).kept_tokens, 4);
    assert_int_equal(unkept(&w), 1);
    assert_int_equal(stats_of(&w).evicted_blocks, 1);
    assert_int_equal(match(&w, ints(0), 8).hit_tokens, 8);
    close_seq(&w, held);
}

/* What was copied from is held by nobody when nodes are made. */
TEST(test_sources_of_copies_can_go)
{
    const kvp_config config = units_config(config_of(8, 4, 9), 3);
    scoped_world w = make_world(&config);
    leave_cached(&w, ints(0), 12); /* blocks 1 and 2 */
    int32_t tokens[16];
    for (int32_t i = 0; i < 16; i++)
        tokens[i] = i < 4 ? i : 100 + i;
    const kvp_seq seq = open_seq(&w, tokens, 16, NULL); /* hits half of block 1, which is copied */
    assert_fields(info_of(&w, seq), cached_tokens, 4, kept_tokens, 12);
    assert_int_equal(stats_of(&w).evicted_blocks, 2);
    assert_int_equal(block_of(&w, 1).state, KVP_BLOCK_FREE);
}

TEST(test_the_host_goes_first_and_gets_nothing)
{
    const kvp_config config = units_config(tiers_config(4, 4, 6, 6), 4);
    scoped_world w = make_world(&config);
    const kvp_evicted *evicted;
    leave_cached(&w, ints(0), 8);
    wipe_device(&w); /* host blocks 1 and 2: the second unit, the first */
    drop_plan(&w);
    leave_cached(&w, ints(50), 8);
    const kvp_seq seq = open_seq(&w, ints(100), 12, NULL);
    assert_int_equal(evicted_of(&w, &evicted), 3);
    assert_fields(evicted[0], tier, KVP_HOST, block, 1);
    assert_int_equal(evicted[1].tier, KVP_HOST);
    assert_fields(evicted[2], tier, KVP_DEVICE, kept, 0);
    assert_host_queue(&w, 0, 3, 4, 5, 6, 1, 2);
    assert_no_plan(&w);
    assert_int_equal(match(&w, ints(50), 8).hit_tokens, 4);
    assert_int_equal(info_of(&w, seq).kept_tokens, 12);
}

/* A window of one unit: the last one of a path keeps the nodes of all before it. */
TEST(test_a_unit_costs_so_many_evictions_at_most)
{
    kvp_config config = units_config(groups_config(1, 1200, &(kvp_window){0, 2}, 1), 1100);
    config.max_seq_tokens = 1200;
    scoped_world w = make_world(&config);
    leave_cached(&w, ints(0), 1100);
    assert_int_equal(stats_of(&w).nodes_used, 1101);
    const kvp_seq first = open_seq(&w, ints(2000), 2, NULL);
    assert_int_equal(stats_of(&w).evicted_blocks, 1024);
    assert_int_equal(unkept(&w), 2);
    close_seq(&w, first);
    const kvp_seq second = open_seq(&w, ints(2000), 2, NULL);
    assert_int_equal(unkept(&w), 2);
    assert_fields(stats_of(&w), evicted_blocks, 1100, nodes_used, 3);
    close_seq(&w, second);
}

/* A prompt of full units and one token, its state is kept; then an answer of `n_answer` units. */
static uint32_t take_turn(world *w, const int32_t *tokens, uint32_t n_prompt, uint32_t n_answer)
{
    kvp_open_info info;
    const kvp_seq seq = open_seq(w, tokens, n_prompt + 1, &info);
    if (info.hit_tokens < n_prompt) {
        assert_ok(kvp_seq_commit(w->cache, seq, n_prompt));
        (void)checkpoint(w, seq);
    }
    assert_ok(kvp_seq_extend(w->cache, seq, tokens + n_prompt + 1, 4 * n_answer, 0));
    assert_ok(kvp_seq_commit(w->cache, seq, n_prompt + 1 + 4 * n_answer));
    close_seq(w, seq);
    return info.hit_tokens;
}

/* One conversation after the other, with few slots: each leaves nodes without block before the end
 * of its answer. */
TEST(test_conversations_do_not_use_nodes_up)
{
    kvp_config config = units_config(config_of(4, 4, 60), 60);
    config.state_slots = 4;
    scoped_world w = make_world(&config);
    for (int32_t conversation = 0; conversation < 40; conversation++) {
        const int32_t *tokens = ints(89 * conversation);
        (void)take_turn(&w, tokens, 40, 2);
        assert_int_equal(take_turn(&w, tokens, 80, 2), 40);
    }
    assert_int_equal(unkept(&w), 0);
}

/* The state after the second unit is kept, whose KV is written over. */
TEST(test_a_checkpoint_without_block_goes_last)
{
    kvp_config config = units_config(config_of(8, 4, 9), 4);
    config.state_slots = 6;
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_seq(&w, ints(0), 8, NULL);
    const kvp_evicted *evicted;
    assert_ok(kvp_seq_commit(w.cache, seq, 4));
    assert_int_equal(checkpoint(&w, seq), KVP_CHECKPOINT_MADE);
    assert_ok(kvp_seq_extend(w.cache, seq, NULL, 0, 0));
    assert_ok(kvp_seq_commit(w.cache, seq, 8));
    assert_int_equal(checkpoint(&w, seq), KVP_CHECKPOINT_MADE);
    assert_ok(kvp_seq_truncate(w.cache, seq, 4, NULL));
    assert_ok(kvp_seq_extend(w.cache, seq, ints(100), 3, 0)); /* in the same block */
    leave_cached(&w, ints(50), 4);
    assert_int_equal(stats_of(&w).nodes_used, 4);
    assert_ok(kvp_seq_extend(w.cache, seq, ints(103), 5, 0)); /* two units */
    assert_int_equal(evicted_of(&w, &evicted), 1);
    assert_fields(evicted[0], block, 2, group, 0);
    assert_ok(kvp_seq_extend(w.cache, seq, ints(108), 4, 0));
    assert_int_equal(evicted_of(&w, &evicted), 1);
    assert_int_equal(evicted[0].group, 1);
    assert_int_equal(unkept(&w), 0);
    assert_int_equal(slots_of(&w).evicted, 1);
    close_seq(&w, seq);
}

/* Four units are cached: two of the load's path, which are the coldest, and two others. */
TEST(test_loads_get_nodes_as_well)
{
    kvp_config config = units_config(tiers_config(4, 4, 9, 8), 4);
    config.max_loads = 1;
    config.lent_blocks = 8;
    scoped_world w = make_world(&config);
    int32_t tokens[12], blocks[3];
    memcpy(tokens, ints(0), 8 * sizeof(*tokens));
    memcpy(tokens + 8, ints(100), 4 * sizeof(*tokens));
    const kvp_prompt prompt = prompt_of(tokens, 12);
    kvp_load load = {.struct_size = sizeof(load), .entries = {0, 3}, .blocks = blocks};
    const kvp_evicted *evicted;
    leave_cached(&w, ints(0), 8);
    leave_cached(&w, ints(200), 8);
    assert_ok(kvp_load_begin(w.cache, w.ns, &prompt, &load));
    assert_int_equal(evicted_of(&w, &evicted), 3);
    assert_int_equal(evicted[0].block, 2);
    assert_int_equal(evicted[1].block, 1);
    assert_int_equal(evicted[2].block, 4);
    assert_int_equal(load.n_found, 0); /* it was two */
    assert_int_equal(load.n_blocks, 3);
    assert_int_equal(stats_of(&w).nodes_used, 5);
    assert_ok(kvp_load_done(w.cache, load.number, (const uint8_t[]){1, 1, 1}, 3, NULL));
    assert_int_equal(match(&w, tokens, 12).hit_tokens, 12);
    assert_int_equal(match(&w, ints(200), 8).hit_tokens, 4);
}

static void refuse_load(world *w, uint32_t n_units, uint32_t n_evicted)
{
    int32_t blocks[5] = {7, 7, 7, 7, 7};
    const kvp_prompt prompt = prompt_of(ints(0), 4 * n_units);
    kvp_load load = {.struct_size = sizeof(load), .entries = {0, n_units}, .blocks = blocks};
    const kvp_evicted *evicted;
    assert_status(KVP_E_AGAIN, kvp_load_begin(w->cache, w->ns, &prompt, &load));
    assert_shortage_in(w, KVP_DEVICE, KVP_E_AGAIN, 0, 0);
    assert_int_equal(evicted_of(w, &evicted), n_evicted);
    assert_int_equal(blocks[0], 7);
    assert_int_equal(load.number, 0);
}

TEST(test_loads_without_nodes_are_refused)
{
    kvp_config config = units_config(tiers_config(4, 4, 9, 8), 4);
    config.max_loads = 1;
    config.lent_blocks = 8;
    scoped_world w = make_world(&config);
    leave_cached(&w, ints(300), 4);
    (void)open_done(&w, ints(200), 8);
    refuse_load(&w, 5, 0); /* it would never have room */
    refuse_load(&w, 3, 1);
    assert_int_equal(stats_of(&w).nodes_used, 3);
}

TEST_MAIN(NULL, NULL)
