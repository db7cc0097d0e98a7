/* enter: how a call on a batch begins. */
#ifndef KVPI_META_ENTER_H
#define KVPI_META_ENTER_H

#include "core/meta/meta.h"

/* Enter a call on a batch: check it, and measure. Must be left with kvpi_leave on KVP_OK only. */
kvp_status kvpi_meta_enter(kvp_cache *cache, const kvp_meta_batch *batch, kvp_meta_sizes *sizes);

/* The same for rows alone, which may lack what a step would need. */
kvp_status kvpi_meta_enter_rows(kvp_cache *cache, const kvp_meta_batch *batch,
                                kvp_meta_sizes *sizes);

#endif
