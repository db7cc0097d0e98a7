/* Transfers with recurrent state (states.h): the state after the last token comes with the KV, into
 * the slot that the receiver's sequence writes. What it follows from is transfer_world's. */
#include "transfer_by_hand.h"

#include <string.h>

enum { HEAD = KVPI_TRANSFER_HEAD_BYTES, K = 700, V = 900 };

/* Two layers, two heads of 1,600 bytes each: more than a message holds. */
static place_shape state_place(void)
{
    place_shape shape = small_place();
    shape.usable = 40;
    shape.state_slots = 8;
    shape.state_k = K;
    shape.state_v = V;
    shape.state_order = KVP_ORDER_APART_NHD;
    return shape;
}

static kvp_status reserve_status(pair *p, uint32_t end)
{
    kvp_receive receive = receive_of(p);
    receive.end = end;
    return kvp_receiver_reserve(p->receiver, &receive, p->ticket, sizeof p->ticket, &p->n_ticket,
                                &p->id_b);
}

static uint32_t keep(const place *p, kvp_seq seq)
{
    uint32_t outcome = 99;
    assert_ok(kvp_seq_checkpoint(p->w.cache, seq, &outcome));
    return outcome;
}

static void assert_complete(const pair *p, uint32_t begin, uint32_t end)
{
    assert_int_equal(info_b(p).status, KVP_OK);
    assert_int_equal(info_b(p).state, KVP_TRANSFER_COMPLETE);
    assert_int_equal(info_a(p).state, KVP_TRANSFER_COMPLETE);
    assert_true(has_kv(&p->b, p->seq_b, (kvp_range){begin, end}));
    assert_true(has_state(&p->b, state_in(&p->b, p->seq_b).write_slot, end));
}

static void close_both(pair *p)
{
    assert_ok(kvp_sender_close(p->sender, p->id_a));
    assert_ok(kvp_receiver_close(p->receiver, p->id_b));
}

/* ---------------------------------------------------------------------------------- one by hand */

TEST(the_state_comes_with_the_last_token)
{
    const place_shape shape = state_place();
    scoped_pair p = make_pair(&shape, &shape, 64);
    open_both(&p, 20, 0);
    reserve_to(&p, KVP_END);
    kvp_ticket ticket;
    kvp_slot_run run;
    assert_ok(kvp_ticket_group(p.ticket, p.n_ticket, 1, &ticket, &run, 1));
    assert_true(ticket.n_groups == 2 && ticket.type == KVP_BYTES && ticket.n_runs == 1);
    assert_true(ticket.k_size == K && ticket.v_size == V && ticket.gap.end == 0);
    assert_int_equal(run.slot, state_in(&p.b, p.seq_b).write_slot);
    assert_int_equal(run.n_tokens, 1);
    watch_place(&p.b);
    mark(&p);
    prefill(&p, (kvp_range){0, 12});
    progress_both(&p, 2);
    assert_false(has_state(&p.b, (uint32_t)run.slot, 12)); /* only the last one is sent */
    prefill(&p, (kvp_range){12, 20});
    progress_both(&p, 2);
    assert_complete(&p, 0, 20);
    assert_nothing_else_changed(&p.b, p.seq_b, (kvp_range){0, 20});
    assert_int_equal(info_b(&p).bytes, 2 * 2 * (20 * 8 * 4 + K + V));
    assert_int_equal(info_a(&p).bytes, info_b(&p).bytes);
    /* It is committed, kept, and hit. */
    assert_ok(kvp_seq_commit(p.b.w.cache, p.seq_b, 20));
    assert_int_equal(state_in(&p.b, p.seq_b).read_slot, run.slot);
    assert_int_equal(keep(&p.b, p.seq_b), KVP_CHECKPOINT_MADE);
    close_seq(&p.b.w, p.seq_b);
    p.seq_b = open_seq(&p.b.w, ints(1), 23, NULL);
    assert_int_equal(info_of(&p.b.w, p.seq_b).computed_tokens, 20);
    assert_int_equal(state_in(&p.b, p.seq_b).read_slot, run.slot);
}

