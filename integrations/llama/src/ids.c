/* ids: open sequences. keepers.c has closed ones. */
#include "ids.h"
#include "keepers.h"
#include "second.h"

#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------------- memory of the ids */

void kvpi_ids_end(kvpi_ids *ids)
{
    free(ids->ids);
    free(ids->moves.seconds);
    free(ids->rows);
    free(ids->places);
    free(ids->chosen);
}

kvp_status kvpi_ids_init(kvpi_ids *ids, kvp_cache *cache, struct llama_context *context,
                         const kvpi_ids_sizes *sizes)
{
    memset(ids, 0, sizeof *ids);
    ids->cache = cache;
    ids->moves.context = context;
    ids->n_ids = sizes->n_ids;
    ids->max_keepers = sizes->max_keepers;
    ids->window = sizes->window;
    ids->block_tokens = sizes->block_tokens;
    ids->row_blocks = sizes->row_blocks;
    ids->pool_blocks = sizes->pool_blocks;
    ids->ids = calloc(sizes->n_ids, sizeof *ids->ids);
    ids->moves.seconds = calloc((size_t)sizes->n_ids + 1, sizeof *ids->moves.seconds);
    ids->rows = calloc((size_t)sizes->n_ids * sizes->row_blocks, sizeof *ids->rows);
    ids->places = calloc(sizes->pool_blocks, sizeof *ids->places);
    ids->chosen = calloc(sizes->row_blocks, sizeof *ids->chosen);
    if (ids->ids == NULL || ids->moves.seconds == NULL || ids->rows == NULL ||
        ids->places == NULL || ids->chosen == NULL)
        return KVP_E_NO_MEMORY;
    for (uint32_t id = 0; id <= sizes->n_ids; id++) /* and the spare one */
        ids->moves.seconds[id] = KVPI_NO_ID;
    for (uint32_t block = 0; block < ids->pool_blocks; block++)
        ids->places[block].id = KVPI_NO_ID;
    return KVP_OK;
}

uint32_t kvpi_ids_find(const kvpi_ids *ids, kvp_seq seq)
{
    for (uint32_t id = 0; id < ids->n_ids; id++)
        if (ids->ids[id].state == KVPI_ID_OPEN && ids->ids[id].seq.bits == seq.bits)
            return id;
    return KVPI_NO_ID;
}

/* ------------------------------------------------------------------------------- new sequences */

/* The id from which cells of the block at index idx of a row are copied, or KVPI_NO_ID. */
static uint32_t source_of(const kvpi_ids *ids, int32_t block, uint32_t idx)
{
    const kvpi_place *place = &ids->places[block];
    if (place->id == KVPI_NO_ID || place->idx != idx || kvpi_ids_row(ids, place->id)[idx] != block)
        return KVPI_NO_ID;
    return kvpi_keepers_has_content(ids, block, NULL) ? place->id : KVPI_NO_ID;
}

/* The same of the block that the plan copies to this one (ids.h). It may have lost its content
 * since: the cells are still there. */
static uint32_t copied_from(const kvpi_ids *ids, int32_t block, uint32_t idx)
{
    const int32_t source = ids->places[block].plan == ids->plan ? ids->places[block].source : 0;
    const kvpi_place *place = &ids->places[source];
    if (source == 0 || place->id == KVPI_NO_ID || place->idx != idx ||
        kvpi_ids_row(ids, place->id)[idx] != source)
        return KVPI_NO_ID;
    return place->id;
}

void kvpi_ids_note_plan(kvpi_ids *ids, const kvp_copy *copies, uint32_t n_copies)
{
    ids->copies = copies;
    ids->n_copies = n_copies;
    ids->plan++;
    for (uint32_t i = 0; i < n_copies; i++) {
        if (copies[i].dst_tier != KVP_DEVICE)
            continue;
        kvpi_place *place = &ids->places[copies[i].dst_block];
        place->source = copies[i].src_tier == KVP_DEVICE ? copies[i].src_block : 0;
        place->plan = ids->plan;
    }
}

