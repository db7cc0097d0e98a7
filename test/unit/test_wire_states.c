/* Worker messages of caches with recurrent state: the slots that a step reads and writes, copies of
 * states, and a worker that computes from messages alone. */
#include "wire_drive.h"
#include "wire_pair.h"

#include <kvpager/states.h>

#include <stdlib.h>
#include <string.h>

enum { STEPS = 3000, SLOTS = 8, HOST_SLOTS = 16 };

static void begin(struct pair *p)
{
    kvp_config config = config_of(4, 4, 40);
    config.state_slots = SLOTS;
    config.host_blocks = 41;
    config.host_state_slots = HOST_SLOTS;
    begin_as(p, &config);
    p->item.step_tokens = 1;
}

static kvp_status encode_copies(struct pair *p, const kvp_copy *copies, uint32_t n_copies)
{
    kvp_wire_step step = step_of(p);
    step.n_items = p->item.seq.bits != 0;
    step.copies = copies;
    step.n_copies = n_copies;
    return encode(p, &step);
}

/* Tells the worker, which must know what kvp_meta_state_rings gives. Gives the body's length. */
static size_t tell_length(struct pair *p)
{
    kvp_wire_seq seq;
    uint32_t n;
    int32_t read, writes[KVP_STATE_RING_MAX];
    assert_ok(encode_copies(p, NULL, 0));
    assert_ok(kvp_wire_mirror_apply(p->mirror, p->bytes, p->n_bytes, NULL));
    assert_int_equal(kvp_wire_mirror_digest(p->mirror), kvp_wire_sender_digest(p->sender));
    assert_ok(kvp_wire_mirror_seq(p->mirror, 3, &seq));
    assert_ok(
        kvp_meta_state_rings(p->w.cache, &p->item.seq, 1, KVP_STATE_RING_MAX, &read, &n, writes));
    assert_int_equal(seq.read_slot, read);
    assert_int_equal(seq.n_write_slots, n);
    assert_memory_equal(seq.write_slots, writes, n * sizeof *writes);
    assert_int_equal(seq.write_slot, writes[n - 1]);
    return p->n_bytes - KVP_WIRE_HEAD_BYTES;
}

static void assert_told(const struct pair *p, uint32_t read, uint32_t write)
{
    kvp_wire_seq seq;
    assert_ok(kvp_wire_mirror_seq(p->mirror, 3, &seq));
    assert_int_equal(seq.read_slot, read);
    assert_int_equal(seq.write_slot, write);
}

static void add_token(const struct pair *p, uint32_t n)
{
    assert_ok(kvp_seq_extend(p->w.cache, p->item.seq, ints(9), 1, 0));
    assert_ok(kvp_seq_commit(p->w.cache, p->item.seq, n));
}

/* ------------------------------------------------------------------------------ what is said */

TEST(test_slots_are_told_when_they_change)
{
    scoped_pair p;
    uint32_t outcome;
    begin(&p);
    p.item.seq = open_seq(&p.w, ints(0), 8, NULL);
    tell_length(&p);
    assert_told(&p, 0, 1);
    assert_ok(kvp_seq_commit(p.w.cache, p.item.seq, 8));
    tell_length(&p);
    assert_told(&p, 1, 1);
    /* A decoding token: nothing closed, no copies, one item, its run, the token; and a block. */
    add_token(&p, 9);
    assert_int_equal(tell_length(&p), 3 + 3 + 1);
    add_token(&p, 10);
    assert_int_equal(tell_length(&p), 3 + 3);
    /* The checkpoint is read, and another slot written; then that one. */
    add_token(&p, 11);
    add_token(&p, 12);
    tell_length(&p);
    assert_ok(kvp_seq_checkpoint(p.w.cache, p.item.seq, &outcome));
    assert_int_equal(outcome, KVP_CHECKPOINT_MADE);
    /* A change of nothing else: an item, its bits, the second ones, two slots. */
    assert_int_equal(tell_length(&p), 3 + 1 + 1 + 1 + 2);
    assert_told(&p, 1, 2);
    add_token(&p, 13);
    tell_length(&p);
    assert_told(&p, 2, 2);
}

