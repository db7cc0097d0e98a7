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
 *             with entries of r tokens: floor(N / r) of them, S / r in a block, or one. The pool
 *             counts such entries as bytes a token
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
 *               Where a layer with a window has other heads than one without, a group has the bytes
 *               of L layers without, and as many with a window as fit into them.
 *
 *               Where layers of the first group differ in what they keep for a token, the group is
 *               not cut, and the layers with a window are, so as to pad least.
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
    return kvpi_size_ceil_div(begin + chunk_tokens - 1 + n, block_tokens);
}

static uint64_t sequence_blocks(const kvpi_size_group *group, const kvpi_size_options *options)
{
    uint64_t all = kvpi_size_ceil_div(options->context_tokens, options->block_tokens);
    if (group->window_tokens == 0)
        return all;
    if (group->chunked) {
        uint64_t chunk = kvpi_size_chunk_blocks(group->window_tokens, 1, options->block_tokens);
        return chunk < all ? chunk : all;
    }
    uint64_t kept = kvpi_size_ceil_div(group->window_tokens - 1, options->block_tokens) + 1 +
                    kvpi_size_ceil_div(options->sink_tokens, options->block_tokens);
    return kept < all ? kept : all;
}

/* Tokens of a context that a kind keeps. */
static uint64_t kept_tokens(const kvpi_models_kind *kind, const kvpi_size_options *options)
{
    const uint64_t all = options->context_tokens;
    const uint64_t window =
        kind->window_tokens + (kind->window_tokens > 0 ? options->sink_tokens : 0);
    return window > 0 && window < all ? window : all;
}

/* Entries that a group's blocks have for a kind: of S tokens each, or of one entry's tokens. */
static uint64_t entries_in_blocks(const kvpi_models_kind *kind, const kvpi_size_group *group,
                                  const kvpi_size_options *options)
{
    if (kind->entry_tokens <= 1)
        return group->sequence_blocks * options->block_tokens;
    const uint64_t in_block = options->block_tokens / kind->entry_tokens;
    const uint64_t n = kept_tokens(kind, options) / kind->entry_tokens;
    return in_block > 1 ? kvpi_size_ceil_div(n, in_block) * in_block : n;
}

static bool is_of(const kvpi_models_kind *kind, const kvpi_size_group *group)
{
    return kind->keeps <= KVPI_KEEPS_INDEX && !kind->recomputed &&
           kind->window_tokens == group->window_tokens && kind->chunked == group->chunked;
}

/* Counts the layers of a group. Gives a multiple of the tokens of every entry. */
static uint64_t count_layers(const kvpi_model *model, kvpi_size_group *group)
{
    uint64_t multiple = 1;
    uint32_t n_index = 0;
    for (uint32_t i = 0; i < model->n_kinds; i++) {
        const kvpi_models_kind *kind = &model->kinds[i];
        if (!is_of(kind, group))
            continue;
        if (kind->entry_tokens > 1)
            multiple *= kind->entry_tokens / gcd(multiple, kind->entry_tokens);
        *(kind->keeps == KVPI_KEEPS_INDEX ? &n_index : &group->n_layers) += kind->n_layers;
    }
    if (group->n_layers == 0)
        group->n_layers = n_index;
    return multiple;
}

/* Sums what the kinds of a group keep. Bytes of a token are a fraction where an entry is of many,
 * and summed as such. */
static void count_group(const kvpi_model *model, const kvpi_size_options *options,
                        kvpi_size_group *group)
{
    const uint64_t multiple = count_layers(model, group);
    uint64_t bytes = 0;
    bool differ = multiple > 1;
    group->sequence_blocks = sequence_blocks(group, options);
    for (uint32_t i = 0; i < model->n_kinds; i++) {
        const kvpi_models_kind *kind = &model->kinds[i];
        if (!is_of(kind, group))
            continue;
        const uint64_t entry =
            kind->n_layers *
            kvpi_models_entry_bytes(kind, options->tensor_parallel, options->kv_dtype);
        bytes += entry * (multiple / (kind->entry_tokens > 1 ? kind->entry_tokens : 1));
        group->sequence_bytes += entry * entries_in_blocks(kind, group, options);
        differ = differ || kind->n_layers != group->n_layers;
    }
    group->token_bytes = kvpi_size_ceil_div(bytes, multiple);
    group->block_bytes = group->token_bytes * options->block_tokens;
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
        size->block_bytes += group->block_bytes;
        size->sequence_bytes += group->sequence_bytes;
    }
}

/* What a sequence has apart from blocks: the entries of its tokens alone, and what only a running
 * one needs. */
