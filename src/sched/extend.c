/* extend: room in the cache for what running sequences compute in this step.
 *
 * Nearly every step is one call for all that decode. When blocks are short, or a sequence catches
 * up (forked after a preemption, its generated tokens are not in the core yet), requests are served
 * one by one in order of rank, each all or nothing with all its samples. The room is then made
 * without values, which are filled in at once: the tokens of all samples need not lie in one piece.
 * Victims rank after the request that needs the blocks, so what was served is never undone.
 */
#include "sched/state.h"

static kvp_status extend_all(kvp_sched *sched)
{
    const kvp_batch batch = {
        .struct_size = sizeof(batch),
        .n_seqs = sched->n_decoding,
        .seqs = sched->item_seqs,
        .tokens = sched->tokens,
    };
    return sched->n_decoding == 0 ? KVP_OK : kvp_seq_extend_many(sched->cache, &batch);
}

/* Tokens that a sample needs room for. */
static uint32_t missing_tokens(const kvp_sched *sched, const struct kvpi_request *request,
                               const struct kvpi_sample *sample)
{
    switch (sample->stage) {
    case KVPI_STAGE_DECODE: return 1;
    case KVPI_STAGE_PREFILL: return kvpi_sample_goal(sched, request, sample) - sample->core;
    default: return 0;
    }
}

static uint32_t gather_running(kvp_sched *sched, const struct kvpi_request *request)
{
    uint32_t n = 0;
    for (struct kvpi_sample *s = kvpi_sched_first(sched, request); s;
         s = kvpi_sched_next(sched, s)) {
        const uint32_t missing = missing_tokens(sched, request, s);
        if (missing > 0) {
            sched->few_ids[n] = (uint32_t)(s - sched->samples);
            sched->few_seqs[n] = s->seq;
            sched->few_counts[n++] = missing;
        }
    }
    return n;
}

static kvp_status fill_items(kvp_sched *sched, const struct kvpi_request *request, uint32_t n)
{
    kvp_status status = KVP_OK;
    for (uint32_t i = 0; i < n && status == KVP_OK; i++) {
        struct kvpi_sample *sample = &sched->samples[sched->few_ids[i]];
        const uint32_t missing = sched->few_counts[i];
        const int is_prefill = sample->stage == KVPI_STAGE_PREFILL;
        const uint32_t end = is_prefill ? kvpi_sample_goal(sched, request, sample) : sample->known;
        const kvp_range range = {end - missing, end};
        struct kvpi_cursor cursor = kvpi_cursor_start();
        kvpi_read_text(sched, sample, &cursor, range, sched->text);
        status = kvp_seq_fill(sched->cache, sample->seq, sched->text, missing);
        if (is_prefill) {
            sample->core = end;
            sched->n_catching_up--;
        }
    }
    return status;
}

static int is_left_out(kvp_status status)
{
    return status == KVP_E_NO_BLOCKS || status == KVP_E_PLAN_FULL || status == KVP_E_IN_FLIGHT;
}

/* Are there victims for what the extend lacked? */
static int make_room(kvp_sched *sched, const struct kvpi_request *request, int is_first)
{
    kvp_shortage shortage;
    return kvp_cache_shortage(sched->cache, &shortage) == KVP_OK &&
           !kvpi_victims_are_pointless(sched, shortage.missing_blocks) &&
           kvpi_victims_take(sched, request, is_first);
}

static void extend_request(kvp_sched *sched, struct kvpi_request *request, int takes_victims,
                           int is_first)
{
    const uint32_t n = gather_running(sched, request);
    const kvp_batch batch = {
        .struct_size = sizeof(batch),
        .n_seqs = n,
        .seqs = sched->few_seqs,
        .n_tokens = sched->few_counts,
    };
    if (n == 0) {
        return;
    }
    kvp_status status = kvp_seq_extend_many(sched->cache, &batch);
    while (status == KVP_E_NO_BLOCKS && takes_victims && make_room(sched, request, is_first)) {
        status = kvp_seq_extend_many(sched->cache, &batch);
    }
    if (status == KVP_OK) {
        status = fill_items(sched, request, n);
    }
    if (is_left_out(status)) {
        sched->report.n_left_out++;
        sched->stats.left_out++;
        kvpi_life_leave(sched, request, KVPI_QUEUE_JOINING);
    } else if (status != KVP_OK) {
        kvpi_life_refuse(sched, request, status, &sched->refused[sched->report.n_ended++]);
    }
}

/* Of what it needs now, the swap-in has reserved the tokens that decode; nobody gives way for the
 * rest. */
void kvpi_extend_swapped_in(kvp_sched *sched, struct kvpi_request *request)
{
    extend_request(sched, request, 0, 0);
}

void kvpi_extend_running(kvp_sched *sched)
{
    const struct kvpi_queue *running = &sched->queues[KVPI_QUEUE_RUNNING];
    if (sched->n_catching_up == 0 && extend_all(sched) == KVP_OK) {
        return;
    }
    int is_first = 1;
    uint32_t place = kvpi_queue_after(running, NULL);
    while (place != KVPI_QUEUE_NONE) {
        struct kvpi_request *request = &sched->requests[place];
        extend_request(sched, request, 1, is_first);
        is_first = 0;
        place = kvpi_queue_after(running, &request->rank);
    }
}
