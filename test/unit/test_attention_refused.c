/* What attention refuses: one thing wrong in a batch that is right otherwise. Each time: the
 * status, and not a byte of out or lse written. */
#include <math.h>
#include <string.h>

#include "mocka.h"
#include "attn_meta.h"

/* Three sequences of 4-token blocks: 10 keys, the last 3 queried, 4 in a tree; 9 keys, of which 8
 * are shared with the first; 7 keys in a window. */
static void make_world(attn_world *world)
{
    attn_params params = {.type = KVP_F32,
                          .n_heads = 2,
                          .group = 2,
                          .k_size = 6,
                          .v_size = 4,
                          .block_tokens = 4,
                          .causal = 1,
                          .has_sinks = 1};
    kvp_rope_init(&params.rope);
    params.rope.mode = KVP_ROPE_AT_WRITE;
    *world = attn_begin(&params, 40, 1);
    attn_add(world, &(attn_wish){.n_tokens = 14, .n_queries = 3, .n_tree = 4});
    attn_add(world, &(attn_wish){.n_tokens = 9, .n_queries = 1, .shared_blocks = 2});
    attn_add(world, &(attn_wish){.n_tokens = 27, .n_queries = 2, .sinks = 2, .recent = 6});
    attn_append_all(world);
}

/* Run with `change` made; `a` is the attention, `l` its first level, `m` all of the arrays. */
#define RUN(format_, status, change)                                                               \
    do {                                                                                           \
        attn_how how = attn_how_of(world, format_);                                                \
        how.has_bits = has_bits;                                                                   \
        attn_meta *m = attn_describe(world, &how);                                                 \
        kvp_attention *a = &m->attention;                                                          \
        kvp_attention_level *l = &m->levels[0];                                                    \
        kvp_layer changed = world->layer;                                                          \
        kvp_layer *layer = &changed;                                                               \
        a->layer = layer;                                                                          \
        assert_int_equal(attn_prepare(m), KVP_OK);                                                 \
        (void)l;                                                                                   \
        (void)layer;                                                                               \
        change;                                                                                    \
        assert_int_equal(kvp_attention_run(a, m->scratch, m->scratch_bytes), status);              \
        if ((status) != KVP_OK)                                                                    \
            attn_assert_untouched(m);                                                              \
        attn_forget(m);                                                                            \
    } while (0)

#define REFUSED(format_, change) RUN(format_, KVP_E_ARG, change)

static attn_world *world; /* of the test that runs */
static int has_bits;

static int begin(void **state)
{
    static attn_world made;
    (void)state;
    has_bits = 0;
    make_world(&made);
    world = &made;
    return 0;
}

static int end(void **state)
{
    (void)state;
    attn_end(world);
    return 0;
}

TEST_WITH(test_options, begin, end)
{
    size_t n_bytes;
    assert_int_equal(kvp_attention_run(NULL, NULL, 0), KVP_E_ARG);
    assert_int_equal(kvp_attention_bytes(NULL, &n_bytes), KVP_E_ARG);
    kvp_attention_init(NULL);
    RUN(ATTENTION_DENSE, KVP_OK, (void)0);
    REFUSED(ATTENTION_DENSE, a->struct_size = 8);
    REFUSED(ATTENTION_DENSE, a->impl = 99);
    REFUSED(ATTENTION_DENSE, a->causal = 2);
    REFUSED(ATTENTION_DENSE, a->layer = NULL);
    REFUSED(ATTENTION_DENSE, a->n_heads = 0);
    REFUSED(ATTENTION_DENSE, a->n_heads = 5); /* not a multiple of the KV heads */
    REFUSED(ATTENTION_DENSE, a->n_heads = KVP_HEADS_MAX + 2);
    REFUSED(ATTENTION_DENSE, a->v_size = 3); /* not the layer's */
    REFUSED(ATTENTION_DENSE, a->scale = (double)NAN);
    REFUSED(ATTENTION_DENSE, a->scale = (double)INFINITY);
    REFUSED(ATTENTION_DENSE, a->soft_cap = -1.0);
    REFUSED(ATTENTION_DENSE, a->soft_cap = (double)INFINITY);
    REFUSED(ATTENTION_DENSE, a->sink_logits = (const float *)((const char *)a->sink_logits + 2));
    REFUSED(ATTENTION_DENSE, a->rope.mode = 7);
    REFUSED(ATTENTION_DENSE, a->rope.n_dims = 8);
    REFUSED(ATTENTION_DENSE, a->positions = NULL);
    REFUSED(ATTENTION_DENSE, a->positions = (const int32_t *)((const char *)a->positions + 2));
    REFUSED(ATTENTION_DENSE, m->positions[3] = -1);
    REFUSED(ATTENTION_DENSE, layer->type = 9);
    REFUSED(ATTENTION_DENSE, layer->k.base = NULL);
    REFUSED(ATTENTION_DENSE, layer->k.base += 2);
    REFUSED(ATTENTION_DENSE, layer->block_tokens = 0);
    REFUSED(ATTENTION_DENSE, layer->block_tokens = KVP_BLOCK_TOKENS_MAX + 1);
    REFUSED(ATTENTION_DENSE, layer->v.run = 3);
    REFUSED(ATTENTION_DENSE, layer->v.base = NULL); /* latent layers need v_size */
    REFUSED(ATTENTION_DENSE, (layer->v.base = NULL, a->v_size = 7));
}

