/* The seven defects seen in the minimal block managers (minivllm, nano-vllm), each a regression
 * test by its number:
 *
 *   1  taking a cached block out of the middle of the free queue is a linear search
 *   2  an evicted block keeps its entry in the hash map
 *   3  the reference count of an unsealed block stays 0
 *   4  the number of tokens does not grow when one is appended
 *   5  the chain before a hit is never verified
 *   6  blocks are sealed before their KV is computed
 *   7  nothing reports how many blocks are missing
 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mocka.h"

#include <kvpager/all.h>

enum { S = 4 };

/* ------------------------------------------------------------------------------------- helpers */

typedef struct fixture {
    kvp_cache *cache;
    kvp_ns ns;
} fixture;

static fixture set_up_config(const kvp_config *config, void *arena, size_t arena_bytes)
{
    fixture f;
    assert_int_equal(kvp_cache_create(config, arena, arena_bytes, &f.cache), KVP_OK);
    assert_int_equal(kvp_ns_open(f.cache, NULL, 0, &f.ns), KVP_OK);
    return f;
}

static kvp_config config_of(uint32_t usable)
{
    kvp_config config;
    kvp_config_init(&config);
    config.block_tokens = S;
    config.n_blocks = usable + 1;
    return config;
}

static fixture set_up(uint32_t usable)
{
    kvp_config config = config_of(usable);
    return set_up_config(&config, NULL, 0);
}

static void expect_whole(const fixture *f)
{
    assert_int_equal(kvp_cache_check(f->cache, 3, NULL), KVP_OK);
}

static void tear_down(fixture *f)
{
    expect_whole(f);
    kvp_cache_destroy(f->cache);
}

static kvp_stats stats_of(const fixture *f)
{
    kvp_stats stats;
    assert_int_equal(kvp_cache_stats_get(f->cache, &stats), KVP_OK);
    return stats;
}

static kvp_seq_info info_of(const fixture *f, kvp_seq seq)
{
    kvp_seq_info info;
    assert_int_equal(kvp_seq_info_get(f->cache, seq, &info), KVP_OK);
    return info;
}

static kvp_block_info block(const fixture *f, int32_t id)
{
    kvp_block_info info;
    assert_int_equal(kvp_block_info_get(f->cache, 0, KVP_DEVICE, id, &info), KVP_OK);
    return info;
}

static int32_t row_entry(const fixture *f, kvp_seq seq, uint32_t idx)
{
    const int32_t *row;
    uint32_t n;
    assert_int_equal(kvp_seq_row(f->cache, seq, 0, &row, &n), KVP_OK);
    assert_true(idx < n);
    return row[idx];
}

static kvp_status try_open(fixture *f, const int32_t *tokens, uint32_t n, kvp_seq *out_seq,
                           kvp_open_info *out_info)
{
    kvp_prompt prompt = {.struct_size = sizeof prompt, .tokens = tokens, .n_tokens = n};
    return kvp_seq_open(f->cache, f->ns, &prompt, out_seq, out_info);
}

static kvp_seq open_prompt(fixture *f, const int32_t *tokens, uint32_t n, kvp_open_info *out_info)
{
    kvp_seq seq;
    assert_int_equal(try_open(f, tokens, n, &seq, out_info), KVP_OK);
    return seq;
}

static kvp_seq open_committed(fixture *f, const int32_t *tokens, uint32_t n, kvp_open_info *info)
{
    kvp_seq seq = open_prompt(f, tokens, n, info);
    assert_int_equal(kvp_seq_commit(f->cache, seq, n), KVP_OK);
    return seq;
}

static kvp_released close_seq(fixture *f, kvp_seq seq)
{
    kvp_released released;
    assert_int_equal(kvp_seq_close(f->cache, seq, &released), KVP_OK);
    return released;
}

/* One block's worth of tokens that no other `number` has. */
static void fill_block(int32_t number, int32_t out_tokens[S])
{
    for (int32_t i = 0; i < S; i++)
        out_tokens[i] = number * S + i;
}

