/* Scenes of a spill: what it writes, what it loads, what it leaves alone. */
#include "heap.h"
#include "liar.h"
#include "scenes.h"

TEST(comes_back_after_a_restart)
{
    scoped_world w;
    world_options options = world_defaults();
    options.policy = KVP_SPILL_THROUGH;
    open_world(&w, &options);
    const world_line line = line_of(&w, 35, 35, 0); /* 8 blocks and 3 tokens: 4 records */
    compute(&w, &line);
    world_settle(&w);
    assert_int_equal(world_stats(&w).written, 4);
    forget_cache(&w);
    const kvp_spill_answer answer = world_ask(&w, &line, 5);
    assert_fields(answer, tag, 5, outcome, KVP_SPILL_LOADED, hit_tokens, 32, more_tokens, 32);
    assert_int_equal(compute(&w, &line).hit_tokens, 32);
    assert_int_equal(world_stats(&w).loaded, 4);
    world_settle(&w);
    assert_int_equal(world_stats(&w).written, 4); /* not again */
    assert_int_equal(world_ask(&w, &line, 6).outcome, KVP_SPILL_NOTHING);
}

/* By the first byte of their keys, which are hashes. */
static uint32_t noted[2];

static void note(void *context, const kvp_digest *key, int is_there)
{
    uint8_t *last = context;
    noted[is_there != 0] += *last != key->bytes[0];
    *last = key->bytes[0];
}

TEST(what_the_store_has_is_noted)
{
    scoped_world w;
    uint8_t last = 0;
    world_options options = world_defaults();
    options.policy = KVP_SPILL_THROUGH;
    options.more.note = note;
    options.more.note_context = &last;
    open_world(&w, &options);
    const world_line line = line_of(&w, 35, 35, 0), other = line_of(&w, 19, 0, 7);
    compute(&w, &line);
    world_settle(&w);
    assert_int_equal(noted[1], 4); /* written */
    assert_int_equal(noted[0], 0);
    forget_cache(&w);
    (void)world_ask(&w, &line, 5);
    assert_int_equal(noted[1], 8); /* found */
    (void)world_ask(&w, &other, 6);
    assert_int_equal(noted[1], 8);
    assert_int_equal(noted[0], 2); /* and not found */
}

TEST(only_what_is_hit_is_written)
{
    scoped_world w;
    world_options options = world_defaults();
    open_world(&w, &options);
    const world_line first = line_of(&w, 40, 20, 100);
    const world_line second = line_of(&w, 40, 20, 200);
    compute(&w, &first);
    world_settle(&w);
    assert_int_equal(world_stats(&w).written, 0);
    assert_int_equal(compute(&w, &second).hit_tokens, 20);
    world_settle(&w);
    assert_int_equal(world_stats(&w).written, 2); /* 16 of the 20 tokens */
    forget_cache(&w);
    assert_int_equal(world_ask(&w, &first, 1).hit_tokens, 16);
    compute(&w, &first);
}

TEST(decisions_are_those_of_the_comment)
{
    kvp_spill_question q = {.struct_size = sizeof q,
                            .bytes = UINT64_C(4096) * 128 * 1024,
                            .load_bytes_s = UINT64_C(1000000000),
                            .compute_tokens_s = 10000,
                            .left_ns = UINT64_MAX,
                            .n_tokens = 4096,
                            .step_tokens = 16};
    uint32_t n = 7;
    assert_int_equal(kvp_spill_decide(&q, &n), KVP_OK);
    assert_int_equal(n, 0); /* 0.54 s to load, 0.41 s to compute */
    q.load_bytes_s *= 2;
    assert_int_equal(kvp_spill_decide(&q, &n), KVP_OK);
    assert_int_equal(n, 4096);
    q.left_ns = 100000000;
    assert_int_equal(kvp_spill_decide(&q, &n), KVP_OK);
    assert_int_equal(n, 1520);
    q.min_tokens = 1521;
    assert_int_equal(kvp_spill_decide(&q, &n), KVP_OK);
    assert_int_equal(n, 0);
    q.min_tokens = 0;
    q.left_ns = UINT64_MAX;
    q.queued_bytes = 200000000; /* 0.1 s: 0.37 s in all */
    assert_int_equal(kvp_spill_decide(&q, &n), KVP_OK);
    assert_int_equal(n, 4096);
    q.queued_bytes = 300000000; /* 0.42 s in all */
    assert_int_equal(kvp_spill_decide(&q, &n), KVP_OK);
    assert_int_equal(n, 0);
    q.n_tokens = 0;
    assert_int_equal(kvp_spill_decide(&q, &n), KVP_OK);
    assert_int_equal(n, 0);
    q.step_tokens = 0;
    assert_int_equal(kvp_spill_decide(&q, &n), KVP_E_ARG);
}

