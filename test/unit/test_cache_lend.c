/* Stores (lend.h): the cold end, what blocks are of, mirrors, lent blocks, loads. */
#include <string.h>

#include "snaps.h"
#include "tiers.h"

static world lend_world(uint32_t usable, uint32_t host)
{
    kvp_config config = tiers_config(4, 4, usable, host);
    config.max_loads = 2;
    return make_world(&config);
}

/* Begin a load of entries [begin, end) of ints(first), n tokens. */
static kvp_status begin_load(world *w, int32_t first, uint32_t n, kvp_range entries, kvp_load *load,
                             int32_t *blocks)
{
    const kvp_prompt prompt = prompt_of(ints(first), n);
    *load = (kvp_load){.struct_size = sizeof(*load), .entries = entries, .blocks = blocks};
    return kvp_load_begin(w->cache, w->ns, &prompt, load);
}

/* Take the plan, and report it done. */
static void run_plan(world *w)
{
    drop_plan(w);
    assert_ok(kvp_plan_done(w->cache, stats_of(w).plans));
}

/* ---------------------------------------------------------------------------------------- loads */

TEST(test_a_load_is_found_when_it_is_done_and_not_before)
{
    scoped_world w = lend_world(4, 7);
    kvp_load load;
    kvp_loaded loaded;
    int32_t blocks[3];
    assert_ok(begin_load(&w, 0, 12, (kvp_range){0, 3}, &load, blocks));
    assert_fields(load, number, 1, after, 0, n_blocks, 3);
    assert_int_equal(blocks[0], 1);
    assert_int_equal(blocks[2], 3);
    assert_int_equal(match(&w, ints(0), 12).hit_tokens, 0);
    assert_int_equal(match(&w, ints(0), 12).stop, KVP_STOP_NO_KV);
    const kvp_stats during = stats_of(&w);
    assert_fields(during, host_loading_blocks, 3, host_held_blocks, 0);
    assert_int_equal(during.host_free_blocks + during.host_cached_blocks, 4);
    assert_int_equal(during.host_lent_blocks, 3);
    assert_ok(kvp_load_done(w.cache, 1, (const uint8_t[]){1, 1, 0}, 3, &loaded));
    assert_fields(loaded, cached, 2, failed, 1);
    assert_int_equal(match(&w, ints(0), 12).hit_tokens, 8);
    assert_int_equal(match(&w, ints(0), 12).host_blocks, 2);
    assert_host_queue(&w, 0, 3, 4, 5, 6, 7, 2, 1); /* tails go before their prefixes */
    assert_status(KVP_E_ARG, kvp_load_done(w.cache, 1, (const uint8_t[]){1, 1, 1}, 3, NULL));
}

/* A router sees what a load brings as it sees what a commit brings, and on the host tier. */
TEST(test_a_load_is_told_when_it_is_done)
{
    kvp_config config = tiers_config(4, 4, 4, 7);
    config.max_loads = 2;
    config.max_events = 16;
    scoped_world w = make_world(&config);
    kvp_event told[8];
    int32_t tokens[8 * 4];
    uint32_t n;
    kvp_load load;
    int32_t blocks[3];
    assert_ok(begin_load(&w, 0, 12, (kvp_range){0, 3}, &load, blocks));
    assert_ok(kvp_events_read(w.cache, 1, told, 8, tokens, &n));
    assert_int_equal(n, 0);
    assert_ok(kvp_load_done(w.cache, 1, (const uint8_t[]){1, 1, 0}, 3, NULL));
    assert_ok(kvp_events_read(w.cache, 1, told, 8, tokens, &n));
    assert_int_equal(n, 2);
    for (uint32_t i = 0; i < n; i++) {
        assert_fields(told[i], kind, KVP_EVENT_STORED, tier, KVP_HOST, position, 4 * i, n_tokens,
                      4);
        assert_memory_equal(tokens + 4 * i, ints((int32_t)(4 * i)), 4 * sizeof *tokens);
    }
    assert_memory_equal(&told[0].parent, &told[0].root, sizeof told[0].root);
    assert_memory_equal(&told[1].parent, &told[0].hash, sizeof told[0].hash);
    /* What a commit stores of the same tokens has the same hash, on the device. */
    const kvp_hash first = told[0].hash;
    leave_cached(&w, ints(0), 4);
    assert_ok(begin_load(&w, 100, 4, (kvp_range){0, 1}, &load, blocks));
    assert_ok(kvp_load_cancel(w.cache, load.number)); /* and nothing is told of this one */
    assert_ok(kvp_events_read(w.cache, 3, told, 8, tokens, &n));
    assert_int_equal(n, 1);
    assert_fields(told[0], kind, KVP_EVENT_STORED, tier, KVP_DEVICE);
    assert_memory_equal(&told[0].hash, &first, sizeof first);
}

