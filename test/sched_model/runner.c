/* kvp_sched_model: random calls on a scheduler and on its oracle, compared one by one.
 *
 *   kvp_sched_model [--seed N] [--calls N | --seconds S] [--config I] [--start-at N] [--verbose]
 *
 * Configurations are drawn, each goes through a few hundred calls: submit, step, finish, fail,
 * reclaim, abort, pause, resume, reorder, hold, release, tick, loads, flush, sequences and
 * overlapped steps of the caller's own. Compared are every field of every result, everything that
 * can be asked of every request, and the lengths and tiers of their sequences; KV is checked on a
 * memory of sums (sched_memory.h). At the end of a configuration whatever is left must finish. A
 * run of 200,000 calls or more (of 3,000,000 for the rare ones) fails also when a situation of
 * oracle.h was never met. Exit status: 0 all equal; 1 a difference, or that; 2 wrong usage. */
#include "runner.h"

#include "start_sched.h"

#include <kvpager/steps.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CALLS_OF_A_CONFIG = 400, LONG_RUN = 200000, DRAIN_STEPS = 20000 };

static uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

uint32_t draw(struct run *run, uint32_t below)
{
    return (uint32_t)(next_random(&run->random) % below);
}

void fail(const struct run *run, const char *file, int line, const char *what)
{
    fprintf(stderr,
            "kvp_sched_model: %s, line %d: %s\n  --seed %" PRIu64 " --config %" PRIu64
            ", call %" PRIu64 ", step %" PRIu64 "\n",
            file, line, what, run->seed, run->config_index, run->n_calls, run->step.number);
    exit(1);
}

/* ------------------------------------------------------------------------------- configuration */

/* Layer groups with full attention and windows; or one group with a window. */
static void draw_groups(struct run *run, kvp_config *config)
{
    config->n_groups = 1 + draw(run, 3);
    for (uint32_t g = 0; g < config->n_groups; g++) {
        if (draw(run, 3) > 0)
            config->groups[g] = (kvp_group){draw(run, 2) * draw(run, 9), 1 + draw(run, 24), 0};
        if (config->groups[g].sink_tokens >= 6)
            config->groups[g].sink_tokens = KVP_CHUNKED;
        config->groups[g].block_tokens = config->block_tokens << run->random % 3; /* no draw */
        config->retain_tokens = run->random % 7 < 4 ? KVP_RETAIN_PROMPTS : 0;
    }
    config->n_blocks = 1 + (config->n_blocks - 1) * config->n_groups;
    config->host_blocks *= config->n_groups;
}

static void draw_cache_config(struct run *run)
{
    static const uint32_t pools[] = {2, 3, 4, 6, 9, 12, 16, 24, 36};
    static const uint32_t hosts[] = {0, 2, 4, 8, 16, 30, 60, 100};
    kvp_config *config = &run->cache_config;
    kvp_config_init(config);
    config->block_tokens = 1u << draw(run, 4);
    config->unit_tokens = draw(run, 4) == 0 ? 1 : 0;
    config->n_blocks = 1 + pools[draw(run, 9)];
    config->max_seq_tokens = MAX_TEXT - draw(run, 20);
    config->watermark = draw(run, 4) * 0.1;
    config->commit_policy = draw(run, 4) == 0 ? KVP_KEEP : KVP_ADOPT;
    config->full_hit = draw(run, 4) == 0;
    config->prefix_cache = draw(run, 8) != 0;
    config->host_blocks = hosts[draw(run, 8)];
    config->keep_evicted = draw(run, 2);
    config->steps = draw(run, 2);
    config->max_steps_out = 8;
    config->max_loads = config->host_blocks > 0 ? draw(run, 2) * N_LOADS : 0;
    if (draw(run, 3) == 0)
        draw_groups(run, config);
}

static void draw_config(struct run *run)
{
    kvp_sched_config *config = &run->config;
    draw_cache_config(run);
    kvp_sched_config_init(config);
    config->max_requests = MAX_REQUESTS - draw(run, 3) * 3;
    config->max_samples = config->max_requests + draw(run, 20);
    config->max_running = draw(run, 8) == 0 ? 1 : 2 + draw(run, 11);
    config->step_tokens = config->max_running + (draw(run, 4) == 0 ? 0 : draw(run, 30));
    config->chunk_tokens = draw(run, 2) ? 1 + draw(run, 8) : 0;
    config->max_passed_over = draw(run, 4);
    config->max_tries = 1 + draw(run, 4);
    config->arena_tokens = draw(run, 4) == 0 ? 640 : 8192;
    config->preempt = draw(run, 3);
    config->swap_ahead = draw(run, 2);
    config->max_loading = draw(run, 3) * draw(run, 3);
    config->wait_for_prefix = draw(run, 2);
    config->swap_cost = draw(run, 4);
    config->swap_block_cost = draw(run, 6);
    config->recompute_cost = draw(run, 3);
    config->recompute_token_cost = draw(run, 3);
    run->cache_config.max_seqs = config->max_running + draw(run, 2) * draw(run, 16);
    if (draw(run, 2))
        run->cache_config.max_copies = config->max_running + draw(run, 8);
    states_draw(run);
    drafts_draw(run);
}

