/* Defects of SGLang, Dynamo, Mooncake, LMCache, llama.cpp and transformers, and one of
 * TensorRT-LLM's block queues. */
#include "scenes.h"

#include <kvpager/hash.h>
#include <kvpager/quotas.h>

#include <stdlib.h>
#include <string.h>

/* R4: cached and held blocks go from one retention class to another and back, are hit and evicted;
 * after each call the counts are sums (rig_called), and in the end every block can be had. */
static void counts_are_sums_across_queues(rig *r)
{
    kvp_config config = rig_config(12);
    uint64_t random = 7;
    rig_begin(r, &config);
    for (int32_t turn = 0; turn < 200; turn++) {
        rig_seq *s = rig_open_done(r, rig_tokens(100 * (int32_t)random_below(&random, 6)), 16);
        const kvp_range range = {4 * random_below(&random, 4), 16};
        EXPECT_OK(r, kvp_seq_retain(r->cache, s->handle, range, random_below(&random, 8)));
        rig_called(r);
        const kvp_stats stats = rig_stats(r);
        EXPECT_EQ(r, stats.held_blocks, 4);
        EXPECT_EQ(r, stats.free_blocks + stats.cached_blocks, 8);
        rig_close(r, s);
    }
    rig_open_done(r, rig_tokens(1000), 48);
    EXPECT_EQ(r, rig_stats(r).held_blocks, 12);
}

/* S1: every block is held: refused with a number, and again and again; then somebody leaves. */
static void nothing_to_evict_is_an_ordinary_answer(rig *r)
{
    const kvp_config config = rig_config(8);
    const kvp_prompt prompt = rig_prompt(rig_tokens(1000), 8);
    kvp_admission admission = {0};
    kvp_seq none = {0};
    rig_begin(r, &config);
    rig_seq *a = rig_open_done(r, rig_tokens(0), 16);
    rig_seq *b = rig_open_done(r, rig_tokens(100), 16);
    for (uint32_t turn = 0; turn < 10; turn++) {
        EXPECT_STATUS(r, KVP_E_NO_BLOCKS, kvp_seq_open(r->cache, r->ns, &prompt, &none, NULL));
        EXPECT_EQ(r, kvp_status_class(KVP_E_NO_BLOCKS), KVP_CLASS_RETRY);
        EXPECT_EQ(r, rig_shortage(r).missing_blocks, 2);
        EXPECT_STATUS(r, KVP_E_NO_BLOCKS,
                      kvp_seq_extend(r->cache, a->handle, rig_tokens(500), 1, 0));
        EXPECT_OK(r, kvp_cache_can_open(r->cache, r->ns, &prompt, &admission));
        EXPECT_EQ(r, admission.verdict, KVP_ADMIT_LATER);
        rig_called(r);
    }
    rig_close(r, b);
    rig_open_done(r, rig_tokens(1000), 8);
    rig_decode(r, a, 500, 3);
}

/* S2: three forks on the host; closed there, each once, one block after the other. */
static void host_block_is_released_once(rig *r)
{
    kvp_config config = rig_config(12);
    rig_seq *s[3];
    config.host_blocks = 13;
    rig_begin(r, &config);
    s[0] = rig_open_done(r, rig_tokens(0), 10);
    s[1] = rig_fork(r, s[0], 8);
    s[2] = rig_fork(r, s[0], 10);
    rig_swap(r, s, 3, true);
    EXPECT_EQ(r, rig_stats(r).host_held_blocks, 3);
    for (uint32_t i = 0; i < 3; i++) {
        const kvp_seq stale = s[i]->handle;
        rig_close(r, s[i]);
        EXPECT_STATUS(r, KVP_E_HANDLE, kvp_seq_close(r->cache, stale, NULL));
        EXPECT_STATUS(r, KVP_E_HANDLE, kvp_seq_swap_in(r->cache, &stale, 1, 0, NULL));
    }
    const kvp_stats stats = rig_stats(r);
    EXPECT_EQ(r, stats.host_held_blocks, 0);
    EXPECT_EQ(r, stats.host_free_blocks + stats.host_cached_blocks, 12);
    rig_open_done(r, rig_tokens(0), 11);
    EXPECT_EQ(r, r->info.hit_tokens, 8);
}

