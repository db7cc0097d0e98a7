/* Owns the loop of a replay under load.
 *
 *   now = 0
 *   repeat
 *     submit what has arrived by now                  in the trace's order
 *     release and hold requests                       with a store: store/loading.c
 *     make a step; take the plan                      the scheduler decides
 *     now += how long the step takes                  the model says
 *     evict for the next step                         with --reclaim, while the step runs
 *     finish the step: every sequence that was sampled gets the trace's next token
 *   until nothing is left; while nothing can run, now = the next arrival
 *
 * What arrives while a step runs is submitted when it ends. A request ends when it has generated as
 * many tokens as the trace says. A step that computes nothing but has copies in its plan takes the
 * time of the copies.
 *
 * A request's tag is its place in the trace's order.
 */
#include "tool/replay/simulate.h"

#include <stdlib.h>
#include <string.h>

#include "tool/progress.h"
#include "tool/replay/cache.h"
#include "tool/replay/simulate_jobs.h"
#include "tool/store/loading.h"
#include "tool/tool.h"

/* Room for the generated tokens of so many at a time; a longer trace's wait before the door. */
#define MAX_ARENA_TOKENS (UINT64_C(1) << 26)

/* Simulated time ends here, after 146 years. */
#define MAX_NOW_NS (UINT64_C(1) << 62)

typedef struct simulation {
    const kvpi_simulate_options *options;
    kvpi_load_report *report;
    kvpi_jobs jobs;
    kvpi_replay_cache cache;
    kvp_sched *sched;
    kvpi_closed *closed; /* NULL: requests come at their recorded times */
    kvpi_loading store;
    kvp_copy *copies; /* [n_copies] of max_copies: the step's plan */
    uint32_t n_copies, max_copies;
    bool *is_from_host;     /* [blocks] of the first layer group: the plan copies them from there */
    uint32_t *sampled_jobs; /* [max_running] of the step that is out, in its order */
    int32_t *sampled;       /* [max_running] */
    kvpi_histogram *steps;
    size_t n_arrived; /* submitted or rejected; without sessions the others come in this order */
    bool door_closed; /* the scheduler has no place for another one until one leaves */
    uint64_t now_ns;
    uint64_t n_evicted; /* so far */
    kvpi_load_policy policy;
    kvp_step step;
    kvpi_step_copies moved; /* by the step's plan */
} simulation;

static uint64_t clock_of(const simulation *sim)
{
    return sim->options->measured ? kvpi_progress_now_ns() : 0;
}

/* -------------------------------------------------------------------------------- preparing */

/* Blocks that n tokens take in all layer groups, as when they come in. */
static uint64_t blocks_of(const kvpi_replay_options *replay, uint64_t n)
{
    uint64_t blocks = 0;
    for (uint32_t g = 0; g < replay->n_groups; g++) {
        const uint32_t block_tokens = replay->groups[g].block_tokens;
        blocks += kvp_blocks_for_tokens(
            block_tokens > 0 ? block_tokens : (uint32_t)replay->block_tokens, n);
    }
    return blocks;
}

