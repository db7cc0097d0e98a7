/* Worker messages: what a mirror knows after each, and what it refuses. */
#include <stdlib.h>
#include <string.h>

#include "wire_drive.h"

#include "wire/wire_bytes.h"

#if KVP_CHECK >= 1
enum { STEPS = 4000 };
#else
enum { STEPS = 40000 };
#endif

/* A mirror in memory of our own, all of which can be compared. */
typedef struct watched {
    kvp_wire_mirror *mirror;
    void *memory;
    void *before;
    size_t n_bytes;
} watched;

static watched watch(const kvp_wire_config *config)
{
    watched m;
    assert_ok(kvp_wire_mirror_bytes(config, &m.n_bytes));
    m.memory = aligned_alloc(64, m.n_bytes);
    m.before = malloc(m.n_bytes);
    memset(m.memory, 0xA5, m.n_bytes);
    assert_ok(kvp_wire_mirror_create(config, m.memory, m.n_bytes, &m.mirror));
    return m;
}

static void unwatch(watched *m)
{
    kvp_wire_mirror_destroy(m->mirror);
    free(m->memory);
    free(m->before);
}

/* The message is refused with this status (0: any), and not a byte of the mirror is touched. */
static void refuse(watched *m, kvp_status expected, const void *bytes, size_t n_bytes)
{
    kvp_wire_news news;
    memset(&news, 0x5A, sizeof news);
    kvp_wire_news same = news;
    memcpy(m->before, m->memory, m->n_bytes);
    kvp_status status = kvp_wire_mirror_apply(m->mirror, bytes, n_bytes, &news);
    if (expected != KVP_OK)
        assert_int_equal(status, expected);
    assert_int_not_equal(status, KVP_OK);
    assert_memory_equal(m->before, m->memory, m->n_bytes);
    assert_memory_equal(&news, &same, sizeof news);
}

/* A copy of exactly its size, so that a read behind its end is found. */
static uint8_t *copy_of(const void *bytes, size_t n_bytes)
{
    uint8_t *copy = malloc(n_bytes ? n_bytes : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, n_bytes);
    return copy;
}

static void seal(uint8_t *bytes, size_t n_bytes)
{
    kvpi_bytes_store(bytes + KVPI_WIRE_AT_LENGTH, n_bytes, 4);
    kvpi_bytes_store(bytes + KVPI_WIRE_AT_CHECKSUM, kvpi_wire_checksum(bytes, n_bytes), 8);
}

static kvp_wire_seq seq_of(const watched *m, uint32_t id)
{
    kvp_wire_seq seq;
    assert_ok(kvp_wire_mirror_seq(m->mirror, id, &seq));
    return seq;
}

/* ------------------------------------------------------------------- a small world, by hand */

typedef struct pair {
    world w;
    kvp_wire_config config;
    kvp_wire_sender *sender;
    watched m;
    kvp_wire_item items[4];
    uint32_t n_items;
    uint8_t bytes[4096];
    size_t n_bytes;
} pair;

static pair make_pair(uint32_t usable)
{
    pair p = {.w = small_world(usable)};
    assert_ok(kvp_wire_config_of(p.w.cache, &p.config));
    assert_ok(kvp_wire_sender_create(&p.config, p.w.cache, NULL, 0, &p.sender));
    p.m = watch(&p.config);
    return p;
}

static void end_pair(pair *p)
{
    kvp_wire_sender_destroy(p->sender);
    unwatch(&p->m);
    end_world(&p->w);
}

#define scoped_pair ENDED_BY(end_pair) pair

static void add(pair *p, uint32_t id, kvp_seq seq)
{
    p->items[p->n_items++] = (kvp_wire_item){.seq = seq, .worker_id = id, .status = 1};
}

static kvp_wire_step step_of(pair *p)
{
    return (kvp_wire_step){
        .struct_size = sizeof(kvp_wire_step), .n_items = p->n_items, .items = p->items};
}

static kvp_status encode(pair *p, const kvp_wire_step *step)
{
    return kvp_wire_sender_encode(p->sender, step, p->bytes, sizeof p->bytes, &p->n_bytes);
}

/* Make the message, give it to the mirror, and see that both agree. Gives the body's length. */
static size_t tell(pair *p, kvp_wire_step step, kvp_wire_news *out_news)
{
    assert_ok(encode(p, &step));
    assert_ok(kvp_wire_mirror_apply(p->m.mirror, p->bytes, p->n_bytes, out_news));
    assert_int_equal(kvp_wire_mirror_digest(p->m.mirror), kvp_wire_sender_digest(p->sender));
    return p->n_bytes - KVP_WIRE_HEAD_BYTES;
}

