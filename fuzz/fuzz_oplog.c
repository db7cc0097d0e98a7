/* Any bytes as an operation log: they are read to the end or to the damage, and if they ask for a
 * cache of ordinary size, they are run on one. Nothing may crash, and what was read must be bytes
 * of the log, record after record. */
#include <stdlib.h>

#include <kvpager/oplog.h>

#include "meter.h"
#include "require.h"

/* Tokens and keys of one record, decoded. */
#define MEMORY(n_bytes) (65536 + 64 * (uint64_t)(n_bytes))

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Runs need memory and time in proportion to these. */
static int is_small(const kvp_config *config)
{
    return config->n_blocks <= 4096 && config->max_seqs <= 64 && config->max_seq_tokens <= 4096 &&
           config->max_namespaces <= 64 && config->n_nodes <= 16384 && config->max_copies <= 1024 &&
           config->max_unit_keys <= 8 && config->block_tokens <= 256 &&
           config->host_blocks <= 4096 && config->max_events <= 16384 &&
           config->max_tree_tokens <= 1024;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    kvp_oplog *log;
    kvp_config config;
    kvp_record record;
    int end = 0;
    uint64_t n_records = 0;
    meter_begin();
    if (kvp_oplog_open(data, size, &log) != KVP_OK) {
        const meter used = meter_end();
        require(used.peak <= MEMORY(size));
        return 0;
    }
    require(kvp_oplog_config(log, &config) == KVP_OK);
    const uint8_t *expected = data + kvp_oplog_offset(log);
    while (kvp_oplog_next(log, &record, &end) == KVP_OK && end == 0) {
        require(record.bytes == expected && record.index == n_records++);
        require(record.n_result_bytes > 0 && record.n_result_bytes < record.n_bytes);
        expected += record.n_bytes;
    }
    const meter used = meter_end();
    require(used.peak <= MEMORY(size) && used.n_asked <= 64 + size);
    require(kvp_oplog_offset(log) <= size);
    if (is_small(&config) && n_records <= 2000) {
        uint64_t index;
        kvp_status status = kvp_oplog_replay(log, 2, &index);
        require(status != KVP_E_CORRUPT);
    }
    kvp_oplog_close(log);
    return 0;
}