static kvp_status copy_hits(kvpi_ids *ids, uint32_t id, const int32_t *row, uint32_t n_blocks)
{
    kvpi_id *entry = &ids->ids[id];
    const uint32_t block_tokens = ids->block_tokens;
    for (uint32_t idx = 0; idx * block_tokens < entry->n_tokens; idx++) {
        const uint32_t begin = idx * block_tokens, left = entry->n_tokens - begin;
        const uint32_t n = left < block_tokens ? left : block_tokens;
        uint32_t from = idx < n_blocks ? source_of(ids, row[idx], idx) : KVPI_NO_ID;
        const int is_copied = idx < n_blocks && from == KVPI_NO_ID;
        if (is_copied)
            from = copied_from(ids, row[idx], idx);
        if (from == KVPI_NO_ID)
            return KVP_E_CORRUPT;
        kvpi_moves_copy(&ids->moves, from, id, begin, begin + n);
        kvpi_ids_row(ids, id)[idx] = is_copied ? 0 : row[idx];
        entry->has_gaps |= (uint32_t)is_copied;
        entry->n_blocks = idx + 1;
    }
    return KVP_OK;
}

kvp_status kvpi_ids_open(kvpi_ids *ids, kvp_seq seq, uint32_t n_tokens, uint32_t *out_id)
{
    const int32_t *row;
    uint32_t n_blocks;
    kvp_seq_info info;
    const uint32_t id = kvpi_ids_unused(ids);
    if (id == KVPI_NO_ID || kvp_seq_row(ids->cache, seq, 0, &row, &n_blocks) != KVP_OK ||
        kvp_seq_info_get(ids->cache, seq, &info) != KVP_OK)
        return KVP_E_CORRUPT;
    kvpi_id *entry = &ids->ids[id];
    entry->state = KVPI_ID_OPEN;
    entry->seq = seq;
    entry->n_tokens = n_tokens;
    entry->n_blocks = 0;
    entry->row_version = info.row_version;
    *out_id = id;
    return kvpi_second_take(ids, id, n_tokens) ? copy_hits(ids, id, row, n_blocks) : KVP_E_CORRUPT;
}

/* ------------------------------------------------------------------------------ what is written */

/* The block at index idx of an open id is the id's from now on. */
static kvp_status claim_block(kvpi_ids *ids, uint32_t id, uint32_t idx, int32_t block)
{
    kvp_block_info info;
    kvpi_place *place = &ids->places[block];
    if (place->id != KVPI_NO_ID && place->id != id &&
        kvpi_ids_row(ids, place->id)[place->idx] == block) {
        if (ids->ids[place->id].state != KVPI_ID_KEEPER)
            return KVP_E_CORRUPT; /* a block that is written has no other holder */
        kvpi_keepers_remove(ids, place->id, place->idx);
    }
    if (kvp_block_info_get(ids->cache, 0, KVP_DEVICE, block, &info) != KVP_OK)
        return KVP_E_CORRUPT;
    place->id = id;
    place->idx = idx;
    place->generation = info.generation;
    kvpi_ids_row(ids, id)[idx] = block;
    if (ids->ids[id].n_blocks <= idx)
        ids->ids[id].n_blocks = idx + 1;
    return KVP_OK;
}

kvp_status kvpi_ids_claim(kvpi_ids *ids, uint32_t id, uint32_t begin, uint32_t n_tokens)
{
    const int32_t *row;
    uint32_t n_blocks;
    kvpi_id *entry = &ids->ids[id];
    const uint32_t end = begin + n_tokens;
    kvp_status status = kvp_seq_row(ids->cache, entry->seq, 0, &row, &n_blocks);
    if (status != KVP_OK || begin != entry->n_tokens || end > n_blocks * ids->block_tokens ||
        !kvpi_second_take(ids, id, end))
        return KVP_E_CORRUPT;
    for (uint32_t idx = begin / ids->block_tokens; idx * ids->block_tokens < end; idx++)
        if ((status = claim_block(ids, id, idx, row[idx])) != KVP_OK)
            return status;
    entry->n_tokens = end;
    return KVP_OK;
}

