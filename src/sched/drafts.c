/* drafts: chains of draft tokens behind the sequences that decode (kvp_sched_config.draft_tokens).
 *
 *     between steps   known - 1 tokens, all computed
 *     in a step       known tokens, and item_drafts[k] without values: slots for drafts
 *     finished        accepted drafts get their values and are computed, the rest is cut
 *
 * The slots are tokens of the sequence while the step is out, so that nothing that the caller does
 * meanwhile (a fork) makes the cache move what the step writes there. Drafts are the last that
 * blocks are given to: if they do not suffice for all drafts of a step, it has none. So nobody is
 * preempted or left out for them.
 *
 *   item_drafts[k] is 0 for every item that decodes, unless a step is out
 */
#include "sched/state.h"

#include <assert.h>

static uint32_t most_drafts(const kvp_sched *sched, uint32_t slot)
{
    const struct kvpi_sample *sample = &sched->samples[sched->item_samples[slot]];
    return kvpi_sched_min(sched->config.draft_tokens, sample->limit - sample->known - 1);
}

void kvpi_drafts_clear(kvp_sched *sched)
{
    for (uint32_t k = 0; sched->n_drafts > 0 && k < sched->n_decoding; k++) {
        sched->item_drafts[k] = 0;
    }
    sched->n_drafts = 0;
}

/* Room for all that decode, and their drafts. Gives 0, with nothing changed, when there is none, or
 * when nobody has drafts. */
int kvpi_drafts_extend(kvp_sched *sched)
{
    kvp_batch batch = {.struct_size = sizeof(batch),
                       .n_seqs = sched->n_decoding,
                       .seqs = sched->item_seqs,
                       .n_tokens = sched->few_counts};
    if (sched->config.draft_tokens == 0) {
        return 0;
    }
    for (uint32_t k = 0; k < sched->n_decoding; k++) {
        sched->item_drafts[k] = most_drafts(sched, k);
        sched->few_counts[k] = 1 + sched->item_drafts[k];
        sched->n_drafts += sched->item_drafts[k];
    }
    if (sched->n_drafts == 0) {
        return 0;
    }
    if (kvp_seq_extend_many(sched->cache, &batch) != KVP_OK) {
        kvpi_drafts_clear(sched);
        return 0;
    }
    batch.n_tokens = NULL;
    batch.tokens = sched->tokens;
    const kvp_status status = kvp_seq_fill_many(sched->cache, &batch);
    assert(status == KVP_OK); /* one token of each has no value */
    (void)status;
    return 1;
}

/* Drafts of an item that were accepted. */
static uint32_t accepted_of(const kvp_sched *sched, const uint32_t *counts, uint32_t k)
{
    return k < sched->n_decoding && counts != NULL ? counts[k] - 1 : 0;
}

/* Are as many tokens sampled as may be, and equally many for all samples of a request? */
int kvpi_drafts_are_valid(const kvp_sched *sched, const uint32_t *counts)
{
    for (uint32_t k = 0; k < sched->n_decoding && counts != NULL; k++) {
        if (counts[k] == 0 || counts[k] - 1 > sched->item_drafts[k]) {
            return 0;
        }
        if (sched->item_samples[k] != KVPI_NONE) {
            const struct kvpi_sample *sample = &sched->samples[sched->item_samples[k]];
            const struct kvpi_request *request = &sched->requests[sample->request];
            if (counts[k] != counts[kvpi_open_trunk_of(sched, request)->slot]) {
                return 0;
            }
        }
    }
    return 1;
}

/* The items whose request is still there, and how many drafts of each were accepted, which go to
 * accepted_drafts. */
static uint32_t gather_accepted(kvp_sched *sched, const int32_t *tokens, const uint32_t *counts)
{
    uint32_t n = 0;
    uint32_t n_tokens = 0;
    for (uint32_t k = 0; k < sched->n_items; k++) {
        const uint32_t accepted = accepted_of(sched, counts, k);
        if (sched->item_samples[k] != KVPI_NONE) {
            for (uint32_t i = 0; i < accepted; i++) {
                sched->accepted_drafts[n_tokens++] = tokens[i];
            }
            sched->few_seqs[n] = sched->item_seqs[k];
            sched->few_ids[n] = k;
            sched->few_counts[n++] = accepted;
        }
        tokens += k < sched->n_decoding ? accepted + 1 : 0;
    }
    return n;
}

/* Commit the step: as commit_items does for steps without drafts. */
kvp_status kvpi_drafts_commit(kvp_sched *sched, const int32_t *tokens, const uint32_t *counts)
{
    const uint32_t n = gather_accepted(sched, tokens, counts);
    const kvp_batch batch = {.struct_size = sizeof(batch),
                             .n_seqs = n,
                             .seqs = sched->few_seqs,
                             .n_tokens = sched->few_counts,
                             .tokens = sched->accepted_drafts};
    kvp_status status = kvp_seq_fill_many(sched->cache, &batch);
    if (status != KVP_OK) {
        return status;
    }
    for (uint32_t i = 0; i < n; i++) {
        sched->stats.accepted_tokens += sched->few_counts[i];
        sched->few_counts[i] += sched->item_ends[sched->few_ids[i]];
    }
    status = kvp_seq_commit_many(sched->cache, sched->few_seqs, sched->few_counts, n);
    for (uint32_t i = 0; i < n && status == KVP_OK; i++) {
        if (sched->few_ids[i] < sched->n_decoding) {
            status = kvp_seq_truncate(sched->cache, sched->few_seqs[i], sched->few_counts[i], NULL);
        }
    }
    return status;
}
