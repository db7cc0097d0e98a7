/* A sequence's KV on its way to another cache, over a link that does any harm to any message. What
 * is complete is right; what is not has changed nothing but the slots it was to fill, and arrives
 * when it is sent once more. */
#include "faults.h"

#include "transfer_world.h"

typedef struct harmful {
    seam which;
    uint32_t kind;
} harmful;

static const harmful harms[] = {
    {SEAM_message_lost, FAULT_DROP},
    {SEAM_message_twice, FAULT_TWICE},
    {SEAM_message_swapped, FAULT_SWAP},
    {SEAM_message_cut, FAULT_CUT},
    {SEAM_message_damaged, FAULT_FLIP_BODY},
    {SEAM_link_broken, FAULT_BREAK},
    {SEAM_link_busy, FAULT_AGAIN},
    {SEAM_lend, FAULT_LEND},
    {SEAM_post, FAULT_POST},
    {SEAM_take, FAULT_TAKE},
};
enum { HARMS = sizeof(harms) / sizeof(*harms) };

typedef struct moving {
    pair p;
    uint64_t random;
    uint32_t side; /* whose link does harm */
    uint32_t n_tokens, n_cached;
} moving;

static place_shape draw_shape(uint64_t *random)
{
    static const char *const orders[] = {KVP_ORDER_VLLM_NHD, KVP_ORDER_TENSORRT_LLM};
    place_shape shape = small_place();
    shape.order = orders[draw(random, 2)];
    shape.S = 2u << draw(random, 3);
    shape.usable = 96 / shape.S;
    return shape;
}

/* One more of each, which any allocation may refuse. */
static void create_others(pair *p)
{
    const kvp_transfer_config config = transfer_config_of(&p->b);
    kvp_receiver *receiver = NULL;
    kvp_sender *sender = NULL;
    kvp_loopback *loopback = NULL;
    kvp_link ends[2];
    CALL(&p->b.w, KVP_E_NO_MEMORY, kvp_receiver_create(&config, &receiver));
    CALL(&p->b.w, KVP_E_NO_MEMORY, kvp_sender_create(&config, &sender));
    CALL(&p->b.w, KVP_E_NO_MEMORY, kvp_loopback_create(4096, 2, &loopback, ends));
    kvp_receiver_destroy(receiver);
    kvp_sender_destroy(sender);
    kvp_loopback_destroy(loopback);
}

static void attach_harmful(moving *m)
{
    harm_side(&m->p, m->side, FAULT_NONE, 0);
    for (uint32_t i = 0; i < HARMS; i++)
        if (fault_is(harms[i].which))
            harm_side(&m->p, m->side, harms[i].kind, fault_wanted(harms[i].which));
}

static void tell_faults(const moving *m)
{
    const link_faults *f = &m->p.faults[m->side];
    for (uint32_t i = 0; i < HARMS; i++) {
        const uint32_t kind = harms[i].kind;
        fault_tell(harms[i].which,
                   kind == FAULT_LEND || kind == FAULT_AGAIN ? f->n_lends
                   : kind == FAULT_TAKE                      ? f->n_takes
                                                             : f->n_posts,
                   f->happened && f->kind == kind);
    }
}

/* The sequence is computed in pieces, marked at some time, and moves as it is computed. */
static void move(moving *m)
{
    const uint32_t mark_at = draw(&m->random, m->n_tokens);
    for (uint32_t from = 0; from < m->n_tokens;) {
        const uint32_t left = m->n_tokens - from;
        const uint32_t n = 1 + draw(&m->random, left < 9 ? left : 9);
        prefill(&m->p, (kvp_range){from, from + n});
        from += n;
        if (m->p.id_a == 0 && from > mark_at)
            mark(&m->p);
        if (m->p.id_a != 0)
            progress_both(&m->p, draw(&m->random, 3));
    }
    progress_both(&m->p, 60);
}

static void assert_reason(const kvp_transfer_info *info)
{
    const kvp_status s = info->status;
    assert_true(info->state == KVP_TRANSFER_COMPLETE
                    ? s == KVP_OK
                    : s == KVP_E_FORMAT || s == KVP_E_PEER || s == KVP_E_IO || s == KVP_E_STATE ||
                          s == KVP_E_HANDLE || s == KVP_E_MISMATCH);
}

/* Whoever has no end by now gives up. Whether it has arrived. */
static bool settle(moving *m)
{
    pair *p = &m->p;
    const kvp_range moved = {m->n_cached, m->n_tokens};
    if (info_a(p).state < KVP_TRANSFER_COMPLETE)
        assert_ok(kvp_sender_abort(p->sender, p->id_a, KVP_E_PEER));
    if (info_b(p).state < KVP_TRANSFER_COMPLETE)
        assert_ok(kvp_receiver_abort(p->receiver, p->id_b, KVP_E_PEER));
    const kvp_transfer_info a = info_a(p), b = info_b(p);
    const bool has_arrived = b.state == KVP_TRANSFER_COMPLETE;
    assert_reason(&a);
    assert_reason(&b);
    assert_true(has_arrived || a.state == KVP_TRANSFER_FAILED);
    assert_nothing_else_changed(&p->b, p->seq_b, moved);
    assert_int_equal(info_of(&p->b.w, p->seq_b).computed_tokens, m->n_cached);
    assert_int_equal(match(&p->b.w, ints(1), m->n_tokens).hit_tokens, m->n_cached);
    assert_true(!has_arrived || has_kv(&p->b, p->seq_b, (kvp_range){0, m->n_tokens}));
    assert_ok(kvp_sender_close(p->sender, p->id_a));
    assert_ok(kvp_receiver_close(p->receiver, p->id_b));
    return has_arrived;
}

/* Over a link that does no harm. */
static void move_again(moving *m)
{
    harm_side(&m->p, m->side, FAULT_NONE, 0);
    progress_both(&m->p, 4); /* what was still on its way */
    reserve(&m->p);
    mark(&m->p);
    progress_both(&m->p, 60);
    assert_true(settle(m));
}

void scene_transfer(uint64_t seed)
{
    static moving m;
    const bool does_harm_anywhere = fault_wanted(SEAM_allocation) == 0;
    m.random = seed;
    m.side = (uint32_t)seed % 2;
    const place_shape a = draw_shape(&m.random), b = draw_shape(&m.random);
    m.n_tokens = 20 + draw(&m.random, 40);
    m.n_cached = b.S * draw(&m.random, 2);
    m.p = make_pair(&a, &b, 2 + draw(&m.random, 3));
    create_others(&m.p);
    attach_harmful(&m);
    open_both(&m.p, m.n_tokens, m.n_cached);
    reserve(&m.p);
    watch_place(&m.p.b);
    move(&m);
    if (does_harm_anywhere)
        tell_faults(&m);
    if (!settle(&m)) {
        assert_true(fault_happened());
        move_again(&m);
    }
    assert_ok(kvp_seq_commit(m.p.b.w.cache, m.p.seq_b, m.n_tokens));
    observed end = observe(&m.p.b.w);
    fault_mix(end.bytes, end.n);
    drop_observed(&end);
    end_pair(&m.p);
}
