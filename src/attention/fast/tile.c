/* tile: see tile.h. */
#include "attention/fast/tile.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* ------------------------------------------------------------------------------------ addresses */

/* Key i has been put behind the others. */
static void note_key(const kvp_layer *layer, struct kvpi_places *places, uint32_t i)
{
    const size_t k_stride = layer->k.token_stride;
    const size_t v_stride = layer->v.base != NULL ? layer->v.token_stride : k_stride;
    if (i == 0)
        places->is_even = places->is_one_block = 1;
    else if (places->block[i] != places->block[i - 1])
        places->is_one_block = 0;
    if (i % 16 != 0 && (places->k[i] != places->k[i - 1] + k_stride ||
                        places->v[i] != places->v[i - 1] + v_stride))
        places->is_even = 0;
}

static const unsigned char *row_of(const kvp_layer_part *part, const struct kvpi_span *span)
{
    return part->base + (size_t)span->block * part->block_stride +
           (size_t)span->offset * part->token_stride;
}

/* The first `n` keys of the span. */
static void put_span(const kvp_layer *layer, struct kvpi_places *places,
                     const struct kvpi_span *span, uint32_t n)
{
    const kvp_layer_part *k_part = &layer->k, *v_part = layer->v.base != NULL ? &layer->v : k_part;
    const unsigned char *k = row_of(k_part, span), *v = row_of(v_part, span);
    const uint32_t first = places->n_keys;
    for (uint32_t i = 0; i < n; i++) {
        places->block[first + i] = span->block;
        places->k[first + i] = k + i * k_part->token_stride;
        places->v[first + i] = v + i * v_part->token_stride;
    }
    places->n_keys += n;
    note_key(layer, places, first);
}

/* Keys [from, to), which follow each other in a list or by number. */
static void put_keys(const struct kvpi_walk *walk, struct kvpi_places *places, uint32_t from,
                     uint32_t to)
{
    places->n_keys = 0;
    while (from < to && walk->list != NULL) {
        const struct kvpi_span span = kvpi_keys_span(walk->keys, walk->list[from++]);
        put_span(walk->layer, places, &span, 1);
    }
    while (from < to) {
        const struct kvpi_span span = kvpi_keys_span(walk->keys, from);
        const uint32_t n = to - from < span.n_keys ? to - from : span.n_keys;
        put_span(walk->layer, places, &span, n);
        from += n;
    }
}

static void pad_places(struct kvpi_places *places)
{
    for (uint32_t i = places->n_keys; i % 16 != 0; i++) {
        places->k[i] = places->k[0];
        places->v[i] = places->v[0];
    }
}

/* ---------------------------------------------------------------------------------------- masks */

/* Bits of the keys [from, to) that lie in [begin, end), bit 0 for `from`. */
static uint64_t bits_between(uint32_t from, uint32_t to, uint32_t begin, uint32_t end)
{
    const uint32_t low = begin > from ? begin : from, high = end < to ? end : to;
    if (low >= high)
        return 0;
    return UINT64_MAX >> (KVPI_TILE - (high - low)) << (low - from);
}

static uint64_t mask_of(const struct kvpi_walk *walk, uint32_t query, uint32_t from, uint32_t to)
{
    const struct kvpi_reach *reach = &walk->reaches[query];
    uint64_t mask = bits_between(from, to, 0, reach->sink_end) |
                    bits_between(from, to, reach->first, reach->end);
    if (!kvpi_keys_have_mask(walk->keys))
        return mask;
    if (walk->keys->bits == NULL && to <= walk->keys->n_committed)
        return mask;
    for (uint32_t key = from; key < to; key++) {
        const uint64_t bit = UINT64_C(1) << (key - from);
        if ((mask & bit) != 0 && !kvpi_keys_may_see(walk->keys, walk->first_query + query, key))
            mask &= ~bit;
    }
    return mask;
}