void kvpi_ids_cut(kvpi_ids *ids, uint32_t id, uint32_t begin)
{
    kvpi_id *entry = &ids->ids[id];
    const uint32_t n_blocks = (begin + ids->block_tokens - 1) / ids->block_tokens;
    kvpi_moves_cut(&ids->moves, id, begin);
    for (uint32_t idx = n_blocks; idx < entry->n_blocks; idx++) {
        int32_t *block = &kvpi_ids_row(ids, id)[idx];
        if (ids->places[*block].id == id)
            ids->places[*block].id = KVPI_NO_ID;
        *block = 0;
    }
    entry->n_tokens = begin;
    entry->n_blocks = n_blocks;
}

/* ------------------------------------------------------------------- entries that were replaced */

/* The row has block `now` where the id has the cells of another one: a duplicate that it computed
 * itself and gave back (adoption), or a block that it shares and will write (copy-on-write). The
 * latter is claimed when every id has given up what it lost: another one may have had that
 * block. */
static kvp_status replace(kvpi_ids *ids, uint32_t id, uint32_t idx, int32_t now)
{
    const uint32_t begin = idx * ids->block_tokens, end = begin + ids->block_tokens;
    const kvpi_place *place = &ids->places[now];
    if (!kvpi_keepers_hand_over(ids, id, idx))
        return KVP_E_CORRUPT;
    kvpi_ids_row(ids, id)[idx] = 0;
    if (place->id == KVPI_NO_ID || !kvpi_keepers_has_content(ids, now, NULL)) {
        ids->ids[id].has_gaps = 1;
        return KVP_OK;
    }
    if (place->idx != idx || end > ids->ids[id].n_tokens)
        return KVP_E_CORRUPT;
    kvpi_moves_remove(&ids->moves, id, begin, end);
    kvpi_moves_copy(&ids->moves, place->id, id, begin, end);
    kvpi_ids_row(ids, id)[idx] = now;
    return KVP_OK;
}

static kvp_status refresh_id(kvpi_ids *ids, uint32_t id)
{
    const int32_t *row;
    uint32_t n_blocks;
    kvp_seq_info info;
    kvpi_id *entry = &ids->ids[id];
    kvp_status status = kvp_seq_info_get(ids->cache, entry->seq, &info);
    if (status != KVP_OK || info.row_version == entry->row_version)
        return status;
    entry->row_version = info.row_version;
    status = kvp_seq_row(ids->cache, entry->seq, 0, &row, &n_blocks);
    if (status != KVP_OK || n_blocks < entry->n_blocks)
        return KVP_E_CORRUPT;
    for (uint32_t idx = 0; idx < entry->n_blocks && status == KVP_OK; idx++)
        if (row[idx] != kvpi_ids_row(ids, id)[idx])
            status = replace(ids, id, idx, row[idx]);
    return status;
}

static kvp_status fill_gaps(kvpi_ids *ids, uint32_t id)
{
    const int32_t *row;
    uint32_t n_blocks;
    kvpi_id *entry = &ids->ids[id];
    if (!entry->has_gaps)
        return KVP_OK;
    entry->has_gaps = 0;
    kvp_status status = kvp_seq_row(ids->cache, entry->seq, 0, &row, &n_blocks);
    for (uint32_t idx = 0; idx < entry->n_blocks && status == KVP_OK; idx++)
        if (kvpi_ids_row(ids, id)[idx] == 0)
            status = claim_block(ids, id, idx, row[idx]);
    return status;
}

kvp_status kvpi_ids_refresh(kvpi_ids *ids)
{
    kvp_status status = KVP_OK;
    for (uint32_t id = 0; id < ids->n_ids && status == KVP_OK; id++)
        if (ids->ids[id].state == KVPI_ID_OPEN)
            status = refresh_id(ids, id);
    for (uint32_t id = 0; id < ids->n_ids && status == KVP_OK; id++)
        if (ids->ids[id].state == KVPI_ID_OPEN)
            status = fill_gaps(ids, id);
    return status;
}
