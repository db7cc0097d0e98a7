/* kvpager/memory.h: KV memory. Where keys and values lie, and how they are copied.
 *
 *   kvp_layout layout;
 *   kvp_layout_init(&layout);
 *   layout.type = KVP_BF16;
 *   layout.n_blocks = 4096;                      as in kvp_config
 *   layout.block_tokens = 16;
 *   layout.n_layers = 32;
 *   layout.n_heads = 8;
 *   layout.k.size = layout.v.size = 128;
 *   kvp_layout_arrange(&layout, KVP_ORDER_VLLM_NHD, NULL);    offsets and strides; 32 tensors
 *   kvp_memory_wrap(&layout, tensors, &device);         an engine's own tensors, as they are, or
 *   kvp_memory_create(&layout, NULL, &device);          memory of the library's own
 *   ...
 *   kvp_copier_config config;
 *   kvp_copier_config_init(&config);
 *   config.device = &device;
 *   config.host = &host;
 *   kvp_copier_create(&config, &copier);
 *   kvp_plan_take(cache, copies, capacity, &n);
 *   kvp_copier_run(copier, copies, n, NULL);            before the forward pass
 *   ...
 *   kvp_memory_layer(device, 7, &layer);                plain pointers and strides, for a kernel
 *
 * A layout says where things lie, without addresses: K, V and their scales are parts, and element e
 * of (layer l, block b, token t of the block, head h) of a part lies in tensor
 *
 *     part.tensor + l * part.tensor_step,  at byte
 *     part.offset + l * part.layer_stride + b * part.block_stride + t * part.token_stride
 *                 + h * part.head_stride + e / part.run * part.run_stride
 *                 + e % part.run * bytes of the type
 *
 * A tensor is one range of memory: one for each layer, or one for all, K and V together or apart.
 * With run = size the elements of a token and head lie side by side, as most kernels have it.
 * Example: S = 16, 8 heads of 128 bf16, per-layer tensors (2, N, S, H, D), vLLM's NHD. K and V:
 * token_stride 2048, head_stride 256, block_stride 32768; tensor 0, tensor_step 1, layer_stride 0;
 * K at offset 0, V at N * 32768.
 *
 * A memory is a layout with addresses. Layers and heads are counted from 0 in each memory. If a
 * device has a part of the model (tensor or pipeline parallel), first_layer and first_head say
 * which. Block ids are the cache's; all tensors have a block 0.
 *
 * Rules that hold for every call:
 *
 *   - A call that fails has written nothing, neither outputs nor KV.
 *   - KVP_E_ARG: a NULL pointer where none may be, another struct_size, a value out of
 *     range; every call that returns a status can return it. The comments list the others.
 *   - The description of a memory never changes: any thread may read it. The caller orders reads
 *     and writes of KV, as with any memory.
 *   - Nothing allocates except wrap and create.
 *
 * Shape letters: N blocks, S tokens of a block, L layers, H KV heads, D elements of a token and
 * head.
 */
#ifndef KVPAGER_MEMORY_H
#define KVPAGER_MEMORY_H

#include "cache.h"
#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------- types */

/* Types of elements. An element stands for its own value times its scale; the scale is 1 where a
 * part has none. */
enum {
    KVP_F32 = 1,
    KVP_F16 = 2,  /* IEEE binary16 */
    KVP_BF16 = 3, /* the upper half of an f32 */
    KVP_INT8 = 4, /* -127..127 */
    KVP_E4M3 = 5, /* fp8 E4M3FN: largest 448, NaN, no infinities */
    KVP_Q8_0 = 6, /* ggml's q8_0: see below */
    KVP_BYTES = 7 /* recurrent state, as bytes: see below */
};

/* KVP_Q8_0: 32 elements behind their scale. The scale is an f16, then come 32 int8, 34 bytes in
 * all; the next 32 elements follow at once. It is a type of layers that are filled by hand
 * (kvp_layer), for kvp_layer_read and attention only. D is a multiple of 32, run = size, addresses
 * and strides are multiples of 2, and there is a V. All other calls refuse it. */