static uint64_t most_tokens(const kvpi_replay_options *replay)
{
    uint64_t low = 0, high = INT32_MAX;
    while (low < high) {
        const uint64_t middle = low + (high - low + 1) / 2;
        if (blocks_of(replay, middle) <= replay->blocks)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Tokens of the longest request that the cache could hold, or of all that it holds if some request
 * may have to be refused: then the refusal tells the true limits. */
static uint64_t longest(const simulation *sim)
{
    const kvpi_replay_options *replay = &sim->options->replay;
    const uint64_t usable = most_tokens(replay);
    const uint64_t watermark = replay->blocks * sim->options->watermark_milli / 1000 + 1;
    uint64_t most = 2;
    for (size_t i = 0; i < sim->jobs.n; i++) {
        uint64_t tokens =
            (uint64_t)kvpi_jobs_input(&sim->jobs, i) + kvpi_jobs_sampled(&sim->jobs, i);
        if (blocks_of(replay, tokens) + watermark > replay->blocks)
            tokens = usable;
        most = tokens > most ? tokens : most;
    }
    return most < INT32_MAX ? most : INT32_MAX;
}

static kvp_config configure_cache(const simulation *sim)
{
    const kvpi_simulate_options *options = sim->options;
    kvp_config config;
    kvp_config_init(&config);
    config.block_tokens = (uint32_t)options->replay.block_tokens;
    config.unit_tokens = (uint32_t)options->replay.unit_tokens;
    config.n_blocks = (uint32_t)options->replay.blocks + 1;
    config.max_seqs = options->max_running;
    config.n_groups = options->replay.n_groups;
    memcpy(config.groups, options->replay.groups, sizeof config.groups);
    config.retain_tokens = options->replay.retain_tokens;
    if (options->replay.state_slots > 0)
        config.state_slots = (uint32_t)options->replay.state_slots + 1;
    if (options->replay.host_blocks > 0) {
        config.host_blocks = (uint32_t)options->replay.host_blocks + 1;
        config.keep_evicted = options->replay.keep_evicted;
        config.max_seqs *= 2; /* as many may be swapped out */
        kvpi_attach_configure(&options->replay.store, &config);
    }
    if (options->replay.host_state_slots > 0)
        config.host_state_slots = (uint32_t)options->replay.host_state_slots + 1;
    config.max_seq_tokens = (uint32_t)longest(sim);
    config.max_namespaces = 1;
    config.prefix_cache = options->replay.prefix_cache;
    config.policy = options->replay.policy;
    config.watermark = (double)options->watermark_milli / 1000;
    if (options->replay.watch != NULL)
        kvpi_watch_configure(&config);
    return config;
}

static uint64_t arena_tokens(const simulation *sim)
{
    uint64_t page = KVP_SCHED_PAGE_TOKENS, all = 0, largest = 0;
    for (size_t i = 0; i < sim->jobs.n; i++) {
        uint64_t tokens = (kvpi_jobs_sampled(&sim->jobs, i) + page - 1) / page * page;
        all += tokens;
        largest = tokens > largest ? tokens : largest;
    }
    all = all < MAX_ARENA_TOKENS ? all : MAX_ARENA_TOKENS;
    return all > largest ? all : largest;
}

/* What a victim's block and token cost, in thousandths of a nanosecond. */
static void set_prices(const simulation *sim, kvp_sched_config *config)
{
    kvpi_step_prices prices =
        kvpi_step_prices_of(sim->options->model, sim->options->replay.block_tokens);
    config->swap_block_cost = prices.swap_block_ps;
    config->swap_state_cost = prices.swap_state_ps;
    config->recompute_token_cost = prices.recompute_token_ps;
}

static kvp_sched_config configure_sched(const simulation *sim)
{
    const kvpi_simulate_options *options = sim->options;
    kvp_sched_config config;
    kvp_sched_config_init(&config);
    config.max_requests = sim->jobs.n < KVPI_SIMULATE_MAX_REQUESTS ? (uint32_t)sim->jobs.n
                                                                   : KVPI_SIMULATE_MAX_REQUESTS;
    config.max_running = options->max_running;
    config.step_tokens = options->step_tokens;
    config.chunk_tokens = options->chunk_tokens;
    config.max_passed_over = options->max_passed_over;
    config.max_tries =
        options->max_tries < config.max_requests ? options->max_tries : config.max_requests;
    config.preempt = options->preempt;
    config.swap_ahead = options->swap_ahead;
    config.wait_for_prefix = options->wait_for_prefix;
    config.free_target = options->replay.reclaim;
    if (options->replay.store.url != NULL)
        config.max_loading =
            config.max_requests < KVPI_ATTACH_ASKS ? config.max_requests : KVPI_ATTACH_ASKS;
    config.arena_tokens = arena_tokens(sim);
    set_prices(sim, &config);
    return config;
}

static int create_sched(simulation *sim)
{
    kvp_sched_config *config = &sim->report->sched_config;
    kvp_config cache;
    *config = configure_sched(sim);
    kvp_status status = kvp_cache_config_get(sim->cache.cache, &cache);
    kvp_why why;
    if (kvp_sched_config_check(config, sim->cache.cache, &why) != KVP_OK)
        return kvpi_tool_fail("replay", "the scheduler: %s", why.text);
    if (status == KVP_OK)
        status = kvp_sched_create(config, sim->cache.cache, NULL, 0, &sim->sched);
    if (status != KVP_OK)
        return kvpi_replay_cache_fail("creating the scheduler", status);
    sim->max_copies = cache.max_copies;
    sim->copies = malloc(sim->max_copies * sizeof *sim->copies);
    sim->is_from_host = calloc(cache.n_blocks, sizeof *sim->is_from_host);
    sim->sampled_jobs = malloc(config->max_running * sizeof *sim->sampled_jobs);
    sim->sampled = malloc(config->max_running * sizeof *sim->sampled);
    sim->steps = calloc(1, sizeof *sim->steps);
    if (sim->copies == NULL || sim->is_from_host == NULL || sim->sampled_jobs == NULL ||
        sim->sampled == NULL || sim->steps == NULL)
        return kvpi_tool_fail("replay", "out of memory for the steps");
    return TOOL_OK;
}

/* --------------------------------------------------------------------------------- arrivals */

static void reject(simulation *sim, size_t i, kvpi_load_reason reason, const kvp_sched_limit *limit)
{
    kvpi_load_report *report = sim->report;
    const kvpi_request *request = kvpi_requests_get(sim->jobs.requests, i);
    report->rejected[reason]++;
    if (report->n_rejections < KVPI_LOAD_MAX_REJECTIONS)
        report->rejections[report->n_rejections++] =
            (kvpi_load_rejection){.file = request->file,
                                  .line = request->line,
                                  .of_line = request->of_line,
                                  .input_tokens = kvpi_jobs_input(&sim->jobs, i),
                                  .output_tokens = kvpi_jobs_output(&sim->jobs, i),
                                  .reason = reason,
                                  .limit = *limit};
    kvpi_jobs_leave(&sim->jobs, i, KVPI_JOB_REJECTED);
}

static kvp_status submit(simulation *sim, size_t i, kvp_sched_limit *limit)
{
    const kvp_prompt prompt = {.struct_size = sizeof prompt,
                               .tokens = sim->jobs.all[i].tokens,
                               .n_tokens = kvpi_jobs_input(&sim->jobs, i),
                               .tag = i};
    const kvp_submission submission = {.struct_size = sizeof submission,
                                       .prompt = &prompt,
                                       .ns = sim->cache.ns,
                                       .max_new_tokens = kvpi_jobs_sampled(&sim->jobs, i),
                                       .flags = KVP_SUBMIT_BORROW};
    kvp_request request;
    return kvp_sched_submit(sim->sched, &submission, &request, limit);
}

/* It came some time during the step that just ended, and has waited since. */
static void note_arrival(simulation *sim, size_t i)
{
    static const kvpi_load_level one_waits = {.waiting = 1};
    kvpi_job *job = &sim->jobs.all[i];
    job->stage = KVPI_JOB_THERE;
    kvpi_load_timeline_span(&sim->report->timeline, job->arrival_ns, sim->now_ns, &one_waits);
    kvpi_load_timeline_at(&sim->report->timeline, job->arrival_ns)->arrived++;
}

static int arrive(simulation *sim, size_t i)
{
    kvp_sched_limit limit = {0, 0};
    uint32_t input = kvpi_jobs_input(&sim->jobs, i);
    if (input == 0) {
        reject(sim, i, KVPI_LOAD_EMPTY, &limit);
        return TOOL_OK;
    }
    if (kvpi_jobs_make_tokens(&sim->jobs, i) != TOOL_OK)
        return TOOL_FAILED;
    kvp_status status = submit(sim, i, &limit);
    if (status == KVP_OK)
        note_arrival(sim, i);
    else if (status == KVP_E_TOO_LONG || status == KVP_E_NEVER)
        reject(sim, i, input > limit.max_prompt_tokens ? KVPI_LOAD_PROMPT : KVPI_LOAD_OUTPUT,
               &limit);
    else if (kvp_status_class(status) == KVP_CLASS_RETRY)
        sim->door_closed = true;
    else
        return kvpi_replay_cache_fail("submitting a request", status);
    return TOOL_OK;
}

/* The one that comes next, as far as is known. */
static bool next_arrival(const simulation *sim, size_t *out_i, uint64_t *out_ns)
{
    if (sim->closed != NULL)
        return kvpi_closed_next(sim->closed, out_i, out_ns);
    if (sim->n_arrived == sim->jobs.n)
        return false;
    *out_i = sim->n_arrived;
    *out_ns = sim->jobs.all[sim->n_arrived].arrival_ns;
    return true;
}

static void note_came(simulation *sim, size_t i)
{
    sim->n_arrived++;
    if (sim->closed == NULL)
        return;
    kvpi_closed_arrived(sim->closed);
    if (sim->jobs.all[i].stage == KVPI_JOB_REJECTED)
        kvpi_closed_ended(sim->closed, i, sim->now_ns, true);
}

static int arrive_all(simulation *sim)
{
    int status = TOOL_OK;
    size_t i;
    uint64_t ns;
    while (status == TOOL_OK && !sim->door_closed && next_arrival(sim, &i, &ns) &&
           ns <= sim->now_ns) {
        sim->jobs.all[i].arrival_ns = ns;
        status = arrive(sim, i);
        if (!sim->door_closed)
            note_came(sim, i);
    }
    return status;
}

/* ----------------------------------------------------------------------------------- a step */

/* The place of a request that has not ended. */
static size_t place_of(const simulation *sim, kvp_request request)
{
    kvp_request_info info = {0};
    (void)kvp_request_info_get(sim->sched, request, &info);
    return (size_t)info.tag;
}

/* Nothing cached when it has no sequence. */
static kvp_seq_info sequence_of(const simulation *sim, kvp_request request)
{
    kvp_sample_info sample;
    kvp_seq_info seq = {.stop = KVP_STOP_MISS};
    if (kvp_request_sample(sim->sched, request, 0, &sample) == KVP_OK)
        (void)kvp_seq_info_get(sim->cache.cache, sample.seq, &seq);
    return seq;
}

/* Times of the page are in milliseconds. */
static uint64_t watch_time(const simulation *sim)
{
    return sim->now_ns / 1000000;
}

static int watch_admitted(const simulation *sim, size_t i, const kvp_seq_info *seq,
                          uint32_t host_tokens)
{
    const kvpi_request *request = kvpi_requests_get(sim->jobs.requests, i);
    kvpi_watch_prompt prompt = {.tokens = sim->jobs.all[i].tokens,
                                .n_tokens = kvpi_jobs_input(&sim->jobs, i),
                                .cached_tokens = seq->cached_tokens,
                                .host_tokens = host_tokens,
                                .stop = seq->stop,
                                .stop_group = seq->stop_group,
                                .file = request->file,
                                .line = request->line,
                                .of_line = request->of_line};
    kvpi_watch *watch = sim->options->replay.watch;
    if (watch == NULL)
        return TOOL_OK;
    return kvpi_loading_see(&sim->store, i, &prompt.store) == TOOL_OK
               ? kvpi_watch_admit(watch, &prompt, watch_time(sim))
               : TOOL_FAILED;
}

static int watch_cache(const simulation *sim)
{
    kvpi_watch *watch = sim->options->replay.watch;
    return watch == NULL ? TOOL_OK : kvpi_watch_look(watch, sim->cache.cache, watch_time(sim));
}

/* A request's first hit. */
static int note_hit(simulation *sim, kvp_request request, const kvp_seq_info *seq)
{
    const kvpi_hit hit = {seq->stop, seq->stop_group, sim->options->replay.n_groups};
    kvp_sample_info sample;
    kvpi_hits_count(&sim->report->hits, &hit);
    if (seq->stop != KVP_STOP_NO_KV || seq->stop_group < hit.n_groups)
        return TOOL_OK;
    kvp_status status = kvp_request_sample(sim->sched, request, 0, &sample);
    if (status == KVP_OK)
        status = kvpi_hits_count_missed(&sim->report->hits, sim->cache.cache, sample.seq,
                                        seq->cached_tokens);
    return status == KVP_OK ? TOOL_OK : kvpi_replay_cache_fail("reading a state", status);
}

static void mark_copies(simulation *sim, bool value)
{
    for (uint32_t k = 0; k < sim->n_copies; k++) {
        const kvp_copy *copy = &sim->copies[k];
        if (copy->group == 0 && copy->src_tier == KVP_HOST && copy->dst_tier == KVP_DEVICE)
            sim->is_from_host[copy->dst_block] = value;
    }
}

/* Tokens that are copied from the host for a request, and not for one before it. */
static uint32_t take_copied(simulation *sim, kvp_request request)
{
    const uint32_t own = sim->options->replay.groups[0].block_tokens;
    const int32_t *row = NULL;
    uint32_t n_blocks = 0, n = 0;
    kvp_sample_info sample;
    if (sim->n_copies > 0 && kvp_request_sample(sim->sched, request, 0, &sample) == KVP_OK)
        (void)kvp_seq_row(sim->cache.cache, sample.seq, 0, &row, &n_blocks);
    for (uint32_t i = 0; i < n_blocks; i++) {
        n += sim->is_from_host[row[i]];
        sim->is_from_host[row[i]] = false;
    }
    return n * (own > 0 ? own : (uint32_t)sim->options->replay.block_tokens);
}

static int note_admitted(simulation *sim)
{
    mark_copies(sim, true);
    for (uint32_t k = 0; k < sim->step.n_swapped_in; k++)
        (void)take_copied(sim, sim->step.swapped_in[k]);
    for (uint32_t k = 0; k < sim->step.n_admitted; k++) {
        const uint32_t host_tokens = take_copied(sim, sim->step.admitted[k]);
        size_t i = place_of(sim, sim->step.admitted[k]);
        kvpi_job *job = &sim->jobs.all[i];
        if (job->admitted_ns != KVPI_JOB_NEVER)
            continue;
        const kvp_seq_info seq = sequence_of(sim, sim->step.admitted[k]);
        uint32_t hit = seq.cached_tokens;
        job->hit_tokens = hit;
        kvpi_load_interval *part = kvpi_load_timeline_at(&sim->report->timeline, sim->now_ns);
        job->admitted_ns = sim->now_ns;
        sim->report->hit_tokens += hit;
        part->input_tokens += kvpi_jobs_input(&sim->jobs, i);
        part->hit_tokens += hit;
        if (note_hit(sim, sim->step.admitted[k], &seq) != TOOL_OK ||
            watch_admitted(sim, i, &seq, host_tokens) != TOOL_OK)
            return TOOL_FAILED;
    }
    mark_copies(sim, false);
    return watch_cache(sim);
}

static int run_plan(simulation *sim)
{
    kvpi_load_report *report = sim->report;
    sim->moved = (kvpi_step_copies){0};
    for (uint32_t k = 0; k < sim->n_copies; k++) {
        const kvp_copy *copy = &sim->copies[k];
        if (copy->group == sim->options->replay.n_groups) {
            sim->moved.host_states++;
            report->states_to_host += copy->dst_tier == KVP_HOST;
            report->states_from_host += copy->src_tier == KVP_HOST;
            continue;
        }
        if (copy->src_tier == copy->dst_tier) {
            sim->moved.device_tokens += copy->n_tokens;
            continue;
        }
        sim->moved.host_tokens += copy->n_tokens;
        report->blocks_to_host += copy->dst_tier == KVP_HOST;
        report->blocks_from_host += copy->src_tier == KVP_HOST;
    }
    return kvpi_loading_copies(&sim->store, sim->copies, sim->n_copies, &sim->moved.host_states);
}

/* The store hears of the hits before, and may copy in the plan. */
static int take_plan(simulation *sim)
{
    for (uint32_t k = 0; k < sim->step.n_admitted; k++)
        if (kvpi_loading_admitted(&sim->store, place_of(sim, sim->step.admitted[k]),
                                  sim->step.admitted[k]) != TOOL_OK)
            return TOOL_FAILED;
    kvp_status status =
        kvp_plan_take(sim->cache.cache, sim->copies, sim->max_copies, &sim->n_copies);
    return status == KVP_OK ? TOOL_OK : kvpi_replay_cache_fail("taking the plan", status);
}

static int make_step(simulation *sim)
{
    uint64_t start = clock_of(sim);
    kvp_status status = kvp_sched_step(sim->sched, &sim->step);
    sim->report->sched_ns += clock_of(sim) - start;
    if (status != KVP_OK)
        return kvpi_replay_cache_fail("making a step", status);
    return take_plan(sim) == TOOL_OK && note_admitted(sim) == TOOL_OK ? run_plan(sim) : TOOL_FAILED;
}

/* What holds from now until the step is done. */
static int note_levels(simulation *sim, uint64_t ns)
{
    kvp_stats cache;
    kvp_sched_stats sched;
    kvpi_load_report *report = sim->report;
    kvp_policy_info learned;
    kvp_status status = kvp_cache_stats_get(sim->cache.cache, &cache);
    if (status == KVP_OK)
        status = kvp_sched_stats_get(sim->sched, &sched);
    if (status == KVP_OK)
        status = kvpi_learned_counters(sim->cache.cache, &learned);
    if (status != KVP_OK)
        return kvpi_replay_cache_fail("reading the counters", status);
    const kvpi_load_level level = {.running = (double)sched.running_requests,
                                   .waiting =
                                       (double)(sched.waiting_requests + sched.loading_requests),
                                   .swapped = (double)sched.swapped_requests,
                                   .held_blocks = (double)cache.held_blocks,
                                   .host_held_blocks = (double)cache.host_held_blocks,
                                   .cached_blocks = (double)cache.cached_blocks,
                                   .host_cached_blocks = (double)cache.host_cached_blocks};
    kvpi_load_timeline_span(&report->timeline, sim->now_ns, sim->now_ns + ns, &level);
    kvpi_load_interval *part = kvpi_load_timeline_at(&report->timeline, sim->now_ns);
    part->evictions += cache.evicted_blocks - sim->n_evicted;
    sim->n_evicted = cache.evicted_blocks;
    kvpi_load_policy_note(part, &sim->policy, &cache, &learned);
    report->held_block_ns += level.held_blocks * (double)ns;
    for (uint32_t r = 0; r < KVP_WAIT_REASONS; r++) {
        uint32_t n = sim->step.waited[r] + sim->step.waited_swapped[r];
        report->waited_ns[r] += (double)n * (double)ns;
    }
    return TOOL_OK;
}

static void note_step(simulation *sim, const kvpi_step_time *time)
{
    const kvp_step *step = &sim->step;
    kvpi_load_report *report = sim->report;
    kvpi_load_interval *part = kvpi_load_timeline_at(&report->timeline, sim->now_ns);
    uint64_t n_prompt = step->n_tokens - step->n_decoding;
    report->busy_ns += time->ns;
    report->copy_ns += time->copy_ns;
    report->prompt_tokens += n_prompt;
    report->recompute_preemptions += step->n_preempted;
    report->swap_preemptions += step->n_swapped_out;
    part->prompt_tokens += n_prompt;
    part->preemptions += step->n_preempted + step->n_swapped_out;
    if (step->n_seqs == 0)
        return;
    kvpi_histogram_add(sim->steps, time->ns);
    part->steps++;
    if (time->compute_ns > time->memory_ns)
        report->bound_by_compute_ns += (double)time->ns;
}

/* Whose tokens the step samples, and which. */
static void sample(simulation *sim)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < sim->step.n_seqs; k++) {
        if (sim->step.seqs[k].n_sampled == 0)
            continue;
        size_t i = place_of(sim, sim->step.seqs[k].request);
        sim->sampled_jobs[n] = (uint32_t)i;
        sim->sampled[n++] = kvpi_jobs_next_token(&sim->jobs, i);
    }
}

