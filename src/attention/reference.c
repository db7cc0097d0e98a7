/* reference: the sentences of attention.h as loops, in double precision.
 *
 * For each query: what it sees; for each KV head: the scores of the heads that share it, their
 * softmax, the weighted sum of V. K and V are read through kvp_layer_read, one vector at a time, so
 * that every type and layout means here what it means there. Nothing is shared between queries, and
 * keys are taken in ascending order, which is what makes the result independent of how a batch is
 * put together. Meant to be read, and to test others against; not to be fast.
 */
#include "attention/reference.h"

#include <assert.h>
#include <math.h>

#include "attention/shape.h"

/* ----------------------------------------------------------------------------------------
 * append */

void kvpi_reference_append_scratch(struct kvpi_append_scratch *out, const kvp_append *append,
                                   struct kvpi_scratch *scratch)
{
    const uint32_t dims = append->layer->k.size;
    const int turns = append->rope.mode == KVP_ROPE_AT_WRITE;
    out->frequencies = kvpi_scratch_take(scratch, turns ? kvpi_rope_pairs(&append->rope, dims) : 0,
                                         sizeof *out->frequencies);
    out->vector = kvpi_scratch_take(scratch, turns ? dims : 0, sizeof *out->vector);
    out->row = kvpi_scratch_take(scratch, turns ? dims : 0, sizeof *out->row);
}

/* K as it is to be stored: the caller's vector, or a turned copy of it. */
static const float *turned_query(const float *row, const struct kvpi_rope *rope, double position,
                                 uint32_t dims, const struct kvpi_append_scratch *scratch)
{
    for (uint32_t e = 0; e < dims; e++)
        scratch->vector[e] = row[e];
    kvpi_rope_turn(rope, position, scratch->vector);
    for (uint32_t e = 0; e < dims; e++)
        scratch->row[e] = (float)scratch->vector[e];
    return scratch->row;
}

static void write_reference_row(const kvp_layer *layer, int which, int64_t slot, uint32_t head,
                                const float *row)
{
    const kvp_status status = kvp_layer_write(layer, which, slot, head, row);
    assert(status == KVP_OK); /* everything was checked */
    (void)status;
}

void kvpi_reference_append(const kvp_append *append, const struct kvpi_append_scratch *scratch)
{
    const kvp_layer *layer = append->layer;
    const int turns = append->rope.mode == KVP_ROPE_AT_WRITE;
    struct kvpi_rope rope;
    if (turns)
        kvpi_rope_make(&rope, &append->rope, layer->k.size, scratch->frequencies);
    for (uint32_t token = 0; token < append->n_tokens; token++) {
        const int64_t slot = append->slots[token];
        if (slot == KVP_NO_SLOT)
            continue;
        for (uint32_t head = 0; head < layer->n_heads; head++) {
            const float *row = kvpi_shape_row(&append->k, token, head);
            if (turns)
                row = turned_query(row, &rope, append->positions[token], layer->k.size, scratch);
            write_reference_row(layer, KVP_K, slot, head, row);
            if (layer->v.base != NULL)
                write_reference_row(layer, KVP_V, slot, head,
                                    kvpi_shape_row(&append->v, token, head));
        }
    }
}

/* -------------------------------------------------------------------------------------
 * attention */

void kvpi_reference_attention_scratch(struct kvpi_attention_scratch *out,
                                      const kvp_attention *attention, uint64_t max_keys,
                                      struct kvpi_scratch *scratch)
{
    const uint32_t dims = attention->layer->k.size, v_size = attention->v_size;
    const uint64_t group = attention->n_heads / attention->layer->n_heads;
    const uint32_t row = dims > v_size ? dims : v_size;
    if (max_keys > SIZE_MAX / sizeof(double) / group) {
        scratch->overflow = 1;
        return;
    }
    out->max_keys = (size_t)max_keys;
    out->frequencies = kvpi_scratch_take(scratch, kvpi_rope_pairs(&attention->rope, dims),
                                         sizeof *out->frequencies);
    out->seen = kvpi_scratch_take(scratch, max_keys, sizeof *out->seen);
    out->weights = kvpi_scratch_take(scratch, group * max_keys, sizeof *out->weights);
    out->queries = kvpi_scratch_take(scratch, group * dims, sizeof *out->queries);
    out->sums = kvpi_scratch_take(scratch, group * v_size, sizeof *out->sums);
    out->vector = kvpi_scratch_take(scratch, dims, sizeof *out->vector);
    out->row = kvpi_scratch_take(scratch, row, sizeof *out->row);
}

