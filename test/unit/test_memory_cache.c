/* A cache and the memory behind it: random calls, every plan run, the KV of every token a number
 * that depends on all tokens before it. So whatever the cache says is computed must be found, on
 * the tier where it says, after forks, copy-on-write, hits inside a block, evictions and swaps. */
#include "world.h"

#include <string.h>

#include <kvpager/memory.h>
#include <kvpager/swap.h>

enum { S = 4, USABLE = 14, HOST_BLOCKS = 9, MAX_SEQS = 7, MAX_TOKENS = 40, L = 2, H = 2, D = 2 };

struct text {
    kvp_seq seq;
    int is_open;
    int is_out; /* swapped out */
    uint32_t n;
    int32_t tokens[MAX_TOKENS];
};

struct play {
    world w;
    kvp_memory *tiers[2];
    kvp_copier *copier;
    struct text texts[MAX_SEQS];
    uint64_t random;
    uint32_t n_copies;
    uint32_t n_swapped;
    uint32_t n_found; /* tokens that need not be computed */
};

/* What the model computes at a position: of all tokens up to it. */
static float kv_of(const struct text *text, uint32_t position, uint32_t layer, uint32_t i)
{
    uint32_t mixed = 2166136261u;
    for (uint32_t p = 0; p <= position; p++)
        mixed = (mixed ^ (uint32_t)text->tokens[p]) * 16777619u;
    return (float)((mixed >> 9 ^ layer * 1000003u ^ i * 10007u) & 0xFFFFFF);
}

static void each_row(struct play *play, const struct text *text, uint32_t position, int64_t slot,
                     int write)
{
    float row[D];
    for (uint32_t i = 0; i < L * H * 2; i++) {
        kvp_layer layer;
        const uint32_t head = i / 2 % H;
        assert_ok(kvp_memory_layer(play->tiers[text->is_out], i / (H * 2), &layer));
        if (write) {
            for (uint32_t e = 0; e < D; e++)
                row[e] = kv_of(text, position, i, e);
            assert_ok(kvp_layer_write(&layer, i % 2 ? KVP_V : KVP_K, slot, head, row));
        } else {
            assert_ok(kvp_layer_read(&layer, i % 2 ? KVP_V : KVP_K, slot, head, row));
            for (uint32_t e = 0; e < D; e++)
                assert_true(row[e] == kv_of(text, position, i, e));
        }
    }
}

static void run_plan(struct play *play)
{
    kvp_copy copies[64];
    const uint32_t n = take_plan(&play->w, copies, 64);
    assert_ok(kvp_copier_run(play->copier, copies, n, NULL));
    play->n_copies += n;
}

/* A forward pass of everything that has room for its tokens. */
static void compute(struct play *play)
{
    for (uint32_t i = 0; i < MAX_SEQS; i++) {
        struct text *text = &play->texts[i];
        int64_t slots[MAX_TOKENS];
        if (!text->is_open || text->is_out ||
            kvp_seq_extend(play->w.cache, text->seq, NULL, 0, 0) != KVP_OK)
            continue;
        run_plan(play);
        assert_ok(kvp_seq_slots(play->w.cache, text->seq, 0, 0, text->n, slots));
        for (uint32_t p = 0; p < text->n; p++)
            if (slots[p] != KVP_NO_SLOT)
                each_row(play, text, p, slots[p], 1);
        assert_ok(kvp_seq_commit(play->w.cache, text->seq, text->n));
    }
}

static void check_all(struct play *play)
{
    for (uint32_t i = 0; i < MAX_SEQS; i++) {
        const struct text *text = &play->texts[i];
        if (!text->is_open)
            continue;
        const kvp_seq_info info = info_of(&play->w, text->seq);
        assert_fields(info, n_tokens, text->n, tier, text->is_out ? KVP_HOST : KVP_DEVICE);
        for (uint32_t p = 0; p < info.computed_tokens; p++) {
            const int64_t block = row_entry(&play->w, text->seq, p / S);
            each_row(play, text, p, block * S + p % S, 0);
        }
    }
}

/* ------------------------------------------------------------------------------------ the calls */

static struct text *free_text(struct play *play)
{
    for (uint32_t i = 0; i < MAX_SEQS; i++)
        if (!play->texts[i].is_open)
            return &play->texts[i];
    return NULL;
}

static uint32_t add_tokens(struct play *play, struct text *text, uint32_t n)
{
    n = n < MAX_TOKENS - text->n ? n : MAX_TOKENS - text->n;
    for (uint32_t i = 0; i < n; i++) /* few values: prefixes are often the same */
        text->tokens[text->n + i] = draw(&play->random, 4) == 0;
    return n;
}

