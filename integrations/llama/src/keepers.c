/* keepers: packed first fit, lowest id first. Positions are what must not overlap, and each block
 * index is packed by itself, so there are never more keepers than the largest number of kept blocks
 * with one index, plus what holes of earlier evictions cost.
 *
 * A keeper with a second id (second.h) has one from its first block behind the window on. Others
 * never get such a block: so a closed sequence never needs more ids than it had.
 *
 * A keeper may have entries of blocks that lost their content meanwhile. They are removed when the
 * blocks are written again, or when keepers are short. */
#include "keepers.h"
#include "second.h"

#include <kvpager/drop.h>
#include <kvpager/lend.h>

#include <string.h>

int kvpi_keepers_has_content(const kvpi_ids *ids, int32_t block, uint32_t *out_state)
{
    kvp_block_info info;
    if (kvp_block_info_get(ids->cache, 0, KVP_DEVICE, block, &info) != KVP_OK)
        return 0;
    if (out_state != NULL)
        *out_state = info.state;
    return info.generation == ids->places[block].generation && info.state != KVP_BLOCK_FREE;
}

static void free_id(kvpi_ids *ids, uint32_t id)
{
    kvpi_second_release(ids, id);
    memset(&ids->ids[id], 0, sizeof ids->ids[id]);
}

/* Forget the entry; the caller deals with the cells. */
static void clear_entry(kvpi_ids *ids, uint32_t id, uint32_t idx)
{
    int32_t *block = &kvpi_ids_row(ids, id)[idx];
    if (ids->places[*block].id == id)
        ids->places[*block].id = KVPI_NO_ID;
    *block = 0;
    ids->ids[id].n_blocks--;
}

void kvpi_keepers_remove(kvpi_ids *ids, uint32_t keeper, uint32_t idx)
{
    kvpi_moves_remove(&ids->moves, keeper, idx * ids->block_tokens, (idx + 1) * ids->block_tokens);
    clear_entry(ids, keeper, idx);
    if (ids->ids[keeper].n_blocks == 0)
        free_id(ids, keeper);
}

/* Cells that an open id has of its block idx. */
static uint32_t cells_of(const kvpi_ids *ids, uint32_t id, uint32_t idx)
{
    const uint32_t left = ids->ids[id].n_tokens - idx * ids->block_tokens;
    return left < ids->block_tokens ? left : ids->block_tokens;
}

/* Another open id with this block and its first n_tokens cells, or KVPI_NO_ID. (A fork may share
 * less of a block than is cached of it.) */
static uint32_t open_holder(const kvpi_ids *ids, uint32_t id, uint32_t idx, uint32_t n_tokens)
{
    const int32_t block = kvpi_ids_row(ids, id)[idx];
    for (uint32_t other = 0; other < ids->n_ids; other++)
        if (other != id && ids->ids[other].state == KVPI_ID_OPEN &&
            kvpi_ids_row(ids, other)[idx] == block &&
            ids->ids[other].n_tokens >= idx * ids->block_tokens + n_tokens)
            return other;
    return KVPI_NO_ID;
}

/* The first keeper with room for block index idx, or KVPI_NO_ID. */
static uint32_t first_fit(const kvpi_ids *ids, uint32_t idx)
{
    const int needs_second = kvpi_second_needed(ids, (idx + 1) * ids->block_tokens);
    for (uint32_t id = 0; id < ids->n_ids; id++)
        if (ids->ids[id].state == KVPI_ID_KEEPER && kvpi_ids_row(ids, id)[idx] == 0 &&
            (!needs_second || kvpi_second_of(ids, id) != KVPI_NO_ID))
            return id;
    return KVPI_NO_ID;
}

static void set_kept(kvpi_ids *ids, uint32_t keeper, uint32_t idx, int32_t block, uint32_t n_tokens)
{
    kvpi_place *place = &ids->places[block];
    kvpi_ids_row(ids, keeper)[idx] = block;
    place->id = keeper;
    place->idx = idx;
    place->n_tokens = n_tokens;
    ids->ids[keeper].released = ids->clock;
}

/* A keeper with room for block index idx, a new one if need be. KVPI_NO_ID: there is no id. */
static uint32_t keeper_for(kvpi_ids *ids, uint32_t idx)
{
    uint32_t keeper = first_fit(ids, idx);
    if (keeper != KVPI_NO_ID)
        return keeper;
    keeper = kvpi_ids_unused(ids);
    if (keeper == KVPI_NO_ID)
        return KVPI_NO_ID;
    ids->ids[keeper].state = KVPI_ID_KEEPER;
    if (kvpi_second_take(ids, keeper, (idx + 1) * ids->block_tokens))
        return keeper;
    free_id(ids, keeper);
    return KVPI_NO_ID;
}

