/* Owns the list of a model's kinds of layers, and what an entry of KV and a state take.
 *
 * Bytes of an entry, in one layer on one accelerator:
 *
 *   heads    KV heads x (K + V)
 *   latent   latent + rope values, on every accelerator. In fp8 with scales: the latent, its
 *            scales, and the rope part in 16 bits: 512 + 16 + 128 are vLLM's 656 B of DeepSeek
 *            V3.2, 448 + 8 + 128 its 584 B of V4
 *   index    values of one key; in fp8 and a f32 scale for 128, 132 B. Unless another type is
 *            asked for, an fp8 latent has fp8 keys, one of 4 bits mxfp4, 68 B for 128; beside
 *            heads, keys of 16 bits stay so
 *   inputs   f32
 *
 * Types with shared scales store whole groups for each head: nvfp4 9 B for 16 values, mxfp4 17 B,
 * q8_0 34 B and q4_0 18 B for 32. k8v4 is 8 bits for a value of K, 4 bits for one of V, and 4 B of
 * scale and zero for a head's V, as vLLM's TurboQuant has it.
 */
#include "tool/models/models.h"

#include <stdio.h>
#include <string.h>

const char *const kvpi_models_dtypes[KVPI_N_DTYPES] = {
    "bf16", "f16", "f32", "fp8", "int8", "int4", "mxfp4", "nvfp4", "q8_0", "q4_0", "k8v4"};
const char *const kvpi_models_kv_dtypes[] = {"bf16",  "f16",  "f32",  "fp8",  "int8", "nvfp4",
                                             "mxfp4", "q8_0", "q4_0", "k8v4", NULL};
const char *const kvpi_models_weights_dtypes[] = {"bf16", "f16",   "f32",   "fp8", "int8",
                                                  "int4", "mxfp4", "nvfp4", NULL};
const char *const kvpi_models_state_dtypes[] = {"f32", "bf16", "f16", NULL};
const char *const kvpi_models_index_dtypes[] = {"bf16", "fp8", "mxfp4", NULL};

kvpi_dtype kvpi_models_dtype_of(const char *name)
{
    int i = 0;
    while (i < KVPI_N_DTYPES && strcmp(kvpi_models_dtypes[i], name) != 0)
        i++;
    return (kvpi_dtype)i;
}

