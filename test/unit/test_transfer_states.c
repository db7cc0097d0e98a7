/* Every call in every state; sequences that change under a transfer; arguments. */
#include "transfer_world.h"

#include <kvpager/windows.h>

#include <string.h>

static pair make_small(uint32_t n_tokens)
{
    const place_shape shape = small_place();
    pair p = make_pair(&shape, &shape, 32);
    open_both(&p, n_tokens, 0);
    return p;
}

/* ------------------------------------------------------------------------------------- states */

/* Bring both sides to a state: WAITING, MOVING, SENT (the receiver: MOVING), COMPLETE, FAILED. */
static pair make_in(uint32_t state)
{
    pair p = make_small(9);
    reserve(&p);
    mark(&p);
    if (state == KVP_TRANSFER_WAITING)
        return p;
    const int in_part = state == KVP_TRANSFER_MOVING || state == KVP_TRANSFER_FAILED;
    prefill(&p, (kvp_range){0, in_part ? 5 : 9});
    if (state == KVP_TRANSFER_SENT) {
        assert_ok(kvp_receiver_progress(p.receiver, 2, NULL));
        assert_ok(kvp_sender_progress(p.sender, NULL));
        return p;
    }
    progress_both(&p, 1);
    if (state == KVP_TRANSFER_COMPLETE)
        progress_both(&p, 4);
    if (state == KVP_TRANSFER_FAILED) {
        assert_ok(kvp_sender_abort(p.sender, p.id_a, KVP_E_NO_MEMORY));
        progress_both(&p, 2);
    }
    return p;
}

TEST(every_call_in_every_state)
{
    for (uint32_t s = KVP_TRANSFER_WAITING; s <= KVP_TRANSFER_FAILED; s++) {
        const int lives = s < KVP_TRANSFER_COMPLETE;
        const kvp_status if_lives = lives ? KVP_OK : KVP_E_STATE;
        const kvp_status if_ended = lives ? KVP_E_STATE : KVP_OK;
        for (int call = 0; call < 7; call++) {
            pair p = make_in(s);
            const uint32_t b = s == KVP_TRANSFER_SENT ? KVP_TRANSFER_MOVING : s;
            assert_int_equal(info_a(&p).state, s);
            assert_int_equal(info_b(&p).state, b);
            kvp_send send = send_of(&p);
            kvp_receive receive = receive_of(&p);
            uint64_t id;
            size_t n;
            uint8_t ticket[1024];
            switch (call) {
            case 0: assert_status(if_lives, kvp_sender_ready(p.sender, p.id_a, 0, 9)); break;
            case 1:
                assert_status(if_lives, kvp_sender_abort(p.sender, p.id_a, KVP_E_PEER));
                assert_status(KVP_E_STATE, kvp_sender_abort(p.sender, p.id_a, KVP_E_PEER));
                assert_ok(kvp_sender_close(p.sender, p.id_a));
                break;
            case 2: assert_status(if_ended, kvp_sender_close(p.sender, p.id_a)); break;
            case 3:
                assert_status(if_lives, kvp_receiver_abort(p.receiver, p.id_b, KVP_E_PEER));
                assert_status(KVP_E_STATE, kvp_receiver_abort(p.receiver, p.id_b, KVP_E_PEER));
                assert_ok(kvp_receiver_close(p.receiver, p.id_b));
                break;
            case 4: assert_status(if_ended, kvp_receiver_close(p.receiver, p.id_b)); break;
            case 5: assert_status(KVP_E_STATE, kvp_sender_mark(p.sender, &send, &id)); break;
            default:
                assert_status(KVP_E_STATE, kvp_receiver_reserve(p.receiver, &receive, ticket,
                                                                sizeof ticket, &n, &id));
            }
            progress_both(&p, 3);
            end_pair(&p);
        }
    }
}

TEST(ids_that_are_closed)
{
    scoped_pair p = make_in(KVP_TRANSFER_COMPLETE);
    const uint64_t a = p.id_a, b = p.id_b;
    kvp_transfer_info info;
    assert_ok(kvp_sender_close(p.sender, a));
    assert_ok(kvp_receiver_close(p.receiver, b));
    reserve(&p); /* in the same places */
    mark(&p);
    assert_true(p.id_a != a && p.id_b != b);
    const uint64_t none[] = {0, 4, UINT64_MAX, a};
    for (int i = 0; i < 4; i++) {
        const uint64_t other = i == 3 ? b : none[i];
        assert_status(KVP_E_HANDLE, kvp_sender_ready(p.sender, none[i], 0, 1));
        assert_status(KVP_E_HANDLE, kvp_sender_abort(p.sender, none[i], KVP_E_PEER));
        assert_status(KVP_E_HANDLE, kvp_sender_close(p.sender, none[i]));
        assert_status(KVP_E_HANDLE, kvp_sender_info_get(p.sender, none[i], &info));
        assert_status(KVP_E_HANDLE, kvp_receiver_abort(p.receiver, other, KVP_E_PEER));
        assert_status(KVP_E_HANDLE, kvp_receiver_close(p.receiver, other));
        assert_status(KVP_E_HANDLE, kvp_receiver_info_get(p.receiver, other, &info));
    }
    /* It goes well a second time. */
    progress_both(&p, 5);
    assert_int_equal(info_a(&p).state, KVP_TRANSFER_COMPLETE);
}

