/* Any bytes as a cache's sequences, with windows and trees, and batches of them: every format of
 * metadata, into arrays of exactly the size that the batch asks for, with guards behind them.
 * Nothing may crash or write beyond; what is refused writes nothing; what is filled adds up. */
#include <stdlib.h>
#include <string.h>

#include <kvpager/all.h>
#include <kvpager/meta.h>

#include "require.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_SEQS = 12, MAX_TOKENS = 64, MAX_TREE = 12, LEVELS = 4, GUARD = 0x5A };

/* The input, byte by byte; zeros behind its end. */
typedef struct input {
    const uint8_t *data;
    size_t size;
    size_t at;
} input;

static uint32_t next(input *in)
{
    return in->at < in->size ? in->data[in->at++] : 0;
}

/* An array of n items and a guard, on the heap so that a tool sees what is written beyond. */
static void *guarded(size_t n, size_t size)
{
    uint8_t *array = malloc(n * size + 1);
    require(array != NULL);
    memset(array, GUARD, n * size + 1);
    return array;
}

static void check_and_free(void *array, size_t n, size_t size)
{
    require(((const uint8_t *)array)[n * size] == GUARD);
    free(array);
}

static kvp_window next_window(input *in)
{
    const uint32_t recent = next(in) % 24;
    return (kvp_window){recent == 0 ? 0 : next(in) % 20, recent};
}

static void grow_tree(kvp_cache *cache, kvp_seq seq, input *in)
{
    int32_t tokens[MAX_TREE], parents[MAX_TREE];
    const uint32_t n = next(in) % MAX_TREE;
    kvp_seq_info info;
    require(kvp_seq_info_get(cache, seq, &info) == KVP_OK);
    for (uint32_t i = 0; i < n; i++) {
        tokens[i] = (int32_t)i;
        parents[i] = (int32_t)(next(in) % (info.tree_tokens + i + 1)) - 1;
    }
    const kvp_batch batch = {
        .struct_size = sizeof batch, .n_seqs = 1, .seqs = &seq, .n_tokens = &n, .tokens = tokens};
    (void)kvp_seq_extend_tree(cache, &batch, parents);
}

/* What may happen to a sequence; refusals are part of it. */
static void change(kvp_cache *cache, kvp_seq seq, input *in, const int32_t *tokens)
{
    const uint32_t what = next(in), n = next(in) % MAX_TOKENS;
    kvp_config config;
    require(kvp_cache_config_get(cache, &config) == KVP_OK);
    if (what & 1)
        (void)kvp_seq_commit(cache, seq, n);
    if (what & 2)
        (void)kvp_seq_window(cache, seq, next(in) % config.n_groups, next_window(in), NULL);
    if (what & 4)
        (void)kvp_seq_extend(cache, seq, tokens, n % 9, what >> 6);
    if (what & 8)
        grow_tree(cache, seq, in);
    if (what & 16)
        (void)kvp_seq_truncate(cache, seq, n, NULL);
    if (what & 32)
        (void)kvp_seq_invalidate(cache, seq, n, NULL, 0, NULL);
    if (what & 64)
        grow_tree(cache, seq, in);
}

static uint32_t make_seqs(kvp_cache *cache, kvp_ns ns, input *in, kvp_seq *seqs)
{
    uint32_t n = 0;
    int32_t tokens[MAX_TOKENS];
    while (n < MAX_SEQS && in->at < in->size / 2) {
        kvp_prompt prompt = {.struct_size = sizeof prompt, .tokens = tokens};
        prompt.n_tokens = next(in) % MAX_TOKENS;
        for (uint32_t i = 0; i < MAX_TOKENS; i++)
            tokens[i] = (int32_t)(i % 4 == 3 && i < prompt.n_tokens ? next(in) % 2 : i);
        const uint32_t what = next(in);
        if ((what & 3) == 3 && n > 0) {
            if (kvp_seq_fork(cache, seqs[n - 1], next(in) % MAX_TOKENS, 0, &seqs[n]) == KVP_OK)
                n++;
            continue;
        }
        if (kvp_seq_open(cache, ns, &prompt, &seqs[n], NULL) != KVP_OK)
            break;
        if (what & 4)
            (void)kvp_seq_commit(cache, seqs[n], prompt.n_tokens);
        if (what & 8)
            change(cache, seqs[n], in, tokens);
        if (what & 16)
            change(cache, seqs[n], in, tokens);
        if ((what & 0xE0) == 0xE0)
            (void)kvp_seq_swap_out(cache, &seqs[n], 1, NULL);
        n++;
    }
    return n;
}