TEST(prompt_then_decode)
{
    scoped_pair p = make_pair(8);
    kvp_wire_news news;
    const int32_t token = 77777;
    kvp_seq seq = open_seq(&p.w, ints(10), 6, NULL);
    add(&p, 3, seq);
    p.items[0].step_tokens = 1;
    tell(&p, step_of(&p), &news);
    assert_int_equal(news.full, 1);
    assert_int_equal(news.n_items, 1);
    assert_int_equal(news.items[0].worker_id, 3);
    assert_int_equal(news.items[0].is_new, 1);
    assert_int_equal(news.items[0].n_values, 6);
    assert_memory_equal(news.items[0].values, ints(10), 6 * sizeof(int32_t));
    kvp_wire_seq s = seq_of(&p.m, 3);
    assert_int_equal(s.n_tokens, 6);
    assert_int_equal(s.last_token, 15);
    assert_int_equal(s.n_blocks, 2);
    assert_int_equal(s.row[0], 1);
    assert_int_equal(s.row[1], 2);
    assert_ok(kvp_seq_commit(p.w.cache, seq, 6));
    assert_ok(kvp_seq_extend(p.w.cache, seq, &token, 1, 0));
    tell(&p, step_of(&p), &news); /* computed jumped by 6: a change */
    for (uint32_t n = 7; n < 20; n++) {
        assert_ok(kvp_seq_commit(p.w.cache, seq, n));
        assert_ok(kvp_seq_extend(p.w.cache, seq, &token, 1, 0));
        /* no closed, no copies, one item, group, run of 1, token, and a block in every 4th */
        assert_int_equal(tell(&p, step_of(&p), &news), n % 4 == 0 ? 9 : 8);
        assert_int_equal(news.items[0].from, n);
        assert_int_equal(news.items[0].n_values, 1);
        assert_int_equal(news.items[0].values[0], token);
        assert_int_equal(seq_of(&p.m, 3).n_tokens, n + 1);
        if (n % 4 == 3) { /* the row is full: not once more without a block */
            uint8_t *again = copy_of(p.bytes, p.n_bytes);
            again[KVPI_WIRE_AT_NUMBER]++;
            seal(again, p.n_bytes);
            refuse(&p.m, KVP_E_FORMAT, again, p.n_bytes);
            free(again);
        }
    }
}

TEST(rows_change_in_every_way)
{
    scoped_pair p = make_pair(16);
    kvp_wire_news news;
    kvp_copy copies[4];
    kvp_seq a = open_done(&p.w, ints(0), 10);
    kvp_seq b = fork_seq(&p.w, a, KVP_END);
    kvp_seq c = open_seq(&p.w, ints(0), 10, NULL); /* 2 blocks shared, one of its own */
    add(&p, 0, a);
    add(&p, 1, b);
    tell(&p, step_of(&p), NULL);
    /* Copy-on-write of b, its copy in the plan; truncation of a; c is new. */
    assert_ok(kvp_seq_extend(p.w.cache, b, ints(50), 7, 0));
    assert_ok(kvp_seq_truncate(p.w.cache, a, 3, NULL));
    add(&p, 2, c);
    kvp_wire_step step = step_of(&p);
    step.n_copies = take_plan(&p.w, copies, 4);
    step.copies = copies;
    assert_int_equal(step.n_copies, 1);
    tell(&p, step, &news);
    assert_int_equal(news.n_copies, 1);
    assert_memory_equal(news.copies, copies, sizeof *copies);
    assert_int_equal(seq_of(&p.m, 0).n_blocks, 1);
    assert_int_equal(seq_of(&p.m, 1).n_blocks, 5);
    assert_row(&p.w, b, seq_of(&p.m, 1).row[0], seq_of(&p.m, 1).row[1], seq_of(&p.m, 1).row[2],
               seq_of(&p.m, 1).row[3], seq_of(&p.m, 1).row[4]);
    /* a ends, and its id begins anew in the same message. */
    close_seq(&p.w, a);
    p.items[0].seq = open_seq(&p.w, ints(90), 2, NULL);
    const uint32_t closed[] = {0};
    step = step_of(&p);
    step.closed = closed;
    step.n_closed = 1;
    tell(&p, step, &news);
    assert_int_equal(news.n_closed, 1);
    assert_int_equal(news.closed[0], 0);
    assert_int_equal(seq_of(&p.m, 0).n_tokens, 2);
}

TEST(adopting_replaces_one_entry)
{
    scoped_pair p = make_pair(16);
    kvp_seq a = open_seq(&p.w, ints(0), 12, NULL);
    kvp_seq b = open_seq(&p.w, ints(0), 12, NULL);
    add(&p, 0, a);
    add(&p, 1, b);
    tell(&p, step_of(&p), NULL);
    assert_ok(kvp_seq_commit(p.w.cache, a, 12));
    assert_ok(kvp_seq_commit(p.w.cache, b, 12));
    tell(&p, step_of(&p), NULL);
    assert_memory_equal(seq_of(&p.m, 0).row, seq_of(&p.m, 1).row, 3 * sizeof(int32_t));
    assert_row(&p.w, b, 1, 2, 3);
}

