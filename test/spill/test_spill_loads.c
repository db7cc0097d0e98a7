/* Scenes of a spill's loads: what is asked for, how long it is waited for, and what is read. */
#include "liar.h"
#include "scenes.h"

/* The blocks of the device are on the host, too. */
static void mirror_all(world *w)
{
    kvp_cold_cursor cursor = {0};
    kvp_cold cold[64];
    int32_t blocks[64], host[64];
    uint32_t n = 0;
    assert_int_equal(kvp_cache_cold_end(w->cache, KVP_DEVICE, &cursor, cold, 64, &n), KVP_OK);
    for (uint32_t i = 0; i < n; i++)
        blocks[i] = cold[i].block;
    assert_int_equal(kvp_cache_mirror(w->cache, blocks, n, 0, host, NULL), KVP_OK);
    world_settle(w);
}

/* From then on waiting costs more than a computation. */
TEST(without_a_deadline_it_waits_as_long_as_computing_takes)
{
    kvp_spill_answer answer, answers[8];
    scoped_world w;
    world_options options = world_defaults();
    options.more.compute_tokens_s = 1000;
    const world_line line = open_stored(&w, &options);
    const kvp_prompt prompt = world_prompt(&line);
    const kvp_spill_request request = {.struct_size = sizeof request, .tag = 1};
    const uint64_t computed = /* at the rate that it has learned */
        w.now + prompt.n_tokens * UINT64_C(1000000000) / world_stats(&w).compute_tokens_s;
    assert_int_equal(kvp_spill_ask(w.spill, w.spaces[0], &prompt, &request, w.now, &answer),
                     KVP_OK);
    assert_int_equal(answer.outcome, KVP_SPILL_WAITS);
    world_work_once(&w, answers);
    world_store(&w);
    world_work_once(&w, answers); /* its gets are out */
    w.now = computed - 1001;      /* a microsecond passes with each call */
    assert_int_equal(world_work_once(&w, answers), 0);
    w.now = computed - 999;
    assert_int_equal(world_work_once(&w, answers), 1);
    assert_int_equal(answers[0].outcome, KVP_SPILL_DEADLINE);
    world_store(&w);
}

/* Nobody waits for the load any more: what is not on its way is not read. */
TEST(what_all_have_aborted_is_not_read)
{
    kvp_spill_answer answers[8];
    scoped_world w;
    world_options options = world_defaults();
    const world_line line = open_stored(&w, &options);
    world_ask_now(&w, &line, 1);
    world_ask_now(&w, &line, 2);
    world_work_once(&w, answers);
    world_store(&w);
    world_work_once(&w, answers);
    assert_int_equal(world_stats(&w).gets, 4);
    assert_int_equal(kvp_spill_abort(w.spill, 1), KVP_OK);
    assert_int_equal(kvp_spill_abort(w.spill, 2), KVP_OK);
    world_settle(&w);
    assert_fields(world_stats(&w), loaded, 4, queued_bytes, 0);
}

/* The same when the other one was answered, because its time was over. */
TEST(what_all_have_given_up_is_not_read)
{
    kvp_spill_answer answer, answers[8];
    scoped_world w;
    world_options options = world_defaults();
    const world_line line = open_stored(&w, &options);
    const kvp_prompt prompt = world_prompt(&line);
    const kvp_spill_request request = {
        .struct_size = sizeof request, .tag = 2, .deadline_ns = w.now + 100000};
    world_ask_now(&w, &line, 1);
    assert_int_equal(kvp_spill_ask(w.spill, w.spaces[0], &prompt, &request, w.now, &answer),
                     KVP_OK);
    world_work_once(&w, answers);
    world_store(&w);
    world_work_once(&w, answers);
    assert_int_equal(world_stats(&w).gets, 4);
    w.now += 100000;
    uint32_t n = 0;
    assert_int_equal(kvp_spill_work(w.spill, w.now, NULL, 0, &n), KVP_OK);
    assert_int_equal(world_stats(&w).outcomes[KVP_SPILL_DEADLINE], 1); /* not taken yet */
    assert_int_equal(kvp_spill_abort(w.spill, 1), KVP_OK);
    for (int i = 0; i < 4; i++) {
        world_store(&w);
        assert_int_equal(kvp_spill_work(w.spill, w.now, NULL, 0, &n), KVP_OK);
    }
    assert_int_equal(world_stats(&w).loaded, 4);
    assert_int_equal(world_work_once(&w, answers), 1);
    assert_fields(answers[0], tag, 2, outcome, KVP_SPILL_DEADLINE);
    world_settle(&w);
    assert_fields(world_stats(&w), loaded, 4, queued_bytes, 0);
}