int kvpi_keepers_put(kvpi_ids *ids, uint32_t from, const kvpi_kept *kept)
{
    kvp_block_info info;
    const uint32_t begin = kept->idx * ids->block_tokens;
    if (kvp_block_info_get(ids->cache, 0, KVP_DEVICE, kept->block, &info) != KVP_OK)
        return 0;
    const uint32_t keeper = keeper_for(ids, kept->idx);
    if (keeper == KVPI_NO_ID)
        return 0;
    kvpi_moves_copy(&ids->moves, from, keeper, begin, begin + kept->n_tokens);
    set_kept(ids, keeper, kept->idx, kept->block, kept->n_tokens);
    ids->places[kept->block].generation = info.generation;
    ids->ids[keeper].n_blocks++;
    return 1;
}

static void copy_to_keeper(kvpi_ids *ids, uint32_t id, uint32_t keeper, uint32_t idx)
{
    const uint32_t n = cells_of(ids, id, idx), begin = idx * ids->block_tokens;
    kvpi_moves_copy(&ids->moves, id, keeper, begin, begin + n);
    set_kept(ids, keeper, idx, kvpi_ids_row(ids, id)[idx], n);
    ids->ids[keeper].n_blocks++;
}

int kvpi_keepers_hand_over(kvpi_ids *ids, uint32_t id, uint32_t idx)
{
    const int32_t block = kvpi_ids_row(ids, id)[idx];
    kvpi_place *place = &ids->places[block];
    if (place->id != id)
        return 1;
    place->id = KVPI_NO_ID;
    if (!kvpi_keepers_has_content(ids, block, NULL))
        return 1;
    place->id = open_holder(ids, id, idx, cells_of(ids, id, idx));
    if (place->id != KVPI_NO_ID)
        return 1;
    const uint32_t keeper = keeper_for(ids, idx);
    if (keeper == KVPI_NO_ID)
        return 0;
    copy_to_keeper(ids, id, keeper, idx);
    return 1;
}

/* ----------------------------------------------------------------------------- closed sequences */

/* Entry idx of a closed id: 1 when the id has to keep it. */
static int stays(kvpi_ids *ids, uint32_t id, uint32_t idx)
{
    const int32_t block = kvpi_ids_row(ids, id)[idx];
    kvpi_place *place = &ids->places[block];
    if (!kvpi_keepers_has_content(ids, block, NULL))
        return 0;
    if (place->id != id) {
        if (place->id != KVPI_NO_ID && ids->ids[place->id].state == KVPI_ID_KEEPER)
            ids->ids[place->id].released = ids->clock;
        return 0;
    }
    const uint32_t holder = open_holder(ids, id, idx, cells_of(ids, id, idx));
    if (holder != KVPI_NO_ID) {
        place->id = holder;
        return 0;
    }
    const uint32_t keeper = first_fit(ids, idx);
    if (keeper == KVPI_NO_ID)
        return 1;
    copy_to_keeper(ids, id, keeper, idx);
    return 0;
}

/* A closed sequence's id becomes a keeper of what fits nowhere else. */
static void retire_id(kvpi_ids *ids, uint32_t id)
{
    kvpi_id *entry = &ids->ids[id];
    int32_t *row = kvpi_ids_row(ids, id);
    const uint32_t n_blocks = entry->n_blocks;
    uint32_t n_kept = 0, end = 0;
    ids->clock++;
    for (uint32_t idx = 0; idx < n_blocks; idx++) /* all copies before the first removal */
        ids->chosen[idx] = stays(ids, id, idx);
    for (uint32_t idx = 0; idx < n_blocks; idx++) {
        if (ids->chosen[idx]) {
            set_kept(ids, id, idx, row[idx], cells_of(ids, id, idx));
            n_kept++;
            end = (idx + 1) * ids->block_tokens;
        } else {
            kvpi_moves_remove(&ids->moves, id, idx * ids->block_tokens,
                              (idx + 1) * ids->block_tokens);
            if (ids->places[row[idx]].id == id)
                ids->places[row[idx]].id = KVPI_NO_ID;
            row[idx] = 0;
        }
    }
    if (n_kept == 0) {
        free_id(ids, id);
        return;
    }
    entry->state = KVPI_ID_KEEPER;
    entry->n_blocks = n_kept;
    entry->n_tokens = 0;
    if (!kvpi_second_needed(ids, end))
        kvpi_second_release(ids, id);
}

kvp_status kvpi_keepers_retire(kvpi_ids *ids)
{
    kvp_seq_info info;
    for (uint32_t id = 0; id < ids->n_ids; id++) {
        const kvpi_id *entry = &ids->ids[id];
        if (entry->state != KVPI_ID_OPEN)
            continue;
        const kvp_status status = kvp_seq_info_get(ids->cache, entry->seq, &info);
        if (status == KVP_E_HANDLE || (status == KVP_OK && info.tier == KVP_HOST))
            retire_id(ids, id); /* closed, or swapped out */
        else if (status != KVP_OK)
            return status;
    }
    return KVP_OK;
}

/* --------------------------------------------------------------------------------- short of ids */