TEST(test_a_new_sequence_reads_what_it_hit)
{
    scoped_pair p;
    begin(&p);
    p.item.seq = open_done(&p.w, ints(0), 8);
    assert_ok(kvp_seq_checkpoint(p.w.cache, p.item.seq, NULL));
    tell_length(&p);
    close_seq(&p.w, p.item.seq);
    const uint32_t closed[] = {3};
    p.item.seq = open_seq(&p.w, ints(0), 12, NULL);
    const kvp_wire_step step = {.struct_size = sizeof step,
                                .n_items = 1,
                                .items = &p.item,
                                .closed = closed,
                                .n_closed = 1};
    assert_ok(kvp_wire_sender_encode(p.sender, &step, p.bytes, ROOM, &p.n_bytes));
    assert_ok(kvp_wire_mirror_apply(p.mirror, p.bytes, p.n_bytes, NULL));
    int32_t slots[2];
    assert_ok(kvp_meta_states(p.w.cache, &p.item.seq, 1, &slots[0], &slots[1]));
    assert_true(slots[0] == 1 && slots[1] != 1);
    assert_told(&p, 1, (uint32_t)slots[1]);
}

static kvp_status add_ring(const world *w, kvp_seq seq, const int32_t *tokens, uint32_t n)
{
    const kvp_batch batch = {.struct_size = sizeof(batch),
                             .n_seqs = 1,
                             .flags = KVP_BATCH_RING,
                             .seqs = &seq,
                             .n_tokens = &n,
                             .tokens = tokens};
    return kvp_seq_extend_many(w->cache, &batch);
}

TEST(test_rings_are_told)
{
    scoped_pair p;
    kvp_wire_seq seq;
    begin(&p);
    p.item.seq = open_done(&p.w, ints(0), 8);
    tell_length(&p);
    assert_told(&p, 1, 1);
    assert_ok(kvp_wire_mirror_seq(p.mirror, 3, &seq));
    assert_int_equal(seq.n_write_slots, 1);
    /* An item, its bits, tokens, step, three values, a block; the second bits, two slots, and three
     * more: what an item without a ring has, and one more byte for each. */
    assert_ok(add_ring(&p.w, p.item.seq, ints(8), 3));
    p.item.step_tokens = 3;
    assert_int_equal(tell_length(&p), 3 + 1 + 1 + 1 + 1 + (2 + 3) + 4 + 1 + 2 + (1 + 2));
    assert_ok(kvp_wire_mirror_seq(p.mirror, 3, &seq));
    assert_memory_equal(seq.write_slots, ((int32_t[]){2, 3, 1}), 3 * sizeof(int32_t));
    /* Nothing has changed; then the whole state anew. */
    assert_int_equal(tell_length(&p), 3 + 1 + 1);
    const kvp_wire_step full = {
        .struct_size = sizeof full, .flags = KVP_WIRE_FULL, .n_items = 1, .items = &p.item};
    assert_ok(kvp_wire_sender_encode(p.sender, &full, p.bytes, ROOM, &p.n_bytes));
    assert_ok(kvp_wire_mirror_apply(p.mirror, p.bytes, p.n_bytes, NULL));
    assert_int_equal(kvp_wire_mirror_digest(p.mirror), kvp_wire_sender_digest(p.sender));
    assert_ok(kvp_wire_mirror_seq(p.mirror, 3, &seq));
    assert_memory_equal(seq.write_slots, ((int32_t[]){2, 3, 1}), 3 * sizeof(int32_t));
    /* Two of the three are accepted. The slot of the second one is read, and written, too. */
    assert_ok(kvp_seq_commit(p.w.cache, p.item.seq, 10));
    assert_ok(kvp_seq_truncate(p.w.cache, p.item.seq, 10, NULL));
    assert_ok(kvp_seq_extend(p.w.cache, p.item.seq, ints(99), 1, 0));
    p.item.step_tokens = 1;
    tell_length(&p);
    assert_told(&p, 3, 3);
}

