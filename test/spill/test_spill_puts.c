/* Scenes of a spill's puts: what a record waits for before the store may read it. */
#include "liar.h"
#include "scenes.h"

enum { RECORD = 8, S = 4 };

static uint32_t refused_put; /* the n-th from now on; 0: none */

kvp_status __real_kvp_store_put(kvp_store *store, const kvp_identity *identity, void *const *blocks,
                                uint64_t tag);
kvp_status __wrap_kvp_store_put(kvp_store *store, const kvp_identity *identity, void *const *blocks,
                                uint64_t tag);
kvp_status __wrap_kvp_store_put(kvp_store *store, const kvp_identity *identity, void *const *blocks,
                                uint64_t tag)
{
    return refused_put > 0 && --refused_put == 0
               ? KVP_E_NO_MEMORY
               : __real_kvp_store_put(store, identity, blocks, tag);
}

/* Some of a sequence's blocks are copied to the host before the spill hears of it, the others when
 * it does; the plan of these runs later. */
static void offer_mirrored(world *w, const world_line *line, uint32_t first, uint32_t n)
{
    kvp_open_info info;
    kvp_mirrored mirrored;
    kvp_seq seq;
    const int32_t *row;
    int32_t host[8];
    uint32_t n_row;
    assert_int_equal(world_compute(w, line, &seq, &info), KVP_OK);
    assert_int_equal(kvp_seq_row(w->cache, seq, 0, &row, &n_row), KVP_OK);
    assert_int_equal(kvp_cache_mirror(w->cache, row + first, n, 0, host, &mirrored), KVP_OK);
    assert_int_equal(mirrored.copied, n);
    world_take(w);
    world_run(w);
    assert_int_equal(kvp_spill_hit(w->spill, seq, line->n_tokens, w->now), KVP_OK);
    assert_int_equal(world_stats(w).puts, line->n_tokens / RECORD);
    assert_int_equal(kvp_seq_close(w->cache, seq, NULL), KVP_OK);
}

/* Of a record one block has a copy already, of a chain the last record: nothing is written before
 * the copies of all its blocks have run, nor before the record before it. */
TEST(a_record_waits_for_all_its_copies)
{
    for (uint32_t n_first = 1; n_first <= 3; n_first++) {
        kvp_spill_answer answers[8];
        scoped_world w;
        world_options options = world_defaults();
        open_world(&w, &options);
        const world_line line = line_of(&w, 2 * RECORD, 2 * RECORD, 0);
        offer_mirrored(&w, &line, 2 * RECORD / S - n_first, n_first);
        for (int i = 0; i < 4; i++) {
            world_work_once(&w, answers);
            world_store(&w);
        }
        assert_int_equal(world_stats(&w).puts, 2); /* the plan has not run */
        assert_int_equal(world_stats(&w).written + world_stats(&w).put_failed, 0);
        world_settle(&w);
        assert_fields(world_stats(&w), written, 2, put_failed, 0);
        forget_cache(&w);
        assert_int_equal(world_ask(&w, &line, 1).hit_tokens, 2 * RECORD);
        assert_int_equal(compute(&w, &line).hit_tokens, 2 * RECORD);
    }
}

/* As the first block, and the last, of a record. */
TEST(a_record_waits_for_its_first_copy)
{
    for (uint32_t block = 0; block < 2; block++) {
        kvp_spill_answer answers[8];
        scoped_world w;
        world_options options = world_defaults();
        open_world(&w, &options);
        const world_line line = line_of(&w, RECORD, RECORD, 0);
        offer_mirrored(&w, &line, block, 1);
        world_work_once(&w, answers);
        world_store(&w);
        world_work_once(&w, answers);
        assert_int_equal(world_stats(&w).written, 0);
        world_settle(&w);
        assert_int_equal(world_stats(&w).written, 1);
        forget_cache(&w);
        assert_int_equal(world_ask(&w, &line, 1).hit_tokens, RECORD);
        assert_int_equal(compute(&w, &line).hit_tokens, RECORD);
    }
}

/* The put of a record's parent fails, and another record takes its place before the child is looked
 * at: that is no parent of it. The store would not notice. */
