/* recurrent: see recurrent.h.
 *
 *   tokens    | computed          | of the step |            |
 *             0                computed   + n_step       n_tokens (prompt, and what was drawn) */
#include "recurrent.h"

#include <kvpager/states.h>
#include <stdlib.h>
#include <string.h>

#include "kv.h"
#include "states.h"

enum { MAX_STREAMS = 16, MAX_TOKENS = 128 };

/* One sequence of a generation. */
struct stream {
    const struct generation *known;
    uint32_t sample;
    uint32_t order;      /* in which they began */
    uint32_t is_waiting; /* 1: it has no sequence */
    uint32_t was_rolled_back;
    kvp_seq seq;
    int32_t tokens[MAX_TOKENS];
    uint32_t n_tokens;
    uint32_t n_slots;  /* tokens that the sequence has */
    uint32_t computed; /* tokens */
    uint32_t n_step;   /* of them in the step */
    uint32_t ends[2];  /* of chunks, where the state is kept */
};

struct recurrent {
    struct kv kv;
    const recurrent_options *options;
    struct stream streams[MAX_STREAMS];
    uint32_t n_streams;
    struct states states;
    float *logits;   /* [MAX_STREAMS, V] */
    int32_t *tokens; /* of the step */
    /* the batch */
    struct stream *members[MAX_STREAMS];
    kvp_seq seqs[MAX_STREAMS];
    uint32_t begin[MAX_STREAMS], n_tokens[MAX_STREAMS], rows[MAX_STREAMS];
    int32_t read[MAX_STREAMS], write[MAX_STREAMS];
    uint32_t n_members;
    recurrent_counts counts;
};

recurrent_options recurrent_default_options(void)
{
    return (recurrent_options){.block_tokens = 4,
                               .n_blocks = 512,
                               .state_slots = 64,
                               .max_running = MAX_STREAMS,
                               .prefix_cache = 1,
                               .fork = 1,
                               .times = 1};
}

/* -------------------------------------------------------------------------------------
 * the forward pass */

static int attend(void *context, const model_attention *a)
{
    struct recurrent *r = context;
    const model_config *c = model_config_of(r->kv.model);
    if (a->gates == NULL)
        return kv_attend(&r->kv, a);
    for (uint32_t i = 0, at = 0; i < r->n_members; at += r->n_tokens[i], i++)
        model_recur(c, a, at, at + r->n_tokens[i], states_at(&r->states, r->read[i], a->layer),
                    states_at(&r->states, r->write[i], a->layer));
    return 0;
}

static kvp_status forward(struct recurrent *r)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n_members; i++) {
        memcpy(r->tokens + n, r->members[i]->tokens + r->begin[i],
               r->n_tokens[i] * sizeof *r->tokens);
        n += r->n_tokens[i];
        r->rows[i] = n - 1;
    }
    const kvp_meta_batch batch = {.struct_size = sizeof batch,
                                  .n_seqs = r->n_members,
                                  .seqs = r->seqs,
                                  .begin = r->begin,
                                  .n_tokens = r->n_tokens};
    const model_step step = {.tokens = r->tokens,
                             .n_tokens = n,
                             .n_rows = r->n_members,
                             .rows = r->rows,
                             .attend = attend,
                             .context = r};
    kvp_status status = kv_run_plan(&r->kv, NULL);
    if (status == KVP_OK)
        status = kv_describe(&r->kv, &batch);
    if (status == KVP_OK)
        status = kvp_meta_states(r->kv.cache, r->seqs, r->n_members, r->read, r->write);
    r->counts.computed_tokens += n;
    return status == KVP_OK ? (kvp_status)model_run(r->kv.model, &step, r->logits) : status;
}

/* -------------------------------------------------------------------------------------
 * sequences */

static kvp_status wait_again(struct recurrent *r, struct stream *stream)
{
    stream->is_waiting = 1;
    return kvp_seq_close(r->kv.cache, stream->seq, NULL);
}