/* The counts are the same before and after: only the values tell that a draft was replaced. */
TEST(replaced_values_are_sent_again)
{
    scoped_pair p = make_pair(16);
    kvp_wire_news news;
    kvp_seq a = open_done(&p.w, ints(0), 6);
    add(&p, 0, a);
    assert_ok(kvp_seq_extend(p.w.cache, a, ints(20), 4, 0));
    p.items[0].step_tokens = 4;
    tell(&p, step_of(&p), NULL);
    const int32_t other[] = {20, 21, 5, 23}; /* the last one is the same, too */
    assert_ok(kvp_seq_truncate(p.w.cache, a, 6, NULL));
    assert_ok(kvp_seq_extend(p.w.cache, a, other, 4, 0));
    tell(&p, step_of(&p), &news);
    assert_true(news.items[0].from <= 8);
    const uint32_t skip = 6 - news.items[0].from;
    assert_memory_equal(news.items[0].values + skip, other, sizeof other);
    tell(&p, step_of(&p), &news); /* nothing more to say */
    assert_int_equal(news.items[0].n_values, 0);
    /* The remaining prompt is not sent with each chunk. */
    kvp_seq b = open_seq(&p.w, ints(100), 30, NULL);
    add(&p, 1, b);
    for (uint32_t n = 0; n < 30; n += 10) {
        assert_ok(kvp_seq_commit(p.w.cache, b, n));
        p.items[1].step_tokens = 10;
        tell(&p, step_of(&p), &news);
        assert_int_equal(news.items[1].n_values, n == 0 ? 30 : 0);
    }
}

/* Rolled back below what was in flight; or committed when scheduled, rolled back, replaced and
 * committed again: the other values come, too. */
TEST(replaced_values_below_computed)
{
    scoped_pair p = make_pair(16);
    kvp_wire_news news;
    kvp_seq a = open_done(&p.w, ints(0), 8);
    add(&p, 0, a);
    assert_ok(kvp_seq_extend(p.w.cache, a, ints(8), 4, 0));
    tell(&p, step_of(&p), NULL);
    assert_ok(kvp_seq_truncate(p.w.cache, a, 6, NULL));
    assert_ok(kvp_seq_extend(p.w.cache, a, ints(60), 2, 0));
    assert_ok(kvp_seq_extend(p.w.cache, a, ints(8), 4, 0));
    tell(&p, step_of(&p), &news);
    assert_true(news.items[0].from <= 6);
    assert_memory_equal(news.items[0].values + 6 - news.items[0].from, ints(60), 8);
    assert_ok(kvp_seq_commit(p.w.cache, a, 12));
    p.items[0].step_tokens = 4;
    tell(&p, step_of(&p), NULL);
    assert_ok(kvp_seq_truncate(p.w.cache, a, 8, NULL));
    assert_ok(kvp_seq_extend(p.w.cache, a, ints(70), 4, 0));
    assert_ok(kvp_seq_commit(p.w.cache, a, 12));
    tell(&p, step_of(&p), &news);
    assert_true(news.items[0].from <= 8);
    assert_int_equal(news.items[0].from + news.items[0].n_values, 12);
}

/* One more token in all counts, and yet no plain decode: what was cached is less. */
TEST(cached_falls_unseen)
{
    const kvp_config config = config_of(4, 2, 16);
    scoped_pair p = {.w = make_world(&config)};
    assert_ok(kvp_wire_config_of(p.w.cache, &p.config));
    assert_ok(kvp_wire_sender_create(&p.config, p.w.cache, NULL, 0, &p.sender));
    p.m = watch(&p.config);
    leave_cached(&p.w, ints(0), 6);
    kvp_seq a = open_seq(&p.w, ints(0), 7, NULL);
    assert_ok(kvp_seq_commit(p.w.cache, a, 7));
    add(&p, 0, a);
    tell(&p, step_of(&p), NULL);
    assert_int_equal(seq_of(&p.m, 0).cached_tokens, 6);
    assert_ok(kvp_seq_truncate(p.w.cache, a, 5, NULL));
    assert_ok(kvp_seq_extend(p.w.cache, a, ints(5), 3, 0));
    assert_ok(kvp_seq_commit(p.w.cache, a, 8));
    tell(&p, step_of(&p), NULL);
    assert_int_equal(seq_of(&p.m, 0).cached_tokens, 5);
}