/* A transfer for each state that is wanted: the first one's becomes a checkpoint. */
TEST(a_prompt_in_two_transfers)
{
    const place_shape shape = state_place();
    scoped_pair p = make_pair(&shape, &shape, 64);
    open_both(&p, 23, 0);
    reserve_to(&p, 20);
    mark(&p);
    prefill(&p, (kvp_range){0, 20});
    assert_int_equal(keep(&p.a, p.seq_a), KVP_CHECKPOINT_MADE);
    progress_both(&p, 2);
    assert_complete(&p, 0, 20);
    assert_ok(kvp_seq_commit(p.b.w.cache, p.seq_b, 20));
    close_both(&p);
    /* What it reads is what it would write: a failure would leave nothing to go on from. */
    assert_status(KVP_E_STATE, reserve_status(&p, 23));
    assert_int_equal(keep(&p.b, p.seq_b), KVP_CHECKPOINT_MADE);
    reserve_to(&p, 23);
    mark(&p);
    prefill(&p, (kvp_range){20, 23});
    progress_both(&p, 2);
    assert_complete(&p, 20, 23);
    assert_true(has_state(&p.b, state_in(&p.b, p.seq_b).read_slot, 20));
}

/* A receiver that hit its prompt up to a checkpoint; a transfer that fails leaves that. */
TEST(what_was_hit_is_not_touched)
{
    const place_shape shape = state_place();
    for (int fails = 0; fails < 2; fails++) {
        scoped_pair p = make_pair(&shape, &shape, 64);
        const kvp_seq before = open_seq(&p.b.w, ints(1), 8, NULL);
        write_kv(&p.b, before, (kvp_range){0, 8}, KVP_LAYERS_ALL);
        write_state(&p.b, state_in(&p.b, before).write_slot, 8);
        assert_ok(kvp_seq_commit(p.b.w.cache, before, 8));
        assert_int_equal(keep(&p.b, before), KVP_CHECKPOINT_MADE);
        close_seq(&p.b.w, before);
        open_both(&p, 21, 0);
        assert_int_equal(info_of(&p.b.w, p.seq_b).computed_tokens, 8);
        reserve_to(&p, KVP_END);
        mark(&p);
        prefill(&p, (kvp_range){0, 21});
        if (fails) { /* with some of the state there */
            assert_ok(kvp_sender_progress(p.sender, NULL));
            assert_ok(kvp_receiver_progress(p.receiver, 8, NULL));
            assert_int_equal(info_b(&p).state, KVP_TRANSFER_MOVING);
            assert_ok(kvp_receiver_abort(p.receiver, p.id_b, KVP_E_IO));
        }
        progress_both(&p, 2);
        if (!fails)
            assert_complete(&p, 8, 21);
        assert_true(has_state(&p.b, state_in(&p.b, p.seq_b).read_slot, 8));
        assert_ok(kvp_seq_commit(p.b.w.cache, p.seq_b, 21)); /* or computed here */
    }
}

/* ------------------------------------------------------------------------- states that are gone */

