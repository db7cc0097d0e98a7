/* The learned policy against plain code (test/model/oracle_policy.h): random requests to a small
 * cache of contents. Both must choose the same victims, and know the same of all blocks and
 * classes. Requests change their habits, so that every way to choose a victim comes up.
 *
 *   test_policy_plain [FIRST N]     small caches with seeds FIRST .. FIRST + N - 1; default 1 12 */
#include <stdlib.h>
#include <string.h>

#include "mocka.h"
#include "../model/oracle_policy.h"
#include "core/policy/policy.h"

enum { MOST_CONTENTS = 40000, LANES = 3 };

#define NONE UINT32_MAX

/* A tier of n blocks, 1 .. n, and what it has of the contents. */
static struct {
    struct kvpi_policy *policy;
    plain_policy *plain;
    uint32_t n;
    uint32_t block_of[MOST_CONTENTS];
    uint32_t *content; /* [n + 1] of a block; NONE: it is free */
    uint8_t *lane;     /* [n + 1] */
    bool *queued;      /* [n + 1] */
    uint64_t state;
} all;

static uint32_t first_seed = 1, n_seeds = 12;

static uint32_t draw(uint32_t n)
{
    uint64_t z = all.state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ z >> 31) % n);
}

static void make(uint32_t n, uint32_t block_tokens)
{
    struct kvpi_layout layout = {0, 0};
    struct kvpi_policy plan = {.n_blocks = n, .block_tokens = block_tokens};
    plan.group_blocks = kvpi_policy_group_blocks(n, block_tokens);
    (void)kvpi_layout_take(&layout, 1, sizeof(plan));
    kvpi_policy_layout(&plan, &layout, 0);
    all.policy = malloc(layout.bytes);
    assert_non_null(all.policy);
    *all.policy = plan;
    kvpi_policy_reset(all.policy);
    all.plain = plain_create(n, 0, block_tokens, plan.group_blocks);
    all.n = n;
    all.content = malloc((n + 1) * sizeof(*all.content));
    all.lane = calloc(n + 1, 1);
    all.queued = calloc(n + 1, sizeof(*all.queued));
    memset(all.content, 0xff, (n + 1) * sizeof(*all.content));
    memset(all.block_of, 0xff, sizeof(all.block_of));
}

static void destroy(void)
{
    free(all.policy);
    plain_destroy(all.plain);
    free(all.content);
    free(all.lane);
    free(all.queued);
}

static void hold(uint32_t block)
{
    assert_true(all.queued[block]);
    all.queued[block] = false;
    kvpi_policy_unqueue(all.policy, block);
}

static void release(uint32_t block)
{
    kvpi_policy_rest(all.policy, block);
    plain_rest(all.plain, block);
    kvpi_policy_queue(all.policy, all.lane[block], block);
    all.queued[block] = true;
}

/* Put back where it was. */
static void unhold(uint32_t block)
{
    kvpi_policy_queue(all.policy, all.lane[block], block);
    all.queued[block] = true;
}

/* The victim of both, of the lowest lane that has one. */
static uint32_t choose(void)
{
    uint32_t theirs = PLAIN_NONE, lane = 0;
    bool *may_go = calloc(all.n + 1, sizeof(*may_go));
    for (; lane < LANES && theirs == PLAIN_NONE; lane++) {
        for (uint32_t b = 1; b <= all.n; b++)
            may_go[b] = all.queued[b] && all.lane[b] == lane;
        theirs = plain_choose(all.plain, may_go);
        assert_int_equal(kvpi_policy_choose(all.policy, lane), theirs);
    }
    free(may_go);
    return theirs;
}

static uint32_t take(void)
{
    for (uint32_t b = 1; b <= all.n; b++)
        if (all.content[b] == NONE)
            return b;
    const uint32_t block = choose();
    hold(block);
    kvpi_policy_forget(all.policy, block);
    plain_forget(all.plain, block);
    all.block_of[all.content[block]] = NONE;
    return block;
}

/* Contents first .. first + n - 1, the first n_prompt of them a prompt. */
static void request(uint32_t first, uint32_t n, uint32_t n_prompt, uint32_t output_tokens)
{
    const uint32_t group = all.policy->group_blocks;
    uint32_t *blocks = malloc(n * sizeof(*blocks));
    uint32_t *names = malloc((n / group + 1) * sizeof(*names));
    struct kvpi_policy_group *groups = malloc((n / group + 1) * sizeof(*groups));
    uint32_t n_hits = 0;
    while (n_hits < n_prompt && all.block_of[first + n_hits] != NONE)
        n_hits++;
    for (uint32_t i = 0; i < n; i++) {
        blocks[i] = all.block_of[first + i];
        if (blocks[i] != NONE)
            hold(blocks[i]);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (blocks[i] == NONE) {
            blocks[i] = take();
            all.content[blocks[i]] = first + i;
            all.block_of[first + i] = blocks[i];
            all.lane[blocks[i]] = (uint8_t)(draw(8) == 0 ? 1 + draw(LANES - 1) : 0);
        }
    }
    for (uint32_t g = 0; g < n / group; g++)
        groups[g].name = names[g] = (first + g * group) * UINT32_C(2654435761);
    const struct kvpi_policy_request use = {.blocks = blocks,
                                            .groups = groups,
                                            .n_blocks = n,
                                            .n_held = n,
                                            .n_prompt = n_prompt,
                                            .n_hits = n_hits,
                                            .prompt_tokens =
                                                (uint64_t)n_prompt * all.policy->block_tokens,
                                            .output_tokens = output_tokens};
    const plain_request same = {.blocks = (const int32_t *)blocks,
                                .names = names,
                                .n_blocks = n,
                                .n_held = n,
                                .n_prompt = n_prompt,
                                .n_hits = n_hits,
                                .prompt_tokens = use.prompt_tokens,
                                .output_tokens = output_tokens};
    kvpi_policy_use(all.policy, &use);
    plain_use(all.plain, &same);
    for (uint32_t i = n; i-- > 0;)
        release(blocks[i]);
    free(blocks);
    free(names);
    free(groups);
}