/* KVP_E_NO_BLOCKS: it still waits. */
static kvp_status open_stream(struct recurrent *r, struct stream *stream)
{
    kvp_open_info info;
    kvp_state_info state;
    const kvp_prompt prompt = {
        .struct_size = sizeof prompt, .tokens = stream->tokens, .n_tokens = stream->n_tokens};
    kvp_status status = kvp_seq_open(r->kv.cache, r->kv.ns, &prompt, &stream->seq, &info);
    if (status == KVP_OK)
        status = kvp_seq_state_get(r->kv.cache, stream->seq, &state);
    if (status != KVP_OK)
        return status;
    stream->is_waiting = 0;
    stream->n_slots = stream->n_tokens;
    stream->computed = info.cached_tokens;
    stream->ends[0] = state.branch_end;
    stream->ends[1] = state.prompt_end;
    r->counts.cached_tokens += info.cached_tokens;
    return KVP_OK;
}

static uint32_t count_running(const struct recurrent *r)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n_streams; i++)
        n += !r->streams[i].is_waiting;
    return n;
}

/* Open those that wait, the first ones first, as long as they fit. */
static kvp_status admit(struct recurrent *r)
{
    for (uint32_t i = 0; i < r->n_streams && count_running(r) < r->options->max_running; i++) {
        struct stream *stream = &r->streams[i];
        const kvp_status status = stream->is_waiting ? open_stream(r, stream) : KVP_OK;
        if (status == KVP_E_NO_BLOCKS)
            return count_running(r) > 0 ? KVP_OK : KVP_E_NEVER;
        if (status != KVP_OK)
            return status;
    }
    return KVP_OK;
}

static struct stream *last_running(struct recurrent *r)
{
    struct stream *last = NULL;
    for (uint32_t i = 0; i < r->n_streams; i++)
        if (!r->streams[i].is_waiting && (last == NULL || r->streams[i].order > last->order))
            last = &r->streams[i];
    return last;
}

/* Slots for its tokens, and one for its state. May preempt others, or the stream itself. */
static kvp_status make_room(struct recurrent *r, struct stream *stream)
{
    kvp_status status = KVP_E_NO_BLOCKS;
    while (!stream->is_waiting && status == KVP_E_NO_BLOCKS) {
        const uint32_t n = stream->n_tokens - stream->n_slots;
        status = kvp_seq_extend(r->kv.cache, stream->seq, stream->tokens + stream->n_slots, n, 0);
        if (status == KVP_OK)
            stream->n_slots = stream->n_tokens;
        if (status != KVP_E_NO_BLOCKS)
            break;
        struct stream *last = last_running(r);
        if (last == NULL || count_running(r) == 1)
            return KVP_E_NEVER;
        r->counts.preemptions++;
        status = wait_again(r, last);
        if (status == KVP_OK)
            status = KVP_E_NO_BLOCKS;
    }
    return stream->is_waiting ? KVP_OK : status;
}

/* A chunk ends where a state is to be kept. */
static uint32_t step_tokens(const struct recurrent *r, const struct stream *stream)
{
    uint32_t end = stream->n_tokens;
    for (uint32_t i = 0; i < 2; i++)
        if (stream->ends[i] > stream->computed && stream->ends[i] < end)
            end = stream->ends[i];
    const uint32_t n = end - stream->computed, most = r->options->chunk_tokens;
    return most > 0 && n > most ? most : n;
}

static kvp_status make_batch(struct recurrent *r)
{
    kvp_status status = admit(r);
    for (uint32_t i = 0; status == KVP_OK && i < r->n_streams; i++)
        if (!r->streams[i].is_waiting)
            status = make_room(r, &r->streams[i]);
    r->n_members = 0;
    for (uint32_t i = 0; status == KVP_OK && i < r->n_streams; i++) {
        struct stream *stream = &r->streams[i];
        if (stream->is_waiting)
            continue;
        stream->n_step = step_tokens(r, stream);
        r->members[r->n_members] = stream;
        r->seqs[r->n_members] = stream->seq;
        r->begin[r->n_members] = stream->computed;
        r->n_tokens[r->n_members++] = stream->n_step;
    }
    return status;
}

/* -------------------------------------------------------------------------------------
 * after the step */

