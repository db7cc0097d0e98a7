/* chains: see chains.h. A sequence that decodes, with three drafts of which two are right:
 *
 *     token of the pass     t     d0    d1    d2
 *     state after it in     w0    w1    w2    w3      kvp_meta_state_rings
 *     drawn after it        d0    d1    x     .
 *
 * Three tokens are known then: d0, d1 and x. The state after d1, in w2, is the sequence's. x is the
 * token of the next pass. */
#include "chains.h"

#include <kvpager/states.h>
#include <kvpager/steps.h>
#include <stdlib.h>
#include <string.h>

#include "draft.h"
#include "kv.h"
#include "states.h"

enum { MAX_RUNNING = 8, MAX_SAMPLED = 256, MAX_TOKENS = 128 };

struct chains {
    struct kv kv;
    const chains_options *options;
    const struct generation *known;
    struct states states;
    kvp_sched *sched;
    uint64_t n_right; /* tokens */
    uint64_t step;    /* of the cache, with overlapped steps */
    /* the pass */
    kvp_seq seqs[MAX_RUNNING];
    uint32_t begin[MAX_RUNNING], n_tokens[MAX_RUNNING]; /* drafts included */
    int32_t read[MAX_RUNNING], write[MAX_RUNNING][KVP_STATE_RING_MAX];
    uint32_t n_written[MAX_RUNNING];
    int32_t *tokens; /* [max_tokens] */
    uint32_t *rows;  /* [max_tokens] */
    uint32_t n_rows;
    float *logits; /* [max_tokens, V] */
    /* what it gives */
    uint32_t counts[MAX_RUNNING];
    int32_t sampled[MAX_SAMPLED];
};

chains_options chains_default_options(void)
{
    return (chains_options){.block_tokens = 4,
                            .n_blocks = 512,
                            .state_slots = 64,
                            .max_running = MAX_RUNNING,
                            .draft_tokens = 4,
                            .times = 1};
}

/* -------------------------------------------------------------------------------------
 * the forward pass */

static uint32_t vocabulary_of(const struct chains *c)
{
    return model_config_of(c->kv.model)->vocabulary;
}

static const struct generation *known_of(const struct chains *c, kvp_request request)
{
    kvp_request_info info;
    const kvp_status status = kvp_request_info_get(c->sched, request, &info);
    return status == KVP_OK ? &c->known[info.tag] : NULL;
}

static uint32_t drafts_of(const kvp_step *step, uint32_t i)
{
    return i < step->n_decoding ? step->drafts[i] : 0;
}

/* Each sequence's tokens, then its drafts. Returns how many there are in all. */
static uint32_t lay_out(struct chains *c, const kvp_step *step)
{
    const int32_t *input = step->tokens;
    uint32_t n = 0;
    c->n_rows = 0;
    for (uint32_t i = 0; i < step->n_seqs; i++) {
        const kvp_step_seq *item = &step->seqs[i];
        const uint32_t n_drafts = drafts_of(step, i);
        memcpy(c->tokens + n, input, item->n_tokens * sizeof *input);
        input += item->n_tokens;
        n += item->n_tokens;
        draft_propose_chain(known_of(c, item->request), item->sample, item->begin + item->n_tokens,
                            n_drafts, vocabulary_of(c), c->tokens + n);
        for (uint32_t j = 0; item->n_sampled > 0 && j <= n_drafts; j++)
            c->rows[c->n_rows++] = n - 1 + j;
        n += n_drafts;
        c->seqs[i] = item->seq;
        c->begin[i] = item->begin;
        c->n_tokens[i] = item->n_tokens + n_drafts;
    }
    return n;
}

/* The last n_written tokens of a sequence leave a state each. */
static int attend(void *context, const model_attention *a)
{
    const struct chains *c = context;
    if (a->gates == NULL)
        return kv_attend(&((struct chains *)context)->kv, a);
    uint32_t from = 0, end = 0;
    for (uint32_t i = 0; i < c->kv.n_seqs; i++) {
        const float *read = states_at(&c->states, c->read[i], a->layer);
        end += c->n_tokens[i];
        for (uint32_t j = 0; j < c->n_written[i]; j++) {
            float *write = states_at(&c->states, c->write[i][j], a->layer);
            const uint32_t to = end - (c->n_written[i] - 1 - j);
            model_recur(model_config_of(c->kv.model), a, from, to, read, write);
            read = write;
            from = to;
        }
    }
    return 0;
}

