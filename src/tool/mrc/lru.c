/* Owns the stack distances (Mattson et al. 1970).
 *
 * L is the list of all contents seen, most recently used first; of one request, the first block of
 * the row first. A content is used when a request ends that has it, by its tokens or its output.
 * After every request a cache of C blocks has the first k(C) contents of L: the request holds what
 * it hits, takes from the end of them, and puts its full blocks first. Of n blocks, m of them full,
 * q of which are among the k, k becomes m + min(k - q, C - n). For all C at once
 *
 *   k(C) = min(D, C - [C >= t])
 *
 * D is the length of L. t says which caches have one block free that no later hit brings back: the
 * block that the last request left partly filled, or needed for a moment although all of its
 * content was there. After a request of n blocks, m of them full, f full ones in the prompt, and
 * with d the place in L of its last full block before (infinite if it was not there):
 *
 *   n > m            t = 0
 *   n = m > f        t = d + 1
 *   n = m = f > 0    t = max(t, d + 1)
 *   n = 0            t stays
 *
 * So block i of a prompt, at place d_i in L, is hit exactly by the caches of d_i + [d_i >= t]
 * blocks and more: one number, counted once, gives all sizes.
 *
 * Places are counted by time. Each use gets the next number, the last block of a request the
 * smallest; `alive` has a bit for each number that is some content's last use, `sums` (a Fenwick
 * tree) counts them in words of 64. The blocks of a prompt mostly have numbers in a row, which are
 * read and cleared a word at a time.
 */
#include "tool/mrc/lru.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tool/progress.h"
#include "tool/tool.h"

#define FAR UINT64_MAX

typedef struct stack {
    uint64_t *alive; /* [n_words] */
    uint64_t *sums;  /* [n_words + 1] Fenwick, from 1 */
    size_t n_words;
    uint64_t *used; /* [n_contents] 1 + the number of the last use; 0: none yet */
    uint64_t n_alive;
    uint64_t next;                 /* number */
    const kvpi_mrc_spared *spared; /* or NULL */
    uint64_t t;
    uint32_t *sizes;  /* [blocks of a prompt] the least that hits each; NULL: not wanted */
    size_t open_word; /* changes of this word are not in `sums` yet */
    int64_t open_change;
} stack;

/* ----------------------------------------------------------------------------------- the list */

static void add_to_sums(stack *st, size_t word, int64_t change)
{
    for (size_t i = word + 1; i <= st->n_words; i += i & (~i + 1))
        st->sums[i] += (uint64_t)change;
}

static void flush(stack *st)
{
    if (st->open_change != 0)
        add_to_sums(st, st->open_word, st->open_change);
    st->open_change = 0;
}

static void flip(stack *st, uint64_t number, int64_t change)
{
    size_t word = (size_t)(number / 64);
    if (word != st->open_word)
        flush(st);
    st->open_word = word;
    st->open_change += change;
    st->alive[word] ^= UINT64_C(1) << number % 64;
    st->n_alive += (uint64_t)change;
}

/* How many are alive with smaller numbers. Nothing may be open. */
static uint64_t count_before(const stack *st, uint64_t number)
{
    size_t word = (size_t)(number / 64);
    uint64_t below = st->alive[word] & ((UINT64_C(1) << number % 64) - 1);
    uint64_t n = (uint64_t)__builtin_popcountll(below);
    for (size_t i = word; i > 0; i -= i & (~i + 1))
        n += st->sums[i];
    return n;
}

/* ------------------------------------------------------------------------------- one request */

/* Tell how far down the list a content stands, from 1. `before` is the content looked up just
 * before, at distance `distance`. */
static uint64_t distance_of(const stack *st, uint64_t used, uint64_t used_before, uint64_t distance)
{
    if (used == 0)
        return FAR;
    return used + 1 == used_before ? distance + 1 : st->n_alive - count_before(st, used - 1);
}