/* The receiver gives up: the sender learns why; and the other way round. */
TEST(giving_up)
{
    for (int side = 0; side < 2; side++) {
        for (uint32_t s = KVP_TRANSFER_MOVING; s <= KVP_TRANSFER_SENT; s++) {
            scoped_pair p = make_in(s);
            const kvp_transfer_info before = info_b(&p);
            assert_ok(side == 0 ? kvp_sender_abort(p.sender, p.id_a, KVP_E_NO_SEQS)
                                : kvp_receiver_abort(p.receiver, p.id_b, KVP_E_NO_SEQS));
            progress_both(&p, 2);
            const kvp_transfer_info a = info_a(&p), b = info_b(&p);
            assert_int_equal(before.state, KVP_TRANSFER_MOVING);
            assert_fields(a, state, KVP_TRANSFER_FAILED, status, KVP_E_NO_SEQS, by_peer, side);
            if (side == 0 && s == KVP_TRANSFER_SENT) {
                /* All had been sent: the receiver has it before it hears of this. */
                assert_int_equal(b.state, KVP_TRANSFER_COMPLETE);
            } else {
                assert_fields(b, state, KVP_TRANSFER_FAILED, status, KVP_E_NO_SEQS, by_peer, !side);
                kvp_receiver_stats stats;
                assert_ok(kvp_receiver_stats_get(p.receiver, &stats));
                assert_true(stats.late == 0 || s == KVP_TRANSFER_SENT);
            }
            assert_int_equal(a.owed + b.owed, 0);
        }
    }
}

static void abort_side(const pair *p, uint32_t side)
{
    assert_ok(side == 0 ? kvp_sender_abort(p->sender, p->id_a, KVP_E_NO_SEQS)
                        : kvp_receiver_abort(p->receiver, p->id_b, KVP_E_NO_SEQS));
}

/* How many have ended since. */
static uint32_t progress_side(const pair *p, uint32_t side)
{
    uint32_t n;
    assert_ok(side == 0 ? kvp_sender_progress(p->sender, &n)
                        : kvp_receiver_progress(p->receiver, 0, &n));
    return n;
}

static void close_side(const pair *p, uint32_t side)
{
    assert_ok(side == 0 ? kvp_sender_close(p->sender, p->id_a)
                        : kvp_receiver_close(p->receiver, p->id_b));
}

/* What a link without room owes is paid by progress or by close, once there is room. With the link
 * it is gone, also if the transfer was closed before: the next link in its place is another's. */
TEST(what_is_owed)
{
    enum { PROGRESS, CLOSE, DETACH, CLOSE_FIRST, WAYS };
    for (uint32_t at = 0; at < 2 * WAYS; at++) {
        const uint32_t side = at % 2, way = at / 2, other = !side;
        scoped_pair p = make_small(9);
        harm_side(&p, side, FAULT_NONE, 0);
        reserve(&p);
        mark(&p);
        prefill(&p, (kvp_range){0, 5});
        progress_both(&p, 1);
        p.faults[side].lends = KVP_E_AGAIN;
        abort_side(&p, side);
        progress_side(&p, side);
        assert_int_equal((side == 0 ? info_a(&p) : info_b(&p)).owed, 1);
        if (way == CLOSE_FIRST)
            close_side(&p, side);
        p.faults[side].lends = KVP_OK;
        if (way >= DETACH) {
            harm_side(&p, side, FAULT_NONE, 0);
            assert_true(way != DETACH || (side == 0 ? info_a(&p) : info_b(&p)).owed == 0);
        }
        if (way == CLOSE)
            close_side(&p, side);
        else
            progress_side(&p, side);
        for (int i = 0; i < 3; i++)
            progress_side(&p, other);
        const kvp_transfer_info told = other == 0 ? info_a(&p) : info_b(&p);
        const int is_told = way <= CLOSE;
        assert_fields(told, state, is_told ? KVP_TRANSFER_FAILED : KVP_TRANSFER_MOVING, status,
                      is_told ? KVP_E_NO_SEQS : KVP_OK, by_peer, is_told);
    }
}

