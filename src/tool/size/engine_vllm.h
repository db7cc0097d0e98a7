/* What vLLM 0.32 makes of a model's layers and an amount of memory for KV: its groups and blocks,
 * and the figures that it logs when it starts. */
#ifndef KVPI_ENGINE_VLLM_H
#define KVPI_ENGINE_VLLM_H

#include <stdbool.h>
#include <stdint.h>

#include "tool/models/models.h"

#define KVPI_VLLM_UTILIZATION_MILLI 920

/* Its KV cache specs. */
typedef enum kvpi_vllm_spec {
    KVPI_VLLM_FULL,
    KVPI_VLLM_MLA,
    KVPI_VLLM_WINDOW,
    KVPI_VLLM_STATE
} kvpi_vllm_spec;

/* Layers with equal specs. */
typedef struct kvpi_vllm_layers {
    kvpi_vllm_spec spec;
    uint32_t n_layers;
    uint64_t window_tokens;
    uint64_t token_bytes; /* of a layer, rounded down; of a state, all of it */
    /* Of the plan; in a model with compressed entries (DeepSeek V4) of its layers. */
    uint64_t block_tokens; /* 0 of a state */
    uint64_t page_bytes;   /* of a block in one layer, padding included */
    uint64_t unused_bytes; /* of these, the padding */
    uint32_t n_groups;
    uint32_t unused_layers;  /* places in the groups for layers that there are not */
    uint64_t request_blocks; /* that a request of the context takes in all these groups */
} kvpi_vllm_layers;

#define KVPI_VLLM_MAX_LAYERS (KVPI_MODELS_MAX_KINDS + 1)

typedef struct kvpi_vllm_options {
    uint64_t block_tokens;
    uint64_t context_tokens; /* its max_model_len */
    uint64_t batch_tokens;   /* its max_num_batched_tokens */
    uint64_t memory_bytes;   /* for KV; 0: not known */
} kvpi_vllm_options;

typedef struct kvpi_vllm {
    kvpi_vllm_layers layers[KVPI_VLLM_MAX_LAYERS]; /* [n], as given */
    uint32_t n;
    uint32_t group_layers; /* of each group; 0: they differ, or so do the pages of their layers */
    uint64_t block_bytes;
    uint64_t request_blocks;
    uint64_t decoding_blocks; /* of a request of the context that decodes */
    /* With memory only. */
    uint64_t blocks;
    bool starts; /* false: a request of the context does not fit, and it refuses to start */
    uint64_t most_context_tokens; /* then: what it says would fit */
    double concurrency;
    uint64_t tokens;
    uint64_t held_tokens; /* kvpager's: of whole requests, of which all but one decode */
} kvpi_vllm;

/* Give the layers that its specs are made for.
 *
 * Takes:   dtype    of KV
 * Gives:   layers   [KVPI_VLLM_MAX_LAYERS] on success
 *          why      [n_why] after a failure: what is not counted, for a sentence
 * Returns: their number; 0 when it is not known what vLLM makes of the model
 */
uint32_t kvpi_vllm_layers_of(const kvpi_model *model, uint32_t tensor_parallel, kvpi_dtype dtype,
                             kvpi_dtype state_dtype, kvpi_vllm_layers *layers, char *why,
                             size_t n_why);

/* Plan as get_kv_cache_configs does.
 *
 * Takes:   layers   [n]
 *          options  block_tokens a multiple of 16
 * Returns: 0; -1 when vLLM cannot give the layers pages of one size
 */
int kvpi_vllm_plan(const kvpi_vllm_layers *layers, uint32_t n, const kvpi_vllm_options *options,
                   kvpi_vllm *out);

/* Its max_num_batched_tokens if none is given, of its server on an accelerator. */
uint64_t kvpi_vllm_batch_tokens(uint64_t memory_bytes, bool is_a100);

#endif
