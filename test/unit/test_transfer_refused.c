/* Transfers that must not happen: wrong peers, wrong messages, tickets that are damaged. Here the
 * test itself plays the sender, with messages of its own making. */
#include "transfer_by_hand.h"

#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"

enum { HEAD = KVPI_TRANSFER_HEAD_BYTES };

/* --------------------------------------------------------------------------- a sender by hand */

static void begin(pair *p)
{
    const struct kvpi_shape shape = right_shape(p);
    send_begin(p, &shape);
    assert_int_equal(info_b(p).state, KVP_TRANSFER_MOVING);
}

static const struct kvpi_chunk FIRST_CHUNK = {0, 0, 2, 0, 5, 0};

/* A chunk with bytes that are in no memory here. */
static void send_chunk(pair *p, const struct kvpi_chunk *chunk, size_t kv_bytes)
{
    uint8_t body[KVP_LINK_MESSAGE_MIN - HEAD];
    memset(body, 0x5A, sizeof body);
    kvpi_chunk_put(chunk, body);
    send_body(p, KVPI_TRANSFER_CHUNK, body, KVPI_TRANSFER_CHUNK_BYTES + kv_bytes);
}

static size_t bytes_of(const struct kvpi_chunk *chunk)
{
    return (size_t)chunk->n_tokens * chunk->n_heads * 8 * 4;
}

static void send_done(pair *p, const kvp_slice *slice, int other_tokens)
{
    uint8_t body[KVPI_TRANSFER_DONE_BYTES(1)];
    struct kvpi_ticket ticket;
    assert_ok(kvpi_ticket_get(p->ticket, p->n_ticket, &ticket));
    kvpi_slice_put(slice, body);
    memcpy(body + 16, ticket.tokens.bytes, 16);
    body[31] ^= (uint8_t)other_tokens;
    send_body(p, KVPI_TRANSFER_DONE, body, sizeof body);
}

static pair make_waiting(uint32_t n_tokens)
{
    const place_shape shape = small_place();
    pair p = make_pair(&shape, &shape, 8);
    open_both(&p, n_tokens, 0);
    reserve(&p);
    watch_place(&p.b);
    return p;
}

/* It failed with this status, the peer was told, and the memory and the sequence are untouched. */
static void failed(pair *p, kvp_status status, int told)
{
    assert_int_equal(info_b(p).state, KVP_TRANSFER_FAILED);
    assert_int_equal(info_b(p).status, status);
    assert_int_equal(answer(p), told ? status : KVP_E_AGAIN);
    assert_nothing_else_changed(&p->b, p->seq_b, (kvp_range){0, 0});
    assert_ok(kvp_receiver_close(p->receiver, p->id_b));
}

/* ------------------------------------------------------------------------------ wrong peers */

/* A sender that was made for something else does not even begin. */
TEST(senders_of_something_else)
{
    for (int wrong = 0; wrong < 11; wrong++) {
        place_shape a = small_place();
        const place_shape b = small_place();
        a.type = wrong == 0 ? KVP_F16 : KVP_F32;
        a.k_size = wrong == 1 ? 8 : 4;
        a.v_size = wrong == 2 ? 2 : 4;
        a.slice.first_head = wrong == 3 ? 2 : 0;
        a.slice.first_layer = wrong == 4 ? 2 : 0;
        scoped_pair p = make_pair(&a, &b, 8);
        kvp_transfer_config config = transfer_config_of(&p.a);
        config.model = wrong == 5 ? "tesd" : "test";
        config.model_bytes = wrong == 6 ? 3 : 4;
        config.model_version = wrong == 7 ? 2 : 3;
        kvp_sender_destroy(p.sender);
        assert_ok(kvp_sender_create(&config, &p.sender));
        assert_ok(kvp_sender_attach(p.sender, &p.ends[0], &p.link_a));
        open_both(&p, 9, 0);
        if (wrong == 10) {
            close_seq(&p.a.w, p.seq_a);
            p.seq_a = open_seq(&p.a.w, ints(2), 9, NULL);
        }
        reserve(&p);
        kvp_send send = send_of(&p);
        send.space = wrong == 8 ? "Space" : "space";
        send.space_bytes = wrong == 9 ? 4 : 5;
        assert_status(KVP_E_MISMATCH, kvp_sender_mark(p.sender, &send, &p.id_a));
        assert_int_equal(p.id_a, 0);
    }
}