TEST(a_state_that_was_written_over_is_not_sent)
{
    const place_shape shape = state_place();
    for (int kept = 0; kept < 3; kept++) {
        scoped_pair p = make_pair(&shape, &shape, 64);
        kvp_seq fork = {0};
        open_both(&p, 20, 0);
        reserve_to(&p, KVP_END);
        if (kept < 2)
            mark(&p);
        prefill(&p, (kvp_range){0, 20});
        if (kept == 1) /* the next step writes another slot */
            assert_int_equal(keep(&p.a, p.seq_a), KVP_CHECKPOINT_MADE);
        if (kept == 2) { /* the fork stays */
            fork = fork_seq(&p.a.w, p.seq_a, 20);
            const kvp_seq seq = p.seq_a;
            p.seq_a = fork;
            mark(&p);
            p.seq_a = seq;
        }
        assert_ok(kvp_seq_extend(p.a.w.cache, p.seq_a, ints(100), 1, 0));
        if (kept == 0) { /* a step may be writing it: it waits */
            progress_both(&p, 2);
            assert_int_equal(info_b(&p).bytes, 2 * 2 * 20 * 8 * 4);
            assert_int_equal(info_a(&p).state, KVP_TRANSFER_MOVING);
        } else {
            write_state(&p.a, state_in(&p.a, p.seq_a).write_slot, 21);
        }
        if (kept != 1)
            assert_ok(kvp_seq_commit(p.a.w.cache, p.seq_a, 21));
        progress_both(&p, 2);
        if (kept == 0) {
            assert_int_equal(info_a(&p).status, KVP_E_DROPPED);
            assert_int_equal(info_b(&p).status, KVP_E_DROPPED);
        } else {
            assert_complete(&p, 0, 20);
        }
        if (kept == 2)
            close_seq(&p.a.w, fork);
    }
}

/* The link takes a part of it; then the sequence goes on. */
TEST(a_state_of_which_a_part_was_sent)
{
    const place_shape shape = state_place();
    for (uint32_t taken = 1; taken < 9; taken++) {
        scoped_pair p = make_pair(&shape, &shape, 4);
        open_both(&p, 20, 0);
        reserve_to(&p, KVP_END);
        mark(&p);
        prefill(&p, (kvp_range){0, 20});
        for (uint32_t i = 0; i < taken; i++) {
            assert_ok(kvp_sender_progress(p.sender, NULL));
            assert_ok(kvp_receiver_progress(p.receiver, 1, NULL));
        }
        assert_int_equal(info_a(&p).state, KVP_TRANSFER_MOVING);
        assert_ok(kvp_seq_extend(p.a.w.cache, p.seq_a, ints(100), 1, 0));
        write_state(&p.a, state_in(&p.a, p.seq_a).write_slot, 21);
        progress_both(&p, 8);
        assert_int_not_equal(info_b(&p).state, KVP_TRANSFER_COMPLETE);
        assert_ok(kvp_seq_commit(p.a.w.cache, p.seq_a, 21));
        progress_both(&p, 8);
        assert_int_equal(info_a(&p).status, KVP_E_DROPPED);
        assert_int_equal(info_b(&p).status, KVP_E_DROPPED);
    }
}

/* A sequence that was taken back and computed again reads another slot. */
TEST(a_state_that_is_another)
{
    const place_shape shape = state_place();
    scoped_pair p = make_pair(&shape, &shape, 4);
    open_both(&p, 20, 0);
    reserve_to(&p, KVP_END);
    mark(&p);
    prefill(&p, (kvp_range){0, 16});
    assert_int_equal(keep(&p.a, p.seq_a), KVP_CHECKPOINT_MADE);
    prefill(&p, (kvp_range){16, 20});
    for (int i = 0; i < 9; i++) { /* some of the state is there */
        assert_ok(kvp_sender_progress(p.sender, NULL));
        assert_ok(kvp_receiver_progress(p.receiver, 1, NULL));
    }
    const uint32_t first = state_in(&p.a, p.seq_a).read_slot;
    const kvp_seq fork = fork_seq(&p.a.w, p.seq_a, 20);
    assert_ok(kvp_seq_invalidate(p.a.w.cache, p.seq_a, 16, NULL, 0, NULL));
    assert_ok(kvp_seq_extend(p.a.w.cache, p.seq_a, NULL, 0, 0));
    const uint64_t id = p.id_a;
    p.id_a = 0; /* the sender does not see it */
    prefill(&p, (kvp_range){16, 20});
    p.id_a = id;
    assert_int_not_equal(state_in(&p.a, p.seq_a).read_slot, first);
    progress_both(&p, 8);
    assert_int_equal(info_a(&p).status, KVP_E_STATE);
    assert_int_equal(info_b(&p).status, KVP_E_STATE);
    close_seq(&p.a.w, fork);
}

