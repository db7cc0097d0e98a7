/* ghost: see ghost.h. */
#include "core/policy/ghost.h"

#include <string.h>

enum { TAIL = KVPI_BINS - 1 };

static uint32_t *list_of(const struct kvpi_ghost *ghost, uint32_t name)
{
    uint32_t *lists = kvpi_at(ghost, ghost->lists_at);
    return &lists[name & (ghost->n_lists - 1)];
}

static uint32_t after(const struct kvpi_ghost *ghost, uint32_t place)
{
    return place + 1 == ghost->n_places ? 0 : place + 1;
}

void kvpi_ghost_layout(struct kvpi_ghost *ghost, uint32_t group_blocks, struct kvpi_layout *layout,
                       size_t self)
{
    const uint64_t n = (uint64_t)ghost->n_blocks * (KVPI_SPAN + 1) / group_blocks + 2;
    if (n > UINT32_MAX / 2) {
        layout->overflow = 1;
        return;
    }
    ghost->n_places = (uint32_t)n;
    for (ghost->n_lists = 1; ghost->n_lists < n;) {
        ghost->n_lists *= 2;
    }
    const uint32_t shift = kvpi_bins_shift(ghost->n_blocks);
    for (uint32_t b = 0; b < KVPI_BINS; b++) {
        const uint64_t edge = kvpi_bins_edge(ghost->n_blocks, b + 1);
        ghost->edges[b] = (uint32_t)((edge + (1u << shift) - 1) >> shift);
    }
    ghost->entries_at = kvpi_layout_take(layout, n, sizeof(struct kvpi_ghost_entry)) - self;
    ghost->lists_at = kvpi_layout_take(layout, ghost->n_lists, sizeof(uint32_t)) - self;
}

void kvpi_ghost_reset(struct kvpi_ghost *ghost)
{
    memset(ghost->cursors, 0, sizeof(ghost->cursors));
    memset(kvpi_at(ghost, ghost->lists_at), 0xff, ghost->n_lists * sizeof(uint32_t));
    ghost->head = 0;
    ghost->lru = 0;
    ghost->lru_blocks = 0;
}

/* ---------------------------------------------------------------------------------- the entries */

uint32_t kvpi_ghost_find(const struct kvpi_ghost *ghost, uint32_t name)
{
    uint32_t place = *list_of(ghost, name);
    while (place != KVPI_GHOST_NONE && kvpi_ghost_entry(ghost, place)->name != name) {
        place = kvpi_ghost_entry(ghost, place)->next;
    }
    return place;
}

/* LRU has it no more. */
static void leave_lru(struct kvpi_ghost *ghost, struct kvpi_ghost_entry *entry)
{
    if (entry->class_ & KVPI_GHOST_IN_LRU) {
        entry->class_ &= (uint8_t)~KVPI_GHOST_IN_LRU;
        ghost->lru_blocks -= entry->blocks;
    }
}

void kvpi_ghost_strike(struct kvpi_ghost *ghost, uint32_t name)
{
    uint32_t *link = list_of(ghost, name);
    while (kvpi_ghost_entry(ghost, *link)->name != name) {
        link = &kvpi_ghost_entry(ghost, *link)->next;
    }
    struct kvpi_ghost_entry *entry = kvpi_ghost_entry(ghost, *link);
    *link = entry->next;
    leave_lru(ghost, entry);
    entry->class_ |= KVPI_GHOST_DEAD;
}

/* The tail's entry goes. */
static void forget_oldest(struct kvpi_ghost *ghost)
{
    const uint32_t oldest = ghost->cursors[TAIL];
    const struct kvpi_ghost_entry *entry = kvpi_ghost_entry(ghost, oldest);
    if (!(entry->class_ & KVPI_GHOST_DEAD)) {
        kvpi_ghost_strike(ghost, entry->name);
    }
    for (uint32_t b = 0; b < KVPI_BINS; b++) {
        if (ghost->cursors[b] == oldest) {
            ghost->cursors[b] = after(ghost, oldest);
        }
    }
    if (ghost->lru == oldest) {
        ghost->lru = after(ghost, oldest);
    }
}

static uint64_t age_of(const struct kvpi_ghost *ghost, const struct kvpi_ghost_entry *entry,
                       uint64_t now)
{
    const uint32_t shift = kvpi_bins_shift(ghost->n_blocks);
    return (uint64_t)((uint32_t)(now >> shift) - entry->stamp) << shift;
}

uint32_t kvpi_ghost_bin(const struct kvpi_ghost *ghost, const struct kvpi_ghost_entry *entry,
                        uint64_t now)
{
    return kvpi_bins_of(ghost->n_blocks, age_of(ghost, entry, now));
}

/* The oldest entry in a bin is too old for it. */
static void leave_bin(struct kvpi_ghost *ghost, struct kvpi_hits *hits, uint32_t bin)
{
    const uint32_t place = ghost->cursors[bin];
    const struct kvpi_ghost_entry *entry = kvpi_ghost_entry(ghost, place);
    if (!(entry->class_ & KVPI_GHOST_DEAD)) {
        kvpi_hits_outlived(hits, entry->class_ & KVPI_GHOST_CLASS, bin);
    }
    if (bin == TAIL) {
        forget_oldest(ghost);
    } else {
        ghost->cursors[bin] = after(ghost, place);
    }
}

void kvpi_ghost_age(struct kvpi_ghost *ghost, struct kvpi_hits *hits, uint64_t now)
{
    const uint32_t units = (uint32_t)(now >> kvpi_bins_shift(ghost->n_blocks));
    for (uint32_t b = 0; b < KVPI_BINS; b++) {
        while (ghost->cursors[b] != ghost->head &&
               units - kvpi_ghost_entry(ghost, ghost->cursors[b])->stamp >= ghost->edges[b]) {
            leave_bin(ghost, hits, b);
        }
    }
}