TEST(a_part_is_loaded_in_the_time_that_is_left)
{
    scoped_world w;
    world_options options = world_defaults();
    options.more.load_bytes_s = 6400; /* a record in 0.01 s */
    options.more.compute_tokens_s = 1;
    const world_line line = open_stored(&w, &options);
    const kvp_prompt prompt = world_prompt(&line);
    const kvp_spill_request request = {
        .struct_size = sizeof request, .tag = 1, .deadline_ns = w.now + 55000000};
    kvp_spill_answer answer;
    assert_int_equal(kvp_spill_ask(w.spill, w.spaces[0], &prompt, &request, w.now, &answer),
                     KVP_OK);
    assert_int_equal(answer.outcome, KVP_SPILL_WAITS);
    answer = world_settle(&w);
    assert_int_equal(answer.outcome, KVP_SPILL_LOADED);
    assert_int_equal(answer.hit_tokens, 40); /* 5 records of 8 tokens: 0.05 s */
    assert_fields(world_stats(&w), decided_part, 1, decided_none, 0);
    forget_cache(&w);
    const kvp_spill_request late = {
        .struct_size = sizeof late, .tag = 2, .deadline_ns = w.now + 5000000};
    assert_int_equal(kvp_spill_ask(w.spill, w.spaces[0], &prompt, &late, w.now, &answer), KVP_OK);
    assert_int_equal(world_settle(&w).outcome, KVP_SPILL_COMPUTE);
    assert_int_equal(world_stats(&w).decided_none, 1);
    compute(&w, &line);
}

/* What was hit has nodes already: only the rest of the prompt needs some. */
TEST(a_load_waits_for_the_nodes_that_it_needs_only)
{
    scoped_world w;
    world_options options = world_defaults();
    options.n_nodes = WORLD_SPACES + 16; /* the prompt has 16 units */
    const world_line line = open_stored(&w, &options);
    const world_line begin = line_of(&w, 48, 48, 0);
    compute(&w, &begin);
    const kvp_spill_answer answer = world_ask(&w, &line, 1);
    assert_fields(answer, outcome, KVP_SPILL_LOADED, hit_tokens, 64);
    compute(&w, &line);
}

TEST(sharers_wait_for_one_load)
{
    const int is_aborted = *state != NULL;
    kvp_spill_answer answers[8];
    scoped_world w;
    world_options options = world_defaults();
    const world_line line = open_stored(&w, &options);
    const world_line other = line_of(&w, 70, 64, 900);
    world_ask_now(&w, &line, 1);
    world_ask_now(&w, &other, 2);
    assert_int_equal(world_work_once(&w, answers), 0); /* questions */
    world_store(&w);
    assert_int_equal(world_work_once(&w, answers), 0); /* gets */
    assert_int_equal(world_stats(&w).shared, 1);
    if (is_aborted)
        assert_int_equal(kvp_spill_abort(w.spill, 1), KVP_OK);
    assert_int_equal(kvp_spill_abort(w.spill, 3), KVP_E_ARG);
    const kvp_spill_answer answer = world_settle(&w);
    assert_fields(answer, tag, 2, outcome, KVP_SPILL_LOADED, hit_tokens, 64);
    assert_fields(world_stats(&w), loaded, 8, outcomes[KVP_SPILL_LOADED], is_aborted ? 1 : 2);
    compute(&w, &other);
}

TEST(sharers_are_not_aborted)
{
    static int aborted;
    (void)state;
    void *flag = &aborted;
    sharers_wait_for_one_load(&flag);
}

