/* sched_extend: room in the cache for what running sequences compute in this step.
 *
 * Nearly every step is one call for all that decode. When blocks are short, or a sequence catches
 * up (forked after a preemption, its generated tokens are not in the core yet), requests are served
 * one by one in order of rank, each all or nothing with all its samples. The room is then made
 * without values, which are filled in at once: the tokens of all samples need not lie in one piece.
 * Victims rank after the request that needs the blocks, so what was served is never undone.
 *
 * Drafts (kvp_sched_config.draft_tokens) are tokens without values behind the newest one, from here
 * to the end of the step. So nothing that the caller does meanwhile (a fork) makes the cache move
 * what the step writes there. They are the last that blocks are given to: if there are none for all
 * drafts of a step, it has no drafts. So no request gives way, or is left out, for them.
 *
 * And blocks that the next step will take, free before it is made (kvp_sched_reclaim). That count
 * looks at lengths only: hits of those that come in, and what ends or is preempted, are known when
 * the step is made. config.free_target limits what a count too high may cost.
 */
#include <kvpager/drop.h>
#include <kvpager/states.h>

#include "sched/sched_state.h"

#include <assert.h>

/* -------------------------------------------------------------------------------------- drafts */

static uint32_t most_drafts(const kvp_sched *sched, uint32_t slot)
{
    const struct kvpi_sample *sample = &sched->samples[sched->item_samples[slot]];
    return kvpi_sched_min(sched->config.draft_tokens, sample->limit - sample->known - 1);
}

void kvpi_extend_clear_drafts(kvp_sched *sched)
{
    for (uint32_t k = 0; sched->n_drafts > 0 && k < sched->n_decoding; k++) {
        sched->item_drafts[k] = 0;
    }
    sched->n_drafts = 0;
}

/* Room for all that decode, and their drafts. Gives 0, with nothing changed, when there is none, or
 * when no request has drafts. */
