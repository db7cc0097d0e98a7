/* Transfers that go well: what arrives, when, in whatever shapes the two memories have. */
#include "transfer_world.h"

static void finish(pair *p)
{
    progress_both(p, 8);
    assert_int_equal(info_b(p).state, KVP_TRANSFER_COMPLETE);
    progress_both(p, 1);
    assert_int_equal(info_a(p).state, KVP_TRANSFER_COMPLETE);
    assert_int_equal(info_b(p).owed, 0);
}

/* Everything that is not cached at the receiver moves, and nothing else changes. */
static void move(const place_shape *a, const place_shape *b, uint32_t n, uint32_t cached,
                 uint32_t n_messages)
{
    scoped_pair p = make_pair(a, b, n_messages);
    open_both(&p, n, cached);
    reserve(&p);
    watch_place(&p.b);
    prefill(&p, (kvp_range){0, n / 3});
    mark(&p);
    for (uint32_t from = n / 3; from < n; from += 5)
        prefill(&p, (kvp_range){from, from + 5 < n ? from + 5 : n});
    finish(&p);
    assert_true(has_kv(&p.b, p.seq_b, (kvp_range){0, n}));
    if (a->has_scales)
        assert_true(same_kv(&p.a, p.seq_a, &p.b, p.seq_b, (kvp_range){cached, n}));
    assert_nothing_else_changed(&p.b, p.seq_b, (kvp_range){cached, n});
    assert_int_equal(info_of(&p.b.w, p.seq_b).computed_tokens, cached);
    assert_ok(kvp_seq_commit(p.b.w.cache, p.seq_b, info_b(&p).end));
    assert_int_equal(match(&p.b.w, ints(1), n).hit_tokens, n - n % b->S);
    assert_ok(kvp_receiver_close(p.receiver, p.id_b));
    assert_ok(kvp_sender_close(p.sender, p.id_a));
}

TEST(equal_shapes)
{
    const place_shape shape = small_place();
    move(&shape, &shape, 23, 0, 64);
    move(&shape, &shape, 24, 8, 64);
    move(&shape, &shape, 1, 0, 64);
}

TEST(a_link_of_one_message)
{
    const place_shape shape = small_place();
    scoped_pair p = make_pair(&shape, &shape, 1);
    open_both(&p, 40, 0);
    reserve(&p);
    prefill(&p, (kvp_range){0, 40});
    mark(&p);
    for (int i = 0; i < 40 && info_b(&p).state != KVP_TRANSFER_COMPLETE; i++)
        progress_both(&p, 1);
    finish(&p);
    assert_true(has_kv(&p.b, p.seq_b, (kvp_range){0, 40}));
}

TEST(other_orders_blocks_and_types)
{
    static const char *const orders[] = {
        KVP_ORDER_VLLM_NHD,     KVP_ORDER_VLLM_HND, KVP_ORDER_FLASHINFER_HND, KVP_ORDER_APART_NHD,
        KVP_ORDER_TENSORRT_LLM, KVP_ORDER_CPU,      KVP_ORDER_CELLS_V};
    static const uint32_t types[] = {KVP_F32, KVP_F16, KVP_BF16};
    place_shape a = small_place(), b = small_place();
    for (uint32_t i = 0; i < 7; i++) {
        for (uint32_t k = 0; k < 7; k++) {
            a.order = orders[i];
            b.order = orders[k];
            b.S = k % 2 ? 3 : 8;
            a.type = b.type = types[(i + k) % 3];
            move(&a, &b, 23, k % 3 == 1 ? b.S : 0, 64);
        }
    }
}

TEST(runs_of_elements_and_sizes)
{
    place_shape a = small_place(), b = small_place();
    a.order = KVP_ORDER_VLLM_PAGED_K;
    a.k_size = b.k_size = a.v_size = b.v_size = 8;
    move(&a, &b, 23, 0, 64);
    move(&b, &a, 23, 4, 64);
    a = b = small_place();
    a.order = b.order = KVP_ORDER_LATENT;
    a.slice.n_heads = b.slice.n_heads = 1;
    a.v_size = b.v_size = 0;
    b.S = 5;
    move(&a, &b, 23, 0, 64);
}