TEST(test_what_is_there_or_comes_is_not_loaded_twice)
{
    scoped_world w = lend_world(4, 12);
    kvp_load load;
    kvp_loaded loaded;
    int32_t blocks[3];
    leave_cached(&w, ints(0), 4);
    assert_ok(begin_load(&w, 0, 12, (kvp_range){0, 2}, &load, blocks));
    assert_int_equal(load.n_found, 1);
    assert_int_equal(blocks[0], 0);
    assert_true(blocks[1] != 0);
    assert_ok(begin_load(&w, 0, 12, (kvp_range){0, 3}, &load, blocks));
    assert_fields(load, number, 2, n_found, 1, n_elsewhere, 1, n_blocks, 1);
    leave_cached(&w, ints(0), 8); /* somebody computes what the first one brings */
    assert_ok(kvp_load_done(w.cache, 1, (const uint8_t[]){1}, 1, &loaded));
    assert_int_equal(loaded.dropped, 1);
    assert_ok(kvp_load_done(w.cache, 2, (const uint8_t[]){1}, 1, &loaded));
    assert_int_equal(loaded.cached, 1);
    assert_ok(begin_load(&w, 0, 12, (kvp_range){0, 3}, &load, blocks));
    assert_int_equal(load.number, 0); /* all is there: nothing was begun */
    assert_int_equal(load.n_found, 3);
    assert_int_equal(stats_of(&w).open_loads, 0);
}

TEST(test_a_load_waits_for_copies_that_use_its_blocks)
{
    kvp_load load;
    int32_t blocks[1];
    kvp_open_info info;
    kvp_config config = tiers_config(4, 4, 3, 1);
    config.max_loads = 1;
    scoped_world w = make_world(&config);
    leave_cached(&w, ints(0), 4);
    wipe_device(&w);
    run_plan(&w);
    const kvp_seq back = open_seq(&w, ints(0), 5, &info);
    assert_int_equal(info.host_blocks, 1);
    assert_ok(begin_load(&w, 100, 4, (kvp_range){0, 1}, &load, blocks));
    assert_int_equal(blocks[0], 1);
    assert_int_equal(load.after, stats_of(&w).plans + 1);
    assert_unchanged(
        &w, assert_status(KVP_E_IN_FLIGHT,
                          kvp_load_done(w.cache, load.number, (const uint8_t[]){1}, 1, NULL)));
    drop_plan(&w);
    assert_status(KVP_E_IN_FLIGHT,
                  kvp_load_done(w.cache, load.number, (const uint8_t[]){1}, 1, NULL));
    assert_ok(kvp_plan_done(w.cache, load.after));
    assert_ok(kvp_load_done(w.cache, load.number, (const uint8_t[]){1}, 1, NULL));
    assert_int_equal(match(&w, ints(100), 4).hit_tokens, 4);
    close_seq(&w, back);
}

TEST(test_what_was_flushed_meanwhile_is_dropped)
{
    scoped_world w = lend_world(4, 7);
    kvp_load load;
    kvp_loaded loaded;
    int32_t blocks[2];
    assert_ok(begin_load(&w, 0, 8, (kvp_range){0, 2}, &load, blocks));
    assert_ok(kvp_ns_flush(w.cache, w.ns));
    assert_ok(kvp_load_done(w.cache, 1, (const uint8_t[]){1, 1}, 2, &loaded));
    assert_int_equal(loaded.dropped, 2);
    assert_int_equal(match(&w, ints(0), 8).hit_tokens, 0);
    assert_int_equal(stats_of(&w).host_free_blocks, 7);
    assert_ok(begin_load(&w, 0, 8, (kvp_range){0, 2}, &load, blocks));
    assert_ok(kvp_cache_reset(w.cache));
    assert_status(KVP_E_ARG, kvp_load_done(w.cache, 2, (const uint8_t[]){1, 1}, 2, NULL));
    assert_int_equal(stats_of(&w).host_loading_blocks, 0);
}

