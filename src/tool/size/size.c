/* Owns the arithmetic from a model's shape to blocks that fit. No product overflows: models.h
 * bounds the factors.
 *
 *   token     layers x values x bytes per value
 *   block     S tokens
 *   sequence  of N tokens: ceil(N / S) blocks; with a window of R tokens at most
 *
 *               ceil((R - 1) / S) + 1   for the window: R tokens that begin anywhere in a block
 *               + ceil(K / S)           for the sinks
 *
 *             with chunks of R tokens, which begin at multiples of gcd(R, S) in a block, at most
 *
 *               ceil((R + S - gcd(R, S)) / S)
 *
 *   KV        memory x utilization - weights / TP - overhead
 *
 * A cache has one pool of equal blocks for all its layer groups (windows.h). So a model whose
 * layers keep different tokens is cut into groups of equally many layers, L:
 *
 *   L         of the divisors of the layers without a window, so that none of their blocks is
 *             padded, those with which the groups are KVP_GROUPS_MAX at most; of these the one that
 *             pads the layers with a window least, the largest of equals. Where no divisor will do,
 *             the smallest number that makes so few groups.
 *
 *               Gemma 3 27B, 10 layers without and 52 with a window: L = 10, 1 + 6 groups. The last
 *               has 2 layers, and room for 8 more
 *
 *   pool      KV / (L x bytes of a token in a layer x S) blocks; the null block comes on top
 *
 * Recurrent states are one more layer group, with a pool of slots of its own (states.h). A sequence
 * has one slot that it goes on with, and one for each checkpoint it keeps. The memory is shared so
 * that sequences of the context run out of blocks and slots together:
 *
 *   n         KV / (blocks of a sequence x bytes of a block + its slots x bytes of a slot)
 *   slots     n x slots of a sequence, those of one at least; the rest of KV is blocks
 */
#include "tool/size/size.h"

#include <kvpager/types.h>

