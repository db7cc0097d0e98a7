/* Layers of DeepSeek V4's kind: compressed KV, an indexer, and windows, in groups whose blocks have
 * several sizes and come from one pool.
 *
 * The model is tiny and its weights are arbitrary, but it keeps what such a model keeps:
 *
 *     group           tokens a block   a query sees           a block has
 *     entries              128         all                    of each 4 tokens KV and an index key,
 *                                                             of 128 tokens KV
 *     window                 8         the last 128 tokens    of each token KV of all layers, and
 *                                                             the hidden state
 *     inputs of 4            8         the last 8 tokens      what entries of 4 tokens are made of
 *     inputs of 128         16         a chunk of 128 tokens  what those of 128 tokens are made of
 *
 * Layer 0 attends to the window only, layer 1 also to the 8 entries of 4 tokens that its indexer
 * scores highest, layer 2 to all entries of 128 tokens. An entry of 4 tokens is made of their
 * inputs and of those of the 4 tokens before (a window of 2 x 4), one of 128 tokens of their own
 * only (chunks). So a hit can end at any multiple of unit_tokens. Inside a block, tokens are
 * copied, and floor(tokens / r) entries of them.
 *
 * A draft layer reads the hidden state of the token before, and the token. Its KV lies with that
 * token, so it depends on nothing behind it, and a hit needs no rule for it.
 *
 * All that is computed over kvpager is compared, bit for bit, with what the same functions compute
 * without it. Drafts are scripted, not sampled, so that the figures do not depend on rounding.
 */
#include <kvpager/swap.h>
#include <kvpager/windows.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { D = 8, INDEX = 4, WORDS = 32, TOP = 8, SEES = 128, SHORT = 4, LONG = 128 };
enum { ENTRIES, WINDOW, INPUTS_4, INPUTS_128, GROUPS };
enum { DRAFT = 3, HIDDEN = 4, COLUMNS = 5 };       /* of a token in the window's blocks */
enum { PLAIN = 4 * D, INPUT = PLAIN + 4 * INDEX }; /* floats of a token's inputs of 4 */
enum { KEYS_AT = LONG / SHORT * D, LONG_AT = KEYS_AT + LONG / SHORT * INDEX, BLOCK = LONG_AT + D };
enum { TOKENS = 512, TEXTS = 24, U = 4, N = 260, HOST = 400, CHUNK = 48, DRAFTS = 3 };

static const kvp_group groups[GROUPS] = {
    [ENTRIES] = {0, 0, LONG},
    [WINDOW] = {0, SEES, 8},
    [INPUTS_4] = {0, 2 * SHORT, 8},
    [INPUTS_128] = {KVP_CHUNKED, LONG, 16},
};
static const size_t widths[GROUPS] = {0, COLUMNS *D, INPUT, 2 * D};

/* Where a sequence's KV lies. */
struct place {
    float *blocks[GROUPS]; /* [blocks][BLOCK] */
    const int32_t *rows[GROUPS];
};

/* What a token gives: scores of the next one, by the model and by its draft layer. */
struct scores {
    float of[2][WORDS];
};

struct text {
    int32_t tokens[TOKENS];
    struct scores truth[TOKENS];
};

/* ------------------------------------------------------------------------------------ the model */

static uint32_t mix(uint32_t x)
{
    x = (x ^ x >> 16) * 0x7FEB352Du;
    x = (x ^ x >> 15) * 0x846CA68Bu;
    return x ^ x >> 16;
}

static float weight(uint32_t matrix, uint32_t i, uint32_t j)
{
    return (float)(mix(matrix * 65536 + i * 256 + j) % 2001) / 1000.0f - 1.0f;
}

static void multiply(uint32_t matrix, const float *x, uint32_t n, float *out)
{
    for (uint32_t i = 0; i < n; i++) {
        out[i] = 0;
        for (uint32_t j = 0; j < D; j++)
            out[i] += weight(matrix, i, j) * x[j];
    }
}

