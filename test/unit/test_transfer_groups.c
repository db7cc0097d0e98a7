/* Transfers of several layer groups: random worlds with windows, what is not sent, and sides whose
 * groups differ. KV follows from position, group, layer and head (transfer_world). */
#include "transfer_by_hand.h"

#include <string.h>

/* Full attention beside 2 sinks and 9 recent tokens. */
static place_shape grouped_place(void)
{
    place_shape shape = small_place();
    shape.usable = 64;
    shape.n_groups = 2;
    shape.windows[1] = (kvp_window){2, 9};
    shape.more = 2;
    return shape;
}

static kvp_ticket ticket_of(const pair *p, uint32_t group)
{
    kvp_ticket ticket;
    assert_ok(kvp_ticket_group(p->ticket, p->n_ticket, group, &ticket, NULL, 0));
    return ticket;
}

static int32_t entry_of(const world *w, kvp_seq seq, uint32_t group, uint32_t idx)
{
    const int32_t *row;
    uint32_t n;
    assert_ok(kvp_seq_row(w->cache, seq, group, &row, &n));
    assert_true(idx < n);
    return row[idx];
}

/* --------------------------------------------------------------------------------- one by hand */

/*   S = 4, 23 tokens, the last one is computed by the receiver: q = 22, K = 2, R = 9
 *   group 1 keeps entry 0 and those from (22 + 1 - 9) / 4 = 3 on: 1 and 2 are null, tokens 4..11 */
TEST(what_a_window_drops_is_not_sent)
{
    const place_shape shape = grouped_place();
    scoped_pair p = make_pair(&shape, &shape, 64);
    open_both(&p, 23, 0);
    assert_int_equal(stats_of(&p.b.w).held_blocks, 12 - 2);
    assert_int_equal(entry_of(&p.b.w, p.seq_b, 1, 1), 0);
    assert_int_equal(entry_of(&p.b.w, p.seq_b, 1, 2), 0);
    assert_status(KVP_E_DROPPED, kvp_seq_extend(p.b.w.cache, p.seq_b, ints(100), 1, 0));
    reserve_to(&p, 22);
    assert_int_equal(p.n_ticket, 128 + 2 * 60 + (4 + 4) * 2);
    assert_int_equal(ticket_of(&p, 0).n_groups, 2);
    assert_int_equal(ticket_of(&p, 0).gap.end, 0);
    assert_int_equal(ticket_of(&p, 1).gap.begin, 4);
    assert_int_equal(ticket_of(&p, 1).gap.end, 12);
    assert_int_equal(ticket_of(&p, 1).k_size, 6);
    assert_int_equal(ticket_of(&p, 1).window.recent_tokens, 9);
    watch_place(&p.b);
    mark(&p);
    for (uint32_t at = 0; at < 22; at += 2)
        prefill(&p, (kvp_range){at, at + 2});
    progress_both(&p, 2);
    assert_int_equal(info_b(&p).state, KVP_TRANSFER_COMPLETE);
    assert_int_equal(info_a(&p).state, KVP_TRANSFER_COMPLETE);
    /* 2 layers, 2 heads; 22 tokens of 4 + 4 elements, and 14 of 6 + 4 */
    assert_int_equal(info_b(&p).bytes, 2 * 2 * 4 * (22 * 8 + 14 * 10));
    assert_true(has_kv(&p.b, p.seq_b, (kvp_range){0, 22}));
    assert_nothing_else_changed(&p.b, p.seq_b, (kvp_range){0, 22});
    assert_ok(kvp_seq_commit(p.b.w.cache, p.seq_b, 22));
    assert_ok(kvp_seq_extend(p.b.w.cache, p.seq_b, ints(100), 1, 0));
}

/* A sender whose prompt was hit lacks what its windows had dropped then: nobody asks for it. */
TEST(a_sender_that_hit_its_prompt)
{
    const place_shape shape = grouped_place();
    scoped_pair p = make_pair(&shape, &shape, 64);
    leave_cached(&p.a.w, ints(1), 20);
    kvp_seq before = open_seq(&p.a.w, ints(1), 20, NULL);
    write_kv(&p.a, before, (kvp_range){0, 20}, KVP_LAYERS_ALL);
    close_seq(&p.a.w, before);
    open_both(&p, 23, 0);
    assert_int_equal(info_of(&p.a.w, p.seq_a).computed_tokens, 20);
    assert_int_equal(entry_of(&p.a.w, p.seq_a, 1, 2), 0);
    reserve_to(&p, 22);
    mark(&p);
    prefill(&p, (kvp_range){20, 22});
    progress_both(&p, 2);
    assert_int_equal(info_b(&p).state, KVP_TRANSFER_COMPLETE);
}