/* Tokens of 256 bytes are written past the caches, where the processor can; and off by a head. */
TEST(tokens_of_some_lines)
{
    place_shape a = small_place(), b = small_place();
    a.k_size = b.k_size = a.v_size = b.v_size = 32;
    move(&a, &b, 23, 0, 64);
    b.S = 8;
    b.order = KVP_ORDER_CPU;
    move(&a, &b, 23, 8, 64);
    a.slice.n_heads = 3;
    b.slice.n_heads = 2;
    b.slice.first_head = 1;
    b.order = KVP_ORDER_FLASHINFER_NHD;
    move(&a, &b, 23, 0, 64);
}

/* Scales belong to blocks: whole blocks go, each with its own. */
TEST(elements_with_scales)
{
    for (uint32_t type = KVP_INT8; type <= KVP_E4M3; type++) {
        place_shape a = small_place(), b = small_place();
        a.type = b.type = type;
        a.has_scales = b.has_scales = 1;
        b.order = KVP_ORDER_CPU;
        move(&a, &b, 23, 0, 64);
        move(&a, &b, 24, 8, 64);
    }
}

TEST(a_block_with_scales_goes_when_it_is_full)
{
    place_shape shape = small_place();
    shape.type = KVP_INT8;
    shape.has_scales = 1;
    scoped_pair p = make_pair(&shape, &shape, 64);
    open_both(&p, 10, 0);
    reserve(&p);
    mark(&p);
    prefill(&p, (kvp_range){0, 6});
    assert_int_equal(info_a(&p).chunks, 2); /* a layer each, 4 tokens */
    prefill(&p, (kvp_range){6, 10});
    assert_int_equal(info_a(&p).chunks, 6);
    finish(&p);
    for (uint32_t i = 0; i < 3; i++) {
        kvp_hash a, b;
        const uint32_t n = i < 2 ? 4 : 2;
        assert_ok(kvp_memory_checksum(p.a.memories[0], row_entry(&p.a.w, p.seq_a, i), n, &a));
        assert_ok(kvp_memory_checksum(p.b.memories[0], row_entry(&p.b.w, p.seq_b, i), n, &b));
        assert_memory_equal(&a, &b, sizeof a);
    }
}

/* Each layer is on its way before the next one is computed. */
TEST(layer_by_layer)
{
    const place_shape shape = small_place();
    scoped_pair p = make_pair(&shape, &shape, 64);
    open_both(&p, 8, 0);
    reserve(&p);
    mark(&p);
    assert_int_equal(info_a(&p).state, KVP_TRANSFER_WAITING);
    write_kv(&p.a, p.seq_a, (kvp_range){0, 8}, 0);
    assert_ok(kvp_sender_ready(p.sender, p.id_a, 0, 8));
    assert_fields(info_a(&p), state, KVP_TRANSFER_MOVING, chunks, 1);
    progress_both(&p, 2);
    assert_fields(info_b(&p), state, KVP_TRANSFER_MOVING, chunks, 1, bytes, 8 * 2 * 8 * 4);
    write_kv(&p.a, p.seq_a, (kvp_range){0, 8}, 1);
    assert_ok(kvp_sender_ready(p.sender, p.id_a, KVP_LAYERS_ALL, 8));
    progress_both(&p, 3);
    /* All is there, but the sender does not vouch for it before it is committed. */
    assert_fields(info_b(&p), chunks, 2, state, KVP_TRANSFER_MOVING);
    assert_int_equal(info_a(&p).state, KVP_TRANSFER_MOVING);
    assert_ok(kvp_seq_commit(p.a.w.cache, p.seq_a, 8));
    finish(&p);
}

