/* Memory of recurrent state: layouts of bytes, copied beside KV by one copier; what is refused. */
#include <stdlib.h>
#include <string.h>

#include "mocka.h"

#include <kvpager/attention.h>
#include <kvpager/memory.h>

/* Odd sizes: a state is any bytes. */
enum { SLOTS = 5, LAYERS = 3, CONV = 1023, RECURRENT = 70001, BLOCKS = 4, S = 4 };

static unsigned char byte_of(uint32_t slot, uint32_t layer, int which, uint32_t e)
{
    const uint32_t mixed = (slot * 2654435761u) ^ (layer * 40503u) ^ ((uint32_t)which * 977u + e);
    return (unsigned char)(mixed >> 8 ^ mixed >> 20 ^ mixed);
}

static kvp_layout state_shape(void)
{
    kvp_layout layout;
    kvp_layout_init(&layout);
    layout.type = KVP_BYTES;
    layout.n_blocks = SLOTS;
    layout.block_tokens = 1;
    layout.n_layers = LAYERS;
    layout.n_heads = 1;
    layout.k.size = CONV;
    layout.v.size = RECURRENT;
    return layout;
}

static kvp_layout state_layout(const char *order)
{
    kvp_layout layout = state_shape();
    assert_int_equal(kvp_layout_arrange(&layout, order, NULL), KVP_OK);
    return layout;
}

static unsigned char *at(const kvp_memory *memory, uint32_t slot, uint32_t layer, int which)
{
    kvp_layer one;
    assert_int_equal(kvp_memory_layer(memory, layer, &one), KVP_OK);
    const kvp_layer_part *part = which == KVP_K ? &one.k : &one.v;
    assert_int_equal(part->run, part->size); /* a state's bytes lie side by side */
    return part->base + slot * part->block_stride;
}

static void write_state(const kvp_memory *memory, uint32_t slot, uint32_t of)
{
    for (uint32_t i = 0; i < 2 * LAYERS; i++) {
        const uint32_t n = i % 2 == KVP_K ? CONV : RECURRENT;
        unsigned char *bytes = at(memory, slot, i / 2, (int)(i % 2));
        for (uint32_t e = 0; e < n; e++)
            bytes[e] = byte_of(of, i / 2, (int)(i % 2), e);
    }
}

static void expect_state(const kvp_memory *memory, uint32_t slot, uint32_t of)
{
    for (uint32_t i = 0; i < 2 * LAYERS; i++) {
        const uint32_t n = i % 2 == KVP_K ? CONV : RECURRENT;
        const unsigned char *bytes = at(memory, slot, i / 2, (int)(i % 2));
        for (uint32_t e = 0; e < n; e++) {
            if (bytes[e] != byte_of(of, i / 2, (int)(i % 2), e)) {
                fail_msg("slot %u is not state %u: layer %u, part %u, byte %u", slot, of, i / 2,
                         i % 2, e);
            }
        }
    }
}

static kvp_memory *kv_memory(void)
{
    kvp_layout layout;
    kvp_memory *memory;
    kvp_layout_init(&layout);
    layout.type = KVP_F32;
    layout.n_blocks = BLOCKS;
    layout.block_tokens = S;
    layout.n_layers = layout.n_heads = 1;
    layout.k.size = layout.v.size = 2;
    assert_int_equal(kvp_layout_arrange(&layout, KVP_ORDER_CPU, NULL), KVP_OK);
    assert_int_equal(kvp_memory_create(&layout, NULL, &memory), KVP_OK);
    return memory;
}

/* One plan copies KV and states, out and in again, between memories that lie differently. Nothing
 * else is touched, and what is compared does not depend on where a state lies. */
