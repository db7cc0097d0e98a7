/* engine: the loop that an inference engine runs, with everything of kvpager that it needs.
 *
 *   kvp_sched_step          which sequences compute which tokens
 *   kvp_plan_take           copies that their rows need first   --> kvp_copier_run
 *   kvp_meta_fill_...       rows as arrays
 *   model_run               for each layer: kvp_append_run, kvp_attention_run
 *   kvp_sched_finish        the tokens that were drawn
 */
#include "engine.h"

#include <kvpager/attention.h>
#include <kvpager/memory.h>
#include <kvpager/meta.h>
#include <kvpager/steps.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LEVELS = 8, MAX_SAMPLES = 8 };

/* A request under way. */
struct work {
    const struct generation *generation;
    kvp_request request;
    uint32_t n_done;            /* beams: tokens that each has */
    double scores[MAX_SAMPLES]; /* beams */
};

struct engine {
    struct model *model;
    engine_options options;
    kvp_cache *cache;
    kvp_sched *sched;
    kvp_memory *memory;
    kvp_memory *host_memory; /* NULL: there is no host tier */
    kvp_copier *copier;
    kvp_ns ns;
    kvp_layer *layers;  /* [L] */
    struct work *works; /* of the run */
    /* the step that is out */
    uint32_t n_seqs;
    kvp_seq *seqs;      /* [max_running] */
    uint32_t *begin;    /* [max_running] */
    uint32_t *n_tokens; /* [max_running] */
    uint32_t *rows;     /* [max_running] tokens of the step whose logits are wanted */
    float *logits;      /* [max_running, V] */
    int32_t *sampled;   /* [max_running] */
    kvp_copy *copies;   /* [n_copies] */
    uint32_t n_copies;
    uint64_t step; /* overlapped: its number */
    kvp_meta_csr csr;
    void *csr_memory;
    kvp_meta_cascade cascade;
    kvp_meta_level meta_levels[MAX_LEVELS];
    int32_t *cascade_memory;
    kvp_attn_level levels[MAX_LEVELS];
    uint32_t n_levels;
    void *scratch;
    size_t scratch_bytes;
    engine_counts counts;
};

engine_options engine_default_options(void)
{
    return (engine_options){.block_tokens = 4,
                            .n_blocks = 512,
                            .step_tokens = 64,
                            .max_running = 16,
                            .prefix_cache = 1,
                            .rope_mode = KVP_ROPE_AT_WRITE,
                            .type = KVP_F32};
}

/* --------------------------------------------------------------------------------------
 * creation */

static kvp_status create_cache(struct engine *engine)
{
    const engine_options *o = &engine->options;
    kvp_config config;
    kvp_sched_config sched_config;
    kvp_config_init(&config);
    config.block_tokens = o->block_tokens;
    config.n_blocks = o->n_blocks;
    config.max_seqs = o->max_running + (o->host_blocks > 0 ? o->max_running : 0);
    config.max_seq_tokens = 4096;
    config.prefix_cache = o->prefix_cache;
    config.host_blocks = o->host_blocks;
    config.steps = o->overlapped ? KVP_STEPS_OVERLAPPED : KVP_STEPS_ORDERED;
    kvp_sched_config_init(&sched_config);
    sched_config.step_tokens = o->step_tokens;
    sched_config.chunk_tokens = o->chunk_tokens;
    sched_config.max_running = o->max_running;
    sched_config.preempt = o->preempt;
    kvp_status status = kvp_cache_create(&config, NULL, 0, &engine->cache);
    if (status == KVP_OK)
        status = kvp_cache_config(engine->cache, &config);
    engine->n_copies = config.max_copies;
    if (status == KVP_OK)
        status = kvp_ns_open(engine->cache, "tiny", 4, &engine->ns);
    if (status == KVP_OK)
        status = kvp_sched_create(&sched_config, engine->cache, NULL, 0, &engine->sched);
    return status;
}

