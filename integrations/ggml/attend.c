/* attend: see attend.h.
 *
 *     q     [D, T, Q, streams]   f32            out  [Dv, Q, T, streams]  f32, dense
 *     k, v  [D, cells, H, streams]              mask [cells, >= T, 1, 1 or streams]  f16
 *
 * A cell is a block of one token. kvpager's blocks begin at 1, so the layer begins a cell before
 * the tensor. Where a stream's K and V begin a whole number of cells behind the stream before, all
 * streams are one call; else each is a call.
 */
#include "attend.h"

#include <stdlib.h>
#include <string.h>

#include "plain.h"

/* -------------------------------------------------------------------------------- what is taken */

/* How a type of K and V lies: bytes of a group of elements, and what addresses are multiples of. */
struct how_it_lies {
    uint32_t type; /* KVP_...; 0: left to ggml */
    size_t group_bytes;
    size_t alignment;
};

static struct how_it_lies lies(enum ggml_type type)
{
    switch (type) {
    case GGML_TYPE_F32: return (struct how_it_lies){KVP_F32, 4, 4};
    case GGML_TYPE_F16: return (struct how_it_lies){KVP_F16, 2, 2};
    case GGML_TYPE_BF16: return (struct how_it_lies){KVP_BF16, 2, 2};
    case GGML_TYPE_Q8_0: return (struct how_it_lies){KVP_Q8_0, KVP_Q8_0_BYTES, 2};
    default: return (struct how_it_lies){0, 0, 0};
    }
}

static int is_laid(const struct ggml_tensor *tensor, size_t group_bytes, size_t alignment)
{
    return tensor->nb[0] == group_bytes && tensor->nb[1] % alignment == 0 &&
           tensor->nb[2] % alignment == 0 && tensor->nb[3] % alignment == 0;
}

static int is_aligned(const struct ggml_tensor *tensor, size_t size)
{
    return is_laid(tensor, size, size);
}

static int takes_kv(const struct ggml_tensor *k, const struct ggml_tensor *v)
{
    const struct how_it_lies how = lies(k->type);
    return how.type != 0 && v->type == k->type && is_laid(k, how.group_bytes, how.alignment) &&
           is_laid(v, how.group_bytes, how.alignment) && k->ne[0] <= KVP_HEAD_SIZE_MAX &&
           v->ne[0] <= KVP_HEAD_SIZE_MAX && k->ne[1] == v->ne[1] && k->ne[2] == v->ne[2] &&
           k->ne[3] == v->ne[3] && k->ne[1] > 0 && k->ne[2] > 0 && k->ne[2] <= KVP_HEADS_MAX;
}

static int takes_mask(const struct ggml_tensor *mask, const struct ggml_tensor *q,
                      const struct ggml_tensor *k)
{
    return mask == NULL || (mask->type == GGML_TYPE_F16 && is_aligned(mask, 2) &&
                            mask->ne[0] == k->ne[1] && mask->ne[1] >= q->ne[1] &&
                            mask->ne[2] == 1 && (mask->ne[3] == 1 || mask->ne[3] == q->ne[3]));
}

/* scale, max_bias (ALiBi), soft cap */
static void read_params(const struct ggml_tensor *op, float out_params[3])
{
    memcpy(out_params, op->op_params, 3 * sizeof *out_params);
}

int kvpi_attend_takes(const struct ggml_tensor *op)
{
    const struct ggml_tensor *q = op->src[0], *k = op->src[1], *v = op->src[2];
    float params[3];
    if (op->op != GGML_OP_FLASH_ATTN_EXT || op->type != GGML_TYPE_F32 || q == NULL || k == NULL ||
        v == NULL)
        return 0;
    read_params(op, params);
    return params[0] != 0.0f && params[1] == 0.0f && params[2] >= 0.0f &&
           q->type == GGML_TYPE_F32 && is_aligned(q, 4) && is_aligned(op, 4) &&
           q->ne[0] == k->ne[0] && q->ne[3] == k->ne[3] && q->ne[2] <= KVP_HEADS_MAX &&
           takes_kv(k, v) && q->ne[2] % k->ne[2] == 0 && takes_mask(op->src[3], q, k) &&
           (op->src[4] == NULL || op->src[4]->type == GGML_TYPE_F32);
}

/* ------------------------------------------------------------------------------------ the layer */

