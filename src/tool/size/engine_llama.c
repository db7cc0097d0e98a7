/* See engine_llama.h. Owns the arithmetic of llama.cpp, release 11549 (src/llama-context.cpp,
 * llama-kv-cache.cpp, llama-kv-cache-iswa.cpp, llama-memory-recurrent.cpp):
 *
 *   c         the context, up to a multiple of 256
 *   sequence  c cells in one cache for all; or a cache for each of n sequences, with c / n cells
 *             up to a multiple of 256 once more, which may be more than c in all
 *   window    min(sequence, R x (sequences in the cache) + batch) up to a multiple of 256
 *   layer     cells x (K + V) values; MLA and indexers: K only
 *   state     for each sequence, in f32, the inputs of convolutions as well
 */
#include "tool/size/engine_llama.h"

#include "tool/size/size.h"

#include <inttypes.h>
#include <stdio.h>

#define PAD                256u
#define MAX_CONTEXT_TOKENS (UINT64_C(1) << 27) /* models.h counts on it */
#define BATCH_TOKENS       2048u               /* its -b, which bounds -ub */

static uint64_t pad(uint64_t n)
{
    return (n + PAD - 1) / PAD * PAD;
}

static void count_cells(const kvpi_llama_options *options, kvpi_llama *out)
{
    const uint64_t context = pad(options->context_tokens);
    out->n_caches = options->unified ? 1 : options->n_sequences;
    out->sequence_cells = options->unified ? context : pad(context / options->n_sequences);
}

static uint64_t window_cells(const kvpi_llama_options *options, uint64_t window,
                             const kvpi_llama *out)
{
    const uint64_t n = options->unified ? options->n_sequences : 1;
    const uint64_t batch = kvpi_size_min(options->batch_tokens, BATCH_TOKENS);
    if (options->full_windows)
        return out->sequence_cells;
    return pad(kvpi_size_min(out->sequence_cells, window * n + batch));
}

/* The values of a row must be whole groups of the type's. */
static bool has_whole_groups(const kvpi_models_kind *kind, kvpi_dtype dtype)
{
    const uint32_t group = dtype == KVPI_DTYPE_Q8_0 || dtype == KVPI_DTYPE_Q4_0 ? 32 : 1;
    if (kind->keeps == KVPI_KEEPS_LATENT)
        return (kind->latent + kind->rope) % group == 0;
    return kind->k_dim % group == 0 && kind->v_dim % group == 0 && kind->index_dim % group == 0;
}

static bool keeps_all(const kvpi_model *model)
{
    for (uint32_t i = 0; i < model->n_kinds; i++)
        if (model->kinds[i].keeps != KVPI_KEEPS_STATE && model->kinds[i].window_tokens == 0)
            return true;
    return false;
}

static void add_layers(const kvpi_model *model, const kvpi_models_kind *kind,
                       const kvpi_llama_options *options, kvpi_llama *out)
{
    kvpi_llama_layers *of = &out->layers[out->n++];
    *of = (kvpi_llama_layers){.n_layers = kind->n_layers,
                              .windowed = kind->window_tokens > 0 &&
                                          (options->all_windowed || keeps_all(model)),
                              .state = kind->keeps == KVPI_KEEPS_STATE};
    if (of->state) {
        kvpi_model only = *model;
        only.kinds[0] = *kind;
        only.n_kinds = only.kinds[0].n_layers = 1;
        only.activations_dtype = KVPI_DTYPE_F32;
        of->cell_bytes = kvpi_models_state_bytes(&only, 1, KVPI_DTYPE_F32);
        of->cells = 1;
        of->bytes = of->n_layers * of->cell_bytes * options->n_sequences;
    } else {
        kvpi_models_kind plain = *kind;
        if (kind->keeps == KVPI_KEEPS_INDEX) /* of the type of KV, here */
            plain = (kvpi_models_kind){.keeps = KVPI_KEEPS_LATENT, .latent = kind->index_dim};
        plain.scale_bytes = 0;
        of->cell_bytes = kvpi_models_entry_bytes(&plain, 1, options->dtype);
        of->cells =
            of->windowed ? window_cells(options, kind->window_tokens, out) : out->sequence_cells;
        of->bytes = of->n_layers * of->cell_bytes * of->cells * out->n_caches;
    }
    out->bytes += of->bytes;
}

static void count(const kvpi_model *model, const kvpi_llama_options *options, kvpi_llama *out)
{
    *out = (kvpi_llama){.n = 0};
    count_cells(options, out);
    for (uint32_t i = 0; i < model->n_kinds; i++)
        add_layers(model, &model->kinds[i], options, out);
}

/* The largest context, a multiple of the padding for each cache, whose bytes are in the memory. */
static uint64_t find_context(const kvpi_model *model, const kvpi_llama_options *options)
{
    const uint64_t step = (uint64_t)PAD * (options->unified ? 1 : options->n_sequences);
    uint64_t low = 0, high = MAX_CONTEXT_TOKENS / step;
    while (low < high) {
        const uint64_t middle = low + (high - low + 1) / 2;
        kvpi_llama_options tried = *options;
        kvpi_llama counted;
        tried.context_tokens = middle * step;
        count(model, &tried, &counted);
        if (counted.bytes <= options->memory_bytes)
            low = middle;
        else
            high = middle - 1;
    }
    return low * step;
}

int kvpi_llama_count(const kvpi_model *model, const kvpi_llama_options *options, kvpi_llama *out,
                     char *why, size_t n_why)
{
    for (uint32_t i = 0; i < model->n_kinds; i++) {
        const kvpi_models_kind *kind = &model->kinds[i];
        if (kind->keeps == KVPI_KEEPS_INPUTS || kind->entry_tokens > 1) {
            snprintf(why, n_why, "compressed entries");
            return -1;
        }
        if (kind->keeps != KVPI_KEEPS_STATE && !has_whole_groups(kind, options->dtype)) {
            snprintf(why, n_why, "rows of %s that are not a multiple of 32 values",
                     kvpi_models_dtypes[options->dtype]);
            return -1;
        }
    }
    count(model, options, out);
    if (options->memory_bytes > 0) {
        out->fits = out->bytes <= options->memory_bytes;
        out->most_context_tokens = find_context(model, options);
    }
    return 0;
}
