/* kept: what a window keeps for a step. */
#ifndef KVPI_META_KEPT_H
#define KVPI_META_KEPT_H

#include "core/meta/meta.h"

/* What the group's window keeps for the step. */
struct kvpi_kept kvpi_span_kept(const kvp_cache *cache, const kvp_meta_batch *batch,
                                const struct kvpi_span *span);

/* Is an entry null that the step's first query keeps? For sequences with windows. */
int kvpi_span_lacks(const kvp_cache *cache, const kvp_meta_batch *batch,
                    const struct kvpi_span *span);

#endif
