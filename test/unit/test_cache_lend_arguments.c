/* Stores (lend.h): every pointer that may not be NULL, numbers that are none, capacities that are
 * too small, and that nothing is changed then; keys that are nearly the same; as many holds as can
 * be. */
#include <stdlib.h>
#include <string.h>

#include <kvpager/lend.h>

#include "tiers.h"

/* Blocks 1 and 2 of device and host have ints(0); block 2 of the device is held. */
static world full_world(kvp_seq *out_seq)
{
    kvp_config config = tiers_config(4, 4, 8, 8);
    config.max_loads = 2;
    world w = make_world(&config);
    int32_t host[2];
    *out_seq = open_done(&w, ints(0), 8);
    assert_ok(kvp_cache_mirror(w.cache, (const int32_t[]){1, 2}, 2, 0, host, NULL));
    assert_true(host[0] == 1 && host[1] == 2);
    drop_plan(&w);
    assert_ok(kvp_plan_done(w.cache, 1));
    return w;
}

TEST(test_reads_refuse_what_is_missing)
{
    kvp_seq seq;
    scoped_world w = full_world(&seq);
    kvp_cold_cursor cursor = {0};
    kvp_cold cold[4];
    kvp_block_origin origin;
    kvp_key keys[2];
    int32_t tokens[8];
    uint32_t n = 77;
    observed before = observe(&w);
    assert_status(KVP_E_ARG, kvp_cache_cold_end(NULL, KVP_HOST, &cursor, cold, 4, &n));
    assert_status(KVP_E_ARG, kvp_cache_cold_end(w.cache, 2, &cursor, cold, 4, &n));
    assert_status(KVP_E_ARG, kvp_cache_cold_end(w.cache, KVP_HOST, NULL, cold, 4, &n));
    assert_status(KVP_E_ARG, kvp_cache_cold_end(w.cache, KVP_HOST, &cursor, NULL, 1, &n));
    assert_status(KVP_E_ARG, kvp_cache_cold_end(w.cache, KVP_HOST, &cursor, cold, 4, NULL));
    cursor.ended = 2;
    assert_status(KVP_E_ARG, kvp_cache_cold_end(w.cache, KVP_HOST, &cursor, cold, 4, &n));
    cursor = (kvp_cold_cursor){.block = -1};
    assert_status(KVP_E_ARG, kvp_cache_cold_end(w.cache, KVP_HOST, &cursor, cold, 4, &n));
    assert_status(KVP_E_ARG, kvp_block_origin_get(NULL, KVP_HOST, 1, &origin));
    assert_status(KVP_E_ARG, kvp_block_origin_get(w.cache, 2, 1, &origin));
    assert_status(KVP_E_ARG, kvp_block_origin_get(w.cache, KVP_HOST, -1, &origin));
    assert_status(KVP_E_ARG, kvp_block_origin_get(w.cache, KVP_HOST, 9, &origin));
    assert_status(KVP_E_ARG, kvp_block_origin_get(w.cache, KVP_HOST, 1, NULL));
    assert_status(KVP_E_ARG, kvp_block_prefix(NULL, KVP_HOST, 1, tokens, 8, &n));
    assert_status(KVP_E_ARG, kvp_block_prefix(w.cache, 2, 1, tokens, 8, &n));
    assert_status(KVP_E_ARG, kvp_block_prefix(w.cache, KVP_HOST, -1, tokens, 8, &n));
    assert_status(KVP_E_ARG, kvp_block_prefix(w.cache, KVP_HOST, 9, tokens, 8, &n));
    assert_status(KVP_E_ARG, kvp_block_prefix(w.cache, KVP_HOST, 1, NULL, 1, &n));
    assert_status(KVP_E_ARG, kvp_block_prefix(w.cache, KVP_HOST, 1, tokens, 8, NULL));
    assert_status(KVP_E_ARG, kvp_block_keys(NULL, KVP_HOST, 1, keys, 2, &n));
    assert_status(KVP_E_ARG, kvp_block_keys(w.cache, 2, 1, keys, 2, &n));
    assert_status(KVP_E_ARG, kvp_block_keys(w.cache, KVP_HOST, -1, keys, 2, &n));
    assert_status(KVP_E_ARG, kvp_block_keys(w.cache, KVP_HOST, 9, keys, 2, &n));
    assert_status(KVP_E_ARG, kvp_block_keys(w.cache, KVP_HOST, 1, NULL, 1, &n));
    assert_status(KVP_E_ARG, kvp_block_keys(w.cache, KVP_HOST, 1, keys, 2, NULL));
    assert_int_equal(n, 77);
    assert_observed(&w, &before, __FILE__, __LINE__);
    close_seq(&w, seq);
}

