/* Recurrent state in a spill: what is written and loaded, and what holds a slot meanwhile. */
#include "liar.h"
#include "scenes.h"

#include <stdio.h>

enum { RECORD = 8 };

/* An honest liar, and the least world with states: a chunk has 12 tokens, a record 8. */
static world_options begin(void)
{
    memset(&liar, 0, sizeof liar);
    world_options options = world_defaults();
    options.lies = 1;
    options.policy = KVP_SPILL_THROUGH;
    options.state_slots = 40;
    options.host_state_slots = 8;
    return options;
}

/* The store has the KV of `line`, 64 tokens, and the states after 24, 48 and 64. */
static world_line open_stored_states(world *w, world_options *options)
{
    options->keep_rate = 100;
    open_world(w, options);
    const world_line line = line_of(w, 64, 64, 0);
    compute(w, &line);
    world_settle(w);
    forget_cache(w);
    return line;
}

static uint64_t open_seqs(const world *w)
{
    kvp_stats stats;
    assert_int_equal(kvp_cache_stats_get(w->cache, &stats), KVP_OK);
    return stats.open_seqs;
}

/* ------------------------------------------------------------------------------- what is loaded */

TEST(a_state_comes_back_after_a_restart)
{
    scoped_world w;
    world_options options = begin();
    open_world(&w, &options);
    const world_line line = line_of(&w, 35, 35, 0); /* the state at 32 is kept */
    compute(&w, &line);
    world_settle(&w);
    assert_fields(world_stats(&w), written, 5, states_written, 1);
    forget_cache(&w);
    const kvp_spill_answer answer = world_ask(&w, &line, 5);
    assert_fields(answer, outcome, KVP_SPILL_LOADED, hit_tokens, 32);
    assert_int_equal(compute(&w, &line).hit_tokens, 32);
    assert_fields(world_stats(&w), loaded, 5, states_loaded, 1);
    world_settle(&w);
    assert_int_equal(world_stats(&w).written, 5); /* not again */
    assert_int_equal(world_ask(&w, &line, 6).outcome, KVP_SPILL_NOTHING);
}

/* KV behind the state is not read: nobody could hit it. */
TEST(a_load_ends_at_the_deepest_state)
{
    scoped_world w;
    world_options options = begin();
    const world_line line = open_stored_states(&w, &options);
    assert_int_equal(world_stats(&w).written, 64 / RECORD + 3);
    assert_int_equal(world_ask(&w, &line, 1).hit_tokens, 48); /* the last token is computed */
    assert_int_equal(world_stats(&w).loaded, 48 / RECORD + 1);
    const world_line longer = line_of(&w, 70, 64, 900);
    assert_int_equal(world_ask(&w, &longer, 2).hit_tokens, 64);
    assert_int_equal(world_stats(&w).loaded, 64 / RECORD + 2); /* two records, and a state */
    assert_int_equal(compute(&w, &longer).hit_tokens, 64);
}

TEST(kv_without_a_state_is_nothing)
{
    scoped_world w;
    world_options options = begin();
    open_world(&w, &options);
    const world_line line = line_of(&w, 64, 64, 0); /* only the state at 60 is kept */
    compute(&w, &line);
    world_settle(&w);
    assert_fields(world_stats(&w), written, 64 / RECORD, states_left_out, 0);
    forget_cache(&w);
    assert_int_equal(world_ask(&w, &line, 1).outcome, KVP_SPILL_NOTHING);
    compute(&w, &line);
}

/* The cache has the KV still, and other prompts took the slot of the state. */
TEST(a_state_comes_to_its_kv)
{
    scoped_world w;
    world_options options = begin();
    options.state_slots = 4;
    options.n_blocks = 200;
    open_world(&w, &options);
    const world_line line = line_of(&w, 35, 35, 0);
    compute(&w, &line);
    world_settle(&w);
    for (int32_t i = 0; i < 4; i++) {
        const world_line other = line_of(&w, 20, 0, 1000 * (i + 1));
        compute(&w, &other);
        world_settle(&w);
    }
    const kvp_prompt prompt = world_prompt(&line);
    kvp_open_info info;
    assert_int_equal(kvp_cache_match(w.cache, w.spaces[0], &prompt, &info), KVP_OK);
    assert_fields(info, hit_tokens, 0, stop_group, 1);
    assert_int_equal(world_ask(&w, &line, 1).hit_tokens, 32);
    assert_fields(world_stats(&w), loaded, 1, states_loaded, 1);
    assert_int_equal(compute(&w, &line).hit_tokens, 32);
}

