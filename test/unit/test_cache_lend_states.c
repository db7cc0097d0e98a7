/* Loads of recurrent state (lend.h): a host slot that a store fills becomes a checkpoint. */
#include <kvpager/states.h>

#include <string.h>

#include "tiers.h"
#include "slots.h"

enum { SLOTS = 6, HOST_SLOTS = 6 };

static world loads_world(uint32_t usable, uint32_t max_copies)
{
    kvp_config config = tiers_config(4, 4, usable, 20);
    config.max_loads = 4;
    config.state_slots = SLOTS;
    config.host_state_slots = HOST_SLOTS;
    config.max_copies = max_copies;
    return make_world(&config);
}

/* Begin a load of entries [begin, end) of ints(first), in group 0 or the state group. */
static kvp_status begin_load(world *w, int32_t first, uint32_t group, kvp_range entries,
                             kvp_load *load, int32_t *blocks)
{
    const kvp_prompt prompt = prompt_of(ints(first), 4 * entries.end);
    *load = (kvp_load){
        .struct_size = sizeof(*load), .group = group, .entries = entries, .blocks = blocks};
    return kvp_load_begin(w->cache, w->ns, &prompt, load);
}

/* The KV of the first n entries of ints(first) is on the host. */
static void bring_kv(world *w, int32_t first, uint32_t n)
{
    kvp_load load;
    int32_t blocks[8];
    assert_ok(begin_load(w, first, 0, (kvp_range){0, n}, &load, blocks));
    assert_ok(kvp_load_done(w->cache, load.number, (const uint8_t[]){1, 1, 1, 1, 1, 1, 1, 1},
                            load.n_blocks, NULL));
}

/* The load of the state after n entries. Gives its number. */
static uint64_t begin_state(world *w, int32_t first, uint32_t n, int32_t *slot)
{
    kvp_load load;
    assert_ok(begin_load(w, first, 1, (kvp_range){n - 1, n}, &load, slot));
    assert_int_equal(load.n_blocks, 1);
    return load.number;
}

static kvp_loaded end_state(const world *w, uint64_t number, int whole)
{
    kvp_loaded loaded;
    const uint8_t mask[] = {whole != 0};
    assert_ok(kvp_load_done(w->cache, number, mask, 1, &loaded));
    assert_int_equal(loaded.cached + loaded.dropped + loaded.failed, 1);
    return loaded;
}

/* ---------------------------------------------------------------------------------------- hits */

TEST(test_a_state_is_hit_when_it_is_done_and_not_before)
{
    scoped_world w = loads_world(20, 0);
    kvp_copy copies[8];
    int32_t slot = 99;
    bring_kv(&w, 0, 3);
    assert_int_equal(match(&w, ints(0), 13).hit_tokens, 0);
    assert_int_equal(match(&w, ints(0), 13).stop_group, 1); /* the state group */
    const uint64_t number = begin_state(&w, 0, 2, &slot);
    assert_int_equal(slot, 1);
    assert_fields(slots_of(&w), host_loading_slots, 1, host_held_slots, 0, host_free_slots,
                  HOST_SLOTS - 2);
    assert_fields(stats_of(&w), host_loading_blocks, 0, open_loads, 1);
    assert_int_equal(match(&w, ints(0), 13).hit_tokens, 0);
    assert_int_equal(end_state(&w, number, 1).cached, 1);
    /* Of three blocks that are there two are hit: there the state is. */
    assert_int_equal(match(&w, ints(0), 13).hit_tokens, 8);
    assert_int_equal(match(&w, ints(0), 13).host_blocks, 2);
    assert_fields(slots_of(&w), cached_slots, 1, host_free_slots, HOST_SLOTS - 1,
                  host_loading_slots, 0);
    assert_int_equal(stats_of(&w).loaded_blocks, 3 + 1);
    /* The plan brings it. */
    kvp_open_info info;
    const kvp_seq seq = open_seq(&w, ints(0), 13, &info);
    assert_int_equal(info.hit_tokens, 8);
    const uint32_t checkpoint = state_of(&w, seq).read_slot;
    assert_int_equal(take_plan(&w, copies, 8), 3);
    assert_fields(copies[0], group, 1, src_tier, KVP_HOST, src_block, slot);
    assert_fields(copies[0], dst_tier, KVP_DEVICE, dst_block, checkpoint, n_tokens, 1);
    assert_true(state_of(&w, seq).write_slot != checkpoint);
}