/* All tokens are compared, though they are hashed in pieces. */
TEST(long_prompts_that_differ_in_one_token)
{
    enum { N = 600 };
    kvp_config config = config_of(16, 16, 80);
    config.max_seq_tokens = N;
    scoped_world w = make_world(&config);
    int32_t tokens[N];
    kvp_hash one, other;
    for (int32_t i = 0; i < N; i++)
        tokens[i] = i;
    static const uint32_t places[] = {0, 1, 255, 256, 511, 512, N - 1};
    const kvp_seq a = open_seq(&w, tokens, N, NULL);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const uint32_t at = places[i];
        tokens[at] += 1000;
        const kvp_seq b = open_seq(&w, tokens, N, NULL);
        tokens[at] -= 1000;
        assert_ok(kvpi_transfer_tokens(w.cache, a, at + 1, &one));
        assert_ok(kvpi_transfer_tokens(w.cache, b, at + 1, &other));
        assert_memory_not_equal(&one, &other, sizeof one);
        assert_ok(kvpi_transfer_tokens(w.cache, a, at, &one));
        assert_ok(kvpi_transfer_tokens(w.cache, b, at, &other));
        assert_memory_equal(&one, &other, sizeof one);
        close_seq(&w, b);
    }
    close_seq(&w, a);
}

/* One that lies, or has no such check, is refused, and the transfer waits for a better one. */
TEST(receivers_compare_for_themselves)
{
    scoped_pair p = make_waiting(9);
    for (int wrong = 0; wrong < 21; wrong++) {
        struct kvpi_shape shape = right_shape(&p);
        uint32_t *const numbers[] = {&shape.groups[0].type,
                                     &shape.groups[0].flags,
                                     &shape.groups[0].k_size,
                                     &shape.groups[0].v_size,
                                     &shape.groups[0].slice.n_layers,
                                     &shape.groups[0].slice.n_heads,
                                     &shape.groups[0].slice.first_layer,
                                     &shape.groups[0].slice.first_head,
                                     &shape.begin,
                                     &shape.end};
        if (wrong < 10)
            (*numbers[wrong])++;
        else if (wrong < 14)
            *numbers[wrong - 6] = UINT32_MAX;
        else if (wrong < 16)
            *numbers[wrong - 10] = 0;
        else if (wrong < 18)
            *numbers[wrong - 8] += 3;
        shape.model_version += wrong == 18;
        shape.model.bytes[15] ^= wrong == 19;
        shape.space.bytes[0] ^= wrong == 20;
        send_begin(&p, &shape);
        assert_int_equal(answer(&p), KVP_E_MISMATCH);
        assert_int_equal(info_b(&p).state, KVP_TRANSFER_WAITING);
        /* Nor is what such a sender sends taken. */
        send_chunk(&p, &FIRST_CHUNK, bytes_of(&FIRST_CHUNK));
        assert_int_equal(answer(&p), KVP_E_AGAIN);
    }
    assert_nothing_else_changed(&p.b, p.seq_b, (kvp_range){0, 0});
    kvp_receiver_stats stats;
    assert_ok(kvp_receiver_stats_get(p.receiver, &stats));
    assert_fields(stats, messages, 42, refused, 21, late, 21, chunks, 0, bytes, 0);
    assert_int_equal(stats.last_refusal, KVP_E_MISMATCH);
    prefill(&p, (kvp_range){0, 9});
    mark(&p);
    progress_both(&p, 6);
    assert_int_equal(info_a(&p).state, KVP_TRANSFER_COMPLETE);
    assert_ok(kvp_receiver_stats_get(p.receiver, &stats));
    assert_fields(stats, messages, 46, refused, 21, late, 21, damaged, 0, chunks, 2);
    assert_int_equal(stats.bytes, 9 * 2 * 2 * 8 * 4);
    assert_true(has_kv(&p.b, p.seq_b, (kvp_range){0, 9}));
}