TEST(a_request_that_is_over_leaves_nothing)
{
    kvp_spill_answer answers[8];
    kvp_stats stats;
    scoped_world w;
    world_options options = world_defaults();
    options.more.max_wait_ns = 5000;
    const world_line line = open_stored(&w, &options);
    world_ask_now(&w, &line, 1);
    world_work_once(&w, answers);
    world_store(&w);
    world_work_once(&w, answers);
    assert_int_equal(world_stats(&w).gets, 4);
    w.now += 5000;
    assert_int_equal(world_work_once(&w, answers), 1); /* its gets are out */
    assert_int_equal(answers[0].outcome, KVP_SPILL_DEADLINE);
    assert_int_equal(answers[0].waited_ns, 5000 + 3 * 1000); /* a microsecond for each work */
    assert_int_equal(kvp_cache_stats_get(w.cache, &stats), KVP_OK);
    assert_int_equal(stats.host_loading_blocks, 16);
    world_store(&w);
    assert_int_equal(world_work_once(&w, answers), 0);
    assert_int_equal(kvp_cache_stats_get(w.cache, &stats), KVP_OK);
    assert_int_equal(stats.host_lent_blocks + stats.open_loads, 0);
    assert_int_equal(world_stats(&w).loaded, 4); /* what was on its way is kept */
    assert_int_equal(compute(&w, &line).hit_tokens, 32);
}

TEST(what_is_over_a_budget_is_left_out)
{
    scoped_world w;
    world_options options = world_defaults();
    options.policy = KVP_SPILL_THROUGH;
    options.more.put_bytes_s = 64 * 3 + 32; /* three records, and a half */
    options.more.put_bytes_day = 64 * 5;
    open_world(&w, &options);
    const world_line line = line_of(&w, 64, 64, 0);
    compute(&w, &line);
    assert_int_equal(world_stats(&w).puts, 3);
    world_settle(&w);
    assert_int_equal(world_stats(&w).written, 3);
    assert_true(world_stats(&w).over_budget >= 5); /* each time that it was reported */
    w.now += UINT64_C(2000000000);
    compute(&w, &line); /* a hit: two more today */
    world_settle(&w);
    assert_int_equal(world_stats(&w).written, 5);
    w.now += UINT64_C(100000000000000);
    compute(&w, &line);
    world_settle(&w);
    assert_int_equal(world_stats(&w).written, 8);
}

/* What is wrong is noticed while the store writes it. */
TEST(what_is_invalidated_is_taken_back)
{
    kvp_spill_answer answers[8];
    kvp_open_info info;
    kvp_seq seq;
    scoped_world w;
    world_options options = world_defaults();
    options.policy = KVP_SPILL_THROUGH;
    open_world(&w, &options);
    const world_line line = line_of(&w, 32, 32, 0);
    assert_int_equal(world_compute(&w, &line, &seq, &info), KVP_OK);
    world_work_once(&w, answers);
    assert_int_equal(world_stats(&w).puts, 4); /* on their way */
    assert_int_equal(kvp_seq_invalidate(w.cache, seq, 8, NULL, 0, NULL), KVP_OK);
    assert_int_equal(kvp_seq_close(w.cache, seq, NULL), KVP_OK);
    world_settle(&w);
    assert_int_equal(world_stats(&w).taken_back, 3);
    forget_cache(&w);
    assert_int_equal(world_ask(&w, &line, 1).hit_tokens, 8);
    compute(&w, &line);
}

TEST(an_epoch_hides_what_was_before)
{
    kvp_spill_answer answers[8];
    scoped_world w;
    world_options options = world_defaults();
    world_line line = open_stored(&w, &options);
    world_ask_now(&w, &line, 1);
    world_work_once(&w, answers);
    world_store(&w);
    world_work_once(&w, answers); /* it loads */
    world_flush(&w, 0);
    assert_int_equal(world_work_once(&w, answers), 1);
    assert_int_equal(answers[0].outcome, KVP_SPILL_NOTHING);
    world_settle(&w);
    world_truth(&w, &line);
    assert_int_equal(world_ask(&w, &line, 2).outcome, KVP_SPILL_NOTHING);
    assert_int_equal(compute(&w, &line).hit_tokens, 0);
}

