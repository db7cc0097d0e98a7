/* reference: scalar, in double precision; the definition of what is right. What these are called
 * with was checked; strides are resolved. */
#ifndef KVPI_REFERENCE_H
#define KVPI_REFERENCE_H

#include "attention/keys.h"
#include "attention/rope.h"
#include "attention/scratch.h"

/* Scratch memory of one append. */
struct kvpi_append_scratch {
    double *frequencies; /* [pairs] */
    double *vector;      /* [D] */
    float *row;          /* [D] */
};

void kvpi_reference_append_scratch(struct kvpi_append_scratch *out, const kvp_append *append,
                                   struct kvpi_scratch *scratch);
void kvpi_reference_append(const kvp_append *append, const struct kvpi_append_scratch *scratch);

/* Scratch memory of one attention. */
struct kvpi_attention_scratch {
    double *frequencies; /* [pairs] */
    uint32_t *seen;      /* [max_keys] */
    double *weights;     /* [Q / H, max_keys] */
    double *queries;     /* [Q / H, D] */
    double *sums;        /* [Q / H, Dv] */
    double *vector;      /* [D] */
    float *row;          /* [D or Dv, the larger] */
    size_t max_keys;
};

void kvpi_reference_attention_scratch(struct kvpi_attention_scratch *out,
                                      const kvp_attention *attention, uint64_t max_keys,
                                      struct kvpi_scratch *scratch);
void kvpi_reference_attention(const kvp_attention *attention, const struct kvpi_batch *batch,
                              const struct kvpi_attention_scratch *scratch);

void kvpi_reference_merge(const kvp_merge *merge);

#endif