/* Nothing else tells: a ring goes, and one with other slots comes. */
TEST(test_another_ring_is_told)
{
    scoped_pair p;
    begin(&p);
    p.item.seq = open_done(&p.w, ints(0), 8);
    assert_ok(add_ring(&p.w, p.item.seq, ints(8), 3));
    tell_length(&p);
    assert_ok(kvp_seq_truncate(p.w.cache, p.item.seq, 8, NULL));
    open_done(&p.w, ints(100), 3); /* takes a slot that the ring had */
    assert_ok(add_ring(&p.w, p.item.seq, ints(8), 3));
    tell_length(&p);
}

TEST(test_who_computes_needs_slots)
{
    scoped_pair p;
    begin(&p);
    p.item.seq = open_done(&p.w, ints(0), 8);
    const kvp_seq child = fork_seq(&p.w, p.item.seq, KVP_END);
    assert_status(KVP_E_STATE, encode_copies(&p, NULL, 0)); /* its slot is shared: extend first */
    p.item.step_tokens = 0;
    assert_ok(encode_copies(&p, NULL, 0));
    assert_ok(kvp_wire_mirror_apply(p.mirror, p.bytes, p.n_bytes, NULL));
    assert_told(&p, 1, 0);
    p.item.step_tokens = 1;
    assert_ok(kvp_seq_extend(p.w.cache, p.item.seq, ints(9), 1, 0));
    tell_length(&p);
    assert_told(&p, 1, 2);
    /* Lost. */
    assert_ok(kvp_seq_invalidate(p.w.cache, p.item.seq, 6, NULL, 0, NULL));
    assert_status(KVP_E_DROPPED, encode_copies(&p, NULL, 0));
    p.item.step_tokens = 0;
    assert_ok(encode_copies(&p, NULL, 0));
    assert_ok(kvp_wire_mirror_apply(p.mirror, p.bytes, p.n_bytes, NULL));
    assert_told(&p, 0, 0);
    close_seq(&p.w, child);
}

/* ------------------------------------------------------------------------------------- copies */

static kvp_copy copy_of(uint32_t src_tier, int32_t src, uint32_t dst_tier, int32_t dst)
{
    return (kvp_copy){.group = 1,
                      .src_tier = (uint8_t)src_tier,
                      .dst_tier = (uint8_t)dst_tier,
                      .src_block = src,
                      .dst_block = dst,
                      .n_tokens = 1};
}

/* A message with the copy, which a mirror of `config` takes or refuses. */
static kvp_status take_copy(struct pair *p, const kvp_wire_config *config, const kvp_copy *copy)
{
    kvp_wire_mirror *mirror;
    kvp_wire_sender *sender;
    kvp_wire_news news;
    const kvp_wire_step step = {.struct_size = sizeof step, .copies = copy, .n_copies = 1};
    assert_ok(kvp_wire_sender_create(&p->config, p->w.cache, NULL, 0, &sender));
    assert_ok(kvp_wire_mirror_create(config, NULL, 0, &mirror));
    assert_ok(kvp_wire_sender_encode(sender, &step, p->bytes, ROOM, &p->n_bytes));
    const kvp_status status = kvp_wire_mirror_apply(mirror, p->bytes, p->n_bytes, &news);
    if (status == KVP_OK)
        assert_memory_equal(news.copies, copy, sizeof *copy);
    kvp_wire_mirror_destroy(mirror);
    kvp_wire_sender_destroy(sender);
    return status;
}