TEST(a_window_needs_its_end_only)
{
    scoped_world w;
    world_options options = world_defaults();
    options.n_groups = 2;
    options.n_blocks = options.host_blocks = 100;
    options.windows[1] = (kvp_window){3, 10};
    const world_line line = open_stored(&w, &options);
    assert_int_equal(world_ask(&w, &line, 1).hit_tokens, 64);
    /* Group 0: 8 records. Group 1: the sinks' record, and the two that hold tokens 54 to 63. */
    assert_int_equal(world_stats(&w).loaded, 11);
    assert_true(world_stats(&w).scratch_bytes > 0); /* of token 4 to 7, which no query sees */
    assert_int_equal(compute(&w, &line).hit_tokens, 64);
}

TEST(a_chunk_needs_none_before_it)
{
    scoped_world w;
    world_options options = world_defaults();
    options.n_groups = 2;
    options.n_blocks = options.host_blocks = 100;
    options.windows[1] = (kvp_window){KVP_CHUNKED, 24};
    const world_line line = open_stored(&w, &options);
    assert_int_equal(world_ask(&w, &line, 1).hit_tokens, 64);
    /* Group 0: 8 records. Group 1: the two of the chunk that begins at token 48. */
    assert_int_equal(world_stats(&w).loaded, 10);
    assert_int_equal(compute(&w, &line).hit_tokens, 64);
}

/* Copies into the host blocks that a load takes are in a plan that has not run. */
TEST(reads_wait_for_copies)
{
    kvp_cold_cursor cursor = {0};
    kvp_cold cold[32];
    int32_t blocks[32], host[32];
    kvp_spill_answer answers[8];
    kvp_mirrored mirrored;
    uint32_t n = 0;
    scoped_world w;
    world_options options = world_defaults();
    options.host_blocks = 33;
    options.more.put_bytes_day = 512; /* of the first line: nothing else is mirrored */
    const world_line line = open_stored(&w, &options);
    for (int32_t i = 1; i < 3; i++) {
        const world_line other = line_of(&w, 64, 0, 1000 * i);
        compute(&w, &other);
    }
    assert_int_equal(kvp_cache_cold_end(w.cache, KVP_DEVICE, &cursor, cold, 32, &n), KVP_OK);
    assert_int_equal(n, 32);
    for (uint32_t i = 0; i < n; i++)
        blocks[i] = cold[i].block;
    assert_int_equal(kvp_cache_mirror(w.cache, blocks, n, 0, host, &mirrored), KVP_OK);
    assert_int_equal(mirrored.copied, 32);
    world_take(&w);
    world_ask_now(&w, &line, 1);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(world_work_once(&w, answers), 0);
        world_store(&w);
    }
    assert_true(world_stats(&w).queued_bytes > 0);
    assert_int_equal(world_stats(&w).gets + world_stats(&w).loaded, 0);
    world_run(&w);
    assert_int_equal(world_settle(&w).hit_tokens, 64);
    compute(&w, &line);
}

/* What is hot is on the device only, and the engine has never reported it. */
TEST(the_last_flush_writes_what_is_cached)
{
    scoped_world w;
    world_options options = world_defaults();
    open_world(&w, &options);
    const world_line first = line_of(&w, 40, 16, 100);
    const world_line second = line_of(&w, 40, 16, 200);
    compute(&w, &first);
    compute(&w, &second);
    assert_int_equal(world_stats(&w).written + world_stats(&w).puts, 2); /* the second one's hit */
    flush_all(&w);
    assert_int_equal(world_stats(&w).written, 8);
    forget_cache(&w);
    assert_int_equal(world_ask(&w, &first, 1).hit_tokens, 40);
    assert_int_equal(world_ask(&w, &second, 2).hit_tokens, 40);
    compute(&w, &first);
    compute(&w, &second);
    assert_int_equal(kvp_spill_flush(w.spill, w.now, w.now - 1), KVP_E_AGAIN);
}

