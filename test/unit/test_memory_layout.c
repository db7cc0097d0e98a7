/* Layouts: where each order of kvpager/memory.h puts an element, against the row-major index of the
 * engine's tensor, written down for each by hand; and what is refused, with its reason. */
#include <stdio.h>
#include <string.h>

#include "mocka.h"

#include <kvpager/memory.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* All different, so that a dimension in the wrong place shows. */
enum { N = 5, S = 4, L = 3, H = 2, D = 16 };

/* An element: layer, K or V, block, token, head, element. */
struct at {
    size_t l, c, b, t, h, e;
    size_t Dv; /* of V */
};

/* Tensor and index of an element in it. */
struct in {
    size_t tensor;
    size_t index;
};

/* (2, N, S, H, D) for each layer */
static struct in vllm_nhd(struct at a)
{
    return (struct in){a.l, (((a.c * N + a.b) * S + a.t) * H + a.h) * D + a.e};
}

/* (2, N, H, S, D) */
static struct in vllm_hnd(struct at a)
{
    return (struct in){a.l, (((a.c * N + a.b) * H + a.h) * S + a.t) * D + a.e};
}

/* K (N, H, D/8, S, 8), V (N, H, D, S), one behind the other; bf16 */
static struct in vllm_paged(struct at a)
{
    if (a.c == 0)
        return (struct in){a.l, (((a.b * H + a.h) * (D / 8) + a.e / 8) * S + a.t) * 8 + a.e % 8};
    return (struct in){a.l, (size_t)N * H * D * S + ((a.b * H + a.h) * D + a.e) * S + a.t};
}

/* K (N, H, D, S), V (N, H, S, D), one behind the other */
static struct in vllm_cpu(struct at a)
{
    if (a.c == 0)
        return (struct in){a.l, ((a.b * H + a.h) * D + a.e) * S + a.t};
    return (struct in){a.l, (size_t)N * H * D * S + ((a.b * H + a.h) * S + a.t) * D + a.e};
}

/* (N, 2, S, H, D) */
static struct in flashinfer_nhd(struct at a)
{
    return (struct in){a.l, (((a.b * 2 + a.c) * S + a.t) * H + a.h) * D + a.e};
}

/* (N, 2, H, S, D) */
static struct in flashinfer_hnd(struct at a)
{
    return (struct in){a.l, (((a.b * 2 + a.c) * H + a.h) * S + a.t) * D + a.e};
}

/* (N, S, H, D), all K tensors before all V tensors */
static struct in apart_nhd(struct at a)
{
    const size_t size = a.c == 0 ? D : a.Dv;
    return (struct in){a.c * L + a.l, ((a.b * S + a.t) * H + a.h) * size + a.e};
}

/* (N, H, S, D), the same */
static struct in apart_hnd(struct at a)
{
    const size_t size = a.c == 0 ? D : a.Dv;
    return (struct in){a.c * L + a.l, ((a.b * H + a.h) * S + a.t) * size + a.e};
}

/* K (cells, H, D), V (H, D, cells): cell = slot */
static struct in cells(struct at a)
{
    const size_t cell = a.b * S + a.t;
    if (a.c == 0)
        return (struct in){a.l, (cell * H + a.h) * D + a.e};
    return (struct in){L + a.l, (a.h * a.Dv + a.e) * (size_t)(N * S) + cell};
}

/* (L, N, 2, H, S, D) */
static struct in tvm_nvshmem(struct at a)
{
    return (struct in){0, ((((a.l * N + a.b) * 2 + a.c) * H + a.h) * S + a.t) * D + a.e};
}

/* (N, L, 2, H, S, D) */
static struct in tensorrt_llm(struct at a)
{
    return (struct in){0, ((((a.b * L + a.l) * 2 + a.c) * H + a.h) * S + a.t) * D + a.e};
}

/* (N, L, H, 2, S, D) */
static struct in cpu(struct at a)
{
    return (struct in){0, ((((a.b * L + a.l) * H + a.h) * 2 + a.c) * S + a.t) * D + a.e};
}