/* Leaves the block of prompt `number` cached (again): at the tail of the queue. */
static int32_t touch(fixture *f, int32_t number, kvp_open_info *out_info)
{
    int32_t tokens[S];
    fill_block(number, tokens);
    kvp_seq seq = open_committed(f, tokens, S, out_info);
    int32_t id = row_entry(f, seq, 0);
    close_seq(f, seq);
    return id;
}

static uint32_t draw(uint32_t *state, uint32_t below)
{
    *state = *state * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)(*state >> 8) * below) >> 24);
}

/* ------------------------------------------------------------------------------------- defect 1 */

/* Hits taken out of the queue's middle leave the order of the rest as it was. The oracle is an
 * array of block ids, head first. */
TEST(test_defect_1_hits_from_the_middle_keep_the_order_of_the_rest)
{
    enum { USABLE = 64 };
    fixture f = set_up(USABLE);
    int32_t queue[USABLE];
    for (int32_t i = 0; i < USABLE; i++)
        queue[i] = touch(&f, i, NULL);
    uint32_t random = 1;
    for (int turn = 0; turn < 500; turn++) {
        uint32_t at = draw(&random, USABLE);
        int32_t id = queue[at];
        kvp_open_info info;
        assert_int_equal(touch(&f, id - 1, &info), id); /* prompt i got block i + 1 */
        assert_int_equal(info.cached_blocks, 1);
        memmove(queue + at, queue + at + 1, (USABLE - 1 - at) * sizeof *queue);
        queue[USABLE - 1] = id;
    }

    int32_t tokens[USABLE * S];
    for (int32_t i = 0; i < USABLE * S; i++)
        tokens[i] = 1000000 + i;
    kvp_seq seq = open_prompt(&f, tokens, USABLE * S, NULL);
    for (uint32_t i = 0; i < USABLE; i++)
        assert_int_equal(row_entry(&f, seq, i), queue[i]);
    close_seq(&f, seq);
    tear_down(&f);
}

/* The work itself, counted and not timed: the arena is made inaccessible, and every page that a hit
 * touches faults once. A search through the queue would have to visit the pages of all blocks
 * before the one it looks for; taking it out in O(1) touches the same few pages in any pool. */
static struct {
    uint8_t *arena;
    size_t bytes;
    size_t page_bytes;
    volatile sig_atomic_t n_faults;
} watched;

static void on_fault(int signal_number, siginfo_t *info, void *context)
{
    (void)context;
    uintptr_t at = (uintptr_t)info->si_addr;
    uintptr_t begin = (uintptr_t)watched.arena;
    if (at < begin || at >= begin + watched.bytes) {
        signal(signal_number, SIG_DFL); /* not ours: fault again and die of it */
        return;
    }
    uint8_t *page = watched.arena + (at - begin) / watched.page_bytes * watched.page_bytes;
    mprotect(page, watched.page_bytes, PROT_READ | PROT_WRITE);
    watched.n_faults++;
}

static int count_pages_of_a_hit(fixture *f, int32_t number)
{
    struct sigaction action = {0};
    struct sigaction before;
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    int32_t tokens[S];
    fill_block(number, tokens);
    kvp_prompt prompt = {.struct_size = sizeof prompt, .tokens = tokens, .n_tokens = S};
    kvp_open_info info;
    kvp_seq seq;

    assert_int_equal(sigaction(SIGSEGV, &action, &before), 0);
    watched.n_faults = 0;
    assert_int_equal(mprotect(watched.arena, watched.bytes, PROT_NONE), 0);
    kvp_status status = kvp_seq_open(f->cache, f->ns, &prompt, &seq, &info);
    int n_faults = watched.n_faults;
    assert_int_equal(mprotect(watched.arena, watched.bytes, PROT_READ | PROT_WRITE), 0);
    assert_int_equal(sigaction(SIGSEGV, &before, NULL), 0);

    assert_int_equal(status, KVP_OK);
    assert_int_equal(info.cached_blocks, 1);
    close_seq(f, seq);
    return n_faults;
}

