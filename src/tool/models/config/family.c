/* Owns the defaults of transformers' configuration classes, as far as published files rely on them:
 * files leave out what equals a default. */
#include "tool/models/config/family.h"

#include <stddef.h>

#include "tool/models/models.h"

/* .model_type: names, separated by blanks. */
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
    {.model_type = "gemma4_text gemma4_unified_text",
     .head_dim = 256,
     .full_head_dim = 512,
     .tied = true},
    {.model_type = "cohere zamba2", .tied = true},
    {.model_type = "cohere2", .window = 4096, .pattern = 4, .tied = true},
    {.model_type = "gpt_oss", .kv_heads = 8, .head_dim = 64, .window = 128, .pattern = 2},
    {.model_type = "bloom gpt2 gpt_bigcode kosmos_2_text_model kosmos_2_5_text_model mpt opt xglm",
     .tied = true,
     .ungated = true},
    {.model_type = "llama4_text",
     .q_heads = 40,
     .kv_heads = 8,
     .head_dim = 128,
     .vocab = 202048,
     .chunk = 8192,
     .interval = 4},
    {.model_type = "mistral", .kv_heads = 8, .window = 4096},
    {.model_type = "mixtral", .kv_heads = 8},
    {.model_type = "glm4_moe glm4v_moe_text qwen3_omni_moe_text", .head_dim = 128},
    {.model_type = "falcon apertus arcee biogpt codegen gpt_neox_japanese gptj jais2 "
                   "nanochat persimmon gpt_neox nemotron nemotron_h phi starcoder2",
     .ungated = true},
    {.model_type = "gpt_neo", .window = 256, .tied = true, .ungated = true},
    {.model_type = "qwen3_next", .kv_heads = 2, .head_dim = 256, .gated_attention = true},
};

const kvpi_family *kvpi_family_of(const char *model_type)
{
    static const kvpi_family none;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (kvpi_models_is_of(families[i].model_type, model_type))
            return &families[i];
    return &none;
}
