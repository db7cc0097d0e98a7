/* attn_meta: slow and plain; each format is written from its description, not from another one. */
#include "attn_meta.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mocka.h"

static const float untouched = -12345.5f;

attn_how attn_how_of(const attn_world *world, uint32_t format)
{
    attn_how how = {.format = format, .n_batch = world->n_seqs};
    for (uint32_t i = 0; i < world->n_seqs; i++)
        how.batch[i] = i;
    return how;
}

attn_how attn_draw_how(attn_world *world)
{
    attn_how how = attn_how_of(world, attn_draw(&world->random, ATTENTION_FORMATS));
    how.has_bits = attn_draw(&world->random, 2) == 0;
    how.has_gaps = attn_draw(&world->random, 2) == 0;
    how.has_positions =
        attn_draw(&world->random, 2) == 0 && world->params.rope.mode != KVP_ROPE_AT_READ;
    for (uint32_t i = 0; i < how.n_batch; i++) {
        const uint32_t j = attn_draw(&world->random, how.n_batch);
        const uint32_t other = how.batch[j];
        how.batch[j] = how.batch[i];
        how.batch[i] = other;
    }
    return how;
}

static const attn_seq *seq_of(const attn_meta *meta, uint32_t n)
{
    return &meta->world->seqs[meta->how.batch[n]];
}

/* -----------------------------------------------------------------------------------------
 * lists */

/* A row of a CSR level: append blocks [from, to) of a sequence that has n_tokens. */
static void put_blocks(attn_meta *meta, uint32_t level, const attn_seq *seq, uint32_t from,
                       uint32_t to)
{
    kvp_attention_level *l = &meta->levels[level];
    const uint32_t S = meta->world->params.block_tokens;
    for (uint32_t i = from; i < to; i++) {
        const uint32_t left = seq->n_tokens - i * S;
        meta->blocks[level][l->n_blocks++] = seq->blocks[i];
        meta->last_len[level][l->n_rows] = (int32_t)(left < S ? left : S);
    }
}

static void end_row(attn_meta *meta, uint32_t level)
{
    kvp_attention_level *l = &meta->levels[level];
    l->n_rows++;
    meta->row_start[level][l->n_rows] = (int32_t)l->n_blocks;
}

static void describe_dense(attn_meta *meta)
{
    kvp_attention_level *level = &meta->levels[0];
    level->row_stride = ATTENTION_MAX_TOKENS;
    level->lengths = meta->lengths;
    level->n_rows = meta->how.n_batch;
    level->n_blocks = level->n_rows * level->row_stride;
    for (uint32_t n = 0; n < level->n_rows; n++) {
        const attn_seq *seq = seq_of(meta, n);
        meta->lengths[n] = (int32_t)seq->n_tokens;
        for (uint32_t i = 0; i < seq->n_blocks; i++)
            meta->blocks[0][n * ATTENTION_MAX_TOKENS + i] = seq->blocks[i];
        for (uint32_t i = seq->n_blocks; i < ATTENTION_MAX_TOKENS; i++)
            meta->blocks[0][n * ATTENTION_MAX_TOKENS + i] = -77; /* nobody may look here */
    }
}

int attn_is_needed(const attn_world *world, const attn_seq *seq, uint32_t block)
{
    const uint32_t S = world->params.block_tokens;
    for (uint32_t key = block * S; key < (block + 1) * S && key < seq->n_tokens; key++) {
        for (uint32_t query = 0; query < seq->n_queries; query++)
            if (attn_sees(world, seq, query, key))
                return 1;
    }
    return 0;
}

static void null_what_nobody_needs(attn_meta *meta)
{
    for (uint32_t n = 0; n < meta->how.n_batch; n++) {
        const attn_seq *seq = seq_of(meta, n);
        for (uint32_t i = 0; i < seq->n_blocks; i++)
            if (seq->recent > 0 && !attn_is_needed(meta->world, seq, i))
                meta->blocks[0][n * ATTENTION_MAX_TOKENS + i] = KVP_NULL_BLOCK;
    }
}

static void describe_csr(attn_meta *meta)
{
    for (uint32_t n = 0; n < meta->how.n_batch; n++) {
        put_blocks(meta, 0, seq_of(meta, n), 0, seq_of(meta, n)->n_blocks);
        end_row(meta, 0);
    }
}

/* The first position behind the sinks that a query of this step, or a later one, can see. What is
 * not committed is not dropped. */
