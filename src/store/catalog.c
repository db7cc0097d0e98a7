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

/* --------------------------------------------------------------------------------------- limits */

enum {
    HAND = 64 /* entries that one operation looks at */,
    LOOK = KVP_STORE_QUEUE_MAX + 1,
    AHEAD = 16 /* keys */,
    RETIRED_SHARE = 8,
};

kvp_status kvpi_catalog_limit(struct kvpi_catalog *catalog,
                              const struct kvpi_backend_config *config, char *out_why,
                              size_t why_bytes)
{
    catalog->now = config->store->now;
    catalog->now_context = config->store->now_context;
    uint64_t quota = 0;
    kvp_status status =
        kvpi_url_time(config->url, "max_age", &catalog->max_age, out_why, why_bytes);
    if (status == KVP_OK)
        status = kvpi_url_size(config->url, "quota", &quota, out_why, why_bytes);
    if (status != KVP_OK)
        return status;
    if (quota > 0 && quota < catalog->slot_bytes)
        return kvpi_why(KVP_E_ARG, out_why, why_bytes,
                        "quota is %llu, expected at least one record: %llu bytes",
                        (unsigned long long)quota, (unsigned long long)catalog->slot_bytes);
    catalog->quota_slots = quota / catalog->slot_bytes;
    return KVP_OK;
}

int kvpi_catalog_too_old(const struct kvpi_catalog *catalog, uint32_t written)
{
    return catalog->max_age > 0 && catalog->now(catalog->now_context) / UINT64_C(1000000000) >=
                                       (uint64_t)written * 60 + catalog->max_age;
}

static void sweep(struct kvpi_catalog *catalog)
{
    if (catalog->n_marked > 0)
        catalog->dropped += kvpi_index_sweep(&catalog->index, catalog->leave, catalog->context);
    catalog->n_marked = 0;
}

/* An entry goes. What needs it goes with the next sweep; at once if nothing does. */
static void mark(struct kvpi_catalog *catalog, uint32_t entry)
{
    leave(catalog, entry);
    if (catalog->index.entries[entry].children == 0) {
        kvpi_index_drop(&catalog->index, entry);
    } else {
        kvpi_index_mark(&catalog->index, entry);
        catalog->n_marked++;
    }
}

/* Look at n entries, from the hand on. What was found is swept once a round. */
static void expire(struct kvpi_catalog *catalog, uint32_t n)
{
    const struct kvpi_index *index = &catalog->index;
    if (catalog->max_age == 0)
        return;
    for (uint32_t i = 0; i < n && i < index->n; i++) {
        const struct kvpi_entry *entry = &index->entries[catalog->hand];
        if (entry->state == KVPI_ENTRY_READY && kvpi_catalog_too_old(catalog, entry->written)) {
            mark(catalog, catalog->hand);
            catalog->expired++;
        }
        catalog->hand = catalog->hand + 1 == index->n ? 0 : catalog->hand + 1;
        if (catalog->hand == 0)
            sweep(catalog);
    }
}

/* 0: nothing can go. */
static int evict_one(struct kvpi_catalog *catalog, uint32_t victim)
{
    if (victim == KVPI_INDEX_NONE)
        return 0;
    leave(catalog, victim);
    kvpi_index_remove(&catalog->index, victim);
    catalog->evicted++;
    return 1;
}

static int over_quota(const struct kvpi_catalog *catalog, int32_t space, uint32_t n_more)
{
    return catalog->quota_slots > 0 && space >= 0 &&
           catalog->index.spaces.items[space].used + (uint64_t)n_more > catalog->quota_slots;
}

void kvpi_catalog_trim(struct kvpi_catalog *catalog)
{
    struct kvpi_index *index = &catalog->index;
    expire(catalog, index->n);
    sweep(catalog);
    for (uint32_t id = 0; id < index->spaces.n_fresh && catalog->quota_slots > 0; id++)
        while (over_quota(catalog, (int32_t)id, 0) &&
               evict_one(catalog, kvpi_index_victim_of(index, id, LOOK)))
            continue;
}

/* Room among the records of a namespace, and an identifier for a new one. */
static int make_space(struct kvpi_catalog *catalog, uint64_t number)
{
    struct kvpi_index *index = &catalog->index;
    const int32_t space = kvpi_spaces_find(&index->spaces, number);
    if (over_quota(catalog, space, 1))
        return evict_one(catalog, kvpi_index_victim_of(index, (uint32_t)space, LOOK));
    for (uint32_t i = 0; space < 0 && kvpi_spaces_full(&index->spaces) && i < HAND; i++)
        if (!evict_one(catalog, kvpi_index_victim(index, LOOK)))
            return 0;
    return space >= 0 || !kvpi_spaces_full(&index->spaces);
}

