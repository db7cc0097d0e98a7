/* Owns the arithmetic from a model's shape to blocks that fit. No product overflows: models.h
 * bounds the factors.
 *
 *   token     layers x values x bytes per value
 *   block     S tokens, S of its layer group
 *   sequence  of N tokens: ceil(N / S) blocks; with a window of R tokens at most
 *
 *               ceil((R - 1) / S) + 1   for the window: R tokens that begin anywhere in a block
 *               + ceil(K / S)           for the sinks
 *
 *             with chunks of R tokens, which begin at multiples of gcd(R, S) in a block, at most
 *
 *               ceil((R + S - gcd(R, S)) / S)
 *
 *             with entries of r tokens S / r entries in a block: S is a multiple of each r
 *
 *   KV        memory x utilization - weights / TP - overhead
 *
 * A cache has one pool of equal blocks for all its layer groups; size_pool.c cuts the layers into
 * them.
 *
 * Recurrent states are one more layer group, with a pool of slots of its own (states.h). A sequence
 * has one slot that it goes on with, and one for each checkpoint it keeps. The memory is shared so
 * that sequences of the context run out of blocks and slots together:
 *
 *   n         KV / (blocks of a sequence x bytes of a block + its slots x bytes of a slot)
 *   slots     n x slots of a sequence, those of one at least; the rest of KV is blocks
 */
#include "tool/size/size.h"

/* Tokens of a context that a kind keeps. */
static uint64_t kept_tokens(const kvpi_models_kind *kind, const kvpi_size_options *options)
{
    const uint64_t all = options->context_tokens;
    const uint64_t window =
        kind->window_tokens + (kind->window_tokens > 0 ? options->sink_tokens : 0);
    return window > 0 && window < all ? window : all;
}

static bool is_of(const kvpi_models_kind *kind, const kvpi_size_group *group)
{
    return kind->keeps <= KVPI_KEEPS_INDEX && !kind->recomputed &&
           kind->window_tokens == group->window_tokens && kind->chunked == group->chunked;
}

static void count_layers(const kvpi_model *model, kvpi_size_group *group)
{
    uint32_t n_index = 0;
    group->span_tokens = 1;
    for (uint32_t i = 0; i < model->n_kinds; i++) {
        const kvpi_models_kind *kind = &model->kinds[i];
        if (!is_of(kind, group))
            continue;
        if (kind->entry_tokens > group->span_tokens) /* powers of two */
            group->span_tokens = kind->entry_tokens;
        *(kind->keeps == KVPI_KEEPS_INDEX ? &n_index : &group->n_layers) += kind->n_layers;
    }
    if (group->n_layers == 0)
        group->n_layers = n_index;
}

/* Sums what the kinds of a group keep of a span. */
static void count_group(const kvpi_model *model, const kvpi_size_options *options,
                        kvpi_size_group *group)
{
    count_layers(model, group);
    bool differ = group->span_tokens > 1;
    for (uint32_t i = 0; i < model->n_kinds; i++) {
        const kvpi_models_kind *kind = &model->kinds[i];
        if (!is_of(kind, group))
            continue;
        group->span_bytes +=
            kind->n_layers *
            kvpi_models_entry_bytes(kind, options->tensor_parallel, options->kv_dtype) *
            (group->span_tokens / (kind->entry_tokens > 1 ? kind->entry_tokens : 1));
        differ = differ || kind->n_layers != group->n_layers;
    }
    group->token_bytes = kvpi_size_ceil_div(group->span_bytes, group->span_tokens);
    group->layer_bytes = differ || group->n_layers == 0 ? 0 : group->token_bytes / group->n_layers;
}

static void add_groups(const kvpi_model *model, const kvpi_size_options *options, bool windowed,
                       kvpi_size *size)
{
    for (uint32_t i = 0; i < model->n_kinds; i++) {
        const kvpi_models_kind *kind = &model->kinds[i];
        bool found = kind->keeps > KVPI_KEEPS_INDEX || kind->recomputed ||
                     (kind->window_tokens > 0) != windowed;
        for (uint32_t g = 0; g < size->n_groups && !found; g++)
            found = is_of(kind, &size->groups[g]);
        if (found)
            continue;
        kvpi_size_group *group = &size->groups[size->n_groups++];
        group->window_tokens = kind->window_tokens;
        group->chunked = kind->chunked;
        count_group(model, options, group);
        size->token_bytes += group->token_bytes;
    }
}

/* What a sequence has apart from blocks: the entries of its tokens alone, and what only a running
 * one needs. */
static void count_alone(const kvpi_model *model, const kvpi_size_options *options, kvpi_size *size)
{
    for (uint32_t i = 0; i < model->n_kinds; i++) {
        const kvpi_models_kind *kind = &model->kinds[i];
        const uint64_t tokens = kind->entry_tokens > 1 ? kind->entry_tokens : 1;
        const uint64_t bytes =
            kind->n_layers * (kept_tokens(kind, options) / tokens) *
            kvpi_models_entry_bytes(kind, options->tensor_parallel, options->kv_dtype);
        if (kind->keeps == KVPI_KEEPS_INPUTS || kind->recomputed)
            size->running_bytes += bytes;
        else
            size->content_bytes += bytes;
    }
    size->content_bytes += size->state_bytes;
}