static void count_hit(kvpi_mrc_curve *curve, uint64_t distance, uint32_t tokens, uint8_t group)
{
    curve->tokens[distance] += tokens;
    curve->blocks[distance]++;
    if (curve->groups != NULL)
        curve->groups[group * curve->n + distance] += tokens;
}

/* Look up its blocks. Gives the distance of the last full one. */
static uint64_t look_up(const stack *st, const kvpi_mrc_refs *refs, const kvpi_mrc_request *request,
                        kvpi_mrc_curve *curve)
{
    const uint32_t *contents = refs->contents + request->first;
    uint64_t distance = 0, used_before = 0;
    for (uint32_t i = 0; i < request->n_full; i++) {
        uint8_t group = refs->groups[contents[i]];
        uint32_t tokens =
            i + 1 == request->n_prompt ? request->last_tokens : (uint32_t)refs->block_tokens;
        uint64_t used = st->used[contents[i]];
        distance = distance_of(st, used, used_before, distance);
        used_before = used;
        if (i >= request->n_prompt)
            continue;
        curve->sampled_tokens[group] += tokens;
        if (st->sizes != NULL)
            st->sizes[i] = 0;
        if (distance == FAR)
            continue;
        const uint64_t least = distance + (distance >= st->t);
        if (st->sizes != NULL)
            st->sizes[i] = (uint32_t)(least > curve->min_blocks ? least : curve->min_blocks);
        count_hit(curve, least, tokens, group);
        if (curve->ns != NULL)
            curve->ns[least] +=
                tokens == refs->block_tokens ? st->spared[i].ns : st->spared[i].last_ns;
    }
    return distance;
}

/* Put its blocks on top of the list. */
static void use(stack *st, const kvpi_mrc_refs *refs, const kvpi_mrc_request *request)
{
    const uint32_t *contents = refs->contents + request->first;
    for (uint32_t i = 0; i < request->n_full; i++)
        if (st->used[contents[i]] != 0)
            flip(st, st->used[contents[i]] - 1, -1);
    for (uint32_t i = request->n_full; i-- > 0;) {
        flip(st, st->next, 1);
        st->used[contents[i]] = ++st->next;
    }
    flush(st);
}

static void set_free_block(stack *st, const kvpi_mrc_request *request, uint64_t distance)
{
    uint64_t behind = distance == FAR ? FAR : distance + 1;
    if (request->n_blocks > request->n_full)
        st->t = 0;
    else if (request->n_full > request->n_prompt)
        st->t = behind;
    else if (request->n_full > 0 && behind > st->t)
        st->t = behind;
}

/* ------------------------------------------------------------------------------------ the pass */

static void sum_up(uint64_t *counts, size_t n)
{
    for (size_t i = 1; i < n; i++)
        counts[i] += counts[i - 1];
}

static void finish(kvpi_mrc_curve *curve)
{
    size_t last = curve->n - 1;
    while (last > 0 && curve->blocks[last] == 0)
        last--;
    double enough = last == 0 ? 0 : ceil(((double)last - 1) / curve->rate + 1);
    curve->enough_blocks =
        enough > (double)curve->min_blocks ? (uint64_t)enough : curve->min_blocks;
    sum_up(curve->tokens, curve->n);
    sum_up(curve->blocks, curve->n);
    for (size_t g = 0; curve->groups != NULL && g < KVPI_MRC_GROUPS; g++)
        sum_up(curve->groups + g * curve->n, curve->n);
    for (size_t i = 1; curve->ns != NULL && i < curve->n; i++)
        curve->ns[i] += curve->ns[i - 1];
}