static kvp_status create_memory(struct engine *engine)
{
    const model_config *c = model_config_of(engine->model);
    kvp_layout layout;
    kvp_copier_config copier_config;
    kvp_layout_init(&layout);
    layout.type = engine->options.type;
    layout.n_blocks = engine->options.n_blocks;
    layout.block_tokens = engine->options.block_tokens;
    layout.n_layers = c->n_layers;
    layout.n_heads = c->n_kv_heads;
    layout.k.size = layout.v.size = c->head_size;
    kvp_status status = kvp_layout_arrange(&layout, KVP_ORDER_CPU, NULL);
    if (status == KVP_OK && (layout.type == KVP_INT8 || layout.type == KVP_E4M3))
        status = kvp_layout_add_scales(&layout, "NL2H");
    if (status == KVP_OK)
        status = kvp_memory_create(&layout, NULL, &engine->memory);
    if (status == KVP_OK && engine->options.host_blocks > 0) {
        layout.n_blocks = engine->options.host_blocks;
        status = kvp_layout_arrange(&layout, KVP_ORDER_TENSORRT_LLM, NULL); /* any other order */
        if (status == KVP_OK && (layout.type == KVP_INT8 || layout.type == KVP_E4M3))
            status = kvp_layout_add_scales(&layout, "NL2H");
        if (status == KVP_OK)
            status = kvp_memory_create(&layout, NULL, &engine->host_memory);
    }
    for (uint32_t i = 0; status == KVP_OK && i < c->n_layers; i++)
        status = kvp_memory_layer(engine->memory, i, &engine->layers[i]);
    kvp_copier_config_init(&copier_config);
    copier_config.device = &engine->memory;
    copier_config.host = engine->host_memory != NULL ? &engine->host_memory : NULL;
    return status == KVP_OK ? kvp_copier_create(&copier_config, &engine->copier) : status;
}

/* Arrays of the largest step, all of them: nothing is allocated later but scratch memory. */
static kvp_status create_arrays(struct engine *engine)
{
    const uint32_t B = engine->options.max_running;
    const kvp_meta_sizes sizes = {.n_seqs = B,
                                  .n_tokens = engine->options.step_tokens,
                                  .n_entries = B * engine->options.n_blocks,
                                  .max_blocks = engine->options.n_blocks};
    const size_t row = 3 * (size_t)(B + 1) + sizes.n_entries; /* of a level's arrays */
    size_t n_bytes;
    engine->csr.struct_size = sizeof engine->csr;
    kvp_status status = kvp_meta_place_csr(&engine->csr, &sizes, NULL, 0, &n_bytes);
    if (status != KVP_OK)
        return status;
    n_bytes = (n_bytes + KVP_META_ALIGN - 1) / KVP_META_ALIGN * KVP_META_ALIGN;
    engine->csr_memory = aligned_alloc(KVP_META_ALIGN, n_bytes);
    engine->seqs = calloc(B, sizeof *engine->seqs);
    engine->begin = calloc(B, sizeof *engine->begin);
    engine->n_tokens = calloc(B, sizeof *engine->n_tokens);
    engine->rows = calloc(B, sizeof *engine->rows);
    engine->sampled = calloc(B, sizeof *engine->sampled);
    engine->logits =
        calloc((size_t)B * model_config_of(engine->model)->vocabulary, sizeof *engine->logits);
    engine->copies = calloc(engine->n_copies, sizeof *engine->copies);
    engine->cascade_memory = calloc(MAX_LEVELS * row + B, sizeof *engine->cascade_memory);
    if (engine->csr_memory == NULL || engine->seqs == NULL || engine->begin == NULL ||
        engine->n_tokens == NULL || engine->rows == NULL || engine->sampled == NULL ||
        engine->logits == NULL || engine->copies == NULL || engine->cascade_memory == NULL)
        return KVP_E_NO_MEMORY;
    engine->cascade = (kvp_meta_cascade){.struct_size = sizeof engine->cascade,
                                         .max_levels = MAX_LEVELS,
                                         .max_entries = sizes.n_entries,
                                         .order = engine->cascade_memory + MAX_LEVELS * row,
                                         .levels = engine->meta_levels};
    for (size_t i = 0; i < MAX_LEVELS; i++) {
        int32_t *at = engine->cascade_memory + i * row;
        engine->meta_levels[i] = (kvp_meta_level){.qo_indptr = at,
                                                  .kv_indptr = at + (B + 1),
                                                  .last_block_len = at + 2 * (size_t)(B + 1),
                                                  .kv_indices = at + 3 * (size_t)(B + 1)};
    }
    return kvp_meta_place_csr(&engine->csr, &sizes, engine->csr_memory, n_bytes, &n_bytes);
}

