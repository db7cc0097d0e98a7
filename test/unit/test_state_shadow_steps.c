/* As test_state_shadow.c, with overlapped steps. A slot knows what it holds: a number that is
 * chained over all tokens up to there. Steps that are out run as late as they may, in any order
 * that keeps those of a sequence one after the other. Each must find in the slot that it reads what
 * its sequence has computed, whatever was closed, forked, taken back and opened since. Then it
 * reads again what it has read: nobody may have written there. Steps that fail write garbage.
 *
 * Some steps verify a chain of drafts, with a ring of slots. They commit nothing by themselves.
 * When such a pass has run, some of its tokens are accepted, while its step is out or after it. */
#include <kvpager/steps.h>

#include "slots.h"

#include <string.h>

enum { SEQS = 6, MOST = 64, SLOTS = 40, OUT = 4, GARBAGE = 1 };

typedef struct stream {
    kvp_seq seq;
    int open;
    uint32_t scheduled;   /* tokens that steps which are out will have computed */
    uint64_t newest;      /* step that it is in */
    uint64_t verifying;   /* step that runs a chain of its drafts; 0: none */
    int32_t tokens[MOST]; /* values */
} stream;

/* What a step does for one sequence. */
typedef struct work {
    int there;
    int ran;
    int misled;     /* it reads what is bad */
    int bad;        /* so, or its step fails: what it writes is bad */
    int cut;        /* the sequence was closed, or taken back before where it ends */
    uint64_t after; /* a step of the same sequence that runs first; 0: none */
    uint32_t from, to;
    int32_t read, write;
    uint32_t n_ring; /* slots of the first tokens: what the step leaves there may go on */
    int32_t writes[KVP_STATE_RING_MAX];
    int32_t tokens[MOST]; /* of the sequence, when it was scheduled */
} work;

typedef struct pass {
    uint64_t number; /* 0: none */
    int fails;
    work items[SEQS];
} pass;

/* What was met of chains, in all runs. */
typedef struct chains {
    uint32_t n_rings, n_behind, n_early, n_late, n_whole, n_cut_out, n_again;
} chains;

typedef struct engine {
    world w;
    uint64_t random;
    uint64_t slots[SLOTS];
    stream streams[SEQS];
    pass passes[OUT];
    uint32_t n_hits, n_kept, n_back, n_short, n_failed, n_deep, n_closed_out, n_lost;
    chains met;
} engine;

static pass *find_pass(engine *e, uint64_t number)
{
    for (uint32_t i = 0; i < OUT; i++)
        if (number != 0 && e->passes[i].number == number)
            return &e->passes[i];
    return NULL;
}

/* ------------------------------------------------------------------------------ what steps do */

static uint64_t held_in(const engine *e, int32_t slot)
{
    return slot == 0 ? INITIAL_STATE : e->slots[slot];
}

/* Does it read what is bad? */
static int reads_bad(const engine *e, const work *item, uint32_t k)
{
    for (uint32_t i = 0; i < OUT; i++) {
        const work *other = &e->passes[i].items[k];
        if (e->passes[i].number != 0 && other != item && other->there && other->bad &&
            other->write == item->read)
            return 1;
    }
    return 0;
}

static void run_work(engine *e, const pass *p, work *item, uint32_t k)
{
    pass *before = item->there ? find_pass(e, item->after) : NULL;
    if (!item->there || item->ran)
        return;
    if (before != NULL)
        run_work(e, before, &before->items[k], k);
    uint64_t state = held_in(e, item->read);
    item->ran = 1;
    item->misled |= reads_bad(e, item, k);
    item->bad = item->misled || p->fails;
    assert_true(item->misled || state == state_after(item->tokens, item->from));
    for (uint32_t i = item->from; i < item->to; i++) {
        state = state_behind(state, item->tokens[i]);
        if (i - item->from < item->n_ring)
            e->slots[item->writes[i - item->from]] = item->bad ? GARBAGE : state;
    }
    e->slots[item->write] = item->bad ? GARBAGE : state;
}

/* A pass ends: what it read is still there. */
static void end_pass(engine *e, pass *p)
{
    for (uint32_t k = 0; k < SEQS; k++)
        run_work(e, p, &p->items[k], k);
    for (uint32_t k = 0; k < SEQS; k++) {
        const work *item = &p->items[k];
        assert_true(!item->there || item->read != item->write);
        assert_true(!item->there || item->misled ||
                    held_in(e, item->read) == state_after(item->tokens, item->from));
    }
}

/* What steps that are out compute of the sequence behind n tokens is of no use. */
static void cut_work(engine *e, const stream *s, uint32_t n)
{
    for (uint32_t i = 0; i < OUT; i++) {
        work *item = &e->passes[i].items[s - e->streams];
        item->cut |= item->to > n;
    }
}

