/* Defects of the minimal block managers: minivllm, nano-vllm. */
#include "scenes.h"

#include <string.h>

/* Hits leave the middle of a queue of 64 blocks; the order of the others stays, whatever was taken
 * out. (That it takes O(1) is counted in pages touched by test/unit/test_nano_defects.c.) */
static void hit_leaves_the_middle_of_the_queue(rig *r)
{
    enum { USABLE = 64 };
    const kvp_config config = rig_config(USABLE);
    int32_t queue[USABLE];
    uint64_t random = 1;
    rig_begin(r, &config);
    for (int32_t i = 0; i < USABLE; i++) {
        rig_leave_cached(r, rig_tokens(4 * i), 4);
        queue[i] = i + 1;
    }
    for (uint32_t turn = 0; turn < 100; turn++) {
        const uint32_t at = random_below(&random, USABLE);
        const int32_t block = queue[at];
        rig_seq *s = rig_open_done(r, rig_tokens(4 * (block - 1)), 4);
        EXPECT_EQ(r, r->info.hit_tokens, 4);
        EXPECT_EQ(r, rig_row(r, s, 0, 0), block);
        rig_close(r, s);
        memmove(queue + at, queue + at + 1, (USABLE - 1 - at) * sizeof(*queue));
        queue[USABLE - 1] = block;
    }
    rig_seq *all = rig_open_done(r, rig_tokens(1000), 4 * USABLE);
    for (uint32_t i = 0; i < USABLE; i++)
        EXPECT_EQ(r, rig_row(r, all, 0, i), queue[i]);
}

static void entry_ends_with_the_content(rig *r)
{
    const kvp_config config = rig_config(4);
    rig_begin(r, &config);
    rig_leave_cached(r, rig_tokens(0), 16);
    const uint64_t nodes = rig_stats(r).nodes_used;
    for (int32_t i = 1; i < 40; i++) {
        rig_leave_cached(r, rig_tokens(100 * i), 16);
        EXPECT_EQ(r, rig_match(r, rig_tokens(100 * i), 16).hit_tokens, 16);
        EXPECT_EQ(r, rig_match(r, rig_tokens(100 * (i - 1)), 16).hit_tokens, 0);
        EXPECT_EQ(r, rig_stats(r).nodes_used, nodes);
    }
    EXPECT_EQ(r, rig_stats(r).hash_collisions, 0);
}

static void partly_filled_block_is_counted(rig *r)
{
    const kvp_config config = rig_config(8);
    rig_begin(r, &config);
    for (uint32_t n = 1; n <= 12; n++) {
        rig_seq *s = rig_open_done(r, rig_tokens(100 * (int32_t)n), n);
        for (uint32_t i = 0; i < (n + 3) / 4; i++)
            EXPECT_EQ(r, rig_block(r, KVP_DEVICE, rig_row(r, s, 0, i)).ref_count, 1);
        rig_seq *fork = rig_fork(r, s, KVP_END);
        EXPECT_EQ(r, rig_block(r, KVP_DEVICE, rig_row(r, s, 0, (n - 1) / 4)).ref_count, 2);
        EXPECT_EQ(r, rig_close(r, s).freed_blocks, 0);
        const kvp_released released = rig_close(r, fork);
        EXPECT_EQ(r, released.freed_blocks, n % 4 != 0);
        EXPECT_EQ(r, released.cached_blocks, n / 4);
        EXPECT_EQ(r, rig_stats(r).held_blocks, 0);
    }
}

static void length_grows_with_each_token(rig *r)
{
    const kvp_config config = rig_config(16);
    rig_begin(r, &config);
    rig_seq *s = rig_open_done(r, rig_tokens(0), 3);
    for (uint32_t n = 4; n <= 40; n++) {
        rig_decode(r, s, (int32_t)n, 1);
        const kvp_seq_info info = rig_info(r, s);
        EXPECT_EQ(r, info.n_tokens, n);
        EXPECT_EQ(r, info.computed_tokens, n);
        EXPECT_EQ(r, info.last_token, n);
        EXPECT_EQ(r, info.n_blocks, (n + 3) / 4);
        EXPECT_EQ(r, info.public_tokens, n / 4 * 4);
    }
}

/* Look-ups use one bit of the hash: nearly every one finds something that is not the prefix. */
static void chain_before_a_hit_is_verified(rig *r)
{
    kvp_config config = rig_config(64);
    config.test_hash_bits = 1;
    rig_begin(r, &config);
    for (int32_t i = 0; i < 8; i++) { /* the second block has equal tokens after eight prefixes */
        int32_t prompt[8];
        memcpy(prompt, rig_tokens(100 * i), 4 * sizeof(*prompt));
        memcpy(prompt + 4, rig_tokens(5000), 4 * sizeof(*prompt));
        rig_leave_cached(r, prompt, 8);
    }
    for (int32_t i = 0; i < 8; i++) {
        int32_t prompt[9];
        memcpy(prompt, rig_tokens(100 * i), 4 * sizeof(*prompt));
        memcpy(prompt + 4, rig_tokens(5000), 5 * sizeof(*prompt));
        rig_seq *s = rig_open_done(r, prompt, 9); /* reads the KV of its own prefix */
        EXPECT_EQ(r, r->info.hit_tokens, 8);
        rig_close(r, s);
    }
    EXPECT_EQ(r, rig_match(r, rig_tokens(5000), 4).hit_tokens, 0);
    EXPECT(r, rig_stats(r).hash_collisions > 0);
}