static void begin(struct run *run)
{
    draw_config(run);
    run->reclaim_random = run->random;
    if (run->config_index % 3 == 1) /* the others are as if the call were not there */
        run->config.free_target = (run->cache_config.n_blocks - 1 + 63) / 64;
    REQUIRE(kvp_cache_bytes(&run->cache_config, &run->arena_bytes) == KVP_OK);
    run->arena = aligned_alloc(64, run->arena_bytes);
    run->copy = aligned_alloc(64, run->arena_bytes);
    REQUIRE(run->arena != NULL && run->copy != NULL);
    REQUIRE(kvp_cache_create(&run->cache_config, run->arena, run->arena_bytes, &run->cache) ==
            KVP_OK);
    start_cache(run->cache);
    REQUIRE(kvp_ns_open(run->cache, "a", 1, &run->ns) == KVP_OK);
    REQUIRE(kvp_sched_create(&run->config, run->cache, NULL, 0, &run->sched) == KVP_OK);
    start_sched(run->sched);
    REQUIRE(sched_memory_create(&run->memory, run->cache));
    REQUIRE(sched_states_create(&run->states, run->cache, 0));
    oracle_begin(&run->o, &run->config, run->cache);
    run->o.arrivals = run->n_submitted = start_number();
}

static void end(struct run *run)
{
    kvp_sched_destroy(run->sched);
    kvp_cache_destroy(run->cache);
    free(run->arena);
    free(run->copy);
    sched_memory_destroy(&run->memory);
    sched_states_destroy(&run->states);
}

/* ------------------------------------------------------------------------------------ compare */

static uint32_t state_of(const request *r)
{
    if (r->is_paused || r->is_held)
        return r->is_held ? KVP_REQUEST_LOADING : KVP_REQUEST_PAUSED;
    return r->where == NOWHERE   ? KVP_REQUEST_WAITING
           : r->where == ON_HOST ? KVP_REQUEST_SWAPPED
                                 : KVP_REQUEST_RUNNING;
}

static void compare_sample(struct run *run, const request *r, uint32_t idx)
{
    const sample *s = &r->samples[idx];
    kvp_sample_info info;
    kvp_seq_info seq_info;
    int32_t text[MAX_TEXT];
    REQUIRE(kvp_request_sample(run->sched, r->handle, idx, &info) == KVP_OK);
    REQUIRE(info.n_tokens == s->n);
    REQUIRE((int)info.has_ended == s->has_ended);
    REQUIRE(info.seq.bits == s->seq.bits);
    REQUIRE(kvp_request_tokens(run->sched, r->handle, idx, (kvp_range){0, s->n}, text) == KVP_OK);
    REQUIRE(memcmp(text, s->text, s->n * sizeof *text) == 0);
    if (s->seq.bits == 0)
        return;
    REQUIRE(info.computed_tokens == s->computed);
    REQUIRE(kvp_seq_info_get(run->cache, s->seq, &seq_info) == KVP_OK);
    REQUIRE(seq_info.n_tokens == s->core);
    REQUIRE(seq_info.tier == (r->where == ON_HOST ? KVP_HOST : KVP_DEVICE));
}

static void compare_requests(struct run *run)
{
    for (uint32_t i = 0; i < MAX_REQUESTS; i++) {
        const request *r = &run->o.requests[i];
        kvp_request_info info;
        if (!r->is_here)
            continue;
        REQUIRE(kvp_request_info_get(run->sched, r->handle, &info) == KVP_OK);
        REQUIRE(info.state == state_of(r));
        REQUIRE(info.holds_blocks == (r->where == ON_DEVICE));
        REQUIRE(info.is_swapped == (r->where == ON_HOST));
        REQUIRE(info.n_live == oracle_live(r));
        REQUIRE(info.passed_over == r->passed);
        REQUIRE(info.preemptions == r->preemptions);
        REQUIRE(info.swaps == r->swaps);
        REQUIRE(info.arrival == r->arrival);
        REQUIRE(info.load_deadline == (r->is_held ? r->held_until : r->load_deadline));
        REQUIRE(info.flags == (r->never_loads ? KVP_SUBMIT_NO_LOAD : 0u));
        for (uint32_t j = 0; j < r->n_samples; j++)
            compare_sample(run, r, j);
    }
}

