/* Owns what a store adds to a replay under load.
 *
 *   turn      answers of the spill -> kvp_sched_release
 *             kvp_sched_loadable -> ask -> kvp_sched_hold, or kvp_sched_skip_load
 *   step      the scheduler's; the plan's copies write and check the host
 *   computed  commit what the step has computed, so that the spill sees it before it is closed
 *   finished  the scheduler keeps states of prompts when it finishes a step: the spill sees them
 *             before the next one
 *
 * A real store takes this machine's time. While a request waits for it, simulated time does not
 * pass faster: a load takes as long in the simulation as it takes here. While none waits, the
 * simulation does not wait either. A model has simulated time itself. If it has a latency, a
 * request is held for so long before it is asked for: that is how long the question takes.
 */
#include "tool/store/loading.h"

#include <stdlib.h>
#include <string.h>

#include "tool/models/step_model.h"
#include "tool/progress.h"
#include "tool/replay/cache.h"
#include "tool/tool.h"

#define WAIT_NS      UINT64_C(10000000)
#define LOOK_NS      UINT64_C(1000000)
#define MOST_WAIT_NS UINT64_C(10000000000) /* kvp_spill_config.max_wait_ns */
#define MAX_RATE     UINT64_C(1000000000000)

/* ---------------------------------------------------------------------------------- open, close */

/* Of a step that is full of the tokens of one prompt. */
static uint64_t compute_rate(const kvpi_simulate_options *options)
{
    const kvp_step_seq seq = {.n_tokens = options->step_tokens, .n_sampled = 1};
    const kvp_step step = {.seqs = &seq, .n_seqs = 1, .n_tokens = options->step_tokens};
    const kvpi_step_copies none = {0};
    kvpi_step_time time = kvpi_step_time_of(options->model, &step, &none);
    double rate = time.ns == 0 ? (double)MAX_RATE : options->step_tokens * 1e9 / (double)time.ns;
    return rate < 1 ? 1 : rate < (double)MAX_RATE ? (uint64_t)rate : MAX_RATE;
}

int kvpi_loading_open(kvpi_loading *store, const kvpi_simulate_options *options, kvp_ns ns,
                      kvpi_store_report *report)
{
    kvpi_attach_options attach = options->replay.store;
    attach.watched = options->replay.watch != NULL;
    if (attach.url == NULL)
        return TOOL_OK;
    attach.compute_tokens_s = compute_rate(options);
    store->through = attach.through;
    store->has_states = attach.state_bytes > 0;
    store->is_model = attach.model.size > 0;
    store->look_ns = attach.model.latency_ns;
    store->waits = calloc(1, sizeof *store->waits);
    store->chunks = calloc(options->max_running, sizeof *store->chunks);
    if (store->waits == NULL || store->chunks == NULL)
        return kvpi_tool_fail("replay", "out of memory for the store");
    return kvpi_attach_open(&attach, store->cache, ns, report, &store->attach);
}

void kvpi_loading_close(kvpi_loading *store, kvpi_percentiles *waits)
{
    if (store->waits != NULL)
        *waits = kvpi_histogram_percentiles(store->waits);
    kvpi_attach_close(store->attach);
    free(store->waits);
    free(store->chunks);
    store->attach = NULL;
    store->waits = NULL;
    store->chunks = NULL;
}

/* --------------------------------------------------------------------------------------- a turn */

/* An answer that comes with the deadline, or later, finds the request released, or ended. */
static kvp_status release(kvpi_loading *store, size_t i, uint64_t now_ns)
{
    kvpi_job *job = &store->jobs->all[i];
    kvp_status status = kvp_sched_release(store->sched, job->request);
    kvpi_histogram_add(store->waits, now_ns - job->held_ns);
    store->n_held--;
    return status == KVP_E_STATE || status == KVP_E_HANDLE ? KVP_OK : status;
}

static kvp_status take_answers(kvpi_loading *store, uint64_t now_ns, bool *happened)
{
    kvp_spill_answer answers[KVPI_ATTACH_ASKS];
    uint32_t n = 0;
    bool more = false;
    kvpi_attach_at(store->attach, now_ns);
    kvp_status status = kvpi_attach_work(store->attach, answers, &n, &more);
    for (uint32_t k = 0; k < n && status == KVP_OK; k++) {
        store->jobs->all[answers[k].tag].outcome = answers[k].outcome;
        status = release(store, (size_t)answers[k].tag, now_ns);
    }
    *happened = *happened || more;
    return status == KVP_OK ? kvp_sched_tick(store->sched, now_ns, NULL) : status;
}

