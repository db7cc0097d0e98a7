/* speculate: see speculate.h. A stream is a sequence that generates one sample:
 *
 *     prompt  a  b | c | . . . .          a, b, c drawn; c is the newest, not computed yet
 *     ------------   |   nodes
 *       computed     last token of the sequence
 *
 * A forward pass leaves in `drawn` what the model draws after c and after each node. What is drawn
 * depends only on the position (generation_draw), so it is right if the path to it is right. The
 * walk begins at c, and follows nodes while one has the token that was drawn. */
#include "speculate.h"

#include <kvpager/trees.h>
#include <stdlib.h>
#include <string.h>

#include "draft.h"
#include "kv.h"

enum { MAX_STREAMS = 32, MAX_PROMPT = 256, MAX_NEW = 64, N_BLOCKS = 1024, FIRST_ROUND = 5 };

struct stream {
    const struct generation *known;
    uint32_t sample;
    kvp_seq seq;
    uint32_t n_tokens; /* of the sequence, its tree not included */
    uint32_t n_done;   /* of `out` */
    uint32_t n_given;  /* of these, by the prompt or the stream that this one is a fork of */
    uint32_t was_forked;
    int32_t out[MAX_NEW];
    int32_t nodes[DRAFT_NODES];
    int32_t drawn[1 + DRAFT_NODES];
    int32_t leaf; /* accepted */
    /* the pass that is out: positions [begin, end), nodes counted on */
    uint32_t begin;
    uint32_t end;
};

struct speculation {
    struct kv kv;
    speculate_options options;
    struct stream streams[MAX_STREAMS];
    uint32_t n_streams;
    int32_t *tokens; /* [max_tokens] of a pass */
    uint32_t *rows;  /* [max_tokens] all of them */
    float *logits;   /* [max_tokens, V] */
    speculate_counts counts;
};

/* ---------------------------------------------------------------------------------- a forward
 * pass */

/* Tokens of the pass: the sequence's first, then its nodes. */
static kvp_status lay_out(struct speculation *s, const struct stream *stream, int32_t *tokens)
{
    const uint32_t end = stream->end < stream->n_tokens ? stream->end : stream->n_tokens;
    const uint32_t n = stream->begin < end ? end - stream->begin : 0;
    const uint32_t first_node = stream->begin + n - stream->n_tokens; /* if there are any */
    const uint32_t n_nodes = stream->end - stream->begin - n;
    if (n_nodes > 0)
        memcpy(tokens + n, stream->nodes + first_node, n_nodes * sizeof *tokens);
    return n > 0 ? kvp_seq_tokens(s->kv.cache, stream->seq, stream->begin, n, tokens) : KVP_OK;
}

/* What follows the last token, and each node that was computed. logits: of the pass's first. */
static void draw(const struct speculation *s, struct stream *stream, const float *logits)
{
    const struct generation *g = stream->known;
    const uint32_t V = model_config_of(s->kv.model)->vocabulary;
    for (uint32_t at = stream->begin; at < stream->end; at++, logits += V) {
        if (at + 1 < stream->n_tokens)
            continue;                                 /* in the middle of the prompt */
        const uint32_t k = at + 1 - stream->n_tokens; /* 0: the last token, else node k - 1 */
        const uint32_t position = stream->n_tokens + (k > 0 ? draft_depths[k - 1] + 1 : 0);
        stream->drawn[k] = generation_draw(s->kv.model, g, logits, stream->sample, position);
    }
}

static kvp_status run_model(struct speculation *s, uint32_t n_tokens)
{
    const uint32_t V = model_config_of(s->kv.model)->vocabulary;
    const model_step forward = {.tokens = s->tokens,
                                .n_tokens = n_tokens,
                                .n_rows = n_tokens,
                                .rows = s->rows,
                                .attend = kv_attend,
                                .context = &s->kv};
    const kvp_status status = (kvp_status)model_run(s->kv.model, &forward, s->logits);
    const float *logits = s->logits;
    for (uint32_t i = 0; status == KVP_OK && i < s->n_streams; i++) {
        struct stream *stream = &s->streams[i];
        draw(s, stream, logits);
        logits += (size_t)(stream->end - stream->begin) * V;
    }
    s->counts.steps++;
    return status;
}

