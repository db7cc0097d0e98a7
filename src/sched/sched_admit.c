/* sched_admit: what a step does with the rest of its token budget. Chunks of prompts under way,
 * then waiting requests in order of rank.
 *
 * Admission opens the first live sample's sequence, the trunk, for all its tokens. The other
 * samples are forked from it when its prompt is computed; until then the blocks that they will need
 * are promised to them: nobody is admitted into them.
 */
#include "sched_state.h"

#include <assert.h>

/* ------------------------------------------------------------------------------------ chunks */

/* Tokens to sample after a chunk that ends at `end`: all samples' first ones after a prompt. */
static uint32_t sampled_after(const struct kvpi_request *request, const struct kvpi_sample *sample,
                              uint32_t end)
{
    if (end < sample->known) {
        return 0;
    }
    return sample->known == request->prompt.n_tokens ? request->n_live : 1;
}

static void add_chunk(kvp_sched *sched, struct kvpi_sample *sample, uint32_t *budget)
{
    struct kvpi_request *request = &sched->requests[sample->request];
    const uint32_t most = sched->config.chunk_tokens;
    const uint32_t n = kvpi_sched_min(kvpi_sample_gap(sample), kvpi_sched_min(*budget, most));
    const uint32_t slot = sched->n_items++;
    const kvp_range range = {sample->computed, sample->computed + n};
    kvpi_text_read(sched, sample, &request->cursor, range, sched->tokens + sched->n_tokens);
    sched->items[slot] = (kvp_step_seq){
        .seq = sample->seq,
        .request = kvpi_sched_handle(sched, request),
        .sample = sample->idx,
        .begin = range.begin,
        .n_tokens = n,
        .n_sampled = sampled_after(request, sample, range.end),
    };
    sched->item_samples[slot] = (uint32_t)(sample - sched->samples);
    sched->item_seqs[slot] = sample->seq;
    sched->item_ends[slot] = range.end;
    sample->slot = slot;
    sched->n_tokens += n;
    sched->report.n_sampled += sched->items[slot].n_sampled;
    *budget -= n;
}

void kvpi_admit_chunks(kvp_sched *sched, uint32_t *budget)
{
    uint32_t place = sched->prefill_first;
    while (place != KVPI_NONE && *budget > 0) {
        struct kvpi_sample *sample = &sched->samples[place];
        add_chunk(sched, sample, budget);
        place = sample->list_after;
    }
}

/* -------------------------------------------------------------------------------------- open */

static struct kvpi_sample *trunk_of(const kvp_sched *sched, const struct kvpi_request *request)
{
    struct kvpi_sample *sample = kvpi_sched_first(sched, request);
    while (sample->stage == KVPI_STAGE_ENDED) {
        sample = kvpi_sched_next(sched, sample);
    }
    return sample;
}

/* Blocks that the live samples after the trunk will take when they are forked: one each for a new
 * request; when generated tokens come back, all that are not the prompt's full ones. */
static uint32_t blocks_for_others(const kvp_sched *sched, const struct kvpi_request *request,
                                  const struct kvpi_sample *trunk)
{
    const uint32_t S = sched->block_tokens;
    uint32_t n = 0;
    for (const struct kvpi_sample *s = kvpi_sched_next(sched, trunk); s;
         s = kvpi_sched_next(sched, s)) {
        if (s->stage != KVPI_STAGE_ENDED) {
            const uint32_t own = kvpi_sched_ceil(s->known, S) - request->prompt.n_tokens / S;
            n += kvpi_sched_max(own, 1);
        }
    }
    return n;
}

static kvp_prompt prompt_of(kvp_sched *sched, struct kvpi_request *request,
                            const struct kvpi_sample *trunk)
{
    kvp_prompt prompt = request->prompt;
    if (trunk->known > prompt.n_tokens) {
        prompt.hashes = NULL; /* there are none of the generated tokens */
    }
    if (prompt.tokens == NULL || trunk->known > prompt.n_tokens) {
        const kvp_range all = {0, trunk->known};
        kvpi_text_read(sched, trunk, &request->cursor, all, sched->text);
        prompt.tokens = sched->text;
        prompt.n_tokens = trunk->known;
    }
    return prompt;
}