/* A receiver without KVP_OPEN_RECEIVE wants all, and such a sender has not all. */
TEST(a_receiver_that_wants_all)
{
    const place_shape shape = grouped_place();
    for (int hit = 0; hit < 2; hit++) {
        scoped_pair p = make_pair(&shape, &shape, 64);
        if (hit)
            leave_cached(&p.a.w, ints(1), 20);
        p.seq_a = open_seq(&p.a.w, ints(1), 23, NULL);
        p.seq_b = open_seq(&p.b.w, ints(1), 23, NULL);
        reserve(&p);
        mark(&p);
        assert_int_equal(ticket_of(&p, 1).gap.end, 0);
        for (uint32_t at = hit ? 20 : 0; at < 23; at++)
            prefill(&p, (kvp_range){at, at + 1});
        progress_both(&p, 2);
        assert_int_equal(info_b(&p).status, hit ? KVP_E_DROPPED : KVP_OK);
        assert_int_equal(info_b(&p).state, hit ? KVP_TRANSFER_FAILED : KVP_TRANSFER_COMPLETE);
        if (!hit)
            assert_true(has_kv(&p.b, p.seq_b, (kvp_range){0, 23}));
    }
}

/* What the windows keep after fewer tokens was dropped: those cannot be all that comes. */
TEST(an_end_that_lacks_tokens)
{
    const place_shape shape = grouped_place();
    scoped_pair p = make_pair(&shape, &shape, 64);
    size_t n;
    open_both(&p, 23, 0);
    kvp_receive receive = receive_of(&p);
    for (uint32_t end = 1; end <= 23; end++) {
        receive.end = end;
        const kvp_status status = kvp_receiver_reserve(p.receiver, &receive, NULL, 0, &n, &p.id_b);
        /* entry 2, tokens 8..11, is kept while 12 > end + 1 - 9 */
        assert_int_equal(status, end < 20 ? KVP_E_DROPPED : KVP_OK);
    }
}

/* ------------------------------------------------------------------------------ random worlds */

typedef struct trial {
    place_shape a, b;
    uint32_t n_tokens, n_cached, step;
} trial;

static trial draw_trial(uint64_t *random)
{
    static const char *const orders[] = {KVP_ORDER_VLLM_NHD, KVP_ORDER_TENSORRT_LLM,
                                         KVP_ORDER_APART_HND};
    trial t = {.a = grouped_place()};
    t.a.n_groups = 1 + draw(random, PLACE_GROUPS);
    t.a.type = draw(random, 3) == 0 ? KVP_INT8 : draw(random, 2) ? KVP_F32 : KVP_BF16;
    t.a.has_scales = t.a.type == KVP_INT8;
    t.a.more = draw(random, 3);
    for (uint32_t g = 0; g < t.a.n_groups; g++) {
        t.a.windows[g] = draw(random, 3) == 0 ? (kvp_window){0, 0}
                                              : (kvp_window){draw(random, 7), 1 + draw(random, 24)};
        if (t.a.windows[g].sink_tokens >= 5)
            t.a.windows[g].sink_tokens = KVP_CHUNKED;
    }
    t.b = t.a;
    t.a.order = orders[draw(random, 3)];
    t.b.order = orders[draw(random, 3)];
    t.a.S = t.b.S = 2u << draw(random, 3);
    if (!t.a.has_scales)
        t.b.S = 2u << draw(random, 3);
    uint32_t largest = 0;
    for (uint32_t g = 0; g < t.a.n_groups; g++) {
        t.b.sizes[g] = draw(random, 2) ? 2u << draw(random, 3) : 0;
        t.a.sizes[g] = t.a.has_scales ? t.b.sizes[g] : draw(random, 2) ? 2u << draw(random, 3) : 0;
        const uint32_t S = place_block_tokens(&t.b, g);
        largest = S > largest ? S : largest;
    }
    t.a.usable = t.b.usable = 192;
    t.n_tokens = 2 + draw(random, 46);
    const uint32_t part = t.a.has_scales ? largest : place_unit_tokens(&t.b);
    t.n_cached = draw(random, t.n_tokens / part + 1) * part;
    t.n_cached = t.n_cached >= t.n_tokens ? 0 : t.n_cached;
    t.step = 1 + draw(random, 6);
    return t;
}

