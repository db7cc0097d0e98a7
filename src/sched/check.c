/* check: the audit of the scheduler's own state (Q1 to Q4 of sched.h). Needs no memory: what
 * is in a queue, a list or an array is counted there, and compared with what says that it is. */
#include "sched/sched_state.h"

#include <string.h>

struct sched_audit {
    const kvp_sched *sched;
    const char *failed; /* "Q1 text" */
    uint64_t object;
    uint32_t n_by_queue[KVPI_QUEUE_UNUSED + 1];
    uint32_t n_running;
    uint32_t n_swapped;
    uint32_t n_stored;
    uint32_t n_promised;
    uint32_t n_promised_slots;
    uint32_t n_pages;
    uint32_t n_used_pages;
    uint32_t n_samples;
    uint32_t n_prefill;
    uint32_t n_decode;
    uint32_t n_catching_up;
    uint32_t n_drafts;
};

static int sched_fail(struct sched_audit *audit, uint64_t object, const char *text)
{
    if (audit->failed == NULL) {
        audit->failed = text;
        audit->object = object;
    }
    return 0;
}

static uint32_t pages_of(const struct kvpi_chain *chain)
{
    return kvpi_sched_ceil(chain->n_tokens, KVPI_PAGE_TOKENS);
}

/* ------------------------------------------------------------------------------------- queues */

static int check_sched_queue(struct sched_audit *audit, uint32_t number)
{
    const kvp_sched *sched = audit->sched;
    const struct kvpi_queue *queue = &sched->queues[number];
    const struct kvpi_rank *before = NULL;
    uint32_t n = 0;
    for (uint32_t place = kvpi_queue_after(queue, NULL); place != KVPI_QUEUE_NONE;
         place = kvpi_queue_after(queue, before)) {
        const struct kvpi_request *request = &sched->requests[place];
        if (request->queue != number || n++ > sched->config.max_requests) {
            return sched_fail(audit, place, "Q1 a queue holds a request of another");
        }
        if (before != NULL && !kvpi_rank_before(before, &request->rank)) {
            return sched_fail(audit, place, "Q1 a queue is out of order");
        }
        before = &request->rank;
    }
    return n == queue->n || sched_fail(audit, number, "Q1 a queue's length is off");
}

static int check_prefill_list(struct sched_audit *audit)
{
    const kvp_sched *sched = audit->sched;
    uint32_t n = 0;
    uint32_t before = KVPI_NONE;
    for (uint32_t place = sched->prefill_first; place != KVPI_NONE;
         place = sched->samples[place].list_after) {
        const struct kvpi_sample *sample = &sched->samples[place];
        if (sample->stage != KVPI_STAGE_PREFILL || sample->list_before != before ||
            n++ > sched->config.max_samples) {
            return sched_fail(audit, place, "Q3 the list of prompts under way is broken");
        }
        before = place;
    }
    return (before == sched->prefill_last && n == audit->n_prefill) ||
           sched_fail(audit, n, "Q3 a prompt under way is not in the list");
}

/* ------------------------------------------------------------------------------------ samples */

static uint32_t core_tokens(const kvp_sched *sched, const struct kvpi_sample *sample)
{
    if (sample->stage == KVPI_STAGE_DECODE) {
        return sched->is_out ? sample->known + sched->item_drafts[sample->slot] : sample->known - 1;
    }
    return sample->core;
}

static int check_sample_seq(struct sched_audit *audit, const struct kvpi_sample *sample,
                            uint64_t place)
{
    const kvp_sched *sched = audit->sched;
    const struct kvpi_request *request = &sched->requests[sample->request];
    const int has_seq = kvpi_sample_has_seq(sample);
    if (has_seq != (sample->seq.bits != 0)) {
        return sched_fail(audit, place, "Q3 a sample's stage and its sequence disagree");
    }
    if (!has_seq) {
        return 1;
    }
    kvp_seq_info info;
    if (kvp_seq_info_get(sched->cache, sample->seq, &info) != KVP_OK) {
        return sched_fail(audit, place, "Q3 a sample's sequence is not open");
    }
    if (info.n_tokens != core_tokens(sched, sample) ||
        info.computed_tokens < kvpi_sample_computed(sample)) {
        return sched_fail(audit, place, "Q3 a sample's sequence is not as long as it should be");
    }
    if (info.tier != (kvpi_life_is_swapped(request) ? KVP_HOST : KVP_DEVICE)) {
        return sched_fail(audit, place, "Q3 a sample's sequence is on the wrong tier");
    }
    return 1;
}

static int has_slot(const kvp_sched *sched, const struct kvpi_sample *sample)
{
    kvp_state_info state = {0};
    (void)kvp_seq_state_get(sched->cache, sample->seq, &state); /* it is open: check_sample_seq */
    return state.write_slot != 0;
}

