/* memory: the back end that keeps records in this process. Limits, order of eviction and parents
 * are those of the file back end; a record is read and written in one go, so nothing is ever on its
 * way. */
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "index.h"
#include "wake.h"

struct memory {
    struct kvpi_index index;
    uint8_t *slots; /* [n][slot_bytes] */
    size_t slot_bytes;
    uint64_t evicted;
    uint64_t dropped;
    struct kvpi_store_op *queue[KVP_STORE_QUEUE_MAX];
    uint32_t n_queued;
};

static void memory_close(void *self)
{
    struct memory *memory = self;
    kvpi_index_close(&memory->index);
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
        return KVP_E_NO_MEMORY;
    memory->slot_bytes = (size_t)slot_bytes;
    memory->slots = malloc((size_t)(n * slot_bytes));
    status = kvpi_index_open(&memory->index, (uint32_t)n);
    if (status != KVP_OK || !memory->slots) {
        memory_close(memory);
        return KVP_E_NO_MEMORY;
    }
    *out_self = memory;
    return KVP_OK;
}

/* ----------------------------------------------------------------------------------- operations */

static int is_zero(const kvp_digest *digest)
{
    static const kvp_digest zero;
    return memcmp(digest->bytes, zero.bytes, sizeof zero.bytes) == 0;
}

static int make_room(struct memory *memory)
{
    if (memory->index.free != KVPI_INDEX_NONE)
        return 1;
    const uint32_t victim = kvpi_index_victim(&memory->index, KVP_STORE_QUEUE_MAX + 1);
    if (victim == KVPI_INDEX_NONE)
        return 0;
    kvpi_index_remove(&memory->index, victim);
    memory->evicted++;
    return memory->index.free != KVPI_INDEX_NONE;
}

static uint32_t prepare_put(struct memory *memory, struct kvpi_store_op *op)
{
    struct kvpi_index *index = &memory->index;
    const uint32_t known = kvpi_index_find(index, &op->key);
    if (known != KVPI_INDEX_NONE) {
        kvpi_index_touch(index, known);
        return KVP_STORE_KNOWN;
    }
    uint32_t parent = KVPI_INDEX_NONE;
    if (!is_zero(&op->identity->parent)) {
        parent = kvpi_index_find(index, &op->identity->parent);
        if (parent == KVPI_INDEX_NONE)
            return KVP_STORE_NO_PARENT;
        kvpi_index_pin(index, parent); /* it may be the coldest itself */
    }
    const int room = make_room(memory);
    if (parent != KVPI_INDEX_NONE)
        kvpi_index_unpin(index, parent);
    if (!room)
        return KVP_STORE_NO_ROOM;
    op->entry = kvpi_index_add(index, &op->key, parent);
    return KVP_STORE_OK;
}

static uint32_t prepare_get(struct memory *memory, struct kvpi_store_op *op)
{
    op->entry = kvpi_index_find(&memory->index, &op->key);
    if (op->entry == KVPI_INDEX_NONE || memory->index.entries[op->entry].state != KVPI_ENTRY_READY)
        return KVP_STORE_ABSENT;
    kvpi_index_pin(&memory->index, op->entry);
    return KVP_STORE_OK;
}

static uint32_t memory_prepare(void *self, struct kvpi_store_op *op)
{
    struct memory *memory = self;
    if (op->kind == KVP_STORE_SYNC)
        return KVP_STORE_OK;
    const uint32_t result =
        op->kind == KVP_STORE_PUT ? prepare_put(memory, op) : prepare_get(memory, op);
    if (result == KVP_STORE_OK) {
        op->place.slot = op->entry;
        op->place.generation = memory->index.entries[op->entry].generation;
    }
    return result;
}

static void memory_begin(void *self, struct kvpi_store_op *op)
{
    struct memory *memory = self;
    if (op->kind != KVP_STORE_SYNC) {
        uint8_t *at = memory->slots + op->entry * memory->slot_bytes;
        for (uint32_t i = 0; i < op->n_spans; i++) {
            if (op->kind == KVP_STORE_PUT)
                memcpy(at, op->spans[i].bytes, op->spans[i].n_bytes);
            else
                memcpy(op->spans[i].bytes, at, op->spans[i].n_bytes);
            at += op->spans[i].n_bytes;
        }
    }
    memory->queue[memory->n_queued++] = op;
}

static uint32_t memory_reap(void *self, struct kvpi_store_op **out_ops, uint32_t capacity)
{
    struct memory *memory = self;
    uint32_t n = memory->n_queued < capacity ? memory->n_queued : capacity;
    memcpy(out_ops, memory->queue, n * sizeof *out_ops);
    memory->n_queued -= n;
    memmove(memory->queue, memory->queue + n, memory->n_queued * sizeof *memory->queue);
    return n;
}

static void drop_entry(struct memory *memory, uint32_t entry)
{
    memory->dropped += kvpi_index_drop(&memory->index, entry);
}

static uint32_t memory_end(void *self, struct kvpi_store_op *op, uint32_t result)
{
    struct memory *memory = self;
    struct kvpi_index *index = &memory->index;
    if (op->kind == KVP_STORE_SYNC)
        return result;
    /* Dropped meanwhile: what was read was right all the same, what was written is gone. */
    const int gone = index->entries[op->entry].state == KVPI_ENTRY_GONE;
    if (op->kind == KVP_STORE_PUT && result == KVP_STORE_OK && !gone)
        index->entries[op->entry].state = KVPI_ENTRY_READY;
    else if (op->kind == KVP_STORE_GET && result == KVP_STORE_OK && !gone)
        kvpi_index_touch(index, op->entry);
    else if (!gone && (op->kind == KVP_STORE_PUT || result == KVP_STORE_BAD))
        drop_entry(memory, op->entry);
    kvpi_index_unpin(index, op->entry);
    return result;
}

static void memory_have(void *self, const kvp_digest *keys, uint32_t n_keys, uint64_t *bits)
{
    struct memory *memory = self;
    memset(bits, 0, (n_keys + 63) / 64 * sizeof *bits);
    for (uint32_t i = 0; i < n_keys; i++) {
        const uint32_t entry = kvpi_index_find(&memory->index, &keys[i]);
        if (entry != KVPI_INDEX_NONE && memory->index.entries[entry].state == KVPI_ENTRY_READY)
            bits[i / 64] |= UINT64_C(1) << i % 64;
    }
}

static void memory_drop(void *self, const kvp_digest *keys, uint32_t n_keys)
{
    struct memory *memory = self;
    for (uint32_t i = 0; i < n_keys; i++) {
        const uint32_t entry = kvpi_index_find(&memory->index, &keys[i]);
        if (entry != KVPI_INDEX_NONE)
            drop_entry(memory, entry);
    }
}

static void memory_wait(void *self, int wake, int timeout_ms)
{
    const struct memory *memory = self;
    if (memory->n_queued == 0)
        kvpi_wake_wait(wake, timeout_ms);
}

static void memory_usage(const void *self, struct kvpi_backend_usage *out_usage)
{
    const struct memory *memory = self;
    *out_usage = (struct kvpi_backend_usage){
        .records = memory->index.n_used,
        .bytes = memory->index.n_used * (uint64_t)memory->slot_bytes,
        .size = memory->index.n * (uint64_t)memory->slot_bytes,
        .evicted = memory->evicted,
        .dropped = memory->dropped,
    };
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
    .wait = memory_wait,
    .usage = memory_usage,
};
