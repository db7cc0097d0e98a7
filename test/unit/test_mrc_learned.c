/* The learned policy on traces that are hard for it, beside LRU and the optimum: what LRU hits, but
 * for a hundredth and for C/8 + 2^20 / block_tokens blocks, and much more where LRU fails. In the
 * simulation of `kvpager mrc`, and in a cache. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool/mrc/policies/mrc_learned.h"
#include "tool/mrc/lru.h"
#include "tool/mrc/policies/policies.h"
#include "tool/progress.h"
#include "tool/tool.h"
#include "world.h"

/* The command's, which prints. */
int kvpi_tool_fail(const char *command, const char *format, ...)
{
    (void)command;
    fail_msg("%s", format);
    return TOOL_FAILED;
}

void kvpi_progress_start(kvpi_progress *progress, const char *what, uint64_t total)
{
    (void)progress;
    (void)what;
    (void)total;
}

void kvpi_progress_update(kvpi_progress *progress, uint64_t done)
{
    (void)progress;
    (void)done;
}

void kvpi_progress_end(kvpi_progress *progress)
{
    (void)progress;
}

enum { C = 500, MAX_REFS = 1 << 18, MAX_REQUESTS = 1 << 18 };

static kvpi_mrc_request requests[MAX_REQUESTS];
static uint32_t contents[MAX_REFS];
static uint8_t groups[MAX_REFS];
static kvpi_mrc_refs refs;

static void begin(uint64_t block_tokens)
{
    refs = (kvpi_mrc_refs){.requests = requests,
                           .contents = contents,
                           .groups = groups,
                           .block_tokens = block_tokens,
                           .rate = 1};
}

/* A request of n blocks: contents first .. first + n - 1, each behind the one before it. */
static void add(uint32_t first, uint32_t n)
{
    assert_true(refs.n_requests < MAX_REQUESTS && refs.n_refs + n <= MAX_REFS);
    requests[refs.n_requests++] =
        (kvpi_mrc_request){.first = refs.n_refs,
                           .n_prompt = n,
                           .n_full = n,
                           .n_opened = n,
                           .n_blocks = n,
                           .last_tokens = (uint32_t)refs.block_tokens - 1,
                           .input_tokens = n * (uint32_t)refs.block_tokens};
    for (uint32_t i = 0; i < n; i++)
        contents[refs.n_refs++] = first + i;
    if (first + n > refs.n_contents)
        refs.n_contents = first + n;
    if (n > refs.min_blocks)
        refs.min_blocks = n;
}

struct figures {
    uint64_t lru, learned, optimum; /* blocks; the optimum's are tokens / block_tokens */
};

static struct figures measure(void)
{
    struct figures found;
    kvpi_mrc_curve curve;
    kvpi_mrc_policies *policies;
    kvpi_mrc_learned_hits learned;
    assert_int_equal(kvpi_mrc_lru_make(&refs, NULL, "test", &curve), TOOL_OK);
    found.lru = (uint64_t)kvpi_mrc_lru_at(&curve, C).blocks;
    kvpi_mrc_lru_free(&curve);
    assert_int_equal(kvpi_mrc_policies_make(&refs, "test", false, &policies), TOOL_OK);
    found.optimum =
        (uint64_t)kvpi_mrc_policies_run(policies, KVPI_MRC_OPTIMUM, C) / refs.block_tokens;
    kvpi_mrc_policies_free(policies);
    assert_int_equal(kvpi_mrc_learned_run_sizes(&refs, &(uint64_t){C}, 1, &learned), TOOL_OK);
    found.learned = learned.blocks;
    return found;
}

static void expect_promise(struct figures found)
{
    const double allowed = C / 8.0 + (double)(1 << 20) / (double)refs.block_tokens;
    assert_true((double)found.learned >= 0.99 * (double)found.lru - allowed);
}

/* More blocks than there is room for, round and round: LRU has just lost what comes next. Whatever
 * is kept is as good as anything else. */
static void expect_loop(uint32_t n_loop, uint32_t n_request)
{
    begin(512);
    for (uint32_t i = 0; i < 40 * n_loop / n_request; i++)
        add(i % (n_loop / n_request) * n_request, n_request);
    const struct figures found = measure();
    assert_int_equal(found.lru, 0);
    assert_true(found.optimum > refs.n_refs / 4);
    assert_true(found.learned >= found.optimum * 9 / 10);
}

TEST(test_loop)
{
    expect_loop(3 * C / 2, 1);
    expect_loop(3 * C / 2, 5);
    expect_loop(3 * C / 2, 50);
    /* Loops that end just before an age where a bin ends, and one that is long. */
    expect_loop(145 * C / 100, 1);
    expect_loop(193 * C / 100, 1);
    expect_loop(276 * C / 100, 1);
    expect_loop(351 * C / 100, 1);
}