/* Gives the largest number of pages that one of several hits touches, in a pool full of cached
 * blocks whose queue has been shuffled. */
static int max_pages_of_a_hit(uint32_t usable)
{
    kvp_config config = config_of(usable);
    size_t needed;
    assert_int_equal(kvp_cache_bytes(&config, &needed), KVP_OK);
    watched.page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    watched.bytes = (needed / watched.page_bytes + 1) * watched.page_bytes;
    watched.arena =
        mmap(NULL, watched.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(watched.arena != MAP_FAILED);

    fixture f = set_up_config(&config, watched.arena, watched.bytes);
    for (uint32_t i = 0; i < usable; i++)
        touch(&f, (int32_t)i, NULL);
    uint32_t random = 7;
    for (uint32_t i = 0; i < usable; i++)
        touch(&f, (int32_t)draw(&random, usable), NULL);
    int most = 0;
    for (uint32_t i = 0; i < 32; i++) {
        int pages = count_pages_of_a_hit(&f, (int32_t)draw(&random, usable));
        most = pages > most ? pages : most;
    }
    tear_down(&f);
    munmap(watched.arena, watched.bytes);
    return most;
}

TEST(test_defect_1_a_hit_touches_no_more_memory_in_a_large_pool)
{
    if (KVP_CHECK > 0)
        skip(); /* the audit after each call touches everything */
    int small = max_pages_of_a_hit(1024);
    int large = max_pages_of_a_hit(128 * 1024);
    assert_true(small > 0);
    /* 128 times the blocks: what shared a page before may lie on two, but nothing is walked. A walk
     * over half of the queue would touch at least 256 pages, at 16 bytes per block. */
    assert_true(large <= small + 32);
}

/* ------------------------------------------------------------------------------------- defect 2 */

TEST(test_defect_2_an_evicted_block_leaves_nothing_behind)
{
    enum { USABLE = 8, PROMPTS = 1000 };
    fixture f = set_up(USABLE);
    for (int32_t i = 0; i < PROMPTS; i++) {
        touch(&f, i, NULL);
        kvp_stats stats = stats_of(&f);
        /* one node for each cached block, and the root */
        assert_fields(stats, nodes_used, stats.cached_blocks + 1, cached_blocks,
                      i < USABLE ? i + 1 : USABLE);
    }
    kvp_stats stats = stats_of(&f);
    assert_int_equal(stats.evicted_blocks, PROMPTS - USABLE);
    assert_int_equal(stats.hash_collisions, 0); /* no look-up met a left-over */

    for (int32_t i = 0; i < PROMPTS; i++) {
        int32_t tokens[S];
        fill_block(i, tokens);
        kvp_prompt prompt = {.struct_size = sizeof prompt, .tokens = tokens, .n_tokens = S};
        kvp_open_info info;
        assert_int_equal(kvp_cache_match(f.cache, f.ns, &prompt, &info), KVP_OK);
        assert_fields(info, hit_tokens, i < PROMPTS - USABLE ? 0 : S, stop,
                      i < PROMPTS - USABLE ? KVP_STOP_MISS : KVP_STOP_END);
    }
    tear_down(&f);
}

/* What it led to: the map's entry for old content names a block that holds new content. */
TEST(test_defect_2_old_content_is_computed_anew_after_its_block_was_reused)
{
    fixture f = set_up(1);
    kvp_open_info info;
    for (int turn = 0; turn < 3; turn++) {
        for (int32_t number = 0; number < 2; number++) {
            assert_int_equal(touch(&f, number, &info), 1);
            assert_int_equal(info.hit_tokens, 0);
            int32_t expected[S], tokens[S];
            uint32_t n;
            fill_block(number, expected);
            assert_int_equal(kvp_block_tokens(f.cache, 0, KVP_DEVICE, 1, tokens, &n), KVP_OK);
            assert_int_equal(n, S);
            assert_memory_equal(tokens, expected, sizeof tokens);
        }
    }
    tear_down(&f);
}

/* ------------------------------------------------------------------------------------- defect 3 */

TEST(test_defect_3_partial_blocks_are_counted_at_every_length)
{
    enum { USABLE = 8, LONGEST = 5 * S };
    for (uint32_t n = 1; n <= LONGEST; n++) {
        fixture f = set_up(USABLE);
        int32_t tokens[LONGEST];
        for (int32_t i = 0; i < LONGEST; i++)
            tokens[i] = i;
        uint32_t n_blocks = (n + S - 1) / S;
        kvp_seq seq = open_prompt(&f, tokens, n, NULL);
        assert_int_equal(stats_of(&f).held_blocks, n_blocks);
        for (uint32_t i = 0; i < n_blocks; i++)
            assert_int_equal(block(&f, row_entry(&f, seq, i)).ref_count, 1);
        assert_int_equal(kvp_seq_commit(f.cache, seq, n), KVP_OK);
        kvp_released released = close_seq(&f, seq);
        assert_fields(released, cached_blocks, n / S, freed_blocks, n_blocks - n / S);
        kvp_stats stats = stats_of(&f);
        assert_int_equal(stats.held_blocks, 0);
        assert_int_equal(stats.free_blocks + stats.cached_blocks, USABLE);
        tear_down(&f);
    }
}

/* ------------------------------------------------------------------------------------- defect 4 */

TEST(test_defect_4_every_appended_token_is_counted)
{
    enum { PROMPT = 3, APPENDED = 40 };
    fixture f = set_up(16);
    const int32_t tokens[PROMPT] = {1, 2, 3};
    kvp_seq seq = open_committed(&f, tokens, PROMPT, NULL);
    for (uint32_t i = 1; i <= APPENDED; i++) {
        int32_t token = (int32_t)(100 + i);
        assert_int_equal(kvp_seq_extend(f.cache, seq, &token, 1, 0), KVP_OK);
        kvp_seq_info info = info_of(&f, seq);
        assert_fields(info, n_tokens, PROMPT + i, prompt_tokens, PROMPT, n_blocks,
                      (PROMPT + i + S - 1) / S, last_token, token);
        int64_t slot;
        assert_int_equal(kvp_seq_slots(f.cache, seq, 0, PROMPT + i - 1, 1, &slot), KVP_OK);
        assert_int_equal(slot / S, row_entry(&f, seq, (PROMPT + i - 1) / S));
        assert_int_equal(slot % S, (PROMPT + i - 1) % S);
        assert_int_equal(kvp_seq_commit(f.cache, seq, PROMPT + i), KVP_OK);
    }
    close_seq(&f, seq);
    tear_down(&f);
}

/* ------------------------------------------------------------------------------------- defect 5 */

/* Hashes of 4 bits: every look-up collides. Prompts of few different units after each other give
 * equal units after different prefixes all the time. The cache must do exactly what the same cache
 * with whole hashes does; and of every block that is shared, the whole prefix is compared with the
 * prefix that was computed into it. */
enum { D5_USABLE = 96, D5_UNITS_MAX = 6, D5_TURNS = 3000 };

typedef struct content {
    uint32_t n_tokens; /* 0: not known */
    int32_t tokens[D5_UNITS_MAX * S];
} content;

static void draw_prompt(uint32_t *random, int32_t *tokens, uint32_t *out_n)
{
    uint32_t n = 1 + draw(random, D5_UNITS_MAX * S - 1);
    for (uint32_t i = 0; i < n; i += S)
        fill_block((int32_t)draw(random, i < 2 * S ? 12 : 3), tokens + i);
    *out_n = n;
}

static void expect_right_prefix(const fixture *f, kvp_seq seq, const content *prompt,
                                const kvp_open_info *info, const content *written)
{
    for (uint32_t i = 0; i < info->shared_blocks; i++) {
        const content *of_block = &written[row_entry(f, seq, i)];
        assert_int_equal(of_block->n_tokens, (i + 1) * S);
        assert_memory_equal(of_block->tokens, prompt->tokens, (i + 1) * S * sizeof(int32_t));
    }
}

static void note_written(const fixture *f, kvp_seq seq, const content *prompt, content *written)
{
    for (uint32_t i = 0; i < prompt->n_tokens / S; i++) {
        content *of_block = &written[row_entry(f, seq, i)];
        of_block->n_tokens = (i + 1) * S;
        memcpy(of_block->tokens, prompt->tokens, (i + 1) * S * sizeof(int32_t));
    }
}

static void expect_equal_rows(const fixture *a, kvp_seq of_a, const fixture *b, kvp_seq of_b)
{
    const int32_t *row_a;
    const int32_t *row_b;
    uint32_t n_a, n_b;
    assert_int_equal(kvp_seq_row(a->cache, of_a, 0, &row_a, &n_a), KVP_OK);
    assert_int_equal(kvp_seq_row(b->cache, of_b, 0, &row_b, &n_b), KVP_OK);
    assert_int_equal(n_a, n_b);
    assert_memory_equal(row_a, row_b, n_a * sizeof *row_a);
}

TEST(test_defect_5_colliding_hashes_never_share_a_wrong_block)
{
    enum { OPEN = 8 };
    static content written[D5_USABLE + 1];
    memset(written, 0, sizeof written);
    kvp_config config = config_of(D5_USABLE);
    fixture whole = set_up_config(&config, NULL, 0);
    config.test_hash_bits = 4;
    fixture cut = set_up_config(&config, NULL, 0);
    kvp_seq of_whole[OPEN] = {{0}};
    kvp_seq of_cut[OPEN] = {{0}};
    uint32_t random = 5;
    for (uint32_t turn = 0; turn < D5_TURNS; turn++) {
        uint32_t at = draw(&random, OPEN);
        if (turn >= OPEN && of_cut[at].bits) {
            close_seq(&whole, of_whole[at]);
            close_seq(&cut, of_cut[at]);
        }
        content prompt;
        kvp_open_info info, expected;
        draw_prompt(&random, prompt.tokens, &prompt.n_tokens);
        of_whole[at] = open_prompt(&whole, prompt.tokens, prompt.n_tokens, &expected);
        of_cut[at] = open_prompt(&cut, prompt.tokens, prompt.n_tokens, &info);
        expect_right_prefix(&cut, of_cut[at], &prompt, &info, written);
        assert_memory_equal(&info, &expected, sizeof info);
        assert_int_equal(kvp_seq_commit(whole.cache, of_whole[at], prompt.n_tokens), KVP_OK);
        assert_int_equal(kvp_seq_commit(cut.cache, of_cut[at], prompt.n_tokens), KVP_OK);
        note_written(&cut, of_cut[at], &prompt, written);
        expect_equal_rows(&whole, of_whole[at], &cut, of_cut[at]);
    }
    assert_true(stats_of(&cut).hash_collisions > D5_TURNS / 4);
    assert_int_equal(stats_of(&whole).hash_collisions, 0);
    assert_true(stats_of(&cut).cached_tokens > D5_TURNS * S / 4); /* hits there were */
    assert_true(stats_of(&cut).evicted_blocks > 0);
    tear_down(&whole);
    tear_down(&cut);
}

/* The case itself. Two first units whose hashes are equal as far as look-ups see, followed by the
 * same second unit: nano-vllm compares the second unit's tokens only, and serves the other
 * prefix's KV. */
TEST(test_defect_5_a_collision_in_the_first_unit_does_not_carry_to_the_second)
{
    enum { FIRST_UNITS = 17 }; /* of 4 bits there are 16: two of them are equal */
    kvp_config config = config_of(2 * FIRST_UNITS);
    config.test_hash_bits = 4;
    fixture f = set_up_config(&config, NULL, 0);
    for (int turn = 0; turn < 2; turn++) {
        for (int32_t i = 0; i < FIRST_UNITS; i++) {
            int32_t tokens[2 * S];
            fill_block(i, tokens);
            fill_block(1000, tokens + S);
            kvp_open_info info;
            kvp_seq seq = open_committed(&f, tokens, 2 * S, &info);
            assert_int_equal(info.hit_tokens, turn == 0 ? 0 : 2 * S);
            assert_int_equal(row_entry(&f, seq, 0), 2 * i + 1);
            assert_int_equal(row_entry(&f, seq, 1), 2 * i + 2);
            if (turn == 1)
                close_seq(&f, seq); /* those of turn 0 stay open: nothing is evicted */
        }
    }
    assert_true(stats_of(&f).hash_collisions > 0);
    tear_down(&f);
}

/* ------------------------------------------------------------------------------------- defect 6 */

TEST(test_defect_6_nothing_is_shared_before_it_is_computed)
{
    fixture f = set_up(8);
    const int32_t tokens[2 * S] = {1, 2, 3, 4, 5, 6, 7, 8};
    kvp_open_info info;
    kvp_seq first = open_prompt(&f, tokens, 2 * S, NULL);
    kvp_seq second = open_prompt(&f, tokens, 2 * S, &info);
    assert_int_equal(info.hit_tokens, 0);
    assert_int_equal(info.stop, KVP_STOP_NO_KV); /* known, and being computed */
    assert_int_equal(row_entry(&f, second, 0), 3);
    assert_int_equal(block(&f, 1).sealed_units, 0);

    /* The step fails: nothing was written, nothing stays, nothing is found. */
    assert_int_equal(close_seq(&f, first).cached_blocks, 0);
    assert_int_equal(close_seq(&f, second).cached_blocks, 0);
    kvp_seq third = open_prompt(&f, tokens, 2 * S, &info);
    assert_int_equal(info.hit_tokens, 0);

    /* Half of the prompt is computed: half of it may be shared. */
    assert_int_equal(kvp_seq_commit(f.cache, third, S + 1), KVP_OK);
    kvp_seq fourth = open_prompt(&f, tokens, 2 * S, &info);
    assert_fields(info, hit_tokens, S, stop, KVP_STOP_NO_KV);
    close_seq(&f, third);
    close_seq(&f, fourth);
    tear_down(&f);
}

/* An engine that commits when it schedules takes the commit back when the step fails. */
TEST(test_defect_6_a_failed_step_takes_its_commit_back)
{
    fixture f = set_up(8);
    const int32_t tokens[2 * S] = {1, 2, 3, 4, 5, 6, 7, 8};
    kvp_open_info info;
    kvp_seq first = open_committed(&f, tokens, 2 * S, NULL);
    kvp_seq second = open_prompt(&f, tokens, 2 * S, &info);
    assert_int_equal(info.hit_tokens, 2 * S);

    kvp_seq sharing[2];
    uint32_t n_sharing;
    assert_int_equal(kvp_seq_invalidate(f.cache, first, S, sharing, 2, &n_sharing), KVP_OK);
    assert_int_equal(n_sharing, 1);
    assert_true(sharing[0].bits == second.bits);
    assert_int_equal(info_of(&f, first).computed_tokens, S);

    kvp_seq third = open_prompt(&f, tokens, 2 * S, &info);
    assert_int_equal(info.hit_tokens, S);
    close_seq(&f, first);
    close_seq(&f, second);
    close_seq(&f, third);
    kvp_prompt prompt = {.struct_size = sizeof prompt, .tokens = tokens, .n_tokens = 2 * S};
    assert_int_equal(kvp_cache_match(f.cache, f.ns, &prompt, &info), KVP_OK);
    assert_int_equal(info.hit_tokens, S);
    tear_down(&f);
}

/* ------------------------------------------------------------------------------------- defect 7 */

static void expect_shortage(const fixture *f, kvp_status status, uint64_t missing)
{
    kvp_shortage shortage;
    assert_int_equal(kvp_cache_shortage_get(f->cache, &shortage), KVP_OK);
    assert_fields(shortage, status, status, missing_blocks, missing);
}

static void expect_admission(fixture *f, uint32_t n_tokens, uint32_t verdict, uint32_t missing)
{
    int32_t tokens[16 * S];
    for (int32_t i = 0; i < 16 * S; i++)
        tokens[i] = 5000 + i;
    kvp_prompt prompt = {.struct_size = sizeof prompt, .tokens = tokens, .n_tokens = n_tokens};
    kvp_admission admission;
    assert_int_equal(kvp_cache_can_open(f->cache, f->ns, &prompt, &admission), KVP_OK);
    assert_fields(admission, verdict, verdict, missing_blocks, missing);

    kvp_seq seq;
    kvp_stats before = stats_of(f);
    kvp_status status = try_open(f, tokens, n_tokens, &seq, NULL);
    if (verdict == KVP_ADMIT_OK) {
        assert_int_equal(status, KVP_OK);
        close_seq(f, seq);
        return;
    }
    kvp_status expected = verdict == KVP_ADMIT_NEVER ? KVP_E_NEVER : KVP_E_NO_BLOCKS;
    assert_int_equal(status, expected);
    expect_shortage(f, expected, missing);
    kvp_stats after = stats_of(f);
    assert_int_equal(after.refused, before.refused + 1);
    before.refused = after.refused;
    assert_memory_equal(&before, &after, sizeof after); /* and nothing else happened */
    expect_whole(f);
}

TEST(test_defect_7_an_open_that_does_not_fit_says_how_many_blocks_are_missing)
{
    fixture f = set_up(8);
    expect_admission(&f, 8 * S, KVP_ADMIT_OK, 0);
    expect_admission(&f, 8 * S + 1, KVP_ADMIT_NEVER, 1);
    expect_admission(&f, 11 * S, KVP_ADMIT_NEVER, 3);
    const int32_t tokens[5 * S] = {1, 2, 3};
    kvp_seq seq = open_committed(&f, tokens, 5 * S, NULL);
    expect_admission(&f, 3 * S, KVP_ADMIT_OK, 0);
    expect_admission(&f, 3 * S + 1, KVP_ADMIT_LATER, 1);
    expect_admission(&f, 8 * S, KVP_ADMIT_LATER, 5);
    expect_admission(&f, 9 * S, KVP_ADMIT_NEVER, 1);
    close_seq(&f, seq);
    expect_admission(&f, 8 * S, KVP_ADMIT_OK, 0);
    tear_down(&f);
}

TEST(test_defect_7_growth_that_does_not_fit_says_so_and_changes_nothing)
{
    fixture f = set_up(3);
    const int32_t tokens[S] = {1, 2, 3, 4};
    const int32_t others[2 * S] = {5, 6, 7, 8, 9, 10, 11, 12};
    kvp_seq seq = open_committed(&f, tokens, S, NULL);
    kvp_seq other = open_committed(&f, others, 2 * S, NULL);
    assert_int_equal(kvp_seq_extend(f.cache, seq, others, S + 1, 0), KVP_E_NO_BLOCKS);
    expect_shortage(&f, KVP_E_NO_BLOCKS, 2);
    assert_fields(info_of(&f, seq), n_tokens, S, n_blocks, 1);
    assert_int_equal(kvp_seq_extend(f.cache, seq, NULL, 3 * S, 0), KVP_E_NEVER);
    expect_shortage(&f, KVP_E_NEVER, 1);

    kvp_seq both[] = {seq, other};
    const int32_t next[] = {20, 21};
    kvp_batch batch = {.struct_size = sizeof batch, .n_seqs = 2, .seqs = both, .tokens = next};
    kvp_admission admission;
    assert_int_equal(kvp_cache_can_extend(f.cache, &batch, &admission), KVP_OK);
    assert_fields(admission, verdict, KVP_ADMIT_LATER, need_blocks, 2, missing_blocks, 2);
    assert_int_equal(kvp_seq_extend_many(f.cache, &batch), KVP_E_NO_BLOCKS);
    expect_shortage(&f, KVP_E_NO_BLOCKS, 2);
    assert_int_equal(info_of(&f, other).n_tokens, 2 * S);

    close_seq(&f, other);
    assert_int_equal(kvp_seq_extend(f.cache, seq, others, S + 1, 0), KVP_OK);
    close_seq(&f, seq);
    tear_down(&f);
}

TEST_MAIN(NULL, NULL)
