/* step: a step from its making to its end.
 *
 * kvp_sched_step tells the order of a step; the files it calls have the parts. Finishing commits
 * everything in one call, then gives out the sampled tokens: first to prompts (whose items lie
 * behind those that decode), then to those that decode, and only then moves samples in the arrays.
 */
#include "sched/sched_state.h"
#include "base/sized.h"

#include <assert.h>
#include <string.h>

static void begin_report(kvp_sched *sched)
{
    const uint64_t number = sched->report.number + 1;
    memset(&sched->report, 0, sizeof(sched->report));
    sched->report.number = number;
    sched->n_tried = 0;
    sched->is_blocked = 0;
}

static void join_all(kvp_sched *sched)
{
    const struct kvpi_queue *joining = &sched->queues[KVPI_QUEUE_JOINING];
    while (joining->n > 0) {
        struct kvpi_request *request = &sched->requests[kvpi_queue_after(joining, NULL)];
        kvpi_life_move(sched, request, KVPI_QUEUE_RUNNING);
        kvpi_life_join_samples(sched, request);
    }
}

static void end_report(kvp_sched *sched)
{
    kvp_step *report = &sched->report;
    report->n_seqs = sched->n_items;
    report->n_tokens = sched->n_tokens;
    report->n_decoding = sched->n_decoding;
    report->n_sampled += sched->n_decoding;
    report->n_drafts = sched->n_drafts;
    report->drafts = sched->item_drafts;
    report->seqs = sched->items;
    report->tokens = sched->tokens;
    report->admitted = sched->admitted;
    report->preempted = sched->preempted;
    report->swapped_out = sched->swapped_out;
    report->swapped_in = sched->swapped_in;
    report->ended = sched->refused;
    report->n_loading = sched->queues[KVPI_QUEUE_LOADING].n;
    sched->is_out = sched->n_items > 0;
    sched->n_dead = 0;
    sched->n_strayed = 0;
    sched->stats.steps++;
    sched->stats.scheduled_tokens += report->n_tokens;
    sched->stats.draft_tokens += report->n_drafts;
    for (uint32_t i = 0; i < KVP_WAIT_REASONS; i++) {
        sched->stats.waited[i] += report->waited[i];
        sched->stats.waited_swapped[i] += report->waited_swapped[i];
    }
}

kvp_status kvp_sched_step(kvp_sched *sched, kvp_step *out_step)
{
    if (sched == NULL || out_step == NULL) {
        return KVP_E_ARG;
    }
    if (sched->is_out) {
        return KVP_E_STATE;
    }
    begin_report(sched);
    join_all(sched);
    kvpi_admit_urgent(sched);
    kvpi_victims_swap_ahead(sched);
    kvpi_extend_running(sched);
    const int is_tight =
        sched->report.n_preempted + sched->report.n_swapped_out + sched->report.n_left_out > 0;
    if (is_tight) {
        sched->report.waited_swapped[KVP_WAIT_PREEMPTION] = sched->queues[KVPI_QUEUE_SWAPPED].n;
    } else {
        kvpi_admit_swapped(sched);
    }
    sched->n_items = sched->n_decoding;
    sched->n_tokens = sched->n_decoding;
    uint32_t budget = sched->config.step_tokens - sched->n_decoding - sched->n_drafts;
    kvpi_admit_chunks(sched, &budget);
    if (is_tight || sched->report.n_left_out > 0) {
        sched->report.waited[KVP_WAIT_PREEMPTION] = sched->queues[KVPI_QUEUE_WAITING].n;
    } else {
        kvpi_admit_waiting(sched, budget);
    }
    end_report(sched);
    *out_step = sched->report;
    return KVP_OK;
}

/* -------------------------------------------------------------------------------------- finish */

/* What the caller reports. */
struct results {
    const int32_t *tokens;  /* NULL: there are none */
    const uint32_t *counts; /* [n_decoding] tokens of each; NULL: one each */
    const uint8_t *ended;   /* NULL: none has */
};

