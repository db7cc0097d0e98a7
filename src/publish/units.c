/* units: see units.h. All memory is taken when it is opened. */
#include "publish/units.h"

#include <stdlib.h>
#include <string.h>

static uint32_t bucket_of(const struct kvpi_units *set, const kvp_hash *hash)
{
    uint32_t bits;
    memcpy(&bits, hash, sizeof(bits)); /* a content hash: any bits will do */
    return bits & set->mask;
}

static void *take(struct kvpi_units *set, size_t n, size_t size)
{
    set->bytes += n * size;
    return calloc(n, size);
}

kvp_status kvpi_units_open(struct kvpi_units *set, uint32_t max_units, uint32_t unit_tokens,
                           int has_digests)
{
    uint32_t n_buckets = 1;
    while (n_buckets < max_units) {
        n_buckets *= 2;
    }
    memset(set, 0, sizeof(*set));
    set->capacity = max_units + 1;
    set->unit_tokens = unit_tokens;
    set->mask = n_buckets - 1;
    if (SIZE_MAX / sizeof(int32_t) / unit_tokens <= set->capacity) {
        return KVP_E_NO_MEMORY;
    }
    set->buckets = take(set, n_buckets, sizeof(*set->buckets));
    set->units = take(set, set->capacity, sizeof(*set->units));
    set->tokens = take(set, (size_t)set->capacity * unit_tokens, sizeof(*set->tokens));
    set->digests = has_digests ? take(set, set->capacity, 32) : NULL;
    if (set->buckets == NULL || set->units == NULL || set->tokens == NULL ||
        (has_digests && set->digests == NULL)) {
        kvpi_units_close(set);
        return KVP_E_NO_MEMORY;
    }
    kvpi_units_reset(set);
    return KVP_OK;
}

void kvpi_units_close(struct kvpi_units *set)
{
    free(set->buckets);
    free(set->units);
    free(set->tokens);
    free(set->digests);
    memset(set, 0, sizeof(*set));
}

void kvpi_units_reset(struct kvpi_units *set)
{
    memset(set->buckets, 0, ((size_t)set->mask + 1) * sizeof(*set->buckets));
    memset(&set->units[0], 0, sizeof(set->units[0]));
    set->n = 0;
    set->free = set->capacity > 1 ? 1 : KVPI_NO_UNIT;
    for (uint32_t slot = 1; slot < set->capacity; slot++) {
        set->units[slot].chain = slot + 1 < set->capacity ? slot + 1 : KVPI_NO_UNIT;
        set->units[slot].stamp = 0; /* in no snapshot's list any more */
    }
}

uint32_t kvpi_units_find(const struct kvpi_units *set, const kvp_hash *hash)
{
    uint32_t slot = set->buckets[bucket_of(set, hash)];
    while (slot != KVPI_NO_UNIT && memcmp(&set->units[slot].hash, hash, sizeof(*hash)) != 0) {
        slot = set->units[slot].chain;
    }
    return slot;
}

/* ------------------------------------------------------------------------------------- the tree */

static void unlink_slot(struct kvpi_units *set, uint32_t slot)
{
    const struct kvpi_unit *unit = &set->units[slot];
    if (unit->prev != KVPI_NO_UNIT) {
        set->units[unit->prev].next = unit->next;
    } else {
        set->units[unit->before].first_child = unit->next;
    }
    if (unit->next != KVPI_NO_UNIT) {
        set->units[unit->next].prev = unit->prev;
    }
}

static void link_slot(struct kvpi_units *set, uint32_t slot, uint32_t before)
{
    struct kvpi_unit *unit = &set->units[slot];
    unit->before = before;
    unit->prev = KVPI_NO_UNIT;
    unit->next = set->units[before].first_child;
    if (unit->next != KVPI_NO_UNIT) {
        set->units[unit->next].prev = slot;
    }
    set->units[before].first_child = slot;
}

uint32_t kvpi_units_add(struct kvpi_units *set, const kvp_hash *hash, uint32_t before)
{
    const uint32_t slot = set->free;
    if (slot == KVPI_NO_UNIT) {
        return KVPI_NO_UNIT;
    }
    struct kvpi_unit *unit = &set->units[slot];
    set->free = unit->chain;
    memset(unit, 0, sizeof(*unit));
    unit->hash = *hash;
    unit->stamp = ++set->stamp;
    uint32_t *bucket = &set->buckets[bucket_of(set, hash)];
    unit->chain = *bucket;
    *bucket = slot;
    link_slot(set, slot, before);
    set->n++;
    return slot;
}

void kvpi_units_move(struct kvpi_units *set, uint32_t slot, uint32_t before)
{
    unlink_slot(set, slot);
    link_slot(set, slot, before);
}

static void free_slot(struct kvpi_units *set, uint32_t slot)
{
    struct kvpi_unit *unit = &set->units[slot];
    uint32_t *at = &set->buckets[bucket_of(set, &unit->hash)];
    while (*at != slot) {
        at = &set->units[*at].chain;
    }
    *at = unit->chain;
    unlink_slot(set, slot);
    unit->stamp = 0;
    unit->chain = set->free;
    set->free = slot;
    set->n--;
}

uint32_t kvpi_units_prune(struct kvpi_units *set, uint32_t slot)
{
    while (slot != KVPI_NO_UNIT && set->units[slot].tiers == 0 &&
           set->units[slot].first_child == KVPI_NO_UNIT) {
        const uint32_t before = set->units[slot].before;
        free_slot(set, slot);
        slot = before;
    }
    return slot;
}

uint32_t kvpi_units_next(const struct kvpi_units *set, uint32_t top, uint32_t slot, int skip)
{
    if (!skip && set->units[slot].first_child != KVPI_NO_UNIT) {
        return set->units[slot].first_child;
    }
    while (slot != top) {
        if (set->units[slot].next != KVPI_NO_UNIT) {
            return set->units[slot].next;
        }
        slot = set->units[slot].before;
    }
    return KVPI_NO_UNIT;
}
