/* How cost grows: the same calls in pools of 10^4 to 10^8 blocks, and for batches of 1 to 4,096
 * sequences. The public headers say that the size of the pool does not count, and that a batch
 * costs O(n). GROWTH.md has the figures.
 *
 * A pool is long in use (world.h). What is opened are prompts of 4,096 tokens, drawn from all that
 * are cached, so lines are as cold as the pool is large. Times are by block or by sequence. */
#include "growth.h"

#include <stdlib.h>
#include <string.h>

#include "batch.h"
#include "sched.h"

enum {
    LONG_TOKENS = 4096,
    LONG_BLOCKS = LONG_TOKENS / BLOCK_TOKENS,
    OPENED = 16, /* prompts of a sample */
    DECODED = 64,
    SAMPLE_STEPS = 16384, /* of a batch's sample, times sequences: as many steps as it takes */
    MOST_STEPS = 1024,
    LINES = 65536,
    SAMPLES = 31
};

/* --------------------------------------------------------------------------------------- batch */

static void *set_up_batch(const bench_options *options)
{
    world *w = world_create(options, options->size, LONG_TOKENS, NULL);
    world_shuffle(w);
    return batch_create(w, options->size, 1);
}

static void tear_down_batch(void *state)
{
    batch *b = state;
    world_destroy(b->w);
    batch_free(b);
}

/* One more token for each sequence; every block is taken by eviction. */
static double extend_commit(void *state)
{
    batch *b = state;
    const uint32_t fit = SAMPLE_STEPS / b->n_seqs / BATCH_STEPS * BATCH_STEPS;
    const uint32_t n_steps = fit < BATCH_STEPS ? BATCH_STEPS : fit > MOST_STEPS ? MOST_STEPS : fit;
    batch_prepare(b, n_steps);
    const kvp_stats before = world_stats(b->w);
    const uint64_t start = now_ns();
    for (uint32_t step = 0; step < n_steps; step++)
        batch_step(b, step);
    const uint64_t total = now_ns() - start;
    const kvp_stats after = world_stats(b->w);
    const uint64_t n_blocks = (uint64_t)b->n_seqs * n_steps / BLOCK_TOKENS;
    REQUIRE(after.evicted_blocks - before.evicted_blocks == n_blocks);
    REQUIRE(after.sealed_units - before.sealed_units == n_blocks);
    return (double)total / n_steps / b->n_seqs;
}

static void *set_up_sched(const bench_options *options)
{
    return sched_scene_create(
        options, (sched_scene){.n_requests = options->size, .n_groups = 1, .evicting = true});
}

/* ---------------------------------------------------------------------------------------- pool */

typedef struct pool_state {
    world *w;
    uint64_t first_number; /* of the long prompts; the first one is not whole */
    uint32_t n_prompts;
    uint64_t random;
    int32_t *prompts; /* [OPENED][LONG_TOKENS] */
    kvp_seq seqs[OPENED];
    kvp_seq forks[OPENED];
    batch *decoding; /* once it is measured */
} pool_state;

/* Is there room for the arena, and for those who run beside? */
static bool fits(const kvp_config *config)
{
    size_t n_bytes;
    REQUIRE_OK(kvp_cache_bytes(config, &n_bytes));
    return n_bytes / 8 * 9 < available_bytes();
}

static void *set_up_pool(const bench_options *options)
{
    kvp_config config = world_config(options, DECODED + 2 * OPENED, LONG_TOKENS);
    config.n_blocks = options->size + 1;
    if (!fits(&config))
        return NULL;
    pool_state *s = allocate(sizeof *s);
    s->w = world_create_as(&config, NULL);
    s->first_number = s->w->next_number;
    s->n_prompts = (options->size + LONG_BLOCKS - 1) / LONG_BLOCKS - 1;
    s->prompts = allocate((size_t)OPENED * LONG_TOKENS * sizeof *s->prompts);
    world_shuffle(s->w);
    return s;
}

static void tear_down_pool(void *state)
{
    pool_state *s = state;
    world_destroy(s->w);
    batch_free(s->decoding);
    free(s->prompts);
    free(s);
}

static int32_t *prompt_at(pool_state *s, uint32_t i)
{
    return s->prompts + (size_t)i * LONG_TOKENS;
}

/* Different prompts, in an order that is random: every so many of them from a random one on. */
static void draw_prompts(pool_state *s)
{
    const uint32_t first = (uint32_t)(world_draw(&s->random) % s->n_prompts);
    for (uint32_t i = 0; i < OPENED; i++) {
        const uint64_t at = ((uint64_t)i * s->n_prompts / OPENED + first) % s->n_prompts;
        world_fill_tokens(s->first_number + 1 + at, prompt_at(s, i), LONG_TOKENS);
    }
}

