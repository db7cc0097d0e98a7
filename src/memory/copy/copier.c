/* copier: the public calls, the same for all back ends. They check, hand over, count fences. */
#include "memory/copy/copier.h"

#include <stdlib.h>
#include <string.h>

#include "memory/memory.h"
#include "base/sized.h"

enum { DEFAULT_MOVES = 1024 };

void kvp_copier_config_init(kvp_copier_config *config)
{
    if (config == NULL)
        return;
    *config = (kvp_copier_config){
        .struct_size = sizeof(*config), .n_groups = 1, .n_threads = 1, .max_moves = DEFAULT_MOVES};
}

static kvp_status open_marks(kvp_copier *copier)
{
    for (uint32_t i = 0; i < KVPI_TIERS * copier->config.n_groups; i++) {
        const kvp_memory *memory = copier->memories[i];
        struct kvpi_marks *marks = &copier->marks[i];
        if (!memory) {
            continue;
        }
        marks->n_blocks = memory->layout.n_blocks;
        marks->written_in = calloc(marks->n_blocks, sizeof(*marks->written_in));
        if (!marks->written_in) {
            return KVP_E_NO_MEMORY;
        }
    }
    return KVP_OK;
}

kvp_status kvpi_copier_open(const kvp_copier_config *config, kvp_copier *copier)
{
    const uint32_t n = config->n_groups;
    if (!kvpi_copier_is_config(config)) {
        return KVP_E_ARG;
    }
    *copier = (kvp_copier){.config = *config};
    copier->memories = calloc((size_t)KVPI_TIERS * n, sizeof(*copier->memories));
    copier->marks = calloc((size_t)KVPI_TIERS * n, sizeof(*copier->marks));
    copier->moves = calloc((size_t)config->max_moves + 1, sizeof(*copier->moves));
    kvp_status status = KVP_E_NO_MEMORY;
    if (copier->memories && copier->marks && copier->moves) {
        for (uint32_t g = 0; g < n; g++) {
            copier->memories[g] = config->device[g];
            copier->memories[n + g] = config->host ? config->host[g] : NULL;
        }
        copier->config.device = copier->memories;
        copier->config.host = config->host ? copier->memories + n : NULL;
        status = open_marks(copier);
    }
    if (status != KVP_OK) {
        kvpi_copier_close(copier);
    }
    return status;
}

void kvpi_copier_close(kvp_copier *copier)
{
    for (uint32_t i = 0; copier->marks && i < KVPI_TIERS * copier->config.n_groups; i++) {
        free(copier->marks[i].written_in);
    }
    free(copier->marks);
    free(copier->memories);
    free(copier->moves);
}

kvp_status kvp_copier_create(const kvp_copier_config *config, kvp_copier **out_copier)
{
    config = kvpi_sized(config, sizeof(*config));
    if (!config || !out_copier || !config->device || !config->device[0]) {
        return KVP_E_ARG;
    }
    return config->device[0]->backend->copier_create(config, out_copier);
}

void kvp_copier_destroy(kvp_copier *copier)
{
    if (copier) {
        copier->ops->destroy(copier);
    }
}

static kvp_status give_fence(kvp_copier *copier, uint64_t *out_fence)
{
    copier->n_fences++;
    if (out_fence) {
        *out_fence = copier->n_fences;
    }
    return KVP_OK;
}

kvp_status kvp_copier_run(kvp_copier *copier, const kvp_copy *copies, uint32_t n_copies,
                          uint64_t *out_fence)
{
    if (!copier || (n_copies > 0 && !copies) || !kvpi_copier_is_plan(copier, copies, n_copies)) {
        return KVP_E_ARG;
    }
    copier->ops->run(copier, copies, n_copies);
    return give_fence(copier, out_fence);
}

kvp_status kvp_copier_move(kvp_copier *copier, uint32_t group, const kvp_slot_move *moves,
                           uint32_t n_moves, uint64_t *out_fence)
{
    if (!copier || group >= copier->config.n_groups || (n_moves > 0 && !moves)) {
        return KVP_E_ARG;
    }
    if (n_moves > copier->config.max_moves) {
        return KVP_E_TOO_SMALL;
    }
    if (n_moves > 0) {
        memcpy(copier->moves, moves, n_moves * sizeof(*moves));
    }
    kvpi_copier_sort_moves(copier->moves, n_moves);
    if (!kvpi_copier_is_moves(copier, group, n_moves)) {
        return KVP_E_ARG;
    }
    copier->ops->move(copier, group, copier->moves, n_moves);
    return give_fence(copier, out_fence);
}

kvp_status kvp_copier_wait(kvp_copier *copier, uint64_t fence)
{
    if (!copier || fence == 0 || fence > copier->n_fences) {
        return KVP_E_ARG;
    }
    copier->ops->wait(copier, fence);
    return KVP_OK;
}