/* Another version, another ticket, another transfer, another epoch, a body that is cut. */
TEST(messages_that_begin_nothing)
{
    for (int wrong = 0; wrong < 6; wrong++) {
        static const kvp_status expected[] = {KVP_E_VERSION, KVP_E_MISMATCH, KVP_E_HANDLE,
                                              KVP_E_HANDLE,  KVP_E_FORMAT,   KVP_E_HANDLE};
        scoped_pair p = make_waiting(9);
        uint8_t body[KVPI_TRANSFER_BEGIN_BYTES(1)], message[256];
        const struct kvpi_shape shape = right_shape(&p);
        kvpi_shape_put(&shape, body);
        memcpy(body + KVPI_TRANSFER_SHAPE_BYTES(1), p.ticket + KVPI_TRANSFER_AT_BODY, 8);
        body[KVPI_TRANSFER_SHAPE_BYTES(1)] ^= wrong == 1;
        const size_t n = sizeof body - (wrong == 4);
        const uint64_t id = p.id_b;
        p.id_b += wrong == 2;
        p.id_b += wrong == 5 ? UINT64_C(1) << 32 : 0;
        size_t n_bytes = make_message(&p, KVPI_TRANSFER_BEGIN, body, n, message);
        p.id_b = id;
        if (wrong == 3)
            kvpi_transfer_seal(
                message, n_bytes,
                &(struct kvpi_transfer_head){.kind = KVPI_TRANSFER_BEGIN, .epoch = 76, .id = id});
        if (wrong == 0) {
            /* A head whose checksum is right, of a version to come. */
            uint8_t other[256];
            memcpy(other, message, sizeof other);
            other[KVPI_TRANSFER_AT_VERSION]++;
            kvpi_bytes_store(other + KVPI_TRANSFER_AT_HEAD,
                             kvpi_checksum(other, KVPI_TRANSFER_AT_HEAD), 8);
            memcpy(message, other, sizeof other);
        }
        post(&p.ends[0], message, n_bytes);
        assert_ok(kvp_receiver_progress(p.receiver, 0, NULL));
        assert_int_equal(answer(&p), expected[wrong]);
        assert_int_equal(info_b(&p).state, KVP_TRANSFER_WAITING);
        begin(&p);
        assert_int_equal(answer(&p), KVP_E_AGAIN);
    }
}

/* A sequence that is not what it was when a begin comes can take nothing: the transfer fails at
 * once, on both sides, and does not wait for another begin. */
TEST(a_begin_that_comes_too_late)
{
    for (int change = 0; change < 3; change++) {
        scoped_pair p = make_waiting(9);
        const struct kvpi_shape shape = right_shape(&p);
        kvp_status expected = KVP_E_STATE;
        uint32_t n_ended = 0;
        if (change == 0) {
            close_seq(&p.b.w, p.seq_b);
            p.seq_b.bits = 0;
            expected = KVP_E_HANDLE;
        } else if (change == 1) {
            assert_ok(kvp_seq_truncate(p.b.w.cache, p.seq_b, 8, NULL));
        } else {
            assert_ok(kvp_seq_commit(p.b.w.cache, p.seq_b, 1));
        }
        send_begin(&p, &shape);
        assert_int_equal(answer(&p), expected);
        assert_int_equal(info_b(&p).state, KVP_TRANSFER_FAILED);
        assert_int_equal(info_b(&p).status, expected);
        assert_int_equal(info_b(&p).owed, 0); /* the refusal has told it */
        assert_ok(kvp_receiver_progress(p.receiver, 0, &n_ended));
        assert_int_equal(answer(&p), KVP_E_AGAIN);
        assert_ok(kvp_receiver_close(p.receiver, p.id_b));
    }
}

/* What has ended before it began stays ended, and its place is not begun. */
TEST(a_begin_after_the_end)
{
    scoped_pair p = make_waiting(9);
    const struct kvpi_shape shape = right_shape(&p);
    assert_ok(kvp_receiver_abort(p.receiver, p.id_b, KVP_E_NO_SEQS));
    send_begin(&p, &shape);
    assert_int_equal(answer(&p), KVP_E_STATE);
    failed(&p, KVP_E_NO_SEQS, 0);
}

/* A sender hears at once that its transfer has ended, if there is room. */
TEST(an_end_that_has_room)
{
    scoped_pair p = make_waiting(9);
    begin(&p);
    assert_ok(kvp_receiver_abort(p.receiver, p.id_b, KVP_E_NO_SEQS));
    assert_int_equal(info_b(&p).owed, 0);
    failed(&p, KVP_E_NO_SEQS, 1);
}

