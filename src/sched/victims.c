/* victims: whose blocks are taken when there are none, and by which means.
 *
 * Paused requests first, then the last in rank; never one before the request that needs the blocks,
 * and, unless by force, never one that would release nothing. A block is released with a request
 * when every row that refers to it is a row of that request. Samples of a request share blocks only
 * at the same place of their rows: a fork's row begins as its parent's does.
 *
 * Released while steps are out, blocks are parked, and so are slots of state. They will come back,
 * so victims are taken only for what parked ones do not make up for.
 */
#include "sched/sched_state.h"

#include <assert.h>

struct row {
    const int32_t *blocks;
    uint32_t n;
};

static struct row row_of(const kvp_sched *sched, const struct kvpi_sample *sample, uint32_t group)
{
    struct row row = {NULL, 0};
    if (sample->seq.bits == 0 ||
        kvp_seq_row(sched->cache, sample->seq, group, &row.blocks, &row.n) != KVP_OK) {
        row.n = 0;
    }
    return row;
}

static uint32_t count_victim_holders(const kvp_sched *sched, const struct kvpi_request *request,
                                     uint32_t group, uint32_t idx, int32_t block)
{
    uint32_t n = 0;
    for (struct kvpi_sample *s = kvpi_sched_first(sched, request); s;
         s = kvpi_sched_next(sched, s)) {
        const struct row row = row_of(sched, s, group);
        n += idx < row.n && row.blocks[idx] == block;
    }
    return n;
}

/* A null entry, dropped by a window, is no block. */
static int is_released(const kvp_sched *sched, const struct kvpi_request *request, uint32_t group,
                       uint32_t idx, int32_t block)
{
    kvp_block_info info;
    if (kvp_block_info_get(sched->cache, group, KVP_DEVICE, block, &info) != KVP_OK) {
        return 0;
    }
    return info.ref_count == 1 ||
           (request->n_live > 1 && info.ref_count <= request->n_live &&
            count_victim_holders(sched, request, group, idx, block) == info.ref_count);
}

/* Almost always the first look, at a row's last block, decides. */
static int releases_something(const kvp_sched *sched, const struct kvpi_request *request)
{
    for (struct kvpi_sample *s = kvpi_sched_first(sched, request); s;
         s = kvpi_sched_next(sched, s)) {
        for (uint32_t g = 0; g < sched->n_groups; g++) {
            const struct row row = row_of(sched, s, g);
            for (uint32_t idx = row.n; idx-- > 0;) {
                if (is_released(sched, request, g, idx, row.blocks[idx])) {
                    return 1;
                }
            }
        }
    }
    return 0;
}

/* ------------------------------------------------------------------------------------- means */

void kvpi_victims_recompute(kvp_sched *sched, struct kvpi_request *victim)
{
    const int is_paused = victim->queue == KVPI_QUEUE_HALTED || victim->queue == KVPI_QUEUE_STORED;
    for (struct kvpi_sample *s = kvpi_sched_first(sched, victim); s;
         s = kvpi_sched_next(sched, s)) {
        sched->stats.lost_tokens += kvpi_sample_has_seq(s) ? kvpi_sample_computed(s) : 0;
    }
    sched->stats.preemptions++;
    sched->stats.recomputed++;
    sched->preempted[sched->report.n_preempted++] = kvpi_sched_handle(sched, victim);
    kvpi_sched_count(&victim->preemptions);
    victim->last_try.missing = 0;
    victim->is_examined = 0;
    kvpi_life_release(sched, victim, is_paused ? KVPI_QUEUE_IDLE : KVPI_QUEUE_WAITING);
}

static void preempt(kvp_sched *sched, struct kvpi_request *victim)
{
    const int is_swap =
        sched->config.preempt != KVP_PREEMPT_RECOMPUTE && kvpi_swap_is_possible(sched, victim) &&
        (sched->config.preempt == KVP_PREEMPT_SWAP || kvpi_swap_is_cheaper(sched, victim));
    if (!is_swap || !kvpi_swap_out(sched, victim)) {
        kvpi_victims_recompute(sched, victim);
    }
}

/* ------------------------------------------------------------------------------------- choice */

/* What a victim must be. */
enum { RELEASES_SOMETHING, ANY, CAN_COME_BACK /* from the host, and releases something */ };

static int suits(const kvp_sched *sched, const struct kvpi_request *request, int what)
{
    if (what == ANY) {
        return 1;
    }
    return (what != CAN_COME_BACK || kvpi_swap_is_possible(sched, request)) &&
           (sched->lacks_slots ? kvpi_slots_are_released(sched, request)
                               : releases_something(sched, request));
}

/* The last in rank of a queue, after `beneficiary`, that suits. */
static struct kvpi_request *last_of(kvp_sched *sched, uint32_t queue,
                                    const struct kvpi_request *beneficiary, int what)
{
    const struct kvpi_queue *q = &sched->queues[queue];
    uint32_t place = kvpi_queue_before(q, NULL);
    while (place != KVPI_QUEUE_NONE) {
        struct kvpi_request *request = &sched->requests[place];
        if (beneficiary != NULL && !kvpi_rank_before(&beneficiary->rank, &request->rank)) {
            return NULL;
        }
        if (suits(sched, request, what)) {
            return request;
        }
        place = kvpi_queue_before(q, &request->rank);
    }
    return NULL;
}

