/* A sender that follows commits, one whose window drops what is to be sent, and peers that never
 * stop talking. */
#include "transfer_world.h"

#include <kvpager/trees.h>
#include <kvpager/windows.h>

#include <string.h>

static pair make_small(uint32_t n_tokens, uint32_t n_messages)
{
    const place_shape shape = small_place();
    pair p = make_pair(&shape, &shape, n_messages);
    open_both(&p, n_tokens, 0);
    reserve(&p);
    return p;
}

/* Write and commit, and tell the sender nothing. */
static void compute(pair *p, kvp_range range)
{
    write_kv(&p->a, p->seq_a, range, KVP_LAYERS_ALL);
    assert_ok(kvp_seq_commit(p->a.w.cache, p->seq_a, range.end));
}

static void mark_ready(pair *p, uint32_t ready_tokens)
{
    kvp_send send = send_of(p);
    send.ready_tokens = ready_tokens;
    assert_ok(kvp_sender_mark(p->sender, &send, &p->id_a));
}

/* ---------------------------------------------------------------------------- following commits */

TEST(what_is_committed_is_sent)
{
    scoped_pair p = make_small(9, 32);
    mark_ready(&p, KVP_END); /* nothing is computed yet */
    progress_both(&p, 2);
    assert_fields(info_a(&p), state, KVP_TRANSFER_MOVING, chunks, 0);
    compute(&p, (kvp_range){0, 5});
    progress_both(&p, 1);
    assert_int_equal(has_kv(&p.b, p.seq_b, (kvp_range){0, 5}), 1);
    compute(&p, (kvp_range){5, 9});
    progress_both(&p, 3);
    assert_int_equal(info_a(&p).state, KVP_TRANSFER_COMPLETE);
    assert_int_equal(info_b(&p).state, KVP_TRANSFER_COMPLETE);
    assert_int_equal(has_kv(&p.b, p.seq_b, (kvp_range){0, 9}), 1);
}

/* Whoever names a number says what is ready, and nothing else is. */
TEST(a_number_does_not_follow)
{
    scoped_pair p = make_small(9, 32);
    mark_ready(&p, 0);
    compute(&p, (kvp_range){0, 9});
    progress_both(&p, 3);
    assert_int_equal(info_a(&p).chunks, 0);
    assert_ok(kvp_sender_ready(p.sender, p.id_a, KVP_LAYERS_ALL, 9));
    progress_both(&p, 3);
    assert_int_equal(info_a(&p).state, KVP_TRANSFER_COMPLETE);
}

/* ready may be ahead of the commits: a layer that is said to be is sent at once. */
TEST(ready_ahead_of_commits)
{
    scoped_pair p = make_small(9, 32);
    mark_ready(&p, KVP_END);
    write_kv(&p.a, p.seq_a, (kvp_range){0, 4}, 0);
    assert_ok(kvp_sender_ready(p.sender, p.id_a, 0, 4));
    progress_both(&p, 1);
    assert_int_equal(info_a(&p).chunks, 1);
    compute(&p, (kvp_range){0, 4});
    progress_both(&p, 1);
    assert_int_equal(info_a(&p).chunks, 2);
    assert_int_equal(has_kv(&p.b, p.seq_b, (kvp_range){0, 4}), 1);
    compute(&p, (kvp_range){4, 9});
    progress_both(&p, 3);
    assert_int_equal(info_b(&p).state, KVP_TRANSFER_COMPLETE);
}

/* A commit that is taken back was perhaps sent: the transfer fails, as one does that was ready. */
TEST(a_commit_that_is_taken_back)
{
    scoped_pair p = make_small(9, 32);
    mark_ready(&p, KVP_END);
    compute(&p, (kvp_range){0, 8});
    progress_both(&p, 1);
    assert_ok(kvp_seq_invalidate(p.a.w.cache, p.seq_a, 4, NULL, 0, NULL));
    progress_both(&p, 2);
    assert_int_equal(info_a(&p).status, KVP_E_STATE);
    assert_int_equal(info_b(&p).state, KVP_TRANSFER_FAILED);
}

/* -------------------------------------------------------------------------- what a window drops */