static const struct known {
    const char *k_order;
    const char *v_order;
    struct in (*in)(struct at at);
    uint32_t n_tensors;
    uint32_t may_differ; /* K and V in tensors of their own: D may be another for V */
} known[] = {
    {KVP_ORDER_VLLM_NHD, NULL, vllm_nhd, L, 0},
    {KVP_ORDER_VLLM_HND, NULL, vllm_hnd, L, 0},
    {KVP_ORDER_VLLM_PAGED_K, KVP_ORDER_VLLM_PAGED_V, vllm_paged, L, 0},
    {KVP_ORDER_VLLM_CPU_K, KVP_ORDER_VLLM_CPU_V, vllm_cpu, L, 0},
    {KVP_ORDER_FLASHINFER_NHD, NULL, flashinfer_nhd, L, 0},
    {KVP_ORDER_FLASHINFER_HND, NULL, flashinfer_hnd, L, 0},
    {KVP_ORDER_APART_NHD, NULL, apart_nhd, 2 * L, 1},
    {KVP_ORDER_APART_HND, NULL, apart_hnd, 2 * L, 1},
    {KVP_ORDER_APART_NHD, KVP_ORDER_CELLS_V, cells, 2 * L, 1},
    {KVP_ORDER_TVM_NVSHMEM, NULL, tvm_nvshmem, 1, 0},
    {KVP_ORDER_TENSORRT_LLM, NULL, tensorrt_llm, 1, 0},
    {KVP_ORDER_CPU, NULL, cpu, 1, 0},
};

static kvp_layout shape_of(uint32_t type, uint32_t v_size)
{
    kvp_layout layout;
    kvp_layout_init(&layout);
    layout.type = type;
    layout.n_blocks = N;
    layout.block_tokens = S;
    layout.n_layers = L;
    layout.n_heads = H;
    layout.k.size = D;
    layout.v.size = v_size;
    return layout;
}

static size_t offset_in(const kvp_part *part, struct at a, size_t element)
{
    return part->offset + a.l * part->layer_stride + a.b * part->block_stride +
           a.t * part->token_stride + a.h * part->head_stride + a.e / part->run * part->run_stride +
           a.e % part->run * element;
}

static void expect_everywhere(const kvp_layout *layout, struct in (*in)(struct at at))
{
    const size_t element = kvp_type_bytes(layout->type);
    size_t ends[2] = {0, 0};
    for (size_t i = 0; i < 2u * L * N * S * H * D; i++) {
        const struct at a = {.l = i / (2 * N * S * H * D),
                             .c = i / (N * S * H * D) % 2,
                             .b = i / (S * H * D) % N,
                             .t = i / (H * D) % S,
                             .h = i / D % H,
                             .e = i % D,
                             .Dv = layout->v.size};
        const kvp_part *part = a.c == 0 ? &layout->k : &layout->v;
        if (a.e >= part->size)
            continue;
        const struct in expected = in(a);
        assert_int_equal(part->tensor + a.l * part->tensor_step, expected.tensor);
        assert_int_equal(offset_in(part, a, element), expected.index * element);
        if (ends[a.c] < (expected.index + 1) * element)
            ends[a.c] = (expected.index + 1) * element;
    }
    /* Dense: the last element ends the tensor. */
    assert_int_equal(layout->v.size && layout->k.tensor == layout->v.tensor && ends[1] > ends[0]
                         ? ends[1]
                         : ends[0],
                     layout->k.tensor_bytes);
}

TEST(test_orders)
{
    for (size_t i = 0; i < COUNT(known); i++) {
        kvp_layout layout = shape_of(KVP_BF16, D);
        assert_int_equal(kvp_layout_arrange(&layout, known[i].k_order, known[i].v_order), KVP_OK);
        assert_int_equal(layout.n_tensors, known[i].n_tensors);
        expect_everywhere(&layout, known[i].in);
        assert_int_equal(kvp_layout_check(&layout, NULL), KVP_OK);
        if (known[i].may_differ) {
            layout = shape_of(KVP_F32, D / 2);
            assert_int_equal(kvp_layout_arrange(&layout, known[i].k_order, known[i].v_order),
                             KVP_OK);
            expect_everywhere(&layout, known[i].in);
        }
    }
}

