/* Memories: created and wrapped, what is refused, and reads: single tokens, gather, checksums. */
#define _DEFAULT_SOURCE /* madvise, mincore */
#include <string.h>

#include "mocka.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <kvpager/memory.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum { N = 6, S = 4, L = 2, H = 3, D = 8 };

static kvp_layout shape_of(uint32_t type)
{
    kvp_layout layout;
    kvp_layout_init(&layout);
    layout.type = type;
    layout.n_blocks = N;
    layout.block_tokens = S;
    layout.n_layers = L;
    layout.n_heads = H;
    layout.k.size = layout.v.size = D;
    return layout;
}

static kvp_layout layout_of(uint32_t type, const char *order)
{
    kvp_layout layout = shape_of(type);
    assert_int_equal(kvp_layout_arrange(&layout, order, NULL), KVP_OK);
    if (type == KVP_INT8 || type == KVP_E4M3)
        assert_int_equal(kvp_layout_add_scales(&layout, "N2H"), KVP_OK);
    return layout;
}

static kvp_memory *create(const kvp_layout *layout)
{
    kvp_memory *memory;
    assert_int_equal(kvp_memory_create(layout, NULL, &memory), KVP_OK);
    return memory;
}

/* ----------------------------------------------------------------------------------- of its own */

TEST(test_create)
{
    const kvp_layout layout = layout_of(KVP_INT8, KVP_ORDER_VLLM_NHD);
    kvp_memory *memory = create(&layout);
    kvp_layout described;
    kvp_memory_info info;
    unsigned char *end = NULL;
    assert_int_equal(kvp_memory_describe(memory, &described, &info), KVP_OK);
    assert_memory_equal(&described, &layout, sizeof layout);
    assert_int_equal(info.numa_node, -1);
    assert_true(info.pages >= KVP_PAGES_SMALL && info.pages <= KVP_PAGES_HUGE);
    for (uint32_t i = 0; i < layout.n_tensors; i++) {
        unsigned char *tensor = kvp_memory_tensor(memory, i);
        const size_t bytes = i < L ? layout.k.tensor_bytes : layout.k_scales.tensor_bytes;
        assert_int_equal((uintptr_t)tensor % 4096, 0);
        assert_true(i > 0 || (uintptr_t)tensor % (2 << 20) == 0);
        assert_true(tensor >= end);
        for (size_t at = 0; at < bytes; at++)
            assert_int_equal(tensor[at], 0);
        memset(tensor, 0xFF, bytes); /* all of it is there */
        end = tensor + bytes;
    }
    assert_true(end <= (unsigned char *)kvp_memory_tensor(memory, 0) + info.mapped_bytes);
    assert_null(kvp_memory_tensor(memory, layout.n_tensors));
    assert_null(kvp_memory_tensor(NULL, 0));
    kvp_memory_destroy(memory);
    kvp_memory_destroy(NULL);
}

/* Whether advice that does not exist is refused. The system that qemu emulates takes all advice,
 * and follows none. */
static int follows_advice(void)
{
    _Alignas(4096) static unsigned char page[4096];
    return madvise(page, sizeof page, -1) != 0;
}

#if defined(__linux__)

enum { MODE_BIND = 2, OF_ADDRESS = 2, NODES = 1024, WORD_BITS = 8 * sizeof(long) };

/* Does the system bind pages to node 0? */
static int can_bind(void)
{
    _Alignas(4096) static unsigned char page[4096];
    const unsigned long node_0[NODES / WORD_BITS] = {1};
    return syscall(SYS_mbind, page, sizeof page, MODE_BIND, node_0, NODES + 1ul, 0) == 0;
}

/* Are pages bound to node 0, and no other? */
static int is_bound(void *page)
{
    unsigned long nodes[NODES / WORD_BITS] = {0};
    int mode = 0;
    assert_int_equal(syscall(SYS_get_mempolicy, &mode, nodes, NODES + 1ul, page, OF_ADDRESS), 0);
    return mode == MODE_BIND && nodes[0] == 1;
}

#else

static int can_bind(void)
{
    return 0;
}

static int is_bound(void *page)
{
    (void)page;
    return 0;
}

#endif