static void note_ended(simulation *sim, const kvp_ended *ended, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++) {
        size_t i = (size_t)ended[k].tag;
        bool whole = ended[k].reason == KVP_END_LENGTH &&
                     sim->jobs.all[i].n_sampled == kvpi_jobs_sampled(&sim->jobs, i);
        kvpi_jobs_leave(&sim->jobs, i, whole ? KVPI_JOB_FINISHED : KVPI_JOB_FAILED);
        if (sim->closed != NULL)
            kvpi_closed_ended(sim->closed, i, sim->now_ns, false);
        sim->door_closed = false;
    }
}

static int finish_step(simulation *sim, uint64_t began_ns)
{
    kvp_step_end end = {0};
    kvpi_load_interval *part = kvpi_load_timeline_at(&sim->report->timeline, began_ns);
    if (kvp_sched_reclaim(sim->sched, NULL) != KVP_OK)
        return kvpi_tool_fail("replay", "evicting ahead of need failed");
    sample(sim);
    if (kvpi_loading_computed(&sim->store, &sim->step) != TOOL_OK)
        return TOOL_FAILED;
    uint64_t start = clock_of(sim);
    kvp_status status = kvp_sched_finish(sim->sched, sim->sampled, NULL, &end);
    sim->report->sched_ns += clock_of(sim) - start;
    if (status != KVP_OK)
        return kvpi_replay_cache_fail("finishing a step", status);
    for (uint32_t k = 0; k < sim->step.n_sampled; k++) {
        size_t i = sim->sampled_jobs[k];
        kvpi_jobs_note_token(&sim->jobs, i, sim->now_ns);
        part->output_tokens += kvpi_jobs_output(&sim->jobs, i) > 0;
    }
    part->finished += end.n_ended;
    note_ended(sim, end.ended, end.n_ended);
    return kvpi_loading_finished(&sim->store) == TOOL_OK ? watch_cache(sim) : TOOL_FAILED;
}

