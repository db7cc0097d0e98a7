/* cache_meta: what the files that make metadata share. */
#ifndef KVPI_CACHE_META_H
#define KVPI_CACHE_META_H

#include <kvpager/meta.h>

#include "cache_state.h"

/* What a step computes of one sequence. */
struct kvpi_span {
    const struct kvpi_seq *seq;
    uint32_t begin; /* position */
    uint32_t n_tokens;
    uint32_t end;
    uint32_t n_blocks; /* row entries up to the end */
};

/* Enter a call on a batch: check it, and measure. Must be left with kvpi_leave on KVP_OK only. */
kvp_status kvpi_meta_enter(kvp_cache *cache, const kvp_meta_batch *batch, kvp_meta_sizes *sizes);

/* Sequence b of a batch that was checked. */
struct kvpi_span kvpi_meta_span(const kvp_cache *cache, const kvp_meta_batch *batch, uint32_t b);

const int32_t *kvpi_span_row(const kvp_cache *cache, const struct kvpi_span *span);

/* Tokens in the last block of a sequence of this length. */
int32_t kvpi_last_block_len(const kvp_cache *cache, uint32_t length);

#endif
