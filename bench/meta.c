/* Batch metadata of a decode step: 64 sequences of 1,024 to 2,024 tokens, one token each. The
 * yardstick makes the same arrays through the calls for one sequence. And of a step in which each
 * has a tree of 64 nodes; and with a window of 4 and 512 tokens, in a second layer group. */
#include "world.h"

#include <kvpager/meta.h>
#include <stdlib.h>
#include <string.h>

enum { SEQS = 64, SHORTEST = 1024, STEP = 16, SHARED = 512, FILLS = 64, NODES = 64 };

typedef struct meta_state {
    world *w;
    kvp_seq seqs[SEQS];
    kvp_meta_batch batch;
    kvp_meta_sizes sizes;
    kvp_meta_csr csr;
    kvp_meta_csr plain; /* the yardstick's */
    kvp_meta_dense dense;
    kvp_meta_cascade cascade;
    kvp_meta_level levels[4];
    int32_t order[SEQS];
    void *buffers[3];
    kvp_cache *grouped; /* small, with windows and trees: the work is the same in any pool */
    kvp_seq decoding[SEQS];
    kvp_seq trees[SEQS];
    kvp_meta_windowed windowed;
    kvp_meta_tree tree;
    kvp_meta_csr tree_csr;
    void *grouped_buffers[3];
} meta_state;

static kvp_meta_batch batch_for(const kvp_seq *seqs, uint32_t layers)
{
    return (kvp_meta_batch){
        .struct_size = sizeof(kvp_meta_batch), .n_seqs = SEQS, .group = layers, .seqs = seqs};
}

static void create_grouped(meta_state *s, kvp_ns *ns)
{
    kvp_config config;
    kvp_config_init(&config);
    config.n_blocks = 65536;
    config.max_seqs = 2 * SEQS;
    config.max_seq_tokens = 4096;
    config.max_tree_tokens = NODES;
    config.n_groups = 2;
    config.groups[1] = (kvp_group){4, 512, 0};
    REQUIRE_OK(kvp_cache_create(&config, NULL, 0, &s->grouped));
    REQUIRE_OK(kvp_ns_open(s->grouped, "bench", 5, ns));
}

/* Three branches of every node that has any: as drafts are made. */
static void add_tree(kvp_cache *cache, kvp_seq seq)
{
    int32_t tokens[NODES], parents[NODES];
    const uint32_t n = NODES;
    for (int32_t j = 0; j < NODES; j++) {
        tokens[j] = j;
        parents[j] = (j + 2) / 3 - 1;
    }
    const kvp_batch batch = {
        .struct_size = sizeof batch, .n_seqs = 1, .seqs = &seq, .n_tokens = &n, .tokens = tokens};
    REQUIRE_OK(kvp_seq_extend_tree(cache, &batch, parents));
}

static void *cut_buffer(size_t n_bytes)
{
    void *buffer = aligned_alloc(KVP_META_ALIGN, n_bytes);
    REQUIRE(buffer != NULL);
    memset(buffer, 0, n_bytes); /* touched before it is timed */
    return buffer;
}

static void place_grouped(meta_state *s)
{
    const kvp_meta_batch windowed = batch_for(s->decoding, 1), trees = batch_for(s->trees, 0);
    kvp_meta_sizes sizes;
    size_t n;
    s->windowed.struct_size = sizeof s->windowed;
    s->tree.struct_size = sizeof s->tree;
    s->tree_csr.struct_size = sizeof s->tree_csr;
    REQUIRE_OK(kvp_meta_measure(s->grouped, &windowed, &sizes));
    REQUIRE_OK(kvp_meta_place_windowed(&s->windowed, &sizes, NULL, 0, &n));
    s->grouped_buffers[0] = cut_buffer(n);
    REQUIRE_OK(kvp_meta_place_windowed(&s->windowed, &sizes, s->grouped_buffers[0], n, &n));
    REQUIRE_OK(kvp_meta_measure(s->grouped, &trees, &sizes));
    REQUIRE_OK(kvp_meta_place_tree(&s->tree, &sizes, NULL, 0, &n));
    s->grouped_buffers[1] = cut_buffer(n);
    REQUIRE_OK(kvp_meta_place_tree(&s->tree, &sizes, s->grouped_buffers[1], n, &n));
    REQUIRE_OK(kvp_meta_place_csr(&s->tree_csr, &sizes, NULL, 0, &n));
    s->grouped_buffers[2] = cut_buffer(n);
    REQUIRE_OK(kvp_meta_place_csr(&s->tree_csr, &sizes, s->grouped_buffers[2], n, &n));
}