TEST(anothers_place_is_no_parent)
{
    enum { OPS = 3 };
    kvp_spill_answer answers[8];
    scoped_world w;
    memset(&liar, 0, sizeof liar);
    liar.is_flat = 1; /* it looks for no parents */
    world_options options = world_defaults();
    options.lies = 1;
    options.policy = KVP_SPILL_THROUGH;
    options.max_ops = OPS;
    open_world(&w, &options);
    const world_line parent = line_of(&w, RECORD, RECORD, 0);
    const world_line child = line_of(&w, 2 * RECORD, 2 * RECORD, 0);
    const world_line between = line_of(&w, RECORD, 0, 500);
    const world_line other = line_of(&w, RECORD, 0, 700);
    uint64_t tag = 1;
    compute(&w, &parent);
    compute(&w, &between);
    compute(&w, &child);
    world_take(&w);
    world_run(&w);
    assert_int_equal(world_stats(&w).puts, 3);
    for (; tag < OPS; tag++) { /* the store has one place left, for the parent */
        const world_line question = line_of(&w, RECORD, 0, 1000 * (int32_t)tag);
        assert_int_equal(world_ask_now(&w, &question, tag).outcome, KVP_SPILL_WAITS);
    }
    world_work_once(&w, answers);
    liar.puts_fail = 1;
    world_store(&w);
    liar.puts_fail = 0;
    for (; tag < 2 * OPS; tag++) { /* none left: what is behind `between` is not looked at */
        const world_line question = line_of(&w, RECORD, 0, 1000 * (int32_t)tag);
        assert_int_equal(world_ask_now(&w, &question, tag).outcome, KVP_SPILL_WAITS);
    }
    world_work_once(&w, answers);
    assert_fields(world_stats(&w), put_failed, 1, puts, 2);
    compute(&w, &other); /* takes the place */
    assert_int_equal(world_stats(&w).puts, 3);
    world_take(&w);
    world_run(&w);
    world_store(&w);
    world_work_once(&w, answers);
    assert_int_equal(world_stats(&w).put_failed, 2);
    world_work_once(&w, answers);
    world_settle(&w);
    assert_fields(world_stats(&w), written, 2, put_failed, 2);
}

/* Without room on the host nothing of a record is mirrored, and it is left out. */
TEST(a_record_without_room_is_left_out)
{
    enum { USABLE = 40, BLOCKS = 16 };
    for (uint32_t n = 1; n <= 4; n *= 2) {
        kvp_cold_cursor cursor = {0};
        kvp_cold cold;
        int32_t host;
        uint32_t n_cold = 0;
        scoped_world w;
        world_options options = world_defaults();
        options.record_blocks = n;
        options.host_blocks = USABLE + 1;
        options.more.spare_blocks = USABLE - 1;
        open_world(&w, &options);
        const world_line first = line_of(&w, S, 0, 500);
        const world_line line = line_of(&w, BLOCKS * S, BLOCKS * S, 0);
        compute(&w, &first);
        assert_int_equal(kvp_cache_cold_end(w.cache, KVP_DEVICE, &cursor, &cold, 1, &n_cold),
                         KVP_OK);
        assert_int_equal(kvp_cache_mirror(w.cache, &cold.block, 1, 0, &host, NULL), KVP_OK);
        world_settle(&w);
        assert_int_equal(kvp_cache_lend(w.cache, &host, 1), KVP_OK); /* all others are spare */
        compute(&w, &line);
        compute(&w, &line); /* a hit */
        assert_fields(world_stats(&w), puts, 0, no_block, BLOCKS / n, offered, BLOCKS / n);
        world_settle(&w);
        assert_int_equal(kvp_cache_give_back(w.cache, &host, 1), KVP_OK);
        compute(&w, &line);
        world_settle(&w);
        assert_int_equal(world_stats(&w).written, BLOCKS / n);
    }
}

/* A record of a window that was left out is offered by another sequence, whose prefix ends before
 * that of the first one. */