static float product(const float *a, const float *b, uint32_t n)
{
    float sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static void normalize(float *x)
{
    const float length = sqrtf(product(x, x, D) / D + 1e-6f);
    for (uint32_t i = 0; i < D; i++)
        x[i] /= length;
}

static float *token_at(const struct place *place, uint32_t group, uint32_t p)
{
    const uint32_t S = groups[group].block_tokens;
    return place->blocks[group] + (size_t)place->rows[group][p / S] * BLOCK + p % S * widths[group];
}

static float *block_of(const struct place *place, uint32_t p)
{
    return place->blocks[ENTRIES] + (size_t)place->rows[ENTRIES][p / LONG] * BLOCK;
}

static float *entry_at(const struct place *place, uint32_t r, uint32_t entry)
{
    const uint32_t at = entry * r;
    return block_of(place, at) + (r == LONG ? LONG_AT : at % LONG / SHORT * D);
}

static float *index_key(const struct place *place, uint32_t entry)
{
    const uint32_t at = entry * SHORT;
    return block_of(place, at) + KEYS_AT + at % LONG / SHORT * INDEX;
}

/* The mean of the inputs of tokens [begin, end), weighted by their gates, for each element. A token
 * has n values and n gates at `at`, and with overlap as many at at + 2 n, which are for the entry
 * behind its own: tokens before `own` give those. */
static void compress(const struct place *place, uint32_t group, kvp_range tokens, uint32_t own,
                     uint32_t at, uint32_t n, float *out)
{
    for (uint32_t i = 0; i < n; i++) {
        float sum = 0;
        float all = 0;
        for (uint32_t p = tokens.begin; p < tokens.end; p++) {
            const float *input = token_at(place, group, p) + at + (p < own ? 2 * n : 0);
            const float w = expf(input[n + i] + weight(40 + group, i, p - own + 8));
            sum += w * input[i];
            all += w;
        }
        out[i] = sum / all;
    }
}

/* Write a token's inputs, and the entry that it completes. */
static void write_entries(const struct place *place, uint32_t r, uint32_t p, const float *x)
{
    const uint32_t group = r == SHORT ? INPUTS_4 : INPUTS_128;
    const uint32_t own = p / r * r;
    const uint32_t begin = r == SHORT && own > 0 ? own - r : own;
    multiply(50 + r, x, (uint32_t)widths[group], token_at(place, group, p));
    if ((p + 1) % r != 0)
        return;
    compress(place, group, (kvp_range){begin, p + 1}, own, 0, D, entry_at(place, r, p / r));
    if (r == SHORT)
        compress(place, group, (kvp_range){begin, p + 1}, own, PLAIN, INDEX,
                 index_key(place, p / r));
}

/* The entries that score highest, in their order; with equal scores the earlier one. */
static uint32_t pick_entries(const struct place *place, uint32_t n, const float *x,
                             const float *seen[TOP])
{
    float query[INDEX];
    float scores[TOKENS / SHORT];
    uint32_t n_seen = 0;
    multiply(60, x, INDEX, query);
    for (uint32_t i = 0; i < n; i++)
        scores[i] = product(query, index_key(place, i), INDEX);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t better = 0;
        for (uint32_t k = 0; k < n; k++)
            better += scores[k] > scores[i] || (k < i && scores[k] == scores[i]);
        if (better < TOP)
            seen[n_seen++] = entry_at(place, SHORT, i);
    }
    return n_seen;
}

/* What the token at p sees in a layer: entries, and its window from the oldest on. */
static uint32_t gather(const struct place *place, uint32_t layer, uint32_t p, const float *x,
                       const float **seen)
{
    const uint32_t begin = p < SEES ? 0 : p + 1 - SEES;
    uint32_t n = layer == 1 ? pick_entries(place, (p + 1) / SHORT, x, seen) : 0;
    for (uint32_t i = 0; layer == 2 && i < (p + 1) / LONG; i++)
        seen[n++] = entry_at(place, LONG, i);
    for (uint32_t i = begin; i <= p; i++)
        seen[n++] = token_at(place, WINDOW, i) + layer * D;
    return n;
}

/* A layer: x becomes its output. K and V are the same. */
static void run_layer(const struct place *place, uint32_t layer, uint32_t p, float *x)
{
    const float *seen[SEES + TOKENS / LONG + TOP];
    const uint32_t n = gather(place, layer, p, x, seen);
    float query[D], mean[D] = {0}, out[D], all = 0;
    multiply(layer * 8 + 1, x, D, query);
    for (uint32_t i = 0; i < n; i++) {
        const float w = expf(product(query, seen[i], D) / D - 0.01f * (float)(n - i));
        all += w;
        for (uint32_t k = 0; k < D; k++)
            mean[k] += w * seen[i][k];
    }
    for (uint32_t k = 0; k < D; k++)
        mean[k] /= all;
    multiply(layer * 8 + 2, mean, D, out);
    for (uint32_t k = 0; k < D; k++)
        x[k] += out[k];
    multiply(layer * 8 + 3, x, D, out);
    for (uint32_t k = 0; k < D; k++)
        x[k] += tanhf(out[k]);
    normalize(x);
}

