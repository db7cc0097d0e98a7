/* engine: the loop of an inference engine, with all that it needs from kvpager.
 *
 *   kvp_sched_step          which sequences compute which tokens
 *   kv_run_plan             copies that their rows need first
 *   kv_describe             rows as arrays
 *   model_run               for each layer: kv_attend
 *   kvp_sched_finish        the tokens that were drawn
 */
#include "engine.h"

#include <kvpager/steps.h>
#include <stdlib.h>
#include <string.h>

#include "kv.h"

enum { MAX_SAMPLES = 8 };

/* A request under way. */
struct work {
    const struct generation *generation;
    kvp_request request;
    uint32_t n_done;            /* beams: tokens that each has */
    double scores[MAX_SAMPLES]; /* beams */
};

struct engine {
    engine_options options;
    struct kv kv;
    kvp_sched *sched;
    struct work *works; /* of the run */
    /* the step that is out */
    kvp_seq *seqs;      /* [max_running] */
    uint32_t *begin;    /* [max_running] */
    uint32_t *n_tokens; /* [max_running] */
    uint32_t *rows;     /* [max_running] tokens of the step whose logits are wanted */
    float *logits;      /* [max_running, V] */
    int32_t *sampled;   /* [max_running] */
    uint64_t step;      /* overlapped: its number */
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

static kvp_status create_kv(struct engine *engine, struct model *model)
{
    const engine_options *o = &engine->options;
    kv_options options = {.max_seqs = o->max_running,
                          .step_tokens = o->step_tokens,
                          .cascade = o->cascade,
                          .rope_mode = o->rope_mode,
                          .type = o->type,
                          .impl = o->impl};
    kvp_config *config = &options.cache;
    kvp_config_init(config);
    config->block_tokens = o->block_tokens;
    config->n_blocks = o->n_blocks;
    config->max_seqs = o->max_running + (o->host_blocks > 0 ? o->max_running : 0);
    config->max_seq_tokens = 4096;
    config->prefix_cache = o->prefix_cache;
    config->host_blocks = o->host_blocks;
    config->steps = o->overlapped ? KVP_STEPS_OVERLAPPED : KVP_STEPS_ORDERED;
    return kv_create(model, &options, &engine->kv);
}

static kvp_status create_sched(struct engine *engine)
{
    const engine_options *o = &engine->options;
    kvp_sched_config config;
    kvp_sched_config_init(&config);
    config.step_tokens = o->step_tokens;
    config.chunk_tokens = o->chunk_tokens;
    config.max_running = o->max_running;
    config.preempt = o->preempt;
    return kvp_sched_create(&config, engine->kv.cache, NULL, 0, &engine->sched);
}

static kvp_status create_arrays(struct engine *engine)
{
    const uint32_t B = engine->options.max_running;
    const size_t V = model_config_of(engine->kv.model)->vocabulary;
    engine->seqs = calloc(B, sizeof *engine->seqs);
    engine->begin = calloc(B, sizeof *engine->begin);
    engine->n_tokens = calloc(B, sizeof *engine->n_tokens);
    engine->rows = calloc(B, sizeof *engine->rows);
    engine->sampled = calloc(B, sizeof *engine->sampled);
    engine->logits = calloc(B * V, sizeof *engine->logits);
    if (engine->seqs == NULL || engine->begin == NULL || engine->n_tokens == NULL ||
        engine->rows == NULL || engine->sampled == NULL || engine->logits == NULL)
        return KVP_E_NO_MEMORY;
    return KVP_OK;
}

kvp_status engine_create(struct model *model, const engine_options *options,
                         struct engine **out_engine)
{
    struct engine *made = calloc(1, sizeof *made);
    if (made == NULL)
        return KVP_E_NO_MEMORY;
    made->options = *options;
    kvp_status status = create_kv(made, model);
    if (status == KVP_OK)
        status = create_sched(made);
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
    kv_destroy(&engine->kv);
    free(engine->seqs);
    free(engine->begin);
    free(engine->n_tokens);
    free(engine->rows);
    free(engine->sampled);
    free(engine->logits);
    free(engine);
}

engine_counts engine_counts_of(const struct engine *engine)
{
    engine_counts counts = engine->counts;
    counts.copied_blocks = engine->kv.n_copied;
    kvp_sched_stats stats;
    kvp_stats cache_stats;
    if (kvp_cache_stats_get(engine->kv.cache, &cache_stats) == KVP_OK)
        counts.dropped_blocks = cache_stats.dropped_blocks;
    if (kvp_sched_stats_get(engine->sched, &stats) == KVP_OK) {
        counts.steps = stats.steps;
        counts.computed_tokens = stats.scheduled_tokens;
        counts.cached_tokens = stats.cached_tokens;
        counts.preemptions = stats.preemptions;
        counts.swaps = stats.swapped_out;
    }
    return counts;
}

/* ---------------------------------------------------------------------------------------- a
 * step */

static kvp_status describe(struct engine *engine, const kvp_step *step)
{
    const kvp_meta_batch batch = {.struct_size = sizeof batch,
                                  .n_seqs = step->n_seqs,
                                  .seqs = engine->seqs,
                                  .begin = engine->begin,
                                  .n_tokens = engine->n_tokens};
    for (uint32_t i = 0; i < step->n_seqs; i++) {
        engine->seqs[i] = step->seqs[i].seq;
        engine->begin[i] = step->seqs[i].begin;
        engine->n_tokens[i] = step->seqs[i].n_tokens;
    }
    const kvp_status status = kv_describe(&engine->kv, &batch);
    if (status == KVP_OK && engine->kv.groups[0].n_levels > engine->counts.cascade_levels)
        engine->counts.cascade_levels = engine->kv.groups[0].n_levels;
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
                                .attend = kv_attend,
                                .context = &engine->kv};
    return (kvp_status)model_run(engine->kv.model, &forward, engine->logits);
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
        sampled[i] = generation_draw(engine->kv.model, g, logits, sample, position);
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
    const uint32_t V = model_config_of(engine->kv.model)->vocabulary;
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
    generation_choose(engine->kv.model, g, beams.logits, beams.n_rows, work->scores, parents,
                      tokens);
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
    const uint32_t V = model_config_of(engine->kv.model)->vocabulary;
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
        .ns = engine->kv.ns,
        .n_samples = generation->n_samples,
        /* beams are ended by hand: one that has ended cannot be reordered any more */
        .max_new_tokens = generation->n_new + (generation->is_beam ? 1 : 0)};
    if (generation->n_samples > MAX_SAMPLES)
        return KVP_E_ARG;
    engine->works[i] = (struct work){.generation = generation};
    return kvp_sched_submit(engine->sched, &submission, &engine->works[i].request, NULL);
}

/* A request that the cache refused has ended without its tokens. */
static kvp_status find_refused(const kvp_ended *ended, uint32_t n_ended)
{
    for (uint32_t i = 0; i < n_ended; i++) {
        if (ended[i].reason == KVP_END_REFUSED)
            return (kvp_status)ended[i].status;
    }
    return KVP_OK;
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
    kvp_step_end end = {0};
    kvp_status status = kvp_sched_finish(engine->sched, engine->sampled, NULL, &end);
    if (status == KVP_OK)
        status = find_refused(end.ended, end.n_ended);
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
                                  ? kvp_step_failed(engine->kv.cache, engine->step, NULL, 0, NULL)
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
        status = kvp_step_done(engine->kv.cache, engine->step, NULL);
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
            status = find_refused(step.ended, step.n_ended);
        if (status == KVP_OK)
            status = kv_run_plan(&engine->kv, &engine->step);
        if (status == KVP_OK && step.n_seqs > 0)
            status = run_step(engine, &step, n_works);
        else if (status == KVP_OK && engine->options.overlapped)
            status = kvp_step_done(engine->kv.cache, engine->step, NULL);
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
