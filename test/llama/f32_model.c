/* f32_model: see f32_model.h. */
#include "f32_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <llama.h>

static void stop(const char *what)
{
    printf("failed: f32 model: %s\n", what);
    exit(1);
}

/* The weights of a file, to be read by name. */
typedef struct weights {
    struct gguf_context *metadata;
    struct ggml_context *tensors;
} weights;

static void set_f32(struct ggml_tensor *tensor, void *data)
{
    const weights *w = data;
    const char *name = ggml_get_name(tensor);
    const char *tied = strcmp(name, "output.weight") == 0 ? "token_embd.weight" : name;
    const struct ggml_tensor *from = ggml_get_tensor(w->tensors, tied);
    const size_t n = (size_t)ggml_nelements(tensor);
    const int is_bias = strstr(name, ".bias") != NULL;
    float *values = calloc(n, sizeof *values);
    if (values == NULL || tensor->type != GGML_TYPE_F32)
        stop(name);
    if (from != NULL && from->type == GGML_TYPE_F32)
        memcpy(values, from->data, n * sizeof *values);
    else if (from != NULL)
        ggml_get_type_traits(from->type)->to_float(from->data, values, (int64_t)n);
    else if (is_bias || strstr(name, "scale") != NULL || strstr(name, "rope_freqs") != NULL)
        for (size_t i = 0; i < n; i++)
            values[i] = is_bias ? 0.0F : 1.0F; /* not in the file, and it changes nothing */
    else
        stop(name);
    ggml_backend_tensor_set(tensor, values, 0, n * sizeof *values);
    free(values);
}

struct llama_model *f32_model_load(const char *path, uint32_t n_layers)
{
    weights w = {NULL, NULL};
    w.metadata =
        gguf_init_from_file(path, (struct gguf_init_params){.no_alloc = false, .ctx = &w.tensors});
    if (w.metadata == NULL)
        stop("the file cannot be read");
    struct gguf_context *metadata = gguf_init_empty();
    gguf_set_kv(metadata, w.metadata);
    gguf_set_val_u32(metadata, "llama.block_count", n_layers);
    struct llama_model *model =
        llama_model_init_from_user(metadata, set_f32, &w, llama_model_default_params());
    gguf_free(metadata);
    gguf_free(w.metadata);
    ggml_free(w.tensors);
    return model;
}
