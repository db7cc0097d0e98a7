/* fast: items of a plan, computed tile after tile, block after block.
 *
 * An item goes along its keys, and for each tile of 64 over all of its heads: a block is read from
 * end to end, while what comes next is already asked for. Going head by head instead would read
 * every block H times in small pieces, which takes three to five times as long when KV lies in
 * memory. The state that this takes (sums of all heads) stays in the second cache.
 *
 * Threads take items from a counter. Each item leaves its result in a place of its own, and what is
 * merged is merged in the order of its keys: nothing depends on who computed it, or when.
 */
#include "attention/fast/fast.h"

#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "attention/kernels/cpu.h"
#include "attention/shape.h"
#include "attention/attention_team.h"

enum { MAX_PARTS = 32 /* taken in at once */ };

static const double log2_e = 1.4426950408889634074, ln_2 = 0.69314718055994530942;

/* -------------------------------------------------------------------------------------- scratch */

static uint32_t pad(uint32_t n, uint32_t to)
{
    return (n + to - 1) / to * to;
}

/* A path for the type of the layer, if K is used as it is stored. */
static const struct kvpi_path *path_of(const struct kvpi_kernels *kernels,
                                       const kvp_attention *attention)
{
    const struct kvpi_path *path = NULL;
    if (attention->rope.mode != KVP_ROPE_AT_READ) {
        switch (attention->layer->type) {
        case KVP_F16: path = kernels->f16; break;
        case KVP_BF16: path = kernels->bf16; break;
        case KVP_INT8: path = kernels->int8; break;
        case KVP_Q8_0: path = kernels->q8_0; break;
        default: break;
        }
    }
    return path != NULL ? path : kernels->f32;
}

/* Bytes of a row, whole lines: what of it is asked for. */
static uint32_t line_bytes(uint32_t type, uint32_t dims)
{
    return (uint32_t)((kvpi_row_bytes(type, dims) + KVPI_LINE - 1) / KVPI_LINE * KVPI_LINE);
}

/* The largest item's queries. */
static uint32_t most_queries(const kvp_attention *attention)
{
    const uint32_t tile = kvpi_plan_tile_queries(attention);
    return attention->n_tokens < tile ? (attention->n_tokens > 0 ? attention->n_tokens : 1) : tile;
}

static void desk_scratch(struct kvpi_desk *desk, const struct kvpi_fast *fast,
                         const kvp_attention *attention, struct kvpi_scratch *scratch)
{
    const uint32_t n_heads = attention->layer->n_heads, queries = most_queries(attention);
    const uint64_t one_head = fast->max_rows;
    const uint64_t some_heads = (uint64_t)n_heads * pad(64, fast->path->row_pad);
    const uint64_t rows = n_heads * one_head < some_heads ? n_heads * one_head
                          : some_heads > one_head         ? some_heads
                                                          : one_head;
    const uint32_t type = fast->path->type;
    const uint32_t n_pairs = kvpi_rope_pairs(&attention->rope, attention->layer->k.size);
    const int at_read = attention->rope.mode == KVP_ROPE_AT_READ;
    const uint64_t max_pieces =
        kvpi_pieces_max(line_bytes(type, fast->dims), line_bytes(type, fast->v_dims));
    uint64_t max_keys = kvpi_levels_max_keys(attention);
    max_keys = max_keys < INT32_MAX ? max_keys : INT32_MAX;
    desk->rows = kvpi_scratch_take(scratch, one_head, fast->dims * sizeof *desk->rows);
    desk->queries = kvpi_scratch_take(scratch, rows, fast->dims * fast->path->query_bytes);
    desk->turn =
        kvpi_scratch_take(scratch, 2 * (uint64_t)n_pairs, (queries + 1) * sizeof *desk->turn);
    desk->s = kvpi_scratch_take(scratch, one_head, KVPI_TILE * sizeof *desk->s);
    desk->sums = kvpi_scratch_take(scratch, rows, fast->v_dims * sizeof *desk->sums);
    desk->largest = kvpi_scratch_take(scratch, rows, sizeof *desk->largest);
    desk->total = kvpi_scratch_take(scratch, rows, sizeof *desk->total);
    desk->masks = kvpi_scratch_take(scratch, 2 * (uint64_t)queries, sizeof *desk->masks);
    desk->reaches = kvpi_scratch_take(scratch, queries, sizeof *desk->reaches);
    desk->places = kvpi_scratch_take(scratch, 2, sizeof *desk->places);
    for (uint32_t i = 0; i < 2; i++)
        desk->pieces[i].at = kvpi_scratch_take(scratch, max_pieces, sizeof *desk->pieces[i].at);
    desk->scales = kvpi_scratch_take(scratch, 2 * KVPI_TILE, sizeof *desk->scales);
    desk->k_memory = kvpi_scratch_take(scratch, KVPI_TILE, kvpi_row_bytes(type, fast->dims));
    desk->v_memory = kvpi_scratch_take(scratch, KVPI_TILE, kvpi_row_bytes(type, fast->v_dims));
    desk->k_rows = kvpi_scratch_take(scratch, KVPI_TILE, sizeof *desk->k_rows);
    desk->v_rows = kvpi_scratch_take(scratch, KVPI_TILE, sizeof *desk->v_rows);
    desk->work = kvpi_scratch_take(scratch, fast->path->work_bytes(fast->dims, fast->v_dims), 1);
    desk->turns.low = kvpi_scratch_take(scratch, at_read ? 2 * KVPI_TILE * (uint64_t)n_pairs : 0,
                                        sizeof *desk->turns.low);
    desk->turns.high =
        kvpi_scratch_take(scratch, at_read ? 2 * (uint64_t)n_pairs : 0, sizeof *desk->turns.high);
    desk->turns.turns = kvpi_scratch_take(scratch, at_read ? 2 * KVPI_TILE * (uint64_t)n_pairs : 0,
                                          sizeof *desk->turns.turns);
    desk->list = kvpi_scratch_take(scratch, max_keys, sizeof *desk->list);
}

