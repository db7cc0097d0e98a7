/* See size.h. Owns the choice of layer groups.
 *
 * A group of L layers may be n layer groups of ceil(L / n) layers, and each of them may have its
 * own tokens a block: S x k. Layers that differ in what they keep for a token stay together. A
 * block of the pool has as many bytes as the largest of these blocks, B; the others are padded.
 *
 *   B         the bytes of every (group, n, k) are tried. Then each group takes, for each n, the k
 *             that fills B best; and the numbers of layer groups, KVP_GROUPS_MAX at most in all,
 *             are those with the fewest blocks of a sequence of 8,192 tokens
 *
 *               Gemma 4 31B: a layer without a window has half the bytes of one with. 1 layer group
 *               of 10 and 5 of 10, with blocks of 32 and of 16 tokens
 *
 *               Gemma 3 27B, 10 layers without and 52 with a window, of equal heads: 1 + 6 layer
 *               groups of 10, blocks of 16 tokens; the last one has 2 layers and room for 8 more
 */
#include "tool/size/size.h"

#include <kvpager/types.h>

enum { MOST_TIMES = 16, MOST_TOKENS = 65536, USUAL_TOKENS = 8192 };

static uint64_t gcd(uint64_t a, uint64_t b)
{
    while (b > 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

uint64_t kvpi_size_chunk_blocks(uint64_t chunk_tokens, uint64_t n, uint64_t block_tokens)
{
    uint64_t begin = block_tokens - gcd(chunk_tokens, block_tokens); /* in its block, at most */
    return kvpi_size_ceil_div(begin + chunk_tokens - 1 + n, block_tokens);
}

static uint64_t sequence_blocks(const kvpi_size_group *group, uint64_t block_tokens,
                                const kvpi_size_options *options)
{
    const uint64_t all = kvpi_size_ceil_div(options->context_tokens, block_tokens);
    if (group->window_tokens == 0)
        return all;
    if (group->chunked)
        return kvpi_size_min(kvpi_size_chunk_blocks(group->window_tokens, 1, block_tokens), all);
    return kvpi_size_min(kvpi_size_ceil_div(group->window_tokens - 1, block_tokens) + 1 +
                             kvpi_size_ceil_div(options->sink_tokens, block_tokens),
                         all);
}

/* Layer groups: those of one group, or of the first groups together. */
typedef struct choice {
    uint64_t blocks;       /* of a sequence; UINT64_MAX: there is no such choice */
    uint64_t most_tokens;  /* the largest S */
    uint64_t block_tokens; /* of the last group */
    uint32_t n_rows;       /* of the last group */
} choice;

typedef struct plan {
    choice all;
    uint64_t block_bytes;
    uint32_t n_all;
    uint32_t n_rows[KVPI_MODELS_MAX_KINDS];
    uint64_t block_tokens[KVPI_MODELS_MAX_KINDS];
} plan;

static uint64_t bytes_of(const kvpi_size_group *group, uint64_t block_tokens, uint32_t n_rows)
{
    if (n_rows == 1)
        return group->span_bytes * (block_tokens / group->span_tokens);
    return kvpi_size_ceil_div(group->n_layers, n_rows) * group->layer_bytes * block_tokens;
}

static bool can_cut(const kvpi_size_group *group, uint32_t n_rows)
{
    return n_rows == 1 || (group->layer_bytes > 0 && n_rows <= group->n_layers);
}

/* Gives the next S after one, from S of the options on. Returns: false after the last */
static bool next_tokens(const kvpi_size_options *options, uint64_t *tokens)
{
    const uint64_t most = options->equal_blocks
                              ? options->block_tokens
                              : kvpi_size_min(MOST_TIMES * options->block_tokens, MOST_TOKENS);
    *tokens = *tokens == 0 ? options->block_tokens : 2 * *tokens;
    return *tokens <= most;
}

/* Says whether a has fewer blocks than b; of equals, the smaller S. */
static bool is_less(const choice *a, const choice *b)
{
    return a->blocks < b->blocks || (a->blocks == b->blocks && a->most_tokens < b->most_tokens);
}

static choice choose(const kvpi_size_options *options, const kvpi_size_group *group,
                     uint64_t block_bytes, uint32_t n_rows)
{
    choice best = {.blocks = UINT64_MAX};
    if (!can_cut(group, n_rows))
        return best;
    for (uint64_t tokens = 0; next_tokens(options, &tokens);) {
        const uint64_t blocks = n_rows * sequence_blocks(group, tokens, options);
        const choice with = {blocks, tokens, tokens, n_rows};
        if (bytes_of(group, tokens, n_rows) <= block_bytes && is_less(&with, &best))
            best = with;
    }
    return best;
}

/* Gives for each number of layer groups in all the best choices of the first groups, of which
 * `with` is the last one's. */
static void add_choice(const choice *before, const choice *with, uint32_t most, choice *now)
{
    for (uint32_t n = 0; n + with->n_rows <= most; n++) {
        choice both = *with;
        both.blocks += before[n].blocks;
        if (before[n].most_tokens > both.most_tokens)
            both.most_tokens = before[n].most_tokens;
        if (before[n].blocks != UINT64_MAX && is_less(&both, &now[n + with->n_rows]))
            now[n + with->n_rows] = both;
    }
}

static plan fill_blocks(const kvpi_size_options *options, const kvpi_size *size,
                        uint64_t block_bytes, uint32_t most)
{
    choice of[KVPI_MODELS_MAX_KINDS + 1][KVP_GROUPS_MAX + 1];
    for (uint32_t g = 0; g <= size->n_groups; g++)
        for (uint32_t n = 0; n <= most; n++)
            of[g][n] = (choice){.blocks = g == 0 && n == 0 ? 0 : UINT64_MAX};
    for (uint32_t g = 0; g < size->n_groups; g++)
        for (uint32_t n_rows = 1; n_rows <= most; n_rows++) {
            const choice with = choose(options, &size->groups[g], block_bytes, n_rows);
            if (with.blocks != UINT64_MAX)
                add_choice(of[g], &with, most, of[g + 1]);
        }
    plan out = {.block_bytes = block_bytes, .all.blocks = UINT64_MAX};
    for (uint32_t n = 0; n <= most; n++)
        if (is_less(&of[size->n_groups][n], &out.all))
            out.all = of[size->n_groups][n], out.n_all = n;
    for (uint32_t g = size->n_groups, n = out.n_all; g > 0 && out.all.blocks != UINT64_MAX; g--) {
        out.n_rows[g - 1] = of[g][n].n_rows;
        out.block_tokens[g - 1] = of[g][n].block_tokens;
        n -= of[g][n].n_rows;
    }
    return out;
}

/* Says whether the blocks of a sequence have fewer bytes; of equals, the smaller S, then fewer
 * layer groups. */
static bool is_better(const plan *a, const plan *b)
{
    if (a->all.blocks == UINT64_MAX || b->all.blocks == UINT64_MAX)
        return a->all.blocks < b->all.blocks;
    const uint64_t bytes = kvpi_size_times(a->all.blocks, a->block_bytes);
    const uint64_t than = kvpi_size_times(b->all.blocks, b->block_bytes);
    if (bytes != than)
        return bytes < than;
    if (a->all.most_tokens != b->all.most_tokens)
        return a->all.most_tokens < b->all.most_tokens;
    return a->n_all < b->n_all;
}

static plan choose_plan(const kvpi_size_options *options, const kvpi_size *size)
{
    const uint32_t most = KVP_GROUPS_MAX - (size->state_bytes > 0); /* one group is of states */
    plan best = {.all.blocks = UINT64_MAX};
    for (uint32_t g = 0; g < size->n_groups; g++)
        for (uint32_t n_rows = 1; n_rows <= most && can_cut(&size->groups[g], n_rows); n_rows++)
            for (uint64_t tokens = 0; next_tokens(options, &tokens);) {
                const uint64_t bytes = bytes_of(&size->groups[g], tokens, n_rows);
                const plan tried = fill_blocks(options, size, bytes, most);
                if (is_better(&tried, &best))
                    best = tried;
            }
    return best;
}

void kvpi_size_pool(const kvpi_size_options *options, kvpi_size *size)
{
    kvpi_size_options usual = *options;
    usual.context_tokens = USUAL_TOKENS;
    const plan best = choose_plan(&usual, size);
    uint64_t used_bytes = 0;
    size->pool_block_bytes =
        kvpi_size_ceil_div(best.block_bytes, options->block_tokens) * options->block_tokens;
    size->n_rows = best.n_all;
    for (uint32_t i = 0; i < size->n_groups; i++) {
        kvpi_size_group *group = &size->groups[i];
        group->n_rows = best.n_rows[i];
        group->block_tokens = best.block_tokens[i];
        group->block_bytes = bytes_of(group, group->block_tokens, 1);
        group->sequence_blocks = sequence_blocks(group, group->block_tokens, options);
        group->sequence_bytes = group->block_bytes * group->sequence_blocks;
        size->sequence_in_blocks += group->n_rows * group->sequence_blocks;
        used_bytes += group->sequence_bytes;
    }
    size->held_bytes = kvpi_size_times(size->sequence_in_blocks, size->pool_block_bytes);
    size->padding_bytes = size->held_bytes - used_bytes;
    size->sequence_bytes += used_bytes;
}