TEST(test_loads_that_are_refused_change_nothing)
{
    scoped_world w = lend_world(8, 7); /* 3 may be lent */
    kvp_prompt prompt = prompt_of(ints(0), 16);
    int32_t blocks[4] = {7, 7, 7, 7};
    kvp_load load = {.struct_size = sizeof(load), .entries = {0, 4}, .blocks = blocks};
    observed before = observe(&w);
    assert_status(KVP_E_NEVER, kvp_load_begin(w.cache, w.ns, &prompt, &load));
    assert_shortage_in(&w, KVP_HOST, KVP_E_NEVER, 0, 1);
    load.entries = (kvp_range){0, 2};
    load.spare_blocks = 6;
    assert_status(KVP_E_NEVER, kvp_load_begin(w.cache, w.ns, &prompt, &load));
    assert_shortage_in(&w, KVP_HOST, KVP_E_NEVER, 0, 1);
    load.spare_blocks = 0;
    load.entries = (kvp_range){0, 5};
    assert_status(KVP_E_ARG, kvp_load_begin(w.cache, w.ns, &prompt, &load));
    load.entries = (kvp_range){2, 2};
    assert_status(KVP_E_ARG, kvp_load_begin(w.cache, w.ns, &prompt, &load));
    load.entries = (kvp_range){0, 2};
    load.group = 1;
    assert_status(KVP_E_ARG, kvp_load_begin(w.cache, w.ns, &prompt, &load));
    load.group = 0;
    prompt.uncached = &(kvp_range){5, 6};
    prompt.n_uncached = 1;
    assert_status(KVP_E_STATE, kvp_load_begin(w.cache, w.ns, &prompt, &load));
    assert_status(KVP_E_HANDLE, kvp_load_begin(w.cache, (kvp_ns){1}, &prompt, &load));
    load.blocks = NULL;
    assert_status(KVP_E_ARG, kvp_load_begin(w.cache, w.ns, &prompt, &load));
    assert_status(KVP_E_ARG, kvp_load_done(w.cache, 0, (const uint8_t[]){1}, 1, NULL));
    assert_status(KVP_E_ARG, kvp_load_cancel(w.cache, 1));
    assert_int_equal(blocks[0], 7);
    assert_int_equal(load.number, 0);
    assert_observed(&w, &before, __FILE__, __LINE__);
    load.blocks = blocks;
    load.entries = (kvp_range){0, 1}; /* before what must not be cached */
    assert_ok(kvp_load_begin(w.cache, w.ns, &prompt, &load));
    assert_unchanged(
        &w, assert_status(KVP_E_ARG, kvp_load_done(w.cache, 1, (const uint8_t[]){2}, 1, NULL)));
    assert_unchanged(
        &w, assert_status(KVP_E_ARG, kvp_load_done(w.cache, 1, (const uint8_t[]){1, 1}, 2, NULL)));
}

TEST(test_a_swap_finds_what_a_load_must_spare)
{
    scoped_world w = lend_world(8, 7);
    kvp_load load;
    int32_t blocks[3];
    const kvp_seq a = open_done(&w, ints(0), 16);
    kvp_prompt prompt = prompt_of(ints(100), 12);
    load = (kvp_load){.struct_size = sizeof(load), .entries = {0, 3}, .blocks = blocks};
    load.spare_blocks = 5;
    assert_status(KVP_E_NEVER, kvp_load_begin(w.cache, w.ns, &prompt, &load));
    load.spare_blocks = 4;
    assert_ok(kvp_load_begin(w.cache, w.ns, &prompt, &load));
    assert_moved(swap_out(&w, &a, 1), 4, 0, 0, 4);
    assert_ok(kvp_load_cancel(w.cache, 1));
}

/* --------------------------------------------------------------------------- lent, and mirrored */