/* Bytes of K, V and scales that a group's tokens have, as they go in messages. */
static uint64_t bytes_to_send(const pair *p, const trial *t, uint32_t begin, uint32_t end)
{
    uint64_t n = 0;
    for (uint32_t g = 0; g < p->b.n_groups; g++) {
        const kvp_range gap = ticket_of(p, g).gap;
        const uint64_t elements = t->b.k_size + g * t->b.more + t->b.v_size;
        const uint64_t heads = 2 * 2; /* of both layers */
        for (uint32_t at = begin; at < end; at++) {
            if (at >= gap.begin && at < gap.end)
                continue;
            n += elements * kvp_type_bytes(t->b.type) * heads;
            if (t->b.has_scales && at % place_block_tokens(&t->b, g) == 0)
                n += 8 * heads;
        }
    }
    return n;
}

/* Whoever hits any beginning of the prompt at the receiver reads what was sent, or was there. */
static void check_hits(pair *p, uint32_t n_tokens)
{
    for (uint32_t n = 1; n <= n_tokens; n++) {
        kvp_open_info info;
        const kvp_seq seq = open_seq(&p->b.w, ints(1), n, &info);
        run_plan(&p->b);
        assert_true(has_kv(&p->b, seq, (kvp_range){0, info.hit_tokens}));
        close_seq(&p->b.w, seq);
    }
}

/* Is an entry kept with the next query at q? */
static int keeps(kvp_window window, uint32_t S, uint32_t entry, uint32_t q)
{
    if (window.sink_tokens == KVP_CHUNKED)
        return ((entry + 1) * S - 1) / window.recent_tokens >= q / window.recent_tokens;
    return window.recent_tokens == 0 || entry * S < window.sink_tokens ||
           (entry + 1) * S + window.recent_tokens > q + 1;
}

/* What a prompt of the first `end` tokens hits of the sequence. */
static uint32_t hit_of(const pair *p, const trial *t, uint32_t end)
{
    const uint32_t U = place_unit_tokens(&t->b);
    uint32_t best = 0;
    for (uint32_t n = U; n <= end; n += U) {
        const uint32_t q = n < end ? n : end - 1;
        int all = 1;
        for (uint32_t g = 0; g < p->b.n_groups; g++) {
            const uint32_t S = place_block_tokens(&t->b, g);
            for (uint32_t i = 0; i * S < n; i++) {
                const uint32_t entry_end = (i + 1) * S < n ? (i + 1) * S : n;
                all = all && (!keeps(t->b.windows[g], S, i, q) ||
                              entry_of(&p->b.w, p->seq_b, g, i) != 0 || entry_end <= t->n_cached);
            }
        }
        best = all ? n : best;
    }
    return best;
}

static void run_trial(const trial *t, uint32_t *n_gaps)
{
    pair p = make_pair(&t->a, &t->b, 4096);
    open_both(&p, t->n_tokens, t->n_cached);
    run_plan(&p.b);
    const uint32_t begin = info_of(&p.b.w, p.seq_b).computed_tokens, end = t->n_tokens - 1;
    if (begin >= end) {
        end_pair(&p);
        return;
    }
    if (t->b.has_scales)
        assert_int_equal(begin, t->n_cached);
    reserve_to(&p, end);
    for (uint32_t g = 0; g < p.b.n_groups; g++)
        *n_gaps += ticket_of(&p, g).gap.end > 0;
    watch_place(&p.b);
    mark(&p);
    for (uint32_t at = 0, n; at < end; at += n) {
        n = end - at < t->step ? end - at : t->step;
        prefill(&p, (kvp_range){at, at + n});
        progress_both(&p, 1);
    }
    progress_both(&p, 2);
    assert_int_equal(info_a(&p).status, KVP_OK);
    assert_int_equal(info_a(&p).state, KVP_TRANSFER_COMPLETE);
    assert_int_equal(info_b(&p).state, KVP_TRANSFER_COMPLETE);
    assert_int_equal(info_b(&p).bytes, bytes_to_send(&p, t, begin, end));
    assert_true(has_kv(&p.b, p.seq_b, (kvp_range){0, end}));
    assert_nothing_else_changed(&p.b, p.seq_b, (kvp_range){begin, end});
    assert_ok(kvp_seq_commit(p.b.w.cache, p.seq_b, end));
    assert_ok(kvp_seq_extend(p.b.w.cache, p.seq_b, NULL, 0, 1)); /* it lacks nothing */
    assert_int_equal(match(&p.b.w, ints(1), end).hit_tokens, hit_of(&p, t, end));
    check_hits(&p, t->n_tokens);
    end_pair(&p);
}