/* Blocks that are to stay free are no room: as much is loaded as fits beside them. */
TEST(a_load_leaves_the_spare_blocks)
{
    for (uint32_t spare = 24; spare <= 48; spare += 8) {
        world_line line;
        scoped_world w;
        world_options options = world_defaults();
        options.host_blocks = 41; /* 40 that can be used */
        options.more.spare_blocks = spare < 40 ? spare : 39;
        options.policy = KVP_SPILL_THROUGH;
        open_world(&w, &options);
        line = line_of(&w, 64, 64, 0);
        for (int i = 0; i < 50 && world_stats(&w).written < (spare < 40 ? 8u : 0u); i++) {
            compute(&w, &line);
            world_settle(&w);
        }
        forget_cache(&w);
        const uint32_t room = 4 * (40 - options.more.spare_blocks) / 8 * 8;
        assert_int_equal(world_ask(&w, &line, 1).hit_tokens, room < 64 ? room : 64);
    }
}

/* A prompt of which nothing can be cached, because a token near its begin must not be, is not asked
 * for. */
TEST(tokens_that_must_not_be_cached_are_not_asked_for)
{
    static const int32_t uncached[] = {700, 5, 90, 6}; /* in any order */
    static const struct {
        int32_t token;
        int is_one;
    } cases[] = {{4, 0},  {5, 1},   {6, 1},   {7, 0},   {89, 0},  {90, 1},
                 {91, 0}, {699, 0}, {700, 1}, {701, 0}, {1000, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (uint32_t k = 0; k < 4; k++) {
            const uint32_t at = 7 + k % 2; /* the first record's last, or behind it */
            const uint32_t n = k < 2 ? 4 : 1;
            const int is_one = n == 4 ? cases[i].is_one : cases[i].token == uncached[0];
            scoped_world w;
            world_options options = world_defaults();
            options.uncached = uncached;
            options.n_uncached = n;
            open_world(&w, &options);
            world_line line = line_of(&w, 10, 0, 2000);
            line.tokens[at] = cases[i].token;
            world_truth(&w, &line);
            assert_int_equal(world_ask_now(&w, &line, 1).outcome,
                             is_one && at == 7 ? KVP_SPILL_NOTHING : KVP_SPILL_WAITS);
            world_settle(&w);
        }
    }
}

/* What is looked at of a prompt ends inside a key's tokens: that is loaded all the same. */
TEST(a_key_goes_on_behind_what_is_looked_at)
{
    for (uint32_t begin = 20; begin <= 36; begin += 4) {
        scoped_world w;
        world_options options = world_defaults();
        options.policy = KVP_SPILL_THROUGH;
        options.more.max_tokens = 32;
        open_world(&w, &options);
        world_line line = line_of(&w, 64, 64, 0);
        line.keys[0] =
            (kvp_key){.type = 1, .begin = begin, .end = begin + 20, .bytes = "image", .n_bytes = 5};
        line.n_keys = 1;
        world_truth(&w, &line);
        compute(&w, &line);
        world_settle(&w);
        const uint64_t written = world_stats(&w).written;
        assert_true(written >= begin / 8 && written <= 4);
        forget_cache(&w);
        assert_int_equal(world_ask(&w, &line, 1).hit_tokens, written * 8);
        assert_int_equal(compute(&w, &line).hit_tokens, written * 8);
    }
}

/* A window keeps the first tokens, too: a prefix can be had if their record is in the store, or in
 * the cache with what was hit. */
TEST(what_a_window_keeps_at_the_begin_is_needed)
{
    enum { SINKS_RECORD = 2, ALL = 14 }; /* the put of the first record of group 1 */
    static const struct {
        uint32_t sink_tokens; /* of group 1, which keeps the last 10 besides */
        uint32_t fail_at;     /* that is not stored */
        uint32_t cached;      /* tokens */
        uint32_t hit, outcome;
    } rows[] = {{3, 0, 0, 64, KVP_SPILL_LOADED},
                {3, SINKS_RECORD, 0, 0, KVP_SPILL_NOTHING},
                {8, SINKS_RECORD, 0, 0, KVP_SPILL_NOTHING},
                {3, 0, 32, 64, KVP_SPILL_LOADED},
                {8, SINKS_RECORD, 32, 64, KVP_SPILL_LOADED}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        scoped_world w;
        memset(&liar, 0, sizeof liar);
        world_options options = world_defaults();
        options.lies = 1;
        options.policy = KVP_SPILL_THROUGH;
        options.n_groups = 2;
        options.n_blocks = options.host_blocks = 128;
        options.windows[1] = (kvp_window){rows[i].sink_tokens, 10};
        open_world(&w, &options);
        const world_line line = line_of(&w, 64, 64, 0);
        const world_line first = line_of(&w, 32, 64, 0);
        liar.fail_at = rows[i].fail_at;
        compute(&w, &line);
        world_settle(&w);
        assert_int_equal(world_stats(&w).written, ALL - (rows[i].fail_at > 0));
        forget_cache(&w);
        liar.puts_fail = 1;
        if (rows[i].cached > 0)
            compute(&w, &first);
        world_settle(&w);
        const kvp_spill_answer answer = world_ask(&w, &line, 1);
        if (answer.outcome != rows[i].outcome || answer.hit_tokens != rows[i].hit)
            fail_msg("row %zu: %s, %u", i, kvp_spill_outcome_name(answer.outcome),
                     answer.hit_tokens);
        assert_int_equal(compute(&w, &line).hit_tokens, rows[i].hit);
        liar.puts_fail = 0;
    }
}

/* Half of the host may be lent, which is no room for two loads. A request waits for what another
 * one of the spill holds, and not for what others hold. */
TEST(a_load_waits_for_room_that_will_come)
{
    kvp_cold_cursor cursor = {0};
    kvp_cold cold[32];
    int32_t blocks[32];
    uint32_t n = 0;
    scoped_world w;
    world_options options = world_defaults();
    options.host_blocks = 57;
    const world_line line = open_stored(&w, &options);
    const world_line other = line_of(&w, 64, 0, 500);
    compute(&w, &other);
    world_settle(&w);
    for (uint32_t is_lent = 0; is_lent < 2; is_lent++) {
        forget_cache(&w);
        world_ask_now(&w, &line, 1);
        if (!is_lent)
            world_ask_now(&w, &other, 2);
        assert_int_equal(world_settle(&w).outcome, KVP_SPILL_LOADED);
        if (!is_lent)
            continue;
        assert_int_equal(kvp_cache_cold_end(w.cache, KVP_HOST, &cursor, cold, 32, &n), KVP_OK);
        assert_int_equal(n, 16);
        for (uint32_t i = 0; i < n; i++)
            blocks[i] = cold[i].block;
        assert_int_equal(kvp_cache_lend(w.cache, blocks, n), KVP_OK);
        const uint64_t now = w.now;
        assert_int_equal(world_ask(&w, &other, 3).outcome, KVP_SPILL_COMPUTE);
        assert_true(w.now - now < 10000000); /* at once */
        assert_int_equal(kvp_cache_give_back(w.cache, blocks, n), KVP_OK);
    }
    assert_int_equal(world_stats(&w).outcomes[KVP_SPILL_LOADED], 3);
}

/* So many that their bits need two words. The first that wants the line reads it for the others,
 * also when it has given up. */
TEST(many_requests_share_a_load)
{
    enum { ASKS = 130, STRANGERS = 70, SHARERS = ASKS - STRANGERS - 1 };
    for (int is_aborted = 0; is_aborted < 2; is_aborted++) {
        kvp_spill_answer answers[8];
        scoped_world w;
        world_options options = world_defaults();
        options.more.max_asks = ASKS;
        const world_line line = open_stored(&w, &options);
        const world_line stranger = line_of(&w, 64, 0, 500);
        for (uint32_t i = 0; i < ASKS; i++)
            assert_int_equal(world_ask_now(&w, i < STRANGERS ? &stranger : &line, i).outcome,
                             KVP_SPILL_WAITS);
        for (int i = 0; i < 50; i++) {
            world_work_once(&w, answers);
            if (i < 3) /* the questions; reads do not end */
                world_store(&w);
            const uint64_t looked = 4 * (uint64_t)i; /* at most so many prompts in a call */
            assert_int_equal(world_stats(&w).outcomes[KVP_SPILL_NOTHING],
                             looked < STRANGERS ? looked : STRANGERS);
        }
        assert_fields(world_stats(&w), waiting, SHARERS + 1, shared, SHARERS);
        if (is_aborted)
            assert_int_equal(kvp_spill_abort(w.spill, STRANGERS), KVP_OK);
        uint32_t n_calls = 0; /* that answer: four requests each */
        while (world_stats(&w).waiting > 0 && !w.verdict.is_bad) {
            world_store(&w);
            n_calls += world_work_once(&w, answers) > 0;
        }
        assert_int_equal(n_calls, (SHARERS + 4) / 4);
        assert_fields(world_stats(&w), loaded, 8, outcomes[KVP_SPILL_LOADED], SHARERS + !is_aborted,
                      outcomes[KVP_SPILL_NOTHING], STRANGERS);
    }
}

/* Their bytes are all there before the engine takes the first. */
TEST(records_that_are_moved_come_back)
{
    scoped_world w;
    world_options options = world_defaults();
    options.moves = 1;
    options.record_blocks = 3;
    options.more.max_gets = 5;
    const world_line line = open_stored(&w, &options);
    assert_int_equal(world_ask(&w, &line, 1).hit_tokens, 60);
    assert_fields(world_stats(&w), loaded, 5, loaded_bytes, 60 * sizeof(uint64_t));
    assert_int_equal(compute(&w, &line).hit_tokens, 60);
}

/* What the last load has read is not what the next one has, which fails. */
TEST(what_was_read_before_is_not_whole)
{
    for (uint32_t n_blocks = 1; n_blocks <= 4; n_blocks *= 2) {
        for (uint32_t n = 1; n <= 16 / n_blocks; n++) {
            scoped_world w;
            memset(&liar, 0, sizeof liar);
            world_options options = world_defaults();
            options.record_blocks = n_blocks;
            options.lies = 1;
            const world_line line = open_stored(&w, &options);
            assert_int_equal(world_ask(&w, &line, 1).hit_tokens, 64);
            forget_cache(&w);
            liar.fail_at = liar.n_transfers + n;
            assert_int_equal(world_ask(&w, &line, 2).hit_tokens, 4 * n_blocks * (n - 1));
            compute(&w, &line); /* and reads what was hit */
        }
    }
}

/* The blocks that a shorter prompt has loaded are none of the next one's. */
TEST(what_was_loaded_before_is_not_read)
{
    for (uint32_t n = 8; n <= 32; n += 24) {
        scoped_world w;
        world_options options = world_defaults();
        options.windows[0].recent_tokens = 10;
        const world_line line = open_stored(&w, &options);
        const world_line part = line_of(&w, n, 64, 0);
        assert_int_equal(world_ask(&w, &part, 1).hit_tokens, n);
        assert_int_equal(world_stats(&w).loaded, n == 8 ? 1 : 2);
        forget_cache(&w);
        assert_int_equal(world_ask(&w, &line, 2).hit_tokens, 64);
        assert_fields(world_stats(&w), loaded, n == 8 ? 1 + 2 : 2 + 2, load_failed, 0);
        assert_int_equal(compute(&w, &line).hit_tokens, 64);
    }
}

/* Each has its own tokens, keys and blocks; the store has every second one. */
TEST(requests_at_once_do_not_meet)
{
    enum { LINES = 8, STORED = LINES / 2 };
    static const char *const images[LINES] = {"ant", "bee", "cat", "dog",
                                              "eel", "fox", "gnu", "hen"};
    static world_line lines[LINES];
    scoped_world w;
    world_options options = world_defaults();
    options.n_blocks = options.host_blocks = 300;
    options.policy = KVP_SPILL_THROUGH;
    open_world(&w, &options);
    for (uint32_t i = 0; i < LINES; i++) {
        lines[i] = line_of(&w, 64, 0, 1000 * (int32_t)i);
        lines[i].n_keys = WORLD_KEYS;
        for (uint32_t k = 0; k < WORLD_KEYS; k++)
            lines[i].keys[k] = (kvp_key){.type = k,
                                         .begin = 12 * k + i,
                                         .end = 12 * k + i + 1,
                                         .n_bytes = 3,
                                         .bytes = images[(i + k) % LINES]};
        world_truth(&w, &lines[i]);
        if (i % 2 == 0)
            compute(&w, &lines[i]);
    }
    assert_int_equal(world_stats(&w).puts, 8 * STORED);
    world_settle(&w);
    assert_int_equal(world_stats(&w).written, 8 * STORED);
    forget_cache(&w);
    for (uint32_t i = 0; i < LINES; i++)
        assert_int_equal(world_ask_now(&w, &lines[i], i).outcome, KVP_SPILL_WAITS);
    world_settle(&w);
    assert_fields(world_stats(&w), loaded, 8 * STORED, outcomes[KVP_SPILL_LOADED], STORED,
                  load_failed, 0);
    for (uint32_t i = 0; i < LINES; i++)
        assert_int_equal(compute(&w, &lines[i]).hit_tokens, i % 2 == 0 ? 64 : 0);
}

/* The bytes of keys are the caller's: others stand there when the request is answered, or when the
 * record is written. */
TEST(keys_are_copied)
{
    char image[2][4] = {"cat", "dog"};
    world_line lines[2];
    scoped_world w;
    world_options options = world_defaults();
    options.policy = KVP_SPILL_THROUGH;
    open_world(&w, &options);
    for (int i = 0; i < 2; i++) {
        lines[i] = line_of(&w, 16, 16, 0);
        lines[i].n_keys = 2;
        for (uint32_t k = 0; k < 2; k++)
            lines[i].keys[k] = (kvp_key){
                .type = 1, .begin = 5 + 8 * k, .end = 6 + 8 * k, .n_bytes = 3, .bytes = image[i]};
        world_truth(&w, &lines[i]);
        compute(&w, &lines[i]);
    }
    assert_int_equal(world_stats(&w).puts, 4);
    world_settle(&w);
    forget_cache(&w);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(world_ask_now(&w, &lines[i], 1).outcome, KVP_SPILL_WAITS);
        image[i][0] = 'x';
        assert_int_equal(world_settle(&w).hit_tokens, 16);
        image[i][0] = "cd"[i];
        assert_int_equal(compute(&w, &lines[i]).hit_tokens, 16);
    }
}