/* Addresses are counted as numbers: block 0, a cell before the tensor, is never read. */
static kvp_layer_part part_of(const struct ggml_tensor *tensor, int64_t stream)
{
    const uintptr_t first = (uintptr_t)tensor->data + (size_t)stream * tensor->nb[3];
    return (kvp_layer_part){.base = (unsigned char *)(first - tensor->nb[1]),
                            .block_stride = tensor->nb[1],
                            .token_stride = tensor->nb[1],
                            .head_stride = tensor->nb[2],
                            .size = (uint32_t)tensor->ne[0],
                            .run = (uint32_t)tensor->ne[0]};
}

/* Cells from a stream to the next; 0: K and V differ in that, or it is no whole number. */
static uint64_t stream_cells(const struct ggml_tensor *op)
{
    const struct ggml_tensor *q = op->src[0], *k = op->src[1], *v = op->src[2];
    if (k->ne[3] == 1)
        return (uint64_t)k->ne[1];
    const uint64_t n = k->nb[3] / k->nb[1];
    const int is_whole = n * k->nb[1] == k->nb[3] && n * v->nb[1] == v->nb[3] &&
                         q->nb[3] == (size_t)q->ne[1] * q->nb[1] &&
                         n * (uint64_t)k->ne[3] < INT32_MAX - 1;
    return is_whole ? n : 0;
}

static kvp_layer layer_of(const struct ggml_tensor *op, int64_t stream, uint64_t n_cells)
{
    return (kvp_layer){.type = lies(op->src[1]->type).type,
                       .n_blocks = (uint32_t)n_cells + 1,
                       .block_tokens = 1,
                       .n_heads = (uint32_t)op->src[1]->ne[2],
                       .k = part_of(op->src[1], stream),
                       .v = part_of(op->src[2], stream)};
}

static struct kvpi_mask mask_of(const struct ggml_tensor *op, int64_t stream, uint32_t n_streams,
                                uint64_t n_cells)
{
    const struct ggml_tensor *mask = op->src[3];
    struct kvpi_mask out = {.n_cells = (uint32_t)op->src[1]->ne[1],
                            .n_rows = (uint32_t)op->src[0]->ne[1],
                            .n_streams = n_streams,
                            .stream_cells = (uint32_t)n_cells};
    if (mask == NULL)
        return out;
    out.row_stride = mask->nb[1] / 2;
    out.stream_stride = mask->ne[3] == 1 ? 0 : mask->nb[3] / 2;
    out.data = (const uint16_t *)mask->data + (size_t)stream * out.stream_stride;
    return out;
}

/* ------------------------------------------------------------------------------------- the call */

/* Lists of a mask: those of the same place, so that masks of a step do not push each other out. */
static struct kvpi_visible *lists_of(struct kvpi_attend *attend, const void *data)
{
    for (uint32_t i = 0; i < KVPI_ATTEND_MASKS; i++) {
        if (attend->masks[i].data == data && attend->masks[i].visible.mask.n_rows > 0)
            return &attend->masks[i].visible;
    }
    const uint32_t i = attend->next_mask++ % KVPI_ATTEND_MASKS;
    attend->masks[i].data = data;
    return &attend->masks[i].visible;
}

static kvp_attention call_of(const struct ggml_tensor *op, int64_t stream, const kvp_layer *layer,
                             uint32_t n_streams)
{
    const struct ggml_tensor *q = op->src[0];
    kvp_attention call;
    float params[3];
    read_params(op, params);
    kvp_attention_init(&call);
    call.layer = layer;
    call.n_tokens = n_streams * (uint32_t)q->ne[1];
    call.n_heads = (uint32_t)q->ne[2];
    call.q =
        (kvp_rows){(const float *)(const void *)((const char *)q->data + (size_t)stream * q->nb[3]),
                   q->nb[1] / 4, q->nb[2] / 4};
    call.out = (kvp_rows_out){(float *)(void *)((char *)op->data + (size_t)stream * op->nb[3]),
                              op->nb[2] / 4, op->nb[1] / 4};
    call.scale = params[0];
    call.soft_cap = params[2];
    call.sink_logits = op->src[4] != NULL ? op->src[4]->data : NULL;
    return call;
}

