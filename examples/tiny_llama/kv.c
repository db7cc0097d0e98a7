/* kv: see kv.h. Everything that differs between layer groups is in this file.
 *
 *   layers        0      1      2          the model's; 1 has a window
 *   group         0      1      0
 *   its layer     0      0      1          in the memory of its group
 *
 * All groups take their block ids from one pool, and each memory has room for all of them. (To
 * avoid unused bytes, an engine can let its groups share tensors: memory.h, windows.h.) */
#include "kv.h"

#include <kvpager/steps.h>
#include <kvpager/windows.h>
#include <stdlib.h>
#include <string.h>

/* --------------------------------------------------------------------------------------
 * creation */

static int has_window(const struct kv *kv, uint32_t group)
{
    return kv->options.cache.groups[group].recent_tokens > 0;
}

/* The model's layers in groups. Gives: n_layers [KV_GROUPS] of each, added to zeros. */
static kvp_status make_groups(struct kv *kv, uint32_t *n_layers)
{
    const model_config *c = model_config_of(kv->model);
    kvp_config *config = &kv->options.cache;
    kv->layer_group = calloc(c->n_layers, sizeof *kv->layer_group);
    kv->layers = calloc(c->n_layers, sizeof *kv->layers);
    if (kv->layer_group == NULL || kv->layers == NULL)
        return KVP_E_NO_MEMORY;
    kv->n_groups = c->window_layers != 0 ? 2 : 1;
    config->n_groups = kv->n_groups;
    if (kv->n_groups > 1)
        config->groups[1] =
            (kvp_group){.sink_tokens = c->sink_tokens, .recent_tokens = c->recent_tokens};
    for (uint32_t i = 0; i < c->n_layers; i++) {
        kv->layer_group[i] = (uint32_t)model_has_window(c, i);
        n_layers[kv->layer_group[i]]++;
    }
    return KVP_OK;
}

static kvp_status create_memory(struct kv *kv, uint32_t group, uint32_t n_layers)
{
    const model_config *c = model_config_of(kv->model);
    struct kv_group *made = &kv->groups[group];
    kvp_layout layout;
    kvp_layout_init(&layout);
    layout.type = kv->options.type;
    layout.n_blocks = kv->options.cache.n_blocks;
    layout.block_tokens = kv->options.cache.block_tokens;
    layout.n_layers = n_layers;
    layout.n_heads = c->n_kv_heads;
    layout.k.size = layout.v.size = c->head_size;
    const int has_scales = layout.type == KVP_INT8 || layout.type == KVP_E4M3;
    kvp_status status = kvp_layout_arrange(&layout, KVP_ORDER_CPU, NULL);
    if (status == KVP_OK && has_scales)
        status = kvp_layout_add_scales(&layout, "NL2H");
    if (status == KVP_OK)
        status = kvp_memory_create(&layout, NULL, &made->memory);
    if (status != KVP_OK || kv->options.cache.host_blocks == 0)
        return status;
    layout.n_blocks = kv->options.cache.host_blocks;
    status = kvp_layout_arrange(&layout, KVP_ORDER_TENSORRT_LLM, NULL); /* any other order */
    if (status == KVP_OK && has_scales)
        status = kvp_layout_add_scales(&layout, "NL2H");
    return status == KVP_OK ? kvp_memory_create(&layout, NULL, &made->host_memory) : status;
}

/* Memories, one copier for all of them, and each layer's pointers. */
static kvp_status create_memories(struct kv *kv, const uint32_t *n_layers)
{
    kvp_memory *device[KV_GROUPS], *host[KV_GROUPS];
    uint32_t next[KV_GROUPS] = {0};
    kvp_copier_config config;
    kvp_status status = KVP_OK;
    for (uint32_t g = 0; status == KVP_OK && g < kv->n_groups; g++) {
        status = create_memory(kv, g, n_layers[g]);
        device[g] = kv->groups[g].memory;
        host[g] = kv->groups[g].host_memory;
    }
    for (uint32_t i = 0; status == KVP_OK && i < model_config_of(kv->model)->n_layers; i++) {
        const uint32_t g = kv->layer_group[i];
        status = kvp_memory_layer(kv->groups[g].memory, next[g]++, &kv->layers[i]);
    }
    if (status != KVP_OK)
        return status;
    kvp_copier_config_init(&config);
    config.n_groups = kv->n_groups;
    config.device = device;
    config.host = kv->options.cache.host_blocks > 0 ? host : NULL;
    return kvp_copier_create(&config, &kv->copier);
}

