/* window_model: see window_model.h. Every second layer has the window, the others see all. */
#include "window_model.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <llama.h>

enum { WIDTH = 64, LAYERS = 4, HEADS = 2, HEAD_WIDTH = 32, INNER = 128 };

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 31) * 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 29) * 0xBF58476D1CE4E5B9u;
    return x ^ x >> 32;
}

/* Norms are near 1, those of Q and K near 2: tokens then look at few others, and sums of many
 * small parts do not amplify rounding. The others are between -1 and 1, divided so that products
 * keep their size. */
static void set_weight(struct ggml_tensor *tensor, void *data)
{
    const char *name = ggml_get_name(tensor);
    const size_t n = (size_t)ggml_nelements(tensor);
    const int is_norm = strstr(name, "norm") != NULL;
    const float middle = !is_norm ? 0 : strstr(name, "_q_") || strstr(name, "_k_") ? 2 : 1;
    const float scale = is_norm ? 0.2F : sqrtf(3.0F / (float)tensor->ne[0]);
    uint64_t seed = 1;
    float *values = calloc(n, sizeof *values);
    (void)data;
    if (strcmp(name, "output.weight") == 0)
        name = "token_embd.weight";
    for (const char *c = name; *c != '\0'; c++)
        seed = mix(seed + (unsigned char)*c);
    if (values == NULL || tensor->type != GGML_TYPE_F32) {
        printf("failed: window model: %s\n", name);
        exit(1);
    }
    for (size_t i = 0; i < n; i++)
        values[i] = middle + scale * ((float)(mix(seed + i) >> 40) / 8388608.0F - 1.0F);
    ggml_backend_tensor_set(tensor, values, 0, n * sizeof *values);
    free(values);
}

struct llama_model *window_model_load(const char *path)
{
    struct gguf_context *from =
        gguf_init_from_file(path, (struct gguf_init_params){.no_alloc = true, .ctx = NULL});
    struct gguf_context *metadata = gguf_init_empty();
    if (from == NULL) {
        printf("failed: window model: the file cannot be read\n");
        exit(1);
    }
    gguf_set_kv(metadata, from);
    gguf_set_val_str(metadata, "general.architecture", "gemma3");
    gguf_set_val_u32(metadata, "gemma3.context_length", 8192);
    gguf_set_val_u32(metadata, "gemma3.embedding_length", WIDTH);
    gguf_set_val_u32(metadata, "gemma3.block_count", LAYERS);
    gguf_set_val_u32(metadata, "gemma3.feed_forward_length", INNER);
    gguf_set_val_u32(metadata, "gemma3.attention.head_count", HEADS);
    gguf_set_val_u32(metadata, "gemma3.attention.head_count_kv", 1);
    gguf_set_val_u32(metadata, "gemma3.attention.key_length", HEAD_WIDTH);
    gguf_set_val_u32(metadata, "gemma3.attention.value_length", HEAD_WIDTH);
    gguf_set_val_f32(metadata, "gemma3.attention.layer_norm_rms_epsilon", 1e-6F);
    gguf_set_val_u32(metadata, "gemma3.attention.sliding_window", WINDOW_MODEL_WINDOW);
    gguf_set_val_u32(metadata, "gemma3.attention.sliding_window_pattern", 2);
    struct llama_model *model =
        llama_model_init_from_user(metadata, set_weight, NULL, llama_model_default_params());
    gguf_free(metadata);
    gguf_free(from);
    return model;
}
