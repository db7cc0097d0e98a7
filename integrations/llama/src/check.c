/* check: what llama.h promises of ids and blocks, read from the ids, the cache and llama.cpp. */
#include "engine.h"
#include "keepers.h"
#include "second.h"

#include <stdlib.h>
#include <string.h>

static int found(kvp_violation *violation, const char *invariant, uint64_t object,
                 const char *detail)
{
    memset(violation, 0, sizeof *violation);
    memcpy(violation->invariant, invariant, strlen(invariant));
    violation->object = object;
    violation->detail = detail;
    return 0;
}

/* Positions of an id: [*first, *last], or -1 and -1. */
static void expected_range(const kvpi_ids *ids, uint32_t id, int64_t *first, int64_t *last)
{
    const kvpi_id *entry = &ids->ids[id];
    const int32_t *row = kvpi_ids_row(ids, id);
    *first = *last = -1;
    if (entry->state == KVPI_ID_OPEN && entry->n_tokens > 0) {
        *first = 0;
        *last = (int64_t)entry->n_tokens - 1;
    }
    for (uint32_t idx = 0; entry->state == KVPI_ID_KEEPER && idx < ids->row_blocks; idx++) {
        const int64_t begin = (int64_t)idx * ids->block_tokens;
        if (row[idx] == 0)
            continue;
        *first = *first < 0 ? begin : *first;
        *last = begin + ids->places[row[idx]].n_tokens - 1;
    }
}

/* The id and its second one hold the same positions, and cells that llama.cpp would take have two
 * ids. */
static int check_second(const kvp_llama *engine, uint32_t id, int64_t first, int64_t last,
                        kvp_violation *violation)
{
    const kvpi_ids *ids = &engine->ids;
    const uint32_t second = kvpi_second_of(ids, id);
    llama_memory_t memory = llama_get_memory(engine->context);
    uint32_t n_owners = 0;
    if (ids->ids[id].state == KVPI_ID_SECOND) {
        for (uint32_t other = 0; other < ids->n_ids; other++)
            n_owners += kvpi_second_of(ids, other) == id;
        return n_owners == 1 || found(violation, "L8", id, "a second id has not one owner");
    }
    if (second == KVPI_NO_ID)
        return !kvpi_second_needed(ids, (uint32_t)(last + 1)) ||
               found(violation, "L8", id, "it is longer than the window, and has no second id");
    if (ids->ids[id].state == KVPI_ID_FREE || second >= ids->n_ids ||
        ids->ids[second].state != KVPI_ID_SECOND)
        return found(violation, "L8", id, "its second id is none");
    if (llama_memory_seq_pos_min(memory, (llama_seq_id)second) != first ||
        llama_memory_seq_pos_max(memory, (llama_seq_id)second) != last)
        return found(violation, "L8", id, "its second id has other positions");
    return 1;
}

static int check_id(const kvp_llama *engine, uint32_t id, kvp_violation *violation)
{
    const kvpi_ids *ids = &engine->ids;
    const kvpi_id *entry = &ids->ids[id];
    const int32_t *row = kvpi_ids_row(ids, id);
    llama_memory_t memory = llama_get_memory(engine->context);
    int64_t first, last;
    uint32_t n = 0;
    for (uint32_t idx = 0; idx < ids->row_blocks; idx++) {
        if (row[idx] == 0)
            continue;
        n++;
        const kvpi_place *place = &ids->places[row[idx]];
        if (entry->state == KVPI_ID_KEEPER && (place->id != id || place->idx != idx))
            return found(violation, "L4", id, "a keeper has a block whose place is elsewhere");
    }
    if (n != entry->n_blocks ||
        (n > 0 && (entry->state == KVPI_ID_FREE || entry->state == KVPI_ID_SECOND)))
        return found(violation, "L1", id, "the number of its blocks is wrong");
    expected_range(ids, id, &first, &last);
    if (!check_second(engine, id, first, last, violation))
        return 0;
    if (entry->state == KVPI_ID_SECOND)
        return 1;
    if (llama_memory_seq_pos_min(memory, (llama_seq_id)id) != first ||
        llama_memory_seq_pos_max(memory, (llama_seq_id)id) != last)
        return found(violation, "L5", id, "llama.cpp has other positions of it");
    return 1;
}

