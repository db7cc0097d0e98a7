/* sched_life: how requests move between queues, and samples between stages.
 *
 *            open                 all computed, first token sampled
 *     NONE ---------> PREFILL -----------------------------------------> DECODE
 *       ^              |   ^                                             |   ^
 *       |     leave    v   |  join                               leave   v   |  join
 *       |             HELD-+                                           HELD--+
 *       |   close (preempted)                                           |
 *       +------------------------------------------------- from any ----+---> ENDED
 *
 * A HELD sample that is ready joins when all of its request are. Leaving while a step is out is put
 * off for samples that are part of it: their request is in its new queue at once, they follow when
 * the step is finished (kvp_sched_finish looks at n_strayed).
 */
#include "sched/sched_state.h"

static const kvp_seq no_seq;

int kvpi_life_holds(const struct kvpi_request *request)
{
    return request->queue == KVPI_QUEUE_RUNNING || request->queue == KVPI_QUEUE_JOINING ||
           request->queue == KVPI_QUEUE_HALTED;
}

int kvpi_life_is_swapped(const struct kvpi_request *request)
{
    return request->queue == KVPI_QUEUE_SWAPPED || request->queue == KVPI_QUEUE_STORED;
}

/* What counts the live samples of a request that has sequences; NULL: it has none. */
static uint32_t *places_of_samples(kvp_sched *sched, const struct kvpi_request *request)
{
    switch (request->queue) {
    case KVPI_QUEUE_RUNNING:
    case KVPI_QUEUE_JOINING:
    case KVPI_QUEUE_HALTED: return &sched->n_running;
    case KVPI_QUEUE_SWAPPED: return &sched->n_swapped;
    case KVPI_QUEUE_STORED: return &sched->n_stored;
    default: return NULL;
    }
}

void kvpi_life_move(kvp_sched *sched, struct kvpi_request *request, uint32_t queue)
{
    uint32_t *places = places_of_samples(sched, request);
    if (places != NULL) {
        *places -= request->n_live;
    }
    if (request->queue < KVPI_QUEUES) {
        kvpi_queue_remove(&sched->queues[request->queue], kvpi_sched_place(sched, request));
    }
    request->queue = queue;
    if (queue < KVPI_QUEUES) {
        kvpi_queue_insert(&sched->queues[queue], kvpi_sched_place(sched, request));
    }
    places = places_of_samples(sched, request);
    if (places != NULL) {
        *places += request->n_live;
    }
}

/* ---------------------------------------------------------------- the list of prompts under way */

static uint32_t place_of_item(const kvp_sched *sched, const struct kvpi_sample *sample)
{
    return (uint32_t)(sample - sched->samples);
}

static uint32_t is_catching_up(const kvp_sched *sched, const struct kvpi_sample *sample)
{
    return sample->core < kvpi_sample_goal(sched, &sched->requests[sample->request], sample);
}

void kvpi_life_list(kvp_sched *sched, struct kvpi_sample *sample)
{
    sample->stage = KVPI_STAGE_PREFILL;
    sample->list_before = sched->prefill_last;
    sample->list_after = KVPI_NONE;
    if (sched->prefill_last == KVPI_NONE) {
        sched->prefill_first = place_of_item(sched, sample);
    } else {
        sched->samples[sched->prefill_last].list_after = place_of_item(sched, sample);
    }
    sched->prefill_last = place_of_item(sched, sample);
    sched->n_catching_up += is_catching_up(sched, sample);
}

void kvpi_life_unlist(kvp_sched *sched, struct kvpi_sample *sample)
{
    if (sample->list_before == KVPI_NONE) {
        sched->prefill_first = sample->list_after;
    } else {
        sched->samples[sample->list_before].list_after = sample->list_after;
    }
    if (sample->list_after == KVPI_NONE) {
        sched->prefill_last = sample->list_before;
    } else {
        sched->samples[sample->list_after].list_before = sample->list_before;
    }
    sched->n_catching_up -= is_catching_up(sched, sample);
    sample->stage = KVPI_STAGE_HELD;
}

/* ------------------------------------------------------------------- the items that decode */