static void embed(int32_t token, float *x)
{
    for (uint32_t i = 0; i < D; i++)
        x[i] = weight(70, (uint32_t)token, i);
    normalize(x);
}

/* Run one token. A last token that runs again after a full hit writes nothing. */
static void run_token(const struct place *place, uint32_t p, int32_t token, int writes,
                      struct scores *out)
{
    float *window = token_at(place, WINDOW, p);
    float x[D], draft[D], before[D] = {0};
    embed(token, x);
    if (p > 0)
        multiply(71, token_at(place, WINDOW, p - 1) + HIDDEN * D, D, before);
    for (uint32_t i = 0; i < D; i++)
        draft[i] = before[i] + x[i];
    normalize(draft);
    if (writes)
        multiply(DRAFT * 8, draft, D, window + DRAFT * D);
    run_layer(place, DRAFT, p, draft);
    for (uint32_t layer = 0; layer < DRAFT; layer++) {
        if (writes)
            multiply(layer * 8, x, D, window + layer * D);
        if (writes && layer > 0)
            write_entries(place, layer == 1 ? SHORT : LONG, p, x);
        run_layer(place, layer, p, x);
    }
    if (writes)
        memcpy(window + HIDDEN * D, x, sizeof x);
    multiply(80, x, WORDS, out->of[0]);
    multiply(80, draft, WORDS, out->of[1]);
}

/* --------------------------------------------------------------------------------------- texts */

/* The first `same` tokens are those of another text. The truth is what all give without a cache. */
static int make_text(struct text *text, const struct text *other, uint32_t same, uint32_t seed)
{
    int32_t row[TOKENS];
    struct place place;
    int is_made = 1;
    for (uint32_t g = 0; g < GROUPS; g++) {
        place.rows[g] = row;
        place.blocks[g] = malloc(TOKENS / 8 * BLOCK * sizeof(float));
        is_made &= place.blocks[g] != NULL;
    }
    for (uint32_t p = 0; p < TOKENS && is_made; p++) {
        row[p] = (int32_t)p;
        text->tokens[p] = p < same ? other->tokens[p] : (int32_t)(mix(seed * TOKENS + p) % WORDS);
        run_token(&place, p, text->tokens[p], 1, &text->truth[p]);
    }
    for (uint32_t g = 0; g < GROUPS; g++)
        free(place.blocks[g]);
    return is_made;
}

/* ----------------------------------------------------------------------------------- the engine */

struct engine {
    kvp_cache *cache;
    kvp_ns ns;
    float *tiers[2]; /* [blocks][BLOCK] */
    struct text *texts;
    uint32_t n_run;       /* tokens, since the last line of the table */
    uint32_t n_hit;       /* the same */
    uint32_t n_from_host; /* of these */
    uint32_t n_different; /* outputs, in all */
};

/* Copy the first n tokens of a block: of the entries, floor(n / r). */
static void copy_tokens(uint32_t group, const float *from, float *to, uint32_t n)
{
    if (group != ENTRIES) {
        memcpy(to, from, n * widths[group] * sizeof(float));
        return;
    }
    memcpy(to, from, n / SHORT * D * sizeof(float));
    memcpy(to + KEYS_AT, from + KEYS_AT, n / SHORT * INDEX * sizeof(float));
    memcpy(to + LONG_AT, from + LONG_AT, n / LONG * D * sizeof(float));
}

static int run_plan(struct engine *e)
{
    kvp_copy copies[N + HOST];
    uint32_t n;
    if (kvp_plan_take(e->cache, copies, N + HOST, &n) != KVP_OK)
        return 0;
    for (uint32_t i = 0; i < n; i++)
        copy_tokens(
            copies[i].group, e->tiers[copies[i].src_tier] + (size_t)copies[i].src_block * BLOCK,
            e->tiers[copies[i].dst_tier] + (size_t)copies[i].dst_block * BLOCK, copies[i].n_tokens);
    return 1;
}