static int check_block(const kvp_llama *engine, int32_t block, kvp_violation *violation)
{
    const kvpi_ids *ids = &engine->ids;
    const kvpi_place *place = &ids->places[block];
    kvp_block_info info;
    kvp_seq_info seq;
    const uint64_t object = (uint64_t)block;
    if (place->id != KVPI_NO_ID && place->id >= ids->n_ids)
        return found(violation, "L2", object, "its place is no id");
    if (kvp_block_info_get(engine->cache, 0, KVP_DEVICE, block, &info) != KVP_OK)
        return found(violation, "L2", object, "the cache does not have it");
    if (info.state != KVP_BLOCK_CACHED)
        return 1;
    if (place->id == KVPI_NO_ID || place->generation != info.generation ||
        kvpi_ids_row(ids, place->id)[place->idx] != block)
        return found(violation, "L2", object, "it is cached, and its place does not have it");
    const kvpi_id *entry = &ids->ids[place->id];
    if (entry->state == KVPI_ID_KEEPER) {
        if (place->n_tokens != ids->block_tokens)
            return found(violation, "L3", object, "it is cached, and its keeper has a part of it");
        return 1;
    }
    if (kvp_seq_info_get(engine->cache, entry->seq, &seq) == KVP_OK)
        return found(violation, "L3", object, "it is cached, and its place is a sequence's");
    return 1; /* closed since the last step: the next one retires it */
}

/* The id behind the engine's own is for copies of states, and empty between them. */
static int check_spare(const kvp_llama *engine, kvp_violation *violation)
{
    const uint32_t spare = engine->ids.n_ids;
    llama_memory_t memory = llama_get_memory(engine->context);
    if (llama_memory_seq_pos_max(memory, (llama_seq_id)spare) >= 0)
        return found(violation, "L5", spare, "the id that is kept for copies of states has cells");
    return 1;
}

static int check_host(const kvp_llama *engine, kvp_violation *violation)
{
    uint64_t object = 0;
    kvp_seq_info info;
    for (uint32_t i = 0; i < engine->n_swapped; i++)
        if (kvp_seq_info_get(engine->cache, engine->swapped[i].seq, &info) == KVP_OK &&
            info.tier != KVP_HOST)
            return found(violation, "L1", i, "a sequence came back and has no id");
    const char *why = engine->host.host_blocks > 0 ? kvpi_host_audit(&engine->host, &object) : NULL;
    return why == NULL || found(violation, "L6", object, why);
}

/* A block that the newest plan copies on write is not replaced by a later copy of it: ids.h. */
static int check_plan(const kvpi_ids *ids, kvp_violation *violation)
{
    for (uint32_t i = 0; i < ids->n_copies; i++) {
        const kvp_copy *copy = &ids->copies[i];
        if (copy->src_tier != KVP_DEVICE || copy->dst_tier != KVP_DEVICE)
            continue;
        for (uint32_t k = i + 1; k < ids->n_copies; k++)
            if (ids->copies[k].dst_tier == KVP_DEVICE &&
                ids->copies[k].dst_block == copy->src_block)
                return found(violation, "L7", (uint64_t)copy->src_block,
                             "the plan copies it, and then replaces it");
    }
    return 1;
}

kvp_status kvp_llama_check(const kvp_llama *engine, kvp_violation *out_violation)
{
    kvp_violation violation;
    int is_right = 1;
    if (engine == NULL)
        return KVP_E_ARG;
    memset(&violation, 0, sizeof violation);
    for (uint32_t id = 0; id < engine->ids.n_ids && is_right; id++)
        is_right = check_id(engine, id, &violation);
    for (uint32_t block = 1; block < engine->ids.pool_blocks && is_right; block++)
        is_right = check_block(engine, (int32_t)block, &violation);
    is_right = is_right && check_spare(engine, &violation) && check_host(engine, &violation) &&
               check_plan(&engine->ids, &violation);
    if (out_violation != NULL)
        *out_violation = violation;
    return is_right ? KVP_OK : KVP_E_CORRUPT;
}