#define KVP_Q8_0_ELEMENTS 32u
#define KVP_Q8_0_BYTES    34u

/* KVP_BYTES: one byte, and nothing is known of its value. It is the type of layouts of recurrent
 * state (states.h). A block is a slot of state, so S = 1 and N is state_slots. K and V are two
 * parts of a layer's state, as of its convolution and its recurrence; without a V there is one
 * part. Sizes are bytes. Example: 36 layers, each with 24,576 bytes in one tensor and 1 MiB in
 * another: type KVP_BYTES, H = 1, k.size 24576, v.size 1048576, KVP_ORDER_APART_NHD. Such a memory
 * can be copied, sliced and hashed. Calls that read or write values refuse it, and so do attention
 * and kvp_copier_move. */
#define KVP_STATE_BYTES_MAX (1u << 30) /* of a head's part, in one layer */

/* Tell the bytes of an element; 0 for a number that is no type, and for KVP_Q8_0. Thread: pure. */
KVP_API size_t kvp_type_bytes(uint32_t type);

/* Tell the smallest scale with which values up to max_abs fit: max_abs / 127 for KVP_INT8, max_abs
 * / 448 for KVP_E4M3. It is at least the smallest normal f32; infinity counts as the largest f32.
 * It is 1 for NaN, and for the other types. Thread: pure. */
KVP_API float kvp_type_scale(uint32_t type, float max_abs);

/* Read elements as f32: element x scale, in f32. With scale 1 the result is exact.
 *
 * Takes:   scale        any; 1 for none
 *          elements     [n] of `type`, aligned for it
 * Gives:   out_values   [n]
 * Returns: KVP_OK; KVP_E_ARG: no such type, KVP_BYTES, NULL with n > 0, misaligned
 * Thread:  pure. Cost: O(n)
 */
KVP_API kvp_status kvp_type_to_f32(uint32_t type, float scale, const void *elements, size_t n,
                                   float *out_values);

/* Write f32 as elements: value / scale, rounded to the nearest, ties to even.
 *
 * KVP_F16, KVP_BF16: what is too large becomes infinity, NaN stays NaN. KVP_INT8: saturates at -127
 * and 127; NaN becomes 0. KVP_E4M3: saturates at -448 and 448, infinities too; NaN stays NaN.
 *
 * Takes:   scale        finite, above 0; 1 for none
 *          values       [n]
 * Gives:   out_elements [n] of `type`, aligned for it
 * Returns: KVP_OK; KVP_E_ARG: no such type, KVP_BYTES, NULL with n > 0, misaligned, scale
 * Thread:  pure. Cost: O(n)
 */
KVP_API kvp_status kvp_type_from_f32(uint32_t type, float scale, const float *values, size_t n,
                                     void *out_elements);

/* -------------------------------------------------------------------------------------- layouts */

#define KVP_LAYERS_MAX    1024u
#define KVP_HEADS_MAX     65536u
#define KVP_HEAD_SIZE_MAX 65536u

/* Where K, or V, or the scales of one of them, lies. All strides are bytes. */
typedef struct kvp_part {
    uint32_t size;        /* D; scales: 1; 0: there is no such part */
    uint32_t run;         /* elements that lie side by side, a divisor of size; size: all */
    uint32_t tensor;      /* of layer 0 */
    uint32_t tensor_step; /* layer l: tensor + l * tensor_step */
    size_t tensor_bytes;  /* of each of these tensors */
    size_t offset;        /* of layer 0's block 0, token 0, head 0, element 0 in its tensor */
    size_t layer_stride;  /* layer l: offset + l * layer_stride */
    size_t block_stride;
    size_t token_stride; /* scales: 0; there is one for all tokens of a block */
    size_t head_stride;
    size_t run_stride; /* not looked at when run = size */
} kvp_part;