static void count_alone(const kvpi_model *model, const kvpi_size_options *options, kvpi_size *size)
{
    for (uint32_t i = 0; i < model->n_kinds; i++) {
        const kvpi_models_kind *kind = &model->kinds[i];
        const uint64_t tokens = kind->entry_tokens > 1 ? kind->entry_tokens : 1;
        size->has_entries = size->has_entries || tokens > 1;
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

/* ----------------------------------------------------------------------------- the cache's pool */

/* Layer groups when each has `row_bytes` for a token; too many if a layer has more. */
static uint64_t rows_of(const kvpi_size_group *group, uint64_t row_bytes)
{
    if (group->layer_bytes == 0)
        return kvpi_size_ceil_div(group->token_bytes, row_bytes);
    uint64_t places = row_bytes / group->layer_bytes;
    return places == 0 ? KVP_GROUPS_MAX + 1 : kvpi_size_ceil_div(group->n_layers, places);
}

static uint64_t count_rows(const kvpi_size *size, uint64_t row_bytes)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < size->n_groups; i++)
        n += rows_of(&size->groups[i], row_bytes);
    return n;
}

static uint64_t padding_of(const kvpi_size *size, uint64_t row_bytes)
{
    return count_rows(size, row_bytes) * row_bytes - size->token_bytes;
}

/* Tries the multiples n of `step` of which `whole` is one. Gives the best yet: the one that pads
 * least, the largest of equals. */
static void try_rows(const kvpi_size *size, uint64_t step, uint64_t whole, uint64_t most,
                     uint64_t *best)
{
    for (uint64_t n = 1; n <= whole; n++)
        if (whole % n == 0 && count_rows(size, n * step) <= most &&
            (*best == 0 || padding_of(size, n * step) <= padding_of(size, *best)))
            *best = n * step;
}

static uint64_t choose_row_bytes(const kvpi_size *size)
{
    const uint32_t most = KVP_GROUPS_MAX - (size->state_bytes > 0); /* one group is of states */
    const kvpi_size_group *first = &size->groups[0];
    uint64_t step = first->layer_bytes, best = 0;
    if (step > 0) {
        try_rows(size, step, first->n_layers, most, &best);
    } else {
        step = first->token_bytes;
        try_rows(size, step, 1, most, &best);
        for (uint32_t i = 1; i < size->n_groups; i++)
            for (uint64_t n = 1; size->groups[i].layer_bytes > 0 && n <= size->groups[i].n_layers;
                 n++)
                try_rows(size, n * size->groups[i].layer_bytes, 1, most, &best);
    }
    for (uint64_t least = step; best == 0; least += step)
        if (count_rows(size, least) <= most)
            best = least;
    return best;
}

static void cut_into_rows(kvpi_size *size)
{
    const uint64_t row = choose_row_bytes(size), layer = size->groups[0].layer_bytes;
    size->pool_token_bytes = row;
    size->n_rows = (uint32_t)count_rows(size, row);
    size->padding_bytes = padding_of(size, row);
    size->row_layers = layer > 0 ? (uint32_t)(row / layer) : size->groups[0].n_layers;
    size->padded_layers = layer > 0 ? (uint32_t)(size->padding_bytes / layer) : 0;
    for (uint32_t i = 0; i < size->n_groups; i++) {
        kvpi_size_group *group = &size->groups[i];
        group->n_rows = (uint32_t)rows_of(group, row);
        size->sequence_in_blocks += group->n_rows * group->sequence_blocks;
    }
}

/* Sequences of the context fill the pool one after the other. The last one finds room for a part of
 * itself: its first blocks are taken in all groups, those after a window is full in the others. */
static void share_blocks(kvpi_size *size)
{
    uint64_t n = size->pool_blocks / size->sequence_in_blocks, filled = 0;
    uint64_t rest = size->pool_blocks % size->sequence_in_blocks;
    for (uint32_t i = 0; i < size->n_groups; i++)
        size->groups[i].blocks = n * size->groups[i].sequence_blocks;
    for (;;) {
        uint64_t n_rows = 0, next = UINT64_MAX;
        for (uint32_t i = 0; i < size->n_groups; i++) {
            const kvpi_size_group *group = &size->groups[i];
            if (group->sequence_blocks <= filled)
                continue;
            n_rows += group->n_rows;
            next = group->sequence_blocks < next ? group->sequence_blocks : next;
        }
        if (n_rows == 0 || rest < n_rows)
            return;
        uint64_t more = rest / n_rows < next - filled ? rest / n_rows : next - filled;
        for (uint32_t i = 0; i < size->n_groups; i++)
            size->groups[i].blocks += size->groups[i].sequence_blocks > filled ? more : 0;
        rest -= more * n_rows;
        filled += more;
        if (filled < next)
            return;
    }
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
    share_blocks(size);
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
    const uint64_t apart_bytes = size->sequence_slots * size->state_bytes + size->running_bytes;
    uint64_t n = kv_bytes / (size->sequence_in_blocks * block_bytes + apart_bytes);
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
    cut_into_rows(out);
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