/* Run tokens [begin, end) of a sequence, and compare. */
static int run_tokens(struct engine *e, kvp_seq seq, const struct text *text, uint32_t begin,
                      uint32_t end)
{
    struct place place;
    kvp_seq_info info;
    if (!run_plan(e) || kvp_seq_info_get(e->cache, seq, &info) != KVP_OK)
        return 0;
    for (uint32_t g = 0; g < GROUPS; g++) {
        uint32_t n_blocks;
        place.blocks[g] = e->tiers[KVP_DEVICE];
        if (kvp_seq_row(e->cache, seq, g, &place.rows[g], &n_blocks) != KVP_OK)
            return 0;
    }
    for (uint32_t p = begin; p < end; p++) {
        struct scores scores;
        run_token(&place, p, text->tokens[p], p >= info.computed_tokens, &scores);
        e->n_different += memcmp(&scores, &text->truth[p], sizeof scores) != 0;
        e->n_run++;
    }
    return 1;
}

static int open_text(struct engine *e, const struct text *text, uint32_t n, kvp_seq *seq)
{
    const kvp_prompt prompt = {.struct_size = sizeof prompt, .tokens = text->tokens, .n_tokens = n};
    kvp_open_info info;
    if (kvp_seq_open(e->cache, e->ns, &prompt, seq, &info) != KVP_OK)
        return 0;
    e->n_hit += info.hit_tokens;
    e->n_from_host += info.host_tokens;
    for (uint32_t at = info.cached_tokens, end; at < n; at = end) {
        end = n - at < CHUNK ? n : at + CHUNK;
        if (!run_tokens(e, *seq, text, at, end) || kvp_seq_commit(e->cache, *seq, end) != KVP_OK)
            return 0;
    }
    return 1;
}

static int use_text(struct engine *e, const struct text *text, uint32_t n)
{
    kvp_seq seq;
    return open_text(e, text, n, &seq) && kvp_seq_close(e->cache, seq, NULL) == KVP_OK;
}

/* Go on to n tokens, one a step. */
static int go_on(struct engine *e, kvp_seq seq, const struct text *text, uint32_t n)
{
    kvp_seq_info info;
    if (kvp_seq_info_get(e->cache, seq, &info) != KVP_OK)
        return 0;
    for (uint32_t p = info.n_tokens; p < n; p++)
        if (kvp_seq_extend(e->cache, seq, &text->tokens[p], 1, 0) != KVP_OK ||
            !run_tokens(e, seq, text, p, p + 1) || kvp_seq_commit(e->cache, seq, p + 1) != KVP_OK)
            return 0;
    return 1;
}

/* The same with drafts: of each step's, the first 0 to DRAFTS are right. The others are rolled
 * back, and the entries that they completed are made again. */
static int go_on_with_drafts(struct engine *e, kvp_seq seq, const struct text *text,
                             const struct text *wrong, uint32_t n)
{
    kvp_seq_info info;
    if (kvp_seq_info_get(e->cache, seq, &info) != KVP_OK)
        return 0;
    for (uint32_t p = info.n_tokens, right; p < n; p += 1 + right) {
        int32_t tokens[1 + DRAFTS];
        right = mix(p) % (DRAFTS + 1);
        for (uint32_t i = 0; i <= DRAFTS; i++)
            tokens[i] = i <= right ? text->tokens[p + i] : wrong->tokens[p + i];
        if (kvp_seq_extend(e->cache, seq, tokens, 1 + DRAFTS, 0) != KVP_OK ||
            !run_tokens(e, seq, text, p, p + 1 + right))
            return 0;
        const uint32_t n_different = e->n_different; /* what wrong drafts give is of no use */
        if (!run_tokens(e, seq, wrong, p + 1 + right, p + 1 + DRAFTS))
            return 0;
        e->n_different = n_different;
        if (kvp_seq_commit(e->cache, seq, p + 1 + right) != KVP_OK ||
            kvp_seq_truncate(e->cache, seq, p + 1 + right, NULL) != KVP_OK)
            return 0;
    }
    return 1;
}

/* ------------------------------------------------------------------------------------ the table */