TEST(test_defaults)
{
    kvp_attention attention;
    kvp_append append;
    kvp_merge merge;
    kvp_attention_init(&attention);
    kvp_append_init(&append);
    kvp_merge_init(&merge);
    assert_fields(attention, struct_size, sizeof attention, impl, KVP_ATTENTION_AUTO, causal, 1,
                  n_levels, 1);
    assert_true(attention.scale == 0.0 && attention.soft_cap == 0.0);
    assert_int_equal(attention.window.recent_tokens, 0);
    assert_int_equal(attention.rope.mode, KVP_ROPE_NONE);
    assert_int_equal(append.struct_size, sizeof append);
    assert_int_equal(append.rope.struct_size, sizeof(kvp_rope));
    assert_true(append.rope.theta == 10000.0 && append.rope.factor == 1.0);
    assert_int_equal(merge.struct_size, sizeof merge);
}

TEST_WITH(test_tensors, begin, end)
{
    REFUSED(ATTENTION_CSR, a->q.data = NULL);
    REFUSED(ATTENTION_CSR, a->q.data = (const float *)((const char *)a->q.data + 1));
    REFUSED(ATTENTION_CSR, a->q.token_stride = SIZE_MAX / 8);
    REFUSED(ATTENTION_CSR, a->out.data = NULL);
    REFUSED(ATTENTION_CSR, a->out.data = (float *)((char *)a->out.data + 2));
    REFUSED(ATTENTION_CSR, (a->out.token_stride = 16, a->out.head_stride = 3)); /* heads overlap */
    REFUSED(ATTENTION_CSR, (a->out.token_stride = 15, a->out.head_stride = 4)); /* tokens overlap */
    REFUSED(ATTENTION_CSR, (a->out.token_stride = 4, a->out.head_stride = 4));
    REFUSED(ATTENTION_CSR, (a->out.token_stride = 0, a->out.head_stride = 4));
    REFUSED(ATTENTION_CSR, (a->out.token_stride = SIZE_MAX, a->out.head_stride = 4));
    REFUSED(ATTENTION_CSR, a->lse.data = (float *)((char *)a->lse.data + 1));
    REFUSED(ATTENTION_CSR, (a->lse.token_stride = 1, a->lse.head_stride = 1));
    RUN(ATTENTION_CSR, KVP_OK, a->lse.data = NULL); /* not wanted */
    RUN(ATTENTION_CSR, KVP_OK, (a->lse.token_stride = 1, a->lse.head_stride = a->n_tokens));
}

TEST_WITH(test_scratch, begin, end)
{
    size_t n_bytes = 77;
    RUN(ATTENTION_CSR, KVP_E_TOO_SMALL, m->scratch_bytes--);
    RUN(ATTENTION_CSR, KVP_E_TOO_SMALL, m->scratch_bytes = 0);
    attn_how how = attn_how_of(world, ATTENTION_CSR);
    attn_meta *meta = attn_describe(world, &how);
    assert_int_equal(attn_prepare(meta), KVP_OK);
    assert_int_equal(kvp_attention_run(&meta->attention, NULL, meta->scratch_bytes), KVP_E_ARG);
    assert_int_equal(
        kvp_attention_run(&meta->attention, (char *)meta->scratch + 32, meta->scratch_bytes),
        KVP_E_ARG);
    attn_assert_untouched(meta);
    meta->attention.impl = 9;
    assert_int_equal(kvp_attention_bytes(&meta->attention, &n_bytes), KVP_E_ARG);
    assert_int_equal(n_bytes, 77);
    meta->attention.impl = KVP_ATTENTION_REFERENCE;
    assert_int_equal(kvp_attention_bytes(&meta->attention, NULL), KVP_E_ARG);
    attn_forget(meta);
}

