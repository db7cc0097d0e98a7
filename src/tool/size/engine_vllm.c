/* See engine_vllm.h. Owns the arithmetic of vLLM 0.32, by the names of its functions in
 * vllm/v1/core/kv_cache_utils.py, vllm/v1/kv_cache_interface.py and vllm/platforms/interface.py:
 *
 *   update_block_size_for_backend    with states, blocks of attention grow until a page has a
 *                                    state's bytes: a multiple of the block (at least 16 tokens,
 *                                    with MLA 128); a state's page is padded to that
 *   get_kv_cache_groups              layers of one spec are one group. Layers that need equally
 *                                    many tokens are one group, too, whatever their pages
 *   unify_kv_cache_spec_page_size    else all pages become as large as the largest: blocks have
 *                                    more tokens where the sizes divide, or pages are padded,
 *                                    which MLA's cannot be
 *   _..._groups_uniform_page_size    as many layers in a group as the rarest spec has; as the most
 *                                    frequent one has, if these are less than half more
 *   _get_packed_kv_cache_groups      with pages that layers fix (DeepSeek V4): layers that need
 *                                    blocks of equally many tokens are a bucket, and one group; a
 *                                    bucket with as many layers of each page size is cut into
 *                                    groups of the number of repeats that pads all of these least.
 *                                    A block has the bytes of the largest group
 *   max_memory_usage_bytes           of a request: all tokens; of a window R - 1 and two batches
 *                                    in flight, and one block; two states
 *   get_kv_cache_capacity            blocks / blocks of a request, and that times the context.
 *                                    The blocks include the null block, and parts of a request
 *
 * The layout is the one of attention on CUDA, layers outermost (LBNHC), with prefix caching and
 * asynchronous scheduling, which are the defaults. No drafts, no pipeline.
 */
#include "tool/size/engine_vllm.h"

#include "tool/size/size.h"

#include <stdio.h>

enum { KERNEL_TOKENS = 16, MLA_TOKENS = 128, IN_FLIGHT = 2, STATES = 2 };

/* DeepSeek V4's pages on CUDA: tokens of a block, bytes of an entry in fp8 and a row's padding. */
enum { ENTRY_TOKENS = 256, RECENT_TOKENS = 64, ENTRY_BYTES = 584, PAGE_BYTES = 576 };

static bool divides(uint64_t part, uint64_t whole)
{
    return part > 0 && whole % part == 0;
}

uint64_t kvpi_vllm_batch_tokens(uint64_t memory_bytes, bool is_a100)
{
    if (memory_bytes >= UINT64_C(160) << 30)
        return 16384;
    return memory_bytes >= UINT64_C(70) << 30 && !is_a100 ? 8192 : 2048;
}

/* ----------------------------------------------------------------------------------- the layers */

static bool is_compressed(const kvpi_model *model)
{
    for (uint32_t i = 0; i < model->n_kinds; i++)
        if (model->kinds[i].keeps == KVPI_KEEPS_INPUTS || model->kinds[i].entry_tokens > 1)
            return true;
    return false;
}

/* A layer of DeepSeek V4 with compressed entries: of 4 tokens, or of 128. */
static bool is_known_entry(const kvpi_models_kind *kind)
{
    const uint32_t r = kind->entry_tokens > 1 ? kind->entry_tokens : 0;
    switch (kind->keeps) {
    case KVPI_KEEPS_LATENT:
        return kind->latent + kind->rope == 512 &&
               (kind->window_tokens > 0 ? r == 0 : r == 4 || r == 128);
    case KVPI_KEEPS_INDEX: return r == 4;
    case KVPI_KEEPS_INPUTS: return kind->k_dim == (kind->window_tokens == 8 ? 2048 : 1024);
    default: return false;
    }
}

