/* oplog: a log in memory, read record by record.
 *
 *     bytes [ "kvpops1\n" | configuration | record | record | ...                      ]
 *                                         ^ first            ^ decoder.at     end ^
 */
#include <kvpager/oplog.h>

#include <stdlib.h>
#include <string.h>

#include "oplog/oplog.h"

#include "base/sized.h"

struct kvp_oplog {
    const uint8_t *bytes;
    size_t n_bytes;
    size_t first; /* offset of the first record */
    uint64_t index;
    kvp_config config;
    int32_t *uncached_tokens;
    struct kvpi_oplog_decoder decoder;
    struct kvpi_oplog_results results;
};

const char *kvp_oplog_call_name(uint32_t op)
{
    switch (op) {
#define NAME(name, number, text)                                                                   \
    case KVP_CALL_##name: return text;
        KVP_CALL_TABLE(NAME)
#undef NAME
    default: return "?";
    }
}

/* The decoder's buffer is used again for the tokens of records: keep a copy. */
static kvp_status keep_uncached(kvp_oplog *log)
{
    size_t n_bytes = log->config.n_uncached_tokens * sizeof(int32_t);
    if (n_bytes == 0) {
        log->config.uncached_tokens = NULL;
        return KVP_OK;
    }
    log->uncached_tokens = malloc(n_bytes);
    if (log->uncached_tokens == NULL)
        return KVP_E_NO_MEMORY;
    memcpy(log->uncached_tokens, log->config.uncached_tokens, n_bytes);
    log->config.uncached_tokens = log->uncached_tokens;
    return KVP_OK;
}

kvp_status kvp_oplog_open(const void *bytes, size_t n_bytes, kvp_oplog **out_log)
{
    if (out_log == NULL || (bytes == NULL && n_bytes > 0))
        return KVP_E_ARG;
    kvp_oplog *log = calloc(1, sizeof *log);
    if (log == NULL)
        return KVP_E_NO_MEMORY;
    log->bytes = n_bytes > 0 ? bytes : (const uint8_t *)"";
    log->n_bytes = n_bytes;
    log->decoder.at = log->bytes;
    log->decoder.end = log->bytes + n_bytes;
    kvp_status status = kvpi_oplog_decode_header(&log->decoder, &log->config);
    if (status == KVP_OK)
        status = keep_uncached(log);
    if (status != KVP_OK) {
        kvp_oplog_close(log);
        return status;
    }
    log->first = (size_t)(log->decoder.at - log->bytes);
    *out_log = log;
    return KVP_OK;
}

void kvp_oplog_close(kvp_oplog *log)
{
    if (log == NULL)
        return;
    kvpi_oplog_decoder_free(&log->decoder);
    free(log->uncached_tokens);
    free(log);
}

kvp_status kvp_oplog_config(const kvp_oplog *log, kvp_config *out_config)
{
    if (log == NULL || out_config == NULL)
        return KVP_E_ARG;
    *out_config = log->config;
    return KVP_OK;
}

kvp_status kvp_oplog_next(kvp_oplog *log, kvp_record *out_record, int *out_end)
{
    if (log == NULL || out_record == NULL || out_end == NULL)
        return KVP_E_ARG;
    struct kvpi_oplog_decoder *decoder = &log->decoder;
    if (decoder->status != KVP_OK)
        return decoder->status;
    *out_end = decoder->at == decoder->end;
    if (*out_end != 0)
        return KVP_OK;
    kvp_record record;
    memset(&record, 0, sizeof record);
    record.bytes = decoder->at;
    kvp_status status = kvpi_oplog_decode_record(decoder, &record.call, &log->results);
    if (status == KVP_E_NO_MEMORY) /* nothing was read: the same record is next */
        kvpi_oplog_seek(log, (uint64_t)(record.bytes - log->bytes), log->index);
    if (status != KVP_OK)
        return status;
    record.status = log->results.outcome.status;
    record.index = log->index++;
    record.n_bytes = (size_t)(decoder->at - record.bytes);
    record.n_result_bytes = (size_t)(decoder->at - log->results.bytes);
    *out_record = record;
    return KVP_OK;
}

void kvp_oplog_rewind(kvp_oplog *log)
{
    if (log == NULL)
        return;
    kvpi_oplog_seek(log, log->first, 0);
}

void kvpi_oplog_seek(kvp_oplog *log, uint64_t offset, uint64_t index)
{
    log->decoder.at = log->bytes + offset;
    log->decoder.status = KVP_OK;
    log->index = index;
}

uint64_t kvp_oplog_offset(const kvp_oplog *log)
{
    return log == NULL ? 0 : (uint64_t)(log->decoder.at - log->bytes);
}

const struct kvpi_oplog_results *kvpi_oplog_results(const kvp_oplog *log)
{
    return &log->results;
}