TEST(test_a_state_that_is_not_whole_is_none)
{
    scoped_world w = loads_world(20, 0);
    int32_t slot;
    bring_kv(&w, 0, 2);
    assert_int_equal(end_state(&w, begin_state(&w, 0, 2, &slot), 0).failed, 1);
    assert_ok(kvp_load_cancel(w.cache, begin_state(&w, 0, 2, &slot)));
    assert_int_equal(match(&w, ints(0), 9).hit_tokens, 0);
    assert_int_equal(slots_of(&w).host_free_slots, HOST_SLOTS - 1);
    assert_int_equal(stats_of(&w).pending_copies, 0);
    begin_state(&w, 0, 2, &slot);
    assert_ok(kvp_cache_reset(w.cache));
    assert_fields(slots_of(&w), host_free_slots, HOST_SLOTS - 1, host_loading_slots, 0);
}

TEST(test_a_state_without_its_kv_is_dropped)
{
    scoped_world w = loads_world(20, 0);
    int32_t slot;
    bring_kv(&w, 0, 1);
    const uint64_t number = begin_state(&w, 0, 2, &slot);
    assert_int_equal(end_state(&w, number, 1).dropped, 1);
    assert_int_equal(slots_of(&w).cached_slots, 0);
    assert_int_equal(end_state(&w, begin_state(&w, 0, 1, &slot), 1).cached, 1);
    assert_int_equal(match(&w, ints(0), 9).hit_tokens, 4);
}

TEST(test_who_computed_the_state_meanwhile_keeps_it)
{
    scoped_world w = loads_world(20, 0);
    kvp_load load;
    int32_t slot;
    const uint64_t number = begin_state(&w, 0, 2, &slot);
    assert_ok(begin_load(&w, 0, 1, (kvp_range){1, 2}, &load, &slot));
    assert_true(load.number == 0 && load.n_elsewhere == 1 && slot == 0);
    const kvp_seq seq = open_done(&w, ints(0), 8);
    assert_ok(kvp_seq_checkpoint(w.cache, seq, NULL));
    assert_int_equal(end_state(&w, number, 1).dropped, 1);
    assert_ok(begin_load(&w, 0, 1, (kvp_range){1, 2}, &load, &slot));
    assert_true(load.number == 0 && load.n_found == 1);
}

TEST(test_what_is_flushed_is_not_kept)
{
    scoped_world w = loads_world(20, 0);
    int32_t slot;
    bring_kv(&w, 0, 2);
    const uint64_t number = begin_state(&w, 0, 2, &slot);
    assert_ok(kvp_ns_flush(w.cache, w.ns));
    assert_int_equal(end_state(&w, number, 1).dropped, 1);
    assert_int_equal(slots_of(&w).cached_slots, 0);
}

/* ---------------------------------------------------------------------------------------- room */

TEST(test_a_state_evicts_another_or_is_dropped)
{
    scoped_world w = loads_world(40, 0);
    int32_t slot;
    /* A checkpoint nobody holds, and the other slots held. */
    const kvp_seq first = open_done(&w, ints(100), 4);
    assert_ok(kvp_seq_checkpoint(w.cache, first, NULL));
    close_seq(&w, first);
    for (uint32_t i = 0; i < SLOTS - 2; i++)
        open_done(&w, ints(200 + 10 * (int32_t)i), 3);
    assert_fields(slots_of(&w), free_slots, 0, cached_slots, 1);
    bring_kv(&w, 0, 2);
    assert_int_equal(end_state(&w, begin_state(&w, 0, 2, &slot), 1).cached, 1);
    assert_int_equal(slots_of(&w).evicted, 1);
    assert_int_equal(match(&w, ints(0), 9).hit_tokens, 8);
    assert_int_equal(match(&w, ints(100), 5).hit_tokens, 0);
}

TEST(test_no_slot_of_the_device_is_available)
{
    scoped_world w = loads_world(40, 0);
    int32_t slot;
    bring_kv(&w, 0, 2);
    const uint64_t number = begin_state(&w, 0, 2, &slot);
    for (int32_t i = 0; i < SLOTS - 1; i++)
        open_done(&w, ints(200 + 10 * i), 3);
    assert_int_equal(end_state(&w, number, 1).dropped, 1);
    assert_int_equal(stats_of(&w).pending_copies, 0);
}