/* In a group with a window the state depends on no record. */
TEST(a_state_of_windows_stands_alone)
{
    scoped_world w;
    world_options options = begin();
    options.windows[0].recent_tokens = 6;
    open_world(&w, &options);
    const world_line line = line_of(&w, 35, 35, 0);
    compute(&w, &line);
    world_settle(&w);
    assert_int_equal(world_stats(&w).states_written, 1);
    forget_cache(&w);
    assert_int_equal(world_ask(&w, &line, 1).hit_tokens, 32);
    assert_int_equal(world_stats(&w).loaded, 2); /* the last record, and the state */
    assert_int_equal(compute(&w, &line).hit_tokens, 32);
}

/* It depends on the record of the first group without a window, whichever that is. */
TEST(a_state_has_the_parent_that_it_can_have)
{
    for (uint32_t windows = 0; windows < 8; windows++) {
        const uint32_t n_full = 3 - (windows & 1) - (windows >> 1 & 1) - (windows >> 2);
        scoped_world w;
        world_options options = begin();
        options.n_groups = 3;
        options.n_blocks = options.host_blocks = 150;
        for (uint32_t g = 0; g < 3; g++)
            options.windows[g].recent_tokens = windows >> g & 1 ? 6 : 0;
        open_world(&w, &options);
        const world_line line = line_of(&w, 35, 35, 0);
        compute(&w, &line);
        world_settle(&w);
        assert_int_equal(world_stats(&w).states_written, 1);
        forget_cache(&w);
        assert_int_equal(world_ask(&w, &line, 1).hit_tokens, 32);
        assert_fields(world_stats(&w), loaded, 4 * n_full + (3 - n_full) + 1, load_failed, 0);
        assert_int_equal(compute(&w, &line).hit_tokens, 32);
    }
}

/* 256 bytes of KV and 24 of a state for 32 tokens: with the state, loading is slower. */
TEST(the_bytes_of_a_state_count)
{
    for (uint64_t rate = 270; rate <= 290; rate += 20) {
        scoped_world w;
        world_options options = begin();
        options.more.load_bytes_s = rate;
        options.more.compute_tokens_s = 32;
        open_world(&w, &options);
        const world_line line = line_of(&w, 35, 35, 0);
        compute(&w, &line);
        world_settle(&w);
        forget_cache(&w);
        assert_int_equal(world_ask(&w, &line, 1).outcome,
                         rate < 280 ? KVP_SPILL_COMPUTE : KVP_SPILL_LOADED);
        compute(&w, &line);
    }
}

/* A state waits for KV that another request loads, in whatever order the reads end. */
TEST(a_state_waits_for_the_kv_of_others)
{
    for (uint64_t seed = 1; seed <= 40; seed++) {
        kvp_spill_answer answers[8];
        scoped_world w;
        world_options options = begin();
        options.more.max_gets = 20;
        const world_line line = open_stored_states(&w, &options);
        const world_line longer = line_of(&w, 70, 64, 900);
        liar.random = seed;
        liar.delay = 60;
        world_ask_now(&w, &longer, 1);
        world_ask_now(&w, &line, 2); /* its KV is being loaded, and its state is not */
        for (int i = 0; i < 400; i++) {
            assert_int_equal(kvp_store_work(w.store, NULL), KVP_OK); /* ends some, in any order */
            world_take(&w);
            world_run(&w);
            world_work_once(&w, answers);
        }
        assert_fields(world_stats(&w), waiting, 0, outcomes[KVP_SPILL_LOADED], 2);
        liar.delay = 0;
        assert_int_equal(world_stats(&w).loaded, 64 / RECORD + 2);
        assert_int_equal(compute(&w, &longer).hit_tokens, 64);
        assert_int_equal(compute(&w, &line).hit_tokens, 48);
    }
}