/* What is in a model that this file knows nothing of; NULL: nothing. */
static const char *find_unknown(const kvpi_model *model, kvpi_dtype dtype)
{
    bool latent = false, index = false, windows = false;
    uint32_t n_states = 0;
    for (uint32_t i = 0; i < model->n_kinds; i++) {
        const kvpi_models_kind *kind = &model->kinds[i];
        if (kind->recomputed || (is_compressed(model) && !is_known_entry(kind)))
            return "compressed entries other than DeepSeek V4's";
        latent = latent || kind->keeps == KVPI_KEEPS_LATENT;
        index = index || kind->keeps == KVPI_KEEPS_INDEX;
        n_states += kind->keeps == KVPI_KEEPS_STATE;
        windows = windows || (kind->window_tokens > 0 && !kind->chunked);
    }
    if (is_compressed(model))
        return dtype == KVPI_DTYPE_FP8 ? NULL : "compressed entries not in fp8 (--dtype fp8)";
    if (latent && windows)
        return "latent vectors beside layers with a window";
    if (index && (!latent || n_states > 0))
        return "keys of an indexer beside other layers than latent ones";
    return n_states > 1 ? "states of several sizes" : NULL;
}

/* Keys of an indexer are fp8 with a 32-bit scale for 128, whatever KV is. */
static uint64_t index_bytes(const kvpi_models_kind *kind)
{
    return kind->index_dim + 4 * kvpi_size_ceil_div(kind->index_dim, 128);
}

static kvpi_vllm_layers fixed_page(uint32_t n_layers, uint64_t window, uint64_t block_tokens,
                                   uint64_t bytes)
{
    const uint64_t page = kvpi_size_ceil_div(bytes, PAGE_BYTES) * PAGE_BYTES;
    return (kvpi_vllm_layers){.spec = window > 0 ? KVPI_VLLM_WINDOW : KVPI_VLLM_MLA,
                              .n_layers = n_layers,
                              .window_tokens = window,
                              .token_bytes = bytes / block_tokens,
                              .block_tokens = block_tokens,
                              .page_bytes = page,
                              .unused_bytes = page - bytes};
}

/* DeepSeek V4's: entries, keys of indexers, windows, and inputs of entries to come, those of the
 * indexers' keys as well. */
static uint32_t compressed_layers(const kvpi_model *model, kvpi_vllm_layers *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < model->n_kinds; i++) {
        const kvpi_models_kind *kind = &model->kinds[i];
        const uint64_t states = kind->entry_tokens > 1 ? ENTRY_TOKENS / kind->entry_tokens : 0;
        const uint64_t block = kind->window_tokens == 8 ? 4 : 8;
        if (kind->keeps == KVPI_KEEPS_INDEX) {
            out[n++] = fixed_page(kind->n_layers, 0, ENTRY_TOKENS, states * index_bytes(kind));
            out[n++] = fixed_page(kind->n_layers, 8, 4, UINT64_C(4) * 4 * kind->index_dim * 4);
        } else if (kind->keeps == KVPI_KEEPS_INPUTS) {
            out[n++] = fixed_page(kind->n_layers, kind->window_tokens, block,
                                  block * kvpi_models_entry_bytes(kind, 1, KVPI_DTYPE_FP8));
        } else if (kind->window_tokens > 0) {
            out[n++] = fixed_page(kind->n_layers, kind->window_tokens, RECENT_TOKENS,
                                  RECENT_TOKENS * ENTRY_BYTES);
        } else {
            out[n++] = fixed_page(kind->n_layers, 0, ENTRY_TOKENS, states * ENTRY_BYTES);
        }
    }
    return n;
}

uint32_t kvpi_vllm_layers_of(const kvpi_model *model, uint32_t tensor_parallel, kvpi_dtype dtype,
                             kvpi_dtype state_dtype, kvpi_vllm_layers *layers, char *why,
                             size_t n_why)
{
    const char *unknown = find_unknown(model, dtype);
    if (unknown != NULL) {
        snprintf(why, n_why, "%s", unknown);
        return 0;
    }
    if (is_compressed(model))
        return compressed_layers(model, layers);
    for (uint32_t i = 0; i < model->n_kinds; i++) {
        const kvpi_models_kind *kind = &model->kinds[i];
        kvpi_vllm_layers *of = &layers[i];
        *of = (kvpi_vllm_layers){.n_layers = kind->n_layers};
        if (kind->keeps == KVPI_KEEPS_STATE) {
            of->spec = KVPI_VLLM_STATE;
            of->token_bytes = kvpi_models_state_bytes(model, tensor_parallel, state_dtype) /
                              (kind->n_layers > 0 ? kind->n_layers : 1);
            continue;
        }
        of->spec = kind->keeps == KVPI_KEEPS_HEADS ? KVPI_VLLM_FULL : KVPI_VLLM_MLA;
        of->token_bytes = kind->keeps == KVPI_KEEPS_INDEX
                              ? index_bytes(kind)
                              : kvpi_models_entry_bytes(kind, tensor_parallel, dtype);
        if (kind->window_tokens > 0 && !kind->chunked) {
            of->spec = KVPI_VLLM_WINDOW;
            of->window_tokens = kind->window_tokens;
        }
    }
    return model->n_kinds;
}