TEST(test_the_plan_is_full)
{
    scoped_world w = loads_world(20, 2);
    int32_t slots[3];
    uint64_t numbers[3];
    bring_kv(&w, 0, 3);
    for (uint32_t i = 0; i < 3; i++)
        numbers[i] = begin_state(&w, 0, 1 + i, &slots[i]);
    assert_int_equal(end_state(&w, numbers[0], 1).cached, 1);
    assert_int_equal(end_state(&w, numbers[1], 1).cached, 1);
    assert_int_equal(end_state(&w, numbers[2], 1).dropped, 1);
    assert_int_equal(stats_of(&w).pending_copies, 2);
}

TEST(test_a_load_waits_for_copies_of_its_slot)
{
    scoped_world w = loads_world(20, 0);
    kvp_load load;
    int32_t slot;
    bring_kv(&w, 0, 2);
    /* The slot is free when the state is done, and the plan still reads it. */
    const uint64_t number = begin_state(&w, 0, 2, &slot);
    assert_int_equal(end_state(&w, number, 1).cached, 1);
    assert_ok(begin_load(&w, 0, 1, (kvp_range){0, 1}, &load, &slot));
    assert_int_equal(slot, 1);
    assert_int_equal(load.after, 1);
    assert_status(KVP_E_IN_FLIGHT,
                  kvp_load_done(w.cache, load.number, (const uint8_t[]){1}, 1, NULL));
    drop_plan(&w);
    assert_status(KVP_E_IN_FLIGHT,
                  kvp_load_done(w.cache, load.number, (const uint8_t[]){1}, 1, NULL));
    assert_ok(kvp_plan_done(w.cache, 1));
    assert_int_equal(end_state(&w, load.number, 1).cached, 1);
    /* The same for a slot that a sequence came back from. */
    drop_plan(&w);
    assert_ok(kvp_plan_done(w.cache, 2));
    const kvp_seq seq = open_done(&w, ints(50), 3);
    assert_ok(kvp_seq_swap_out(w.cache, &seq, 1, NULL));
    drop_plan(&w);
    assert_ok(kvp_plan_done(w.cache, 3));
    assert_ok(kvp_seq_swap_in(w.cache, &seq, 1, 0, NULL));
    assert_ok(begin_load(&w, 60, 1, (kvp_range){0, 1}, &load, &slot));
    assert_int_equal(load.after, 4);
}

/* ------------------------------------------------------------------------------------ refusals */

TEST(test_what_is_no_load_of_a_state)
{
    world w = loads_world(20, 0);
    kvp_load load;
    int32_t blocks[4];
    assert_status(KVP_E_ARG, begin_load(&w, 0, 1, (kvp_range){0, 2}, &load, blocks));
    assert_status(KVP_E_ARG, begin_load(&w, 0, 1, (kvp_range){1, 1}, &load, blocks));
    assert_status(KVP_E_ARG, begin_load(&w, 0, 2, (kvp_range){0, 1}, &load, blocks));
    const kvp_prompt prompt = prompt_of(ints(0), 8);
    load = (kvp_load){.struct_size = sizeof(load), .group = 1, .entries = {1, 2}, .blocks = blocks};
    load.spare_blocks = HOST_SLOTS - 1;
    assert_status(KVP_E_NEVER, kvp_load_begin(w.cache, w.ns, &prompt, &load));
    assert_fields(shortage_of(&w), tier, KVP_HOST_STATE_SLOTS, missing_blocks, 1);
    /* Of five slots three may be loaded. */
    for (uint32_t i = 1; i <= 3; i++)
        begin_state(&w, 0, i, &blocks[0]);
    assert_status(KVP_E_AGAIN, begin_load(&w, 0, 1, (kvp_range){3, 4}, &load, blocks));
    end_world(&w);
    kvp_config config = tiers_config(4, 4, 20, 20);
    config.max_loads = 1;
    w = make_world(&config);
    assert_status(KVP_E_ARG, begin_load(&w, 0, 1, (kvp_range){0, 1}, &load, blocks));
    end_world(&w);
}

