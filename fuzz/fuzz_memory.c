/* Fuzz target: bytes become layouts, and then copies and moves between two of them.
 *
 * A layout that kvp_layout_check passes is taken at its word: every byte of every element is marked
 * in a map of its tensor, by the formula of memory.h; one outside, or marked twice, is a failure.
 * What is copied is compared with plain arrays, indexed by layer, part, block, token, head and
 * element; whole tensors are compared, so that a byte written beside an element shows, too. */
#include <kvpager/memory.h>

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "require.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    MAX_TENSORS = 32,
    MAX_TENSOR_BYTES = 1 << 17,
    MAX_N = 6,
    MAX_S = 4,
    MAX_L = 3,
    MAX_H = 3,
    MAX_D = 16,
    MAX_COPIES = 12,
    MAX_MOVES = 12,
    ROUNDS = 6
};

struct input {
    const uint8_t *at;
    const uint8_t *end;
};

static uint32_t take(struct input *input, uint32_t below)
{
    const uint32_t byte = input->at < input->end ? *input->at++ : 0;
    return byte % below;
}

/* ------------------------------------------------------------------------- where things must be */

static const kvp_part *part_of(const kvp_layout *layout, int which)
{
    const kvp_part *parts[] = {&layout->k, &layout->v, &layout->k_scales, &layout->v_scales};
    return parts[which];
}

static size_t element_bytes(const kvp_layout *layout, int which)
{
    return which < 2 ? kvp_type_bytes(layout->type) : sizeof(float);
}

struct place {
    uint32_t layer;
    int which;
    uint32_t block;
    uint32_t token;
    uint32_t head;
    uint32_t element;
};

/* The formula of memory.h. */
static size_t offset_of(const kvp_layout *layout, const struct place *p, uint64_t *out_tensor)
{
    const kvp_part *part = part_of(layout, p->which);
    *out_tensor = part->tensor + (uint64_t)p->layer * part->tensor_step;
    return part->offset + p->layer * part->layer_stride + p->block * part->block_stride +
           p->token * part->token_stride + p->head * part->head_stride +
           p->element / part->run * part->run_stride +
           p->element % part->run * element_bytes(layout, p->which);
}

/* Goes to the next element of a layout, in an order of its own; 0 when there is none. */
static int next_place(const kvp_layout *layout, struct place *p)
{
    const uint32_t tokens = p->which < 2 ? layout->block_tokens : 1;
    if (++p->element < part_of(layout, p->which)->size) {
        return 1;
    }
    p->element = 0;
    if (++p->head < layout->n_heads) {
        return 1;
    }
    p->head = 0;
    if (++p->token < tokens) {
        return 1;
    }
    p->token = 0;
    if (++p->block < layout->n_blocks) {
        return 1;
    }
    p->block = 0;
    if (++p->layer < layout->n_layers) {
        return 1;
    }
    p->layer = 0;
    do {
        p->which++;
    } while (p->which < 4 && part_of(layout, p->which)->size == 0);
    return p->which < 4;
}

static uint8_t maps[MAX_TENSORS][MAX_TENSOR_BYTES];

static int is_small(const kvp_layout *layout)
{
    for (int i = 0; i < 4; i++) {
        if (part_of(layout, i)->size && part_of(layout, i)->tensor_bytes > MAX_TENSOR_BYTES) {
            return 0;
        }
    }
    return layout->n_tensors <= MAX_TENSORS && layout->n_blocks <= 64 &&
           layout->block_tokens <= 64 && layout->n_layers <= 16 && layout->n_heads <= 16 &&
           layout->k.size <= 64 && layout->v.size <= 64;
}

