/* sched_loading: requests that are held while their prefix is loaded from a store.
 *
 *               hold (once)                 release, or tick at its deadline
 *     WAITING ---------------> LOADING ------------------------------------> WAITING
 *
 * A held request is in a queue of its own, so admission never sees it: no try, no pass. Its rank
 * stays, and with it its place when it comes back. `is_examined` says that the caller has decided;
 * a preemption by recompute clears it (victims.c), because the request's KV may have gone to a
 * store meanwhile.
 *
 * No time is kept but deadlines: whether one is over depends on nothing but the number that
 * kvp_sched_tick is given, so the same calls give the same steps.
 */
#include "sched/sched_state.h"
#include "base/sized.h"

static int is_loadable(const kvp_sched *sched, const struct kvpi_request *request)
{
    return sched->config.max_loading > 0 && request->queue == KVPI_QUEUE_WAITING &&
           !request->is_examined && (request->flags & KVP_SUBMIT_NO_LOAD) == 0;
}

kvp_status kvp_sched_loadable(const kvp_sched *sched, uint32_t n_first, kvp_request *out_requests,
                              uint32_t *out_n)
{
    if (sched == NULL || out_n == NULL || (out_requests == NULL && n_first > 0)) {
        return KVP_E_ARG;
    }
    const struct kvpi_queue *waiting = &sched->queues[KVPI_QUEUE_WAITING];
    const uint32_t n_seen = sched->config.max_loading > 0 ? n_first : 0;
    const struct kvpi_rank *before = NULL;
    *out_n = 0;
    for (uint32_t i = 0; i < n_seen; i++) {
        const uint32_t place = kvpi_queue_after(waiting, before);
        if (place == KVPI_QUEUE_NONE) {
            break;
        }
        const struct kvpi_request *request = &sched->requests[place];
        if (is_loadable(sched, request)) {
            out_requests[(*out_n)++] = kvpi_sched_handle(sched, request);
        }
        before = &request->rank;
    }
    return KVP_OK;
}

/* Gives the request of a handle when the caller may decide on it now. */
static kvp_status find_loadable(kvp_sched *sched, kvp_request handle,
                                struct kvpi_request **out_request)
{
    if (sched == NULL) {
        return KVP_E_ARG;
    }
    *out_request = kvpi_sched_find(sched, handle);
    if (*out_request == NULL) {
        return KVP_E_HANDLE;
    }
    return is_loadable(sched, *out_request) ? KVP_OK : KVP_E_STATE;
}

kvp_status kvp_sched_hold(kvp_sched *sched, kvp_request handle, uint64_t deadline)
{
    struct kvpi_request *request;
    const kvp_status status = find_loadable(sched, handle, &request);
    if (status != KVP_OK) {
        return status;
    }
    if (sched->queues[KVPI_QUEUE_LOADING].n == sched->config.max_loading) {
        return KVP_E_AGAIN;
    }
    const int has_own = request->load_deadline != 0 && request->load_deadline < deadline;
    request->hold_deadline = has_own ? request->load_deadline : deadline;
    request->is_examined = 1;
    kvpi_life_move(sched, request, KVPI_QUEUE_LOADING);
    sched->stats.held++;
    return KVP_OK;
}

kvp_status kvp_sched_skip_load(kvp_sched *sched, kvp_request handle)
{
    struct kvpi_request *request;
    const kvp_status status = find_loadable(sched, handle, &request);
    if (status == KVP_OK) {
        request->is_examined = 1;
        sched->stats.skipped++;
    }
    return status;
}

kvp_status kvp_sched_release(kvp_sched *sched, kvp_request handle)
{
    if (sched == NULL) {
        return KVP_E_ARG;
    }
    struct kvpi_request *request = kvpi_sched_find(sched, handle);
    if (request == NULL) {
        return KVP_E_HANDLE;
    }
    if (request->queue != KVPI_QUEUE_LOADING) {
        return KVP_E_STATE;
    }
    kvpi_life_move(sched, request, KVPI_QUEUE_WAITING);
    sched->stats.released++;
    return KVP_OK;
}

/* ---------------------------------------------------------------------------------------- tick */

kvp_status kvp_sched_tick(kvp_sched *sched, uint64_t now, kvp_sched_expired *out_expired)
{
    if (sched == NULL) {
        return KVP_E_ARG;
    }
    const struct kvpi_queue *loading = &sched->queues[KVPI_QUEUE_LOADING];
    kvp_sched_expired expired = {.requests = sched->expired, .next_deadline = UINT64_MAX};
    uint32_t place = kvpi_queue_after(loading, NULL);
    while (place != KVPI_QUEUE_NONE) {
        struct kvpi_request *request = &sched->requests[place];
        if (request->hold_deadline <= now) {
            sched->expired[expired.n_requests++] = kvpi_sched_handle(sched, request);
            kvpi_life_move(sched, request, KVPI_QUEUE_WAITING);
        } else if (request->hold_deadline < expired.next_deadline) {
            expired.next_deadline = request->hold_deadline;
        }
        place = kvpi_queue_after(loading, &request->rank);
    }
    expired.n_loading = loading->n;
    sched->stats.expired += expired.n_requests;
    if (out_expired != NULL) {
        *out_expired = expired;
    }
    return KVP_OK;
}