static void set_up_grouped(meta_state *s)
{
    int32_t *tokens = s->w->tokens;
    kvp_ns ns;
    create_grouped(s, &ns);
    for (uint32_t i = 0; i < 2 * SEQS; i++) {
        kvp_seq *seq = i < SEQS ? &s->decoding[i] : &s->trees[i - SEQS];
        const uint32_t n = SHORTEST + i % SEQS * STEP - (i < SEQS);
        const int32_t token = 1;
        world_fill_tokens(s->w->next_number++, tokens, n);
        const kvp_prompt prompt = {.struct_size = sizeof prompt, .tokens = tokens, .n_tokens = n};
        REQUIRE_OK(kvp_seq_open(s->grouped, ns, &prompt, seq, NULL));
        REQUIRE_OK(kvp_seq_commit(s->grouped, *seq, n));
        if (i < SEQS)
            REQUIRE_OK(kvp_seq_extend(s->grouped, *seq, &token, 1, 0));
        else
            add_tree(s->grouped, *seq);
    }
    place_grouped(s);
}

static void *set_up(const bench_options *options)
{
    meta_state *s = allocate(sizeof *s);
    size_t n_bytes;
    memset(s, 0, sizeof *s);
    s->w = world_create(options, SEQS + 8, 4096, NULL);
    world_shuffle(s->w);
    int32_t *tokens = s->w->tokens;
    world_fill_tokens(s->w->next_number++, tokens, SHARED);
    for (uint32_t i = 0; i < SEQS; i++) {
        const int32_t token = 1;
        world_fill_tokens(s->w->next_number++, tokens + SHARED, SHORTEST + i * STEP - SHARED);
        s->seqs[i] = world_open_committed(s->w, tokens, SHORTEST + i * STEP - 1);
        REQUIRE_OK(kvp_seq_extend(s->w->cache, s->seqs[i], &token, 1, 0));
    }
    s->batch = (kvp_meta_batch){.struct_size = sizeof s->batch, .n_seqs = SEQS, .seqs = s->seqs};
    REQUIRE_OK(kvp_meta_measure(s->w->cache, &s->batch, &s->sizes));
    s->csr.struct_size = s->plain.struct_size = sizeof s->csr;
    s->dense.struct_size = sizeof s->dense;
    REQUIRE_OK(kvp_meta_place_dense(&s->dense, &s->sizes, NULL, 0, &n_bytes));
    s->buffers[2] = aligned_alloc(KVP_META_ALIGN, n_bytes);
    REQUIRE_OK(kvp_meta_place_dense(&s->dense, &s->sizes, s->buffers[2], n_bytes, &n_bytes));
    REQUIRE_OK(kvp_meta_place_csr(&s->csr, &s->sizes, NULL, 0, &n_bytes));
    s->buffers[0] = aligned_alloc(KVP_META_ALIGN, n_bytes);
    s->buffers[1] = aligned_alloc(KVP_META_ALIGN, n_bytes);
    REQUIRE_OK(kvp_meta_place_csr(&s->csr, &s->sizes, s->buffers[0], n_bytes, &n_bytes));
    REQUIRE_OK(kvp_meta_place_csr(&s->plain, &s->sizes, s->buffers[1], n_bytes, &n_bytes));
    for (uint32_t l = 0; l < 4; l++) {
        s->levels[l] = (kvp_meta_level){allocate((SEQS + 1) * sizeof(int32_t)),
                                        allocate((SEQS + 1) * sizeof(int32_t)),
                                        allocate(s->sizes.n_entries * sizeof(int32_t)),
                                        allocate(SEQS * sizeof(int32_t)),
                                        0,
                                        0};
    }
    s->cascade = (kvp_meta_cascade){.struct_size = sizeof s->cascade,
                                    .max_levels = 4,
                                    .max_entries = s->sizes.n_entries,
                                    .order = s->order,
                                    .levels = s->levels};
    set_up_grouped(s);
    return s;
}

static void tear_down(void *state)
{
    meta_state *s = state;
    for (int i = 0; i < 3; i++) {
        free(s->buffers[i]);
        free(s->grouped_buffers[i]);
    }
    kvp_cache_destroy(s->grouped);
    for (int l = 0; l < 4; l++) {
        free(s->levels[l].qo_indptr);
        free(s->levels[l].kv_indptr);
        free(s->levels[l].kv_indices);
        free(s->levels[l].last_block_len);
    }
    world_destroy(s->w);
    free(s);
}

static double fill_csr(void *state)
{
    const meta_state *s = state;
    const uint64_t begin = now_ns();
    for (int i = 0; i < FILLS; i++) {
        REQUIRE_OK(kvp_meta_fill_csr(s->w->cache, &s->batch, &s->csr));
    }
    return (double)(now_ns() - begin) / FILLS;
}