bool kvpi_models_is_of(const char *names, const char *name)
{
    const size_t n = strlen(name);
    if (n == 0 || strchr(name, ' ') != NULL)
        return false;
    for (const char *at = strstr(names, name); at != NULL; at = strstr(at + 1, name))
        if ((at == names || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0'))
            return true;
    return false;
}

/* ----------------------------------------------------------------------------------- messages */

int kvpi_models_vwrong(kvpi_models_error *error, const char *name, const char *format,
                       va_list arguments)
{
    char message[320];
    vsnprintf(message, sizeof message, format, arguments);
    for (char *at = message; *at != '\0'; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            *at = '?';
    int room = (int)(sizeof error->text - strlen(message) - 4);
    snprintf(error->text, sizeof error->text, "%.*s: %s", room, name, message);
    return -1;
}

/* ---------------------------------------------------------------------------------- the kinds */

/* All but how many layers there are. */
static bool is_alike(const kvpi_models_kind *a, const kvpi_models_kind *b)
{
    return a->keeps == b->keeps && a->window_tokens == b->window_tokens &&
           a->chunked == b->chunked && a->recomputed == b->recomputed &&
           a->entry_tokens == b->entry_tokens && a->kv_heads == b->kv_heads &&
           a->k_dim == b->k_dim && a->v_dim == b->v_dim && a->latent == b->latent &&
           a->rope == b->rope && a->index_dim == b->index_dim && a->scale_bytes == b->scale_bytes &&
           memcmp(&a->state, &b->state, sizeof a->state) == 0;
}

bool kvpi_models_add(kvpi_model *model, const kvpi_models_kind *kind)
{
    if (kind->n_layers == 0)
        return true;
    for (uint32_t i = 0; i < model->n_kinds; i++) {
        if (is_alike(&model->kinds[i], kind)) {
            model->kinds[i].n_layers += kind->n_layers;
            return true;
        }
    }
    if (model->n_kinds == KVPI_MODELS_MAX_KINDS)
        return false;
    memcpy(&model->kinds[model->n_kinds++], kind, sizeof *kind);
    return true;
}

uint32_t kvpi_models_layers(const kvpi_model *model, kvpi_models_keeps keeps)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < model->n_kinds; i++)
        n += model->kinds[i].keeps == keeps ? model->kinds[i].n_layers : 0;
    return n;
}

const kvpi_models_kind *kvpi_models_find_kind(const kvpi_model *model, kvpi_models_keeps keeps,
                                              bool windowed)
{
    for (uint32_t i = 0; i < model->n_kinds; i++)
        if (model->kinds[i].keeps == keeps && (model->kinds[i].window_tokens > 0) == windowed)
            return &model->kinds[i];
    return NULL;
}

const kvpi_models_kind *kvpi_models_find_window(const kvpi_model *model)
{
    for (uint32_t i = 0; i < model->n_kinds; i++)
        if (model->kinds[i].window_tokens > 0 && model->kinds[i].keeps <= KVPI_KEEPS_INDEX &&
            !model->kinds[i].recomputed)
            return &model->kinds[i];
    return NULL;
}

uint32_t kvpi_models_longest_entry(const kvpi_model *model)
{
    uint32_t most = 1; /* they are powers of two */
    for (uint32_t i = 0; i < model->n_kinds; i++)
        if (model->kinds[i].entry_tokens > most)
            most = model->kinds[i].entry_tokens;
    return most;
}

const kvpi_models_kind *kvpi_models_find_index(const kvpi_model *model)
{
    for (uint32_t i = 0; i < model->n_kinds; i++)
        if (model->kinds[i].keeps == KVPI_KEEPS_INDEX)
            return &model->kinds[i];
    return NULL;
}

void kvpi_models_set_index_dtype(kvpi_model *model, kvpi_dtype dtype)
{
    for (uint32_t i = 0; i < model->n_kinds; i++)
        if (model->kinds[i].keeps == KVPI_KEEPS_INDEX)
            model->kinds[i].has_own_dtype = true, model->kinds[i].own_dtype = dtype;
}

/* ------------------------------------------------------------------------------- what they take */

static uint64_t stored(uint64_t values, kvpi_dtype dtype)
{
    static const struct {
        uint8_t values, bytes;
    } groups[KVPI_N_DTYPES] = {
        [KVPI_DTYPE_BF16] = {1, 2},    [KVPI_DTYPE_F16] = {1, 2},    [KVPI_DTYPE_F32] = {1, 4},
        [KVPI_DTYPE_FP8] = {1, 1},     [KVPI_DTYPE_INT8] = {1, 1},   [KVPI_DTYPE_INT4] = {2, 1},
        [KVPI_DTYPE_MXFP4] = {32, 17}, [KVPI_DTYPE_NVFP4] = {16, 9}, [KVPI_DTYPE_Q8_0] = {32, 34},
        [KVPI_DTYPE_Q4_0] = {32, 18},  [KVPI_DTYPE_K8V4] = {1, 1}};
    const uint64_t n = groups[dtype].values;
    return (values + n - 1) / n * groups[dtype].bytes;
}

kvpi_dtype kvpi_models_index_dtype(const kvpi_models_kind *kind, kvpi_dtype dtype)
{
    if (kind->has_own_dtype)
        return kind->own_dtype;
    if (dtype <= KVPI_DTYPE_F32)
        return dtype;
    if (kind->scale_bytes == 0)
        return KVPI_DTYPE_BF16;
    return dtype == KVPI_DTYPE_NVFP4 ? KVPI_DTYPE_MXFP4 : dtype;
}

static uint64_t index_bytes(const kvpi_models_kind *kind, kvpi_dtype dtype)
{
    const kvpi_dtype own = kvpi_models_index_dtype(kind, dtype);
    const uint64_t scales = own == KVPI_DTYPE_FP8 ? ((uint64_t)kind->index_dim + 127) / 128 * 4 : 0;
    return stored(kind->index_dim, own) + scales;
}

uint64_t kvpi_models_entry_bytes(const kvpi_models_kind *kind, uint32_t tensor_parallel,
                                 kvpi_dtype dtype)
{
    uint64_t heads = kind->kv_heads / tensor_parallel;
    switch (kind->keeps) {
    case KVPI_KEEPS_INDEX: return index_bytes(kind, dtype);
    case KVPI_KEEPS_INPUTS: return stored(kind->k_dim, KVPI_DTYPE_F32);
    case KVPI_KEEPS_STATE: return 0;
    case KVPI_KEEPS_LATENT:
        if (kind->recomputed && dtype > KVPI_DTYPE_INT8) /* a window stays in 8 bits */
            dtype = KVPI_DTYPE_FP8;
        if (dtype == KVPI_DTYPE_FP8 && kind->scale_bytes > 0)
            return (uint64_t)kind->latent + kind->scale_bytes + stored(kind->rope, KVPI_DTYPE_BF16);
        return stored((uint64_t)kind->latent + kind->rope, dtype);
    case KVPI_KEEPS_HEADS: break;
    }
    heads = heads > 0 ? heads : 1;
    if (dtype == KVPI_DTYPE_K8V4)
        return heads * ((uint64_t)kind->k_dim + (kind->v_dim + 1) / 2 + 4);
    return heads * (stored(kind->k_dim, dtype) + stored(kind->v_dim, dtype));
}

uint64_t kvpi_models_state_bytes(const kvpi_model *model, uint32_t tensor_parallel,
                                 kvpi_dtype matrices)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < model->n_kinds; i++) {
        const kvpi_models_state *s = &model->kinds[i].state;
        if (model->kinds[i].keeps != KVPI_KEEPS_STATE)
            continue;
        uint64_t heads = s->heads / tensor_parallel;
        uint64_t groups = s->groups < tensor_parallel ? s->groups > 0 : s->groups / tensor_parallel;
        uint64_t convolved = heads * s->conv_of_head + groups * s->conv_of_group;
        uint64_t of_layer = stored(heads * s->head_values, matrices) +
                            stored(convolved * s->conv_steps, model->activations_dtype);
        bytes += model->kinds[i].n_layers * of_layer;
    }
    return bytes;
}

static bool divides(uint32_t n, uint32_t tensor_parallel)
{
    return n % tensor_parallel == 0 || (n > 0 && tensor_parallel % n == 0);
}

bool kvpi_models_divides(const kvpi_model *model, uint32_t tensor_parallel)
{
    if (model->q_heads % tensor_parallel != 0)
        return false;
    for (uint32_t i = 0; i < model->n_kinds; i++) {
        const kvpi_models_kind *kind = &model->kinds[i];
        if (kind->keeps == KVPI_KEEPS_HEADS && !divides(kind->kv_heads, tensor_parallel))
            return false;
        if (kind->keeps == KVPI_KEEPS_STATE && (kind->state.heads % tensor_parallel != 0 ||
                                                !divides(kind->state.groups, tensor_parallel)))
            return false;
    }
    return true;
}