/* One buffer, cut to exactly this size, with a guard behind it. */
static uint8_t *guarded_buffer(size_t n_bytes)
{
    uint8_t *buffer = aligned_alloc(KVP_META_ALIGN, n_bytes + KVP_META_ALIGN);
    require(buffer != NULL);
    memset(buffer, GUARD, n_bytes + KVP_META_ALIGN);
    return buffer;
}

static void check_csr(kvp_cache *cache, const kvp_meta_batch *batch, const kvp_meta_sizes *z)
{
    kvp_meta_csr csr = {
        .struct_size = sizeof csr, .max_entries = z->n_entries, .max_tokens = z->n_tokens};
    csr.qo_indptr = guarded(z->n_seqs + 1, 4);
    csr.kv_indptr = guarded(z->n_seqs + 1, 4);
    csr.kv_indices = guarded(z->n_entries, 4);
    csr.last_block_len = guarded(z->n_seqs, 4);
    csr.batch_indices = guarded(z->n_tokens, 4);
    csr.positions = guarded(z->n_tokens, 4);
    csr.slot_mapping = guarded(z->n_tokens, 8);
    require(kvp_meta_fill_csr(cache, batch, &csr) == KVP_OK);
    require(csr.qo_indptr[z->n_seqs] == (int32_t)z->n_tokens);
    require(csr.kv_indptr[z->n_seqs] == (int32_t)z->n_entries);
    for (uint32_t e = 0; e < z->n_entries; e++)
        require(csr.kv_indices[e] >= 0);
    if (z->n_entries > 0) {
        csr.max_entries--;
        require(kvp_meta_fill_csr(cache, batch, &csr) == KVP_E_TOO_SMALL);
    }
    check_and_free(csr.qo_indptr, z->n_seqs + 1, 4);
    check_and_free(csr.kv_indptr, z->n_seqs + 1, 4);
    check_and_free(csr.kv_indices, z->n_entries, 4);
    check_and_free(csr.last_block_len, z->n_seqs, 4);
    check_and_free(csr.batch_indices, z->n_tokens, 4);
    check_and_free(csr.positions, z->n_tokens, 4);
    check_and_free(csr.slot_mapping, z->n_tokens, 8);
}

/* The same lists, in one buffer. */
static void check_csr_place(kvp_cache *cache, const kvp_meta_batch *batch, const kvp_meta_sizes *z)
{
    kvp_meta_csr csr = {.struct_size = sizeof csr};
    size_t n_bytes;
    require(kvp_meta_place_csr(&csr, z, NULL, 0, &n_bytes) == KVP_OK);
    uint8_t *buffer = guarded_buffer(n_bytes);
    require(kvp_meta_place_csr(&csr, z, buffer, n_bytes - 1, &n_bytes) == KVP_E_TOO_SMALL);
    require(kvp_meta_place_csr(&csr, z, buffer, n_bytes, &n_bytes) == KVP_OK);
    require(kvp_meta_fill_csr(cache, batch, &csr) == KVP_OK);
    require(csr.kv_indptr[z->n_seqs] == (int32_t)z->n_entries && buffer[n_bytes] == GUARD);
    free(buffer);
}