/* S4: a full group and a sliding one. A prompt is hit for all that both keep; when the sliding
 * group's blocks have gone, the hit is shorter, and the reason and the group are told. */
static void short_hit_of_a_hybrid_model_says_why(rig *r)
{
    kvp_config config = rig_config(24);
    config.n_groups = 2;
    config.groups[1] = (kvp_group){0, 8, 0};
    rig_begin(r, &config);
    rig_seq *s = rig_open_done(r, rig_tokens(0), 32);
    rig_close(r, s);
    EXPECT_EQ(r, rig_match(r, rig_tokens(0), 33).hit_tokens, 32);
    for (int32_t turn = 0; turn < 20; turn++) { /* decode, leave, and come back with more */
        const uint32_t n = 33 + (uint32_t)turn;
        s = rig_open_done(r, rig_tokens(0), n);
        EXPECT(r, r->info.hit_tokens >= (n - 1) / 4 * 4);
        rig_close(r, s);
    }
    /* Others take blocks until the hit ends early; whoever ended it is named. */
    kvp_open_info info = rig_match(r, rig_tokens(0), 33);
    for (int32_t turn = 1; turn < 12 && info.hit_tokens == 32; turn++) {
        rig_close(r, rig_open_done(r, rig_tokens(1000 * (turn % 6 + 1)), 8));
        info = rig_match(r, rig_tokens(0), 33);
    }
    EXPECT(r, info.hit_tokens < 32);
    EXPECT_EQ(r, info.stop, KVP_STOP_NO_KV);
    EXPECT_EQ(r, info.stop_group, 1); /* the sliding one: the tokens are known */
    rig_close(r, rig_open_done(r, rig_tokens(0), 33));
}

/* D2: look-ups see one bit of each hash; sixty prefixes live together. */
static void equal_hash_fragments_are_harmless(rig *r)
{
    kvp_config config = rig_config(130);
    config.test_hash_bits = 1;
    rig_begin(r, &config);
    for (int32_t i = 0; i < 60; i++) {
        rig_leave_cached(r, rig_tokens(20 * i), 8);
        EXPECT_EQ(r, r->info.hit_tokens, 0);
    }
    for (int32_t i = 0; i < 60; i++) {
        rig_seq *s = rig_open_done(r, rig_tokens(20 * i), 10);
        EXPECT_EQ(r, r->info.hit_tokens, 8);
        rig_close(r, s);
    }
    EXPECT(r, rig_stats(r).hash_collisions > 100);
}

/* M1: units of 4 in blocks of 16. Prompts that agree for 1 to 16 tokens: what is hit are the whole
 * units that agree, copied into a block of the sequence's own. */
static void part_of_a_block_is_hit_as_a_part(rig *r)
{
    kvp_config config = rig_config(24);
    config.block_tokens = 16;
    config.unit_tokens = 4;
    for (uint32_t equal = 1; equal <= 16; equal++) {
        int32_t prompt[20];
        rig_begin(r, &config);
        rig_leave_cached(r, rig_tokens(0), 16);
        memcpy(prompt, rig_tokens(1000), sizeof(prompt));
        memcpy(prompt, rig_tokens(0), equal * sizeof(*prompt));
        rig_seq *s = rig_open_done(r, prompt, 20);
        EXPECT_EQ(r, r->info.hit_tokens, equal / 4 * 4);
        EXPECT_EQ(r, r->info.copied_tokens, equal / 4 * 4 % 16);
        rig_decode(r, s, 2000, 5);
        rig_open_done(r, rig_tokens(0), 17); /* the first one's is as it was */
        EXPECT_EQ(r, r->info.hit_tokens, 16);
        rig_end(r);
    }
}

/* M2: a host of two blocks under many times as much. What cannot be kept is counted; nobody is
 * refused for it; what is found there is right. */
