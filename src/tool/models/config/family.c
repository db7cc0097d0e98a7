/* Owns the defaults of transformers' configuration classes, as far as published files rely on them:
 * files leave out what equals a default. */
#include "tool/models/config/family.h"

#include <stddef.h>
#include <string.h>

static const kvpi_family families[] = {
    {.model_type = "gemma", .head_dim = 256, .tied = true},
    {.model_type = "gemma2", .head_dim = 256, .window = 4096, .pattern = 2, .tied = true},
    {.model_type = "gemma3_text",
     .q_heads = 8,
     .kv_heads = 4,
     .head_dim = 256,
     .vocab = 262208,
     .window = 4096,
     .pattern = 6,
     .tied = true},
    {.model_type = "gemma3n_text", .kv_heads = 2, .head_dim = 256, .window = 512, .tied = true},
    {.model_type = "gemma4_text", .head_dim = 256, .full_head_dim = 512, .tied = true},
    {.model_type = "gemma4_unified_text", .head_dim = 256, .full_head_dim = 512, .tied = true},
    {.model_type = "cohere", .tied = true},
    {.model_type = "cohere2", .window = 4096, .pattern = 4, .tied = true},
    {.model_type = "gpt_oss", .kv_heads = 8, .head_dim = 64, .window = 128, .pattern = 2},
    {.model_type = "kosmos_2_text_model", .tied = true, .ungated = true},
    {.model_type = "kosmos_2_5_text_model", .tied = true, .ungated = true},
    {.model_type = "llama4_text",
     .q_heads = 40,
     .kv_heads = 8,
     .head_dim = 128,
     .vocab = 202048,
     .chunk = 8192,
     .interval = 4},
    {.model_type = "mistral", .kv_heads = 8, .window = 4096},
    {.model_type = "mixtral", .kv_heads = 8},
    {.model_type = "glm4_moe", .head_dim = 128},
    {.model_type = "glm4v_moe_text", .head_dim = 128},
    {.model_type = "qwen3_omni_moe_text", .head_dim = 128},
    {.model_type = "falcon", .ungated = true},
    {.model_type = "apertus", .ungated = true},
    {.model_type = "arcee", .ungated = true},
    {.model_type = "biogpt", .ungated = true},
    {.model_type = "bloom", .tied = true, .ungated = true},
    {.model_type = "codegen", .ungated = true},
    {.model_type = "gpt2", .tied = true, .ungated = true},
    {.model_type = "gpt_bigcode", .tied = true, .ungated = true},
    {.model_type = "gpt_neo", .window = 256, .tied = true, .ungated = true},
    {.model_type = "gpt_neox_japanese", .ungated = true},
    {.model_type = "gptj", .ungated = true},
    {.model_type = "jais2", .ungated = true},
    {.model_type = "mpt", .tied = true, .ungated = true},
    {.model_type = "nanochat", .ungated = true},
    {.model_type = "persimmon", .ungated = true},
    {.model_type = "gpt_neox", .ungated = true},
    {.model_type = "nemotron", .ungated = true},
    {.model_type = "nemotron_h", .ungated = true},
    {.model_type = "opt", .tied = true, .ungated = true},
    {.model_type = "phi", .ungated = true},
    {.model_type = "qwen3_next", .kv_heads = 2, .head_dim = 256, .gated_attention = true},
    {.model_type = "starcoder2", .ungated = true},
    {.model_type = "xglm", .tied = true, .ungated = true},
    {.model_type = "zamba2", .tied = true},
};

const kvpi_family *kvpi_family_of(const char *model_type)
{
    static const kvpi_family none;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(families[i].model_type, model_type) == 0)
            return &families[i];
    return &none;
}