void kvpi_fast_scratch(struct kvpi_fast *out, const kvp_attention *attention,
                       const struct kvpi_kernels *kernels, struct kvpi_scratch *scratch)
{
    const uint32_t group = attention->n_heads / attention->layer->n_heads;
    const uint32_t n_pairs = kvpi_rope_pairs(&attention->rope, attention->layer->k.size);
    const uint64_t n_parts = kvpi_plan_max_parts(attention);
    out->kernels = kernels;
    out->path = path_of(kernels, attention);
    out->n_threads = attention->team != NULL ? attention->team->n_threads : 1;
    out->dims = pad(attention->layer->k.size, out->path->dims_pad);
    out->v_dims = pad(attention->v_size, out->path->dims_pad);
    out->max_rows = pad(most_queries(attention) * group, out->path->row_pad);
    out->frequencies = kvpi_scratch_take(scratch, n_pairs, sizeof *out->frequencies);
    kvpi_plan_scratch(&out->plan, attention, scratch);
    out->part_sums = kvpi_scratch_take(
        scratch, n_parts, (size_t)attention->n_heads * out->v_dims * sizeof *out->part_sums);
    out->part_stats = kvpi_scratch_take(scratch, n_parts,
                                        (size_t)attention->n_heads * 2 * sizeof *out->part_stats);
    out->desks = kvpi_scratch_take(scratch, out->n_threads, sizeof *out->desks);
    for (uint32_t i = 0; i < out->n_threads && !scratch->overflow; i++) {
        struct kvpi_desk desk;
        desk_scratch(&desk, out, attention, scratch);
        if (out->desks != NULL)
            out->desks[i] = desk;
    }
}

/* -------------------------------------------------------------------------------------- an item */

/* All that the items of a call have in common. */
struct call {
    struct kvpi_fast *fast;
    const struct kvpi_batch *batch;
    const kvp_attention *attention;
    const kvp_layer *layer;
    const kvp_layer_part *v_part;
    struct kvpi_rope rope;
    uint32_t group;
    float q_scale; /* with log2(e), unless there is a soft cap */
    int k_is_direct;
    int v_is_direct;
    int asks_in_order; /* of addresses */
    atomic_uint_fast64_t next_item;
    uint64_t n_queries;
};

/* One item on its way. */
struct job {
    struct call *call;
    struct kvpi_desk *desk;
    struct kvpi_item item;
    struct kvpi_keys keys; /* of the segment's sequence */
    const struct kvpi_path *path;
    uint32_t n_rows; /* of a head */
    uint32_t padded_rows;
    uint32_t n_listed; /* keys in the list */
};

static uint32_t query_index(const struct job *job, uint32_t query)
{
    return job->item.segment->first_query + job->item.first_query + query;
}

