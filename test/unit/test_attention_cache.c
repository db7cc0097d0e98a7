/* Attention on what the cache says: rows that share blocks, metadata from kvp_meta_..., memory from
 * kvp_memory_create. Every format gives the same bits, and they are those of plain attention over
 * the tokens in order. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <kvpager/attention.h>
#include <kvpager/memory.h>
#include <kvpager/meta.h>

#include "world.h"

enum { S = 4, H = 2, GROUP = 2, D = 8, MAX_B = 8, MAX_T = 64, MAX_E = 128, LEVELS = 8 };

/* K, V and q are made from a token and its position, so that equal prefixes have equal KV. */
static float value_of(int32_t token, uint32_t position, uint32_t salt)
{
    uint32_t x = (uint32_t)token * 2654435761u + position * 40503u + salt * 69069u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return (float)(x % 2001) / 500.0f - 2.0f;
}

struct model {
    world w;
    kvp_memory *memory;
    kvp_layer layer;
    uint32_t n_seqs;
    kvp_seq seqs[MAX_B];
    uint32_t begin[MAX_B];
    uint32_t n_tokens[MAX_B];
    float k[MAX_T][H][D];
    float v[MAX_T][H][D];
    float q[MAX_T][H * GROUP][D];
    float out[3][MAX_T][H * GROUP][D];
};

static void begin(struct model *model, uint32_t usable)
{
    kvp_layout layout;
    kvp_config config = config_of(S, S, usable);
    memset(model, 0, sizeof *model);
    model->w = make_world(&config);
    kvp_layout_init(&layout);
    layout.type = KVP_F32;
    layout.n_blocks = usable + 1;
    layout.block_tokens = S;
    layout.n_layers = 1;
    layout.n_heads = H;
    layout.k.size = layout.v.size = D;
    assert_ok(kvp_layout_arrange(&layout, KVP_ORDER_FLASHINFER_HND, NULL));
    assert_ok(kvp_memory_create(&layout, NULL, &model->memory));
    assert_ok(kvp_memory_layer(model->memory, 0, &model->layer));
}

static void end(struct model *model)
{
    kvp_memory_destroy(model->memory);
    end_world(&model->w);
}

static int32_t token_at(const struct model *model, uint32_t n, uint32_t position)
{
    int32_t token;
    assert_ok(kvp_seq_tokens(model->w.cache, model->seqs[n], position, 1, &token));
    return token;
}

/* The step's rows of k, v and q, in batch order. Returns T. */
static uint32_t make_rows(struct model *model)
{
    uint32_t row = 0;
    for (uint32_t n = 0; n < model->n_seqs; n++) {
        for (uint32_t i = 0; i < model->n_tokens[n]; i++, row++) {
            const uint32_t position = model->begin[n] + i;
            const int32_t token = token_at(model, n, position);
            for (uint32_t e = 0; e < H * D; e++) {
                (&model->k[row][0][0])[e] = value_of(token, position, e);
                (&model->v[row][0][0])[e] = value_of(token, position, 100 + e);
            }
            for (uint32_t e = 0; e < H * GROUP * D; e++)
                (&model->q[row][0][0])[e] = value_of(token, position, 200 + n * 999 + e);
        }
    }
    return row;
}

static void append(struct model *model, const int64_t *slots, uint32_t n_tokens)
{
    kvp_append append;
    kvp_append_init(&append);
    append.layer = &model->layer;
    append.n_tokens = n_tokens;
    append.slots = slots;
    append.k.data = &model->k[0][0][0];
    append.v.data = &model->v[0][0][0];
    assert_ok(kvp_append_run(&append, NULL, 0));
}

static void attend(struct model *model, const int32_t *query_start,
                   const kvp_attention_level *levels, uint32_t n_levels, const int32_t *order,
                   int which)
{
    kvp_attention attention;
    size_t n_bytes;
    kvp_attention_init(&attention);
    attention.impl = KVP_ATTENTION_REFERENCE;
    attention.layer = &model->layer;
    attention.n_seqs = model->n_seqs;
    attention.n_tokens = MAX_T;
    attention.n_heads = H * GROUP;
    attention.query_start = query_start;
    attention.levels = levels;
    attention.n_levels = n_levels;
    attention.order = order;
    attention.q.data = &model->q[0][0][0];
    attention.out.data = &model->out[which][0][0][0];
    assert_ok(kvp_attention_bytes(&attention, &n_bytes));
    void *scratch = aligned_alloc(KVP_SCRATCH_ALIGN, n_bytes);
    assert_non_null(scratch);
    assert_ok(kvp_attention_run(&attention, scratch, n_bytes));
    free(scratch);
}