TEST_WITH(test_queries, begin, end)
{
    REFUSED(ATTENTION_CSR, a->query_start = NULL);
    REFUSED(ATTENTION_CSR, a->query_start = (const int32_t *)((const char *)a->query_start + 1));
    REFUSED(ATTENTION_CSR, m->query_start[0] = 1);
    REFUSED(ATTENTION_CSR, m->query_start[1] = 5); /* falls after it */
    REFUSED(ATTENTION_CSR, m->query_start[1] = -1);
    REFUSED(ATTENTION_CSR, m->query_start[3] = (int32_t)a->n_tokens + 1);
    REFUSED(ATTENTION_CSR, (m->query_start[1] = 0, m->query_start[2] = 0, m->row_start[0][1] = 0,
                            m->row_start[0][2] = 0, m->row_start[0][3] = 1, m->last_len[0][0] = 0,
                            m->last_len[0][1] = 0, m->last_len[0][2] = 1,
                            m->tree_start[1] = m->tree_start[2] = m->tree_start[3] = 0,
                            m->query_start[3] = 2)); /* two queries, one key */
}

TEST_WITH(test_dense_lists, begin, end)
{
    int32_t ones[3 * ATTENTION_MAX_TOKENS];
    REFUSED(ATTENTION_DENSE, a->n_levels = 0);
    REFUSED(ATTENTION_DENSE, a->levels = NULL);
    REFUSED(ATTENTION_DENSE, l->n_rows = 2); /* a row for each sequence */
    REFUSED(ATTENTION_DENSE, l->n_rows = 4);
    REFUSED(ATTENTION_DENSE, l->blocks = NULL);
    REFUSED(ATTENTION_DENSE, l->blocks = (const int32_t *)((const char *)l->blocks + 2));
    REFUSED(ATTENTION_DENSE, l->n_blocks = 2 * ATTENTION_MAX_TOKENS + 6);
    REFUSED(ATTENTION_DENSE, l->lengths = NULL);
    for (int i = 0; i < 3 * ATTENTION_MAX_TOKENS; i++)
        ones[i] = 1;
    REFUSED(ATTENTION_DENSE, (l->blocks = ones, l->row_stride = 6)); /* 27 keys have 7 blocks */
    REFUSED(ATTENTION_DENSE, l->row_start = m->row_start[0]);
    REFUSED(ATTENTION_DENSE, l->last_len = m->last_len[0]);
    REFUSED(ATTENTION_DENSE, m->lengths[1] = -1);
    REFUSED(ATTENTION_DENSE, m->lengths[1] = INT32_MAX);
    REFUSED(ATTENTION_DENSE, m->blocks[0][0] = -1);
    REFUSED(ATTENTION_DENSE, m->blocks[0][3] = 40); /* behind the last block */
    REFUSED(ATTENTION_DENSE,
            m->blocks[0][ATTENTION_MAX_TOKENS] = KVP_NULL_BLOCK); /* and it is needed */
    REFUSED(ATTENTION_DENSE,
            m->blocks[0][2 * ATTENTION_MAX_TOKENS] = KVP_NULL_BLOCK); /* holds sinks */
    REFUSED(ATTENTION_DENSE, m->blocks[0][2 * ATTENTION_MAX_TOKENS + 6] = KVP_NULL_BLOCK);
    REFUSED(ATTENTION_DENSE,
            m->blocks[0][2 * ATTENTION_MAX_TOKENS + 2] = 40); /* null is fine, this is not */
    RUN(ATTENTION_DENSE, KVP_OK, m->blocks[0][2 * ATTENTION_MAX_TOKENS + 2] = KVP_NULL_BLOCK);
}

TEST_WITH(test_csr_lists, begin, end)
{
    REFUSED(ATTENTION_CSR, l->row_start = NULL);
    REFUSED(ATTENTION_CSR, l->last_len = NULL);
    REFUSED(ATTENTION_CSR, l->lengths = m->lengths);
    REFUSED(ATTENTION_CSR, m->row_start[0][0] = 1);
    REFUSED(ATTENTION_CSR, m->row_start[0][2] = 3); /* falls */
    REFUSED(ATTENTION_CSR, l->n_blocks--);          /* the last row ends behind it */
    REFUSED(ATTENTION_CSR, m->last_len[0][0] = 0);
    REFUSED(ATTENTION_CSR, m->last_len[0][0] = 5);
    REFUSED(ATTENTION_CSR, m->last_len[0][0] = -1);
    REFUSED(ATTENTION_CSR, m->blocks[0][5] = KVP_NULL_BLOCK);
    REFUSED(ATTENTION_CSR,
            (m->row_start[0][1] = 0, m->last_len[0][0] = 1)); /* empty, with a length */
}

