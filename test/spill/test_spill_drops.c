/* Records with wrong KV: whatever the store does when it is told to drop them, nobody gets it. And
 * what the store has lost is written again. */
#include "liar.h"
#include "scenes.h"

enum { RECORD = 8, LONG = 64, WRONG_FROM = 24 };

/* An honest liar, and the least world. */
static world_options begin(void)
{
    memset(&liar, 0, sizeof liar);
    world_options options = world_defaults();
    options.lies = 1;
    options.policy = KVP_SPILL_THROUGH;
    return options;
}

/* The line with KV that is wrong from WRONG_FROM on. */
static world_line spoiled(const world_line *line)
{
    world_line wrong = *line;
    for (uint32_t p = WRONG_FROM; p < LONG; p++)
        wrong.kv[p] ^= 1;
    return wrong;
}

/* A store of its own, which has the line; its KV is wrong, and nobody knows. */
static world_line open_wrong(world *w, const world_options *options)
{
    open_world(w, options);
    const world_line line = line_of(w, LONG, LONG, 0);
    const world_line wrong = spoiled(&line);
    compute(w, &wrong);
    world_settle(w);
    assert_int_equal(world_stats(w).written, LONG / RECORD);
    forget_cache(w);
    return line;
}

static kvp_status drop(world *w, const world_line *line, uint32_t from)
{
    const kvp_prompt prompt = world_prompt(line);
    return kvp_spill_drop(w->spill, w->spaces[0], &prompt, from, w->now);
}

/* The KV that is right is loaded, the rest computed; all that is read is right. */
static void assert_part_comes_back(world *w, const world_line *line, uint64_t tag)
{
    assert_int_equal(world_ask(w, line, tag).hit_tokens, WRONG_FROM);
    assert_int_equal(compute(w, line).hit_tokens, WRONG_FROM);
    world_settle(w);
}

TEST(a_store_that_is_away_is_told_again)
{
    scoped_world w;
    world_options options = begin();
    const world_line line = open_wrong(&w, &options);
    liar.drops_fail = 1;
    assert_int_equal(drop(&w, &line, WRONG_FROM), KVP_OK);
    world_settle(&w);
    assert_int_equal(world_stats(&w).drops, 5);
    assert_true(world_stats(&w).drop_failed > 1);
    const world_line other = line_of(&w, LONG, 40, 500); /* goes on from what is wrong */
    assert_part_comes_back(&w, &line, 1);
    assert_int_equal(world_ask(&w, &other, 2).outcome, KVP_SPILL_NOTHING); /* cached */
    compute(&w, &other);
    forget_cache(&w); /* it stops all the same, and does not forget what is to be dropped */
    assert_int_equal(world_stats(&w).drops, 5);
    assert_part_comes_back(&w, &other, 3);
    forget_cache(&w);
    liar.drops_fail = 0;
    for (int i = 0; i < 200 && world_stats(&w).drops > 0; i++)
        world_settle(&w);
    assert_int_equal(world_stats(&w).drops, 0);
    assert_part_comes_back(&w, &line, 4); /* now it is written anew */
    forget_cache(&w);
    assert_int_equal(world_ask(&w, &line, 5).hit_tokens, LONG);
    assert_int_equal(compute(&w, &line).hit_tokens, LONG);
}

/* A server does not look for parents: what was written behind a record stays there. */
TEST(all_records_of_the_prompt_are_dropped)
{
    scoped_world w;
    world_options options = begin();
    liar.is_flat = 1;
    const world_line line = open_wrong(&w, &options);
    assert_int_equal(drop(&w, &line, WRONG_FROM), KVP_OK);
    world_settle(&w);
    assert_int_equal(world_stats(&w).drops, 0);
    const world_line first = line_of(&w, WRONG_FROM + RECORD, LONG, 0);
    world_ask(&w, &first, 1);
    compute(&w, &first);
    world_settle(&w); /* the first of them is there again, and right */
    forget_cache(&w);
    assert_int_equal(world_ask(&w, &line, 2).hit_tokens, WRONG_FROM + RECORD);
    compute(&w, &line);
}