static void compare(void)
{
    const struct kvpi_policy *policy = all.policy;
    const plain_policy *plain = all.plain;
    assert_null(kvpi_policy_check(policy));
    assert_fields(*policy, references, plain->now, credit, plain->credit, hit_blocks,
                  plain->hit_blocks);
    assert_fields(*policy, lru_blocks, plain->lru_blocks, returned, plain->returned, returned_late,
                  plain->late);
    assert_int_equal(kvpi_policy_is_lru(policy), plain_is_lru(plain));
    for (uint32_t c = 0; c < KVPI_CLASSES; c++) {
        uint32_t now[KVPI_BINS], best[KVPI_BINS];
        kvpi_hits_index(&policy->hits, c, now, best);
        for (uint32_t b = 0; b < KVPI_BINS; b++) {
            assert_int_equal(policy->hits.hits[c][b], plain->hits[c][b]);
            assert_int_equal(policy->hits.at_risk[c][b], plain->at_risk[c][b]);
            assert_int_equal(now[b], plain->near[c][b]);
            assert_int_equal(best[b], plain->far[c][b]);
        }
    }
    for (uint32_t b = 1; b <= all.n; b++) {
        const struct kvpi_order_block *block = kvpi_order_block(policy->order, b);
        assert_fields(*block, stamp, plain->blocks[b].used, number, plain->blocks[b].number, count,
                      plain->blocks[b].uses, class_, plain->blocks[b].class_);
    }
}

/* Habits: the first of a hundred requests that are alike, and how they differ. */
static void live(uint32_t n_requests, uint32_t longest)
{
    const uint32_t span = kvpi_min_u32(4 * all.n, MOST_CONTENTS - longest);
    uint32_t base = 0, habit = 0, next = 0;
    for (uint32_t r = 0; r < n_requests; r++) {
        if (r % 100 == 0) {
            habit = draw(4);
            base = draw(span);
        }
        const uint32_t n = 1 + draw(longest);
        uint32_t first;
        if (habit == 0) {
            first = (base + draw(1 + all.n / 4)) % span; /* few, often */
        } else if (habit == 1) {
            first = (base + draw(2 * all.n)) % span;
        } else { /* in turn, more than fits; half of it new each time, with habit 3 */
            next = (next + n) % (3 * all.n / 2);
            first = habit == 3 && draw(2) ? draw(span) : (base + next) % span;
        }
        request(first, n, 1 + draw(n), draw(700));
        (void)choose();
        for (uint32_t i = draw(3); i > 0; i--) {
            const uint32_t block = 1 + draw(all.n);
            if (all.queued[block]) {
                hold(block);
                (draw(2) ? release : unhold)(block);
            }
        }
        (void)choose();
        if (r % 50 == 0)
            compare();
    }
    compare();
}

TEST(test_small)
{
    plain_policy seen = {0};
    (void)state;
    for (uint32_t i = 0; i < n_seeds; i++) {
        all.state = (uint64_t)first_seed + i;
        make(8 + draw(60), 65536);
        live(4000, 1 + all.n / 4);
        seen.chose_cold += all.plain->chose_cold;
        seen.chose_gated += all.plain->chose_gated;
        seen.chose_distrusted += all.plain->chose_distrusted;
        seen.chose_oldest += all.plain->chose_oldest;
        seen.chose_old += all.plain->chose_old;
        seen.chose_young += all.plain->chose_young;
        seen.halvings += all.plain->halvings;
        seen.now += all.plain->now;
        seen.n_left += all.plain->n_left;
        destroy();
    }
    assert_true(seen.chose_cold > 0 && seen.chose_gated > 0 && seen.chose_distrusted > 0);
    assert_true(seen.chose_oldest > 0 && seen.chose_old > 0 && seen.chose_young > 0);
    assert_true(seen.halvings > 0);
    print_message("%u requests, %llu uses of blocks, %llu releases\n", 4000 * n_seeds,
                  (unsigned long long)seen.now, (unsigned long long)seen.n_left);
}

/* Groups of several blocks, and blocks behind them. */
TEST(test_groups)
{
    all.state = 77;
    make(600, 64);
    assert_int_equal(all.policy->group_blocks, 4);
    live(1500, 40);
    destroy();
}

/* Stamps of entries in units of two references. */
TEST(test_large)
{
    all.state = 78;
    make(8500, 16);
    assert_int_equal(kvpi_bins_shift(8500), 1);
    live(220, 700);
    destroy();
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        first_seed = (uint32_t)strtoul(argv[1], NULL, 10);
        n_seeds = (uint32_t)strtoul(argv[2], NULL, 10);
    }
    return run_all_tests(NULL, NULL);
}
