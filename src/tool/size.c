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
 *   KV        memory x utilization - weights / TP - overhead
 */
#include "size.h"

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

static uint64_t sequence_blocks(const kvpi_size_group *group, const kvpi_size_options *options)
{
    uint64_t all = ceil_div(options->context_tokens, options->block_tokens);
    if (group->window_tokens == 0)
        return all;
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
    group->token_bytes = n_layers * kvpi_models_kv_values(model, options->tensor_parallel) *
                         kv_dtype_bytes(options->kv_dtype);
    group->block_bytes = group->token_bytes * options->block_tokens;
    group->sequence_blocks = sequence_blocks(group, options);
    group->sequence_bytes = group->sequence_blocks * group->block_bytes;
    size->token_bytes += group->token_bytes;
    size->block_bytes += group->block_bytes;
    size->sequence_bytes += group->sequence_bytes;
}

/* Two groups share the memory as sequences of the context fill it one after the other. The last one
 * finds room for a part of itself: its first blocks are taken in both groups, those after the
 * window is full in the first group only. */
static void share_two(kvpi_size *size)
{
    kvpi_size_group *full = &size->groups[0], *windowed = &size->groups[1];
    uint64_t rest = size->kv_bytes % size->sequence_bytes;
    uint64_t both = full->block_bytes + windowed->block_bytes, in_both = rest / both;
    uint64_t in_full = in_both;
    if (in_both > windowed->sequence_blocks) {
        in_both = windowed->sequence_blocks;
        in_full = in_both + (rest - in_both * both) / full->block_bytes;
    }
    full->blocks = size->sequences * full->sequence_blocks + in_full;
    windowed->blocks = size->sequences * windowed->sequence_blocks + in_both;
}

static int share_out(const kvpi_size_options *options, kvpi_size *size)
{
    size->sequences = size->kv_bytes / size->sequence_bytes;
    if (size->n_groups == 1)
        size->groups[0].blocks = size->kv_bytes / size->groups[0].block_bytes;
    else
        share_two(size);
    size->tokens = size->groups[0].blocks * options->block_tokens;
    return size->groups[0].blocks == 0 ? -1 : 0;
}

int kvpi_size_count(const kvpi_model *model, const kvpi_size_options *options, kvpi_size *out)
{
    const kvpi_models_attention *a = &model->attention;
    *out = (kvpi_size){.n_groups = 0};
    add_group(model, options, a->n_layers - a->n_windowed, 0, out);
    add_group(model, options, a->n_windowed, a->window_tokens, out);
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
    return share_out(options, out);
}