/* What kvp_layout_check promises. */
static void require_apart(const kvp_layout *layout)
{
    struct place place = {0};
    if (!is_small(layout)) {
        return;
    }
    memset(maps, 0, sizeof maps);
    do {
        uint64_t tensor;
        const size_t bytes = element_bytes(layout, place.which);
        const size_t offset = offset_of(layout, &place, &tensor);
        require(tensor < layout->n_tensors);
        require(offset + bytes <= part_of(layout, place.which)->tensor_bytes);
        require(offset % bytes == 0);
        for (size_t i = offset; i < offset + bytes; i++) {
            require(!maps[tensor][i]);
            maps[tensor][i] = 1;
        }
    } while (next_place(layout, &place));
}

/* ------------------------------------------------------------------------------- making layouts */

static void take_shape(struct input *input, kvp_layout *layout)
{
    static const uint32_t sizes[] = {1, 2, 3, 4, 8, 16};
    kvp_layout_init(layout);
    layout->type = KVP_F32 + take(input, 6);
    layout->n_blocks = 2 + take(input, MAX_N - 1);
    layout->block_tokens = 1 + take(input, MAX_S);
    if (layout->type == KVP_Q8_0) { /* which is none of a layout */
        layout->type = KVP_BYTES;
        layout->block_tokens = 1;
    }
    layout->n_layers = 1 + take(input, MAX_L);
    layout->n_heads = 1 + take(input, MAX_H);
    layout->k.size = sizes[take(input, 6)];
    layout->first_layer = 5;
    layout->first_head = 7;
    layout->v.size = take(input, 4) ? layout->k.size : take(input, 2) * sizes[take(input, 6)];
}

/* Some order of these letters; each of the last `n_optional` may be left out. */
static void take_order(struct input *input, const char *letters, size_t n_optional, char *out)
{
    size_t n = 0;
    const size_t n_letters = strlen(letters);
    for (size_t i = 0; i < n_letters; i++) {
        if (i + n_optional < n_letters || take(input, 2)) {
            const size_t at = take(input, (uint32_t)n + 1);
            memmove(out + at + 1, out + at, n - at);
            out[at] = letters[i];
            n++;
        }
    }
    out[n] = '\0';
}

/* Small numbers, so that some of them fit together. */
static void take_part(struct input *input, kvp_part *part, uint32_t element)
{
    part->run = take(input, 2) ? part->size : 1 + take(input, 4);
    part->tensor = take(input, 3);
    part->tensor_step = take(input, 3);
    part->tensor_bytes = (size_t)take(input, 256) * 16;
    part->offset = (size_t)take(input, 64) * element;
    part->layer_stride = (size_t)take(input, 256) * element;
    part->block_stride = (size_t)take(input, 256) * element;
    part->token_stride = (size_t)take(input, 64) * element;
    part->head_stride = (size_t)take(input, 64) * element;
    part->run_stride = (size_t)take(input, 16) * element;
}

static void take_raw_strides(struct input *input, kvp_layout *layout)
{
    const uint32_t element = (uint32_t)kvp_type_bytes(layout->type) - (take(input, 32) == 31);
    layout->n_tensors = 1 + take(input, 8);
    take_part(input, &layout->k, element);
    take_part(input, &layout->v, element);
    if (take(input, 2)) {
        layout->k_scales.size = 1;
        take_part(input, &layout->k_scales, 4);
        layout->k_scales.run = 1;
        layout->k_scales.token_stride = 0;
    }
}