TEST(test_lent_blocks_stay)
{
    scoped_world w = lend_world(8, 3); /* 1 may be lent */
    int32_t host[2];
    kvp_mirrored mirrored;
    const kvp_seq seq = open_done(&w, ints(0), 8);
    assert_ok(kvp_cache_mirror(w.cache, (const int32_t[]){1, 2}, 2, 0, host, &mirrored));
    assert_int_equal(mirrored.copied, 2);
    assert_unchanged(&w, assert_status(KVP_E_IN_FLIGHT, kvp_cache_lend(w.cache, host, 1)));
    assert_plan(&w, TO_HOST(0, 1, 1, 4), TO_HOST(0, 2, 2, 4));
    assert_status(KVP_E_IN_FLIGHT, kvp_cache_lend(w.cache, host, 1));
    assert_status(KVP_E_ARG, kvp_plan_done(w.cache, 2));
    assert_ok(kvp_plan_done(w.cache, 1));
    assert_unchanged(&w, assert_status(KVP_E_AGAIN, kvp_cache_lend(w.cache, host, 2)));
    assert_shortage(&w, KVP_E_AGAIN, 1, 0);
    assert_ok(kvp_cache_lend(w.cache, host, 1));
    assert_ok(kvp_cache_lend(w.cache, host, 1)); /* once more */
    assert_int_equal(host_block(&w, host[0]).ref_count, 2);
    assert_int_equal(stats_of(&w).host_lent_blocks, 1);
    assert_host_queue(&w, 0, 3, 2);
    const kvp_seq other = open_done(&w, ints(100), 12);
    assert_status(KVP_E_NO_BLOCKS, kvp_seq_swap_out(w.cache, &other, 1, NULL));
    const int32_t thrice[] = {host[0], host[0], host[0]};
    assert_unchanged(&w, assert_status(KVP_E_ARG, kvp_cache_give_back(w.cache, thrice, 3)));
    assert_ok(kvp_cache_give_back(w.cache, thrice, 2));
    assert_host_queue(&w, 0, 3, 2, 1);
    assert_moved(swap_out(&w, &other, 1), 3, 0, 0, 3);
    close_seq(&w, seq);
}

/* What is computed while a store reads it is saved as all that is cached is. */
TEST(test_a_snapshot_of_what_is_computed_and_loaded)
{
    scoped_world w = lend_world(8, 7);
    int32_t blocks[2];
    kvp_load load;
    kvp_snapshot_report report;
    kvp_config config;
    assert_ok(begin_load(&w, 0, 8, (kvp_range){0, 2}, &load, blocks));
    assert_int_equal(load.n_blocks, 2);
    leave_cached(&w, ints(0), 8);
    leave_cached(&w, ints(100), 8);
    snap s = snap_of(w.cache, NULL);
    world r = {0};
    assert_ok(kvp_cache_config_get(w.cache, &config));
    assert_ok(kvp_cache_create(&config, NULL, 0, &r.cache));
    assert_ok(snap_load(&s, r.cache, &report));
    assert_report(&report);
    assert_sound(r.cache);
    assert_fields(report, blocks, 4, saved_blocks, 4);
    assert_ok(kvp_load_done(w.cache, load.number, (const uint8_t[]){1, 1}, 2, NULL));
    kvp_cache_destroy(r.cache);
    snap_drop(&s);
}

/* A block that a store reads is saved as others are; one that it fills has no content yet. */
TEST(test_a_snapshot_of_what_is_lent)
{
    scoped_world w = lend_world(8, 7);
    int32_t host[2], blocks[2];
    kvp_load load;
    kvp_snapshot_report report;
    kvp_config config;
    leave_cached(&w, ints(0), 8);
    assert_ok(kvp_cache_mirror(w.cache, (const int32_t[]){1, 2}, 2, 0, host, NULL));
    run_plan(&w);
    assert_ok(kvp_cache_lend(w.cache, host, 1));
    assert_ok(begin_load(&w, 100, 8, (kvp_range){0, 2}, &load, blocks));
    snap s = snap_of(w.cache, NULL);
    world r = {0};
    assert_ok(kvp_cache_config_get(w.cache, &config));
    assert_ok(kvp_cache_create(&config, NULL, 0, &r.cache));
    assert_ok(snap_load(&s, r.cache, &report));
    assert_report(&report);
    assert_sound(r.cache);
    assert_fields(report, blocks, 4, units, 4);
    assert_ok(kvp_ns_open(r.cache, "", 0, &r.ns));
    assert_int_equal(match(&r, ints(0), 8).hit_tokens, 8);
    assert_int_equal(match(&r, ints(100), 8).hit_tokens, 0);
    assert_int_equal(stats_of(&r).host_cached_blocks, 2);
    assert_int_equal(stats_of(&r).host_lent_blocks + stats_of(&r).host_loading_blocks, 0);
    assert_ok(kvp_load_done(w.cache, load.number, (const uint8_t[]){1, 1}, 2, NULL));
    assert_ok(kvp_cache_give_back(w.cache, host, 1));
    assert_int_equal(match(&w, ints(100), 8).hit_tokens, 8);
    kvp_cache_destroy(r.cache);
    snap_drop(&s);
}

