/* Metadata given to attention.h as it is: rows with dropped entries, windowed lists, intervals,
 * masks and cascades of the same step must give what a slow sum over the keys that are seen gives.
 *
 * With q = 0 every key that is seen weighs the same, so the result is the mean of their V; and V of
 * every slot is a random number. The null block's V is not a number: nobody may use it. */
#include "meta_cases.h"

#include <kvpager/attention.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_T = 512, MAX_E = 1024, MAX_V = META_SEQS * META_NODES, MASK = 32768, LEVELS = 4 };

struct model {
    world w;
    kvp_layer layer;
    kvp_meta_batch batch;
    kvp_meta_sizes sizes;
    float *k, *v; /* [N, S] of one head and one element */
    float expected[MAX_T];
    double expected_keys[MAX_T];
    float out[MAX_T];
    float lse[MAX_T];
};

static kvp_layer_part part_of(float *data, uint32_t S)
{
    return (kvp_layer_part){.base = (unsigned char *)data,
                            .block_stride = S * sizeof(float),
                            .token_stride = sizeof(float),
                            .head_stride = sizeof(float),
                            .size = 1,
                            .run = 1};
}

/* Memory for the blocks of the batch's group. */
static void make_layer(struct model *m)
{
    kvp_config config;
    assert_ok(kvp_cache_config_get(m->w.cache, &config));
    const uint32_t S = config.groups[m->batch.group].block_tokens;
    const size_t n = (size_t)config.n_blocks * S;
    free(m->k);
    free(m->v);
    m->k = calloc(n, sizeof(float));
    m->v = calloc(n, sizeof(float));
    assert_true(m->k != NULL && m->v != NULL);
    for (size_t i = 0; i < n; i++)
        m->v[i] = i < S ? NAN : (float)meta_below(1u << 20) / 1024.0f;
    m->layer = (kvp_layer){KVP_F32, config.n_blocks, S, 1, part_of(m->k, S), part_of(m->v, S)};
}

/* The mean of V over the keys that each query sees. */
static void expect(struct model *m)
{
    uint32_t n = 0;
    for (uint32_t b = 0; b < m->batch.n_seqs; b++) {
        meta_told t;
        meta_tell(&m->w, &m->batch, b, &t);
        for (uint32_t x = t.begin; x < t.length; x++, n++) {
            double sum = 0;
            uint32_t seen = 0;
            for (uint32_t s = 0; s < t.length; s++) {
                if (meta_sees(&t, x, s)) {
                    const size_t block = (size_t)(uint32_t)t.row[s / t.S];
                    sum += (double)m->v[block * t.S + s % t.S];
                    seen++;
                }
            }
            m->expected[n] = (float)(sum / seen);
            m->expected_keys[n] = seen;
        }
    }
}

static void attend(struct model *m, kvp_attention *attention, const char *what)
{
    static const float q[MAX_T];
    size_t n_bytes;
    attention->layer = &m->layer;
    attention->n_seqs = m->batch.n_seqs;
    attention->n_tokens = m->sizes.n_tokens;
    attention->n_heads = 1;
    attention->q.data = q;
    attention->out.data = m->out;
    attention->lse.data = m->lse;
    for (uint32_t impl = KVP_ATTENTION_AUTO; impl <= KVP_ATTENTION_REFERENCE; impl++) {
        attention->impl = impl;
        memset(m->out, 0x5A, sizeof m->out);
        assert_ok(kvp_attention_bytes(attention, &n_bytes));
        n_bytes = (n_bytes + KVP_SCRATCH_ALIGN) / KVP_SCRATCH_ALIGN * KVP_SCRATCH_ALIGN;
        void *scratch = aligned_alloc(KVP_SCRATCH_ALIGN, n_bytes);
        assert_non_null(scratch);
        const kvp_status status = kvp_attention_run(attention, scratch, n_bytes);
        free(scratch);
        if (status != KVP_OK)
            print_error("%s\n", what);
        assert_ok(status);
        for (uint32_t i = 0; i < m->sizes.n_tokens; i++) {
            if (!(fabs((double)(m->out[i] - m->expected[i])) < 0.01) ||
                !(fabs(exp((double)m->lse[i]) - m->expected_keys[i]) < 0.01)) {
                print_error("%s, query %u: %f keys, not %f\n", what, i, exp((double)m->lse[i]),
                            m->expected_keys[i]);
                fail();
            }
        }
    }
}