static void open_one(struct play *play)
{
    struct text *text = free_text(play);
    kvp_open_info info;
    if (!text)
        return;
    *text = (struct text){0};
    text->n = add_tokens(play, text, draw(&play->random, 24));
    const kvp_prompt prompt = prompt_of(text->tokens, text->n);
    text->is_open = kvp_seq_open(play->w.cache, play->w.ns, &prompt, &text->seq, &info) == KVP_OK;
    play->n_found += text->is_open ? info.cached_tokens : 0;
}

static void change_one(struct play *play, struct text *text)
{
    kvp_cache *cache = play->w.cache;
    struct text *child = free_text(play);
    uint32_t n;
    switch (draw(&play->random, 9)) {
    case 0:
    case 1:
    case 2:
        n = add_tokens(play, text, draw(&play->random, 5));
        if (kvp_seq_extend(cache, text->seq, text->tokens + text->n, n, 0) == KVP_OK)
            text->n += n;
        break;
    case 3:
        n = draw(&play->random, text->n + 1);
        if (child && kvp_seq_fork(cache, text->seq, n, 0, &child->seq) == KVP_OK) {
            memcpy(child->tokens, text->tokens, sizeof child->tokens);
            child->n = n;
            child->is_open = 1;
            child->is_out = 0;
        }
        break;
    case 4:
        n = draw(&play->random, text->n + 1);
        if (kvp_seq_truncate(cache, text->seq, n, NULL) == KVP_OK)
            text->n = n;
        break;
    case 5:
    case 6:
        if (kvp_seq_swap_out(cache, &text->seq, 1, NULL) == KVP_OK) {
            text->is_out = 1;
            play->n_swapped++;
        }
        break;
    case 7:
        if (kvp_seq_swap_in(cache, &text->seq, 1, 0, NULL) == KVP_OK)
            text->is_out = 0;
        break;
    default:
        assert_ok(kvp_seq_close(cache, text->seq, NULL));
        text->is_open = 0;
        break;
    }
}

static kvp_memory *make_tier(uint32_t n_blocks, const char *order)
{
    kvp_layout layout;
    kvp_memory *memory;
    kvp_layout_init(&layout);
    layout.type = KVP_F32;
    layout.n_blocks = n_blocks;
    layout.block_tokens = S;
    layout.n_layers = L;
    layout.n_heads = H;
    layout.k.size = layout.v.size = D;
    assert_ok(kvp_layout_arrange(&layout, order, NULL));
    assert_ok(kvp_memory_create(&layout, NULL, &memory));
    return memory;
}

static void play_one(uint64_t seed, uint32_t unit_tokens, uint32_t policy)
{
    struct play play = {.random = seed};
    kvp_config config = config_of(S, unit_tokens, USABLE);
    config.host_blocks = HOST_BLOCKS;
    config.max_seqs = MAX_SEQS;
    config.max_seq_tokens = MAX_TOKENS;
    config.commit_policy = policy;
    config.max_copies = 64;
    play.w = make_world(&config);
    play.tiers[KVP_DEVICE] = make_tier(USABLE + 1, KVP_ORDER_VLLM_NHD);
    play.tiers[KVP_HOST] = make_tier(HOST_BLOCKS, KVP_ORDER_TENSORRT_LLM);
    kvp_copier_config copier_config;
    kvp_copier_config_init(&copier_config);
    copier_config.device = &play.tiers[KVP_DEVICE];
    copier_config.host = &play.tiers[KVP_HOST];
    assert_ok(kvp_copier_create(&copier_config, &play.copier));
    for (uint32_t i = 0; i < 1500; i++) {
        struct text *text = &play.texts[draw(&play.random, MAX_SEQS)];
        if (text->is_open)
            change_one(&play, text);
        else
            open_one(&play);
        run_plan(&play);
        if (draw(&play.random, 3) != 0)
            compute(&play);
        check_all(&play);
    }
    assert_true(play.n_copies > 300 && play.n_swapped > 80 && play.n_found > 100);
    kvp_copier_destroy(play.copier);
    kvp_memory_destroy(play.tiers[KVP_DEVICE]);
    kvp_memory_destroy(play.tiers[KVP_HOST]);
    end_world(&play.w);
}

TEST(test_units_of_a_block)
{
    play_one(1, S, KVP_ADOPT);
    play_one(2, S, KVP_KEEP);
}

TEST(test_smaller_units)
{
    play_one(3, S / 2, KVP_ADOPT);
    play_one(4, 1, KVP_ADOPT);
    play_one(5, S / 2, KVP_KEEP);
}

TEST_MAIN(NULL, NULL)