/* A peer that has not heard of a transfer is told nothing of its end. */
TEST(nothing_is_owed)
{
    for (uint32_t side = 0; side < 2; side++) {
        scoped_pair p = make_small(9);
        harm_side(&p, side, FAULT_NONE, 0);
        reserve(&p);
        mark(&p);
        abort_side(&p, side);
        assert_int_equal(progress_side(&p, side), 1);
        assert_int_equal(progress_side(&p, side), 0);
        assert_int_equal((side == 0 ? info_a(&p) : info_b(&p)).owed, 0);
        assert_int_equal(p.faults[side].n_posts, 0);
    }
}

/* A link that takes as before, but lends nothing any more, is broken. */
TEST(a_link_that_lends_nothing)
{
    for (uint32_t side = 0; side < 2; side++) {
        scoped_pair p = make_small(9);
        harm_side(&p, side, FAULT_NONE, 0);
        reserve(&p);
        mark(&p);
        progress_both(&p, 1);
        p.faults[side].lends = KVP_E_IO;
        prefill(&p, (kvp_range){0, 5});
        progress_side(&p, side);
        const kvp_transfer_info info = side == 0 ? info_a(&p) : info_b(&p);
        assert_fields(info, state, KVP_TRANSFER_FAILED, status, KVP_E_IO);
    }
}

/* A receiver that was made anew gives the same ids: its answers are of its own epoch. */
TEST(receivers_of_two_epochs)
{
    scoped_pair p = make_small(9);
    kvp_receiver *before;
    kvp_transfer_config config = transfer_config_of(&p.b);
    config.epoch--;
    assert_ok(kvp_receiver_create(&config, &before));
    const kvp_receive receive = receive_of(&p);
    uint8_t ticket[1024];
    uint64_t ids[2];
    kvp_send send = send_of(&p);
    assert_ok(
        kvp_receiver_reserve(before, &receive, ticket, sizeof ticket, &send.ticket_bytes, &ids[0]));
    kvp_receiver_destroy(before);
    reserve(&p);
    assert_int_equal(p.id_b, ids[0]);
    mark(&p);
    send.ticket = ticket;
    assert_ok(kvp_sender_mark(p.sender, &send, &ids[0]));
    assert_ok(kvp_sender_attach(p.sender, &p.ends[0], &send.link));
    assert_ok(kvp_sender_mark(p.sender, &send, &ids[1])); /* the third, and last, place */
    send.ticket = p.ticket;
    send.ticket_bytes = p.n_ticket;
    assert_status(KVP_E_AGAIN, kvp_sender_mark(p.sender, &send, &ids[1]));
    assert_ok(kvp_sender_abort(p.sender, ids[1], KVP_E_PEER));
    progress_both(&p, 3);
    prefill(&p, (kvp_range){0, 9});
    progress_both(&p, 3);
    assert_int_equal(info_a(&p).state, KVP_TRANSFER_COMPLETE);
    p.id_a = ids[0];
    assert_fields(info_a(&p), status, KVP_E_HANDLE, by_peer, 1);
}

/* The answer had arrived when the link broke: it is what the sender learns. */
TEST(an_answer_before_the_link_broke)
{
    scoped_pair p = make_in(KVP_TRANSFER_MOVING);
    abort_side(&p, 1);
    progress_side(&p, 1);
    cut_link(&p);
    prefill(&p, (kvp_range){5, 9});
    progress_side(&p, 0);
    assert_fields(info_a(&p), status, KVP_E_NO_SEQS, by_peer, 1);
    assert_status(KVP_E_STATE, kvp_sender_ready(p.sender, p.id_a, 0, 9));
}

/* -------------------------------------------------------------- sequences under a transfer */

/* On the host nothing is reserved, marked, sent or written; nor is it after a way out and back. */
TEST(sequences_on_the_host)
{
    place_shape shape = small_place();
    shape.host_blocks = 17;
    for (int at = 0; at < 6; at++) {
        const int receives = at % 2, moves = at / 2 > 0, is_back = at / 2 > 1;
        scoped_pair p = make_pair(&shape, &shape, 32);
        open_both(&p, 9, 4);
        const kvp_seq seq = receives ? p.seq_b : p.seq_a;
        kvp_cache *cache = receives ? p.b.w.cache : p.a.w.cache;
        if (moves || !receives)
            reserve(&p);
        if (moves)
            mark(&p);
        prefill(&p, (kvp_range){0, 5});
        progress_both(&p, (uint32_t)moves);
        assert_ok(kvp_seq_swap_out(cache, &seq, 1, NULL));
        if (is_back)
            assert_ok(kvp_seq_swap_in(cache, &seq, 1, 0, NULL));
        if (moves && receives) {
            prefill(&p, (kvp_range){5, 9});
            progress_both(&p, 2);
        } else if (moves) {
            assert_ok(kvp_sender_ready(p.sender, p.id_a, KVP_LAYERS_ALL, 9));
            progress_both(&p, 2);
        } else if (receives) {
            const kvp_receive receive = receive_of(&p);
            assert_status(KVP_E_STATE, kvp_receiver_reserve(p.receiver, &receive, p.ticket,
                                                            sizeof p.ticket, &p.n_ticket, &p.id_b));
        } else {
            const kvp_send send = send_of(&p);
            assert_status(KVP_E_STATE, kvp_sender_mark(p.sender, &send, &p.id_a));
        }
        if (moves && (receives || !is_back)) {
            assert_int_equal(info_a(&p).status, KVP_E_STATE);
            assert_int_equal(info_b(&p).status, KVP_E_STATE);
        }
    }
}