/* Write the item of a sample that decodes, at its slot. */
void kvpi_life_fill_item(kvp_sched *sched, struct kvpi_sample *sample)
{
    const uint32_t slot = sample->slot;
    const struct kvpi_request *request = &sched->requests[sample->request];
    sched->items[slot] = (kvp_step_seq){
        .seq = sample->seq,
        .request = kvpi_sched_handle(sched, request),
        .sample = sample->idx,
        .begin = sample->known - 1,
        .n_tokens = 1,
        .n_sampled = 1,
    };
    sched->item_samples[slot] = place_of_item(sched, sample);
    sched->item_seqs[slot] = sample->seq;
    sched->item_ends[slot] = sample->known;
    sched->tokens[slot] = *kvpi_pages_last(&sched->pages, &sample->generated);
}

/* The last item that decodes takes the place of the one that goes. */
void kvpi_life_drop_item(kvp_sched *sched, uint32_t slot)
{
    const uint32_t last = --sched->n_decoding;
    if (sched->item_samples[slot] != KVPI_NONE) {
        sched->samples[sched->item_samples[slot]].slot = KVPI_NONE;
    }
    if (slot == last) {
        return;
    }
    sched->items[slot] = sched->items[last];
    sched->item_samples[slot] = sched->item_samples[last];
    sched->item_seqs[slot] = sched->item_seqs[last];
    sched->item_ends[slot] = sched->item_ends[last];
    sched->item_drafts[slot] = sched->item_drafts[last];
    sched->tokens[slot] = sched->tokens[last];
    sched->samples[sched->item_samples[slot]].slot = slot;
}

/* ------------------------------------------------------------------------------ join and leave */

void kvpi_life_hold(kvp_sched *sched, struct kvpi_sample *sample)
{
    if (sample->stage == KVPI_STAGE_PREFILL) {
        kvpi_life_unlist(sched, sample);
    } else if (sample->stage == KVPI_STAGE_DECODE) {
        kvpi_life_drop_item(sched, sample->slot);
        sample->core = sample->computed = sample->known - 1;
        sample->stage = KVPI_STAGE_HELD;
    }
}

/* Are all live samples ready to decode, or decoding? */
int kvpi_life_is_ready(const kvp_sched *sched, const struct kvpi_request *request)
{
    for (const struct kvpi_sample *s = kvpi_sched_first(sched, request); s;
         s = kvpi_sched_next(sched, s)) {
        const int is_ready = s->stage == KVPI_STAGE_ENDED || s->stage == KVPI_STAGE_DECODE ||
                             (s->stage == KVPI_STAGE_HELD && kvpi_sample_is_ready(s));
        if (!is_ready) {
            return 0;
        }
    }
    return 1;
}

static void begin_to_decode(kvp_sched *sched, struct kvpi_sample *sample)
{
    sample->stage = KVPI_STAGE_DECODE;
    sample->slot = sched->n_decoding++;
    sched->item_drafts[sample->slot] = 0;
    kvpi_life_fill_item(sched, sample);
}

/* Samples of a RUNNING request that are HELD: to where they can go on. */
void kvpi_life_join_samples(kvp_sched *sched, struct kvpi_request *request)
{
    const int all_ready = kvpi_life_is_ready(sched, request);
    for (struct kvpi_sample *s = kvpi_sched_first(sched, request); s;
         s = kvpi_sched_next(sched, s)) {
        if (s->stage == KVPI_STAGE_HELD && all_ready) {
            begin_to_decode(sched, s);
        } else if (s->stage == KVPI_STAGE_HELD && !kvpi_sample_is_ready(s)) {
            kvpi_life_list(sched, s);
        }
    }
}

void kvpi_life_leave(kvp_sched *sched, struct kvpi_request *request, uint32_t queue)
{
    kvpi_life_move(sched, request, queue);
    for (struct kvpi_sample *s = kvpi_sched_first(sched, request); s;
         s = kvpi_sched_next(sched, s)) {
        if (sched->is_out && s->slot != KVPI_NONE) {
            sched->n_strayed++;
        } else {
            kvpi_life_hold(sched, s);
        }
    }
}

/* ------------------------------------------------------------------------------ release and end */

/* Close a sample's sequence, and take the sample from wherever it is. If it comes back, the cache's
 * policy must not count it twice. */
static void close_sample(kvp_sched *sched, struct kvpi_sample *sample, int comes_back)
{
    if (sample->stage == KVPI_STAGE_PREFILL) {
        kvpi_life_unlist(sched, sample);
    }
    if (sample->slot != KVPI_NONE) {
        if (sched->is_out) {
            sched->item_samples[sample->slot] = KVPI_NONE;
            sched->n_dead++;
            sample->slot = KVPI_NONE;
        } else {
            kvpi_life_drop_item(sched, sample->slot);
        }
    }
    if (sample->seq.bits != 0) {
        if (comes_back && sched->learns) {
            (void)kvp_seq_truncate(sched->cache, sample->seq, 0, NULL);
        }
        (void)kvp_seq_close(sched->cache, sample->seq, NULL);
    }
    sample->seq = no_seq;
    sample->core = sample->computed = 0;
}

