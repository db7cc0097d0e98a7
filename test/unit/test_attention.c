/* Attention against the oracle of attn_world: all options in combination, every format of metadata,
 * every type and layout; and what must give the same bits. */
#include <math.h>
#include <string.h>

#include "mocka.h"
#include "attn_impls.h"
#include "attn_meta.h"

#ifdef __SANITIZE_THREAD__ /* which makes every access slow */
enum { CASES = 60 };
#else
enum { CASES = 1500 };
#endif

static uint32_t pool_for(const attn_params *params)
{
    return 8 + ATTENTION_MAX_SEQS * (2 + 40 / params->block_tokens);
}

/* --------------------------------------------------------------------------------- random cases */

/* Three batches of the same sequences, described in different ways. */
static void check_case(uint64_t seed)
{
    uint64_t random = seed;
    attn_meta *first = NULL;
    const attn_params params = attn_draw_params(&random);
    attn_world world = attn_begin(&params, pool_for(&params), random);
    attn_add_some(&world, 1 + attn_draw(&world.random, ATTENTION_MAX_SEQS), seed % 2 == 0,
                  seed % 3 > 0);
    attn_append_all(&world);
    for (int turn = 0; turn < 3; turn++) {
        const attn_how how = attn_draw_how(&world);
        attn_meta *meta = attn_describe(&world, &how);
        assert_int_equal(attn_run(meta), KVP_OK);
        if (first == NULL) {
            attn_assert_right(meta);
            first = meta;
            continue;
        }
        attn_assert_same(first, meta); /* whatever the format, the strides and the order */
        attn_forget(meta);
    }
    attn_forget(first);
    attn_end(&world);
}

TEST_WITH(test_random_cases_against_the_oracle, NULL, attn_name_the_case)
{
    for (attn_running_case = 1; attn_running_case <= CASES; attn_running_case++)
        check_case(attn_running_case);
    attn_running_case = 0;
}

/* Each format by itself, on sequences that have everything: shared blocks, trees, windows. */
TEST_WITH(test_every_format_against_the_oracle, NULL, attn_name_the_case)
{
    for (uint32_t format = 0; format < ATTENTION_FORMATS; format++) {
        for (attn_running_case = 1; attn_running_case <= 40; attn_running_case++) {
            uint64_t random = 1000 + attn_running_case;
            const attn_params params = attn_draw_params(&random);
            attn_world world = attn_begin(&params, pool_for(&params), random);
            attn_add_some(&world, ATTENTION_MAX_SEQS, attn_running_case % 2 == 0, 1);
            attn_append_all(&world);
            attn_how how = attn_how_of(&world, format);
            how.has_bits = attn_running_case % 4 == 0;
            how.has_gaps = attn_running_case % 3 == 0;
            attn_meta *meta = attn_describe(&world, &how);
            assert_int_equal(attn_run(meta), KVP_OK);
            attn_assert_right(meta);
            attn_forget(meta);
            attn_end(&world);
        }
    }
    attn_running_case = 0;
}

/* -------------------------------------------------------------------------------- the same bits */

/* Queries [from, to) of a sequence that is prefilled whole, and no key behind them. */
static attn_world cut_to_chunk(const attn_world *world, uint32_t from, uint32_t to)
{
    attn_world chunk = *world;
    attn_seq *seq = &chunk.seqs[0];
    const size_t q_size = world->params.n_heads * world->params.group * world->params.k_size;
    chunk.n_seqs = 1;
    seq->n_tokens = to;
    seq->n_queries = to - from;
    seq->n_blocks = (to + world->params.block_tokens - 1) / world->params.block_tokens;
    seq->q += from * q_size;
    return chunk;
}

static void check_chunks(attn_world *world)
{
    const uint32_t n = world->seqs[0].n_tokens;
    const attn_how how = attn_how_of(world, ATTENTION_CSR);
    attn_meta *whole = attn_describe(world, &how);
    assert_int_equal(attn_run(whole), KVP_OK);
    for (uint32_t from = 0, to; from < n; from = to) {
        to = from + 1 + attn_draw(&world->random, n - from);
        const attn_world chunk = cut_to_chunk(world, from, to);
        attn_meta *meta = attn_describe(&chunk, &how);
        assert_int_equal(attn_run(meta), KVP_OK);
        for (uint32_t i = 0; i < to - from; i++) {
            for (uint32_t head = 0; head < whole->attention.n_heads; head++) {
                assert_memory_equal(attn_out(meta, 0, i, head), attn_out(whole, 0, from + i, head),
                                    world->params.v_size * sizeof(float));
                assert_true(attn_lse(meta, 0, i, head) == attn_lse(whole, 0, from + i, head));
            }
        }
        attn_forget(meta);
    }
    attn_forget(whole);
}

