/* index: records by key, their tree, and the order in which they go. */
#define _GNU_SOURCE /* madvise */
#include "store/index.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { EPOCH = 1024 /* touches */, EPOCHS = 64 };

#define NONE KVPI_INDEX_NONE

/* ---------------------------------------------------------------------------------- open, close */

/* Look-ups go anywhere: in small pages each would miss the processor's table of pages, too. */
static void *allot(size_t n_bytes, int fill)
{
    const size_t huge = (size_t)2 << 20;
    const size_t n = (n_bytes + huge - 1) / huge * huge;
    if (n_bytes < huge || n < n_bytes) {
        void *small = malloc(n_bytes);
        return small ? memset(small, fill, n_bytes) : NULL;
    }
    void *bytes = aligned_alloc(huge, n);
    if (!bytes)
        return NULL;
#ifdef MADV_HUGEPAGE
    (void)madvise(bytes, n, MADV_HUGEPAGE);
#endif
    return memset(bytes, fill, n_bytes);
}

kvp_status kvpi_index_open(struct kvpi_index *index, uint32_t n)
{
    *index = (struct kvpi_index){.n = n, .n_buckets = 1, .free = NONE, .cold = NONE, .hot = NONE};
    while (index->n_buckets < n)
        index->n_buckets *= 2;
    index->entries = allot(n * sizeof *index->entries, 0);
    index->table = allot(index->n_buckets * sizeof *index->table, 0xFF);
    if (!index->entries || !index->table || kvpi_spaces_open(&index->spaces, n) != KVP_OK) {
        kvpi_index_close(index);
        return KVP_E_NO_MEMORY;
    }
    return KVP_OK;
}

/* The lowest is taken first. */
void kvpi_index_free(struct kvpi_index *index, uint32_t n_slots)
{
    for (uint32_t e = n_slots; e-- > index->n_slots;) {
        if (index->entries[e].state == KVPI_ENTRY_FREE &&
            index->entries[e].generation == UINT32_MAX) {
            index->entries[e].state = KVPI_ENTRY_RETIRED;
            index->n_retired++;
        } else if (index->entries[e].state == KVPI_ENTRY_FREE) {
            index->entries[e].colder = index->free;
            index->free = e;
        }
    }
    index->n_slots = n_slots;
}

void kvpi_index_close(struct kvpi_index *index)
{
    free(index->entries);
    free(index->table);
    kvpi_spaces_close(&index->spaces);
    *index = (struct kvpi_index){.free = NONE, .cold = NONE, .hot = NONE};
}

/* ------------------------------------------------------------------------------------ the table */

static uint32_t *bucket_of(const struct kvpi_index *index, const uint8_t *key)
{
    uint32_t bits;
    memcpy(&bits, key, sizeof bits);
    return &index->table[bits & (index->n_buckets - 1)];
}

uint32_t kvpi_index_find(const struct kvpi_index *index, const kvp_digest *key)
{
    uint32_t e = *bucket_of(index, key->bytes);
    while (e != NONE &&
           memcmp(index->entries[e].key, key->bytes, sizeof index->entries[e].key) != 0)
        e = index->entries[e].chain;
    return e;
}

void kvpi_index_prefetch_bucket(const struct kvpi_index *index, const uint8_t *key)
{
    __builtin_prefetch(bucket_of(index, key));
}

static void prefetch(const struct kvpi_index *index, uint32_t entry)
{
    if (entry == NONE)
        return;
    const uint8_t *e = (const uint8_t *)&index->entries[entry];
    __builtin_prefetch(e);
    __builtin_prefetch(e + sizeof *index->entries - 1);
}

void kvpi_index_prefetch_entry(const struct kvpi_index *index, const uint8_t *key)
{
    prefetch(index, *bucket_of(index, key));
}

void kvpi_index_prefetch_next(const struct kvpi_index *index, const uint8_t *key)
{
    const uint32_t e = *bucket_of(index, key);
    if (e != NONE)
        prefetch(index, index->entries[e].chain);
}

static void chain_in(struct kvpi_index *index, uint32_t entry)
{
    uint32_t *bucket = bucket_of(index, index->entries[entry].key);
    index->entries[entry].chain = *bucket;
    *bucket = entry;
}