/* ----------------------------------------------------------------------------------- the groups */

static bool is_full(const kvpi_vllm_layers *of)
{
    return of->spec == KVPI_VLLM_FULL || of->spec == KVPI_VLLM_MLA;
}

/* Layers of attention, and of these the first that keep all tokens, if there are any. */
static const kvpi_vllm_layers *find_attention(const kvpi_vllm *plan)
{
    const kvpi_vllm_layers *found = NULL;
    for (uint32_t i = 0; i < plan->n; i++)
        if (plan->layers[i].spec != KVPI_VLLM_STATE &&
            (found == NULL || (!is_full(found) && is_full(&plan->layers[i]))))
            found = &plan->layers[i];
    return found;
}

static void choose_pages(kvpi_vllm *plan, uint64_t block_tokens)
{
    const kvpi_vllm_layers *attention = find_attention(plan);
    uint64_t state_bytes = 0, align = block_tokens > KERNEL_TOKENS ? block_tokens : KERNEL_TOKENS;
    for (uint32_t i = 0; i < plan->n; i++)
        if (plan->layers[i].spec == KVPI_VLLM_STATE)
            state_bytes = plan->layers[i].token_bytes;
    if (attention != NULL && state_bytes > 0) {
        if (attention->spec == KVPI_VLLM_MLA && align < MLA_TOKENS)
            align = MLA_TOKENS;
        const uint64_t grown =
            align * kvpi_size_ceil_div(state_bytes, align * attention->token_bytes);
        block_tokens = grown > block_tokens ? grown : block_tokens;
    }
    for (uint32_t i = 0; i < plan->n; i++) {
        kvpi_vllm_layers *of = &plan->layers[i];
        if (of->spec == KVPI_VLLM_STATE) {
            of->page_bytes =
                attention != NULL ? block_tokens * attention->token_bytes : of->token_bytes;
            of->unused_bytes = of->page_bytes - of->token_bytes;
            continue;
        }
        of->block_tokens = block_tokens;
        of->page_bytes = block_tokens * of->token_bytes;
    }
}

/* One group will do: all keep all tokens, or all the same window. */
static bool are_alike(const kvpi_vllm *plan)
{
    const kvpi_vllm_layers *first = &plan->layers[0];
    for (uint32_t i = 1; i < plan->n; i++) {
        const kvpi_vllm_layers *of = &plan->layers[i];
        if (!(is_full(first) && is_full(of)) &&
            !(first->spec == KVPI_VLLM_WINDOW && of->spec == KVPI_VLLM_WINDOW &&
              of->window_tokens == first->window_tokens))
            return false;
    }
    return true;
}

static void make_one_group(kvpi_vllm *plan)
{
    plan->group_layers = plan->n == 1 ? plan->layers[0].n_layers : 0;
    for (uint32_t i = 0; i < plan->n; i++) {
        plan->layers[i].n_groups = i == 0;
        plan->block_bytes += plan->layers[i].n_layers * plan->layers[i].page_bytes;
    }
}

