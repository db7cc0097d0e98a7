/* cpu_moves: single tokens change their slots, as if all were read before any is written.
 *
 * So they are: for each part and head, all rows are staged, then written. With scales there is a
 * step between, in which the scales of destination blocks rise where a row needs it.
 *
 *     slots      |  4 |  5 |  6 |  7 |        moves 5 -> 4, 7 -> 5
 *     staged        r5        r7
 *     slots      | r5 | r7 |  6 |  7 |
 */
#include <stdbool.h>
#include <string.h>

#include "memory/convert.h"
#include "memory/copy/copy_cpu.h"
#include "memory/layer.h"
#include "memory/memory.h"

/* What is moved: one part and head of a layer. */
struct lane {
    const kvp_layer *layer;
    const kvp_layer_part *part;
    uint32_t head;
    size_t row_bytes;
};

size_t kvpi_cpu_row_bytes(const struct kvp_copier *copier)
{
    size_t most = 0;
    for (uint32_t g = 0; g < copier->config.n_groups; g++) {
        const kvp_layout *layout = &kvpi_copier_memory(copier, g, KVP_DEVICE)->layout;
        if (layout->type == KVP_BYTES) {
            continue; /* never moved */
        }
        const uint32_t size = layout->k.size > layout->v.size ? layout->k.size : layout->v.size;
        const size_t bytes = size * kvp_type_bytes(layout->type);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static uint64_t block_of_move(const struct lane *lane, int64_t slot)
{
    return (uint64_t)slot / lane->layer->block_tokens;
}

static float *scale_at(const struct lane *lane, int64_t slot)
{
    return kvpi_layer_scale(lane->part, block_of_move(lane, slot), lane->head);
}

static void read_moved_row(const struct lane *lane, int64_t slot, unsigned char *out)
{
    const struct kvpi_row row = kvpi_layer_row(lane->layer, lane->part, slot, lane->head);
    for (uint32_t i = 0; i < row.n_runs; i++) {
        memcpy(out + i * row.run_bytes, row.at + i * row.run_stride, row.run_bytes);
    }
}

static void write_moved_row(const struct lane *lane, int64_t slot, const unsigned char *in)
{
    const struct kvpi_row row = kvpi_layer_row(lane->layer, lane->part, slot, lane->head);
    for (uint32_t i = 0; i < row.n_runs; i++) {
        memcpy(row.at + i * row.run_stride, in + i * row.run_bytes, row.run_bytes);
    }
}

/* No token's scale may be larger than that of the block it comes to. Moves into a block stand
 * together, so it is rounded once, to the largest. */
static void raise_scales(const struct lane *lane, const kvp_slot_move *moves, uint32_t n_moves,
                         const float *scales)
{
    for (uint32_t i = 0; i < n_moves;) {
        const uint64_t block = block_of_move(lane, moves[i].dst);
        const float before = *kvpi_layer_scale(lane->part, block, lane->head);
        float needed = before;
        for (; i < n_moves && block_of_move(lane, moves[i].dst) == block; i++) {
            needed = needed >= scales[i] ? needed : scales[i];
        }
        if (needed != before) {
            kvpi_layer_raise_scale(lane->layer, lane->part, block, lane->head, needed);
        }
    }
}

static void move_lane(const struct lane *lane, const kvp_slot_move *moves, uint32_t n_moves,
                      struct kvpi_worker *worker)
{
    const bool has_scales = lane->part->scales != NULL;
    for (uint32_t i = 0; i < n_moves; i++) {
        read_moved_row(lane, moves[i].src, worker->rows + i * lane->row_bytes);
        worker->scales[i] = has_scales ? *scale_at(lane, moves[i].src) : 1;
    }
    if (has_scales) {
        raise_scales(lane, moves, n_moves, worker->scales);
    }
    for (uint32_t i = 0; i < n_moves; i++) {
        unsigned char *row = worker->rows + i * lane->row_bytes;
        if (has_scales && *scale_at(lane, moves[i].dst) != worker->scales[i]) {
            kvpi_convert_rescale(lane->layer->type, worker->scales[i],
                                 *scale_at(lane, moves[i].dst), lane->part->size, row);
        }
        write_moved_row(lane, moves[i].dst, row);
    }
}

void kvpi_cpu_move(struct kvpi_cpu_copier *cpu, uint32_t group, const kvp_slot_move *moves,
                   uint32_t n_moves, struct kvpi_worker *worker, uint32_t begin, uint32_t end)
{
    const kvp_memory *memory = kvpi_copier_memory(&cpu->shared, group, KVP_DEVICE);
    for (uint32_t l = begin; l < end; l++) {
        kvp_layer layer;
        (void)kvp_memory_layer(memory, l, &layer);
        for (uint32_t which = 0; which < 2; which++) {
            const kvp_layer_part *part = which == KVP_K ? &layer.k : &layer.v;
            for (uint32_t head = 0; part->base && head < layer.n_heads; head++) {
                const struct lane lane = {&layer, part, head,
                                          part->size * kvp_type_bytes(layer.type)};
                move_lane(&lane, moves, n_moves, worker);
            }
        }
    }
}