TEST_WITH(test_cascades, begin, end)
{
    RUN(ATTENTION_CASCADE, KVP_OK, (void)0);
    REFUSED(ATTENTION_CASCADE, m->order[0] = m->order[1]);          /* no permutation */
    REFUSED(ATTENTION_CSR, (a->order = m->order, m->order[2] = 2)); /* 0, 0, 2 */
    REFUSED(ATTENTION_CASCADE, m->order[2] = 3);
    REFUSED(ATTENTION_CASCADE, m->order[2] = -1);
    REFUSED(ATTENTION_CASCADE, a->order = (const int32_t *)((const char *)a->order + 1));
    REFUSED(ATTENTION_CASCADE, m->level_query_start[0][1] = 2); /* cuts a sequence's queries */
    REFUSED(ATTENTION_CASCADE, m->level_query_start[0][0] = 1);
    REFUSED(ATTENTION_CASCADE, m->level_query_start[0][2]--);
    REFUSED(ATTENTION_CASCADE, m->level_query_start[0][2]++);
    REFUSED(ATTENTION_CASCADE, (m->levels[0].n_rows = 1)); /* does not reach all queries */
    REFUSED(ATTENTION_CASCADE, (m->levels[0].n_rows = 4));
    REFUSED(ATTENTION_CASCADE, m->levels[2].n_rows = 2);
    REFUSED(ATTENTION_CASCADE, m->blocks[0][0] = 0);
    REFUSED(ATTENTION_CASCADE, m->levels[1].query_start =
                                   (const int32_t *)((const char *)m->level_query_start[1] + 2));
}

TEST_WITH(test_windows, begin, end)
{
    RUN(ATTENTION_DROPPED, KVP_OK, (void)0);
    REFUSED(ATTENTION_DROPPED, a->window.sink_len = NULL); /* all three, or none */
    REFUSED(ATTENTION_DROPPED, a->window.window_offset = NULL);
    REFUSED(ATTENTION_DROPPED, a->window.key_offset = NULL);
    REFUSED(ATTENTION_DROPPED,
            a->window.sink_len = (const int32_t *)((const char *)a->window.sink_len + 2));
    REFUSED(ATTENTION_DROPPED, m->sink_len[0] = -1);
    REFUSED(ATTENTION_DROPPED, m->sink_len[0] = 1); /* behind its window_offset */
    REFUSED(ATTENTION_DROPPED, m->window_offset[1] = 10);
    REFUSED(ATTENTION_DROPPED, (m->sink_len[1] = 5, m->window_offset[1] = 10));
    REFUSED(ATTENTION_DROPPED, m->key_offset[2] = -1);
    REFUSED(ATTENTION_DROPPED, m->key_offset[2] = INT32_MAX); /* positions beyond i32 */
    REFUSED(ATTENTION_DROPPED, a->window.recent = NULL);
    REFUSED(ATTENTION_DROPPED, a->window.sinks = NULL);
    REFUSED(ATTENTION_CSR, (a->window.sinks = a->window.recent = NULL,
                            a->window.sink_tokens = 2)); /* sinks without a window */
}

/* The first sequence's tree gets n nodes, roots all of them; nobody else has any. */
static void make_tree_of(attn_meta *m, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        m->intervals[2 * i] = i;
        m->intervals[2 * i + 1] = i + 1;
    }
    m->tree_start[1] = m->tree_start[2] = m->tree_start[3] = n;
    m->attention.tree.n_tokens = (uint32_t)n;
}

