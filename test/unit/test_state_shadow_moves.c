/* As test_state_shadow_steps.c, with a host tier: sequences are swapped, and states loaded, while
 * steps are out. Slots of both tiers know what they hold: a number that is chained over all tokens
 * up to there. Plans run in their order, as late as they may, and a pass runs after the plan of its
 * step. A step that fails leaves garbage wherever it should have written. Whoever reads garbage
 * must be a sequence whose work the cache drops; whoever is not lost has its state. */
#include <kvpager/lend.h>
#include <kvpager/steps.h>
#include <kvpager/swap.h>

#include "slots.h"

#include <string.h>

enum { SEQS = 6, MOST = 48, SLOTS = 40, OUT = 4, COPIES = 128, GARBAGE = 1 };

typedef struct stream {
    kvp_seq seq;
    int open;
    uint32_t scheduled;   /* tokens that steps which are out will have computed */
    uint64_t newest;      /* step that it is in */
    int32_t tokens[MOST]; /* values */
} stream;

/* What a step does for one sequence. */
typedef struct work {
    int there;
    int ran;
    int cut;        /* the sequence was closed, swapped, or taken back: it is of no use */
    uint64_t after; /* a step of the same sequence that runs first; 0: none */
    uint32_t from, to;
    int32_t read, write;
    uint64_t found; /* where it read */
    int32_t tokens[MOST];
} work;

typedef struct pass {
    uint64_t number; /* 0: none */
    int fails;
    int has_copied;
    uint32_t n_copies;
    kvp_copy copies[COPIES]; /* of states */
    work items[SEQS];
} pass;

typedef struct engine {
    world w;
    uint64_t random;
    uint64_t slots[2][SLOTS]; /* by tier */
    stream streams[SEQS];
    pass passes[OUT];
    uint32_t n_hits, n_kept, n_out, n_in, n_failed, n_lost, n_garbage, n_loaded, n_short;
} engine;

static pass *find_pass(engine *e, uint64_t number)
{
    for (uint32_t i = 0; i < OUT; i++)
        if (number != 0 && e->passes[i].number == number)
            return &e->passes[i];
    return NULL;
}

static pass *oldest(engine *e)
{
    pass *p = NULL;
    for (uint32_t i = 0; i < OUT; i++)
        if (e->passes[i].number != 0 && (p == NULL || e->passes[i].number < p->number))
            p = &e->passes[i];
    return p;
}

/* ------------------------------------------------------------------------------ what steps do */

/* The plan of the step, and all before it. */
static void run_plans(engine *e, const pass *last)
{
    for (pass *p = oldest(e); p != NULL && p->number <= last->number;
         p = find_pass(e, p->number + 1)) {
        for (uint32_t i = 0; i < p->n_copies && !p->has_copied; i++) {
            const kvp_copy *copy = &p->copies[i];
            e->slots[copy->dst_tier][copy->dst_block] =
                p->fails ? GARBAGE : e->slots[copy->src_tier][copy->src_block];
        }
        p->has_copied = 1;
    }
}

static uint64_t held_in(const engine *e, int32_t slot)
{
    return slot == 0 ? INITIAL_STATE : e->slots[KVP_DEVICE][slot];
}

static void run_work(engine *e, const pass *p, work *item, uint32_t k)
{
    pass *before = item->there ? find_pass(e, item->after) : NULL;
    if (!item->there || item->ran)
        return;
    if (before != NULL)
        run_work(e, before, &before->items[k], k);
    run_plans(e, p);
    uint64_t state = held_in(e, item->read);
    item->ran = 1;
    item->found = state;
    e->n_garbage += state == GARBAGE;
    assert_true(state == GARBAGE || state == state_after(item->tokens, item->from));
    for (uint32_t i = item->from; i < item->to && state != GARBAGE; i++)
        state = state_behind(state, item->tokens[i]);
    e->slots[KVP_DEVICE][item->write] = p->fails ? GARBAGE : state;
}

/* A pass ends: what it read is still there. */
static void end_pass(engine *e, pass *p)
{
    run_plans(e, p);
    for (uint32_t k = 0; k < SEQS; k++)
        run_work(e, p, &p->items[k], k);
    for (uint32_t k = 0; k < SEQS; k++) {
        const work *item = &p->items[k];
        assert_true(!item->there || item->found == held_in(e, item->read));
    }
}

/* No step is out, and no plan waits: each sequence has its state. */
static void look_at_all(const engine *e)
{
    for (uint32_t k = 0; k < SEQS; k++) {
        const stream *s = &e->streams[k];
        if (!s->open || state_of(&e->w, s->seq).lost)
            continue;
        const kvp_seq_info info = info_of(&e->w, s->seq);
        const uint32_t slot = state_of(&e->w, s->seq).read_slot;
        assert_int_equal(slot != 0, info.computed_tokens > 0);
        assert_true(slot == 0 ||
                    e->slots[info.tier][slot] == state_after(s->tokens, info.computed_tokens));
    }
}

