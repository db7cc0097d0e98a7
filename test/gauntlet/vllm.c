/* Defects of vLLM: what blocks, hits, windows, events and keys are. Steps, transfers and the
 * scheduler: vllm_engine.c. */
#include "scenes.h"
#include "start.h"

#include <kvpager/events.h>

#include <string.h>

/* V1: five holders leave, each once; then one sequence takes every block, each once. */
static void block_is_queued_once(rig *r)
{
    const kvp_config config = rig_config(8);
    bool taken[9] = {false};
    rig_seq *s[5];
    rig_begin(r, &config);
    s[0] = rig_open_done(r, rig_tokens(0), 15);
    for (uint32_t i = 1; i < 5; i++)
        s[i] = rig_fork(r, s[0], 4 * i - 1);
    for (uint32_t i = 0; i < 5; i++) {
        const kvp_seq stale = s[i]->handle;
        rig_close(r, s[i]);
        EXPECT_STATUS(r, KVP_E_HANDLE, kvp_seq_close(r->cache, stale, NULL));
        EXPECT_STATUS(r, KVP_E_HANDLE, kvp_seq_truncate(r->cache, stale, 0, NULL));
    }
    EXPECT_EQ(r, rig_stats(r).free_blocks + rig_stats(r).cached_blocks, 8);
    rig_seq *all = rig_open_done(r, rig_tokens(1000), 32);
    for (uint32_t i = 0; i < 8; i++) {
        const int32_t block = rig_row(r, all, 0, i);
        EXPECT(r, block > 0 && block < 9 && !taken[block]);
        taken[block > 0 && block < 9 ? block : 0] = true;
    }
}

/* V2: the front of a prompt on the device, its end on the host; opened twice. */
static void hits_of_two_tiers_have_one_owner_each(rig *r)
{
    kvp_config config = rig_config(8);
    config.host_blocks = 17;
    rig_begin(r, &config);
    rig_leave_cached(r, rig_tokens(0), 20);
    rig_leave_cached(r, rig_tokens(1000), 24); /* the last blocks of the first prompt give way */
    rig_seq *a = rig_open_done(r, rig_tokens(0), 22);
    EXPECT_EQ(r, r->info.hit_tokens, 20);
    EXPECT(r, r->info.host_blocks > 0 && r->info.shared_blocks > 0);
    rig_seq *b = rig_open_done(r, rig_tokens(0), 21);
    EXPECT_EQ(r, r->info.hit_tokens, 20);
    EXPECT_EQ(r, r->info.host_blocks, 0);
    for (uint32_t i = 0; i < 5; i++) {
        EXPECT_EQ(r, rig_row(r, a, 0, i), rig_row(r, b, 0, i));
        EXPECT_EQ(r, rig_block(r, KVP_DEVICE, rig_row(r, a, 0, i)).ref_count, 2);
        for (uint32_t k = 0; k < i; k++)
            EXPECT(r, rig_row(r, a, 0, i) != rig_row(r, a, 0, k));
    }
    EXPECT(r, rig_row(r, a, 0, 5) != rig_row(r, b, 0, 5));
}

/* V3: the hits are the oldest in the queue, and the same call must evict. */
static void hits_are_not_evicted_by_their_own_open(rig *r)
{
    const kvp_config config = rig_config(5);
    kvp_seq none = {0};
    rig_begin(r, &config);
    rig_leave_cached(r, rig_tokens(0), 12);
    rig_seq *b = rig_open_done(r, rig_tokens(1000), 8);
    const kvp_prompt prompt = rig_prompt(rig_tokens(0), 20);
    EXPECT_STATUS(r, KVP_E_NO_BLOCKS, kvp_seq_open(r->cache, r->ns, &prompt, &none, NULL));
    EXPECT_EQ(r, rig_shortage(r).missing_blocks, 2);
    EXPECT_EQ(r, rig_match(r, rig_tokens(0), 20).hit_tokens, 12); /* refused, and nothing lost */
    rig_close(r, b);
    rig_open_done(r, rig_tokens(0), 20);
    EXPECT_EQ(r, r->info.hit_tokens, 12);
    EXPECT_EQ(r, r->info.evicted_blocks, 2);
    EXPECT_EQ(r, rig_match(r, rig_tokens(1000), 8).hit_tokens, 0);
}