/* The position that a query is turned to. */
static double position_of(const struct job *job, uint32_t query)
{
    const struct call *call = job->call;
    const struct kvpi_plan *plan = &call->fast->plan;
    const uint32_t index = query_index(job, query);
    struct kvpi_keys keys;
    if (call->rope.mode == KVP_ROPE_AT_WRITE)
        return call->attention->positions[plan->token_of[index]];
    if (job->item.segment->is_listed)
        return job->n_listed - 1.0;
    (void)kvpi_keys_make(&keys, call->batch, (uint32_t)plan->seq_of[index]);
    return kvpi_keys_reach(&keys, (uint32_t)plan->token_of[index] - keys.first_query).end - 1.0;
}

static double *turn_of(const struct job *job, uint32_t query)
{
    return job->desk->turn + 2 * (size_t)query * job->call->rope.n_pairs;
}

static void set_query_turn(const struct kvpi_rope *rope, double position, double *turn)
{
    for (uint32_t pair = 0; pair < rope->n_pairs; pair++) {
        const double angle = position * rope->frequencies[pair];
        turn[2 * (size_t)pair] = cos(angle) * rope->magnitude;
        turn[2 * (size_t)pair + 1] = sin(angle) * rope->magnitude;
    }
}

/* Turns of the item's queries. Where one follows another, its turn is the other's, one further:
 * a few of the hundred thousand sines that would be most of the work. */
static void set_turns(const struct job *job)
{
    const struct kvpi_rope *rope = &job->call->rope;
    double *one = turn_of(job, job->item.n_queries);
    double before = -2.0;
    for (uint32_t pair = 0; pair < rope->n_pairs && job->item.n_queries > 1; pair++) {
        one[2 * (size_t)pair] = cos(rope->frequencies[pair]);
        one[2 * (size_t)pair + 1] = sin(rope->frequencies[pair]);
    }
    for (uint32_t query = 0; query < job->item.n_queries && rope->n_pairs > 0; query++) {
        const double position = position_of(job, query);
        double *turn = turn_of(job, query);
        const double *last = turn - 2 * (size_t)rope->n_pairs;
        if (position != before + 1.0)
            set_query_turn(rope, position, turn);
        for (size_t i = 0; i < 2 * (size_t)rope->n_pairs && position == before + 1.0; i += 2) {
            turn[i] = last[i] * one[i] - last[i + 1] * one[i + 1];
            turn[i + 1] = last[i] * one[i + 1] + last[i + 1] * one[i];
        }
        before = position;
    }
}

static void turn_query(const struct job *job, const double *turn, float *row)
{
    const struct kvpi_rope *rope = &job->call->rope;
    const uint32_t step = rope->is_interleaved ? 2 : 1;
    const uint32_t apart = rope->is_interleaved ? 1 : rope->n_pairs;
    for (uint32_t pair = 0; pair < rope->n_pairs; pair++) {
        float *x = row + rope->first_dim + (size_t)pair * step, *y = x + apart;
        const double c = turn[2 * (size_t)pair], s = turn[2 * (size_t)pair + 1];
        const double turned = *x * c - *y * s;
        *y = (float)(*x * s + *y * c);
        *x = (float)turned;
    }
}

/* A query head as the kernels want it. */
static void load_row(const struct job *job, uint32_t query, uint32_t head, float *out)
{
    const struct call *call = job->call;
    const uint32_t token = (uint32_t)call->fast->plan.token_of[query_index(job, query)];
    const uint32_t size = call->layer->k.size;
    memcpy(out, kvpi_shape_row(&call->attention->q, token, head), size * sizeof *out);
    turn_query(job, turn_of(job, query), out);
    for (uint32_t e = 0; e < size; e++)
        out[e] *= call->q_scale;
    memset(out + size, 0, (call->fast->dims - size) * sizeof *out);
}

static void *packed_queries(const struct job *job, uint32_t head)
{
    const size_t rows = (size_t)(head - job->item.first_head) * job->padded_rows;
    return job->desk->queries + rows * job->call->fast->dims * job->path->query_bytes;
}

/* Rows of a head: query after query, the heads of the group side by side. */
static void load_queries(const struct job *job)
{
    const struct call *call = job->call;
    const struct kvpi_fast *fast = call->fast;
    const uint32_t group = call->group;
    float *rows = job->desk->rows;
    set_turns(job);
    for (uint32_t h = 0; h < job->item.n_heads; h++) {
        const uint32_t head = job->item.first_head + h;
        for (uint32_t query = 0; query < job->item.n_queries; query++) {
            for (uint32_t g = 0; g < group; g++)
                load_row(job, query, head * group + g,
                         rows + ((size_t)query * group + g) * fast->dims);
        }
        memset(rows + (size_t)job->n_rows * fast->dims, 0,
               (size_t)(job->padded_rows - job->n_rows) * fast->dims * sizeof *rows);
        job->path->pack(rows, job->padded_rows, fast->dims, packed_queries(job, head));
    }
}

