/* The worked example of the annotated nano-vllm, block by block, and of its flow chart the tokens
 * that must not be cached.
 *
 *   A: [1 2 3 4|5 6 7 8]
 *   B: [1 2 3 4|5 6 7 8|9 10]     shares both blocks of A
 *   C: [0 2 3 4|5 6 7 8|9 10]     differs in its first token: shares nothing, although the tokens
 *                                 of its second block equal A's
 */
#include <string.h>

#include "mocka.h"

#include <kvpager/all.h>

enum { S = 4, USABLE = 9, IMAGE_TOKEN = 999 };

static const int32_t prompt_a[] = {1, 2, 3, 4, 5, 6, 7, 8};
static const int32_t prompt_b[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
static const int32_t prompt_c[] = {0, 2, 3, 4, 5, 6, 7, 8, 9, 10};

typedef struct fixture {
    kvp_cache *cache;
    kvp_ns ns;
} fixture;

static fixture set_up(const int32_t *uncached, uint32_t n_uncached)
{
    fixture f;
    kvp_config config;
    kvp_config_init(&config);
    config.block_tokens = S;
    config.n_blocks = USABLE + 1;
    config.uncached_tokens = uncached;
    config.n_uncached_tokens = n_uncached;
    assert_int_equal(kvp_cache_create(&config, NULL, 0, &f.cache), KVP_OK);
    assert_int_equal(kvp_ns_open(f.cache, "seed", 4, &f.ns), KVP_OK);
    return f;
}

static void tear_down(fixture *f)
{
    assert_int_equal(kvp_cache_check(f->cache, 3, NULL), KVP_OK);
    kvp_cache_destroy(f->cache);
}

static kvp_seq open_prompt(fixture *f, const int32_t *tokens, uint32_t n, kvp_open_info *info)
{
    kvp_prompt prompt = {.struct_size = sizeof prompt, .tokens = tokens, .n_tokens = n};
    kvp_seq seq;
    assert_int_equal(kvp_seq_open(f->cache, f->ns, &prompt, &seq, info), KVP_OK);
    return seq;
}

static kvp_seq open_committed(fixture *f, const int32_t *tokens, uint32_t n, kvp_open_info *info)
{
    kvp_seq seq = open_prompt(f, tokens, n, info);
    assert_int_equal(kvp_seq_commit(f->cache, seq, n), KVP_OK);
    return seq;
}

static void expect_row(const fixture *f, kvp_seq seq, const int32_t *blocks, uint32_t n)
{
    const int32_t *row;
    uint32_t n_blocks;
    assert_int_equal(kvp_seq_row(f->cache, seq, 0, &row, &n_blocks), KVP_OK);
    assert_int_equal(n_blocks, n);
    assert_memory_equal(row, blocks, n * sizeof *row);
}

static kvp_block_info block(const fixture *f, int32_t id)
{
    kvp_block_info info;
    assert_int_equal(kvp_block_info_get(f->cache, 0, KVP_DEVICE, id, &info), KVP_OK);
    return info;
}

static void expect_close(fixture *f, kvp_seq seq, uint32_t freed, uint32_t cached)
{
    kvp_released released;
    assert_int_equal(kvp_seq_close(f->cache, seq, &released), KVP_OK);
    assert_fields(released, freed_blocks, freed, cached_blocks, cached);
}

/* Opens A, B and C and checks all that the example says about them. */
static void open_abc(fixture *f, kvp_seq out[3])
{
    kvp_open_info info;
    out[0] = open_committed(f, prompt_a, 8, &info);
    expect_row(f, out[0], (int32_t[]){1, 2}, 2);
    assert_fields(info, cached_tokens, 0, taken_blocks, 2, stop, KVP_STOP_MISS);

    out[1] = open_committed(f, prompt_b, 10, &info);
    expect_row(f, out[1], (int32_t[]){1, 2, 3}, 3);
    assert_fields(info, cached_tokens, 8, shared_blocks, 2);
    assert_int_equal(info.cached_blocks, 0); /* A holds them: they cost nothing */
    assert_fields(info, taken_blocks, 1, stop, KVP_STOP_END);

    out[2] = open_committed(f, prompt_c, 10, &info);
    expect_row(f, out[2], (int32_t[]){4, 5, 6}, 3);
    assert_fields(info, cached_tokens, 0, taken_blocks, 3, stop, KVP_STOP_MISS);
}

TEST(test_a_b_and_c_get_these_blocks)
{
    fixture f = set_up(NULL, 0);
    kvp_seq seqs[3];
    open_abc(&f, seqs);
    static const uint32_t references[] = {0, 2, 2, 1, 1, 1, 1, 0};
    for (int32_t id = 1; id <= 7; id++) {
        assert_fields(block(&f, id), ref_count, references[id], state,
                      id < 7 ? KVP_BLOCK_HELD : KVP_BLOCK_FREE);
    }
    assert_int_equal(block(&f, 3).sealed_units, 0); /* partial blocks are nobody else's */
    assert_int_equal(block(&f, 6).sealed_units, 0);
    tear_down(&f);
}

TEST(test_equal_tokens_after_different_prefixes_are_different_nodes)
{
    fixture f = set_up(NULL, 0);
    kvp_seq seqs[3];
    open_abc(&f, seqs);
    int32_t of_a[S], of_c[S];
    uint32_t n_a, n_c;
    assert_int_equal(kvp_block_tokens(f.cache, 0, KVP_DEVICE, 2, of_a, &n_a), KVP_OK);
    assert_int_equal(kvp_block_tokens(f.cache, 0, KVP_DEVICE, 5, of_c, &n_c), KVP_OK);
    assert_int_equal(n_a, S);
    assert_int_equal(n_c, S);
    assert_memory_equal(of_a, of_c, sizeof of_a);
    kvp_hash hash_a = block(&f, 2).hash;
    kvp_hash hash_c = block(&f, 5).hash;
    assert_memory_not_equal(&hash_a, &hash_c, sizeof hash_a);
    tear_down(&f);
}

/* The chain as the flow chart draws it, made by the pure functions. */
TEST(test_block_hashes_are_the_pure_functions_chain)
{
    fixture f = set_up(NULL, 0);
    kvp_seq seqs[3];
    open_abc(&f, seqs);
    kvp_hash root, hashes[2];
    kvp_hash_input input = {.unit_tokens = S, .n_tokens = 10, .tokens = prompt_b};
    assert_int_equal(kvp_hash_root(S, 0, "seed", 4, &root), KVP_OK);
    assert_int_equal(kvp_hash_units(&input, &root, hashes), KVP_OK);
    for (int32_t id = 1; id <= 2; id++) {
        kvp_hash hash = block(&f, id).hash;
        assert_memory_equal(&hash, &hashes[id - 1], sizeof hash);
    }
    tear_down(&f);
}

/* Close A: B still holds everything. Close B: its partial block goes to the head, then 2 before 1
 * to the tail. Close C the same. Queue, head first:  6 3 7 8 9 2 1 5 4  */
TEST(test_blocks_come_back_in_this_order)
{
    fixture f = set_up(NULL, 0);
    kvp_seq seqs[3];
    open_abc(&f, seqs);
    kvp_hash hash_1 = block(&f, 1).hash;
    kvp_hash hash_2 = block(&f, 2).hash;
    expect_close(&f, seqs[0], 0, 0);
    assert_int_equal(block(&f, 1).ref_count, 1);
    expect_close(&f, seqs[1], 1, 2);
    expect_close(&f, seqs[2], 1, 2);

    int32_t tokens[USABLE * S];
    for (int32_t i = 0; i < USABLE * S; i++)
        tokens[i] = 1000 + i;
    kvp_open_info info;
    kvp_seq seq = open_prompt(&f, tokens, USABLE * S, &info);
    expect_row(&f, seq, (int32_t[]){6, 3, 7, 8, 9, 2, 1, 5, 4}, USABLE);
    assert_int_equal(info.evicted_blocks, 4);

    static const int32_t victims[] = {2, 1, 5, 4};
    const kvp_evicted *evicted;
    uint32_t n_evicted;
    assert_int_equal(kvp_cache_evicted(f.cache, &evicted, &n_evicted), KVP_OK);
    assert_int_equal(n_evicted, 4);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(evicted[i].block, victims[i]);
    assert_memory_equal(&evicted[0].hash, &hash_2, sizeof hash_2);
    assert_memory_equal(&evicted[1].hash, &hash_1, sizeof hash_1);
    tear_down(&f);
}

/* Nobody holds them any more, but they are still there: taken back out of the queue's middle. */
TEST(test_a_is_found_again_after_everybody_left)
{
    fixture f = set_up(NULL, 0);
    kvp_seq seqs[3];
    open_abc(&f, seqs);
    for (int i = 0; i < 3; i++)
        assert_int_equal(kvp_seq_close(f.cache, seqs[i], NULL), KVP_OK);
    kvp_open_info info;
    kvp_seq seq = open_prompt(&f, prompt_a, 8, &info);
    expect_row(&f, seq, (int32_t[]){1, 2}, 2);
    assert_int_equal(info.hit_tokens, 8);
    assert_int_equal(info.cached_tokens, 7); /* the last token is run for its logits */
    assert_int_equal(info.cached_blocks, 2); /* nobody held them: they cost one each */
    assert_int_equal(info.taken_blocks, 0);
    tear_down(&f);
}

/* The two moments of may_append: the token after a full block takes a block, the token that fills a
 * block seals it (here: once it is computed). */
TEST(test_decoding_takes_and_seals_at_the_block_boundaries)
{
    fixture f = set_up(NULL, 0);
    kvp_seq seq = open_committed(&f, prompt_a, 8, NULL);
    for (uint32_t n = 9; n <= 12; n++) {
        int32_t token = (int32_t)n;
        assert_int_equal(kvp_seq_extend(f.cache, seq, &token, 1, 0), KVP_OK);
        expect_row(&f, seq, (int32_t[]){1, 2, 3}, 3);
        assert_int_equal(block(&f, 3).sealed_units, 0);
        assert_int_equal(kvp_seq_commit(f.cache, seq, n), KVP_OK);
        assert_int_equal(block(&f, 3).sealed_units, n == 12 ? 1 : 0);
    }
    int32_t token = 13;
    assert_int_equal(kvp_seq_extend(f.cache, seq, &token, 1, 0), KVP_OK);
    expect_row(&f, seq, (int32_t[]){1, 2, 3, 4}, 4);
    tear_down(&f);
}

/* ------------------------------------------------------------- tokens that must not be cached */

/* [1 2 3 4|5 image 7 8|9 10 11 12]: only the first block may ever be shared. */
static const int32_t prompt_image[] = {1, 2, 3, 4, 5, IMAGE_TOKEN, 7, 8, 9, 10, 11, 12};

TEST(test_from_an_uncacheable_token_on_nothing_is_shared)
{
    const int32_t uncached[] = {IMAGE_TOKEN, IMAGE_TOKEN + 1};
    fixture f = set_up(uncached, 2);
    kvp_open_info info;
    kvp_seq first = open_committed(&f, prompt_image, 12, &info);
    expect_row(&f, first, (int32_t[]){1, 2, 3}, 3);
    assert_int_equal(block(&f, 1).sealed_units, 1);
    assert_int_equal(block(&f, 2).sealed_units, 0);
    assert_int_equal(block(&f, 3).sealed_units, 0);

    kvp_seq second = open_committed(&f, prompt_image, 12, &info);
    expect_row(&f, second, (int32_t[]){1, 4, 5}, 3);
    assert_fields(info, cached_tokens, 4, stop, KVP_STOP_UNCACHED);

    kvp_stats stats;
    assert_int_equal(kvp_cache_stats_get(f.cache, &stats), KVP_OK);
    assert_int_equal(stats.private_units, 4);
    expect_close(&f, first, 2, 0);
    expect_close(&f, second, 2, 1);
    tear_down(&f);
}

/* The flow chart looks at the prompt only. A generated token can be one of them, too. */
TEST(test_a_generated_uncacheable_token_keeps_its_block_private)
{
    const int32_t uncached[] = {IMAGE_TOKEN};
    fixture f = set_up(uncached, 1);
    kvp_seq seq = open_committed(&f, prompt_image, 5, NULL);
    assert_int_equal(kvp_seq_extend(f.cache, seq, prompt_image + 5, 7, 0), KVP_OK);
    assert_int_equal(kvp_seq_commit(f.cache, seq, 12), KVP_OK);
    kvp_seq_info info;
    assert_int_equal(kvp_seq_info_get(f.cache, seq, &info), KVP_OK);
    assert_int_equal(info.public_tokens, 4);
    expect_close(&f, seq, 2, 1);
    tear_down(&f);
}

/* The same by positions instead of ids, and what the rule is for: equal placeholders, other images.
 * A range may lie ahead of the tokens. */
TEST(test_an_uncacheable_range_of_positions_does_the_same)
{
    fixture f = set_up(NULL, 0);
    kvp_range range = {5, 6};
    kvp_prompt prompt = {.struct_size = sizeof prompt,
                         .tokens = prompt_image,
                         .n_tokens = 5,
                         .uncached = &range,
                         .n_uncached = 1};
    for (int turn = 0; turn < 2; turn++) {
        kvp_open_info info;
        kvp_seq seq;
        assert_int_equal(kvp_seq_open(f.cache, f.ns, &prompt, &seq, &info), KVP_OK);
        assert_int_equal(info.cached_tokens, turn == 0 ? 0 : 4);
        assert_int_equal(kvp_seq_extend(f.cache, seq, prompt_image + 5, 7, 0), KVP_OK);
        assert_int_equal(kvp_seq_commit(f.cache, seq, 12), KVP_OK);
        expect_close(&f, seq, 2, 1);
    }
    tear_down(&f);
}

TEST_MAIN(NULL, NULL)
