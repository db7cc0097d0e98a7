/* admit: who comes in, and what a step does with the rest of its token budget. Swapped
 * requests, chunks of prompts under way, waiting requests; each in order of rank.
 *
 * Requests that come in are tried one after the other. Those that do not fit are noted in `tried`,
 * swapped and waiting ones together; each is passed over when another request comes in after it.
 */
#include "sched/sched_state.h"

#include <assert.h>

/* ------------------------------------------------------------------------------------ chunks */

/* Tokens to sample after a chunk that ends at `end`: all samples' first ones after a prompt, none
 * of a group whose generated tokens are computed again. */
static uint32_t sampled_after(const struct kvpi_request *request, const struct kvpi_sample *sample,
                              uint32_t end)
{
    if (end < sample->known) {
        return 0;
    }
    return sample->known == request->prompt.n_tokens ? request->n_live : 1;
}

static void add_chunk(kvp_sched *sched, struct kvpi_sample *sample, uint32_t *budget)
{
    struct kvpi_request *request = &sched->requests[sample->request];
    const uint32_t most = sched->config.chunk_tokens;
    const uint32_t gap = kvpi_sample_goal(sched, request, sample) - sample->computed;
    const uint32_t n =
        kvpi_slots_cut_chunk(sched, sample, kvpi_sched_min(gap, kvpi_sched_min(*budget, most)));
    const uint32_t slot = sched->n_items++;
    const kvp_range range = {sample->computed, sample->computed + n};
    kvpi_read_text(sched, sample, &request->cursor, range, sched->tokens + sched->n_tokens);
    sched->items[slot] = (kvp_step_seq){
        .seq = sample->seq,
        .request = kvpi_sched_handle(sched, request),
        .sample = sample->idx,
        .begin = range.begin,
        .n_tokens = n,
        .n_sampled = sampled_after(request, sample, range.end),
    };
    sched->item_samples[slot] = (uint32_t)(sample - sched->samples);
    sched->item_seqs[slot] = sample->seq;
    sched->item_ends[slot] = range.end;
    sample->slot = slot;
    sched->n_tokens += n;
    sched->report.n_sampled += sched->items[slot].n_sampled;
    *budget -= n;
}

void kvpi_admit_chunks(kvp_sched *sched, uint32_t *budget)
{
    uint32_t place = sched->prefill_first;
    while (place != KVPI_NONE && *budget > 0) {
        struct kvpi_sample *sample = &sched->samples[place];
        add_chunk(sched, sample, budget);
        place = sample->list_after;
    }
}

/* ----------------------------------------------------------------------- what was tried before
 *
 * A request that lacked blocks is not tried again while it cannot fit. Since it was tried, blocks
 * may have become available, and its need may have shrunk: by a block for each unit that was
 * sealed, adopted, found twice or loaded, and for each copy that took effect; by any number when a
 * sequence was opened, forked or swapped in. With windows each of the former may shrink it by any
 * number, too: a hit wants only what the windows keep, and one unit may be all that it lacked. With
 * recurrent state so may each of them, and each checkpoint. For each of its rows two more for the
 * block that the row ends in, whose source, or copy, may or may not be counted. But a hit that ends
 * inside a block, and lacks room for its source, is cut back to where all groups, or a state, can
 * go on: then a block that became available, or a unit that was sealed, may bring back any number.
 */

/* How many copies have taken effect for certain: those that were in plans when the newest step was
 * begun that is in effect. With no step out, all that are in plans. */
static uint64_t arrived_copies(kvp_sched *sched, const kvp_stats *stats)
{
    struct kvpi_arrivals *arrived = &sched->arrived;
    const uint64_t effective = stats->steps - stats->steps_out;
    for (int i = 0; i < 2 && effective >= arrived->step; i++) {
        arrived->copies = arrived->next;
        arrived->step = stats->steps;
        arrived->next = stats->copies - stats->pending_copies;
    }
    return arrived->copies;
}

static struct kvpi_try look(kvp_sched *sched)
{
    kvp_stats stats;
    kvp_state_stats states;
    (void)kvp_cache_stats_get(sched->cache, &stats);
    (void)kvp_cache_state_stats_get(sched->cache, &states);
    return (struct kvpi_try){
        .missing = sched->missing,
        .available = stats.free_blocks + stats.cached_blocks,
        .opened = stats.opens + stats.forks + stats.swap_ins,
        .sealed = stats.sealed_units + stats.adopted_blocks + stats.duplicate_blocks +
                  stats.loaded_blocks + states.made,
        .copied = arrived_copies(sched, &stats),
        .promised = sched->promised_blocks,
    };
}

/* A namespace that was closed meanwhile must be found out. */
static int is_namespace_open(const kvp_sched *sched, kvp_ns ns)
{
    const kvp_prompt nothing = {.struct_size = sizeof(nothing)};
    kvp_admission ignored;
    return kvp_cache_can_open(sched->cache, ns, &nothing, &ignored) == KVP_OK;
}

