/* KV memory, copiers and attention teams: any allocation, mapping or thread fails; then they do
 * their work. */
#include "faults.h"

#include "attn_meta.h"

#include <kvpager/attention.h>
#include <kvpager/memory.h>

#include <string.h>

enum { BLOCKS = 12, COPIES = 30 };

static kvp_layout draw_layout(uint64_t *random, uint32_t type)
{
    static const char *const orders[] = {KVP_ORDER_TENSORRT_LLM, KVP_ORDER_VLLM_NHD};
    kvp_layout layout;
    kvp_layout_init(&layout);
    layout.type = type;
    layout.n_blocks = BLOCKS;
    layout.block_tokens = 4;
    layout.n_layers = 1 + draw(random, 3);
    layout.n_heads = 2;
    layout.k.size = layout.v.size = 8;
    assert_ok(kvp_layout_arrange(&layout, orders[draw(random, 2)], NULL));
    return layout;
}

static void fill(const kvp_memory *memory, const kvp_layout *layout, uint64_t *random)
{
    float values[8];
    for (uint32_t l = 0; l < layout->n_layers; l++) {
        kvp_layer layer;
        assert_ok(kvp_memory_layer(memory, l, &layer));
        for (uint32_t i = 0; i < BLOCKS * 4 * 2 * 2; i++) {
            for (uint32_t e = 0; e < 8; e++)
                values[e] = (float)draw(random, 100);
            assert_ok(kvp_layer_write(&layer, (int)(i & 1), i / 4, i / 2 % 2, values));
        }
    }
}

static void mix_memory(const kvp_memory *memory)
{
    for (int32_t block = 0; block < BLOCKS; block++) {
        kvp_hash checksum;
        assert_ok(kvp_memory_checksum(memory, block, 4, &checksum));
        fault_mix(checksum.bytes, sizeof(checksum.bytes));
    }
}

static void copy_and_move(kvp_copier *copier, uint64_t *random)
{
    for (uint32_t i = 0; i < COPIES; i++) {
        const kvp_copy copy = {.src_tier = (uint8_t)draw(random, 2),
                               .dst_tier = (uint8_t)draw(random, 2),
                               .src_block = 1,
                               .dst_block = (int32_t)(2 + draw(random, BLOCKS - 2)),
                               .n_tokens = 1 + draw(random, 4)};
        const kvp_slot_move move = {4 + (int32_t)draw(random, 20), 24 + (int32_t)draw(random, 20)};
        CALL(NULL, KVP_OK, kvp_copier_run(copier, &copy, 1, NULL));
        CALL(NULL, KVP_OK, kvp_copier_move(copier, 0, &move, 1, NULL));
    }
}

void scene_memory(uint64_t seed)
{
    uint64_t random = seed;
    const uint32_t type = draw(&random, 2) ? KVP_F32 : KVP_BF16;
    const kvp_layout layout = draw_layout(&random, type);
    kvp_memory_options options;
    kvp_memory *tiers[2], *wrapped = NULL;
    kvp_copier *copier = NULL;
    kvp_copier_config config;
    void *tensors[64] = {NULL};
    kvp_memory_options_init(&options);
    options.pages = KVP_PAGES_SMALL;
    for (uint32_t i = 0; i < 2; i++) {
        CALL(NULL, KVP_E_NO_MEMORY, kvp_memory_create(&layout, &options, &tiers[i]));
        fill(tiers[i], &layout, &random);
    }
    for (uint32_t i = 0; i < layout.n_tensors; i++)
        tensors[i] = kvp_memory_tensor(tiers[1], i);
    CALL(NULL, KVP_E_NO_MEMORY, kvp_memory_wrap(&layout, tensors, &wrapped));
    kvp_copier_config_init(&config);
    config.device = &tiers[0];
    config.host = &wrapped;
    config.n_threads = 1 + draw(&random, 4);
    CALL(NULL, KVP_E_NO_MEMORY, kvp_copier_create(&config, &copier));
    copy_and_move(copier, &random);
    mix_memory(tiers[0]);
    mix_memory(tiers[1]);
    kvp_copier_destroy(copier);
    kvp_memory_destroy(wrapped);
    kvp_memory_destroy(tiers[0]);
    kvp_memory_destroy(tiers[1]);
}

void scene_attention(uint64_t seed)
{
    uint64_t random = seed;
    const attn_params params = attn_draw_params(&random);
    kvp_attention_team *team = NULL;
    CALL(NULL, KVP_E_NO_MEMORY, kvp_attention_team_create(2 + draw(&random, 6), &team));
    attn_world model =
        attn_begin(&params, 8 + ATTENTION_MAX_SEQS * (2 + 40 / params.block_tokens), seed);
    attn_add_some(&model, 4, 1, 1);
    attn_append_all(&model);
    attn_how how = attn_draw_how(&model);
    how.impl = KVP_ATTENTION_PORTABLE;
    how.team = team;
    attn_meta *meta = attn_describe(&model, &how);
    assert_ok(attn_prepare(meta));
    CALL(NULL, KVP_OK, kvp_attention_run(&meta->attention, meta->scratch, meta->scratch_bytes));
    for (size_t i = 0; i < meta->n_out; i++)
        fault_mix(&meta->out[i], sizeof(meta->out[i]));
    attn_forget(meta);
    attn_end(&model);
    kvp_attention_team_destroy(team);
}