static void look(const engine *e, const stream *s)
{
    const kvp_seq_info info = info_of(&e->w, s->seq);
    const kvp_state_info state = state_of(&e->w, s->seq);
    if (!state.lost && info.computed_tokens == s->scheduled)
        assert_true(held_in(e, (int32_t)state.read_slot) == state_after(s->tokens, s->scheduled));
}

/* ------------------------------------------------------------------------------------ schedule */

/* Which tokens of a sequence does the step compute? Often up to a unit's end. */
static uint32_t draw_end(engine *e, const stream *s, const kvp_seq_info *info)
{
    const uint32_t left = info->n_tokens - s->scheduled;
    const uint32_t n = s->scheduled + 1 + draw(&e->random, left);
    return draw(&e->random, 2) && n / 4 * 4 > s->scheduled ? n / 4 * 4 : n;
}

static void schedule(engine *e, pass *p)
{
    kvp_copy copies[256];
    kvp_seq seqs[SEQS];
    uint32_t counts[SEQS], n = 0, n_copies;
    memset(p, 0, sizeof(*p));
    if (kvp_step_begin(e->w.cache, copies, 256, &n_copies, &p->number) != KVP_OK) {
        p->number = 0;
        return;
    }
    for (uint32_t k = 0; k < SEQS; k++) {
        stream *s = &e->streams[k];
        work *item = &p->items[k];
        uint32_t n_writes;
        if (!s->open || s->verifying != 0 || draw(&e->random, 3) == 0)
            continue;
        const kvp_seq_info info = info_of(&e->w, s->seq);
        if (info.n_tokens == s->scheduled || info.writable_tokens < info.n_tokens ||
            kvp_meta_state_rings(e->w.cache, &s->seq, 1, KVP_STATE_RING_MAX, &item->read, &n_writes,
                                 item->writes) != KVP_OK)
            continue;
        item->there = 1;
        item->n_ring = n_writes - 1;
        item->write = item->writes[item->n_ring];
        item->from = s->scheduled;
        item->to = item->n_ring > 0 ? info.n_tokens : draw_end(e, s, &info);
        item->after = s->newest;
        memcpy(item->tokens, s->tokens, sizeof(item->tokens));
        s->newest = p->number;
        if (item->n_ring > 0) {
            s->verifying = p->number;
            continue;
        }
        s->scheduled = item->to;
        seqs[n] = s->seq;
        counts[n++] = item->to;
    }
    assert_ok(kvp_step_commit(e->w.cache, p->number, seqs, counts, n));
    p->fails = draw(&e->random, 10) == 0;
}

/* The chain has run: some of its tokens are accepted. What it read is released, and the slots of
 * the others. */
static void accept_some(engine *e, pass *p, uint32_t k, int is_out)
{
    stream *s = &e->streams[k];
    work *item = &p->items[k];
    if (!item->there || item->n_ring == 0 || item->cut || p->fails || s->verifying != p->number)
        return;
    run_work(e, p, item, k);
    assert_true(!item->bad);
    /* Tokens that were added without a slot of their own leave the state after all of them. */
    const uint32_t n = 1 + draw(&e->random, item->n_ring + 1);
    const uint32_t kept = n > item->n_ring ? item->to : item->from + n;
    if (is_out)
        assert_status(KVP_E_STATE, kvp_step_commit(e->w.cache, p->number, &s->seq, &kept, 1));
    if (draw(&e->random, 2))
        assert_ok(kvp_seq_truncate(e->w.cache, s->seq, kept, NULL));
    assert_ok(kvp_seq_commit(e->w.cache, s->seq, kept));
    s->scheduled = kept;
    s->verifying = 0;
    look(e, s);
    assert_ok(kvp_seq_truncate(e->w.cache, s->seq, kept, NULL));
    assert_int_equal(state_of(&e->w, s->seq).ring_slots, 0);
    e->met.n_whole += kept == item->to;
}

static pass *oldest(engine *e)
{
    pass *p = NULL;
    for (uint32_t i = 0; i < OUT; i++)
        if (e->passes[i].number != 0 && (p == NULL || e->passes[i].number < p->number))
            p = &e->passes[i];
    return p;
}

/* The step failed. Sequences that it leaves behind go on at their computed tokens: all later steps
 * of theirs were for nothing, also those that do not read what the failed one wrote. */