/* A layout of the shape that passes; as made by arrange, or with a change that passes. */
static void take_layout(struct input *input, const kvp_layout *shape, kvp_layout *out)
{
    char k_order[8];
    char v_order[8];
    char scale_order[8];
    const uint32_t more_layers = take(input, 3);
    const uint32_t more_heads = take(input, 3);
    const kvp_slice slice = {shape->first_layer, shape->n_layers, shape->first_head,
                             shape->n_heads};
    *out = *shape;
    out->first_layer -= more_layers;
    out->n_layers += more_layers + take(input, 2);
    out->first_head -= more_heads;
    out->n_heads += more_heads + take(input, 2);
    take_order(input, "NSHD2L", 2, k_order);
    take_order(input, "NSHD2L", 2, v_order);
    const char *v = take(input, 2) ? v_order : NULL;
    if (take(input, 4) == 0) {
        strcat(k_order, "x");
    }
    if (kvp_layout_arrange(out, k_order, v) != KVP_OK) {
        require(kvp_layout_arrange(out, "NL2HSD", NULL) == KVP_OK);
    }
    if (out->type == KVP_INT8 || out->type == KVP_E4M3) {
        take_order(input, "NH2L", 2, scale_order);
        require(kvp_layout_add_scales(out, scale_order) == KVP_OK);
    }
    require(kvp_layout_slice(out, &slice, out) == KVP_OK);
    require(kvp_layout_check(out, NULL) == KVP_OK);
    for (uint32_t n = take(input, 4); n > 0; n--) { /* padding, or nonsense */
        kvp_layout changed = *out;
        kvp_part *parts[] = {&changed.k, &changed.v, &changed.k_scales, &changed.v_scales};
        kvp_part *part = parts[take(input, 4)];
        size_t *fields[] = {&part->offset,       &part->layer_stride, &part->block_stride,
                            &part->token_stride, &part->head_stride,  &part->run_stride};
        *fields[take(input, 6)] += (size_t)take(input, 64) * 4;
        part->tensor_bytes += (size_t)take(input, 64) * 16;
        if (kvp_layout_check(&changed, NULL) == KVP_OK && is_small(&changed)) {
            *out = changed;
        }
    }
}

/* ------------------------------------------------------------------------------------ the model */

/* One tier: the memory, and what it should contain. */
struct tier {
    kvp_layout layout;
    kvp_memory *memory;
    uint8_t *tensors[MAX_TENSORS]; /* each with what lies beside it */
    uint8_t *before[MAX_TENSORS];
    size_t bytes[MAX_TENSORS];
    uint8_t elements[MAX_L][2][MAX_N][MAX_S][MAX_H][MAX_D][4];
    float scales[MAX_L][2][MAX_N][MAX_H];
};

static uint8_t *modelled(struct tier *tier, const struct place *p)
{
    return p->which < 2
               ? tier->elements[p->layer][p->which][p->block][p->token][p->head][p->element]
               : (uint8_t *)&tier->scales[p->layer][p->which - 2][p->block][p->head];
}

static void open_tier(struct input *input, const kvp_layout *shape, struct tier *tier)
{
    struct place place = {0};
    uint32_t number = take(input, 256);
    memset(tier, 0, sizeof *tier);
    take_layout(input, shape, &tier->layout);
    require_apart(&tier->layout);
    for (int i = 0; i < 4; i++) {
        const kvp_part *part = part_of(&tier->layout, i);
        for (uint32_t l = 0; part->size && l < tier->layout.n_layers; l++) {
            tier->bytes[part->tensor + l * part->tensor_step] = part->tensor_bytes;
        }
    }
    for (uint32_t i = 0; i < tier->layout.n_tensors; i++) {
        tier->tensors[i] = malloc(tier->bytes[i] + 1);
        tier->before[i] = malloc(tier->bytes[i] + 1);
        require(tier->tensors[i] && tier->before[i]);
        memset(tier->tensors[i], 0xA5, tier->bytes[i] + 1);
    }
    do {
        uint64_t tensor;
        const size_t offset = offset_of(&tier->layout, &place, &tensor);
        const size_t bytes = element_bytes(&tier->layout, place.which);
        uint8_t *at = modelled(tier, &place);
        for (size_t i = 0; i < bytes; i++) {
            number = number * 1664525u + 1013904223u;
            at[i] = (uint8_t)(number >> 24);
        }
        if (place.which >= 2) { /* powers of two: rounding to another one is exact to foretell */
            const float scale = (float)(1u << (number >> 28 & 3));
            memcpy(at, &scale, sizeof scale);
        }
        memcpy(tier->tensors[tensor] + offset, at, bytes);
    } while (next_place(&tier->layout, &place));
    require(kvp_memory_wrap(&tier->layout, (void *const *)tier->tensors, &tier->memory) == KVP_OK);
}

