/* plain: attention under a mask with numbers that are neither 0 nor minus infinity, which are added
 * to the scores. Right, not fast: one thread, a key at a time. */
#ifndef KVPI_GGML_PLAIN_H
#define KVPI_GGML_PLAIN_H

#include "visible.h"

/* `call` without lists: layer, q, out, scale, soft_cap, sink_logits. 0: no memory, and nothing was
 * written. */
int kvpi_plain_run(const kvp_attention *call, const struct kvpi_mask *mask);

#endif