static void report_failed(engine *e, const pass *p)
{
    uint32_t computed[SEQS] = {0};
    for (uint32_t k = 0; k < SEQS; k++)
        computed[k] = e->streams[k].open ? info_of(&e->w, e->streams[k].seq).computed_tokens : 0;
    assert_ok(kvp_step_failed(e->w.cache, p->number, NULL, 0, NULL));
    e->n_failed++;
    for (uint32_t k = 0; k < SEQS; k++) {
        stream *s = &e->streams[k];
        const uint32_t left = s->open ? info_of(&e->w, s->seq).computed_tokens : 0;
        for (uint32_t i = 0; i < OUT * OUT; i++) { /* through all of them, in any order */
            work *item = &e->passes[i % OUT].items[k];
            item->misled |= item->there && reads_bad(e, item, k);
            item->bad |= item->misled;
        }
        if (s->open && (left < computed[k] || (p->items[k].there && !p->items[k].cut))) {
            s->scheduled = left;
            if (left < computed[k]) /* a copy failed: steps count up to there */
                cut_work(e, s, left);
            e->met.n_again += s->verifying == p->number;
            s->verifying = 0; /* its ring stays, if it is not cut: it runs again */
            look(e, s);
        }
    }
}

static void accept_all(engine *e, pass *p)
{
    for (uint32_t k = 0; k < SEQS; k++) {
        stream *s = &e->streams[k];
        e->met.n_late += s->verifying == p->number;
        accept_some(e, p, k, 0);
    }
}

/* The oldest step is reported. */
static void report(engine *e)
{
    pass *p = oldest(e);
    if (p == NULL)
        return;
    end_pass(e, p);
    if (p->fails) {
        report_failed(e, p);
    } else {
        assert_ok(kvp_step_done(e->w.cache, p->number, NULL));
        accept_all(e, p);
    }
    p->number = 0;
}

/* Some of what is scheduled runs early. */
static void run_some(engine *e)
{
    pass *p = &e->passes[draw(&e->random, OUT)];
    const uint32_t k = draw(&e->random, SEQS);
    if (p->number != 0) {
        run_work(e, p, &p->items[k], k);
        if (draw(&e->random, 2)) {
            e->met.n_early += e->streams[k].verifying == p->number && !p->fails;
            accept_some(e, p, k, 1);
        }
    }
}

/* ------------------------------------------------------------------------------------- the rest */

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
    if (s->open) {
        e->n_hits += info.hit_tokens > 0;
        s->scheduled = info.hit_tokens;
        s->newest = s->verifying = 0;
        look(e, s);
    }
}

static void extend_one(engine *e, stream *s)
{
    const uint32_t n_tokens = info_of(&e->w, s->seq).n_tokens;
    const uint32_t n = draw(&e->random, 4);
    if (n_tokens + n > MOST)
        return;
    draw_alike(&e->random, s->tokens, n_tokens, n);
    const kvp_batch batch = batch_of(&s->seq, &n, 1);
    kvp_admission admission;
    const kvp_status asked = kvp_cache_can_extend(e->w.cache, &batch, &admission);
    const kvp_status status = kvp_seq_extend(e->w.cache, s->seq, s->tokens + n_tokens, n, 0);
    assert_true(status == KVP_OK || status == KVP_E_NO_BLOCKS || status == KVP_E_NEVER ||
                status == KVP_E_IN_FLIGHT);
    assert_int_equal(status == KVP_OK, asked == KVP_OK && admission.verdict == KVP_ADMIT_OK);
    e->n_short += status == KVP_E_NO_BLOCKS;
}

/* A chain of drafts, if no step that is out has a slot for the sequence. */
static void draft_one(engine *e, stream *s)
{
    const kvp_seq_info info = info_of(&e->w, s->seq);
    const kvp_state_info state = state_of(&e->w, s->seq);
    const uint32_t n = 2 + draw(&e->random, 4);
    kvp_admission admission;
    if (s->verifying != 0 || info.n_tokens + n > MOST ||
        info.n_tokens + n - info.computed_tokens > KVP_STATE_RING_MAX)
        return;
    draw_alike(&e->random, s->tokens, info.n_tokens, n);
    kvp_batch batch = batch_of(&s->seq, &n, 1);
    batch.flags = KVP_BATCH_RING;
    batch.tokens = s->tokens + info.n_tokens;
    const kvp_status asked = kvp_cache_can_extend(e->w.cache, &batch, &admission);
    const kvp_status status = kvp_seq_extend_many(e->w.cache, &batch);
    assert_true(status == KVP_OK || status == KVP_E_NO_BLOCKS || status == KVP_E_NEVER ||
                status == KVP_E_IN_FLIGHT || status == KVP_E_STATE);
    assert_int_equal(status == KVP_OK, asked == KVP_OK && admission.verdict == KVP_ADMIT_OK);
    assert_true(status != KVP_OK || state.computed_slot == state.read_slot);
    assert_true(status != KVP_E_STATE || state.computed_slot != state.read_slot);
    e->met.n_rings += status == KVP_OK;
    e->met.n_behind += status == KVP_E_STATE;
    e->n_short += status == KVP_E_NO_BLOCKS;
}