static void nothing_is_shared_before_it_is_computed(rig *r)
{
    const kvp_config config = rig_config(16);
    rig_begin(r, &config);
    rig_seq *first = rig_open(r, rig_tokens(0), 12);
    rig_seq *second = rig_open(r, rig_tokens(0), 12); /* of the same batch */
    EXPECT_EQ(r, r->info.hit_tokens, 0);
    EXPECT_EQ(r, r->info.stop, KVP_STOP_NO_KV);
    EXPECT(r, rig_row(r, first, 0, 0) != rig_row(r, second, 0, 0));
    rig_close(r, first); /* its step failed: it was never committed */
    EXPECT_EQ(r, rig_match(r, rig_tokens(0), 12).hit_tokens, 0);
    rig_compute(r, second);
    /* Committed when it was scheduled, and the step fails: taken back, from whoever shares it. */
    rig_seq *third = rig_open(r, rig_tokens(200), 12);
    rig_commit(r, third, 12);
    rig_seq *fourth = rig_open(r, rig_tokens(200), 12);
    EXPECT_EQ(r, r->info.hit_tokens, 12);
    kvp_seq sharing[2];
    uint32_t n = 0;
    EXPECT_OK(r, kvp_seq_invalidate(r->cache, third->handle, 0, sharing, 2, &n));
    EXPECT_EQ(r, n, 1);
    EXPECT_EQ(r, sharing[0].bits, fourth->handle.bits);
    rig_close(r, fourth);
    rig_close(r, third);
    EXPECT_EQ(r, rig_match(r, rig_tokens(200), 12).hit_tokens, 0);
}

static void errors_are_statuses_with_numbers(rig *r)
{
    const kvp_config config = rig_config(4);
    kvp_seq none = {0};
    rig_begin(r, &config);
    rig_open_done(r, rig_tokens(0), 9);
    const kvp_prompt later = rig_prompt(rig_tokens(100), 12);
    const kvp_prompt two = rig_prompt(rig_tokens(100), 8);
    const kvp_prompt never = rig_prompt(rig_tokens(100), 40);
    const kvp_stats before = rig_stats(r);
    EXPECT_STATUS(r, KVP_E_NO_BLOCKS, kvp_seq_open(r->cache, r->ns, &later, &none, NULL));
    EXPECT_EQ(r, rig_shortage(r).missing_blocks, 2);
    EXPECT_STATUS(r, KVP_E_NEVER, kvp_seq_open(r->cache, r->ns, &never, &none, NULL));
    EXPECT_EQ(r, rig_shortage(r).missing_blocks, 6);
    EXPECT_STATUS(r, KVP_E_NO_BLOCKS, kvp_seq_open(r->cache, r->ns, &two, &none, NULL));
    EXPECT_EQ(r, rig_shortage(r).missing_blocks, 1);
    EXPECT_STATUS(r, KVP_E_ARG, kvp_seq_open(r->cache, r->ns, NULL, &none, NULL));
    EXPECT_STATUS(r, KVP_E_HANDLE, kvp_seq_close(r->cache, none, NULL));
    EXPECT_EQ(r, none.bits, 0); /* nothing was written */
    EXPECT_EQ(r, rig_stats(r).free_blocks, before.free_blocks);
    EXPECT_EQ(r, rig_stats(r).open_seqs, 1);
}

static const scene scenes[] = {
    {"N1", "hit-leaves-the-middle-of-the-queue", "nano-vllm", hit_leaves_the_middle_of_the_queue},
    {"N2", "entry-ends-with-the-content", "nano-vllm", entry_ends_with_the_content},
    {"N3", "partly-filled-block-is-counted", "minivllm", partly_filled_block_is_counted},
    {"N4", "length-grows-with-each-token", "minivllm", length_grows_with_each_token},
    {"N5", "chain-before-a-hit-is-verified", "minivllm, nano-vllm", chain_before_a_hit_is_verified},
    {"N6", "nothing-is-shared-before-it-is-computed", "nano-vllm",
     nothing_is_shared_before_it_is_computed},
    {"N7", "errors-are-statuses-with-numbers", "minivllm, nano-vllm",
     errors_are_statuses_with_numbers},
};

const scene_list nano_scenes = SCENES(scenes);