/* 11 puts, and 7 gets. What a state depends on is written again. */
TEST(a_transfer_that_fails_costs_a_computation)
{
    uint64_t n_failed = 0;
    for (uint32_t n = 1; n <= 64 / RECORD + 3 + 48 / RECORD + 1; n++) {
        scoped_world w;
        world_options options = begin();
        liar.fail_at = n;
        const world_line line = open_stored_states(&w, &options);
        const kvp_spill_answer answer = world_ask(&w, &line, 1);
        assert_true(answer.outcome == KVP_SPILL_LOADED || answer.hit_tokens == 0);
        assert_true(answer.hit_tokens == 0 || answer.hit_tokens == 24 || answer.hit_tokens == 48);
        n_failed += world_stats(&w).load_failed;
        assert_int_equal(compute(&w, &line).hit_tokens, answer.hit_tokens);
        world_settle(&w);
        forget_cache(&w);
        /* It was written again, but for a state that came, and waits for KV before it. */
        assert_true(world_ask(&w, &line, 2).hit_tokens >= (n == 16 ? 24 : n == 17 ? 40 : 48));
        compute(&w, &line);
    }
    assert_int_equal(n_failed, 48 / RECORD + 1);
}

/* The state of the load before was read to the same place. */
TEST(a_state_that_was_read_before_is_not_whole)
{
    for (uint32_t n = 1; n <= 2; n++) { /* KV and a state */
        scoped_world w;
        world_options options = begin();
        options.record_blocks = 1;
        options.keep_rate = 100;
        open_world(&w, &options);
        const world_line line = line_of(&w, 4, 64, 0), longer = line_of(&w, 7, 64, 0);
        compute(&w, &line);
        world_settle(&w);
        forget_cache(&w);
        assert_int_equal(world_ask(&w, &longer, 1).hit_tokens, 4);
        forget_cache(&w);
        liar.fail_at = liar.n_transfers + n;
        assert_int_equal(world_ask(&w, &longer, 2).outcome, KVP_SPILL_FAILED);
        assert_int_equal(compute(&w, &longer).hit_tokens, 0);
    }
}

/* ------------------------------------------------------------------------------ what is written */

TEST(only_a_state_that_is_hit_is_written)
{
    scoped_world w;
    world_options options = begin();
    options.policy = KVP_SPILL_SECOND;
    open_world(&w, &options);
    const world_line line = line_of(&w, 35, 35, 0);
    compute(&w, &line);
    world_settle(&w);
    assert_int_equal(world_stats(&w).written, 0);
    assert_int_equal(compute(&w, &line).hit_tokens, 32);
    world_settle(&w);
    assert_fields(world_stats(&w), written, 5, states_written, 1);
}

/* A sequence holds the slot until the copy has run, and no longer. */
TEST(a_slot_is_held_until_it_is_copied)
{
    kvp_spill_answer answers[8];
    kvp_open_info info;
    kvp_seq seq;
    const int32_t *row;
    int32_t host[8];
    uint32_t n_row;
    scoped_world w;
    world_options options = begin();
    options.policy = KVP_SPILL_SECOND;
    open_world(&w, &options);
    const world_line line = line_of(&w, 35, 35, 0);
    const kvp_prompt prompt = world_prompt(&line);
    compute(&w, &line);
    assert_int_equal(kvp_seq_open(w.cache, w.spaces[0], &prompt, &seq, &info), KVP_OK);
    assert_int_equal(kvp_seq_row(w.cache, seq, 0, &row, &n_row), KVP_OK);
    assert_int_equal(kvp_cache_mirror(w.cache, row, 8, 0, host, NULL),
                     KVP_OK); /* no copy of KV waits */
    world_take(&w);
    world_run(&w);
    assert_int_equal(kvp_spill_hit(w.spill, seq, 32, w.now), KVP_OK);
    assert_int_equal(open_seqs(&w), 2);
    assert_int_equal(kvp_seq_close(w.cache, seq, NULL), KVP_OK);
    for (int i = 0; i < 3; i++) {
        world_store(&w);
        world_work_once(&w, answers);
        assert_int_equal(open_seqs(&w), 1);
        assert_int_equal(world_stats(&w).states_written, 0);
        world_take(&w); /* the copy is known from now on, and has not run */
    }
    world_run(&w);
    world_work_once(&w, answers);
    assert_int_equal(open_seqs(&w), 0);
    for (int32_t i = 0; i < 10; i++) { /* the slot becomes another's */
        const world_line other = line_of(&w, 35, 0, 1000 * (i + 1));
        compute(&w, &other);
    }
    world_settle(&w);
    assert_int_equal(world_stats(&w).states_written, 1);
    forget_cache(&w);
    assert_int_equal(world_ask(&w, &line, 1).hit_tokens, 32);
    assert_int_equal(compute(&w, &line).hit_tokens, 32);
}

