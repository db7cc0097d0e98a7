/* The scheduler's audit: each thing that it looks at is spoilt, once, and it must say so. */
#include "sched_world.h"

#include "sched/sched_state.h"

#include <string.h>

struct scene {
    sched_world s;
    kvp_request decodes; /* two samples */
    kvp_request prompt;  /* under way */
    kvp_request swapped;
    kvp_request stored;
    kvp_request halted;
    kvp_request waits;
    kvp_request held;
};

static struct kvpi_request *of(const struct scene *scene, kvp_request handle)
{
    return &scene->s.sched->requests[(uint32_t)handle.bits - 1];
}

static struct kvpi_sample *sample_at(const struct scene *scene, kvp_request handle)
{
    return &scene->s.sched->samples[of(scene, handle)->first_sample];
}

/* One request in every queue that lasts. */
static struct scene make_scene(void)
{
    kvp_config cache_config = config_of(4, 4, 12);
    kvp_sched_config config = sched_config_of(5, 5);
    cache_config.host_blocks = 33;
    cache_config.max_seqs = 16;
    config.preempt = KVP_PREEMPT_SWAP;
    config.max_loading = 1;
    struct scene scene = {.s = make_sched_world(&cache_config, &config)};
    sched_world *s = &scene.s;
    scene.swapped = submit(s, 1, 4, 40);
    scene.stored = submit(s, 50, 4, 40);
    for (int i = 0; i < 2; i++)
        (void)run_step(s);
    assert_ok(kvp_sched_pause(s->sched, scene.swapped));
    assert_ok(kvp_sched_pause(s->sched, scene.stored));
    scene.waits = submit_rank(s, 100, 4, 4, 0, 5);
    assert_int_equal(run_step(s).n_swapped_out, 2);
    assert_ok(kvp_sched_abort(s->sched, scene.waits));
    scene.decodes = submit_rank(s, 150, 4, 14, 0, 2);
    (void)run_step(s);
    scene.halted = submit(s, 200, 4, 4);
    (void)run_step(s);
    (void)run_step(s);
    assert_ok(kvp_sched_pause(s->sched, scene.halted));
    scene.prompt = submit(s, 250, 20, 4);
    (void)run_step(s);
    scene.waits = submit(s, 300, 40, 4);
    scene.held = submit(s, 350, 4, 4);
    assert_ok(kvp_sched_hold(s->sched, scene.held, 1));
    assert_ok(kvp_sched_resume(s->sched, scene.swapped));
    check_sched(s);
    assert_int_equal(of(&scene, scene.swapped)->queue, KVPI_QUEUE_SWAPPED);
    assert_int_equal(of(&scene, scene.stored)->queue, KVPI_QUEUE_STORED);
    assert_int_equal(of(&scene, scene.halted)->queue, KVPI_QUEUE_HALTED);
    assert_int_equal(of(&scene, scene.held)->queue, KVPI_QUEUE_LOADING);
    assert_int_equal(sample_at(&scene, scene.prompt)->stage, KVPI_STAGE_PREFILL);
    assert_int_equal(sample_at(&scene, scene.decodes)->stage, KVPI_STAGE_DECODE);
    return scene;
}

/* The audit must find it, and name the invariant; then all is well again. */
static void spoil(const struct scene *scene, uint32_t *field, const char *invariant)
{
    kvp_violation violation;
    const uint32_t before = *field;
    (*field)++;
    assert_status(KVP_E_CORRUPT, kvp_sched_check(scene->s.sched, &violation));
    assert_string_equal(violation.invariant, invariant);
    assert_true(strlen(violation.detail) > 10);
    assert_status(KVP_E_CORRUPT, kvp_sched_check(scene->s.sched, NULL));
    *field = before;
    assert_ok(kvp_sched_check(scene->s.sched, &violation));
    assert_string_equal(violation.invariant, "");
}

TEST(test_queues)
{
    struct scene scene = make_scene();
    kvp_sched *sched = scene.s.sched;
    for (uint32_t i = 0; i < KVPI_QUEUES; i++)
        spoil(&scene, &sched->queues[i].n, "Q1");
    spoil(&scene, &of(&scene, scene.waits)->queue, "Q3"); /* its samples are not on the host */
    const int32_t priority = of(&scene, scene.decodes)->rank.priority;
    of(&scene, scene.decodes)->rank.priority = 7; /* behind the other that runs */
    assert_status(KVP_E_CORRUPT, kvp_sched_check(sched, NULL));
    of(&scene, scene.decodes)->rank.priority = priority;
    end_sched_world(&scene.s);
}

