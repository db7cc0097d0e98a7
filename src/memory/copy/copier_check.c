/* copier_check: what a copier refuses, before anything is copied.
 *
 * A phase may be run in any order, by several threads, only if no block in it is written twice, or
 * read and written (X2). Each pool has, for each block, the number of the last phase that wrote it;
 * phases are numbered through, so nothing has to be cleared.
 */
#include <stdbool.h>
#include <string.h>

#include "memory/copy/copier.h"
#include "memory/layout.h"
#include "memory/memory.h"

/* ------------------------------------------------------------------------------- configurations */

static bool hold_the_same(const kvp_layout *a, const kvp_layout *b)
{
    return a->type == b->type && a->block_tokens == b->block_tokens && a->n_layers == b->n_layers &&
           a->n_heads == b->n_heads && a->first_layer == b->first_layer &&
           a->first_head == b->first_head && a->k.size == b->k.size && a->v.size == b->v.size &&
           a->k_scales.size == b->k_scales.size && a->v_scales.size == b->v_scales.size;
}

/* The bytes of tensor i, 0 if no part lies in it. */
static size_t tensor_bytes(const kvp_layout *layout, uint32_t tensor)
{
    for (int i = 0; i < KVPI_PARTS; i++) {
        const kvp_part *part = kvpi_layout_part(layout, i);
        if (part->size == 0 || tensor < part->tensor) {
            continue;
        }
        const uint64_t steps = tensor - part->tensor;
        if (part->tensor_step == 0
                ? steps == 0
                : steps % part->tensor_step == 0 && steps / part->tensor_step < layout->n_layers) {
            return part->tensor_bytes;
        }
    }
    return 0;
}

static bool overlap(const kvp_memory *a, const kvp_memory *b)
{
    for (uint32_t i = 0; i < a->layout.n_tensors; i++) {
        const uintptr_t begin = (uintptr_t)a->tensors[i];
        const uintptr_t end = begin + tensor_bytes(&a->layout, i);
        for (uint32_t j = 0; a->tensors[i] && j < b->layout.n_tensors; j++) {
            const uintptr_t other = (uintptr_t)b->tensors[j];
            if (b->tensors[j] && begin < other + tensor_bytes(&b->layout, j) && other < end) {
                return true;
            }
        }
    }
    return false;
}

int kvpi_copier_is_config(const kvp_copier_config *config)
{
    if (config->n_groups == 0 || config->n_groups > KVPI_GROUPS_MAX || config->n_threads == 0 ||
        config->n_threads > KVPI_THREADS_MAX || config->max_moves > KVPI_MOVES_MAX ||
        config->reserved != 0 || !config->device) {
        return false;
    }
    for (uint32_t g = 0; g < config->n_groups; g++) {
        if (!config->device[g] || (config->host && !config->host[g])) {
            return false;
        }
        if (config->host && !hold_the_same(&config->device[g]->layout, &config->host[g]->layout)) {
            return false;
        }
    }
    for (uint32_t g = 0; config->host && g < config->n_groups; g++) {
        for (uint32_t h = 0; h < config->n_groups; h++) {
            if (overlap(config->device[g], config->host[h])) {
                return false;
            }
        }
    }
    return true;
}

/* ---------------------------------------------------------------------------------------- plans */

static struct kvpi_marks *marks_of(kvp_copier *copier, uint32_t group, uint32_t tier)
{
    return &copier->marks[tier * copier->config.n_groups + group];
}

static bool is_tier_block(kvp_copier *copier, uint32_t group, uint32_t tier, int32_t block)
{
    return tier < KVPI_TIERS && group < copier->config.n_groups && block > KVP_NULL_BLOCK &&
           (uint32_t)block < marks_of(copier, group, tier)->n_blocks;
}

/* The last phase that wrote a block. */
static uint64_t *mark_of_copy(kvp_copier *copier, uint32_t group, uint32_t tier, int32_t block)
{
    return &marks_of(copier, group, tier)->written_in[block];
}

static bool is_copy(kvp_copier *copier, const kvp_copy *copy)
{
    return is_tier_block(copier, copy->group, copy->src_tier, copy->src_block) &&
           is_tier_block(copier, copy->group, copy->dst_tier, copy->dst_block) &&
           copy->n_tokens > 0 &&
           copy->n_tokens <=
               kvpi_copier_memory(copier, copy->group, KVP_DEVICE)->layout.block_tokens;
}

/* X2, for the copies of one phase. */
static bool is_phase(kvp_copier *copier, const kvp_copy *copies, uint32_t n_copies)
{
    const uint64_t phase = ++copier->n_phases;
    for (uint32_t i = 0; i < n_copies; i++) {
        uint64_t *mark =
            mark_of_copy(copier, copies[i].group, copies[i].dst_tier, copies[i].dst_block);
        if (*mark == phase) {
            return false;
        }
        *mark = phase;
    }
    for (uint32_t i = 0; i < n_copies; i++) {
        if (*mark_of_copy(copier, copies[i].group, copies[i].src_tier, copies[i].src_block) ==
            phase) {
            return false;
        }
    }
    return true;
}

int kvpi_copier_is_plan(kvp_copier *copier, const kvp_copy *copies, uint32_t n_copies)
{
    for (uint32_t i = 0; i < n_copies; i++) {
        if (!is_copy(copier, &copies[i]) || (i > 0 && copies[i].phase < copies[i - 1].phase)) {
            return false;
        }
    }
    uint32_t begin = 0;
    for (uint32_t i = 1; i <= n_copies; i++) {
        if (i == n_copies || copies[i].phase != copies[begin].phase) {
            if (!is_phase(copier, copies + begin, i - begin)) {
                return false;
            }
            begin = i;
        }
    }
    return true;
}

/* ---------------------------------------------------------------------------------------- moves */

/* Shell's sort: a few dozen, usually in order already. */
void kvpi_copier_sort_moves(kvp_slot_move *moves, uint32_t n_moves)
{
    for (uint32_t gap = n_moves / 2; gap > 0; gap /= 2) {
        for (uint32_t i = gap; i < n_moves; i++) {
            const kvp_slot_move move = moves[i];
            uint32_t at = i;
            for (; at >= gap && moves[at - gap].dst > move.dst; at -= gap) {
                moves[at] = moves[at - gap];
            }
            moves[at] = move;
        }
    }
}

int kvpi_copier_is_moves(kvp_copier *copier, uint32_t group, uint32_t n_moves)
{
    const kvp_layout *layout = &kvpi_copier_memory(copier, group, KVP_DEVICE)->layout;
    const kvp_slot_move *moves = copier->moves;
    if (layout->type == KVP_BYTES) {
        return false; /* a state is of all tokens before it: there are no single ones */
    }
    const int64_t first = layout->block_tokens; /* behind the null block */
    const int64_t end = (int64_t)layout->n_blocks * layout->block_tokens;
    for (uint32_t i = 0; i < n_moves; i++) {
        if (moves[i].src < first || moves[i].src >= end || moves[i].dst < first ||
            moves[i].dst >= end || (i > 0 && moves[i].dst == moves[i - 1].dst)) {
            return false;
        }
    }
    return true;
}