static kvp_status forward(struct chains *c, const kvp_step *step)
{
    const model_step pass = {.tokens = c->tokens,
                             .n_tokens = lay_out(c, step),
                             .n_rows = c->n_rows,
                             .rows = c->rows,
                             .attend = attend,
                             .context = c};
    const kvp_meta_batch batch = {.struct_size = sizeof batch,
                                  .n_seqs = step->n_seqs,
                                  .seqs = c->seqs,
                                  .begin = c->begin,
                                  .n_tokens = c->n_tokens};
    kvp_status status = kv_describe(&c->kv, &batch);
    if (status == KVP_OK)
        status = kvp_meta_state_rings(c->kv.cache, c->seqs, step->n_seqs, KVP_STATE_RING_MAX,
                                      c->read, c->n_written, c->write[0]);
    return status == KVP_OK ? (kvp_status)model_run(c->kv.model, &pass, c->logits) : status;
}

/* -------------------------------------------------------------------------------------
 * after the pass */

static int32_t draw(const struct chains *c, const kvp_step_seq *item, uint32_t row, uint32_t sample,
                    uint32_t n_accepted)
{
    const float *logits = c->logits + (size_t)row * vocabulary_of(c);
    return generation_draw(c->kv.model, known_of(c, item->request), logits, sample,
                           item->begin + item->n_tokens + n_accepted);
}

/* Tokens that become known of each sequence that decodes: those that the draft got right and one
 * more, but as many for all samples of a request. */
static void count_accepted(struct chains *c, const kvp_step *step)
{
    for (uint32_t i = 0, row = 0; i < step->n_decoding; row += 1 + step->drafts[i], i++) {
        const kvp_step_seq *item = &step->seqs[i];
        uint32_t n = 1;
        while (n <= step->drafts[i] &&
               draw(c, item, row + n - 1, item->sample, n - 1) == c->tokens[c->rows[row + n]])
            n++;
        c->counts[i] = n;
    }
    for (uint32_t i = 0; i < step->n_decoding; i++)
        for (uint32_t j = 0; j < step->n_decoding; j++)
            if (step->seqs[i].request.bits == step->seqs[j].request.bits &&
                c->counts[j] < c->counts[i])
                c->counts[i] = c->counts[j];
}

static int is_right(const struct chains *c, const kvp_step_seq *item, uint32_t sample,
                    uint32_t n_accepted, int32_t token)
{
    const struct generation *g = known_of(c, item->request);
    if (g == NULL)
        return 0;
    const uint32_t at = item->begin + item->n_tokens + n_accepted - g->n_prompt;
    return token == g->out[(size_t)sample * g->n_new + at];
}

/* Of a sequence that decodes, its tokens; of one at the end of its prompt, one for each sample. */
static void sample(struct chains *c, const kvp_step *step)
{
    uint32_t n = 0;
    for (uint32_t i = 0, row = 0; i < step->n_seqs; i++) {
        const kvp_step_seq *item = &step->seqs[i];
        const uint32_t n_known = i < step->n_decoding ? c->counts[i] : 1;
        for (uint32_t s = 0; s < item->n_sampled; s++)
            for (uint32_t j = 0; j < n_known; j++) {
                const uint32_t number = item->n_sampled > 1 ? s : item->sample;
                c->sampled[n] = draw(c, item, row + j, number, j);
                c->n_right += (uint64_t)is_right(c, item, number, j, c->sampled[n]);
                n++;
            }
        row += item->n_sampled > 0 ? 1 + drafts_of(step, i) : 0;
    }
}

static kvp_status lose_step(struct chains *c, const kvp_step *step)
{
    for (uint32_t i = 0; i < step->n_seqs; i++)
        for (uint32_t j = 0; j < c->n_written[i]; j++)
            states_spoil(&c->states, c->write[i][j]);
    const kvp_status status =
        c->options->overlapped ? kvp_step_failed(c->kv.cache, c->step, NULL, 0, NULL) : KVP_OK;
    return status == KVP_OK ? kvp_sched_fail(c->sched) : status;
}

static kvp_status end_step(const struct chains *c)
{
    return c->options->overlapped ? kvp_step_done(c->kv.cache, c->step, NULL) : KVP_OK;
}

static kvp_status run_step(struct chains *c, const kvp_step *step)
{
    const uint64_t number = step->number;
    kvp_status status = forward(c, step);
    if (status != KVP_OK)
        return status;
    if (c->options->lose_steps && number > 1 && (number & (number - 1)) == 0)
        return lose_step(c, step);
    count_accepted(c, step);
    sample(c, step);
    status = end_step(c);
    return status == KVP_OK ? kvp_sched_finish_drafts(c->sched, c->sampled, c->counts, NULL, NULL)
                            : status;
}

/* -------------------------------------------------------------------------------------
 * all of them */