static int extend_with_drafts(kvp_sched *sched)
{
    kvp_batch batch = {.struct_size = sizeof(batch),
                       .n_seqs = sched->n_decoding,
                       .flags = sched->config.state_rings ? KVP_BATCH_RING_NEW : 0,
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
    batch.n_seqs += kvpi_slots_list_needed(sched);
    if (kvp_seq_extend_many(sched->cache, &batch) != KVP_OK) {
        kvpi_extend_clear_drafts(sched);
        return 0;
    }
    batch.flags = 0;
    batch.n_tokens = NULL;
    batch.tokens = sched->tokens;
    batch.n_seqs = sched->n_decoding;
    const kvp_status status = kvp_seq_fill_many(sched->cache, &batch);
    assert(status == KVP_OK); /* one token of each has no value */
    (void)status;
    return 1;
}

/* ------------------------------------------------------------------------ all, and one by one */

/* Those that decode, by a token each; and prompts under way that need a slot of state, by none. */
static kvp_status extend_all(kvp_sched *sched)
{
    const uint32_t n_slots = kvpi_slots_list_needed(sched);
    const kvp_batch batch = {
        .struct_size = sizeof(batch),
        .n_seqs = sched->n_decoding + n_slots,
        .seqs = sched->item_seqs,
        .n_tokens = n_slots > 0 ? sched->few_counts : NULL,
        .tokens = sched->tokens,
    };
    for (uint32_t k = 0; n_slots > 0 && k < sched->n_decoding; k++) {
        sched->few_counts[k] = 1;
    }
    return batch.n_seqs == 0 ? KVP_OK : kvp_seq_extend_many(sched->cache, &batch);
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
        if (missing > 0 || kvpi_slots_is_needed(sched, s)) {
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
        if (missing == 0) {
            continue;
        }
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
    if (kvp_cache_shortage_get(sched->cache, &shortage) != KVP_OK) {
        return 0;
    }
    sched->lacks_slots = shortage.tier == KVP_STATE_SLOTS;
    return !kvpi_victims_are_pointless(sched, shortage.missing_blocks) &&
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

/* Of what it needs now, the swap-in has reserved the tokens that decode; no request gives way for
 * the rest. */
void kvpi_extend_swapped_in(kvp_sched *sched, struct kvpi_request *request)
{
    extend_request(sched, request, 0, 0);
}

void kvpi_extend_running(kvp_sched *sched)
{
    const struct kvpi_queue *running = &sched->queues[KVPI_QUEUE_RUNNING];
    sched->n_drafts = 0;
    if (sched->n_catching_up == 0 && (extend_with_drafts(sched) || extend_all(sched) == KVP_OK)) {
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

/* ------------------------------------------------------------------------------ ahead of need */

/* Does the sequence of this item go on by one token in the next step, as far as is known? */
static int goes_on(const kvp_sched *sched, uint32_t slot)
{
    if (sched->item_samples[slot] == KVPI_NONE ||
        (slot >= sched->n_decoding && sched->items[slot].n_sampled == 0)) {
        return 0;
    }
    const struct kvpi_sample *sample = &sched->samples[sched->item_samples[slot]];
    return sched->requests[sample->request].queue == KVPI_QUEUE_RUNNING &&
           sample->known + 1 < sample->limit;
}

/* Groups whose last block of n tokens is full. */
static uint32_t count_full(const kvp_sched *sched, uint32_t n)
{
    uint32_t count = 0;
    for (uint32_t g = 0; g < sched->n_groups; g++) {
        count += n % sched->block_tokens[g] == 0;
    }
    return count;
}

/* Blocks for those that go on: of each one's groups whose last block is full. */
static uint64_t growth(const kvp_sched *sched)
{
    uint64_t n = 0;
    for (uint32_t k = 0; k < sched->n_items; k++) {
        const uint32_t n_full = count_full(sched, sched->item_ends[k]);
        n += n_full > 0 && goes_on(sched, k) ? n_full : 0;
    }
    return n;
}

/* Blocks for the tokens of a request's first live sample. */
static uint64_t blocks_for(const kvp_sched *sched, const struct kvpi_request *request)
{
    const struct kvpi_sample *sample = kvpi_sched_first(sched, request);
    while (sample->stage == KVPI_STAGE_ENDED) {
        sample = kvpi_sched_next(sched, sample);
    }
    return kvpi_sched_blocks(sched, sample->known);
}

/* What is left for those that come in. */
struct room {
    uint64_t need;
    uint64_t most; /* of `need` */
    uint64_t available;
    uint32_t places;
};

/* Requests of a queue come in, in rank, until one does not fit. Gives 0 then. */
static int come_in(const kvp_sched *sched, uint32_t queue, struct room *room)
{
    const struct kvpi_queue *q = &sched->queues[queue];
    uint32_t place = kvpi_queue_after(q, NULL);
    while (place != KVPI_QUEUE_NONE && room->need < room->most) {
        const struct kvpi_request *request = &sched->requests[place];
        const uint64_t n = blocks_for(sched, request);
        if (request->n_live > room->places || room->need + n > room->available) {
            return 0;
        }
        room->places -= request->n_live;
        room->need += n;
        place = kvpi_queue_after(q, &request->rank);
    }
    return 1;
}

/* Free blocks that the next step is expected to take. */
static uint32_t expected_need(const kvp_sched *sched)
{
    kvp_stats stats;
    (void)kvp_cache_stats_get(sched->cache, &stats);
    const uint64_t kept = (uint64_t)sched->watermark_blocks + sched->promised_blocks;
    const uint64_t there = stats.free_blocks + stats.cached_blocks;
    struct room room = {
        .need = growth(sched),
        .most = sched->config.free_target,
        .available = there > kept ? there - kept : 0,
        .places = sched->config.max_running - sched->n_running,
    };
    if (come_in(sched, KVPI_QUEUE_SWAPPED, &room)) {
        (void)come_in(sched, KVPI_QUEUE_WAITING, &room);
    }
    return (uint32_t)(room.need < room.most ? room.need : room.most);
}

kvp_status kvp_sched_reclaim(kvp_sched *sched, uint32_t *out_n_reclaimed)
{
    uint32_t n_reclaimed = 0;
    if (sched == NULL) {
        return KVP_E_ARG;
    }
    if (!sched->is_out) {
        return KVP_E_STATE;
    }
    const kvp_status status =
        sched->config.free_target == 0
            ? KVP_OK
            : kvp_cache_reclaim(sched->cache, expected_need(sched), &n_reclaimed);
    if (status == KVP_OK && out_n_reclaimed != NULL) {
        *out_n_reclaimed = n_reclaimed;
    }
    return status;
}
