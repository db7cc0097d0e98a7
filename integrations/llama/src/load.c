/* load: what save.c wrote, into an engine in which nothing was opened yet. The tree comes first.
 * Then each record's cells go to keepers, for the blocks that the tree has as the record says.
 * Blocks that are left without cells lose their content. */
#define _POSIX_C_SOURCE 200809L /* fseeko */

#include "keepers.h"
#include "models.h"
#include "snapshot.h"
#include "state.h"

#include <kvpager/drop.h>
#include <kvpager/snapshot.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

typedef struct loader {
    kvp_llama *engine;
    FILE *file;
    kvpi_snapshot_head head;
    uint64_t tree_left;
    uint64_t file_left; /* bytes that follow */
    kvpi_bytes bytes;   /* of a record */
    kvp_llama_restored restored;
} loader;

static int read_exactly(loader *l, void *out, uint64_t n)
{
    if (n > l->file_left || (n > 0 && fread(out, (size_t)n, 1, l->file) != 1))
        return 0;
    l->file_left -= n;
    return 1;
}

/* ---------------------------------------------------------------------------------------- tree */

static int read_tree(void *context, void *out_bytes, size_t capacity, size_t *out_n)
{
    loader *l = context;
    const size_t n = capacity < l->tree_left ? capacity : (size_t)l->tree_left;
    *out_n = n;
    if (!read_exactly(l, out_bytes, n))
        return 1;
    l->tree_left -= n;
    return 0;
}

static void tell_name(void *context, const kvp_snapshot_item *item)
{
    const loader *l = context;
    if (item->kind == KVP_SNAPSHOT_NAMESPACE)
        l->restored.tell(l->restored.context, item->name, item->name_bytes);
}

static kvp_status load_tree(loader *l)
{
    const kvp_source source = {.context = l, .read = read_tree};
    const uint64_t after = l->file_left - l->head.tree_bytes;
    kvp_snapshot_options options;
    kvp_snapshot_options_init(&options);
    options.model = l->head.fingerprint.bytes;
    options.model_bytes = sizeof l->head.fingerprint.bytes;
    options.context = l;
    options.tell = l->restored.tell != NULL ? tell_name : NULL;
    l->tree_left = l->head.tree_bytes;
    const kvp_status status = kvp_snapshot_load(l->engine->cache, &options, &source, NULL);
    if (status != KVP_OK)
        return status;
    if (fseeko(l->file, (off_t)(sizeof l->head + l->head.tree_bytes), SEEK_SET) != 0)
        return KVP_E_IO;
    l->file_left = after;
    return KVP_OK;
}

/* ------------------------------------------------------------------------------------- records */

static kvpi_snapshot_entry entry_at(const loader *l, uint32_t i)
{
    kvpi_snapshot_entry entry;
    memcpy(&entry, l->bytes.data + sizeof(kvpi_snapshot_record) + i * sizeof entry, sizeof entry);
    return entry;
}

/* Has the tree this block, with this content and no cells yet? */
static int is_wanted(const kvpi_ids *ids, const kvpi_snapshot_entry *entry)
{
    kvp_block_info info;
    return entry->block > 0 && (uint32_t)entry->block < ids->pool_blocks &&
           ids->places[entry->block].id == KVPI_NO_ID &&
           kvp_block_info_get(ids->cache, 0, KVP_DEVICE, entry->block, &info) == KVP_OK &&
           info.state == KVP_BLOCK_CACHED && info.sealed_tokens == ids->block_tokens &&
           memcmp(&info.hash, &entry->hash, sizeof info.hash) == 0;
}

static void put_blocks(loader *l, const kvpi_snapshot_record *record)
{
    kvpi_ids *ids = &l->engine->ids;
    const uint32_t begin = record->first_idx * ids->block_tokens;
    const uint8_t *bytes =
        l->bytes.data + sizeof *record + record->n_blocks * sizeof(kvpi_snapshot_entry);
    if (!kvpi_state_open(ids, bytes, (size_t)record->state_bytes, begin,
                         begin + record->n_blocks * ids->block_tokens))
        return;
    ids->clock++;
    for (uint32_t i = 0; i < record->n_blocks; i++) {
        const kvpi_snapshot_entry entry = entry_at(l, i);
        const kvpi_kept kept = {entry.block, record->first_idx + i, ids->block_tokens};
        if (is_wanted(ids, &entry))
            (void)kvpi_keepers_put(ids, kvpi_state_spare(ids), &kept);
    }
    kvpi_state_close(ids);
}

/* 0: what follows cannot be read as records. */
static int load_record(loader *l)
{
    const kvpi_ids *ids = &l->engine->ids;
    kvpi_snapshot_record record;
    if (!read_exactly(l, &record, sizeof record) ||
        memcmp(record.mark, KVPI_SNAPSHOT_BLOCK, sizeof record.mark) != 0 || record.n_blocks == 0 ||
        record.n_blocks > kvpi_snapshot_most(ids))
        return 0;
    const uint64_t n_entries = record.n_blocks * sizeof(kvpi_snapshot_entry);
    if (record.state_bytes > l->file_left ||
        !kvpi_state_reserve(&l->bytes, sizeof record + (size_t)(n_entries + record.state_bytes)) ||
        !read_exactly(l, l->bytes.data + sizeof record, n_entries + record.state_bytes))
        return 0;
    const kvp_hash sum = record.sum;
    memset(&record.sum, 0, sizeof record.sum);
    memcpy(l->bytes.data, &record, sizeof record);
    const kvp_hash found = kvpi_state_sum(&l->head.fingerprint, l->bytes.data,
                                          sizeof record + (size_t)(n_entries + record.state_bytes));
    if (memcmp(&found, &sum, sizeof sum) == 0 && record.first_idx < ids->row_blocks &&
        record.n_blocks <= ids->row_blocks - record.first_idx)
        put_blocks(l, &record);
    return 1;
}