/* The receiver's slot is not the sequence's to write any more. */
TEST(a_receiver_that_changed)
{
    const place_shape shape = state_place();
    scoped_pair p = make_pair(&shape, &shape, 64);
    open_both(&p, 20, 0);
    reserve_to(&p, KVP_END);
    mark(&p);
    prefill(&p, (kvp_range){0, 20});
    assert_ok(kvp_sender_progress(p.sender, NULL));
    assert_ok(kvp_receiver_progress(p.receiver, 3, NULL));
    assert_ok(kvp_seq_truncate(p.b.w.cache, p.seq_b, 12, NULL));
    progress_both(&p, 2);
    assert_int_equal(info_b(&p).status, KVP_E_STATE);
}

static void add_ring(const place *p, kvp_seq seq)
{
    const uint32_t n = 4;
    const kvp_batch batch = {.struct_size = sizeof batch,
                             .n_seqs = 1,
                             .flags = KVP_BATCH_RING,
                             .seqs = &seq,
                             .n_tokens = &n,
                             .tokens = ints(70)};
    assert_ok(kvp_seq_extend_many(p->w.cache, &batch));
}

/* A sender goes on with a ring: what it reads stays. A receiver that has one would not find the
 * state after fewer tokens than all. */
TEST(rings)
{
    const place_shape shape = state_place();
    scoped_pair p = make_pair(&shape, &shape, 64);
    open_both(&p, 8, 0);
    reserve_to(&p, KVP_END);
    mark(&p);
    prefill(&p, (kvp_range){0, 8});
    assert_int_equal(keep(&p.a, p.seq_a), KVP_CHECKPOINT_MADE); /* else its state is written over */
    add_ring(&p.a, p.seq_a);
    progress_both(&p, 3);
    assert_complete(&p, 0, 8);
    assert_ok(kvp_seq_commit(p.b.w.cache, p.seq_b, 8));
    close_both(&p);
    assert_int_equal(keep(&p.b, p.seq_b), KVP_CHECKPOINT_MADE);
    add_ring(&p.b, p.seq_b);
    assert_status(KVP_E_STATE, reserve_status(&p, 10));
    assert_status(KVP_E_STATE, reserve_status(&p, KVP_END));
}

/* ------------------------------------------------------------------------------ what is refused */

TEST(configurations)
{
    const place_shape shape = state_place();
    scoped_place p = make_place(&shape);
    const kvp_transfer_config right = transfer_config_of(&p);
    kvp_why why;
    assert_ok(kvp_transfer_config_check(&right, &why));
    for (int wrong = 0; wrong < 5; wrong++) {
        kvp_transfer_config config = right;
        const kvp_memory *memories[2] = {p.memories[0], p.memories[1]};
        kvp_layout layout = p.layouts[1];
        kvp_memory *other = NULL;
        config.memories = memories;
        if (wrong == 0) {
            config.memories = NULL;
            config.memory = p.memories[0];
        }
        if (wrong == 1)
            memories[1] = NULL;
        if (wrong == 2)
            memories[1] = p.memories[0];
        if (wrong == 3)
            memories[0] = p.memories[1];
        if (wrong == 4) {
            layout.n_blocks = shape.state_slots - 1;
            assert_ok(kvp_layout_arrange(&layout, shape.state_order, NULL));
            assert_ok(kvp_memory_create(&layout, NULL, &other));
            memories[1] = other;
        }
        static const char *const said[] = {
            "memories: is NULL, and the cache has several layer groups",
            "memories[1]: the layer group that has no memory",
            "expected KVP_BYTES for recurrent state",
            "expected no KVP_BYTES for KV",
            "memories[1].n_blocks is 7",
        };
        assert_status(KVP_E_ARG, kvp_transfer_config_check(&config, &why));
        if (wrong != 1 && strstr(why.text, said[wrong]) == NULL)
            fail_msg("%s, expected %s", why.text, said[wrong]);
        kvp_memory_destroy(other);
    }
}