static void close_tier(struct tier *tier)
{
    kvp_memory_destroy(tier->memory);
    for (uint32_t i = 0; i < tier->layout.n_tensors; i++) {
        free(tier->tensors[i]);
        free(tier->before[i]);
    }
}

static void note(struct tier *tier)
{
    for (uint32_t i = 0; i < tier->layout.n_tensors; i++) {
        memcpy(tier->before[i], tier->tensors[i], tier->bytes[i] + 1);
    }
}

/* Every byte is what the model says, or what it was. */
static void require_as_modelled(struct tier *tier)
{
    struct place place = {0};
    do {
        uint64_t tensor;
        const size_t offset = offset_of(&tier->layout, &place, &tensor);
        memcpy(tier->before[tensor] + offset, modelled(tier, &place),
               element_bytes(&tier->layout, place.which));
    } while (next_place(&tier->layout, &place));
    for (uint32_t i = 0; i < tier->layout.n_tensors; i++) {
        require(memcmp(tier->before[i], tier->tensors[i], tier->bytes[i] + 1) == 0);
    }
}

/* ---------------------------------------------------------------------------------------- plans */

static void model_copy(struct tier *tiers, const kvp_copy *copy)
{
    struct tier *src = &tiers[copy->src_tier];
    struct tier *dst = &tiers[copy->dst_tier];
    for (uint32_t l = 0; l < src->layout.n_layers; l++) {
        for (int which = 0; which < 2; which++) {
            for (uint32_t t = 0; t < copy->n_tokens; t++) {
                memcpy(dst->elements[l][which][copy->dst_block][t],
                       src->elements[l][which][copy->src_block][t],
                       sizeof src->elements[l][which][copy->src_block][t]);
            }
            memcpy(dst->scales[l][which][copy->dst_block], src->scales[l][which][copy->src_block],
                   sizeof src->scales[l][which][copy->src_block]);
        }
    }
}

/* X2 by looking at every pair. */
static int is_plan(const kvp_copy *copies, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < n; j++) {
            const int same_phase = copies[i].phase == copies[j].phase;
            if ((j > i && copies[j].phase < copies[i].phase) ||
                (same_phase && i != j && copies[i].dst_tier == copies[j].dst_tier &&
                 copies[i].dst_block == copies[j].dst_block) ||
                (same_phase && copies[i].dst_tier == copies[j].src_tier &&
                 copies[i].dst_block == copies[j].src_block)) {
                return 0;
            }
        }
    }
    return 1;
}

static void run_plan(struct input *input, kvp_copier *copier, struct tier *tiers)
{
    kvp_copy copies[MAX_COPIES];
    const uint32_t n = take(input, MAX_COPIES + 1);
    uint32_t phase = 0;
    int in_range = 1;
    for (uint32_t i = 0; i < n; i++) {
        phase += take(input, 4) != 0;
        copies[i] = (kvp_copy){.phase = phase - (phase > 0 && take(input, 64) == 1),
                               .src_tier = (uint8_t)take(input, 2),
                               .dst_tier = (uint8_t)take(input, 2)};
        const uint32_t src_n = tiers[copies[i].src_tier].layout.n_blocks;
        const uint32_t dst_n = tiers[copies[i].dst_tier].layout.n_blocks;
        copies[i].src_block = 1 + (int32_t)take(input, src_n - 1);
        copies[i].dst_block = 1 + (int32_t)take(input, dst_n - 1);
        copies[i].n_tokens = 1 + take(input, tiers[0].layout.block_tokens);
        switch (take(input, 256)) {
        case 1: copies[i].src_block = 0; break;
        case 2: copies[i].dst_block = (int32_t)dst_n; break;
        case 3: copies[i].n_tokens = tiers[0].layout.block_tokens + 1; break;
        case 4: copies[i].n_tokens = 0; break;
        case 5: copies[i].group = 1; break;
        case 6: copies[i].dst_tier = 2; break;
        case 7: copies[i].src_block = -1; break;
        default: continue;
        }
        in_range = 0;
    }
    const kvp_status expected = in_range && is_plan(copies, n) ? KVP_OK : KVP_E_ARG;
    for (uint32_t i = 0; expected == KVP_OK && i < n; i++) {
        model_copy(tiers, &copies[i]);
    }
    require(kvp_copier_run(copier, copies, n, NULL) == expected);
}