static void expect_dropped(pair *p)
{
    progress_both(p, 2);
    assert_fields(info_a(p), state, KVP_TRANSFER_FAILED, status, KVP_E_DROPPED);
    assert_fields(info_b(p), state, KVP_TRANSFER_FAILED, status, KVP_E_DROPPED, by_peer, 1);
}

/* The commit that makes tokens ready drops some of them. */
TEST(a_commit_that_drops)
{
    scoped_pair p = make_small(24, 64);
    assert_ok(kvp_seq_window(p.a.w.cache, p.seq_a, 0, (kvp_window){0, 6}, NULL));
    mark_ready(&p, KVP_END);
    progress_both(&p, 1);
    compute(&p, (kvp_range){0, 24});
    expect_dropped(&p);
    assert_int_equal(info_a(&p).chunks, 0);
}

/* Chunks that are sent before they fall out of the window are no loss. */
TEST(a_window_that_follows_what_was_sent)
{
    scoped_pair p = make_small(24, 64);
    assert_ok(kvp_seq_window(p.a.w.cache, p.seq_a, 0, (kvp_window){0, 6}, NULL));
    mark_ready(&p, KVP_END);
    for (uint32_t i = 0; i < 24; i += 4) {
        compute(&p, (kvp_range){i, i + 4});
        progress_both(&p, 1);
    }
    progress_both(&p, 2);
    assert_int_equal(info_a(&p).state, KVP_TRANSFER_COMPLETE);
    assert_int_equal(info_b(&p).state, KVP_TRANSFER_COMPLETE);
}

/* One layer is behind, and is never said to be ready: the tokens are gone all the same. */
TEST(a_layer_that_was_not_ready)
{
    scoped_pair p = make_small(24, 64);
    mark_ready(&p, 0);
    write_kv(&p.a, p.seq_a, (kvp_range){0, 24}, KVP_LAYERS_ALL);
    assert_ok(kvp_sender_ready(p.sender, p.id_a, 0, 24));
    progress_both(&p, 1);
    assert_ok(kvp_seq_commit(p.a.w.cache, p.seq_a, 24));
    assert_ok(kvp_seq_window(p.a.w.cache, p.seq_a, 0, (kvp_window){4, 6}, NULL));
    expect_dropped(&p);
}

/* What is dropped behind the ticket's end, or before its beginning, is nobody's loss. */
TEST(what_is_dropped_elsewhere)
{
    const place_shape shape = small_place();
    for (int behind = 0; behind < 2; behind++) {
        scoped_pair p = make_pair(&shape, &shape, 64);
        open_both(&p, 24, behind ? 0 : 16);
        kvp_receive receive = receive_of(&p);
        receive.end = behind ? 8 : 24;
        assert_ok(kvp_receiver_reserve(p.receiver, &receive, p.ticket, sizeof p.ticket, &p.n_ticket,
                                       &p.id_b));
        compute(&p, (kvp_range){0, 24});
        /* keeps 0..7 and 20..23; or 0..3 and 16..23 */
        const kvp_window window = behind ? (kvp_window){8, 5} : (kvp_window){4, 8};
        assert_ok(kvp_seq_window(p.a.w.cache, p.seq_a, 0, window, NULL));
        mark_ready(&p, KVP_END);
        progress_both(&p, 3);
        assert_int_equal(info_a(&p).state, KVP_TRANSFER_COMPLETE);
        assert_int_equal(info_b(&p).state, KVP_TRANSFER_COMPLETE);
    }
}

/* ------------------------------------------------------------------------ peers that never stop */

typedef struct chatter {
    kvp_link inner;
    uint32_t n_taken;
    uint32_t n_most; /* after that, nothing more: a test that fails has an end */
    _Alignas(16) uint8_t message[64];
} chatter;

static kvp_status lend_on(void *context, size_t n_bytes, void **out_buffer)
{
    const chatter *c = context;
    return c->inner.lend(c->inner.context, n_bytes, out_buffer);
}

static kvp_status post_on(void *context, size_t n_bytes)
{
    const chatter *c = context;
    return c->inner.post(c->inner.context, n_bytes);
}