/* Both sides have the same state, or the mark is refused, and says why. */
TEST(sides_that_differ)
{
    static const char *const said[] = {"groups[1].k_size is 700, expected 701",
                                       "groups[1].v_size is 900, expected 0",
                                       "n_groups is 2, expected 1"};
    for (int wrong = 0; wrong < 3; wrong++) {
        const place_shape shape = state_place();
        place_shape other = shape;
        other.state_k += wrong == 0;
        other.state_v = wrong == 1 ? 0 : other.state_v;
        other.state_slots = wrong == 2 ? 0 : other.state_slots;
        scoped_pair p = make_pair(&other, &shape, 64);
        open_both(&p, 20, 0);
        reserve_to(&p, KVP_END);
        const kvp_send send = send_of(&p);
        kvp_why why;
        assert_status(KVP_E_MISMATCH, kvp_send_check(p.sender, &send, &why));
        assert_string_equal(why.text, said[wrong]);
        assert_status(KVP_E_MISMATCH, kvp_sender_mark(p.sender, &send, &p.id_a));
    }
}

TEST(layers_of_state_are_not_said_to_be_ready)
{
    const place_shape shape = state_place();
    scoped_pair p = make_pair(&shape, &shape, 64);
    open_both(&p, 20, 0);
    reserve_to(&p, KVP_END);
    mark(&p);
    assert_ok(kvp_sender_ready(p.sender, p.id_a, 1, 2));
    assert_status(KVP_E_ARG, kvp_sender_ready(p.sender, p.id_a, 2, 2));
}

/* ----------------------------------------------------------------------------- senders that lie */

static pair make_waiting(void)
{
    const place_shape shape = state_place();
    pair p = make_pair(&shape, &shape, 8);
    open_both(&p, 4, 0);
    reserve_to(&p, KVP_END);
    watch_place(&p.b);
    return p;
}

TEST(beginnings)
{
    scoped_pair p = make_waiting();
    for (uint32_t wrong = 0; wrong < 11; wrong++) {
        struct kvpi_shape shape = right_shape(&p);
        struct kvpi_shape_group *group = &shape.groups[1];
        const int is_format = wrong > 0 && wrong < 8;
        group->flags ^= wrong == 0 ? KVPI_SHAPE_STATE : 0u;
        group->flags ^= wrong == 1 ? KVPI_SHAPE_K_SCALES : 0u;
        shape.groups[0].flags ^= wrong == 2 ? KVPI_SHAPE_STATE : 0u;
        group->type = wrong == 3 ? KVP_INT8 : group->type;
        group->window.recent_tokens += wrong == 4;
        group->gap.end += wrong == 5;
        group->v_size = wrong == 6 ? UINT32_MAX : group->v_size;
        group->k_size = wrong == 7 ? 0 : group->k_size;
        group->k_size += wrong == 8;
        group->slice.n_heads += wrong == 9;
        shape.begin += wrong == 10;
        send_begin(&p, &shape);
        kvp_receiver_stats stats;
        assert_ok(kvp_receiver_stats_get(p.receiver, &stats));
        assert_int_equal(stats.refused, wrong + 1);
        assert_int_equal(stats.last_refusal, is_format ? KVP_E_FORMAT : KVP_E_MISMATCH);
        assert_int_equal(info_b(&p).state, KVP_TRANSFER_WAITING);
        assert_int_equal(answer(&p), is_format ? KVP_E_FORMAT : KVP_E_MISMATCH);
    }
}