/* (N, S, 576), no V; the orders with a 2 give the same. */
static struct in latent(struct at a)
{
    return (struct in){a.l, ((a.b * S + a.t) * H + a.h) * D + a.e};
}

TEST(test_latent)
{
    kvp_layout layout = shape_of(KVP_BF16, 0);
    assert_int_equal(kvp_layout_arrange(&layout, KVP_ORDER_LATENT, "nonsense"), KVP_OK);
    assert_int_equal(layout.n_tensors, L);
    expect_everywhere(&layout, latent);
    assert_int_equal(kvp_layout_arrange(&layout, "2NSHD", NULL), KVP_OK);
    expect_everywhere(&layout, latent);
    assert_int_equal(kvp_layout_block_bytes(&layout), (size_t)L * S * H * D * 2);
}

/* K and V of different sizes in one tensor: (N, S, H, [K 16 | V 8]). */
TEST(test_sizes_differ_in_a_tensor)
{
    kvp_layout layout = shape_of(KVP_F16, 8);
    assert_int_equal(kvp_layout_arrange(&layout, "NSH2D", NULL), KVP_OK);
    assert_int_equal(layout.k.head_stride, (16 + 8) * 2);
    assert_fields(layout.v, head_stride, (16 + 8) * 2, offset, 16 * 2);
    assert_int_equal(layout.k.tensor_bytes, N * S * H * (16 + 8) * 2);
    assert_int_equal(kvp_layout_arrange(&layout, "NSHD2", NULL), KVP_E_ARG); /* D split by 2 */
    layout = shape_of(KVP_F16, D);
    assert_int_equal(kvp_layout_arrange(&layout, "NSHD2", NULL), KVP_OK);
    assert_fields(layout.k, run, 1, run_stride, 4);
    assert_int_equal(layout.v.offset, 2);
}

TEST(test_header_example)
{
    kvp_layout layout;
    kvp_layout_init(&layout);
    layout.type = KVP_BF16;
    layout.n_blocks = 4096;
    layout.block_tokens = 16;
    layout.n_layers = 32;
    layout.n_heads = 8;
    layout.k.size = layout.v.size = 128;
    assert_int_equal(kvp_layout_arrange(&layout, KVP_ORDER_VLLM_NHD, NULL), KVP_OK);
    assert_int_equal(layout.n_tensors, 32);
    assert_fields(layout.v, token_stride, 2048, head_stride, 256, block_stride, 32768);
    assert_fields(layout.v, tensor_step, 1, layer_stride, 0, offset, 4096 * 32768);
    assert_int_equal(kvp_layout_block_bytes(&layout), 2 << 20); /* 128 KiB for a token */
}

/* --------------------------------------------------------------------------------------- scales */

