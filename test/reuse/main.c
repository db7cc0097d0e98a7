/* kvp_reuse: how much of the prompts a cache with recurrent state reuses, beside what could be.
 *
 *   kvp_reuse [SEED]        three kinds of traffic, 200 requests each; fails if a share is too low
 *   kvp_reuse --self-test   the bound beside an exhaustive search, on a few requests each
 *
 * Everything  what a cache with a checkpoint at every unit, and memory without limit, reuses: the
 *             longest prefix, in full units, that any request before computed; not the last token.
 * A branch    a place where a request leaves the path of an earlier one. The second request through
 *             it finds no state there, because it appears only then: figures are told with these
 *             and without.
 * Bound       bound.h: no cache of that memory reuses more, with all requests known beforehand.
 *
 * The figures are in docs/HYBRID.md.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bound.h"
#include "served.h"

enum { N_REQUESTS = 200, ROUNDS = 3000 };

/* A kind of traffic, and what its requests share. */
typedef struct study {
    traffic of;
    uint32_t *shared;   /* [n, n] as in bound.h */
    uint32_t *blocks;   /* [n] */
    uint32_t *most;     /* [n] tokens that any cache could reuse */
    uint8_t *is_second; /* [n] through a branch */
    uint32_t *reused;   /* [n] */
    uint32_t all_blocks;
} study;

/* Of everything in 1/1000, the second requests through a branch counted and not. */
typedef struct share {
    uint32_t counted, without;
} share;

static void *array(size_t n, size_t size)
{
    void *out = calloc(n, size);
    if (out == NULL)
        abort();
    return out;
}

static uint32_t tokens_of(const request *r)
{
    return r->n_prompt + r->n_answer;
}

/* Full units that b's prompt, less its last token, has in common with what a computed. */
static uint32_t count_shared(const request *a, const request *b)
{
    const uint32_t n = tokens_of(a) < b->n_prompt - 1 ? tokens_of(a) : b->n_prompt - 1;
    uint32_t i = 0;
    while (i + UNIT <= n && memcmp(a->tokens + i, b->tokens + i, UNIT * sizeof *a->tokens) == 0)
        i += UNIT;
    return i;
}

static void look_back(study *s, uint32_t j)
{
    const uint32_t n = s->of.n_requests;
    const request *r = s->of.requests;
    uint32_t n_through = 0;
    int goes_on = 0; /* an earlier one, where this one leaves it */
    for (uint32_t i = 0; i < j; i++) {
        const uint32_t shared = count_shared(&r[i], &r[j]);
        s->shared[(size_t)i * n + j] = shared;
        s->most[j] = shared > s->most[j] ? shared : s->most[j];
    }
    for (uint32_t i = 0; i < j && s->most[j] > 0; i++) {
        if (s->shared[(size_t)i * n + j] == s->most[j]) {
            n_through++;
            goes_on = goes_on || tokens_of(&r[i]) >= s->most[j] + UNIT;
        }
    }
    s->is_second[j] = n_through == 1 && goes_on;
    s->blocks[j] = (tokens_of(&r[j]) + UNIT - 1) / UNIT;
    s->all_blocks += s->blocks[j] + 1 - s->most[j] / UNIT;
}

static study study_make(traffic_kind kind, uint64_t seed)
{
    study s = {.of = traffic_make(kind, N_REQUESTS, seed)};
    const uint32_t n = s.of.n_requests;
    s.shared = array((size_t)n * n, sizeof *s.shared);
    s.blocks = array(n, sizeof *s.blocks);
    s.most = array(n, sizeof *s.most);
    s.is_second = array(n, sizeof *s.is_second);
    s.reused = array(n, sizeof *s.reused);
    for (uint32_t j = 0; j < n; j++)
        look_back(&s, j);
    return s;
}

static void study_free(study *s)
{
    traffic_free(&s->of);
    free(s->shared);
    free(s->blocks);
    free(s->most);
    free(s->is_second);
    free(s->reused);
}

static uint64_t sum(const study *s, const uint32_t *of, int with_seconds)
{
    uint64_t total = 0;
    for (uint32_t j = 0; j < s->of.n_requests; j++)
        total += with_seconds || !s->is_second[j] ? of[j] : 0;
    return total;
}

static share share_of(const study *s)
{
    return (share){(uint32_t)(1000 * sum(s, s->reused, 1) / sum(s, s->most, 1)),
                   (uint32_t)(1000 * sum(s, s->reused, 0) / sum(s, s->most, 0))};
}

/* One row: a memory, what is reused in it, and the most that could be. Gives the latter two as a
 * ratio in 1/1000. */
