/* reclaim: free blocks for the next step, while the step before it is out (drop.h).
 *
 * The count looks at lengths only: hits of those that come in, and what ends or is preempted, are
 * known when the next step is made. config.free_target limits what a count too high may cost.
 */
#include <kvpager/drop.h>

#include "sched/state.h"

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

/* Blocks for those that go on: of each whose last block is full. */
static uint64_t growth(const kvp_sched *sched)
{
    uint64_t n = 0;
    for (uint32_t k = 0; k < sched->n_items; k++) {
        n += sched->item_ends[k] % sched->block_tokens == 0 && goes_on(sched, k);
    }
    return n * sched->n_groups;
}

/* Blocks for the tokens of a request's first live sample. */
static uint64_t blocks_of(const kvp_sched *sched, const struct kvpi_request *request)
{
    const struct kvpi_sample *sample = kvpi_sched_first(sched, request);
    while (sample->stage == KVPI_STAGE_ENDED) {
        sample = kvpi_sched_next(sched, sample);
    }
    return (uint64_t)kvpi_sched_ceil(sample->known, sched->block_tokens) * sched->n_groups;
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
        const uint64_t n = blocks_of(sched, request);
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
static uint32_t count_need(const kvp_sched *sched)
{
    kvp_stats stats;
    (void)kvp_cache_stats(sched->cache, &stats);
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
            : kvp_cache_reclaim(sched->cache, count_need(sched), &n_reclaimed);
    if (status == KVP_OK && out_n_reclaimed != NULL) {
        *out_n_reclaimed = n_reclaimed;
    }
    return status;
}