/* A prompt in one piece, or in chunks whose lists end with the chunk. */
TEST_WITH(test_chunks_give_the_same_bits, NULL, attn_name_the_case)
{
    for (attn_running_case = 1; attn_running_case <= 150; attn_running_case++) {
        uint64_t random = 7000 + attn_running_case;
        attn_params params = attn_draw_params(&random);
        params.causal = 1;
        attn_world world = attn_begin(&params, pool_for(&params), random);
        const uint32_t n = 1 + attn_draw(&world.random, 40);
        const attn_wish wish = {.n_tokens = n,
                                .n_queries = n,
                                .recent = attn_draw(&world.random, 12),
                                .sinks = attn_draw(&world.random, 4)};
        attn_add(&world, &wish);
        attn_append_all(&world);
        check_chunks(&world);
        attn_end(&world);
    }
    attn_running_case = 0;
}

/* Appending in chunks leaves the same bytes, scales included. */
TEST_WITH(test_appended_chunks_leave_the_same_bytes, NULL, attn_name_the_case)
{
    for (attn_running_case = 1; attn_running_case <= 60; attn_running_case++) {
        uint64_t random = 9000 + attn_running_case;
        attn_world whole, chunks;
        const attn_params params = attn_draw_params(&random);
        const attn_wish wish = {.n_tokens = 30, .n_queries = 1};
        whole = attn_begin(&params, 64, random);
        chunks = attn_begin(&params, 64, random);
        attn_add(&whole, &wish);
        attn_add(&chunks, &wish);
        attn_append_all(&whole);
        for (uint32_t from = 0, to; from < 30; from = to) {
            to = from + 1 + attn_draw(&chunks.random, 30 - from);
            attn_append(&chunks, 0, from, to);
        }
        for (uint32_t i = 0; i < 30; i++) {
            const int32_t block = whole.seqs[0].blocks[i / params.block_tokens];
            for (uint32_t e = 0; e < params.k_size; e++)
                assert_true(attn_stored(&whole, KVP_K, block, i % params.block_tokens, 0, e) ==
                            attn_stored(&chunks, KVP_K, block, i % params.block_tokens, 0, e));
        }
        attn_end(&whole);
        attn_end(&chunks);
    }
    attn_running_case = 0;
}

/* ----------------------------------------------------------------------------------- the window */

/* A window is the same as a mask that hides what lies outside it. */
TEST_WITH(test_a_window_is_a_mask, NULL, attn_name_the_case)
{
    for (attn_running_case = 1; attn_running_case <= 100; attn_running_case++) {
        uint64_t random = 11000 + attn_running_case;
        const attn_params params = attn_draw_params(&random);
        attn_world world = attn_begin(&params, pool_for(&params), random);
        attn_add_some(&world, 3, attn_running_case % 2 == 0, 1);
        attn_append_all(&world);
        const attn_how how = attn_how_of(&world, ATTENTION_CSR);
        attn_meta *window = attn_describe(&world, &how), *mask = attn_describe(&world, &how);
        uint32_t n_bits = 0;
        for (uint32_t n = 0; n < 3; n++) {
            const attn_seq *seq = &world.seqs[n];
            for (uint32_t query = 0; query < seq->n_queries; query++) {
                for (uint32_t key = 0; key < seq->n_tokens; key++, n_bits++)
                    if (attn_sees(&world, seq, query, key))
                        mask->bits[n_bits / 8] |= (uint8_t)(1u << (n_bits % 8));
            }
            n_bits = (n_bits + 7) / 8 * 8;
            mask->bits_start[n + 1] = (int32_t)(n_bits / 8);
        }
        mask->attention.tree = (kvp_attention_tree){
            .bits = mask->bits, .bits_start = mask->bits_start, .n_bytes = n_bits / 8};
        mask->attention.window = (kvp_attention_window){.recent_tokens = 0};
        assert_int_equal(attn_run(window), KVP_OK);
        assert_int_equal(attn_run(mask), KVP_OK);
        attn_assert_same(window, mask);
        attn_forget(window);
        attn_forget(mask);
        attn_end(&world);
    }
    attn_running_case = 0;
}