/* Whether the trunk and the blocks that are promised fit together. The block that a hit inside a
 * block is copied from counts as needed, though the cache could do without that hit: with nothing
 * held, when that block makes the difference, all hits are given up, for the request must fit. */
static kvp_status check_promises(kvp_sched *sched, const struct kvpi_request *request,
                                 kvp_prompt *prompt, uint32_t others)
{
    kvp_admission admission;
    const kvp_status status = kvp_can_open(sched->cache, request->ns, prompt, &admission);
    if (status != KVP_OK) {
        return status;
    }
    const int is_empty = admission.available == sched->usable_blocks;
    const uint64_t watermark = is_empty ? 0 : sched->watermark_blocks;
    const uint64_t promised = (uint64_t)others + sched->promised_blocks;
    if (admission.need_blocks + promised + watermark <= admission.available) {
        return KVP_OK;
    }
    if (!is_empty) {
        sched->missing = admission.need_blocks + promised + watermark - admission.available;
        return KVP_E_NO_BLOCKS;
    }
    prompt->flags |= KVP_OPEN_NO_MATCH;
    return KVP_OK;
}

static kvp_status open_trunk(kvp_sched *sched, struct kvpi_request *request)
{
    struct kvpi_sample *trunk = trunk_of(sched, request);
    const uint32_t others = blocks_for_others(sched, request, trunk);
    kvp_prompt prompt = prompt_of(sched, request, trunk);
    kvp_open_info info;
    kvp_shortage shortage;
    kvp_status status = KVP_OK;
    sched->missing = 0;
    sched->stats.tries++;
    if (others + sched->promised_blocks > 0) {
        status = check_promises(sched, request, &prompt, others);
    }
    if (status == KVP_OK) {
        status = kvp_seq_open(sched->cache, request->ns, &prompt, &trunk->seq, &info);
        if (status == KVP_E_NO_BLOCKS && kvp_cache_shortage(sched->cache, &shortage) == KVP_OK) {
            sched->missing = shortage.missing_blocks;
        }
    }
    if (status != KVP_OK) {
        return status;
    }
    trunk->core = trunk->known;
    trunk->computed = info.cached_tokens;
    request->n_unforked = request->n_live - 1;
    request->promised = others;
    sched->promised_blocks += others;
    sched->stats.cached_tokens += info.cached_tokens;
    kvpi_life_list(sched, trunk);
    return KVP_OK;
}

static int is_short_of_places(const kvp_sched *sched, const struct kvpi_request *request)
{
    return sched->n_running + request->n_live > sched->config.max_running;
}

/* ----------------------------------------------------------------------- what was tried before
 *
 * A request that lacked blocks is not matched again while it cannot fit. Since it was tried, blocks
 * may have become available, and its need may have shrunk: by a block for each unit that was
 * sealed, adopted or found twice; by any number when a sequence was opened or forked. Two more for
 * a hit inside a block, whose source may or may not be counted.
 */

static struct kvpi_try look(const kvp_sched *sched)
{
    kvp_stats stats;
    (void)kvp_cache_stats(sched->cache, &stats);
    return (struct kvpi_try){
        .missing = sched->missing,
        .available = stats.free_blocks + stats.cached_blocks,
        .opened = stats.opens + stats.forks,
        .sealed = stats.sealed_units + stats.adopted_blocks + stats.duplicate_blocks,
        .promised = sched->promised_blocks,
    };
}

/* A namespace that was closed meanwhile must be found out. */
static int is_namespace_open(const kvp_sched *sched, kvp_ns ns)
{
    const kvp_prompt nothing = {.struct_size = sizeof(nothing)};
    kvp_admission ignored;
    return kvp_can_open(sched->cache, ns, &nothing, &ignored) == KVP_OK;
}

static int is_hopeless(const kvp_sched *sched, const struct kvpi_request *request)
{
    const struct kvpi_try *then = &request->last_try;
    if (then->missing == 0) {
        return 0;
    }
    const struct kvpi_try now = look(sched);
    const uint64_t gained =
        (now.available > then->available ? now.available - then->available : 0) + now.sealed -
        then->sealed + 2;
    return now.available < sched->usable_blocks && now.opened == then->opened &&
           now.promised >= then->promised && gained < then->missing &&
           is_namespace_open(sched, request->ns);
}