/* What one layer alone was ready for is not there any more. */
TEST(a_layer_was_ready_for_what_is_cut)
{
    for (uint32_t layer = 0; layer < 2; layer++) {
        const place_shape shape = small_place();
        scoped_pair p = make_pair(&shape, &shape, 64);
        open_both(&p, 8, 0);
        reserve(&p);
        mark(&p);
        assert_ok(kvp_sender_ready(p.sender, p.id_a, layer, 7));
        assert_ok(kvp_seq_truncate(p.a.w.cache, p.seq_a, 7, NULL));
        progress_both(&p, 1);
        assert_int_equal(info_a(&p).state, KVP_TRANSFER_MOVING);
        assert_ok(kvp_seq_truncate(p.a.w.cache, p.seq_a, 6, NULL));
        progress_both(&p, 1);
        assert_fields(info_a(&p), state, KVP_TRANSFER_FAILED, status, KVP_E_STATE);
    }
}

/* Tokens that nobody knows when the room is made: their values come later, on both sides. */
TEST(tokens_without_values)
{
    const place_shape shape = small_place();
    scoped_pair p = make_pair(&shape, &shape, 64);
    open_both(&p, 6, 0);
    assert_ok(kvp_seq_extend(p.b.w.cache, p.seq_b, NULL, 3, 0));
    reserve(&p);
    mark(&p);
    prefill(&p, (kvp_range){0, 6});
    progress_both(&p, 2);
    assert_int_equal(info_b(&p).state, KVP_TRANSFER_MOVING);
    assert_ok(kvp_seq_extend(p.a.w.cache, p.seq_a, ints(7), 3, 0));
    prefill(&p, (kvp_range){6, 9});
    finish(&p);
    assert_true(has_kv(&p.b, p.seq_b, (kvp_range){0, 9}));
    assert_ok(kvp_seq_commit(p.b.w.cache, p.seq_b, 9));
    assert_ok(kvp_seq_fill(p.b.w.cache, p.seq_b, ints(7), 3));
    assert_int_equal(match(&p.b.w, ints(1), 9).hit_tokens, 8);
}

/* The receiver knows more than the sender does when it is marked: compared at the end. */
TEST(a_sender_that_learns_the_tokens_late)
{
    for (int wrong = 0; wrong < 2; wrong++) {
        const place_shape shape = small_place();
        scoped_pair p = make_pair(&shape, &shape, 64);
        p.seq_a = open_seq(&p.a.w, ints(1), 4, NULL);
        p.seq_b = open_seq(&p.b.w, ints(1), 9, NULL);
        reserve(&p);
        mark(&p);
        prefill(&p, (kvp_range){0, 4});
        assert_ok(kvp_seq_extend(p.a.w.cache, p.seq_a, ints(5 + wrong), 5, 0));
        prefill(&p, (kvp_range){4, 9});
        if (!wrong) {
            finish(&p);
        } else {
            progress_both(&p, 3);
            assert_fields(info_a(&p), state, KVP_TRANSFER_FAILED, status, KVP_E_MISMATCH);
            assert_fields(info_b(&p), state, KVP_TRANSFER_FAILED, status, KVP_E_MISMATCH, by_peer,
                          1);
        }
    }
}

/* Only a part: the prompt but its last token. */
TEST(up_to_a_position)
{
    const place_shape shape = small_place();
    scoped_pair p = make_pair(&shape, &shape, 64);
    open_both(&p, 10, 4);
    kvp_receive receive = receive_of(&p);
    receive.end = 9;
    watch_place(&p.b);
    assert_ok(kvp_receiver_reserve(p.receiver, &receive, p.ticket, sizeof p.ticket, &p.n_ticket,
                                   &p.id_b));
    prefill(&p, (kvp_range){0, 10});
    mark(&p);
    finish(&p);
    assert_fields(info_b(&p), begin, 4, end, 9);
    assert_nothing_else_changed(&p.b, p.seq_b, (kvp_range){4, 9});
}