/* What somebody has begun nobody else begins, nor goes on with, nor ends. */
TEST(a_part_has_one_sender)
{
    pair p = make_waiting(9);
    const place_shape shape = small_place();
    scoped_pair q = make_pair(&shape, &shape, 8);
    uint32_t link;
    assert_ok(kvp_receiver_attach(p.receiver, &q.ends[1], &link));
    begin(&p);
    const kvp_link right = p.ends[0];
    p.ends[0] = q.ends[0];
    struct kvpi_shape part = right_shape(&p);
    part.groups[0].slice = (kvp_slice){1, 1, 1, 1};
    send_begin(&p, &part);
    assert_int_equal(answer(&p), KVP_E_STATE);
    send_chunk(&p, &FIRST_CHUNK, bytes_of(&FIRST_CHUNK));
    send_body(&p, KVPI_TRANSFER_GIVE_UP, "\xff\xff\xff\xff\0\0\0", 8);
    send_done(&p, &part.groups[0].slice, 0);
    assert_int_equal(answer(&p), KVP_E_AGAIN);
    assert_int_equal(info_b(&p).state, KVP_TRANSFER_MOVING);
    assert_int_equal(info_b(&p).chunks, 0);
    p.ends[0] = right;
    send_chunk(&p, &FIRST_CHUNK, bytes_of(&FIRST_CHUNK));
    assert_int_equal(info_b(&p).chunks, 1);
    assert_nothing_else_changed(&p.b, p.seq_b, (kvp_range){0, 5});
    end_pair(&p);
}

/* Two senders, a layer each: one that writes into the other's layer ends it for both. */
TEST(a_sender_beside_its_part)
{
    pair p = make_waiting(9);
    const place_shape shape = small_place();
    scoped_pair q = make_pair(&shape, &shape, 8);
    uint32_t link;
    assert_ok(kvp_receiver_attach(p.receiver, &q.ends[1], &link));
    struct kvpi_shape part = right_shape(&p);
    part.groups[0].slice.n_layers = 1;
    send_begin(&p, &part);
    const kvp_link right = p.ends[0];
    p.ends[0] = q.ends[0];
    part.groups[0].slice.first_layer = 1;
    send_begin(&p, &part);
    assert_int_equal(answer(&p), KVP_E_AGAIN);
    send_chunk(&p, &FIRST_CHUNK, bytes_of(&FIRST_CHUNK));
    assert_int_equal(answer(&p), KVP_E_FORMAT);
    p.ends[0] = right;
    failed(&p, KVP_E_FORMAT, 1);
    end_pair(&p);
}

/* A message is left where it is while its answer has no room. */
TEST(a_refusal_that_has_no_room)
{
    const place_shape shape = small_place();
    scoped_pair p = make_pair(&shape, &shape, 1);
    open_both(&p, 9, 0);
    reserve(&p);
    struct kvpi_shape wrong = right_shape(&p);
    wrong.groups[0].type = KVP_F16;
    send_begin(&p, &wrong); /* its answer fills the link */
    wrong.groups[0].type = KVP_F32;
    wrong.end--;
    send_begin(&p, &wrong);
    kvp_receiver_stats stats;
    assert_ok(kvp_receiver_stats_get(p.receiver, &stats));
    assert_int_equal(stats.messages, 1);
    assert_int_equal(answer(&p), KVP_E_MISMATCH);
    assert_ok(kvp_receiver_progress(p.receiver, 0, NULL));
    assert_int_equal(answer(&p), KVP_E_MISMATCH);
    assert_int_equal(answer(&p), KVP_E_AGAIN);
}

/* How a transfer ended is told when the link has room again: by progress, or by close. What comes
 * later for a transfer that was closed is answered, so that a sender does not wait. */
TEST(an_end_that_has_no_room)
{
    for (int closes = 0; closes < 2; closes++) {
        const place_shape shape = small_place();
        scoped_pair p = make_pair(&shape, &shape, 1);
        open_both(&p, 9, 0);
        reserve(&p);
        begin(&p);
        const struct kvpi_shape again = right_shape(&p);
        send_begin(&p, &again); /* its answer fills the link */
        assert_ok(kvp_receiver_abort(p.receiver, p.id_b, KVP_E_NO_SEQS));
        assert_int_equal(info_b(&p).owed, 1);
        assert_int_equal(answer(&p), KVP_E_STATE);
        if (closes)
            assert_ok(kvp_receiver_close(p.receiver, p.id_b));
        else
            assert_ok(kvp_receiver_progress(p.receiver, 0, NULL));
        assert_int_equal(answer(&p), KVP_E_NO_SEQS);
        assert_ok(kvp_receiver_progress(p.receiver, 0, NULL));
        assert_int_equal(answer(&p), KVP_E_AGAIN); /* once */
        if (closes) {
            const kvp_slice slice = again.groups[0].slice;
            send_done(&p, &slice, 0);
            assert_int_equal(answer(&p), KVP_E_HANDLE);
        }
    }
}

