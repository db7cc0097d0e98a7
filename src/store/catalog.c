/* catalog: decisions on an index; no bytes, no files. */
#include "store/catalog.h"

#include <string.h>

static int is_zero(const kvp_digest *digest)
{
    static const kvp_digest zero;
    return memcmp(digest->bytes, zero.bytes, sizeof zero.bytes) == 0;
}

static void leave(struct kvpi_catalog *catalog, uint32_t entry)
{
    if (catalog->leave)
        catalog->leave(catalog->context, entry);
}

/* First a free slot, then new slots, then the coldest record that nothing needs. */
static int make_room(struct kvpi_catalog *catalog)
{
    struct kvpi_index *index = &catalog->index;
    if (index->free != KVPI_INDEX_NONE)
        return 1;
    if (catalog->grow && catalog->grow(catalog->context))
        return 1;
    const uint32_t victim = kvpi_index_victim(index, KVP_STORE_QUEUE_MAX + 1);
    if (victim == KVPI_INDEX_NONE)
        return 0;
    leave(catalog, victim);
    kvpi_index_remove(index, victim);
    catalog->evicted++;
    return index->free != KVPI_INDEX_NONE;
}

static uint32_t prepare_put(struct kvpi_catalog *catalog, struct kvpi_store_op *op)
{
    struct kvpi_index *index = &catalog->index;
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
    const int room = make_room(catalog);
    if (parent != KVPI_INDEX_NONE)
        kvpi_index_unpin(index, parent);
    if (!room)
        return KVP_STORE_NO_ROOM;
    op->entry = kvpi_index_add(index, &op->key, parent);
    return KVP_STORE_OK;
}

static uint32_t prepare_get(struct kvpi_catalog *catalog, struct kvpi_store_op *op)
{
    op->entry = kvpi_catalog_find(catalog, &op->key);
    if (op->entry == KVPI_INDEX_NONE)
        return KVP_STORE_ABSENT;
    kvpi_index_pin(&catalog->index, op->entry);
    return KVP_STORE_OK;
}

uint32_t kvpi_catalog_prepare(struct kvpi_catalog *catalog, struct kvpi_store_op *op)
{
    const uint32_t result =
        op->kind == KVP_STORE_PUT ? prepare_put(catalog, op) : prepare_get(catalog, op);
    if (result == KVP_STORE_OK) {
        op->place.slot = op->entry;
        op->place.generation = catalog->index.entries[op->entry].generation;
    }
    return result;
}

static void drop_entry(struct kvpi_catalog *catalog, uint32_t entry)
{
    leave(catalog, entry);
    catalog->dropped += kvpi_index_drop(&catalog->index, entry);
}

void kvpi_catalog_hold(struct kvpi_catalog *catalog, struct kvpi_store_op *op)
{
    catalog->held[catalog->n_held++] = op;
}

static int waits(const struct kvpi_catalog *catalog, const struct kvpi_store_op *op)
{
    if (op->kind != KVP_STORE_PUT)
        return 0;
    const struct kvpi_entry *entries = catalog->index.entries;
    const uint32_t parent = entries[op->entry].parent;
    return parent != KVPI_INDEX_NONE && entries[parent].state == KVPI_ENTRY_WRITING;
}

uint32_t kvpi_catalog_release(struct kvpi_catalog *catalog, struct kvpi_store_op **out_ops,
                              uint32_t capacity)
{
    uint32_t n = 0;
    uint32_t n_left = 0;
    for (uint32_t i = 0; i < catalog->n_held; i++) {
        if (n < capacity && !waits(catalog, catalog->held[i]))
            out_ops[n++] = catalog->held[i];
        else
            catalog->held[n_left++] = catalog->held[i];
    }
    catalog->n_held = n_left;
    return n;
}

uint32_t kvpi_catalog_end(struct kvpi_catalog *catalog, struct kvpi_store_op *op, uint32_t result)
{
    struct kvpi_index *index = &catalog->index;
    /* Dropped meanwhile: what was read was right, what was written cannot be reached. */
    const int gone = index->entries[op->entry].state == KVPI_ENTRY_GONE;
    if (op->kind == KVP_STORE_PUT && result == KVP_STORE_OK && !gone)
        index->entries[op->entry].state = KVPI_ENTRY_READY;
    else if (op->kind == KVP_STORE_GET && result == KVP_STORE_OK && !gone)
        kvpi_index_touch(index, op->entry);
    else if (!gone && (op->kind == KVP_STORE_PUT || result == KVP_STORE_BAD))
        drop_entry(catalog, op->entry);
    if (gone && op->kind == KVP_STORE_PUT && result == KVP_STORE_OK)
        result = KVP_STORE_NO_PARENT;
    kvpi_index_unpin(index, op->entry);
    return result;
}

uint32_t kvpi_catalog_find(const struct kvpi_catalog *catalog, const kvp_digest *key)
{
    const uint32_t entry = kvpi_index_find(&catalog->index, key);
    const int ready =
        entry != KVPI_INDEX_NONE && catalog->index.entries[entry].state == KVPI_ENTRY_READY;
    return ready ? entry : KVPI_INDEX_NONE;
}

void kvpi_catalog_have(const struct kvpi_catalog *catalog, const kvp_digest *keys, uint32_t n_keys,
                       uint64_t *bits)
{
    memset(bits, 0, (n_keys + 63) / 64 * sizeof *bits);
    for (uint32_t i = 0; i < n_keys; i++)
        if (kvpi_catalog_find(catalog, &keys[i]) != KVPI_INDEX_NONE)
            bits[i / 64] |= UINT64_C(1) << i % 64;
}

void kvpi_catalog_drop(struct kvpi_catalog *catalog, const kvp_digest *key)
{
    const uint32_t entry = kvpi_index_find(&catalog->index, key);
    if (entry != KVPI_INDEX_NONE)
        drop_entry(catalog, entry);
}

void kvpi_catalog_usage(const struct kvpi_catalog *catalog, struct kvpi_backend_usage *out_usage)
{
    *out_usage = (struct kvpi_backend_usage){
        .records = catalog->index.n_used,
        .bytes = catalog->index.n_used * catalog->slot_bytes,
        .size = catalog->index.n * catalog->slot_bytes,
        .evicted = catalog->evicted,
        .dropped = catalog->dropped,
    };
}
