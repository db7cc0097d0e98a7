/* append: new K and V with vectors, element for element what the reference writes. */
#ifndef KVPI_APPEND_H
#define KVPI_APPEND_H

#include "attention/fast/kernels.h"
#include "attention/rope.h"
#include "attention/scratch.h"

struct kvpi_fast_append {
    double *frequencies; /* [pairs] */
    double *turn;        /* [pairs, 2] of a token */
    float *row;          /* [D] */
};

void kvpi_fast_append_scratch(struct kvpi_fast_append *out, const kvp_append *append,
                              struct kvpi_scratch *scratch);
void kvpi_fast_append(const kvp_append *append, const struct kvpi_kernels *kernels,
                      const struct kvpi_fast_append *scratch);

#endif
