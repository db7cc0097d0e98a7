/* Owns the table of well-known models, and the names that stand for a row.
 *
 * A row (models.def) is the config.json of the repository it names, read by the same code as a
 * file, and the number of parameters that its safetensors files have. The two check each other: a
 * test counts the parameters from the shape and compares with the published number, so a wrong
 * digit in either shows.
 */
#define _POSIX_C_SOURCE 200809L

#include <assert.h>
#include <string.h>
#include <strings.h>

#include "tool/models/config/config.h"

#define CONFIG(name, source, date, parameters, ...)                                                \
    {name, source, date, UINT64_C(parameters), #__VA_ARGS__},
#define MODEL(name, source, date, parameters, type, layers, heads, kv_heads, head, hidden, mlp,    \
              vocabulary, ...)                                                                     \
    {name, source, date, UINT64_C(parameters),                                                     \
     "{\"model_type\":\"" #type "\",\"num_hidden_layers\":" #layers                                \
     ",\"num_attention_heads\":" #heads ",\"num_key_value_heads\":" #kv_heads                      \
     ",\"head_dim\":" #head ",\"hidden_size\":" #hidden ",\"intermediate_size\":" #mlp             \
     ",\"vocab_size\":" #vocabulary ",\"tie_word_embeddings\":" #__VA_ARGS__ "}"},

static const kvpi_models_row table[] = {
#include "tool/models/models.def"
};

#define N_MODELS (sizeof table / sizeof *table)

const kvpi_models_row *kvpi_models_rows(size_t *n)
{
    *n = N_MODELS;
    return table;
}

void kvpi_models_read_row(const kvpi_models_row *row, kvpi_model *out)
{
    kvpi_models_error error;
    *out = (kvpi_model){.name = row->name};
    int status = kvpi_models_parse(row->name, row->config, strlen(row->config), out, &error);
    assert(status == 0);
    (void)status;
    out->source = row->source;
    out->parameters = row->parameters;
}

/* Words in the names of variants that have the shape of the model without them, with how the
 * weights of some are stored; -1: as the model's. A date, of four digits, is one, too. */
static const struct {
    const char *word;
    int weights;
} variants[] = {
    {"instruct", -1},
    {"it", -1},
    {"chat", -1},
    {"base", -1},
    {"hf", -1},
    {"pt", -1},
    {"meta", -1},
    {"coder", -1},
    {"thinking", -1},
    {"exp", -1},
    {"unsloth", -1},
    {"bnb", -1},
    {"quantized", -1},
    {"dynamic", -1},
    {"bf16", KVPI_DTYPE_BF16},
    {"fp8", KVPI_DTYPE_FP8},
    {"nvfp4", KVPI_DTYPE_NVFP4},
    {"fp4", KVPI_DTYPE_NVFP4},
    {"mxfp4", KVPI_DTYPE_MXFP4},
    {"w4a4", KVPI_DTYPE_NVFP4}, /* the type of 4 bits that activations have, too */
    {"awq", KVPI_DTYPE_INT4},
    {"gptq", KVPI_DTYPE_INT4},
    {"4bit", KVPI_DTYPE_INT4},
    {"int4", KVPI_DTYPE_INT4},
    {"w4a16", KVPI_DTYPE_INT4},
    {"quantized.w4a16", KVPI_DTYPE_INT4},
    {"8bit", KVPI_DTYPE_INT8},
    {"int8", KVPI_DTYPE_INT8},
    {"w8a8", KVPI_DTYPE_INT8},
    {"quantized.w8a8", KVPI_DTYPE_INT8},
};

/* Gives the next word of a name, of those between hyphens, that is of no variant, and where it
 * begins; 0 bytes at the end. */
static size_t next_word(const char **at, const char **out_word, int *weights)
{
    for (;;) {
        const char *word = *out_word = *at;
        const size_t n = strcspn(word, "-");
        size_t i = 0;
        *at += n + (word[n] == '-');
        while (i < sizeof variants / sizeof *variants &&
               (strlen(variants[i].word) != n || strncasecmp(variants[i].word, word, n) != 0))
            i++;
        if (n == 4 && strspn(word, "0123456789") >= 4)
            continue;
        if (n == 0 || i == sizeof variants / sizeof *variants)
            return n;
        if (variants[i].weights >= 0)
            *weights = variants[i].weights;
    }
}

static bool is_variant(const char *name, const char *of, int *weights)
{
    int ignored;
    const char *word, *other;
    for (;;) {
        const size_t n = next_word(&name, &word, weights), m = next_word(&of, &other, &ignored);
        if (n != m || n == 0 || strncasecmp(word, other, n) != 0)
            return n == 0 && m == 0;
    }
}

static const kvpi_models_row *find_row(const char *name, int *weights)
{
    const char *slash = strrchr(name, '/'), *last = slash != NULL ? slash + 1 : name;
    *weights = -1;
    for (size_t i = 0; i < N_MODELS; i++)
        if (strcasecmp(table[i].name, name) == 0 || strcasecmp(table[i].source, name) == 0)
            return &table[i];
    for (size_t i = 0; i < 2 * N_MODELS; i++) {
        const kvpi_models_row *row = &table[i / 2];
        *weights = -1;
        if (is_variant(last, i % 2 == 0 ? strchr(row->source, '/') + 1 : row->name, weights))
            return row;
    }
    return NULL;
}

bool kvpi_models_find(const char *name, kvpi_model *out)
{
    int weights;
    const kvpi_models_row *row = find_row(name, &weights);
    if (row == NULL)
        return false;
    kvpi_models_read_row(row, out);
    if (weights >= 0)
        out->weights_dtype = (kvpi_dtype)weights;
    return true;
}