static int is_hopeless(kvp_sched *sched, const struct kvpi_request *request)
{
    const struct kvpi_try *then = &request->last_try;
    kvp_stats stats;
    if (then->missing == 0) {
        return 0;
    }
    (void)kvp_cache_stats_get(sched->cache, &stats);
    const struct kvpi_try now = look(sched);
    const uint64_t found = now.sealed - then->sealed + stats.copies - then->copied;
    if ((sched->has_windows || sched->usable_slots > 0) && found > 0) {
        return 0;
    }
    if (sched->ends_inside && (sched->n_groups > 1 || sched->usable_slots > 0) &&
        (now.available > then->available || found > 0)) {
        return 0;
    }
    const uint64_t gained =
        (now.available > then->available ? now.available - then->available : 0) + found +
        2 * (uint64_t)request->n_live;
    return stats.held_blocks > 0 && now.opened == then->opened && now.promised >= then->promised &&
           gained < then->missing &&
           (kvpi_life_is_swapped(request) || is_namespace_open(sched, request->ns));
}

#if KVP_CHECK >= 1
/* What is_hopeless rules out must not fit. */
static void assert_hopeless(kvp_sched *sched, struct kvpi_request *request)
{
    assert((kvpi_life_is_swapped(request) ? kvpi_swap_check(sched, request)
                                          : kvpi_open_check(sched, request)) == KVP_E_NO_BLOCKS);
}
#else
static void assert_hopeless(kvp_sched *sched, const struct kvpi_request *request)
{
    (void)sched;
    (void)request;
}
#endif

/* ------------------------------------------------------------------------------------ coming in */

static kvp_status bring_in(kvp_sched *sched, struct kvpi_request *request)
{
    sched->stats.tries++;
    return kvpi_life_is_swapped(request) ? kvpi_swap_in(sched, request)
                                         : kvpi_open_trunk(sched, request);
}

/* Sequences on the device; and those of the cache, which swapped requests have, too. Paused
 * requests make room. */
static int has_places(kvp_sched *sched, const struct kvpi_request *request)
{
    const uint32_t n = request->n_live;
    sched->lacks_slots = 0;
    while (sched->n_running + n > sched->config.max_running) {
        if (!kvpi_victims_take(sched, NULL, 1)) {
            return 0;
        }
    }
    if (kvpi_life_is_swapped(request)) {
        return 1;
    }
    const uint64_t others = (uint64_t)sched->n_running + sched->n_swapped + n;
    while (others <= sched->max_seqs && others + sched->n_stored > sched->max_seqs &&
           kvpi_victims_close_stored(sched)) {}
    return others + sched->n_stored <= sched->max_seqs;
}

/* A swapped request that lacks slots of state when all are available can never come back. */
static int must_be_closed(const kvp_sched *sched, const struct kvpi_request *request)
{
    return sched->lacks_slots && kvpi_life_is_swapped(request) && kvpi_slots_are_all_there(sched);
}

static kvp_status try_request(kvp_sched *sched, struct kvpi_request *request)
{
    if (!has_places(sched, request)) {
        return KVP_E_NO_SEQS;
    }
    if (sched->queues[KVPI_QUEUE_HALTED].n == 0 && is_hopeless(sched, request)) {
        assert_hopeless(sched, request);
        return KVP_E_NO_BLOCKS;
    }
    kvp_status status = bring_in(sched, request);
    while (status == KVP_E_NO_BLOCKS || status == KVP_E_NEVER) {
        const int by_force = sched->queues[KVPI_QUEUE_RUNNING].n == 0;
        if (must_be_closed(sched, request)) {
            kvpi_victims_recompute(sched, request);
            return KVP_E_DROPPED;
        }
        if (kvpi_victims_are_pointless(sched, sched->lacks_slots ? sched->missing_slots
                                                                 : sched->missing) ||
            !kvpi_victims_take(sched, NULL, by_force)) {
            request->last_try = look(sched);
            return KVP_E_NO_BLOCKS;
        }
        status = bring_in(sched, request);
    }
    return status;
}

/* Places that it lacks, of max_running or of the cache's sequences. */
static uint32_t lacking_places(const kvp_sched *sched, const struct kvpi_request *request,
                               int *seqs_lack)
{
    const uint64_t running = (uint64_t)sched->n_running + request->n_live;
    const uint64_t all = running + sched->n_swapped + sched->n_stored;
    const uint64_t places =
        running > sched->config.max_running ? running - sched->config.max_running : 0;
    const uint64_t seqs = all > sched->max_seqs ? all - sched->max_seqs : 0;
    *seqs_lack = seqs > 0;
    return (uint32_t)(seqs > places ? seqs : places);
}

/* Let others make way for a request, if it lacks nothing else. Gives 1 when it has places. */
static int make_way(kvp_sched *sched, struct kvpi_request *request)
{
    int seqs_lack;
    const uint32_t n = lacking_places(sched, request, &seqs_lack);
    if (n == 0 || kvpi_victims_count_below(sched, request->rank.priority) < n ||
        kvpi_open_check(sched, request) != KVP_OK) {
        return 0;
    }
    int lack;
    while (lacking_places(sched, request, &lack) > 0) {
        kvpi_victims_make_way(sched, request->rank.priority, seqs_lack);
    }
    return 1;
}

