/* An engine of layers with recurrent state, whose slots know what they hold: a number that is
 * chained over all tokens up to there. Each step reads a slot and must find what its sequence has
 * computed, whatever was opened, forked, taken back and evicted before; a step that fails leaves
 * garbage in what it writes. */
#include <kvpager/states.h>

#include "world.h"

#include <stdlib.h>
#include <string.h>

enum { SEQS = 6, MOST = 64, SLOTS = 24, GARBAGE = 1 };

typedef struct stream {
    kvp_seq seq;
    int open;
    int32_t tokens[MOST];
} stream;

typedef struct engine {
    world w;
    uint64_t random;
    uint64_t slots[SLOTS]; /* what each holds */
    stream streams[SEQS];
    uint32_t n_hits, n_lost, n_kept, n_back, n_short; /* what was met */
} engine;

static uint64_t chain(uint64_t before, int32_t token)
{
    return (before ^ (uint64_t)(uint32_t)token) * 0x9E3779B97F4A7C15u + 0x1234567u;
}

/* The state after n tokens. */
static uint64_t right(const stream *s, uint32_t n)
{
    uint64_t state = 77;
    for (uint32_t i = 0; i < n; i++) {
        state = chain(state, s->tokens[i]);
    }
    return state;
}

static kvp_state_info state_of(const engine *e, const stream *s)
{
    kvp_state_info info;
    assert_ok(kvp_seq_state_get(e->w.cache, s->seq, &info));
    return info;
}

/* What the sequence would read is its state. */
static void look(const engine *e, const stream *s)
{
    const kvp_state_info state = state_of(e, s);
    const uint32_t computed = info_of(&e->w, s->seq).computed_tokens;
    if (!state.lost && computed > 0) {
        assert_true(e->slots[state.read_slot] == right(s, computed));
    }
}

/* One step: tokens up to n are computed, or it fails. */
static void step(engine *e, stream *s, uint32_t n, int fails)
{
    int32_t read;
    int32_t write;
    const uint32_t computed = info_of(&e->w, s->seq).computed_tokens;
    look(e, s);
    assert_ok(kvp_meta_states(e->w.cache, &s->seq, 1, &read, &write));
    uint64_t state = read == 0 ? 77 : e->slots[read];
    for (uint32_t i = computed; i < n; i++) {
        state = chain(state, s->tokens[i]);
    }
    e->slots[write] = fails ? GARBAGE : state;
    if (!fails) {
        assert_ok(kvp_seq_commit(e->w.cache, s->seq, n));
        return;
    }
    /* Who shares the units has computed them, or will: it has no state of ours. */
    assert_ok(kvp_seq_invalidate(e->w.cache, s->seq, computed, NULL, 0, NULL));
    e->n_lost += state_of(e, s).lost != 0;
}

static void draw_tokens(engine *e, stream *s, uint32_t from, uint32_t n)
{
    for (uint32_t i = from; i < from + n; i++) {
        s->tokens[i] = (int32_t)draw(&e->random, draw(&e->random, 4) == 0 ? 3 : 1);
    }
}

static void open_one(engine *e, stream *s)
{
    kvp_open_info info;
    const uint32_t n = 1 + draw(&e->random, MOST / 2);
    draw_tokens(e, s, 0, n);
    const kvp_prompt prompt = prompt_of(s->tokens, n);
    const kvp_admission admission = can_open(&e->w, &prompt);
    const kvp_status status = kvp_seq_open(e->w.cache, e->w.ns, &prompt, &s->seq, &info);
    assert_int_equal(status == KVP_OK, admission.verdict == KVP_ADMIT_OK);
    s->open = status == KVP_OK;
    e->n_short += status != KVP_OK;
    e->n_hits += s->open && info.hit_tokens > 0;
    if (s->open) {
        look(e, s);
    }
}