TEST(runs_end_at_gaps)
{
    scoped_pair p = make_pair(16);
    kvp_seq seqs[4];
    const uint32_t ids[] = {0, 1, 3, 7};
    for (uint32_t i = 0; i < 4; i++) {
        seqs[i] = open_done(&p.w, ints((int32_t)(100 * i)), 5);
        add(&p, ids[i], seqs[i]);
    }
    tell(&p, step_of(&p), NULL);
    for (uint32_t n = 6; n < 8; n++) {
        for (uint32_t i = 0; i < 4; i++) {
            assert_ok(kvp_seq_extend(p.w.cache, seqs[i], ints((int32_t)i), 1, 0));
            assert_ok(kvp_seq_commit(p.w.cache, seqs[i], n));
        }
        /* closed, copies, items; runs of 2, 1, 1 with two bytes each, four tokens */
        assert_int_equal(tell(&p, step_of(&p), NULL), 3 + 6 + 4);
        for (uint32_t i = 0; i < 4; i++)
            assert_int_equal(seq_of(&p.m, ids[i]).last_token, i);
    }
}

TEST(values_of_the_caller)
{
    kvp_config config = config_of(4, 4, 16);
    config.n_nodes = 5; /* the root of each namespace, and next to nothing */
    scoped_world w = make_world(&config);
    kvp_wire_config wire;
    kvp_wire_sender *sender;
    kvp_wire_news news;
    uint8_t bytes[1024];
    size_t n_bytes;
    assert_ok(kvp_wire_config_of(w.cache, &wire));
    assert_ok(kvp_wire_sender_create(&wire, w.cache, NULL, 0, &sender));
    watched m = watch(&wire);
    kvp_wire_item item = {.seq = open_seq(&w, ints(0), 40, NULL), .status = 9};
    kvp_wire_step step = {.struct_size = sizeof step, .n_items = 1, .items = &item};
    assert_true(info_of(&w, item.seq).kept_tokens < 40);
    assert_status(KVP_E_UNKNOWN,
                  kvp_wire_sender_encode(sender, &step, bytes, sizeof bytes, &n_bytes));
    item.tokens = ints(0);
    assert_ok(kvp_wire_sender_encode(sender, &step, bytes, sizeof bytes, &n_bytes));
    assert_ok(kvp_wire_mirror_apply(m.mirror, bytes, n_bytes, &news));
    assert_memory_equal(news.items[0].values, ints(0), 40 * sizeof(int32_t));
    assert_int_equal(seq_of(&m, 0).last_token, 39);
    assert_int_equal(seq_of(&m, 0).status, 9);
    kvp_wire_sender_destroy(sender);
    unwatch(&m);
}

/* ------------------------------------------------------------------------------- any workload */

/* What the worker was given of each sequence's values. */
typedef struct given {
    int32_t values[DRIVE_SEQS][DRIVE_TOKENS];
    uint32_t first[DRIVE_SEQS];
} given;

static void keep_values(given *g, const kvp_wire_news *news)
{
    for (uint32_t i = 0; i < news->n_items; i++) {
        const kvp_wire_news_item *item = &news->items[i];
        assert_true(item->from + item->n_values <= DRIVE_TOKENS);
        if (item->is_new || item->from < g->first[item->worker_id])
            g->first[item->worker_id] = item->from;
        for (uint32_t k = 0; k < item->n_values; k++)
            g->values[item->worker_id][item->from + k] = item->values[k];
    }
}

/* Those that are still to be computed are what the cache has. */
static void compare_values(const given *g, const driver *d)
{
    for (uint32_t id = 0; id < DRIVE_SEQS; id++) {
        int32_t tokens[DRIVE_TOKENS];
        if (d->seqs[id].status == 0)
            continue;
        kvp_seq_info info = info_of(&d->w, d->seqs[id].seq);
        uint32_t from = info.computed_tokens > g->first[id] ? info.computed_tokens : g->first[id];
        if (from >= info.known_tokens)
            continue;
        uint32_t n = info.known_tokens - from;
        assert_ok(kvp_seq_tokens(d->w.cache, d->seqs[id].seq, from, n, tokens));
        assert_memory_equal(tokens, &g->values[id][from], n * sizeof *tokens);
    }
}

TEST(mirror_is_the_cache_after_each_message)
{
    static driver d;
    static given g;
    (void)state;
    drive_begin(&d, 1);
    watched m = watch(&d.config);
    for (uint32_t i = 0; i < STEPS; i++) {
        kvp_wire_news news;
        drive_tell(&d, m.mirror, &news);
        assert_int_equal(news.n_copies, d.n_copies);
        assert_memory_equal(news.copies, d.copies, d.n_copies * sizeof *d.copies);
        keep_values(&g, &news);
        compare_values(&g, &d);
    }
    unwatch(&m);
    drive_end(&d);
}

/* --------------------------------------------------------------------------------- refusals */