static void draw(struct recurrent *r, struct stream *stream, const float *logits)
{
    const struct generation *g = stream->known;
    const uint32_t n_done = stream->n_tokens - g->n_prompt;
    const int32_t token = generation_draw(r->kv.model, g, logits, stream->sample, stream->n_tokens);
    r->counts.different += token != g->out[(size_t)stream->sample * g->n_new + n_done];
    stream->tokens[stream->n_tokens++] = token;
}

static kvp_status fork_samples(struct recurrent *r, const struct stream *parent,
                               const float *logits)
{
    for (uint32_t sample = 1; sample < parent->known->n_samples; sample++) {
        struct stream *child = &r->streams[r->n_streams];
        *child = *parent;
        child->sample = sample;
        child->order = r->n_streams;
        const kvp_status status =
            kvp_seq_fork(r->kv.cache, parent->seq, parent->computed, 0, &child->seq);
        if (status != KVP_OK)
            return status;
        r->n_streams++;
        draw(r, child, logits);
    }
    return KVP_OK;
}

/* To the last end of a chunk, where the state was kept. The tokens stay, to be computed again. */
static kvp_status roll_back(struct recurrent *r, struct stream *stream)
{
    const uint32_t to = stream->ends[1];
    const struct generation *g = stream->known;
    if (!r->options->roll_back || stream->was_rolled_back || to == 0 ||
        stream->n_tokens != g->n_prompt + g->n_new / 2)
        return KVP_OK;
    stream->was_rolled_back = 1;
    const kvp_status status = kvp_seq_truncate(r->kv.cache, stream->seq, to, NULL);
    if (status == KVP_E_DROPPED)
        return KVP_OK; /* evicted, or never made for lack of a slot */
    stream->computed = stream->n_slots = to;
    r->counts.rolled_back++;
    return status;
}

static kvp_status keep_state(struct recurrent *r, const struct stream *stream)
{
    uint32_t outcome = KVP_CHECKPOINT_SKIPPED;
    kvp_status status = KVP_OK;
    if (stream->computed == stream->ends[0] || stream->computed == stream->ends[1])
        status = kvp_seq_checkpoint(r->kv.cache, stream->seq, &outcome);
    r->counts.checkpoints += outcome == KVP_CHECKPOINT_MADE;
    return status;
}

static kvp_status finish_member(struct recurrent *r, struct stream *stream, const float *logits)
{
    const int is_first = stream->n_tokens == stream->known->n_prompt && stream->sample == 0;
    stream->computed += stream->n_step;
    kvp_status status = kvp_seq_commit(r->kv.cache, stream->seq, stream->computed);
    if (status == KVP_OK)
        status = keep_state(r, stream);
    if (status != KVP_OK || stream->computed < stream->n_tokens)
        return status;
    if (is_first && r->options->fork)
        status = fork_samples(r, stream, logits);
    draw(r, stream, logits);
    return status == KVP_OK ? roll_back(r, stream) : status;
}

/* Everything that the step wrote is garbage. Sequences whose state it was begin again. */
static kvp_status lose_step(struct recurrent *r)
{
    kvp_status status = KVP_OK;
    for (uint32_t i = 0; status == KVP_OK && i < r->n_members; i++) {
        kvp_state_info state;
        states_spoil(&r->states, r->write[i]);
        status = kvp_seq_invalidate(r->kv.cache, r->seqs[i], r->begin[i], NULL, 0, NULL);
        if (status == KVP_OK)
            status = kvp_seq_state_get(r->kv.cache, r->seqs[i], &state);
        if (status == KVP_OK && state.lost) {
            r->counts.lost++;
            status = wait_again(r, r->members[i]);
        }
    }
    return status;
}

static int is_done(const struct stream *stream)
{
    return stream->n_tokens == stream->known->n_prompt + stream->known->n_new;
}

static kvp_status drop_done(struct recurrent *r)
{
    kvp_status status = KVP_OK;
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n_streams; i++) {
        if (!is_done(&r->streams[i]))
            r->streams[n++] = r->streams[i];
        else if (status == KVP_OK)
            status = kvp_seq_close(r->kv.cache, r->streams[i].seq, NULL);
    }
    r->n_streams = n;
    return status;
}