static uint64_t open_prompts(pool_state *s, uint32_t hit_tokens, uint32_t evicted)
{
    kvp_open_info info[OPENED];
    const uint64_t start = now_ns();
    for (uint32_t i = 0; i < OPENED; i++)
        s->seqs[i] = world_open(s->w, prompt_at(s, i), LONG_TOKENS, &info[i]);
    const uint64_t total = now_ns() - start;
    for (uint32_t i = 0; i < OPENED; i++) {
        REQUIRE(info[i].hit_tokens == hit_tokens);
        REQUIRE(info[i].evicted_blocks == evicted);
    }
    return total;
}

static uint64_t close_seqs(pool_state *s, const kvp_seq seqs[OPENED])
{
    const uint64_t start = now_ns();
    for (uint32_t i = 0; i < OPENED; i++)
        world_close(s->w, seqs[i]);
    return now_ns() - start;
}

static double by_block(uint64_t ns)
{
    return (double)ns / (OPENED * LONG_BLOCKS);
}

static double open_hit(void *state)
{
    pool_state *s = state;
    draw_prompts(s);
    const uint64_t ns = open_prompts(s, LONG_TOKENS, 0);
    close_seqs(s, s->seqs);
    return by_block(ns);
}

static double close_hit(void *state)
{
    pool_state *s = state;
    draw_prompts(s);
    open_prompts(s, LONG_TOKENS, 0);
    const uint64_t cached = world_stats(s->w).cached_blocks;
    const uint64_t ns = close_seqs(s, s->seqs);
    REQUIRE(world_stats(s->w).cached_blocks == cached + OPENED * LONG_BLOCKS);
    return by_block(ns);
}

static double fork(void *state)
{
    pool_state *s = state;
    draw_prompts(s);
    open_prompts(s, LONG_TOKENS, 0);
    const uint64_t start = now_ns();
    for (uint32_t i = 0; i < OPENED; i++)
        REQUIRE_OK(kvp_seq_fork(s->w->cache, s->seqs[i], LONG_TOKENS, i, &s->forks[i]));
    const uint64_t ns = now_ns() - start;
    close_seqs(s, s->forks);
    close_seqs(s, s->seqs);
    return by_block(ns);
}

/* With the commit. */
static double open_new(void *state)
{
    pool_state *s = state;
    for (uint32_t i = 0; i < OPENED; i++)
        world_fill_tokens(s->w->next_number++, prompt_at(s, i), LONG_TOKENS);
    uint64_t ns = open_prompts(s, 0, LONG_BLOCKS);
    const uint64_t start = now_ns();
    for (uint32_t i = 0; i < OPENED; i++)
        REQUIRE_OK(kvp_seq_commit(s->w->cache, s->seqs[i], LONG_TOKENS));
    ns += now_ns() - start;
    close_seqs(s, s->seqs);
    return by_block(ns);
}

enum { MANY, ALONE, PAIRS };

/* What bounds the others: lines of the bookkeeping in random order. Many at once; one after the
 * other; or each with another one of the same 4 KiB, whose address is translated already. */
static double read_lines(pool_state *s, int how)
{
    const uint64_t *words = s->w->arena;
    const uint64_t n_lines = s->w->arena_bytes / 64;
    uint64_t sum = 0;
    const uint64_t start = now_ns();
    for (uint32_t i = 0; i < LINES; i++) {
        const uint64_t at = (world_draw(&s->random) >> 32) * n_lines >> 32;
        uint64_t word = words[at * 8];
        if (how == PAIRS)
            word += words[(at ^ 32 ^ (word & 1)) * 8];
        sum += word;
        s->random += how == MANY ? 0 : word & 1;
    }
    const uint64_t ns = now_ns() - start;
    REQUIRE(sum != 1); /* it is used */
    return (double)ns / LINES;
}

static double line(void *state)
{
    return read_lines(state, MANY);
}

static double line_alone(void *state)
{
    return read_lines(state, ALONE);
}

static double line_pair(void *state)
{
    return read_lines(state, PAIRS);
}

/* The last one: its sequences evict prompts. */
static double decode(void *state)
{
    pool_state *s = state;
    if (!s->decoding)
        s->decoding = batch_create(s->w, DECODED, 1);
    return extend_commit(s->decoding);
}

/* -------------------------------------------------------------------------------------- curves */

/* What is measured at each size; names are kind_size_curve. `most` bounds the largest median by the
 * smallest of sizes from `from` on: below, what a call costs however little it does is seen. */
typedef struct curve {
    const char *kind;
    const char *name;
    double most;
    uint32_t from;
    double (*ours)(void *state);
    const char *note;
} curve;