/* First a free slot, then new slots, then the coldest record that nothing needs. */
static int make_slot(struct kvpi_catalog *catalog)
{
    struct kvpi_index *index = &catalog->index;
    if (index->free != KVPI_INDEX_NONE)
        return 1;
    if (catalog->grow && catalog->grow(catalog->context))
        return 1;
    return evict_one(catalog, kvpi_index_victim(index, LOOK)) && index->free != KVPI_INDEX_NONE;
}

static int make_room(struct kvpi_catalog *catalog, uint64_t space)
{
    if (make_space(catalog, space) && make_slot(catalog))
        return 1;
    if (catalog->n_marked == 0)
        return 0;
    sweep(catalog);
    return make_space(catalog, space) && make_slot(catalog);
}

/* --------------------------------------------------------------------------------- put and get */

/* The entry of a key, whatever its state; one that is too old goes. */
static uint32_t find_young(struct kvpi_catalog *catalog, const kvp_digest *key)
{
    const uint32_t entry = kvpi_index_find(&catalog->index, key);
    if (entry == KVPI_INDEX_NONE ||
        !kvpi_catalog_too_old(catalog, catalog->index.entries[entry].written))
        return entry;
    mark(catalog, entry);
    sweep(catalog);
    catalog->expired++;
    return KVPI_INDEX_NONE;
}

/* A parent of another namespace is none: the digests of its children would be others. */
static uint32_t find_parent(struct kvpi_catalog *catalog, const kvp_identity *identity)
{
    const uint32_t parent = find_young(catalog, &identity->parent);
    if (parent != KVPI_INDEX_NONE && kvpi_index_space(&catalog->index, parent) == identity->space)
        return parent;
    if (catalog->outside && catalog->outside(catalog->context, identity))
        return kvpi_index_outside(identity->parent.bytes);
    return KVPI_INDEX_NONE;
}

static uint32_t prepare_put(struct kvpi_catalog *catalog, struct kvpi_store_op *op)
{
    struct kvpi_index *index = &catalog->index;
    const uint32_t known = find_young(catalog, &op->key);
    if (known != KVPI_INDEX_NONE) {
        kvpi_index_touch(index, known);
        return KVP_STORE_KNOWN;
    }
    struct kvpi_index_record record = {.parent = KVPI_INDEX_NONE,
                                       .written = kvpi_index_minute(op->place.written),
                                       .space = op->identity->space};
    memcpy(record.key, op->key.bytes, sizeof record.key);
    if (!is_zero(&op->identity->parent)) {
        record.parent = find_parent(catalog, op->identity);
        if (record.parent == KVPI_INDEX_NONE)
            return KVP_STORE_NO_PARENT;
    }
    const int pinned = record.parent != KVPI_INDEX_NONE && !kvpi_index_is_outside(record.parent);
    if (pinned)
        kvpi_index_pin(index, record.parent); /* it may be the coldest itself */
    const int room = make_room(catalog, record.space);
    /* Making room sweeps: the parent may need a record that is gone. */
    const int orphan = pinned && index->entries[record.parent].state == KVPI_ENTRY_GONE;
    if (pinned)
        kvpi_index_unpin(index, record.parent);
    if (!room || orphan)
        return orphan ? KVP_STORE_NO_PARENT : KVP_STORE_NO_ROOM;
    op->entry = kvpi_index_add(index, &record);
    return op->entry == KVPI_INDEX_NONE ? KVP_STORE_NO_ROOM : KVP_STORE_OK;
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
    expire(catalog, HAND);
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
    mark(catalog, entry);
    catalog->dropped++;
    sweep(catalog);
}

void kvpi_catalog_hold(struct kvpi_catalog *catalog, struct kvpi_store_op *op)
{
    catalog->held[catalog->n_held++] = op;
}

static int waits(const struct kvpi_catalog *catalog, const struct kvpi_store_op *op)
{
    if (op->kind != KVP_STORE_PUT)
        return 0;
    const uint32_t parent = kvpi_index_parent(&catalog->index, op->entry);
    return parent != KVPI_INDEX_NONE && catalog->index.entries[parent].state == KVPI_ENTRY_WRITING;
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
    else if (!gone &&
             (op->kind == KVP_STORE_PUT || result == KVP_STORE_BAD || result == KVP_STORE_FAILED))
        drop_entry(catalog, op->entry);
    /* A place that cannot be written or read; not so many that a disk that is gone for a while
     * leaves none. */
    if (op->io_failed && index->n_retired < index->n / RETIRED_SHARE)
        kvpi_index_spoil(index, op->entry);
    if (gone && op->kind == KVP_STORE_PUT && result == KVP_STORE_OK)
        result = KVP_STORE_NO_PARENT;
    kvpi_index_unpin(index, op->entry);
    return result;
}