static uint32_t first_needed(const attn_seq *seq)
{
    int32_t position = seq->positions[seq->n_tokens - 1];
    for (uint32_t i = 0; i < seq->n_queries; i++) {
        const int32_t of_query = seq->positions[seq->n_tokens - seq->n_queries + i];
        if (of_query < position)
            position = of_query;
    }
    int32_t first = seq->chunked ? position - position % (int32_t)seq->recent
                                 : position - (int32_t)seq->recent + 1;
    if (first > (int32_t)(seq->n_tokens - seq->n_tree))
        first = (int32_t)(seq->n_tokens - seq->n_tree);
    return first < (int32_t)seq->sinks ? seq->sinks : (uint32_t)first;
}

static void describe_dropped(attn_meta *meta)
{
    const uint32_t S = meta->world->params.block_tokens;
    for (uint32_t n = 0; n < meta->how.n_batch; n++) {
        const attn_seq *seq = seq_of(meta, n);
        const uint32_t first = seq->recent > 0 && seq->n_tokens > 0 ? first_needed(seq) : 0;
        const uint32_t gap_begin = (seq->sinks + S - 1) / S, gap_end = first / S;
        if (seq->recent == 0 || gap_end <= gap_begin) {
            put_blocks(meta, 0, seq, 0, seq->n_blocks);
            end_row(meta, 0);
            continue;
        }
        put_blocks(meta, 0, seq, 0, gap_begin);
        put_blocks(meta, 0, seq, gap_end, seq->n_blocks);
        end_row(meta, 0);
        if (meta->how.format == ATTENTION_DROPPED_EXACT) {
            meta->sink_len[n] = (int32_t)seq->sinks;
            meta->window_offset[n] = (int32_t)(gap_begin * S + first % S);
            meta->key_offset[n] = (int32_t)(first - seq->sinks);
        } else {
            meta->sink_len[n] = meta->window_offset[n] = (int32_t)(gap_begin * S);
            meta->key_offset[n] = (int32_t)((gap_end - gap_begin) * S);
        }
    }
    meta->attention.window.sink_len = meta->sink_len;
    meta->attention.window.window_offset = meta->window_offset;
    meta->attention.window.key_offset = meta->key_offset;
}

/* ---------------------------------------------------------------------------------------
 * cascade */

/* How many leading blocks of a sequence are in a level before the last. */
struct depths {
    uint32_t all;  /* shared by every sequence that shares with sequence 0 */
    uint32_t some; /* shared by those that share more than that */
};

static struct depths find_depths(const attn_world *world)
{
    struct depths depths = {0, 0};
    for (uint32_t i = 1; i < world->n_seqs; i++) {
        const uint32_t n = world->seqs[i].n_shared;
        if (n > 0 && (depths.all == 0 || n < depths.all))
            depths.all = n;
    }
    for (uint32_t i = 1; i < world->n_seqs; i++) {
        const uint32_t n = world->seqs[i].n_shared;
        if (n > depths.all && (depths.some == 0 || n < depths.some))
            depths.some = n;
    }
    return depths;
}

/* 2: shares `some` blocks, 1: shares `all`, 0: nothing. */
static uint32_t rank_of(const attn_world *world, uint32_t seq, const struct depths *depths)
{
    const uint32_t n = seq == 0 ? UINT32_MAX : world->seqs[seq].n_shared;
    if (depths->some > 0 && n >= depths->some)
        return 2;
    return depths->all > 0 && n >= depths->all ? 1 : 0;
}

/* One level: neighbours of rank >= `rank` share a row of blocks [from, to); others have empty
 * ones. */
static void describe_level(attn_meta *meta, uint32_t level, const uint32_t *ranks,
                           const uint32_t range[3])
{
    const attn_world *world = meta->world;
    uint32_t n_members = 0;
    int32_t n_queries = 0;
    meta->levels[level].query_start = meta->level_query_start[level];
    for (uint32_t i = 0; i < meta->how.n_batch; i++) {
        const attn_seq *seq = seq_of(meta, (uint32_t)meta->order[i]);
        const int is_member = ranks[i] >= range[0] && range[2] > range[1];
        if (is_member && n_members++ == 0)
            put_blocks(meta, level, &world->seqs[0], range[1], range[2]);
        n_queries += (int32_t)seq->n_queries;
        if (is_member && i + 1 < meta->how.n_batch && ranks[i + 1] >= range[0])
            continue; /* the next one is in the same row */
        end_row(meta, level);
        meta->level_query_start[level][meta->levels[level].n_rows] = n_queries;
    }
}