static void attend_dense(struct model *model, const kvp_meta_batch *batch)
{
    int32_t table[MAX_B * 16], lengths[MAX_B], query_start[MAX_B + 1];
    kvp_meta_dense dense = {.struct_size = sizeof dense,
                            .row_stride = 16,
                            .max_tokens = MAX_T,
                            .block_table = table,
                            .seq_lens = lengths,
                            .query_start = query_start};
    assert_ok(kvp_meta_fill_dense(model->w.cache, batch, &dense));
    const kvp_attention_level level = {.n_rows = model->n_seqs,
                                       .n_blocks = model->n_seqs * 16,
                                       .blocks = table,
                                       .row_stride = 16,
                                       .lengths = lengths};
    attend(model, query_start, &level, 1, NULL, 0);
}

static void attend_csr(struct model *model, const kvp_meta_csr *csr)
{
    const kvp_attention_level level = {.n_rows = model->n_seqs,
                                       .n_blocks = MAX_E,
                                       .blocks = csr->kv_indices,
                                       .row_start = csr->kv_indptr,
                                       .last_len = csr->last_block_len};
    attend(model, csr->qo_indptr, &level, 1, NULL, 1);
}

static uint32_t attend_cascade(struct model *model, const kvp_meta_batch *batch,
                               const int32_t *query_start)
{
    static int32_t qo[LEVELS][MAX_B + 1], kv[LEVELS][MAX_B + 1], ids[LEVELS][MAX_E],
        last[LEVELS][MAX_B];
    int32_t order[MAX_B];
    kvp_meta_level made[LEVELS];
    kvp_attention_level levels[LEVELS];
    for (int i = 0; i < LEVELS; i++)
        made[i] = (kvp_meta_level){.qo_indptr = qo[i],
                                   .kv_indptr = kv[i],
                                   .kv_indices = ids[i],
                                   .last_block_len = last[i]};
    kvp_meta_cascade cascade = {.struct_size = sizeof cascade,
                                .max_levels = LEVELS,
                                .max_entries = MAX_E,
                                .order = order,
                                .levels = made};
    assert_ok(kvp_meta_fill_cascade(model->w.cache, batch, &cascade));
    for (uint32_t i = 0; i < cascade.n_levels; i++)
        levels[i] = (kvp_attention_level){.n_rows = made[i].n_groups,
                                          .n_blocks = made[i].n_entries,
                                          .blocks = ids[i],
                                          .row_start = kv[i],
                                          .last_len = last[i],
                                          .query_start = qo[i]};
    attend(model, query_start, levels, cascade.n_levels, order, 2);
    return cascade.n_levels;
}

/* Plain attention over the tokens of a sequence in order: no blocks. */
static double plain(const struct model *model, uint32_t n, uint32_t position, uint32_t row,
                    uint32_t head, uint32_t e)
{
    double sum = 0.0, out = 0.0;
    for (uint32_t key = 0; key <= position; key++) {
        const int32_t token = token_at(model, n, key);
        double score = 0.0;
        for (uint32_t i = 0; i < D; i++)
            score += (double)model->q[row][head][i] * value_of(token, key, head / GROUP * D + i);
        const double weight = exp(score / sqrt(D));
        sum += weight;
        out += weight * value_of(token, key, 100 + head / GROUP * D + e);
    }
    return out / sum;
}

