/* disk_puts: an open id has the cells of all its tokens, so a record is one state of it. The
 * blocks of its row must still have the content that the cells were computed for, all of it
 * committed. */
#include "disk.h"

#include "../keepers.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096 };

enum { DONE, NOT_YET, NEVER, NO_PLACE };

/* ------------------------------------------------------------------------------------- places */

static int make_bytes(const kvpi_disk *disk, kvpi_put *put)
{
    if (put->bytes.data == NULL) {
        put->bytes.data = aligned_alloc(PAGE, disk->block_bytes);
        put->bytes.room = disk->block_bytes;
        if (put->bytes.data != NULL)
            memset(put->bytes.data, 0, disk->block_bytes);
    }
    put->bytes.n = 0;
    return put->bytes.data != NULL;
}

static kvpi_put *free_place(kvpi_disk *disk)
{
    for (uint32_t i = 0; i < disk->n_puts; i++)
        if (!disk->puts[i].is_out)
            return make_bytes(disk, &disk->puts[i]) ? &disk->puts[i] : NULL;
    return NULL;
}

uint32_t kvpi_disk_puts_count(const kvpi_disk *disk)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < disk->n_puts; i++)
        n += disk->puts[i].is_out;
    return n;
}

void kvpi_disk_puts_ended(kvpi_disk *disk, uint32_t place, uint32_t result)
{
    kvpi_put *put = &disk->puts[place];
    put->is_out = 0;
    if (result != KVP_STORE_OK && result != KVP_STORE_KNOWN)
        kvpi_disk_names_forget(disk, &put->key);
}

/* ------------------------------------------------------------------------------------- a record */

/* Blocks of the record have their content, and cells of this id hold it. */
static int has_record(const kvpi_ids *ids, uint32_t id, uint32_t first, uint32_t n)
{
    kvp_block_info info;
    for (uint32_t idx = first + n; idx > first; idx--) {
        const int32_t block = kvpi_ids_row(ids, id)[idx - 1];
        if (block == 0 || ids->places[block].idx != idx - 1 ||
            !kvpi_keepers_has_content(ids, block, NULL) ||
            kvp_block_info_get(ids->cache, 0, KVP_DEVICE, block, &info) != KVP_OK ||
            info.sealed_tokens != ids->block_tokens)
            return 0;
    }
    return 1;
}

static int read_tokens(const kvpi_ids *ids, uint32_t id, uint32_t first, uint32_t n, int32_t *out)
{
    uint32_t n_tokens;
    for (uint32_t i = 0; i < n; i++)
        if (kvp_block_tokens(ids->cache, 0, KVP_DEVICE, kvpi_ids_row(ids, id)[first + i],
                             out + i * ids->block_tokens, &n_tokens) != KVP_OK ||
            n_tokens != ids->block_tokens)
            return 0;
    return 1;
}

/* The name under which the record may be stored. NULL: a match cannot find it, it has extra keys,
 * or its namespace has no name here. */
static const kvpi_space *space_of(const kvpi_disk *disk, const kvpi_ids *ids, int32_t last)
{
    kvp_block_origin origin;
    uint32_t n_keys = 0;
    if (kvp_block_origin_get(ids->cache, KVP_DEVICE, last, &origin) != KVP_OK ||
        kvp_block_keys(ids->cache, KVP_DEVICE, last, NULL, 0, &n_keys) != KVP_OK || n_keys > 0)
        return NULL;
    return kvpi_disk_names_find(disk, origin.ns);
}

static int put_record(kvp_llama *engine, kvpi_disk *disk, uint32_t id, kvpi_put *put)
{
    const uint32_t begin = put->identity.position, place = (uint32_t)(put - disk->puts);
    if (kvpi_state_get(&engine->ids, id, begin, begin + disk->record_tokens, &put->bytes) !=
            KVP_OK ||
        put->bytes.n != disk->state_bytes)
        return NEVER;
    put->block = put->bytes.data;
    if (kvp_store_put(disk->store, &put->identity, &put->block,
                      (uint64_t)KVPI_TAG_PUT << 56 | place) != KVP_OK)
        return NOT_YET;
    put->is_out = 1;
    kvpi_disk_names_note(disk, &put->key);
    return DONE;
}

static int offer_record(kvp_llama *engine, kvpi_disk *disk, uint32_t id, kvpi_written *written)
{
    const kvpi_ids *ids = &engine->ids;
    const uint32_t n = disk->record_blocks, first = written->n_records * n;
    if (!has_record(ids, id, first, n))
        return NOT_YET;
    kvpi_put *put = free_place(disk);
    if (put == NULL)
        return NO_PLACE;
    const kvpi_space *space = space_of(disk, ids, kvpi_ids_row(ids, id)[first + n - 1]);
    if (space == NULL || !read_tokens(ids, id, first, n, put->tokens))
        return NEVER;
    const kvp_hash_input input = {.unit_tokens = disk->record_tokens,
                                  .n_tokens = disk->record_tokens,
                                  .tokens = put->tokens,
                                  .first_position = first * ids->block_tokens};
    put->identity = kvpi_disk_names_identity(disk, space, written->n_records, put->tokens);
    if (kvp_digest_blocks(disk->digester, &input,
                          written->n_records > 0 ? &written->digest : &space->root,
                          &put->identity.digest) != KVP_OK ||
        kvpi_disk_names_key(disk, &put->identity.digest, &put->key) != KVP_OK)
        return NEVER;
    if (written->n_records > 0)
        put->identity.parent = written->key;
    const int result =
        kvpi_disk_names_is_known(disk, &put->key) ? DONE : put_record(engine, disk, id, put);
    if (result != DONE)
        return result;
    written->digest = put->identity.digest;
    written->key = put->key;
    written->n_records++;
    return DONE;
}

static int offer_id(kvp_llama *engine, kvpi_disk *disk, uint32_t id)
{
    const kvpi_id *entry = &engine->ids.ids[id];
    kvpi_written *written = &disk->written[id];
    int result = DONE;
    if (written->seq.bits != entry->seq.bits)
        *written = (kvpi_written){.seq = entry->seq};
    while (result == DONE && written->n_records < entry->n_tokens / disk->record_tokens)
        result = offer_record(engine, disk, id, written);
    if (result == NEVER)
        written->n_records = UINT32_MAX;
    return result;
}

/* A sequence that has ended gives its cells up in this step. */
static int has_ended(const kvp_llama *engine, uint32_t id)
{
    kvp_seq_info info;
    return kvp_seq_info_get(engine->cache, engine->ids.ids[id].seq, &info) == KVP_E_HANDLE;
}

int kvpi_disk_puts_offer(kvp_llama *engine, kvpi_disk *disk)
{
    int all = 1;
    for (uint32_t id = 0; id < disk->n_ids; id++) {
        if (engine->ids.ids[id].state != KVPI_ID_OPEN || offer_id(engine, disk, id) != NO_PLACE)
            continue;
        all = 0;
        if (has_ended(engine, id))
            disk->stats.skipped +=
                engine->ids.ids[id].n_tokens / disk->record_tokens - disk->written[id].n_records;
    }
    return all;
}