/* ------------------------------------------------------------------------- layers and heads */

/* Four heads in one receiver come from two senders of two heads; and a stage of layers likewise. */
TEST(from_two_senders)
{
    static const kvp_slice parts[2][2] = {{{0, 2, 0, 2}, {0, 2, 2, 2}},
                                          {{0, 1, 0, 4}, {1, 1, 0, 4}}};
    for (int by = 0; by < 2; by++) {
        place_shape whole = small_place(), half = small_place();
        whole.slice.n_heads = 4;
        half.S = 8;
        half.slice = parts[by][0];
        pair p = make_pair(&half, &whole, 64);
        half.slice = parts[by][1];
        scoped_pair q = make_pair(&half, &whole, 64); /* its sender sends to p's receiver */
        uint32_t link;
        assert_ok(kvp_receiver_attach(p.receiver, &q.ends[1], &link));
        open_both(&p, 13, 0);
        q.seq_a = open_seq(&q.a.w, ints(1), 13, NULL);
        reserve(&p);
        mark_both(&p, &q);
        watch_place(&p.b);
        prefill(&p, (kvp_range){0, 13});
        progress_both(&p, 3);
        assert_int_equal(info_b(&p).state, KVP_TRANSFER_MOVING);
        assert_int_equal(info_a(&p).state, KVP_TRANSFER_SENT);
        prefill(&q, (kvp_range){0, 13});
        assert_ok(kvp_sender_progress(q.sender, NULL));
        finish(&p);
        assert_ok(kvp_sender_progress(q.sender, NULL));
        assert_int_equal(info_a(&q).state, KVP_TRANSFER_COMPLETE);
        assert_true(has_kv(&p.b, p.seq_b, (kvp_range){0, 13}));
        assert_nothing_else_changed(&p.b, p.seq_b, (kvp_range){0, 13});
        end_pair(&p);
    }
}

/* One sender of four heads, a receiver of the last two, and one of one in the middle. */
TEST(to_a_part)
{
    place_shape whole = small_place(), part = small_place();
    whole.slice.n_heads = 4;
    part.slice = (kvp_slice){0, 2, 2, 2};
    move(&whole, &part, 11, 0, 64);
    part.slice = (kvp_slice){1, 1, 1, 1};
    part.order = KVP_ORDER_CPU;
    move(&whole, &part, 11, 4, 64);
}

/* -------------------------------------------------------------------------------------- tickets */

TEST(a_ticket_names_the_slots)
{
    const place_shape shape = small_place();
    scoped_pair p = make_pair(&shape, &shape, 64);
    const kvp_seq other = open_seq(&p.b.w, ints(100), 8, NULL);     /* blocks 1, 2 */
    p.seq_b = open_seq(&p.b.w, ints(1), 6, NULL);                   /* 3, 4 */
    const kvp_seq third = open_seq(&p.b.w, ints(200), 4, NULL);     /* 5 */
    assert_ok(kvp_seq_extend(p.b.w.cache, p.seq_b, ints(7), 8, 0)); /* 6, 7 */
    assert_row(&p.b.w, p.seq_b, 3, 4, 6, 7);
    close_seq(&p.b.w, other);
    close_seq(&p.b.w, third);
    reserve(&p);

    kvp_ticket ticket;
    kvp_slot_run runs[2];
    assert_ok(kvp_ticket_read(p.ticket, p.n_ticket, &ticket, NULL, 0));
    assert_fields(ticket, n_runs, 2, epoch, 77, id, p.id_b, model_version, 3);
    assert_fields(ticket, type, KVP_F32, k_size, 4, v_size, 4, block_tokens, 4);
    assert_fields(ticket.slice, n_layers, 2, n_heads, 2);
    assert_fields(ticket, begin, 0, end, 14);
    assert_status(KVP_E_TOO_SMALL, kvp_ticket_read(p.ticket, p.n_ticket, NULL, runs, 1));
    assert_ok(kvp_ticket_read(p.ticket, p.n_ticket, NULL, runs, 2));
    assert_fields(runs[0], slot, 12, n_tokens, 8);
    assert_fields(runs[1], slot, 24, n_tokens, 6);
    assert_ok(kvp_receiver_abort(p.receiver, p.id_b, KVP_E_PEER));
}