TEST(test_copies_of_states_name_slots)
{
    scoped_pair p;
    begin(&p);
    kvp_copy copy = copy_of(KVP_DEVICE, SLOTS - 1, KVP_HOST, HOST_SLOTS - 1);
    assert_ok(take_copy(&p, &p.config, &copy));
    kvp_wire_config small = p.config;
    small.state_slots = SLOTS - 1;
    assert_status(KVP_E_TOO_SMALL, take_copy(&p, &small, &copy));
    small = p.config;
    small.host_state_slots = HOST_SLOTS - 1;
    assert_status(KVP_E_TOO_SMALL, take_copy(&p, &small, &copy));
    /* The device has more blocks than slots, and so has the host. */
    copy = copy_of(KVP_DEVICE, SLOTS, KVP_HOST, 1);
    assert_status(KVP_E_ARG, encode_copies(&p, &copy, 1));
    copy = copy_of(KVP_HOST, HOST_SLOTS, KVP_DEVICE, 1);
    assert_status(KVP_E_ARG, encode_copies(&p, &copy, 1));
    copy = copy_of(KVP_DEVICE, 1, KVP_HOST, 1);
    copy.n_tokens = 2; /* a state is one */
    assert_status(KVP_E_ARG, encode_copies(&p, &copy, 1));
    copy.n_tokens = 1;
    copy.group = 2; /* there are groups 0 and 1, which is the states' */
    assert_status(KVP_E_ARG, encode_copies(&p, &copy, 1));
}

TEST(test_a_swap_brings_the_state_along)
{
    scoped_pair p;
    kvp_copy copies[8];
    kvp_wire_news news;
    begin(&p);
    p.item.seq = open_done(&p.w, ints(0), 6);
    tell_length(&p);
    const kvp_seq seq = p.item.seq;
    assert_ok(kvp_seq_swap_out(p.w.cache, &seq, 1, NULL));
    assert_status(KVP_E_STATE, encode_copies(&p, NULL, 0)); /* not named while it is out */
    p.item.seq.bits = 0;
    uint32_t n = take_plan(&p.w, copies, 8);
    assert_int_equal(n, 3); /* two blocks, and the state */
    assert_ok(encode_copies(&p, copies, n));
    assert_ok(kvp_wire_mirror_apply(p.mirror, p.bytes, p.n_bytes, &news));
    assert_int_equal(news.n_copies, n);
    assert_memory_equal(news.copies, copies, n * sizeof *copies);
    assert_int_equal(copies[2].group, 1);
    assert_int_equal(copies[2].dst_tier, KVP_HOST);
    /* Another sequence has its slot meanwhile. */
    open_done(&p.w, ints(100), 6);
    assert_ok(kvp_seq_swap_in(p.w.cache, &seq, 1, 1, NULL));
    n = take_plan(&p.w, copies, 8);
    p.item.seq = seq;
    assert_ok(encode_copies(&p, copies, n));
    assert_ok(kvp_wire_mirror_apply(p.mirror, p.bytes, p.n_bytes, &news));
    assert_memory_equal(news.copies, copies, n * sizeof *copies);
    assert_told(&p, 2, 2);
}