static void describe_cascade(attn_meta *meta)
{
    const attn_world *world = meta->world;
    const struct depths depths = find_depths(world);
    uint32_t ranks[ATTENTION_MAX_SEQS], place = 0;
    for (uint32_t rank = 3; rank-- > 0;) {
        for (uint32_t n = 0; n < meta->how.n_batch; n++) {
            if (rank_of(world, meta->how.batch[n], &depths) != rank)
                continue;
            ranks[place] = rank;
            meta->order[place++] = (int32_t)n;
        }
    }
    describe_level(meta, 0, ranks, (const uint32_t[3]){1, 0, depths.all});
    describe_level(meta, 1, ranks, (const uint32_t[3]){2, depths.all, depths.some});
    for (uint32_t i = 0; i < meta->how.n_batch; i++) {
        const attn_seq *seq = seq_of(meta, (uint32_t)meta->order[i]);
        const uint32_t from = ranks[i] == 2 ? depths.some : ranks[i] == 1 ? depths.all : 0;
        put_blocks(meta, 2, seq, from, seq->n_blocks);
        end_row(meta, 2);
    }
    meta->attention.n_levels = 3;
    meta->attention.order = meta->order;
}

/* -----------------------------------------------------------------------------------------
 * trees */

/* Number the nodes below `parent`, depth first. */
static int32_t number_nodes(const attn_seq *seq, int32_t parent, int32_t next, int32_t *intervals)
{
    for (int32_t i = parent + 1; i < (int32_t)seq->n_tree; i++) {
        if (seq->parents[i] != parent)
            continue;
        intervals[2 * i] = next;
        next = number_nodes(seq, i, next + 1, intervals);
        intervals[2 * i + 1] = next;
    }
    return next;
}

static void describe_trees(attn_meta *meta)
{
    kvp_attention_tree *tree = &meta->attention.tree;
    for (uint32_t n = 0; n < meta->how.n_batch; n++) {
        const attn_seq *seq = seq_of(meta, n);
        meta->tree_start[n + 1] = meta->tree_start[n] + (int32_t)seq->n_tree;
        (void)number_nodes(seq, -1, 100, meta->intervals + 2 * meta->tree_start[n]);
        tree->n_tokens += seq->n_tree;
    }
    if (tree->n_tokens == 0)
        return;
    tree->start = meta->tree_start;
    if (!meta->how.has_bits)
        tree->intervals = meta->intervals;
}

/* Keys are those of the lists: numbers behind the gap stand for later tokens. */
static void describe_bits(attn_meta *meta)
{
    kvp_attention_tree *tree = &meta->attention.tree;
    if (tree->n_tokens == 0)
        return;
    for (uint32_t n = 0; n < meta->how.n_batch; n++) {
        const attn_seq *seq = seq_of(meta, n);
        const uint32_t n_keys = seq->n_tokens - (uint32_t)meta->key_offset[n];
        const uint32_t first_byte = (uint32_t)meta->bits_start[n];
        uint32_t n_bits = 0;
        for (uint32_t query = 0; seq->n_tree > 0 && query < seq->n_queries; query++) {
            for (uint32_t key = 0; key < n_keys; key++, n_bits++) {
                const uint32_t token =
                    key < (uint32_t)meta->sink_len[n] ? key : key + (uint32_t)meta->key_offset[n];
                if (attn_may_see(meta->world, seq, query, token))
                    meta->bits[first_byte + n_bits / 8] |= (uint8_t)(1u << (n_bits % 8));
            }
        }
        meta->bits_start[n + 1] = (int32_t)(first_byte + (n_bits + 7) / 8);
    }
    tree->bits = meta->bits;
    tree->bits_start = meta->bits_start;
    tree->n_bytes = (uint32_t)meta->bits_start[meta->how.n_batch];
}

/* ---------------------------------------------------------------------------------------
 * tensors */

static size_t gap(const attn_meta *meta, size_t n)
{
    return meta->how.has_gaps ? n : 0;
}

static float *make_rows(size_t n, float value)
{
    float *rows = malloc((n + 1) * sizeof *rows);
    assert_non_null(rows);
    for (size_t i = 0; i < n; i++)
        rows[i] = value;
    return rows;
}

