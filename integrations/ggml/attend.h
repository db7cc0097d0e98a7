/* attend: one FLASH_ATTN_EXT of ggml by kvpager's attention, on K and V where they lie. */
#ifndef KVPI_GGML_ATTEND_H
#define KVPI_GGML_ATTEND_H

#include <ggml.h>

#include "visible.h"

enum { KVPI_ATTEND_MASKS = 4 }; /* masks of a step whose lists are kept: full, windows, streams */

struct kvpi_attend {
    kvp_attention_team *team; /* NULL: the calling thread only */
    uint64_t alone_products;  /* up to so many are not worth the team */
    struct {
        const void *data; /* where the mask lies */
        struct kvpi_visible visible;
    } masks[KVPI_ATTEND_MASKS];
    uint32_t next_mask; /* whose lists are lost when another mask comes */
    void *scratch;
    size_t scratch_bytes;
    struct { /* since the beginning */
        uint64_t calls, lists, others;
    } counts;
};

/* Can kvpager compute it? What the tensors hold is not looked at. */
int kvpi_attend_takes(const struct ggml_tensor *op);

/* Compute it. Returns: GGML_STATUS_SUCCESS; GGML_STATUS_ALLOC_FAILED; GGML_STATUS_FAILED: not what
 * kvpi_attend_takes takes. */
enum ggml_status kvpi_attend_run(struct kvpi_attend *attend, const struct ggml_tensor *op);

/* Free what it has; not the team. */
void kvpi_attend_end(struct kvpi_attend *attend);

#endif