/* Tickets are read by whoever has them. */
TEST(tickets)
{
    scoped_pair p = make_waiting();
    kvp_ticket ticket;
    const size_t flags = HEAD + KVPI_TRANSFER_SHAPE_BYTES(1) + 4;
    for (int wrong = 0; wrong < 3; wrong++) {
        uint8_t copy[sizeof p.ticket];
        memcpy(copy, p.ticket, p.n_ticket);
        copy[flags] ^= wrong == 1 ? KVPI_SHAPE_STATE : 0;
        copy[p.n_ticket - 1] = wrong == 2 ? 2 : copy[p.n_ticket - 1]; /* a run of two slots */
        struct kvpi_transfer_head head;
        assert_true(kvpi_transfer_read_head(copy, p.n_ticket, &head));
        kvpi_transfer_seal(copy, p.n_ticket, &head);
        assert_status(wrong == 0 ? KVP_OK : KVP_E_FORMAT,
                      kvp_ticket_read(copy, p.n_ticket, &ticket, NULL, 0));
    }
}

/* Bytes of a state come in order, within it. */
TEST(chunks)
{
    static const struct kvpi_chunk wrong[] = {
        {0, 0, 2, 1, 10, 1},          /* not the next one */
        {0, 0, 2, 0, K + V + 1, 1},   /* more than a head has */
        {0, 0, 2, 0, 0, 1},           /* nothing */
        {0, 0, 3, 0, 10, 1},          /* a head that is not there */
        {2, 0, 2, 0, 10, 1},          /* a layer */
        {0, 0, 2, 0, 10, 2},          /* a group */
        {0, 0, 2, UINT32_MAX, 10, 1}, /* wraps */
        {0, 0, 2, 0, 10, 1},          /* of a wrong length */
    };
    const uint32_t n = sizeof wrong / sizeof *wrong;
    for (uint32_t i = 0; i <= n; i++) {
        scoped_pair p = make_waiting();
        const struct kvpi_shape shape = right_shape(&p);
        send_begin(&p, &shape);
        assert_int_equal(info_b(&p).state, KVP_TRANSFER_MOVING);
        const struct kvpi_chunk right = {0, 0, 2, 0, 10, 1};
        const struct kvpi_chunk *chunk = i == n ? &right : &wrong[i];
        uint8_t body[KVPI_TRANSFER_CHUNK_BYTES + 3 * (K + V + 1)];
        memset(body, 0xEE, sizeof body);
        kvpi_chunk_put(chunk, body);
        size_t n_bytes = (size_t)chunk->n_heads * chunk->n_tokens + (i == 7);
        n_bytes = n_bytes > 900 ? 900 : n_bytes;
        const uint32_t slot = state_in(&p.b, p.seq_b).write_slot;
        kvp_layer layer;
        assert_ok(kvp_memory_layer(p.b.memories[1], 0, &layer));
        const unsigned char *at =
            (const unsigned char *)layer.k.base + (size_t)slot * layer.k.block_stride;
        send_body(&p, KVPI_TRANSFER_CHUNK, body, KVPI_TRANSFER_CHUNK_BYTES + n_bytes);
        assert_int_equal(info_b(&p).status, i == n ? KVP_OK : KVP_E_FORMAT);
        assert_int_equal(at[9], i == n ? 0xEE : 0);
        assert_int_equal(at[10], 0);
        assert_nothing_else_changed(&p.b, p.seq_b, (kvp_range){0, 0});
    }
}

/* All KV is there, and the state is not: no DONE makes that complete. */
TEST(done_without_the_state)
{
    scoped_pair p = make_waiting();
    const struct kvpi_shape shape = right_shape(&p);
    send_begin(&p, &shape);
    uint8_t body[KVPI_TRANSFER_DONE_BYTES(2)];
    struct kvpi_ticket ticket;
    assert_ok(kvpi_ticket_get(p.ticket, p.n_ticket, &ticket));
    kvpi_slice_put(&(kvp_slice){0, 0, 0, 0}, body);
    kvpi_slice_put(&shape.groups[1].slice, body + 16);
    memcpy(body + 32, ticket.tokens.bytes, 16);
    send_body(&p, KVPI_TRANSFER_DONE, body, sizeof body);
    assert_int_equal(info_b(&p).status, KVP_E_FORMAT);
}

/* ------------------------------------------------------------------------ random worlds, faults */