static void try_cuts_and_flips(watched *m, const driver *d)
{
    for (size_t n = 0; n < d->n_bytes; n++) {
        uint8_t *cut = copy_of(d->bytes, n);
        refuse(m, KVP_E_FORMAT, cut, n);
        free(cut);
    }
    uint8_t *bytes = copy_of(d->bytes, d->n_bytes);
    for (size_t at = 0; at < d->n_bytes; at++) {
        for (unsigned bit = 0; bit <= 8; bit++) {
            uint8_t flip = (uint8_t)(bit < 8 ? 1u << bit : 0xffu);
            bytes[at] ^= flip;
            refuse(m, at == KVPI_WIRE_AT_VERSION ? KVP_E_VERSION : KVP_E_FORMAT, bytes, d->n_bytes);
            bytes[at] ^= flip;
        }
    }
    free(bytes);
}

/* Cut or flipped with a checksum that fits: whatever is taken leaves sound counts. */
static void try_sealed(watched *m, const driver *d)
{
    const kvp_wire_config config = drive_roomy(d);
    const canaries rows = drive_put_canaries(m->mirror, &config);
    uint8_t *state = copy_of(m->memory, m->n_bytes);
    for (size_t at = KVP_WIRE_HEAD_BYTES; at < d->n_bytes; at++) {
        uint8_t *cut = copy_of(d->bytes, at);
        seal(cut, at);
        refuse(m, KVP_OK, cut, at);
        free(cut);
        uint8_t *bytes = copy_of(d->bytes, d->n_bytes);
        for (unsigned value = 0; value < 256; value++) {
            bytes[at] = (uint8_t)value;
            seal(bytes, d->n_bytes);
            kvp_status status = kvp_wire_mirror_apply(m->mirror, bytes, d->n_bytes, NULL);
            if (status != KVP_OK)
                assert_memory_equal(m->memory, state, m->n_bytes);
            drive_assert_canaries(m->mirror, &config, &rows);
            memcpy(m->memory, state, m->n_bytes);
        }
        free(bytes);
    }
    free(state);
}

TEST(damage_is_refused)
{
    static driver d;
    (void)state;
    drive_begin(&d, 4);
    const kvp_wire_config config = drive_roomy(&d);
    watched m = watch(&config);
    for (uint32_t i = 0; i < 60; i++) {
        drive_change(&d);
        drive_message(&d, i % 16 == 15);
        if (i % 4 == 3) {
            try_cuts_and_flips(&m, &d);
            try_sealed(&m, &d);
        }
        assert_ok(kvp_wire_mirror_apply(m.mirror, d.bytes, d.n_bytes, NULL));
        refuse(&m, KVP_E_STATE, d.bytes, d.n_bytes); /* repeated */
    }
    uint8_t longer[DRIVE_BYTES + 1];
    memcpy(longer, d.bytes, d.n_bytes);
    longer[d.n_bytes] = 0;
    refuse(&m, KVP_E_FORMAT, longer, d.n_bytes + 1);
    unwatch(&m);
    drive_end(&d);
}

/* Wrong, though the checksum is right. */
TEST(sealed_nonsense)
{
    scoped_pair p = make_pair(16);
    add(&p, 1, open_seq(&p.w, ints(0), 6, NULL));
    tell(&p, step_of(&p), NULL);
    uint8_t *b = p.bytes;
    /* A sequence is new that is there already. */
    b[KVPI_WIRE_AT_KIND] = KVPI_WIRE_STEP;
    b[KVPI_WIRE_AT_NUMBER] = 2;
    seal(b, p.n_bytes);
    refuse(&p.m, KVP_E_FORMAT, b, p.n_bytes);
    /* The same as a full message is taken; but not with more behind it, or another length. */
    b[KVPI_WIRE_AT_KIND] = KVPI_WIRE_FULL_STATE;
    b[p.n_bytes] = 0;
    seal(b, p.n_bytes + 1);
    refuse(&p.m, KVP_E_FORMAT, b, p.n_bytes + 1);
    kvpi_bytes_store(b + KVPI_WIRE_AT_LENGTH, p.n_bytes, 4);
    kvpi_bytes_store(b + KVPI_WIRE_AT_CHECKSUM, kvpi_wire_checksum(b, p.n_bytes + 1), 8);
    refuse(&p.m, KVP_E_FORMAT, b, p.n_bytes + 1);
    for (uint32_t groups = 0; groups < 256; groups++) {
        b[KVPI_WIRE_AT_GROUPS] = (uint8_t)groups;
        seal(b, p.n_bytes);
        if (groups != 1)
            refuse(&p.m, groups >= 2 && groups <= 8 ? KVP_E_MISMATCH : KVP_E_FORMAT, b, p.n_bytes);
    }
    b[KVPI_WIRE_AT_GROUPS] = 1;
    /* Neither moves nor second bytes of bits are there, nor sizes; no other part has a meaning. */
    for (uint32_t parts = 1; parts < 256; parts++) {
        b[KVPI_WIRE_AT_PARTS] = (uint8_t)parts;
        seal(b, p.n_bytes);
        refuse(&p.m, parts < 4 ? KVP_OK : parts < 8 ? KVP_E_MISMATCH : KVP_E_FORMAT, b, p.n_bytes);
    }
    b[KVPI_WIRE_AT_PARTS] = 0;
    b[KVPI_WIRE_AT_KIND] = 3;
    seal(b, p.n_bytes);
    refuse(&p.m, KVP_E_FORMAT, b, p.n_bytes);
    b[KVPI_WIRE_AT_KIND] = KVPI_WIRE_FULL_STATE;
    b[KVPI_WIRE_AT_VERSION] = KVPI_WIRE_VERSION + 1;
    seal(b, p.n_bytes);
    refuse(&p.m, KVP_E_VERSION, b, p.n_bytes);
    b[KVPI_WIRE_AT_VERSION] = KVPI_WIRE_VERSION;
    seal(b, p.n_bytes);
    assert_ok(kvp_wire_mirror_apply(p.m.mirror, b, p.n_bytes, NULL));
}

