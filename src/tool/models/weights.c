/* Owns the arithmetic on a model's parameters. Those of attention and recurrence (`mixers`) are
 * counted where the model is read. Matrices only: norms and biases are less than 0.1 % of any model
 * of the table.
 */
#include <assert.h>

#include "tool/models/models.h"

kvpi_models_count kvpi_models_count_parameters(const kvpi_model *model)
{
    const kvpi_models_mlp *mlp = &model->mlp;
    const kvpi_models_experts *experts = &model->experts;
    uint64_t n_layers = model->n_mlp_layers, hidden = mlp->hidden;
    assert(model->unknown[0] == '\0' && experts->n_dense_layers <= n_layers);
    uint64_t n_matrices = mlp->ungated ? 2 : 3;
    uint64_t passes = model->n_passes > 0 ? model->n_passes : 1;
    uint64_t n_sparse = experts->n_experts == 0 ? 0 : n_layers - experts->n_dense_layers;
    uint64_t one_expert = n_matrices * hidden * experts->intermediate;
    uint64_t router = hidden * experts->n_experts;
    uint64_t shared = n_matrices * hidden * experts->shared_intermediate;

    kvpi_models_count count = {.embeddings = hidden * mlp->vocab * (mlp->tied ? 1 : 2)};
    count.experts = n_sparse * experts->n_experts * one_expert;
    count.layers = model->mixers + (n_layers - n_sparse) * n_matrices * hidden * mlp->intermediate +
                   n_sparse * (router + shared) + count.experts;
    count.total = count.embeddings + count.layers;
    count.active = passes * (count.layers -
                             n_sparse * (experts->n_experts - experts->per_token) * one_expert) +
                   hidden * mlp->vocab;
    return count;
}

/* A type's bytes in 64ths, so that the shared scales of the 4-bit types come out whole: 4 bits and
 * 16 / 128 of a scale are 33 / 64 of a byte, 4 bits and 8 / 32 are 34 / 64. */
static uint64_t bytes_in_64ths(kvpi_dtype dtype)
{
    switch (dtype) {
    case KVPI_DTYPE_F32: return 256;
    case KVPI_DTYPE_FP8:
    case KVPI_DTYPE_INT8: return 64;
    case KVPI_DTYPE_INT4: return 33;
    case KVPI_DTYPE_MXFP4: return 34;
    case KVPI_DTYPE_NVFP4: return 36;
    default: return 128;
    }
}

static uint64_t stored(uint64_t parameters, kvpi_dtype dtype)
{
    uint64_t part = bytes_in_64ths(dtype);
    return parameters / 64 * part + parameters % 64 * part / 64;
}

bool kvpi_models_weighs(const kvpi_model *model)
{
    return model->unknown[0] == '\0' || model->parameters != 0;
}

uint64_t kvpi_models_weights_bytes(const kvpi_model *model, kvpi_dtype dtype)
{
    if (model->unknown[0] != '\0')
        return stored(model->parameters, dtype);
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
    for (uint32_t pass = 1; pass < model->n_passes; pass++)
        traffic.every_step += stored(count.layers - count.experts, dtype);
    traffic.experts *= model->n_passes > 0 ? model->n_passes : 1;
    return traffic;
}
