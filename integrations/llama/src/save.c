/* save: the tree and the KV of what is cached, into a file. snapshot.h has the bytes. */
#include "file.h"
#include "keepers.h"
#include "models.h"
#include "snapshot.h"
#include "state.h"

#include <kvpager/snapshot.h>

#include <string.h>

uint32_t kvpi_snapshot_most(const kvpi_ids *ids)
{
    return kvpi_state_piece(KVPI_SNAPSHOT_TOKENS, ids->window, ids->block_tokens);
}

static kvp_hash add_text(kvp_hash sum, const char *text)
{
    return kvpi_state_sum(&sum, text, strlen(text));
}

kvp_hash kvpi_snapshot_fingerprint(const kvp_llama *engine, const char *model)
{
    const struct llama_model *m = engine->model;
    const uint64_t numbers[] = {llama_model_n_params(m), llama_model_size(m),
                                (uint64_t)engine->type_k, (uint64_t)engine->type_v};
    char text[512];
    kvp_hash sum = {{0}};
    sum = kvpi_state_sum(&sum, numbers, sizeof numbers);
    sum = add_text(sum, model != NULL ? model : "");
    for (int32_t i = 0; i < llama_model_meta_count(m); i++) {
        if (llama_model_meta_key_by_index(m, i, text, sizeof text) >= 0)
            sum = add_text(sum, text);
        if (llama_model_meta_val_str_by_index(m, i, text, sizeof text) >= 0)
            sum = add_text(sum, text);
    }
    return sum;
}

kvp_hash kvpi_snapshot_head_sum(const kvpi_snapshot_head *head)
{
    const kvp_hash none = {{0}};
    return kvpi_state_sum(&none, head, offsetof(kvpi_snapshot_head, sum));
}

/* ------------------------------------------------------------------------------------- records */

typedef struct saver {
    kvp_llama *engine;
    kvpi_file file;
    kvpi_snapshot_head head;
    kvpi_bytes bytes; /* of a record */
} saver;

/* Has the id this block's cells, all of them, and can a match find it? */
static int is_saved(const kvpi_ids *ids, uint32_t id, uint32_t idx, kvp_hash *out_hash)
{
    const int32_t block = kvpi_ids_row(ids, id)[idx];
    kvp_block_info info;
    if (block == 0 || ids->places[block].id != id || ids->places[block].idx != idx ||
        !kvpi_keepers_has_content(ids, block, NULL) ||
        kvp_block_info_get(ids->cache, 0, KVP_DEVICE, block, &info) != KVP_OK ||
        info.sealed_tokens != ids->block_tokens)
        return 0;
    *out_hash = info.hash;
    return 1;
}

static kvp_status write_record(saver *s, uint32_t id, uint32_t first, uint32_t n)
{
    kvpi_ids *ids = &s->engine->ids;
    const size_t n_before = sizeof(kvpi_snapshot_record) + n * sizeof(kvpi_snapshot_entry);
    kvpi_snapshot_record record = {.first_idx = first, .n_blocks = n};
    if (!kvpi_state_reserve(&s->bytes, n_before))
        return KVP_E_NO_MEMORY;
    s->bytes.n = n_before;
    const kvp_status status = kvpi_state_get(ids, id, first * ids->block_tokens,
                                             (first + n) * ids->block_tokens, &s->bytes);
    if (status != KVP_OK)
        return status;
    for (uint32_t i = 0; i < n; i++) {
        kvpi_snapshot_entry entry = {.block = kvpi_ids_row(ids, id)[first + i]};
        (void)is_saved(ids, id, first + i, &entry.hash);
        memcpy(s->bytes.data + sizeof record + i * sizeof entry, &entry, sizeof entry);
    }
    memcpy(record.mark, KVPI_SNAPSHOT_BLOCK, sizeof record.mark);
    record.state_bytes = s->bytes.n - n_before;
    memcpy(s->bytes.data, &record, sizeof record);
    record.sum = kvpi_state_sum(&s->head.fingerprint, s->bytes.data, s->bytes.n);
    memcpy(s->bytes.data, &record, sizeof record);
    s->head.n_records++;
    return kvpi_file_write(&s->file, s->bytes.data, s->bytes.n) ? KVP_OK : KVP_E_IO;
}

