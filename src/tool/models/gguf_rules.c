/* See gguf_rules.h. From llama.cpp's src/models, release 11549; the rows are in no order. */
#include "tool/models/gguf_rules.h"

#include <stddef.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Like most: all layers keep all tokens, whatever the file says of windows. */
static const char *const plain[] = {"llama",      "mistral3",   "phi3",    "phimoe",   "qwen2",
                                    "qwen2vl",    "qwen2moe",   "qwen3",   "qwen3moe", "qwen3vl",
                                    "qwen3vlmoe", "starcoder2", "minicpm", "exaone"};

static const kvpi_gguf_rule rules[] = {
    {.architecture = "nanbeige", .loops = true},
    {.architecture = "gemma2", .windows = KVPI_GGUF_ALWAYS, .window = 4096, .pattern = 2},
    {.architecture = "gemma3", .windows = KVPI_GGUF_WINDOWS, .pattern = 6},
    {.architecture = "gemma3n", .windows = KVPI_GGUF_ALWAYS, .pattern = 5, .kv_layers = 20},
    {.architecture = "gemma4", .windows = KVPI_GGUF_ALWAYS},
    {.architecture = "cohere2", .windows = KVPI_GGUF_ALWAYS, .pattern = 4},
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
    {.architecture = "muse-glimmer", .windows = KVPI_GGUF_ALWAYS, .pattern = 4},
    {.architecture = "afmoe", .windows = KVPI_GGUF_WINDOWS, .pattern = 4},
    {.architecture = "mellum", .windows = KVPI_GGUF_WINDOWS, .pattern = 4},
    {.architecture = "olmo2", .windows = KVPI_GGUF_WINDOWS, .pattern = 4},
    {.architecture = "plamo3", .windows = KVPI_GGUF_WINDOWS, .pattern = 8},
    {.architecture = "laguna", .windows = KVPI_GGUF_WINDOWS, .pattern = 4, .full_first = true},
    {.architecture = "granite_swa", .windows = KVPI_GGUF_ALWAYS},
    {.architecture = "mimo2", .windows = KVPI_GGUF_ALWAYS},
    {.architecture = "maple", .windows = KVPI_GGUF_ALWAYS},
    {.architecture = "spark2_5", .windows = KVPI_GGUF_ALWAYS},
    {.architecture = "step35", .windows = KVPI_GGUF_ALWAYS},
    {.architecture = "deepseek2", .mla = true},
    {.architecture = "mistral4", .mla = true},
    {.architecture = "deepseek32", .mla = true, .index = true},
    {.architecture = "jamba", .recurrent = KVPI_GGUF_WITHOUT_KV, .state_kind = "Mamba"},
    {.architecture = "granitehybrid", .recurrent = KVPI_GGUF_WITHOUT_KV, .state_kind = "Mamba-2"},
    {.architecture = "plamo2", .recurrent = KVPI_GGUF_WITHOUT_KV, .state_kind = "Mamba-2"},
    {.architecture = "nemotron_h",
     .recurrent = KVPI_GGUF_WITHOUT_KV_OR_FF,
     .state_kind = "Mamba-2"},
    {.architecture = "nemotron_h_moe",
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
    {.architecture = "kimi-linear",
     .mla = true,
     .recurrent = KVPI_GGUF_WITHOUT_KV,
     .state_kind = "Kimi delta attention"},
    {.architecture = "kimi-k3",
     .mla = true,
     .recurrent = KVPI_GGUF_WITHOUT_KV,
     .state_kind = "Kimi delta attention"},
    {.architecture = "bailingmoe3",
     .mla = true,
     .recurrent = KVPI_GGUF_WITHOUT_KV,
     .state_kind = "Kimi delta attention"},
    {.architecture = "qwen3next",
     .recurrent = KVPI_GGUF_INTERVALS,
     .interval = 4,
     .state_kind = "gated delta net"},
    {.architecture = "qwen35",
     .recurrent = KVPI_GGUF_INTERVALS,
     .interval = 4,
     .state_kind = "gated delta net"},
    {.architecture = "qwen35moe",
     .recurrent = KVPI_GGUF_INTERVALS,
     .interval = 4,
     .state_kind = "gated delta net"},
    {.architecture = "minimax-01",
     .recurrent = KVPI_GGUF_INTERVALS,
     .interval = 8,
     .state_kind = "lightning attention"},
};

static const char encoder[] = "is no decoder, and keeps no KV";
static const char indexer[] = "has keys of an indexer in some layers";
static const char of_other[] = "drafts for another model";
static const char only_states[] = "has states only, and no KV";
static const char compressed[] = "has compressed KV";
static const char adapters[] = "has a layer that keeps which adapter is used";

static const struct {
    const char *architecture, *why;
} refused_rules[] = {{"mamba", only_states},
                     {"mamba2", only_states},
                     {"rwkv6", only_states},
                     {"rwkv6qwen2", only_states},
                     {"rwkv7", only_states},
                     {"arwkv7", only_states},
                     {"deepseek4", compressed},
                     {"qwen4exp", indexer},
                     {"glm-dsa", indexer},
                     {"glm5-next", indexer},
                     {"minimax-m3", indexer},
                     {"hy_v4", indexer},
                     {"dots3note", indexer},
                     {"dflash", of_other},
                     {"eagle3", of_other},
                     {"gemma4-assistant", of_other},
                     {"graniteswitch", adapters},
                     {"bert", encoder},
                     {"modern-bert", encoder},
                     {"nomic-bert", encoder},
                     {"nomic-bert-moe", encoder},
                     {"neo-bert", encoder},
                     {"jina-bert-v2", encoder},
                     {"jina-bert-v3", encoder},
                     {"eurobert", encoder},
                     {"gemma-embedding", encoder},
                     {"gemma-embedding2", encoder},
                     {"t5", encoder},
                     {"t5encoder", encoder},
                     {"clip", encoder},
                     {"clef", encoder},
                     {"dream", encoder},
                     {"llada", encoder},
                     {"llada-moe", encoder},
                     {"rnd1", encoder},
                     {"wavtokenizer-dec", encoder}};

kvpi_gguf_rule kvpi_gguf_rule_of(const char *architecture, const char **refused)
{
    kvpi_gguf_rule rule = {.architecture = architecture};
    *refused = NULL;
    for (size_t i = 0; i < COUNT(refused_rules); i++)
        if (strcmp(refused_rules[i].architecture, architecture) == 0)
            *refused = refused_rules[i].why;
    for (size_t i = 0; i < COUNT(rules); i++)
        if (strcmp(rules[i].architecture, architecture) == 0)
            rule = rules[i], rule.is_known = true;
    for (size_t i = 0; i < COUNT(plain); i++)
        rule.is_known = rule.is_known || strcmp(plain[i], architecture) == 0;
    return rule;
}