/* A sender that gave up, which nobody heard, and tries again: its chunks are not mixed up with what
 * it sent before, whatever the link loses. */
TEST(a_second_attempt)
{
    scoped_pair p = make_waiting(9);
    prefill(&p, (kvp_range){0, 9});
    mark(&p);
    const uint64_t first = p.id_a;
    uint8_t messages[5][KVP_LINK_MESSAGE_MIN];
    size_t sizes[5];
    assert_ok(kvp_sender_progress(p.sender, NULL)); /* BEGIN, two chunks, DONE */
    assert_ok(kvp_sender_abort(p.sender, first, KVP_E_PEER));
    assert_ok(kvp_sender_close(p.sender, first));
    for (int attempt = 0; attempt < 2; attempt++) {
        for (int i = 0; i < 5 - attempt; i++) {
            const void *bytes;
            assert_ok(p.ends[1].take(p.ends[1].context, &bytes, &sizes[i]));
            memcpy(messages[i], bytes, sizes[i]);
            p.ends[1].give_back(p.ends[1].context);
        }
        if (attempt == 0) { /* all but DONE and the giving up arrives */
            for (int i = 0; i < 3; i++)
                post(&p.ends[0], messages[i], sizes[i]);
            assert_ok(kvp_receiver_progress(p.receiver, 0, NULL));
            assert_int_equal(info_b(&p).chunks, 2);
            mark(&p);
            assert_ok(kvp_sender_progress(p.sender, NULL));
        } else { /* DONE alone arrives */
            post(&p.ends[0], messages[3], sizes[3]);
            assert_ok(kvp_receiver_progress(p.receiver, 0, NULL));
        }
    }
    assert_int_equal(info_b(&p).state, KVP_TRANSFER_FAILED);
    assert_int_equal(info_b(&p).status, KVP_E_FORMAT);
}

/* ------------------------------------------------------------------------- wrong messages */

/* With scales: what one block has of the range, from its start. */
TEST(chunks_that_are_no_blocks)
{
    for (uint32_t n_tokens = 1; n_tokens <= 5; n_tokens++) {
        place_shape shape = small_place();
        shape.type = KVP_INT8;
        shape.has_scales = 1;
        scoped_pair p = make_pair(&shape, &shape, 8);
        open_both(&p, 9, 0);
        reserve(&p);
        watch_place(&p.b);
        begin(&p);
        const struct kvpi_chunk chunk = {0, 0, 2, 0, n_tokens, 0};
        send_chunk(&p, &chunk, (size_t)n_tokens * 16 + 16);
        if (n_tokens == 4)
            assert_int_equal(info_b(&p).chunks, 1);
        else
            failed(&p, KVP_E_FORMAT, 1);
    }
}

TEST(chunks_out_of_place)
{
    for (int wrong = 0; wrong < 14; wrong++) {
        scoped_pair p = make_waiting(9);
        struct kvpi_chunk chunk = FIRST_CHUNK;
        chunk.layer = wrong == 0 ? 2 : wrong == 1 ? UINT32_MAX : 0;
        chunk.first_head = wrong == 2 ? 1 : wrong == 3 ? UINT32_MAX : 0;
        chunk.n_heads = wrong == 4 ? 0 : wrong == 5 ? 3 : wrong == 6 ? UINT32_MAX : 2;
        chunk.position = wrong == 7 ? 1 : wrong == 8 ? UINT32_MAX : wrong == 9 ? 9 : 0;
        chunk.n_tokens = wrong == 10 ? 0 : wrong == 11 ? 10 : wrong == 12 ? UINT32_MAX : 5;
        begin(&p);
        const struct kvpi_chunk *measure = wrong == 11 ? &chunk : &FIRST_CHUNK;
        send_chunk(&p, &chunk, bytes_of(measure) - (wrong == 13));
        failed(&p, KVP_E_FORMAT, 1);
    }
}

/* The same chunk again; and one after a gap. */
TEST(chunks_twice_and_lost)
{
    for (int lost = 0; lost < 2; lost++) {
        scoped_pair p = make_waiting(9);
        struct kvpi_chunk chunk = FIRST_CHUNK;
        begin(&p);
        send_chunk(&p, &chunk, bytes_of(&chunk));
        assert_int_equal(info_b(&p).chunks, 1);
        watch_place(&p.b);
        chunk.position = lost ? 6 : 0;
        chunk.n_tokens = 3;
        send_chunk(&p, &chunk, bytes_of(&chunk));
        failed(&p, KVP_E_FORMAT, 1);
    }
}