/* It has come in. */
static void let_run(kvp_sched *sched, struct kvpi_request *request)
{
    request->passed = 0;
    request->last_try.missing = 0;
    kvpi_life_move(sched, request, KVPI_QUEUE_RUNNING);
    kvpi_life_join_samples(sched, request);
}

static uint32_t reason_of(kvp_status status)
{
    switch (status) {
    case KVP_E_NO_BLOCKS: return KVP_WAIT_BLOCKS;
    case KVP_E_NO_SEQS: return KVP_WAIT_SEQS;
    case KVP_E_PLAN_FULL:
    case KVP_E_IN_FLIGHT: return KVP_WAIT_PLAN;
    default: return KVP_WAIT_REASONS;
    }
}

/* A request behind them came in. One of them may be one that may not be passed over again. */
static void pass_over(kvp_sched *sched)
{
    for (uint32_t i = 0; i < sched->n_tried; i++) {
        struct kvpi_request *request = &sched->requests[sched->tried[i]];
        request->passed++;
        sched->stats.passed_over++;
        sched->is_blocked |= request->passed >= sched->config.max_passed_over;
    }
}

/* Try a request; gives 1 when it came in. What becomes of the others is noted. */
static int try_and_note(kvp_sched *sched, struct kvpi_request *request, uint32_t *waited)
{
    const int is_swapped = kvpi_life_is_swapped(request);
    const kvp_status status = try_request(sched, request);
    const uint32_t reason = reason_of(status);
    if (status == KVP_OK) {
        let_run(sched, request);
        pass_over(sched);
        return 1;
    }
    if (request->queue == KVPI_QUEUE_WAITING && is_swapped) {
        return 0; /* it was closed */
    }
    if (reason == KVP_WAIT_REASONS) {
        kvpi_life_refuse(sched, request, status, &sched->refused[sched->report.n_ended++]);
        return 0;
    }
    waited[reason]++;
    sched->tried[sched->n_tried++] = kvpi_sched_place(sched, request);
    sched->is_blocked |= request->passed >= sched->config.max_passed_over ||
                         sched->n_tried == sched->config.max_tries;
    return 0;
}

void kvpi_admit_urgent(kvp_sched *sched)
{
    const struct kvpi_queue *waiting = &sched->queues[KVPI_QUEUE_WAITING];
    while (sched->config.make_way && waiting->n > 0) {
        struct kvpi_request *request = &sched->requests[kvpi_queue_after(waiting, NULL)];
        if ((sched->config.wait_for_prefix && kvpi_follow_keeps_back(sched, request)) ||
            !make_way(sched, request) || bring_in(sched, request) != KVP_OK) {
            return;
        }
        let_run(sched, request);
        sched->admitted[sched->report.n_admitted++] = kvpi_sched_handle(sched, request);
        sched->stats.admissions++;
    }
}

void kvpi_admit_swapped(kvp_sched *sched)
{
    const struct kvpi_queue *swapped = &sched->queues[KVPI_QUEUE_SWAPPED];
    uint32_t *waited = sched->report.waited_swapped;
    uint32_t place = kvpi_queue_after(swapped, NULL);
    while (place != KVPI_QUEUE_NONE && !sched->is_blocked) {
        struct kvpi_request *request = &sched->requests[place];
        const struct kvpi_rank rank = request->rank;
        if (try_and_note(sched, request, waited)) {
            sched->swapped_in[sched->report.n_swapped_in++] = kvpi_sched_handle(sched, request);
            kvpi_extend_swapped_in(sched, request);
        }
        place = kvpi_queue_after(swapped, &rank);
    }
    waited[KVP_WAIT_ORDER] += swapped->n - sched->n_tried;
}

void kvpi_admit_waiting(kvp_sched *sched, uint32_t budget)
{
    const struct kvpi_queue *waiting = &sched->queues[KVPI_QUEUE_WAITING];
    const uint32_t n_swapped = sched->n_tried;
    uint32_t *waited = sched->report.waited;
    uint32_t place = kvpi_queue_after(waiting, NULL);
    while (place != KVPI_QUEUE_NONE && budget > 0 && !sched->is_blocked) {
        struct kvpi_request *request = &sched->requests[place];
        const struct kvpi_rank rank = request->rank;
        if (sched->config.wait_for_prefix && kvpi_follow_keeps_back(sched, request)) {
            waited[KVP_WAIT_PREFIX]++;
        } else if (try_and_note(sched, request, waited)) {
            sched->admitted[sched->report.n_admitted++] = kvpi_sched_handle(sched, request);
            sched->stats.admissions++;
            add_chunk(sched, &sched->samples[sched->prefill_last], &budget);
        }
        place = kvpi_queue_after(waiting, &rank);
    }
    const uint32_t rest = budget == 0 ? KVP_WAIT_TOKENS : KVP_WAIT_ORDER;
    waited[rest] += waiting->n - (sched->n_tried - n_swapped) - waited[KVP_WAIT_PREFIX];
}