TEST(test_copies)
{
    const kvp_layout layouts[2] = {state_layout(KVP_ORDER_APART_NHD),
                                   state_layout(KVP_ORDER_TENSORRT_LLM)};
    for (uint32_t n_threads = 1; n_threads <= 3; n_threads += 2) {
        kvp_memory *device[2] = {kv_memory(), NULL};
        kvp_memory *host[2] = {kv_memory(), NULL};
        kvp_copier_config config;
        kvp_copier *copier;
        kvp_hash hashes[2];
        const float kv[2] = {1.5f, 2.5f};
        float read[2];
        kvp_layer layer;
        assert_int_equal(kvp_memory_create(&layouts[0], NULL, &device[1]), KVP_OK);
        assert_int_equal(kvp_memory_create(&layouts[1], NULL, &host[1]), KVP_OK);
        for (uint32_t s = 0; s < SLOTS; s++) {
            write_state(device[1], s, 10 + s);
            write_state(host[1], s, 20 + s);
        }
        assert_int_equal(kvp_memory_layer(device[0], 0, &layer), KVP_OK);
        assert_int_equal(kvp_layer_write(&layer, KVP_K, 2 * S + 1, 0, kv), KVP_OK);
        kvp_copier_config_init(&config);
        config.n_groups = 2;
        config.n_threads = n_threads;
        config.device = device;
        config.host = host;
        assert_int_equal(kvp_copier_create(&config, &copier), KVP_OK);
        const kvp_copy copies[4] = {
            {.phase = 0,
             .group = 1,
             .dst_tier = KVP_HOST,
             .src_block = 2,
             .dst_block = 4,
             .n_tokens = 1},
            {.phase = 0,
             .group = 0,
             .dst_tier = KVP_HOST,
             .src_block = 2,
             .dst_block = 3,
             .n_tokens = S},
            {.phase = 1,
             .group = 1,
             .src_tier = KVP_HOST,
             .src_block = 4,
             .dst_block = 1,
             .n_tokens = 1},
            {.phase = 2, .group = 1, .src_block = 1, .dst_block = 3, .n_tokens = 1}};
        assert_int_equal(kvp_copier_run(copier, copies, 4, NULL), KVP_OK);
        expect_state(device[1], 1, 12);
        expect_state(device[1], 3, 12);
        expect_state(host[1], 4, 12);
        for (uint32_t s = 0; s < 3; s += 2) {
            expect_state(device[1], s, 10 + s);
            expect_state(device[1], 4, 14);
            expect_state(host[1], s, 20 + s);
        }
        assert_int_equal(kvp_memory_layer(host[0], 0, &layer), KVP_OK);
        assert_int_equal(kvp_layer_read(&layer, KVP_K, 3 * S + 1, 0, read), KVP_OK);
        assert_memory_equal(read, kv, sizeof kv);
        assert_int_equal(kvp_memory_checksum(device[1], 1, 1, &hashes[0]), KVP_OK);
        assert_int_equal(kvp_memory_checksum(host[1], 4, 1, &hashes[1]), KVP_OK);
        assert_memory_equal(&hashes[0], &hashes[1], sizeof hashes[0]);
        assert_int_equal(kvp_memory_checksum(device[1], 4, 1, &hashes[1]), KVP_OK);
        assert_memory_not_equal(&hashes[0], &hashes[1], sizeof hashes[0]);
        kvp_copier_destroy(copier);
        for (uint32_t g = 0; g < 2; g++) {
            kvp_memory_destroy(device[g]);
            kvp_memory_destroy(host[g]);
        }
    }
}

/* An engine's tensors need no alignment, and one part will do. The largest state is described. */
TEST(test_layouts)
{
    kvp_layout layout = state_layout(KVP_ORDER_APART_NHD);
    kvp_memory *memory;
    void *tensors[2 * LAYERS];
    unsigned char *bytes = malloc(1 + (size_t)LAYERS * SLOTS * (CONV + RECURRENT));
    assert_non_null(bytes);
    unsigned char *next = bytes + 1;
    for (uint32_t i = 0; i < 2 * LAYERS; i++) {
        tensors[i] = next;
        next += (size_t)SLOTS * (i < LAYERS ? CONV : RECURRENT);
    }
    assert_int_equal(kvp_memory_wrap(&layout, tensors, &memory), KVP_OK);
    for (uint32_t s = 0; s < SLOTS; s++)
        write_state(memory, s, s);
    for (uint32_t s = 0; s < SLOTS; s++)
        expect_state(memory, s, s);
    kvp_memory_destroy(memory);
    free(bytes);
    assert_int_equal(kvp_layout_block_bytes(&layout), (uint64_t)LAYERS * (CONV + RECURRENT));

    layout = state_shape();
    layout.v.size = 0;
    layout.k.size = KVP_STATE_BYTES_MAX;
    layout.n_heads = 2;
    assert_int_equal(kvp_layout_arrange(&layout, KVP_ORDER_TENSORRT_LLM, NULL), KVP_OK);
    assert_int_equal(kvp_layout_block_bytes(&layout), UINT64_C(6) << 30);
    const kvp_slice slice = {.first_layer = 1, .n_layers = 1, .first_head = 1, .n_heads = 1};
    assert_int_equal(kvp_layout_slice(&layout, &slice, &layout), KVP_OK); /* a rank's states */
    assert_int_equal(kvp_layout_block_bytes(&layout), UINT64_C(1) << 30);
    assert_int_equal(kvp_type_bytes(KVP_BYTES), 1);
    assert_true(kvp_type_scale(KVP_BYTES, 9.0f) == 1.0f);
}