/* How far the results were looked at: items, and their tokens. */
struct looked {
    uint32_t items;
    uint32_t tokens;
};

static int tokens_are_valid(const kvp_sched *sched, const int32_t *tokens, struct looked from)
{
    uint32_t at = from.tokens;
    for (uint32_t k = from.items; k < sched->n_items; k++) {
        const uint32_t end = at + sched->items[k].n_sampled;
        for (; at < end; at++) {
            if (tokens[at] < 0 && sched->item_samples[k] != KVPI_NONE) {
                return 0;
            }
        }
    }
    return 1;
}

/* May item k have sampled so many tokens? Equally many for all samples of a request. */
static int count_is_valid(const kvp_sched *sched, const uint32_t *counts, uint32_t k)
{
    if (counts[k] == 0 || counts[k] - 1 > sched->item_drafts[k]) {
        return 0;
    }
    if (sched->item_samples[k] == KVPI_NONE) {
        return 1;
    }
    const struct kvpi_sample *sample = &sched->samples[sched->item_samples[k]];
    const struct kvpi_request *request = &sched->requests[sample->request];
    return counts[k] == counts[kvpi_open_trunk_of(sched, request)->slot];
}

/* Of those that decode, with counts. */
static int drafts_are_valid(const kvp_sched *sched, const struct results *results,
                            struct looked *looked)
{
    for (uint32_t k = 0; k < sched->n_decoding; k++) {
        if (!count_is_valid(sched, results->counts, k)) {
            return 0;
        }
        for (uint32_t i = 0; i < results->counts[k]; i++) {
            if (results->tokens[looked->tokens++] < 0 && sched->item_samples[k] != KVPI_NONE) {
                return 0;
            }
        }
    }
    looked->items = sched->n_decoding;
    return 1;
}

static int are_valid(const kvp_sched *sched, const struct results *results)
{
    struct looked looked = {0, 0};
    return sched->report.n_sampled == 0 ||
           (results->tokens != NULL &&
            (results->counts == NULL || drafts_are_valid(sched, results, &looked)) &&
            tokens_are_valid(sched, results->tokens, looked));
}

/* Forks that are due need sequences of the cache. */
static int have_seqs_for_forks(const kvp_sched *sched)
{
    uint64_t due = 0;
    for (uint32_t k = sched->n_decoding; k < sched->n_items; k++) {
        if (sched->item_samples[k] != KVPI_NONE) {
            const struct kvpi_request *request =
                &sched->requests[sched->samples[sched->item_samples[k]].request];
            due += sched->item_ends[k] >= request->prompt.n_tokens ? request->n_unforked : 0;
        }
    }
    kvp_stats stats;
    return due == 0 || (kvp_cache_stats_get(sched->cache, &stats) == KVP_OK &&
                        stats.open_seqs + due <= sched->max_seqs);
}

/* Drafts of an item that were accepted. */
static uint32_t accepted_of(const kvp_sched *sched, const struct results *results, uint32_t k)
{
    return results->counts != NULL && k < sched->n_decoding ? results->counts[k] - 1 : 0;
}

/* The items whose request is still there, and how many drafts of each were accepted, which go to
 * accepted_drafts. */