static void chain_out(struct kvpi_index *index, uint32_t entry)
{
    uint32_t *at = bucket_of(index, index->entries[entry].key);
    while (*at != entry)
        at = &index->entries[*at].chain;
    *at = index->entries[entry].chain;
}

/* ------------------------------------------------------------------------------------ the order */

static struct kvpi_spaces_item *space_of(const struct kvpi_index *index, uint32_t entry)
{
    return &index->spaces.items[index->entries[entry].space];
}

/* The next entry of the same namespace on the hotter side. Entries enter the order at its hot end
 * or beside their ancestors: so all steps of a namespace together are fewer than all entries that
 * ever entered. */
static uint32_t next_of_space(const struct kvpi_index *index, uint32_t entry)
{
    uint32_t e = index->entries[entry].hotter;
    while (e != NONE && index->entries[e].space != index->entries[entry].space)
        e = index->entries[e].hotter;
    return e;
}

static void order_out(struct kvpi_index *index, uint32_t entry)
{
    const struct kvpi_entry *e = &index->entries[entry];
    if (index->has_quota && space_of(index, entry)->cold == entry)
        space_of(index, entry)->cold = next_of_space(index, entry);
    if (e->colder == NONE)
        index->cold = e->hotter;
    else
        index->entries[e->colder].hotter = e->hotter;
    if (e->hotter == NONE)
        index->hot = e->colder;
    else
        index->entries[e->hotter].colder = e->colder;
}

/* Put an entry next to `hotter`, an ancestor, on its colder side; NONE: at the hot end. */
static void order_in(struct kvpi_index *index, uint32_t entry, uint32_t hotter)
{
    struct kvpi_entry *e = &index->entries[entry];
    e->hotter = hotter;
    e->colder = hotter == NONE ? index->hot : index->entries[hotter].colder;
    if (hotter == NONE)
        index->hot = entry;
    else
        index->entries[hotter].colder = entry;
    if (e->colder == NONE)
        index->cold = entry;
    else
        index->entries[e->colder].hotter = entry;
    struct kvpi_spaces_item *space = space_of(index, entry);
    if (index->has_quota && (space->cold == NONE || space->cold == hotter))
        space->cold = entry;
}

static void count_touch(struct kvpi_index *index)
{
    if (++index->touches == EPOCH) {
        index->touches = 0;
        index->epoch = (uint8_t)((index->epoch + 1u) & (EPOCHS - 1u));
    }
}

/* Leaf first, each next to the same anchor: so a parent ends up hotter than its child. */
static void move_up(struct kvpi_index *index, uint32_t entry)
{
    uint32_t anchor = entry;
    while (anchor != NONE && index->entries[anchor].epoch != (index->epoch & (EPOCHS - 1u)))
        anchor = kvpi_index_parent(index, anchor);
    for (uint32_t e = entry; e != anchor; e = kvpi_index_parent(index, e)) {
        order_out(index, e);
        order_in(index, e, anchor);
        index->entries[e].epoch = index->epoch & (EPOCHS - 1u);
    }
}

void kvpi_index_touch(struct kvpi_index *index, uint32_t entry)
{
    count_touch(index);
    move_up(index, entry);
}

void kvpi_index_spoil(struct kvpi_index *index, uint32_t entry)
{
    index->entries[entry].written = KVPI_INDEX_SPOILED;
}

static int can_go(const struct kvpi_entry *entry)
{
    return entry->state == KVPI_ENTRY_READY && entry->children == 0 && entry->pins == 0;
}

uint32_t kvpi_index_victim(const struct kvpi_index *index, uint32_t limit)
{
    uint32_t e = index->cold;
    for (uint32_t i = 0; i < limit && e != NONE; i++, e = index->entries[e].hotter)
        if (can_go(&index->entries[e]))
            return e;
    return NONE;
}

uint32_t kvpi_index_victim_of(const struct kvpi_index *index, uint32_t space, uint32_t limit)
{
    uint32_t e = index->spaces.items[space].cold;
    for (uint32_t i = 0; i < limit && e != NONE; i++, e = next_of_space(index, e))
        if (can_go(&index->entries[e]))
            return e;
    return NONE;
}

/* ---------------------------------------------------------------------------------- add, remove */