/* A chunk ends where open says, or at a unit, or anywhere. */
static void compute(engine *e, stream *s)
{
    const kvp_seq_info info = info_of(&e->w, s->seq);
    const kvp_state_info state = state_of(e, s);
    const uint32_t left = info.n_tokens - info.computed_tokens;
    uint32_t n = info.computed_tokens + 1 + draw(&e->random, left);
    if (left == 0 || state.lost || state.write_slot == 0 || info.writable_tokens < info.n_tokens) {
        return;
    }
    n = state.branch_end > info.computed_tokens && state.branch_end <= info.n_tokens
            ? state.branch_end
            : n;
    n = draw(&e->random, 2) && n / 4 * 4 > info.computed_tokens ? n / 4 * 4 : n;
    step(e, s, n, draw(&e->random, 12) == 0);
}

static void extend_one(engine *e, stream *s)
{
    const kvp_seq_info info = info_of(&e->w, s->seq);
    const uint32_t n = draw(&e->random, 6);
    if (info.n_tokens + n > MOST) {
        return;
    }
    draw_tokens(e, s, info.n_tokens, n);
    const kvp_status status = kvp_seq_extend(e->w.cache, s->seq, s->tokens + info.n_tokens, n, 0);
    assert_true(status == KVP_OK || status == KVP_E_NO_BLOCKS || status == KVP_E_DROPPED ||
                status == KVP_E_NEVER);
    assert_int_equal(status == KVP_E_DROPPED, state_of(e, s).lost != 0);
    e->n_short += status == KVP_E_NO_BLOCKS;
}

static void fork_one(engine *e, const stream *s, stream *child)
{
    const uint32_t at = draw(&e->random, info_of(&e->w, s->seq).computed_tokens + 1);
    const uint32_t place = draw(&e->random, 2) ? at / 4 * 4 : KVP_END;
    if (child->open) {
        return;
    }
    *child = *s;
    child->open = kvp_seq_fork(e->w.cache, s->seq, place, 0, &child->seq) == KVP_OK;
    if (child->open) {
        look(e, child);
    }
}

static void cut_one(engine *e, stream *s)
{
    const uint32_t n = draw(&e->random, info_of(&e->w, s->seq).n_tokens + 1) / 4 * 4;
    e->n_back += kvp_seq_truncate(e->w.cache, s->seq, n, NULL) == KVP_OK && n > 0;
    look(e, s);
}

static void act(engine *e)
{
    stream *s = &e->streams[draw(&e->random, SEQS)];
    uint32_t outcome = KVP_CHECKPOINT_SKIPPED;
    if (!s->open) {
        open_one(e, s);
        return;
    }
    switch (draw(&e->random, 12)) {
    case 0:
        close_seq(&e->w, s->seq);
        s->open = 0;
        break;
    case 1: fork_one(e, s, &e->streams[draw(&e->random, SEQS)]); break;
    case 2: cut_one(e, s); break;
    case 3:
    case 4: extend_one(e, s); break;
    case 5:
    case 6:
    case 7:
        (void)kvp_seq_checkpoint(e->w.cache, s->seq, &outcome);
        e->n_kept += outcome == KVP_CHECKPOINT_MADE;
        break;
    default: compute(e, s); break;
    }
}

static uint32_t run(uint64_t seed, uint32_t S, uint32_t blocks, uint32_t slots)
{
    kvp_config config = config_of(S, 4, blocks);
    config.state_slots = slots;
    config.max_seqs = SEQS;
    engine e = {.w = make_world(&config), .random = seed};
    for (uint32_t i = 0; i < 4000; i++) {
        act(&e);
        for (uint32_t k = 0; k < SEQS; k++) {
            if (e.streams[k].open) {
                look(&e, &e.streams[k]);
            }
        }
    }
    assert_true(e.n_hits > 20 && e.n_lost > 5 && e.n_kept > 20 && e.n_back > 5);
    end_world(&e.w);
    return e.n_short;
}

static void test_every_step_reads_the_state_of_its_tokens(void **state)
{
    (void)state;
    uint32_t n_short = 0;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        n_short += run(seed, 4, 40, 9);
        n_short += run(seed, 8, 24, 12);
        n_short += run(seed, 4, 24, SLOTS);
    }
    assert_true(n_short > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_step_reads_the_state_of_its_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
