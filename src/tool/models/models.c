/* Owns the table of well-known models and the arithmetic on a model's shape.
 *
 * A row is the config.json of the repository it names (layers, heads, sizes, window, data types)
 * and the number of parameters that its safetensors files have. The two check each other: a test
 * counts the parameters from the shape and compares with the published number, so a wrong digit in
 * either shows. A model is here only if both were known for sure.
 *
 *   - Gemma 3 27B: the published number has the vision tower (0.4 billion), the shape has not.
 *   - DeepSeek-V3 is without its multi-token prediction layer, which is for training and drafting.
 *   - Windows: Mistral 7B v0.1 and Phi-3 4k in all layers; Gemma 2 every other layer, Gemma 3 five
 *     of six, gpt-oss every other layer. Qwen2.5 has a window in its config.json, switched off.
 *   - Gemma's files say float32 or bfloat16 as they were trained; both are served in bf16.
 */
#define _POSIX_C_SOURCE 200809L

#include "tool/models/models.h"

#include <assert.h>
#include <string.h>
#include <strings.h>

const char *const kvpi_models_kv_dtypes[] = {"bf16", "f16", "f32", "fp8", "int8", NULL};
const char *const kvpi_models_weights_dtypes[] = {"bf16", "f16",  "f32",   "fp8",
                                                  "int8", "int4", "mxfp4", NULL};

/* Groups of numbers: .attention layers, windowed, window, query heads, KV heads, head size
 *                    .latent    KV rank, rope, query rank, nope, value size
 *                    .mlp       hidden, intermediate, vocabulary, tied
 *                    .experts   experts, per token, intermediate, shared, dense layers
 */
static const kvpi_model table[] = {
    {.name = "llama-3.1-8b",
     .source = "meta-llama/Llama-3.1-8B",
     .parameters = 8030261248,
     .attention = {32, 0, 0, 32, 8, 128},
     .mlp = {4096, 14336, 128256, .tied = false}},
    {.name = "llama-3.1-70b",
     .source = "meta-llama/Llama-3.1-70B",
     .parameters = 70553706496,
     .attention = {80, 0, 0, 64, 8, 128},
     .mlp = {8192, 28672, 128256, .tied = false}},
    {.name = "llama-3.1-405b",
     .source = "meta-llama/Llama-3.1-405B",
     .parameters = 405853388800,
     .attention = {126, 0, 0, 128, 8, 128},
     .mlp = {16384, 53248, 128256, .tied = false}},
    {.name = "llama-3.2-1b",
     .source = "meta-llama/Llama-3.2-1B",
     .parameters = 1235814400,
     .attention = {16, 0, 0, 32, 8, 64},
     .mlp = {2048, 8192, 128256, .tied = true}},
    {.name = "llama-3.2-3b",
     .source = "meta-llama/Llama-3.2-3B",
     .parameters = 3212749824,
     .attention = {28, 0, 0, 24, 8, 128},
     .mlp = {3072, 8192, 128256, .tied = true}},
    {.name = "mistral-7b-v0.1",
     .source = "mistralai/Mistral-7B-v0.1",
     .parameters = 7241732096,
     .attention = {32, 32, 4096, 32, 8, 128},
     .mlp = {4096, 14336, 32000, .tied = false}},
    {.name = "mistral-7b-v0.3",
     .source = "mistralai/Mistral-7B-v0.3",
     .parameters = 7248023552,
     .attention = {32, 0, 0, 32, 8, 128},
     .mlp = {4096, 14336, 32768, .tied = false}},
    {.name = "mixtral-8x7b",
     .source = "mistralai/Mixtral-8x7B-v0.1",
     .parameters = 46702792704,
     .attention = {32, 0, 0, 32, 8, 128},
     .mlp = {4096, 14336, 32000, .tied = false},
     .experts = {8, 2, 14336, 0, 0}},
    {.name = "qwen2.5-7b",
     .source = "Qwen/Qwen2.5-7B",
     .parameters = 7615616512,
     .attention = {28, 0, 0, 28, 4, 128},
     .mlp = {3584, 18944, 152064, .tied = false}},
    {.name = "qwen2.5-32b",
     .source = "Qwen/Qwen2.5-32B",
     .parameters = 32763876352,
     .attention = {64, 0, 0, 40, 8, 128},
     .mlp = {5120, 27648, 152064, .tied = false}},
    {.name = "qwen2.5-72b",
     .source = "Qwen/Qwen2.5-72B",
     .parameters = 72706203648,
     .attention = {80, 0, 0, 64, 8, 128},
     .mlp = {8192, 29568, 152064, .tied = false}},
    {.name = "qwen3-8b",
     .source = "Qwen/Qwen3-8B",
     .parameters = 8190735360,
     .attention = {36, 0, 0, 32, 8, 128},
     .mlp = {4096, 12288, 151936, .tied = false}},
    {.name = "qwen3-32b",
     .source = "Qwen/Qwen3-32B",
     .parameters = 32762123264,
     .attention = {64, 0, 0, 64, 8, 128},
     .mlp = {5120, 25600, 151936, .tied = false}},
    {.name = "qwen3-30b-a3b",
     .source = "Qwen/Qwen3-30B-A3B",
     .parameters = 30532122624,
     .attention = {48, 0, 0, 32, 4, 128},
     .mlp = {2048, 6144, 151936, .tied = false},
     .experts = {128, 8, 768, 0, 0}},
    {.name = "gemma-2-9b",
     .source = "google/gemma-2-9b",
     .parameters = 9241705984,
     .attention = {42, 21, 4096, 16, 8, 256},
     .mlp = {3584, 14336, 256000, .tied = true}},
    {.name = "gemma-2-27b",
     .source = "google/gemma-2-27b",
     .parameters = 27227128320,
     .attention = {46, 23, 4096, 32, 16, 128},
     .mlp = {4608, 36864, 256000, .tied = true}},
    {.name = "gemma-3-27b",
     .source = "google/gemma-3-27b-it",
     .parameters = 27432406640,
     .attention = {62, 52, 1024, 32, 16, 128},
     .mlp = {5376, 21504, 262208, .tied = true}},
    {.name = "phi-3-mini-4k",
     .source = "microsoft/Phi-3-mini-4k-instruct",
     .parameters = 3821079552,
     .attention = {32, 32, 2047, 32, 32, 96},
     .mlp = {3072, 8192, 32064, .tied = false}},
    {.name = "deepseek-v2-lite",
     .source = "deepseek-ai/DeepSeek-V2-Lite",
     .parameters = 15706484224,
     .attention = {27, 0, 0, 16, 16, 192},
     .latent = {512, 64, 0, 128, 128},
     .mlp = {2048, 10944, 102400, .tied = false},
     .experts = {64, 6, 1408, 2816, 1}},
    {.name = "deepseek-v3",
     .source = "deepseek-ai/DeepSeek-V3",
     .parameters = 671026419200,
     .weights_dtype = KVPI_DTYPE_FP8,
     .attention = {61, 0, 0, 128, 128, 192},
     .latent = {512, 64, 1536, 128, 128},
     .mlp = {7168, 18432, 129280, .tied = false},
     .experts = {256, 8, 2048, 2048, 3}},
    {.name = "gpt-oss-20b",
     .source = "openai/gpt-oss-20b",
     .parameters = 20914757184,
     .weights_dtype = KVPI_DTYPE_MXFP4,
     .attention = {24, 12, 128, 64, 8, 64},
     .mlp = {2880, 2880, 201088, .tied = false},
     .experts = {32, 4, 2880, 0, 0}},
    {.name = "gpt-oss-120b",
     .source = "openai/gpt-oss-120b",
     .parameters = 116829156672,
     .weights_dtype = KVPI_DTYPE_MXFP4,
     .attention = {36, 18, 128, 64, 8, 64},
     .mlp = {2880, 2880, 201088, .tied = false},
     .experts = {128, 4, 2880, 0, 0}},
};