/* MiB that the process has mapped; 0: the system does not say. */
static unsigned long mapped_mib(void)
{
    unsigned long n_pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file)
        return 0;
    assert_int_equal(fscanf(file, "%lu", &n_pages), 1); /* NOLINT */
    assert_int_equal(fclose(file), 0);
    return n_pages * ((unsigned long)sysconf(_SC_PAGESIZE) >> 10) >> 10;
}

/* All that was mapped is given back, also what was mapped for the alignment. */
TEST(test_create_and_destroy)
{
    const kvp_layout layout = layout_of(KVP_F16, KVP_ORDER_CPU);
    const unsigned long before = mapped_mib();
    for (int i = 0; i < 192; i++) {
        kvp_memory_options options;
        kvp_memory *memory;
        kvp_memory_options_init(&options);
        options.pages = i % 3 == 0   ? KVP_PAGES_AUTO
                        : i % 3 == 1 ? KVP_PAGES_SMALL
                                     : KVP_PAGES_TRANSPARENT;
        assert_int_equal(kvp_memory_create(&layout, &options, &memory), KVP_OK);
        kvp_memory_destroy(memory);
    }
    assert_true(!follows_advice() || mapped_mib() < before + 48); /* else an emulator's */
}

TEST(test_create_options)
{
    const kvp_layout layout = layout_of(KVP_F16, KVP_ORDER_CPU);
    kvp_memory_options options;
    kvp_memory_info info;
    kvp_memory *memory;
    for (uint32_t pages = KVP_PAGES_AUTO; pages <= KVP_PAGES_TRANSPARENT; pages++) {
        kvp_memory_options_init(&options);
        options.pages = pages;
        options.touch = pages != KVP_PAGES_TRANSPARENT;
        assert_int_equal(kvp_memory_create(&layout, &options, &memory), KVP_OK);
        assert_int_equal(kvp_memory_describe(memory, NULL, &info), KVP_OK);
        assert_true(pages != KVP_PAGES_SMALL || info.pages == KVP_PAGES_SMALL);
        if (options.touch && follows_advice()) { /* the last page, too, is there */
            unsigned char is_there = 0;
            unsigned char *page = (unsigned char *)kvp_memory_tensor(memory, 0) +
                                  (layout.k.tensor_bytes - 1) / 4096 * 4096;
            assert_int_equal(mincore(page, 4096, &is_there), 0);
            assert_int_equal(is_there & 1, 1);
        }
        kvp_memory_destroy(memory);
    }
    /* Reserved pages: the machine has some or not; nothing else may come of it. */
    options.pages = KVP_PAGES_HUGE;
    kvp_status status = kvp_memory_create(&layout, &options, &memory);
    assert_true(status == KVP_OK || status == KVP_E_NO_MEMORY);
    if (status == KVP_OK) {
        assert_int_equal(kvp_memory_describe(memory, NULL, &info), KVP_OK);
        assert_int_equal(info.pages, KVP_PAGES_HUGE);
        kvp_memory_destroy(memory);
    }
    /* Node 0 is everywhere, if the system lets us ask; node 1000 nowhere. */
    kvp_memory_options_init(&options);
    options.numa_node = 0;
    options.touch = 1;
    status = kvp_memory_create(&layout, &options, &memory);
    assert_true(status == KVP_OK || (status == KVP_E_NO_MEMORY && !can_bind()));
    if (status == KVP_OK) {
        assert_int_equal(kvp_memory_describe(memory, NULL, &info), KVP_OK);
        assert_int_equal(info.numa_node, 0);
        assert_true(!can_bind() || is_bound(kvp_memory_tensor(memory, 0)));
        kvp_memory_destroy(memory);
    }
    memory = NULL;
    options.numa_node = 1000;
    assert_int_equal(kvp_memory_create(&layout, &options, &memory), KVP_E_NO_MEMORY);
    options.numa_node = INT32_MAX;
    assert_int_equal(kvp_memory_create(&layout, &options, &memory), KVP_E_NO_MEMORY);
    assert_null(memory);
}