TEST(test_sizes_are_the_caches)
{
    scoped_pair p;
    kvp_wire_sender *sender;
    begin(&p);
    assert_int_equal(p.config.state_slots, SLOTS);
    assert_int_equal(p.config.host_state_slots, HOST_SLOTS);
    kvp_wire_config config = p.config;
    config.state_slots = SLOTS - 1;
    assert_status(KVP_E_ARG, kvp_wire_sender_create(&config, p.w.cache, NULL, 0, &sender));
    config.state_slots = 0;
    assert_status(KVP_E_ARG, kvp_wire_sender_create(&config, p.w.cache, NULL, 0, &sender));
    config = p.config;
    config.host_state_slots = HOST_SLOTS - 1;
    assert_status(KVP_E_ARG, kvp_wire_sender_create(&config, p.w.cache, NULL, 0, &sender));
    config = p.config;
    config.state_slots++;
    config.host_state_slots++;
    assert_ok(kvp_wire_sender_create(&config, p.w.cache, NULL, 0, &sender));
    kvp_wire_sender_destroy(sender);
    /* Mirrors of such sizes would ask for slots that a cache without states does not have. */
    world plain = small_world(8);
    assert_ok(kvp_wire_config_of(plain.cache, &config));
    assert_int_equal(config.state_slots, 0);
    config.state_slots = 2;
    assert_status(KVP_E_ARG, kvp_wire_sender_create(&config, plain.cache, NULL, 0, &sender));
    end_world(&plain);
    /* A mirror without slots takes no message with some. */
    kvp_wire_mirror *mirror;
    config = p.config;
    config.state_slots = 0;
    assert_ok(kvp_wire_mirror_create(&config, NULL, 0, &mirror));
    p.item.seq = open_seq(&p.w, ints(0), 8, NULL);
    tell_length(&p);
    assert_status(KVP_E_TOO_SMALL, kvp_wire_mirror_apply(mirror, p.bytes, p.n_bytes, NULL));
    kvp_wire_mirror_destroy(mirror);
}

/* ------------------------------------------------------------------------------------- random */

TEST(test_the_mirror_is_the_cache_after_each_message)
{
    static driver d;
    (void)state;
    drive_begin_states(&d, 1);
    kvp_wire_mirror *mirror;
    assert_ok(kvp_wire_mirror_create(&d.config, NULL, 0, &mirror));
    uint32_t n_states = 0;
    for (uint32_t i = 0; i < STEPS; i++) {
        kvp_wire_news news;
        drive_tell(&d, mirror, &news);
        assert_int_equal(news.n_copies, d.n_copies);
        assert_memory_equal(news.copies, d.copies, d.n_copies * sizeof *d.copies);
        for (uint32_t k = 0; k < d.n_copies; k++)
            n_states += d.copies[k].group == d.config.n_groups;
    }
    for (uint32_t kind = 0; kind < DRIVE_ALL; kind++)
        assert_true(d.n_changes[kind] > 20 || kind == 6 ||
                    (kind >= DRIVE_PLAIN && kind < DRIVE_KINDS));
    assert_true(n_states > 100);
    kvp_wire_mirror_destroy(mirror);
    drive_end(&d);
}

/* -------------------------------------------------------------------- a worker that computes */

enum { JOBS = 6, JOB_TOKENS = 64, JOB_SLOTS = 28, RANKS = 2 };

/* What a worker has: its states, and the tokens that it was told. A state is the sum of all tokens
 * up to its place. Everything comes from messages. */
struct computer {
    kvp_wire_mirror *mirror;
    uint64_t slots[RANKS][JOB_SLOTS]; /* of the device, and of the host */
    int32_t tokens[JOBS][JOB_TOKENS];
};

struct job {
    kvp_seq seq;
    kvp_seq told; /* that the worker knows by this id */
    int is_open, is_swapped;
    uint32_t step;
    int has_ring; /* the step verifies a chain */
};

static uint64_t add_up(uint64_t state, const int32_t *tokens, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        state = (state ^ (uint64_t)(uint32_t)tokens[i]) * UINT64_C(0x9e3779b97f4a7c15) + 1;
    return state;
}

/* Runs the plan, then the step of each item; the state that it begins with must be that of all
 * tokens before. */
