/* ARC and S3-FIFO for blocks that continue each other: never a block before its descendants. */
#ifndef KVPI_MRC_ADAPTIVE_H
#define KVPI_MRC_ADAPTIVE_H

#include "tool/mrc/refs.h"

#define KVPI_MRC_NOBODY UINT32_MAX

typedef struct kvpi_mrc_adaptive kvpi_mrc_adaptive;

/* Make room for the contents of a trace. Returns: NULL when memory is short. Owns: the caller frees
 * it. Cost: O(references), 45 bytes a content */
kvpi_mrc_adaptive *kvpi_mrc_adaptive_make(const kvpi_mrc_refs *refs);
void kvpi_mrc_adaptive_free(kvpi_mrc_adaptive *a);

/* Begin with an empty cache of so many blocks. Takes: is_arc  else S3-FIFO */
void kvpi_mrc_adaptive_begin(kvpi_mrc_adaptive *a, bool is_arc, uint64_t blocks);

/* A request looks a content up that is not cached; a block is taken for it next. */
void kvpi_mrc_adaptive_miss(kvpi_mrc_adaptive *a, uint32_t content);

/* A cached content is in use until kvpi_mrc_adaptive_close. */
void kvpi_mrc_adaptive_hold(kvpi_mrc_adaptive *a, uint32_t content);

/* Evict. Returns: the content; KVPI_MRC_NOBODY when all are in use. Cost: O(log contents) */
uint32_t kvpi_mrc_adaptive_evict(kvpi_mrc_adaptive *a);

/* A request that has this content ends: it was cached before, or it is cached from now on. Those of
 * a request come last block first. */
void kvpi_mrc_adaptive_close(kvpi_mrc_adaptive *a, uint32_t content, bool was_cached);

#endif