TEST(a_ticket_is_asked_for_its_size)
{
    const place_shape shape = small_place();
    scoped_pair p = make_pair(&shape, &shape, 64);
    open_both(&p, 10, 0);
    kvp_receive receive = receive_of(&p);
    size_t n, same;
    assert_ok(kvp_receiver_reserve(p.receiver, &receive, NULL, 0, &n, &p.id_b));
    assert_int_equal(p.id_b, 0); /* nothing is reserved: once more */
    assert_ok(kvp_receiver_reserve(p.receiver, &receive, NULL, 0, &same, &p.id_b));
    assert_int_equal(n, same);
    for (size_t room = 1; room < n; room++) { /* nothing is written behind it */
        p.ticket[room] = 0xA5;
        assert_status(KVP_E_TOO_SMALL,
                      kvp_receiver_reserve(p.receiver, &receive, p.ticket, room, &same, &p.id_b));
        assert_int_equal(n, same);
        assert_int_equal(p.id_b, 0);
        assert_int_equal(p.ticket[room], 0xA5);
    }
    assert_ok(kvp_receiver_reserve(p.receiver, &receive, p.ticket, n, &p.n_ticket, &p.id_b));
    assert_int_equal(p.n_ticket, n);
}

/* Several at a time over one link, in turns. */
TEST(many_at_once)
{
    const place_shape shape = small_place();
    scoped_pair p = make_pair(&shape, &shape, 4);
    kvp_seq a[3], b[3];
    uint64_t id_a[3], id_b[3];
    for (uint32_t i = 0; i < 3; i++) {
        open_both(&p, 16 + i, 0);
        reserve(&p);
        mark(&p);
        a[i] = p.seq_a, b[i] = p.seq_b, id_a[i] = p.id_a, id_b[i] = p.id_b;
        write_kv(&p.a, a[i], (kvp_range){0, 16 + i}, KVP_LAYERS_ALL);
        assert_ok(kvp_seq_commit(p.a.w.cache, a[i], 16 + i));
        if (i == 2) {
            const kvp_receive receive = receive_of(&p);
            const kvp_seq more = open_seq(&p.b.w, ints(500), 4, NULL);
            kvp_receive another = receive;
            another.seq = more;
            assert_status(KVP_E_AGAIN, kvp_receiver_reserve(p.receiver, &another, p.ticket,
                                                            sizeof p.ticket, &p.n_ticket, &p.id_b));
            close_seq(&p.b.w, more);
        }
    }
    for (uint32_t i = 0; i < 3; i++)
        assert_ok(kvp_sender_ready(p.sender, id_a[i], KVP_LAYERS_ALL, 16 + i));
    uint32_t n_ended = 0;
    for (int round = 0; round < 30; round++) {
        uint32_t n;
        assert_ok(kvp_sender_progress(p.sender, NULL));
        assert_ok(kvp_receiver_progress(p.receiver, 2, &n));
        n_ended += n;
    }
    assert_int_equal(n_ended, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(has_kv(&p.b, b[i], (kvp_range){0, 16 + i}));
        assert_ok(kvp_sender_close(p.sender, id_a[i]));
        assert_ok(kvp_receiver_close(p.receiver, id_b[i]));
        assert_status(KVP_E_HANDLE, kvp_receiver_close(p.receiver, id_b[i]));
        close_seq(&p.a.w, a[i]);
        close_seq(&p.b.w, b[i]);
    }
    p.seq_a.bits = p.seq_b.bits = 0;
}