static int check_item(struct sched_audit *audit, const struct kvpi_sample *sample, uint64_t place)
{
    const kvp_sched *sched = audit->sched;
    const uint32_t slot = sample->slot;
    const uint32_t n_items = sched->is_out ? sched->n_items : sched->n_decoding;
    if (slot == KVPI_NONE) {
        return sample->stage != KVPI_STAGE_DECODE ||
               sched_fail(audit, place, "Q3 a sample that decodes has no item");
    }
    if (slot >= n_items || sched->item_samples[slot] != place ||
        sched->item_seqs[slot].bits != sample->seq.bits ||
        sched->items[slot].seq.bits != sample->seq.bits ||
        sched->items[slot].sample != sample->idx ||
        (slot < sched->n_decoding) != (sample->stage == KVPI_STAGE_DECODE)) {
        return sched_fail(audit, place, "Q3 a sample's item is another's");
    }
    if (sample->stage == KVPI_STAGE_DECODE &&
        (sched->item_ends[slot] != sample->known || sched->items[slot].begin + 1 != sample->known ||
         sched->tokens[slot] != *kvpi_pages_last(&sched->pages, &sample->generated))) {
        return sched_fail(audit, place, "Q3 an item that decodes is out of date");
    }
    if (sample->stage == KVPI_STAGE_DECODE &&
        sched->item_drafts[slot] > (sched->is_out ? sample->limit - sample->known - 1 : 0)) {
        return sched_fail(audit, place, "Q3 an item has more drafts than it may");
    }
    if (sched->is_out && sched->usable_slots > 0 && !has_slot(sched, sample)) {
        return sched_fail(audit, place, "Q3 an item has no slot of state to write");
    }
    audit->n_drafts += sample->stage == KVPI_STAGE_DECODE ? sched->item_drafts[slot] : 0;
    return 1;
}

static int check_sample(struct sched_audit *audit, const struct kvpi_request *request,
                        const struct kvpi_sample *sample)
{
    const uint64_t place = (uint64_t)(sample - audit->sched->samples);
    const uint32_t prompt = request->prompt.n_tokens;
    const int has_ended = sample->stage == KVPI_STAGE_ENDED;
    if (sample->known < prompt || sample->known > sample->limit ||
        sample->generated.n_tokens != sample->known - prompt || sample->core > sample->known ||
        sample->computed > sample->core || (sample->known == sample->limit && !has_ended)) {
        return sched_fail(audit, place, "Q3 a sample's counts are off");
    }
    audit->n_samples++;
    audit->n_prefill += sample->stage == KVPI_STAGE_PREFILL;
    audit->n_decode += sample->stage == KVPI_STAGE_DECODE;
    audit->n_catching_up += sample->stage == KVPI_STAGE_PREFILL &&
                            sample->core < kvpi_sample_goal(audit->sched, request, sample);
    audit->n_used_pages += pages_of(&sample->generated);
    return check_sample_seq(audit, sample, place) && check_item(audit, sample, place);
}

/* ----------------------------------------------------------------------------------- requests */

/* May a sample of a request in this queue be in this stage? While a step is out, samples that are
 * part of it follow their request later. */
static int fits_queue(const kvp_sched *sched, const struct kvpi_request *request,
                      const struct kvpi_sample *sample)
{
    const int is_active = sample->stage == KVPI_STAGE_PREFILL || sample->stage == KVPI_STAGE_DECODE;
    if (sample->stage == KVPI_STAGE_ENDED) {
        return 1;
    }
    if (!kvpi_life_holds(request) && !kvpi_life_is_swapped(request)) {
        return sample->stage == KVPI_STAGE_NONE;
    }
    if (sample->stage == KVPI_STAGE_NONE) {
        return request->n_unforked > 0;
    }
    if (request->queue == KVPI_QUEUE_RUNNING) {
        return is_active || (kvpi_sample_is_ready(sample) && !kvpi_life_is_ready(sched, request));
    }
    return !is_active || (sched->is_out && sample->slot != KVPI_NONE);
}