static void begin_state(const struct job *job)
{
    const struct kvpi_desk *desk = job->desk;
    const size_t n = (size_t)job->item.n_heads * job->padded_rows;
    memset(desk->sums, 0, n * job->call->fast->v_dims * sizeof *desk->sums);
    for (size_t i = 0; i < n; i++) {
        desk->largest[i] = -FLT_MAX;
        desk->total[i] = 0.0f;
    }
}

/* What each of the item's queries can see, and between what all of them lies. */
static void find_reaches(const struct job *job, struct kvpi_walk *walk)
{
    struct kvpi_reach *reaches = job->desk->reaches, all = {0, UINT32_MAX, 0};
    for (uint32_t i = 0; i < job->item.n_queries; i++) {
        reaches[i] = kvpi_keys_reach(&job->keys, job->item.first_query + i);
        all.sink_end = reaches[i].sink_end > all.sink_end ? reaches[i].sink_end : all.sink_end;
        all.first = reaches[i].first < all.first ? reaches[i].first : all.first;
        all.end = reaches[i].end > all.end ? reaches[i].end : all.end;
    }
    const uint32_t end = all.end > all.sink_end ? all.end : all.sink_end;
    walk->reaches = reaches;
    walk->all = all;
    walk->end = end < walk->end ? end : walk->end;
}

/* What the item's queries can see of its keys. */
static struct kvpi_walk begin_walk(struct job *job)
{
    const struct kvpi_segment *segment = job->item.segment;
    struct kvpi_walk walk = {.layer = job->call->layer,
                             .keys = &job->keys,
                             .n_queries = job->item.n_queries,
                             .first_query = job->item.first_query,
                             .next = job->item.key_begin,
                             .end = job->item.key_end};
    if (segment->is_listed) {
        job->n_listed = kvpi_keys_seen(&job->keys, job->item.first_query, job->desk->list);
        walk.list = job->desk->list;
        walk.next = 0;
        walk.end = job->n_listed;
    } else if (!segment->is_shared) {
        find_reaches(job, &walk);
    }
    return walk;
}

/* ---------------------------------------------------------------------------------------- tiles */

static struct kvpi_tile_rows direct_rows(const kvp_layer_part *part,
                                         const unsigned char *const *rows,
                                         const struct kvpi_places *places, uint32_t head)
{
    return (struct kvpi_tile_rows){
        .rows = rows,
        .offset = head * part->head_stride,
        .stride = places->is_even ? part->token_stride : 0,
    };
}

static struct kvpi_tile_rows staged_rows(const struct job *job, int which,
                                         const struct kvpi_places *places, uint32_t head)
{
    const struct call *call = job->call;
    const struct kvpi_fast *fast = call->fast;
    struct kvpi_desk *desk = job->desk;
    const int is_v = which == KVP_V;
    const uint32_t dims = is_v ? fast->v_dims : fast->dims;
    const struct kvpi_staging staging = {.kernels = fast->kernels,
                                         .layer = call->layer,
                                         .type = fast->path->type,
                                         .size =
                                             is_v ? call->attention->v_size : call->layer->k.size,
                                         .row_bytes = kvpi_row_bytes(fast->path->type, dims),
                                         .memory = is_v ? desk->v_memory : desk->k_memory,
                                         .rows = is_v ? desk->v_rows : desk->k_rows};
    const int turns = !is_v && call->rope.mode == KVP_ROPE_AT_READ;
    kvpi_stage(&staging, is_v ? call->v_part : &call->layer->k, places,
               is_v ? places->v : places->k, head, turns ? &desk->turns : NULL);
    return (struct kvpi_tile_rows){.rows = staging.rows, .stride = staging.row_bytes};
}

/* Scales of elements that a kernel multiplies as they are. */
static void put_scales(const struct job *job, struct kvpi_tile *tile,
                       const struct kvpi_places *places, uint32_t head)
{
    const struct call *call = job->call;
    if (call->fast->path->type == KVP_F32 ||
        (call->layer->k.scales == NULL && call->v_part->scales == NULL))
        return;
    memset(job->desk->scales, 0, 2 * KVPI_TILE * sizeof *job->desk->scales);
    if (kvpi_scales(&call->layer->k, places, head, job->desk->scales))
        tile->k.scales = job->desk->scales;
    if (kvpi_scales(call->v_part, places, head, job->desk->scales + KVPI_TILE))
        tile->v.scales = job->desk->scales + KVPI_TILE;
}