/* ---------------------------------------------------------------------------------------- moves */

/* An element once more, from one scale to another: both powers of two. */
static void round_again(uint32_t type, float from, float to, uint8_t *element)
{
    float value;
    require(kvp_type_to_f32(type, from, element, 1, &value) == KVP_OK);
    require(kvp_type_from_f32(type, to, &value, 1, element) == KVP_OK);
}

/* What happens to one layer, part and head. */
static void model_moves_of(struct tier *tier, struct place p, const kvp_slot_move *moves,
                           uint32_t n)
{
    static uint8_t rows[MAX_MOVES][MAX_D][4];
    float scales[MAX_MOVES];
    const uint32_t S = tier->layout.block_tokens;
    const uint32_t type = tier->layout.type;
    const uint32_t size = part_of(&tier->layout, p.which)->size;
    for (uint32_t i = 0; i < n; i++) {
        p.block = (uint32_t)moves[i].src / S;
        p.token = (uint32_t)moves[i].src % S;
        memcpy(rows[i], modelled(tier, &p), sizeof rows[i]);
        scales[i] = tier->scales[p.layer][p.which][p.block][p.head];
    }
    for (uint32_t i = 0; i < n; i++) {
        p.block = (uint32_t)moves[i].dst / S;
        float *scale = &tier->scales[p.layer][p.which][p.block][p.head];
        float largest = *scale;
        for (uint32_t j = 0; j < n; j++) {
            const int is_here = (uint32_t)moves[j].dst / S == p.block;
            largest = is_here && scales[j] > largest ? scales[j] : largest;
        }
        for (uint32_t j = 0; j < S * size; j++) {
            p.token = j / size;
            p.element = j % size;
            if (*scale != largest) {
                round_again(type, *scale, largest, modelled(tier, &p));
            }
        }
        *scale = largest;
    }
    for (uint32_t i = 0; i < n; i++) {
        p.block = (uint32_t)moves[i].dst / S;
        p.token = (uint32_t)moves[i].dst % S;
        const float scale = tier->scales[p.layer][p.which][p.block][p.head];
        for (uint32_t e = 0; moves[i].src != moves[i].dst && e < size; e++) {
            if (scale != scales[i]) {
                round_again(type, scales[i], scale, rows[i][e]);
            }
            p.element = e;
            memcpy(modelled(tier, &p), rows[i][e], 4);
        }
    }
}

static void run_moves(struct input *input, kvp_copier *copier, struct tier *tier)
{
    kvp_slot_move moves[MAX_MOVES];
    const uint32_t n = take(input, MAX_MOVES + 1);
    const int64_t S = tier->layout.block_tokens;
    const uint32_t usable = (uint32_t)S * (tier->layout.n_blocks - 1);
    int is_right = tier->layout.type != KVP_BYTES;
    for (uint32_t i = 0; i < n; i++) {
        moves[i] = (kvp_slot_move){S + take(input, usable), S + take(input, usable)};
        if (take(input, 64) == 1) {
            moves[i].dst = take(input, 2) ? S * tier->layout.n_blocks : 0;
            is_right = 0;
        }
        for (uint32_t j = 0; j < i; j++) {
            is_right = is_right && moves[j].dst != moves[i].dst;
        }
    }
    for (uint32_t l = 0; is_right && l < tier->layout.n_layers; l++) {
        for (int which = 0; which < 2; which++) {
            for (uint32_t h = 0; part_of(&tier->layout, which)->size && h < tier->layout.n_heads;
                 h++) {
                model_moves_of(tier, (struct place){.layer = l, .which = which, .head = h}, moves,
                               n);
            }
        }
    }
    require(kvp_copier_move(copier, 0, moves, n, NULL) == (is_right ? KVP_OK : KVP_E_ARG));
}