/* All that the loops below need, worked out once. */
struct reference_run {
    const kvp_attention *attention;
    const kvp_layer *layer;
    const struct kvpi_attention_scratch *scratch;
    struct kvpi_rope rope;
    double scale;
    uint32_t group; /* query heads that share a KV head */
    int v_which;    /* KVP_V, or KVP_K for a latent layer */
};

/* One query of one sequence. */
struct query {
    const struct kvpi_keys *keys;
    uint32_t token; /* row of q and out */
    uint32_t n_seen;
};

static void read_key_row(const struct reference_run *run, int which, int64_t slot, uint32_t head)
{
    const kvp_status status = kvp_layer_read(run->layer, which, slot, head, run->scratch->row);
    assert(status == KVP_OK); /* everything was checked */
    (void)status;
}

static void load_query_rows(const struct reference_run *run, const struct query *query,
                            uint32_t kv_head)
{
    const uint32_t dims = run->layer->k.size;
    const double position = run->rope.mode == KVP_ROPE_AT_WRITE
                                ? run->attention->positions[query->token]
                                : query->n_seen - 1.0;
    for (uint32_t g = 0; g < run->group; g++) {
        const float *row =
            kvpi_shape_row(&run->attention->q, query->token, kv_head * run->group + g);
        double *vector = run->scratch->queries + (size_t)g * dims;
        for (uint32_t e = 0; e < dims; e++)
            vector[e] = row[e];
        kvpi_rope_turn(&run->rope, position, vector);
    }
}

static double dot(const double *a, const double *b, uint32_t n)
{
    double sum = 0.0;
    for (uint32_t e = 0; e < n; e++)
        sum += a[e] * b[e];
    return sum;
}

static void score_keys(const struct reference_run *run, const struct query *query, uint32_t kv_head)
{
    const struct kvpi_attention_scratch *scratch = run->scratch;
    const uint32_t dims = run->layer->k.size;
    const double cap = run->attention->soft_cap;
    for (uint32_t i = 0; i < query->n_seen; i++) {
        read_key_row(run, KVP_K, kvpi_keys_slot(query->keys, scratch->seen[i]), kv_head);
        for (uint32_t e = 0; e < dims; e++)
            scratch->vector[e] = scratch->row[e];
        if (run->rope.mode == KVP_ROPE_AT_READ)
            kvpi_rope_turn(&run->rope, i, scratch->vector);
        for (uint32_t g = 0; g < run->group; g++) {
            const double score =
                run->scale * dot(scratch->queries + (size_t)g * dims, scratch->vector, dims);
            scratch->weights[g * scratch->max_keys + i] =
                cap > 0.0 ? cap * tanh(score / cap) : score;
        }
    }
}

/* Scores become weights; returns the logarithm of the sum. `sink` may be -infinity, and so may
 * every score: then all weights are 0. A NaN among them makes all NaN. */
static double softmax(double *scores, uint32_t n, double sink)
{
    double largest = sink, sum;
    for (uint32_t i = 0; i < n; i++)
        largest = scores[i] <= largest ? largest : scores[i];
    sum = sink == -INFINITY ? 0.0 : exp(sink - largest);
    for (uint32_t i = 0; i < n; i++) {
        scores[i] = largest == -INFINITY ? 0.0 : exp(scores[i] - largest);
        sum += scores[i];
    }
    for (uint32_t i = 0; i < n && sum != 0.0; i++)
        scores[i] /= sum;
    return sum == 0.0 ? -INFINITY : largest + log(sum);
}

static void sum_values(const struct reference_run *run, const struct query *query, uint32_t kv_head)
{
    const struct kvpi_attention_scratch *scratch = run->scratch;
    const uint32_t v_size = run->attention->v_size;
    for (size_t e = 0; e < (size_t)run->group * v_size; e++)
        scratch->sums[e] = 0.0;
    for (uint32_t i = 0; i < query->n_seen; i++) {
        read_key_row(run, run->v_which, kvpi_keys_slot(query->keys, scratch->seen[i]), kv_head);
        for (uint32_t g = 0; g < run->group; g++) {
            const double weight = scratch->weights[g * scratch->max_keys + i];
            double *sums = scratch->sums + (size_t)g * v_size;
            for (uint32_t e = 0; e < v_size; e++)
                sums[e] += weight * scratch->row[e];
        }
    }
}

