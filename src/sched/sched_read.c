/* sched_read: what callers may ask of a scheduler, and the tokens of a sample. Changes nothing. */
#include "sched/sched_state.h"
#include "base/sized.h"

#include <string.h>

static uint32_t state_of(const struct kvpi_request *request)
{
    switch (request->queue) {
    case KVPI_QUEUE_WAITING: return KVP_REQUEST_WAITING;
    case KVPI_QUEUE_LOADING: return KVP_REQUEST_LOADING;
    case KVPI_QUEUE_SWAPPED: return KVP_REQUEST_SWAPPED;
    case KVPI_QUEUE_HALTED:
    case KVPI_QUEUE_STORED:
    case KVPI_QUEUE_IDLE: return KVP_REQUEST_PAUSED;
    default: return KVP_REQUEST_RUNNING;
    }
}

kvp_status kvp_request_info_get(const kvp_sched *sched, kvp_request handle,
                                kvp_request_info *out_info)
{
    if (sched == NULL || out_info == NULL) {
        return KVP_E_ARG;
    }
    const struct kvpi_request *request = kvpi_sched_find(sched, handle);
    if (request == NULL) {
        return KVP_E_HANDLE;
    }
    const int is_held = request->queue == KVPI_QUEUE_LOADING;
    *out_info = (kvp_request_info){
        .state = state_of(request),
        .holds_blocks = kvpi_life_holds(request) ? 1u : 0u,
        .is_swapped = kvpi_life_is_swapped(request) ? 1u : 0u,
        .priority = request->rank.priority,
        .n_samples = request->n_samples,
        .n_live = request->n_live,
        .prompt_tokens = request->prompt.n_tokens,
        .max_tokens = request->limit,
        .passed_over = request->passed,
        .preemptions = request->preemptions,
        .swaps = request->swaps,
        .flags = request->flags,
        .arrival = request->rank.arrival,
        .tag = request->prompt.tag,
        .ns = request->ns,
        .load_deadline = is_held ? request->hold_deadline : request->load_deadline,
    };
    return KVP_OK;
}

static kvp_status find_sample(const kvp_sched *sched, kvp_request handle, uint32_t idx,
                              const struct kvpi_sample **out_sample)
{
    const struct kvpi_request *request = kvpi_sched_find(sched, handle);
    if (request == NULL) {
        return KVP_E_HANDLE;
    }
    const struct kvpi_sample *sample = kvpi_sched_first(sched, request);
    while (sample != NULL && sample->idx != idx) {
        sample = kvpi_sched_next(sched, sample);
    }
    *out_sample = sample;
    return sample != NULL ? KVP_OK : KVP_E_ARG;
}

kvp_status kvp_request_sample(const kvp_sched *sched, kvp_request request, uint32_t sample,
                              kvp_sample_info *out_info)
{
    const struct kvpi_sample *found;
    if (sched == NULL || out_info == NULL) {
        return KVP_E_ARG;
    }
    const kvp_status status = find_sample(sched, request, sample, &found);
    if (status != KVP_OK) {
        return status;
    }
    *out_info = (kvp_sample_info){
        .seq = found->seq,
        .has_ended = found->stage == KVPI_STAGE_ENDED,
        .n_tokens = found->known,
        .computed_tokens = kvpi_sample_computed(found),
    };
    return KVP_OK;
}

/* Position p is the prompt's p-th token, the caller's or in pages, or the (p - prompt)-th that the
 * sample generated. */
void kvpi_read_text(const kvp_sched *sched, const struct kvpi_sample *sample,
                    struct kvpi_cursor *cursor, kvp_range range, int32_t *out_tokens)
{
    const struct kvpi_request *request = &sched->requests[sample->request];
    const uint32_t prompt = request->prompt.n_tokens;
    const uint32_t end = kvpi_sched_min(range.end, prompt);
    if (range.begin < end) {
        const uint32_t n = end - range.begin;
        if (request->prompt.tokens != NULL) {
            memcpy(out_tokens, request->prompt.tokens + range.begin, n * sizeof(*out_tokens));
        } else {
            kvpi_pages_read(&sched->pages, &request->pages, cursor, range.begin, n, out_tokens);
        }
        out_tokens += n;
    }
    const uint32_t begin = kvpi_sched_max(range.begin, prompt);
    if (begin < range.end) {
        struct kvpi_cursor start = kvpi_cursor_start();
        kvpi_pages_read(&sched->pages, &sample->generated, &start, begin - prompt,
                        range.end - begin, out_tokens);
    }
}

kvp_status kvp_request_tokens(const kvp_sched *sched, kvp_request request, uint32_t sample,
                              kvp_range range, int32_t *out_tokens)
{
    const struct kvpi_sample *found;
    if (sched == NULL || out_tokens == NULL) {
        return KVP_E_ARG;
    }
    const kvp_status status = find_sample(sched, request, sample, &found);
    if (status != KVP_OK) {
        return status;
    }
    if (range.begin > range.end || range.end > found->known) {
        return KVP_E_ARG;
    }
    struct kvpi_cursor cursor = kvpi_cursor_start();
    kvpi_read_text(sched, found, &cursor, range, out_tokens);
    return KVP_OK;
}

kvp_status kvp_sched_stats_get(const kvp_sched *sched, kvp_sched_stats *out_stats)
{
    if (sched == NULL || out_stats == NULL) {
        return KVP_E_ARG;
    }
    const struct kvpi_queue *queues = sched->queues;
    *out_stats = sched->stats;
    out_stats->waiting_requests = queues[KVPI_QUEUE_WAITING].n;
    out_stats->running_requests = queues[KVPI_QUEUE_RUNNING].n + queues[KVPI_QUEUE_JOINING].n;
    out_stats->swapped_requests = queues[KVPI_QUEUE_SWAPPED].n;
    out_stats->loading_requests = queues[KVPI_QUEUE_LOADING].n;
    out_stats->paused_requests = sched->n_paused;
    out_stats->running_seqs = sched->n_running;
    out_stats->swapped_seqs = (uint64_t)sched->n_swapped + sched->n_stored;
    out_stats->reserved_pages = sched->pages.n_reserved;
    out_stats->total_pages = sched->pages.n_pages;
    out_stats->promised_blocks = sched->promised_blocks;
    out_stats->promised_slots = sched->promised_slots;
    return KVP_OK;
}