/* What is behind a record that is to be dropped is not loaded, though the cache has the record. */
TEST(what_is_behind_it_is_hidden)
{
    scoped_world w;
    world_options options = begin();
    const world_line line = open_wrong(&w, &options);
    liar.drops_fail = 1;
    const world_line first = line_of(&w, WRONG_FROM + RECORD, LONG, 0);
    assert_int_equal(drop(&w, &first, WRONG_FROM), KVP_OK);
    world_settle(&w);
    assert_int_equal(world_stats(&w).drops, 1);
    compute(&w, &first);
    assert_int_equal(world_ask(&w, &line, 1).outcome, KVP_SPILL_NOTHING);
    assert_int_equal(compute(&w, &line).hit_tokens, WRONG_FROM + RECORD);
}

static void work(world *w, int n_rounds)
{
    for (int i = 0; i < n_rounds; i++) {
        kvp_spill_answer answers[8];
        uint32_t n = 0;
        world_store(w);
        world_take(w);
        world_run(w);
        assert_int_equal(kvp_spill_work(w->spill, w->now, answers, 8, &n), KVP_OK);
    }
}

/* It is told again and again, and leaves room in a short queue for the sync. */
TEST(a_flush_ends_beside_a_drop_that_fails)
{
    scoped_world w;
    world_options options = begin();
    options.max_ops = 1;
    const world_line line = open_wrong(&w, &options);
    liar.drops_fail = 1;
    assert_int_equal(drop(&w, &line, WRONG_FROM), KVP_OK);
    kvp_status status = KVP_E_AGAIN;
    for (int i = 0; i < 100 && status == KVP_E_AGAIN; i++) {
        status = kvp_spill_flush(w.spill, w.now, w.now + 1000000000);
        work(&w, 1);
    }
    assert_int_not_equal(status, KVP_E_AGAIN);
}

/* What was not made sure of is told, and the next flush may be. */
TEST(a_flush_that_is_not_synced_fails)
{
    scoped_world w;
    world_options options = begin();
    (void)open_wrong(&w, &options);
    for (liar.syncs_fail = 1; liar.syncs_fail >= 0; liar.syncs_fail--) {
        kvp_status status = KVP_E_AGAIN;
        for (int i = 0; i < 100 && status == KVP_E_AGAIN; i++) {
            status = kvp_spill_flush(w.spill, w.now, w.now + 1000000000);
            work(&w, 1);
        }
        assert_int_equal(status, liar.syncs_fail ? KVP_E_IO : KVP_OK);
    }
    liar.syncs_fail = 0;
}

/* A put that is on its way when its record is dropped takes effect after the drop, and is seen
 * before it has ended. */
TEST(a_put_that_overtakes_its_drop_is_hidden)
{
    scoped_world w;
    world_options options = begin();
    liar.is_flat = liar.puts_wait = liar.puts_untold = 1;
    open_world(&w, &options);
    const world_line line = line_of(&w, LONG, LONG, 0);
    const world_line wrong = spoiled(&line);
    kvp_open_info info;
    kvp_seq seq;
    assert_int_equal(world_compute(&w, &wrong, &seq, &info), KVP_OK);
    work(&w, 4);
    assert_int_equal(world_stats(&w).puts, LONG / RECORD);
    assert_int_equal(drop(&w, &line, WRONG_FROM), KVP_OK);
    assert_int_equal(kvp_seq_invalidate(w.cache, seq, WRONG_FROM, NULL, 0, NULL), KVP_OK);
    assert_int_equal(kvp_seq_close(w.cache, seq, NULL), KVP_OK);
    work(&w, 4);
    liar.puts_wait = 0;
    work(&w, 4); /* now they are seen */
    const kvp_prompt prompt = world_prompt(&line);
    const kvp_spill_request request = {.struct_size = sizeof request, .tag = 1};
    kvp_spill_answer answer;
    assert_int_equal(kvp_spill_ask(w.spill, w.spaces[0], &prompt, &request, w.now, &answer),
                     KVP_OK);
    work(&w, 8);
    compute(&w, &line);
    liar.puts_untold = 0;
    world_settle(&w);
    world_settle(&w);
    assert_fields(world_stats(&w), drops, 0, taken_back, LONG / RECORD);
    forget_cache(&w);
    world_ask(&w, &line, 2);
    compute(&w, &line);
    world_settle(&w);
    assert_int_equal(world_stats(&w).taken_back, LONG / RECORD); /* not what is right */
}