/* Values that the sender does not know yet are waited for; those that it did not keep are not. */
TEST(tokens_that_cannot_be_compared)
{
    for (int kept = 0; kept < 2; kept++) {
        place_shape a = small_place();
        const place_shape b = small_place();
        a.n_nodes = kept ? 0 : 6; /* the root, and five units */
        scoped_pair p = make_pair(&a, &b, 32);
        const kvp_seq other = open_seq(&p.a.w, ints(100), 16, NULL);
        open_both(&p, 9, 0);
        if (kept) {
            assert_ok(kvp_seq_truncate(p.a.w.cache, p.seq_a, 5, NULL));
            assert_ok(kvp_seq_extend(p.a.w.cache, p.seq_a, NULL, 4, 0));
        }
        reserve(&p);
        mark(&p);
        prefill(&p, (kvp_range){0, 9});
        progress_both(&p, 2);
        if (kept) {
            assert_int_equal(info_a(&p).state, KVP_TRANSFER_MOVING);
            assert_ok(kvp_seq_fill(p.a.w.cache, p.seq_a, ints(6), 4));
            progress_both(&p, 3);
        }
        const uint32_t end = kept ? KVP_TRANSFER_COMPLETE : KVP_TRANSFER_FAILED;
        assert_int_equal(info_a(&p).state, end);
        assert_fields(info_b(&p), state, end, status, kept ? KVP_OK : KVP_E_UNKNOWN);
        close_seq(&p.a.w, other);
    }
}

TEST(a_receivers_sequence_that_changes)
{
    for (int change = 0; change < 6; change++) {
        scoped_pair p = make_in(KVP_TRANSFER_MOVING); /* 5 of 9 tokens are there */
        kvp_cache *cache = p.b.w.cache;
        kvp_seq child = {0};
        kvp_status expected = KVP_E_STATE;
        if (change == 0) {
            close_seq(&p.b.w, p.seq_b);
            p.seq_b.bits = 0;
            expected = KVP_E_HANDLE;
        } else if (change == 1) {
            assert_ok(kvp_seq_truncate(cache, p.seq_b, 8, NULL));
        } else if (change == 2) {
            assert_ok(kvp_seq_commit(cache, p.seq_b, 1));
        } else if (change == 3) { /* it shares a block, and has another one for its own */
            assert_ok(kvp_seq_commit(cache, p.seq_b, 1));
            child = fork_seq(&p.b.w, p.seq_b, 1);
            assert_ok(kvp_seq_extend(cache, p.seq_b, NULL, 0, 0));
            assert_ok(kvp_seq_invalidate(cache, p.seq_b, 0, NULL, 0, NULL));
            assert_ok(kvp_seq_extend(cache, p.seq_b, NULL, 0, 0));
        } else if (change == 4) {
            assert_ok(kvp_seq_invalidate(cache, p.seq_b, 0, NULL, 0, NULL));
        } else {
            assert_ok(kvp_seq_truncate(cache, p.seq_b, 2, NULL));
            assert_ok(kvp_seq_extend(cache, p.seq_b, ints(3), 7, 0));
        }
        watch_place(&p.b);
        prefill(&p, (kvp_range){5, 9});
        progress_both(&p, 3);
        assert_fields(info_b(&p), state, KVP_TRANSFER_FAILED, status, expected);
        assert_fields(info_a(&p), state, KVP_TRANSFER_FAILED, status, expected, by_peer, 1);
        if (p.seq_b.bits != 0)
            assert_nothing_else_changed(&p.b, p.seq_b, (kvp_range){0, 0});
        if (child.bits != 0)
            close_seq(&p.b.w, child);
    }
}