static void check_trtllm(kvp_cache *cache, const kvp_meta_batch *batch, const kvp_meta_sizes *z,
                         uint32_t layers_per_block)
{
    const uint32_t stride = z->max_blocks + layers_per_block % 3;
    const size_t n_offsets = (size_t)z->n_seqs * 2 * stride;
    kvp_meta_trtllm t = {
        .struct_size = sizeof t, .layers_per_block = layers_per_block, .row_stride = stride};
    t.block_offsets = guarded(n_offsets, 4);
    t.seq_lens = guarded(z->n_seqs, 4);
    const kvp_status status = kvp_meta_fill_trtllm(cache, batch, &t);
    require(status == (layers_per_block == 0 ? KVP_E_ARG : KVP_OK));
    for (size_t i = 0; status == KVP_OK && i < n_offsets; i++)
        require(t.block_offsets[i] >= -1);
    check_and_free(t.block_offsets, n_offsets, 4);
    check_and_free(t.seq_lens, z->n_seqs, 4);
}

/* What the caller says that it had may be anything. */
static void check_delta(kvp_cache *cache, const kvp_meta_batch *batch, input *in)
{
    const uint32_t n = batch->n_seqs, max = next(in);
    uint64_t had_version[MAX_SEQS + 1];
    uint32_t had_blocks[MAX_SEQS + 1];
    kvp_meta_delta d = {.struct_size = sizeof d,
                        .max_entries = max,
                        .had_version = had_version,
                        .had_blocks = had_blocks};
    for (uint32_t b = 0; b < n; b++) {
        had_version[b] = next(in);
        had_blocks[b] = next(in);
    }
    d.version = guarded(n, 8);
    d.blocks = guarded(n, 4);
    d.indptr = guarded(n + 1, 4);
    d.start = guarded(n, 4);
    d.entries = guarded(max, 4);
    const kvp_status status = kvp_meta_fill_delta(cache, batch, &d);
    if (status == KVP_OK && max > 0) {
        require(d.n_entries <= max && d.indptr[n] == (int32_t)d.n_entries);
        for (uint32_t b = 0; b < n; b++)
            require(d.start[b] + d.indptr[b + 1] - d.indptr[b] == (int32_t)d.blocks[b]);
    }
    require(status != KVP_E_TOO_SMALL || d.n_entries > max);
    check_and_free(d.version, n, 8);
    check_and_free(d.blocks, n, 4);
    check_and_free(d.indptr, n + 1, 4);
    check_and_free(d.start, n, 4);
    check_and_free(d.entries, max, 4);
}

static void check_windowed(kvp_cache *cache, const kvp_meta_batch *batch, const kvp_meta_sizes *z)
{
    kvp_meta_windowed w = {.struct_size = sizeof w};
    size_t n_bytes;
    require(kvp_meta_place_windowed(&w, z, NULL, 0, &n_bytes) == KVP_OK);
    uint8_t *buffer = guarded_buffer(n_bytes);
    require(kvp_meta_place_windowed(&w, z, buffer, n_bytes, &n_bytes) == KVP_OK);
    require(kvp_meta_fill_windowed(cache, batch, &w) == KVP_OK);
    require(w.qo_indptr[z->n_seqs] == (int32_t)z->n_tokens);
    require(w.kv_indptr[z->n_seqs] == (int32_t)z->n_kept);
    for (uint32_t e = 0; e < z->n_kept; e++)
        require(w.kv_indices[e] > 0);
    for (uint32_t b = 0; b < z->n_seqs; b++) {
        require(0 <= w.sink_len[b] && w.sink_len[b] <= w.window_offset[b]);
        require(0 <= w.key_offset[b] && (w.recent[b] > 0 || w.key_offset[b] == 0));
    }
    for (uint32_t i = 0; i < z->n_tokens; i++)
        require(0 <= w.relative[i] && w.relative[i] <= w.positions[i]);
    require(buffer[n_bytes] == GUARD);
    if (z->n_kept > 0) {
        w.max_entries--;
        require(kvp_meta_fill_windowed(cache, batch, &w) == KVP_E_TOO_SMALL);
    }
    free(buffer);
}