static int show(struct engine *e, const char *what, int is_right)
{
    if (!is_right)
        printf("%-36s failed\n", what);
    else
        printf("%-36s %8u %9u %6u  %s\n", what, e->n_hit, e->n_from_host, e->n_run,
               e->n_different == 0 ? "same" : "different");
    e->n_hit = e->n_from_host = e->n_run = 0;
    return is_right && e->n_different == 0;
}

/* Hits that end anywhere, forks, and drafts. */
static int share(struct engine *e)
{
    struct text *t = e->texts;
    kvp_seq parent, child;
    int right = show(e, "a prompt of 300 tokens", open_text(e, &t[0], 300, &parent));
    right = right && show(e, "the same", use_text(e, &t[0], 300));
    right = right && show(e, "parts after 150: ends inside blocks", use_text(e, &t[1], 300));
    right = right && show(e, "parts after 7", use_text(e, &t[2], 200));
    right = right && show(e, "a fork at 300, both go on to 340",
                          kvp_seq_fork(e->cache, parent, KVP_END, 0, &child) == KVP_OK &&
                              go_on(e, child, &t[3], 340) && go_on(e, parent, &t[0], 340));
    right = right && show(e, "drafts from 340 to 440, rolled back",
                          go_on_with_drafts(e, parent, &t[0], &t[4], 440));
    return right && kvp_seq_close(e->cache, child, NULL) == KVP_OK &&
           kvp_seq_close(e->cache, parent, NULL) == KVP_OK;
}

/* The device has memory for one such prompt and a half. */
static int move(struct engine *e)
{
    struct text *t = e->texts;
    kvp_swapped swapped;
    kvp_stats stats;
    kvp_seq seq;
    int right =
        open_text(e, &t[5], 400, &seq) && kvp_seq_swap_out(e->cache, &seq, 1, &swapped) == KVP_OK &&
        use_text(e, &t[6], 440) && kvp_seq_swap_in(e->cache, &seq, 1, 20, &swapped) == KVP_OK &&
        go_on(e, seq, &t[5], 440) && kvp_seq_close(e->cache, seq, NULL) == KVP_OK;
    right = show(e, "swapped out for another, and in", right);
    right = right && show(e, "evicted to the host, hit there", use_text(e, &t[0], 440));
    for (uint32_t i = 0; i < 300 && right; i++)
        right = use_text(e, &t[mix(i) % TEXTS], 1 + mix(i + 1000) % 440);
    right = show(e, "300 random prompts of 24 texts", right);
    if (kvp_cache_stats_get(e->cache, &stats) != KVP_OK)
        return 0;
    printf("device blocks were %s\n", stats.evicted_blocks > 0 ? "evicted" : "never evicted");
    return right;
}

static int open_engine(struct engine *e)
{
    kvp_config config;
    kvp_config_init(&config);
    config.block_tokens = LONG;
    config.unit_tokens = U;
    config.n_blocks = N;
    config.host_blocks = HOST;
    config.n_groups = GROUPS;
    memcpy(config.groups, groups, sizeof groups);
    e->tiers[KVP_DEVICE] = calloc((size_t)N * BLOCK, sizeof(float));
    e->tiers[KVP_HOST] = calloc((size_t)HOST * BLOCK, sizeof(float));
    e->texts = calloc(TEXTS, sizeof *e->texts);
    if (!e->tiers[KVP_DEVICE] || !e->tiers[KVP_HOST] || !e->texts)
        return 0;
    static const uint32_t same[TEXTS] = {0, 150, 7, 300}; /* with text 0 */
    for (uint32_t i = 0; i < TEXTS; i++)
        if (!make_text(&e->texts[i], e->texts, i < 4 ? same[i] : mix(i) % 440 * (i > 6), i))
            return 0;
    return kvp_cache_create(&config, NULL, 0, &e->cache) == KVP_OK &&
           kvp_ns_open(e->cache, "v4", 2, &e->ns) == KVP_OK;
}

int main(void)
{
    struct engine e = {0};
    const int is_open = open_engine(&e);
    printf("%-36s %8s %9s %6s  %s\n", "", "hit", "from host", "run", "output");
    const int is_right = is_open && share(&e) && move(&e);
    kvp_cache_destroy(e.cache);
    free(e.tiers[KVP_DEVICE]);
    free(e.tiers[KVP_HOST]);
    free(e.texts);
    return is_right ? 0 : 1;
}
