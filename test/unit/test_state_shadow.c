/* An engine of layers with recurrent state, whose slots know what they hold: a number that is
 * chained over all tokens up to there. Each step reads a slot and must find what its sequence has
 * computed, whatever was opened, forked, taken back, swapped and evicted before; a step that fails
 * leaves garbage in what it writes. Plans wait as long as they may: they move states between the
 * slots of the device and those of the host. */
#include <kvpager/swap.h>

#include "slots.h"

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
    int has_host;
    int waits; /* the plan may have copies of states */
    uint64_t random;
    uint64_t slots[2][SLOTS]; /* what each holds, by tier */
    stream streams[SEQS];
    uint32_t n_hits, n_lost, n_kept, n_back, n_short; /* what was met */
    uint32_t n_out, n_in, n_found, n_together;
    uint32_t n_rings, n_accepted, n_cut;
} engine;

static uint32_t n_waiting(const engine *e)
{
    uint32_t n;
    (void)kvp_plan_take(e->w.cache, NULL, 0, &n); /* asks */
    return n;
}

static void run_plan(engine *e)
{
    kvp_copy copies[256];
    uint32_t n;
    assert_ok(kvp_plan_take(e->w.cache, copies, 256, &n));
    e->waits = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (copies[i].group == 1) { /* one group has blocks */
            assert_int_equal(copies[i].n_tokens, 1);
            e->slots[copies[i].dst_tier][copies[i].dst_block] =
                e->slots[copies[i].src_tier][copies[i].src_block];
        }
    }
}

/* What the sequence would read is its state, once the plan has run. */
static void look(const engine *e, const stream *s)
{
    const kvp_state_info state = state_of(&e->w, s->seq);
    const kvp_seq_info info = info_of(&e->w, s->seq);
    if (!state.lost && info.computed_tokens > 0 && !e->waits) {
        assert_true(e->slots[info.tier][state.read_slot] ==
                    state_after(s->tokens, info.computed_tokens));
    }
}

/* The pass over `from`..n leaves a state after each token that has a slot, and after the last. */
static void run_pass(engine *e, const stream *s, uint32_t from, uint32_t n, int fails)
{
    int32_t read, write, ring[KVP_STATE_RING_MAX];
    uint32_t n_ring;
    assert_ok(kvp_meta_states(e->w.cache, &s->seq, 1, &read, &write));
    assert_ok(
        kvp_meta_state_rings(e->w.cache, &s->seq, 1, KVP_STATE_RING_MAX, NULL, &n_ring, ring));
    uint64_t state = read == 0 ? INITIAL_STATE : e->slots[KVP_DEVICE][read];
    for (uint32_t i = from; i < n; i++) {
        state = state_behind(state, s->tokens[i]);
        if (i - from < n_ring - 1)
            e->slots[KVP_DEVICE][ring[i - from]] = fails ? GARBAGE : state;
    }
    e->slots[KVP_DEVICE][write] = fails ? GARBAGE : state;
}

/* One step: tokens up to n are computed, or it fails. */
static void step(engine *e, stream *s, uint32_t n, int fails)
{
    const uint32_t computed = info_of(&e->w, s->seq).computed_tokens;
    run_plan(e);
    look(e, s);
    run_pass(e, s, computed, n, fails);
    if (!fails) {
        assert_ok(kvp_seq_commit(e->w.cache, s->seq, n));
        return;
    }
    /* Who shares the units has computed them, or will: it has no state of ours. */
    assert_ok(kvp_seq_invalidate(e->w.cache, s->seq, computed, NULL, 0, NULL));
    e->n_lost += state_of(&e->w, s->seq).lost != 0;
}

static void open_one(engine *e, stream *s)
{
    kvp_open_info info;
    const uint32_t n = 1 + draw(&e->random, MOST / 2);
    draw_alike(&e->random, s->tokens, 0, n);
    const kvp_prompt prompt = prompt_of(s->tokens, n);
    const kvp_admission admission = can_open(&e->w, &prompt);
    const kvp_status status = kvp_seq_open(e->w.cache, e->w.ns, &prompt, &s->seq, &info);
    assert_int_equal(status == KVP_OK, admission.verdict == KVP_ADMIT_OK);
    s->open = status == KVP_OK;
    e->n_short += status != KVP_OK;
    e->n_hits += s->open && info.hit_tokens > 0;
    if (s->open)
        look(e, s);
}