/* Before its copy runs, or while the store writes it. */
TEST(an_invalidated_state_is_not_kept)
{
    for (int is_late = 0; is_late < 2; is_late++) {
        kvp_spill_answer answers[8];
        kvp_open_info info;
        kvp_seq seq;
        scoped_world w;
        world_options options = begin();
        options.keep_rate = 100;
        open_world(&w, &options);
        const world_line line = line_of(&w, 35, 35, 0); /* states at 24 and 32 */
        assert_int_equal(world_compute(&w, &line, &seq, &info), KVP_OK);
        if (is_late)
            world_work_once(&w, answers);
        assert_int_equal(world_stats(&w).puts, 6);
        assert_int_equal(kvp_seq_invalidate(w.cache, seq, 24, NULL, 0, NULL), KVP_OK);
        assert_int_equal(kvp_seq_close(w.cache, seq, NULL), KVP_OK);
        world_settle(&w);
        assert_fields(world_stats(&w), taken_back, is_late ? 2 : 0, lost, is_late ? 0 : 2);
        assert_int_equal(open_seqs(&w), 0);
        forget_cache(&w);
        assert_int_equal(world_ask(&w, &line, 1).hit_tokens, 24);
        compute(&w, &line);
    }
}

/* What is left out is offered again when it is hit. */
TEST(a_state_without_a_place_is_left_out)
{
    scoped_world w;
    world_options options = begin();
    options.keep_rate = 100;
    options.more.max_states = 1;
    open_world(&w, &options);
    const world_line line = line_of(&w, 64, 64, 0); /* states at 24, 48 and 64 */
    compute(&w, &line);
    assert_true(world_stats(&w).states_left_out >= 2);
    assert_int_equal(world_stats(&w).no_place, world_stats(&w).states_left_out);
    world_settle(&w);
    assert_int_equal(world_stats(&w).states_written, 1);
    const world_line other = line_of(&w, 60, 48, 900);
    assert_int_equal(compute(&w, &other).hit_tokens, 48);
    world_settle(&w);
    assert_int_equal(world_stats(&w).states_written, 2);
    forget_cache(&w);
    assert_int_equal(world_ask(&w, &line, 1).hit_tokens, 48);
    compute(&w, &line);
}

/* The engine has all sequences: KV is written, states are not. */
TEST(a_state_takes_no_sequence_that_is_not_there)
{
    kvp_open_info info;
    kvp_seq seqs[15];
    scoped_world w;
    world_options options = begin();
    open_world(&w, &options);
    for (int32_t i = 0; i < 15; i++) {
        const world_line other = line_of(&w, 3, 0, 1000 * (i + 1));
        assert_int_equal(world_compute(&w, &other, &seqs[i], &info), KVP_OK);
    }
    const world_line line = line_of(&w, 35, 35, 0);
    compute(&w, &line);
    world_settle(&w);
    assert_int_equal(world_stats(&w).written, 4);
    assert_int_equal(world_stats(&w).states_left_out, 2); /* it was reported twice */
    assert_int_equal(world_stats(&w).no_block, 2);
    for (int i = 0; i < 15; i++)
        assert_int_equal(kvp_seq_close(w.cache, seqs[i], NULL), KVP_OK);
    compute(&w, &line);
    world_settle(&w);
    assert_int_equal(world_stats(&w).states_written, 1);
}

TEST(a_state_over_the_budget_is_left_out)
{
    scoped_world w;
    world_options options = begin();
    options.more.put_bytes_day = 4 * 64 + 23;
    open_world(&w, &options);
    const world_line line = line_of(&w, 35, 35, 0);
    compute(&w, &line);
    world_settle(&w);
    assert_int_equal(world_stats(&w).written, 4);
    assert_true(world_stats(&w).states_left_out > 0);
    assert_int_equal(world_stats(&w).over_budget, world_stats(&w).states_left_out);
}