/* The arrays of all formats for one batch. */
static struct {
    int32_t qo[META_SEQS + 1], kv[META_SEQS + 1], indices[MAX_E], last[META_SEQS];
    int32_t lens[META_SEQS], table[META_SEQS * META_TOKENS];
    int32_t sink_len[META_SEQS], offset[META_SEQS], key[META_SEQS];
    uint32_t sinks[META_SEQS], recent[META_SEQS];
    int32_t nodes[META_SEQS + 1], intervals[2 * MAX_V];
    int32_t mask_indptr[META_SEQS + 1];
    uint8_t mask[MASK];
    int32_t store[LEVELS][4][MAX_E], order[META_SEQS];
    kvp_meta_level levels[LEVELS];
} a;

static kvp_attention_level csr_level(uint32_t n_seqs)
{
    return (kvp_attention_level){.n_rows = n_seqs,
                                 .n_blocks = (uint32_t)a.kv[n_seqs],
                                 .blocks = a.indices,
                                 .row_start = a.kv,
                                 .last_len = a.last};
}

/* Windows, trees and the step's queries, as every format takes them. */
static kvp_attention common(const struct model *m)
{
    kvp_attention attention;
    kvp_attention_init(&attention);
    attention.query_start = a.qo;
    attention.n_levels = 1;
    attention.window.sinks = a.sinks;
    attention.window.recent = a.recent;
    attention.tree.start = a.nodes;
    attention.tree.intervals = a.intervals;
    attention.tree.n_tokens = m->sizes.n_nodes;
    return attention;
}

static void fill_windowed(const struct model *m)
{
    const kvp_meta_windowed windowed = {.struct_size = sizeof windowed,
                                        .max_entries = MAX_E,
                                        .qo_indptr = a.qo,
                                        .kv_indptr = a.kv,
                                        .kv_indices = a.indices,
                                        .last_block_len = a.last,
                                        .sink_len = a.sink_len,
                                        .window_offset = a.offset,
                                        .key_offset = a.key,
                                        .sinks = a.sinks,
                                        .recent = a.recent};
    assert_ok(kvp_meta_fill_windowed(m->w.cache, &m->batch, &windowed));
}

static void fill_csr(const struct model *m)
{
    const kvp_meta_csr csr = {.struct_size = sizeof csr,
                              .max_entries = MAX_E,
                              .kv_indptr = a.kv,
                              .kv_indices = a.indices,
                              .last_block_len = a.last};
    assert_ok(kvp_meta_fill_csr(m->w.cache, &m->batch, &csr));
}

static void fill_tree(const struct model *m, uint32_t mask_keys)
{
    const kvp_meta_tree tree = {.struct_size = sizeof tree,
                                .max_nodes = MAX_V,
                                .mask_keys = mask_keys,
                                .max_mask_bytes = MASK,
                                .indptr = a.nodes,
                                .intervals = a.intervals,
                                .mask_indptr = a.mask_indptr,
                                .mask = a.mask};
    assert_ok(kvp_meta_fill_tree(m->w.cache, &m->batch, &tree));
}

static void use_mask(const struct model *m, kvp_attention *attention)
{
    attention->tree.intervals = NULL;
    attention->tree.bits = a.mask;
    attention->tree.bits_start = a.mask_indptr;
    attention->tree.n_bytes = (uint32_t)a.mask_indptr[m->batch.n_seqs];
}

/* Windowed lists, with gaps; then with the mask over their slots, and nothing else. */
static void check_windowed(struct model *m)
{
    kvp_attention attention = common(m);
    fill_windowed(m);
    const kvp_attention_level level = csr_level(m->batch.n_seqs);
    attention.levels = &level;
    attention.window.sink_len = a.sink_len;
    attention.window.window_offset = a.offset;
    attention.window.key_offset = a.key;
    attend(m, &attention, "windowed lists");
    memset(&attention.window, 0, sizeof attention.window);
    memset(&attention.tree, 0, sizeof attention.tree);
    fill_tree(m, KVP_MASK_WINDOWED);
    use_mask(m, &attention);
    attend(m, &attention, "windowed lists, masked");
}