static void compare_stats(struct run *run)
{
    const oracle *o = &run->o;
    kvp_sched_stats stats;
    uint64_t n_by_state[5] = {0};
    uint64_t n_here = 0, promised = 0, promised_slots = 0;
    uint64_t n_seqs[3] = {0};
    REQUIRE(kvp_sched_stats_get(run->sched, &stats) == KVP_OK);
    for (uint32_t i = 0; i < MAX_REQUESTS; i++) {
        const request *r = &o->requests[i];
        if (!r->is_here)
            continue;
        n_here++;
        n_by_state[state_of(r)]++;
        n_seqs[r->where] += oracle_live(r);
        promised += r->promised;
        promised_slots += r->promised_slots;
    }
    REQUIRE(stats.waiting_requests == n_by_state[KVP_REQUEST_WAITING]);
    REQUIRE(stats.running_requests == n_by_state[KVP_REQUEST_RUNNING]);
    REQUIRE(stats.swapped_requests == n_by_state[KVP_REQUEST_SWAPPED]);
    REQUIRE(stats.paused_requests == n_by_state[KVP_REQUEST_PAUSED]);
    REQUIRE(stats.loading_requests == n_by_state[KVP_REQUEST_LOADING]);
    REQUIRE(stats.held == o->n_held && stats.released == o->n_released);
    REQUIRE(stats.expired == o->n_expired && stats.dropped == o->n_dropped);
    REQUIRE(stats.skipped == o->n_skipped && stats.followed == o->n_followed);
    REQUIRE(stats.running_seqs == n_seqs[ON_DEVICE] && stats.swapped_seqs == n_seqs[ON_HOST]);
    REQUIRE(stats.promised_blocks == promised && stats.promised_slots == promised_slots);
    REQUIRE(stats.checkpoints == o->n_checkpoints);
    REQUIRE(stats.skipped_checkpoints == o->n_skipped_checkpoints);
    REQUIRE(stats.submitted == stats.ended + stats.aborted + n_here);
    REQUIRE(stats.refused == run->n_refused);
    REQUIRE(stats.recomputed == o->n_preempted && stats.swapped_out == o->n_swapped_out);
    REQUIRE(stats.preemptions == o->n_preempted + o->n_swapped_out);
    REQUIRE(stats.swapped_ahead == o->n_swapped_ahead && stats.swapped_in == o->n_swapped_in);
    REQUIRE(stats.lost_tokens == o->lost_tokens);
    drafts_compare_stats(run, &stats);
}

static void compare_lists(struct run *run)
{
    const step_plan *plan = &run->o.plan;
    const kvp_step *step = &run->step;
    REQUIRE(step->n_admitted == plan->n_admitted);
    REQUIRE(step->n_preempted == plan->n_preempted);
    REQUIRE(step->n_swapped_out == plan->n_swapped_out);
    REQUIRE(step->n_swapped_in == plan->n_swapped_in);
    REQUIRE(step->n_left_out == plan->n_left_out);
    REQUIRE(step->n_loading == plan->n_loading);
    REQUIRE(step->n_ended == plan->n_ended);
    const size_t size = sizeof(kvp_request);
    REQUIRE(memcmp(step->admitted, plan->admitted, step->n_admitted * size) == 0);
    REQUIRE(memcmp(step->preempted, plan->preempted, step->n_preempted * size) == 0);
    REQUIRE(memcmp(step->swapped_out, plan->swapped_out, step->n_swapped_out * size) == 0);
    REQUIRE(memcmp(step->swapped_in, plan->swapped_in, step->n_swapped_in * size) == 0);
    REQUIRE(memcmp(step->waited, plan->waited, sizeof plan->waited) == 0);
    REQUIRE(memcmp(step->waited_swapped, plan->waited_swapped, sizeof plan->waited_swapped) == 0);
}

