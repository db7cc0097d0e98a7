/* reasons: why tokens of prompts were computed: kvpager/reasons.h for this server's requests. */
#ifndef KVPI_SERVE_REASONS_H
#define KVPI_SERVE_REASONS_H

#include "tenants.h"

#include <kvpager/reasons.h>

typedef struct kvpi_reasons {
    kvp_reasons *record;
    kvp_hash *hashes; /* [max_seq_tokens / unit_tokens] */
    int32_t *tokens;  /* [max_seq_tokens] */
    uint32_t unit_tokens;
    uint32_t full_groups; /* as in kvp_reasons_prompt */
} kvpi_reasons;

/* Makes a record of four times what cells and host memory hold. -1: no memory. */
int kvpi_reasons_make(kvpi_reasons *reasons, const kvp_cache *cache);
void kvpi_reasons_free(kvpi_reasons *reasons);

/* The job's first sequence was opened for the first time. */
void kvpi_reasons_admit(kvpi_reasons *reasons, const kvpi_job *job, const kvp_seq_info *seq);

/* The KV of a sample's first n_tokens tokens is there. */
void kvpi_reasons_computed(kvpi_reasons *reasons, const kvp_cache *cache, const kvp_sched *sched,
                           kvpi_job *job, uint32_t sample, uint32_t n_tokens);

/* The job is over. What it had begun to compute and has not is not on its way any more. */
void kvpi_reasons_leave(kvpi_reasons *reasons, const kvpi_job *job);

#endif
