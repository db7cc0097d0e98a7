/* Requests behind the scheduler, over a device that fails any of its steps: each request still gets
 * all its tokens, and nobody reads KV that is not its own. Some are held for a while, as for a
 * store; after a step that failed they may be held again. */
#include "faults.h"

#include "sched_world.h"
#include "tiers.h"

enum { REQUESTS = 20, SAMPLES = 3, MOST_STEPS = 2000, MOST_SAMPLED = 64 };

typedef struct sched_run {
    sched_world s;
    uint64_t random;
    kvp_request handles[REQUESTS];
    uint32_t n_samples[REQUESTS];
    uint64_t sums[REQUESTS][SAMPLES]; /* of the tokens that were sampled */
    uint32_t n;
    uint64_t now;         /* the clock of the holds */
    uint64_t hold_random; /* of their own: a step that fails changes who is held, nothing else */
    uint64_t n_held;
} sched_run;

static sched_world make(uint64_t seed)
{
    uint64_t random = seed;
    sched_world s = {.reads_kv = 1};
    kvp_config config =
        tiers_config(4, draw(&random, 2) ? 2 : 4, 14 + draw(&random, 8), draw(&random, 2) ? 16 : 0);
    kvp_sched_config sched = sched_config_of(8, 24);
    config.max_seqs = 20;
    config.steps = draw(&random, 2) ? KVP_STEPS_OVERLAPPED : KVP_STEPS_ORDERED;
    sched.preempt = draw(&random, 3);
    sched.chunk_tokens = draw(&random, 2) ? 5 : 0;
    sched.max_loading = draw(&random, 2) ? 3 : 0;
    sched.wait_for_prefix = draw(&random, 2);
    s.w = make_world(&config);
    s.is_overlapped = config.steps == KVP_STEPS_OVERLAPPED;
    CALL(&s.w, KVP_E_NO_MEMORY, kvp_sched_create(&sched, s.w.cache, NULL, 0, &s.sched));
    assert_true(sched_memory_create(&s.memory, s.w.cache));
    return s;
}

/* A few at a time; half of them begin as another one does. */
static void submit_some(sched_run *run)
{
    for (uint32_t n = draw(&run->random, 3); n > 0 && run->n < REQUESTS; n--) {
        const int32_t first = 100 * (int32_t)draw(&run->random, 4);
        const uint32_t prompt = 1 + draw(&run->random, 24);
        const uint32_t more = 1 + draw(&run->random, 12);
        const uint32_t samples = draw(&run->random, 4) ? 1 : 1 + draw(&run->random, SAMPLES);
        run->n_samples[run->n] = samples;
        run->handles[run->n++] =
            submit_rank(&run->s, first, prompt, more, (int32_t)draw(&run->random, 2), samples);
    }
}

/* Of those that may be held some are, for at most three steps. One of them ends earlier. */
static void hold_some(sched_run *run)
{
    kvp_request found[REQUESTS];
    kvp_sched_expired expired;
    uint32_t n = 0;
    assert_ok(kvp_sched_tick(run->s.sched, run->now++, &expired));
    assert_ok(kvp_sched_loadable(run->s.sched, REQUESTS, found, &n));
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(request_of(&run->s, found[i]).state, KVP_REQUEST_WAITING);
        if (draw(&run->hold_random, 2)) {
            assert_ok(kvp_sched_skip_load(run->s.sched, found[i]));
        } else if (sched_stats_of(&run->s).loading_requests < 3) {
            assert_ok(
                kvp_sched_hold(run->s.sched, found[i], run->now + 1 + draw(&run->hold_random, 3)));
            assert_int_equal(request_of(&run->s, found[i]).state, KVP_REQUEST_LOADING);
            run->n_held++;
        }
    }
    if (n > 0 && request_of(&run->s, found[0]).state == KVP_REQUEST_LOADING &&
        draw(&run->hold_random, 2))
        assert_ok(kvp_sched_release(run->s.sched, found[0]));
    check_sched(&run->s);
}

static uint32_t find(const sched_run *run, kvp_request handle)
{
    for (uint32_t i = 0; i < run->n; i++)
        if (run->handles[i].bits == handle.bits)
            return i;
    fail_msg("a step has a request that nobody submitted");
    return 0;
}

/* What is sampled follows from the request, the sample and the position. */
static void sample_all(sched_run *run, const kvp_step *step, int32_t *out_tokens)
{
    sched_sampled of[MOST_SAMPLED];
    const uint32_t n = sched_sampled_of(step, of, MOST_SAMPLED);
    assert_int_equal(n, step->n_sampled);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t request = find(run, of[i].request), sample = of[i].sample;
        const uint32_t position = sample_of(&run->s, of[i].request, sample).n_tokens;
        out_tokens[i] = (int32_t)((request * 31 + sample * 7 + position) % 50);
        run->sums[request][sample] = sched_memory_sum(run->sums[request][sample], out_tokens[i]);
    }
}

static void fail_step(sched_world *s)
{
    if (s->is_overlapped) {
        assert_true(sched_memory_spoil(&s->memory, s->copies, s->n_copies));
        assert_ok(kvp_step_failed(s->w.cache, s->number, NULL, 0, NULL));
    } else { /* the plan has run at least */
        assert_true(sched_memory_copy(&s->memory, s->copies, s->n_copies));
    }
    assert_ok(kvp_sched_fail(s->sched));
    check_sched(s);
}

static void run_one(sched_run *run)
{
    sched_world *s = &run->s;
    int32_t tokens[MOST_SAMPLED];
    hold_some(run);
    const kvp_step step = make_step(s);
    for (uint32_t i = 0; i < step.n_seqs; i++)
        assert_int_equal(request_of(s, step.seqs[i].request).state, KVP_REQUEST_RUNNING);
    if (step.n_seqs == 0)
        return;
    if (fault_comes(SEAM_step)) {
        fail_step(s);
        return;
    }
    run_work(s, &step);
    sample_all(run, &step, tokens);
    assert_ok(kvp_sched_finish(s->sched, tokens, NULL, NULL));
    check_sched(s);
}

void scene_sched(uint64_t seed)
{
    static sched_run run;
    memset(&run, 0, sizeof(run));
    run.s = make(seed);
    run.random = run.hold_random = seed;
    for (uint32_t i = 0; run.n < REQUESTS || sched_stats_of(&run.s).ended < REQUESTS; i++) {
        assert_true(i < MOST_STEPS);
        submit_some(&run);
        run_one(&run);
    }
    const kvp_sched_stats stats = sched_stats_of(&run.s);
    assert_int_equal(stats.held, run.n_held);
    assert_int_equal(stats.released + stats.expired, run.n_held);
    assert_int_equal(stats.loading_requests + stats.dropped, 0);
    fault_mix(run.sums, sizeof(run.sums));
    end_sched_world(&run.s);
}