TEST(test_a_mirror_keeps_both_when_its_step_is_done)
{
    kvp_config config = steps_config(4, 4, 8, 4);
    config.max_loads = 1;
    scoped_world w = make_world(&config);
    int32_t host[3];
    kvp_mirrored mirrored;
    kvp_block_origin origin;
    const kvp_seq seq = open_done(&w, ints(0), 9);
    assert_ok(kvp_cache_mirror(w.cache, (const int32_t[]){1, 3, 7}, 3, 0, host, &mirrored));
    assert_int_equal(mirrored.copied, 1);
    assert_int_equal(mirrored.left_out, 2); /* one is not full, one is free */
    assert_step(&w, 1, TO_HOST(0, 1, 1, 4));
    assert_status(KVP_E_STATE, kvp_cache_lend(w.cache, host, 1)); /* nothing is known of it */
    assert_ok(kvp_step_done(w.cache, 1, NULL));
    assert_ok(kvp_block_origin_get(w.cache, KVP_HOST, host[0], &origin));
    assert_fields(origin, after, 1, written, 1);
    assert_ok(kvp_cache_lend(w.cache, host, 1));
    assert_ok(kvp_cache_mirror(w.cache, (const int32_t[]){1}, 1, 0, host, &mirrored));
    assert_int_equal(mirrored.found, 1);
    assert_int_equal(host[0], 1);
    assert_ok(kvp_cache_mirror(w.cache, (const int32_t[]){2}, 1, 3, host, &mirrored));
    assert_int_equal(mirrored.copied, 0); /* three are to be spared, and there are no more */
    assert_int_equal(block_of(&w, 1).state, KVP_BLOCK_HELD);
    assert_status(KVP_E_STATE, kvp_plan_done(w.cache, 0));
    assert_status(KVP_E_ARG, kvp_cache_mirror(w.cache, (const int32_t[]){9}, 1, 0, host, NULL));
    close_seq(&w, seq);
}

TEST(test_an_invalidation_shows_in_the_generation)
{
    scoped_world w = lend_world(4, 4);
    int32_t host[1];
    kvp_block_origin before, after;
    const kvp_seq seq = open_done(&w, ints(0), 4);
    assert_ok(kvp_cache_mirror(w.cache, (const int32_t[]){1}, 1, 0, host, NULL));
    run_plan(&w);
    assert_ok(kvp_cache_lend(w.cache, host, 1));
    assert_ok(kvp_block_origin_get(w.cache, KVP_HOST, host[0], &before));
    assert_ok(kvp_seq_invalidate(w.cache, seq, 0, NULL, 0, NULL));
    assert_ok(kvp_block_origin_get(w.cache, KVP_HOST, host[0], &after));
    assert_true(after.generation > before.generation);
    assert_int_equal(after.n_tokens, 0);
    assert_int_equal(host_block(&w, host[0]).state, KVP_BLOCK_HELD);
    assert_ok(kvp_cache_give_back(w.cache, host, 1));
    assert_int_equal(host_block(&w, host[0]).state, KVP_BLOCK_FREE);
}

/* A block of a namespace that was closed counts for nobody, also when it is put back. */
TEST(test_a_refusal_puts_back_what_nobody_owns)
{
    kvp_config config = tiers_config(4, 4, 4, 4);
    config.max_loads = 1;
    config.quotas = 1;
    config.lent_blocks = 1;
    config.max_namespaces = 2;
    scoped_world w = make_world(&config);
    kvp_ns other;
    kvp_seq seq;
    int32_t host[2];
    const kvp_prompt prompt = prompt_of(ints(0), 8);
    assert_ok(kvp_ns_open(w.cache, "a", 1, &other));
    assert_ok(kvp_seq_open(w.cache, other, &prompt, &seq, NULL));
    assert_ok(kvp_seq_commit(w.cache, seq, 8));
    assert_ok(kvp_cache_mirror(w.cache, (const int32_t[]){1, 2}, 2, 0, host, NULL));
    close_seq(&w, seq);
    run_plan(&w);
    assert_ok(kvp_ns_close(w.cache, other));
    assert_unchanged(&w, assert_status(KVP_E_AGAIN, kvp_cache_lend(w.cache, host, 2)));
    assert_ok(kvp_cache_lend(w.cache, host, 1));
    assert_ok(kvp_cache_give_back(w.cache, host, 1));
}