static place_shape draw_shape(uint64_t *random)
{
    static const char *const orders[] = {KVP_ORDER_APART_NHD, KVP_ORDER_APART_HND, KVP_ORDER_CPU};
    place_shape shape = state_place();
    shape.n_groups = 1 + draw(random, 2);
    shape.state_k = 1 + draw(random, 60);
    shape.state_v = draw(random, 3) == 0 ? 0 : 1 + draw(random, 3000);
    shape.state_order = orders[draw(random, 3)];
    return shape;
}

TEST(random_worlds)
{
    uint64_t random = 4;
    for (int i = 0; i < 120; i++) {
        place_shape a = draw_shape(&random);
        place_shape b = a;
        b.S = 2u << draw(&random, 3);
        for (uint32_t g = 0; g < a.n_groups; g++) {
            a.sizes[g] = 2u << draw(&random, 3);
            b.sizes[g] = 2u << draw(&random, 3);
        }
        b.state_order = draw_shape(&random).state_order;
        scoped_pair p = make_pair(&a, &b, 1 + draw(&random, 6));
        const uint32_t n = 2 + draw(&random, 30);
        open_both(&p, n, 0);
        reserve_to(&p, KVP_END);
        mark(&p);
        for (uint32_t at = 0, next; at < n; at = next) {
            next = at + 1 + draw(&random, 7);
            next = next > n ? n : next;
            prefill(&p, (kvp_range){at, next});
        }
        for (int k = 0; k < 40 && info_a(&p).state < KVP_TRANSFER_COMPLETE; k++)
            progress_both(&p, 20);
        assert_complete(&p, 0, n);
    }
}

/* Two senders with a head each, over two links. */
TEST(two_parts)
{
    const place_shape whole = state_place();
    place_shape half = whole;
    half.slice.n_heads = 1;
    pair p = make_pair(&half, &whole, 64);
    half.slice.first_head = 1;
    scoped_pair q = make_pair(&half, &whole, 64); /* of which the sender is used */
    uint32_t link;
    assert_ok(kvp_receiver_attach(p.receiver, &q.ends[1], &link));
    open_both(&p, 20, 0);
    open_both(&q, 20, 0);
    reserve_to(&p, KVP_END);
    mark_both(&p, &q);
    prefill(&p, (kvp_range){0, 20});
    progress_both(&p, 2);
    assert_int_equal(info_b(&p).state, KVP_TRANSFER_MOVING);
    write_kv(&q.a, q.seq_a, (kvp_range){0, 20}, KVP_LAYERS_ALL);
    write_state(&q.a, state_in(&q.a, q.seq_a).write_slot, 20);
    assert_ok(kvp_seq_commit(q.a.w.cache, q.seq_a, 20));
    for (int i = 0; i < 3; i++) {
        assert_ok(kvp_sender_progress(q.sender, NULL));
        progress_both(&p, 1);
    }
    assert_complete(&p, 0, 20);
    end_pair(&p);
}

/* Every message lost, doubled, swapped, cut or damaged: never complete with another state. */
TEST(faults)
{
    const place_shape shape = state_place();
    uint32_t n_complete = 0, n_happened = 0;
    for (uint32_t kind = FAULT_DROP; kind < FAULT_CALL; kind++) {
        for (uint32_t n = 1; n < 24; n++) {
            scoped_pair p = make_pair(&shape, &shape, 64);
            harm_side(&p, 0, kind, n);
            open_both(&p, 20, 0);
            reserve_to(&p, KVP_END);
            mark(&p);
            prefill(&p, (kvp_range){0, 20});
            progress_both(&p, 6);
            n_happened += (uint32_t)p.faults[0].happened;
            if (info_b(&p).state == KVP_TRANSFER_COMPLETE) {
                n_complete++;
                assert_true(has_kv(&p.b, p.seq_b, (kvp_range){0, 20}));
                assert_true(has_state(&p.b, state_in(&p.b, p.seq_b).write_slot, 20));
            }
        }
    }
    assert_true(n_happened > 100 && n_complete > 10);
}

TEST_MAIN(NULL, NULL)