static void compute(struct computer *c, const uint8_t *bytes, size_t n_bytes, uint32_t n_groups)
{
    kvp_wire_news news;
    assert_ok(kvp_wire_mirror_apply(c->mirror, bytes, n_bytes, &news));
    for (uint32_t i = 0; i < news.n_copies; i++) {
        const kvp_copy *copy = &news.copies[i];
        if (copy->group == n_groups)
            c->slots[copy->dst_tier][copy->dst_block] = c->slots[copy->src_tier][copy->src_block];
    }
    for (uint32_t i = 0; i < news.n_items; i++) {
        const kvp_wire_news_item *item = &news.items[i];
        int32_t *tokens = c->tokens[item->worker_id];
        kvp_wire_seq seq;
        assert_ok(kvp_wire_mirror_seq(c->mirror, item->worker_id, &seq));
        if (item->n_values > 0)
            memcpy(tokens + item->from, item->values, item->n_values * sizeof *tokens);
        if (seq.step_tokens == 0)
            continue;
        const uint64_t before = seq.read_slot == 0 ? 0 : c->slots[KVP_DEVICE][seq.read_slot];
        assert_true(before == add_up(0, tokens, seq.computed_tokens));
        /* Each slot of a ring has one token more, and the last one all of the step. */
        for (uint32_t k = 0; k < seq.n_write_slots; k++) {
            const uint32_t n = k + 1 < seq.n_write_slots ? k + 1 : seq.step_tokens;
            c->slots[KVP_DEVICE][seq.write_slots[k]] =
                add_up(before, tokens + seq.computed_tokens, n);
        }
    }
}

static void open_job(const world *w, uint64_t *random, struct job *job)
{
    int32_t tokens[JOB_TOKENS];
    const uint32_t n = 1 + draw(random, 40), stream = draw(random, 3);
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (int32_t)(1000 * stream + i);
    kvp_prompt prompt = prompt_of(tokens, n);
    job->is_open = kvp_seq_open(w->cache, w->ns, &prompt, &job->seq, NULL) == KVP_OK;
}

static void close_job(const world *w, struct job *job)
{
    assert_ok(kvp_seq_close(w->cache, job->seq, NULL));
    job->is_open = job->is_swapped = 0;
}

/* Make room for a token more once all are computed, and take a slot to write. */
static void grow_job(const world *w, uint64_t *random, struct job *job)
{
    const kvp_seq_info info = info_of(w, job->seq);
    const int32_t token = (int32_t)draw(random, 3);
    const uint32_t n = info.computed_tokens == info.n_tokens;
    const uint32_t n_drafts = n > 0 && draw(random, 3) == 0 ? 2 + draw(random, 5) : 0;
    int32_t drafts[8];
    job->step = 0;
    job->has_ring = 0;
    for (uint32_t i = 0; i < n_drafts; i++)
        drafts[i] = (int32_t)draw(random, 3);
    if (info.n_tokens + n_drafts < JOB_TOKENS && n_drafts > 0) {
        job->has_ring = add_ring(w, job->seq, drafts, n_drafts) == KVP_OK;
        job->step = job->has_ring ? n_drafts : 0;
    } else if (info.n_tokens + n > JOB_TOKENS) {
        close_job(w, job);
    } else if (kvp_seq_extend(w->cache, job->seq, &token, n, 0) == KVP_OK) {
        job->step = 1 + draw(random, info.n_tokens + n - info.computed_tokens);
    }
}

static void change_job(const world *w, uint64_t *random, struct job *jobs, uint32_t id)
{
    struct job *job = &jobs[id];
    struct job *other = &jobs[draw(random, JOBS)];
    const uint32_t what = draw(random, 12);
    if (!job->is_open && other->is_open && !other->is_swapped && what < 6) {
        job->is_open = kvp_seq_fork(w->cache, other->seq, info_of(w, other->seq).computed_tokens, 0,
                                    &job->seq) == KVP_OK;
    } else if (!job->is_open) {
        open_job(w, random, job);
    } else if (job->is_swapped) {
        job->is_swapped = kvp_seq_swap_in(w->cache, &job->seq, 1, 0, NULL) != KVP_OK;
    } else if (what == 0) {
        close_job(w, job);
    } else if (what == 1) {
        job->is_swapped = kvp_seq_swap_out(w->cache, &job->seq, 1, NULL) == KVP_OK;
    } else if (what == 2) { /* back to a checkpoint, if there is one */
        (void)kvp_seq_truncate(w->cache, job->seq, 4 * draw(random, 8), NULL);
    } else if (what < 8) {
        (void)kvp_seq_checkpoint(w->cache, job->seq, NULL);
    }
}