static int prepare(const kvpi_mrc_refs *refs, const kvpi_mrc_spared *spared, stack *st,
                   kvpi_mrc_curve *out)
{
    bool sampled = refs->rate < 1;
    *st = (stack){.n_words = (size_t)(refs->n_refs / 64) + 1, .t = FAR, .spared = spared};
    *out = (kvpi_mrc_curve){.n = (size_t)refs->n_contents + 2,
                            .rate = refs->rate,
                            .expected_tokens = (double)refs->looked_up_tokens * refs->rate,
                            .min_blocks = refs->min_blocks > 0 ? refs->min_blocks : 1};
    st->alive = calloc(st->n_words, sizeof *st->alive);
    st->sums = calloc(st->n_words + 1, sizeof *st->sums);
    st->used = calloc((size_t)refs->n_contents + 1, sizeof *st->used);
    out->tokens = calloc(out->n, sizeof *out->tokens);
    out->blocks = calloc(out->n, sizeof *out->blocks);
    out->groups = sampled ? calloc(out->n * KVPI_MRC_GROUPS, sizeof *out->groups) : NULL;
    out->ns = spared != NULL ? calloc(out->n, sizeof *out->ns) : NULL;
    return st->alive != NULL && st->sums != NULL && st->used != NULL && out->tokens != NULL &&
                   out->blocks != NULL && (out->groups != NULL || !sampled) &&
                   (out->ns != NULL || spared == NULL)
               ? 0
               : -1;
}

static void free_stack(stack *st)
{
    free(st->alive);
    free(st->sums);
    free(st->used);
    free(st->sizes);
}

static void serve(stack *st, const kvpi_mrc_refs *refs, const kvpi_mrc_request *request,
                  kvpi_mrc_curve *out)
{
    uint64_t distance = look_up(st, refs, request, out);
    use(st, refs, request);
    set_free_block(st, request, distance);
}

static void run(const kvpi_mrc_refs *refs, stack *st, kvpi_mrc_curve *out)
{
    kvpi_progress progress;
    kvpi_progress_start(&progress, "stack distances of requests", refs->n_requests);
    for (size_t r = 0; r < refs->n_requests; r++) {
        serve(st, refs, &refs->requests[r], out);
        kvpi_progress_update(&progress, r + 1);
    }
    kvpi_progress_end(&progress);
    finish(out);
}

int kvpi_mrc_lru_make(const kvpi_mrc_refs *refs, const kvpi_mrc_spared *spared, const char *command,
                      kvpi_mrc_curve *out)
{
    stack st;
    kvpi_mrc_curve curve;
    bool fine = prepare(refs, spared, &st, &curve) == 0;
    if (fine)
        run(refs, &st, &curve);
    free_stack(&st);
    if (fine) {
        *out = curve;
        return TOOL_OK;
    }
    kvpi_mrc_lru_free(&curve);
    return kvpi_tool_fail(command, "out of memory for the curve (--sample makes it smaller)");
}

void kvpi_mrc_lru_free(kvpi_mrc_curve *curve)
{
    free(curve->tokens);
    free(curve->blocks);
    free(curve->groups);
    free(curve->ns);
    *curve = (kvpi_mrc_curve){0};
}

/* -------------------------------------------------------------------------- a request at a time */

struct kvpi_mrc_sizes {
    kvpi_mrc_refs refs;
    stack stack;
    kvpi_mrc_curve curve; /* by the way */
    size_t next;          /* request */
};

kvpi_mrc_sizes *kvpi_mrc_sizes_open(const kvpi_requests *requests, const kvpi_mrc_options *options)
{
    kvpi_mrc_sizes *sizes = calloc(1, sizeof *sizes);
    if (sizes == NULL || kvpi_mrc_refs_make(requests, options, &sizes->refs) != TOOL_OK) {
        free(sizes);
        return NULL;
    }
    const bool fine = prepare(&sizes->refs, NULL, &sizes->stack, &sizes->curve) == 0;
    sizes->stack.sizes = calloc(sizes->curve.min_blocks, sizeof *sizes->stack.sizes);
    if (!fine || sizes->stack.sizes == NULL) {
        kvpi_mrc_sizes_close(sizes);
        return NULL;
    }
    return sizes;
}