/* Bits of `mask` where `kept` has some, side by side. */
static uint64_t squeeze(uint64_t mask, uint64_t kept)
{
    uint64_t out = 0;
    for (uint32_t n = 0; kept != 0; kept &= kept - 1, n++)
        out |= (mask & kept & (~kept + 1)) != 0 ? UINT64_C(1) << n : 0;
    return out;
}

static void drop_keys(const kvp_layer *layer, struct kvpi_places *places, uint64_t kept)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < places->n_keys; i++) {
        if ((kept >> i & 1) == 0)
            continue;
        places->block[n] = places->block[i];
        places->k[n] = places->k[i];
        places->v[n] = places->v[i];
        note_key(layer, places, n++);
    }
    places->n_keys = n;
}

/* Who sees which of the keys [from, to); those that no query sees are dropped. */
static void mask_keys(const struct kvpi_walk *walk, struct kvpi_places *places, uint64_t *masks,
                      uint32_t from)
{
    assert(places->n_keys > 0);
    const uint32_t to = from + places->n_keys;
    const uint64_t all = UINT64_MAX >> (KVPI_TILE - places->n_keys);
    uint64_t any = 0, every = all;
    for (uint32_t query = 0; query < walk->n_queries; query++) {
        masks[query] = mask_of(walk, query, from, to);
        any |= masks[query];
        every &= masks[query];
    }
    places->has_masks = every != all;
    if (any == all)
        return;
    drop_keys(walk->layer, places, any);
    for (uint32_t query = 0; query < walk->n_queries; query++)
        masks[query] = squeeze(masks[query], any);
}

/* From where on the next tile may look, and how far: what lies between the sinks and the first
 * window is not even there. */
static uint32_t skip_gap(struct kvpi_walk *walk, uint32_t to)
{
    if (walk->reaches == NULL)
        return to;
    const uint32_t sink_end = walk->all.sink_end, first = walk->all.first;
    if (walk->next >= sink_end && walk->next < first)
        walk->next = first;
    return walk->next < sink_end && sink_end < first && to > sink_end ? sink_end : to;
}

int kvpi_walk_next(struct kvpi_walk *walk, struct kvpi_places *places, uint64_t *masks)
{
    places->n_keys = places->is_even = places->is_one_block = 0;
    while (walk->next < walk->end && places->n_keys == 0) {
        uint32_t to = skip_gap(walk, walk->end);
        if (walk->next >= to)
            return 0;
        const uint32_t from = walk->next;
        to = to - from > KVPI_TILE ? from + KVPI_TILE : to;
        put_keys(walk, places, from, to);
        places->first = from;
        places->has_masks = 0;
        if (walk->reaches != NULL)
            mask_keys(walk, places, masks, from);
        walk->next = to;
    }
    if (places->n_keys > 0)
        pad_places(places);
    return places->n_keys > 0;
}

/* ---------------------------------------------------------------------------------------- turns */

void kvpi_turns_begin(struct kvpi_turns *turns)
{
    const struct kvpi_rope *rope = turns->rope;
    for (uint32_t i = 0; i < KVPI_TILE; i++) {
        for (uint32_t pair = 0; pair < rope->n_pairs; pair++) {
            double *turn = turns->low + 2 * ((size_t)i * rope->n_pairs + pair);
            turn[0] = cos(i * rope->frequencies[pair]);
            turn[1] = sin(i * rope->frequencies[pair]);
        }
    }
}

void kvpi_turns_tile(struct kvpi_turns *turns, uint32_t first, uint32_t n)
{
    const struct kvpi_rope *rope = turns->rope;
    const uint32_t n_pairs = rope->n_pairs;
    for (uint32_t pair = 0; pair < n_pairs; pair++) {
        turns->high[2 * (size_t)pair] = cos(first * rope->frequencies[pair]) * rope->magnitude;
        turns->high[2 * (size_t)pair + 1] = sin(first * rope->frequencies[pair]) * rope->magnitude;
    }
    for (uint32_t i = 0; i < n; i++) {
        const double *low = turns->low + 2 * (size_t)i * n_pairs;
        float *out = turns->turns + 2 * (size_t)i * n_pairs;
        for (uint32_t pair = 0; pair < n_pairs; pair++) {
            const double *a = turns->high + 2 * (size_t)pair, *b = low + 2 * (size_t)pair;
            out[2 * (size_t)pair] = (float)(a[0] * b[0] - a[1] * b[1]);
            out[2 * (size_t)pair + 1] = (float)(a[0] * b[1] + a[1] * b[0]);
        }
    }
}