kvp_status engine_create(struct model *model, const engine_options *options,
                         struct engine **out_engine)
{
    struct engine *made = calloc(1, sizeof *made);
    if (made == NULL)
        return KVP_E_NO_MEMORY;
    made->model = model;
    made->options = *options;
    made->layers = calloc(model_config_of(model)->n_layers, sizeof *made->layers);
    kvp_status status = made->layers != NULL ? create_cache(made) : KVP_E_NO_MEMORY;
    if (status == KVP_OK)
        status = create_memory(made);
    if (status == KVP_OK)
        status = create_arrays(made);
    if (status == KVP_OK)
        *out_engine = made;
    else
        engine_destroy(made);
    return status;
}

void engine_destroy(struct engine *engine)
{
    if (engine == NULL)
        return;
    kvp_sched_destroy(engine->sched);
    kvp_cache_destroy(engine->cache);
    kvp_copier_destroy(engine->copier);
    kvp_memory_destroy(engine->memory);
    kvp_memory_destroy(engine->host_memory);
    free(engine->layers);
    free(engine->csr_memory);
    free(engine->seqs);
    free(engine->begin);
    free(engine->n_tokens);
    free(engine->rows);
    free(engine->sampled);
    free(engine->logits);
    free(engine->copies);
    free(engine->cascade_memory);
    free(engine->scratch);
    free(engine);
}

engine_counts engine_counts_of(const struct engine *engine)
{
    engine_counts counts = engine->counts;
    kvp_sched_stats stats;
    if (kvp_sched_stats_get(engine->sched, &stats) == KVP_OK) {
        counts.steps = stats.steps;
        counts.computed_tokens = stats.scheduled_tokens;
        counts.cached_tokens = stats.cached_tokens;
        counts.preemptions = stats.preemptions;
        counts.swaps = stats.swapped_out;
    }
    return counts;
}

/* -------------------------------------------------------------------------------------
 * attention */

static kvp_status grow_scratch(struct engine *engine, size_t n_bytes)
{
    if (n_bytes <= engine->scratch_bytes)
        return KVP_OK;
    n_bytes = (n_bytes + KVP_SCRATCH_ALIGN - 1) / KVP_SCRATCH_ALIGN * KVP_SCRATCH_ALIGN;
    free(engine->scratch);
    engine->scratch = aligned_alloc(KVP_SCRATCH_ALIGN, n_bytes);
    engine->scratch_bytes = engine->scratch != NULL ? n_bytes : 0;
    return engine->scratch != NULL ? KVP_OK : KVP_E_NO_MEMORY;
}

static kvp_rope rope_of(const struct engine *engine)
{
    kvp_rope rope;
    kvp_rope_init(&rope);
    rope.mode = engine->options.rope_mode;
    rope.theta = model_config_of(engine->model)->theta;
    return rope;
}

static kvp_status append(struct engine *engine, const model_attention *a)
{
    kvp_append append;
    size_t n_bytes;
    kvp_append_init(&append);
    append.impl = engine->options.impl;
    append.layer = &engine->layers[a->layer];
    append.n_tokens = a->n_tokens;
    append.slots = engine->csr.slot_mapping;
    append.positions = engine->csr.positions;
    append.k.data = a->k;
    append.v.data = a->v;
    append.rope = rope_of(engine);
    kvp_status status = kvp_append_bytes(&append, &n_bytes);
    if (status == KVP_OK)
        status = grow_scratch(engine, n_bytes);
    return status == KVP_OK ? kvp_append_run(&append, engine->scratch, engine->scratch_bytes)
                            : status;
}