/* What K, or V, is cut into: nothing where it is not used as it lies, or lies in the other. */
static void cut_tile(const struct job *job, uint32_t which, uint32_t head)
{
    const struct call *call = job->call;
    const struct kvpi_places *places = &job->desk->places[which];
    const uint32_t type = call->fast->path->type;
    const int cuts_v = call->v_is_direct && call->layer->v.base != NULL;
    const struct kvpi_cut k = {.part = &call->layer->k,
                               .rows = places->k,
                               .row_bytes =
                                   call->k_is_direct ? line_bytes(type, call->fast->dims) : 0};
    const struct kvpi_cut v = {.part = call->v_part,
                               .rows = places->v,
                               .row_bytes = cuts_v ? line_bytes(type, call->fast->v_dims) : 0};
    const enum kvpi_order order = job->path->asks_early ? KVPI_EARLY
                                  : call->asks_in_order ? KVPI_IN_ORDER
                                                        : KVPI_IN_COLUMNS;
    kvpi_pieces_make(&job->desk->pieces[which], places, &k, &v, head, order);
}

/* The next head of this tile, or the first head of the next tile, is what comes next. */
static void begin_ahead(const struct job *job, uint32_t head, uint32_t now, struct kvpi_ahead *out)
{
    struct kvpi_pieces *pieces = &job->desk->pieces[now], *next = &job->desk->pieces[1 - now];
    const int is_first = head == job->item.first_head;
    const int is_last = head + 1 == job->item.first_head + job->item.n_heads;
    const int is_anew = !is_first && !kvpi_pieces_fit_all_heads(pieces);
    if (is_anew)
        cut_tile(job, now, head);
    if (is_first || is_last || is_anew)
        kvpi_pieces_put_next(pieces, head, is_last ? next : NULL);
    kvpi_ahead_begin(pieces, head, out);
}

static uint64_t *masks_of(const struct job *job, uint32_t which)
{
    return job->desk->masks + (size_t)which * job->item.n_queries;
}

static struct kvpi_softmax softmax_of(const struct job *job, uint32_t head, uint32_t now)
{
    const struct kvpi_desk *desk = job->desk;
    const uint32_t v_dims = job->call->fast->v_dims;
    const struct kvpi_places *places = &desk->places[now];
    const size_t at = (size_t)(head - job->item.first_head) * job->padded_rows;
    return (struct kvpi_softmax){.n_rows = job->n_rows,
                                 .n_keys = places->n_keys,
                                 .group = job->call->group,
                                 .v_dims = v_dims,
                                 .cap = (float)job->call->attention->soft_cap,
                                 .slack = job->path->slack,
                                 .masks = places->has_masks ? masks_of(job, now) : NULL,
                                 .s = desk->s,
                                 .largest = desk->largest + at,
                                 .total = desk->total + at,
                                 .sums = desk->sums + at * v_dims};
}

static void run_head(const struct job *job, uint32_t head, uint32_t now)
{
    const struct call *call = job->call;
    const struct kvpi_path *path = job->path;
    const struct kvpi_places *places = &job->desk->places[now];
    const struct kvpi_softmax softmax = softmax_of(job, head, now);
    struct kvpi_ahead ahead;
    struct kvpi_tile tile = {.n_rows = job->padded_rows,
                             .n_used = job->n_rows,
                             .n_keys = places->n_keys,
                             .type = path->type,
                             .dims = call->fast->dims,
                             .v_dims = call->fast->v_dims,
                             .queries = packed_queries(job, head),
                             .work = job->desk->work,
                             .ahead = &ahead};
    tile.k = call->k_is_direct ? direct_rows(&call->layer->k, places->k, places, head)
                               : staged_rows(job, KVP_K, places, head);
    tile.v = call->v_is_direct ? direct_rows(call->v_part, places->v, places, head)
                               : staged_rows(job, KVP_V, places, head);
    put_scales(job, &tile, places, head);
    begin_ahead(job, head, now, &ahead);
    if (path->attend != NULL) {
        path->attend(&tile, &softmax);
        return;
    }
    path->scores(&tile, softmax.s);
    call->fast->kernels->softmax(&softmax);
    path->values(&tile, softmax.s, softmax.sums);
}