/* Each transfer fails once: the request computes, and nothing else happens. */
TEST(a_transfer_that_fails_costs_a_computation)
{
    for (uint32_t n = 1; n <= 18; n++) {
        scoped_world w;
        memset(&liar, 0, sizeof liar);
        liar.fail_at = n; /* 8 puts, 8 gets */
        world_options options = world_defaults();
        options.lies = 1;
        const world_line line = open_stored(&w, &options);
        const kvp_spill_answer answer = world_ask(&w, &line, 1);
        const uint32_t n_right = n > 16 ? 8 : (n - 1) % 8; /* records before it */
        assert_fields(answer, hit_tokens, 8 * n_right, outcome,
                      n == 1   ? KVP_SPILL_NOTHING
                      : n == 9 ? KVP_SPILL_FAILED
                               : KVP_SPILL_LOADED);
        assert_int_equal(world_stats(&w).load_failed, n > 8 && n <= 16);
        compute(&w, &line);
        world_settle(&w); /* what could not be read is written again */
        assert_int_equal(world_stats(&w).written, n > 8 && n <= 16 ? 8 + 17 - n : 8);
    }
}

/* What a store says beside the truth: of the n-th answer from now on. */
enum { HONEST, TWICE, NEVER, STRAY, OTHER };

static struct {
    int how;
    uint32_t n;      /* answers until then; 0: it has happened, or is not to */
    uint32_t result; /* OTHER: what it says instead */
    int has_more;
    kvp_store_done more;
} lie;

kvp_status __real_kvp_store_poll(kvp_store *store, kvp_store_done *out_done, uint32_t capacity,
                                 uint32_t *out_n_done);
kvp_status __wrap_kvp_store_poll(kvp_store *store, kvp_store_done *out_done, uint32_t capacity,
                                 uint32_t *out_n_done);
kvp_status __wrap_kvp_store_poll(kvp_store *store, kvp_store_done *out_done, uint32_t capacity,
                                 uint32_t *out_n_done)
{
    const kvp_status status = __real_kvp_store_poll(store, out_done, capacity - 1, out_n_done);
    if (lie.has_more)
        out_done[(*out_n_done)++] = lie.more;
    lie.has_more = 0;
    for (uint32_t i = 0; i < *out_n_done && lie.n > 0; i++) {
        if (--lie.n > 0)
            continue;
        lie.has_more = lie.how == TWICE || lie.how == STRAY;
        lie.more = out_done[i];
        if (lie.how == OTHER)
            out_done[i].result = lie.result;
        if (lie.how == STRAY)
            lie.more.tag += 5000;
        else if (lie.how == NEVER)
            out_done[i] = out_done[--*out_n_done];
    }
    return status;
}

/* The last of 8 puts. What the store does not have, or may not have, is offered again. */
TEST(each_answer_of_a_put_is_counted_once)
{
    static const struct {
        uint32_t result, written, known, failed, again;
    } cases[] = {{KVP_STORE_OK, 8, 0, 0, 0},
                 {KVP_STORE_KNOWN, 7, 1, 0, 0},
                 {KVP_STORE_FAILED, 7, 0, 1, 1},
                 {KVP_STORE_NO_ROOM, 7, 0, 1, 1},
                 {KVP_STORE_NO_PARENT, 7, 0, 1, 2}}; /* the record before, too */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scoped_world w;
        world_options options = world_defaults();
        options.policy = KVP_SPILL_THROUGH;
        open_world(&w, &options);
        const world_line line = line_of(&w, 64, 64, 0);
        lie.how = OTHER;
        lie.n = 8;
        lie.result = cases[i].result;
        compute(&w, &line);
        world_settle(&w);
        assert_int_equal(lie.n, 0);
        kvp_spill_stats stats = world_stats(&w);
        assert_fields(stats, written, cases[i].written, written_bytes, 64 * cases[i].written, known,
                      cases[i].known, put_failed, cases[i].failed);
        compute(&w, &line);
        world_settle(&w);
        stats = world_stats(&w);
        assert_int_equal(stats.written, cases[i].written);
        assert_int_equal(stats.known, cases[i].known + cases[i].again); /* it has them in truth */
        memset(&lie, 0, sizeof lie);
    }
}