/* Where everything lies. */
typedef struct kvp_layout {
    size_t struct_size;    /* set by kvp_layout_init */
    uint32_t type;         /* of K and V: KVP_F32 ... KVP_E4M3, KVP_BYTES */
    uint32_t n_blocks;     /* N, null block included, 2..2^31-1 */
    uint32_t block_tokens; /* S, 1..65536; KVP_BYTES: 1 */
    uint32_t n_layers;     /* L, 1..KVP_LAYERS_MAX */
    uint32_t n_heads;      /* H, 1..KVP_HEADS_MAX */
    uint32_t first_layer;  /* the model's number of layer 0 */
    uint32_t first_head;   /* the model's number of head 0 */
    uint32_t n_tensors;    /* 1..4 * KVP_LAYERS_MAX; all that the parts name are below it */
    kvp_part k;            /* size 1..KVP_HEAD_SIZE_MAX; KVP_BYTES: 1..KVP_STATE_BYTES_MAX */
    kvp_part v;            /* size 0: latent, one tensor has all (MLA: k.size 576, H = 1) */
    kvp_part k_scales;     /* f32, one for each layer, block and head; KVP_INT8, KVP_E4M3 only */
    kvp_part v_scales;
} kvp_layout;

/* Set every field to 0, and struct_size. A NULL layout is ignored. Thread: pure. */
KVP_API void kvp_layout_init(kvp_layout *layout);

/* Orders for kvp_layout_arrange: tensors as engines have them. One tensor for each layer, unless
 * the order has an L; K and V in the same tensor if it has a 2.
 *
 *   VLLM_NHD, _HND         vLLM's FlashAttention back end
 *   VLLM_PAGED_K, _V       vLLM's paged_attention kernels: K in runs of 16 bytes, V transposed
 *   VLLM_CPU_K, _V         vLLM on the CPU: K transposed
 *   FLASHINFER_NHD, _HND   FlashInfer, one tensor; TVM's PagedAttentionKVCache is _HND
 *   APART_NHD, _HND        FlashInfer's pair (k, v), FlashAttention, llama.cpp (N x S cells)
 *   CELLS_V                llama.cpp's V without flash attention: transposed over all cells
 *   TVM_NVSHMEM            TVM's one tensor for all layers
 *   TENSORRT_LLM           a pool: a block's bytes lie together, so that it swaps in one piece
 *   CPU                    the same, and so do the K and V of a head in a block
 *   LATENT                 MLA: v.size 0, n_heads 1 */
#define KVP_ORDER_VLLM_NHD       "2NSHD"
#define KVP_ORDER_VLLM_HND       "2NHSD"
#define KVP_ORDER_VLLM_PAGED_K   "2NHDSx"
#define KVP_ORDER_VLLM_PAGED_V   "2NHDS"
#define KVP_ORDER_VLLM_CPU_K     "2NHDS"
#define KVP_ORDER_VLLM_CPU_V     "2NHSD"
#define KVP_ORDER_FLASHINFER_NHD "N2SHD"
#define KVP_ORDER_FLASHINFER_HND "N2HSD"
#define KVP_ORDER_APART_NHD      "NSHD"
#define KVP_ORDER_APART_HND      "NHSD"
#define KVP_ORDER_CELLS_V        "HDNS"
#define KVP_ORDER_TVM_NVSHMEM    "LN2HSD"
#define KVP_ORDER_TENSORRT_LLM   "NL2HSD"
#define KVP_ORDER_CPU            "NLH2SD"
#define KVP_ORDER_LATENT         "NSHD"

/* Fill in where K and V lie, side by side, in the given order.
 *
 * An order has a letter for each dimension of a tensor's shape, outermost first. N, S, H and D are
 * always there. L: one tensor has all layers (else there is one for each). 2: K and V are in the
 * same tensor (else the K tensors come first, then the V tensors). x, innermost and after D: runs
 * of 16 bytes are split off D. Tensors are dense.
 *
 * Takes:   layout       with struct_size, type, n_blocks, block_tokens, n_layers, n_heads, k.size
 *                       and v.size set
 *          k_order      as above
 *          v_order      NULL: k_order. Else both have a 2 and are the same before it, or none has;
 *                       ignored with v.size 0 (as is a 2)
 * Gives:   layout       n_tensors, k, v are set, the scales are taken away; the layout is valid
 * Returns: KVP_OK; KVP_E_ARG: not an order, or D stands before 2 and k.size is not v.size, or x and
 *          16 bytes do not divide the elements; KVP_E_TOO_LONG: a tensor does not fit size_t
 * After-failure: layout is unchanged
 * Thread:  pure
 */