#if KVP_CHECK >= 1
/* What is_hopeless rules out must not fit. */
static void assert_hopeless(kvp_sched *sched, struct kvpi_request *request)
{
    struct kvpi_sample *trunk = trunk_of(sched, request);
    kvp_prompt prompt = prompt_of(sched, request, trunk);
    assert(check_promises(sched, request, &prompt, blocks_for_others(sched, request, trunk)) ==
           KVP_E_NO_BLOCKS);
}
#else
static void assert_hopeless(kvp_sched *sched, const struct kvpi_request *request)
{
    (void)sched;
    (void)request;
}
#endif

/* Paused requests make room for waiting ones. */
static kvp_status try_open(kvp_sched *sched, struct kvpi_request *request)
{
    while (is_short_of_places(sched, request)) {
        if (!kvpi_victims_take(sched, NULL, 1)) {
            return KVP_E_NO_SEQS;
        }
    }
    if (sched->queues[KVPI_QUEUE_HALTED].n == 0 && is_hopeless(sched, request)) {
        assert_hopeless(sched, request);
        return KVP_E_NO_BLOCKS;
    }
    kvp_status status = open_trunk(sched, request);
    while (status == KVP_E_NO_BLOCKS || status == KVP_E_NEVER) {
        if (!kvpi_victims_take(sched, NULL, sched->queues[KVPI_QUEUE_RUNNING].n == 0)) {
            request->last_try = look(sched);
            return KVP_E_NO_BLOCKS;
        }
        status = open_trunk(sched, request);
    }
    return status;
}

/* ----------------------------------------------------------------------------------- waiting */

static void admit(kvp_sched *sched, struct kvpi_request *request)
{
    sched->n_running += request->n_live;
    request->passed = 0;
    request->last_try.missing = 0;
    kvpi_life_move(sched, request, KVPI_QUEUE_RUNNING);
    sched->admitted[sched->report.n_admitted++] = kvpi_sched_handle(sched, request);
    sched->stats.admissions++;
}

static uint32_t reason_of(kvp_status status)
{
    switch (status) {
    case KVP_E_NO_BLOCKS: return KVP_WAIT_BLOCKS;
    case KVP_E_NO_SEQS: return KVP_WAIT_SEQS;
    case KVP_E_PLAN_FULL: return KVP_WAIT_PLAN;
    default: return KVP_WAIT_REASONS;
    }
}

/* Somebody behind them was admitted. Gives 1 when one of them may not be passed over again. */
static int pass_over(kvp_sched *sched, uint32_t n_tried)
{
    int is_over = 0;
    for (uint32_t i = 0; i < n_tried; i++) {
        struct kvpi_request *request = &sched->requests[sched->tried[i]];
        request->passed++;
        sched->stats.passed_over++;
        is_over |= request->passed >= sched->config.max_passed_over;
    }
    return is_over;
}

void kvpi_admit_waiting(kvp_sched *sched, uint32_t budget)
{
    const struct kvpi_queue *waiting = &sched->queues[KVPI_QUEUE_WAITING];
    uint32_t n_tried = 0;
    int is_blocked = 0;
    uint32_t place = kvpi_queue_after(waiting, NULL);
    while (place != KVPI_QUEUE_NONE && budget > 0 && !is_blocked &&
           sched->report.n_ended < 2 * sched->config.max_running) {
        struct kvpi_request *request = &sched->requests[place];
        const kvp_status status = try_open(sched, request);
        const uint32_t reason = reason_of(status);
        if (status == KVP_OK) {
            admit(sched, request);
            add_chunk(sched, &sched->samples[sched->prefill_last], &budget);
            is_blocked = pass_over(sched, n_tried);
        } else if (reason == KVP_WAIT_REASONS) {
            kvpi_life_refuse(sched, request, status, &sched->refused[sched->report.n_ended++]);
        } else {
            sched->report.waited[reason]++;
            sched->tried[n_tried++] = place;
            is_blocked = request->passed >= sched->config.max_passed_over ||
                         n_tried == sched->config.max_tries;
        }
        place = kvpi_queue_after(waiting, &request->rank);
    }
    const uint32_t rest = budget == 0 ? KVP_WAIT_TOKENS : KVP_WAIT_ORDER;
    sched->report.waited[rest] += waiting->n - n_tried;
}
