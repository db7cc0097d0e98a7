/* Transfers of recurrent state between caches with overlapped steps: the state after the computed
 * tokens is sent while steps that are out leave others, and comes into a slot that no step has. */
#include "transfer_world.h"

#include <kvpager/steps.h>

static pair make_steps(uint32_t n_messages)
{
    place_shape shape = small_place();
    shape.usable = 40;
    shape.state_slots = 12;
    shape.state_k = 700;
    shape.state_v = 900;
    shape.state_order = KVP_ORDER_APART_NHD;
    shape.steps = KVP_STEPS_OVERLAPPED;
    return make_pair(&shape, &shape, n_messages);
}

static kvp_status reserve_status(pair *p, uint32_t end)
{
    kvp_receive receive = receive_of(p);
    receive.end = end;
    return kvp_receiver_reserve(p->receiver, &receive, p->ticket, sizeof p->ticket, &p->n_ticket,
                                &p->id_b);
}

/* Begin a step that computes up to `end`: gives its number, and the slot that it writes. */
static uint64_t begin_step(const place *p, kvp_seq seq, uint32_t end, uint32_t *out_slot)
{
    kvp_copy copies[8];
    uint32_t n;
    uint64_t step;
    *out_slot = state_in(p, seq).write_slot;
    assert_ok(kvp_step_begin(p->w.cache, copies, 8, &n, &step));
    assert_ok(kvp_step_commit(p->w.cache, step, &seq, &end, 1));
    assert_int_equal(state_in(p, seq).read_slot, *out_slot);
    return step;
}

/* It has run, is done. */
static void end_step(place *p, kvp_seq seq, uint64_t step, uint32_t end, uint32_t slot)
{
    write_kv(p, seq, (kvp_range){info_of(&p->w, seq).computed_tokens, end}, KVP_LAYERS_ALL);
    write_state(p, slot, end);
    assert_ok(kvp_step_done(p->w.cache, step, NULL));
}

static void extend(const place *p, kvp_seq seq, uint32_t n)
{
    assert_ok(kvp_seq_extend(p->w.cache, seq, ints(200), n, 0));
}

static void assert_complete(const pair *p, uint32_t end)
{
    assert_fields(info_b(p), status, KVP_OK, state, KVP_TRANSFER_COMPLETE);
    assert_int_equal(info_a(p).state, KVP_TRANSFER_COMPLETE);
    assert_true(has_kv(&p->b, p->seq_b, (kvp_range){0, end}));
    assert_true(has_state(&p->b, state_in(&p->b, p->seq_b).write_slot, end));
}

/* ----------------------------------------------------------------------------------- the sender */

/* The step that is out has its own slot; what it has read is sent. It may fail. */
TEST(the_computed_state_is_sent_while_a_step_is_out)
{
    for (int fails = 0; fails < 2; fails++) {
        scoped_pair p = make_steps(64);
        uint32_t slot;
        open_both(&p, 20, 0);
        assert_ok(reserve_status(&p, KVP_END));
        mark(&p);
        prefill(&p, (kvp_range){0, 20});
        const uint32_t computed = state_in(&p.a, p.seq_a).read_slot;
        assert_int_equal(state_in(&p.a, p.seq_a).computed_slot, computed);
        extend(&p.a, p.seq_a, 1);
        const uint64_t step = begin_step(&p.a, p.seq_a, 21, &slot);
        write_state(&p.a, slot, 21);
        assert_int_equal(state_in(&p.a, p.seq_a).computed_slot, computed);
        assert_int_not_equal(slot, computed);
        if (fails)
            assert_ok(kvp_step_failed(p.a.w.cache, step, NULL, 0, NULL));
        progress_both(&p, 2);
        assert_complete(&p, 20);
        if (!fails)
            assert_ok(kvp_step_done(p.a.w.cache, step, NULL));
        assert_int_equal(state_in(&p.a, p.seq_a).computed_slot, fails ? computed : slot);
    }
}

/* Declared is not computed. */
TEST(a_state_waits_for_its_step)
{
    scoped_pair p = make_steps(64);
    uint32_t slots[2];
    open_both(&p, 20, 0);
    assert_ok(reserve_status(&p, KVP_END));
    mark(&p);
    const uint64_t first = begin_step(&p.a, p.seq_a, 12, &slots[0]);
    extend(&p.a, p.seq_a, 0);
    const uint64_t second = begin_step(&p.a, p.seq_a, 20, &slots[1]);
    end_step(&p.a, p.seq_a, first, 12, slots[0]);
    progress_both(&p, 2);
    assert_int_equal(info_b(&p).bytes, 2 * 2 * 12 * 8 * 4);
    end_step(&p.a, p.seq_a, second, 20, slots[1]);
    progress_both(&p, 2);
    assert_complete(&p, 20);
}