static kvp_status write_id(saver *s, uint32_t id)
{
    const kvpi_ids *ids = &s->engine->ids;
    const uint32_t most = kvpi_snapshot_most(ids);
    kvp_status status = KVP_OK;
    kvp_hash hash;
    for (uint32_t first = 0; first < ids->row_blocks && status == KVP_OK;) {
        uint32_t n = 0;
        while (n < most && first + n < ids->row_blocks && is_saved(ids, id, first + n, &hash))
            n++;
        if (n > 0)
            status = write_record(s, id, first, n);
        first += n > 0 ? n : 1;
    }
    return status;
}

/* Keepers in the order of their release, then open ids: the last ones are emptied last. */
static kvp_status write_ids(saver *s)
{
    const kvpi_ids *ids = &s->engine->ids;
    kvp_status status = KVP_OK;
    uint64_t released = 0;
    for (;;) {
        uint64_t next = UINT64_MAX;
        for (uint32_t id = 0; id < ids->n_ids; id++)
            if (ids->ids[id].state == KVPI_ID_KEEPER && ids->ids[id].released >= released &&
                ids->ids[id].released < next)
                next = ids->ids[id].released;
        if (next == UINT64_MAX)
            break;
        for (uint32_t id = 0; id < ids->n_ids && status == KVP_OK; id++)
            if (ids->ids[id].state == KVPI_ID_KEEPER && ids->ids[id].released == next)
                status = write_id(s, id);
        released = next + 1;
    }
    for (uint32_t id = 0; id < ids->n_ids && status == KVP_OK; id++)
        if (ids->ids[id].state == KVPI_ID_OPEN)
            status = write_id(s, id);
    return status;
}

/* ---------------------------------------------------------------------------------------- file */

static int write_tree(void *context, const void *bytes, size_t n)
{
    saver *s = context;
    s->head.tree_bytes += n;
    return !kvpi_file_write(&s->file, bytes, n);
}

static kvp_status write_all(saver *s, const char *path)
{
    const kvpi_ids *ids = &s->engine->ids;
    const kvp_sink sink = {.context = s, .write = write_tree};
    kvp_snapshot_options options;
    kvp_snapshot_options_init(&options);
    options.model = s->head.fingerprint.bytes;
    options.model_bytes = sizeof s->head.fingerprint.bytes;
    memcpy(s->head.mark, KVPI_SNAPSHOT_MARK, sizeof s->head.mark);
    s->head.version = KVPI_SNAPSHOT_VERSION;
    s->head.block_tokens = ids->block_tokens;
    s->head.pool_blocks = ids->pool_blocks;
    if (!kvpi_file_begin(&s->file, path) || !kvpi_file_write(&s->file, &s->head, sizeof s->head))
        return KVP_E_IO;
    kvp_status status = kvp_snapshot_save(s->engine->cache, &options, &sink);
    if (status == KVP_OK)
        status = write_ids(s);
    if (status != KVP_OK)
        return status;
    s->head.sum = kvpi_snapshot_head_sum(&s->head);
    return kvpi_file_write_first(&s->file, &s->head, sizeof s->head) && kvpi_file_replace(&s->file)
               ? KVP_OK
               : KVP_E_IO;
}

kvp_status kvp_llama_save(kvp_llama *engine, const char *model, const char *path, kvp_why *out_why)
{
    saver s;
    if (out_why != NULL)
        memset(out_why, 0, sizeof *out_why);
    if (engine == NULL || path == NULL || path[0] == '\0')
        return KVP_E_ARG;
    if (engine->is_out)
        return KVP_E_STATE;
    memset(&s, 0, sizeof s);
    s.engine = engine;
    kvp_status status = kvpi_keepers_retire(&engine->ids);
    kvpi_moves_flush(&engine->ids.moves);
    s.head.fingerprint = kvpi_snapshot_fingerprint(engine, model);
    if (status == KVP_OK)
        status = write_all(&s, path);
    if (status == KVP_E_IO)
        (void)kvpi_models_say(out_why, "path", strerror(s.file.error));
    kvpi_file_end(&s.file);
    kvpi_state_free(&s.bytes);
    return status;
}
