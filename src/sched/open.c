/* open: the sequence of a request that is admitted.
 *
 * Admission opens the first live sample's sequence, the trunk, up to its goal. The other samples
 * are forked from it when its prompt is computed; until then the blocks that they will need are
 * promised to them: no other request may use these blocks.
 */
#include "sched/sched_state.h"

#include <kvpager/policy.h>

#include <assert.h>

struct kvpi_sample *kvpi_open_trunk_of(const kvp_sched *sched, const struct kvpi_request *request)
{
    struct kvpi_sample *sample = kvpi_sched_first(sched, request);
    while (sample != NULL && sample->stage == KVPI_STAGE_ENDED) {
        sample = kvpi_sched_next(sched, sample);
    }
    assert(sample != NULL); /* a request ends with its last sample */
    return sample;
}

/* What must stay free when a request comes in. */
uint64_t kvpi_open_watermark(const kvp_sched *sched)
{
    kvp_stats stats;
    (void)kvp_cache_stats_get(sched->cache, &stats);
    return stats.held_blocks == 0 ? 0 : sched->watermark_blocks;
}

/* Blocks of all layer groups that a sample has for itself behind the full ones of the prompt: one
 * in each at least. */
static uint32_t count_own(const kvp_sched *sched, const struct kvpi_request *request,
                          const struct kvpi_sample *sample)
{
    uint32_t n = 0;
    for (uint32_t g = 0; g < sched->n_groups; g++) {
        const uint32_t S = sched->block_tokens[g];
        n += kvpi_sched_max(kvpi_sched_ceil(sample->known, S) - request->prompt.n_tokens / S, 1);
    }
    return n;
}

/* Blocks that will be taken when the trunk is forked. Those of the live samples after it: one each
 * for a new request; when generated tokens come back, all that are not the prompt's full ones. And
 * the trunk's own, if it stops at the prompt's end till then. */
uint32_t kvpi_open_blocks_to_promise(const kvp_sched *sched, const struct kvpi_request *request,
                                     const struct kvpi_sample *trunk)
{
    const uint32_t goal = kvpi_sample_goal(sched, request, trunk);
    uint32_t n = 0;
    if (goal + 1 < trunk->known) {
        n = (uint32_t)(kvpi_sched_blocks(sched, trunk->known - 1) - kvpi_sched_blocks(sched, goal));
    }
    for (const struct kvpi_sample *s = kvpi_sched_next(sched, trunk); s;
         s = kvpi_sched_next(sched, s)) {
        n += s->stage != KVPI_STAGE_ENDED ? count_own(sched, request, s) : 0;
    }
    return n;
}

/* What the trunk is opened with: its tokens up to its goal, in one piece. */
kvp_prompt kvpi_open_prompt_of(kvp_sched *sched, struct kvpi_request *request,
                               const struct kvpi_sample *trunk)
{
    kvp_prompt prompt = request->prompt;
    const kvp_range all = {0, kvpi_sample_goal(sched, request, trunk)};
    if (all.end > prompt.n_tokens) {
        prompt.hashes = NULL; /* there are none of the generated tokens */
    }
    if (prompt.tokens == NULL || all.end > prompt.n_tokens) {
        kvpi_read_text(sched, trunk, &request->cursor, all, sched->text);
        prompt.tokens = sched->text;
        prompt.n_tokens = all.end;
    }
    return prompt;
}

/* Whether the trunk and what is promised fit together. The block that a hit inside a block is
 * copied from counts as needed, though the cache could do without that hit; so does the checkpoint
 * of a hit. When all blocks, or all slots, are there, and that one makes the difference, all hits
 * are given up, for the request must fit. */
static kvp_status check_promises(kvp_sched *sched, const struct kvpi_request *request,
                                 kvp_prompt *prompt, uint32_t others)
{
    kvp_admission admission;
    const kvp_status status = kvp_cache_can_open(sched->cache, request->ns, prompt, &admission);
    if (status != KVP_OK) {
        return status;
    }
    const uint64_t promised = (uint64_t)others + sched->promised_blocks;
    const uint64_t all = admission.need_blocks + promised + kvpi_open_watermark(sched);
    const int have_blocks = all <= admission.available;
    sched->missing_slots = have_blocks ? kvpi_slots_missing(sched, request, prompt) : 0;
    if (have_blocks && sched->missing_slots == 0) {
        return KVP_OK;
    }
    if (have_blocks ? kvpi_slots_are_all_there(sched)
                    : admission.available == sched->usable_blocks) {
        prompt->flags |= KVP_OPEN_NO_MATCH;
        return KVP_OK;
    }
    sched->lacks_slots = have_blocks;
    sched->missing = have_blocks ? 0 : all - admission.available;
    return KVP_E_NO_BLOCKS;
}

/* Would it be admitted? KVP_E_NO_BLOCKS: not now. */
kvp_status kvpi_open_check(kvp_sched *sched, struct kvpi_request *request)
{
    const struct kvpi_sample *trunk = kvpi_open_trunk_of(sched, request);
    kvp_prompt prompt = kvpi_open_prompt_of(sched, request, trunk);
    return check_promises(sched, request, &prompt,
                          kvpi_open_blocks_to_promise(sched, request, trunk));
}

kvp_status kvpi_open_trunk(kvp_sched *sched, struct kvpi_request *request)
{
    struct kvpi_sample *trunk = kvpi_open_trunk_of(sched, request);
    const uint32_t others = kvpi_open_blocks_to_promise(sched, request, trunk);
    kvp_prompt prompt = kvpi_open_prompt_of(sched, request, trunk);
    kvp_open_info info;
    kvp_shortage shortage;
    kvp_status status = KVP_OK;
    sched->missing = 0;
    sched->lacks_slots = 0;
    if (others + sched->promised_blocks > 0 || sched->usable_slots > 0) {
        status = check_promises(sched, request, &prompt, others);
    }
    const uint64_t available = sched->renews_slots ? kvpi_slots_available(sched) : 0;
    if (status == KVP_OK) {
        status = kvp_seq_open(sched->cache, request->ns, &prompt, &trunk->seq, &info);
        if (status == KVP_E_NO_BLOCKS &&
            kvp_cache_shortage_get(sched->cache, &shortage) == KVP_OK) {
            sched->lacks_slots = shortage.tier == KVP_STATE_SLOTS;
            sched->missing = sched->lacks_slots ? 0 : shortage.missing_blocks;
            sched->missing_slots = sched->lacks_slots ? shortage.missing_blocks : 0;
        }
    }
    if (status != KVP_OK) {
        return status;
    }
    if (sched->ends_prompts && prompt.n_tokens > request->prompt.n_tokens) { /* it comes back */
        (void)kvp_seq_prompt_end(sched->cache, trunk->seq, request->prompt.n_tokens);
    }
    trunk->stage = KVPI_STAGE_HELD;
    trunk->core = prompt.n_tokens;
    trunk->computed = info.cached_tokens;
    request->n_unforked = request->n_live - 1;
    request->promised = others;
    sched->promised_blocks += others;
    const uint64_t taken = sched->renews_slots ? available - kvpi_slots_available(sched) : 0;
    kvpi_slots_promise(sched, request, kvpi_slots_to_promise(sched, request) - (uint32_t)taken);
    sched->stats.cached_tokens += info.cached_tokens;
    return KVP_OK;
}