/* How far simulated time is ahead of this machine's, while requests wait. */
static uint64_t count_ahead(const kvpi_loading *store, uint64_t now_ns)
{
    uint64_t simulated = now_ns - store->from_ns, real = kvpi_progress_now_ns() - store->real_ns;
    return !store->is_model && store->n_held > 0 && simulated > real ? simulated - real : 0;
}

static void note_first(kvpi_loading *store, uint64_t now_ns)
{
    if (store->n_held > 0)
        return;
    store->from_ns = now_ns;
    store->real_ns = kvpi_progress_now_ns();
}

static kvp_status hold(kvpi_loading *store, kvp_request request, size_t i, uint64_t now_ns)
{
    kvpi_job *job = &store->jobs->all[i];
    note_first(store, now_ns);
    store->n_held++;
    job->request = request;
    job->held_ns = now_ns;
    job->outcome = KVP_SPILL_WAITS;
    return kvp_sched_hold(store->sched, request, now_ns + MOST_WAIT_NS);
}

static kvp_status ask(kvpi_loading *store, size_t i, bool *waits)
{
    const kvp_prompt prompt = {.struct_size = sizeof prompt,
                               .tokens = store->jobs->all[i].tokens,
                               .n_tokens = kvpi_jobs_input(store->jobs, i)};
    uint32_t *outcome = &store->jobs->all[i].outcome;
    const kvp_status status = kvpi_attach_ask(store->attach, &prompt, i, outcome);
    *waits = *outcome == KVP_SPILL_WAITS;
    return status;
}

/* Hold a request if the store has something of it; or, if the question takes time, until that is
 * known. */
static kvp_status begin(kvpi_loading *store, kvp_request request, uint64_t now_ns)
{
    kvp_request_info info;
    bool waits = true;
    kvp_status status = kvp_request_info_get(store->sched, request, &info);
    if (status == KVP_OK && store->n_held == KVPI_ATTACH_ASKS)
        return KVP_E_AGAIN;
    if (status == KVP_OK && store->look_ns == 0)
        status = ask(store, (size_t)info.tag, &waits);
    if (status != KVP_OK)
        return status;
    if (waits && store->look_ns > 0)
        store->looking[store->n_looking++] = (uint32_t)info.tag;
    return waits ? hold(store, request, (size_t)info.tag, now_ns)
                 : kvp_sched_skip_load(store->sched, request);
}

/* For the next ones in rank. Those for whom there is no place are asked for later, if they still
 * wait then. */
static kvp_status begin_all(kvpi_loading *store, uint64_t now_ns)
{
    kvp_request requests[KVPI_ATTACH_ASKS];
    uint32_t n = 0;
    kvp_status status = kvp_sched_loadable(store->sched, KVPI_ATTACH_ASKS, requests, &n);
    for (uint32_t k = 0; k < n && status == KVP_OK; k++)
        status = begin(store, requests[k], now_ns);
    return status == KVP_E_AGAIN ? KVP_OK : status;
}

/* When the question of the first one that is looking has arrived. */
static uint64_t next_look(const kvpi_loading *store)
{
    return store->n_looking == 0 ? KVPI_MODELLED_NEVER
                                 : store->jobs->all[store->looking[0]].held_ns + store->look_ns;
}

static kvp_status ask_looking(kvpi_loading *store, uint64_t now_ns)
{
    kvp_status status = KVP_OK;
    while (status == KVP_OK && next_look(store) <= now_ns) {
        size_t i = store->looking[0];
        bool waits = false;
        store->n_looking--;
        memmove(store->looking, store->looking + 1, store->n_looking * sizeof *store->looking);
        status = ask(store, i, &waits);
        if (status == KVP_OK && !waits)
            status = release(store, i, now_ns);
    }
    return status;
}