TEST(test_scales)
{
    kvp_layout layout = shape_of(KVP_INT8, D);
    assert_int_equal(kvp_layout_arrange(&layout, KVP_ORDER_TENSORRT_LLM, NULL), KVP_OK);
    const kvp_layout without = layout;
    assert_int_equal(kvp_layout_add_scales(&layout, "NL2H"), KVP_OK);
    assert_int_equal(layout.n_tensors, 2);
    for (uint32_t b = 0; b < N; b++) {
        for (uint32_t l = 0; l < L; l++) {
            for (uint32_t h = 0; h < H; h++) {
                const struct at a = {.l = l, .b = b, .h = h};
                assert_int_equal(offset_in(&layout.k_scales, a, 4),
                                 4 * (((b * L + l) * 2) * H + h));
                assert_int_equal(offset_in(&layout.v_scales, a, 4),
                                 4 * (((b * L + l) * 2 + 1) * H + h));
            }
        }
    }
    assert_int_equal(kvp_layout_block_bytes(&layout), L * H * 2 * (S * D + 4));
    assert_int_equal(kvp_layout_add_scales(&layout, "NL2H"), KVP_E_ARG); /* there are some */
    layout = without;
    assert_int_equal(kvp_layout_add_scales(&layout, "2NH"), KVP_OK);
    assert_int_equal(layout.n_tensors, 1 + L);
    assert_fields(layout.v_scales, tensor, 1, offset, 4 * N * H);
    layout = without;
    assert_int_equal(kvp_layout_add_scales(&layout, "NH"), KVP_OK);
    assert_int_equal(layout.n_tensors, 1 + 2 * L);
    layout = without;
    assert_int_equal(kvp_layout_add_scales(&layout, "NHD"), KVP_E_ARG);
    assert_int_equal(kvp_layout_add_scales(&layout, "N"), KVP_E_ARG);
    assert_int_equal(kvp_layout_add_scales(&layout, NULL), KVP_E_ARG);
    assert_memory_equal(&layout, &without, sizeof layout);
    layout = shape_of(KVP_BF16, D);
    assert_int_equal(kvp_layout_arrange(&layout, "NSHD", NULL), KVP_OK);
    assert_int_equal(kvp_layout_add_scales(&layout, "NH"), KVP_E_ARG);
}

/* An engine's own: a block is K, V, and the scales of both behind them. */
TEST(test_scales_inside_blocks)
{
    enum { DATA = S * H * D, BLOCK = 2 * DATA + 2 * H * 4 };
    kvp_layout layout = shape_of(KVP_E4M3, D);
    assert_int_equal(kvp_layout_arrange(&layout, KVP_ORDER_FLASHINFER_HND, NULL), KVP_OK);
    layout.k.block_stride = layout.v.block_stride = BLOCK;
    layout.k_scales = (kvp_part){.size = 1,
                                 .run = 1,
                                 .tensor_step = 1,
                                 .offset = 2 * DATA,
                                 .block_stride = BLOCK,
                                 .head_stride = 4};
    layout.v_scales = layout.k_scales;
    layout.v_scales.offset += H * 4;
    layout.k.tensor_bytes = layout.v.tensor_bytes = N * BLOCK;
    layout.k_scales.tensor_bytes = layout.v_scales.tensor_bytes = N * BLOCK;
    assert_int_equal(kvp_layout_check(&layout, NULL), KVP_OK);
    kvp_why why;
    layout.v_scales.offset -= 4; /* on K's last scale */
    assert_int_equal(kvp_layout_check(&layout, &why), KVP_E_ARG);
    assert_string_equal(why.text, "v_scales: two parts overlap, or cannot be shown apart");
    layout.v_scales.offset = 2 * DATA - 4; /* on V's last elements */
    assert_int_equal(kvp_layout_check(&layout, &why), KVP_E_ARG);
}

/* --------------------------------------------------------------------------------------- slices */

TEST(test_slices)
{
    for (size_t i = 0; i < COUNT(known); i++) {
        kvp_layout whole = shape_of(KVP_E4M3, D);
        kvp_layout part;
        whole.first_layer = 10;
        whole.first_head = 20;
        if (kvp_layout_arrange(&whole, known[i].k_order, known[i].v_order) != KVP_OK)
            continue; /* 16 bytes of a type of one are all of D */
        assert_int_equal(kvp_layout_add_scales(&whole, "N2H"), KVP_OK);
        const kvp_slice slice = {11, 2, 21, 1};
        assert_int_equal(kvp_layout_slice(&whole, &slice, &part), KVP_OK);
        assert_int_equal(kvp_layout_check(&part, NULL), KVP_OK);
        assert_fields(part, first_layer, 11, n_layers, 2);
        for (uint32_t l = 0; l < 2; l++) {
            const struct at here = {.l = l, .b = 3, .t = 1, .e = 5};
            const struct at there = {.l = l + 1, .b = 3, .t = 1, .h = 1, .e = 5};
            assert_int_equal(part.v.tensor + l * part.v.tensor_step,
                             whole.v.tensor + (l + 1) * whole.v.tensor_step);
            assert_int_equal(offset_in(&part.v, here, 1), offset_in(&whole.v, there, 1));
            const struct at scale = {.l = l, .b = 3};
            const struct at whole_scale = {.l = l + 1, .b = 3, .h = 1};
            assert_int_equal(offset_in(&part.k_scales, scale, 4),
                             offset_in(&whole.k_scales, whole_scale, 4));
            assert_int_equal(offset_in(&part.v_scales, scale, 4),
                             offset_in(&whole.v_scales, whole_scale, 4));
        }
    }
}