/* [begin, end) of all streams. */
static kvp_status run_pass(struct speculation *s)
{
    kvp_seq seqs[MAX_STREAMS];
    uint32_t begin[MAX_STREAMS], n_tokens[MAX_STREAMS], n = 0;
    kvp_status status = KVP_OK;
    for (uint32_t i = 0; status == KVP_OK && i < s->n_streams; i++) {
        const struct stream *stream = &s->streams[i];
        seqs[i] = stream->seq;
        begin[i] = stream->begin;
        n_tokens[i] = stream->end - stream->begin;
        if (n_tokens[i] > model_config_of(s->kv.model)->max_tokens - n)
            return KVP_E_TOO_LONG;
        status = lay_out(s, stream, s->tokens + n);
        n += n_tokens[i];
    }
    const kvp_meta_batch batch = {.struct_size = sizeof batch,
                                  .n_seqs = s->n_streams,
                                  .seqs = seqs,
                                  .begin = begin,
                                  .n_tokens = n_tokens};
    if (status == KVP_OK)
        status = kv_run_plan(&s->kv, NULL);
    if (status == KVP_OK)
        status = kv_describe(&s->kv, &batch);
    return status == KVP_OK ? run_model(s, n) : status;
}

/* All tokens of all streams are computed now. */
static kvp_status commit(struct speculation *s)
{
    kvp_seq seqs[MAX_STREAMS];
    uint32_t n_tokens[MAX_STREAMS];
    for (uint32_t i = 0; i < s->n_streams; i++) {
        seqs[i] = s->streams[i].seq;
        n_tokens[i] = s->streams[i].n_tokens;
    }
    return kvp_seq_commit_many(s->kv.cache, seqs, n_tokens, s->n_streams);
}

/* --------------------------------------------------------------------------------------- the
 * prompt */

/* The first n_done tokens of the answer are taken as part of the prompt. */
static kvp_status open_stream(struct speculation *s, const struct generation *g, uint32_t sample,
                              uint32_t n_done)
{
    int32_t tokens[MAX_PROMPT + MAX_NEW];
    const int32_t *answers = g->out + (size_t)sample * g->n_new;
    struct stream *stream = &s->streams[s->n_streams];
    kvp_open_info info;
    if (s->n_streams == MAX_STREAMS || g->n_prompt > MAX_PROMPT || g->n_new > MAX_NEW)
        return KVP_E_TOO_LONG;
    *stream = (struct stream){.known = g,
                              .sample = sample,
                              .n_tokens = g->n_prompt + n_done,
                              .n_done = n_done,
                              .n_given = n_done};
    memcpy(tokens, g->prompt, g->n_prompt * sizeof *tokens);
    memcpy(tokens + g->n_prompt, answers, n_done * sizeof *tokens);
    memcpy(stream->out, answers, n_done * sizeof *tokens);
    const kvp_prompt prompt = {
        .struct_size = sizeof prompt, .tokens = tokens, .n_tokens = stream->n_tokens};
    const kvp_status status = kvp_seq_open(s->kv.cache, s->kv.ns, &prompt, &stream->seq, &info);
    if (status != KVP_OK)
        return status;
    stream->begin = info.cached_tokens;
    stream->end = stream->n_tokens;
    s->counts.cached_tokens += info.cached_tokens;
    s->n_streams++;
    return KVP_OK;
}

