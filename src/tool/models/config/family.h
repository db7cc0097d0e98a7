/* What a configuration class of transformers assumes when a key is missing. */
#ifndef KVPI_FAMILY_H
#define KVPI_FAMILY_H

#include <stdbool.h>
#include <stdint.h>

/* 0: the key is needed, or has the default of most. */
typedef struct kvpi_family {
    const char *model_type;
    uint32_t q_heads, kv_heads, head_dim, full_head_dim, vocab;
    uint32_t window, pattern;
    uint32_t chunk, interval; /* of attention_chunk_size, no_rope_layer_interval */
    bool tied, ungated, gated_attention;
} kvpi_family;

/* Give the family of a model_type; one without defaults for others. */
const kvpi_family *kvpi_family_of(const char *model_type);

#endif