TEST_WITH(test_trees, begin, end)
{
    RUN(ATTENTION_CSR, KVP_OK, (void)0);
    REFUSED(ATTENTION_CSR, a->tree.start = NULL);
    REFUSED(ATTENTION_CSR, a->tree.intervals = NULL); /* uncommitted tokens, and no mask */
    REFUSED(ATTENTION_CSR, a->tree.intervals = (const int32_t *)((const char *)m->intervals + 2));
    REFUSED(ATTENTION_CSR, (a->tree.bits = m->bits, a->tree.bits_start = m->bits_start));
    REFUSED(ATTENTION_CSR, a->tree.n_tokens = 3);
    REFUSED(ATTENTION_CSR, m->tree_start[0] = -1);
    REFUSED(ATTENTION_CSR, m->tree_start[1] = 5);
    REFUSED(ATTENTION_CSR, m->tree_start[2] = 3);
    RUN(ATTENTION_CSR, KVP_OK, make_tree_of(m, 14));
    REFUSED(ATTENTION_CSR, make_tree_of(m, 15)); /* only 14 keys */
    REFUSED(ATTENTION_CSR, m->intervals[1] = m->intervals[0]);
    REFUSED(ATTENTION_CSR, m->intervals[3] = m->intervals[2] - 1);
    has_bits = 1;
    RUN(ATTENTION_CSR, KVP_OK, (void)0);
    REFUSED(ATTENTION_CSR, a->tree.bits = NULL);
    REFUSED(ATTENTION_CSR, (a->tree.bits = NULL, a->tree.start = NULL));
    REFUSED(ATTENTION_CSR, a->tree.bits_start = NULL);
    REFUSED(ATTENTION_CSR, a->tree.bits_start = (const int32_t *)((const char *)m->bits_start + 1));
    REFUSED(ATTENTION_CSR, a->tree.n_bytes--);
    REFUSED(ATTENTION_CSR, m->bits_start[0] = 1); /* a mask of the wrong size */
    REFUSED(ATTENTION_CSR, m->bits_start[0] = -1);
    REFUSED(ATTENTION_CSR,
            (m->bits_start[1]++, m->bits_start[2]++, m->bits_start[3]++, a->tree.n_bytes++));
}

/* A batch may be empty, and sequences in it may have nothing to ask; their lists do not matter. */
TEST_WITH(test_empty_batches, begin, end)
{
    RUN(ATTENTION_CSR, KVP_OK,
        (a->n_seqs = 0, l->n_rows = 0, a->tree.start = NULL, a->tree.intervals = NULL));
    RUN(ATTENTION_CSR, KVP_OK,
        (m->query_start[1] = m->query_start[2] = m->query_start[3] = 0, m->blocks[0][0] = -9));
    RUN(ATTENTION_CSR, KVP_OK,
        (make_tree_of(m, 15), m->query_start[1] = 0, m->query_start[2]--, m->query_start[3]--));
    RUN(ATTENTION_CSR, KVP_OK,
        (m->query_start[1] = m->query_start[2] = m->query_start[3] = 0, a->n_tokens = 0,
         a->q.data = NULL, a->out.data = NULL, a->lse.data = NULL));
}

/* Sizes that no memory has: refused, or too long, but never a small number. */
TEST_WITH(test_sizes_that_overflow, begin, end)
{
    attn_how how = attn_how_of(world, ATTENTION_CSR);
    attn_meta *meta = attn_describe(world, &how);
    kvp_layer layer = world->layer;
    kvp_attention_level levels[4];
    const int32_t starts[] = {0, INT32_MAX}, last[] = {65536}, one[] = {0, 1};
    const int32_t block = 1;
    size_t n_bytes = 0;
    layer.block_tokens = KVP_BLOCK_TOKENS_MAX;
    for (int i = 0; i < 4; i++)
        levels[i] = (kvp_attention_level){.n_rows = 1,
                                          .n_blocks = INT32_MAX,
                                          .blocks = &block,
                                          .row_start = starts,
                                          .last_len = last};
    meta->attention.layer = &layer;
    meta->attention.n_seqs = 1;
    meta->attention.n_levels = 4;
    meta->attention.levels = levels;
    meta->attention.query_start = one;
    meta->attention.tree = (kvp_attention_tree){.n_tokens = 0};
    meta->attention.n_heads = 65536;
    const kvp_status status = kvp_attention_bytes(&meta->attention, &n_bytes);
#if SIZE_MAX == UINT32_MAX
    assert_int_equal(status, KVP_E_TOO_LONG);
#else
    assert_true(status == KVP_OK && n_bytes > (size_t)1 << 45);
#endif
    n_bytes = 1 << 20;
    assert_int_equal(kvp_attention_run(&meta->attention, meta->scratch, n_bytes),
                     status == KVP_OK ? KVP_E_TOO_SMALL : KVP_E_TOO_LONG);
    attn_assert_untouched(meta);
    attn_forget(meta);
}

TEST_MAIN(NULL, NULL)