/* Returns: false when pages of MLA neither divide the largest one nor are it */
static bool unify_pages(kvpi_vllm *plan)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < plan->n; i++)
        most = plan->layers[i].page_bytes > most ? plan->layers[i].page_bytes : most;
    for (uint32_t i = 0; i < plan->n; i++) {
        const kvpi_vllm_layers *of = &plan->layers[i];
        if (of->spec == KVPI_VLLM_MLA && !divides(of->page_bytes, most))
            return false;
    }
    for (uint32_t i = 0; i < plan->n; i++) {
        kvpi_vllm_layers *of = &plan->layers[i];
        if (of->spec != KVPI_VLLM_STATE && divides(of->page_bytes, most))
            of->block_tokens *= most / of->page_bytes;
        else
            of->unused_bytes += most - of->page_bytes;
        of->page_bytes = most;
    }
    return true;
}

static void make_groups(kvpi_vllm *plan)
{
    uint32_t least = plan->layers[0].n_layers, most = 0;
    for (uint32_t i = 0; i < plan->n; i++) {
        const uint32_t n = plan->layers[i].n_layers;
        least = n < least ? n : least;
        most = n > most ? n : most;
    }
    plan->group_layers = 2 * (uint64_t)most < 3 * (uint64_t)least ? most : least;
    for (uint32_t i = 0; i < plan->n; i++) {
        kvpi_vllm_layers *of = &plan->layers[i];
        of->n_groups = (uint32_t)kvpi_size_ceil_div(of->n_layers, plan->group_layers);
        of->unused_layers = of->n_groups * plan->group_layers - of->n_layers;
    }
    plan->block_bytes = plan->group_layers * plan->layers[0].page_bytes;
}

/* -------------------------------------------------------------------------------- packed groups */

/* Layers whose blocks hold the same tokens. */
static bool share_bucket(const kvpi_vllm_layers *a, const kvpi_vllm_layers *b)
{
    return a->spec == b->spec && a->block_tokens == b->block_tokens &&
           a->window_tokens == b->window_tokens;
}

typedef struct bucket {
    uint32_t first;  /* of its layers */
    uint32_t n;      /* page sizes */
    uint32_t n_most; /* layers of one of them */
    bool balanced;   /* as many of each */
} bucket;

static uint32_t find_buckets(const kvpi_vllm *plan, bucket *out, uint32_t *of)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->n; i++) {
        const uint32_t n_layers = plan->layers[i].n_layers;
        for (of[i] = 0; of[i] < n; of[i]++)
            if (share_bucket(&plan->layers[out[of[i]].first], &plan->layers[i]))
                break;
        bucket *into = &out[of[i]];
        if (of[i] == n)
            out[n++] = (bucket){.first = i, .n_most = n_layers, .balanced = true};
        into->n++;
        into->balanced = into->balanced && n_layers == into->n_most;
        into->n_most = n_layers > into->n_most ? n_layers : into->n_most;
    }
    return n;
}

/* Repeats of a group: of those from `least` on, the one that pads the buckets least, the largest of
 * equals. 0: no bucket says how many. */
static uint32_t choose_repeats(const bucket *buckets, uint32_t n)
{
    uint32_t least = 0, most = 0, best = 0;
    uint64_t best_padding = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (buckets[i].balanced && buckets[i].n > 1 && buckets[i].n_most > least)
            least = buckets[i].n_most;
        if (buckets[i].balanced && buckets[i].n_most > most)
            most = buckets[i].n_most;
    }
    for (uint32_t repeats = least; least > 0 && repeats <= most; repeats++) {
        uint64_t padding = 0;
        for (uint32_t i = 0; i < n; i++)
            if (buckets[i].balanced)
                padding +=
                    kvpi_size_ceil_div(buckets[i].n_most, repeats) * repeats - buckets[i].n_most;
        if (best == 0 || padding <= best_padding)
            best = repeats, best_padding = padding;
    }
    return best;
}

static int make_packed_groups(kvpi_vllm *plan)
{
    bucket buckets[KVPI_VLLM_MAX_LAYERS];
    uint32_t of[KVPI_VLLM_MAX_LAYERS];
    uint64_t bytes[KVPI_VLLM_MAX_LAYERS] = {0};
    const uint32_t n = find_buckets(plan, buckets, of), repeats = choose_repeats(buckets, n);
    if (repeats == 0)
        return -1;
    for (uint32_t i = 0; i < plan->n; i++) {
        kvpi_vllm_layers *layers = &plan->layers[i];
        const bucket *in = &buckets[of[i]];
        const uint64_t n_groups = in->balanced ? kvpi_size_ceil_div(in->n_most, repeats) : 1;
        layers->n_groups = in->first == i ? (uint32_t)n_groups : 0;
        bytes[of[i]] += kvpi_size_ceil_div(layers->n_layers, n_groups) * layers->page_bytes;
        plan->block_bytes = bytes[of[i]] > plan->block_bytes ? bytes[of[i]] : plan->block_bytes;
    }
    return 0;
}