KVP_API kvp_status kvp_layout_arrange(kvp_layout *layout, const char *k_order, const char *v_order);

/* Add scales to a layout of KVP_INT8 or KVP_E4M3 elements, in tensors of their own behind those
 * that it has. (Scales inside an engine's blocks: fill in k_scales and v_scales.)
 *
 * Takes:   order        N, H, and L and 2 as for kvp_layout_arrange: "NL2H", "2NH"
 * Returns: KVP_OK; KVP_E_ARG: not an order, a type that has none, scales are there already, or
 *          kvp_layout_check would refuse the result; KVP_E_TOO_LONG
 * After-failure: layout is unchanged
 * Thread:  pure
 */
KVP_API kvp_status kvp_layout_add_scales(kvp_layout *layout, const char *order);

/* Check a layout. When it passes, no element lies outside its tensor, none is misaligned, and no
 * two overlap, K, V and scales of all layers taken together.
 *
 * The check needs strides that nest: ordered by size, each one covers all that the smaller ones
 * reach (dimensions of size 1 do not count). If two parts are interleaved, their strides must be
 * equal, from the largest down to the one that separates them. This holds for all layouts that come
 * from reshaping, permuting, slicing and padding one tensor.
 *
 * Takes:   layout       any bytes, with struct_size set
 * Gives:   out_why      written always; may be NULL
 * Returns: KVP_OK; KVP_E_ARG
 * Thread:  pure. Cost: O(L^2)
 */
KVP_API kvp_status kvp_layout_check(const kvp_layout *layout, kvp_why *out_why);

/* Some layers and heads of a model, in the model's numbers. */
typedef struct kvp_slice {
    uint32_t first_layer;
    uint32_t n_layers;
    uint32_t first_head;
    uint32_t n_heads;
} kvp_slice;

/* Describe a part of the layers and heads of a layout, in the same tensors: for example, rank 3's
 * heads of a host memory that has all heads.
 *
 * Gives:   out_slice    n_tensors as in `layout`; may be `layout` itself
 * Returns: KVP_OK; KVP_E_ARG: `layout` does not have all of the slice, or the slice is empty, or
 *          kvp_layout_check refuses the layout
 * Thread:  pure. Cost: O(L^2)
 */
KVP_API kvp_status kvp_layout_slice(const kvp_layout *layout, const kvp_slice *slice,
                                    kvp_layout *out_slice);

/* Add up the bytes of KV, scales included, that one block has in all layers; 0 for NULL.
 * Thread: pure. */
KVP_API uint64_t kvp_layout_block_bytes(const kvp_layout *layout);

/* ----------------------------------------------------------------------------------- the memory */

/* A layout with addresses. */
typedef struct kvp_memory kvp_memory;

/* What pages a memory is made of. */
enum {
    KVP_PAGES_AUTO = 0,  /* ask for reserved huge pages, then for transparent ones (default) */
    KVP_PAGES_SMALL = 1, /* what the system gives without asking */
    KVP_PAGES_TRANSPARENT = 2, /* ask for transparent huge pages */
    KVP_PAGES_HUGE = 3         /* reserved huge pages, or fail */
};

typedef struct kvp_memory_options {
    size_t struct_size; /* set by kvp_memory_options_init */
    uint32_t pages;     /* KVP_PAGES_... */
    int32_t numa_node;  /* -1: any (default); else the pages come from this node only */
    uint32_t touch;     /* 1: every page is backed before the call returns; default 0 */
    uint32_t reserved;  /* 0 */
} kvp_memory_options;

/* Fill `options` with the defaults. A NULL pointer is ignored. Thread: pure. */
KVP_API void kvp_memory_options_init(kvp_memory_options *options);