/* A slot that is in no list becomes the entry of a record: hottest after its ancestors. NULL:
 * there are too many namespaces. */
static struct kvpi_entry *enter(struct kvpi_index *index, uint32_t entry,
                                const struct kvpi_index_record *record)
{
    const int outside = kvpi_index_is_outside(record->parent);
    const uint32_t parent = outside ? NONE : record->parent;
    const int32_t space = kvpi_spaces_enter(
        &index->spaces, parent == NONE ? record->space : kvpi_index_space(index, parent));
    if (space < 0)
        return NULL;
    count_touch(index);
    if (parent != NONE) {
        move_up(index, parent);
        index->entries[parent].children++;
    }
    struct kvpi_entry *e = &index->entries[entry];
    memcpy(e->key, record->key, sizeof e->key);
    e->parent = record->parent;
    e->children = 0;
    e->written = record->written & ((1u << 26) - 1);
    e->epoch = index->epoch & (EPOCHS - 1u);
    e->space = (uint16_t)space;
    order_in(index, entry, parent);
    chain_in(index, entry);
    index->n_used++;
    index->n_outside += outside != 0;
    return e;
}

uint32_t kvpi_index_add(struct kvpi_index *index, const struct kvpi_index_record *record)
{
    const uint32_t entry = index->free;
    if (entry == NONE)
        return NONE;
    const uint32_t next = index->entries[entry].colder;
    struct kvpi_entry *e = enter(index, entry, record);
    if (!e)
        return NONE;
    index->free = next;
    e->generation++;
    e->pins = 1;
    e->state = KVPI_ENTRY_WRITING;
    return entry;
}

int kvpi_index_restore(struct kvpi_index *index, uint32_t slot,
                       const struct kvpi_index_record *record)
{
    struct kvpi_entry *e = enter(index, slot, record);
    if (!e)
        return 0;
    e->generation = record->generation;
    e->state = KVPI_ENTRY_READY;
    return 1;
}

/* Give a slot back that is in no chain any more. */
static void give_back(struct kvpi_index *index, uint32_t entry)
{
    struct kvpi_entry *e = &index->entries[entry];
    order_out(index, entry);
    if (kvpi_index_is_outside(e->parent))
        index->n_outside--;
    else if (e->parent != NONE)
        index->entries[e->parent].children--;
    kvpi_spaces_leave(&index->spaces, e->space);
    index->n_used--;
    if (e->generation == UINT32_MAX || e->written == KVPI_INDEX_SPOILED) {
        e->state = KVPI_ENTRY_RETIRED;
        index->n_retired++;
        return;
    }
    e->state = KVPI_ENTRY_FREE;
    e->colder = index->free;
    index->free = entry;
}

void kvpi_index_remove(struct kvpi_index *index, uint32_t entry)
{
    chain_out(index, entry);
    give_back(index, entry);
}

void kvpi_index_unpin(struct kvpi_index *index, uint32_t entry)
{
    struct kvpi_entry *e = &index->entries[entry];
    e->pins--;
    /* With children it was marked, and the sweep is still to come. */
    if (e->pins == 0 && e->state == KVPI_ENTRY_GONE && e->children == 0)
        give_back(index, entry);
}

void kvpi_index_mark(struct kvpi_index *index, uint32_t entry)
{
    index->entries[entry].state = KVPI_ENTRY_GONE;
    chain_out(index, entry);
}

/* An entry that is GONE, and has no children, goes; one that stays for its pins stands alone. */
static void settle(struct kvpi_index *index, uint32_t entry)
{
    struct kvpi_entry *gone = &index->entries[entry];
    if (gone->pins == 0) {
        give_back(index, entry);
    } else if (kvpi_index_parent(index, entry) != NONE) {
        index->entries[gone->parent].children--;
        gone->parent = NONE;
    }
}

uint32_t kvpi_index_sweep(struct kvpi_index *index, void (*leave)(void *context, uint32_t entry),
                          void *context)
{
    uint32_t n = 0;
    /* By I3 a parent comes before its children on the way down. */
    for (uint32_t e = index->hot; e != NONE; e = index->entries[e].colder) {
        const uint32_t parent = kvpi_index_parent(index, e);
        if (index->entries[e].state != KVPI_ENTRY_GONE && parent != NONE &&
            index->entries[parent].state == KVPI_ENTRY_GONE) {
            if (leave)
                leave(context, e);
            kvpi_index_mark(index, e);
            n++;
        }
    }
    /* Back up: children before their parents. */
    for (uint32_t e = index->cold, next; e != NONE; e = next) {
        next = index->entries[e].hotter;
        if (index->entries[e].state == KVPI_ENTRY_GONE)
            settle(index, e);
    }
    return n;
}

