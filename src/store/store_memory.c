/* store_memory: the back end that keeps records in this process. Limits, order of eviction and
 * parents are those of the file back end; a record is read and written in one go, so nothing is
 * ever on its way. */
#include <stdlib.h>
#include <string.h>

#include "store/catalog.h"
#include "store/wake.h"

struct memory {
    struct kvpi_catalog catalog;
    uint8_t *slots; /* [n][slot_bytes] */
};

static void memory_close(void *self)
{
    struct memory *memory = self;
    kvpi_index_close(&memory->catalog.index);
    free(memory->slots);
    free(memory);
}

static kvp_status memory_open(const struct kvpi_backend_config *config, void **out_self,
                              char *out_why, size_t why_bytes)
{
    uint64_t size = UINT64_C(256) << 20;
    kvp_status status = kvpi_url_size(config->url, "size", &size, out_why, why_bytes);
    if (status != KVP_OK)
        return status;
    if (*config->url->path)
        return kvpi_why(KVP_E_ARG, out_why, why_bytes, "\"memory:\" has no path");
    const uint64_t slot_bytes = config->header_bytes + config->payload_bytes;
    const uint64_t n = size / slot_bytes;
    if (n == 0 || n > INT32_MAX || n * slot_bytes > SIZE_MAX)
        return kvpi_why(KVP_E_ARG, out_why, why_bytes,
                        "size is %llu, expected at least one record: %llu bytes",
                        (unsigned long long)size, (unsigned long long)slot_bytes);
    struct memory *memory = calloc(1, sizeof *memory);
    if (!memory)
        return kvpi_why(KVP_E_NO_MEMORY, out_why, why_bytes, "the system gave no memory");
    memory->catalog.slot_bytes = slot_bytes;
    status = kvpi_catalog_limit(&memory->catalog, config, out_why, why_bytes);
    if (status != KVP_OK) {
        memory_close(memory);
        return status;
    }
    memory->slots = malloc((size_t)(n * slot_bytes));
    status = kvpi_index_open(&memory->catalog.index, (uint32_t)n);
    if (status != KVP_OK || !memory->slots) {
        memory_close(memory);
        return kvpi_why(KVP_E_NO_MEMORY, out_why, why_bytes, "the system gave no memory");
    }
    memory->catalog.index.has_quota = memory->catalog.quota_slots > 0;
    kvpi_index_free(&memory->catalog.index, (uint32_t)n);
    *out_self = memory;
    return KVP_OK;
}

/* ----------------------------------------------------------------------------------- operations */

static uint32_t memory_prepare(void *self, struct kvpi_store_op *op)
{
    struct memory *memory = self;
    return op->kind == KVP_STORE_SYNC ? KVP_STORE_OK : kvpi_catalog_prepare(&memory->catalog, op);
}

static void memory_begin(void *self, struct kvpi_store_op *op)
{
    struct memory *memory = self;
    if (op->kind != KVP_STORE_SYNC) {
        uint8_t *at = memory->slots + op->entry * memory->catalog.slot_bytes;
        for (uint32_t i = 0; i < op->n_spans; i++) {
            if (op->kind == KVP_STORE_PUT)
                memcpy(at, op->spans[i].bytes, op->spans[i].n_bytes);
            else
                memcpy(op->spans[i].bytes, at, op->spans[i].n_bytes);
            at += op->spans[i].n_bytes;
        }
    }
    kvpi_catalog_hold(&memory->catalog, op);
}

static uint32_t memory_reap(void *self, struct kvpi_store_op **out_ops, uint32_t capacity)
{
    struct memory *memory = self;
    return kvpi_catalog_release(&memory->catalog, out_ops, capacity);
}

static uint32_t memory_end(void *self, struct kvpi_store_op *op, uint32_t result)
{
    struct memory *memory = self;
    return op->kind == KVP_STORE_SYNC ? result : kvpi_catalog_end(&memory->catalog, op, result);
}

static void memory_have(void *self, const kvp_digest *keys, uint32_t n_keys, uint64_t *bits)
{
    const struct memory *memory = self;
    kvpi_catalog_have(&memory->catalog, keys, n_keys, bits);
}

static void memory_drop(void *self, const kvp_digest *keys, uint32_t n_keys)
{
    struct memory *memory = self;
    kvpi_catalog_drop(&memory->catalog, keys, n_keys);
}

static void memory_evict(void *self, const kvp_store_match *match)
{
    struct memory *memory = self;
    kvpi_catalog_evict(&memory->catalog, match);
}

static void memory_wait(void *self, int wake, int timeout_ms)
{
    const struct memory *memory = self;
    if (memory->catalog.n_held == 0)
        kvpi_wake_wait(wake, timeout_ms);
}

static void memory_usage(const void *self, struct kvpi_backend_usage *out_usage)
{
    const struct memory *memory = self;
    kvpi_catalog_usage(&memory->catalog, out_usage);
}

static void memory_describe(const void *self, char *out_text, size_t text_bytes)
{
    (void)self;
    kvpi_why(KVP_OK, out_text, text_bytes, "in memory");
}

const struct kvpi_backend kvpi_memory_backend = {
    .scheme = "memory",
    .open = memory_open,
    .close = memory_close,
    .prepare = memory_prepare,
    .begin = memory_begin,
    .reap = memory_reap,
    .end = memory_end,
    .have = memory_have,
    .drop = memory_drop,
    .evict = memory_evict,
    .wait = memory_wait,
    .usage = memory_usage,
    .describe = memory_describe,
};