TEST(test_slice_refusals)
{
    kvp_layout whole = shape_of(KVP_BF16, D);
    kvp_layout part = shape_of(KVP_F32, 1);
    const kvp_layout before = part;
    whole.first_layer = 10;
    whole.first_head = 20;
    assert_int_equal(kvp_layout_arrange(&whole, "NSHD", NULL), KVP_OK);
    const kvp_slice wrong[] = {
        {9, 1, 20, 1},           {9, 2, 20, 1},          {10, 0, 20, 1},         {10, 4, 20, 1},
        {13, 1, 20, 1},          {10, 1, 20, 0},         {10, 1, 22, 1},         {10, 1, 21, 2},
        {10, 1, 20, UINT32_MAX}, {10, 1, 19, 1},         {10, 1, 19, 2},         {0, 1, 20, 1},
        {10, UINT32_MAX, 20, 1}, {UINT32_MAX, 1, 20, 1}, {10, 1, UINT32_MAX, 1},
    };
    for (size_t i = 0; i < COUNT(wrong); i++)
        assert_int_equal(kvp_layout_slice(&whole, &wrong[i], &part), KVP_E_ARG);
    const kvp_slice right = {10, 1, 20, 1};
    assert_int_equal(kvp_layout_slice(NULL, &right, &part), KVP_E_ARG);
    assert_int_equal(kvp_layout_slice(&whole, NULL, &part), KVP_E_ARG);
    assert_int_equal(kvp_layout_slice(&whole, &right, NULL), KVP_E_ARG);
    whole.k.run = 0;
    assert_int_equal(kvp_layout_slice(&whole, &right, &part), KVP_E_ARG);
    assert_memory_equal(&part, &before, sizeof part);
}

/* ------------------------------------------------------------------------------------- refusals */

TEST(test_order_refusals)
{
    static const char *const wrong[] = {
        "",       "NSH",   "NSHDD",  "NSHDQ", "NSxHD",   "nshd", "NSHDxx",
        "22NSHD", "NLSHL", "N SHD2", "xNSHD", "NSHDL2S", "NSHx", "NL2HSDNL2",
    };
    kvp_layout layout = shape_of(KVP_BF16, D);
    const kvp_layout before = layout;
    for (size_t i = 0; i < COUNT(wrong); i++) {
        assert_int_equal(kvp_layout_arrange(&layout, wrong[i], NULL), KVP_E_ARG);
        assert_int_equal(kvp_layout_arrange(&layout, "NSHD", wrong[i]), KVP_E_ARG);
    }
    static const char *const wrong_pairs[][2] = {
        {"2NSHD", "NSHD"},   /* one has a 2 */
        {"N2SHD", "2NSHD"},  /* not the same before the 2 */
        {"2LNSHD", "2NSHD"}, /* layers in one tensor, and not */
        {"NHD2Sx", "NHD2S"}, /* D before the 2, in runs and not */
    };
    for (size_t i = 0; i < COUNT(wrong_pairs); i++) {
        assert_int_equal(kvp_layout_arrange(&layout, wrong_pairs[i][0], wrong_pairs[i][1]),
                         KVP_E_ARG);
    }
    assert_int_equal(kvp_layout_arrange(NULL, "NSHD", NULL), KVP_E_ARG);
    assert_int_equal(kvp_layout_arrange(&layout, NULL, NULL), KVP_E_ARG);
    assert_memory_equal(&layout, &before, sizeof layout);
    layout.k.size = 12; /* 24 bytes: no runs of 16 */
    assert_int_equal(kvp_layout_arrange(&layout, KVP_ORDER_VLLM_PAGED_K, KVP_ORDER_VLLM_PAGED_V),
                     KVP_E_ARG);
}