static void flush_states(world *w)
{
    flush_all(w);
    assert_int_equal(open_seqs(w), 0);
}

/* No sequence is open by then. */
TEST(the_last_flush_writes_states)
{
    scoped_world w;
    world_options options = begin();
    options.policy = KVP_SPILL_SECOND;
    options.keep_rate = 100;
    options.more.max_states = 1;
    open_world(&w, &options);
    const world_line line = line_of(&w, 35, 35, 0);
    const world_line other = line_of(&w, 70, 8, 900);
    compute(&w, &line);
    compute(&w, &other);
    flush_states(&w);
    assert_int_equal(world_stats(&w).states_written, 5); /* 24, 32; 8, 32, 56 */
    forget_cache(&w);
    assert_int_equal(world_ask(&w, &line, 1).hit_tokens, 32);
    assert_int_equal(world_ask(&w, &other, 2).hit_tokens, 56);
    compute(&w, &line);
    compute(&w, &other);
}

/* --------------------------------------------------------------------------- what must not come */

/* KV and states were wrong from token 40 on. What is computed again is stored, and comes back. */
TEST(a_drop_takes_states)
{
    for (int is_flat = 0; is_flat < 2; is_flat++) {
        scoped_world w;
        world_options options = begin();
        options.keep_rate = 100;
        liar.is_flat = is_flat;
        open_world(&w, &options);
        const world_line line = line_of(&w, 64, 64, 0);
        const kvp_prompt prompt = world_prompt(&line);
        world_line wrong = line;
        for (uint32_t p = 40; p < 64; p++)
            wrong.kv[p] ^= 1;
        compute(&w, &wrong);
        world_settle(&w);
        forget_cache(&w);
        assert_int_equal(kvp_spill_drop(w.spill, w.spaces[0], &prompt, 40, w.now), KVP_OK);
        world_settle(&w);
        assert_int_equal(world_stats(&w).drops, 0);
        assert_int_equal(world_ask(&w, &line, 1).hit_tokens, 24);
        compute(&w, &line);
        world_settle(&w);
        forget_cache(&w);
        assert_int_equal(world_ask(&w, &line, 2).hit_tokens, 48);
        assert_int_equal(compute(&w, &line).hit_tokens, 48);
    }
}

/* A state of other tokens goes on behind KV that is dropped: with the KV it goes, too. */
TEST(a_state_goes_with_its_kv)
{
    scoped_world w;
    world_options options = begin();
    const world_line line = open_stored_states(&w, &options);
    const world_line other = line_of(&w, 64, 48, 900);
    assert_int_equal(world_ask(&w, &other, 1).hit_tokens, 48);
    compute(&w, &other); /* the state at 64 is another one */
    world_settle(&w);
    forget_cache(&w);
    const kvp_prompt prompt = world_prompt(&line);
    assert_int_equal(kvp_spill_drop(w.spill, w.spaces[0], &prompt, 30, w.now), KVP_OK);
    world_settle(&w);
    const world_line longer = line_of(&w, 70, 64, 0);
    kvp_store_stats stats;
    assert_int_equal(kvp_store_stats_get(w.store, &stats), KVP_OK);
    assert_int_equal(stats.records, 24 / RECORD + 1);
    assert_int_equal(world_ask(&w, &longer, 2).hit_tokens, 24);
    compute(&w, &longer);
}

TEST(an_epoch_hides_states)
{
    scoped_world w;
    world_options options = begin();
    world_line line = open_stored_states(&w, &options);
    world_flush(&w, 0);
    world_truth(&w, &line);
    assert_int_equal(world_ask(&w, &line, 1).outcome, KVP_SPILL_NOTHING);
    compute(&w, &line);
}

/* ------------------------------------------------------------------------------------ arguments */

static void assert_refused(const kvp_spill_config *config, const char *expected)
{
    kvp_spill *spill = NULL;
    char why[160];
    assert_int_equal(kvp_spill_create(config, &spill, why, sizeof why), KVP_E_ARG);
    assert_string_equal(why, expected);
    assert_null(spill);
}