TEST(random_worlds)
{
    uint64_t random = 20;
    uint32_t n_gaps = 0;
    for (int i = 0; i < 400; i++) {
        const trial t = draw_trial(&random);
        run_trial(&t, &n_gaps);
    }
    print_message("400 worlds, %u groups with a gap\n", n_gaps);
    assert_true(n_gaps > 100);
}

/* ---------------------------------------------------------------------- groups that differ */

static void expect_why(const pair *p, const char *field, double theirs, double ours)
{
    kvp_why why;
    const kvp_send send = send_of(p);
    assert_status(KVP_E_MISMATCH, kvp_send_check(p->sender, &send, &why));
    assert_string_equal(why.field, field);
    assert_true(why.value == theirs && why.lowest == ours && why.highest == ours);
}

TEST(sides_that_differ)
{
    static const char *const fields[] = {"n_groups",
                                         "groups[1].sink_tokens",
                                         "groups[1].recent_tokens",
                                         "groups[0].recent_tokens",
                                         "groups[1].k_size",
                                         "groups[0].type"};
    static const double ours[] = {3, 3, 10, 8, 7, KVP_F16}, theirs[] = {2, 2, 9, 0, 6, KVP_F32};
    for (int wrong = 0; wrong < 6; wrong++) {
        place_shape a = grouped_place();
        const place_shape b = grouped_place();
        a.n_groups += wrong == 0;
        a.windows[1].sink_tokens += wrong == 1;
        a.windows[1].recent_tokens += wrong == 2;
        a.windows[0].recent_tokens = wrong == 3 ? 8 : 0;
        a.more += wrong == 4;
        a.type = wrong == 5 ? KVP_F16 : a.type;
        scoped_pair p = make_pair(&a, &b, 8);
        open_both(&p, 9, 0);
        reserve(&p);
        const kvp_send send = send_of(&p);
        assert_status(KVP_E_MISMATCH, kvp_sender_mark(p.sender, &send, &p.id_a));
        expect_why(&p, fields[wrong], theirs[wrong], ours[wrong]);
    }
}

/* A check that is asked for what is right, and for what is nothing. */
TEST(checks_before_marks)
{
    const place_shape shape = grouped_place();
    scoped_pair p = make_pair(&shape, &shape, 8);
    kvp_why why;
    open_both(&p, 9, 0);
    reserve(&p);
    kvp_send send = send_of(&p);
    memset(&why, 0xA5, sizeof why);
    assert_ok(kvp_send_check(p.sender, &send, &why));
    assert_string_equal(why.field, "");
    assert_ok(kvp_send_check(p.sender, &send, NULL));
    send.struct_size = 1;
    assert_status(KVP_E_ARG, kvp_send_check(p.sender, &send, &why));
    assert_string_equal(why.field, "struct_size");
    send = send_of(&p);
    send.space = NULL;
    assert_status(KVP_E_ARG, kvp_send_check(p.sender, &send, &why));
    assert_string_equal(why.text, "space: is NULL, and space_bytes is not 0");
    send = send_of(&p);
    send.space = "Space";
    assert_status(KVP_E_MISMATCH, kvp_send_check(p.sender, &send, &why));
    assert_string_equal(why.field, "space");
    send = send_of(&p);
    send.ticket_bytes--;
    assert_status(KVP_E_FORMAT, kvp_send_check(p.sender, &send, &why));
    assert_string_equal(why.field, "ticket");
    send.ticket = NULL;
    assert_status(KVP_E_ARG, kvp_send_check(p.sender, &send, &why));
    assert_string_equal(why.text, "ticket: is NULL");
    assert_status(KVP_E_ARG, kvp_send_check(p.sender, NULL, &why));
    assert_string_equal(why.text, "send: is NULL");
    assert_status(KVP_E_ARG, kvp_send_check(NULL, &send, &why));
    assert_string_equal(why.field, "sender");
}