static void full_host_refuses_nobody(rig *r)
{
    kvp_config config = rig_config(8);
    config.host_blocks = 3;
    rig_begin(r, &config);
    for (int32_t turn = 0; turn < 60; turn++) {
        rig_seq *s =
            rig_open_done(r, rig_tokens(100 * (turn * 7 % 11)), 16 + 4 * (uint32_t)(turn % 4));
        rig_close(r, s);
    }
    const kvp_stats stats = rig_stats(r);
    EXPECT_EQ(r, stats.refused, 0);
    EXPECT_EQ(r, stats.opens, 60);
    EXPECT(r, stats.kept_blocks > 0 && stats.host_evicted_blocks > 0);
    EXPECT(r, stats.kept_blocks + stats.unkept_blocks <= stats.evicted_blocks);
    /* Without one free host block: nothing can be kept, each is counted, nobody waits. */
    rig_seq *parked[] = {rig_open_done(r, rig_tokens(5000), 8)};
    rig_swap(r, parked, 1, true);
    const uint64_t unkept = rig_stats(r).unkept_blocks;
    rig_leave_cached(r, rig_tokens(6000), 32);
    EXPECT(r, rig_stats(r).unkept_blocks > unkept);
    EXPECT_EQ(r, rig_stats(r).refused, 0);
    rig_swap(r, parked, 1, false);
    rig_decode(r, parked[0], 7000, 3);
}

/* L1: images whose digests begin with the same bytes, up to the longest key; placeholders are the
 * same tokens. */
static void digests_are_compared_whole(rig *r)
{
    kvp_config config = rig_config(64);
    uint8_t digests[KVP_KEY_MAX_BYTES][3];
    uint8_t longest[KVP_KEY_MAX_BYTES] = {0};
    kvp_open_info info = {0};
    kvp_key key = {.type = 1, .begin = 2, .end = 10, .n_bytes = 3};
    kvp_prompt prompt = rig_prompt(rig_tokens(0), 12);
    config.max_unit_keys = 1;
    config.test_hash_bits = 1; /* the keys decide, not the hash */
    rig_begin(r, &config);
    prompt.keys = &key;
    prompt.n_keys = 1;
    for (uint32_t round = 0; round < 2; round++) {
        for (uint8_t i = 0; i < 10; i++) { /* equal but for the last byte */
            memcpy(digests[i], (uint8_t[]){0xab, 0xcd, i}, 3);
            key.bytes = digests[i];
            rig_seq *s = rig_open_with(r, r->ns, "model", &prompt);
            EXPECT_EQ(r, r->info.hit_tokens, 12 * round);
            rig_compute(r, s);
            rig_close(r, s);
        }
    }
    key.bytes = longest;
    key.n_bytes = KVP_KEY_MAX_BYTES;
    kvp_seq seq = {0};
    EXPECT_OK(r, kvp_seq_open(r->cache, r->ns, &prompt, &seq, &info));
    EXPECT_OK(r, kvp_seq_commit(r->cache, seq, 12));
    EXPECT_OK(r, kvp_cache_match(r->cache, r->ns, &prompt, &info));
    EXPECT_EQ(r, info.hit_tokens, 12);
    for (uint32_t i = 0; i < KVP_KEY_MAX_BYTES; i++) {
        longest[i] ^= 1;
        EXPECT_OK(r, kvp_cache_match(r->cache, r->ns, &prompt, &info));
        EXPECT_EQ(r, info.hit_tokens, 0);
        longest[i] ^= 1;
    }
    EXPECT_OK(r, kvp_seq_invalidate(r->cache, seq, 0, NULL, 0, NULL)); /* nothing computed it */
    EXPECT_OK(r, kvp_seq_close(r->cache, seq, NULL));
}