/* Their ids, with second ones. */
static uint32_t count_keepers(const kvpi_ids *ids)
{
    uint32_t n = 0;
    for (uint32_t id = 0; id < ids->n_ids; id++)
        if (ids->ids[id].state == KVPI_ID_KEEPER)
            n += kvpi_second_of(ids, id) == KVPI_NO_ID ? 1 : 2;
    return n;
}

/* Remove what is lost anyway, and what open ids have, too. 1: nothing in it is held by a sequence
 * without an id. */
static int thin_out(kvpi_ids *ids, uint32_t keeper)
{
    int is_loose = 1;
    uint32_t state, left = ids->ids[keeper].n_blocks;
    for (uint32_t idx = 0; left > 0; idx++) {
        const int32_t block = kvpi_ids_row(ids, keeper)[idx];
        if (block == 0)
            continue;
        left--;
        const int has_content = kvpi_keepers_has_content(ids, block, &state);
        const uint32_t holder =
            has_content ? open_holder(ids, keeper, idx, ids->places[block].n_tokens) : KVPI_NO_ID;
        if (!has_content || holder != KVPI_NO_ID) {
            kvpi_keepers_remove(ids, keeper, idx);
            ids->places[block].id = holder;
        } else if (state != KVP_BLOCK_CACHED) {
            is_loose = 0;
        }
    }
    return is_loose;
}

/* All blocks of the keeper lose their content. */
static kvp_status empty_keeper(kvpi_ids *ids, uint32_t keeper)
{
    uint32_t n = 0;
    for (uint32_t idx = 0; ids->ids[keeper].n_blocks > 0; idx++) {
        const int32_t block = kvpi_ids_row(ids, keeper)[idx];
        if (block == 0)
            continue;
        ids->chosen[n++] = block;
        clear_entry(ids, keeper, idx);
    }
    kvpi_moves_cut(&ids->moves, keeper, 0);
    free_id(ids, keeper);
    ids->emptied++;
    ids->dropped_blocks += n;
    return kvp_cache_drop(ids->cache, KVP_DEVICE, ids->chosen, n, NULL);
}

/* The keeper whose newest block was released first, of those that may be emptied. */
static uint32_t oldest_keeper(kvpi_ids *ids)
{
    uint32_t oldest = KVPI_NO_ID;
    for (uint32_t id = 0; id < ids->n_ids; id++) {
        const kvpi_id *entry = &ids->ids[id];
        if (entry->state == KVPI_ID_KEEPER && thin_out(ids, id) && entry->state == KVPI_ID_KEEPER &&
            (oldest == KVPI_NO_ID || entry->released < ids->ids[oldest].released))
            oldest = id;
    }
    return oldest;
}

kvp_status kvpi_keepers_limit(kvpi_ids *ids)
{
    kvp_status status = KVP_OK;
    uint32_t n_keepers = count_keepers(ids);
    while (n_keepers > ids->max_keepers && status == KVP_OK) {
        const uint32_t keeper = oldest_keeper(ids);
        n_keepers = count_keepers(ids); /* some may have had nothing that counts */
        if (keeper == KVPI_NO_ID)
            break;
        if (n_keepers > ids->max_keepers) {
            status = empty_keeper(ids, keeper);
            n_keepers = count_keepers(ids);
        }
    }
    return status;
}

/* ---------------------------------------------------------------------------------- idle cells */

enum { COLD_AT_ONCE = 64 };

static kvp_status drop_cold(kvpi_ids *ids, uint32_t n)
{
    kvp_cold cold[COLD_AT_ONCE];
    int32_t blocks[COLD_AT_ONCE];
    kvp_cold_cursor cursor;
    uint32_t n_cold = 0;
    memset(&cursor, 0, sizeof cursor);
    const kvp_status status = kvp_cache_cold_end(ids->cache, KVP_DEVICE, &cursor, cold, n, &n_cold);
    for (uint32_t i = 0; i < n_cold; i++) {
        const kvpi_place *place = &ids->places[blocks[i] = cold[i].block];
        if (place->id == KVPI_NO_ID || ids->ids[place->id].state != KVPI_ID_KEEPER)
            return KVP_E_CORRUPT;
        kvpi_keepers_remove(ids, place->id, place->idx);
    }
    ids->idle_blocks += n_cold;
    return status != KVP_OK ? status : kvp_cache_drop(ids->cache, KVP_DEVICE, blocks, n_cold, NULL);
}

kvp_status kvpi_keepers_limit_idle(kvpi_ids *ids, uint32_t n_blocks)
{
    kvp_stats stats;
    kvp_status status = kvp_cache_stats_get(ids->cache, &stats);
    if (status != KVP_OK || stats.cached_blocks <= n_blocks)
        return status;
    status = kvpi_keepers_retire(ids);
    for (uint64_t n = stats.cached_blocks - n_blocks; n > 0 && status == KVP_OK;) {
        const uint32_t n_now = n < COLD_AT_ONCE ? (uint32_t)n : COLD_AT_ONCE;
        status = drop_cold(ids, n_now);
        n -= n_now;
    }
    return status;
}