TEST(test_calls_refuse_what_is_missing)
{
    kvp_seq seq;
    scoped_world w = full_world(&seq);
    const kvp_prompt prompt = prompt_of(ints(100), 8);
    const uint8_t whole[] = {1, 1};
    const int32_t one[] = {1};
    int32_t host[2];
    kvp_load load = {.struct_size = sizeof(load), .entries = {0, 2}};
    observed before = observe(&w);
    assert_status(KVP_E_ARG, kvp_plan_done(NULL, 0));
    assert_status(KVP_E_ARG, kvp_cache_mirror(NULL, one, 1, 0, host, NULL));
    assert_status(KVP_E_ARG, kvp_cache_mirror(w.cache, NULL, 1, 0, host, NULL));
    assert_status(KVP_E_ARG, kvp_cache_mirror(w.cache, one, 1, 0, NULL, NULL));
    assert_status(KVP_E_ARG, kvp_cache_lend(NULL, one, 1));
    assert_status(KVP_E_ARG, kvp_cache_lend(w.cache, NULL, 1));
    assert_status(KVP_E_ARG, kvp_cache_give_back(NULL, one, 1));
    assert_status(KVP_E_ARG, kvp_cache_give_back(w.cache, NULL, 1));
    assert_status(KVP_E_ARG, kvp_load_begin(w.cache, w.ns, &prompt, NULL));
    assert_status(KVP_E_ARG, kvp_load_begin(w.cache, w.ns, &prompt, &load));
    load.blocks = host;
    assert_status(KVP_E_ARG, kvp_load_begin(NULL, w.ns, &prompt, &load));
    assert_status(KVP_E_ARG, kvp_load_begin(w.cache, w.ns, NULL, &load));
    assert_status(KVP_E_ARG, kvp_load_done(NULL, 1, whole, 2, NULL));
    assert_status(KVP_E_ARG, kvp_load_done(w.cache, 1, NULL, 2, NULL));
    assert_status(KVP_E_ARG, kvp_load_cancel(NULL, 1));
    assert_ok(kvp_cache_mirror(w.cache, NULL, 0, 0, NULL, NULL));
    assert_ok(kvp_cache_lend(w.cache, NULL, 0));
    assert_ok(kvp_cache_give_back(w.cache, NULL, 0));
    assert_observed(&w, &before, __FILE__, __LINE__);
    close_seq(&w, seq);
}

TEST(test_capacity_0_asks_for_numbers)
{
    kvp_seq seq;
    world w = full_world(&seq);
    uint32_t n;
    kvp_cold cold;
    kvp_cold_cursor ended = {.ended = 1};
    assert_ok(kvp_block_prefix(w.cache, KVP_HOST, 2, NULL, 0, &n));
    assert_int_equal(n, 8);
    assert_ok(kvp_block_keys(w.cache, KVP_HOST, 2, NULL, 0, &n));
    assert_int_equal(n, 0);
    assert_ok(kvp_block_prefix(w.cache, KVP_HOST, 8, NULL, 0, &n)); /* nothing in it */
    assert_int_equal(n, 0);
    assert_ok(kvp_block_keys(w.cache, KVP_HOST, 8, NULL, 0, &n));
    assert_int_equal(n, 0);
    assert_ok(kvp_cache_cold_end(w.cache, KVP_HOST, &ended, &cold, 1, &n));
    assert_int_equal(n, 0);
    close_seq(&w, seq);
    end_world(&w);
    w = small_world(4); /* without a host tier its end is there at once */
    ended = (kvp_cold_cursor){0};
    assert_ok(kvp_cache_cold_end(w.cache, KVP_HOST, &ended, &cold, 1, &n));
    assert_true(n == 0 && ended.ended);
    end_world(&w);
}

/* Keys that begin at one token, and differ in type, length or bytes, go on for themselves. */
TEST(test_keys_that_are_nearly_the_same)
{
    kvp_config config = tiers_config(4, 2, 8, 4);
    config.max_unit_keys = 5;
    scoped_world w = make_world(&config);
    const kvp_key keys[] = {{1, 1, 7, 2, "ab"},
                            {1, 1, 3, 2, "ac"},
                            {1, 1, 5, 1, "a"},
                            {1, 1, 2, 0, NULL},
                            {2, 1, 5, 2, "ab"}};
    const uint32_t ends[] = {7, 3, 5, 2, 5};
    kvp_prompt prompt = prompt_of(ints(0), 8);
    kvp_key got[5];
    uint32_t n;
    prompt.keys = keys;
    prompt.n_keys = 5;
    const kvp_seq seq = open_with(&w, &prompt, NULL);
    assert_ok(kvp_seq_commit(w.cache, seq, 8));
    assert_ok(kvp_block_keys(w.cache, KVP_DEVICE, 2, NULL, 0, &n));
    assert_int_equal(n, 5);
    assert_ok(kvp_block_keys(w.cache, KVP_DEVICE, 2, got, 5, &n));
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = 0; /* keys that begin at one token come in any order */
        while (k < 5 &&
               (keys[k].type != got[i].type || keys[k].n_bytes != got[i].n_bytes ||
                (got[i].n_bytes > 0 && memcmp(keys[k].bytes, got[i].bytes, got[i].n_bytes) != 0)))
            k++;
        assert_true(k < 5);
        assert_fields(got[i], begin, 1, end, ends[k]);
    }
    close_seq(&w, seq);
}

TEST(test_a_block_is_lent_so_often_and_not_more_often)
{
    enum { OFTEN = 1 << 20 };
    kvp_seq seq;
    scoped_world w = full_world(&seq);
    int32_t *blocks = malloc((OFTEN + 1) * sizeof(*blocks));
    assert_non_null(blocks);
    for (uint32_t i = 0; i <= OFTEN; i++)
        blocks[i] = 2;
    assert_unchanged(&w, assert_status(KVP_E_AGAIN, kvp_cache_lend(w.cache, blocks, OFTEN + 1)));
    assert_ok(kvp_cache_lend(w.cache, blocks, OFTEN));
    assert_status(KVP_E_AGAIN, kvp_cache_lend(w.cache, blocks, 1));
    assert_status(KVP_E_ARG, kvp_cache_give_back(w.cache, blocks, OFTEN + 1));
    assert_ok(kvp_cache_give_back(w.cache, blocks, OFTEN));
    free(blocks);
    close_seq(&w, seq);
}

TEST_MAIN(NULL, NULL)
