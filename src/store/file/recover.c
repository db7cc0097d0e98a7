/* recover: the last word on each slot wins, then parents come before their children.
 *
 * Entries stand in the order in which puts ended, so a child may stand before its parent. Records
 * are placed in that order, each after the ancestors that are not placed yet. A record whose parent
 * is not there any more cannot be reached, and is left out. A parent in another writer's directory
 * may be there: such a record is placed as a root is. */
#include <stdlib.h>
#include <string.h>

#include "store/file/recover.h"

#define NONE KVPI_INDEX_NONE

enum { AHEAD = 16 };

enum state { UNKNOWN = 0, LIVE, GONE, PLACED };

struct slot {
    uint8_t key[KVPI_INDEX_KEY];
    uint32_t written;
    uint64_t space;
    uint32_t generation;
    uint32_t parent;
    uint32_t parent_generation;
    uint32_t before; /* list of the live ones, in the order of the log */
    uint32_t after;
    uint32_t below; /* on a way up: the one we came from */
    uint32_t state;
};

struct recovery {
    struct slot *slots; /* [n] */
    uint32_t n;
    uint32_t n_there; /* slots that exist */
    uint32_t first;
    uint32_t last;
};

static void list_out(struct recovery *recovery, uint32_t at)
{
    const struct slot *slot = &recovery->slots[at];
    if (slot->before == NONE)
        recovery->first = slot->after;
    else
        recovery->slots[slot->before].after = slot->after;
    if (slot->after == NONE)
        recovery->last = slot->before;
    else
        recovery->slots[slot->after].before = slot->before;
}

static void list_in(struct recovery *recovery, uint32_t at)
{
    recovery->slots[at].before = recovery->last;
    recovery->slots[at].after = NONE;
    if (recovery->last == NONE)
        recovery->first = at;
    else
        recovery->slots[recovery->last].after = at;
    recovery->last = at;
}

static void take_entry(void *context, const struct kvpi_log_entry *entry)
{
    struct recovery *recovery = context;
    if (entry->slot >= recovery->n || entry->generation == 0)
        return;
    struct slot *slot = &recovery->slots[entry->slot];
    if (entry->generation < slot->generation)
        return;
    if (slot->state == LIVE)
        list_out(recovery, entry->slot);
    slot->generation = entry->generation;
    slot->state = entry->kind == KVPI_LOG_PUT && entry->slot < recovery->n_there ? LIVE : GONE;
    if (slot->state == GONE)
        return;
    memcpy(slot->key, entry->key, sizeof slot->key);
    slot->written = entry->written;
    slot->space = entry->space;
    slot->parent = entry->parent;
    slot->parent_generation = entry->parent_generation;
    list_in(recovery, entry->slot);
}

/* The parent here that a record needs: NONE at a root, else a slot; out_there: it is as it was. */
static uint32_t parent_of(const struct recovery *recovery, const struct slot *slot, int *out_there)
{
    *out_there = 1;
    if (slot->parent == NONE || kvpi_index_is_outside(slot->parent))
        return NONE;
    const struct slot *parent = slot->parent < recovery->n ? &recovery->slots[slot->parent] : NULL;
    *out_there = parent && parent->generation == slot->parent_generation &&
                 (parent->state == LIVE || parent->state == PLACED);
    return slot->parent;
}

/* Up to the first ancestor that is placed, or the root; then down again, placing. On a way that
 * ends nowhere, or comes back to itself, all are gone: so each slot is passed twice at most. */
static void place(struct recovery *recovery, struct kvpi_index *index, uint32_t at)
{
    uint32_t below = NONE;
    int there = 1;
    while (at != NONE && recovery->slots[at].state == LIVE) {
        struct slot *slot = &recovery->slots[at];
        slot->below = below;
        slot->state = GONE; /* until it is placed; who comes by again finds it so */
        below = at;
        at = parent_of(recovery, slot, &there);
        if (!there)
            return;
    }
    /* at: none, or one that was placed: a slot that is there is that or live */
    for (; below != NONE; at = below, below = recovery->slots[below].below) {
        struct slot *slot = &recovery->slots[below];
        kvp_digest key = {{0}};
        memcpy(key.bytes, slot->key, sizeof slot->key);
        if (kvpi_index_find(index, &key) != NONE)
            return; /* a second copy, whose end was not logged */
        struct kvpi_index_record record = {.parent = at == NONE ? slot->parent : at,
                                           .generation = slot->generation,
                                           .written = slot->written,
                                           .space = slot->space};
        memcpy(record.key, slot->key, sizeof record.key);
        if (!kvpi_index_restore(index, below, &record))
            return;
        slot->state = PLACED;
    }
}

static void place_all(struct recovery *recovery, struct kvpi_index *index)
{
    uint32_t ahead = recovery->first; /* where the buckets are brought into the CPU's caches */
    for (uint32_t i = 0; i < AHEAD && ahead != NONE; i++)
        ahead = recovery->slots[ahead].after;
    for (uint32_t at = recovery->first; at != NONE; at = recovery->slots[at].after) {
        if (ahead != NONE) {
            kvpi_index_prefetch_bucket(index, recovery->slots[ahead].key);
            ahead = recovery->slots[ahead].after;
        }
        place(recovery, index, at);
    }
}

kvp_status kvpi_recover(struct kvpi_log *log, struct kvpi_index *index, uint32_t n_slots,
                        uint64_t *out_n_damaged)
{
    struct recovery recovery = {.n = index->n, .n_there = n_slots, .first = NONE, .last = NONE};
    recovery.slots = calloc(index->n, sizeof *recovery.slots);
    if (!recovery.slots)
        return KVP_E_NO_MEMORY;
    uint64_t next;
    *out_n_damaged = 0;
    const int error =
        kvpi_log_read(log, 0, UINT64_MAX, take_entry, &recovery, &next, out_n_damaged);
    if (!error)
        place_all(&recovery, index);
    for (uint32_t at = 0; at < index->n && !error; at++)
        if (recovery.slots[at].state != PLACED)
            index->entries[at].generation = recovery.slots[at].generation;
    free(recovery.slots);
    return error ? KVP_E_IO : KVP_OK;
}