TEST(test_too_large)
{
    kvp_layout layout = shape_of(KVP_F32, KVP_HEAD_SIZE_MAX);
    layout.k.size = KVP_HEAD_SIZE_MAX;
    layout.n_blocks = INT32_MAX;
    layout.block_tokens = KVP_BLOCK_TOKENS_MAX;
    layout.n_heads = KVP_HEADS_MAX;
    layout.n_layers = KVP_LAYERS_MAX;
    const kvp_layout before = layout;
    assert_int_equal(kvp_layout_arrange(&layout, "NSHD", NULL), KVP_E_TOO_LONG);
    assert_int_equal(kvp_layout_arrange(&layout, "LN2HSD", NULL), KVP_E_TOO_LONG);
    if (SIZE_MAX == UINT32_MAX)
        return;
    layout.type = KVP_INT8;
    layout.block_tokens = 1;
    layout.n_heads = 8;
    layout.k.size = layout.v.size = 1;
    assert_int_equal(kvp_layout_arrange(&layout, "NSHD", NULL), KVP_OK);
    layout = before;
    layout.n_blocks = 1 << 29; /* 2^29 x 2^16 x 2^16 x 4 is 2^63: half of memory at most */
    layout.n_heads = 1;
    layout.n_layers = 1;
    assert_int_equal(kvp_layout_arrange(&layout, "NSHD", NULL), KVP_E_TOO_LONG);
    layout.n_blocks = 1 << 28;
    assert_int_equal(kvp_layout_arrange(&layout, "NSHD", NULL), KVP_OK);
    assert_int_equal(kvp_layout_arrange(&layout, "2NSHD", NULL), KVP_E_TOO_LONG); /* 2^62 twice */
}