static uint32_t gather_accepted(kvp_sched *sched, const struct results *results)
{
    const int32_t *tokens = results->tokens;
    uint32_t n = 0;
    uint32_t n_tokens = 0;
    for (uint32_t k = 0; k < sched->n_items; k++) {
        const uint32_t accepted = accepted_of(sched, results, k);
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
static kvp_status commit_drafts(kvp_sched *sched, const struct results *results)
{
    const uint32_t n = gather_accepted(sched, results);
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

static kvp_status commit_items(kvp_sched *sched, const struct results *results)
{
    if (sched->n_drafts > 0) {
        return commit_drafts(sched, results);
    }
    if (sched->n_dead == 0) {
        return kvp_seq_commit_many(sched->cache, sched->item_seqs, sched->item_ends,
                                   sched->n_items);
    }
    uint32_t n = 0;
    for (uint32_t k = 0; k < sched->n_items; k++) {
        if (sched->item_samples[k] != KVPI_NONE) {
            sched->few_seqs[n] = sched->item_seqs[k];
            sched->few_counts[n++] = sched->item_ends[k];
        }
    }
    return kvp_seq_commit_many(sched->cache, sched->few_seqs, sched->few_counts, n);
}

/* What was sampled for one item: pointers to its first token and to whether it is the last. */
struct sampled {
    const int32_t *tokens;
    const uint8_t *ended; /* may be NULL */
};

static struct sampled sampled_at(const int32_t *tokens, const uint8_t *ended, uint32_t at)
{
    return (struct sampled){tokens == NULL ? NULL : tokens + at, ended == NULL ? NULL : ended + at};
}

/* Append a token; gives 1 when the sample ends with it, and then why. */
static int append(kvp_sched *sched, struct kvpi_sample *sample, const struct sampled *sampled,
                  uint32_t *out_reason)
{
    assert(sampled->tokens != NULL); /* only where no item samples, see kvp_sched_finish */
    kvpi_pages_append(&sched->pages, &sample->generated, *sampled->tokens);
    sample->known++;
    if (sampled->ended != NULL && *sampled->ended) {
        *out_reason = KVP_END_STOPPED;
        return 1;
    }
    *out_reason = KVP_END_LENGTH;
    return sample->known == sample->limit;
}

/* A sample that has no item gets a token. */
static void give_token(kvp_sched *sched, struct kvpi_sample *sample, const struct sampled *sampled)
{
    uint32_t reason;
    if (sample->stage == KVPI_STAGE_PREFILL) {
        kvpi_life_unlist(sched, sample);
    }
    sample->core = sample->computed = sample->known;
    if (append(sched, sample, sampled, &reason)) {
        kvpi_life_end_sample(sched, sample, reason);
    }
}

/* All samples get their first token, in order. */
static void give_first(kvp_sched *sched, const struct kvpi_request *request, struct sampled sampled)
{
    struct kvpi_sample *sample = kvpi_sched_first(sched, request);
    while (sample != NULL) {
        struct kvpi_sample *next = kvpi_sched_next(sched, sample);
        give_token(sched, sample, &sampled);
        sampled.tokens++;
        sampled.ended += sampled.ended != NULL;
        sample = next;
    }
}

/* A request whose samples have a state of their own each, from this step, needs no promise. */
static void settle_slots(kvp_sched *sched, const struct kvpi_sample *sample, int is_settled)
{
    if (sched->renews_slots && sched->promised_slots > 0 && is_settled) {
        kvpi_slots_promise(sched, &sched->requests[sample->request], 0);
    }
}

/* A chunk is computed. */
static void finish_chunk(kvp_sched *sched, uint32_t slot, const struct sampled *sampled)
{
    struct kvpi_sample *sample = &sched->samples[sched->item_samples[slot]];
    struct kvpi_request *request = &sched->requests[sample->request];
    const int is_new = sample->known == request->prompt.n_tokens;
    const int is_forking =
        request->n_unforked > 0 && sched->item_ends[slot] >= request->prompt.n_tokens;
    sample->slot = KVPI_NONE;
    sample->computed = sched->item_ends[slot];
    settle_slots(sched, sample, request->n_live == 1);
    const kvp_status status = is_forking ? kvpi_group_fork(sched, request, sample) : KVP_OK;
    if (status != KVP_OK) {
        kvpi_life_refuse(sched, request, status, &sched->ended[sched->n_ended++]);
        return;
    }
    if (sched->items[slot].n_sampled > 0 && is_new) {
        give_first(sched, request, *sampled);
    } else if (sched->items[slot].n_sampled > 0) {
        give_token(sched, sample, sampled);
    } else if (request->queue != KVPI_QUEUE_RUNNING || kvpi_sample_is_ready(sample)) {
        kvpi_life_hold(sched, sample);
    }
}

/* Gives how many requests are noted in few_ids: those whose samples may go on otherwise now. */
static uint32_t finish_chunks(kvp_sched *sched, const int32_t *tokens, const uint8_t *ended)
{
    uint32_t n = 0;
    uint32_t at = sched->n_decoding;
    for (uint32_t k = sched->n_decoding; k < sched->n_items; k++) {
        const struct sampled sampled = sampled_at(tokens, ended, at);
        at += sched->items[k].n_sampled;
        if (sched->item_samples[k] != KVPI_NONE) {
            sched->few_ids[n++] = sched->samples[sched->item_samples[k]].request;
            finish_chunk(sched, k, &sampled);
        }
    }
    return n;
}

/* A sample at `slot` decoded one token. Gives 1 when the item is not needed any more. */
static int finish_decode(kvp_sched *sched, uint32_t slot, const struct sampled *sampled)
{
    if (sched->item_samples[slot] == KVPI_NONE) {
        return 1;
    }
    struct kvpi_sample *sample = &sched->samples[sched->item_samples[slot]];
    uint32_t reason;
    settle_slots(sched, sample, 1);
    if (append(sched, sample, sampled, &reason)) {
        sample->slot = KVPI_NONE;
        sched->item_samples[slot] = KVPI_NONE;
        kvpi_life_end_sample(sched, sample, reason);
        return 1;
    }
    if (sched->n_strayed > 0 && sched->requests[sample->request].queue != KVPI_QUEUE_RUNNING) {
        sample->slot = KVPI_NONE;
        sched->item_samples[slot] = KVPI_NONE;
        sample->core = sample->computed = sample->known - 1;
        sample->stage = KVPI_STAGE_HELD;
        return 1;
    }
    sched->items[slot].begin++;
    sched->item_ends[slot]++;
    sched->tokens[slot] = *sampled->tokens;
    return 0;
}

static void finish_decodes(kvp_sched *sched, const int32_t *tokens, const uint8_t *ended)
{
    uint32_t *drops = sched->more_ids;
    uint32_t n_drops = 0;
    for (uint32_t k = 0; k < sched->n_decoding; k++) {
        const struct sampled sampled = sampled_at(tokens, ended, k);
        if (finish_decode(sched, k, &sampled)) {
            drops[n_drops++] = k;
        }
    }
    kvpi_extend_clear_drafts(sched);
    while (n_drops > 0) {
        kvpi_life_drop_item(sched, drops[--n_drops]);
    }
}

static void join_noted(kvp_sched *sched, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        struct kvpi_request *request = &sched->requests[sched->few_ids[i]];
        if (request->queue == KVPI_QUEUE_RUNNING) {
            kvpi_life_join_samples(sched, request);
        }
    }
}

/* Accepted drafts become tokens of their samples. What was sampled after them goes to `newest`, one
 * for each that decodes. Gives the tokens as if these stood before those of chunks. */
static const int32_t *take_accepted(kvp_sched *sched, const struct results *results)
{
    const int32_t *tokens = results->tokens;
    for (uint32_t k = 0; k < sched->n_decoding; k++) {
        const uint32_t n = accepted_of(sched, results, k);
        if (n > 0 && sched->item_samples[k] != KVPI_NONE) {
            struct kvpi_sample *sample = &sched->samples[sched->item_samples[k]];
            kvpi_pages_append_many(&sched->pages, &sample->generated, tokens, n);
            sample->known += n;
            sched->items[k].begin += n;
            sched->item_ends[k] += n;
        }
        sched->newest[k] = tokens[n];
        sched->stats.sampled_tokens += n;
        tokens += n + 1;
    }
    return tokens - sched->n_decoding;
}

static kvp_status sched_finish(kvp_sched *sched, const struct results *results,
                               kvp_step_end *out_end)
{
    if (sched == NULL) {
        return KVP_E_ARG;
    }
    if (!sched->is_out) {
        return KVP_E_STATE;
    }
    if (!are_valid(sched, results)) {
        return KVP_E_ARG;
    }
    if (!have_seqs_for_forks(sched)) {
        return KVP_E_NO_SEQS;
    }
    const kvp_status status = commit_items(sched, results);
    if (status != KVP_OK) {
        return status;
    }
    kvpi_slots_keep(sched);
    sched->n_ended = 0;
    const int has_drafts = sched->n_drafts > 0;
    const int32_t *tokens = has_drafts ? take_accepted(sched, results) : results->tokens;
    const uint32_t n_noted = finish_chunks(sched, tokens, results->ended);
    finish_decodes(sched, has_drafts ? sched->newest : tokens, results->ended);
    sched->is_out = 0;
    join_noted(sched, n_noted);
    sched->stats.sampled_tokens += sched->report.n_sampled;
    if (out_end != NULL) {
        *out_end = (kvp_step_end){sched->n_ended, sched->ended};
    }
    return KVP_OK;
}

kvp_status kvp_sched_finish(kvp_sched *sched, const int32_t *tokens, const uint8_t *ended,
                            kvp_step_end *out_end)
{
    const struct results results = {.tokens = tokens, .ended = ended};
    return sched_finish(sched, &results, out_end);
}

kvp_status kvp_sched_finish_drafts(kvp_sched *sched, const int32_t *tokens, const uint32_t *counts,
                                   const uint8_t *ended, kvp_step_end *out_end)
{
    const struct results results = {.tokens = tokens, .counts = counts, .ended = ended};
    return sched_finish(sched, &results, out_end);
}

/* ---------------------------------------------------------------------------------------- fail */

/* Does the cache have less of it computed than it should, or lack its state? */
static int has_lost_kv(const kvp_sched *sched, const struct kvpi_request *request)
{
    for (const struct kvpi_sample *s = kvpi_sched_first(sched, request); s;
         s = kvpi_sched_next(sched, s)) {
        kvp_seq_info info;
        if (kvpi_sample_has_seq(s) &&
            (kvp_seq_info_get(sched->cache, s->seq, &info) != KVP_OK ||
             info.computed_tokens < kvpi_sample_computed(s) || kvpi_slots_is_lost(sched, s->seq))) {
            return 1;
        }
    }
    return 0;
}

/* By recompute: what was to be written by the step belongs to no request, wherever it lies. */
static void preempt_items(kvp_sched *sched)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < sched->n_items; k++) {
        if (sched->item_samples[k] != KVPI_NONE) {
            sched->few_ids[n++] = sched->samples[sched->item_samples[k]].request;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        struct kvpi_request *request = &sched->requests[sched->few_ids[i]];
        if (kvpi_life_holds(request)) {
            kvpi_victims_recompute(sched, request);
        }
    }
}

kvp_status kvp_sched_fail(kvp_sched *sched)
{
    if (sched == NULL) {
        return KVP_E_ARG;
    }
    if (!sched->is_out) {
        return KVP_E_STATE;
    }
    preempt_items(sched);
    for (uint32_t k = sched->n_decoding; k-- > 0;) {
        kvpi_life_drop_item(sched, k); /* every one of them is dead now */
    }
    sched->is_out = 0;
    for (uint32_t i = 0; i < sched->config.max_requests; i++) {
        struct kvpi_request *request = &sched->requests[i];
        if (request->queue != KVPI_QUEUE_UNUSED && has_lost_kv(sched, request)) {
            kvpi_victims_recompute(sched, request);
        }
    }
    return KVP_OK;
}