/* Also between the last chunk and the last word. */
TEST(a_receivers_sequence_that_changes_late)
{
    scoped_pair p = make_in(KVP_TRANSFER_MOVING);
    write_kv(&p.a, p.seq_a, (kvp_range){5, 9}, KVP_LAYERS_ALL);
    assert_ok(kvp_sender_ready(p.sender, p.id_a, KVP_LAYERS_ALL, 9));
    progress_both(&p, 2);
    assert_int_equal(info_b(&p).chunks, info_a(&p).chunks);
    assert_int_equal(info_b(&p).state, KVP_TRANSFER_MOVING);
    assert_ok(kvp_seq_truncate(p.b.w.cache, p.seq_b, 8, NULL));
    assert_ok(kvp_seq_commit(p.a.w.cache, p.seq_a, 9));
    progress_both(&p, 2);
    assert_fields(info_b(&p), state, KVP_TRANSFER_FAILED, status, KVP_E_STATE);
}

TEST(a_senders_sequence_that_changes)
{
    for (int change = 0; change < 4; change++) {
        scoped_pair p = make_in(KVP_TRANSFER_MOVING);
        kvp_cache *cache = p.a.w.cache;
        if (change == 3) { /* written, sent, not committed */
            write_kv(&p.a, p.seq_a, (kvp_range){5, 9}, KVP_LAYERS_ALL);
            assert_ok(kvp_sender_ready(p.sender, p.id_a, KVP_LAYERS_ALL, 9));
            assert_ok(kvp_seq_truncate(cache, p.seq_a, 8, NULL));
        } else if (change == 0) {
            close_seq(&p.a.w, p.seq_a);
            p.seq_a.bits = 0;
        } else if (change == 1) {
            assert_ok(kvp_seq_truncate(cache, p.seq_a, 4, NULL));
        } else {
            assert_ok(kvp_seq_invalidate(cache, p.seq_a, 3, NULL, 0, NULL));
        }
        progress_both(&p, 2);
        const kvp_status expected = change == 0 ? KVP_E_HANDLE : KVP_E_STATE;
        assert_fields(info_a(&p), state, KVP_TRANSFER_FAILED, status, expected);
        assert_fields(info_b(&p), state, KVP_TRANSFER_FAILED, status, expected, by_peer, 1);
    }
}

/* What a window has dropped is not there to be sent: the null block is nobody's KV. */
TEST(a_senders_window_that_drops)
{
    for (int moving = 0; moving < 2; moving++) {
        const place_shape shape = small_place();
        scoped_pair p = make_pair(&shape, &shape, 64);
        open_both(&p, 24, 0);
        reserve(&p);
        watch_place(&p.b);
        if (moving)
            mark(&p);
        write_kv(&p.a, p.seq_a, (kvp_range){0, 24}, KVP_LAYERS_ALL);
        if (moving)
            assert_ok(kvp_sender_ready(p.sender, p.id_a, KVP_LAYERS_ALL, 4));
        assert_ok(kvp_seq_commit(p.a.w.cache, p.seq_a, 24));
        assert_ok(kvp_seq_window(p.a.w.cache, p.seq_a, 0, (kvp_window){4, 6}, NULL));
        if (moving)
            assert_ok(kvp_sender_ready(p.sender, p.id_a, KVP_LAYERS_ALL, 24));
        else
            mark(&p);
        progress_both(&p, 2);
        assert_fields(info_a(&p), state, KVP_TRANSFER_FAILED, status, KVP_E_DROPPED);
        assert_fields(info_b(&p), state, KVP_TRANSFER_FAILED, status, KVP_E_DROPPED, by_peer, 1);
        assert_nothing_else_changed(&p.b, p.seq_b, (kvp_range){0, moving ? 4 : 0});
    }
}