/* What a load brings whose record is dropped meanwhile is not believed. */
TEST(a_load_of_what_is_dropped_is_void)
{
    kvp_spill_answer answers[8];
    scoped_world w;
    world_options options = begin();
    const world_line line = open_wrong(&w, &options);
    world_ask_now(&w, &line, 1);
    world_work_once(&w, answers);
    world_store(&w);
    world_work_once(&w, answers);
    world_store(&w); /* all gets have ended, with what is wrong */
    assert_true(world_stats(&w).gets > 3);
    assert_int_equal(drop(&w, &line, WRONG_FROM), KVP_OK);
    world_settle(&w);
    compute(&w, &line); /* and reads what was hit */
}

/* What is to be dropped while a drop is out is told behind it. */
TEST(a_drop_waits_for_the_one_before)
{
    scoped_world w;
    world_options options = begin();
    const world_line line = open_wrong(&w, &options);
    const world_line other = line_of(&w, LONG, 0, 500);
    const world_line wrong = spoiled(&other);
    compute(&w, &wrong);
    world_settle(&w);
    forget_cache(&w);
    assert_int_equal(drop(&w, &line, WRONG_FROM), KVP_OK);
    assert_int_equal(drop(&w, &other, WRONG_FROM), KVP_OK);
    world_settle(&w);
    world_settle(&w);
    assert_int_equal(world_stats(&w).drops, 0);
    assert_part_comes_back(&w, &line, 1);
    assert_part_comes_back(&w, &other, 2);
}

/* A drop that has failed is tried once more when the spill stops. */
TEST(the_last_chance_of_a_drop)
{
    scoped_world w;
    world_options options = begin();
    const world_line line = open_wrong(&w, &options);
    liar.drops_fail = 1;
    assert_int_equal(drop(&w, &line, WRONG_FROM), KVP_OK);
    work(&w, 1);
    liar.drops_fail = 0;
    forget_cache(&w);
    assert_int_equal(world_stats(&w).drops, 0);
}

TEST(what_is_too_much_is_refused)
{
    scoped_world w;
    world_options options = begin();
    liar.drops_fail = 1;
    const world_line line = open_wrong(&w, &options);
    for (uint32_t i = 0; i < KVP_STORE_KEYS_MAX / 8; i++) { /* 8 records each */
        const world_line other = line_of(&w, LONG, 0, 1000 + 100 * (int32_t)i);
        assert_int_equal(drop(&w, &other, 0), KVP_OK);
        world_store(&w);
    }
    assert_int_equal(world_stats(&w).drops, KVP_STORE_KEYS_MAX);
    assert_int_equal(drop(&w, &line, WRONG_FROM), KVP_E_AGAIN);
    assert_int_equal(world_stats(&w).drops, KVP_STORE_KEYS_MAX);
    const world_line next = line_of(&w, LONG, 0, 500);
    compute(&w, &next); /* it is not written: what must be taken back would have no room */
    work(&w, 10);
    assert_int_equal(world_stats(&w).puts, LONG / RECORD);
    liar.drops_fail = 0;
    w.now += UINT64_C(100000000000);
    world_settle(&w);
    world_settle(&w);
    assert_int_equal(world_stats(&w).drops, 0);
    assert_int_equal(drop(&w, &line, WRONG_FROM), KVP_OK);
}