static void turn_row(const struct kvpi_turns *turns, uint32_t i, float *row)
{
    const struct kvpi_rope *rope = turns->rope;
    const float *turn = turns->turns + 2 * (size_t)i * rope->n_pairs;
    const uint32_t step = rope->is_interleaved ? 2 : 1;
    const uint32_t apart = rope->is_interleaved ? 1 : rope->n_pairs;
    for (uint32_t pair = 0; pair < rope->n_pairs; pair++) {
        float *x = row + rope->first_dim + (size_t)pair * step, *y = x + apart;
        const float c = turn[2 * (size_t)pair], s = turn[2 * (size_t)pair + 1];
        const float turned = *x * c - *y * s;
        *y = *x * s + *y * c;
        *x = turned;
    }
}

/* -------------------------------------------------------------------------------------- staging */

static float scale_of(const kvp_layer_part *part, int32_t block, uint32_t head)
{
    const unsigned char *scales = (const unsigned char *)(const void *)part->scales;
    float scale = 1.0f;
    if (scales != NULL)
        memcpy(&scale,
               scales + (size_t)block * part->scale_block_stride + head * part->scale_head_stride,
               sizeof scale);
    return scale;
}

int kvpi_scales(const kvp_layer_part *part, const struct kvpi_places *places, uint32_t head,
                float *out)
{
    if (part->scales == NULL)
        return 0;
    for (uint32_t i = 0; i < places->n_keys;) {
        const int32_t block = places->block[i];
        const float scale = scale_of(part, block, head);
        const uint32_t end = places->is_one_block ? places->n_keys : i + 1;
        for (; i < end; i++)
            out[i] = scale;
    }
    return 1;
}

/* The first `size` elements of a row, run after run. */
static void stage_row(const struct kvpi_staging *staging, const kvp_layer_part *part,
                      const unsigned char *at, float scale, unsigned char *out)
{
    const size_t element = kvp_type_bytes(staging->layer->type);
    const size_t out_element = kvp_type_bytes(staging->type);
    for (uint32_t from = 0; from < staging->size; from += part->run) {
        const unsigned char *run = at + (size_t)(from / part->run) * part->run_stride;
        const uint32_t left = staging->size - from, n = left < part->run ? left : part->run;
        unsigned char *to = out + from * out_element;
        if (staging->type == staging->layer->type && scale == 1.0f)
            memcpy(to, run, n * element);
        else
            staging->kernels->read(staging->layer->type, scale, run, n, (float *)(void *)to);
    }
    memset(out + staging->size * out_element, 0, staging->row_bytes - staging->size * out_element);
}

void kvpi_stage(const struct kvpi_staging *staging, const kvp_layer_part *part,
                const struct kvpi_places *places, const unsigned char *const *at, uint32_t head,
                const struct kvpi_turns *turns)
{
    const int converts = staging->type == KVP_F32;
    for (uint32_t i = 0; i < places->n_keys; i++) {
        unsigned char *row = staging->memory + i * staging->row_bytes;
        const float scale = converts ? scale_of(part, places->block[i], head) : 1.0f;
        stage_row(staging, part, at[i] + head * part->head_stride, scale, row);
        if (turns != NULL)
            turn_row(turns, i, (float *)(void *)row);
        staging->rows[i] = row;
    }
    for (uint32_t i = places->n_keys; i % 16 != 0; i++)
        staging->rows[i] = staging->memory;
}