static void describe_tensors(attn_meta *meta, uint32_t n_tokens)
{
    const attn_params *p = &meta->world->params;
    const size_t n_heads = p->n_heads * p->group;
    kvp_attention *a = &meta->attention;
    size_t q_head = p->k_size + gap(meta, 2), out_head = p->v_size + gap(meta, 1);
    size_t q_token = q_head * n_heads + gap(meta, 3), out_token = out_head * n_heads + gap(meta, 5);
    a->n_tokens = n_tokens + 2; /* rows behind the batch's are left alone */
    meta->n_out = a->n_tokens * out_token;
    meta->n_lse = a->n_tokens * n_heads;
    meta->q = make_rows(a->n_tokens * q_token, 0.0f);
    meta->out = make_rows(meta->n_out, untouched);
    meta->lse = make_rows(meta->n_lse, untouched);
    for (uint32_t n = 0; n < meta->how.n_batch; n++) {
        const attn_seq *seq = seq_of(meta, n);
        for (size_t i = 0; i < seq->n_queries * n_heads; i++)
            memcpy(meta->q + ((size_t)meta->query_start[n] + i / n_heads) * q_token +
                       i % n_heads * q_head,
                   seq->q + i * p->k_size, p->k_size * sizeof(float));
    }
    a->q = (kvp_rows){meta->q, q_token, q_head};
    a->out = (kvp_rows_out){meta->out, out_token, out_head};
    a->lse = (kvp_rows_out){meta->lse, 1, a->n_tokens}; /* [Q, T], as FlashAttention has it */
    if (!meta->how.has_gaps) {
        a->q.token_stride = a->q.head_stride = a->out.token_stride = a->out.head_stride = 0;
        a->lse.token_stride = a->lse.head_stride = 0;
    }
}

attn_meta *attn_describe(const attn_world *world, const attn_how *how)
{
    attn_meta *meta = calloc(1, sizeof *meta);
    assert_non_null(meta);
    kvp_attention *a = &meta->attention;
    meta->world = world;
    meta->how = *how;
    kvp_attention_init(a);
    a->impl = how->impl != 0 ? how->impl : KVP_ATTENTION_REFERENCE;
    a->team = how->team;
    a->causal = world->params.causal;
    a->layer = &world->layer;
    a->n_seqs = how->n_batch;
    a->n_heads = world->params.n_heads * world->params.group;
    a->v_size = world->params.order == ATTENTION_LATENT ? world->params.v_size : 0;
    a->scale = world->params.scale;
    a->soft_cap = world->params.soft_cap;
    a->sink_logits = world->params.has_sinks ? world->sink_logits : NULL;
    a->rope = world->params.rope;
    a->query_start = meta->query_start;
    a->levels = meta->levels;
    a->positions = meta->positions;
    for (uint32_t n = 0; n < how->n_batch; n++) {
        const attn_seq *seq = seq_of(meta, n);
        meta->query_start[n + 1] = meta->query_start[n] + (int32_t)seq->n_queries;
        meta->sinks[n] = seq->chunked ? KVP_CHUNKED : seq->sinks;
        meta->recent[n] = seq->recent;
        for (uint32_t i = 0; i < seq->n_queries; i++)
            meta->positions[meta->query_start[n] + (int32_t)i] =
                seq->positions[seq->n_tokens - seq->n_queries + i];
    }
    a->window.sinks = meta->sinks;
    a->window.recent = meta->recent;
    if (how->has_positions || !world->params.causal)
        a->window.query_positions = meta->positions;
    for (uint32_t i = 0; i < 3; i++) {
        meta->levels[i].blocks = meta->blocks[i];
        meta->levels[i].row_start = how->format > ATTENTION_DENSE_NULLS ? meta->row_start[i] : NULL;
        meta->levels[i].last_len = how->format > ATTENTION_DENSE_NULLS ? meta->last_len[i] : NULL;
    }
    if (how->format <= ATTENTION_DENSE_NULLS)
        describe_dense(meta);
    if (how->format == ATTENTION_DENSE_NULLS)
        null_what_nobody_needs(meta);
    if (how->format == ATTENTION_CSR)
        describe_csr(meta);
    if (how->format == ATTENTION_DROPPED || how->format == ATTENTION_DROPPED_EXACT)
        describe_dropped(meta);
    if (how->format == ATTENTION_CASCADE)
        describe_cascade(meta);
    describe_trees(meta);
    if (how->has_bits)
        describe_bits(meta);
    describe_tensors(meta, (uint32_t)meta->query_start[how->n_batch]);
    return meta;
}

void attn_forget(attn_meta *meta)
{
    free(meta->q);
    free(meta->out);
    free(meta->lse);
    free(meta->scratch);
    free(meta);
}

/* -------------------------------------------------------------------------------------------
 * run */

