/* group: the samples of a request. Forking them from the trunk, and beam search's reorder. */
#include "sched/sched_state.h"

kvp_status kvpi_group_fork(kvp_sched *sched, struct kvpi_request *request,
                           const struct kvpi_sample *trunk)
{
    const uint32_t prompt = request->prompt.n_tokens;
    for (struct kvpi_sample *s = kvpi_sched_first(sched, request); s;
         s = kvpi_sched_next(sched, s)) {
        if (s->stage != KVPI_STAGE_NONE) {
            continue;
        }
        const kvp_status status =
            kvp_seq_fork(sched->cache, trunk->seq, prompt, request->prompt.tag, &s->seq);
        if (status != KVP_OK) {
            return status;
        }
        s->core = s->computed = prompt;
        s->stage = KVPI_STAGE_HELD;
    }
    kvpi_life_unpromise_blocks(sched, request);
    if (!sched->renews_slots) {
        kvpi_slots_promise(sched, request, 0);
    }
    request->n_unforked = 0;
    request->is_forked = 1;
    sched->n_catching_up +=
        trunk->stage == KVPI_STAGE_PREFILL && trunk->core < kvpi_sample_goal(sched, request, trunk);
    return KVP_OK;
}

/* ------------------------------------------------------------------------------------- reorder
 *
 * Between a finish and the next step a sample's sequence ends right before its newest token, so a
 * survivor is the parent's sequence, or a fork of it. The first child of a parent takes the parent
 * over; the others get the samples of parents that were not named:
 *
 *     parents  [1 1 3 0]    before  a b c d        (a: sample 0 ...)
 *     first    [b . d a]    dropped c
 *     after    [b c d a]    c closed, and forked from b
 */

static int has_ended(const struct kvpi_sample *sample)
{
    return sample->stage == KVPI_STAGE_ENDED;
}

/* places[i]: of sample i. */
static uint32_t list_places(const kvp_sched *sched, const struct kvpi_request *request,
                            uint32_t *places)
{
    uint32_t n = 0;
    for (const struct kvpi_sample *s = kvpi_sched_first(sched, request); s;
         s = kvpi_sched_next(sched, s)) {
        places[n++] = (uint32_t)(s - sched->samples);
    }
    return n;
}

static kvp_status check_reorder(const kvp_sched *sched, const struct kvpi_request *request,
                                const uint32_t *parents, const int32_t *tokens)
{
    const uint32_t *before = sched->few_ids;
    for (uint32_t i = 0; i < request->n_samples; i++) {
        if (!has_ended(&sched->samples[before[i]]) &&
            (parents[i] >= request->n_samples || (tokens != NULL && tokens[i] < 0) ||
             has_ended(&sched->samples[before[parents[i]]]))) {
            return KVP_E_ARG;
        }
    }
    const int is_on_time = !sched->is_out && kvpi_life_holds(request) &&
                           kvpi_life_is_ready(sched, request) &&
                           kvpi_open_trunk_of(sched, request)->known > request->prompt.n_tokens;
    return is_on_time ? KVP_OK : KVP_E_STATE;
}

/* before[i]: place of sample i; after[i]: KVPI_NONE or the parent's, for its first child. Samples
 * that have ended are their own. */
static void choose_first_children(kvp_sched *sched, const struct kvpi_request *request,
                                  const uint32_t *parents)
{
    const uint32_t *before = sched->few_ids;
    uint32_t *after = sched->more_ids;
    uint32_t *is_taken = sched->few_counts;
    for (uint32_t i = 0; i < request->n_samples; i++) {
        is_taken[i] = 0;
    }
    for (uint32_t i = 0; i < request->n_samples; i++) {
        const uint32_t parent = has_ended(&sched->samples[before[i]]) ? i : parents[i];
        after[i] = is_taken[parent] ? KVPI_NONE : before[parent];
        is_taken[parent] = 1;
    }
}

static void copy_generated(kvp_sched *sched, const struct kvpi_sample *from, struct kvpi_sample *to)
{
    struct kvpi_cursor cursor = kvpi_cursor_start();
    const uint32_t n = from->generated.n_tokens;
    kvpi_pages_free(&sched->pages, &to->generated);
    kvpi_pages_read(&sched->pages, &from->generated, &cursor, 0, n, sched->text);
    kvpi_pages_append_many(&sched->pages, &to->generated, sched->text, n);
}

/* Closing first leaves a sequence free for the fork, which then lacks nothing. */
static kvp_status turn_into_fork(kvp_sched *sched, const struct kvpi_sample *parent,
                                 struct kvpi_sample *child)
{
    const uint64_t tag = sched->requests[child->request].prompt.tag;
    (void)kvp_seq_close(sched->cache, child->seq, NULL);
    child->seq = (kvp_seq){0};
    const kvp_status status = kvp_seq_fork(sched->cache, parent->seq, KVP_END, tag, &child->seq);
    copy_generated(sched, parent, child);
    child->known = parent->known;
    if (child->stage == KVPI_STAGE_HELD) {
        child->core = child->computed = child->known - 1;
    }
    return status;
}

static kvp_status fork_others(kvp_sched *sched, uint32_t n, const uint32_t *parents)
{
    const uint32_t *before = sched->few_ids;
    uint32_t *after = sched->more_ids;
    kvp_status status = KVP_OK;
    uint32_t dropped = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (after[i] != KVPI_NONE) {
            continue;
        }
        while (sched->few_counts[dropped]) {
            dropped++;
        }
        after[i] = before[dropped++];
        const kvp_status forked =
            turn_into_fork(sched, &sched->samples[before[parents[i]]], &sched->samples[after[i]]);
        status = status == KVP_OK ? forked : status;
    }
    return status;
}

/* Chain the samples in their new order, with their newest tokens. `newest` were read before. */
static void number_anew(kvp_sched *sched, struct kvpi_request *request, const int32_t *newest)
{
    uint32_t next = KVPI_NONE;
    for (uint32_t i = request->n_samples; i-- > 0;) {
        struct kvpi_sample *sample = &sched->samples[sched->more_ids[i]];
        sample->idx = i;
        sample->next = next;
        next = sched->more_ids[i];
        if (!has_ended(sample)) {
            *kvpi_pages_last(&sched->pages, &sample->generated) = newest[i];
        }
        if (sample->stage == KVPI_STAGE_DECODE) {
            kvpi_life_fill_item(sched, sample);
        }
    }
    request->first_sample = next;
}

kvp_status kvp_sched_reorder(kvp_sched *sched, kvp_request handle, const uint32_t *parents,
                             const int32_t *tokens)
{
    if (sched == NULL || parents == NULL) {
        return KVP_E_ARG;
    }
    struct kvpi_request *request = kvpi_sched_find(sched, handle);
    if (request == NULL) {
        return KVP_E_HANDLE;
    }
    const uint32_t n = list_places(sched, request, sched->few_ids);
    kvp_status status = check_reorder(sched, request, parents, tokens);
    if (status != KVP_OK) {
        return status;
    }
    for (uint32_t i = 0; i < n; i++) {
        const struct kvpi_sample *sample = &sched->samples[sched->few_ids[i]];
        if (!has_ended(sample)) {
            sched->newest[i] =
                tokens != NULL ? tokens[i] : *kvpi_pages_last(&sched->pages, &sample->generated);
        }
    }
    choose_first_children(sched, request, parents);
    status = fork_others(sched, n, parents);
    number_anew(sched, request, sched->newest);
    kvpi_slots_promise_shared(sched, request);
    return status;
}