/* V7: tokens are scheduled far ahead of what is computed, and drafts are rejected: nothing that may
 * be seen again is dropped before it is settled. */
static void window_drops_only_what_is_settled(rig *r)
{
    kvp_config config = rig_config(15);
    config.groups[0] = (kvp_group){0, 8, 0};
    for (uint32_t kept = 0; kept <= 12; kept++) {
        rig_begin(r, &config);
        rig_seq *s = rig_open_done(r, rig_tokens(0), 9);
        rig_extend(r, s, rig_tokens(500), 12);
        EXPECT(r, rig_row(r, s, 0, 0) != KVP_NULL_BLOCK); /* scheduled to 21, computed to 9 */
        rig_forward(r, s, 9, 21);
        rig_truncate(r, s, 9 + kept); /* the rest was rejected */
        rig_commit(r, s, 9 + kept);
        EXPECT_EQ(r, rig_row(r, s, 0, 0) == KVP_NULL_BLOCK, 9 + kept + 1 - 8 >= 4);
        rig_decode(r, s, 600, 10);
        rig_end(r);
    }
}

static uint32_t count_removed(rig *r, uint64_t *next)
{
    kvp_event events[64];
    uint32_t n = 0, removed = 0;
    EXPECT_OK(r, kvp_events_read(r->cache, *next, events, 64, NULL, &n));
    for (uint32_t i = 0; i < n; i++)
        removed += events[i].kind == KVP_EVENT_REMOVED;
    *next += n;
    return removed;
}

/* V10: two blocks with equal content; "removed" is told when the second one has gone. */
static void removal_is_told_of_the_last_copy(rig *r)
{
    kvp_config config = rig_config(3);
    uint64_t next = start_number() + 1;
    config.commit_policy = KVP_KEEP;
    config.max_events = 64;
    rig_begin(r, &config);
    rig_seq *a = rig_open(r, rig_tokens(0), 4);
    rig_seq *b = rig_open(r, rig_tokens(0), 4);
    rig_compute(r, a);
    rig_compute(r, b);
    EXPECT_EQ(r, rig_stats(r).duplicate_blocks, 1);
    const int32_t first = rig_row(r, a, 0, 0);
    rig_close(r, a);
    rig_seq *c = rig_open_done(r, rig_tokens(1000), 8); /* takes the first copy */
    EXPECT(r, rig_row(r, c, 0, 0) == first || rig_row(r, c, 0, 1) == first);
    EXPECT_EQ(r, count_removed(r, &next), 0);
    EXPECT_EQ(r, rig_match(r, rig_tokens(0), 4).hit_tokens, 4);
    rig_close(r, b);
    rig_open_done(r, rig_tokens(2000), 4); /* takes the second one */
    EXPECT_EQ(r, count_removed(r, &next), 1);
    EXPECT_EQ(r, rig_match(r, rig_tokens(0), 4).hit_tokens, 0);
}

/* V11: a prompt that is half on the device and half on the host; flushed, then reset. */
static void flush_and_reset_are_of_every_tier(rig *r)
{
    kvp_config config = rig_config(4);
    config.host_blocks = 17;
    for (uint32_t resets = 0; resets < 2; resets++) {
        rig_begin(r, &config);
        rig_leave_cached(r, rig_tokens(0), 16);
        rig_leave_cached(r, rig_tokens(1000), 8);
        EXPECT_EQ(r, rig_match(r, rig_tokens(0), 16).hit_tokens, 16);
        EXPECT(r, rig_match(r, rig_tokens(0), 16).host_blocks > 0);
        EXPECT_OK(r, resets ? kvp_cache_reset(r->cache) : kvp_ns_flush(r->cache, r->ns));
        rig_called(r);
        EXPECT_EQ(r, rig_match(r, rig_tokens(0), 16).hit_tokens, 0);
        EXPECT_EQ(r, rig_match(r, rig_tokens(1000), 8).hit_tokens, 0);
        rig_leave_cached(r, rig_tokens(0), 16); /* with other weights: computed anew */
        EXPECT_EQ(r, r->info.hit_tokens, 0);
        EXPECT_EQ(r, !resets || rig_stats(r).host_cached_blocks == 0, 1);
        rig_end(r);
    }
}