/* Products of queries and keys, and of weights and values; a patch's rows as if they saw all. */
static uint64_t count_products(const kvp_attention *call)
{
    const int32_t *starts = call->levels[call->n_levels - 1].row_start;
    uint64_t n_pairs = 0;
    for (uint32_t i = 0; i < call->n_seqs; i++) {
        const int32_t seq = call->order != NULL ? call->order[i] : (int32_t)i;
        n_pairs += (uint64_t)(call->query_start[seq + 1] - call->query_start[seq]) *
                   (uint64_t)(starts[i + 1] - starts[i]);
    }
    for (uint32_t i = 0; call->n_levels > 1 && i < call->levels[0].n_rows; i++)
        n_pairs += (uint64_t)(call->levels[0].query_start[i + 1] - call->levels[0].query_start[i]) *
                   (uint64_t)(call->levels[0].row_start[i + 1] - call->levels[0].row_start[i]);
    return n_pairs * call->n_heads * (call->layer->k.size + call->layer->v.size);
}

static enum ggml_status run_lists(struct kvpi_attend *attend, kvp_attention *call,
                                  const struct kvpi_visible *visible)
{
    size_t n_bytes = 0;
    call->n_seqs = visible->n_seqs;
    call->query_start = visible->query_start.data;
    call->n_levels = visible->n_levels;
    call->levels = visible->levels;
    call->order = visible->n_levels > 1 ? visible->order.data : NULL;
    call->tree = visible->tree;
    call->team = count_products(call) > attend->alone_products ? attend->team : NULL;
    if (kvp_attention_bytes(call, &n_bytes) != KVP_OK)
        return GGML_STATUS_FAILED;
    if (n_bytes > attend->scratch_bytes) {
        const size_t room = (n_bytes + n_bytes / 4 + KVP_SCRATCH_ALIGN) & ~(size_t)63;
        void *scratch = aligned_alloc(KVP_SCRATCH_ALIGN, room);
        if (scratch == NULL)
            return GGML_STATUS_ALLOC_FAILED;
        free(attend->scratch);
        attend->scratch = scratch;
        attend->scratch_bytes = room;
    }
    return kvp_attention_run(call, attend->scratch, attend->scratch_bytes) == KVP_OK
               ? GGML_STATUS_SUCCESS
               : GGML_STATUS_FAILED;
}

/* Streams [stream, stream + n_streams). */
static enum ggml_status run_streams(struct kvpi_attend *attend, const struct ggml_tensor *op,
                                    int64_t stream, uint32_t n_streams, uint64_t n_cells)
{
    const kvp_layer layer = layer_of(op, stream, n_cells * n_streams);
    const struct kvpi_mask mask = mask_of(op, stream, n_streams, n_cells);
    kvp_attention call = call_of(op, stream, &layer, n_streams);
    struct kvpi_visible *visible = lists_of(attend, mask.data);
    switch (kvpi_visible_read(visible, &mask)) {
    case KVPI_VISIBLE_NO_MEMORY: return GGML_STATUS_ALLOC_FAILED;
    case KVPI_VISIBLE_OTHER:
        attend->counts.others++;
        return kvpi_plain_run(&call, &mask) ? GGML_STATUS_SUCCESS : GGML_STATUS_ALLOC_FAILED;
    case KVPI_VISIBLE_CHANGED: attend->counts.lists++; break;
    case KVPI_VISIBLE_SAME: break;
    }
    return run_lists(attend, &call, visible);
}

enum ggml_status kvpi_attend_run(struct kvpi_attend *attend, const struct ggml_tensor *op)
{
    const int64_t n_streams = op->src[0]->ne[3];
    const uint64_t n_cells = stream_cells(op);
    enum ggml_status status = GGML_STATUS_SUCCESS;
    attend->counts.calls++;
    if (op->src[0]->ne[1] == 0 || n_streams == 0)
        return status;
    if (n_cells > 0)
        return run_streams(attend, op, 0, (uint32_t)n_streams, n_cells);
    for (int64_t i = 0; i < n_streams && status == GGML_STATUS_SUCCESS; i++)
        status = run_streams(attend, op, i, 1, (uint64_t)op->src[1]->ne[1]);
    return status;
}

void kvpi_attend_end(struct kvpi_attend *attend)
{
    for (uint32_t i = 0; i < KVPI_ATTEND_MASKS; i++)
        kvpi_visible_end(&attend->masks[i].visible);
    free(attend->scratch);
    *attend = (struct kvpi_attend){.team = NULL};
}