static int run_step(simulation *sim)
{
    uint64_t began_ns = sim->now_ns;
    kvpi_step_time time = kvpi_step_time_of(sim->options->model, &sim->step, &sim->moved);
    if (sim->now_ns + time.ns > MAX_NOW_NS)
        return kvpi_tool_fail("replay", "the simulated time exceeds 146 years");
    note_step(sim, &time);
    if (note_levels(sim, time.ns) != TOOL_OK)
        return TOOL_FAILED;
    note_ended(sim, sim->step.ended, sim->step.n_ended);
    sim->now_ns += time.ns;
    return sim->step.n_seqs > 0 ? finish_step(sim, began_ns) : TOOL_OK;
}

/* ----------------------------------------------------------------------------------- the loop */

/* A step that did none of this will not do better unless a request arrives. */
static bool did_something(const simulation *sim)
{
    const kvp_step *step = &sim->step;
    return step->n_seqs + step->n_ended + step->n_preempted + step->n_swapped_out +
                   step->n_swapped_in >
               0 ||
           sim->moved.host_tokens + sim->moved.device_tokens + sim->moved.host_states > 0;
}

/* While nothing runs, what is cached stays, and requests may wait for the store. */
static void note_idle(simulation *sim, uint64_t until_ns)
{
    kvp_stats cache = {0};
    kvp_sched_stats sched = {0};
    (void)kvp_cache_stats_get(sim->cache.cache, &cache);
    (void)kvp_sched_stats_get(sim->sched, &sched);
    const kvpi_load_level level = {.waiting = (double)sched.loading_requests,
                                   .cached_blocks = (double)cache.cached_blocks,
                                   .host_cached_blocks = (double)cache.host_cached_blocks};
    kvpi_load_timeline_span(&sim->report->timeline, sim->now_ns, until_ns, &level);
}