uint32_t kvpi_catalog_find(const struct kvpi_catalog *catalog, const kvp_digest *key)
{
    const uint32_t entry = kvpi_index_find(&catalog->index, key);
    const int ready = entry != KVPI_INDEX_NONE &&
                      catalog->index.entries[entry].state == KVPI_ENTRY_READY &&
                      !kvpi_catalog_too_old(catalog, catalog->index.entries[entry].written);
    return ready ? entry : KVPI_INDEX_NONE;
}

void kvpi_catalog_have(const struct kvpi_catalog *catalog, const kvp_digest *keys, uint32_t n_keys,
                       uint64_t *bits)
{
    memset(bits, 0, (n_keys + 63) / 64 * sizeof *bits);
    /* Up to three reads of memory a key, far from each other: many are on their way at a time. */
    for (uint32_t i = 0; i < n_keys + 3 * AHEAD; i++) {
        if (i < n_keys)
            kvpi_index_prefetch_bucket(&catalog->index, keys[i].bytes);
        if (i >= AHEAD && i - AHEAD < n_keys)
            kvpi_index_prefetch_entry(&catalog->index, keys[i - AHEAD].bytes);
        if (i >= 2 * AHEAD && i - 2 * AHEAD < n_keys)
            kvpi_index_prefetch_next(&catalog->index, keys[i - 2 * AHEAD].bytes);
        if (i < 3 * AHEAD)
            continue;
        const uint32_t k = i - 3 * AHEAD;
        if (kvpi_catalog_find(catalog, &keys[k]) != KVPI_INDEX_NONE)
            bits[k / 64] |= UINT64_C(1) << k % 64;
    }
}

/* Records whose parent is outside are found by looking at all; most are not of these keys, which
 * one look into a table of bits tells. */
static void drop_behind(struct kvpi_catalog *catalog, const kvp_digest *keys, uint32_t n_keys)
{
    const struct kvpi_index *index = &catalog->index;
    uint64_t maybe[1024] = {0};
    for (uint32_t i = 0; i < n_keys; i++) {
        const uint32_t bit = kvpi_index_outside(keys[i].bytes) % (1024 * 64);
        maybe[bit / 64] |= UINT64_C(1) << bit % 64;
    }
    for (uint32_t e = 0; e < index->n && index->n_outside > 0; e++) {
        const struct kvpi_entry *entry = &index->entries[e];
        const uint32_t bit = entry->parent % (1024 * 64);
        if ((entry->state != KVPI_ENTRY_READY && entry->state != KVPI_ENTRY_WRITING) ||
            !kvpi_index_is_outside(entry->parent) || !(maybe[bit / 64] >> bit % 64 & 1))
            continue;
        uint32_t i = 0;
        while (i < n_keys && kvpi_index_outside(keys[i].bytes) != entry->parent)
            i++;
        if (i == n_keys)
            continue;
        mark(catalog, e);
        catalog->dropped++;
    }
}

void kvpi_catalog_drop(struct kvpi_catalog *catalog, const kvp_digest *keys, uint32_t n_keys)
{
    for (uint32_t i = 0; i < n_keys; i++) {
        const uint32_t entry = kvpi_index_find(&catalog->index, &keys[i]);
        if (entry == KVPI_INDEX_NONE)
            continue;
        mark(catalog, entry);
        catalog->dropped++;
    }
    if (catalog->index.n_outside > 0)
        drop_behind(catalog, keys, n_keys);
    sweep(catalog);
}

int kvpi_match(const kvp_store_match *match, uint64_t space, uint32_t written)
{
    return (!match->one_space || match->space == space) &&
           (uint64_t)written * 60 + 59 < match->written_before;
}

void kvpi_catalog_evict(struct kvpi_catalog *catalog, const kvp_store_match *match)
{
    const struct kvpi_index *index = &catalog->index;
    for (uint32_t e = 0; e < index->n; e++) {
        const struct kvpi_entry *entry = &index->entries[e];
        if ((entry->state != KVPI_ENTRY_READY && entry->state != KVPI_ENTRY_WRITING) ||
            !kvpi_match(match, kvpi_index_space(index, e), entry->written))
            continue;
        mark(catalog, e);
        catalog->dropped++;
    }
    sweep(catalog);
}

void kvpi_catalog_usage(const struct kvpi_catalog *catalog, struct kvpi_backend_usage *out_usage)
{
    *out_usage = (struct kvpi_backend_usage){
        .records = catalog->index.n_used,
        .bytes = catalog->index.n_used * catalog->slot_bytes,
        .size = catalog->index.n * catalog->slot_bytes,
        .evicted = catalog->evicted,
        .dropped = catalog->dropped,
        .expired = catalog->expired,
        .retired = catalog->index.n_retired,
    };
}