/* Of a mask over rows, and of one over windowed lists, the same number of bits is set. */
static uint32_t count_bits(const uint8_t *mask, int32_t n_bytes)
{
    uint32_t n = 0;
    for (int32_t i = 0; i < n_bytes; i++) {
        for (uint32_t bits = mask[i]; bits != 0; bits &= bits - 1)
            n++;
    }
    return n;
}

static uint32_t check_mask(kvp_cache *cache, const kvp_meta_batch *batch, const kvp_meta_sizes *z,
                           uint32_t mask_keys)
{
    kvp_meta_tree t = {.struct_size = sizeof t, .mask_keys = mask_keys};
    size_t n_bytes;
    require(kvp_meta_place_tree(&t, z, NULL, 0, &n_bytes) == KVP_OK);
    uint8_t *buffer = guarded_buffer(n_bytes);
    require(kvp_meta_place_tree(&t, z, buffer, n_bytes, &n_bytes) == KVP_OK);
    t.mask_keys = mask_keys;
    require(kvp_meta_fill_tree(cache, batch, &t) == KVP_OK);
    require(t.indptr[z->n_seqs] == (int32_t)z->n_nodes);
    for (uint32_t v = 0; v < z->n_nodes; v++) {
        require(-1 <= t.parent[v] && 0 <= t.depth[v] && t.depth[v] <= (int32_t)v);
        require(0 <= t.intervals[2 * v] && t.intervals[2 * v] < t.intervals[2 * v + 1]);
    }
    require(buffer[n_bytes] == GUARD);
    uint32_t n_bits = 0;
    if (t.mask != NULL) {
        require((uint64_t)t.mask_indptr[z->n_seqs] <= z->n_mask_bytes);
        n_bits = count_bits(t.mask, t.mask_indptr[z->n_seqs]);
        t.max_mask_bytes = (uint64_t)t.mask_indptr[z->n_seqs] - 1;
        require(kvp_meta_fill_tree(cache, batch, &t) == KVP_E_TOO_SMALL);
    }
    free(buffer);
    return n_bits;
}

static void check_dense(kvp_cache *cache, const kvp_meta_batch *batch, const kvp_meta_sizes *z)
{
    kvp_meta_dense dense = {.struct_size = sizeof dense};
    size_t n_bytes;
    require(kvp_meta_place_dense(&dense, z, NULL, 0, &n_bytes) == KVP_OK);
    uint8_t *buffer = guarded_buffer(n_bytes);
    require(kvp_meta_place_dense(&dense, z, buffer, n_bytes, &n_bytes) == KVP_OK);
    require(kvp_meta_fill_dense(cache, batch, &dense) == KVP_OK);
    require(dense.query_start[z->n_seqs] == (int32_t)z->n_tokens);
    require(buffer[n_bytes] == GUARD);
    free(buffer);
}

static void check_cascade(kvp_cache *cache, const kvp_meta_batch *batch, const kvp_meta_sizes *z,
                          uint32_t max_levels)
{
    kvp_meta_level levels[LEVELS];
    kvp_meta_cascade cascade = {.struct_size = sizeof cascade,
                                .max_levels = max_levels,
                                .max_entries = z->n_entries,
                                .levels = levels};
    cascade.order = guarded(z->n_seqs, 4);
    for (uint32_t l = 0; l < max_levels; l++) {
        levels[l] = (kvp_meta_level){guarded(z->n_seqs + 1, 4),
                                     guarded(z->n_seqs + 1, 4),
                                     guarded(z->n_entries, 4),
                                     guarded(z->n_seqs, 4),
                                     0,
                                     0};
    }
    require(kvp_meta_fill_cascade(cache, batch, &cascade) == KVP_OK);
    require(cascade.n_levels >= 1 && cascade.n_levels <= max_levels);
    for (uint32_t l = 0; l < max_levels; l++) {
        if (l < cascade.n_levels) {
            require(levels[l].n_groups <= z->n_seqs && levels[l].n_entries <= z->n_entries);
            require(levels[l].qo_indptr[levels[l].n_groups] == (int32_t)z->n_tokens);
        }
        check_and_free(levels[l].qo_indptr, z->n_seqs + 1, 4);
        check_and_free(levels[l].kv_indptr, z->n_seqs + 1, 4);
        check_and_free(levels[l].kv_indices, z->n_entries, 4);
        check_and_free(levels[l].last_block_len, z->n_seqs, 4);
    }
    check_and_free(cascade.order, z->n_seqs, 4);
}