/* A chunk ends where open says, or at a unit, or anywhere. */
static void compute(engine *e, stream *s)
{
    const kvp_seq_info info = info_of(&e->w, s->seq);
    const kvp_state_info state = state_of(&e->w, s->seq);
    const uint32_t left = info.n_tokens - info.computed_tokens;
    uint32_t n = info.computed_tokens + 1 + draw(&e->random, left);
    if (left == 0 || state.lost || state.write_slot == 0 || info.writable_tokens < info.n_tokens)
        return;
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
    if (info.n_tokens + n > MOST)
        return;
    draw_alike(&e->random, s->tokens, info.n_tokens, n);
    const kvp_status status = kvp_seq_extend(e->w.cache, s->seq, s->tokens + info.n_tokens, n, 0);
    assert_true(status == KVP_OK || status == KVP_E_NO_BLOCKS || status == KVP_E_DROPPED ||
                status == KVP_E_NEVER);
    assert_int_equal(status == KVP_E_DROPPED, state_of(&e->w, s->seq).lost != 0);
    e->n_short += status == KVP_E_NO_BLOCKS;
}

/* A chain of drafts is verified: all tokens run, and those up to some one are accepted. The rest is
 * taken back before the commit, or after it. */
static void verify_one(engine *e, stream *s)
{
    const kvp_seq_info before = info_of(&e->w, s->seq);
    const uint32_t n_new = 1 + draw(&e->random, 5);
    const uint32_t end = before.n_tokens + n_new;
    const kvp_batch batch = {.struct_size = sizeof(batch),
                             .n_seqs = 1,
                             .flags = KVP_BATCH_RING,
                             .seqs = &s->seq,
                             .n_tokens = &n_new};
    kvp_admission admission;
    if (end > MOST || state_of(&e->w, s->seq).lost || before.known_tokens < before.n_tokens ||
        end - before.computed_tokens > KVP_STATE_RING_MAX)
        return;
    draw_alike(&e->random, s->tokens, before.n_tokens, n_new);
    assert_ok(kvp_cache_can_extend(e->w.cache, &batch, &admission));
    const kvp_status status = kvp_seq_extend_many(e->w.cache, &batch);
    assert_int_equal(status == KVP_OK, admission.verdict == KVP_ADMIT_OK);
    e->n_short += status != KVP_OK;
    if (status != KVP_OK)
        return;
    e->n_rings += state_of(&e->w, s->seq).ring_slots > 0;
    run_plan(e);
    run_pass(e, s, before.computed_tokens, end, 0);
    const uint32_t kept =
        before.computed_tokens + 1 + draw(&e->random, end - before.computed_tokens);
    const int cuts_first = (int)draw(&e->random, 2);
    if (cuts_first)
        assert_ok(kvp_seq_truncate(e->w.cache, s->seq, kept, NULL));
    if (kept > before.n_tokens) {
        assert_ok(
            kvp_seq_fill(e->w.cache, s->seq, s->tokens + before.n_tokens, kept - before.n_tokens));
    }
    assert_ok(kvp_seq_commit(e->w.cache, s->seq, kept));
    look(e, s);
    assert_ok(kvp_seq_truncate(e->w.cache, s->seq, kept, NULL));
    e->n_accepted += kept == end;
    e->n_cut += kept < end;
    assert_int_equal(state_of(&e->w, s->seq).ring_slots, 0);
}

static void fork_one(engine *e, const stream *s, stream *child)
{
    const uint32_t at = draw(&e->random, info_of(&e->w, s->seq).computed_tokens + 1);
    const uint32_t place = draw(&e->random, 2) ? at / 4 * 4 : KVP_END;
    if (child->open)
        return;
    *child = *s;
    child->open = kvp_seq_fork(e->w.cache, s->seq, place, 0, &child->seq) == KVP_OK;
    if (child->open)
        look(e, child);
}

static void cut_one(engine *e, stream *s)
{
    const uint32_t n = draw(&e->random, info_of(&e->w, s->seq).n_tokens + 1) / 4 * 4;
    e->n_back += kvp_seq_truncate(e->w.cache, s->seq, n, NULL) == KVP_OK && n > 0;
    look(e, s);
}