TEST(what_was_left_out_of_a_window_is_offered)
{
    scoped_world w;
    world_options options = world_defaults();
    options.windows[0].recent_tokens = 40;
    options.policy = KVP_SPILL_THROUGH;
    options.more.max_puts = 1;
    open_world(&w, &options);
    const world_line first = line_of(&w, RECORD, 0, 500);
    const world_line line = line_of(&w, 3 * RECORD, 3 * RECORD, 0);
    const world_line part = line_of(&w, 2 * RECORD, 3 * RECORD, 0);
    const kvp_prompt prompt = world_prompt(&part);
    kvp_seq seq;
    compute(&w, &first); /* has the place */
    compute(&w, &line);
    assert_int_equal(world_stats(&w).puts, 1);
    world_settle(&w);
    assert_int_equal(kvp_seq_open(w.cache, w.spaces[0], &prompt, &seq, NULL), KVP_OK);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(kvp_spill_sealed(w.spill, seq, w.now), KVP_OK);
        world_settle(&w);
        assert_int_equal(world_stats(&w).written, i < 2 ? 2 + i : 3);
    }
    assert_int_equal(kvp_seq_close(w.cache, seq, NULL), KVP_OK);
    forget_cache(&w);
    assert_int_equal(world_ask(&w, &part, 1).hit_tokens, 2 * RECORD);
}

/* A put that the store does not even take costs that record and those behind it, and holds up no
 * other. */
TEST(a_put_that_is_not_taken_is_given_up)
{
    for (uint32_t n = 1; n <= 4; n++) {
        kvp_stats stats;
        scoped_world w;
        world_options options = world_defaults();
        options.policy = KVP_SPILL_THROUGH;
        open_world(&w, &options);
        const world_line line = line_of(&w, 4 * RECORD, 4 * RECORD, 0);
        const world_line other = line_of(&w, RECORD, 0, 500);
        compute(&w, &line);
        compute(&w, &other);
        refused_put = n;
        world_settle(&w);
        assert_int_equal(refused_put, 0);
        assert_fields(world_stats(&w), written, n, put_failed, 5 - n);
        assert_int_equal(kvp_cache_stats_get(w.cache, &stats), KVP_OK);
        assert_int_equal(stats.host_lent_blocks, 0);
        compute(&w, &line); /* it is offered again */
        world_settle(&w);
        assert_int_equal(world_stats(&w).written, 5);
    }
}

/* A second, then twice as long each time, but never more than 64. */
TEST(a_store_that_refuses_all_is_asked_again)
{
    static const uint64_t rests[] = {1, 2, 4, 8, 16, 32, 64, 64, 64};
    const uint64_t half = UINT64_C(500000000);
    scoped_world w;
    memset(&liar, 0, sizeof liar);
    liar.puts_fail = 1;
    world_options options = world_defaults();
    options.lies = 1;
    options.policy = KVP_SPILL_THROUGH;
    open_world(&w, &options);
    const world_line line = line_of(&w, 64, 64, 0);
    uint64_t offered = 16;
    for (int i = 0; i < 2; i++) { /* 16 in a row */
        compute(&w, &line);
        world_settle(&w);
    }
    for (size_t i = 0; i < sizeof rests / sizeof *rests; i++) {
        w.now += rests[i] * 2 * half - half;
        compute(&w, &line);
        world_settle(&w);
        assert_int_equal(world_stats(&w).offered, offered);
        w.now += half;
        compute(&w, &line);
        world_settle(&w);
        assert_int_equal(world_stats(&w).offered, offered += 8);
    }
    liar.puts_fail = 0;
}

/* What waits to be written of a namespace goes with its epoch, and nothing else does. */
TEST(another_epoch_gives_up_its_own_puts)
{
    scoped_world w;
    world_options options = world_defaults();
    options.policy = KVP_SPILL_THROUGH;
    open_world(&w, &options);
    const world_line line = line_of(&w, 4 * RECORD, 4 * RECORD, 0);
    world_line other = line_of(&w, 3 * RECORD, 0, 500);
    other.space = 1;
    world_truth(&w, &other);
    compute(&w, &line);
    compute(&w, &other);
    assert_int_equal(world_stats(&w).puts, 7);
    world_flush(&w, 0);
    assert_fields(world_stats(&w), puts, 3, lost, 4);
    world_settle(&w);
    assert_int_equal(world_stats(&w).written, 3);
}

TEST_MAIN(NULL, NULL)