TEST(test_the_host_has_no_slot)
{
    scoped_world w = loads_world(40, 0);
    kvp_load load;
    int32_t slot;
    for (int32_t i = 0; i < HOST_SLOTS - 1; i++) {
        const kvp_seq seq = open_done(&w, ints(100 + 10 * i), 3);
        assert_ok(kvp_seq_swap_out(w.cache, &seq, 1, NULL));
        drop_plan(&w);
    }
    assert_status(KVP_E_NO_BLOCKS, begin_load(&w, 0, 1, (kvp_range){1, 2}, &load, &slot));
    assert_fields(shortage_of(&w), tier, KVP_HOST_STATE_SLOTS, missing_blocks, 1);
}

/* -------------------------------------------------------------------------------------- random */

enum { JOBS = 5, LOADS = 4, STREAMS = 3, MOST_TOKENS = 60, ROUNDS = 6000 };

#define POISON UINT64_C(0xdeaddeaddeaddead)

struct job {
    kvp_seq seq;
    int32_t tokens[MOST_TOKENS];
    uint32_t step; /* tokens that the step computes */
    int is_open, is_swapped;
};

/* A load of a state that a store works on. */
struct work {
    uint64_t number, after;
    uint64_t value; /* the right one */
    int32_t slot;
    int is_begun, is_written;
};

/* An engine whose slots have the sum of all tokens before, and a store that knows all sums. */
struct engine {
    world w;
    uint64_t random;
    uint64_t slots[2][16]; /* of the device, and of the host */
    uint64_t plans_done;
    struct job jobs[JOBS];
    struct work loads[LOADS];
    uint32_t n_steps, n_loaded;
};

static uint64_t add_up(uint64_t sum, const int32_t *tokens, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        sum = (sum ^ (uint64_t)(uint32_t)tokens[i]) * UINT64_C(0x9e3779b97f4a7c15) + 1;
    return sum;
}

static uint32_t draw_prompt(struct engine *e, int32_t *tokens)
{
    const uint32_t n = 1 + draw(&e->random, 40), stream = draw(&e->random, STREAMS);
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (int32_t)(1000 * stream + i);
    return n;
}

/* The KV of a prompt, which this test takes for right; then maybe the state at its end. */
static void load_something(struct engine *e)
{
    int32_t tokens[MOST_TOKENS], blocks[MOST_TOKENS];
    const uint32_t n = draw_prompt(e, tokens) / 4;
    const kvp_prompt prompt = prompt_of(tokens, 4 * n);
    uint8_t whole[MOST_TOKENS];
    struct work *work = e->loads;
    kvp_load load = {.struct_size = sizeof(load), .entries = {0, n}, .blocks = blocks};
    memset(whole, 1, sizeof(whole));
    if (n == 0)
        return;
    if (kvp_load_begin(e->w.cache, e->w.ns, &prompt, &load) == KVP_OK && load.number != 0 &&
        kvp_load_done(e->w.cache, load.number, whole, load.n_blocks, NULL) != KVP_OK)
        assert_ok(kvp_load_cancel(e->w.cache, load.number));
    while (work < e->loads + LOADS && work->number != 0)
        work++;
    load = (kvp_load){
        .struct_size = sizeof(load), .group = 1, .entries = {n - 1, n}, .blocks = blocks};
    if (work == e->loads + LOADS || kvp_load_begin(e->w.cache, e->w.ns, &prompt, &load) != KVP_OK ||
        load.number == 0)
        return;
    *work = (struct work){.number = load.number,
                          .after = load.after,
                          .value = add_up(0, tokens, 4 * n),
                          .slot = blocks[0]};
}

/* The store writes as soon as it may, and is done some time later. */
static void go_on_with_loads(struct engine *e)
{
    for (struct work *work = e->loads; work < e->loads + LOADS; work++) {
        const uint8_t whole[] = {1};
        uint64_t *slot = &e->slots[KVP_HOST][work->slot];
        if (work->number == 0 || work->after > e->plans_done || draw(&e->random, 3) == 0)
            continue;
        if (!work->is_begun) {
            *slot = POISON;
            work->is_begun = 1;
        } else if (!work->is_written) {
            assert_true(*slot == POISON);
            *slot = work->value;
            work->is_written = 1;
        } else {
            assert_true(*slot == work->value);
            kvp_loaded loaded;
            assert_ok(kvp_load_done(e->w.cache, work->number, whole, 1, &loaded));
            e->n_loaded += loaded.cached;
            work->number = 0;
        }
    }
}