/* A spill of a new cache over the world's store; the caller destroys the cache. */
static kvp_spill_config spill_of(const world *w, const kvp_config *cache_config)
{
    kvp_spill_config config;
    kvp_spill_config_init(&config);
    assert_int_equal(kvp_cache_create(cache_config, NULL, 0, &config.cache), KVP_OK);
    config.store = w->store;
    config.fingerprint.bytes[0] = 7;
    config.slice = (kvp_slice){.n_layers = 1, .n_heads = 1};
    return config;
}

/* A record is of whole blocks of each group, and the store is told how many. */
TEST(block_sizes_that_do_not_fit_are_refused)
{
    static const struct {
        uint32_t record_blocks;
        uint32_t tokens; /* S of the cache's group; the store's is 4 */
        uint32_t recent_tokens;
        uint32_t most; /* blocks */
        const char *why;
    } cases[] = {
        {1, 8, 0, 0, "a record has 4 tokens, expected a multiple of groups[0].block_tokens, 8"},
        {2, 8, 0, 0, "a record of the store has 2 blocks of group 0, expected 1 to 1"},
        {2, 4, 0, 1, "a record of the store has 1 blocks of group 0, expected 2 to 2"},
        {4, 4, 9, 2, "a record of the store has 2 blocks of group 0, expected 3 to 4"}};
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scoped_world w;
        char why[160];
        world_options options = begin();
        options.record_blocks = cases[i].record_blocks;
        options.state_slots = options.host_state_slots = 0;
        options.windows[0].recent_tokens = cases[i].most > 0 ? 1 : 0;
        options.group_blocks[0] = cases[i].most;
        open_world(&w, &options);
        kvp_config cache_config = w.config;
        cache_config.groups[0].block_tokens = cases[i].tokens;
        cache_config.groups[0].recent_tokens = cases[i].recent_tokens;
        kvp_spill_config config = spill_of(&w, &cache_config);
        config.block_bytes[0] = config.host[0].stride = 64;
        config.host[0].base = w.host;
        snprintf(why, sizeof why, "%s%s", cases[i].why,
                 i > 0 ? ": see kvp_store_config.group_tokens" : "");
        assert_refused(&config, why);
        kvp_cache_destroy(config.cache);
    }
}

static int move_nothing(void *engine, const kvp_spill_record *record)
{
    (void)engine, (void)record;
    return 0;
}

/* A step that fails may leave a slot uncopied that the spill would write. */
TEST(overlapped_steps_are_refused)
{
    kvp_spill *spill = NULL;
    char why[160];
    scoped_world w;
    world_options options = begin();
    options.record_blocks = 1;
    open_world(&w, &options);
    kvp_config cache_config = w.config;
    cache_config.steps = KVP_STEPS_OVERLAPPED;
    kvp_spill_config config = spill_of(&w, &cache_config);
    assert_int_equal(kvp_spill_create(&config, &spill, why, sizeof why), KVP_E_STATE);
    assert_null(spill);
    assert_string_equal(why,
                        "the cache has state_slots and overlapped steps: if a step fails, it is "
                        "not known which copies of kvp_spill_copies ran");
    kvp_cache_destroy(config.cache);
    config.give = config.take = move_nothing;
    config.record_blocks = 2;
    for (uint32_t is_overlapped = 0; is_overlapped < 2; is_overlapped++) {
        cache_config.steps = is_overlapped ? KVP_STEPS_OVERLAPPED : KVP_STEPS_ORDERED;
        cache_config.state_slots = is_overlapped ? 0 : w.config.state_slots;
        cache_config.host_state_slots = is_overlapped ? 0 : w.config.host_state_slots;
        assert_int_equal(kvp_cache_create(&cache_config, NULL, 0, &config.cache), KVP_OK);
        assert_int_equal(kvp_spill_create(&config, &spill, why, sizeof why), KVP_E_STATE);
        assert_string_equal(
            why,
            is_overlapped
                ? "give is set, and the cache has overlapped steps: what is given must be there"
                : "give is set, and the cache has state_slots: what is given must be there");
        kvp_cache_destroy(config.cache);
    }
}

