/* stage: records whose blocks do not lie by 4096 are copied once, so that they too go past the page
 * cache: gathered before they are written, scattered after they were read. */
#ifndef KVPI_STORE_STAGE_H
#define KVPI_STORE_STAGE_H

#include "store/identity/identity_record.h"

enum { KVPI_DIRECT_GRAIN = 4096 }; /* of offsets, lengths and addresses */

/* 1: all spans lie by the grain. */
int kvpi_stage_aligned(const struct kvpi_span *spans, uint32_t n_spans);

/* The bytes of all spans, up to the next grain: what a transfer from or to a stage moves. */
uint64_t kvpi_stage_bytes(const struct kvpi_span *spans, uint32_t n_spans);

/* Copy spans into a stage of at least kvpi_stage_bytes; what is behind them is zero. */
void kvpi_stage_gather(const struct kvpi_span *spans, uint32_t n_spans, uint8_t *stage);

void kvpi_stage_scatter(const uint8_t *stage, const struct kvpi_span *spans, uint32_t n_spans);

/* Memory for n stages of n_bytes each, by the grain, for free(); NULL: the system gave none. */
uint8_t *kvpi_stage_make(uint32_t n, uint64_t n_bytes);

#endif
