/* stage: copies between spans and one piece of memory. */
#include "store/file/stage.h"

#include <stdlib.h>
#include <string.h>

int kvpi_stage_aligned(const struct kvpi_span *spans, uint32_t n_spans)
{
    for (uint32_t i = 0; i < n_spans; i++)
        if ((uintptr_t)spans[i].bytes % KVPI_DIRECT_GRAIN != 0 ||
            spans[i].n_bytes % KVPI_DIRECT_GRAIN != 0)
            return 0;
    return 1;
}

static uint64_t sum_bytes(const struct kvpi_span *spans, uint32_t n_spans)
{
    uint64_t n_bytes = 0;
    for (uint32_t i = 0; i < n_spans; i++)
        n_bytes += spans[i].n_bytes;
    return n_bytes;
}

uint64_t kvpi_stage_bytes(const struct kvpi_span *spans, uint32_t n_spans)
{
    const uint64_t n_bytes = sum_bytes(spans, n_spans) + KVPI_DIRECT_GRAIN - 1;
    return n_bytes - n_bytes % KVPI_DIRECT_GRAIN;
}

void kvpi_stage_gather(const struct kvpi_span *spans, uint32_t n_spans, uint8_t *stage)
{
    const uint64_t behind = kvpi_stage_bytes(spans, n_spans) - sum_bytes(spans, n_spans);
    for (uint32_t i = 0; i < n_spans; stage += spans[i++].n_bytes)
        memcpy(stage, spans[i].bytes, spans[i].n_bytes);
    memset(stage, 0, behind);
}

void kvpi_stage_scatter(const uint8_t *stage, const struct kvpi_span *spans, uint32_t n_spans)
{
    for (uint32_t i = 0; i < n_spans; stage += spans[i++].n_bytes)
        memcpy(spans[i].bytes, stage, spans[i].n_bytes);
}

uint8_t *kvpi_stage_make(uint32_t n, uint64_t n_bytes)
{
    return n_bytes <= SIZE_MAX / n ? aligned_alloc(KVPI_DIRECT_GRAIN, n * (size_t)n_bytes) : NULL;
}