/* L3: the process ends and another one goes on: the arena's bytes, at another address. */
static void restart_keeps_the_index(rig *r)
{
    kvp_config config = rig_config(16);
    void *copy = NULL;
    size_t n_bytes = 0;
    rig_begin(r, &config);
    rig_leave_cached(r, rig_tokens(0), 32);
    rig_seq *s = rig_open_done(r, rig_tokens(500), 10);
    EXPECT_OK(r, kvp_cache_bytes(&config, &n_bytes));
    const size_t room = (n_bytes + 63) / 64 * 64;
    copy = aligned_alloc(64, room);
    if (copy == NULL) {
        EXPECT(r, copy != NULL);
        return;
    }
    memcpy(copy, r->cache, n_bytes);
    kvp_cache *before = r->cache;
    r->cache = copy;
    rig_called(r);
    rig_audit(r);
    EXPECT_EQ(r, rig_match(r, rig_tokens(0), 32).hit_tokens, 32);
    rig_decode(r, s, 600, 9); /* its handle is good in the copy */
    rig_open_done(r, rig_tokens(0), 34);
    EXPECT_EQ(r, r->info.hit_tokens, 32);
    r->cache = before; /* untouched by what was done in the copy */
    EXPECT_EQ(r, rig_match(r, rig_tokens(0), 32).hit_tokens, 32);
    EXPECT_EQ(r, rig_info(r, s).n_tokens, 10);
    kvp_cache_destroy(before);
    r->cache = NULL;
    EXPECT_OK(r, kvp_cache_check(copy, 3, NULL));
    r->cache = copy;
    rig_end(r); /* audits, closes everything */
    free(copy);
}

/* H1: one block is needed: one is evicted, the oldest, the end of a prefix before its front. */
static void one_block_is_evicted_at_a_time(rig *r)
{
    const kvp_config config = rig_config(8);
    rig_begin(r, &config);
    rig_leave_cached(r, rig_tokens(0), 16);
    rig_leave_cached(r, rig_tokens(100), 16);
    for (uint32_t n = 1; n <= 4; n++) {
        rig_seq *s = rig_open_done(r, rig_tokens(1000 * (int32_t)n), 4);
        EXPECT_EQ(r, r->info.evicted_blocks, 1);
        EXPECT_EQ(r, rig_match(r, rig_tokens(0), 16).hit_tokens, 16 - 4 * n);
        EXPECT_EQ(r, rig_match(r, rig_tokens(100), 16).hit_tokens, 16);
        rig_close(r, s);
    }
    EXPECT_EQ(r, rig_stats(r).evicted_blocks, 4);
}

/* L2: hashes are frozen: those that an independent program made once, on another machine. */
static void hashes_are_equal_everywhere(rig *r)
{
    static const uint8_t root_of_a[16] = {0xa7, 0xbf, 0xbe, 0x46, 0xae, 0x8f, 0xf5, 0x12,
                                          0x66, 0xa6, 0x2a, 0x51, 0xa5, 0x43, 0x0e, 0x6a};
    const kvp_config config = rig_config(4);
    const kvp_hash_input input = {.unit_tokens = 4, .n_tokens = 8, .tokens = rig_tokens(0)};
    kvp_hash root, hashes[2], parts[2];
    EXPECT_OK(r, kvp_hash_root(4, 0, "a", 1, &root));
    EXPECT(r, memcmp(root.bytes, root_of_a, 16) == 0);
    EXPECT_OK(r, kvp_hash_root(4, 0, "model", 5, &root));
    EXPECT_OK(r, kvp_hash_units(&input, &root, hashes));
    for (uint32_t u = 0; u < 2; u++) { /* made anywhere, in parts: the same */
        const kvp_hash_input part = {.unit_tokens = 4,
                                     .n_tokens = 4,
                                     .tokens = rig_tokens(4 * (int32_t)u),
                                     .first_position = 4 * u};
        EXPECT_OK(r, kvp_hash_units(&part, u == 0 ? &root : &parts[0], &parts[u]));
    }
    EXPECT(r, memcmp(parts, hashes, sizeof(hashes)) == 0);
    for (uint32_t turn = 0; turn < 2; turn++) { /* and what each cache says of its blocks */
        rig_begin(r, &config);
        rig_seq *s = rig_open_done(r, rig_tokens(0), 8);
        const kvp_block_info info = rig_block(r, KVP_DEVICE, rig_row(r, s, 0, 1));
        EXPECT(r, memcmp(&info.hash, &hashes[1], sizeof(info.hash)) == 0);
        rig_end(r);
    }
}