/* Decode: lists that end exactly at the window need no window besides. */
TEST_WITH(test_exact_lists_need_no_window, NULL, attn_name_the_case)
{
    for (attn_running_case = 1; attn_running_case <= 60; attn_running_case++) {
        uint64_t random = 13000 + attn_running_case;
        const attn_params params = attn_draw_params(&random);
        attn_world world = attn_begin(&params, pool_for(&params), random);
        for (uint32_t i = 0; i < 3; i++) {
            const attn_wish wish = {.n_tokens = 30 + attn_draw(&world.random, 10),
                                    .n_queries = 1,
                                    .recent = 1 + attn_draw(&world.random, 9),
                                    .sinks = attn_draw(&world.random, 5)};
            attn_add(&world, &wish);
        }
        attn_append_all(&world);
        const attn_how how = attn_how_of(&world, ATTENTION_DROPPED_EXACT);
        attn_meta *with = attn_describe(&world, &how), *without = attn_describe(&world, &how);
        for (uint32_t n = 0; n < 3; n++)
            assert_true(with->key_offset[n] > 0);
        without->attention.window.sinks = without->attention.window.recent = NULL;
        assert_int_equal(attn_run(with), KVP_OK);
        assert_int_equal(attn_run(without), KVP_OK);
        attn_assert_same(with, without);
        attn_forget(with);
        attn_forget(without);
        attn_end(&world);
    }
    attn_running_case = 0;
}

/* ----------------------------------------------------------------------------- rotary embedding */

static attn_params plain_params(uint32_t rope_mode)
{
    attn_params params = {.type = KVP_F32,
                          .n_heads = 2,
                          .group = 2,
                          .k_size = 16,
                          .v_size = 12,
                          .block_tokens = 4,
                          .causal = 1};
    kvp_rope_init(&params.rope);
    params.rope.mode = rope_mode;
    return params;
}

/* With equal positions it does not matter when K is turned, but for one rounding to f32. */
TEST(test_turning_at_write_is_turning_at_read)
{
    const attn_params at_write = plain_params(KVP_ROPE_AT_WRITE);
    const attn_params at_read = plain_params(KVP_ROPE_AT_READ);
    attn_world worlds[2];
    attn_meta *metas[2];
    for (int i = 0; i < 2; i++) {
        worlds[i] = attn_begin(i == 0 ? &at_write : &at_read, 64, 5);
        attn_add(&worlds[i], &(attn_wish){.n_tokens = 33, .n_queries = 33});
        attn_add(&worlds[i], &(attn_wish){.n_tokens = 30, .n_queries = 9, .n_tree = 9});
        attn_append_all(&worlds[i]);
        const attn_how how = attn_how_of(&worlds[i], ATTENTION_CSR);
        metas[i] = attn_describe(&worlds[i], &how);
        assert_int_equal(attn_run(metas[i]), KVP_OK);
    }
    for (uint32_t n = 0; n < 2; n++) {
        for (uint32_t query = 0; query < worlds[0].seqs[n].n_queries; query++) {
            for (uint32_t e = 0; e < 12; e++)
                assert_true(fabs(attn_out(metas[0], n, query, 3)[e] -
                                 attn_out(metas[1], n, query, 3)[e]) < 2e-6);
        }
    }
    for (int i = 0; i < 2; i++) {
        attn_forget(metas[i]);
        attn_end(&worlds[i]);
    }
}

/* Turned at read, a long sequence in a window is the same as the short one that is left of it. */
TEST(test_positions_in_a_window_are_those_of_what_is_left)
{
    enum { LONG = 60, SINKS = 3, RECENT = 7 };
    const attn_params params = plain_params(KVP_ROPE_AT_READ);
    const size_t k_row = 2 * 16, v_row = 2 * 12;
    attn_world whole, rest;
    whole = attn_begin(&params, 64, 5);
    rest = attn_begin(&params, 64, 6);
    attn_add(&whole, &(attn_wish){LONG, 1, 0, SINKS, RECENT, 0});
    attn_add(&rest, &(attn_wish){SINKS + RECENT, 1, 0, 0, 0, 0});
    memcpy(rest.seqs[0].q, whole.seqs[0].q, 4 * 16 * sizeof(float));
    for (uint32_t i = 0; i < SINKS + RECENT; i++) {
        const size_t from = i < SINKS ? i : i + LONG - SINKS - RECENT;
        memcpy(rest.seqs[0].k + i * k_row, whole.seqs[0].k + from * k_row, k_row * sizeof(float));
        memcpy(rest.seqs[0].v + i * v_row, whole.seqs[0].v + from * v_row, v_row * sizeof(float));
    }
    attn_append_all(&whole);
    attn_append_all(&rest);
    const attn_how how = attn_how_of(&whole, ATTENTION_DROPPED);
    attn_meta *of_whole = attn_describe(&whole, &how), *of_rest = attn_describe(&rest, &how);
    assert_int_equal(attn_run(of_whole), KVP_OK);
    assert_int_equal(attn_run(of_rest), KVP_OK);
    attn_assert_same(of_whole, of_rest);
    attn_forget(of_whole);
    attn_forget(of_rest);
    attn_end(&whole);
    attn_end(&rest);
}

TEST_MAIN(NULL, NULL)