/* What each field may not be, and what is said about it. */
TEST(test_check_refusals)
{
    kvp_layout good = shape_of(KVP_INT8, D);
    kvp_layout layout;
    kvp_why why;
    assert_int_equal(kvp_layout_arrange(&good, KVP_ORDER_FLASHINFER_NHD, NULL), KVP_OK);
    assert_int_equal(kvp_layout_add_scales(&good, "N2H"), KVP_OK);
    assert_int_equal(kvp_layout_check(&good, &why), KVP_OK);
    assert_string_equal(why.text, "");
    assert_string_equal(why.field, "");
    assert_int_equal(kvp_layout_check(NULL, &why), KVP_E_ARG);
    assert_string_equal(why.text, "layout: is NULL");

#define REFUSED(change, said)                                                                      \
    do {                                                                                           \
        layout = good;                                                                             \
        change;                                                                                    \
        assert_int_equal(kvp_layout_check(&layout, &why), KVP_E_ARG);                              \
        assert_non_null(strstr(why.text, said));                                                   \
        assert_non_null(strchr(":[ ", why.text[strlen(why.field)]));                               \
    } while (0)
    char said_of_size[100];
    (void)snprintf(
        said_of_size, sizeof said_of_size,
        "struct_size is %zu: no size that it may have, or not zeros behind this version's "
        "fields",
        sizeof(layout) - 1);
    REFUSED(layout.struct_size--, said_of_size);
    REFUSED(layout.type = 0, "type is 0, expected 1 to 5");
    REFUSED(layout.type = 6, "type is 6, expected 1 to 5");
    REFUSED(layout.n_blocks = 1, "n_blocks is 1, expected 2 to 2^31-1");
    REFUSED(layout.n_blocks = 1u << 31, "n_blocks is 2147483648, expected 2 to 2^31-1");
    REFUSED(layout.block_tokens = 0, "block_tokens is 0, expected 1 to 65536");
    REFUSED(layout.block_tokens = 65537, "block_tokens is 65537, expected 1 to 65536");
    REFUSED(layout.n_layers = 0, "n_layers is 0, expected 1 to 1024");
    REFUSED(layout.n_layers = 1025, "n_layers is 1025, expected 1 to 1024");
    REFUSED(layout.n_heads = 0, "n_heads is 0, expected 1 to 65536");
    REFUSED(layout.n_heads = 65537, "n_heads is 65537, expected 1 to 65536");
    REFUSED(layout.k.size = 0, "k.size is 0, expected 1 to 65536");
    REFUSED(layout.v.size = 65537, "v.size is 65537, expected 0 to 65536");
    REFUSED(layout.first_layer = UINT32_MAX, "first_layer is 4294967295, expected 0 to 4294967292");
    REFUSED(layout.first_head = UINT32_MAX - 1,
            "first_head is 4294967294, expected 0 to 4294967293");
    REFUSED(layout.n_tensors = 0, "n_tensors is 0, expected 1 to 4096");
    REFUSED(layout.n_tensors = 4097, "n_tensors is 4097, expected 1 to 4096");
    REFUSED(layout.n_tensors--, "a part names a tensor that there is not");
    REFUSED(layout.k.tensor_step = UINT32_MAX, "a part names a tensor that there is not");
    REFUSED(layout.k.tensor = UINT32_MAX, "a part names a tensor that there is not");
    REFUSED(layout.k.run = 0, "run does not divide size");
    REFUSED(layout.k.run = 5, "run does not divide size");
    REFUSED(layout.v.run = 32, "run does not divide size");
    REFUSED(layout.k.block_stride = 0, "strides overlap");
    REFUSED(layout.k.token_stride--, "strides overlap");
    REFUSED(layout.k.head_stride = layout.k.token_stride, "strides overlap");
    REFUSED(layout.k.run = 1, "strides overlap"); /* run_stride 0 */
    REFUSED(layout.k.block_stride = SIZE_MAX, SIZE_MAX > UINT32_MAX
                                                  ? "the strides reach further than memory does"
                                                  : "a part does not fit its tensor");
    REFUSED(layout.v.block_stride += 1, "a part does not fit its tensor");
    REFUSED(layout.k.tensor_bytes = SIZE_MAX, "a tensor is larger than memory");
    REFUSED(layout.v.tensor_bytes--, "a part does not fit its tensor");
    REFUSED(layout.v.offset++, "a part does not fit its tensor");
    REFUSED(layout.v.offset = SIZE_MAX, "a part does not fit its tensor");
    REFUSED(layout.v.layer_stride = SIZE_MAX, "a part does not fit its tensor");
    REFUSED(layout.v.tensor_bytes++, "two parts of a tensor differ in its bytes");
    REFUSED(layout.v.offset--, "two parts overlap, or cannot be shown apart");
    REFUSED(layout.v.offset = 0, "two parts overlap, or cannot be shown apart");
    REFUSED(layout.k.offset = layout.v.offset - 1;
            layout.v.offset = 0, "two parts overlap, or cannot be shown apart");
    REFUSED(layout.v.tensor = 1; layout.v.tensor_step = 0, "strides overlap");
    REFUSED(layout.k_scales.size = 2, "k_scales.size is 2, expected 0 or 1");
    REFUSED(layout.v_scales.token_stride = 4, "v_scales.token_stride is 4, expected 0");
    REFUSED(layout.v.size = 0, "scales of a V that there is not");
    REFUSED(layout.type = KVP_BF16, "the type has no scales");
    REFUSED(layout.k_scales.head_stride = 6, "a stride does not keep elements aligned");
    REFUSED(layout.k_scales.offset = 2, "an offset does not keep elements aligned");
    REFUSED(layout.k_scales.layer_stride = 2, "an offset does not keep elements aligned");
#undef REFUSED
    assert_int_equal(kvp_layout_check(&good, NULL), KVP_OK);
}