static void hashes_of(rig *r, const int32_t *tokens, uint32_t n, uint64_t seed, kvp_hash *hashes)
{
    const kvp_hash_input input = {.unit_tokens = 4, .n_tokens = n, .tokens = tokens};
    kvp_hash root;
    EXPECT_OK(r, kvp_hash_root(4, seed, "model", 5, &root));
    EXPECT_OK(r, kvp_hash_units(&input, &root, hashes));
}

/* V12: hashes depend on a seed that others need not know; and one that is forged to name a victim's
 * block finds nothing: tokens and the prefix before decide. */
static void forged_hash_finds_nothing(rig *r)
{
    kvp_config config = rig_config(16);
    kvp_hash own[4], guessed[4], victim[4];
    kvp_seq seq = {0};
    kvp_open_info info = {0};
    config.hash_seed = 0x5eed5eed5eedu;
    rig_begin(r, &config);
    rig_leave_cached(r, rig_tokens(0), 16);
    hashes_of(r, rig_tokens(0), 16, config.hash_seed, victim);
    hashes_of(r, rig_tokens(1000), 16, 0, guessed);
    hashes_of(r, rig_tokens(1000), 16, config.hash_seed, own);
    EXPECT(r, memcmp(guessed, own, sizeof(own[0])) != 0);
    kvp_prompt prompt = rig_prompt(rig_tokens(1000), 16);
    prompt.hashes = guessed;
    EXPECT_STATUS(r, KVP_E_ARG, kvp_seq_open(r->cache, r->ns, &prompt, &seq, NULL));
    prompt.hashes = own;
    const kvp_hash last = own[3];
    own[3] = victim[3];
    EXPECT_STATUS(r, KVP_E_ARG, kvp_seq_open(r->cache, r->ns, &prompt, &seq, NULL));
    own[3] = last;
    own[1] = victim[1];
    EXPECT_OK(r, kvp_seq_open(r->cache, r->ns, &prompt, &seq, &info));
    EXPECT_EQ(r, info.hit_tokens, 0);
    EXPECT_OK(r, kvp_seq_close(r->cache, seq, NULL));
    rig_called(r);
    rig_open_done(r, rig_tokens(0), 16);
    EXPECT_EQ(r, r->info.hit_tokens, 16);
}

/* V13: a salt, an adapter and a namespace of equal bytes are three things. */
static void salt_is_no_adapter(rig *r)
{
    kvp_config config = rig_config(31);
    kvp_ns other = {0}, alike = {0};
    kvp_open_info info = {0};
    kvp_key key = {.type = 1, .begin = 0, .end = 8, .n_bytes = 3, .bytes = "abc"};
    kvp_prompt prompt = rig_prompt(rig_tokens(0), 8);
    config.max_unit_keys = 1;
    config.test_hash_bits = 1; /* the keys decide, not the hash */
    rig_begin(r, &config);
    prompt.keys = &key;
    prompt.n_keys = 1;
    EXPECT_OK(r, kvp_ns_open(r->cache, "abd", 3, &alike));
    EXPECT_OK(r, kvp_ns_open(r->cache, "abc", 3, &other));
    for (uint32_t round = 0; round < 2; round++) { /* all are computed; then each finds its own */
        for (key.type = 1; key.type <= 3; key.type++) {
            rig_seq *s = rig_open_with(r, r->ns, "model", &prompt);
            EXPECT_EQ(r, r->info.hit_tokens, 8 * round);
            rig_compute(r, s);
            rig_close(r, s);
        }
        const kvp_prompt plain = rig_prompt(rig_tokens(0), 8);
        rig_seq *s = rig_open_with(r, other, "abc", &plain);
        EXPECT_EQ(r, r->info.hit_tokens, 8 * round);
        rig_compute(r, s);
        rig_close(r, s);
        rig_leave_cached(r, rig_tokens(0), 8);
        EXPECT_EQ(r, r->info.hit_tokens, 8 * round);
        EXPECT_OK(r, kvp_cache_match(r->cache, alike, &plain, &info));
        EXPECT_EQ(r, info.hit_tokens, 0);
    }
}