/* The link takes a part of it, or none; then the step with more takes effect. */
TEST(a_step_that_takes_effect_ends_it)
{
    for (uint32_t taken = 0; taken < 9; taken++) {
        scoped_pair p = make_steps(4);
        uint32_t slot;
        open_both(&p, 20, 0);
        assert_ok(reserve_status(&p, KVP_END));
        mark(&p);
        prefill(&p, (kvp_range){0, 20});
        extend(&p.a, p.seq_a, 1);
        const uint64_t step = begin_step(&p.a, p.seq_a, 21, &slot);
        for (uint32_t i = 0; i < taken; i++) {
            assert_ok(kvp_sender_progress(p.sender, NULL));
            assert_ok(kvp_receiver_progress(p.receiver, 1, NULL));
        }
        end_step(&p.a, p.seq_a, step, 21, slot);
        progress_both(&p, 8);
        assert_int_equal(info_a(&p).status, KVP_E_DROPPED);
        assert_int_equal(info_b(&p).status, KVP_E_DROPPED);
    }
}

/* --------------------------------------------------------------------------------- the receiver */

TEST(a_receiver_needs_a_slot_to_write)
{
    scoped_pair p = make_steps(64);
    open_both(&p, 23, 0);
    assert_ok(reserve_status(&p, 20));
    mark(&p);
    prefill(&p, (kvp_range){0, 20});
    progress_both(&p, 2);
    assert_complete(&p, 20);
    const uint32_t slot = state_in(&p.b, p.seq_b).write_slot;
    assert_ok(kvp_seq_commit(p.b.w.cache, p.seq_b, 20));
    assert_int_equal(state_in(&p.b, p.seq_b).read_slot, slot);
    assert_ok(kvp_sender_close(p.sender, p.id_a));
    assert_ok(kvp_receiver_close(p.receiver, p.id_b));
    uint32_t outcome;
    assert_ok(kvp_seq_checkpoint(p.b.w.cache, p.seq_b, &outcome));
    assert_int_equal(outcome, KVP_CHECKPOINT_MADE);
    assert_status(KVP_E_STATE, reserve_status(&p, 23));
    extend(&p.b, p.seq_b, 0);
    extend(&p.a, p.seq_a, 0);
    assert_ok(reserve_status(&p, 23));
    mark(&p);
    prefill(&p, (kvp_range){20, 23});
    progress_both(&p, 2);
    assert_complete(&p, 23);
    assert_true(has_state(&p.b, slot, 20));
}

/* Nor may a step have gone on from what is computed. */
TEST(a_receiver_that_is_in_a_step_is_refused)
{
    scoped_pair p = make_steps(64);
    uint32_t slot;
    open_both(&p, 20, 0);
    const uint64_t step = begin_step(&p.b, p.seq_b, 12, &slot);
    assert_status(KVP_E_STATE, reserve_status(&p, KVP_END));
    extend(&p.b, p.seq_b, 0);
    assert_status(KVP_E_STATE, reserve_status(&p, KVP_END));
    assert_ok(kvp_step_failed(p.b.w.cache, step, NULL, 0, NULL));
    assert_ok(reserve_status(&p, KVP_END));
    mark(&p);
    prefill(&p, (kvp_range){0, 20});
    progress_both(&p, 2);
    assert_complete(&p, 20);
}

/* A step takes the slot while a part of the state is there: nothing more is written into it. */
TEST(a_step_takes_the_receivers_slot)
{
    for (int extends = 0; extends < 2; extends++) {
        scoped_pair p = make_steps(64);
        uint32_t slot;
        open_both(&p, 20, 0);
        assert_ok(reserve_status(&p, KVP_END));
        mark(&p);
        prefill(&p, (kvp_range){0, 20});
        assert_ok(kvp_sender_progress(p.sender, NULL));
        assert_ok(kvp_receiver_progress(p.receiver, 3, NULL));
        const uint64_t step = begin_step(&p.b, p.seq_b, 20, &slot);
        if (extends)
            extend(&p.b, p.seq_b, 1);
        write_state(&p.b, slot, 77);
        progress_both(&p, 2);
        assert_int_equal(info_b(&p).status, KVP_E_STATE);
        assert_int_equal(info_a(&p).status, KVP_E_STATE);
        assert_true(has_state(&p.b, slot, 77));
        assert_ok(kvp_step_failed(p.b.w.cache, step, NULL, 0, NULL));
    }
}