/* Make a memory of the library's own, zeroed: one mapping, each tensor on a page of 4 KiB, the
 * first one on 2 MiB when huge pages were asked for.
 *
 * Takes:   layout       copied; tensors that no part lies in get no bytes
 *          options      NULL: the defaults
 * Returns: KVP_OK; KVP_E_ARG: also what kvp_layout_check refuses; KVP_E_TOO_LONG: the sum does not
 *          fit size_t; KVP_E_NO_MEMORY: the system gives none, or not such pages, or not there
 * Thread:  any          Blocks: with touch, until the system has cleared the pages
 * Cost:    O(L^2); with touch O(bytes)
 */
KVP_API kvp_status kvp_memory_create(const kvp_layout *layout, const kvp_memory_options *options,
                                     kvp_memory **out_memory);

/* Use memory that is there: an engine's tensors.
 *
 * Takes:   layout       copied
 *          tensors      [n_tensors] addresses, copied; NULL for those that no part lies in
 * Returns: KVP_OK; KVP_E_ARG: also what kvp_layout_check refuses, a tensor that is misaligned for
 *          what lies in it, wraps around the address space, or overlaps another one;
 *          KVP_E_NO_MEMORY
 * Owns:    the tensors stay the caller's, and must outlive the memory; one that moves needs a new
 *          memory. No byte of them is read or written here
 * Thread:  any          Blocks: never
 * Cost:    O(L^2)
 */
KVP_API kvp_status kvp_memory_wrap(const kvp_layout *layout, void *const *tensors,
                                   kvp_memory **out_memory);

/* Free the memory; unmap what the library mapped. NULL is ignored. Nothing may use it any more, a
 * copier included. Thread: any. */
KVP_API void kvp_memory_destroy(kvp_memory *memory);

typedef struct kvp_memory_info {
    uint64_t mapped_bytes; /* 0 for wrapped tensors */
    uint32_t pages;        /* what was asked for and granted: KVP_PAGES_SMALL, _TRANSPARENT, _HUGE;
                              KVP_PAGES_AUTO for wrapped tensors: not known */
    int32_t numa_node;     /* -1: any */
} kvp_memory_info;

/* Read what a memory is made of. Gives: out_layout, out_info; either may be NULL.
 * Returns: KVP_OK; KVP_E_ARG. Thread: read. */
KVP_API kvp_status kvp_memory_describe(const kvp_memory *memory, kvp_layout *out_layout,
                                       kvp_memory_info *out_info);

/* Give the address of a tensor; NULL when it is not below n_tensors, or no part lies in it. Valid
 * until the memory is destroyed. Thread: read. */
KVP_API void *kvp_memory_tensor(const kvp_memory *memory, uint32_t tensor);

/* One part of one layer, for kernels: element e of (block b, token t, head h) at
 *     base + b * block_stride + t * token_stride + h * head_stride
 *          + e / run * run_stride + e % run * type bytes
 * and its scale, where there are any, at
 *     (char *)scales + b * scale_block_stride + h * scale_head_stride. */
typedef struct kvp_layer_part {
    unsigned char *base; /* NULL: there is no such part */
    size_t block_stride; /* bytes, as all strides */
    size_t token_stride;
    size_t head_stride;
    size_t run_stride; /* run = size: 0 */
    uint32_t size;     /* D */
    uint32_t run;      /* = size: the elements of a token and head lie side by side */
    float *scales;     /* NULL: none */
    size_t scale_block_stride;
    size_t scale_head_stride;
} kvp_layer_part;

/* One layer as plain numbers. It may also be filled by hand: calls that take it use nothing else,
 * and trust it. */
typedef struct kvp_layer {
    uint32_t type;
    uint32_t n_blocks;
    uint32_t block_tokens;
    uint32_t n_heads;
    kvp_layer_part k;
    kvp_layer_part v;
} kvp_layer;

/* Give one layer's pointers and strides.
 *
 * Takes:   layer        0..L-1, of this memory
 * Gives:   out_layer    valid until the memory is destroyed
 * Returns: KVP_OK; KVP_E_ARG
 * Thread:  read. Cost: O(1)
 */