TEST(test_create_refusals)
{
    const kvp_layout layout = layout_of(KVP_F16, KVP_ORDER_CPU);
    kvp_layout wrong = layout;
    kvp_memory_options options;
    kvp_memory *memory = NULL;
    assert_int_equal(kvp_memory_create(NULL, NULL, &memory), KVP_E_ARG);
    assert_int_equal(kvp_memory_create(&layout, NULL, NULL), KVP_E_ARG);
    wrong.k.run = 3;
    assert_int_equal(kvp_memory_create(&wrong, NULL, &memory), KVP_E_ARG);
    kvp_memory_options_init(NULL);
    kvp_memory_options_init(&options);
    assert_fields(options, pages, KVP_PAGES_AUTO, numa_node, -1, touch, 0);
#define REFUSED(change)                                                                            \
    do {                                                                                           \
        kvp_memory_options_init(&options);                                                         \
        change;                                                                                    \
        assert_int_equal(kvp_memory_create(&layout, &options, &memory), KVP_E_ARG);                \
    } while (0)
    REFUSED(options.struct_size = 1);
    REFUSED(options.pages = 4);
    REFUSED(options.numa_node = -2);
    REFUSED(options.touch = 2);
    REFUSED(options.reserved = 1);
#undef REFUSED
    /* More than there is, and more than can be added up. */
    wrong = shape_of(KVP_F32);
    wrong.n_blocks = 1u << 30;
    wrong.block_tokens = 65536;
    wrong.n_heads = 1024;
    wrong.k.size = wrong.v.size = 1;
    if (SIZE_MAX == UINT32_MAX) {
        assert_int_equal(kvp_layout_arrange(&wrong, "NSHD", NULL), KVP_E_TOO_LONG);
        return;
    }
    assert_int_equal(kvp_layout_arrange(&wrong, "NSHD", NULL), KVP_OK);
    assert_int_equal(kvp_memory_create(&wrong, NULL, &memory), KVP_E_NO_MEMORY);
    wrong.n_layers = 1024;
    assert_int_equal(kvp_layout_arrange(&wrong, "NSHD", NULL), KVP_OK);
    assert_int_equal(kvp_memory_create(&wrong, NULL, &memory), KVP_E_TOO_LONG);
    assert_null(memory);
}

/* ------------------------------------------------------------------------------------- wrapped */

TEST(test_wrap)
{
    const kvp_layout layout = layout_of(KVP_F32, KVP_ORDER_VLLM_NHD);
    const size_t bytes = layout.k.tensor_bytes;
    unsigned char *space = calloc(L + 1, bytes);
    void *tensors[L + 1] = {space + bytes, space, NULL}; /* side by side, in any order */
    kvp_memory *memory = NULL;
    kvp_memory_info info;
    assert_int_equal(kvp_memory_wrap(&layout, tensors, &memory), KVP_OK);
    assert_ptr_equal(kvp_memory_tensor(memory, 0), space + bytes);
    assert_ptr_equal(kvp_memory_tensor(memory, 1), space);
    assert_int_equal(kvp_memory_describe(memory, NULL, &info), KVP_OK);
    assert_fields(info, mapped_bytes, 0, pages, KVP_PAGES_AUTO);
    assert_int_equal(kvp_memory_describe(memory, NULL, NULL), KVP_OK);
    assert_int_equal(kvp_memory_describe(NULL, NULL, &info), KVP_E_ARG);
    kvp_memory_destroy(memory);
    for (size_t i = 0; i < (L + 1) * bytes; i++)
        assert_int_equal(space[i], 0);

    kvp_layout slice; /* of layer 1 only: tensor 0 is not needed */
    assert_int_equal(kvp_layout_slice(&layout, &(kvp_slice){1, 1, 0, H}, &slice), KVP_OK);
    tensors[0] = NULL;
    assert_int_equal(kvp_memory_wrap(&slice, tensors, &memory), KVP_OK);
    assert_null(kvp_memory_tensor(memory, 0));
    kvp_memory_destroy(memory);
    assert_int_equal(kvp_memory_create(&slice, NULL, &memory), KVP_OK);
    assert_null(kvp_memory_tensor(memory, 0));
    assert_non_null(kvp_memory_tensor(memory, 1));
    kvp_memory_destroy(memory);
    free(space);
}

