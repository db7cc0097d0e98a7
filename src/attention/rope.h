/* rope: rotary embedding, in double precision.
 *
 * A vector's rotated part is read as n_dims / 2 pairs; pair i is turned by position * frequency[i]
 * and stretched by `magnitude`. Which two elements make a pair:
 *
 *     KVP_ROPE_SPLIT         (i, i + n_dims / 2)      Llama and GPT-NeoX checkpoints
 *     KVP_ROPE_INTERLEAVED   (2 i, 2 i + 1)           GPT-J, DeepSeek
 */
#ifndef KVPI_ROPE_H
#define KVPI_ROPE_H

#include "kvpager/attention.h"

/* A rope with everything worked out. */
struct kvpi_rope {
    uint32_t mode; /* KVP_ROPE_... */
    uint32_t is_interleaved;
    uint32_t first_dim;
    uint32_t n_pairs;
    double magnitude;
    const double *frequencies; /* [n_pairs] radians for each position */
};

/* Check a rope for vectors of `dims` elements; 0 when it is not valid. */
int kvpi_rope_is_valid(const kvp_rope *rope, uint32_t dims);

/* How many pairs it turns; 0 for KVP_ROPE_NONE. */
uint32_t kvpi_rope_pairs(const kvp_rope *rope, uint32_t dims);

/* Work a valid rope out. `frequencies` is memory for kvpi_rope_pairs of them, kept in `out`. */
void kvpi_rope_make(struct kvpi_rope *out, const kvp_rope *rope, uint32_t dims,
                    double *frequencies);

/* Turn a vector to its position, in place. */
void kvpi_rope_turn(const struct kvpi_rope *rope, double position, double *vector);

#endif