void kvpi_life_unpromise_blocks(kvp_sched *sched, struct kvpi_request *request)
{
    sched->promised_blocks -= request->promised;
    request->promised = 0;
}

void kvpi_life_unpromise(kvp_sched *sched, struct kvpi_request *request)
{
    kvpi_life_unpromise_blocks(sched, request);
    kvpi_slots_promise(sched, request, 0);
}

/* Close every sequence; the request moves to `queue`. Sequences are closed last sample first, so
 * that the first one's blocks are evicted last. */
void kvpi_life_release(kvp_sched *sched, struct kvpi_request *request, uint32_t queue)
{
    uint32_t n = 0;
    for (struct kvpi_sample *s = kvpi_sched_first(sched, request); s;
         s = kvpi_sched_next(sched, s)) {
        if (kvpi_sample_has_seq(s)) {
            sched->more_ids[n++] = place_of_item(sched, s);
        }
    }
    while (n > 0) {
        struct kvpi_sample *sample = &sched->samples[sched->more_ids[--n]];
        close_sample(sched, sample, queue != KVPI_QUEUE_UNUSED);
        sample->stage = KVPI_STAGE_NONE;
    }
    kvpi_life_unpromise(sched, request);
    request->n_unforked = 0;
    request->is_forked = 0;
    kvpi_life_move(sched, request, queue);
}

/* The sample's item, if any, is not touched when the sample has lost its slot before. */
void kvpi_life_end_sample(kvp_sched *sched, struct kvpi_sample *sample, uint32_t reason)
{
    struct kvpi_request *request = &sched->requests[sample->request];
    close_sample(sched, sample, 0);
    sample->stage = KVPI_STAGE_ENDED;
    request->n_live--;
    sched->n_running--;
    sched->ended[sched->n_ended++] = (kvp_ended){
        .request = kvpi_sched_handle(sched, request),
        .tag = request->prompt.tag,
        .sample = sample->idx,
        .reason = reason,
        .status = KVP_OK,
        .new_tokens = sample->generated.n_tokens,
        .is_last = request->n_live == 0,
    };
    if (request->n_live == 0) {
        sched->stats.ended++;
        kvpi_life_forget(sched, request);
    }
}

/* The cache will not have it. */
void kvpi_life_refuse(kvp_sched *sched, struct kvpi_request *request, kvp_status status,
                      kvp_ended *out_ended)
{
    *out_ended = (kvp_ended){
        .request = kvpi_sched_handle(sched, request),
        .tag = request->prompt.tag,
        .sample = KVP_ALL_SAMPLES,
        .reason = KVP_END_REFUSED,
        .status = status,
        .is_last = 1,
    };
    sched->stats.ended++;
    kvpi_life_forget(sched, request);
}

/* Free everything that a request has. */
void kvpi_life_forget(kvp_sched *sched, struct kvpi_request *request)
{
    const int is_paused = request->queue == KVPI_QUEUE_HALTED ||
                          request->queue == KVPI_QUEUE_STORED || request->queue == KVPI_QUEUE_IDLE;
    sched->n_paused -= is_paused ? 1u : 0u;
    sched->stats.dropped += request->queue == KVPI_QUEUE_LOADING;
    kvpi_life_release(sched, request, KVPI_QUEUE_UNUSED);
    struct kvpi_sample *sample = kvpi_sched_first(sched, request);
    while (sample != NULL) {
        struct kvpi_sample *next = kvpi_sched_next(sched, sample);
        kvpi_pages_free(&sched->pages, &sample->generated);
        sample->stage = KVPI_STAGE_NONE;
        sample->next = sched->free_sample;
        sched->free_sample = place_of_item(sched, sample);
        sched->n_free_samples++;
        sample = next;
    }
    kvpi_pages_free(&sched->pages, &request->pages);
    sched->pages.n_reserved -= request->n_pages;
    request->first_sample = KVPI_NONE;
    if (++request->generation < KVPI_LAST_GENERATION) {
        request->next_free = sched->free_request;
        sched->free_request = kvpi_sched_place(sched, request);
    }
}
