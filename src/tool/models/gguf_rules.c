/* See gguf_rules.h. From llama.cpp's src/models, release 11549; the rows are in no order. */
#include "tool/models/gguf_rules.h"

#include <stddef.h>

#include "tool/models/models.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Like most: all layers keep all tokens, whatever the file says of windows. */
static const char plain[] =
    "llama mistral3 phi3 phimoe qwen2 qwen2vl qwen2moe qwen3 qwen3moe qwen3vl qwen3vlmoe "
    "starcoder2 minicpm exaone";

/* .architecture: names, separated by blanks. */
static const kvpi_gguf_rule rules[] = {
    {.architecture = "nanbeige", .loops = true},
    {.architecture = "gemma2", .windows = KVPI_GGUF_ALWAYS, .window = 4096, .pattern = 2},
    {.architecture = "gemma3", .windows = KVPI_GGUF_WINDOWS, .pattern = 6},
    {.architecture = "gemma3n", .windows = KVPI_GGUF_ALWAYS, .pattern = 5, .kv_layers = 20},
    {.architecture = "gemma4 granite_swa mimo2 maple spark2_5 step35", .windows = KVPI_GGUF_ALWAYS},
    {.architecture = "cohere2 muse-glimmer", .windows = KVPI_GGUF_ALWAYS, .pattern = 4},
    {.architecture = "cohere2moe", .windows = KVPI_GGUF_ALWAYS, .pattern = 4, .full_first = true},
    {.architecture = "gpt-oss", .windows = KVPI_GGUF_ALWAYS, .pattern = 2},
    {.architecture = "exaone-moe", .windows = KVPI_GGUF_ALWAYS, .window = 128, .pattern = 4},
    {.architecture = "exaone4",
     .windows = KVPI_GGUF_ALWAYS,
     .window = 4096,
     .pattern = 4,
     .if_layers = 64},
    {.architecture = "llama4",
     .windows = KVPI_GGUF_ALWAYS,
     .window = 8192,
     .pattern = 4,
     .is_fixed = true,
     .chunked = true},
    {.architecture = "smallthinker",
     .windows = KVPI_GGUF_WINDOWS,
     .window = 4096,
     .pattern = 4,
     .is_fixed = true,
     .full_first = true},
    {.architecture = "afmoe mellum olmo2", .windows = KVPI_GGUF_WINDOWS, .pattern = 4},
    {.architecture = "plamo3", .windows = KVPI_GGUF_WINDOWS, .pattern = 8},
    {.architecture = "laguna", .windows = KVPI_GGUF_WINDOWS, .pattern = 4, .full_first = true},
    {.architecture = "deepseek2 mistral4", .mla = true},
    {.architecture = "deepseek32", .mla = true, .index = true},
    {.architecture = "jamba", .recurrent = KVPI_GGUF_WITHOUT_KV, .state_kind = "Mamba"},
    {.architecture = "granitehybrid plamo2",
     .recurrent = KVPI_GGUF_WITHOUT_KV,
     .state_kind = "Mamba-2"},
    {.architecture = "nemotron_h nemotron_h_moe",
     .recurrent = KVPI_GGUF_WITHOUT_KV_OR_FF,
     .state_kind = "Mamba-2"},
    {.architecture = "falcon-h1", .recurrent = KVPI_GGUF_BESIDE_KV, .state_kind = "Mamba-2"},
    {.architecture = "lfm2",
     .windows = KVPI_GGUF_WINDOWS,
     .recurrent = KVPI_GGUF_WITHOUT_KV,
     .state_kind = "short convolution"},
    {.architecture = "lfm2moe",
     .recurrent = KVPI_GGUF_WITHOUT_KV,
     .state_kind = "short convolution"},
    {.architecture = "kimi-linear kimi-k3 bailingmoe3",
     .mla = true,
     .recurrent = KVPI_GGUF_WITHOUT_KV,
     .state_kind = "Kimi delta attention"},
    {.architecture = "qwen3next qwen35 qwen35moe",
     .recurrent = KVPI_GGUF_INTERVALS,
     .interval = 4,
     .state_kind = "gated delta net"},
    {.architecture = "minimax-01",
     .recurrent = KVPI_GGUF_INTERVALS,
     .interval = 8,
     .state_kind = "lightning attention"},
};

static const struct {
    const char *why, *architectures;
} refused_rules[] = {
    {"has states only, and no KV", "mamba mamba2 rwkv6 rwkv6qwen2 rwkv7 arwkv7"},
    {"has compressed KV", "deepseek4"},
    {"has keys of an indexer in some layers",
     "qwen4exp glm-dsa glm5-next minimax-m3 hy_v4 dots3note"},
    {"drafts for another model", "dflash eagle3 gemma4-assistant"},
    {"has a layer that keeps which adapter is used", "graniteswitch"},
    {"is no decoder, and keeps no KV",
     "bert modern-bert nomic-bert nomic-bert-moe neo-bert jina-bert-v2 jina-bert-v3 "
     "eurobert gemma-embedding gemma-embedding2 t5 t5encoder clip clef dream llada "
     "llada-moe rnd1 wavtokenizer-dec"},
};

kvpi_gguf_rule kvpi_gguf_rule_of(const char *architecture, const char **refused)
{
    kvpi_gguf_rule rule = {.is_known = kvpi_models_is_of(plain, architecture)};
    *refused = NULL;
    for (size_t i = 0; i < COUNT(refused_rules); i++)
        if (kvpi_models_is_of(refused_rules[i].architectures, architecture))
            *refused = refused_rules[i].why;
    for (size_t i = 0; i < COUNT(rules); i++)
        if (kvpi_models_is_of(rules[i].architecture, architecture))
            rule = rules[i], rule.is_known = true;
    rule.architecture = architecture;
    return rule;
}