/* ------------------------------------------------------------------------------------ schedule */

static void begin(engine *e, pass *p)
{
    kvp_copy copies[COPIES];
    uint32_t n;
    memset(p, 0, sizeof(*p));
    if (kvp_step_begin(e->w.cache, copies, COPIES, &n, &p->number) != KVP_OK) {
        p->number = 0;
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        if (copies[i].group == 1)
            p->copies[p->n_copies++] = copies[i];
    p->fails = draw(&e->random, 6) == 0;
}

static void schedule(engine *e, pass *p)
{
    begin(e, p);
    for (uint32_t k = 0; k < SEQS && p->number != 0; k++) {
        stream *s = &e->streams[k];
        work *item = &p->items[k];
        if (!s->open || draw(&e->random, 3) == 0)
            continue;
        const kvp_seq_info info = info_of(&e->w, s->seq);
        if (info.tier == KVP_HOST || info.n_tokens == s->scheduled ||
            info.writable_tokens < info.n_tokens ||
            kvp_meta_states(e->w.cache, &s->seq, 1, &item->read, &item->write) != KVP_OK)
            continue;
        const uint32_t n = s->scheduled + 1 + draw(&e->random, info.n_tokens - s->scheduled);
        item->there = 1;
        item->from = s->scheduled;
        item->to = draw(&e->random, 2) && n / 4 * 4 > s->scheduled ? n / 4 * 4 : n;
        item->after = s->newest;
        memcpy(item->tokens, s->tokens, sizeof(item->tokens));
        s->scheduled = item->to;
        s->newest = p->number;
        assert_ok(kvp_step_commit(e->w.cache, p->number, &s->seq, &item->to, 1));
    }
}

/* What steps that are out compute of the sequence is of no use. */
static void cut_work(engine *e, stream *s)
{
    for (uint32_t i = 0; i < OUT; i++)
        e->passes[i].items[s - e->streams].cut = 1;
    s->newest = 0;
}

/* The step failed. What it was to compute, and who is told of, goes on at its computed tokens. What
 * later steps were to compute of the former is dropped, and drops more should they fail. */
static void report_failed(engine *e, const pass *p)
{
    kvp_seq seqs[SEQS];
    uint32_t n;
    assert_ok(kvp_step_failed(e->w.cache, p->number, seqs, SEQS, &n));
    e->n_failed++;
    for (uint32_t k = 0; k < SEQS; k++) {
        stream *s = &e->streams[k];
        int is_told = 0;
        for (uint32_t i = 0; i < n && s->open; i++)
            is_told |= seqs[i].bits == s->seq.bits;
        if (s->open && (is_told || (p->items[k].there && !p->items[k].cut))) {
            s->scheduled = info_of(&e->w, s->seq).computed_tokens;
            e->n_lost += state_of(&e->w, s->seq).lost;
        }
        if (is_told)
            cut_work(e, s);
    }
}

static void report(engine *e)
{
    pass *p = oldest(e);
    if (p == NULL)
        return;
    end_pass(e, p);
    if (p->fails)
        report_failed(e, p);
    else
        assert_ok(kvp_step_done(e->w.cache, p->number, NULL));
    p->number = 0;
}

/* All that is out ends, and all that waits runs. */
static void drain(engine *e)
{
    while (oldest(e) != NULL)
        report(e);
    begin(e, &e->passes[0]);
    report(e);
    look_at_all(e);
}

/* ------------------------------------------------------------------------------------- the rest */

static void close_stream(engine *e, stream *s)
{
    cut_work(e, s);
    close_seq(&e->w, s->seq);
    s->open = 0;
}

static void open_one(engine *e, stream *s)
{
    kvp_open_info info;
    const uint32_t n = 1 + draw(&e->random, MOST / 2);
    draw_alike(&e->random, s->tokens, 0, n);
    const kvp_prompt prompt = prompt_of(s->tokens, n);
    s->open = kvp_seq_open(e->w.cache, e->w.ns, &prompt, &s->seq, &info) == KVP_OK;
    e->n_short += !s->open;
    if (s->open) {
        e->n_hits += info.hit_tokens > 0;
        s->scheduled = info.hit_tokens;
        s->newest = 0;
    }
}

static void extend_one(engine *e, stream *s)
{
    const uint32_t n_tokens = info_of(&e->w, s->seq).n_tokens;
    const uint32_t n = draw(&e->random, 4);
    if (n_tokens + n <= MOST) {
        draw_alike(&e->random, s->tokens, n_tokens, n);
        e->n_short += kvp_seq_extend(e->w.cache, s->seq, s->tokens + n_tokens, n, 0) != KVP_OK;
    }
}

static void fork_one(engine *e, const stream *s, stream *child)
{
    const uint32_t at = info_of(&e->w, s->seq).computed_tokens;
    kvp_seq seq;
    if (!child->open && kvp_seq_fork(e->w.cache, s->seq, at, 0, &seq) == KVP_OK) {
        *child = *s;
        child->seq = seq;
        child->open = 1;
        child->scheduled = at;
        child->newest = 0;
    }
}

static void swap_one(engine *e, stream *s)
{
    const int is_out = info_of(&e->w, s->seq).tier == KVP_HOST;
    if (is_out) {
        const uint32_t reserve = draw(&e->random, 2);
        e->n_in += kvp_seq_swap_in(e->w.cache, &s->seq, 1, reserve, NULL) == KVP_OK;
    } else if (kvp_seq_swap_out(e->w.cache, &s->seq, 1, NULL) == KVP_OK) {
        e->n_out++;
        cut_work(e, s);
        s->scheduled = info_of(&e->w, s->seq).computed_tokens;
    }
}

/* A state that a store has, of a prefix whose KV is here. */
static void load_one(engine *e, const stream *s)
{
    const uint32_t entry = info_of(&e->w, s->seq).computed_tokens / 4;
    const kvp_prompt prompt = prompt_of(s->tokens, entry * 4);
    const uint8_t whole = 1;
    int32_t slot = 0;
    kvp_loaded loaded;
    kvp_load load = {
        .struct_size = sizeof(load), .group = 1, .entries = {entry - 1, entry}, .blocks = &slot};
    if (entry == 0 || kvp_load_begin(e->w.cache, e->w.ns, &prompt, &load) != KVP_OK ||
        load.n_blocks == 0)
        return;
    if (kvp_load_done(e->w.cache, load.number, &whole, 1, &loaded) != KVP_OK) {
        assert_ok(kvp_load_cancel(e->w.cache, load.number));
        return;
    }
    e->slots[KVP_HOST][slot] = state_after(s->tokens, entry * 4); /* no plan has run since */
    e->n_loaded += loaded.cached;
}

static void act(engine *e)
{
    stream *s = &e->streams[draw(&e->random, SEQS)];
    uint32_t outcome = KVP_CHECKPOINT_SKIPPED;
    if (!s->open) {
        open_one(e, s);
        return;
    }
    if (state_of(&e->w, s->seq).lost) {
        close_stream(e, s);
        return;
    }
    const uint32_t what = draw(&e->random, 14);
    if (info_of(&e->w, s->seq).tier == KVP_HOST && what > 0) {
        swap_one(e, s);
        return;
    }
    switch (what) {
    case 0: close_stream(e, s); break;
    case 1: fork_one(e, s, &e->streams[draw(&e->random, SEQS)]); break;
    case 2:
    case 3: swap_one(e, s); break;
    case 4:
    case 5:
    case 6:
        (void)kvp_seq_checkpoint(e->w.cache, s->seq, &outcome);
        e->n_kept += outcome == KVP_CHECKPOINT_MADE;
        break;
    case 7: load_one(e, s); break;
    default: extend_one(e, s); break;
    }
}

static uint32_t run(uint64_t seed, uint32_t blocks, uint32_t slots, uint32_t host_slots)
{
    kvp_config config = config_of(4, 4, blocks);
    config.state_slots = slots;
    config.max_seqs = SEQS;
    config.steps = KVP_STEPS_OVERLAPPED;
    config.max_steps_out = OUT;
    config.host_blocks = 32;
    config.host_state_slots = host_slots;
    config.max_loads = 2;
    config.keep_evicted = KVP_EVICTED_KEEP;
    config.max_copies = COPIES;
    engine e = {.w = make_world(&config), .random = seed};
    for (uint32_t i = 0; i < 5000; i++) {
        act(&e);
        pass *p = &e.passes[draw(&e.random, OUT)];
        if (p->number == 0 && draw(&e.random, 2) == 0)
            schedule(&e, p);
        else if (draw(&e.random, 4) == 0)
            report(&e);
        p = &e.passes[draw(&e.random, OUT)];
        if (p->number != 0) {
            const uint32_t k = draw(&e.random, SEQS);
            run_work(&e, p, &p->items[k], k);
        }
        if (draw(&e.random, 40) == 0)
            drain(&e);
    }
    drain(&e);
    assert_true(e.n_hits > 20 && e.n_kept > 20 && e.n_out > 50 && e.n_in > 50);
    assert_true(e.n_failed > 50 && e.n_lost > 5 && e.n_garbage > 5 && e.n_loaded > 3);
    end_world(&e.w);
    return e.n_short;
}

TEST(test_who_is_not_lost_has_its_state)
{
    uint32_t n_short = 0;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        n_short += run(seed, 60, 14, 5);
        n_short += run(seed, 40, SLOTS, 12);
        n_short += run(seed, 30, 24, 9);
    }
    assert_true(n_short > 0);
}

TEST_MAIN(NULL, NULL)