/* ------------------------------------------------------------------------------------ what fits */

/* Blocks that a group has of the first n tokens of a sequence, in each of its layer groups. */
static uint64_t blocks_of_first(const kvpi_size_group *group, uint64_t n)
{
    return kvpi_size_min(kvpi_size_ceil_div(n, group->block_tokens), group->sequence_blocks);
}

static uint64_t blocks_of_all(const kvpi_size *size, uint64_t n)
{
    uint64_t blocks = 0;
    for (uint32_t i = 0; i < size->n_groups; i++)
        blocks += size->groups[i].n_rows * blocks_of_first(&size->groups[i], n);
    return blocks;
}

/* Sequences of the context fill the pool one after the other. Of the last one there is room for the
 * first tokens. */
static void share_blocks(const kvpi_size_options *options, kvpi_size *size)
{
    const uint64_t n = size->pool_blocks / size->sequence_in_blocks;
    const uint64_t rest = size->pool_blocks % size->sequence_in_blocks;
    uint64_t low = 0, high = options->context_tokens;
    while (low < high) {
        const uint64_t middle = low + (high - low + 1) / 2;
        if (blocks_of_all(size, middle) <= rest)
            low = middle;
        else
            high = middle - 1;
    }
    for (uint32_t i = 0; i < size->n_groups; i++)
        size->groups[i].blocks =
            n * size->groups[i].sequence_blocks + blocks_of_first(&size->groups[i], low);
}

void kvpi_size_fill(const kvpi_size_options *options, uint64_t pool_blocks, kvpi_size *size)
{
    size->pool_blocks = pool_blocks;
    size->sequences = pool_blocks / size->sequence_in_blocks;
    size->state_slots = options->state_slots;
    if (size->state_bytes > 0 && size->state_slots == 0)
        size->state_slots =
            kvpi_size_ceil_div(pool_blocks, size->sequence_in_blocks) * size->sequence_slots;
    if (size->state_bytes > 0 && size->state_slots / size->sequence_slots < size->sequences)
        size->sequences = size->state_slots / size->sequence_slots;
    share_blocks(options, size);
    size->tokens = size->groups[0].blocks * size->groups[0].block_tokens;
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
    const uint64_t block_bytes = size->pool_block_bytes;
    const uint64_t apart_bytes = size->sequence_slots * size->state_bytes + size->running_bytes;
    uint64_t n = size->held_bytes > UINT64_MAX - apart_bytes
                     ? 0
                     : kv_bytes / (size->held_bytes + apart_bytes);
    kvpi_size_options shared = *options;
    n = n > 0 ? n : 1;
    if (size->state_bytes > 0 && shared.state_slots == 0)
        shared.state_slots = n * size->sequence_slots;
    if (shared.state_slots > 0 && kv_bytes / shared.state_slots < size->state_bytes)
        return -1;
    kv_bytes -= shared.state_slots * size->state_bytes;
    if (kv_bytes / n < size->running_bytes)
        return -1;
    kvpi_size_fill(&shared, (kv_bytes - n * size->running_bytes) / block_bytes, size);
    return size->groups[0].blocks == 0 ? -1 : 0;
}

uint32_t kvpi_size_windowed(const kvpi_model *model)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < model->n_kinds; i++) {
        const kvpi_models_kind *kind = &model->kinds[i];
        if (kind->keeps <= KVPI_KEEPS_LATENT && kind->window_tokens > 0 && !kind->recomputed)
            n += kind->n_layers;
    }
    return n;
}

int kvpi_size_count(const kvpi_model *model, const kvpi_size_options *options, kvpi_size *out)
{
    *out = (kvpi_size){.n_groups = 0};
    add_groups(model, options, false, out);
    add_groups(model, options, true, out);
    count_states(model, options, out);
    count_alone(model, options, out);
    kvpi_size_pool(options, out);
    if (options->memory_bytes == 0)
        return 0;
    uint64_t weights = options->weights_bytes != 0
                           ? options->weights_bytes
                           : kvpi_models_weights_bytes(model, options->weights_dtype);
    out->weights_bytes = kvpi_size_ceil_div(weights, options->tensor_parallel);
    out->usable_bytes = options->memory_bytes / 1000 * options->utilization_milli +
                        options->memory_bytes % 1000 * options->utilization_milli / 1000;
    uint64_t left = out->usable_bytes;
    if (left < out->weights_bytes || left - out->weights_bytes < options->overhead_bytes)
        return -1;
    out->kv_bytes = left - out->weights_bytes - options->overhead_bytes;
    return kvpi_size_share(options, out->kv_bytes, out);
}