/* ----------------------------------------------------------------- the cold end, and what it is */

TEST(test_the_cold_end_in_pieces_and_whole)
{
    scoped_world w = lend_world(8, 4);
    kvp_cold_cursor cursor = {0};
    kvp_cold cold[8];
    uint32_t n;
    kvp_prompt prompt = prompt_of(ints(100), 8);
    prompt.retention = 2;
    const kvp_seq kept = open_with(&w, &prompt, NULL);
    assert_ok(kvp_seq_commit(w.cache, kept, 8));
    leave_cached(&w, ints(0), 8);
    close_seq(&w, kept);
    assert_ok(kvp_cache_cold_end(w.cache, KVP_DEVICE, &cursor, NULL, 0, &n));
    assert_int_equal(n, 4);
    assert_ok(kvp_cache_cold_end(w.cache, KVP_DEVICE, &cursor, cold, 8, &n));
    assert_int_equal(n, 4);
    assert_int_equal(cursor.ended, 1);
    const int32_t order[] = {4, 3, 2, 1}; /* tails first; class 2 behind class 0 */
    cursor = (kvp_cold_cursor){0};
    for (uint32_t i = 0; i < 4; i++) {
        kvp_cold one;
        assert_fields(cold[i], block, order[i], retention, i < 2 ? 0 : 2, n_tokens,
                      i % 2 == 0 ? 8 : 4, findable, 1, elsewhere, 0);
        assert_ok(kvp_cache_cold_end(w.cache, KVP_DEVICE, &cursor, &one, 1, &n));
        assert_memory_equal(&one, &cold[i], sizeof(one));
    }
    assert_ok(kvp_cache_cold_end(w.cache, KVP_DEVICE, &cursor, cold, 1, &n));
    assert_int_equal(n, 0);
    /* The block at which it stood is hit: from the cold end again. */
    cursor = (kvp_cold_cursor){.block = 4, .generation = cold[0].generation};
    const kvp_seq hit = open_seq(&w, ints(0), 8, NULL);
    assert_ok(kvp_cache_cold_end(w.cache, KVP_DEVICE, &cursor, cold, 8, &n));
    assert_int_equal(n, 2);
    assert_int_equal(cold[0].block, 2);
    /* It has other content since. */
    cursor = (kvp_cold_cursor){.block = 2, .generation = cold[0].generation - 1};
    assert_ok(kvp_cache_cold_end(w.cache, KVP_DEVICE, &cursor, cold, 8, &n));
    assert_int_equal(n, 2);
    assert_status(KVP_E_ARG, kvp_cache_cold_end(w.cache, 2, &cursor, cold, 8, &n));
    close_seq(&w, hit);
}