static void *allocate_aligned(size_t n_bytes, size_t align)
{
    return aligned_alloc(align, (n_bytes + align - 1) / align * align);
}

static kvp_status create_cascade(struct kv_group *group, const kvp_meta_sizes *sizes)
{
    const uint32_t B = sizes->n_seqs;
    const size_t row = 3 * (size_t)(B + 1) + sizes->n_entries; /* of a level's arrays */
    group->cascade_memory = calloc(KV_LEVELS * row + B, sizeof *group->cascade_memory);
    if (group->cascade_memory == NULL)
        return KVP_E_NO_MEMORY;
    group->cascade = (kvp_meta_cascade){.struct_size = sizeof group->cascade,
                                        .max_levels = KV_LEVELS,
                                        .max_entries = sizes->n_entries,
                                        .order = group->cascade_memory + KV_LEVELS * row,
                                        .levels = group->meta_levels};
    for (size_t i = 0; i < KV_LEVELS; i++) {
        int32_t *at = group->cascade_memory + i * row;
        group->meta_levels[i] = (kvp_meta_level){.qo_indptr = at,
                                                 .kv_indptr = at + (B + 1),
                                                 .last_block_len = at + 2 * (size_t)(B + 1),
                                                 .kv_indices = at + 3 * (size_t)(B + 1)};
    }
    return KVP_OK;
}

/* A group's arrays in one piece, as an engine would upload them. */
static kvp_status create_meta(struct kv *kv, uint32_t g, const kvp_meta_sizes *sizes)
{
    struct kv_group *group = &kv->groups[g];
    size_t n_bytes;
    group->csr = (kvp_meta_csr){.struct_size = sizeof group->csr};
    group->windowed = (kvp_meta_windowed){.struct_size = sizeof group->windowed};
    kvp_status status = has_window(kv, g)
                            ? kvp_meta_place_windowed(&group->windowed, sizes, NULL, 0, &n_bytes)
                            : kvp_meta_place_csr(&group->csr, sizes, NULL, 0, &n_bytes);
    if (status != KVP_OK)
        return status;
    group->meta_memory = allocate_aligned(n_bytes, KVP_META_ALIGN);
    if (group->meta_memory == NULL)
        return KVP_E_NO_MEMORY;
    status = has_window(kv, g)
                 ? kvp_meta_place_windowed(&group->windowed, sizes, group->meta_memory, n_bytes,
                                           &n_bytes)
                 : kvp_meta_place_csr(&group->csr, sizes, group->meta_memory, n_bytes, &n_bytes);
    return status == KVP_OK && kv->options.cascade ? create_cascade(group, sizes) : status;
}

/* Arrays of the largest step, all of them: nothing is allocated later but scratch memory. */
static kvp_status create_arrays(struct kv *kv)
{
    const kv_options *o = &kv->options;
    const uint32_t n_entries = o->max_seqs * o->cache.n_blocks;
    const kvp_meta_sizes sizes = {.n_seqs = o->max_seqs,
                                  .n_tokens = o->step_tokens,
                                  .n_entries = n_entries,
                                  .max_blocks = o->cache.n_blocks,
                                  .n_kept = n_entries,
                                  .n_nodes = o->max_seqs * o->cache.max_tree_tokens};
    kvp_status status = KVP_OK;
    size_t n_bytes;
    for (uint32_t g = 0; status == KVP_OK && g < kv->n_groups; g++)
        status = create_meta(kv, g, &sizes);
    kv->tree = (kvp_meta_tree){.struct_size = sizeof kv->tree};
    if (status == KVP_OK)
        status = kvp_meta_place_tree(&kv->tree, &sizes, NULL, 0, &n_bytes);
    if (status != KVP_OK)
        return status;
    kv->tree_memory = allocate_aligned(n_bytes, KVP_META_ALIGN);
    kv->copies = calloc(o->cache.max_copies, sizeof *kv->copies);
    if (kv->tree_memory == NULL || kv->copies == NULL)
        return KVP_E_NO_MEMORY;
    return kvp_meta_place_tree(&kv->tree, &sizes, kv->tree_memory, n_bytes, &n_bytes);
}