/* Gives how many items compute. */
static uint32_t tell_jobs(world *w, kvp_wire_sender *sender, struct job *jobs, struct computer *c)
{
    static uint8_t bytes[DRIVE_BYTES];
    kvp_wire_item items[JOBS];
    uint32_t closed[JOBS];
    kvp_copy copies[DRIVE_COPIES];
    uint32_t n_computing = 0;
    size_t n_bytes;
    kvp_wire_step step = {
        .struct_size = sizeof step, .items = items, .closed = closed, .copies = copies};
    for (uint32_t id = 0; id < JOBS; id++) {
        struct job *job = &jobs[id];
        const int named = job->is_open && !job->is_swapped;
        if (job->told.bits != 0 && (!named || job->told.bits != job->seq.bits))
            closed[step.n_closed++] = id;
        job->told.bits = named ? job->seq.bits : 0;
        if (!named)
            continue;
        items[step.n_items++] = (kvp_wire_item){
            .seq = job->seq, .worker_id = id, .status = 1, .step_tokens = job->step};
        n_computing += job->step > 0;
    }
    step.n_copies = take_plan(w, copies, DRIVE_COPIES);
    assert_ok(kvp_wire_sender_encode(sender, &step, bytes, sizeof bytes, &n_bytes));
    compute(c, bytes, n_bytes, 1);
    return n_computing;
}

/* The step is over: of a chain, some are accepted. Gives whether it was one that was cut. */
static int commit_job(const world *w, uint64_t *random, const struct job *job)
{
    const uint32_t n = job->has_ring ? 1 + draw(random, job->step) : job->step;
    const uint32_t end = info_of(w, job->seq).computed_tokens + n;
    assert_ok(kvp_seq_commit(w->cache, job->seq, end));
    if (job->has_ring)
        assert_ok(kvp_seq_truncate(w->cache, job->seq, end, NULL));
    return n < job->step;
}

TEST(test_a_worker_computes_from_messages_alone)
{
    static struct computer c;
    struct job jobs[JOBS] = {0};
    kvp_config config = config_of(4, 4, 60);
    kvp_wire_config wire;
    kvp_wire_sender *sender;
    kvp_state_stats stats;
    uint64_t random = 11;
    uint32_t n_steps = 0, n_cut = 0;
    config.state_slots = JOB_SLOTS;
    config.host_blocks = 60;
    config.host_state_slots = JOB_SLOTS;
    config.max_copies = DRIVE_COPIES;
    scoped_world w = make_world(&config);
    assert_ok(kvp_wire_config_of(w.cache, &wire));
    assert_ok(kvp_wire_sender_create(&wire, w.cache, NULL, 0, &sender));
    assert_ok(kvp_wire_mirror_create(&wire, NULL, 0, &c.mirror));
    for (uint32_t i = 0; i < STEPS; i++) {
        for (uint32_t id = 0; id < JOBS; id++)
            jobs[id].step = 0;
        change_job(&w, &random, jobs, draw(&random, JOBS));
        for (uint32_t id = 0; id < JOBS; id++)
            if (jobs[id].is_open && !jobs[id].is_swapped)
                grow_job(&w, &random, &jobs[id]);
        n_steps += tell_jobs(&w, sender, jobs, &c);
        for (uint32_t id = 0; id < JOBS; id++)
            if (jobs[id].step > 0)
                n_cut += (uint32_t)commit_job(&w, &random, &jobs[id]);
    }
    assert_ok(kvp_cache_state_stats_get(w.cache, &stats));
    assert_true(n_steps > STEPS && stats.hits > 50 && stats.made > 100 && stats.evicted > 50);
    assert_true(n_cut > 500);
    kvp_wire_mirror_destroy(c.mirror);
    kvp_wire_sender_destroy(sender);
}

TEST_MAIN(NULL, NULL)