/* What cannot be reserved, and what cannot be marked. */
TEST(sequences_that_do_not_fit)
{
    scoped_pair p = make_small(9);
    kvp_cache *cache = p.b.w.cache;
    kvp_receive receive = receive_of(&p);
    size_t n;
    receive.end = 10;
    assert_status(KVP_E_ARG, kvp_receiver_reserve(p.receiver, &receive, p.ticket, sizeof p.ticket,
                                                  &n, &p.id_b));
    receive.end = 0;
    assert_status(KVP_E_ARG, kvp_receiver_reserve(p.receiver, &receive, p.ticket, sizeof p.ticket,
                                                  &n, &p.id_b));
    receive.end = KVP_END;
    const kvp_seq child =
        (assert_ok(kvp_seq_commit(cache, p.seq_b, 5)), fork_seq(&p.b.w, p.seq_b, 5));
    receive.seq = child;
    assert_status(KVP_E_ARG, kvp_receiver_reserve(p.receiver, &receive, p.ticket, sizeof p.ticket,
                                                  &n, &p.id_b));
    close_seq(&p.b.w, child);
    assert_status(KVP_E_HANDLE, kvp_receiver_reserve(p.receiver, &receive, p.ticket,
                                                     sizeof p.ticket, &n, &p.id_b));
    receive.seq = p.seq_b;
    assert_ok(kvp_seq_invalidate(cache, p.seq_b, 0, NULL, 0, NULL));
    assert_status(KVP_E_STATE, kvp_receiver_reserve(p.receiver, &receive, p.ticket, sizeof p.ticket,
                                                    &n, &p.id_b));
    assert_ok(kvp_seq_extend(cache, p.seq_b, NULL, 0, 0));
    reserve(&p);

    kvp_send send = send_of(&p);
    send.ready_tokens = 10;
    assert_status(KVP_E_ARG, kvp_sender_mark(p.sender, &send, &p.id_a));
    send.ready_tokens = KVP_END;
    send.link = 1;
    assert_status(KVP_E_ARG, kvp_sender_mark(p.sender, &send, &p.id_a));
    send.link = 0;
    send.seq.bits ^= 1;
    assert_status(KVP_E_HANDLE, kvp_sender_mark(p.sender, &send, &p.id_a));
    mark(&p);
    assert_status(KVP_E_ARG, kvp_sender_ready(p.sender, p.id_a, 2, 9));
    assert_status(KVP_E_ARG, kvp_sender_ready(p.sender, p.id_a, 0, 10));
}

/* With scales a block is sent whole: it must begin at its start, and fit a message. */
TEST(scales_that_do_not_fit)
{
    place_shape a = small_place(), b = small_place();
    a.type = b.type = KVP_INT8;
    a.has_scales = b.has_scales = 1;
    pair p;
    kvp_send send;
    for (int to_smaller = 0; to_smaller < 2; to_smaller++) { /* blocks */
        a.S = to_smaller ? 8 : 4;
        b.S = to_smaller ? 4 : 8;
        p = make_pair(&a, &b, 8);
        open_both(&p, 9, 0);
        reserve(&p);
        send = send_of(&p);
        assert_status(KVP_E_MISMATCH, kvp_sender_mark(p.sender, &send, &p.id_a));
        end_pair(&p);
    }

    a.S = b.S = 4;
    p = make_pair(&a, &b, 8);
    open_both(&p, 9, 0);
    assert_ok(kvp_seq_commit(p.b.w.cache, p.seq_b, 3));
    kvp_receive receive = receive_of(&p);
    assert_status(KVP_E_MISMATCH, kvp_receiver_reserve(p.receiver, &receive, p.ticket,
                                                       sizeof p.ticket, &p.n_ticket, &p.id_b));
    end_pair(&p);

    a.S = b.S = 64; /* 64 x 2 heads x 8 bytes do not fit 1024 */
    p = make_pair(&a, &b, 8);
    open_both(&p, 9, 0);
    reserve(&p);
    send = send_of(&p);
    assert_status(KVP_E_TOO_SMALL, kvp_sender_mark(p.sender, &send, &p.id_a));
    end_pair(&p);

    a = b = small_place();
    a.k_size = b.k_size = 128; /* a token of 2 heads x 132 x 4 bytes does not either */
    p = make_pair(&a, &b, 8);
    open_both(&p, 9, 0);
    reserve(&p);
    send = send_of(&p);
    assert_status(KVP_E_TOO_SMALL, kvp_sender_mark(p.sender, &send, &p.id_a));
    end_pair(&p);
}

/* ---------------------------------------------------------------------------------- arguments */