/* Q1: two conversations are cached; then another namespace sweeps over documents, each once, far
 * more than there are blocks. With a quota it drives the older one to the host, and from then on
 * lives on its own blocks, on both tiers. */
static void noisy_tenant_evicts_itself(rig *r)
{
    kvp_config config = rig_config(24);
    kvp_ns sweep;
    kvp_ns_info info = {0};
    config.quotas = 1;
    config.host_blocks = 17;
    rig_begin(r, &config);
    EXPECT_OK(r, kvp_ns_open(r->cache, "sweep", 5, &sweep));
    EXPECT_OK(r, kvp_ns_quota(r->cache, sweep, KVP_DEVICE, 8));
    EXPECT_OK(r, kvp_ns_quota(r->cache, sweep, KVP_HOST, 8));
    rig_leave_cached(r, rig_tokens(6000), 32);
    rig_leave_cached(r, rig_tokens(0), 64);
    for (int32_t document = 1; document <= 40; document++) {
        const kvp_prompt prompt = rig_prompt(rig_tokens(100 * document), 24);
        rig_seq *s = rig_open_with(r, sweep, "sweep", &prompt);
        rig_compute(r, s);
        rig_decode(r, s, 5000, 4);
        EXPECT_OK(r, kvp_ns_info_get(r->cache, sweep, &info));
        EXPECT(r, info.blocks <= 8 && info.host_blocks <= 8);
        rig_close(r, s);
        EXPECT_EQ(r, rig_match(r, rig_tokens(0), 64).hit_tokens, 64);
        EXPECT_EQ(r, rig_match(r, rig_tokens(0), 64).host_blocks, 0);
    }
    EXPECT_EQ(r, info.blocks + info.host_blocks, 16);
    EXPECT_EQ(r, rig_match(r, rig_tokens(6000), 32).host_blocks, 8);
    EXPECT_OK(r, kvp_ns_quota(r->cache, sweep, KVP_DEVICE, 0)); /* nothing of it is safe any more */
    rig_open_done(r, rig_tokens(6000), 32);
    EXPECT_OK(r, kvp_ns_info_get(r->cache, sweep, &info));
    EXPECT_EQ(r, info.blocks, 0);
    EXPECT_EQ(r, rig_match(r, rig_tokens(0), 64).hit_tokens, 64);
}

static const scene scenes[] = {
    {"R4", "counts-are-sums-across-queues", "TensorRT-LLM#12834", counts_are_sums_across_queues},
    {"S1", "nothing-to-evict-is-an-ordinary-answer", "sglang#36770",
     nothing_to_evict_is_an_ordinary_answer},
    {"S2", "host-block-is-released-once", "sglang#13501", host_block_is_released_once},
    {"S4", "short-hit-of-a-hybrid-model-says-why", "sglang#22935, vllm#45238, llama.cpp#21831",
     short_hit_of_a_hybrid_model_says_why},
    {"D2", "equal-hash-fragments-are-harmless", "dynamo KVBM", equal_hash_fragments_are_harmless},
    {"M1", "part-of-a-block-is-hit-as-a-part", "Mooncake#4153", part_of_a_block_is_hit_as_a_part},
    {"M2", "full-host-refuses-nobody", "Mooncake#3741", full_host_refuses_nobody},
    {"L1", "digests-are-compared-whole", "LMCache#4086", digests_are_compared_whole},
    {"L2", "hashes-are-equal-everywhere", "LMCache#1139", hashes_are_equal_everywhere},
    {"L3", "restart-keeps-the-index", "LMCache#1175", restart_keeps_the_index},
    {"H1", "one-block-is-evicted-at-a-time", "transformers", one_block_is_evicted_at_a_time},
    {"Q1", "noisy-tenant-evicts-itself", "mlx-serve#378", noisy_tenant_evicts_itself},
};

const scene_list peer_scenes = SCENES(scenes);