KVP_API kvp_status kvp_memory_layer(const kvp_memory *memory, uint32_t layer, kvp_layer *out_layer);

/* ------------------------------------------------------------------------- reading and writing */

enum { KVP_K = 0, KVP_V = 1 };

/* Read K or V of one token and head as f32.
 *
 * Takes:   which        KVP_K, KVP_V
 *          slot         block * S + token of the block, 0 .. N * S - 1
 *          head         0..H-1
 * Gives:   out_values   [D]
 * Returns: KVP_OK; KVP_E_ARG: also when there is no V, and KVP_BYTES
 * Thread:  read. Cost: O(D)
 */
KVP_API kvp_status kvp_layer_read(const kvp_layer *layer, int which, int64_t slot, uint32_t head,
                                  float *out_values);

/* Write K or V of one token and head, rounded as kvp_type_from_f32 does.
 *
 * With scales, the first token of a block sets the scale of its head: kvp_type_scale of its largest
 * finite value. Another token that needs a larger scale raises it, and the other slots of the block
 * are rounded again, to the new scale. So write the first token of a block first.
 *
 * Takes:   as kvp_layer_read; slot KVP_NO_SLOT: nothing is written
 *          values       [D]
 * Returns: KVP_OK; KVP_E_ARG: also KVP_Q8_0 and KVP_BYTES
 * Thread:  exclusive: this layer, part, head and block. Cost: O(D); O(S x D) when a scale rises
 */
KVP_API kvp_status kvp_layer_write(const kvp_layer *layer, int which, int64_t slot, uint32_t head,
                                   const float *values);

/* What kvp_memory_gather reads. */
typedef struct kvp_gather {
    const int32_t *row; /* [n_row] block ids of a sequence: kvp_seq_row */
    uint32_t n_row;
    uint32_t layer;    /* 0..L-1 */
    uint32_t begin;    /* first token's position */
    uint32_t n_tokens; /* begin + n_tokens <= n_row * S */
} kvp_gather;

/* Read the K and V of tokens [begin, begin + n_tokens) of a sequence as f32. Made for debugging,
 * not for speed.
 *
 * Gives:   out_k        [n_tokens, H, D]; NaN where the row has the null block; may be NULL
 *          out_v        the same; may be NULL, and must be where there is no V
 * Returns: KVP_OK; KVP_E_ARG: also a block of the row, in the range, outside 0..N-1, and KVP_BYTES
 * Thread:  read. Cost: O(n_tokens x H x D)
 */
KVP_API kvp_status kvp_memory_gather(const kvp_memory *memory, const kvp_gather *gather,
                                     float *out_k, float *out_v);

/* Hash the KV of a block's first n_tokens tokens, in all layers: XXH3-128 of
 *
 *     type, n_tokens, L, H, k.size, v.size, first_layer, first_head    u32 little-endian each
 *     for each layer:  K: for each token, for each head: the elements, as they lie
 *                      V: the same
 *                      K's scales [H], then V's, where there are any
 *
 * It does not depend on the layout: blocks with the same KV have the same checksum in any memory of
 * the same slice. Elements are hashed as this machine stores them: on a big-endian one, the same KV
 * has other checksums.
 *
 * Takes:   block        0..N-1
 *          n_tokens     1..S
 * Returns: KVP_OK; KVP_E_ARG
 * Thread:  read. Cost: O(bytes)
 */
KVP_API kvp_status kvp_memory_checksum(const kvp_memory *memory, int32_t block, uint32_t n_tokens,
                                       kvp_hash *out_checksum);

/* --------------------------------------------------------------------------------------- copies */

/* Runs plans. One for each device; the memories' back end is its back end. (One exists: memory that
 * the CPU reaches.) */
typedef struct kvp_copier kvp_copier;

typedef struct kvp_copier_config {
    size_t struct_size;        /* set by kvp_copier_config_init */
    uint32_t n_groups;         /* layer groups, 1..64; default 1; recurrent state is the last */
    uint32_t n_threads;        /* that copy, the caller's included, 1..256; default 1 */
    uint32_t max_moves;        /* slot moves of one call, 0..2^20; default 1024 */
    uint32_t reserved;         /* 0 */
    kvp_memory *const *device; /* [n_groups] the device tier; each must outlive the copier */
    kvp_memory *const *host;   /* [n_groups] the host tier; NULL: none */
} kvp_copier_config;