/* Run what the batch asks for and commit it. Returns the levels of the cascade. */
static uint32_t step(struct model *model)
{
    static int32_t qo[MAX_B + 1], kv[MAX_B + 1], ids[MAX_E], last[MAX_B];
    int64_t slots[MAX_T];
    const kvp_meta_batch batch = {.struct_size = sizeof batch,
                                  .n_seqs = model->n_seqs,
                                  .seqs = model->seqs,
                                  .begin = model->begin,
                                  .n_tokens = model->n_tokens};
    kvp_meta_csr csr = {.struct_size = sizeof csr,
                        .max_entries = MAX_E,
                        .max_tokens = MAX_T,
                        .qo_indptr = qo,
                        .kv_indptr = kv,
                        .kv_indices = ids,
                        .last_block_len = last,
                        .slot_mapping = slots};
    assert_ok(kvp_meta_fill_csr(model->w.cache, &batch, &csr));
    const uint32_t n_tokens = make_rows(model);
    append(model, slots, n_tokens);
    attend_dense(model, &batch);
    attend_csr(model, &csr);
    const uint32_t n_levels = attend_cascade(model, &batch, qo);
    const size_t bytes = n_tokens * sizeof model->out[0][0];
    assert_memory_equal(model->out[0], model->out[1], bytes);
    assert_memory_equal(model->out[0], model->out[2], bytes);
    for (uint32_t n = 0, row = 0; n < model->n_seqs; n++) {
        for (uint32_t i = 0; i < model->n_tokens[n]; i++, row++) {
            for (uint32_t head = 0; head < H * GROUP; head++) {
                const double expected = plain(model, n, model->begin[n] + i, row, head, 3);
                assert_true(fabs(model->out[0][row][head][3] - expected) < 1e-5);
            }
        }
        assert_ok(
            kvp_seq_commit(model->w.cache, model->seqs[n], model->begin[n] + model->n_tokens[n]));
    }
    return n_levels;
}

static void open_in(struct model *model, const int32_t *tokens, uint32_t n_tokens)
{
    kvp_open_info info;
    const uint32_t n = model->n_seqs++;
    model->seqs[n] = open_seq(&model->w, tokens, n_tokens, &info);
    model->begin[n] = info.cached_tokens;
    model->n_tokens[n] = n_tokens - info.cached_tokens;
}

/* Prompts that share one block, and two; then decoding, then a fork in the middle of a block. */
TEST(test_shared_prefixes_and_forks)
{
    static struct model model;
    static const int32_t prompts[4][11] = {
        {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11},
        {1, 2, 3, 4, 5, 6, 7, 8, 20, 21, 22},
        {1, 2, 3, 4, 30, 31},
        {40, 41, 42},
    };
    begin(&model, 40);
    open_in(&model, prompts[0], 11);
    assert_int_equal(step(&model), 1);
    model.begin[0] = 10; /* its last token once more, beside the new ones */
    model.n_tokens[0] = 1;
    open_in(&model, prompts[1], 11);
    open_in(&model, prompts[3], 3);
    open_in(&model, prompts[2], 6);
    assert_fields(model, begin[1], 8, begin[3], 4);
    assert_int_equal(step(&model), 3);
    model.seqs[4] = fork_seq(&model.w, model.seqs[0], KVP_END);
    model.n_seqs = 5;
    for (int32_t round = 0; round < 6; round++) {
        for (uint32_t n = 0; n < 5; n++) {
            const int32_t token = 100 + round * 7 + (int32_t)n;
            kvp_seq_info info;
            assert_ok(kvp_seq_extend(model.w.cache, model.seqs[n], &token, 1, 0));
            assert_ok(kvp_seq_info_get(model.w.cache, model.seqs[n], &info));
            model.begin[n] = info.computed_tokens;
            model.n_tokens[n] = 1;
        }
        kvp_copy
            copies[8]; /* the fork's half-filled block, by hand: the copier has its own tests */
        uint32_t n_copies;
        assert_ok(kvp_plan_take(model.w.cache, copies, 8, &n_copies));
        for (uint32_t i = 0; i < n_copies; i++) {
            float row[D];
            for (int64_t slot = 0; slot < copies[i].n_tokens; slot++) {
                for (uint32_t head = 0; head < H; head++) {
                    for (int part = KVP_K; part <= KVP_V; part++) {
                        assert_ok(kvp_layer_read(&model.layer, part, copies[i].src_block * S + slot,
                                                 head, row));
                        assert_ok(kvp_layer_write(&model.layer, part,
                                                  copies[i].dst_block * S + slot, head, row));
                    }
                }
            }
        }
        assert_int_equal(n_copies, round == 0);
        assert_int_equal(step(&model), 3);
    }
    end(&model);
}

/* An aligned prompt that is cached whole: its last token is computed, its KV is not written. */
TEST(test_a_full_hit_writes_nothing)
{
    static struct model model;
    static const int32_t prompt[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    begin(&model, 20);
    open_in(&model, prompt, 8);
    (void)step(&model);
    model.n_seqs = 0;
    open_in(&model, prompt, 8);
    assert_int_equal(model.begin[0], 7);
    (void)step(&model);
    end(&model);
}

TEST_MAIN(NULL, NULL)