static void compare_ended(struct run *run, const kvp_ended *ended, const kvp_ended *expected,
                          uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        REQUIRE(ended[i].request.bits == expected[i].request.bits);
        REQUIRE(ended[i].tag == expected[i].tag && ended[i].sample == expected[i].sample);
        REQUIRE(ended[i].reason == expected[i].reason && ended[i].status == expected[i].status);
        REQUIRE(ended[i].new_tokens == expected[i].new_tokens);
        REQUIRE(ended[i].is_last == expected[i].is_last);
    }
}

/* The oracle's items, put in the scheduler's order where that is free: those that decode. */
static void sort_items(struct run *run)
{
    step_plan *plan = &run->o.plan;
    for (uint32_t i = 0; i < run->step.n_decoding; i++) {
        const kvp_step_seq *item = &run->step.seqs[i];
        uint32_t j = i;
        while (j < plan->n_items &&
               (!plan->items[j].decodes || plan->items[j].sample != item->sample ||
                run->o.requests[plan->items[j].request].handle.bits != item->request.bits))
            j++;
        REQUIRE(j < plan->n_items);
        const plan_item other = plan->items[i];
        plan->items[i] = plan->items[j];
        plan->items[j] = other;
    }
}

static void compare_items(struct run *run)
{
    const step_plan *plan = &run->o.plan;
    const kvp_step *step = &run->step;
    uint32_t n_tokens = 0, n_sampled = 0;
    REQUIRE(step->n_seqs == plan->n_items);
    sort_items(run);
    drafts_compare(run);
    for (uint32_t i = 0; i < step->n_seqs; i++) {
        const kvp_step_seq *item = &step->seqs[i];
        const request *r = &run->o.requests[plan->items[i].request];
        const sample *s = &r->samples[plan->items[i].sample];
        REQUIRE(plan->items[i].decodes == (i < step->n_decoding));
        REQUIRE(item->request.bits == r->handle.bits && item->sample == plan->items[i].sample);
        REQUIRE(item->seq.bits == s->seq.bits);
        REQUIRE(item->begin == plan->items[i].begin);
        REQUIRE(item->n_tokens == plan->items[i].n_tokens);
        REQUIRE(item->n_sampled == plan->items[i].n_sampled);
        REQUIRE(memcmp(step->tokens + n_tokens, s->text + item->begin,
                       item->n_tokens * sizeof(int32_t)) == 0);
        n_tokens += item->n_tokens;
        n_sampled += item->n_sampled;
    }
    REQUIRE(step->n_tokens == n_tokens && step->n_sampled == n_sampled);
    REQUIRE(n_tokens <= run->config.step_tokens && step->n_seqs <= run->config.max_running);
}

/* The copy of the cache, in which the oracle did its step, and the cache. */
static void compare_caches(struct run *run)
{
    const kvp_cache *copy = run->copy;
    kvp_stats a, b;
    for (uint32_t i = 0; i < MAX_REQUESTS; i++) {
        const request *r = &run->o.requests[i];
        for (uint32_t j = 0; r->is_here && j < r->n_samples; j++) {
            kvp_seq_info x, y;
            if (r->samples[j].seq.bits == 0)
                continue;
            REQUIRE(kvp_seq_info_get(run->cache, r->samples[j].seq, &x) == KVP_OK);
            REQUIRE(kvp_seq_info_get(copy, r->samples[j].seq, &y) == KVP_OK);
            REQUIRE(x.n_tokens == y.n_tokens && x.computed_tokens == y.computed_tokens);
            REQUIRE(x.n_blocks == y.n_blocks && x.tier == y.tier);
        }
    }
    REQUIRE(!kvp_cache_stats_get(run->cache, &a) && !kvp_cache_stats_get(copy, &b));
    REQUIRE(a.free_blocks == b.free_blocks && a.cached_blocks == b.cached_blocks);
    REQUIRE(a.host_free_blocks == b.host_free_blocks && a.parked_blocks == b.parked_blocks);
    REQUIRE(a.pending_copies == b.pending_copies && a.open_seqs == b.open_seqs);
    states_compare(run, 1);
    REQUIRE(run->o.wrong == NULL);
}

static void compare(struct run *run)
{
    kvp_violation violation;
    if (kvp_cache_check(run->cache, 3, &violation) != KVP_OK ||
        kvp_sched_check(run->sched, &violation) != KVP_OK)
        fail(run, __FILE__, __LINE__, violation.detail);
    compare_requests(run);
    compare_stats(run);
}

/* ------------------------------------------------------------------------------------- submit */