kvp_status attn_prepare(attn_meta *meta)
{
    const kvp_status status = kvp_attention_bytes(&meta->attention, &meta->scratch_bytes);
    if (status != KVP_OK)
        return status;
    const size_t whole = (meta->scratch_bytes / KVP_SCRATCH_ALIGN + 1) * KVP_SCRATCH_ALIGN;
    free(meta->scratch);
    meta->scratch = aligned_alloc(KVP_SCRATCH_ALIGN, whole);
    assert_non_null(meta->scratch);
    memset(meta->scratch, 0xA5, whole);
    return KVP_OK;
}

kvp_status attn_run(attn_meta *meta)
{
    const kvp_status status = attn_prepare(meta);
    return status != KVP_OK
               ? status
               : kvp_attention_run(&meta->attention, meta->scratch, meta->scratch_bytes);
}

static uint32_t row_of(const attn_meta *meta, uint32_t n, uint32_t query)
{
    return (uint32_t)meta->query_start[n] + query;
}

const float *attn_out(const attn_meta *meta, uint32_t n, uint32_t query, uint32_t head)
{
    const kvp_rows_out *rows = &meta->attention.out;
    const size_t dense = meta->world->params.v_size;
    const size_t head_stride = rows->head_stride != 0 ? rows->head_stride : dense;
    const size_t token_stride =
        rows->token_stride != 0 ? rows->token_stride : dense * meta->attention.n_heads;
    return meta->out + row_of(meta, n, query) * token_stride + head * head_stride;
}

float attn_lse(const attn_meta *meta, uint32_t n, uint32_t query, uint32_t head)
{
    const size_t row = row_of(meta, n, query);
    return meta->how.has_gaps ? meta->lse[head * meta->attention.n_tokens + row]
                              : meta->lse[row * meta->attention.n_heads + head];
}

/* ------------------------------------------------------------------------------------
 * comparison */

/* f32 rounds a result once; sums in another order differ by less. */
static void assert_near(double found, double expected, double size)
{
    if (isinf(expected) || isinf(found)) {
        assert_true(found == expected);
        return;
    }
    if (!(fabs(found - expected) <= 5e-7 * (size + fabs(expected))))
        fail_msg("found %.9g, expected %.9g", found, expected);
}

static void assert_seq_right(const attn_meta *meta, uint32_t n)
{
    const attn_seq *seq = seq_of(meta, n);
    for (uint32_t query = 0; query < seq->n_queries; query++) {
        for (uint32_t head = 0; head < meta->attention.n_heads; head++) {
            double expected[32], lse;
            attn_expect(meta->world, seq, query, head, expected, &lse);
            const float *out = attn_out(meta, n, query, head);
            for (uint32_t e = 0; e < meta->world->params.v_size; e++)
                assert_near(out[e], expected[e], 1.0);
            assert_near(attn_lse(meta, n, query, head), lse, 1.0);
        }
    }
}

void attn_assert_right(const attn_meta *meta)
{
    const size_t n_queries = (size_t)meta->query_start[meta->how.n_batch];
    size_t n_out = 0, n_lse = 0;
    for (uint32_t n = 0; n < meta->how.n_batch; n++)
        assert_seq_right(meta, n);
    for (size_t i = 0; i < meta->n_out; i++)
        n_out += meta->out[i] == untouched;
    for (size_t i = 0; i < meta->n_lse; i++)
        n_lse += meta->lse[i] == untouched;
    const size_t written = n_queries * meta->attention.n_heads;
    assert_int_equal(n_out, meta->n_out - written * meta->world->params.v_size);
    assert_int_equal(n_lse, meta->n_lse - written);
}

static uint32_t place_of(const attn_meta *meta, uint32_t seq)
{
    uint32_t n = 0;
    while (meta->how.batch[n] != seq)
        n++;
    return n;
}

void attn_assert_same(const attn_meta *a, const attn_meta *b)
{
    const size_t bytes = a->world->params.v_size * sizeof(float);
    for (uint32_t seq = 0; seq < a->world->n_seqs; seq++) {
        const uint32_t in_a = place_of(a, seq), in_b = place_of(b, seq);
        for (uint32_t query = 0; query < a->world->seqs[seq].n_queries; query++) {
            for (uint32_t head = 0; head < a->attention.n_heads; head++) {
                assert_memory_equal(attn_out(a, in_a, query, head), attn_out(b, in_b, query, head),
                                    bytes);
                assert_true(attn_lse(a, in_a, query, head) == attn_lse(b, in_b, query, head));
            }
        }
    }
}

void attn_assert_untouched(const attn_meta *meta)
{
    for (size_t i = 0; i < meta->n_out; i++)
        assert_true(meta->out[i] == untouched);
    for (size_t i = 0; i < meta->n_lse; i++)
        assert_true(meta->lse[i] == untouched);
}