#define N_MODELS (sizeof table / sizeof *table)

const kvpi_model *kvpi_models_find(const char *name)
{
    for (size_t i = 0; i < N_MODELS; i++)
        if (strcasecmp(table[i].name, name) == 0 || strcasecmp(table[i].source, name) == 0)
            return &table[i];
    return NULL;
}

const kvpi_model *kvpi_models_all(size_t *n)
{
    *n = N_MODELS;
    return table;
}

/* --------------------------------------------------------------------------------- parameters */

/* Matrices of one layer's attention: query, key, value, output. */
static uint64_t count_attention(const kvpi_model *model)
{
    const kvpi_models_attention *a = &model->attention;
    const kvpi_models_latent *l = &model->latent;
    uint64_t hidden = model->mlp.hidden, q_heads = a->q_heads;
    if (l->kv_rank == 0)
        return 2 * hidden * q_heads * a->head_dim + 2 * hidden * a->kv_heads * a->head_dim;
    uint64_t q_width = q_heads * (l->nope_dim + l->rope_dim);
    uint64_t query = l->q_rank == 0 ? hidden * q_width : (hidden + q_width) * l->q_rank;
    uint64_t down = hidden * (l->kv_rank + l->rope_dim);
    uint64_t up = l->kv_rank * q_heads * (l->nope_dim + l->v_dim);
    return query + down + up + q_heads * l->v_dim * hidden;
}