/* What model_run calls for each layer. */
static int attend(void *context, const model_attention *a)
{
    struct engine *engine = context;
    kvp_attention attention;
    size_t n_bytes;
    kvp_attention_init(&attention);
    attention.impl = engine->options.impl;
    attention.layer = &engine->layers[a->layer];
    attention.n_seqs = engine->n_seqs;
    attention.n_tokens = a->n_tokens;
    attention.n_heads = model_config_of(engine->model)->n_heads;
    attention.query_start = engine->csr.qo_indptr;
    attention.n_levels = engine->n_levels;
    attention.levels = engine->levels;
    attention.order = engine->options.cascade ? engine->cascade.order : NULL;
    attention.q.data = a->q;
    attention.out.data = a->out;
    attention.rope = rope_of(engine);
    attention.positions = engine->csr.positions;
    kvp_status status = append(engine, a);
    if (status == KVP_OK)
        status = kvp_attention_bytes(&attention, &n_bytes);
    if (status == KVP_OK)
        status = grow_scratch(engine, n_bytes);
    return status == KVP_OK ? kvp_attention_run(&attention, engine->scratch, engine->scratch_bytes)
                            : status;
}

/* ---------------------------------------------------------------------------------------- a
 * step */

/* The copies that rows need before they are used, those of swaps among them. */
static kvp_status run_plan(struct engine *engine)
{
    uint32_t n;
    const kvp_status status =
        engine->options.overlapped
            ? kvp_step_begin(engine->cache, engine->copies, engine->n_copies, &n, &engine->step)
            : kvp_plan_take(engine->cache, engine->copies, engine->n_copies, &n);
    if (status != KVP_OK)
        return status;
    engine->counts.copied_blocks += n;
    return kvp_copier_run(engine->copier, engine->copies, n, NULL);
}

/* The step's rows as arrays; from them the lists that attention reads. */
static kvp_status describe(struct engine *engine, const kvp_step *step)
{
    const kvp_meta_batch batch = {.struct_size = sizeof batch,
                                  .n_seqs = step->n_seqs,
                                  .seqs = engine->seqs,
                                  .begin = engine->begin,
                                  .n_tokens = engine->n_tokens};
    engine->n_seqs = step->n_seqs;
    for (uint32_t i = 0; i < step->n_seqs; i++) {
        engine->seqs[i] = step->seqs[i].seq;
        engine->begin[i] = step->seqs[i].begin;
        engine->n_tokens[i] = step->seqs[i].n_tokens;
    }
    kvp_status status = kvp_meta_fill_csr(engine->cache, &batch, &engine->csr);
    engine->n_levels = 1;
    engine->levels[0] = (kvp_attn_level){.n_rows = step->n_seqs,
                                         .n_blocks = engine->csr.max_entries,
                                         .blocks = engine->csr.kv_indices,
                                         .row_start = engine->csr.kv_indptr,
                                         .last_len = engine->csr.last_block_len};
    if (status != KVP_OK || !engine->options.cascade)
        return status;
    status = kvp_meta_fill_cascade(engine->cache, &batch, &engine->cascade);
    engine->n_levels = engine->cascade.n_levels;
    if (engine->n_levels > engine->counts.cascade_levels)
        engine->counts.cascade_levels = engine->n_levels;
    for (uint32_t i = 0; status == KVP_OK && i < engine->n_levels; i++) {
        const kvp_meta_level *level = &engine->meta_levels[i];
        engine->levels[i] = (kvp_attn_level){.n_rows = level->n_groups,
                                             .n_blocks = level->n_entries,
                                             .blocks = level->kv_indices,
                                             .row_start = level->kv_indptr,
                                             .last_len = level->last_block_len,
                                             .query_start = level->qo_indptr};
    }
    return status;
}

static struct work *work_of(const struct engine *engine, kvp_request request)
{
    kvp_request_info info;
    const kvp_status status = kvp_request_info_get(engine->sched, request, &info);
    return status == KVP_OK ? &engine->works[info.tag] : NULL;
}

static kvp_status run_model(struct engine *engine, const kvp_step *step)
{
    uint32_t n_rows = 0, token = 0;
    for (uint32_t i = 0; i < step->n_seqs; i++) {
        token += step->seqs[i].n_tokens;
        if (step->seqs[i].n_sampled > 0)
            engine->rows[n_rows++] = token - 1;
    }
    const model_step forward = {.tokens = step->tokens,
                                .n_tokens = step->n_tokens,
                                .n_rows = n_rows,
                                .rows = engine->rows,
                                .attend = attend,
                                .context = engine};
    return (kvp_status)model_run(engine->model, &forward, engine->logits);
}