TEST(messages_that_are_damaged)
{
    for (int wrong = 0; wrong < 6; wrong++) {
        scoped_pair p = make_waiting(9);
        uint8_t body[KVPI_TRANSFER_CHUNK_BYTES + 5 * 64] = {0}, message[512];
        kvpi_chunk_put(&FIRST_CHUNK, body);
        begin(&p);
        size_t n = make_message(&p,
                                wrong == 0   ? 9
                                : wrong == 5 ? KVPI_TRANSFER_TICKET
                                             : KVPI_TRANSFER_CHUNK,
                                body, sizeof body, message);
        message[n - 1] ^= wrong == 1;
        message[HEAD] ^= wrong == 2;
        n -= wrong == 3;
        n = wrong == 4 ? HEAD : n;
        post(&p.ends[0], message, n);
        assert_ok(kvp_receiver_progress(p.receiver, 0, NULL));
        failed(&p, KVP_E_FORMAT, 1);
    }
}

/* A head that is right in itself, and names another length. */
TEST(a_length_that_is_not_the_messages)
{
    scoped_pair p = make_waiting(9);
    uint8_t body[KVPI_TRANSFER_CHUNK_BYTES + 5 * 64] = {0}, message[512];
    kvpi_chunk_put(&FIRST_CHUNK, body);
    begin(&p);
    const size_t n = make_message(&p, KVPI_TRANSFER_CHUNK, body, sizeof body, message);
    message[KVPI_TRANSFER_AT_LENGTH]++;
    kvpi_bytes_store(message + KVPI_TRANSFER_AT_HEAD, kvpi_checksum(message, KVPI_TRANSFER_AT_HEAD),
                     8);
    post(&p.ends[0], message, n);
    assert_ok(kvp_receiver_progress(p.receiver, 0, NULL));
    failed(&p, KVP_E_FORMAT, 1);
}

/* A receiver that says it has everything before everything was sent; and answers that are none. */
TEST(answers_that_are_wrong)
{
    for (int wrong = 0; wrong < 5; wrong++) {
        scoped_pair p = make_waiting(9);
        uint8_t message[128], body[8] = {0};
        prefill(&p, (kvp_range){0, 5});
        mark(&p);
        assert_ok(kvp_sender_progress(p.sender, NULL));
        if (wrong == 1)
            kvpi_bytes_store(body, (uint32_t)KVP_E_NO_SEQS, 4);
        const uint32_t kind = wrong == 2 ? KVPI_TRANSFER_DONE : KVPI_TRANSFER_RESULT;
        size_t n = make_message(&p, kind, body, wrong == 3 ? 7 : 8, message);
        message[n - 1] ^= wrong == 4;
        post(&p.ends[1], message, n);
        assert_ok(kvp_sender_progress(p.sender, NULL));
        assert_int_equal(info_a(&p).state, KVP_TRANSFER_FAILED);
        assert_int_equal(info_a(&p).status, wrong == 1 ? KVP_E_NO_SEQS : KVP_E_FORMAT);
        assert_int_equal(info_a(&p).by_peer, wrong == 1);
        assert_int_equal(info_a(&p).owed, 0);
    }
}

/* Nobody knows whose they are: they are dropped. */
TEST(heads_that_are_damaged)
{
    scoped_pair p = make_waiting(9);
    begin(&p);
    uint8_t message[HEAD + 8] = {0};
    for (size_t byte = 0; byte < HEAD; byte++) {
        const size_t n = make_message(&p, KVPI_TRANSFER_GIVE_UP, "\0\0\0\0\0\0\0", 8, message);
        message[byte] ^= (uint8_t)(1 << byte % 8);
        post(&p.ends[0], message, n);
        assert_ok(kvp_receiver_progress(p.receiver, 0, NULL));
    }
    for (size_t n = 1; n < HEAD; n++) {
        (void)make_message(&p, KVPI_TRANSFER_GIVE_UP, "\0\0\0\0\0\0\0", 8, message);
        post(&p.ends[0], message, n);
        assert_ok(kvp_receiver_progress(p.receiver, 0, NULL));
    }
    const size_t whole = make_message(&p, KVPI_TRANSFER_GIVE_UP, "\0\0\0\0\0\0\0", 8, message);
    message[0] = 'K'; /* another's message, whole */
    kvpi_bytes_store(message + KVPI_TRANSFER_AT_HEAD, kvpi_checksum(message, KVPI_TRANSFER_AT_HEAD),
                     8);
    post(&p.ends[0], message, whole);
    assert_ok(kvp_receiver_progress(p.receiver, 0, NULL));
    kvp_receiver_stats stats;
    assert_ok(kvp_receiver_stats_get(p.receiver, &stats));
    assert_int_equal(stats.damaged, HEAD + HEAD);
    assert_int_equal(info_b(&p).state, KVP_TRANSFER_MOVING);
}