/* A record of the line, and those behind it, are lost. */
static void lose(world *w, const world_line *line, uint32_t record)
{
    kvp_digest digests[LONG / 4], root, key;
    const kvp_digest fingerprint = {{7}};
    const kvp_slice slice = {.n_layers = 1, .n_heads = 1};
    const uint32_t unit = w->options.moves ? RECORD : 4; /* what the engine moves is one block */
    const kvp_hash_input input = {.unit_tokens = unit, .n_tokens = LONG, .tokens = line->tokens};
    kvp_digester *digester;
    assert_int_equal(kvp_digester_create(&digester), KVP_OK);
    assert_int_equal(kvp_digest_root(digester, &fingerprint, "one", 3, 0, &root), KVP_OK);
    assert_int_equal(kvp_digest_blocks(digester, &input, &root, digests), KVP_OK);
    assert_int_equal(
        kvp_record_key(digester, &digests[(record + 1) * RECORD / unit - 1], 0, &slice, &key),
        KVP_OK);
    kvp_digester_destroy(digester);
    assert_int_equal(kvp_store_drop(w->store, &key, 1, UINT64_C(1) << 63), KVP_OK);
    world_settle(w);
}

/* The store has lost the second half of a chain, the cache has three quarters of it. A hit writes
 * all that is lost, not a record more each time. */
TEST(what_the_store_has_lost_is_written_again)
{
    scoped_world w;
    world_options options = begin();
    open_world(&w, &options);
    const world_line line = line_of(&w, LONG, LONG, 0);
    compute(&w, &line);
    world_settle(&w);
    forget_cache(&w);
    const world_line first = line_of(&w, 48, LONG, 0);
    world_ask(&w, &first, 1);
    compute(&w, &first);
    lose(&w, &line, 4);
    world_ask(&w, &line, 2);
    assert_int_equal(compute(&w, &line).hit_tokens, 48);
    world_settle(&w);
    forget_cache(&w);
    assert_int_equal(world_ask(&w, &line, 3).hit_tokens, LONG);
}

/* A server has lost one record, and those behind it are there: they are of no use. */
TEST(a_record_that_is_missing_ends_the_prefix)
{
    for (uint32_t record = 0; record < LONG / RECORD; record++) {
        scoped_world w;
        world_options options = begin();
        liar.is_flat = 1;
        open_world(&w, &options);
        const world_line line = line_of(&w, LONG, LONG, 0);
        compute(&w, &line);
        world_settle(&w);
        forget_cache(&w);
        lose(&w, &line, record);
        const kvp_spill_answer answer = world_ask(&w, &line, 1);
        assert_fields(answer, hit_tokens, record * RECORD, outcome,
                      record > 0 ? KVP_SPILL_LOADED : KVP_SPILL_NOTHING);
        assert_fields(world_stats(&w), load_failed, 0, loaded, record);
    }
}

/* Nobody asks for what is cached. When the store has lost more than half, all may be lost. */
TEST(what_is_hot_is_written_again)
{
    for (uint32_t record = 0; record <= 6; record += 2) {
        scoped_world w;
        world_options options = begin();
        options.moves = 1;
        open_world(&w, &options);
        const world_line line = line_of(&w, LONG, LONG, 0);
        compute(&w, &line);
        world_settle(&w);
        lose(&w, &line, record);
        compute(&w, &line);
        world_settle(&w);
        assert_int_equal(world_stats(&w).written, record < 6 ? 16 - record : 8);
        const uint64_t offered = world_stats(&w).offered;
        compute(&w, &line); /* once, and not each time that it is hit */
        world_settle(&w);
        assert_int_equal(world_stats(&w).offered, offered);
    }
}

TEST_MAIN(NULL, NULL)
