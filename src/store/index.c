/* index: records by key, their tree, and the order in which they go. */
#include "store/index.h"

#include <stdlib.h>
#include <string.h>

enum { EPOCH = 1024 }; /* touches */

#define NONE KVPI_INDEX_NONE

/* ---------------------------------------------------------------------------------- open, close */

kvp_status kvpi_index_open(struct kvpi_index *index, uint32_t n)
{
    *index = (struct kvpi_index){.n = n, .n_buckets = 1, .free = NONE, .cold = NONE, .hot = NONE};
    while (index->n_buckets < n)
        index->n_buckets *= 2;
    index->entries = calloc(n, sizeof *index->entries);
    index->table = malloc(index->n_buckets * sizeof *index->table);
    if (!index->entries || !index->table) {
        kvpi_index_close(index);
        return KVP_E_NO_MEMORY;
    }
    memset(index->table, 0xFF, index->n_buckets * sizeof *index->table);
    return KVP_OK;
}

/* The lowest is taken first. */
void kvpi_index_free(struct kvpi_index *index, uint32_t n_slots)
{
    for (uint32_t e = n_slots; e-- > index->n_slots;) {
        if (index->entries[e].state == KVPI_ENTRY_FREE) {
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

static void order_out(struct kvpi_index *index, uint32_t entry)
{
    const struct kvpi_entry *e = &index->entries[entry];
    if (e->colder == NONE)
        index->cold = e->hotter;
    else
        index->entries[e->colder].hotter = e->hotter;
    if (e->hotter == NONE)
        index->hot = e->colder;
    else
        index->entries[e->hotter].colder = e->colder;
}

/* Put an entry next to `hotter`, on its colder side; NONE: at the hot end. */
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
}

static void count_touch(struct kvpi_index *index)
{
    if (++index->touches == EPOCH) {
        index->touches = 0;
        index->epoch++;
    }
}

/* Leaf first, each next to the same anchor: so a parent ends up hotter than its child. */
static void move_up(struct kvpi_index *index, uint32_t entry)
{
    uint32_t anchor = entry;
    while (anchor != NONE && index->entries[anchor].epoch != index->epoch)
        anchor = index->entries[anchor].parent;
    for (uint32_t e = entry; e != anchor; e = index->entries[e].parent) {
        order_out(index, e);
        order_in(index, e, anchor);
        index->entries[e].epoch = index->epoch;
    }
}

void kvpi_index_touch(struct kvpi_index *index, uint32_t entry)
{
    count_touch(index);
    move_up(index, entry);
}

uint32_t kvpi_index_victim(const struct kvpi_index *index, uint32_t limit)
{
    uint32_t e = index->cold;
    for (uint32_t i = 0; i < limit && e != NONE; i++, e = index->entries[e].hotter) {
        const struct kvpi_entry *entry = &index->entries[e];
        if (entry->state == KVPI_ENTRY_READY && entry->children == 0 && entry->pins == 0)
            return e;
    }
    return NONE;
}

/* ---------------------------------------------------------------------------------- add, remove */

/* A slot that is in no list becomes the entry of a key: hottest but for its ancestors. */
static struct kvpi_entry *enter(struct kvpi_index *index, uint32_t entry, const uint8_t key[16],
                                uint32_t parent)
{
    count_touch(index);
    if (parent != NONE) {
        move_up(index, parent);
        index->entries[parent].children++;
    }
    struct kvpi_entry *e = &index->entries[entry];
    memcpy(e->key, key, sizeof e->key);
    e->parent = parent;
    e->children = 0;
    e->epoch = index->epoch;
    order_in(index, entry, parent);
    chain_in(index, entry);
    index->n_used++;
    return e;
}

uint32_t kvpi_index_add(struct kvpi_index *index, const kvp_digest *key, uint32_t parent)
{
    const uint32_t entry = index->free;
    if (entry == NONE)
        return NONE;
    index->free = index->entries[entry].colder;
    struct kvpi_entry *e = enter(index, entry, key->bytes, parent);
    e->generation++;
    e->pins = 1;
    e->state = KVPI_ENTRY_WRITING;
    return entry;
}

void kvpi_index_restore(struct kvpi_index *index, uint32_t slot, const uint8_t key[16],
                        uint32_t parent, uint32_t generation)
{
    struct kvpi_entry *e = enter(index, slot, key, parent);
    e->generation = generation;
    e->state = KVPI_ENTRY_READY;
}

/* Give a slot back that is in no chain any more. */
static void give_back(struct kvpi_index *index, uint32_t entry)
{
    struct kvpi_entry *e = &index->entries[entry];
    order_out(index, entry);
    if (e->parent != NONE)
        index->entries[e->parent].children--;
    index->n_used--;
    if (e->generation == UINT32_MAX) {
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
    if (--e->pins == 0 && e->state == KVPI_ENTRY_GONE)
        give_back(index, entry);
}

static void set_gone(struct kvpi_index *index, uint32_t entry)
{
    index->entries[entry].state = KVPI_ENTRY_GONE;
    chain_out(index, entry);
}

uint32_t kvpi_index_drop(struct kvpi_index *index, uint32_t entry)
{
    set_gone(index, entry);
    uint32_t n = 1;
    /* By I3 a parent comes before its children on the way down. */
    for (uint32_t e = index->entries[entry].colder; e != NONE && index->entries[entry].children > 0;
         e = index->entries[e].colder) {
        const struct kvpi_entry *child = &index->entries[e];
        if (child->state != KVPI_ENTRY_GONE && child->parent != NONE &&
            index->entries[child->parent].state == KVPI_ENTRY_GONE) {
            set_gone(index, e);
            n++;
        }
    }
    /* Back up: children before their parents. An entry that stays for its pins stands alone. */
    for (uint32_t e = index->cold, next; e != NONE; e = next) {
        struct kvpi_entry *gone = &index->entries[e];
        next = gone->hotter;
        if (gone->state != KVPI_ENTRY_GONE)
            continue;
        if (gone->pins == 0) {
            give_back(index, e);
        } else if (gone->parent != NONE) {
            index->entries[gone->parent].children--;
            gone->parent = NONE;
        }
    }
    return n;
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
    if (entry->parent != NONE && places[entry->parent] <= places[e])
        return "I3: a parent is colder than its child";
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
    uint32_t last = NONE;
    for (uint32_t e = index->cold; e != NONE && n_used <= index->n; e = index->entries[e].hotter) {
        if (index->entries[e].colder != last)
            wrong = "I1: the order is not the same both ways";
        places[e] = ++n_used;
        last = e;
        if (index->entries[e].parent != NONE)
            children[index->entries[e].parent]++;
    }
    uint32_t n_free = 0;
    for (uint32_t e = index->free; e != NONE && n_free <= index->n; e = index->entries[e].colder)
        n_free++;
    if (last != index->hot || n_used != index->n_used ||
        n_used + n_free + index->n_retired != index->n_slots)
        wrong = "I1: entries are lost";
    for (uint32_t e = 0; e < index->n && !*wrong; e++)
        wrong = check_entry(index, e, places, children);
    free(places);
    return wrong;
}