/* Mostly short, and mostly one that the pool can hold. */
static uint32_t draw_length(struct run *run, uint32_t most)
{
    const uint32_t fits = run->o.usable * run->cache_config.block_tokens;
    const uint32_t longest = draw(run, 3) == 0 ? most : 12;
    const uint32_t n = 1 + draw(run, longest);
    return n > fits && draw(run, 8) ? 1 + n % fits : n;
}

static kvp_prompt draw_prompt(struct run *run, int32_t *text)
{
    kvp_prompt prompt = {.struct_size = sizeof prompt, .tokens = text};
    prompt.n_tokens = draw_length(run, MAX_PROMPT);
    prompt.tag = run->n_submitted + 1;
    prompt.flags = draw(run, 12) == 0 ? KVP_OPEN_NO_MATCH : 0;
    const uint32_t same = draw(run, 2) ? prompt.n_tokens : draw(run, MAX_PROMPT);
    for (uint32_t i = 0; i < prompt.n_tokens; i++)
        text[i] = i < same ? (int32_t)(i / 8) : (int32_t)draw(run, 3);
    return prompt;
}

static void submit(struct run *run)
{
    int32_t text[MAX_TEXT];
    const kvp_prompt prompt = draw_prompt(run, text);
    const uint32_t most_samples = run->o.usable > 6 || draw(run, 8) == 0 ? MAX_SAMPLES : 1;
    const kvp_submission submission = {
        .struct_size = sizeof submission,
        .prompt = &prompt,
        .ns = run->ns,
        .priority = draw(run, 4) == 0 ? (int32_t)draw(run, 3) - 1 : 0,
        .n_samples = draw(run, 5) < 2 ? 1 + draw(run, most_samples) : 1,
        .max_new_tokens = draw_length(run, MAX_NEW),
        .flags = draw(run, 8) == 0 ? KVP_SUBMIT_NO_LOAD : 0,
        .load_deadline = draw(run, 4) == 0 ? run->now + draw(run, 12) : 0};
    kvp_sched_limit limit = {0, 0};
    kvp_sched_limit expected = {0, 0};
    kvp_request handle;
    request *r = NULL;
    uint32_t n_here = 0;
    for (uint32_t i = 0; i < MAX_REQUESTS; i++)
        n_here += (uint32_t)run->o.requests[i].is_here;
    if (n_here == MAX_REQUESTS)
        return;
    const kvp_status status = kvp_sched_submit(run->sched, &submission, &handle, &limit);
    REQUIRE(status == oracle_submit(&run->o, &submission, &expected, &r));
    run->n_refused += status != KVP_OK && status != KVP_E_ARG;
    if (status == KVP_OK || status == KVP_E_NEVER || status == KVP_E_TOO_LONG)
        REQUIRE(memcmp(&limit, &expected, sizeof limit) == 0);
    if (status == KVP_OK) {
        r->handle = handle;
        run->is_beam[r - run->o.requests] = r->n_samples > 1 && draw(run, 2);
        run->n_submitted++;
    }
}

/* --------------------------------------------------------------------------------- step, finish */

static int is_overlapped(const struct run *run)
{
    return run->cache_config.steps == KVP_STEPS_OVERLAPPED;
}

static void take_plan(struct run *run, kvp_copy *copies, uint32_t *n, uint64_t *number)
{
    REQUIRE((is_overlapped(run) ? kvp_step_begin(run->cache, copies, MAX_COPIES, n, number)
                                : kvp_plan_take(run->cache, copies, MAX_COPIES, n)) == KVP_OK);
}

/* A step of the caller's own, with nothing but a plan, that is out for a while. */
static void step_own(struct run *run)
{
    kvp_copy copies[MAX_COPIES];
    uint32_t n;
    if (!is_overlapped(run) || run->is_out)
        return;
    if (run->own_step != 0) {
        REQUIRE(kvp_step_done(run->cache, run->own_step, NULL) == KVP_OK);
        run->own_step = 0;
    } else if (draw(run, 2)) {
        take_plan(run, copies, &n, &run->own_step);
        REQUIRE(sched_memory_copy(&run->memory, copies, n));
    }
}

/* Steps that are done wait for one before them; not for too long. */
static void limit_steps(struct run *run)
{
    kvp_stats stats;
    REQUIRE(kvp_cache_stats_get(run->cache, &stats) == KVP_OK);
    if (stats.steps_out == run->cache_config.max_steps_out)
        step_own(run);
}