static kvp_status take_noise(void *context, const void **out_bytes, size_t *out_n_bytes)
{
    chatter *c = context;
    if (c->n_taken == c->n_most)
        return KVP_E_AGAIN;
    c->n_taken++;
    *out_bytes = c->message;
    *out_n_bytes = sizeof c->message;
    return KVP_OK;
}

static void nothing(void *context)
{
    (void)context;
}

static kvp_link chatter_link(chatter *c, const kvp_link *inner)
{
    kvp_link link = *inner;
    *c = (chatter){.inner = *inner, .n_most = 1u << 20};
    link.context = c;
    link.lend = lend_on;
    link.post = post_on;
    link.take = take_noise;
    link.give_back = link.progress = nothing;
    return link;
}

/* Each call takes so many messages from each link, and then the other links have their turn. */
TEST(a_peer_that_never_stops)
{
    chatter noisy[2];
    kvp_loopback *loopback;
    kvp_link ends[2], link;
    uint32_t number;
    pair p = make_small(9, 32);
    assert_ok(kvp_loopback_create(1024, 4, &loopback, ends));
    link = chatter_link(&noisy[0], &ends[0]);
    assert_ok(kvp_receiver_attach(p.receiver, &link, &number));
    link = chatter_link(&noisy[1], &ends[1]);
    assert_ok(kvp_sender_attach(p.sender, &link, &number));
    assert_ok(kvp_receiver_progress(p.receiver, 0, NULL));
    assert_int_equal(noisy[0].n_taken, KVP_PROGRESS_MESSAGES);
    assert_ok(kvp_receiver_progress(p.receiver, 7, NULL));
    assert_int_equal(noisy[0].n_taken, KVP_PROGRESS_MESSAGES + 7);
    assert_ok(kvp_receiver_progress(p.receiver, KVP_PROGRESS_MESSAGES + 1, NULL));
    assert_int_equal(noisy[0].n_taken, 2 * KVP_PROGRESS_MESSAGES + 8);
    assert_ok(kvp_sender_progress(p.sender, NULL));
    assert_int_equal(noisy[1].n_taken, KVP_PROGRESS_MESSAGES);
    mark_ready(&p, KVP_END);
    compute(&p, (kvp_range){0, 9});
    progress_both(&p, 3);
    assert_int_equal(info_a(&p).state, KVP_TRANSFER_COMPLETE);
    assert_int_equal(info_b(&p).state, KVP_TRANSFER_COMPLETE);
    end_pair(&p);
    kvp_loopback_destroy(loopback);
}

/* Trees stand behind the tokens that are sent, and received. */
TEST(trees_are_not_sent)
{
    static const int32_t parents[] = {-1, 0};
    const uint32_t n_nodes = 2;
    place_shape shape = small_place();
    shape.tree_tokens = 2;
    scoped_pair p = make_pair(&shape, &shape, 64);
    open_both(&p, 9, 0);
    reserve(&p);
    mark(&p);
    prefill(&p, (kvp_range){0, 5});
    progress_both(&p, 1);
    for (int sends = 0; sends < 2; sends++) {
        const kvp_batch batch = {.struct_size = sizeof batch,
                                 .n_seqs = 1,
                                 .seqs = sends ? &p.seq_a : &p.seq_b,
                                 .n_tokens = &n_nodes,
                                 .tokens = ints(7)};
        kvp_cache *cache = sends ? p.a.w.cache : p.b.w.cache;
        assert_ok(kvp_seq_extend_tree(cache, &batch, parents));
    }
    watch_place(&p.b);
    prefill(&p, (kvp_range){5, 9});
    progress_both(&p, 3);
    assert_int_equal(info_a(&p).state, KVP_TRANSFER_COMPLETE);
    assert_int_equal(info_b(&p).state, KVP_TRANSFER_COMPLETE);
    assert_true(has_kv(&p.b, p.seq_b, (kvp_range){0, 9}));
    assert_nothing_else_changed(&p.b, p.seq_b, (kvp_range){0, 9});
    assert_ok(kvp_seq_commit(p.b.w.cache, p.seq_b, 9));
    assert_int_equal(info_of(&p.b.w, p.seq_b).tree_tokens, n_nodes);
}

TEST_MAIN(NULL, NULL)