/* --------------------------------------------------------------------------------------
 * sampling */

/* What a sequence's samples get: drawn, and noted where the caller wants it. */
static void draw(struct engine *engine, const struct work *work, const kvp_step_seq *item,
                 const float *logits, int32_t *sampled)
{
    const struct generation *g = work->generation;
    const uint32_t position = item->begin + item->n_tokens;
    for (uint32_t i = 0; i < item->n_sampled; i++) {
        const uint32_t sample = item->n_sampled > 1 ? i : item->sample;
        sampled[i] = generation_draw(engine->model, g, logits, sample, position);
        g->out[(size_t)sample * g->n_new + position - g->n_prompt] = sampled[i];
    }
}

/* The beams of a request that computed in this step: their logits, by sample. */
struct beams {
    const float *logits[MAX_SAMPLES];
    uint32_t n_rows;
};

static struct beams find_beams(const struct engine *engine, const kvp_step *step,
                               const struct work *work)
{
    const uint32_t V = model_config_of(engine->model)->vocabulary;
    struct beams beams = {.n_rows = 0};
    uint32_t row = 0;
    for (uint32_t i = 0; i < step->n_seqs; i++) {
        const kvp_step_seq *item = &step->seqs[i];
        if (item->n_sampled > 0 && item->request.bits == work->request.bits) {
            beams.logits[item->sample] = engine->logits + (size_t)row * V;
            beams.n_rows++;
        }
        row += item->n_sampled > 0;
    }
    return beams;
}

/* Tokens so far follow their beams. */
static kvp_status reorder_out(struct work *work, const uint32_t *parents, const int32_t *tokens)
{
    const struct generation *g = work->generation;
    const size_t n = (size_t)g->n_samples * g->n_new;
    int32_t *before = malloc(n * sizeof *before);
    if (before == NULL)
        return KVP_E_NO_MEMORY;
    memcpy(before, g->out, n * sizeof *before);
    for (uint32_t i = 0; i < g->n_samples; i++) {
        int32_t *out = g->out + (size_t)i * g->n_new;
        memcpy(out, before + (size_t)parents[i] * g->n_new, work->n_done * sizeof *out);
        out[work->n_done] = tokens[i];
    }
    work->n_done++;
    free(before);
    return KVP_OK;
}

/* After the finish: the survivors, by fork and close; after the last token, the end. */
static kvp_status move_beams(struct engine *engine, const kvp_step *step, struct work *work)
{
    const struct generation *g = work->generation;
    uint32_t parents[MAX_SAMPLES];
    int32_t tokens[MAX_SAMPLES];
    const struct beams beams = find_beams(engine, step, work);
    if (beams.n_rows == 0)
        return KVP_OK; /* in the middle of its prompt */
    if (beams.n_rows != (work->n_done == 0 ? 1 : g->n_samples))
        return KVP_E_CORRUPT; /* samples of a request advance together: sched.h */
    generation_choose(engine->model, g, beams.logits, beams.n_rows, work->scores, parents, tokens);
    const kvp_status status = reorder_out(work, parents, tokens);
    if (status != KVP_OK)
        return status;
    if (work->n_done == g->n_new)
        return kvp_sched_abort(engine->sched, work->request);
    return kvp_sched_reorder(engine->sched, work->request, parents, tokens);
}

/* Draw for everybody. For beams any token will do: the reorder gives them theirs. */
static kvp_status sample(struct engine *engine, const kvp_step *step)
{
    const uint32_t V = model_config_of(engine->model)->vocabulary;
    int32_t *sampled = engine->sampled;
    uint32_t row = 0;
    for (uint32_t i = 0; i < step->n_seqs; i++) {
        const kvp_step_seq *item = &step->seqs[i];
        const struct work *work = work_of(engine, item->request);
        if (work == NULL)
            return KVP_E_HANDLE;
        if (work->generation->is_beam)
            memset(sampled, 0, item->n_sampled * sizeof *sampled);
        else
            draw(engine, work, item, engine->logits + (size_t)row * V, sampled);
        sampled += item->n_sampled;
        row += item->n_sampled > 0;
    }
    return KVP_OK;
}

/* -------------------------------------------------------------------------------------------
 * run */