static void run_heads(const struct reference_run *run, const struct query *query, uint32_t kv_head)
{
    const kvp_attention *attention = run->attention;
    load_query_rows(run, query, kv_head);
    score_keys(run, query, kv_head);
    for (uint32_t g = 0; g < run->group; g++) {
        const uint32_t head = kv_head * run->group + g;
        const double sink =
            attention->sink_logits != NULL ? attention->sink_logits[head] : -INFINITY;
        const double lse =
            softmax(run->scratch->weights + g * run->scratch->max_keys, query->n_seen, sink);
        if (attention->lse.data != NULL)
            *kvpi_row_out(&attention->lse, query->token, head) = (float)lse;
    }
    sum_values(run, query, kv_head);
    for (uint32_t g = 0; g < run->group; g++) {
        float *out = kvpi_row_out(&attention->out, query->token, kv_head * run->group + g);
        const double *sums = run->scratch->sums + (size_t)g * attention->v_size;
        for (uint32_t e = 0; e < attention->v_size; e++)
            out[e] = (float)sums[e];
    }
}

static void run_sequence(const struct reference_run *run, const struct kvpi_keys *keys)
{
    for (uint32_t i = 0; i < keys->n_queries; i++) {
        const struct query query = {.keys = keys,
                                    .token = keys->first_query + i,
                                    .n_seen = kvpi_keys_seen(keys, i, run->scratch->seen)};
        for (uint32_t head = 0; head < run->layer->n_heads; head++)
            run_heads(run, &query, head);
    }
}

void kvpi_reference_attention(const kvp_attention *attention, const struct kvpi_batch *batch,
                              const struct kvpi_attention_scratch *scratch)
{
    struct reference_run run = {.attention = attention,
                                .layer = attention->layer,
                                .scratch = scratch,
                                .scale = attention->scale,
                                .group = attention->n_heads / attention->layer->n_heads,
                                .v_which = attention->layer->v.base != NULL ? KVP_V : KVP_K};
    kvpi_rope_make(&run.rope, &attention->rope, run.layer->k.size, scratch->frequencies);
    for (uint32_t seq = 0; seq < attention->n_seqs; seq++) {
        struct kvpi_keys keys;
        if (!kvpi_batch_asks(batch, seq))
            continue;
        const int is_valid = kvpi_keys_make(&keys, batch, seq);
        assert(is_valid);
        (void)is_valid;
        run_sequence(&run, &keys);
    }
}

/* -----------------------------------------------------------------------------------------
 * merge */

static float partial_lse(const kvp_merge *merge, uint32_t i, uint32_t token, uint32_t head)
{
    kvp_rows rows = merge->partials[i].lse;
    kvpi_rows_resolve(&rows, &(struct kvpi_shape){merge->n_tokens, merge->n_heads, 1});
    return *kvpi_shape_row(&rows, token, head);
}

static const float *partial_out(const kvp_merge *merge, uint32_t i, uint32_t token, uint32_t head)
{
    kvp_rows rows = merge->partials[i].out;
    kvpi_rows_resolve(&rows, &(struct kvpi_shape){merge->n_tokens, merge->n_heads, merge->size});
    return kvpi_shape_row(&rows, token, head);
}

/* One vector. All partials of an element are read before it is written: out may be one of them. */
static void merge_reference_row(const kvp_merge *merge, uint32_t token, uint32_t head)
{
    double shares[KVP_MERGE_MAX];
    float *out = kvpi_row_out(&merge->out, token, head);
    for (uint32_t i = 0; i < merge->n_partials; i++)
        shares[i] = partial_lse(merge, i, token, head);
    const double lse = softmax(shares, merge->n_partials, -INFINITY);
    for (uint32_t e = 0; e < merge->size; e++) {
        double sum = 0.0;
        for (uint32_t i = 0; i < merge->n_partials; i++) {
            if (shares[i] != 0.0)
                sum += shares[i] * partial_out(merge, i, token, head)[e];
        }
        out[e] = (float)sum;
    }
    if (merge->lse.data != NULL)
        *kvpi_row_out(&merge->lse, token, head) = (float)lse;
}

void kvpi_reference_merge(const kvp_merge *merge)
{
    for (uint32_t token = 0; token < merge->n_tokens; token++) {
        for (uint32_t head = 0; head < merge->n_heads; head++)
            merge_reference_row(merge, token, head);
    }
}