/* --------------------------------------------------------------------------------- the capacity */

static uint64_t blocks_of(const kvpi_vllm_layers *of, const kvpi_vllm_options *options,
                          uint64_t context)
{
    const uint64_t in_flight = IN_FLIGHT * options->batch_tokens;
    if (of->spec == KVPI_VLLM_STATE)
        return STATES;
    if (of->spec == KVPI_VLLM_WINDOW)
        return kvpi_size_ceil_div(kvpi_size_min(of->window_tokens - 1 + in_flight, context),
                                  of->block_tokens) +
               1;
    return kvpi_size_ceil_div(context, of->block_tokens);
}

static uint64_t count_request(const kvpi_vllm *plan, const kvpi_vllm_options *options,
                              uint64_t context)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < plan->n; i++)
        n += plan->layers[i].n_groups * blocks_of(&plan->layers[i], options, context);
    return n;
}

/* The longest context of which a request fits into so many blocks. */
static uint64_t find_context(const kvpi_vllm *plan, const kvpi_vllm_options *options,
                             uint64_t blocks)
{
    uint64_t low = 0, high = options->context_tokens;
    while (low < high) {
        const uint64_t middle = low + (high - low + 1) / 2;
        if (count_request(plan, options, middle) <= blocks)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Tokens of one request whose prompt is computed, in whole batches, and of others that decode. */
static uint64_t count_held(const kvpi_vllm *plan, const kvpi_vllm_options *options, uint64_t blocks)
{
    const uint64_t each = plan->decoding_blocks;
    const uint64_t others = each > 0 ? (blocks - plan->request_blocks) / each : 0;
    return (1 + others) * options->context_tokens;
}

static void fill(kvpi_vllm *plan, const kvpi_vllm_options *options)
{
    plan->blocks = options->memory_bytes / plan->block_bytes;
    const uint64_t usable = plan->blocks > 0 ? plan->blocks - 1 : 0;
    plan->starts = plan->request_blocks > 0 && plan->request_blocks <= usable;
    if (!plan->starts) {
        plan->most_context_tokens = find_context(plan, options, usable);
        return;
    }
    plan->concurrency = (double)plan->blocks / (double)plan->request_blocks;
    plan->tokens = (uint64_t)(plan->concurrency * (double)options->context_tokens);
    plan->held_tokens = count_held(plan, options, usable);
}

static int group(kvpi_vllm *plan, uint64_t block_tokens)
{
    if (plan->layers[0].page_bytes > 0)
        return make_packed_groups(plan);
    choose_pages(plan, block_tokens);
    if (plan->n == 1 || are_alike(plan))
        make_one_group(plan);
    else if (unify_pages(plan))
        make_groups(plan);
    else
        return -1;
    return 0;
}

int kvpi_vllm_plan(const kvpi_vllm_layers *layers, uint32_t n, const kvpi_vllm_options *options,
                   kvpi_vllm *out)
{
    *out = (kvpi_vllm){.n = n};
    for (uint32_t i = 0; i < n; i++)
        out->layers[i] = layers[i];
    if (group(out, options->block_tokens) != 0)
        return -1;
    for (uint32_t i = 0; i < n; i++)
        out->layers[i].request_blocks =
            out->layers[i].n_groups * blocks_of(&out->layers[i], options, options->context_tokens);
    out->request_blocks = count_request(out, options, options->context_tokens);
    kvpi_vllm_options decoding = *options;
    decoding.batch_tokens = 1;
    out->decoding_blocks = count_request(out, &decoding, options->context_tokens);
    if (options->memory_bytes > 0)
        fill(out, options);
    return 0;
}
