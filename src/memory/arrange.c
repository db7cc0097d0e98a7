/* arrange: strides from an order of dimensions, "N2HSD" as one writes a tensor's shape.
 *
 * Strides are made from the right, innermost first: a letter's stride is the bytes of all that
 * stands right of it.
 *
 *     (N, 2, H, S, D) bf16, H = 8, S = 16, D = 128
 *      |     |  |  +-- 2, one run
 *      |     |  +----- 256
 *      |     +-------- 4,096
 *      +-------------- 65,536: K and V, 32,768 each; V begins at 32,768
 *
 * K and V may differ right of the 2, in order and in bytes; left of it they have the same strides.
 */
#include "memory/layout.h"
#include "base/sized.h"

#include <stdbool.h>
#include <string.h>

enum {
    RUN_BYTES = 16,  /* of x */
    LETTERS_MAX = 7, /* "LN2HSDx" */
};

/* One order, and the part that it is for. */
struct order {
    const char *letters;
    size_t n;     /* letters */
    size_t inner; /* first letter right of the 2; 0 without one */
    bool has_two;
    bool has_layers;
    bool has_runs; /* x */
};

/* What sizes multiply to: too_large stays set. */
struct extent {
    size_t bytes;
    bool too_large;
};

static void grow_extent(struct extent *extent, uint64_t factor)
{
    uint64_t bytes;
    if (__builtin_mul_overflow((uint64_t)extent->bytes, factor, &bytes) || bytes > PTRDIFF_MAX) {
        extent->too_large = true;
        return;
    }
    extent->bytes = (size_t)bytes;
}

/* ------------------------------------------------------------------------------------- reading */

static size_t count_letter(const char *letters, char letter)
{
    size_t n = 0;
    for (; *letters; letters++) {
        n += *letters == letter;
    }
    return n;
}

/* Does the order have each of `needed` once, each of `allowed` at most once, and nothing else? */
static bool read_order(const char *letters, const char *needed, const char *allowed,
                       struct order *out)
{
    const size_t n = strlen(letters);
    if (n > LETTERS_MAX) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if ((!strchr(needed, letters[i]) && !strchr(allowed, letters[i])) ||
            count_letter(letters, letters[i]) != 1) {
            return false;
        }
    }
    for (; *needed; needed++) {
        if (count_letter(letters, *needed) != 1) {
            return false;
        }
    }
    const char *two = strchr(letters, '2');
    const char *runs = strchr(letters, 'x');
    if (runs && runs[1]) {
        return false;
    }
    *out = (struct order){.letters = letters,
                          .n = n,
                          .inner = two ? (size_t)(two - letters) + 1 : 0,
                          .has_two = two != NULL,
                          .has_layers = strchr(letters, 'L') != NULL,
                          .has_runs = runs != NULL};
    return true;
}

/* Can K and V be in the same tensors, in these orders? */
static bool go_together(const struct order *k, const struct order *v, const kvp_layout *layout)
{
    if (k->has_two != v->has_two) {
        return false;
    }
    if (!k->has_two) {
        return true;
    }
    const bool same_before = k->inner == v->inner && memcmp(k->letters, v->letters, k->inner) == 0;
    const bool is_split = memchr(k->letters, 'D', k->inner) != NULL;
    return same_before &&
           (!is_split || (layout->k.size == layout->v.size && k->has_runs == v->has_runs));
}

/* ------------------------------------------------------------------------------------- strides */

static void put_letter(const kvp_layout *layout, kvp_part *part, char letter, struct extent *extent)
{
    switch (letter) {
    case 'L':
        part->layer_stride = extent->bytes;
        grow_extent(extent, layout->n_layers);
        break;
    case 'N':
        part->block_stride = extent->bytes;
        grow_extent(extent, layout->n_blocks);
        break;
    case 'S':
        part->token_stride = extent->bytes;
        grow_extent(extent, layout->block_tokens);
        break;
    case 'H':
        part->head_stride = extent->bytes;
        grow_extent(extent, layout->n_heads);
        break;
    case 'D':
        part->run_stride = part->run < part->size ? extent->bytes : 0;
        grow_extent(extent, part->size / part->run);
        break;
    default: break; /* x: the run, which the extent began with */
    }
}

/* Strides of letters [from, to), right to left. */
static void put_letters(const kvp_layout *layout, kvp_part *part, const struct order *order,
                        size_t from, size_t to, struct extent *extent)
{
    if (part->size == 0) {
        return;
    }
    for (size_t i = to; i > from; i--) {
        put_letter(layout, part, order->letters[i - 1], extent);
    }
}

/* What of D lies side by side: all when it stands last, 16 bytes with x, else one element. */
static bool set_run(kvp_part *part, const struct order *order, size_t element)
{
    if (part->size == 0) {
        return true; /* no V */
    }
    part->run = order->has_runs ? (uint32_t)(RUN_BYTES / element) : 1;
    if (order->letters[order->n - 1] == 'D') {
        part->run = part->size;
    }
    return part->size % part->run == 0;
}