TEST(order_is_kept)
{
    static driver d;
    static driver older;
    (void)state;
    drive_begin(&d, 5);
    drive_begin(&older, 6);
    kvp_wire_sender_destroy(d.sender);
    d.config.epoch = 2;
    assert_ok(kvp_wire_sender_create(&d.config, d.w.cache, NULL, 0, &d.sender));
    watched m = watch(&d.config);
    kvp_wire_mirror_state at;
    drive_message(&older, 0);
    assert_ok(kvp_wire_mirror_apply(m.mirror, older.bytes, older.n_bytes, NULL));
    /* A new epoch begins with a full message; then the older one is over. */
    drive_change(&d);
    drive_message(&d, 0);
    uint8_t *first = copy_of(d.bytes, d.n_bytes);
    size_t n_first = d.n_bytes;
    drive_change(&d);
    drive_message(&d, 0);
    refuse(&m, KVP_E_STATE, d.bytes, d.n_bytes);
    assert_ok(kvp_wire_mirror_apply(m.mirror, first, n_first, NULL));
    for (uint32_t i = 0; i < 4; i++) {
        drive_change(&older);
        drive_message(&older, i % 2 == 1);
        refuse(&m, KVP_E_STATE, older.bytes, older.n_bytes);
    }
    assert_ok(kvp_wire_mirror_apply(m.mirror, d.bytes, d.n_bytes, NULL));
    refuse(&m, KVP_E_STATE, first, n_first); /* stale, though full */
    free(first);
    /* One is lost: what follows is refused until a full one comes. */
    for (uint32_t i = 0; i < 3; i++) {
        drive_change(&d);
        drive_message(&d, 0);
        if (i > 0)
            refuse(&m, KVP_E_STATE, d.bytes, d.n_bytes);
    }
    drive_message(&d, 1);
    assert_ok(kvp_wire_mirror_apply(m.mirror, d.bytes, d.n_bytes, NULL));
    assert_int_equal(drive_sum_mirror(m.mirror, &d.config), drive_sum_cache(&d));
    assert_ok(kvp_wire_mirror_info_get(m.mirror, &at));
    assert_int_equal(at.epoch, 2);
    assert_int_equal(at.number, 6);
    unwatch(&m);
    drive_end(&older);
    drive_end(&d);
}

TEST(late_join)
{
    static driver d;
    (void)state;
    drive_begin(&d, 7);
    watched early = watch(&d.config);
    for (uint32_t i = 0; i < 40; i++) {
        drive_change(&d);
        drive_message(&d, 0);
        assert_ok(kvp_wire_mirror_apply(early.mirror, d.bytes, d.n_bytes, NULL));
    }
    watched late = watch(&d.config);
    drive_change(&d);
    drive_message(&d, 0);
    assert_ok(kvp_wire_mirror_apply(early.mirror, d.bytes, d.n_bytes, NULL));
    refuse(&late, KVP_E_STATE, d.bytes, d.n_bytes);
    for (uint32_t i = 0; i < 40; i++) {
        drive_message(&d, i == 0);
        assert_ok(kvp_wire_mirror_apply(early.mirror, d.bytes, d.n_bytes, NULL));
        assert_ok(kvp_wire_mirror_apply(late.mirror, d.bytes, d.n_bytes, NULL));
        assert_int_equal(drive_sum_mirror(late.mirror, &d.config), drive_sum_cache(&d));
        assert_int_equal(drive_sum_mirror(early.mirror, &d.config), drive_sum_cache(&d));
        drive_change(&d);
    }
    unwatch(&early);
    unwatch(&late);
    drive_end(&d);
}