/* V14: four beams that share three blocks have seven, on either tier, and that is what is asked for
 * and what is taken. */
static void swap_keeps_sharing_and_counts_it_once(rig *r)
{
    kvp_config config = rig_config(9);
    kvp_admission admission = {0};
    kvp_seq handles[4];
    rig_seq *beams[4];
    config.host_blocks = 8;
    rig_begin(r, &config);
    beams[0] = rig_open_done(r, rig_tokens(0), 12);
    for (int32_t i = 0; i < 4; i++)
        beams[i] = i == 0 ? beams[0] : rig_fork(r, beams[0], 12);
    for (int32_t i = 0; i < 4; i++) {
        rig_decode(r, beams[i], 1000 + 10 * i, 2);
        handles[i] = beams[i]->handle;
    }
    EXPECT_EQ(r, rig_stats(r).held_blocks, 7);
    EXPECT_OK(r, kvp_cache_can_swap_out(r->cache, handles, 4, &admission));
    EXPECT_EQ(r, admission.verdict, KVP_ADMIT_OK);
    EXPECT_EQ(r, admission.copied_blocks, 7);
    rig_swap(r, beams, 4, true);
    EXPECT_EQ(r, rig_stats(r).host_held_blocks, 7);
    rig_audit(r);
    rig_leave_cached(r, rig_tokens(2000), 36); /* nothing is left on the device */
    EXPECT_OK(r, kvp_cache_can_swap_in(r->cache, handles, 4, 0, &admission));
    EXPECT_EQ(r, admission.need_blocks, 7);
    rig_swap(r, beams, 4, false);
    EXPECT_EQ(r, rig_stats(r).held_blocks, 7);
    EXPECT_EQ(r, rig_block(r, KVP_DEVICE, rig_row(r, beams[3], 0, 0)).ref_count, 4);
    for (int32_t i = 0; i < 4; i++)
        rig_decode(r, beams[i], 3000 + 10 * i, 1);
}

static const scene scenes[] = {
    {"V1", "block-is-queued-once", "vllm#42571, #42612", block_is_queued_once},
    {"V2", "hits-of-two-tiers-have-one-owner-each", "vllm#33775, #44409",
     hits_of_two_tiers_have_one_owner_each},
    {"V3", "hits-are-not-evicted-by-their-own-open", "vllm#37076",
     hits_are_not_evicted_by_their_own_open},
    {"V7", "window-drops-only-what-is-settled", "vllm#47728", window_drops_only_what_is_settled},
    {"V10", "removal-is-told-of-the-last-copy", "vllm#55092", removal_is_told_of_the_last_copy},
    {"V11", "flush-and-reset-are-of-every-tier", "vllm#57727", flush_and_reset_are_of_every_tier},
    {"V12", "forged-hash-finds-nothing", "vllm GHSA-rm76-4mrf-v9r8", forged_hash_finds_nothing},
    {"V13", "salt-is-no-adapter", "vllm#51899", salt_is_no_adapter},
    {"V14", "swap-keeps-sharing-and-counts-it-once", "vllm 0.6",
     swap_keeps_sharing_and_counts_it_once},
};

const scene_list vllm_scenes = SCENES(scenes);