TEST(test_wrap_refusals)
{
    const kvp_layout layout = layout_of(KVP_F16, KVP_ORDER_VLLM_NHD);
    const size_t bytes = layout.k.tensor_bytes;
    unsigned char *space = calloc(3, bytes);
    kvp_memory *memory = NULL;
    void *const wrong[][2] = {
        {space, NULL},                      /* missing */
        {space, space + bytes + 1},         /* misaligned */
        {space, space},                     /* the same twice */
        {space, space + bytes - 2},         /* overlapping by one element */
        {space + bytes, space + 2},         /* the other way round */
        {space, (void *)(UINTPTR_MAX - 1)}, /* beyond the end of memory */
    };
    for (size_t i = 0; i < COUNT(wrong); i++)
        assert_int_equal(kvp_memory_wrap(&layout, wrong[i], &memory), KVP_E_ARG);
    void *const right[] = {space, space + bytes};
    assert_int_equal(kvp_memory_wrap(NULL, right, &memory), KVP_E_ARG);
    assert_int_equal(kvp_memory_wrap(&layout, NULL, &memory), KVP_E_ARG);
    assert_int_equal(kvp_memory_wrap(&layout, right, NULL), KVP_E_ARG);
    assert_null(memory);
    assert_int_equal(kvp_memory_wrap(&layout, right, &memory), KVP_OK);
    kvp_memory_destroy(memory);
    free(space);
}

/* Elements of int8 may lie anywhere; the scales of every layer not. */
TEST(test_wrap_of_scales)
{
    kvp_layout layout = shape_of(KVP_INT8);
    assert_int_equal(kvp_layout_arrange(&layout, KVP_ORDER_VLLM_NHD, NULL), KVP_OK);
    assert_int_equal(kvp_layout_add_scales(&layout, "NH"), KVP_OK); /* K's and V's apart */
    const size_t bytes = layout.k.tensor_bytes;
    void *tensors[3 * L];
    unsigned char *space = calloc(3 * L, bytes + 128);
    const size_t apart = bytes / 64 * 64 + 128;
    assert_true(layout.n_tensors <= COUNT(tensors) && layout.k_scales.tensor_bytes <= bytes);
    for (uint32_t odd = 0; odd < layout.n_tensors; odd++) {
        for (uint32_t by = 1; by <= 4; by++) {
            kvp_memory *memory = NULL;
            for (uint32_t i = 0; i < layout.n_tensors; i++)
                tensors[i] = space + i * apart + (i == odd ? by : 0);
            const int is_right = odd < layout.k_scales.tensor || by == 4;
            assert_int_equal(kvp_memory_wrap(&layout, tensors, &memory),
                             is_right ? KVP_OK : KVP_E_ARG);
            kvp_memory_destroy(memory);
        }
    }
    free(space);
}

/* --------------------------------------------------------------------------------------- layers */

static float value_of(uint32_t layer, int which, int64_t slot, uint32_t head, uint32_t e)
{
    return (float)((layer * 2 + (uint32_t)which) * 1000 + (uint32_t)slot * 16 + head * 5 + e % 5) /
           8;
}

static void fill(kvp_memory *memory, uint32_t v_size)
{
    float row[D];
    for (uint32_t l = 0; l < L; l++) {
        kvp_layer layer;
        assert_int_equal(kvp_memory_layer(memory, l, &layer), KVP_OK);
        for (int64_t slot = 0; slot < N * S; slot++) {
            for (uint32_t i = 0; i < 2 * H; i++) {
                const int which = i % 2 ? KVP_V : KVP_K;
                for (uint32_t e = 0; e < D; e++)
                    row[e] = value_of(l, which, slot, i / 2, e);
                if (which == KVP_K || v_size)
                    assert_int_equal(kvp_layer_write(&layer, which, slot, i / 2, row), KVP_OK);
            }
        }
    }
}