/* Two parts that may share tensors, K and V or their scales. */
struct pair {
    kvp_part *k;
    kvp_part *v; /* size 0: there is none */
    struct order k_order;
    struct order v_order;
    size_t element; /* bytes */
};

/* Fill in both parts, in tensors from `first_tensor` on; give the first tensor behind them. */
static kvp_status arrange_pair(const kvp_layout *layout, const struct pair *pair,
                               uint32_t first_tensor, uint32_t *out_n_tensors)
{
    const struct order *k_order = &pair->k_order;
    const struct order *v_order = &pair->v_order;
    struct extent k = {pair->element, false};
    struct extent v = {pair->v->size ? pair->element : 0, false};
    grow_extent(&k, pair->k->run);
    grow_extent(&v, pair->v->run);
    put_letters(layout, pair->k, k_order, k_order->inner, k_order->n, &k);
    put_letters(layout, pair->v, v_order, v_order->inner, v_order->n, &v);
    if (k_order->has_two) {
        pair->v->offset = pair->v->size ? k.bytes : 0;
        k.too_large |= v.too_large || v.bytes > (size_t)PTRDIFF_MAX - k.bytes;
        k.bytes += k.too_large ? 0 : v.bytes;
        v = k;
        put_letters(layout, pair->k, k_order, 0, k_order->inner - 1, &k);
        put_letters(layout, pair->v, v_order, 0, v_order->inner - 1, &v);
    }
    if (k.too_large || v.too_large) {
        return KVP_E_TOO_LONG;
    }
    const uint32_t k_tensors = k_order->has_layers ? 1 : layout->n_layers;
    const uint32_t v_tensors = v_order->has_layers ? 1 : layout->n_layers;
    pair->k->tensor = first_tensor;
    pair->k->tensor_step = !k_order->has_layers;
    pair->k->tensor_bytes = k.bytes;
    *out_n_tensors = first_tensor + k_tensors;
    if (pair->v->size) {
        pair->v->tensor = k_order->has_two ? first_tensor : *out_n_tensors;
        pair->v->tensor_step = !v_order->has_layers;
        pair->v->tensor_bytes = v.bytes;
        *out_n_tensors += k_order->has_two ? 0 : v_tensors;
    }
    return KVP_OK;
}

/* ---------------------------------------------------------------------------------- the calls */

kvp_status kvp_layout_arrange(kvp_layout *layout, const char *k_order, const char *v_order)
{
    struct pair pair;
    layout = kvpi_sized(layout, sizeof(*layout));
    if (!layout || !k_order || kvpi_layout_shape_wrong(layout, NULL)) {
        return KVP_E_ARG;
    }
    kvp_layout result = *layout;
    result.k = (kvp_part){.size = layout->k.size};
    result.v = (kvp_part){.size = layout->v.size};
    result.k_scales = (kvp_part){0};
    result.v_scales = (kvp_part){0};
    pair.k = &result.k;
    pair.v = &result.v;
    pair.element = kvp_type_bytes(layout->type);
    if (!v_order || layout->v.size == 0) {
        v_order = k_order;
    }
    if (!read_order(k_order, "NSHD", "L2x", &pair.k_order) ||
        !read_order(v_order, "NSHD", "L2x", &pair.v_order) ||
        !set_run(pair.k, &pair.k_order, pair.element) ||
        !set_run(pair.v, &pair.v_order, pair.element) ||
        (layout->v.size && !go_together(&pair.k_order, &pair.v_order, layout))) {
        return KVP_E_ARG;
    }
    const kvp_status status = arrange_pair(&result, &pair, 0, &result.n_tensors);
    if (status != KVP_OK) {
        return status;
    }
    if (kvpi_layout_wrong(&result, NULL)) {
        return KVP_E_ARG;
    }
    *layout = result;
    return KVP_OK;
}

kvp_status kvp_layout_add_scales(kvp_layout *layout, const char *order)
{
    struct pair pair;
    layout = kvpi_sized(layout, sizeof(*layout));
    if (!layout || !order || kvpi_layout_wrong(layout, NULL) ||
        !kvpi_type_has_scales(layout->type) || layout->k_scales.size || layout->v_scales.size) {
        return KVP_E_ARG;
    }
    kvp_layout result = *layout;
    result.k_scales = (kvp_part){.size = 1, .run = 1};
    result.v_scales = (kvp_part){.size = layout->v.size ? 1 : 0, .run = 1};
    pair.k = &result.k_scales;
    pair.v = &result.v_scales;
    pair.element = sizeof(float);
    if (!read_order(order, "NH", "L2", &pair.k_order)) {
        return KVP_E_ARG;
    }
    pair.v_order = pair.k_order;
    const kvp_status status = arrange_pair(&result, &pair, layout->n_tensors, &result.n_tensors);
    if (status != KVP_OK) {
        return status;
    }
    if (kvpi_layout_wrong(&result, NULL)) {
        return KVP_E_ARG;
    }
    *layout = result;
    return KVP_OK;
}