/* ----------------------------------------------------------------------------- reads and writes */

/* What the model says that an element reads as. */
static float value_of(struct tier *tier, const struct place *p)
{
    float value;
    const float scale = part_of(&tier->layout, p->which + 2)->size == 0
                            ? 1.0f
                            : tier->scales[p->layer][p->which][p->block][p->head];
    require(kvp_type_to_f32(tier->layout.type, scale, modelled(tier, p), 1, &value) == KVP_OK);
    return value;
}

static void require_read(struct tier *tier, struct place p, const float *values)
{
    for (p.element = 0; p.element < part_of(&tier->layout, p.which)->size; p.element++) {
        const float expected = value_of(tier, &p), value = values[p.element];
        require(memcmp(&expected, &value, sizeof value) == 0 ||
                (expected != expected && value != value));
    }
}

/* A token and head of some layer; the same block in a row behind the null block. */
static void read_some(struct input *input, struct tier *tier)
{
    const kvp_layout *l = &tier->layout;
    struct place p = {.layer = take(input, l->n_layers), .which = (int)take(input, 2)};
    p.block = 1 + take(input, l->n_blocks - 1);
    p.token = take(input, l->block_tokens);
    p.head = take(input, l->n_heads);
    const int32_t row[] = {0, (int32_t)p.block};
    const kvp_gather gather = {row, 2, p.layer, l->block_tokens + p.token, 1};
    const int64_t slot = (int64_t)p.block * l->block_tokens + p.token;
    float values[MAX_D], gathered[MAX_H * MAX_D];
    kvp_layer layer;
    require(kvp_memory_layer(tier->memory, p.layer, &layer) == KVP_OK);
    const kvp_status status = kvp_layer_read(&layer, p.which, slot, p.head, values);
    const int has_values = l->type != KVP_BYTES && part_of(l, p.which)->size > 0;
    require(status == (has_values ? KVP_OK : KVP_E_ARG));
    if (status != KVP_OK)
        return;
    require_read(tier, p, values);
    require(kvp_memory_gather(tier->memory, &gather, p.which == 0 ? gathered : NULL,
                              p.which == 1 ? gathered : NULL) == KVP_OK);
    require_read(tier, p, gathered + p.head * part_of(l, p.which)->size);
}

/* Of types without a scale; what is written beside it is compared with everything else. */
static void write_some(struct input *input, struct tier *tier)
{
    const kvp_layout *l = &tier->layout;
    struct place p = {.layer = take(input, l->n_layers), .which = (int)take(input, 2)};
    float values[MAX_D];
    kvp_layer layer;
    p.block = 1 + take(input, l->n_blocks - 1);
    p.token = take(input, l->block_tokens);
    p.head = take(input, l->n_heads);
    if (l->type == KVP_BYTES || part_of(l, p.which)->size == 0 || part_of(l, p.which + 2)->size > 0)
        return;
    for (uint32_t e = 0; e < part_of(l, p.which)->size; e++)
        values[e] = ((float)take(input, 256) - 128.0f) * (take(input, 8) == 0 ? 1e30f : 0.37f);
    for (p.element = 0; p.element < part_of(l, p.which)->size; p.element++)
        require(kvp_type_from_f32(l->type, 1, &values[p.element], 1, modelled(tier, &p)) == KVP_OK);
    require(kvp_memory_layer(tier->memory, p.layer, &layer) == KVP_OK);
    require(kvp_layer_write(&layer, p.which, (int64_t)p.block * l->block_tokens + p.token, p.head,
                            values) == KVP_OK);
}