/* What was written is read, in every layout, and lies where the view says. */
TEST(test_layers)
{
    static const char *const orders[] = {"2NSHD", "N2HSD", "NL2HSD", "NHDS", "HDNS", "LN2HSD"};
    float row[D];
    for (size_t i = 0; i < COUNT(orders); i++) {
        const kvp_layout layout = layout_of(KVP_F32, orders[i]);
        kvp_memory *memory = create(&layout);
        kvp_layer layer;
        fill(memory, D);
        for (uint32_t l = 0; l < L; l++) {
            assert_int_equal(kvp_memory_layer(memory, l, &layer), KVP_OK);
            assert_int_equal(layer.n_heads, H);
            for (int64_t slot = 0; slot < N * S; slot++) {
                const unsigned char *at = layer.v.base + (size_t)(slot / S) * layer.v.block_stride +
                                          (size_t)(slot % S) * layer.v.token_stride +
                                          2 * layer.v.head_stride;
                assert_int_equal(kvp_layer_read(&layer, KVP_V, slot, 2, row), KVP_OK);
                for (uint32_t e = 0; e < D; e++) {
                    float there;
                    memcpy(&there, at + e / layer.v.run * layer.v.run_stride + e % layer.v.run * 4,
                           sizeof there);
                    assert_true(row[e] == value_of(l, KVP_V, slot, 2, e));
                    assert_true(there == row[e]);
                }
                assert_int_equal(kvp_layer_read(&layer, KVP_K, slot, 1, row), KVP_OK);
                assert_true(row[D - 1] == value_of(l, KVP_K, slot, 1, D - 1));
            }
        }
        assert_int_equal(kvp_memory_layer(memory, L, &layer), KVP_E_ARG);
        assert_int_equal(kvp_memory_layer(memory, 0, NULL), KVP_E_ARG);
        assert_int_equal(kvp_memory_layer(NULL, 0, &layer), KVP_E_ARG);
        kvp_memory_destroy(memory);
    }
    kvp_layout layout = layout_of(KVP_F32, "NSHD");
    kvp_layer layer;
    layout.k.run_stride = 77; /* not looked at: all of D is one run */
    kvp_memory *memory = create(&layout);
    assert_int_equal(kvp_memory_layer(memory, 0, &layer), KVP_OK);
    assert_int_equal(layer.k.run_stride, 0);
    kvp_memory_destroy(memory);
}

TEST(test_layer_refusals)
{
    kvp_layout layout = shape_of(KVP_BF16);
    layout.v.size = 0;
    assert_int_equal(kvp_layout_arrange(&layout, KVP_ORDER_LATENT, NULL), KVP_OK);
    kvp_memory *memory = create(&layout);
    kvp_layer layer;
    float row[D] = {1};
    assert_int_equal(kvp_memory_layer(memory, 0, &layer), KVP_OK);
    assert_null(layer.v.base);
    assert_null(layer.k.scales);
    for (int i = 0; i < 2; i++) {
#define CALL(...) (i ? kvp_layer_read(__VA_ARGS__, row) : kvp_layer_write(__VA_ARGS__, row))
        assert_int_equal(CALL(NULL, KVP_K, 0, 0), KVP_E_ARG);
        assert_int_equal(CALL(&layer, KVP_V, 0, 0), KVP_E_ARG); /* there is none */
        assert_int_equal(CALL(&layer, 2, 0, 0), KVP_E_ARG);
        assert_int_equal(CALL(&layer, KVP_K, N * S, 0), KVP_E_ARG);
        assert_int_equal(CALL(&layer, KVP_K, -2, 0), KVP_E_ARG);
        assert_int_equal(CALL(&layer, KVP_K, INT64_MAX, 0), KVP_E_ARG);
        assert_int_equal(CALL(&layer, KVP_K, 0, H), KVP_E_ARG);
        assert_int_equal(CALL(&(kvp_layer){0}, KVP_K, 0, 0), KVP_E_ARG);
        assert_int_equal(CALL(&layer, KVP_K, 0, 0), KVP_OK);
#undef CALL
    }
    assert_int_equal(kvp_layer_read(&layer, KVP_K, 0, 0, NULL), KVP_E_ARG);
    assert_int_equal(kvp_layer_write(&layer, KVP_K, 0, 0, NULL), KVP_E_ARG);
    assert_int_equal(kvp_layer_read(&layer, KVP_K, KVP_NO_SLOT, 0, row), KVP_E_ARG);
    const float other[D] = {7};
    assert_int_equal(kvp_layer_write(&layer, KVP_K, KVP_NO_SLOT, 0, other), KVP_OK);
    assert_int_equal(kvp_layer_write(&layer, KVP_K, KVP_NO_SLOT, H, other), KVP_E_ARG);
    assert_int_equal(kvp_layer_read(&layer, KVP_K, 0, 0, row), KVP_OK);
    assert_true(row[0] == 1); /* written nowhere */
    kvp_memory_destroy(memory);
}

