/* plain: generation with the KV of one sequence in one piece. The engine must agree with it. */
#ifndef TINY_LLAMA_PLAIN_H
#define TINY_LLAMA_PLAIN_H

#include "model.h"

/* Generate, sample after sample, each from nothing: no cache, no batch, no blocks.
 * Returns 0; 1 when there is no memory. */
int plain_generate(struct model *model, const struct generation *generation);

#endif