/* One sequence after the other. */
static void fill_plainly(const meta_state *s)
{
    const kvp_meta_csr *csr = &s->plain;
    csr->qo_indptr[0] = csr->kv_indptr[0] = 0;
    for (uint32_t b = 0; b < SEQS; b++) {
        kvp_seq_info info;
        const int32_t *row;
        uint32_t n_blocks;
        REQUIRE_OK(kvp_seq_info_get(s->w->cache, s->seqs[b], &info));
        REQUIRE_OK(kvp_seq_row(s->w->cache, s->seqs[b], 0, &row, &n_blocks));
        const uint32_t n = (info.n_tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
        memcpy(csr->kv_indices + csr->kv_indptr[b], row, n * sizeof *row);
        csr->kv_indptr[b + 1] = csr->kv_indptr[b] + (int32_t)n;
        csr->qo_indptr[b + 1] = csr->qo_indptr[b] + 1;
        csr->last_block_len[b] = (int32_t)((info.n_tokens - 1) % BLOCK_TOKENS + 1);
        csr->batch_indices[b] = (int32_t)b;
        csr->positions[b] = (int32_t)info.computed_tokens;
        REQUIRE_OK(kvp_seq_slots(s->w->cache, s->seqs[b], 0, info.computed_tokens, 1,
                                 &csr->slot_mapping[b]));
    }
}

static double fill_csr_plainly(void *state)
{
    const meta_state *s = state;
    const uint64_t begin = now_ns();
    for (int i = 0; i < FILLS; i++) {
        fill_plainly(s);
    }
    const double ns = (double)(now_ns() - begin) / FILLS;
    REQUIRE(memcmp(s->csr.kv_indices, s->plain.kv_indices, s->sizes.n_entries * sizeof(int32_t)) ==
            0);
    REQUIRE(memcmp(s->csr.slot_mapping, s->plain.slot_mapping, SEQS * sizeof(int64_t)) == 0);
    return ns;
}

static double fill_dense(void *state)
{
    const meta_state *s = state;
    const uint64_t begin = now_ns();
    for (int i = 0; i < FILLS; i++) {
        REQUIRE_OK(kvp_meta_fill_dense(s->w->cache, &s->batch, &s->dense));
    }
    return (double)(now_ns() - begin) / FILLS;
}

static double fill_cascade(void *state)
{
    meta_state *s = state;
    const uint64_t begin = now_ns();
    for (int i = 0; i < FILLS; i++) {
        REQUIRE_OK(kvp_meta_fill_cascade(s->w->cache, &s->batch, &s->cascade));
    }
    const double ns = (double)(now_ns() - begin) / FILLS;
    REQUIRE(s->cascade.n_levels == 2 && s->levels[0].n_entries == SHARED / BLOCK_TOKENS);
    return ns;
}

static double fill_windowed(void *state)
{
    const meta_state *s = state;
    const kvp_meta_batch batch = batch_for(s->decoding, 1);
    const uint64_t begin = now_ns();
    for (int i = 0; i < FILLS; i++) {
        REQUIRE_OK(kvp_meta_fill_windowed(s->grouped, &batch, &s->windowed));
    }
    const double ns = (double)(now_ns() - begin) / FILLS;
    REQUIRE(s->windowed.kv_indptr[SEQS] < SEQS * (512 / BLOCK_TOKENS + 3));
    return ns;
}

/* Everything that a kernel needs to verify trees: lists, slots and positions, and intervals. */
static double fill_trees(void *state)
{
    const meta_state *s = state;
    const kvp_meta_batch batch = batch_for(s->trees, 0);
    kvp_meta_tree tree = s->tree;
    tree.mask_indptr = NULL;
    tree.mask = NULL;
    const uint64_t begin = now_ns();
    for (int i = 0; i < FILLS; i++) {
        REQUIRE_OK(kvp_meta_fill_csr(s->grouped, &batch, &s->tree_csr));
        REQUIRE_OK(kvp_meta_fill_tree(s->grouped, &batch, &tree));
    }
    const double ns = (double)(now_ns() - begin) / FILLS;
    REQUIRE(s->tree.indptr[SEQS] == SEQS * NODES && s->tree.intervals[1] == NODES);
    return ns;
}

static double fill_mask(void *state)
{
    const meta_state *s = state;
    const kvp_meta_batch batch = batch_for(s->trees, 0);
    const kvp_meta_tree mask = {.struct_size = sizeof mask,
                                .max_mask_bytes = s->tree.max_mask_bytes,
                                .mask_indptr = s->tree.mask_indptr,
                                .mask = s->tree.mask};
    const uint64_t begin = now_ns();
    REQUIRE_OK(kvp_meta_fill_tree(s->grouped, &batch, &mask));
    return (double)(now_ns() - begin);
}

static const measurement measurements[] = {
    {"meta_csr_64", "ns", 4000, 51, fill_csr, fill_csr_plainly,
     "64 sequences of 1,024 to 2,024 tokens; yardstick: one call each"},
    {"meta_dense_64", "ns", 0, 51, fill_dense, NULL, "the same"},
    {"meta_cascade_64", "ns", 0, 51, fill_cascade, NULL, "the same, 512 tokens shared by all"},
    {"meta_windowed_64", "ns", 0, 51, fill_windowed, NULL,
     "the same, a window of 4 and 512 tokens"},
    {"meta_trees_64", "ns", 0, 51, fill_trees, NULL,
     "the same, a tree of 64 nodes each: CSR and intervals"},
    {"meta_mask_64", "ns", 0, 51, fill_mask, NULL, "the same, their bit mask: 0.8 MB"},
};

const group meta_group = {measurements, sizeof measurements / sizeof *measurements, set_up,
                          tear_down};