/* ---------------------------------------------------------------------------- random schedules */

enum { MOST_OUT = 4, TOKENS = 30, ROUNDS = 400 };

struct step {
    uint64_t number;
    uint32_t end;
    uint32_t slot;
    int has_run;
};

struct schedule {
    pair p;
    uint64_t random;
    struct step out[MOST_OUT];
    uint32_t n_out;
    uint32_t declared;
};

static uint32_t pick(struct schedule *s, uint32_t below)
{
    s->random = s->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(s->random >> 33) % below;
}

static void begin_one(struct schedule *s)
{
    const uint32_t n = 1 + pick(s, 6);
    if (stats_of(&s->p.a.w).steps_out == MOST_OUT || s->declared == TOKENS)
        return;
    s->declared = s->declared + n < TOKENS ? s->declared + n : TOKENS;
    extend(&s->p.a, s->p.seq_a, 0);
    struct step *step = &s->out[s->n_out++];
    step->end = s->declared;
    step->has_run = 0;
    step->number = begin_step(&s->p.a, s->p.seq_a, step->end, &step->slot);
}

/* Passes of a sequence run in their order; reports come in any. */
static void run_one(struct schedule *s)
{
    uint32_t i = 0;
    while (i < s->n_out && s->out[i].has_run)
        i++;
    if (i == s->n_out)
        return;
    const uint32_t begin =
        i > 0 ? s->out[i - 1].end : info_of(&s->p.a.w, s->p.seq_a).computed_tokens;
    write_kv(&s->p.a, s->p.seq_a, (kvp_range){begin, s->out[i].end}, KVP_LAYERS_ALL);
    write_state(&s->p.a, s->out[i].slot, s->out[i].end);
    s->out[i].has_run = 1;
}

static void report_one(struct schedule *s)
{
    if (s->n_out == 0 || !s->out[0].has_run)
        return;
    assert_ok(kvp_step_done(s->p.a.w.cache, s->out[0].number, NULL));
    for (uint32_t i = 1; i < s->n_out; i++)
        s->out[i - 1] = s->out[i];
    s->n_out--;
}

/* The newest step fails: the next one computes the same tokens. */
static void fail_newest(struct schedule *s)
{
    if (s->n_out == 0)
        return;
    const struct step *last = &s->out[--s->n_out];
    write_state(&s->p.a, last->slot, 99);
    assert_ok(kvp_step_failed(s->p.a.w.cache, last->number, NULL, 0, NULL));
    s->declared =
        s->n_out > 0 ? s->out[s->n_out - 1].end : info_of(&s->p.a.w, s->p.seq_a).computed_tokens;
}

/* One transfer of what ends at a random place. Gives how it ended; 0: it has not. */
static uint32_t run_schedule(uint64_t seed)
{
    struct schedule s = {.p = make_steps(4), .random = seed};
    for (int i = 0; i < 8; i++)
        (void)pick(&s, 2);
    open_both(&s.p, TOKENS, 0);
    const uint32_t end = 1 + pick(&s, TOKENS);
    assert_ok(reserve_status(&s.p, end));
    mark(&s.p);
    for (int i = 0; i < 300 && info_a(&s.p).state < KVP_TRANSFER_COMPLETE; i++) {
        const uint32_t call = pick(&s, 16);
        if (call < 3)
            begin_one(&s);
        else if (call < 6)
            run_one(&s);
        else if (call < 8)
            report_one(&s);
        else if (call < 9)
            fail_newest(&s);
        else
            progress_both(&s.p, 1);
    }
    const uint32_t computed = info_of(&s.p.a.w, s.p.seq_a).computed_tokens;
    const uint32_t how = info_a(&s.p).state;
    if (how == KVP_TRANSFER_COMPLETE)
        assert_complete(&s.p, end);
    else if (how == KVP_TRANSFER_FAILED)
        assert_true(info_a(&s.p).status == KVP_E_DROPPED && computed > end);
    while (s.n_out > 0) {
        run_one(&s);
        report_one(&s);
    }
    end_pair(&s.p);
    return how;
}

TEST(random_schedules)
{
    uint32_t n[KVP_TRANSFER_FAILED + 1] = {0};
    for (uint64_t seed = 1; seed <= ROUNDS; seed++)
        n[run_schedule(seed)]++;
    assert_true(n[KVP_TRANSFER_COMPLETE] > ROUNDS / 8);
    assert_true(n[KVP_TRANSFER_FAILED] > ROUNDS / 8);
}

TEST_MAIN(NULL, NULL)