static void expect_refused(const kvp_layout *layout, const char *field, uint64_t value,
                           uint64_t max)
{
    kvp_why why;
    assert_int_equal(kvp_layout_check(layout, &why), KVP_E_ARG);
    assert_string_equal(why.field, field);
    assert_true(why.value == (double)value && why.highest == (double)max);
}

/* A state has no tokens and no values; sizes that only states may have are refused elsewhere. */
TEST(test_refused)
{
    kvp_layout layout = state_layout(KVP_ORDER_APART_NHD);
    layout.block_tokens = 2;
    expect_refused(&layout, "block_tokens", 2, 1);
    layout = state_layout(KVP_ORDER_APART_NHD);
    layout.k.size = KVP_STATE_BYTES_MAX + 1;
    expect_refused(&layout, "k.size", KVP_STATE_BYTES_MAX + 1, KVP_STATE_BYTES_MAX);
    layout = state_layout(KVP_ORDER_APART_NHD);
    layout.type = KVP_F32;
    expect_refused(&layout, "v.size", RECURRENT, KVP_HEAD_SIZE_MAX);
    layout.type = KVP_Q8_0;
    expect_refused(&layout, "type", KVP_Q8_0, KVP_E4M3);
    layout.type = KVP_BYTES + 1;
    expect_refused(&layout, "type", KVP_BYTES + 1, KVP_E4M3);
    layout = state_layout(KVP_ORDER_APART_NHD);
    assert_int_equal(kvp_layout_add_scales(&layout, "NH"), KVP_E_ARG);

    unsigned char bytes[4] = {0};
    float values[4] = {0};
    assert_int_equal(kvp_type_to_f32(KVP_BYTES, 1, bytes, 4, values), KVP_E_ARG);
    assert_int_equal(kvp_type_from_f32(KVP_BYTES, 1, values, 4, bytes), KVP_E_ARG);

    kvp_memory *memory;
    kvp_copier *copier;
    kvp_copier_config config;
    kvp_layer layer;
    static float large[RECURRENT];
    const int32_t row[1] = {1};
    const kvp_gather gather = {.row = row, .n_row = 1, .n_tokens = 1};
    const kvp_slot_move move = {1, 2};
    const kvp_copy copy = {.src_block = 1, .dst_block = 2, .n_tokens = 2};
    assert_int_equal(kvp_memory_create(&layout, NULL, &memory), KVP_OK);
    assert_int_equal(kvp_memory_layer(memory, 0, &layer), KVP_OK);
    assert_int_equal(kvp_layer_read(&layer, KVP_K, 1, 0, large), KVP_E_ARG);
    assert_int_equal(kvp_layer_write(&layer, KVP_K, 1, 0, large), KVP_E_ARG);
    assert_int_equal(kvp_memory_gather(memory, &gather, large, NULL), KVP_E_ARG);
    kvp_copier_config_init(&config);
    config.device = &memory;
    assert_int_equal(kvp_copier_create(&config, &copier), KVP_OK);
    assert_int_equal(kvp_copier_move(copier, 0, &move, 1, NULL), KVP_E_ARG);
    assert_int_equal(kvp_copier_run(copier, &copy, 1, NULL), KVP_E_ARG);

    kvp_append append;
    kvp_why why;
    kvp_append_init(&append);
    append.layer = &layer;
    append.k.data = append.v.data = large;
    assert_int_equal(kvp_append_check(&append, &why), KVP_E_ARG);
    assert_string_equal(why.field, "layer.type");
    kvp_copier_destroy(copier);
    kvp_memory_destroy(memory);
}

TEST_MAIN(NULL, NULL)