/* A link of one message: transfers take turns. */
TEST(turns)
{
    const place_shape shape = small_place();
    scoped_pair p = make_pair(&shape, &shape, 1);
    kvp_seq a[2], b[2];
    uint64_t id[2];
    for (uint32_t i = 0; i < 2; i++) {
        open_both(&p, 28, 0);
        reserve(&p);
        mark(&p);
        a[i] = p.seq_a, b[i] = p.seq_b, id[i] = p.id_a;
        write_kv(&p.a, a[i], (kvp_range){0, 28}, KVP_LAYERS_ALL);
        assert_ok(kvp_sender_ready(p.sender, id[i], KVP_LAYERS_ALL, 28));
    }
    progress_both(&p, 2); /* the first has begun before; now it is the second one's turn */
    assert_int_equal(info_a(&p).state, KVP_TRANSFER_MOVING);
    progress_both(&p, 4); /* three places: two messages of each, and the empty one's turn */
    for (uint32_t i = 0; i < 2; i++) {
        p.id_a = id[i];
        assert_int_equal(info_a(&p).state, KVP_TRANSFER_MOVING);
        assert_true(info_a(&p).chunks >= 1);
    }
    for (uint32_t i = 0; i < 2; i++) {
        close_seq(&p.a.w, a[i]);
        close_seq(&p.b.w, b[i]);
    }
    p.seq_a.bits = p.seq_b.bits = 0;
}

/* A link posts no more than it has lent, once, and gives back what was taken, once. */
TEST(what_links_refuse)
{
    const place_shape shape = small_place();
    scoped_pair p = make_pair(&shape, &shape, 1);
    const kvp_link *a = &p.ends[0], *b = &p.ends[1];
    void *buffer;
    const void *bytes;
    size_t n;
    assert_status(KVP_E_ARG, a->lend(a->context, 0, &buffer));
    assert_status(KVP_E_ARG, a->lend(a->context, a->max_message + 1, &buffer));
    assert_status(KVP_E_ARG, a->post(a->context, 1));
    b->give_back(b->context);
    assert_ok(a->lend(a->context, 1, &buffer));
    assert_status(KVP_E_ARG, a->post(a->context, 0));
    for (unsigned char i = 0; i < 2; i++) {
        kvp_status status = KVP_E_AGAIN;
        assert_ok(a->lend(a->context, 8, &buffer));
        *(unsigned char *)buffer = i;
        assert_status(KVP_E_ARG, a->post(a->context, 9));
        assert_ok(a->post(a->context, 8));
        assert_status(KVP_E_ARG, a->post(a->context, 8));
        for (int k = 0; k < 1 << 20 && status == KVP_E_AGAIN; k++)
            status = b->take(b->context, &bytes, &n); /* TCP has it on its way */
        assert_ok(status);
        assert_true(n == 8 && *(const unsigned char *)bytes == i);
        b->give_back(b->context);
        b->give_back(b->context);
    }
    assert_status(KVP_E_AGAIN, b->take(b->context, &bytes, &n));
    kvp_loopback_cut(p.loopback);
    assert_status(p.loopback ? KVP_E_PEER : KVP_OK, a->lend(a->context, 8, &buffer));
}

/* A link that has nothing is asked once by each call, and has its turn to work. */
TEST(a_link_that_has_nothing)
{
    const place_shape shape = small_place();
    scoped_pair p = make_pair(&shape, &shape, 1);
    for (uint32_t side = 0; side < 2; side++)
        harm_side(&p, side, FAULT_NONE, 0);
    progress_both(&p, 3);
    for (uint32_t side = 0; side < 2; side++)
        assert_fields(p.faults[side], n_takes, 3, n_progress, 3, n_lends, side == 0 ? 0 : 3);
}

TEST_MAIN(NULL, NULL)
