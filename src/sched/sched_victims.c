/* sched_victims: whose blocks are taken when there are none.
 *
 * Paused requests first, then the last in rank; never one before the request that needs the blocks,
 * and, unless by force, never one that would release nothing. A block is released with a request
 * when every row that refers to it is a row of that request. Samples of a request share blocks only
 * at the same place of their rows: a fork's row begins as its parent's does.
 */
#include "sched_state.h"

struct row {
    const int32_t *blocks;
    uint32_t n;
};

static struct row row_of(const kvp_sched *sched, const struct kvpi_sample *sample)
{
    struct row row = {NULL, 0};
    if (sample->seq.bits == 0 ||
        kvp_seq_row(sched->cache, sample->seq, 0, &row.blocks, &row.n) != KVP_OK) {
        row.n = 0;
    }
    return row;
}

static uint32_t count_holders(const kvp_sched *sched, const struct kvpi_request *request,
                              uint32_t idx, int32_t block)
{
    uint32_t n = 0;
    for (struct kvpi_sample *s = kvpi_sched_first(sched, request); s;
         s = kvpi_sched_next(sched, s)) {
        const struct row row = row_of(sched, s);
        n += idx < row.n && row.blocks[idx] == block;
    }
    return n;
}

static int is_released(const kvp_sched *sched, const struct kvpi_request *request, uint32_t idx,
                       int32_t block)
{
    kvp_block_info info;
    if (kvp_block_info_get(sched->cache, 0, block, &info) != KVP_OK) {
        return 0;
    }
    return info.ref_count == 1 || (request->n_live > 1 && info.ref_count <= request->n_live &&
                                   count_holders(sched, request, idx, block) == info.ref_count);
}

/* Almost always the first look, at a row's last block, decides. */
static int releases_something(const kvp_sched *sched, const struct kvpi_request *request)
{
    for (struct kvpi_sample *s = kvpi_sched_first(sched, request); s;
         s = kvpi_sched_next(sched, s)) {
        const struct row row = row_of(sched, s);
        for (uint32_t idx = row.n; idx-- > 0;) {
            if (is_released(sched, request, idx, row.blocks[idx])) {
                return 1;
            }
        }
    }
    return 0;
}

static uint32_t computed_tokens(const struct kvpi_sample *sample)
{
    return sample->stage == KVPI_STAGE_DECODE ? sample->known - 1 : sample->computed;
}

void kvpi_victims_preempt(kvp_sched *sched, struct kvpi_request *victim)
{
    for (struct kvpi_sample *s = kvpi_sched_first(sched, victim); s;
         s = kvpi_sched_next(sched, s)) {
        sched->stats.lost_tokens += computed_tokens(s);
    }
    sched->stats.preemptions++;
    sched->preempted[sched->report.n_preempted++] = kvpi_sched_handle(sched, victim);
    victim->preemptions++;
    const int is_paused = victim->queue == KVPI_QUEUE_HALTED;
    kvpi_life_release(sched, victim);
    kvpi_life_move(sched, victim, is_paused ? KVPI_QUEUE_IDLE : KVPI_QUEUE_WAITING);
}

/* The last in rank of a queue, after `beneficiary`; `any`: also one that releases nothing. */
static struct kvpi_request *last_of(kvp_sched *sched, uint32_t queue,
                                    const struct kvpi_request *beneficiary, int any)
{
    const struct kvpi_queue *q = &sched->queues[queue];
    uint32_t place = kvpi_queue_before(q, NULL);
    while (place != KVPI_QUEUE_NONE) {
        struct kvpi_request *request = &sched->requests[place];
        if (beneficiary != NULL && !kvpi_rank_before(&beneficiary->rank, &request->rank)) {
            return NULL;
        }
        if (any || releases_something(sched, request)) {
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
    for (int any = 0; any <= by_force && victim == NULL; any++) {
        victim = last_of(sched, KVPI_QUEUE_HALTED, NULL, any);
        if (victim == NULL && beneficiary != NULL) {
            victim = last_of(sched, KVPI_QUEUE_RUNNING, beneficiary, any);
        }
    }
    if (victim == NULL) {
        return 0;
    }
    kvpi_victims_preempt(sched, victim);
    return 1;
}