static int next_tile(struct job *job, struct kvpi_walk *walk, uint32_t which)
{
    const int there = kvpi_walk_next(walk, &job->desk->places[which], masks_of(job, which));
    cut_tile(job, which, job->item.first_head);
    return there;
}

static void run_tiles(struct job *job, struct kvpi_walk *walk)
{
    struct kvpi_desk *desk = job->desk;
    uint32_t now = 0;
    int there = next_tile(job, walk, now);
    while (there) {
        const struct kvpi_places *places = &desk->places[now];
        there = next_tile(job, walk, 1 - now);
        if (job->call->rope.mode == KVP_ROPE_AT_READ)
            kvpi_turns_tile(&desk->turns, places->first, places->n_keys);
        for (uint32_t h = 0; h < job->item.n_heads; h++)
            run_head(job, job->item.first_head + h, now);
        now = 1 - now;
    }
}

/* -------------------------------------------------------------------------------------- results */

/* Partial results of one query and head. */
struct parts {
    uint32_t n;
    const float *sums[MAX_PARTS];
    float largest[MAX_PARTS];
    float total[MAX_PARTS];
};

/* Shares of the parts in the sum of all, the sink among them; gives lse. */
static float share_out(const struct parts *parts, float sink, float *shares)
{
    const double sink_2 = sink * log2_e;
    double largest = sink_2, total = 0.0;
    for (uint32_t i = 0; i < parts->n; i++) {
        if (parts->total[i] != 0.0f && !(parts->largest[i] <= largest))
            largest = parts->largest[i];
    }
    if (largest == -INFINITY) {
        for (uint32_t i = 0; i < parts->n; i++)
            shares[i] = 0.0f;
        return -INFINITY;
    }
    for (uint32_t i = 0; i < parts->n; i++) {
        const double share = parts->total[i] == 0.0f ? 0.0 : exp2(parts->largest[i] - largest);
        shares[i] = (float)share;
        total += share * parts->total[i];
    }
    total += exp2(sink_2 - largest);
    for (uint32_t i = 0; i < parts->n; i++)
        shares[i] = (float)(shares[i] / total);
    return (float)((largest + log2(total)) * ln_2);
}

static void write_result(const struct call *call, uint32_t token, uint32_t head,
                         const struct parts *parts)
{
    const kvp_attention *attention = call->attention;
    float shares[MAX_PARTS];
    const float sink = attention->sink_logits != NULL ? attention->sink_logits[head] : -INFINITY;
    const float lse = share_out(parts, sink, shares);
    call->fast->kernels->combine(parts->sums, shares, parts->n, attention->v_size,
                                 kvpi_row_out(&attention->out, token, head));
    if (attention->lse.data != NULL)
        *kvpi_row_out(&attention->lse, token, head) = lse;
}

/* The item was all of its queries' keys. */
static void write_whole(const struct job *job, uint32_t query, uint32_t head, size_t row)
{
    const struct kvpi_fast *fast = job->call->fast;
    const uint32_t token = (uint32_t)fast->plan.token_of[query_index(job, query)];
    const struct parts parts = {.n = 1,
                                .sums = {job->desk->sums + row * fast->v_dims},
                                .largest = {job->desk->largest[row]},
                                .total = {job->desk->total[row]}};
    write_result(job->call, token, head, &parts);
}

static uint64_t part_index(const struct kvpi_segment *segment, uint32_t split, uint32_t query)
{
    return segment->first_part + (uint64_t)split * segment->n_queries + query;
}

static void write_part(const struct job *job, uint32_t query, uint32_t head, size_t row)
{
    const struct kvpi_fast *fast = job->call->fast;
    const uint64_t part =
        part_index(job->item.segment, job->item.split, job->item.first_query + query);
    const uint64_t at = part * job->call->attention->n_heads + head;
    memcpy(fast->part_sums + at * fast->v_dims, job->desk->sums + row * fast->v_dims,
           fast->v_dims * sizeof *fast->part_sums);
    fast->part_stats[2 * at] = job->desk->largest[row];
    fast->part_stats[2 * at + 1] = job->desk->total[row];
}