int kvpi_loading_turn(kvpi_loading *store, uint64_t now_ns)
{
    bool happened = false;
    if (store->attach == NULL)
        return TOOL_OK;
    kvp_status status = take_answers(store, now_ns, &happened);
    if (status == KVP_OK)
        status = ask_looking(store, now_ns);
    for (uint64_t ahead; status == KVP_OK && (ahead = count_ahead(store, now_ns)) > 0;) {
        kvpi_attach_wait(store->attach, ahead < WAIT_NS ? ahead : WAIT_NS);
        status = take_answers(store, now_ns, &happened);
    }
    uint32_t n_held = store->n_held;
    if (status == KVP_OK)
        status = begin_all(store, now_ns);
    /* Most questions are answered at once: what the store lacks must not cost a step. */
    if (status == KVP_OK && store->n_held > n_held) {
        if (!store->is_model)
            kvpi_attach_wait(store->attach, LOOK_NS);
        status = take_answers(store, now_ns, &happened);
    }
    return status == KVP_OK ? TOOL_OK : kvpi_replay_cache_fail("asking the store", status);
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* When this machine has spent as much time as the simulation. */
static uint64_t wait_really(const kvpi_loading *store)
{
    kvpi_attach_wait(store->attach, WAIT_NS);
    return store->from_ns + (kvpi_progress_now_ns() - store->real_ns);
}

uint64_t kvpi_loading_wait(kvpi_loading *store, uint64_t now_ns, uint64_t until_ns)
{
    kvp_sched_expired expired;
    bool happened = false;
    if (store->attach == NULL || store->n_held == 0)
        return until_ns;
    /* The step took the plan: what waited for it goes on. */
    if (take_answers(store, now_ns, &happened) != KVP_OK || happened ||
        kvp_sched_tick(store->sched, now_ns, &expired) != KVP_OK)
        return now_ns;
    uint64_t next_ns = !store->is_model ? wait_really(store)
                                        : least(kvpi_attach_due(store->attach), next_look(store));
    next_ns = least(next_ns, least(expired.next_deadline, until_ns));
    return next_ns > now_ns ? next_ns : now_ns;
}

/* --------------------------------------------------------------------------------------- a step */

int kvpi_loading_admitted(kvpi_loading *store, size_t i, kvp_request request)
{
    kvp_sample_info sample;
    kvp_seq_info seq;
    uint32_t n_tokens = kvpi_jobs_input(store->jobs, i);
    if (store->attach == NULL)
        return TOOL_OK;
    kvp_status status = kvp_request_sample(store->sched, request, 0, &sample);
    if (status == KVP_OK)
        status = kvp_seq_info_get(store->cache, sample.seq, &seq);
    /* Of a prompt that is all there, the last token is computed all the same. */
    if (status == KVP_OK)
        status = kvpi_attach_hit(store->attach, sample.seq,
                                 seq.cached_tokens + 1 == n_tokens ? n_tokens : seq.cached_tokens);
    return status == KVP_OK ? TOOL_OK : kvpi_replay_cache_fail("writing to the store", status);
}

int kvpi_loading_see(const kvpi_loading *store, size_t i, kvpi_watch_store *out)
{
    const kvpi_job *job = &store->jobs->all[i];
    if (store->attach == NULL)
        return TOOL_OK;
    kvp_status status = kvpi_attach_see(store->attach, job->tokens, kvpi_jobs_input(store->jobs, i),
                                        job->outcome, out);
    return status == KVP_OK ? TOOL_OK
                            : kvpi_replay_cache_fail("what the store has of a prompt", status);
}

int kvpi_loading_copies(kvpi_loading *store, const kvp_copy *copies, uint32_t n, uint64_t *n_states)
{
    uint64_t n_more = 0;
    if (store->attach == NULL)
        return TOOL_OK;
    kvp_status status = kvpi_attach_copies(store->attach, copies, n, &n_more);
    *n_states += n_more;
    return status == KVP_OK ? TOOL_OK : kvpi_replay_cache_fail("running the plan", status);
}

/* A prompt is reported when it is computed, and a request when it ends. */
static bool is_worth_it(const kvpi_loading *store, const kvp_step_seq *seq)
{
    kvp_request_info info;
    if (seq->n_sampled == 0 || kvp_request_info_get(store->sched, seq->request, &info) != KVP_OK)
        return false;
    uint32_t n_sampled = store->jobs->all[info.tag].n_sampled;
    return n_sampled == 0 || n_sampled + 1 == kvpi_jobs_sampled(store->jobs, (size_t)info.tag);
}

int kvpi_loading_computed(kvpi_loading *store, const kvp_step *step)
{
    kvp_status status = KVP_OK;
    store->n_chunks = 0;
    if (store->attach == NULL || !store->through)
        return TOOL_OK;
    for (uint32_t k = 0; k < step->n_seqs && status == KVP_OK; k++) {
        const kvp_step_seq *seq = &step->seqs[k];
        if (store->has_states && seq->n_sampled == 0)
            store->chunks[store->n_chunks++] = seq->seq;
        if (!is_worth_it(store, seq))
            continue;
        status = kvp_seq_commit(store->cache, seq->seq, seq->begin + seq->n_tokens);
        if (status == KVP_OK)
            status = kvpi_attach_sealed(store->attach, seq->seq);
    }
    return status == KVP_OK ? TOOL_OK : kvpi_replay_cache_fail("writing to the store", status);
}

int kvpi_loading_finished(kvpi_loading *store)
{
    kvp_status status = KVP_OK;
    for (uint32_t k = 0; k < store->n_chunks && status == KVP_OK; k++)
        status = kvpi_attach_sealed(store->attach, store->chunks[k]);
    store->n_chunks = 0;
    return status == KVP_OK ? TOOL_OK : kvpi_replay_cache_fail("writing to the store", status);
}