static uint32_t measure(study *s, const char *name, const served_options *options, share *out)
{
    const sharing of = {s->of.n_requests, s->shared, s->blocks, UNIT};
    const served counts = serve_all(&s->of, options, s->reused);
    const uint64_t bound = bound_reuse(&of, options->blocks, options->slots, ROUNDS);
    const uint64_t reused = sum(s, s->reused, 1);
    *out = share_of(s);
    printf("  %-30s %6u %5u %5.1f %5.1f %6.1f %6.1f %5u %7u\n", name, options->blocks,
           options->slots, out->counted / 10.0, out->without / 10.0,
           100.0 * (double)bound / (double)sum(s, s->most, 1),
           100.0 * (double)reused / (double)bound, (unsigned)counts.made, (unsigned)counts.evicted);
    return (uint32_t)(1000 * reused / bound);
}

static int too_low(const char *what, uint32_t found, uint32_t least)
{
    if (found < least)
        printf("  %s: %.1f %%, expected at least %.1f %%\n", what, found / 10.0, least / 10.0);
    return found < least;
}

static int run_traffic(traffic_kind kind, uint64_t seed)
{
    study s = study_make(kind, seed);
    const uint32_t slots = 2 * s.of.n_requests, least_blocks = s.of.max_tokens / UNIT + 3;
    const uint32_t quarter = s.all_blocks / 4 > least_blocks ? s.all_blocks / 4 : least_blocks;
    served_options options = {s.all_blocks, 4 * slots, 0};
    share found;
    int failed = 0;
    uint32_t n_seconds = 0;
    for (uint32_t j = 0; j < s.of.n_requests; j++)
        n_seconds += s.is_second[j];
    printf("%s: %u are second through a branch\n", s.of.name, n_seconds);
    (void)measure(&s, "prompts, no limit", &options, &found);
    failed |= too_low("all counted", found.counted, 800);
    failed |= too_low("without the second through a branch", found.without, 900);
    options.ends = 1;
    (void)measure(&s, "prompts and ends, no limit", &options, &found);
    failed |= too_low("all counted", found.counted, 900);
    options.slots = slots / 4;
    options.ends = 0;
    (void)measure(&s, "prompts, 1/4 of the slots", &options, &found);
    options.ends = 1;
    failed |=
        too_low("of the bound", measure(&s, "prompts and ends, 1/4 slots", &options, &found), 900);
    options.blocks = quarter;
    (void)measure(&s, "the same, 1/4 of the blocks", &options, &found);
    study_free(&s);
    return failed;
}

/* Random prefixes: of a tree in which each request leaves an earlier one somewhere. */
static void draw_tree(uint64_t *random, uint32_t n, uint32_t *shared)
{
    uint32_t length[8] = {0};
    for (uint32_t j = 0; j < n; j++) {
        *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const uint32_t from = j == 0 ? 0 : (uint32_t)(*random >> 40) % j;
        const uint32_t depth = j == 0 ? 0 : (uint32_t)(*random >> 20) % (length[from] + 1);
        for (uint32_t i = 0; i < j; i++) {
            const uint32_t both = i == from  ? depth * UNIT
                                  : i < from ? shared[i * n + from]
                                             : shared[from * n + i];
            shared[i * n + j] = both < depth * UNIT ? both : depth * UNIT;
        }
        length[j] = depth + 1 + (uint32_t)(*random >> 50) % 4;
    }
}

/* The bound is nowhere below the optimum, and often reaches it; with few slots both fall. */
static int self_test(void)
{
    uint64_t random = 7, sums[3] = {0};
    uint32_t n_below = 0;
    for (uint32_t round = 0; round < 24; round++) {
        uint32_t shared[64] = {0}, blocks[8] = {0};
        const uint32_t slots = 2 + round % 2;
        const sharing of = {6, shared, blocks, UNIT};
        draw_tree(&random, of.n, shared);
        const uint64_t best = bound_exhaustive(&of, slots, 2);
        const uint64_t bound = bound_reuse(&of, 1000, slots, ROUNDS / 6);
        n_below += bound < best;
        sums[0] += best;
        sums[1] += bound;
        sums[2] += bound_exhaustive(&of, 8, 8);
    }
    printf("optimum %u, bound %u, without a limit %u; %u below\n", (unsigned)sums[0],
           (unsigned)sums[1], (unsigned)sums[2], n_below);
    return n_below > 0 || sums[1] > sums[0] + sums[0] / 10 || sums[1] >= sums[2];
}

int main(int argc, char **argv)
{
    const uint64_t seed = argc == 2 ? strtoull(argv[1], NULL, 10) : 1;
    int failed = 0;
    if (argc == 2 && strcmp(argv[1], "--self-test") == 0)
        return self_test();
    printf("Tokens that are reused, in %% of everything; of the bound the last\n");
    printf("  %-30s %6s %5s %5s %5s %6s %6s %5s %7s\n", "", "blocks", "slots", "all", "less 2",
           "bound", "of it", "made", "evicted");
    for (uint32_t kind = 0; kind < N_TRAFFIC; kind++)
        failed |= run_traffic((traffic_kind)kind, seed);
    return failed;
}