void kvpi_ghost_trim(struct kvpi_ghost *ghost, uint64_t n_blocks)
{
    while (ghost->lru_blocks > n_blocks) {
        leave_lru(ghost, kvpi_ghost_entry(ghost, ghost->lru));
        ghost->lru = after(ghost, ghost->lru);
    }
}

void kvpi_ghost_enter(struct kvpi_ghost *ghost, const struct kvpi_ghost_entry *entry, uint64_t now)
{
    const uint32_t place = ghost->head;
    struct kvpi_ghost_entry *to = kvpi_ghost_entry(ghost, place);
    uint32_t *list = list_of(ghost, entry->name);
    if (after(ghost, place) == ghost->cursors[TAIL]) {
        forget_oldest(ghost);
    }
    *to = *entry;
    to->stamp = (uint32_t)(now >> kvpi_bins_shift(ghost->n_blocks));
    to->next = *list;
    to->class_ |= KVPI_GHOST_IN_LRU;
    *list = place;
    ghost->lru_blocks += entry->blocks;
    ghost->head = after(ghost, place);
}

void kvpi_ghost_restore(struct kvpi_ghost *ghost, const struct kvpi_ghost_entry *entry)
{
    const uint32_t place = ghost->head;
    struct kvpi_ghost_entry *to = kvpi_ghost_entry(ghost, place);
    *to = *entry;
    to->next = KVPI_GHOST_NONE;
    if (!(entry->class_ & KVPI_GHOST_DEAD)) {
        uint32_t *list = list_of(ghost, entry->name);
        to->next = *list;
        *list = place;
    }
    ghost->lru_blocks += entry->class_ & KVPI_GHOST_IN_LRU ? entry->blocks : 0;
    ghost->head = after(ghost, place);
}

/* ---------------------------------------------------------------------------------- the audit */

/* How far a place is behind the tail. */
static uint32_t distance(const struct kvpi_ghost *ghost, uint32_t place)
{
    const uint32_t tail = ghost->cursors[TAIL];
    return place >= tail ? place - tail : place + ghost->n_places - tail;
}

static int cursors_are_in_order(const struct kvpi_ghost *ghost)
{
    uint32_t newer = distance(ghost, ghost->head);
    if (ghost->head >= ghost->n_places || ghost->lru >= ghost->n_places ||
        distance(ghost, ghost->lru) > newer) {
        return 0;
    }
    for (uint32_t b = 0; b < KVPI_BINS; b++) {
        if (ghost->cursors[b] >= ghost->n_places || distance(ghost, ghost->cursors[b]) > newer) {
            return 0;
        }
        newer = distance(ghost, ghost->cursors[b]);
    }
    return 1;
}

/* Entries that the index leads to; more than the ring has, if it goes in a circle, or astray. */
static uint64_t count_listed(const struct kvpi_ghost *ghost)
{
    uint64_t n = 0;
    const uint32_t *lists = kvpi_at(ghost, ghost->lists_at);
    for (uint32_t i = 0; i < ghost->n_lists; i++) {
        uint32_t place = lists[i];
        for (; place != KVPI_GHOST_NONE; n++) {
            if (n > ghost->n_places || place >= ghost->n_places) {
                return UINT64_MAX;
            }
            place = kvpi_ghost_entry(ghost, place)->next;
        }
    }
    return n;
}

const char *kvpi_ghost_check(const struct kvpi_ghost *ghost)
{
    uint64_t n_live = 0, lru_blocks = 0;
    const uint64_t n_listed = count_listed(ghost);
    if (!cursors_are_in_order(ghost)) {
        return "G3 the cursors are not in order";
    }
    if (n_listed > ghost->n_places) {
        return "G2 the index is broken";
    }
    const uint32_t lru = distance(ghost, ghost->lru);
    for (uint32_t at = ghost->cursors[TAIL]; at != ghost->head; at = after(ghost, at)) {
        const struct kvpi_ghost_entry *entry = kvpi_ghost_entry(ghost, at);
        const uint32_t next = after(ghost, at);
        const int in_lru = (entry->class_ & KVPI_GHOST_IN_LRU) != 0;
        const int dead = (entry->class_ & KVPI_GHOST_DEAD) != 0;
        if (next != ghost->head &&
            kvpi_ghost_entry(ghost, next)->stamp - entry->stamp > INT32_MAX) {
            return "G1 an entry is older than the one before it";
        }
        if (!dead && kvpi_ghost_find(ghost, entry->name) != at) {
            return "G2 a live entry is not found";
        }
        if (in_lru != (!dead && distance(ghost, at) >= lru)) {
            return "G4 an entry's mark does not say whether LRU has it";
        }
        n_live += !dead;
        lru_blocks += in_lru ? entry->blocks : 0;
    }
    if (n_listed != n_live) {
        return "G2 the index has entries that are not live";
    }
    return lru_blocks == ghost->lru_blocks ? NULL : "G4 LRU's blocks do not add up";
}

int kvpi_ghost_ages_are_wrong(const struct kvpi_ghost *ghost, uint64_t now)
{
    uint64_t before = (uint64_t)INT32_MAX << kvpi_bins_shift(ghost->n_blocks);
    for (uint32_t at = ghost->cursors[TAIL]; at != ghost->head; at = after(ghost, at)) {
        const uint64_t age = age_of(ghost, kvpi_ghost_entry(ghost, at), now);
        if (age > before) {
            return 1;
        }
        before = age;
    }
    return 0;
}