/* The plan runs, then the forward pass: writes, then reads. */
static void run_work(struct run *run)
{
    const step_plan *plan = &run->o.plan;
    REQUIRE(sched_memory_copy(&run->memory, run->copies, run->n_copies));
    REQUIRE(sched_states_copy(&run->states, run->copies, run->n_copies));
    loading_plan_has_run(run);
    states_check_step(run);
    for (int is_reading = 0; is_reading < 2; is_reading++) {
        for (uint32_t i = 0; i < run->step.n_seqs; i++) {
            const kvp_step_seq *item = &run->step.seqs[i];
            const kvp_range range = drafts_range(run, i, !is_reading);
            if (plan->items[i].request == GONE)
                continue;
            const int32_t *text =
                run->o.requests[plan->items[i].request].samples[item->sample].text;
            REQUIRE(is_reading
                        ? sched_memory_read(&run->memory, run->cache, item->seq, text, range)
                        : sched_memory_write(&run->memory, run->cache, item->seq, text, range));
            REQUIRE(
                sched_states_pass(&run->states, run->cache, item->seq, text, range, is_reading));
        }
    }
    if (is_overlapped(run))
        REQUIRE(kvp_step_done(run->cache, run->number, NULL) == KVP_OK);
}

static void make_step(struct run *run)
{
    if (run->is_out) {
        REQUIRE(kvp_sched_step(run->sched, &run->step) == KVP_E_STATE);
        return;
    }
    limit_steps(run);
    memcpy(run->copy, run->arena, run->arena_bytes);
    REQUIRE(kvp_sched_step(run->sched, &run->step) == KVP_OK);
    run->o.made = &run->step;
    oracle_step(&run->o, run->copy);
    compare_lists(run);
    compare_ended(run, run->step.ended, run->o.plan.ended, run->step.n_ended);
    compare_items(run);
    compare_caches(run);
    take_plan(run, run->copies, &run->n_copies, &run->number);
    run->is_out = run->step.n_seqs > 0;
    if (!run->is_out)
        run_work(run);
}

/* Handles of sequences that the scheduler has opened in between. */
void learn_handles(struct run *run, int all)
{
    for (uint32_t i = 0; i < MAX_REQUESTS; i++) {
        request *r = &run->o.requests[i];
        for (uint32_t j = 0; r->is_here && j < r->n_samples; j++) {
            kvp_sample_info info;
            REQUIRE(kvp_request_sample(run->sched, r->handle, j, &info) == KVP_OK);
            if (r->samples[j].seq.bits == 1 || (all && r->samples[j].seq.bits != 0))
                r->samples[j].seq = info.seq;
        }
    }
}

static void reorder(struct run *run, request *r, int is_wild)
{
    uint32_t parents[MAX_SAMPLES];
    int32_t tokens[MAX_SAMPLES];
    for (uint32_t i = 0; i < r->n_samples; i++) {
        do {
            parents[i] = draw(run, r->n_samples + (is_wild && draw(run, 20) == 0));
        } while (!is_wild && r->samples[parents[i]].has_ended);
        tokens[i] = (int32_t)draw(run, 3) - (is_wild && draw(run, 40) == 0);
    }
    const int32_t *newest = draw(run, 4) ? tokens : NULL;
    const kvp_status status = oracle_reorder(&run->o, r, parents, newest);
    REQUIRE(kvp_sched_reorder(run->sched, r->handle, parents, newest) == status);
    if (status == KVP_OK)
        states_are_reordered(run, r);
    REQUIRE(is_wild || status == KVP_OK);
}

static void reorder_beams(struct run *run, const int *has_sampled)
{
    for (uint32_t i = 0; i < MAX_REQUESTS; i++)
        if (has_sampled[i] && run->is_beam[i] && run->o.requests[i].is_here)
            reorder(run, &run->o.requests[i], 0);
}

static void close_own(struct run *run)
{
    for (uint32_t i = 0; i < N_OWN; i++) {
        if (run->own[i].bits != 0)
            REQUIRE(kvp_seq_close(run->cache, run->own[i], NULL) == KVP_OK);
        run->own[i].bits = 0;
    }
}

