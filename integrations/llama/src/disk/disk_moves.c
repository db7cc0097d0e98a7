/* disk_moves: an open id has the cells of all its tokens, so a record is one state of it. What
 * comes back becomes a stretch of the host blocks that the cache took for it. */
#include "disk.h"

#include "../snapshot.h"

#include <stdlib.h>
#include <string.h>

kvp_status kvpi_disk_moves_fingerprint(const kvp_llama *engine, const kvpi_disk *disk,
                                       const char *model, kvp_digest *out)
{
    static const char mark[] = "kvpager llama.cpp disk 2";
    const char *texts[] = {mark, model, ggml_version(), ggml_commit(), llama_print_system_info()};
    const kvp_hash metadata = kvpi_snapshot_fingerprint(engine, NULL);
    const uint64_t numbers[] = {LLAMA_SESSION_VERSION, LLAMA_STATE_SEQ_VERSION,
                                disk->stats.record_tokens, disk->state_bytes};
    kvp_digester *digester;
    kvp_digest sum = {{1}};
    kvp_status status = kvp_digester_create(&digester);
    if (status != KVP_OK)
        return status;
    status = kvp_fingerprint_states(digester, &sum, numbers, sizeof numbers, &sum);
    if (status == KVP_OK)
        status = kvp_fingerprint_states(digester, &sum, &metadata, sizeof metadata, &sum);
    for (size_t i = 0; i < sizeof texts / sizeof *texts && status == KVP_OK; i++) {
        const size_t n = strlen(texts[i]) + 1;
        status = n > KVP_FINGERPRINT_BYTES_MAX
                     ? KVP_E_ARG
                     : kvp_fingerprint_states(digester, &sum, texts[i], (uint32_t)n, &sum);
    }
    kvp_digester_destroy(digester);
    *out = sum;
    return status;
}

/* Bytes of the spare id's state, with one more token. 0: llama.cpp does not compute it. */
static size_t grow(kvp_llama *engine, llama_pos position)
{
    llama_token token = 0;
    llama_seq_id id = (llama_seq_id)kvpi_state_spare(&engine->ids), *ids = &id;
    int32_t count = 1;
    int8_t logits = 0;
    const struct llama_batch batch = {.n_tokens = 1,
                                      .token = &token,
                                      .pos = &position,
                                      .n_seq_id = &count,
                                      .seq_id = &ids,
                                      .logits = &logits};
    if (llama_decode(engine->context, batch) != 0)
        return 0;
    return llama_state_seq_get_size_ext(engine->context, id, 0);
}

/* A state has a fixed number of bytes, and the same for each cell. It is not grown beyond the
 * record: a window of one token leaves the first cell out. */
size_t kvpi_disk_moves_measure(kvp_llama *engine, uint32_t n_tokens)
{
    size_t n = grow(engine, 0);
    if (n > 0 && n_tokens > 1) {
        const size_t two = grow(engine, 1);
        n = two > n ? n + (n_tokens - 1) * (two - n) : 0;
    }
    kvpi_state_close(&engine->ids);
    return n;
}

int kvpi_disk_moves_give(void *engine, const kvp_spill_record *record)
{
    kvpi_ids *ids = &((kvp_llama *)engine)->ids;
    const kvpi_disk *disk = ((kvp_llama *)engine)->disk;
    kvpi_bytes bytes = {.data = record->bytes, .room = disk->stats.record_bytes, .is_lent = 1};
    const uint32_t id = kvpi_ids_find(ids, record->seq);
    if (id == KVPI_NO_ID || ids->ids[id].n_tokens < record->tokens.end ||
        kvpi_state_get(ids, id, record->tokens.begin, record->tokens.end, &bytes) != KVP_OK ||
        bytes.n != disk->state_bytes)
        return 0;
    memset(bytes.data + bytes.n, 0, disk->stats.record_bytes - bytes.n);
    return 1;
}

/* The first record of this process is tried: libllama may have changed in a way that nothing tells.
 */
static int is_right(kvp_llama *engine, kvpi_disk *disk, const kvp_spill_record *record)
{
    if (disk->was_tried || disk->stats.is_off)
        return !disk->stats.is_off;
    if (!kvpi_state_open(&engine->ids, record->bytes, disk->state_bytes, record->tokens.begin,
                         record->tokens.end)) {
        disk->stats.is_off = 1;
        return 0;
    }
    kvpi_state_close(&engine->ids);
    disk->was_tried = 1;
    return 1;
}

int kvpi_disk_moves_take(void *context, const kvp_spill_record *record)
{
    kvp_llama *engine = context;
    kvpi_disk *disk = engine->disk;
    const uint32_t block_tokens = engine->ids.block_tokens;
    kvpi_host_record whole = {.first_idx = record->tokens.begin / block_tokens,
                              .n_blocks = disk->record_blocks};
    if (!is_right(engine, disk, record) || !kvpi_state_reserve(&whole.bytes, disk->state_bytes))
        return 0;
    memcpy(whole.bytes.data, record->bytes, disk->state_bytes);
    whole.bytes.n = disk->state_bytes;
    disk->stats.loaded_tokens +=
        kvpi_host_adopt(&engine->host, &whole, record->blocks) * block_tokens;
    return 1;
}
