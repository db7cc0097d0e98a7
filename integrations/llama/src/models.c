/* models: what is refused, by name.
 *
 * llama_context_params is passed by value and changes between releases: a field that was put in
 * between moves all later ones, and one at the end makes libllama read what was not written. So a
 * libllama of another commit is recognised by the defaults that it gives, and by their size. */
#include "models.h"

#include <stdio.h>
#include <string.h>

int kvpi_models_say(kvp_why *why, const char *field, const char *text)
{
    if (why != NULL) {
        memset(why, 0, sizeof *why);
        (void)snprintf(why->field, sizeof why->field, "%s", field);
        (void)snprintf(why->text, sizeof why->text, "%s", text);
    }
    return 1;
}

/* ----------------------------------------------------------------------------- another libllama */

/* Room for what another version may write. */
enum { MOST_BYTES = 4096, PATTERN_A = 0xA5, PATTERN_B = 0x5A };

#if defined(__x86_64__) && !defined(_WIN32)
/* A struct of this size is returned through a hidden first argument: its address. */
typedef void *(*fill_bytes)(void *out);

static size_t count_written(kvpi_models_function defaults, int pattern)
{
    unsigned char bytes[MOST_BYTES];
    fill_bytes fill;
    size_t n = MOST_BYTES;
    memcpy(&fill, &defaults, sizeof fill);
    memset(bytes, pattern, sizeof bytes);
    (void)fill(bytes);
    while (n > 0 && bytes[n - 1] == pattern)
        n--;
    return n;
}

size_t kvpi_models_size(kvpi_models_function defaults)
{
    const size_t a = count_written(defaults, PATTERN_A), b = count_written(defaults, PATTERN_B);
    return a > b ? a : b;
}
#else
size_t kvpi_models_size(kvpi_models_function defaults)
{
    (void)defaults;
    return 0;
}
#endif

/* The bytes after the last field are padding, which need not be written. */
static int has_our_size(size_t n_bytes, size_t end, size_t size)
{
    return n_bytes == 0 || (n_bytes >= end && n_bytes <= size);
}

int kvpi_models_fits(kvpi_models_defaults defaults, kvp_why *why)
{
    const size_t end = offsetof(struct llama_context_params, ctx_other) + sizeof(void *);
    if (!has_our_size(kvpi_models_size((kvpi_models_function)defaults), end,
                      sizeof(struct llama_context_params))) {
        (void)kvpi_models_say(why, "libllama",
                              "its llama_context_params has another size than in the llama.h that "
                              "this library was compiled with: take both from one release");
        return 0;
    }
    const struct llama_context_params params = defaults();
    if (params.type_k != GGML_TYPE_F16 || params.type_v != GGML_TYPE_F16 || !params.offload_kqv ||
        !params.op_offload || !params.swa_full || params.kv_unified || params.embeddings ||
        params.samplers != NULL || params.n_samplers != 0) {
        (void)kvpi_models_say(why, "libllama",
                              "its default llama_context_params are not those of the llama.h that "
                              "this library was compiled with: take both from one release");
        return 0;
    }
    return 1;
}

int kvpi_models_fits_programs(kvpi_models_function model_defaults, kvp_why *why)
{
    const size_t end = offsetof(struct llama_model_params, load_mtp) + sizeof(bool);
    if (has_our_size(kvpi_models_size(model_defaults), end, sizeof(struct llama_model_params)) &&
        llama_sampler_chain_default_params().no_perf)
        return 1;
    (void)kvpi_models_say(why, "libllama",
                          "its llama_model_params or llama_sampler_chain_params are not those of "
                          "the llama.h that this program was compiled with: take both from one "
                          "release");
    return 0;
}

/* ----------------------------------------------------------------------------- models, contexts */

/* Caches that compress, or keep an index beside: a part of a sequence cannot be removed or
 * shared. */
static const char *const compressing[] = {"deepseek4"};

static int refuses_architecture(const struct llama_model *model, kvp_why *why)
{
    char name[64] = "", text[sizeof why->text];
    if (llama_model_meta_val_str(model, "general.architecture", name, sizeof name) < 0)
        return kvpi_models_say(why, "model", "it does not say its general.architecture");
    for (size_t i = 0; i < sizeof compressing / sizeof compressing[0]; i++)
        if (strcmp(name, compressing[i]) == 0) {
            (void)snprintf(text, sizeof text, "%s: its cache compresses, blocks cannot be shared",
                           name);
            return kvpi_models_say(why, "model", text);
        }
    return 0;
}

int kvpi_models_refuses_chunks(const struct llama_model *model, kvp_why *why)
{
    char name[64] = "", text[sizeof why->text];
    if (llama_model_meta_val_str(model, "general.architecture", name, sizeof name) < 0 ||
        strcmp(name, "llama4") != 0)
        return 0;
    (void)snprintf(text, sizeof text,
                   "llama4: its layers attend in chunks of %d tokens, and sequences may be longer: "
                   "have fewer cells, or a smaller max_seq_tokens",
                   (int)llama_model_n_swa(model));
    return kvpi_models_say(why, "max_seq_tokens", text);
}

static int refuses_positions(const struct llama_model *model, kvp_why *why)
{
    switch (llama_model_rope_type(model)) {
    case LLAMA_ROPE_TYPE_MROPE:
    case LLAMA_ROPE_TYPE_IMROPE:
    case LLAMA_ROPE_TYPE_VISION:
        return kvpi_models_say(why, "model", "M-RoPE: positions of images are not tokens");
    default: return 0;
    }
}

static int refuses_model(const struct llama_model *model, kvp_why *why)
{
    if (llama_model_is_recurrent(model))
        return kvpi_models_say(why, "model", "recurrent: a state cannot be shared by blocks");
    if (llama_model_is_hybrid(model))
        return kvpi_models_say(why, "model", "hybrid: its recurrent layers have states, no blocks");
    if (llama_model_is_diffusion(model))
        return kvpi_models_say(why, "model", "diffusion: it does not compute token after token");
    if (llama_model_has_encoder(model) || !llama_model_has_decoder(model))
        return kvpi_models_say(why, "model", "it has an encoder, or no decoder");
    return refuses_positions(model, why) || refuses_architecture(model, why);
}

int kvpi_models_refuses(const struct llama_model *model, const struct llama_context_params *params,
                        kvp_why *why)
{
    if (refuses_model(model, why))
        return 1;
    if (llama_model_n_swa(model) > 0 && !params->swa_full)
        return kvpi_models_say(why, "swa_full",
                               "false: the model has sliding windows, and llama.cpp has fewer "
                               "cells for their layers");
    if (params->embeddings)
        return kvpi_models_say(why, "embeddings", "true: only logits are supported");
    if (params->n_samplers > 0)
        return kvpi_models_say(why, "n_samplers", "samplers in the context are not supported");
    if (params->ctx_other != NULL)
        return kvpi_models_say(why, "ctx_other", "cells of another context are not supported");
    return 0;
}