static kvp_status submit(struct chains *c, uint32_t i)
{
    const struct generation *g = &c->known[i];
    const kvp_prompt prompt = {
        .struct_size = sizeof prompt, .tokens = g->prompt, .n_tokens = g->n_prompt, .tag = i};
    const kvp_submission submission = {.struct_size = sizeof submission,
                                       .prompt = &prompt,
                                       .ns = c->kv.ns,
                                       .n_samples = g->n_samples,
                                       .max_new_tokens = g->n_new};
    kvp_request request;
    return kvp_sched_submit(c->sched, &submission, &request, NULL);
}

static int is_idle(const struct chains *c)
{
    kvp_sched_stats stats;
    return kvp_sched_stats_get(c->sched, &stats) != KVP_OK ||
           stats.waiting_requests + stats.running_requests == 0;
}

static kvp_status generate(struct chains *c, uint32_t n)
{
    kvp_status status = KVP_OK;
    for (uint32_t i = 0; status == KVP_OK && i < n; i++)
        if (!c->known[i].is_beam)
            status = submit(c, i);
    while (status == KVP_OK && !is_idle(c)) {
        kvp_step step;
        status = kvp_sched_step(c->sched, &step);
        if (status == KVP_OK)
            status = kv_run_plan(&c->kv, &c->step);
        if (status == KVP_OK)
            status = step.n_seqs > 0 ? run_step(c, &step) : end_step(c);
    }
    return status;
}

static kvp_status create_sched(struct chains *c, uint32_t step_tokens)
{
    kvp_sched_config config;
    kvp_sched_config_init(&config);
    config.step_tokens = step_tokens;
    config.chunk_tokens = c->options->chunk_tokens;
    config.max_running = c->options->max_running;
    config.draft_tokens = c->options->draft_tokens;
    config.state_rings = c->options->draft_tokens > 0;
    return kvp_sched_create(&config, c->kv.cache, NULL, 0, &c->sched);
}

static kvp_status create(struct chains *c, struct model *model)
{
    const model_config *m = model_config_of(model);
    const chains_options *o = c->options;
    kv_options options = {.max_seqs = o->max_running,
                          .step_tokens = m->max_tokens,
                          .rope_mode = KVP_ROPE_AT_WRITE,
                          .type = KVP_F32};
    kvp_config_init(&options.cache);
    options.cache.block_tokens = o->block_tokens;
    options.cache.n_blocks = o->n_blocks;
    options.cache.max_seqs = o->max_running;
    options.cache.max_seq_tokens = MAX_TOKENS;
    options.cache.prefix_cache = 1;
    options.cache.state_slots = o->state_slots;
    options.cache.steps = o->overlapped ? KVP_STEPS_OVERLAPPED : KVP_STEPS_ORDERED;
    if (o->max_running > MAX_RUNNING)
        return KVP_E_ARG;
    kvp_status status = kv_create(model, &options, &c->kv);
    if (status == KVP_OK)
        status = create_sched(c, m->max_tokens);
    c->tokens = calloc(m->max_tokens, sizeof *c->tokens);
    c->rows = calloc(m->max_tokens, sizeof *c->rows);
    c->logits = calloc((size_t)m->max_tokens * m->vocabulary, sizeof *c->logits);
    if (status == KVP_OK && (states_create(model, o->state_slots, &c->states) ||
                             c->tokens == NULL || c->rows == NULL || c->logits == NULL))
        return KVP_E_NO_MEMORY;
    return status;
}

static kvp_status run_all(struct chains *c, uint32_t n, chains_counts *out_counts)
{
    uint64_t n_tokens = 0;
    kvp_state_stats stats;
    kvp_status status = KVP_OK;
    for (uint32_t i = 0; i < n; i++)
        n_tokens += c->known[i].is_beam ? 0 : (uint64_t)c->known[i].n_samples * c->known[i].n_new;
    for (uint32_t i = 0; status == KVP_OK && i < c->options->times; i++)
        status = generate(c, n);
    if (status == KVP_OK)
        status = kvp_sched_stats_get(c->sched, &out_counts->sched);
    if (status == KVP_OK)
        status = kvp_cache_state_stats_get(c->kv.cache, &stats);
    if (status == KVP_OK) {
        out_counts->hits = stats.hits;
        out_counts->missing = n_tokens * c->options->times - c->n_right;
    }
    return status;
}

kvp_status chains_run(struct model *model, const chains_options *options,
                      const struct generation *known, uint32_t n, chains_counts *out_counts)
{
    struct chains *c = calloc(1, sizeof *c);
    if (c == NULL)
        return KVP_E_NO_MEMORY;
    c->options = options;
    c->known = known;
    *out_counts = (chains_counts){.missing = 0};
    kvp_status status = create(c, model);
    if (status == KVP_OK)
        status = run_all(c, n, out_counts);
    kvp_sched_destroy(c->sched);
    kv_destroy(&c->kv);
    states_destroy(&c->states);
    free(c->tokens);
    free(c->rows);
    free(c->logits);
    free(c);
    return status;
}