/* A block's scale is set by its first token, and rises when a token needs it. */
TEST(test_scales)
{
    const uint32_t types[] = {KVP_INT8, KVP_E4M3};
    for (size_t i = 0; i < COUNT(types); i++) {
        const float largest = i ? 448 : 127;
        const kvp_layout layout = layout_of(types[i], KVP_ORDER_CPU);
        kvp_memory *memory = create(&layout);
        kvp_layer layer;
        float row[D];
        assert_int_equal(kvp_memory_layer(memory, 1, &layer), KVP_OK);
        float *scale = (float *)(void *)((char *)layer.k.scales + 2 * layer.k.scale_block_stride +
                                         layer.k.scale_head_stride);
        const float *other =
            (float *)(void *)((char *)layer.k.scales + 2 * layer.k.scale_block_stride);
        const float first[D] = {largest, -16, 0.75f, 1};
        const float small[D] = {2, 1, -1};
        const float large[D] = {4 * largest, -64};
        assert_int_equal(kvp_layer_write(&layer, KVP_K, 2 * S, 1, first), KVP_OK);
        assert_true(*scale == 1);
        assert_int_equal(kvp_layer_write(&layer, KVP_K, 2 * S + 2, 1, small), KVP_OK);
        assert_true(*scale == 1); /* it fits */
        assert_int_equal(kvp_layer_write(&layer, KVP_K, 2 * S + 1, 1, large), KVP_OK);
        assert_true(*scale == 4);
        assert_true(*other == 0); /* of another head */
        assert_int_equal(kvp_layer_read(&layer, KVP_K, 2 * S, 1, row), KVP_OK);
        /* 127 / 4 = 31.75 is 32 as an integer, and 448 / 4 = 112 is an e4m3 */
        assert_true(row[0] == (i ? 448 : 128) && row[1] == -16);
        /* 0.75 / 4 is no integer, but an e4m3 */
        assert_true(row[2] == (i ? 0.75f : 0));
        assert_int_equal(kvp_layer_read(&layer, KVP_K, 2 * S + 1, 1, row), KVP_OK);
        assert_true(row[0] == 4 * largest && row[1] == -64);
        assert_int_equal(kvp_layer_read(&layer, KVP_K, 2 * S + 2, 1, row), KVP_OK);
        assert_true(row[0] == (i ? 2 : 0)); /* 2 / 4: a tie, to the even 0 */
        /* Begun anew: the scale falls again. Infinities saturate and leave the others alone. */
        const float wild[D] = {INFINITY, 2 * largest, NAN};
        assert_int_equal(kvp_layer_write(&layer, KVP_K, 2 * S, 1, wild), KVP_OK);
        assert_true(*scale == 2);
        assert_int_equal(kvp_layer_read(&layer, KVP_K, 2 * S, 1, row), KVP_OK);
        assert_true(row[0] == 2 * largest && row[1] == 2 * largest);
        assert_true(i ? isnan(row[2]) : row[2] == 0);
        /* Zeros set a scale that anything raises. */
        const float zeros[D] = {0};
        assert_int_equal(kvp_layer_write(&layer, KVP_K, 2 * S, 1, zeros), KVP_OK);
        assert_int_equal(kvp_layer_write(&layer, KVP_K, 2 * S + 1, 1, small), KVP_OK);
        assert_int_equal(kvp_layer_read(&layer, KVP_K, 2 * S + 1, 1, row), KVP_OK);
        assert_true(fabsf(row[0] - 2) < 1e-6f);
        /* Memory of somebody else's may hold anything: a scale that is no number is replaced. */
        const float no_scales[] = {NAN, INFINITY, -1};
        for (size_t w = 0; w < COUNT(no_scales); w++) {
            *scale = no_scales[w];
            assert_int_equal(kvp_layer_write(&layer, KVP_K, 2 * S + 1, 1, large), KVP_OK);
            assert_int_equal(kvp_layer_read(&layer, KVP_K, 2 * S + 1, 1, row), KVP_OK);
            assert_true(row[0] == 4 * largest && row[1] == -64);
        }
        kvp_memory_destroy(memory);
    }
}