TEST(sizes_are_kept)
{
    scoped_pair p = make_pair(16);
    kvp_seq a = open_seq(&p.w, ints(0), 30, NULL);
    add(&p, 5, a);
    kvp_wire_step step = step_of(&p);
    assert_ok(encode(&p, &step));
    kvp_wire_config small = p.config;
    small.max_seqs = 5;
    watched few_seqs = watch(&small);
    refuse(&few_seqs, KVP_E_TOO_SMALL, p.bytes, p.n_bytes);
    small = p.config;
    small.max_row_blocks = 7;
    watched short_rows = watch(&small);
    refuse(&short_rows, KVP_E_TOO_SMALL, p.bytes, p.n_bytes);
    small = p.config;
    small.max_step_tokens = 29;
    watched few_tokens = watch(&small);
    refuse(&few_tokens, KVP_E_TOO_SMALL, p.bytes, p.n_bytes);
    small = p.config;
    small.n_blocks = 8;
    watched few_blocks = watch(&small);
    refuse(&few_blocks, KVP_E_TOO_SMALL, p.bytes, p.n_bytes);
    small = p.config;
    small.block_tokens = 8;
    watched other_blocks = watch(&small);
    refuse(&other_blocks, KVP_E_MISMATCH, p.bytes, p.n_bytes);
    unwatch(&few_seqs);
    unwatch(&short_rows);
    unwatch(&few_tokens);
    unwatch(&few_blocks);
    unwatch(&other_blocks);
    /* The sender keeps to its own. */
    kvp_wire_sender_destroy(p.sender);
    small = p.config;
    small.max_row_blocks = 7;
    assert_ok(kvp_wire_sender_create(&small, p.w.cache, NULL, 0, &p.sender));
    assert_status(KVP_E_TOO_SMALL, encode(&p, &step));
    kvp_wire_sender_destroy(p.sender);
    small = p.config;
    small.max_step_tokens = 29;
    assert_ok(kvp_wire_sender_create(&small, p.w.cache, NULL, 0, &p.sender));
    assert_status(KVP_E_TOO_SMALL, encode(&p, &step));
}

/* What a caller can get wrong; the sender goes on as if it had not been asked. */
TEST(bad_steps)
{
    scoped_pair p = make_pair(16);
    kvp_seq a = open_seq(&p.w, ints(0), 6, NULL);
    kvp_seq b = open_seq(&p.w, ints(9), 6, NULL);
    add(&p, 1, a);
    add(&p, 2, b);
    const kvp_wire_step good = step_of(&p);
    tell(&p, good, NULL);
    const uint64_t digest = kvp_wire_sender_digest(p.sender);
    const uint32_t nobody[] = {0};
    const uint32_t not_rising[][2] = {{1, 1}, {2, 1}};
    const kvp_copy copies[] = {{.src_block = 1, .dst_block = 99, .n_tokens = 1},
                               {.src_block = 1, .dst_block = 2, .n_tokens = 1, .phase = 1},
                               {.src_block = 1, .dst_block = 2, .n_tokens = 1}};
    kvp_wire_step bad = good;
    bad.struct_size = 1;
    assert_status(KVP_E_ARG, encode(&p, &bad));
    bad = good;
    bad.flags = 2;
    assert_status(KVP_E_ARG, encode(&p, &bad));
    bad = good;
    bad.closed = nobody;
    bad.n_closed = 1;
    assert_status(KVP_E_ARG, encode(&p, &bad));
    bad.n_closed = 2;
    for (int i = 0; i < 2; i++) {
        bad.closed = not_rising[i];
        assert_status(KVP_E_ARG, encode(&p, &bad));
    }
    bad = good;
    for (bad.n_copies = 1; bad.n_copies < 3; bad.n_copies++) {
        bad.copies = copies + bad.n_copies - 1; /* the last two are out of order */
        assert_status(KVP_E_ARG, encode(&p, &bad));
    }
    p.items[1].worker_id = 1;
    assert_status(KVP_E_ARG, encode(&p, &good));
    p.items[1].worker_id = p.config.max_seqs;
    assert_status(KVP_E_ARG, encode(&p, &good));
    p.items[1].worker_id = 2;
    p.items[1].seq = a; /* the id is b's */
    assert_status(KVP_E_ARG, encode(&p, &good));
    p.items[1].seq = b;
    p.items[1].status = 0;
    assert_status(KVP_E_ARG, encode(&p, &good));
    p.items[1].status = 256;
    assert_status(KVP_E_ARG, encode(&p, &good));
    p.items[1].status = 1;
    p.items[1].step_tokens = 7;
    assert_status(KVP_E_ARG, encode(&p, &good));
    p.items[1].step_tokens = 0;
    p.items[1].seq.bits = 0;
    assert_status(KVP_E_HANDLE, encode(&p, &good));
    p.items[1].seq = b;
    assert_status(KVP_E_ARG, kvp_wire_sender_encode(p.sender, &good, NULL, 1, &p.n_bytes));
    assert_status(KVP_E_ARG, kvp_wire_sender_encode(p.sender, &good, p.bytes, 9, NULL));
    assert_status(KVP_E_ARG, kvp_wire_sender_encode(NULL, &good, p.bytes, 9, &p.n_bytes));
    assert_int_equal(kvp_wire_sender_digest(p.sender), digest);
    tell(&p, good, NULL);
}