kvp_status kv_create(struct model *model, const kv_options *options, struct kv *kv)
{
    uint32_t n_layers[KV_GROUPS] = {0};
    *kv = (struct kv){.model = model, .options = *options};
    kvp_status status = make_groups(kv, n_layers);
    if (status == KVP_OK)
        status = kvp_cache_create(&kv->options.cache, NULL, 0, &kv->cache);
    if (status == KVP_OK)
        status = kvp_cache_config_get(kv->cache, &kv->options.cache);
    if (status == KVP_OK)
        status = kvp_ns_open(kv->cache, "tiny", 4, &kv->ns);
    if (status == KVP_OK)
        status = create_memories(kv, n_layers);
    return status == KVP_OK ? create_arrays(kv) : status;
}

void kv_destroy(struct kv *kv)
{
    kvp_cache_destroy(kv->cache);
    kvp_copier_destroy(kv->copier);
    for (uint32_t g = 0; g < KV_GROUPS; g++) {
        kvp_memory_destroy(kv->groups[g].memory);
        kvp_memory_destroy(kv->groups[g].host_memory);
        free(kv->groups[g].meta_memory);
        free(kv->groups[g].cascade_memory);
    }
    free(kv->layer_group);
    free(kv->layers);
    free(kv->copies);
    free(kv->tree_memory);
    free(kv->scratch);
}

/* ---------------------------------------------------------------------------------------- a
 * step */

kvp_status kv_run_plan(struct kv *kv, uint64_t *out_step)
{
    const uint32_t capacity = kv->options.cache.max_copies;
    uint32_t n;
    const kvp_status status = kv->options.cache.steps == KVP_STEPS_OVERLAPPED
                                  ? kvp_step_begin(kv->cache, kv->copies, capacity, &n, out_step)
                                  : kvp_plan_take(kv->cache, kv->copies, capacity, &n);
    if (status != KVP_OK)
        return status;
    kv->n_copied += n;
    return kvp_copier_run(kv->copier, kv->copies, n, NULL);
}

static kvp_status describe_full(struct kv *kv, const kvp_meta_batch *batch)
{
    struct kv_group *group = &kv->groups[batch->group];
    const kvp_meta_csr *csr = &group->csr;
    group->query_start = csr->qo_indptr;
    group->positions = csr->positions;
    group->slots = csr->slot_mapping;
    group->levels[0] = (kvp_attention_level){.n_rows = batch->n_seqs,
                                             .n_blocks = csr->max_entries,
                                             .blocks = csr->kv_indices,
                                             .row_start = csr->kv_indptr,
                                             .last_len = csr->last_block_len};
    return kvp_meta_fill_csr(kv->cache, batch, csr);
}

/* The lists are without what the window has left behind; where the gap is goes along. */
static kvp_status describe_windowed(struct kv *kv, const kvp_meta_batch *batch)
{
    struct kv_group *group = &kv->groups[batch->group];
    const kvp_meta_windowed *windowed = &group->windowed;
    group->query_start = windowed->qo_indptr;
    group->positions = windowed->positions;
    group->slots = windowed->slot_mapping;
    group->levels[0] = (kvp_attention_level){.n_rows = batch->n_seqs,
                                             .n_blocks = windowed->max_entries,
                                             .blocks = windowed->kv_indices,
                                             .row_start = windowed->kv_indptr,
                                             .last_len = windowed->last_block_len};
    group->window = (kvp_attention_window){.sinks = windowed->sinks,
                                           .recent = windowed->recent,
                                           .sink_len = windowed->sink_len,
                                           .window_offset = windowed->window_offset,
                                           .key_offset = windowed->key_offset};
    return kvp_meta_fill_windowed(kv->cache, batch, windowed);
}

/* In place of the lists. Whole rows are in them, with null blocks that the window hides. */
static kvp_status describe_cascade(struct kv *kv, const kvp_meta_batch *batch)
{
    struct kv_group *group = &kv->groups[batch->group];
    const kvp_group window = kv->options.cache.groups[batch->group];
    const kvp_status status = kvp_meta_fill_cascade(kv->cache, batch, &group->cascade);
    if (status != KVP_OK)
        return status;
    group->order = group->cascade.order;
    group->n_levels = group->cascade.n_levels;
    group->window = (kvp_attention_window){.sink_tokens = window.sink_tokens,
                                           .recent_tokens = window.recent_tokens};
    for (uint32_t i = 0; i < group->n_levels; i++) {
        const kvp_meta_level *level = &group->meta_levels[i];
        group->levels[i] = (kvp_attention_level){.n_rows = level->n_groups,
                                                 .n_blocks = level->n_entries,
                                                 .blocks = level->kv_indices,
                                                 .row_start = level->kv_indptr,
                                                 .last_len = level->last_block_len,
                                                 .query_start = level->qo_indptr};
    }
    return KVP_OK;
}