/* While something is read, or written: the spill says so, and goes on. */
TEST(a_cache_that_was_reset_is_noticed)
{
    for (int writes = 0; writes < 2; writes++) {
        kvp_spill_answer answers[8];
        uint32_t n = 0;
        world w;
        world_options options = world_defaults();
        const world_line line = open_stored(&w, &options);
        const world_line other = line_of(&w, 64, 0, 500);
        if (writes) {
            compute(&w, &other);
            world_work_once(&w, answers);
            assert_int_equal(world_stats(&w).puts, 8);
        } else {
            world_ask_now(&w, &line, 1);
            world_work_once(&w, answers);
            world_store(&w);
            world_work_once(&w, answers);
            assert_int_equal(world_stats(&w).gets, 4);
        }
        assert_int_equal(kvp_cache_reset(w.cache), KVP_OK);
        assert_int_equal(kvp_spill_work(w.spill, w.now, answers, 8, &n), KVP_OK);
        for (int i = 0; i < 4; i++) {
            world_store(&w);
            const kvp_status status = kvp_spill_work(w.spill, w.now, answers, 8, &n);
            assert_true(i < 2 || status == KVP_E_CORRUPT);
        }
        assert_int_equal(world_stats(&w).waiting, 0);
        world_close(&w);
        assert_good(&w);
    }
}