static void check_batch(kvp_cache *cache, input *in, const kvp_seq *seqs, uint32_t n_seqs,
                        uint32_t n_groups)
{
    kvp_seq chosen[MAX_SEQS + 1];
    uint32_t begin[MAX_SEQS + 1], n_tokens[MAX_SEQS + 1];
    kvp_meta_batch batch = {.struct_size = sizeof batch, .seqs = chosen};
    kvp_meta_sizes sizes;
    batch.n_seqs = next(in) % (n_seqs + 2);
    batch.group = next(in) % (n_groups + 1);
    for (uint32_t b = 0; b < batch.n_seqs; b++) {
        chosen[b] = n_seqs > 0 ? seqs[(b + next(in)) % n_seqs] : (kvp_seq){next(in)};
        begin[b] = next(in) % (MAX_TOKENS + MAX_TREE);
        n_tokens[b] = next(in) % 16;
    }
    const uint32_t flags = next(in);
    batch.begin = flags & 1 ? begin : NULL;
    batch.n_tokens = flags & 2 ? n_tokens : NULL;
    if (kvp_meta_measure(cache, &batch, &sizes) == KVP_OK) {
        check_csr(cache, &batch, &sizes);
        check_csr_place(cache, &batch, &sizes);
        check_trtllm(cache, &batch, &sizes, flags >> 4);
        check_dense(cache, &batch, &sizes);
        check_windowed(cache, &batch, &sizes);
        const uint32_t n_bits = check_mask(cache, &batch, &sizes, KVP_MASK_ROWS);
        require(check_mask(cache, &batch, &sizes, KVP_MASK_WINDOWED) == n_bits);
        check_cascade(cache, &batch, &sizes, 1 + (flags >> 2) % LEVELS);
    }
    if ((flags & 3) == 3)
        check_delta(cache, &batch, in);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = {data, size, 0};
    kvp_config config;
    kvp_cache *cache;
    kvp_ns ns;
    kvp_seq seqs[MAX_SEQS];
    kvp_config_init(&config);
    config.block_tokens = 1u << next(&in) % 4;
    config.unit_tokens = next(&in) % 2 ? 1 : 0;
    config.n_blocks = 96;
    config.host_blocks = 16;
    config.max_seqs = MAX_SEQS;
    config.max_seq_tokens = MAX_TOKENS + 16;
    config.max_tree_tokens = 2 * MAX_TREE;
    config.n_groups = 1 + next(&in) % 3;
    for (uint32_t g = 0; g < config.n_groups; g++) {
        const kvp_window window = next_window(&in);
        config.groups[g] = (kvp_group){window.sink_tokens, window.recent_tokens, 0};
    }
    require(kvp_cache_create(&config, NULL, 0, &cache) == KVP_OK);
    require(kvp_ns_open(cache, "fuzz", 4, &ns) == KVP_OK);
    const uint32_t n_seqs = make_seqs(cache, ns, &in, seqs);
    while (in.at < in.size)
        check_batch(cache, &in, seqs, n_seqs, config.n_groups);
    require(kvp_cache_check(cache, 3, NULL) == KVP_OK);
    kvp_cache_destroy(cache);
    return 0;
}