TEST(configurations)
{
    const place_shape shape = grouped_place();
    place_shape other = shape;
    scoped_place p = make_place(&shape);
    kvp_why why;
    other.S = 8;
    place q = make_place(&other);
    other = shape;
    other.usable = 8;
    place small = make_place(&other);
    static const char *const fields[] = {
        "memory", "memories", "memories", "", "memories[1].block_tokens", "memories[1].n_blocks"};
    for (int wrong = 0; wrong < 6; wrong++) {
        kvp_transfer_config config = transfer_config_of(&p);
        const kvp_memory *memories[2] = {p.memories[0], p.memories[1]};
        kvp_sender *sender = NULL;
        memories[1] = wrong == 2   ? NULL
                      : wrong == 4 ? q.memories[1]
                      : wrong == 5 ? small.memories[1]
                                   : memories[1];
        config.memories = wrong == 1 ? NULL : memories;
        config.memory = wrong <= 1 ? p.memories[0] : NULL;
        const kvp_status status = wrong == 3 ? KVP_OK : KVP_E_ARG;
        memset(&why, 0xA5, sizeof why);
        assert_status(status, kvp_transfer_config_check(&config, &why));
        assert_string_equal(why.field, fields[wrong]);
        assert_status(status, kvp_sender_create(&config, &sender));
        kvp_sender_destroy(sender);
    }
    assert_status(KVP_E_ARG, kvp_transfer_config_check(NULL, &why));
    assert_string_equal(why.field, "config");
    end_place(&small);
    end_place(&q);
}

/*   S = 8 and 2, 23 tokens: the window keeps entry 0 and those from (22 + 1 - 9) / 2 = 7 on */
TEST(block_sizes)
{
    place_shape shape = grouped_place();
    place_shape plain = shape;
    shape.sizes[0] = 8;
    shape.sizes[1] = 2;
    for (int way = 0; way < 3; way++) { /* to several sizes, from them, both */
        scoped_pair p = make_pair(way == 0 ? &plain : &shape, way == 1 ? &plain : &shape, 64);
        open_both(&p, 23, 0);
        reserve_to(&p, 22);
        assert_int_equal(ticket_of(&p, 0).block_tokens, way == 1 ? 4 : 8);
        assert_int_equal(ticket_of(&p, 1).block_tokens, way == 1 ? 4 : 2);
        assert_int_equal(ticket_of(&p, 1).gap.begin, way == 1 ? 4 : 2);
        assert_int_equal(ticket_of(&p, 1).gap.end, way == 1 ? 12 : 14);
        watch_place(&p.b);
        mark(&p);
        for (uint32_t at = 0; at < 22; at += 2)
            prefill(&p, (kvp_range){at, at + 2});
        progress_both(&p, 2);
        assert_int_equal(info_b(&p).state, KVP_TRANSFER_COMPLETE);
        assert_true(has_kv(&p.b, p.seq_b, (kvp_range){0, 22}));
        assert_nothing_else_changed(&p.b, p.seq_b, (kvp_range){0, 22});
    }
}

/* The second one begins inside blocks of both sides. */
TEST(block_sizes_one_after_the_other)
{
    place_shape shape = grouped_place(), other = shape;
    shape.windows[1] = other.windows[1] = (kvp_window){0, 0};
    shape.sizes[0] = other.sizes[1] = 8;
    shape.sizes[1] = other.sizes[0] = 2;
    scoped_pair p = make_pair(&shape, &other, 64);
    open_both(&p, 23, 0);
    for (uint32_t begin = 0, end = 7; begin < 22; begin = end, end = 22) {
        reserve_to(&p, end);
        watch_place(&p.b);
        mark(&p);
        prefill(&p, (kvp_range){begin, end});
        progress_both(&p, 2);
        assert_int_equal(info_b(&p).state, KVP_TRANSFER_COMPLETE);
        assert_int_equal(info_b(&p).begin, begin);
        assert_nothing_else_changed(&p.b, p.seq_b, (kvp_range){begin, end});
        assert_ok(kvp_seq_commit(p.b.w.cache, p.seq_b, end));
        assert_ok(kvp_receiver_close(p.receiver, p.id_b));
        assert_ok(kvp_sender_close(p.sender, p.id_a));
        p.id_a = 0;
    }
    assert_true(has_kv(&p.b, p.seq_b, (kvp_range){0, 22}));
}