/* Nothing can run: wait for an arrival, or for the store. Gives false when neither is to come. */
static bool wait_for_more(simulation *sim)
{
    size_t i;
    uint64_t arrival_ns = KVPI_JOB_NEVER;
    if (sim->door_closed || !next_arrival(sim, &i, &arrival_ns))
        arrival_ns = KVPI_JOB_NEVER;
    uint64_t until_ns = kvpi_loading_wait(&sim->store, sim->now_ns, arrival_ns);
    if (until_ns == KVPI_JOB_NEVER)
        return false;
    note_idle(sim, until_ns);
    sim->now_ns = until_ns;
    return true;
}

static int run_all(simulation *sim)
{
    kvpi_progress progress;
    int status = TOOL_OK;
    bool more = true;
    kvpi_progress_start(&progress, "replaying requests", sim->jobs.n);
    while (more && status == TOOL_OK) {
        status = arrive_all(sim);
        if (status == TOOL_OK)
            status = kvpi_loading_turn(&sim->store, sim->now_ns);
        if (status == TOOL_OK)
            status = make_step(sim);
        if (status == TOOL_OK && did_something(sim))
            status = run_step(sim);
        else if (status == TOOL_OK)
            more = wait_for_more(sim);
        kvpi_progress_update(&progress, sim->n_arrived);
    }
    kvpi_progress_end(&progress);
    return status;
}