/* What has no cells cannot be hit: on the device, and on the host, whose bytes are not saved. */
static void drop_others(loader *l)
{
    const kvpi_ids *ids = &l->engine->ids;
    kvp_block_info info;
    kvp_config config;
    if (kvp_cache_config_get(ids->cache, &config) != KVP_OK)
        return;
    for (uint32_t tier = KVP_DEVICE; tier <= KVP_HOST; tier++) {
        const uint32_t n = tier == KVP_DEVICE ? config.n_blocks : config.host_blocks;
        for (int32_t block = 1; block < (int32_t)n; block++) {
            if (kvp_block_info_get(ids->cache, 0, tier, block, &info) != KVP_OK ||
                info.state != KVP_BLOCK_CACHED)
                continue;
            if (tier == KVP_DEVICE && ids->places[block].id != KVPI_NO_ID) {
                l->restored.blocks++;
                continue;
            }
            l->restored.dropped_blocks++;
            (void)kvp_cache_drop(ids->cache, tier, &block, 1, NULL);
        }
    }
}

/* ---------------------------------------------------------------------------------------- file */

static kvp_status refuse(kvp_status status, kvp_why *why, const char *text)
{
    (void)kvpi_models_say(why, "path", text);
    return status;
}

static kvp_status read_head(loader *l, const char *model, kvp_why *why)
{
    const kvpi_snapshot_head *head = &l->head;
    const kvpi_ids *ids = &l->engine->ids;
    if (!read_exactly(l, &l->head, sizeof l->head) ||
        memcmp(head->mark, KVPI_SNAPSHOT_MARK, sizeof head->mark) != 0)
        return refuse(KVP_E_FORMAT, why, "it is no snapshot of an engine over llama.cpp");
    if (head->version != KVPI_SNAPSHOT_VERSION)
        return refuse(KVP_E_VERSION, why,
                      "it is of another version: start without it, and save again");
    const kvp_hash sum = kvpi_snapshot_head_sum(head);
    if (memcmp(&sum, &head->sum, sizeof sum) != 0 || head->tree_bytes > l->file_left)
        return refuse(KVP_E_FORMAT, why, "it is damaged at its beginning, or cut");
    const kvp_hash fingerprint = kvpi_snapshot_fingerprint(l->engine, model);
    if (memcmp(&fingerprint, &head->fingerprint, sizeof fingerprint) != 0)
        return refuse(KVP_E_MISMATCH, why,
                      "it is of another model or adapter, or of other types of K and V");
    if (head->block_tokens != ids->block_tokens || head->pool_blocks != ids->pool_blocks)
        return refuse(KVP_E_MISMATCH, why,
                      "it is of a context with another number of cells, or of other block_tokens");
    return KVP_OK;
}

static kvp_status load_all(loader *l, const char *model, kvp_why *why)
{
    kvp_status status = read_head(l, model, why);
    if (status != KVP_OK)
        return status;
    status = load_tree(l);
    if (status == KVP_E_STATE)
        return refuse(status, why, "a namespace was opened before");
    if (status != KVP_OK)
        return refuse(status, why, "its tree of prefixes is damaged, or of another configuration");
    for (uint32_t i = 0; i < l->head.n_records && load_record(l); i++)
        ;
    drop_others(l);
    status = kvpi_keepers_limit(&l->engine->ids);
    kvpi_moves_flush(&l->engine->ids.moves);
    return status;
}

kvp_status kvp_llama_load(kvp_llama *engine, const char *model, const char *path,
                          kvp_llama_restored *restored, kvp_why *out_why)
{
    loader l;
    if (out_why != NULL)
        memset(out_why, 0, sizeof *out_why);
    if (engine == NULL || path == NULL)
        return KVP_E_ARG;
    memset(&l, 0, sizeof l);
    l.engine = engine;
    if (restored != NULL) {
        l.restored.tell = restored->tell;
        l.restored.context = restored->context;
    }
    l.file = fopen(path, "rb");
    if (l.file == NULL)
        return refuse(KVP_E_IO, out_why, strerror(errno));
    kvp_status status = KVP_E_IO;
    if (fseeko(l.file, 0, SEEK_END) == 0) {
        const off_t n = ftello(l.file);
        l.file_left = n > 0 ? (uint64_t)n : 0;
        if (n >= 0 && fseeko(l.file, 0, SEEK_SET) == 0)
            status = load_all(&l, model, out_why);
    }
    (void)fclose(l.file);
    kvpi_state_free(&l.bytes);
    if (status == KVP_OK && restored != NULL)
        *restored = l.restored;
    return status;
}