/* With scales each group has the blocks of the other side, and begins where one of them does. */
TEST(block_sizes_with_scales)
{
    place_shape shape = grouped_place();
    kvp_why why;
    size_t n;
    shape.type = KVP_INT8;
    shape.has_scales = 1;
    shape.windows[1] = (kvp_window){0, 0};
    shape.sizes[1] = 8;
    for (int wrong = 0; wrong < 3; wrong++) {
        place_shape other = shape;
        other.sizes[1] = wrong == 1 ? 16 : 8;
        scoped_pair p = make_pair(&other, &shape, 64);
        open_both(&p, 23, wrong == 2 ? 12 : 8);
        const kvp_receive receive = receive_of(&p);
        assert_status(
            wrong == 2 ? KVP_E_MISMATCH : KVP_OK,
            kvp_receiver_reserve(p.receiver, &receive, p.ticket, sizeof p.ticket, &n, &p.id_b));
        p.n_ticket = n;
        const kvp_send send = send_of(&p);
        if (wrong == 1) {
            assert_status(KVP_E_MISMATCH, kvp_send_check(p.sender, &send, &why));
            assert_string_equal(why.field, "groups[1].block_tokens");
        }
        if (wrong == 0) {
            mark(&p);
            prefill(&p, (kvp_range){0, 23});
            progress_both(&p, 4);
            assert_int_equal(info_b(&p).state, KVP_TRANSFER_COMPLETE);
            assert_true(has_kv(&p.b, p.seq_b, (kvp_range){0, 23}));
        }
    }
}

/* --------------------------------------------------------------------- messages that are wrong */

static pair make_waiting(void)
{
    const place_shape shape = grouped_place();
    pair p = make_pair(&shape, &shape, 8);
    open_both(&p, 23, 0);
    reserve_to(&p, 22);
    watch_place(&p.b);
    return p;
}

static void send_chunk(pair *p, const struct kvpi_chunk *chunk)
{
    uint8_t body[KVPI_TRANSFER_CHUNK_BYTES + 12 * 2 * 10 * 4] = {0};
    const size_t token = (size_t)chunk->n_heads * (chunk->group == 0 ? 8 : 10) * 4;
    kvpi_chunk_put(chunk, body);
    send_body(p, KVPI_TRANSFER_CHUNK, body, KVPI_TRANSFER_CHUNK_BYTES + chunk->n_tokens * token);
}

/* A receiver compares the groups for itself. */
TEST(senders_that_lie)
{
    scoped_pair p = make_waiting();
    for (int wrong = 0; wrong < 12; wrong++) {
        struct kvpi_shape shape = right_shape(&p);
        struct kvpi_shape_group *group = &shape.groups[1];
        shape.groups[2] = *group;
        shape.n_groups += wrong == 0 ? 1 : 0;
        shape.n_groups -= wrong == 1 ? 1 : 0;
        group->window.sink_tokens += wrong == 2;
        group->window.recent_tokens += wrong == 3;
        group->gap.begin += wrong == 4;
        group->gap.end += wrong == 5;
        group->k_size += wrong == 6;
        group->slice.n_layers += wrong == 7;
        group->slice.first_head += wrong == 8;
        group->flags ^= wrong == 9 ? KVPI_SHAPE_K_SCALES : 0;
        if (wrong == 10)
            group->slice = (kvp_slice){0, 0, 0, 2};
        if (wrong == 11) /* nothing of any group */
            shape.groups[0].slice = group->slice = (kvp_slice){0, 0, 0, 0};
        send_begin(&p, &shape);
        kvp_receiver_stats stats;
        assert_ok(kvp_receiver_stats_get(p.receiver, &stats));
        assert_int_equal(stats.refused, wrong + 1);
        assert_int_equal(stats.last_refusal, KVP_E_MISMATCH);
        assert_int_equal(info_b(&p).state, KVP_TRANSFER_WAITING);
        assert_int_equal(answer(&p), KVP_E_MISMATCH);
    }
}

