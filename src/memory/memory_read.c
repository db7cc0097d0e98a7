/* memory_read: what a person asks for who looks for a mistake. Gathers tokens, hashes blocks. */
#include <math.h>

#include "memory/layer.h"
#include "memory/layout.h"
#include "memory/memory.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

/* -------------------------------------------------------------------------------------- gather */

static int is_valid(const kvp_memory *memory, const kvp_gather *gather)
{
    const uint64_t per_block = memory->layout.block_tokens;
    const uint64_t end = (uint64_t)gather->begin + gather->n_tokens;
    if (gather->layer >= memory->layout.n_layers || end > UINT32_MAX ||
        end > gather->n_row * per_block || (gather->n_tokens > 0 && !gather->row)) {
        return 0;
    }
    for (uint64_t i = gather->begin / per_block; gather->n_tokens > 0 && i * per_block < end; i++) {
        if (gather->row[i] < 0 || (uint32_t)gather->row[i] >= memory->layout.n_blocks) {
            return 0;
        }
    }
    return 1;
}

static void gather_part(const kvp_layer *layer, const kvp_gather *gather, int which, float *out)
{
    const uint32_t size = which == KVP_K ? layer->k.size : layer->v.size;
    for (uint32_t i = 0; i < gather->n_tokens; i++) {
        const uint32_t position = gather->begin + i;
        const int64_t block = gather->row[position / layer->block_tokens];
        const int64_t slot = block * layer->block_tokens + position % layer->block_tokens;
        for (uint32_t head = 0; head < layer->n_heads; head++, out += size) {
            if (block != KVP_NULL_BLOCK) {
                (void)kvp_layer_read(layer, which, slot, head, out);
                continue;
            }
            for (uint32_t e = 0; e < size; e++) {
                out[e] = NAN;
            }
        }
    }
}

kvp_status kvp_memory_gather(const kvp_memory *memory, const kvp_gather *gather, float *out_k,
                             float *out_v)
{
    kvp_layer layer;
    if (!memory || memory->layout.type == KVP_BYTES || !gather ||
        (out_v && memory->layout.v.size == 0) || !is_valid(memory, gather)) {
        return KVP_E_ARG;
    }
    (void)kvp_memory_layer(memory, gather->layer, &layer);
    if (out_k) {
        gather_part(&layer, gather, KVP_K, out_k);
    }
    if (out_v) {
        gather_part(&layer, gather, KVP_V, out_v);
    }
    return KVP_OK;
}

/* ------------------------------------------------------------------------------------ checksum */

static uint32_t is_little_endian(uint32_t value)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    return value;
#else
    return __builtin_bswap32(value);
#endif
}

static void hash_head(XXH3_state_t *state, const kvp_layout *layout, uint32_t n_tokens)
{
    const uint32_t numbers[8] = {
        is_little_endian(layout->type),        is_little_endian(n_tokens),
        is_little_endian(layout->n_layers),    is_little_endian(layout->n_heads),
        is_little_endian(layout->k.size),      is_little_endian(layout->v.size),
        is_little_endian(layout->first_layer), is_little_endian(layout->first_head),
    };
    (void)XXH3_128bits_update(state, numbers, sizeof(numbers));
}

/* A row at a time where its elements lie side by side; an element at a time costs, and is rare. */
static void hash_part(XXH3_state_t *state, const kvp_layer *layer, const kvp_layer_part *part,
                      int64_t first_slot, uint32_t n_tokens)
{
    for (uint32_t token = 0; part->base && token < n_tokens; token++) {
        for (uint32_t head = 0; head < layer->n_heads; head++) {
            const struct kvpi_row row = kvpi_layer_row(layer, part, first_slot + token, head);
            for (uint32_t i = 0; i < row.n_runs; i++) {
                (void)XXH3_128bits_update(state, row.at + i * row.run_stride, row.run_bytes);
            }
        }
    }
}

static void hash_scales(XXH3_state_t *state, const kvp_layer *layer, const kvp_layer_part *part,
                        int32_t block)
{
    for (uint32_t head = 0; part->scales && head < layer->n_heads; head++) {
        (void)XXH3_128bits_update(state, kvpi_layer_scale(part, (uint64_t)block, head),
                                  sizeof(float));
    }
}

kvp_status kvp_memory_checksum(const kvp_memory *memory, int32_t block, uint32_t n_tokens,
                               kvp_hash *out_checksum)
{
    XXH3_state_t state;
    XXH128_canonical_t canonical;
    if (!memory || !out_checksum || block < 0 || (uint32_t)block >= memory->layout.n_blocks ||
        n_tokens == 0 || n_tokens > memory->layout.block_tokens) {
        return KVP_E_ARG;
    }
    (void)XXH3_128bits_reset(&state);
    hash_head(&state, &memory->layout, n_tokens);
    for (uint32_t l = 0; l < memory->layout.n_layers; l++) {
        kvp_layer layer;
        (void)kvp_memory_layer(memory, l, &layer);
        const int64_t first_slot = (int64_t)block * layer.block_tokens;
        hash_part(&state, &layer, &layer.k, first_slot, n_tokens);
        hash_part(&state, &layer, &layer.v, first_slot, n_tokens);
        hash_scales(&state, &layer, &layer.k, block);
        hash_scales(&state, &layer, &layer.v, block);
    }
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state));
    for (size_t i = 0; i < sizeof(out_checksum->bytes); i++) {
        out_checksum->bytes[i] = canonical.digest[i];
    }
    return KVP_OK;
}