TEST(an_end_that_is_none)
{
    const kvp_slice all = {0, 2, 0, 2}, layer = {0, 1, 0, 2}, beyond = {0, 3, 0, 2};
    for (int wrong = 0; wrong < 5; wrong++) {
        scoped_pair p = make_waiting(9);
        struct kvpi_chunk chunk = {0, 0, 2, 0, 9, 0};
        begin(&p);
        for (chunk.layer = 0; chunk.layer < (wrong == 0 ? 1 : 2); chunk.layer++)
            send_chunk(&p, &chunk, bytes_of(&chunk));
        watch_place(&p.b);
        if (wrong == 0) { /* a layer is missing */
            send_done(&p, &all, 0);
        } else if (wrong == 1) { /* twice the same layer */
            send_done(&p, &layer, 0);
            assert_int_equal(info_b(&p).state, KVP_TRANSFER_MOVING);
            send_done(&p, &layer, 0);
        } else if (wrong == 2) {
            send_done(&p, &beyond, 0);
        } else if (wrong == 3) {
            send_body(&p, KVPI_TRANSFER_DONE, "", 0);
        } else {
            send_done(&p, &all, 1);
        }
        failed(&p, wrong == 4 ? KVP_E_MISMATCH : KVP_E_FORMAT, 1);
    }
}

TEST(a_sender_that_gives_up)
{
    static const int32_t reasons[] = {KVP_E_NO_BLOCKS, KVP_OK, -29, 5, INT32_MIN};
    for (int i = 0; i < 6; i++) {
        scoped_pair p = make_waiting(9);
        uint8_t body[8] = {0};
        begin(&p);
        if (i < 5)
            kvpi_bytes_store(body, (uint32_t)reasons[i], 4);
        send_body(&p, KVPI_TRANSFER_GIVE_UP, body, i < 5 ? 8 : 7);
        assert_int_equal(info_b(&p).by_peer, 1);
        failed(&p, i == 0 ? KVP_E_NO_BLOCKS : i < 5 ? KVP_E_PEER : KVP_E_FORMAT, 0);
    }
}

/* Every bit of every message turned over: what is complete is right, and nothing else changes. */
TEST(every_bit)
{
    place_shape shape = small_place();
    shape.slice = (kvp_slice){0, 1, 0, 1};
    shape.k_size = shape.v_size = 1;
    uint32_t n_completed = 0, n_ran = 0;
    for (uint32_t message = 0; message < 3; message++) {
        static const size_t sizes[] = {HEAD + KVPI_TRANSFER_BEGIN_BYTES(1),
                                       HEAD + KVPI_TRANSFER_CHUNK_BYTES + 16,
                                       HEAD + KVPI_TRANSFER_DONE_BYTES(1)};
        for (size_t byte = 0; byte < sizes[message]; byte++) {
            scoped_pair p = make_pair(&shape, &shape, 8);
            open_both(&p, 2, 0);
            reserve(&p);
            prefill(&p, (kvp_range){0, 2});
            mark(&p);
            watch_place(&p.b);
            assert_ok(kvp_sender_progress(p.sender, NULL));
            const void *bytes;
            size_t n;
            uint8_t messages[3][256];
            for (uint32_t i = 0; i < 3; i++) {
                assert_ok(p.ends[1].take(p.ends[1].context, &bytes, &n));
                assert_int_equal(n, sizes[i]);
                memcpy(messages[i], bytes, n);
                p.ends[1].give_back(p.ends[1].context);
            }
            messages[message][byte] ^= (uint8_t)(1 << (byte * 5 + message) % 8);
            for (uint32_t i = 0; i < 3; i++) {
                post(&p.ends[0], messages[i], sizes[i]);
                assert_ok(kvp_receiver_progress(p.receiver, 0, NULL));
            }
            n_ran++;
            n_completed += info_b(&p).state == KVP_TRANSFER_COMPLETE;
            assert_nothing_else_changed(&p.b, p.seq_b, (kvp_range){0, 2});
            assert_int_equal(info_of(&p.b.w, p.seq_b).computed_tokens, 0);
        }
    }
    assert_int_equal(n_completed, 0);
    assert_int_equal(n_ran, 168 + 96 + 80);
}