/* New blocks, and one of the last 0.9 C at random: there is nothing to learn. */
TEST(test_recency)
{
    uint64_t random = 3;
    (void)state;
    for (uint32_t n = 1; n <= 25; n *= 5) {
        uint32_t newest = 0;
        begin(65536);
        for (uint32_t i = 0; i < 60000 / n; i++) {
            const uint32_t back = draw(&random, 9 * C / 10 / n);
            newest += draw(&random, 4) == 0;
            add((newest - (back < newest ? back : newest)) * n, n);
        }
        const struct figures found = measure();
        assert_true(found.lru > refs.n_refs * 7 / 10);
        expect_promise(found);
    }
}

/* Two moods, each as long as it takes to learn it. What is new comes back at once or never, and
 * what is old at random; or what is new comes back when LRU nearly has forgotten it. */
TEST(test_turncoat)
{
    const uint32_t fresh[2] = {682, 446}, again[2] = {919, 701}, later[2] = {3, 590},
                   old[2] = {659, 865};
    uint64_t random = 20 * 7919;
    uint32_t newest = 20 * C;
    (void)state;
    begin(65536);
    for (uint32_t i = 0; i < 200000; i++) {
        const int mood = i / 4096 % 2;
        const uint32_t kind = draw(&random, 1000);
        if (kind < fresh[mood])
            add(newest++, 1);
        else if (kind < again[mood])
            add(newest - 1 - later[mood], 1);
        else
            add((mood == 0 ? 10 * C : 0) + draw(&random, old[mood]), 1);
    }
    expect_promise(measure());
}

/* Two to four moods in turn. Of each mood's blocks some are new, some are what was new a while ago,
 * and the others are of a set, at random or in turn. */
struct habits {
    uint32_t n_moods, length;
    struct {
        uint32_t fresh, again, later, old, in_turn;
    } of[4];
};

static void draw_mood(uint64_t *random, struct habits *habits, uint32_t m)
{
    habits->of[m].fresh = draw(random, 1000);
    habits->of[m].again = habits->of[m].fresh + draw(random, 1000 - habits->of[m].fresh);
    habits->of[m].later = 1 + draw(random, 2 * C);
    habits->of[m].old = 1 + draw(random, 2 * C);
    habits->of[m].in_turn = draw(random, 2);
}

static struct habits draw_habits(uint64_t *random)
{
    struct habits habits = {0};
    habits.n_moods = 2 + draw(random, 3);
    habits.length = 1u << (8 + draw(random, 7));
    for (uint32_t m = 0; m < habits.n_moods; m++)
        draw_mood(random, &habits, m);
    return habits;
}

static void add_moods(uint64_t *random, const struct habits *habits, uint32_t n)
{
    uint32_t newest = 20 * C;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t m = i / habits->length % habits->n_moods, kind = draw(random, 1000);
        const uint32_t old = habits->of[m].old;
        const uint32_t which = habits->of[m].in_turn ? i % old : draw(random, old);
        if (kind < habits->of[m].fresh)
            add(newest++, 1);
        else if (kind < habits->of[m].again)
            add(newest - habits->of[m].later, 1);
        else
            add((m % 2) * 10 * C + which, 1);
    }
}

TEST(test_moods)
{
    for (uint64_t seed = 1; seed <= 10; seed++) {
        uint64_t random = seed;
        const struct habits habits = draw_habits(&random);
        begin(seed % 4 == 0 ? 512 : 65536);
        add_moods(&random, &habits, 40000);
        expect_promise(measure());
    }
}

/* ---------------------------------------------------------------------------------- in a cache */

/* A cache of C blocks serves the requests; each content's tokens are its number. Gives the blocks
 * that are hit. */
static uint64_t hits_of_cache(uint32_t policy)
{
    const uint32_t S = (uint32_t)refs.block_tokens;
    int32_t *tokens = malloc((size_t)refs.min_blocks * S * sizeof *tokens);
    kvp_config config = config_of(S, S, C);
    uint64_t n_hits = 0;
    assert_non_null(tokens);
    config.policy = policy;
    config.max_seqs = 1;
    config.max_seq_tokens = (uint32_t)refs.min_blocks * S;
    config.max_namespaces = 1;
    world w = make_world(&config);
    for (size_t r = 0; r < refs.n_requests; r++) {
        const uint32_t n = requests[r].n_full;
        for (uint32_t i = 0; i < n * S; i++)
            tokens[i] = (int32_t)contents[requests[r].first + i / S];
        kvp_open_info info;
        const kvp_seq seq = open_seq(&w, tokens, n * S, &info);
        assert_ok(kvp_seq_commit(w.cache, seq, n * S));
        close_seq(&w, seq);
        n_hits += info.hit_tokens / S;
    }
    end_world(&w);
    free(tokens);
    return n_hits;
}

/* 2^20 tokens are few blocks of these, so that the promise is worth something. Where the whole
 * cache is audited after each call, less has to do. */