/* The cache has closed the namespace meanwhile, and did not tell. */
TEST(a_namespace_that_is_closed_has_nothing)
{
    kvp_spill_answer answers[8];
    scoped_world w;
    world_options options = world_defaults();
    options.policy = KVP_SPILL_THROUGH;
    open_world(&w, &options);
    world_line line = line_of(&w, 64, 64, 0);
    line.space = 1;
    world_truth(&w, &line);
    compute(&w, &line);
    world_settle(&w);
    forget_cache(&w);
    assert_int_equal(world_ask_now(&w, &line, 1).outcome, KVP_SPILL_WAITS);
    assert_int_equal(world_work_once(&w, answers), 0);
    world_store(&w);
    assert_int_equal(kvp_ns_close(w.cache, w.spaces[1]), KVP_OK);
    assert_int_equal(world_work_once(&w, answers), 1);
    assert_fields(answers[0], outcome, KVP_SPILL_NOTHING, hit_tokens, 0, more_tokens, 0);
    assert_fields(world_stats(&w), decided_all, 0, decided_none, 0, loaded, 0);
}

/* What is counted of a request. */
TEST(tokens_are_counted_where_they_are)
{
    scoped_world w;
    world_options options = world_defaults();
    const world_line line = open_stored(&w, &options);
    const world_line longer = line_of(&w, 70, 64, 900);
    const kvp_spill_stats before = world_stats(&w);
    assert_fields(before, asked, 0, asked_tokens, 0, device_tokens, 0, host_tokens, 0);
    assert_int_equal(world_ask(&w, &line, 1).more_tokens, 64);
    assert_fields(world_stats(&w), asked_tokens, 64, device_tokens, 0, host_tokens, 0, store_tokens,
                  64, decided_all, 1);
    assert_int_equal(world_ask(&w, &longer, 2).outcome, KVP_SPILL_NOTHING);
    assert_fields(world_stats(&w), asked, 2, asked_tokens, 64 + 70, device_tokens, 0, host_tokens,
                  64, store_tokens, 64);
    compute(&w, &line);
    assert_int_equal(world_ask(&w, &longer, 3).outcome, KVP_SPILL_NOTHING);
    assert_fields(world_stats(&w), asked, 3, asked_tokens, 64 + 2 * 70, device_tokens, 64,
                  host_tokens, 64, outcomes[KVP_SPILL_NOTHING], 2);
    assert_fields(world_stats(&w), decided_all, 1, decided_part, 0, decided_none, 0, store_tokens,
                  64);
}