/* ------------------------------------------------------------------------------- tickets */

TEST(tickets_that_are_damaged)
{
    scoped_pair p = make_waiting(9);
    prefill(&p, (kvp_range){0, 9});
    kvp_ticket ticket;
    for (size_t n = 0; n < p.n_ticket; n++) {
        uint8_t *copy = malloc(p.n_ticket);
        assert_non_null(copy);
        memcpy(copy, p.ticket, p.n_ticket);
        assert_status(KVP_E_FORMAT, kvp_ticket_read(copy, n, &ticket, NULL, 0));
        copy[n] ^= (uint8_t)(1 << n % 8);
        assert_status(KVP_E_FORMAT, kvp_ticket_read(copy, p.n_ticket, &ticket, NULL, 0));
        free(copy);
    }
    /* With a right checksum: what it says is looked at all the same. */
    for (size_t at = HEAD; at < p.n_ticket; at++) {
        for (int value = 0; value < 2; value++) {
            uint8_t copy[1024];
            memcpy(copy, p.ticket, p.n_ticket);
            copy[at] = value ? 0xff : (uint8_t)(copy[at] + 1);
            kvpi_transfer_seal(copy, p.n_ticket,
                               &(struct kvpi_transfer_head){
                                   .kind = KVPI_TRANSFER_TICKET, .epoch = 77, .id = p.id_b});
            (void)kvp_ticket_read(copy, p.n_ticket, &ticket, NULL, 0);
            kvp_send send = send_of(&p);
            send.ticket = copy;
            if (kvp_sender_mark(p.sender, &send, &p.id_a) != KVP_OK)
                continue;
            /* Slots alone, or how many tokens are known: the receiver has its own ticket. */
            progress_both(&p, 3);
            assert_int_equal(info_a(&p).state, KVP_TRANSFER_FAILED);
            assert_ok(kvp_sender_close(p.sender, p.id_a));
        }
    }
    assert_int_equal(info_b(&p).state, KVP_TRANSFER_WAITING);
    assert_nothing_else_changed(&p.b, p.seq_b, (kvp_range){0, 0});
}

/* Runs: as many tokens as the range, nothing behind them, joined where they touch, and numbers in
 * their shortest form. */
TEST(runs_that_are_wrong)
{
    static const struct {
        uint32_t n_runs;
        size_t n;
        uint8_t bytes[11];
    } cases[] = {
        {1, 2, {8, 9}},                                        /* slots 4 .. 12: right */
        {2, 4, {8, 4, 2, 5}},                                  /* 4 .. 7, 9 .. 13: right */
        {1, 3, {8, 9, 0}},                                     /* more behind it */
        {2, 2, {8, 9}},                                        /* fewer than said */
        {1, 2, {8, 8}},                                        /* a token less */
        {1, 2, {8, 10}},                                       /* a token more */
        {2, 4, {8, 4, 0, 5}},                                  /* two that are one */
        {1, 3, {0x88, 0, 9}},                                  /* a number with a zero too many */
        {2, 4, {8, 9, 2, 0}},                                  /* an empty one */
        {1, 2, {1, 9}},                                        /* a slot below 0 */
        {1, 3, {8, 0x89, 0x80}},                               /* cut */
        {1, 8, {0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 9}}, /* beyond every pool */
        {1, 11, {0xfe, 255, 255, 255, 255, 255, 255, 255, 255, 1, 9}}, /* as far as 64 bits go */
        {0, 0, {0}},
    };
    scoped_pair p = make_waiting(9);
    kvp_ticket ticket;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t copy[1024];
        const size_t fixed = HEAD + KVPI_TRANSFER_TICKET_BYTES(1);
        memcpy(copy, p.ticket, fixed);
        kvpi_bytes_store(copy + fixed - 4, cases[i].n_runs, 4);
        memcpy(copy + fixed, cases[i].bytes, cases[i].n);
        kvpi_transfer_seal(
            copy, fixed + cases[i].n,
            &(struct kvpi_transfer_head){.kind = KVPI_TRANSFER_TICKET, .epoch = 77, .id = p.id_b});
        assert_status(i < 2 ? KVP_OK : KVP_E_FORMAT,
                      kvp_ticket_read(copy, fixed + cases[i].n, &ticket, NULL, 0));
    }
}

TEST_MAIN(NULL, NULL)