/* What is offered to it costs digests and copies, and is refused. */
TEST(a_store_that_refuses_all_is_left_alone)
{
    scoped_world w;
    memset(&liar, 0, sizeof liar);
    liar.puts_fail = 1;
    world_options options = world_defaults();
    options.lies = 1;
    options.policy = KVP_SPILL_THROUGH;
    open_world(&w, &options);
    const world_line line = line_of(&w, 64, 64, 0);
    const uint64_t second = UINT64_C(1000000000);
    const uint64_t waits[] = {0, 0, 0, second, 0, second, second};
    const uint64_t offered[] = {8, 16, 16, 24, 24, 24, 32};
    for (size_t i = 0; i < sizeof waits / sizeof *waits; i++) {
        w.now += waits[i];
        compute(&w, &line);
        world_settle(&w);
        assert_int_equal(world_stats(&w).offered, offered[i]);
    }
    liar.puts_fail = 0;
    w.now += 100 * second;
    compute(&w, &line);
    world_settle(&w);
    assert_int_equal(world_stats(&w).written, 8);
    liar.puts_fail = 1; /* as at first */
    const world_line other = line_of(&w, 64, 0, 500);
    for (int i = 0; i < 2; i++) {
        compute(&w, &other);
        world_settle(&w);
    }
    assert_int_equal(world_stats(&w).offered, 32 + 8 + 16);
    liar.puts_fail = 0;
}

/* A short queue: those behind the record that fails are not out yet, and are given up. */
TEST(what_has_lost_its_parent_is_given_up)
{
    scoped_world w;
    memset(&liar, 0, sizeof liar);
    liar.fail_at = 3;
    world_options options = world_defaults();
    options.lies = 1;
    options.policy = KVP_SPILL_THROUGH;
    options.max_ops = 1;
    open_world(&w, &options);
    const world_line line = line_of(&w, 64, 64, 0);
    compute(&w, &line);
    world_settle(&w);
    assert_fields(world_stats(&w), written, 2, put_failed, 6);
    compute(&w, &line);
    world_settle(&w);
    assert_int_equal(world_stats(&w).written, 8);
}

/* Until nothing moves any more; gives whether the spill has said that something is wrong. */
static int work_on(world *w, int n_rounds, uint32_t *out_n_answers, uint32_t *out_outcome)
{
    int is_broken = 0;
    *out_n_answers = 0;
    for (int i = 0; i < n_rounds; i++) {
        kvp_spill_answer answers[8];
        uint32_t n = 0;
        w->now += 1000000;
        world_store(w);
        world_take(w);
        world_run(w);
        const kvp_status status = kvp_spill_work(w->spill, w->now, answers, 8, &n);
        assert_true(status == KVP_OK || status == KVP_E_CORRUPT);
        is_broken |= status == KVP_E_CORRUPT;
        if (n > 0)
            *out_outcome = answers[n - 1].outcome;
        *out_n_answers += n;
    }
    return is_broken;
}

/* The store is closed first; then the spill gives back what it holds. */
static void close_broken(world *w)
{
    kvp_stats stats;
    kvp_store_close(w->store);
    kvp_spill_destroy(w->spill);
    w->store = NULL;
    w->spill = NULL;
    assert_int_equal(kvp_cache_stats_get(w->cache, &stats), KVP_OK);
    assert_int_equal(stats.host_lent_blocks + stats.open_loads, 0);
    world_close(w);
    assert_good(w);
}

/* Each answer of a run, a question, 8 reads, 8 writes and a sync, comes twice, never, or with the
 * number of nobody. A request is answered once all the same, and what is read is right. */
TEST(an_answer_that_is_not_due_is_refused)
{
    for (int how = TWICE; how <= STRAY; how++) {
        for (uint32_t n = 1; n <= 20; n++) {
            world w;
            uint32_t n_answers = 0, outcome = 0;
            world_options options = world_defaults();
            options.more.max_wait_ns = 50000000;
            const world_line line = open_stored(&w, &options);
            world_line next = line_of(&w, 64, 0, 500);
            lie.how = how;
            lie.n = n;
            world_ask_now(&w, &line, 1);
            int is_broken = work_on(&w, 70, &n_answers, &outcome);
            assert_int_equal(n_answers, 1);
            assert_int_equal(outcome,
                             how == NEVER && n <= 9 ? KVP_SPILL_DEADLINE : KVP_SPILL_LOADED);
            compute(&w, &line);
            compute(&w, &next);
            is_broken |= work_on(&w, 70, &n_answers, &outcome);
            kvp_status status = KVP_E_AGAIN;
            for (int i = 0; i < 80 && status == KVP_E_AGAIN; i++) {
                uint32_t n_more = 0;
                status = kvp_spill_flush(w.spill, w.now, w.now + 1000000000);
                is_broken |= work_on(&w, 2, &n_more, &outcome);
            }
            assert_int_equal(n_answers, 0);
            assert_int_equal(is_broken, how != NEVER && n <= 18);
            assert_int_equal(lie.n > 0, n > 18);
            compute(&w, &line);
            compute(&w, &next);
            memset(&lie, 0, sizeof lie);
            close_broken(&w);
        }
    }
}