/* The host is full. The prompt needs 6 blocks of each group: nothing is evicted for it unless there
 * is room for both. */
TEST(a_load_without_room_evicts_nothing)
{
    enum { NEED = 12, LENT = 32, USABLE = 64 };
    static const struct {
        uint32_t n_lent, spare_blocks;
        int is_loaded;
    } rows[] = {{LENT - NEED, 0, 1},
                {LENT - NEED + 1, 0, 0},
                {10, USABLE - 10 - NEED, 1},
                {10, USABLE - 10 - NEED + 1, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kvp_cold_cursor cursor = {0};
        kvp_cold cold[LENT];
        int32_t blocks[LENT];
        kvp_stats before, after;
        uint32_t n = 0;
        scoped_world w;
        world_options options = world_defaults();
        options.n_groups = 2;
        options.n_blocks = 200;
        options.host_blocks = USABLE + 1;
        options.policy = KVP_SPILL_THROUGH;
        options.more.spare_blocks = rows[i].spare_blocks;
        open_world(&w, &options);
        const world_line line = line_of(&w, 24, 24, 0);
        compute(&w, &line);
        world_settle(&w);
        forget_cache(&w);
        for (int32_t k = 1; k <= 8; k++) {
            const world_line other = line_of(&w, 16, 0, 1000 * k);
            compute(&w, &other);
            mirror_all(&w);
        }
        assert_int_equal(kvp_cache_cold_end(w.cache, KVP_HOST, &cursor, cold, rows[i].n_lent, &n),
                         KVP_OK);
        assert_int_equal(n, rows[i].n_lent);
        for (uint32_t k = 0; k < n; k++)
            blocks[k] = cold[k].block;
        assert_int_equal(kvp_cache_lend(w.cache, blocks, n), KVP_OK);
        assert_int_equal(kvp_cache_stats_get(w.cache, &before), KVP_OK);
        assert_fields(before, host_free_blocks, 0, host_cached_blocks, USABLE - n);
        assert_int_equal(world_ask(&w, &line, 1).outcome,
                         rows[i].is_loaded ? KVP_SPILL_LOADED : KVP_SPILL_COMPUTE);
        assert_int_equal(kvp_cache_stats_get(w.cache, &after), KVP_OK);
        assert_fields(after, host_free_blocks, 0, host_cached_blocks, USABLE - n,
                      host_evicted_blocks,
                      before.host_evicted_blocks + (rows[i].is_loaded ? NEED : 0));
        assert_int_equal(kvp_cache_give_back(w.cache, blocks, n), KVP_OK);
    }
}

/* 64 tokens take a second to compute, and as long to load. */
TEST(each_record_that_is_read_costs_its_bytes)
{
    static const struct {
        kvp_window window; /* of group 1 */
        uint32_t cached;   /* tokens */
        uint32_t n_records;
    } rows[] = {{{0, 0}, 0, 16},  {{3, 10}, 0, 8 + 1 + 2},   {{17, 10}, 0, 8 + 3 + 2},
                {{0, 0}, 32, 8},  {{17, 10}, 32, 4 + 2},     {{0, 30}, 32, 4 + 4},
                {{0, 30}, 0, 12}, {{KVP_CHUNKED, 24}, 0, 10}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (uint32_t is_slow = 0; is_slow < 2; is_slow++) {
            scoped_world w;
            world_options options = world_defaults();
            const uint32_t n_tokens = 64 - rows[i].cached;
            options.n_groups = 2;
            options.n_blocks = options.host_blocks = 128;
            options.windows[1] = rows[i].window;
            options.more.compute_tokens_s = n_tokens;
            options.more.load_bytes_s = 64 * rows[i].n_records - is_slow;
            const world_line line = open_stored(&w, &options);
            const world_line first = line_of(&w, 32, 64, 0);
            if (rows[i].cached > 0)
                compute(&w, &first);
            world_settle(&w);
            const uint32_t outcome = world_ask(&w, &line, 1).outcome;
            if (outcome != (is_slow ? KVP_SPILL_COMPUTE : KVP_SPILL_LOADED))
                fail_msg("row %zu: %s", i, kvp_spill_outcome_name(outcome));
            assert_int_equal(world_stats(&w).loaded, is_slow ? 0 : rows[i].n_records);
        }
    }
}

/* As many groups, and tokens, as there can be. */
TEST(the_largest_prompt_comes_back)
{
    scoped_world w;
    world_options options = world_defaults();
    options.n_groups = KVP_GROUPS_MAX;
    for (uint32_t g = 1; g < KVP_GROUPS_MAX; g++)
        options.windows[g] = (kvp_window){g, 10 * g};
    options.n_blocks = options.host_blocks = 1600;
    options.url = "memory:?size=16MiB";
    options.more.max_puts = 1000;
    options.policy = KVP_SPILL_THROUGH;
    open_world(&w, &options);
    const world_line line = line_of(&w, WORLD_TOKENS, WORLD_TOKENS, 0);
    compute(&w, &line);
    world_settle(&w);
    forget_cache(&w);
    assert_int_equal(world_ask(&w, &line, 1).hit_tokens, WORLD_TOKENS);
    assert_int_equal(compute(&w, &line).hit_tokens, WORLD_TOKENS);
}

/* What waits for its copies gives room when it ends; what others hold is not waited for. */
TEST(a_load_waits_for_a_put_that_waits)
{
    kvp_cold_cursor cursor = {0};
    kvp_cold cold[32];
    int32_t blocks[32];
    kvp_spill_answer answers[8];
    uint32_t n = 0;
    scoped_world w;
    world_options options = world_defaults();
    options.host_blocks = 57; /* 28 are lent at once */
    const world_line line = open_stored(&w, &options);
    const world_line other = line_of(&w, 64, 0, 500);
    const world_line small = line_of(&w, 8, 0, 700);
    compute(&w, &other);
    world_settle(&w);
    assert_int_equal(kvp_cache_cold_end(w.cache, KVP_HOST, &cursor, cold, 32, &n), KVP_OK);
    assert_int_equal(n, 16);
    for (uint32_t i = 0; i < n; i++)
        blocks[i] = cold[i].block;
    assert_int_equal(kvp_cache_lend(w.cache, blocks, n), KVP_OK);
    w.is_lazy = true;
    compute(&w, &small);
    assert_int_equal(world_stats(&w).puts, 1);
    world_ask_now(&w, &line, 1);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(world_work_once(&w, answers), 0);
        world_store(&w);
    }
    assert_fields(world_stats(&w), waiting, 1, puts, 1);
    assert_int_equal(world_settle(&w).outcome, KVP_SPILL_COMPUTE);
    assert_int_equal(kvp_cache_give_back(w.cache, blocks, n), KVP_OK);
}