/* What is legal though it looks odd: gaps, counts of 1 with any stride, tensors nobody lies in. */
TEST(test_odd_and_right)
{
    kvp_layout layout = shape_of(KVP_BF16, D);
    layout.n_heads = 1;
    assert_int_equal(kvp_layout_arrange(&layout, KVP_ORDER_FLASHINFER_NHD, NULL), KVP_OK);
    layout.k.head_stride = 12345; /* of the only head */
    layout.n_tensors += 7;
    assert_int_equal(kvp_layout_check(&layout, NULL), KVP_OK);
    layout.k.block_stride += 64;
    layout.v.block_stride += 64;
    layout.k.tensor_bytes += N * 64;
    layout.v.tensor_bytes += N * 64;
    layout.v.offset += 32;
    assert_int_equal(kvp_layout_check(&layout, NULL), KVP_OK);
}

/* ----------------------------------------------------------------------- against a map of bytes */

static uint64_t draws = 1;

static uint32_t draw(uint32_t n)
{
    draws = draws * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(draws >> 33) % n;
}

enum { MAP_BYTES = 8192, MAPS = 20000 };

/* Mark the bytes of all elements. Gives how many were marked before. */
static unsigned mark_part(const kvp_layout *layout, const kvp_part *part, uint8_t *map)
{
    unsigned n = 0;
    for (size_t b = 0; b < layout->n_blocks; b++) {
        for (size_t t = 0; t < layout->block_tokens; t++) {
            for (size_t h = 0; h < layout->n_heads; h++) {
                for (size_t e = 0; e < part->size; e++) {
                    const size_t at = part->offset + b * part->block_stride +
                                      t * part->token_stride + h * part->head_stride + e;
                    assert_true(at < part->tensor_bytes);
                    n += map[at];
                    map[at] = 1;
                }
            }
        }
    }
    return n;
}

/* K and V one in the other, with the same strides and any offsets: refused if, and only if, a byte
 * is of both. */
TEST(test_parts_one_in_the_other)
{
    static uint8_t map[MAP_BYTES];
    unsigned n_right = 0;
    for (unsigned i = 0; i < MAPS; i++) {
        kvp_layout layout;
        kvp_layout_init(&layout);
        layout.type = KVP_E4M3;
        layout.n_layers = layout.n_tensors = 1;
        layout.n_heads = 1 + draw(3);
        layout.block_tokens = 1 + draw(3);
        layout.n_blocks = 2 + draw(2);
        kvp_part *k = &layout.k;
        kvp_part *v = &layout.v;
        k->size = k->run = 1 + draw(6);
        v->size = v->run = 1 + draw(6);
        const size_t longest = k->size > v->size ? k->size : v->size;
        k->head_stride = longest + draw(8);
        k->token_stride = (layout.n_heads - 1) * k->head_stride + longest + draw(20);
        k->block_stride = (layout.block_tokens - 1) * k->token_stride +
                          (layout.n_heads - 1) * k->head_stride + longest + draw(60);
        v->head_stride = k->head_stride;
        v->token_stride = k->token_stride;
        v->block_stride = k->block_stride;
        k->offset = draw((uint32_t)k->block_stride + 20);
        v->offset = draw((uint32_t)k->block_stride + 20);
        k->tensor_bytes = v->tensor_bytes = MAP_BYTES;
        memset(map, 0, sizeof map);
        assert_int_equal(mark_part(&layout, k, map), 0);
        const int is_right = mark_part(&layout, v, map) == 0;
        if ((kvp_layout_check(&layout, NULL) == KVP_OK) != is_right)
            fail_msg("layout %u: %s", i, is_right ? "refused" : "taken");
        n_right += is_right != 0;
    }
    assert_true(n_right > MAPS / 20 && n_right < MAPS / 2);
}

TEST_MAIN(NULL, NULL)