static uint64_t ceil_div(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

static uint64_t kv_dtype_bytes(kvpi_dtype dtype)
{
    switch (dtype) {
    case KVPI_DTYPE_F32: return 4;
    case KVPI_DTYPE_BF16:
    case KVPI_DTYPE_F16: return 2;
    default: return 1;
    }
}

static uint64_t gcd(uint64_t a, uint64_t b)
{
    while (b > 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

uint64_t kvpi_size_chunk_blocks(uint64_t chunk_tokens, uint64_t n, uint64_t block_tokens)
{
    uint64_t begin = block_tokens - gcd(chunk_tokens, block_tokens); /* in its block, at most */
    return ceil_div(begin + chunk_tokens - 1 + n, block_tokens);
}

static uint64_t sequence_blocks(const kvpi_size_group *group, const kvpi_size_options *options)
{
    uint64_t all = ceil_div(options->context_tokens, options->block_tokens);
    if (group->window_tokens == 0)
        return all;
    if (group->chunked) {
        uint64_t chunk = kvpi_size_chunk_blocks(group->window_tokens, 1, options->block_tokens);
        return chunk < all ? chunk : all;
    }
    uint64_t kept = ceil_div(group->window_tokens - 1, options->block_tokens) + 1 +
                    ceil_div(options->sink_tokens, options->block_tokens);
    return kept < all ? kept : all;
}

static void add_group(const kvpi_model *model, const kvpi_size_options *options, uint32_t n_layers,
                      uint32_t window_tokens, kvpi_size *size)
{
    if (n_layers == 0)
        return;
    kvpi_size_group *group = &size->groups[size->n_groups++];
    group->n_layers = n_layers;
    group->window_tokens = window_tokens;
    group->chunked = window_tokens > 0 && model->chunked;
    group->token_bytes = n_layers * kvpi_models_kv_values(model, options->tensor_parallel) *
                         kv_dtype_bytes(options->kv_dtype);
    group->block_bytes = group->token_bytes * options->block_tokens;
    group->sequence_blocks = sequence_blocks(group, options);
    group->sequence_bytes = group->sequence_blocks * group->block_bytes;
    size->token_bytes += group->token_bytes;
    size->block_bytes += group->block_bytes;
    size->sequence_bytes += group->sequence_bytes;
}

/* ----------------------------------------------------------------------------- the cache's pool */

static uint32_t count_rows(const kvpi_size *size, uint32_t row_layers)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < size->n_groups; i++)
        n += ceil_div(size->groups[i].n_layers, row_layers);
    return (uint32_t)n;
}

static uint32_t padding_of(const kvpi_size *size, uint32_t row_layers)
{
    uint32_t n_layers = 0;
    for (uint32_t i = 0; i < size->n_groups; i++)
        n_layers += size->groups[i].n_layers;
    return count_rows(size, row_layers) * row_layers - n_layers;
}

static uint32_t choose_row_layers(const kvpi_size *size)
{
    const uint32_t most = KVP_GROUPS_MAX - (size->state_bytes > 0); /* one group is of states */
    uint32_t first = size->groups[0].n_layers, best = 0, least = 1;
    for (uint32_t n = 1; n <= first; n++)
        if (first % n == 0 && count_rows(size, n) <= most &&
            (best == 0 || padding_of(size, n) <= padding_of(size, best)))
            best = n;
    while (count_rows(size, least) > most)
        least++;
    return best != 0 ? best : least;
}

static void cut_into_rows(const kvpi_model *model, const kvpi_size_options *options,
                          kvpi_size *size)
{
    size->row_layers = choose_row_layers(size);
    size->n_rows = count_rows(size, size->row_layers);
    size->padded_layers = padding_of(size, size->row_layers);
    size->pool_token_bytes = size->row_layers *
                             kvpi_models_kv_values(model, options->tensor_parallel) *
                             kv_dtype_bytes(options->kv_dtype);
    for (uint32_t i = 0; i < size->n_groups; i++) {
        kvpi_size_group *group = &size->groups[i];
        group->n_rows = (uint32_t)ceil_div(group->n_layers, size->row_layers);
        size->sequence_in_blocks += group->n_rows * group->sequence_blocks;
    }
}

/* Sequences of the context fill the pool one after the other. The last one finds room for a part of
 * itself: its first blocks are taken in both groups, those after the window is full in the first
 * group only. */
static void share_two(kvpi_size *size)
{
    kvpi_size_group *full = &size->groups[0], *windowed = &size->groups[1];
    if (size->n_rows == 0 || full->n_rows == 0)
        return; /* no layers: no model has that */
    uint64_t rest = size->pool_blocks % size->sequence_in_blocks;
    uint64_t in_both = rest / size->n_rows, in_full = in_both;
    if (in_both > windowed->sequence_blocks) {
        in_both = windowed->sequence_blocks;
        in_full = in_both + (rest - in_both * size->n_rows) / full->n_rows;
    }
    full->blocks = size->sequences * full->sequence_blocks + in_full;
    windowed->blocks = size->sequences * windowed->sequence_blocks + in_both;
}

void kvpi_size_fill(const kvpi_size_options *options, uint64_t pool_blocks, kvpi_size *size)
{
    size->pool_blocks = pool_blocks;
    size->sequences = pool_blocks / size->sequence_in_blocks;
    size->state_slots = options->state_slots;
    if (size->state_bytes > 0 && size->state_slots == 0)
        size->state_slots = ceil_div(pool_blocks, size->sequence_in_blocks) * size->sequence_slots;
    if (size->state_bytes > 0 && size->state_slots / size->sequence_slots < size->sequences)
        size->sequences = size->state_slots / size->sequence_slots;
    if (size->n_groups == 1)
        size->groups[0].blocks = pool_blocks / size->n_rows;
    else
        share_two(size);
    size->tokens = size->groups[0].blocks * options->block_tokens;
}

/* ------------------------------------------------------------------------------------------ all */

static void count_states(const kvpi_model *model, const kvpi_size_options *options, kvpi_size *size)
{
    size->state_bytes =
        kvpi_models_state_bytes(model, options->tensor_parallel, options->state_dtype);
    size->sequence_slots = size->state_bytes > 0 ? 1 + options->checkpoints : 0;
    size->sequence_bytes += size->sequence_slots * size->state_bytes;
}

int kvpi_size_share(const kvpi_size_options *options, uint64_t kv_bytes, kvpi_size *size)
{
    const uint64_t block_bytes = size->pool_token_bytes * options->block_tokens;
    uint64_t slots = options->state_slots;
    if (size->state_bytes > 0 && slots == 0) {
        uint64_t n = kv_bytes / (size->sequence_in_blocks * block_bytes +
                                 size->sequence_slots * size->state_bytes);
        slots = (n > 0 ? n : 1) * size->sequence_slots;
    }
    if (slots > 0 && kv_bytes / slots < size->state_bytes)
        return -1;
    kvpi_size_options shared = *options;
    shared.state_slots = slots;
    kvpi_size_fill(&shared, (kv_bytes - slots * size->state_bytes) / block_bytes, size);
    return size->groups[0].blocks == 0 ? -1 : 0;
}

int kvpi_size_count(const kvpi_model *model, const kvpi_size_options *options, kvpi_size *out)
{
    const kvpi_models_attention *a = &model->attention;
    *out = (kvpi_size){.n_groups = 0};
    add_group(model, options, a->n_layers - a->n_windowed, 0, out);
    add_group(model, options, a->n_windowed, a->window_tokens, out);
    count_states(model, options, out);
    cut_into_rows(model, options, out);
    if (options->memory_bytes == 0)
        return 0;
    uint64_t weights = options->weights_bytes != 0
                           ? options->weights_bytes
                           : kvpi_models_weights_bytes(model, options->weights_dtype);
    out->weights_bytes = ceil_div(weights, options->tensor_parallel);
    out->usable_bytes = options->memory_bytes / 1000 * options->utilization_milli +
                        options->memory_bytes % 1000 * options->utilization_milli / 1000;
    uint64_t left = out->usable_bytes;
    if (left < out->weights_bytes || left - out->weights_bytes < options->overhead_bytes)
        return -1;
    out->kv_bytes = left - out->weights_bytes - options->overhead_bytes;
    return kvpi_size_share(options, out->kv_bytes, out);
}