/* --------------------------------------------------------------------------------------- gather */

TEST(test_gather)
{
    const kvp_layout layout = layout_of(KVP_F32, KVP_ORDER_FLASHINFER_HND);
    kvp_memory *memory = create(&layout);
    const int32_t row[] = {4, KVP_NULL_BLOCK, 1};
    float k[2 * S][H][D];
    float v[2 * S][H][D];
    fill(memory, D);
    const kvp_gather gather = {.row = row, .n_row = 3, .layer = 1, .begin = 2, .n_tokens = 2 * S};
    assert_int_equal(kvp_memory_gather(memory, &gather, k[0][0], v[0][0]), KVP_OK);
    for (uint32_t i = 0; i < 2 * S; i++) {
        const uint32_t position = 2 + i;
        const int64_t slot = (int64_t)row[position / S] * S + position % S;
        for (uint32_t h = 0; h < H; h++) {
            for (uint32_t e = 0; e < D; e++) {
                if (position / S == 1) {
                    assert_true(isnan(k[i][h][e]) && isnan(v[i][h][e]));
                } else {
                    assert_true(k[i][h][e] == value_of(1, KVP_K, slot, h, e));
                    assert_true(v[i][h][e] == value_of(1, KVP_V, slot, h, e));
                }
            }
        }
    }
    assert_int_equal(kvp_memory_gather(memory, &gather, NULL, NULL), KVP_OK);

    const int32_t wrong_row[] = {4, -1, N};
    k[0][0][0] = 99;
    const kvp_gather wrong[] = {
        {.row = row, .n_row = 3, .layer = L, .n_tokens = 1},
        {.row = row, .n_row = 3, .begin = 3 * S, .n_tokens = 1},
        {.row = row, .n_row = 2, .begin = 1, .n_tokens = 2 * S},
        {.row = row, .n_row = UINT32_MAX, .begin = UINT32_MAX, .n_tokens = UINT32_MAX},
        {.row = wrong_row, .n_row = 3, .n_tokens = S + 1},
        {.row = wrong_row, .n_row = 3, .begin = 2 * S, .n_tokens = 1},
        {.row = NULL, .n_row = 3, .n_tokens = 1},
    };
    for (size_t i = 0; i < COUNT(wrong); i++)
        assert_int_equal(kvp_memory_gather(memory, &wrong[i], k[0][0], v[0][0]), KVP_E_ARG);
    assert_true(k[0][0][0] == 99);
    assert_int_equal(kvp_memory_gather(NULL, &gather, k[0][0], NULL), KVP_E_ARG);
    assert_int_equal(kvp_memory_gather(memory, NULL, k[0][0], NULL), KVP_E_ARG);
    /* A block outside that nobody asks for does not matter. */
    const kvp_gather first = {.row = wrong_row, .n_row = 3, .n_tokens = S};
    assert_int_equal(kvp_memory_gather(memory, &first, k[0][0], NULL), KVP_OK);
    kvp_memory_destroy(memory);
    kvp_layout latent = shape_of(KVP_F32);
    latent.v.size = 0;
    assert_int_equal(kvp_layout_arrange(&latent, "NSHD", NULL), KVP_OK);
    memory = create(&latent);
    assert_int_equal(kvp_memory_gather(memory, &gather, k[0][0], NULL), KVP_OK);
    assert_int_equal(kvp_memory_gather(memory, &gather, NULL, v[0][0]), KVP_E_ARG);
    kvp_memory_destroy(memory);
}

/* ------------------------------------------------------------------------------------- checksum */

static kvp_hash checksum(const kvp_memory *memory, int32_t block, uint32_t n_tokens)
{
    kvp_hash hash;
    assert_int_equal(kvp_memory_checksum(memory, block, n_tokens, &hash), KVP_OK);
    return hash;
}