/* Fill `config` with the defaults. A NULL config is ignored. Thread: pure. */
KVP_API void kvp_copier_config_init(kvp_copier_config *config);

/* Make a copier.
 *
 * The two memories of a group hold the same: the same type, S, slice and sizes, scales in both or
 * in none. They may lie differently, and have different numbers of blocks.
 *
 * Takes:   config       copied; the memories are used until destroy
 * Returns: KVP_OK; KVP_E_ARG: also memories that do not hold the same, or tensors of the two tiers
 *          that overlap (groups may share tensors on a tier: a pool of equal blocks);
 *          KVP_E_NO_MEMORY: also when a thread cannot be started
 * Owns:    n_threads - 1 threads, which sleep between calls; they end with kvp_copier_destroy
 * Thread:  any. Cost: O(N + L): the last call that allocates
 */
KVP_API kvp_status kvp_copier_create(const kvp_copier_config *config, kvp_copier **out_copier);

/* End the threads and free the copier; its work must be done. NULL is ignored. */
KVP_API void kvp_copier_destroy(kvp_copier *copier);

/* Run a plan: the used slots of each source block, with the scales of the block, to the destination
 * block; phase after phase. What lies behind n_tokens in a destination is left as it is.
 *
 * On the CPU the work is done when the call returns. Other back ends may only order it: it runs
 * after all that was ordered before on this copier, and the fence says when it is done.
 *
 * Large amounts go past the CPU's caches; a few blocks, as copy-on-write makes them, stay there.
 *
 * Takes:   copies       [n_copies] as kvp_plan_take and kvp_step_begin give them; may be reused as
 *                       soon as the call returns. NULL when n_copies is 0
 * Gives:   out_fence    a number for kvp_copier_wait, rising from 1; may be NULL
 * Returns: KVP_OK; KVP_E_ARG: no such group, tier, block, number of tokens, phases that fall, or a
 *          phase in which a block is written twice, or both read and written
 * After-failure: nothing was copied
 * Thread:  exclusive: the copier, and the blocks. Blocks: device
 * Cost:    O(bytes), allocates nothing
 */
KVP_API kvp_status kvp_copier_run(kvp_copier *copier, const kvp_copy *copies, uint32_t n_copies,
                                  uint64_t *out_fence);

/* Move the KV of single tokens within the device tier, in all layers of the group: for example, the
 * accepted tokens of a tree. The call works as if every source was read before any destination is
 * written. So the order does not matter, and chains and cycles are right.
 *
 * With scales: if the block's scale is smaller than the token's, it rises to the token's, and the
 * block's other slots are rounded again. If it is larger, the token's elements are rounded to it.
 *
 * Takes:   group        layer group
 *          moves        [n_moves]; slots of the null block may not be named; src = dst is allowed
 * Gives:   out_fence    as kvp_copier_run
 * Returns: KVP_OK; KVP_E_ARG: no such group or slot, a slot that is a destination twice, or a group
 *          of KVP_BYTES; KVP_E_TOO_SMALL: more than max_moves
 * After-failure: nothing was moved
 * Thread:  exclusive: the copier, and the blocks. Blocks: device
 * Cost:    O(bytes), allocates nothing
 */
KVP_API kvp_status kvp_copier_move(kvp_copier *copier, uint32_t group, const kvp_slot_move *moves,
                                   uint32_t n_moves, uint64_t *out_fence);

/* Wait until the work up to a fence is done.
 *
 * Takes:   fence        of this copier
 * Returns: KVP_OK; KVP_E_ARG: not a fence that was given
 * Thread:  exclusive: the copier. Blocks: device; never on the CPU
 */
KVP_API kvp_status kvp_copier_wait(kvp_copier *copier, uint64_t fence);

#ifdef __cplusplus
}
#endif
#endif