/* A stream at the same place. What the parent has in its tree stays the parent's. */
static kvp_status fork_stream(struct speculation *s, const struct stream *parent,
                              struct stream **out_child)
{
    if (s->n_streams == MAX_STREAMS)
        return KVP_E_TOO_LONG;
    struct stream *child = &s->streams[s->n_streams];
    *child = *parent;
    child->n_given = child->n_done;
    const kvp_status status =
        kvp_seq_fork(s->kv.cache, parent->seq, KVP_END, child->sample, &child->seq);
    if (status != KVP_OK)
        return status;
    s->n_streams++;
    *out_child = child;
    return KVP_OK;
}

/* The other samples of a request continue the prompt of the first: they draw from its logits. */
static kvp_status fork_samples(struct speculation *s)
{
    const uint32_t V = model_config_of(s->kv.model)->vocabulary, n_parents = s->n_streams;
    const float *logits = s->logits;
    for (uint32_t i = 0; i < n_parents; i++) {
        const struct stream *parent = &s->streams[i];
        for (uint32_t sample = 1; sample < parent->known->n_samples; sample++) {
            struct stream *child;
            const kvp_status status = fork_stream(s, parent, &child);
            if (status != KVP_OK)
                return status;
            child->sample = sample;
            draw(s, child, logits);
        }
        logits += (size_t)(parent->end - parent->begin) * V;
    }
    return KVP_OK;
}

/* Open, compute, and draw the first token. */
static kvp_status start(struct speculation *s, const struct generation *known, uint32_t n,
                        uint32_t is_again)
{
    kvp_status status = KVP_OK;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t n_opened = is_again ? known[i].n_samples : 1;
        for (uint32_t j = 0; status == KVP_OK && !known[i].is_beam && j < n_opened; j++)
            status = open_stream(s, &known[i], j, is_again ? known[i].n_new / 2 : 0);
    }
    if (status != KVP_OK || s->n_streams == 0)
        return status;
    status = run_pass(s);
    if (status == KVP_OK)
        status = commit(s);
    if (status == KVP_OK && !is_again)
        status = fork_samples(s);
    for (uint32_t i = 0; i < s->n_streams; i++)
        s->streams[i].out[s->streams[i].n_done++] = s->streams[i].drawn[0];
    return status;
}

/* ---------------------------------------------------------------------------------------- a
 * round */

static kvp_status extend(struct speculation *s)
{
    kvp_seq seqs[MAX_STREAMS];
    int32_t tokens[MAX_STREAMS];
    for (uint32_t i = 0; i < s->n_streams; i++) {
        struct stream *stream = &s->streams[i];
        seqs[i] = stream->seq;
        tokens[i] = stream->out[stream->n_done - 1];
        stream->n_tokens++;
    }
    const kvp_batch batch = {
        .struct_size = sizeof batch, .n_seqs = s->n_streams, .seqs = seqs, .tokens = tokens};
    return kvp_seq_extend_many(s->kv.cache, &batch);
}

/* Add nodes [from, to) to all trees, and compute them; before the first, the last token. */
static kvp_status grow_trees(struct speculation *s, uint32_t from, uint32_t to)
{
    kvp_seq seqs[MAX_STREAMS];
    uint32_t n_nodes[MAX_STREAMS];
    int32_t tokens[MAX_STREAMS * DRAFT_NODES], parents[MAX_STREAMS * DRAFT_NODES];
    for (uint32_t i = 0; i < s->n_streams; i++) {
        struct stream *stream = &s->streams[i];
        const size_t at = (size_t)i * (to - from);
        seqs[i] = stream->seq;
        n_nodes[i] = to - from;
        memcpy(tokens + at, stream->nodes + from, n_nodes[i] * sizeof *tokens);
        memcpy(parents + at, draft_parents + from, n_nodes[i] * sizeof *parents);
        stream->begin = from > 0 ? stream->n_tokens + from : stream->n_tokens - 1;
        stream->end = stream->n_tokens + to;
    }
    const kvp_batch batch = {.struct_size = sizeof batch,
                             .n_seqs = s->n_streams,
                             .seqs = seqs,
                             .n_tokens = n_nodes,
                             .tokens = tokens};
    const kvp_status status = kvp_seq_extend_tree(s->kv.cache, &batch, parents);
    return status == KVP_OK ? run_pass(s) : status;
}