TEST(configurations)
{
    const place_shape shape = small_place();
    place_shape other = small_place();
    scoped_place p = make_place(&shape);
    other.S = 8;
    place q = make_place(&other);
    other = small_place();
    other.usable = 8;
    place small = make_place(&other);
    kvp_config grouped_config;
    kvp_cache *grouped;
    assert_ok(kvp_cache_config_get(p.w.cache, &grouped_config));
    grouped_config.n_groups = 2;
    assert_ok(kvp_cache_create(&grouped_config, NULL, 0, &grouped));
    for (int wrong = 0; wrong < 14; wrong++) {
        kvp_transfer_config c = transfer_config_of(&p);
        kvp_sender *sender = NULL;
        kvp_receiver *receiver = NULL;
        c.struct_size -= wrong == 0;
        c.cache = wrong == 1 ? NULL : wrong == 11 ? grouped : c.cache;
        c.memory = wrong == 2   ? NULL
                   : wrong == 3 ? q.memories[0]
                   : wrong == 4 ? small.memories[0]
                                : c.memory;
        c.model = wrong == 5 ? NULL : c.model;
        c.max_transfers = wrong == 6 ? 0 : wrong == 7 ? 4097 : 3;
        c.max_links = wrong == 8 ? 0 : wrong == 9 ? KVP_TRANSFER_LINKS_MAX + 1 : 3;
        c.reserved = wrong == 10;
        assert_status(wrong < 12 ? KVP_E_ARG : KVP_OK, kvp_sender_create(&c, &sender));
        assert_status(wrong < 12 ? KVP_E_ARG : KVP_OK, kvp_receiver_create(&c, &receiver));
        kvp_sender_destroy(sender);
        kvp_receiver_destroy(receiver);
    }
    kvp_transfer_config good;
    kvp_sender *sender;
    kvp_receiver *receiver;
    kvp_transfer_config_init(&good);
    assert_fields(good, max_transfers, 64, max_links, 8, model_version, 0, epoch, 0);
    good = transfer_config_of(&p);
    for (int most = 0; most < 2; most++) {
        good.max_transfers = most ? 4096 : 1;
        good.max_links = most ? KVP_TRANSFER_LINKS_MAX : 1;
        assert_ok(kvp_sender_create(&good, &sender));
        kvp_sender_destroy(sender);
        assert_ok(kvp_receiver_create(&good, &receiver));
        kvp_receiver_destroy(receiver);
    }
    assert_status(KVP_E_ARG, kvp_sender_create(NULL, &sender));
    assert_status(KVP_E_ARG, kvp_sender_create(&good, NULL));
    assert_status(KVP_E_ARG, kvp_receiver_create(NULL, &receiver));
    assert_status(KVP_E_ARG, kvp_receiver_create(&good, NULL));
    kvp_transfer_config_init(NULL);
    kvp_cache_destroy(grouped);
    end_place(&small);
    end_place(&q);
}

TEST(links)
{
    scoped_pair p = make_small(9);
    uint32_t link;
    for (int wrong = 0; wrong < 9; wrong++) {
        kvp_link l = p.ends[0];
        l.struct_size -= wrong == 0;
        l.max_message = wrong == 1 ? KVP_LINK_MESSAGE_MIN - 1 : l.max_message;
        l.lend = wrong == 2 ? NULL : l.lend;
        l.post = wrong == 3 ? NULL : l.post;
        l.take = wrong == 4 ? NULL : l.take;
        l.give_back = wrong == 5 ? NULL : l.give_back;
        l.progress = wrong == 6 ? NULL : l.progress;
        l.max_message = wrong == 7 ? (size_t)INT32_MAX + 1 : l.max_message;
        const kvp_status expected = wrong < 8 ? KVP_E_ARG : KVP_OK;
        assert_status(expected, kvp_sender_attach(p.sender, &l, &link));
        assert_status(expected, kvp_receiver_attach(p.receiver, &l, &link));
    }
    assert_ok(kvp_sender_attach(p.sender, &p.ends[0], &link));
    assert_int_equal(link, 2);
    assert_status(KVP_E_AGAIN, kvp_sender_attach(p.sender, &p.ends[0], &link));
    assert_ok(kvp_sender_detach(p.sender, 1));
    assert_status(KVP_E_ARG, kvp_sender_detach(p.sender, 1));
    assert_status(KVP_E_ARG, kvp_sender_detach(p.sender, 3));
    assert_status(KVP_E_ARG, kvp_sender_link(p.sender, 1));
    assert_status(KVP_E_ARG, kvp_receiver_link(p.receiver, 3));
    assert_ok(kvp_sender_link(p.sender, 0));
    assert_ok(kvp_receiver_link(p.receiver, 0));
    cut_link(&p);
    progress_both(&p, 1);
    assert_status(KVP_E_PEER, kvp_sender_link(p.sender, 0));
    assert_status(KVP_E_PEER, kvp_receiver_link(p.receiver, 0));
    reserve(&p);
    const kvp_send send = send_of(&p);
    assert_status(KVP_E_PEER, kvp_sender_mark(p.sender, &send, &p.id_a));
    assert_status(KVP_E_ARG, kvp_receiver_detach(p.receiver, 3));
    assert_ok(kvp_sender_attach(p.sender, &p.ends[0], &link));
    assert_int_equal(link, 1);

    kvp_loopback *loopback = NULL;
    kvp_link ends[2];
    assert_status(KVP_E_ARG, kvp_loopback_create(KVP_LINK_MESSAGE_MIN - 1, 1, &loopback, ends));
    assert_status(KVP_E_ARG, kvp_loopback_create(KVP_LINK_MESSAGE_MIN, 0, &loopback, ends));
    assert_status(KVP_E_ARG, kvp_loopback_create(KVP_LINK_MESSAGE_MIN, 65537, &loopback, ends));
    assert_status(KVP_E_ARG, kvp_loopback_create(KVP_LINK_MESSAGE_MIN, 1, NULL, ends));
    kvp_loopback_cut(NULL);
    kvp_loopback_destroy(NULL);
}