/* Preempt one request for `beneficiary`; for NULL, a waiting one, only paused ones. Gives 0 when
 * there is no victim. */
int kvpi_victims_take(kvp_sched *sched, const struct kvpi_request *beneficiary, int by_force)
{
    struct kvpi_request *victim = NULL;
    for (int what = RELEASES_SOMETHING; what <= (by_force ? ANY : 0) && victim == NULL; what++) {
        victim = last_of(sched, KVPI_QUEUE_HALTED, NULL, what);
        if (victim == NULL && beneficiary != NULL) {
            victim = last_of(sched, KVPI_QUEUE_RUNNING, beneficiary, what);
        }
    }
    if (victim == NULL) {
        return 0;
    }
    preempt(sched, victim);
    return 1;
}

static uint64_t parked_blocks(const kvp_sched *sched)
{
    kvp_stats stats;
    (void)kvp_cache_stats_get(sched->cache, &stats);
    return stats.parked_blocks;
}

/* Are the blocks, or slots, that are missing parked already? `missing` 0: not known. */
int kvpi_victims_are_pointless(const kvp_sched *sched, uint64_t missing)
{
    return missing > 0 &&
           (sched->lacks_slots ? kvpi_slots_parked(sched) : parked_blocks(sched)) >= missing;
}

/* Close the last in rank of the paused requests on the host, whose sequences are needed. */
int kvpi_victims_close_stored(kvp_sched *sched)
{
    const uint32_t place = kvpi_queue_before(&sched->queues[KVPI_QUEUE_STORED], NULL);
    if (place == KVPI_QUEUE_NONE) {
        return 0;
    }
    kvpi_victims_recompute(sched, &sched->requests[place]);
    return 1;
}

/* ---------------------------------------------------------------------------------- making way */

/* Who goes next for a request of this priority, whatever it releases. */
static struct kvpi_request *next_below(kvp_sched *sched, int32_t priority)
{
    struct kvpi_request *victim = last_of(sched, KVPI_QUEUE_HALTED, NULL, ANY);
    if (victim == NULL) {
        victim = last_of(sched, KVPI_QUEUE_RUNNING, NULL, ANY);
        victim = victim != NULL && victim->rank.priority > priority ? victim : NULL;
    }
    return victim;
}

/* Places of max_running that it could have of those. */
uint32_t kvpi_victims_count_below(kvp_sched *sched, int32_t priority)
{
    uint32_t n = 0;
    for (uint32_t queue = KVPI_QUEUE_RUNNING; queue <= KVPI_QUEUE_HALTED;
         queue += KVPI_QUEUE_HALTED - KVPI_QUEUE_RUNNING) {
        const struct kvpi_queue *q = &sched->queues[queue];
        for (uint32_t place = kvpi_queue_before(q, NULL); place != KVPI_QUEUE_NONE;
             place = kvpi_queue_before(q, &sched->requests[place].rank)) {
            const struct kvpi_request *request = &sched->requests[place];
            if (queue == KVPI_QUEUE_RUNNING && request->rank.priority <= priority) {
                break;
            }
            n += request->n_live;
        }
    }
    return n;
}

/* One of them goes. */
void kvpi_victims_make_way(kvp_sched *sched, int32_t priority, int is_closed)
{
    struct kvpi_request *victim = next_below(sched, priority);
    assert(victim != NULL); /* admit.c has counted them */
    if (is_closed) {
        kvpi_victims_recompute(sched, victim);
    } else {
        preempt(sched, victim);
    }
}

/* ------------------------------------------------------------------------------ ahead of need */

static int is_below_watermark(const kvp_sched *sched)
{
    kvp_stats stats;
    (void)kvp_cache_stats_get(sched->cache, &stats);
    return stats.free_blocks + stats.cached_blocks + stats.parked_blocks < stats.watermark_blocks;
}

/* Who would go next. */
static struct kvpi_request *next_ahead(kvp_sched *sched)
{
    struct kvpi_request *victim = last_of(sched, KVPI_QUEUE_HALTED, NULL, CAN_COME_BACK);
    const uint32_t first = kvpi_queue_after(&sched->queues[KVPI_QUEUE_RUNNING], NULL);
    if (victim == NULL && first != KVPI_QUEUE_NONE) {
        victim = last_of(sched, KVPI_QUEUE_RUNNING, &sched->requests[first], CAN_COME_BACK);
    }
    return victim;
}

void kvpi_victims_swap_ahead(kvp_sched *sched)
{
    if (!sched->config.swap_ahead) {
        return;
    }
    sched->lacks_slots = 0;
    while (is_below_watermark(sched)) {
        struct kvpi_request *victim = next_ahead(sched);
        if (victim == NULL || !kvpi_swap_out(sched, victim)) {
            return;
        }
        sched->stats.swapped_ahead++;
    }
}