static int are_equal(kvp_hash a, kvp_hash b)
{
    return memcmp(a.bytes, b.bytes, sizeof a.bytes) == 0;
}

/* The same KV gives the same checksum wherever it lies, and any other byte another one. */
TEST(test_checksum)
{
    static const char *const orders[] = {"2NSHD", "N2HSD", "NL2HSD", "NHDS", "HDNS"};
    const uint32_t types[] = {KVP_F32, KVP_F16, KVP_E4M3};
    for (size_t t = 0; t < COUNT(types); t++) {
        const kvp_layout first = layout_of(types[t], orders[0]);
        kvp_memory *reference = create(&first);
        fill(reference, D);
        const kvp_hash expected = checksum(reference, 3, S);
        const kvp_hash expected_part = checksum(reference, 3, 2);
        assert_false(are_equal(expected, expected_part));
        for (size_t i = 1; i < COUNT(orders); i++) {
            const kvp_layout layout = layout_of(types[t], orders[i]);
            kvp_memory *memory = create(&layout);
            fill(memory, D);
            assert_true(are_equal(checksum(memory, 3, S), expected));
            assert_true(are_equal(checksum(memory, 3, 2), expected_part));
            assert_false(are_equal(checksum(memory, 2, S), expected));
            size_t n_seen = 0;
            for (uint32_t tensor = 0; i == 2 && tensor < layout.n_tensors; tensor++) {
                unsigned char *bytes = kvp_memory_tensor(memory, tensor);
                const size_t n = tensor ? layout.k_scales.tensor_bytes : layout.k.tensor_bytes;
                for (size_t at = 0; at < n; at++) {
                    bytes[at] ^= 1;
                    n_seen += !are_equal(checksum(memory, 3, S), expected);
                    bytes[at] ^= 1;
                }
            }
            assert_int_equal(n_seen, i == 2 ? kvp_layout_block_bytes(&layout) : 0);
            kvp_memory_destroy(memory);
        }
        kvp_layout elsewhere = first;
        elsewhere.first_head = 8; /* other heads of the model */
        void *tensors[4 * L];
        for (uint32_t i = 0; i < first.n_tensors; i++)
            tensors[i] = kvp_memory_tensor(reference, i);
        kvp_memory *other;
        assert_int_equal(kvp_memory_wrap(&elsewhere, tensors, &other), KVP_OK);
        assert_false(are_equal(checksum(other, 3, S), expected));
        kvp_memory_destroy(other);
        kvp_hash hash = expected;
        assert_int_equal(kvp_memory_checksum(NULL, 1, 1, &hash), KVP_E_ARG);
        assert_int_equal(kvp_memory_checksum(reference, -1, 1, &hash), KVP_E_ARG);
        assert_int_equal(kvp_memory_checksum(reference, N, 1, &hash), KVP_E_ARG);
        assert_int_equal(kvp_memory_checksum(reference, 1, 0, &hash), KVP_E_ARG);
        assert_int_equal(kvp_memory_checksum(reference, 1, S + 1, &hash), KVP_E_ARG);
        assert_int_equal(kvp_memory_checksum(reference, 1, 1, NULL), KVP_E_ARG);
        assert_true(are_equal(hash, expected));
        kvp_memory_destroy(reference);
    }
}

/* Frozen: the bytes that memory.h lists for this block, hashed by xxh3_128 of
 * test/golden/make_hash_vectors.py. */
TEST(test_checksum_vector)
{
    if (__BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__)
        skip(); /* elements are hashed as they lie */
    static const uint8_t expected[16] = {0x47, 0x41, 0xe1, 0xe1, 0x7b, 0x8b, 0x34, 0x04,
                                         0xcb, 0x05, 0x57, 0xd7, 0x64, 0x50, 0xe3, 0xbb};
    const kvp_layout layout = layout_of(KVP_F32, KVP_ORDER_VLLM_HND);
    kvp_memory *memory = create(&layout);
    fill(memory, D);
    assert_memory_equal(checksum(memory, 3, 2).bytes, expected, sizeof expected);
    kvp_memory_destroy(memory);
}

TEST_MAIN(NULL, NULL)