TEST(a_link_that_is_detached)
{
    for (int side = 0; side < 2; side++) {
        scoped_pair p = make_in(KVP_TRANSFER_MOVING);
        assert_ok(side == 0 ? kvp_sender_detach(p.sender, p.link_a)
                            : kvp_receiver_detach(p.receiver, p.link_b));
        const kvp_transfer_info info = side == 0 ? info_a(&p) : info_b(&p);
        assert_fields(info, state, KVP_TRANSFER_FAILED, status, KVP_E_PEER, owed, 0);
    }
}

TEST(null_pointers)
{
    scoped_pair p = make_in(KVP_TRANSFER_WAITING);
    kvp_transfer_info info;
    kvp_receiver_stats stats;
    size_t n;
    uint64_t id;
    const kvp_send send = send_of(&p);
    const kvp_receive receive = receive_of(&p);
    assert_status(KVP_E_ARG, kvp_sender_mark(p.sender, NULL, &id));
    assert_status(KVP_E_ARG, kvp_sender_mark(p.sender, &send, NULL));
    assert_status(KVP_E_ARG, kvp_sender_mark(NULL, &send, &id));
    for (int wrong = 0; wrong < 4; wrong++) {
        kvp_send s = send;
        s.struct_size -= wrong == 0;
        s.ticket = wrong == 1 ? NULL : s.ticket;
        s.space = wrong == 2 ? NULL : s.space;
        s.reserved = wrong == 3;
        assert_status(KVP_E_ARG, kvp_sender_mark(p.sender, &s, &id));
    }
    for (int wrong = 0; wrong < 6; wrong++) {
        kvp_receive r = receive;
        r.struct_size -= wrong == 0;
        r.space = wrong == 1 ? NULL : r.space;
        assert_status(KVP_E_ARG,
                      kvp_receiver_reserve(wrong == 2 ? NULL : p.receiver, &r,
                                           wrong == 3 ? NULL : p.ticket, 1024,
                                           wrong == 4 ? NULL : &n, wrong == 5 ? NULL : &id));
    }
    assert_status(KVP_E_ARG, kvp_receiver_reserve(p.receiver, NULL, p.ticket, 1, &n, &id));
    assert_status(KVP_E_ARG, kvp_sender_ready(NULL, p.id_a, 0, 0));
    assert_status(KVP_E_ARG, kvp_sender_progress(NULL, NULL));
    assert_status(KVP_E_ARG, kvp_sender_info_get(NULL, p.id_a, &info));
    assert_status(KVP_E_ARG, kvp_sender_info_get(p.sender, p.id_a, NULL));
    assert_status(KVP_E_ARG, kvp_sender_abort(NULL, p.id_a, KVP_E_PEER));
    assert_status(KVP_E_ARG, kvp_sender_abort(p.sender, p.id_a, KVP_OK));
    assert_status(KVP_E_ARG, kvp_sender_abort(p.sender, p.id_a, (kvp_status)-29));
    assert_status(KVP_E_ARG, kvp_sender_close(NULL, p.id_a));
    assert_status(KVP_E_ARG, kvp_receiver_progress(NULL, 0, NULL));
    assert_status(KVP_E_ARG, kvp_receiver_info_get(NULL, p.id_b, &info));
    assert_status(KVP_E_ARG, kvp_receiver_info_get(p.receiver, p.id_b, NULL));
    assert_status(KVP_E_ARG, kvp_receiver_abort(NULL, p.id_b, KVP_E_PEER));
    assert_status(KVP_E_ARG, kvp_receiver_abort(p.receiver, p.id_b, KVP_OK));
    assert_status(KVP_E_ARG, kvp_receiver_close(NULL, p.id_b));
    assert_status(KVP_E_ARG, kvp_receiver_stats_get(NULL, &stats));
    assert_status(KVP_E_ARG, kvp_receiver_stats_get(p.receiver, NULL));
    assert_status(KVP_E_ARG, kvp_receiver_attach(NULL, &p.ends[0], NULL));
    assert_status(KVP_E_ARG, kvp_receiver_detach(NULL, 0));
    assert_status(KVP_E_ARG, kvp_sender_attach(NULL, &p.ends[0], NULL));
    assert_status(KVP_E_ARG, kvp_sender_detach(NULL, 0));
    assert_status(KVP_E_ARG, kvp_ticket_read(NULL, 5, NULL, NULL, 0));
    assert_status(KVP_E_ARG, kvp_ticket_read(p.ticket, p.n_ticket, NULL, NULL, 1));
    assert_int_equal(info_a(&p).state, KVP_TRANSFER_WAITING);
    assert_int_equal(info_b(&p).state, KVP_TRANSFER_WAITING);
}

TEST_MAIN(NULL, NULL)