/* --------------------------------------------------------------------------------- the report */

static int audit(simulation *sim)
{
    kvp_violation violation;
    if (kvp_sched_check(sim->sched, &violation) != KVP_OK ||
        kvp_cache_check(sim->cache.cache, 2, &violation) != KVP_OK)
        return kvpi_tool_fail("replay", "internal error: invariant %s: %s", violation.invariant,
                              violation.detail);
    if (sim->report->unfinished > 0)
        return kvpi_tool_fail("replay", "%llu requests did not finish",
                              (unsigned long long)sim->report->unfinished);
    if (sim->report->cache.held_blocks > 0 || sim->report->cache.host_held_blocks > 0 ||
        sim->report->hits.state_slots.held_slots + sim->report->hits.state_slots.host_held_slots >
            0)
        return kvpi_tool_fail("replay", "internal error: blocks are held by nobody");
    return TOOL_OK;
}

static int report_all(simulation *sim)
{
    kvpi_load_report *report = sim->report;
    int64_t first_us = kvpi_requests_get(sim->jobs.requests, 0)->timestamp_us;
    int64_t last_us = kvpi_requests_get(sim->jobs.requests, sim->jobs.n - 1)->timestamp_us;
    report->span_us = last_us - first_us;
    report->measured = sim->options->measured;
    report->step = kvpi_histogram_percentiles(sim->steps);
    kvp_status status = kvp_cache_stats_get(sim->cache.cache, &report->cache);
    if (status == KVP_OK)
        status = kvp_sched_stats_get(sim->sched, &report->sched);
    if (status == KVP_OK)
        status = kvp_cache_state_stats_get(sim->cache.cache, &report->hits.state_slots);
    if (status == KVP_OK)
        status = kvpi_learned_read(sim->cache.cache, &report->learned);
    report->hits.state_slots.skipped = report->sched.skipped_checkpoints; /* not asked for, too */
    if (status != KVP_OK)
        return kvpi_replay_cache_fail("reading the counters", status);
    if (sim->closed != NULL &&
        kvpi_jobs_close(&sim->jobs, sim->closed, &report->sessions) != TOOL_OK)
        return TOOL_FAILED;
    if (kvpi_jobs_report(&sim->jobs, report) != TOOL_OK)
        return TOOL_FAILED;
    return audit(sim);
}