TEST(wrong_calls_are_refused)
{
    kvp_copy copies[2];
    uint32_t n = 7;
    scoped_world w;
    world_options options = begin();
    open_world(&w, &options);
    kvp_spill_config config;
    kvp_spill_config_init(&config);
    config.cache = w.cache;
    config.store = w.store;
    config.fingerprint.bytes[0] = 7;
    config.block_bytes[0] = config.host[0].stride = 32;
    config.host[0].base = w.host;
    config.slice = (kvp_slice){.n_layers = 1, .n_heads = 1};
    assert_refused(&config, "host[1] or block_bytes[1]: expected an address, and at most a stride "
                            "of bytes");
    config.block_bytes[1] = config.host[1].stride = 24;
    config.host[1].base = w.states[KVP_HOST];
    config.max_states = 65;
    assert_refused(&config, "max_states is 65, expected 0 to 64");
    config.max_states = 64;
    config.block_bytes[1] = config.host[1].stride = 100;
    config.put_bytes = 99;
    assert_refused(&config, "put_bytes is 99, expected 100 to 9223372036854775807");
    assert_int_equal(kvp_spill_copies(NULL, copies, 2, &n), KVP_E_ARG);
    assert_int_equal(kvp_spill_copies(w.spill, NULL, 1, &n), KVP_E_ARG);
    assert_int_equal(kvp_spill_copies(w.spill, copies, 2, NULL), KVP_E_ARG);
    assert_int_equal(kvp_spill_copies(w.spill, NULL, 0, &n), KVP_OK);
    assert_int_equal(n, 0);
}

/* Copies come in pieces, each once, and not before a plan was taken. */
TEST(copies_are_given_once)
{
    kvp_open_info info;
    kvp_copy copies[4];
    kvp_seq seq;
    uint32_t n = 0;
    scoped_world w;
    world_options options = begin();
    options.policy = KVP_SPILL_SECOND;
    open_world(&w, &options);
    const world_line lines[2] = {line_of(&w, 35, 35, 0), line_of(&w, 35, 0, 900)};
    for (int i = 0; i < 2; i++) {
        const kvp_prompt prompt = world_prompt(&lines[i]);
        compute(&w, &lines[i]);
        assert_int_equal(kvp_seq_open(w.cache, w.spaces[0], &prompt, &seq, &info), KVP_OK);
        assert_int_equal(kvp_spill_hit(w.spill, seq, 32, w.now), KVP_OK);
        if (i == 0) { /* else it is told when the second line is computed */
            assert_int_equal(kvp_spill_copies(w.spill, copies, 0, &n), KVP_OK);
            assert_int_equal(n, 0);
        }
        assert_int_equal(kvp_seq_close(w.cache, seq, NULL), KVP_OK);
    }
    assert_int_equal(kvp_spill_copies(w.spill, copies, 4, &n), KVP_OK);
    assert_int_equal(n, 1);
    assert_fields(copies[0], group, 1, n_tokens, 1, src_tier, KVP_DEVICE, dst_tier, KVP_HOST);
    assert_in_range(copies[0].dst_block, 8, 8 + 3);
    assert_int_equal(kvp_spill_copies(w.spill, copies, 4, &n), KVP_OK);
    assert_int_equal(n, 0);
    world_stop(&w); /* what was told is given up */
    assert_int_equal(open_seqs(&w), 0);
}

/* What is destroyed holds no sequence any more. */
TEST(a_slot_is_let_go_at_the_end)
{
    kvp_open_info info;
    kvp_seq seq;
    world w;
    world_options options = begin();
    options.policy = KVP_SPILL_SECOND;
    open_world(&w, &options);
    const world_line line = line_of(&w, 35, 35, 0);
    const kvp_prompt prompt = world_prompt(&line);
    compute(&w, &line);
    assert_int_equal(kvp_seq_open(w.cache, w.spaces[0], &prompt, &seq, &info), KVP_OK);
    assert_int_equal(kvp_spill_hit(w.spill, seq, 32, w.now), KVP_OK);
    assert_int_equal(kvp_seq_close(w.cache, seq, NULL), KVP_OK);
    assert_int_equal(open_seqs(&w), 1);
    kvp_spill_destroy(w.spill);
    w.spill = NULL;
    assert_int_equal(open_seqs(&w), 0);
    world_close(&w);
    assert_good(&w);
}

TEST_MAIN(NULL, NULL)