/* One or two sequences to the host, or back, with room for a few tokens. */
static void swap_some(engine *e, stream *s)
{
    const uint32_t tier = info_of(&e->w, s->seq).tier;
    const stream *other = &e->streams[draw(&e->random, SEQS)];
    const int both = other != s && other->open && info_of(&e->w, other->seq).tier == tier;
    const kvp_seq seqs[2] = {s->seq, both ? other->seq : s->seq};
    const uint32_t n_seqs = both ? 2 : 1;
    const uint32_t reserve = draw(&e->random, 3);
    const uint32_t before = n_waiting(e);
    kvp_admission admission;
    e->waits = 1;
    if (tier == KVP_DEVICE) {
        assert_ok(kvp_cache_can_swap_out(e->w.cache, seqs, n_seqs, &admission));
        const kvp_status status = kvp_seq_swap_out(e->w.cache, seqs, n_seqs, NULL);
        assert_true((status == KVP_OK) == (admission.verdict == KVP_ADMIT_OK) ||
                    status == KVP_E_PLAN_FULL);
        e->n_out += status == KVP_OK;
        e->n_together += status == KVP_OK && both;
        return;
    }
    const kvp_status status = kvp_seq_swap_in(e->w.cache, seqs, n_seqs, reserve, NULL);
    assert_true(status == KVP_OK || status == KVP_E_NO_BLOCKS || status == KVP_E_DROPPED ||
                status == KVP_E_NEVER || status == KVP_E_TOO_LONG || status == KVP_E_PLAN_FULL);
    assert_true(status != KVP_E_DROPPED || state_of(&e->w, s->seq).lost ||
                (both && state_of(&e->w, other->seq).lost));
    e->n_in += status == KVP_OK;
    e->n_found +=
        status == KVP_OK && info_of(&e->w, s->seq).computed_tokens > 0 && n_waiting(e) == before;
    e->n_short += status == KVP_E_NO_BLOCKS;
}

static void act(engine *e)
{
    stream *s = &e->streams[draw(&e->random, SEQS)];
    uint32_t outcome = KVP_CHECKPOINT_SKIPPED;
    if (!s->open) {
        open_one(e, s);
        return;
    }
    const int away = info_of(&e->w, s->seq).tier == KVP_HOST;
    const uint32_t what = draw(&e->random, e->has_host ? 16 : 14);
    switch (away && what > 0 ? 14 : what) { /* on the host there is nothing else */
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
    case 12:
    case 13: verify_one(e, s); break;
    case 14:
    case 15: swap_some(e, s); break;
    default: compute(e, s); break;
    }
}

static uint32_t run(uint64_t seed, uint32_t S, uint32_t blocks, uint32_t slots, uint32_t host)
{
    kvp_config config = config_of(S, 4, blocks);
    config.state_slots = slots;
    config.max_seqs = SEQS;
    config.host_blocks = host == 0 ? 0 : 24;
    config.host_state_slots = host;
    engine e = {.w = make_world(&config), .has_host = host > 0, .random = seed};
    for (uint32_t i = 0; i < 4000; i++) {
        act(&e);
        if (draw(&e.random, 3) == 0)
            run_plan(&e);
        for (uint32_t k = 0; k < SEQS; k++)
            if (e.streams[k].open)
                look(&e, &e.streams[k]);
    }
    assert_true(e.n_hits > 20 && e.n_lost > 5 && e.n_kept > 20 && e.n_back > 5);
    assert_true(e.n_rings > 50 && e.n_accepted > 20 && e.n_cut > 20);
    assert_true(host == 0 || (e.n_out > 20 && e.n_in > 20 && e.n_found > 0 && e.n_together > 3));
    end_world(&e.w);
    return e.n_short;
}

TEST(test_every_step_reads_the_state_of_its_tokens)
{
    uint32_t n_short = 0;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        n_short += run(seed, 4, 40, 9, 0);
        n_short += run(seed, 8, 24, 12, 0);
        n_short += run(seed, 4, 24, SLOTS, 0);
        n_short += run(seed, 4, 40, 9, 4);
        n_short += run(seed, 8, 24, SLOTS, 9);
    }
    assert_true(n_short > 0);
}

TEST_MAIN(NULL, NULL)