/* Rows as they are, null entries included; the same with the mask over rows. */
static void check_rows(struct model *m)
{
    kvp_attention attention = common(m);
    fill_csr(m);
    fill_tree(m, KVP_MASK_ROWS);
    const kvp_attention_level level = csr_level(m->batch.n_seqs);
    attention.levels = &level;
    attend(m, &attention, "CSR");
    use_mask(m, &attention);
    attend(m, &attention, "CSR, masked");
}

static void check_dense(struct model *m)
{
    kvp_attention attention = common(m);
    const kvp_meta_dense dense = {.struct_size = sizeof dense,
                                  .row_stride = META_TOKENS,
                                  .block_table = a.table,
                                  .seq_lens = a.lens};
    assert_ok(kvp_meta_fill_dense(m->w.cache, &m->batch, &dense));
    const kvp_attention_level level = {.n_rows = m->batch.n_seqs,
                                       .n_blocks = m->batch.n_seqs * META_TOKENS,
                                       .blocks = a.table,
                                       .row_stride = META_TOKENS,
                                       .lengths = a.lens};
    attention.levels = &level;
    attend(m, &attention, "dense");
}

static void check_cascade(struct model *m)
{
    kvp_attention attention = common(m);
    kvp_attention_level levels[LEVELS];
    kvp_meta_cascade cascade = {
        sizeof cascade, 1 + meta_below(LEVELS), MAX_E, a.order, a.levels, 0, 0};
    for (uint32_t l = 0; l < LEVELS; l++) {
        a.levels[l] =
            (kvp_meta_level){a.store[l][0], a.store[l][1], a.store[l][2], a.store[l][3], 0, 0};
    }
    assert_ok(kvp_meta_fill_cascade(m->w.cache, &m->batch, &cascade));
    for (uint32_t l = 0; l < cascade.n_levels; l++) {
        const int is_last = l + 1 == cascade.n_levels;
        levels[l] = (kvp_attention_level){.n_rows = a.levels[l].n_groups,
                                          .n_blocks = a.levels[l].n_entries,
                                          .blocks = a.levels[l].kv_indices,
                                          .row_start = a.levels[l].kv_indptr,
                                          .last_len = a.levels[l].last_block_len,
                                          .query_start = is_last ? NULL : a.levels[l].qo_indptr};
    }
    attention.levels = levels;
    attention.n_levels = cascade.n_levels;
    attention.order = a.order;
    attend(m, &attention, "cascade");
}

TEST(test_attention_takes_metadata_as_it_is)
{
    static struct model m;
    uint32_t n_checked = 0, n_left_out = 0, n_with_nodes = 0;
    for (uint32_t turn = 0; turn < 150; turn++) {
        meta_seed(turn + 1000);
        kvp_seq seqs[META_SEQS], chosen[META_SEQS];
        uint32_t begin[META_SEQS], n_tokens[META_SEQS];
        kvp_config config;
        m.w = meta_random_world();
        assert_ok(kvp_cache_config_get(m.w.cache, &config));
        const uint32_t n = meta_random_seqs(&m.w, seqs);
        for (uint32_t i = 0; i < 6; i++) {
            const uint32_t B = meta_random_batch(&m.w, seqs, n, chosen, begin, n_tokens);
            m.batch = (kvp_meta_batch){sizeof m.batch, B,     meta_below(config.n_groups),
                                       chosen,         begin, n_tokens};
            if (kvp_meta_measure(m.w.cache, &m.batch, &m.sizes) != KVP_OK ||
                m.sizes.n_tokens == 0 || m.sizes.n_tokens > MAX_T || m.sizes.n_entries > MAX_E ||
                m.sizes.n_mask_bytes > MASK)
                continue;
            n_checked++;
            make_layer(&m);
            n_left_out += m.sizes.n_kept < m.sizes.n_entries;
            n_with_nodes += m.sizes.n_nodes > 0;
            expect(&m);
            fill_windowed(&m); /* and what all formats take: queries, windows */
            fill_tree(&m, KVP_MASK_ROWS);
            check_windowed(&m);
            check_rows(&m);
            check_dense(&m);
            check_cascade(&m);
        }
        end_world(&m.w);
    }
    free(m.k);
    free(m.v);
    assert_true(n_checked > 300 && n_left_out > 100 && n_with_nodes > 200);
}

TEST_MAIN(NULL, NULL)