static const curve curves[GROWTH_CURVES] = {
    {"pool", "line", 0, 0, line, "a line of the bookkeeping, read in random order"},
    {"pool", "line_alone", 0, 0, line_alone, "the same, one after the other"},
    {"pool", "line_pair", 0, 0, line_pair, "the same, and then one more in the same 4 KiB"},
    {"pool", "open_hit", 8, 0, open_hit,
     "a block; 16 cached prompts of 4,096 tokens, drawn from all"},
    {"pool", "close", 6, 0, close_hit, "a block; their only holders close"},
    {"pool", "fork", 8, 0, fork, "a block; of sequences that were just opened"},
    {"pool", "open_evict_commit", 5, 0, open_new, "a block; 16 new prompts of 4,096 tokens"},
    {"pool", "extend_commit", 3, 0, decode, "a sequence; 64 of them, blocks evicted"},
    {"batch", "extend_commit", 2, 16, extend_commit, "a sequence, blocks evicted"},
    {"sched", "step", 2, 16, sched_scene_step, "a sequence, blocks evicted, with the finish"},
};

static const uint32_t pool_sizes[] = {10000, 100000, 1000000, 10000000, 30000000, 100000000};
static const uint32_t batch_sizes[] = {1, 4, 16, 64, 256, 1024, 4096};

static const struct kind {
    const char *name;
    const uint32_t *sizes;
    uint32_t n_sizes;
    uint32_t n_quick; /* sizes of --quick */
    uint32_t yardstick_size;
    void *(*set_up)(const bench_options *options);
    void (*tear_down)(void *state);
} kinds[] = {
    {"batch", batch_sizes, 7, 6, 64, set_up_batch, tear_down_batch},
    {"sched", batch_sizes, 7, 6, 64, set_up_sched, sched_scene_destroy},
    {"pool", pool_sizes, 6, 2, 10000, set_up_pool, tear_down_pool},
};

enum { N_KINDS = sizeof kinds / sizeof *kinds, NAME_BYTES = 40, MOST_GROUPS = 20 };

static group group_of(const struct kind *kind, uint32_t size)
{
    measurement *list = allocate(GROWTH_CURVES * sizeof *list);
    size_t n = 0;
    for (uint32_t i = 0; i < GROWTH_CURVES; i++) {
        if (strcmp(curves[i].kind, kind->name) != 0)
            continue;
        char *name = allocate(NAME_BYTES);
        snprintf(name, NAME_BYTES, "%s_%u_%s", kind->name, size, curves[i].name);
        list[n++] =
            (measurement){name, "ns", 0, SAMPLES, curves[i].ours, curves[i].ours, curves[i].note};
    }
    return (group){list, n, kind->set_up, kind->tear_down};
}

static group groups[MOST_GROUPS];
static uint32_t sizes[MOST_GROUPS];
static uint32_t yardstick_sizes[MOST_GROUPS];

const group *growth_groups(bool quick, size_t *out_n)
{
    size_t n = 0;
    for (uint32_t k = 0; k < N_KINDS; k++) {
        for (uint32_t i = 0; i < (quick ? kinds[k].n_quick : kinds[k].n_sizes); i++, n++) {
            sizes[n] = kinds[k].sizes[i];
            yardstick_sizes[n] = kinds[k].yardstick_size;
            groups[n] = group_of(&kinds[k], sizes[n]);
        }
    }
    *out_n = n;
    return groups;
}

uint32_t growth_size(const group *of)
{
    for (size_t i = 0; i < MOST_GROUPS; i++) {
        if (of == &groups[i])
            return sizes[i];
    }
    return 0;
}

uint32_t growth_yardstick_size(const group *of)
{
    for (size_t i = 0; i < MOST_GROUPS; i++) {
        if (of == &groups[i])
            return yardstick_sizes[i];
    }
    return 0;
}

/* Is it one of the curve, at a size that counts? */
static bool is_of(const curve *c, const char *name)
{
    char found[NAME_BYTES];
    const size_t n = strlen(c->kind);
    if (strncmp(name, c->kind, n) != 0 || name[n] != '_')
        return false;
    const unsigned long size = strtoul(name + n + 1, NULL, 10);
    snprintf(found, sizeof found, "%s_%lu_%s", c->kind, size, c->name);
    return strcmp(found, name) == 0 && size >= c->from;
}

size_t growth_ratios(result *results, size_t n)
{
    static char names[GROWTH_CURVES][NAME_BYTES];
    size_t n_all = n;
    for (uint32_t i = 0; i < GROWTH_CURVES; i++) {
        double least = 0;
        double most = 0;
        for (size_t j = 0; j < n; j++) {
            if (!is_of(&curves[i], results[j].name))
                continue;
            const double cost = results[j].median / results[j].yardstick_median;
            least = least == 0 || cost < least ? cost : least;
            most = cost > most ? cost : most;
        }
        if (least == 0)
            continue;
        snprintf(names[i], NAME_BYTES, "%s_%s", curves[i].kind, curves[i].name);
        const double ratio = most / least;
        results[n_all++] = (result){names[i],       "x",   "largest median by smallest",
                                    curves[i].most, ratio, ratio,
                                    ratio,          0,     -1};
    }
    return n_all;
}
