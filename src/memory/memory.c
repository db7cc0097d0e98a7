/* memory: a layout gets addresses, the caller's or its own.
 *
 * Memory of our own is one mapping, tensors one after the other:
 *
 *     mapping  | tensor 0 ....... pad | tensor 1 ...... pad | ... |
 *              2 MiB                  4 KiB                 4 KiB
 */
#include "memory/memory.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "memory/layout.h"
#include "base/pages/pages.h"
#include "base/sized.h"

enum { TENSOR_ALIGNMENT = 4096, NUMA_NODE_ANY = -1 };

void kvp_memory_options_init(kvp_memory_options *options)
{
    if (options == NULL)
        return;
    *options = (kvp_memory_options){
        .struct_size = sizeof(*options), .pages = KVP_PAGES_AUTO, .numa_node = NUMA_NODE_ANY};
}

void kvpi_memory_tensor_bytes(const kvp_layout *layout, size_t *out_bytes)
{
    memset(out_bytes, 0, layout->n_tensors * sizeof(*out_bytes));
    for (int i = 0; i < KVPI_PARTS; i++) {
        const kvp_part *part = kvpi_layout_part(layout, i);
        for (uint32_t layer = 0; part->size && layer < layout->n_layers; layer++) {
            out_bytes[part->tensor + layer * part->tensor_step] = part->tensor_bytes;
        }
    }
}

/* A memory without addresses. Gives also the bytes of each tensor, to be freed. */
static kvp_status prepare_memory(const kvp_layout *layout, kvp_memory **out_memory,
                                 size_t **out_bytes)
{
    const size_t n = layout->n_tensors;
    kvp_memory *memory = calloc(1, sizeof(*memory) + n * sizeof(*memory->tensors));
    size_t *bytes = malloc(n * sizeof(*bytes));
    if (!memory || !bytes) {
        free(memory);
        free(bytes);
        return KVP_E_NO_MEMORY;
    }
    memory->backend = &kvpi_cpu_backend;
    memory->layout = *layout;
    kvpi_memory_tensor_bytes(layout, bytes);
    *out_memory = memory;
    *out_bytes = bytes;
    return KVP_OK;
}

/* ----------------------------------------------------------------------------- of the library's */

static bool add_tensor(size_t *total, size_t bytes)
{
    size_t padded;
    return !__builtin_add_overflow(bytes, TENSOR_ALIGNMENT - 1, &padded) &&
           !__builtin_add_overflow(*total, padded / TENSOR_ALIGNMENT * TENSOR_ALIGNMENT, total);
}

static kvp_status map_tensors(kvp_memory *memory, const size_t *bytes,
                              const kvp_memory_options *options)
{
    size_t total = 0;
    size_t at = 0;
    for (uint32_t i = 0; i < memory->layout.n_tensors; i++) {
        if (!add_tensor(&total, bytes[i])) {
            return KVP_E_TOO_LONG;
        }
    }
    const kvp_status status = kvpi_pages_map(total, options, &memory->mapping, &memory->info);
    if (status != KVP_OK) {
        return status;
    }
    for (uint32_t i = 0; i < memory->layout.n_tensors; i++) {
        memory->tensors[i] = bytes[i] ? (unsigned char *)memory->mapping + at : NULL;
        (void)add_tensor(&at, bytes[i]);
    }
    return KVP_OK;
}

static bool options_are_valid(const kvp_memory_options *options)
{
    return options->pages <= KVP_PAGES_HUGE && options->numa_node >= NUMA_NODE_ANY &&
           options->touch <= 1 && options->reserved == 0;
}

kvp_status kvp_memory_create(const kvp_layout *layout, const kvp_memory_options *options,
                             kvp_memory **out_memory)
{
    kvp_memory_options own;
    kvp_memory *memory;
    size_t *bytes;
    kvp_memory_options_init(&own);
    layout = kvpi_sized(layout, sizeof(*layout));
    options = options ? kvpi_sized(options, sizeof(*options)) : &own;
    if (!layout || !out_memory || !options || !options_are_valid(options) ||
        kvpi_layout_wrong(layout, NULL)) {
        return KVP_E_ARG;
    }
    kvp_status status = prepare_memory(layout, &memory, &bytes);
    if (status != KVP_OK) {
        return status;
    }
    status = map_tensors(memory, bytes, options);
    free(bytes);
    if (status != KVP_OK) {
        free(memory);
        return status;
    }
    *out_memory = memory;
    return KVP_OK;
}

/* ------------------------------------------------------------------------------ of the caller's */

/* The largest alignment that a part of the tensor needs. */
static size_t alignment_of(const kvp_layout *layout, uint32_t tensor)
{
    size_t alignment = kvp_type_bytes(layout->type);
    for (int i = 2; i < KVPI_PARTS; i++) {
        const kvp_part *part = kvpi_layout_part(layout, i);
        for (uint32_t layer = 0; part->size && layer < layout->n_layers; layer++) {
            if (part->tensor + layer * part->tensor_step == tensor) {
                alignment = sizeof(float);
            }
        }
    }
    return alignment;
}