static int open_store(simulation *sim)
{
    sim->store.cache = sim->cache.cache;
    sim->store.sched = sim->sched;
    sim->store.jobs = &sim->jobs;
    return kvpi_loading_open(&sim->store, sim->options, sim->cache.ns, &sim->report->store);
}

static int close_store(simulation *sim, int status)
{
    const kvpi_store_report *report = &sim->report->store;
    kvpi_loading_close(&sim->store, &sim->report->load_wait);
    return status == TOOL_OK ? kvpi_store_report_verdict(report) : status;
}

static int run_with_jobs(simulation *sim)
{
    kvp_config config = configure_cache(sim);
    int status = kvpi_replay_cache_open(&config, sim->options->replay.record, NULL, &sim->cache);
    if (status == TOOL_OK)
        status = create_sched(sim);
    if (status == TOOL_OK)
        status = open_store(sim);
    uint64_t start = clock_of(sim);
    if (status == TOOL_OK)
        status = run_all(sim);
    sim->report->wall_ns = clock_of(sim) - start;
    status = close_store(sim, status);
    if (status == TOOL_OK)
        status = report_all(sim);
    kvp_sched_destroy(sim->sched);
    free(sim->copies);
    free(sim->is_from_host);
    free(sim->sampled_jobs);
    free(sim->sampled);
    free(sim->steps);
    return kvpi_replay_cache_close(&sim->cache, status);
}

int kvpi_simulate_run(const kvpi_requests *requests, const kvpi_simulate_options *options,
                      kvpi_load_report *report)
{
    simulation sim = {.options = options, .report = report};
    kvpi_load_timeline_init(&report->timeline);
    if (kvpi_jobs_create(requests, options, &sim.jobs) != TOOL_OK)
        return TOOL_FAILED;
    int status = TOOL_OK;
    if (options->closed.on)
        status = kvpi_closed_create(requests, sim.jobs.n, &options->closed, &sim.closed);
    if (status == TOOL_OK)
        status = run_with_jobs(&sim);
    kvpi_closed_free(sim.closed);
    kvpi_jobs_free(&sim.jobs);
    return status;
}