/* Chunks of no group, of the other group's position, and into the gap. */
TEST(chunks_out_of_place)
{
    for (int wrong = 0; wrong < 7; wrong++) {
        scoped_pair p = make_waiting();
        const struct kvpi_shape shape = right_shape(&p);
        send_begin(&p, &shape);
        struct kvpi_chunk chunk = {0, 0, 2, 0, 4, 1};
        if (wrong >= 3)
            send_chunk(&p, &chunk);
        if (wrong == 6) /* right: it goes on behind the gap */
            chunk.position = 12;
        else if (wrong == 5) /* before its end */
            chunk.position = 8;
        else if (wrong == 4) /* at its beginning */
            chunk.position = 4;
        else if (wrong == 3) /* group 0 waits for its first token */
            chunk = (struct kvpi_chunk){0, 0, 2, 4, 4, 0};
        else if (wrong == 2) /* across its beginning */
            chunk.n_tokens = 5;
        else if (wrong == 1)
            chunk.group = 2;
        else
            chunk.group = UINT32_MAX;
        send_chunk(&p, &chunk);
        assert_int_equal(info_b(&p).status, wrong == 6 ? KVP_OK : KVP_E_FORMAT);
        assert_int_equal(info_b(&p).chunks, wrong == 6 ? 2 : wrong >= 3);
    }
}

/* The end of nothing; of one group while it lacks tokens behind its gap; of each group alone. */
TEST(ends_of_groups)
{
    for (int wrong = 0; wrong < 3; wrong++) {
        scoped_pair p = make_waiting();
        const struct kvpi_shape shape = right_shape(&p);
        uint8_t body[KVPI_TRANSFER_DONE_BYTES(2)] = {0};
        struct kvpi_ticket ticket;
        assert_ok(kvpi_ticket_get(p.ticket, p.n_ticket, &ticket));
        memcpy(body + 32, ticket.tokens.bytes, 16);
        send_begin(&p, &shape);
        for (uint32_t l = 0; l < 2 && wrong > 0; l++) {
            send_chunk(&p, &(struct kvpi_chunk){l, 0, 2, 0, 4, 1});
            if (wrong == 2)
                send_chunk(&p, &(struct kvpi_chunk){l, 0, 2, 12, 10, 1});
        }
        if (wrong > 0)
            kvpi_slice_put(&shape.groups[1].slice, body + 16);
        send_body(&p, KVPI_TRANSFER_DONE, body, sizeof body);
        assert_int_equal(info_b(&p).state, wrong == 2 ? KVP_TRANSFER_MOVING : KVP_TRANSFER_FAILED);
    }
}

/* --------------------------------------------------------------------------------- two senders */

/* One has the first layers of both groups, one the last layer of the second only. */
TEST(from_two_senders)
{
    const place_shape whole = grouped_place();
    place_shape part = whole;
    part.slice.n_layers = 1;
    pair p = make_pair(&part, &whole, 64);
    part.slice.first_layer = 1;
    scoped_pair q = make_pair(&part, &whole, 64);
    uint32_t link;
    assert_ok(kvp_receiver_attach(p.receiver, &q.ends[1], &link));
    open_both(&p, 23, 0);
    q.seq_a = open_seq(&q.a.w, ints(1), 23, NULL);
    reserve_to(&p, 22);
    mark_both(&p, &q);
    prefill(&p, (kvp_range){0, 22});
    assert_ok(kvp_sender_progress(p.sender, NULL));
    assert_int_equal(info_a(&p).state, KVP_TRANSFER_SENT);
    write_kv(&q.a, q.seq_a, (kvp_range){0, 22}, KVP_LAYERS_ALL);
    assert_ok(kvp_sender_ready(q.sender, q.id_a, KVP_LAYERS_ALL, 22));
    assert_ok(kvp_seq_commit(q.a.w.cache, q.seq_a, 22));
    assert_ok(kvp_sender_progress(q.sender, NULL));
    progress_both(&p, 3);
    assert_int_equal(info_b(&p).state, KVP_TRANSFER_COMPLETE);
    assert_true(has_kv(&p.b, p.seq_b, (kvp_range){0, 22}));
    end_pair(&p);
}

TEST_MAIN(NULL, NULL)