static kvp_status run_step(struct recurrent *r)
{
    const size_t V = model_config_of(r->kv.model)->vocabulary;
    kvp_status status = make_batch(r);
    if (status == KVP_OK)
        status = forward(r);
    const uint64_t step = ++r->counts.steps;
    if (status == KVP_OK && r->options->lose_steps && step > 1 && (step & (step - 1)) == 0)
        return lose_step(r);
    for (uint32_t i = 0; status == KVP_OK && i < r->n_members; i++)
        status = finish_member(r, r->members[i], r->logits + i * V);
    return status == KVP_OK ? drop_done(r) : status;
}

/* -------------------------------------------------------------------------------------
 * all of them */

static void add_stream(struct recurrent *r, const struct generation *g, uint32_t sample)
{
    struct stream *stream = &r->streams[r->n_streams];
    *stream = (struct stream){.known = g,
                              .sample = sample,
                              .order = r->n_streams,
                              .is_waiting = 1,
                              .n_tokens = g->n_prompt};
    memcpy(stream->tokens, g->prompt, g->n_prompt * sizeof *stream->tokens);
    r->n_streams++;
}

static kvp_status generate(struct recurrent *r, const struct generation *known, uint32_t n)
{
    kvp_status status = KVP_OK;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t sample = 0; !known[i].is_beam && sample < known[i].n_samples; sample++)
            if (sample == 0 || !r->options->fork)
                add_stream(r, &known[i], sample);
    while (status == KVP_OK && r->n_streams > 0)
        status = run_step(r);
    return status;
}

static kvp_status create(struct recurrent *r, struct model *model)
{
    const model_config *c = model_config_of(model);
    const recurrent_options *o = r->options;
    kv_options options = {.max_seqs = MAX_STREAMS,
                          .step_tokens = c->max_tokens,
                          .rope_mode = KVP_ROPE_AT_WRITE,
                          .type = KVP_F32};
    kvp_config_init(&options.cache);
    options.cache.block_tokens = o->block_tokens;
    options.cache.unit_tokens = o->unit_tokens;
    options.cache.n_blocks = o->n_blocks;
    options.cache.max_seqs = MAX_STREAMS;
    options.cache.max_seq_tokens = MAX_TOKENS;
    options.cache.prefix_cache = o->prefix_cache;
    options.cache.state_slots = o->state_slots;
    const kvp_status status = kv_create(model, &options, &r->kv);
    const int no_states = states_create(model, o->state_slots, &r->states);
    r->tokens = calloc(c->max_tokens, sizeof *r->tokens);
    r->logits = calloc((size_t)MAX_STREAMS * c->vocabulary, sizeof *r->logits);
    if (status == KVP_OK && (no_states || r->tokens == NULL || r->logits == NULL))
        return KVP_E_NO_MEMORY;
    return status;
}

static kvp_status run_all(struct recurrent *r, const struct generation *known, uint32_t n)
{
    kvp_state_stats stats;
    kvp_status status = KVP_OK;
    for (uint32_t i = 0; status == KVP_OK && i < r->options->times; i++)
        status = generate(r, known, n);
    if (status == KVP_OK)
        status = kvp_cache_state_stats_get(r->kv.cache, &stats);
    if (status == KVP_OK)
        r->counts.hits = stats.hits;
    return status;
}

kvp_status recurrent_run(struct model *model, const recurrent_options *options,
                         const struct generation *known, uint32_t n, recurrent_counts *out_counts)
{
    struct recurrent *r = calloc(1, sizeof *r);
    if (r == NULL)
        return KVP_E_NO_MEMORY;
    r->options = options;
    kvp_status status = create(r, model);
    if (status == KVP_OK)
        status = run_all(r, known, n);
    *out_counts = r->counts;
    kv_destroy(&r->kv);
    states_destroy(&r->states);
    free(r->tokens);
    free(r->logits);
    free(r);
    return status;
}