kvp_status kv_describe(struct kv *kv, const kvp_meta_batch *batch)
{
    kvp_meta_batch of_group = *batch;
    kvp_status status = kvp_meta_fill_tree(kv->cache, batch, &kv->tree);
    for (uint32_t g = 0; status == KVP_OK && g < kv->n_groups; g++) {
        of_group.group = g;
        kv->groups[g].n_levels = 1;
        status =
            has_window(kv, g) ? describe_windowed(kv, &of_group) : describe_full(kv, &of_group);
        if (status == KVP_OK && kv->options.cascade)
            status = describe_cascade(kv, &of_group);
    }
    if (status != KVP_OK)
        return status;
    kv->n_seqs = batch->n_seqs;
    kv->n_nodes = (uint32_t)kv->tree.indptr[batch->n_seqs];
    return KVP_OK;
}

/* -------------------------------------------------------------------------------------
 * attention */

static kvp_status grow_scratch(struct kv *kv, size_t n_bytes)
{
    if (n_bytes <= kv->scratch_bytes)
        return KVP_OK;
    free(kv->scratch);
    kv->scratch = allocate_aligned(n_bytes, KVP_SCRATCH_ALIGN);
    kv->scratch_bytes = kv->scratch != NULL ? n_bytes : 0;
    return kv->scratch != NULL ? KVP_OK : KVP_E_NO_MEMORY;
}

static kvp_rope rope_of(const struct kv *kv)
{
    kvp_rope rope;
    kvp_rope_init(&rope);
    rope.mode = kv->options.rope_mode;
    rope.theta = model_config_of(kv->model)->theta;
    return rope;
}

static kvp_status append(struct kv *kv, const model_attention *a)
{
    const struct kv_group *group = &kv->groups[kv->layer_group[a->layer]];
    kvp_append append;
    size_t n_bytes;
    kvp_append_init(&append);
    append.impl = kv->options.impl;
    append.layer = &kv->layers[a->layer];
    append.n_tokens = a->n_tokens;
    append.slots = group->slots;
    append.positions = group->positions;
    append.k.data = a->k;
    append.v.data = a->v;
    append.rope = rope_of(kv);
    kvp_status status = kvp_append_bytes(&append, &n_bytes);
    if (status == KVP_OK)
        status = grow_scratch(kv, n_bytes);
    return status == KVP_OK ? kvp_append_run(&append, kv->scratch, kv->scratch_bytes) : status;
}

/* What model_run calls for each layer. */
int kv_attend(void *context, const model_attention *a)
{
    struct kv *kv = context;
    const struct kv_group *group = &kv->groups[kv->layer_group[a->layer]];
    kvp_attention attention;
    size_t n_bytes;
    kvp_attention_init(&attention);
    attention.impl = kv->options.impl;
    attention.layer = &kv->layers[a->layer];
    attention.n_seqs = kv->n_seqs;
    attention.n_tokens = a->n_tokens;
    attention.n_heads = model_config_of(kv->model)->n_heads;
    attention.query_start = group->query_start;
    attention.n_levels = group->n_levels;
    attention.levels = group->levels;
    attention.order = group->order;
    attention.window = group->window;
    if (kv->n_nodes > 0)
        attention.tree = (kvp_attention_tree){
            .start = kv->tree.indptr, .intervals = kv->tree.intervals, .n_tokens = kv->n_nodes};
    attention.q.data = a->q;
    attention.out.data = a->out;
    attention.rope = rope_of(kv);
    attention.positions = group->positions;
    kvp_status status = append(kv, a);
    if (status == KVP_OK)
        status = kvp_attention_bytes(&attention, &n_bytes);
    if (status == KVP_OK)
        status = grow_scratch(kv, n_bytes);
    return status == KVP_OK ? kvp_attention_run(&attention, kv->scratch, kv->scratch_bytes)
                            : status;
}