/* Both have computed the same. The child goes on with one token, its parent with a path. */
static kvp_status fork_streams(struct speculation *s)
{
    const uint32_t n_parents = s->n_streams;
    for (uint32_t i = 0; i < n_parents; i++) {
        struct stream *parent = &s->streams[i], *child;
        if (parent->was_forked || parent->n_done < parent->known->n_new / 2)
            continue;
        parent->was_forked = 1;
        const kvp_status status = fork_stream(s, parent, &child);
        if (status != KVP_OK)
            return status;
    }
    return KVP_OK;
}

static int32_t find_child(const struct stream *stream, int32_t parent, int32_t token)
{
    for (int32_t i = 0; i < DRAFT_NODES; i++) {
        if (draft_parents[i] == parent && stream->nodes[i] == token)
            return i;
    }
    return -1;
}

/* Note what was drawn along the path. The last of it is not in the tree, or ends the stream. */
static void walk(struct stream *stream, uint32_t has_tree)
{
    int32_t node = -1, token = stream->drawn[0];
    while (stream->out[stream->n_done++] = token, stream->n_done < stream->known->n_new) {
        const int32_t child = has_tree ? find_child(stream, node, token) : -1;
        if (child < 0)
            break;
        node = child;
        token = stream->drawn[1 + node];
    }
    stream->leaf = node;
}

/* The first n_trees streams have trees, those forked from them have none. */
static kvp_status accept(struct speculation *s, uint32_t n_trees)
{
    kvp_seq seqs[MAX_STREAMS];
    int32_t leaves[MAX_STREAMS];
    kvp_slot_move moves[KV_GROUPS * MAX_STREAMS * DRAFT_NODES];
    for (uint32_t i = 0; i < s->n_streams; i++) {
        walk(&s->streams[i], i < n_trees);
        seqs[i] = s->streams[i].seq;
        leaves[i] = s->streams[i].leaf;
        const uint32_t n = leaves[i] < 0 ? 0 : draft_depths[leaves[i]] + 1;
        s->streams[i].n_tokens += n;
        s->counts.accepted_tokens += n;
    }
    kvp_accept accepted = {.struct_size = sizeof accepted,
                           .n_seqs = s->n_streams,
                           .max_moves = MAX_STREAMS * DRAFT_NODES,
                           .seqs = seqs,
                           .leaves = leaves,
                           .moves = moves};
    kvp_status status = kvp_seq_accept(s->kv.cache, &accepted);
    for (uint32_t g = 0; status == KVP_OK && g < s->kv.n_groups; g++)
        status = kvp_copier_move(s->kv.copier, g, moves + (size_t)g * accepted.max_moves,
                                 accepted.n_moves, NULL);
    s->counts.paths += n_trees;
    s->counts.moved_slots += accepted.n_moves;
    return status;
}

static kvp_status run_round(struct speculation *s)
{
    const uint32_t V = model_config_of(s->kv.model)->vocabulary, n_trees = s->n_streams;
    const uint32_t first = s->options.rounds > 1 ? FIRST_ROUND : DRAFT_NODES;
    kvp_status status = extend(s);
    for (uint32_t i = 0; i < n_trees; i++) {
        struct stream *stream = &s->streams[i];
        draft_propose(stream->known, stream->sample, stream->n_tokens, V, stream->nodes);
    }
    if (status == KVP_OK)
        status = grow_trees(s, 0, first);
    if (status == KVP_OK && first < DRAFT_NODES)
        status = grow_trees(s, first, DRAFT_NODES);
    if (status == KVP_OK)
        status = commit(s);
    if (status == KVP_OK && s->options.fork)
        status = fork_streams(s);
    return status == KVP_OK ? accept(s, n_trees) : status;
}