TEST(test_sums)
{
    struct scene scene = make_scene();
    kvp_sched *sched = scene.s.sched;
    spoil(&scene, &sched->n_running, "Q2");
    spoil(&scene, &sched->n_swapped, "Q2");
    spoil(&scene, &sched->n_stored, "Q2");
    spoil(&scene, &sched->n_paused, "Q2");
    spoil(&scene, &sched->promised_blocks, "Q2");
    spoil(&scene, &sched->n_catching_up, "Q2");
    spoil(&scene, &sched->n_free_samples, "Q2");
    spoil(&scene, &of(&scene, scene.decodes)->n_live, "Q2");
    sched->stats.ended++;
    kvp_violation violation;
    assert_status(KVP_E_CORRUPT, kvp_sched_check(sched, &violation));
    assert_string_equal(violation.invariant, "Q2");
    sched->stats.ended--;
    uint64_t *const holds[] = {&sched->stats.held, &sched->stats.released, &sched->stats.expired,
                               &sched->stats.dropped};
    for (uint32_t i = 0; i < 4; i++) {
        (*holds[i])++;
        assert_status(KVP_E_CORRUPT, kvp_sched_check(sched, &violation));
        assert_string_equal(violation.detail, "holds are miscounted");
        (*holds[i])--;
    }
    sched->config.max_loading = 0; /* and one is held */
    assert_status(KVP_E_CORRUPT, kvp_sched_check(sched, &violation));
    assert_string_equal(violation.detail, "holds are miscounted");
    sched->config.max_loading = 1;
    end_sched_world(&scene.s);
}

TEST(test_samples)
{
    struct scene scene = make_scene();
    kvp_sched *sched = scene.s.sched;
    struct kvpi_sample *decodes = sample_at(&scene, scene.decodes);
    struct kvpi_sample *prompt = sample_at(&scene, scene.prompt);
    struct kvpi_sample *swapped = sample_at(&scene, scene.swapped);
    spoil(&scene, &decodes->idx, "Q3");
    spoil(&scene, &decodes->request, "Q3");
    spoil(&scene, &decodes->known, "Q3");
    spoil(&scene, &decodes->slot, "Q3");
    spoil(&scene, &decodes->stage, "Q3");
    spoil(&scene, &prompt->core, "Q3");
    spoil(&scene, &prompt->stage, "Q3");
    spoil(&scene, &prompt->list_before, "Q3");
    spoil(&scene, &sched->prefill_last, "Q3");
    spoil(&scene, &swapped->core, "Q3");
    spoil(&scene, &swapped->stage, "Q3"); /* ended, and has a sequence */
    spoil(&scene, &sched->n_decoding, "Q3");
    spoil(&scene, &sched->items[decodes->slot].begin, "Q3");
    spoil(&scene, &sched->items[decodes->slot].sample, "Q3");
    spoil(&scene, &sched->item_ends[decodes->slot], "Q3");
    spoil(&scene, &sched->item_samples[decodes->slot], "Q3");
    const uint32_t computed = prompt->computed;
    prompt->computed = prompt->core; /* more than the cache has */
    assert_status(KVP_E_CORRUPT, kvp_sched_check(sched, NULL));
    prompt->computed = computed;
    end_sched_world(&scene.s);
}

/* What callers do to the scheduler's sequences shows. */
TEST(test_sequences)
{
    struct scene scene = make_scene();
    kvp_cache *cache = scene.s.w.cache;
    const kvp_seq seq = sample_at(&scene, scene.swapped)->seq;
    kvp_violation violation;
    assert_ok(kvp_seq_swap_in(cache, &seq, 1, 0, NULL));
    assert_status(KVP_E_CORRUPT, kvp_sched_check(scene.s.sched, &violation));
    assert_string_equal(violation.detail, "a sample's sequence is on the wrong tier");
    assert_ok(kvp_seq_swap_out(cache, &seq, 1, NULL));
    assert_ok(kvp_sched_check(scene.s.sched, NULL));
    assert_ok(kvp_seq_close(cache, seq, NULL));
    assert_status(KVP_E_CORRUPT, kvp_sched_check(scene.s.sched, &violation));
    assert_string_equal(violation.detail, "a sample's sequence is not open");
    assert_ok(kvp_sched_abort(scene.s.sched, scene.swapped));
    end_sched_world(&scene.s);
}

TEST(test_pages)
{
    struct scene scene = make_scene();
    kvp_sched *sched = scene.s.sched;
    spoil(&scene, &sched->pages.n_free, "Q4");
    spoil(&scene, &sched->pages.n_reserved, "Q4");
    spoil(&scene, &of(&scene, scene.waits)->n_pages, "Q4");
    const uint32_t n_pages = of(&scene, scene.waits)->n_pages;
    of(&scene, scene.waits)->n_pages = 0;
    kvp_violation violation;
    assert_status(KVP_E_CORRUPT, kvp_sched_check(sched, &violation));
    assert_string_equal(violation.detail, "a request has more pages than it reserved");
    of(&scene, scene.waits)->n_pages = n_pages;
    end_sched_world(&scene.s);
}

TEST_MAIN(NULL, NULL)