static int check_request(struct sched_audit *audit, const struct kvpi_request *request)
{
    const kvp_sched *sched = audit->sched;
    const uint32_t place = kvpi_sched_place(sched, request);
    uint32_t n = 0;
    uint32_t n_ended = 0;
    uint32_t known = 0;
    uint32_t n_pages = pages_of(&request->pages);
    for (struct kvpi_sample *s = kvpi_sched_first(sched, request); s;
         s = kvpi_sched_next(sched, s)) {
        if (s->request != place || s->idx != n || n++ > request->n_samples ||
            !fits_queue(sched, request, s)) {
            return sched_fail(audit, place, "Q3 a request's samples are not its own");
        }
        n_ended += s->stage == KVPI_STAGE_ENDED;
        n_pages += pages_of(&s->generated);
        if (known == 0 && s->stage != KVPI_STAGE_ENDED) {
            known = s->known;
        }
        if (s->stage != KVPI_STAGE_ENDED && s->known != known) {
            return sched_fail(audit, place, "Q3 live samples of a request are not equally long");
        }
        if (!check_sample(audit, request, s)) {
            return 0;
        }
    }
    if (n != request->n_samples || n - n_ended != request->n_live || request->n_live == 0) {
        return sched_fail(audit, place, "Q2 a request's samples are miscounted");
    }
    if (n_pages > request->n_pages) {
        return sched_fail(audit, place, "Q4 a request has more pages than it reserved");
    }
    audit->n_used_pages += pages_of(&request->pages);
    audit->n_pages += request->n_pages;
    audit->n_promised += request->promised;
    audit->n_promised_slots += request->promised_slots;
    audit->n_running += kvpi_life_holds(request) ? request->n_live : 0;
    audit->n_swapped += request->queue == KVPI_QUEUE_SWAPPED ? request->n_live : 0;
    audit->n_stored += request->queue == KVPI_QUEUE_STORED ? request->n_live : 0;
    return 1;
}

static int check_requests(struct sched_audit *audit)
{
    const kvp_sched *sched = audit->sched;
    for (uint32_t i = 0; i < sched->config.max_requests; i++) {
        const struct kvpi_request *request = &sched->requests[i];
        audit->n_by_queue[request->queue]++;
        if (request->queue != KVPI_QUEUE_UNUSED && !check_request(audit, request)) {
            return 0;
        }
    }
    for (uint32_t i = 0; i < KVPI_QUEUES; i++) {
        if (sched->queues[i].n != audit->n_by_queue[i] || !check_sched_queue(audit, i)) {
            return sched_fail(audit, i, "Q1 a request is not in the queue that it says");
        }
    }
    return 1;
}

static int check_sched_sums(struct sched_audit *audit)
{
    const kvp_sched *sched = audit->sched;
    const uint32_t n_paused = audit->n_by_queue[KVPI_QUEUE_HALTED] +
                              audit->n_by_queue[KVPI_QUEUE_STORED] +
                              audit->n_by_queue[KVPI_QUEUE_IDLE];
    const uint64_t n_here = sched->config.max_requests - audit->n_by_queue[KVPI_QUEUE_UNUSED];
    if (sched->n_running != audit->n_running || sched->promised_blocks != audit->n_promised ||
        sched->promised_slots != audit->n_promised_slots || sched->n_swapped != audit->n_swapped ||
        sched->n_stored != audit->n_stored || sched->n_paused != n_paused ||
        sched->n_running > sched->config.max_running ||
        sched->n_catching_up != audit->n_catching_up ||
        sched->n_free_samples + audit->n_samples != sched->config.max_samples) {
        return sched_fail(audit, 0, "Q2 a sum is off");
    }
    const kvp_sched_stats *counts = &sched->stats;
    const uint32_t n_loading = audit->n_by_queue[KVPI_QUEUE_LOADING];
    if (n_loading > sched->config.max_loading ||
        counts->held != counts->released + counts->expired + counts->dropped + n_loading) {
        return sched_fail(audit, 0, "Q2 holds are miscounted");
    }
    if (sched->stats.submitted != sched->stats.ended + sched->stats.aborted + n_here) {
        return sched_fail(audit, 0, "Q2 a request was lost, or ended twice");
    }
    if (sched->n_decoding != audit->n_decode && sched->n_dead == 0) {
        return sched_fail(audit, 0, "Q3 items that decode are miscounted");
    }
    if (sched->is_out && sched->n_dead == 0 && sched->n_drafts != audit->n_drafts) {
        return sched_fail(audit, 0, "Q2 drafts are miscounted");
    }
    if (sched->pages.n_reserved != audit->n_pages ||
        sched->pages.n_free + audit->n_used_pages != sched->pages.n_pages ||
        sched->pages.n_reserved > sched->pages.n_pages) {
        return sched_fail(audit, 0, "Q4 the pages do not add up");
    }
    return 1;
}

kvp_status kvp_sched_check(const kvp_sched *sched, kvp_violation *out_violation)
{
    if (sched == NULL) {
        return KVP_E_ARG;
    }
    struct sched_audit audit = {.sched = sched};
    (void)(check_requests(&audit) && check_prefill_list(&audit) && check_sched_sums(&audit));
    if (out_violation != NULL) {
        memset(out_violation, 0, sizeof(*out_violation));
        out_violation->detail = "";
        if (audit.failed != NULL) {
            memcpy(out_violation->invariant, audit.failed, 2);
            out_violation->detail = audit.failed + 3;
            out_violation->object = audit.object;
        }
    }
    return audit.failed == NULL ? KVP_OK : KVP_E_CORRUPT;
}