static void change_job(struct engine *e, struct job *job)
{
    kvp_cache *cache = e->w.cache;
    const uint32_t what = draw(&e->random, 10);
    if (!job->is_open) {
        const uint32_t n = draw_prompt(e, job->tokens);
        const kvp_prompt prompt = prompt_of(job->tokens, n);
        job->is_open = kvp_seq_open(cache, e->w.ns, &prompt, &job->seq, NULL) == KVP_OK;
    } else if (job->is_swapped) {
        job->is_swapped = kvp_seq_swap_in(cache, &job->seq, 1, 0, NULL) != KVP_OK;
    } else if (what < 3) {
        assert_ok(kvp_seq_close(cache, job->seq, NULL));
        job->is_open = 0;
    } else if (what == 3) {
        job->is_swapped = kvp_seq_swap_out(cache, &job->seq, 1, NULL) == KVP_OK;
    } else if (what < 6) {
        (void)kvp_seq_checkpoint(cache, job->seq, NULL);
    }
}

/* The plan is taken, the store does something, then the copies run and the step begins. */
static void run_step(struct engine *e)
{
    kvp_copy copies[128];
    for (struct job *job = e->jobs; job < e->jobs + JOBS; job++) {
        job->step = 0;
        if (!job->is_open || job->is_swapped)
            continue;
        const kvp_seq_info info = info_of(&e->w, job->seq);
        const uint32_t n = info.computed_tokens == info.n_tokens && info.n_tokens < MOST_TOKENS;
        const int32_t token = 7;
        if (kvp_seq_extend(e->w.cache, job->seq, &token, n, 0) != KVP_OK)
            continue;
        if (n > 0)
            job->tokens[info.n_tokens] = token;
        const uint32_t left = info.n_tokens + n - info.computed_tokens;
        job->step = left == 0 ? 0 : 1 + draw(&e->random, left);
    }
    const uint32_t n_copies = take_plan(&e->w, copies, 128);
    go_on_with_loads(e);
    for (uint32_t i = 0; i < n_copies; i++) {
        if (copies[i].group == 1)
            e->slots[copies[i].dst_tier][copies[i].dst_block] =
                e->slots[copies[i].src_tier][copies[i].src_block];
    }
    for (struct job *job = e->jobs; job < e->jobs + JOBS; job++) {
        int32_t read, write;
        if (job->step == 0)
            continue;
        const uint32_t computed = info_of(&e->w, job->seq).computed_tokens;
        assert_ok(kvp_meta_states(e->w.cache, &job->seq, 1, &read, &write));
        const uint64_t before = read == 0 ? 0 : e->slots[KVP_DEVICE][read];
        assert_true(before == add_up(0, job->tokens, computed));
        e->slots[KVP_DEVICE][write] = add_up(before, job->tokens + computed, job->step);
        assert_ok(kvp_seq_commit(e->w.cache, job->seq, computed + job->step));
        e->n_steps++;
    }
    if (draw(&e->random, 3) > 0) {
        e->plans_done = stats_of(&e->w).plans;
        assert_ok(kvp_plan_done(e->w.cache, e->plans_done));
    }
}

TEST(test_loaded_states_are_those_of_all_tokens_before)
{
    static struct engine e;
    kvp_config config = tiers_config(4, 4, 60, 80);
    config.max_loads = LOADS + 1;
    config.state_slots = 14;
    config.host_state_slots = 12;
    config.max_copies = 128;
    memset(&e, 0, sizeof(e));
    e.w = make_world(&config);
    e.random = 5;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        if (draw(&e.random, 2) == 0)
            load_something(&e);
        go_on_with_loads(&e);
        change_job(&e, &e.jobs[draw(&e.random, JOBS)]);
        run_step(&e);
        if (draw(&e.random, 40) == 0)
            assert_ok(kvp_ns_flush(e.w.cache, e.w.ns)); /* what is being loaded is of no use */
    }
    const kvp_state_stats slots = slots_of(&e.w);
    assert_true(e.n_steps > ROUNDS && slots.hits > 200);
    assert_true(slots.evicted > 100 && e.n_loaded > 500);
    end_world(&e.w);
}

TEST_MAIN(NULL, NULL)