static void end_item(const struct job *job)
{
    const struct kvpi_fast *fast = job->call->fast;
    const uint32_t group = job->call->group;
    const int is_whole = kvpi_plan_is_whole(&fast->plan, job->item.segment);
    for (uint32_t h = 0; h < job->item.n_heads; h++) {
        for (uint32_t i = 0; i < job->n_rows; i++) {
            const size_t row = (size_t)h * job->padded_rows + i;
            const uint32_t head = (job->item.first_head + h) * group + i % group;
            if (job->path->order != NULL)
                job->path->order(job->desk->sums + row * fast->v_dims, fast->v_dims,
                                 job->desk->rows);
            if (is_whole)
                write_whole(job, i / group, head, row);
            else
                write_part(job, i / group, head, row);
        }
    }
}

static void run_piece(struct call *call, struct kvpi_desk *desk, uint64_t index)
{
    struct job job = {.call = call, .desk = desk, .item = kvpi_plan_item(&call->fast->plan, index)};
    (void)kvpi_keys_make(&job.keys, call->batch, job.item.segment->seq);
    job.n_rows = job.item.n_queries * call->group;
    job.path = call->fast->path;
    if (job.path->few != NULL && job.n_rows <= job.path->few_rows)
        job.path = job.path->few;
    job.padded_rows = pad(job.n_rows, job.path->row_pad);
    struct kvpi_walk walk = begin_walk(&job);
    load_queries(&job);
    begin_state(&job);
    if (job.path->begin != NULL)
        job.path->begin(job.padded_rows);
    run_tiles(&job, &walk);
    if (job.path->end != NULL)
        job.path->end();
    end_item(&job);
}

/* ---------------------------------------------------------------------------------------- merge */

/* Parts that have been taken in become one, in the memory of the first. */
static void fold(const struct call *call, struct parts *parts, float *sums)
{
    const struct kvpi_fast *fast = call->fast;
    float shares[MAX_PARTS], largest = -FLT_MAX, total = 0.0f;
    for (uint32_t i = 0; i < parts->n; i++) {
        if (parts->total[i] != 0.0f && !(parts->largest[i] <= largest))
            largest = parts->largest[i];
    }
    for (uint32_t i = 0; i < parts->n; i++) {
        shares[i] = parts->total[i] == 0.0f ? 0.0f : exp2f(parts->largest[i] - largest);
        total += shares[i] * parts->total[i];
    }
    fast->kernels->combine(parts->sums, shares, parts->n, fast->v_dims, sums);
    *parts = (struct parts){.n = 1, .sums = {sums}, .largest = {largest}, .total = {total}};
}

/* A query's results in the order of its keys. */
static void merge_head(const struct call *call, uint32_t index, uint32_t head)
{
    const struct kvpi_fast *fast = call->fast;
    const struct kvpi_plan *plan = &fast->plan;
    const uint32_t seq = (uint32_t)plan->seq_of[index];
    struct parts parts = {.n = 0};
    float *first = NULL;
    for (uint32_t depth = 0; depth < plan->depths[seq]; depth++) {
        const struct kvpi_segment *segment =
            &plan->segments[plan->seq_segments[(size_t)depth * call->attention->n_seqs + seq]];
        for (uint32_t split = 0; split < segment->n_splits; split++) {
            const uint64_t part = part_index(segment, split, index - segment->first_query);
            const uint64_t at = part * call->attention->n_heads + head;
            float *sums = fast->part_sums + at * fast->v_dims;
            first = first == NULL ? sums : first;
            if (parts.n == MAX_PARTS)
                fold(call, &parts, first);
            parts.sums[parts.n] = sums;
            parts.largest[parts.n] = fast->part_stats[2 * at];
            parts.total[parts.n++] = fast->part_stats[2 * at + 1];
        }
    }
    write_result(call, (uint32_t)plan->token_of[index], head, &parts);
}

static void merge_query(const struct call *call, uint32_t index)
{
    const struct kvpi_plan *plan = &call->fast->plan;
    const uint32_t seq = (uint32_t)plan->seq_of[index];
    const uint32_t last = plan->depths[seq] - 1;
    const int32_t segment = plan->seq_segments[(size_t)last * call->attention->n_seqs + seq];
    if (kvpi_plan_is_whole(plan, &plan->segments[segment]))
        return;
    for (uint32_t head = 0; head < call->attention->n_heads; head++)
        merge_head(call, index, head);
}

/* ------------------------------------------------------------------------------------ the whole */

/* Relaxed: the numbers only have to differ; what an item wrote is seen after the team's run. */
static uint64_t take_item(struct call *call)
{
    return atomic_fetch_add_explicit(&call->next_item, 1, memory_order_relaxed);
}