static kvp_status submit(struct engine *engine, uint32_t i, const struct generation *generation)
{
    const kvp_prompt prompt = {.struct_size = sizeof prompt,
                               .tokens = generation->prompt,
                               .n_tokens = generation->n_prompt,
                               .tag = i};
    const kvp_submission submission = {
        .struct_size = sizeof submission,
        .prompt = &prompt,
        .ns = engine->ns,
        .n_samples = generation->n_samples,
        /* beams are ended by hand: one that has ended cannot be reordered any more */
        .max_new_tokens = generation->n_new + (generation->is_beam ? 1 : 0)};
    if (generation->n_samples > MAX_SAMPLES)
        return KVP_E_ARG;
    engine->works[i] = (struct work){.generation = generation};
    return kvp_sched_submit(engine->sched, &submission, &engine->works[i].request, NULL);
}

static kvp_status finish(struct engine *engine, const kvp_step *step, uint32_t n_works)
{
    /* seqs are the scheduler's, and gone after the finish; beams are asked for them once more */
    kvp_step_seq *seqs = malloc(step->n_seqs * sizeof *seqs);
    if (seqs == NULL)
        return KVP_E_NO_MEMORY;
    memcpy(seqs, step->seqs, step->n_seqs * sizeof *seqs);
    kvp_step copy = *step;
    copy.seqs = seqs;
    kvp_status status = kvp_sched_finish(engine->sched, engine->sampled, NULL, NULL);
    for (uint32_t i = 0; i < n_works && status == KVP_OK; i++) {
        if (engine->works[i].generation->is_beam)
            status = move_beams(engine, &copy, &engine->works[i]);
    }
    free(seqs);
    return status;
}

/* The forward pass of a step is lost: nothing of it counts. (Its plan has run.) */
static kvp_status lose_step(struct engine *engine)
{
    engine->counts.failed_steps++;
    const kvp_status status = engine->options.overlapped
                                  ? kvp_step_failed(engine->cache, engine->step, NULL, 0, NULL)
                                  : KVP_OK;
    return status == KVP_OK ? kvp_sched_fail(engine->sched) : status;
}

static kvp_status run_step(struct engine *engine, const kvp_step *step, uint32_t n_works)
{
    if (engine->options.lose_steps && (step->number & (step->number - 1)) == 0 && step->number > 1)
        return lose_step(engine);
    kvp_status status = describe(engine, step);
    if (status == KVP_OK)
        status = run_model(engine, step);
    if (status == KVP_OK)
        status = sample(engine, step);
    if (status == KVP_OK && engine->options.overlapped)
        status = kvp_step_done(engine->cache, engine->step, NULL);
    return status == KVP_OK ? finish(engine, step, n_works) : status;
}

static int is_idle(const struct engine *engine)
{
    kvp_sched_stats stats;
    return kvp_sched_stats_get(engine->sched, &stats) != KVP_OK ||
           stats.waiting_requests + stats.running_requests + stats.swapped_requests == 0;
}

/* Until all have ended. A step may compute nothing, and still have a plan: who was swapped in waits
 * for a chunk, say. */
static kvp_status run_steps(struct engine *engine, uint32_t n_works)
{
    while (!is_idle(engine)) {
        kvp_step step;
        kvp_status status = kvp_sched_step(engine->sched, &step);
        if (status == KVP_OK)
            status = run_plan(engine);
        if (status == KVP_OK && step.n_seqs > 0)
            status = run_step(engine, &step, n_works);
        else if (status == KVP_OK && engine->options.overlapped)
            status = kvp_step_done(engine->cache, engine->step, NULL);
        if (status != KVP_OK)
            return status;
    }
    return KVP_OK;
}

kvp_status engine_run(struct engine *engine, const struct generation *generations,
                      uint32_t n_generations)
{
    kvp_status status = KVP_OK;
    engine->works = calloc(n_generations, sizeof *engine->works);
    if (engine->works == NULL)
        return KVP_E_NO_MEMORY;
    for (uint32_t i = 0; i < n_generations && status == KVP_OK; i++)
        status = submit(engine, i, &generations[i]);
    if (status == KVP_OK)
        status = run_steps(engine, n_generations);
    free(engine->works);
    engine->works = NULL;
    return status;
}