kvpi_models_count kvpi_models_count_parameters(const kvpi_model *model)
{
    const kvpi_models_mlp *mlp = &model->mlp;
    const kvpi_models_experts *experts = &model->experts;
    assert(model->unknown[0] == '\0' && experts->n_dense_layers <= model->attention.n_layers);
    uint64_t n_matrices = mlp->ungated ? 2 : 3, hidden = mlp->hidden;
    uint64_t n_layers = model->attention.n_layers;
    uint64_t n_sparse = experts->n_experts == 0 ? 0 : n_layers - experts->n_dense_layers;
    uint64_t one_expert = n_matrices * hidden * experts->intermediate;
    uint64_t router = hidden * experts->n_experts;
    uint64_t shared = n_matrices * hidden * experts->shared_intermediate;

    kvpi_models_count count = {.embeddings = hidden * mlp->vocab * (mlp->tied ? 1 : 2)};
    count.experts = n_sparse * experts->n_experts * one_expert;
    count.layers = n_layers * count_attention(model) +
                   (n_layers - n_sparse) * n_matrices * hidden * mlp->intermediate +
                   n_sparse * (router + shared) + count.experts;
    count.total = count.embeddings + count.layers;
    count.active = count.layers + hidden * mlp->vocab -
                   n_sparse * (experts->n_experts - experts->per_token) * one_expert;
    return count;
}

/* A type's bytes in 64ths, so that the shared scales of the 4-bit types come out whole: 4 bits and
 * 16 / 128 of a scale are 33 / 64 of a byte, 4 bits and 8 / 32 are 34 / 64. */
static uint64_t bytes_in_64ths(kvpi_dtype dtype)
{
    switch (dtype) {
    case KVPI_DTYPE_F32: return 256;
    case KVPI_DTYPE_BF16:
    case KVPI_DTYPE_F16: return 128;
    case KVPI_DTYPE_FP8:
    case KVPI_DTYPE_INT8: return 64;
    case KVPI_DTYPE_INT4: return 33;
    case KVPI_DTYPE_MXFP4: return 34;
    }
    return 128;
}

static uint64_t stored(uint64_t parameters, kvpi_dtype dtype)
{
    uint64_t part = bytes_in_64ths(dtype);
    return parameters / 64 * part + parameters % 64 * part / 64;
}

uint64_t kvpi_models_weights_bytes(const kvpi_model *model, kvpi_dtype dtype)
{
    kvpi_models_count count = kvpi_models_count_parameters(model);
    uint64_t total = model->parameters != 0 ? model->parameters : count.total;
    if (dtype <= KVPI_DTYPE_F32)
        return stored(total, dtype);
    bool experts_only = dtype == KVPI_DTYPE_MXFP4 && count.experts > 0;
    uint64_t quantised = experts_only ? count.experts : count.layers;
    assert(quantised <= total);
    return stored(quantised, dtype) + stored(total - quantised, KVPI_DTYPE_BF16);
}

kvpi_models_traffic kvpi_models_count_traffic(const kvpi_model *model, kvpi_dtype dtype)
{
    kvpi_models_count count = kvpi_models_count_parameters(model);
    uint64_t input = model->mlp.tied ? 0 : (uint64_t)model->mlp.hidden * model->mlp.vocab;
    kvpi_models_traffic traffic = {.experts = stored(count.experts, dtype)};
    uint64_t unread =
        traffic.experts + stored(input, dtype <= KVPI_DTYPE_F32 ? dtype : KVPI_DTYPE_BF16);
    traffic.every_step = kvpi_models_weights_bytes(model, dtype);
    assert(unread <= traffic.every_step);
    traffic.every_step -= unread;
    return traffic;
}

/* ----------------------------------------------------------------------------------------- KV */

uint64_t kvpi_models_kv_values(const kvpi_model *model, uint32_t tensor_parallel)
{
    if (model->latent.kv_rank > 0)
        return (uint64_t)model->latent.kv_rank + model->latent.rope_dim;
    uint32_t heads = model->attention.kv_heads / tensor_parallel;
    return UINT64_C(2) * (heads > 0 ? heads : 1) * model->attention.head_dim;
}

uint64_t kvpi_models_state_bytes(const kvpi_model *model, uint32_t tensor_parallel,
                                 kvpi_dtype matrices)
{
    const kvpi_models_states *s = &model->states;
    uint64_t heads = s->heads / tensor_parallel;
    uint64_t groups = s->groups < tensor_parallel ? s->groups > 0 : s->groups / tensor_parallel;
    uint64_t convolved = heads * s->conv_of_head + groups * s->conv_of_group;
    uint64_t of_layer = stored(heads * s->head_values, matrices) +
                        stored(convolved * s->conv_steps, model->kv_dtype);
    return s->n_layers * of_layer;
}

static bool divides(uint32_t n, uint32_t tensor_parallel)
{
    return n % tensor_parallel == 0 || (n > 0 && tensor_parallel % n == 0);
}

bool kvpi_models_divides(const kvpi_model *model, uint32_t tensor_parallel)
{
    if (model->attention.q_heads % tensor_parallel != 0)
        return false;
    if (model->states.heads % tensor_parallel != 0 ||
        !divides(model->states.groups, tensor_parallel))
        return false;
    return model->latent.kv_rank > 0 || divides(model->attention.kv_heads, tensor_parallel);
}