static void work_on_items(void *context, uint32_t index, uint32_t n)
{
    struct call *call = context;
    struct kvpi_desk *desk = &call->fast->desks[index];
    (void)n;
    desk->turns.rope = &call->rope;
    if (call->rope.mode == KVP_ROPE_AT_READ)
        kvpi_turns_begin(&desk->turns);
    for (uint64_t item = take_item(call); item < call->fast->plan.n_items; item = take_item(call))
        run_piece(call, desk, item);
}

static void work_on_merges(void *context, uint32_t index, uint32_t n)
{
    const struct call *call = context;
    const uint64_t from = call->n_queries * index / n, to = call->n_queries * (index + 1) / n;
    for (uint64_t query = from; query < to; query++)
        merge_query(call, (uint32_t)query);
}

static void run_all(struct call *call, kvp_attention_work work)
{
    kvpi_attn_team_run(call->attention->team, work, call);
}

/* Rows that a kernel can use as they lie. */
static int is_direct(const struct call *call, const kvp_layer_part *part, uint32_t size,
                     uint32_t padded)
{
    return call->fast->path->type == call->layer->type && part->run == part->size &&
           size == padded && !(call->layer->type == KVP_F32 && part->scales != NULL);
}

void kvpi_fast_attention(struct kvpi_fast *fast, const struct kvpi_batch *batch,
                         const int32_t *places)
{
    const kvp_attention *attention = batch->attention;
    const kvp_layer *layer = attention->layer;
    struct call call = {.fast = fast,
                        .batch = batch,
                        .attention = attention,
                        .layer = layer,
                        .v_part = layer->v.base != NULL ? &layer->v : &layer->k,
                        .group = attention->n_heads / layer->n_heads,
                        .n_queries = (uint32_t)attention->query_start[attention->n_seqs]};
    call.q_scale =
        (float)(attention->soft_cap > 0.0 ? attention->scale : attention->scale * log2_e);
    kvpi_rope_make(&call.rope, &attention->rope, layer->k.size, fast->frequencies);
    call.k_is_direct = call.rope.mode != KVP_ROPE_AT_READ &&
                       is_direct(&call, &layer->k, layer->k.size, fast->dims);
    call.v_is_direct = is_direct(&call, call.v_part, attention->v_size, fast->v_dims);
    call.asks_in_order = (kvpi_cpu() & KVPI_CPU_AMD) != 0;
    atomic_init(&call.next_item, 0);
    kvpi_plan_make(&fast->plan, batch, places);
    run_all(&call, work_on_items);
    if (fast->plan.n_parts > 0)
        run_all(&call, work_on_merges);
}

/* Partial results of the caller's. */
static void merge_row(const kvp_merge *merge, const struct kvpi_kernels *kernels, uint32_t token,
                      uint32_t head)
{
    const struct kvpi_shape out = {merge->n_tokens, merge->n_heads, merge->size};
    const struct kvpi_shape lse = {merge->n_tokens, merge->n_heads, 1};
    const float *rows[KVP_MERGE_MAX];
    double largest = -INFINITY, total = 0.0, found[KVP_MERGE_MAX];
    float shares[KVP_MERGE_MAX];
    for (uint32_t i = 0; i < merge->n_partials; i++) {
        kvp_rows outs = merge->partials[i].out, lses = merge->partials[i].lse;
        kvpi_rows_resolve(&outs, &out);
        kvpi_rows_resolve(&lses, &lse);
        rows[i] = kvpi_shape_row(&outs, token, head);
        found[i] = *kvpi_shape_row(&lses, token, head);
        largest = found[i] <= largest ? largest : found[i];
    }
    for (uint32_t i = 0; i < merge->n_partials; i++) {
        found[i] = found[i] == -INFINITY ? 0.0 : exp(found[i] - largest);
        total += found[i];
    }
    for (uint32_t i = 0; i < merge->n_partials; i++)
        shares[i] = total != 0.0 ? (float)(found[i] / total) : 0.0f;
    kernels->combine(rows, shares, merge->n_partials, merge->size,
                     kvpi_row_out(&merge->out, token, head));
    if (merge->lse.data != NULL)
        *kvpi_row_out(&merge->lse, token, head) =
            (float)(total != 0.0 ? largest + log(total) : -INFINITY);
}

void kvpi_fast_merge(const kvp_merge *merge, const struct kvpi_kernels *kernels)
{
    for (uint32_t token = 0; token < merge->n_tokens; token++) {
        for (uint32_t head = 0; head < merge->n_heads; head++)
            merge_row(merge, kernels, token, head);
    }
}