TEST(test_an_origin_gives_the_prompt_back)
{
    kvp_config config = tiers_config(4, 2, 8, 4);
    config.max_unit_keys = 3;
    config.max_loads = 1;
    scoped_world w = make_world(&config);
    const kvp_key keys[] = {{1, 1, 5, 3, "abc"}, {2, 1, 2, 0, NULL}, {1, 6, 7, 1, "x"}};
    kvp_prompt prompt = prompt_of(ints(0), 8);
    kvp_block_origin origin;
    kvp_key got[3];
    int32_t tokens[8];
    kvp_hash hashes[4];
    uint32_t n_tokens, n_keys;
    prompt.keys = keys;
    prompt.n_keys = 3;
    const kvp_seq seq = open_with(&w, &prompt, NULL);
    assert_ok(kvp_seq_commit(w.cache, seq, 8));
    assert_ok(kvp_block_origin_get(w.cache, KVP_DEVICE, 2, &origin));
    assert_true(origin.ns.bits == w.ns.bits);
    assert_fields(origin, first, 4, n_tokens, 8, n_keys, 3);
    assert_status(KVP_E_TOO_SMALL, kvp_block_prefix(w.cache, KVP_DEVICE, 2, tokens, 7, &n_tokens));
    assert_status(KVP_E_TOO_SMALL, kvp_block_keys(w.cache, KVP_DEVICE, 2, got, 2, &n_keys));
    assert_ok(kvp_block_prefix(w.cache, KVP_DEVICE, 2, tokens, 8, &n_tokens));
    assert_ok(kvp_block_keys(w.cache, KVP_DEVICE, 2, got, 3, &n_keys));
    assert_memory_equal(tokens, ints(0), sizeof(tokens));
    assert_int_equal(got[0].begin, 1);
    assert_int_equal(got[0].end, 5); /* one behind the first token of the last unit it touches */
    assert_memory_equal(got[0].bytes, "abc", 3);
    assert_int_equal(got[1].end, 2);
    assert_int_equal(got[2].begin, 6);
    const kvp_hash_input input = {
        .unit_tokens = 2, .n_tokens = 8, .tokens = tokens, .n_keys = n_keys, .keys = got};
    assert_ok(kvp_hash_units(&input, &origin.root, hashes));
    assert_memory_equal(&hashes[3], &origin.hash, sizeof(kvp_hash));
    assert_memory_equal(&hashes[1], &origin.parent, sizeof(kvp_hash));
    assert_ok(kvp_ns_flush(w.cache, w.ns));
    assert_ok(kvp_block_origin_get(w.cache, KVP_DEVICE, 2, &origin));
    assert_int_equal(origin.ns.bits, 0);
    assert_ok(kvp_block_origin_get(w.cache, KVP_DEVICE, 8, &origin)); /* nothing in it */
    assert_fields(origin, n_tokens, 0, written, 0);
    assert_status(KVP_E_ARG, kvp_block_origin_get(w.cache, KVP_DEVICE, 9, &origin));
    close_seq(&w, seq);
}

/* ------------------------------------------------------------------------------- configurations */

TEST(test_what_is_refused_without_loads)
{
    world w = tiers_world(4, 200);
    kvp_load load;
    int32_t blocks[1];
    kvp_why why;
    leave_cached(&w, ints(0), 4);
    assert_status(KVP_E_STATE, kvp_cache_lend(w.cache, (const int32_t[]){1}, 1));
    assert_status(KVP_E_STATE, kvp_cache_give_back(w.cache, (const int32_t[]){1}, 1));
    for (int32_t b = 1; b <= 200; b++) { /* there is no array of what is lent */
        assert_status(KVP_E_ARG, kvp_cache_give_back(w.cache, (const int32_t[]){b, -1}, 2));
        assert_shortage(&w, KVP_E_ARG, 0, 0);
    }
    assert_status(KVP_E_STATE, kvp_plan_done(w.cache, 0));
    assert_status(KVP_E_STATE, begin_load(&w, 0, 4, (kvp_range){0, 1}, &load, blocks));
    assert_ok(kvp_cache_mirror(w.cache, (const int32_t[]){1}, 1, 0, blocks, NULL));
    assert_int_equal(blocks[0], 1);
    end_world(&w);
    w = small_world(4);
    assert_status(KVP_E_STATE, kvp_cache_mirror(w.cache, (const int32_t[]){1}, 1, 0, blocks, NULL));
    end_world(&w);
    kvp_config config = tiers_config(4, 4, 4, 4);
    config.lent_blocks = 1;
    assert_status(KVP_E_ARG, kvp_config_check(&config, &why));
    assert_string_equal(why.field, "lent_blocks");
    config.max_loads = 4097;
    assert_status(KVP_E_ARG, kvp_config_check(&config, &why));
    assert_string_equal(why.field, "max_loads");
    config.max_loads = 1;
    config.lent_blocks = 5;
    assert_status(KVP_E_ARG, kvp_config_check(&config, &why));
    config.lent_blocks = 4;
    assert_ok(kvp_config_check(&config, &why));
    config.host_blocks = 0;
    assert_status(KVP_E_ARG, kvp_config_check(&config, &why));
    assert_string_equal(why.field, "max_loads");
}

TEST_MAIN(NULL, NULL)