/* What a prompt may not hit is not asked for. */
TEST(what_cannot_be_hit_is_not_loaded)
{
    scoped_world w;
    world_options options = world_defaults();
    options.more.min_tokens = 64; /* all of it, and not less */
    const world_line line = open_stored(&w, &options);
    const kvp_range uncached = {8, 9};
    kvp_prompt prompt = world_prompt(&line);
    kvp_spill_request request = {.struct_size = sizeof request, .deadline_ns = w.now};
    const struct {
        uint32_t flags, n_uncached;
        uint64_t deadline_ns;
        uint32_t outcome;
    } cases[] = {{KVP_OPEN_NO_MATCH, 0, UINT64_MAX, KVP_SPILL_NOTHING},
                 {KVP_OPEN_DEVICE_ONLY, 0, UINT64_MAX, KVP_SPILL_NOTHING},
                 {0, 1, UINT64_MAX, KVP_SPILL_COMPUTE},
                 {0, 0, w.now, KVP_SPILL_DEADLINE},
                 {0, 0, UINT64_MAX, KVP_SPILL_WAITS}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kvp_spill_answer answer;
        prompt.flags = cases[i].flags;
        prompt.uncached = &uncached;
        prompt.n_uncached = cases[i].n_uncached;
        request.deadline_ns = cases[i].deadline_ns;
        assert_int_equal(kvp_spill_ask(w.spill, w.spaces[0], &prompt, &request, w.now, &answer),
                         KVP_OK);
        assert_int_equal(answer.outcome, cases[i].outcome);
    }
    assert_int_equal(world_settle(&w).outcome, KVP_SPILL_LOADED);
}