static bool tensors_are_apart(const unsigned char *a, size_t a_bytes, const unsigned char *b,
                              size_t b_bytes)
{
    return (uintptr_t)a + a_bytes <= (uintptr_t)b || (uintptr_t)b + b_bytes <= (uintptr_t)a;
}

/* Takes the address of tensor i over, if it is right beside those before it. */
static bool take_tensor(kvp_memory *memory, const size_t *bytes, uint32_t i, void *tensor)
{
    uintptr_t end;
    if (bytes[i] == 0) {
        return true;
    }
    if (!tensor || (uintptr_t)tensor % alignment_of(&memory->layout, i) != 0 ||
        __builtin_add_overflow((uintptr_t)tensor, bytes[i], &end)) {
        return false;
    }
    memory->tensors[i] = tensor;
    for (uint32_t j = 0; j < i; j++) {
        if (bytes[j] && !tensors_are_apart(memory->tensors[j], bytes[j], tensor, bytes[i])) {
            return false;
        }
    }
    return true;
}

kvp_status kvp_memory_wrap(const kvp_layout *layout, void *const *tensors, kvp_memory **out_memory)
{
    kvp_memory *memory;
    size_t *bytes;
    layout = kvpi_sized(layout, sizeof(*layout));
    bool is_right = true;
    if (!layout || !tensors || !out_memory || kvpi_layout_wrong(layout, NULL)) {
        return KVP_E_ARG;
    }
    const kvp_status status = prepare_memory(layout, &memory, &bytes);
    if (status != KVP_OK) {
        return status;
    }
    memory->info = (kvp_memory_info){0, KVP_PAGES_AUTO, NUMA_NODE_ANY};
    for (uint32_t i = 0; is_right && i < layout->n_tensors; i++) {
        is_right = take_tensor(memory, bytes, i, tensors[i]);
    }
    free(bytes);
    if (!is_right) {
        free(memory);
        return KVP_E_ARG;
    }
    *out_memory = memory;
    return KVP_OK;
}

void kvp_memory_destroy(kvp_memory *memory)
{
    if (memory && memory->mapping) {
        kvpi_pages_unmap(memory->mapping, (size_t)memory->info.mapped_bytes);
    }
    free(memory);
}

/* ------------------------------------------------------------------------------------ asking it */

kvp_status kvp_memory_describe(const kvp_memory *memory, kvp_layout *out_layout,
                               kvp_memory_info *out_info)
{
    if (!memory) {
        return KVP_E_ARG;
    }
    if (out_layout) {
        *out_layout = memory->layout;
    }
    if (out_info) {
        *out_info = memory->info;
    }
    return KVP_OK;
}

void *kvp_memory_tensor(const kvp_memory *memory, uint32_t tensor)
{
    return memory && tensor < memory->layout.n_tensors ? memory->tensors[tensor] : NULL;
}

unsigned char *kvpi_memory_base(const kvp_memory *memory, int part_index, uint32_t layer)
{
    const kvp_part *part = kvpi_layout_part(&memory->layout, part_index);
    if (part->size == 0) {
        return NULL;
    }
    return memory->tensors[part->tensor + layer * part->tensor_step] + part->offset +
           layer * part->layer_stride;
}

static kvp_layer_part layer_part(const kvp_memory *memory, int which, uint32_t layer)
{
    const kvp_part *part = kvpi_layout_part(&memory->layout, which);
    const kvp_part *scales = kvpi_layout_part(&memory->layout, which + 2);
    kvp_layer_part result = {0};
    if (part->size) {
        result = (kvp_layer_part){.base = kvpi_memory_base(memory, which, layer),
                                  .block_stride = part->block_stride,
                                  .token_stride = part->token_stride,
                                  .head_stride = part->head_stride,
                                  .run_stride = part->run < part->size ? part->run_stride : 0,
                                  .size = part->size,
                                  .run = part->run};
    }
    if (scales->size) {
        result.scales = (float *)(void *)kvpi_memory_base(memory, which + 2, layer);
        result.scale_block_stride = scales->block_stride;
        result.scale_head_stride = scales->head_stride;
    }
    return result;
}

kvp_status kvp_memory_layer(const kvp_memory *memory, uint32_t layer, kvp_layer *out_layer)
{
    if (!memory || !out_layer || layer >= memory->layout.n_layers) {
        return KVP_E_ARG;
    }
    *out_layer = (kvp_layer){.type = memory->layout.type,
                             .n_blocks = memory->layout.n_blocks,
                             .block_tokens = memory->layout.block_tokens,
                             .n_heads = memory->layout.n_heads,
                             .k = layer_part(memory, KVP_K, layer),
                             .v = layer_part(memory, KVP_V, layer)};
    return KVP_OK;
}
