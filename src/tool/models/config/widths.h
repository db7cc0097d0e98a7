/* How wide a layer's KV is. */
#ifndef KVPI_WIDTHS_H
#define KVPI_WIDTHS_H

#include "tool/models/config/layers.h"

typedef struct kvpi_width {
    uint32_t q_heads;
    uint32_t kv_heads;
    uint32_t k_dim;
    uint32_t v_dim;
    uint32_t kv_rank; /* of a latent vector; 0: heads */
    uint32_t rope;
    uint32_t nope;
    uint32_t window; /* of a layer that has one */
} kvpi_width;

typedef struct kvpi_widths {
    kvpi_width full;
    kvpi_width windowed;
    uint32_t index_dim; /* 0: no indexer */
    uint32_t index_tokens;
    bool index_scaled; /* in fp8 its keys have a scale */
} kvpi_widths;

/* Read the widths of the two kinds of layers.
 *
 * Takes:   hidden   0: not known
 * Returns: 0; -1, a message
 */
int kvpi_widths_read(const kvpi_entries *reader, const kvpi_layers *layers, uint32_t hidden,
                     kvpi_widths *out);

/* Give one layer's width: that of its kind, or what per_layer_config says.
 *
 * Returns: 0; -1, a message
 */
int kvpi_widths_of_layer(const kvpi_entries *reader, const kvpi_widths *widths,
                         const kvpi_layers *layers, uint32_t layer, kvpi_width *out);

#endif