static void finish(struct run *run)
{
    struct results results;
    kvp_ended expected[MAX_SEQS];
    kvp_step_end step_end = {0, NULL};
    int has_sampled[MAX_REQUESTS + 1] = {0};
    uint32_t n_expected;
    if (!run->is_out) {
        REQUIRE(kvp_sched_finish(run->sched, NULL, NULL, NULL) == KVP_E_STATE);
        return;
    }
    drafts_draw_results(run, &results);
    for (uint32_t i = 0; i < run->o.plan.n_items; i++)
        has_sampled[run->o.plan.items[i].request] |= run->o.plan.items[i].n_sampled > 0;
    run_work(run);
    memcpy(run->copy, run->arena, run->arena_bytes);
    kvp_status status = drafts_finish(run, &results, &step_end);
    if (status == KVP_E_NO_SEQS) { /* only for sequences of ours */
        close_own(run);
        memcpy(run->copy, run->arena, run->arena_bytes);
        status = drafts_finish(run, &results, &step_end);
    }
    REQUIRE(status == KVP_OK);
    if (run->cache_config.state_slots > 0)
        oracle_keep(&run->o, run->copy);
    states_compare(run, 0);
    oracle_finish(&run->o, results.tokens, results.ended, expected, &n_expected);
    learn_handles(run, 0);
    REQUIRE(step_end.n_ended == n_expected);
    compare_ended(run, step_end.ended, expected, n_expected);
    run->is_out = 0;
    reorder_beams(run, has_sampled);
}

/* The oracle does it to a copy of the cache. */
static void reclaim(struct run *run)
{
    uint32_t n = 0;
    if (!run->is_out) {
        REQUIRE(kvp_sched_reclaim(run->sched, &n) == KVP_E_STATE);
        return;
    }
    memcpy(run->copy, run->arena, run->arena_bytes);
    const uint32_t expected = oracle_reclaim(&run->o, run->copy);
    REQUIRE(kvp_sched_reclaim(run->sched, &n) == KVP_OK);
    REQUIRE(n == expected);
    compare_caches(run);
}

/* With ordered steps the plan has run at least. */
static void fail_step(struct run *run)
{
    if (!run->is_out) {
        REQUIRE(kvp_sched_fail(run->sched) == KVP_E_STATE);
        return;
    }
    if (is_overlapped(run)) {
        REQUIRE(sched_memory_spoil(&run->memory, run->copies, run->n_copies));
        states_spoil(run);
        REQUIRE(kvp_step_failed(run->cache, run->number, NULL, 0, NULL) == KVP_OK);
    } else {
        REQUIRE(sched_memory_copy(&run->memory, run->copies, run->n_copies));
        REQUIRE(sched_states_copy(&run->states, run->copies, run->n_copies));
        loading_plan_has_run(run);
        states_spoil(run);
    }
    oracle_fail(&run->o, run->cache);
    REQUIRE(kvp_sched_fail(run->sched) == KVP_OK);
    run->is_out = 0;
}

/* --------------------------------------------------------------------------------- other calls */

static void use_own(struct run *run)
{
    const uint32_t i = draw(run, N_OWN);
    int32_t text[MAX_TEXT];
    const request *r = &run->o.requests[draw(run, MAX_REQUESTS)];
    if (run->own[i].bits != 0) {
        REQUIRE(kvp_seq_close(run->cache, run->own[i], NULL) == KVP_OK);
        run->own[i].bits = 0;
    } else if (draw(run, 2)) {
        return; /* mostly there are none */
    } else if (r->is_here && r->where == ON_DEVICE && r->samples[0].seq.bits != 0 && draw(run, 2)) {
        if (kvp_seq_fork(run->cache, r->samples[0].seq, r->samples[0].computed, 0, &run->own[i]) !=
            KVP_OK)
            run->own[i].bits = 0;
    } else {
        const kvp_prompt prompt = draw_prompt(run, text);
        if (kvp_seq_open(run->cache, run->ns, &prompt, &run->own[i], NULL) != KVP_OK)
            run->own[i].bits = 0;
    }
}

static void abort_request(struct run *run, request *r)
{
    REQUIRE(kvp_sched_abort(run->sched, r->handle) == KVP_OK);
    oracle_abort(&run->o, r);
}

static void pause_request(struct run *run, request *r)
{
    REQUIRE(kvp_sched_pause(run->sched, r->handle) == KVP_OK);
    oracle_pause(&run->o, r);
}

static void resume_request(struct run *run, request *r)
{
    REQUIRE(kvp_sched_resume(run->sched, r->handle) == KVP_OK);
    oracle_resume(&run->o, r);
}

/* Waiting requests of a namespace that is closed are refused. */
static void renew_or_flush(struct run *run)
{
    if (draw(run, 4)) {
        REQUIRE(kvp_ns_flush(run->cache, run->ns) == KVP_OK);
    } else {
        loading_cancel_all(run);
        REQUIRE(kvp_ns_close(run->cache, run->ns) == KVP_OK);
        REQUIRE(kvp_ns_open(run->cache, "a", 1, &run->ns) == KVP_OK);
    }
}