uint32_t kvpi_index_drop(struct kvpi_index *index, uint32_t entry)
{
    kvpi_index_mark(index, entry);
    if (index->entries[entry].children > 0)
        return 1 + kvpi_index_sweep(index, NULL, NULL);
    settle(index, entry);
    return 1;
}

/* ---------------------------------------------------------------------------------------- audit */

static const char *check_entry(const struct kvpi_index *index, uint32_t e, uint32_t *places,
                               uint32_t *children)
{
    const struct kvpi_entry *entry = &index->entries[e];
    if (entry->state == KVPI_ENTRY_FREE || entry->state == KVPI_ENTRY_RETIRED)
        return places[e] == 0 ? "" : "I1: a free entry is in the order";
    if (places[e] == 0)
        return "I1: a used entry is not in the order";
    kvp_digest key = {{0}};
    memcpy(key.bytes, entry->key, sizeof entry->key);
    if ((kvpi_index_find(index, &key) == e) == (entry->state == KVPI_ENTRY_GONE))
        return "I1: an entry is not in the chain of its key, or is and is gone";
    if (entry->children != children[e])
        return "I2: the number of children is wrong";
    const uint32_t parent = kvpi_index_parent(index, e);
    if (parent != NONE && places[parent] <= places[e])
        return "I3: a parent is colder than its child";
    if (parent != NONE && index->entries[parent].space != entry->space)
        return "I5: a child is of another namespace than its parent";
    return "";
}

static const char *check_spaces(const struct kvpi_index *index, const uint32_t *places)
{
    for (uint32_t id = 0; id < index->spaces.n_fresh; id++) {
        const struct kvpi_spaces_item *space = &index->spaces.items[id];
        uint32_t n = 0;
        uint32_t cold = NONE;
        for (uint32_t e = 0; e < index->n; e++) {
            if (places[e] == 0 || index->entries[e].space != id)
                continue;
            n++;
            if (cold == NONE || places[e] < places[cold])
                cold = e;
        }
        if (n != space->used)
            return "I5: a namespace counts wrongly";
        if (n > 0 && kvpi_spaces_find(&index->spaces, space->number) != (int32_t)id)
            return "I5: a namespace is not found";
        if (n > 0 && index->has_quota && space->cold != cold)
            return "I5: a namespace does not know its coldest entry";
    }
    return "";
}

const char *kvpi_index_check(const struct kvpi_index *index)
{
    uint32_t *places = calloc(index->n, 2 * sizeof *places); /* from the cold end, from 1 */
    if (!places)
        return "";
    uint32_t *children = places + index->n;
    const char *wrong = "";
    uint32_t n_used = 0;
    uint32_t n_outside = 0;
    uint32_t last = NONE;
    for (uint32_t e = index->cold; e != NONE && n_used <= index->n; e = index->entries[e].hotter) {
        if (index->entries[e].colder != last)
            wrong = "I1: the order is not the same both ways";
        places[e] = ++n_used;
        last = e;
        if (kvpi_index_parent(index, e) != NONE)
            children[index->entries[e].parent]++;
        n_outside += kvpi_index_is_outside(index->entries[e].parent) != 0;
    }
    uint32_t n_free = 0;
    for (uint32_t e = index->free; e != NONE && n_free <= index->n; e = index->entries[e].colder)
        n_free++;
    if (last != index->hot || n_used != index->n_used ||
        n_used + n_free + index->n_retired != index->n_slots)
        wrong = "I1: entries are lost";
    if (n_outside != index->n_outside)
        wrong = "I6: entries with a parent outside are miscounted";
    for (uint32_t e = 0; e < index->n && !*wrong; e++)
        wrong = check_entry(index, e, places, children);
    if (!*wrong)
        wrong = check_spaces(index, places);
    free(places);
    return wrong;
}