static int move_nothing(void *engine, const kvp_spill_record *record)
{
    (void)engine, (void)record;
    return 0;
}

/* Records are moved by both or none, and are one block to the store. */
static void assert_moves_are_refused(kvp_spill_config config)
{
    static const struct {
        int gives, takes;
        uint32_t record_blocks;
        const char *why;
    } cases[] = {{1, 0, 2, "take is NULL, and the other is not"},
                 {0, 1, 2, "give is NULL, and the other is not"},
                 {0, 0, 2, "record_blocks is 2, expected 0 to 0"},
                 {1, 1, 0, "record_blocks is 0, expected 1 to 65535"},
                 {1, 1, 2, "the store's record_blocks is 2, expected 1 to 1"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kvp_spill *spill = NULL;
        char why[100];
        config.give = cases[i].gives ? move_nothing : NULL;
        config.take = cases[i].takes ? move_nothing : NULL;
        config.record_blocks = cases[i].record_blocks;
        assert_int_equal(kvp_spill_create(&config, &spill, why, sizeof why), KVP_E_ARG);
        assert_string_equal(why, cases[i].why);
    }
}

TEST(creating_fails_whole_or_not)
{
    kvp_spill *spill = NULL;
    char why[100];
    scoped_world w;
    world_options options = world_defaults();
    open_world(&w, &options);
    kvp_spill_config config;
    kvp_spill_config_init(&config);
    config.cache = w.cache;
    config.store = w.store;
    config.fingerprint.bytes[0] = 7;
    config.block_bytes[0] = config.host[0].stride = 32;
    config.host[0].base = w.host;
    config.slice = (kvp_slice){.n_layers = 1, .n_heads = 1};
    kvp_status status = KVP_E_NO_MEMORY;
    for (heap.fails_at = 1; status == KVP_E_NO_MEMORY; heap.fails_at++) {
        heap.n_allocations = 0;
        status = kvp_spill_create(&config, &spill, why, sizeof why);
        assert_true(status == KVP_OK || spill == NULL);
    }
    assert_int_equal(status, KVP_OK);
    assert_true(heap.fails_at > 30);
    heap.fails_at = 0;
    kvp_spill_destroy(spill);
    kvp_spill_destroy(NULL);
    assert_moves_are_refused(config);
    config.max_asks = 0;
    assert_int_equal(kvp_spill_create(&config, &spill, why, sizeof why), KVP_E_ARG);
    assert_string_equal(why, "max_asks is 0, expected 1 to 4096");
    config.max_asks = 1;
    config.put_bytes = 63;
    assert_int_equal(kvp_spill_create(&config, &spill, why, sizeof why), KVP_E_ARG);
    config.put_bytes = 64;
    config.host[0].stride = 31;
    assert_int_equal(kvp_spill_create(&config, &spill, why, sizeof why), KVP_E_ARG);
    config.slice.n_heads = 0;
    assert_int_equal(kvp_spill_create(&config, &spill, why, sizeof why), KVP_E_ARG);
    assert_string_equal(why, "slice.n_heads is 0: a record is of layers and heads");
    config.fingerprint.bytes[0] = 0;
    assert_int_equal(kvp_spill_create(&config, &spill, why, sizeof why), KVP_E_ARG);
}

TEST(wrong_calls_are_refused)
{
    kvp_spill_answer answer;
    kvp_ns third = {0};
    scoped_world w;
    world_options options = world_defaults();
    open_world(&w, &options);
    world_line line = line_of(&w, 16, 16, 0);
    const kvp_prompt prompt = world_prompt(&line);
    kvp_spill_request request = {.struct_size = sizeof request};
    assert_int_equal(kvp_spill_space(w.spill, third, "x", 1, 0), KVP_E_ARG);
    third.bits = 12345;
    assert_int_equal(kvp_spill_space(w.spill, third, "x", 1, 0), KVP_E_NO_NAMESPACES);
    assert_int_equal(kvp_spill_space_close(w.spill, third), KVP_E_STATE);
    assert_int_equal(kvp_spill_space_close(w.spill, w.spaces[1]), KVP_OK);
    assert_int_equal(kvp_spill_ask(w.spill, w.spaces[1], &prompt, &request, w.now, &answer),
                     KVP_E_STATE);
    assert_int_equal(kvp_spill_ask(w.spill, third, &prompt, &request, w.now, &answer),
                     KVP_E_HANDLE);
    request.struct_size = 3;
    assert_int_equal(kvp_spill_ask(w.spill, w.spaces[0], &prompt, &request, w.now, &answer),
                     KVP_E_ARG);
    assert_int_equal(kvp_spill_drop(w.spill, w.spaces[1], &prompt, 0, w.now), KVP_E_STATE);
    assert_string_equal(kvp_spill_outcome_name(KVP_SPILL_LOADED), "loaded");
    assert_string_equal(kvp_spill_outcome_name(KVP_SPILL_OUTCOMES), "?");
}

/* Each pointer alone: the others are right. */
TEST(calls_without_a_pointer_are_refused)
{
    static char longest[KVP_NAME_MAX_BYTES + 1];
    kvp_spill_answer answer;
    kvp_spill *made;
    uint32_t n = 0;
    scoped_world w;
    world_options options = world_defaults();
    open_world(&w, &options);
    world_line line = line_of(&w, 16, 16, 0);
    const kvp_prompt prompt = world_prompt(&line);
    const kvp_spill_request request = {.struct_size = sizeof request};
    const kvp_ns ns = w.spaces[0];
    kvp_spill *const spill = w.spill;
    kvp_spill_config config;
    kvp_spill_config_init(&config);
    const kvp_status refused[] = {
        kvp_spill_create(NULL, &made, NULL, 0),
        kvp_spill_create(&config, NULL, NULL, 0),
        kvp_spill_stop(NULL, 0),
        kvp_spill_space(NULL, ns, "x", 1, 0),
        kvp_spill_space(spill, ns, NULL, 1, 0),
        kvp_spill_space(spill, ns, longest, sizeof longest, 0),
        kvp_spill_space_close(NULL, ns),
        kvp_spill_ask(NULL, ns, &prompt, &request, w.now, &answer),
        kvp_spill_ask(spill, ns, NULL, &request, w.now, &answer),
        kvp_spill_ask(spill, ns, &prompt, NULL, w.now, &answer),
        kvp_spill_ask(spill, ns, &prompt, &request, w.now, NULL),
        kvp_spill_abort(NULL, 1),
        kvp_spill_decide(NULL, &n),
        kvp_spill_hit(NULL, (kvp_seq){0}, 1, w.now),
        kvp_spill_sealed(NULL, (kvp_seq){0}, w.now),
        kvp_spill_drop(NULL, ns, &prompt, 0, w.now),
        kvp_spill_drop(spill, ns, NULL, 0, w.now),
        kvp_spill_work(NULL, w.now, &answer, 1, &n),
        kvp_spill_work(spill, w.now, NULL, 1, &n),
        kvp_spill_work(spill, w.now, &answer, 1, NULL),
        kvp_spill_flush(NULL, w.now, w.now),
        kvp_spill_stats_get(NULL, NULL),
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (refused[i] != KVP_E_ARG)
            fail_msg("call %zu gives %s", i, kvp_status_name(refused[i]));
    assert_int_equal(kvp_spill_space(spill, w.spaces[1], longest, KVP_NAME_MAX_BYTES, 0), KVP_OK);
    assert_int_equal(kvp_spill_space(spill, w.spaces[1], NULL, 0, 0), KVP_OK);
    assert_int_equal(kvp_spill_work(spill, w.now, NULL, 0, &n), KVP_OK);
}

TEST_MAIN(NULL, NULL)