/* ------------------------------------------------------------------------------------------
 * run */

/* Compare and close those that are done; the others move up. */
static kvp_status close_streams(struct speculation *s)
{
    kvp_status status = KVP_OK;
    uint32_t n_left = 0;
    for (uint32_t i = 0; i < s->n_streams; i++) {
        const struct stream *stream = &s->streams[i];
        const uint32_t n_new = stream->known->n_new;
        if (stream->n_done < n_new) {
            s->streams[n_left++] = *stream;
            continue;
        }
        for (uint32_t at = 0; at < n_new; at++)
            s->counts.different +=
                stream->out[at] != stream->known->out[stream->sample * n_new + at];
        s->counts.tokens += n_new - stream->n_given;
        const kvp_status closed = kvp_seq_close(s->kv.cache, stream->seq, NULL);
        status = status == KVP_OK ? closed : status;
    }
    s->n_streams = n_left;
    return status;
}

static kvp_status run_batch(struct speculation *s, const struct generation *known, uint32_t n,
                            uint32_t is_again)
{
    kvp_status status = start(s, known, n, is_again);
    if (status == KVP_OK)
        status = close_streams(s);
    while (status == KVP_OK && s->n_streams > 0) {
        status = run_round(s);
        if (status == KVP_OK)
            status = close_streams(s);
    }
    return status;
}

static kvp_status create(struct speculation *s, struct model *model)
{
    const model_config *c = model_config_of(model);
    kv_options options = {.max_seqs = MAX_STREAMS,
                          .step_tokens = c->max_tokens,
                          .rope_mode = KVP_ROPE_AT_WRITE,
                          .type = KVP_F32,
                          .impl = s->options.impl};
    kvp_config_init(&options.cache);
    options.cache.block_tokens = s->options.block_tokens;
    options.cache.n_blocks = N_BLOCKS;
    options.cache.max_seqs = MAX_STREAMS;
    options.cache.max_tree_tokens = DRAFT_NODES;
    const kvp_status status = kv_create(model, &options, &s->kv);
    s->tokens = calloc(c->max_tokens, sizeof *s->tokens);
    s->rows = calloc(c->max_tokens, sizeof *s->rows);
    s->logits = calloc((size_t)c->max_tokens * c->vocabulary, sizeof *s->logits);
    if (status != KVP_OK || s->tokens == NULL || s->rows == NULL || s->logits == NULL)
        return status != KVP_OK ? status : KVP_E_NO_MEMORY;
    for (uint32_t i = 0; i < c->max_tokens; i++)
        s->rows[i] = i;
    return KVP_OK;
}

static void destroy(struct speculation *s)
{
    kv_destroy(&s->kv);
    free(s->tokens);
    free(s->rows);
    free(s->logits);
    free(s);
}

kvp_status speculate_run(struct model *model, const speculate_options *options,
                         const struct generation *known, uint32_t n, speculate_counts *out_counts)
{
    struct speculation *s = calloc(1, sizeof *s);
    kvp_stats stats;
    if (s == NULL)
        return KVP_E_NO_MEMORY;
    s->options = *options;
    kvp_status status = create(s, model);
    const uint32_t n_batch = options->together ? n : 1;
    for (uint32_t again = 0; again <= options->again; again++) {
        for (uint32_t i = 0; status == KVP_OK && i < n; i += n_batch)
            status = run_batch(s, known + i, n_batch, again);
    }
    if (status == KVP_OK)
        status = kvp_cache_stats_get(s->kv.cache, &stats);
    if (status == KVP_OK) {
        s->counts.copied_blocks = s->kv.n_copied;
        s->counts.dropped_blocks = stats.dropped_blocks;
        *out_counts = s->counts;
    }
    destroy(s);
    return status;
}