static void call_request(struct run *run, request *r)
{
    const uint32_t call = draw(run, 16);
    if (!r->is_here)
        return;
    if (call < 2)
        abort_request(run, r);
    else if (call < 7)
        pause_request(run, r);
    else if (call < 14)
        resume_request(run, r);
    else
        reorder(run, r, 1);
}

static void call_anything(struct run *run)
{
    const uint32_t call = draw(run, 288);
    if (next_random(&run->reclaim_random) % 4 == 0)
        reclaim(run);
    if (call < 4)
        make_step(run); /* also when one is out */
    else if (call < 8)
        finish(run);
    else if (call < 180)
        run->is_out ? finish(run) : make_step(run);
    else if (call < 215)
        submit(run);
    else if (call < 218)
        fail_step(run);
    else if (call < 219)
        renew_or_flush(run);
    else if (call < 226)
        use_own(run);
    else if (call < 232)
        step_own(run);
    else if (call < 256)
        call_request(run, &run->o.requests[draw(run, MAX_REQUESTS)]);
    else
        loading_call(run);
    compare(run);
    run->n_calls++;
}

/* Whatever is left finishes, and everything comes back. */
static void drain(struct run *run)
{
    kvp_stats stats;
    if (run->is_out)
        finish(run);
    close_own(run);
    if (run->own_step != 0)
        step_own(run);
    for (uint32_t i = 0; i < MAX_REQUESTS; i++)
        if (run->o.requests[i].is_here)
            resume_request(run, &run->o.requests[i]);
    loading_release_all(run);
    for (uint32_t n_steps = 0;; n_steps++) {
        uint32_t n_here = 0;
        for (uint32_t i = 0; i < MAX_REQUESTS; i++)
            n_here += (uint32_t)run->o.requests[i].is_here;
        if (n_here == 0)
            break;
        REQUIRE(n_steps < DRAIN_STEPS);
        make_step(run);
        if (run->is_out)
            finish(run);
        compare(run);
    }
    make_step(run); /* what our own sequences left in the plan */
    REQUIRE(kvp_cache_stats_get(run->cache, &stats) == KVP_OK);
    REQUIRE(stats.open_seqs == 0 && stats.held_blocks == 0 && stats.host_held_blocks == 0);
}

/* ---------------------------------------------------------------------------------------- main */

static void run_config(uint64_t seed, uint64_t index, uint64_t *met)
{
    static struct run run;
    memset(&run, 0, sizeof run);
    run.seed = seed;
    run.config_index = index;
    run.random = seed * UINT64_C(0x2545F4914F6CDD1D) + index * UINT64_C(0xD1342543DE82EF95);
    begin(&run);
    while (run.n_calls < CALLS_OF_A_CONFIG)
        call_anything(&run);
    drain(&run);
    for (uint32_t i = 0; i < N_SITUATIONS; i++)
        met[i] += run.o.met[i];
    end(&run);
}

int main(int argc, char **argv)
{
    static uint64_t met[N_SITUATIONS];
    uint64_t seed = 1, n_calls = LONG_RUN, n_seconds = 0, config = UINT64_MAX, start = 0;
    const char *const names[] = {"--seed", "--calls", "--seconds", "--config", "--start-at"};
    uint64_t *const numbers[] = {&seed, &n_calls, &n_seconds, &config, &start};
    int is_verbose = 0, is_good = 1;
    for (int i = 1; i < argc && is_good; i++) {
        is_good = strcmp(argv[i], "--verbose") == 0;
        is_verbose |= is_good;
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers && !is_good && i + 1 < argc; k++) {
            if (strcmp(argv[i], names[k]) == 0) {
                *numbers[k] = strtoull(argv[++i], NULL, 0);
                is_good = 1;
            }
        }
    }
    if (!is_good || !start_at(start)) {
        fprintf(stderr, "usage: kvp_sched_model [--seed N] [--calls N | --seconds S] [--config I] "
                        "[--start-at N, in a library with checks] [--verbose]\n");
        return 2;
    }
    if (config != UINT64_MAX) {
        run_config(seed, config, met);
        return report(met, CALLS_OF_A_CONFIG, is_verbose);
    }
    const time_t begin = time(NULL);
    uint64_t n = 0;
    for (; n_seconds > 0 ? difftime(time(NULL), begin) < (double)n_seconds
                         : n * CALLS_OF_A_CONFIG < n_calls;
         n++)
        run_config(seed, n, met);
    return report(met, n * CALLS_OF_A_CONFIG, is_verbose);
}