/* ---------------------------------------------------------------------- blocks of several sizes */

/* T is 16: a record of the first group is a block of 16 tokens, of the second 2 of 8; of the third
 * the last 3 of 2 tokens, which its window needs. Chunks have 12 tokens. */
static world_line open_sizes(world *w)
{
    world_options options = world_defaults();
    options.unit_tokens = 2;
    options.record_blocks = 4;
    options.n_groups = 3;
    options.group_tokens[0] = 16;
    options.group_tokens[1] = 8;
    options.group_tokens[2] = 2;
    options.windows[2].recent_tokens = 6;
    options.group_blocks[2] = 3;
    options.n_blocks = options.host_blocks = 200;
    return open_stored(w, &options);
}

/* Of the window, a record is written if a chunk ends with it: at 48 and 64. */
TEST(records_of_several_sizes_come_back)
{
    scoped_world w;
    const world_line line = open_sizes(&w);
    assert_int_equal(world_stats(&w).written, 2 * 4 + 2);
    assert_int_equal(world_ask(&w, &line, 1).hit_tokens, 64);
    assert_int_equal(world_stats(&w).loaded, 2 * 4 + 1);
    assert_int_equal(world_stats(&w).loaded_bytes, (2 * 64 + 6) * sizeof(uint64_t));
    assert_int_equal(compute(&w, &line).hit_tokens, 64);
}

/* The second prompt parts inside a block of each group. */
TEST(a_prefix_of_several_sizes_ends_where_each_has_what_it_keeps)
{
    scoped_world w;
    (void)open_sizes(&w);
    const world_line early = line_of(&w, 60, 45, 900);
    assert_int_equal(world_ask(&w, &early, 1).outcome, KVP_SPILL_NOTHING);
    const world_line late = line_of(&w, 60, 53, 900);
    assert_int_equal(world_ask(&w, &late, 2).hit_tokens, 48);
    assert_int_equal(world_stats(&w).loaded, 2 * 3 + 1);
    assert_int_equal(compute(&w, &late).hit_tokens, 48);
    world_settle(&w);
    const world_line again = line_of(&w, 60, 60, 0); /* parts from that one after 53 */
    assert_int_equal(world_ask(&w, &again, 3).outcome, KVP_SPILL_NOTHING);
    assert_int_equal(compute(&w, &again).hit_tokens, 52);
}

TEST_MAIN(NULL, NULL)
