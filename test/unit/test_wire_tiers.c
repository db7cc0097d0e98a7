/* Worker messages and the host tier: copies name blocks of both tiers, and a sequence that was
 * swapped out comes back with a new row. */
#include "tiers.h"
#include "wire_pair.h"

static void begin_with(struct pair *p, uint32_t steps)
{
    kvp_config config = config_of(4, 4, 7);
    config.steps = steps;
    config.host_blocks = 32; /* more than the device has */
    config.keep_evicted = 0;
    begin_as(p, &config);
    assert_int_equal(p->config.host_blocks, 32);
}

static void begin(struct pair *p)
{
    begin_with(p, KVP_STEPS_ORDERED);
}

static kvp_wire_step step_with(const kvp_wire_item *items, uint32_t n_items, const kvp_copy *copies,
                               uint32_t n_copies)
{
    return (kvp_wire_step){.struct_size = sizeof(kvp_wire_step),
                           .n_items = n_items,
                           .items = items,
                           .n_copies = n_copies,
                           .copies = copies};
}

TEST(test_a_swap_crosses_and_comes_back_with_a_new_row)
{
    scoped_pair p;
    kvp_copy copies[8];
    kvp_wire_news news;
    kvp_wire_seq seen;
    begin(&p);
    const kvp_seq seq = open_done(&p.w, ints(0), 10);
    const kvp_wire_item item = {.seq = seq, .worker_id = 3, .status = 1};
    kvp_wire_step step = step_with(&item, 1, NULL, 0);
    assert_ok(encode(&p, &step));
    assert_ok(kvp_wire_mirror_apply(p.mirror, p.bytes, p.n_bytes, &news));

    assert_ok(kvp_seq_swap_out(p.w.cache, &seq, 1, NULL));
    assert_status(KVP_E_STATE, encode(&p, &step)); /* not named while it is out */
    step = step_with(NULL, 0, copies, take_plan(&p.w, copies, 8));
    assert_int_equal(step.n_copies, 3);
    assert_ok(encode(&p, &step));
    assert_ok(kvp_wire_mirror_apply(p.mirror, p.bytes, p.n_bytes, &news));
    assert_int_equal(news.n_copies, 3);
    assert_memory_equal(news.copies, copies, 3 * sizeof *copies);
    assert_int_equal(news.copies[2].dst_tier, KVP_HOST);
    assert_int_equal(news.copies[2].n_tokens, 2);

    leave_cached(&p.w, ints(100), 28); /* takes every device block */
    assert_ok(kvp_seq_swap_in(p.w.cache, &seq, 1, 2, NULL));
    step = step_with(&item, 1, copies, take_plan(&p.w, copies, 8));
    assert_ok(encode(&p, &step));
    assert_ok(kvp_wire_mirror_apply(p.mirror, p.bytes, p.n_bytes, &news));
    assert_int_equal(news.copies[0].src_tier, KVP_HOST);
    assert_ok(kvp_wire_mirror_seq(p.mirror, 3, &seen));
    assert_int_equal(seen.n_blocks, 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(seen.row[i], row_entry(&p.w, seq, i));
    assert_int_equal(kvp_wire_mirror_digest(p.mirror), kvp_wire_sender_digest(p.sender));
}

TEST(test_a_block_must_be_one_of_its_tier)
{
    scoped_pair p;
    begin(&p);
    kvp_copy copy = {.src_block = 7, .dst_block = 31, .dst_tier = KVP_HOST, .n_tokens = 4};
    kvp_wire_step step = step_with(NULL, 0, &copy, 1);
    assert_ok(encode(&p, &step));
    assert_ok(kvp_wire_mirror_apply(p.mirror, p.bytes, p.n_bytes, NULL));
    assert_ok(encode(&p, &step)); /* for a mirror that is too small, below */
    kvp_copy wrong = copy;
    step.copies = &wrong;
    uint8_t before[ROOM];
    memcpy(before, p.bytes, ROOM);
    wrong.dst_block = 32;
    assert_status(KVP_E_ARG, encode(&p, &step));
    wrong = copy;
    wrong.src_block = 8;
    assert_status(KVP_E_ARG, encode(&p, &step));
    wrong = copy;
    wrong.src_block = KVP_NULL_BLOCK;
    assert_status(KVP_E_ARG, encode(&p, &step));
    wrong = copy;
    wrong.dst_block = KVP_NULL_BLOCK;
    assert_status(KVP_E_ARG, encode(&p, &step));
    wrong = copy;
    wrong.dst_tier = 2;
    assert_status(KVP_E_ARG, encode(&p, &step));
    memcpy(p.bytes, before, ROOM);

    kvp_wire_config small = p.config;
    small.host_blocks = 31;
    kvp_wire_mirror *mirror;
    kvp_wire_sender *sender;
    assert_status(KVP_E_ARG, kvp_wire_sender_create(&small, p.w.cache, NULL, 0, &sender));
    assert_ok(kvp_wire_mirror_create(&small, NULL, 0, &mirror));
    step.flags = KVP_WIRE_FULL;
    wrong = copy;
    assert_ok(encode(&p, &step));
    assert_status(KVP_E_TOO_SMALL, kvp_wire_mirror_apply(mirror, p.bytes, p.n_bytes, NULL));
    wrong.dst_block = 30;
    assert_ok(encode(&p, &step));
    assert_ok(kvp_wire_mirror_apply(mirror, p.bytes, p.n_bytes, NULL));
    kvp_wire_mirror_destroy(mirror);
}

/* The worker has what has taken effect, and the row as it is. */
static void tell_whole(struct pair *p, kvp_seq seq, uint32_t n_tokens, uint32_t computed)
{
    kvp_wire_seq seen;
    const kvp_wire_item item = {.seq = seq, .worker_id = 3, .status = 1, .step_tokens = 1};
    const kvp_wire_step step = step_with(&item, 1, NULL, 0);
    assert_ok(encode(p, &step));
    assert_ok(kvp_wire_mirror_apply(p->mirror, p->bytes, p->n_bytes, NULL));
    assert_int_equal(kvp_wire_mirror_digest(p->mirror), kvp_wire_sender_digest(p->sender));
    assert_ok(kvp_wire_mirror_seq(p->mirror, 3, &seen));
    assert_fields(seen, n_tokens, n_tokens, computed_tokens, computed, n_blocks,
                  info_of(&p->w, seq).n_blocks);
    for (uint32_t i = 0; i < seen.n_blocks; i++)
        assert_int_equal(seen.row[i], row_entry(&p->w, seq, i));
}

TEST(test_steps_that_are_out)
{
    scoped_pair p;
    begin_with(&p, KVP_STEPS_OVERLAPPED);
    const kvp_seq seq = open_seq(&p.w, ints(0), 8, NULL);
    tell_whole(&p, seq, 8, 0);
    const uint64_t first = begin_step(&p.w);
    commit_at(&p.w, first, seq, 8);
    assert_ok(kvp_seq_extend(p.w.cache, seq, ints(8), 1, 0));
    tell_whole(&p, seq, 9, 0); /* of a step that begins while the first is out */
    const uint64_t second = begin_step(&p.w);
    commit_at(&p.w, second, seq, 9);
    done_step(&p.w, first);
    tell_whole(&p, seq, 9, 8);
    assert_ok(kvp_step_failed(p.w.cache, second, NULL, 0, NULL));
    tell_whole(&p, seq, 9, 8);
    assert_ok(kvp_seq_truncate(p.w.cache, seq, 3, NULL));
    tell_whole(&p, seq, 3, 3);
    close_seq(&p.w, seq);
}

TEST_MAIN(NULL, NULL)