static void fork_one(engine *e, const stream *s, stream *child)
{
    const uint32_t at = draw(&e->random, info_of(&e->w, s->seq).computed_tokens + 1);
    if (child->open)
        return;
    kvp_seq seq;
    const uint32_t place =
        draw(&e->random, 2) ? at / 4 * 4 : info_of(&e->w, s->seq).computed_tokens;
    if (kvp_seq_fork(e->w.cache, s->seq, place, 0, &seq) == KVP_OK) {
        *child = *s;
        child->seq = seq;
        child->open = 1;
        child->scheduled = place;
        child->newest = child->verifying = 0;
        look(e, child);
    }
}

static void cut_one(engine *e, stream *s)
{
    const kvp_seq_info info = info_of(&e->w, s->seq);
    const uint32_t n =
        draw(&e->random, 3) ? draw(&e->random, info.n_tokens + 1) : info.computed_tokens;
    if (kvp_seq_truncate(e->w.cache, s->seq, n, NULL) == KVP_OK) {
        e->n_back += n > 0 && n < s->scheduled;
        s->scheduled = s->scheduled < n ? s->scheduled : n;
        cut_work(e, s, n);
        if (s->verifying != 0 && n < info.n_tokens) {
            e->met.n_cut_out++;
            s->verifying = 0;
        }
        look(e, s);
    }
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
        e->n_lost++;
        cut_work(e, s, 0);
        close_seq(&e->w, s->seq);
        s->open = 0;
        return;
    }
    switch (draw(&e->random, 14)) {
    case 0:
        e->n_closed_out += find_pass(e, s->newest) != NULL;
        cut_work(e, s, 0);
        close_seq(&e->w, s->seq);
        s->open = 0;
        break;
    case 1: fork_one(e, s, &e->streams[draw(&e->random, SEQS)]); break;
    case 2: cut_one(e, s); break;
    case 3:
    case 4:
    case 5:
        (void)kvp_seq_checkpoint(e->w.cache, s->seq, &outcome);
        e->n_kept += outcome == KVP_CHECKPOINT_MADE;
        break;
    case 12:
    case 13: draft_one(e, s); break;
    default: extend_one(e, s); break;
    }
}

static uint32_t run(uint64_t seed, uint32_t S, uint32_t blocks, uint32_t slots, chains *met)
{
    kvp_config config = config_of(S, 4, blocks);
    config.state_slots = slots;
    config.max_seqs = SEQS;
    config.steps = KVP_STEPS_OVERLAPPED;
    config.max_steps_out = OUT;
    engine e = {.w = make_world(&config), .random = seed, .met = *met};
    for (uint32_t i = 0; i < 6000; i++) {
        act(&e);
        pass *p = &e.passes[draw(&e.random, OUT)];
        if (p->number == 0 && draw(&e.random, 2) == 0)
            schedule(&e, p);
        else if (draw(&e.random, 4) == 0)
            report(&e);
        run_some(&e);
        uint32_t n_out = 0;
        for (uint32_t k = 0; k < OUT; k++)
            n_out += e.passes[k].number != 0;
        e.n_deep += n_out > 2;
        for (uint32_t k = 0; k < SEQS; k++)
            if (e.streams[k].open)
                look(&e, &e.streams[k]);
    }
    for (uint32_t i = 0; i < OUT; i++)
        report(&e);
    assert_true(e.n_hits > 20 && e.n_kept > 20 && e.n_back > 5 && e.n_failed > 20);
    assert_true(e.n_deep > 100 && e.n_closed_out > 20);
    *met = e.met;
    end_world(&e.w);
    return e.n_short;
}

TEST(test_every_step_reads_the_state_of_its_tokens)
{
    uint32_t n_short = 0;
    chains met = {0};
    for (uint64_t seed = 1; seed <= 6; seed++) {
        n_short += run(seed, 4, 60, 18, &met);
        n_short += run(seed, 8, 40, 24, &met);
        n_short += run(seed, 4, 40, SLOTS, &met);
    }
    assert_true(n_short > 0);
    assert_true(met.n_rings > 1000 && met.n_behind > 1000 && met.n_early > 100);
    assert_true(met.n_late > 1000 && met.n_whole > 200 && met.n_cut_out > 100 && met.n_again > 100);
}

TEST_MAIN(NULL, NULL)
