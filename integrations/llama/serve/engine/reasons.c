/* reasons: units by their hashes, each tenant's after its own root. Without memory for the record
 * the server does not start, so nothing here fails. */
#include "reasons.h"

#include <stdlib.h>

enum { LEAST_UNITS = 1 << 18, MOST_UNITS = 1 << 28, TIMES = 4 };

int kvpi_reasons_make(kvpi_reasons *reasons, const kvp_cache *cache)
{
    kvp_config config;
    if (kvp_cache_config_get(cache, &config) != KVP_OK)
        return -1;
    uint64_t units = ((uint64_t)config.n_blocks + config.host_blocks) * TIMES;
    units = units < LEAST_UNITS ? LEAST_UNITS : units > MOST_UNITS ? MOST_UNITS : units;
    reasons->unit_tokens = config.unit_tokens;
    reasons->full_groups = 0;
    for (uint32_t group = 0; group < config.n_groups; group++)
        reasons->full_groups |= (uint32_t)(config.groups[group].recent_tokens == 0) << group;
    reasons->record = malloc(kvp_reasons_bytes((uint32_t)units));
    reasons->hashes =
        calloc(config.max_seq_tokens / config.unit_tokens + 1, sizeof *reasons->hashes);
    reasons->tokens = calloc(config.max_seq_tokens, sizeof *reasons->tokens);
    return reasons->record == NULL || reasons->hashes == NULL || reasons->tokens == NULL ||
                   kvp_reasons_init(reasons->record, (uint32_t)units) != KVP_OK
               ? -1
               : 0;
}

void kvpi_reasons_free(kvpi_reasons *reasons)
{
    free(reasons->record);
    free(reasons->hashes);
    free(reasons->tokens);
}

/* Units of tokens after `parent`, NULL: the root of the job's tenant. Gives their number. */
static uint32_t hash(kvpi_reasons *reasons, const kvpi_job *job, const kvp_hash *parent,
                     const int32_t *tokens, uint32_t n_tokens)
{
    kvp_hash root;
    const kvp_hash_input input = {
        .unit_tokens = reasons->unit_tokens, .n_tokens = n_tokens, .tokens = tokens};
    (void)kvp_hash_root(reasons->unit_tokens, 0, job->salt, job->salt_bytes, &root);
    (void)kvp_hash_units(&input, parent != NULL ? parent : &root, reasons->hashes);
    return n_tokens / reasons->unit_tokens;
}

void kvpi_reasons_admit(kvpi_reasons *reasons, const kvpi_job *job, const kvp_seq_info *seq)
{
    (void)hash(reasons, job, NULL, job->tokens, job->n_tokens);
    const kvp_reasons_prompt prompt = {.unit_tokens = reasons->unit_tokens,
                                       .n_tokens = job->n_tokens,
                                       .hashes = reasons->hashes,
                                       .cached_tokens = seq->cached_tokens,
                                       .stop = seq->stop,
                                       .stop_group = seq->stop_group,
                                       .full_groups = reasons->full_groups};
    (void)kvp_reasons_admit(reasons->record, &prompt, NULL);
}

void kvpi_reasons_computed(kvpi_reasons *reasons, const kvp_cache *cache, const kvp_sched *sched,
                           kvpi_job *job, uint32_t sample, uint32_t n_tokens)
{
    kvpi_sample *of = &job->samples[sample];
    kvp_sample_info info;
    const uint32_t U = reasons->unit_tokens, first = of->n_units * U;
    const uint32_t end = n_tokens / U * U;
    if (end <= first || kvp_request_sample(sched, job->request, sample, &info) != KVP_OK ||
        kvp_seq_tokens(cache, info.seq, first, end - first, reasons->tokens) != KVP_OK)
        return;
    const uint32_t n =
        hash(reasons, job, first > 0 ? &of->last_unit : NULL, reasons->tokens, end - first);
    (void)kvp_reasons_computed(reasons->record, reasons->hashes, n, n);
    of->last_unit = reasons->hashes[n - 1];
    of->n_units += n;
}

void kvpi_reasons_leave(kvpi_reasons *reasons, const kvpi_job *job)
{
    const uint32_t n_computed = job->samples[0].n_units;
    if (job->was_admitted && n_computed < job->n_tokens / reasons->unit_tokens) {
        const uint32_t n = hash(reasons, job, NULL, job->tokens, job->n_tokens);
        (void)kvp_reasons_computed(reasons->record, reasons->hashes, n, n_computed);
    }
}