/* Blocks of the two tiers that the model has alike have the same checksum, and no others. */
static void check_checksums(struct input *input, struct tier *tiers)
{
    const uint32_t n_tokens = 1 + take(input, tiers[0].layout.block_tokens);
    struct place at = {0};
    uint32_t blocks[2];
    kvp_hash hashes[2];
    int is_alike = 1;
    for (int i = 0; i < 2; i++) {
        blocks[i] = 1 + take(input, tiers[i].layout.n_blocks - 1);
        require(kvp_memory_checksum(tiers[i].memory, (int32_t)blocks[i], n_tokens, &hashes[i]) ==
                KVP_OK);
    }
    do {
        struct place other = at;
        other.block = blocks[1];
        if (at.block == blocks[0] && (at.which >= 2 || at.token < n_tokens) && is_alike)
            is_alike = memcmp(modelled(&tiers[0], &at), modelled(&tiers[1], &other),
                              element_bytes(&tiers[0].layout, at.which)) == 0;
    } while (next_place(&tiers[0].layout, &at));
    require(is_alike == (memcmp(&hashes[0], &hashes[1], sizeof hashes[0]) == 0));
}

/* ------------------------------------------------------------------------------------- an input */

static void run_raw_layout(struct input *input)
{
    kvp_layout layout;
    kvp_why why;
    take_shape(input, &layout);
    take_raw_strides(input, &layout);
    const kvp_status status = kvp_layout_check(&layout, &why);
    require((status == KVP_OK) == (why.text[0] == '\0'));
    if (status == KVP_OK) {
        require_apart(&layout);
    }
}

/* All bytes, without mercy: nothing but the check may look at them. */
static void run_any_layout(struct input *input)
{
    kvp_layout layout;
    for (size_t i = 0; i < sizeof layout; i++) {
        ((uint8_t *)&layout)[i] = (uint8_t)take(input, 256);
    }
    layout.struct_size = sizeof layout;
    if (kvp_layout_check(&layout, NULL) == KVP_OK) {
        require_apart(&layout);
    }
}

static void run_copies(struct input *input)
{
    static struct tier tiers[2];
    kvp_layout shape;
    kvp_copier_config config;
    kvp_copier *copier;
    take_shape(input, &shape);
    open_tier(input, &shape, &tiers[0]);
    shape.n_blocks = 2 + take(input, MAX_N - 1);
    open_tier(input, &shape, &tiers[1]);
    kvp_memory *device = tiers[0].memory;
    kvp_memory *host = tiers[1].memory;
    kvp_copier_config_init(&config);
    config.device = &device;
    config.host = &host;
    config.max_moves = MAX_MOVES;
    config.n_threads = take(input, 16) == 0 ? 3 : 1;
    require(kvp_copier_create(&config, &copier) == KVP_OK);
    for (int i = 0; i < ROUNDS; i++) {
        note(&tiers[0]);
        note(&tiers[1]);
        switch (take(input, 8)) {
        case 7: write_some(input, &tiers[take(input, 2)]); break;
        case 6: check_checksums(input, tiers); break;
        case 5:
        case 3:
        case 1: run_plan(input, copier, tiers); break;
        default: run_moves(input, copier, &tiers[0]); break;
        }
        read_some(input, &tiers[i % 2]);
        require_as_modelled(&tiers[0]);
        require_as_modelled(&tiers[1]);
    }
    kvp_copier_destroy(copier);
    close_tier(&tiers[0]);
    close_tier(&tiers[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, data + size};
    switch (take(&input, 8)) {
    case 0: run_any_layout(&input); break;
    case 1:
    case 2:
    case 3: run_raw_layout(&input); break;
    default: run_copies(&input); break;
    }
    return 0;
}