TEST(bad_creations)
{
    scoped_world w = small_world(8);
    kvp_wire_config config;
    kvp_wire_sender *sender = NULL;
    kvp_wire_mirror *mirror = NULL;
    size_t n_bytes;
    void *memory = aligned_alloc(64, 1 << 20);
    kvp_wire_config_init(NULL);
    kvp_wire_config_init(&config);
    assert_ok(kvp_wire_mirror_bytes(&config, &n_bytes));
    assert_status(KVP_E_ARG, kvp_wire_sender_create(&config, w.cache, NULL, 0, &sender)); /* S */
    assert_ok(kvp_wire_config_of(w.cache, &config));
    assert_ok(kvp_wire_mirror_bytes(&config, &n_bytes));
    assert_status(KVP_E_TOO_SMALL, kvp_wire_mirror_create(&config, memory, n_bytes - 1, &mirror));
    assert_ok(kvp_wire_mirror_create(&config, memory, n_bytes, &mirror));
    kvp_wire_mirror_destroy(mirror);
    n_bytes = 0;
    assert_ok(kvp_wire_sender_bytes(&config, &n_bytes));
    assert_status(KVP_E_TOO_SMALL,
                  kvp_wire_sender_create(&config, w.cache, memory, n_bytes - 1, &sender));
    assert_ok(kvp_wire_sender_create(&config, w.cache, memory, n_bytes, &sender));
    kvp_wire_sender_destroy(sender);
    sender = NULL;
    mirror = NULL;
    assert_status(KVP_E_TOO_SMALL, kvp_wire_sender_create(&config, w.cache, memory, 64, &sender));
    assert_status(KVP_E_TOO_SMALL, kvp_wire_mirror_create(&config, memory, 64, &mirror));
    assert_status(KVP_E_ARG,
                  kvp_wire_mirror_create(&config, (char *)memory + 8, (1 << 20) - 8, &mirror));
    assert_status(KVP_E_ARG, kvp_wire_sender_create(&config, NULL, NULL, 0, &sender));
    assert_status(KVP_E_ARG, kvp_wire_sender_create(NULL, w.cache, NULL, 0, &sender));
    assert_status(KVP_E_ARG, kvp_wire_mirror_create(&config, NULL, 0, NULL));
    config.n_blocks--;
    assert_status(KVP_E_ARG, kvp_wire_sender_create(&config, w.cache, NULL, 0, &sender));
    config.n_blocks++;
    config.epoch = 0;
    assert_status(KVP_E_ARG, kvp_wire_sender_bytes(&config, &n_bytes));
    config.epoch = 1;
    config.max_seqs = KVP_WIRE_MAX_SEQS + 1;
    assert_status(KVP_E_ARG, kvp_wire_mirror_bytes(&config, &n_bytes));
    config.struct_size = 0;
    assert_status(KVP_E_ARG, kvp_wire_mirror_bytes(&config, &n_bytes));
    assert_null(sender);
    assert_null(mirror);
    assert_status(KVP_E_ARG, kvp_wire_mirror_apply(NULL, memory, 1, NULL));
    assert_status(KVP_E_ARG, kvp_wire_peek(NULL, 40, NULL));
    kvp_wire_sender_destroy(NULL);
    kvp_wire_mirror_destroy(NULL);
    free(memory);
}

/* A single token that the engine has, from 0 on; and nothing is told twice. */
TEST(one_token_of_the_engines)
{
    scoped_pair p = make_pair(8);
    kvp_wire_news news;
    static const int32_t zero = 0, none = -1;
    add(&p, 3, open_seq(&p.w, ints(5), 1, NULL));
    p.items[0].tokens = &none;
    const kvp_wire_step step = step_of(&p);
    assert_status(KVP_E_ARG, encode(&p, &step));
    p.items[0].tokens = &zero;
    tell(&p, step, &news);
    assert_fields(news.items[0], n_values, 1, from, 0);
    assert_int_equal(news.items[0].values[0], 0);
    assert_fields(seq_of(&p.m, 3), last_token, 0, known_tokens, 1);
    for (uint32_t n = 0; n < 2; n++) { /* computed or not */
        assert_ok(kvp_seq_commit(p.w.cache, p.items[0].seq, n));
        tell(&p, step, &news);
        tell(&p, step, &news);
        assert_int_equal(news.items[0].n_values, 0);
    }
}

TEST_MAIN(NULL, NULL)