enum { IS_AUDITED = KVP_CHECK > 1, CORE_TOKENS = IS_AUDITED ? 512 : 8192 };
enum { CORE_REQUESTS = IS_AUDITED ? 2500 : 40000, SEARCHED = IS_AUDITED ? 2 : 12 };

static void expect_promise_of_cache(void)
{
    const struct figures found = {.lru = hits_of_cache(KVP_POLICY_LRU),
                                  .learned = hits_of_cache(KVP_POLICY_LEARNED)};
    expect_promise(found);
}

TEST(test_cache_loop)
{
    begin(CORE_TOKENS);
    for (uint32_t i = 0; i < CORE_REQUESTS; i++)
        add(i % (3 * C / 2), 1);
    const uint64_t learned = hits_of_cache(KVP_POLICY_LEARNED);
    assert_int_equal(hits_of_cache(KVP_POLICY_LRU), 0);
    assert_true(learned > refs.n_refs / (IS_AUDITED ? 16 : 4));
}

TEST(test_cache_recency)
{
    uint64_t random = 3;
    uint32_t newest = 0;
    (void)state;
    begin(CORE_TOKENS);
    for (uint32_t i = 0; i < CORE_REQUESTS; i++) {
        const uint32_t back = draw(&random, 9 * C / 10);
        newest += draw(&random, 4) == 0;
        add(newest - (back < newest ? back : newest), 1);
    }
    expect_promise_of_cache();
}

static double margin(struct figures found)
{
    return (double)found.learned - 0.99 * (double)found.lru;
}

/* The worst habits that a search finds in the simulation: drawn, then changed mood by mood for as
 * long as that makes them worse. */
TEST(test_cache_searched)
{
    uint64_t random = 99;
    /* The moods of test_turncoat. */
    struct habits worst = {
        .n_moods = 2, .length = 4096, .of = {{682, 919, 4, 659, 0}, {446, 701, 591, 865, 0}}};
    double least = 1e18;
    (void)state;
    for (int round = 0; round < 2 * SEARCHED; round++) {
        struct habits habits = worst;
        uint64_t same = 5;
        if (round > 0 && round < SEARCHED)
            habits = draw_habits(&random);
        else if (round > 0)
            draw_mood(&random, &habits, draw(&random, habits.n_moods));
        begin(CORE_TOKENS);
        add_moods(&same, &habits, CORE_REQUESTS);
        const struct figures found = measure();
        expect_promise(found);
        if (margin(found) < least) {
            least = margin(found);
            worst = habits;
        }
    }
    uint64_t same = 5;
    begin(CORE_TOKENS);
    add_moods(&same, &worst, CORE_REQUESTS);
    expect_promise_of_cache();
}

/* ----------------------------------------------------------------------------------------- cold */

/* A branch of a tree of eight branches a node, whole blocks and a part of one; the end of it is
 * generated. */
static void add_branch(uint64_t *random)
{
    kvpi_mrc_request request = {.first = refs.n_refs, .last_tokens = 16, .input_tokens = 100};
    const uint32_t n = 1 + draw(random, 5);
    uint32_t node = 0;
    for (uint32_t i = 0; i < n; i++) {
        node = 8 * node + 1 + draw(random, 8);
        contents[refs.n_refs++] = node;
    }
    request.n_full = n;
    request.n_prompt = draw(random, 3) == 0 ? draw(random, n + 1) : n;
    request.n_blocks = n + draw(random, 2);
    request.n_opened = request.n_prompt;
    request.n_opened += request.n_blocks > request.n_prompt && draw(random, 2) == 0;
    requests[refs.n_requests++] = request;
    refs.min_blocks = 8;
    refs.n_contents = 8 * 4681 + 1;
}

/* Until it has seen twice its size, the policy is LRU, exactly. */
TEST(test_cold)
{
    uint64_t random = 5, all = 0;
    (void)state;
    for (int round = 0; round < 1000; round++) {
        kvpi_mrc_curve curve;
        kvpi_mrc_learned_hits learned;
        const uint64_t blocks = 8 + draw(&random, 100);
        begin(16);
        while (refs.n_refs + 6 < 2 * blocks)
            add_branch(&random);
        assert_int_equal(kvpi_mrc_lru_make(&refs, NULL, "test", &curve), TOOL_OK);
        assert_int_equal(kvpi_mrc_learned_run_sizes(&refs, &blocks, 1, &learned), TOOL_OK);
        const kvpi_mrc_hits lru = kvpi_mrc_lru_at(&curve, blocks);
        all += (uint64_t)kvpi_mrc_lru_at(&curve, 10 * blocks).blocks - (uint64_t)lru.blocks;
        assert_true(learned.blocks == (uint64_t)lru.blocks);
        assert_true(learned.tokens == (uint64_t)lru.tokens);
        kvpi_mrc_lru_free(&curve);
    }
    assert_true(all > 300); /* evictions did cost hits */
}

TEST_MAIN(NULL, NULL)