void kvpi_mrc_sizes_close(kvpi_mrc_sizes *sizes)
{
    if (sizes == NULL)
        return;
    free_stack(&sizes->stack);
    kvpi_mrc_lru_free(&sizes->curve);
    kvpi_mrc_refs_free(&sizes->refs);
    free(sizes);
}

const uint32_t *kvpi_mrc_sizes_of(kvpi_mrc_sizes *sizes, uint64_t number)
{
    while (sizes->next <= number)
        serve(&sizes->stack, &sizes->refs, &sizes->refs.requests[sizes->next++], &sizes->curve);
    return sizes->stack.sizes;
}

/* --------------------------------------------------------------------------------- reading it */

/* A content d blocks down the list is expected to have (d - 1) x rate sampled ones before it. */
static size_t place_of(const kvpi_mrc_curve *curve, uint64_t blocks)
{
    double place = blocks == 0 ? 0 : ((double)blocks - 1) * curve->rate + 1;
    return place < (double)(curve->n - 1) ? (size_t)place : curve->n - 1;
}

/* Each group is a sample of a sixteenth of the rate. What a group has too few or too many of are
 * mostly blocks that are used again and again, hits at any size (SHARDS-adj). Less than 0 is kept
 * until the groups are added: the sum would be too large. */
static double tokens_of_group(const kvpi_mrc_curve *curve, size_t group, size_t place)
{
    double expected = curve->expected_tokens / KVPI_MRC_GROUPS;
    return (double)curve->groups[group * curve->n + place] + expected -
           (double)curve->sampled_tokens[group];
}

static double tokens_at(const kvpi_mrc_curve *curve, size_t place)
{
    double sum = 0;
    for (size_t g = 0; g < KVPI_MRC_GROUPS; g++)
        sum += tokens_of_group(curve, g, place);
    return sum > 0 ? sum : 0;
}

/* Two errors. Which references are in the sample: told by how far the groups are apart. And which
 * contents: of d, binomially many are, which shifts the curve by the deviation of that. */
static double error_at(const kvpi_mrc_curve *curve, size_t place)
{
    double sum = tokens_at(curve, place), squares = 0;
    for (size_t g = 0; g < KVPI_MRC_GROUPS; g++) {
        double off = tokens_of_group(curve, g, place) - sum / KVPI_MRC_GROUPS;
        squares += off * off;
    }
    double groups = sqrt(squares / (KVPI_MRC_GROUPS - 1) * KVPI_MRC_GROUPS);
    double deviation = sqrt((double)place * (1 - curve->rate));
    double low = (double)place - deviation, high = (double)place + deviation;
    size_t last = curve->n - 1;
    double shift = tokens_at(curve, high < (double)last ? (size_t)high : last) -
                   tokens_at(curve, low > 0 ? (size_t)low : 0);
    return sqrt(groups * groups + shift * shift / 4);
}

static kvpi_mrc_hits estimate(const kvpi_mrc_curve *curve, size_t place)
{
    kvpi_mrc_hits hits = {.tokens = tokens_at(curve, place) / curve->rate,
                          .blocks = (double)curve->blocks[place] / curve->rate,
                          .error_tokens = error_at(curve, place) / curve->rate};
    return hits;
}

kvpi_mrc_hits kvpi_mrc_lru_at(const kvpi_mrc_curve *curve, uint64_t blocks)
{
    size_t place = place_of(curve, blocks);
    if (curve->groups != NULL)
        return estimate(curve, place);
    return (kvpi_mrc_hits){(double)curve->tokens[place], (double)curve->blocks[place], 0};
}

double kvpi_mrc_lru_ns_at(const kvpi_mrc_curve *curve, uint64_t blocks)
{
    return curve->ns != NULL ? curve->ns[place_of(curve, blocks)] : 0;
}

uint64_t kvpi_mrc_lru_size_for(const kvpi_mrc_curve *curve, double tokens)
{
    uint64_t low = curve->min_blocks, high = curve->enough_blocks;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (kvpi_mrc_lru_at(curve, middle).tokens >= tokens)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}
